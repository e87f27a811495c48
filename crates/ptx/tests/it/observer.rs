//! What an observer is told: each access once for each lane, and each synchronization.

use std::sync::Arc;

use freehold_ptx::{
    AccessKind, Channel, DivergedBarrier, Format, Image, Observer, Ordering, Place, Scope, Surface, Texels, Texture,
    Unit, WarpAccess,
};

use super::common::{BASE, Flat, kernel, launch_known, launch_program, with_head};

/// One event. Accesses have their addresses by lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    Start {
        threads: u32,
        shared_bytes: u64,
    },
    End,
    Access {
        space: &'static str,
        kind: AccessKind,
        bytes: u64,
        at: Vec<(usize, u64)>,
    },
    Fence(Scope, u32),
    WarpSync(u32),
    Barrier {
        id: u32,
        threads: Option<u32>,
    },
    /// Which threads arrived and which did not, each as warp and lanes, and whether the latter have ended.
    Diverged {
        arrived: (u32, u32),
        missing: (u32, u32),
        has_ended: bool,
    },
}

/// Everything that an observer was told, in order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Events {
    pub(crate) all: Vec<Event>,
    /// Of each access: where it is, its ordering, whether it is asynchronous, and the lanes that changed nothing.
    details: Vec<(Place, Ordering, bool, u32)>,
}

impl Events {
    fn access(&mut self, space: &'static str, access: &WarpAccess<'_>) {
        let lanes = (0..32).filter(|lane| access.lanes >> lane & 1 != 0);
        let at = lanes.map(|lane| (lane, access.addresses[lane])).collect();
        self.all.push(Event::Access { space, kind: access.kind, bytes: access.bytes, at });
        self.details.push((access.place, access.ordering, access.is_async, access.unchanged));
    }
}

impl Observer for Events {
    fn start(&mut self, _: u64, threads: u32, shared_bytes: u64) {
        self.all.push(Event::Start { threads, shared_bytes });
    }

    fn end(&mut self, _: u64) {
        self.all.push(Event::End);
    }

    fn global(&mut self, access: &WarpAccess<'_>) {
        self.access("global", access);
    }

    fn shared(&mut self, access: &WarpAccess<'_>) {
        self.access("shared", access);
    }

    fn fence(&mut self, _: Place, lanes: u32, scope: Scope) {
        self.all.push(Event::Fence(scope, lanes));
    }

    fn warp_sync(&mut self, _: Place, lanes: u32) {
        self.all.push(Event::WarpSync(lanes));
    }

    fn barrier(&mut self, _: Place, id: u32, threads: Option<u32>) {
        self.all.push(Event::Barrier { id, threads });
    }

    fn diverged_barrier(&mut self, barrier: &DivergedBarrier) {
        let [arrived, missing] = [barrier.arrived, barrier.missing].map(|part| (part.place.warp, part.lanes));
        self.all.push(Event::Diverged { arrived, missing, has_ended: barrier.has_ended });
    }
}

const SHARED: &str = ".shared .align 16 .b8 s[1024];";

/// Runs a kernel of a few threads, and returns what was observed in it.
fn observe(body: &str, threads: u32) -> Events {
    let text = kernel("", &format!("{SHARED}\n{body}"));
    let mut memory = Flat::new(4096);
    memory.events = Some(Events::default());
    observe_with(&text, threads, memory)
}

fn observe_with(text: &str, threads: u32, memory: Flat) -> Events {
    let outcome = launch_known(text, &[BASE], |_| None, threads, memory).unwrap_or_else(|fault| panic!("{fault}"));
    outcome.memory.events.unwrap()
}

/// Returns the accesses of one kind to a space: the size, and the address of each lane.
fn accesses(events: &Events, space: &str, kind: AccessKind) -> Vec<(u64, Vec<(usize, u64)>)> {
    let of_kind = |event: &Event| match event {
        Event::Access { space: found, kind: found_kind, bytes, at } if *found == space && *found_kind == kind => {
            Some((*bytes, at.clone()))
        }
        _ => None,
    };
    events.all.iter().filter_map(of_kind).collect()
}

fn lanes(addresses: [u64; 2]) -> Vec<(usize, u64)> {
    addresses.into_iter().enumerate().collect()
}

#[test]
fn the_start_and_end_of_a_block_are_told() {
    let events = observe("", 3);
    assert_eq!(events.all, [Event::Start { threads: 3, shared_bytes: 0 }, Event::End]);
}

