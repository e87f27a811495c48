//! Matrix instructions of a warp: products, and where each lane has its elements.

use freehold_ptx::Unit;

use crate::common::{kernel, launch, with_head, words};

/// The words that a kernel of 32 threads writes to the memory, which is zero before.
fn run(body: &str, count: usize) -> Vec<u32> {
    words(&kernel("", body), 1, 32, count)
}

/// Returns instructions that write registers to the memory: 32 words for each.
fn store_lanes(registers: &[&str]) -> String {
    let store = |(index, register): (usize, &&str)| format!("st.global.b32 [%at+{}], {register};\n", 128 * index);
    registers.iter().enumerate().map(store).collect()
}

/// The bits of an f16 with a small integer value.
fn f16(value: u32) -> u32 {
    let exponent = 31 - value.leading_zeros();
    (exponent + 15) << 10 | (value << 10 >> exponent) & 0x3ff
}

#[test]
fn f16_product_has_the_documented_layout() {
    // a[row][column] is 1 where row = column, so that d = b + c, for the first 8 rows, and the next 8 rows of b below.
    // Lane 4g+t has a[g][2t], a[g][2t+1] in a0; rows 8 and following in a1; columns 8 and following in a2, a3.
    let body = "shr.u32 %r1, %tid, 2; and.b32 %r2, %tid, 3; shl.b32 %r3, %r2, 1; \
        setp.eq.u32 %p1, %r1, %r3; selp.b32 %r4, 0x3c00, 0, %p1; \
        add.u32 %r5, %r3, 1; setp.eq.u32 %p2, %r1, %r5; selp.b32 %r6, 0x3c000000, 0, %p2; or.b32 %r7, %r4, %r6; \
        mov.b32 %r8, 0; \
        cvt.rn.f16.u32 %h1, %tid; add.u32 %r9, %tid, 32; cvt.rn.f16.u32 %h2, %r9; mov.b32 %r10, {%h1, %h2}; \
        add.u32 %r9, %tid, 64; cvt.rn.f16.u32 %h1, %r9; add.u32 %r9, %tid, 96; cvt.rn.f16.u32 %h2, %r9; \
        mov.b32 %r11, {%h1, %h2}; \
        mov.f32 %f1, 0f3F000000; mov.f32 %f2, 0f00000000; \
        mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f3, %f4, %f5, %f6}, {%r7, %r8, %r8, %r7}, {%r10, %r11}, \
        {%f1, %f2, %f1, %f2};\n";
    let out = run(&format!("{body}{}", store_lanes(&["%f3", "%f4", "%f5", "%f6"])), 128);
    // b[row][column] in lane 4*column + row%8/2, low half for even rows; rows 8 and following in the second register.
    let b = |row: usize, column: usize| (4 * column + row % 8 / 2 + row % 2 * 32 + row / 8 * 64) as f32;
    for lane in 0..32 {
        let (group, thread) = (lane / 4, lane % 4);
        for (register, (row, column)) in
            [(group, 2 * thread), (group, 2 * thread + 1), (group + 8, 2 * thread), (group + 8, 2 * thread + 1)]
                .into_iter()
                .enumerate()
        {
            let expected = b(row, column) + if column % 2 == 0 { 0.5 } else { 0.0 };
            assert_eq!(f32::from_bits(out[32 * register + lane]), expected, "lane {lane}, register {register}");
        }
    }
}

#[test]
fn an_f16_result_is_rounded_once_and_packed() {
    // 16 products of 1 and 2048 plus 1: 32769 is not an f16, 32768 is.
    let body = format!(
        "mov.b32 %r1, 0x3c003c00; mov.b32 %r2, {0:#x}; mov.b32 %r3, 0x3c003c00; \
         mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {{%r4, %r5}}, {{%r1, %r1, %r1, %r1}}, {{%r2, %r2}}, \
         {{%r3, %r3}};\n{1}",
        f16(2048) << 16 | f16(2048),
        store_lanes(&["%r4", "%r5"])
    );
    assert_eq!(run(&body, 64), [f16(32768) << 16 | f16(32768); 64]);
}

