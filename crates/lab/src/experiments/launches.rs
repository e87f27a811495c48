//! Experiments on which launches a driver accepts, and which arguments it reads (question 4).

use std::ffi::{CStr, c_void};
use std::ptr::{from_mut, null_mut};
use std::thread;

use freehold_driver::cuda::launch::{self, LaunchConfig};
use freehold_driver::cuda::{
    CUfunction, CUfunction_attribute, CUlaunchAttribute, CUlaunchAttributeID, CUstream, DriverError, Function, context,
    function, launch_param, stream, stream_flags,
};

use crate::answer_text::{code, or_code};
use crate::experiment::{Answer, Experiment};
use crate::fixture::{Fixture, check};
use crate::id::Id;
use crate::kernels::{self, DEFAULT, KERNELS, ONE, kernel, word_at, zeros};

const MAX_SHARED: CUfunction_attribute = CUfunction_attribute::MAX_DYNAMIC_SHARED_SIZE_BYTES;

pub(super) const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        id: Id(4, 9, 1),
        did: "launch with no block in x, in y, in z, and with no thread in x",
        run: |b| {
            let [x, y, z] = [[0, 1, 1], [1, 0, 1], [1, 1, 0]].map(|grid| shaped(b, grid, [1, 1, 1]));
            Ok(format!("{}, {}, {}, {}", x?, y?, z?, shaped(b, [1, 1, 1], [0, 1, 1])?))
        },
    },
    Experiment {
        id: Id(4, 9, 2),
        did: "launch with 1025 threads in x, with 33 times 32, with 65 in z",
        run: |b| {
            let [line, square, deep] = [[1025, 1, 1], [33, 32, 1], [1, 1, 65]].map(|block| shaped(b, [1, 1, 1], block));
            Ok(format!("{}, {}, {}", line?, square?, deep?))
        },
    },
    Experiment {
        id: Id(4, 9, 3),
        did: "launch with 65536 blocks in y, in z, and with 2^31 in x",
        run: |b| {
            let [y, z, x] = [[1, 65_536, 1], [1, 1, 65_536], [1 << 31, 1, 1]].map(|grid| shaped(b, grid, [1, 1, 1]));
            Ok(format!("{}, {}, {}", y?, z?, x?))
        },
    },
    Experiment {
        id: Id(4, 9, 4),
        did: "launch with 1024 threads, with 64 in z, with 65535 blocks in y",
        run: |b| {
            let most = shaped(b, [1, 1, 1], [1024, 1, 1])?;
            let deep = shaped(b, [1, 1, 1], [1, 1, 64])?;
            Ok(format!("{most}, {deep}, {}", shaped(b, [1, 65_535, 1], [1, 1, 1])?))
        },
    },
    Experiment {
        id: Id(4, 9, 5),
        did: "launch 3 times 2 times 2 blocks of 5 times 2 times 3 threads: how many ran",
        run: |b| {
            b.init_context()?;
            let threads = kernel(b, KERNELS, c"threads")?;
            let to = zeros(b)?;
            let shape = LaunchConfig { grid: [3, 2, 2], block: [5, 2, 3], shared_bytes: 0 };
            kernels::launch(b, threads, shape, DEFAULT, &[to.0])?;
            Ok(word_at(b, to)?.to_string())
        },
    },
    Experiment {
        id: Id(4, 9, 6),
        did: "launch with 48 KiB of dynamic shared memory, and with 4 bytes more",
        run: |b| {
            let (most, more) = (shared(b, None, 49_152)?, shared(b, None, 49_156)?);
            Ok(format!("{most}; {more}"))
        },
    },
    Experiment {
        id: Id(4, 9, 7),
        did: "allow 64 KiB of dynamic shared memory, launch with 64 KiB, and with 4 bytes more",
        run: |b| {
            let (most, more) = (shared(b, Some(65_536), 65_536)?, shared(b, Some(65_536), 65_540)?);
            Ok(format!("{most}; {more}"))
        },
    },
    Experiment {
        id: Id(4, 9, 8),
        did: "allow and launch with 227 KiB of dynamic shared memory, and with 4 bytes more",
        run: |b| {
            let (most, more) = (shared(b, Some(232_448), 232_448)?, shared(b, Some(232_452), 232_452)?);
            Ok(format!("{most}; {more}"))
        },
    },
    Experiment {
        id: Id(4, 9, 9),
        did: "a kernel with 1 KiB of shared memory: launch with 47 KiB more, and with 4 bytes more than that",
        run: |b| {
            b.init_context()?;
            let kernel = kernel(b, KERNELS, c"static_shared")?;
            let to = zeros(b)?;
            let [most, more] = [48_128, 48_132].map(|shared_bytes| {
                let shape = LaunchConfig { shared_bytes, ..ONE };
                code(kernels::launch(b, kernel, shape, DEFAULT, &[to.0]))
            });
            Ok(format!("{most}, {more}"))
        },
    },
    Experiment {
        id: Id(4, 9, 10),
        did: "launch a null function",
        run: |b| {
            b.init_context()?;
            Ok(code(kernels::launch(b, CUfunction::NULL, ONE, DEFAULT, &[])))
        },
    },
    Experiment {
        id: Id(4, 9, 11),
        did: "launch a kernel that has parameters with no arguments",
        run: |b| {
            let store = init_and_load(b, c"store")?;
            Ok(code(raw(b, store, null_mut(), null_mut())))
        },
    },
    Experiment {
        id: Id(4, 9, 12),
        did: "launch a kernel that has no parameters with no arguments",
        run: |b| {
            let empty = init_and_load(b, c"empty")?;
            Ok(code(raw(b, empty, null_mut(), null_mut())))
        },
    },
    Experiment {
        id: Id(4, 9, 13),
        did: "launch with a buffer of all arguments, of the right size",
        run: |b| buffered(b, 12),
    },
    Experiment {
        id: Id(4, 9, 14),
        did: "launch with a buffer of all arguments, of 8 bytes where 12 are needed",
        run: |b| buffered(b, 8),
    },
    Experiment {
        id: Id(4, 9, 15),
        did: "launch with a buffer of all arguments, of 16 bytes where 12 are needed",
        run: |b| buffered(b, 16),
    },
    Experiment {
        id: Id(4, 9, 16),
        did: "launch with a buffer of all arguments, of 24 bytes where 12 are needed",
        run: |b| buffered(b, 24),
    },
    Experiment {
        id: Id(4, 9, 17),
        did: "launch with pointers to arguments and with a buffer of them too",
        run: both_ways,
    },
    Experiment {
        id: Id(4, 9, 18),
        did: "launch with a buffer that is named but has no size",
        run: |b| {
            let store = init_and_load(b, c"store")?;
            let mut buffer = [0_u64; 4];
            let mut extra = [launch_param::BUFFER_POINTER as *mut c_void, from_mut(&mut buffer).cast(), null_mut()];
            Ok(code(raw(b, store, null_mut(), extra.as_mut_ptr())))
        },
    },
    Experiment {
        id: Id(4, 9, 19),
        did: "a cooperative launch of 1 block, and of 100000 blocks of 1024 threads",
        run: |b| {
            let empty = init_and_load(b, c"empty")?;
            let cooperative = |shape: LaunchConfig| {
                // SAFETY: the kernel has no parameters.
                code(unsafe { launch::cooperative(b, empty, shape, DEFAULT, &mut []) })
            };
            Ok(format!("{}, {}", cooperative(ONE), cooperative(LaunchConfig::linear(100_000, 1024))))
        },
    },
    Experiment {
        id: Id(4, 9, 20),
        did: "a kernel that requires 32 times 2 threads: launch with 32 times 2, with 64, with 32",
        run: |b| {
            let required = init_and_load(b, c"required")?;
            let [right, line, half] = [[32, 2, 1], [64, 1, 1], [32, 1, 1]].map(|block| {
                let shape = LaunchConfig { grid: [1, 1, 1], block, shared_bytes: 0 };
                code(kernels::launch(b, required, shape, DEFAULT, &[]))
            });
            Ok(format!("{right}, {line}, {half}"))
        },
    },
    Experiment {
        id: Id(4, 9, 21),
        did: "a kernel of 64 threads at the most: launch with 64, with 65, with 2 times 32",
        run: |b| {
            let bounded = init_and_load(b, c"bounded")?;
            let [most, more, square] = [[64, 1, 1], [65, 1, 1], [2, 32, 1]].map(|block| {
                let shape = LaunchConfig { grid: [1, 1, 1], block, shared_bytes: 0 };
                code(kernels::launch(b, bounded, shape, DEFAULT, &[]))
            });
            Ok(format!("{most}, {more}, {square}"))
        },
    },
    Experiment {
        id: Id(4, 9, 22),
        did: "launch in a stream of context 1 a function of context 2, which is current",
        run: |b| {
            b.init_context()?;
            let foreign = stream::create(b, stream_flags::NON_BLOCKING)?;
            b.second_context()?;
            let empty = kernel(b, KERNELS, c"empty")?;
            Ok(code(kernels::launch(b, empty, ONE, foreign, &[])))
        },
    },
    Experiment {
        id: Id(4, 9, 23),
        did: "launch in a destroyed stream",
        run: |b| {
            let empty = init_and_load(b, c"empty")?;
            let gone = stream::create(b, stream_flags::NON_BLOCKING)?;
            stream::destroy(b, gone)?;
            Ok(code(kernels::launch(b, empty, ONE, gone, &[])))
        },
    },
    Experiment {
        id: Id(4, 9, 24),
        did: "launch in the stream of this thread, and in the legacy one, by their names",
        run: |b| {
            let empty = init_and_load(b, c"empty")?;
            let [thread, legacy] = [CUstream::PER_THREAD, CUstream::LEGACY]
                .map(|stream| code(kernels::launch(b, empty, ONE, stream, &[])));
            Ok(format!("{thread}, {legacy}"))
        },
    },
    Experiment {
        id: Id(4, 9, 25),
        did: "launch in the default stream in a thread with no context current",
        run: |b| {
            let empty = init_and_load(b, c"empty")?;
            thread::scope(|scope| {
                let launched = scope.spawn(|| code(kernels::launch(b, empty, ONE, DEFAULT, &[])));
                Ok(launched.join().expect("the thread does not panic"))
            })
        },
    },
    Experiment {
        id: Id(4, 9, 26),
        did: "cuLaunchKernelEx with attribute 99",
        run: |b| attributed(b, &[CUlaunchAttribute::of_words(CUlaunchAttributeID(99), [0; 3])]),
    },
    Experiment {
        id: Id(4, 9, 27),
        did: "cuLaunchKernelEx with no attributes, and with one to ignore",
        run: |b| {
            let none = attributed(b, &[])?;
            let ignored = CUlaunchAttribute::of_words(CUlaunchAttributeID::IGNORE, [0; 3]);
            Ok(format!("{none}, {}", attributed(b, &[ignored])?))
        },
    },
    Experiment {
        id: Id(4, 9, 28),
        did: "cuLaunchKernelEx with clusters of 1 times 1 times 1 blocks, and of none",
        run: |b| {
            let cluster = |x| CUlaunchAttribute::of_words(CUlaunchAttributeID::CLUSTER_DIMENSION, [x, 1, 1]);
            Ok(format!("{}, {}", attributed(b, &[cluster(1)])?, attributed(b, &[cluster(0)])?))
        },
    },
    Experiment {
        id: Id(4, 9, 29),
        did: "cuLaunchKernelEx of 1 block with clusters of 2, and of 32",
        run: |b| {
            let cluster = |x| CUlaunchAttribute::of_words(CUlaunchAttributeID::CLUSTER_DIMENSION, [x, 1, 1]);
            Ok(format!("{}, {}", attributed(b, &[cluster(2)])?, attributed(b, &[cluster(32)])?))
        },
    },
    Experiment {
        id: Id(4, 9, 30),
        did: "cuLaunchKernelEx, cooperative by its attribute, and with a priority",
        run: |b| {
            let cooperative = CUlaunchAttribute::of_words(CUlaunchAttributeID::COOPERATIVE, [1, 0, 0]);
            let priority = CUlaunchAttribute::of_words(CUlaunchAttributeID::PRIORITY, [0, 0, 0]);
            Ok(format!("{}, {}", attributed(b, &[cooperative])?, attributed(b, &[priority])?))
        },
    },
    Experiment {
        id: Id(4, 9, 31),
        did: "cuLaunchKernelEx without a configuration",
        run: |b| {
            let empty = init_and_load(b, c"empty")?;
            // SAFETY: the driver must reject a null configuration; the kernel has no parameters.
            let answer = unsafe { (b.cuLaunchKernelEx)(std::ptr::null(), empty, null_mut(), null_mut()) };
            Ok(code(check(Function::cuLaunchKernelEx, answer)))
        },
    },
    Experiment {
        id: Id(4, 9, 32),
        did: "a refused launch, then a synchronize and a good launch",
        run: |b| {
            let empty = init_and_load(b, c"empty")?;
            let refused = code(kernels::launch(b, empty, LaunchConfig::linear(0, 1), DEFAULT, &[]));
            let waited = code(context::synchronize(b));
            Ok(format!("{refused}, {waited}, {}", code(kernels::launch(b, empty, ONE, DEFAULT, &[]))))
        },
    },
];

