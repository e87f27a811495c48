//! `struct cudaDeviceProp` of CUDA 13.0 and of 12.9. Each field except the first ones is an attribute of the driver; the
//! lists below have its number.

#![allow(non_camel_case_types, non_snake_case, reason = "named as C names them")]

use std::ffi::{c_char, c_int};
use std::mem::offset_of;

use freehold_driver::cuda::CUuuid;

use super::name_field;

/// The attributes of a device by their numbers; zero for those that its driver does not know.
pub(crate) struct Attributes(pub(crate) [i32; Self::COUNT]);

impl Attributes {
    /// One more than the last attribute of CUDA 13.0.
    pub(crate) const COUNT: usize = 148;
}

/// What identifies a device, and its memory.
pub(crate) struct Identity {
    pub(crate) name: Vec<u8>,
    pub(crate) uuid: CUuuid,
    pub(crate) memory_bytes: usize,
}

/// A field that has the value of one attribute, or of several.
trait Field<Number> {
    fn of(attributes: &Attributes, number: Number) -> Self;
}

impl Field<usize> for c_int {
    fn of(attributes: &Attributes, number: usize) -> Self {
        attributes.0[number]
    }
}

impl Field<usize> for u32 {
    fn of(attributes: &Attributes, number: usize) -> Self {
        attributes.0[number].cast_unsigned()
    }
}

/// A size in bytes. A negative one means none.
impl Field<usize> for usize {
    fn of(attributes: &Attributes, number: usize) -> Self {
        Self::try_from(attributes.0[number]).unwrap_or(0)
    }
}

impl<const N: usize> Field<[usize; N]> for [c_int; N] {
    fn of(attributes: &Attributes, numbers: [usize; N]) -> Self {
        numbers.map(|number| attributes.0[number])
    }
}

/// What a program asks of a device in `cudaChooseDevice`. Zero asks nothing.
pub(crate) struct RequestedProps([u64; 7]);

impl RequestedProps {
    /// Returns how many of the requested properties a device meets.
    pub(crate) fn count_met_by(&self, device: &cudaDeviceProp) -> usize {
        let device = device.as_requested();
        self.0.iter().zip(device.0).filter(|&(&requested, has)| requested != 0 && has >= requested).count()
    }
}

