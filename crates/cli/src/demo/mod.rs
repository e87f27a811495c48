//! `freehold demo`: the solver of `examples/mesh`, in processes of this program, with a broker of its own.

mod field_image;
mod memory_chart;
mod merged_trace;
mod summary;

use std::ffi::OsString;
use std::fs;
use std::io::{self, IsTerminal, Read, Write};
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
use freehold_mesh::{anywhere, digest};
use freehold_remote::{Remote, Token};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rustix::process::Signal;

use self::summary::{Files, Summary};
use crate::broker::ephemeral::{EphemeralBroker, die_with};
use crate::broker::remote::RemoteOptions;
use crate::broker::{Failure, exit_code, print_line};
use crate::mpi;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Coarse cells along the edge of the domain: a multiple of 32
    #[arg(long, value_name = "CELLS", default_value_t = Plan::DEMO.size, allow_negative_numbers = true, value_parser = parse_cells)]
    size: u32,
    /// Steps of time
    #[arg(long, value_name = "COUNT", default_value_t = Plan::DEMO.steps, allow_negative_numbers = true, value_parser = parse_count)]
    steps: u32,
    /// Processes that share the domain
    #[arg(long, value_name = "COUNT", default_value_t = Plan::DEMO.workers, allow_negative_numbers = true, value_parser = parse_count)]
    workers: u32,
    /// The heat at the beginning, where hot discs move, and who is killed
    #[arg(long, value_name = "NUMBER", default_value_t = Plan::DEMO.seed, allow_negative_numbers = true, value_parser = parse_seed)]
    seed: u64,
    /// The folder for field.png, memory.svg and trace.json
    #[arg(long, value_name = "FOLDER", default_value = "freehold-demo")]
    out: PathBuf,
    /// Kill no worker
    #[arg(long)]
    no_kill: bool,
    /// Compute through a broker elsewhere instead, by remote kernels: a gate of this machine's, or the one that --at names. One
    /// client has one worker there, which is not killed; of the files field.png alone is written
    #[arg(long, conflicts_with_all = ["mpi", "workers"])]
    remote: bool,
    /// Compute as ranks of MPI instead, started by mpirun; the ranks are the workers
    #[arg(long, conflicts_with = "workers")]
    mpi: bool,
    /// The device: soft, cuda or cuda:N; without it FREEHOLD_DEVICE, or an NVIDIA GPU if there is one
    #[arg(long)]
    device: Option<String>,
    /// Print one JSON object, with times in nanoseconds
    #[arg(long)]
    json: bool,
}

/// What a worker has to know.
#[derive(clap::Args)]
pub(crate) struct WorkerArguments {
    /// The demo's process, with which it ends
    parent: u32,
    task: String,
}

pub(crate) fn run(arguments: &Arguments, remote_options: &RemoteOptions) -> ExitCode {
    if arguments.mpi {
        return mpi::exec(&arguments.rank_arguments());
    }
    exit_code(demo(arguments, remote_options))
}

/// Is a worker.
pub(crate) fn worker(arguments: &WorkerArguments) -> ExitCode {
    let Some(task) = Task::parse(&arguments.task) else {
        eprintln!("error: the demo starts its workers itself: say `freehold demo`");
        return ExitCode::from(2);
    };
    if let Err(error) = die_with(arguments.parent, Signal::KILL) {
        return exit_code(Err(failed(error)));
    }
    exit_code(task.run(io::stdin().as_fd(), io::stdout()).map_err(failed))
}

fn parse_cells(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| "say a multiple of 32 from 32 to 16384".to_owned())
}

fn parse_count(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("say a whole number from 1 to {}", u32::MAX))
}

fn parse_seed(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("say a whole number from 0 to {}", u64::MAX))
}

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::Failed(error.to_string())
}

impl Arguments {
    pub(crate) fn is_remote(&self) -> bool {
        self.remote
    }

    fn plan(&self) -> Plan {
        // A gate has one worker for one client.
        let workers = if self.remote { 1 } else { self.workers };
        Plan { size: self.size, steps: self.steps, workers, seed: self.seed }
    }

