//! `freehold put`: a file as it is, or the tensors of a safetensors file as a set.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use freehold::Stream;
use freehold_broker::Policy;
use freehold_broker::tensors::{SafetensorsFile, TensorHasher, TensorWriter};
use indicatif::ProgressBar;

use super::remote::RemoteOptions;
use super::transfer::{self, PutArguments};
use super::{Failure, names};
use crate::output::size;
use crate::output::text::count;

/// How much is read and copied at once.
const PIECE_BYTES: usize = 16 << 20;

/// Threads that read and hash. Each has two pieces: one is copied to the device while it reads the other.
const READERS_MAX: usize = 8;

pub(crate) fn run(arguments: &PutArguments, remote_options: &RemoteOptions) -> ExitCode {
    super::exit_code(match &arguments.set {
        None => transfer::put_file(arguments, remote_options),
        Some(name) => put_set(arguments, name, remote_options),
    })
}

fn put_set(arguments: &PutArguments, name: &str, remote_options: &RemoteOptions) -> Result<(), Failure> {
    let began = Instant::now();
    let (path, name) = (arguments.what.only_file()?, names::parse_name(name)?);
    if remote_options.connect()?.is_some() {
        let sentence = "a set of tensors is published on the broker's machine: omit --at and FREEHOLD_AT";
        return Err(Failure::Wrong(sentence.to_owned()));
    }
    let (file, file_bytes) = transfer::open_regular(path)?;
    let read = SafetensorsFile::read(&file, file_bytes, Policy::Restore);
    let SafetensorsFile { manifest, starts } = read.map_err(|error| wrong_file(path, &error))?;
    match arguments.update {
        true => transfer::expect_named(&arguments.at, &name)?,
        false => transfer::expect_free(&arguments.at, &name, arguments.replace)?,
    }
    let (device, broker) = transfer::connect(&arguments.at, arguments.device.as_deref())?;
    let stream = device.new_stream()?;
    let tensors = manifest.tensors().len() as u64;
    let bytes: u64 = manifest.tensors().iter().map(|tensor| tensor.bytes).sum();
    let mut writer = match arguments.update {
        true => broker.update_tensors(&stream, name.as_str(), manifest)?,
        false => broker.create_tensors(&stream, name.as_str(), manifest)?,
    };
    let bar = if arguments.json { ProgressBar::hidden() } else { transfer::progress_bar(bytes) };
    fill(&mut writer, &stream, (path, &file, &starts), &bar)?;
    writer.verify(&stream)?;
    bar.finish_and_clear();
    // As late as possible: in between, the name does not exist.
    if arguments.replace {
        transfer::drop_old(&arguments.at, &name)?;
    }
    let generation = writer.publish(&stream)?;
    let took = began.elapsed();
    if arguments.json {
        return super::print_line(serde_json::json!({
            "name": name.as_str(), "bytes": bytes, "tensors": tensors, "generation": generation, "seconds": took.as_secs_f64()
        }));
    }
    super::print_line(format_args!(
        "{name}@{generation}: {}, {}, {:.2} s, {:.2} GB/s",
        size::format(bytes),
        count(tensors, "tensor"),
        took.as_secs_f64(),
        rate(bytes, took)
    ))
}

/// Returns 10^9 bytes per second.
fn rate(bytes: u64, took: Duration) -> f64 {
    bytes as f64 / 1e9 / took.as_secs_f64().max(1e-9)
}

fn wrong_file(path: &Path, error: &impl std::fmt::Display) -> Failure {
    Failure::Wrong(format!("{}: {error}", path.display()))
}

/// What a reader has for the thread that copies.
enum Finding {
    /// Bytes of a tensor, from this one on.
    Piece {
        tensor: usize,
        at: usize,
        bytes: Vec<u8>,
    },
    Hash {
        tensor: usize,
        hash: [u8; 32],
    },
    Failed(std::io::Error),
}

/// Reads tensors, each by one thread, and copies them to the device.
fn fill(
    writer: &mut TensorWriter,
    stream: &Stream,
    (path, file, starts): (&Path, &File, &[u64]),
    bar: &ProgressBar,
) -> Result<(), Failure> {
    let places: Vec<(u64, usize)> =
        starts.iter().zip(writer.manifest().tensors()).map(|(&start, tensor)| (start, tensor.bytes as usize)).collect();
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(READERS_MAX).min(places.len());
    let (next, (found, findings), (free, buffers)) = (AtomicUsize::new(0), channel(), channel());
    let largest = places.iter().map(|&(_, bytes)| bytes).max().unwrap_or(0).min(PIECE_BYTES);
    for _ in 0..2 * threads {
        free.send(vec![0; largest]).expect("the receiver is below");
    }
    let buffers = Mutex::new(buffers);
    std::thread::scope(|scope| {
        let (places, next, buffers) = (&places, &next, &buffers);
        for _ in 0..threads {
            let found = found.clone();
            scope.spawn(move || read_tensors(file, places, next, buffers, &found));
        }
        // The readers end when there is nobody to read for: both ends are dropped with this closure.
        let (free, findings) = (free, findings);
        drop(found);
        copy_findings(writer, stream, path, &findings, &free, bar)
    })
}

/// Reads and hashes tensors until none is left, or nobody listens.
fn read_tensors(
    file: &File,
    places: &[(u64, usize)],
    next: &AtomicUsize,
    buffers: &Mutex<Receiver<Vec<u8>>>,
    found: &Sender<Finding>,
) {
    loop {
        let tensor = next.fetch_add(1, Ordering::Relaxed);
        let Some(&(start, length)) = places.get(tensor) else { return };
        let mut hasher = TensorHasher::new();
        let mut at = 0;
        while at < length {
            let Ok(mut bytes) = buffers.lock().unwrap_or_else(PoisonError::into_inner).recv() else { return };
            bytes.resize(PIECE_BYTES.min(length - at), 0);
            if let Err(error) = file.read_exact_at(&mut bytes, start + at as u64) {
                let _ = found.send(Finding::Failed(error));
                return;
            }
            hasher.update(&bytes);
            let read = bytes.len();
            if found.send(Finding::Piece { tensor, at, bytes }).is_err() {
                return;
            }
            at += read;
        }
        if found.send(Finding::Hash { tensor, hash: hasher.finish() }).is_err() {
            return;
        }
    }
}

fn copy_findings(
    writer: &mut TensorWriter,
    stream: &Stream,
    path: &Path,
    findings: &Receiver<Finding>,
    free: &Sender<Vec<u8>>,
    bar: &ProgressBar,
) -> Result<(), Failure> {
    for finding in findings {
        match finding {
            Finding::Piece { tensor, at, bytes } => {
                stream.write(&mut writer.view_mut(tensor, at..at + bytes.len())?, &bytes)?;
                bar.inc(bytes.len() as u64);
                // Without readers, nobody needs it.
                let _ = free.send(bytes);
            }
            Finding::Hash { tensor, hash } => writer.set_hash(tensor, hash),
            Finding::Failed(error) => return Err(wrong_file(path, &error)),
        }
    }
    Ok(())
}
