//! Call numbers: the next one, and the number below which all calls are answered. Pure.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::sync::lock;

#[derive(Debug, Default)]
pub(super) struct CallNumbers {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    last: u64,
    /// Numbers of calls without an answer.
    unanswered: BTreeSet<u64>,
}

/// A call number. Dropping it means that the call is answered, or that no caller waits for the answer.
#[derive(Debug)]
pub(super) struct CallNumber {
    value: u64,
    numbers: Arc<CallNumbers>,
}

impl CallNumbers {
    pub(super) fn next(numbers: &Arc<Self>) -> CallNumber {
        let mut inner = numbers.inner();
        inner.last += 1;
        let value = inner.last;
        inner.unanswered.insert(value);
        drop(inner);
        CallNumber { value, numbers: numbers.clone() }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        lock(&self.inner)
    }
}

impl CallNumber {
    pub(super) fn value(&self) -> u64 {
        self.value
    }

    pub(super) fn answered_below(&self) -> u64 {
        self.numbers.inner().unanswered.first().copied().expect("this number is unanswered")
    }
}

impl Drop for CallNumber {
    fn drop(&mut self) {
        self.numbers.inner().unanswered.remove(&self.value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_open_holds_back_what_is_answered() {
        let numbers = Arc::default();
        let [first, second] = [(); 2].map(|()| CallNumbers::next(&numbers));
        assert_eq!((first.value(), second.value(), second.answered_below()), (1, 2, 1));
        drop(first);
        assert_eq!(second.answered_below(), 2);
    }
}
