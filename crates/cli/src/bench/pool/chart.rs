//! The measurements as bar charts: time, memory and threads, of the library and of the driver.
//!
//! Pure: a report in, SVG text out.

use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::report::{Calls, Report, Row, Target};
use crate::output::text::format_ns;

const SIZE: (u32, u32) = (1280, 900);
const FONT: &str = "sans-serif";

const FREEHOLD: RGBColor = RGBColor(0, 122, 117);
const ASYNC: RGBColor = RGBColor(226, 160, 63);
const DRIVER: RGBColor = RGBColor(165, 165, 172);
const TARGET: RGBColor = RGBColor(190, 30, 45);
const TEXT: RGBColor = RGBColor(40, 40, 45);

/// The bars of a group, left to right, and their colours.
const SERIES: [(&str, RGBColor); 3] =
    [("freehold", FREEHOLD), ("cuMemAllocAsync, cuMemFreeAsync", ASYNC), ("cuMemAlloc, cuMemFree", DRIVER)];

/// Groups of bars under one title.
struct Panel {
    title: String,
    /// The label of the value axis.
    axis: &'static str,
    format: fn(f64) -> String,
    groups: Vec<Group>,
}

/// The bars of one row of the report, and the line of its target.
struct Group {
    name: &'static str,
    values: [Option<f64>; 3],
    target: Option<f64>,
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;

/// The rows that are drawn, and their short names.
const TIMES: [(&str, &str); 8] = [
    ("pair-512", "pair of 512 B"),
    ("pair-64k", "64 KiB"),
    ("pair-2m", "2 MiB"),
    ("pair-20m", "20 MiB"),
    ("random-1m", "random, to 1 MiB"),
    ("random-64m", "random, to 64 MiB"),
    ("transformer", "transformer"),
    ("caches", "caches"),
];
const RESERVED: [(&str, &str); 4] = [
    ("random-1m-reserved", "random, to 1 MiB"),
    ("random-64m-reserved", "random, to 64 MiB"),
    ("transformer-reserved", "transformer"),
    ("caches-reserved", "caches"),
];
const RATES: [(&str, &str); 4] = [
    ("threads-1", "1 thread"),
    ("threads-16", "16, a stream each"),
    ("threads-shared", "16, one stream"),
    ("threads-handed", "16, freed by others"),
];

pub(super) fn draw(report: &Report) -> String {
    let mut text = String::new();
    draw_all(report, &mut text).expect("drawing to memory cannot fail");
    text
}

fn draw_all(report: &Report, text: &mut String) -> Drawn {
    let root = SVGBackend::with_string(text, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let title = format!("Allocation on {}, driver {}", report.device, report.driver);
    root.draw(&Text::new(title, (24, 16), (FONT, 26).into_font().color(&TEXT)))?;
    legend(&root)?;
    let (_, panels) = root.split_vertically(84);
    let (upper, lower) = panels.split_vertically(430);
    let (left, right) = lower.split_horizontally(SIZE.0 / 2);
    let times = Panel {
        title: "Time of a pair (one thread), and of an operation of a workload's second pass".to_owned(),
        axis: "nanoseconds, logarithmic",
        format: format_ns,
        groups: groups(report, &TIMES, |ns| ns),
    };
    let reserved = Panel {
        title: "Memory reserved beyond the peak of what was live".to_owned(),
        axis: "per cent of the peak",
        format: |percent| format!("{percent:.1} %"),
        groups: groups(report, &RESERVED, |ratio| (ratio - 1.0).max(0.0) * 100.0),
    };
    let processors = report.processors;
    let rates = Panel {
        title: format!("Pairs of threads, mixed sizes to 64 KiB ({processors} processors)"),
        axis: "million pairs a second, logarithmic",
        format: |millions| if millions < 10.0 { format!("{millions:.2}") } else { format!("{millions:.0}") },
        groups: groups(report, &RATES, |rate| rate / 1e6),
    };
    logarithmic(&upper, &times)?;
    linear(&left, &reserved)?;
    logarithmic(&right, &rates)?;
    root.present()
}

/// Returns the rows with these ids, with values scaled by `scale`.
fn groups(report: &Report, names: &[(&str, &'static str)], scale: fn(f64) -> f64) -> Vec<Group> {
    let group = |&(id, name): &(&str, &'static str)| {
        let row: &Row = report.rows.iter().find(|row| row.id == id)?;
        let values = [Some(row.ours.median), row.median_of(Calls::Ordered), row.median_of(Calls::Plain)];
        let target = row.target.map(|(Target::AtMost(value) | Target::AtLeast(value))| scale(value));
        Some(Group { name, values: values.map(|value| value.map(scale)), target })
    };
    names.iter().filter_map(group).collect()
}

fn legend(root: &Area<'_>) -> Drawn {
    let style = (FONT, 15).into_font().color(&TEXT);
    let mut x = 24;
    for (name, colour) in SERIES {
        root.draw(&Rectangle::new([(x, 56), (x + 14, 70)], colour.filled()))?;
        root.draw(&Text::new(name, (x + 20, 56), style.clone()))?;
        x += 60 + 8 * name.len() as i32;
    }
    root.draw(&PathElement::new(vec![(x, 63), (x + 18, 63)], TARGET.stroke_width(3)))?;
    root.draw(&Text::new("target of freehold", (x + 24, 56), style))
}

/// Returns all values of a panel, including targets.
fn values(panel: &Panel) -> impl Iterator<Item = f64> {
    panel.groups.iter().flat_map(|group| group.values.into_iter().flatten().chain(group.target))
}

fn linear(area: &Area<'_>, panel: &Panel) -> Drawn {
    let most = values(panel).fold(1.0, f64::max) * 1.15;
    bars(area, panel, 0.0, 0.0..most)
}

fn logarithmic(area: &Area<'_>, panel: &Panel) -> Drawn {
    let least = values(panel).fold(f64::INFINITY, f64::min).max(1e-3);
    let most = values(panel).fold(least, f64::max);
    // The smallest bar must be visible too.
    let (floor, ceiling) = (10_f64.powf((least * 0.7).log10().floor()), most * 2.5);
    bars(area, panel, floor, (floor..ceiling).log_scale())
}

/// Draws a panel's bars from `floor` upwards.
fn bars<Y>(area: &Area<'_>, panel: &Panel, floor: f64, y: Y) -> Drawn
where
    Y: AsRangedCoord<Value = f64>,
    Y::CoordDescType: ValueFormatter<f64>,
{
    let mut chart = ChartBuilder::on(area)
        .caption(&panel.title, (FONT, 18).into_font().color(&TEXT))
        .margin(12)
        .y_label_area_size(76)
        .x_label_area_size(26)
        .build_cartesian_2d(0.0..panel.groups.len() as f64, y)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .disable_x_axis()
        .light_line_style(TRANSPARENT)
        .y_desc(panel.axis)
        .y_label_formatter(&|value| value.to_string())
        .axis_desc_style((FONT, 14).into_font().color(&TEXT))
        .y_label_style((FONT, 13).into_font().color(&TEXT))
        .draw()?;
    let above = (FONT, 12).into_font().color(&TEXT).pos(Pos::new(HPos::Center, VPos::Bottom));
    let below = (FONT, 14).into_font().color(&TEXT).pos(Pos::new(HPos::Center, VPos::Top));
    let plot = chart.plotting_area();
    for (at, group) in (0..).zip(&panel.groups) {
        let at = f64::from(at);
        // As many bars as there are values, centred in the group.
        let bars: Vec<_> =
            group.values.iter().zip(SERIES).filter_map(|(&value, (_, colour))| Some((value?, colour))).collect();
        let width = 0.27;
        let mut left = at + 0.5 - width * bars.len() as f64 / 2.0;
        let ours = (left, left + width);
        for (value, colour) in bars {
            let top = value.max(floor);
            plot.draw(&Rectangle::new([(left + 0.01, floor), (left + width - 0.01, top)], colour.filled()))?;
            let label = Text::new((panel.format)(value), (0, -3), above.clone());
            plot.draw(&(EmptyElement::at((left + width / 2.0, top)) + label))?;
            left += width;
        }
        if let Some(target) = group.target {
            let line = vec![(ours.0 - 0.03, target), (ours.1 + 0.03, target)];
            plot.draw(&PathElement::new(line, TARGET.stroke_width(3)))?;
        }
        let (x, y) = plot.map_coordinate(&(at + 0.5, floor));
        area_text(area, group.name, (x, y + 6), &below)?;
    }
    Ok(())
}

/// Draws text at a position in the whole image.
fn area_text(area: &Area<'_>, text: &str, (x, y): (i32, i32), style: &TextStyle<'_>) -> Drawn {
    let (left, top) = area.get_base_pixel();
    area.draw(&Text::new(text.to_owned(), (x - left, y - top), style.clone()))
}

#[cfg(test)]
mod tests {
    use super::super::report::Unit;
    use super::*;

    fn report() -> Report {
        let ns = |id, ours, [ordered, plain]: [f64; 2], most| {
            Row::new(id, "", Unit::Ns, vec![ours], Some(Target::AtMost(most)))
                .beside(Calls::Ordered, vec![ordered])
                .beside(Calls::Plain, vec![plain])
        };
        let other = |id, unit, ours, ordered, target| {
            Row::new(id, "", unit, vec![ours], Some(target)).beside(Calls::Ordered, vec![ordered])
        };
        let rows = vec![
            ns("pair-512", 21.0, [1143.0, 3900.0], 40.0),
            ns("pair-64k", 22.0, [1143.0, 78_645.0], 40.0),
            ns("pair-20m", 38.0, [1051.0, 84_161.0], 40.0),
            ns("random-1m", 95.0, [1138.0, 12_000.0], 80.0),
            ns("caches", 140.0, [652.0, 70_000.0], 150.0),
            other("random-1m-reserved", Unit::Ratio, 1.031, 1.286, Target::AtMost(1.05)),
            other("caches-reserved", Unit::Ratio, 1.012, 1.14, Target::AtMost(1.03)),
            other("threads-16", Unit::PairsPerS, 212e6, 0.11e6, Target::AtLeast(100e6)),
            other("threads-handed", Unit::PairsPerS, 31e6, 0.1e6, Target::AtLeast(20e6)),
        ];
        let (device, driver, why) = ("NVIDIA H200".to_owned(), "13.0".to_owned(), String::new());
        Report { device, driver, processors: 16, why, rows }
    }

    #[test]
    fn every_bar_is_named_and_labelled_in_its_unit() {
        let drawn = draw(&report());

        assert!(drawn.starts_with("<svg "), "{drawn}");
        for said in [
            "Allocation on NVIDIA H200, driver 13.0",
            "cuMemAllocAsync, cuMemFreeAsync",
            "nanoseconds, logarithmic",
            "pair of 512 B",
            "21.0 ns",
            "84.16 µs",
            "3.1 %",
            "16, freed by others",
            "212",
            "(16 processors)",
        ] {
            assert!(drawn.contains(said), "{said}");
        }
    }

    #[test]
    fn a_row_that_was_not_measured_has_no_bars() {
        assert!(!draw(&report()).contains("transformer"));
    }
}
