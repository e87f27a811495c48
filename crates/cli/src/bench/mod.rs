//! `freehold bench`: measures the library and the driver in the same run.
//!
//! This file owns the command. A missed target is reported but is not a failure: benchmarks measure, tests judge.

mod call;
mod call_costs;
pub(crate) mod pool;
mod progress;
mod release;
mod remote;
pub(crate) mod report;
mod rig;
pub(crate) mod share;
mod stats;
mod under_load;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use freehold::open::OpenError;
use freehold_driver::cuda::CallError;

use self::release::Effort;
use self::rig::Rig;
use crate::allocators::Failure;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    benchmark: Benchmark,
}

#[derive(clap::Subcommand)]
enum Benchmark {
    /// Measure release, module close, launch, owner_of and allocation next to the driver's own calls
    ///
    /// Prints medians of one run, and their targets. The exit status is 0 whether targets are met or missed.
    #[command(after_help = "Example: freehold bench release --json")]
    Release(ReleaseArguments),
    /// Measure allocation over several workloads next to cuMemAlloc and cuMemAllocAsync
    ///
    /// On OpenCL: pairs of an allocation and its release, next to clCreateBuffer, clSVMAlloc, and the pool on CUDA.
    ///
    /// Prints medians of one run, and their targets. The exit status is 0 whether targets are met or missed.
    #[command(after_help = "Example: freehold bench pool --svg pool.svg")]
    Pool(pool::PoolArguments),
    /// Measure memory handed between processes through a broker, next to a socket and a copy
    ///
    /// Prints medians of one run, and their targets. The exit status is 0 whether targets are met or missed.
    #[command(after_help = "Example: freehold bench share")]
    Share(share::ShareArguments),
    /// Measure kernels launched by a worker of the broker, next to local launches
    ///
    /// Prints medians of one run, and their targets. The exit status is 0 whether targets are met or missed.
    #[command(after_help = "Example: freehold bench call --quick")]
    Call(call::CallArguments),
    /// Measure transfers to a remote broker and back, over loopback, next to plain TCP
    ///
    /// Prints medians of one run, and their targets. The exit status is 0 whether targets are met or missed.
    #[command(after_help = "Example: freehold bench remote")]
    Remote(remote::RemoteArguments),
}

#[derive(clap::Args)]
struct ReleaseArguments {
    /// Print one JSON object, with times in nanoseconds
    #[arg(long)]
    json: bool,
    /// Device: soft, cuda or cuda:N [default: FREEHOLD_DEVICE, else an NVIDIA GPU, else the software device]
    #[arg(long)]
    device: Option<String>,
    /// Measure only a few times: a check that it works, not a measurement
    #[arg(long)]
    quick: bool,
}

/// Why nothing was measured. Exit status 2.
#[derive(Debug, thiserror::Error)]
enum BenchError {
    #[error(transparent)]
    Device(#[from] OpenError),
    #[error(transparent)]
    Library(#[from] freehold::Error),
    #[error(transparent)]
    Driver(#[from] CallError),
    #[error(transparent)]
    OpenCl(#[from] freehold_driver::CallError),
    #[error(
        "a kernel of {kernel_ms} ms ended before the calls measured next to it: run the benchmark on an idle machine"
    )]
    KernelEnded { kernel_ms: u64 },
    #[error("--svg works only with CUDA devices: omit it")]
    NoPicture,
    #[error("{0}")]
    Processes(String),
    #[error("failed to print the report: {0}")]
    Print(io::Error),
    #[error(transparent)]
    Allocator(#[from] Failure),
    #[error("failed to write {}: {error}", path.display())]
    Unwritable { path: PathBuf, error: io::Error },
}

type Result<T> = std::result::Result<T, BenchError>;

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let figures = match &arguments.benchmark {
        Benchmark::Release(arguments) => release(arguments),
        Benchmark::Pool(arguments) => pool::run(arguments),
        Benchmark::Share(arguments) => share::run(arguments),
        Benchmark::Call(arguments) => call::run(arguments),
        Benchmark::Remote(arguments) => remote::run(arguments),
    };
    match figures.and_then(|text| print(&text)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

fn release(arguments: &ReleaseArguments) -> Result<String> {
    let rig = Rig::new(arguments.device.as_deref())?;
    let report = release::measure(&rig, if arguments.quick { Effort::QUICK } else { Effort::FULL })?;
    Ok(if arguments.json { report.json() } else { report.table(crate::lab::table::TableStyle::for_stdout()) })
}

fn print(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // A reader that closes the pipe early is not a failure.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(BenchError::Print),
    }
}
