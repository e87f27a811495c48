//! Headers, variables and the heads of functions.

use super::*;

fn kind_of(text: &str) -> (ErrorKind, Position, String) {
    let error = parse(text).expect_err("the header is invalid");
    (error.kind, error.at, error.message)
}

#[test]
fn a_header_names_version_target_and_address_size() {
    let module = parse(".version 9.0 .target sm_90a, texmode_independent, debug .address_size 64").unwrap();
    assert_eq!((module.version, module.target), ((9, 0), 90));
    let module = parse(".version 6.0\n.target sm_30").unwrap();
    assert_eq!((module.version, module.target), ((6, 0), 30));
}

#[test]
fn addresses_of_32_bits_and_letters_beyond_ascii_are_mistakes() {
    let narrow = kind_of(".version 6.0\n.target sm_30\n.address_size 32");
    assert_eq!(narrow, (ErrorKind::Semantic, at(3, 15), "addresses of 32 bits are not supported".to_owned()));
    let letter = kind_of(".version 6.0\n// caf\u{e9}\n.target sm_30");
    assert_eq!(letter, (ErrorKind::Syntax, at(2, 7), "a character that is not ASCII".to_owned()));
}

#[test]
fn the_highest_of_several_targets_counts() {
    let module = parse(".version 8.0 .target sm_80, debug, compute_86, sm_70").unwrap();
    assert_eq!(module.target, 86);
    let module = parse(".version 9.5 .target sm_75").unwrap();
    assert_eq!((module.version, module.target), ((9, 5), 75));
    let module = parse(".version 1.0 .target sm_10").unwrap();
    assert_eq!((module.version, module.target), ((1, 0), 10));
}

#[test]
fn doubles_that_would_become_floats_are_not_supported() {
    let module = parse(".version 1.4 .target sm_10, map_f64_to_f32").unwrap();
    assert_eq!((module.version, module.target), ((1, 4), 10));
    let refused = kind_of(".version 1.4\n.target sm_10, map_f64_to_f32\n.global .f64 x;");
    let message = "'map_f64_to_f32' in a text with .f64 is not supported".to_owned();
    assert_eq!(refused, (ErrorKind::Unsupported, at(2, 16), message));
}

#[test]
fn unsupported_versions_and_targets_are_not_syntax_errors() {
    use ErrorKind::{Semantic, Syntax, Version};
    let cases = [
        (".version 9.6", Version, at(1, 10), "version 9.6 is newer than 9.5"),
        (".version 10.0", Version, at(1, 10), "version 10.0 is newer than 9.5"),
        (".version 8", Syntax, at(1, 10), "expected a version such as 8.4, found '8'"),
        (".version 8.x", Syntax, at(1, 10), "a number is followed directly by a word: '8.x'"),
        (".version 8.0\n.target sm_100a", Version, at(2, 9), "target sm_100a is newer than sm_90"),
        (".version 8.0\n.target sm_120f", Version, at(2, 9), "target sm_120f is newer than sm_90"),
        (".version 8.0\n.target h100", Syntax, at(2, 9), "expected a target such as sm_90, found 'h100'"),
        (".version 8.0\n.target sm_77", Syntax, at(2, 9), "expected a target such as sm_90, found 'sm_77'"),
        (".version 8.0\n.target sm_80a", Syntax, at(2, 9), "expected a target such as sm_90, found 'sm_80a'"),
        (".version 7.0\n.target sm_90", Semantic, at(2, 9), "target sm_90 needs version 7.8 or newer"),
    ];
    for (text, kind, place, message) in cases {
        assert_eq!(kind_of(text), (kind, place, message.to_owned()), "{text}");
    }
}

