//! The command `freehold`. It reads arguments, calls what does the work, and prints.
//!
//! # Modules, from bottom to top
//!
//! - `output`: text, sizes, tables, charts, progress. `help`: completions and manual pages.
//! - `broker`: `serve` and the commands that talk to a broker, here or over gRPC (`remote`). `remote_server` keeps the gRPC
//!   server running.
//! - `devices`, `run` (becomes a CUDA program on the software driver; as `ptxas`, its assembler), `mpi` (starts `freehold-mpi`).
//! - `check`: a program on the software device as a child process, and the reports of what it found.
//! - `allocators` (what benchmarks and replays measure), `ephemeral` (a broker that a benchmark or the demo starts for itself).
//! - `lab`: questions to a driver, compared with a recorded H200.
//! - `bench`: Freehold measured beside the driver, in one run. `replay`: a recorded allocation log on several allocators.
//! - `demo`: the solver of `examples/mesh`, with pictures.
//!
//! No module imports one of a line below its own, so the commands that serve work without lab, benchmarks, replay and demo.
//!
//! # Invariants
//!
//! - An answer contains no address, handle or duration: it is the same on every run on one device.
//! - Reading a log for `replay` is pure, accepts any bytes, and uses memory in proportion to them.
//! - `bench` reports a missed target and still succeeds: benchmarks measure, tests judge.

use std::process::ExitCode;

use clap::parser::ValueSource;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

mod allocators;
mod bench;
mod broker;
mod check;
mod demo;
mod devices;
mod ephemeral;
mod help;
mod lab;
mod mpi;
mod output;
mod replay;
mod run;

use broker::remote::RemoteOptions;

/// The commands on one screen; the help of each command lists its options.
const SCREEN: &str = "\
GPU memory with an owner. Usage: freehold [OPTIONS] COMMAND

{subcommands}
COMMAND --help shows options and an example; --at URL selects a remote broker
";

