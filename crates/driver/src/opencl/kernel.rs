//! Kernels: their parameters, arguments and launches.
//!
//! A kernel object holds one set of arguments: threads that set its arguments and launch it must take turns, or use a
//! kernel object each.

use std::ffi::{CStr, c_void};
use std::ptr;

use opencl3::command_queue as put;
use opencl3::kernel as cl;

use super::call::check;
use super::device::{self, from_bytes};
use super::handle::{Event, Kernel, Memory, Program, Queue};
use super::queue::{length, list};
use crate::error::CallError;

/// The address space of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressQualifier {
    /// Device memory that kernels read and write.
    Global,
    /// Device memory that kernels only read.
    Constant,
    /// Memory of a work-group. The argument is its size.
    Local,
    /// The argument itself.
    Private,
}

/// A parameter of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// The address space that it points to.
    pub qualifier: AddressQualifier,
    /// The type as written in the source: `float*`, `uint`.
    pub type_name: String,
}

/// Creates a kernel of a built program, by name.
pub fn create(program: Program, name: &CStr) -> Result<Kernel, CallError> {
    check("clCreateKernel", cl::create_kernel(program.raw(), name)).map(Kernel::of)
}

/// Adds one to its reference count.
pub fn retain(kernel: Kernel) -> Result<(), CallError> {
    // SAFETY: the call takes no pointer but the handle.
    check("clRetainKernel", unsafe { cl::retain_kernel(kernel.raw()) })
}

/// Releases one reference. Its launches still run.
pub fn release(kernel: Kernel) -> Result<(), CallError> {
    // SAFETY: the call takes no pointer but the handle.
    check("clReleaseKernel", unsafe { cl::release_kernel(kernel.raw()) })
}

/// Returns the number of parameters.
pub fn parameter_count(kernel: Kernel) -> Result<u32, CallError> {
    let bytes = cl::get_kernel_data(kernel.raw(), cl::CL_KERNEL_NUM_ARGS);
    check("clGetKernelInfo", bytes).map(|bytes| from_bytes(&bytes) as u32)
}

/// Describes a parameter, if the program was built with `-cl-kernel-arg-info`.
pub fn parameter(kernel: Kernel, index: u32) -> Result<Parameter, CallError> {
    let ask = |what| check("clGetKernelArgInfo", cl::get_kernel_arg_data(kernel.raw(), index, what));
    let place = match from_bytes(&ask(cl::CL_KERNEL_ARG_ADDRESS_QUALIFIER)?) as u32 {
        cl::CL_KERNEL_ARG_ADDRESS_GLOBAL => AddressQualifier::Global,
        cl::CL_KERNEL_ARG_ADDRESS_CONSTANT => AddressQualifier::Constant,
        cl::CL_KERNEL_ARG_ADDRESS_LOCAL => AddressQualifier::Local,
        _ => AddressQualifier::Private,
    };
    Ok(Parameter { qualifier: place, type_name: device::text(&ask(cl::CL_KERNEL_ARG_TYPE_NAME)?) })
}

/// Returns the maximum number of work-items of a group.
pub fn group_items_max(kernel: Kernel, device: super::DeviceId) -> Result<u64, CallError> {
    let bytes = cl::get_kernel_work_group_data(kernel.raw(), device.raw(), cl::CL_KERNEL_WORK_GROUP_SIZE);
    check("clGetKernelWorkGroupInfo", bytes).map(|bytes| from_bytes(&bytes))
}

/// Sets an argument to these bytes, which OpenCL copies.
pub fn set_value(kernel: Kernel, index: u32, value: &[u8]) -> Result<(), CallError> {
    // SAFETY: the call copies the bytes, whose number it receives, before it returns; it rejects a size other than the
    // parameter's.
    check("clSetKernelArg", unsafe { cl::set_kernel_arg(kernel.raw(), index, value.len(), value.as_ptr().cast()) })
}

/// Sets an argument to a buffer, or to null with [`Memory::NULL`].
pub fn set_memory(kernel: Kernel, index: u32, memory: Memory) -> Result<(), CallError> {
    let raw = memory.raw();
    let start = ptr::from_ref(&raw).cast();
    // SAFETY: the call reads one handle before it returns.
    check("clSetKernelArg", unsafe { cl::set_kernel_arg(kernel.raw(), index, size_of::<*mut c_void>(), start) })
}

/// Gives a parameter `bytes` of local memory of each work-group.
pub fn set_local(kernel: Kernel, index: u32, bytes: usize) -> Result<(), CallError> {
    // SAFETY: for local memory the call takes a size and no address.
    check("clSetKernelArg", unsafe { cl::set_kernel_arg(kernel.raw(), index, bytes, ptr::null()) })
}

/// Sets an argument to an address within a block of shared virtual memory.
pub fn set_address(kernel: Kernel, index: u32, address: u64) -> Result<(), CallError> {
    let start = ptr::with_exposed_provenance::<c_void>(address as usize);
    // SAFETY: the call stores the address and does not dereference it.
    check("clSetKernelArgSVMPointer", unsafe { cl::set_kernel_arg_svm_pointer(kernel.raw(), index, start) })
}

/// Sets which blocks of shared virtual memory launches access besides those that arguments point to.
pub fn set_svm_pointers(kernel: Kernel, starts: &[u64]) -> Result<(), CallError> {
    let bytes = std::mem::size_of_val(starts);
    // SAFETY: the call copies the addresses, whose length it receives, and does not dereference them.
    let set = unsafe {
        cl::set_kernel_exec_info(kernel.raw(), cl::CL_KERNEL_EXEC_INFO_SVM_PTRS, bytes, starts.as_ptr().cast())
    };
    check("clSetKernelExecInfo", set)
}

/// Launches work-groups with the arguments that are set.
///
/// # Safety
/// Every argument is set, and memory that the kernel accesses stays allocated until the event is complete.
pub unsafe fn launch(
    queue: Queue,
    kernel: Kernel,
    groups: [usize; 3],
    group: [usize; 3],
    after: &[Event],
) -> Result<Event, CallError> {
    let items: [usize; 3] = std::array::from_fn(|axis| groups[axis].saturating_mul(group[axis]));
    let (count, list) = (length(after), list(after));
    // SAFETY: the caller guarantees that the arguments are valid; both shapes have three numbers and outlive the call,
    // as the list does.
    let done = unsafe {
        let (items, group) = (items.as_ptr(), group.as_ptr());
        put::enqueue_nd_range_kernel(queue.raw(), kernel.raw(), 3, ptr::null(), items, group, count, list)
    };
    check("clEnqueueNDRangeKernel", done).map(Event::of)
}