#[test]
fn a_target_runs_on_its_device_and_on_newer_ones() {
    let told = |target: &str, device| {
        let text = format!(".version 9.0\n.target {target}");
        parse_for(&text, device).map(|module| module.target).map_err(|error| error.message)
    };
    assert_eq!(told("sm_120", Some(120)), Ok(120));
    assert_eq!(told("sm_90", Some(120)), Ok(90));
    assert_eq!(told("sm_121", Some(120)), Err("target sm_121 is newer than sm_120".to_owned()));
    assert_eq!(told("sm_90a", Some(120)), Err("target sm_90a does not run on sm_120".to_owned()));
    assert_eq!(told("sm_120a", Some(120)), Ok(120));
    assert_eq!(told("sm_120f", Some(121)), Ok(120));
    assert_eq!(told("sm_100f", Some(121)), Err("target sm_100f does not run on sm_121".to_owned()));
    assert_eq!(told("sm_121a", None), Ok(121));
    assert_eq!(told("sm_130", None), Err("target sm_130 is newer than sm_121".to_owned()));
}

#[test]
fn a_header_is_complete_and_first() {
    let cases = [
        ("", at(1, 1), "expected .version, found the end of the text"),
        (".target sm_90", at(1, 1), "expected .version, found '.target'"),
        (".version 8.0 .target debug, sm_90", at(1, 22), "expected a target such as sm_90, found 'debug'"),
        (".version 8.0\n.address_size 64", at(2, 1), "expected .target, found '.address_size'"),
        (".version 8.0 .target sm_90 .address_size 16", at(1, 42), "expected an address size of 32 or 64, found '16'"),
        (".version 8.0 .target sm_90, fast", at(1, 29), "expected a target such as sm_90, found 'fast'"),
    ];
    for (text, place, message) in cases {
        assert_eq!(kind_of(text), (ErrorKind::Syntax, place, message.to_owned()), "{text}");
    }
}

#[test]
fn nothing_of_the_header_comes_again() {
    assert_eq!(mistake(".target sm_90").message, ".target is allowed only once, at the start of the text");
    let error = mistake("\n  .version 8.0");
    assert_eq!(error.at, at(5, 3));
    assert_eq!(error.message, ".version is allowed only once, at the start of the text");
    assert_eq!(mistake(".address_size 64").message, ".address_size is allowed only once, at the start of the text");
}

#[test]
fn a_variable_has_linkage_space_alignment_type_and_dimensions() {
    with_variable(".visible .global .align 16 .v4 .f32 x[3][4];", |variable| {
        assert_eq!(variable.at, at(4, 37));
        assert_eq!((variable.linkage, variable.space, variable.align), (Linkage::Visible, Space::Global, Some(16)));
        assert_eq!((variable.ty, variable.vector, variable.name), (Type::F32, 4, "x"));
        assert_eq!(variable.dimensions, [Some(3), Some(4)]);
        assert_eq!(variable.initial, None);
    });
    with_variable(".extern .shared .align 8 .b8 smem[];", |variable| {
        assert_eq!((variable.linkage, variable.space), (Linkage::Extern, Space::Shared));
        assert_eq!(variable.dimensions, [None]);
    });
    with_variable(".extern .global .b8 x[0][2];", |variable| assert_eq!(variable.dimensions, [None, Some(2)]));
    with_variable(".const .u64 n;", |variable| {
        assert_eq!((variable.linkage, variable.space, variable.align), (Linkage::Local, Space::Const, None));
        assert!(variable.dimensions.is_empty());
    });
}

#[test]
fn an_attribute_says_whether_a_variable_is_managed() {
    let is_managed = |text: &str, expected: bool| {
        with_variable(text, |variable| assert_eq!((variable.name, variable.is_managed), ("x", expected), "{text}"));
    };
    is_managed(".global .attribute(.managed, .unified(1, 2)) .u32 x;", true);
    is_managed(".attribute(.managed) .global .u32 x;", true);
    is_managed(".visible .global .attribute(.managed) .align 4 .u32 x = 5;", true);
    is_managed(".global .attribute(.unified(1, 2)) .u32 x;", false);
    is_managed(".global .u32 x;", false);
    assert_eq!(mistake(".global .attribute(.fast) .u32 x;").message, "expected .managed or .unified, found '.fast'");
}

