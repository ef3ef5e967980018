// SPDX-License-Identifier: GPL-2.0 OR MIT

//! `uvmsim figures`: the papers' tables and figures beside ours.
//!
//! A figure is a function that asks a [`Desk`] for runs and puts what
//! it gets into a table. Every figure is called twice: the first time the desk
//! only notes what is asked for; then all runs are made, on all cores, each once,
//! however many figures want it; the second time the figures get them.

mod artifact;
mod autovm;
mod deepum;
mod desk;
mod discard;
mod g10;
mod most;

use std::path::Path;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;
use std::time::Instant;

use indicatif::ProgressBar;
use indicatif::ProgressStyle;
use serde_json::json;
use serde_json::Value as Json;
use uvmsim_report::published;
use uvmsim_report::published::Figure;
use uvmsim_report::published::Value;

use crate::Failure;
use desk::Desk;

/// `uvmsim figures`.
#[derive(clap::Args)]
pub struct Args {
    /// Only these, comma-separated, by name or the start of one: g10-11, deepum
    /// [default: all].
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    only: Vec<String>,
    /// List what there is.
    #[arg(long)]
    list: bool,
    /// Data of the G10 artifact: a folder with Nets/, results/ and
    /// example_results/ [default: g10/traces in $UVM_SHARED or ../shared].
    #[arg(long, value_name = "DIR")]
    traces: Option<PathBuf>,
    /// Write a page with all tables and plots.
    #[arg(long, value_name = "FILE.html")]
    html: Option<String>,
    /// Write each plot as a file of its own.
    #[arg(long, value_name = "FOLDER")]
    svg: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    /// Begin no run after this many seconds; those not made are said to be missing.
    #[arg(long, value_name = "SECONDS")]
    limit: Option<u64>,
    /// Threads; the numbers do not depend on it [default: all cores].
    #[arg(long)]
    threads: Option<usize>,
}

/// How often progress is said where it cannot be drawn.
const SAY_EVERY: Duration = Duration::from_secs(20);

/// A figure, and what makes it.
struct Entry {
    name: &'static str,
    what: &'static str,
    make: fn(&mut Desk) -> Figure,
}

const fn entry(name: &'static str, what: &'static str, make: fn(&mut Desk) -> Figure) -> Entry {
    Entry { name, what, make }
}

/// Every figure, in the order of the papers.
const FIGURES: &[Entry] = &[
    entry(
        "g10-11",
        "G10 figure 11: speed under each policy",
        g10::figure_11,
    ),
    entry(
        "g10-12",
        "G10 figure 12: where the time goes",
        g10::figure_12,
    ),
    entry(
        "g10-13",
        "G10 figure 13: kernels slowed down",
        g10::figure_13,
    ),
    entry("g10-14", "G10 figure 14: traffic", g10::figure_14),
    entry("g10-15", "G10 figure 15: batch sizes", g10::figure_15),
    entry(
        "g10-16",
        "G10 figure 16: host memory and batch sizes",
        g10::figure_16,
    ),
    entry(
        "g10-17",
        "G10 figure 17: host memory and policies",
        g10::figure_17,
    ),
    entry("g10-18", "G10 figure 18: SSD bandwidth", g10::figure_18),
    entry("g10-19", "G10 figure 19: wrong profiles", g10::figure_19),
    entry(
        "most-1",
        "MOST figure 1: oversubscription stalls in the step",
        most::figure_1,
    ),
    entry("most-5", "MOST figure 5: speedup over UVM", most::figure_5),
    entry(
        "most-6",
        "MOST figure 6: oversubscription stalls against UVM's",
        most::figure_6,
    ),
    entry("most-7", "MOST figure 7: several GPUs", most::figure_7),
    entry("most-8", "MOST figure 8: SSD bandwidth", most::figure_8),
    entry(
        "deepum-9",
        "DeepUM figure 9(b): 100 iterations",
        deepum::figure_9,
    ),
    entry(
        "deepum-10",
        "DeepUM figure 10: what each part gains",
        deepum::figure_10,
    ),
    entry(
        "deepum-11",
        "DeepUM figure 11: kernels looked ahead",
        deepum::figure_11,
    ),
    entry(
        "deepum-12",
        "DeepUM figure 12 and table 6: shapes of the tables",
        deepum::figure_12,
    ),
    entry(
        "deepum-t3",
        "DeepUM table 3: largest batches",
        deepum::table_3,
    ),
    entry(
        "deepum-t4",
        "DeepUM table 4: memory of the tables",
        deepum::table_4,
    ),
    entry("deepum-t5", "DeepUM table 5: faults", deepum::table_5),
    entry(
        "deepum-t7",
        "DeepUM table 7: largest batches in 128 GB",
        deepum::table_7,
    ),
    entry(
        "autovm-t6.2",
        "AutoVM table 6.2: speedup over UVM",
        autovm::table_6_2,
    ),
    entry(
        "discard-t1",
        "UvmDiscard table 1: VGG-16 on a GTX 1070",
        discard::table_1,
    ),
    entry("discard-t3", "UvmDiscard table 3: FIR", discard::table_3),
    entry(
        "discard-t4",
        "UvmDiscard table 4: traffic of FIR",
        discard::table_4,
    ),
    entry(
        "discard-t5",
        "UvmDiscard table 5: radix sort",
        discard::table_5,
    ),
    entry(
        "discard-t7",
        "UvmDiscard table 7: hash join",
        discard::table_7,
    ),
    entry(
        "discard-6",
        "UvmDiscard figure 6: training on PCIe 4",
        discard::figure_6,
    ),
    entry(
        "discard-7",
        "UvmDiscard figure 7: training on PCIe 3",
        discard::figure_7,
    ),
];

