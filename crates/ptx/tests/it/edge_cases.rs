//! Corner cases of kernels: values, parameters and spaces against the PTX ISA, convergence of threads, and inputs that
//! must not panic.

use crate::common;

use common::{Outcome, Size, kernel, launch, launch_linked};
use freehold_ptx::{Fault, FaultKind};

/// The size of each kernel's memory.
const BYTES: usize = 16 << 10;

fn run(text: &str, threads: u32) -> Result<Outcome, Fault> {
    launch(text, 1, threads, BYTES, None)
}

/// Returns the first words of the memory after a kernel has run; they must be the same in any order of its warps.
fn words(text: &str, threads: u32, count: usize) -> Vec<u32> {
    common::words(text, 1, threads, BYTES / 4)[..count].to_vec()
}

#[test]
fn a_signed_load_fills_a_16_bit_register_and_no_more() {
    let body = "mov.u32 %r1, 0x80; st.global.u8 [%out], %r1; ld.global.s8 %h1, [%out]; shr.u16 %h2, %h1, 4; \
                div.u16 %h3, %h1, 2; cvt.u32.u16 %r2, %h2; cvt.u32.u16 %r3, %h1; mov.b32 %r4, {%h1, %h1};\
                min.u16 %h4, %h1, 5; st.global.u32 [%out], %r2; st.global.u32 [%out+4], %r3; cvt.u32.u16 %r5, %h3;\
                max.u16 %h5, %h1, 5; cvt.u32.u16 %r6, %h5; mul.wide.u16 %r7, %h1, 1; \
                st.global.u32 [%out+8], %r4; st.global.u32 [%out+12], %r5; st.global.u32 [%out+16], %r6; st.global.u32 [%out+20], %r7;";
    assert_eq!(words(&kernel("", body), 1, 6), [0xff8, 0xff80, 0xff80_ff80, 0x7fc0, 0xff80, 0xff80]);
}

#[test]
fn differences_of_bytes_are_absolute_and_can_be_summed() {
    let body = "mov.u32 %r1, 0x00ff1020; mov.u32 %r2, 0xff003010; mov.u32 %r3, 7; \
                vabsdiff4.u32.u32.u32 %r4, %r1, %r2, %r3; vabsdiff4.u32.u32.u32.add %r3, %r1, %r2, %r3; \
                st.global.u32 [%out], %r4; st.global.u32 [%out+4], %r3;";
    assert_eq!(words(&kernel("", body), 1, 2), [0xffff_2010, 7 + 255 + 255 + 32 + 16]);
}

/// As the PTX ISA says of texts for sm_1x on later devices: `fma.rn.ftz`.
#[test]
fn a_text_for_the_first_targets_has_mad_without_rounding_and_flushes() {
    let text = |head: &str| {
        format!(
            "{head}\n.entry k(.param .u64 out)\n{{ .reg .u64 %at; .reg .f32 %f<4>; ld.param.u64 %at, [out]; \
             mov.f32 %f1, 0f3f800001; mov.f32 %f2, 0fbf800002; mad.f32 %f3, %f1, %f1, %f2; st.global.f32 [%at], %f3; \
             mov.f32 %f1, 0f00000001; add.f32 %f2, %f1, %f1; st.global.f32 [%at+4], %f2; ret; }}"
        )
    };
    assert_eq!(words(&text(".version 1.4 .target sm_10, map_f64_to_f32"), 1, 2), [0x2880_0000, 0]);
    assert_eq!(words(&text(".version 3.0 .target sm_20 .address_size 64"), 1, 2), [0x2880_0000, 2]);
    let refused = freehold_ptx::Unit::compile(&text(".version 3.2 .target sm_20 .address_size 64")).unwrap_err();
    assert!(refused.to_string().contains("the instruction requires a rounding mode"), "{refused}");
}

#[test]
fn vector_atomics_read_all_operands_before_they_write() {
    let body = "mov.f32 %f1, 0f3f800000; mov.f32 %f2, 0f40000000; \
                atom.global.add.v2.f32 {%f2, %f1}, [%out], {%f1, %f2}; ";
    let got = words(&kernel("", body), 1, 2);
    assert_eq!(got, [0x3f80_0000, 0x4000_0000]);
}