#[test]
fn each_plain_access_is_told_once() {
    use AccessKind::{Atomic, Read, Write};
    let shared = "mov.u32 %r9, s; shl.b32 %r8, %tid, 4; add.u32 %r9, %r9, %r8; cvt.u64.u32 %d9, %r9;";
    let generic = "cvta.shared.u64 %d8, %d9;";
    let cases: &[(&str, &str, AccessKind, u64, u64)] = &[
        ("ld.global.u32 %r1, [%at];", "global", Read, 4, 4),
        ("ld.u32 %r1, [%at];", "global", Read, 4, 4),
        ("ld.global.u8 %r1, [%at];", "global", Read, 1, 4),
        ("ld.global.u64 %d1, [%at];", "global", Read, 8, 0),
        ("ld.global.v2.u32 {%r1, %r2}, [%at];", "global", Read, 8, 0),
        ("ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%at];", "global", Read, 16, 0),
        ("ld.global.v4.u8 {%h1, %h2, %h3, %h4}, [%at];", "global", Read, 4, 4),
        ("st.global.u32 [%at], %tid;", "global", Write, 4, 4),
        ("st.u32 [%at], %tid;", "global", Write, 4, 4),
        ("st.global.u16 [%at], %h1;", "global", Write, 2, 4),
        ("st.global.v4.u32 [%at], {%r1, %r2, %r3, %r4};", "global", Write, 16, 0),
        ("atom.global.add.u32 %r1, [%at], 1;", "global", Atomic, 4, 4),
        ("red.global.add.f32 [%at], 0f3f800000;", "global", Atomic, 4, 4),
        ("atom.cas.b32 %r1, [%at], 0, 1;", "global", Atomic, 4, 4),
        ("ld.shared.u32 %r9, [%r9];", "shared", Read, 4, 16),
        ("ld.shared.u32 %r1, [%d9];", "shared", Read, 4, 16),
        ("ld.u32 %r1, [%d8];", "shared", Read, 4, 16),
        ("ld.shared.u64 %d1, [%r9];", "shared", Read, 8, 16),
        ("ld.shared.v4.u32 {%r1, %r2, %r3, %r4}, [%r9];", "shared", Read, 16, 16),
        ("st.shared.u32 [%r9], 1;", "shared", Write, 4, 16),
        ("st.shared.u32 [%d9], %tid;", "shared", Write, 4, 16),
        ("st.u32 [%d8], 1;", "shared", Write, 4, 16),
        ("st.shared.v4.u32 [%r9], {%r1, %r2, %r3, %r4};", "shared", Write, 16, 16),
        ("atom.shared.add.u32 %r1, [%r9], 1;", "shared", Atomic, 4, 16),
        ("red.shared.add.u32 [%d9], 1;", "shared", Atomic, 4, 16),
        ("atom.shared.exch.b32 %r1, [%r9], 1;", "shared", Atomic, 4, 16),
        ("mbarrier.init.shared.b64 [%r9], 1;", "shared", Atomic, 8, 16),
    ];
    for &(access, space, kind, bytes, stride) in cases {
        // Vectors are aligned to their size.
        let align = if stride == 0 { "mov.u64 %at, %out; " } else { "" };
        let events = observe(&format!("{align}{shared}{generic}{access}"), 2);
        let base = if space == "global" { BASE } else { 0 };
        assert_eq!(accesses(&events, space, kind), [(bytes, lanes([base, base + stride]))], "{access}");
        let count = events.all.iter().filter(|event| matches!(event, Event::Access { .. })).count();
        assert_eq!(count, 1, "{access}: {:?}", events.all);
    }
}

#[test]
fn lanes_of_a_generic_access_are_told_apart_by_space() {
    let events = observe(
        "mov.u32 %r9, s; cvt.u64.u32 %d9, %r9; cvta.shared.u64 %d8, %d9; setp.eq.u32 %p1, %tid, 1;
         selp.b64 %d1, %d8, %at, %p1; st.u32 [%d1], 7; setp.eq.u32 %p2, %tid, 2;",
        3,
    );
    assert_eq!(accesses(&events, "global", AccessKind::Write), [(4, vec![(0, BASE), (2, BASE + 8)])]);
    assert_eq!(accesses(&events, "shared", AccessKind::Write), [(4, vec![(1, 0)])]);
}

