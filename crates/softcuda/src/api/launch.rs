//! Kernel launches.

use std::sync::Arc;

use freehold_check::sites;
use freehold_driver::cuda::{
    CUerror, CUfunction, CUlaunchAttribute, CUlaunchAttributeID, CUlaunchConfig, CUlimit, CUresult, CUstream,
    launch_param,
};
use freehold_ptx::{Grid, Kernel, Launch};

use crate::engine::kernel_env::KernelEnv;
use crate::engine::kernel_run::{KernelRun, Residency};
use crate::engine::work::Work;
use crate::ffi::args::{In, WordArray};
use crate::memory::mem_ref::MemRef;
use crate::modules::function::{Function, threads_max};
use crate::modules::occupancy::MULTIPROCESSORS;
use crate::objects::attributes::Multiprocessor;
use crate::objects::context::Context;
use crate::objects::operation::{Arguments, KernelNode, LaunchShape, Operation};
use crate::space::launch_env::LaunchEnv;
use crate::state::driver_state::{DriverState, driver};

/// Maximum number of blocks of a grid and of threads of a block, in each dimension.
const GRID_MAX: [u32; 3] = [0x7fff_ffff, 65_535, 65_535];
const BLOCK_MAX: [u32; 3] = [1024, 1024, 64];

/// Maximum host memory for the resident blocks of one grid.
const RESIDENT_BYTES_MAX: u64 = 512 << 20;

/// Maximum number of attributes of a launch, which is more than there are.
const ATTRIBUTES_MAX: u32 = 64;

impl LaunchShape {
    pub(super) fn threads(&self) -> u64 {
        self.block.iter().map(|&count| u64::from(count)).product()
    }

    /// Refuses parameters that are invalid for this function.
    pub(super) fn check(&self, function: &Function) -> CUresult {
        let within = |counts: [u32; 3], most: [u32; 3]| counts.iter().zip(most).all(|(&count, most)| count - 1 < most);
        if self.grid.contains(&0) || self.block.contains(&0) {
            return Err(CUerror::INVALID_VALUE);
        }
        self.check_cluster(function)?;
        let kernel = function.kernel();
        if !within(self.grid, GRID_MAX)
            || !within(self.block, BLOCK_MAX)
            || self.threads() > threads_max(kernel).into()
            || kernel.required_threads.is_some_and(|required| required != self.block)
        {
            return Err(CUerror::INVALID_VALUE);
        }
        if self.shared_bytes > function.settings().dynamic_bytes_max {
            // No block of such a launch can be resident.
            return Err(if self.is_cooperative {
                CUerror::COOPERATIVE_LAUNCH_TOO_LARGE
            } else {
                CUerror::INVALID_VALUE
            });
        }
        let blocks: u64 = self.grid.iter().map(|&count| u64::from(count)).product();
        let room = function.max_active_blocks(self.threads(), self.shared_bytes.into()) * MULTIPROCESSORS;
        if self.is_cooperative && blocks > room {
            return Err(CUerror::COOPERATIVE_LAUNCH_TOO_LARGE);
        }
        Ok(())
    }

    /// Returns the size of the clusters, if the launch or the function states it.
    pub(super) fn cluster_of(&self, function: &Function) -> Option<[u32; 3]> {
        self.cluster.or_else(|| function.settings().required_cluster(function.kernel()))
    }

    /// Refuses clusters that the device does not have, or that the function does not allow.
    pub(super) fn check_cluster(&self, function: &Function) -> CUresult {
        let (kernel, settings) = (function.kernel(), function.settings());
        let required = settings.required_cluster(kernel);
        let Some(cluster) = self.cluster_of(function) else {
            return if kernel.is_cluster_explicit { Err(CUerror::INVALID_CLUSTER_SIZE) } else { Ok(()) };
        };
        let divides = |(&part, whole): (&u32, u32)| part != 0 && (kernel.blocks_are_clusters || whole % part == 0);
        let blocks = cluster.iter().map(|&part| u64::from(part)).product::<u64>();
        if !cluster.iter().zip(self.grid).all(divides)
            || blocks > settings.cluster_blocks_max(kernel)
            || required.is_some_and(|required| required != cluster)
        {
            return Err(CUerror::INVALID_CLUSTER_SIZE);
        }
        if blocks > 1 && !Multiprocessor::own().has_clusters {
            return Err(CUerror::NOT_SUPPORTED);
        }
        Ok(())
    }