#[test]
fn a_counted_barrier_counts_the_missing_lanes_of_a_partial_warp() {
    let body = "bar.sync 1, 64; st.global.u32 [%at], %tid;";
    assert_eq!(words(&kernel("", body), 40, 40)[39], 39);
}

#[test]
fn a_counted_barrier_counts_lanes_that_have_ended() {
    let body = "setp.lt.u32 %p1, %tid, 16; @%p1 exit; bar.sync 1, 64; st.global.u32 [%at], %tid;";
    assert_eq!(words(&kernel("", body), 64, 64)[63], 63);
}

#[test]
fn a_counted_barrier_ends_when_the_rest_of_a_warp_does() {
    let body = "setp.lt.u32 %p1, %tid, 16; setp.gt.u32 %p2, %tid, 47; @%p2 bra B; @%p1 bra W; bra B;\
                W: nanosleep.u32 5000; exit; B: bar.sync 1, 64; st.global.u32 [%at], %tid;";
    assert_eq!(words(&kernel("", body), 64, 64)[63], 63);
}

#[test]
fn lanes_shuffle_in_a_function_that_they_called_from_different_places() {
    let before = ".func (.reg .b32 %o) f(.reg .b32 %a) { shfl.sync.bfly.b32 %o, %a, 16, 31, -1; ret; }";
    let body = "setp.lt.u32 %p1, %tid, 16; @%p1 bra A; call (%r1), f, (%tid); bra E; \
                A: call (%r1), f, (%tid); E: st.global.u32 [%at], %r1;";
    assert_eq!(words(&kernel(before, body), 32, 32), (0..32).map(|lane| lane ^ 16).collect::<Vec<_>>());
}

#[test]
fn arguments_of_printf_at_the_end_of_the_address_space_are_a_fault() {
    let before = ".extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a); \
                  .global .align 1 .b8 fmt[4] = {37, 100, 0, 0};";
    let body = "{ .param .b64 f; .param .b64 a; .param .b32 r; cvta.global.u64 %d1, fmt; mov.u64 %d1, fmt; \
                st.param.b64 [f], %d1; mov.u64 %d2, -2; st.param.b64 [a], %d2; call (r), vprintf, (f, a); }";
    assert!(run(&kernel(before, body), 1).is_err());
}

#[test]
fn endless_recursion_without_locals_is_a_fault_of_the_stack() {
    let mut registers = String::new();
    for index in 0..200 {
        registers += &format!("mov.u32 %a{index}, {index}; ");
    }
    let before = format!(".func f() {{ .reg .b32 %a<200>; {registers} call f; ret; }}");
    let fault = run(&kernel(&before, "call f;"), 32).expect_err("the kernel should fault").to_string();
    assert!(fault.contains("stack"), "{fault}");
}

#[test]
fn a_vector_load_may_overwrite_its_address() {
    let body = "mov.u64 %d1, 7; mov.u64 %d2, 9; st.global.v2.u64 [%out+16], {%d1, %d2}; add.u64 %d3, %out, 16; \
                ld.global.v2.u64 {%d3, %d4}, [%d3]; st.global.u64 [%out], %d3; st.global.u64 [%out+8], %d4;";
    assert_eq!(words(&kernel("", body), 1, 4), [7, 0, 9, 0]);
}

#[test]
fn producers_arrive_and_consumers_wait_thousands_of_times() {
    let before = ".shared .u32 s;";
    let body = "mov.u32 %r1, 0; setp.ge.u32 %p1, %tid, 32; @%p1 bra C; \
                P: st.shared.u32 [s], %r1; bar.arrive 1, 64; bar.sync 2, 64; add.u32 %r1, %r1, 1; setp.lt.u32 %p2, %r1, 3000; @%p2 bra P; bra E; \
                C: bar.sync 1, 64; ld.shared.u32 %r2, [s]; setp.ne.u32 %p3, %r2, %r1; @%p3 trap; bar.arrive 2, 64; add.u32 %r1, %r1, 1; setp.lt.u32 %p2, %r1, 3000; @%p2 bra C; \
                E: st.global.u32 [%at], %r1;";
    assert_eq!(words(&kernel(before, body), 64, 64)[63], 3000);
}

#[test]
fn lanes_that_end_free_those_that_wait_for_the_warp() {
    let body = "setp.lt.u32 %p1, %tid, 5; @%p1 bra W; nanosleep.u32 3000; exit; W: bar.warp.sync -1; shfl.sync.idx.b32 %r1, %tid, 2, 31, -1; st.global.u32 [%at], %r1;";
    assert_eq!(words(&kernel("", body), 32, 5), [2; 5]);
}

