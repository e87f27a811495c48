//! The size of the content of arrays. Padding that a driver adds for its layout is not counted.

use freehold_driver::cuda::{CUDA_ARRAY3D_DESCRIPTOR, CUarray_format, array_flags};

/// Arrays that get their memory later, from `cuMemCreate`: `CUDA_ARRAY3D_SPARSE` and `CUDA_ARRAY3D_DEFERRED_MAPPING`.
const MAPPED_LATER: u32 = 0x40 | 0x80;

/// Returns the size of an array with this many levels.
pub(super) fn array_bytes(descriptor: &CUDA_ARRAY3D_DESCRIPTOR, levels: u32) -> u64 {
    if descriptor.Flags & MAPPED_LATER != 0 {
        return 0;
    }
    let is_layered = descriptor.Flags & (array_flags::LAYERED | array_flags::CUBEMAP) != 0;
    let sides = [descriptor.Width, descriptor.Height, descriptor.Depth].map(|side| side.max(1) as u64);
    let longest = if is_layered { sides[0].max(sides[1]) } else { sides[0].max(sides[1]).max(sides[2]) };
    let levels_max = 64 - longest.leading_zeros();
    let level_bytes = |level: u32| {
        let [width, height] = [sides[0], sides[1]].map(|side| (side >> level).max(1));
        let depth = if is_layered { sides[2] } else { (sides[2] >> level).max(1) };
        [height, depth, element_bytes(descriptor)].into_iter().fold(width, u64::saturating_mul)
    };
    (0..levels.clamp(1, levels_max)).map(level_bytes).fold(0, u64::saturating_add)
}

fn element_bytes(descriptor: &CUDA_ARRAY3D_DESCRIPTOR) -> u64 {
    let channels = u64::from(descriptor.NumChannels);
    let normalized = descriptor.Format.0.wrapping_sub(CUarray_format::UNORM_INT8X1.0);
    match descriptor.Format {
        CUarray_format::UNSIGNED_INT8 | CUarray_format::SIGNED_INT8 => channels,
        CUarray_format::UNSIGNED_INT16 | CUarray_format::SIGNED_INT16 | CUarray_format::HALF => 2 * channels,
        // Groups of three with one, two and four channels: 8 and 16 bits unsigned, 8 and 16 bits signed.
        _ if normalized < 12 => (1 << (normalized % 3)) * (1 + u64::from(normalized / 3 % 2)),
        // 32 bits; formats that the driver refuses do not matter.
        _ => 4 * channels,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(sides: [usize; 3], format: CUarray_format, channels: u32, flags: u32) -> CUDA_ARRAY3D_DESCRIPTOR {
        let [width, height, depth] = sides;
        CUDA_ARRAY3D_DESCRIPTOR {
            Width: width,
            Height: height,
            Depth: depth,
            Format: format,
            NumChannels: channels,
            Flags: flags,
        }
    }

    #[test]
    fn an_array_has_the_size_of_its_elements() {
        assert_eq!(array_bytes(&of([10, 0, 0], CUarray_format::FLOAT, 4, 0), 1), 160);
        assert_eq!(array_bytes(&of([10, 4, 0], CUarray_format::HALF, 2, 0), 1), 160);
        assert_eq!(array_bytes(&of([10, 4, 3], CUarray_format::SIGNED_INT8, 1, 0), 1), 120);
        assert_eq!(array_bytes(&of([10, 0, 0], CUarray_format::UNORM_INT16X4, 4, 0), 1), 80);
        assert_eq!(array_bytes(&of([10, 0, 0], CUarray_format::SNORM_INT8X2, 2, 0), 1), 20);
    }

    #[test]
    fn levels_are_half_as_large_and_layers_stay() {
        assert_eq!(array_bytes(&of([4, 4, 0], CUarray_format::UNSIGNED_INT8, 1, 0), 9), 16 + 4 + 1);
        assert_eq!(array_bytes(&of([4, 4, 4], CUarray_format::UNSIGNED_INT8, 1, 0), 2), 64 + 8);
        assert_eq!(array_bytes(&of([4, 4, 6], CUarray_format::UNSIGNED_INT8, 1, array_flags::LAYERED), 2), 96 + 24);
    }

    #[test]
    fn memory_that_is_mapped_later_is_counted_then() {
        assert_eq!(array_bytes(&of([64, 64, 0], CUarray_format::FLOAT, 1, 0x40), 1), 0);
    }
}
