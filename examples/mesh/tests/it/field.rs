//! The field of one process, compared with plain Rust, bit for bit.

use crate::reference;

use freehold_broker::Gpu;
use freehold_mesh::gpu_solver;
use freehold_mesh::plan::Plan;

fn bits(field: &[f32]) -> Vec<u32> {
    field.iter().map(|cell| cell.to_bits()).collect()
}

#[test]
fn kernels_agree_with_plain_rust_to_the_last_bit() {
    let gpu = Gpu::on(&freehold::open::device(Some("soft")).unwrap()).unwrap();
    for seed in 1..=2 {
        let plan = Plan { size: 128, steps: 60, workers: 1, seed };
        let (wanted, counts) = reference::solve(&plan);
        let found = gpu_solver::solve(&gpu, &plan, |_| {}).unwrap();
        let first = bits(&found).iter().zip(bits(&wanted)).position(|(found, wanted)| *found != wanted);
        assert_eq!(first, None, "the first cell that differs, with seed {seed}");
        // Some tiles are refined and some are not, and their number changes.
        assert!(counts.iter().all(|&count| count > 0 && count < 16), "{counts:?}");
        assert!(counts.iter().any(|&count| count != counts[0]), "{counts:?}");
        // The field changes: heat has spread.
        assert!(found.iter().all(|&cell| (0.0..=1.0).contains(&cell)));
    }
}

#[test]
fn another_seed_is_another_field() {
    let gpu = Gpu::on(&freehold::open::device(Some("soft")).unwrap()).unwrap();
    let [one, other] = [1, 2].map(|seed| {
        let plan = Plan { size: 64, steps: 8, workers: 1, seed };
        freehold_mesh::digest(&gpu_solver::solve(&gpu, &plan, |_| {}).unwrap())
    });
    assert_ne!(one, other);
}
