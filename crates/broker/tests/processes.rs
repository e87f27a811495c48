//! Real processes: fdstore, broker, scrubber and tenants, started and killed. Random kills come from a seed, which is
//! printed.
//!
//! This program is all of these processes: its first argument selects one. Without one it runs the tests.

#![allow(clippy::unwrap_used, reason = "as in any test")]

mod attacks;
mod calls;
mod harness;
mod host;
mod kills;
mod leases;
mod malformed;
mod misuse;
mod random_tenants;
mod raw;
mod shortages;
mod takeover;
mod tensors;

use std::ffi::OsString;
use std::process::ExitCode;

use freehold_broker::{Config, fdstore, run_role};
use freehold_testing::process::{self, exit_code, number, test, this_program};

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
        "serve" => {
            let mut config = harness::config(rest[0].clone().into());
            config.limits.group = optional_number(&rest[1]);
            config.device_uuid = optional_number(&rest[2]).unwrap_or(0);
            config.limits.launch_ms_max = optional_number(&rest[3]);
            exit_code(fdstore::run(&config, None, || println!("ready"), || true))
        }
        "stranger" => shortages::stranger(rest[0].as_ref(), number(&rest[1]) as u32, rest[2].to_str().expect("a task")),
        "tenant" => random_tenants::tenant(rest),
        "witness" => kills::observer(&rest[0]),
        "hoarder" => kills::hoarder(rest),
        "device" => leases::process(&rest[0], rest[1].to_str().expect("a task"), number(&rest[2])),
        "attacker" => attacks::attacker(rest),
        "heir" => attacks::heir(),
        "noise" => malformed::process(rest),
        _ => run(),
    }
}

/// A number, or a dash for none.
fn optional_number<T: std::str::FromStr>(word: &OsString) -> Option<T> {
    let word = word.to_str().filter(|&word| word != "-")?;
    Some(word.parse().unwrap_or_else(|_| panic!("expected a number, got {word}")))
}

