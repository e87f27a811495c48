//! `freehold put`: a file as it is, or the tensors of a safetensors file as a set.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use freehold_broker::Policy;
use freehold_broker::tensors::{SafetensorsFile, TensorError};
use indicatif::ProgressBar;

use super::remote::RemoteOptions;
use super::transfer::{self, PutArguments};
use super::{Failure, names};
use crate::output::size;
use crate::output::text::count;

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
    writer.fill(&stream, &file, &starts, |bytes| bar.inc(bytes)).map_err(|error| match error {
        TensorError::Io(error) => wrong_file(path, &error),
        error => error.into(),
    })?;
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
