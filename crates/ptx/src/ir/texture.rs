//! The operands of texture and surface instructions.

use super::reg::{Reg, Slot};
use crate::memory::Width;
use crate::texture::Geometry;

/// Where an instruction accesses a texture or a surface. All slots are of 32 bits.
#[derive(Debug, Clone)]
pub(crate) struct At {
    pub(crate) geometry: Geometry,
    /// The register with the handle.
    pub(crate) handle: Reg,
    pub(crate) layer: Option<Slot>,
    /// As many as the geometry has.
    pub(crate) coordinates: Box<[Slot]>,
}

/// `tex` and `tld4`.
#[derive(Debug, Clone)]
pub(crate) struct Fetch {
    pub(crate) at: At,
    pub(crate) kind: FetchKind,
    pub(crate) to: Box<[Option<Reg>]>,
}

#[derive(Debug, Clone)]
pub(crate) enum FetchKind {
    /// Coordinates are indices of texels.
    Index,
    Base,
    Level(Slot),
    /// The changes of the coordinates in two directions.
    Gradient(Box<[Slot]>, Box<[Slot]>),
    /// One channel of four texels.
    Gather(usize),
}

/// The effect of an access outside a surface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Boundary {
    /// It is a fault.
    Trap,
    /// It accesses the nearest element.
    Clamp,
    /// It reads zero, and writes nothing.
    Zero,
}

/// `suld` and `sust`. The first coordinate is in bytes, unless elements are converted.
#[derive(Debug, Clone)]
pub(crate) struct SurfaceAccess {
    pub(crate) at: At,
    pub(crate) boundary: Boundary,
    pub(crate) kind: SurfaceAccessKind,
}

#[derive(Debug, Clone)]
pub(crate) enum SurfaceAccessKind {
    Load {
        width: Width,
        to: Box<[Option<Reg>]>,
    },
    Store {
        width: Width,
        from: Box<[Reg]>,
    },
    /// Converts numbers of 32 bits to the format of the surface.
    StoreConverted {
        from: Box<[Reg]>,
    },
}

/// The property that `txq` and `suq` query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TextureProperty {
    Width,
    Height,
    Depth,
    Layers,
    Levels,
    IsNormalized,
}

/// The object of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QuerySubject {
    Texture,
    Surface,
}

/// `txq` and `suq`.
#[derive(Debug, Clone)]
pub(crate) struct Query {
    pub(crate) subject: QuerySubject,
    pub(crate) property: TextureProperty,
    pub(crate) handle: Reg,
    /// A level of a texture.
    pub(crate) level: Option<Slot>,
    pub(crate) to: Slot,
}