fn init_and_load(b: &Fixture, name: &CStr) -> Result<CUfunction, DriverError> {
    b.init_context()?;
    kernel(b, KERNELS, name)
}

/// Returns the code of a launch of `empty` in this shape, and of its end if different.
fn shaped(b: &Fixture, grid: [u32; 3], block: [u32; 3]) -> Answer {
    let empty = init_and_load(b, c"empty")?;
    let launched = code(kernels::launch(b, empty, LaunchConfig { grid, block, shared_bytes: 0 }, DEFAULT, &[]));
    context::synchronize(b)?;
    Ok(launched)
}

/// Allows dynamic shared memory and launches with some. Returns what the kernel finds in its last word.
fn shared(b: &Fixture, allowed: Option<i32>, bytes: u32) -> Answer {
    let dynamic = init_and_load(b, c"dynamic_shared")?;
    let to = zeros(b)?;
    let allowed = match allowed {
        None => String::new(),
        Some(allowed) => format!("allow {}, ", code(function::set_attribute(b, dynamic, MAX_SHARED, allowed))),
    };
    let shape = LaunchConfig { shared_bytes: bytes, ..ONE };
    let launched = kernels::launch(b, dynamic, shape, DEFAULT, &[to.0, bytes.into()]);
    Ok(match launched {
        Ok(()) => format!("{allowed}launch SUCCESS, {}", or_code(word_at(b, to), |word| word.to_string())),
        refused => format!("{allowed}launch {}", code(refused)),
    })
}

