//! The choice of a CUDA driver: NVIDIA's or the software driver.

use std::path::Path;

use freehold_driver::cuda::load::{self, LibraryError};
use freehold_driver::cuda::{Api, CUdevice, CUerror, DriverError, device, driver, extension};

use super::selector::{DeviceRequest, Selector, Source, VARIABLE, named, soft_selector, with_variable};
use super::soft;
use crate::error::open_error::{Absence, OpenError};

/// Which driver was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The software driver.
    Soft,
    /// NVIDIA's driver.
    Cuda,
}

/// A driver, and which of its devices to use.
///
/// ```
/// // SAFETY: the driver is used here only to make a device.
/// let opened = unsafe { freehold::open::open(Some("soft"))? };
/// println!("{}", opened.why); // which device, and why this one
/// assert_eq!(opened.selector(), "soft");
/// // SAFETY: the table is a driver's, and nothing of the device is destroyed by others.
/// let device = unsafe { freehold::Device::new(opened.api, opened.device) }?;
/// # drop(device);
/// # Ok::<(), freehold::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Opened {
    /// The driver's functions. The caller guarantees that its calls are valid: see [`open`].
    pub api: Api,
    /// The device, as that driver names it.
    pub device: CUdevice,
    /// Which driver it is.
    pub kind: Kind,
    /// One sentence: which device, and why it was chosen.
    pub why: String,
}

impl Opened {
    /// Returns the selector that names exactly this device.
    pub fn selector(&self) -> String {
        match self.kind {
            Kind::Soft => soft_selector(self.device.0),
            Kind::Cuda => format!("cuda:{}", self.device.0),
        }
    }
}

/// Opens the CUDA driver of the device that `selector` names (`soft`, `soft:N`, `cuda`, `cuda:N`), or else
/// `FREEHOLD_DEVICE`, or else of the best device of this machine. The driver is initialized.
///
/// # Safety
/// As for [`load::load`]: the caller guarantees that its calls through the table are valid. Memory, streams and
/// contexts of the library are not destroyed, and are used only in its order.
pub unsafe fn open(selector: Option<&str>) -> Result<Opened, OpenError> {
    opened(selector)
}

/// [`open`], for the crate's own calls.
pub(crate) fn opened(selector: Option<&str>) -> Result<Opened, OpenError> {
    let selector = with_variable(selector)?;
    let mut found = None;
    let choice = choose(selector, BUILT, || match nvidia() {
        Ok((api, nvidia)) => {
            found = Some(api);
            Ok(nvidia)
        }
        Err(absence) => Err(absence),
    })?;
    let api = match choice.kind {
        Kind::Cuda => found.expect("a GPU is chosen only after its driver was loaded"),
        Kind::Soft => soft::started(choice.device.0)?,
    };
    Ok(Opened { api, device: choice.device, kind: choice.kind, why: choice.why })
}

/// The device that a program runs on, chosen as [`open`] chooses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The software devices, or only the one with an ordinal.
    Soft {
        /// The number of the device.
        ordinal: Option<i32>,
    },
    /// NVIDIA's GPUs, or only the one with an ordinal.
    Cuda {
        /// The number of the device, as the driver counts them.
        ordinal: Option<i32>,
    },
}

/// Returns the kind of the device that `selector` names, or else `FREEHOLD_DEVICE`, or else of the best device of this
/// machine. Does not start the software driver, so that a process that then executes another program is left clean.
///
/// ```
/// use freehold::open::{Target, target};
///
/// assert_eq!(target(Some("soft"))?, Target::Soft { ordinal: None });
/// # Ok::<(), freehold::open::OpenError>(())
/// ```
pub fn target(selector: Option<&str>) -> Result<Target, OpenError> {
    let selector = with_variable(selector)?;
    let choice = choose(selector, BUILT, || nvidia().map(|(_, nvidia)| nvidia))?;
    let ordinal = selector.and_then(|request| request.selector.ordinal());
    match choice.kind {
        Kind::Cuda => Ok(Target::Cuda { ordinal }),
        Kind::Soft => soft::check(choice.device.0).map(|()| Target::Soft { ordinal }),
    }
}

