//! The C functions.

use std::ffi::{CStr, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use freehold_driver::cuda::driver as cuda_driver;
use freehold_driver::cuda::extension::DeviceReport;

use crate::code::Code;
use crate::devices::{Driver, driver, uuid_text};

/// The version of NVML's interface, and of a driver of this age.
const NVML_VERSION: &str = "13.580.00";
const DRIVER_VERSION: &str = "580.00";

/// The version of `nvmlMemory_v2_t`: its size, and 2 in the highest byte.
const MEMORY_V2: u32 = size_of::<MemoryV2>() as u32 | 2 << 24;

type Handle = usize;
type Outcome = Result<(), Code>;

#[repr(C)]
struct Memory {
    total: u64,
    free: u64,
    used: u64,
}

#[repr(C)]
struct MemoryV2 {
    version: u32,
    total: u64,
    reserved: u64,
    free: u64,
    used: u64,
}

#[repr(C)]
struct Utilization {
    gpu: u32,
    memory: u32,
}

#[repr(C)]
struct PciInfo {
    bus_id_legacy: [u8; 16],
    domain: u32,
    bus: u32,
    device: u32,
    pci_device_id: u32,
    pci_subsystem_id: u32,
    bus_id: [u8; 32],
}

/// How many initializations have no shutdown yet.
static USERS: AtomicU32 = AtomicU32::new(0);

/// Runs a function, which must not unwind into C.
fn run(function: impl FnOnce() -> Outcome) -> Code {
    match catch_unwind(AssertUnwindSafe(function)) {
        Ok(Ok(())) => Code::SUCCESS,
        Ok(Err(code)) => code,
        Err(_) => Code::UNKNOWN,
    }
}

fn init() -> Outcome {
    driver()?;
    USERS.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

fn shutdown() -> Outcome {
    let taken = USERS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |users| users.checked_sub(1));
    taken.map(|_| ()).map_err(|_| Code::UNINITIALIZED)
}

fn initialized() -> Result<&'static Driver, Code> {
    if USERS.load(Ordering::Relaxed) == 0 { Err(Code::UNINITIALIZED) } else { driver() }
}

/// Returns the index and the description of a device.
fn find(handle: Handle) -> Result<(u32, DeviceReport), Code> {
    let driver = initialized()?;
    let index = handle.checked_sub(1).and_then(|index| u32::try_from(index).ok()).ok_or(Code::INVALID_ARGUMENT)?;
    Ok((index, driver.device(index)?))
}

/// # Safety
/// `to` must be null or valid for a write.
unsafe fn put<T>(to: *mut T, value: T) -> Outcome {
    if to.is_null() {
        return Err(Code::INVALID_ARGUMENT);
    }
    // SAFETY: the caller guarantees that the output pointer is valid.
    unsafe { to.write(value) };
    Ok(())
}

/// # Safety
/// `to` must be null or valid for `room` bytes.
unsafe fn put_text(to: *mut c_char, room: u32, text: &str) -> Outcome {
    if to.is_null() {
        return Err(Code::INVALID_ARGUMENT);
    }
    if text.len() >= room as usize {
        return Err(Code::INSUFFICIENT_SIZE);
    }
    let to = to.cast::<u8>();
    // SAFETY: the caller guarantees that the memory is valid, and the text is shorter.
    unsafe { ptr::copy_nonoverlapping(text.as_ptr(), to, text.len()) };
    // SAFETY: as above, and there is room for one byte more.
    let end = unsafe { to.add(text.len()) };
    // SAFETY: as above.
    unsafe { end.write(0) };
    Ok(())
}

/// Returns the handle of the first device that a test accepts.
fn find_device(accepts: impl Fn(&DeviceReport) -> bool) -> Result<Handle, Code> {
    let driver = initialized()?;
    let found = (0..driver.count()?).find(|&index| driver.device(index).is_ok_and(|device| accepts(&device)));
    found.map(|index| index as Handle + 1).ok_or(Code::NOT_FOUND)
}

