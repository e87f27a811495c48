//! The warm path alone: a number of alloc/free pairs of one size, through the C interface or as blocks of the Rust one.
//! A tool counts the instructions of `pairs_by_address` and `pairs_by_block`.

use std::hint::black_box;
use std::ptr;
use std::time::Instant;

use freehold::Stream;
use freehold_capi::{freehold_alloc, freehold_free};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let numbers: Vec<usize> = arguments.iter().skip(1).filter_map(|text| text.parse().ok()).collect();
    let [pairs, bytes] = numbers[..] else { wrong() };
    // The first pairs are not warm, and are not counted.
    let took = match arguments[0].as_str() {
        "c" => {
            pair_by_address(bytes);
            timed(|| pairs_by_address(pairs, bytes))
        }
        "blocks" => {
            let device = freehold::open().expect("cannot open a device");
            let stream = device.new_stream().expect("cannot create a stream");
            pair_by_block(bytes, &stream);
            timed(|| pairs_by_block(pairs, bytes, &stream))
        }
        _ => wrong(),
    };
    println!("{pairs} pairs of {bytes} bytes: {:.1} ns per pair", took / pairs as f64);
}

fn wrong() -> ! {
    eprintln!("usage: warm_path (c|blocks) PAIRS BYTES");
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
    assert!(!address.is_null(), "out of memory");
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
    drop(black_box(stream.alloc::<u8>(black_box(bytes)).expect("out of memory")));
}
