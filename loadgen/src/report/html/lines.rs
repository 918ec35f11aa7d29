//! Charts with axes, of lines and dots, drawn by plotters.
//!
//! plotters writes colours into the markup. It is given marker colours that stand for classes and are exchanged
//! afterwards, so that style sheets decide what is seen. The canvas is twice the nominal size because plotters rounds
//! to whole units.

use std::ops::Range;

use plotters::coord::Shift;
use plotters::coord::combinators::BindKeyPoints;
use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::prelude::*;

use super::template::escape;

/// Most points a line may have.
pub(super) const MAX_POINTS: usize = 500;

/// Spans of a logarithmic axis up to which labels at 1, 2 and 5 times the powers of ten have room, and such at 1 and 3 times.
const FEW_DECADES: f64 = 100.0;
const MANY_DECADES: f64 = 10_000.0;
/// Radius of a dot.
const DOT: u32 = 9;
const SIZE: (u32, u32) = (1280, 700);
const AXIS: RGBColor = RGBColor(2, 0, 0);
const GRID: RGBColor = RGBColor(2, 0, 1);
const TEXT: RGBColor = RGBColor(2, 0, 2);

/// One line, or the points of a scatter.
#[derive(Default)]
pub(super) struct Line {
    pub(super) colour: usize,
    pub(super) bold: bool,
    pub(super) points: Vec<(f64, f64)>,
    /// Points with a dot.
    pub(super) marks: Vec<(f64, f64)>,
}

/// One axis of a chart.
pub(super) struct Axis<'a> {
    pub(super) label: &'a str,
    pub(super) tick: fn(f64) -> String,
    pub(super) range: Range<f64>,
    pub(super) logarithmic: bool,
}

impl<'a> Axis<'a> {
    /// Shares from 0 to 100 %.
    pub(super) fn shares(label: &'a str) -> Self {
        Self { label, tick: |share| format!("{:.0} %", share * 100.0), range: 0.0..1.0, logarithmic: false }
    }

    /// Where a logarithmic axis has labels: at 1, 2 and 5 times the powers of ten; where these would be too many, at 1 and 3
    /// times, or at the powers themselves. plotters by itself leaves out what is below the first power.
    fn round(&self) -> Vec<f64> {
        let Range { start, end } = self.range;
        let powers = start.log10().floor() as i32..=end.log10().ceil() as i32;
        let steps: &[f64] = match end / start {
            span if span <= FEW_DECADES => &[1.0, 2.0, 5.0],
            span if span <= MANY_DECADES => &[1.0, 3.0],
            _ => &[1.0],
        };
        let all = powers.flat_map(|power| steps.iter().map(move |step| step * 10f64.powi(power)));
        all.filter(|at| (start..=end).contains(at)).collect()
    }
}

/// A chart with axes.
pub(super) struct Chart<'a> {
    /// Unique on the page.
    pub(super) id: String,
    pub(super) title: &'a str,
    pub(super) description: &'a str,
    pub(super) x: Axis<'a>,
    pub(super) y: Axis<'a>,
    /// Heights at which a line runs across.
    pub(super) guides: &'a [f64],
    /// A thin line that is no setting's own.
    pub(super) edge: Vec<(f64, f64)>,
    pub(super) lines: Vec<Line>,
}

