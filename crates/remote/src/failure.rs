//! Why a call was refused: whose fault it was, whether it was carried out, and what to do; as a value here and as a status on the
//! way. Knows nothing of sessions.

use bytes::Bytes;
use freehold_broker::wire::Refusal;
use freehold_broker::{Blame, CallError, Carried, Error, LinkError};
use prost::Message;
use std::fmt;
use tonic::{Code, Status};

use crate::proto;

/// Whose fault it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Another call would have been right.
    Caller,
    Kernel,
    /// The device's or its driver's.
    Device,
    /// The same call again may go well.
    Connection,
    /// The gate's or the broker's.
    Server,
}

/// Whether a call that failed was carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CarriedOut {
    /// Nothing was changed.
    No,
    Yes,
    /// The gate that was asked is gone, or did not answer in time.
    Unknown,
}

/// Why a call was refused.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("{sentence}")]
pub struct Failure {
    pub fault: Fault,
    pub carried_out: CarriedOut,
    pub code: Code,
    pub sentence: String,
    /// Of an upload: how many bytes the gate has.
    pub received_bytes: u64,
    /// The session is no more.
    pub is_session_over: bool,
}

/// The sentence: what `main` prints that returns it, and `unwrap`.
impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// `google.rpc.Status`, in which tools look for details.
#[derive(Clone, PartialEq, Message)]
struct Detailed {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
    #[prost(message, repeated, tag = "3")]
    details: Vec<prost_types::Any>,
}

const TYPE_URL: &str = "type.googleapis.com/freehold.v1.Failure";

impl Failure {
    fn new(fault: Fault, code: Code, sentence: impl Into<String>) -> Self {
        Self {
            fault,
            carried_out: CarriedOut::No,
            code,
            sentence: sentence.into(),
            received_bytes: 0,
            is_session_over: false,
        }
    }

    pub(crate) fn caller(code: Code, sentence: impl Into<String>) -> Self {
        Self::new(Fault::Caller, code, sentence)
    }

    pub(crate) fn session_over() -> Self {
        let sentence = "there is no such session: it was closed, its time was over, or the gate was started anew";
        Self { is_session_over: true, ..Self::caller(Code::NotFound, sentence) }
    }

    pub(crate) fn wrong(sentence: impl Into<String>) -> Self {
        Self::caller(Code::InvalidArgument, sentence)
    }

    pub(crate) fn server(sentence: impl Into<String>) -> Self {
        Self::new(Fault::Server, Code::Internal, sentence)
    }

    pub(crate) fn connection(sentence: impl Into<String>) -> Self {
        Self::new(Fault::Connection, Code::Unavailable, sentence)
    }

    pub(crate) fn with(self, carried_out: CarriedOut) -> Self {
        Self { carried_out, ..self }
    }

    pub(crate) fn received(self, received_bytes: u64) -> Self {
        Self { received_bytes, ..self }
    }

    /// The exit status of a command that failed so: 2 where the call was wrong, 3 where no gate answers or lets in, 1 otherwise.
    pub fn status(&self) -> u8 {
        match (self.fault, self.code) {
            (_, Code::Unauthenticated) | (Fault::Connection, _) => 3,
            (Fault::Caller, Code::InvalidArgument) => 2,
            _ => 1,
        }
    }

    /// What a status says that a gate sent. Nothing where something else between client and gate made it.
    pub(crate) fn from_status(status: &Status) -> Option<Self> {
        let detailed = Detailed::decode(status.details()).ok()?;
        let found = detailed.details.iter().find(|detail| detail.type_url == TYPE_URL)?;
        let told = proto::Failure::decode(found.value.as_slice()).ok()?;
        let fault = match told.fault() {
            proto::Fault::Caller => Fault::Caller,
            proto::Fault::Kernel => Fault::Kernel,
            proto::Fault::Device => Fault::Device,
            proto::Fault::Connection => Fault::Connection,
            proto::Fault::Server | proto::Fault::Unspecified => Fault::Server,
        };
        let carried_out = match told.carried_out() {
            proto::CarriedOut::No => CarriedOut::No,
            proto::CarriedOut::Yes => CarriedOut::Yes,
            proto::CarriedOut::Unknown => CarriedOut::Unknown,
        };
        let (sentence, received_bytes, is_session_over) = (told.sentence, told.received_bytes, told.session_over);
        Some(Self { fault, carried_out, code: status.code(), sentence, received_bytes, is_session_over })
    }
}

impl From<Failure> for Status {
    fn from(failure: Failure) -> Self {
        let fault = match failure.fault {
            Fault::Caller => proto::Fault::Caller,
            Fault::Kernel => proto::Fault::Kernel,
            Fault::Device => proto::Fault::Device,
            Fault::Connection => proto::Fault::Connection,
            Fault::Server => proto::Fault::Server,
        };
        let carried_out = match failure.carried_out {
            CarriedOut::No => proto::CarriedOut::No,
            CarriedOut::Yes => proto::CarriedOut::Yes,
            CarriedOut::Unknown => proto::CarriedOut::Unknown,
        };
        // It travels among the headers, which clients take few bytes of.
        let sentence = cut(failure.sentence);
        let told = proto::Failure {
            fault: fault.into(),
            carried_out: carried_out.into(),
            sentence: sentence.clone(),
            received_bytes: failure.received_bytes,
            session_over: failure.is_session_over,
        };
        let detail = prost_types::Any { type_url: TYPE_URL.to_owned(), value: told.encode_to_vec() };
        let detailed = Detailed { code: failure.code as i32, message: String::new(), details: vec![detail] };
        Self::with_details(failure.code, sentence, Bytes::from(detailed.encode_to_vec()))
    }
}