fn raw(
    b: &Fixture,
    function: CUfunction,
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Result<(), DriverError> {
    // SAFETY: the experiments pass what the kernel needs, or something that the driver must reject; what they point to
    // outlives the call.
    unsafe { launch::raw(b, function, ONE, DEFAULT, parameters, extra) }
}

/// Launches `store` with an argument buffer of the given declared size.
fn buffered(b: &Fixture, bytes: usize) -> Answer {
    let store = init_and_load(b, c"store")?;
    let to = zeros(b)?;
    let mut buffer = [to.0, 23, 0, 0];
    let mut size = bytes;
    let mut extra = [
        launch_param::BUFFER_POINTER as *mut c_void,
        from_mut(&mut buffer).cast(),
        launch_param::BUFFER_SIZE as *mut c_void,
        from_mut(&mut size).cast(),
        launch_param::END as *mut c_void,
    ];
    let launched = raw(b, store, null_mut(), extra.as_mut_ptr());
    Ok(format!("{}, stored {}", code(launched), or_code(word_at(b, to), |word| word.to_string())))
}

fn both_ways(b: &Fixture) -> Answer {
    let store = init_and_load(b, c"store")?;
    let to = zeros(b)?;
    let (mut at, mut value) = (to.0, 31_u64);
    let mut parameters: [*mut c_void; 2] = [from_mut(&mut at).cast(), from_mut(&mut value).cast()];
    let (mut buffer, mut size) = ([to.0, 32], 12_usize);
    let mut extra = [
        launch_param::BUFFER_POINTER as *mut c_void,
        from_mut(&mut buffer).cast(),
        launch_param::BUFFER_SIZE as *mut c_void,
        from_mut(&mut size).cast(),
        launch_param::END as *mut c_void,
    ];
    let launched = raw(b, store, parameters.as_mut_ptr(), extra.as_mut_ptr());
    Ok(format!("{}, stored {}", code(launched), or_code(word_at(b, to), |word| word.to_string())))
}

fn attributed(b: &Fixture, attributes: &[CUlaunchAttribute]) -> Answer {
    let empty = init_and_load(b, c"empty")?;
    let mut attributes = attributes.to_vec();
    // SAFETY: the kernel has no parameters.
    let launched = unsafe { launch::with_attributes(b, empty, ONE, DEFAULT, &mut attributes, &mut []) };
    context::synchronize(b)?;
    Ok(code(launched))
}
