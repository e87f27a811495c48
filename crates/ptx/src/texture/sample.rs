//! Sampling: from the coordinates of a fetch to the texels that it reads, and their combination.

use super::cube;
use super::description::{AddressMode, Filter, Geometry, Texels, Texture};
use super::filter::{Between, HALF, ONE, SINGLE, between, corners, fixed_point, nearest, resolve, weighted_sum};
use super::format::Channel;

/// Reads the bits of a texel's channels at an address.
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
    let is_filtered = texture.sampling.filter == Filter::Linear || weight != 0;
    if !is_filtered || !texture.format.returns_float(texture.sampling.read) {
        let slice = slice_at(texture, &texture.levels[low], location);
        let texel = slice.read(slice.nearest(), read)?;
        return Ok(texel.map_or(slice.border(), |bits| texture.decoded(bits)));
    }
    let mut sum = Sum::default();
    for (level, total) in [(low, ONE - weight), (high, weight)] {
        if total > 0 {
            slice_at(texture, &texture.levels[level], location).add_to(&mut sum, total, read)?;
        }
    }
    Ok(sum.result(texture))
}

/// Returns the levels to sample, and the weight of the second.
fn levels(texture: &Texture, location: Location, level: Level) -> (usize, usize, u32) {
    let sampling = &texture.sampling;
    let last = texture.levels.len() - 1;
    if last == 0 {
        return (0, 0, 0);
    }
    let wanted = match level {
        Level::Base => 0.0,
        Level::Given(level) => level + sampling.level_bias,
        Level::Gradient(x, y) => level_of_gradient(&texture.levels[0], location.geometry, x, y) + sampling.level_bias,
    };
    let limited = wanted.max(sampling.level_min).min(sampling.level_max).clamp(0.0, last as f32);
    let fixed = fixed_point(limited.into()) as usize;
    match sampling.level_filter {
        Filter::Point => {
            let nearest = ((fixed + 128) >> 8).min(last);
            (nearest, nearest, 0)
        }
        Filter::Linear => (fixed >> 8, (fixed >> 8) + 1, (fixed & 0xff) as u32),
    }
}

/// Returns the level at which a pixel is about as large as a texel. An H200 does not compute the length of a change
/// exactly: it is the larger part and 11/32 of the smaller one, and its logarithm is rounded up.
fn level_of_gradient(level: &Texels, geometry: Geometry, x: [f32; 3], y: [f32; 3]) -> f32 {
    let size = [level.width, level.height, level.depth].map(|size| size as f32);
    let count = geometry.coordinates();
    let length = |change: [f32; 3]| {
        let mut parts = [0.0; 3];
        (0..count).for_each(|axis| parts[axis] = (change[axis] * size[axis]).abs());
        parts.sort_by(f32::total_cmp);
        parts[2] + (parts[1] + parts[0]) * (11.0 / 32.0)
    };
    let logarithm = f64::from(length(x).max(length(y))).log2();
    ((logarithm.clamp(-100.0, 100.0) * 256.0 + 0.85).floor() / 256.0) as f32
}

/// The texels of one level that a fetch may read, all of them or those of a layer or a face, and its coordinates there.
struct Slice<'t> {
    texture: &'t Texture,
    texels: &'t Texels,
    /// The number of coordinates.
    dimensions: usize,
    /// The layer or face, if the third coordinate is not one.
    layer: u32,
    at: [f32; 3],
    /// Whether filters cross the edges of a cube's face.
    is_seamless: bool,
}