/// The most bytes of a sentence that goes over the wire.
const SENTENCE_BYTES_MAX: usize = 2048;

/// What is too long for the way, as far as it goes, and how much is missing.
fn cut(mut sentence: String) -> String {
    if sentence.len() > SENTENCE_BYTES_MAX {
        let whole = sentence.len();
        sentence.truncate(sentence.floor_char_boundary(SENTENCE_BYTES_MAX));
        let gone = whole - sentence.len();
        sentence.push_str(&format!("… (the last {gone} bytes were cut off on the way)"));
    }
    sentence
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::Link(error) => error.into(),
            Error::Name(wrong) => Self::wrong(wrong.to_string()),
            Error::Device(error) => (*error).into(),
            error @ Error::OtherDevice { .. } => Self::server(error.to_string()),
            error @ Error::TimedOut { .. } => Self::new(Fault::Server, Code::DeadlineExceeded, error.to_string()),
        }
    }
}

impl From<LinkError> for Failure {
    fn from(error: LinkError) -> Self {
        let sentence = error.to_string();
        let LinkError::Refused { refusal, .. } = error else {
            return Self::new(Fault::Server, Code::Unavailable, format!("at the gate: {sentence}"));
        };
        let (fault, code) = match refusal {
            Refusal::NoName
            | Refusal::NameGone
            | Refusal::NoModule
            | Refusal::NoLease
            | Refusal::NoSegment
            | Refusal::NoTenant => (Fault::Caller, Code::NotFound),
            Refusal::NameTaken | Refusal::ModuleTaken => (Fault::Caller, Code::AlreadyExists),
            Refusal::Busy { .. } | Refusal::OtherBytes { .. } | Refusal::OtherMemory { .. } => {
                (Fault::Caller, Code::FailedPrecondition)
            }
            Refusal::ForeignName | Refusal::ReadOnly | Refusal::NotAllowed { .. } => {
                (Fault::Caller, Code::PermissionDenied)
            }
            Refusal::UserQuota { .. }
            | Refusal::TenantQuota { .. }
            | Refusal::Full { .. }
            | Refusal::TooMany { .. }
            | Refusal::NotTaken { .. } => (Fault::Caller, Code::ResourceExhausted),
            Refusal::BadName(_) | Refusal::NothingAsked | Refusal::BadModule { .. } => {
                (Fault::Caller, Code::InvalidArgument)
            }
            Refusal::Device { .. } | Refusal::DeviceGone { .. } => (Fault::Device, Code::Unavailable),
            _ => (Fault::Server, Code::Internal),
        };
        Self::new(fault, code, sentence)
    }
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        let (sentence, blame, carried) = (error.to_string(), error.blame(), error.carried());
        let (fault, code) = match (blame, error) {
            (_, CallError::Link(error)) => return error.into(),
            (_, CallError::NoModule { .. } | CallError::NoKernel { .. }) => (Fault::Caller, Code::NotFound),
            (_, CallError::TimedOut { .. }) => (Fault::Connection, Code::DeadlineExceeded),
            (Blame::Caller, _) => (Fault::Caller, Code::InvalidArgument),
            (Blame::Kernel, _) => (Fault::Kernel, Code::Aborted),
            (Blame::Device, _) => (Fault::Device, Code::Unavailable),
            (Blame::Connection, _) => (Fault::Server, Code::Unavailable),
        };
        let carried_out = match carried {
            Carried::Not => CarriedOut::No,
            Carried::Perhaps => CarriedOut::Unknown,
        };
        Self::new(fault, code, sentence).with(carried_out)
    }
}

/// What a caller can be wrong about is looked at before a device is asked: this is the device's.
impl From<freehold::Error> for Failure {
    fn from(error: freehold::Error) -> Self {
        Self::new(Fault::Device, Code::Unavailable, format!("at the gate: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_gate_says_arrives_as_it_was_said() {
        let said = Failure::wrong("the block has 8 bytes").with(CarriedOut::Yes).received(77);
        assert_eq!(Failure::from_status(&Status::from(said.clone())), Some(said));
    }

    #[test]
    fn a_long_sentence_says_how_much_was_cut_off() {
        let arrived = |sentence: &str| Failure::from_status(&Failure::wrong(sentence).into()).unwrap().sentence;
        let most = "a".repeat(2048);
        assert_eq!(arrived(&most), most);
        let note = "… (the last 2 bytes were cut off on the way)";
        assert_eq!(arrived(&format!("{most}bc")), format!("{most}{note}"));
        // Never within a letter.
        assert_eq!(arrived(&format!("{}é", "a".repeat(2047))), format!("{}{note}", "a".repeat(2047)));
    }

    #[test]
    fn a_status_of_somebody_else_is_no_word_of_the_gate() {
        assert_eq!(Failure::from_status(&Status::unavailable("broken pipe")), None);
        assert_eq!(
            Failure::from_status(&Status::with_details(Code::Internal, "odd", Bytes::from_static(b"\xff"))),
            None
        );
    }

    #[test]
    fn a_refusal_of_the_broker_keeps_its_sentence_and_says_whose_fault() {
        let failure = Failure::from(LinkError::from(Refusal::NameTaken));
        assert_eq!((failure.fault, failure.code), (Fault::Caller, Code::AlreadyExists));
        assert_eq!(failure.sentence, "the name is taken: drop it first, or lease it for writing");
        let failure = Failure::from(LinkError::from(Refusal::DeviceGone { code: 719 }));
        assert_eq!((failure.fault, failure.code), (Fault::Device, Code::Unavailable));
    }
}
