//! Runs a program on the driver.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{CStr, c_void};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use freehold_driver::cuda::launch::LaunchConfig;
use freehold_driver::cuda::{
    Api, CUcontext, CUdevice, CUdeviceptr, CUevent, CUfunction, CUgraphExec, CUstream, CUstreamCaptureMode,
    DriverError, capture, context, copy, driver, event, fill, graph, host, launch, memory, module, stream,
    stream_flags,
};

use super::labels::{HOST_FUNCTIONS, HOST_WORK, HostWork, STEPS};
use super::program::{
    Action, BRANCHES, EVENTS, GRAPH_EVENTS, Graph, GraphStep, Home, Program, Range, Step, StreamKind, Work,
};
use super::values::{Values, initial_word};

const THREADS: u32 = 32;

/// Kernels of a range of words: `to` and `from` are addresses, `add` a word.
const KERNELS: &CStr = c"
.version 8.0
.target sm_70
.address_size 64

.visible .entry mix(.param .u64 to, .param .u64 from, .param .u32 words, .param .u32 add)
{
    .reg .b64 %at<4>; .reg .b32 %r<8>; .reg .pred %p;
    ld.param.u64 %at1, [to]; ld.param.u64 %at2, [from]; ld.param.u32 %r1, [words]; ld.param.u32 %r2, [add];
    mov.u32 %r3, %tid.x;
    setp.ge.u32 %p, %r3, %r1;
    @%p ret;
    mul.wide.u32 %at3, %r3, 4;
    add.u64 %at1, %at1, %at3; add.u64 %at2, %at2, %at3;
    ld.global.u32 %r4, [%at1]; ld.global.u32 %r5, [%at2];
    mad.lo.u32 %r6, %r4, 3, %r5;
    add.u32 %r6, %r6, %r2;
    st.global.u32 [%at1], %r6;
    ret;
}

.visible .entry store(.param .u64 to, .param .u64 from, .param .u32 words, .param .u32 add)
{
    .reg .b64 %at<4>; .reg .b32 %r<8>; .reg .pred %p;
    ld.param.u64 %at1, [to]; ld.param.u64 %at2, [from]; ld.param.u32 %r1, [words]; ld.param.u32 %r2, [add];
    mov.u32 %r3, %tid.x;
    setp.ge.u32 %p, %r3, %r1;
    @%p ret;
    mul.wide.u32 %at3, %r3, 4;
    add.u64 %at1, %at1, %at3; add.u64 %at2, %at2, %at3;
    ld.global.u32 %r5, [%at2];
    add.u32 %r6, %r5, %r2;
    st.global.u32 [%at1], %r6;
    ret;
}

.visible .entry add(.param .u64 to, .param .u64 from, .param .u32 words, .param .u32 add)
{
    .reg .b64 %at<4>; .reg .b32 %r<8>; .reg .pred %p;
    ld.param.u64 %at1, [to]; ld.param.u32 %r1, [words]; ld.param.u32 %r2, [add];
    mov.u32 %r3, %tid.x;
    setp.ge.u32 %p, %r3, %r1;
    @%p ret;
    mul.wide.u32 %at3, %r3, 4;
    add.u64 %at1, %at1, %at3;
    red.global.add.u32 [%at1], %r2;
    ret;
}
";

type Done = Result<(), DriverError>;

/// The driver's objects of a program.
struct Machine<'p> {
    api: Api,
    program: &'p Program,
    streams: Vec<CUstream>,
    events: Vec<CUevent>,
    /// The address of each buffer. Of a pool's, once it is allocated.
    buffers: RefCell<Vec<CUdeviceptr>>,
    graphs: Vec<CUgraphExec>,
    mix: CUfunction,
    store: CUfunction,
    add: CUfunction,
    seen: RefCell<BTreeMap<usize, Vec<u32>>>,
}

/// Runs a program, and returns what it has seen and left behind. The buffers that it has freed are empty.
pub(crate) fn run(api: &Api, program: &Program) -> Result<Values, DriverError> {
    driver::init(api, 0)?;
    let own = context::create(api, CUdevice(0), 0)?;
    let mut machine = Machine::new(*api, program)?;
    for graph in &program.graphs {
        let exec = machine.capture(graph)?;
        machine.graphs.push(exec);
    }
    context::synchronize(api)?;
    machine.steps(own)?;
    machine.end()
}

