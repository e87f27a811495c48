//! The handlers of SIGSEGV and SIGTRAP, and those of the program that they replace.
//!
//! Our handler calls the program's handler that was installed after it. That one may call the handler that it replaced, which is
//! ours again; ours then calls the one before. So the handlers of the program form a chain that ends in the default action.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::sync::{Mutex, OnceLock};

use super::steps::{self, Step};
use crate::base::sync::lock;

const SIGNALS: [c_int; 2] = [libc::SIGSEGV, libc::SIGTRAP];

/// The `si_code` of a trap after a single instruction.
const TRAP_TRACE: c_int = 2;

/// The handlers that the program has installed for each signal. Each is called by the next one, the last one by ours.
static CHAINS: Mutex<[Vec<libc::sigaction>; 2]> = Mutex::new([const { Vec::new() }; 2]);

thread_local! {
    /// The signal that this thread passes to the program.
    static PASSED: Cell<Passed> = const { Cell::new(Passed { context: 0, frame: 0, depth: 0 }) };
}

/// A signal that a handler of the program was called for.
#[derive(Clone, Copy, Debug)]
struct Passed {
    /// Where the registers are.
    context: usize,
    /// Where our handler is on the stack.
    frame: usize,
    /// The place of the program's handler, from the end of the chain.
    depth: usize,
}

type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

/// Notes an access at an address, and lets it happen. Returns whether it is one to a watched block.
type Admit = fn(u64, &mut libc::ucontext_t) -> bool;

static ADMIT: OnceLock<Admit> = OnceLock::new();

/// Installs the handlers, before those of the program if it has replaced them. They pass accesses to `admit`.
pub(super) fn handle(admit: Admit) {
    ADMIT.get_or_init(|| admit);
    let handlers: [Handler; 2] = [on_access, on_step];
    let mut chains = lock(&CHAINS);
    for (index, signal) in SIGNALS.into_iter().enumerate() {
        // SAFETY: all bits zero are a valid value.
        let mut found: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: the call only writes the current handler to `found`.
        unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut found) };
        if found.sa_sigaction == handlers[index] as usize {
            continue;
        }
        if found.sa_sigaction == libc::SIG_DFL || found.sa_sigaction == libc::SIG_IGN {
            // The program wants none of its earlier ones.
            chains[index].clear();
        }
        chains[index].retain(|action| action.sa_sigaction != found.sa_sigaction);
        chains[index].push(found);
        // SAFETY: as above.
        let mut new: libc::sigaction = unsafe { std::mem::zeroed() };
        new.sa_sigaction = handlers[index] as usize;
        // The program's stack may be too small, as in Go, or used up, for a handler that reports this.
        new.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        // Another handler that accesses watched memory would end the process, because SIGSEGV is blocked.
        // SAFETY: the call only writes the set.
        unsafe { libc::sigfillset(&raw mut new.sa_mask) };
        // SAFETY: the handler has the signature that `SA_SIGINFO` asks for.
        unsafe { libc::sigaction(signal, &raw const new, std::ptr::null_mut()) };
    }
}

extern "C" fn on_access(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    if is_watched(info, context) {
        return;
    }
    // SAFETY: the kernel, or a handler of the program, passes the registers of the interrupted instruction, and no other reference
    // to them is alive.
    steps::abandon(unsafe { &mut *context.cast::<libc::ucontext_t>() });
    let frame = 0_u8;
    pass_on(signal, info, context, (&raw const frame).addr());
}

/// Notes the access of a signal, and lets it happen. Returns whether it is one to a watched block.
fn is_watched(info: *mut libc::siginfo_t, context: *mut c_void) -> bool {
    // SAFETY: the kernel, or a handler of the program, passes the description of the signal, which is valid until ours returns.
    let description = unsafe { &*info };
    // Other descriptions are of signals that a process has sent, without an address.
    if description.si_code <= 0 {
        return false;
    }
    // SAFETY: the kernel has raised the signal for an access, whose description has an address, or zero.
    let address = unsafe { description.si_addr() } as u64;
    // SAFETY: as in `on_access`.
    let registers = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    ADMIT.get().is_some_and(|admit| admit(address, registers))
}

