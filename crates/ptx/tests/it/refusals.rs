//! Instructions that NVIDIA's assembler refuses although they would have a meaning: modifiers that exclude each other,
//! constants out of range, and what the target or the version does not have yet.

use freehold_ptx::Unit;

/// Returns the column and the message of the error in an instruction.
#[track_caller]
fn refused(version: &str, target: u32, instruction: &str) -> (u32, String) {
    let error = Unit::compile(&text(version, target, instruction)).expect_err(instruction);
    assert_eq!(error.at.line, 9, "{instruction}: {error}");
    (error.at.column, error.message)
}

fn text(version: &str, target: u32, instruction: &str) -> String {
    format!(
        ".version {version}\n.target sm_{target}\n.address_size 64\n.shared .align 16 .b8 buf[256];\n\
         .shared .align 8 .b64 bar;\n.entry k()\n{{\n.reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<9>; \
         .reg .b64 %rd<9>; .reg .f32 %f<9>; .reg .f64 %fd<9>;\n{instruction}\nret;\n}}\n"
    )
}

#[test]
fn modifiers_and_constants_that_do_not_fit_are_refused() {
    let cases = [
        ("mul.hi.lo.s32 %r1, %r2, %r3;", 7, "'.lo' is not allowed with '.hi'"),
        ("fma.rn.relu.f32 %f1, %f2, %f3, %f4;", 12, "'.f32' is not allowed with '.relu'"),
        ("fma.rn.ftz.bf16 %h1, %h2, %h3, %h4;", 7, "'.ftz' is not allowed with '.bf16'"),
        ("fma.rn.sat.relu.f16 %h1, %h2, %h3, %h4;", 7, "'.sat' is not allowed with '.relu'"),
        ("ex2.approx.ftz.f16 %h1, %h2;", 11, "'.ftz' is not allowed with '.f16'"),
        ("min.NaN.f64 %fd1, %fd2, %fd3;", 4, "'.NaN' is not allowed with '.f64'"),
        ("bfe.u32 %r1, %r2, 300, 1;", 19, "expected a number from 0 to 255, found 300"),
        ("bfi.b64 %rd1, %rd2, %rd3, 1, 256;", 30, "expected a number from 0 to 255, found 256"),
        ("fns.u32 %r1, %r2, %r3, %r4;", 4, "'.u32' is not allowed on 'fns'"),
        ("dp4a.b32.u32 %r1, %r2, %r3, %r4;", 5, "'.b32' is not allowed on 'dp4a'"),
        ("bmsk.clamp.u32 %r1, %r2, %r3;", 11, "'.u32' is not allowed on 'bmsk'"),
        ("setp.lt.ftz.f64 %p1, %fd1, %fd2;", 1, "'.ftz' is not allowed for values of type .f64"),
        ("setp.lt.ftz.s32 %p1, %r1, %r2;", 1, "'.ftz' is not allowed for values of type .s32"),
        ("setp.lt.ftz.bf16 %p1, %h1, %h2;", 1, "'.ftz' is not allowed for values of type .bf16"),
        ("selp.f16 %h1, %h2, %h3, %p1;", 5, "'.f16' is not allowed on 'selp'"),
        ("ld.global.ca.cg.u32 %r1, [%rd1];", 13, "'.cg' is not allowed with '.ca'"),
        ("ld.global.ca.volatile.u32 %r1, [%rd1];", 10, "'.ca' is not allowed with '.volatile'"),
        ("ld.release.gpu.u32 %r1, [%rd1];", 4, "'.release' is not allowed on 'ld'"),
        ("ld.shared.nc.u32 %r1, [buf];", 10, "'.nc' is not allowed with '.shared'"),
        ("ld.volatile.const.u32 %r1, [%rd1];", 3, "'.volatile' is not allowed with '.const'"),
        ("ld.global.wt.u32 %r1, [%rd1];", 10, "'.wt' is not allowed on 'ld'"),
        ("ld.global.relaxed.gpu.ca.u32 %r1, [%rd1];", 22, "'.ca' is not allowed with '.relaxed'"),
        ("ld.shared.L2::64B.u32 %r1, [buf];", 10, "'.L2::64B' is not allowed with '.shared'"),
        ("ld.nc.u32 %r1, [%rd1];", 1, "expected '.global'"),
        ("ld.mmio.global.u32 %r1, [%rd1];", 1, "expected '.relaxed'"),
        ("ld.volatile.local.u32 %r1, [%rd1];", 3, "'.volatile' is not allowed with '.local'"),
        ("ld.acquire.gpu.const.u32 %r1, [%rd1];", 3, "'.acquire' is not allowed with '.const'"),
        ("ld.shared.L1::evict_last.u32 %r1, [buf];", 10, "'.L1::evict_last' is not allowed with '.shared'"),
        ("st.volatile.wb.global.u32 [%rd1], %r1;", 12, "'.wb' is not allowed with '.volatile'"),
        ("st.wb.cg.global.u32 [%rd1], %r1;", 6, "'.cg' is not allowed with '.wb'"),
        ("add.sat.bf16x2 %r1, %r2, %r3;", 4, "'.sat' is not allowed with '.bf16x2'"),
        ("abs.ftz.bf16 %h1, %h2;", 4, "'.ftz' is not allowed with '.bf16'"),
        ("max.ftz.bf16 %h1, %h2, %h3;", 4, "'.ftz' is not allowed with '.bf16'"),
        ("ex2.approx.bf16 %h1, %h2;", 1, "expected '.ftz'"),
        ("cvt.ftz.f16.f16 %h1, %h2;", 1, "expected '.f32'"),
        ("cvt.rzi.f64.s32 %fd1, %r1;", 1, "expected '.rn', '.rz', '.rm' or '.rp'"),
        ("cvt.rni.f32.f64 %f1, %fd1;", 1, "expected '.rn', '.rz', '.rm' or '.rp'"),
        ("slct.ftz.u64.s32 %rd1, %rd2, %rd3, %r4;", 1, "'.ftz' is not allowed for values of type .s32"),
        ("set.lt.ftz.u32.s32 %r1, %r2, %r3;", 1, "'.ftz' is not allowed for values of type .s32"),
        ("match.any.sync.b32 %r1|%p1, %r2, -1;", 20, "'match.any' has no predicate as a result"),
        ("lop3.xor.b32 %r1|%p1, %r2, %r3, %r4, 1, %p2;", 5, "'.xor' is not allowed on 'lop3'"),
        ("fence.mbarrier_init.cluster;", 1, "expected '.release'"),
        ("cp.async.bulk.prefetch.L2.global [%rd1], 15;", 42, "expected a multiple of 16, found 15"),
        (
            "mbarrier.arrive.shared::cluster.b64 %rd1, [bar];",
            37,
            "expected '_': the state of another block's mbarrier is not returned",
        ),
        ("ldu.shared.u32 %r1, [buf];", 4, "'.shared' is not allowed on 'ldu'"),
        ("st.global.nc.u32 [%rd1], %r1;", 10, "'.nc' is not allowed on 'st'"),
        ("st.global.ca.u32 [%rd1], %r1;", 10, "'.ca' is not allowed on 'st'"),
        ("st.acquire.gpu.global.u32 [%rd1], %r1;", 4, "'.acquire' is not allowed on 'st'"),
        (
            "st.async.shared::cluster.mbarrier::complete_tx::bytes.u16 [%r1], %h2, [%r3];",
            54,
            "'.u16' is not allowed with '.mbarrier::complete_tx::bytes'",
        ),
        (
            "st.async.global.mbarrier::complete_tx::bytes.u32 [%rd1], %r2, [%r3];",
            9,
            "'.global' is not allowed with '.mbarrier::complete_tx::bytes'",
        ),
        ("atom.global.add.f16 %h1, [%rd1], %h2;", 1, "expected '.noftz'"),
        ("atom.global.add.noftz.f32 %f1, [%rd1], %f2;", 16, "'.noftz' is not allowed with '.f32'"),
        ("atom.sc.global.add.u32 %r1, [%rd1], %r2;", 5, "'.sc' is not allowed on 'atom'"),
        ("atom.weak.global.add.u32 %r1, [%rd1], %r2;", 5, "'.weak' is not allowed on 'atom'"),
        ("atom.volatile.global.add.u32 %r1, [%rd1], %r2;", 5, "'.volatile' is not allowed on 'atom'"),
        ("atom.shared.v2.add.f32 {%f1,%f2}, [buf], {%f3,%f4};", 12, "'.v2' is not allowed with '.shared'"),
        ("red.acquire.gpu.global.add.u32 [%rd1], %r1;", 5, "'.acquire' is not allowed on 'red'"),
        ("red.acq_rel.gpu.global.add.u32 [%rd1], %r1;", 5, "'.acq_rel' is not allowed on 'red'"),
        (
            "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.min.u64 [%r1], %rd2, [%r3];",
            75,
            "'.u64' is not allowed with '.async.min'",
        ),
        (
            "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.and.b64 [%r1], %rd2, [%r3];",
            75,
            "'.b64' is not allowed with '.async.and'",
        ),
        ("fence;", 1, "expected '.cta', '.cluster', '.gpu', '.sys' or '.proxy'"),
        ("fence.mbarrier_init.release.gpu;", 28, "'.gpu' is not allowed with '.mbarrier_init'"),
        ("membar;", 1, "expected '.cta', '.gl', '.sys' or '.proxy'"),
        ("membar.gpu;", 1, "expected '.cta', '.gl', '.sys' or '.proxy'"),
        ("prefetch.shared.L1 [buf];", 9, "'.shared' is not allowed on 'prefetch'"),
        ("prefetchu.L2 [%rd1];", 10, "'.L2' is not allowed on 'prefetchu'"),
        ("cp.async.cg.shared.global [buf], [%rd1], 8;", 42, "expected 16, found 8"),
        ("cp.async.cg.shared.global [buf], [%rd1], 16, 17;", 46, "expected a number from 0 to 16, found 17"),
        ("cp.async.shared.global [buf], [%rd1], 16;", 1, "expected '.ca', '.cg', '.mbarrier' or '.bulk'"),
        ("cp.async.wait_group %r1;", 21, "expected a constant"),
        ("cp.async.wait_group;", 1, "expected 1 operands, found 0"),
        ("cp.async.wait_all 0;", 1, "expected 0 operands, found 1"),
        (
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [buf], [%rd1], 15, [bar];",
            82,
            "expected a multiple of 16, found 15",
        ),
        (
            "cp.async.bulk.global.shared::cta.bulk_group.cp_mask [%rd1], [buf], 16, %h1;",
            44,
            "'.cp_mask' needs sm_100 or higher, but the target is sm_90",
        ),
        ("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f16 [%rd1], [buf], 16;", 1, "expected '.noftz'"),
        (
            "cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.add.f32 [%r1], [buf], 16, [%r2];",
            82,
            "'.f32' is not allowed with '.reduce.shared::cluster'",
        ),
        (
            "cp.reduce.async.bulk.tensor.1d.global.shared::cta.exch.tile.bulk_group [%rd1, {%r1}], [buf];",
            50,
            "'.exch' is not allowed with '.reduce'",
        ),
        ("nanosleep.b32 10;", 10, "'.b32' is not allowed on 'nanosleep'"),
        ("setmaxnreg.inc.sync.aligned.u32 63;", 33, "expected a multiple of 8, found 63"),
        ("setmaxnreg.inc.sync.aligned.u32 264;", 33, "expected a number from 24 to 256, found 264"),
        ("setmaxnreg.inc.sync.aligned.u32 16;", 33, "expected a number from 24 to 256, found 16"),
        ("setmaxnreg.inc.sync.aligned.u32 %r1;", 33, "expected a constant"),
        ("griddepcontrol.wait 1;", 1, "expected 0 operands, found 1"),
        ("pmevent.mask 65536;", 14, "expected a number from 0 to 65535, found 65536"),
        ("trap 1;", 1, "expected 0 operands, found 1"),
        ("mbarrier.init.global.b64 [%rd1], 1;", 14, "'.global' is not allowed on 'mbarrier'"),
        ("mbarrier.init.shared::cluster.b64 [bar], 1;", 14, "'.shared::cluster' is not allowed with '.init'"),
        ("mbarrier.arrive.noComplete.shared.b64 %rd1, [bar];", 1, "expected 3 operands, found 2"),
        ("mbarrier.arrive.acquire.cta.shared.b64 %rd1, [bar];", 16, "'.acquire' is not allowed with '.arrive'"),
        ("mbarrier.arrive.relaxed.gpu.shared.b64 %rd1, [bar];", 24, "'.gpu' is not allowed on 'mbarrier'"),
        ("mbarrier.arrive.expect_tx.shared.b64 %rd1, [bar];", 1, "expected 3 operands, found 2"),
        ("mbarrier.test_wait.parity.shared.b64 %p1, [bar], 2;", 50, "expected a number from 0 to 1, found 2"),
        ("mbarrier.test_wait.shared.b64 %p1, [bar], %rd1, 100;", 1, "expected 3 operands, found 4"),
        (
            "mbarrier.test_wait.release.cta.shared.b64 %p1, [bar], %rd1;",
            19,
            "'.release' is not allowed with '.test_wait'",
        ),
        (
            "mbarrier.test_wait.shared::cluster.b64 %p1, [bar], %rd1;",
            19,
            "'.shared::cluster' is not allowed with '.test_wait'",
        ),
        ("mbarrier.pending_count.shared.b64 %r1, %rd1;", 23, "'.shared' is not allowed with '.pending_count'"),
        ("ldmatrix.sync.m8n8.x1.shared.b16 {%r1}, [buf];", 1, "expected '.aligned'"),
        (
            "mma.sync.aligned.m16n8k16.row.col.satfinite.f32.f16.f16.f32 {%f1,%f2,%f3,%f4}, {%r1,%r2,%r3,%r4}, {%r5,%r6}, {%f1,%f2,%f3,%f4};",
            34,
            "'.satfinite' is not allowed with '.f16'",
        ),
        (
            "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32 {%r1,%r2,%r3,%r4}, {%r1,%r2,%r3,%r4}, {%r5,%r6}, {%r1,%r2,%r3,%r4};",
            1,
            "expected '.xor' or '.and'",
        ),
        (
            "tensormap.replace.tile.elemtype.global.b1024.b32 [%rd1], 16;",
            58,
            "expected a number from 0 to 15, found 16",
        ),
        ("tensormap.replace.tile.elemtype.global.b1024.b32 [%rd1], %r1;", 58, "expected a constant"),
        ("tensormap.replace.tile.fill_mode.global.b1024.b32 [%rd1], 2;", 59, "expected a number from 0 to 1, found 2"),
        (
            "tensormap.replace.tile.interleave_layout.global.b1024.b32 [%rd1], 3;",
            67,
            "expected a number from 0 to 2, found 3",
        ),
        ("tensormap.replace.tile.rank.global.b32 [%rd1], 5;", 1, "expected '.b1024'"),
    ];
    for (instruction, column, message) in cases {
        assert_eq!(refused("8.6", 90, instruction), (column, message.to_owned()), "{instruction}");
    }
}

