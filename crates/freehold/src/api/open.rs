//! The choice of a driver: NVIDIA's, the software one, or OpenCL. The only place that knows there are several.
//!
//! A selector comes from the caller, or else from `FREEHOLD_DEVICE`. Without one it is NVIDIA's GPU where there is one, and
//! the software device elsewhere.

pub mod list;
pub mod opencl;

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use freehold_driver::cuda::load::{self, LoadError};
use freehold_driver::cuda::{self, Api, CUcontext, CUdevice, CUerror, CallError, context, device, driver, primary};
use freehold_driver::opencl::discovery;
use freehold_softcuda::config::{Config, ConfigError};

use crate::api::device::Device;
use crate::api::foreign::ForeignPool;
use crate::error::{Error, Result as DeviceResult};

/// The variable that names a device where the caller names none.
pub const VARIABLE: &str = "FREEHOLD_DEVICE";

/// Whose driver was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The software driver.
    Soft,
    /// NVIDIA's.
    Cuda,
}

/// A driver and the device of it to use.
///
/// ```
/// // SAFETY: nothing is called of the driver here but what makes a device of it.
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
    /// The driver's functions. Whoever has them vouches for what is called of them: see [`open`].
    pub api: Api,
    /// The device, as that driver names it.
    pub device: CUdevice,
    /// Whose driver it is.
    pub kind: Kind,
    /// One sentence: which device, and why this one.
    pub why: String,
}

impl Opened {
    /// The selector that names exactly this device.
    pub fn selector(&self) -> String {
        match self.kind {
            Kind::Soft => "soft".to_owned(),
            Kind::Cuda => format!("cuda:{}", self.device.0),
        }
    }
}

/// Why there is no driver: a mistake in the selector, or a lack of this machine.
///
/// ```
/// use freehold::open::{self, OpenError};
///
/// let Err(freehold::Error::Open(error)) = open::device(Some("gpu")) else { panic!("there is no such kind") };
/// assert_eq!(error, OpenError::UnknownDevice("gpu".to_owned()));
/// assert_eq!(error.to_string(), r#""gpu" is no device: say soft, cuda, cuda:N, opencl or opencl:N"#);
/// ```
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The selector names no kind of device.
    #[error("{0:?} is no device: say soft, cuda, cuda:N, opencl or opencl:N")]
    UnknownDevice(String),
    /// There is no such driver here.
    #[error("{selector} was asked for, but {absence}; the software device, soft, needs no GPU")]
    Absent {
        /// What was asked for.
        selector: String,
        /// Why there is none.
        absence: Absence,
    },
    /// There are fewer NVIDIA devices.
    #[error("cuda:{ordinal} was asked for, but this machine has {count} NVIDIA {}", if *.count == 1 { "device" } else { "devices" })]
    OutOfRange {
        /// The number that was asked for.
        ordinal: i32,
        /// How many there are.
        count: usize,
    },
    /// There is no OpenCL here.
    #[error("{selector} was asked for, but {absence}; the software device, soft, needs no driver")]
    NoOpenCl {
        /// What was asked for.
        selector: String,
        /// Why there is none.
        absence: discovery::DiscoveryError,
    },
    /// There are fewer OpenCL devices.
    #[error("opencl:{ordinal} was asked for, but this machine has {count} OpenCL {}", if *.count == 1 { "device" } else { "devices" })]
    BeyondOpenCl {
        /// The number that was asked for.
        ordinal: usize,
        /// How many there are.
        count: usize,
    },
    /// The variable that says how OpenCL's memory is had is wrong.
    #[error("{} is {said:?}, but should be svm or buffers", opencl::MEMORY_VARIABLE)]
    OpenClMemory {
        /// What it says.
        said: String,
    },
    /// The variable that says how streams of others are known is wrong.
    #[error("unknown {STREAMS_VARIABLE} {said:?}: expected trusted or checked")]
    UnknownStreams {
        /// What it says.
        said: String,
    },
    /// An OpenCL device, for what needs a CUDA driver.
    #[error("{selector} was asked for, but this works with CUDA drivers alone: say soft, cuda or cuda:N")]
    NotCuda {
        /// What was asked for.
        selector: String,
    },
    /// A number below 0.
    #[error("{ordinal} is no number of a device: they begin with 0")]
    NoSuchNumber {
        /// The number that was asked for.
        ordinal: i32,
    },
    /// The driver has fewer devices.
    #[error("device {ordinal} was asked for, but the driver has {count}, and their numbers begin with 0")]
    BeyondDevices {
        /// The number that was asked for.
        ordinal: i32,
        /// How many there are.
        count: i32,
    },
    /// A variable of the software device is wrong.
    #[error(transparent)]
    SoftMisconfigured(#[from] ConfigError),
    /// The software driver does not start.
    #[error("the software driver does not start: {0}; with CUDA_LOG_FILE=stderr it says why")]
    SoftRefused(CallError),
}

