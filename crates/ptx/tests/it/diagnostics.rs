//! Errors in a text, with line, column and instruction.

use crate::common;

use freehold_ptx::{ErrorKind, Image, LinkError, Unit};

/// Returns line, column and message of the first error in a kernel's body; line 1 is the body's first.
#[track_caller]
fn mistake(body: &str) -> (u32, u32, String) {
    let head = ".visible .entry k(.param .u64 p)\n{\n.reg .pred %p<3>;\n.reg .b32 %r<9>;\n.reg .f32 %f<9>;\n.reg .b64 %rd<9>;\n";
    let text = common::with_head(&format!("{head}{body}\nret;\n}}\n"));
    let error = Unit::compile(&text).expect_err("the text is rejected");
    let lines_before = text.split(body).next().expect("the body is in the text").lines().count() as u32;
    (error.at.line - lines_before, error.at.column, error.message)
}

#[test]
fn an_unknown_instruction_is_reported_with_its_position() {
    assert_eq!(
        mistake("mov.u32 %r1, 1;\n  frobnicate.b32 %r1, %r2;"),
        (2, 3, "unknown instruction 'frobnicate'".to_owned())
    );
}

#[test]
fn the_instruction_stands_in_the_error() {
    let text = common::with_head(".entry k() {\n.reg .b32 %r<2>;\n\t@!%q  mov.u32   %r1,\n 1;\n}");
    let error = Unit::compile(&text).expect_err("%q is not a register");
    assert_eq!(error.instruction, "@!%q mov.u32 %r1, 1");
    assert_eq!(error.to_string(), "line 6, column 4: '%q' is not a predicate: @!%q mov.u32 %r1, 1");
}

#[test]
fn an_error_points_at_the_operand() {
    let at = |body: &str| {
        let (line, column, _) = mistake(body);
        (line, column)
    };
    // A name, one behind `!`, a constant, an address, a constant in a vector, and a modifier.
    assert_eq!(at("add.s32 %r1, %rd1, 1;"), (1, 14));
    assert_eq!(at("@!%r1 add.s32 %r1, %r2, 1;"), (1, 3));
    assert_eq!(at("and.pred %p1, %p2, !%r1;"), (1, 20));
    assert_eq!(at("add.s32 %r1, %r2,\n  0f00000000 , 4;"), (1, 1));
    assert_eq!(at("add.f32 %f1, /* a, b */ 0f00000000,\n  7;"), (2, 3));
    assert_eq!(at("st.global.u32 [ 8], [%rd1];"), (1, 21));
    assert_eq!(at("st.global.v2.f32 [%rd1], {%f1, 7};"), (1, 32));
    assert_eq!(at("ld.global.v4.f32 {%f1, %f2, %f3}, [%rd1];"), (1, 18));
    assert_eq!(at("mov.b64 %rd1, {%r1, %rd2};"), (1, 21));
    assert_eq!(at("add.s32.wide %r1, %r2, %r3;"), (1, 8));
}

#[test]
fn names_must_be_declared() {
    assert_eq!(mistake("add.s32 %r1, %r2, %r9;"), (1, 19, "unknown name '%r9'".to_owned()));
    assert_eq!(mistake("bra nowhere;"), (1, 5, "unknown label 'nowhere'".to_owned()));
    assert_eq!(mistake("ld.global.u32 %r1, [nothing];"), (1, 21, "unknown name 'nothing'".to_owned()));
    assert_eq!(mistake("call nobody;"), (1, 6, "'nobody' is not a function".to_owned()));
}

#[test]
fn a_label_of_an_inner_scope_is_not_seen_outside() {
    assert_eq!(mistake("{ inside: mov.u32 %r1, 1; }\nbra inside;"), (2, 5, "unknown label 'inside'".to_owned()));
    assert_eq!(mistake("twice:\ntwice: mov.u32 %r1, 1;").2, "label 'twice' is defined twice");
}

