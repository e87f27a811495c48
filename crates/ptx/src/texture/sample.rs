//! Sampling: from the coordinates of a fetch to the texels that it reads, and their combination.

use super::filter::{Between, ONE, between, nearest, resolve, weighted_sum};
use super::{AddressMode, Filter, Geometry, Texels, Texture, cube};

/// Reads the channels of a texel at an address, as a fetch returns them.
pub(crate) type ReadTexel<'r, E> = dyn FnMut(u64) -> Result<[u32; 4], E> + 'r;

/// Where a fetch samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Location {
    pub(crate) geometry: Geometry,
    pub(crate) layer: Option<u32>,
    pub(crate) at: [f32; 3],
}

/// The level of a mipmapped texture that a fetch asks for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Level {
    Base,
    Given(f32),
    /// The change of the coordinates to the next pixel in two directions.
    Gradient([f32; 3], [f32; 3]),
}

/// Samples a texture.
pub(crate) fn sample<E>(
    texture: &Texture,
    location: Location,
    level: Level,
    read: &mut ReadTexel<'_, E>,
) -> Result<[u32; 4], E> {
    let (low, high, weight) = levels(texture, location, level);
    let first = sample_level(texture, &texture.levels[low], location, read)?;
    if weight == 0 || !texture.format.returns_float(texture.sampling.read) {
        return Ok(first);
    }
    let second = sample_level(texture, &texture.levels[high], location, read)?;
    let mixed = |channel: usize| {
        let [a, b] = [first, second].map(|texel| f32::from_bits(texel[channel]));
        weighted_sum(&[(a, ONE - weight), (b, weight)], 1).to_bits()
    };
    Ok([0, 1, 2, 3].map(mixed))
}

/// Returns the levels to sample, and the weight of the second.
fn levels(texture: &Texture, location: Location, level: Level) -> (usize, usize, u32) {
    let sampling = &texture.sampling;
    let last = texture.levels.len() - 1;
    let wanted = match level {
        Level::Base => 0.0,
        Level::Given(level) => level,
        Level::Gradient(x, y) => level_of_gradient(&texture.levels[0], location.geometry, x, y),
    };
    if last == 0 {
        return (0, 0, 0);
    }
    let wanted = (wanted + sampling.level_bias).max(sampling.level_min).min(sampling.level_max);
    let wanted = wanted.clamp(0.0, last as f32);
    match sampling.level_filter {
        Filter::Point => {
            let nearest = (wanted + 0.5).floor() as usize;
            (nearest.min(last), nearest.min(last), 0)
        }
        Filter::Linear => {
            let fixed = (wanted * ONE as f32) as usize;
            (fixed >> 8, (fixed >> 8) + 1, (fixed & 0xff) as u32)
        }
    }
}

/// Returns the level at which a pixel is about as large as a texel.
fn level_of_gradient(level: &Texels, geometry: Geometry, x: [f32; 3], y: [f32; 3]) -> f32 {
    let size = [level.width, level.height, level.depth].map(|size| size as f32);
    let count = geometry.coordinates();
    let length = |change: [f32; 3]| {
        let squares = (0..count).map(|axis| (change[axis] * size[axis]).powi(2));
        squares.sum::<f32>().sqrt()
    };
    length(x).max(length(y)).log2()
}

/// The texels of one level that a fetch may read: those of all slices, of one layer, or of one face.
struct Slice<'t> {
    texture: &'t Texture,
    texels: &'t Texels,
    /// The number of coordinates.
    dimensions: usize,
    /// The layer or face, if the third coordinate is not one.
    layer: u32,
}

