//! Encodes a call into the words of a slot (tenant) and decodes it (worker). The decoder trusts nothing: words are a
//! valid call or `None`.

use std::marker::PhantomData;
use std::sync::Arc;

use crate::protocol::call_ring::{CALL_WORDS, HEADER_WORDS};
use crate::protocol::types::STREAMS;
use crate::protocol::types::{Fence, Id, halves, pair};
use freehold::signature::{Kind, Parameter};

/// The most fences that a call waits for.
pub(crate) const FENCES_MAX: usize = 4;

/// Words for the fences and arguments of a call.
pub(crate) const BODY_WORDS: usize = CALL_WORDS - HEADER_WORDS;

/// An argument of a kernel: a number, a structure, or memory, which stays borrowed until the call is submitted. Memory
/// becomes an argument only through its owner: [`Lease::argument`](crate::Lease::argument),
/// [`Lease::argument_mut`](crate::Lease::argument_mut), [`NamedLease::argument`](crate::NamedLease::argument),
/// [`Buffer::argument`](crate::Buffer::argument).
#[derive(Clone, Debug, PartialEq)]
pub struct Argument<'a> {
    held: Held,
    memory: PhantomData<&'a ()>,
}

#[derive(Clone, Debug, PartialEq)]
enum Held {
    Number { parameter: Parameter, bits: u64 },
    Bytes(Box<[u8]>),
    Memory { owner: Option<Owner>, memory: Id, offset_bytes: u64 },
}

/// The connection or [`GpuBackend`](crate::GpuBackend) that the id of an argument's memory belongs to, identified by
/// its address. It lives as long as the argument's borrow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner(usize);

impl Owner {
    pub(crate) fn of<T: ?Sized>(owner: &Arc<T>) -> Self {
        Self(Arc::as_ptr(owner).addr())
    }
}

/// The content of an [`Argument`], for a [`GpuBackend`](crate::GpuBackend) that forwards it. It cannot be turned into
/// an argument again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Content<'a> {
    /// A number of the given kind, in the low bits.
    Number {
        /// The kind.
        parameter: Parameter,
        /// Its bits.
        bits: u64,
    },
    /// The bytes of a structure.
    Bytes(&'a [u8]),
    /// Memory by its id, starting at a byte offset. Never an address.
    Memory {
        /// The id.
        memory: Id,
        /// The offset.
        offset_bytes: u64,
    },
}

impl Argument<'static> {
    /// A number of the given kind, in the low bits.
    pub fn number(parameter: Parameter, bits: u64) -> Self {
        Self { held: Held::Number { parameter, bits }, memory: PhantomData }
    }

    /// The bytes of a structure.
    pub fn bytes(bytes: impl Into<Box<[u8]>>) -> Self {
        Self { held: Held::Bytes(bytes.into()), memory: PhantomData }
    }

    /// A placeholder for memory in [`Launch::check`](crate::Launch::check), before any is leased. A call with it is
    /// refused.
    pub fn any_memory() -> Self {
        Self { held: Held::Memory { owner: None, memory: Id(0), offset_bytes: 0 }, memory: PhantomData }
    }
}

impl Argument<'_> {
    /// Memory that `owner` knows by an id. The caller borrows it for the argument's lifetime.
    pub(crate) fn memory(owner: Owner, memory: Id, offset_bytes: u64) -> Self {
        Self { held: Held::Memory { owner: Some(owner), memory, offset_bytes }, memory: PhantomData }
    }

    /// Returns its content.
    pub fn content(&self) -> Content<'_> {
        match &self.held {
            &Held::Number { parameter, bits } => Content::Number { parameter, bits },
            Held::Bytes(bytes) => Content::Bytes(bytes),
            &Held::Memory { memory, offset_bytes, .. } => Content::Memory { memory, offset_bytes },
        }
    }

    /// Whether it is a value, or memory of this owner.
    pub(crate) fn is_known_to(&self, known: Owner) -> bool {
        match self.held {
            Held::Memory { owner, .. } => owner == Some(known),
            Held::Number { .. } | Held::Bytes(_) => true,
        }
    }
}

macro_rules! numbers {
    ($($ty:ty, $kind:ident, $bits:expr;)*) => {$(
        impl From<$ty> for Argument<'static> {
            fn from(number: $ty) -> Self {
                let parameter = Parameter { kind: Kind::$kind, bytes: size_of::<$ty>() as u32 };
                #[allow(clippy::redundant_closure_call, reason = "the list gives each conversion as a closure")]
                Self::number(parameter, ($bits)(number))
            }
        }
    )*};
}

