//! Experiments on launches, the attributes of kernels, libraries and symbols (7.15).

use std::ffi::{CStr, c_char};

use super::fixture::{BYTES, Fixture, ONE, TO_DEVICE, code, or_code};
use super::functions::{Dim3, FuncAttributes};
use crate::experiment::{Answer, Experiment};
use crate::id::Id;
use crate::kernels::KERNELS;

/// The attributes of a kernel that can be set.
const DYNAMIC_SHARED_MAX: i32 = 8;
const SHARED_CARVEOUT: i32 = 9;

pub(super) const EXPERIMENTS: &[Experiment<Fixture>] = &[
    Experiment {
        id: Id(7, 15, 1),
        did: "launch with no threads, with no blocks, with 1025 threads: codes, and then the device's",
        run: |r| {
            let [none, empty, many] = [(ONE, Dim3(0, 1, 1)), (Dim3(0, 1, 1), ONE), (ONE, Dim3(1025, 1, 1))]
                .map(|(grid, block)| shaped(r, grid, block, 0));
            Ok(format!("{}, {}, {}; {}", none?, empty?, many?, code(r.cudaDeviceSynchronize())))
        },
    },
    Experiment {
        id: Id(7, 15, 2),
        did: "launch with 65 threads in z, with 65536 blocks in y, with 2^31 blocks in x",
        run: |r| {
            let [deep, high, wide] = [(ONE, Dim3(1, 1, 65)), (Dim3(1, 65_536, 1), ONE), (Dim3(1 << 31, 1, 1), ONE)]
                .map(|(grid, block)| shaped(r, grid, block, 0));
            Ok(format!("{}, {}, {}", deep?, high?, wide?))
        },
    },
    Experiment {
        id: Id(7, 15, 3),
        did: "launch with 48 KiB of dynamic shared memory, with a byte more, with 1 MiB, with 2^32 bytes",
        run: |r| {
            let [most, more, large, huge] = [49_152, 49_153, 1 << 20, 1 << 32].map(|bytes| shaped(r, ONE, ONE, bytes));
            Ok(format!("{}, {}, {}, {}", most?, more?, large?, huge?))
        },
    },
    Experiment {
        id: Id(7, 15, 4),
        did: "launch a null kernel, and the address of a function that was never registered",
        run: |r| {
            r.init()?;
            let null = code(r.launch(0, 0, &[]));
            Ok(format!("{null}, {}", code(r.launch(stranger as *const () as u64, 0, &[]))))
        },
    },
    Experiment {
        id: Id(7, 15, 5),
        did: "launch a null kernel and one that was never registered, as the first calls: the last error",
        run: |r| {
            let null = code(r.launch(0, 0, &[]));
            Ok(format!(
                "{null}, {}; {}",
                code(r.launch(stranger as *const () as u64, 0, &[])),
                code(r.cudaGetLastError())
            ))
        },
    },
    Experiment {
        id: Id(7, 15, 6),
        did: "launch a kernel of 64 threads at most with 65, and one of exactly 32 times 2 with 64",
        run: |r| {
            let (bounded, required) = (r.kernel(c"bounded")?, r.kernel(c"required")?);
            let more = code(r.launch_shaped(bounded, (ONE, Dim3(65, 1, 1), 0), 0, &[]));
            Ok(format!("{more}, {}", code(r.launch_shaped(required, (ONE, Dim3(64, 1, 1), 0), 0, &[]))))
        },
    },
    Experiment {
        id: Id(7, 15, 7),
        did: "launch a kernel that has parameters with a null array of arguments",
        run: |r| {
            let store = r.kernel(c"store")?;
            Ok(code(r.cudaLaunchKernel(store, ONE, ONE, 0, 0, 0)))
        },
    },
    Experiment {
        id: Id(7, 15, 8),
        did: "launch a cooperative kernel with 2^20 blocks of 1024 threads",
        run: |r| {
            let empty = r.kernel(c"empty")?;
            Ok(code(r.cudaLaunchCooperativeKernel(empty, Dim3(1 << 20, 1, 1), Dim3(1024, 1, 1), 0, 0, 0)))
        },
    },
    Experiment {
        id: Id(7, 15, 9),
        did: "launch a kernel whose library was unloaded",
        run: |r| {
            let library = r.library(KERNELS)?;
            let empty = r.kernel_of(library, c"empty")?;
            r.launch(empty, 0, &[])?;
            r.cudaDeviceSynchronize()?;
            r.cudaLibraryUnload(library)?;
            Ok(code(r.launch(empty, 0, &[])))
        },
    },
    Experiment {
        id: Id(7, 15, 10),
        did: "launch in a stream that was destroyed",
        run: |r| {
            let (empty, stream) = (r.kernel(c"empty")?, r.stream()?);
            r.launch(empty, stream, &[])?;
            r.cudaStreamDestroy(stream)?;
            Ok(code(r.launch(empty, stream, &[])))
        },
    },
    Experiment {
        id: Id(7, 15, 11),
        did: "the attributes of a kernel with 1 KiB of shared memory: shared, constant and local bytes, threads",
        run: |r| {
            let kernel = r.kernel(c"static_shared")?;
            attributes(r, kernel, |found| {
                let FuncAttributes { shared_bytes, const_bytes, local_bytes, threads_max, .. } = found;
                format!("{shared_bytes}, {const_bytes}, {local_bytes}, {threads_max}")
            })
        },
    },
    Experiment {
        id: Id(7, 15, 12),
        did: "the attributes of a kernel of at most 64 threads: threads, dynamic shared bytes, carveout, PTX version",
        run: |r| {
            let kernel = r.kernel(c"bounded")?;
            attributes(r, kernel, |found| {
                let FuncAttributes { threads_max, dynamic_shared_bytes_max, shared_carveout, ptx_version, .. } = found;
                format!("{threads_max}, {dynamic_shared_bytes_max}, {shared_carveout}, {ptx_version}")
            })
        },
    },
    Experiment {
        id: Id(7, 15, 13),
        did: "the attributes of a null kernel, and of a function that was never registered",
        run: |r| {
            r.init()?;
            let [null, unknown] = [0, stranger as *const () as u64]
                .map(|kernel| code(r.cudaFuncGetAttributes(Some(&mut FuncAttributes::default()), kernel)));
            Ok(format!("{null}, {unknown}"))
        },
    },
    Experiment {
        id: Id(7, 15, 14),
        did: "allow a kernel 100,000 bytes of dynamic shared memory: the attribute then, and a launch with them",
        run: |r| {
            let kernel = r.kernel(c"empty")?;
            let set = code(r.cudaFuncSetAttribute(kernel, DYNAMIC_SHARED_MAX, 100_000));
            let then = attributes(r, kernel, |found| found.dynamic_shared_bytes_max.to_string())?;
            Ok(format!("{set}, {then}, {}", code(r.launch_shaped(kernel, (ONE, ONE, 100_000), 0, &[]))))
        },
    },
    Experiment {
        id: Id(7, 15, 15),
        did: "allow a kernel 1 MiB of dynamic shared memory, and less than none",
        run: |r| {
            let kernel = r.kernel(c"empty")?;
            let [much, negative] =
                [1 << 20, -1].map(|bytes| code(r.cudaFuncSetAttribute(kernel, DYNAMIC_SHARED_MAX, bytes)));
            Ok(format!("{much}, {negative}"))
        },
    },
    Experiment {
        id: Id(7, 15, 16),
        did: "set the shared memory carveout of a kernel to 50, 101 and -2, and an attribute that cannot be set",
        run: |r| {
            let kernel = r.kernel(c"empty")?;
            let [half, more, less] =
                [50, 101, -2].map(|share| code(r.cudaFuncSetAttribute(kernel, SHARED_CARVEOUT, share)));
            Ok(format!("{half}, {more}, {less}, {}", code(r.cudaFuncSetAttribute(kernel, 0, 1))))
        },
    },
    Experiment {
        id: Id(7, 15, 17),
        did: "the name of a kernel, and the offset and size of its parameters 1 and 2, of which it has two",
        run: |r| {
            let store = r.kernel(c"store")?;
            let mut name = 0;
            r.cudaFuncGetName(Some(&mut name), store)?;
            // SAFETY: the name is text of the library, which is not unloaded.
            let name = unsafe { CStr::from_ptr(name as *const c_char) }.to_string_lossy();
            let [last, none] = [1, 2].map(|index| {
                let (mut offset, mut bytes) = (0, 0);
                let asked = r.cudaFuncGetParamInfo(store, index, Some(&mut offset), Some(&mut bytes));
                or_code(asked, |()| format!("{offset} {bytes}"))
            });
            Ok(format!("{name}, {last}, {none}"))
        },
    },
    Experiment {
        id: Id(7, 15, 18),
        did: "the blocks of an empty kernel on a multiprocessor: of 1024 threads, of 32, with 100 KiB of shared memory",
        run: |r| {
            let kernel = r.kernel(c"empty")?;
            r.cudaFuncSetAttribute(kernel, DYNAMIC_SHARED_MAX, 102_400)?;
            let [large, small, shared] =
                [(1024, 0), (32, 0), (32, 102_400)].map(|(threads, bytes)| occupancy(r, kernel, threads, bytes));
            Ok(format!("{large}, {small}, {shared}"))
        },
    },
    Experiment {
        id: Id(7, 15, 19),
        did: "the blocks of an empty kernel on a multiprocessor: of no threads, of 1025, with 1 MiB of shared memory",
        run: |r| {
            let kernel = r.kernel(c"empty")?;
            let [none, many, shared] =
                [(0, 0), (1025, 0), (32, 1 << 20)].map(|(threads, bytes)| occupancy(r, kernel, threads, bytes));
            Ok(format!("{none}, {many}, {shared}"))
        },
    },
    Experiment {
        id: Id(7, 15, 20),
        did: "the dynamic shared memory that one block of 32 threads of an empty kernel can have, and each of two",
        run: |r| {
            let kernel = r.kernel(c"empty")?;
            let [one, two] = [1, 2].map(|blocks| {
                let mut bytes = 0;
                let asked = r.cudaOccupancyAvailableDynamicSMemPerBlock(Some(&mut bytes), kernel, blocks, 32);
                or_code(asked, |()| bytes.to_string())
            });
            Ok(format!("{one}, {two}"))
        },
    },
    Experiment {
        id: Id(7, 15, 21),
        did: "get a kernel that a library does not have",
        run: |r| Ok(code(r.kernel_of(r.library(KERNELS)?, c"nothing"))),
    },
    Experiment {
        id: Id(7, 15, 22),
        did: "the sizes of a variable and of a constant of a library, and of one that it does not have",
        run: |r| {
            let library = r.library(KERNELS)?;
            let [variable, constant, none] = [c"table", c"factor", c"nothing"].map(|name| {
                let (mut start, mut bytes) = (0, 0);
                let asked = r.cudaLibraryGetGlobal(Some(&mut start), Some(&mut bytes), library, name.as_ptr());
                or_code(asked, |()| bytes.to_string())
            });
            Ok(format!("{variable}, {constant}, {none}"))
        },
    },
    Experiment {
        id: Id(7, 15, 23),
        did: "write a variable of a library with cudaMemcpy, then read it with a kernel",
        run: |r| {
            let library = r.library(KERNELS)?;
            let (mut start, mut bytes) = (0, 0);
            r.cudaLibraryGetGlobal(Some(&mut start), Some(&mut bytes), library, c"counter".as_ptr())?;
            r.cudaMemset(start, 0, 4)?;
            let to = r.zeros(BYTES)?;
            r.launch(r.kernel_of(library, c"count")?, 0, &[to])?;
            Ok(r.word_at(to)?.to_string())
        },
    },
    Experiment {
        id: Id(7, 15, 24),
        did: "load one image twice: do the libraries share a variable",
        run: |r| {
            let [first, second] = [r.library(KERNELS)?, r.library(KERNELS)?].map(|library| {
                let (mut start, mut bytes) = (0, 0);
                let asked = r.cudaLibraryGetGlobal(Some(&mut start), Some(&mut bytes), library, c"counter".as_ptr());
                asked.map(|()| start)
            });
            Ok(crate::answer_text::choose(first? == second?, "yes", "no"))
        },
    },
    Experiment {
        id: Id(7, 15, 25),
        did: "load text that is not PTX, and PTX with an error",
        run: |r| {
            r.init()?;
            Ok(format!("{}, {}", code(r.library(c"nonsense")), code(r.library(BROKEN))))
        },
    },
    Experiment {
        id: Id(7, 15, 26),
        did: "load text that is not PTX: get a kernel of it",
        run: |r| {
            r.init()?;
            Ok(code(r.library(c"nonsense").and_then(|library| r.kernel_of(library, c"empty"))))
        },
    },
    Experiment {
        id: Id(7, 15, 27),
        did: "how many kernels a library has",
        run: |r| {
            let mut count = 0;
            let library = r.library(KERNELS)?;
            Ok(or_code(r.cudaLibraryGetKernelCount(Some(&mut count), library), |()| count.to_string()))
        },
    },
    Experiment {
        id: Id(7, 15, 28),
        did: "the address and the size of a symbol that was never registered, and a copy to it",
        run: |r| {
            let symbol = std::ptr::from_ref(&STRANGER) as u64;
            let address = code(r.cudaGetSymbolAddress(Some(&mut 0), symbol));
            let size = code(r.cudaGetSymbolSize(Some(&mut 0), symbol));
            Ok(format!("{address}, {size}, {}", code(r.cudaMemcpyToSymbol(symbol, r.pageable(4), 4, 0, TO_DEVICE))))
        },
    },
    Experiment {
        id: Id(7, 15, 29),
        did: "the address and the size of a null symbol",
        run: |r| {
            r.init()?;
            let address = code(r.cudaGetSymbolAddress(Some(&mut 0), 0));
            Ok(format!("{address}, {}", code(r.cudaGetSymbolSize(Some(&mut 0), 0))))
        },
    },
    Experiment {
        id: Id(7, 15, 30),
        did: "enqueue a null host function",
        run: |r| Ok(code(r.cudaLaunchHostFunc(r.stream()?, None, 0))),
    },
    Experiment {
        id: Id(7, 15, 31),
        did: "a host function allocates memory: what its call says",
        run: |r| {
            let stream = r.stream()?;
            let report = HostCall { r, code: std::sync::Mutex::new(String::new()) };
            r.cudaLaunchHostFunc(stream, Some(allocate), std::ptr::from_ref(&report) as u64)?;
            r.cudaStreamSynchronize(stream)?;
            Ok(report.code.into_inner().expect("the host function does not panic"))
        },
    },
    Experiment {
        id: Id(7, 15, 32),
        did: "get a kernel of a null library",
        run: |r| {
            r.init()?;
            Ok(code(r.kernel_of(0, c"empty")))
        },
    },
    Experiment {
        id: Id(7, 15, 33),
        did: "load a null image",
        run: |r| {
            r.init()?;
            Ok(code(r.cudaLibraryLoadData(Some(&mut 0), 0, 0, 0, 0, 0, 0, 0)))
        },
    },
];

