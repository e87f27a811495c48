//! Real processes: a broker, its server and clients, over real connections with TLS, through a proxy that corrupts
//! them, and killed. Random choices come from a seed, which is printed.
//!
//! This program is all of these processes: its first argument selects one. Without one it runs the tests.

#![allow(clippy::unwrap_used, reason = "as in any test")]

mod chaos;
mod harness;
mod launches;
mod limits;
mod proxy;
mod raw;
mod refusals;
mod slow_connections;
mod transfers;

use std::ffi::OsString;
use std::process::ExitCode;

use freehold_broker::{Config, fdstore, run_role};
use freehold_testing::process::{self, exit_code, test, this_program};

use harness::Harness;

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let first = words.first().and_then(|word| word.to_str()).unwrap_or("");
    let rest = words.get(1..).unwrap_or(&[]);
    match first {
        "role" => {
            let (part, config) =
                Config::from_args(this_program(), vec!["role".into()], rest).expect("the arguments of a role");
            exit_code(run_role(part, config))
        }
        "serve" => exit_code(fdstore::run(&harness::config(rest), None, || println!("ready"), || true)),
        "server" => exit_code(harness::run_server(rest)),
        "client" => chaos::client(rest),
        _ => run(),
    }
}

type Test = (&'static str, fn(&Harness));

const TESTS: &[Test] = &[
    ("bytes_of_any_length_go_up_and_come_back", transfers::bytes_of_any_length_go_up_and_come_back),
    ("parts_of_a_block_are_written_and_read", transfers::parts_of_a_block_are_written_and_read),
    ("what_is_published_outlives_its_session", transfers::what_is_published_outlives_its_session),
    ("a_session_that_is_closed_leaves_nothing", transfers::a_session_that_is_closed_leaves_nothing),
    ("a_session_that_nobody_uses_ends_and_one_in_use_does_not", transfers::an_unused_session_ends),
    ("many_clients_at_once_have_their_own_bytes", transfers::many_clients_at_once_have_their_own_bytes),
    ("a_repeated_call_is_executed_once", transfers::a_repeated_call_is_executed_once),
    ("an_upload_goes_on_where_it_stood_over_another_connection", transfers::an_upload_goes_on_where_it_stood),
    ("a_completed_upload_is_answered_again", transfers::a_completed_upload_is_answered_again),
    ("without_tls_the_same_is_served", transfers::without_tls_the_same_is_served),
    ("a_refused_client_is_told_why", refusals::a_refused_client_is_told_why),
    ("an_invalid_certificate_is_an_error_that_says_why", refusals::an_invalid_certificate_is_an_error_that_says_why),
    (
        "a_mismatch_of_tls_or_protocol_is_named_in_the_error",
        refusals::a_mismatch_of_tls_or_protocol_is_named_in_the_error,
    ),
    ("an_unknown_session_and_an_unknown_block_are_refused", refusals::unknown_things_are_refused),
    ("offsets_outside_of_a_block_are_refused", refusals::offsets_outside_of_a_block_are_refused),
    ("wild_numbers_are_refused_and_change_nothing", refusals::wild_numbers_are_refused),
    ("chunks_that_are_wrong_are_refused_and_the_upload_goes_on", refusals::chunks_that_are_wrong_are_refused),
    ("an_upload_with_another_checksum_is_not_complete", refusals::an_upload_with_another_checksum_is_not_complete),
    ("who_does_not_read_is_parted_from_and_holds_nobody_up", refusals::a_client_that_does_not_read_is_disconnected),
    ("what_is_leased_for_reading_is_not_written", refusals::what_is_leased_for_reading_is_not_written),
    ("a_client_without_a_token_in_time_is_disconnected", limits::a_client_without_a_token_in_time_is_disconnected),
    (
        "unauthenticated_connections_make_room_for_later_ones",
        limits::unauthenticated_connections_make_room_for_later_ones,
    ),
    ("so_many_connections_are_served_and_others_wait", limits::so_many_connections_are_served),
    ("questions_without_a_token_are_short", limits::questions_without_a_token_are_short),
    ("who_only_asks_for_health_is_parted_from_in_time", limits::a_client_that_only_asks_for_health_is_disconnected),
    ("an_upload_that_does_not_begin_is_ended", limits::an_upload_that_does_not_begin_is_ended),
    ("a_call_that_does_not_come_is_ended", limits::a_call_that_does_not_come_is_ended),
    ("a_greedy_session_leaves_others_room_for_transfers", limits::a_greedy_session_leaves_lanes),
    ("a_greedy_session_leaves_others_room_to_wait", limits::a_greedy_session_leaves_waits),
    ("a_session_knows_so_many_modules", limits::a_session_knows_so_many_modules),
    ("variables_of_modules_are_within_the_quota_of_all_sessions", limits::variables_are_within_the_quota),
    ("so_many_modules_are_taken_in_at_once", limits::so_many_modules_are_taken_in_at_once),
    ("a_busy_slow_line_is_one_connection", slow_connections::a_busy_slow_line_is_one_connection),
    ("an_upload_that_lasts_longer_than_patience_is_resumed", slow_connections::a_long_upload_is_resumed),
    ("a_kernel_runs_on_blocks_of_a_session", launches::a_kernel_runs_on_blocks_of_a_session),
    ("what_a_kernel_writes_to_a_name_is_there_when_it_was_waited_for", launches::names_are_arguments),
    ("one_handle_is_the_same_elsewhere", launches::one_handle_is_the_same_elsewhere),
    ("a_repeated_launch_is_launched_once", launches::a_repeated_launch_is_launched_once),
    ("a_launch_that_never_was_is_not_waited_for", launches::a_launch_that_never_was_is_not_waited_for),
    ("launches_that_are_forgotten_went_well", launches::launches_that_are_forgotten_went_well),
    ("a_refused_launch_publishes_nothing_and_holds_nothing", launches::a_refused_launch_holds_nothing),
    ("a_long_refusal_says_that_it_was_cut", launches::a_long_refusal_says_that_it_was_cut),
    ("bad_launches_are_refused_in_a_sentence", launches::bad_launches_are_refused_in_a_sentence),
    ("a_kernel_that_faults_is_told_and_the_session_goes_on", launches::a_kernel_that_faults),
    ("a_kernel_that_hangs_is_ended_and_holds_no_neighbour_up", launches::a_kernel_that_hangs),
    ("every_call_happens_once_through_a_proxy_that_spoils_connections", chaos::through_a_bad_proxy),
    ("a_client_killed_anywhere_leaves_nothing_and_harms_nobody", chaos::killed_clients),
    ("when_the_server_dies_calls_say_so_and_names_stay", chaos::when_the_server_dies),
];

/// Each test has a harness of its own, so that any number of them run at the same time.
fn run() -> ExitCode {
    process::run_tests(TESTS.iter().map(|&(name, body)| test(name, move || body(&Harness::new()))))
}
