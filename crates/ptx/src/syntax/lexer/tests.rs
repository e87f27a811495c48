//! The spelling of tokens, and input that is not a token.

use super::*;

/// Returns the kinds and texts of all tokens before the end.
fn tokens(text: &str) -> Vec<(TokenKind, &str)> {
    let mut lexer = Lexer::new(text);
    let mut tokens = Vec::new();
    loop {
        let token = lexer.token();
        if token.kind == TokenKind::End {
            return tokens;
        }
        tokens.push((token.kind, token.text));
    }
}

fn kind(text: &str) -> TokenKind {
    let tokens = tokens(text);
    assert_eq!(tokens.len(), 1, "{text} is one token: {tokens:?}");
    tokens[0].0
}

fn texts(text: &str) -> Vec<&str> {
    tokens(text).into_iter().map(|(_, text)| text).collect()
}

fn signed(value: u64) -> TokenKind {
    TokenKind::Integer { value, unsigned: false }
}

fn unsigned(value: u64) -> TokenKind {
    TokenKind::Integer { value, unsigned: true }
}

#[test]
fn words_start_with_a_letter_an_underscore_a_dollar_or_a_percent() {
    for word in ["add", "%r1", "$L__BB0_1", "_Z3fooPf", "_", "__cudart_i2opi_d$x", "%clock64", "x0"] {
        assert_eq!(kind(word), TokenKind::Word, "{word}");
    }
}

#[test]
fn a_lone_dollar_is_not_a_token_and_a_lone_percent_is_an_operator() {
    assert_eq!(kind("$"), TokenKind::Bad("no PTX token starts with this character"));
    assert_eq!(kind("%"), TokenKind::Punct(Punct::Percent));
    assert_eq!(texts("7 % 4"), ["7", "%", "4"]);
}

#[test]
fn a_modifier_keeps_its_colons_and_may_start_with_a_digit() {
    assert_eq!(
        texts("ld.global.L1::no_allocate.L2::128B.u32"),
        ["ld", ".global", ".L1::no_allocate", ".L2::128B", ".u32"]
    );
    assert_eq!(texts("a.mbarrier::complete_tx::bytes.b64"), ["a", ".mbarrier::complete_tx::bytes", ".b64"]);
    assert_eq!(texts("tex.2d.v4"), ["tex", ".2d", ".v4"]);
    assert_eq!(texts(".a: :b"), [".a", ":", ":", "b"]);
}

#[test]
fn a_point_with_digits_behind_a_blank_is_a_number() {
    assert_eq!(tokens("x .5"), [(TokenKind::Word, "x"), (TokenKind::Double(0.5f64.to_bits()), ".5")]);
    assert_eq!(kind(".5e1"), TokenKind::Double(5f64.to_bits()));
    assert_eq!(tokens("tex .2d"), [(TokenKind::Word, "tex"), (TokenKind::Dotted, ".2d")]);
    assert_eq!(tokens("x.5"), [(TokenKind::Word, "x"), (TokenKind::Dotted, ".5")]);
    assert_eq!(kind("."), TokenKind::Bad("a dot without a word"));
}

#[test]
fn integers_have_four_bases_and_a_suffix() {
    assert_eq!(kind("0"), signed(0));
    assert_eq!(kind("42"), signed(42));
    assert_eq!(kind("42U"), unsigned(42));
    assert_eq!(kind("0x1fU"), unsigned(31));
    assert_eq!(kind("0X1F"), signed(31));
    assert_eq!(kind("017"), signed(15));
    assert_eq!(kind("0b101"), signed(5));
    assert_eq!(kind("0B101U"), unsigned(5));
}

#[test]
fn an_integer_that_needs_all_64_bits_is_unsigned() {
    assert_eq!(kind("9223372036854775807"), signed(0x7fff_ffff_ffff_ffff));
    assert_eq!(kind("9223372036854775808"), unsigned(0x8000_0000_0000_0000));
    assert_eq!(kind("18446744073709551615"), unsigned(0xffff_ffff_ffff_ffff));
    assert_eq!(kind("18446744073709551616"), TokenKind::Bad("the number has more than 64 bits"));
    assert_eq!(kind("0x10000000000000000"), TokenKind::Bad("the number has more than 64 bits"));
}

#[test]
fn a_number_does_not_run_into_a_word() {
    assert_eq!(kind("12ab"), TokenKind::Bad("a number is followed directly by a word"));
    assert_eq!(kind("09"), TokenKind::Bad("a number without a digit"));
    assert_eq!(kind("018"), TokenKind::Bad("a number is followed directly by a word"));
    assert_eq!(kind("0x"), TokenKind::Bad("a number without a digit"));
    assert_eq!(kind("0b2"), TokenKind::Bad("a number without a digit"));
    assert_eq!(kind("12u"), TokenKind::Bad("a number is followed directly by a word"));
}

