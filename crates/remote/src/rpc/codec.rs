//! The codec of all calls: encodes any message, and returns received messages as bytes. The caller knows their type and
//! decodes them.

use bytes::{Buf, BufMut, Bytes};
use prost::Message;
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

/// A message to send, of any type.
pub(crate) type Outgoing = Box<dyn Encode>;

pub(crate) trait Encode: Send + Sync {
    fn encode(&self, to: &mut EncodeBuf<'_>);
}

impl<M: Message> Encode for M {
    fn encode(&self, to: &mut EncodeBuf<'_>) {
        Message::encode(self, to).expect("the buffer grows");
    }
}

/// A message that is encoded already.
pub(crate) struct Encoded(pub(crate) Bytes);

impl Encode for Encoded {
    fn encode(&self, to: &mut EncodeBuf<'_>) {
        to.put_slice(&self.0);
    }
}

/// Decodes a message, with the status that gRPC prescribes for a malformed one.
pub(crate) fn decode<M: Message + Default>(message: Bytes) -> Result<M, Status> {
    M::decode(message).map_err(|error| Status::internal(error.to_string()))
}

#[derive(Clone, Copy, Default)]
pub(crate) struct ErasedCodec;

impl Codec for ErasedCodec {
    type Encode = Outgoing;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for ErasedCodec {
    type Item = Outgoing;
    type Error = Status;

    fn encode(&mut self, message: Outgoing, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        message.encode(to);
        Ok(())
    }
}

impl Decoder for ErasedCodec {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        // Splits the received buffer, without a copy.
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}
