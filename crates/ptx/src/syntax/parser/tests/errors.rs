//! Errors: their messages and positions.

use super::*;

fn check(error: &Error, kind: ErrorKind, place: Position, message: &str, instruction: &str) {
    assert_eq!(
        (error.kind, error.at, error.message.as_str(), error.instruction.as_str()),
        (kind, place, message, instruction)
    );
}

#[test]
fn a_mistake_in_an_instruction_carries_its_text() {
    let syntax = |body, place, message, instruction| {
        check(&mistake_in_body(body), ErrorKind::Syntax, place, message, instruction);
    };
    syntax("add.s32 %r1, ;", at(5, 14), "expected an operand, found ';'", "add.s32 %r1,");
    syntax("add.s32 %r1 %r2;", at(5, 13), "expected ',' or ';', found '%r2'", "add.s32 %r1 %r2");
    syntax("@ add;", at(5, 6), "expected an instruction, found ';'", "@ add");
    syntax("@!5 ret;", at(5, 3), "expected a predicate, found '5'", "@!5 ret");
    syntax("@p {}", at(5, 4), "expected an instruction, found '{'", "@p {}");
    syntax("ld.u32 %r1, [;", at(5, 14), "expected an address, found ';'", "ld.u32 %r1, [");
    syntax("ld.u32 %r1, [%r2+%r3];", at(5, 18), "expected a constant, found '%r3'", "ld.u32 %r1, [%r2+%r3]");
    syntax("ld.u32 %r1, [1.5];", at(5, 14), "expected an address, found '1.5'", "ld.u32 %r1, [1.5]");
    syntax("ld.u32 %r1, [%r2-4];", at(5, 17), "expected ']', found '-'", "ld.u32 %r1, [%r2-4]");
    syntax("mov {}, a;", at(5, 6), "expected an operand, found '}'", "mov {}, a");
    syntax("_: ret;", at(5, 1), "expected a label, found '_'", "");
    syntax("ret; ;", at(5, 6), "expected a statement or '}', found ';'", "");
    syntax(".section .debug_info {}", at(5, 1), "expected a statement or '}', found '.section'", "");
    syntax("mov {a b}, c;", at(5, 8), "expected ',' or '}', found 'b'", "mov {a b}, c");
    syntax("call (a b), c;", at(5, 9), "expected ',' or ')', found 'b'", "call (a b), c");
    syntax("mov a, 12z;", at(5, 8), "a number is followed directly by a word: '12z'", "mov a, 12z");
    syntax("a b,\n c d,\n e;", at(6, 4), "expected ',' or ';', found 'd'", "a b,\n c d,");
}

#[test]
fn a_missing_semicolon_is_found_at_the_next_word() {
    let error = mistake_in_body("mov a, b\n  add c, d;");
    check(&error, ErrorKind::Syntax, at(6, 3), "expected ',' or ';', found 'add'", "mov a, b\n  add c, d");
    assert_eq!(error.to_string(), "line 6, column 3: expected ',' or ';', found 'add': mov a, b\n  add c, d");
}

#[test]
fn unsupported_ptx_is_not_a_syntax_error() {
    let cases = [
        (
            "tex.2d a, [t, s, {x, y}];",
            at(5, 16),
            "an address of three parts is not supported",
            "tex.2d a, [t, s, {x, y}]",
        ),
        ("mov a, b[3];", at(5, 9), "an array's element as an operand is not supported", "mov a, b[3]"),
    ];
    for (body, place, message, instruction) in cases {
        check(&mistake_in_body(body), ErrorKind::Unsupported, place, message, instruction);
    }
    check(&mistake(".global .texref t;"), ErrorKind::Unsupported, at(4, 9), "the type .texref is not supported", "");
    check(&mistake(".reg .b32 r;"), ErrorKind::Unsupported, at(4, 1), ".reg is not supported here", "");
    check(
        &mistake(".global .b32 r<4>;"),
        ErrorKind::Unsupported,
        at(4, 15),
        "numbered names are supported only for registers",
        "",
    );
}

