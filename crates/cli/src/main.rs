//! The command `freehold`. It reads arguments, calls what does the work, and prints.
//!
//! # Modules, from bottom to top
//!
//! - `allocators` (what benchmarks and replays measure), `charts` (SVG), `help` (completions and manual pages).
//! - `broker`: `serve` and the commands that talk to a broker, here or over gRPC (`remote`). `remote_server` keeps the gRPC
//!   server running. `ephemeral` is a broker that a benchmark or the demo starts for itself.
//! - `devices`, `run` (becomes a CUDA program on the software driver), `mpi` (starts `freehold-mpi`).
//! - `lab`: questions to a driver, compared with a recorded H200.
//! - `bench`: Freehold measured beside the driver, in one run. `replay`: a recorded allocation log on several allocators.
//! - `demo`: the solver of `examples/mesh`, with pictures.
//!
//! # The lab
//!
//! An experiment is one function over a driver's table, with an id, a question and a short literal answer
//! (`lab/experiment/`). The binary starts itself again for each, so that none can affect another. `reference/h200.json` has
//! the answers of a GPU.
//!
//! - Pending work never depends on time: a stream or a kernel waits for a word, which the experiment writes (`lab/latch.rs`).
//! - Whether a call waits is decided by the CPU time of the experiment's threads (`lab/cpu_time.rs`), so a busy machine
//!   changes no answer.
//! - An experiment that needs another process starts a partner and sends it one driver call at a time
//!   (`lab/partner_request.rs`).
//! - With `--trace` every process logs each driver call before and after it (`lab/trace/`).
//!
//! # Invariants
//!
//! - An answer contains no address, handle or duration: it is the same on every run on one device.
//! - Reading a log for `replay` is pure, accepts any bytes, and uses memory in proportion to them.
//! - `bench` reports a missed target and still succeeds: benchmarks measure, tests judge.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod allocators;
mod bench;
mod broker;
mod charts;
mod demo;
mod devices;
mod help;
mod lab;
mod mpi;
mod replay;
mod run;

use broker::remote::RemoteOptions;

/// The commands on one screen; what each takes is told by its own help.
const SCREEN: &str = "\
GPU memory that has an owner. Usage: freehold [OPTIONS] COMMAND

{subcommands}

COMMAND --help says more, with an example; --at URL is a broker elsewhere
";

/// GPU memory that has an owner
#[derive(Parser)]
#[command(name = "freehold", version, arg_required_else_help = true, help_template = SCREEN)]
#[command(disable_help_subcommand = true)]
struct Arguments {
    #[command(flatten)]
    remote_options: RemoteOptions,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List the devices: NVIDIA's GPUs, the software device, OpenCL's
    #[command(after_help = "Example: freehold devices")]
    Devices(devices::Arguments),
    /// Say what this machine's driver does, beside what an H200 did
    #[command(after_help = "Example: freehold lab --only 2.1")]
    Lab(lab::Arguments),
    /// Run a CUDA program on the software device, or on a GPU
    #[command(after_help = "Example: freehold run --device soft -- python3 train.py --epochs 1")]
    Run(run::Arguments),
    /// Measure what the library costs beside the driver
    #[command(after_help = "Example: freehold bench pool --quick")]
    Bench(bench::Arguments),
    /// Replay a log of allocations on the pool and on the driver
    ///
    /// The log is a timeline that Freehold recorded, RMM's CSV log, PyTorch's memory snapshot, or a workload of `bench pool`. Its
    /// allocations and frees are played in their order by one thread, each stream of the log on its own stream of the device, with
    /// no work in the streams. Told are the time of one operation, the peaks of live and of reserved memory, and how many
    /// allocations were refused; and what was odd in the log. What cuMemAlloc reserves is what the device loses meanwhile, to
    /// other processes too.
    #[command(after_help = "Example: freehold replay snapshot.pickle --svg memory.svg")]
    Replay(replay::Arguments),
    /// Compute heat on a mesh that refines itself, in several processes
    ///
    /// A parent publishes the domain at a broker that it starts; workers lease it where it lies and refine their own rows. One of them
    /// is killed on purpose. The field is the same to the last bit for any number of workers, with the kill and without, on a GPU and
    /// on the software device.
    #[command(after_help = "Example: freehold demo --size 512 --workers 4")]
    Demo(demo::Arguments),
    /// Say which path device memory takes through MPI, and measure it
    ///
    /// Starts the program freehold-mpi, which is built apart, on a machine that has MPI: build it with cargo build --release
    /// --manifest-path crates/mpi/Cargo.toml
    #[command(after_help = "Example: mpirun -n 2 freehold mpi bench")]
    Mpi(mpi::Arguments),
    /// Be a broker, which keeps device memory beyond its processes
    #[command(after_help = "Example: freehold serve --memory 8GiB")]
    Serve(broker::serve::Arguments),
    /// End the broker, and its keeper with it
    #[command(after_help = "Example: freehold stop --force")]
    Stop(broker::stop::Arguments),
    /// Publish a file: it stays in device memory, under a name
    #[command(after_help = "Example: freehold put model/weights weights.bin")]
    Put(broker::transfer::PutArguments),
    /// Write what has a name to a file
    #[command(after_help = "Example: freehold get model/weights copy.bin")]
    Get(broker::transfer::GetArguments),
    /// List what is published at the broker
    #[command(after_help = "Example: freehold ls --json")]
    Ls(broker::names::ListArguments),
    /// Take a name away; its memory goes with the last lease of it
    #[command(after_help = "Example: freehold drop model/weights")]
    Drop(broker::names::DropArguments),
    /// Say how much memory the broker has made, leased and named
    #[command(after_help = "Example: freehold --at https://host:7070 --token-file token totals")]
    Totals(broker::names::TotalsArguments),
    /// Say what a user may have at the broker, or change it
    #[command(after_help = "Example: freehold quota 4GiB --user 1000")]
    Quota(broker::names::QuotaArguments),
    /// Keep modules of kernels at the broker, under names
    #[command(subcommand, after_help = "Example: freehold module put blas/saxpy saxpy.ptx")]
    Module(broker::modules::Command),
    /// Have a worker of the broker's run a kernel, and wait for it
    #[command(
        after_help = "Example: freehold call blas/saxpy saxpy --grid 4096 --block 256 --arg lease:y --arg read:x \
                            --arg f32:2.0 --arg u32:1048576"
    )]
    Call(broker::call::Arguments),
    /// Show who holds what at the broker, live; q leaves
    #[command(after_help = "Example: freehold top --once")]
    Top(broker::top::Arguments),
    /// Print what makes a shell complete these commands
    #[command(after_help = "Example: freehold completions bash > ~/.local/share/bash-completion/completions/freehold")]
    Completions(help::CompletionArguments),
    /// Write man pages of all commands into a folder
    #[command(after_help = "Example: freehold man ~/.local/share/man/man1")]
    Man(help::ManArguments),
    /// Print the help of a command
    #[command(hide = true, after_help = "Example: freehold help module put")]
    Help(help::HelpArguments),
    /// Be the other process of `bench share`
    #[command(hide = true)]
    SharePartner(bench::share::partner::Arguments),
    /// Be a worker of `demo`
    #[command(hide = true)]
    DemoWorker(demo::WorkerArguments),
    /// Be one of the processes of a broker
    #[command(hide = true)]
    Part(broker::serve::RoleArguments),
    /// Serve a broker to clients elsewhere
    #[command(hide = true)]
    Gate(broker::remote_server::RemoteServerArguments),
    /// Make one experiment and print its answer
    #[command(hide = true)]
    Experiment(lab::child::Arguments),
    /// Be the other process of an experiment, which speaks over standard input
    #[command(hide = true)]
    Partner(lab::child::Device),
}

