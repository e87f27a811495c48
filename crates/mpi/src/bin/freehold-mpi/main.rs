//! `freehold-mpi`: shows which path device memory takes through MPI, and measures its cost. `freehold mpi` starts it.

mod bench;
mod demo;
mod raw_mpi;
mod report;

use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};
use freehold_mpi::{PathChoice, World};

/// Show which path device buffers take through MPI, and why
///
/// Started by mpirun, it runs as every rank; alone, as a single rank. FREEHOLD_MPI=direct, shared or staged forces a
/// path.
#[derive(Parser)]
#[command(name = "freehold mpi", version)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// Device: soft, cuda or cuda:N [default: FREEHOLD_DEVICE, else an NVIDIA GPU, else the software device]
    #[arg(long, global = true)]
    device: Option<String>,
    /// Print one JSON object, with times in nanoseconds
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand)]
enum Command {
    /// Measure latency and bandwidth from 1 B to 256 MiB, next to raw MPI_Send in the same run; needs 2 ranks
    ///
    /// Example: mpirun -n 2 freehold mpi bench
    Bench(bench::Arguments),
    /// Probe again, in child processes that may crash, whether the MPI library accepts device memory; print every
    /// attempt
    ///
    /// Example: mpirun -n 2 freehold mpi probe
    Probe,
    /// Solve a heat equation on an adaptive mesh, with ranks as workers
    ///
    /// Example: mpirun -n 4 freehold demo --mpi
    Demo(demo::Arguments),
    /// Pass device memory to the library: the child process of a probe
    #[command(hide = true)]
    Try { what: What },
}

#[derive(Clone, Copy, ValueEnum)]
enum What {
    Messages,
    Reductions,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = match &arguments.command {
        None => path(&arguments),
        Some(Command::Bench(bench)) => {
            world(&arguments).and_then(|world| close_world(bench::run(&world, bench, arguments.json), world))
        }
        Some(Command::Probe) => probe(&arguments),
        Some(Command::Try { what }) => run_probe_child(*what, &arguments),
        Some(Command::Demo(demo)) => {
            world(&arguments).and_then(|world| close_world(demo::run(&world, demo, arguments.json), world))
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {}", failure.message);
            ExitCode::from(failure.status)
        }
    }
}

/// Why the command failed: exit status 2 if it was called wrongly, else 1.
#[derive(Debug)]
struct Failure {
    message: String,
    status: u8,
}

impl Failure {
    fn from_call(said: String) -> Self {
        Self { message: said, status: 2 }
    }
}

impl From<freehold_mpi::Error> for Failure {
    fn from(error: freehold_mpi::Error) -> Self {
        use freehold_mpi::Error;
        let is_of_call = matches!(error, Error::UnknownPath { .. } | Error::Misconfigured { .. });
        Self { message: error.to_string(), status: if is_of_call { 2 } else { 1 } }
    }
}

impl From<freehold::Error> for Failure {
    fn from(error: freehold::Error) -> Self {
        let is_of_call = matches!(error, freehold::Error::Open(_));
        Self { message: error.to_string(), status: if is_of_call { 2 } else { 1 } }
    }
}

fn world(arguments: &Arguments) -> Result<World, Failure> {
    let device = freehold::open::device(arguments.device.as_deref())?;
    Ok(World::new(&device)?)
}

/// Closes the world after a command. After a failure the world is dropped instead, and its errors are not reported.
fn close_world(done: Result<(), Failure>, world: World) -> Result<(), Failure> {
    done?;
    Ok(world.close()?)
}

fn path(arguments: &Arguments) -> Result<(), Failure> {
    let world = world(arguments)?;
    if world.rank() == 0 {
        let PathChoice { transfers, collectives, reason: why } = world.path_choice();
        let (library, device) = (freehold_mpi::library(), world.device().name()?);
        if arguments.json {
            let report = serde_json::json!({
                "library": library,
                "device": device,
                "ranks": world.size(),
                "messages": transfers.name(),
                "collectives": collectives.name(),
                "why": why,
            });
            println!("{report}");
        } else {
            println!("library      {library}");
            println!("device       {device}");
            println!("ranks        {}", world.size());
            println!("messages     {}: {}", transfers.name(), transfers.description());
            println!("collectives  {}: {}", collectives.name(), collectives.description());
            println!("because      {why}");
        }
    }
    Ok(world.close()?)
}

/// Prints every attempt of a probe, which the first rank makes while the others wait.
fn probe(arguments: &Arguments) -> Result<(), Failure> {
    let world = world(arguments)?;
    if world.rank() == 0 {
        let probe = freehold_mpi::probe(world.device())?;
        if arguments.json {
            println!("{}", serde_json::to_string(&probe).expect("text becomes JSON"));
        } else {
            print!("{}", report::describe_probe(&probe));
        }
    }
    world.barrier()?;
    Ok(world.close()?)
}

fn run_probe_child(what: What, arguments: &Arguments) -> Result<(), Failure> {
    // A crash leaves no core file.
    let none = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
    if let Err(error) = rustix::process::setrlimit(rustix::process::Resource::Core, none) {
        eprintln!("warning: a crash may leave a core file: {error}");
    }
    let device = freehold::open::device(arguments.device.as_deref())?;
    let tried = match what {
        What::Messages => freehold_mpi::ProbeKind::Messages,
        What::Reductions => freehold_mpi::ProbeKind::Reductions,
    };
    Ok(freehold_mpi::try_here(tried, &device)?)
}
