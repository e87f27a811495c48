//! What the pool refuses: requests that no device can serve, although memory is cached, and adoptions of its own
//! memory.

use crate::foreign_pools;
use crate::own;

use foreign_pools::{Host, MIB};
use freehold::ledger::NotEntered;
use freehold::{Adoption, Error};
use own::Own;

#[test]
fn a_size_beyond_every_device_is_refused_also_where_the_thread_keeps_blocks() {
    let host = Host::new();
    let stream = host.stream();
    let kept = host.allocator.alloc(20 * MIB, stream).unwrap();
    host.allocator.free(kept, stream).unwrap();
    // In units of 2 KiB, cut to 32 bits, these are none, the kept block's, and none again.
    for bytes in [8 << 40, (8 << 40) + 20 * MIB, 1 << 50] {
        let refused = host.allocator.alloc(bytes, stream);
        assert!(matches!(refused, Err(Error::Short { .. })), "{bytes}: {refused:?}");
    }
}

#[test]
fn memory_of_a_pool_is_not_adopted_as_foreign() {
    let own = Own::new();
    let [stream] = own.streams();
    let small = stream.alloc_tagged::<u8>(4096, "ours").unwrap();
    let large = stream.alloc_tagged::<u8>(3 << 20, "ours").unwrap();
    let shareable = stream.alloc_shareable::<u8>(4096).unwrap();
    for (base, bytes) in [(small.address(), 4096), (large.address(), 3 << 20), (shareable.address(), 4096)] {
        let last = base + bytes - 1;
        for (address, bytes) in [(base, bytes), (base + 1, 8), (last, 1), (last, 1 << 40), (1 << 20, base)] {
            let refused = own.device.adopt(address, bytes, Adoption::Foreign, "theirs").map(drop).unwrap_err();
            let Error::NotEntered(NotEntered::OfPool { .. }) = refused else { panic!("{refused}") };
        }
    }
    let refused = own.device.adopt(large.address() + 100, 8, Adoption::Foreign, "theirs").unwrap_err().to_string();
    let address = large.address() + 100;
    let expected = format!(
        "8 bytes at {address:#x} are not foreign memory: {address:#x} belongs to the device's pool, in {}",
        large.owner().unwrap()
    );
    assert_eq!(refused, expected);
    assert_eq!(own.device.owner_of(address).unwrap().tag.as_deref(), Some("ours"));
    // What the pool keeps for later is its own, too.
    drop(large);
    own.device.adopt(address, 8, Adoption::Foreign, "theirs").unwrap_err();
}
