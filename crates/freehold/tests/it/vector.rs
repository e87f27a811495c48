//! Vectors: they grow in place under running kernels, give memory back after their work, and are unchanged after a
//! failure.

use crate::own;

use freehold::ledger::{State, WrongRelease};
use freehold::{CloseError, Device, DeviceVec, Error, Stream};
use freehold_driver::cuda::faults::{Fault, Faults};
use freehold_driver::cuda::{Api, CUdevice, CUdevice_attribute, CUerror, CUresult, Function};
use freehold_testing::{at_effort, report_covered};
use own::{N, Own, grid, opened};

/// Elements of a page of 2 MiB, in which memory is mapped.
const PAGE: usize = (2 << 20) / 4;

/// What the driver gave to a device of a test's own.
fn reserved_bytes(device: &Device) -> u64 {
    device.stats().reserved_bytes
}

/// A vector of so many ones.
fn ones(stream: &Stream, len: usize) -> DeviceVec<u32> {
    let mut vec = DeviceVec::with_max_len(stream, 64 * PAGE).unwrap();
    vec.extend_from_host(stream, &vec![1; len]).unwrap();
    vec
}

#[test]
fn a_vector_keeps_its_address_and_its_elements_when_it_grows() {
    let own = Own::new();
    let [stream] = own.streams();
    let mut vec = DeviceVec::<u32>::new(&stream).unwrap();
    let address = vec.address();
    let mut wanted = Vec::new();
    for step in 0..5_u32 {
        let more: Vec<u32> = (0..PAGE as u32).map(|index| index ^ step).collect();
        vec.extend_from_host(&stream, &more).unwrap();
        wanted.extend(more);
        assert_eq!((vec.address(), vec.len()), (address, wanted.len()));
    }
    assert!(vec.grows_in_place());
    assert!(vec.download(&stream).unwrap() == wanted);
}

#[test]
fn appending_doubles_and_reserving_does_not() {
    let own = Own::new();
    let [stream] = own.streams();
    let mut vec = DeviceVec::<u32>::with_max_len(&stream, 7 * PAGE).unwrap();
    assert_eq!((vec.len(), vec.capacity(), vec.max_len(), vec.owner()), (0, 0, 7 * PAGE, None));
    vec.reserve(&stream, 3 * PAGE - 1).unwrap();
    assert_eq!(vec.capacity(), 3 * PAGE);
    vec.resize(&stream, 3 * PAGE, 0).unwrap();
    vec.extend_from_host(&stream, &[1]).unwrap();
    assert_eq!(vec.capacity(), 6 * PAGE);
    // Not beyond its addresses.
    vec.resize(&stream, 6 * PAGE + 1, 0).unwrap();
    assert_eq!(vec.capacity(), 7 * PAGE);
}

#[test]
fn a_growth_is_one_mapping_of_new_memory_or_of_memory_that_is_kept() {
    let opened = opened();
    let api = *Faults::count(&opened.api).api();
    let own = Own::over(api, &opened);
    let [stream] = own.streams();
    let calls = |faults: &Faults| {
        let counted = [Function::cuMemCreate, Function::cuMemMap, Function::cuMemSetAccess, Function::cuMemUnmap];
        counted.map(|function| faults.calls_of(function))
    };
    let mut vec = ones(&stream, 2 * PAGE);
    let faults = Faults::count(&opened.api);
    vec.reserve(&stream, 2 * PAGE).unwrap();
    assert_eq!(calls(&faults), [1, 1, 1, 0]);
    stream.synchronize().unwrap();
    vec.shrink_to_fit().unwrap();
    assert_eq!(calls(&faults), [1, 1, 1, 1]);
    vec.reserve(&stream, 2 * PAGE).unwrap();
    assert_eq!(calls(&faults), [1, 2, 2, 1]);
    drop(faults);
    assert!(vec.download(&stream).unwrap() == vec![1; 2 * PAGE]);
}