#[test]
fn local_memory_and_parameters_are_not_told() {
    let text = "call (%r1), f, (%tid);";
    let function = ".func (.reg .b32 %o) f(.reg .b32 %i) { .local .align 4 .b8 l[8]; .reg .b64 %a; mov.u64 %a, l;
        st.local.u32 [%a], %i; ld.local.u32 %o, [%a]; ret; }";
    let mut memory = Flat::new(64);
    memory.events = Some(Events::default());
    let events = observe_with(&kernel(function, text), 32, memory);
    assert_eq!(events.all.len(), 2, "{:?}", events.all);
}

#[test]
fn an_asynchronous_copy_reads_its_source_and_writes_its_target() {
    let events = observe(
        "mov.u32 %r9, s; shl.b32 %r8, %tid, 4; add.u32 %r9, %r9, %r8; mad.wide.u32 %d1, %tid, 16, %out;
         mul.lo.u32 %r7, %tid, 8; cp.async.ca.shared.global [%r9], [%d1], 16, %r7;",
        3,
    );
    let reads = accesses(&events, "global", AccessKind::Read);
    assert_eq!(reads, [(8, vec![(1, BASE + 16)]), (16, vec![(2, BASE + 32)])]);
    let writes = accesses(&events, "shared", AccessKind::Write);
    assert_eq!(writes, [(16, vec![(0, 0), (1, 16), (2, 32)])]);
    assert!(events.details.iter().all(|(_, _, is_async, _)| *is_async));
}

#[test]
fn matrix_loads_are_told_for_each_lane() {
    let events = observe(
        "mov.u32 %r9, s; shl.b32 %r8, %tid, 4; add.u32 %r9, %r9, %r8;
         ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r1}, [%r9];
         ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%r1}, [%r9];",
        32,
    );
    let reads = accesses(&events, "shared", AccessKind::Read);
    assert_eq!(reads.iter().map(|(bytes, _)| *bytes).collect::<Vec<_>>(), [4, 2, 2]);
    let whole: Vec<(usize, u64)> = (0..32).map(|lane| (lane, 16 * (lane as u64 / 4) + 4 * (lane as u64 % 4))).collect();
    assert_eq!(reads[0].1, whole);
}

#[test]
fn texels_are_told() {
    let format = Format { channels: 1, channel: Channel::Unsigned32 };
    let texels = Texels { start: BASE, width: 8, height: 1, depth: 1, row_bytes: 32, slice_bytes: 32 };
    let mut memory = Flat::new(64);
    let texture = Texture { format, levels: vec![texels], is_buffer: true, sampling: super::texture::POINT };
    memory.textures.push(Arc::new(texture));
    memory.surfaces.push(Arc::new(Surface { texels, format }));
    memory.events = Some(Events::default());
    let body = "mov.u64 %d1, 1; mul.lo.u32 %r2, %tid, 4; tex.1d.v4.s32.s32 {%r4, %r5, %r6, %r7}, [%d1, {%tid}];
        suld.b.1d.b32.trap {%r4}, [%d1, {%r2}]; sust.b.1d.b32.trap [%d1, {%r2}], {%r4};";
    let events = observe_with(&kernel("", body), 2, memory);
    let each = [(4, vec![(0, BASE)]), (4, vec![(1, BASE + 4)])];
    assert_eq!(accesses(&events, "global", AccessKind::Read), [each.clone(), each.clone()].concat());
    assert_eq!(accesses(&events, "global", AccessKind::Write), each);
}

#[test]
fn the_ordering_of_an_access_is_told() {
    let strong = |scope, acquires, releases| Ordering { scope: Some(scope), acquires, releases };
    let cases = [
        ("ld.global.u32 %r1, [%at];", Ordering::default()),
        ("ld.global.nc.u32 %r1, [%at];", Ordering::default()),
        ("ld.volatile.global.u32 %r1, [%at];", strong(Scope::System, false, false)),
        ("ld.relaxed.gpu.global.u32 %r1, [%at];", strong(Scope::Device, false, false)),
        ("ld.acquire.cta.global.u32 %r1, [%at];", strong(Scope::Block, true, false)),
        ("ld.global.cv.u32 %r1, [%at];", strong(Scope::System, false, false)),
        ("st.release.sys.global.u32 [%at], %r1;", strong(Scope::System, false, true)),
        ("st.global.u32 [%at], %r1;", Ordering::default()),
        ("atom.global.add.u32 %r1, [%at], 1;", strong(Scope::Device, false, false)),
        ("atom.acq_rel.cta.global.add.u32 %r1, [%at], 1;", strong(Scope::Block, true, true)),
        ("red.gpu.global.add.u32 [%at], 1;", strong(Scope::Device, false, false)),
    ];
    for (access, ordering) in cases {
        let events = observe(access, 32);
        assert_eq!(
            events.details.iter().map(|(_, ordering, ..)| *ordering).collect::<Vec<_>>(),
            [ordering],
            "{access}"
        );
    }
}

