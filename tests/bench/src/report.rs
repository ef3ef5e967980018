// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Pairs the measurements of the two drivers: the least of each and their ratio.
//!
//! The least, since what rounds differ in is how long the driver spun until the software
//! GPU, which polls, had seen its work: up to seven times an eviction's own instructions.

use crate::bars::{self, Bar};
use anyhow::{ensure, Context, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// One row of `out/bench.json`.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Row {
    /// What was measured, as the table names it.
    pub name: String,
    /// The unit of `baseline` and of `ours`.
    pub unit: String,
    /// Least with the unmodified driver; none for what it does not do.
    pub baseline: Option<f64>,
    /// The least of all runs with our driver.
    pub ours: f64,
    /// `ours / baseline`; none where there is no baseline, or it is no bytes at all.
    pub ratio: Option<f64>,
}

/// What is written to `out/bench.json`.
#[derive(Debug, Default, Deserialize, Serialize)]
pub struct Table {
    /// In the order in which they were measured.
    pub rows: Vec<Row>,
    /// What they are held against.
    pub bars: Vec<Bar>,
}

/// Reads measurements, prints the tables and writes them as JSON. `strict`: fails if a bar is missed. `native`: the
/// unmodified driver has a discard of its own, and ours is held against it.
pub fn run(from: &Path, to: &Path, strict: bool, native: bool) -> Result<()> {
    let text = fs::read_to_string(from).with_context(|| format!("reading {}", from.display()))?;
    let measured = Measured::parse(&text)?;
    let table = Table {
        rows: pair(&measured)?,
        bars: bars::bars(&measured, native),
    };
    show(&table.rows);
    bars::show(&table.bars);
    fs::write(to, serde_json::to_string_pretty(&table)? + "\n")
        .with_context(|| format!("writing {}", to.display()))?;
    let missed = bars::missed(&table.bars);
    ensure!(
        !strict || missed.is_empty(),
        "bars that are missed: {}",
        missed.join(", ")
    );
    Ok(())
}

fn show(rows: &[Row]) {
    println!(
        "{:<33} {:<18} {:>12} {:>12} {:>7}",
        "row", "unit", "baseline", "ours", "ratio"
    );
    for r in rows {
        let shown = |value: Option<f64>, digits| {
            value.map_or_else(|| "-".to_owned(), |v| format!("{v:.digits$}"))
        };
        println!(
            "{:<33} {:<18} {:>12} {:>12.0} {:>7}",
            r.name,
            r.unit,
            shown(r.baseline, 0),
            r.ours,
            shown(r.ratio, 3)
        );
    }
}

/// What the unmodified driver has nothing to compare with.
const OURS_ALONE: &str = "flash/";

/// What stands in the names of rows of the unmodified driver's own discard.
const NATIVE: &str = "native/";

/// The row of ours that is compared with a row: the one of the same name, but for what NVIDIA's own discard does.
pub fn row_of_ours(name: &str) -> String {
    name.replacen(NATIVE, "", 1)
}

/// The values of each row for each driver, in the order in which they were measured.
#[derive(Default)]
pub struct Measured<'a> {
    /// The name and the unit of each row.
    order: Vec<(&'a str, &'a str)>,
    values: BTreeMap<(&'a str, &'a str), Vec<f64>>,
}

impl<'a> Measured<'a> {
    /// Reads lines of driver, row, unit and value.
    pub fn parse(text: &'a str) -> Result<Self> {
        let mut all = Self::default();
        for line in text.lines().filter(|l| !l.is_empty()) {
            let parts: Vec<&str> = line.split('\t').collect();
            let [driver, name, unit, value] = parts[..] else {
                anyhow::bail!("not a measurement: '{line}'");
            };
            if !all.order.iter().any(|(n, _)| *n == name) {
                all.order.push((name, unit));
            }
            let values = all.values.entry((driver, name)).or_default();
            values.push(value.parse()?);
        }
        Ok(all)
    }

    /// The least of a driver's values; none if it has none.
    pub fn least(&self, driver: &str, name: &str) -> Option<f64> {
        least(self.values.get(&(driver, name))?)
    }

    /// The median of a driver's values; none if it has none.
    pub fn median(&self, driver: &str, name: &str) -> Option<f64> {
        median(self.values.get(&(driver, name))?)
    }

    /// How far the medians of a driver's two runs are apart, as a share of the lesser; none if there were no two.
    pub fn between_runs(&self, driver: &str, name: &str) -> Option<f64> {
        let values = self.values.get(&(driver, name))?;
        let (first, second) = values.split_at(values.len() / 2);
        let (first, second) = (median(first)?, median(second)?);
        Some((first - second).abs() / first.min(second))
    }
}

fn least(values: &[f64]) -> Option<f64> {
    values.iter().copied().min_by(f64::total_cmp)
}

fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    let lower = *sorted.get((sorted.len() - 1) / 2)?;
    Some((lower + upper) / 2.0)
}

fn pair(measured: &Measured<'_>) -> Result<Vec<Row>> {
    // A variant of ours, "row (variant)", has the row's baseline.
    let base = |name: &str| name.split(" (").next().unwrap_or_default().to_owned();
    let mut rows = Vec::new();
    for &(name, unit) in &measured.order {
        let of = |driver, name: &str| {
            let least = measured.least(driver, name);
            least.with_context(|| format!("{name} was not measured for {driver}"))
        };
        let ours = of("rust", &row_of_ours(name))?;
        let baseline = if name.starts_with(OURS_ALONE) {
            None
        } else {
            let least = of("upstream", &base(name))?;
            let may_be_none = unit.starts_with("bytes");
            ensure!(least > 0.0 || may_be_none, "{name}: the baseline is 0");
            Some(least)
        };
        let (name, unit) = (name.to_owned(), unit.to_owned());
        rows.push(Row {
            name,
            unit,
            baseline,
            ours,
            ratio: baseline.filter(|b| *b > 0.0).map(|b| ours / b),
        });
    }
    ensure!(!rows.is_empty(), "nothing was measured");
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(text: &str) -> Result<Vec<Row>> {
        super::pair(&Measured::parse(text)?)
    }

    #[test]
    fn runs_of_a_driver_are_apart_by_their_medians() {
        let values = [14, 7, 10, 11, 90, 8].map(|value| format!("rust\ta\tn\t{value}\n"));
        let text = values.concat() + "rust\tb\tn\t1\n";
        let measured = Measured::parse(&text).unwrap();
        assert_eq!(measured.between_runs("rust", "a"), Some(0.1));
        assert_eq!(measured.median("rust", "a"), Some(10.5));
        assert_eq!(measured.median("rust", "b"), Some(1.0));
        assert_eq!(measured.median("upstream", "a"), None);
        assert_eq!(measured.between_runs("rust", "b"), None);
        assert_eq!(measured.between_runs("upstream", "a"), None);
    }

    #[test]
    fn the_least_are_paired_by_row() {
        let text = "upstream\ta\tn\t4\nupstream\ta\tn\t2\nupstream\ta\tn\t9\nrust\ta\tn\t2\n";
        let rows = pair(text).unwrap();
        assert_eq!(rows.len(), 1);
        assert_eq!(
            (rows[0].baseline, rows[0].ours, rows[0].ratio),
            (Some(2.0), 2.0, Some(1.0))
        );
    }

    #[test]
    fn a_variant_of_ours_has_the_baseline_of_its_row() {
        let text = "upstream\ta\tn\t4\nrust\ta\tn\t2\nrust\ta (b)\tn\t6\n";
        let rows = pair(text).unwrap();
        assert_eq!((rows[0].ratio, rows[1].ratio), (Some(0.5), Some(1.5)));
        assert!(pair("rust\ta (b)\tn\t6\n").is_err());
    }

    #[test]
    fn what_only_ours_does_has_no_ratio() {
        let rows = pair("rust\tflash/spill\tn\t3\nrust\tflash/spill\tn\t2\n").unwrap();
        assert_eq!(
            (rows[0].baseline, rows[0].ours, rows[0].ratio),
            (None, 2.0, None)
        );
    }

    #[test]
    fn nvidias_own_discard_is_beside_ours() {
        let ours = "rust\tdiscard/lazy/8MiB\tn\t2\n";
        let theirs =
            "upstream\tdiscard/lazy/8MiB\tn\t8\nupstream\tdiscard/native/lazy/8MiB\tn\t4\n";
        let rows = pair(&(theirs.to_owned() + ours)).unwrap();
        let of = |i: usize| (rows[i].baseline, rows[i].ours, rows[i].ratio);
        assert_eq!(rows[1].name, "discard/native/lazy/8MiB");
        assert_eq!(
            (of(0), of(1)),
            ((Some(8.0), 2.0, Some(0.25)), (Some(4.0), 2.0, Some(0.5)))
        );
        assert!(pair(theirs).is_err(), "without ours");
    }

    #[test]
    fn no_bytes_at_all_have_no_ratio_and_no_instructions_are_an_error() {
        let text = |unit| format!("upstream\ta\t{unit}\t0\nrust\ta\t{unit}\t0\n");
        let rows = pair(&text("bytes copied")).unwrap();
        assert_eq!(
            (rows[0].baseline, rows[0].ours, rows[0].ratio),
            (Some(0.0), 0.0, None)
        );
        assert!(pair(&text("instructions/call")).is_err());
    }

    #[test]
    fn a_row_without_its_pair_is_an_error() {
        assert!(pair("upstream\ta\tn\t4\n").is_err());
        assert!(pair("").is_err());
        assert!(pair("what\n").is_err());
    }
}
