//! The error of a call: whose fault it was, whether the call was executed, and what to do; as a value, and as a gRPC
//! status on the wire. Does not know sessions.

use bytes::Bytes;
use freehold_broker::wire::RequestError;
use freehold_broker::{self as broker, CallError, Error, LinkError};
use prost::Message;
use std::fmt;
use tonic::{Code, Status};

use crate::proto;

/// Whose fault an error is.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorOrigin {
    /// The call was wrong.
    Caller,
    /// The kernel's.
    Kernel,
    /// The device or its driver failed.
    Device,
    /// The same call may succeed when it is repeated.
    Connection,
    /// The server or the broker failed.
    Server,
}

/// Whether a failed call was executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Executed {
    /// Nothing was changed.
    No,
    /// It was executed.
    Yes,
    /// The server is gone, or did not answer in time.
    Unknown,
}

/// Why a call failed.
#[non_exhaustive]
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct RemoteError {
    /// Whose fault it was.
    pub origin: ErrorOrigin,
    /// Whether the call was executed.
    pub executed: Executed,
    /// The gRPC status code.
    pub code: Code,
    /// What failed and what to do, in one sentence.
    pub message: String,
    /// For an upload: how many bytes the server has.
    pub received_bytes: u64,
    /// The session has ended.
    pub is_session_expired: bool,
}

/// Same as `Display`, so that `unwrap` and a `main` that returns the error print the message.
impl fmt::Debug for RemoteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// `google.rpc.Status`, where tools look for details.
#[derive(Clone, PartialEq, Message)]
struct GoogleRpcStatus {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
    #[prost(message, repeated, tag = "3")]
    details: Vec<prost_types::Any>,
}

const TYPE_URL: &str = "type.googleapis.com/freehold.v1.Failure";

impl RemoteError {
    fn new(origin: ErrorOrigin, code: Code, message: impl Into<String>) -> Self {
        Self {
            origin,
            executed: Executed::No,
            code,
            message: message.into(),
            received_bytes: 0,
            is_session_expired: false,
        }
    }

    pub(crate) fn caller(code: Code, message: impl Into<String>) -> Self {
        Self::new(ErrorOrigin::Caller, code, message)
    }

    pub(crate) fn session_expired() -> Self {
        let message = "no such session: it was closed, it timed out, or the server was restarted";
        Self { is_session_expired: true, ..Self::caller(Code::NotFound, message) }
    }

    pub(crate) fn invalid_argument(message: impl Into<String>) -> Self {
        Self::caller(Code::InvalidArgument, message)
    }

    pub(crate) fn server(message: impl Into<String>) -> Self {
        Self::new(ErrorOrigin::Server, Code::Internal, message)
    }

    pub(crate) fn connection(message: impl Into<String>) -> Self {
        Self::new(ErrorOrigin::Connection, Code::Unavailable, message)
    }

    pub(crate) fn with_executed(self, executed: Executed) -> Self {
        Self { executed, ..self }
    }

    pub(crate) fn with_received(self, received_bytes: u64) -> Self {
        Self { received_bytes, ..self }
    }

    /// Returns the exit status of a command with this error: 2 if the call was wrong, 3 if no server answers or accepts
    /// the token, 1 otherwise.
    pub fn exit_code(&self) -> u8 {
        match (self.origin, self.code) {
            (_, Code::Unauthenticated) | (ErrorOrigin::Connection, _) => 3,
            (ErrorOrigin::Caller, Code::InvalidArgument) => 2,
            _ => 1,
        }
    }

