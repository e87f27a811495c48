//! Shared by all wrappers: the current call, and the macro that defines wrappers.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU64, Ordering};

use freehold_check::Kind;
use freehold_check::calls::{Awaited, Item, LegacyOrder, StreamKey, StreamKind};
use freehold_driver::cuda::{Api, CUcontext, CUerror, CUresult, CUstream, CUstreamCaptureStatus, stream_flags};

use super::checked_process::{Calls, get};
pub(super) use super::driver_functions::Default;
use super::driver_functions::Unlisted;
use super::lock::lock;

/// The errors after which a context is of no use: kernels that faulted, timed out or asserted.
const FAULTS: &[u32] = &[700, 702, 710, 714, 715, 716, 717, 718, 719];

/// A call of the program.
#[derive(Clone, Copy)]
pub(super) struct Call {
    pub(super) calls: &'static Calls,
    /// The driver for calls of this kind.
    pub(super) api: &'static Api,
    /// The function.
    pub(super) name: &'static str,
    default: Default,
}

thread_local! {
    /// The number of this thread, from 1.
    static THREAD: Cell<u64> = const { Cell::new(0) };
}

/// Forgets the default streams of a thread that ends.
struct ThreadEnd {
    number: u64,
    end: fn(u64),
}

impl Drop for ThreadEnd {
    fn drop(&mut self) {
        // Later destructors of the thread may still call the driver. Their streams are those of the next thread with this id.
        let id = rustix::thread::gettid().as_raw_nonzero().get();
        THREAD.with(|number| number.set(ENDING | u64::from(id.unsigned_abs())));
        (self.end)(self.number);
    }
}

/// The numbers of threads whose thread-locals are gone.
const ENDING: u64 = 1 << 32;

#[inline]
fn thread_number() -> u64 {
    match THREAD.with(Cell::get) {
        0 => first_thread_number(|number| {
            if let Some(calls) = get() {
                calls.checker.end_thread(number);
            }
        }),
        number => number,
    }
}

/// Gives this thread a number. `end` is called with it when the thread ends.
#[cold]
fn first_thread_number(end: fn(u64)) -> u64 {
    thread_local! {
        static AT_END: RefCell<Option<ThreadEnd>> = const { RefCell::new(None) };
    }
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed) + 1;
    THREAD.with(|own| own.set(number));
    let end = ThreadEnd { number, end };
    // Dropped at once if the thread-locals of this thread are gone.
    let _ = AT_END.try_with(move |at_end| *at_end.borrow_mut() = Some(end));
    THREAD.with(Cell::get)
}

impl Call {
    #[cfg(test)]
    pub(super) fn of(calls: &'static Calls, name: &'static str) -> Self {
        Self { calls, api: &calls.api, name, default: Default::Legacy }
    }

    /// Returns the call, or an error if calls are not checked: then nothing leads here.
    #[inline]
    pub(super) fn new(name: &'static str, default: Default) -> Result<Self, CUerror> {
        let calls = get().ok_or(CUerror::NOT_INITIALIZED)?;
        let api = if default == Default::Legacy { &calls.api } else { &calls.per_thread_api };
        Ok(Self { calls, api, name, default })
    }

    /// Returns whether stream zero is the calling thread's.
    pub(super) fn is_per_thread(&self) -> bool {
        self.default == Default::PerThread
    }

