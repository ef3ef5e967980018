// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Plots as SVG: stacked bars, stacked areas, lines, lifetimes.
//!
//! Text and axes take their colours from the page (`currentColor`), so that the
//! plots suit a light and a dark one; a file of its own gets them from
//! [`standalone`].

use std::fmt::Write;

/// A colour and what it stands for.
#[derive(Clone, Copy, Debug)]
pub struct Series {
    /// The word in the legend.
    pub name: &'static str,
    /// Its colour, as `#rrggbb`.
    pub colour: &'static str,
}

/// A bar of [`bars`].
#[derive(Clone, Debug)]
pub struct Bar {
    /// Left of the bar.
    pub label: String,
    /// Right of the bar.
    pub note: String,
    /// Length of each part, one a series.
    pub parts: Vec<f64>,
}

/// A bar of [`lifetimes`]: its colour, and parts with their opacity.
#[derive(Clone, Debug)]
pub struct Life {
    /// What it is, shown on hovering.
    pub title: String,
    /// The colour of its kind.
    pub colour: &'static str,
    /// From, to, and whether it is in use there.
    pub parts: Vec<(f64, f64, bool)>,
}

/// A group of bars of [`grouped`].
#[derive(Clone, Debug)]
pub struct Group {
    /// What stands below the bars.
    pub label: String,
    /// A bar a series: its height, and a mark to compare it with.
    pub bars: Vec<(Option<f64>, Option<f64>)>,
}

const WIDTH: f64 = 920.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 16.0;

/// Text as it may stand in XML.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// `svg`, fit to be a file of its own.
pub fn standalone(svg: &str) -> String {
    svg.replacen("<svg ", "<svg style=\"color:#222;background:#fff\" ", 1)
}

/// Round numbers from 0 to `max`, about `count` of them.
fn ticks(max: f64, count: f64) -> Vec<f64> {
    if max <= 0.0 || !max.is_finite() {
        return vec![0.0];
    }
    let raw = max / count;
    let power = 10f64.powf(raw.log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0, 10.0]
        .into_iter()
        .map(|m| m * power)
        .find(|s| *s >= raw)
        .unwrap_or(power * 10.0);
    let count = (max / step) as usize;
    (0..=count).map(|i| i as f64 * step).collect()
}

/// A number with as many digits as it needs.
fn short(v: f64) -> String {
    if v == 0.0 {
        "0".into()
    } else if v.abs() >= 100.0 {
        format!("{v:.0}")
    } else {
        let text = format!("{v:.3}");
        text.trim_end_matches('0').trim_end_matches('.').into()
    }
}

/// Styles: what stands behind the data, what explains it, and where texts are held.
const GRID: &str = "stroke=\"currentColor\" opacity=\".12\"";
const DIM: &str = "opacity=\".7\"";
const DIM_MIDDLE: &str = "text-anchor=\"middle\" opacity=\".7\"";
const DIM_END: &str = "text-anchor=\"end\" opacity=\".7\"";
const MIDDLE: &str = "text-anchor=\"middle\"";
const END: &str = "text-anchor=\"end\"";

fn fill(colour: &str) -> String {
    format!("fill=\"{colour}\"")
}

/// A plot while it is drawn.
struct Canvas(String);

impl Canvas {
    fn new(height: f64, title: &str) -> Self {
        Self(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" font-family=\"system-ui,sans-serif\" font-size=\"12\" fill=\"currentColor\"><title>{}</title>",
            escape(title)
        ))
    }

    fn end(self) -> String {
        self.0 + "</svg>"
    }

    /// `element` with what it says when it is pointed at, if that is anything.
    fn put(&mut self, name: &str, element: std::fmt::Arguments<'_>, style: &str, title: &str) {
        let _ = write!(self.0, "<{name} {element} {style}");
        self.0 += &match title {
            "" => "/>".into(),
            _ => format!("><title>{}</title></{name}>", escape(title)),
        };
    }

    fn rect(&mut self, [x, y, width, height]: [f64; 4], style: &str, title: &str) {
        let element =
            format_args!("x=\"{x:.2}\" y=\"{y:.1}\" width=\"{width:.2}\" height=\"{height:.1}\"");
        self.put("rect", element, style, title);
    }

    fn path(&mut self, path: &str, style: &str, title: &str) {
        self.put("path", format_args!("d=\"{path}\""), style, title);
    }

    fn line(&mut self, [x1, x2]: [f64; 2], [y1, y2]: [f64; 2], style: &str) {
        let element = format_args!("x1=\"{x1:.1}\" x2=\"{x2:.1}\" y1=\"{y1:.1}\" y2=\"{y2:.1}\"");
        self.put("line", element, style, "");
    }

    fn text(&mut self, x: f64, y: f64, style: &str, text: &str) {
        let text = escape(text);
        let _ = write!(
            self.0,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" {style}>{text}</text>"
        );
    }

    /// Names and colours, from `x` on in one line.
    fn legend<'a>(&mut self, mut x: f64, series: impl Iterator<Item = (&'a str, &'a str)>) {
        for (name, colour) in series {
            let style = format!("rx=\"2\" {}", fill(colour));
            self.rect([x, 5.0, 10.0, 10.0], &style, "");
            self.text(x + 14.0, 14.0, "", name);
            x += 32.0 + 7.0 * name.len() as f64;
        }
    }
}

