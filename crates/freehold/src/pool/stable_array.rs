//! An append-only array whose items never move. Read without a lock.
//!
//! Addresses for all items are reserved at the start; the system commits memory only where an item was written.

use std::fmt;
use std::marker::PhantomData;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// The most items that there can be. Fewer under Miri, which visits all of them at each access.
pub(crate) const ITEMS_MAX: usize = match () {
    () if cfg!(miri) => 1 << 12,
    () if cfg!(test) => 1 << 17,
    () => 1 << 24,
};

/// How many of them are reserved for operations past the point of failure.
const SPARE: usize = 16 << 10;

/// An item that knows its number.
///
/// # Safety
/// All zeros must be a valid value, and one that needs no drop.
pub(crate) unsafe trait Numbered {
    fn set_number(&self, number: u32);
}

/// A number stored for something that has the same number elsewhere. Zero until it is written.
#[derive(Debug)]
pub(crate) struct AtomicNumber(pub(crate) AtomicU32);

// SAFETY: zero is a valid number, and numbers need no drop.
unsafe impl Numbered for AtomicNumber {
    fn set_number(&self, _: u32) {}
}

pub(crate) struct StableArray<T> {
    items: NonNull<[T; ITEMS_MAX]>,
    next: AtomicU32,
    owns: PhantomData<T>,
}

// SAFETY: `items` is not `Send` as a pointer; it is memory of this value alone, and `T`s can be sent.
unsafe impl<T: Send> Send for StableArray<T> {}
// SAFETY: as above: the items are only lent, and `T` lets several threads share them.
unsafe impl<T: Sync> Sync for StableArray<T> {}

impl<T> fmt::Debug for StableArray<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StableArray").field("next", &self.next).finish_non_exhaustive()
    }
}

impl<T: Numbered> StableArray<T> {
    /// Makes an empty array. Fails if the system has no address space for the items.
    pub(crate) fn new() -> io::Result<Self> {
        const { assert!(align_of::<T>() <= 4096, "a mapping is page-aligned") };
        // No memory is set aside for items that may never be written. Miri does not know that flag.
        let unreserved = if cfg!(miri) { MapFlags::empty() } else { MapFlags::NORESERVE };
        let (access, kind) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | unreserved);
        // SAFETY: the kernel chooses the address, so that no existing mapping is replaced.
        let things = unsafe { mmap_anonymous(null_mut(), size_of::<[T; ITEMS_MAX]>(), access, kind) }?;
        let things = NonNull::new(things.cast()).expect("the kernel maps nothing at null unless it is asked to");
        Ok(Self { items: things, next: AtomicU32::new(0), owns: PhantomData })
    }

    /// Returns the item with a number that [`add`](Self::add) returned.
    #[inline]
    pub(crate) fn at(&self, number: u32) -> &T {
        &self.items()[number as usize % ITEMS_MAX]
    }

    /// Whether so few numbers are left that no operation that needs one may begin.
    pub(crate) fn is_full(&self) -> bool {
        self.next.load(Ordering::Relaxed) as usize + SPARE > ITEMS_MAX
    }

    /// Adds `count` items with consecutive numbers. Returns the first number.
    pub(crate) fn add(&self, count: u32) -> u32 {
        let first = self.next.fetch_add(count, Ordering::Relaxed);
        let end = first.checked_add(count).filter(|&end| end as usize <= ITEMS_MAX);
        for number in first..end.expect("no operation begins while the array is full") {
            self.at(number).set_number(number);
        }
        first
    }

    /// Returns all items that were added.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.items()[..(self.next.load(Ordering::Acquire) as usize).min(ITEMS_MAX)].iter()
    }

    #[inline]
    fn items(&self) -> &[T; ITEMS_MAX] {
        // SAFETY: the mapping has this length, is page-aligned, lasts as long as `self`, is written through shared
        // references alone, and was zeros, which are valid `T`s.
        unsafe { self.items.as_ref() }
    }
}

impl<T> Drop for StableArray<T> {
    fn drop(&mut self) {
        // SAFETY: the items are `self`'s own mapping of this length, and nothing refers to it.
        let unmapped = unsafe { munmap(self.items.as_ptr().cast(), size_of::<[T; ITEMS_MAX]>()) };
        unmapped.expect("a whole mapping can be unmapped");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // SAFETY: zero is a valid number, and numbers need no drop.
    unsafe impl Numbered for AtomicU32 {
        fn set_number(&self, number: u32) {
            self.store(number, Ordering::Relaxed);
        }
    }

    #[test]
    fn numbers_lead_to_things_that_stay() {
        // Fewer under Miri, which interprets every instruction.
        let many = if cfg!(miri) { 2000 } else { 100_000 };
        let array = StableArray::<AtomicU32>::new().unwrap();
        assert_eq!(array.add(1000), 0);
        let early = std::ptr::from_ref(array.at(999));
        assert_eq!(array.add(many), 1000);
        for number in [0, 999, 1000, 1023, 1024, 2047, 2048, 999 + many / 2, 999 + many] {
            assert_eq!(array.at(number).load(Ordering::Relaxed), number);
        }
        assert_eq!(early, std::ptr::from_ref(array.at(999)));
        assert_eq!(array.iter().count() as u32, 1000 + many);
    }
}
