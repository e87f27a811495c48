//! A device for one test, with the examples' kernels in a language that it accepts, and gates that block work.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use freehold::{Device, Error, ExternalAccess, Grid, Image, Kernel, Module, Stream, open};
use freehold_driver::cuda;
use freehold_driver::opencl::{self, Latch};
use freehold_driver::{Backend, CallError, handle};
use freehold_testing::HANG_TIMEOUT;

use crate::own::{self, Own};

pub(crate) use crate::own::{N, grid};

/// One test at a time, as with [`Own`].
static TURN: Mutex<()> = Mutex::new(());

pub(crate) struct Rig {
    pub(crate) device: Device,
    pub(crate) module: Module,
    pub(crate) add: Kernel,
    driver: Driver,
}

/// What holds work up.
enum Driver {
    /// A kernel that waits for a word of the host's.
    Words(Box<Own>),
    /// An event that the host sets.
    Latches(Arc<opencl::Context>, #[expect(dead_code, reason = "held")] MutexGuard<'static, ()>),
}

/// The kernels of the examples, as the device takes them.
pub(crate) fn kernels(device: &Device) -> Module {
    let images = [
        Image::ptx(include_str!("../../../examples/kernels.ptx")).unwrap(),
        Image::opencl(include_str!("../../../examples/kernels.cl")).unwrap(),
    ];
    let taken = images.iter().find_map(|image| match device.module(image) {
        Err(Error::ImageNotTaken { .. }) => None,
        loaded => Some(loaded.unwrap()),
    });
    taken.expect("a device takes PTX or OpenCL C")
}

impl Rig {
    pub(crate) fn new() -> Self {
        let (device, driver) = match open::opencl::open(None).unwrap() {
            Some(opened) => {
                let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
                let context = Arc::new(opened.context().unwrap());
                // SAFETY: a context of OpenCL's does what the trait says.
                let device = unsafe { Device::on(context.clone()) };
                (device.unwrap(), Driver::Latches(context, turn))
            }
            None => {
                let own = Own::new();
                (own.device.clone(), Driver::Words(Box::new(own)))
            }
        };
        let module = kernels(&device);
        let add = crate::own::kernel(&module, "add").unwrap();
        Self { device, module, add, driver }
    }

    pub(crate) fn streams<const COUNT: usize>(&self) -> [Stream; COUNT] {
        [(); COUNT].map(|()| self.device.new_stream().unwrap())
    }

    /// Holds what is put into a stream from now on until the gate opens, at the latest when it is dropped.
    pub(crate) fn hold(&self, stream: &Stream) -> Gate {
        match &self.driver {
            Driver::Words(own) => {
                let gate = own.gate();
                own.hold(stream, &gate);
                Gate::Word(gate)
            }
            Driver::Latches(context, _) => {
                let latch = Arc::new(context.latch(stream.raw()).unwrap());
                stream.foreign_work();
                Gate::Latch(Watched::new(latch))
            }
        }
    }

    /// Lets the device do some work of another stream: what waits for nothing has had its chance then.
    pub(crate) fn pass_by(&self) {
        let [stream] = self.streams();
        let mut block = stream.zeros::<u32>(N).unwrap();
        for _ in 0..20 {
            self.add(&stream, &mut block, 1);
        }
        assert_eq!(stream.download(&block).unwrap(), [20; N]);
    }

    /// Whether a stream is handed the memory at an address before the pool takes more of the driver.
    pub(crate) fn hands_out(&self, stream: &Stream, address: u64) -> bool {
        let reserved_bytes = || self.device.stats().reserved_bytes;
        let (before, mut blocks) = (reserved_bytes(), Vec::new());
        while reserved_bytes() == before {
            let block = stream.alloc::<u32>(N).unwrap();
            if (block.address()..block.address() + 4 * N as u64).contains(&address) {
                return true;
            }
            blocks.push(block);
        }
        false
    }