/// The sentence: what `main` prints that returns it, and `unwrap`.
impl fmt::Debug for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Why NVIDIA's driver cannot be used here.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
pub enum Absence {
    /// There is no library.
    #[error("libcuda.so.1 is not on this machine")]
    NoLibrary,
    /// The library lacks what every driver has.
    #[error("libcuda.so.1 is not a CUDA driver")]
    NotADriver,
    /// The driver is there and does not start.
    #[error("NVIDIA's driver does not start: {0}")]
    Refused(CallError),
    /// The driver has no device.
    #[error("NVIDIA's driver has no device")]
    NoDevice,
}

/// The sentence: what `main` prints that returns it, and `unwrap`.
impl fmt::Debug for Absence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The CUDA driver of the device that `selector` names (`soft`, `cuda`, `cuda:N`), or `FREEHOLD_DEVICE`, or of the best one
/// that this machine has. The driver is initialised.
///
/// # Safety
/// As for [`load::load`]: whoever has the table vouches for what is called of it. Memory, streams and contexts of the library are not
/// destroyed, and used only in its order.
pub unsafe fn open(selector: Option<&str>) -> Result<Opened, OpenError> {
    opened(selector)
}

/// [`open`], for calls of this crate's own.
pub(crate) fn opened(selector: Option<&str>) -> Result<Opened, OpenError> {
    let selector = with_variable(selector)?;
    let mut found = None;
    let choice = choose(selector, || match nvidia() {
        Ok((api, nvidia)) => {
            found = Some(api);
            Ok(nvidia)
        }
        Err(absence) => Err(absence),
    })?;
    let api = match choice.kind {
        Kind::Cuda => found.expect("a GPU is chosen only after its driver was loaded"),
        Kind::Soft => {
            let api = soft();
            Config::from_env()?;
            driver::init(&api, 0).map_err(OpenError::SoftRefused)?;
            api
        }
    };
    Ok(Opened { api, device: choice.device, kind: choice.kind, why: choice.why })
}

/// The devices that were opened. They stay open until the process ends: what is pending when the last handle goes is never
/// waited for, and a device that is opened again finds its memory in the pool.
static DEVICES: Mutex<Option<HashMap<String, Device>>> = Mutex::new(None);

/// The device that `selector` names (`soft`, `cuda`, `cuda:N`, `opencl`, `opencl:N`), or `FREEHOLD_DEVICE`, or the best one that
/// this machine has, of CUDA. One that was opened before is that one again.
///
/// ```
/// let device = freehold::open::device(Some("soft"))?; // no GPU is needed
/// assert_eq!(device.name()?, "Freehold Software Device 0");
/// # Ok::<(), freehold::Error>(())
/// ```
pub fn device(selector: Option<&str>) -> DeviceResult<Device> {
    match opencl::open(selector)? {
        // SAFETY: a context of OpenCL's does what the trait says.
        Some(found) => known_or(found.selector(), || unsafe { Device::on(Arc::new(found.context()?)) }),
        None => device_of(opened(selector)?),
    }
}

fn device_of(opened: Opened) -> DeviceResult<Device> {
    // The software device has several numbers, which no selector tells apart.
    let name = format!("{} {}", opened.selector(), opened.device.0);
    // SAFETY: the driver is one that this module opened; others that have its table vouch for what they call.
    known_or(name, || unsafe { Device::new(opened.api, opened.device) })
}

/// The device that is known by a name, or else the one that `make` makes.
fn known_or(name: String, make: impl FnOnce() -> DeviceResult<Device>) -> DeviceResult<Device> {
    let mut devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
    let devices = devices.get_or_insert_default();
    if let Some(device) = devices.get(&name) {
        return Ok(device.clone());
    }
    let device = make()?;
    devices.insert(name, device.clone());
    Ok(device)
}