#[test]
fn exact_floats_have_all_their_digits() {
    assert_eq!(kind("0f3F800000"), TokenKind::Single(0x3f80_0000));
    assert_eq!(kind("0Fffffffff"), TokenKind::Single(0xffff_ffff));
    assert_eq!(kind("0d3ff0000000000000"), TokenKind::Double(0x3ff0_0000_0000_0000));
    assert_eq!(kind("0D7FF8000000000000"), TokenKind::Double(0x7ff8_0000_0000_0000));
    assert_eq!(kind("0f3F80000"), TokenKind::Bad("a single precision number has eight hexadecimal digits"));
    assert_eq!(kind("0f3F80000g"), TokenKind::Bad("a single precision number has eight hexadecimal digits"));
    assert_eq!(kind("0d3ff000000000000"), TokenKind::Bad("a double precision number has sixteen hexadecimal digits"));
}

#[test]
fn decimal_floats_are_doubles() {
    assert_eq!(kind("1.5"), TokenKind::Double(0x3ff8_0000_0000_0000));
    assert_eq!(kind("1."), TokenKind::Double(0x3ff0_0000_0000_0000));
    assert_eq!(kind("2e3"), TokenKind::Double(2000f64.to_bits()));
    assert_eq!(kind("2.5E-1"), TokenKind::Double(0.25f64.to_bits()));
    assert_eq!(kind("1e400"), TokenKind::Bad("the number is too large for double precision"));
    assert_eq!(kind("1e"), TokenKind::Bad("a number is followed directly by a word"));
    assert_eq!(kind("08.5"), TokenKind::Double(8.5f64.to_bits()));
}

#[test]
fn the_longest_punctuation_wins() {
    assert_eq!(texts("<<=>>==!=&&&|||"), ["<<", "=", ">>", "==", "!=", "&&", "&", "||", "|"]);
    for text in [",", ";", ":", "?", "@", "=", "(", ")", "[", "]", "{", "}", "+", "-", "*", "/", "%", "!", "~", "&"] {
        let TokenKind::Punct(punct) = kind(text) else { panic!("{text} is not punctuation") };
        assert_eq!(punct.text(), text);
    }
    for text in ["|", "^", "<", ">", "<=", ">=", "==", "!=", "&&", "||", "<<", ">>"] {
        let TokenKind::Punct(punct) = kind(text) else { panic!("{text} is not punctuation") };
        assert_eq!(punct.text(), text);
    }
}

#[test]
fn comments_and_foreign_lines_are_left_out() {
    let text = "a // b\n/* c\n * d */ e\n#line 3 \"f\"\n\t# 4\n@@dwarf .byte 1\n  @@DWARF x\ng";
    assert_eq!(texts(text), ["a", "e", "g"]);
}

#[test]
fn a_foreign_line_starts_its_line() {
    assert_eq!(tokens("a # b")[1].0, TokenKind::Bad("no PTX token starts with this character"));
    assert_eq!(texts("a @@b"), ["a", "@", "@", "b"]);
}

#[test]
fn a_comment_that_is_never_closed_is_reported_where_it_opens() {
    let mut lexer = Lexer::new("a\n  /* b\n c");
    lexer.token();
    let token = lexer.token();
    assert_eq!(token.kind, TokenKind::Bad("the comment is never closed"));
    assert_eq!(token.at, Position { line: 2, column: 3 });
    assert_eq!(lexer.token().kind, TokenKind::End);
}

#[test]
fn quotes_close_at_the_next_quotation_mark() {
    assert_eq!(tokens(r#""a\"b"#), [(TokenKind::Text, r#""a\""#), (TokenKind::Word, "b")]);
    assert_eq!(tokens("\"é\nb\" c"), [(TokenKind::Text, "\"é\nb\""), (TokenKind::Word, "c")]);
    assert_eq!(kind("\"a"), TokenKind::Bad("the quotes are never closed"));
}

#[test]
fn positions_count_lines_and_bytes_from_one() {
    let mut lexer = Lexer::new("é\n a /* x\n */ b\r\n\tc");
    let places: Vec<_> = std::iter::repeat_with(|| lexer.token().at).take(5).map(|at| (at.line, at.column)).collect();
    assert_eq!(places, [(1, 1), (2, 2), (3, 5), (4, 2), (4, 3)]);
}

#[test]
fn invalid_characters_are_tokens_of_their_own() {
    assert_eq!(texts("é\0`\x0c"), ["é", "\0", "`", "\x0c"]);
}
