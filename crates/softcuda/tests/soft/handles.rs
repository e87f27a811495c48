//! Handles look like those of NVIDIA's driver, which are pointers: programs read them as signed numbers and as
//! addresses.

use crate::common;

use std::collections::BTreeSet;
use std::ffi::{c_char, c_void};
use std::fs;

use common::Context;
use common::kernels::TEXT;
use freehold_driver::cuda::module::Options;
use freehold_driver::cuda::{
    CUlogLevel, CUmemPoolProps, CUstreamCaptureMode, allocation, capture, device, event, fill, graph, kernel, library,
    link, logs, pool, primary,
};

unsafe extern "C" fn deaf(_: *mut c_void, _: CUlogLevel, _: *mut c_char, _: usize) {}

/// Creates two handles of every kind.
fn handles(own: &Context) -> Vec<(&'static str, u64)> {
    let (api, ordinal) = (&own.api, own.device);
    let mut found = vec![
        ("context", own.handle.0 as u64),
        ("primary context", primary::retain(api, ordinal).unwrap().0 as u64),
        ("default pool", device::default_pool(api, ordinal).unwrap().0 as u64),
    ];
    for _ in 0..2 {
        let (stream, module) = (own.stream(), own.module());
        capture::begin(api, stream, CUstreamCaptureMode::RELAXED).unwrap();
        fill::d8_async(api, own.block(512), 1, 512, stream).unwrap();
        let graph = capture::end(api, stream).unwrap();
        // SAFETY: the text ends in a NUL, and there are no options.
        let library = unsafe { library::load(api, TEXT.as_ptr().cast(), &mut Options::new()) }.unwrap();
        let kernel = library::kernel(api, library, c"nothing").unwrap();
        // SAFETY: there are no options.
        let link = unsafe { link::create(api, &mut Options::new()) }.unwrap();
        // SAFETY: the function does nothing.
        let listener = unsafe { logs::register(api, deaf, std::ptr::null_mut()) }.unwrap();
        found.extend([
            ("stream", stream.0 as u64),
            ("event", event::create(api, 0).unwrap().0 as u64),
            ("pool", pool::create(api, &CUmemPoolProps::on_device(ordinal)).unwrap().0 as u64),
            ("module", module.0 as u64),
            ("function", own.function(module, c"store").0 as u64),
            ("graph", graph.0 as u64),
            ("node", graph::nodes(api, graph, 1).unwrap()[0].0 as u64),
            ("executable graph", graph::instantiate(api, graph, 0).unwrap().0 as u64),
            ("library", library.0 as u64),
            ("kernel", kernel.0 as u64),
            ("function of a kernel", kernel::function(api, kernel).unwrap().0 as u64),
            ("link", link.0 as u64),
            ("allocation", allocation::create(api, 2 << 20, &own.prop()).unwrap().0),
            ("listener of the log", listener.0 as u64),
        ]);
    }
    found
}

/// Returns the access rights of an address in the form `rwxp`, or `None` if nothing is mapped there.
fn rights(address: u64) -> Option<String> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let line = maps.lines().find(|line| {
        let (range, _) = line.split_once(' ').unwrap();
        let (start, end) = range.split_once('-').unwrap();
        let number = |text| u64::from_str_radix(text, 16).unwrap();
        (number(start)..number(end)).contains(&address)
    })?;
    line.split(' ').nth(1).map(str::to_owned)
}

#[test]
fn a_handle_is_an_aligned_address_below_2_to_the_47() {
    for (kind, handle) in handles(&Context::create()) {
        assert!((1 << 16..1 << 47).contains(&handle), "{kind} {handle:#x}");
        assert_eq!(handle % 16, 0, "{kind} {handle:#x}");
    }
}

#[test]
fn no_two_handles_are_equal() {
    let found = handles(&Context::create());
    let different: BTreeSet<_> = found.iter().map(|(_, handle)| handle).collect();
    assert_eq!(different.len(), found.len(), "{found:x?}");
}

#[test]
fn a_handle_is_reserved_and_can_be_neither_read_nor_written() {
    let own = Context::create();
    for (kind, handle) in handles(&own) {
        assert_eq!(rights(handle).as_deref(), Some("---p"), "{kind} {handle:#x}");
    }
    let word = own.pinned(8);
    assert!(rights(word.address().0).unwrap().starts_with("rw"));
}