/// Returns the table of a driver before any call, including `cuInit`.
///
/// # Safety
/// As for [`load::load`].
pub unsafe fn untouched(kind: Kind) -> Result<Api, Absence> {
    match kind {
        Kind::Soft => soft::table(),
        Kind::Cuda => library(),
    }
}

/// What NVIDIA's driver reports about this machine.
#[derive(Clone, Debug)]
pub(super) struct Nvidia {
    /// At least one; the index is the ordinal.
    names: Vec<String>,
    /// In CUDA's encoding: 13.0 is 13000.
    version: i32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Choice {
    kind: Kind,
    device: CUdevice,
    why: String,
}

/// Which kinds of device, besides NVIDIA's, are built in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Built {
    pub(super) soft: bool,
    opencl: bool,
}

pub(super) const BUILT: Built = Built { soft: cfg!(feature = "soft"), opencl: cfg!(feature = "opencl") };

/// Chooses a device. `probe` loads NVIDIA's driver, and is not called for a selector that excludes it.
fn choose(
    selector: Option<DeviceRequest>,
    built: Built,
    probe: impl FnOnce() -> Result<Nvidia, Absence>,
) -> Result<Choice, OpenError> {
    let soft = |ordinal: Option<i32>, because: String| {
        let number = ordinal.map_or(String::new(), |ordinal| format!(" {ordinal}"));
        let why = format!("software device{number} ({because})");
        Choice { kind: Kind::Soft, device: CUdevice(ordinal.unwrap_or(0)), why }
    };
    match selector {
        Some(DeviceRequest { selector: Selector::Soft { ordinal }, .. }) if !built.soft => {
            Err(OpenError::NotBuilt { selector: soft_selector(ordinal.unwrap_or(0)), feature: "soft" })
        }
        Some(DeviceRequest { selector: Selector::Soft { ordinal }, from: Source::Caller }) => {
            Ok(soft(ordinal, "as requested".to_owned()))
        }
        Some(DeviceRequest { selector: Selector::Soft { ordinal }, from: Source::Variable }) => {
            Ok(soft(ordinal, format!("as {VARIABLE} says")))
        }
        Some(DeviceRequest { selector: Selector::Cuda { ordinal }, .. }) => {
            let ordinal = ordinal.unwrap_or(0);
            let nvidia =
                probe().map_err(|absence| OpenError::Absent { selector: format!("cuda:{ordinal}"), absence })?;
            cuda(&nvidia, ordinal)
        }
        Some(DeviceRequest { selector: Selector::OpenCl { ordinal }, .. }) if !built.opencl => {
            Err(OpenError::NotBuilt { selector: named(ordinal), feature: "opencl" })
        }
        Some(DeviceRequest { selector: Selector::OpenCl { ordinal }, .. }) => {
            Err(OpenError::NotCuda { selector: named(ordinal) })
        }
        None => match probe() {
            Ok(nvidia) => cuda(&nvidia, 0),
            Err(Absence::NoLibrary) if built.soft => Ok(soft(None, "no NVIDIA driver found".to_owned())),
            Err(absence) if built.soft => Ok(soft(None, absence.to_string())),
            Err(absence) => Err(OpenError::NoDevice { absence }),
        },
    }
}

fn cuda(nvidia: &Nvidia, ordinal: i32) -> Result<Choice, OpenError> {
    let count = nvidia.names.len();
    let name = usize::try_from(ordinal)
        .ok()
        .and_then(|index| nvidia.names.get(index))
        .ok_or(OpenError::OutOfRange { ordinal, count })?;
    let (major, minor) = (nvidia.version / 1000, nvidia.version % 1000 / 10);
    let why = format!("cuda:{ordinal}: {name}, driver {major}.{minor}");
    Ok(Choice { kind: Kind::Cuda, device: CUdevice(ordinal), why })
}

fn library() -> Result<Api, Absence> {
    // SAFETY: the library of that name is NVIDIA's driver. This crate's calls name only what it created itself; other
    // users of the table guarantee that theirs are valid.
    unsafe { load::load(Path::new(load::LIBRARY)) }.map_err(|error| match error {
        LibraryError::NotADriver(_) => Absence::NotADriver,
        _ => Absence::NoLibrary,
    })
}

