//! Objects of the program that graphs keep alive. Each has a count of references; at zero the driver calls its
//! destructor.

use std::ffi::c_void;

use super::api::Api;
use super::call::{DriverError, call};
use super::graph_types::CUgraph;
use super::node_types::{CUuserObject, user_object_flags};

/// Creates an object with `references` references of the caller.
///
/// # Safety
/// A thread of the driver calls `destroy` with `data`, once, some time after the last reference is released. The
/// function makes no driver call and does not unwind.
pub unsafe fn create(
    api: &Api,
    data: *mut c_void,
    destroy: unsafe extern "C" fn(*mut c_void),
    references: u32,
) -> Result<CUuserObject, DriverError> {
    let (mut object, flags) = (CUuserObject::NULL, user_object_flags::NO_DESTRUCTOR_SYNC);
    // SAFETY: `object` outlives the call, which writes one handle to it; the caller guarantees that the function is
    // valid.
    unsafe { call!(api.cuUserObjectCreate(&mut object, data, Some(destroy), references, flags)) }?;
    Ok(object)
}

/// Adds references of the caller.
pub fn retain(api: &Api, object: CUuserObject, references: u32) -> Result<(), DriverError> {
    // SAFETY: the call takes no pointer.
    unsafe { call!(api.cuUserObjectRetain(object, references)) }
}

/// Releases references of the caller.
pub fn release(api: &Api, object: CUuserObject, references: u32) -> Result<(), DriverError> {
    // SAFETY: the call takes no pointer.
    unsafe { call!(api.cuUserObjectRelease(object, references)) }
}

/// Adds references of a graph; `flags` as in [`graph_user_object_flags`](super::graph_user_object_flags).
pub fn retain_by_graph(
    api: &Api,
    graph: CUgraph,
    object: CUuserObject,
    references: u32,
    flags: u32,
) -> Result<(), DriverError> {
    // SAFETY: the call takes no pointer.
    unsafe { call!(api.cuGraphRetainUserObject(graph, object, references, flags)) }
}

/// Releases references of a graph.
pub fn release_by_graph(api: &Api, graph: CUgraph, object: CUuserObject, references: u32) -> Result<(), DriverError> {
    // SAFETY: the call takes no pointer.
    unsafe { call!(api.cuGraphReleaseUserObject(graph, object, references)) }
}
