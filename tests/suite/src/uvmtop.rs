// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! What `uvmtop` tells, as JSON and to Prometheus. The program is beside the one that runs.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::Value;

use crate::{ensure, Failure};

/// `uvmtop` with these options.
pub fn command(options: &[&str]) -> Result<Command, Failure> {
    let mut command = Command::new(std::env::current_exe()?.with_file_name("uvmtop"));
    command.args(options);
    Ok(command)
}

/// What `uvmtop` prints with these options; an error if it fails.
pub fn said(options: &[&str]) -> Result<String, Failure> {
    let mut command = command(options)?;
    let told = command.output().map_err(|e| {
        let program = command.get_program().to_string_lossy();
        Failure::from(format!("{program}: {e} (cargo build --release -p uvmtop)"))
    })?;
    ensure!(
        told.status.success(),
        "uvmtop: {}: {}",
        told.status,
        String::from_utf8_lossy(&told.stderr)
    );
    Ok(String::from_utf8_lossy(&told.stdout).into_owned())
}

/// What `uvmtop` tells once, as JSON.
pub fn sample() -> Result<Value, Failure> {
    let told = said(&["--once", "--json"])?;
    serde_json::from_str(&told).map_err(|e| format!("uvmtop's JSON: {e}").into())
}

/// What a sample tells of this process.
pub fn own(sample: &Value) -> Result<&Value, Failure> {
    let pid = Value::from(std::process::id());
    let mut all = sample["processes"].as_array().into_iter().flatten();
    all.find(|process| process["pid"] == pid)
        .ok_or_else(|| format!("this process is not shown: {sample}").into())
}

/// The cells of this process on a page without rates, by the titles of their columns.
pub fn cells(page: &str) -> Result<BTreeMap<String, String>, Failure> {
    // A process ID and a name stand before the columns, which are as wide as each other.
    let wide = |line: &str| {
        let line: Vec<_> = line.chars().skip(8 + 1 + 16).collect();
        let cells = line.chunks(12).map(|cell| cell.iter().collect::<String>());
        cells.map(|cell| cell.trim().to_owned()).collect::<Vec<_>>()
    };
    let line = |first: &str| {
        let mut lines = page.lines();
        let line = lines.find(|line| line.split_whitespace().next() == Some(first));
        line.ok_or_else(|| Failure::from(format!("no line of {first} in the page: {page}")))
    };
    let titles = wide(line("PID")?);
    let cells = wide(line(&std::process::id().to_string())?);
    Ok(titles.into_iter().zip(cells).collect())
}

/// The values of a page for Prometheus, by their names.
pub struct Metrics(BTreeMap<String, Vec<Metric>>);

struct Metric {
    labels: BTreeMap<String, String>,
    value: u64,
}

impl Metrics {
    /// What `uvmtop` tells Prometheus. The VM's kernel has no network, so the page comes without a server, whose answers
    /// uvmtop's own tests look at.
    pub fn get() -> Result<Self, Failure> {
        Self::read(&said(&["--once", "--prometheus"])?)
    }

    /// Reads a page. None of our labels' values has a comma or an escape in it.
    fn read(page: &str) -> Result<Self, Failure> {
        let mut all = BTreeMap::<_, Vec<Metric>>::new();
        for line in page.lines().filter(|line| !line.starts_with('#')) {
            let wrong = || Failure::from(format!("no value of Prometheus': {line}"));
            let (name, value) = line.rsplit_once(' ').ok_or_else(wrong)?;
            let (name, labels) = match name.split_once('{') {
                Some((name, labels)) => (name, labels.strip_suffix('}').ok_or_else(wrong)?),
                None => (name, ""),
            };
            let labels = labels.split(',').filter(|label| !label.is_empty());
            let labels = labels.map(|label| {
                let (key, value) = label.split_once('=').ok_or_else(wrong)?;
                Ok((key.to_owned(), value.trim_matches('"').to_owned()))
            });
            let labels: Result<_, Failure> = labels.collect();
            let metric = Metric {
                labels: labels?,
                value: value.parse().map_err(|_| wrong())?,
            };
            all.entry(name.to_owned()).or_default().push(metric);
        }
        Ok(Self(all))
    }

    /// The value with this name and these labels, if there is one; an error if there are several.
    pub fn value(&self, name: &str, labels: &[(&str, &str)]) -> Result<Option<u64>, Failure> {
        let has = |of: &BTreeMap<String, String>| {
            let mut labels = labels.iter();
            labels.all(|(key, value)| of.get(*key).is_some_and(|is| is == value))
        };
        let values = self.0.get(name).into_iter().flatten();
        let mut values = values.filter(|metric| has(&metric.labels));
        let value = values.next().map(|metric| metric.value);
        ensure!(values.next().is_none(), "{name} {labels:?} is there twice");
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn cells_are_found_by_their_titles() {
        let mine = std::process::id();
        let page = format!(
            "uvmtop\n     PID COMMAND               ON GPU         MAX          IN\n\
             {mine:>8} policy            10.0 MiB    20.0 MiB!           -\n"
        );
        let cells = cells(&page).unwrap();
        let of = |title: &str| cells.get(title).map(String::as_str);
        let found = ["ON GPU", "MAX", "IN", "OUT"].map(of);
        assert_eq!(
            found,
            [Some("10.0 MiB"), Some("20.0 MiB!"), Some("-"), None]
        );
        assert!(super::cells("uvmtop\n").is_err());
    }

    #[test]
    fn values_are_found_by_their_labels() {
        let page = "# HELP a_bytes What it is.\n# TYPE a_bytes gauge\n\
                    a_bytes{pid=\"1\",command=\"x y\"} 5\na_bytes{pid=\"2\",command=\"x y\"} 6\nb 7\n";
        let metrics = Metrics::read(page).unwrap();
        let of = |name, labels: &[_]| metrics.value(name, labels);
        assert_eq!(of("a_bytes", &[("pid", "2")]).unwrap(), Some(6));
        let both = [("pid", "1"), ("command", "x y")];
        assert_eq!(of("a_bytes", &both).unwrap(), Some(5));
        assert_eq!(of("b", &[]).unwrap(), Some(7));
        assert_eq!(of("a_bytes", &[("pid", "3")]).unwrap(), None);
        assert_eq!(of("c", &[]).unwrap(), None);
        assert!(of("a_bytes", &[]).is_err(), "there are two");
        for wrong in ["a", "a{b=\"1\" 1", "a{b} 1", "a one"] {
            assert!(Metrics::read(wrong).is_err(), "{wrong}");
        }
    }
}
