use super::*;

const MAIN: CallThread = CallThread { process: 700, thread: 700 };
const OTHER: CallThread = CallThread { process: 700, thread: 701 };
const CHILD: CallThread = CallThread { process: 800, thread: 800 };

fn began(place: CallThread, role: Role) -> TraceLine {
    TraceLine::Began { place, role, at_ns: 1_000 }
}

fn called(place: CallThread, function: &str, at_ns: u64) -> TraceLine {
    TraceLine::Called { place, function: function.to_owned(), at_ns, arguments: Vec::new() }
}

fn returned(
    place: CallThread,
    function: &str,
    (start_ns, end_ns): (u64, u64),
    arguments: &[(&str, Value)],
) -> TraceLine {
    let arguments = arguments.iter().map(|&(name, value)| (name.to_owned(), value)).collect();
    TraceLine::Returned { place, function: function.to_owned(), start_ns, end_ns, code: 0, arguments }
}

fn alloc(place: CallThread, times: (u64, u64), address: u64) -> TraceLine {
    returned(place, "cuMemAlloc_v2", times, &[("start", Value::Address(address)), ("bytes", Value::Count(512))])
}

fn free(place: CallThread, times: (u64, u64), address: u64) -> TraceLine {
    returned(place, "cuMemFree_v2", times, &[("start", Value::Address(address))])
}

/// Returns the events in short form. The trace starts at 1000 ns.
fn events(parts: Vec<(usize, &str, Vec<TraceLine>)>) -> Vec<String> {
    let mut merged = Merged::new(Vec::new(), Duration::from_nanos(1_000)).unwrap();
    for (nth, name, lines) in parts {
        merged.add(nth, FinishedExperiment { name: name.to_owned(), answer: "SUCCESS".to_owned(), lines }).unwrap();
    }
    let text = merged.file.finish().unwrap();
    let events: Vec<serde_json::Value> = serde_json::from_slice(&text).unwrap();
    let words = |event: &serde_json::Value| {
        let name = event["name"].as_str().unwrap();
        let (ts, end) = (event["ts"].as_f64(), event["dur"].as_f64());
        match (event["ph"].as_str().unwrap(), name) {
            ("M", "process_name" | "thread_name") => event["args"]["name"].as_str().map(str::to_owned),
            ("M", _) => None,
            ("X", _) => Some(format!(
                "{}.{} {name} {}+{} {}",
                event["pid"],
                event["tid"],
                ts.unwrap(),
                end.unwrap(),
                event["args"]["outcome"].as_str().unwrap()
            )),
            ("b" | "e", _) => {
                Some(format!("{} {} {name} {}", event["ph"].as_str().unwrap(), event["pid"], ts.unwrap()))
            }
            _ => Some(format!("{name} {} {}", ts.unwrap(), event["args"]["answer"].as_str().unwrap())),
        }
    };
    events.iter().filter_map(words).collect()
}

#[test]
fn a_call_is_a_slice_and_its_block_lives_between_two_calls() {
    let lines = vec![
        began(MAIN, Role::Experiment),
        called(MAIN, "cuMemAlloc_v2", 1_900),
        alloc(MAIN, (2_000, 3_000), 0x200),
        called(MAIN, "cuMemFree_v2", 4_900),
        free(MAIN, (5_000, 6_000), 0x200),
    ];
    assert_eq!(
        events(vec![(0, "0.1.1 free", lines)]),
        [
            "0.1.1 free",
            "main",
            "1.1 cuMemAlloc_v2 1+1 SUCCESS",
            "1.1 cuMemFree_v2 4+1 SUCCESS",
            "b 1 512 bytes at 0x200 2",
            "e 1 512 bytes at 0x200 4",
            "answer 5 SUCCESS",
        ]
    );
}

#[test]
fn experiments_are_written_in_their_order_whichever_ends_first() {
    let of = |name| (vec![began(MAIN, Role::Experiment)], name);
    let [(first, a), (second, b), (third, c)] = ["a", "b", "c"].map(of);
    let written = events(vec![(2, c, third), (0, a, first), (1, b, second)]);
    assert_eq!(
        written,
        ["a", "main", "answer 0 SUCCESS", "b", "main", "answer 0 SUCCESS", "c", "main", "answer 0 SUCCESS"]
    );
}

