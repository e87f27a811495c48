//! Recordings: the `tracing` events. Alone in its program: `tracing` decides once for all threads whether an event is
//! enabled, and a thread without a subscriber would take part in that.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span;

use recorded::{device, work};

use crate::children::alone;
use crate::recorded;

/// Keeps the fields of every event.
#[derive(Clone, Default)]
struct EventRecorder(Arc<Mutex<Vec<BTreeMap<String, String>>>>);

struct Fields(BTreeMap<String, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}"));
    }
}

impl tracing::Subscriber for EventRecorder {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut fields = Fields(BTreeMap::from([("target".to_owned(), event.metadata().target().to_owned())]));
        event.record(&mut fields);
        self.0.lock().unwrap().push(fields.0);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// Calls the library for every event: allocates, uses and releases a block, and asks for all of them.
struct Caller(freehold::Device, Arc<AtomicUsize>);

impl tracing::Subscriber for Caller {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, _: &tracing::Event<'_>) {
        let stream = self.0.new_stream().unwrap();
        let block = stream.upload(&[1_u8; 10]).unwrap();
        assert_eq!(stream.download(&block).unwrap(), [1; 10]);
        assert!(!self.0.blocks().is_empty());
        self.1.fetch_add(1, Ordering::Relaxed);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

#[test]
fn a_subscriber_may_call_the_library() {
    alone("a_subscriber_may_call_the_library", || {
        let (device, told) = (device(), Arc::default());
        let caller = Caller(device.clone(), Arc::clone(&told));
        tracing::subscriber::with_default(caller, || {
            let recording = device.record(None).unwrap();
            work(&device);
            let context = device.new_context().unwrap();
            drop(context.new_stream().unwrap().upload(&[1_u8; 100]).unwrap());
            context.close().unwrap();
            device.synchronize().unwrap();
            recording.flush().unwrap();
            recording.finish().unwrap();
        });
        assert!(told.load(Ordering::Relaxed) > 6);
    });
}

#[test]
fn every_kind_of_event_comes_through_tracing_with_both_times() {
    alone("every_kind_of_event_comes_through_tracing_with_both_times", || {
        let recorder = EventRecorder::default();
        let device = device();
        tracing::subscriber::with_default(recorder.clone(), || {
            let recording = device.record(None).unwrap();
            work(&device);
            device.synchronize().unwrap();
            recording.finish().unwrap();
        });
        let events = recorder.0.lock().unwrap();
        for what in ["allocate", "reuse", "use", "release", "load", "unload"] {
            let of_kind: Vec<_> =
                events.iter().filter(|event| event.get("what").is_some_and(|w| w.trim_matches('"') == what)).collect();
            assert!(!of_kind.is_empty(), "no event of kind {what}");
            for event in of_kind {
                assert_eq!(event["target"], "freehold::timeline");
                let (asked, effect): (f64, f64) =
                    (event["asked_us"].parse().unwrap(), event["effect_us"].parse().unwrap());
                assert!(asked <= effect, "{event:?}");
            }
        }
    });
}