#[test]
fn a_vector_grows_while_a_kernel_runs_on_its_elements() {
    let own = Own::new();
    let [busy, idle] = own.streams();
    let mut vec = ones(&idle, N);
    idle.synchronize().unwrap();
    let gate = own.gate();
    own.hold(&busy, &gate);
    busy.launch(&own.kernels.add, grid(), (&mut vec, 1_u32, N as u32)).unwrap();
    // What is appended was nobody's: it is written beside the kernel, and the host waits for neither.
    vec.extend_from_host(&idle, &vec![7; 2 * PAGE]).unwrap();
    vec.resize(&idle, 4 * PAGE, 1).unwrap();
    idle.synchronize().unwrap();
    gate.open();
    let found = vec.download(&idle).unwrap();
    assert_eq!(found.len(), 4 * PAGE);
    assert_eq!(found[..N], [2; N]);
    assert!(found[N..N + 2 * PAGE].iter().all(|&value| value == 7));
    assert!(found[N + 2 * PAGE..].iter().all(|&value| value == 1));
}

#[test]
fn many_growths_leak_nothing() {
    let own = Own::new();
    let [stream] = own.streams();
    own.device.trim().unwrap();
    let before = reserved_bytes(&own.device);
    for round in 0..at_effort(2, 25, 500) {
        let mut vec = ones(&stream, 1);
        for pages in 2..=20 {
            vec.reserve(&stream, PAGE).unwrap();
            vec.resize(&stream, vec.len() + PAGE, 0).unwrap();
            assert_eq!(vec.capacity(), pages * PAGE);
        }
        if round % 2 == 0 {
            vec.truncate(PAGE);
            vec.shrink_to_fit().unwrap();
        }
        // What the stream has not come to yet fits the device.
        if round % 25 == 24 {
            stream.synchronize().unwrap();
        }
    }
    stream.synchronize().unwrap();
    own.device.trim().unwrap();
    assert_eq!(reserved_bytes(&own.device), before);
    assert_eq!(own.device.stats().released_blocks, 0);
}

#[test]
fn shrinking_gives_memory_back_when_its_work_has_passed() {
    let own = Own::new();
    let [busy, home] = own.streams();
    own.device.trim().unwrap();
    let before = reserved_bytes(&own.device);
    let mut vec = ones(&home, PAGE);
    vec.reserve(&home, 3 * PAGE).unwrap();
    vec.resize(&home, 4 * PAGE, 0).unwrap();
    home.synchronize().unwrap();
    let gate = own.gate();
    own.hold(&busy, &gate);
    let mut part = vec.view_mut(2 * PAGE..2 * PAGE + N).unwrap();
    busy.launch(&own.kernels.add, grid(), (&mut part, 1_u32, N as u32)).unwrap();
    vec.truncate(PAGE);
    vec.shrink_to_fit().unwrap();
    assert_eq!((vec.len(), vec.capacity()), (PAGE, PAGE));
    assert_eq!(vec.owner().unwrap().bytes, 2 << 20);
    own.device.trim().unwrap();
    assert!(reserved_bytes(&own.device) >= before + (8 << 20), "a kernel will use it");
    gate.open();
    busy.synchronize().unwrap();
    own.device.trim().unwrap();
    assert_eq!(reserved_bytes(&own.device), before + (2 << 20));
    assert!(vec.download(&home).unwrap() == vec![1; PAGE]);
}

#[test]
fn a_vector_that_grows_before_its_shrinking_is_done_has_its_memory_still() {
    let opened = opened();
    let api = *Faults::count(&opened.api).api();
    let own = Own::over(api, &opened);
    let [busy, home] = own.streams();
    let mut vec = ones(&home, PAGE);
    vec.reserve(&home, PAGE).unwrap();
    let gate = own.gate();
    own.hold(&busy, &gate);
    busy.launch(&own.kernels.add, grid(), (&mut vec, 1_u32, N as u32)).unwrap();
    let faults = Faults::count(&opened.api);
    vec.shrink_to_fit().unwrap();
    assert_eq!(vec.capacity(), PAGE);
    vec.reserve(&home, PAGE).unwrap();
    assert_eq!(vec.capacity(), 2 * PAGE);
    let mapped = [Function::cuMemCreate, Function::cuMemMap, Function::cuMemUnmap].map(|call| faults.calls_of(call));
    assert_eq!(mapped, [0, 0, 0]);
    drop(faults);
    gate.open();
    own.device.synchronize().unwrap();
    own.device.trim().unwrap();
    // What was to leave stays.
    vec.resize(&home, 2 * PAGE, 0).unwrap();
    assert_eq!(vec.download(&home).unwrap()[2 * PAGE - 1], 0);
}

