//! Video instructions: parts of operands, saturation, and what happens to the result.

use crate::common::{kernel, words};

/// Returns the result of an instruction on %r1 = 0x80ff0102, %r2 = 0x7f03fffe and %r3 = 0x12345678.
fn result(instruction: &str) -> u32 {
    let body = format!(
        "mov.b32 %r1, 0x80ff0102; mov.b32 %r2, 0x7f03fffe; mov.b32 %r3, 0x12345678; {instruction}; st.global.b32 [%out], %r4;"
    );
    words(&kernel("", &body), 1, 1, 1)[0]
}

#[test]
fn parts_are_extended_by_their_type() {
    assert_eq!(result("vadd.s32.s32.u32 %r4, %r1.b3, %r2.b0"), 126);
    assert_eq!(result("vadd.s32.u32.s32 %r4, %r1.b3, %r2.b0"), 126);
    assert_eq!(result("vsub.s32.s32.s32 %r4, %r1.h1, %r2.h0"), 0xffff_8101);
    assert_eq!(result("vabsdiff.u32.u32.u32 %r4, %r1.b0, %r2.b1"), 253);
}

#[test]
fn a_result_is_clamped_to_where_it_goes() {
    assert_eq!(result("vsub.u32.u32.u32.sat %r4, %r1.b0, %r2.b1"), 0);
    assert_eq!(result("vadd.s32.s32.s32.sat %r4, %r2, %r2"), 0x7fff_ffff);
    assert_eq!(result("vadd.u32.u32.u32.sat %r4.b2, %r1.b2, %r2.b1, %r3"), 0x12ff_5678);
    assert_eq!(result("vadd.u32.u32.u32 %r4.b2, %r1.b2, %r2.b1, %r3"), 0x12fe_5678);
    assert_eq!(result("vmin.s32.s32.s32.sat %r4.h0, %r1, %r2, %r3"), 0x1234_8000);
}

#[test]
fn a_second_operation_takes_the_third_operand() {
    assert_eq!(result("vadd.s32.u32.u32.add %r4, %r1.b0, 1, %r3"), 0x1234_567b);
    assert_eq!(result("vsub.s32.u32.u32.min %r4, %r1.b0, 3, %r3"), 0xffff_ffff);
    assert_eq!(result("vsub.u32.u32.u32.min %r4, %r1.b0, 3, %r3"), 0x1234_5678);
    assert_eq!(result("vset.s32.s32.lt.add %r4, %r1, %r2, %r3"), 0x1234_5679);
}

#[test]
fn shifts_clamp_or_wrap_their_amount() {
    assert_eq!(result("vshl.u32.u32.u32.clamp %r4, %r3, %r2.b3"), 0);
    assert_eq!(result("vshl.u32.u32.u32.wrap %r4, %r3, %r2.b2"), 0x91a2_b3c0);
    assert_eq!(result("vshr.s32.s32.u32.clamp %r4, %r1, %r2.b3"), 0xffff_ffff);
    assert_eq!(result("vshl.u32.u32.u32.sat.clamp %r4, %r3, 8"), 0xffff_ffff);
}

#[test]
fn vmad_scales_and_clamps_the_sum() {
    assert_eq!(result("vmad.s32.s32.s32 %r4, %r1.b2, %r2.b2, %r3"), 0x1234_5675);
    assert_eq!(result("vmad.s32.s32.s32.po %r4, %r1.b2, %r2.b2, %r3"), 0x1234_5676);
    assert_eq!(result("vmad.u32.u32.u32.shr7 %r4, %r1.b0, %r2.b2, 122"), 1);
    assert_eq!(result("vmad.u32.u32.u32.sat %r4, %r1, %r2, %r3"), 0xffff_ffff);
}

#[test]
fn halves_and_bytes_are_selected_and_masked() {
    assert_eq!(result("vadd2.s32.s32.s32 %r4, %r1, %r2, 0"), 0x0002_0100);
    assert_eq!(result("vadd2.s32.s32.s32.sat %r4.h1, %r1.h32, %r2.h32, %r3"), 0x7fff_5678);
    assert_eq!(result("vmax4.u32.u32.u32 %r4, %r1, %r2, 0"), 0x80ff_fffe);
    assert_eq!(result("vabsdiff4.s32.s32.s32 %r4.b10, %r1, %r2, %r3"), 0x1234_0204);
    assert_eq!(result("vavrg4.s32.s32.s32 %r4, %r1.b0000, %r2.b7654, 0"), 0x4103_0100);
    assert_eq!(result("vset4.u32.u32.ge.add %r4, %r1, %r2, %r3"), 0x1234_567a);
}
