//! So does a provider that has nothing but `exec`: its file operations are the guest SDK's, by shell commands.

sandgate_tests::conformance_suite!(sandgate_tests::support::Kind::ShellOnly);