/// Returns the part of a level at a location.
fn slice_at<'t>(texture: &'t Texture, texels: &'t Texels, location: Location) -> Slice<'t> {
    let mut dimensions = location.geometry.coordinates();
    let mut layer = location.layer.unwrap_or(0).min(texels.depth - 1);
    let mut at = location.at;
    let is_cube = location.geometry == Geometry::Cube;
    if is_cube {
        let on_face = cube::project(at);
        let cubes = (texels.depth / 6).max(1);
        layer = (location.layer.unwrap_or(0).min(cubes - 1) * 6 + on_face.face).min(texels.depth - 1);
        at = [on_face.at[0], on_face.at[1], 0.0];
        dimensions = 2;
    }
    // A line is the first row of a plane. Only a border shows that.
    if dimensions == 1 && location.layer.is_none() && texture.sampling.address[1] == AddressMode::Border {
        dimensions = 2;
        at[1] = 0.0;
    }
    Slice { texture, texels, dimensions, layer, at, is_seamless: is_cube && texture.sampling.is_seamless }
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

    /// Returns a coordinate in texels. A fraction of the size has 21 bits.
    fn scaled(&self, axis: usize) -> f64 {
        const FRACTION: f64 = (1 << 21) as f64;
        const INTEGERS: f32 = (1 << 23) as f32;
        let coordinate = self.at[axis];
        if !self.texture.sampling.is_normalized {
            return coordinate.into();
        }
        let repeats = matches!(self.mode(axis), AddressMode::Wrap | AddressMode::Mirror);
        if repeats && (coordinate.is_nan() || coordinate.abs() >= INTEGERS) {
            return 0.0;
        }
        let size = f64::from(self.size(axis));
        match self.texture.sampling.filter {
            Filter::Point => f64::from(coordinate * self.size(axis) as f32),
            Filter::Linear => (f64::from(coordinate) * FRACTION).floor() / FRACTION * size,
        }
    }

    fn nearest(&self) -> [i64; 3] {
        let mut indices = [0; 3];
        (0..self.dimensions).for_each(|axis| indices[axis] = nearest(self.scaled(axis)));
        indices
    }

    /// Reads the bits of the texel at indices; `None` is the border.
    fn read<E>(&self, indices: [i64; 3], read: &mut ReadTexel<'_, E>) -> Result<Option<[u32; 4]>, E> {
        let mut inside = [0, 0, self.layer];
        for axis in 0..self.dimensions {
            match resolve(indices[axis], self.size(axis), self.mode(axis)) {
                Some(index) => inside[axis] = index,
                None => return Ok(None),
            }
        }
        read(self.texels.address(self.texture.format, inside)).map(Some)
    }

    fn border(&self) -> [u32; 4] {
        let is_float = self.texture.format.returns_float(self.texture.sampling.read);
        self.texture.sampling.border.map(|value| if is_float { value.to_bits() } else { (value as i64) as u32 })
    }

    /// Returns the outermost texel alone for a coordinate that is clamped to it.
    fn clamped(&self, axis: usize, around: Between) -> Between {
        let last = i64::from(self.size(axis)) - 1;
        if self.is_seamless || self.mode(axis) != AddressMode::Clamp || (0..last).contains(&around.index) {
            return around;
        }
        Between { index: around.index.clamp(0, last), weight: 0 }
    }

    /// Adds the texels around the coordinates to a sum. Their weights have the sum `total`.
    fn add_to<E>(&self, sum: &mut Sum, total: u32, read: &mut ReadTexel<'_, E>) -> Result<(), E> {
        let mut around = [Between::default(); 3];
        for (axis, around) in around.iter_mut().enumerate().take(self.dimensions) {
            *around = match self.texture.sampling.filter {
                Filter::Point => Between { index: nearest(self.scaled(axis)), weight: 0 },
                Filter::Linear => self.clamped(axis, between(self.scaled(axis))),
            };
        }
        for (corner, weight) in corners(total, around.map(|axis| axis.weight)).into_iter().enumerate() {
            if weight == 0 {
                continue;
            }
            let mut indices = [0; 3];
            (0..self.dimensions).for_each(|axis| indices[axis] = around[axis].index + (corner >> axis & 1) as i64);
            if self.is_seamless {
                self.add_across(sum, indices, weight, read)?;
            } else {
                let texel = self.read(indices, read)?;
                sum.add(self.numbers(texel), weight);
            }
        }
        Ok(())
    }

    /// Adds the texel at indices of a face, which may lie on another face. A corner that three faces share is all of
    /// their texels.
    fn add_across<E>(
        &self,
        sum: &mut Sum,
        indices: [i64; 3],
        weight: u32,
        read: &mut ReadTexel<'_, E>,
    ) -> Result<(), E> {
        let first = self.layer / 6 * 6;
        let texels = cube::across(self.layer % 6, [indices[0], indices[1]], self.texels.width);
        let part = if texels.len() == 3 { weight / 3 } else { 0 };
        for (index, (face, [x, y])) in texels.into_iter().enumerate() {
            let bits = read(self.texels.address(self.texture.format, [x, y, first + face]))?;
            // The texel of this face has what is left.
            sum.add(self.numbers(Some(bits)), if index == 0 { weight - 2 * part } else { part });
        }
        Ok(())
    }

    /// Returns the terms that a filter adds: floating-point numbers, or integers of 16 bits.
    fn numbers(&self, texel: Option<[u32; 4]>) -> [f32; 4] {
        let format = self.texture.format;
        let Some(bits) = texel else {
            let border = self.texture.sampling.border;
            return match format.channel {
                Channel::Half | Channel::Float => border,
                Channel::Signed8 | Channel::Signed16 => border.map(|value| (value.clamp(-1.0, 1.0) * 32767.0).round()),
                _ => border.map(|value| (value.clamp(0.0, 1.0) * 65535.0).round()),
            };
        };
        let mut numbers = [0.0; 4];
        for channel in 0..format.channels as usize {
            let bits = bits[channel];
            numbers[channel] = match format.channel {
                Channel::Unsigned8 => (bits * 257) as f32,
                Channel::Unsigned16 => bits as f32,
                Channel::Signed8 => f32::from(bits as i8) * (32767.0 / 127.0),
                Channel::Signed16 => f32::from(bits as i16),
                _ => f32::from_bits(format.decode(bits, self.texture.sampling.read)),
            };
        }
        numbers
    }
}

