//! The warm path alone: as many pairs of a size as it is told, through the C interface or as blocks of the Rust one, for whoever
//! counts instructions.

use std::hint::black_box;
use std::ptr;
use std::time::Instant;

use freehold_capi::{freehold_alloc, freehold_free};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let numbers: Vec<usize> = arguments.iter().skip(1).filter_map(|text| text.parse().ok()).collect();
    let run: fn(usize, usize) = match arguments.first().map(String::as_str) {
        Some("c") => by_address,
        Some("blocks") => by_block,
        _ => wrong(),
    };
    let [pairs, bytes] = numbers[..] else { wrong() };
    // What comes first is not warm.
    run(1, bytes);
    let start = Instant::now();
    run(pairs, bytes);
    println!("{pairs} pairs of {bytes} bytes: {:.1} ns a pair", start.elapsed().as_nanos() as f64 / pairs as f64);
}

fn wrong() -> ! {
    eprintln!("error: say c or blocks, how many pairs, and of how many bytes");
    std::process::exit(2);
}

fn by_address(pairs: usize, bytes: usize) {
    for _ in 0..pairs {
        let address = freehold_alloc(bytes as isize, 0, ptr::null_mut());
        assert!(!address.is_null(), "there is memory for a block");
        freehold_free(address, bytes as isize, 0, ptr::null_mut());
    }
}

fn by_block(pairs: usize, bytes: usize) {
    let device = freehold::open().expect("there is a device");
    let stream = device.stream().expect("a device has streams");
    for _ in 0..pairs {
        drop(black_box(stream.alloc::<u8>(black_box(bytes)).expect("there is memory for a block")));
    }
}
