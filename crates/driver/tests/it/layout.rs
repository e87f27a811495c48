//! The layout of the types that cross the C boundary, as a C compiler lays out those of CUDA 12.9 and 13.0 on x86-64.

use std::mem::offset_of;

use freehold_driver::cuda::*;

macro_rules! offsets {
    ($kind:ty { $($field:ident: $offset:literal,)* } $size:literal) => {
        assert_eq!(size_of::<$kind>(), $size, "size of {}", stringify!($kind));
        $(assert_eq!(offset_of!($kind, $field), $offset, "{}.{}", stringify!($kind), stringify!($field));)*
    };
}

#[test]
fn a_rectangle_copy_is_laid_out_as_in_c() {
    offsets!(CUDA_MEMCPY2D {
        srcXInBytes: 0,
        srcY: 8,
        srcMemoryType: 16,
        srcHost: 24,
        srcDevice: 32,
        srcArray: 40,
        srcPitch: 48,
        dstXInBytes: 56,
        dstY: 64,
        dstMemoryType: 72,
        dstHost: 80,
        dstDevice: 88,
        dstArray: 96,
        dstPitch: 104,
        WidthInBytes: 112,
        Height: 120,
    } 128);
}

#[test]
fn a_volume_copy_is_laid_out_as_in_c() {
    offsets!(CUDA_MEMCPY3D {
        srcXInBytes: 0,
        srcY: 8,
        srcZ: 16,
        srcLOD: 24,
        srcMemoryType: 32,
        srcHost: 40,
        srcDevice: 48,
        srcArray: 56,
        reserved0: 64,
        srcPitch: 72,
        srcHeight: 80,
        dstXInBytes: 88,
        dstY: 96,
        dstZ: 104,
        dstLOD: 112,
        dstMemoryType: 120,
        dstHost: 128,
        dstDevice: 136,
        dstArray: 144,
        reserved1: 152,
        dstPitch: 160,
        dstHeight: 168,
        WidthInBytes: 176,
        Height: 184,
        Depth: 192,
    } 200);
}

#[test]
fn a_volume_copy_between_contexts_is_laid_out_as_in_c() {
    offsets!(CUDA_MEMCPY3D_PEER {
        srcXInBytes: 0,
        srcY: 8,
        srcZ: 16,
        srcLOD: 24,
        srcMemoryType: 32,
        srcHost: 40,
        srcDevice: 48,
        srcArray: 56,
        srcContext: 64,
        srcPitch: 72,
        srcHeight: 80,
        dstXInBytes: 88,
        dstY: 96,
        dstZ: 104,
        dstLOD: 112,
        dstMemoryType: 120,
        dstHost: 128,
        dstDevice: 136,
        dstArray: 144,
        dstContext: 152,
        dstPitch: 160,
        dstHeight: 168,
        WidthInBytes: 176,
        Height: 184,
        Depth: 192,
    } 200);
}

#[test]
fn a_batch_operation_is_laid_out_as_in_c() {
    offsets!(CUstreamBatchMemOpParams {
        operation: 0,
        barrier_flags: 4,
        address: 8,
        value: 16,
        flags: 24,
        alias: 32,
    } 48);
}

#[test]
fn what_describes_a_pool_is_laid_out_as_in_c() {
    offsets!(CUmemLocation { kind: 0, id: 4, } 8);
    offsets!(CUmemAccessDesc { location: 0, flags: 8, } 12);
    offsets!(CUmemPoolProps {
        allocType: 0,
        handleTypes: 4,
        location: 8,
        win32SecurityAttributes: 16,
        maxSize: 24,
        usage: 32,
        reserved: 34,
    } 88);
}

#[test]
fn memory_without_an_address_is_laid_out_as_in_c() {
    offsets!(CUmemAllocationProp {
        kind: 0,
        requestedHandleTypes: 4,
        location: 8,
        win32HandleMetaData: 16,
        compressionType: 24,
        gpuDirectRDMACapable: 25,
        usage: 26,
        reserved: 28,
    } 32);
    assert_eq!(size_of::<CUmemGenericAllocationHandle>(), 8);
    assert_eq!(size_of::<CUipcMemHandle>(), 64);
    assert_eq!(size_of::<CUipcEventHandle>(), 64);
    assert_eq!(size_of::<CUmemPoolPtrExportData>(), 64);
}

#[test]
fn scalars_have_the_size_of_their_c_types() {
    assert_eq!(size_of::<[CUcontext; 2]>(), 16);
    assert_eq!(size_of::<[CUdeviceptr; 2]>(), 16);
    assert_eq!(size_of::<[CUdevice; 2]>(), 8);
    assert_eq!(size_of::<[CUpointer_attribute; 2]>(), 8);
    assert_eq!(size_of::<CUuuid>(), 16);
    assert_eq!(size_of::<CUhostFn>(), 8);
    assert_eq!(size_of::<CUstreamCallback>(), 8);
}

#[test]
fn a_launch_is_laid_out_as_in_c() {
    offsets!(CUlaunchAttribute { id: 0, value: 8, } 72);
    offsets!(CUlaunchConfig {
        gridDimX: 0,
        gridDimY: 4,
        gridDimZ: 8,
        blockDimX: 12,
        blockDimY: 16,
        blockDimZ: 20,
        sharedMemBytes: 24,
        hStream: 32,
        attrs: 40,
        numAttrs: 48,
    } 56);
}

#[test]
fn the_words_of_an_attribute_come_back_in_their_order() {
    let attribute = CUlaunchAttribute::of_words(CUlaunchAttributeID::CLUSTER_DIMENSION, [1, 2, 3]);
    assert_eq!(attribute.words(), [1, 2, 3]);
    assert_eq!(attribute.value[0], 0x2_0000_0001);
}

#[test]
fn context_parameters_are_laid_out_as_in_c() {
    offsets!(CUexecAffinityParam { kind: 0, sm_count: 4, } 8);
    offsets!(CUctxCreateParams { execAffinityParams: 0, numExecAffinityParams: 8, cigParams: 16, } 24);
}

#[test]
fn the_oldest_figures_of_a_device_are_laid_out_as_in_c() {
    offsets!(CUdevprop {
        maxThreadsPerBlock: 0,
        maxThreadsDim: 4,
        maxGridSize: 16,
        sharedMemPerBlock: 28,
        totalConstantMemory: 32,
        SIMDWidth: 36,
        memPitch: 40,
        regsPerBlock: 44,
        clockRate: 48,
        textureAlign: 52,
    } 56);
}
