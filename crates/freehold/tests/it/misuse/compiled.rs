//! Programs that do not compile. Each group is one crate with a function for each program: the compiler runs once for
//! each group, and has to report the expected error in every function, at the marked line.
//!
//! The compiler reports type errors before it checks borrows, so these are separate groups.

use freehold_testing::misuse::{Program, Programs};

const HEAD: &str = "
    #![allow(unused, dead_code)]
    use freehold::*;
    struct Own;
    type R = std::result::Result<(), Box<dyn std::error::Error>>;
";

/// What every program has: `x` and `y` are blocks, `s` and `t` streams, `m` a module, `k` a kernel, `d` a device, `g` a grid.
const GIVEN: &str =
    "(d: Device, s: Stream, t: Stream, m: Module, k: Kernel, g: Grid, mut x: Block<u32>, mut y: Block<u32>)";

/// Found by types, privacy, or for want of `unsafe`.
const TYPES: &[Program] = &[
    ("look up a kernel", "E0133", "m.kernel(\"add\")?;"),
    ("load a binary", "E0133", "Image::binary(b\"\")?;"),
    ("load a binary from a file", "E0133", "Image::file_binary(\"x.cubin\".as_ref())?;"),
    ("use a block out of order", "E0133", "x.unordered();"),
    ("give a kernel any address", "E0133", "RawAddress::new(4096);"),
    ("make an address without its constructor", "E0423", "RawAddress(4096);"),
    ("write what is borrowed to be read", "E0133", "DynArg::memory_shared(&x, 0);"),
    ("make an argument of a shared reference to write", "E0308", "DynArg::memory_mut(&x, 0);"),
    (
        "launch with arguments that another thread may have",
        "E0277",
        "s.launch(&k, g, &[DynArg::memory_mut(&mut x, 0).unwrap()][..])?;",
    ),
    ("use an argument twice", "E0599", "let a = DynArg::memory_mut(&mut x, 0).unwrap(); let b = a.clone();"),
    ("be an argument", "E0277", "fn is<T: Argument>() {} is::<Own>();"),
    ("give a pointer of the host", "E0277", "s.launch(&k, g, (&raw const x, 1u32, 1u32))?;"),
    ("give a reference to memory of the host", "E0277", "s.launch(&k, g, (&1u64, 1u32, 1u32))?;"),
    ("give a slice of the host", "E0277", "s.launch(&k, g, (&[1u32, 2][..], 1u32, 1u32))?;"),
    ("give a block away to a launch", "E0277", "s.launch(&k, g, (x, 1u32, 1u32))?;"),
    ("give a truth value", "E0277", "s.launch(&k, g, (&x, true, 1u32))?;"),
    ("give a reference as a structure", "E0277", "s.launch(&k, g, (Value(&x), 1u32, 1u32))?;"),
    ("give a text as a structure", "E0277", "s.launch(&k, g, (Value(\"text\"), 1u32, 1u32))?;"),
    ("write through a counted reference", "E0277", "let mut z = x.share(); s.launch(&k, g, (&mut z, 1u32, 1u32))?;"),
    ("write through a view for reading", "E0277", "let mut z = x.view(..)?; s.launch(&k, g, (&mut z, 1u32, 1u32))?;"),
    ("fill a counted reference", "E0277", "let mut z = x.share(); s.fill(&mut z, 1)?;"),
    ("fill a view for reading", "E0277", "let mut z = x.view(..)?; s.fill(&mut z, 1)?;"),
    ("write to a counted reference", "E0277", "let mut z = x.share(); s.write(&mut z, &[1])?;"),
    ("copy to a view for reading", "E0277", "let mut z = x.view(..)?; s.copy(&y, &mut z)?;"),
    ("copy rows to a counted reference", "E0277", "let mut z = x.share(); s.copy_rows(&y, 1, &mut z, 1, 1, 1)?;"),
    ("lend a counted reference to be written", "E0277", "let mut z = x.share(); s.lend_mut(&mut z)?;"),
    ("lend a block to be written that is borrowed to be read", "E0308", "s.lend_mut(&x)?;"),
    ("fill a block that is borrowed to be read", "E0308", "s.fill(&x, 1)?;"),
    ("copy to a block that is borrowed to be read", "E0308", "s.copy(&y, &x)?;"),
    ("upload to a block that is borrowed to be read", "E0308", "s.write(&x, &[1])?;"),
    ("have truth values, of which few bit patterns are some", "E0277", "s.alloc::<bool>(1)?;"),
    ("have characters", "E0277", "s.alloc::<char>(1)?;"),
    ("have references", "E0277", "s.alloc::<&'static u32>(1)?;"),
    ("have boxes", "E0277", "s.alloc::<Box<u32>>(1)?;"),
    ("have functions", "E0277", "s.alloc::<fn()>(1)?;"),
    ("have numbers that are never zero", "E0277", "s.zeros::<std::num::NonZeroU32>(1)?;"),
    ("have cells", "E0277", "s.alloc::<std::cell::Cell<u32>>(1)?;"),
    ("download as another type", "E0308", "let z: Vec<f64> = s.download(&x)?;"),
    ("copy between types", "E0277", "let mut z = s.alloc::<f64>(1)?; s.copy(&x, &mut z)?;"),
    ("copy a block", "E0599", "let z = x.clone();"),
    ("copy a stream", "E0599", "let z = s.clone();"),
    ("copy a view to write", "E0599", "let z = x.view_mut(..)?; let w = z.clone();"),
    ("copy a lending", "E0599", "let z = s.lend(&x)?; let w = z.clone();"),
    ("copy a vector", "E0599", "let z = DeviceVec::<u32>::new(&s)?.clone();"),
    ("copy an arena", "E0599", "let z = Arena::new(&s, 4096)?.clone();"),
    (
        "copy a piece",
        "E0599",
        "Arena::new(&s, 4096)?.scope(|c| { let z = c.alloc::<u8>(1).unwrap(); let w = z.clone(); });",
    ),
    ("name a kernel's handle", "E0616", "let z = k.raw;"),
    ("name a block's memory", "E0616", "let z = x.raw;"),
    ("name a kernel's module", "E0616", "let z = &k.module;"),
    ("use a source of one's own", "E0277", "fn is<T: Source<u8>>() {} is::<Own>();"),
    ("use a target of one's own", "E0277", "fn is<T: Target<u8>>() {} is::<Own>();"),
    ("destroy a stream by its handle", "E0133", "d.backend().destroy_stream(s.raw())?;"),
    ("copy from any address", "E0133", "d.backend().copy(4096, 8192, 1, s.raw())?;"),
    ("free a block behind its owner's back", "E0133", "d.backend().free(x.address())?;"),
    ("close the device's context", "E0133", "d.backend().close()?;"),
    ("unmap the pool", "E0133", "d.backend().virtual_memory().unwrap().unmap(x.address(), 4096)?;"),
    ("take the driver's table of a device", "E0133", "d.api();"),
    ("open a driver", "E0133", "open::open(None)?;"),
    ("take the software driver's table", "E0133", "freehold_softcuda::api();"),
    ("take the software driver's table for per-thread streams", "E0133", "freehold_softcuda::per_thread_api();"),
    ("make a table of functions of one's own", "E0133", "freehold_driver::cuda::DriverContract::new();"),
    ("make a device of a table", "E0133", "Device::new(todo!(), todo!())?;"),
    ("have a driver that is not started", "E0133", "open::untouched(open::Kind::Soft)?;"),
    ("be a allocator of any stream", "E0133", "open::foreign_pool(0)?;"),
    ("list foreign pools", "E0133", "open::known_foreign_pools();"),
    ("be a kernel's arguments", "E0277", "s.launch(&k, g, Own)?;"),
    ("read a variable as a reference", "E0277", "s.read_variable::<&'static u32>(&m, \"counter\")?;"),
];

