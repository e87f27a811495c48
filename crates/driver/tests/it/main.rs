//! The table of driver functions, the wrappers around it, and OpenCL.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod calls;
mod errors;
mod faults;
mod faults_drivers;
mod layout;
#[cfg(feature = "opencl")]
mod opencl;
mod return_values;
mod watch;
