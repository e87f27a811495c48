//! Nothing on the host waits for the device unless the caller asked for it: every call with that promise is made while
//! kernels run that end only when the test lets them.

use crate::children::alone;
use crate::own;
use crate::shared;

use std::os::fd::AsFd;

use freehold::{Adoption, Block, Context, Error, Permission, Result, Shared, Stream};
use own::{Gate, Kernels, N, Own, grid};
use shared::CHUNK;

/// More than an upload takes through small buffers.
const LARGE: usize = 8 << 20;

/// A created context with a kernel that runs in one stream of it.
struct Busy {
    context: Context,
    kernels: Kernels,
    stream: Stream,
}

impl Busy {
    fn new(own: &Own) -> Self {
        let context = own.device.new_context().unwrap();
        let (kernels, stream) = (Kernels::load(&context), context.new_stream().unwrap());
        warm(&kernels, &stream);
        Self { context, kernels, stream }
    }
}

/// Does work of each sort once: the first of a sort may wait.
fn warm(kernels: &Kernels, stream: &Stream) {
    let mut x = stream.zeros::<u32>(N).unwrap();
    let mut y = stream.upload(&[1_u32; N]).unwrap();
    stream.copy(&x, &mut y).unwrap();
    stream.launch(&kernels.add, grid(), (&mut x, 1_u32, N as u32)).unwrap();
    assert_eq!(stream.download(&x).unwrap(), [1; N]);
}

struct Scene {
    own: Own,
    gate: Gate,
    /// A stream with a kernel that runs, and one without.
    busy: Stream,
    idle: Stream,
    second: Busy,
}

