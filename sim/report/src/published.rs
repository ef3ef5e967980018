// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Published numbers beside ours: as text, as SVG, as a page.

use std::fmt::Write;

use serde::Deserialize;

use crate::document;
use crate::svg;
use crate::svg::Group;
use crate::text::wrap;
use crate::text::COLUMNS;

/// One number of a table or a plot.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// It is this one.
    Number(f64),
    /// The policy cannot run this; why.
    Fails(String),
    /// It is not there; why. An empty reason is for cells that nobody has.
    Absent(String),
}

impl Value {
    /// A cell that nobody has.
    pub fn none() -> Self {
        Self::Absent(String::new())
    }

    /// The number, if it is one.
    pub fn number(&self) -> Option<f64> {
        match self {
            Self::Number(v) => Some(*v),
            _ => None,
        }
    }

    fn why(&self) -> Option<&str> {
        match self {
            Self::Number(_) => None,
            Self::Fails(why) | Self::Absent(why) => {
                Some(why).filter(|w| !w.is_empty()).map(|w| &**w)
            }
        }
    }

    fn text(&self, digits: usize) -> String {
        match self {
            Self::Number(v) => format!("{v:.digits$}"),
            Self::Fails(_) => "fails".into(),
            Self::Absent(_) => "-".into(),
        }
    }
}

/// A published number and ours.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// What the paper says.
    pub published: Value,
    /// What our run came to.
    pub ours: Value,
}

impl Cell {
    /// The cell of both.
    pub fn new(published: Value, ours: Value) -> Self {
        Self { published, ours }
    }
}

/// A line of a figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// What it is of.
    pub label: String,
    /// One for each of the figure's columns.
    pub cells: Vec<Cell>,
}

impl Row {
    /// The line called `label`.
    pub fn new(label: impl Into<String>, cells: impl IntoIterator<Item = Cell>) -> Self {
        Self {
            label: label.into(),
            cells: cells.into_iter().collect(),
        }
    }

    /// Its lines, by whose numbers they are: without the paper's if that has none.
    fn lines(&self) -> impl Iterator<Item = (&'static str, Vec<&Value>)> {
        let silent = |v: &&Value| matches!(v, Value::Absent(_));
        let paper: Vec<&Value> = self.cells.iter().map(|c| &c.published).collect();
        let paper = Some(("paper", paper)).filter(|(_, p)| !p.iter().all(silent));
        let ours = ("ours", self.cells.iter().map(|c| &c.ours).collect());
        paper.into_iter().chain([ours])
    }
}

/// A table or a plot of a paper, with our numbers beside its own. All but the lines can be
/// read from data.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub struct Figure {
    /// Its name on the command line, such as `g10-11`.
    pub name: String,
    /// Which table or figure of which paper.
    pub source: String,
    /// What it shows, as a heading.
    pub title: String,
    /// What the numbers are.
    pub unit: String,
    /// Digits after the point.
    #[serde(default = "two")]
    pub digits: usize,
    /// Whether a plot of it needs a logarithmic scale.
    #[serde(default)]
    pub log: bool,
    /// Where the published numbers are from, and how exact they are.
    #[serde(default)]
    pub published: String,
    /// The machine and the model that ours are from.
    #[serde(default)]
    pub machine: String,
    /// What differs from the paper, what is missing, and why.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Names of the columns.
    pub columns: Vec<String>,
    /// The lines, once they are made.
    #[serde(skip)]
    pub rows: Vec<Row>,
}

fn two() -> usize {
    2
}

/// Colours of the columns, told apart by most eyes (Okabe and Ito).
const COLOURS: [&str; 8] = [
    "#0072b2", "#e69f00", "#009e73", "#d55e00", "#56b4e9", "#cc79a7", "#b0a000", "#808080",
];

