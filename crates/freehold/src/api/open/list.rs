//! All devices of this machine, of every kind, and why a kind is missing.

use freehold_driver::cuda::{Api, CUdevice, CUdevice_attribute, DriverError, device, driver};
#[cfg(feature = "opencl")]
use freehold_driver::opencl::device::Svm;
#[cfg(feature = "opencl")]
use freehold_driver::opencl::discovery::InstalledDevice;

use super::choice::{BUILT, nvidia};
use super::selector::soft_selector;
use super::soft;

/// A device, described for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its selector: `soft`, `soft:1`, `cuda:0`, `opencl:0`.
    pub device: String,
    /// Its driver's name of it.
    pub name: String,
    /// Its driver's vendor and version.
    pub driver: String,
    /// Its total memory.
    pub memory_bytes: u64,
    /// Optional features that it supports, in words.
    pub abilities: Vec<&'static str>,
}

/// A kind of device that this machine does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// `cuda`, `soft` or `opencl`.
    pub kind: &'static str,
    /// Why, in a sentence.
    pub why: String,
}

/// Lists the devices, in the order in which one is chosen without a selector, then OpenCL's; and the kinds that are
/// missing.
///
/// ```
/// let (devices, missing) = freehold::open::list::devices();
/// for device in &devices {
///     println!("{}: {}, {} bytes", device.device, device.name, device.memory_bytes);
/// }
/// for kind in &missing {
///     println!("no {}: {}", kind.kind, kind.why);
/// }
/// assert!(devices.iter().any(|device| device.device == "soft"));
/// ```
pub fn devices() -> (Vec<Listed>, Vec<Missing>) {
    let (mut listed, mut missing) = (Vec::new(), Vec::new());
    let mut add = |kind, found: Result<Vec<Listed>, String>| match found {
        Ok(found) => listed.extend(found),
        Err(why) => missing.push(Missing { kind, why }),
    };
    add(
        "cuda",
        nvidia().map_err(|absence| absence.to_string()).and_then(|(api, _)| {
            described(&api, "NVIDIA", |ordinal| format!("cuda:{ordinal}")).map_err(|error| error.to_string())
        }),
    );
    add("soft", if BUILT.soft { software() } else { Err(not_built("soft")) });
    add("opencl", opencl());
    (listed, missing)
}

fn not_built(feature: &str) -> String {
    format!("freehold was built without its feature `{feature}`")
}

fn software() -> Result<Vec<Listed>, String> {
    let api = soft::started(0).map_err(|error| error.to_string())?;
    described(&api, "Freehold", soft_selector).map_err(|error| error.to_string())
}

/// Describes the devices of a CUDA driver that has started.
fn described(api: &Api, vendor: &str, named: impl Fn(i32) -> String) -> Result<Vec<Listed>, DriverError> {
    let version = driver::version(api)?;
    let driver = format!("{vendor}, CUDA {}.{}", version / 1000, version % 1000 / 10);
    let describe = |ordinal| {
        let at = CUdevice(ordinal);
        let has = |attribute| Ok::<_, DriverError>(device::attribute(api, at, attribute)? != 0);
        let mut abilities = vec!["PTX"];
        if has(CUdevice_attribute::VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)? {
            abilities.push("virtual memory");
            if has(CUdevice_attribute::HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED)? {
                abilities.push("sharing");
            }
        }
        if has(CUdevice_attribute::CAN_USE_64_BIT_STREAM_MEM_OPS)? {
            abilities.push("stream memory operations");
        }
        let (name, memory_bytes) = (device::name(api, at)?, device::total_bytes(api, at)? as u64);
        Ok(Listed { device: named(ordinal), name, driver: driver.clone(), memory_bytes, abilities })
    };
    (0..device::count(api)?).map(describe).collect()
}

#[cfg(not(feature = "opencl"))]
fn opencl() -> Result<Vec<Listed>, String> {
    Err(not_built("opencl"))
}

#[cfg(feature = "opencl")]
fn opencl() -> Result<Vec<Listed>, String> {
    let all = super::opencl::devices().map_err(|absence| absence.to_string())?;
    Ok(all.iter().enumerate().map(|(ordinal, found)| of_opencl(ordinal, found)).collect())
}

#[cfg(feature = "opencl")]
fn of_opencl(ordinal: usize, InstalledDevice { platform_name, info: facts, .. }: &InstalledDevice) -> Listed {
    let mut abilities = vec!["OpenCL C"];
    if facts.supports_spirv {
        abilities.push("SPIR-V");
    }
    abilities.push(match facts.svm {
        Svm::None => "buffers",
        Svm::Coarse => "coarse SVM",
        Svm::Fine => "fine SVM",
    });
    Listed {
        device: format!("opencl:{ordinal}"),
        name: facts.name.clone(),
        driver: format!("{platform_name}, {}, {}", facts.version, facts.driver),
        memory_bytes: facts.memory_bytes,
        abilities,
    }
}
