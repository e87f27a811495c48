//! The command line of Freehold. It reads arguments, calls what does the work, and prints; it decides nothing itself.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod allocator;
mod bench;
mod broker;
mod demo;
mod devices;
mod lab;
mod mpi;
mod replay;
mod run;

use broker::elsewhere::Elsewhere;

/// GPU memory that has an owner.
#[derive(Parser)]
#[command(name = "freehold", version, arg_required_else_help = true)]
struct Arguments {
    #[command(flatten)]
    elsewhere: Elsewhere,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List every device that this machine has: NVIDIA's GPUs, the software device, OpenCL's
    Devices(devices::Arguments),
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
    /// Compute heat on a mesh that refines itself, in several processes, one of which is killed on purpose
    ///
    /// A parent publishes the domain at a broker that it starts; workers lease it where it lies and refine their own rows. The field is
    /// the same to the last bit for any number of workers, with the kill and without, on a GPU and on the software device.
    /// Example: freehold demo --size 512 --workers 4
    Demo(demo::Arguments),
    /// Say which path device memory takes through MPI here and why, and measure it
    ///
    /// Starts the program freehold-mpi, which is built apart, on a machine that has MPI. Example: mpirun -n 2 freehold mpi bench
    Mpi(mpi::Arguments),
    /// Keep device memory for other processes, beyond their lives: a broker for this user
    ///
    /// Example: freehold serve --memory 8GiB
    Serve(broker::serve::Arguments),
    /// End the broker, and its keeper with it
    Stop(broker::stop::Arguments),
    /// Publish a file: it stays in device memory, under a name
    ///
    /// Example: freehold put weights.bin --name model/weights
    Put(broker::transfer::PutArguments),
    /// Write what has a name to a file
    ///
    /// Example: freehold get model/weights -o copy.bin
    Get(broker::transfer::GetArguments),
    /// List what is published at the broker
    Ls(broker::names::ListArguments),
    /// Take a name from the broker; its memory goes with the last lease of it
    Drop(broker::names::DropArguments),
    /// Say how much memory the broker has made, leased and named
    Totals(broker::names::TotalsArguments),
    /// Say what a user may have at the broker, or change it
    Quota(broker::names::QuotaArguments),
    /// Keep modules of kernels at the broker, under names
    #[command(subcommand)]
    Module(broker::modules::Command),
    /// Have a kernel of a module launched by a worker of the broker's, and wait for it
    ///
    /// Example: freehold call blas/saxpy saxpy --grid 4096 --block 256 --arg lease:y --arg read:x --arg f32:2.0 --arg u32:1048576
    Call(broker::call::Arguments),
    /// Show who holds what at the broker, live; q leaves
    Top(broker::top::Arguments),
    /// Be the other process of `bench share`
    #[command(hide = true)]
    SharePartner(bench::share::partner::Arguments),
    /// Be a worker of `demo`
    #[command(hide = true)]
    DemoWorker(demo::WorkerArguments),
    /// Be one of the processes of a broker
    #[command(hide = true)]
    Part(broker::serve::PartArguments),
    /// Serve a broker to clients elsewhere
    #[command(hide = true)]
    Gate(broker::gate::GateArguments),
    /// Make one experiment and print its answer
    #[command(hide = true)]
    Experiment(lab::child::Arguments),
    /// Be the other process of an experiment, which speaks over standard input
    #[command(hide = true)]
    Partner(lab::child::Device),
}

impl Command {
    /// Whether it works on a broker elsewhere too.
    fn reaches_elsewhere(&self) -> bool {
        match self {
            Self::Put(_) | Self::Get(_) | Self::Ls(_) | Self::Drop(_) => true,
            Self::Totals(_) | Self::Module(_) | Self::Call(_) => true,
            Self::Demo(arguments) => arguments.is_remote(),
            _ => false,
        }
    }

    /// Whether it speaks to a broker, and to one of this machine alone.
    fn speaks_here(&self) -> bool {
        matches!(self, Self::Stop(_) | Self::Quota(_) | Self::Top(_))
    }
}

fn main() -> ExitCode {
    let Arguments { elsewhere, command } = Arguments::parse();
    let is_meant = if command.speaks_here() { elsewhere.is_meant() } else { elsewhere.is_said() };
    if is_meant && !command.reaches_elsewhere() {
        eprintln!(
            "error: this command works on its own machine alone: say it there, or without --at and FREEHOLD_AT; put, get, ls, drop, totals, module, call and demo --remote work elsewhere"
        );
        return ExitCode::from(2);
    }
    match command {
        Command::Devices(arguments) => devices::run(&arguments),
        Command::Lab(arguments) => lab::run(&arguments),
        Command::Run(arguments) => run::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Replay(arguments) => replay::run(&arguments),
        Command::Demo(arguments) => demo::run(&arguments, &elsewhere),
        Command::DemoWorker(arguments) => demo::worker(&arguments),
        Command::Mpi(arguments) => mpi::run(&arguments),
        Command::Serve(arguments) => broker::serve::run(&arguments, &elsewhere),
        Command::Stop(arguments) => broker::stop::run(&arguments),
        Command::Put(arguments) => broker::transfer::put(&arguments, &elsewhere),
        Command::Get(arguments) => broker::transfer::get(&arguments, &elsewhere),
        Command::Ls(arguments) => broker::names::list(&arguments, &elsewhere),
        Command::Drop(arguments) => broker::names::drop_name(&arguments, &elsewhere),
        Command::Totals(arguments) => broker::names::totals(&arguments, &elsewhere),
        Command::Gate(arguments) => broker::gate::run(&arguments),
        Command::Quota(arguments) => broker::names::quota(&arguments),
        Command::Module(command) => broker::modules::run(&command, &elsewhere),
        Command::Call(arguments) => broker::call::run(&arguments, &elsewhere),
        Command::Top(arguments) => broker::top::run(&arguments),
        Command::SharePartner(arguments) => bench::share::partner::run(&arguments),
        Command::Part(arguments) => broker::serve::part(&arguments),
        Command::Experiment(arguments) => lab::child::run(&arguments),
        Command::Partner(device) => lab::child::partner(&device),
    }
}
