//! `freehold demo`: the solver of `examples/mesh`, in processes of this program, with its own broker.

mod field_image;
mod memory_chart;
mod merged_trace;
mod summary;

use std::ffi::OsString;
use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use freehold::Device;
use freehold::open::{self, Opened};
use freehold_broker::Gpu;
use freehold_mesh::parent::Run;
use freehold_mesh::plan::Plan;
use freehold_mesh::worker::Task;
use freehold_mesh::{digest, gpu_solver};
use freehold_remote::{Remote, Token};
use indicatif::ProgressBar;
use rustix::process::Signal;

use self::summary::{Files, Summary};
use crate::broker::owner::die_with;
use crate::broker::remote::RemoteOptions;
use crate::broker::{Failure, exit_code, print_line};
use crate::ephemeral::EphemeralBroker;
use crate::mpi;
use crate::output::progress;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Coarse cells along one side of the domain: a multiple of 32
    #[arg(long, value_name = "CELLS", default_value_t = Plan::DEMO.size, allow_negative_numbers = true, value_parser = parse_cells)]
    size: u32,
    /// Time steps
    #[arg(long, value_name = "COUNT", default_value_t = Plan::DEMO.steps, allow_negative_numbers = true, value_parser = parse_count)]
    steps: u32,
    /// Processes that share the domain, at most one for 32 cells of --size [default: 4, or fewer in a smaller domain]
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true, value_parser = parse_count)]
    workers: Option<u32>,
    /// Seed of the initial heat, of the paths of the hot discs, and of the kill
    #[arg(long, value_name = "NUMBER", default_value_t = Plan::DEMO.seed, allow_negative_numbers = true, value_parser = parse_seed)]
    seed: u64,
    /// The folder for field.png, memory.svg and trace.json
    #[arg(long, value_name = "FOLDER", default_value = "freehold-demo", conflicts_with = "mpi")]
    out: PathBuf,
    /// Do not kill a worker
    #[arg(long)]
    no_kill: bool,
    /// Compute with remote kernels through a gRPC server instead: one started on this machine, or the one at --at. Uses
    /// a single worker, which is not killed, and writes only field.png
    #[arg(long, conflicts_with_all = ["mpi", "workers"])]
    remote: bool,
    /// Compute as MPI ranks instead, started by mpirun; the ranks are the workers
    #[arg(long, conflicts_with = "workers")]
    mpi: bool,
    /// Device: soft, cuda or cuda:N [default: FREEHOLD_DEVICE, else an NVIDIA GPU, else the software device]
    #[arg(long)]
    device: Option<String>,
    /// Print one JSON object, with times in nanoseconds
    #[arg(long)]
    json: bool,
}

/// Arguments of a worker.
#[derive(clap::Args)]
pub(crate) struct WorkerArguments {
    /// The demo's process, with which the worker ends
    parent: u32,
    task: String,
}

pub(crate) fn run(arguments: &Arguments, remote_options: &RemoteOptions) -> ExitCode {
    if arguments.mpi {
        return mpi::exec(&arguments.rank_arguments());
    }
    exit_code(demo(arguments, remote_options))
}

/// Runs as a worker.
pub(crate) fn worker(arguments: &WorkerArguments) -> ExitCode {
    let Some(task) = Task::parse(&arguments.task) else {
        eprintln!("error: this command is internal: run `freehold demo`");
        return ExitCode::from(2);
    };
    if let Err(error) = die_with(arguments.parent, Signal::KILL) {
        return exit_code(Err(failed(error)));
    }
    exit_code(task.run(io::stdin().as_fd(), io::stdout()).map_err(failed))
}

fn parse_cells(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| "expected a multiple of 32 from 32 to 16384".to_owned())
}

fn parse_count(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("expected a number from 1 to {}", u32::MAX))
}

fn parse_seed(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("expected a number from 0 to {}", u64::MAX))
}

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::Failed(error.to_string())
}

impl Arguments {
    pub(crate) fn is_remote(&self) -> bool {
        self.remote
    }

    fn plan(&self) -> Plan {
        // A remote client has one worker.
        let rows_max = Plan { size: self.size, ..Plan::DEMO }.workers_max().max(1);
        let workers = if self.remote { 1 } else { self.workers.unwrap_or(Plan::DEMO.workers.min(rows_max)) };
        Plan { size: self.size, steps: self.steps, workers, seed: self.seed }
    }

    /// Returns the arguments of ranks. mpirun sets their number, and none is killed.
    fn rank_arguments(&self) -> Vec<OsString> {
        let mut words: Vec<OsString> = vec!["demo".into()];
        for (name, number) in [("size", u64::from(self.size)), ("steps", self.steps.into()), ("seed", self.seed)] {
            words.push(format!("--{name}={number}").into());
        }
        words.extend(self.device.iter().map(|device| format!("--device={device}").into()));
        words.extend(self.json.then(|| "--json".into()));
        words
    }
}

fn demo(arguments: &Arguments, place: &RemoteOptions) -> Result<(), Failure> {
    let plan = arguments.plan();
    plan.check().map_err(|error| Failure::Wrong(error.to_string()))?;
    // Rejects OpenCL devices, which brokers do not serve.
    // SAFETY: the driver is used only to create a device here.
    let opened = unsafe { open::open(arguments.device.as_deref()) };
    let Opened { api, device, .. } = opened.map_err(|error| Failure::Wrong(error.to_string()))?;
    fs::create_dir_all(&arguments.out).map_err(|error| {
        let folder = arguments.out.display();
        Failure::Wrong(format!("--out {folder}: {error}: expected a writable folder"))
    })?;
    // SAFETY: the table belongs to the opened driver, and the device stays open.
    let device = unsafe { Device::new(api, device) }?;
    let (figures, files) =
        if arguments.remote { run_remote(arguments, place, &device)? } else { run_local(arguments, &device)? };
    let said = if arguments.json {
        print_line(serde_json::to_string(&figures).expect("a summary holds numbers and strings"))
    } else {
        print_line(figures.text().trim_end())
    };
    // A file that cannot be written does not prevent the others.
    let written: Vec<_> = files.iter().map(|(path, bytes)| write(path, bytes)).collect();
    if !figures.same {
        return Err(failed("the field differs from that of an undisturbed process"));
    }
    said.and(written.into_iter().collect())
}

