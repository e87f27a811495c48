//! Loads, stores and updates of memory that kernels, copies and the program may access at the same time: each is atomic
//! in its width.
//!
//! The pointers come from `KernelMemory::pointer` and `KernelMemory::entry_for_all_lanes`: the accessed bytes lie
//! in a span whose pages the entry keeps mapped, or which the program promised to keep mapped. They are aligned: the
//! kernel checks the alignment of the address, and the driver's mappings preserve an address's offset within its page.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use freehold_ptx::{LANES, Width};

#[inline]
pub(super) fn load(pointer: *mut u8, width: Width) -> u64 {
    macro_rules! read {
        ($atomic:ty) => {{
            // SAFETY: as the header of this file says; references to these bytes are only ever references to atomics.
            let word = unsafe { <$atomic>::from_ptr(pointer.cast()) };
            word.load(Ordering::Relaxed).into()
        }};
    }
    match width {
        Width::One => read!(AtomicU8),
        Width::Two => read!(AtomicU16),
        Width::Four => read!(AtomicU32),
        Width::Eight => read!(AtomicU64),
    }
}

#[inline]
pub(super) fn store(pointer: *mut u8, width: Width, value: u64) {
    macro_rules! write {
        ($atomic:ty, $kind:ty) => {{
            // SAFETY: as in `load`.
            let word = unsafe { <$atomic>::from_ptr(pointer.cast()) };
            word.store(value as $kind, Ordering::Relaxed);
        }};
    }
    match width {
        Width::One => write!(AtomicU8, u8),
        Width::Two => write!(AtomicU16, u16),
        Width::Four => write!(AtomicU32, u32),
        Width::Eight => write!(AtomicU64, u64),
    }
}

/// Reads 16 aligned bytes at once: processors with AVX do so for this instruction.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(super) fn load_pair(pointer: *mut u8) -> [u64; 2] {
    let (low, high);
    // SAFETY: as in `load`; the instructions read 16 aligned bytes and change only the registers named.
    unsafe {
        std::arch::asm!(
            "movdqa {pair}, xmmword ptr [{pointer}]",
            "movq {low}, {pair}",
            "psrldq {pair}, 8",
            "movq {high}, {pair}",
            pair = out(xmm_reg) _,
            pointer = in(reg) pointer,
            low = lateout(reg) low,
            high = lateout(reg) high,
            options(nostack, preserves_flags, readonly),
        );
    }
    [low, high]
}

/// Writes 16 aligned bytes at once.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(super) fn store_pair(pointer: *mut u8, pair: [u64; 2]) {
    // SAFETY: as in `load`; the instructions write 16 aligned bytes and change only the registers named.
    unsafe {
        std::arch::asm!(
            "movq {low}, {first}",
            "movq {high}, {second}",
            "punpcklqdq {low}, {high}",
            "movdqa xmmword ptr [{pointer}], {low}",
            low = out(xmm_reg) _,
            high = out(xmm_reg) _,
            pointer = in(reg) pointer,
            first = in(reg) pair[0],
            second = in(reg) pair[1],
            options(nostack, preserves_flags),
        );
    }
}

/// Replaces 16 aligned bytes by the result of `change`, and returns the old ones.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(super) fn update_pair(pointer: *mut u8, change: &mut dyn FnMut([u64; 2]) -> [u64; 2]) -> [u64; 2] {
    if !std::is_x86_feature_detected!("cmpxchg16b") {
        return update_halves(pointer, change);
    }
    let mut old = load_pair(pointer);
    loop {
        // SAFETY: the processor has the instruction; the 16 bytes are aligned, mapped and writable, as in `load`.
        let found = unsafe { exchange_pair(pointer, old, change(old)) };
        if found == old {
            return old;
        }
        old = found;
    }
}

/// Replaces 16 bytes by `new` if they are `old`, and returns what they were.
///
/// # Safety
/// The bytes are aligned, mapped and writable, and the processor has `cmpxchg16b`.
#[cfg(target_arch = "x86_64")]
unsafe fn exchange_pair(pointer: *mut u8, old: [u64; 2], new: [u64; 2]) -> [u64; 2] {
    let (low, high);
    // SAFETY: as the caller promises; rbx, which the compiler keeps for itself, has its value again afterwards.
    unsafe {
        std::arch::asm!(
            "xchg {new}, rbx",
            "lock cmpxchg16b xmmword ptr [{pointer}]",
            "mov rbx, {new}",
            new = inout(reg) new[0] => _,
            pointer = in(reg) pointer,
            in("rcx") new[1],
            inout("rax") old[0] => low,
            inout("rdx") old[1] => high,
            options(nostack),
        );
    }
    [low, high]
}

