//! Functions: the kernels of a module, with their attributes and settings.

use std::ffi::CString;
use std::sync::{Arc, Mutex, OnceLock, Weak};

use freehold_check::Kernel as CheckedKernel;
use freehold_driver::cuda::{CUerror, CUfunction, CUfunction_attribute, CUmodule, CUresult};
use freehold_ptx::{Kernel, Program};

use super::occupancy::{BlockResources, SHARED_BYTES_DEFAULT, THREADS_MAX, max_active_blocks};
use crate::base::check;
use crate::base::config::compute_capability;
use crate::base::sync::lock;
use crate::objects::attributes::Multiprocessor;
use crate::objects::context::Context;

/// Minimum and maximum number of registers of a thread, and the registers of all threads of a block.
const REGISTERS_MIN: u32 = 8;
const REGISTERS_MAX: u32 = 255;
const REGISTERS_PER_BLOCK: u32 = 65_536;

#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) handle: CUfunction,
    pub(crate) module: CUmodule,
    pub(crate) context: Weak<Context>,
    pub(crate) program: Arc<Program>,
    /// The index of the kernel in its program.
    pub(crate) index: usize,
    /// Exposed to the program while the function lives.
    pub(crate) name: CString,
    /// Size in bytes of the constants of its module.
    pub(crate) constant_bytes: u64,
    /// Shared with the library kernel that it comes from.
    pub(crate) settings: Arc<Mutex<Settings>>,
    /// What the checker knows of it, from its first launch on.
    pub(crate) checked: OnceLock<Arc<CheckedKernel>>,
}

impl Function {
    pub(crate) fn kernel(&self) -> &Kernel {
        &self.program.kernels()[self.index]
    }

    /// Returns what the checker knows of it, if the process is checked. It does not keep the program.
    pub(crate) fn checked(&self) -> Option<Arc<CheckedKernel>> {
        let new = || Arc::new(describe(&self.program, self.index));
        check::is_on().then(|| Arc::clone(self.checked.get_or_init(new)))
    }

    pub(crate) fn settings(&self) -> Settings {
        lock(&self.settings).clone()
    }

    /// Returns the number of blocks that fit on one multiprocessor: zero if a block needs more shared memory than the
    /// function allows. The function's limit of threads is ignored.
    pub(crate) fn max_active_blocks(&self, threads: u64, dynamic_bytes: u64) -> u64 {
        let is_allowed = dynamic_bytes <= self.settings().dynamic_bytes_max.into();
        if is_allowed {
            max_active_blocks(Multiprocessor::own(), block_resources(self.kernel(), threads, dynamic_bytes))
        } else {
            0
        }
    }
}

/// The settings of a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Settings {
    /// Maximum dynamic shared memory of a launch.
    pub(crate) dynamic_bytes_max: u32,
    /// Percentage of the L1 cache to use as shared memory; -1 leaves it to the driver.
    carveout: i32,
    pub(crate) cache_config: u32,
    non_portable_cluster: bool,
    cluster_policy: i32,
    /// The size of the clusters in each direction that was set; zero if none was.
    cluster: [i32; 3],
}

/// The blocks of a cluster that every device with clusters can run, and that this one can.
const CLUSTER_BLOCKS_PORTABLE: u64 = 8;
const CLUSTER_BLOCKS_MAX: u64 = 16;

impl Settings {
    pub(crate) fn of(kernel: &Kernel) -> Self {
        Self {
            dynamic_bytes_max: SHARED_BYTES_DEFAULT.saturating_sub(static_bytes(kernel)),
            carveout: -1,
            cache_config: 0,
            non_portable_cluster: false,
            cluster_policy: 0,
            cluster: [0; 3],
        }
    }

    /// Returns the size that clusters must have: that of the PTX, or the one that was set.
    pub(crate) fn required_cluster(&self, kernel: &Kernel) -> Option<[u32; 3]> {
        let set = (self.cluster != [0; 3]).then(|| self.cluster.map(i32::cast_unsigned));
        kernel.required_cluster.or(set)
    }

    /// Returns the maximum number of blocks of a cluster.
    pub(crate) fn cluster_blocks_max(&self, kernel: &Kernel) -> u64 {
        let allowed = if self.non_portable_cluster { CLUSTER_BLOCKS_MAX } else { CLUSTER_BLOCKS_PORTABLE };
        kernel.max_cluster_rank.map_or(allowed, |most| allowed.min(most.into()))
    }

