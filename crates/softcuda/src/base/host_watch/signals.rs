//! The handlers of SIGSEGV and SIGTRAP, and those of the program that they replace.

use std::ffi::{c_int, c_void};
use std::sync::Mutex;

use super::admit;
use super::steps::Step;
use crate::base::sync::lock;

/// The handlers that the program had, for the signals that are not about watched memory.
static PREVIOUS: Mutex<[Option<libc::sigaction>; 2]> = Mutex::new([None; 2]);

const SIGNALS: [c_int; 2] = [libc::SIGSEGV, libc::SIGTRAP];

type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

/// Installs the handlers, before those of the program if it has replaced them.
pub(super) fn handle() {
    let handlers: [Handler; 2] = [on_access, on_step];
    let mut previous = lock(&PREVIOUS);
    for index in 0..SIGNALS.len() {
        // SAFETY: all bits zero are a valid value.
        let mut found: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: the call only writes the current handler to `found`.
        unsafe { libc::sigaction(SIGNALS[index], std::ptr::null(), &raw mut found) };
        if found.sa_sigaction == handlers[index] as usize {
            continue;
        }
        previous[index] = Some(found);
        // SAFETY: as above.
        let mut new: libc::sigaction = unsafe { std::mem::zeroed() };
        new.sa_sigaction = handlers[index] as usize;
        new.sa_flags = libc::SA_SIGINFO;
        // SAFETY: the handler has the signature that `SA_SIGINFO` asks for.
        unsafe { libc::sigaction(SIGNALS[index], &raw const new, std::ptr::null_mut()) };
    }
}

/// Does what the program would have done with a signal.
fn pass_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let index = usize::from(signal == libc::SIGTRAP);
    let previous = lock(&PREVIOUS)[index];
    match previous {
        Some(action) if action.sa_sigaction > libc::SIG_IGN && action.sa_flags & libc::SA_SIGINFO != 0 => {
            // SAFETY: the program installed a function with this signature for the signal.
            let handler = unsafe { std::mem::transmute::<usize, Handler>(action.sa_sigaction) };
            handler(signal, info, context);
        }
        Some(action) if action.sa_sigaction > libc::SIG_IGN => {
            // SAFETY: the program installed a function with this signature for the signal.
            let handler = unsafe { std::mem::transmute::<usize, extern "C" fn(c_int)>(action.sa_sigaction) };
            handler(signal);
        }
        // The instruction is executed again, and ends the program as if there were no handler.
        // SAFETY: the default action is always valid.
        _ => drop(unsafe { libc::signal(signal, libc::SIG_DFL) }),
    }
}

extern "C" fn on_access(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes the description of the signal, which is valid until the handler returns.
    let description = unsafe { &*info };
    // SAFETY: the signal is one of an access, whose description has an address.
    let address = unsafe { description.si_addr() } as u64;
    // SAFETY: the kernel passes the registers of the interrupted instruction, which nothing else uses.
    let registers = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    if !admit(address, registers) {
        pass_on(signal, info, context);
    }
}

extern "C" fn on_step(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    match Step::take_last() {
        // SAFETY: the kernel passes the registers of the interrupted instruction, which nothing else uses.
        Some(step) => step.finish(unsafe { &mut *context.cast::<libc::ucontext_t>() }),
        None => pass_on(signal, info, context),
    }
}
