//! Values of 128 bits: moves, memory and atomic operations.

use freehold_ptx::{ErrorKind, FaultKind, Unit};

use crate::common::{kernel, launch, with_head, words};

/// Runs a body with registers of 128 bits in one thread, and returns the memory as numbers of 64 bits.
#[track_caller]
fn run(body: &str, count: usize) -> Vec<u64> {
    let body = format!(".reg .b128 %q<5>; .reg .b128 single;\n{body}");
    let halves = words(&kernel(".global .align 16 .b8 buffer[64];", &body), 1, 1, 2 * count);
    halves.chunks(2).map(|half| u64::from(half[0]) | u64::from(half[1]) << 32).collect()
}

#[test]
fn a_value_is_packed_moved_and_taken_apart() {
    let body = "mov.b64 %d1, 0x1111222233334444; mov.b64 %d2, 0x5555666677778888; mov.b128 %q1, {%d1, %d2}; \
         mov.b128 single, %q1; mov.b128 {%r1, %r2, %r3, %r4}, single; mov.b128 %q2, {%r4, %r3, %r2, %r1}; \
         st.global.b128 [%out], %q2; mov.b128 {_, %d3}, single; st.global.b64 [%out+16], %d3; \
         mov.b128 %q3, 7; mov.b128 {%d1, %d2}, %q3; st.global.b64 [%out+24], %d1; st.global.b64 [%out+32], %d2;";
    assert_eq!(run(body, 5), [0x7777_8888_5555_6666, 0x3333_4444_1111_2222, 0x5555_6666_7777_8888, 7, 0]);
}

#[test]
fn a_value_goes_through_every_memory() {
    let body = ".shared .align 16 .b8 s[32]; .local .align 16 .b8 l[32]; .reg .b32 %s;\n\
         mov.b128 %q1, {1, 2}; st.global.b128 [%out], %q1; ld.global.b128 %q2, [%out]; st.shared.b128 [s+16], %q2; \
         ld.shared.b128 %q3, [s+16]; st.local.b128 [l], %q3; ld.local.b128 %q4, [l]; st.b128 [buffer+32], %q4; \
         ld.relaxed.gpu.global.b128 single, [buffer+32]; st.release.sys.global.b128 [%out+16], single;";
    assert_eq!(run(body, 4), [1, 2, 1, 2]);
}

#[test]
fn values_are_exchanged_and_compared_as_a_whole() {
    for (space, at) in [("", "buffer"), (".global", "buffer"), (".shared", "s")] {
        let shared = ".shared .align 16 .b8 s[32];\n";
        let body = format!(
            "{shared} mov.b128 %q1, {{1, 2}}; st{space}.b128 [{at}+16], %q1; mov.b128 %q2, {{3, 4}}; \
             atom{space}.exch.b128 %q3, [{at}+16], %q2; st.global.b128 [%out], %q3; \
             mov.b128 %q4, {{3, 5}}; atom{space}.cas.b128 %q3, [{at}+16], %q4, %q1; st.global.b128 [%out+16], %q3; \
             atom{space}.cas.b128 %q3, [{at}+16], %q2, %q1; st.global.b128 [%out+32], %q3; \
             atom{space}.exch.b128 _, [{at}+16], 9; ld{space}.b128 %q3, [{at}+16]; st.global.b128 [%out+48], %q3;"
        );
        assert_eq!(run(&body, 8), [1, 2, 3, 4, 3, 4, 9, 0], "{space}");
    }
}

#[test]
fn a_counter_of_128_bits_loses_no_increment() {
    let body = ".reg .b128 %q<5>; mov.b128 %q1, {-1, 0};\n\
         AGAIN: mov.b128 {%d1, %d2}, %q1; add.cc.u64 %d1, %d1, 1; addc.u64 %d2, %d2, 0; mov.b128 %q2, {%d1, %d2}; \
         atom.global.cas.b128 %q3, [%out], %q1, %q2; mov.b128 {%d3, %d4}, %q3; mov.b128 {%d5, %d6}, %q1; \
         xor.b64 %d3, %d3, %d5; xor.b64 %d4, %d4, %d6; or.b64 %d3, %d3, %d4; setp.ne.b64 %p1, %d3, 0; \
         mov.b128 %q1, %q3; @%p1 bra AGAIN;";
    let text = kernel("", body);
    for seed in [None, Some(1), Some(2)] {
        // The first guess is wrong unless the counter has reached it.
        let memory = launch(&text, 3, 64, 16, seed).unwrap().memory.words();
        assert_eq!(memory, [192, 0, 0, 0], "seed {seed:?}");
    }
}

#[test]
fn a_wrong_address_is_a_fault_of_16_bytes() {
    let fault = |at: &str| {
        let text = kernel("", &format!(".reg .b128 %q<3>; mov.b128 %q1, 0; atom.exch.b128 %q2, [{at}], %q1;"));
        launch(&text, 1, 1, 32, None).expect_err("the address is wrong").kind
    };
    assert!(matches!(fault("%out+8"), FaultKind::Misaligned { bytes: 16, .. }));
    assert!(matches!(fault("%out+32"), FaultKind::Address { bytes: 16, write: true, .. }));
}

#[test]
fn what_the_assembler_refuses_is_refused() {
    let refused = |head: &str, body: &str| {
        let text = kernel("", &format!(".reg .b128 %q<5>; {body}"));
        let error = Unit::compile(&format!("{head}\n{text}")).expect_err("the text is rejected");
        assert_eq!(error.kind, ErrorKind::Semantic, "{error}");
        error.message
    };
    let now = with_head("");
    let old = now.replace("8.6", "8.3");
    assert_eq!(refused(&now, "mov.b64 %d1, %q1;"), "'%q1' is .b128, expected .b64");
    assert_eq!(refused(&now, "mov.b128 %q1, %d1;"), "'%d1' is .b64, expected .b128");
    assert_eq!(refused(&now, "and.b128 %q1, %q2, %q3;"), "the instruction does not support type .b128");
    assert_eq!(refused(&now, "mov.b128 %q1, {%h1, %h2, %h3};"), "128 bits have 2 or 4 parts, not 3");
    assert_eq!(refused(&now, "mov.b128 %q1, {%q2, %q3};"), "'%q2' is .b128, expected .b64");
    assert_eq!(refused(&now, "atom.global.add.b128 %q1, [%out], %q2;"), "the instruction does not support type .b128");
    assert_eq!(refused(&now, "ld.global.b32 %r1, [%q1];").split(',').next(), Some("'%q1' has type .b128"));
    assert_eq!(
        refused(&old, "ld.relaxed.sys.global.b128 %q1, [%out];"),
        "'.sys' with the type .b128 needs '.version 8.4' or higher"
    );
    assert_eq!(
        refused(&now.replace("sm_90", "sm_80"), "atom.exch.b128 %q1, [%out], %q2;"),
        "an atomic operation on .b128 needs sm_90 or higher, but the target is sm_80"
    );
    assert_eq!(refused(&now.replace("8.6", "8.2"), ""), "the type .b128 needs '.version 8.3' and sm_70 or higher");
}