/// Found by whoever reads the fields, in addition to all of the above.
const FIELDS: &[Program] = &[
    ("make a block of nothing", "E0451", "let z = Block { elements: std::marker::PhantomData, ..x };"),
    ("make a kernel of nothing", "E0451", "let z = Kernel { number: 7, ..k };"),
    ("make a view of any length", "E0451", "let z = View::<u8> { len: 1 << 40, ..todo!() };"),
];

/// Found by borrows and moves.
const BORROWS: &[Program] = &[
    ("give one block twice to be written", "E0499", "s.launch(&k, g, (&mut x, &mut x, 1u32))?;"),
    ("give one block to be read and to be written", "E0502", "s.launch(&k, g, (&mut x, &x, 1u32))?;"),
    ("copy a block to itself", "E0502", "s.copy(&x, &mut x)?;"),
    ("copy within a block", "E0502", "s.copy(&x.view(..1)?, &mut x.view_mut(1..)?)?;"),
    ("write a block under a view", "E0502", "let v = x.view(..)?; s.fill(&mut x, 1)?; s.download(&v)?;"),
    (
        "have two views to write",
        "E0499",
        "let mut v = x.view_mut(..1)?; let mut w = x.view_mut(..1)?; s.copy(&v, &mut w)?;",
    ),
    ("read under a view to write", "E0502", "let mut v = x.view_mut(..1)?; s.download(&x)?; s.fill(&mut v, 1)?;"),
    ("have a view after the block", "E0505", "let v = x.view(..)?; drop(x); s.download(&v)?;"),
    ("have a view after a release", "E0505", "let v = x.view(..)?; x.release_now().unwrap(); s.download(&v)?;"),
    (
        "have a view after its block has gone to its address",
        "E0505",
        "let v = x.view(..)?; x.into_address(); s.download(&v)?;",
    ),
    ("resize under a view", "E0502", "let v = x.view(..)?; x.resize(&s, 9)?; s.download(&v)?;"),
    ("split a view and keep it", "E0382", "let v = x.view_mut(..)?; let (a, b) = v.split_at(1)?; s.download(&v)?;"),
    ("write a block that is not mutable", "E0596", "let z = s.alloc::<u32>(1)?; s.fill(&mut z, 1)?;"),
    ("view a block to write that is not mutable", "E0596", "let z = s.alloc::<u32>(1)?; z.view_mut(..)?;"),
    ("use a block that was closed", "E0382", "x.close().unwrap(); s.download(&x)?;"),
    (
        "use a block that was released after an event",
        "E0382",
        "x.release_after(&s.event()?).unwrap(); s.download(&x)?;",
    ),
    ("use a block that is its address", "E0382", "let a = x.into_address(); s.download(&x)?;"),
    ("use a block that is shared", "E0382", "let z = x.share(); s.fill(&mut x, 1)?;"),
    ("use a reference that became the block", "E0382", "let z = x.share(); let b = z.into_block(); s.download(&z)?;"),
    ("use a stream that was closed", "E0382", "s.close().unwrap(); s.synchronize()?;"),
    ("use a context that was closed", "E0382", "let c = d.new_context()?; c.close().unwrap(); c.new_stream()?;"),
    ("use a module that was closed", "E0382", "m.close(); m.kernels()?;"),
    ("end a lending twice", "E0382", "let l = s.lend(&x)?; l.done(); l.done();"),
    ("end a lending that failed", "E0382", "let l = s.lend(&x)?; l.failed(); l.done();"),
    ("finish a recording twice", "E0382", "let r = d.record(None)?; r.finish()?; r.finish()?;"),
    (
        "use an argument's block before the launch",
        "E0502",
        "let a = DynArg::memory_mut(&mut x, 0).unwrap(); s.download(&x)?; s.launch(&k, g, &mut [a][..])?;",
    ),
    (
        "have two arguments of one block to write",
        "E0499",
        "let mut a = [DynArg::memory_mut(&mut x, 0).unwrap(), DynArg::memory_mut(&mut x, 0).unwrap()]; s.launch(&k, g, &mut a[..])?;",
    ),
    (
        "have an argument after its block",
        "E0505",
        "let a = DynArg::memory(&x, 0).unwrap(); drop(x); s.launch(&k, g, &mut [a][..])?;",
    ),
    (
        "write an argument's words before the launch",
        "E0506",
        "let mut w = [1u64]; let a = DynArg::bytes(&w, 8).unwrap(); w[0] = 2; s.launch(&k, g, &mut [a][..])?;",
    ),
    (
        "grow a vector under a view",
        "E0502",
        "let mut z = DeviceVec::<u32>::new(&s)?; let v = z.view(..)?; z.reserve(&s, 9)?; s.download(&v)?;",
    ),
    (
        "resize a vector under a view to write",
        "E0499",
        "let mut z = DeviceVec::<u32>::new(&s)?; let mut v = z.view_mut(..)?; z.resize(&s, 9, 0)?; s.fill(&mut v, 1)?;",
    ),
    (
        "cut a vector short under a view",
        "E0502",
        "let mut z = DeviceVec::<u32>::new(&s)?; let v = z.view(..)?; z.truncate(0); s.download(&v)?;",
    ),
    (
        "clear a vector under a view",
        "E0502",
        "let mut z = DeviceVec::<u32>::new(&s)?; let v = z.view(..)?; z.clear(); s.download(&v)?;",
    ),
    (
        "shrink a vector under a view",
        "E0502",
        "let mut z = DeviceVec::<u32>::new(&s)?; let v = z.view(..)?; z.shrink_to_fit()?; s.download(&v)?;",
    ),
    ("append a vector to itself", "E0502", "let mut z = DeviceVec::<u32>::new(&s)?; z.extend_from_device(&s, &z)?;"),
    (
        "take a piece out of its scope",
        "E0521",
        "let mut kept = None; Arena::new(&s, 4096)?.scope(|c| { kept = Some(c.alloc::<u8>(1).unwrap()); });",
    ),
    (
        "take a view of a piece out of its scope",
        "E0521",
        "let mut kept = Vec::new(); Arena::new(&s, 4096)?.scope(|c| { kept.push(Box::leak(Box::new(c.alloc::<u8>(1).unwrap())).view(..).unwrap()); });",
    ),
    (
        "allocate in a scope from within another",
        "E050",
        "Arena::new(&s, 4096)?.scope(|c| c.scope(|i| { c.alloc::<u8>(1).unwrap(); }));",
    ),
    (
        "keep a piece of an inner scope",
        "E0521",
        "Arena::new(&s, 4096)?.scope(|c| { let mut kept = c.alloc::<u8>(1).unwrap(); c.scope(|i| kept = i.alloc::<u8>(1).unwrap()); });",
    ),
    (
        "begin a scope twice",
        "E0499",
        "let mut a = Arena::new(&s, 4096)?; let b = &mut a; b.scope(|c| a.scope(|e| ()));",
    ),
    ("drop an arena in its scope", "E0505", "let mut a = Arena::new(&s, 4096)?; let b = &mut a; b.scope(|c| drop(a));"),
    (
        "exchange two scopes",
        "E0521",
        "let mut b = Arena::new(&s, 4096)?; Arena::new(&s, 4096)?.scope(|c| b.scope(|e| std::mem::swap(c, e)));",
    ),
    (
        "give a thread what may go before it",
        "E0597",
        "let z = s.alloc::<u32>(1)?; let r = &z; std::thread::spawn(move || r.len());",
    ),
    (
        "write in two threads",
        "E0499",
        "std::thread::scope(|c| { c.spawn(|| s.fill(&mut x, 1)); c.spawn(|| t.fill(&mut x, 2)); });",
    ),
    (
        "read in one thread and write in another",
        "E0502",
        "std::thread::scope(|c| { c.spawn(|| s.fill(&mut x, 1)); c.spawn(|| t.download(&x)); });",
    ),
    (
        "drop in one thread and read in another",
        "E0505",
        "let r = &x; std::thread::scope(|c| { c.spawn(|| s.download(r)); c.spawn(move || drop(x)); });",
    ),
    (
        "change what is downloaded to",
        "E0499",
        "let mut to = [0u32; 1]; let r = &mut to; s.read(&x, &mut to)?; r[0] = 1;",
    ),
    ("keep a context's name after its block", "E0505", "let c = x.context(); drop(x); c.new_stream()?;"),
    (
        "have an unordered use after its block",
        "E0505",
        "let u = unsafe { x.unordered() }; drop(x); s.launch(&k, g, (u, 1u32, 1u32))?;",
    ),
];

