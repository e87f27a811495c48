//! Programs that cargo builds, as its messages tell of them.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::command::{Failure, cargo, output};

/// A program that cargo built.
pub(crate) struct Program {
    /// The folder of its package and its target, as in `softcuda.memory`; of a binary or an example, the target alone.
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) path: PathBuf,
    /// Of its package: tests run there.
    folder: PathBuf,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Binary,
    Test,
    Bench,
    Example,
}

impl Program {
    /// The program, to be run where cargo would run it.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.current_dir(&self.folder);
        command
    }
}

/// The programs among cargo's messages.
pub(crate) fn programs(messages: &str) -> impl Iterator<Item = Program> + '_ {
    messages.lines().filter_map(|line| {
        let message: Value = serde_json::from_str(line).ok()?;
        let path = PathBuf::from(message.get("executable")?.as_str()?);
        let target = message.get("target")?;
        let name = target.get("name")?.as_str()?;
        let kinds = target.get("kind")?.as_array()?;
        let is = |kind: &str| kinds.iter().any(|have| have == kind);
        let in_test_mode = message.pointer("/profile/test")?.as_bool()?;
        let manifest = PathBuf::from(message.get("manifest_path")?.as_str()?);
        let folder = manifest.parent()?.to_owned();
        let package = folder.file_name()?.to_str()?;
        let kind = match in_test_mode {
            _ if is("bench") => Kind::Bench,
            true => Kind::Test,
            false if is("example") => Kind::Example,
            false => Kind::Binary,
        };
        let unit = is("lib") || is("bin");
        let name = match kind {
            Kind::Binary | Kind::Example => name.to_owned(),
            _ if unit => format!("{package}.unit"),
            _ => format!("{package}.{name}"),
        };
        Some(Program { name, kind, path, folder })
    })
}

/// All programs of `cargo test --workspace`, built where they are not yet. Steps take them from here: a package asked for by itself has
/// dependencies with fewer features, and everything would be built once more for it.
pub(crate) fn tested() -> Result<Vec<Program>, Failure> {
    let build = ["test", "--workspace", "--no-run", "--quiet", "--message-format=json-render-diagnostics"];
    Ok(programs(&output(&mut cargo(&build))?).collect())
}

/// The command line, as the tests have it.
pub(crate) fn freehold() -> Result<PathBuf, Failure> {
    let found = tested()?.into_iter().find(|program| program.kind == Kind::Binary && program.name == "freehold");
    Ok(found.ok_or("cargo built no freehold")?.path)
}
