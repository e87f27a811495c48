use std::collections::{BTreeMap, BTreeSet};

use freehold_testing::{Random, print_seed, seeds};

use super::*;

const MAIN: Thread = Thread { process: 1, id: 1 };
const OTHER: Thread = Thread { process: 1, id: 2 };

fn ns(nanoseconds: u64) -> Duration {
    Duration::from_nanos(nanoseconds)
}

fn trace(events: impl FnOnce(&mut TraceFile<Vec<u8>>) -> io::Result<()>) -> String {
    let mut file = TraceFile::new(Vec::new()).unwrap();
    events(&mut file).unwrap();
    String::from_utf8(file.finish().unwrap()).unwrap()
}

fn parsed(text: &str) -> Vec<Value> {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}:\n{text}"))
}

fn one_of_each(file: &mut TraceFile<Vec<u8>>) -> io::Result<()> {
    let block = Span { process: 1, id: 26, name: "4096 bytes at 0x200" };
    file.process(1, "worker")?;
    file.thread(MAIN, "main")?;
    file.thread(OTHER, "other")?;
    file.slice(MAIN, "cuMemAlloc_v2", ns(1_500), ns(3_001), &[("bytes", 4096.into()), ("outcome", "SUCCESS".into())])?;
    file.span_begin(block, ns(3_001), &[("stream", "0x1".into())])?;
    file.counter(1, "memory", ns(3_001), &[("owned", 4096), ("free", 0)])?;
    file.instant(Point { thread: OTHER, at: ns(4_000) }, "marked", &[])?;
    file.slice(OTHER, "cuMemFree_v2", ns(5_000), ns(5_000), &[])?;
    let from = Point { thread: MAIN, at: ns(1_500) };
    file.flow("freed by", from, Point { thread: OTHER, at: ns(5_000) })?;
    file.span_end(block, ns(5_000))
}

#[test]
fn a_trace_is_this_text() {
    let expected = r#"[
{"ph":"M","pid":1,"name":"process_name","args":{"name":"worker"}},
{"ph":"M","pid":1,"name":"process_sort_index","args":{"sort_index":1}},
{"ph":"M","pid":1,"tid":1,"name":"thread_name","args":{"name":"main"}},
{"ph":"M","pid":1,"tid":1,"name":"thread_sort_index","args":{"sort_index":1}},
{"ph":"M","pid":1,"tid":2,"name":"thread_name","args":{"name":"other"}},
{"ph":"M","pid":1,"tid":2,"name":"thread_sort_index","args":{"sort_index":2}},
{"ph":"X","pid":1,"tid":1,"ts":1.500,"dur":1.501,"name":"cuMemAlloc_v2","args":{"bytes":4096,"outcome":"SUCCESS"}},
{"ph":"b","pid":1,"cat":"span","id2":{"local":"0x1a"},"name":"4096 bytes at 0x200","ts":3.001,"args":{"stream":"0x1"}},
{"ph":"C","pid":1,"ts":3.001,"name":"memory","args":{"owned":4096,"free":0}},
{"ph":"i","pid":1,"tid":2,"ts":4.000,"s":"t","name":"marked","args":{}},
{"ph":"X","pid":1,"tid":2,"ts":5.000,"dur":0.000,"name":"cuMemFree_v2","args":{}},
{"ph":"s","pid":1,"tid":1,"ts":1.500,"id":1,"cat":"flow","name":"freed by"},
{"ph":"f","pid":1,"tid":2,"ts":5.000,"id":1,"cat":"flow","name":"freed by","bp":"e"},
{"ph":"e","pid":1,"cat":"span","id2":{"local":"0x1a"},"name":"4096 bytes at 0x200","ts":5.000}
]
"#;
    assert_eq!(trace(one_of_each), expected);
}

#[test]
fn a_trace_of_nothing_is_an_empty_array() {
    assert_eq!(parsed(&trace(|_| Ok(()))), Vec::<Value>::new());
}

