//! A sticky fault: every call reports it and names the kernel. It makes the process unusable, so the test has its own.

use crate::children::alone;
use crate::own;

use freehold::{Adoption, CloseError, Error, Grid, Result};
use freehold_driver::cuda::CUerror;
use own::{Kernels, N, Own, grid, image};

/// What a call says, which is a fault.
#[track_caller]
fn said<T>(call: &str, outcome: Result<T>) -> String {
    match outcome {
        Err(Error::Faulted(fault)) => fault.to_string(),
        Err(error) => panic!("{call} says: {error}"),
        Ok(_) => panic!("{call} says nothing of the fault"),
    }
}

#[test]
fn after_a_fault_every_call_names_the_kernel_and_drops_do_nothing() {
    alone("after_a_fault_every_call_names_the_kernel_and_drops_do_nothing", || {
        let own = Own::new();
        let (device, Kernels { module, add, .. }) = (&own.device, &own.kernels);
        let stray = crate::own::kernel(module, "stray").unwrap();
        let [a, b] = own.streams();
        let context = device.new_context().unwrap();
        let far = context.new_stream().unwrap();
        let (mut x, mut y) = (a.upload(&[1_u32; N]).unwrap(), b.upload(&[1_u32; N]).unwrap());
        let (shared, elsewhere) = (a.upload(&[1_u32; N]).unwrap().share(), far.upload(&[1_u32; N]).unwrap());
        let address = a.upload(&[1_u32; N]).unwrap().into_address();
        a.launch(add, grid(), (&mut x, 1_u32, N as u32)).unwrap();
        b.launch(add, grid(), (&mut y, 1_u32, N as u32)).unwrap();
        device.synchronize().unwrap();
        let event = b.event().unwrap();

        a.launch(&stray, Grid::line(1, 1), ()).unwrap();
        let fault = match a.synchronize() {
            Err(Error::Faulted(fault)) => fault,
            other => panic!("the wait says nothing of the fault: {other:?}"),
        };
        assert_eq!(fault.noticed.code, CUerror::ILLEGAL_ADDRESS.into());
        let suspects: Vec<_> = fault.suspects.iter().map(|suspect| (&*suspect.kernel, suspect.stream)).collect();
        assert_eq!((suspects, fault.unnamed), (vec![("stray", a.id())], 0));

        let block = |outcome: freehold::Result<()>| outcome;
        let mut closed = Vec::new();
        let mut close = |outcome: std::result::Result<(), CloseError<freehold::Block<u32>>>| {
            outcome.map_err(|failed| {
                closed.push(failed.value);
                failed.error
            })
        };
        let all = [
            said("alloc", a.alloc::<u32>(N)),
            said("upload", b.upload(&[1_u32; N])),
            said("write", b.write(&mut y, &[1; N])),
            said("download", b.download(&y)),
            said("copy", b.copy(&x, &mut y)),
            said("fill", b.fill_bytes(&mut y, 0)),
            said("launch", b.launch(add, grid(), (&mut y, 1_u32, N as u32))),
            said("launch with wrong arguments", b.launch(add, grid(), ())),
            said("event", a.event()),
            said("is_complete", event.is_complete()),
            said("synchronize an event", event.synchronize()),
            said("wait", b.wait(&event)),
            said("synchronize a stream", b.synchronize()),
            said("is_idle", b.is_idle()),
            said("stream", device.new_stream()),
            said("stream of a created context", context.new_stream()),
            said("context", device.new_context()),
            said("synchronize a context", context.synchronize()),
            said("module", device.module(&image())),
            said("kernel", crate::own::kernel(module, "add")),
            said("variable", module.variable("counter")),
            said("duplicate", module.duplicate()),
            said("synchronize the device", device.synchronize()),
            said("tidy", device.tidy()),
            said("trim", device.trim()),
            said("free_bytes", device.free_bytes()),
            said("name", device.name()),
            said("release", device.release(address)),
            said("claim", device.claim(address)),
            said("note_use", device.note_use(address, &a)),
            said("adopt", device.adopt(1 << 20, 4096, Adoption::Foreign, "others")),
            said("close", close(x.close())),
            said("release_after", close(y.release_after(&event))),
            said("release_now", close(elsewhere.release_now())),
            said("close a stream", block(a.close().map_err(Error::from))),
            said("close a context", block(context.close().map_err(Error::from))),
        ];
        for words in all {
            assert_eq!(words, fault.to_string());
        }
        let ending = match &fault.details {
            None => "; kernel stray was at fault",
            Some(details) => &*details.message,
        };
        assert!(fault.to_string().ends_with(ending) && ending.contains("kernel stray"), "{fault}");
        assert_eq!(device.owner_of(closed[0].address() + 8).unwrap().base, closed[0].address());
        assert_eq!(closed.len(), 3, "what was not closed comes back");
        drop((closed, shared, b, far, stray, event));
        assert!(device.drop_errors().is_empty());
    });
}
