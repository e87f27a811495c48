//! Runs the kernels of the data folder under every schedule and compares their output with that of an H200. A quick run
//! takes some of the kernels, different ones under each schedule.
//!
//! `FREEHOLD_RECORD_KERNELS=folder` writes the output of the driver under test as `name.out` to a folder instead, each
//! kernel in its own process. `FREEHOLD_KERNEL=name` runs or records only that kernel.

use crate::common;
use crate::harness;

use crate::list;

use std::env;
use std::fs;
use std::io::{Write, stdout};
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

use common::child::{self, is_child, report_line};
use freehold_driver::cuda::{Api, CUdevice, context};
use freehold_testing::{at_effort, report_covered, seed};
use harness::describe::{Argument, Description, Printf};
use harness::element::Element;
use harness::record::Record;
use harness::{Kernel, run};
use list::KERNELS;

/// In a child, names the kernel that it runs.
const ALONE: &str = "FREEHOLD_TEST_KERNEL";

/// Encloses the output of a kernel.
const PRINTED: &str = "~~~~ printed ~~~~";

const SCHEDULE: &str = "FREEHOLD_SOFT_SCHEDULE";

/// The test that runs one kernel in its own process.
const ONE: &str = "one_kernel_runs_alone";

#[test]
fn kernels_agree_with_hardware_under_threads() {
    agree_under("kernels_agree_with_hardware_under_threads", "threads", 0);
}

#[test]
fn kernels_agree_with_hardware_at_once() {
    agree_under("kernels_agree_with_hardware_at_once", "eager", 1);
}

#[test]
fn kernels_agree_with_hardware_by_seed_1() {
    agree_under("kernels_agree_with_hardware_by_seed_1", "seed:1", 2);
}

#[test]
fn kernels_agree_with_hardware_by_seed_2() {
    agree_under("kernels_agree_with_hardware_by_seed_2", "seed:2", 3);
}

#[test]
fn kernels_agree_with_hardware_by_the_seed_of_this_run() {
    let schedule = format!("seed:{}", seed());
    agree_under("kernels_agree_with_hardware_by_the_seed_of_this_run", &schedule, 4);
}

#[test]
fn one_kernel_runs_alone() {
    let Ok(name) = env::var(ALONE) else { return };
    let kernel = KERNELS.iter().find(|kernel| kernel.name == name).expect("the kernel is in the list");
    let (api, device) = common::driver();
    println!("\n{PRINTED}");
    let outcome = in_context(&api, device, || run::run(&api, kernel));
    // SAFETY: the call takes no pointer but null, which means all streams of C.
    unsafe { libc::fflush(std::ptr::null_mut()) };
    println!("{PRINTED}");
    stdout().flush().expect("a child can print");
    match outcome {
        Ok(record) => record.text().lines().for_each(report_line),
        Err(failure) => panic!("{failure}"),
    }
}

#[test]
fn the_list_names_what_is_in_the_folder() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kernels");
    // A test bundle runs without the sources.
    let Ok(entries) = fs::read_dir(folder) else { return };
    let mut found: Vec<String> = Vec::new();
    for entry in entries {
        let name = entry.expect("the folder can be read").file_name().into_string().expect("names are text");
        found.push(name);
    }
    let mut expected = vec!["list.rs".to_owned()];
    for kernel in KERNELS {
        expected.extend([format!("{}.ptx", kernel.name), format!("{}.out", kernel.name)]);
        if kernel.extension != "ptx" {
            expected.push(format!("{}.{}", kernel.name, kernel.extension));
        }
    }
    found.sort_unstable();
    expected.sort_unstable();
    assert_eq!(found, expected);
}

#[test]
fn every_kernel_is_described() {
    for kernel in KERNELS {
        let description = Description::parse(kernel.source).unwrap_or_else(|error| panic!("{}: {error}", kernel.name));
        for launch in &description.launches {
            kernel.entry(&launch.function).unwrap_or_else(|error| panic!("{}: {error}", kernel.name));
        }
    }
}

#[test]
fn a_record_is_read_as_it_was_written() {
    let text = "argument 0 u32\n00000000*3 00000007 ffffffff\nargument 2 f16\n3c00\nprintf\nargument 1\n\nend\n";
    let record = Record::parse(text).unwrap();
    assert_eq!(record.outputs[0].bits, [0, 0, 0, 7, 0xffff_ffff]);
    assert_eq!(record.outputs[1].bits, [0x3c00]);
    assert_eq!(record.printed.as_deref(), Some("argument 1\n\nend\n"));
    assert_eq!(record.text(), text);
}

#[test]
fn elements_are_near_by_units_of_the_last_place() {
    let f32 = Element::F32;
    assert!(f32.is_near(0x7fc0_0000, 0xffff_ffff, 0), "all NaN are one");
    assert!(!f32.is_near(0x7f80_0000, 0x7fc0_0000, 1 << 30), "infinity is not NaN");
    assert!(!f32.is_near(0, 0x8000_0000, 0), "the zeros differ");
    assert!(f32.is_near(0x3f7f_ffff, 0x3f80_0001, 2) && !f32.is_near(0x3f7f_ffff, 0x3f80_0001, 1));
    assert!(
        Element::F16x2.is_near(0x7e00_3c00, 0xffff_3c00, 0) && !Element::F16x2.is_near(0x3c00_7e00, 0x3c01_7e00, 0)
    );
}

