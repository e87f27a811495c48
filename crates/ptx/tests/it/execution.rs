//! Execution of threads: divergence, convergence, barriers, calls, faults.

use crate::common;

use common::{launch, words};
use freehold_ptx::{Fault, FaultKind};

/// Returns a kernel with registers and the address of thread `%i`'s word in `%at`.
fn kernel(body: &str) -> String {
    format!(
        ".visible .entry k(.param .u64 p)\n{{\n.reg .pred %p<9>;\n.reg .b32 %r<20>, %i;\n.reg .b64 %rd<20>, %at, %base;\n\
         ld.param.u64 %base, [p];\nmov.u32 %i, %tid.x;\nmad.wide.u32 %at, %i, 4, %base;\n{body}\nret;\n}}\n"
    )
}

#[track_caller]
fn fault(body: &str) -> Fault {
    launch(&kernel(body), 1, 64, 256, None).expect_err("the kernel should fault")
}

#[test]
fn diverged_lanes_reconverge() {
    let text = kernel(
        "and.b32 %r1, %i, 3;\nsetp.eq.u32 %p1, %r1, 0;\n@%p1 bra zero;\nmov.u32 %r2, 1;\nbra join;\n\
         zero: mov.u32 %r2, 2;\njoin: activemask.b32 %r3;\nadd.u32 %r2, %r2, %r3;\nst.global.u32 [%at], %r2;",
    );
    let expected: Vec<u32> = (0..32).map(|i| if i % 4 == 0 { 1 } else { 0 }).collect();
    assert_eq!(words(&text, 1, 32, 32), expected);
}

#[test]
fn a_lane_that_spins_for_another_of_its_warp_ends() {
    // Lane 0 waits for a value that lane 31 writes after a loop.
    let text = kernel(
        "setp.eq.u32 %p1, %i, 0;\n@!%p1 bra work;\nwait: ld.volatile.global.u32 %r1, [%base+124];\n\
         setp.eq.u32 %p2, %r1, 0;\n@%p2 bra wait;\nbra end;\n\
         work: mov.u32 %r2, 0;\nloop: add.u32 %r2, %r2, 1;\nsetp.lt.u32 %p3, %r2, 1000;\n@%p3 bra loop;\n\
         st.global.u32 [%at], %r2;\nend:",
    );
    let expected: Vec<u32> = (0..32).map(|i| if i == 0 { 0 } else { 1000 }).collect();
    assert_eq!(words(&text, 1, 32, 32), expected);
}

#[test]
fn every_lane_of_a_warp_gets_a_lock_once() {
    // The lock is word 0, the word that it guards is word 1.
    let text = kernel(
        "again: atom.cas.b32 %r1, [%base], 0, 1;\nsetp.ne.u32 %p1, %r1, 0;\n@%p1 bra again;\n\
         ld.volatile.global.u32 %r2, [%base+4];\nadd.u32 %r2, %r2, 1;\nst.volatile.global.u32 [%base+4], %r2;\n\
         membar.gl;\natom.exch.b32 %r3, [%base], 0;",
    );
    assert_eq!(words(&text, 1, 96, 2), [0, 96]);
}

#[test]
fn blocks_that_wait_for_each_other_end() {
    // Each block waits until the block after it has arrived; the last one does not wait.
    let text = kernel(
        "mov.u32 %r1, %ctaid.x;\nmov.u32 %r2, %nctaid.x;\nadd.u32 %r3, %r1, 1;\nmad.wide.u32 %rd1, %r1, 4, %base;\n\
         setp.ge.u32 %p1, %r3, %r2;\n@%p1 bra mine;\nwait: ld.acquire.gpu.global.u32 %r4, [%rd1+4];\n\
         setp.eq.u32 %p2, %r4, 0;\n@%p2 bra wait;\nmine: st.release.gpu.global.u32 [%rd1], 1;",
    );
    assert_eq!(words(&text, 50, 1, 50), [1; 50]);
}

#[test]
fn a_barrier_in_a_loop_holds_all_warps_together() {
    // A sum that is passed around the block, one thread per round.
    let text = kernel(
        ".shared .b32 sum[1];\n.reg .b32 %a;\nmov.u32 %a, sum;\nmov.u32 %r1, 0;\nsetp.eq.u32 %p1, %i, 0;\n\
         @%p1 st.shared.u32 [%a], 1;\nloop: bar.sync 0;\nsetp.eq.u32 %p2, %r1, %i;\nld.shared.u32 %r2, [%a];\n\
         bar.sync 0;\nmul.lo.u32 %r2, %r2, 3;\n@%p2 st.shared.u32 [%a], %r2;\nadd.u32 %r1, %r1, 1;\n\
         setp.lt.u32 %p3, %r1, 8;\n@%p3 bra loop;\nbar.sync 0;\nld.shared.u32 %r3, [%a];\nst.global.u32 [%at], %r3;",
    );
    assert_eq!(words(&text, 1, 100, 100), [6561; 100]);
}