macro_rules! device_prop {
    ($(#[$doc:meta])* $name:ident, $reserved:literal { $($field:ident: $type:ty = $number:expr,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        #[repr(C)]
        pub(crate) struct $name {
            pub(crate) name: [c_char; 256],
            pub(crate) uuid: CUuuid,
            /// Windows only.
            pub(crate) luid: [c_char; 8],
            pub(crate) luidDeviceNodeMask: u32,
            pub(crate) totalGlobalMem: usize,
            $(pub(crate) $field: $type,)*
            pub(crate) reserved: [c_int; $reserved],
        }

        impl $name {
            pub(crate) fn new(identity: &Identity, attributes: &Attributes) -> Self {
                Self {
                    name: name_field(&identity.name),
                    uuid: identity.uuid,
                    luid: [0; 8],
                    luidDeviceNodeMask: 0,
                    totalGlobalMem: identity.memory_bytes,
                    $($field: Field::of(attributes, $number),)*
                    reserved: [0; $reserved],
                }
            }

            pub(crate) fn as_requested(&self) -> RequestedProps {
                let number = |value: c_int| u64::try_from(value).unwrap_or(0);
                RequestedProps([
                    self.totalGlobalMem as u64,
                    self.sharedMemPerBlock as u64,
                    self.totalConstMem as u64,
                    number(self.regsPerBlock),
                    number(self.maxThreadsPerBlock),
                    number(self.multiProcessorCount),
                    number(self.major) * 1000 + number(self.minor),
                ])
            }
        }
    };
}

device_prop! {
    /// The properties of a device, as CUDA 13.0 lays them out.
    cudaDeviceProp, 56 {
        sharedMemPerBlock: usize = 8,
        regsPerBlock: c_int = 12,
        warpSize: c_int = 10,
        memPitch: usize = 11,
        maxThreadsPerBlock: c_int = 1,
        maxThreadsDim: [c_int; 3] = [2, 3, 4],
        maxGridSize: [c_int; 3] = [5, 6, 7],
        totalConstMem: usize = 9,
        major: c_int = 75,
        minor: c_int = 76,
        textureAlignment: usize = 14,
        texturePitchAlignment: usize = 51,
        multiProcessorCount: c_int = 16,
        integrated: c_int = 18,
        canMapHostMemory: c_int = 19,
        maxTexture1D: c_int = 21,
        maxTexture1DMipmap: c_int = 77,
        maxTexture2D: [c_int; 2] = [22, 23],
        maxTexture2DMipmap: [c_int; 2] = [73, 74],
        maxTexture2DLinear: [c_int; 3] = [70, 71, 72],
        maxTexture2DGather: [c_int; 2] = [45, 46],
        maxTexture3D: [c_int; 3] = [24, 25, 26],
        maxTexture3DAlt: [c_int; 3] = [47, 48, 49],
        maxTextureCubemap: c_int = 52,
        maxTexture1DLayered: [c_int; 2] = [42, 43],
        maxTexture2DLayered: [c_int; 3] = [27, 28, 29],
        maxTextureCubemapLayered: [c_int; 2] = [53, 54],
        maxSurface1D: c_int = 55,
        maxSurface2D: [c_int; 2] = [56, 57],
        maxSurface3D: [c_int; 3] = [58, 59, 60],
        maxSurface1DLayered: [c_int; 2] = [61, 62],
        maxSurface2DLayered: [c_int; 3] = [63, 64, 65],
        maxSurfaceCubemap: c_int = 66,
        maxSurfaceCubemapLayered: [c_int; 2] = [67, 68],
        surfaceAlignment: usize = 30,
        concurrentKernels: c_int = 31,
        ECCEnabled: c_int = 32,
        pciBusID: c_int = 33,
        pciDeviceID: c_int = 34,
        pciDomainID: c_int = 50,
        tccDriver: c_int = 35,
        asyncEngineCount: c_int = 40,
        unifiedAddressing: c_int = 41,
        memoryBusWidth: c_int = 37,
        l2CacheSize: c_int = 38,
        persistingL2CacheMaxSize: c_int = 108,
        maxThreadsPerMultiProcessor: c_int = 39,
        streamPrioritiesSupported: c_int = 78,
        globalL1CacheSupported: c_int = 79,
        localL1CacheSupported: c_int = 80,
        sharedMemPerMultiprocessor: usize = 81,
        regsPerMultiprocessor: c_int = 82,
        managedMemory: c_int = 83,
        isMultiGpuBoard: c_int = 84,
        multiGpuBoardGroupID: c_int = 85,
        hostNativeAtomicSupported: c_int = 86,
        pageableMemoryAccess: c_int = 88,
        concurrentManagedAccess: c_int = 89,
        computePreemptionSupported: c_int = 90,
        canUseHostPointerForRegisteredMem: c_int = 91,
        cooperativeLaunch: c_int = 95,
        sharedMemPerBlockOptin: usize = 97,
        pageableMemoryAccessUsesHostPageTables: c_int = 100,
        directManagedMemAccessFromHost: c_int = 101,
        maxBlocksPerMultiProcessor: c_int = 106,
        accessPolicyMaxWindowSize: c_int = 109,
        reservedSharedMemPerBlock: usize = 111,
        hostRegisterSupported: c_int = 99,
        sparseCudaArraySupported: c_int = 112,
        hostRegisterReadOnlySupported: c_int = 113,
        timelineSemaphoreInteropSupported: c_int = 114,
        memoryPoolsSupported: c_int = 115,
        gpuDirectRDMASupported: c_int = 116,
        gpuDirectRDMAFlushWritesOptions: u32 = 117,
        gpuDirectRDMAWritesOrdering: c_int = 118,
        memoryPoolSupportedHandleTypes: u32 = 119,
        deferredMappingCudaArraySupported: c_int = 121,
        ipcEventSupported: c_int = 125,
        clusterLaunch: c_int = 120,
        unifiedFunctionPointers: c_int = 129,
        deviceNumaConfig: c_int = 130,
        deviceNumaId: c_int = 131,
        mpsEnabled: c_int = 133,
        hostNumaId: c_int = 134,
        gpuPciDeviceID: u32 = 139,
        gpuPciSubsystemID: u32 = 140,
        hostNumaMultinodeIpcSupported: c_int = 143,
    }
}

const _: () = assert!(size_of::<cudaDeviceProp>() == 1008);
const _: () = assert!(offset_of!(cudaDeviceProp, uuid) == 256);
const _: () = assert!(offset_of!(cudaDeviceProp, totalGlobalMem) == 288);
const _: () = assert!(offset_of!(cudaDeviceProp, memPitch) == 312);
const _: () = assert!(offset_of!(cudaDeviceProp, totalConstMem) == 352);
const _: () = assert!(offset_of!(cudaDeviceProp, textureAlignment) == 368);
const _: () = assert!(offset_of!(cudaDeviceProp, multiProcessorCount) == 384);
const _: () = assert!(offset_of!(cudaDeviceProp, maxTexture1D) == 396);
const _: () = assert!(offset_of!(cudaDeviceProp, maxTexture2D) == 404);
const _: () = assert!(offset_of!(cudaDeviceProp, surfaceAlignment) == 552);
const _: () = assert!(offset_of!(cudaDeviceProp, pciBusID) == 568);
const _: () = assert!(offset_of!(cudaDeviceProp, l2CacheSize) == 596);
const _: () = assert!(offset_of!(cudaDeviceProp, sharedMemPerMultiprocessor) == 624);
const _: () = assert!(offset_of!(cudaDeviceProp, managedMemory) == 636);
const _: () = assert!(offset_of!(cudaDeviceProp, pageableMemoryAccess) == 652);
const _: () = assert!(offset_of!(cudaDeviceProp, sharedMemPerBlockOptin) == 672);
const _: () = assert!(offset_of!(cudaDeviceProp, reservedSharedMemPerBlock) == 696);
const _: () = assert!(offset_of!(cudaDeviceProp, hostRegisterSupported) == 704);
const _: () = assert!(offset_of!(cudaDeviceProp, unifiedFunctionPointers) == 752);
const _: () = assert!(offset_of!(cudaDeviceProp, reserved) == 784);

device_prop! {
    /// The properties of a device, as CUDA 12.9 lays them out.
    cudaDeviceProp_v12, 63 {
        sharedMemPerBlock: usize = 8,
        regsPerBlock: c_int = 12,
        warpSize: c_int = 10,
        memPitch: usize = 11,
        maxThreadsPerBlock: c_int = 1,
        maxThreadsDim: [c_int; 3] = [2, 3, 4],
        maxGridSize: [c_int; 3] = [5, 6, 7],
        clockRate: c_int = 13,
        totalConstMem: usize = 9,
        major: c_int = 75,
        minor: c_int = 76,
        textureAlignment: usize = 14,
        texturePitchAlignment: usize = 51,
        deviceOverlap: c_int = 15,
        multiProcessorCount: c_int = 16,
        kernelExecTimeoutEnabled: c_int = 17,
        integrated: c_int = 18,
        canMapHostMemory: c_int = 19,
        computeMode: c_int = 20,
        maxTexture1D: c_int = 21,
        maxTexture1DMipmap: c_int = 77,
        maxTexture1DLinear: c_int = 69,
        maxTexture2D: [c_int; 2] = [22, 23],
        maxTexture2DMipmap: [c_int; 2] = [73, 74],
        maxTexture2DLinear: [c_int; 3] = [70, 71, 72],
        maxTexture2DGather: [c_int; 2] = [45, 46],
        maxTexture3D: [c_int; 3] = [24, 25, 26],
        maxTexture3DAlt: [c_int; 3] = [47, 48, 49],
        maxTextureCubemap: c_int = 52,
        maxTexture1DLayered: [c_int; 2] = [42, 43],
        maxTexture2DLayered: [c_int; 3] = [27, 28, 29],
        maxTextureCubemapLayered: [c_int; 2] = [53, 54],
        maxSurface1D: c_int = 55,
        maxSurface2D: [c_int; 2] = [56, 57],
        maxSurface3D: [c_int; 3] = [58, 59, 60],
        maxSurface1DLayered: [c_int; 2] = [61, 62],
        maxSurface2DLayered: [c_int; 3] = [63, 64, 65],
        maxSurfaceCubemap: c_int = 66,
        maxSurfaceCubemapLayered: [c_int; 2] = [67, 68],
        surfaceAlignment: usize = 30,
        concurrentKernels: c_int = 31,
        ECCEnabled: c_int = 32,
        pciBusID: c_int = 33,
        pciDeviceID: c_int = 34,
        pciDomainID: c_int = 50,
        tccDriver: c_int = 35,
        asyncEngineCount: c_int = 40,
        unifiedAddressing: c_int = 41,
        memoryClockRate: c_int = 36,
        memoryBusWidth: c_int = 37,
        l2CacheSize: c_int = 38,
        persistingL2CacheMaxSize: c_int = 108,
        maxThreadsPerMultiProcessor: c_int = 39,
        streamPrioritiesSupported: c_int = 78,
        globalL1CacheSupported: c_int = 79,
        localL1CacheSupported: c_int = 80,
        sharedMemPerMultiprocessor: usize = 81,
        regsPerMultiprocessor: c_int = 82,
        managedMemory: c_int = 83,
        isMultiGpuBoard: c_int = 84,
        multiGpuBoardGroupID: c_int = 85,
        hostNativeAtomicSupported: c_int = 86,
        singleToDoublePrecisionPerfRatio: c_int = 87,
        pageableMemoryAccess: c_int = 88,
        concurrentManagedAccess: c_int = 89,
        computePreemptionSupported: c_int = 90,
        canUseHostPointerForRegisteredMem: c_int = 91,
        cooperativeLaunch: c_int = 95,
        cooperativeMultiDeviceLaunch: c_int = 96,
        sharedMemPerBlockOptin: usize = 97,
        pageableMemoryAccessUsesHostPageTables: c_int = 100,
        directManagedMemAccessFromHost: c_int = 101,
        maxBlocksPerMultiProcessor: c_int = 106,
        accessPolicyMaxWindowSize: c_int = 109,
        reservedSharedMemPerBlock: usize = 111,
        hostRegisterSupported: c_int = 99,
        sparseCudaArraySupported: c_int = 112,
        hostRegisterReadOnlySupported: c_int = 113,
        timelineSemaphoreInteropSupported: c_int = 114,
        memoryPoolsSupported: c_int = 115,
        gpuDirectRDMASupported: c_int = 116,
        gpuDirectRDMAFlushWritesOptions: u32 = 117,
        gpuDirectRDMAWritesOrdering: c_int = 118,
        memoryPoolSupportedHandleTypes: u32 = 119,
        deferredMappingCudaArraySupported: c_int = 121,
        ipcEventSupported: c_int = 125,
        clusterLaunch: c_int = 120,
        unifiedFunctionPointers: c_int = 129,
    }
}

const _: () = assert!(size_of::<cudaDeviceProp_v12>() == 1032);
const _: () = assert!(offset_of!(cudaDeviceProp_v12, uuid) == 256);
const _: () = assert!(offset_of!(cudaDeviceProp_v12, totalGlobalMem) == 288);
const _: () = assert!(offset_of!(cudaDeviceProp_v12, memPitch) == 312);
const _: () = assert!(offset_of!(cudaDeviceProp_v12, totalConstMem) == 352);
const _: () = assert!(offset_of!(cudaDeviceProp_v12, textureAlignment) == 368);
const _: () = assert!(offset_of!(cudaDeviceProp_v12, multiProcessorCount) == 388);
const _: () = assert!(offset_of!(cudaDeviceProp_v12, maxTexture1D) == 408);
const _: () = assert!(offset_of!(cudaDeviceProp_v12, maxTexture2D) == 420);
const _: () = assert!(offset_of!(cudaDeviceProp_v12, surfaceAlignment) == 568);
const _: () = assert!(offset_of!(cudaDeviceProp_v12, pciBusID) == 584);
const _: () = assert!(offset_of!(cudaDeviceProp_v12, l2CacheSize) == 616);
const _: () = assert!(offset_of!(cudaDeviceProp_v12, sharedMemPerMultiprocessor) == 640);
const _: () = assert!(offset_of!(cudaDeviceProp_v12, managedMemory) == 652);
const _: () = assert!(offset_of!(cudaDeviceProp_v12, pageableMemoryAccess) == 672);
const _: () = assert!(offset_of!(cudaDeviceProp_v12, sharedMemPerBlockOptin) == 696);
const _: () = assert!(offset_of!(cudaDeviceProp_v12, reservedSharedMemPerBlock) == 720);
const _: () = assert!(offset_of!(cudaDeviceProp_v12, hostRegisterSupported) == 728);
const _: () = assert!(offset_of!(cudaDeviceProp_v12, unifiedFunctionPointers) == 776);
const _: () = assert!(offset_of!(cudaDeviceProp_v12, reserved) == 780);

#[cfg(test)]
mod tests {
    use super::*;

    /// A device whose attributes are their numbers, times ten.
    fn device() -> (Identity, Attributes) {
        let identity =
            Identity { name: b"device\0rest".to_vec(), uuid: CUuuid { bytes: [7; 16] }, memory_bytes: 1 << 40 };
        (identity, Attributes(std::array::from_fn(|number| number as i32 * 10)))
    }

    #[test]
    fn a_field_has_the_value_of_its_attribute_in_both_layouts() {
        let (identity, attributes) = device();
        let new = cudaDeviceProp::new(&identity, &attributes);
        let old = cudaDeviceProp_v12::new(&identity, &attributes);
        assert_eq!((new.maxThreadsDim, old.maxThreadsDim), ([20, 30, 40], [20, 30, 40]));
        assert_eq!((new.multiProcessorCount, old.multiProcessorCount), (160, 160));
        assert_eq!((new.sharedMemPerBlockOptin, old.sharedMemPerBlockOptin), (970, 970));
        assert_eq!((new.memoryPoolSupportedHandleTypes, old.memoryPoolSupportedHandleTypes), (1190, 1190));
        assert_eq!((new.hostNumaId, old.clockRate), (1340, 130));
        assert_eq!((new.totalGlobalMem, old.totalGlobalMem), (1 << 40, 1 << 40));
        assert_eq!((new.uuid, old.uuid), (identity.uuid, identity.uuid));
    }

    #[test]
    fn a_name_ends_at_its_nul() {
        let (identity, attributes) = device();
        let name = cudaDeviceProp::new(&identity, &attributes).name;
        assert_eq!(name[..7], b"device\0".map(|byte| byte.cast_signed() as c_char));
        assert!(name[7..].iter().all(|&byte| byte == 0));
    }

    #[test]
    fn a_negative_size_is_zero_and_a_negative_number_stays() {
        let (identity, mut attributes) = device();
        attributes.0[111] = -1;
        attributes.0[131] = -1;
        let made = cudaDeviceProp::new(&identity, &attributes);
        assert_eq!((made.reservedSharedMemPerBlock, made.deviceNumaId), (0, -1));
    }

    #[test]
    fn a_device_fulfils_what_it_has_as_much_of_as_was_requested() {
        let (identity, attributes) = device();
        let device = cudaDeviceProp::new(&identity, &attributes);
        let mut requested = cudaDeviceProp::new(
            &Identity { name: Vec::new(), uuid: CUuuid { bytes: [0; 16] }, memory_bytes: 0 },
            &Attributes([0; Attributes::COUNT]),
        );
        assert_eq!(requested.as_requested().count_met_by(&device), 0);
        (requested.major, requested.minor, requested.totalGlobalMem) = (750, 760, 1 << 40);
        assert_eq!(requested.as_requested().count_met_by(&device), 2);
        (requested.minor, requested.totalGlobalMem) = (761, (1 << 40) + 1);
        assert_eq!(requested.as_requested().count_met_by(&device), 0);
    }
}