    /// Returns how many clusters may be resident at once: as many as fit on the hardware and in this machine's memory.
    fn residency(&self, function: &Function) -> Residency {
        let kernel = function.kernel();
        if self.is_cooperative {
            return Residency::All;
        }
        let of_cluster: u64 = self.cluster_of(function).unwrap_or([1; 3]).iter().map(|&part| u64::from(part)).product();
        let of_thread = u64::from(kernel.registers) * 8 + kernel.local_bytes + 64;
        let of_block = kernel.shared_bytes + u64::from(self.shared_bytes) + self.threads() * of_thread;
        let blocks = (MULTIPROCESSORS * Multiprocessor::own().blocks_max).min(RESIDENT_BYTES_MAX / of_block);
        Residency::AtMost(blocks / of_cluster)
    }
}

#[expect(clippy::too_many_arguments, reason = "as many as C has")]
pub(crate) fn cuLaunchKernel(
    function: CUfunction,
    grid_x: u32,
    grid_y: u32,
    grid_z: u32,
    block_x: u32,
    block_y: u32,
    block_z: u32,
    shared_bytes: u32,
    stream: CUstream,
    parameters: WordArray,
    extra: WordArray,
) -> CUresult {
    let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
    launch(
        function,
        LaunchShape { grid, block, cluster: None, shared_bytes, is_cooperative: false },
        &[],
        stream,
        parameters,
        Some(extra),
    )
}

#[expect(clippy::too_many_arguments, reason = "as many as C has")]
pub(crate) fn cuLaunchCooperativeKernel(
    function: CUfunction,
    grid_x: u32,
    grid_y: u32,
    grid_z: u32,
    block_x: u32,
    block_y: u32,
    block_z: u32,
    shared_bytes: u32,
    stream: CUstream,
    parameters: WordArray,
) -> CUresult {
    let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
    let shape = LaunchShape { grid, block, cluster: None, shared_bytes, is_cooperative: true };
    launch(function, shape, &[], stream, parameters, None)
}

pub(crate) fn cuLaunchKernelEx(
    config: In<CUlaunchConfig>,
    function: CUfunction,
    parameters: WordArray,
    extra: WordArray,
) -> CUresult {
    let (shape, attributes) = read_config(&config.0)?;
    launch(function, shape, &attributes, config.0.hStream, parameters, Some(extra))
}

/// Returns the shape of a configured launch, and its attributes.
pub(super) fn read_config(config: &CUlaunchConfig) -> Result<(LaunchShape, Vec<CUlaunchAttribute>), CUerror> {
    if config.numAttrs > ATTRIBUTES_MAX {
        return Err(CUerror::INVALID_VALUE);
    }
    let mut shape = LaunchShape {
        grid: [config.gridDimX, config.gridDimY, config.gridDimZ],
        block: [config.blockDimX, config.blockDimY, config.blockDimZ],
        cluster: None,
        shared_bytes: config.sharedMemBytes,
        is_cooperative: false,
    };
    let mut attributes = Vec::new();
    for index in 0..config.numAttrs {
        let attribute = read_attribute(config.attrs as u64, index.into())?;
        apply_attribute(&attribute, &mut shape)?;
        set_attribute(&mut attributes, attribute);
    }
    Ok((shape, attributes))
}

/// Sets an attribute in a list with one for each id.
pub(super) fn set_attribute(attributes: &mut Vec<CUlaunchAttribute>, attribute: CUlaunchAttribute) {
    attributes.retain(|other| other.id != attribute.id);
    attributes.push(attribute);
}

/// Reads one attribute of the program's array.
fn read_attribute(list: u64, index: u64) -> Result<CUlaunchAttribute, CUerror> {
    const WORDS: usize = size_of::<CUlaunchAttribute>() / 8;
    let mut words = [[0; 8]; WORDS];
    let offset = index * size_of::<CUlaunchAttribute>() as u64;
    MemRef::host(list).read(offset, words.as_flattened_mut()).map_err(|_| CUerror::INVALID_VALUE)?;
    let [id, value @ ..] = words.map(u64::from_le_bytes);
    Ok(CUlaunchAttribute { id: CUlaunchAttributeID(id as u32), pad: 0, value })
}

