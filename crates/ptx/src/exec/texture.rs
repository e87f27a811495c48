//! Texture and surface instructions: each lane samples or accesses on its own.

use std::sync::Arc;

use super::frame::lanes_of;
use super::observe::Access;
use super::run::{LaneFault, Run};
use super::warp::Warp;
use crate::fault::FaultKind;
use crate::ir::{
    At, Boundary, Fetch, FetchKind, Query, QuerySubject, SurfaceAccess, SurfaceAccessKind, TextureProperty,
};
use crate::memory::{LANES, Memory, Width};
use crate::observer::AccessKind;
use crate::texture::{Channel, Format, Level, Location, Surface, Texels, Texture, gather, sample};

/// The handle of a lane that names nothing.
fn wild(lane: usize, handle: u64, what: &str) -> LaneFault {
    (lane, FaultKind::Instruction { message: format!("{handle:#x} is not the handle of a {what}") })
}

/// Reads from one address.
fn read(memory: &mut Access<'_>, lane: usize, address: u64, width: Width) -> Result<u64, LaneFault> {
    let mut values = [0; LANES];
    match memory.memory.load(width, &[address; LANES], 1, &mut values) {
        Ok(()) => {
            memory.observe(AccessKind::Read, lane, address, width.bytes());
            Ok(values[0])
        }
        Err(_) => Err(out_of_bounds(memory.memory, lane, address, width, false)),
    }
}

fn write(memory: &mut Access<'_>, lane: usize, address: u64, width: Width, value: u64) -> Result<(), LaneFault> {
    let stored = memory.memory.store(width, &[address; LANES], 1, &[value; LANES]);
    stored.map_err(|_| out_of_bounds(memory.memory, lane, address, width, true))?;
    memory.observe(AccessKind::Write, lane, address, width.bytes());
    Ok(())
}

fn out_of_bounds(memory: &mut dyn Memory, lane: usize, address: u64, width: Width, write: bool) -> LaneFault {
    let what = memory.describe(address);
    (lane, FaultKind::Address { space: "texture", address, bytes: width.bytes(), write, what })
}

fn channel_width(format: Format) -> Width {
    match format.channel_bytes() {
        1 => Width::One,
        2 => Width::Two,
        _ => Width::Four,
    }
}

/// Reads the bits of a texel's channels. Those that the format lacks are zero.
fn read_texel(memory: &mut Access<'_>, texture: &Texture, lane: usize, address: u64) -> Result<[u32; 4], LaneFault> {
    let format = texture.format;
    let width = channel_width(format);
    let mut texel = [0; 4];
    for channel in 0..format.channels {
        let at = address.wrapping_add(u64::from(channel) * width.bytes());
        texel[channel as usize] = read(memory, lane, at, width)? as u32;
    }
    Ok(texel)
}

/// The element of linear memory with an index; zero outside.
fn read_element(
    memory: &mut Access<'_>,
    texture: &Texture,
    lane: usize,
    index: [i32; 3],
) -> Result<[u32; 4], LaneFault> {
    let texels = &texture.levels[0];
    let sizes = [texels.width, texels.height, texels.depth];
    let mut inside = [0; 3];
    for axis in 0..3 {
        inside[axis] = match u32::try_from(index[axis]) {
            Ok(index) if index < sizes[axis] => index,
            _ if texture.is_buffer => return Ok([0; 4]),
            _ => index[axis].clamp(0, sizes[axis].cast_signed() - 1).cast_unsigned(),
        };
    }
    let bits = read_texel(memory, texture, lane, texels.address(texture.format, inside))?;
    Ok(texture.decoded(bits))
}

