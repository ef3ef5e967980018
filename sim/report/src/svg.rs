// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Plots as SVG: stacked bars, stacked areas, lines, lifetimes.
//!
//! Text and axes take their colours from the page (`currentColor`), so that the
//! plots suit a light and a dark one; a file of its own gets them from
//! [`standalone`].

use std::fmt::Write;

/// A colour and what it stands for.
#[derive(Clone, Copy, Debug)]
pub struct Series {
    /// The legend's word.
    pub name: &'static str,
    /// `#rrggbb`.
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
    /// Its colour.
    pub colour: &'static str,
    /// From, to, and whether it is in use there.
    pub parts: Vec<(f64, f64, bool)>,
}

/// A group of bars of [`grouped`].
#[derive(Clone, Debug)]
pub struct Group {
    /// Below the bars.
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
    (0..=(max / step) as usize)
        .map(|i| i as f64 * step)
        .collect()
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

fn open(out: &mut String, height: f64, title: &str) {
    let _ = write!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" font-family=\"system-ui,sans-serif\" font-size=\"12\" fill=\"currentColor\"><title>{}</title>",
        escape(title)
    );
}

/// Legends, from `x` on in one line at `y`.
fn legend(out: &mut String, series: &[Series], y: f64) {
    let mut x = LEFT;
    for s in series {
        let _ = write!(
            out,
            "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"10\" height=\"10\" rx=\"2\" fill=\"{}\"/><text x=\"{:.1}\" y=\"{y:.1}\">{}</text>",
            y - 9.0,
            s.colour,
            x + 14.0,
            escape(s.name)
        );
        x += 32.0 + 7.0 * s.name.len() as f64;
    }
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
    let sum = |b: &Bar| b.parts.iter().sum::<f64>();
    let max = data
        .iter()
        .map(sum)
        .chain(marks.iter().map(|m| m.0))
        .fold(0.0, f64::max)
        .max(1e-12);
    let x = |v: f64| left + v / max * (WIDTH - left - right);
    let mut out = String::new();
    open(&mut out, height, title);
    legend(&mut out, series, 14.0);
    for v in ticks(max, 6.0) {
        let _ = write!(
            out,
            "<line x1=\"{0:.1}\" x2=\"{0:.1}\" y1=\"{top}\" y2=\"{1:.1}\" stroke=\"currentColor\" opacity=\".12\"/><text x=\"{0:.1}\" y=\"{2:.1}\" text-anchor=\"middle\" opacity=\".7\">{3} {unit}</text>",
            x(v),
            height - 26.0,
            height - 10.0,
            short(v)
        );
    }
    for (i, b) in data.iter().enumerate() {
        let y = top + row * i as f64;
        let _ = write!(
            out,
            "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            left - 8.0,
            y + 15.0,
            escape(&b.label)
        );
        let mut at = 0.0;
        for (part, s) in b.parts.iter().zip(series) {
            if *part > 0.0 {
                let _ = write!(
                    out,
                    "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"16\" fill=\"{}\"><title>{}: {} {} {unit}</title></rect>",
                    x(at),
                    y + 3.0,
                    (x(at + part) - x(at)).max(0.5),
                    s.colour,
                    escape(&b.label),
                    escape(s.name),
                    short(*part)
                );
            }
            at += part;
        }
        let _ = write!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" opacity=\".85\">{}</text>",
            x(at) + 6.0,
            y + 15.0,
            escape(&b.note)
        );
    }
    for (v, label) in marks {
        let _ = write!(
            out,
            "<line x1=\"{0:.1}\" x2=\"{0:.1}\" y1=\"{1}\" y2=\"{2:.1}\" stroke=\"currentColor\" stroke-dasharray=\"4 3\"/><text x=\"{0:.1}\" y=\"{3}\" text-anchor=\"middle\">{4}</text>",
            x(*v),
            top - 4.0,
            height - 26.0,
            top - 8.0,
            escape(label)
        );
    }
    out.push_str("</svg>");
    out
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
    let long = groups.iter().map(|g| g.label.len()).max().unwrap_or(0);
    let slanted = long as f64 * 6.6 > (WIDTH - LEFT - RIGHT) / groups.len().max(1) as f64;
    // A slanted label ends below its group, and must not begin left of the plot.
    let left = match groups.first() {
        Some(first) if slanted => LEFT.max(first.label.len() as f64 * 6.6 * 0.82 - 8.0),
        _ => LEFT,
    };
    let room = (WIDTH - left - RIGHT) / groups.len().max(1) as f64;
    let height = bottom
        + if slanted {
            24.0 + long as f64 * 4.0
        } else {
            26.0
        };
    let mut out = String::new();
    open(&mut out, height, title);
    let mut x = left;
    for (name, colour) in series {
        let _ = write!(
            out,
            "<rect x=\"{x:.1}\" y=\"5\" width=\"10\" height=\"10\" rx=\"2\" fill=\"{colour}\"/><text x=\"{:.1}\" y=\"14\">{}</text>",
            x + 14.0,
            escape(name)
        );
        x += 32.0 + 7.0 * name.len() as f64;
    }
    let _ = write!(
        out,
        "<text x=\"4\" y=\"{}\" opacity=\".7\">{}</text>",
        top - 14.0,
        escape(unit)
    );
    let marks: Vec<f64> = if log {
        (low as i32..=high as i32).map(|p| 10f64.powi(p)).collect()
    } else {
        let below = ticks(-min, 4.0).into_iter().skip(1).map(|v| -v);
        below.chain(ticks(max, 4.0)).collect()
    };
    for v in marks {
        let _ = write!(
            out,
            "<line x1=\"{left}\" x2=\"{0}\" y1=\"{1:.1}\" y2=\"{1:.1}\" stroke=\"currentColor\" opacity=\".12\"/><text x=\"{2}\" y=\"{3:.1}\" text-anchor=\"end\" opacity=\".7\">{4}</text>",
            WIDTH - RIGHT,
            y(v),
            left - 6.0,
            y(v) + 4.0,
            short(v)
        );
    }
    let zero = if log { bottom } else { y(0.0) };
    for (i, g) in groups.iter().enumerate() {
        let start = left + i as f64 * room + room * 0.08;
        let width = room * 0.84 / series.len().max(1) as f64;
        for (j, ((ours, mark), (name, colour))) in g.bars.iter().zip(series).enumerate() {
            let x = start + j as f64 * width;
            if let Some(v) = ours {
                let (a, b) = (y(*v).min(zero), y(*v).max(zero));
                let _ = write!(
                    out,
                    "<rect x=\"{x:.1}\" y=\"{a:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{colour}\"><title>{}, {}: {}</title></rect>",
                    width * 0.9,
                    (b - a).max(0.5),
                    escape(&g.label),
                    escape(name),
                    short(*v)
                );
            }
            if let Some(v) = mark {
                let _ = write!(
                    out,
                    "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"2.4\" fill=\"currentColor\"><title>{}, {}, published: {}</title></rect>",
                    x - width * 0.02,
                    y(*v) - 1.2,
                    width * 0.94,
                    escape(&g.label),
                    escape(name),
                    short(*v)
                );
            }
        }
        let (middle, at) = (left + (i as f64 + 0.5) * room, bottom + 16.0);
        let turn = if slanted {
            format!("text-anchor=\"end\" transform=\"rotate(-35 {middle:.1} {at:.1})\"")
        } else {
            "text-anchor=\"middle\"".into()
        };
        let _ = write!(
            out,
            "<text x=\"{middle:.1}\" y=\"{at:.1}\" {turn}>{}</text>",
            escape(&g.label)
        );
    }
    out.push_str("</svg>");
    out
}

