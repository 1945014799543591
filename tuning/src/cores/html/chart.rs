//! A small chart as SVG: two axes, lines, marks, a legend. Colours are the page's.

use std::fmt::Write;

const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 320.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 16.0;
const BOTTOM: f64 = 44.0;
/// Ticks of an axis, about.
const TICKS: f64 = 5.0;

/// How values lie on an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scale {
    Linear,
    Log,
}

/// An axis.
#[derive(Debug)]
pub(super) struct Axis {
    name: &'static str,
    scale: Scale,
    low: f64,
    high: f64,
}

impl Axis {
    /// From `low` to `high`, which is made larger than that.
    pub(super) fn new(name: &'static str, scale: Scale, low: f64, high: f64) -> Self {
        let low = if scale == Scale::Log {
            low.max(1e-6)
        } else {
            low
        };
        Self {
            name,
            scale,
            low,
            high: high.max(low * 1.01 + 1e-6),
        }
    }

    /// Where a value lies, 0 to 1.
    fn place(&self, value: f64) -> f64 {
        let value = value.clamp(self.low, self.high);
        match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Log => (value / self.low).ln() / (self.high / self.low).ln(),
        }
    }

    /// Round values along it.
    fn ticks(&self) -> Vec<f64> {
        match self.scale {
            Scale::Linear => {
                let rough = (self.high - self.low) / TICKS;
                let unit = 10_f64.powf(rough.log10().floor());
                let step = [1.0, 2.0, 5.0, 10.0]
                    .into_iter()
                    .map(|factor| factor * unit)
                    .find(|step| *step >= rough)
                    .unwrap_or(rough);
                let first = (self.low / step).ceil() as i64;
                let last = (self.high / step).floor() as i64;
                (first..=last).map(|index| index as f64 * step).collect()
            }
            Scale::Log => {
                let (first, last) = (self.low.log10().floor(), self.high.log10().ceil());
                let decades = (first as i32..=last as i32).map(|power| 10_f64.powi(power));
                let factors: &[f64] = if last - first <= 3.0 {
                    &[1.0, 2.0, 5.0]
                } else {
                    &[1.0]
                };
                decades
                    .flat_map(|decade| factors.iter().map(move |factor| factor * decade))
                    .filter(|value| (self.low..=self.high).contains(value))
                    .collect()
            }
        }
    }
}

/// How a point is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    Full,
    Hollow,
}

/// A chart being drawn.
#[derive(Debug)]
pub(super) struct Chart {
    x: Axis,
    y: Axis,
    drawn: String,
    names: Vec<(String, String)>,
}

impl Chart {
    pub(super) fn new(x: Axis, y: Axis) -> Self {
        Self {
            x,
            y,
            drawn: String::new(),
            names: Vec::new(),
        }
    }

    fn at(&self, x: f64, y: f64) -> (f64, f64) {
        (
            LEFT + self.x.place(x) * (WIDTH - LEFT - RIGHT),
            HEIGHT - BOTTOM - self.y.place(y) * (HEIGHT - TOP - BOTTOM),
        )
    }

    /// A line through points; `dashes` as SVG has them, empty for none.
    pub(super) fn line(&mut self, points: &[(f64, f64)], color: &str, width: &str, dashes: &str) {
        if points.len() < 2 {
            return;
        }
        let places: Vec<String> = points
            .iter()
            .map(|(x, y)| self.at(*x, *y))
            .map(|(x, y)| format!("{x:.1},{y:.1}"))
            .collect();
        // Writing to a String cannot fail, here and below.
        let _ = write!(
            self.drawn,
            "<polyline points=\"{}\" fill=\"none\" style=\"stroke:{color}\" stroke-width=\"{width}\" \
             stroke-dasharray=\"{dashes}\"/>",
            places.join(" ")
        );
    }

    /// A point.
    pub(super) fn mark(&mut self, x: f64, y: f64, color: &str, mark: Mark) {
        let (cx, cy) = self.at(x, y);
        let fill = match mark {
            Mark::Full => color,
            Mark::Hollow => "var(--page)",
        };
        let _ = write!(
            self.drawn,
            "<circle cx=\"{cx:.1}\" cy=\"{cy:.1}\" r=\"4\" stroke-width=\"1.5\" \
             style=\"fill:{fill};stroke:{color}\"><title>{}, {}</title></circle>",
            number(x),
            number(y)
        );
    }

    /// A name for a colour.
    pub(super) fn legend(&mut self, name: &str, color: &str) {
        self.names.push((name.to_owned(), color.to_owned()));
    }

    /// The picture; `label` says what it is to those who do not see it.
    pub(super) fn render(self, label: &str) -> String {
        let mut svg =
            format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{label}\">");
        for value in self.x.ticks() {
            let (x, y) = self.at(value, self.y.low);
            let _ = write!(
                svg,
                "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{y:.1}\"/>\
                 <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                y + 16.0,
                number(value)
            );
        }
        for value in self.y.ticks() {
            let (x, y) = self.at(self.x.low, value);
            let _ = write!(
                svg,
                "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                WIDTH - RIGHT,
                x - 6.0,
                y + 4.0,
                number(value)
            );
        }
        let (bottom, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
        let _ = write!(
            svg,
            "<path class=\"axis\" fill=\"none\" d=\"M{LEFT} {TOP}V{bottom}H{right}\"/>\
             <text class=\"name\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\
             <text class=\"name\" transform=\"translate(13 {:.1}) rotate(-90)\" \
             text-anchor=\"middle\">{}</text>{}",
            (LEFT + right) / 2.0,
            HEIGHT - 8.0,
            self.x.name,
            (TOP + bottom) / 2.0,
            self.y.name,
            self.drawn
        );
        for (index, (name, color)) in self.names.iter().enumerate() {
            let y = TOP + 14.0 + index as f64 * 17.0;
            let _ = write!(
                svg,
                "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"4\" style=\"fill:{color}\"/>\
                 <text class=\"name\" x=\"{:.1}\" y=\"{y:.1}\">{name}</text>",
                LEFT + 14.0,
                y - 4.0,
                LEFT + 24.0
            );
        }
        svg + "</svg>\n"
    }
}

/// A number on an axis: thousands as k, millions as M.
fn number(value: f64) -> String {
    let trimmed = |value: f64, unit: &str| {
        let digits = if value.abs() < 10.0 { 2 } else { 1 };
        let text = format!("{value:.digits$}");
        let text = text.trim_end_matches('0').trim_end_matches('.');
        format!("{}{unit}", if text.is_empty() { "0" } else { text })
    };
    match value.abs() {
        size if size >= 1e6 => trimmed(value / 1e6, " M"),
        size if size >= 1e3 => trimmed(value / 1e3, " k"),
        _ => trimmed(value, ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_right() {
        for (value, text) in [
            (0.0, "0"),
            (0.05, "0.05"),
            (20.0, "20"),
            (1_500.0, "1.5 k"),
            (20_000.0, "20 k"),
            (2_500_000.0, "2.5 M"),
        ] {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn ticks_are_round_and_inside() {
        let linear = Axis::new("x", Scale::Linear, 0.0, 23_000.0);
        assert_eq!(linear.ticks(), [0.0, 5e3, 1e4, 1.5e4, 2e4]);
        let log = Axis::new("y", Scale::Log, 0.4, 30.0);
        let ticks = log.ticks();
        assert_eq!(ticks.len(), 6);
        assert!((ticks[0] - 0.5).abs() < 1e-9);
        // Nothing to spread is no division by nothing.
        assert!(!Axis::new("z", Scale::Linear, 0.0, 0.0).place(0.0).is_nan());
    }
}