#[test]
fn a_vector_dropped_in_use_goes_behind_its_work_and_nothing_waits() {
    let own = Own::new();
    let [busy, home] = own.streams();
    let mut copy = home.alloc::<u32>(N).unwrap();
    let mut vec = ones(&home, 3 * PAGE);
    let address = vec.address();
    home.synchronize().unwrap();
    let gate = own.gate();
    own.hold(&busy, &gate);
    busy.launch(&own.kernels.add, grid(), (&mut vec, 1_u32, N as u32)).unwrap();
    busy.copy(&vec.view(..N).unwrap(), &mut copy).unwrap();
    drop(vec);
    own.device.tidy().unwrap();
    let state = own.device.owner_of(address + 4).unwrap().state;
    assert_eq!(state, State::Released { waiting_for: 1 });
    assert_eq!(own.device.stats().released_bytes, 6 << 20);
    gate.open();
    assert_eq!(busy.download(&copy).unwrap(), [2; N]);
    own.device.tidy().unwrap();
    assert_eq!(own.device.owner_of(address + 4), None);
    assert_eq!(own.device.stats().released_bytes, 0);
    assert!(own.device.drop_errors().is_empty());
}

#[test]
fn memory_of_a_dropped_vector_is_there_for_blocks_when_its_work_has_passed() {
    let own = Own::new();
    let [busy, home] = own.streams();
    own.device.trim().unwrap();
    let mut vec = ones(&home, 4 * PAGE);
    home.synchronize().unwrap();
    own.device.set_budget(reserved_bytes(&own.device));
    let gate = own.gate();
    own.hold(&busy, &gate);
    busy.launch(&own.kernels.add, grid(), (&mut vec, 1_u32, N as u32)).unwrap();
    drop(vec);
    let refused = home.alloc::<u32>(4 * PAGE);
    assert!(matches!(refused, Err(Error::OutOfMemory(_))), "{refused:?}");
    gate.open();
    while !busy.is_idle().unwrap() {
        std::thread::yield_now();
    }
    let block = home.upload(&vec![5_u32; 4 * PAGE]).unwrap();
    assert!(home.download(&block).unwrap() == vec![5; 4 * PAGE]);
}

#[test]
fn the_ledger_knows_all_memory_of_a_vector() {
    let own = Own::new();
    let [stream] = own.streams();
    let mut vec = ones(&stream, 10);
    let (address, owned) = (vec.address(), own.device.stats().owned_bytes);
    assert_eq!(own.device.owner_of(address + 39), vec.owner());
    assert_eq!(own.device.owner_of(address + (2 << 20)), None);
    vec.reserve(&stream, 600 * PAGE / 10).unwrap();
    let owner = own.device.owner_of(address + (60 << 20)).unwrap();
    assert_eq!((owner.base, owner.bytes, owner.state), (address, 122 << 20, State::Owned));
    assert_eq!(own.device.stats().owned_bytes, owned + (120 << 20));
    let refused = own.device.release(address).unwrap_err();
    assert!(matches!(refused, Error::WrongRelease(WrongRelease::Held { .. })), "{refused:?}");
    stream.synchronize().unwrap();
    drop(vec);
    assert_eq!(own.device.owner_of(address), None);
}