extern "C" fn on_step(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel, or a handler of the program, passes the description of the signal, which is valid until ours returns.
    let code = unsafe { (*info).si_code };
    let step = if code == TRAP_TRACE { Step::take_last() } else { None };
    match step {
        // SAFETY: the kernel passes the registers of the interrupted instruction, and no other reference to them is alive.
        Some(step) => step.finish(unsafe { &mut *context.cast::<libc::ucontext_t>() }),
        None => {
            let frame = 0_u8;
            pass_on(signal, info, context, (&raw const frame).addr());
        }
    }
}

/// Does what the program would have done with a signal. `frame` is where our handler is on the stack.
fn pass_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void, frame: usize) {
    let outer = PASSED.get();
    // One that is called for the same registers, deeper in the stack, is called by a handler of the program. A handler that has
    // left with `longjmp` is not: for the next signal ours is at the same place or at another.
    let is_within = outer.context == context.addr() && frame < outer.frame;
    let depth = if is_within { outer.depth + 1 } else { 0 };
    let found = take_action(usize::from(signal == libc::SIGTRAP), depth);
    // SAFETY: the kernel, or a handler of the program, passes the description of the signal, which is valid until ours returns.
    let is_sent = unsafe { (*info).si_code } <= 0;
    let Some(action) = found.filter(|action| action.sa_sigaction > libc::SIG_IGN) else {
        let is_ignored = found.is_some_and(|action| action.sa_sigaction == libc::SIG_IGN);
        return if !(is_sent && is_ignored) {
            default(signal, is_sent)
        };
    };
    if !is_within {
        block(signal, &action, context);
    }
    PASSED.set(Passed { context: context.addr(), frame, depth });
    if action.sa_flags & libc::SA_SIGINFO != 0 {
        // SAFETY: the program installed a function with this signature for the signal.
        let handler = unsafe { std::mem::transmute::<usize, Handler>(action.sa_sigaction) };
        handler(signal, info, context);
    } else {
        // SAFETY: the program installed a function with this signature for the signal.
        let handler = unsafe { std::mem::transmute::<usize, extern "C" fn(c_int)>(action.sa_sigaction) };
        handler(signal);
    }
    PASSED.set(outer);
}

/// Returns a handler of the program. One that is for one signal only is the default action from then on.
fn take_action(index: usize, depth: usize) -> Option<libc::sigaction> {
    let mut chains = lock(&CHAINS);
    let action = chains[index].iter_mut().rev().nth(depth)?;
    let found = *action;
    if found.sa_flags & libc::SA_RESETHAND != 0 {
        action.sa_sigaction = libc::SIG_DFL;
    }
    Some(found)
}

/// Ends the process as if there were no handler.
fn default(signal: c_int, is_sent: bool) {
    // SAFETY: the default action is always valid.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
    // The instruction that has made a wrong access is executed again, and raises the signal again. Others are not.
    if is_sent || signal != libc::SIGSEGV {
        // SAFETY: any signal may be raised. It is blocked until the handler returns.
        unsafe { libc::raise(signal) };
    }
}

/// Blocks the signals that the system would block for a handler of the program, and no others.
fn block(signal: c_int, action: &libc::sigaction, context: *mut c_void) {
    /// The system knows 64 signals. `libc`'s sets have room for more, which is not part of what the kernel passes.
    const SIGNALS: c_int = 64;
    // SAFETY: the kernel passes the state of the interrupted thread, which is valid until our handler returns.
    let interrupted = unsafe { &raw const (*context.cast::<libc::ucontext_t>()).uc_sigmask };
    // SAFETY: all bits zero are a valid value: the empty set.
    let mut blocked: libc::sigset_t = unsafe { std::mem::zeroed() };
    for number in 1..=SIGNALS {
        // SAFETY: both sets are valid, and a number that is not one of a signal is an error.
        let is_masked = |set: *const libc::sigset_t| unsafe { libc::sigismember(set, number) } == 1;
        let is_own = number == signal && action.sa_flags & libc::SA_NODEFER == 0;
        if is_own || is_masked(interrupted) || is_masked(&raw const action.sa_mask) {
            // SAFETY: the set is valid, and a number that is not one of a signal is an error.
            unsafe { libc::sigaddset(&raw mut blocked, number) };
        }
    }
    // SAFETY: the set is valid. The kernel restores the mask when our handler returns.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const blocked, std::ptr::null_mut()) };
}
