// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The figure data that the G10 artifact publishes, read from `example_results/`.

use std::fs;
use std::path::Path;

use uvmsim_report::published::Value;

/// A file: its column names, and its blocks, each of a name and lines of values.
pub struct Table {
    /// Names of the columns.
    pub columns: Vec<String>,
    /// Blocks in the file's order.
    pub blocks: Vec<(String, Vec<Vec<Value>>)>,
}

/// Reads `file` below `dir`, whose blocks have `lines` lines of values each.
///
/// # Errors
/// It cannot be read or is no such file; why.
pub fn table(dir: &Path, file: &str, lines: usize) -> Result<Table, String> {
    let path = dir.join("example_results").join(file);
    let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    parse(&text, lines).ok_or_else(|| format!("{}: not as the artifact has it", path.display()))
}

fn parse(text: &str, lines: usize) -> Option<Table> {
    let mut rest = text.lines().filter(|l| !l.trim().is_empty());
    let columns = rest.next()?.split('|');
    let columns = columns.map(|c| c.trim().to_string()).collect();
    let mut blocks = Vec::new();
    while let Some(name) = rest.next() {
        let mut values = Vec::new();
        for _ in 0..lines {
            let line = rest.next()?.split_whitespace().map(value);
            values.push(line.collect::<Option<_>>()?);
        }
        blocks.push((name.trim().to_string(), values));
    }
    Some(Table { columns, blocks })
}

/// `inf` stands for a policy that fails, and for a point that was not run.
fn value(text: &str) -> Option<Value> {
    let v: f64 = text.parse().ok()?;
    Some(if v.is_finite() {
        Value::Number(v)
    } else {
        Value::Fails("the artifact has no result: the policy fails, or it was not run".into())
    })
}

/// Share of kernels slower than `times` their ideal time, from a file of
/// `overall_slowdown_cdf`: a line a kernel and step, of which the second step
/// counts; for FlashNeuron one number a kernel, its slowdown less 1.
pub fn slowed(dir: &Path, file: &str, times: f64) -> Value {
    let path = dir.join("example_results/overall_slowdown_cdf").join(file);
    let Ok(text) = fs::read_to_string(&path) else {
        return Value::Absent("the artifact has no such data".into());
    };
    let slowdowns: Vec<f64> = text.lines().filter_map(slowdown).collect();
    let above = slowdowns.iter().filter(|s| **s > times).count();
    Value::Number(above as f64 / slowdowns.len().max(1) as f64)
}

/// The slowdown in a line: `1+12:[start,end](ideal,...` or `0.25`.
fn slowdown(line: &str) -> Option<f64> {
    if !line.contains(':') {
        return line.trim().parse::<f64>().ok().map(|v| v + 1.0);
    }
    let rest = line.strip_prefix("1+")?;
    let (_, rest) = rest.split_once(":[")?;
    let (start, rest) = rest.split_once(',')?;
    let (end, rest) = rest.split_once("](")?;
    let (ideal, _) = rest.split_once(',')?;
    let number = |s: &str| s.parse::<f64>().ok();
    Some((number(end)? - number(start)?) / number(ideal)?.max(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_as_they_are_written() {
        let t = parse("a | b\n\nX|B = 1\n1.5 inf\n\nY\n2 3\n", 1);
        let t = t.unwrap_or(Table {
            columns: Vec::new(),
            blocks: Vec::new(),
        });
        assert_eq!(t.columns, ["a", "b"]);
        let line = [2.0, 3.0].map(Value::Number).to_vec();
        assert_eq!(t.blocks[1], ("Y".into(), vec![line]));
        assert!(matches!(t.blocks[0].1[0][1], Value::Fails(_)));
        assert!(parse("a\nX\n", 1).is_none() && parse("a\nX\nwhat\n", 1).is_none());
    }

    #[test]
    fn slowdowns_of_the_second_step_count() {
        assert_eq!(slowdown("0+3:[10,30](10,11)<0>"), None);
        assert_eq!(slowdown("1+3:[10,30](10,11)<0>"), Some(2.0));
        assert_eq!(slowdown("0.5"), Some(1.5));
        assert_eq!(slowdown("1+3:[10"), None);
    }
}