/// A reference that another thread uses while this one waits for it.
struct Lent<'m, 'p>(&'m Machine<'p>);

// SAFETY: the cells in it are not `Sync`; only one thread at a time runs a step, and the channels order the steps.
unsafe impl Send for Lent<'_, '_> {}

impl<'m, 'p> Lent<'m, 'p> {
    fn machine(&self) -> &'m Machine<'p> {
        self.0
    }
}

impl<'p> Machine<'p> {
    fn new(api: Api, program: &'p Program) -> Result<Self, DriverError> {
        // SAFETY: the text ends in a NUL.
        let kernels = unsafe { module::load(&api, KERNELS.as_ptr().cast()) }?;
        let kernel = |name| module::function(&api, kernels, name);
        let stream = |kind: &StreamKind| match kind {
            StreamKind::Blocking => stream::create(&api, stream_flags::DEFAULT),
            StreamKind::NonBlocking => stream::create(&api, stream_flags::NON_BLOCKING),
            StreamKind::Legacy => Ok(CUstream::LEGACY),
            StreamKind::PerThread(_) => Ok(CUstream::PER_THREAD),
        };
        let machine = Self {
            api,
            program,
            streams: program.streams.iter().map(stream).collect::<Result<_, _>>()?,
            events: (0..EVENTS).map(|_| event::create(&api, 0)).collect::<Result<_, _>>()?,
            buffers: RefCell::default(),
            graphs: Vec::new(),
            mix: kernel(c"mix")?,
            store: kernel(c"store")?,
            add: kernel(c"add")?,
            seen: RefCell::default(),
        };
        for (number, home) in program.buffers.iter().enumerate() {
            let words: Vec<u8> = (0..home.words()).flat_map(|word| initial_word(number, word).to_le_bytes()).collect();
            let address = match home {
                Home::Device => memory::alloc(&api, words.len())?,
                Home::Pinned => CUdeviceptr(host::alloc(&api, words.len())? as u64),
                Home::Pool => CUdeviceptr::NULL,
            };
            match home {
                Home::Device => copy::host_to_device(&api, address, &words)?,
                // SAFETY: the driver has just allocated the words, and nothing else uses them.
                Home::Pinned => unsafe {
                    std::ptr::copy_nonoverlapping(words.as_ptr(), address.0 as *mut u8, words.len());
                },
                Home::Pool => {}
            }
            machine.buffers.borrow_mut().push(address);
        }
        machine.warm()?;
        Ok(machine)
    }

    /// Launches each kernel once: the first launch waits for the device.
    fn warm(&self) -> Done {
        let at = self.buffers.borrow()[0];
        for kernel in [self.mix, self.store, self.add] {
            self.launch(kernel, CUstream::LEGACY, [at, at], 0, 0)?;
        }
        context::synchronize(&self.api)
    }

    fn launch(&self, kernel: CUfunction, stream: CUstream, at: [CUdeviceptr; 2], words: usize, add: u32) -> Done {
        let [mut to, mut from] = at.map(|at| at.0);
        let (mut words, mut add) = (words as u32, add);
        let mut parameters: [*mut c_void; 4] =
            [(&raw mut to).cast(), (&raw mut from).cast(), (&raw mut words).cast(), (&raw mut add).cast()];
        let shape = LaunchConfig::linear(1, THREADS);
        // SAFETY: there is a pointer to each parameter; the host accesses what the kernel does with volatile accesses.
        unsafe { launch::kernel(&self.api, kernel, shape, stream, &mut parameters) }
    }

    fn at(&self, range: Range) -> CUdeviceptr {
        CUdeviceptr(self.buffers.borrow()[range.buffer].0 + 4 * range.start as u64)
    }

    fn is_pinned(&self, range: Range) -> bool {
        self.program.buffers[range.buffer] == Home::Pinned
    }