#[test]
fn a_sleeping_warp_at_a_barrier_is_not_a_deadlock() {
    let body = "setp.lt.u32 %p1, %tid, 32; @%p1 nanosleep.u32 900000; bar.sync 0; st.global.u32 [%at], %tid;";
    assert_eq!(words(&kernel("", body), 64, 64)[63], 63);
}

#[test]
fn threads_of_three_dimensions_know_where_they_are() {
    let body = "mov.u32 %r1, %tid.x; mov.u32 %r2, %tid.y; mov.u32 %r3, %tid.z; mov.u32 %r4, %ntid.x; mov.u32 %r5, %ntid.y; \
                mad.lo.u32 %r6, %r3, %r5, %r2; mad.lo.u32 %r6, %r6, %r4, %r1; mul.wide.u32 %d1, %r6, 4; add.u64 %d1, %d1, %out; st.global.u32 [%d1], %r6;";
    let size = Size { grid: 1, block: [3, 5, 7], bytes: BYTES };
    let memory = launch_linked(&[&kernel("", body)], size, None).expect("the kernel faulted").memory;
    assert_eq!(memory.bytes[4 * 104], 104);
}

#[test]
fn a_chain_of_carries_obeys_its_guards() {
    let body = "setp.eq.u32 %p1, %tid, 0; mov.u32 %r1, -1; mov.u32 %r2, 0; @%p1 add.cc.u32 %r3, %r1, 1; @!%p1 add.cc.u32 %r3, %r2, 1; addc.u32 %r4, %r2, %r2; st.global.u32 [%at], %r4;";
    assert_eq!(words(&kernel("", body), 2, 2), [1, 0]);
}

#[test]
fn a_product_carries_into_its_high_half() {
    let body = "mov.u32 %r1, -1; mov.u32 %r2, -1; mov.u32 %r3, -1; mad.lo.cc.u32 %r4, %r1, %r2, %r3; madc.hi.u32 %r5, %r1, %r2, 0; st.global.u32 [%out], %r4; st.global.u32 [%out+4], %r5;";
    assert_eq!(words(&kernel("", body), 1, 2), [0, 0xffff_ffff]);
}

#[test]
fn atomics_reach_shared_memory_through_generic_addresses() {
    let before = ".shared .align 8 .b8 s[64];";
    let body = "mov.u32 %r1, s; cvt.u64.u32 %d1, %r1; cvta.shared.u64 %d1, %d1; setp.eq.u32 %p1, %tid, 0; mov.u32 %r9, 0; @%p1 st.u32 [%d1], %r9; bar.sync 0; atom.add.u32 %r2, [%d1], 3; red.shared.max.u32 [s+4], %tid; atom.inc.u32 %r3, [%d1+8], 3; bar.sync 0; ld.shared.u32 %r4, [s]; st.global.u32 [%out], %r4; ld.u32 %r5, [%d1+4]; st.global.u32 [%out+4], %r5; ld.u32 %r6, [%d1+8]; st.global.u32 [%out+8], %r6;";
    assert_eq!(words(&kernel(before, body), 33, 3), [99, 32, 1]);
}

#[test]
fn lanes_vote_within_their_branch() {
    let body = "setp.lt.u32 %p1, %tid, 10; and.b32 %r1, %tid, 1; setp.eq.u32 %p2, %r1, 1; @%p1 bra A; \
                vote.sync.ballot.b32 %r2, %p2, 0xfffffc00; match.any.sync.b32 %r3, %r1, 0xfffffc00; bra E; \
                A: vote.sync.ballot.b32 %r2, %p2, 0x3ff; match.any.sync.b32 %r3, %r1, 0x3ff; \
                E: xor.b32 %r2, %r2, %r3; st.global.u32 [%at], %r2;";
    let got = words(&kernel("", body), 32, 32);
    assert_eq!((got[0], got[1], got[30], got[31]), (0x3ff, 0, 0xffff_fc00, 0));
}

