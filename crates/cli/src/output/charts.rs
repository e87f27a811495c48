//! Charts of memory as SVG: a title above panels of the same style.
//!
//! Pure: points in, SVG text out.

use plotters::chart::{ChartBuilder, ChartContext, LabelAreaPosition};
use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::{
    Cartesian2d, Color, DrawingArea, DrawingAreaErrorKind, IntoDrawingArea, IntoFont, RGBColor, SVGBackend, WHITE,
};

const WIDTH: u32 = 960;
const TITLE_HEIGHT: u32 = 70;

pub(crate) const LIVE: RGBColor = RGBColor(0x4c, 0x8b, 0xc4);
pub(crate) const RESERVED: RGBColor = RGBColor(0xd9, 0x5f, 0x0e);
pub(crate) const INK: RGBColor = RGBColor(0x30, 0x30, 0x30);
pub(crate) const FONT: &str = "sans-serif";

pub(crate) type DrawResult<T> = Result<T, DrawingAreaErrorKind<std::io::Error>>;
pub(crate) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// The axes of a panel, both from zero.
pub(crate) struct Axes {
    pub(crate) end: f64,
    /// The largest amount of memory, in the unit.
    pub(crate) top: f64,
    pub(crate) unit: &'static str,
    /// Formats positions on the lower axis, and names that axis if the positions do not.
    pub(crate) format: fn(f64) -> String,
    pub(crate) x_label: Option<&'static str>,
}

/// Returns the SVG text. Calls `draw` once for each panel, in order.
pub(crate) fn chart<T>(
    [title, below]: [&str; 2],
    panels: &[T],
    panel_height: u32,
    draw: impl Fn(&Area<'_>, &T) -> DrawResult<()>,
) -> DrawResult<String> {
    let mut text = String::new();
    {
        let height = TITLE_HEIGHT + panel_height * panels.len() as u32 + 20;
        let root = SVGBackend::with_string(&mut text, (WIDTH, height)).into_drawing_area();
        root.fill(&WHITE)?;
        let (head, body) = root.split_vertically(TITLE_HEIGHT);
        let head = head.margin(10, 0, 0, 0).titled(title, (FONT, 22).into_font().color(&INK))?;
        head.titled(below, (FONT, 13).into_font().color(&INK))?;
        for (area, panel) in body.split_evenly((panels.len(), 1)).iter().zip(panels) {
            draw(area, panel)?;
        }
        root.present()?;
    }
    Ok(text)
}

/// Draws a panel's caption and axes.
pub(crate) fn panel<'a, 'b>(area: &'a Area<'b>, caption: &str, axes: &Axes) -> DrawResult<Chart<'a, 'b>> {
    let mut chart = ChartBuilder::on(area)
        .caption(caption, (FONT, 14).into_font().color(&INK))
        .margin(4)
        .margin_right(24)
        .set_label_area_size(LabelAreaPosition::Left, 66)
        .set_label_area_size(LabelAreaPosition::Bottom, if axes.x_label.is_some() { 40 } else { 30 })
        .build_cartesian_2d(0.0..axes.end, 0.0..axes.top)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(WHITE)
        .bold_line_style(INK.mix(0.12))
        .axis_style(INK)
        .label_style((FONT, 11).into_font().color(&INK))
        .x_labels(8)
        .y_labels(5)
        .x_label_formatter(&|at| (axes.format)(*at))
        .y_label_formatter(&|height| format!("{}", (height * 100.0).round() / 100.0))
        .x_desc(axes.x_label.unwrap_or_default())
        .y_desc(axes.unit)
        .draw()?;
    Ok(chart)
}

/// Converts points to steps: each value holds until the next point.
pub(crate) fn steps(from: f64, points: impl IntoIterator<Item = (f64, f64)>) -> Vec<(f64, f64)> {
    let mut height = from;
    points.into_iter().flat_map(|(at, next)| [(at, std::mem::replace(&mut height, next)), (at, next)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heights_stay_until_the_next_point() {
        assert_eq!(steps(1.0, [(0.0, 2.0), (3.0, 5.0)]), [(0.0, 1.0), (0.0, 2.0), (3.0, 2.0), (3.0, 5.0)]);
        assert_eq!(steps(1.0, []), []);
    }
}
