//! The ground of a chart: scales, grid, axes and lines, as SVG.
//!
//! Colours are classes of the page's style sheet, so that light and dark need no second drawing.

use std::fmt::Write;

use super::words::{digits, escaped, time};

/// Units of the drawing across; the page scales it.
const WIDTH: f64 = 960.0;
const LEFT: f64 = 76.0;
const RIGHT: f64 = 36.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 48.0;

/// How values become places.
#[derive(Debug, Clone, Copy)]
pub enum Scale {
    /// Equal differences are equally far apart.
    Linear(f64, f64),
    /// Equal ratios are equally far apart; both ends are above 0.
    Log(f64, f64),
}

impl Scale {
    /// Where a value is between the ends, 0 to 1.
    fn part(self, value: f64) -> f64 {
        let part = match self {
            Self::Linear(low, high) => (value - low) / (high - low),
            Self::Log(low, high) => (value.max(low) / low).ln() / (high / low).ln(),
        };
        part.clamp(0.0, 1.0)
    }
}

/// One mark of an axis and what stands there.
pub type Tick = (f64, String);

/// A rectangle to draw in.
#[derive(Debug, Clone, Copy)]
pub struct Plot {
    /// Units of the drawing down, names of the axes included.
    pub height: f64,
    /// The axis across.
    pub x: Scale,
    /// The axis up.
    pub y: Scale,
}

impl Plot {
    /// A value's place across.
    pub fn across(&self, value: f64) -> f64 {
        LEFT + self.x.part(value) * (WIDTH - LEFT - RIGHT)
    }

    /// A value's place down.
    pub fn down(&self, value: f64) -> f64 {
        let height = self.height - TOP - BOTTOM;
        TOP + (1.0 - self.y.part(value)) * height
    }

    /// Grid, marks and names of both axes.
    pub fn axes(&self, x: (&[Tick], &str), y: (&[Tick], &str)) -> String {
        let (right, bottom) = (WIDTH - RIGHT, self.height - BOTTOM);
        let mut svg = String::new();
        // Writing to a string cannot fail, here and below.
        for (value, label) in y.0 {
            let at = self.down(*value);
            let _ = write!(
                svg,
                "<line class=\"grid\" x1=\"{LEFT}\" y1=\"{at:.1}\" x2=\"{right}\" y2=\"{at:.1}\"/>\
                 <text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 10.0,
                at + 4.5,
                escaped(label)
            );
        }
        for (value, label) in x.0 {
            let at = self.across(*value);
            let _ = write!(
                svg,
                "<line class=\"axis\" x1=\"{at:.1}\" y1=\"{bottom}\" x2=\"{at:.1}\" y2=\"{}\"/>\
                 <text class=\"tick\" x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                bottom + 5.0,
                bottom + 20.0,
                escaped(label)
            );
        }
        let _ = write!(
            svg,
            "<line class=\"axis\" x1=\"{LEFT}\" y1=\"{bottom}\" x2=\"{right}\" y2=\"{bottom}\"/>\
             <text class=\"name\" x=\"{}\" y=\"{}\">{}</text>\
             <text class=\"name\" x=\"{right}\" y=\"{}\" text-anchor=\"end\">{}</text>",
            8.0,
            TOP - 16.0,
            escaped(y.1),
            self.height - 8.0,
            escaped(x.1)
        );
        svg
    }

    /// A point, and what is told of it to a pointer.
    pub fn dot(&self, (x, y): (f64, f64), class: &str, told: &str) -> String {
        format!(
            "<circle class=\"dot {class}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"4\">\
             <title>{}</title></circle>",
            self.across(x),
            self.down(y),
            escaped(told)
        )
    }

    /// A limit on the axis up, over the whole width, with its name.
    pub fn limit(&self, value: f64, name: &str) -> String {
        let (right, at) = (WIDTH - RIGHT, self.down(value));
        format!(
            "<path class=\"line limit\" d=\"M{LEFT} {at:.1}L{right} {at:.1}\"/>\
             <text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            LEFT + 6.0,
            at - 6.0,
            escaped(name)
        )
    }

    /// A line through points; its class says how it looks.
    pub fn line(&self, points: &[(f64, f64)], class: &str) -> String {
        let mut path = String::new();
        for (place, (x, y)) in points.iter().enumerate() {
            let command = if place == 0 { 'M' } else { 'L' };
            let _ = write!(path, "{command}{:.1} {:.1}", self.across(*x), self.down(*y));
        }
        format!("<path class=\"line {class}\" d=\"{path}\"/>")
    }

    /// The whole drawing; `label` is for those who do not see it.
    pub fn svg(&self, label: &str, inside: &str) -> String {
        format!(
            "<div class=\"scroll\"><svg viewBox=\"0 0 {WIDTH} {}\" role=\"img\" \
             aria-label=\"{}\">{inside}</svg></div>",
            self.height,
            escaped(label)
        )
    }
}

/// Ends and marks of a linear axis from 0 over all values.
pub fn linear(max: f64) -> (Scale, Vec<Tick>) {
    let max = if max > 0.0 { max } else { 1.0 };
    marked(max, step(max, 4.0))
}