#[test]
fn threads_that_ended_are_not_waited_for() {
    let text = kernel("setp.ge.u32 %p1, %i, 40;\n@%p1 exit;\nbar.sync 0;\nst.global.u32 [%at], 7;");
    let expected: Vec<u32> = (0..100).map(|i| if i < 40 { 7 } else { 0 }).collect();
    assert_eq!(words(&text, 1, 100, 100), expected);
}

#[test]
fn an_incomplete_barrier_is_a_deadlock() {
    let fault = fault("setp.lt.u32 %p1, %i, 32;\n@%p1 bra one;\nbar.sync 1;\nbra end;\none: bar.sync 2;\nend:");
    assert_eq!(fault.kind, FaultKind::Deadlock { waiting: 64 });
}

#[test]
fn lanes_that_call_different_functions_come_back_together() {
    let functions = ".func (.reg .b32 r) twice(.reg .b32 x) { add.u32 r, x, x; ret; }\n\
                     .func (.reg .b32 r) thrice(.reg .b32 x) { mul.lo.u32 r, x, 3; ret; }\n\
                     .global .u64 table[2] = { twice, thrice };\n";
    let body = "and.b32 %r1, %i, 1;\nmov.u64 %rd1, table;\nmad.wide.u32 %rd2, %r1, 8, %rd1;\nld.global.u64 %rd3, [%rd2];\n\
                proto: .callprototype (.reg .b32 _) _ (.reg .b32 _);\ncall (%r2), %rd3, (%i), proto;\n\
                activemask.b32 %r3;\nadd.u32 %r2, %r2, %r3;\nadd.u32 %r2, %r2, 1;\nst.global.u32 [%at], %r2;";
    let expected: Vec<u32> = (0..32).map(|i| if i % 2 == 0 { 2 * i } else { 3 * i }).collect();
    assert_eq!(words(&format!("{functions}{}", kernel(body)), 1, 32, 32), expected);
}

#[test]
fn a_function_calls_itself_with_its_own_registers() {
    let factorial = ".func (.param .b32 r) f(.param .b32 n)\n{\n.reg .b32 %r<5>;\n.reg .pred %p;\nld.param.u32 %r1, [n];\n\
                     setp.le.u32 %p, %r1, 1;\n@%p bra one;\nsub.u32 %r2, %r1, 1;\n{\n.param .b32 a;\n.param .b32 b;\n\
                     st.param.b32 [a], %r2;\ncall.uni (b), f, (a);\nld.param.b32 %r3, [b];\n}\nmul.lo.u32 %r4, %r1, %r3;\n\
                     st.param.b32 [r], %r4;\nret;\none: st.param.b32 [r], 1;\nret;\n}\n";
    let body = "and.b32 %r1, %i, 7;\n{\n.param .b32 a;\n.param .b32 b;\nst.param.b32 [a], %r1;\ncall (b), f, (a);\n\
                ld.param.b32 %r2, [b];\n}\nst.global.u32 [%at], %r2;";
    let factorials = [1, 1, 2, 6, 24, 120, 720, 5040];
    let expected: Vec<u32> = (0..32).map(|i| factorials[i % 8]).collect();
    assert_eq!(words(&format!("{factorial}{}", kernel(body)), 1, 32, 32), expected);
}

#[test]
fn an_out_of_bounds_access_names_kernel_line_thread_and_address() {
    let fault = fault("setp.ne.u32 %p1, %i, 37;\n@%p1 bra fine;\nst.global.u32 [%base+4096], 1;\nfine:");
    assert_eq!(
        fault.to_string(),
        "kernel k, PTX line 14, block (0,0,0), thread (37,0,0) writes 4 bytes of global memory at 0x10001000: nothing lies there"
    );
}

#[test]
fn each_space_ends_where_it_ends() {
    let kind = |body: &str| match fault(body).kind {
        FaultKind::Address { space, address, write, .. } => (space, address, write),
        other => panic!("{other:?}"),
    };
    assert_eq!(kind(".shared .b32 s[8];\nmov.u32 %r1, s;\nld.shared.u32 %r2, [%r1+32];"), ("shared", 32, false));
    assert_eq!(kind(".local .b32 s[8];\nmov.u32 %r1, s;\nst.local.u32 [%r1+32], 0;"), ("local", 32, true));
    assert_eq!(kind("ld.param.u32 %r1, [p+8];"), ("parameter", 8, false));
    assert_eq!(kind("mov.u64 %rd1, p;\ncvta.param.u64 %rd1, %rd1;\nst.u32 [%rd1], 0;"), ("parameter", 0, true));
}

#[test]
fn an_access_starts_at_a_multiple_of_its_size() {
    let fault = fault("ld.global.u32 %r1, [%base+2];");
    assert_eq!(fault.kind, FaultKind::Misaligned { space: "global", address: common::BASE + 2, bytes: 4 });
    let fault = self::fault("ld.global.v2.u32 {%r1, %r2}, [%base+4];");
    assert_eq!(fault.kind, FaultKind::Misaligned { space: "global", address: common::BASE + 4, bytes: 8 });
}

#[test]
fn calls_without_end_run_out_of_stack() {
    let text = format!(".func f() {{ .local .b32 a[4]; call f; ret; }}\n{}", kernel("call f;"));
    let fault = launch(&text, 1, 32, 128, None).expect_err("the stack is exhausted");
    assert!(matches!(fault.kind, FaultKind::Stack { .. }), "{fault}");
}

