//! A limit on the device memory of the program: `FREEHOLD_LIMIT`, in bytes, for each device.
//!
//! The functions of the driver that allocate and free are wrapped. Each wrapper counts before it calls the driver, and returns
//! `CUDA_ERROR_OUT_OF_MEMORY` where the limit would be exceeded; the device's size and its free memory follow the limit.
//!
//! - [`counted`] makes a table with the wrappers, which the runtime and the pool use.
//! - The wrappers are exported as `freehold_limit_NAME`, for the program's own calls of the driver: the audit library binds them
//!   in place of the driver's functions, and `cuGetProcAddress` returns them.
//! - A pool of the driver counts with the memory that it has reserved, as reported by the driver: freed memory counts until the
//!   pool returns it to the device. The same holds for the memory of graphs.
//!
//! Without the variable, nothing is wrapped.

mod array_bytes;
mod enforce;
mod usage;
mod wrappers;

pub(crate) use enforce::{SpareMemory, set_spare_memory};
pub(crate) use wrappers::{counted, counted_for_pool};
