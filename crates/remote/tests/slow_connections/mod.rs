//! Slow and long-lived connections.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use freehold_testing::at_effort;

use crate::harness::{Harness, Random, bytes, until_is};
use crate::proxy::Proxy;

pub(crate) fn a_busy_slow_line_is_one_connection(harness: &Harness) {
    let proxy = Proxy::new(harness.port(), 1);
    let remote = harness.remote_at(&format!("https://localhost:{}", proxy.port));
    // In a soak test the transfer is so long that any ping waits behind it for many seconds.
    let len: usize = at_effort(256, 1024, 6 << 10) << 10;
    let from = bytes(&mut Random::new(5), len);
    let block = remote.alloc(len as u64).unwrap();
    proxy.limit_rate(400 << 10);
    remote.upload(&block, 0, &from).unwrap();
    proxy.limit_rate(0);
    let mut to = vec![0; len];
    remote.download(&block, 0, &mut to).unwrap();
    assert!(to == from);
    assert_eq!(proxy.connections(), 1, "a busy connection was taken for a dead one");
}

pub(crate) fn a_long_upload_is_resumed(harness: &Harness) {
    let proxy = Proxy::new(harness.port(), 1);
    // Longer than a reconnect takes on any machine.
    let patience = Duration::from_secs(6);
    let remote = harness.remote_at(&format!("https://localhost:{}", proxy.port)).with_retry_timeout(patience);
    let from = bytes(&mut Random::new(6), 12 << 20);
    let block = remote.alloc(12 << 20).unwrap();
    let is_cut = AtomicBool::new(false);
    let read = |at: u64, piece: &mut [u8]| {
        if at == 8 << 20 && !is_cut.swap(true, Ordering::Relaxed) {
            // A reader that takes longer than the retry timeout; then the connection is lost.
            let begun = Instant::now();
            until_is("the reader has taken long enough", true, || begun.elapsed() > patience + patience / 4);
            proxy.cut();
        }
        piece.copy_from_slice(&from[at as usize..][..piece.len()]);
        Ok(())
    };
    remote.upload_with(&block, 0, 12 << 20, read).unwrap();
    assert!(proxy.connections() > 1, "the connection was cut");
    let mut to = vec![0; 12 << 20];
    remote.download(&block, 0, &mut to).unwrap();
    assert!(to == from);
}