/// The entries that `only` names; all if it names none.
fn select(only: &[String]) -> Result<Vec<&'static Entry>, Failure> {
    let named = |entry: &Entry, name: &str| {
        let whole = entry.name == name;
        // "g10-1" is no start of "g10-11": names go on after a dash.
        whole
            || entry
                .name
                .strip_prefix(name)
                .is_some_and(|rest| rest.starts_with('-'))
    };
    for name in only {
        if !FIGURES.iter().any(|e| named(e, name)) {
            return Err(Failure::usage(format!(
                "there is no figure called `{name}`; `uvmsim figures --list` shows what there is"
            )));
        }
    }
    let wanted = |e: &&Entry| only.is_empty() || only.iter().any(|name| named(e, name));
    Ok(FIGURES.iter().filter(wanted).collect())
}

/// Where the G10 artifact's data are looked for.
fn traces(given: Option<&Path>) -> PathBuf {
    if let Some(dir) = given {
        return dir.into();
    }
    let shared = std::env::var_os("UVM_SHARED").map_or_else(|| "../shared".into(), PathBuf::from);
    shared.join("g10/traces")
}

/// Makes the figures of `entries`; `done` is told of each run.
fn make(
    entries: &[&Entry],
    traces: PathBuf,
    threads: usize,
    limit: Option<Duration>,
    begin: impl FnOnce(usize),
    done: impl Fn(&str) + Sync,
) -> Vec<Figure> {
    let mut desk = Desk::new(traces);
    for e in entries {
        (e.make)(&mut desk);
    }
    begin(desk.pending());
    desk.run(threads, limit, done);
    entries.iter().map(|e| (e.make)(&mut desk)).collect()
}

fn object(v: &Value) -> Json {
    match v {
        Value::Number(v) => json!(v),
        Value::Fails(why) => json!({ "fails": why }),
        Value::Absent(why) if why.is_empty() => Json::Null,
        Value::Absent(why) => json!({ "missing": why }),
    }
}

/// The figures as JSON.
fn objects(figures: &[Figure]) -> Json {
    let figure = |f: &Figure| {
        let row = |r: &published::Row| {
            let cells = f.columns.iter().zip(&r.cells).map(|(column, c)| {
                let pair = json!({ "published": object(&c.published), "ours": object(&c.ours) });
                (column.clone(), pair)
            });
            json!({ "label": r.label, "cells": cells.collect::<serde_json::Map<_, _>>() })
        };
        json!({
            "name": f.name,
            "source": f.source,
            "title": f.title,
            "unit": f.unit,
            "published": f.published,
            "ours": f.machine,
            "agreement": f.agreement(),
            "notes": f.notes,
            "columns": f.columns,
            "rows": f.rows.iter().map(row).collect::<Vec<_>>(),
        })
    };
    json!({ "figures": figures.iter().map(figure).collect::<Vec<_>>() })
}

