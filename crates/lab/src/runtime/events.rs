//! Experiments on events (7.16).

use super::fixture::{DISABLE_TIMING, Fixture, INTERPROCESS, code, or_code};
use super::spin::Spin;
use crate::answer_text::choose;
use crate::experiment::Experiment;
use crate::id::Id;

pub(super) const EXPERIMENTS: &[Experiment<Fixture>] = &[
    Experiment {
        id: Id(7, 16, 1),
        did: "the time between events that were never recorded",
        run: |r| Ok(elapsed(r, r.event(0)?, r.event(0)?)),
    },
    Experiment {
        id: Id(7, 16, 2),
        did: "the time between an event that was recorded and one that was not, and the other way round",
        run: |r| {
            let (recorded, other) = (recorded(r, 0)?, r.event(0)?);
            Ok(format!("{}, {}", elapsed(r, recorded, other), elapsed(r, other, recorded)))
        },
    },
    Experiment {
        id: Id(7, 16, 3),
        did: "the time between events without timing",
        run: |r| Ok(elapsed(r, recorded(r, DISABLE_TIMING)?, recorded(r, DISABLE_TIMING)?)),
    },
    Experiment {
        id: Id(7, 16, 4),
        did: "the time between an event with timing and one without, and the other way round",
        run: |r| {
            let (with, without) = (recorded(r, 0)?, recorded(r, DISABLE_TIMING)?);
            Ok(format!("{}, {}", elapsed(r, with, without), elapsed(r, without, with)))
        },
    },
    Experiment {
        id: Id(7, 16, 5),
        did: "the time between an event and itself",
        run: |r| {
            let event = recorded(r, 0)?;
            Ok(elapsed(r, event, event))
        },
    },
    Experiment {
        id: Id(7, 16, 6),
        did: "the time from an event to one behind a kernel that runs",
        run: |r| {
            let (stream, start, end) = (r.stream()?, recorded(r, 0)?, r.event(0)?);
            let _spin = Spin::running(r, stream)?;
            r.cudaEventRecord(end, stream)?;
            Ok(elapsed(r, start, end))
        },
    },
    Experiment {
        id: Id(7, 16, 7),
        did: "is the time from a later event of a stream to an earlier one positive",
        run: |r| {
            let (first, second) = (recorded(r, 0)?, recorded(r, 0)?);
            let mut milliseconds = 0.0;
            let asked = r.cudaEventElapsedTime(Some(&mut milliseconds), second, first);
            Ok(or_code(asked, |()| choose(milliseconds > 0.0, "yes", "no")))
        },
    },
    Experiment {
        id: Id(7, 16, 8),
        did: "the time between events, with a null place, and with a null event",
        run: |r| {
            let event = recorded(r, 0)?;
            let place = code(r.cudaEventElapsedTime(None, event, event));
            Ok(format!("{place}, {}", elapsed(r, event, 0)))
        },
    },
    Experiment {
        id: Id(7, 16, 9),
        did: "query an event that was never recorded, synchronize it, and let a stream wait for it",
        run: |r| {
            let event = r.event(0)?;
            let queried = code(r.cudaEventQuery(event));
            let waited = code(r.cudaStreamWaitEvent(r.stream()?, event, 0));
            Ok(format!("{queried}, {}, {waited}", code(r.cudaEventSynchronize(event))))
        },
    },
    Experiment {
        id: Id(7, 16, 10),
        did: "query, record, synchronize and destroy a null event",
        run: |r| {
            r.init()?;
            let (queried, recorded) = (code(r.cudaEventQuery(0)), code(r.cudaEventRecord(0, 0)));
            Ok(format!("{queried}, {recorded}, {}, {}", code(r.cudaEventSynchronize(0)), code(r.cudaEventDestroy(0))))
        },
    },
    Experiment {
        id: Id(7, 16, 11),
        did: "create events with flags that do not exist, and for other processes with timing",
        run: |r| {
            let unknown = code(r.event(0x100));
            Ok(format!("{unknown}, {}", code(r.event(INTERPROCESS))))
        },
    },
    Experiment {
        id: Id(7, 16, 12),
        did: "let a stream wait with flags that do not exist, and record with flags that do not exist",
        run: |r| {
            let (stream, event) = (r.stream()?, r.event(0)?);
            let waited = code(r.cudaStreamWaitEvent(stream, event, 5));
            Ok(format!("{waited}, {}", code(r.cudaEventRecordWithFlags(event, stream, 8))))
        },
    },
    Experiment {
        id: Id(7, 16, 13),
        did: "record an event behind a kernel that runs, then again in an idle stream, and query it",
        run: |r| {
            let (stream, idle, event) = (r.non_blocking()?, r.non_blocking()?, r.event(0)?);
            let spin = Spin::running(r, stream)?;
            r.cudaEventRecord(event, stream)?;
            let first = code(r.cudaEventQuery(event));
            r.cudaEventRecord(event, idle)?;
            Ok(format!("{first}, then {}", spin.pace(|| r.cudaEventSynchronize(event))))
        },
    },
    Experiment {
        id: Id(7, 16, 14),
        did: "record an event in an idle stream, then again behind a kernel that runs: synchronize it",
        run: |r| {
            let (held, idle, event) = (r.non_blocking()?, r.non_blocking()?, r.event(DISABLE_TIMING)?);
            let spin = Spin::running(r, held)?;
            r.cudaEventRecord(event, idle)?;
            r.cudaEventRecord(event, held)?;
            Ok(spin.pace(|| r.cudaEventSynchronize(event)))
        },
    },
    Experiment {
        id: Id(7, 16, 15),
        did: "a stream waits for an event behind a kernel that runs; destroy the event: does the stream still wait",
        run: |r| {
            let (held, other, event) = (r.non_blocking()?, r.non_blocking()?, r.event(DISABLE_TIMING)?);
            let spin = Spin::running(r, held)?;
            r.cudaEventRecord(event, held)?;
            r.cudaStreamWaitEvent(other, event, 0)?;
            r.cudaEventDestroy(event)?;
            Ok(spin.overtaken_by(r, other)?)
        },
    },
    Experiment {
        id: Id(7, 16, 16),
        did: "create an event with a null place",
        run: |r| Ok(code(r.cudaEventCreate(None))),
    },
];

/// Creates an event, and records it in the legacy stream.
fn recorded(r: &Fixture, flags: u32) -> Result<u64, super::functions::RuntimeError> {
    let event = r.event(flags)?;
    r.cudaEventRecord(event, 0)?;
    r.cudaEventSynchronize(event)?;
    Ok(event)
}

/// Says the sign of the time between two events.
fn elapsed(r: &Fixture, start: u64, end: u64) -> String {
    let mut milliseconds = 0.0;
    or_code(r.cudaEventElapsedTime(Some(&mut milliseconds), start, end), |()| {
        choose(milliseconds == 0.0, "zero", &choose(milliseconds > 0.0, "positive", "negative"))
    })
}