#[test]
fn types_and_sizes_of_registers_must_fit() {
    assert_eq!(mistake("add.s32 %r1, %rd1, 1;").2, "'%rd1' is .b64, expected .s32");
    assert_eq!(mistake("add.s32 %r1, %f1, 1;").2, "'%f1' is .f32, expected .s32");
    assert_eq!(mistake("add.f32 %f1, %f2, 1;").2, "1 is an integer, expected a floating-point number of type .f32");
    assert_eq!(mistake("selp.b32 %r1, %r2, %r3, %r4;").2, "'%r4' is not a predicate");
}

#[test]
fn unknown_modifiers_are_rejected() {
    assert_eq!(mistake("add.rz.s32 %r1, %r2, %r3;").2, "'.rz' is not allowed on 'add' here");
    assert_eq!(mistake("mul.s32 %r1, %r2, %r3;").2, "expected '.lo', '.hi' or '.wide'");
    assert_eq!(
        mistake("cvt.u32.f32 %r1, %f1;").2,
        "a conversion to an integer requires '.rni', '.rzi', '.rmi' or '.rpi'"
    );
    assert_eq!(mistake("setp.lt.b32 %p1, %r1, %r2;").2, "untyped bits can only be compared with '.eq' or '.ne'");
    assert_eq!(mistake("add.s32 %r1, %r2;").2, "expected 3 operands, found 2");
    assert_eq!(mistake("bar.sync 16;").2, "the number of a barrier must be between 0 and 15");
}

#[test]
fn unsupported_ptx_is_reported_as_such() {
    let text = common::with_head(".entry k() { .reg .b32 %r<9>; multimem.ld_reduce.global.add.u32 %r1, [%r2]; }");
    let error = Unit::compile(&text).expect_err("multimem is rejected");
    assert_eq!((error.kind, error.message.as_str()), (ErrorKind::Unsupported, "'multimem' is not supported"));
}

#[test]
fn a_name_is_defined_once() {
    let text = common::with_head(".global .u32 a;\n.global .u32 a;");
    assert_eq!(Unit::compile(&text).expect_err("a is defined twice").message, "'a' is defined twice");
    let text = common::with_head(".entry k() { ret; }\n.entry k() { ret; }");
    assert_eq!(Unit::compile(&text).expect_err("k is defined twice").message, "'k' is defined twice");
}

#[test]
fn a_variable_takes_no_more_values_than_it_has_elements() {
    let text = common::with_head(".global .u32 a[2] = {1, 2, 3};");
    assert_eq!(
        Unit::compile(&text).expect_err("a has two elements").message,
        "more initial values than the array has elements"
    );
    let text = common::with_head(".global .u32 a[3] = {1, 2, 3};");
    assert!(Unit::compile(&text).is_ok());
}

#[test]
fn initial_values_have_the_type_of_their_variable() {
    let refused = |text: &str| {
        let error = Unit::compile(&common::with_head(&format!(".global .u32 y;\n{text}"))).expect_err(text);
        (error.at.column, error.message)
    };
    let cases = [
        (".global .u32 x = 1.5;", 18, "expected an integer of type .u32"),
        (".global .s64 x[2] = {1, 0f3f800000};", 25, "expected an integer of type .s64"),
        (".global .f32 x[2] = {1.0, 2};", 27, "2 is an integer, expected a floating-point number of type .f32"),
        (".global .f16 x = 0x3c00;", 18, "a variable of type .f16 takes no initial value: declare it as '.b16'"),
        (".global .f64 x = y;", 18, "an address cannot be the value of a .f64"),
        (".global .u8 x = y;", 17, "an address does not fit in a .u8: take each byte with a mask, as in '0xff(name)'"),
    ];
    for (text, column, message) in cases {
        assert_eq!(refused(text), (column, message.to_owned()), "{text}");
    }
    for text in [".global .u32 x = y;", ".global .u8 x[2] = {0xff(y), 0xff00(y)};", ".global .f64 x = 0f3f800000;"] {
        assert!(Unit::compile(&common::with_head(&format!(".global .u32 y;\n{text}"))).is_ok(), "{text}");
    }
}