    /// Decodes the status of a server. `None` if something else between client and server created it.
    pub(crate) fn from_status(status: &Status) -> Option<Self> {
        let detailed = GoogleRpcStatus::decode(status.details()).ok()?;
        let found = detailed.details.iter().find(|detail| detail.type_url == TYPE_URL)?;
        let told = proto::Failure::decode(found.value.as_slice()).ok()?;
        let origin = match told.origin() {
            proto::ErrorOrigin::Caller => ErrorOrigin::Caller,
            proto::ErrorOrigin::Kernel => ErrorOrigin::Kernel,
            proto::ErrorOrigin::Device => ErrorOrigin::Device,
            proto::ErrorOrigin::Connection => ErrorOrigin::Connection,
            proto::ErrorOrigin::Server | proto::ErrorOrigin::Unspecified => ErrorOrigin::Server,
        };
        let executed = match told.executed() {
            proto::Executed::No => Executed::No,
            proto::Executed::Yes => Executed::Yes,
            proto::Executed::Unknown => Executed::Unknown,
        };
        let (message, received_bytes, is_session_over) = (told.message, told.received_bytes, told.session_over);
        Some(Self {
            origin,
            executed,
            code: status.code(),
            message,
            received_bytes,
            is_session_expired: is_session_over,
        })
    }
}

impl From<RemoteError> for Status {
    fn from(failure: RemoteError) -> Self {
        let origin = match failure.origin {
            ErrorOrigin::Caller => proto::ErrorOrigin::Caller,
            ErrorOrigin::Kernel => proto::ErrorOrigin::Kernel,
            ErrorOrigin::Device => proto::ErrorOrigin::Device,
            ErrorOrigin::Connection => proto::ErrorOrigin::Connection,
            ErrorOrigin::Server => proto::ErrorOrigin::Server,
        };
        let executed = match failure.executed {
            Executed::No => proto::Executed::No,
            Executed::Yes => proto::Executed::Yes,
            Executed::Unknown => proto::Executed::Unknown,
        };
        // It is sent in the headers, of which clients accept few bytes.
        let message = truncate(failure.message);
        let told = proto::Failure {
            origin: origin.into(),
            executed: executed.into(),
            message: message.clone(),
            received_bytes: failure.received_bytes,
            session_over: failure.is_session_expired,
        };
        let detail = prost_types::Any { type_url: TYPE_URL.to_owned(), value: told.encode_to_vec() };
        let detailed = GoogleRpcStatus { code: failure.code as i32, message: String::new(), details: vec![detail] };
        Self::with_details(failure.code, message, Bytes::from(detailed.encode_to_vec()))
    }
}

/// The longest message on the wire, in bytes.
const MESSAGE_BYTES_MAX: usize = 2048;

/// Truncates a long message, and says how much is missing.
fn truncate(mut message: String) -> String {
    if message.len() > MESSAGE_BYTES_MAX {
        let whole = message.len();
        message.truncate(message.floor_char_boundary(MESSAGE_BYTES_MAX));
        let gone = whole - message.len();
        message.push_str(&format!("… (the last {gone} bytes were cut off)"));
    }
    message
}

impl From<Error> for RemoteError {
    fn from(error: Error) -> Self {
        match error {
            Error::Link(error) => error.into(),
            Error::Name(wrong) => Self::invalid_argument(wrong.to_string()),
            Error::Device(error) => (*error).into(),
            error @ Error::TimedOut { .. } => Self::new(ErrorOrigin::Server, Code::DeadlineExceeded, error.to_string()),
            error => Self::server(error.to_string()),
        }
    }
}

impl From<LinkError> for RemoteError {
    fn from(error: LinkError) -> Self {
        let message = error.to_string();
        let LinkError::Request { error: request_error, .. } = error else {
            return Self::new(ErrorOrigin::Server, Code::Unavailable, format!("at the server: {message}"));
        };
        let (origin, code) = match request_error {
            RequestError::NoName
            | RequestError::NameDropped
            | RequestError::NoModule
            | RequestError::NoLease
            | RequestError::NoSegment
            | RequestError::NoTenant => (ErrorOrigin::Caller, Code::NotFound),
            RequestError::NameTaken | RequestError::ModuleTaken => (ErrorOrigin::Caller, Code::AlreadyExists),
            RequestError::Busy { .. } | RequestError::SizeMismatch { .. } | RequestError::WrongMemoryKind { .. } => {
                (ErrorOrigin::Caller, Code::FailedPrecondition)
            }
            RequestError::ForeignName | RequestError::ReadOnly | RequestError::NotAllowed { .. } => {
                (ErrorOrigin::Caller, Code::PermissionDenied)
            }
            RequestError::UserQuota { .. }
            | RequestError::TenantQuota { .. }
            | RequestError::OutOfMemory { .. }
            | RequestError::TooMany { .. }
            | RequestError::ReceiverBusy { .. } => (ErrorOrigin::Caller, Code::ResourceExhausted),
            RequestError::InvalidName(_) | RequestError::ZeroBytes | RequestError::InvalidModule { .. } => {
                (ErrorOrigin::Caller, Code::InvalidArgument)
            }
            RequestError::Device { .. } | RequestError::DeviceGone { .. } => (ErrorOrigin::Device, Code::Unavailable),
            _ => (ErrorOrigin::Server, Code::Internal),
        };
        Self::new(origin, code, message)
    }
}

