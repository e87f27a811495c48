//! Experiments on streams: which ones wait for each other, and what remains of a destroyed one (question 2).

use std::sync::atomic::Ordering;
use std::thread;

use freehold_driver::cuda::{
    CUcontext, CUstream, CUstreamCaptureMode, DriverError, capture, context, stream, stream_flags,
};

use crate::answer_text::{choose, code, code_and_pace, or_code, ready};
use crate::experiment::{Answer, Experiment};
use crate::fixture::Fixture;
use crate::id::Id;
use crate::latch::{Latch, warm};

const BLOCKING: u32 = stream_flags::DEFAULT;
const NON_BLOCKING: u32 = stream_flags::NON_BLOCKING;

pub(super) const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        id: Id(2, 5, 1),
        did: "destroy a stream and create another: its handle and its id",
        run: handle_comes_back,
    },
    Experiment {
        id: Id(2, 5, 2),
        did: "ask a stream that is captured for its id, and another one; then end the capture",
        run: |b| id_while_captured(b, CUstreamCaptureMode::RELAXED),
    },
    Experiment {
        id: Id(2, 5, 3),
        did: "the same with a capture that minds what other threads do",
        run: |b| id_while_captured(b, CUstreamCaptureMode::GLOBAL),
    },
    Experiment {
        id: Id(2, 11, 1),
        did: "a word written in the default stream while a blocking stream has work",
        run: |b| order(b, |b| stream::create(b, BLOCKING), |_| Ok(CUstream::LEGACY)),
    },
    Experiment {
        id: Id(2, 11, 2),
        did: "a word written in the default stream while a non-blocking stream has work",
        run: |b| order(b, |b| stream::create(b, NON_BLOCKING), |_| Ok(CUstream::LEGACY)),
    },
    Experiment {
        id: Id(2, 11, 3),
        did: "a word written in a blocking stream while the default stream has work",
        run: |b| order(b, |_| Ok(CUstream::LEGACY), |b| stream::create(b, BLOCKING)),
    },
    Experiment {
        id: Id(2, 11, 4),
        did: "a word written in a non-blocking stream while the default stream has work",
        run: |b| order(b, |_| Ok(CUstream::LEGACY), |b| stream::create(b, NON_BLOCKING)),
    },
    Experiment {
        id: Id(2, 11, 5),
        did: "a word written in a blocking stream while another blocking stream has work",
        run: |b| order(b, |b| stream::create(b, BLOCKING), |b| stream::create(b, BLOCKING)),
    },
    Experiment {
        id: Id(2, 11, 6),
        did: "a word written in the thread's default stream while the default stream has work",
        run: |b| order(b, |_| Ok(CUstream::LEGACY), |_| Ok(CUstream::PER_THREAD)),
    },
    Experiment {
        id: Id(2, 11, 7),
        did: "a word written in the thread's default stream while a blocking stream has work",
        run: |b| order(b, |b| stream::create(b, BLOCKING), |_| Ok(CUstream::PER_THREAD)),
    },
    Experiment {
        id: Id(2, 11, 8),
        did: "a word written in one thread's default stream while another thread's has work",
        run: two_threads,
    },
    Experiment {
        id: Id(2, 11, 9),
        did: "compare the ids of the null, the default and the thread's default stream, and of the last in another thread",
        run: ids_of_defaults,
    },
    Experiment {
        id: Id(2, 11, 10),
        did: "query the default stream while a blocking stream has work, and a non-blocking one",
        run: query_of_default,
    },
    Experiment {
        id: Id(2, 11, 11),
        did: "synchronize the default stream while a blocking stream has work, and a non-blocking one",
        run: synchronize_default,
    },
    Experiment { id: Id(2, 12, 1), did: "ask for the range of priorities", run: priorities },
    Experiment {
        id: Id(2, 12, 2),
        did: "create streams of priority -100 and 100, ask for their priority",
        run: clamped,
    },
    Experiment { id: Id(2, 12, 3), did: "create streams with flags 2 and 4", run: unknown_flags },
    Experiment { id: Id(2, 12, 4), did: "query a stream that is idle, and one that has work", run: query },
    Experiment { id: Id(2, 12, 5), did: "destroy the null stream", run: destroy_null },
    Experiment { id: Id(2, 12, 6), did: "query a destroyed stream", run: query_of_destroyed },
    Experiment {
        id: Id(2, 12, 7),
        did: "ask for the flags of a blocking, a non-blocking and the null stream",
        run: flags,
    },
    Experiment {
        id: Id(2, 12, 8),
        did: "write a word in a stream of context 1 with context 2 current, and with none",
        run: other_context,
    },
    Experiment {
        id: Id(2, 12, 9),
        did: "ask for the context of a stream of context 1 and of the null stream, with context 2 current",
        run: contexts,
    },
    Experiment { id: Id(2, 12, 10), did: "synchronize context 2 while context 1 has work", run: synchronize_other },
    Experiment {
        id: Id(2, 12, 11),
        did: "synchronize the context while a non-blocking stream has work",
        run: synchronize_context,
    },
    Experiment { id: Id(2, 12, 12), did: "destroy a context, query its stream", run: context_gone },
    Experiment {
        id: Id(2, 12, 13),
        did: "a word written in a stream of context 2 while a blocking stream of context 1 has work",
        run: contexts_apart,
    },
    Experiment {
        id: Id(2, 12, 14),
        did: "query and synchronize a stream with no context current, and the null stream",
        run: without_context,
    },
];

