//! The warm path alone: as many pairs of a size as it is told, for whoever counts instructions.

use std::ptr;

use freehold_capi::{freehold_alloc, freehold_free};

fn main() {
    let arguments: Vec<usize> = std::env::args().skip(1).filter_map(|text| text.parse().ok()).collect();
    let [pairs, bytes] = arguments[..] else {
        eprintln!("error: say how many pairs, and of how many bytes");
        std::process::exit(2);
    };
    let start = std::time::Instant::now();
    for _ in 0..pairs {
        let address = freehold_alloc(bytes as isize, 0, ptr::null_mut());
        assert!(!address.is_null(), "there is memory for a block");
        freehold_free(address, bytes as isize, 0, ptr::null_mut());
    }
    println!("{pairs} pairs of {bytes} bytes: {:.1} ns a pair", start.elapsed().as_nanos() as f64 / pairs as f64);
}
