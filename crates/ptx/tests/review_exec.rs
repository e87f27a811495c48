//! What kernels do in corners: results against the ISA, meetings of threads, and inputs that must not panic.

mod review;

use review::{kernel, module, run, run_linked, words};

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
    let fault = run(&kernel(&before, "call f;"), 32).err().expect("a fault").to_string();
    assert!(fault.contains("stack"), "{fault}");
}

#[test]
fn a_name_for_another_function_has_its_parameters() {
    let caller = kernel(".extern .func f(.param .b8 a[4096]);", "{ .param .b8 a[4096]; call f, (a); }");
    let callee = module(".visible .func g() { ret; } .visible .func f(); .alias f, g;");
    let units = [caller.as_str(), callee.as_str()].map(|text| freehold_ptx::Unit::compile(text).unwrap());
    assert!(freehold_ptx::Image::link(units.into()).is_err());
}

#[test]
fn a_diverged_indirect_call_reaches_every_function() {
    let before = ".func (.param .b32 r) f(.param .b32 a) { .reg .b32 %x; ld.param.b32 %x, [a]; add.u32 %x, %x, 100; st.param.b32 [r], %x; ret; }\
                  .func (.param .b32 r) g(.param .b32 a) { .reg .b32 %x; ld.param.b32 %x, [a]; add.u32 %x, %x, 200; st.param.b32 [r], %x; ret; }\
                  .global .u64 t[2] = {f, g};";
    let body = "and.b32 %r1, %tid, 1; mov.u64 %d1, t; mul.wide.u32 %d2, %r1, 8; add.u64 %d1, %d1, %d2; ld.global.u64 %d3, [%d1]; \
                { .param .b32 a; .param .b32 r; st.param.b32 [a], %tid; P: .callprototype (.param .b32 _) _ (.param .b32 _); call (r), %d3, (a), P; ld.param.b32 %r2, [r]; } st.global.u32 [%at], %r2;";
    assert_eq!(words(&kernel(before, body), 3, 3), [100, 201, 102]);
}

#[test]
fn a_vector_load_may_overwrite_its_address() {
    let body = "mov.u64 %d1, 7; mov.u64 %d2, 9; st.global.v2.u64 [%out+16], {%d1, %d2}; add.u64 %d3, %out, 16; \
                ld.global.v2.u64 {%d3, %d4}, [%d3]; st.global.u64 [%out], %d3; st.global.u64 [%out+8], %d4;";
    assert_eq!(words(&kernel("", body), 1, 4), [7, 0, 9, 0]);
}

#[test]
fn a_lock_is_passed_on_among_the_lanes_of_a_warp() {
    let before = ".func work(.param .b64 a) { .reg .b64 %a; .reg .b32 %x, %i; .reg .pred %p; ld.param.b64 %a, [a]; mov.u32 %i, 0; \
                  L: ld.global.u32 %x, [%a]; add.u32 %x, %x, 1; st.global.u32 [%a], %x; add.u32 %i, %i, 1; setp.lt.u32 %p, %i, 10; @%p bra L; ret; }";
    let body = "S: atom.global.cas.b32 %r1, [%out], 0, 1; setp.ne.u32 %p1, %r1, 0; @%p1 bra S; add.u64 %d1, %out, 4; \
                { .param .b64 a; st.param.b64 [a], %d1; call work, (a); } membar.gl; atom.global.exch.b32 %r1, [%out], 0;";
    assert_eq!(words(&kernel(before, body), 96, 2), [0, 960]);
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
fn a_barrier_does_not_take_a_sleeping_warp_for_a_deadlock() {
    let body = "setp.lt.u32 %p1, %tid, 32; @%p1 nanosleep.u32 900000; bar.sync 0; st.global.u32 [%at], %tid;";
    assert_eq!(words(&kernel("", body), 64, 64)[63], 63);
}

#[test]
fn threads_of_three_dimensions_know_where_they_are() {
    let body = "mov.u32 %r1, %tid.x; mov.u32 %r2, %tid.y; mov.u32 %r3, %tid.z; mov.u32 %r4, %ntid.x; mov.u32 %r5, %ntid.y; \
                mad.lo.u32 %r6, %r3, %r5, %r2; mad.lo.u32 %r6, %r6, %r4, %r1; mul.wide.u32 %d1, %r6, 4; add.u64 %d1, %d1, %out; st.global.u32 [%d1], %r6;";
    let memory = run_linked(&[&kernel("", body)], [3, 5, 7]).unwrap();
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