#[test]
fn a_module_has_64_kib_of_constants() {
    let compiled = |bytes: u32| {
        Unit::compile(&common::with_head(&format!(
            ".const .b8 a[32768];\n.extern .const .b8 e[9];\n.const .b8 b[{bytes}];"
        )))
    };
    assert!(compiled(32768).is_ok());
    let error = compiled(32769).expect_err("one byte too many");
    assert_eq!(error.message, "the constants need 65537 bytes up to here, but a module has at most 65536");
    assert_eq!(error.at.line, 6);
}

#[test]
fn blocks_are_clusters_only_with_the_sizes_of_both() {
    let compiled = |version: &str, directives: &str| {
        let text = format!(".version {version}\n.target sm_90\n.address_size 64\n.entry k() {directives} {{ ret; }}");
        Unit::compile(&text).map(drop).map_err(|error| error.message)
    };
    let both = ".blocksareclusters .reqntid 32 .reqnctapercluster 2";
    assert_eq!(compiled("9.0", both), Ok(()));
    for (version, directives, missing) in [
        ("8.8", both, "'.version 9.0' or higher"),
        ("9.0", ".blocksareclusters .reqnctapercluster 2", "'.reqntid'"),
        ("9.0", ".blocksareclusters .reqntid 32", "'.reqnctapercluster'"),
    ] {
        assert_eq!(compiled(version, directives), Err(format!("'.blocksareclusters' needs {missing}")));
    }
}

fn linked(texts: &[&str]) -> Result<Image, LinkError> {
    Image::link(texts.iter().map(|text| Unit::compile(&common::with_head(text)).expect("the text is valid")).collect())
}

#[test]
fn texts_find_each_others_functions_and_variables() {
    let caller = ".extern .func (.reg .u32 r) f(.reg .u32 x);\n.extern .global .u32 g;\n.entry k() {\n.reg .u32 %r<2>;\n.reg .u64 %a;\nmov.u64 %a, g;\ncall (%r1), f, (%r0);\n}";
    let callee = ".visible .func (.reg .u32 r) f(.reg .u32 x) { mov.u32 r, x; ret; }\n.visible .global .u32 g = 7;";
    let image = linked(&[caller, callee]).unwrap();
    assert_eq!(image.variables().iter().map(|variable| variable.name.as_str()).collect::<Vec<_>>(), ["g"]);
    assert_eq!(linked(&[caller]).unwrap_err(), LinkError::Undefined { name: "g".to_owned() });
    assert_eq!(linked(&[caller, callee, callee]).unwrap_err(), LinkError::Duplicate { name: "f".to_owned() });
    let other = ".visible .func f(.reg .u32 x) { ret; }\n.visible .global .u32 g;";
    assert_eq!(linked(&[caller, other]).unwrap_err(), LinkError::Mismatch { name: "f".to_owned() });
}

#[test]
fn an_image_knows_which_variables_are_managed() {
    let image = linked(&[".visible .global .attribute(.managed) .u32 m = 5;\n.visible .global .u32 g;"]).unwrap();
    let variables: Vec<_> =
        image.variables().iter().map(|variable| (variable.name.as_str(), variable.managed)).collect();
    assert_eq!(variables, [("m", true), ("g", false)]);
}

#[test]
fn a_weak_definition_gives_way() {
    let weak = ".weak .func (.reg .u32 r) f() { mov.u32 r, 1; ret; }";
    let strong = ".visible .func (.reg .u32 r) f() { mov.u32 r, 2; ret; }";
    let caller = ".extern .func (.reg .u32 r) f();\n.entry k() { .reg .u32 %r; call (%r), f; }";
    assert!(linked(&[caller, weak, strong]).is_ok());
    assert!(linked(&[caller, strong, weak, weak]).is_ok());
}

#[test]
fn static_shared_memory_ends_at_48_kib() {
    let text = |bytes: u32| format!(".entry k() {{ .shared .b8 a[{bytes}]; .reg .u64 %a; mov.u64 %a, a; }}");
    assert_eq!(linked(&[&text(49152)]).unwrap().kernels()[0].shared_bytes, 49152);
    assert_eq!(linked(&[&text(49153)]).unwrap_err(), LinkError::SharedMemory { kernel: "k".to_owned(), bytes: 49153 });
}