numbers! {
    u8, Unsigned, u64::from;
    u16, Unsigned, u64::from;
    u32, Unsigned, u64::from;
    u64, Unsigned, |number| number;
    i8, Signed, |number: i8| u64::from(number.cast_unsigned());
    i16, Signed, |number: i16| u64::from(number.cast_unsigned());
    i32, Signed, |number: i32| u64::from(number.cast_unsigned());
    i64, Signed, i64::cast_unsigned;
    f32, Float, |number: f32| u64::from(number.to_bits());
    f64, Float, f64::to_bits;
}

impl Content<'_> {
    /// The number of words in a slot.
    pub(crate) fn words(&self) -> usize {
        match self {
            Self::Number { .. } => 2,
            Self::Bytes(bytes) => 1 + bytes.len().div_ceil(8),
            Self::Memory { .. } => 3,
        }
    }
}

/// What a call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallKind {
    Launch,
    /// Load the module, which compiles its text.
    Load,
}

/// The header of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallHeader {
    pub(crate) kind: CallKind,
    pub(crate) stream: u32,
    /// Number of the call in its stream, from 1.
    pub(crate) number: u64,
    pub(crate) module: Id,
    /// The index of the kernel in its module.
    pub(crate) kernel: u32,
    pub(crate) blocks: [u32; 3],
    pub(crate) threads: [u32; 3],
    pub(crate) shared_bytes: u32,
}

fn kind_tag(kind: Kind) -> u32 {
    match kind {
        // A declared pointer type is sent as a number too.
        Kind::Unsigned | Kind::Pointer => 0,
        Kind::Signed => 1,
        Kind::Float => 2,
        Kind::Bits => 3,
        Kind::Bytes => 4,
    }
}

const LEASE_TAG: u32 = 5;

/// Encodes a call, whose fences and arguments must fit. Returns the number of words.
pub(crate) fn encode(
    to: &mut [u64; CALL_WORDS],
    head: &CallHeader,
    after: &[Fence],
    arguments: &[Argument<'_>],
) -> usize {
    let task = match head.kind {
        CallKind::Launch => 1,
        CallKind::Load => 2,
    };
    to[0] = task | u64::from(head.stream) << 16 | (arguments.len() as u64) << 32 | (after.len() as u64) << 48;
    to[1] = head.number;
    to[2] = head.module.0;
    to[3] = pair(head.kernel, head.shared_bytes);
    to[4] = pair(head.blocks[0], head.blocks[1]);
    to[5] = pair(head.blocks[2], head.threads[0]);
    to[6] = pair(head.threads[1], head.threads[2]);
    to[7] = 0;
    let mut at = HEADER_WORDS;
    for fence in after {
        to[at..at + 2].copy_from_slice(&fence.to_words());
        at += 2;
    }
    for argument in arguments {
        let content = argument.content();
        match content {
            Content::Number { parameter, bits } => {
                to[at..at + 2].copy_from_slice(&[pair(kind_tag(parameter.kind), parameter.bytes), bits]);
            }
            Content::Bytes(bytes) => {
                to[at] = pair(kind_tag(Kind::Bytes), bytes.len() as u32);
                for (word, part) in to[at + 1..].iter_mut().zip(bytes.chunks(8)) {
                    let mut whole = [0; 8];
                    whole[..part.len()].copy_from_slice(part);
                    *word = u64::from_le_bytes(whole);
                }
            }
            Content::Memory { memory, offset_bytes } => {
                to[at..at + 3].copy_from_slice(&[pair(LEASE_TAG, 8), memory.0, offset_bytes]);
            }
        }
        at += content.words();
    }
    at
}

/// What follows the header of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallBody<'a> {
    fences: &'a [u64],
    /// Not decoded yet. `arg_count` says how many arguments it claims to hold.
    arguments: &'a [u64],
    pub(crate) arg_count: u32,
}

