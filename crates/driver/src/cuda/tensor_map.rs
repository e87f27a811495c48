//! Tensor maps, which kernels get as arguments to copy boxes of a tensor between global and shared memory.

use super::api::Api;
use super::array_types::{CUtensorMap, CUtensorMapDataType};
use super::call::{DriverError, call};
use super::types::CUdeviceptr;

/// A tensor and its boxes. Dimensions are innermost first.
#[derive(Debug, Clone, Copy)]
pub struct Tensor<'a> {
    /// The type of an element.
    pub data_type: CUtensorMapDataType,
    /// The first element.
    pub address: CUdeviceptr,
    /// The elements of each dimension.
    pub sizes: &'a [u64],
    /// The distances, in bytes, of the elements of each dimension but the first.
    pub strides: &'a [u64],
    /// The extents of a box.
    pub box_sizes: &'a [u32],
    /// The distances of the elements of a box in elements of the tensor.
    pub steps: &'a [u32],
    /// The number of `CUtensorMapInterleave`.
    pub interleave: u32,
    /// The number of `CUtensorMapSwizzle`.
    pub swizzle: u32,
    /// The number of `CUtensorMapL2promotion`.
    pub promotion: u32,
    /// The number of `CUtensorMapFloatOOBfill`.
    pub fill: u32,
}

/// Returns the map of a tensor.
///
/// # Panics
/// If the slices do not have one element for each dimension; `strides` has one less.
pub fn encode(api: &Api, tensor: &Tensor<'_>) -> Result<CUtensorMap, DriverError> {
    let rank = tensor.sizes.len();
    assert!(tensor.strides.len() + 1 >= rank && tensor.box_sizes.len() == rank && tensor.steps.len() == rank);
    let mut map = CUtensorMap::default();
    let Tensor { data_type, address, interleave, swizzle, promotion, fill, .. } = *tensor;
    let (sizes, strides) = (tensor.sizes.as_ptr(), tensor.strides.as_ptr());
    let (boxes, steps) = (tensor.box_sizes.as_ptr(), tensor.steps.as_ptr());
    // SAFETY: the place and the arrays outlive the call, which reads as many elements as there are dimensions.
    let encoded = unsafe {
        call!(api.cuTensorMapEncodeTiled(
            &mut map,
            data_type,
            rank as u32,
            address,
            sizes,
            strides,
            boxes,
            steps,
            interleave,
            swizzle,
            promotion,
            fill
        ))
    };
    encoded.map(|()| map)
}

/// The columns of pixels that copies with `.im2col` transfer. Corners have an element for each dimension but the first
/// and the last one.
#[derive(Debug, Clone, Copy)]
pub struct Columns<'a> {
    /// The first pixel.
    pub lower: &'a [i32],
    /// The last pixel, counted from the last one of the tensor.
    pub upper: &'a [i32],
    /// The elements of a pixel that are copied.
    pub channels: u32,
    /// The pixels of a column.
    pub pixels: u32,
}

/// Returns the map of a tensor of images. The `box_sizes` of the tensor are not used.
///
/// # Panics
/// If the slices do not have one element for each dimension; `strides` has one less, and corners have two less.
pub fn encode_columns(api: &Api, tensor: &Tensor<'_>, columns: &Columns<'_>) -> Result<CUtensorMap, DriverError> {
    let rank = tensor.sizes.len();
    assert!(tensor.strides.len() + 1 >= rank && tensor.steps.len() == rank);
    assert!(columns.lower.len() + 2 >= rank && columns.upper.len() + 2 >= rank);
    let mut map = CUtensorMap::default();
    let Tensor { data_type, address, interleave, swizzle, promotion, fill, .. } = *tensor;
    let (sizes, strides, steps) = (tensor.sizes.as_ptr(), tensor.strides.as_ptr(), tensor.steps.as_ptr());
    let (lower, upper) = (columns.lower.as_ptr(), columns.upper.as_ptr());
    // SAFETY: the place and the arrays outlive the call, which reads as many elements as there are dimensions, or one or
    // two less.
    let encoded = unsafe {
        call!(api.cuTensorMapEncodeIm2col(
            &mut map,
            data_type,
            rank as u32,
            address,
            sizes,
            strides,
            lower,
            upper,
            columns.channels,
            columns.pixels,
            steps,
            interleave,
            swizzle,
            promotion,
            fill
        ))
    };
    encoded.map(|()| map)
}

/// Changes the first element of a map's tensor.
pub fn replace_address(api: &Api, map: &mut CUtensorMap, address: CUdeviceptr) -> Result<(), DriverError> {
    // SAFETY: the map outlives the call.
    unsafe { call!(api.cuTensorMapReplaceAddress(map, address)) }
}