/// What all of the above is made of, right.
const RIGHT: &[&str] = &[
    "s.launch(&k, g, (&mut x, 1u32, 1u32))?;",
    "let mut a = [DynArg::memory_mut(&mut x, 0).unwrap(), DynArg::bytes(&[1], 4).unwrap()]; s.launch(&k, g, &mut a[..])?;",
    "let z = x.share(); s.download(&z.clone())?; z.into_block().unwrap();",
    "let (mut a, mut b) = x.view_mut(..)?.split_at(1)?; s.copy(&a, &mut b)?; t.fill(&mut a, 1)?;",
    "let l = s.lend(&x)?; s.fill(&mut x, 1)?; l.done(); d.record(None)?.finish()?;",
    "let mut z = DeviceVec::<u32>::new(&s)?; z.resize(&s, 9, 0)?; let v = z.view(..)?; s.download(&v)?; z.clear();",
    "Arena::new(&s, 4096)?.scope(|c| c.scope(|i| { i.alloc::<u8>(1).unwrap(); }));",
    "std::thread::scope(|c| { let (mut a, mut b) = x.view_mut(..).unwrap().split_at(1).unwrap(); c.spawn(move || a); c.spawn(move || b); });",
    "unsafe { d.backend().destroy_stream(s.raw()) }?; d.backend().create_event()?; s.read_variable::<u32>(&m, \"counter\")?;",
];