    /// Returns the driver's functions that are in no table.
    pub(super) fn unlisted(&self) -> &'static Unlisted {
        if self.default == Default::Legacy { &self.calls.unlisted } else { &self.calls.per_thread_unlisted }
    }

    /// Returns the current context as a number, zero if there is none.
    pub(super) fn context(&self) -> u64 {
        let mut context = CUcontext::NULL;
        // SAFETY: `context` is a valid place for the answer.
        let asked = unsafe { (self.api.cuCtxGetCurrent)(&raw mut context) };
        asked.map_or(0, |()| context.0 as u64)
    }

    /// Returns what the checker calls a stream.
    #[inline]
    pub(super) fn key(&self, stream: CUstream) -> StreamKey {
        let is_per_thread = stream == CUstream::PER_THREAD || stream.0 == 0 && self.default == Default::PerThread;
        match stream {
            _ if is_per_thread => StreamKey::of_thread(self.context(), thread_number()),
            CUstream::NULL | CUstream::LEGACY => StreamKey::legacy(self.context()),
            _ => StreamKey::created(stream.0 as u64),
        }
    }

    /// Returns the same for a stream that the checker knows afterwards.
    pub(super) fn known_key(&self, stream: CUstream) -> StreamKey {
        let key = self.key(stream);
        if !self.calls.checker.knows_stream(key) {
            self.add_stream(key, stream);
        }
        key
    }

    /// Tells the checker of a stream that it does not know.
    #[cold]
    fn add_stream(&self, key: StreamKey, stream: CUstream) {
        let checker = &self.calls.checker;
        if stream.0 > CUstream::PER_THREAD.0 {
            let (mut flags, mut context) = (0, CUcontext::NULL);
            // SAFETY: the C caller guarantees that the stream is valid, and `flags` is a valid place for the answer.
            let _ = unsafe { (self.api.cuStreamGetFlags)(stream, &raw mut flags) };
            // SAFETY: as above.
            let _ = unsafe { (self.api.cuStreamGetCtx)(stream, &raw mut context) };
            return self.created_stream(stream, context.0 as u64, flags);
        }
        let context = self.context();
        if key == StreamKey::legacy(context) {
            let kind = StreamKind { context, order: LegacyOrder::Legacy };
            checker.name_stream(key, kind, "the default stream");
        } else {
            let kind = StreamKind { context, order: LegacyOrder::Blocking };
            checker.name_stream(key, kind, "the default stream of a thread");
        }
    }

    /// Tells the checker of a stream that the program has created.
    pub(super) fn created_stream(&self, stream: CUstream, context: u64, flags: u32) {
        let is_blocking = flags & stream_flags::NON_BLOCKING == 0;
        let order = if is_blocking { LegacyOrder::Blocking } else { LegacyOrder::NonBlocking };
        self.calls.checker.create_stream(StreamKey::created(stream.0 as u64), StreamKind { context, order });
    }

    /// Returns a stream of the checker's that is ordered with no other of a context.
    pub(super) fn joint_key(&self, context: u64) -> StreamKey {
        let key = StreamKey::of_thread(context, u64::MAX);
        let kind = StreamKind { context, order: LegacyOrder::NonBlocking };
        self.calls.checker.name_stream(key, kind, "the context");
        key
    }

    /// Returns whether what is submitted to a stream becomes part of a graph.
    #[inline]
    pub(super) fn is_captured(&self, stream: CUstream) -> bool {
        self.calls.has_captures() && self.asks_captured(stream)
    }

    #[cold]
    fn asks_captured(&self, stream: CUstream) -> bool {
        let mut status = CUstreamCaptureStatus::NONE;
        // SAFETY: the C caller guarantees that the stream is valid, and `status` is a valid place for the answer.
        let asked = unsafe { (self.api.cuStreamIsCapturing)(stream, &raw mut status) };
        asked.is_ok() && status != CUstreamCaptureStatus::NONE
    }

    /// Tells the checker of submitted work.
    #[inline]
    pub(super) fn submit(&self, stream: CUstream, items: &[Item<'_>], is_waited_for: bool) {
        if self.is_captured(stream) {
            return;
        }
        let (key, checker) = (self.key(stream), &self.calls.checker);
        if !checker.submit(self.name, key, items, is_waited_for) {
            self.add_stream(key, stream);
            checker.submit(self.name, key, items, is_waited_for);
        }
    }

    /// Returns what a call that waits for a stream waits for.
    pub(super) fn stream_so_far(&self, stream: CUstream) -> Awaited {
        self.calls.checker.stream_so_far(self.key(stream))
    }

    /// Returns what a call that waits for the current context waits for.
    pub(super) fn context_so_far(&self) -> Awaited {
        self.calls.checker.context_so_far(self.context())
    }

    /// Returns what a call that waits for everything waits for.
    pub(super) fn everything_so_far(&self) -> Awaited {
        self.calls.checker.everything_so_far()
    }

    /// Passes on what the driver answers to a call that waits. If it has succeeded, the work is known to have completed.
    pub(super) fn waited(&self, awaited: &Awaited, result: CUresult) -> CUresult {
        if result.is_ok() {
            self.calls.checker.observe(awaited);
        }
        self.noted(result)
    }

    /// Passes on what the driver answers, and notes that a kernel has faulted.
    #[inline]
    pub(super) fn noted(&self, result: CUresult) -> CUresult {
        if let Err(code) = result
            && FAULTS.contains(&code.number())
        {
            self.calls.checker.fail();
        }
        result
    }

    /// Reports that a call uses a stream that is destroyed. The driver cannot be asked whether it is: on an H200 with driver 580.159.04,
    /// `cuStreamGetId` of a destroyed stream ends the process with SIGSEGV. So all functions that create streams are wrapped.
    #[inline]
    pub(super) fn check_stream(&self, stream: CUstream) {
        if self.calls.has_destroyed.load(Ordering::Relaxed) && stream.0 > CUstream::PER_THREAD.0 {
            let is_destroyed = lock(&self.calls.handles).destroyed_streams.contains(&stream.0);
            self.report_stale(is_destroyed, Kind::StreamInUse, "uses a stream that is destroyed");
        }
    }

    /// Reports that a call uses an event that is destroyed.
    #[inline]
    pub(super) fn check_event(&self, event: usize) {
        if self.calls.has_destroyed.load(Ordering::Relaxed) {
            let is_destroyed = lock(&self.calls.handles).destroyed_events.contains(&event);
            self.report_stale(is_destroyed, Kind::EventInUse, "uses an event that is destroyed");
        }
    }

    fn report_stale(&self, is_destroyed: bool, kind: Kind, what: &str) {
        if is_destroyed {
            self.calls.checker.report_call(kind, self.name, what);
        }
    }
}

