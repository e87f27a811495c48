//! Accesses whose addresses are derived from launch arguments must stay in the blocks that these refer to; all others
//! are left to the memory's own check.

use crate::common::{BASE, Flat, Outcome, launch_known};

use freehold_ptx::{Access, Extent, Fault, FaultKind, Pointer};

/// Blocks of 16, 32 and 24 bytes in one chunk of 4096, which is the whole memory.
const FIRST: Extent = Extent { start: BASE + 512, bytes: 16, access: Access::ReadWrite };
const SECOND: Extent = Extent { start: BASE + 1024, bytes: 32, access: Access::ReadWrite };
const THIRD: Extent = Extent { start: BASE + 1536, bytes: 24, access: Access::ReadWrite };

/// Returns the block that a word refers to.
fn known(word: u64) -> Option<Pointer> {
    let holds = |block: &Extent| (block.start..block.start + 512).contains(&word);
    let blocks = [FIRST, SECOND, THIRD].into_iter().find(holds).into_iter().collect();
    (BASE..BASE + 4096).contains(&word).then_some(Pointer { offset: 0, region: BASE..BASE + 4096, extents: blocks })
}

/// Runs a kernel with 64-bit parameters `a`, `b`, … and one thread. `%a`, `%b`, … have their values.
fn run_on(body: &str, words: &[u64], memory: Flat) -> Result<Outcome, Fault> {
    let names = ["a", "b", "c", "d"];
    let names = &names[..words.len()];
    let parameters: Vec<_> = names.iter().map(|name| format!(".param .u64 {name}")).collect();
    let loads: String = names.iter().map(|name| format!("ld.param.u64 %{name}, [{name}];\n")).collect();
    let text = format!(
        ".visible .entry k({}) {{\n.reg .pred %p<9>; .reg .b32 %r<9>; .reg .b64 %x<20>, %a, %b, %c, %d;\n\
         {loads}mov.u32 %r0, 7;\n{body}\nret;\n}}",
        parameters.join(", ")
    );
    launch_known(&text, words, known, 1, memory)
}

fn run(body: &str, words: &[u64]) -> Result<Outcome, Fault> {
    run_on(body, words, Flat::new(4096))
}