/// The frame of a plot over time.
struct Frame {
    height: f64,
    top: f64,
    x_max: f64,
    y_max: f64,
}

impl Frame {
    fn x(&self, v: f64) -> f64 {
        LEFT + v / self.x_max * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, v: f64) -> f64 {
        let bottom = self.height - 24.0;
        bottom - v / self.y_max * (bottom - self.top)
    }

    fn axes(&self, out: &mut String, x_unit: &str, y_unit: &str) {
        for v in ticks(self.y_max, 4.0) {
            let _ = write!(
                out,
                "<line x1=\"{LEFT}\" x2=\"{1}\" y1=\"{0:.1}\" y2=\"{0:.1}\" stroke=\"currentColor\" opacity=\".12\"/><text x=\"{2}\" y=\"{3:.1}\" text-anchor=\"end\" opacity=\".7\">{4}</text>",
                self.y(v),
                WIDTH - RIGHT,
                LEFT - 6.0,
                self.y(v) + 4.0,
                short(v)
            );
        }
        for v in ticks(self.x_max, 8.0) {
            let _ = write!(
                out,
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\" opacity=\".7\">{} {x_unit}</text>",
                self.x(v),
                self.height - 8.0,
                short(v)
            );
        }
        let _ = write!(
            out,
            "<text x=\"4\" y=\"{:.1}\" opacity=\".7\">{y_unit}</text>",
            self.top - 6.0
        );
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
    let f = Frame {
        height: 210.0,
        top: 42.0,
        x_max: times.last().copied().unwrap_or(1.0).max(1e-12),
        y_max,
    };
    let mut out = String::new();
    open(&mut out, f.height, title);
    legend(&mut out, series, 14.0);
    let mut base = vec![0.0; times.len()];
    for (i, s) in series.iter().enumerate() {
        let top: Vec<f64> = base.iter().zip(values).map(|(b, v)| b + v[i]).collect();
        if top == base {
            continue;
        }
        let mut path = String::new();
        for (t, v) in times.iter().zip(&top) {
            let _ = write!(
                path,
                "{}{:.1} {:.1}",
                if path.is_empty() { "M" } else { "L" },
                f.x(*t),
                f.y(*v)
            );
        }
        for (t, v) in times.iter().zip(&base).rev() {
            let _ = write!(path, "L{:.1} {:.1}", f.x(*t), f.y(*v));
        }
        let _ = write!(
            out,
            "<path d=\"{path}Z\" fill=\"{}\"><title>{}</title></path>",
            s.colour,
            escape(s.name)
        );
        base = top;
    }
    f.axes(&mut out, "s", y_unit);
    if let Some((v, label)) = line {
        let _ = write!(
            out,
            "<line x1=\"{LEFT}\" x2=\"{0}\" y1=\"{1:.1}\" y2=\"{1:.1}\" stroke=\"currentColor\" stroke-dasharray=\"6 4\"/><text x=\"{2}\" y=\"{3:.1}\" text-anchor=\"end\">{4}</text>",
            WIDTH - RIGHT,
            f.y(v),
            WIDTH - RIGHT,
            f.y(v) - 4.0,
            escape(label)
        );
    }
    out.push_str("</svg>");
    out
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
    let (height, top) = (210.0, 42.0);
    let middle = top + (height - 24.0 - top) / 2.0;
    let scale = (middle - top) / (limit * 1.05).max(1e-12);
    let width = (WIDTH - LEFT - RIGHT) / values.len().max(1) as f64;
    let mut out = String::new();
    open(&mut out, height, title);
    legend(&mut out, series, 14.0);
    for (s, entry) in series.iter().enumerate() {
        let up = s < series.len() / 2;
        let below = if up { 0 } else { series.len() / 2 };
        let mut path = String::new();
        for (i, v) in values.iter().enumerate() {
            let start: f64 = v[below..s].iter().sum();
            if v[s] <= limit * 0.002 {
                continue;
            }
            let (from, to) = (start * scale, ((start + v[s]) * scale).min(middle - top));
            let x = LEFT + i as f64 * width;
            let (a, b) = if up {
                (middle - from, middle - to)
            } else {
                (middle + from, middle + to)
            };
            let end = x + width;
            let _ = write!(path, "M{x:.2} {a:.1}V{b:.1}H{end:.2}V{a:.1}Z");
        }
        let _ = write!(
            out,
            "<path d=\"{path}\" fill=\"{}\" shape-rendering=\"crispEdges\"><title>{}</title></path>",
            entry.colour,
            escape(entry.name)
        );
    }
    for v in ticks(limit, 2.0) {
        let signs: &[f64] = if v == 0.0 { &[1.0] } else { &[1.0, -1.0] };
        for sign in signs {
            let y = middle - sign * v * scale;
            let _ = write!(
                out,
                "<line x1=\"{LEFT}\" x2=\"{0}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"currentColor\" opacity=\".15\"/><text x=\"{1}\" y=\"{2:.1}\" text-anchor=\"end\" opacity=\".7\">{3}</text>",
                WIDTH - RIGHT,
                LEFT - 6.0,
                y + 4.0,
                short(v)
            );
        }
    }
    let f = Frame {
        height,
        top,
        x_max: x_max.max(1e-12),
        y_max: 1.0,
    };
    for v in ticks(f.x_max, 8.0) {
        let _ = write!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\" opacity=\".7\">{} s</text>",
            f.x(v),
            height - 8.0,
            short(v)
        );
    }
    let _ = write!(
        out,
        "<text x=\"4\" y=\"{:.1}\" opacity=\".7\">{y_unit}, to GPU up, from GPU down</text></svg>",
        top - 6.0
    );
    out
}

