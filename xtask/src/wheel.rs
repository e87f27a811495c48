//! `cargo xtask wheel`: the Python package; and the step of `cargo xtask test` that installs it and runs its tests.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use crate::command::{Failure, cargo, command, outputs, root, run, run_quiet, target};
use crate::library;
use crate::numba_cupy;
use crate::pip::{Packages, install};
use crate::programs::{self, freehold};
use crate::runner::Case;

const MATURIN: Packages = Packages { folder: "maturin", names: &["maturin==1.16.0"] };

const PYTEST: Packages = Packages {
    folder: "pytest",
    names: &["pytest==9.2.0", "pluggy==1.7.0", "iniconfig==2.3.1", "packaging==26.3", "pygments==2.21.0"],
};

/// What the test with a Dask cluster needs beyond [`PYTEST`].
const DASK: Packages = Packages {
    folder: "dask",
    names: &[
        "dask==2026.8.0",
        "distributed==2026.8.0",
        "click==8.5.1",
        "cloudpickle==3.1.2",
        "fsspec==2026.9.0",
        "importlib_metadata==10.2.0",
        "jinja2==3.1.6",
        "lazy_importer==0.1.0",
        "locket==1.0.0",
        "markupsafe==3.0.4",
        "msgpack==1.2.4",
        "packaging==26.3",
        "partd==1.4.2",
        "psutil==7.2.2",
        "pyyaml==6.0.3",
        "sortedcontainers==2.4.0",
        "tblib==3.2.2",
        "toolz==1.2.0",
        "tornado==6.6.1",
        "zict==3.0.0",
        "zipp==4.1.2",
    ],
};

/// What the binaries need: glibc 2.34, as Debian 12, Ubuntu 22.04 and RHEL 9 have it.
const PLATFORM: &str = "manylinux_2_34";

/// The files of `python/tests`, and what they test.
const TESTS: &[(&str, &str)] = &[
    ("test_block.py", "blocks"),
    ("test_array.py", "arrays"),
    ("test_vector.py", "vectors"),
    ("test_cupy.py", "CuPy"),
    ("test_numba.py", "Numba"),
    ("test_cuda_core.py", "cuda.core"),
    ("test_broker.py", "leases"),
    ("test_dask.py", "leases in a Dask cluster"),
    ("test_ci_example.py", "the example for GitHub Actions"),
    ("test_plot.py", "pictures of memory"),
    ("test_pytest_plugin.py", "the plug-in of pytest"),
    ("test_torch_module.py", "errors of freehold.torch"),
];

/// Builds the wheel from release binaries, and prints where it is.
pub(crate) fn make() -> Result<(), Failure> {
    run(&mut cargo(&["build", "--release", "--package", "freehold-cli"]))?;
    build_extensions()?;
    let library = library::make(&[])?;
    build(&target().join("release/freehold"), &library.object, "deflated")?;
    println!("{}", built()?.display());
    Ok(())
}

/// What compiles the extensions for a PyTorch into the package.
pub(crate) const EXTENSIONS: &str = "python/build_extensions.py";

/// Builds the extensions for the PyTorch that the Python in `FREEHOLD_TORCH_PYTHON`, or `python3`, has, if it has one. A
/// wheel has the files of all versions that were built before, each for its PyTorch.
fn build_extensions() -> Result<(), Failure> {
    let python = env::var_os("FREEHOLD_TORCH_PYTHON").unwrap_or_else(|| "python3".into());
    let asked = outputs(command(&python, &["-c", "import torch; assert torch.version.cuda"]).stderr(Stdio::null()));
    if !asked.is_ok_and(|asked| asked.status.success()) {
        let python = python.display();
        eprintln!("{python} has no PyTorch with CUDA, so nothing is compiled for it: set FREEHOLD_TORCH_PYTHON");
        return Ok(());
    }
    run(&mut command(&python, &[EXTENSIONS]))
}