#[test]
fn what_a_target_or_a_version_does_not_have_is_refused() {
    let cases = [
        ("7.0", 75, "fma.rn.bf16 %h1, %h2, %h3, %h4;", 7, "'.bf16' needs sm_80 or higher, but the target is sm_75"),
        ("7.0", 80, "add.bf16 %h1, %h2, %h3;", 4, "'.bf16' needs sm_90 or higher, but the target is sm_80"),
        ("7.8", 80, "add.bf16 %h1, %h2, %h3;", 4, "'.bf16' needs sm_90 or higher, but the target is sm_80"),
        ("7.8", 80, "mul.bf16x2 %r1, %r2, %r3;", 4, "'.bf16x2' needs sm_90 or higher, but the target is sm_80"),
        ("7.0", 75, "min.NaN.f32 %f1, %f2, %f3;", 4, "'.NaN' needs sm_80 or higher, but the target is sm_75"),
        ("7.0", 75, "min.f16 %h1, %h2, %h3;", 4, "'.f16' needs sm_80 or higher, but the target is sm_75"),
        ("7.1", 86, "min.xorsign.abs.f32 %f1, %f2, %f3;", 12, "'.abs' needs PTX 7.2 or newer, but the text is for 7.1"),
        ("7.2", 80, "min.xorsign.abs.f32 %f1, %f2, %f3;", 12, "'.abs' needs sm_86 or higher, but the target is sm_80"),
        ("8.0", 80, "min.s16x2 %r1, %r2, %r3;", 4, "'.s16x2' needs sm_90 or higher, but the target is sm_80"),
        ("8.0", 80, "min.relu.s32 %r1, %r2, %r3;", 4, "'.relu' needs sm_90 or higher, but the target is sm_80"),
        (
            "8.0",
            80,
            "cvt.rn.satfinite.e4m3x2.f32 %h1, %f1, %f2;",
            17,
            "'.e4m3x2' needs sm_89 or higher, but the target is sm_80",
        ),
        ("7.0", 75, "cvt.rn.bf16.f32 %h1, %f1;", 7, "'.bf16' needs sm_80 or higher, but the target is sm_75"),
        ("7.0", 75, "cvt.rna.tf32.f32 %r1, %f1;", 4, "'.rna' needs sm_80 or higher, but the target is sm_75"),
        ("7.8", 80, "cvt.rn.tf32.f32 %r1, %f1;", 4, "'.rn' needs sm_90 or higher, but the target is sm_80"),
        ("8.0", 80, "fence.proxy.async;", 12, "'.async' needs sm_90 or higher, but the target is sm_80"),
        (
            "7.8",
            80,
            "mbarrier.try_wait.shared.b64 %p1, [bar], %rd1;",
            9,
            "'.try_wait' needs sm_90 or higher, but the target is sm_80",
        ),
        (
            "7.0",
            80,
            "mbarrier.test_wait.parity.shared.b64 %p1, [bar], %r1;",
            19,
            "'.parity' needs PTX 7.1 or newer, but the text is for 7.0",
        ),
        (
            "7.8",
            80,
            "mbarrier.arrive.expect_tx.shared.b64 %rd1, [bar], 16;",
            16,
            "'.expect_tx' needs sm_90 or higher, but the target is sm_80",
        ),
        (
            "7.8",
            90,
            "mbarrier.arrive.expect_tx.shared.b64 %rd1, [bar], 16;",
            16,
            "'.expect_tx' needs PTX 8.0 or newer, but the text is for 7.8",
        ),
        (
            "7.8",
            90,
            "barrier.cluster.arrive.relaxed;",
            23,
            "'.relaxed' needs PTX 8.0 or newer, but the text is for 7.8",
        ),
        ("7.8", 90, "elect.sync _|%p1, -1;", 1, "'elect' needs PTX 8.0 or newer, but the text is for 7.8"),
        (
            "7.8",
            90,
            "st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r1], %r2, [%r3];",
            3,
            "'.async' needs PTX 8.1 or newer, but the text is for 7.8",
        ),
        (
            "8.1",
            80,
            "st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r1], %r2, [%r3];",
            3,
            "'.async' needs sm_90 or higher, but the target is sm_80",
        ),
        ("7.8", 90, "cp.async.bulk.commit_group;", 9, "'.bulk' needs PTX 8.0 or newer, but the text is for 7.8"),
        (
            "6.5",
            75,
            "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1,%f2,%f3,%f4}, {%r1,%r2,%r3,%r4}, {%r5,%r6}, {%f1,%f2,%f3,%f4};",
            17,
            "'.m16n8k16' needs sm_80 or higher, but the target is sm_75",
        ),
        (
            "8.3",
            89,
            "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32 {%f1,%f2,%f3,%f4}, {%r1,%r2,%r3,%r4}, {%r5,%r6}, {%f1,%f2,%f3,%f4};",
            38,
            "'.e4m3' needs PTX 8.4 or newer, but the text is for 8.3",
        ),
        (
            "7.8",
            80,
            "atom.global.add.noftz.bf16 %h1, [%rd1], %h2;",
            22,
            "'.bf16' needs sm_90 or higher, but the target is sm_80",
        ),
        (
            "8.1",
            80,
            "atom.global.v2.add.f32 {%f1,%f2}, [%rd1], {%f3,%f4};",
            12,
            "'.v2' needs sm_90 or higher, but the target is sm_80",
        ),
        (
            "8.0",
            90,
            "atom.global.v2.add.f32 {%f1,%f2}, [%rd1], {%f3,%f4};",
            12,
            "'.v2' needs PTX 8.1 or newer, but the text is for 8.0",
        ),
        (
            "7.3",
            80,
            "ld.global.L1::evict_last.u32 %r1, [%rd1];",
            10,
            "'.L1::evict_last' needs PTX 7.4 or newer, but the text is for 7.3",
        ),
        (
            "7.4",
            75,
            "ld.global.L2::256B.u32 %r1, [%rd1];",
            10,
            "'.L2::256B' needs sm_80 or higher, but the target is sm_75",
        ),
        (
            "7.3",
            80,
            "createpolicy.fractional.L2::evict_last.b64 %rd1, 1.0;",
            1,
            "'createpolicy' needs PTX 7.4 or newer, but the text is for 7.3",
        ),
        ("7.0", 75, "fma.rn.relu.f16 %h1, %h2, %h3, %h4;", 7, "'.relu' needs sm_80 or higher, but the target is sm_75"),
        (
            "8.1",
            80,
            "lop3.or.b32 %r1|%p1, %r2, %r3, %r4, 1, %p2;",
            5,
            "'.or' needs PTX 8.2 or newer, but the text is for 8.1",
        ),
    ];
    for (version, target, instruction, column, message) in cases {
        assert_eq!(refused(version, target, instruction), (column, message.to_owned()), "{instruction}");
    }
}

