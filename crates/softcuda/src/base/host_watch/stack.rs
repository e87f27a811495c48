//! Stacks for the handlers: the stack on which the system starts them may have only a few kilobytes.

use std::ffi::c_void;
use std::ptr;
use std::sync::Mutex;

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect};

use crate::base::sync::lock;

const STACK_BYTES: usize = 256 << 10;

/// Below each stack, so that an overflow is a fault.
const GUARD_BYTES: usize = 4096;

/// The ends of stacks that no handler uses. They are never unmapped: there are as many as handlers have run at the same time.
static FREE: Mutex<Vec<usize>> = Mutex::new(Vec::new());

/// Calls a function on a stack of 256 KiB, or on the current one if there is no memory. All signals must be blocked.
pub(super) fn on_large_stack<R>(function: impl FnOnce() -> R) -> R {
    let free = lock(&FREE).pop();
    let Some(end) = free.or_else(map).filter(|_| cfg!(target_arch = "x86_64")) else { return function() };
    let mut call = Call { function: Some(function), result: None };
    // SAFETY: the stack is mapped, and only this call uses it: it was taken from the list, or is new. `run` gets the call that it
    // expects, which outlives it.
    unsafe { switch(end, run_of(&call), (&raw mut call).cast()) };
    lock(&FREE).push(end);
    call.result.expect("the function has run")
}

/// A function, and what it has returned.
struct Call<F, R> {
    function: Option<F>,
    result: Option<R>,
}

type Run = unsafe extern "C" fn(call: *mut c_void);

fn run_of<F: FnOnce() -> R, R>(_call: &Call<F, R>) -> Run {
    run::<F, R>
}

/// # Safety
/// It gets a `Call<F, R>` that nothing else uses meanwhile.
unsafe extern "C" fn run<F: FnOnce() -> R, R>(call: *mut c_void) {
    // SAFETY: as the caller guarantees.
    let call = unsafe { &mut *call.cast::<Call<F, R>>() };
    call.result = call.function.take().map(|function| function());
}

/// Maps a stack. Returns its end.
fn map() -> Option<usize> {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new anonymous mapping at an address that the kernel chooses replaces nothing.
    let start =
        unsafe { mmap_anonymous(ptr::null_mut(), GUARD_BYTES + STACK_BYTES, access, MapFlags::PRIVATE) }.ok()?;
    // SAFETY: the mapping is new, and nothing uses it yet.
    let _ = unsafe { mprotect(start, GUARD_BYTES, MprotectFlags::empty()) };
    Some(start as usize + GUARD_BYTES + STACK_BYTES)
}

/// Calls `run(call)` on the stack that ends at `end`. A debugger or an unwinder finds the frames of both stacks.
///
/// # Safety
/// The stack is mapped and not in use, and its end is a multiple of 16. `run` can be called with `call`, and does not unwind.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
unsafe extern "C" fn switch(end: usize, run: Run, call: *mut c_void) {
    std::arch::naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "mov rsp, rdi",
        "mov rdi, rdx",
        "call rsi",
        "mov rsp, rbp",
        "pop rbp",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
    )
}

#[cfg(not(target_arch = "x86_64"))]
unsafe fn switch(_end: usize, _run: Run, _call: *mut c_void) {
    unreachable!("nothing is watched")
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use std::backtrace::Backtrace;
    use std::hint::black_box;

    use super::*;

    #[test]
    fn a_function_on_another_stack_has_its_room_and_returns_its_value() {
        let here = black_box(0_u8);
        let (there, sum) = on_large_stack(|| {
            let room = black_box([1_u8; STACK_BYTES / 2]);
            (room.as_ptr().addr(), room.iter().map(|byte| u64::from(*byte)).sum::<u64>())
        });
        assert_eq!(sum, STACK_BYTES as u64 / 2);
        assert!(there.abs_diff((&raw const here).addr()) > STACK_BYTES);
    }

    #[test]
    fn a_call_within_another_has_a_stack_of_its_own() {
        let here = || (&raw const *black_box(&black_box(0_u8))).addr();
        let (outer, inner) = on_large_stack(|| (here(), on_large_stack(here)));
        assert!(outer.abs_diff(inner) >= GUARD_BYTES);
    }

    #[inline(never)]
    fn starts_the_call() -> String {
        black_box(on_large_stack(|| Backtrace::force_capture().to_string()))
    }

    #[test]
    fn a_backtrace_has_the_frames_of_both_stacks() {
        let trace = starts_the_call();
        assert!(trace.contains("a_backtrace_has_the_frames_of_both_stacks"), "{trace}");
    }
}
