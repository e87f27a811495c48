//! Texture and surface instructions, on texels in plain bytes.

use std::sync::Arc;

use crate::common::{BASE, Flat, launch_known, with_head};
use freehold_ptx::{
    AddressMode, Channel, Fault, FaultKind, Filter, Format, ReadMode, Sampling, Surface, Texels, Texture, Unit,
};

/// The bytes before the texels, which results are written to.
const RESULT_BYTES: usize = 256;

pub(crate) const POINT: Sampling = Sampling {
    address: [AddressMode::Clamp; 3],
    filter: Filter::Point,
    level_filter: Filter::Point,
    read: ReadMode::Element,
    is_normalized: false,
    is_seamless: false,
    border: [9.0, 0.0, 0.0, 0.0],
    level_bias: 0.0,
    level_min: 0.0,
    level_max: 100.0,
};

fn texels([width, height, depth]: [u32; 3], format: Format) -> Texels {
    let row_bytes = u64::from(width) * format.bytes();
    let slice_bytes = row_bytes * u64::from(height);
    Texels { start: BASE + RESULT_BYTES as u64, width, height, depth, row_bytes, slice_bytes }
}

/// Memory with texels that are 1, 2, 3, ...
fn numbered(size: [u32; 3], sampling: Sampling) -> Flat {
    let count = size.iter().product::<u32>();
    let mut memory = Flat::new(RESULT_BYTES);
    memory.bytes.extend((1..=count).flat_map(|number| (number as f32).to_le_bytes()));
    let format = Format { channel: Channel::Float, channels: 1 };
    let levels = vec![texels(size, format)];
    memory.textures.push(Arc::new(Texture { format, levels, is_buffer: false, sampling }));
    memory.surfaces.push(Arc::new(Surface { format, texels: texels(size, format) }));
    memory
}

fn run(body: &str, threads: u32, memory: Flat) -> Result<Flat, Fault> {
    let text = format!(
        ".visible .entry k(.param .u64 p, .param .u64 t) {{\n.reg .b32 %r<20>, %tid; .reg .f32 %f<20>; .reg .b64 %d<20>, %out, %at, %t;\n\
         ld.param.u64 %out, [p]; ld.param.u64 %t, [t]; mov.u32 %tid, %tid.x; mad.wide.u32 %at, %tid, 4, %out;\n\
         cvt.rn.f32.u32 %f0, %tid;\n{body}\nret;\n}}"
    );
    launch_known(&text, &[BASE, 1], |_| None, threads, memory).map(|outcome| outcome.memory)
}

fn floats(body: &str, threads: usize, memory: Flat) -> Vec<f32> {
    let memory = run(body, threads as u32, memory).unwrap_or_else(|fault| panic!("{fault}"));
    memory.words()[..threads].iter().map(|&bits| f32::from_bits(bits)).collect()
}

/// Samples at x = (thread - 2) / 2 and y = 1.5.
const PLANE: &str = "add.f32 %f1, %f0, 0fC0000000; mul.f32 %f1, %f1, 0f3F000000; mov.f32 %f2, 0f3FC00000;\n\
    tex.2d.v4.f32.f32 {%f3, %f4, %f5, %f6}, [%t, {%f1, %f2}]; st.global.f32 [%at], %f3;";

#[test]
fn a_point_filter_returns_the_texel_that_contains_the_coordinate() {
    let found = floats(PLANE, 9, numbered([3, 2, 1], POINT));
    assert_eq!(found, [4.0, 4.0, 4.0, 4.0, 5.0, 5.0, 6.0, 6.0, 6.0]);
}

#[test]
fn a_linear_filter_weights_the_texels_around_the_coordinate() {
    let linear = Sampling { filter: Filter::Linear, ..POINT };
    let found = floats(PLANE, 9, numbered([3, 2, 1], linear.clone()));
    assert_eq!(found, [4.0, 4.0, 4.0, 4.0, 4.5, 5.0, 5.5, 6.0, 6.0]);
    let border = Sampling { address: [AddressMode::Border; 3], ..linear };
    let found = floats(PLANE, 9, numbered([3, 2, 1], border));
    assert_eq!(found, [9.0, 9.0, 6.5, 4.0, 4.5, 5.0, 5.5, 6.0, 7.5]);
}

#[test]
fn normalized_coordinates_wrap_and_mirror() {
    // x = thread / 4 - 1 in four texels.
    let line = "mul.f32 %f1, %f0, 0f3E800000; add.f32 %f1, %f1, 0fBF800000;\n\
        tex.1d.v4.f32.f32 {%f3, %f4, %f5, %f6}, [%t, {%f1}]; st.global.f32 [%at], %f3;";
    let normalized = Sampling { is_normalized: true, address: [AddressMode::Wrap; 3], ..POINT };
    let found = floats(line, 12, numbered([4, 1, 1], normalized.clone()));
    assert_eq!(found, [1.0, 2.0, 3.0, 4.0, 1.0, 2.0, 3.0, 4.0, 1.0, 2.0, 3.0, 4.0]);
    let mirrored = Sampling { address: [AddressMode::Mirror; 3], ..normalized };
    let found = floats(line, 12, numbered([4, 1, 1], mirrored));
    assert_eq!(found, [4.0, 3.0, 2.0, 1.0, 1.0, 2.0, 3.0, 4.0, 4.0, 3.0, 2.0, 1.0]);
}

