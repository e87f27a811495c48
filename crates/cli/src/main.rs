//! The command line of Freehold. It reads arguments, calls what does the work, and prints; it decides nothing itself.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod allocator;
mod bench;
mod lab;
mod replay;
mod run;

/// GPU memory that has an owner.
#[derive(Parser)]
#[command(name = "freehold", version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Say what this machine's driver does, beside what a recorded one did
    Lab(lab::Arguments),
    /// Run a program on the software device, or on a GPU, whatever CUDA driver this machine has
    Run(run::Arguments),
    /// Measure what the library costs beside the driver
    Bench(bench::Arguments),
    /// Replay a recorded log of allocations on this device, on Freehold's pool and on the driver's allocators
    ///
    /// The log is a timeline that Freehold recorded, RMM's CSV log, PyTorch's memory snapshot, or a workload of `bench pool`. Its
    /// allocations and frees are played in their order by one thread, each stream of the log on its own stream of the device, with
    /// no work in the streams. Told are the time of one operation, the peaks of live and of reserved memory, and how many
    /// allocations were refused; and what was odd in the log. What cuMemAlloc reserves is what the device loses meanwhile, to
    /// other processes too.
    Replay(replay::Arguments),
    /// Make one experiment and print its answer
    #[command(hide = true)]
    Experiment(lab::child::Arguments),
    /// Be the other process of an experiment, which speaks over standard input
    #[command(hide = true)]
    Partner(lab::child::Device),
}

fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::Lab(arguments) => lab::run(&arguments),
        Command::Run(arguments) => run::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Replay(arguments) => replay::run(&arguments),
        Command::Experiment(arguments) => lab::child::run(&arguments),
        Command::Partner(device) => lab::child::partner(&device),
    }
}