impl Slice<'_> {
    fn size(&self, axis: usize) -> u32 {
        [self.texels.width, self.texels.height, self.texels.depth][axis]
    }

    fn mode(&self, axis: usize) -> AddressMode {
        match self.texture.sampling.address[axis] {
            AddressMode::Wrap | AddressMode::Mirror if !self.texture.sampling.is_normalized => AddressMode::Clamp,
            mode => mode,
        }
    }

    /// Returns a coordinate in texels.
    fn scaled(&self, axis: usize, coordinate: f32) -> f32 {
        if self.texture.sampling.is_normalized { coordinate * self.size(axis) as f32 } else { coordinate }
    }

    /// Reads the texel at indices, or the border.
    fn read<E>(&self, indices: [i64; 3], read: &mut ReadTexel<'_, E>) -> Result<[u32; 4], E> {
        let mut inside = [0, 0, self.layer];
        for axis in 0..self.dimensions {
            match resolve(indices[axis], self.size(axis), self.mode(axis)) {
                Some(index) => inside[axis] = index,
                None => return Ok(self.border()),
            }
        }
        read(self.texels.address(self.texture.format, inside))
    }

    fn border(&self) -> [u32; 4] {
        let is_float = self.texture.format.returns_float(self.texture.sampling.read);
        self.texture.sampling.border.map(|value| if is_float { value.to_bits() } else { (value as i64) as u32 })
    }
}

/// Returns the part of a level at a location, and the coordinates in it.
fn slice_at<'t>(texture: &'t Texture, texels: &'t Texels, location: Location) -> (Slice<'t>, [f32; 3]) {
    let mut dimensions = location.geometry.coordinates();
    let mut layer = location.layer.unwrap_or(0).min(texels.depth - 1);
    let mut at = location.at;
    if location.geometry == Geometry::Cube {
        let on_face = cube::project(at);
        let cubes = (texels.depth / 6).max(1);
        layer = (location.layer.unwrap_or(0).min(cubes - 1) * 6 + on_face.face).min(texels.depth - 1);
        at = [on_face.at[0], on_face.at[1], 0.0];
        dimensions = 2;
    }
    (Slice { texture, texels, dimensions, layer }, at)
}

fn sample_level<E>(
    texture: &Texture,
    texels: &Texels,
    location: Location,
    read: &mut ReadTexel<'_, E>,
) -> Result<[u32; 4], E> {
    let (slice, at) = slice_at(texture, texels, location);
    let is_filtered = texture.sampling.filter == Filter::Linear && texture.format.returns_float(texture.sampling.read);
    let mut indices = [0; 3];
    if !is_filtered {
        for axis in 0..slice.dimensions {
            indices[axis] = nearest(slice.scaled(axis, at[axis]));
        }
        return slice.read(indices, read);
    }
    let mut around = [Between { index: 0, weight: 0 }; 3];
    for axis in 0..slice.dimensions {
        around[axis] = between(slice.scaled(axis, at[axis]));
    }
    let mut corners = [([0; 4], 0); 8];
    let count = 1 << slice.dimensions;
    for (corner, (texel, product)) in corners.iter_mut().enumerate().take(count) {
        *product = 1;
        for axis in 0..slice.dimensions {
            let is_next = corner >> axis & 1;
            indices[axis] = around[axis].index + is_next as i64;
            *product *= if is_next == 1 { around[axis].weight } else { ONE - around[axis].weight };
        }
        if *product != 0 {
            *texel = slice.read(indices, read)?;
        }
    }
    let combined = |channel: usize| {
        let terms = corners.map(|(texel, weight)| (f32::from_bits(texel[channel]), weight));
        weighted_sum(&terms[..count], slice.dimensions as u32).to_bits()
    };
    Ok([0, 1, 2, 3].map(combined))
}

/// Reads one channel of the four texels that a linear filter would combine: counter-clockwise from the lower left.
pub(crate) fn gather<E>(
    texture: &Texture,
    location: Location,
    channel: usize,
    read: &mut ReadTexel<'_, E>,
) -> Result<[u32; 4], E> {
    let (slice, at) = slice_at(texture, &texture.levels[0], location);
    let [x, y] = [0, 1].map(|axis| between(slice.scaled(axis, at[axis])).index);
    let mut found = [0; 4];
    for (texel, [right, below]) in found.iter_mut().zip([[0, 1], [1, 1], [1, 0], [0, 0]]) {
        *texel = slice.read([x + right, y + below, 0], read)?[channel];
    }
    Ok(found)
}
