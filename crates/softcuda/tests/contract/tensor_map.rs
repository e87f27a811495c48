//! Tensor maps: rejected parameters, and that a kernel copies the box or the column of pixels that the host has described.

use std::ffi::{CStr, CString, c_void};

use crate::common;

use common::Context;
use freehold_driver::cuda::launch::{self, LaunchConfig};
use freehold_driver::cuda::tensor_map::{self, Columns, Tensor};
use freehold_driver::cuda::{CUdeviceptr, CUerror, CUfunction, CUstream, CUtensorMap, CUtensorMapDataType, copy};

/// Copies the box at (4, 1) of a tensor of two dimensions, with 128 bytes, to `to`.
const TEXT: &CStr = c"
.version 8.0
.target sm_90
.address_size 64

.visible .entry box(.param .u64 to, .param .align 64 .b8 map[128])
{
    .reg .b64 %rd<6>;
    .reg .b32 %r<8>;
    .reg .pred %p<3>;
    .shared .align 128 .b8 words[128];
    .shared .align 8 .b64 done;
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, words;
    mov.u32 %r3, done;
    mov.b64 %rd1, map;
    cvta.param.u64 %rd2, %rd1;
    ld.param.u64 %rd3, [to];
    cvta.to.global.u64 %rd3, %rd3;
    setp.ne.u32 %p1, %r1, 0;
    @%p1 bra ready;
    mbarrier.init.shared.b64 [%r3], 1;
    fence.proxy.async;
    mbarrier.arrive.expect_tx.shared.b64 _, [%r3], 128;
    mov.u32 %r4, 4;
    mov.u32 %r5, 1;
    cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r2], [%rd2, {%r4, %r5}], [%r3];
ready:
    bar.sync 0;
again:
    mbarrier.try_wait.parity.shared.b64 %p2, [%r3], 0;
    @!%p2 bra again;
    mad.wide.u32 %rd4, %r1, 4, %rd3;
    shl.b32 %r6, %r1, 2;
    add.u32 %r6, %r6, %r2;
    ld.shared.u32 %r7, [%r6];
    st.global.u32 [%rd4], %r7;
    ret;
}
";

/// A tensor of 16 by 8 words and its boxes of 8 by 4.
fn tensor(address: CUdeviceptr) -> Tensor<'static> {
    Tensor {
        data_type: CUtensorMapDataType::UINT32,
        address,
        sizes: &[16, 8],
        strides: &[64],
        box_sizes: &[8, 4],
        steps: &[1, 1],
        interleave: 0,
        swizzle: 0,
        promotion: 0,
        fill: 0,
    }
}

fn copied_box(own: &Context, kernel: CUfunction, map: &CUtensorMap) -> Vec<u32> {
    let to = own.block(128);
    let (mut address, mut map) = (to.0, *map);
    let mut arguments = [(&raw mut address).cast::<c_void>(), (&raw mut map).cast()];
    // SAFETY: the kernel has these two parameters, which outlive the call.
    unsafe { launch::kernel(&own.api, kernel, LaunchConfig::linear(1, 32), CUstream::NULL, &mut arguments) }.unwrap();
    let mut bytes = [0; 128];
    copy::device_to_host(&own.api, &mut bytes, to).unwrap();
    bytes.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)).collect()
}

#[test]
fn a_kernel_copies_the_box_that_the_host_described() {
    let own = Context::create();
    let module = own.load(TEXT).unwrap();
    let kernel = own.function(module, c"box");
    let block = own.block(1024);
    let words: Vec<u8> = (0..256u32).flat_map(u32::to_le_bytes).collect();
    copy::host_to_device(&own.api, block, &words).unwrap();
    let mut map = tensor_map::encode(&own.api, &tensor(block)).unwrap();
    let expected = |first: u32| (0..4).flat_map(move |row| (0..8).map(move |at| first + 16 * (row + 1) + 4 + at));
    assert_eq!(copied_box(&own, kernel, &map), expected(0).collect::<Vec<_>>());
    tensor_map::replace_address(&own.api, &mut map, CUdeviceptr(block.0 + 512)).unwrap();
    assert_eq!(copied_box(&own, kernel, &map), expected(128).collect::<Vec<_>>());
}

