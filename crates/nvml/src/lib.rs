//! `libnvidia-ml.so.1` of the software device: the documented functions of NVML that list devices and their memory.
//!
//! It asks the CUDA driver that the process loads. Sensors, clocks, processes and settings answer that they are not supported.
//!
//! # Modules, from bottom to top
//!
//! - `code`: results and their texts.
//! - `devices`: what the driver says of its devices.
//! - `exports`: the C functions. A device handle is the device's number plus one, and is never followed.

mod code;
mod devices;
mod exports;
