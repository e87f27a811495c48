//! Clusters of thread blocks: their barrier, their special registers, and the shared memory of other blocks.

use crate::common;

use common::{launch, words};
use freehold_ptx::{Fault, FaultKind};

/// Returns a kernel of clusters of `cluster` blocks: `%i` is the thread of the grid and `%at` its word, `%rank` the
/// block of the cluster, `%own` the shared variable `word`.
fn kernel(cluster: &str, body: &str) -> String {
    format!(
        ".visible .entry k(.param .u64 p)\n.reqnctapercluster {cluster}\n{{\n.shared .align 8 .b8 word[64];\n\
         .reg .pred %p<9>;\n.reg .b32 %r<20>, %i, %rank, %own, %t;\n.reg .b64 %rd<20>, %at, %base;\n\
         ld.param.u64 %base, [p];\nmov.u32 %r0, %ctaid.x;\nmov.u32 %r1, %ntid.x;\nmov.u32 %t, %tid.x;\n\
         mad.lo.u32 %i, %r0, %r1, %t;\nmad.wide.u32 %at, %i, 4, %base;\nmov.u32 %rank, %cluster_ctarank;\n\
         mov.u32 %own, word;\n{body}\nret;\n}}\n"
    )
}

const SYNC: &str = "barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;\n";

#[track_caller]
fn fault(cluster: &str, grid: u32, block: u32, body: &str) -> Fault {
    launch(&kernel(cluster, body), grid, block, 4096, None).expect_err("the kernel should fault")
}

#[test]
fn special_registers_describe_the_cluster() {
    let text = kernel(
        "2, 1, 1",
        "mov.u32 %r2, %cluster_ctaid.x;\nmov.u32 %r3, %cluster_nctaid.x;\nmov.u32 %r4, %cluster_nctarank;\n\
         mov.u32 %r5, %clusterid.x;\nmov.u32 %r6, %nclusterid.x;\nmov.pred %p1, %is_explicit_cluster;\n\
         selp.u32 %r7, 1, 0, %p1;\nmov.u32 %r8, %rank;\nmad.lo.u32 %r8, %r8, 10, %r2;\nmad.lo.u32 %r8, %r8, 10, %r3;\n\
         mad.lo.u32 %r8, %r8, 10, %r4;\nmad.lo.u32 %r8, %r8, 10, %r5;\nmad.lo.u32 %r8, %r8, 10, %r6;\n\
         mad.lo.u32 %r8, %r8, 10, %r7;\nst.global.u32 [%at], %r8;",
    );
    assert_eq!(words(&text, 6, 1, 6), [22_031, 1_122_031, 22_131, 1_122_131, 22_231, 1_122_231]);
}

#[test]
fn without_a_cluster_a_block_is_one() {
    let text = ".visible .entry k(.param .u64 p)\n{\n.reg .b32 %r<9>;\n.reg .b64 %rd<3>;\n.reg .pred %p;\n\
        ld.param.u64 %rd0, [p];\nmov.u32 %r0, %ctaid.x;\nmov.u32 %r1, %clusterid.x;\nmov.u32 %r2, %nclusterid.x;\n\
        mov.u32 %r3, %cluster_nctarank;\nmov.pred %p, %is_explicit_cluster;\nselp.u32 %r4, 1, 0, %p;\n\
        mad.lo.u32 %r1, %r1, 10, %r2;\nmad.lo.u32 %r1, %r1, 10, %r3;\nmad.lo.u32 %r1, %r1, 10, %r4;\n\
        mad.wide.u32 %rd1, %r0, 4, %rd0;\nbarrier.cluster.arrive;\nbarrier.cluster.wait;\n\
        st.global.u32 [%rd1], %r1;\nret;\n}\n";
    assert_eq!(words(text, 3, 1, 3), [310, 1310, 2310]);
}

#[test]
fn blocks_read_and_change_each_others_shared_memory() {
    // Each thread stores in the next block of the cluster, and the first of each block adds to all.
    let text = kernel(
        "4",
        &format!(
            "mad.lo.u32 %r2, %t, 4, %own;\nadd.u32 %r3, %rank, 1;\nand.b32 %r3, %r3, 3;\n{SYNC}\
             mapa.shared::cluster.u32 %r4, %r2, %r3;\ngetctarank.shared::cluster.u32 %r5, %r4;\n\
             mad.lo.u32 %r5, %r5, 100, %i;\nst.shared::cluster.u32 [%r4], %r5;\n{SYNC}\
             setp.ne.u32 %p1, %t, 0;\n@%p1 bra read;\nmov.u32 %r6, 0;\n\
             next: mapa.shared::cluster.u32 %r7, %own, %r6;\nred.shared::cluster.add.u32 [%r7], 1000;\n\
             add.u32 %r6, %r6, 1;\nsetp.lt.u32 %p2, %r6, 4;\n@%p2 bra next;\n\
             read: {SYNC}ld.shared.u32 %r8, [%r2];\nst.global.u32 [%at], %r8;"
        ),
    );
    let expected: Vec<u32> = (0..16)
        .map(|i| {
            let (block, thread) = (i / 2, i % 2);
            let from = block / 4 * 4 + (block + 3) % 4;
            from * 2 + thread + block % 4 * 100 + if thread == 0 { 4000 } else { 0 }
        })
        .collect();
    assert_eq!(words(&text, 8, 2, 16), expected);
}

