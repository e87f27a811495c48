//! The time to parse a text of 10,000 lines: `cargo bench -p freehold-ptx --bench parse`.

use std::fmt::Write;

use divan::Bencher;
use divan::counter::BytesCount;

fn main() {
    divan::main();
}

/// Returns kernels as compilers write them, in 10,000 lines.
fn text() -> String {
    let mut text = ".version 8.0\n.target sm_90\n.address_size 64\n".to_owned();
    let head =
        "(.param .u64 p, .param .u32 n)\n{\n.reg .pred %p<2>;\n.reg .b32 %r<9>;\n.reg .f32 %f<5>;\n.reg .b64 %rd<6>;\n";
    let block = "    ld.param.u64    %rd1, [p];\n    cvta.to.global.u64      %rd2, %rd1;\n    \
                 mov.u32         %r1, %tid.x;\n    mad.lo.s32      %r4, %r2, %r3, %r1;\n    \
                 setp.ge.s32     %p1, %r4, %r5;\n    mul.wide.s32    %rd3, %r4, 4;\n    \
                 add.s64         %rd4, %rd2, %rd3;\n    ld.global.nc.f32        %f1, [%rd4+16];\n    \
                 fma.rn.f32      %f3, %f1, 0f3F800000, %f2;\n    @%p1 bra        $L__BB0_2;\n";
    for kernel in 0.. {
        let lines = text.lines().count();
        if lines > 9_900 {
            break;
        }
        write!(text, ".visible .entry k{kernel}{head}{}$L__BB0_2:\n    ret;\n}}\n", block.repeat(9))
            .expect("writing to a string does not fail");
    }
    while text.lines().count() < 10_000 {
        text.push_str("// end\n");
    }
    text
}

#[divan::bench]
fn ten_thousand_lines(bencher: Bencher) {
    let text = text();
    bencher
        .counter(BytesCount::of_str(&text))
        .bench(|| freehold_ptx::syntax::parse(divan::black_box(&text)).expect("the text is valid").items.len());
}
