//! Functions by the kind of arguments that they take.

use std::ffi::CStr;

use freehold_driver::cuda::Function;

use super::known::{Made, Shared};

/// The functions that can make a stream wait for a word.
pub(crate) const WAITS: [Function; 3] =
    [Function::cuStreamWaitValue32_v2, Function::cuStreamWaitValue64_v2, Function::cuStreamBatchMemOp_v2];

/// The functions that take lists with a length.
pub(crate) const LISTS: [Function; 3] =
    [Function::cuPointerGetAttributes, Function::cuMemPoolSetAccess, Function::cuMemSetAccess];

/// The functions of managed memory.
pub(crate) const MANAGED: [Function; 7] = [
    Function::cuStreamAttachMemAsync,
    Function::cuMemPrefetchAsync,
    Function::cuMemPrefetchAsync_v2,
    Function::cuMemAdvise,
    Function::cuMemAdvise_v2,
    Function::cuMemRangeGetAttribute,
    Function::cuMemRangeGetAttributes,
];

/// The functions of virtual memory that take whole pages.
pub(crate) const PAGED: [Function; 6] = [
    Function::cuMemAddressReserve,
    Function::cuMemAddressFree,
    Function::cuMemCreate,
    Function::cuMemMap,
    Function::cuMemUnmap,
    Function::cuMemSetAccess,
];

/// The functions that return a descriptor.
pub(crate) const EXPORTS: [Function; 2] =
    [Function::cuMemExportToShareableHandle, Function::cuMemPoolExportToShareableHandle];

/// The functions that take a descriptor.
pub(crate) const IMPORTS: [Function; 2] =
    [Function::cuMemImportFromShareableHandle, Function::cuMemPoolImportFromShareableHandle];

/// The functions outside virtual memory that get mapped addresses. Unmapping memory that work still uses is a fault,
/// which ends the run, so no work gets mapped addresses.
pub(crate) const LOOKS: [Function; 8] = [
    Function::cuMemFree_v2,
    Function::cuMemGetAddressRange_v2,
    Function::cuMemGetAccess,
    Function::cuPointerGetAttribute,
    Function::cuPointerGetAttributes,
    Function::cuPointerSetAttribute,
    Function::cuIpcGetMemHandle,
    Function::cuMemPoolExportPointer,
];

/// The functions that take an image.
pub(crate) const IMAGES: [Function; 5] = [
    Function::cuModuleLoadData,
    Function::cuModuleLoadDataEx,
    Function::cuModuleLoadFatBinary,
    Function::cuLibraryLoadData,
    Function::cuLinkAddData_v2,
];

/// The functions that take load options.
pub(crate) const OPTIONS: [Function; 5] = [
    Function::cuModuleLoadDataEx,
    Function::cuLibraryLoadData,
    Function::cuLinkCreate_v2,
    Function::cuLinkAddData_v2,
    Function::cuLinkAddFile_v2,
];

/// The functions that would need a file with an image, or something that no image here has.
pub(crate) const FUTILE: [Function; 7] = [
    Function::cuOccupancyMaxPotentialClusterSize,
    Function::cuOccupancyMaxActiveClusters,
    Function::cuModuleLoad,
    Function::cuLibraryLoadFromFile,
    Function::cuLibraryGetManaged,
    Function::cuLibraryGetUnifiedFunction,
    Function::cuLinkAddFile_v2,
];

/// An image with a kernel that can be launched with any parameters.
pub(crate) const TEXT: &CStr = c"
.version 8.0
.target sm_80
.address_size 64
.visible .global .align 4 .u32 variable;
.visible .entry nothing() { ret; }
.visible .entry one(.param .u32 value) { ret; }
";

/// Returns the kind of object, other than a handle, that a function creates.
pub(crate) fn made_by(function: Function) -> Option<Made> {
    Some(match function {
        Function::cuMemAlloc_v2
        | Function::cuMemAllocPitch_v2
        | Function::cuMemAllocAsync
        | Function::cuMemAllocFromPoolAsync
        | Function::cuMemPoolImportPointer => Made::Block,
        Function::cuMemAllocManaged | Function::cuMemAllocHost_v2 | Function::cuMemHostAlloc => Made::Pages,
        Function::cuIpcOpenMemHandle_v2 => Made::Opened,
        Function::cuMemAddressReserve => Made::Reserved,
        Function::cuMemMap => Made::Mapped,
        Function::cuMemExportToShareableHandle => Made::Descriptor(Shared::Allocation),
        Function::cuMemPoolExportToShareableHandle => Made::Descriptor(Shared::Pool),
        Function::cuIpcGetMemHandle => Made::Token(Shared::Memory),
        Function::cuIpcGetEventHandle => Made::Token(Shared::Event),
        Function::cuMemPoolExportPointer => Made::Token(Shared::PoolBlock),
        _ => return None,
    })
}