/// # Safety
/// `text` must be null or a C string.
unsafe fn text<'a>(text: *const c_char) -> Result<&'a str, Code> {
    if text.is_null() {
        return Err(Code::INVALID_ARGUMENT);
    }
    // SAFETY: the caller guarantees that the string is valid.
    unsafe { CStr::from_ptr(text) }.to_str().map_err(|_| Code::INVALID_ARGUMENT)
}

/// Parses `0000:01:00.0`, with a domain of any length.
fn parse_bus_id(text: &str) -> Option<[u32; 3]> {
    let (head, _function) = text.split_once('.')?;
    let mut parts = head.split(':').map(|part| u32::from_str_radix(part, 16).ok());
    let found = [parts.next()??, parts.next()??, parts.next()??];
    parts.next().is_none().then_some(found)
}

fn pci_info(bus_id: &str) -> Option<PciInfo> {
    let [domain, bus, device] = parse_bus_id(bus_id)?;
    let mut info =
        PciInfo { bus_id_legacy: [0; 16], domain, bus, device, pci_device_id: 0, pci_subsystem_id: 0, bus_id: [0; 32] };
    let (short, long) =
        (format!("{domain:04X}:{bus:02X}:{device:02X}.0"), format!("{domain:08X}:{bus:02X}:{device:02X}.0"));
    info.bus_id_legacy[..short.len()].copy_from_slice(short.as_bytes());
    info.bus_id[..long.len()].copy_from_slice(long.as_bytes());
    Some(info)
}

macro_rules! exports {
    ($($($name:ident)|+ ($($argument:ident: $type:ty),*) $body:expr;)*) => {
        $(exports! { @names ($($name)|+) ($($argument: $type),*) $body })*
    };
    (@names ($($name:ident)|+) $arguments:tt $body:expr) => {
        $(exports! { @one $name $arguments $body })+
    };
    (@one $name:ident ($($argument:ident: $type:ty),*) $body:expr) => {
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($argument: $type),*) -> Code {
            run(|| $body)
        }
    };
}

macro_rules! not_supported {
    ($($name:ident)*) => {
        $(
            #[unsafe(no_mangle)]
            extern "C" fn $name() -> Code {
                Code::NOT_SUPPORTED
            }
        )*
    };
}

// SAFETY (all): NVML documents that the places and texts that a caller passes are valid, of the lengths that it states.
#[allow(non_snake_case, reason = "named as C names the functions")]
mod functions {
    use super::*;

    #[unsafe(no_mangle)]
    extern "C" fn nvmlErrorString(code: Code) -> *const c_char {
        code.text().as_ptr()
    }

