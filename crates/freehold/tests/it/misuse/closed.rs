//! Programs that use what was closed, dropped, resized or belongs to another device: they get an error, or earlier work
//! completes with the memory that it was given.

use freehold::{Arena, DeviceVec, Error, Grid};

use crate::own::{Kernels, N, Own, grid, is_handed_out};

#[test]
fn everything_of_a_closed_context_is_refused_and_can_be_dropped() {
    let own = Own::new();
    let [home] = own.streams();
    let context = own.device.new_context().unwrap();
    let (stream, kernels) = (context.new_stream().unwrap(), Kernels::load(&context));
    let mut x = stream.upload(&[7_u32; N]).unwrap();
    let (y, event) = (stream.upload(&[7_u32; N]).unwrap(), stream.event().unwrap());
    let mut vec = DeviceVec::<u32>::new(&stream).unwrap();
    vec.extend_from_host(&stream, &[1]).unwrap();
    let mut arena = Arena::new(&stream, 4096).unwrap();
    let shared = y.share();
    assert!(context.clone().close().is_err(), "blocks live in it");
    context.clone().close_with_blocks().map_err(Error::from).unwrap();
    let closed =
        |refused: Result<(), Error>| assert!(matches!(refused, Err(Error::ContextClosed { .. })), "{refused:?}");
    closed(stream.download(&x).map(drop));
    closed(home.download(&x).map(drop));
    closed(home.download(&shared).map(drop));
    closed(home.download(&x.view(1..).unwrap()).map(drop));
    closed(home.fill(&mut x, 1));
    closed(home.copy(&shared, &mut x));
    closed(stream.alloc::<u32>(1).map(drop));
    closed(stream.synchronize());
    closed(home.lend(&x).map(drop));
    closed(home.launch(&own.kernels.add, grid(), (&mut x, 1_u32, N as u32)));
    closed(stream.launch(&kernels.count, Grid::line(1, 1), ()));
    closed(home.download(&vec).map(drop));
    closed(vec.resize(&stream, 1000, 1));
    closed(arena.scope(|scope| scope.alloc::<u8>(1).and_then(|mut piece| home.fill(&mut piece, 1))));
    closed(kernels.module.kernels().map(drop));
    closed(crate::own::kernel(&kernels.module, "add").map(drop));
    closed(context.new_stream().map(drop));
    assert!(x.resize(&home, 10 * N).is_err() && x.export().is_err());
    assert!(own.device.release(x.address()).is_err());
    drop((event, vec, arena, shared, kernels, x, stream, context));
    let z = home.upload(&[1_u32; N]).unwrap();
    assert_eq!(home.download(&z).unwrap(), [1; N]);
}

#[test]
fn what_is_dropped_under_a_kernel_stays_until_the_kernel_has_passed() {
    let own = Own::new();
    let [home, busy, other] = own.streams();
    let (mut x, mut out) = (home.upload(&[7_u32; N]).unwrap(), home.zeros::<u32>(N).unwrap());
    let module = own.kernels.module.duplicate().unwrap();
    let add = crate::own::kernel(&module, "add").unwrap();
    home.synchronize().unwrap();
    let gate = own.gate();
    own.hold(&busy, &gate);
    busy.launch(&add, grid(), (&mut x, 1_u32, N as u32)).unwrap();
    busy.copy(&x, &mut out).unwrap();
    let at = x.address();
    drop((x, add));
    module.close();
    drop(busy);
    assert!(!is_handed_out(&home, at) && !is_handed_out(&other, at), "a kernel has yet to use it");
    gate.open();
    assert_eq!(other.download(&out).unwrap(), [8; N]);
}

#[test]
fn a_block_that_is_resized_under_a_kernel_has_what_the_kernel_makes_of_it() {
    let own = Own::new();
    let [home, busy] = own.streams();
    let mut x = home.upload(&[7_u32; N]).unwrap();
    let mut vec = DeviceVec::<u32>::new(&home).unwrap();
    vec.extend_from_host(&home, &[7; N]).unwrap();
    home.synchronize().unwrap();
    let gate = own.gate();
    own.hold(&busy, &gate);
    busy.launch(&own.kernels.add, grid(), (&mut x, 1_u32, N as u32)).unwrap();
    busy.launch(&own.kernels.add, grid(), (&mut vec, 1_u32, N as u32)).unwrap();
    x.resize(&home, 100 * N).unwrap();
    vec.resize(&home, 100 * N, 3).unwrap();
    vec.truncate(N + 1);
    vec.shrink_to_fit().unwrap();
    gate.open();
    assert_eq!(home.download(&x.view(..N).unwrap()).unwrap(), [8; N]);
    assert_eq!(home.download(&vec).unwrap(), [vec![8; N], vec![3]].concat());
}

#[test]
fn what_is_another_device_s_is_refused() {
    let own = Own::new();
    let other = freehold::open::device(None).unwrap();
    let ([here], there) = (own.streams(), other.new_stream().unwrap());
    let (mut x, y) = (here.upload(&[7_u32; N]).unwrap(), there.upload(&[8_u32; N]).unwrap());
    let refused =
        |outcome: Result<(), Error>| assert!(matches!(outcome, Err(Error::OtherDevice { .. })), "{outcome:?}");
    refused(here.download(&y).map(drop));
    refused(there.copy(&y, &mut x));
    refused(there.fill(&mut x, 1));
    refused(there.lend(&x).map(drop));
    refused(here.wait(&there.event().unwrap()));
    refused(there.launch(&own.kernels.add, grid(), (&mut x, 1_u32, N as u32)));
    refused(there.read_variable::<u32>(&own.kernels.module, "counter").map(drop));
    refused(other.note_use(x.address(), &here));
    let at = x.address();
    refused(x.release_after(&there.event().unwrap()).map_err(|failed| {
        assert_eq!(failed.value.address(), at);
        failed.error
    }));
}

#[test]
fn a_kernel_of_another_context_is_refused() {
    let own = Own::new();
    let context = own.device.new_context().unwrap();
    let stream = context.new_stream().unwrap();
    let refused = stream.launch(&own.kernels.count, Grid::line(1, 1), ());
    assert!(matches!(refused, Err(Error::OtherContext { .. })));
}
