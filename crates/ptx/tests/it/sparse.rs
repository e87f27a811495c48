//! Products with a sparse matrix: which columns its stored elements belong to, and which lanes say so.

use freehold_ptx::Unit;

use crate::common::{kernel, with_head, words};

/// Computes in %r1 the lane in its group of four, in %r10 the metadata of the kernel for that lane, and stores %r4 to %r7
/// of every lane.
fn run(metadata: [u32; 4], body: &str) -> Vec<u32> {
    let [first, second, third, fourth] = metadata;
    let body = format!(
        "and.b32 %r1, %tid, 3; mov.b32 %r11, {first:#x}; setp.eq.u32 %p1, %r1, 1; selp.b32 %r11, {second:#x}, %r11, %p1; \
         setp.eq.u32 %p1, %r1, 2; selp.b32 %r11, {third:#x}, %r11, %p1; setp.eq.u32 %p1, %r1, 3; \
         selp.b32 %r10, {fourth:#x}, %r11, %p1; mov.b32 %r19, 0;\n{body}\n\
         st.global.b32 [%at], %r4; st.global.b32 [%at+128], %r5; st.global.b32 [%at+256], %r6; st.global.b32 [%at+384], %r7;"
    );
    words(&kernel("", &body), 1, 32, 128)
}

/// Asserts the product's rows 0 to 7, which are equal, and likewise the others.
#[track_caller]
fn assert_rows(found: &[u32], first: u32, last: u32) {
    assert_eq!(found[..64], [first; 64]);
    assert_eq!(found[64..], [last; 64]);
}

#[test]
fn a_lane_of_four_has_the_positions_of_two_rows_of_halves() {
    // Of each stored pair the first is 1 and the second 2. Row k of b is k, but rows 2 and 3, which no position names,
    // are infinite.
    let body = "shl.b32 %r2, %r1, 1; cvt.rn.f16.u32 %h1, %r2; add.u32 %r3, %r2, 1; cvt.rn.f16.u32 %h2, %r3; \
         mov.b32 %r8, {%h1, %h2}; setp.eq.u32 %p1, %r1, 1; selp.b32 %r8, 0x7c007c00, %r8, %p1; \
         add.u32 %r2, %r2, 8; cvt.rn.f16.u32 %h1, %r2; add.u32 %r3, %r2, 1; cvt.rn.f16.u32 %h2, %r3; \
         mov.b32 %r9, {%h1, %h2}; mov.b32 %r3, 0x40003c00; \
         mma.sp::ordered_metadata.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%r4, %r5, %r6, %r7}, {%r3, %r3}, \
         {%r8, %r9}, {%r19, %r19, %r19, %r19}, %r10, 1;";
    let found = run([0, 0xeee4_8e94, 0, 0], body);
    assert_rows(&found, 91f32.to_bits(), 98f32.to_bits());
}

#[test]
fn two_lanes_of_four_have_the_positions_of_two_rows_of_bytes() {
    let body = "mul.lo.u32 %r2, %r1, 0x04040404; add.u32 %r8, %r2, 0x03020100; add.u32 %r9, %r2, 0x13121110; \
         mov.b32 %r3, 0x02010201; \
         mma.sp.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%r4, %r5, %r6, %r7}, {%r3, %r3}, {%r8, %r9}, \
         {%r19, %r19, %r19, %r19}, %r10, 1;";
    assert_rows(&run([0, 0, 0x4444_4444, 0xeeee_4444], body), 352, 376);
}

#[test]
fn one_of_two_tf32_is_stored() {
    let body = "cvt.rn.f32.u32 %f1, %r1; add.u32 %r2, %r1, 4; cvt.rn.f32.u32 %f2, %r2; mov.b32 %r8, %f1; \
         mov.b32 %r9, %f2; mov.b32 %r3, 0x3f800000; \
         mma.sp::ordered_metadata.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%r4, %r5, %r6, %r7}, {%r3, %r3}, \
         {%r8, %r9}, {%r19, %r19, %r19, %r19}, %r10, 0;";
    assert_rows(&run([0x4444_e4e4, 0, 0, 0], body), 14f32.to_bits(), 12f32.to_bits());
}

#[test]
fn two_of_four_pairs_of_4_bit_integers_are_stored() {
    let body = "mov.b32 %r8, 0x76543210; mov.b32 %r3, 0x43214321; \
         mma.sp.sync.aligned.m16n8k64.row.col.s32.s4.u4.s32 {%r4, %r5, %r6, %r7}, {%r3, %r3}, {%r8, %r8}, \
         {%r19, %r19, %r19, %r19}, %r10, 0;";
    assert_rows(&run([0x4444_4444, 0xeeee_eeee, 0, 0], body), 160, 480);
}

#[test]
fn a_selector_names_lanes_that_exist() {
    let error = |selector: u32| {
        let instruction = format!(
            "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 {{%r4, %r5, %r6, %r7}}, {{%r3, %r3, %r3, %r3}}, \
             {{%r8, %r8, %r8, %r8}}, {{%r9, %r9, %r9, %r9}}, %r10, {selector};"
        );
        Unit::compile(&with_head(&kernel("", &instruction))).map(|_| ()).map_err(|error| error.message)
    };
    assert_eq!(error(1), Ok(()));
    assert_eq!(error(2), Err("the sparsity selector must be a constant below 2".to_owned()));
}

#[test]
fn wmma_multiplies_4_bit_integers_in_memory() {
    // Row r of a and column r of b have the number r everywhere.
    let body = "shr.u32 %r1, %tid, 2; mul.lo.u32 %r2, %r1, 0x11111111; st.global.b32 [%at], %r2; bar.warp.sync -1; \
         wmma.load.a.sync.aligned.row.m8n8k32.global.s4 {%r3}, [%out]; \
         wmma.load.b.sync.aligned.col.m8n8k32.global.s4 {%r4}, [%out], 32; mov.b32 %r19, 0; \
         wmma.mma.sync.aligned.row.col.m8n8k32.s32.s4.s4.s32 {%r5, %r6}, {%r3}, {%r4}, {%r19, %r19}; \
         wmma.store.d.sync.aligned.row.m8n8k32.global.s32 [%out], {%r5, %r6};";
    let product: Vec<u32> = (0..64).map(|i| 32 * (i / 8) * (i % 8)).collect();
    assert_eq!(words(&kernel("", body), 1, 32, 64), product);
}

#[test]
fn wmma_counts_bits_in_memory() {
    // Row r of a and column r of b have r ones in each word.
    let body = "shr.u32 %r1, %tid, 2; mov.b32 %r2, 1; shl.b32 %r2, %r2, %r1; sub.u32 %r2, %r2, 1; \
         st.global.b32 [%at], %r2; bar.warp.sync -1; \
         wmma.load.a.sync.aligned.row.m8n8k128.global.b1 {%r3}, [%out]; \
         wmma.load.b.sync.aligned.col.m8n8k128.global.b1 {%r4}, [%out], 128; mov.b32 %r19, 0; \
         wmma.mma.and.popc.sync.aligned.row.col.m8n8k128.s32.b1.b1.s32 {%r5, %r6}, {%r3}, {%r4}, {%r19, %r19}; \
         wmma.store.d.sync.aligned.col.m8n8k128.global.s32 [%out], {%r5, %r6};";
    let product: Vec<u32> = (0..64).map(|i| 4 * (i / 8).min(i % 8)).collect();
    assert_eq!(words(&kernel("", body), 1, 32, 64), product);
}
