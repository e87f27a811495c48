//! Which registers share a slot, and how much smaller frames are for it.

use std::path::Path;

use super::super::FileSizes;
use crate::image::Unit;

/// Returns the sizes of the frame of a kernel with 32-bit registers `%r<9>`, predicates `%p<3>` and the pointer `%a`.
/// Each constant has a slot too.
fn slots(body: &str) -> FileSizes {
    let text = format!(
        ".version 8.6\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 p) {{
        .reg .b32 %r<9>; .reg .pred %p<3>; .reg .b64 %a;\nld.param.u64 %a, [p];\n{body}\nret;\n}}"
    );
    Unit::compile(&text).unwrap().functions()[0].slots
}

fn narrow(body: &str) -> u32 {
    slots(body).narrow
}

#[test]
fn registers_that_are_never_needed_together_share_a_slot() {
    let chain = "ld.global.u32 %r0, [%a]; add.u32 %r1, %r0, %r0; add.u32 %r2, %r1, %r1; add.u32 %r3, %r2, %r2;
        add.u32 %r4, %r3, %r3; st.global.u32 [%a], %r4;";
    assert_eq!(narrow(chain), 2);
}

#[test]
fn registers_that_are_needed_together_have_their_own() {
    let sum = "ld.global.u32 %r0, [%a]; ld.global.u32 %r1, [%a+4]; ld.global.u32 %r2, [%a+8]; add.u32 %r3, %r0, %r1;
        add.u32 %r4, %r3, %r2; st.global.u32 [%a], %r4;";
    assert_eq!(narrow(sum), 4);
}

#[test]
fn a_value_that_a_loop_carries_is_kept_through_all_of_it() {
    // `%r1` is written before the loop and read at its head: what is written behind that read must not replace it.
    let body = "ld.global.u32 %r1, [%a]; ld.global.u32 %r5, [%a+4];
        L: add.u32 %r2, %r1, %r1; ld.global.u32 %r3, [%a+8]; st.global.u32 [%a], %r2; setp.lt.u32 %p0, %r3, %r5;
        @%p0 bra L;";
    assert_eq!(narrow(body), 4);
    // The same through a block before the head.
    let body = body.replace("@%p0 bra L", "@%p0 bra BACK").replace("L: ", "bra L; BACK: membar.cta; L: ");
    assert_eq!(narrow(&body), 4);
}

#[test]
fn a_guarded_write_does_not_end_the_value_before_it() {
    // A lane that the guard excludes needs `%r0` of the iteration before.
    let body = "ld.global.u32 %r4, [%a]; setp.lt.u32 %p0, %r4, %r4;
        L: @%p0 ld.global.u32 %r0, [%a+8]; st.global.u32 [%a], %r0; ld.global.u32 %r1, [%a]; ld.global.u32 %r2, [%a+4];
        add.u32 %r3, %r1, %r2; st.global.u32 [%a], %r3; setp.lt.u32 %p1, %r3, %r3; @%p1 bra L;";
    assert_eq!(narrow(body), 4);
    assert_eq!(narrow(&body.replace("@%p0", "")), 3);
}

#[test]
fn the_arms_of_a_branch_share_slots() {
    let body = "ld.global.u32 %r0, [%a]; setp.lt.u32 %p0, %r0, %r0; @%p0 bra ELSE;
        ld.global.u32 %r1, [%a]; ld.global.u32 %r2, [%a+4]; add.u32 %r3, %r1, %r2; st.global.u32 [%a], %r3; bra END;
        ELSE: ld.global.u32 %r4, [%a]; ld.global.u32 %r5, [%a+4]; add.u32 %r6, %r4, %r5; st.global.u32 [%a], %r6;
        END:";
    assert_eq!(narrow(body), 3);
}

#[test]
fn only_registers_that_may_be_read_first_begin_as_zero() {
    let text = ".version 8.6\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 p) {
        .reg .b32 %r<4>; .reg .pred %p<1>; .reg .b64 %a;\nld.param.u64 %a, [p];
        ld.global.u32 %r0, [%a]; setp.lt.u32 %p0, %r0, 7; @%p0 mov.b32 %r1, 5; @%p0 bra L; mov.b32 %r2, 1;
        L: add.u32 %r3, %r1, %r2; st.global.u32 [%a], %r3;\nret;\n}";
    let unit = Unit::compile(text).unwrap();
    // `%r1` and `%r2`.
    assert_eq!(unit.functions()[0].uninitialized.len(), 2);
}

/// Prints the frames of the largest kernels in the repository, before and after.
#[test]
fn no_frame_of_a_kernel_in_the_repository_grows() {
    let mut frames = Vec::new();
    for folder in ["../softcuda/tests/kernels", "benches/kernels"] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "ptx") {
                let text = std::fs::read_to_string(&path).unwrap();
                let unit = Unit::compile_for(&text, None).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
                let sizes = unit.functions().iter().map(|code| (bytes(code.registers), bytes(code.slots)));
                let (before, after) = sizes.max().unwrap_or_default();
                assert!(after <= before, "{}: {after} bytes instead of {before}", path.display());
                frames.push((before, after, path.file_name().unwrap().to_string_lossy().into_owned()));
            }
        }
    }
    frames.sort();
    let sum = |size: fn(&(u64, u64, String)) -> u64| frames.iter().map(size).sum::<u64>();
    println!("{} kernels: {} bytes become {}", frames.len(), sum(|frame| frame.0), sum(|frame| frame.1));
    for (before, after, name) in frames.iter().rev().take(12) {
        println!("{before:>8} {after:>8} {name}");
    }
    assert!(2 * sum(|frame| frame.1) < sum(|frame| frame.0));
}

/// Returns the size of the registers of a warp.
fn bytes(sizes: FileSizes) -> u64 {
    32 * (4 * u64::from(sizes.narrow) + 8 * u64::from(sizes.wide)) + 4 * u64::from(sizes.predicates)
}