impl Run<'_> {
    pub(super) fn fetch(&mut self, warp: &mut Warp, index: usize, fetch: &Fetch, active: u32) -> Result<(), LaneFault> {
        let mut results = [[0; LANES]; 4];
        let mut found: Option<(u64, Arc<Texture>)> = None;
        for lane in lanes_of(active) {
            let frame = warp.frame(index);
            let handle = frame.read(fetch.at.handle)[lane];
            let texture = match &found {
                Some((known, texture)) if *known == handle => Arc::clone(texture),
                _ => self.memory.texture(handle).ok_or_else(|| wild(lane, handle, "texture"))?,
            };
            let number = |slot: u32| f32::from_bits(frame.narrow[slot as usize][lane]);
            let numbers = |slots: &[u32]| {
                let mut numbers = [0.0; 3];
                numbers.iter_mut().zip(slots).for_each(|(to, &slot)| *to = number(slot));
                numbers
            };
            let layer = fetch.at.layer.map(|slot| frame.narrow[slot as usize][lane]);
            let location = Location { geometry: fetch.at.geometry, layer, at: numbers(&fetch.at.coordinates) };
            let memory = &mut self.accesses();
            let mut texel = |address| read_texel(memory, &texture, lane, address);
            let texel = match &fetch.kind {
                FetchKind::Index => {
                    let mut indices = [0, 0, layer.unwrap_or(0).cast_signed()];
                    for (to, &slot) in indices.iter_mut().zip(&fetch.at.coordinates) {
                        *to = frame.narrow[slot as usize][lane].cast_signed();
                    }
                    read_element(memory, &texture, lane, indices)
                }
                FetchKind::Base => sample(&texture, location, Level::Base, &mut texel),
                FetchKind::Level(level) => sample(&texture, location, Level::Given(number(*level)), &mut texel),
                FetchKind::Gradient(x, y) => {
                    sample(&texture, location, Level::Gradient(numbers(x), numbers(y)), &mut texel)
                }
                FetchKind::Gather(channel) => gather(&texture, location, *channel, &mut texel),
            };
            for (result, bits) in results.iter_mut().zip(texel?) {
                result[lane] = u64::from(bits);
            }
            found = Some((handle, texture));
        }
        for (to, values) in fetch.to.iter().zip(&results) {
            if let Some(to) = to {
                warp.frame_mut(index).write(*to, active, values);
            }
        }
        Ok(())
    }

    pub(super) fn surface_access(
        &mut self,
        warp: &mut Warp,
        index: usize,
        access: &SurfaceAccess,
        active: u32,
    ) -> Result<(), LaneFault> {
        let mut results = [[0; LANES]; 4];
        for lane in lanes_of(active) {
            let frame = warp.frame(index);
            let handle = frame.read(access.at.handle)[lane];
            let surface = self.memory.surface(handle).ok_or_else(|| wild(lane, handle, "surface"))?;
            let coordinates = coordinates(&access.at, |slot| frame.narrow[slot as usize][lane].cast_signed());
            match &access.kind {
                SurfaceAccessKind::Load { width, to } => {
                    let bytes = width.bytes() * to.len() as u64;
                    if let Some(address) = locate(&surface, coordinates, bytes, access.boundary, lane, false)? {
                        for (part, result) in results.iter_mut().enumerate().take(to.len()) {
                            let at = address.wrapping_add(part as u64 * width.bytes());
                            result[lane] = read(&mut self.accesses(), lane, at, *width)?;
                        }
                    }
                }
                SurfaceAccessKind::Store { width, from } => {
                    let bytes = width.bytes() * from.len() as u64;
                    let values: Vec<u64> = from.iter().map(|from| frame.read(*from)[lane]).collect();
                    if let Some(address) = locate(&surface, coordinates, bytes, access.boundary, lane, true)? {
                        for (part, value) in values.iter().enumerate() {
                            write(
                                &mut self.accesses(),
                                lane,
                                address.wrapping_add(part as u64 * width.bytes()),
                                *width,
                                *value,
                            )?;
                        }
                    }
                }
                SurfaceAccessKind::StoreConverted { from } => {
                    let values: Vec<u64> = from.iter().map(|from| frame.read(*from)[lane]).collect();
                    self.store_converted(&surface, coordinates, &values, access.boundary, lane)?;
                }
            }
        }
        if let SurfaceAccessKind::Load { to, .. } = &access.kind {
            for (to, values) in to.iter().zip(&results) {
                if let Some(to) = to {
                    warp.frame_mut(index).write(*to, active, values);
                }
            }
        }
        Ok(())
    }

    /// Writes numbers in the format of a surface. The first coordinate is an index.
    fn store_converted(
        &mut self,
        surface: &Surface,
        [x, y, z]: [i32; 3],
        values: &[u64],
        boundary: Boundary,
        lane: usize,
    ) -> Result<(), LaneFault> {
        let (format, width) = (surface.format, channel_width(surface.format));
        if format.channel == Channel::Half {
            let message = "sust.p to a surface of halves is not supported".to_owned();
            return Err((lane, FaultKind::Instruction { message }));
        }
        let bytes = format.bytes() as i64;
        let column = i32::try_from(i64::from(x) * bytes).unwrap_or(if x < 0 { i32::MIN } else { i32::MAX });
        let Some(address) = locate(surface, [column, y, z], format.bytes(), boundary, lane, true)? else {
            return Ok(());
        };
        for (channel, value) in values.iter().enumerate().take(format.channels as usize) {
            let at = address.wrapping_add(channel as u64 * width.bytes());
            write(&mut self.accesses(), lane, at, width, u64::from(format.encode(*value as u32)))?;
        }
        Ok(())
    }

    pub(super) fn query(&mut self, warp: &mut Warp, index: usize, query: &Query, active: u32) -> Result<(), LaneFault> {
        let mut values = [0; LANES];
        for lane in lanes_of(active) {
            let frame = warp.frame(index);
            let handle = frame.read(query.handle)[lane];
            let level = query.level.map_or(0, |slot| frame.narrow[slot as usize][lane] as usize);
            let (texels, levels, is_normalized) = match query.subject {
                QuerySubject::Texture => {
                    let texture = self.memory.texture(handle).ok_or_else(|| wild(lane, handle, "texture"))?;
                    let level = level.min(texture.levels.len() - 1);
                    (texture.levels[level], texture.levels.len() as u32, texture.sampling.is_normalized)
                }
                QuerySubject::Surface => {
                    let surface = self.memory.surface(handle).ok_or_else(|| wild(lane, handle, "surface"))?;
                    (surface.texels, 1, false)
                }
            };
            values[lane] = match query.property {
                TextureProperty::Width => texels.width,
                TextureProperty::Height => texels.height,
                TextureProperty::Depth | TextureProperty::Layers => texels.depth,
                TextureProperty::Levels => levels,
                TextureProperty::IsNormalized => u32::from(is_normalized),
            };
        }
        warp.frame_mut(index).write_narrow(query.to, active, values);
        Ok(())
    }
}

