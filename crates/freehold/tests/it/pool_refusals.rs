//! Requests that no device can serve, made where memory is at hand.

use crate::guest;

use freehold::Error;
use guest::{Host, MIB};

#[test]
fn a_size_beyond_every_device_is_refused_also_where_the_thread_keeps_blocks() {
    let host = Host::new();
    let stream = host.stream();
    let kept = host.guest.alloc(20 * MIB, stream).unwrap();
    host.guest.free(kept, stream).unwrap();
    // In units of 2 KiB, cut to 32 bits, these are none, the kept block's, and none again.
    for bytes in [8 << 40, (8 << 40) + 20 * MIB, 1 << 50] {
        let refused = host.guest.alloc(bytes, stream);
        assert!(matches!(refused, Err(Error::Short { .. })), "{bytes}: {refused:?}");
    }
}
