//! A chart of the memory of a run over time: one panel for the total and one per worker, with growths, releases and the
//! kill.

use freehold_mesh::notes::{Event, Note};
use freehold_mesh::parent::Outcome;
use freehold_mesh::plan::Plan;
use plotters::element::{PathElement, Text, TriangleMarker};
use plotters::prelude::{Color, IntoFont, RGBColor};
use plotters::series::{AreaSeries, LineSeries};

use super::summary::{MemorySample, memory_samples};
use crate::output::charts::{self, Area, Axes, DrawResult, FONT, LIVE, RESERVED, steps};
use crate::output::size::{format, unit};

const PANEL_HEIGHT: u32 = 150;
/// With more workers, only the total is drawn.
const PANELS_MAX: u32 = 8;

const DOMAIN: RGBColor = RGBColor(0x9a, 0xa5, 0xb1);
const GROWN: RGBColor = RGBColor(0x2c, 0x7f, 0x3f);
const RELEASED: RGBColor = RGBColor(0x75, 0x3a, 0x9b);
const KILLED: RGBColor = RGBColor(0xc0, 0x1c, 0x28);

/// A panel: its caption, the size of the domain, and the memory above it after each note.
struct Panel {
    caption: String,
    domain_bytes: u64,
    /// Time and memory.
    steps: Vec<(f64, MemorySample)>,
    marks: Vec<Marker>,
}

struct Marker {
    at: f64,
    live_bytes: u64,
    what: MarkerKind,
}

enum MarkerKind {
    Grown,
    Released,
    Killed(u32),
}

/// Returns the chart as SVG text.
pub(super) fn svg(plan: &Plan, outcome: &Outcome) -> DrawResult<String> {
    let panels = panels(plan, outcome);
    let end = panels[0].steps.last().map_or(1.0, |step| step.0).max(1e-3);
    let below = "grey: the domain, leased by all; blue: refined cells; orange: reserved; \
                 up: a vector grew; down: it gave memory back; red: a worker is killed";
    charts::chart(["Who held what", below], &panels, PANEL_HEIGHT, |area, panel| draw(area, panel, end))
}

fn panels(plan: &Plan, outcome: &Outcome) -> Vec<Panel> {
    let notes = &outcome.notes;
    let began_ns = notes.first().map_or(0, |note| note.at_ns);
    let time = |note: &Note| (note.at_ns - began_ns) as f64 / 1e9;
    let held = memory_samples(plan, notes);
    let sum = |now: &Vec<MemorySample>| MemorySample {
        live_bytes: now.iter().map(|held| held.live_bytes).sum(),
        reserved_bytes: outcome.segment_bytes + now.iter().map(|held| held.reserved_bytes).sum::<u64>(),
    };
    let killed = notes.iter().filter(|note| note.event == Event::Killed);
    let all = Panel {
        caption: format!("all, with the domain of {}", format(outcome.domain_bytes)),
        domain_bytes: outcome.domain_bytes,
        steps: notes.iter().map(time).zip(held.iter().map(sum)).collect(),
        marks: killed
            .map(|note| Marker { at: time(note), live_bytes: 0, what: MarkerKind::Killed(note.worker) })
            .collect(),
    };
    let workers = if plan.workers <= PANELS_MAX { plan.workers } else { 0 };
    let one = |worker: u32| {
        let mut panel =
            Panel { caption: format!("worker {worker}"), domain_bytes: 0, steps: Vec::new(), marks: Vec::new() };
        let mut before = 0;
        for (note, held) in notes.iter().zip(&held).filter(|(note, _)| note.worker == worker) {
            let (at, now) = (time(note), held[worker as usize]);
            panel.steps.push((at, now));
            let what = match note.event {
                Event::Killed => Some(MarkerKind::Killed(worker)),
                Event::Refined { .. } if now.live_bytes > before => Some(MarkerKind::Grown),
                _ if now.live_bytes < before => Some(MarkerKind::Released),
                _ => None,
            };
            panel.marks.extend(what.map(|what| Marker { at, live_bytes: now.live_bytes, what }));
            before = now.live_bytes;
        }
        panel
    };
    std::iter::once(all).chain((0..workers).map(one)).collect()
}

fn draw(area: &Area<'_>, panel: &Panel, end: f64) -> DrawResult<()> {
    let most = |(_, held): &(f64, MemorySample)| held.reserved_bytes.max(panel.domain_bytes + held.live_bytes);
    let most_bytes = panel.steps.iter().map(most).max().unwrap_or(0);
    let (unit_bytes, unit) = unit(most_bytes);
    let top = (most_bytes as f64 / unit_bytes).max(1e-3) * 1.25;
    let axes = Axes { end, top, unit, format: |at| format!("{at:.1} s"), x_label: None };
    let mut chart = charts::panel(area, &panel.caption, &axes)?;
    let baseline = panel.domain_bytes as f64 / unit_bytes;
    let steps = |bytes: &dyn Fn(&MemorySample) -> u64| {
        let mut points = steps(baseline, panel.steps.iter().map(|(at, held)| (*at, bytes(held) as f64 / unit_bytes)));
        points.push((end, points.last().map_or(baseline, |last| last.1)));
        points
    };
    let live = steps(&|held| panel.domain_bytes + held.live_bytes);
    chart.draw_series(AreaSeries::new(live, baseline, LIVE.mix(0.5)).border_style(LIVE))?;
    if panel.domain_bytes > 0 {
        chart.draw_series(AreaSeries::new([(0.0, baseline), (end, baseline)], 0.0, DOMAIN.mix(0.5)))?;
    }
    chart.draw_series(LineSeries::new(steps(&|held| held.reserved_bytes), RESERVED.stroke_width(1)))?;
    for Marker { at, live_bytes, what } in &panel.marks {
        let height = *live_bytes as f64 / unit_bytes;
        match what {
            MarkerKind::Grown => chart.draw_series([TriangleMarker::new((*at, height), 5, GROWN.filled())])?,
            MarkerKind::Released => chart.draw_series([TriangleMarker::new((*at, height), -5, RELEASED.filled())])?,
            MarkerKind::Killed(worker) => {
                chart.draw_series([PathElement::new([(*at, 0.0), (*at, top)], KILLED.stroke_width(2))])?;
                let said =
                    Text::new(format!("worker {worker} is killed"), (*at, top), (FONT, 11).into_font().color(&KILLED));
                chart.draw_series([said])?
            }
        };
    }
    Ok(())
}