/// Defines wrappers: `fn NAME(call, argument: Type, ...) { ... }`, with `["_ptsz"]` after the name if there is a variant for
/// per-thread default streams. Makes functions that find a wrapper by its symbol, and that put the wrappers into a table.
macro_rules! wrappers {
    ($($wrappers:tt)*) => {
        crate::calls::wrap::exports! { $($wrappers)* }
        crate::calls::wrap::table! { $($wrappers)* }
    };
}

/// Exports wrappers, and makes the function that finds one by its symbol.
macro_rules! exports {
    ($(fn $name:ident $([$suffix:literal])? ($call:ident $(, $argument:ident: $kind:ty)*) $body:block)*) => {
        #[allow(clippy::too_many_arguments, reason = "the driver's functions have as many")]
        mod body {
            use super::*;

            $(#[inline]
            pub(super) unsafe fn $name($call: Call, $($argument: $kind),*) -> CUresult $body)*
        }

        $(
            #[unsafe(export_name = concat!("freehold_calls_", stringify!($name)))]
            unsafe extern "C" fn $name($($argument: $kind),*) -> CUresult {
                let call = Call::new(stringify!($name), crate::calls::wrap::Default::Legacy)?;
                // SAFETY: the conditions are the same.
                unsafe { body::$name(call, $($argument),*) }
            }
        )*

        mod per_thread {
            use super::*;

            $(crate::calls::wrap::variant! { [$($suffix)?] $name($($argument: $kind),*) })*
        }

        /// Returns the wrapper of a symbol.
        pub(in crate::calls) fn wrapper(symbol: &str) -> Option<*mut std::ffi::c_void> {
            $(
                if symbol == stringify!($name) {
                    return Some($name as *mut std::ffi::c_void);
                }
                $(
                    if symbol == concat!(stringify!($name), $suffix) {
                        return Some(per_thread::$name as *mut std::ffi::c_void);
                    }
                )?
            )*
            None
        }
    };
}

/// Makes the function that puts wrappers into a table.
macro_rules! table {
    ($(fn $name:ident $([$suffix:literal])? ($call:ident $(, $argument:ident: $kind:ty)*) $body:block)*) => {
        /// Puts the wrappers into a table.
        pub(in crate::calls) fn table(api: Api, default: crate::calls::wrap::Default) -> Api {
            let mut api = api;
            $(
                api.$name = $name;
                $(
                    let _suffix = $suffix;
                    if default == crate::calls::wrap::Default::PerThread {
                        api.$name = per_thread::$name;
                    }
                )?
            )*
            api
        }
    };
}

macro_rules! variant {
    ([] $name:ident($($argument:ident: $kind:ty),*)) => {};
    ([$suffix:literal] $name:ident($($argument:ident: $kind:ty),*)) => {
        #[unsafe(export_name = concat!("freehold_calls_", stringify!($name), $suffix))]
        pub(super) unsafe extern "C" fn $name($($argument: $kind),*) -> CUresult {
            let call = Call::new(stringify!($name), crate::calls::wrap::Default::PerThread)?;
            // SAFETY: the conditions are the same.
            unsafe { body::$name(call, $($argument),*) }
        }
    };
}

pub(super) use {exports, table, variant, wrappers};

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::thread;

    use super::*;
    use crate::calls::lock::lock;

    static ENDED: Mutex<Vec<u64>> = Mutex::new(Vec::new());

    #[test]
    fn a_thread_has_a_number_until_it_ends() {
        /// Asks for the number in the destructor of a thread-local that is older.
        struct Late;
        impl Drop for Late {
            fn drop(&mut self) {
                assert!(thread_number() > ENDING);
            }
        }
        thread_local! {
            static LATE: Late = const { Late };
        }
        let one = thread::spawn(|| {
            LATE.with(|_| {});
            let number = first_thread_number(|number| lock(&ENDED).push(number));
            assert_eq!(thread_number(), number);
            number
        });
        let number = one.join().expect("the thread does not panic");
        assert_eq!(*lock(&ENDED), [number]);
        let other = thread::spawn(thread_number).join().expect("the thread does not panic");
        assert!(other != number && other < ENDING);
    }
}
