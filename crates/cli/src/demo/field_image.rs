//! The field as a PNG: hotter cells are brighter, and refined tiles have an outline.

use freehold_mesh::plan::{Plan, TILE};

/// The image's largest width; smaller fields use several pixels per cell.
const PIXELS_MAX: u32 = 1024;

/// From cold to hot.
const COLOURS: [[f32; 3]; 6] = [
    [8.0, 8.0, 24.0],
    [60.0, 15.0, 110.0],
    [165.0, 40.0, 95.0],
    [235.0, 105.0, 40.0],
    [250.0, 195.0, 60.0],
    [255.0, 255.0, 225.0],
];

/// The colour of the outline of a refined tile.
const LINE: [u8; 3] = [70, 105, 125];

pub(super) fn png(plan: &Plan, field: &[f32], refined: &[bool]) -> Vec<u8> {
    // Several pixels per cell, or several cells per pixel.
    let (scale, stride) = ((PIXELS_MAX / plan.size).max(1), plan.size.div_ceil(PIXELS_MAX));
    let edge = plan.size / stride * scale;
    let mut pixels = Vec::with_capacity((edge * edge * 3) as usize);
    for at in 0..edge * edge {
        let (x, y) = (at % edge / scale * stride, at / edge / scale * stride);
        let is_refined = |x: u32, y: u32| refined.get((y / TILE * plan.tile_rows() + x / TILE) as usize) == Some(&true);
        let is_edge = (x % TILE < stride && (at % edge).is_multiple_of(scale))
            || (y % TILE < stride && (at / edge).is_multiple_of(scale));
        let colour = match is_edge && is_refined(x, y) {
            true => LINE,
            false => heat(field[(y * plan.size + x) as usize]),
        };
        pixels.extend(colour);
    }
    encode(edge, &pixels)
}

/// Encodes a square image of three bytes per pixel.
fn encode(edge: u32, pixels: &[u8]) -> Vec<u8> {
    // 8 bits per channel, RGB; deflate, adaptive filters, no interlacing.
    let header = [&edge.to_be_bytes()[..], &edge.to_be_bytes(), &[8, 2, 0, 0, 0]].concat();
    let mut rows = Vec::with_capacity(pixels.len() + edge as usize);
    for row in pixels.chunks_exact(3 * edge as usize) {
        // Filter 1: the difference from the pixel on the left.
        rows.push(1);
        rows.extend(row.iter().enumerate().map(|(at, &byte)| byte.wrapping_sub(if at < 3 { 0 } else { row[at - 3] })));
    }
    let data = miniz_oxide::deflate::compress_to_vec_zlib(&rows, 6);
    let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
    for (kind, data) in [(b"IHDR", &header), (b"IDAT", &data), (b"IEND", &Vec::new())] {
        file.extend((data.len() as u32).to_be_bytes());
        let start = file.len();
        file.extend(kind);
        file.extend(data);
        file.extend(crc32fast::hash(&file[start..]).to_be_bytes());
    }
    file
}

fn heat(cell: f32) -> [u8; 3] {
    // The square root makes small values visible.
    let at = cell.clamp(0.0, 1.0).sqrt() * (COLOURS.len() - 1) as f32;
    let below = (at as usize).min(COLOURS.len() - 2);
    let part = at - below as f32;
    [0, 1, 2].map(|channel| {
        let (from, to) = (COLOURS[below][channel], COLOURS[below + 1][channel]);
        (from + (to - from) * part) as u8
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cold_is_dark_and_hot_is_bright() {
        assert_eq!([0.0, 1.0].map(heat), [[8, 8, 24], [255, 255, 225]]);
    }

    #[test]
    fn refined_tiles_have_a_line_and_others_none() {
        let plan = Plan { size: 1024, steps: 1, workers: 1, seed: 1 };
        let mut refined = vec![false; plan.tiles() as usize];
        refined[1] = true;
        let file = png(&plan, &vec![0.0; plan.cells()], &refined);
        let mut reader = png::Decoder::new(std::io::Cursor::new(file)).read_info().expect("the PNG is valid");
        let mut pixels = vec![0; 1024 * 1024 * 3];
        reader.next_frame(&mut pixels).expect("the PNG has pixels");
        assert_eq!((&pixels[..3], &pixels[32 * 3..][..3]), (&[8, 8, 24][..], &LINE[..]));
    }
}
