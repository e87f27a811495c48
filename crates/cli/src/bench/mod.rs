//! `freehold bench`: what the library costs, in one run beside the driver that it stands on.
//!
//! This file owns the command. A target that is missed is said and is no failure: this measures, tests judge.

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
    /// Measure release, module close, launch, owner_of and allocation beside the driver's own calls
    ///
    /// Medians of one run, with the targets that they are to meet. The exit status is 0 whether they are met or missed.
    #[command(after_help = "Example: freehold bench release --json")]
    Release(ReleaseArguments),
    /// Measure allocation over several workloads beside cuMemAlloc and cuMemAllocAsync
    ///
    /// On OpenCL: pairs of an allocation and its release, beside clCreateBuffer, clSVMAlloc, and the pool on CUDA.
    ///
    /// Medians of one run, with the targets that they are to meet. The exit status is 0 whether they are met or missed.
    #[command(after_help = "Example: freehold bench pool --svg pool.svg")]
    Pool(pool::PoolArguments),
    /// Measure memory that goes from process to process through a broker, beside a socket and a copy
    ///
    /// Medians of one run, with the targets that they are to meet. The exit status is 0 whether they are met or missed.
    #[command(after_help = "Example: freehold bench share")]
    Share(share::ShareArguments),
    /// Measure kernels that a worker of the broker's runs, beside those that this process launches itself
    ///
    /// Medians of one run, with the targets that they are to meet. The exit status is 0 whether they are met or missed.
    #[command(after_help = "Example: freehold bench call --quick")]
    Call(call::CallArguments),
    /// Measure bytes that go to a broker elsewhere and back, over loopback, beside plain TCP
    ///
    /// Medians of one run, with the targets that they are to meet. The exit status is 0 whether they are met or missed.
    #[command(after_help = "Example: freehold bench remote")]
    Remote(remote::RemoteArguments),
}

#[derive(clap::Args)]
struct ReleaseArguments {
    /// Print one JSON object, with times in nanoseconds
    #[arg(long)]
    json: bool,
    /// The device: soft, cuda or cuda:N; without it FREEHOLD_DEVICE, or an NVIDIA GPU if there is one
    #[arg(long)]
    device: Option<String>,
    /// Measure a few times only: whether it works, not what it costs
    #[arg(long)]
    quick: bool,
}

/// Why there are no figures. Exit status 2.
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
    #[error("a kernel of {kernel_ms} ms ended before what was to be measured beside it")]
    KernelEnded { kernel_ms: u64 },
    #[error("--svg: there is a picture of the figures of CUDA devices alone; leave it out")]
    NoPicture,
    #[error("{0}")]
    Processes(String),
    #[error("the figures cannot be printed: {0}")]
    Print(io::Error),
    #[error(transparent)]
    Allocator(#[from] Failure),
    #[error("{} cannot be written: {error}", path.display())]
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
        // A reader that has seen enough and closes the pipe is no failure.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(BenchError::Print),
    }
}