#[test]
fn a_declaration_error_names_what_is_missing() {
    let cases = [
        (".global x;", 9, "expected a type, found 'x'"),
        (".global .f99 x;", 9, "expected a type, found '.f99'"),
        (".global .b32 .b64 x;", 14, "expected a name, found '.b64'"),
        (".global .b32 .align 4 x;", 14, "expected a name, found '.align'"),
        (".global .b32 _;", 14, "expected a name, found '_'"),
        (".global .bf16 x;", 9, "expected a type, found '.bf16'"),
        (".global .v8 .b8 x;", 9, "expected a type, found '.v8'"),
        (".global .b32 ;", 14, "expected a name, found ';'"),
        (".global .b32 x y;", 16, "expected ',' or ';', found 'y'"),
        (".global .align 3 .b32 x;", 16, "the alignment 3 is not a power of two"),
        (".global .align 0 .b32 x;", 16, "the alignment 0 is not a power of two"),
        (".global .align 4294967296 .b32 x;", 16, "4294967296 is too large for an alignment"),
        (".global .b32 x[-1];", 16, "expected the length of the dimension, found '-'"),
        (".global .b32 x[2*2];", 17, "expected ']', found '*'"),
        (".global .b32 x[2] = {1 2};", 24, "expected ',' or '}', found '2'"),
        (
            ".visible .extern .global .b32 x;",
            10,
            "expected only one of .visible, .extern, .weak and .common, found '.extern'",
        ),
        (".visible ret;", 10, "expected a variable or a function, found 'ret'"),
        ("}", 1, "expected a variable or a function, found '}'"),
        (".entry (.param .b32 x) k;", 8, "expected a function's name, found '('"),
        (".entry k(.b32 x);", 10, "expected .param or .reg, found '.b32'"),
        (".entry k() .fast;", 12, "expected '{', ';' or a directive of functions, found '.fast'"),
        (".entry k() ret;", 12, "expected '{' or ';', found 'ret'"),
        (".entry k() .maxntid x {}", 21, "expected an integer, found 'x'"),
        (".func f() .maxntid 1;", 11, "expected '{', ';' or a directive of functions, found '.maxntid'"),
        (".entry k() .noreturn;", 12, "expected '{', ';' or a directive of functions, found '.noreturn'"),
        (".common .func f();", 9, "expected a variable or a function, found '.func'"),
        (".loc 1 2 3", 1, "expected a variable or a function, found '.loc'"),
        (".entry k() { .loc 1 2 {", 23, "expected a column, found '{'"),
        (".entry k() { .loc 1 2 3, here", 26, "expected function_name or inlined_at, found 'here'"),
        (".section .debug { a }", 21, "expected ':', found '}'"),
        (".section .debug { .b8 a, 1 }", 24, "expected data of a section, or '}', found ','"),
        (".section .debug { \"a\" }", 19, "expected data of a section, or '}', found '\"a\"'"),
        (".pragma nounroll;", 9, "expected a pragma in quotes, found 'nounroll'"),
    ];
    for (text, column, message) in cases {
        check(&mistake(text), ErrorKind::Syntax, at(4, column), message, "");
    }
}

#[test]
fn semantic_errors_are_not_syntax_errors() {
    let cases = [
        (".common .shared .b32 x;", 9, "only global variables can be .common"),
        (".extern .global .b32 x = 1;", 24, "'x' cannot have an initial value"),
        (".shared .b32 x = 1;", 16, "'x' cannot have an initial value"),
        (".global .b32 x[];", 14, "the length of 'x' is unknown"),
        (".global .b32 x[0];", 14, "the length of 'x' is unknown"),
        (".global .b32 x[2][0];", 19, "only the first dimension may have no length"),
        (".global .pred x;", 15, "'x' is a predicate, which is always a register"),
        (".global .v4 .f64 x;", 9, "there is no vector of 4 .f64"),
        (".entry k(.param .b8 p[]);", 21, "the length of 'p' is unknown"),
        (".entry k(.reg .b32 p);", 20, "'p' is a register: a kernel's parameters must be .param"),
        (".entry k() .maxntid 1, 0;", 21, ".maxntid must not be zero"),
        (".entry k() .maxnreg 0;", 21, ".maxnreg must not be zero"),
        (".entry k() .maxntid 1 .reqntid 1;", 23, "a kernel cannot have both .maxntid and .reqntid"),
        (".extern .func f() {}", 19, "'f' is .extern, but has a body"),
        (".func (.reg .b32 r) f() .noreturn;", 21, "'f' is .noreturn, but has a return value"),
    ];
    for (text, column, message) in cases {
        check(&mistake(text), ErrorKind::Semantic, at(4, column), message, "");
    }
    with_module(".extern .global .b32 x[]; .common .global .b32 y; .func f(.param .b8 p[]);", |module| {
        assert_eq!(module.items.len(), 3);
    });
}