#[cfg(not(target_arch = "x86_64"))]
#[inline]
pub(super) fn update_pair(pointer: *mut u8, change: &mut dyn FnMut([u64; 2]) -> [u64; 2]) -> [u64; 2] {
    update_halves(pointer, change)
}

/// Replaces 16 bytes under a lock, so that other updates, though not loads and stores, see both halves or none.
fn update_halves(pointer: *mut u8, change: &mut dyn FnMut([u64; 2]) -> [u64; 2]) -> [u64; 2] {
    static UPDATING: Mutex<()> = Mutex::new(());
    let _updating = UPDATING.lock();
    let old = load_pair(pointer);
    store_pair(pointer, change(old));
    old
}

/// Reads 16 bytes in two halves.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
pub(super) fn load_pair(pointer: *mut u8) -> [u64; 2] {
    [0, 8].map(|offset| load(pointer.wrapping_add(offset), Width::Eight))
}

/// Writes 16 bytes in two halves.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
pub(super) fn store_pair(pointer: *mut u8, pair: [u64; 2]) {
    store(pointer.wrapping_add(8), Width::Eight, pair[1]);
    store(pointer, Width::Eight, pair[0]);
}

/// Copies consecutive words, 16 bytes at a time. The parts need not be aligned: a processor splits a vector only between
/// bytes that an aligned word does not cross, so that no word is seen half written. Virtual machines of Java copy arrays
/// of integers like this.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn copy_words(from: *const u8, to: *mut u8) {
    // SAFETY: the caller promises 128 readable and 128 writable bytes; the instructions access no others, and change only
    // the registers named.
    unsafe {
        std::arch::asm!(
            "movdqu {a}, xmmword ptr [{from}]",
            "movdqu {b}, xmmword ptr [{from} + 16]",
            "movdqu {c}, xmmword ptr [{from} + 32]",
            "movdqu {d}, xmmword ptr [{from} + 48]",
            "movdqu {e}, xmmword ptr [{from} + 64]",
            "movdqu {f}, xmmword ptr [{from} + 80]",
            "movdqu {g}, xmmword ptr [{from} + 96]",
            "movdqu {h}, xmmword ptr [{from} + 112]",
            "movdqu xmmword ptr [{to}], {a}",
            "movdqu xmmword ptr [{to} + 16], {b}",
            "movdqu xmmword ptr [{to} + 32], {c}",
            "movdqu xmmword ptr [{to} + 48], {d}",
            "movdqu xmmword ptr [{to} + 64], {e}",
            "movdqu xmmword ptr [{to} + 80], {f}",
            "movdqu xmmword ptr [{to} + 96], {g}",
            "movdqu xmmword ptr [{to} + 112], {h}",
            from = in(reg) from,
            to = in(reg) to,
            a = out(xmm_reg) _,
            b = out(xmm_reg) _,
            c = out(xmm_reg) _,
            d = out(xmm_reg) _,
            e = out(xmm_reg) _,
            f = out(xmm_reg) _,
            g = out(xmm_reg) _,
            h = out(xmm_reg) _,
            options(nostack, preserves_flags),
        );
    }
}

/// Reads consecutive words.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(super) fn load_words(pointer: *mut u8, words: &mut [u32; LANES]) {
    // SAFETY: as in `load` for the 128 bytes at the pointer; the words are an array of that size.
    unsafe { copy_words(pointer, words.as_mut_ptr().cast()) }
}

/// Writes consecutive words.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(super) fn store_words(pointer: *mut u8, words: &[u32; LANES]) {
    // SAFETY: as in `load_words`.
    unsafe { copy_words(words.as_ptr().cast(), pointer) }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline]
pub(super) fn load_words(pointer: *mut u8, words: &mut [u32; LANES]) {
    for (lane, word) in words.iter_mut().enumerate() {
        *word = load(pointer.wrapping_add(4 * lane), Width::Four) as u32;
    }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline]
pub(super) fn store_words(pointer: *mut u8, words: &[u32; LANES]) {
    for (lane, &word) in words.iter().enumerate() {
        store(pointer.wrapping_add(4 * lane), Width::Four, word.into());
    }
}