impl Command {
    /// Whether it works on a broker elsewhere too.
    fn supports_remote(&self) -> bool {
        match self {
            Self::Put(_) | Self::Get(_) | Self::Ls(_) | Self::Drop(_) => true,
            Self::Totals(_) | Self::Module(_) | Self::Call(_) => true,
            Self::Demo(arguments) => arguments.is_remote(),
            _ => false,
        }
    }

    /// Whether it speaks to a broker, and to one of this machine alone.
    fn is_local_only(&self) -> bool {
        matches!(self, Self::Stop(_) | Self::Quota(_) | Self::Top(_))
    }
}

fn main() -> ExitCode {
    let Arguments { remote_options, command } = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return help::report_parse_error(&error),
    };
    let is_meant = if command.is_local_only() { remote_options.is_set() } else { remote_options.is_on_command_line() };
    if is_meant && !command.supports_remote() {
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
        Command::Demo(arguments) => demo::run(&arguments, &remote_options),
        Command::DemoWorker(arguments) => demo::worker(&arguments),
        Command::Mpi(arguments) => mpi::run(&arguments),
        Command::Serve(arguments) => broker::serve::run(&arguments, &remote_options),
        Command::Stop(arguments) => broker::stop::run(&arguments),
        Command::Put(arguments) => broker::transfer::put(&arguments, &remote_options),
        Command::Get(arguments) => broker::transfer::get(&arguments, &remote_options),
        Command::Ls(arguments) => broker::names::list(&arguments, &remote_options),
        Command::Drop(arguments) => broker::names::drop_name(&arguments, &remote_options),
        Command::Totals(arguments) => broker::names::totals(&arguments, &remote_options),
        Command::Gate(arguments) => broker::remote_server::run(&arguments),
        Command::Quota(arguments) => broker::names::quota(&arguments),
        Command::Module(command) => broker::modules::run(&command, &remote_options),
        Command::Call(arguments) => broker::call::run(&arguments, &remote_options),
        Command::Top(arguments) => broker::top::run(&arguments),
        Command::Completions(arguments) => help::complete(&arguments),
        Command::Man(arguments) => help::write_man_pages(&arguments),
        Command::Help(arguments) => help::help(&arguments.words),
        Command::SharePartner(arguments) => bench::share::partner::run(&arguments),
        Command::Part(arguments) => broker::serve::role(&arguments),
        Command::Experiment(arguments) => lab::child::run(&arguments),
        Command::Partner(device) => lab::child::partner(&device),
    }
}
