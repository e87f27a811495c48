//! `freehold-mpi` from the command line: the path and its reason, the measurements, and errors for bad input. Does not
//! judge performance.

use crate::launcher;

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Output;

use launcher::{RankConfig, STAGED, Transport, launcher};
use serde_json::Value;

/// Runs the program as ranks, with an empty cache of probe results.
fn ran(ranks: u32, variables: &'static [(&str, &str)], words: &[&str]) -> Output {
    let wanted = RankConfig::new(ranks, Transport::Memory, variables);
    let mut command = launcher(&wanted);
    command.arg(env!("CARGO_BIN_EXE_freehold-mpi")).args(words);
    let cache = Cache::new();
    command.env("XDG_CACHE_HOME", &cache.0).output().unwrap()
}

struct Cache(PathBuf);

impl Cache {
    fn new() -> Self {
        let name = format!("freehold-mpi-{}-{:?}", std::process::id(), std::thread::current().id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn report(output: &Output) -> Value {
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_library_that_dies_of_device_memory_is_given_none() {
    let report = report(&ran(2, &[], &["--json"]));
    assert_eq!(report["ranks"], 2);
    // Both ranks share a machine and a device.
    assert_eq!((&report["messages"], &report["collectives"]), (&"shared".into(), &"staged".into()));
    let why = report["why"].as_str().unwrap();
    assert!(why.starts_with("sending device memory between two processes with "), "{why}");
    assert!(why.contains(" crashed: "), "{why}");
}

/// A rank's probe, with what the launcher inherits and finds.
#[test]
fn a_probe_reports_every_attempt_and_its_output() {
    // Open MPI's transports crash with such memory; MPICH's are not tested.
    let report = report(&ran(2, STAGED, &["probe", "--json"]));
    assert_eq!((&report["takes_messages"], &report["takes_reductions"]), (&false.into(), &false.into()));
    let attempts = report["attempts"].as_array().unwrap();
    assert_eq!(attempts.len(), 1, "{report}");
    assert!(attempts[0]["command"].as_str().unwrap().ends_with("/freehold-mpi try messages --device soft"), "{report}");
    assert!(attempts[0]["printed"].as_str().unwrap().contains("begun\n"), "{report}");
    assert!(attempts[0]["complained"].as_str().unwrap().contains("signal"), "{report}");
    let how = attempts[0]["ending"]["Died"].as_str().unwrap();
    assert!(how.starts_with("exit status: 139: ") && how.ends_with("on signal 11 (Segmentation fault)."), "{report}");
    assert!(report["why"].as_str().unwrap().ends_with(how), "{report}");
    let withheld = report["withheld"].as_array().unwrap();
    assert!(
        withheld.contains(&"OMPI_COMM_WORLD_RANK".into()) && !withheld.contains(&"OMPI_MCA_pml".into()),
        "{report}"
    );
}

/// If neither two processes nor one start, the reason names both, and the next run probes again.
#[test]
fn a_probe_that_does_not_start_reports_why_and_is_not_cached() {
    let cache = Cache::new();
    // The program under another name, next to one that has its name and fails.
    let (rank, refusing) = (cache.0.join("rank"), cache.0.join("freehold-mpi"));
    std::fs::copy(env!("CARGO_BIN_EXE_freehold-mpi"), &rank).unwrap();
    std::fs::write(&refusing, "#!/bin/sh\necho error: not today >&2\nexit 2\n").unwrap();
    std::fs::set_permissions(&refusing, PermissionsExt::from_mode(0o755)).unwrap();
    let mut command = launcher(&RankConfig::new(2, Transport::Memory, &[]));
    command.arg(rank).arg("--json");
    let report = report(&command.env("XDG_CACHE_HOME", &cache.0).output().unwrap());
    let why = report["why"].as_str().unwrap();
    assert!(why.starts_with("the probe did not start; see `freehold mpi probe`: two processes: exit "), "{why}");
    assert!(why.ends_with("; one process: exit status: 2: error: not today"), "{why}");
    assert!(!cache.0.join("freehold").exists(), "the result was cached");
}

/// A probe's processes use the device of the ranks, not the one in the environment.
#[test]
fn a_probe_tries_the_device_that_the_ranks_have() {
    let report = report(&ran(2, &[("FREEHOLD_DEVICE", "cuda:99")], &["--device", "soft", "--json"]));
    let why = report["why"].as_str().unwrap();
    assert!(why.starts_with("sending device memory between two processes with "), "{why}");
}

#[test]
fn memory_that_the_host_sees_goes_straight() {
    let report = report(&ran(2, &[("FREEHOLD_SOFT_COHERENT", "1")], &["--json"]));
    assert_eq!((&report["messages"], &report["collectives"]), (&"direct".into(), &"direct".into()));
    assert_eq!(report["why"], "the host can access device memory, so every MPI library can");
}

#[test]
fn a_forced_path_is_reported() {
    let output = ran(2, STAGED, &[]);
    let said = text(&output.stdout);
    assert!(said.contains("messages     staged: in chunks through pinned host memory\n"), "{said}");
    assert!(said.contains("because      forced by FREEHOLD_MPI=staged\n"), "{said}");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn an_unknown_path_is_a_usage_error() {
    let output = ran(1, &[("FREEHOLD_MPI", "fast")], &[]);
    assert!(text(&output.stderr).contains("error: FREEHOLD_MPI is 'fast': expected direct, shared or staged\n"));
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn a_bench_needs_two_ranks() {
    let output = ran(1, STAGED, &["bench"]);
    let said = text(&output.stderr);
    assert!(said.contains("error: bench needs two ranks: run mpirun -n 2 freehold mpi bench\n"), "{said}");
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn bench_prints_a_row_per_doubling_with_raw_mpi_figures() {
    let staged = report(&ran(4, STAGED, &["bench", "--quick", "--json", "--bytes-max", "2048"]));
    let rows = staged["rows"].as_array().unwrap();
    let bytes: Vec<_> = rows.iter().map(|row| row["bytes"].as_u64().unwrap()).collect();
    assert_eq!(bytes, (0..=11).map(|power| 1 << power).collect::<Vec<u64>>());
    for row in rows {
        for figure in ["latency_ns", "raw_host_latency_ns", "bytes_per_s", "raw_host_bytes_per_s"] {
            assert!(row[figure].as_f64().unwrap() > 0.0, "{figure}: {row}");
        }
        assert!(row["pinned_copy_bytes_per_s"].as_f64().unwrap() > 0.0, "{row}");
        assert_eq!(row["raw_device_latency_ns"], Value::Null);
    }
    let variables = &[("FREEHOLD_SOFT_COHERENT", "1")];
    let direct = report(&ran(2, variables, &["bench", "--quick", "--json", "--bytes-max", "1024"]));
    for row in direct["rows"].as_array().unwrap() {
        assert!(row["raw_device_latency_ns"].as_f64().unwrap() > 0.0, "{row}");
        assert!(row["cost_ns"].is_number() && row["met"].is_boolean(), "{row}");
    }
}

#[test]
fn ranks_come_to_the_field_of_one_process() {
    let words = ["demo", "--size", "96", "--steps", "44", "--seed", "5", "--json"];
    let [staged, shared] = [report(&ran(3, STAGED, &words)), report(&ran(2, &[], &words))];
    assert_eq!((&staged["same"], &shared["same"]), (&Value::Bool(true), &Value::Bool(true)), "{staged} {shared}");
    assert_eq!(staged["field"], shared["field"]);
    let output = ran(1, STAGED, &["demo", "--size", "100"]);
    let said = text(&output.stderr);
    assert!(said.contains("error: a size of 100 cells: expected a multiple of 32 from 32 to 16384"), "{said}");
    assert_eq!(output.status.code(), Some(2));
}
