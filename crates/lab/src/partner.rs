//! The partner process of an experiment: it has its own driver, handles one request at a time, and replies with the
//! result. `partner_request` defines the requests.
//!
//! The process is started anew, never forked from one that uses a driver. It ends when either side closes the
//! conversation, at the latest with the experiment. An experiment starts all its processes before it exports anything,
//! so that none inherits a descriptor that keeps memory alive.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{Child, Command, ExitStatus, Stdio};

use freehold_driver::cuda::{CUdeviceptr, CUerror, DriverError, Function};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::answer_text::byte_runs;
use super::failure::Failure;
use super::fixture::Fixture;
use super::partner_request::{PartnerReply, PartnerRequest, RequestHandler};

/// The longest message: 4096 bytes as numbers fit.
const MESSAGE_BYTES_MAX: usize = 64 << 10;

/// A process that waits for requests. Dropping this kills it.
pub(crate) struct Partner {
    child: Child,
    socket: OwnedFd,
}

impl Partner {
    /// Starts a process that has not called a driver yet.
    pub(crate) fn start(b: &Fixture) -> Result<Self, Failure> {
        let flags = SocketFlags::CLOEXEC;
        let (socket, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).map_err(io::Error::from)?;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["partner", "--device", &b.selector]);
        if let Some(part) = &b.trace {
            command.arg("--trace").arg(part);
        }
        command.stdin(Stdio::from(theirs)).stdout(Stdio::null());
        Ok(Self { child: command.spawn()?, socket })
    }

    /// Starts a process whose primary context is retained and current, as after [`Fixture::init_context`].
    pub(crate) fn start_with_context(b: &Fixture) -> Result<Self, Failure> {
        let partner = Self::start(b)?;
        partner.run(PartnerRequest::Begin)?;
        Ok(partner)
    }

    pub(crate) fn run(&self, ask: PartnerRequest) -> Result<(), Failure> {
        self.request(&ask, None).map(drop)
    }

    /// Returns the number in the reply: a handle, a count, 1 for yes.
    pub(crate) fn number(&self, ask: PartnerRequest) -> Result<u64, Failure> {
        self.number_with(ask, None)
    }

    pub(crate) fn address(&self, ask: PartnerRequest) -> Result<CUdeviceptr, Failure> {
        self.number(ask).map(CUdeviceptr)
    }

    pub(crate) fn flag(&self, ask: PartnerRequest) -> Result<bool, Failure> {
        self.number(ask).map(|number| number != 0)
    }

    pub(crate) fn bytes(&self, ask: PartnerRequest) -> Result<Vec<u8>, Failure> {
        match self.request(&ask, None)? {
            (PartnerReply::Bytes(bytes), _) => Ok(bytes),
            _ => Err(Failure::Partner),
        }
    }

    /// Formats the first `bytes` at an address of the other process.
    pub(crate) fn holds(&self, at: CUdeviceptr, bytes: usize) -> Result<String, Failure> {
        Ok(byte_runs(&self.bytes(PartnerRequest::Read { at, bytes })?))
    }

    /// Returns the descriptor in the reply.
    pub(crate) fn descriptor(&self, ask: PartnerRequest) -> Result<OwnedFd, Failure> {
        self.request(&ask, None)?.1.ok_or(Failure::Partner)
    }

    /// Sends a request with a copy of a descriptor.
    pub(crate) fn number_with_descriptor(&self, descriptor: &OwnedFd, ask: PartnerRequest) -> Result<u64, Failure> {
        self.number_with(ask, Some(descriptor.as_fd()))
    }

    /// Lets the process exit by itself, and waits for that.
    pub(crate) fn exit(mut self) -> Result<(), Failure> {
        send(self.socket.as_fd(), &PartnerRequest::End, None)?;
        self.child.wait()?;
        Ok(())
    }

    /// Kills the process with SIGKILL, and waits until it is gone.
    pub(crate) fn kill(mut self) -> Result<ExitStatus, Failure> {
        self.child.kill()?;
        Ok(self.child.wait()?)
    }

    fn number_with(&self, ask: PartnerRequest, descriptor: Option<BorrowedFd<'_>>) -> Result<u64, Failure> {
        match self.request(&ask, descriptor)? {
            (PartnerReply::Number(number), _) => Ok(number),
            _ => Err(Failure::Partner),
        }
    }

    fn request(
        &self,
        ask: &PartnerRequest,
        descriptor: Option<BorrowedFd<'_>>,
    ) -> Result<(PartnerReply, Option<OwnedFd>), Failure> {
        send(self.socket.as_fd(), ask, descriptor)?;
        let (told, descriptor) = receive(self.socket.as_fd())?.ok_or(Failure::Partner)?;
        match told {
            PartnerReply::Refused(call, code) => Err(refused(&call, code)),
            told => Ok((told, descriptor)),
        }
    }
}