/// Applies an attribute to a launch.
pub(super) fn apply_attribute(attribute: &CUlaunchAttribute, shape: &mut LaunchShape) -> CUresult {
    match attribute.id {
        CUlaunchAttributeID::COOPERATIVE => shape.is_cooperative = attribute.words()[0] != 0,
        CUlaunchAttributeID::CLUSTER_DIMENSION => shape.cluster = Some(attribute.words()),
        CUlaunchAttributeID::PROGRAMMATIC_EVENT
        | CUlaunchAttributeID::LAUNCH_COMPLETION_EVENT
        | CUlaunchAttributeID::DEVICE_UPDATABLE_KERNEL_NODE => return Err(CUerror::NOT_SUPPORTED),
        // These affect the speed of a kernel, or when it may start, but not its results.
        CUlaunchAttributeID::IGNORE
        | CUlaunchAttributeID::ACCESS_POLICY_WINDOW
        | CUlaunchAttributeID::SYNCHRONIZATION_POLICY
        | CUlaunchAttributeID::PREFERRED_CLUSTER_DIMENSION
        | CUlaunchAttributeID::CLUSTER_SCHEDULING_POLICY_PREFERENCE
        | CUlaunchAttributeID::PROGRAMMATIC_STREAM_SERIALIZATION
        | CUlaunchAttributeID::PRIORITY
        | CUlaunchAttributeID::MEM_SYNC_DOMAIN_MAP
        | CUlaunchAttributeID::MEM_SYNC_DOMAIN
        | CUlaunchAttributeID::PREFERRED_SHARED_MEMORY_CARVEOUT
        | CUlaunchAttributeID::NVLINK_UTIL_CENTRIC_SCHEDULING => {}
        _ => return Err(CUerror::INVALID_VALUE),
    }
    Ok(())
}

fn launch(
    function: CUfunction,
    shape: LaunchShape,
    attributes: &[CUlaunchAttribute],
    stream: CUstream,
    parameters: WordArray,
    extra: Option<WordArray>,
) -> CUresult {
    let driver = driver()?;
    let stream_ref = driver.stream_ref(stream)?;
    if driver.code.is_not_loaded(function, &stream_ref.context) && !driver.engine.is_limited() {
        // The GPU loads code when nothing runs, unless it was told to load it early.
        stream_ref.context.synchronize_internally(&driver.engine);
    }
    let launch = Launched::new(driver, function, &stream_ref.context)?;
    if !stream_ref.context.is(&launch.function.context) {
        return Err(CUerror::INVALID_HANDLE);
    }
    shape.check(&launch.function).inspect_err(|_| driver.captures.invalidate_of(&stream_ref.stream.capture))?;
    let arguments = read_arguments(launch.function.kernel(), parameters, extra.filter(|extra| !extra.is_null()))?;
    let captured = stream_ref.is_captured().then(|| arguments.clone());
    let work = launch.work(shape, arguments)?;
    stream_ref.submit(work, |work| {
        let mut attributes = attributes.to_vec();
        if !attributes.iter().any(|attribute| attribute.id == CUlaunchAttributeID::PRIORITY) {
            attributes.push(priority(stream_ref.stream.priority));
        }
        launch.node(shape, attributes, &captured.unwrap_or_default(), work)
    })
}

/// The attribute of a captured kernel that has its stream's priority.
fn priority(priority: i32) -> CUlaunchAttribute {
    CUlaunchAttribute::of_words(CUlaunchAttributeID::PRIORITY, [priority.cast_unsigned(), 0, 0])
}

/// A kernel in a context, about to be launched or made a node of a graph.
pub(super) struct Launched<'d> {
    driver: &'d DriverState,
    context: Arc<Context>,
    handle: CUfunction,
    pub(super) function: Arc<Function>,
}

impl<'d> Launched<'d> {
    /// Finds a function, or a kernel of a library for this context.
    pub(super) fn new(driver: &'d DriverState, handle: CUfunction, context: &Arc<Context>) -> Result<Self, CUerror> {
        let function = driver.code.find_function(&driver.space, handle, || Ok(Arc::clone(context)))?;
        Ok(Self { driver, context: Arc::clone(context), handle, function })
    }

