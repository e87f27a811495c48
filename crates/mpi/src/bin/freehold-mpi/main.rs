//! `freehold-mpi`: which path device memory takes through MPI here, and what it costs. `freehold mpi` starts it.

mod bench;
mod demo;
mod raw_mpi;
mod report;

use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};
use freehold_mpi::{PathChoice, World};

/// Device buffers through MPI: which path they take here, and why.
///
/// Started by mpirun, as every rank; alone it is the only one. FREEHOLD_MPI=direct or staged forces a path.
#[derive(Parser)]
#[command(name = "freehold mpi", version)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// The device: soft, cuda or cuda:N; without it FREEHOLD_DEVICE, or an NVIDIA GPU if there is one
    #[arg(long, global = true)]
    device: Option<String>,
    /// Print one JSON object, with times in nanoseconds
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand)]
enum Command {
    /// Measure latency and bandwidth from 1 B to 256 MiB, beside raw MPI_Send in the same run; with 2 ranks or more
    ///
    /// Example: mpirun -n 2 freehold mpi bench
    Bench(bench::Arguments),
    /// Try anew, in processes that may die of it, whether the library takes device memory, and tell all that was tried and said
    ///
    /// Example: mpirun -n 2 freehold mpi probe
    Probe,
    /// Compute heat on a mesh that refines itself, with ranks for workers
    ///
    /// Example: mpirun -n 4 freehold demo --mpi
    Demo(demo::Arguments),
    /// Give device memory to the library, and live or die
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

/// Why the command did not do what it was to: 2 if it was called wrongly, 1 else.
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

/// What came of a command, and of the end of MPI behind it. After a failure the world is dropped, which tells nobody.
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

/// Tells the whole story of a probe, which the first rank makes while the others wait.
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
    // A process that dies of this leaves nothing behind.
    let none = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
    if let Err(error) = rustix::process::setrlimit(rustix::process::Resource::Core, none) {
        eprintln!("a core may be left behind: {error}");
    }
    let device = freehold::open::device(arguments.device.as_deref())?;
    let tried = match what {
        What::Messages => freehold_mpi::ProbeKind::Messages,
        What::Reductions => freehold_mpi::ProbeKind::Reductions,
    };
    Ok(freehold_mpi::try_here(tried, &device)?)
}
