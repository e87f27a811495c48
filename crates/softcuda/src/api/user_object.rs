//! Objects of the program that graphs keep alive.

use std::sync::Arc;

use freehold_driver::cuda::{
    CUerror, CUgraph, CUhostFn, CUresult, CUuserObject, graph_user_object_flags, user_object_flags,
};

use crate::ffi::args::{HostAddress, Out};
use crate::objects::user_object::{UserObject, UserReferences};
use crate::state::driver_state::{DriverState, driver};

/// Returns a number of references, which is not zero and fits into an `int`.
fn check_count(references: u32) -> Result<u64, CUerror> {
    if references == 0 || references > i32::MAX.cast_unsigned() {
        return Err(CUerror::INVALID_VALUE);
    }
    Ok(references.into())
}

fn find(driver: &DriverState, object: CUuserObject) -> Result<Arc<UserObject>, CUerror> {
    let found = driver.user_objects.get(object.0)?;
    if found.is_destroyed() { Err(CUerror::INVALID_VALUE) } else { Ok(found) }
}

pub(crate) fn cuUserObjectCreate(
    object: Out<CUuserObject>,
    data: HostAddress,
    destroy: CUhostFn,
    references: u32,
    flags: u32,
) -> CUresult {
    let driver = driver()?;
    let destroy = destroy.ok_or(CUerror::INVALID_VALUE)?;
    let references = check_count(references)?;
    if flags != user_object_flags::NO_DESTRUCTOR_SYNC {
        return Err(CUerror::INVALID_VALUE);
    }
    driver.user_objects.remove_all(UserObject::is_destroyed);
    let made = Arc::new(UserObject::new(destroy, data.0 as usize, references));
    object.set(CUuserObject(driver.user_objects.insert_with(|_| made).0));
    Ok(())
}

pub(crate) fn cuUserObjectRetain(object: CUuserObject, references: u32) -> CUresult {
    find(driver()?, object)?.retain(check_count(references)?)
}

pub(crate) fn cuUserObjectRelease(object: CUuserObject, references: u32) -> CUresult {
    find(driver()?, object)?.release(check_count(references)?)
}

pub(crate) fn cuGraphRetainUserObject(graph: CUgraph, object: CUuserObject, references: u32, flags: u32) -> CUresult {
    let driver = driver()?;
    let (graph, object) = (driver.graphs.get(graph)?, find(driver, object)?);
    let references = check_count(references)?;
    let references = match flags {
        0 => UserReferences::new(&object, references)?,
        graph_user_object_flags::MOVE => UserReferences::from_program(&object, references)?,
        _ => return Err(CUerror::INVALID_VALUE),
    };
    graph.add_references(&object, references);
    Ok(())
}

pub(crate) fn cuGraphReleaseUserObject(graph: CUgraph, object: CUuserObject, references: u32) -> CUresult {
    let driver = driver()?;
    let (graph, object) = (driver.graphs.get(graph)?, find(driver, object)?);
    graph.release_references(&object, check_count(references)?)
}