#[test]
fn other_types_multiply() {
    let product = |instruction: &str, a: &str, b: &str| {
        format!(
            "mov.b32 %r1, {a}; mov.b32 %r2, {b}; mov.b32 %r3, 0; {instruction}\n{}",
            store_lanes(&["%r4", "%r5", "%r6", "%r7"])
        )
    };
    let sums = "{%r4, %r5, %r6, %r7}";
    let zeros = "{%r3, %r3, %r3, %r3}";
    // bf16: 16 * 1.5 * 2
    let bf16 = format!(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {sums}, {{%r1, %r1, %r1, %r1}}, {{%r2, %r2}}, {zeros};"
    );
    assert_eq!(run(&product(&bf16, "0x3fc03fc0", "0x40004000"), 128), [48f32.to_bits(); 128]);
    // tf32: 8 * 1.5 * 2, without the lowest 13 bits
    let tf32 = format!(
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {sums}, {{%r1, %r1, %r1, %r1}}, {{%r2, %r2}}, {zeros};"
    );
    assert_eq!(run(&product(&tf32, "0x3fc01fff", "0x40000001"), 128), [24f32.to_bits(); 128]);
    // s8 and u8: 32 * -1 * 255
    let s8 = format!(
        "mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32 {sums}, {{%r1, %r1, %r1, %r1}}, {{%r2, %r2}}, {zeros};"
    );
    assert_eq!(run(&product(&s8, "0xffffffff", "0xffffffff"), 128), [(-8160i32).cast_unsigned(); 128]);
    // s4: 64 * -8 * 7
    let s4 = format!(
        "mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32 {sums}, {{%r1, %r1, %r1, %r1}}, {{%r2, %r2}}, {zeros};"
    );
    assert_eq!(run(&product(&s4, "0x88888888", "0x77777777"), 128), [(-3584i32).cast_unsigned(); 128]);
    // b1: bits that both have, and bits that differ
    let b1 = format!(
        "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc {sums}, {{%r1, %r1, %r1, %r1}}, {{%r2, %r2}}, {zeros};"
    );
    assert_eq!(run(&product(&b1, "0xff", "0xf0f"), 128), [32; 128]);
    let b1 = b1.replace(".and.", ".xor.");
    assert_eq!(run(&product(&b1, "0xff", "0xf0f"), 128), [64; 128]);
    // e4m3: 32 * 1.5 * 448; e5m2: 32 * 1.5 * 2
    let fp8 = format!(
        "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {sums}, {{%r1, %r1, %r1, %r1}}, {{%r2, %r2}}, {zeros};"
    );
    assert_eq!(run(&product(&fp8, "0x3c3c3c3c", "0x7e7e7e7e"), 128), [21504f32.to_bits(); 128]);
    let fp8 = fp8.replace("e4m3", "e5m2");
    assert_eq!(run(&product(&fp8, "0x3e3e3e3e", "0x40404040"), 128), [96f32.to_bits(); 128]);
}

#[test]
fn an_integer_sum_wraps_or_saturates() {
    let body = |saturate: &str| {
        format!(
            "mov.b32 %r1, 0x01010101; mov.b32 %r2, 0x7fffffff; \
             mma.sync.aligned.m8n8k16.row.col{saturate}.s32.s8.s8.s32 {{%r3, %r4}}, {{%r1}}, {{%r1}}, {{%r2, %r2}};\n{}",
            store_lanes(&["%r3", "%r4"])
        )
    };
    assert_eq!(run(&body(""), 64), [0x8000_000f; 64]);
    assert_eq!(run(&body(".satfinite"), 64), [0x7fff_ffff; 64]);
}

