//! With `FREEHOLD_LOG` set, reports each missing function once on stderr, and explains errors.

use std::collections::BTreeSet;
use std::env;
use std::sync::{LazyLock, Mutex, PoisonError};

static IS_ON: LazyLock<bool> = LazyLock::new(|| env::var_os("FREEHOLD_LOG").is_some_and(|value| !value.is_empty()));
static NAMED: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());

/// Prints a sentence on stderr, if it is asked for.
pub(crate) fn say(sentence: &str) {
    if *IS_ON {
        eprintln!("freehold: {sentence}");
    }
}

/// Reports a call of a function that this runtime does not have.
pub(crate) fn missing(name: &'static str) {
    if *IS_ON && NAMED.lock().unwrap_or_else(PoisonError::into_inner).insert(name) {
        eprintln!("freehold: {name} is not supported: it returns cudaErrorNotSupported");
    }
}
