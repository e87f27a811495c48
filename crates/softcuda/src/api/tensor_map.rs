//! Tensor maps: descriptions of tensors for bulk copies, which kernels get as arguments.

use freehold_driver::cuda::{CUdeviceptr, CUerror, CUresult, CUtensorMap, CUtensorMapDataType};
use freehold_ptx::{Columns, Dimension, Element, PIXELS_MAX, RANK_MAX, Swizzle, TensorMap};

use crate::base::config::compute_capability;
use crate::ffi::args::{InArray, InOut, Out};

/// Addresses and strides are multiples of this.
const UNIT: u64 = 16;

/// Strides are below this.
const STRIDE_END: u64 = 1 << 40;

/// Boxes are smaller than this.
const BOX_BYTES_END: u64 = 1 << 18;

/// The first compute capability with tensor maps.
const SINCE: u32 = 90;

#[expect(clippy::too_many_arguments, reason = "the driver's function has them")]
pub(crate) fn cuTensorMapEncodeTiled(
    map: Out<CUtensorMap>,
    data_type: CUtensorMapDataType,
    rank: u32,
    address: CUdeviceptr,
    sizes: InArray<u64>,
    strides: InArray<u64>,
    box_sizes: InArray<u32>,
    steps: InArray<u32>,
    interleave: u32,
    swizzle: u32,
    promotion: u32,
    fill: u32,
) -> CUresult {
    supported_rank(rank, 1)?;
    let box_sizes = box_sizes.read(rank as usize)?;
    let tensor = Tensor { data_type, address, sizes, strides, steps, interleave, swizzle, promotion, fill };
    encode(map, &tensor, &box_sizes, None)
}

#[expect(clippy::too_many_arguments, reason = "the driver's function has them")]
pub(crate) fn cuTensorMapEncodeIm2col(
    map: Out<CUtensorMap>,
    data_type: CUtensorMapDataType,
    rank: u32,
    address: CUdeviceptr,
    sizes: InArray<u64>,
    strides: InArray<u64>,
    lower: InArray<i32>,
    upper: InArray<i32>,
    channels: u32,
    pixels: u32,
    steps: InArray<u32>,
    interleave: u32,
    swizzle: u32,
    promotion: u32,
    fill: u32,
) -> CUresult {
    supported_rank(rank, 3)?;
    let rank = rank as usize;
    if !(1..=PIXELS_MAX).contains(&pixels) {
        return Err(CUerror::INVALID_VALUE);
    }
    let columns = Columns { pixels, lower: corner(&lower, rank)?, upper: corner(&upper, rank)? };
    let box_sizes = [vec![channels], vec![1; rank - 1]].concat();
    let tensor = Tensor { data_type, address, sizes, strides, steps, interleave, swizzle, promotion, fill };
    encode(map, &tensor, &box_sizes, Some(columns))
}

/// The arguments that both functions have.
struct Tensor {
    data_type: CUtensorMapDataType,
    address: CUdeviceptr,
    sizes: InArray<u64>,
    strides: InArray<u64>,
    steps: InArray<u32>,
    interleave: u32,
    swizzle: u32,
    promotion: u32,
    fill: u32,
}

fn supported_rank(rank: u32, least: u32) -> CUresult {
    if compute_capability() < SINCE {
        return Err(CUerror::NOT_SUPPORTED);
    }
    if (least..=RANK_MAX as u32).contains(&rank) { Ok(()) } else { Err(CUerror::INVALID_VALUE) }
}

/// Reads a corner, whose elements have fewer bits the more there are.
fn corner(of: &InArray<i32>, rank: usize) -> Result<Vec<i16>, CUerror> {
    let most = (1 << (Columns::corner_bits(rank - 2) - 1)) - 1;
    let checked = |at: i32| if (-most - 1..=most).contains(&at) { Ok(at as i16) } else { Err(CUerror::INVALID_VALUE) };
    of.read(rank - 2)?.into_iter().map(checked).collect()
}

