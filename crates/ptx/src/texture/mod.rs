//! Textures and surfaces: descriptions of memory, the arithmetic of sampling it, and of its formats. The caller reads
//! the memory.

mod cube;
mod description;
mod filter;
mod format;
mod sample;

pub(crate) use description::Geometry;
pub use description::{AddressMode, Filter, Sampling, Surface, Texels, Texture};
pub use format::{Channel, Format, ReadMode};
pub(crate) use sample::{Level, Location, gather, sample};
