//! Experiments on the two default streams, and which stream waits for which (7.2).

use super::fixture::{BYTES, DISABLE_TIMING, Fixture, LEGACY, PER_THREAD, code, or_code};
use super::spin::Spin;
use crate::answer_text::choose;
use crate::experiment::{Answer, Experiment};
use crate::id::Id;

pub(super) const EXPERIMENTS: &[Experiment<Fixture>] = &[
    Experiment {
        id: Id(7, 2, 1),
        did: "a kernel runs in the legacy stream: store in a blocking stream",
        run: |r| overtaken(r, 0, r.stream()?),
    },
    Experiment {
        id: Id(7, 2, 2),
        did: "a kernel runs in the legacy stream: store in a non-blocking stream",
        run: |r| overtaken(r, 0, r.non_blocking()?),
    },
    Experiment {
        id: Id(7, 2, 3),
        did: "a kernel runs in a blocking stream: store in the legacy stream",
        run: |r| overtaken(r, r.stream()?, 0),
    },
    Experiment {
        id: Id(7, 2, 4),
        did: "a kernel runs in a non-blocking stream: store in the legacy stream",
        run: |r| overtaken(r, r.non_blocking()?, 0),
    },
    Experiment {
        id: Id(7, 2, 5),
        did: "a kernel runs in the thread's own stream: store in the legacy stream",
        run: |r| overtaken(r, PER_THREAD, 0),
    },
    Experiment {
        id: Id(7, 2, 6),
        did: "a kernel runs in the legacy stream: store in the thread's own stream",
        run: |r| overtaken(r, 0, PER_THREAD),
    },
    Experiment {
        id: Id(7, 2, 7),
        did: "a kernel runs in a blocking stream: store in the thread's own stream",
        run: |r| overtaken(r, r.stream()?, PER_THREAD),
    },
    Experiment {
        id: Id(7, 2, 8),
        did: "a kernel runs in a non-blocking stream: store in the thread's own stream",
        run: |r| overtaken(r, r.non_blocking()?, PER_THREAD),
    },
    Experiment {
        id: Id(7, 2, 9),
        did: "a kernel runs in one thread's own stream: store in another thread's own stream",
        run: |r| {
            let spin = Spin::running(r, PER_THREAD)?;
            Ok(r.in_thread(|| spin.overtaken_by(r, PER_THREAD))?)
        },
    },
    Experiment {
        id: Id(7, 2, 10),
        did: "a kernel runs in the stream cudaStreamLegacy: store in stream 0",
        run: |r| overtaken(r, LEGACY, 0),
    },
    Experiment {
        id: Id(7, 2, 11),
        did: "a kernel runs in stream 0: store in the stream cudaStreamLegacy",
        run: |r| overtaken(r, 0, LEGACY),
    },
    Experiment {
        id: Id(7, 2, 12),
        did: "a kernel runs in a blocking stream: store in another blocking stream",
        run: |r| overtaken(r, r.stream()?, r.stream()?),
    },
    Experiment {
        id: Id(7, 2, 13),
        did: "a kernel runs in a blocking stream: store in the legacy stream, then in a second blocking stream",
        run: |r| {
            let (held, other) = (r.stream()?, r.stream()?);
            let spin = Spin::running(r, held)?;
            r.cudaMemsetAsync(r.malloc(BYTES)?, 0, BYTES, 0)?;
            Ok(spin.overtaken_by(r, other)?)
        },
    },
    Experiment {
        id: Id(7, 2, 14),
        did: "a non-blocking stream waits for an event of the legacy stream, in which a kernel runs: store in it",
        run: |r| {
            let (other, event) = (r.non_blocking()?, r.event(DISABLE_TIMING)?);
            let spin = Spin::running(r, 0)?;
            r.cudaEventRecord(event, 0)?;
            r.cudaStreamWaitEvent(other, event, 0)?;
            Ok(spin.overtaken_by(r, other)?)
        },
    },
    Experiment {
        id: Id(7, 2, 15),
        did: "a kernel runs in a blocking stream: synchronize the legacy stream",
        run: |r| synchronized(r, r.stream()?, 0),
    },
    Experiment {
        id: Id(7, 2, 16),
        did: "a kernel runs in a non-blocking stream: synchronize the legacy stream",
        run: |r| synchronized(r, r.non_blocking()?, 0),
    },
    Experiment {
        id: Id(7, 2, 17),
        did: "a kernel runs in the legacy stream: synchronize the thread's own stream",
        run: |r| synchronized(r, 0, PER_THREAD),
    },
    Experiment {
        id: Id(7, 2, 18),
        did: "a kernel runs in the legacy stream: synchronize a blocking stream without work",
        run: |r| synchronized(r, 0, r.stream()?),
    },
    Experiment {
        id: Id(7, 2, 19),
        did: "a kernel runs in a blocking stream: synchronize another blocking stream without work",
        run: |r| synchronized(r, r.stream()?, r.stream()?),
    },
    Experiment {
        id: Id(7, 2, 20),
        did: "a kernel runs in one thread's own stream: another thread synchronizes its own",
        run: |r| {
            let spin = Spin::running(r, PER_THREAD)?;
            Ok(r.in_thread(|| spin.pace(|| r.cudaStreamSynchronize(PER_THREAD))))
        },
    },
    Experiment {
        id: Id(7, 2, 21),
        did: "a kernel runs in a blocking stream: query the legacy stream",
        run: |r| queried(r, r.stream()?, 0),
    },
    Experiment {
        id: Id(7, 2, 22),
        did: "a kernel runs in a non-blocking stream: query the legacy stream",
        run: |r| queried(r, r.non_blocking()?, 0),
    },
    Experiment {
        id: Id(7, 2, 23),
        did: "a kernel runs in the legacy stream: query a blocking stream without work",
        run: |r| queried(r, 0, r.stream()?),
    },
    Experiment {
        id: Id(7, 2, 24),
        did: "a kernel runs in a blocking stream: record an event in the legacy stream and query it",
        run: |r| {
            let (held, event) = (r.stream()?, r.event(DISABLE_TIMING)?);
            let _spin = Spin::running(r, held)?;
            r.cudaEventRecord(event, 0)?;
            Ok(code(r.cudaEventQuery(event)))
        },
    },
    Experiment {
        id: Id(7, 2, 25),
        did: "ask for the flags of streams 0, cudaStreamLegacy and cudaStreamPerThread",
        run: |r| {
            let flags = |stream| {
                let mut flags = 9;
                or_code(r.cudaStreamGetFlags(stream, Some(&mut flags)), |()| flags.to_string())
            };
            Ok(format!("{}, {}, {}", flags(0), flags(LEGACY), flags(PER_THREAD)))
        },
    },
    Experiment {
        id: Id(7, 2, 26),
        did: "destroy streams 0, cudaStreamLegacy and cudaStreamPerThread",
        run: |r| {
            r.init()?;
            let [zero, legacy, own] = [0, LEGACY, PER_THREAD].map(|stream| code(r.cudaStreamDestroy(stream)));
            Ok(format!("{zero}, {legacy}, {own}"))
        },
    },
    Experiment {
        id: Id(7, 2, 27),
        did: "ask whether streams 0 and cudaStreamLegacy have one id, and two threads' own streams",
        run: |r| {
            let own = r.in_thread(|| id(r, PER_THREAD))?;
            let legacy = choose(id(r, 0)? == id(r, LEGACY)?, "the same", "different");
            Ok(format!("{legacy}, {}", choose(own == id(r, PER_THREAD)?, "the same", "different")))
        },
    },
    Experiment {
        id: Id(7, 2, 28),
        did: "create streams with flags that do not exist, and with priorities 100 and -100: which they have",
        run: |r| {
            let flags = code(r.cudaStreamCreateWithFlags(Some(&mut 0), 2));
            let [low, high] = [100, -100].map(|wanted| {
                let (mut stream, mut priority) = (0, 9);
                let made = r.cudaStreamCreateWithPriority(Some(&mut stream), 0, wanted);
                let asked = made.and_then(|()| r.cudaStreamGetPriority(stream, Some(&mut priority)));
                or_code(asked, |()| priority.to_string())
            });
            Ok(format!("{flags}, {low}, {high}"))
        },
    },
];

/// Runs a kernel in one stream, and says whether a store in another happens meanwhile.
fn overtaken(r: &Fixture, held: u64, other: u64) -> Answer {
    Ok(Spin::running(r, held)?.overtaken_by(r, other)?)
}

/// Runs a kernel in one stream, and says whether synchronizing another waits for it.
fn synchronized(r: &Fixture, held: u64, other: u64) -> Answer {
    Ok(Spin::running(r, held)?.pace(|| r.cudaStreamSynchronize(other)))
}

/// Runs a kernel in one stream, and queries another.
fn queried(r: &Fixture, held: u64, other: u64) -> Answer {
    let _spin = Spin::running(r, held)?;
    Ok(code(r.cudaStreamQuery(other)))
}

fn id(r: &Fixture, stream: u64) -> Result<u64, super::functions::RuntimeError> {
    let mut id = 0;
    r.cudaStreamGetId(stream, Some(&mut id)).map(|()| id)
}