impl Drop for Partner {
    fn drop(&mut self) {
        // Both fail if the process is already gone and waited for.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Serves requests from `socket` until told to exit, or until the other side is gone.
pub(crate) fn serve(bench: &Fixture, socket: BorrowedFd<'_>) -> Result<(), Failure> {
    let mut hands = RequestHandler::new(bench);
    while let Some((ask, given)) = receive::<PartnerRequest>(socket)? {
        if matches!(ask, PartnerRequest::End) {
            return Ok(());
        }
        let (told, descriptor) = match hands.handle(ask, given) {
            Ok(done) => done,
            Err(Failure::Call(DriverError { call, code })) => {
                (PartnerReply::Refused(call.name().to_owned(), code.number()), None)
            }
            Err(failure) => return Err(failure),
        };
        send(socket, &told, descriptor.as_ref().map(OwnedFd::as_fd))?;
    }
    Ok(())
}

fn refused(call: &str, code: u32) -> Failure {
    let call = Function::ALL.iter().find(|function| function.name() == call);
    match (call, CUerror::new(code)) {
        (Some(&call), Some(code)) => Failure::Call(DriverError { call, code }),
        _ => Failure::Partner,
    }
}

fn send(socket: BorrowedFd<'_>, message: &impl Serialize, descriptor: Option<BorrowedFd<'_>>) -> Result<(), Failure> {
    let text = serde_json::to_vec(message).expect("a message holds only numbers and strings");
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    if let Some(descriptor) = &descriptor {
        assert!(
            beside.push(SendAncillaryMessage::ScmRights(std::slice::from_ref(descriptor))),
            "the buffer holds one descriptor"
        );
    }
    // A process that is gone should be an error here, not a signal that ends this one.
    match sendmsg(socket, &[IoSlice::new(&text)], &mut beside, SendFlags::NOSIGNAL) {
        Ok(_) => Ok(()),
        Err(error) if [rustix::io::Errno::PIPE, rustix::io::Errno::CONNRESET].contains(&error) => Err(Failure::Partner),
        Err(error) => Err(io::Error::from(error).into()),
    }
}

/// Returns the next message and its descriptor, or `None` if the other side has ended.
fn receive<T: DeserializeOwned>(socket: BorrowedFd<'_>) -> Result<Option<(T, Option<OwnedFd>)>, Failure> {
    let mut text = vec![0; MESSAGE_BYTES_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        match recvmsg(socket, &mut [IoSliceMut::new(&mut text)], &mut beside, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::CONNRESET) => return Ok(None),
            received => break received.map_err(io::Error::from)?,
        }
    };
    if received.bytes == 0 {
        return Ok(None);
    }
    let descriptor = beside.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    let message = serde_json::from_slice(&text[..received.bytes]).map_err(|_| Failure::Partner)?;
    Ok(Some((message, descriptor)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::{Read, Write};

    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap()
    }

    #[test]
    fn a_message_arrives_with_its_descriptor() {
        let (here, there) = pair();
        let (mut reading, writing) = io::pipe().unwrap();
        send(here.as_fd(), &PartnerRequest::Alloc(4096), Some(writing.as_fd())).unwrap();
        drop(writing);
        let (ask, descriptor) = receive::<PartnerRequest>(there.as_fd()).unwrap().unwrap();
        assert!(matches!(ask, PartnerRequest::Alloc(4096)));
        File::from(descriptor.unwrap()).write_all(b"arrived").unwrap();
        let mut text = String::new();
        reading.read_to_string(&mut text).unwrap();
        assert_eq!(text, "arrived");
    }

    #[test]
    fn a_message_without_a_descriptor_arrives_without_one() {
        let (here, there) = pair();
        send(here.as_fd(), &PartnerReply::Bytes(vec![0xff; 4096]), None).unwrap();
        let (told, descriptor) = receive::<PartnerReply>(there.as_fd()).unwrap().unwrap();
        assert!(matches!(told, PartnerReply::Bytes(bytes) if bytes == [0xff; 4096]));
        assert!(descriptor.is_none());
    }

    #[test]
    fn the_other_side_has_ended_when_its_socket_is_closed() {
        let (here, there) = pair();
        drop(there);
        assert!(receive::<PartnerReply>(here.as_fd()).unwrap().is_none());
        assert!(matches!(send(here.as_fd(), &PartnerRequest::End, None), Err(Failure::Partner)));
    }

    #[test]
    fn a_partner_error_is_the_same_error_here() {
        let Failure::Call(error) = refused("cuMemFree_v2", 1) else { panic!("expected a failed call") };
        assert_eq!(error, DriverError { call: Function::cuMemFree_v2, code: CUerror::INVALID_VALUE });
    }
}