impl From<CallError> for Error {
    fn from(error: CallError) -> Self {
        Self::Call(error.into())
    }
}

impl Device {
    /// A device of a CUDA driver that is initialised.
    ///
    /// # Safety
    /// The table's functions do what the driver API says, as [`Vouched::new`](cuda::Vouched::new) has it. Memory, streams and contexts of
    /// the device are not destroyed by others, and used only in the library's order.
    pub unsafe fn new(api: Api, ordinal: CUdevice) -> DeviceResult<Self> {
        let primary = Arc::new(cuda::Context::primary(api, ordinal)?);
        // SAFETY: a context of a CUDA driver does what the trait says.
        unsafe { Self::on(primary) }
    }

    /// A device with a context that others made in the place of the primary one, which is not touched. Others destroy it,
    /// after all that is done here.
    fn adopting(api: Api, ordinal: CUdevice, context: CUcontext) -> DeviceResult<Self> {
        let adopted = Arc::new(cuda::Context::adopt(api, ordinal, context)?);
        // SAFETY: as above.
        unsafe { Self::on(adopted) }
    }

    /// The table of the driver's functions where it is a CUDA driver, for other people's code.
    ///
    /// # Safety
    /// As for [`open`].
    pub unsafe fn api(&self) -> Option<&Api> {
        // SAFETY: the caller vouches for what is called of it.
        unsafe { self.inner().backend.cuda() }
    }
}

/// The variable that says how a foreign pool's streams are known: `checked` asks the driver for the id of each, each time; `trusted`, as if
/// it is not set, does not.
pub const STREAMS_VARIABLE: &str = "FREEHOLD_STREAMS";

/// Whether each capture of this process is announced before it begins.
static CAPTURES_ANNOUNCED: AtomicBool = AtomicBool::new(false);

/// Promises for all foreign pools that each capture is announced: see [`ForeignPool::announce_captures`].
///
/// # Safety
/// As for [`ForeignPool::announce_captures`].
pub unsafe fn announce_captures() {
    CAPTURES_ANNOUNCED.store(true, Ordering::SeqCst);
    for foreign_pool in foreign_pools() {
        // SAFETY: the caller's promise is this function's.
        unsafe { foreign_pool.announce_captures() };
    }
}

/// How often private pools of all devices were begun and not ended.
pub(crate) static POOLS_OPEN: AtomicUsize = AtomicUsize::new(0);

/// How many devices of a process can have foreign pools.
const FOREIGN_POOLS_MAX: usize = 64;

static FOREIGN_POOLS: [OnceLock<ForeignPool>; FOREIGN_POOLS_MAX] = [const { OnceLock::new() }; FOREIGN_POOLS_MAX];

/// Held while a foreign pool is made, so that no device has two.
static MAKING: Mutex<()> = Mutex::new(());

/// The foreign pool's view of a device by its number, if it was asked for before.
///
/// # Safety
/// As for [`foreign_pool`].
#[inline]
pub unsafe fn known_foreign_pool(ordinal: i32) -> Option<&'static ForeignPool> {
    FOREIGN_POOLS.get(usize::try_from(ordinal).ok()?)?.get()
}

/// All foreign pools that were asked for before.
///
/// # Safety
/// As for [`foreign_pool`].
pub unsafe fn known_foreign_pools() -> impl Iterator<Item = &'static ForeignPool> {
    foreign_pools()
}

/// As [`known_foreign_pools`], for this crate, which names no streams of its own accord.
pub(crate) fn foreign_pools() -> impl Iterator<Item = &'static ForeignPool> {
    FOREIGN_POOLS.iter().filter_map(OnceLock::get)
}

