//! Guests of devices that map no memory, whose addresses lie among each other's.

use freehold_driver::cuda::{Api, CUdeviceptr, CUerror, CUresult, CUstream};

use super::Guest;
use crate::device::Device;
use crate::error::Error;
use crate::ledger::WrongRelease;

unsafe extern "C" fn reserves_nothing(_: *mut CUdeviceptr, _: usize, _: usize, _: CUdeviceptr, _: u64) -> CUresult {
    Err(CUerror::NOT_SUPPORTED)
}

#[test]
fn an_address_is_one_devices_where_two_have_memory_near_each_other() {
    let opened = crate::open::opened(None).unwrap();
    let api = Api { cuMemAddressReserve: reserves_nothing, ..opened.api };
    let guests = [0, 1].map(|ordinal| Guest::new(&Device::new(api, opened.device).unwrap(), ordinal, false));
    let blocks = [0, 1].map(|index: usize| guests[index].alloc(3 << 20, CUstream::NULL).unwrap());
    // Both can tell both apart.
    assert!(guests.iter().all(|guest| blocks.iter().all(|&block| guest.core.pool.supply.covers(block))));
    let has = |address| guests.each_ref().map(|guest| guest.has(address));
    assert_eq!(blocks.map(has), [[true, false], [false, true]]);
    let refused = guests[1].record_use(blocks[0], CUstream::PER_THREAD).unwrap_err();
    assert!(matches!(refused, Error::WrongRelease(WrongRelease::NeverAllocated { .. })), "{refused}");
    guests[0].record_use(blocks[0], CUstream::PER_THREAD).unwrap();
    // What was given back is nobody's, and remembered by who had it.
    guests[0].free(blocks[0], CUstream::NULL).unwrap();
    guests[0].core.backend.synchronize().unwrap();
    guests[0].trim(0).unwrap();
    assert_eq!(guests[0].reserved_bytes(), 0);
    assert_eq!(has(blocks[0]), [false, false]);
    assert_eq!(guests.each_ref().map(|guest| guest.had(blocks[0])), [true, false]);
    guests[1].free(blocks[1], CUstream::NULL).unwrap();
}