fn id_while_captured(b: &Fixture, mode: CUstreamCaptureMode) -> Answer {
    b.init_context()?;
    let (captured, other) = (stream::create(b, NON_BLOCKING)?, stream::create(b, NON_BLOCKING)?);
    capture::begin(b, captured, mode)?;
    let (own, others) = (code(stream::id(b, captured)), code(stream::id(b, other)));
    Ok(format!("{own}, {others}, {}", code(capture::end(b, captured))))
}

fn without_context(b: &Fixture) -> Answer {
    b.init_context()?;
    let own = stream::create(b, NON_BLOCKING)?;
    context::set_current(b, CUcontext::NULL)?;
    let (queried, waited) = (ready(stream::query(b, own)), code(stream::synchronize(b, own)));
    Ok(format!("{queried}, {waited}, {}", ready(stream::query(b, CUstream::NULL))))
}

fn handle_comes_back(b: &Fixture) -> Answer {
    b.init_context()?;
    let first = stream::create(b, NON_BLOCKING)?;
    let before = stream::id(b, first)?;
    stream::destroy(b, first)?;
    let second = stream::create(b, NON_BLOCKING)?;
    let handle = choose(first == second, "the same handle", "another handle");
    Ok(format!("{handle}, {}", choose(stream::id(b, second)? == before, "the same id", "another id")))
}

/// Returns whether work in the second stream overtakes what the first one holds.
fn order(
    b: &Fixture,
    first: impl FnOnce(&Fixture) -> Result<CUstream, DriverError>,
    second: impl FnOnce(&Fixture) -> Result<CUstream, DriverError>,
) -> Answer {
    b.init_context()?;
    let latch = Latch::new(b)?;
    let end = b.registered_buffer(4096)?;
    let (first, second) = (first(b)?, second(b)?);
    latch.block_stream(b, first)?;
    stream::write_value_32(b, second, b.device_address(end.address(), 0)?, 1, 0)?;
    let overtaken = latch.overtaken_by(b, second, end.word())?;
    context::synchronize(b)?;
    Ok(choose(overtaken, "written at once", "waited for the work"))
}

fn two_threads(b: &Fixture) -> Answer {
    let context = b.init_context()?;
    let latch = Latch::new(b)?;
    let end = b.registered_buffer(4096)?;
    let address = b.device_address(end.address(), 0)?;
    latch.block_stream(b, CUstream::PER_THREAD)?;
    let other = || {
        context::set_current(b, context)?;
        stream::write_value_32(b, CUstream::PER_THREAD, address, 1, 0)?;
        latch.overtaken_by(b, CUstream::PER_THREAD, end.word())
    };
    let overtaken = thread::scope(|scope| scope.spawn(other).join().expect("the thread only calls"))?;
    context::synchronize(b)?;
    Ok(choose(overtaken, "written at once", "waited for the work"))
}

fn ids_of_defaults(b: &Fixture) -> Answer {
    let context = b.init_context()?;
    let null = stream::id(b, CUstream::NULL)?;
    let legacy = stream::id(b, CUstream::LEGACY)?;
    let mine = stream::id(b, CUstream::PER_THREAD)?;
    let other = || {
        context::set_current(b, context)?;
        stream::id(b, CUstream::PER_THREAD)
    };
    let theirs = thread::scope(|scope| scope.spawn(other).join().expect("the thread only asks"))?;
    let same = |holds| choose(holds, "the same", "another");
    Ok(format!(
        "default {}, thread's {}, other thread's {}",
        same(legacy == null),
        same(mine == null),
        same(theirs == mine)
    ))
}

fn query_of_default(b: &Fixture) -> Answer {
    b.init_context()?;
    let mut answers = Vec::new();
    for flags in [BLOCKING, NON_BLOCKING] {
        let latch = Latch::new(b)?;
        latch.block_stream(b, stream::create(b, flags)?)?;
        answers.push(ready(stream::query(b, CUstream::LEGACY)));
        latch.open();
        context::synchronize(b)?;
    }
    Ok(answers.join(", "))
}

fn synchronize_default(b: &Fixture) -> Answer {
    b.init_context()?;
    let mut answers = Vec::new();
    for flags in [BLOCKING, NON_BLOCKING] {
        let latch = Latch::new(b)?;
        latch.block_stream(b, stream::create(b, flags)?)?;
        answers.push(code_and_pace(latch.during(|| stream::synchronize(b, CUstream::LEGACY))));
        context::synchronize(b)?;
    }
    Ok(answers.join(", "))
}

