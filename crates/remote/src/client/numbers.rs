//! Numbers of calls: which is next, and below which all are answered. Pure.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Debug, Default)]
pub(super) struct Numbers {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    last: u64,
    /// Those whose answers have not come.
    open: BTreeSet<u64>,
}

/// A number of its own. Dropped, its call is answered, or nobody waits for the answer.
#[derive(Debug)]
pub(super) struct Number {
    value: u64,
    numbers: Arc<Numbers>,
}

impl Numbers {
    pub(super) fn take(numbers: &Arc<Self>) -> Number {
        let mut inner = numbers.inner();
        inner.last += 1;
        let value = inner.last;
        inner.open.insert(value);
        drop(inner);
        Number { value, numbers: numbers.clone() }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Number {
    pub(super) fn value(&self) -> u64 {
        self.value
    }

    pub(super) fn answered_below(&self) -> u64 {
        self.numbers.inner().open.first().copied().expect("this one is open")
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        self.numbers.inner().open.remove(&self.value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_open_holds_back_what_is_answered() {
        let numbers = Arc::default();
        let [first, second] = [(); 2].map(|()| Numbers::take(&numbers));
        assert_eq!((first.value(), second.value(), second.answered_below()), (1, 2, 1));
        drop(first);
        assert_eq!(second.answered_below(), 2);
    }
}
