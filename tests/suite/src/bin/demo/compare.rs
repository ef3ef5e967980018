// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Puts the runs of several variants side by side.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde::Serialize;

use crate::Run;

/// What is written to `--out`.
#[derive(Serialize)]
struct Demo {
    runs: Vec<Run>,
}

pub(crate) fn run(files: &[PathBuf], out: Option<&Path>) -> ExitCode {
    match compare(files, out) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("error: {why}");
            ExitCode::FAILURE
        }
    }
}

fn compare(files: &[PathBuf], out: Option<&Path>) -> Result<(), String> {
    let mut runs = Vec::new();
    for file in files {
        let named = |error: String| format!("{}: {error}", file.display());
        let text = fs::read_to_string(file).map_err(|e| named(e.to_string()))?;
        // A console may mix other things in.
        for line in text.lines().filter(|line| line.starts_with('{')) {
            runs.push(serde_json::from_str(line).map_err(|e| named(e.to_string()))?);
        }
    }
    print!("{}", table(&runs));
    if let Some(out) = out {
        let demo = Demo { runs: runs.clone() };
        let text = serde_json::to_string_pretty(&demo).map_err(|e| e.to_string())?;
        fs::write(out, text + "\n").map_err(|e| format!("{}: {e}", out.display()))?;
    }
    agree(&runs)
}

fn table(runs: &[Run]) -> String {
    let mib = |bytes: u64| format!("{:.2}", bytes as f64 / (1 << 20) as f64);
    let mut text = format!(
        "{:<9} {:>7} {:>11} {:>11} {:>8} {:>10} {:>9} {:>8}\n",
        "variant",
        "x GPU",
        "to GPU MiB",
        "to CPU MiB",
        "faults",
        "duplicates",
        "evictions",
        "verified"
    );
    for r in runs {
        text += &format!(
            "{:<9} {:>7} {:>11} {:>11} {:>8} {:>10} {:>9} {:>8}\n",
            r.variant,
            r.oversubscription,
            mib(r.h2d_bytes),
            mib(r.d2h_bytes),
            r.faults,
            r.duplicates,
            r.evictions,
            if r.verified { "yes" } else { "NO" }
        );
    }
    text
}

/// All variants must have run every size, verified, with the same counts, but for
/// the duplicates, which depend on timing.
fn agree(runs: &[Run]) -> Result<(), String> {
    let first = runs.first().ok_or("no runs: the VM printed none")?;
    let variants: Vec<&str> = distinct(runs.iter().map(|r| r.variant.as_str()));
    let of =
        |variant: &str| -> Vec<&Run> { runs.iter().filter(|r| r.variant == variant).collect() };
    let reference = of(&first.variant);
    let mut wrong = Vec::new();
    for run in runs.iter().filter(|r| !r.verified) {
        wrong.push(format!(
            "{} at {}: wrong data",
            run.variant, run.oversubscription
        ));
    }
    for variant in &variants {
        let theirs = of(variant);
        if theirs.len() != reference.len() {
            wrong.push(format!(
                "{variant} ran {} sizes, not {}",
                theirs.len(),
                reference.len()
            ));
        }
        for (a, b) in reference.iter().zip(&theirs) {
            for (what, x, y) in [
                ("h2d_bytes", a.h2d_bytes, b.h2d_bytes),
                ("d2h_bytes", a.d2h_bytes, b.d2h_bytes),
                ("faults", a.faults, b.faults),
                ("evictions", a.evictions, b.evictions),
            ] {
                if x != y || a.oversubscription != b.oversubscription {
                    let size = a.oversubscription;
                    let (first, second) = (&a.variant, &b.variant);
                    wrong.push(format!("{what} at {size}: {x} on {first}, {y} on {second}"));
                }
            }
        }
    }
    if wrong.is_empty() {
        println!(
            "{}: all data right, and all counts agree but the duplicates",
            variants.join(", ")
        );
        return Ok(());
    }
    Err(format!(
        "the variants do not agree:\n  {}",
        wrong.join("\n  ")
    ))
}

fn distinct<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut seen = Vec::new();
    names.for_each(|name| {
        if !seen.contains(&name) {
            seen.push(name);
        }
    });
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(variant: &str, evictions: u64, verified: bool) -> Run {
        Run {
            variant: variant.into(),
            oversubscription: 2.0,
            h2d_bytes: 1 << 20,
            d2h_bytes: 2 << 20,
            faults: 3,
            duplicates: evictions,
            evictions,
            verified,
        }
    }

    #[test]
    fn variants_must_agree() {
        assert!(agree(&[run("upstream", 4, true), run("rust", 4, true)]).is_ok());
        assert!(agree(&[run("upstream", 4, true), run("rust", 5, true)]).is_err());
        assert!(agree(&[run("upstream", 4, true), run("rust", 4, false)]).is_err());
        assert!(agree(&[
            run("upstream", 4, true),
            run("upstream", 4, true),
            run("rust", 4, true)
        ])
        .is_err());
        assert!(agree(&[]).is_err());
    }

    #[test]
    fn a_line_is_what_the_issue_asks_for() {
        let line = serde_json::to_string(&run("rust", 4, true)).unwrap();
        assert_eq!(
            line,
            "{\"variant\":\"rust\",\"oversubscription\":2.0,\"h2d_bytes\":1048576,\
             \"d2h_bytes\":2097152,\"faults\":3,\"duplicates\":4,\"evictions\":4,\"verified\":true}"
        );
        assert_eq!(
            serde_json::from_str::<Run>(&line).unwrap(),
            run("rust", 4, true)
        );
        assert!(table(&[run("rust", 4, true)])
            .lines()
            .all(|l| l.len() <= 80));
    }
}