#[test]
fn shared_memory_that_a_kernel_cannot_reach_is_not_its_own() {
    let text = ".shared .b8 a[100];\n.shared .b8 b[1000];\n.func f() { .reg .u64 %a; mov.u64 %a, a; ret; }\n\
                .entry k() { call f; ret; }\n.entry l() { ret; }";
    let image = linked(&[text]).unwrap();
    let shared: Vec<_> = image.kernels().iter().map(|kernel| (kernel.name.as_str(), kernel.shared_bytes)).collect();
    assert_eq!(shared, [("k", 100), ("l", 0)]);
}

#[test]
fn parameters_lie_as_their_sizes_demand() {
    let image =
        linked(&[".entry k(.param .u8 a, .param .u64 b, .param .align 16 .b8 c[20], .param .u32 d) { ret; }"]).unwrap();
    let kernel = &image.kernels()[0];
    let places: Vec<_> = kernel.parameters.iter().map(|parameter| (parameter.offset, parameter.bytes)).collect();
    assert_eq!(places, [(0, 1), (8, 8), (16, 20), (36, 4)]);
    assert_eq!(kernel.parameter_bytes, 40);
}

/// Returns a kernel with a head and registers of all kinds.
fn kernel(before: &str, body: &str) -> String {
    common::with_head(&common::kernel(before, body))
}

/// Returns the error message of a text.
fn refusal(text: &str) -> String {
    Unit::compile(text).expect_err("the text is rejected").to_string()
}

#[test]
fn a_function_is_not_an_alias_of_itself() {
    let text = common::with_head(".visible .func f(); .alias f, f;\n.visible .entry k() { call f; ret; }");
    assert_eq!(refusal(&text), "line 4, column 28: 'f' is an alias of itself");
}

#[test]
fn only_singles_have_a_quick_division() {
    for operands in ["div.approx.f64 %g1, %g2, %g3;", "div.full.f64 %g1, %g2, %g3;", "div.approx.f16 %h1, %h2, %h3;"] {
        assert!(refusal(&kernel("", operands)).contains("the instruction does not support type .f"), "{operands}");
    }
    assert!(Unit::compile(&kernel("", "div.full.f32 %f1, %f2, %f3; div.approx.ftz.f32 %f1, %f2, %f3;")).is_ok());
}

#[test]
fn wrong_operands_name_the_accepted_ones() {
    for (body, expected) in [
        ("bar.arrive 1;", "expected '.sync a', '.sync a, b', '.arrive a, b', or '.red' with 'd, a, p'"),
        ("bar.red.popc.u32 %r1, 1;", "expected the operands 'd, a, p' or 'd, a, b, p'"),
        ("bar.red.u32 %r1, 1, %p1;", "expected '.popc', '.and' or '.or'"),
        ("shfl.sync.idx.b32 %r1, %r2, %r3, %r4;", "expected the operands 'd, a, b, c', and with '.sync' 'membermask'"),
        ("vote.sync.all.pred %p1, %p2;", "expected the operands 'd, a', and with '.sync' 'membermask'"),
        ("setp.eq.u32 %p1, %r1;", "expected the operands 'd, a, b', and with '.and', '.or' or '.xor' 'c'"),
        ("atom.global.cas.b32 %r1, [%rd1], %r2;", "expected the operands 'd, [a], b, c'"),
        ("atom.global.add.u32 %r1, [%rd1];", "expected the operands 'd, [a], b'"),
        ("red.global.exch.b32 [%rd1], %r1;", "'red' has no '.cas' or '.exch': use 'atom'"),
        ("red.global.add.u32 [%rd1];", "expected the operands '[a], b'"),
        (
            "cp.async.ca.shared.global [%rd1], [%rd2];",
            "expected the operands '[d], [a], size' or '[d], [a], size, source'",
        ),
        ("mbarrier.init.shared.b64 [%rd1];", "expected the operands '[a], count'"),
        (
            "ld.global.u32 %r1, [%f1];",
            "'%f1' has type .f32, expected a 32-bit or 64-bit integer register for an address",
        ),
    ] {
        let refused = refusal(&kernel("", body));
        assert!(refused.contains(expected), "{body}: {refused}");
    }
}

