//! Overwrites functions of an object with jumps to functions of a library.

use std::collections::HashMap;
use std::ffi::c_void;
use std::io;
use std::ops::Range;
use std::ptr;

use rustix::mm::{MprotectFlags, mprotect};
use rustix::param::page_size;

use crate::file::Function;

/// `jmp [rip]`, and the address behind it.
#[cfg(target_arch = "x86_64")]
const JUMP: [u8; 6] = [0xff, 0x25, 0, 0, 0, 0];
const JUMP_BYTES: usize = 14;

/// A library in memory that functions are redirected to.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) base: usize,
    /// The functions that it exports, and their addresses relative to the base.
    pub(crate) exports: HashMap<Vec<u8>, u64>,
}

/// Redirects all functions of an object that the target exports too.
///
/// # Errors
/// The code cannot be written, or a function is too short. Then nothing is redirected.
///
/// # Safety
/// The object whose file has these functions and segments must be mapped at `base`, and nothing may run in it meanwhile. The
/// target's functions must be usable in place of the object's.
pub(crate) unsafe fn redirect(
    base: usize,
    functions: &[Function],
    code: &[Range<u64>],
    target: &Target,
) -> io::Result<()> {
    let jumps = jumps(base, functions, code, target)?;
    let (Some(first), Some(last)) = (jumps.iter().map(|jump| jump.at).min(), jumps.iter().map(|jump| jump.at).max())
    else {
        return Ok(());
    };
    let start = first & !(page_size() - 1);
    let bytes = (last + JUMP_BYTES).next_multiple_of(page_size()) - start;
    let pages = ptr::with_exposed_provenance_mut::<c_void>(start);
    // SAFETY: the pages belong to one segment of the object, in which nothing runs.
    unsafe { mprotect(pages, bytes, MprotectFlags::READ | MprotectFlags::WRITE) }?;
    for jump in jumps {
        // SAFETY: the bytes are in the pages that are writable now, and belong to this function alone.
        unsafe { write_jump(jump) };
    }
    // SAFETY: as above; this is how the dynamic linker mapped them.
    unsafe { mprotect(pages, bytes, MprotectFlags::READ | MprotectFlags::EXEC) }?;
    Ok(())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Jump {
    at: usize,
    to: usize,
}

/// Returns the jumps to write, which are all in one segment.
fn jumps(base: usize, functions: &[Function], code: &[Range<u64>], target: &Target) -> io::Result<Vec<Jump>> {
    let replaced = functions.iter().filter_map(|function| Some((function, *target.exports.get(&function.name)?)));
    let mut segment: Option<&Range<u64>> = None;
    let mut jumps = Vec::new();
    for (function, to) in replaced {
        let end = function.address.saturating_add(JUMP_BYTES as u64);
        let own = code.iter().find(|range| range.contains(&function.address) && end <= range.end);
        let own = own.ok_or_else(|| io::Error::other("a function is in no segment with code"))?;
        if function.room < JUMP_BYTES as u64 {
            return Err(io::Error::other("a function is shorter than a jump"));
        }
        if *segment.get_or_insert(own) != own {
            return Err(io::Error::other("the functions are in several segments"));
        }
        jumps.push(Jump { at: base + function.address as usize, to: target.base + to as usize });
    }
    Ok(jumps)
}

/// # Safety
/// The bytes of the jump must be writable, and no thread may execute them.
#[cfg(target_arch = "x86_64")]
unsafe fn write_jump(jump: Jump) {
    let mut bytes = [0; JUMP_BYTES];
    bytes[..JUMP.len()].copy_from_slice(&JUMP);
    bytes[JUMP.len()..].copy_from_slice(&(jump.to as u64).to_le_bytes());
    let at = ptr::with_exposed_provenance_mut::<[u8; JUMP_BYTES]>(jump.at);
    // SAFETY: the caller guarantees that the bytes are valid; an array of bytes needs no alignment.
    unsafe { at.write(bytes) };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(name: &str, address: u64, room: u64) -> Function {
        Function { name: name.into(), address, room }
    }

    fn target() -> Target {
        let exports = [("cudaMalloc", 0x10), ("cudaFree", 0x20)].map(|(name, address)| (name.into(), address));
        Target { base: 0x7000_0000, exports: exports.into() }
    }

    #[test]
    fn only_functions_that_the_target_exports_are_redirected() {
        let functions =
            [function("cudaMalloc", 0x1100, 64), function("cudaMine", 0x1200, 4), function("cudaFree", 0x1300, 14)];
        let code = [Range { start: 0x1000, end: 0x2000 }];
        let jumps = jumps(0x5000_0000, &functions, &code, &target()).expect("all fit");
        let expected = [Jump { at: 0x5000_1100, to: 0x7000_0010 }, Jump { at: 0x5000_1300, to: 0x7000_0020 }];
        assert_eq!(jumps, expected);
    }

    #[test]
    fn a_function_without_room_for_a_jump_prevents_all() {
        let told = |function: Function, code: &[Range<u64>]| {
            let functions = [super::tests::function("cudaMalloc", 0x1100, 64), function];
            jumps(0, &functions, code, &target()).expect_err("it cannot be redirected").to_string()
        };
        let code = [0x1000..0x2000, 0x3000..0x4000];
        assert_eq!(told(function("cudaFree", 0x1200, 13), &code), "a function is shorter than a jump");
        assert_eq!(told(function("cudaFree", 0x1ff8, 64), &code), "a function is in no segment with code");
        assert_eq!(told(function("cudaFree", 0x3000, 64), &code), "the functions are in several segments");
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn a_jump_leads_to_its_target() {
        extern "C" fn seven() -> u32 {
            7
        }
        let bytes = page_size();
        let (protection, flags) = (rustix::mm::ProtFlags::WRITE, rustix::mm::MapFlags::PRIVATE);
        // SAFETY: the kernel chooses an address that nothing uses.
        let page = unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), bytes, protection, flags) }.expect("a page");
        let functions = [function("cudaMalloc", 0, 16), function("cudaFree", 64, 16)];
        let exports = [("cudaMalloc", 0), ("cudaFree", 0)].map(|(name, address)| (name.into(), address));
        let target = Target { base: seven as *const () as usize, exports: exports.into() };
        let code = [Range { start: 0, end: bytes as u64 }];
        // SAFETY: the page is mapped, nothing runs in it, and both functions become `seven`.
        unsafe { redirect(page as usize, &functions, &code, &target) }.expect("the page is ours");
        for offset in [0, 64] {
            // SAFETY: the offset is inside the page.
            let start = unsafe { page.byte_add(offset) };
            // SAFETY: a jump to a function of this type lies there.
            let function = unsafe { std::mem::transmute::<*mut std::ffi::c_void, extern "C" fn() -> u32>(start) };
            assert_eq!(function(), 7);
        }
    }
}
