//! Programs in safe Rust that try to own a lease twice, or to make memory of an id. Each does not compile (`compiled`),
//! is refused, or does what it says, which is checked by reading the memory back.

mod compiled;

use std::path::Path;

use freehold::Grid;
use freehold_broker::{Access, Argument, Broker, CallError, Caller, Gpu, GpuError, Launch, Policy};

pub(crate) use self::compiled::*;
use crate::calls::{TEXT, Tenant, said, test_kernel};
use crate::harness::Harness;
use crate::leases::Outcome;

pub(crate) fn exchanged_or_forgotten_leases(harness: &Harness) {
    said(harness, "misuse-leases");
}

pub(crate) fn leases(socket: &Path) -> Outcome {
    let tenant = Tenant::new(socket)?;
    let (mut a, mut b) = (tenant.words(&[1; 1000])?, tenant.words(&[2; 1000])?);
    std::mem::swap(&mut a, &mut b);
    drop(a);
    let (mut c, d) = (tenant.words(&[3; 1000])?, tenant.words(&[4; 1000])?);
    assert_eq!([&b, &c, &d].map(|lease| tenant.read(lease).unwrap()), [1, 3, 4].map(|word| [word; 1000]));
    // A forgotten lease stays leased, and no other process gets it.
    let forgotten = c.address();
    std::mem::forget(std::mem::replace(&mut c, d));
    let e = tenant.words(&[5; 1000])?;
    assert!(![b.address(), c.address(), forgotten].contains(&e.address()));
    assert_eq!([&b, &c, &e].map(|lease| tenant.read(lease).unwrap()), [1, 4, 5].map(|word| [word; 1000]));
    Ok(())
}

pub(crate) fn memory_of_others_is_not_an_argument(harness: &Harness) {
    said(harness, "misuse-numbers");
}

pub(crate) fn numbers(socket: &Path) -> Outcome {
    let tenant = Tenant::new(socket)?;
    let mut lease = tenant.words(&[1; 100])?;
    let kernel = test_kernel(&tenant.module, "step")?;
    let refused = |caller: &Caller, memory: Argument<'_>| {
        let given = [memory, 7_u32.into(), 100_u32.into()];
        let outcome = caller.call(&Launch::new(&kernel, Grid::cover(100_u32, 64), &given)).map(drop);
        assert!(matches!(outcome, Err(CallError::ForeignLease { argument: 1, .. })), "{outcome:?}");
    };
    // Two tenants in one process: the same id may be another lease at the other tenant.
    let other = Broker::connect_at(tenant.broker.device(), socket)?;
    refused(&Caller::from_broker(&other)?, lease.argument_mut(0));
    refused(&Caller::connect_at(socket)?, lease.argument_mut(0));
    refused(&tenant.caller, Argument::any_memory());
    tenant.broker.publish("words", tenant.words(&[2; 100])?, Policy::Open)?;
    let alone = Caller::connect_at(socket)?;
    let named = alone.lease_named("words", Access::Write)?;
    refused(&tenant.caller, named.argument(0));
    alone.commit(named)?;
    assert_eq!(tenant.read(&lease)?, [1; 100]);
    // Another caller of the same tenant has the same leases.
    let given = [lease.argument_mut(0), 7_u32.into(), 100_u32.into()];
    Caller::from_broker(&tenant.broker)?.call(&Launch::new(&kernel, Grid::cover(100_u32, 64), &given))?.wait()?;
    assert_eq!(tenant.read(&lease)?, [10; 100]);
    // Ids of buffers belong to their own GPU.
    let device = tenant.broker.device();
    let gpus = [Gpu::on(device)?, Gpu::on(device)?, Gpu::at_broker_path(device, socket)?];
    let buffers = gpus.iter().map(|gpu| gpu.upload(&[1_u32; 100])).collect::<Result<Vec<_>, _>>()?;
    for (at, gpu) in gpus.iter().enumerate() {
        // SAFETY: `step` writes the first `n` elements of its argument.
        let step = unsafe { gpu.kernel(TEXT, "step") }?;
        for (of, buffer) in buffers.iter().enumerate() {
            let launched =
                gpu.launch(&step, Grid::cover(100_u32, 64), &[buffer.argument(0), 7_u32.into(), 100_u32.into()]);
            match of == at {
                true => launched?,
                false => assert!(matches!(launched, Err(GpuError::OtherGpu)), "{launched:?}"),
            }
        }
        assert_eq!(gpu.download(&buffers[at])?, [10; 100]);
    }
    Ok(())
}
