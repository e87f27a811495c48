//! Tensor maps: 128 bytes that describe a tensor in global memory and the boxes of it that bulk copies transfer.
//!
//! Programs treat them as opaque, so the format is this crate's own. `tensormap.replace` builds a map field by field,
//! beginning with zeros: each field has a place of its own, and only the use of a map shows whether it is valid.

/// The maximum number of dimensions.
pub const RANK_MAX: usize = 5;

const START: usize = 0;
const STRIDES: usize = 8;
const SIZES: usize = 40;
const BOXES: usize = 60;
const STEPS: usize = 80;
const RANK: usize = 100;
const ELEMENT: usize = 101;
const INTERLEAVE: usize = 102;
const SWIZZLE: usize = 103;
const FILL: usize = 104;
const IS_COLUMNS: usize = 105;
const PIXELS: usize = 106;
const LOWER: usize = 108;
const UPPER: usize = 114;

/// The maximum number of pixels of a column.
pub const PIXELS_MAX: u32 = 1024;

/// A tensor in global memory, and the boxes that one copy transfers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorMap {
    /// The address of the first element.
    pub start: u64,
    /// The type of the elements.
    pub element: Element,
    /// The dimensions, innermost first.
    pub dimensions: Vec<Dimension>,
    /// How boxes lie in shared memory.
    pub swizzle: Swizzle,
    /// Whether elements outside the tensor are read as NaN, not as zero.
    pub is_filled_with_nan: bool,
    /// Which pixels `.im2col` copies; `None` if the map describes boxes.
    pub columns: Option<Columns>,
}

/// Pixels of a tensor of images, of which one copy transfers a column. The first dimension has the channels, the last one
/// the images, and those between are spatial. The box of the first dimension has the channels of a pixel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Columns {
    /// The number of pixels that a copy transfers, from 1 to [`PIXELS_MAX`].
    pub pixels: u32,
    /// The first pixel of each spatial dimension, innermost first.
    pub lower: Vec<i16>,
    /// The last pixel of each spatial dimension, counted from the last one of the image.
    pub upper: Vec<i16>,
}

impl Columns {
    /// Returns how many bits a corner has if there are that many spatial dimensions.
    pub fn corner_bits(dimensions: usize) -> u32 {
        match dimensions {
            1 => 16,
            2 => 8,
            _ => 5,
        }
    }
}

/// One dimension of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dimension {
    /// The number of elements, from 1 to 2³².
    pub size: u64,
    /// The distance of two elements in bytes: that of the first dimension is the size of an element.
    pub stride: u64,
    /// The extent of a box in elements of the tensor.
    pub box_size: u32,
    /// The distance of two elements of a box in elements of the tensor.
    pub step: u32,
}

impl Dimension {
    /// Returns the number of elements of a box.
    pub(crate) fn count(&self) -> u64 {
        u64::from(self.box_size.div_ceil(self.step))
    }
}

/// The type of an element, in the order in which `tensormap.replace` numbers them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "PTX names them so")]
pub enum Element {
    U8,
    U16,
    U32,
    S32,
    U64,
    S64,
    F16,
    F32,
    F32Ftz,
    F64,
    Bf16,
    Tf32,
    Tf32Ftz,
}

const ELEMENTS: [Element; 13] = [
    Element::U8,
    Element::U16,
    Element::U32,
    Element::S32,
    Element::U64,
    Element::S64,
    Element::F16,
    Element::F32,
    Element::F32Ftz,
    Element::F64,
    Element::Bf16,
    Element::Tf32,
    Element::Tf32Ftz,
];

impl Element {
    /// Returns the size in bytes.
    pub fn bytes(self) -> u64 {
        match self {
            Self::U8 => 1,
            Self::U16 | Self::F16 | Self::Bf16 => 2,
            Self::U32 | Self::S32 | Self::F32 | Self::F32Ftz | Self::Tf32 | Self::Tf32Ftz => 4,
            Self::U64 | Self::S64 | Self::F64 => 8,
        }
    }

    /// Returns whether it can be NaN.
    pub fn is_float(self) -> bool {
        !matches!(self, Self::U8 | Self::U16 | Self::U32 | Self::S32 | Self::U64 | Self::S64)
    }
}