    exports! {
        nvmlInit | nvmlInit_v2 () init();
        nvmlInitWithFlags (_flags: u32) init();
        nvmlShutdown () shutdown();
        nvmlSystemGetDriverVersion (to: *mut c_char, room: u32) {
            initialized()?;
            // SAFETY: see above.
            unsafe { put_text(to, room, DRIVER_VERSION) }
        };
        nvmlSystemGetNVMLVersion (to: *mut c_char, room: u32)
            // SAFETY: see above.
            unsafe { put_text(to, room, NVML_VERSION) };
        nvmlSystemGetCudaDriverVersion | nvmlSystemGetCudaDriverVersion_v2 (version: *mut i32) {
            let found = cuda_driver::version(&driver()?.api)?;
            // SAFETY: see above.
            unsafe { put(version, found) }
        };
        nvmlDeviceGetCount | nvmlDeviceGetCount_v2 (count: *mut u32) {
            let found = initialized()?.count()?;
            // SAFETY: see above.
            unsafe { put(count, found) }
        };
        nvmlDeviceGetHandleByIndex | nvmlDeviceGetHandleByIndex_v2 (index: u32, handle: *mut Handle) {
            let found = index as Handle + 1;
            find(found)?;
            // SAFETY: see above.
            unsafe { put(handle, found) }
        };
        nvmlDeviceGetHandleByUUID (uuid: *const c_char, handle: *mut Handle) {
            // SAFETY: see above.
            let wanted = unsafe { text(uuid) }?;
            let found = find_device(|device| uuid_text(&device.uuid) == wanted)?;
            // SAFETY: see above.
            unsafe { put(handle, found) }
        };
        nvmlDeviceGetHandleByPciBusId | nvmlDeviceGetHandleByPciBusId_v2 (bus_id: *const c_char, handle: *mut Handle) {
            // SAFETY: see above.
            let wanted = parse_bus_id(unsafe { text(bus_id) }?).ok_or(Code::INVALID_ARGUMENT)?;
            let found = find_device(|device| parse_bus_id(&device.bus_id.to_string()) == Some(wanted))?;
            // SAFETY: see above.
            unsafe { put(handle, found) }
        };
        nvmlDeviceGetIndex | nvmlDeviceGetMinorNumber (handle: Handle, index: *mut u32) {
            let (found, _) = find(handle)?;
            // SAFETY: see above.
            unsafe { put(index, found) }
        };
        nvmlDeviceGetName (handle: Handle, to: *mut c_char, room: u32) {
            let (_, device) = find(handle)?;
            // SAFETY: see above.
            unsafe { put_text(to, room, &device.name.to_string()) }
        };
        nvmlDeviceGetUUID (handle: Handle, to: *mut c_char, room: u32) {
            let (_, device) = find(handle)?;
            // SAFETY: see above.
            unsafe { put_text(to, room, &uuid_text(&device.uuid)) }
        };
        nvmlDeviceGetMemoryInfo (handle: Handle, memory: *mut Memory) {
            let (_, found) = find(handle)?;
            let (total, free) = (found.total_bytes, found.free_bytes);
            // SAFETY: see above.
            unsafe { put(memory, Memory { total, free, used: total - free }) }
        };
        nvmlDeviceGetMemoryInfo_v2 (handle: Handle, memory: *mut MemoryV2) {
            let (_, found) = find(handle)?;
            if memory.is_null() {
                return Err(Code::INVALID_ARGUMENT);
            }
            // SAFETY: see above.
            let version = unsafe { (*memory).version };
            if version != MEMORY_V2 {
                return Err(Code::ARGUMENT_VERSION_MISMATCH);
            }
            let (total, free) = (found.total_bytes, found.free_bytes);
            // SAFETY: see above.
            unsafe { put(memory, MemoryV2 { version, total, reserved: 0, free, used: total - free }) }
        };
        nvmlDeviceGetPciInfo | nvmlDeviceGetPciInfo_v2 | nvmlDeviceGetPciInfo_v3 (handle: Handle, pci: *mut PciInfo) {
            let (_, device) = find(handle)?;
            let found = pci_info(&device.bus_id.to_string()).ok_or(Code::UNKNOWN)?;
            // SAFETY: see above.
            unsafe { put(pci, found) }
        };
        nvmlDeviceGetCudaComputeCapability (handle: Handle, major: *mut i32, minor: *mut i32) {
            let (_, device) = find(handle)?;
            // SAFETY: see above.
            unsafe { put(major, device.major) }?;
            // SAFETY: see above.
            unsafe { put(minor, device.minor) }
        };
        nvmlDeviceGetUtilizationRates (handle: Handle, utilization: *mut Utilization) {
            find(handle)?;
            // SAFETY: see above.
            unsafe { put(utilization, Utilization { gpu: 0, memory: 0 }) }
        };
        // As in a container, which sees none of the machine's processes. PyTorch expects an answer when memory runs out.
        nvmlDeviceGetComputeRunningProcesses | nvmlDeviceGetComputeRunningProcesses_v2
        | nvmlDeviceGetComputeRunningProcesses_v3 | nvmlDeviceGetGraphicsRunningProcesses
        | nvmlDeviceGetGraphicsRunningProcesses_v2 | nvmlDeviceGetGraphicsRunningProcesses_v3
        (handle: Handle, count: *mut u32, _processes: *mut c_void) {
            find(handle)?;
            // SAFETY: see above.
            unsafe { put(count, 0) }
        };
    }

