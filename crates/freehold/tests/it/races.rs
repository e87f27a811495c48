//! Threads that meet inside driver calls: the effect of a call is not lost, and no call is made about what another
//! thread has ended.

use crate::own;

use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Barrier, Mutex, OnceLock, PoisonError};
use std::thread;

use freehold::ledger::State;
use freehold::{Context, Device, Error, Grid};
use freehold_driver::cuda::watch::{CallEvent, watch};
use freehold_driver::cuda::{Api, Function};
use own::{Kernels, N, Own, image, opened};

/// Where calls of a function meet before they reach the driver. It is used up by the first so many calls.
struct Meeting {
    function: Function,
    calls: u32,
    come: Arc<Barrier>,
    go: Arc<Barrier>,
}

static MEETING: Mutex<Option<Meeting>> = Mutex::new(None);
static DESTROYED: AtomicU32 = AtomicU32::new(0);
static EVENTS_DESTROYED: AtomicU32 = AtomicU32::new(0);

/// A device whose calls meet. The driver of a process is watched once.
fn watched() -> Own {
    static WATCHED: OnceLock<Api> = OnceLock::new();
    let opened = opened();
    let api = WATCHED.get_or_init(|| watch(&opened.api, note));
    Own::over(*api, &opened)
}

fn note(event: CallEvent<'_>) {
    let CallEvent::Enter { function, .. } = event else { return };
    match function {
        Function::cuCtxDestroy_v2 => drop(DESTROYED.fetch_add(1, Ordering::SeqCst)),
        Function::cuEventDestroy_v2 => drop(EVENTS_DESTROYED.fetch_add(1, Ordering::SeqCst)),
        _ => {}
    }
    let mut meeting = MEETING.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(here) = meeting.as_mut().filter(|here| here.function == function) else { return };
    let (come, go) = (here.come.clone(), here.go.clone());
    here.calls -= 1;
    if here.calls == 0 {
        *meeting = None;
    }
    drop(meeting);
    come.wait();
    go.wait();
}

/// Lets the next call of `function` stop before it reaches the driver, calls `meanwhile`, and lets it go on.
fn within_call(function: Function, call: impl FnOnce() + Send, meanwhile: impl FnOnce()) {
    let (come, go) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    let meeting = Meeting { function, calls: 1, come: come.clone(), go: go.clone() };
    *MEETING.lock().unwrap_or_else(PoisonError::into_inner) = Some(meeting);
    thread::scope(|scope| {
        scope.spawn(call);
        come.wait();
        // The call is let go on in any case: the scope waits for it.
        let outcome = panic::catch_unwind(AssertUnwindSafe(meanwhile));
        go.wait();
        if let Err(failure) = outcome {
            panic::resume_unwind(failure);
        }
    });
}

#[test]
fn writes_of_two_threads_to_two_parts_of_a_block_are_both_waited_for() {
    let own = watched();
    let [home, one, two] = own.streams();
    let mut block = home.alloc::<u32>(N).unwrap();
    let address = block.address();
    let gate = own.gate();
    own.hold(&one, &gate);
    own.hold(&two, &gate);
    let (mut low, mut high) = block.view_mut(..).unwrap().split_at(N / 2).unwrap();
    // Both come after what they had to wait for before either is noted.
    let both = Arc::new(Barrier::new(2));
    let meeting =
        Meeting { function: Function::cuMemsetD8Async, calls: 2, come: both.clone(), go: Arc::new(Barrier::new(2)) };
    *MEETING.lock().unwrap_or_else(PoisonError::into_inner) = Some(meeting);
    thread::scope(|scope| {
        scope.spawn(|| one.fill_bytes(&mut low, 1).unwrap());
        scope.spawn(|| two.fill_bytes(&mut high, 2).unwrap());
    });
    drop(block);
    assert_eq!(own.device.owner_of(address).unwrap().state, State::Released { waiting_for: 2 });
    gate.open();
}

#[test]
fn a_context_is_not_destroyed_under_work_of_another_that_was_being_put_in_when_it_was_closed() {
    let own = watched();
    let context = own.device.new_context().unwrap();
    let [stream] = own.streams();
    let mut block = context.new_stream().unwrap().alloc::<u32>(N).unwrap();
    let gate = own.gate();
    let before = DESTROYED.load(Ordering::SeqCst);
    within_call(
        Function::cuMemsetD8Async,
        || stream.fill_bytes(&mut block, 1).unwrap(),
        || {
            context.close_with_blocks().unwrap();
            own.hold(&stream, &gate);
        },
    );
    own.device.tidy().unwrap();
    assert_eq!(DESTROYED.load(Ordering::SeqCst), before, "the fill is still to come");
    gate.open();
    stream.synchronize().unwrap();
    assert_eq!(DESTROYED.load(Ordering::SeqCst), before + 1);
}

