//! The scrubber: a process of the broker that zeroes memory on the device. So the broker itself never maps a tenant's
//! memory.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};

use freehold::open;
use freehold_driver::cuda::{
    Api, CUdevice, CUdeviceptr, CUmemAccess_flags, CUmemAccessDesc, CUmemLocation, CUmemLocationType, DriverError,
    address, allocation, context, fill, mapping, primary,
};
use rustix::net::RecvFlags;

use crate::os::seqpacket::{self, ReceiveError};
use crate::protocol::scrub::{ScrubReply, ScrubRequest};

/// Serves scrub requests until the broker closes the socket.
///
/// # Errors
/// The device does not open, or the socket fails.
pub(crate) fn run(device: Option<&str>, control_socket: impl AsFd) -> io::Result<()> {
    // SAFETY: every driver call here uses only handles that were created here, and descriptors of the broker.
    let opened = unsafe { open::open(device) }.map_err(io::Error::other)?;
    let (api, device) = (opened.api, opened.device);
    let primary = primary::retain(&api, device).map_err(io::Error::other)?;
    context::set_current(&api, primary).map_err(io::Error::other)?;
    loop {
        let mut received = match seqpacket::receive(&control_socket, RecvFlags::empty()) {
            Ok(received) => received,
            Err(ReceiveError::Closed) => return Ok(()),
            Err(ReceiveError::System(error)) => return Err(error.into()),
            Err(ReceiveError::WouldBlock | ReceiveError::Malformed) => continue,
        };
        let (Some(descriptor), Some(request)) = (received.descriptors.pop(), ScrubRequest::from_words(&received.slot))
        else {
            continue;
        };
        let [whole, offset, bytes] = [request.whole_bytes, request.offset, request.bytes].map(|word| word as usize);
        let is_zeroed = match scrub(&api, device, &descriptor, whole, offset..offset + bytes) {
            Ok(()) => true,
            Err(error) => {
                tracing::error!(target: "freehold", %error, "memory could not be zeroed");
                false
            }
        };
        drop(descriptor);
        let reply = ScrubReply { target: request.target, is_zeroed };
        match seqpacket::send(&control_socket, &reply.to_words(), &[], &[]) {
            Ok(()) => {}
            Err(rustix::io::Errno::PIPE | rustix::io::Errno::CONNRESET) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Zeroes bytes of a segment. The segment is mapped as a whole, because a driver maps no part of one.
fn scrub(
    api: &Api,
    device: CUdevice,
    descriptor: &OwnedFd,
    bytes: usize,
    range: Range<usize>,
) -> Result<(), DriverError> {
    let handle = allocation::import(api, descriptor.as_fd())?;
    let mapped = (|| {
        let base = address::reserve(api, bytes, 2 << 20, CUdeviceptr::NULL)?;
        let filled = mapping::map(api, base, bytes, 0, handle).and_then(|()| {
            let location = CUmemLocation { kind: CUmemLocationType::DEVICE, id: device.0 };
            let access = [CUmemAccessDesc { location, flags: CUmemAccess_flags::PROT_READWRITE }];
            let filled = mapping::set_access(api, base, bytes, &access)
                .and_then(|()| fill::d8(api, CUdeviceptr(base.0 + range.start as u64), 0, range.len()))
                .and_then(|()| context::synchronize(api));
            filled.and(mapping::unmap(api, base, bytes))
        });
        filled.and(address::free(api, base, bytes))
    })();
    mapped.and(allocation::release(api, handle))
}
