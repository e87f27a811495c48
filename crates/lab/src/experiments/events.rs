//! Experiments on events that were never recorded, recorded again, or destroyed early (question 2).

use freehold_driver::cuda::{CUstream, context, event, event_flags, fill, memory, stream, stream_flags};

use crate::answer_text::{choose, code, code_and_pace, or_code, ready};
use crate::experiment::{Answer, Experiment};
use crate::fixture::Fixture;
use crate::id::Id;
use crate::latch::Latch;

const PLAIN: u32 = event_flags::DISABLE_TIMING;
const NON_BLOCKING: u32 = stream_flags::NON_BLOCKING;

pub(super) const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        id: Id(2, 13, 1),
        did: "query an event that was never recorded, synchronize it, let a stream wait for it",
        run: never_recorded,
    },
    Experiment {
        id: Id(2, 13, 2),
        did: "query an event after pending work, and again when the work is done",
        run: query,
    },
    Experiment {
        id: Id(2, 13, 3),
        did: "time between two events made without timing, never recorded, and not yet passed",
        run: elapsed_wrong,
    },
    Experiment { id: Id(2, 13, 4), did: "time between two recorded events, in order and turned round", run: elapsed },
    Experiment {
        id: Id(2, 13, 5),
        did: "let a stream wait for an event, record the event again after pending work: does the stream wait for that too",
        run: rerecorded,
    },
    Experiment {
        id: Id(2, 13, 6),
        did: "destroy an event after work that another stream waits for: does the stream still wait",
        run: destroyed_while_pending,
    },
    Experiment {
        id: Id(2, 13, 7),
        did: "create an event with flags 0x10, and an interprocess one with timing",
        run: flags,
    },
    Experiment { id: Id(2, 13, 8), did: "destroy an event and create another: its handle", run: handle_comes_back },
    Experiment {
        id: Id(2, 13, 9),
        did: "record an event of context 1 in a stream of context 2",
        run: recorded_elsewhere,
    },
    Experiment {
        id: Id(2, 13, 10),
        did: "let a stream of context 2 wait for an event of context 1 after pending work",
        run: awaited_elsewhere,
    },
    Experiment {
        id: Id(2, 13, 11),
        did: "synchronize an event that was recorded before work was put into its stream",
        run: synchronize_before_work,
    },
    Experiment {
        id: Id(2, 13, 12),
        did: "record an event in the default stream while a blocking stream has work, query it",
        run: recorded_in_default,
    },
    Experiment { id: Id(2, 13, 13), did: "destroy an event twice", run: destroyed_twice },
    Experiment { id: Id(2, 13, 14), did: "let a stream wait for an event with flags 2", run: wait_flags },
];

fn never_recorded(b: &Fixture) -> Answer {
    b.init_context()?;
    let event = event::create(b, PLAIN)?;
    let stream = stream::create(b, NON_BLOCKING)?;
    let (queried, synchronized) = (ready(event::query(b, event)), code(event::synchronize(b, event)));
    let waited = code(stream::wait_event(b, stream, event, 0));
    Ok(format!("{queried}, {synchronized}, {waited}, the stream {}", code(stream::synchronize(b, stream))))
}

fn query(b: &Fixture) -> Answer {
    b.init_context()?;
    let latch = Latch::new(b)?;
    let (event, stream) = (event::create(b, PLAIN)?, stream::create(b, NON_BLOCKING)?);
    latch.block_stream(b, stream)?;
    event::record(b, event, stream)?;
    let before = ready(event::query(b, event));
    latch.open();
    event::synchronize(b, event)?;
    Ok(format!("{before}, then {}", ready(event::query(b, event))))
}

fn elapsed_wrong(b: &Fixture) -> Answer {
    b.init_context()?;
    let latch = Latch::new(b)?;
    let stream = stream::create(b, NON_BLOCKING)?;
    let untimed = [event::create(b, PLAIN)?, event::create(b, PLAIN)?];
    let unrecorded = [event::create(b, event_flags::DEFAULT)?, event::create(b, event_flags::DEFAULT)?];
    let pending = [event::create(b, event_flags::DEFAULT)?, event::create(b, event_flags::DEFAULT)?];
    for event in untimed {
        event::record(b, event, stream)?;
    }
    stream::synchronize(b, stream)?;
    event::record(b, pending[0], stream)?;
    latch.block_stream(b, stream)?;
    event::record(b, pending[1], stream)?;
    let ask = |[start, end]: [_; 2]| code(event::elapsed_ms(b, start, end));
    let answer = format!("{}, {}, {}", ask(untimed), ask(unrecorded), ask(pending));
    latch.open();
    stream::synchronize(b, stream)?;
    Ok(answer)
}

fn elapsed(b: &Fixture) -> Answer {
    b.init_context()?;
    let stream = stream::create(b, NON_BLOCKING)?;
    let (start, end) = (event::create(b, event_flags::DEFAULT)?, event::create(b, event_flags::DEFAULT)?);
    let block = memory::alloc(b, 64 << 20)?;
    event::record(b, start, stream)?;
    fill::d8_async(b, block, 1, 64 << 20, stream)?;
    event::record(b, end, stream)?;
    stream::synchronize(b, stream)?;
    let sign = |ms: f32| choose(ms > 0.0, "positive", &choose(ms < 0.0, "negative", "zero"));
    Ok(format!(
        "{}, {}",
        or_code(event::elapsed_ms(b, start, end), sign),
        or_code(event::elapsed_ms(b, end, start), sign)
    ))
}