#[test]
fn an_address_lies_in_the_space_of_the_instruction() {
    let before = ".global .u32 g; .shared .u32 s; .const .u32 c;";
    for (body, expected) in [
        ("ld.shared.u32 %r1, [p];", "'p' is in .param memory, expected .shared"),
        ("ld.shared.u32 %r1, [g];", "'g' is in .global memory, expected .shared"),
        ("ld.global.u32 %r1, [s];", "'s' is in .shared memory, expected .global"),
        ("st.local.u32 [g], %r1;", "'g' is in .global memory, expected .local"),
        ("atom.global.add.u32 %r1, [s+4], 1;", "'s' is in .shared memory, expected .global"),
        (".local .u32 l; ld.param.u32 %r1, [l];", "'l' is in .local memory, expected .param"),
    ] {
        let refused = refusal(&kernel(before, body));
        assert!(refused.contains(expected), "{body}: {refused}");
    }
    let right =
        "ld.global.u32 %r1, [g]; ld.shared.u32 %r1, [s]; ld.const.u32 %r1, [c]; ld.u32 %r1, [s]; ld.u32 %r1, [g];";
    assert!(Unit::compile(&kernel(before, right)).is_ok());
}

#[test]
fn div_and_fma_require_a_rounding_mode() {
    for body in ["div.f32 %f1, %f2, %f3;", "fma.f32 %f1, %f2, %f3, %f4;", "mad.f64 %g1, %g2, %g3, %g4;"] {
        assert!(refusal(&kernel("", body)).contains("the instruction requires a rounding mode"), "{body}");
    }
    assert!(refusal(&kernel("", "add.rna.f32 %f1, %f2, %f3;")).contains("'.rna' is not allowed here"));
    assert!(
        Unit::compile(&kernel("", "div.rn.f32 %f1, %f2, %f3; add.f32 %f1, %f2, %f3; mul.f64 %g1, %g2, %g3;")).is_ok()
    );
}

#[test]
fn a_name_for_another_function_has_its_parameters() {
    let caller = ".extern .func f(.reg .u32 x);\n.entry k() { .reg .u32 %r; call f, (%r); }";
    let callee = ".visible .func g() { ret; } .visible .func f(); .alias f, g;";
    assert_eq!(linked(&[caller, callee]).unwrap_err(), LinkError::Mismatch { name: "f".to_owned() });
}

/// Asserts the message for each body.
#[track_caller]
fn assert_refused(cases: &[(&str, &str)]) {
    for (body, message) in cases {
        assert_eq!(mistake(body).2, *message, "{body}");
    }
}

/// Asserts that each body compiles.
#[track_caller]
fn assert_accepted(bodies: &[&str]) {
    for body in bodies {
        let head = ".visible .entry k(.param .u64 p)\n{\n.reg .pred %p<3>;\n.reg .b32 %r<9>;\n.reg .f32 %f<9>;\n.reg .b64 %rd<9>;\n\
                    .reg .f64 %fd<3>; .reg .u32 %u<3>; .reg .b16 %h<3>;\n";
        let text = common::with_head(&format!("{head}{body}\nret;\n}}\n"));
        assert!(Unit::compile(&text).is_ok(), "{body}: {}", Unit::compile(&text).unwrap_err());
    }
}

