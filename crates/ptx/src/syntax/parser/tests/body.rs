//! Statements, instructions, operands and constant expressions.

use super::*;

#[test]
fn registers_are_numbered_or_named() {
    with_body(".reg .b32 %r<5>, x;\n.reg .v2 .f32 %v<0>;", |statements| {
        let names = vec![("%r", Some(5)), ("x", None)];
        assert_eq!(statements[0], Statement::Registers { at: at(5, 1), ty: Type::B32, vector: 1, names });
        let names = vec![("%v", Some(0))];
        assert_eq!(statements[1], Statement::Registers { at: at(6, 1), ty: Type::F32, vector: 2, names });
    });
}

#[test]
fn a_body_has_variables_labels_and_blocks() {
    with_body(".local .align 4 .b8 d[8];\nL: { a; { } }", |statements| {
        let [Statement::Variable(variable), Statement::Label { at: place, name }, Statement::Block(block)] = statements
        else {
            panic!("not three statements: {statements:?}")
        };
        assert_eq!((variable.name, variable.space), ("d", Space::Local));
        assert_eq!((*place, *name), (at(6, 1), "L"));
        assert!(matches!(&block[..], [Statement::Instruction(_), Statement::Block(inner)] if inner.is_empty()));
    });
}

#[test]
fn a_label_names_lists_of_targets_and_prototypes() {
    with_body(
        "t: .branchtargets a, b;\nc: .calltargets f;\np: .callprototype (.param .b32 _) _ (.param .b64 _) .noreturn;\nq: .callprototype ()_ ();",
        |statements| {
            assert_eq!(statements[0], Statement::Targets { at: at(5, 1), name: "t", targets: vec!["a", "b"] });
            assert_eq!(statements[1], Statement::Targets { at: at(6, 1), name: "c", targets: vec!["f"] });
            let Statement::Prototype { name: "p", returns, parameters, .. } = &statements[2] else {
                panic!("not a prototype")
            };
            assert_eq!((returns.len(), parameters.len()), (1, 1));
            let Statement::Prototype { name: "q", returns, parameters, .. } = &statements[3] else {
                panic!("not a prototype")
            };
            assert_eq!((returns.len(), parameters.len()), (0, 0));
        },
    );
}

#[test]
fn an_instruction_has_guard_opcode_modifiers_and_text() {
    with_instruction("  @!%p1 ld.global.L1::evict_last.v2.f32 {%f1, _}, [%rd1+8] ;", |instruction| {
        assert_eq!(instruction.at, at(5, 3));
        assert_eq!(instruction.guard, Some(Guard { register: "%p1", negated: true }));
        assert_eq!(instruction.opcode, "ld");
        assert_eq!(instruction.modifiers, ["global", "L1::evict_last", "v2", "f32"]);
        assert_eq!(instruction.text, "@!%p1 ld.global.L1::evict_last.v2.f32 {%f1, _}, [%rd1+8]");
    });
    with_instruction("@p ret;", |instruction| {
        assert_eq!(instruction.guard, Some(Guard { register: "p", negated: false }));
        assert!(instruction.operands.is_empty() && instruction.modifiers.is_empty());
    });
    with_instruction("tex .2d .v4;", |instruction| assert_eq!(instruction.modifiers, ["2d", "v4"]));
}

#[test]
fn operands_are_names_numbers_addresses_and_groups() {
    use Operand::*;
    let cases = [
        ("%tid.x", Name("%tid.x")),
        ("$L__BB0_1", Name("$L__BB0_1")),
        ("!%p2", Not("%p2")),
        ("_", Sink),
        ("a+4", Sum("a", 4)),
        ("a+-4", Sum("a", -4)),
        ("a+1?4:8", Sum("a", 4)),
        ("-5", Integer(-5i64 as u64)),
        ("0xFFU", Integer(255)),
        ("0f3F800000", Single(0x3f80_0000)),
        ("0d3FF0000000000000", Double(0x3ff0_0000_0000_0000)),
        ("-1.5", Double((-1.5f64).to_bits())),
        ("[a]", Address { base: Base::Name("a"), offset: 0 }),
        ("[a+8]", Address { base: Base::Name("a"), offset: 8 }),
        ("[a+-8]", Address { base: Base::Name("a"), offset: -8 }),
        ("[a+4*2-1]", Address { base: Base::Name("a"), offset: 7 }),
        ("[16]", Address { base: Base::Integer(16), offset: 0 }),
        ("{a, 1, _}", Vector(vec![Name("a"), Integer(1), Sink])),
        ("p|q", Pair(Box::new((Name("p"), Name("q"))))),
        ("_|q", Pair(Box::new((Sink, Name("q"))))),
        ("1|6", Integer(7)),
        ("!0", Integer(1)),
    ];
    for (text, operand) in cases {
        with_operands(text, |operands| assert_eq!(operands, [operand], "{text}"));
    }
}