/// Two images of 6 pixels with 4 channels, each a word, and columns for a filter of three pixels with padding.
fn images(address: CUdeviceptr) -> (Tensor<'static>, Columns<'static>) {
    let tensor = Tensor { sizes: &[4, 6, 2], strides: &[16, 96], box_sizes: &[], steps: &[1, 1, 1], ..tensor(address) };
    (tensor, Columns { lower: &[-1], upper: &[-1], channels: 4, pixels: 8 })
}

#[test]
fn a_kernel_copies_the_column_that_the_host_described() {
    let own = Context::create();
    let text = TEXT
        .to_str()
        .unwrap()
        .replace("mov.u32 %r4, 4;", "mov.u32 %r4, 0;")
        .replace("mov.u32 %r5, 1;", "mov.u32 %r5, -1;");
    let text = text.replace("2d.shared::cluster.global.tile", "3d.shared::cluster.global.im2col");
    let text = text.replace("{%r4, %r5}], [%r3];", "{%r4, %r5, %r4}], [%r3], {2};");
    let module = own.load(&CString::new(text).unwrap()).unwrap();
    let kernel = own.function(module, c"box");
    let block = own.block(192);
    let words: Vec<u8> = (1..=48u32).flat_map(u32::to_le_bytes).collect();
    copy::host_to_device(&own.api, block, &words).unwrap();
    let (tensor, columns) = images(block);
    let map = tensor_map::encode_columns(&own.api, &tensor, &columns).unwrap();
    // The bases are -1 to 4, and the offset is 2: the last one is outside, and then the next image begins.
    let firsts = [5, 9, 13, 17, 21, 0, 29, 33];
    let expected = firsts.map(|first| if first == 0 { [0; 4] } else { [first, first + 1, first + 2, first + 3] });
    assert_eq!(copied_box(&own, kernel, &map), expected.concat());
}