#[test]
fn a_layer_comes_before_the_coordinates() {
    let body = "mov.f32 %f2, 0f3F000000;\ntex.a2d.v4.f32.f32 {%f3, %f4, %f5, %f6}, [%t, {%tid, %f2, %f2, %f2}];\n\
        st.global.f32 [%at], %f3;";
    assert_eq!(floats(body, 4, numbered([2, 2, 3], POINT)), [1.0, 5.0, 9.0, 9.0]);
}

#[test]
fn a_gather_reads_four_texels_counter_clockwise() {
    let body = "mov.f32 %f2, 0f3F800000;\ntld4.r.2d.v4.f32.f32 {%f3, %f4, %f5, %f6}, [%t, {%f2, %f2}];\n\
        st.global.v4.f32 [%out], {%f3, %f4, %f5, %f6};";
    let memory = run(body, 1, numbered([3, 2, 1], POINT)).unwrap();
    assert_eq!(memory.words()[..4], [4.0f32, 5.0, 2.0, 1.0].map(f32::to_bits));
}

#[test]
fn surfaces_are_read_and_written_by_bytes() {
    let body = "shl.b32 %r1, %tid, 2; mov.u32 %r2, 1;\nsuld.b.2d.b32.trap {%r3}, [%t, {%r1, %r2}];\n\
        st.global.u32 [%at], %r3; mov.u32 %r4, 0;\nsust.b.2d.b32.trap [%t, {%r1, %r4}], {%r3};";
    let memory = run(body, 3, numbered([3, 2, 1], POINT)).unwrap();
    let expected = [4.0f32, 5.0, 6.0].map(f32::to_bits);
    assert_eq!(memory.words()[..3], expected);
    assert_eq!(memory.words()[RESULT_BYTES / 4..][..3], expected);
}

#[test]
fn accesses_outside_a_surface_follow_the_boundary_mode() {
    let load = |mode: &str| {
        let body = format!(
            "shl.b32 %r1, %tid, 2; add.s32 %r1, %r1, -4; mov.u32 %r2, 1;\n\
             suld.b.2d.b32.{mode} {{%r3}}, [%t, {{%r1, %r2}}]; st.global.u32 [%at], %r3;"
        );
        run(&body, 5, numbered([3, 2, 1], POINT)).map(|memory| memory.words()[..5].to_vec())
    };
    let bits = |values: [f32; 5]| values.map(f32::to_bits).to_vec();
    assert_eq!(load("zero").unwrap(), bits([0.0, 4.0, 5.0, 6.0, 0.0]));
    assert_eq!(load("clamp").unwrap(), bits([4.0, 4.0, 5.0, 6.0, 6.0]));
    let fault = load("trap").unwrap_err();
    assert!(matches!(fault.kind, FaultKind::Address { space: "surface", write: false, .. }), "{fault}");
}

#[test]
fn a_wild_handle_is_a_fault() {
    let body = "mov.u64 %d1, 77; mov.f32 %f1, 0f00000000;\n\
        tex.1d.v4.f32.f32 {%f3, %f4, %f5, %f6}, [%d1, {%f1}]; st.global.f32 [%at], %f3;";
    let fault = run(body, 1, numbered([2, 1, 1], POINT)).unwrap_err();
    assert!(fault.to_string().ends_with("0x4d is not the handle of a texture"), "{fault}");
}

#[test]
fn sizes_can_be_asked_for() {
    let body = "txq.width.b32 %r1, [%t]; txq.height.b32 %r2, [%t]; suq.depth.b32 %r3, [%t];\n\
        st.global.u32 [%out], %r1; st.global.u32 [%out+4], %r2; st.global.u32 [%out+8], %r3;";
    assert_eq!(run(body, 1, numbered([5, 3, 2], POINT)).unwrap().words()[..3], [5, 3, 2]);
}

#[test]
fn forms_without_a_meaning_are_rejected() {
    let compile = |instruction: &str| {
        let text =
            format!(".visible .entry k() {{ .reg .f32 %f<9>; .reg .b32 %r<9>; .reg .b64 %d<9>; {instruction} ret; }}");
        Unit::compile(&with_head(&text)).expect_err("the text is rejected").to_string()
    };
    for (instruction, said) in [
        ("tex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%d1, {%f1}];", "expected 2 coordinates, found 1"),
        ("tex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%r1, {%f1, %f2}];", "'%r1' has less than 64 bits"),
        ("tex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [ref, {%f1, %f2}];", "'ref' is not a register"),
        ("tex.2dms.v4.f32.s32 {%f1, %f2, %f3, %f4}, [%d1, {%r1, %r2, %r3, %r4}];", "geometry"),
        ("suld.b.2d.b32 {%r1}, [%d1, {%r1, %r2}];", "expected '.trap', '.clamp' or '.zero'"),
        ("suld.b.cube.b32.trap {%r1}, [%d1, {%r1, %r2, %r3, %r4}];", "a surface is not a cube"),
    ] {
        let error = compile(instruction);
        assert!(error.contains(said), "{instruction}: {error}");
    }
}