/// Names and colours of `series`.
fn names(series: &[Series]) -> impl Iterator<Item = (&'static str, &'static str)> + '_ {
    series.iter().map(|s| (s.name, s.colour))
}

/// Horizontal bars, each of stacked parts; `marks` are vertical lines with a
/// label.
pub fn bars(
    title: &str,
    unit: &str,
    series: &[Series],
    data: &[Bar],
    marks: &[(f64, &str)],
) -> String {
    let (row, top, left, right) = (24.0, 48.0, 130.0, 150.0);
    let height = top + row * data.len() as f64 + 30.0;
    let sums = data.iter().map(|b| b.parts.iter().sum::<f64>());
    let max = sums.chain(marks.iter().map(|m| m.0));
    let max = max.fold(0.0, f64::max).max(1e-12);
    let x = |v: f64| left + v / max * (WIDTH - left - right);
    let mut c = Canvas::new(height, title);
    c.legend(LEFT, names(series));
    for v in ticks(max, 6.0) {
        c.line([x(v); 2], [top, height - 26.0], GRID);
        let label = format!("{} {unit}", short(v));
        c.text(x(v), height - 10.0, DIM_MIDDLE, &label);
    }
    for (i, b) in data.iter().enumerate() {
        let y = top + row * i as f64;
        c.text(left - 8.0, y + 15.0, END, &b.label);
        let mut at = 0.0;
        for (part, s) in b.parts.iter().zip(series) {
            if *part > 0.0 {
                let width = (x(at + part) - x(at)).max(0.5);
                let title = format!("{}: {} {} {unit}", b.label, s.name, short(*part));
                c.rect([x(at), y + 3.0, width, 16.0], &fill(s.colour), &title);
            }
            at += part;
        }
        c.text(x(at) + 6.0, y + 15.0, "opacity=\".85\"", &b.note);
    }
    for (v, label) in marks {
        let dashed = "stroke=\"currentColor\" stroke-dasharray=\"4 3\"";
        c.line([x(*v); 2], [top - 4.0, height - 26.0], dashed);
        c.text(x(*v), top - 8.0, MIDDLE, label);
    }
    c.end()
}

/// Upright bars in groups, each with a mark where another number stands. `series`
/// are names and colours; `log` draws a logarithmic scale.
pub fn grouped(
    title: &str,
    unit: &str,
    series: &[(&str, &str)],
    groups: &[Group],
    log: bool,
) -> String {
    let values = || {
        let all = groups.iter().flat_map(|g| &g.bars);
        all.flat_map(|(a, b)| [*a, *b]).flatten()
    };
    let max = values().fold(0.0, f64::max).max(1e-12);
    let min = values().fold(0.0, f64::min);
    let least = values().filter(|v| *v > 0.0).fold(max, f64::min);
    let (low, high) = if log {
        (least.log10().floor(), (max * 1.05).log10())
    } else {
        (min * 1.05, max * 1.05)
    };
    let (top, bottom) = (52.0, 252.0);
    let y = |v: f64| {
        let v = if log { v.max(least / 10.0).log10() } else { v };
        bottom - ((v - low) / (high - low).max(1e-12)).clamp(0.0, 1.0) * (bottom - top)
    };
    let long = groups.iter().map(|g| g.label.len()).max().unwrap_or(0) as f64;
    let slanted = long * 6.6 > (WIDTH - LEFT - RIGHT) / groups.len().max(1) as f64;
    // A slanted label ends below its group, and must not begin left of the plot.
    let left = match groups.first() {
        Some(first) if slanted => LEFT.max(first.label.len() as f64 * 6.6 * 0.82 - 8.0),
        _ => LEFT,
    };
    let room = (WIDTH - left - RIGHT) / groups.len().max(1) as f64;
    let below = if slanted { 24.0 + long * 4.0 } else { 26.0 };
    let mut c = Canvas::new(bottom + below, title);
    c.legend(left, series.iter().copied());
    c.text(4.0, top - 14.0, DIM, unit);
    let marks: Vec<f64> = if log {
        (low as i32..=high as i32).map(|p| 10f64.powi(p)).collect()
    } else {
        let below = ticks(-min, 4.0).into_iter().skip(1).map(|v| -v);
        below.chain(ticks(max, 4.0)).collect()
    };
    for v in marks {
        c.line([left, WIDTH - RIGHT], [y(v); 2], GRID);
        c.text(left - 6.0, y(v) + 4.0, DIM_END, &short(v));
    }
    let zero = if log { bottom } else { y(0.0) };
    for (i, g) in groups.iter().enumerate() {
        let start = left + i as f64 * room + room * 0.08;
        let width = room * 0.84 / series.len().max(1) as f64;
        for (j, ((ours, mark), (name, colour))) in g.bars.iter().zip(series).enumerate() {
            let x = start + j as f64 * width;
            if let Some(v) = ours {
                let (a, b) = (y(*v).min(zero), y(*v).max(zero));
                let title = format!("{}, {name}: {}", g.label, short(*v));
                let bar = [x, a, width * 0.9, (b - a).max(0.5)];
                c.rect(bar, &fill(colour), &title);
            }
            if let Some(v) = mark {
                let title = format!("{}, {name}, published: {}", g.label, short(*v));
                let mark = [x - width * 0.02, y(*v) - 1.2, width * 0.94, 2.4];
                c.rect(mark, &fill("currentColor"), &title);
            }
        }
        let (middle, at) = (left + (i as f64 + 0.5) * room, bottom + 16.0);
        let turned = format!("{END} transform=\"rotate(-35 {middle:.1} {at:.1})\"");
        let style = if slanted { &turned } else { MIDDLE };
        c.text(middle, at, style, &g.label);
    }
    c.end()
}