/// GPU memory with an owner
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
    /// List devices: NVIDIA GPUs, the software device, OpenCL
    #[command(after_help = "Example: freehold devices")]
    Devices(devices::Arguments),
    /// Compare this machine's CUDA driver with a recorded H200
    #[command(after_help = "Example: freehold lab --only 2.1")]
    Lab(lab::Arguments),
    /// Run a CUDA program on the software device, or on a GPU
    ///
    /// The program's CUDA runtime is replaced with Freehold's. On the software device, its kernels need PTX: a program without
    /// it gets "no kernel image is available". CUDA_LOG_FILE=stderr shows why a kernel was refused or failed.
    #[command(after_help = "Example: freehold run --device soft -- ./saxpy")]
    Run(run::Arguments),
    /// Find races and memory errors of a CUDA program
    ///
    /// Runs the program on the software device. Reports on standard error which accesses of streams, of the host and of threads
    /// nothing orders, and wrong uses of memory, with their places in the program. The exit status is 1 if something was found,
    /// else that of the program.
    #[command(after_help = "Example: freehold check --html races.html -- ./saxpy")]
    Check(check::Arguments),
    /// Measure the library next to the driver
    #[command(after_help = "Example: freehold bench pool --quick")]
    Bench(bench::Arguments),
    /// Replay an allocation log on the pool and on the driver
    ///
    /// The log is a timeline recorded by Freehold, RMM's CSV log, PyTorch's memory snapshot, or a workload of `bench
    /// pool`. One thread replays its allocations and frees in order, each stream of the log on its own device stream,
    /// with no work in the streams. Reports the time of one operation, the peaks of live and of reserved memory, how
    /// many allocations failed, and anomalies in the log. For cuMemAlloc, reserved memory is the decrease of the
    /// device's free memory, which includes other processes.
    #[command(after_help = "Example: freehold replay snapshot.pickle --svg memory.svg")]
    Replay(replay::Arguments),
    /// Solve a heat equation on an adaptive mesh, in several processes
    ///
    /// A parent starts a broker and publishes the domain there; workers lease it in place and refine their own rows.
    /// One worker is killed on purpose and replaced. The field is identical, bit for bit, for any number of workers,
    /// with and without the kill, on a GPU and on the software device.
    #[command(after_help = "Example: freehold demo --size 512 --workers 4")]
    Demo(demo::Arguments),
    /// Show which path device buffers take through MPI, and measure it
    ///
    /// Starts the program freehold-mpi, which is built separately, on a machine with MPI: cargo build --release -p
    /// freehold-mpi
    #[command(after_help = "Example: mpirun -n 2 freehold mpi bench")]
    Mpi(mpi::Arguments),
    /// Run a broker, which keeps memory alive after its processes exit
    #[command(after_help = "Example: freehold serve --memory 8GiB")]
    Serve(broker::serve::Arguments),
    /// Stop the broker
    #[command(after_help = "Example: freehold stop --force")]
    Stop(broker::stop::Arguments),
    /// Publish a file in device memory, under a name
    ///
    /// With --as, the file is a safetensors file, and its tensors become a set that other processes lease by name, as
    /// arrays. They are read back and compared before the set appears; readers see all of it, or nothing.
    #[command(after_help = "Example: freehold put model/weights weights.bin")]
    Put(broker::transfer::PutArguments),
    /// Copy published memory to a file
    #[command(after_help = "Example: freehold get model/weights copy.bin")]
    Get(broker::transfer::GetArguments),
    /// List the names published at the broker
    #[command(after_help = "Example: freehold ls --json")]
    Ls(broker::ClientOptions),
    /// Remove a name; its memory is freed when the last lease ends
    #[command(after_help = "Example: freehold drop model/weights")]
    Drop(broker::DropArguments),
    /// Show memory that the broker has allocated, leased and published
    #[command(after_help = "Example: freehold --at https://host:7070 --token-file token totals")]
    Totals(broker::ClientOptions),
    /// Show or change a user's quota at the broker
    #[command(after_help = "Example: freehold quota 4GiB --user 1000")]
    Quota(broker::names::QuotaArguments),
    /// Publish, list and remove modules of kernels at the broker
    #[command(subcommand, after_help = "Example: freehold module put blas/saxpy saxpy.ptx")]
    Module(broker::modules::Command),
    /// Run a kernel in a worker of the broker, and wait for it
    #[command(
        after_help = "Example: freehold call blas/saxpy saxpy --grid 4096 --block 256 --arg lease:y --arg read:x \
                            --arg f32:2.0 --arg u32:1048576"
    )]
    Call(broker::call::Arguments),
    /// Show live who holds what at the broker; q quits
    #[command(after_help = "Example: freehold top --once")]
    Top(broker::top::Arguments),
    /// Print a shell completion script
    #[command(after_help = "Example: freehold completions bash > ~/.local/share/bash-completion/completions/freehold")]
    Completions(help::CompletionArguments),
    /// Write man pages for all commands to a folder
    #[command(after_help = "Example: freehold man ~/.local/share/man/man1")]
    Man(help::ManArguments),
    /// Print the help of a command
    #[command(hide = true, after_help = "Example: freehold help module put")]
    Help(help::HelpArguments),
    /// Internal: the other process of `bench share`
    #[command(hide = true)]
    SharePartner(bench::share::partner::Arguments),
    /// Internal: a worker of `demo`
    #[command(hide = true)]
    DemoWorker(demo::WorkerArguments),
    /// Internal: one of the processes of a broker
    #[command(hide = true)]
    Role(broker::serve::RoleArguments),
    /// Internal: the gRPC server of a broker
    #[command(hide = true)]
    RemoteServer(broker::remote_server::RemoteServerArguments),
    /// Internal: run one experiment and print its answer
    #[command(hide = true)]
    Experiment(freehold_lab::child::Arguments),
    /// Internal: the other process of an experiment, controlled through standard input
    #[command(hide = true)]
    Partner(freehold_lab::child::Device),
}

/// The options of a remote broker that a command has, by its name. All commands accept all of them: what a command has
/// no use for is not in its help, and refused if it is given.
fn shown_remote_options(command: &str) -> &'static [&'static str] {
    match command {
        "put" | "get" | "ls" | "drop" | "totals" | "module" | "call" | "demo" => &["at", "token_file", "ca"],
        // The token is that of its own clients.
        "serve" => &["token_file"],
        _ => &[],
    }
}

/// Returns the declared commands, with only those options in their help that they use.
pub(crate) fn command() -> clap::Command {
    let mut all = Arguments::command();
    let global: Vec<clap::Arg> = all.get_arguments().filter(|option| option.is_global_set()).cloned().collect();
    let names: Vec<String> = all.get_subcommands().map(|command| command.get_name().to_owned()).collect();
    for name in names {
        let shown = shown_remote_options(&name);
        let hidden = global.iter().filter(|option| !shown.contains(&option.get_id().as_str()));
        let hidden: Vec<clap::Arg> = hidden.map(|option| option.clone().hide(true)).collect();
        all = all.mut_subcommand(name, |command| command.args(hidden));
    }
    all
}

impl Command {
    /// Returns whether the command works with a remote broker.
    fn supports_remote(&self) -> bool {
        match self {
            Self::Put(_) | Self::Get(_) | Self::Ls(_) | Self::Drop(_) => true,
            Self::Totals(_) | Self::Module(_) | Self::Call(_) => true,
            Self::Demo(arguments) => arguments.is_remote(),
            _ => false,
        }
    }

