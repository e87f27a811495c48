//! The warm path alone: as many pairs of a size as it is told, through the C interface or as blocks of the Rust one, for whoever
//! counts the instructions of `pairs_by_address` and `pairs_by_block`.

use std::hint::black_box;
use std::ptr;
use std::time::Instant;

use freehold::Stream;
use freehold_capi::{freehold_alloc, freehold_free};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let numbers: Vec<usize> = arguments.iter().skip(1).filter_map(|text| text.parse().ok()).collect();
    let [pairs, bytes] = numbers[..] else { wrong() };
    // What comes first is not warm, and stands outside of what is counted.
    let took = match arguments[0].as_str() {
        "c" => {
            pair_by_address(bytes);
            timed(|| pairs_by_address(pairs, bytes))
        }
        "blocks" => {
            let device = freehold::open().expect("there is a device");
            let stream = device.stream().expect("a device has streams");
            pair_by_block(bytes, &stream);
            timed(|| pairs_by_block(pairs, bytes, &stream))
        }
        _ => wrong(),
    };
    println!("{pairs} pairs of {bytes} bytes: {:.1} ns a pair", took / pairs as f64);
}

fn wrong() -> ! {
    eprintln!("error: say c or blocks, how many pairs, and of how many bytes");
    std::process::exit(2);
}

fn timed(run: impl FnOnce()) -> f64 {
    let start = Instant::now();
    run();
    start.elapsed().as_nanos() as f64
}

#[inline(never)]
fn pairs_by_address(pairs: usize, bytes: usize) {
    for _ in 0..pairs {
        pair_by_address(bytes);
    }
}

#[inline(always)]
fn pair_by_address(bytes: usize) {
    let address = freehold_alloc(bytes as isize, 0, ptr::null_mut());
    assert!(!address.is_null(), "there is memory for a block");
    freehold_free(address, bytes as isize, 0, ptr::null_mut());
}

#[inline(never)]
fn pairs_by_block(pairs: usize, bytes: usize, stream: &Stream) {
    for _ in 0..pairs {
        pair_by_block(bytes, stream);
    }
}

#[inline(always)]
fn pair_by_block(bytes: usize, stream: &Stream) {
    drop(black_box(stream.alloc::<u8>(black_box(bytes)).expect("there is memory for a block")));
}