/// Returns the description of the faulting address.
#[track_caller]
fn refused(outcome: Result<Outcome, Fault>) -> String {
    match outcome.expect_err("the access should have left its block").kind {
        FaultKind::Address { space: "global", what, .. } => what,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn served(outcome: Result<Outcome, Fault>) -> Flat {
    outcome.unwrap_or_else(|fault| panic!("{fault}")).memory
}

const PAST: &str = "4 bytes past the end of a block of 16 bytes at 0x10000200";

#[test]
fn the_last_element_of_a_block_is_served_and_the_one_behind_it_refused() {
    served(run("st.global.u32 [%a+12], %r0;", &[FIRST.start]));
    let fault = run("st.global.u32 [%a+16], %r0;", &[FIRST.start]).unwrap_err();
    assert_eq!(
        fault.to_string(),
        format!(
            "kernel k, PTX line 8, block (0,0,0), thread (0,0,0) writes 4 bytes of global memory at 0x10000210: {PAST}"
        )
    );
}

#[test]
fn every_kind_of_access_is_refused_past_the_end() {
    for access in [
        "ld.global.u32 %r1, [%a+16];",
        "ld.u32 %r1, [%a+16];",
        "st.u32 [%a+16], %r0;",
        "ld.volatile.global.u32 %r1, [%a+16];",
        "ld.global.nc.u32 %r1, [%a+16];",
        "atom.global.add.u32 %r1, [%a+16], 1;",
        "atom.cas.b32 %r1, [%a+16], 0, 1;",
        "red.global.add.u32 [%a+16], 1;",
        "st.global.v2.u32 [%a+16], {%r0, %r0};",
        "ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%a+16];",
        "{ .shared .align 16 .b8 room[16]; cp.async.ca.shared.global [room], [%a+16], 4; }",
    ] {
        let what = refused(run(access, &[FIRST.start]));
        assert!(what.ends_with("bytes past the end of a block of 16 bytes at 0x10000200"), "{access}: {what}");
        let before =
            access.replace("+16", "+-16").replace("v4", "v2").replace("%r3, %r4", "").replace("%r2, }", "%r2}");
        assert_eq!(
            refused(run(&before, &[FIRST.start])),
            "16 bytes before the start of a block of 16 bytes at 0x10000200",
            "{before}"
        );
    }
}

#[test]
fn a_vector_that_begins_within_a_block_and_ends_beyond_it_is_refused() {
    served(run("st.global.v2.u32 [%a+16], {%r0, %r0};", &[THIRD.start]));
    let what = refused(run("st.global.v4.u32 [%a+16], {%r0, %r0, %r0, %r0};", &[THIRD.start]));
    assert_eq!(what, "8 bytes past the end of a block of 24 bytes at 0x10000600");
}

#[test]
fn what_a_copy_does_not_read_may_lie_past_the_end() {
    let copy = |bytes: u32| {
        let body = format!(
            "{{ .shared .align 16 .b8 room[16]; mov.u32 %r1, {bytes}; \
             cp.async.ca.shared.global [room], [%a+8], 8, %r1; }}"
        );
        run(&body, &[FIRST.start])
    };
    served(copy(8));
    served(copy(0));
    let partly =
        "{ .shared .align 16 .b8 room[16]; mov.u32 %r1, 4; cp.async.ca.shared.global [room], [%a+24], 8, %r1; }";
    assert_eq!(refused(run(partly, &[FIRST.start])), "12 bytes past the end of a block of 16 bytes at 0x10000200");
}

#[test]
fn the_origin_follows_what_is_done_to_an_address() {
    for moves in [
        "mov.b64 %x1, %a;",
        "cvta.to.global.u64 %x1, %a;",
        "cvta.global.u64 %x2, %a; cvta.to.global.u64 %x1, %x2;",
        "add.s64 %x1, %a, 0;",
        "sub.s64 %x1, %a, 0;",
        "mul.wide.u32 %x2, %r0, 0; add.s64 %x1, %a, %x2;",
        "mad.wide.u32 %x1, %r0, 0, %a;",
        "mov.b64 %x3, 0; shl.b64 %x2, %x3, 2; add.s64 %x1, %x2, %a;",
        "mad.lo.s64 %x1, 3, 0, %a;",
        "and.b64 %x1, %a, -16;",
        "or.b64 %x1, %a, 0;",
        "setp.eq.u32 %p1, %r0, 7; selp.b64 %x1, %a, 0, %p1;",
        "max.u64 %x1, %a, 0;",
        "setp.eq.u32 %p1, %r0, 7; mov.b64 %x1, 0; @%p1 mov.b64 %x1, %a;",
        "cvt.u64.s64 %x1, %a;",
    ] {
        served(run(&format!("{moves} st.global.u32 [%x1+12], %r0;"), &[FIRST.start]));
        assert_eq!(refused(run(&format!("{moves} st.global.u32 [%x1+16], %r0;"), &[FIRST.start])), PAST, "{moves}");
    }
}

#[test]
fn an_offset_that_was_loaded_leaves_the_origin_what_it_is() {
    // The index is in the block itself: 4 elements of 4 bytes, of which the one after the last is accessed.
    for index in [
        "ld.global.u32 %r1, [%a]; mad.wide.u32 %x1, %r1, 4, %a;",
        "ld.global.u64 %x2, [%a]; shl.b64 %x3, %x2, 2; add.s64 %x1, %a, %x3;",
        "ld.global.u64 %x2, [%a]; mul.lo.s64 %x3, %x2, 4; add.s64 %x1, %a, %x3;",
    ] {
        let mut memory = Flat::new(4096);
        memory.bytes[512] = 3;
        served(run_on(&format!("{index} st.global.u32 [%x1], %r0;"), &[FIRST.start], memory.clone()));
        memory.bytes[512] = 4;
        assert_eq!(refused(run_on(&format!("{index} st.global.u32 [%x1], %r0;"), &[FIRST.start], memory)), PAST);
    }
}

#[test]
fn a_pointer_that_was_loaded_leads_anywhere() {
    let mut memory = Flat::new(4096);
    memory.bytes[512..520].copy_from_slice(&SECOND.start.to_le_bytes());
    for moves in ["", "add.s64 %x1, %x1, 4;", "sub.s64 %x2, %x1, %a; add.s64 %x1, %a, %x2;"] {
        let body = format!("ld.global.u64 %x1, [%a]; {moves} st.global.u32 [%x1], %r0;");
        served(run_on(&body, &[FIRST.start], memory.clone()));
    }
    // Also joined halves, and values that went through local memory.
    let halves = "mov.b64 {%r1, %r2}, %b; mov.b64 %x1, {%r1, %r2}; st.global.u32 [%x1+64], %r0;";
    served(run(halves, &[FIRST.start, SECOND.start]));
    let spilled = "{ .local .align 8 .b8 place[8]; st.local.u64 [place], %b; ld.local.u64 %x1, [place]; } \
                   st.global.u32 [%x1+64], %r0;";
    served(run(spilled, &[FIRST.start, SECOND.start]));
}

#[test]
fn a_pointer_that_was_chosen_of_two_leads_to_either_block() {
    for chosen in [FIRST, SECOND] {
        let bytes = chosen.bytes;
        let body = |offset: u64| {
            format!(
                "setp.eq.u64 %p1, %c, 1; selp.b64 %x1, %a, %b, %p1; add.s64 %x1, %x1, {offset}; st.global.u32 [%x1], %r0;"
            )
        };
        let words = [FIRST.start, SECOND.start, u64::from(chosen == FIRST)];
        served(run(&body(bytes - 4), &words));
        let what = refused(run(&body(bytes), &words));
        assert_eq!(what, format!("4 bytes past the end of a block of {bytes} bytes at {:#x}", chosen.start));
    }
    // From one block to the other by their difference.
    served(run("sub.s64 %x1, %b, %a; add.s64 %x2, %a, %x1; st.global.u32 [%x2], %r0;", &[FIRST.start, SECOND.start]));
}

#[test]
fn a_pointer_to_the_middle_of_a_block_may_be_moved_within_it() {
    served(run("st.global.u32 [%a+-8], %r0; st.global.u32 [%a+4], %r0;", &[FIRST.start + 8]));
    assert_eq!(refused(run("st.global.u32 [%a+8], %r0;", &[FIRST.start + 8])), PAST);
}

#[test]
fn an_unknown_pointer_disables_bounds_checks() {
    let body = "setp.eq.u64 %p1, %c, 1; selp.b64 %x1, %a, %b, %p1; st.global.u32 [%x1+64], %r0;";
    let nowhere = BASE + 2048;
    served(run(body, &[FIRST.start, nowhere, 0]));
    served(run(body, &[FIRST.start, nowhere, 1]));
    served(run("st.global.u32 [%a+64], %r0;", &[nowhere]));
}

#[test]
fn a_variable_of_the_module_is_not_an_argument() {
    let text = ".visible .global .align 4 .u32 v;\n.visible .entry k(.param .u64 a) {\n.reg .b64 %x<4>; .reg .pred %p;\n\
                .reg .b32 %r<2>;\nld.param.u64 %x1, [a]; setp.eq.u64 %p, %x1, 0; mov.u64 %x2, v;\n\
                selp.b64 %x3, %x1, %x2, %p; mov.u32 %r1, 5; st.global.u32 [%x3], %r1; ret;\n}";
    let outcome = launch_known(text, &[FIRST.start], known, 1, Flat::new(4096));
    assert_eq!(served(outcome).words()[1024], 5);
}

#[test]
fn words_within_a_structure_are_followed_too() {
    let text = |load: &str, offset: u32| {
        format!(
            ".visible .entry k(.param .align 16 .b8 s[32]) {{\n.reg .b64 %x<4>; .reg .b32 %r<2>;\n{load}\n\
             mov.u32 %r1, 5; st.global.u32 [%x2+{offset}], %r1; ret;\n}}"
        )
    };
    for load in ["ld.param.u64 %x2, [s+24];", "ld.param.v2.u64 {%x1, %x2}, [s+16];"] {
        let words = [7, THIRD.start, SECOND.start, FIRST.start];
        let run = |offset| launch_known(&text(load, offset), &words, known, 1, Flat::new(4096));
        served(run(12));
        assert_eq!(refused(run(16)), PAST, "{load}");
    }
}

#[test]
fn only_participating_lanes_are_read() {
    let text = ".visible .entry k(.param .u64 a) {\n.reg .b64 %x<4>; .reg .b32 %r<4>; .reg .pred %p;\n\
                ld.param.u64 %x1, [a]; mov.u32 %r1, %tid.x; mad.wide.u32 %x2, %r1, 4, %x1;\n\
                setp.lt.u32 %p, %r1, LIMIT; @%p st.global.u32 [%x2], %r1; ret;\n}";
    let run = |limit: &str| launch_known(&text.replace("LIMIT", limit), &[FIRST.start], known, 32, Flat::new(4096));
    assert_eq!(served(run("4")).words()[128..132], [0, 1, 2, 3]);
    let fault = run("5").unwrap_err();
    assert_eq!(fault.thread, [4, 0, 0]);
    assert_eq!(refused(Err(fault)), PAST);
}

#[test]
fn a_pointer_that_a_loop_moves_keeps_its_origin() {
    let body = |count: u32| {
        format!(
            "mov.b64 %x1, %a; mov.u32 %r1, 0;\nagain: st.global.u32 [%x1], %r1; add.s64 %x1, %x1, 4; add.u32 %r1, %r1, 1;\n\
             setp.lt.u32 %p1, %r1, {count}; @%p1 bra again;"
        )
    };
    assert_eq!(served(run(&body(4), &[FIRST.start])).words()[128..133], [0, 1, 2, 3, 0]);
    assert_eq!(refused(run(&body(5), &[FIRST.start])), PAST);
}

#[test]
fn a_launch_of_which_no_block_is_known_is_not_limited() {
    let text = ".visible .entry k(.param .u64 a) {\n.reg .b64 %x<4>; .reg .b32 %r<2>;\nld.param.u64 %x1, [a];\n\
                mov.u32 %r1, 5; st.global.u32 [%x1+64], %r1; ret;\n}";
    served(launch_known(text, &[FIRST.start], |_| None, 1, Flat::new(4096)));
}
