//! Programs that cargo builds, read from its messages, and the tests in them.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use serde_json::Value;

use crate::command::{Failure, cargo_build, output, target};
use crate::runner::Case;

/// A program that cargo built.
#[derive(Clone)]
pub(crate) struct Program {
    /// The folder of its package and its target, as in `softcuda.contract`; for a binary or an example only the target.
    pub(crate) name: String,
    pub(crate) package: String,
    pub(crate) target: String,
    pub(crate) kind: Kind,
    pub(crate) path: PathBuf,
    /// The folder of its package, where tests run.
    pub(crate) folder: PathBuf,
    /// The cargo arguments that select this program, as in `--test it`.
    pub(crate) cargo_args: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Binary,
    Test,
    Bench,
    Example,
}

impl Program {
    /// Returns a command for the program, in the folder where cargo would run it.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.current_dir(&self.folder);
        command
    }

    /// Returns the names of its tests.
    pub(crate) fn tests(&self) -> Result<Vec<String>, Failure> {
        let listed = output(self.command().args(["--list", "--format", "terse"]))?;
        Ok(listed.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
    }

    /// Returns a case that runs one of its tests in a process of its own, with environment variables.
    pub(crate) fn case(&self, test: &str, variables: &[(&str, &str)]) -> Case {
        let mut command = self.command();
        command.args(["--exact", test, "--nocapture"]).envs(variables.iter().copied());
        let set: String = variables.iter().map(|(name, value)| format!("{name}={value} ")).collect();
        let rerun = format!("{set}cargo test -p {} {} -- --exact {test} --nocapture", self.package, self.cargo_args);
        Case { group: self.name.clone(), ..Case::command(format!("{set}{} {test}", self.name), rerun, command) }
    }
}

/// Returns the programs among cargo's messages.
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
        let base = folder.file_name()?.to_str()?;
        let kind = match in_test_mode {
            _ if is("bench") => Kind::Bench,
            true => Kind::Test,
            false if is("example") => Kind::Example,
            false => Kind::Binary,
        };
        let is_unit = is("lib") || is("cdylib") || is("bin");
        let choice = match kind {
            Kind::Test if is("bin") => format!("--bin {name}"),
            Kind::Test if is_unit => "--lib".to_owned(),
            Kind::Test => format!("--test {name}"),
            Kind::Bench => format!("--bench {name}"),
            Kind::Example => format!("--example {name}"),
            Kind::Binary => format!("--bin {name}"),
        };
        let program = match kind {
            Kind::Binary | Kind::Example => name.to_owned(),
            _ if is_unit => format!("{base}.unit"),
            _ => format!("{base}.{name}"),
        };
        let package = package(message.get("package_id")?.as_str()?).to_owned();
        Some(Program {
            name: program,
            package,
            target: name.to_owned(),
            kind,
            path,
            folder: folder.clone(),
            cargo_args: choice,
        })
    })
}

/// Returns the name in a package's id: `path+file:///here/crates/freehold#0.1.0` or
/// `path+file:///here/crates/cli#freehold-cli@0.1.0`.
fn package(id: &str) -> &str {
    let (path, version) = id.split_once('#').unwrap_or((id, ""));
    version.split_once('@').map_or_else(|| path.rsplit('/').next().unwrap_or(path), |(name, _)| name)
}

/// Builds all programs of the workspace except those for MPI, once. Steps use these: a package that is built alone has
/// dependencies with fewer features, and everything would be rebuilt.
pub(crate) fn build() -> Result<&'static [Program], Failure> {
    static BUILT: OnceLock<Result<Vec<Program>, Failure>> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        println!("== building all tests, examples and benchmarks ...");
        let build = |targets: &[&str]| {
            let mut build = cargo_build(&["test", "--workspace", "--exclude", "freehold-mpi", "--no-run"]);
            output(build.args(targets).arg("--message-format=json-render-diagnostics"))
        };
        // Requested separately: with all targets, examples would be built as tests.
        let messages = build(&[])? + &build(&["--bench", "*"])?;
        Ok(programs(&messages).collect())
    });
    built.as_deref().map_err(Clone::clone)
}

/// Returns the program with a name.
pub(crate) fn find<'p>(programs: &'p [Program], name: &str) -> Result<&'p Program, Failure> {
    programs.iter().find(|program| program.name == name).ok_or_else(|| format!("cargo built no {name}"))
}

/// Returns the path of the `freehold` binary.
pub(crate) fn freehold() -> PathBuf {
    target().join("debug/freehold")
}

/// Returns the path of the C library. It lies where cargo puts what a test needs: `cargo test` copies no library out of there.
pub(crate) fn library() -> PathBuf {
    target().join("debug/deps/libfreehold_capi.so")
}

#[cfg(test)]
mod tests {
    use super::package;

    #[test]
    fn a_package_is_called_as_its_folder_unless_its_id_says_otherwise() {
        assert_eq!(package("path+file:///here/crates/freehold#0.1.0"), "freehold");
        assert_eq!(package("path+file:///here/crates/cli#freehold-cli@0.1.0"), "freehold-cli");
    }
}
