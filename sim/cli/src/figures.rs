// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! `uvmsim figures`: the papers' tables and figures beside ours.
//!
//! What the papers print is data (`figures.toml`). A figure is a function that asks a [`Desk`]
//! for runs and puts what it gets beside that. Every figure is called twice: the first time the desk
//! only notes what is asked for; then all runs are made, on all cores, each once,
//! however many figures want it; the second time the figures get them.

mod artifact;
mod autovm;
mod deepum;
mod desk;
mod discard;
mod g10;
mod most;
mod sheet;
mod teraio;

use std::path::Path;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;
use std::time::Instant;

use serde_json::json;
use serde_json::Value as Json;
use uvmsim_report::published;
use uvmsim_report::published::Figure;
use uvmsim_report::published::Row;
use uvmsim_report::published::Value;

use crate::pool;
use crate::progress;
use crate::Failure;
use desk::Desk;
use sheet::Sheet;
use sheet::SHEETS;

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

/// What makes the lines of a figure.
type Make = fn(&mut Desk, &Sheet) -> Vec<Row>;

/// By the figures' names.
const MAKERS: [(&str, Make); 36] = [
    ("g10-11", g10::figure_11),
    ("g10-12", g10::figure_12),
    ("g10-13", g10::figure_13),
    ("g10-14", g10::figure_14),
    ("g10-15", g10::figure_15),
    ("g10-16", g10::figure_16),
    ("g10-17", g10::figure_17),
    ("g10-18", g10::figure_18),
    ("g10-19", g10::figure_19),
    ("most-1", most::figure_1),
    ("most-5", most::figure_5),
    ("most-6", most::figure_6),
    ("most-7", most::figure_7),
    ("most-8", most::figure_8),
    ("deepum-9", deepum::figure_9),
    ("deepum-10", deepum::figure_10),
    ("deepum-11", deepum::figure_11),
    ("deepum-12", deepum::figure_12),
    ("deepum-t3", deepum::largest),
    ("deepum-t4", deepum::table_4),
    ("deepum-t5", deepum::table_5),
    ("deepum-t7", deepum::largest),
    ("autovm-t6.2", autovm::table_6_2),
    ("discard-t1", discard::table_1),
    ("discard-t3", |d, s| discard::run_times(d, s, discard::FIR)),
    ("discard-t4", |d, s| discard::traffic(d, s, discard::FIR)),
    ("discard-t5", |d, s| discard::run_times(d, s, discard::SORT)),
    ("discard-t6", |d, s| discard::traffic(d, s, discard::SORT)),
    ("discard-t7", discard::table_7),
    ("discard-t8", discard::table_8),
    ("discard-6", |d, _| discard::throughput(d, discard::PCIE4)),
    ("discard-7", |d, _| discard::throughput(d, discard::PCIE3)),
    ("teraio-1", teraio::figure_1),
    ("teraio-7", teraio::figure_7),
    ("teraio-7-m", teraio::memory),
    ("teraio-9", teraio::figure_9),
];

/// The figures that `only` names; all if it names none.
fn select(only: &[String]) -> Result<Vec<&'static Sheet>, Failure> {
    // "g10-1" is no start of "g10-11": names go on after a dash.
    let named = |sheet: &Sheet, name: &str| {
        let rest = sheet.figure.name.strip_prefix(name);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    };
    for name in only {
        if !SHEETS.iter().any(|s| named(s, name)) {
            return Err(Failure::usage(format!(
                "there is no figure called `{name}`; `uvmsim figures --list` shows what there is"
            )));
        }
    }
    let wanted = |s: &&Sheet| only.is_empty() || only.iter().any(|name| named(s, name));
    Ok(SHEETS.iter().filter(wanted).collect())
}

/// The figure of `sheet`, as far as its runs have been made.
fn figure(sheet: &Sheet, desk: &mut Desk) -> Figure {
    let make = MAKERS.iter().find(|m| m.0 == sheet.figure.name);
    sheet.with(make.map_or(Vec::new(), |m| m.1(desk, sheet)))
}

