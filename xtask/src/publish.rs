//! The steps of `cargo xtask test` for users of the crates: packages are complete, the oldest Rust that is promised is enough
//! for all dependencies, and each feature of the library compiles without the others. `cargo xtask soak` also compiles the packages,
//! and the crates with the oldest Rust.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::command::{Failure, cargo, cargo_build, command, output, root, run, run_quiet, target};
use crate::dependencies::fetch;
use crate::runner::Case;

/// Features of `freehold`. With all of them it is checked by the lints.
const FEATURES: &[&str] = &["", "soft", "opencl", "timeline"];

/// Checks the library with no feature and with each. Clippy does, because it has checked most of the dependencies for the lints.
pub(crate) fn features() -> Result<Vec<Case>, Failure> {
    for features in FEATURES {
        let mut check =
            cargo_build(&["clippy", "--package", "freehold", "--no-default-features", "--features", features]);
        run(check.args(["--", "-D", "warnings"]))?;
    }
    Ok(Vec::new())
}

/// Packages every crate that is published, in the order of their dependencies, and looks into the packages.
pub(crate) fn packages() -> Result<Vec<Case>, Failure> {
    fetch()?;
    Ok(vec![
        Case::call("packages", "cargo xtask test --only packages", package),
        Case::call("oldest Rust", "cargo xtask test --only packages", oldest_rust),
    ])
}

/// The cases of `cargo xtask soak`: each crate compiles from its package, and with the oldest Rust that is promised.
pub(crate) fn builds() -> Result<Vec<Case>, Failure> {
    fetch()?;
    let oldest = rust_version(&metadata(&["--no-deps"])?)?;
    // Elsewhere rustup may be missing, or its server.
    let has_oldest = run_quiet(&mut command("rustup", &["toolchain", "install", &oldest, "--profile", "minimal"]));
    let mut cases =
        vec![Case::call("build of packages", "cargo xtask soak --only 'build of packages'", build_packages)];
    match has_oldest {
        Ok(()) => {
            cases.push(Case::call(OLDEST, "cargo xtask soak --only 'build with the oldest Rust'", build_with_oldest))
        }
        Err(error) => {
            println!("warning: nothing is built with Rust {oldest}: {}", error.lines().last().unwrap_or_default())
        }
    }
    Ok(cases)
}

const OLDEST: &str = "build with the oldest Rust";

/// The names of the crates that are published, each after `--package`.
fn published_arguments(metadata: &Value) -> impl Iterator<Item = &str> {
    let names =
        packages_of(metadata).filter(|package| is_published(package)).filter_map(|package| package["name"].as_str());
    names.flat_map(|name| ["--package", name])
}

fn package() -> Result<(), Failure> {
    let metadata = metadata(&["--no-deps"])?;
    let folder = target().join("publish");
    // Cargo would compile the packages, which takes minutes: `build_packages` does that.
    let mut package = cargo(&["package", "--offline", "--no-verify", "--allow-dirty", "--quiet", "--target-dir"]);
    run_quiet(package.arg(&folder).args(published_arguments(&metadata)))?;
    for package in packages_of(&metadata).filter(|package| is_published(package)) {
        check_package(package, &folder.join("package"))?;
    }
    Ok(())
}

/// Compiles each package from what it contains. Cargo finds the packages that it depends on among them.
fn build_packages() -> Result<(), Failure> {
    let metadata = metadata(&["--no-deps"])?;
    let mut package = cargo(&["package", "--offline", "--allow-dirty", "--quiet", "--target-dir"]);
    run_quiet(package.arg(target().join("publish")).args(published_arguments(&metadata)))
}

/// Checks the published crates with the compiler that `rust-version` names.
fn build_with_oldest() -> Result<(), Failure> {
    let metadata = metadata(&["--no-deps"])?;
    let mut check = command(
        "rustup",
        &["run", &rust_version(&metadata)?, "cargo", "check", "--offline", "--quiet", "--target-dir"],
    );
    // Cargo has set them for this program: they name the newer one.
    check.env_remove("CARGO").env_remove("RUSTC").env_remove("RUSTUP_TOOLCHAIN");
    run_quiet(check.arg(target().join("oldest")).args(published_arguments(&metadata)))
}

