//! The values derived from the four numbers of a plan.

use freehold_mesh::plan::Plan;

const PLAN: Plan = Plan { size: 256, steps: 100, workers: 3, seed: 7 };

#[test]
fn strips_cover_all_rows_once() {
    assert_eq!((0..3).map(|worker| PLAN.strip(worker)).collect::<Vec<_>>(), [0..2, 2..5, 5..8]);
}

#[test]
fn a_strip_reads_a_few_rows_of_its_neighbours() {
    assert_eq!((PLAN.reads(&(0..2)), PLAN.reads(&(2..5))), (0..72, 56..168));
}

#[test]
fn the_last_epoch_has_the_steps_that_are_left() {
    assert_eq!(PLAN.epochs(), 13);
    assert_eq!((PLAN.frame(11, 0, 0).steps, PLAN.frame(12, 0, 0).steps), (8, 4));
}

#[test]
fn a_look_decides_of_four_epochs_two_later() {
    let looks: Vec<u32> = (0..12).map(|epoch| PLAN.look_of(epoch)).collect();
    assert_eq!(looks, [0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2]);
    let made: Vec<_> = (0..9).filter_map(|epoch| PLAN.look_at(epoch)).collect();
    assert_eq!(made, [0, 1, 2]);
}

#[test]
fn discs_stay_within_the_domain() {
    for epoch in 0..13 {
        let frame = PLAN.frame(epoch, 0, 0);
        assert!(frame.x.iter().chain(&frame.y).all(|at| (0..256).contains(at)), "{frame:?}");
    }
}

#[test]
fn what_cannot_be_computed_says_what_to_say_instead() {
    let said = |plan: Plan| plan.check().expect_err("the plan is not valid").to_string();
    assert_eq!(
        said(Plan { size: 100, ..PLAN }),
        "a size of 100 cells: expected a multiple of 32 from 32 to 16384, as in --size 256"
    );
    assert_eq!(
        said(Plan { workers: 9, ..PLAN }),
        "--workers 9: expected 1 to 8 (--size 256 has 8 rows of tiles; at most one worker each)"
    );
    assert_eq!(said(Plan { steps: 0, ..PLAN }), "0 steps: expected --steps 1 or more");
    assert_eq!(PLAN.check(), Ok(()));
}
