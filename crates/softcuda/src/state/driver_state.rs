//! The state of the software driver in one process: its devices, live handles and live memory.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use freehold_driver::cuda::{CUdevice, CUerror, CUresult, CUstream};

use crate::base::check;
use crate::base::config::{Config, LogFile};
use crate::base::handle_table::{HandleKind, HandleRange, HandleReuse, HandleTable};
use crate::base::log::Log;
use crate::base::sync::lock;
use crate::base::visible;
use crate::engine::Engine;
use crate::memory::mapping::{AddressReservations, Allocation};
use crate::modules::link::Link;
use crate::modules::loader::ModuleTables;
use crate::objects::array::{Array, MipmappedArray};
use crate::objects::attributes;
use crate::objects::capture::Captures;
use crate::objects::context::{Context, PrimaryContext};
use crate::objects::device::Device;
use crate::objects::event::Event;
use crate::objects::graph_exec::GraphExec;
use crate::objects::graph_table::GraphTable;
use crate::objects::pool::Pool;
use crate::objects::stream_ref::{StreamEntry, StreamRef};
use crate::objects::user_object::UserObject;
use crate::space::address_space::AddressSpace;
use crate::space::block_lookup::BlockLookup;
use crate::space::imports::Imports;

static DRIVER: OnceLock<DriverState> = OnceLock::new();

/// Set in the child of a fork after initialization. Calls fail there.
static FORKED: AtomicBool = AtomicBool::new(false);

#[derive(Debug)]
pub(crate) struct DriverState {
    pub(crate) engine: Arc<Engine>,
    pub(crate) space: AddressSpace,
    /// By ordinal of their devices.
    primaries: Vec<Mutex<PrimaryContext>>,
    pub(crate) contexts: HandleTable<Context>,
    pub(crate) streams: HandleTable<StreamEntry>,
    pub(crate) events: HandleTable<Event>,
    pub(crate) pools: HandleTable<Pool>,
    pub(crate) arrays: HandleTable<Array>,
    pub(crate) mipmaps: HandleTable<MipmappedArray>,
    pub(crate) code: ModuleTables,
    pub(crate) links: HandleTable<Link>,
    pub(crate) allocations: HandleTable<Allocation>,
    pub(crate) imports: Imports,
    pub(crate) graphs: GraphTable,
    pub(crate) graph_execs: HandleTable<GraphExec>,
    pub(crate) user_objects: HandleTable<UserObject>,
    pub(crate) captures: Captures,
    pub(crate) handle_range: HandleRange,
    pub(crate) log: Log,
    pub(crate) block_lookup: BlockLookup,
}

pub(crate) fn driver() -> Result<&'static DriverState, CUerror> {
    DRIVER.get().ok_or(CUerror::NOT_INITIALIZED)
}

/// Returns the driver, for work that a stream runs.
pub(crate) fn driver_in_work() -> &'static DriverState {
    driver().expect("work runs in a driver")
}

pub(crate) fn is_forked() -> bool {
    FORKED.load(Ordering::Relaxed)
}

/// Initializes the driver. Later calls do nothing.
pub(crate) fn init() -> CUresult {
    if DRIVER.get().is_some() {
        return Ok(());
    }
    static INIT_LOCK: Mutex<()> = Mutex::new(());
    let _making = lock(&INIT_LOCK);
    if DRIVER.get().is_none() {
        let config = Config::from_env().map_err(|_| CUerror::INVALID_VALUE)?;
        check::start();
        let driver = DriverState::new(&config)?;
        // SAFETY: the handler stores to an atomic, reads what never changes and closes files, all of which is allowed
        // in the child of a fork.
        unsafe { libc::pthread_atfork(None, None, Some(after_fork_in_child)) };
        // SAFETY: the handler touches nothing but the driver, which is never dropped, and returns.
        unsafe { libc::atexit(at_exit) };
        assert!(DRIVER.set(driver).is_ok(), "the driver is initialized once");
    }
    Ok(())
}

