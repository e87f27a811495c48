//! The steps of `cargo xtask check` and `cargo xtask test`: prepare (install, build), then run all cases at once.
//!
//! Preparation runs in two threads. The first builds in cargo's target folder, which only one cargo can use at a time;
//! at the same time, the second downloads and builds elsewhere.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use crate::command::{Failure, cargo, cargo_build, command, output, run, run_quiet};
use crate::cpu::Meter;
use crate::programs::{self, Kind, freehold};
use crate::runner::{self, Case, Outcome, Settings};
use crate::{
    apt, checked, corpus, cuda_programs, cudarc, dependencies, fuzz, grpc, headers, kernels, mpi, numba_cupy, opencl,
    publish, pycuda, torch, warm_path, wheel,
};

/// How much is run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tier {
    /// Before each commit.
    Check,
    /// Everything that must pass.
    Test,
}

impl Tier {
    fn effort(self) -> &'static str {
        match self {
            Self::Check => "quick",
            Self::Test => "moderate",
        }
    }
}

/// The time after which a case counts as hanging. The slowest takes three minutes with four others on each processor.
const CASE_LIMIT: Duration = Duration::from_secs(1800);

/// A preparation, and the cases that it yields.
struct Step {
    name: &'static str,
    prepare: fn() -> Result<Vec<Case>, Failure>,
}

const fn step(name: &'static str, prepare: fn() -> Result<Vec<Case>, Failure>) -> Step {
    Step { name, prepare }
}

const CHECK: &[Step] = &[
    step("formatting", formatting),
    step("lints", || no_cases(lints("freehold-mpi"))),
    step("tests", tests),
    step("doc tests", doc_tests),
];

/// Steps in cargo's target folder. What others need is built first.
const TEST: &[Step] = &[
    step("formatting", formatting),
    step("tests", tests),
    step("driver contract under other schedules", contract),
    step("examples", examples),
    step("benchmarks, once each", benches),
    step("lab", lab),
    step("OpenCL on PoCL", opencl::cases),
    step("Open MPI", mpi::open_mpi),
    step("lints", || no_cases(lints(""))),
    step("features", publish::features),
    step("documentation", documentation),
    step("doc tests", doc_tests),
    step("instruction counts", warm_path::cases),
    step("MPICH", mpi::mpich),
];

/// Steps elsewhere.
const BACKGROUND: &[Step] = &[
    step("Debian packages", || no_cases(apt::packages())),
    step("ptxas", kernels::cases),
    step("CUDA headers", headers::cases),
    step("licenses", dependencies::cases),
    step("packages", publish::packages),
    step("gRPC from Python", grpc::cases),
    step("fuzz targets", || fuzz::cases(Duration::from_secs(5))),
    step("cudarc", cudarc::cases),
    step("PyCUDA", pycuda::cases),
    step("Numba and CuPy", numba_cupy::cases),
    step("Python package", wheel::cases),
    step("PyTorch", torch::cases),
    step("CUDA programs", cuda_programs::cases),
    step("corpus of the checker", corpus::cases),
    step("programs under the checker", || checked::cases(checked::Extent::Short)),
];

/// Runs the steps of a tier whose names contain `only`, and fails if anything does.
pub(crate) fn run_all(tier: Tier, only: &str) -> Result<(), Failure> {
    let start = Instant::now();
    tools()?;
    let (foreground, background): (_, &[Step]) = match tier {
        Tier::Check => (CHECK, &[]),
        Tier::Test => (TEST, BACKGROUND),
    };
    let chosen = |steps: &'static [Step]| steps.iter().filter(|step| step.name.contains(only)).collect::<Vec<_>>();
    let (foreground, background) = (chosen(foreground), chosen(background));
    if foreground.is_empty() && background.is_empty() {
        return Err(format!("no step has a name that contains {only:?}"));
    }
    if !foreground.iter().any(|step| step.name == "tests") {
        // Every case runs a program of this repository, or another on top of it.
        programs::build()?;
    }
    let prepared = Prepared::default();
    thread::scope(|scope| {
        scope.spawn(|| background.iter().for_each(|step| prepared.add(step)));
        foreground.iter().for_each(|step| prepared.add(step));
    });
    let Prepared { cases, mut failures, used } = prepared;
    let cases = cases.into_inner().expect("no preparing thread panics");
    println!("\n== {} cases, at {} effort", cases.len(), tier.effort());
    let settings = Settings { effort: tier.effort(), limit: CASE_LIMIT, until: None };
    let report = runner::run(cases, &settings);
    print_used(used.into_inner().expect("no preparing thread panics"), &report.outcomes);
    report.print();
    println!("{:.0} s in all", start.elapsed().as_secs_f64());
    let failures = failures.get_mut().expect("no preparing thread panics");
    if report.failed() > 0 {
        failures.push(format!("{} cases failed; the commands above repeat them", report.failed()));
    }
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n")) }
}