/// The frame of a plot over time.
struct Frame {
    height: f64,
    top: f64,
    x_max: f64,
    y_max: f64,
}

impl Frame {
    /// Of `height`, up to the time `x_max`.
    fn new(height: f64, x_max: f64, y_max: f64) -> Self {
        Self {
            height,
            top: 42.0,
            x_max: x_max.max(1e-12),
            y_max,
        }
    }

    fn canvas(&self, title: &str, series: &[Series]) -> Canvas {
        let mut c = Canvas::new(self.height, title);
        c.legend(LEFT, names(series));
        c
    }

    fn x(&self, v: f64) -> f64 {
        LEFT + v / self.x_max * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, v: f64) -> f64 {
        let bottom = self.height - 24.0;
        bottom - v / self.y_max * (bottom - self.top)
    }

    /// The axis of time.
    fn seconds(&self, c: &mut Canvas) {
        for v in ticks(self.x_max, 8.0) {
            let label = format!("{} s", short(v));
            c.text(self.x(v), self.height - 8.0, DIM_MIDDLE, &label);
        }
    }
}

/// Areas stacked over time: for each time, a value a series. `line` is a limit
/// with its label.
pub fn areas(
    title: &str,
    y_unit: &str,
    series: &[Series],
    times: &[f64],
    values: &[Vec<f64>],
    line: Option<(f64, &str)>,
) -> String {
    let sums = values.iter().map(|v| v.iter().sum::<f64>());
    let y_max = sums.chain(line.map(|l| l.0)).fold(0.0, f64::max).max(1e-12) * 1.08;
    let f = Frame::new(210.0, times.last().copied().unwrap_or(1.0), y_max);
    let mut c = f.canvas(title, series);
    let mut base = vec![0.0; times.len()];
    for (i, s) in series.iter().enumerate() {
        let top: Vec<f64> = base.iter().zip(values).map(|(b, v)| b + v[i]).collect();
        if top == base {
            continue;
        }
        let there = times.iter().zip(&top);
        let back = times.iter().zip(&base).rev();
        let points = there.chain(back);
        let points = points.map(|(t, v)| format!("{:.1} {:.1}", f.x(*t), f.y(*v)));
        let path = format!("M{}Z", points.collect::<Vec<_>>().join("L"));
        c.path(&path, &fill(s.colour), s.name);
        base = top;
    }
    for v in ticks(y_max, 4.0) {
        c.line([LEFT, WIDTH - RIGHT], [f.y(v); 2], GRID);
        c.text(LEFT - 6.0, f.y(v) + 4.0, DIM_END, &short(v));
    }
    f.seconds(&mut c);
    c.text(4.0, f.top - 6.0, DIM, y_unit);
    if let Some((v, label)) = line {
        let dashed = "stroke=\"currentColor\" stroke-dasharray=\"6 4\"";
        c.line([LEFT, WIDTH - RIGHT], [f.y(v); 2], dashed);
        c.text(WIDTH - RIGHT, f.y(v) - 4.0, END, label);
    }
    c.end()
}

