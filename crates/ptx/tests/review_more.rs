//! More corners of kernels: values, parameters, spaces, and threads that wait for each other.

mod review;

use review::{kernel, run, words};

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
fn a_lane_that_waits_for_another_of_its_warp_goes_on() {
    let before = ".shared .u32 s;";
    let body = "setp.eq.u32 %p1, %tid, 31; @%p1 bra S; W: ld.volatile.shared.u32 %r1, [s]; setp.eq.u32 %p2, %r1, 0; @%p2 bra W; bra E; \
                S: mov.u32 %r2, 0; C: add.u32 %r2, %r2, 1; setp.lt.u32 %p3, %r2, 5000; @%p3 bra C; st.volatile.shared.u32 [s], 9; mov.u32 %r1, 9; E: st.global.u32 [%at], %r1;";
    assert_eq!(words(&kernel(before, body), 64, 64), [9; 64]);
}

#[test]
fn a_comparison_gives_itself_and_its_opposite_combined() {
    let body = "mov.f32 %f1, 0f7fc00000; setp.eq.u32 %p3, %tid, %tid; setp.lt.and.f32 %p1|%p2, %f1, %f1, %p3; selp.u32 %r1, 1, 0, %p1; selp.u32 %r2, 1, 0, %p2; \
                set.le.u32.f32 %r3, %f2, %f2; set.ltu.f32.f32 %f3, %f1, %f2; set.gt.s32.s32 %r4, 1, -1; \
                st.global.v2.u32 [%out], {%r1, %r2}; st.global.u32 [%out+8], %r3; st.global.f32 [%out+12], %f3; st.global.u32 [%out+16], %r4;";
    assert_eq!(words(&kernel("", body), 1, 5), [0, 1, 0xffff_ffff, 0x3f80_0000, 0xffff_ffff]);
}

#[test]
fn a_kernel_called_through_its_address_does_not_panic() {
    let body = "mov.u64 %d1, k; P: .callprototype _ (); call %d1, (), P;";
    let _ = run(&kernel("", body), 1);
}

#[test]
fn lanes_shuffle_within_segments() {
    let body = "shfl.sync.up.b32 %r1|%p1, %tid, 1, 0x1800, -1; selp.u32 %r2, 100, 0, %p1; add.u32 %r1, %r1, %r2; st.global.u32 [%at], %r1;";
    let got = words(&kernel("", body), 32, 32);
    assert_eq!((got[0], got[1], got[8], got[9], got[31]), (0, 100, 8, 108, 130));
}

#[test]
fn a_local_variable_of_a_callee_has_its_alignment() {
    let before = ".func (.reg .b64 %o) f() { .local .align 64 .b8 x[64]; mov.u64 %o, x; ret; }";
    let body = ".local .b8 y[16]; call (%d1), f; and.b64 %d1, %d1, 63; st.global.u64 [%out], %d1;";
    assert_eq!(words(&kernel(before, body), 1, 2), [0, 0]);
}