#[test]
fn a_struct_is_laid_out_as_in_c() {
    let source = "// launch: none\n// arg: struct u8 1, u16 2, u64 3, u8 4\n";
    let description = Description::parse(source).unwrap();
    let [Argument::Value(bytes)] = description.arguments.as_slice() else { panic!("{description:?}") };
    assert_eq!(bytes[..], [1, 0, 2, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn the_data_has_130_kernels() {
    assert!(KERNELS.len() >= 130, "{} kernels", KERNELS.len());
}

/// Runs the kernels of this test effort under a schedule with a number. If the process has a schedule already, or uses
/// NVIDIA's driver, which has none, the first test runs all kernels.
fn agree_under(test: &str, schedule: &str, number: usize) {
    if let Some(folder) = env::var_os("FREEHOLD_RECORD_KERNELS") {
        return if schedule == "threads" {
            record(&PathBuf::from(folder))
        };
    }
    if is_child(test) {
        return compare(|kernel| is_taken(kernel, number)).iter().for_each(|failure| report_line(failure));
    }
    let is_hardware = env::var("FREEHOLD_DEVICE").is_ok_and(|device| device != "soft");
    let failures = if is_hardware || env::var_os(SCHEDULE).is_some() {
        if schedule == "threads" { compare(|_| true) } else { Vec::new() }
    } else {
        let outcome = child::run(test, &[(SCHEDULE, schedule)]);
        assert!(outcome.status.success(), "in a process of its own:\n{}", outcome.output);
        outcome.report();
        outcome.reported
    };
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}

fn chosen() -> impl Iterator<Item = &'static Kernel> {
    let only = env::var("FREEHOLD_KERNEL").ok();
    KERNELS.iter().filter(move |kernel| only.as_ref().is_none_or(|only| kernel.name == only))
}

/// Returns whether a run of this test effort includes a kernel under the schedule with this number.
fn is_taken(kernel: &Kernel, schedule: usize) -> bool {
    let place = KERNELS.iter().position(|other| other.name == kernel.name).expect("the kernel is in the list");
    let stride = at_effort(12, 2, 1);
    env::var_os("FREEHOLD_KERNEL").is_some() || place % stride == schedule % stride
}

/// Runs kernels and compares them with their records. Returns a sentence for each difference.
fn compare(is_taken: impl Fn(&Kernel) -> bool) -> Vec<String> {
    let (api, device) = common::driver();
    let mut failures = Vec::new();
    // After the fault of a kernel, the process cannot run others.
    let mut spoilt = false;
    let taken: Vec<_> = chosen().filter(|kernel| is_taken(kernel)).collect();
    report_covered(taken.len() as u64, "kernels held against hardware");
    for kernel in taken {
        let differences = compared(&api, device, kernel, spoilt).unwrap_or_else(|failure| {
            spoilt = true;
            vec![failure]
        });
        failures.extend(differences.iter().map(|told| format!("{}: {told}", kernel.name)));
    }
    failures
}

fn compared(api: &Api, device: CUdevice, kernel: &Kernel, spoilt: bool) -> Result<Vec<String>, String> {
    let description = Description::parse(kernel.source)?;
    if kernel.out.is_empty() {
        return Ok(vec!["no record of it was made".to_owned()]);
    }
    let expected = Record::parse(kernel.out)?;
    let got = match description.printf {
        Printf::None if !spoilt => in_context(api, device, || run::run(api, kernel))?,
        _ => alone(kernel)?,
    };
    Ok(got.differences(&expected, &description))
}

/// Runs `work` in its own context, which a faulting kernel may break.
fn in_context<T>(api: &Api, device: CUdevice, work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    let context = context::create(api, device, 0).map_err(|error| error.to_string())?;
    let outcome = work();
    let destroyed = context::destroy(api, context).map_err(|error| error.to_string());
    let value = outcome?;
    destroyed.map(|()| value)
}

/// Runs a kernel in its own process. Its printed text is a part of the record.
fn alone(kernel: &Kernel) -> Result<Record, String> {
    let outcome = catch_unwind(|| child::run(ONE, &[(ALONE, kernel.name)])).map_err(|_| "does not end".to_owned())?;
    if !outcome.status.success() {
        return Err(format!("in a process of its own: {}", reason(&outcome.output)));
    }
    let mut record = Record::parse(&outcome.reported.iter().map(|line| format!("{line}\n")).collect::<String>())?;
    if Description::parse(kernel.source)?.printf != Printf::None {
        let frame = format!("{PRINTED}\n");
        record.printed = outcome.output.split(&frame).nth(1).map(str::to_owned);
    }
    Ok(record)
}

/// Returns the panic message of a failed child, on one line.
fn reason(output: &str) -> String {
    let mut lines = output.lines().skip_while(|line| !line.contains("panicked at")).skip(1);
    lines
        .by_ref()
        .take_while(|line| !line.starts_with("note:") && !line.starts_with("stack"))
        .collect::<Vec<_>>()
        .join(" ")
}

/// Writes the records of the driver under test.
fn record(folder: &Path) {
    fs::create_dir_all(folder).expect("the folder for records can be made");
    let mut failures = Vec::new();
    for kernel in chosen() {
        match alone(kernel) {
            Ok(record) => {
                fs::write(folder.join(format!("{}.out", kernel.name)), record.text()).expect("a record can be written")
            }
            Err(failure) => failures.push(format!("{}: {failure}", kernel.name)),
        }
    }
    assert!(failures.is_empty(), "{} kernels gave no record:\n{}", failures.len(), failures.join("\n"));
}