    fn capture(&self, captured: &Graph) -> Result<CUgraphExec, DriverError> {
        let api = &self.api;
        let branches = (0..BRANCHES).map(|_| stream::create(api, stream_flags::NON_BLOCKING));
        let branches: Vec<CUstream> = branches.collect::<Result<_, _>>()?;
        let events = (0..GRAPH_EVENTS).map(|_| event::create(api, 0)).collect::<Result<Vec<CUevent>, _>>()?;
        capture::begin(api, branches[0], CUstreamCaptureMode::RELAXED)?;
        for step in &captured.steps {
            match step {
                GraphStep::Work { branch, work } => self.work(0, branches[*branch], work)?,
                GraphStep::Record { branch, event } => event::record(api, events[*event], branches[*branch])?,
                GraphStep::Wait { branch, event, .. } => {
                    stream::wait_event(api, branches[*branch], events[*event], 0)?;
                }
            }
        }
        let graph = capture::end(api, branches[0])?;
        graph::instantiate(api, graph, 0)
    }

    /// Makes the steps, each in its thread, one after the other.
    fn steps(&self, own: CUcontext) -> Done {
        type Worker = (Sender<usize>, Receiver<Done>);
        thread::scope(|scope| {
            let workers: Vec<Worker> = (1..self.program.threads)
                .map(|_| {
                    let (orders, inbox) = mpsc::channel::<usize>();
                    let (outbox, answers) = mpsc::channel();
                    let lent = Lent(self);
                    scope.spawn(move || {
                        let machine = lent.machine();
                        let entered = context::set_current(&machine.api, own);
                        while let Ok(index) = inbox.recv() {
                            let done = entered.and_then(|()| machine.named(&machine.program.steps[index]));
                            outbox.send(done).expect("the main thread waits for the answer");
                        }
                    });
                    (orders, answers)
                })
                .collect();
            for (index, step) in self.program.steps.iter().enumerate() {
                match step.thread.checked_sub(1) {
                    None => self.named(step)?,
                    Some(worker) => {
                        let (orders, answers) = &workers[worker];
                        orders.send(index).expect("a worker ends with its channel");
                        answers.recv().expect("a worker answers")?;
                    }
                }
            }
            Ok(())
        })
    }

    /// Makes a step in the function that has its number.
    fn named(&self, step: &Step) -> Done {
        let mut done = Ok(());
        STEPS[step.number](&mut || done = self.step(step));
        done
    }

    #[inline(always)]
    fn step(&self, step: &Step) -> Done {
        let api = &self.api;
        match step.action {
            Action::Work { stream, ref work } => self.work(step.number, self.streams[stream], work),
            Action::Allocate { stream, buffer } => {
                let bytes = 4 * Home::Pool.words();
                self.buffers.borrow_mut()[buffer] = memory::alloc_async(api, bytes, self.streams[stream])?;
                Ok(())
            }
            Action::Free { stream, buffer } => {
                let at = std::mem::replace(&mut self.buffers.borrow_mut()[buffer], CUdeviceptr::NULL);
                memory::free_async(api, at, self.streams[stream])
            }
            // SAFETY: what the nodes use lives until the process ends.
            Action::Launch { stream, graph } => unsafe { graph::launch(api, self.graphs[graph], self.streams[stream]) },
            Action::Record { stream, event } => event::record(api, self.events[event], self.streams[stream]),
            Action::Wait { stream, event } => stream::wait_event(api, self.streams[stream], self.events[event], 0),
            Action::SyncStream(stream) => stream::synchronize(api, self.streams[stream]),
            Action::SyncEvent(event) => event::synchronize(api, self.events[event]),
            Action::SyncContext => context::synchronize(api),
            Action::PollStream(stream) => until(|| stream::query(api, self.streams[stream])),
            Action::PollEvent(event) => until(|| event::query(api, self.events[event])),
            Action::AskStream(stream) => stream::query(api, self.streams[stream]).map(drop),
            Action::Read { from } => {
                let base = self.at(from).0 as *const u32;
                let mut words = vec![0; from.words()];
                // A loop: a finding has the innermost frames only, and they have to reach the function with the step's number.
                for (index, word) in words.iter_mut().enumerate() {
                    // SAFETY: the words are pinned, and live until the process ends.
                    *word = unsafe { base.wrapping_add(index).read_volatile() };
                }
                self.seen.borrow_mut().insert(step.number, words);
                Ok(())
            }
            Action::Write { to, value } => {
                let base = self.at(to).0 as *mut u32;
                for index in 0..to.words() {
                    // SAFETY: as above.
                    unsafe { base.wrapping_add(index).write_volatile(value.wrapping_add(index as u32)) };
                }
                Ok(())
            }
        }
    }

