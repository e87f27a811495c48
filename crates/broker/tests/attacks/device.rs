//! Attacks with a device: writing memory that was leased for reading.

use std::os::fd::AsFd;

use freehold::open;
use freehold_driver::cuda::{
    CUdeviceptr, CUerror, CUmemAccess_flags, CUmemAccessDesc, CUmemLocation, CUmemLocationType, address, allocation,
    context, fill, mapping, primary,
};

use super::Attacker;
use crate::harness;
use crate::raw::message;

const READ_ONLY: u16 = 210;
const NAME_TAKEN: u16 = 207;

/// Maps a read lease as the protocol says and writes to it, which the device refuses. The broker refuses to let it be
/// given or published.
pub(super) fn write_to_read_lease(attacker: &mut Attacker) {
    // SAFETY: every driver call here uses only handles that were created here; the device refuses the wrong writes.
    let opened = unsafe { open::open(Some(&harness::device())) }.expect("there is a device");
    let (api, device) = (&opened.api, opened.device);
    let primary = primary::retain(api, device).expect("a context");
    context::set_current(api, primary).expect("a context");
    let mut raw = attacker.connect();
    for turn in 0..20 {
        let granted = raw.ask_ring(message(3, &[attacker.victim.name, 0]));
        assert_eq!((granted[0] as u16, granted[7]), (102, 1 << 16), "a lease of version 1 for reading");
        let (lease, segment) = (granted[1], granted[2]);
        let none = [0; 3];
        attacker.refused(raw.ask_ring(message(5, &[lease, 0, 0, raw.tenant])), READ_ONLY, none);
        attacker.refused(raw.ask(message(9, &[lease, 0, 0, 0]), b"stolen", &[]).slot, READ_ONLY, none);
        attacker.refused(raw.ask(message(9, &[lease, 0, 0, 0]), b"neighbour/name", &[]).slot, NAME_TAKEN, none);
        let mut attached = raw.ask(message(7, &[segment]), b"", &[]);
        let descriptor = attached.descriptors.pop().expect("the segment's descriptor");
        let bytes = attached.slot[1] as usize;
        let handle = allocation::import(api, descriptor.as_fd()).expect("it is memory of the device");
        let base = address::reserve(api, bytes, 2 << 20, CUdeviceptr::NULL).expect("there are addresses");
        mapping::map(api, base, bytes, 0, handle).expect("it is mapped");
        let location = CUmemLocation { kind: CUmemLocationType::DEVICE, id: device.0 };
        let access = [CUmemAccessDesc { location, flags: CUmemAccess_flags::PROT_READ }];
        mapping::set_access(api, base, bytes, &access).expect("it is mapped for reading");
        let written = fill::d8(api, base, 0xa5, bytes).map_err(|error| error.code);
        assert_eq!(written, Err(CUerror::INVALID_VALUE), "turn {turn}");
        attacker.refused += 1;
        mapping::unmap(api, base, bytes).expect("it was mapped");
        address::free(api, base, bytes).expect("they were reserved");
        allocation::release(api, handle).expect("it was imported");
        assert_eq!(raw.ask_ring(message(4, &[lease]))[0] as u16, 104);
    }
}
