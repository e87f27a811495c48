//! Texts that an assembler refuses, and where it says they are wrong.

mod review;

use freehold_ptx::Unit;
use review::{kernel, module, refusal};

#[test]
fn a_function_is_no_other_name_of_itself() {
    let text = module(".visible .func f(); .alias f, f;\n.visible .entry k() { call f; ret; }");
    assert_eq!(refusal(&text), "line 4, column 28: 'f' is another name of itself");
}

#[test]
fn only_singles_have_a_quick_division() {
    for operands in ["div.approx.f64 %g1, %g2, %g3;", "div.full.f64 %g1, %g2, %g3;", "div.approx.f16 %h1, %h2, %h3;"] {
        assert!(refusal(&kernel("", operands)).contains("the instruction has no type"), "{operands}");
    }
    assert!(Unit::compile(&kernel("", "div.full.f32 %f1, %f2, %f3; div.approx.ftz.f32 %f1, %f2, %f3;")).is_ok());
}

#[test]
fn an_address_lies_in_the_space_of_the_instruction() {
    let before = ".global .u32 g; .shared .u32 s; .const .u32 c;";
    for body in [
        "ld.shared.u32 %r1, [p];",
        "ld.shared.u32 %r1, [g];",
        "ld.global.u32 %r1, [s];",
        "st.local.u32 [g], %r1;",
        "atom.global.add.u32 %r1, [s+4], 1;",
        ".local .u32 l; ld.param.u32 %r1, [l];",
    ] {
        assert!(refusal(&kernel(before, body)).contains("lies in another space"), "{body}");
    }
    let right =
        "ld.global.u32 %r1, [g]; ld.shared.u32 %r1, [s]; ld.const.u32 %r1, [c]; ld.u32 %r1, [s]; ld.u32 %r1, [g];";
    assert!(Unit::compile(&kernel(before, right)).is_ok());
}

#[test]
fn divisions_and_fused_products_say_how_they_round() {
    for body in ["div.f32 %f1, %f2, %f3;", "fma.f32 %f1, %f2, %f3, %f4;", "mad.f64 %g1, %g2, %g3, %g4;"] {
        assert!(refusal(&kernel("", body)).contains("the instruction needs a rounding"), "{body}");
    }
    assert!(refusal(&kernel("", "add.rna.f32 %f1, %f2, %f3;")).contains("'.rna' does not belong here"));
    assert!(
        Unit::compile(&kernel("", "div.rn.f32 %f1, %f2, %f3; add.f32 %f1, %f2, %f3; mul.f64 %g1, %g2, %g3;")).is_ok()
    );
}
