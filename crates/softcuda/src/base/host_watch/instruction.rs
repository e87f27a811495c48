//! What an interrupted instruction accesses, and traps after instructions.

#[cfg(target_arch = "x86_64")]
pub(super) use x86_64::*;

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use libc::ucontext_t;

    /// Bits of the error code of a page fault.
    const WRITE: i64 = 1 << 1;
    const FETCH: i64 = 1 << 4;

    /// A bit of the flags.
    const TRAP: i64 = 1 << 8;

    fn register(registers: &ucontext_t, index: i32) -> i64 {
        registers.uc_mcontext.gregs[index as usize]
    }

    pub(in super::super) fn is_write(registers: &ucontext_t) -> bool {
        register(registers, libc::REG_ERR) & WRITE != 0
    }

    /// Returns whether the processor wanted to execute what is at the address.
    pub(in super::super) fn is_fetch(registers: &ucontext_t) -> bool {
        register(registers, libc::REG_ERR) & FETCH != 0
    }

    /// Returns the address of the instruction.
    pub(in super::super) fn address(registers: &ucontext_t) -> usize {
        register(registers, libc::REG_RIP) as usize
    }

    /// Sets whether a trap follows each instruction.
    pub(in super::super) fn trap(registers: &mut ucontext_t, is_on: bool) {
        let flags = &mut registers.uc_mcontext.gregs[libc::REG_EFL as usize];
        *flags = if is_on { *flags | TRAP } else { *flags & !TRAP };
    }
}

/// Nothing is watched on other processors.
#[cfg(not(target_arch = "x86_64"))]
mod other {
    use libc::ucontext_t;

    pub(in super::super) fn is_write(_registers: &ucontext_t) -> bool {
        unreachable!("nothing is watched")
    }

    pub(in super::super) fn is_fetch(_registers: &ucontext_t) -> bool {
        unreachable!("nothing is watched")
    }

    pub(in super::super) fn address(_registers: &ucontext_t) -> usize {
        unreachable!("nothing is watched")
    }

    pub(in super::super) fn trap(_registers: &mut ucontext_t, _is_on: bool) {
        unreachable!("nothing is watched")
    }
}

#[cfg(not(target_arch = "x86_64"))]
pub(super) use other::*;