#[test]
fn an_access_takes_wider_registers_but_no_floats_for_integers() {
    assert_refused(&[
        ("ld.global.u32 %f1, [%rd1];", "'%f1' is .f32, expected .u32"),
        ("st.global.s32 [%rd1], %f1;", "'%f1' is .f32, expected .s32"),
        ("{ .reg .u32 u; ld.global.f32 u, [%rd1]; }", "'u' is .u32, expected .f32"),
        ("{ .reg .f64 d; st.global.f32 [%rd1], d; }", "'d' is .f64, expected .f32"),
        ("cvt.rzi.s32.f32 %f2, %f1;", "'%f2' is .f32, expected .s32"),
        ("ld.global.u64 %r1, [%rd1];", "'%r1' is .b32, expected .u64"),
        ("ld.global.f16 %r1, [%rd1];", "the instruction does not support type .f16"),
        ("ld.global.u32 _, [%rd1];", "a load of one element needs a register"),
    ]);
    assert_accepted(&[
        "ld.global.u32 %rd1, [%rd2]; ld.global.f32 %r1, [%rd2]; ld.global.f32 %rd1, [%rd2]; ld.global.b32 %f1, [%rd2];",
        "ld.global.b32 %fd1, [%rd2]; ld.global.b16 %f1, [%rd2]; ld.global.u8 %h1, [%rd2]; st.global.u8 [%rd1], %r1;",
        "st.global.f32 [%rd1], %r1; st.global.b32 [%rd1], %f1; st.global.b32 [%rd1], %fd1; st.global.f32 [%rd1], 1.0;",
        "ld.global.v4.u32 {_, %r1, %r2, %r3}, [%rd1]; st.global.v2.u32 [%rd1], {0f3f800000, %r1};",
    ]);
}

#[test]
fn a_constant_is_of_the_kind_of_the_instruction() {
    assert_refused(&[
        ("mov.u32 %r1, 1.0;", "expected an integer of type .u32"),
        ("add.s32 %r1, %r2, 0f3f800000;", "expected an integer of type .s32"),
        ("mov.b32 %r1, 1.0;", "a constant of 64 bits, expected .b32: write it as '0f...'"),
        ("mov.u64 %rd1, 0d3ff0000000000000;", "expected an integer of type .u64"),
        ("bar.sync 0, 33;", "33 threads are not a multiple of 32"),
    ]);
    assert_accepted(&[
        "mov.b32 %r1, 0f3f800000; and.b32 %r1, %r2, 0f3f800000; mov.b64 %rd1, 1.0; mov.f32 %f1, 1.0; bar.sync 0, 64;",
        "selp.f32 %f1, 1.0, %f2, %p1; mov.f64 %fd1, 0f3f800000; cvt.rn.f32.s32 %f1, 5;",
    ]);
}

#[test]
fn a_special_register_is_only_copied() {
    assert_refused(&[
        ("add.u32 %r1, %tid.x, 1;", "'%tid.x' is a special register: copy it with 'mov' first"),
        ("st.global.u32 [%rd1], %laneid;", "'%laneid' is a special register: copy it with 'mov' first"),
        ("mov.u64 %rd1, %tid.x;", "'%tid.x' has 32 bits, expected .u64"),
        ("mov.f32 %f1, %tid.x;", "'%tid.x' has 32 bits, expected .f32"),
    ]);
    assert_accepted(&[
        "mov.u32 %r1, %tid.x; mov.u16 %h1, %tid.x; cvt.u64.u32 %rd1, %tid.x; add.u32 %r1, WARP_SZ, 1; mov.u64 %rd1, %clock64;",
    ]);
}

