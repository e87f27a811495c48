//! The calls of a session by number: each is executed once, and every repeat gets the same reply. Does not know what
//! the calls do.

use std::collections::BTreeMap;
use std::sync::Mutex;

use tokio::sync::watch;
use tonic::Code;

use crate::error::{Executed, RemoteError};
use crate::proto::Call;
use crate::sync::lock;

/// Calls of a session that are unanswered, or whose answer the client has not confirmed.
const CALLS_MAX: usize = 4096;

/// The answer: an encoded message or an error.
pub(super) type Outcome = Result<Vec<u8>, RemoteError>;

/// The state of a call. `U` is a handle to an upload.
#[derive(Clone)]
pub(super) enum Entry<U> {
    Call {
        /// A hash of the request, so that a different one under the same number is noticed.
        fingerprint: u64,
        outcome: watch::Receiver<Option<Outcome>>,
    },
    Upload(U),
}

/// Which caller executes a call.
pub(super) enum Claim {
    /// The caller, which then sends the outcome.
    New(watch::Sender<Option<Outcome>>),
    /// An earlier caller.
    Known(watch::Receiver<Option<Outcome>>),
}

pub(super) struct CallLog<U> {
    inner: Mutex<CallLogInner<U>>,
}

struct CallLogInner<U> {
    entries: BTreeMap<u64, Entry<U>>,
    /// Calls below are forgotten.
    forgotten_below: u64,
}

impl<U> Default for CallLog<U> {
    fn default() -> Self {
        Self { inner: Mutex::new(CallLogInner { entries: BTreeMap::new(), forgotten_below: 0 }) }
    }
}

impl<U: Clone> CallLog<U> {
    pub(super) fn claim(&self, call: &Call, fingerprint: u64) -> Result<Claim, RemoteError> {
        let mut inner = lock(&self.inner);
        match inner.find(call)? {
            Some(Entry::Call { fingerprint: before, outcome }) if before == fingerprint => Ok(Claim::Known(outcome)),
            Some(_) => Err(number_reused(call.number)),
            None => {
                let (sender, outcome) = watch::channel(None);
                inner.entries.insert(call.number, Entry::Call { fingerprint, outcome });
                Ok(Claim::New(sender))
            }
        }
    }

    /// The upload of a number: a known one, or a new one.
    pub(super) fn upload(&self, call: &Call, begin: impl FnOnce() -> Result<U, RemoteError>) -> Result<U, RemoteError> {
        let mut inner = lock(&self.inner);
        match inner.find(call)? {
            Some(Entry::Upload(upload)) => Ok(upload),
            Some(_) => Err(number_reused(call.number)),
            None => {
                let upload = begin()?;
                inner.entries.insert(call.number, Entry::Upload(upload.clone()));
                Ok(upload)
            }
        }
    }

    /// A known upload.
    pub(super) fn find_upload(&self, number: u64) -> Option<U> {
        match lock(&self.inner).entries.get(&number) {
            Some(Entry::Upload(upload)) => Some(upload.clone()),
            _ => None,
        }
    }
}

impl<U: Clone> CallLogInner<U> {
    fn find(&mut self, call: &Call) -> Result<Option<Entry<U>>, RemoteError> {
        if call.answered_below > self.forgotten_below {
            self.forgotten_below = call.answered_below;
            self.entries = self.entries.split_off(&self.forgotten_below);
        }
        if call.number < self.forgotten_below {
            let message = format!(
                "call {} was answered, according to a later answered_below: give a new call a new number",
                call.number
            );
            return Err(RemoteError::caller(Code::FailedPrecondition, message).with_executed(Executed::Unknown));
        }
        if call.number == 0 {
            return Err(RemoteError::invalid_argument("call numbers start at 1: give each call its own"));
        }
        let known = self.entries.get(&call.number).cloned();
        if known.is_none() && self.entries.len() >= CALLS_MAX {
            let message =
                format!("the session remembers {CALLS_MAX} calls: set answered_below to forget answered ones");
            return Err(RemoteError::caller(Code::ResourceExhausted, message));
        }
        Ok(known)
    }
}

fn number_reused(number: u64) -> RemoteError {
    RemoteError::invalid_argument(format!(
        "call number {number} was used for a different call: give each call its own number"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(number: u64, answered_below: u64) -> Call {
        Call { session: vec![0; 16], number, answered_below }
    }

    #[test]
    fn the_second_of_one_number_gets_the_answer_of_the_first() {
        let call_log = CallLog::<()>::default();
        let Ok(Claim::New(sender)) = call_log.claim(&call(1, 0), 77) else { panic!("a new call is claimed") };
        sender.send_replace(Some(Ok(vec![1, 2])));
        let Ok(Claim::Known(outcome)) = call_log.claim(&call(1, 0), 77) else { panic!("a repeated call is known") };
        assert_eq!(*outcome.borrow(), Some(Ok(vec![1, 2])));
    }

    #[test]
    fn another_request_under_the_number_is_refused() {
        let call_log = CallLog::<()>::default();
        let _first = call_log.claim(&call(1, 0), 77);
        let refused = call_log.claim(&call(1, 0), 78).err().map(|failure| failure.message);
        assert_eq!(
            refused.as_deref(),
            Some("call number 1 was used for a different call: give each call its own number")
        );
    }

    #[test]
    fn what_was_answered_is_forgotten_and_not_done_again() {
        let call_log = CallLog::<()>::default();
        let _first = call_log.claim(&call(1, 0), 77);
        let _second = call_log.claim(&call(2, 2), 77);
        let refused = call_log.claim(&call(1, 0), 77).err().expect("a forgotten call is refused");
        assert_eq!(
            refused.message,
            "call 1 was answered, according to a later answered_below: give a new call a new number"
        );
        assert!(matches!(call_log.claim(&call(2, 0), 77), Ok(Claim::Known(_))));
    }

    #[test]
    fn so_many_calls_are_remembered_and_no_more() {
        let call_log = CallLog::<()>::default();
        (1..=4096).for_each(|number| assert!(call_log.claim(&call(number, 0), 0).is_ok()));
        let refused = call_log.claim(&call(4097, 0), 0).err().expect("one call too many is refused");
        assert_eq!(refused.code, Code::ResourceExhausted);
        assert!(call_log.claim(&call(4097, 2), 0).is_ok());
    }

    #[test]
    fn zero_is_not_a_call_number() {
        let refused = CallLog::<()>::default().claim(&call(0, 0), 0).err().expect("number 0 is refused");
        assert_eq!(refused.message, "call numbers start at 1: give each call its own");
    }
}
