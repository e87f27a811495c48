//! The measurements of `freehold bench release`, their order and their targets.

use freehold_driver::cuda::{device, driver};

use super::call_costs::Comparison;
use super::error::Result;
use super::progress::Progress;
use super::report::{Report, Row, Target};
use super::rig::Rig;
use super::stats::Percentiles;
use super::{call_costs, under_load};

/// How many times to measure.
#[derive(Clone, Copy, Debug)]
pub(super) struct Effort {
    /// Rounds next to a running kernel.
    rounds: usize,
    /// Blocks, and modules, released per round.
    blocks: usize,
    modules: usize,
    /// Batches of calls that do not wait.
    batches: usize,
}

impl Effort {
    pub(super) const FULL: Self = Self { rounds: 9, blocks: 64, modules: 8, batches: 200 };
    pub(super) const QUICK: Self = Self { rounds: 1, blocks: 4, modules: 2, batches: 3 };
}

/// How many measurements the progress line counts.
const STEPS_WITH_KERNEL: usize = 7;
const STEPS_IDLE: usize = 4;

pub(super) fn measure(rig: &Rig, effort: Effort) -> Result<Report> {
    let progress = Progress::new(effort.rounds * STEPS_WITH_KERNEL + STEPS_IDLE);
    let steps = Steps { progress, rounds: effort.rounds };
    let mut rows = while_a_kernel_runs(rig, effort, &steps)?;
    rows.extend(without_waiting(rig, effort, &steps)?);
    steps.progress.finish();
    Ok(Report {
        device: device::name(&rig.opened.api, rig.opened.device)?,
        driver: driver::version_text(driver::version(&rig.opened.api)?),
        why: rig.opened.why.clone(),
        rows,
    })
}

fn while_a_kernel_runs(rig: &Rig, effort: Effort, steps: &Steps) -> Result<Vec<Row>> {
    let drops = steps.rounds("release", || under_load::drops(rig, effort.blocks))?;
    let frees = steps.rounds("cuMemFree", || under_load::frees(rig))?;
    let ordered_frees = steps.rounds("cuMemFreeAsync", || under_load::async_frees(rig, effort.blocks))?;
    let marked = steps
        .rounds("release of a block used in two streams", || under_load::drops_with_pending_use(rig, effort.blocks))?;
    let joined_frees =
        steps.rounds("cuMemFreeAsync after an event", || under_load::frees_after_join(rig, effort.blocks))?;
    let closes = steps.rounds("close of a module", || under_load::module_closes(rig, effort.modules))?;
    let unloads = steps.rounds("cuModuleUnload", || under_load::unloads(rig))?;
    let release_target = Some(Target::AtMost { ns: 1000.0 });
    Ok(vec![
        Row::new("release", "release while a kernel runs", drops, release_target).beside("cuMemFree", frees),
        Row::new("release-ordered", "the same", drops, None).beside("cuMemFreeAsync", ordered_frees),
        Row::new("release-marked", "release, used in another stream", marked, release_target)
            .beside("event, cuMemFreeAsync", joined_frees),
        Row::new("module-close", "close a module, launch pending", closes, Some(Target::AtMost { ns: 5000.0 }))
            .beside("cuModuleUnload", unloads),
    ])
}

fn without_waiting(rig: &Rig, effort: Effort, steps: &Steps) -> Result<Vec<Row>> {
    let launch = steps.progress.step("launch", || call_costs::launches(rig, effort.batches))?;
    let bare_launch =
        steps.progress.step("launch, no context current", || call_costs::bare_launches(rig, effort.batches))?;
    let pair = steps.progress.step("allocate and release", || call_costs::pairs(rig, effort.batches))?;
    let (owners, near) = steps.progress.step("owner_of", || call_costs::owners(rig, effort.batches))?;
    let owner_target = Some(Target::AtMost { ns: 50.0 });
    let launch_target = Some(Target::OverDriver { percent: 5.0 });
    Ok(vec![
        row("launch", "launch", launch, launch_target, "cuLaunchKernel"),
        row("launch-bare", "launch, no context current", bare_launch, launch_target, "cuLaunchKernel"),
        Row::new("owner-of", "owner_of, any of a million", Percentiles::of(owners), owner_target),
        Row::new("owner-of-near", "owner_of, 1000 of the million", Percentiles::of(near), owner_target),
        row("allocate", "allocate and release 64 KiB", pair, None, "cuMemAlloc, cuMemFree"),
    ])
}

fn row(id: &'static str, what: &'static str, beside: Comparison, target: Option<Target>, call: &'static str) -> Row {
    Row::new(id, what, Percentiles::of(beside.ours), target).beside(call, Percentiles::of(beside.driver))
}

/// Measurements made in rounds, each next to one kernel.
struct Steps {
    progress: Progress,
    rounds: usize,
}

impl Steps {
    fn rounds(&self, what: &'static str, mut round: impl FnMut() -> Result<Vec<f64>>) -> Result<Percentiles> {
        let mut times = Vec::new();
        for _ in 0..self.rounds {
            times.extend(self.progress.step(what, &mut round)?);
        }
        Ok(Percentiles::of(times))
    }
}
