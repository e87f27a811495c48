//! `freehold bench`: measures the library and the driver in the same run.
//!
//! This file owns the command. A missed target is reported but is not a failure: benchmarks measure, tests judge.

mod call;
mod call_costs;
mod error;
mod options;
pub(crate) mod pool;
mod progress;
mod release;
mod remote;
mod report;
mod rig;
pub(crate) mod share;
mod stats;
mod under_load;

use std::process::ExitCode;

use self::error::{BenchError, Result};
use self::options::MeasureOptions;
use self::release::Effort;
use self::rig::Rig;
use crate::output::table::TableStyle;
use crate::output::text::{json, print};

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
    Release(MeasureOptions),
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
    Share(MeasureOptions),
    /// Measure kernels launched by a worker of the broker, next to local launches
    ///
    /// Prints medians of one run, and their targets. The exit status is 0 whether targets are met or missed.
    #[command(after_help = "Example: freehold bench call --quick")]
    Call(MeasureOptions),
    /// Measure transfers to a remote broker and back, over loopback, next to plain TCP
    ///
    /// Prints medians of one run, and their targets. The exit status is 0 whether targets are met or missed.
    #[command(after_help = "Example: freehold bench remote")]
    Remote(remote::RemoteArguments),
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let figures = match &arguments.benchmark {
        Benchmark::Release(arguments) => release(arguments),
        Benchmark::Pool(arguments) => pool::run(arguments),
        Benchmark::Share(arguments) => share::run(arguments),
        Benchmark::Call(arguments) => call::run(arguments),
        Benchmark::Remote(arguments) => remote::run(arguments),
    };
    match figures.and_then(|text| print(text).map_err(BenchError::Print)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(if matches!(error, BenchError::Print(_)) { 1 } else { 2 })
        }
    }
}

fn release(arguments: &MeasureOptions) -> Result<String> {
    let rig = Rig::new(arguments.device.as_deref())?;
    let report = release::measure(&rig, if arguments.quick { Effort::QUICK } else { Effort::FULL })?;
    Ok(if arguments.json { json(&report) } else { report.table(TableStyle::for_stdout()) })
}