impl Figure {
    /// Ours over the paper's, of each cell that has both, smallest first.
    fn ratios(&self) -> Vec<f64> {
        let cells = self.rows.iter().flat_map(|r| &r.cells);
        let mut ratios: Vec<f64> = cells
            .filter_map(|c| Some((c.ours.number()?, c.published.number()?)))
            .filter(|(_, p)| *p != 0.0)
            .map(|(o, p)| o / p)
            .collect();
        ratios.sort_by(f64::total_cmp);
        ratios
    }

    /// How near ours is, in a sentence; `None` if no cell has both numbers.
    pub fn agreement(&self) -> Option<String> {
        let ratios = self.ratios();
        let (first, last) = (ratios.first()?, ratios.last()?);
        let near = |share: f64| ratios.iter().filter(|r| (**r - 1.0).abs() <= share).count();
        let middle = ratios[ratios.len() / 2];
        Some(format!(
            "of {} numbers, {} within 0.1 %, {} within 2 %, {} within 20 %; ours/published from {first:.3} to {last:.3}, in the middle {middle:.3}",
            ratios.len(),
            near(0.001),
            near(0.02),
            near(0.2)
        ))
    }

    /// Why numbers are missing, each reason once, with the lines it is for.
    pub fn reasons(&self) -> Vec<String> {
        let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
        for row in &self.rows {
            let cells = row.cells.iter().flat_map(|c| [&c.ours, &c.published]);
            for why in cells.filter_map(Value::why) {
                match reasons.iter_mut().find(|r| r.0 == why) {
                    Some((_, rows)) if rows.last() == Some(&row.label.as_str()) => {}
                    Some((_, rows)) => rows.push(&row.label),
                    None => reasons.push((why, vec![&row.label])),
                }
            }
        }
        let line = |(why, rows): (&str, Vec<&str>)| {
            if rows.len() > 2 && rows.len() + 1 >= self.rows.len() {
                format!("all lines: {why}")
            } else {
                format!("{}: {why}", rows.join(", "))
            }
        };
        reasons.into_iter().map(line).collect()
    }

    /// The table, for a terminal.
    pub fn text(&self) -> String {
        let mut out = format!("{}: {} ({})\n", self.source, self.title, self.unit);
        let labels = self.rows.iter().map(|r| r.label.len());
        let label = labels.max().unwrap_or(0).clamp(4, 24);
        let cells = self.rows.iter().flat_map(|r| &r.cells);
        let values = cells.flat_map(|c| [&c.published, &c.ours]);
        let numbers = values.map(|v| v.text(self.digits).len());
        let heads = self.columns.iter().map(|c| c.len().min(16));
        let width = numbers.chain(heads).max().unwrap_or(6).max(6) + 1;
        let fit = ((COLUMNS - label - 7) / width).max(1);
        for (b, block) in self.columns.chunks(fit).enumerate() {
            let _ = write!(out, "{:label$}       ", "");
            for c in block {
                let _ = write!(out, "{:>width$}", cut(c, width - 1));
            }
            out.push('\n');
            for row in &self.rows {
                for (i, (who, values)) in row.lines().enumerate() {
                    let name = cut(if i == 0 { &row.label } else { "" }, label);
                    let _ = write!(out, "{name:label$}  {who:<5}");
                    for v in values.iter().skip(b * fit).take(fit) {
                        let _ = write!(out, "{:>width$}", v.text(self.digits));
                    }
                    out.truncate(out.trim_end().len());
                    out.push('\n');
                }
            }
        }
        let mut say = |head: &str, texts: &[String]| {
            for text in texts {
                wrap(&mut out, &format!("{head}: {text}"), [2, 4]);
            }
        };
        say("paper", std::slice::from_ref(&self.published));
        say("ours", std::slice::from_ref(&self.machine));
        say("agreement", self.agreement().as_slice());
        say("note", &self.notes);
        say("missing", &self.reasons());
        out
    }

