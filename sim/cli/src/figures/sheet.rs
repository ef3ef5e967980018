// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The papers' tables and figures, as `figures.toml` has them.

use std::sync::LazyLock;

use serde::de::DeserializeOwned;
use serde::Deserialize;
use uvmsim_report::published::Cell;
use uvmsim_report::published::Figure;
use uvmsim_report::published::Row;
use uvmsim_report::published::Value;

use super::desk::mean;

/// What all figures of a paper have in common.
#[derive(Deserialize)]
struct Paper {
    published: String,
    machine: String,
    #[serde(default)]
    notes: Vec<String>,
    #[serde(rename = "figure")]
    sheets: Vec<Sheet>,
}

#[derive(Deserialize)]
struct Papers {
    paper: Vec<Paper>,
}

/// A table or figure without its lines.
#[derive(Deserialize)]
pub struct Sheet {
    #[serde(flatten)]
    pub figure: Figure,
    /// What the paper prints.
    rows: Option<toml::Value>,
    /// What the paper says of the mean of each column, if there is a line for it.
    mean: Option<Vec<f64>>,
}

fn read() -> Result<Vec<Sheet>, toml::de::Error> {
    let papers: Papers = toml::from_str(include_str!("../../figures.toml"))?;
    let whole = |paper: Paper| {
        paper.sheets.into_iter().map(move |mut sheet| {
            let f = &mut sheet.figure;
            for (own, common) in [
                (&mut f.published, &paper.published),
                (&mut f.machine, &paper.machine),
            ] {
                if own.is_empty() {
                    own.clone_from(common);
                }
            }
            f.notes.splice(0..0, paper.notes.iter().cloned());
            sheet
        })
    };
    Ok(papers.paper.into_iter().flat_map(whole).collect())
}

/// Every figure, in the order of the papers.
pub static SHEETS: LazyLock<Vec<Sheet>> = LazyLock::new(|| read().unwrap_or_default());

/// What the paper prints in the figure called `name`, a `T` for each of its rows.
pub fn rows<T: DeserializeOwned>(name: &str) -> Vec<T> {
    let sheet = SHEETS.iter().find(|s| s.figure.name == name);
    let rows = sheet.and_then(|s| s.rows.clone());
    let rows = rows.and_then(|rows| rows.try_into().ok());
    rows.unwrap_or_default()
}

impl Sheet {
    /// What the paper prints in this figure.
    pub fn rows<T: DeserializeOwned>(&self) -> Vec<T> {
        rows(&self.figure.name)
    }

    /// The figure with its lines, and that of the means if it has one.
    pub fn with(&self, rows: Vec<Row>) -> Figure {
        let mut figure = Figure {
            rows,
            ..self.figure.clone()
        };
        if let Some(published) = &self.mean {
            let cells = (0..figure.columns.len()).map(|i| {
                let published = published.get(i).copied().filter(|p| !p.is_nan());
                let cells = figure.rows.iter().filter_map(|r| r.cells.get(i));
                let published = published.map_or_else(Value::none, Value::Number);
                Cell::new(published, mean(cells.map(|c| &c.ours)))
            });
            let row = Row::new("mean", cells);
            figure.rows.push(row);
        }
        figure
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_can_be_read() {
        let read = read();
        assert!(
            read.as_ref().is_ok_and(|all| all.len() == 36),
            "{:?}",
            read.err()
        );
    }
}
