//! Refused calls, and their messages.

use freehold::Grid;
use freehold_broker::wire::{Fence, Id};
use freehold_broker::{Argument, Call, CallError, Caller, ErrorOrigin, Executed, Launch, Module, SpinPolicy};

use freehold_testing::at_effort;

use super::TEXT;
use crate::harness::{Harness, until};

fn setting(harness: &Harness) -> (Caller, Module) {
    let caller = Caller::connect_at(&harness.socket()).unwrap();
    let module = caller.put_module("blas/saxpy", TEXT).unwrap();
    (caller, module)
}

/// The message of a call that is refused here or by the worker. Nothing was executed.
fn said(call: Result<Call, CallError>) -> String {
    let error = call.and_then(|call| call.wait()).unwrap_err();
    assert_eq!((error.origin(), error.executed()), (ErrorOrigin::Caller, Executed::No), "{error}");
    error.to_string()
}

pub(crate) fn every_bad_call_is_refused_in_a_sentence(harness: &Harness) {
    let (caller, module) = setting(harness);
    let mut others = harness.link();
    let other = others.reserve(4096).unwrap();
    // SAFETY: the caller has no named lease, and nothing else uses the leases of this test.
    let link = || unsafe { caller.link() }.unwrap();
    let own = link().reserve(4096).unwrap();
    // SAFETY: as above.
    let lease = |lease: Id, offset_bytes: u64| unsafe { caller.argument(lease, offset_bytes) };
    assert_eq!(
        caller.module("blas/saxpi").unwrap_err().to_string(),
        "there is no module blas/saxpi: `freehold module put blas/saxpi FILE` makes one; nearest: blas/saxpy"
    );
    assert_eq!(
        super::test_kernel(&module, "saxpi").unwrap_err().to_string(),
        "module blas/saxpy has no kernel saxpi; it has empty, saxpy, step, spin, stray, sum"
    );
    let saxpy = super::test_kernel(&module, "saxpy").unwrap();
    let grid = Grid::line(1, 32);
    let call = |arguments: &[Argument<'_>]| said(caller.call(&Launch::new(&saxpy, grid, arguments)));
    let (y, x) = (lease(own.lease, 0), lease(own.lease, 64));
    assert_eq!(call(&[y.clone(), x.clone()]), "kernel saxpy takes 4 arguments, 2 were given");
    assert_eq!(call(&[y.clone(), x.clone(), 2_u32.into(), 1_u32.into()]), "argument 3 of saxpy is f32, u32 was given");
    assert_eq!(
        call(&[y.clone(), x.clone(), 2.0_f32.into(), 1_u64.into()]),
        "argument 4 of saxpy is u32, u64 was given"
    );
    assert_eq!(
        call(&[y.clone(), x.clone(), y.clone(), 1_u32.into()]),
        "argument 3 of saxpy is f32: a lease needs a parameter of 8 bytes"
    );
    assert_eq!(
        call(&[y.clone(), Argument::bytes([0; 8]), 2.0_f32.into(), 1_u32.into()]),
        "argument 2 of saxpy is u64, 8 bytes was given"
    );
    assert_eq!(
        call(&[y.clone(), lease(other.lease, 0), 2.0_f32.into(), 1_u32.into()]),
        "argument 2 of saxpy is a lease of another process"
    );
    let over = link().reserve(4096).unwrap().lease;
    link().return_lease(over, Fence::default()).unwrap();
    assert_eq!(
        call(&[y.clone(), lease(over, 0), 2.0_f32.into(), 1_u32.into()]),
        "argument 2 of saxpy is a lease that has ended"
    );
    assert_eq!(
        call(&[y.clone(), lease(Id(7 << 32 | 999), 0), 2.0_f32.into(), 1_u32.into()]),
        "argument 2 of saxpy is not a lease"
    );
    assert_eq!(
        call(&[y.clone(), lease(own.lease, 4096), 2.0_f32.into(), 1_u32.into()]),
        "argument 2 of saxpy begins at byte 4096 of a lease of 4096 bytes"
    );
    let empty = super::test_kernel(&module, "empty").unwrap();
    let shaped = |grid: Grid| said(caller.call(&Launch::new(&empty, grid, &[])));
    let range = "a launch has 1 to 2147483647 blocks, 1 to 65535 in y and z, of 1 to 1024 threads:";
    assert_eq!(shaped(Grid::line(0, 32)), format!("{range} [0, 1, 1] of [32, 1, 1] requested"));
    assert_eq!(shaped(Grid::line(1, 1025)), format!("{range} [1, 1, 1] of [1025, 1, 1] requested"));
    let tall = Grid { blocks: [1, 65536, 1], ..Grid::line(1, 1) };
    assert_eq!(shaped(tall), format!("{range} [1, 65536, 1] of [1, 1, 1] requested"));
    assert_eq!(
        shaped(Grid::line(1, 1).with_shared(1 << 20)),
        "the device cannot launch empty with this grid: use fewer threads or less shared memory"
    );
    let stream = Launch { stream: 16, ..Launch::new(&empty, grid, &[]) };
    assert_eq!(said(caller.call(&stream)), "no stream 16: a process has 16 at its worker, numbered from 0");
    // A caller that was refused is served.
    let good = [y, x, 2.0_f32.into(), 1_u32.into()];
    caller.call(&Launch::new(&saxpy, grid, &good)).unwrap().wait().unwrap();
    // Calls before the module is dropped are executed, and calls after that find none.
    let before: Vec<Call> = (0..100).map(|_| caller.call(&Launch::new(&empty, grid, &[])).unwrap()).collect();
    caller.drop_module("blas/saxpy").unwrap();
    before.iter().for_each(|call| call.wait().unwrap());
    let gone = "there is no module blas/saxpy: `freehold module put blas/saxpy FILE` makes one";
    let newcomer = Caller::connect_at(&harness.socket()).unwrap();
    assert_eq!(said(newcomer.call(&Launch::new(&empty, grid, &[]))), gone);
    let refused = until("the worker has unloaded it", || {
        caller.call(&Launch::new(&empty, grid, &[])).and_then(|call| call.wait()).err()
    });
    assert_eq!(refused.to_string(), gone);
}

pub(crate) fn a_refused_call_is_never_seen_as_done(harness: &Harness) {
    let (caller, module) = setting(harness);
    caller.set_spin_policy(SpinPolicy::Forever);
    let empty = super::test_kernel(&module, "empty").unwrap();
    let grid = Grid::line(1, 1).with_shared(1 << 20);
    for _ in 0..at_effort(200, 2000, 100_000) {
        said(caller.call(&Launch::new(&empty, grid, &[])));
    }
}

pub(crate) fn every_bad_module_is_refused_in_a_sentence(harness: &Harness) {
    let (caller, module) = setting(harness);
    let refused = |name: &str, text: &str| caller.put_module(name, text).unwrap_err().to_string();
    assert_eq!(refused("a b", TEXT), "invalid byte 1 in the name: expected letters, digits, '-', '_', '.' and '/'");
    assert_eq!(refused("empty", ""), "a module has 1 to 16777216 bytes, this one 0");
    let broken = TEXT.replace("fma.rn.f32 %f3", "fma.rn.f32 %nowhere");
    let said = refused("broken", &broken);
    assert!(said.starts_with("the module does not compile:\n"), "{said}");
    assert!(said.contains("line 35"), "the compiler names the line: {said}");
    assert!(refused("prose", "This is not PTX.").starts_with("the module does not compile:\n"));
    let names = |caller: &Caller| caller.modules().unwrap().into_iter().map(|one| one.name).collect::<Vec<_>>();
    assert_eq!(names(&caller), ["blas/saxpy"], "a module that does not compile is not listed");
    // A name that was refused is free, also for a text that compiles.
    caller.put_module("broken", TEXT).unwrap();
    assert_eq!(names(&caller), ["blas/saxpy", "broken"]);
    assert_eq!(caller.put_module("blas/saxpy", TEXT).unwrap(), module, "the same text again is not an error");
    assert_eq!(
        refused("blas/saxpy", &TEXT.replace("Never ends", "Ends never")),
        "blas/saxpy: a module of that name exists with a different text: drop it first"
    );
    assert_eq!(
        caller.drop_module("blas/saxpi").unwrap_err().to_string(),
        "there is no module blas/saxpi: `freehold module put blas/saxpi FILE` makes one; nearest: blas/saxpy"
    );
}