/// Returns the coordinates of an access, with the layer as the last one.
fn coordinates(at: &At, value: impl Fn(u32) -> i32) -> [i32; 3] {
    let mut coordinates = [0, 0, at.layer.map_or(0, &value)];
    coordinates.iter_mut().zip(&at.coordinates).for_each(|(to, &slot)| *to = value(slot));
    coordinates
}

/// Returns the address of `bytes` at a position whose first coordinate is in bytes; `None` if nothing is accessed.
fn locate(
    surface: &Surface,
    [x, y, z]: [i32; 3],
    bytes: u64,
    boundary: Boundary,
    lane: usize,
    write: bool,
) -> Result<Option<u64>, LaneFault> {
    let Texels { start, width, height, depth, row_bytes, slice_bytes } = surface.texels;
    let row = i64::from(width) * surface.format.bytes() as i64;
    let ends = [row - bytes as i64, i64::from(height) - 1, i64::from(depth) - 1];
    let mut position = [x, y, z].map(i64::from);
    let is_outside = position.iter().zip(&ends).any(|(&at, &end)| at < 0 || at > end);
    if is_outside {
        match boundary {
            Boundary::Zero => return Ok(None),
            Boundary::Clamp => {
                position.iter_mut().zip(&ends).for_each(|(at, &end)| *at = (*at).min(end).max(0));
            }
            Boundary::Trap => {
                let what = format!("position ({x}, {y}, {z}) is outside a surface of {width} x {height} x {depth}");
                let address = start;
                return Err((lane, FaultKind::Address { space: "surface", address, bytes, write, what }));
            }
        }
    }
    let [x, y, z] = position.map(i64::cast_unsigned);
    if x % bytes != 0 {
        return Err((lane, FaultKind::Misaligned { space: "surface", address: x, bytes }));
    }
    Ok(Some(start.wrapping_add(z * slice_bytes + y * row_bytes + x)))
}
