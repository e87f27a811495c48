//! What OpenCL's codes mean, and the name of the call on each.

use opencl3::error_codes as cl;

use crate::error::{CallError, Code, Meaning};

/// No library was found. OpenCL itself has no code for it.
pub const NO_LIBRARY: i64 = cl::DLOPEN_RUNTIME_LOAD_FAILED as i64;
/// The library knows of no vendor's driver.
pub const NO_PLATFORM: i64 = cl::CL_PLATFORM_NOT_FOUND_KHR as i64;

/// NVIDIA's code for what has no other, which is a kernel that went wrong.
const NVIDIA_UNKNOWN: i32 = -9999;

/// The calls that make memory.
const MAKING: [&str; 4] = ["clCreateBuffer", "clCreateSubBuffer", "clSVMAlloc", "clEnqueueMapBuffer"];

/// The outcome of a call with the call's name on its error.
pub(super) fn named<T>(call: &'static str, outcome: Result<T, i32>) -> Result<T, CallError> {
    outcome.map_err(|number| refused(call, number))
}

pub(super) fn refused(call: &'static str, number: i32) -> CallError {
    let name = match number {
        cl::DLOPEN_RUNTIME_LOAD_FAILED => Some("no library"),
        cl::DLOPEN_FUNCTION_NOT_AVAILABLE => Some("no such function"),
        number => Some(cl::error_text(number)).filter(|text| text.starts_with("CL_")),
    };
    CallError { call, code: Code { number: number.into(), name }, meaning: meaning(call, number) }
}

/// There is no memory left for a call, as OpenCL says it.
pub(super) fn no_memory(call: &'static str) -> CallError {
    refused(call, cl::CL_MEM_OBJECT_ALLOCATION_FAILURE)
}

/// A command ended with a code of its own.
pub(super) fn failed_command(call: &'static str) -> CallError {
    refused(call, cl::CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST)
}

// What a driver would have been given that nobody made. It would follow it without looking.

pub(super) fn wrong_value(call: &'static str) -> CallError {
    refused(call, cl::CL_INVALID_VALUE)
}

pub(super) fn wrong_queue(call: &'static str) -> CallError {
    CallError { meaning: Meaning::Refused, ..refused(call, cl::CL_INVALID_COMMAND_QUEUE) }
}

pub(super) fn wrong_event(call: &'static str) -> CallError {
    refused(call, cl::CL_INVALID_EVENT)
}

pub(super) fn wrong_kernel(call: &'static str) -> CallError {
    refused(call, cl::CL_INVALID_KERNEL)
}

pub(super) fn wrong_program(call: &'static str) -> CallError {
    refused(call, cl::CL_INVALID_PROGRAM)
}

pub(super) fn wrong_argument(call: &'static str) -> CallError {
    refused(call, cl::CL_INVALID_ARG_VALUE)
}

/// Whether a program has nothing of the name that was asked for.
pub(super) fn is_unknown_name(error: CallError) -> bool {
    error.code.number == i64::from(cl::CL_INVALID_KERNEL_NAME)
}

/// Whether a program does not tell what its kernels take.
pub(super) fn is_untold_parameter(error: CallError) -> bool {
    error.code.number == i64::from(cl::CL_KERNEL_ARG_INFO_NOT_AVAILABLE)
}

/// Whether a load failed because of what the image is.
pub(super) fn is_of_image(error: CallError) -> bool {
    let codes = [
        cl::CL_BUILD_PROGRAM_FAILURE,
        cl::CL_COMPILE_PROGRAM_FAILURE,
        cl::CL_LINK_PROGRAM_FAILURE,
        cl::CL_INVALID_BINARY,
        cl::CL_INVALID_VALUE,
    ];
    codes.iter().any(|&code| error.code.number == i64::from(code))
}

fn meaning(call: &str, number: i32) -> Meaning {
    match number {
        cl::CL_MEM_OBJECT_ALLOCATION_FAILURE | cl::CL_OUT_OF_HOST_MEMORY => Meaning::OutOfMemory,
        // A call that makes memory has no other answer to a size beyond all bounds, and `clSVMAlloc` has no code at all.
        cl::CL_OUT_OF_RESOURCES | cl::CL_INVALID_BUFFER_SIZE | cl::CL_INVALID_VALUE if MAKING.contains(&call) => {
            Meaning::OutOfMemory
        }
        cl::DLOPEN_FUNCTION_NOT_AVAILABLE | cl::CL_INVALID_OPERATION => Meaning::Unsupported,
        // A command that failed takes its queue along, and on a GPU the context.
        cl::CL_OUT_OF_RESOURCES
        | cl::CL_INVALID_COMMAND_QUEUE
        | cl::CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST
        | cl::CL_DEVICE_NOT_AVAILABLE
        | NVIDIA_UNKNOWN => Meaning::Fault,
        _ => Meaning::Refused,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_said_by_its_name_and_number() {
        assert_eq!(refused("clFinish", -61).to_string(), "clFinish: CL_INVALID_BUFFER_SIZE (-61)");
        assert_eq!(refused("clFinish", -77_777).to_string(), "clFinish: error -77777");
        assert_eq!(refused("clFinish", -2000).to_string(), "clFinish: no library (-2000)");
    }

    #[test]
    fn the_same_code_is_no_memory_of_a_call_that_makes_some_and_a_fault_of_another() {
        assert_eq!(refused("clCreateBuffer", cl::CL_OUT_OF_RESOURCES).meaning, Meaning::OutOfMemory);
        assert_eq!(refused("clFinish", cl::CL_OUT_OF_RESOURCES).meaning, Meaning::Fault);
    }

    #[test]
    fn a_wrong_value_is_a_refusal_unless_it_is_the_only_answer_to_no_memory() {
        assert_eq!(refused("clSetKernelArg", cl::CL_INVALID_VALUE).meaning, Meaning::Refused);
        assert_eq!(refused("clSVMAlloc", cl::CL_INVALID_VALUE).meaning, Meaning::OutOfMemory);
    }
}
