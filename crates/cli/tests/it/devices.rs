//! Programs of the CUDA runtime with a pool under their memory: on two devices, and with little memory. The programs are the C
//! files beside this one.

use crate::common;

use std::path::Path;
use std::process::{Command, Stdio};

use common::{binary, cache, output, runtime_program, text};

/// Returns what a program prints.
fn printed(program: &Path, variables: &[(&str, &str)]) -> String {
    let mut command = Command::new(binary());
    command.args(["run", "--device", "soft", "--"]).arg(program).envs(variables.iter().copied());
    let output = output(command.env("XDG_CACHE_HOME", cache()).stdin(Stdio::null()));
    assert_eq!((text(&output.stderr), output.status.code()), ("", Some(0)));
    text(&output.stdout).to_owned()
}

const COPIES: &str = "2 devices
copied: 11 11
read with the other device current: 11
enabled: 0, again: 704
disabled: 0, again: 705
written by the other device: 12
freed: 0, twice: 1
";

const REST: &str = "5120 blocks, 0 bytes wrong
the other device's: 20, freed: 1 0 1
the other device's: 20, freed: 1 0 1
the other device's: 20, freed: 1 0 1
";

#[test]
fn memory_of_two_devices_is_reused_after_the_work_of_both() {
    let program = runtime_program(Path::new("devices/two"), &[]);
    let two = ("FREEHOLD_SOFT_DEVICES", "2");
    let deferred = printed(&program, &[two, ("FREEHOLD_CUDAFREE", "deferred")]);
    assert_eq!(deferred, format!("{COPIES}not overwritten: 1\n{REST}"));
    for frees in ["driver", "synchronous"] {
        // Some of its work could not end before a free that waits for it.
        let waiting = printed(&program, &[two, ("FREEHOLD_CUDAFREE", frees), ("FREES_WAIT", "1")]);
        assert_eq!(waiting, format!("{COPIES}{REST}"), "{frees}");
    }
}

#[test]
fn an_allocation_waits_for_memory_that_a_stream_still_uses() {
    let program = runtime_program(Path::new("devices/short"), &[]);
    let printed = printed(&program, &[("FREEHOLD_SOFT_MEMORY", "256MiB"), ("FREEHOLD_CUDAFREE", "deferred")]);
    assert_eq!(printed, "the second stream waits: 1\n1 2\ncudaMalloc has waited: 1\n4\n");
}
