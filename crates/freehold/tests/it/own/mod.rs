//! Shared code of these tests: a device for one test with the examples' kernels, and gates that block work.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use freehold::open::Opened;
use freehold::{Block, Context, Device, Grid, Image, Kernel, Module, Stream};
use freehold_driver::cuda::faults::Faults;
use freehold_driver::cuda::{Api, CUcontext, context, host, host_alloc_flags, primary};
use freehold_testing::HANG_TIMEOUT;

/// How many values the blocks of these tests have.
pub(crate) const N: usize = 1000;

/// One test at a time: a call that waits for all work of the primary context would wait for another test's gate.
static TURN: Mutex<()> = Mutex::new(());

pub(crate) fn opened() -> Opened {
    // SAFETY: the tests call of the driver what names memory and streams that they made, or that the library lent them.
    unsafe { freehold::open::open(None) }.unwrap()
}

pub(crate) fn image() -> Image {
    Image::ptx(include_str!("../../../examples/kernels.ptx")).unwrap()
}

/// A kernel of the examples' image.
pub(crate) fn kernel(module: &Module, name: &str) -> freehold::Result<Kernel> {
    // SAFETY: the tests launch kernels of `kernels.ptx` with blocks of the types that those take, and with counts of elements that
    // they have. Those that are meant to fault do so on the software device, which survives it.
    unsafe { module.kernel(name) }
}

/// The kernels of a context, loaded before anything runs: a load waits for kernels that run.
pub(crate) struct Kernels {
    pub(crate) module: Module,
    pub(crate) add: Kernel,
    pub(crate) count: Kernel,
    pub(crate) wait: Kernel,
}

impl Kernels {
    pub(crate) fn load(context: &Context) -> Self {
        let module = context.module(&image()).unwrap();
        let [add, count, wait] = ["add", "count", "wait"].map(|name| kernel(&module, name).unwrap());
        Self { module, add, count, wait }
    }

    /// Lets the work that is put into `stream` from now on wait at a gate.
    pub(crate) fn hold(&self, stream: &Stream, gate: &Gate) {
        stream.launch(&self.wait, Grid::line(1, 1), (gate.address(),)).unwrap();
    }
}

/// Whether a block of the memory at `address` is among the next that a stream is handed: more than a thread keeps.
pub(crate) fn is_handed_out(stream: &Stream, address: u64) -> bool {
    is_among(stream, address, 100)
}

/// Whether a stream is ever handed the memory at `address` again: before it needs more than one chunk.
pub(crate) fn comes_back(stream: &Stream, address: u64) -> bool {
    is_among(stream, address, 600)
}

fn is_among(stream: &Stream, address: u64, count: usize) -> bool {
    let blocks: Vec<Block<u32>> = (0..count).map(|_| stream.alloc(N).unwrap()).collect();
    blocks.iter().any(|block| (block.address()..block.address() + 4 * N as u64).contains(&address))
}

/// A device of a test's own.
pub(crate) struct Own {
    pub(crate) device: Device,
    pub(crate) kernels: Kernels,
    pub(crate) api: Api,
    /// The primary context.
    pub(crate) primary: CUcontext,
    #[expect(dead_code, reason = "held")]
    turn: MutexGuard<'static, ()>,
}

impl Own {
    pub(crate) fn new() -> Self {
        let opened = opened();
        Self::over(opened.api, &opened)
    }

    /// A device over a table other than its driver's.
    pub(crate) fn over(api: Api, opened: &Opened) -> Self {
        Self::in_turn(TURN.lock().unwrap_or_else(PoisonError::into_inner), api, opened)
    }

    /// A device whose calls are counted. A test that counts has its turn before: another that has its turn may count too.
    pub(crate) fn counted(opened: &Opened) -> (Faults, Self) {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let faults = Faults::count(&opened.api);
        let own = Self::in_turn(turn, *faults.api(), opened);
        (faults, own)
    }

    fn in_turn(turn: MutexGuard<'static, ()>, api: Api, opened: &Opened) -> Self {
        // SAFETY: the table is a driver's, and nothing of the device is destroyed by others.
        let device = unsafe { Device::new(api, opened.device) }.unwrap();
        let kernels = Kernels::load(device.primary());
        let primary = primary::retain(&opened.api, opened.device).unwrap();
        Self { device, kernels, api: opened.api, primary, turn }
    }

    pub(crate) fn streams<const COUNT: usize>(&self) -> [Stream; COUNT] {
        [(); COUNT].map(|()| self.device.new_stream().unwrap())
    }

    /// A closed gate, for streams of every context.
    pub(crate) fn gate(&self) -> Gate {
        Gate::new(&self.api, self.primary)
    }

    pub(crate) fn hold(&self, stream: &Stream, gate: &Gate) {
        self.kernels.hold(stream, gate);
    }

    /// Lets the device do some work of another stream: what waits for nothing has had its chance then.
    pub(crate) fn pass_by(&self) {
        let stream = self.device.new_stream().unwrap();
        let mut block = stream.zeros::<u32>(N).unwrap();
        for _ in 0..20 {
            stream.launch(&self.kernels.add, grid(), (&mut block, 1_u32, N as u32)).unwrap();
        }
        assert_eq!(stream.download(&block).unwrap(), [20; N]);
    }
}

pub(crate) fn grid() -> Grid {
    Grid::cover(N as u32, 128)
}

/// A word of pinned memory that kernels wait for. It stays until the process ends: to free it would wait.
pub(crate) struct Gate {
    word: Word,
    address: u64,
    opened_late: Arc<AtomicBool>,
    /// Dropped with the gate, which ends its watchdog.
    _news: mpsc::Sender<()>,
}

#[derive(Clone, Copy)]
struct Word(NonNull<AtomicU32>);

// SAFETY: the pointer is not `Send`; it is to memory that stays, used through atomics only.
unsafe impl Send for Word {}

impl Word {
    fn atomic(&self) -> &AtomicU32 {
        // SAFETY: the memory is pinned, aligned to a page, and stays until the process ends.
        unsafe { self.0.as_ref() }
    }
}

impl Gate {
    pub(crate) fn new(api: &Api, primary: CUcontext) -> Self {
        context::push_current(api, primary).unwrap();
        let flags = host_alloc_flags::PORTABLE | host_alloc_flags::DEVICEMAP;
        let start = host::alloc_with_flags(api, 4096, flags).unwrap();
        let address = host::device_address(api, start, 0).unwrap().0;
        context::pop_current(api).unwrap();
        let word = Word(NonNull::new(start.cast()).unwrap());
        word.atomic().store(0, Ordering::SeqCst);
        let opened_late = Arc::new(AtomicBool::new(false));
        let (news, ended) = mpsc::channel();
        let late = opened_late.clone();
        thread::spawn(move || {
            if ended.recv_timeout(HANG_TIMEOUT) == Err(RecvTimeoutError::Timeout) {
                late.store(true, Ordering::SeqCst);
                word.atomic().store(1, Ordering::SeqCst);
            }
        });
        Self { word, address, opened_late, _news: news }
    }

    /// Where the device sees the word.
    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    /// Lets the work go on, which no call before this was to wait for.
    #[track_caller]
    pub(crate) fn open(&self) {
        assert!(!self.was_opened_late(), "a call waited for work that the gate held");
        self.word.atomic().store(1, Ordering::SeqCst);
    }

    /// Whether a call waited until the gate had to be opened for it.
    pub(crate) fn was_opened_late(&self) -> bool {
        self.opened_late.load(Ordering::SeqCst)
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.word.atomic().store(1, Ordering::SeqCst);
    }
}