    not_supported! {
        nvmlDeviceGetApplicationsClock nvmlDeviceGetArchitecture nvmlDeviceGetBAR1MemoryInfo nvmlDeviceGetBoardId
        nvmlDeviceGetBrand nvmlDeviceGetClock nvmlDeviceGetClockInfo nvmlDeviceGetComputeMode nvmlDeviceGetCpuAffinity
        nvmlDeviceGetCurrPcieLinkGeneration nvmlDeviceGetCurrPcieLinkWidth nvmlDeviceGetDecoderUtilization
        nvmlDeviceGetDisplayActive nvmlDeviceGetDisplayMode nvmlDeviceGetEccMode nvmlDeviceGetEncoderUtilization
        nvmlDeviceGetEnforcedPowerLimit nvmlDeviceGetFanSpeed nvmlDeviceGetFieldValues nvmlDeviceGetGpuFabricInfo
        nvmlDeviceGetGpuFabricInfoV nvmlDeviceGetMaxClockInfo nvmlDeviceGetMaxMigDeviceCount
        nvmlDeviceGetMaxPcieLinkGeneration nvmlDeviceGetMaxPcieLinkWidth nvmlDeviceGetMemoryAffinity
        nvmlDeviceGetMemoryBusWidth nvmlDeviceGetMigMode nvmlDeviceGetNumGpuCores nvmlDeviceGetNvLinkCapability
        nvmlDeviceGetNvLinkRemoteDeviceType nvmlDeviceGetNvLinkRemotePciInfo nvmlDeviceGetNvLinkRemotePciInfo_v2
        nvmlDeviceGetNvLinkState nvmlDeviceGetP2PStatus nvmlDeviceGetPcieThroughput nvmlDeviceGetPerformanceState
        nvmlDeviceGetPersistenceMode nvmlDeviceGetPlatformInfo nvmlDeviceGetPowerManagementLimit nvmlDeviceGetPowerUsage
        nvmlDeviceGetProcessUtilization nvmlDeviceGetSerial nvmlDeviceGetTemperature nvmlDeviceGetTemperatureThreshold
        nvmlDeviceGetTopologyCommonAncestor nvmlDeviceGetTotalEccErrors nvmlDeviceGetTotalEnergyConsumption
        nvmlDeviceGetVbiosVersion nvmlDeviceSetComputeMode nvmlDeviceSetPersistenceMode nvmlSystemGetConfComputeSettings
        nvmlSystemGetConfComputeState nvmlSystemGetProcessName
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bus_id_has_three_numbers_and_a_function() {
        assert_eq!(parse_bus_id("0000:1A:00.0"), Some([0, 26, 0]));
        assert_eq!(parse_bus_id("00000000:01:00.0"), Some([0, 1, 0]));
        for wrong in ["", "01:00.0", "0000:01:00", "0000:01:00:00.0", "x:01:00.0"] {
            assert_eq!(parse_bus_id(wrong), None, "{wrong}");
        }
        let info = pci_info("0000:02:00.0").expect("it is a bus id");
        assert_eq!(
            (&info.bus_id_legacy[..13], &info.bus_id[..17]),
            (&b"0000:02:00.0\0"[..], &b"00000000:02:00.0\0"[..])
        );
    }

    #[test]
    fn the_structures_have_the_sizes_of_the_interface() {
        assert_eq!((size_of::<Memory>(), size_of::<PciInfo>(), MEMORY_V2), (24, 68, 0x0200_0028));
    }

    #[test]
    fn nothing_is_told_before_initialization_and_shutdowns_are_counted() {
        assert_eq!(find(1).err(), Some(Code::UNINITIALIZED));
        assert_eq!(shutdown(), Err(Code::UNINITIALIZED));
    }

    #[test]
    fn a_text_needs_room_for_its_end() {
        let mut room = [1 as c_char; 4];
        // SAFETY: the array has the stated length.
        assert_eq!(unsafe { put_text(room.as_mut_ptr(), 3, "abc") }, Err(Code::INSUFFICIENT_SIZE));
        // SAFETY: the array has the stated length.
        assert_eq!(unsafe { put_text(room.as_mut_ptr(), 4, "abc") }, Ok(()));
        assert_eq!(room, [97, 98, 99, 0]);
    }
}