/// Bars of equal width over time, up for the first half of `series`, down for the
/// second: traffic to and from the GPU.
pub fn mirror(
    title: &str,
    y_unit: &str,
    series: &[Series],
    x_max: f64,
    values: &[Vec<f64>],
    limit: f64,
) -> String {
    let f = Frame::new(210.0, x_max, 1.0);
    let half = (f.height - 24.0 - f.top) / 2.0;
    let middle = f.top + half;
    let scale = half / (limit * 1.05).max(1e-12);
    let width = (WIDTH - LEFT - RIGHT) / values.len().max(1) as f64;
    let mut c = f.canvas(title, series);
    for (s, entry) in series.iter().enumerate() {
        let (below, sign) = if s < series.len() / 2 {
            (0, -1.0)
        } else {
            (series.len() / 2, 1.0)
        };
        let mut path = String::new();
        for (i, v) in values.iter().enumerate() {
            if v[s] <= limit * 0.002 {
                continue;
            }
            let start: f64 = v[below..s].iter().sum();
            let (from, to) = (start * scale, ((start + v[s]) * scale).min(half));
            let (a, b) = (middle + sign * from, middle + sign * to);
            let x = LEFT + i as f64 * width;
            let _ = write!(path, "M{x:.2} {a:.1}V{b:.1}H{:.2}V{a:.1}Z", x + width);
        }
        let style = fill(entry.colour) + " shape-rendering=\"crispEdges\"";
        c.path(&path, &style, entry.name);
    }
    for v in ticks(limit, 2.0) {
        let signs: &[f64] = if v == 0.0 { &[1.0] } else { &[1.0, -1.0] };
        for sign in signs {
            let y = middle - sign * v * scale;
            let grid = "stroke=\"currentColor\" opacity=\".15\"";
            c.line([LEFT, WIDTH - RIGHT], [y; 2], grid);
            c.text(LEFT - 6.0, y + 4.0, DIM_END, &short(v));
        }
    }
    f.seconds(&mut c);
    let unit = format!("{y_unit}, to GPU up, from GPU down");
    c.text(4.0, f.top - 6.0, DIM, &unit);
    c.end()
}

/// A strip: how dark each part of the time is, 0 to 1.
pub fn strip(title: &str, label: &str, colour: &str, values: &[f64]) -> String {
    let all = WIDTH - LEFT - RIGHT;
    let width = all / values.len().max(1) as f64;
    let mut c = Canvas::new(24.0, title);
    c.text(LEFT - 6.0, 16.0, DIM_END, label);
    let ground = "fill=\"currentColor\" opacity=\".06\"";
    c.rect([LEFT, 4.0, all, 16.0], ground, "");
    for (i, v) in values.iter().enumerate().filter(|(_, v)| **v > 0.004) {
        let part = [LEFT + i as f64 * width, 4.0, width + 0.05, 16.0];
        let shade = format!(
            "{} opacity=\"{:.2}\" shape-rendering=\"crispEdges\"",
            fill(colour),
            v.min(1.0)
        );
        c.rect(part, &shade, "");
    }
    c.end()
}

/// Lives of tensors over time, a line each.
pub fn lifetimes(title: &str, series: &[Series], x_max: f64, lives: &[Life]) -> String {
    let row = (420.0 / lives.len().max(1) as f64).clamp(1.5, 8.0);
    let f = Frame::new(42.0 + row * lives.len() as f64 + 28.0, x_max, 1.0);
    let mut c = f.canvas(title, series);
    for (i, life) in lives.iter().enumerate() {
        let y = f.top + row * i as f64;
        let _ = write!(
            c.0,
            "<g {}><title>{}</title>",
            fill(life.colour),
            escape(&life.title)
        );
        for &(from, to, used) in &life.parts {
            let width = (f.x(to) - f.x(from)).max(0.6);
            let style = if used { "" } else { "opacity=\".25\"" };
            c.rect([f.x(from), y, width, row * 0.85], style, "");
        }
        c.0 += "</g>";
    }
    f.seconds(&mut c);
    c.end()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_cover() {
        assert_eq!(ticks(10.0, 5.0), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(ticks(0.0, 5.0), [0.0]);
        assert!(ticks(0.37, 6.0).len() >= 4);
        assert_eq!(short(2.5), "2.5");
        assert_eq!(short(0.05), "0.05");
        assert_eq!(short(1234.5), "1234");
    }

    #[test]
    fn names_cannot_break_the_page() {
        let bar = Bar {
            label: "<script>".into(),
            note: "\"&".into(),
            parts: vec![1.0],
        };
        let series = Series {
            name: "a",
            colour: "#000000",
        };
        let svg = bars("t", "s", &[series], &[bar], &[]);
        assert!(!svg.contains("<script>") && svg.contains("&lt;script&gt;"));
    }
}