fn priorities(b: &Fixture) -> Answer {
    b.init_context()?;
    let range = context::stream_priorities(b)?;
    Ok(format!("least {}, greatest {}", range.least, range.greatest))
}

fn clamped(b: &Fixture) -> Answer {
    b.init_context()?;
    let mut answers = Vec::new();
    for priority in [-100, 100] {
        let stream = stream::create_with_priority(b, NON_BLOCKING, priority);
        answers.push(match stream {
            Ok(stream) => or_code(stream::priority(b, stream), |priority| priority.to_string()),
            refused => code(refused),
        });
    }
    Ok(answers.join(", "))
}

fn unknown_flags(b: &Fixture) -> Answer {
    b.init_context()?;
    Ok(format!("{}, {}", code(stream::create(b, 2)), code(stream::create(b, 4))))
}

fn query(b: &Fixture) -> Answer {
    b.init_context()?;
    let latch = Latch::new(b)?;
    let stream = stream::create(b, NON_BLOCKING)?;
    let idle = ready(stream::query(b, stream));
    latch.block_stream(b, stream)?;
    let busy = ready(stream::query(b, stream));
    latch.open();
    stream::synchronize(b, stream)?;
    Ok(format!("idle {idle}, with work {busy}"))
}

fn destroy_null(b: &Fixture) -> Answer {
    b.init_context()?;
    Ok(code(stream::destroy(b, CUstream::NULL)))
}

fn query_of_destroyed(b: &Fixture) -> Answer {
    b.init_context()?;
    let stream = stream::create(b, NON_BLOCKING)?;
    stream::destroy(b, stream)?;
    Ok(ready(stream::query(b, stream)))
}

fn flags(b: &Fixture) -> Answer {
    b.init_context()?;
    let ask = |stream| or_code(stream::flags(b, stream), |flags| flags.to_string());
    let (blocking, non_blocking) = (ask(stream::create(b, BLOCKING)?), ask(stream::create(b, NON_BLOCKING)?));
    Ok(format!("{blocking}, {non_blocking}, {}", ask(CUstream::NULL)))
}

fn other_context(b: &Fixture) -> Answer {
    b.init_context()?;
    let stream = stream::create(b, NON_BLOCKING)?;
    let word = b.registered_buffer(4096)?;
    let address = b.device_address(word.address(), 0)?;
    b.second_context()?;
    let other = code(stream::write_value_32(b, stream, address, 1, 0));
    context::set_current(b, CUcontext::NULL)?;
    let none = code(stream::write_value_32(b, stream, address, 2, 0));
    let finished = code(stream::synchronize(b, stream));
    Ok(format!("{other}, {none}, synchronize {finished}, word {}", word.word().load(Ordering::SeqCst)))
}

fn contexts(b: &Fixture) -> Answer {
    let first = b.init_context()?;
    let stream = stream::create(b, NON_BLOCKING)?;
    let second = b.second_context()?;
    let ask = |stream| {
        or_code(stream::context(b, stream), |context| {
            choose(context == first, "context 1", &choose(context == second, "context 2", "another"))
        })
    };
    Ok(format!("{}, {}", ask(stream), ask(CUstream::NULL)))
}

fn synchronize_other(b: &Fixture) -> Answer {
    b.init_context()?;
    let latch = Latch::new(b)?;
    let stream = stream::create(b, NON_BLOCKING)?;
    b.second_context()?;
    warm(b)?;
    latch.block_stream(b, stream)?;
    Ok(code_and_pace(latch.during(|| context::synchronize(b))))
}

fn synchronize_context(b: &Fixture) -> Answer {
    b.init_context()?;
    let latch = Latch::new(b)?;
    latch.block_stream(b, stream::create(b, NON_BLOCKING)?)?;
    Ok(code_and_pace(latch.during(|| context::synchronize(b))))
}

fn context_gone(b: &Fixture) -> Answer {
    let primary = b.init_context()?;
    let context = b.second_context()?;
    let stream = stream::create(b, NON_BLOCKING)?;
    context::destroy(b, context)?;
    context::set_current(b, primary)?;
    Ok(ready(stream::query(b, stream)))
}

fn contexts_apart(b: &Fixture) -> Answer {
    b.init_context()?;
    let latch = Latch::new(b)?;
    let end = b.registered_buffer(4096)?;
    let address = b.device_address(end.address(), 0)?;
    let first = stream::create(b, BLOCKING)?;
    b.second_context()?;
    warm(b)?;
    let second = stream::create(b, BLOCKING)?;
    latch.block_stream(b, first)?;
    stream::write_value_32(b, second, address, 1, 0)?;
    let overtaken = latch.overtaken_by(b, second, end.word())?;
    Ok(choose(overtaken, "written at once", "waited for the work"))
}
