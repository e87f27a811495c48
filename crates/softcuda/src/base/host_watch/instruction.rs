//! Decodes what an interrupted instruction accesses, and sets single-step traps.

use std::ops::Range;

#[cfg(target_arch = "x86_64")]
pub(super) use x86_64::*;

/// What the repetitions of a string instruction that are left access.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Rest {
    pub(super) read: Range<u64>,
    pub(super) written: Range<u64>,
}

impl Rest {
    pub(super) fn overlaps(&self, bytes: &Range<u64>) -> bool {
        [&self.read, &self.written].into_iter().any(|range| range.start < bytes.end && bytes.start < range.end)
    }
}

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use std::ptr;

    use libc::ucontext_t;

    use super::{Range, Rest};

    /// Bits of the error code of a page fault.
    const WRITE: i64 = 1 << 1;
    const FETCH: i64 = 1 << 4;

    /// Bits of the flags.
    const TRAP: i64 = 1 << 8;
    const DOWN: i64 = 1 << 10;

    fn register(registers: &ucontext_t, index: i32) -> i64 {
        registers.uc_mcontext.gregs[index as usize]
    }

    pub(crate) fn is_write(registers: &ucontext_t) -> bool {
        register(registers, libc::REG_ERR) & WRITE != 0
    }

    /// Returns whether the processor wanted to execute what is at the address.
    pub(crate) fn is_fetch(registers: &ucontext_t) -> bool {
        register(registers, libc::REG_ERR) & FETCH != 0
    }

    /// Returns the address of the instruction.
    pub(crate) fn address(registers: &ucontext_t) -> usize {
        register(registers, libc::REG_RIP) as usize
    }

    /// Sets whether a trap follows each instruction, and each repetition of one.
    pub(crate) fn trap(registers: &mut ucontext_t, is_on: bool) {
        let flags = &mut registers.uc_mcontext.gregs[libc::REG_EFL as usize];
        *flags = if is_on { *flags | TRAP } else { *flags & !TRAP };
    }

    /// Returns what the instruction has still to access, if it is a move, load or store of a string. A comparison may end early.
    ///
    /// # Safety
    /// The instruction was interrupted, or a repetition of it.
    pub(crate) unsafe fn rest(registers: &ucontext_t) -> Option<Rest> {
        let code = ptr::with_exposed_provenance::<u8>(address(registers));
        let bytes = (0..LENGTH_MAX).map(|index| {
            // SAFETY: the processor has read the instruction up to its opcode, where `decode` ends.
            unsafe { code.wrapping_add(index).read_volatile() }
        });
        let string = decode(bytes)?;
        let count = if string.is_repeated { register(registers, libc::REG_RCX) as u64 } else { 1 };
        let is_down = register(registers, libc::REG_EFL) & DOWN != 0;
        let range = |is_accessed: bool, index| {
            if is_accessed { covered(register(registers, index) as u64, count, string.bytes, is_down) } else { 0..0 }
        };
        Some(Rest { read: range(string.reads, libc::REG_RSI), written: range(string.writes, libc::REG_RDI) })
    }

    /// Returns the bytes of elements, of which the first one is at `first`.
    fn covered(first: u64, count: u64, bytes: u64, is_down: bool) -> Range<u64> {
        let all = count.saturating_mul(bytes);
        match is_down {
            _ if count == 0 => 0..0,
            false => first..first.saturating_add(all),
            true => first.saturating_sub(all - bytes)..first.saturating_add(bytes),
        }
    }

    #[derive(Debug, PartialEq, Eq)]
    struct StringInstruction {
        /// Of an element.
        bytes: u64,
        reads: bool,
        writes: bool,
        is_repeated: bool,
    }

    const LENGTH_MAX: usize = 15;

    /// Reads the prefixes and the opcode of an instruction.
    fn decode(code: impl Iterator<Item = u8>) -> Option<StringInstruction> {
        let (mut is_repeated, mut is_short, mut is_long) = (false, false, false);
        for byte in code {
            match byte {
                0xf2 | 0xf3 => is_repeated = true,
                0x66 => is_short = true,
                // The old segments, which all start at zero.
                0x26 | 0x2e | 0x36 | 0x3e => {}
                0x40..=0x4f => {
                    is_long = byte & 8 != 0;
                    continue;
                }
                0xa4 | 0xa5 | 0xaa..=0xad => {
                    let bytes = match (byte & 1, is_long, is_short) {
                        (0, ..) => 1,
                        (_, true, _) => 8,
                        (_, _, true) => 2,
                        _ => 4,
                    };
                    let (reads, writes) = (!matches!(byte, 0xaa | 0xab), !matches!(byte, 0xac | 0xad));
                    return Some(StringInstruction { bytes, reads, writes, is_repeated });
                }
                _ => return None,
            }
            // A REX prefix counts only next to the opcode.
            is_long = false;
        }
        None
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        fn decoded(code: &[u8]) -> Option<(u64, bool, bool, bool)> {
            let StringInstruction { bytes, reads, writes, is_repeated } = decode(code.iter().copied())?;
            Some((bytes, reads, writes, is_repeated))
        }

        #[test]
        fn string_instructions_are_read_with_their_prefixes() {
            assert_eq!(decoded(&[0xf3, 0xa4]), Some((1, true, true, true)));
            assert_eq!(decoded(&[0xf3, 0x48, 0xa5]), Some((8, true, true, true)));
            assert_eq!(decoded(&[0x66, 0xf3, 0xab]), Some((2, false, true, true)));
            assert_eq!(decoded(&[0xf3, 0x66, 0x48, 0xab]), Some((8, false, true, true)));
            assert_eq!(decoded(&[0x48, 0xf3, 0xa5]), Some((4, true, true, true)));
            assert_eq!(decoded(&[0xad]), Some((4, true, false, false)));
        }

        #[test]
        fn instructions_that_may_end_early_or_use_other_addresses_are_not_string_instructions() {
            for code in [&[0xf3, 0xa6][..], &[0xf2, 0xae], &[0x67, 0xf3, 0xa4], &[0x64, 0xf3, 0xa4], &[0x88, 0x07]] {
                assert_eq!(decoded(code), None, "{code:x?}");
            }
        }

        #[test]
        fn elements_are_counted_from_the_first_in_both_directions() {
            assert_eq!(covered(0x1000, 3, 4, false), 0x1000..0x100c);
            assert_eq!(covered(0x1000, 3, 4, true), 0xff8..0x1004);
            assert!(covered(0x1000, 0, 4, true).is_empty());
        }
    }
}

/// Nothing is watched on other processors.
#[cfg(not(target_arch = "x86_64"))]
mod other {
    use libc::ucontext_t;

    use super::Rest;

    pub(crate) fn is_write(_registers: &ucontext_t) -> bool {
        unreachable!("nothing is watched")
    }

    pub(crate) fn is_fetch(_registers: &ucontext_t) -> bool {
        unreachable!("nothing is watched")
    }

    pub(crate) fn address(_registers: &ucontext_t) -> usize {
        unreachable!("nothing is watched")
    }

    pub(crate) fn trap(_registers: &mut ucontext_t, _is_on: bool) {
        unreachable!("nothing is watched")
    }

    /// # Safety
    /// None is needed.
    pub(crate) unsafe fn rest(_registers: &ucontext_t) -> Option<Rest> {
        unreachable!("nothing is watched")
    }
}

#[cfg(not(target_arch = "x86_64"))]
pub(super) use other::*;