fn rerecorded(b: &Fixture) -> Answer {
    b.init_context()?;
    let latch = Latch::new(b)?;
    let end = b.registered_buffer(4096)?;
    let (event, held, waiting) =
        (event::create(b, PLAIN)?, stream::create(b, NON_BLOCKING)?, stream::create(b, NON_BLOCKING)?);
    event::record(b, event, held)?;
    stream::wait_event(b, waiting, event, 0)?;
    latch.block_stream(b, held)?;
    event::record(b, event, held)?;
    stream::write_value_32(b, waiting, b.device_address(end.address(), 0)?, 1, 0)?;
    let overtaken = latch.overtaken_by(b, waiting, end.word())?;
    context::synchronize(b)?;
    Ok(choose(overtaken, "it waits for the first record alone", "it waits for the second record"))
}

fn destroyed_while_pending(b: &Fixture) -> Answer {
    b.init_context()?;
    let latch = Latch::new(b)?;
    let end = b.registered_buffer(4096)?;
    let (event, held, waiting) =
        (event::create(b, PLAIN)?, stream::create(b, NON_BLOCKING)?, stream::create(b, NON_BLOCKING)?);
    latch.block_stream(b, held)?;
    event::record(b, event, held)?;
    stream::wait_event(b, waiting, event, 0)?;
    stream::write_value_32(b, waiting, b.device_address(end.address(), 0)?, 1, 0)?;
    let (pace, destroyed) = latch.unless_held(|| event::destroy(b, event));
    let overtaken = latch.overtaken_by(b, waiting, end.word())?;
    context::synchronize(b)?;
    Ok(format!(
        "{}, {}",
        code_and_pace((pace, destroyed)),
        choose(overtaken, "the stream went on", "the stream waited")
    ))
}

fn flags(b: &Fixture) -> Answer {
    b.init_context()?;
    Ok(format!("{}, {}", code(event::create(b, 0x10)), code(event::create(b, event_flags::INTERPROCESS))))
}

fn handle_comes_back(b: &Fixture) -> Answer {
    b.init_context()?;
    let first = event::create(b, PLAIN)?;
    event::destroy(b, first)?;
    Ok(choose(event::create(b, PLAIN)? == first, "the same handle", "another handle"))
}

fn recorded_elsewhere(b: &Fixture) -> Answer {
    b.init_context()?;
    let event = event::create(b, PLAIN)?;
    b.second_context()?;
    let stream = stream::create(b, NON_BLOCKING)?;
    Ok(code(event::record(b, event, stream)))
}

fn awaited_elsewhere(b: &Fixture) -> Answer {
    let first = b.init_context()?;
    let latch = Latch::new(b)?;
    let end = b.registered_buffer(4096)?;
    let address = b.device_address(end.address(), 0)?;
    let (event, held) = (event::create(b, PLAIN)?, stream::create(b, NON_BLOCKING)?);
    let second = b.second_context()?;
    let waiting = stream::create(b, NON_BLOCKING)?;
    context::set_current(b, first)?;
    latch.block_stream(b, held)?;
    event::record(b, event, held)?;
    context::set_current(b, second)?;
    let waits = code(stream::wait_event(b, waiting, event, 0));
    stream::write_value_32(b, waiting, address, 1, 0)?;
    let overtaken = latch.overtaken_by(b, waiting, end.word())?;
    context::synchronize(b)?;
    context::set_current(b, first)?;
    context::synchronize(b)?;
    Ok(format!("{waits}, {}", choose(overtaken, "the stream went on", "the stream waited")))
}

fn synchronize_before_work(b: &Fixture) -> Answer {
    b.init_context()?;
    let latch = Latch::new(b)?;
    let (event, stream) = (event::create(b, PLAIN)?, stream::create(b, NON_BLOCKING)?);
    event::record(b, event, stream)?;
    latch.block_stream(b, stream)?;
    let answer = code_and_pace(latch.during(|| event::synchronize(b, event)));
    stream::synchronize(b, stream)?;
    Ok(answer)
}

fn recorded_in_default(b: &Fixture) -> Answer {
    b.init_context()?;
    let latch = Latch::new(b)?;
    let (event, stream) = (event::create(b, PLAIN)?, stream::create(b, stream_flags::DEFAULT)?);
    latch.block_stream(b, stream)?;
    event::record(b, event, CUstream::LEGACY)?;
    let answer = ready(event::query(b, event));
    latch.open();
    context::synchronize(b)?;
    Ok(answer)
}

fn destroyed_twice(b: &Fixture) -> Answer {
    b.init_context()?;
    let event = event::create(b, PLAIN)?;
    Ok(format!("{}, then {}", code(event::destroy(b, event)), code(event::destroy(b, event))))
}

fn wait_flags(b: &Fixture) -> Answer {
    b.init_context()?;
    let (event, stream) = (event::create(b, PLAIN)?, stream::create(b, NON_BLOCKING)?);
    event::record(b, event, stream)?;
    Ok(code(stream::wait_event(b, stream, event, 2)))
}