/// Which 16-byte units of a box change places, so that columns lie in different banks: those within 32, 64 or 128 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the numbers are bytes")]
pub enum Swizzle {
    None,
    Within32,
    Within64,
    Within128,
}

impl Swizzle {
    /// Returns the width in which units change places.
    pub fn bytes(self) -> Option<u64> {
        match self {
            Self::None => None,
            Self::Within32 => Some(32),
            Self::Within64 => Some(64),
            Self::Within128 => Some(128),
        }
    }

    /// Returns where a byte of a box lies.
    pub(crate) fn apply(self, at: u64) -> u64 {
        let units = self.bytes().map_or(0, |bytes| bytes - 16);
        at ^ at >> 3 & units
    }
}

/// A field of `tensormap.replace`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MapField {
    Start,
    Rank,
    BoxSize(u32),
    Size(u32),
    Stride(u32),
    Step(u32),
    Element,
    Interleave,
    Swizzle,
    Fill,
}

impl MapField {
    /// Returns where it is, and its size.
    pub(crate) fn place(self) -> (usize, usize) {
        match self {
            Self::Start => (START, 8),
            Self::Rank => (RANK, 1),
            Self::BoxSize(dimension) => (BOXES + 4 * dimension as usize, 4),
            Self::Size(dimension) => (SIZES + 4 * dimension as usize, 4),
            Self::Stride(dimension) => (STRIDES + 8 * dimension as usize, 8),
            Self::Step(dimension) => (STEPS + 4 * dimension as usize, 4),
            Self::Element => (ELEMENT, 1),
            Self::Interleave => (INTERLEAVE, 1),
            Self::Swizzle => (SWIZZLE, 1),
            Self::Fill => (FILL, 1),
        }
    }
}

impl TensorMap {
    /// The size of a tensor map.
    pub const BYTES: usize = 128;

    /// Returns the bytes that kernels get.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let mut put = |field: MapField, value: u64| {
            let (at, size) = field.place();
            bytes[at..at + size].copy_from_slice(&value.to_le_bytes()[..size]);
        };
        put(MapField::Start, self.start);
        put(MapField::Rank, self.dimensions.len() as u64 - 1);
        for (number, dimension) in (0..).zip(&self.dimensions) {
            // A size of 2³² is kept as zero.
            put(MapField::Size(number), dimension.size);
            put(MapField::BoxSize(number), dimension.box_size.into());
            put(MapField::Step(number), dimension.step.into());
            if number > 0 {
                put(MapField::Stride(number - 1), dimension.stride);
            }
        }
        let element = ELEMENTS.iter().position(|&element| element == self.element).unwrap_or(0);
        put(MapField::Element, element as u64);
        put(MapField::Swizzle, self.swizzle as u64);
        put(MapField::Fill, self.is_filled_with_nan.into());
        if let Some(columns) = &self.columns {
            bytes[IS_COLUMNS] = 1;
            bytes[PIXELS..PIXELS + 2].copy_from_slice(&(columns.pixels as u16).to_le_bytes());
            for (start, corner) in [(LOWER, &columns.lower), (UPPER, &columns.upper)] {
                let (places, _) = bytes[start..].as_chunks_mut::<2>();
                places.iter_mut().zip(corner).for_each(|(place, at)| *place = at.to_le_bytes());
            }
        }
        bytes
    }

    /// Returns the size of a box, or of a column of pixels.
    pub fn box_bytes(&self) -> u64 {
        let rows = match &self.columns {
            None => self.dimensions[1..].iter().map(Dimension::count).product::<u64>(),
            Some(columns) => columns.pixels.into(),
        };
        rows * self.row_bytes()
    }

    /// Returns the size of a row of a box. The step of the first dimension has no effect.
    pub(crate) fn row_bytes(&self) -> u64 {
        u64::from(self.dimensions[0].box_size) * self.element.bytes()
    }

    /// Reads a map, or says what is wrong with it.
    pub(crate) fn decode(bytes: &[u8; Self::BYTES]) -> Result<Self, String> {
        let get = |field: MapField| {
            let (at, size) = field.place();
            let mut value = [0; 8];
            value[..size].copy_from_slice(&bytes[at..at + size]);
            u64::from_le_bytes(value)
        };
        let rank = get(MapField::Rank) + 1;
        if rank > RANK_MAX as u64 {
            return Err(format!("the tensor map has {rank} dimensions, at most {RANK_MAX} are possible"));
        }
        let element = ELEMENTS.get(get(MapField::Element) as usize).copied();
        let element = element.ok_or("the tensor map has an unknown type of elements")?;
        if get(MapField::Interleave) != 0 {
            return Err("the software driver has no interleaved tensors".to_owned());
        }
        let swizzle = match get(MapField::Swizzle) {
            0 => Swizzle::None,
            1 => Swizzle::Within32,
            2 => Swizzle::Within64,
            3 => Swizzle::Within128,
            _ => return Err("the tensor map has an unknown swizzle mode".to_owned()),
        };
        let dimension = |number: u32| {
            let size = match get(MapField::Size(number)) {
                0 => 1 << 32,
                size => size,
            };
            let stride = match number {
                0 => element.bytes(),
                _ => get(MapField::Stride(number - 1)),
            };
            let (box_size, step) = (get(MapField::BoxSize(number)) as u32, get(MapField::Step(number)) as u32);
            if !(1..=256).contains(&box_size) || !(1..=8).contains(&step) {
                return Err(format!(
                    "dimension {number} of the tensor map has a box of {box_size} with steps of {step}"
                ));
            }
            Ok(Dimension { size, stride, box_size, step })
        };
        let dimensions: Vec<_> = (0..rank as u32).map(dimension).collect::<Result<_, _>>()?;
        let columns = columns_of(bytes, dimensions.len())?;
        let is_filled_with_nan = get(MapField::Fill) != 0;
        Ok(Self { start: get(MapField::Start), element, dimensions, swizzle, is_filled_with_nan, columns })
    }
}

