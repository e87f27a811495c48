//! The number of imports that one process of the software driver can hold.

use crate::chunks;
use crate::common;

use std::os::fd::AsFd;

use chunks::CHUNK;
use common::{Context, at, child};
use freehold_driver::cuda::{address, allocation, fill, memory};

#[test]
fn ten_thousand_imports_live_in_one_process() {
    const COUNT: usize = 10_000;
    child::run_in_child("ten_thousand_imports_live_in_one_process", || {
        let own = Context::create();
        let (chunk, start) = (own.chunk(), own.addresses(COUNT));
        let free_bytes = || memory::info(&own.api).unwrap().free_bytes;
        let before = free_bytes();
        let descriptor = allocation::export(&own.api, chunk).unwrap();
        let place = |index: usize| at(start, (index * CHUNK) as u64);
        let imports: Vec<_> = (0..COUNT)
            .map(|index| {
                let import = allocation::import(&own.api, descriptor.as_fd());
                let import = import.unwrap_or_else(|error| panic!("{index} imports live: {error}"));
                own.map(place(index), import);
                import
            })
            .collect();
        assert_eq!(free_bytes(), before, "all of them are one memory");
        fill::d8(&own.api, place(COUNT - 1), 7, CHUNK).unwrap();
        assert_eq!(own.byte(start, CHUNK), 7);
        assert_eq!(own.byte(place(COUNT / 2), CHUNK), 7);
        imports.into_iter().for_each(|import| own.release(import));
        own.unmap(start, COUNT);
        address::free(&own.api, start, COUNT * CHUNK).unwrap();
        drop(descriptor);
        assert_eq!(free_bytes(), before, "the first handle keeps it");
        own.release(chunk);
        assert_eq!(free_bytes(), before + CHUNK);
    });
}