impl Chart<'_> {
    /// The chart as markup; what went wrong, in its place, if plotters refuses.
    pub(super) fn svg(&self) -> String {
        let mut drawing = String::new();
        match self.draw(&mut drawing) {
            Ok(()) => self.dress(&drawing),
            Err(error) => format!("<p>This chart could not be drawn: {}</p>", escape(&error)),
        }
    }

    fn draw(&self, to: &mut String) -> Result<(), String> {
        let area = SVGBackend::with_string(to, SIZE).into_drawing_area();
        let (x, y) = (self.x.range.clone(), self.y.range.clone());
        let drawn = match (self.x.logarithmic, self.y.logarithmic) {
            (false, false) => self.plot(&area, x, y),
            (true, false) => self.plot(&area, x.log_scale().with_key_points(self.x.round()), y),
            (false, true) => self.plot(&area, x, y.log_scale().with_key_points(self.y.round())),
            (true, true) => self.plot(
                &area,
                x.log_scale().with_key_points(self.x.round()),
                y.log_scale().with_key_points(self.y.round()),
            ),
        };
        drawn.and_then(|()| area.present()).map_err(|error| error.to_string())
    }

    fn plot<'b, X, Y>(&self, area: &DrawingArea<SVGBackend<'b>, Shift>, x: X, y: Y) -> Drawn<'b>
    where
        X: AsRangedCoord<Value = f64>,
        X::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
        Y: AsRangedCoord<Value = f64>,
        Y::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        let mut chart = ChartBuilder::on(area)
            .margin(10)
            .margin_top(26)
            .margin_right(44)
            .x_label_area_size(104)
            .y_label_area_size(if self.y.logarithmic { 168 } else { 142 })
            .build_cartesian_2d(x, y)?;
        let font = ("sans-serif", 36).into_font().color(&TEXT);
        chart
            .configure_mesh()
            .axis_style(AXIS)
            .bold_line_style(GRID)
            .light_line_style(TRANSPARENT)
            .x_labels(7)
            .y_labels(6)
            .label_style(font.clone())
            .axis_desc_style(font)
            .x_label_formatter(&|x| (self.x.tick)(*x))
            .y_label_formatter(&|y| (self.y.tick)(*y))
            .x_desc(self.x.label)
            .y_desc(self.y.label)
            .draw()?;
        for guide in self.guides {
            let ends = [(self.x.range.start, *guide), (self.x.range.end, *guide)];
            chart.draw_series(LineSeries::new(ends, AXIS))?;
        }
        chart.draw_series(LineSeries::new(self.edge.iter().copied(), AXIS.stroke_width(3)))?;
        for line in &self.lines {
            let style = marker(line.colour).stroke_width(if line.bold { 6 } else { 4 });
            chart.draw_series(LineSeries::new(line.points.iter().copied(), style))?;
            let dot = marker(line.colour).filled();
            chart.draw_series(line.marks.iter().map(|at| Circle::new(*at, DOT, dot)))?;
        }
        Ok(())
    }

    /// Exchanges the marker colours for classes and the opening tag for one with a title and a description.
    fn dress(&self, drawing: &str) -> String {
        let inner = drawing.split_once('>').map_or("", |(_, rest)| rest);
        let mut inner = inner.replace("opacity=\"1\" ", "").replace("font-family=\"sans-serif\" ", "");
        for (colour, class) in [(AXIS, "axis"), (GRID, "grid")] {
            inner = inner.replace(&format!("stroke=\"{}\"", hex(colour)), &format!("class=\"{class}\""));
        }
        inner = inner.replace(&format!("fill=\"{}\"", hex(TEXT)), "class=\"tick\"");
        for line in &self.lines {
            let marker = format!("stroke=\"{}\"", hex(marker(line.colour)));
            inner = inner.replace(&marker, &format!("class=\"s{}\"", line.colour));
            let dot = format!("fill=\"{}\"", hex(self::marker(line.colour)));
            inner = inner.replace(&dot, &format!("class=\"f{}\"", line.colour));
        }
        let (id, width, height) = (&self.id, SIZE.0, SIZE.1);
        format!(
            "<svg class=\"lines\" viewBox=\"0 0 {width} {height}\" role=\"img\" aria-labelledby=\"{id}-t {id}-d\">\
             <title id=\"{id}-t\">{}</title><desc id=\"{id}-d\">{}</desc>{inner}",
            escape(self.title),
            escape(self.description)
        )
    }
}

type Drawn<'b> = Result<(), DrawingAreaErrorKind<<SVGBackend<'b> as DrawingBackend>::ErrorType>>;

fn marker(colour: usize) -> RGBColor {
    RGBColor(1, 0, colour as u8)
}

fn hex(colour: RGBColor) -> String {
    format!("#{:02X}{:02X}{:02X}", colour.0, colour.1, colour.2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_logarithmic_axis_has_labels_from_end_to_end() {
        let axis = |range| Axis { label: "", tick: |at| at.to_string(), range, logarithmic: true }.round();
        assert_eq!(axis(10.3..480.0), [20.0, 50.0, 100.0, 200.0]);
        assert_eq!(axis(0.5..2.0), [0.5, 1.0, 2.0]);
        assert_eq!(axis(0.9..200.0), [1.0, 3.0, 10.0, 30.0, 100.0]);
        assert_eq!(axis(0.9..20_000.0), [1.0, 10.0, 100.0, 1000.0, 10_000.0]);
    }
}