/// The terms of a weighted sum.
#[derive(Debug, Default)]
struct Sum {
    terms: Vec<([f32; 4], u32)>,
}

impl Sum {
    fn add(&mut self, numbers: [f32; 4], weight: u32) {
        self.terms.push((numbers, weight));
    }

    fn result(&self, texture: &Texture) -> [u32; 4] {
        let mut result = [0; 4];
        for channel in 0..texture.format.channels as usize {
            let terms: Vec<(f32, u32)> =
                self.terms.iter().map(|(numbers, weight)| (numbers[channel], *weight)).collect();
            // The numbers are exact, and so is their sum.
            let integer = || {
                let sum: f64 = terms.iter().map(|&(number, weight)| f64::from(number) * f64::from(weight)).sum();
                (sum / f64::from(ONE) + 0.5).floor() as f32
            };
            result[channel] = match texture.format.channel {
                Channel::Half => weighted_sum(&terms, HALF),
                Channel::Unsigned8 | Channel::Unsigned16 => (integer() / 65535.0).to_bits(),
                Channel::Signed8 | Channel::Signed16 => (integer().max(-32767.0) / 32767.0).to_bits(),
                _ => weighted_sum(&terms, SINGLE),
            };
        }
        result
    }
}

/// Reads one channel of the four texels that a linear filter would combine: counter-clockwise from the lower left.
pub(crate) fn gather<E>(
    texture: &Texture,
    location: Location,
    channel: usize,
    read: &mut ReadTexel<'_, E>,
) -> Result<[u32; 4], E> {
    let slice = slice_at(texture, &texture.levels[0], location);
    let [x, y] = [0, 1].map(|axis| between(slice.scaled(axis)).index);
    let mut found = [0; 4];
    for (to, [right, below]) in found.iter_mut().zip([[0, 1], [1, 1], [1, 0], [0, 0]]) {
        let texel = slice.read([x + right, y + below, 0], read)?;
        *to = texel.map_or(slice.border(), |bits| texture.decoded(bits))[channel];
    }
    Ok(found)
}