impl From<CallError> for RemoteError {
    fn from(error: CallError) -> Self {
        let (message, call_origin, call_executed) = (error.to_string(), error.origin(), error.executed());
        let (origin, code) = match (call_origin, error) {
            (_, CallError::Link(error)) => return error.into(),
            (_, CallError::NoModule { .. } | CallError::NoKernel { .. }) => (ErrorOrigin::Caller, Code::NotFound),
            (_, CallError::TimedOut { .. }) => (ErrorOrigin::Connection, Code::DeadlineExceeded),
            (broker::ErrorOrigin::Caller, _) => (ErrorOrigin::Caller, Code::InvalidArgument),
            (broker::ErrorOrigin::Kernel, _) => (ErrorOrigin::Kernel, Code::Aborted),
            (broker::ErrorOrigin::Device, _) => (ErrorOrigin::Device, Code::Unavailable),
            // The connection from the server to its broker.
            (_, _) => (ErrorOrigin::Server, Code::Unavailable),
        };
        let executed = match call_executed {
            broker::Executed::No => Executed::No,
            broker::Executed::Maybe => Executed::Unknown,
        };
        Self::new(origin, code, message).with_executed(executed)
    }
}

/// Caller errors are found before the device is asked, so this is a failure of the device.
impl From<freehold::Error> for RemoteError {
    fn from(error: freehold::Error) -> Self {
        Self::new(ErrorOrigin::Device, Code::Unavailable, format!("at the server: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_survives_the_wire() {
        let said =
            RemoteError::invalid_argument("the block has 8 bytes").with_executed(Executed::Yes).with_received(77);
        assert_eq!(RemoteError::from_status(&Status::from(said.clone())), Some(said));
    }

    #[test]
    fn a_long_sentence_says_how_much_was_cut_off() {
        let arrived =
            |message: &str| RemoteError::from_status(&RemoteError::invalid_argument(message).into()).unwrap().message;
        let most = "a".repeat(2048);
        assert_eq!(arrived(&most), most);
        let note = "… (the last 2 bytes were cut off)";
        assert_eq!(arrived(&format!("{most}bc")), format!("{most}{note}"));
        // Never within a character.
        assert_eq!(arrived(&format!("{}é", "a".repeat(2047))), format!("{}{note}", "a".repeat(2047)));
    }

    #[test]
    fn a_status_without_details_is_not_a_server_error() {
        assert_eq!(RemoteError::from_status(&Status::unavailable("broken pipe")), None);
        assert_eq!(
            RemoteError::from_status(&Status::with_details(Code::Internal, "odd", Bytes::from_static(b"\xff"))),
            None
        );
    }

    #[test]
    fn a_refusal_of_the_broker_keeps_its_sentence_and_says_whose_fault() {
        let failure = RemoteError::from(LinkError::from(RequestError::NameTaken));
        assert_eq!((failure.origin, failure.code), (ErrorOrigin::Caller, Code::AlreadyExists));
        assert_eq!(
            failure.message,
            "the name is taken: drop it first, lease it for writing, or use `freehold put --replace`"
        );
        let failure = RemoteError::from(LinkError::from(RequestError::DeviceGone { code: 719 }));
        assert_eq!((failure.origin, failure.code), (ErrorOrigin::Device, Code::Unavailable));
    }
}