#[test]
fn a_partner_and_a_forked_child_are_processes_of_their_own() {
    let forked = CallThread { process: 900, thread: 900 };
    let lines = vec![
        began(MAIN, Role::Experiment),
        began(CHILD, Role::Partner),
        returned(forked, "cuInit", (2_000, 3_000), &[]),
        returned(OTHER, "cuInit", (3_000, 3_000), &[]),
    ];
    assert_eq!(
        events(vec![(0, "x", lines)]),
        [
            "x",
            "main",
            "partner of x",
            "main",
            "forked child of x",
            "main",
            "thread 2",
            "3.3 cuInit 1+1 SUCCESS",
            "1.4 cuInit 2+0 SUCCESS",
            "answer 2 SUCCESS",
        ]
    );
}

#[test]
fn a_call_that_never_returns_lasts_until_the_last_event() {
    let lines = vec![
        called(MAIN, "cuCtxSynchronize", 2_000),
        called(OTHER, "cuInit", 2_400),
        returned(OTHER, "cuInit", (2_500, 9_000), &[]),
    ];
    let written = events(vec![(0, "x", lines)]);
    assert_eq!(written[3..5], ["1.1 cuCtxSynchronize 1+7 did not return", "1.2 cuInit 1.5+6.5 SUCCESS"]);
}

#[test]
fn a_call_inside_another_comes_after_it_and_both_return() {
    let lines = vec![
        called(MAIN, "cuCtxSynchronize", 1_900),
        called(MAIN, "cuInit", 2_900),
        returned(MAIN, "cuInit", (3_000, 4_000), &[]),
        returned(MAIN, "cuCtxSynchronize", (2_000, 5_000), &[]),
    ];
    let written = events(vec![(0, "x", lines)]);
    assert_eq!(written[2..4], ["1.1 cuCtxSynchronize 1+3 SUCCESS", "1.1 cuInit 2+1 SUCCESS"]);
}

#[test]
fn an_unfreed_block_lives_until_the_last_event_of_its_process() {
    let lines = vec![alloc(MAIN, (2_000, 3_000), 0x200), returned(MAIN, "cuInit", (3_000, 7_000), &[])];
    assert_eq!(events(vec![(0, "x", lines)])[4..6], ["b 1 512 bytes at 0x200 2", "e 1 512 bytes at 0x200 6"]);
}

#[test]
fn an_address_that_is_handed_out_again_ends_the_block_that_was_there() {
    let lines = vec![alloc(MAIN, (2_000, 3_000), 0x200), alloc(MAIN, (4_000, 5_000), 0x200)];
    assert_eq!(
        events(vec![(0, "x", lines)])[4..8],
        [
            "b 1 512 bytes at 0x200 2",
            "e 1 512 bytes at 0x200 4",
            "b 1 512 bytes at 0x200 4",
            "e 1 512 bytes at 0x200 4"
        ]
    );
}

#[test]
fn a_free_that_returns_after_its_address_was_handed_out_again_ends_the_older_block() {
    let lines = vec![
        alloc(MAIN, (2_000, 3_000), 0x200),
        alloc(OTHER, (4_100, 5_000), 0x200),
        free(MAIN, (4_000, 6_000), 0x200),
    ];
    assert_eq!(
        events(vec![(0, "x", lines)])[6..10],
        [
            "b 1 512 bytes at 0x200 2",
            "e 1 512 bytes at 0x200 3",
            "b 1 512 bytes at 0x200 4",
            "e 1 512 bytes at 0x200 5"
        ]
    );
}

#[test]
fn a_refused_free_ends_no_block() {
    let mut refused = free(MAIN, (4_000, 5_000), 0x200);
    if let TraceLine::Returned { code, .. } = &mut refused {
        *code = 1;
    }
    let written = events(vec![(0, "x", vec![alloc(MAIN, (2_000, 3_000), 0x200), refused])]);
    assert_eq!(written[3], "1.1 cuMemFree_v2 3+1 INVALID_VALUE (1)");
    assert_eq!(written[5], "e 1 512 bytes at 0x200 4");
}