/// Where the G10 artifact's data are looked for.
fn traces(given: Option<&Path>) -> PathBuf {
    if let Some(dir) = given {
        return dir.into();
    }
    let shared = std::env::var_os("UVM_SHARED").map_or_else(|| "../shared".into(), PathBuf::from);
    shared.join("g10/traces")
}

/// Makes the figures of `sheets`; `done` is told of each run.
fn make(
    sheets: &[&Sheet],
    traces: PathBuf,
    threads: usize,
    limit: Option<Duration>,
    begin: impl FnOnce(usize),
    done: impl Fn(&str) + Sync,
) -> Vec<Figure> {
    let mut desk = Desk::new(traces);
    for sheet in sheets {
        figure(sheet, &mut desk);
    }
    begin(desk.pending());
    desk.run(threads, limit, done);
    sheets.iter().map(|s| figure(s, &mut desk)).collect()
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
        let row = |r: &Row| {
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

pub fn main(args: &Args) -> Result<(), Failure> {
    let sheets = select(&args.only)?;
    if args.list {
        let line = |s: &&Sheet| {
            let f = &s.figure;
            format!("{:<12} {}: {}\n", f.name, f.source, f.title)
        };
        return crate::write_file("-", &sheets.iter().map(line).collect::<String>());
    }
    let dir = traces(args.traces.as_deref());
    if args.traces.is_some() && !dir.is_dir() {
        return Err(Failure::usage(format!("{}: no such folder", dir.display())));
    }
    let cores = pool::cores();
    let bar = progress::of(0, "runs");
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
    let limit = args.limit.map(Duration::from_secs);
    let threads = args.threads.unwrap_or(cores);
    let figures = make(&sheets, dir, threads, limit, begin, done);
    bar.finish_and_clear();
    if let Some(path) = &args.html {
        crate::write_file(path, &published::page(&figures, &crate::command_line()))?;
        eprintln!("page: {path}");
    }
    if let Some(folder) = &args.svg {
        let plots = figures.iter().map(|f| (f.name.clone(), f.svg()));
        crate::write_plots(folder, plots)?;
    }
    if args.json {
        return crate::print_json(&objects(&figures));
    }
    let texts: Vec<String> = figures.iter().map(Figure::text).collect();
    crate::write_file("-", &texts.join("\n"))
}

#[cfg(test)]
mod tests {
    use uvmsim_report::published::Cell;

    use super::*;

    fn selected(only: &[&str]) -> Vec<&'static Sheet> {
        let only: Vec<String> = only.iter().map(ToString::to_string).collect();
        select(&only).unwrap_or_default()
    }

    fn names(only: &[&str]) -> Vec<&'static str> {
        let selected = selected(only).into_iter();
        selected.map(|s| s.figure.name.as_str()).collect()
    }

    /// Those figures, without runs.
    fn not_run(only: &[&str], traces: &str) -> Vec<Figure> {
        let none = Some(Duration::ZERO);
        make(&selected(only), traces.into(), 1, none, |_| {}, |_| {})
    }

    #[test]
    fn figures_are_named_by_themselves_or_their_paper() {
        assert_eq!(names(&["g10-11"]), ["g10-11"]);
        assert_eq!(names(&["most"]).len(), 5);
        assert_eq!(names(&["g10-1"]), Vec::<&str>::new());
        assert_eq!(names(&[]), MAKERS.map(|m| m.0));
        let mut all = names(&[]);
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), MAKERS.len(), "names are unique");
    }

    /// Rows of the data that a figure cannot read would leave it without lines.
    #[test]
    fn every_figure_has_lines_with_a_cell_for_each_column() {
        for f in not_run(&[], "/nonexistent") {
            assert!(f.rows.len() > 1 || f.name.starts_with("g10"), "{}", f.name);
            for row in &f.rows {
                assert_eq!(row.cells.len(), f.columns.len(), "{} {}", f.name, row.label);
            }
            let said = [&f.published, &f.machine, &f.unit, &f.title, &f.source];
            assert!(said.iter().all(|s| !s.is_empty()), "{}", f.name);
        }
    }

    #[test]
    fn numbers_do_not_depend_on_threads() {
        let sheets = selected(&["discard-t3", "deepum-t7"]);
        assert_eq!(sheets.len(), 2);
        let run = |threads| {
            let figures = make(&sheets, traces(None), threads, None, |_| {}, |_| {});
            objects(&figures).to_string()
        };
        assert_eq!(run(1), run(3));
    }

    /// Ours over the paper's, of each cell that has both, in order.
    fn quotients(figure: &Figure) -> Vec<f64> {
        let cells = figure.rows.iter().flat_map(|r| &r.cells);
        let quotient = |c: &Cell| Some(c.ours.number()? / c.published.number()?);
        let mut all: Vec<f64> = cells.filter_map(quotient).collect();
        all.sort_by(f64::total_cmp);
        all
    }

    /// The means of MOST's figures, and how far AutoVM's table is off, as the documentation has them
    /// (docs/simulator-figures.md). They are no bars to reach: what changes them changes the text.
    #[test]
    fn what_is_said_of_most_and_autovm_is_so() {
        let dir = traces(None);
        let without = !dir.is_dir();
        let sheets = selected(&["most-5", "most-8", "autovm"]);
        let figures = make(&sheets, dir, 2, None, |_| {}, |_| {});
        let near = |ours: f64, said: f64| (ours / said - 1.0).abs() < 0.005;
        for figure in &figures {
            let said: &[f64] = match &*figure.name {
                "most-5" => &[2.436, 1.215, 1.070],
                "most-8" => &[1.153, 1.178],
                _ => {
                    let all = quotients(figure);
                    let found = [all[0], (all[6] + all[7]) / 2.0, all[13]];
                    let said = found.into_iter().zip([0.50, 1.00, 1.43]);
                    assert!(
                        said.into_iter().all(|(f, s)| (f - s).abs() < 0.01),
                        "{found:?}"
                    );
                    continue;
                }
            };
            if without {
                continue;
            }
            let means = figure.rows.last().map_or(&[][..], |row| &row.cells);
            let means: Vec<f64> = means.iter().filter_map(|c| c.ours.number()).collect();
            let same = means.len() == said.len();
            let same = same && means.iter().zip(said).all(|(m, s)| near(*m, *s));
            assert!(same, "{}: {means:?}, said to be {said:?}", figure.name);
        }
    }

    /// The same of TERAIO: what kernels use, what steps need, and what half of the memories costs.
    #[test]
    fn what_is_said_of_teraio_is_so() {
        let sheets = selected(&["teraio-1", "teraio-7-m", "teraio-9"]);
        let figures = make(&sheets, "".into(), 2, None, |_| {}, |_| {});
        let cells = figures[0].rows.iter().flat_map(|r| &r.cells);
        let used: Vec<f64> = cells.filter_map(|c| c.ours.number()).collect();
        let needed = quotients(&figures[1]);
        let found = [used[0], used[1], used[2], used[3], needed[0], needed[14]];
        let half = quotients(&figures[2])[0] * 0.731;
        let said = [0.566, 9.79, 0.887, 19.57, 0.802, 0.970, 0.588];
        let mut all = found.into_iter().chain([half]).zip(said);
        assert!(
            all.all(|(f, s)| (f / s - 1.0).abs() < 0.005),
            "{found:?} {half}"
        );
    }

    #[test]
    fn runs_that_the_limit_forbids_are_said_to_be_missing() {
        let figures = not_run(&["discard-t3"], "");
        assert!(figures[0].text().contains("--limit"));
        assert_eq!(figures[0].agreement(), None);
    }

    #[test]
    fn without_the_artifact_figures_say_so() {
        for f in not_run(&["g10-11", "g10-19"], "/nonexistent") {
            let mut cells = f.rows.iter().flat_map(|r| &r.cells);
            assert!(cells.all(|c| c.ours.number().is_none()));
            assert!(f.text().contains("/nonexistent"), "{}", f.text());
        }
    }
}
