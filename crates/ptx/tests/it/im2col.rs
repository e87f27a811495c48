//! Copies of columns of pixels: `.im2col`. The expected words are counted by hand from the rules of PTX.

use crate::common;

use common::{BASE, kernel, launch, words};
use freehold_ptx::{Columns, Dimension, Element, ErrorKind, FaultKind, Swizzle, TensorMap, Unit};

/// Images of 4 channels, each a word, whose first word is 1, the next one 2, and so on.
fn images(spatial: &[u64], steps: &[u32], columns: Columns) -> TensorMap {
    let mut stride = 4;
    let sizes = [&[4], spatial, &[2]].concat();
    let dimensions = sizes.iter().zip(steps).enumerate().map(|(number, (&size, &step))| {
        let dimension = Dimension { size, stride, box_size: if number == 0 { 4 } else { 1 }, step };
        stride *= size;
        dimension
    });
    let dimensions = dimensions.collect();
    let (element, swizzle) = (Element::U32, Swizzle::None);
    TensorMap { start: BASE, element, dimensions, swizzle, is_filled_with_nan: false, columns: Some(columns) }
}

/// Returns a kernel that fills 128 words with 1 to 128, and the 128 words of shared memory with those from 1001, copies
/// and then writes shared memory behind the first words.
fn copier(map: &TensorMap, copy: &str) -> String {
    let bytes: Vec<String> = map.encode().iter().map(u8::to_string).collect();
    let variables = format!(
        ".global .align 64 .b8 map[128] = {{{}}};\n.shared .align 128 .b8 buf[512];\n.shared .align 8 .b64 bar;",
        bytes.join(", ")
    );
    kernel(
        &variables,
        &format!(
            "add.u32 %r1, %tid, 1; st.global.u32 [%at], %r1; add.u32 %r2, %tid, 1001; shl.b32 %r3, %tid, 2;\n\
             mov.u32 %r4, buf; add.u32 %r4, %r4, %r3; st.shared.u32 [%r4], %r2; mov.u64 %d1, map;\n\
             setp.ne.u32 %p1, %tid, 0; bar.sync 0; @%p1 bra done;\n\
             mbarrier.init.shared.b64 [bar], 1; mbarrier.arrive.expect_tx.shared.b64 _, [bar], {};\n{copy}\n\
             done: bar.sync 0; ld.shared.u32 %r5, [%r4]; st.global.u32 [%at + 512], %r5;",
            map.box_bytes()
        ),
    )
}

fn load(dimensions: u32, coordinates: &str, offsets: &str) -> String {
    format!(
        "cp.async.bulk.tensor.{dimensions}d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes \
         [buf], [%d1, {{{coordinates}}}], [bar], {{{offsets}}};\n\
         again: mbarrier.try_wait.parity.shared.b64 %p2, [bar], 0; @!%p2 bra again;"
    )
}

/// Returns the first channel of each pixel that a load puts into shared memory, and checks the others.
#[track_caller]
fn pixels(map: &TensorMap, copy: &str) -> Vec<u32> {
    let all = words(&copier(map, copy), 1, 128, 256);
    let count = map.columns.as_ref().expect("the map has columns").pixels as usize;
    let (loaded, rest) = all[128..].split_at(4 * count);
    assert!(rest.iter().zip(1001 + 4 * count as u32..).all(|(&word, kept)| word == kept), "{rest:?}");
    let (loaded, _) = loaded.as_chunks::<4>();
    for &[first, others @ ..] in loaded {
        let expected = if first == 0 { [0; 3] } else { [first + 1, first + 2, first + 3] };
        assert_eq!(others, expected);
    }
    loaded.iter().map(|pixel| pixel[0]).collect()
}

/// The corners of a filter of three pixels with one pixel of padding, so that there are as many bases as pixels.
fn padded(pixels: u32, dimensions: usize) -> Columns {
    Columns { pixels, lower: vec![-1; dimensions], upper: vec![-1; dimensions] }
}

