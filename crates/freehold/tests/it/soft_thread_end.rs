//! Library calls in the last destructor of a thread, after the software driver's own thread-locals were dropped.

use crate::children::alone;

use std::cell::RefCell;
use std::sync::mpsc::{self, Sender};
use std::thread;

use freehold::{Device, Result};

const MIB: usize = 1 << 20;

/// Trims the device, allocates in it again, and says how both went.
struct Last(Device, Sender<(Result<()>, Result<Vec<u8>>)>);

impl Drop for Last {
    fn drop(&mut self) {
        let trimmed = self.0.trim().map(drop);
        let used = self.0.new_stream().and_then(|stream| stream.download(&stream.upload(&[3_u8; 10])?));
        self.1.send((trimmed, used)).unwrap();
    }
}

thread_local! {
    static LAST: RefCell<Option<Last>> = const { RefCell::new(None) };
}

#[test]
fn calls_in_the_last_destructor_of_a_thread_succeed_and_leave_the_pool_whole() {
    alone("calls_in_the_last_destructor_of_a_thread_succeed_and_leave_the_pool_whole", || {
        let device = freehold::open::device(Some("soft")).unwrap();
        let stream = device.new_stream().unwrap();
        drop(stream.upload(&vec![1_u8; 64 * MIB]).unwrap());
        device.synchronize().unwrap();
        let (say, said) = mpsc::channel();
        let other = device.clone();
        thread::spawn(move || {
            // Registered before anything of the driver's, and so dropped after it.
            LAST.set(Some(Last(other.clone(), say)));
            other.new_stream().unwrap().upload(&[1_u8; 10]).unwrap();
        })
        .join()
        .unwrap();
        let (trimmed, used) = said.recv().unwrap();
        trimmed.unwrap();
        assert_eq!(used.unwrap(), [3; 10]);
        let blocks: Vec<_> = (0..4).map(|_| stream.upload(&vec![2_u8; 32 * MIB]).unwrap()).collect();
        for block in &blocks {
            assert_eq!(stream.download(&block.view(..4).unwrap()).unwrap(), [2; 4]);
        }
    });
}