#[test]
fn instructions_require_their_modifiers_and_types() {
    assert_refused(&[
        ("sin.f32 %f1, %f2;", "expected '.approx'"),
        ("mul.lo.f32 %f1, %f2, %f3;", "'.hi' and '.lo' are for integers"),
        ("cvt.ftz.u32.u64 %r1, %rd1;", "'.ftz' is for floating-point numbers"),
        ("setp.lo.s32 %p1, %r1, %r2;", "'.lo', '.ls', '.hi' and '.hs' are for unsigned integers"),
        ("mov.u64 %rd1, {%r1, %r2};", "the instruction does not support type .u64"),
        ("mov.f16 %r1, %r2;", "the instruction does not support type .f16"),
        ("atom.global.add.s64 %rd1, [%rd1], 1;", "the instruction does not support type .s64"),
        ("atom.global.exch.u32 %r1, [%rd1], 1;", "the instruction does not support type .u32"),
        ("shfl.sync.idx.u32 %r1, %r2, 1, 31, -1;", "the instruction does not support type .u32"),
        ("shfl.idx.b32 %r1, %r2, 1, 31;", "'shfl' needs '.sync' for sm_70 and higher"),
        ("vote.ballot.b32 %r1, %p1;", "'vote' needs '.sync' for sm_70 and higher"),
        ("vote.sync.all.b32 %p1, %p2, -1;", "the instruction does not support type .b32"),
        ("activemask.u32 %r1;", "the instruction does not support type .u32"),
        ("fence.sc;", "expected a scope: '.cta', '.cluster', '.gpu' or '.sys'"),
        ("ld.relaxed.global.u32 %r1, [%rd1];", "'.relaxed' needs a scope: '.cta', '.cluster', '.gpu' or '.sys'"),
        ("ld.gpu.global.u32 %r1, [%rd1];", "'.gpu' needs an order such as '.relaxed'"),
        ("st.acquire.gpu.global.u32 [%rd1], %r1;", "'.acquire' is not allowed on 'st'"),
        ("ld.release.gpu.global.u32 %r1, [%rd1];", "'.release' is not allowed on 'ld'"),
        (
            "ld.global.v4.u64 {%rd1, %rd2, %rd3, %rd4}, [%rd1];",
            "a vector of 256 bits needs '.version 8.8' and sm_100 or higher",
        ),
    ]);
    assert_accepted(&[
        "setp.lo.u32 %p1, %r1, %r2; atom.global.add.u64 %rd1, [%rd1], 1; atom.global.min.s64 %rd1, [%rd1], 1;",
        "membar.gl; fence.acq_rel.gpu; fence.sc.cta; fence.proxy.async; ld.volatile.global.u32 %r1, [%rd1];",
        "ld.relaxed.gpu.global.u32 %r1, [%rd1]; st.release.sys.global.u32 [%rd1], %r1; red.release.gpu.global.add.u32 [%rd1], 1;",
    ]);
}

#[test]
fn a_name_is_declared_once_in_a_block() {
    for text in [
        ".entry k(.param .u32 a, .param .u32 a) { ret; }",
        ".func (.param .u32 a) f(.param .u32 a) { ret; }",
        ".func (.reg .u32 a) f(.reg .u32 a) { ret; }",
        ".entry k(.param .u32 a) { .reg .b32 a; ret; }",
    ] {
        let error = Unit::compile(&common::with_head(text)).expect_err("a is declared twice");
        assert_eq!(error.message, "'a' is declared twice", "{text}");
    }
    assert_refused(&[
        ("{ .reg .b32 %q<5>; .reg .b32 %q3; }", "'%q3' is declared twice"),
        ("{ .reg .b32 %q3; .reg .b32 %q<5>; }", "'%q' is declared twice"),
        ("{ .reg .v2 .b32 %q; .reg .b32 %q; }", "'%q' is declared twice"),
        ("{ .reg .b32 %q; .local .b32 %q; }", "'%q' is declared twice"),
        ("{ .reg .b32 Q; Q: ret; }", "'Q' is declared twice"),
        ("{ .shared .b32 a; .reg .b32 a; }", "'a' is declared twice"),
    ]);
    assert_accepted(&["{ .reg .b32 a; { .reg .f32 a; } }", "{ .reg .b32 %q<3>; .reg .b32 %q; .reg .b32 %q3; }"]);
}

#[test]
fn a_variable_is_in_the_space_that_cvta_names_and_no_kernel_is_called() {
    let error = |body: &str| {
        let head = ".global .u32 g;\n.shared .u32 s;\n.entry other() { ret; }";
        let text = common::with_head(&format!("{head}\n.entry k() {{\n.reg .u64 %a;\n{body}\nret;\n}}"));
        Unit::compile(&text).map(|_| ()).map_err(|error| error.message)
    };
    assert_eq!(error("cvta.global.u64 %a, s;"), Err("'s' is in .shared memory, expected .global".to_owned()));
    assert_eq!(error("cvta.to.global.u64 %a, g;"), Err("'g' is a variable, expected a register".to_owned()));
    assert_eq!(error("cvta.global.u64 %a, g+4;"), Ok(()));
    assert_eq!(error("call other;"), Err("'other' is a kernel, which cannot be called".to_owned()));
}