#[test]
fn a_column_goes_through_rows_and_images() {
    // Images of 3 by 2 pixels. The bases are those from (-1, -1) to (1, 0).
    let map = images(&[3, 2], &[1; 4], padded(8, 2));
    assert_eq!(pixels(&map, &load(4, "0, -1, -1, 0", "2, 1")), [5, 9, 0, 17, 21, 0, 29, 33]);
    assert_eq!(pixels(&map, &load(4, "0, -1, -1, 0", "0, 0")), [0, 0, 0, 0, 1, 5, 0, 0]);
    assert_eq!(pixels(&map, &load(4, "0, 0, 0, 0", "1, 1")), [17, 21, 25, 29, 33, 37, 41, 45]);
    // No image follows the second one.
    assert_eq!(pixels(&map, &load(4, "0, 1, 0, 1", "1, 1")), [45, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn steps_skip_bases_but_not_pixels_of_the_column() {
    let map = images(&[3, 2], &[1, 2, 1, 1], padded(6, 2));
    assert_eq!(pixels(&map, &load(4, "0, -1, -1, 0", "1, 1")), [1, 9, 13, 21, 25, 33]);
    let map = images(&[3, 2], &[1, 1, 2, 1], padded(6, 2));
    assert_eq!(pixels(&map, &load(4, "0, -1, -1, 0", "1, 1")), [1, 5, 9, 25, 29, 33]);
}

#[test]
fn images_have_one_to_three_spatial_dimensions() {
    // Bases from 1 to 5 of 5 pixels: those at the end are outside.
    let corners = Columns { pixels: 7, lower: vec![1], upper: vec![1] };
    let map = images(&[5], &[1; 3], corners);
    assert_eq!(pixels(&map, &load(3, "0, 2, 0", "0")), [9, 13, 17, 0, 25, 29, 33]);
    assert_eq!(pixels(&map, &load(3, "0, 2, 0", "1")), [13, 17, 0, 0, 29, 33, 37]);
    // Volumes of 2 by 2 by 2.
    let map = images(&[2, 2, 2], &[1; 5], padded(8, 3));
    assert_eq!(pixels(&map, &load(5, "0, 0, -1, -1, 0", "1, 2, 1")), [13, 0, 0, 25, 29, 0, 0, 41]);
}

#[test]
fn a_store_has_no_offsets() {
    let map = images(&[3, 2], &[1; 4], padded(8, 2));
    let store = |copy: &str| {
        let stored = words(&copier(&map, copy), 1, 128, 256);
        let (stored, _) = stored.as_chunks::<4>();
        stored[..12].iter().map(|pixel| pixel[0]).collect::<Vec<_>>()
    };
    let copy = "cp.async.bulk.tensor.4d.global.shared::cta.im2col_no_offs.bulk_group [%d1, {0, 0, -1, 0}], [buf];";
    // The bases (0, 0), (1, 0), and (0, 0), (1, 0) of the next image are inside.
    assert_eq!(store(copy), [1013, 1017, 9, 13, 17, 21, 25, 29, 33, 37, 41, 45]);
    let copy =
        "cp.reduce.async.bulk.tensor.4d.global.shared::cta.add.im2col_no_offs.bulk_group [%d1, {0, 0, 0, 0}], [buf];";
    assert_eq!(store(copy), [1002, 1010, 9, 13, 17, 21, 25 + 1025, 29 + 1029, 33, 37, 41, 45]);
}

#[test]
fn columns_are_swizzled_like_boxes() {
    let map = TensorMap { swizzle: Swizzle::Within32, ..images(&[3, 2], &[1; 4], padded(8, 2)) };
    let all = words(&copier(&map, &load(4, "0, 0, 0, 0", "1, 1")), 1, 128, 256);
    let firsts: Vec<u32> = all[128..].chunks(4).map(|unit| unit[0]).take(16).collect();
    // Rows of 16 bytes lie 32 bytes apart; units change places in every second group of 128 bytes.
    assert_eq!(firsts, [17, 1005, 21, 1013, 25, 1021, 29, 1029, 1033, 33, 1041, 37, 1049, 41, 1057, 45]);
}

#[test]
fn the_map_fits_the_instruction() {
    let fault = |map: &TensorMap, copy: &str| match launch(&copier(map, copy), 1, 128, 1024, None)
        .map_err(|fault| fault.kind)
    {
        Err(FaultKind::Instruction { message }) => message,
        other => panic!("{other:?}"),
    };
    let map = images(&[3, 2], &[1; 4], padded(8, 2));
    assert_eq!(fault(&map, &load(4, "0, 0, 0, 0", "1, 256")), "an offset of 256, but at most 255 is possible");
    let tile = load(4, "0, 0, 0, 0", "1, 2").replace(".im2col", ".tile").replace(", {1, 2}", "");
    assert_eq!(fault(&map, &tile), "the tensor map is for '.im2col', the instruction for '.tile'");
    let boxes = TensorMap { columns: None, ..map };
    let message = fault(&boxes, &load(4, "0, 0, 0, 0", "1, 2"));
    assert_eq!(message, "the tensor map is for '.tile', the instruction for '.im2col'");
}

#[test]
fn wrong_modes_and_offsets_are_refused() {
    let error = |instruction: &str| {
        let text = kernel(".shared .align 128 .b8 buf[512];\n.shared .align 8 .b64 bar;", &format!("\n{instruction}"));
        let error = Unit::compile(&common::with_head(&text)).expect_err(instruction);
        (error.kind == ErrorKind::Unsupported, error.at.column, error.message)
    };
    let invalid = |column, message: &str| (false, column, message.to_owned());
    let load = |mode: &str, rank: u32, rest: &str| {
        let coordinates = ["%r1"; 5][..rank as usize].join(", ");
        error(&format!(
            "cp.async.bulk.tensor.{rank}d.shared::cluster.global.{mode}.mbarrier::complete_tx::bytes \
             [buf], [%d1, {{{coordinates}}}], [bar]{rest};"
        ))
    };
    assert_eq!(load("im2col", 2, ", {%h1}"), invalid(47, "'.im2col' needs '.3d', '.4d' or '.5d'"));
    assert_eq!(
        load("im2col", 3, ""),
        invalid(1, "'.im2col' needs a vector of 1 offsets of 16 bits as the last operand")
    );
    assert_eq!(load("im2col", 4, ", {%h1}").2, "expected a vector of 2 offsets of 16 bits");
    assert_eq!(load("im2col", 3, ", {%r1}").2, "'%r1' is .b32, expected .b16");
    assert_eq!(load("im2col_no_offs", 3, "").2, "'.im2col_no_offs' is for copies to a tensor");
    assert_eq!(
        load("im2col::w", 3, ", {%h1, %h2}"),
        invalid(47, "'.im2col::w' needs sm_100a or higher, but the target is sm_90")
    );
    assert_eq!(
        load("tile::gather4", 2, ""),
        invalid(47, "'.tile::gather4' needs sm_100a or higher, but the target is sm_90")
    );
    let store = |mode: &str, rest: &str| {
        error(&format!(
            "cp.async.bulk.tensor.3d.global.shared::cta.{mode}.bulk_group [%d1, {{%r1, %r2, %r3}}], [buf]{rest};"
        ))
    };
    assert_eq!(store("im2col", ""), invalid(43, "a copy to a tensor has '.im2col_no_offs', not '.im2col'"));
    assert_eq!(store("im2col_no_offs", ", {%h1}").2, "there are too many operands");
}