    pub(crate) fn set(&mut self, kernel: &Kernel, attribute: CUfunction_attribute, value: i32) -> CUresult {
        match attribute {
            CUfunction_attribute::MAX_DYNAMIC_SHARED_SIZE_BYTES => {
                let most = Multiprocessor::own().block_shared_bytes_max() as u32;
                let most = most.saturating_sub(static_bytes(kernel));
                let wanted = u32::try_from(value).ok().filter(|&bytes| bytes <= most);
                self.dynamic_bytes_max = wanted.ok_or(CUerror::INVALID_VALUE)?;
            }
            CUfunction_attribute::PREFERRED_SHARED_MEMORY_CARVEOUT if (-1..=100).contains(&value) => {
                self.carveout = value;
            }
            CUfunction_attribute::NON_PORTABLE_CLUSTER_SIZE_ALLOWED if (0..=1).contains(&value) => {
                self.non_portable_cluster = value == 1;
            }
            CUfunction_attribute::REQUIRED_CLUSTER_WIDTH
            | CUfunction_attribute::REQUIRED_CLUSTER_HEIGHT
            | CUfunction_attribute::REQUIRED_CLUSTER_DEPTH
                if value >= 0 =>
            {
                if kernel.required_cluster.is_some() {
                    return Err(CUerror::NOT_PERMITTED);
                }
                self.cluster[(attribute.0 - CUfunction_attribute::REQUIRED_CLUSTER_WIDTH.0) as usize] = value;
            }
            CUfunction_attribute::CLUSTER_SCHEDULING_POLICY_PREFERENCE if (0..=2).contains(&value) => {
                self.cluster_policy = value;
            }
            _ => return Err(CUerror::INVALID_VALUE),
        }
        Ok(())
    }
}

/// Describes a kernel to the checker.
fn describe(program: &Program, kernel: usize) -> CheckedKernel {
    let sources = program.kernel_sources(kernel);
    let source = move |line| sources.find(line).map(|at| format!("{}:{}", at.file, at.line));
    CheckedKernel { name: program.kernels()[kernel].name.as_str().into(), source: Box::new(source) }
}

fn static_bytes(kernel: &Kernel) -> u32 {
    u32::try_from(kernel.shared_bytes).unwrap_or(u32::MAX)
}

/// Returns the maximum number of threads of a block, as the driver reports it: a required block shape does not count.
pub(crate) fn threads_max(kernel: &Kernel) -> u32 {
    thread_count(kernel.max_threads)
}

fn thread_count(bound: Option<[u32; 3]>) -> u32 {
    let product = bound.map(|[x, y, z]| u64::from(x) * u64::from(y) * u64::from(z));
    product.map_or(THREADS_MAX, |threads| u32::try_from(threads).unwrap_or(u32::MAX).clamp(1, THREADS_MAX))
}

/// Returns the registers of one thread: as many as the PTX declares, but few enough that a block of the size that the
/// kernel allows fits. The hardware's compiler would spill the rest to memory.
pub(crate) fn registers(kernel: &Kernel) -> u32 {
    let largest = thread_count(kernel.required_threads.or(kernel.max_threads));
    let fitting = REGISTERS_PER_BLOCK / largest.next_multiple_of(128) / 8 * 8;
    let most = REGISTERS_MAX.min(fitting).min(kernel.max_registers.unwrap_or(REGISTERS_MAX)).max(REGISTERS_MIN);
    kernel.registers.clamp(REGISTERS_MIN, most)
}

/// Returns the resources of a multiprocessor that a block of the kernel needs.
pub(crate) fn block_resources(kernel: &Kernel, threads: u64, dynamic_bytes: u64) -> BlockResources {
    let shared_bytes = kernel.shared_bytes.saturating_add(dynamic_bytes);
    BlockResources { threads, registers: registers(kernel).into(), shared_bytes }
}