#[test]
fn the_first_version_and_target_have_it() {
    let cases = [
        ("7.0", 80, "fma.rn.bf16 %h1, %h2, %h3, %h4;"),
        ("7.8", 90, "add.bf16 %h1, %h2, %h3;"),
        ("7.0", 80, "min.NaN.f32 %f1, %f2, %f3;"),
        ("7.2", 86, "min.xorsign.abs.f32 %f1, %f2, %f3;"),
        ("8.0", 90, "min.relu.s32 %r1, %r2, %r3;"),
        ("8.1", 89, "cvt.rn.satfinite.e4m3x2.f32 %h1, %f1, %f2;"),
        ("7.1", 80, "mbarrier.test_wait.parity.shared.b64 %p1, [bar], 1;"),
        ("7.8", 90, "mbarrier.try_wait.shared.b64 %p1, [bar], %rd1;"),
        ("8.0", 90, "mbarrier.arrive.expect_tx.shared.b64 %rd1, [bar], 16;"),
        ("8.0", 90, "elect.sync _|%p1, -1;"),
        ("8.1", 90, "atom.global.v2.add.f32 {%f1,%f2}, [%rd1], {%f3,%f4};"),
        ("8.2", 70, "lop3.or.b32 %r1|%p1, %r2, %r3, %r4, 1, %p2;"),
        ("8.6", 90, "prefetch.const.tensormap [%rd1];"),
        ("8.6", 90, "mov.u64 %rd1, %current_graph_exec;"),
        ("8.6", 90, "mov.u32 %r1, %reserved_smem_offset_1;"),
        ("8.6", 90, "set.lt.ftz.u32.f32 %r1, %f2, %f3;"),
        ("8.6", 90, "slct.ftz.s32.f32 %r1, %r2, %r3, %f4;"),
        ("8.6", 90, "bfi.b64 %rd1, %rd2, %rd3, 0, 255;"),
        ("8.6", 90, "cp.async.cg.shared.global [buf], [%rd1], 16, 0;"),
        ("8.6", 90, "setmaxnreg.dec.sync.aligned.u32 24;"),
        ("8.6", 90, "fence.acquire.sync_restrict::shared::cluster.cluster;"),
        ("8.6", 90, "fence.release.sync_restrict::shared::cta.cluster;"),
    ];
    for (version, target, instruction) in cases {
        Unit::compile(&text(version, target, instruction)).unwrap_or_else(|error| panic!("{error}"));
    }
}
