//! Copies of rectangles and boxes.

#![allow(non_snake_case, reason = "named as C names the functions")]

use freehold_check::calls::Rows;
use freehold_driver::cuda::{
    Api, CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUDA_MEMCPY3D_PEER, CUarray, CUdeviceptr, CUmemorytype, CUresult, CUstream,
};

use super::{Copy, End, Mode, Role, copied, copied_between};
use crate::calls::wrap::{Call, wrappers};

/// How one end of a box lies in memory.
struct Place {
    kind: CUmemorytype,
    host: usize,
    device: CUdeviceptr,
    position: [usize; 3],
    pitch: usize,
    /// Rows from one slice to the next.
    height: usize,
}

/// The size of a box: bytes, rows, slices.
type Size = [usize; 3];

impl Place {
    fn end(&self, [width, height, depth]: Size) -> End {
        let (role, base) = match self.kind {
            CUmemorytype::HOST => (Role::Host, self.host as u64),
            CUmemorytype::DEVICE => (Role::Device, self.device.0),
            CUmemorytype::UNIFIED => (Role::Any, self.device.0),
            _ => return End::Array,
        };
        let pitch = if self.pitch == 0 { width } else { self.pitch } as u64;
        let slice = pitch * if self.height == 0 { height } else { self.height } as u64;
        let [x, y, z] = self.position.map(|position| position as u64);
        let start = base + x + y * pitch + z * slice;
        let is_even = depth == 1 || slice == pitch * height as u64;
        let rows = is_even.then(|| Rows::of_rectangle(start, width as u64, pitch, (height * depth) as u64));
        End::Memory { role, start, rows }
    }
}

fn copy_of(from: &Place, to: &Place, size: Size) -> Copy {
    Copy { from: from.end(size), to: to.end(size), bytes: size.iter().map(|size| *size as u64).product() }
}

/// Returns the two ends of a box.
pub(in crate::calls) fn ends(copy: &CUDA_MEMCPY3D) -> Copy {
    let from = Place {
        kind: copy.srcMemoryType,
        host: copy.srcHost,
        device: copy.srcDevice,
        position: [copy.srcXInBytes, copy.srcY, copy.srcZ],
        pitch: copy.srcPitch,
        height: copy.srcHeight,
    };
    let to = Place {
        kind: copy.dstMemoryType,
        host: copy.dstHost,
        device: copy.dstDevice,
        position: [copy.dstXInBytes, copy.dstY, copy.dstZ],
        pitch: copy.dstPitch,
        height: copy.dstHeight,
    };
    copy_of(&from, &to, [copy.WidthInBytes, copy.Height, copy.Depth])
}

fn rectangle(copy: &CUDA_MEMCPY2D) -> Copy {
    ends(&CUDA_MEMCPY3D {
        srcXInBytes: copy.srcXInBytes,
        srcY: copy.srcY,
        srcMemoryType: copy.srcMemoryType,
        srcHost: copy.srcHost,
        srcDevice: copy.srcDevice,
        srcArray: CUarray::NULL,
        srcPitch: copy.srcPitch,
        dstXInBytes: copy.dstXInBytes,
        dstY: copy.dstY,
        dstMemoryType: copy.dstMemoryType,
        dstHost: copy.dstHost,
        dstDevice: copy.dstDevice,
        dstArray: CUarray::NULL,
        dstPitch: copy.dstPitch,
        WidthInBytes: copy.WidthInBytes,
        Height: copy.Height,
        Depth: 1,
        ..CUDA_MEMCPY3D::default()
    })
}