    /// Returns the work of a launch.
    pub(super) fn work(&self, shape: LaunchShape, arguments: Vec<u8>) -> Result<Work, CUerror> {
        let driver = driver()?;
        let kernel = self.function.kernel();
        let words = self.function.program.pointer_words(self.function.index);
        let is_checked = driver.space.are_bounds_exact;
        let pointers = if is_checked { driver.block_lookup.pointers(kernel, words, &arguments) } else { Vec::new() };
        let env = LaunchEnv::new(&driver.space, &driver.log, Arc::clone(&self.context), shape.is_cooperative)?;
        let cluster = shape.cluster_of(&self.function);
        let blocks_of_side = |axis: usize| match cluster {
            Some(cluster) if kernel.blocks_are_clusters => shape.grid[axis] * cluster[axis],
            _ => shape.grid[axis],
        };
        let grid = Grid::new(
            Arc::clone(&self.function.program),
            Launch {
                kernel: self.function.index,
                grid: std::array::from_fn(blocks_of_side),
                block: shape.block,
                cluster,
                shared_bytes: shape.shared_bytes,
                is_shared_exact: is_checked,
                parameters: arguments,
                pointers,
                workspace: env.workspace().unwrap_or(0),
                stack_bytes: self.context.limit(CUlimit::STACK_SIZE).saturating_add(kernel.local_bytes),
            },
        );
        // The thread that reports a fault is the driver's own.
        sites::prepare_demangling(&kernel.name);
        let run = KernelRun::new(kernel.name.clone(), Arc::new(grid), Box::new(env), shape.residency(&self.function));
        Ok(Work::Kernel(Arc::new(run.with_checked(self.function.checked()))))
    }

    /// Describes a launch as an operation of a node.
    pub(super) fn node(
        &self,
        shape: LaunchShape,
        mut attributes: Vec<CUlaunchAttribute>,
        arguments: &[u8],
        work: Work,
    ) -> Operation {
        if shape.is_cooperative {
            set_attribute(&mut attributes, CUlaunchAttribute::of_words(CUlaunchAttributeID::COOPERATIVE, [1, 0, 0]));
        }
        let offsets = self.function.kernel().parameters.iter().map(|parameter| parameter.offset as usize);
        Operation::Kernel(KernelNode {
            function: self.handle,
            is_library_kernel: self.driver.code.is_library_kernel(self.handle),
            context: self.context.handle,
            shape,
            attributes,
            arguments: Arguments::new(arguments, offsets),
            work,
        })
    }
}

/// Reads the arguments: from a pointer to each, or from one buffer.
pub(super) fn read_arguments(
    kernel: &Kernel,
    parameters: WordArray,
    extra: Option<WordArray>,
) -> Result<Vec<u8>, CUerror> {
    let mut bytes = vec![0; kernel.parameter_bytes as usize];
    if let Some((address, length)) = extra.map_or(Ok(None), read_extra)? {
        if !parameters.is_null() {
            return Err(CUerror::INVALID_VALUE);
        }
        // Arguments beyond the end of the buffer are zero; a buffer longer than the parameters is an error.
        let given = usize::try_from(length).ok().and_then(|length| bytes.get_mut(..length));
        let given = given.ok_or(CUerror::LAUNCH_OUT_OF_RESOURCES)?;
        MemRef::host(address).read(0, given).map_err(|_| CUerror::INVALID_VALUE)?;
        return Ok(bytes);
    }
    if parameters.is_null() && !kernel.parameters.is_empty() {
        return Err(CUerror::INVALID_VALUE);
    }
    for (index, parameter) in kernel.parameters.iter().enumerate() {
        let address = parameters.read(index)?;
        let start = parameter.offset as usize;
        let part = &mut bytes[start..start + parameter.bytes as usize];
        MemRef::host(address).read(0, part).map_err(|_| CUerror::INVALID_VALUE)?;
    }
    Ok(bytes)
}

/// Returns the address and length of the argument buffer, or `None` if the list is empty.
fn read_extra(extra: WordArray) -> Result<Option<(u64, u64)>, CUerror> {
    const WORDS_MAX: usize = 16;
    let (mut address, mut length) = (None, None);
    for index in (0..WORDS_MAX).step_by(2) {
        match extra.read(index)? as usize {
            launch_param::END if address.is_none() && length.is_none() => return Ok(None),
            launch_param::END => return address.zip(length).map(Some).ok_or(CUerror::INVALID_VALUE),
            launch_param::BUFFER_POINTER => address = Some(extra.read(index + 1)?),
            launch_param::BUFFER_SIZE => {
                let mut bytes = [0; 8];
                MemRef::host(extra.read(index + 1)?).read(0, &mut bytes).map_err(|_| CUerror::INVALID_VALUE)?;
                length = Some(u64::from_le_bytes(bytes));
            }
            _ => return Err(CUerror::INVALID_VALUE),
        }
    }
    Err(CUerror::INVALID_VALUE)
}