/// Runs `uvmsim figures`.
pub fn main(args: &Args) -> Result<(), Failure> {
    let entries = select(&args.only)?;
    if args.list {
        let line = |e: &&Entry| format!("{:<12} {}\n", e.name, e.what);
        return crate::write_file("-", &entries.iter().map(line).collect::<String>());
    }
    let dir = traces(args.traces.as_deref());
    if args.traces.is_some() && !dir.is_dir() {
        return Err(Failure::usage(format!("{}: no such folder", dir.display())));
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let bar = ProgressBar::new(0);
    bar.set_style(
        ProgressStyle::with_template("{bar:24} {pos}/{len} runs, {elapsed} {wide_msg}")
            .unwrap_or_else(|_| ProgressStyle::default_bar()),
    );
    bar.enable_steady_tick(Duration::from_millis(200));
    let begin = |runs| bar.set_length(runs as u64);
    let said = Mutex::new(Instant::now());
    let done = |what: &str| {
        bar.set_message(what.to_string());
        bar.inc(1);
        // Where there is no terminal to draw on, a line now and then.
        if let (true, Ok(mut said)) = (bar.is_hidden(), said.lock()) {
            if said.elapsed() > SAY_EVERY {
                *said = Instant::now();
                let (n, all) = (bar.position(), bar.length().unwrap_or(0));
                eprintln!("{n} of {all} runs, {:.0} s", bar.elapsed().as_secs_f64());
            }
        }
    };
    let figures = make(
        &entries,
        dir,
        args.threads.unwrap_or(cores),
        args.limit.map(Duration::from_secs),
        begin,
        done,
    );
    bar.finish_and_clear();
    if let Some(path) = &args.html {
        let command = std::env::args().skip(1).collect::<Vec<_>>().join(" ");
        crate::write_file(
            path,
            &published::page(&figures, &format!("uvmsim {command}")),
        )?;
        eprintln!("page: {path}");
    }
    if let Some(folder) = &args.svg {
        std::fs::create_dir_all(folder)
            .map_err(|e| Failure::run(format!("{}: {e}", folder.display())))?;
        for f in &figures {
            let path = folder.join(format!("{}.svg", f.name));
            std::fs::write(&path, uvmsim_report::svg::standalone(&f.svg()))
                .map_err(|e| Failure::run(format!("{}: {e}", path.display())))?;
        }
    }
    let text = if args.json {
        format!("{:#}\n", objects(&figures))
    } else {
        figures
            .iter()
            .map(Figure::text)
            .collect::<Vec<_>>()
            .join("\n")
    };
    crate::write_file("-", &text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(only: &[&str]) -> Vec<&'static str> {
        let only: Vec<String> = only.iter().map(ToString::to_string).collect();
        select(&only).map_or(Vec::new(), |e| e.iter().map(|e| e.name).collect())
    }

    #[test]
    fn figures_are_named_by_themselves_or_their_paper() {
        assert_eq!(names(&["g10-11"]), ["g10-11"]);
        assert_eq!(names(&["most"]).len(), 5);
        assert_eq!(names(&["g10-1"]), Vec::<&str>::new());
        assert_eq!(names(&[]).len(), FIGURES.len());
        let mut all = names(&[]);
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), FIGURES.len(), "names are unique");
    }

    #[test]
    fn numbers_do_not_depend_on_threads() {
        let entries = select(&["discard-t3", "deepum-t7"].map(String::from)).unwrap_or_default();
        assert_eq!(entries.len(), 2);
        let run = |threads| {
            let figures = make(&entries, traces(None), threads, None, |_| {}, |_| {});
            objects(&figures).to_string()
        };
        assert_eq!(run(1), run(3));
    }

    #[test]
    fn runs_that_the_limit_forbids_are_said_to_be_missing() {
        let entries = select(&["discard-t3".into()]).unwrap_or_default();
        let figures = make(
            &entries,
            traces(None),
            1,
            Some(Duration::ZERO),
            |_| {},
            |_| {},
        );
        assert!(figures[0].text().contains("--limit"));
        assert_eq!(figures[0].agreement(), None);
    }

    #[test]
    fn without_the_artifact_figures_say_so() {
        let entries = select(&["g10-11".into(), "g10-19".into()]).unwrap_or_default();
        for f in make(&entries, "/nonexistent".into(), 1, None, |_| {}, |_| {}) {
            assert!(f
                .rows
                .iter()
                .all(|r| r.cells.iter().all(|c| c.ours.number().is_none())));
            assert!(f.text().contains("/nonexistent"), "{}", f.text());
        }
    }
}