extern "C" fn after_fork_in_child() {
    // In the child of a child, these descriptor numbers may name other files.
    let was_forked = FORKED.swap(true, Ordering::Relaxed);
    let driver = DRIVER.get().filter(|_| !was_forked);
    for device in driver.into_iter().flat_map(|driver| &driver.space.devices) {
        device.memory.usage.close_in_fork_child();
    }
}

/// Ends this process's accounts when it exits. If that fails, the kernel ends them with the process.
extern "C" fn at_exit() {
    let driver = DRIVER.get().filter(|_| !is_forked());
    for device in driver.into_iter().flat_map(|driver| &driver.space.devices) {
        drop(device.memory.usage.close());
    }
}

/// Returns the devices of the machine that this process sees, in its order.
fn visible_devices(config: &Config) -> Vec<usize> {
    let uuids = || (0..config.devices).map(attributes::uuid_text).collect::<Vec<_>>();
    let listed = config.visible.as_ref().map(|list| visible::parse(list, &uuids()));
    listed.unwrap_or_else(|| (0..config.devices).collect())
}

impl DriverState {
    fn new(config: &Config) -> Result<Self, CUerror> {
        let log = Log::new(LogFile::from_env());
        let open = |(ordinal, index)| {
            let opened = Device::open(config, ordinal, index).map(Arc::new);
            opened.map_err(|error| {
                log.error(&format!("device {index} cannot be opened: {error}"));
                CUerror::OPERATING_SYSTEM
            })
        };
        let visible = visible_devices(config);
        if visible.is_empty() {
            log.error("CUDA_VISIBLE_DEVICES hides all devices");
            return Err(CUerror::NO_DEVICE);
        }
        let devices = visible.into_iter().enumerate().map(open).collect::<Result<Vec<_>, _>>()?;
        let range = HandleRange::reserve().map_err(|error| {
            log.error(&format!("addresses for handles cannot be reserved: {error}"));
            CUerror::OUT_OF_MEMORY
        })?;
        let reservations = AddressReservations::new(config.is_coherent).map_err(|_| CUerror::OUT_OF_MEMORY)?;
        Ok(Self {
            engine: Engine::start(config.schedule, config.kernel_timeout),
            primaries: devices.iter().map(|_| Mutex::default()).collect(),
            space: AddressSpace::new(devices, reservations, &range, config.are_bounds_exact),
            contexts: HandleTable::new(range.space(HandleKind::Context), HandleReuse::Immediate),
            streams: HandleTable::new(range.space(HandleKind::Stream), HandleReuse::Immediate),
            events: HandleTable::new(range.space(HandleKind::Event), HandleReuse::Never),
            pools: HandleTable::new(range.space(HandleKind::Pool), HandleReuse::Never),
            arrays: HandleTable::new(range.space(HandleKind::Array), HandleReuse::Never),
            mipmaps: HandleTable::new(range.space(HandleKind::MipmappedArray), HandleReuse::Never),
            code: ModuleTables::new(&range),
            links: HandleTable::new(range.space(HandleKind::Link), HandleReuse::Never),
            allocations: HandleTable::new(range.space(HandleKind::Allocation), HandleReuse::Never),
            imports: Imports::default(),
            graphs: GraphTable::new(&range),
            graph_execs: HandleTable::new(range.space(HandleKind::GraphExec), HandleReuse::Never),
            user_objects: HandleTable::new(range.space(HandleKind::UserObject), HandleReuse::Never),
            captures: Captures::default(),
            handle_range: range,
            log,
            block_lookup: BlockLookup::default(),
        })
    }

    /// Returns the primary context of a device.
    pub(crate) fn primary(&self, device: CUdevice) -> Result<MutexGuard<'_, PrimaryContext>, CUerror> {
        Ok(lock(&self.primaries[self.space.device(device)?.ordinal]))
    }

    /// Resolves a stream handle for the calling thread.
    pub(crate) fn stream_ref(&self, handle: CUstream) -> Result<StreamRef<'_>, CUerror> {
        StreamRef::new(&self.engine, &self.captures, &self.graphs, &self.streams, handle)
    }
}
