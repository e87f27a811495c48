//! The calls of a session by their numbers: each is carried out once, and answered as often as it is asked. Knows nothing of what
//! calls do.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tokio::sync::watch;
use tonic::Code;

use super::lock;
use super::upload::Upload;
use crate::failure::{CarriedOut, Failure};
use crate::proto::Call;

/// So many calls of a session may be unanswered, or answered and not yet known to be.
const CALLS_MAX: usize = 4096;

/// What was answered: a message as bytes, or why not.
pub(super) type Outcome = Result<Vec<u8>, Failure>;

/// What is known of a call.
#[derive(Clone)]
pub(super) enum Entry {
    Call {
        /// A number made of the request, so that another one under the same number is noticed.
        print: u64,
        outcome: watch::Receiver<Option<Outcome>>,
    },
    Upload(Arc<Upload>),
}

/// Whose turn it is to carry a call out.
pub(super) enum Claim {
    /// The caller's, who then says what came of it.
    New(watch::Sender<Option<Outcome>>),
    /// Somebody's before.
    Known(watch::Receiver<Option<Outcome>>),
}

#[derive(Default)]
pub(super) struct Numbers {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    entries: BTreeMap<u64, Entry>,
    /// Calls below are forgotten.
    floor: u64,
}

impl Numbers {
    pub(super) fn claim(&self, call: &Call, print: u64) -> Result<Claim, Failure> {
        let mut inner = lock(&self.inner);
        match inner.find(call)? {
            Some(Entry::Call { print: before, outcome }) if before == print => Ok(Claim::Known(outcome)),
            Some(_) => Err(reused(call.number)),
            None => {
                let (sender, outcome) = watch::channel(None);
                inner.entries.insert(call.number, Entry::Call { print, outcome });
                Ok(Claim::New(sender))
            }
        }
    }

    /// The upload of that number: the one that began before, or a new one.
    pub(super) fn upload(
        &self,
        call: &Call,
        begin: impl FnOnce() -> Result<Upload, Failure>,
    ) -> Result<Arc<Upload>, Failure> {
        let mut inner = lock(&self.inner);
        match inner.find(call)? {
            Some(Entry::Upload(upload)) => Ok(upload),
            Some(_) => Err(reused(call.number)),
            None => {
                let upload = Arc::new(begin()?);
                inner.entries.insert(call.number, Entry::Upload(upload.clone()));
                Ok(upload)
            }
        }
    }

    /// An upload that began.
    pub(super) fn begun(&self, number: u64) -> Option<Arc<Upload>> {
        match lock(&self.inner).entries.get(&number) {
            Some(Entry::Upload(upload)) => Some(upload.clone()),
            _ => None,
        }
    }
}

impl Inner {
    fn find(&mut self, call: &Call) -> Result<Option<Entry>, Failure> {
        if call.answered_below > self.floor {
            self.floor = call.answered_below;
            self.entries = self.entries.split_off(&self.floor);
        }
        if call.number < self.floor {
            let sentence =
                format!("call {} was answered, as a later call said: give a new call a new number", call.number);
            return Err(Failure::caller(Code::FailedPrecondition, sentence).with(CarriedOut::Unknown));
        }
        if call.number == 0 {
            return Err(Failure::wrong("a call has a number from 1 on: give each call its own"));
        }
        let known = self.entries.get(&call.number).cloned();
        if known.is_none() && self.entries.len() >= CALLS_MAX {
            let sentence =
                format!("{CALLS_MAX} calls of the session are remembered: say with answered_below which were answered");
            return Err(Failure::caller(Code::ResourceExhausted, sentence));
        }
        Ok(known)
    }
}

fn reused(number: u64) -> Failure {
    Failure::wrong(format!("call {number} was another call before: give each call its own number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(number: u64, answered_below: u64) -> Call {
        Call { session: vec![0; 16], number, answered_below }
    }

    #[test]
    fn the_second_of_one_number_gets_the_answer_of_the_first() {
        let numbers = Numbers::default();
        let Ok(Claim::New(sender)) = numbers.claim(&call(1, 0), 77) else { panic!("it is the first") };
        sender.send_replace(Some(Ok(vec![1, 2])));
        let Ok(Claim::Known(outcome)) = numbers.claim(&call(1, 0), 77) else { panic!("it is the second") };
        assert_eq!(*outcome.borrow(), Some(Ok(vec![1, 2])));
    }

    #[test]
    fn another_request_under_the_number_is_refused() {
        let numbers = Numbers::default();
        let _first = numbers.claim(&call(1, 0), 77);
        let refused = numbers.claim(&call(1, 0), 78).err().map(|failure| failure.sentence);
        assert_eq!(refused.as_deref(), Some("call 1 was another call before: give each call its own number"));
    }

    #[test]
    fn what_was_answered_is_forgotten_and_not_done_again() {
        let numbers = Numbers::default();
        let _first = numbers.claim(&call(1, 0), 77);
        let _second = numbers.claim(&call(2, 2), 77);
        let refused = numbers.claim(&call(1, 0), 77).err().expect("it is forgotten");
        assert_eq!(refused.sentence, "call 1 was answered, as a later call said: give a new call a new number");
        assert!(matches!(numbers.claim(&call(2, 0), 77), Ok(Claim::Known(_))));
    }

    #[test]
    fn so_many_calls_are_remembered_and_no_more() {
        let numbers = Numbers::default();
        (1..=4096).for_each(|number| assert!(numbers.claim(&call(number, 0), 0).is_ok()));
        let refused = numbers.claim(&call(4097, 0), 0).err().expect("there are too many");
        assert_eq!(refused.code, Code::ResourceExhausted);
        assert!(numbers.claim(&call(4097, 2), 0).is_ok());
    }

    #[test]
    fn zero_is_no_number() {
        let refused = Numbers::default().claim(&call(0, 0), 0).err().expect("it is none");
        assert_eq!(refused.sentence, "a call has a number from 1 on: give each call its own");
    }
}
