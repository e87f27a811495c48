//! OpenCL on PoCL, which runs on any CPU: the backend, the library's contract, and the lab.

use crate::apt;
use crate::command::{Failure, command};
use crate::programs::{self, Program, freehold};
use crate::runner::Case;

/// How device memory is allocated.
const MEMORY_MODELS: [&str; 2] = ["svm", "buffers"];

/// Returns the tests of a program whose names contain a word, in one process, because PoCL takes long to start.
fn tests(program: &Program, word: &str, model: &str) -> Case {
    let mut command = program.command();
    let variables = [("FREEHOLD_DEVICE", "opencl"), ("FREEHOLD_OPENCL_MEMORY", model)];
    command.args([word, "--nocapture"]).envs(variables);
    let set = variables.map(|(name, value)| format!("{name}={value}")).join(" ");
    let again = format!("{set} cargo test -p {} {} {word}", program.package, program.cargo_args);
    Case::command(format!("PoCL {model} {} {word}", program.name), again, command)
}

pub(crate) fn cases() -> Result<Vec<Case>, Failure> {
    apt::packages()?;
    let programs = programs::build()?;
    let named = |name| programs::find(programs, name);
    let mut cases = vec![tests(named("driver.unit")?, "", "svm"), tests(named("driver.it")?, "opencl::", "svm")];
    for model in MEMORY_MODELS {
        cases.push(tests(named("freehold.it")?, "contract::", model));
    }
    let mut lab = command(freehold(), &[]);
    lab.args(["lab", "--device", "opencl"]);
    cases.push(Case::command("PoCL lab", "cargo run -- lab --device opencl", lab));
    Ok(cases)
}
