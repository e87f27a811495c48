//! Devices: their number, names, attributes and bus ids.

use std::ffi::c_char;

use freehold_driver::cuda::{
    CUdevice, CUdevice_P2PAttribute, CUdevice_attribute, CUdevprop, CUerror, CUmemoryPool, CUresult, CUuuid,
};

use super::pool::{current_pool, default_pool};
use crate::ffi::args::{InStr, Out};
use crate::objects::attributes;
use crate::objects::pool::Origin;
use crate::state::driver_state::driver;

pub(crate) fn cuDeviceGet(device: Out<CUdevice>, ordinal: i32) -> CUresult {
    let found = driver()?.space.device(CUdevice(ordinal))?;
    device.set(CUdevice(found.ordinal as i32));
    Ok(())
}

pub(crate) fn cuDeviceGetCount(count: Out<i32>) -> CUresult {
    count.set(driver()?.space.devices.len() as i32);
    Ok(())
}

pub(crate) fn cuDeviceGetName(name: Out<c_char>, length: i32, device: CUdevice) -> CUresult {
    let device = driver()?.space.device(device)?;
    name.set_str(&attributes::name(device.index), length)
}

pub(crate) fn cuDeviceGetUuid(uuid: Out<CUuuid>, device: CUdevice) -> CUresult {
    cuDeviceGetUuid_v2(uuid, device)
}

pub(crate) fn cuDeviceGetProperties(properties: Out<CUdevprop>, device: CUdevice) -> CUresult {
    let device = driver()?.space.device(device)?;
    let [threads, x, y, z, grid_x, grid_y, grid_z, shared, constant, warp, pitch, registers, clock, texture] =
        std::array::from_fn(|index| attributes::value(CUdevice_attribute(index as u32 + 1), device).unwrap_or(0));
    properties.set(CUdevprop {
        maxThreadsPerBlock: threads,
        maxThreadsDim: [x, y, z],
        maxGridSize: [grid_x, grid_y, grid_z],
        sharedMemPerBlock: shared,
        totalConstantMemory: constant,
        SIMDWidth: warp,
        memPitch: pitch,
        regsPerBlock: registers,
        clockRate: clock,
        textureAlign: texture,
    });
    Ok(())
}

pub(crate) fn cuDeviceGetUuid_v2(uuid: Out<CUuuid>, device: CUdevice) -> CUresult {
    let device = driver()?.space.device(device)?;
    uuid.set(CUuuid { bytes: attributes::uuid(device.index) });
    Ok(())
}

pub(crate) fn cuDeviceTotalMem_v2(bytes: Out<usize>, device: CUdevice) -> CUresult {
    bytes.set(driver()?.space.device(device)?.memory.bytes as usize);
    Ok(())
}

pub(crate) fn cuDeviceGetAttribute(value: Out<i32>, attribute: CUdevice_attribute, device: CUdevice) -> CUresult {
    let device = driver()?.space.device(device)?;
    value.set(attributes::value(attribute, device).ok_or(CUerror::INVALID_VALUE)?);
    Ok(())
}

pub(crate) fn cuDeviceGetByPCIBusId(device: Out<CUdevice>, bus_id: InStr) -> CUresult {
    let wanted = bus_id.0.to_uppercase();
    let driver = driver()?;
    if !wanted.contains(':') || !wanted.chars().all(|c| c.is_ascii_hexdigit() || c == ':' || c == '.') {
        return Err(CUerror::INVALID_VALUE);
    }
    let found = driver.space.devices.iter().find(|device| {
        let own = attributes::bus_id(device.index);
        // The domain and the function may be left out.
        [own.as_str(), &own[5..], &own[..own.len() - 2], &own[5..own.len() - 2]].contains(&wanted.as_str())
    });
    device.set(CUdevice(found.ok_or(CUerror::INVALID_DEVICE)?.ordinal as i32));
    Ok(())
}

pub(crate) fn cuDeviceGetPCIBusId(bus_id: Out<c_char>, length: i32, device: CUdevice) -> CUresult {
    let device = driver()?.space.device(device)?;
    bus_id.set_str(&attributes::bus_id(device.index), length)
}

pub(crate) fn cuDeviceCanAccessPeer(can: Out<i32>, device: CUdevice, peer: CUdevice) -> CUresult {
    let driver = driver()?;
    let (device, peer) = (driver.space.device(device)?, driver.space.device(peer)?);
    can.set((device.ordinal != peer.ordinal).into());
    Ok(())
}

pub(crate) fn cuDeviceGetP2PAttribute(
    value: Out<i32>,
    attribute: CUdevice_P2PAttribute,
    from: CUdevice,
    to: CUdevice,
) -> CUresult {
    let driver = driver()?;
    let (from, to) = (driver.space.device(from)?, driver.space.device(to)?);
    if from.ordinal == to.ordinal {
        return Err(CUerror::INVALID_DEVICE);
    }
    value.set(match attribute {
        CUdevice_P2PAttribute::PERFORMANCE_RANK => 0,
        CUdevice_P2PAttribute::ACCESS_SUPPORTED | CUdevice_P2PAttribute::NATIVE_ATOMIC_SUPPORTED => 1,
        CUdevice_P2PAttribute::CUDA_ARRAY_ACCESS_SUPPORTED => 0,
        _ => return Err(CUerror::INVALID_VALUE),
    });
    Ok(())
}

pub(crate) fn cuDeviceComputeCapability(major: Out<i32>, minor: Out<i32>, device: CUdevice) -> CUresult {
    let device = driver()?.space.device(device)?;
    let part = |attribute| attributes::value(attribute, device).ok_or(CUerror::INVALID_VALUE);
    major.set(part(CUdevice_attribute::COMPUTE_CAPABILITY_MAJOR)?);
    minor.set(part(CUdevice_attribute::COMPUTE_CAPABILITY_MINOR)?);
    Ok(())
}

pub(crate) fn cuDeviceGetDefaultMemPool(pool: Out<CUmemoryPool>, device: CUdevice) -> CUresult {
    let driver = driver()?;
    pool.set(default_pool(driver, driver.space.device(device)?)?.handle);
    Ok(())
}

pub(crate) fn cuDeviceGetMemPool(pool: Out<CUmemoryPool>, device: CUdevice) -> CUresult {
    let driver = driver()?;
    pool.set(current_pool(driver, driver.space.device(device)?)?.handle);
    Ok(())
}

pub(crate) fn cuDeviceSetMemPool(device: CUdevice, pool: CUmemoryPool) -> CUresult {
    let driver = driver()?;
    let device = driver.space.device(device)?;
    let pool = driver.pools.get(pool.0)?;
    if pool.device != device.ordinal || pool.origin == Origin::Imported {
        return Err(CUerror::INVALID_VALUE);
    }
    device.pools().current = Some(pool);
    Ok(())
}