fn rust_version(metadata: &Value) -> Result<String, Failure> {
    let ours = packages_of(metadata).find(|package| package["name"] == "freehold");
    let version = ours.and_then(|package| package["rust_version"].as_str());
    Ok(version.ok_or("freehold has no rust-version")?.to_owned())
}

fn is_published(package: &Value) -> bool {
    // A list of registries: an empty one is `publish = false`.
    package["publish"].as_array().is_none_or(|registries| !registries.is_empty())
}

/// What registries ask for, and what a package must have with it.
fn check_package(package: &Value, folder: &Path) -> Result<(), Failure> {
    let text = |key: &str| package[key].as_str().unwrap_or_default();
    let (name, version) = (text("name"), text("version"));
    for key in ["description", "license", "readme", "rust_version"] {
        if text(key).is_empty() {
            return Err(format!("{name} has no {key}"));
        }
    }
    for key in ["keywords", "categories"] {
        if package[key].as_array().is_none_or(Vec::is_empty) {
            return Err(format!("{name} has no {key}"));
        }
    }
    let archive = folder.join(format!("{name}-{version}.crate"));
    let listed = output(command("tar", &["-tzf"]).arg(&archive))?;
    let files: Vec<_> = listed.lines().filter_map(|line| line.split_once('/').map(|(_, file)| file)).collect();
    for wanted in ["Cargo.toml", "README.md", "LICENSE-APACHE", "LICENSE-MIT", "src/lib.rs"] {
        if !files.contains(&wanted) {
            return Err(format!("the package of {name} has no {wanted}"));
        }
    }
    Ok(())
}

/// `rust-version` is what the pages say, no dependency needs a newer one, and clippy, which refuses what is newer in the standard
/// library, has no other.
fn oldest_rust() -> Result<(), Failure> {
    let metadata = metadata(&[])?;
    let ours = &*rust_version(&metadata)?;
    for package in packages_of(&metadata) {
        let theirs = package["rust_version"].as_str().unwrap_or(ours);
        if package["source"].is_null() && theirs != ours {
            return Err(format!("{} has rust-version {theirs}, and freehold {ours}", package["name"]));
        }
        if numbers(theirs) > numbers(ours) {
            return Err(format!("{} needs Rust {theirs}, and rust-version is {ours}", package["name"]));
        }
    }
    let read = |path: &str| fs::read_to_string(root().join(path)).map_err(|error| format!("{path}: {error}"));
    if read("clippy.toml")?.contains("msrv") {
        return Err("clippy.toml has an msrv: clippy takes rust-version where it has none".to_owned());
    }
    for page in ["README.md", "CONTRIBUTING.md", "crates/freehold/README.md"] {
        if !read(page)?.contains(&format!("{ours} or newer")) {
            return Err(format!("{page} does not say \"{ours} or newer\", which is rust-version"));
        }
    }
    Ok(())
}

/// `1.88` and `1.88.0` are the same.
fn numbers(version: &str) -> [u32; 3] {
    let mut numbers = version.split('.').map(|part| part.parse().unwrap_or(0));
    std::array::from_fn(|_| numbers.next().unwrap_or(0))
}

fn metadata(arguments: &[&str]) -> Result<Value, Failure> {
    let printed = output(cargo(&["metadata", "--offline", "--format-version", "1"]).args(arguments))?;
    serde_json::from_str(&printed).map_err(|error| format!("cargo's metadata: {error}"))
}

fn packages_of(metadata: &Value) -> impl Iterator<Item = &Value> {
    metadata["packages"].as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::numbers;

    #[test]
    fn versions_are_compared_as_numbers() {
        assert_eq!(numbers("1.88"), numbers("1.88.0"));
        assert!(numbers("1.100") > numbers("1.91"));
    }
}