/// Files to write, with their contents.
type PendingFiles = Vec<(PathBuf, Vec<u8>)>;

/// Runs in several processes on this machine.
fn run_local(arguments: &Arguments, device: &Device) -> Result<(Summary, PendingFiles), Failure> {
    let plan = arguments.plan();
    // Two generations, each of whole pages.
    let memory_bytes = 2 * (4 * plan.cells() as u64).next_multiple_of(2 << 20) + (4 << 20);
    let device_name = arguments.device.as_deref();
    let own = EphemeralBroker::start(&memory_bytes.to_string(), device_name, |_| {}).map_err(failed)?;
    let program = std::env::current_exe().map_err(failed)?;
    let (socket, kills, traces) = (own.socket(), !arguments.no_kill, Some(own.folder()));
    let run = Run { plan: &plan, device, device_name, socket: &socket, name: "mesh", kills, traces };
    let command = |task: &Task| {
        let mut command = Command::new(&program);
        command.arg("demo-worker").arg(std::process::id().to_string()).arg(task.word());
        command
    };
    let bar = progress_bar(u64::from(plan.epochs()) * u64::from(plan.workers), "workers compute");
    let outcome = run.run(command, |done| bar.set_position(done)).map_err(failed)?;
    bar.finish_and_clear();
    let merged = merged_trace::merge(own.folder(), &outcome.notes).map_err(failed)?;
    drop(own);
    let same = matches_single_process(device, &plan, &outcome.field)?;
    let files = Files::within(&arguments.out);
    let mut unwritten = vec![(files.field.clone(), field_image::png(&plan, &outcome.field, &outcome.refined))];
    let memory = memory_chart::svg(&plan, &outcome).map_err(failed)?.into_bytes();
    unwritten.extend(files.memory.clone().map(|path| (path, memory)));
    unwritten.extend(files.trace.clone().map(|path| (path, merged.text.clone().into_bytes())));
    let figures = Summary::of(&device.name()?, &plan, &outcome, &merged, same, files);
    Ok((figures.ok_or_else(|| failed("no worker reported anything"))?, unwritten))
}

/// Runs the kernels through a gRPC server, and downloads the field.
fn run_remote(
    arguments: &Arguments,
    place: &RemoteOptions,
    device: &Device,
) -> Result<(Summary, PendingFiles), Failure> {
    let plan = arguments.plan();
    let (_own, remote) = match place.connect()? {
        Some(remote) => (None, remote),
        None => {
            let (own, remote) = start_remote_broker(arguments, &plan)?;
            (Some(own), remote)
        }
    };
    let bar = progress_bar(plan.epochs().into(), "remote kernels");
    let began = Instant::now();
    let field = gpu_solver::solve(&remote.gpu(), &plan, |done| bar.set_position(done.into())).map_err(failed)?;
    let took_ns = began.elapsed().as_nanos() as u64;
    bar.finish_and_clear();
    let same = matches_single_process(device, &plan, &field)?;
    let path = arguments.out.join("field.png");
    let unwritten = vec![(path.clone(), field_image::png(&plan, &field, &[]))];
    let name = format!("{}, through gRPC", device.name()?);
    Ok((Summary::of_remote(name, &plan, &field, same, took_ns, path), unwritten))
}

/// Starts a private broker and gRPC server, with a random token.
fn start_remote_broker(arguments: &Arguments, plan: &Plan) -> Result<(EphemeralBroker, Remote), Failure> {
    let mut random = [0; 16];
    fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut random)).map_err(failed)?;
    let token: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    let memory = gpu_solver::memory_bytes(plan).to_string();
    let own = EphemeralBroker::start(&memory, arguments.device.as_deref(), |serve| {
        serve.args(["--listen", "127.0.0.1:0"]).env("FREEHOLD_TOKEN", &token);
    });
    let own = own.map_err(failed)?;
    let url = own.url.as_deref().expect("the broker was started with --listen");
    let remote = Remote::connect(url, &Token::parse(&token).expect("the token is valid"), None)?;
    Ok((own, remote))
}

/// Returns whether a single process without disturbance computes the same bits.
fn matches_single_process(device: &Device, plan: &Plan, field: &[f32]) -> Result<bool, Failure> {
    let bar = progress_bar(plan.epochs().into(), "single process, for comparison");
    let gpu = Gpu::on(device).map_err(failed)?;
    let alone = gpu_solver::solve(&gpu, plan, |done| bar.set_position(done.into())).map_err(failed)?;
    bar.finish_and_clear();
    Ok(digest(&alone) == digest(field))
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let failed = |error| failed(format_args!("{}: {error}: choose another folder with --out", path.display()));
    let mut file = fs::File::create(path).map_err(failed)?;
    file.write_all(bytes).map_err(|error| {
        // Removes an incomplete file. If that fails too, the file is visibly truncated.
        if file.metadata().is_ok_and(|found| found.is_file()) {
            let _ = fs::remove_file(path);
        }
        failed(error)
    })
}

fn progress_bar(count: u64, what: &'static str) -> ProgressBar {
    progress::bar(count, "{msg} {wide_bar} {pos}/{len} epochs, {elapsed}").with_message(what)
}
