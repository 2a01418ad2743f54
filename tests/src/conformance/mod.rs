//! What any provider must hold. Each case is `pub async fn case(subject: &Subject)`, and [`conformance_suite!`] lists
//! them all, once.
//!
//! A case may ask what the provider declares ([`Subject::features`](crate::support::Subject::features)) and for
//! deviations that are listed by name with their reason ([`Deviation`](crate::support::Deviation)), never who it is.

pub mod content;
pub mod ending;
pub mod environment;
pub mod errors;
pub mod exec;
pub mod listing;
pub mod names;
pub mod output;
pub mod paths;
pub mod search;
pub mod stdin;
pub mod writing;

/// Makes a test of every case, for one kind of subject.
#[macro_export]
macro_rules! conformance_suite {
    ($kind:expr) => {
        $crate::conformance_suite! { @cases $kind;
            content {
                every_kind_of_byte_comes_back,
                ranges_of_bytes,
                ranges_of_lines,
                a_stat_says_what_a_path_is,
            }
            ending {
                a_background_process_does_not_hold_its_command,
                a_timeout_ends_all_and_keeps_the_output,
                no_limit_is_a_limit_too,
                dropping_a_command_ends_it,
                signals_reach_a_command,
                a_dead_command_spoils_nothing,
            }
            environment {
                a_variable_is_seen_by_its_command_only,
                values_are_exact,
                a_value_is_redacted_from_the_output,
                unusable_names_are_refused_before_anything_runs,
                a_value_is_in_no_command_line,
            }
            errors {
                what_is_not_there,
                what_is_a_directory,
                what_is_not_a_directory,
                what_is_there_already,
                what_is_no_regular_file,
                names_that_steer_terminals,
                arguments_out_of_range,
            }
            exec {
                streams_are_told_apart_and_in_order,
                a_line_arrives_before_the_command_ends,
                exit_codes_are_exact,
                deaths_by_signals_are_told,
                fifty_at_once,
                two_hundred_in_a_row,
                words_are_passed_exactly,
                a_directory_to_run_in,
                a_command_with_nul_is_refused,
            }
            listing {
                entries_are_sorted_and_whole,
                depths_and_limits,
                ignored_names_are_left_out_below_the_root_only,
                links_are_shown_and_not_followed,
            }
            names {
                odd_names_survive_every_operation,
                odd_names_of_directories_do_too,
                nothing_in_a_name_is_run,
            }
            output {
                five_million_bytes_and_then_a_code,
                bytes_that_are_no_text,
                characters_that_come_in_parts,
                a_limit_keeps_head_and_tail_and_counts_the_rest,
                a_limit_that_is_not_reached_changes_nothing,
            }
            paths {
                one_path_is_one_file_everywhere,
                dots_lead_nowhere,
                relative_paths_begin_at_the_workspace,
                links_inside_lead_where_they_say,
                links_in_circles_end,
            }
            search {
                globs_match_from_the_right_unless_tied,
                globs_know_segments_classes_and_alternatives,
                names_that_are_no_text_are_counted,
                globs_are_cut_at_their_limit,
                searches_leave_out_ignored_names_below_the_root_only,
                lines_are_found_with_their_numbers,
                expressions_case_and_literals,
                greps_are_cut_at_their_limit,
                binary_and_large_files_and_long_lines_are_left_out,
                one_file_can_be_searched,
                patterns_that_are_none_are_refused,
            }
            stdin {
                without_input_there_is_its_end,
                input_arrives_whole_and_ends,
                input_that_nobody_reads_holds_nothing_up,
                a_large_input_arrives_while_output_leaves,
            }
            writing {
                parents_are_made,
                replacing_keeps_the_mode_and_changes_all,
                readers_see_the_old_or_the_new,
                appends_are_added_and_make_files,
                appends_at_once_all_land,
                create_new_makes_and_never_replaces,
                an_upload_that_breaks_off_changes_nothing,
                removing,
                making_directories,
            }
        }
    };
    (@cases $kind:expr; $($room:ident { $($case:ident),* $(,)? })*) => {
        $(mod $room {
            $(#[test]
            fn $case() {
                sandgate_tests::support::conform($kind, sandgate_tests::conformance::$room::$case);
            })*
        })*
    };
}