/// A strip: how dark each part of the time is, 0 to 1.
pub fn strip(title: &str, label: &str, colour: &str, values: &[f64]) -> String {
    let width = (WIDTH - LEFT - RIGHT) / values.len().max(1) as f64;
    let mut out = String::new();
    open(&mut out, 24.0, title);
    let _ = write!(
        out,
        "<text x=\"{}\" y=\"16\" text-anchor=\"end\" opacity=\".7\">{}</text>",
        LEFT - 6.0,
        escape(label)
    );
    let _ = write!(
        out,
        "<rect x=\"{LEFT}\" y=\"4\" width=\"{:.1}\" height=\"16\" fill=\"currentColor\" opacity=\".06\"/>",
        WIDTH - LEFT - RIGHT
    );
    for (i, v) in values.iter().enumerate().filter(|(_, v)| **v > 0.004) {
        let _ = write!(
            out,
            "<rect x=\"{:.2}\" y=\"4\" width=\"{:.2}\" height=\"16\" fill=\"{colour}\" opacity=\"{:.2}\" shape-rendering=\"crispEdges\"/>",
            LEFT + i as f64 * width,
            width + 0.05,
            v.min(1.0)
        );
    }
    out.push_str("</svg>");
    out
}

/// Lives of tensors over time, a line each.
pub fn lifetimes(title: &str, series: &[Series], x_max: f64, lives: &[Life]) -> String {
    let row = (420.0 / lives.len().max(1) as f64).clamp(1.5, 8.0);
    let f = Frame {
        height: 42.0 + row * lives.len() as f64 + 28.0,
        top: 42.0,
        x_max: x_max.max(1e-12),
        y_max: 1.0,
    };
    let mut out = String::new();
    open(&mut out, f.height, title);
    legend(&mut out, series, 14.0);
    for (i, life) in lives.iter().enumerate() {
        let y = f.top + row * i as f64;
        let _ = write!(
            out,
            "<g fill=\"{}\"><title>{}</title>",
            life.colour,
            escape(&life.title)
        );
        for &(from, to, used) in &life.parts {
            let _ = write!(
                out,
                "<rect x=\"{:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\"{}/>",
                f.x(from),
                (f.x(to) - f.x(from)).max(0.6),
                row * 0.85,
                if used { "" } else { " opacity=\".25\"" }
            );
        }
        out.push_str("</g>");
    }
    for v in ticks(f.x_max, 8.0) {
        let _ = write!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\" opacity=\".7\">{} s</text>",
            f.x(v),
            f.height - 8.0,
            short(v)
        );
    }
    out.push_str("</svg>");
    out
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
        let svg = bars(
            "t",
            "s",
            &[Series {
                name: "a",
                colour: "#000000",
            }],
            &[bar],
            &[],
        );
        assert!(!svg.contains("<script>") && svg.contains("&lt;script&gt;"));
    }
}