#[test]
fn generic_addresses_reach_other_blocks() {
    // The second block gets a generic address from the first one, and reads and writes through it.
    let text = kernel(
        "2",
        &format!(
            "cvta.shared.u64 %rd1, word;\nst.shared.u32 [word], 77;\n{SYNC}setp.eq.u32 %p1, %rank, 1;\n\
             @%p1 bra second;\nmapa.u64 %rd2, %rd1, 1;\nst.u64 [%rd2+8], %rd1;\n{SYNC}{SYNC}\
             ld.shared.u32 %r2, [word];\nst.global.u32 [%at], %r2;\nbra end;\n\
             second: {SYNC}ld.shared.u64 %rd3, [word+8];\nld.u32 %r2, [%rd3];\nadd.u32 %r3, %r2, 1;\n\
             st.u32 [%rd3], %r3;\nisspacep.shared::cta %p2, %rd3;\nisspacep.shared::cluster %p3, %rd3;\n\
             isspacep.shared %p4, %rd1;\nselp.u32 %r4, 100, 0, %p2;\nselp.u32 %r5, 1000, 0, %p3;\n\
             selp.u32 %r6, 10000, 0, %p4;\nadd.u32 %r2, %r2, %r4;\nadd.u32 %r2, %r2, %r5;\nadd.u32 %r2, %r2, %r6;\n\
             {SYNC}st.global.u32 [%at], %r2;\nend:"
        ),
    );
    assert_eq!(words(&text, 2, 1, 2), [78, 11_077]);
}

#[test]
fn another_blocks_mbarrier_counts_arrivals_and_stores() {
    let text = kernel(
        "2",
        &format!(
            "setp.ne.u32 %p1, %rank, 0;\n@%p1 bra go;\nmbarrier.init.shared::cta.b64 [word], 2;\n\
             mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [word], 12;\n\
             go: fence.mbarrier_init.release.cluster;\n{SYNC}@%p1 bra other;\n\
             mbarrier.arrive.shared::cta.b64 _, [word];\n\
             wait: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p2, [word], 0;\n@!%p2 bra wait;\n\
             ld.shared.u32 %r2, [word+16];\nld.shared.u32 %r3, [word+20];\nld.shared.u32 %r4, [word+24];\n\
             add.u32 %r2, %r2, %r3;\nadd.u32 %r2, %r2, %r4;\nst.global.u32 [%at], %r2;\nbra end;\n\
             other: mapa.shared::cluster.u32 %r5, %own, 0;\nadd.u32 %r6, %r5, 16;\nmov.u32 %r7, 5;\nmov.u32 %r8, 60;\n\
             st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%r6], {{%r7, %r8}}, [%r5];\n\
             red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%r6+8], 700, [%r5];\n\
             mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r5];\nend: {SYNC}"
        ),
    );
    assert_eq!(words(&text, 2, 1, 2), [765, 0]);
}

#[test]
fn threads_that_end_do_not_hold_the_barrier_up() {
    let text = kernel(
        "2",
        "setp.eq.u32 %p1, %i, 3;\n@%p1 bra end;\nsetp.eq.u32 %p2, %i, 1;\n@%p2 barrier.cluster.arrive;\n@%p2 bra end;\n\
         barrier.cluster.arrive;\nbarrier.cluster.wait;\nst.global.u32 [%at], 1;\nend:",
    );
    assert_eq!(words(&text, 2, 2, 4), [1, 0, 1, 0]);
}

#[test]
fn a_barrier_of_a_cluster_that_cannot_complete_is_a_fault() {
    let error = fault("2", 2, 1, &format!("setp.eq.u32 %p1, %rank, 0;\n@%p1 bra end;\n{SYNC}end: bar.sync 1, 64;"));
    assert!(matches!(error.kind, FaultKind::Deadlock { waiting: 2 }), "{error}");
}

#[test]
fn waiting_without_arriving_and_arriving_twice_are_faults() {
    let error = fault("2", 2, 1, "barrier.cluster.wait;");
    assert!(error.to_string().contains("has not arrived"), "{error}");
    let error = fault("2", 2, 1, "barrier.cluster.arrive;\nbarrier.cluster.arrive;");
    assert!(error.to_string().contains("has not waited"), "{error}");
}

#[test]
fn an_access_to_a_block_that_has_ended_is_a_fault_that_names_the_block() {
    let error = fault(
        "2",
        4,
        1,
        &format!(
            "setp.eq.u32 %p1, %rank, 1;\n{SYNC}@%p1 bra end;\nnanosleep.u32 1000000;\n\
             mapa.shared::cluster.u32 %r2, %own, 1;\nld.shared::cluster.u32 %r3, [%r2];\nend:"
        ),
    );
    let text = error.to_string();
    assert!(text.contains("block (0,0,0), thread (0,0,0) reads 4 bytes of distributed shared memory at 0x0"), "{text}");
    assert!(text.ends_with("block (1,0,0) of the cluster has ended"), "{text}");
}

#[test]
fn an_access_beyond_another_blocks_shared_memory_is_a_fault() {
    let error = fault(
        "2",
        2,
        1,
        &format!(
            "setp.eq.u32 %p1, %rank, 1;\nmapa.shared::cluster.u32 %r2, %own, 1;\n{SYNC}@%p1 bra end;\nst.shared::cluster.u32 [%r2+64], 1;\nend: {SYNC}"
        ),
    );
    assert!(error.to_string().ends_with("at 0x40: block (1,0,0) of the cluster has 64 bytes"), "{error}");
    let error = fault(
        "2",
        2,
        1,
        &format!("mapa.shared::cluster.u32 %r2, %own, 5;\n{SYNC}ld.shared::cluster.u32 %r3, [%r2];\n{SYNC}"),
    );
    assert!(error.to_string().ends_with("the cluster has 2 blocks, the rank is 5"), "{error}");
}

#[test]
fn an_access_before_the_other_block_has_started_is_a_fault() {
    let error = fault("2", 2, 1, "mapa.shared::cluster.u32 %r2, %own, 1;\nld.shared::cluster.u32 %r3, [%r2];");
    assert!(error.to_string().contains("has not started"), "{error}");
}
