//! Memory of the software device, and host memory that the driver maps: placement of blocks, and copies. It does not
//! know owners.

pub(crate) mod advice;
pub(crate) mod arena;
pub(crate) mod backing;
pub(crate) mod device_memory;
pub(crate) mod dirty_ranges;
pub(crate) mod free_ranges;
pub(crate) mod host_pages;
pub(crate) mod ipc_token;
pub(crate) mod mapping;
pub(crate) mod mem_ref;
pub(crate) mod page_heap;
pub(crate) mod usage_file;
