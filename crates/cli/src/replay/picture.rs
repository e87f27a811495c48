//! The picture of a replay: live and reserved memory over the operations of the first pass, a panel for each allocator.
//!
//! Panels have the same scales, so that they can be held against each other.

use plotters::chart::{ChartBuilder, LabelAreaPosition};
use plotters::coord::Shift;
use plotters::element::Rectangle;
use plotters::prelude::{
    Color, DrawingArea, DrawingAreaErrorKind, IntoDrawingArea, IntoFont, RGBColor, SVGBackend, WHITE,
};
use plotters::series::{AreaSeries, LineSeries};

use super::play::{Played, Sample};
use super::report::{Report, count, ratio, size, unit};
use crate::bench::report::time;

const WIDTH: u32 = 960;
const TITLE_HEIGHT: u32 = 80;
const PANEL_HEIGHT: u32 = 270;

const LIVE: RGBColor = RGBColor(0x4c, 0x8b, 0xc4);
const RESERVED: RGBColor = RGBColor(0xd9, 0x5f, 0x0e);
const INK: RGBColor = RGBColor(0x30, 0x30, 0x30);
const FONT: &str = "sans-serif";

type Drawn<T> = Result<T, DrawingAreaErrorKind<std::io::Error>>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// The scales that all panels share.
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
        let (unit_bytes, unit) = unit(most_bytes);
        Self { operations, top: (most_bytes as f64 / unit_bytes).max(1.0) * 1.08, unit_bytes, unit }
    }

    /// The samples as steps from nothing: memory is what it was until the next sample.
    fn steps(self, played: &Played, bytes: impl Fn(&Sample) -> u64) -> Vec<(f64, f64)> {
        let mut points = vec![(0.0, 0.0)];
        let mut height = 0.0;
        for sample in &played.samples {
            let at = sample.operations as f64;
            points.push((at, height));
            height = bytes(sample) as f64 / self.unit_bytes;
            points.push((at, height));
        }
        points
    }
}

/// The picture as the text of an SVG file.
pub(super) fn svg(report: &Report) -> Drawn<String> {
    let mut text = String::new();
    let height = TITLE_HEIGHT + PANEL_HEIGHT * report.allocators.len() as u32;
    {
        let root = SVGBackend::with_string(&mut text, (WIDTH, height)).into_drawing_area();
        root.fill(&WHITE)?;
        let (head, body) = root.split_vertically(TITLE_HEIGHT);
        let head = head.margin(10, 0, 0, 0);
        let head =
            head.titled(&format!("Live and reserved memory: {}", report.file), (FONT, 22).into_font().color(&INK))?;
        let sums = report.sums;
        let below = format!(
            "{}: {}, {}; first pass on {}",
            report.kind,
            count(sums.allocations, "allocation"),
            count(sums.streams.into(), "stream"),
            report.device
        );
        head.titled(&below, (FONT, 14).into_font().color(&INK))?;
        let scale = Scale::of(report);
        for (area, played) in body.split_evenly((report.allocators.len(), 1)).iter().zip(&report.allocators) {
            panel(area, played, scale)?;
        }
        root.present()?;
    }
    Ok(text)
}

fn panel(area: &Area<'_>, played: &Played, scale: Scale) -> Drawn<()> {
    let mut chart = ChartBuilder::on(area)
        .caption(caption(played), (FONT, 15).into_font().color(&INK))
        .margin(8)
        .margin_right(24)
        .set_label_area_size(LabelAreaPosition::Left, 70)
        .set_label_area_size(LabelAreaPosition::Bottom, 40)
        .build_cartesian_2d(0.0..scale.operations as f64, 0.0..scale.top)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(WHITE)
        .bold_line_style(INK.mix(0.12))
        .axis_style(INK)
        .label_style((FONT, 12).into_font().color(&INK))
        .x_labels(8)
        .y_labels(6)
        .x_label_formatter(&|operations| format!("{operations:.0}"))
        .y_label_formatter(&|height| format!("{}", (height * 100.0).round() / 100.0))
        .x_desc("operations of the log")
        .y_desc(scale.unit)
        .draw()?;
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
        .position(plotters::chart::SeriesLabelPosition::LowerRight)
        .background_style(WHITE.mix(0.85))
        .border_style(INK.mix(0.3))
        .label_font((FONT, 12).into_font().color(&INK))
        .draw()
}

fn caption(played: &Played) -> String {
    let ratio = ratio(played).map_or_else(String::new, |ratio| format!(" ({ratio:.3} of peak live)"));
    let refused = if played.refused == 0 { String::new() } else { format!(", {} refused", played.refused) };
    let (name, each) = (played.allocator, time(played.later_ns.unwrap_or(played.first_ns)));
    format!("{name}: {each} an operation, {} reserved{ratio}{refused}", size(played.peak_reserved_bytes))
}