pub(crate) fn attribute(
    kernel: &Kernel,
    constant_bytes: u64,
    settings: &Settings,
    attribute: CUfunction_attribute,
) -> Result<i32, CUerror> {
    let count = |bytes: u64| i32::try_from(bytes).unwrap_or(i32::MAX);
    Ok(match attribute {
        CUfunction_attribute::MAX_THREADS_PER_BLOCK => threads_max(kernel).cast_signed(),
        CUfunction_attribute::SHARED_SIZE_BYTES => count(kernel.shared_bytes),
        CUfunction_attribute::CONST_SIZE_BYTES => count(constant_bytes),
        CUfunction_attribute::LOCAL_SIZE_BYTES => count(kernel.local_bytes),
        CUfunction_attribute::NUM_REGS => registers(kernel).cast_signed(),
        CUfunction_attribute::PTX_VERSION => kernel.target.cast_signed(),
        // That of the emulated hardware.
        CUfunction_attribute::BINARY_VERSION => compute_capability().cast_signed(),
        CUfunction_attribute::CACHE_MODE_CA => 0,
        CUfunction_attribute::MAX_DYNAMIC_SHARED_SIZE_BYTES => settings.dynamic_bytes_max.cast_signed(),
        CUfunction_attribute::PREFERRED_SHARED_MEMORY_CARVEOUT => settings.carveout,
        CUfunction_attribute::CLUSTER_SIZE_MUST_BE_SET => kernel.is_cluster_explicit.into(),
        CUfunction_attribute::REQUIRED_CLUSTER_WIDTH
        | CUfunction_attribute::REQUIRED_CLUSTER_HEIGHT
        | CUfunction_attribute::REQUIRED_CLUSTER_DEPTH => {
            let side = (attribute.0 - CUfunction_attribute::REQUIRED_CLUSTER_WIDTH.0) as usize;
            settings.required_cluster(kernel).map_or(0, |cluster| cluster[side].cast_signed())
        }
        CUfunction_attribute::NON_PORTABLE_CLUSTER_SIZE_ALLOWED => settings.non_portable_cluster.into(),
        CUfunction_attribute::CLUSTER_SCHEDULING_POLICY_PREFERENCE => settings.cluster_policy,
        _ => return Err(CUerror::INVALID_VALUE),
    })
}

#[cfg(test)]
mod tests {
    use freehold_ptx::{Image, Unit};

    use super::*;

    fn kernel() -> Kernel {
        Kernel {
            name: "kernel".to_owned(),
            parameters: Vec::new(),
            parameter_bytes: 0,
            shared_bytes: 1024,
            local_bytes: 0,
            registers: 300,
            max_threads: None,
            required_threads: None,
            min_blocks: None,
            required_cluster: None,
            max_cluster_rank: None,
            is_cluster_explicit: false,
            blocks_are_clusters: false,
            max_registers: None,
            ptx_version: 80,
            target: 80,
        }
    }

    #[test]
    fn the_largest_block_of_a_kernel_always_fits() {
        for threads in [1, 32, 33, 100, 256, 512, 1000, 1024] {
            let kernel = Kernel { max_threads: Some([threads, 1, 1]), ..kernel() };
            assert!(
                crate::modules::occupancy::max_active_blocks(
                    Multiprocessor::own(),
                    block_resources(&kernel, threads.into(), 0)
                ) > 0,
                "{threads} threads"
            );
        }
        assert_eq!(registers(&kernel()), 64);
        assert_eq!(registers(&Kernel { max_registers: Some(40), ..kernel() }), 40);
    }

    #[test]
    fn dynamic_shared_memory_goes_up_to_what_static_leaves_of_227_kib() {
        let kernel = kernel();
        let mut settings = Settings::of(&kernel);
        assert_eq!(settings.dynamic_bytes_max, 47 << 10);
        let at = CUfunction_attribute::MAX_DYNAMIC_SHARED_SIZE_BYTES;
        assert_eq!(settings.set(&kernel, at, 226 << 10), Ok(()));
        assert_eq!(attribute(&kernel, 0, &settings, at), Ok(226 << 10));
        assert_eq!(settings.set(&kernel, at, (226 << 10) + 1), Err(CUerror::INVALID_VALUE));
        assert_eq!(settings.set(&kernel, at, -1), Err(CUerror::INVALID_VALUE));
    }

    #[test]
    fn what_the_image_says_cannot_be_set() {
        let kernel = kernel();
        let mut settings = Settings::of(&kernel);
        for number in [0, 1, 2, 3, 4, 5, 6, 7, 10, 16, u32::MAX] {
            assert_eq!(settings.set(&kernel, CUfunction_attribute(number), 1), Err(CUerror::INVALID_VALUE));
        }
    }

    #[test]
    fn what_the_checker_knows_of_a_kernel_keeps_its_lines_and_not_its_program() {
        let text = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry step() {\n.loc 1 7 0\nret;\n}\n.file 1 \"step.cu\"\n";
        let image = Image::link(vec![Unit::compile(text).expect("the text is PTX")]).expect("one text fits together");
        let (program, _) = image.relocate(&[]);
        let kernel = describe(&program, 0);
        let program_then = Arc::downgrade(&program);
        drop((program, image));
        assert!(program_then.upgrade().is_none());
        assert_eq!((&*kernel.name, (kernel.source)(6).as_deref()), ("step", Some("step.cu:7")));
    }
}