/// Whether the driver that the dynamic linker finds is Freehold's.
pub(super) fn is_library_software() -> bool {
    library().is_ok_and(|api| extension::find(&api).is_some())
}

/// Starts NVIDIA's driver, and lists its devices.
pub(super) fn nvidia() -> Result<(Api, Nvidia), Absence> {
    let api = library()?;
    let nvidia = describe(&api).map_err(|error| match error.code {
        CUerror::NO_DEVICE => Absence::NoDevice,
        _ => Absence::Refused(error),
    })?;
    if nvidia.names.is_empty() { Err(Absence::NoDevice) } else { Ok((api, nvidia)) }
}

/// Starts the driver and lists its devices.
fn describe(api: &Api) -> Result<Nvidia, DriverError> {
    driver::init(api, 0)?;
    let names = (0..device::count(api)?).map(|ordinal| device::name(api, CUdevice(ordinal)));
    let names = names.collect::<Result<Vec<_>, _>>()?;
    let version = driver::version(api)?;
    Ok(Nvidia { names, version })
}

#[cfg(test)]
mod tests {
    use super::*;
    use freehold_driver::cuda::Function;

    const ALL: Built = Built { soft: true, opencl: true };
    const NVIDIA_ALONE: Built = Built { soft: false, opencl: false };

    fn two_devices() -> Result<Nvidia, Absence> {
        Ok(Nvidia { names: vec!["NVIDIA H200".to_owned(), "NVIDIA T4".to_owned()], version: 13000 })
    }

    fn no_library() -> Result<Nvidia, Absence> {
        Err(Absence::NoLibrary)
    }

    fn caller(text: &str) -> Option<DeviceRequest> {
        Some(DeviceRequest { selector: Selector::parse(text).unwrap(), from: Source::Caller })
    }

    #[test]
    fn without_a_selector_a_gpu_is_chosen() {
        let choice = choose(None, ALL, two_devices).unwrap();
        assert_eq!(choice.kind, Kind::Cuda);
        assert_eq!(choice.device, CUdevice(0));
        assert_eq!(choice.why, "cuda:0: NVIDIA H200, driver 13.0");
    }

    #[test]
    fn without_a_selector_and_a_library_it_is_the_software_device() {
        let choice = choose(None, ALL, no_library).unwrap();
        assert_eq!(choice.kind, Kind::Soft);
        assert_eq!(choice.why, "software device (no NVIDIA driver found)");
    }

    #[test]
    fn without_a_selector_and_a_device_it_is_the_software_device() {
        let choice = choose(None, ALL, || Err(Absence::NoDevice)).unwrap();
        assert_eq!(choice.why, "software device (NVIDIA's driver has no device)");
    }

    #[test]
    fn a_driver_that_does_not_start_is_named_with_its_code() {
        let refused = DriverError { call: Function::cuInit, code: CUerror::SYSTEM_DRIVER_MISMATCH };
        let choice = choose(None, ALL, || Err(Absence::Refused(refused))).unwrap();
        assert_eq!(
            choice.why,
            "software device (NVIDIA's driver does not start: cuInit: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803))"
        );
    }

    #[test]
    fn soft_is_soft_beside_a_gpu_and_loads_nothing() {
        let choice = choose(caller("soft"), ALL, || panic!("NVIDIA's library was loaded")).unwrap();
        assert_eq!(choice.kind, Kind::Soft);
        assert_eq!(choice.why, "software device (as requested)");
    }

    #[test]
    fn the_variable_is_named_when_it_decided() {
        let selector = |ordinal| Some(DeviceRequest { selector: Selector::Soft { ordinal }, from: Source::Variable });
        let choice = |ordinal| choose(selector(ordinal), ALL, two_devices).unwrap();
        assert_eq!(choice(None).why, "software device (as FREEHOLD_DEVICE says)");
        assert_eq!(choice(Some(1)).why, "software device 1 (as FREEHOLD_DEVICE says)");
    }

