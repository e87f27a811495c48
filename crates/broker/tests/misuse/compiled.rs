//! Programs that must not compile. All programs of a group are one crate with a function each: the compiler runs once
//! for each group, and must report the expected error on the line of every function.
//!
//! The compiler reports type errors before borrow errors, so those are separate groups.

use freehold_testing::misuse::{Program, Programs};

use crate::harness::Harness;

const HEAD: &str = "
    #![allow(unused, dead_code)]
    use freehold::{Grid, ImportedSlice, OwnsSlice, Stream};
    use freehold_broker::*;
    use freehold_broker::wire::{Id, Fence, Request};
    struct Own(ImportedSlice<u32>);
    type R = std::result::Result<(), Box<dyn std::error::Error>>;
";

/// What every program has: leases `x` and `y`, an imported slice `z`, a named lease `n`, a buffer `u`.
const GIVEN: &str =
    "(b: Broker, c: Caller, mut l: Link, p: Gpu, m: Module, k: Kernel, q: GpuKernel, g: Grid, s: Stream,
    mut x: Lease<u32>, mut y: Lease<u32>, z: ImportedSlice<u32>, n: NamedLease, u: Buffer<u32>)";

/// Found by types, privacy, or missing `unsafe`.
const TYPES: &[Program] = &[
    ("take a tenant's connection", "E0133", "b.link()?.return_lease(x.id(), Fence::default())?;"),
    ("take a caller's connection", "E0133", "c.link()?.return_lease(x.id(), Fence::default())?;"),
    ("look up a kernel of a module", "E0133", "m.kernel(\"step\")?;"),
    ("look up a kernel of a GPU", "E0133", "p.kernel(\"\", \"step\")?;"),
    ("make an argument of a lease's number", "E0133", "c.argument(x.id(), 0);"),
    ("make an argument of any number", "E0223", "Argument::Lease { lease: Id(7), offset_bytes: 0 };"),
    ("make an argument of what it holds", "E0423", "Argument(todo!());"),
    ("attach a whole segment", "E0133", "l.attach(Id(7))?;"),
    ("take a tenant's semaphores", "E0133", "l.descriptor(Request::Semaphores { tenant: b.tenant() })?;"),
    ("take a segment out of an answer", "E0616", "l.call(Request::Attach { segment: Id(7) })?.descriptors.pop();"),
    ("read a connection's semaphores", "E0624", "l.semaphores();"),
    ("copy a lease", "E0599", "let w = x.clone();"),
    ("copy a named lease", "E0599", "let w = n.clone();"),
    ("copy a buffer", "E0599", "let w = u.clone();"),
    ("name a lease's slice", "E0616", "let w = x.slice;"),
    (
        "be used like a slice",
        "E0200",
        "impl OwnsSlice for Own { type Element = u32; fn slice(&self) -> &ImportedSlice<u32> { &self.0 } }",
    ),
    ("fill a lease that is borrowed to be read", "E0308", "s.fill(&x, 1)?;"),
    ("copy a lease as another type", "E0271", "let mut w = b.reserve::<f32>(&s, 1)?; s.copy(&x, &mut w)?;"),
];

/// Found by borrows and moves.
const BORROWS: &[Program] = &[
    ("exchange the memory of two leases", "E0596", "std::mem::swap(&mut *x, &mut *y);"),
    ("replace a lease's memory and keep it", "E0596", "let kept = std::mem::replace(&mut *x, z);"),
    ("move a lease's memory out", "E0507", "let kept = *x;"),
    ("write a lease under a view", "E0502", "let v = x.view(..)?; s.fill(&mut x, 1)?; s.download(&v)?;"),
    (
        "have two views of a lease to write",
        "E0499",
        "let mut v = x.view_mut(..)?; let mut w = x.view_mut(..)?; s.copy(&v, &mut w)?;",
    ),
    ("copy a lease to itself", "E0502", "s.copy(&x, &mut x)?;"),
    ("have a view after the lease", "E0505", "let v = x.view(..)?; drop(x); s.download(&v)?;"),
    ("have a view after the lease was given", "E0505", "let v = x.view(..)?; b.give(x, Id(7))?; s.download(&v)?;"),
    (
        "have a view after the lease was published",
        "E0505",
        "let v = x.view(..)?; b.publish(\"n\", x, Policy::Restore)?; s.download(&v)?;",
    ),
    ("use a lease that was given", "E0382", "b.give(x, Id(7))?; s.download(&x)?;"),
    ("use a lease that was closed", "E0382", "x.close()?; s.download(&x)?;"),
    (
        "have a call write what is borrowed to be read",
        "E0502",
        "let v = x.view(..)?; c.call(&Launch::new(&k, g, &[x.argument_mut(0)]))?; s.download(&v)?;",
    ),
    (
        "have a call write a lease that is not mutable",
        "E0596",
        "let w = b.reserve::<u32>(&s, 1)?; c.call(&Launch::new(&k, g, &[w.argument_mut(0)]))?;",
    ),
    (
        "give a call one lease twice to be written",
        "E0499",
        "c.call(&Launch::new(&k, g, &[x.argument_mut(0), x.argument_mut(1)]))?;",
    ),
    (
        "give a call one lease to be read and to be written",
        "E0502",
        "c.call(&Launch::new(&k, g, &[x.argument(0), x.argument_mut(1)]))?;",
    ),
    (
        "have an argument after its lease",
        "E0505",
        "let a = [x.argument(0)]; drop(x); c.call(&Launch::new(&k, g, &a))?;",
    ),
    (
        "have an argument after its name was committed",
        "E0505",
        "let a = [n.argument(0)]; c.commit(n)?; c.call(&Launch::new(&k, g, &a))?;",
    ),
    ("have an argument after its buffer", "E0505", "let a = [u.argument(0)]; drop(u); p.launch(&q, g, &a)?;"),
];

/// The same, done right.
const RIGHT: &[&str] = &[
    "s.copy(&x, &mut y)?; s.fill(&mut x, 1)?; s.download(&x)?; s.download(&*x)?; std::mem::swap(&mut x, &mut y);",
    "s.write(&mut x.view_mut(1..)?, &[1])?; let w = (x.len(), x.address(), x.view(..)?);",
    "c.call(&Launch::new(&k, g, &[x.argument_mut(0), y.argument(0), 1u32.into(), Argument::bytes([0; 8])]))?.wait()?;",
    "c.call(&Launch::new(&k, g, &[n.argument(0)]))?.wait()?; c.commit(n)?;",
    "p.launch(&q, g, &[u.argument(0), u.argument(1)])?; p.download(&u)?;",
    "b.drop_name(\"n\")?; b.set_spin_policy(SpinPolicy::Forever)?; l.call(Request::Stats)?;",
    "unsafe { b.link()?.call(Request::Stats)?; m.kernel(\"step\")?; c.argument(x.id(), 0); l.attach(Id(7))?; }",
    "unsafe impl OwnsSlice for Own { type Element = u32; fn slice(&self) -> &ImportedSlice<u32> { &self.0 } }",
];

const PROGRAMS: Programs = Programs { head: HEAD, given: GIVEN, libraries: &["freehold", "freehold_broker"] };

pub(crate) fn what_would_make_memory_of_numbers_does_not_compile(_: &Harness) {
    PROGRAMS.assert_refused(TYPES);
}

pub(crate) fn what_would_alias_or_outlive_a_lease_does_not_compile(_: &Harness) {
    PROGRAMS.assert_refused(BORROWS);
}

pub(crate) fn the_same_done_right_compiles(_: &Harness) {
    PROGRAMS.assert_compile(RIGHT);
}