#[test]
fn an_mbarrier_goes_through_its_phases() {
    let before = ".shared .align 8 .b64 b; .shared .u32 s;";
    let body = "setp.eq.u32 %p1, %tid, 0; @%p1 mbarrier.init.shared.b64 [b], 64; bar.sync 0; mov.u32 %r1, 0; \
                L: red.shared.add.u32 [s], 1; mbarrier.arrive.shared.b64 %d1, [b]; \
                W: mbarrier.try_wait.shared.b64 %p2, [b], %d1; @!%p2 bra W; ld.shared.u32 %r2, [s]; \
                mbarrier.arrive.shared.b64 %d1, [b]; V: mbarrier.test_wait.shared.b64 %p2, [b], %d1; @!%p2 bra V; \
                add.u32 %r1, %r1, 1; mul.lo.u32 %r3, %r1, 64; setp.ne.u32 %p3, %r2, %r3; @%p3 trap; setp.lt.u32 %p4, %r1, 50; @%p4 bra L; \
                st.global.u32 [%at], %r2;";
    assert_eq!(words(&kernel(before, body), 64, 64)[63], 3200);
}

#[test]
fn an_asynchronous_copy_fills_up_with_zeros() {
    let before = ".shared .align 16 .b8 s[32];";
    let body = "mov.u32 %r1, -1; st.global.v4.u32 [%out], {%r1,%r1,%r1,%r1}; st.shared.v4.u32 [s], {%r1,%r1,%r1,%r1}; mov.u32 %r2, 6; \
                cp.async.ca.shared.global [s], [%out], 16, %r2; cp.async.wait_all; ld.shared.v4.u32 {%r3,%r4,%r5,%r6}, [s]; st.global.v4.u32 [%out], {%r3,%r4,%r5,%r6};";
    assert_eq!(words(&kernel(before, body), 1, 4), [0xffff_ffff, 0xffff, 0, 0]);
}

#[test]
fn generic_addresses_know_their_space() {
    let before = ".shared .u32 s; .const .u32 c; .global .u32 g;";
    let body = ".local .u32 l; cvta.shared.u64 %d1, s; cvta.const.u64 %d2, c; cvta.global.u64 %d3, g; cvta.local.u64 %d4, l; mov.u32 %r1, 0;";
    let mut body = body.to_owned();
    let mut bit = 0;
    for space in ["shared", "const", "global", "local"] {
        for slot in 1..=4 {
            body += &format!("isspacep.{space} %p1, %d{slot}; @%p1 or.b32 %r1, %r1, {};", 1 << bit);
            bit += 1;
        }
    }
    body += "st.u32 [%d4], %r1; st.u32 [%d1], 5; ld.local.u32 %r2, [l]; ld.shared.u32 %r3, [s]; st.global.u32 [%out], %r2; st.global.u32 [%out+4], %r3;";
    assert_eq!(words(&kernel(before, &body), 1, 2), [0b1000_0100_0010_0001, 5]);
}

#[test]
fn structs_travel_through_parameters() {
    let before = ".func (.param .align 16 .b8 r[16]) f(.param .align 8 .b8 a[16], .param .b16 h) { .reg .b32 %a, %b, %c; .reg .b64 %x; .reg .s32 %h; \
                  ld.param.v2.u32 {%a, %b}, [a]; ld.param.u64 %x, [a+8]; ld.param.s16 %h, [h]; add.s32 %a, %a, %h; st.param.v2.u32 [r], {%b, %a}; st.param.u64 [r+8], %x; ret; }";
    let body = "{ .param .align 8 .b8 a[16]; .param .b16 h; .param .align 16 .b8 r[16]; mov.u32 %r1, 10; mov.u32 %r2, 20; mov.u64 %d1, 30; mov.b16 %h1, -3; \
                st.param.v2.u32 [a], {%r1, %r2}; st.param.u64 [a+8], %d1; st.param.b16 [h], %h1; call (r), f, (a, h); ld.param.v4.u32 {%r3,%r4,%r5,%r6}, [r]; } \
                st.global.v4.u32 [%out], {%r3,%r4,%r5,%r6};";
    assert_eq!(words(&kernel(before, body), 1, 4), [20, 7, 30, 0]);
}