/// Replaces a word by the result of `change`, and returns the old value.
#[inline]
pub(super) fn update(pointer: *mut u8, width: Width, change: &mut dyn FnMut(u64) -> u64) -> u64 {
    macro_rules! replace {
        ($atomic:ty, $kind:ty) => {{
            // SAFETY: as in `load`.
            let word = unsafe { <$atomic>::from_ptr(pointer.cast()) };
            let mut old = word.load(Ordering::Relaxed);
            loop {
                let new = change(old.into()) as $kind;
                match word.compare_exchange_weak(old, new, Ordering::AcqRel, Ordering::Relaxed) {
                    Ok(_) => break old.into(),
                    Err(now) => old = now,
                }
            }
        }};
    }
    match width {
        Width::One => replace!(AtomicU8, u8),
        Width::Two => replace!(AtomicU16, u16),
        Width::Four => replace!(AtomicU32, u32),
        Width::Eight => replace!(AtomicU64, u64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory of 16 bytes that several threads access.
    #[repr(align(16))]
    struct SharedPair(std::cell::UnsafeCell<[u64; 2]>);

    // SAFETY: all accesses are those of `load_pair`, `store_pair` and `update_pair`.
    unsafe impl Sync for SharedPair {}

    #[test]
    fn words_are_loaded_stored_and_updated_in_their_width() {
        let mut bytes = [0xffu64; 2];
        let start = bytes.as_mut_ptr().cast::<u8>();
        store(start, Width::Two, 0x12345);
        assert_eq!(load(start, Width::Eight), 0x2345);
        assert_eq!(update(start, Width::Four, &mut |old| old + 1), 0x2345);
        assert_eq!(load(start, Width::One), 0x46);
        assert_eq!(load(start.wrapping_add(8), Width::Eight), 0xff);
    }

    #[test]
    fn words_of_a_warp_are_loaded_and_stored_from_any_word_on() {
        for skipped in 0..8 {
            let mut memory = [0u128; 12];
            let all: [u32; 48] = std::array::from_fn(|word| word as u32 + 1);
            let start = memory.as_mut_ptr().cast::<u8>();
            for (index, &word) in all.iter().enumerate() {
                store(start.wrapping_add(4 * index), Width::Four, word.into());
            }
            let at = start.wrapping_add(4 * skipped);
            let mut words = [0; LANES];
            load_words(at, &mut words);
            assert_eq!(words[..], all[skipped..skipped + LANES]);
            store_words(at, &words.map(|word| word + 100));
            let stored = |index: usize| load(start.wrapping_add(4 * index), Width::Four) as u32;
            let is_within = |index: &usize| (skipped..skipped + LANES).contains(index);
            let changed: Vec<usize> = (0..48).filter(|&index| stored(index) == all[index] + 100).collect();
            assert_eq!(changed, (0..48).filter(is_within).collect::<Vec<_>>(), "from word {skipped}");
        }
    }

    #[test]
    fn updates_of_16_bytes_by_several_threads_are_all_made() {
        const UPDATES: u64 = 20_000;
        let pair = &SharedPair([u64::MAX - UPDATES, 0].into());
        let count = || {
            for _ in 0..UPDATES {
                update_pair(pair.0.get().cast(), &mut |[low, high]| {
                    let (low, carries) = low.overflowing_add(1);
                    [low, high + u64::from(carries)]
                });
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(count);
            scope.spawn(count);
        });
        assert_eq!(load_pair(pair.0.get().cast()), [UPDATES - 1, 1]);
        update_halves(pair.0.get().cast(), &mut |[low, high]| [high, low]);
        assert_eq!(load_pair(pair.0.get().cast()), [1, UPDATES - 1]);
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn a_vector_of_16_bytes_is_never_seen_half_written() {
        let pair = SharedPair([0; 2].into());
        let (pair, stop) = (&pair, &std::sync::atomic::AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut value = 0;
                while !stop.load(Ordering::Relaxed) {
                    value += 1;
                    store_pair(pair.0.get().cast(), [value, !value]);
                }
            });
            let mut torn = None;
            while torn.is_none() {
                let [low, high] = load_pair(pair.0.get().cast());
                torn = ([low, high] != [0; 2] && high != !low).then_some([low, high]);
                if low > 3_000_000 {
                    break;
                }
            }
            stop.store(true, Ordering::Relaxed);
            assert_eq!(torn, None);
        });
    }
}
