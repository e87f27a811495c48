//! The C header against the driver's lists: every function it declares is implemented, every code has its number.

use freehold_driver::cuda::{CUerror, Function};

const HEADER: &str = include_str!("../../include/freehold_cuda.h");

#[test]
fn every_function_of_the_header_is_implemented() {
    let declared: Vec<_> = HEADER
        .lines()
        .filter_map(|line| line.strip_prefix("CUresult "))
        .map(|line| line.split('(').next().expect("split yields at least one part"))
        .collect();
    assert_eq!(declared.len(), 47);
    for name in declared {
        assert!(Function::named(name).is_some(), "{name}");
    }
}

#[test]
fn a_name_without_a_version_means_the_declared_form() {
    for line in HEADER.lines().filter_map(|line| line.strip_prefix("#define cu")) {
        let (short, long) = line.split_once(' ').expect("a name and its meaning");
        assert_eq!(long, format!("cu{short}_v2"));
        assert!(HEADER.contains(&format!("CUresult {long}(")), "{long}");
    }
}

#[test]
fn the_codes_have_the_drivers_numbers() {
    let mut count = 0;
    for line in HEADER.lines().filter_map(|line| line.strip_prefix("    CUDA_ERROR_")) {
        let (name, number) = line.trim_end_matches(',').split_once(" = ").expect("a name and its number");
        let code = CUerror::new(number.parse().expect("a number")).expect("an error is not 0");
        assert_eq!(code.name().expect("a known code").to_str(), Ok(format!("CUDA_ERROR_{name}").as_str()));
        count += 1;
    }
    assert_eq!(count, 18);
}
