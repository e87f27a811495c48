//! The driver under test, CUDA or OpenCL, and what that decides for the lab.

use freehold::open::{self, Kind, OpenError, Opened};
use freehold_driver::cuda::{device, driver};
use freehold_driver::opencl::discovery::InstalledDevice;

use super::experiment::{ExperimentInfo, QUESTIONS};
use super::experiments;
use super::id::{Id, OPENCL};
use super::opencl;
use super::reference::Reference;
use super::runtime;

/// The OpenCL topics; the second number of an id is the index here, from 1.
pub const OPENCL_QUESTIONS: [&str; 9] = [
    "who may release memory, and what counts there are",
    "when a release takes effect",
    "what parts of buffers may be, and how long they live",
    "what shared virtual memory bears",
    "what events say, and those that the host sets",
    "what becomes of work when its queue goes",
    "what a context keeps alive",
    "how long a program and its kernels live",
    "what a kernel that goes wrong ends",
];

/// The device under test.
#[derive(Debug)]
pub struct Target {
    /// One sentence: which device, and why.
    pub why: String,
    /// Names the device to the lab's processes.
    pub selector: String,
    /// Where a CUDA device is, for the CUDA runtime.
    pub cuda: Option<(Kind, i32)>,
    /// How many experiments run at once.
    pub parallelism: usize,
    pub experiments: Vec<ExperimentInfo>,
    /// The device's record, without answers.
    pub record: Reference,
    /// The built-in record of this kind of device.
    pub built_in: Option<Reference>,
}

/// Experiments per processor that run at once on the software device.
const AT_ONCE_EACH: usize = 3;

impl Target {
    pub fn open(selector: Option<&str>) -> Result<Self, OpenError> {
        match open::opencl::open(selector)? {
            Some(opened) => Ok(Self::opencl(&opened)),
            // SAFETY: the driver is only asked about the device.
            None => Ok(Self::cuda(&unsafe { open::open(selector) }?)),
        }
    }

    fn cuda(opened: &Opened) -> Self {
        let (release, at_once) = match opened.kind {
            // Every experiment has its own software machine, and the longest ones mostly wait.
            Kind::Soft => {
                let processors = std::thread::available_parallelism().map_or(1, usize::from);
                (env!("CARGO_PKG_VERSION").to_owned(), AT_ONCE_EACH * processors)
            }
            // A GPU is shared, and experiments observe its free memory and its timing.
            Kind::Cuda => (kernel_driver().unwrap_or_else(|| "unknown".to_owned()), 1),
        };
        let device = device::name(&opened.api, opened.device).unwrap_or_else(|error| error.to_string());
        let cuda = driver::version(&opened.api).map_or_else(|error| error.to_string(), driver::version_text);
        Self {
            why: opened.why.clone(),
            selector: opened.selector(),
            cuda: Some((opened.kind, opened.device.0)),
            parallelism: at_once,
            experiments: cuda_experiments(),
            record: Reference { device, driver: release, cuda: Some(cuda), opencl: None, answers: Default::default() },
            built_in: Some(Reference::built_in()),
        }
    }

    fn opencl(opened: &open::opencl::Opened) -> Self {
        let (facts, platform) = (&opened.found.info, &opened.found.platform_name);
        Self {
            why: opened.why(),
            selector: device_name(&opened.found),
            cuda: None,
            parallelism: 1,
            experiments: opencl_experiments(),
            record: Reference {
                device: facts.name.clone(),
                driver: facts.driver.clone(),
                cuda: None,
                opencl: Some(platform.clone()),
                answers: Default::default(),
            },
            built_in: Reference::for_platform(platform),
        }
    }
}

/// Returns every experiment on a CUDA device: on its driver, then on the runtime.
pub fn cuda_experiments() -> Vec<ExperimentInfo> {
    let driver = experiments::all().into_iter().map(|experiment| experiment.info());
    driver.chain(runtime::all().into_iter().map(|experiment| experiment.info())).collect()
}

/// Returns every experiment on an OpenCL device.
pub fn opencl_experiments() -> Vec<ExperimentInfo> {
    opencl::all().into_iter().map(|experiment| experiment.info()).collect()
}

/// Names an OpenCL device to the lab's processes: indices may differ there.
pub(crate) fn device_name(found: &InstalledDevice) -> String {
    found.uuid().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the question that an experiment belongs to, and its number.
pub fn question(id: Id) -> (String, &'static str) {
    match id {
        Id(OPENCL, fact, _) => (format!("o.{fact}"), OPENCL_QUESTIONS[usize::from(fact) - 1]),
        Id(number, ..) => (number.to_string(), QUESTIONS[usize::from(number)]),
    }
}

/// Returns the release of NVIDIA's kernel module, which `nvidia-smi` calls the driver version.
fn kernel_driver() -> Option<String> {
    let text = std::fs::read_to_string("/proc/driver/nvidia/version").ok()?;
    let release = text
        .split_whitespace()
        .find(|word| word.contains('.') && word.split('.').all(|number| number.parse::<u32>().is_ok()))?;
    Some(release.to_owned())
}