const PROGRAMS: Programs =
    Programs { head: HEAD, given: GIVEN, libraries: &["freehold", "freehold_driver", "freehold_softcuda"] };

#[test]
fn what_would_reach_past_the_library_does_not_compile() {
    PROGRAMS.assert_refused(TYPES);
}

#[test]
fn what_would_make_handles_of_nothing_does_not_compile() {
    PROGRAMS.assert_refused(FIELDS);
}

#[test]
fn what_would_alias_or_outlive_memory_does_not_compile() {
    PROGRAMS.assert_refused(BORROWS);
}

#[test]
fn a_structure_as_an_argument_is_one_error_that_says_what_may_be_one() {
    let Some(found) = PROGRAMS.errors(&["s.launch(&k, g, (&x, Own, 1u32))?;", "s.launch(&k, g, &x)?;"]) else { return };
    let is_one = |number, error: &str| matches!(&found[&number][..], [one] if one.starts_with(error));
    assert!(is_one(0, "E0277 a kernel cannot be given `Own`"), "{found:?}");
    assert!(is_one(1, "E0277 `&freehold::Block<u32>` is not a tuple of arguments for a kernel"), "{found:?}");
}

#[test]
fn a_type_that_memory_cannot_hold_is_one_error_that_says_so() {
    let Some(found) = PROGRAMS.errors(&["s.alloc::<Own>(1)?;", "s.upload(&[true])?;"]) else { return };
    let is_one = |number, error: &str| matches!(&found[&number][..], [one] if one.starts_with(error));
    assert!(is_one(0, "E0277 device memory cannot hold `Own`"), "{found:?}");
    assert!(is_one(1, "E0277 device memory cannot hold `bool`"), "{found:?}");
}

#[test]
fn the_same_done_right_compiles() {
    PROGRAMS.assert_compile(RIGHT);
}