    /// Says which option has no effect because of where the broker is.
    fn without_effect(&self, remote_options: &RemoteOptions, found: &clap::ArgMatches) -> Option<String> {
        let is_given = |id: &str| is_on_command_line(found, id);
        if self.supports_remote() && remote_options.is_set() {
            let local: &[&str] = match self {
                Self::Put(_) | Self::Get(_) => &["socket", "device"],
                Self::Call(_) => &["socket", "share"],
                _ => &["socket"],
            };
            let option = local.iter().find(|option| is_given(option))?;
            return Some(format!(
                "--{option} is for a broker on this machine, but --at or FREEHOLD_AT selects a remote one: omit one of them"
            ));
        }
        let has_token = matches!(self, Self::Serve(_));
        let remote = [("token_file", "--token-file"), ("ca", "--ca")];
        let (_, option) = remote.into_iter().find(|(id, _)| is_given(id) && !(has_token && *id == "token_file"))?;
        Some(match has_token {
            true => format!("{option} is for clients of a remote broker: give `serve` its certificate with --tls"),
            false => format!("{option} is for a remote broker: give its --at URL too, or omit {option}"),
        })
    }

    /// Returns whether the command needs a broker on this machine.
    fn is_local_only(&self) -> bool {
        matches!(self, Self::Stop(_) | Self::Quota(_) | Self::Top(_))
    }
}

/// Returns whether an option of a command, of its subcommand, or of all commands is on the command line.
fn is_on_command_line(found: &clap::ArgMatches, id: &str) -> bool {
    let has_it = found.ids().any(|known| known == id);
    let is_here = has_it && found.value_source(id) == Some(ValueSource::CommandLine);
    is_here || found.subcommand().is_some_and(|(_, within)| is_on_command_line(within, id))
}

fn main() -> ExitCode {
    if run::ptxas::is_called() {
        return run::ptxas::run();
    }
    let parsed = command().try_get_matches().and_then(|found| Ok((Arguments::from_arg_matches(&found)?, found)));
    let (Arguments { remote_options, command }, found) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => return help::report_parse_error(&error, crate::command()),
    };
    let is_meant = if command.is_local_only() { remote_options.is_set() } else { remote_options.is_on_command_line() };
    if is_meant && !command.supports_remote() {
        eprintln!(
            "error: this command does not work with a remote broker: omit --at and FREEHOLD_AT, or run it on the broker's \
             machine; put, get, ls, drop, totals, module, call and demo --remote do"
        );
        return ExitCode::from(2);
    }
    if let Some(sentence) = command.without_effect(&remote_options, &found) {
        eprintln!("error: {sentence}");
        return ExitCode::from(2);
    }
    match command {
        Command::Devices(arguments) => devices::run(&arguments),
        Command::Lab(arguments) => lab::run(&arguments),
        Command::Run(arguments) => run::run(&arguments),
        Command::Check(arguments) => check::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Replay(arguments) => replay::run(&arguments),
        Command::Demo(arguments) => demo::run(&arguments, &remote_options),
        Command::DemoWorker(arguments) => demo::worker(&arguments),
        Command::Mpi(arguments) => mpi::run(&arguments, crate::command()),
        Command::Serve(arguments) => broker::serve::run(&arguments, &remote_options),
        Command::Stop(arguments) => broker::stop::run(&arguments),
        Command::Put(arguments) => broker::put::run(&arguments, &remote_options),
        Command::Get(arguments) => broker::transfer::get(&arguments, &remote_options),
        Command::Ls(arguments) => broker::names::list(&arguments, &remote_options),
        Command::Drop(arguments) => broker::names::drop_name(&arguments, &remote_options),
        Command::Totals(arguments) => broker::names::totals(&arguments, &remote_options),
        Command::RemoteServer(arguments) => broker::remote_server::run(&arguments),
        Command::Quota(arguments) => broker::names::quota(&arguments),
        Command::Module(command) => broker::modules::run(&command, &remote_options),
        Command::Call(arguments) => broker::call::run(&arguments, &remote_options),
        Command::Top(arguments) => broker::top::run(&arguments),
        Command::Completions(arguments) => help::complete(&arguments, crate::command()),
        Command::Man(arguments) => help::write_man_pages(&arguments, crate::command()),
        Command::Help(arguments) => help::help(&arguments.words, crate::command()),
        Command::SharePartner(arguments) => bench::share::partner::run(&arguments),
        Command::Role(arguments) => broker::serve::role(&arguments),
        Command::Experiment(arguments) => freehold_lab::child::run(&arguments),
        Command::Partner(device) => freehold_lab::child::partner(&device),
    }
}