/// The results of the preparation.
#[derive(Default)]
struct Prepared {
    cases: Mutex<Vec<Case>>,
    failures: Mutex<Vec<Failure>>,
    /// The processor time of each preparation.
    used: Mutex<Vec<(String, Duration)>>,
}

impl Prepared {
    fn add(&self, step: &Step) {
        let (start, meter) = (Instant::now(), Meter::default());
        println!("== {} ...", step.name);
        let outcome = meter.during(step.prepare);
        let took = start.elapsed().as_secs_f64();
        self.used.lock().expect("no preparing thread panics").push((step.name.to_owned(), meter.used()));
        match outcome {
            Ok(mut cases) => {
                // A case of a test program is counted under the program, unless the step runs it in another way.
                for case in cases.iter_mut().filter(|case| case.group.is_empty() || step.name != "tests") {
                    step.name.clone_into(&mut case.group);
                }
                let count = if cases.is_empty() { String::new() } else { format!(", {} cases", cases.len()) };
                println!("== {}: ready after {took:.0} s{count}", step.name);
                self.cases.lock().expect("no preparing thread panics").extend(cases);
            }
            Err(failure) => {
                println!("== {}: FAILED after {took:.0} s: {failure}", step.name);
                self.failures.lock().expect("no preparing thread panics").push(format!("{}: {failure}", step.name));
            }
        }
    }
}

/// Prints the processor time of the preparations and of the cases, the greatest first.
fn print_used(prepared: Vec<(String, Duration)>, outcomes: &[Outcome]) {
    let mut groups: BTreeMap<String, (Duration, Duration, usize)> = BTreeMap::new();
    for (name, used) in prepared {
        groups.entry(name).or_default().0 += used;
    }
    for outcome in outcomes {
        let (_, used, count) = groups.entry(outcome.group.clone()).or_default();
        (*used, *count) = (*used + outcome.used, *count + 1);
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|(_, (prepared, used, _))| Reverse(*prepared + *used));
    let total = |of: fn(&(Duration, Duration, usize)) -> Duration| -> Duration {
        groups.iter().map(|(_, used)| of(used)).sum()
    };
    let (prepared, used) = (total(|used| used.0), total(|used| used.1));
    println!("\nCPU seconds to prepare and to run:");
    println!("{:8.1} {:8.1}  in all", prepared.as_secs_f64(), used.as_secs_f64());
    for (name, (prepared, used, count)) in groups {
        let cases = if count == 0 { String::new() } else { format!(", {count} cases") };
        println!("{:8.1} {:8.1}  {name}{cases}", prepared.as_secs_f64(), used.as_secs_f64());
    }
}

fn no_cases(outcome: Result<(), Failure>) -> Result<Vec<Case>, Failure> {
    outcome.map(|()| Vec::new())
}

fn tools() -> Result<(), Failure> {
    for (tool, component) in [("fmt", "rustfmt"), ("clippy", "clippy")] {
        if run_quiet(&mut cargo(&[tool, "--version"])).is_err() {
            run(&mut command("rustup", &["component", "add", component]))?;
        }
    }
    Ok(())
}

