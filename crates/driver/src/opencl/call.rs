//! OpenCL's error codes, their meaning, and errors that name the call.

use opencl3::error_codes as cl;

use crate::error::{CallError, Code, ErrorKind};

/// No library was found. OpenCL itself has no code for this.
pub const NO_LIBRARY: i64 = cl::DLOPEN_RUNTIME_LOAD_FAILED as i64;
/// The library has no platform.
pub const NO_PLATFORM: i64 = cl::CL_PLATFORM_NOT_FOUND_KHR as i64;

/// NVIDIA's code for anything without another, which includes a faulting kernel.
const NVIDIA_UNKNOWN: i32 = -9999;

/// The calls that allocate memory.
const ALLOCATING_CALLS: [&str; 4] = ["clCreateBuffer", "clCreateSubBuffer", "clSVMAlloc", "clEnqueueMapBuffer"];

/// Adds the call's name to the error.
pub(super) fn check<T>(call: &'static str, outcome: Result<T, i32>) -> Result<T, CallError> {
    outcome.map_err(|number| call_error(call, number))
}

pub(super) fn call_error(call: &'static str, number: i32) -> CallError {
    let name = match number {
        cl::DLOPEN_RUNTIME_LOAD_FAILED => Some("library not found"),
        cl::DLOPEN_FUNCTION_NOT_AVAILABLE => Some("function not found"),
        number => Some(cl::error_text(number)).filter(|text| text.starts_with("CL_")),
    };
    CallError { call, code: Code { number: number.into(), name }, kind: error_kind(call, number) }
}

/// The error for a call without enough memory.
pub(super) fn out_of_memory(call: &'static str) -> CallError {
    call_error(call, cl::CL_MEM_OBJECT_ALLOCATION_FAILURE)
}

/// The error for a command that ended with a code of its own.
pub(super) fn failed_command(call: &'static str) -> CallError {
    call_error(call, cl::CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST)
}

// Errors for handles that were never made, which the driver would dereference unchecked.

pub(super) fn invalid_value(call: &'static str) -> CallError {
    call_error(call, cl::CL_INVALID_VALUE)
}

pub(super) fn invalid_queue(call: &'static str) -> CallError {
    CallError { kind: ErrorKind::Other, ..call_error(call, cl::CL_INVALID_COMMAND_QUEUE) }
}

pub(super) fn invalid_event(call: &'static str) -> CallError {
    call_error(call, cl::CL_INVALID_EVENT)
}

pub(super) fn invalid_kernel(call: &'static str) -> CallError {
    call_error(call, cl::CL_INVALID_KERNEL)
}

pub(super) fn invalid_program(call: &'static str) -> CallError {
    call_error(call, cl::CL_INVALID_PROGRAM)
}

pub(super) fn invalid_argument(call: &'static str) -> CallError {
    call_error(call, cl::CL_INVALID_ARG_VALUE)
}

/// Returns whether a name does not exist in a program.
pub(super) fn is_unknown_name(error: CallError) -> bool {
    error.code.number == i64::from(cl::CL_INVALID_KERNEL_NAME)
}

/// Returns whether a program has no information on its kernels' arguments.
pub(super) fn is_arg_info_unavailable(error: CallError) -> bool {
    error.code.number == i64::from(cl::CL_KERNEL_ARG_INFO_NOT_AVAILABLE)
}

/// Returns whether a load failed because of the image.
pub(super) fn is_image_error(error: CallError) -> bool {
    let codes = [
        cl::CL_BUILD_PROGRAM_FAILURE,
        cl::CL_COMPILE_PROGRAM_FAILURE,
        cl::CL_LINK_PROGRAM_FAILURE,
        cl::CL_INVALID_BINARY,
        cl::CL_INVALID_VALUE,
    ];
    codes.iter().any(|&code| error.code.number == i64::from(code))
}

fn error_kind(call: &str, number: i32) -> ErrorKind {
    match number {
        cl::CL_MEM_OBJECT_ALLOCATION_FAILURE | cl::CL_OUT_OF_HOST_MEMORY => ErrorKind::OutOfMemory,
        // A call that allocates returns these for a size beyond all limits, and `clSVMAlloc` has no code at all.
        cl::CL_OUT_OF_RESOURCES | cl::CL_INVALID_BUFFER_SIZE | cl::CL_INVALID_VALUE
            if ALLOCATING_CALLS.contains(&call) =>
        {
            ErrorKind::OutOfMemory
        }
        cl::DLOPEN_FUNCTION_NOT_AVAILABLE | cl::CL_INVALID_OPERATION => ErrorKind::Unsupported,
        // A failed command invalidates its queue, and on a GPU the context.
        cl::CL_OUT_OF_RESOURCES
        | cl::CL_INVALID_COMMAND_QUEUE
        | cl::CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST
        | cl::CL_DEVICE_NOT_AVAILABLE
        | NVIDIA_UNKNOWN => ErrorKind::Fault,
        _ => ErrorKind::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_displayed_with_name_and_number() {
        assert_eq!(call_error("clFinish", -61).to_string(), "clFinish: CL_INVALID_BUFFER_SIZE (-61)");
        assert_eq!(call_error("clFinish", -77_777).to_string(), "clFinish: error -77777");
        assert_eq!(call_error("clFinish", -2000).to_string(), "clFinish: library not found (-2000)");
    }

    #[test]
    fn the_same_code_is_out_of_memory_for_allocating_calls_and_a_fault_otherwise() {
        assert_eq!(call_error("clCreateBuffer", cl::CL_OUT_OF_RESOURCES).kind, ErrorKind::OutOfMemory);
        assert_eq!(call_error("clFinish", cl::CL_OUT_OF_RESOURCES).kind, ErrorKind::Fault);
    }

    #[test]
    fn an_invalid_value_is_an_error_unless_it_means_out_of_memory() {
        assert_eq!(call_error("clSetKernelArg", cl::CL_INVALID_VALUE).kind, ErrorKind::Other);
        assert_eq!(call_error("clSVMAlloc", cl::CL_INVALID_VALUE).kind, ErrorKind::OutOfMemory);
    }
}