#[test]
fn what_no_columns_can_be_is_refused() {
    let own = Context::create();
    let good = images(own.block(4096));
    let refused = |change: &dyn Fn(&mut Tensor<'static>, &mut Columns<'static>)| {
        let (mut tensor, mut columns) = good;
        change(&mut tensor, &mut columns);
        tensor_map::encode_columns(&own.api, &tensor, &columns).err().map(|error| error.code)
    };
    let invalid = Some(CUerror::INVALID_VALUE);
    assert_eq!(refused(&|_, _| ()), None);
    assert_eq!(refused(&|tensor, _| tensor.address.0 += 8), invalid);
    assert_eq!(refused(&|tensor, _| tensor.sizes = &[4, 0, 2]), invalid);
    assert_eq!(refused(&|tensor, _| tensor.strides = &[24, 96]), invalid);
    assert_eq!(refused(&|tensor, _| tensor.steps = &[1, 8, 1]), None);
    assert_eq!(refused(&|tensor, _| tensor.steps = &[1, 9, 1]), invalid);
    assert_eq!(refused(&|tensor, _| tensor.fill = 1), invalid);
    assert_eq!(refused(&|_, columns| columns.pixels = 1024), None);
    assert_eq!(refused(&|_, columns| columns.pixels = 1025), invalid);
    assert_eq!(refused(&|_, columns| columns.pixels = 0), invalid);
    assert_eq!(refused(&|_, columns| columns.channels = 256), None);
    assert_eq!(refused(&|_, columns| columns.channels = 260), invalid);
    assert_eq!(refused(&|_, columns| columns.channels = 0), invalid);
    assert_eq!(refused(&|_, columns| columns.channels = 3), invalid);
    assert_eq!(refused(&|tensor, columns| (tensor.swizzle, columns.channels) = (1, 8)), None);
    assert_eq!(refused(&|tensor, columns| (tensor.swizzle, columns.channels) = (1, 12)), invalid);
    assert_eq!(refused(&|_, columns| columns.lower = &[-32768]), None);
    assert_eq!(refused(&|_, columns| columns.lower = &[-32769]), invalid);
    assert_eq!(refused(&|_, columns| columns.upper = &[32768]), invalid);
    // The more spatial dimensions, the fewer bits has a corner.
    let four: &dyn Fn(&mut Tensor<'static>) = &|tensor| {
        (tensor.sizes, tensor.strides, tensor.steps) = (&[4, 3, 2, 2], &[16, 48, 96], &[1; 4]);
    };
    let five: &dyn Fn(&mut Tensor<'static>) = &|tensor| {
        (tensor.sizes, tensor.strides, tensor.steps) = (&[4, 3, 2, 1, 2], &[16, 48, 96, 96], &[1; 5]);
    };
    let corners = |dimensions: &dyn Fn(&mut Tensor<'static>), lower: &'static [i32], upper: &'static [i32]| {
        refused(&|tensor, columns| {
            dimensions(tensor);
            (columns.lower, columns.upper) = (lower, upper);
        })
    };
    assert_eq!(corners(four, &[-128, -128], &[127, 127]), None);
    assert_eq!(corners(four, &[-128, -129], &[127, 127]), invalid);
    assert_eq!(corners(five, &[-16; 3], &[15; 3]), None);
    assert_eq!(corners(five, &[-16; 3], &[16, 15, 15]), invalid);
    let two: &dyn Fn(&mut Tensor<'static>) =
        &|tensor| (tensor.sizes, tensor.strides, tensor.steps) = (&[4, 6], &[16], &[1; 2]);
    assert_eq!(corners(two, &[], &[]), invalid);
}

#[test]
fn what_no_tensor_can_be_is_refused() {
    let own = Context::create();
    let block = own.block(4096);
    let good = tensor(block);
    let refused = |change: &dyn Fn(&mut Tensor<'static>)| {
        let mut tensor = good;
        change(&mut tensor);
        tensor_map::encode(&own.api, &tensor).err().map(|error| error.code)
    };
    let invalid = Some(CUerror::INVALID_VALUE);
    assert_eq!(refused(&|_| ()), None);
    assert_eq!(refused(&|tensor| tensor.address.0 += 8), invalid);
    assert_eq!(refused(&|tensor| tensor.address.0 += 16), None);
    assert_eq!(refused(&|tensor| tensor.data_type = CUtensorMapDataType(99)), invalid);
    assert_eq!(refused(&|tensor| tensor.sizes = &[0, 8]), invalid);
    assert_eq!(refused(&|tensor| tensor.sizes = &[1 << 32, 8]), None);
    assert_eq!(refused(&|tensor| tensor.sizes = &[(1 << 32) + 1, 8]), invalid);
    assert_eq!(refused(&|tensor| tensor.strides = &[72]), invalid);
    assert_eq!(refused(&|tensor| tensor.strides = &[1 << 40]), invalid);
    assert_eq!(refused(&|tensor| tensor.box_sizes = &[8, 257]), invalid);
    assert_eq!(refused(&|tensor| tensor.box_sizes = &[256, 256]), invalid);
    assert_eq!(refused(&|tensor| tensor.box_sizes = &[256, 228]), None);
    assert_eq!(refused(&|tensor| tensor.strides = &[0]), None);
    assert_eq!(refused(&|tensor| tensor.box_sizes = &[8, 0]), invalid);
    assert_eq!(refused(&|tensor| tensor.box_sizes = &[6, 4]), invalid);
    assert_eq!(refused(&|tensor| tensor.steps = &[1, 9]), invalid);
    assert_eq!(refused(&|tensor| tensor.steps = &[0, 1]), invalid);
    assert_eq!(refused(&|tensor| tensor.swizzle = 1), None);
    assert_eq!(refused(&|tensor| (tensor.swizzle, tensor.box_sizes) = (1, &[12, 4])), invalid);
    assert_eq!(refused(&|tensor| (tensor.swizzle, tensor.box_sizes) = (2, &[16, 4])), None);
    assert_eq!(refused(&|tensor| (tensor.swizzle, tensor.box_sizes) = (2, &[20, 4])), invalid);
    assert_eq!(refused(&|tensor| tensor.swizzle = 9), invalid);
    assert_eq!(refused(&|tensor| tensor.fill = 1), invalid);
    assert_eq!(refused(&|tensor| (tensor.fill, tensor.data_type) = (1, CUtensorMapDataType::FLOAT32)), None);
    let one_dimension: &dyn Fn(&mut Tensor<'static>) =
        &|tensor| (tensor.sizes, tensor.box_sizes, tensor.steps, tensor.strides) = (&[16], &[8], &[1], &[]);
    assert_eq!(refused(one_dimension), None);
    let six: &dyn Fn(&mut Tensor<'static>) = &|tensor| {
        (tensor.sizes, tensor.strides) = (&[4, 2, 2, 2, 2, 2], &[16; 5]);
        (tensor.box_sizes, tensor.steps) = (&[4, 1, 1, 1, 1, 1], &[1; 6]);
    };
    assert_eq!(refused(six), invalid);
}