/// A borrowed argument in a slot.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ArgRef<'a> {
    Number { parameter: Parameter, word: &'a u64 },
    Bytes { bytes: u32, words: &'a [u64] },
    Lease { lease: Id, offset_bytes: u64 },
}

/// Decodes the header of a call and returns its body. `None` if the words are not a call.
pub(crate) fn decode(words: &[u64; CALL_WORDS]) -> Option<(CallHeader, CallBody<'_>)> {
    let task = match words[0] & 0xffff {
        1 => CallKind::Launch,
        2 => CallKind::Load,
        _ => return None,
    };
    let stream = (words[0] >> 16) as u32 & 0xffff;
    let (count, fences) = ((words[0] >> 32) as u32 & 0xffff, (words[0] >> 48) as usize & 0x7fff);
    if stream >= STREAMS || fences > FENCES_MAX {
        return None;
    }
    let [kernel, shared_bytes] = halves(words[3]);
    let ([x, y], [z, tx], [ty, tz]) = (halves(words[4]), halves(words[5]), halves(words[6]));
    let (blocks, threads, module) = ([x, y, z], [tx, ty, tz], Id(words[2]));
    let head = CallHeader { kind: task, stream, number: words[1], module, kernel, blocks, threads, shared_bytes };
    let (fences, arguments) = words[HEADER_WORDS..].split_at(2 * fences);
    Some((head, CallBody { fences, arguments, arg_count: count }))
}

impl<'a> CallBody<'a> {
    pub(crate) fn fences(&self) -> impl Iterator<Item = Fence> + 'a {
        self.fences.chunks_exact(2).map(|words| Fence::from_words([words[0], words[1]]))
    }

    /// Decodes the next argument. `None` if the words are not one.
    pub(crate) fn next_arg(&mut self) -> Option<ArgRef<'a>> {
        let (&first, rest) = self.arguments.split_first()?;
        let [tag, bytes] = halves(first);
        let kind = match tag {
            0 => Kind::Unsigned,
            1 => Kind::Signed,
            2 => Kind::Float,
            3 => Kind::Bits,
            4 => {
                let (words, rest) = rest.split_at_checked((bytes as usize).div_ceil(8))?;
                self.arguments = rest;
                return Some(ArgRef::Bytes { bytes, words });
            }
            LEASE_TAG => {
                let (words, rest) = rest.split_at_checked(2)?;
                self.arguments = rest;
                return Some(ArgRef::Lease { lease: Id(words[0]), offset_bytes: words[1] });
            }
            _ => return None,
        };
        let (word, rest) = rest.split_first()?;
        self.arguments = rest;
        (1..=8).contains(&bytes).then_some(ArgRef::Number { parameter: Parameter { kind, bytes }, word })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: CallHeader = CallHeader {
        kind: CallKind::Launch,
        stream: 5,
        number: 1 << 40,
        module: Id(7 << 32 | 3),
        kernel: 2,
        blocks: [10, 11, 12],
        threads: [13, 14, 15],
        shared_bytes: 4096,
    };

    #[test]
    fn a_call_is_read_as_it_was_written() {
        let mut words = [0; CALL_WORDS];
        let fence = Fence { tenant: Id(3), semaphore: 5, value: 9 };
        let lease = Argument::memory(Owner(7), Id(9), 512);
        let arguments = [2.5_f32.into(), lease, Argument::bytes([1; 12]), (-1_i64).into(), 7_u8.into()];
        let used = encode(&mut words, &HEAD, &[fence], &arguments);
        assert_eq!(used, 8 + 2 + 2 + 3 + 3 + 2 + 2);
        let (head, mut rest) = decode(&words).unwrap();
        assert_eq!((head, rest.arg_count), (HEAD, 5));
        assert_eq!(rest.fences().collect::<Vec<_>>(), [fence]);
        let f32 = Parameter { kind: Kind::Float, bytes: 4 };
        assert_eq!(rest.next_arg(), Some(ArgRef::Number { parameter: f32, word: &0x4020_0000 }));
        assert_eq!(rest.next_arg(), Some(ArgRef::Lease { lease: Id(9), offset_bytes: 512 }));
        assert_eq!(rest.next_arg(), Some(ArgRef::Bytes { bytes: 12, words: &[0x0101_0101_0101_0101, 0x0101_0101] }));
        let i64 = Parameter { kind: Kind::Signed, bytes: 8 };
        assert_eq!(rest.next_arg(), Some(ArgRef::Number { parameter: i64, word: &u64::MAX }));
    }

    #[test]
    fn words_of_any_kind_are_a_call_or_none() {
        let mut words = [u64::MAX; CALL_WORDS];
        assert!(decode(&words).is_none());
        encode(&mut words, &HEAD, &[], &[]);
        words[0] |= 9 << 32;
        let (_, mut rest) = decode(&words).unwrap();
        assert_eq!((rest.arg_count, rest.next_arg()), (9, None));
        words[HEADER_WORDS] = u64::from(u32::MAX) << 32 | 4;
        assert_eq!(decode(&words).unwrap().1.next_arg(), None, "more bytes than a call has");
    }
}