    /// Writes to lent memory past the library, as a transfer does.
    pub(crate) fn transfer(&self, to: &ExternalAccess, from: &[u32]) {
        assert_eq!(to.bytes(), size_of_val(from));
        self.past_the_library(|backend, stream| {
            // SAFETY: `from` is there until the stream was waited for.
            unsafe { backend.upload(to.address(), from.as_ptr().cast(), to.bytes(), stream) }
        });
    }

    /// As [`transfer`](Self::transfer), from pinned memory, without what runs kernels where the device can.
    pub(crate) fn transfer_beside(&self, to: &ExternalAccess, from: &[u8]) {
        assert_eq!(to.bytes(), from.len());
        self.past_the_library(|backend, stream| {
            let pinned = backend.alloc_host(from.len()).unwrap();
            // SAFETY: the memory was just made, and has so many bytes.
            unsafe { pinned.copy_from_nonoverlapping(NonNull::from(from).cast(), from.len()) };
            // SAFETY: it is there until the stream was waited for.
            let put = unsafe { backend.upload_by_copy_engine(to.address(), pinned.as_ptr(), from.len(), stream) };
            // SAFETY: the stream was made for this.
            unsafe { backend.wait_until_idle(stream) }.unwrap();
            // SAFETY: it is no longer used.
            unsafe { backend.free_host(pinned) }.unwrap();
            put
        });
    }

    /// What lent memory holds, as a transfer reads it.
    pub(crate) fn transferred(&self, from: &ExternalAccess) -> Vec<u32> {
        let mut to = vec![0_u32; from.bytes() / 4];
        self.past_the_library(|backend, stream| {
            // SAFETY: `to` is there until the stream was waited for.
            unsafe { backend.download(to.as_mut_ptr().cast(), from.address(), from.bytes(), stream) }
        });
        to
    }

    /// Has the driver do something in a stream that the library does not know, and waits for it.
    fn past_the_library(&self, put: impl FnOnce(&dyn Backend, handle::Stream) -> Result<(), CallError>) {
        let act = |backend: &dyn Backend| {
            let stream = backend.create_stream().unwrap();
            put(backend, stream).unwrap();
            // SAFETY: the stream was made above.
            unsafe { backend.wait_until_idle(stream) }.unwrap();
            // SAFETY: as above.
            unsafe { backend.destroy_stream(stream) }.unwrap();
        };
        match &self.driver {
            Driver::Words(own) => {
                let backend = cuda::Context::adopt(own.api, own::opened().device, own.primary).unwrap();
                act(&backend);
            }
            Driver::Latches(context, _) => act(&**context),
        }
    }

    /// Adds `more` to all values of a block, in a stream.
    pub(crate) fn add(&self, stream: &Stream, block: &mut freehold::Block<u32>, more: u32) {
        stream.launch(&self.add, grid(), (block, more, N as u32)).unwrap();
    }
}

pub(crate) enum Gate {
    Word(own::Gate),
    Latch(Watched),
}

/// A latch that opens by itself, late, where a call waits for it.
pub(crate) struct Watched {
    latch: Arc<Latch>,
    opened_late: Arc<AtomicBool>,
    /// Dropped with the gate, which ends its watchdog.
    _news: mpsc::Sender<()>,
}

impl Watched {
    fn new(latch: Arc<Latch>) -> Self {
        let opened_late = Arc::new(AtomicBool::new(false));
        let (news, ended) = mpsc::channel();
        let (late, watched) = (opened_late.clone(), latch.clone());
        thread::spawn(move || {
            if ended.recv_timeout(HANG_TIMEOUT) == Err(RecvTimeoutError::Timeout) {
                late.store(true, Ordering::SeqCst);
                watched.open().unwrap();
            }
        });
        Self { latch, opened_late, _news: news }
    }
}

impl Gate {
    /// Lets the work go on, which no call before this was to wait for.
    #[track_caller]
    pub(crate) fn open(&self) {
        match self {
            Self::Word(gate) => gate.open(),
            Self::Latch(watched) => {
                assert!(!watched.opened_late.load(Ordering::SeqCst), "a call waited for work that the gate held");
                watched.latch.open().unwrap();
            }
        }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.latch.open().unwrap();
    }
}

/// One thread of one block.
pub(crate) const ONE: Grid = Grid::line(1, 1);