fn peers(copy: &CUDA_MEMCPY3D_PEER) -> Copy {
    ends(&CUDA_MEMCPY3D {
        srcXInBytes: copy.srcXInBytes,
        srcY: copy.srcY,
        srcZ: copy.srcZ,
        srcMemoryType: copy.srcMemoryType,
        srcHost: copy.srcHost,
        srcDevice: copy.srcDevice,
        srcPitch: copy.srcPitch,
        srcHeight: copy.srcHeight,
        dstXInBytes: copy.dstXInBytes,
        dstY: copy.dstY,
        dstZ: copy.dstZ,
        dstMemoryType: copy.dstMemoryType,
        dstHost: copy.dstHost,
        dstDevice: copy.dstDevice,
        dstPitch: copy.dstPitch,
        dstHeight: copy.dstHeight,
        WidthInBytes: copy.WidthInBytes,
        Height: copy.Height,
        Depth: copy.Depth,
        ..CUDA_MEMCPY3D::default()
    })
}

/// Tells the checker of a copy that the driver has accepted.
///
/// # Safety
/// `copy` is what the driver was given.
unsafe fn done<T>(
    call: Call,
    copy: *const T,
    read: impl FnOnce(&T) -> Copy,
    stream: Option<CUstream>,
    result: CUresult,
) -> CUresult {
    call.noted(result)?;
    // SAFETY: the driver has accepted the description.
    let copy = read(unsafe { &*copy });
    let mode = if stream.is_some() { Mode::Async } else { Mode::Sync };
    copied(call, &copy, stream.unwrap_or(CUstream::NULL), mode, result)
}

wrappers! {
    fn cuMemcpy2D_v2["_ptds"](call, copy: *const CUDA_MEMCPY2D) {
        // SAFETY: the conditions are the same.
        let result = unsafe { (call.api.cuMemcpy2D_v2)(copy) };
        // SAFETY: as above.
        unsafe { done(call, copy, rectangle, None, result) }
    }

    fn cuMemcpy2DUnaligned_v2["_ptds"](call, copy: *const CUDA_MEMCPY2D) {
        // SAFETY: the conditions are the same.
        let result = unsafe { (call.api.cuMemcpy2DUnaligned_v2)(copy) };
        // SAFETY: as above.
        unsafe { done(call, copy, rectangle, None, result) }
    }

    fn cuMemcpy2DAsync_v2["_ptsz"](call, copy: *const CUDA_MEMCPY2D, stream: CUstream) {
        call.check_stream(stream);
        // SAFETY: the conditions are the same.
        let result = unsafe { (call.api.cuMemcpy2DAsync_v2)(copy, stream) };
        // SAFETY: as above.
        unsafe { done(call, copy, rectangle, Some(stream), result) }
    }

    fn cuMemcpy3D_v2["_ptds"](call, copy: *const CUDA_MEMCPY3D) {
        // SAFETY: the conditions are the same.
        let result = unsafe { (call.api.cuMemcpy3D_v2)(copy) };
        // SAFETY: as above.
        unsafe { done(call, copy, ends, None, result) }
    }

    fn cuMemcpy3DAsync_v2["_ptsz"](call, copy: *const CUDA_MEMCPY3D, stream: CUstream) {
        call.check_stream(stream);
        // SAFETY: the conditions are the same.
        let result = unsafe { (call.api.cuMemcpy3DAsync_v2)(copy, stream) };
        // SAFETY: as above.
        unsafe { done(call, copy, ends, Some(stream), result) }
    }

    fn cuMemcpy3DPeer["_ptds"](call, copy: *const CUDA_MEMCPY3D_PEER) {
        // SAFETY: the conditions are the same.
        call.noted(unsafe { (call.api.cuMemcpy3DPeer)(copy) })?;
        // SAFETY: the driver has accepted the description.
        copied_between(call, &peers(unsafe { &*copy }), Ok(()))
    }

    fn cuMemcpy3DPeerAsync["_ptsz"](call, copy: *const CUDA_MEMCPY3D_PEER, stream: CUstream) {
        call.check_stream(stream);
        // SAFETY: the conditions are the same.
        let result = unsafe { (call.api.cuMemcpy3DPeerAsync)(copy, stream) };
        // SAFETY: as above.
        unsafe { done(call, copy, peers, Some(stream), result) }
    }
}