#[test]
fn a_call_to_a_non_function_address_is_reported() {
    let fault = fault("mov.u64 %rd1, 1234;\nproto: .callprototype _ ();\ncall %rd1, (), proto;");
    assert_eq!(fault.kind, FaultKind::Call { address: 1234 });
}

#[test]
fn trap_and_brkpt_end_the_kernel() {
    assert_eq!(fault("trap;").kind, FaultKind::Trap);
    assert_eq!(fault("brkpt;").kind, FaultKind::Breakpoint);
}

#[test]
fn what_is_printed_comes_in_the_order_of_lanes() {
    let data = ".global .align 1 .b8 text[13] = {108, 97, 110, 101, 32, 37, 100, 58, 32, 37, 102, 10, 0};\n\
                .extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);\n";
    let body = ".local .align 8 .b8 args[16];\n.reg .f64 %fd;\nmov.u64 %rd1, args;\nst.local.u32 [%rd1], %i;\n\
                cvt.rn.f64.u32 %fd, %i;\nst.local.f64 [%rd1+8], %fd;\ncvta.local.u64 %rd2, %rd1;\nmov.u64 %rd3, text;\n\
                cvta.global.u64 %rd3, %rd3;\n{\n.param .b64 f;\n.param .b64 a;\n.param .b32 r;\nst.param.b64 [f], %rd3;\n\
                st.param.b64 [a], %rd2;\ncall.uni (r), vprintf, (f, a);\n}";
    let outcome = launch(&format!("{data}{}", kernel(body)), 1, 3, 12, None).unwrap();
    assert_eq!(outcome.printed, "lane 0: 0.000000\nlane 1: 1.000000\nlane 2: 2.000000\n");
}

#[test]
fn time_goes_on_while_a_thread_looks() {
    let text = kernel(
        "mov.u64 %rd1, %clock64;\nmov.u64 %rd4, %globaltimer;\nloop: mov.u64 %rd2, %clock64;\nsub.u64 %rd3, %rd2, %rd1;\n\
         setp.lt.u64 %p1, %rd3, 100000;\n@%p1 bra loop;\nmov.u64 %rd5, %globaltimer;\nsetp.gt.u64 %p2, %rd5, %rd4;\n\
         selp.u32 %r1, 1, 0, %p2;\nst.global.u32 [%at], %r1;",
    );
    assert_eq!(words(&text, 1, 32, 32), [1; 32]);
}

#[test]
fn threads_that_sleep_wake() {
    let text = kernel("nanosleep.u32 5000;\nbar.sync 0;\nst.global.u32 [%at], 1;");
    assert_eq!(words(&text, 2, 64, 64), [1; 64]);
}

#[test]
fn lanes_that_come_to_a_barrier_one_by_one_are_counted_once() {
    // Lanes take paths of different lengths to the same barrier, round after round, and count themselves after it.
    let text = kernel(
        ".shared .b32 s[1];\n.reg .b32 %a;\nmov.u32 %a, s;\nmov.u32 %r1, 0;\n\
         round: and.b32 %r2, %i, 3;\nadd.u32 %r2, %r2, %r1;\nway: setp.eq.u32 %p1, %r2, 0;\n@%p1 bra there;\n\
         sub.u32 %r2, %r2, 1;\nbra way;\nthere: bar.sync 0;\natom.shared.add.u32 %r3, [%a], 1;\nbar.sync 0;\n\
         ld.shared.u32 %r4, [%a];\nadd.u32 %r1, %r1, 1;\nmul.lo.u32 %r5, %r1, 64;\nsetp.ne.u32 %p2, %r4, %r5;\n\
         @%p2 st.global.u32 [%at], 1;\nsetp.lt.u32 %p3, %r1, 5;\n@%p3 bra round;",
    );
    assert_eq!(words(&text, 1, 64, 64), [0; 64]);
}

#[test]
fn indexed_branches_follow_each_lane() {
    let text = kernel(
        "and.b32 %r1, %i, 3;\nmov.u32 %r2, 50;\nto: .branchtargets end, one, two, next;\nbrx.idx %r1, to;\n\
         next: mov.u32 %r2, 13;\nbra end;\none: mov.u32 %r2, 11;\nbra end;\ntwo: mov.u32 %r2, 12;\n\
         end: st.global.u32 [%at], %r2;",
    );
    let expected: Vec<u32> = (0..32).map(|i| [50, 11, 12, 13][i % 4]).collect();
    assert_eq!(words(&text, 1, 32, 32), expected);
}

#[test]
fn a_function_is_called_only_as_it_was_declared() {
    let text = format!(
        ".func f(.reg .b32 x) {{ ret; }}\n{}",
        kernel("mov.u64 %rd1, f;\nproto: .callprototype _ (.reg .b64 _);\ncall %rd1, (%rd1), proto;")
    );
    let fault = launch(&text, 1, 32, 128, None).expect_err("f takes 32 bits");
    assert!(matches!(fault.kind, FaultKind::Call { .. }), "{fault}");
}
