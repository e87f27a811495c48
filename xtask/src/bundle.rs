//! `cargo xtask bundle`: a folder to copy to a machine that has a GPU and no Rust.
//!
//! To make hardware records and GPU figures: build the bundle, copy it over, run `run.sh` in it, read `report/`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::command::{Failure, cargo, output, root};
use crate::library;
use crate::programs::{self, Kind, Program};

/// The maximum size. Compression reduces it to a third before it is copied.
const SIZE_MAX_BYTES: u64 = 128 << 20;

/// Cargo settings for programs in the bundle.
const STRIPPED: [(&str, &str); 2] =
    [("CARGO_PROFILE_RELEASE_STRIP", "symbols"), ("CARGO_PROFILE_BENCH_STRIP", "symbols")];

/// Folders of programs that are compiled or interpreted on the target, at the same paths as here.
const FOLDERS: [&str; 2] = ["bench/peers", "examples/python"];

/// Tests of the software driver alone do not need a GPU, and are left out. The script excludes more by their names.
fn needs_device(program: &Program) -> bool {
    program.name != "softcuda.soft"
        && !["ptx.", "libcuda.", "testing."].iter().any(|part| program.name.starts_with(part))
}

pub(crate) fn make(folder: &Path) -> Result<(), Failure> {
    let folder = root().join(folder);
    let told = |error: std::io::Error| format!("{} cannot be written: {error}", folder.display());
    if folder.exists() {
        // Only a bundle is removed: its script identifies it in its second line.
        let script = fs::read_to_string(folder.join("run.sh")).unwrap_or_default();
        if script.lines().nth(1) != include_str!("bundle.sh").lines().nth(1) {
            return Err(format!("{} exists and is not a bundle: name another folder", folder.display()));
        }
        fs::remove_dir_all(&folder).map_err(told)?;
    }
    let programs = build()?;
    let interface = library::make(&STRIPPED)?;
    for part in ["tests", "benches", "examples"] {
        fs::create_dir_all(folder.join(part)).map_err(told)?;
    }
    for program in &programs {
        let to = match program.kind {
            Kind::Binary => folder.join(&program.name),
            Kind::Test => folder.join("tests").join(&program.name),
            Kind::Bench => folder.join("benches").join(&program.name),
            Kind::Example => folder.join("examples").join(&program.name),
        };
        fs::copy(&program.path, &to).map_err(|error| format!("{} cannot be copied: {error}", to.display()))?;
    }
    for file in [&interface.object, &interface.header] {
        let to = folder.join(file.file_name().expect("a file has a name"));
        fs::copy(file, &to).map_err(told)?;
    }
    for part in FOLDERS {
        copy_files(&root().join(part), &folder.join(part)).map_err(told)?;
    }
    let script = folder.join("run.sh");
    fs::write(&script, include_str!("bundle.sh")).map_err(told)?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).map_err(told)?;
    let bytes = size(&folder).map_err(told)?;
    if bytes > SIZE_MAX_BYTES {
        return Err(format!("the bundle has {} MiB, more than {}", bytes >> 20, SIZE_MAX_BYTES >> 20));
    }
    println!("{}: {} programs, {} MiB; run.sh in it writes report/", folder.display(), programs.len(), bytes >> 20);
    Ok(())
}

/// Copies the files of a folder, with their permissions; not its subfolders.
fn copy_files(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            fs::copy(entry.path(), to.join(entry.file_name()))?;
        }
    }
    Ok(())
}

/// Builds everything stripped, and returns the programs.
fn build() -> Result<Vec<Program>, Failure> {
    let arguments = ["--release", "--message-format=json-render-diagnostics", "--package", "freehold-cli"];
    let binary = output(cargo(&["build"]).args(arguments).envs(STRIPPED))?;
    let tests = output(
        cargo(&["test", "--workspace", "--exclude", "xtask", "--release", "--no-run", "--tests"])
            .arg("--message-format=json-render-diagnostics")
            .envs(STRIPPED),
    )?;
    let benches = output(
        cargo(&["bench", "--workspace", "--no-run", "--benches", "--message-format=json-render-diagnostics"])
            .envs(STRIPPED),
    )?;
    let examples = output(
        cargo(&["build", "--release", "--package", "freehold", "--examples"])
            .arg("--message-format=json-render-diagnostics")
            .envs(STRIPPED),
    )?;
    let warm_path = output(
        cargo(&["build", "--release", "--package", "freehold-capi", "--bin", "warm_path", "--features", "warm-path"])
            .arg("--message-format=json-render-diagnostics")
            .envs(STRIPPED),
    )?;
    let mut programs: Vec<_> = programs::programs(&binary).filter(|program| program.kind == Kind::Binary).collect();
    programs.extend(programs::programs(&tests).filter(|program| program.kind == Kind::Test && needs_device(program)));
    programs.extend(programs::programs(&benches).filter(|program| program.kind == Kind::Bench));
    programs.extend(programs::programs(&examples).filter(|program| program.kind == Kind::Example));
    programs.extend(programs::programs(&warm_path).filter(|program| program.kind == Kind::Binary));
    Ok(programs)
}

fn size(folder: &Path) -> std::io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        bytes += if entry.file_type()?.is_dir() { size(&entry.path())? } else { entry.metadata()?.len() };
    }
    Ok(bytes)
}
