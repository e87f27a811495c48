//! `freehold bench pool`: what allocation costs, over workloads that other programs can carry out too.

pub(crate) mod workload;

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use self::workload::{Workload, models};
use super::{BenchError, Result};

#[derive(clap::Args)]
pub(super) struct PoolArguments {
    /// Write the workloads into this folder, a file for each, for other programs to carry out
    #[arg(long, value_name = "DIR")]
    workloads: PathBuf,
}

pub(super) fn run(arguments: &PoolArguments) -> Result<String> {
    write_workloads(&arguments.workloads)
}

/// Writes a file for each workload, and says what was written.
fn write_workloads(folder: &Path) -> Result<String> {
    let unwritable = |path: &Path| {
        let path = path.to_owned();
        move |error: io::Error| BenchError::Unwritable { path, error }
    };
    fs::create_dir_all(folder).map_err(unwritable(folder))?;
    let mut said = String::new();
    for workload in models::all() {
        let path = folder.join(format!("{}.ops", workload.name));
        write_workload(&workload, &path).map_err(unwritable(&path))?;
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