/// The foreign pool's view of a device by its number. The driver is the one that the process has loaded, if it has one, or else as
/// [`open`] chooses it. The context is the one that is current, if it is one of that device, or else the primary one.
///
/// # Safety
/// Whoever has the foreign pool vouches for the streams that it is told of: each handle is that of a stream of the device, and is not destroyed
/// before [`ForeignPool::retire`] was called with it, unless the foreign pool is checked. Memory that was handed out is used in the order of the
/// streams that the foreign pool was told of.
pub unsafe fn foreign_pool(ordinal: i32) -> DeviceResult<&'static ForeignPool> {
    let place = usize::try_from(ordinal).ok().and_then(|index| FOREIGN_POOLS.get(index));
    let place = place.ok_or(OpenError::NoSuchNumber { ordinal })?;
    let _alone = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = place.get() {
        return Ok(known);
    }
    let is_checked = match std::env::var_os(STREAMS_VARIABLE).unwrap_or_default().to_string_lossy().as_ref() {
        "checked" => true,
        "trusted" | "" => false,
        said => return Err(OpenError::UnknownStreams { said: said.to_owned() }.into()),
    };
    let selector = load::is_loaded().then(|| format!("cuda:{ordinal}"));
    let mut opened = opened(selector.as_deref())?;
    let count = device::count(&opened.api)?;
    if ordinal >= count {
        return Err(OpenError::BeyondDevices { ordinal, count }.into());
    }
    opened.device = CUdevice(ordinal);
    let device = match others_context(&opened.api, opened.device)? {
        Some(context) => Device::adopting(opened.api, opened.device, context)?,
        None => device_of(opened)?,
    };
    let foreign_pool = place.get_or_init(|| ForeignPool::new(&device, ordinal, is_checked));
    // Whoever promises after this finds the foreign pool.
    if CAPTURES_ANNOUNCED.load(Ordering::SeqCst) {
        // SAFETY: it was promised.
        unsafe { foreign_pool.announce_captures() };
    }
    Ok(foreign_pool)
}

/// The current context, if it is one of the device and not the primary one.
fn others_context(api: &Api, device: CUdevice) -> Result<Option<CUcontext>, CallError> {
    let current = context::current(api)?;
    if current == CUcontext::NULL || context::device(api)? != device {
        return Ok(None);
    }
    if !primary::state(api, device)?.active {
        return Ok(Some(current));
    }
    let primary = primary::retain(api, device)?;
    primary::release(api, device)?;
    Ok((current != primary).then_some(current))
}

/// What a program is to run on, by the same choice as [`open`]'s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The software device.
    Soft,
    /// NVIDIA's GPUs; with an ordinal only that one of them.
    Cuda {
        /// The number of the device, as the driver counts them.
        ordinal: Option<i32>,
    },
}

/// What the device that `selector` names, or `FREEHOLD_DEVICE`, or the best one of this machine is. The software driver is
/// not started, so that nothing of it is left in a process that becomes another program.
///
/// ```
/// use freehold::open::{Target, target};
///
/// assert_eq!(target(Some("soft"))?, Target::Soft);
/// # Ok::<(), freehold::open::OpenError>(())
/// ```
pub fn target(selector: Option<&str>) -> Result<Target, OpenError> {
    let selector = with_variable(selector)?;
    match choose(selector, || nvidia().map(|(_, nvidia)| nvidia))?.kind {
        Kind::Cuda => Ok(Target::Cuda { ordinal: selector.and_then(|selector| selector.asked.ordinal()) }),
        Kind::Soft => {
            Config::from_env()?;
            Ok(Target::Soft)
        }
    }
}