fn columns_of(bytes: &[u8; TensorMap::BYTES], rank: usize) -> Result<Option<Columns>, String> {
    if bytes[IS_COLUMNS] == 0 {
        return Ok(None);
    }
    let number = |at: usize| i16::from_le_bytes([bytes[at], bytes[at + 1]]);
    let pixels = u32::from(number(PIXELS).cast_unsigned());
    if rank < 3 || !(1..=PIXELS_MAX).contains(&pixels) {
        return Err(format!("the tensor map has columns of {pixels} pixels in {rank} dimensions"));
    }
    let corner = |start: usize| (0..rank - 2).map(|dimension| number(start + 2 * dimension)).collect();
    Ok(Some(Columns { pixels, lower: corner(LOWER), upper: corner(UPPER) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_is_read_as_it_was_written() {
        let dimension = |size, stride| Dimension { size, stride, box_size: 7, step: 3 };
        let map = TensorMap {
            start: 0x7000_0000_1000,
            element: Element::Bf16,
            dimensions: vec![dimension(1 << 32, 2), dimension(5, 1 << 34), dimension(9, 48)],
            swizzle: Swizzle::Within64,
            is_filled_with_nan: true,
            columns: None,
        };
        assert_eq!(TensorMap::decode(&map.encode()), Ok(map.clone()));
        let columns = Some(Columns { pixels: 1024, lower: vec![-32768], upper: vec![32767] });
        let map = TensorMap { columns, ..map };
        assert_eq!(TensorMap::decode(&map.encode()), Ok(map));
    }

    #[test]
    fn zeros_are_not_a_map() {
        assert!(TensorMap::decode(&[0; TensorMap::BYTES]).unwrap_err().contains("a box of 0"));
    }

    #[test]
    fn units_of_16_bytes_change_places_by_their_row() {
        assert_eq!(Swizzle::Within128.apply(0x80), 0x90);
        assert_eq!(Swizzle::Within128.apply(0x3f4), 0x384);
        assert_eq!(Swizzle::Within64.apply(0x1f0), 0x1c0);
        assert_eq!(Swizzle::Within32.apply(0x1f0), 0x1e0);
        assert_eq!(Swizzle::None.apply(0x1f0), 0x1f0);
    }
}
