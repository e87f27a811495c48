//! Experiments on what kernels do besides memory accesses: printing, allocating, reading clocks (question 4).

use freehold_driver::cuda::launch::LaunchConfig;
use freehold_driver::cuda::{
    CUdeviceptr, CUlimit, CUmodule, CUpointer_attribute, DriverError, context, fill, memory, module, pointer, stream,
    stream_flags,
};

use crate::answer_text::{choose, code, or_code};
use crate::experiment::{Answer, Experiment};
use crate::fixture::Fixture;
use crate::host_buffer::HostBuffer;
use crate::id::Id;
use crate::kernels::{DEFAULT, ONE, SPECIALS, Spin, function, kernel, launch, load, word_at, zeros};
use crate::output_capture::OutputCapture;

pub(super) const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        id: Id(4, 12, 1),
        did: "a kernel prints, after one that runs: what is out after the launch, and after the synchronize",
        run: printed_behind,
    },
    Experiment {
        id: Id(4, 12, 2),
        did: "two kernels print, one after the other: what is out after the synchronize",
        run: |b| {
            b.init_context()?;
            let says = kernel(b, SPECIALS, c"says")?;
            let out = OutputCapture::stdout()?;
            launch(b, says, ONE, DEFAULT, &[1])?;
            launch(b, says, ONE, DEFAULT, &[2])?;
            context::synchronize(b)?;
            Ok(quoted(&out.text()?))
        },
    },
    Experiment {
        id: Id(4, 12, 3),
        did: "a kernel prints: what is out once a query says that its stream is done",
        run: printed_at_query,
    },
    Experiment {
        id: Id(4, 12, 4),
        did: "a kernel prints in a stream: what is out after cuStreamSynchronize of it",
        run: |b| {
            b.init_context()?;
            let says = kernel(b, SPECIALS, c"says")?;
            let stream = stream::create(b, stream_flags::NON_BLOCKING)?;
            let out = OutputCapture::stdout()?;
            launch(b, says, ONE, stream, &[3])?;
            stream::synchronize(b, stream)?;
            Ok(quoted(&out.text()?))
        },
    },
    Experiment {
        id: Id(4, 12, 5),
        did: "a kernel prints: what is out after a copy to the host",
        run: |b| {
            b.init_context()?;
            let says = kernel(b, SPECIALS, c"says")?;
            let block = zeros(b)?;
            let out = OutputCapture::stdout()?;
            launch(b, says, ONE, DEFAULT, &[3])?;
            b.copy_out(HostBuffer::pageable(4), block)?;
            Ok(quoted(&out.text()?))
        },
    },
    Experiment {
        id: Id(4, 12, 6),
        did: "32 threads print a line each: how many lines are out",
        run: |b| {
            b.init_context()?;
            let says = kernel(b, SPECIALS, c"says")?;
            let out = OutputCapture::stdout()?;
            launch(b, says, LaunchConfig::linear(1, 32), DEFAULT, &[4])?;
            context::synchronize(b)?;
            Ok(out.text()?.lines().filter(|line| *line == "value 4").count().to_string())
        },
    },
    Experiment {
        id: Id(4, 12, 7),
        did: "a kernel allocates 64 bytes: a pointer, and what another kernel finds there",
        run: |b| {
            let heap = Heap::new(b)?;
            let start = heap.take(b, 64)?;
            let reads = function(b, heap.module, c"reads")?;
            launch(b, reads, ONE, DEFAULT, &[start, heap.to.0])?;
            Ok(format!("{}, {}", pointer_or_null(start), word_at(b, heap.to)?))
        },
    },
    Experiment {
        id: Id(4, 12, 8),
        did: "memory that a kernel allocated: cuMemFree of it",
        run: |b| {
            let heap = Heap::new(b)?;
            let start = heap.take(b, 64)?;
            Ok(code(memory::free(b, CUdeviceptr(start))))
        },
    },
    Experiment {
        id: Id(4, 12, 9),
        did: "memory that a kernel allocated: a copy of it to the host, and a fill",
        run: |b| {
            let heap = Heap::new(b)?;
            let start = CUdeviceptr(heap.take(b, 64)?);
            let copied = code(b.bytes_at(start, 4));
            Ok(format!("{copied}, {}", code(fill::d32(b, start, 1, 1))))
        },
    },
    Experiment {
        id: Id(4, 12, 10),
        did: "memory that a kernel allocated: cuPointerGetAttribute, cuMemGetAddressRange",
        run: |b| {
            let heap = Heap::new(b)?;
            let start = CUdeviceptr(heap.take(b, 64)?);
            let kind = pointer::attribute(b, start, CUpointer_attribute::MEMORY_TYPE);
            Ok(format!("{}, {}", or_code(kind, |kind| kind.to_string()), code(memory::range(b, start))))
        },
    },
    Experiment {
        id: Id(4, 12, 11),
        did: "a kernel allocates 1 MiB, 6 MiB and 16 MiB of a heap of 8 MiB",
        run: |b| {
            let heap = Heap::new(b)?;
            let mut answers = Vec::new();
            for mib in [1, 6, 16] {
                answers.push(pointer_or_null(heap.take(b, mib << 20)?));
            }
            Ok(format!("heap {}, {}", context::limit(b, CUlimit::MALLOC_HEAP_SIZE)?, answers.join(", ")))
        },
    },
    Experiment {
        id: Id(4, 12, 12),
        did: "a kernel allocates nothing",
        run: |b| {
            let heap = Heap::new(b)?;
            Ok(pointer_or_null(heap.take(b, 0)?))
        },
    },
    Experiment {
        id: Id(4, 12, 13),
        did: "a kernel gives 64 bytes back that another allocated, and null",
        run: |b| {
            let heap = Heap::new(b)?;
            let start = heap.take(b, 64)?;
            let gives = function(b, heap.module, c"gives")?;
            launch(b, gives, ONE, DEFAULT, &[start])?;
            let given = code(context::synchronize(b));
            launch(b, gives, ONE, DEFAULT, &[0])?;
            Ok(format!("{given}, {}", code(context::synchronize(b))))
        },
    },
    Experiment {
        id: Id(4, 12, 14),
        did: "set the heap to 32 MiB before any kernel allocates, allocate 16 MiB; set it afterwards",
        run: |b| {
            b.init_context()?;
            let set = code(context::set_limit(b, CUlimit::MALLOC_HEAP_SIZE, 32 << 20));
            let heap = Heap::new(b)?;
            let start = heap.take(b, 16 << 20)?;
            let again = code(context::set_limit(b, CUlimit::MALLOC_HEAP_SIZE, 64 << 20));
            Ok(format!("{set}, {}, {again}", pointer_or_null(start)))
        },
    },
    Experiment {
        id: Id(4, 12, 15),
        did: "do clock64 and globaltimer go forward within a kernel",
        run: |b| {
            b.init_context()?;
            let to = zeros(b)?;
            launch(b, kernel(b, SPECIALS, c"times")?, ONE, DEFAULT, &[to.0])?;
            let word = word_at(b, to)?;
            Ok(format!("{}, {}", choose(word & 1 != 0, "yes", "no"), choose(word & 2 != 0, "yes", "no")))
        },
    },
    Experiment {
        id: Id(4, 12, 16),
        did: "how many threads a warp has",
        run: |b| {
            b.init_context()?;
            let to = zeros(b)?;
            launch(b, kernel(b, SPECIALS, c"warps")?, ONE, DEFAULT, &[to.0])?;
            Ok(word_at(b, to)?.to_string())
        },
    },
    Experiment {
        id: Id(4, 12, 17),
        did: "how many kernels a text has that prints and allocates",
        run: |b| {
            b.init_context()?;
            let of = load(b, SPECIALS)?;
            Ok(module::function_count(b, of)?.to_string())
        },
    },
];