type Test = (&'static str, fn(&Harness));

const TESTS: &[Test] = &[
    ("a_lease_comes_and_goes", random_tenants::a_lease_comes_and_goes),
    ("many_leases_come_at_once_or_not_at_all", random_tenants::many_leases_come_at_once_or_not_at_all),
    ("many_requests_are_answered_once_across_brokers", random_tenants::many_requests_are_answered_once_across_brokers),
    (
        "what_was_carried_out_and_not_answered_is_answered_and_not_done_again",
        takeover::what_was_carried_out_and_not_answered_is_answered_and_not_done_again,
    ),
    (
        "a_request_that_comes_behind_a_takeover_was_never_asked_before",
        takeover::a_request_that_comes_behind_a_takeover_was_never_asked_before,
    ),
    (
        "a_broker_of_another_device_is_refused_with_its_name",
        leases::a_broker_of_another_device_is_refused_with_its_name,
    ),
    ("what_is_published_outlives_its_process_the_broker_and_the_fdstore", random_tenants::published_outlives_all),
    ("a_request_is_answered_once_across_brokers", random_tenants::a_request_is_answered_once),
    ("what_a_dead_process_published_is_read", leases::what_a_dead_process_published_is_read),
    ("what_would_make_memory_of_numbers_does_not_compile", misuse::what_would_make_memory_of_numbers_does_not_compile),
    (
        "what_would_alias_or_outlive_a_lease_does_not_compile",
        misuse::what_would_alias_or_outlive_a_lease_does_not_compile,
    ),
    ("the_same_done_right_compiles", misuse::the_same_done_right_compiles),
    ("leases_that_are_exchanged_or_forgotten_have_one_owner", misuse::exchanged_or_forgotten_leases),
    ("memory_of_another_tenant_or_gpu_is_not_an_argument", misuse::memory_of_others_is_not_an_argument),
    ("a_lease_for_reading_is_not_written", leases::a_lease_for_reading_is_not_written),
    (
        "a_writer_that_dies_changes_nothing_and_one_that_publishes_does",
        leases::a_writer_that_dies_changes_nothing_and_one_that_publishes_does,
    ),
    (
        "what_was_written_for_a_name_is_published_under_that_name_alone",
        leases::what_was_written_for_a_name_is_published_under_that_name_alone,
    ),
    ("a_reader_keeps_its_generation_and_may_require_one", tensors::a_reader_keeps_its_generation_and_may_require_one),
    (
        "what_is_not_a_set_or_has_no_generations_is_refused_in_a_sentence",
        tensors::what_is_not_a_set_or_has_no_generations_is_refused_in_a_sentence,
    ),
    ("arrays_of_the_python_package_are_a_set", tensors::arrays_of_the_python_package_are_a_set),
    ("a_set_is_of_one_generation_whoever_is_killed", tensors::a_set_is_of_one_generation_whoever_is_killed),
    ("what_was_given_outlives_its_giver", leases::what_was_given_outlives_its_giver),
    (
        "a_receiver_learns_that_its_giver_died_before_the_work_was_complete",
        leases::a_receiver_learns_that_its_giver_died_before_the_work_was_complete,
    ),
    ("a_forked_child_is_refused_everything", leases::a_forked_child_is_refused_everything),
    ("others_go_on_while_one_thread_receives", leases::others_go_on_while_one_thread_receives),
    ("an_idle_process_holds_no_memory_up", leases::an_idle_process_holds_no_memory_up),
    ("kernels_of_two_processes_add_into_memory_of_the_host", host::kernels_of_two_processes_add),
    ("memory_of_the_host_outlives_its_maker_and_the_broker", host::it_outlives_its_maker_and_the_broker),
    ("memory_of_the_host_of_another_length_is_refused", host::another_length_is_refused),
    ("a_lock_is_recovered_from_a_killed_holder", host::a_killed_holder_is_taken_over),
    ("a_process_killed_while_it_waits_delays_no_other", host::a_killed_waiter_delays_no_other),
    ("a_process_killed_before_it_notifies_delays_no_waiter", host::a_killed_notifier_delays_no_waiter),
    ("a_lock_outlives_processes_that_are_killed_anywhere", host::processes_are_killed_anywhere),
    ("memory_of_the_dead_is_zeros_to_others", leases::memory_of_the_dead_is_zeros_to_others),
    ("malformed_messages_leave_the_broker_as_it_was", malformed::malformed_messages),
    (
        "a_client_of_another_version_is_told_the_brokers_version",
        shortages::a_client_of_another_version_is_told_the_brokers_version,
    ),
    ("tenants_are_served_while_the_fdstore_is_stopped", shortages::tenants_are_served_while_the_fdstore_is_stopped),
    (
        "tenants_are_served_while_the_scrubber_is_stopped_and_a_dead_one_is_replaced",
        shortages::tenants_are_served_while_the_scrubber_is_stopped_and_a_dead_one_is_replaced,
    ),
    (
        "a_lease_of_a_new_segment_is_granted_when_the_fdstore_has_it",
        shortages::a_lease_of_a_new_segment_is_granted_when_the_fdstore_has_it,
    ),
    ("named_host_memory_is_sent_when_the_fdstore_has_it", shortages::named_host_memory_is_sent_when_the_fdstore_has_it),
    (
        "a_module_is_stored_whole_or_not_at_all_and_its_tenant_learns_which",
        shortages::a_module_is_stored_whole_or_not_at_all_and_its_tenant_learns_which,
    ),
    ("a_goodbye_does_not_overtake_what_was_asked_before", shortages::a_goodbye_does_not_overtake_what_was_asked_before),
    (
        "a_goodbye_does_not_overtake_what_waits_for_the_driver",
        shortages::a_goodbye_does_not_overtake_what_waits_for_the_driver,
    ),
    (
        "a_tenant_cannot_block_the_broker_through_its_doorbell",
        shortages::a_tenant_cannot_block_the_broker_through_its_doorbell,
    ),
    (
        "without_descriptors_newcomers_are_refused_in_a_sentence_and_tenants_served",
        shortages::without_descriptors_newcomers_are_refused_in_a_sentence_and_tenants_served,
    ),
    (
        "a_broker_that_takes_over_needs_no_more_descriptors",
        shortages::a_broker_that_takes_over_needs_no_more_descriptors,
    ),
    (
        "users_of_a_group_read_each_others_names_and_drop_their_own",
        shortages::users_of_a_group_read_each_others_names_and_drop_their_own,
    ),
    ("a_segment_that_another_user_had_is_not_reused", shortages::a_segment_that_another_user_had_is_not_reused),
    ("users_of_a_group_share_the_librarys_own_modules", shortages::users_of_a_group_share_the_librarys_own_modules),
    ("what_another_process_had_is_zeros_to_its_owner", leases::what_another_process_had_is_zeros_to_its_owner),
    ("a_killed_tenants_memory_is_free_within_seconds_wherever_it_was_killed", kills::killed_tenants),
    ("a_killed_tenant_with_a_thousand_leases_leaves_nothing_within_seconds", kills::killed_hoarders),
    ("a_process_that_connects_while_a_broker_dies_is_served", kills::connects_while_brokers_die),
    ("killed_brokers_and_fdstores_are_back_within_seconds_and_nothing_is_lost", kills::killed_brokers),
    ("a_call_computes_what_its_kernel_says", calls::a_call_computes_what_its_kernel_says),
    ("calls_of_a_stream_are_carried_out_in_their_order", calls::calls_of_a_stream_are_carried_out_in_their_order),
    (
        "calls_and_streams_of_a_process_wait_for_each_other_on_the_device",
        calls::calls_and_streams_of_a_process_wait_for_each_other_on_the_device,
    ),
    (
        "processes_that_agree_share_a_worker_and_others_have_their_own",
        calls::processes_that_agree_share_a_worker_and_others_have_their_own,
    ),
    ("a_worker_ends_with_those_that_it_serves", calls::a_worker_ends_with_those_that_it_serves),
    (
        "a_module_stays_when_its_maker_and_the_broker_are_gone",
        calls::a_module_stays_when_its_maker_and_the_broker_are_gone,
    ),
    (
        "all_callers_of_a_tenant_have_their_calls_carried_out",
        calls::all_callers_of_a_tenant_have_their_calls_carried_out,
    ),
    ("failures_that_are_not_awaited_delay_no_other_call", calls::failures_that_are_not_awaited_delay_no_other_call),
    ("calls_go_on_when_the_broker_dies", calls::calls_go_on_when_the_broker_dies),
    (
        "what_is_returned_with_calls_pending_is_free_when_they_have_passed",
        calls::what_is_returned_with_calls_pending_is_free_when_they_have_passed,
    ),
    (
        "a_lease_whose_return_failed_is_returned_after_its_calls",
        calls::a_lease_whose_return_failed_is_returned_after_its_calls,
    ),
    ("one_handle_reads_the_same_here_and_at_the_broker", calls::one_handle_reads_the_same_here_and_at_the_broker),
    (
        "a_call_that_waits_for_a_fence_does_not_count_as_a_hang",
        calls::a_call_that_waits_for_a_fence_does_not_count_as_a_hang,
    ),
    (
        "what_was_called_is_carried_out_however_its_process_goes",
        calls::what_was_called_is_carried_out_however_its_process_goes,
    ),
    (
        "what_is_called_by_a_process_that_goes_at_once_is_carried_out",
        calls::what_is_called_by_a_process_that_goes_at_once_is_carried_out,
    ),
    (
        "of_kernels_that_ran_beside_each_other_one_has_failed",
        calls::of_kernels_that_ran_beside_each_other_one_has_failed,
    ),
    (
        "of_a_burst_the_first_is_known_and_of_the_rest_one_has_failed",
        calls::of_a_burst_the_first_is_known_and_of_the_rest_one_has_failed,
    ),
    ("a_worker_takes_no_more_launches_than_its_limit", calls::a_worker_takes_no_more_launches_than_its_limit),
    (
        "tenants_that_share_a_worker_learn_whose_kernel_ended_it",
        calls::tenants_that_share_a_worker_learn_whose_kernel_ended_it,
    ),
    ("a_call_that_waits_for_another_stream_does_not_run", calls::a_call_that_waits_for_another_stream_does_not_run),
    (
        "each_kernel_of_a_burst_may_run_for_as_long_as_one_may",
        calls::each_kernel_of_a_burst_may_run_for_as_long_as_one_may,
    ),
    ("every_bad_call_is_refused_in_a_sentence", calls::every_bad_call_is_refused_in_a_sentence),
    ("a_refused_call_is_never_seen_as_done", calls::a_refused_call_is_never_seen_as_done),
    ("every_bad_module_is_refused_in_a_sentence", calls::every_bad_module_is_refused_in_a_sentence),
    (
        "a_kernel_that_goes_wrong_takes_down_its_worker_alone",
        calls::a_kernel_that_goes_wrong_takes_down_its_worker_alone,
    ),
    ("a_kernel_that_does_not_end_is_ended", calls::a_kernel_that_does_not_end_is_ended),
    ("a_worker_that_is_stopped_is_ended_and_replaced", calls::a_worker_that_is_stopped_is_ended_and_replaced),
    (
        "a_module_that_exhausts_memory_is_refused_and_its_worker_goes_on",
        calls::a_module_that_exhausts_memory_is_refused_and_its_worker_goes_on,
    ),
    (
        "eight_others_work_while_kernels_fault_hang_and_write_out_of_bounds",
        calls::eight_others_work_while_kernels_fault_hang_and_write_out_of_bounds,
    ),
    ("a_caller_that_is_killed_anywhere_leaves_nothing", calls::a_caller_that_is_killed_anywhere_leaves_nothing),
    ("a_killed_workers_calls_happened_once_or_say_that_they_may_not", calls::killed_workers),
];

/// Each test has a harness of its own, so that any number of them run at the same time.
fn run() -> ExitCode {
    let tests = TESTS.iter().map(|&(name, body)| test(name, move || body(&Harness::new())));
    let attacks = attacks::names().map(|(name, attack)| test(name, move || attacks::is_refused(attack)));
    process::run_tests(tests.chain(attacks))
}
