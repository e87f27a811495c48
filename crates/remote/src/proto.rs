include!("generated/freehold.v1.rs");

/// The descriptors of the `.proto`, for the reflection service.
pub(crate) const DESCRIPTORS: &[u8] = include_bytes!("generated/freehold.bin");