/// Closes a context while a call of another thread is about to reach the driver.
fn close_within(own: &Own, function: Function, call: impl FnOnce(&Context, &Kernels) -> Result<(), Error> + Send) {
    let context = own.device.new_context().unwrap();
    let kernels = Kernels::load(&context);
    let before = DESTROYED.load(Ordering::SeqCst);
    within_call(
        function,
        || {
            let outcome = call(&context, &kernels);
            assert!(matches!(outcome, Ok(()) | Err(Error::ContextClosed { .. })), "{function:?}: {outcome:?}");
        },
        || {
            context.clone().close_with_blocks().unwrap();
            assert_eq!(DESTROYED.load(Ordering::SeqCst), before, "the context was destroyed under {function:?}");
        },
    );
    drop(kernels);
    own.device.tidy().unwrap();
    assert_eq!(DESTROYED.load(Ordering::SeqCst), before + 1, "{function:?}");
}

#[test]
fn a_context_is_not_destroyed_within_a_call_about_it() {
    let own = watched();
    close_within(&own, Function::cuStreamCreate, |context, _| context.new_stream().map(drop));
    close_within(&own, Function::cuMemMap, |context, _| context.new_stream()?.alloc::<u32>(N).map(drop));
    close_within(&own, Function::cuMemUnmap, |context, _| {
        context.new_stream()?.alloc::<u32>(N)?.release_now().map_err(Error::from)
    });
    close_within(&own, Function::cuStreamQuery, |context, _| context.new_stream()?.is_idle().map(drop));
    close_within(&own, Function::cuCtxSynchronize, |context, _| context.synchronize());
    close_within(&own, Function::cuModuleLoadDataEx, |context, _| context.module(&image()).map(drop));
    close_within(&own, Function::cuModuleGetFunction, |_, kernels| {
        crate::own::kernel(&kernels.module, "add").map(drop)
    });
    close_within(&own, Function::cuModuleGetGlobal_v2, |_, kernels| kernels.module.variable("counter").map(drop));
    assert_eq!(own.device.blocks().len(), 0);
    assert!(own.device.drop_errors().is_empty());
}

#[test]
fn a_context_is_not_destroyed_while_one_of_its_streams_is_made_to_wait() {
    let own = watched();
    let [stream] = own.streams();
    let gate = own.gate();
    let mut block = stream.alloc::<u32>(N).unwrap();
    own.hold(&stream, &gate);
    stream.fill_bytes(&mut block, 1).unwrap();
    let context = own.device.new_context().unwrap();
    let waiting = context.new_stream().unwrap();
    let before = DESTROYED.load(Ordering::SeqCst);
    within_call(
        Function::cuStreamWaitEvent,
        || {
            let outcome = waiting.download(&block).map(drop);
            assert!(matches!(outcome, Ok(()) | Err(Error::ContextClosed { .. })), "{outcome:?}");
        },
        || {
            context.clone().close_with_blocks().unwrap();
            gate.open();
            while !stream.is_idle().unwrap() {
                thread::yield_now();
            }
            own.device.tidy().unwrap();
            assert_eq!(DESTROYED.load(Ordering::SeqCst), before);
        },
    );
    own.device.tidy().unwrap();
    assert_eq!(DESTROYED.load(Ordering::SeqCst), before + 1);
}

#[test]
fn an_event_is_not_destroyed_while_somebody_waits_for_it() {
    let own = watched();
    let [stream] = own.streams();
    let gate = own.gate();
    own.hold(&stream, &gate);
    let event = stream.event().unwrap();
    drop(stream);
    let before = EVENTS_DESTROYED.load(Ordering::SeqCst);
    within_call(
        Function::cuEventSynchronize,
        || event.synchronize().unwrap(),
        || {
            gate.open();
            own.device.synchronize().unwrap();
            while !event.is_complete().unwrap() {
                thread::yield_now();
            }
            own.device.tidy().unwrap();
            assert_eq!(EVENTS_DESTROYED.load(Ordering::SeqCst), before);
        },
    );
    own.device.tidy().unwrap();
    assert_eq!(EVENTS_DESTROYED.load(Ordering::SeqCst), before + 1);
}

#[test]
fn a_use_in_a_stream_of_another_device_is_refused() {
    let own = Own::new();
    // SAFETY: the table is a driver's, and nothing of the device is destroyed by others.
    let other = unsafe { Device::new(own.api, opened().device) }.unwrap();
    let [stream] = own.streams();
    let far = other.new_stream().unwrap();
    let address = stream.alloc::<u32>(N).unwrap().into_address();
    let refused = own.device.note_use(address, &far).unwrap_err();
    assert_eq!(refused.to_string(), "a stream of another device cannot be used here");
    let refused = far.launch(&own.kernels.wait, Grid::line(1, 1), (0_u64,)).unwrap_err();
    assert_eq!(refused.to_string(), "a kernel of another device cannot be used here");
    let refused = far.read_variable::<u32>(&own.kernels.module, "counter").unwrap_err();
    assert_eq!(refused.to_string(), "a variable of another device cannot be used here");
    own.device.release(address).unwrap();
}