#[test]
fn a_double_product_has_the_documented_layout() {
    // a is the identity in the first 4 rows; b[row][column] is in lane 4*column + row.
    let body = "shr.u32 %r1, %tid, 2; and.b32 %r2, %tid, 3; setp.eq.u32 %p1, %r1, %r2; \
        mov.f64 %g1, 0d3FF0000000000000; mov.f64 %g2, 0d0000000000000000; selp.f64 %g3, %g1, %g2, %p1; \
        cvt.rn.f64.u32 %g4, %tid; mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%g5, %g6}, {%g3}, {%g4}, {%g1, %g1}; \
        cvt.rn.f32.f64 %f1, %g5; cvt.rn.f32.f64 %f2, %g6;\n";
    let out = run(&format!("{body}{}", store_lanes(&["%f1", "%f2"])), 64);
    for lane in 0..32 {
        let (row, column) = (lane / 4, lane % 4 * 2);
        let expected = |column: usize| if row < 4 { (4 * column + row) as f32 + 1.0 } else { 1.0 };
        assert_eq!(f32::from_bits(out[lane]), expected(column), "lane {lane}");
        assert_eq!(f32::from_bits(out[32 + lane]), expected(column + 1), "lane {lane}");
    }
}

/// A kernel that writes `index + 1` as f16 to 512 halves of shared memory.
const FILL: &str = ".shared .align 16 .b8 s[1024]; \
    mov.u32 %r1, 0; fill: mad.lo.u32 %r2, %r1, 32, %tid; add.u32 %r3, %r2, 1; cvt.rn.f16.u32 %h1, %r3; shl.b32 %r4, %r2, 1; \
    mov.u32 %r5, s; add.u32 %r5, %r5, %r4; st.shared.b16 [%r5], %h1; add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 16; \
    @%p1 bra fill; bar.sync 0;\n";

#[test]
fn ldmatrix_gives_each_lane_two_elements_of_a_row() {
    // Matrix j is the halves from 64j on; its row r is 8 halves.
    let body = "shl.b32 %r6, %tid, 4; mov.u32 %r7, s; add.u32 %r6, %r6, %r7; \
                ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r8, %r9, %r10, %r11}, [%r6];\n";
    let out = run(&format!("{FILL}{body}{}", store_lanes(&["%r8", "%r9", "%r10", "%r11"])), 128);
    let expected: Vec<u32> = (0..128)
        .map(|word| f16(word % 32 * 2 + word / 32 * 64 + 2) << 16 | f16(word % 32 * 2 + word / 32 * 64 + 1))
        .collect();
    assert_eq!(out, expected);
}

#[test]
fn transposed_ldmatrix_and_movmatrix_give_elements_of_a_column() {
    let body = "shl.b32 %r6, %tid, 4; mov.u32 %r7, s; add.u32 %r6, %r6, %r7; \
                ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%r8}, [%r6]; \
                ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r9}, [%r6]; movmatrix.sync.aligned.m8n8.trans.b16 %r10, %r9;\n";
    let out = run(&format!("{FILL}{body}{}", store_lanes(&["%r8", "%r10"])), 64);
    let element = |row: u32, column: u32| f16(8 * row + column + 1);
    let expected: Vec<u32> = (0..64)
        .map(|word| (word % 32 / 4, word % 4 * 2))
        .map(|(column, row)| element(row + 1, column) << 16 | element(row, column))
        .collect();
    assert_eq!(out, expected);
}

#[test]
fn stmatrix_is_the_reverse_of_ldmatrix() {
    let body = "shl.b32 %r6, %tid, 4; mov.u32 %r7, s; add.u32 %r6, %r6, %r7; \
                ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r8, %r9}, [%r6]; \
                stmatrix.sync.aligned.m8n8.x2.shared.b16 [%r6+512], {%r9, %r8}; bar.sync 0; \
                ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r10, %r11}, [%r6+512];\n";
    let out = run(&format!("{FILL}{body}{}", store_lanes(&["%r8", "%r9", "%r10", "%r11"])), 128);
    assert_eq!((&out[..32], &out[32..64]), (&out[96..], &out[64..96]));
    assert_ne!(out[..32], out[32..64]);
}