#[test]
fn a_trace_that_is_cut_between_two_writes_lacks_nothing_but_the_bracket() {
    /// The pieces that were written.
    #[derive(Debug, Default)]
    struct Pieces(Vec<Vec<u8>>);
    impl Write for Pieces {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.push(bytes.to_vec());
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut file = TraceFile::new(Pieces::default()).unwrap();
    for at in 0..5 {
        file.slice(MAIN, "call", ns(at), ns(at), &[]).unwrap();
    }
    let pieces = file.finish().unwrap().0;
    assert_eq!(pieces.len(), 7);
    for events in 0..=5 {
        let cut = String::from_utf8(pieces[..=events].concat()).unwrap();
        assert_eq!(parsed(&(cut + "]")).len(), events);
    }
}

#[test]
fn times_keep_their_nanoseconds_for_years() {
    let years = ns(100_000_000_000_000_001);
    let text = trace(|file| file.slice(MAIN, "late", years, years + ns(1), &[]));
    assert!(text.contains(r#""ts":100000000000000.001,"dur":0.001,"#), "{text}");
}

#[test]
fn any_text_comes_back_as_it_was() {
    for name in ["\"quoted\"", "two\nlines\r\ttab", "back\\slash", "größer 大きい 🦀", "\0\u{1}\u{7f}\u{2028}", ""]
    {
        let span = Span { process: 1, id: 1, name };
        let at = Point { thread: MAIN, at: ns(0) };
        let text = trace(|file| {
            file.process(1, name)?;
            file.thread(MAIN, name)?;
            file.slice(MAIN, name, ns(0), ns(1), &[(name, name.into())])?;
            file.instant(at, name, &[(name, name.into())])?;
            file.span_begin(span, ns(0), &[(name, name.into())])?;
            file.span_end(span, ns(1))?;
            file.counter(1, name, ns(0), &[(name, 7)])?;
            file.flow(name, at, at)
        });
        assert_eq!(text.lines().count(), 13, "an event is a line: {text}");
        let events = parsed(&text);
        assert_eq!(events[0]["args"]["name"], name);
        assert_eq!(events[2]["args"]["name"], name);
        for event in &events[4..] {
            assert_eq!(event["name"], name, "{event}");
        }
        for event in &events[4..7] {
            assert_eq!(event["args"][name], name, "{event}");
        }
        assert_eq!(events[8]["args"][name], 7);
    }
}

/// Events in the number and order that `seed` decides.
fn random(seed: u64, file: &mut TraceFile<Vec<u8>>) -> io::Result<()> {
    let mut random = Random::new(seed);
    let mut next = |end: u64| random.below(end);
    let mut open = Vec::new();
    let mut now = 0;
    for id in 0..200 {
        let name = format!("{} bytes", next(5));
        now += next(2_000);
        match next(5) {
            0 | 1 => {
                file.span_begin(Span { process: 1, id, name: &name }, ns(now), &[])?;
                open.push((id, name));
            }
            2 if !open.is_empty() => {
                let (id, name) = open.swap_remove(next(open.len() as u64) as usize);
                file.span_end(Span { process: 1, id, name: &name }, ns(now))?;
            }
            3 => file.slice(MAIN, &name, ns(now), ns(now + next(3)), &[("seed", seed.into())])?,
            _ => {
                let (from, to) = (Point { thread: MAIN, at: ns(now) }, Point { thread: OTHER, at: ns(now + next(9)) });
                file.flow(&name, from, to)?;
            }
        }
    }
    open.iter().try_for_each(|(id, name)| file.span_end(Span { process: 1, id: *id, name }, ns(now)))
}

#[test]
fn what_is_read_again_keeps_the_rules_of_the_format() {
    for seed in seeds(5, 50, 1000) {
        print_seed(seed);
        let events = parsed(&trace(|file| random(seed, file)));
        let mut spans = BTreeMap::new();
        let mut flows = BTreeSet::new();
        for event in &events {
            let ts = event["ts"].as_f64().unwrap();
            assert!(ts >= 0.0, "seed {seed}: {event}");
            let (span, flow) = (event["id2"]["local"].to_string(), event["id"].as_u64());
            match event["ph"].as_str().unwrap() {
                "X" => assert!(event["dur"].as_f64().unwrap() >= 0.0, "seed {seed}: {event}"),
                "b" => assert!(spans.insert(span, event).is_none(), "seed {seed}: {event}"),
                "e" => {
                    let begin = spans.remove(&span).unwrap_or_else(|| panic!("seed {seed}: no begin of {event}"));
                    assert_eq!((&begin["cat"], &begin["name"]), (&event["cat"], &event["name"]), "seed {seed}");
                    assert!(begin["ts"].as_f64().unwrap() <= ts, "seed {seed}: {event}");
                }
                "s" => assert!(flows.insert(flow), "seed {seed}: {event}"),
                "f" => assert!(flows.contains(&flow), "seed {seed}: {event}"),
                other => panic!("seed {seed}: {other}"),
            }
        }
        assert_eq!(spans.len(), 0, "seed {seed}");
    }
}

#[test]
#[should_panic(expected = "a slice starts at 2ns and ends before, at 1ns")]
fn a_slice_does_not_end_before_it_starts() {
    trace(|file| file.slice(MAIN, "backwards", ns(2), ns(1), &[]));
}

#[test]
#[should_panic(expected = "an arrow starts at 2ns and ends before, at 1ns")]
fn an_arrow_does_not_end_before_it_starts() {
    trace(|file| file.flow("backwards", Point { thread: MAIN, at: ns(2) }, Point { thread: OTHER, at: ns(1) }));
}

#[test]
fn an_error_of_the_writer_is_the_callers() {
    /// Takes the opening bracket and nothing after it.
    struct Full(usize);
    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let taken = bytes.len().min(self.0);
            self.0 -= taken;
            if taken == 0 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(taken) }
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut file = TraceFile::new(Full(1)).unwrap();
    assert_eq!(file.process(1, "worker").unwrap_err().kind(), io::ErrorKind::StorageFull);
}