#[test]
fn a_budget_refuses_growth_and_the_vector_stays_as_it_was() {
    let own = Own::new();
    let [stream] = own.streams();
    let mut vec = ones(&stream, PAGE);
    own.device.trim().unwrap();
    let before = reserved_bytes(&own.device);
    own.device.set_budget(before + (6 << 20));
    let refused = vec.extend_from_host(&stream, &vec![2; 4 * PAGE]);
    assert!(matches!(refused, Err(Error::OutOfMemory(_))), "{refused:?}");
    assert_eq!((vec.len(), vec.capacity()), (PAGE, PAGE));
    assert_eq!(reserved_bytes(&own.device), before);
    // Twice as much is not to be had, what is asked for is.
    vec.extend_from_host(&stream, &vec![2; 3 * PAGE]).unwrap();
    let mut wanted = vec![1; PAGE];
    wanted.resize(4 * PAGE, 2);
    assert!(vec.download(&stream).unwrap() == wanted);
    let refused = vec.reserve(&stream, 1);
    assert!(matches!(refused, Err(Error::OutOfMemory(_))), "{refused:?}");
    own.device.set_budget(u64::MAX);
    vec.reserve(&stream, 1).unwrap();
}

#[test]
fn more_elements_than_addresses_are_refused_with_numbers() {
    let own = Own::new();
    let [stream] = own.streams();
    let mut vec = DeviceVec::<u64>::with_max_len(&stream, 5).unwrap();
    vec.extend_from_host(&stream, &[1, 2, 3]).unwrap();
    let refused = vec.extend_from_host(&stream, &[4, 5, 6]).unwrap_err();
    assert!(matches!(refused, Error::VectorFull { wanted_elements: 6, max_elements: 5 }), "{refused:?}");
    let refused = vec.reserve(&stream, usize::MAX).unwrap_err();
    assert!(matches!(refused, Error::VectorFull { wanted_elements: usize::MAX, max_elements: 5 }), "{refused:?}");
    assert_eq!(vec.download(&stream).unwrap(), [1, 2, 3]);
    let refused = DeviceVec::<u64>::with_max_len(&stream, 0).unwrap_err();
    assert!(matches!(refused, Error::NothingAsked), "{refused:?}");
    let refused = DeviceVec::<()>::new(&stream).unwrap_err();
    assert!(matches!(refused, Error::NothingAsked), "{refused:?}");
    let refused = DeviceVec::<u64>::with_max_len(&stream, usize::MAX).unwrap_err();
    assert!(matches!(refused, Error::TooManyElements { element_bytes: 8, .. }), "{refused:?}");
}

#[test]
fn for_every_n_the_nth_call_of_a_growth_fails_and_the_vector_is_as_it_was() {
    let opened = opened();
    let api = *Faults::count(&opened.api).api();
    let own = Own::over(api, &opened);
    let [stream] = own.streams();
    for code in [CUerror::INVALID_VALUE, CUerror::OUT_OF_MEMORY] {
        let mut failed = 0;
        for nth in (1..).step_by(at_effort(3, 1, 1)) {
            own.device.trim().unwrap();
            let before = reserved_bytes(&own.device);
            let mut vec = ones(&stream, PAGE);
            stream.synchronize().unwrap();
            let faults = Faults::plan(&opened.api, Fault { function: None, nth, code });
            let grown = vec.reserve(&stream, PAGE);
            let fired = faults.has_fired();
            drop(faults);
            if grown.is_err() {
                failed += 1;
                assert_eq!(vec.capacity(), PAGE, "{grown:?}");
            } else {
                assert_eq!(vec.capacity(), 2 * PAGE);
            }
            assert_eq!(vec.owner().unwrap().bytes, vec.capacity() as u64 * 4);
            vec.extend_from_host(&stream, &[2]).unwrap();
            assert_eq!(vec.download(&stream).unwrap()[PAGE - 1..], [1, 2]);
            drop(vec);
            own.device.trim().unwrap();
            assert_eq!(reserved_bytes(&own.device), before, "call {nth} fails with {code}");
            if !fired {
                break;
            }
        }
        report_covered(failed, "failed calls");
        assert!(failed >= at_effort(1, 3, 3), "{failed} growths failed");
    }
}