    fn work(&self, step: usize, stream: CUstream, work: &Work) -> Done {
        let api = &self.api;
        match *work {
            Work::Fill { to, value } => fill::d32_async(api, self.at(to), value, to.words(), stream),
            Work::Copy { to, from } => {
                let bytes = 4 * to.words();
                // SAFETY: both ends are memory of the driver.
                unsafe { copy::unified_async(api, self.at(to), self.at(from), bytes, stream) }
            }
            // SAFETY: as above.
            Work::CopyNow { to, from } => unsafe { copy::unified(api, self.at(to), self.at(from), 4 * to.words()) },
            Work::Upload { to, value } => {
                let words = counting(to, value);
                // SAFETY: the words outlive the call, which has read them when it returns.
                unsafe { copy::host_to_device_async(api, self.at(to), words.as_ptr().cast(), words.len(), stream) }
            }
            Work::UploadNow { to, value } => copy::host_to_device(api, self.at(to), &counting(to, value)),
            Work::Download { from } => {
                let mut words = vec![0_u32; from.words()];
                let (to, bytes) = (words.as_mut_ptr().cast(), 4 * words.len());
                if self.is_pinned(from) {
                    // SAFETY: the words outlive the call, which has written them when it returns.
                    unsafe { copy::unified_async(api, CUdeviceptr(to as u64), self.at(from), bytes, stream) }?;
                } else {
                    // SAFETY: as above.
                    unsafe { copy::device_to_host_async(api, to, self.at(from), bytes, stream) }?;
                }
                self.seen.borrow_mut().insert(step, words);
                Ok(())
            }
            Work::Mix { to, from, add } => self.launch(self.mix, stream, [self.at(to), self.at(from)], to.words(), add),
            Work::Store { to, from, add } => {
                self.launch(self.store, stream, [self.at(to), self.at(from)], to.words(), add)
            }
            Work::Add { to, add } => self.launch(self.add, stream, [self.at(to); 2], to.words(), add),
            Work::Host { slot, to, .. } => {
                let data = self.buffers.borrow()[to.buffer].0 as *mut c_void;
                // SAFETY: the function gets the pinned words that it uses, which live until the process ends.
                unsafe { stream::launch_host(api, stream, HOST_FUNCTIONS[slot], data) }
            }
        }
    }

    /// Reads the buffers when all work is done.
    fn end(self) -> Result<Values, DriverError> {
        let mut buffers = Vec::new();
        for (number, home) in self.program.buffers.iter().enumerate() {
            let at = self.buffers.borrow()[number];
            let mut bytes = vec![0; 4 * home.words()];
            match home {
                // It was freed.
                Home::Pool if at == CUdeviceptr::NULL => bytes.clear(),
                Home::Device | Home::Pool => copy::device_to_host(&self.api, &mut bytes, at)?,
                // SAFETY: the words are pinned, and no work uses them any more.
                Home::Pinned => unsafe {
                    std::ptr::copy_nonoverlapping(at.0 as *const u8, bytes.as_mut_ptr(), bytes.len());
                },
            }
            buffers.push(bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect());
        }
        Ok(Values { buffers, seen: self.seen.into_inner() })
    }
}

fn counting(to: Range, value: u32) -> Vec<u8> {
    (0..to.words()).flat_map(|index| value.wrapping_add(index as u32).to_le_bytes()).collect()
}

/// Asks until the answer is yes.
fn until(ask: impl Fn() -> Result<bool, DriverError>) -> Done {
    while !ask()? {
        thread::yield_now();
    }
    Ok(())
}

/// Sets what the host functions of this process do.
pub(crate) fn set_host_work(program: &Program) {
    let mut all = vec![HostWork { to: 0, from: 0, words: 0, add: 0 }; program.slots];
    let in_steps = program.steps.iter().filter_map(|step| match &step.action {
        Action::Work { work, .. } => Some(work),
        _ => None,
    });
    let in_graphs = program.graphs.iter().flat_map(|graph| &graph.steps).filter_map(|step| match step {
        GraphStep::Work { work, .. } => Some(work),
        _ => None,
    });
    for work in in_steps.chain(in_graphs) {
        if let Work::Host { slot, to, from, add } = *work {
            all[slot] = HostWork { to: to.start, from: from.start, words: to.words(), add };
        }
    }
    HOST_WORK.set(all).expect("a process runs one program");
}