impl Scene {
    /// Makes a call, and fails with its name where it came back only when the gate had been opened for it.
    #[track_caller]
    fn call<T>(&self, name: &str, act: impl FnOnce() -> Result<T>) -> T {
        let outcome = act();
        assert!(!self.gate.was_opened_late(), "{name} waited for a kernel that runs");
        outcome.unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    fn add(&self, stream: &Stream, to: &mut Block<u32>) -> Result<()> {
        stream.launch(&self.own.kernels.add, grid(), (to, 1_u32, N as u32))
    }

    /// Memory, in a stream of either sort: made, filled, used.
    fn memory_in(&self, name: &str, stream: &Stream) -> Vec<Block<u32>> {
        let call = |what: &str| format!("{what} in {name}");
        let large = vec![3_u8; LARGE];
        let mut fresh = self.call(&call("alloc of fresh memory"), || stream.alloc::<u32>(N));
        self.call(&call("fill"), || stream.fill_bytes(&mut fresh, 0));
        let mut small = self.call(&call("upload"), || stream.upload(&[1_u32; N]));
        let mut wide = self.call(&call("upload of 8 MiB"), || stream.upload(&large));
        self.call(&call("write of 8 MiB"), || stream.write(&mut wide, &large));
        self.call(&call("write"), || stream.write(&mut small, &[2; N]));
        self.call(&call("write to a part"), || stream.write(&mut small.view_mut(1..3)?, &[2; 2]));
        self.call(&call("copy"), || stream.copy(&small, &mut fresh));
        self.call(&call("launch"), || self.add(stream, &mut fresh));
        self.call(&call("drop of 8 MiB"), || {
            drop(wide);
            Ok(())
        });
        self.call(&call("alloc of memory in the pool"), || stream.alloc::<u8>(LARGE));
        self.call(&call("zeros"), || stream.zeros::<u32>(N));
        vec![fresh, small]
    }

    /// Blocks that running kernels use: in other streams, as others', and released in every way.
    fn blocks_in_use(&self, mut used: Vec<Block<u32>>) {
        for block in &mut used {
            self.call("launch in an idle stream, of a block in use", || self.add(&self.idle, block));
            let kernel = &self.second.kernels.add;
            self.call("launch in another context, of a block in use", || {
                self.second.stream.launch(kernel, grid(), (&mut *block, 1_u32, N as u32))
            });
        }
        let mut next = || used.pop().unwrap();
        let (device, event) = (&self.own.device, self.call("event", || self.busy.event()));
        self.call("close", || next().close().map_err(Error::from));
        self.call("release_after", || next().release_after(&event).map_err(Error::from));
        let address = next().into_address();
        self.call("note_use", || device.note_use(address, &self.busy));
        self.call("release", || device.release(address));
        let address = next().into_address();
        let claimed = self.call("claim", || device.claim(address));
        self.call("drop of a block in use", || {
            drop(claimed);
            Ok(())
        });
        let shared: Shared<u32> = next().share();
        let mut copy = self.call("alloc", || self.idle.alloc::<u32>(N));
        self.call("copy of a shared block", || self.idle.copy(&shared, &mut copy));
        self.call("drop of the last reference", || {
            drop(shared);
            Ok(())
        });
        let whole = next();
        // SAFETY: the values do not matter.
        let free = unsafe { whole.unordered() };
        self.call("unordered launch", || self.idle.launch(&self.own.kernels.add, grid(), (free, 1_u32, N as u32)));
        assert!(used.is_empty());
    }

    fn streams(&self, dropped: Stream, closed: Stream) {
        let event = self.call("event of a busy stream", || self.busy.event());
        assert!(!self.call("is_complete", || event.is_complete()));
        assert!(!self.call("is_idle", || self.busy.is_idle()));
        let made = self.call("stream", || self.own.device.new_stream());
        self.call("upload of 8 MiB into a stream without work", || made.upload(&vec![3_u8; LARGE]));
        self.call("wait", || made.wait(&event));
        self.call("wait, across contexts", || self.second.stream.wait(&event));
        let mut x = self.call("alloc", || made.alloc::<u32>(N));
        self.call("launch after a wait", || self.add(&made, &mut x));
        self.call("drop of a stream that waits", || {
            drop(made);
            Ok(())
        });
        self.call("drop of a busy stream", || {
            drop(dropped);
            Ok(())
        });
        self.call("close of a busy stream", || closed.close().map_err(Error::from));
    }

    fn modules(&self, first: Kernels, second: Kernels) {
        let Kernels { module, add, .. } = first;
        self.call("kernel", || crate::own::kernel(&module, "add"));
        self.call("variable", || module.variable("counter"));
        let mut x = self.call("alloc", || self.busy.alloc::<u32>(N));
        self.call("launch of a kernel that is closed next", || {
            self.busy.launch(&add, grid(), (&mut x, 1_u32, N as u32))
        });
        self.call("close of a module with a launch pending", || {
            drop(add);
            module.close();
            Ok(())
        });
        self.call("close of a duplicate", || {
            drop(second);
            Ok(())
        });
    }

    fn contexts(&self, [dropped, closed, closed_with_blocks]: [Busy; 3]) {
        self.call("context", || self.own.device.new_context());
        let (stays, mut x) = (closed.stream, self.call("alloc", || closed_with_blocks.stream.alloc::<u32>(N)));
        let kernels = &closed_with_blocks.kernels;
        self.call("launch in a context that is closed next", || {
            closed_with_blocks.stream.launch(&kernels.add, grid(), (&mut x, 1_u32, N as u32))
        });
        self.call("drop of a context with work pending", || {
            drop(dropped);
            Ok(())
        });
        self.call("close of a context with work pending", || closed.context.close().map_err(Error::from));
        self.call("close of a context with blocks in use", || {
            let error = closed_with_blocks.context.clone().close().unwrap_err().error;
            assert!(matches!(error, Error::ContextInUse { .. }), "{error}");
            closed_with_blocks.context.close_with_blocks().map_err(Error::from)
        });
        self.call("drops in closed contexts", || {
            drop((stays, x));
            Ok(())
        });
    }

    /// Memory and words of other processes, which come and go while kernels run and wait.
    fn others(&self) {
        let (device, memory, words) = (&self.own.device, shared::memory(CHUNK), shared::words(8));
        let imported = self.call("import", || device.import(memory.as_fd(), CHUNK, Permission::ReadWrite));
        let mut part = self.call("part", || imported.slice::<u32>(&self.idle, 0, N));
        let kernel = &self.own.kernels.add;
        self.call("launch with a part", || self.busy.launch(kernel, grid(), (&mut part, 1_u32, N as u32)));
        self.call("launch with a part in use", || self.idle.launch(kernel, grid(), (&mut part, 1_u32, N as u32)));
        assert!(self.call("pending", || Ok(part.pending())));
        self.call("gather", || part.gather(&self.idle));
        self.call("import that is refused", || {
            assert!(device.import(words.as_fd(), CHUNK, Permission::Read).is_err());
            Ok(())
        });
        let semaphores = self.call("semaphores", || device.shared_semaphores(words.as_fd(), 1));
        self.call("write_value", || self.busy.write_value(&semaphores, 0, 1));
        self.call("wait_value", || self.idle.wait_value(&semaphores, 0, 1));
        assert_eq!(self.call("read", || Ok(semaphores.read(0))), 0);
        self.call("drop of an import in use", || {
            drop((part, imported));
            Ok(())
        });
        self.call("drop of semaphores in use", || {
            drop(semaphores);
            Ok(())
        });
        let unused = self.call("semaphores", || device.shared_semaphores(words.as_fd(), 1));
        self.call("drop of unused semaphores", || {
            drop(unused);
            Ok(())
        });
    }

    fn device(&self) {
        let device = &self.own.device;
        self.call("tidy", || device.tidy());
        self.call("trim", || device.trim());
        self.call("free_bytes", || device.free_bytes());
        let foreign = 1 << 20;
        let adopted = self.call("adopt", || device.adopt(foreign, 4096, Adoption::Foreign, "others"));
        self.call("owner_of", || Ok(device.owner_of(foreign)));
        self.call("blocks", || Ok(device.blocks()));
        self.call("drop of what was adopted", || {
            drop(adopted);
            Ok(())
        });
        let recording = self.call("record", || device.record(None));
        let recorded = self.call("zeros that are recorded", || self.busy.zeros::<u32>(N));
        self.call("flush of a recording", || recording.flush());
        self.call("drop of what was recorded, and of the recording", || {
            drop((recorded, recording));
            Ok(())
        });
        self.call("troubles", || Ok(device.drop_errors().into_iter().next().map_or(Ok(()), Err))).unwrap();
    }
}

#[test]
fn no_call_waits_for_kernels_unless_it_promises_to() {
    alone("no_call_waits_for_kernels_unless_it_promises_to", || {
        let own = Own::new();
        let [busy, idle, dropped, closed] = own.streams();
        warm(&own.kernels, &busy);
        let [second, others @ ..] = [(); 4].map(|()| Busy::new(&own));
        let modules = [(); 2].map(|()| Kernels::load(own.device.primary()));
        let mut kept = busy.upload(&[1_u32; N]).unwrap();
        own.device.synchronize().unwrap();
        let gate = own.gate();
        for stream in [&busy, &dropped, &closed] {
            own.hold(stream, &gate);
        }
        for other in others.iter().chain([&second]) {
            other.kernels.hold(&other.stream, &gate);
        }
        let scene = Scene { own, gate, busy, idle, second };
        let [first, duplicate] = modules;
        scene.call("launch", || scene.add(&scene.busy, &mut kept));
        let mut used = scene.memory_in("a busy stream", &scene.busy);
        used.extend(scene.memory_in("an idle stream", &scene.idle));
        used.extend(scene.memory_in("another idle stream", &scene.own.device.new_stream().unwrap()));
        scene.blocks_in_use(used);
        scene.streams(dropped, closed);
        scene.modules(first, duplicate);
        scene.contexts(others);
        scene.others();
        scene.device();
        scene.gate.open();
        assert_eq!(scene.busy.download(&kept).unwrap(), [2; N]);
        scene.second.context.synchronize().unwrap();
        scene.own.device.synchronize().unwrap();
    });
}