    /// The plot: a bar for each of our numbers, a mark at the published one.
    pub fn svg(&self) -> String {
        let bar = |c: &Cell| (c.ours.number(), c.published.number());
        let group = |r: &Row| Group {
            label: r.label.clone(),
            bars: r.cells.iter().map(bar).collect(),
        };
        let groups: Vec<Group> = self.rows.iter().map(group).collect();
        let columns = self.columns.iter().map(String::as_str);
        let series: Vec<(&str, &str)> = columns.zip(COLOURS.into_iter().cycle()).collect();
        svg::grouped(&self.title, &self.unit, &series, &groups, self.log)
    }

    fn html(&self, out: &mut String) {
        let e = svg::escape;
        let _ = write!(
            out,
            "<section id=\"{}\"><h2>{}: {}</h2><figure>{}</figure><table><thead><tr><th><th>",
            self.name,
            e(&self.source),
            e(&self.title),
            self.svg()
        );
        for c in &self.columns {
            let _ = write!(out, "<th>{}", e(c));
        }
        out.push_str("</tr></thead><tbody>");
        for row in &self.rows {
            for (i, (who, values)) in row.lines().enumerate() {
                let class = if i == 0 { " class=\"first\"" } else { "" };
                let name = if i == 0 { e(&row.label) } else { String::new() };
                let _ = write!(out, "<tr{class}><td>{name}<td>{who}");
                for v in values {
                    let _ = write!(out, "<td>{}", v.text(self.digits));
                }
                out.push_str("</tr>");
            }
        }
        let _ = write!(
            out,
            "</tbody></table><ul><li>Numbers: {}.<li>Published: {}.<li>Ours: {}.",
            e(&self.unit),
            e(&self.published),
            e(&self.machine)
        );
        if let Some(a) = self.agreement() {
            let _ = write!(out, "<li>Agreement: {}.", e(&a));
        }
        for n in &self.notes {
            let _ = write!(out, "<li>{}", e(n));
        }
        for r in self.reasons() {
            let _ = write!(out, "<li class=\"dim\">Missing: {}", e(&r));
        }
        out.push_str("</ul></section>");
    }
}

/// The page of `figures`, self-contained; `command` made it.
pub fn page(figures: &[Figure], command: &str) -> String {
    let mut out = String::from("<p>Bars are ours, black marks are what the paper says.</p><nav>");
    for f in figures {
        let _ = write!(out, "<a href=\"#{0}\">{0}</a> ", f.name);
    }
    out.push_str("</nav>");
    for f in figures {
        f.html(&mut out);
    }
    let title = "Published figures beside uvmsim's";
    document(title, title, &out, command)
}

/// `text` in at most `width` characters.
fn cut(text: &str, width: usize) -> String {
    text.chars().take(width).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure() -> Figure {
        let half = Value::Number(0.5);
        let lost = Cell::new(half.clone(), Value::Absent("no trace".into()));
        Figure {
            name: "x-1".into(),
            source: "X figure 1".into(),
            title: "a <title>".into(),
            unit: "share".into(),
            digits: 3,
            log: false,
            published: "the paper".into(),
            machine: "a machine".into(),
            notes: vec!["a note that is long enough to be wrapped ".repeat(4)],
            columns: (0..12).map(|i| format!("policy-{i}")).collect(),
            rows: vec![
                Row::new("a", vec![Cell::new(half.clone(), half); 12]),
                Row::new("b", vec![lost; 12]),
            ],
        }
    }

    #[test]
    fn tables_fit_a_terminal_and_hide_nothing() {
        let text = figure().text();
        assert!(text.lines().all(|l| l.len() <= COLUMNS), "{text}");
        assert!(text.contains("policy-0") && text.contains("policy-11"));
        assert_eq!(text.matches("missing: b: no trace").count(), 1);
        assert!(text.contains("of 12 numbers, 12 within 0.1 %"));
    }

    #[test]
    fn the_page_is_whole_and_escaped() {
        let html = page(&[figure()], "uvmsim figures");
        assert!(html.contains("a &lt;title&gt;") && !html.contains("a <title>"));
        assert!(html.contains("no trace") && html.ends_with("</html>\n"));
        let links = |text: &str| html.matches(text).count();
        assert_eq!(links("http://"), links("http://www.w3.org/2000/svg"));
    }
}