    #[test]
    fn an_ordinal_picks_its_software_device() {
        let choice = choose(caller("soft:1"), ALL, || panic!("NVIDIA's library was loaded")).unwrap();
        assert_eq!((choice.kind, choice.device), (Kind::Soft, CUdevice(1)));
    }

    #[cfg(feature = "soft")]
    #[test]
    fn a_software_device_that_is_not_there_says_how_to_have_it() {
        let error = target(Some("soft:16")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "soft:16 was requested, but there is 1 software device: set FREEHOLD_SOFT_DEVICES"
        );
    }

    #[test]
    fn an_ordinal_picks_its_device() {
        let choice = choose(caller("cuda:1"), ALL, two_devices).unwrap();
        assert_eq!(choice.device, CUdevice(1));
        assert_eq!(choice.why, "cuda:1: NVIDIA T4, driver 13.0");
    }

    #[test]
    fn cuda_alone_is_the_first_device() {
        assert_eq!(choose(caller("cuda"), ALL, two_devices).unwrap().device, CUdevice(0));
    }

    #[test]
    fn an_ordinal_out_of_range_says_how_many_there_are() {
        let error = choose(caller("cuda:2"), ALL, two_devices).unwrap_err();
        assert_eq!(error.to_string(), "cuda:2 was requested, but the CUDA driver has 2 devices");
    }

    #[cfg(feature = "soft")]
    #[test]
    fn a_selected_gpu_without_a_library_is_an_error_and_not_the_software_device() {
        let error = choose(caller("cuda"), ALL, no_library).unwrap_err();
        assert_eq!(
            error.to_string(),
            "cuda:0 was requested, but libcuda.so.1 is not on this machine; the software device, soft, needs no GPU"
        );
    }

    #[test]
    fn an_unknown_word_names_the_forms() {
        let error = Selector::parse("gpu").unwrap_err();
        assert_eq!(
            error.to_string(),
            "unknown device \"gpu\": expected soft, soft:N, cuda, cuda:N, opencl or opencl:N"
        );
    }

    #[test]
    fn an_ordinal_is_digits_that_fit() {
        let texts = ["cuda:", "cuda:-1", "cuda:+1", "cuda:x", "cuda:1 ", "cuda:99999999999", "cuda1", "Soft", ""];
        for text in texts.into_iter().chain(["opencl:", "opencl:-1", "opencl:x", "opencl1", "hip:0", "soft:", "soft:x"])
        {
            assert_eq!(Selector::parse(text), Err(OpenError::UnknownDevice(text.to_owned())), "{text:?}");
        }
    }

    #[test]
    fn opencl_loads_no_cuda_driver() {
        let error = choose(caller("opencl:1"), ALL, || panic!("NVIDIA's library was loaded")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "opencl:1 was requested, but this needs a CUDA driver: expected soft, cuda or cuda:N"
        );
    }

    #[test]
    fn without_the_software_device_there_must_be_a_gpu() {
        assert_eq!(choose(None, NVIDIA_ALONE, two_devices).unwrap().kind, Kind::Cuda);
        assert_eq!(
            choose(None, NVIDIA_ALONE, no_library).unwrap_err().to_string(),
            "libcuda.so.1 is not on this machine, and freehold was built without its feature `soft`, the software device"
        );
    }

    #[test]
    fn a_kind_that_is_not_built_in_names_its_feature() {
        let refused = |text| choose(caller(text), NVIDIA_ALONE, two_devices).unwrap_err().to_string();
        assert_eq!(refused("soft"), "soft was requested, but freehold was built without its feature `soft`");
        assert_eq!(refused("opencl:1"), "opencl:1 was requested, but freehold was built without its feature `opencl`");
    }

    #[cfg(feature = "soft")]
    #[test]
    fn the_selector_of_an_opened_device_has_its_number() {
        let opened = Opened { api: soft::table().unwrap(), device: CUdevice(3), kind: Kind::Cuda, why: String::new() };
        assert_eq!(opened.selector(), "cuda:3");
        let soft = |ordinal| Opened { kind: Kind::Soft, device: CUdevice(ordinal), ..opened.clone() }.selector();
        assert_eq!([0, 1].map(soft), ["soft", "soft:1"]);
    }
}
