//! `freehold replay`: a recorded log, replayed on Freehold's pool and on the driver's own allocators, in one run.
//!
//! This file owns the command. A log is read (`log`, and a module for each kind), converted to operations on blocks
//! (`history`), played on each allocator (`player`), and reported (`report`, `chart`). One thread plays the operations
//! in the log's order; each stream of the log is a device stream. The streams get no work, so only the allocators are
//! measured.

mod chart;
mod history;
mod log;
mod pickle;
mod player;
pub(crate) mod report;
mod rmm;
mod snapshot;
mod timeline;
mod workload;

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use freehold::open::{self, OpenError, Opened};
use freehold_driver::cuda::{Api, CUstream, DriverError, context, device, driver, primary, stream, stream_flags};

use self::log::{Log, LogError};
use self::player::{AllocatorResult, Player};
use self::report::Report;
use crate::allocators::{AsyncAllocator, DriverAllocator, Failure, FreeholdAllocator};
use crate::bench::pool::workload::Op;
use crate::output::file::{OutputFile, WriteError, is_dash};
use crate::output::progress;
use crate::output::size;
use crate::output::table::TableStyle;
use crate::output::text::{json, print};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The log: a timeline recorded by Freehold (Device::record), RMM's CSV log, PyTorch's memory snapshot
    /// (torch.cuda.memory._dump_snapshot, or the same as JSON), or a workload of `bench pool`; the format is recognized
    /// by content; - is standard input
    file: PathBuf,
    /// Print one JSON object, with times in nanoseconds
    #[arg(long)]
    json: bool,
    /// Draw live and reserved memory over the log to an SVG file, one panel per allocator
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Device: soft, cuda or cuda:N [default: FREEHOLD_DEVICE, else an NVIDIA GPU, else the software device]
    #[arg(long)]
    device: Option<String>,
    /// How many times to replay the log on each allocator: the first pass starts without cached memory, later ones
    /// reuse it
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = size::parse_count::<u32>(1..=u32::MAX.into()))]
    passes: u32,
}

/// Why nothing was replayed, or the report is not shown.
#[derive(Debug, thiserror::Error)]
enum ReplayError {
    #[error("{}: {error}", .path.display())]
    Read { path: PathBuf, error: io::Error },
    #[error("{}: {error}", .path.display())]
    Log { path: PathBuf, error: LogError },
    #[error(transparent)]
    Device(#[from] OpenError),
    #[error(transparent)]
    Library(#[from] freehold::Error),
    #[error(transparent)]
    Driver(#[from] DriverError),
    #[error(transparent)]
    Allocator(#[from] Failure),
    #[error(transparent)]
    Picture(#[from] WriteError),
    #[error("failed to print the report: {0}")]
    Print(io::Error),
}

type Result<T> = std::result::Result<T, ReplayError>;

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    match replay(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(if matches!(error, ReplayError::Print(_)) { 1 } else { 2 })
        }
    }
}

fn replay(arguments: &Arguments) -> Result<()> {
    let path = arguments.file.as_path();
    let (name, bytes) = read(path);
    let bytes = bytes.map_err(|error| ReplayError::Read { path: name.clone(), error })?;
    let log = log::read(&bytes).map_err(|error| ReplayError::Log { path: name.clone(), error })?;
    drop(bytes);
    if let Some(selector) = &arguments.device {
        // The C interface takes no device argument: it reads this variable.
        // SAFETY: this process has no other thread yet that could read the environment.
        unsafe { std::env::set_var(open::VARIABLE, selector) };
    }
    // SAFETY: the replay makes only the driver calls of its log, with memory and streams that it created.
    let opened = unsafe { open::open(arguments.device.as_deref()) }?;
    let picture = arguments.svg.as_deref().map(OutputFile::open).transpose()?;
    let allocators = play_all(&opened, &log, arguments.passes)?;
    let report = report(&name, &log, &opened, arguments.passes, allocators)?;
    if let Some(picture) = picture {
        picture.write(&chart::svg(&report).expect("drawing to memory cannot fail"))?;
    }
    let text = if arguments.json { json(&report) } else { report.table(TableStyle::for_stdout()) };
    print(text).map_err(ReplayError::Print)
}

/// Reads a file, or standard input. Returns its name for messages too.
fn read(path: &Path) -> (PathBuf, io::Result<Vec<u8>>) {
    if !is_dash(path) {
        return (path.to_owned(), fs::read(path));
    }
    let mut bytes = Vec::new();
    let outcome = io::stdin().lock().read_to_end(&mut bytes);
    ("standard input".into(), outcome.map(|_| bytes))
}

fn report(path: &Path, log: &Log, opened: &Opened, passes: u32, allocators: Vec<AllocatorResult>) -> Result<Report> {
    Ok(Report {
        file: path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned(),
        kind: log.kind,
        device: device::name(&opened.api, opened.device)?,
        driver: driver::version_text(driver::version(&opened.api)?),
        why: opened.why.clone(),
        sums: log.summary(),
        passes,
        allocators,
        oddities: log.history.oddities,
    })
}

/// Plays the log on each allocator in turn. None finds memory that another has cached.
fn play_all(opened: &Opened, log: &Log, passes: u32) -> Result<Vec<AllocatorResult>> {
    const ALLOCATORS: u64 = 3;
    let api = &opened.api;
    context::set_current(api, primary::retain(api, opened.device)?)?;
    let operations = log.history.ops.len() as u64 * u64::from(passes) * ALLOCATORS;
    let bar = progress::bar(operations, "{bar:30} {pos}/{len} {msg} {eta}");
    let synchronize = || context::synchronize(api);
    let streams = streams(api, log.history.streams)?;
    let player = Player::new(&log.history, &streams, passes, &bar);
    let ordered = AsyncAllocator::new(api, opened.device)?;
    let of_ordered = player.play(&ordered, synchronize)?;
    ordered.close()?;
    let of_plain = player.play(&DriverAllocator::new(api)?, synchronize)?;
    // Last, because the pool may keep its memory until the process ends.
    let ours = FreeholdAllocator::new(api, opened.device)?;
    let of_ours = player.play(&ours, synchronize)?;
    ours.close(&streams)?;
    bar.finish_and_clear();
    streams.into_iter().try_for_each(|one| stream::destroy(api, one))?;
    Ok(vec![of_ours, of_ordered, of_plain])
}

/// Creates a device stream for each stream of the log; the log's stream 0 is the default stream.
fn streams(api: &Api, count: u32) -> Result<Vec<CUstream>> {
    (0..count).map(|_| Ok(stream::create(api, stream_flags::NON_BLOCKING)?)).collect()
}