#[test]
fn wmma_multiplies_matrices_in_memory() {
    // a[i][j] = 16i + j + 1 in rows of 16, b = a in columns (so that b[i][j] = a[j][i]), c = 0.
    let body = "mov.u32 %r7, s; \
        wmma.load.a.sync.aligned.row.m16n16k16.shared.f16 {%r1, %r2, %r3, %r4, %r5, %r6, %r8, %r9}, [%r7]; \
        wmma.load.b.sync.aligned.col.m16n16k16.shared.f16 {%r10, %r11, %r12, %r13, %r14, %r15, %r16, %r17}, [%r7], 16; \
        mov.f32 %f1, 0f00000000; \
        wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32 {%f2, %f3, %f4, %f5, %f6, %f7, %f8, %f9}, \
        {%r1, %r2, %r3, %r4, %r5, %r6, %r8, %r9}, {%r10, %r11, %r12, %r13, %r14, %r15, %r16, %r17}, \
        {%f1, %f1, %f1, %f1, %f1, %f1, %f1, %f1}; \
        wmma.store.d.sync.aligned.row.m16n16k16.global.f32 [%out], {%f2, %f3, %f4, %f5, %f6, %f7, %f8, %f9}, 20;\n";
    let out = run(&format!("{FILL}{body}"), 320);
    let a = |row: usize, column: usize| (16 * row + column + 1) as f32;
    for (row, column) in (0..16).flat_map(|row| (0..16).map(move |column| (row, column))) {
        let expected: f32 = (0..16).map(|index| a(row, index) * a(column, index)).sum();
        assert_eq!(f32::from_bits(out[20 * row + column]), expected, "row {row}, column {column}");
    }
    assert_eq!(out[16..20], [0; 4]);
}

#[test]
fn a_lane_that_diverged_takes_part_in_a_product() {
    let body = format!(
        "mov.b32 %r1, 0x3c003c00; setp.lt.u32 %p1, %tid, 7; @%p1 bra low; mov.b32 %r2, 0x3c003c00; bra join; \
         low: mov.b32 %r2, 0x40004000; join: mov.f32 %f1, 0f00000000; \
         mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {{%f2, %f3, %f4, %f5}}, {{%r1, %r1}}, {{%r2}}, \
         {{%f1, %f1, %f1, %f1}};\n{}",
        store_lanes(&["%f2"])
    );
    // Lanes 0 to 6 have column 0 and, of column 1, rows 0 to 5.
    let expected: Vec<u32> = (0..32).map(|lane| if lane % 4 == 0 { 16f32.to_bits() } else { 8f32.to_bits() }).collect();
    assert_eq!(run(&body, 32), expected);
}

#[test]
fn an_access_beyond_the_matrix_is_a_fault() {
    let body = "mov.f32 %f1, 0f3F800000; wmma.store.d.sync.aligned.row.m16n16k16.global.f32 [%out], \
                {%f1, %f1, %f1, %f1, %f1, %f1, %f1, %f1}, 16;";
    assert!(launch(&kernel("", body), 1, 32, 1024, None).is_ok());
    let fault = launch(&kernel("", body), 1, 32, 1020, None).expect_err("the last element does not fit");
    assert!(fault.to_string().contains("writes 4 bytes of global memory"), "{fault}");
}

#[test]
fn unknown_shapes_and_types_are_refused() {
    let refused = |instruction: &str| {
        Unit::compile(&with_head(&kernel("", instruction))).expect_err("it is not supported").to_string()
    };
    let volta = "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32 {%f1, %f2, %f3, %f4, %f5, %f6, %f7, %f8}, {%r1, %r2}, \
                 {%r3, %r4}, {%f1, %f2, %f3, %f4, %f5, %f6, %f7, %f8};";
    assert!(refused(volta).contains("matrix products of this shape and these types"), "{}", refused(volta));
}
