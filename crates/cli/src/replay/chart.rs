//! The chart of a replay: live and reserved memory over the operations of the first pass, one panel per allocator.
//!
//! All panels have the same scale, so that they can be compared.

use plotters::chart::SeriesLabelPosition;
use plotters::element::Rectangle;
use plotters::prelude::{Color, IntoFont, RGBColor, WHITE};
use plotters::series::{AreaSeries, LineSeries};

use super::player::{AllocatorResult, Sample};
use super::report::{Report, ratio};
use crate::output::charts::{self, Area, Axes, DrawResult, FONT, INK, LIVE, RESERVED};
use crate::output::size;
use crate::output::text::{count, format_ns};

const PANEL_HEIGHT: u32 = 270;

/// The scale that all panels share.
#[derive(Clone, Copy)]
struct Scale {
    operations: usize,
    /// The top of the panels, in the unit.
    top: f64,
    unit_bytes: f64,
    unit: &'static str,
}

impl Scale {
    fn of(report: &Report) -> Self {
        let samples = || report.allocators.iter().flat_map(|played| &played.samples);
        let most_bytes = samples().map(|sample| sample.live_bytes.max(sample.reserved_bytes)).max().unwrap_or(0);
        let operations = samples().map(|sample| sample.operations).max().unwrap_or(0).max(1);
        let (unit_bytes, unit) = size::unit(most_bytes);
        Self { operations, top: (most_bytes as f64 / unit_bytes).max(1.0) * 1.08, unit_bytes, unit }
    }

    /// Returns the samples as steps from zero.
    fn steps(self, played: &AllocatorResult, bytes: impl Fn(&Sample) -> u64) -> Vec<(f64, f64)> {
        let point = |sample: &Sample| (sample.operations as f64, bytes(sample) as f64 / self.unit_bytes);
        charts::steps(0.0, std::iter::once((0.0, 0.0)).chain(played.samples.iter().map(point)))
    }
}

/// Returns the chart as SVG text.
pub(super) fn svg(report: &Report) -> DrawResult<String> {
    let (title, sums) = (format!("Live and reserved memory: {}", report.file), report.sums);
    let below = format!(
        "{}: {}, {}; first pass on {}",
        report.kind,
        count(sums.allocations, "allocation"),
        count(sums.streams.into(), "stream"),
        report.device
    );
    let scale = Scale::of(report);
    charts::chart([&title, &below], &report.allocators, PANEL_HEIGHT, |area, played| panel(area, played, scale))
}

fn panel(area: &Area<'_>, played: &AllocatorResult, scale: Scale) -> DrawResult<()> {
    let Scale { operations, top, unit, .. } = scale;
    let (tell, along) = (|operations| format!("{operations:.0}"), Some("operations of the log"));
    let axes = Axes { end: operations as f64, top, unit, format: tell, x_label: along };
    let mut chart = charts::panel(area, &caption(played), &axes)?;
    let live = scale.steps(played, |sample| sample.live_bytes);
    let box_of = |colour: RGBColor| move |(x, y)| Rectangle::new([(x, y - 4), (x + 14, y + 4)], colour.filled());
    chart
        .draw_series(AreaSeries::new(live, 0.0, LIVE.mix(0.45)).border_style(LIVE))?
        .label("live")
        .legend(box_of(LIVE));
    let reserved = scale.steps(played, |sample| sample.reserved_bytes);
    chart.draw_series(LineSeries::new(reserved, RESERVED.stroke_width(2)))?.label("reserved").legend(box_of(RESERVED));
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerRight)
        .background_style(WHITE.mix(0.85))
        .border_style(INK.mix(0.3))
        .label_font((FONT, 12).into_font().color(&INK))
        .draw()
}

fn caption(played: &AllocatorResult) -> String {
    let ratio = ratio(played).map_or_else(String::new, |ratio| format!(" ({ratio:.3} of peak live)"));
    let refused = if played.refused == 0 { String::new() } else { format!(", {} failed", played.refused) };
    let (name, each) = (played.allocator, format_ns(played.later_ns.unwrap_or(played.first_ns)));
    format!("{name}: {each} per operation, {} reserved{ratio}{refused}", size::format(played.peak_reserved_bytes))
}
