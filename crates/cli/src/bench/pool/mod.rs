//! `freehold bench pool`: the cost of allocation, on workloads that other programs can run too.
//!
//! This file owns the command.

mod chart;
mod growth;
mod opencl;
mod pairs;
mod passes;
mod plan;
mod report;
mod rig;
mod threads;
pub(crate) mod workload;

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use freehold::open;

use self::plan::{Effort, THREADS};
use self::rig::Rig;
use self::workload::{Workload, models};
use super::error::{BenchError, Result};
use crate::output::file::{OutputFile, WriteError};
use crate::output::table::TableStyle;
use crate::output::text::json;

/// The memory of the software device, and its size unless set: the workloads have up to 22 GiB live, and caching
/// allocators reserve more. Host memory is used only when touched, and allocating touches none.
const SOFT_MEMORY: &str = "FREEHOLD_SOFT_MEMORY";
const SOFT_MEMORY_ENOUGH: &str = "64GiB";

#[derive(clap::Args)]
pub(super) struct PoolArguments {
    /// Print one JSON object, with times in nanoseconds
    #[arg(long)]
    json: bool,
    /// Also draw the results as bar charts to this SVG file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Device: soft, cuda, cuda:N, opencl or opencl:N [default: FREEHOLD_DEVICE, else an NVIDIA GPU, else the software
    /// device]
    #[arg(long)]
    device: Option<String>,
    /// Measure only a few times: a check that it works, not a measurement
    #[arg(long)]
    quick: bool,
    /// Only write the workloads to this folder, one file each, for other programs
    #[arg(long, value_name = "DIR", conflicts_with_all = ["json", "svg", "device", "quick"])]
    workloads: Option<PathBuf>,
}

pub(super) fn run(arguments: &PoolArguments) -> Result<String> {
    if let Some(folder) = &arguments.workloads {
        return write_workloads(folder);
    }
    let opencl = open::opencl::open(arguments.device.as_deref());
    if let Ok(Some(opened)) = &opencl {
        return on_opencl(arguments, opened);
    }
    let picture = arguments.svg.as_deref().map(OutputFile::open).transpose()?;
    opencl?;
    if let Some(device) = &arguments.device {
        // SAFETY: this process has no other thread yet that could read the environment.
        unsafe { std::env::set_var(open::VARIABLE, device) };
    }
    if std::env::var_os(SOFT_MEMORY).is_none() {
        // SAFETY: as above, this process has no other thread yet.
        unsafe { std::env::set_var(SOFT_MEMORY, SOFT_MEMORY_ENOUGH) };
    }
    let rig = Rig::new(arguments.device.as_deref(), THREADS)?;
    let report = plan::measure(&rig, if arguments.quick { Effort::QUICK } else { Effort::FULL })?;
    if let Some(picture) = picture {
        picture.write(&chart::draw(&report))?;
    }
    Ok(if arguments.json { json(&report) } else { report.table(TableStyle::for_stdout()) })
}

fn on_opencl(arguments: &PoolArguments, opened: &open::opencl::Opened) -> Result<String> {
    if arguments.svg.is_some() {
        return Err(BenchError::NoPicture);
    }
    let effort = if arguments.quick { opencl::Effort::QUICK } else { opencl::Effort::FULL };
    let report = opencl::measure(opened, effort)?;
    Ok(if arguments.json { json(&report) } else { report.table(TableStyle::for_stdout()) })
}

/// Writes a file for each workload. Returns a summary.
fn write_workloads(folder: &Path) -> Result<String> {
    fs::create_dir_all(folder).map_err(WriteError::at(folder))?;
    let mut said = String::new();
    for workload in models::all() {
        let path = folder.join(format!("{}.ops", workload.name));
        write_workload(&workload, &path).map_err(WriteError::at(&path))?;
        let (ops, peak_bytes) = (workload.ops.len(), workload.peak_live_bytes());
        said.push_str(&format!("{}: {ops} operations, at most {peak_bytes} bytes live\n", path.display()));
    }
    Ok(said)
}

fn write_workload(workload: &Workload, path: &Path) -> io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    workload.write(&mut file)?;
    file.flush()
}