/// The table of a driver that nothing was called of yet, `cuInit` neither.
///
/// # Safety
/// As for [`load::load`].
pub unsafe fn untouched(kind: Kind) -> Result<Api, Absence> {
    match kind {
        Kind::Soft => Ok(soft()),
        Kind::Cuda => library(),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Soft,
    /// The first device, where no ordinal is named.
    Cuda {
        ordinal: Option<i32>,
    },
    /// The first device, where no ordinal is named.
    OpenCl {
        ordinal: Option<usize>,
    },
}

impl Asked {
    fn ordinal(self) -> Option<i32> {
        match self {
            Self::Soft | Self::OpenCl { .. } => None,
            Self::Cuda { ordinal } => ordinal,
        }
    }

    fn parse(text: &str) -> Result<Self, OpenError> {
        let unknown = || OpenError::UnknownDevice(text.to_owned());
        match text {
            "soft" => Ok(Self::Soft),
            "cuda" => Ok(Self::Cuda { ordinal: None }),
            "opencl" => Ok(Self::OpenCl { ordinal: None }),
            _ => {
                let (driver, digits) = text.split_once(':').ok_or_else(unknown)?;
                if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
                    return Err(unknown());
                }
                match driver {
                    "cuda" => Ok(Self::Cuda { ordinal: Some(digits.parse().map_err(|_| unknown())?) }),
                    "opencl" => Ok(Self::OpenCl { ordinal: Some(digits.parse().map_err(|_| unknown())?) }),
                    _ => Err(unknown()),
                }
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Caller,
    Variable,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wish {
    asked: Asked,
    from: Source,
}

/// The caller's selector, or else the environment's.
fn with_variable(selector: Option<&str>) -> Result<Option<Wish>, OpenError> {
    let variable = std::env::var_os(VARIABLE).filter(|text| !text.is_empty());
    let variable = variable.map(|text| text.to_string_lossy().into_owned());
    match (selector, &variable) {
        (Some(text), _) => Ok(Some(Wish { asked: Asked::parse(text)?, from: Source::Caller })),
        (None, Some(text)) => Ok(Some(Wish { asked: Asked::parse(text)?, from: Source::Variable })),
        (None, None) => Ok(None),
    }
}

/// What NVIDIA's driver says of this machine.
#[derive(Clone, Debug)]
struct Nvidia {
    /// At least one; the ordinal is the index.
    names: Vec<String>,
    /// As CUDA counts: 13.0 is 13000.
    version: i32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Choice {
    kind: Kind,
    device: CUdevice,
    why: String,
}

/// Which device it is to be. `probe` loads NVIDIA's driver, and is not called where the selector is for none of it.
fn choose(selector: Option<Wish>, probe: impl FnOnce() -> Result<Nvidia, Absence>) -> Result<Choice, OpenError> {
    let soft =
        |because: String| Choice { kind: Kind::Soft, device: CUdevice(0), why: format!("software device: {because}") };
    match selector {
        Some(Wish { asked: Asked::Soft, from: Source::Caller }) => Ok(soft("it was asked for".to_owned())),
        Some(Wish { asked: Asked::Soft, from: Source::Variable }) => Ok(soft(format!("{VARIABLE} says soft"))),
        Some(Wish { asked: Asked::Cuda { ordinal }, .. }) => {
            let ordinal = ordinal.unwrap_or(0);
            let nvidia =
                probe().map_err(|absence| OpenError::Absent { selector: format!("cuda:{ordinal}"), absence })?;
            cuda(&nvidia, ordinal)
        }
        Some(Wish { asked: Asked::OpenCl { ordinal }, .. }) => {
            Err(OpenError::NotCuda { selector: opencl::named(ordinal) })
        }
        None => match probe() {
            Ok(nvidia) => cuda(&nvidia, 0),
            Err(absence) => Ok(soft(absence.to_string())),
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

fn soft() -> Api {
    // SAFETY: as for `library`.
    unsafe { freehold_softcuda::api() }
}

fn library() -> Result<Api, Absence> {
    // SAFETY: the library of that name is NVIDIA's driver. What this crate calls of it names what it made itself; who else is given the
    // table vouches for the rest.
    unsafe { load::load(Path::new(load::LIBRARY)) }.map_err(|error| match error {
        LoadError::Library { .. } => Absence::NoLibrary,
        LoadError::NotADriver(_) => Absence::NotADriver,
    })
}

/// NVIDIA's driver, started, and its devices.
fn nvidia() -> Result<(Api, Nvidia), Absence> {
    let api = library()?;
    let nvidia = describe(&api).map_err(|error| match error.code {
        CUerror::NO_DEVICE => Absence::NoDevice,
        _ => Absence::Refused(error),
    })?;
    if nvidia.names.is_empty() { Err(Absence::NoDevice) } else { Ok((api, nvidia)) }
}

/// Starts the driver and asks it for its devices.
fn describe(api: &Api) -> Result<Nvidia, CallError> {
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

    fn two_devices() -> Result<Nvidia, Absence> {
        Ok(Nvidia { names: vec!["NVIDIA H200".to_owned(), "NVIDIA T4".to_owned()], version: 13000 })
    }

    fn no_library() -> Result<Nvidia, Absence> {
        Err(Absence::NoLibrary)
    }

    fn caller(text: &str) -> Option<Wish> {
        Some(Wish { asked: Asked::parse(text).unwrap(), from: Source::Caller })
    }

    #[test]
    fn without_a_wish_a_gpu_is_taken() {
        let choice = choose(None, two_devices).unwrap();
        assert_eq!(choice.kind, Kind::Cuda);
        assert_eq!(choice.device, CUdevice(0));
        assert_eq!(choice.why, "cuda:0: NVIDIA H200, driver 13.0");
    }

    #[test]
    fn without_a_wish_and_a_library_it_is_the_software_device() {
        let choice = choose(None, no_library).unwrap();
        assert_eq!(choice.kind, Kind::Soft);
        assert_eq!(choice.why, "software device: libcuda.so.1 is not on this machine");
    }

    #[test]
    fn without_a_wish_and_a_device_it_is_the_software_device() {
        let choice = choose(None, || Err(Absence::NoDevice)).unwrap();
        assert_eq!(choice.why, "software device: NVIDIA's driver has no device");
    }

    #[test]
    fn a_driver_that_does_not_start_is_named_with_its_code() {
        let refused = CallError { call: Function::cuInit, code: CUerror::SYSTEM_DRIVER_MISMATCH };
        let choice = choose(None, || Err(Absence::Refused(refused))).unwrap();
        assert_eq!(
            choice.why,
            "software device: NVIDIA's driver does not start: cuInit: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803)"
        );
    }

    #[test]
    fn soft_is_soft_beside_a_gpu_and_loads_nothing() {
        let choice = choose(caller("soft"), || panic!("NVIDIA's library was loaded")).unwrap();
        assert_eq!(choice.kind, Kind::Soft);
        assert_eq!(choice.why, "software device: it was asked for");
    }

    #[test]
    fn the_variable_is_named_when_it_decided() {
        let selector = Some(Wish { asked: Asked::Soft, from: Source::Variable });
        assert_eq!(choose(selector, two_devices).unwrap().why, "software device: FREEHOLD_DEVICE says soft");
    }

    #[test]
    fn an_ordinal_picks_its_device() {
        let choice = choose(caller("cuda:1"), two_devices).unwrap();
        assert_eq!(choice.device, CUdevice(1));
        assert_eq!(choice.why, "cuda:1: NVIDIA T4, driver 13.0");
    }

    #[test]
    fn cuda_alone_is_the_first_device() {
        assert_eq!(choose(caller("cuda"), two_devices).unwrap().device, CUdevice(0));
    }

    #[test]
    fn an_ordinal_out_of_range_says_how_many_there_are() {
        let error = choose(caller("cuda:2"), two_devices).unwrap_err();
        assert_eq!(error.to_string(), "cuda:2 was asked for, but this machine has 2 NVIDIA devices");
    }

    #[test]
    fn a_wished_gpu_without_a_library_is_an_error_and_not_the_software_device() {
        let error = choose(caller("cuda"), no_library).unwrap_err();
        assert_eq!(
            error.to_string(),
            "cuda:0 was asked for, but libcuda.so.1 is not on this machine; the software device, soft, needs no GPU"
        );
    }

    #[test]
    fn an_unknown_word_names_the_forms() {
        let error = Asked::parse("gpu").unwrap_err();
        assert_eq!(error.to_string(), "\"gpu\" is no device: say soft, cuda, cuda:N, opencl or opencl:N");
    }

    #[test]
    fn an_ordinal_is_digits_that_fit() {
        let texts = ["cuda:", "cuda:-1", "cuda:+1", "cuda:x", "cuda:1 ", "cuda:99999999999", "cuda1", "Soft", ""];
        for text in texts.into_iter().chain(["opencl:", "opencl:-1", "opencl:x", "opencl1", "hip:0"]) {
            assert_eq!(Asked::parse(text), Err(OpenError::UnknownDevice(text.to_owned())), "{text:?}");
        }
    }

    #[test]
    fn opencl_is_no_cuda_driver_and_none_is_loaded_for_it() {
        let error = choose(caller("opencl:1"), || panic!("NVIDIA's library was loaded")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "opencl:1 was asked for, but this works with CUDA drivers alone: say soft, cuda or cuda:N"
        );
    }

    #[test]
    fn a_wish_names_its_device_again() {
        let opened = Opened { api: soft(), device: CUdevice(3), kind: Kind::Cuda, why: String::new() };
        assert_eq!(opened.selector(), "cuda:3");
    }
}