    /// Ranks are as many as mpirun says, and none is killed.
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
    // Not of OpenCL's, which no broker serves.
    // SAFETY: of the driver a device is made here, and nothing else.
    let opened = unsafe { open::open(arguments.device.as_deref()) };
    let Opened { api, device, .. } = opened.map_err(|error| Failure::Wrong(error.to_string()))?;
    fs::create_dir_all(&arguments.out).map_err(|error| {
        let folder = arguments.out.display();
        Failure::Wrong(format!("--out {folder}: {error}: name a folder that can be written to"))
    })?;
    // SAFETY: the table is the opened driver's, and what the library makes of it stays.
    let device = unsafe { Device::new(api, device) }?;
    let (figures, files) =
        if arguments.remote { run_remote(arguments, place, &device)? } else { run_local(arguments, &device)? };
    let said = if arguments.json {
        print_line(serde_json::to_string(&figures).expect("figures are numbers and text"))
    } else {
        print_line(figures.text().trim_end())
    };
    // What cannot be written takes nothing else away.
    let written: Vec<_> = files.iter().map(|(path, bytes)| write(path, bytes)).collect();
    if !figures.same {
        return Err(failed("the field differs from that of an undisturbed process"));
    }
    said.and(written.into_iter().collect())
}

/// Files to be, and what they are to hold.
type PendingFiles = Vec<(PathBuf, Vec<u8>)>;

/// In several processes of this machine.
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
    let mut unwritten =
        vec![(files.field.clone(), field_image::png(&plan, &outcome.field, &outcome.refined).map_err(failed)?)];
    let memory = memory_chart::svg(&plan, &outcome).map_err(failed)?.into_bytes();
    unwritten.extend(files.memory.clone().map(|path| (path, memory)));
    unwritten.extend(files.trace.clone().map(|path| (path, merged.text.clone().into_bytes())));
    let figures = Summary::of(&device.name()?, &plan, &outcome, &merged, same, files);
    Ok((figures.ok_or_else(|| failed("no worker told anything"))?, unwritten))
}

/// Through a gate: the kernels run there, and the field comes back.
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
    let bar = progress_bar(plan.epochs().into(), "kernels run elsewhere");
    let began = Instant::now();
    let field = anywhere::solve(&remote.gpu(), &plan, |done| bar.set_position(done.into())).map_err(failed)?;
    let took_ns = began.elapsed().as_nanos() as u64;
    bar.finish_and_clear();
    let same = matches_single_process(device, &plan, &field)?;
    let path = arguments.out.join("field.png");
    let unwritten = vec![(path.clone(), field_image::png(&plan, &field, &[]).map_err(failed)?)];
    let name = format!("{}, through a gate", device.name()?);
    Ok((Summary::of_remote(name, &plan, &field, same, took_ns, path), unwritten))
}

/// A broker and a gate of this command's own, which nobody else has the token of.
fn start_remote_broker(arguments: &Arguments, plan: &Plan) -> Result<(EphemeralBroker, Remote), Failure> {
    let mut random = [0; 16];
    fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut random)).map_err(failed)?;
    let token: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    let memory = anywhere::memory_bytes(plan).to_string();
    let own = EphemeralBroker::start(&memory, arguments.device.as_deref(), |serve| {
        serve.args(["--listen", "127.0.0.1:0"]).env("FREEHOLD_TOKEN", &token);
    });
    let own = own.map_err(failed)?;
    let url = own.url.as_deref().expect("it was told to listen");
    let remote = Remote::connect(url, &Token::parse(&token).expect("it was made so"), None)?;
    Ok((own, remote))
}

/// Whether one process alone, undisturbed, comes to the same bits.
fn matches_single_process(device: &Device, plan: &Plan, field: &[f32]) -> Result<bool, Failure> {
    let bar = progress_bar(plan.epochs().into(), "one process computes the same, undisturbed");
    let gpu = Gpu::on(device).map_err(failed)?;
    let alone = anywhere::solve(&gpu, plan, |done| bar.set_position(done.into())).map_err(failed)?;
    bar.finish_and_clear();
    Ok(digest(&alone) == digest(field))
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let failed = |error| failed(format_args!("{}: {error}: name another folder with --out", path.display()));
    let mut file = fs::File::create(path).map_err(failed)?;
    file.write_all(bytes).map_err(|error| {
        // Half a file is none; one that stays is seen to be cut.
        if file.metadata().is_ok_and(|found| found.is_file()) {
            let _ = fs::remove_file(path);
        }
        failed(error)
    })
}

/// For whoever looks on: on standard error where that is a terminal, and nothing elsewhere.
fn progress_bar(count: u64, what: &'static str) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} epochs, {elapsed}");
    let bar = ProgressBar::with_draw_target(Some(count), ProgressDrawTarget::stderr());
    bar.with_style(style.expect("the template is well formed")).with_message(what)
}
