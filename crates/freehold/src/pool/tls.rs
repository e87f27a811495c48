//! One pointer for each thread, which the warm path reads first. Null until it is set.
//!
//! In a shared library `thread_local` is a call, because the library may be loaded after threads have started, and the
//! call spills registers. These eight bytes lie in the static TLS block of each thread (the initial-exec model, as in
//! other allocators): two loads. On anything but Linux with glibc on x86-64 they are a `thread_local`.

pub(super) use model::{get, set};

#[cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu", not(miri)))]
mod model {
    use std::arch::{asm, global_asm};

    global_asm!(
        ".pushsection .tbss.freehold_thread_slots,\"awT\",@nobits",
        ".p2align 3",
        ".globl freehold_thread_slots",
        ".hidden freehold_thread_slots",
        ".type freehold_thread_slots,@object",
        ".size freehold_thread_slots,8",
        "freehold_thread_slots:",
        ".zero 8",
        ".popsection",
    );

    #[inline(always)]
    pub(crate) fn get() -> *const () {
        let slots;
        // SAFETY: loads the offset of the thread's own eight bytes, and then what they hold: a pointer, or zeros.
        unsafe {
            asm!(
                "mov {slots}, qword ptr [rip + freehold_thread_slots@GOTTPOFF]",
                "mov {slots}, qword ptr fs:[{slots}]",
                slots = out(reg) slots,
                options(readonly, nostack, preserves_flags),
            );
        }
        slots
    }

    pub(crate) fn set(slots: *const ()) {
        // SAFETY: loads the offset of the thread's own eight bytes and writes them; nothing has a reference to them.
        unsafe {
            asm!(
                "mov {at}, qword ptr [rip + freehold_thread_slots@GOTTPOFF]",
                "mov qword ptr fs:[{at}], {slots}",
                at = out(reg) _,
                slots = in(reg) slots,
                options(nostack, preserves_flags),
            );
        }
    }
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu", not(miri))))]
mod model {
    use std::cell::Cell;
    use std::ptr;

    thread_local! {
        static SLOTS: Cell<*const ()> = const { Cell::new(ptr::null()) };
    }

    #[inline]
    pub(crate) fn get() -> *const () {
        SLOTS.get()
    }

    pub(crate) fn set(slots: *const ()) {
        SLOTS.set(slots);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr;

    #[test]
    fn each_thread_has_its_own_which_is_null_at_first() {
        let mine = 1;
        set(ptr::from_ref(&mine).cast());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert!(get().is_null());
                let others = 2;
                set(ptr::from_ref(&others).cast());
                assert_eq!(get(), ptr::from_ref(&others).cast());
            });
        });
        assert_eq!(get(), ptr::from_ref(&mine).cast());
        set(ptr::null());
        assert!(get().is_null());
    }
}