#[test]
fn a_suffix_belongs_to_a_name_only_without_a_blank() {
    assert_eq!(mistake_in_body("x %tid .x;").message, "expected ',' or ';', found '.x'");
}

#[test]
fn a_call_has_lists() {
    with_instruction("call.uni (r0), \n f, \n (a, 5), proto;", |instruction| {
        assert_eq!(
            instruction.operands,
            [
                Operand::List(vec![Operand::Name("r0")]),
                Operand::Name("f"),
                Operand::List(vec![Operand::Name("a"), Operand::Integer(5)]),
                Operand::Name("proto"),
            ]
        );
        assert_eq!(instruction.text, "call.uni (r0), \n f, \n (a, 5), proto");
    });
    with_instruction("call f;", |instruction| assert_eq!(instruction.operands, [Operand::Name("f")]));
    with_instruction("call f, ();", |instruction| assert_eq!(instruction.operands[1], Operand::List(vec![])));
    with_operands("(5)", |operands| assert_eq!(operands, [Operand::Integer(5)]));
}

#[test]
fn constant_expressions_follow_the_rules_of_c_in_64_bits() {
    let cases: &[(&str, i64)] = &[
        ("1 + 2 * 3", 7),
        ("(1 + 2) * 3", 9),
        ("10 - 4 - 3", 3),
        ("7 / 2", 3),
        ("-7 / 2", -3),
        ("-7 % 4", -3),
        ("1 << 4 | 3", 19),
        ("1 << 64", 0),
        ("-8 >> 1", -4),
        ("-8 >> 70", -1),
        ("(.u64)(-8) >> 60", 15),
        ("-8U >> 60", 15),
        ("-1 < 1", 1),
        ("-1 < 1U", 0),
        ("(.s64)(-1U) < 1", 1),
        ("2 >= 2", 1),
        ("3 == 4", 0),
        ("3 != 4", 1),
        ("6 & 3 ^ 1", 3),
        ("1 && 0 || 1", 1),
        ("!7", 0),
        ("~0", -1),
        ("+-+3", -3),
        ("1 ? 2 : 3", 2),
        ("0 ? 2 : 0 ? 4 : 5", 5),
        ("1.5 < 2.0", 1),
        ("1 ? -1 : 2U", -1),
        ("-9223372036854775808 / -1", 0),
        ("(.s64)(-9223372036854775808) / -1", i64::MIN),
        ("9223372036854775807 + 1", i64::MIN),
    ];
    for (text, value) in cases {
        with_operands(text, |operands| assert_eq!(operands, [Operand::Integer(*value as u64)], "{text}"));
    }
    with_operands("1.0 + 0.5 * 3.0", |operands| assert_eq!(operands, [Operand::Double(2.5f64.to_bits())]));
}

#[test]
fn constant_expressions_that_have_no_value_are_mistakes() {
    let cases = [
        ("1 / 0", 5, "division by zero"),
        ("1U % 0", 6, "division by zero"),
        ("1.5 % 2.5", 7, "'%' is an operator for integers only"),
        ("1 + 2.5", 5, "integers and floating-point numbers cannot be mixed in an expression"),
        ("1.5 < 2", 7, "integers and floating-point numbers cannot be mixed in an expression"),
        ("1 | 2.5", 5, "'|' is an operator for integers only"),
        ("1.0 << 2", 7, "'<<' is an operator for integers only"),
        ("~1.0", 3, "'~' is an operator for integers only"),
        ("1.0 ? 2 : 3", 3, "'?' is an operator for integers only"),
        ("1 ? 2.0 : 3.0", 3, "'?' is an operator for integers only"),
        ("(.u64) 1.5", 10, "only integers can be cast"),
        ("1 + 0f00000000", 7, "an exact single precision number cannot be part of an expression"),
        ("1 + %r1", 7, "expected a constant, found '%r1'"),
        ("1 ? 2", 8, "expected ':', found ';'"),
        ("(1", 5, "expected ')', found ';'"),
    ];
    for (operand, column, message) in cases {
        let error = mistake_in_body(&format!("x {operand};"));
        assert_eq!((error.message.as_str(), error.at), (message, at(5, column)), "{operand}");
        assert_eq!(error.instruction, format!("x {operand}"));
    }
}
