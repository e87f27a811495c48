//! The description of a texture and of a surface: their memory, its format, and how it is sampled.

use super::format::{Format, ReadMode};

/// A box of texels in global memory: one level of a texture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Texels {
    /// The address of the first texel.
    pub start: u64,
    /// Texels of a row, at least one.
    pub width: u32,
    /// Rows of a slice, at least one.
    pub height: u32,
    /// Slices, layers or faces, at least one.
    pub depth: u32,
    /// The distance between two rows.
    pub row_bytes: u64,
    /// The distance between two slices.
    pub slice_bytes: u64,
}

impl Texels {
    /// Returns the address of the texel at a position inside.
    pub(crate) fn address(&self, format: Format, [x, y, z]: [u32; 3]) -> u64 {
        let row = u64::from(z) * self.slice_bytes + u64::from(y) * self.row_bytes;
        self.start.wrapping_add(row).wrapping_add(u64::from(x) * format.bytes())
    }
}

/// What a coordinate outside a texture refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressMode {
    /// The texture repeats.
    Wrap,
    /// The outermost texel.
    Clamp,
    /// The texture repeats, mirrored every other time.
    Mirror,
    /// The border colour.
    Border,
}

/// How texels, or levels, are combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filter {
    /// The nearest one.
    Point,
    /// The nearest ones, weighted by their distance.
    Linear,
}

/// How a texture is sampled.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampling {
    /// For each coordinate.
    pub address: [AddressMode; 3],
    /// Between texels.
    pub filter: Filter,
    /// Between levels.
    pub level_filter: Filter,
    /// The result of a fetch for integers.
    pub read: ReadMode,
    /// Whether coordinates are fractions of the size.
    pub is_normalized: bool,
    /// Whether filters of cubemaps cross the edges of faces.
    pub is_seamless: bool,
    /// For [`AddressMode::Border`].
    pub border: [f32; 4],
    /// Added to the level that a fetch asks for.
    pub level_bias: f32,
    /// The lowest level.
    pub level_min: f32,
    /// The highest level.
    pub level_max: f32,
}

/// A texture.
#[derive(Debug, Clone, PartialEq)]
pub struct Texture {
    /// Of each texel.
    pub format: Format,
    /// The largest level first; not empty.
    pub levels: Vec<Texels>,
    /// Whether it is linear memory, whose elements have an index.
    pub is_buffer: bool,
    /// How it is sampled.
    pub sampling: Sampling,
}

impl Texture {
    /// Converts the bits of a texel's channels to the result of a fetch.
    pub(crate) fn decoded(&self, bits: [u32; 4]) -> [u32; 4] {
        let mut texel = [0; 4];
        for channel in 0..self.format.channels as usize {
            texel[channel] = self.format.decode(bits[channel], self.sampling.read);
        }
        texel
    }
}

/// A surface: texels that kernels read and write without filters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Surface {
    /// Of each texel.
    pub format: Format,
    /// Where they are.
    pub texels: Texels,
}

/// The coordinates that an instruction has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Geometry {
    Line,
    Plane,
    Solid,
    Cube,
}

impl Geometry {
    /// Returns the number of coordinates.
    pub(crate) fn coordinates(self) -> usize {
        match self {
            Self::Line => 1,
            Self::Plane => 2,
            Self::Solid | Self::Cube => 3,
        }
    }
}