fn formatting() -> Result<Vec<Case>, Failure> {
    run(&mut cargo(&["fmt", "--all", "--check"]))?;
    no_cases(run(&mut cargo(&["fmt", "--check", "--manifest-path", "fuzz/Cargo.toml"])))
}

/// Runs lints of all packages except `but`, if it is not empty.
fn lints(but: &str) -> Result<(), Failure> {
    let mut clippy = cargo_build(&["clippy", "--workspace", "--all-targets"]);
    if !but.is_empty() {
        clippy.args(["--exclude", but]);
    }
    run(clippy.args(["--", "-D", "warnings"]).env("MPICC", mpi::OPEN_MPI))
}

/// Returns every test of every test binary.
pub(crate) fn tests() -> Result<Vec<Case>, Failure> {
    let programs = programs::build()?;
    let mut cases = Vec::new();
    for program in programs.iter().filter(|program| program.kind == Kind::Test) {
        cases.extend(program.tests()?.iter().map(|test| program.case(test, &[])));
    }
    Ok(cases)
}

/// Returns the tests of the driver's contract under the schedules that the environment sets.
fn contract() -> Result<Vec<Case>, Failure> {
    let programs = programs::build()?;
    let program = programs::find(programs, "softcuda.contract")?;
    let mut cases = Vec::new();
    for schedule in ["eager", "seed:1"] {
        let tests = program.tests()?;
        cases.extend(tests.iter().map(|test| program.case(test, &[("FREEHOLD_SOFT_SCHEDULE", schedule)])));
    }
    Ok(cases)
}

/// Returns the numbered examples on the software device.
fn examples() -> Result<Vec<Case>, Failure> {
    let is_numbered = |name: &str| name.starts_with(|first: char| first.is_ascii_digit());
    let programs = programs::build()?;
    let examples = programs.iter().filter(|program| program.kind == Kind::Example && is_numbered(&program.name));
    let cases: Vec<_> = examples
        .map(|program| {
            let mut command = program.command();
            command.env("FREEHOLD_DEVICE", "soft");
            let again = format!("FREEHOLD_DEVICE=soft cargo run -p {} --example {}", program.package, program.target);
            Case::command(format!("example {}", program.name), again, command)
        })
        .collect();
    if cases.is_empty() { Err("cargo built no numbered example".to_owned()) } else { Ok(cases) }
}

fn benches() -> Result<Vec<Case>, Failure> {
    let programs = programs::build()?;
    let benches = programs.iter().filter(|program| program.kind == Kind::Bench);
    let cases = benches.map(|program| {
        let mut command = program.command();
        command.arg("--test");
        let again = format!("cargo test -p {} --bench {}", program.package, program.target);
        Case::command(format!("bench {}", program.name), again, command)
    });
    Ok(cases.collect())
}

fn lab() -> Result<Vec<Case>, Failure> {
    let mut lab = command(freehold(), &[]);
    lab.args(["lab", "--device", "soft"]);
    Ok(vec![Case::command("lab", "cargo run -- lab --device soft", lab)])
}

/// Documents all packages. Dependencies are checked by clippy, with the same words as for the lints: it has done so before.
fn documentation() -> Result<Vec<Case>, Failure> {
    let sysroot = output(&mut command("rustc", &["--print", "sysroot"]))?;
    let clippy = Path::new(sysroot.trim()).join("bin/clippy-driver");
    let mut doc = cargo_build(&["doc", "--workspace", "--no-deps"]);
    doc.env("RUSTC_WORKSPACE_WRAPPER", clippy).env("CLIPPY_ARGS", "-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__");
    no_cases(run(doc.env("RUSTDOCFLAGS", "-D warnings").env("MPICC", mpi::OPEN_MPI)))
}

/// One case: rustdoc compiles the tests while other cases run.
fn doc_tests() -> Result<Vec<Case>, Failure> {
    let words = ["test", "--quiet", "--workspace", "--exclude", "freehold-mpi", "--doc"];
    Ok(vec![Case::command("doc tests", format!("cargo {}", words.join(" ")), cargo(&words))])
}
