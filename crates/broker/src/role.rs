//! Runs the role of a process. Only this module knows all roles.

use std::io;
use std::os::fd::AsFd;

use freehold::open;
use freehold_driver::cuda::device;

use crate::process::{Config, Role};
use crate::{daemon, fdstore, scrubber, worker};

/// Runs a role until it ends. Standard input is the socket to the process that started this one.
///
/// # Errors
/// Those of the role.
pub fn run_role(role: Role, config: Config) -> io::Result<()> {
    let control_socket = io::stdin().as_fd().try_clone_to_owned()?;
    match role {
        Role::FdStore => fdstore::run(&config, Some(control_socket), || {}, || true),
        Role::Broker => daemon::run(config, control_socket),
        Role::Scrubber => scrubber::run(config.device.as_deref(), control_socket),
        Role::Worker => worker::run(&config, control_socket),
        Role::Probe => probe(config.device.as_deref()),
    }
}

/// Prints the memory, UUID and description of the device.
fn probe(device: Option<&str>) -> io::Result<()> {
    // SAFETY: the driver is only asked about the device.
    let opened = unsafe { open::open(device) }.map_err(io::Error::other)?;
    let total = device::total_bytes(&opened.api, opened.device).map_err(io::Error::other)?;
    let uuid = device::uuid(&opened.api, opened.device).map_err(io::Error::other)?;
    println!("{total} {} {}", u128::from_le_bytes(uuid.bytes), opened.why);
    Ok(())
}
