//! Limits of a list of tensors, and of the work with a set.

/// The longest JSON text of a list. A tensor takes about 200 bytes.
pub const HEADER_BYTES_MAX: u64 = 64 << 20;

/// The longest name of a tensor, in bytes.
pub(super) const NAME_BYTES_MAX: usize = 1024;

/// The most dimensions of a tensor.
pub(super) const RANK_MAX: usize = 64;

/// How much is read and copied at once.
pub(super) const PIECE_BYTES: usize = 16 << 20;

/// The most threads that read and hash tensors.
pub(super) const THREADS_MAX: usize = 8;
