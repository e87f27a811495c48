//! Events.

use freehold_driver::cuda::{CUevent, CUstream, event_flags};

use crate::code::cudaError_t;
use crate::process;
use crate::thread;
use crate::types::check;

forward! {
    fn cudaEventCreate(event: *mut CUevent) = cuEventCreate(event, event_flags::DEFAULT);
    fn cudaEventCreateWithFlags(event: *mut CUevent, flags: u32) = cuEventCreate(event, flags);
    fn cudaEventDestroy(event: CUevent) = cuEventDestroy_v2(event);
    fn cudaEventRecord(event: CUevent, stream: CUstream) = cuEventRecord(event, thread::stream(stream));
    fn cudaEventRecordWithFlags(event: CUevent, stream: CUstream, flags: u32) =
        cuEventRecordWithFlags(event, thread::stream(stream), flags);
    fn cudaEventQuery(event: CUevent) = cuEventQuery(event);
    fn cudaEventSynchronize(event: CUevent) = cuEventSynchronize(event);
}

pub(crate) unsafe fn cudaEventElapsedTime(milliseconds: *mut f32, start: CUevent, end: CUevent) -> cudaError_t {
    let process = process::with_context()?;
    // The driver looks at the events first.
    check(milliseconds)?;
    // SAFETY: the C caller guarantees that the place and the events are valid.
    Ok(unsafe { (process.api.cuEventElapsedTime)(milliseconds, start, end) }?)
}