#[test]
fn writes_that_change_nothing_are_told_apart() {
    let cases = [
        // Lane 0 writes the zero that is there, the others their number.
        ("st.global.u32 [%at], %tid;", 0b0001),
        ("st.shared.u32 [%r9], %tid;", 0b0001),
        // All lanes write one value to one word: only the first changes it.
        ("st.global.u32 [%out], 7;", 0b1110),
        ("mov.u32 %r9, s; st.shared.u32 [%r9], 7;", 0b1110),
        ("st.global.u32 [%out], %tid;", 0b0001),
        ("st.global.v2.u32 [%out], {%r0, %tid};", 0b0001),
        ("ld.global.u32 %r1, [%at];", 0),
    ];
    for (access, unchanged) in cases {
        let body = format!("mov.u32 %r9, s; shl.b32 %r8, %tid, 2; add.u32 %r9, %r9, %r8; mov.u32 %r0, 0; {access}");
        let events = observe(&body, 4);
        assert_eq!(events.details.iter().map(|(.., bits)| *bits).collect::<Vec<_>>(), [unchanged], "{access}");
    }
}

#[test]
fn fences_and_synchronization_are_told() {
    let events = observe(
        "membar.cta; membar.gl; fence.acq_rel.sys; bar.warp.sync 0xffffffff; bar.sync 0; bar.sync 1, 64;
         shfl.sync.bfly.b32 %r1, %tid, 1, 31, 0xffffffff; vote.sync.any.pred %p1, %p2, 0xffffffff;",
        64,
    );
    let count = |event: Event| events.all.iter().filter(|found| **found == event).count();
    for scope in [Scope::Block, Scope::Device, Scope::System] {
        assert_eq!(count(Event::Fence(scope, u32::MAX)), 2, "{scope:?}");
    }
    assert_eq!(count(Event::WarpSync(u32::MAX)), 6);
    assert_eq!(count(Event::Barrier { id: 0, threads: None }), 1);
    assert_eq!(count(Event::Barrier { id: 1, threads: Some(64) }), 1);
    assert_eq!(events.all.len(), 2 + 6 + 6 + 2);
}

#[test]
fn lanes_that_meet_at_a_warp_barrier_are_told_once_together() {
    let events = observe(
        "setp.lt.u32 %p1, %tid, 16; @%p1 bra LOW; mov.u32 %r1, 1; bar.warp.sync 0xffffffff; bra END;
         LOW: mov.u32 %r1, 2; bar.warp.sync 0xffffffff; END:",
        32,
    );
    let syncs: Vec<_> = events.all.iter().filter(|event| matches!(event, Event::WarpSync(_))).collect();
    assert_eq!(syncs, [&Event::WarpSync(u32::MAX)]);
}

#[test]
fn a_barrier_that_is_completed_by_an_exit_is_told() {
    let events = observe("setp.lt.u32 %p1, %tid, 32; @%p1 bra END; bar.sync 3; END:", 64);
    assert!(events.all.contains(&Event::Barrier { id: 3, threads: None }), "{:?}", events.all);
}

fn diverged(body: &str, threads: u32) -> Vec<Event> {
    let events = observe(body, threads).all;
    events.into_iter().filter(|event| matches!(event, Event::Diverged { .. })).collect()
}

#[test]
fn threads_of_a_warp_that_skip_a_barrier_diverge() {
    let skip = "setp.lt.u32 %p1, %tid, 48; @!%p1 bra SKIP; bar.sync 0; SKIP: st.global.u32 [%at], %tid;";
    let expected = Event::Diverged { arrived: (1, 0xffff), missing: (1, 0xffff_0000), has_ended: true };
    assert_eq!(diverged(skip, 64), [expected]);
    // All threads of a warp may end without it.
    assert_eq!(diverged(&skip.replace("48", "32"), 64), []);
    assert_eq!(diverged(&skip.replace("48", "64"), 64), []);
}

#[test]
fn threads_that_end_before_a_barrier_do_not_diverge() {
    let early = "setp.lt.u32 %p1, %tid, 48; @!%p1 bra END; st.global.u32 [%at], %tid; bar.sync 0; \
                 st.global.u32 [%at], %tid; END:";
    assert_eq!(diverged(early, 64), []);
    assert_eq!(diverged("setp.lt.u32 %p1, %tid, 48; @!%p1 exit; bar.sync 0;", 64), []);
}

