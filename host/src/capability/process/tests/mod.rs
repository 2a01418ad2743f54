//! Real bash in real namespaces. Where user namespaces can't be had these tests fail, and say so.

mod cgroups;
mod commands;
mod endings;
mod isolation;
mod kit;
mod leash;
mod start;
mod volume;