#[test]
fn a_body_that_is_never_closed_ends_with_the_text() {
    let error = mistake(".entry k() {\n ret;");
    check(&error, ErrorKind::Syntax, at(5, 6), "expected a statement or '}', found the end of the text", "");
    let error = mistake(".entry k() {\n /* ret; }");
    check(&error, ErrorKind::Syntax, at(5, 2), "the comment is never closed: '/* ret; }'", "");
}

#[test]
fn an_array_has_at_most_as_many_bytes_as_63_bits_count() {
    with_variable(".global .b8 x[0x7fffffffffffffff];", |variable| {
        assert_eq!(variable.dimensions, [Some(0x7fff_ffff_ffff_ffff)]);
    });
    let message = "'x' has more than 9223372036854775807 bytes";
    check(&mistake(".global .b8 x[0x8000000000000000];"), ErrorKind::Syntax, at(4, 15), message, "");
    check(&mistake(".global .b64 x[65536][0x10000000000][16];"), ErrorKind::Syntax, at(4, 38), message, "");
}

#[test]
fn a_declaration_has_at_most_a_million_registers() {
    with_body(".reg .b32 a<1000000>, b;", |statements| assert_eq!(statements.len(), 1));
    let message = "1000001 registers are more than 1000000";
    check(&mistake_in_body(".reg .b32 a<1000001>;"), ErrorKind::Syntax, at(5, 13), message, "");
}

#[test]
fn a_text_has_at_most_a_million_registers_more_than_bytes() {
    let functions = |count| format!(".entry k() {{ .reg .b32 a<999999>; }} .func f() {{ .reg .b32 b<{count}>; }}");
    let bytes = text(&functions(100)).len() as u32;
    with_module(&functions(bytes + 1), |module| assert_eq!(module.items.len(), 2));
    let message = format!("a text of this length may not declare more than {} registers", 1_000_000 + bytes);
    check(&mistake(&functions(bytes + 2)), ErrorKind::Syntax, at(4, 65), &message, "");
}

/// Returns a text that nests `count` times.
fn nest(count: usize, before: &str, open: &str, middle: &str, close: &str, after: &str) -> String {
    format!("{before}{}{middle}{}{after}", open.repeat(count), close.repeat(count))
}

#[test]
fn nothing_nests_deeper_than_64() {
    type Nest = fn(usize) -> String;
    let cases: &[(Nest, usize)] = &[
        (|count| nest(count, ".entry k() ", "{", "", "}", ""), 64),
        (|count| nest(count, &format!(".global .b32 x{} = ", "[1]".repeat(count)), "{", "1", "}", ";"), 64),
        (|count| nest(count, ".global .b32 x = ", "(", "1", ")", ";"), 64),
        (|count| nest(count, ".global .b32 x = ", "-", "1", "", ";"), 64),
        (|count| nest(count, ".global .b32 x = ", "(.s64)", "1", "", ";"), 64),
        (|count| nest(count, ".global .b32 x = ", "1 ? ", "1", " : 1", ";"), 64),
        (|count| nest(count, ".global .b32 x = ", "1 ? 1 : ", "1", "", ";"), 64),
    ];
    for (text, deepest) in cases {
        with_module(&text(*deepest), |module| assert_eq!(module.items.len(), 1));
        for count in [deepest + 1, 100_000] {
            let error = mistake(&text(count));
            assert_eq!((error.kind, error.message.as_str()), (ErrorKind::Syntax, "nested more than 64 deep"));
        }
    }
}

#[test]
fn a_mistake_shows_the_start_of_what_is_long() {
    let long = "e".repeat(100);
    let error = mistake(&format!("\"{long}\""));
    assert_eq!(error.message, format!("expected a variable or a function, found '\"{}...'", "e".repeat(59)));
    let error = mistake_in_body(&format!("x {}1 2;", "1,".repeat(500)));
    assert_eq!(error.instruction, format!("x {}...", "1,".repeat(199)));
}