#[test]
fn for_every_n_the_nth_call_of_a_drop_fails_and_the_memory_goes_later() {
    let opened = opened();
    let api = *Faults::count(&opened.api).api();
    let own = Own::over(api, &opened);
    let [stream] = own.streams();
    own.device.trim().unwrap();
    let before = reserved_bytes(&own.device);
    for nth in 1.. {
        let mut vec = ones(&stream, 2 * PAGE);
        vec.reserve(&stream, 2 * PAGE).unwrap();
        let faults = Faults::plan(&opened.api, Fault { function: None, nth, code: CUerror::INVALID_VALUE });
        drop(vec);
        let fired = faults.has_fired();
        drop(faults);
        // None, where the call is made again.
        assert!(own.device.drop_errors().len() <= usize::from(fired), "call {nth}");
        stream.synchronize().unwrap();
        own.device.trim().unwrap();
        assert_eq!(reserved_bytes(&own.device), before, "call {nth}");
        if !fired {
            assert!(nth > 5, "a drop makes {nth} calls");
            break;
        }
    }
}

#[test]
fn a_vector_of_a_closed_context_says_so_and_gives_its_memory_back() {
    let own = Own::new();
    own.device.trim().unwrap();
    let before = reserved_bytes(&own.device);
    let context = own.device.new_context().unwrap();
    let stream = context.new_stream().unwrap();
    let mut vec = ones(&stream, PAGE);
    let context = match context.close() {
        Err(CloseError { value: context, error: Error::ContextInUse { blocks, .. } }) => {
            assert_eq!(blocks, [vec.owner().unwrap()]);
            context
        }
        closed => panic!("{closed:?}"),
    };
    context.close_with_blocks().unwrap();
    let here = own.device.new_stream().unwrap();
    assert!(matches!(vec.download(&here), Err(Error::ContextClosed { .. })));
    assert!(matches!(vec.reserve(&here, PAGE), Err(Error::ContextClosed { .. })));
    assert!(matches!(vec.shrink_to_fit(), Err(Error::ContextClosed { .. })));
    drop((vec, stream));
    own.device.synchronize().unwrap();
    own.device.trim().unwrap();
    assert_eq!(reserved_bytes(&own.device), before);
}

/// The driver's own answers, for the table below.
static PLAIN: std::sync::OnceLock<Api> = std::sync::OnceLock::new();

unsafe extern "C" fn maps_nothing(value: *mut i32, attribute: CUdevice_attribute, device: CUdevice) -> CUresult {
    if attribute == CUdevice_attribute::VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED {
        // SAFETY: the caller gives a pointer to one `i32`, which outlives the call.
        unsafe { value.write(0) };
        return Ok(());
    }
    // SAFETY: the arguments are handed on as they came.
    unsafe { (PLAIN.get().unwrap().cuDeviceGetAttribute)(value, attribute, device) }
}

#[test]
fn on_a_device_without_mapping_a_vector_is_copied_in_stream_order_and_says_so() {
    let opened = opened();
    PLAIN.get_or_init(|| opened.api);
    let own = Own::over(Api { cuDeviceGetAttribute: maps_nothing, ..opened.api }, &opened);
    let [busy, home] = own.streams();
    let mut vec = ones(&home, N);
    assert!(!vec.grows_in_place());
    home.synchronize().unwrap();
    let address = vec.address();
    let gate = own.gate();
    own.hold(&busy, &gate);
    busy.launch(&own.kernels.add, grid(), (&mut vec, 1_u32, N as u32)).unwrap();
    vec.extend_from_host(&home, &vec![7; 2 * PAGE]).unwrap();
    assert_ne!(vec.address(), address);
    own.pass_by();
    assert!(!home.is_idle().unwrap());
    gate.open();
    let found = vec.download(&home).unwrap();
    assert_eq!(found[..N], [2; N]);
    assert!(found[N..].iter().all(|&value| value == 7));
    vec.truncate(1);
    vec.shrink_to_fit().unwrap();
    vec.resize(&home, 3, 0).unwrap();
    assert_eq!(vec.download(&home).unwrap(), [2, 0, 0]);
    let refused = vec.reserve(&home, 64 * PAGE).unwrap_err();
    assert!(matches!(refused, Error::VectorFull { .. }), "{refused:?}");
}