/// The heap of kernels, in the primary context.
struct Heap {
    module: CUmodule,
    to: CUdeviceptr,
}

impl Heap {
    fn new(b: &Fixture) -> Result<Self, DriverError> {
        b.init_context()?;
        Ok(Self { module: load(b, SPECIALS)?, to: zeros(b)? })
    }

    /// Returns the address of memory that a kernel allocates.
    fn take(&self, b: &Fixture, bytes: u64) -> Result<u64, DriverError> {
        launch(b, function(b, self.module, c"takes")?, ONE, DEFAULT, &[self.to.0, bytes])?;
        let start = b.bytes_at(self.to, 8)?;
        Ok(start.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte)))
    }
}

fn pointer_or_null(start: u64) -> String {
    choose(start == 0, "null", "a pointer")
}

/// Puts a text on one line.
fn quoted(text: &str) -> String {
    if text.is_empty() { "nothing".to_owned() } else { text.trim_end().replace('\n', "; ") }
}

fn printed_behind(b: &Fixture) -> Answer {
    b.init_context()?;
    let spin = Spin::new(b)?;
    let says = kernel(b, SPECIALS, c"says")?;
    let stream = stream::create(b, stream_flags::NON_BLOCKING)?;
    let out = OutputCapture::stdout()?;
    // The first launch of a kernel that prints may wait for the device.
    launch(b, says, ONE, stream, &[8])?;
    context::synchronize(b)?;
    spin.run(b, stream, CUdeviceptr::NULL, 0)?;
    let (pace, launched) = spin.latch.unless_held(|| launch(b, says, ONE, stream, &[9]));
    launched?;
    let early = quoted(&out.text()?);
    spin.latch.open();
    stream::synchronize(b, stream)?;
    Ok(format!("the launch {}, {early}, {}", pace.text(), quoted(&out.text()?)))
}

fn printed_at_query(b: &Fixture) -> Answer {
    b.init_context()?;
    let says = kernel(b, SPECIALS, c"says")?;
    let stream = stream::create(b, stream_flags::NON_BLOCKING)?;
    let out = OutputCapture::stdout()?;
    launch(b, says, ONE, stream, &[5])?;
    while !stream::query(b, stream)? {
        std::thread::yield_now();
    }
    Ok(quoted(&out.text()?))
}