/// The same over things that come whole.
pub fn whole(max: f64) -> (Scale, Vec<Tick>) {
    let max = max.max(1.0);
    marked(max, step(max, 8.0).max(1.0))
}

fn marked(max: f64, step: f64) -> (Scale, Vec<Tick>) {
    let top = (max / step).ceil() * step;
    let count = (top / step).round() as u32;
    let marks = (0..=count).map(|index| f64::from(index) * step);
    let ticks = marks.map(|value| (value, digits(value))).collect();
    (Scale::Linear(0.0, top), ticks)
}

/// The step of marks over a range: 1, 2 or 5 times a power of ten.
fn step(range: f64, marks: f64) -> f64 {
    let rough = range / marks;
    let magnitude = 10_f64.powf(rough.log10().floor());
    let lead = rough / magnitude;
    let lead = [1.0, 2.0, 5.0]
        .into_iter()
        .find(|candidate| lead <= *candidate)
        .unwrap_or(10.0);
    lead * magnitude
}

/// Ends and marks of a logarithmic axis of times in nanoseconds.
pub fn log_times(min_ns: f64, max_ns: f64) -> (Scale, Vec<Tick>) {
    let min = min_ns.max(1.0);
    let max = max_ns.max(min * 1.01);
    let decades = (min.log10().floor() as i32)..=(max.log10().ceil() as i32);
    let marks: Vec<(f64, f64)> = decades
        .flat_map(|decade| [1.0, 2.0, 5.0].map(|lead| (lead, lead * 10_f64.powi(decade))))
        .collect();
    // From the last mark at or below the least to the first at or above the most.
    let low = marks
        .iter()
        .rev()
        .find(|(_, mark)| *mark <= min * 1.000_001);
    let high = marks.iter().find(|(_, mark)| *mark >= max * 0.999_999);
    let (low, high) = (
        low.map_or(min, |mark| mark.1),
        high.map_or(max, |mark| mark.1),
    );
    // Over many decades the ones are enough.
    let is_wide = high / low > 500.0;
    let shown = marks
        .iter()
        .filter(|(lead, mark)| (low..=high).contains(mark) && (!is_wide || *lead < 1.5));
    let ticks = shown.map(|(_, mark)| (*mark, time(*mark))).collect();
    (Scale::Log(low, high), ticks)
}

/// Ends and marks of an axis of seconds since the start.
pub fn seconds(until: f64) -> (Scale, Vec<Tick>, &'static str) {
    let (unit, name) = if until > 7200.0 {
        (3600.0, "hours since the start of measuring")
    } else if until > 180.0 {
        (60.0, "minutes since the start of measuring")
    } else {
        (1.0, "seconds since the start of measuring")
    };
    let until = until.max(1.0);
    let step = step(until / unit, 8.0).max(if unit > 1.0 { 0.0 } else { 1.0 });
    let count = (until / unit / step + 1e-9).floor() as u32;
    let marks = (0..=count).map(|index| f64::from(index) * step);
    let ticks = marks.map(|value| (value * unit, digits(value))).collect();
    (Scale::Linear(0.0, until), ticks, name)
}

/// Names of lines, each with its colour; one line needs none.
pub fn legend(names: &[(&str, &str)]) -> String {
    let mut html = String::from("<p class=\"legend\">");
    for (class, name) in names {
        let _ = write!(
            html,
            "<span><svg viewBox=\"0 0 22 10\" width=\"22\" height=\"10\" aria-hidden=\"true\">\
             <path class=\"line {class}\" d=\"M1 5L21 5\"/></svg>{}</span>",
            escaped(name)
        );
    }
    html.push_str("</p>");
    html
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(ticks: &[Tick]) -> Vec<&str> {
        ticks.iter().map(|(_, label)| label.as_str()).collect()
    }

    #[test]
    fn axes_have_round_marks_around_all_values() {
        let (scale, ticks) = linear(430.0);
        assert_eq!(labels(&ticks), ["0", "200", "400", "600"]);
        assert!((scale.part(600.0) - 1.0).abs() < 1e-9);
        assert_eq!(labels(&linear(0.0).1), ["0", "0.5", "1"]);
        assert_eq!(labels(&whole(2.0).1), ["0", "1", "2"]);
        assert_eq!(labels(&whole(24.0).1), ["0", "5", "10", "15", "20", "25"]);
        let (scale, ticks) = log_times(430e3, 3.1e6);
        assert_eq!(labels(&ticks), ["200 µs", "500 µs", "1 ms", "2 ms", "5 ms"]);
        assert!(scale.part(1.0) < 1e-9);
        let (_, ticks) = log_times(430e3, 3.1e9);
        assert_eq!(labels(&ticks), ["1 ms", "10 ms", "100 ms", "1 s"]);
        assert!(labels(&log_times(0.0, 0.0).1).len() >= 2);
        let (_, ticks, _) = seconds(8.2);
        assert_eq!(labels(&ticks), ["0", "2", "4", "6", "8"]);
        let (_, ticks, name) = seconds(600.0);
        assert_eq!(
            (labels(&ticks), name.starts_with("minutes")),
            (vec!["0", "2", "4", "6", "8", "10"], true)
        );
    }
}