/// Puts the binaries into the package, and builds the wheel.
fn build(program: &Path, library: &Path, compression: &str) -> Result<(), Failure> {
    let package = root().join("python");
    let (libraries, scripts) = (package.join("freehold/lib"), package.join("freehold.data/scripts"));
    stripped(library, &libraries, "libfreehold.so")?;
    stripped(program, &scripts, "freehold")?;
    let include = package.join("freehold/include");
    copied(&root().join("crates/capi/include/freehold.h"), &include, "freehold.h")?;
    copied(&root().join("crates/check/include/freehold/check.h"), &include.join("freehold"), "check.h")?;
    let folder = target().join("wheel");
    let out = dist();
    // A wheel of another version would be taken for the new one.
    remove(&out)?;
    let packages = install(&MATURIN)?;
    let mut maturin = command(packages.join("bin/maturin"), &["build", "--release", "--quiet"]);
    // The package is audited here: its library lies within it, where maturin would put a second copy.
    maturin.args(["--auditwheel", "skip", "--compatibility", PLATFORM, "--compression-method", compression]);
    maturin.arg("--manifest-path").arg(package.join("Cargo.toml")).arg("--out").arg(&out);
    maturin.arg("--target-dir").arg(folder.join("target"));
    run(maturin.env("FREEHOLD_LIBRARY_DIR", &libraries))
}

fn dist() -> PathBuf {
    target().join("wheel/dist")
}

/// Returns the path of the wheel that was built last.
fn built() -> Result<PathBuf, Failure> {
    let out = dist();
    let mut wheels = fs::read_dir(&out).map_err(|error| format!("{} cannot be read: {error}", out.display()))?;
    let wheel = wheels.next().and_then(Result::ok).ok_or("maturin built no wheel")?;
    Ok(wheel.path())
}

/// Copies a file into a folder, which is created.
fn copied(from: &Path, folder: &Path, name: &str) -> Result<PathBuf, Failure> {
    let to = folder.join(name);
    fs::create_dir_all(folder)
        .and_then(|()| fs::copy(from, &to))
        .map_err(|error| format!("{} cannot be copied to {}: {error}", from.display(), to.display()))?;
    Ok(to)
}

/// Copies a program or a library without its symbols.
fn stripped(from: &Path, folder: &Path, name: &str) -> Result<(), Failure> {
    let to = copied(from, folder, name)?;
    run_quiet(command("strip", &[]).arg(to))
}

fn remove(folder: &Path) -> Result<(), Failure> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(format!("{} cannot be removed: {error}", folder.display()))
        }
        _ => Ok(()),
    }
}

/// Builds the wheel from the binaries of the tests, and installs it into a folder.
pub(crate) fn installed(folder: &str) -> Result<PathBuf, Failure> {
    // Two steps build it in the same folders.
    static BUILDING: Mutex<()> = Mutex::new(());
    let _building = BUILDING.lock();
    build(&freehold(), &programs::library(), "stored")?;
    let (wheel, site) = (built()?, target().join("wheel").join(folder));
    remove(&site)?;
    let mut pip = command("python3", &["-m", "pip", "install", "--quiet", "--no-deps", "--no-compile", "--target"]);
    run(pip.arg(&site).arg(&wheel))?;
    Ok(site)
}

/// Installs pytest, and returns its folder.
pub(crate) fn pytest() -> Result<PathBuf, Failure> {
    install(&PYTEST)
}

/// Lets Python keep what it compiles, outside of the packages: to import PyTorch takes three times as long without.
pub(crate) fn keep_bytecode(python: &mut Command) {
    python.env_remove("PYTHONDONTWRITEBYTECODE").env("PYTHONPYCACHEPREFIX", target().join("wheel/bytecode"));
}

/// Installs the wheel, and returns a case for each file of tests.
pub(crate) fn cases() -> Result<Vec<Case>, Failure> {
    let site = installed("site")?;
    let (pytest, dask, others) = (pytest()?, install(&DASK)?, install(&numba_cupy::PACKAGES)?);
    let paths = env::join_paths([&site, &pytest, &dask]).map_err(|error| error.to_string())?;
    let (wheel, toolkit) = (built()?, others.join("nvidia/cu13"));
    let cases = TESTS.iter().map(|(file, name)| {
        let mut python = command(site.join("bin/freehold"), &["run", "--device", "soft", "--"]);
        python.args(["python3", "-m", "pytest", "-q", "-p", "no:cacheprovider"]).arg(format!("python/tests/{file}"));
        keep_bytecode(python.env("PYTHONPATH", &paths));
        python.env("FREEHOLD_TEST_PACKAGES", &others).env("FREEHOLD_WHEEL", &wheel);
        python.env("FREEHOLD_COMMAND", site.join("bin/freehold"));
        python.env("CUDA_PATH", &toolkit).env("LD_LIBRARY_PATH", toolkit.join("lib"));
        Case::command(*name, "cargo xtask test --only 'Python package'", python)
    });
    Ok(cases.collect())
}