#[test]
fn one_declaration_may_have_several_variables() {
    with_module(".weak .global .u32 a = 1, b[2];", |module| {
        let [Item::Variable(a), Item::Variable(b)] = module.items.as_slice() else { panic!("not two variables") };
        assert_eq!((a.name, &a.initial, a.linkage), ("a", &Some(Initial::Integer(1)), Linkage::Weak));
        assert_eq!((b.name, b.dimensions.as_slice()), ("b", [Some(2)].as_slice()));
    });
}

#[test]
fn initial_values_are_numbers() {
    with_variable(".global .b8 x[] = {1, -1, 0f3F800000, 1.5, 0d0000000000000001, 2*(3+4)};", |variable| {
        let values = vec![
            Initial::Integer(1),
            Initial::Integer(u64::MAX),
            Initial::Single(0x3f80_0000),
            Initial::Double(1.5f64.to_bits()),
            Initial::Double(1),
            Initial::Integer(14),
        ];
        assert_eq!(variable.initial, Some(Initial::List(values)));
    });
}

#[test]
fn initial_values_are_nested_as_the_dimensions_are() {
    let (one, two) = (Initial::Integer(1), Initial::Integer(2));
    with_variable(".global .b8 x[3][2] = {{1}, {1, 2}};", |variable| {
        let inner = [vec![one.clone()], vec![one.clone(), two.clone()]].map(Initial::List).to_vec();
        assert_eq!(variable.initial, Some(Initial::List(inner)));
    });
    with_variable(".global .v2 .b8 x = {1, 2};", |variable| {
        assert_eq!(variable.initial, Some(Initial::List(vec![one.clone(), two.clone()])));
    });
    with_variable(".global .b8 x[2] = {};", |variable| assert_eq!(variable.initial, Some(Initial::List(vec![]))));
    let cases = [
        (".global .b8 x[2] = {1, 2, 3};", 27, "more initial values than the array has elements"),
        (".global .b8 x[2] = {{1}, {2}};", 21, "expected a constant, found '{'"),
        (".global .b8 x[2][2] = {1, 2};", 24, "expected '{', found '1'"),
        (".global .b8 x[2] = 1;", 20, "expected '{', found '1'"),
        (".global .b8 x = {1};", 17, "expected a constant, found '{'"),
        (".global .b8 x[] = {};", 19, "an array of unknown length requires an initial value"),
        (".global .v4 .b8 x = {1, 2};", 21, "a vector of 4 elements requires 4 initial values"),
    ];
    for (text, column, message) in cases {
        let error = mistake(text);
        assert_eq!((error.at, error.message.as_str()), (at(4, column), message), "{text}");
    }
}

fn address<'a>(column: u32, name: &'a str, generic: bool, addend: i64, mask: u64) -> Initial<'a> {
    Initial::Address { at: at(4, column), name, generic, addend, mask }
}

#[test]
fn an_initial_address_is_plain_or_generic_with_an_addend_and_a_mask() {
    let cases = [
        ("f", address(18, "f", false, 0, 0)),
        ("f+4", address(18, "f", false, 4, 0)),
        ("f+-4", address(18, "f", false, -4, 0)),
        ("f+2*3-1", address(18, "f", false, 5, 0)),
        ("generic(f)", address(26, "f", true, 0, 0)),
        ("generic(f)+12", address(26, "f", true, 12, 0)),
        ("0xFF(f)", address(23, "f", false, 0, 0xff)),
        ("0xFF00(generic(f)+8)", address(33, "f", true, 8, 0xff00)),
        ("0xFF00000000000000(f+1)", address(37, "f", false, 1, 0xff00_0000_0000_0000)),
    ];
    for (value, initial) in cases {
        with_variable(&format!(".global .u64 x = {value};"), |variable| {
            assert_eq!(variable.initial.as_ref(), Some(&initial), "{value}");
        });
    }
    assert_eq!(
        mistake(".global .u64 x = 0xF0(f);").message,
        "expected a mask of one byte such as 0xff00, found '0xF0'"
    );
}