/// PTX whose kernel has an instruction that does not exist.
const BROKEN: &CStr = c".version 6.4\n.target sm_70\n.address_size 64\n.visible .entry empty() { nonsense; ret; }\n";

/// A variable that no compiler has registered.
static STRANGER: u32 = 0;

/// A function that no compiler has registered.
extern "C" fn stranger() {}

/// What a host function does, and what it found.
struct HostCall<'a> {
    r: &'a Fixture,
    code: std::sync::Mutex<String>,
}

extern "C" fn allocate(data: u64) {
    // SAFETY: the experiment passes its report, and keeps it until the stream has run this.
    let report = unsafe { &*(data as *const HostCall<'_>) };
    *report.code.lock().expect("the report is used once") = code(report.r.malloc(BYTES));
}

fn shaped(r: &Fixture, grid: Dim3, block: Dim3, shared_bytes: usize) -> Answer {
    Ok(code(r.launch_shaped(r.kernel(c"empty")?, (grid, block, shared_bytes), 0, &[])))
}

fn attributes(r: &Fixture, kernel: u64, say: impl FnOnce(FuncAttributes) -> String) -> Answer {
    let mut found = FuncAttributes::default();
    Ok(or_code(r.cudaFuncGetAttributes(Some(&mut found), kernel), |()| say(found)))
}

fn occupancy(r: &Fixture, kernel: u64, threads: i32, shared_bytes: usize) -> String {
    let mut blocks = -1;
    let asked = r.cudaOccupancyMaxActiveBlocksPerMultiprocessor(Some(&mut blocks), kernel, threads, shared_bytes);
    or_code(asked, |()| blocks.to_string())
}