#[test]
fn a_comparison_gives_itself_and_its_opposite_combined() {
    let body = "mov.f32 %f1, 0f7fc00000; setp.eq.u32 %p3, %tid, %tid; setp.lt.and.f32 %p1|%p2, %f1, %f1, %p3; selp.u32 %r1, 1, 0, %p1; selp.u32 %r2, 1, 0, %p2; \
                set.le.u32.f32 %r3, %f2, %f2; set.ltu.f32.f32 %f3, %f1, %f2; set.gt.s32.s32 %r4, 1, -1; \
                st.global.v2.u32 [%out], {%r1, %r2}; st.global.u32 [%out+8], %r3; st.global.f32 [%out+12], %f3; st.global.u32 [%out+16], %r4;";
    assert_eq!(words(&kernel("", body), 1, 5), [0, 1, 0xffff_ffff, 0x3f80_0000, 0xffff_ffff]);
}

#[test]
fn a_kernel_that_calls_itself_through_its_address_runs_out_of_stack() {
    let body = "mov.u64 %d1, k; P: .callprototype _ (); call %d1, (), P;";
    let fault = run(&kernel("", body), 1).expect_err("the stack is exhausted");
    assert!(matches!(fault.kind, FaultKind::Stack { .. }), "{fault}");
}

#[test]
fn lanes_shuffle_within_segments() {
    let body = "shfl.sync.up.b32 %r1|%p1, %tid, 1, 0x1800, -1; selp.u32 %r2, 100, 0, %p1; add.u32 %r1, %r1, %r2; st.global.u32 [%at], %r1;";
    let got = words(&kernel("", body), 32, 32);
    assert_eq!((got[0], got[1], got[8], got[9], got[31]), (0, 100, 8, 108, 130));
}

#[test]
fn a_shuffle_from_a_lane_that_does_not_take_part_is_zero() {
    // The sum of lanes 0 to 7, as a reduction over less than a warp computes it.
    let body = "add.u32 %r1, %tid, 100; setp.ge.u32 %p1, %tid, 8; @%p1 bra end; \
        shfl.sync.down.b32 %r2, %r1, 16, 31, 255; add.u32 %r1, %r1, %r2; shfl.sync.down.b32 %r2, %r1, 8, 31, 255; \
        add.u32 %r1, %r1, %r2; shfl.sync.down.b32 %r2, %r1, 4, 31, 255; add.u32 %r1, %r1, %r2; \
        shfl.sync.down.b32 %r2, %r1, 2, 31, 255; add.u32 %r1, %r1, %r2; shfl.sync.down.b32 %r2, %r1, 1, 31, 255; \
        add.u32 %r1, %r1, %r2; end: st.global.u32 [%at], %r1;";
    let out = words(&kernel("", body), 32, 32);
    assert_eq!((out[0], out[8], out[31]), (828, 108, 131));
}

#[test]
fn a_local_variable_of_a_callee_has_its_alignment() {
    let before = ".func (.reg .b64 %o) f() { .local .align 64 .b8 x[64]; mov.u64 %o, x; ret; }";
    let body = ".local .b8 y[16]; call (%d1), f; and.b64 %d1, %d1, 63; st.global.u64 [%out], %d1;";
    assert_eq!(words(&kernel(before, body), 1, 2), [0, 0]);
}

#[test]
fn initial_values_have_the_bits_that_the_assembler_gives_them() {
    // As in the data of `ptxas`: .b32 takes a decimal fraction as f32, and .b64 the bits of an f32 as they are.
    let variables = ".global .b32 a[2] = {1.5, 0d4000000000000000}; .global .b64 b[2] = {0f3fc00000, 1.5}; \
         .global .align 16 .b128 c[2] = {1, 2}; .global .b16 d = 0x12345; .global .u8 e = -2;";
    let body = "ld.global.b32 %r1, [a]; st.global.b32 [%out], %r1; ld.global.b32 %r1, [a+4]; st.global.b32 [%out+4], %r1; \
         ld.global.b32 %r1, [b]; st.global.b32 [%out+8], %r1; ld.global.b32 %r1, [b+4]; st.global.b32 [%out+12], %r1; \
         ld.global.b32 %r1, [b+12]; st.global.b32 [%out+16], %r1; ld.global.b32 %r1, [c+16]; st.global.b32 [%out+20], %r1; \
         ld.global.u16 %r1, [d]; st.global.b32 [%out+24], %r1; ld.global.u8 %r1, [e]; st.global.b32 [%out+28], %r1;";
    let expected = [0x3fc0_0000, 0x4000_0000, 0x3fc0_0000, 0, 0x3ff8_0000, 2, 0x2345, 0xfe];
    assert_eq!(words(&kernel(variables, body), 1, 8), expected);
}