#[test]
fn a_pointer_is_one_to_memory_of_the_device() {
    let text = ".entry k(.param .u64 .ptr .align 8 a, .param .u64 .ptr .global b, .param .u64 .ptr c, .param .u64 d,\n\
                .param .u64 .ptr .shared .align 4 e, .param .u64 .ptr .const f) { ret; }";
    with_function(text, |function| {
        let told =
            function.parameters.iter().map(|parameter| matches!(parameter, Parameter::Param(it) if it.is_pointer));
        assert_eq!(told.collect::<Vec<_>>(), [true, true, true, false, false, false]);
    });
}

#[test]
fn a_kernel_has_parameters_and_directives() {
    let text = ".visible .entry k(.param .u64 .ptr .global .align 4 p, .param .align 8 .b8 s[24])\n\
                .maxntid 128, 2\n.minnctapersm 3\n.maxnreg 32\n.reqnctapercluster 2, 1, 1\n\
                .maxclusterrank 8 .explicitcluster .blocksareclusters .pragma \"x\";\n{ ret; }";
    with_function(text, |function| {
        assert_eq!((function.at, function.name), (at(4, 17), "k"));
        assert_eq!((function.kind, function.linkage), (FunctionKind::Kernel, Linkage::Visible));
        assert_eq!((function.max_threads, function.required_threads), (Some([128, 2, 1]), None));
        assert_eq!((function.min_blocks, function.max_registers), (Some(3), Some(32)));
        let [Parameter::Param(p), Parameter::Param(s)] = function.parameters.as_slice() else { panic!("not two") };
        assert_eq!((p.name, p.ty, p.align, p.space), ("p", Type::U64, None, Space::Param));
        assert_eq!((p.is_pointer, s.is_pointer), (true, false));
        assert_eq!((s.name, s.ty, s.align, s.dimensions.as_slice()), ("s", Type::B8, Some(8), [Some(24)].as_slice()));
        assert_eq!(function.body.as_ref().map(Vec::len), Some(1));
    });
}

#[test]
fn a_kernel_may_require_its_threads() {
    with_function(".entry k .reqntid 64 {}", |function| {
        assert_eq!((function.max_threads, function.required_threads), (None, Some([64, 1, 1])));
    });
}

#[test]
fn a_function_returns_params_or_registers_and_may_be_declared_alone() {
    with_function(".extern .func (.param .b32 r) f (.param .b64 _, .reg .u32 x);", |function| {
        assert_eq!((function.kind, function.linkage), (FunctionKind::Device, Linkage::Extern));
        assert!(!function.noreturn && function.body.is_none());
        assert!(matches!(&function.returns[..], [Parameter::Param(Variable { name: "r", ty: Type::B32, .. })]));
        let register = Parameter::Register { at: at(4, 59), ty: Type::U32, name: "x" };
        assert_eq!(function.parameters[1], register);
    });
    with_function(".func f .noreturn { }", |function| {
        assert_eq!((function.noreturn, function.body.as_deref()), (true, Some([].as_slice())));
    });
    with_function(".func .attribute(.unified(1,2)) f();", |function| assert_eq!(function.name, "f"));
}

#[test]
fn an_alias_names_two_functions() {
    with_module("\n.alias a, b;", |module| {
        assert_eq!(module.items, [Item::Alias { at: at(5, 8), name: "a", of: "b" }]);
    });
}

#[test]
fn information_for_debuggers_is_dropped() {
    let text = ".file 1 \"a.cu\", 17, 4\n.file 2 \"b\"\n.pragma \"p\", \"q\";\n@@dwarf .4byte 3\n\
                .section .debug_info\n{\n.b32 12\nlabel:\n.b8 1,2\n.b32 .debug_abbrev\n.b64 $L__tmp0-label\n.b8 -1\n.b32 label+4\n}\n\
                .entry k() {\n.loc 1 2 3\n$L__tmp0:\n.loc 1 5 6, function_name $L__info_string0+4, inlined_at 1 7 8\nret;\n}";
    with_function(text, |function| assert_eq!(function.body.as_ref().map(Vec::len), Some(2)));
}