#[test]
fn threads_at_different_barrier_instructions_diverge() {
    let apart = |limit: u32, barrier: &str| {
        let body = format!(
            "setp.lt.u32 %p1, %tid, {limit}; @%p1 bra LOW; {barrier}; bra END;
             LOW: st.global.u32 [%at], %tid; {barrier}; END: st.global.u32 [%at], %tid;"
        );
        diverged(&body, 64)
    };
    let [all, low, high] = [u32::MAX, 0xffff, 0xffff_0000];
    let in_block = Event::Diverged { arrived: (0, all), missing: (1, all), has_ended: false };
    assert_eq!(apart(32, "bar.sync 0"), [in_block]);
    let in_warp = Event::Diverged { arrived: (0, high), missing: (0, low), has_ended: false };
    assert_eq!(apart(16, "bar.sync 0"), [in_warp]);
    assert_eq!(apart(64, "bar.sync 0"), []);
    // These may be different instructions.
    assert_eq!(apart(32, "bar.sync 1, 64"), []);
    assert_eq!(apart(16, "barrier.sync 0"), []);
}

#[test]
fn threads_that_reach_one_barrier_in_turn_do_not_diverge() {
    let body = "setp.lt.u32 %p1, %tid, 16; @%p1 bra LOW; st.global.u32 [%at], %tid; bra MEET;
        LOW: ld.global.u32 %r1, [%at]; MEET: bar.sync 0; st.global.u32 [%at], %tid; bar.sync 0;";
    assert_eq!(diverged(body, 64), []);
}

const LINES: &str = ".file 1 \"a.cu\"\n.file 2 \"dir/b.h\", 17, 4\n";

fn with_lines(name: &str, file: u32, line: u32) -> String {
    format!(
        ".visible .func {name}(.reg .b64 %a) {{\n.reg .b32 %r<3>;\nld.global.u32 %r1, [%a];\n\
         .loc {file} {line} 5\nst.global.u32 [%a], 3;\n.loc 1 0 0\nst.global.u32 [%a], 4;\nret;\n}}"
    )
}

#[test]
fn the_source_line_of_an_access_is_found() {
    let head = |text: &str| with_head(&format!("{text}\n"));
    let first = head(&format!(
        "{LINES}.visible .func g(.reg .b64 %a);\n{}\n.visible .entry k(.param .u64 p) {{\n.reg .b64 %a;\n\
         ld.param.u64 %a, [p];\n.loc 1 9 2\ncall f, (%a);\ncall g, (%a);\nst.global.u32 [%a], 5;\nret;\n}}",
        with_lines("f", 2, 70)
    ));
    let second = head(&format!(".file 2 \"c.cu\"\n{}", with_lines("g", 2, 80)));
    let units = [&first, &second].map(|text| Unit::compile(text).unwrap_or_else(|error| panic!("{error}")));
    let image = Image::link(units.into()).unwrap_or_else(|error| panic!("{error}"));
    let (program, _) = image.relocate(&[]);
    let mut memory = Flat::new(64);
    memory.events = Some(Events::default());
    let outcome = launch_program(&program, &[BASE], 1, memory).unwrap();
    let places = outcome.memory.events.unwrap().details;
    let source = |place: &Place| program.source(place.function, place.line).map(|at| (at.file, at.line));
    let sources: Vec<_> = places.iter().map(|(place, ..)| source(place)).collect();
    let at = |file: &str, line| Some((file.to_owned(), line));
    // Before the first `.loc` of a function, and at line 0, it is not known.
    let of_function = |known| [None, known, None];
    let expected = [of_function(at("dir/b.h", 70)).as_slice(), &of_function(at("c.cu", 80)), &[at("a.cu", 9)]].concat();
    assert_eq!(sources, expected);
}

#[test]
fn a_fault_has_its_source_line() {
    let text = with_head(&format!(
        "{LINES}.visible .entry k(.param .u64 p) {{\n.reg .b64 %a;\nmov.u64 %a, 0;\n.loc 2 33 1\n\
         st.global.u32 [%a], 5;\nret;\n}}"
    ));
    let image = Image::link(vec![Unit::compile(&text).unwrap()]).unwrap();
    let (program, _) = image.relocate(&[]);
    let fault = launch_program(&program, &[BASE], 1, Flat::new(64)).unwrap_err();
    let source = program.source(fault.function, fault.line).unwrap();
    assert_eq!((source.file.as_str(), source.line), ("dir/b.h", 33));
}
