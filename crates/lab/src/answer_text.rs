//! The wording of answers: identical on every run on one device, so without addresses, handles and durations.

use freehold_driver::cuda::CUdeviceptr;

use super::failure::{Failure, error_name, short_name};
use super::latch::Pace;

/// Formats a call's code as in answers: `SUCCESS`, `INVALID_VALUE`.
pub(crate) fn code<T, E: Into<Failure>>(outcome: Result<T, E>) -> String {
    or_code(outcome, |_| "SUCCESS".to_owned())
}

/// Formats a query's result as the driver's code.
pub(crate) fn ready<E: Into<Failure>>(outcome: Result<bool, E>) -> String {
    or_code(outcome, |done| choose(done, "SUCCESS", "NOT_READY"))
}

/// Formats a call's result with `say`, or its code if it failed. The call may be another process's.
pub(crate) fn or_code<T, E: Into<Failure>>(outcome: Result<T, E>, say: impl FnOnce(T) -> String) -> String {
    match outcome {
        Ok(value) => say(value),
        Err(error) => failure_code(error.into()),
    }
}

fn failure_code(failure: Failure) -> String {
    match failure {
        Failure::Call(error) => error_name(error.code),
        Failure::OpenCl(error) => short_name(error.code),
        Failure::Runtime(error) => error.name,
        failure => failure.to_string(),
    }
}

/// Formats the pace of a call, and its code if not `SUCCESS`.
pub(crate) fn code_and_pace<T, E: Into<Failure>>((pace, outcome): (Pace, Result<T, E>)) -> String {
    match outcome {
        Ok(_) => pace.text().to_owned(),
        Err(error) => format!("{}: {}", pace.text(), code::<T, E>(Err(error))),
    }
}

/// Returns `yes` if `holds`, else `no`.
pub(crate) fn choose(holds: bool, yes: &str, no: &str) -> String {
    if holds { yes.to_owned() } else { no.to_owned() }
}

/// Formats the distance from `first` to `second`.
pub(crate) fn distance(first: CUdeviceptr, second: CUdeviceptr) -> String {
    match first.0.abs_diff(second.0) {
        0 => "the same address".to_owned(),
        bytes => format!("{} apart", size(bytes)),
    }
}

/// Formats a size in the largest unit that divides it.
pub(crate) fn size(bytes: u64) -> String {
    let whole = bytes.trailing_zeros();
    match bytes {
        0 => "0 bytes".to_owned(),
        _ if whole >= 30 => format!("{} GiB", bytes >> 30),
        _ if whole >= 20 => format!("{} MiB", bytes >> 20),
        _ if whole >= 10 => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} bytes"),
    }
}

/// Formats the largest power of two, up to `most`, that divides an address.
pub(crate) fn alignment(address: CUdeviceptr, most: u64) -> String {
    let alignment = 1_u64 << address.0.trailing_zeros().min(63);
    if alignment >= most { format!("{} or more", size(most)) } else { size(alignment) }
}

/// Formats the content of a block whose bytes are all equal.
pub(crate) fn byte_runs(bytes: &[u8]) -> String {
    match bytes.first() {
        Some(&first) if bytes.iter().all(|&byte| byte == first) => format!("{first:#04x}"),
        Some(_) => "mixed".to_owned(),
        None => "nothing".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use freehold_driver::cuda::{CUerror, DriverError, Function};

    #[test]
    fn a_code_loses_its_prefix() {
        let refused = DriverError { call: Function::cuMemFree_v2, code: CUerror::INVALID_VALUE };
        assert_eq!(code::<(), _>(Err(refused)), "INVALID_VALUE");
        assert_eq!(code::<_, DriverError>(Ok(())), "SUCCESS");
    }

    #[test]
    fn a_size_is_formatted_in_the_largest_unit_that_divides_it() {
        assert_eq!(size(512), "512 bytes");
        assert_eq!(size(2 << 20), "2 MiB");
        assert_eq!(size((2 << 20) + 1024), "2049 KiB");
    }

    #[test]
    fn an_alignment_is_formatted_up_to_the_given_maximum() {
        assert_eq!(alignment(CUdeviceptr(0x7f00_0020_0200), 1 << 21), "512 bytes");
        assert_eq!(alignment(CUdeviceptr(0x7f00_0000_0000), 1 << 21), "2 MiB or more");
    }
}