/// Writes the map of boxes, or of columns if there are some.
fn encode(map: Out<CUtensorMap>, tensor: &Tensor, box_sizes: &[u32], columns: Option<Columns>) -> CUresult {
    let Tensor { address, interleave, swizzle, promotion, fill, .. } = *tensor;
    let rank = box_sizes.len();
    if promotion > 3 || fill > 1 || !is_address(address) {
        return Err(CUerror::INVALID_VALUE);
    }
    let element = element(tensor.data_type)?;
    let (sizes, strides, steps) = (tensor.sizes.read(rank)?, tensor.strides.read(rank - 1)?, tensor.steps.read(rank)?);
    let strides = [vec![element.bytes()], strides].concat();
    let dimensions: Vec<_> = (0..rank)
        .map(|at| Dimension { size: sizes[at], stride: strides[at], box_size: box_sizes[at], step: steps[at] })
        .collect();
    let is_valid = |dimension: &Dimension| {
        (1..=1 << 32).contains(&dimension.size)
            && (1..=256).contains(&dimension.box_size)
            && (1..=8).contains(&dimension.step)
    };
    let is_stride = |dimension: &Dimension| dimension.stride.is_multiple_of(UNIT) && dimension.stride < STRIDE_END;
    if !dimensions.iter().all(is_valid) || !dimensions[1..].iter().all(is_stride) {
        return Err(CUerror::INVALID_VALUE);
    }
    let swizzle = match (interleave, swizzle) {
        (0, 0) => Swizzle::None,
        (0, 1) => Swizzle::Within32,
        (0, 2) => Swizzle::Within64,
        (0, 3) => Swizzle::Within128,
        (1 | 2, 0..=3) => return Err(CUerror::NOT_SUPPORTED),
        _ => return Err(CUerror::INVALID_VALUE),
    };
    let row = u64::from(dimensions[0].box_size) * element.bytes();
    if row % UNIT != 0 || swizzle.bytes().is_some_and(|bytes| row > bytes) || fill == 1 && !element.is_float() {
        return Err(CUerror::INVALID_VALUE);
    }
    let tensor = TensorMap { start: address.0, element, dimensions, swizzle, is_filled_with_nan: fill == 1, columns };
    if tensor.box_bytes() >= BOX_BYTES_END {
        return Err(CUerror::INVALID_VALUE);
    }
    map.set(from_bytes(&tensor.encode()));
    Ok(())
}

pub(crate) fn cuTensorMapReplaceAddress(map: InOut<CUtensorMap>, address: CUdeviceptr) -> CUresult {
    if compute_capability() < SINCE {
        return Err(CUerror::NOT_SUPPORTED);
    }
    if !is_address(address) {
        return Err(CUerror::INVALID_VALUE);
    }
    let mut changed = map.read();
    changed.opaque[0] = address.0.to_le();
    map.set(changed);
    Ok(())
}

fn is_address(address: CUdeviceptr) -> bool {
    address.0 != 0 && address.0.is_multiple_of(UNIT)
}

fn element(data_type: CUtensorMapDataType) -> Result<Element, CUerror> {
    Ok(match data_type {
        CUtensorMapDataType::UINT8 => Element::U8,
        CUtensorMapDataType::UINT16 => Element::U16,
        CUtensorMapDataType::UINT32 => Element::U32,
        CUtensorMapDataType::INT32 => Element::S32,
        CUtensorMapDataType::UINT64 => Element::U64,
        CUtensorMapDataType::INT64 => Element::S64,
        CUtensorMapDataType::FLOAT16 => Element::F16,
        CUtensorMapDataType::FLOAT32 => Element::F32,
        CUtensorMapDataType::FLOAT64 => Element::F64,
        CUtensorMapDataType::BFLOAT16 => Element::Bf16,
        CUtensorMapDataType::FLOAT32_FTZ => Element::F32Ftz,
        CUtensorMapDataType::TFLOAT32 => Element::Tf32,
        CUtensorMapDataType::TFLOAT32_FTZ => Element::Tf32Ftz,
        _ => return Err(CUerror::INVALID_VALUE),
    })
}

fn from_bytes(bytes: &[u8; TensorMap::BYTES]) -> CUtensorMap {
    let (words, _) = bytes.as_chunks::<8>();
    CUtensorMap { opaque: std::array::from_fn(|word| u64::from_ne_bytes(words[word])) }
}
