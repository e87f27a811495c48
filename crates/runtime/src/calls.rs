//! Reports the program's calls of the driver API to a checker. `FREEHOLD_CHECK_CALLS` names the file for its findings.
//!
//! The driver's functions that submit work, order it, allocate and free are wrapped. Each wrapper calls the driver, and then reports
//! the call to the checker. Only a free is reported before the call, because another thread may get the address when the call returns.
//!
//! - [`checked`] makes a table with the wrappers, which the runtime uses.
//! - The wrappers are exported as `freehold_calls_NAME`, for the program's own calls of the driver: the audit library binds them in
//!   place of the driver's functions, and `cuGetProcAddress` returns them.
//!
//! Without the variable, nothing is wrapped.

mod announced;
mod checked_process;
mod copies;
mod driver_functions;
mod functions;
mod graphs;
mod handles;
mod launches;
mod lock;
mod memory;
mod streams;
mod symbols;
mod unlisted;
mod wrap;

#[cfg(test)]
mod testing;

pub(crate) use checked_process::unload_object;
pub(crate) use symbols::{checked, checked_per_thread};
