// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Screens and pages, compared with those in `tests/golden`. `UVMTOP_BLESS=1` writes these.

use std::collections::BTreeMap;
use std::path::PathBuf;

use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::Terminal;

use super::fake::{nothing, ours, theirs, Fake, T4};
use crate::kept::Kept;
use crate::sample::{Sample, Source};
use crate::terminal::{draw, Looks};
use crate::view::View;
use crate::{prometheus, screen};

/// What a terminal of that size shows.
fn drawn(view: &View, looks: &mut Looks, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, view, looks)).unwrap();
    let cells = terminal.backend().buffer();
    let mut text = String::new();
    for y in 0..height {
        let line: String = (0..width).map(|x| cells[(x, y)].symbol()).collect();
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn is_golden(name: &str, text: &str) {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let path = folder.join(format!("{name}.txt"));
    if std::env::var_os("UVMTOP_BLESS").is_some() {
        std::fs::create_dir_all(folder).unwrap();
        std::fs::write(&path, text).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        golden == text,
        "not as {}; it is now:\n{text}",
        path.display()
    );
}

/// After a minute of which some seconds were busier, as a source gives it.
fn worked(sample: fn(u64) -> Sample) -> View {
    let mut seconds = 0;
    let mut samples: Vec<_> = (0..60).map(|_| Sample::default()).collect();
    for (index, place) in samples.iter_mut().enumerate() {
        *place = sample(seconds);
        place.at = std::time::Duration::from_secs(index as u64);
        seconds += if index % 7 == 3 { 3 } else { 1 };
    }
    let mut source = Fake(samples);
    let mut view = View::new(source.sample());
    for _ in 1..60 {
        view.update(source.sample());
    }
    view
}

#[test]
fn screens_of_all_sizes() {
    let (ours, theirs) = (worked(ours), worked(theirs));
    for (width, height) in [(80, 24), (40, 10), (132, 30)] {
        let name = format!("ours-{width}x{height}");
        is_golden(&name, &drawn(&ours, &mut Looks::default(), width, height));
    }
    is_golden(
        "theirs-80x24",
        &drawn(&theirs, &mut Looks::default(), 80, 24),
    );
    let nothing = View::new(nothing());
    is_golden(
        "nothing-40x10",
        &drawn(&nothing, &mut Looks::default(), 40, 10),
    );
    let mut looks = Looks {
        missing: true,
        ..Looks::default()
    };
    is_golden("missing-40x10", &drawn(&ours, &mut looks, 40, 10));
}

/// With all columns, and a process that takes all that it may.
#[test]
fn a_wide_screen_has_all_numbers_of_a_process() {
    let view = worked(|seconds| {
        let mut sample = ours(seconds);
        sample.processes[1].bytes_gpu_max = [(1, 7168 << 20)].into();
        sample
    });
    let text = drawn(&view, &mut Looks::default(), 200, 24);
    is_golden("full-200x24", &text);
    let page = screen::body(&view, crate::PAGE);
    let has_last = |line: &ratatui::text::Line<'_>| line.to_string().ends_with("TENANT SSD");
    assert!(
        page.iter().any(has_last),
        "a page of --once is too narrow: {page:?}"
    );
    assert!(text.contains(" 7.0 GiB    7.0 GiB! "), "{text}");
    // A maximum of another GPU is none of this one's, and one byte less is not all.
    for (max, mark) in [
        ([(2, 1)], false),
        ([(1, (7168 << 20) + 1)], false),
        ([(1, 0)], true),
    ] {
        let mut sample = ours(1);
        sample.processes[1].bytes_gpu_max = max.into();
        assert_eq!(sample.processes[1].is_at_maximum(), mark, "{max:?}");
    }
}

#[test]
fn hidden_processes_are_counted_as_far_as_they_are_shown() {
    let head = |hides, count| {
        let mut sample = ours(1);
        (sample.processes_hidden, sample.processes_hidden_count) = (hides, count);
        screen::head(&View::new(sample), 100).to_string()
    };
    assert!(
        head(false, Some(0)).contains("users 2  ") || head(false, Some(0)).ends_with("users 2")
    );
    assert!(head(true, Some(41)).contains("users 2  hidden 41"));
    assert!(head(true, None).contains("users 2  hidden ?"));
}

#[test]
fn no_size_is_too_small() {
    let view = worked(ours);
    for width in (0..24).chain([39, 63, 64, 65]) {
        for height in [0, 1, 2, 5] {
            for missing in [false, true] {
                let mut looks = Looks {
                    missing,
                    above: 1000,
                    ..Looks::default()
                };
                drawn(&view, &mut looks, width, height);
            }
        }
    }
}

#[test]
fn who_scrolls_too_far_sees_the_end() {
    let mut looks = Looks {
        above: 1000,
        ..Looks::default()
    };
    let shown = drawn(&worked(ours), &mut looks, 40, 10);
    assert!(
        shown.contains("a[2Jb") && !shown.contains("more"),
        "{shown}"
    );
    assert_eq!(looks.above, 6);
}

#[test]
fn the_first_sample_has_sums_and_no_rates() {
    let page = |view: &View| {
        let lines = screen::body(view, 100).into_iter();
        let lines: Vec<_> = lines.map(|line| line.to_string()).collect();
        lines.join("\n")
    };
    let mut view = View::new(ours(10));
    let text = page(&view);
    let sums = "so far  in 400 MiB  out 100 MiB  faults 50.0k";
    assert!(text.contains(sums), "{text}");
    assert!(!text.contains("/s"), "{text}");
    // The same moment again: there is no second to speak of.
    view.update(ours(10));
    assert!(!page(&view).contains("/s"), "{}", page(&view));
    view.update(ours(12));
    let text = page(&view);
    assert!(text.contains("40.0 MiB/s"), "{text}");
    assert!(text.contains("duplicates 20 %"), "{text}");
}

#[test]
fn counters_that_begin_anew_give_no_spike() {
    let mut view = View::new(ours(1000));
    let mut anew = ours(2);
    anew.at = std::time::Duration::from_secs(1001);
    view.update(anew);
    let rates = view.rates[T4];
    assert_eq!(rates.faults, 10000.0);
    assert_eq!(rates.to_gpu.total(), 80.0 * 1048576.0);
    // A GPU that was away leaves a gap, and no rate across it.
    let mut away = ours(2);
    away.at = std::time::Duration::from_secs(1002);
    away.gpus[0].counts = None;
    view.update(away);
    assert!(!view.rates.contains_key(T4));
    assert_eq!(view.history[T4].faults, [Some(10000.0), None]);
}

/// A process has its own bars, with a gap where nothing is known of a second, and none when it is gone.
#[test]
fn what_each_process_moves_has_a_sparkline() {
    let mut view = View::new(ours(0));
    let mut next = |seconds: u64, change: fn(&mut Sample)| {
        let mut sample = ours(seconds);
        change(&mut sample);
        view.update(sample);
        let bars = |pid| {
            view.moved
                .get(&pid)
                .map(|line| line.iter().copied().collect())
        };
        (bars(1234), bars(77))
    };
    let mib = |moved: f64| Some(moved * 1048576.0);
    let both = |line: &[Option<f64>]| Some(line.to_vec());
    let still = [Some(0.0); 3];
    assert_eq!(next(1, |_| ()), (both(&[mib(50.0)]), both(&still[..1])));
    let another = |sample: &mut Sample| {
        sample.processes[1].clients.insert(99);
    };
    let gap = [mib(50.0), None];
    assert_eq!(next(2, another), (both(&gap), both(&still[..2])));
    let gone = |sample: &mut Sample| drop(sample.processes.remove(1));
    assert_eq!(next(3, gone), (None, both(&still)));
}

#[test]
fn a_command_is_no_escape_sequence() {
    let shown = drawn(&worked(ours), &mut Looks::default(), 80, 40);
    assert!(!shown.contains('\u{1b}'), "{shown:?}");
    assert!(shown.contains("a[2Jb"), "{shown}");
}

#[test]
fn keys() {
    let key = |code| KeyEvent::new(code, KeyModifiers::NONE);
    let mut looks = Looks::default();
    looks.key(key(KeyCode::PageDown), 12);
    assert_eq!(looks.above, 10);
    looks.key(key(KeyCode::Up), 12);
    assert_eq!(looks.above, 9);
    looks.key(key(KeyCode::Char('?')), 12);
    assert!(looks.missing && looks.above == 0);
    looks.key(key(KeyCode::Char('q')), 12);
    assert!(!looks.missing && !looks.ended, "q goes back first");
    looks.key(key(KeyCode::Char('p')), 12);
    assert!(looks.paused);
    looks.key(key(KeyCode::Char('q')), 12);
    assert!(looks.ended);
    let mut looks = Looks::default();
    looks.key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL), 12);
    assert!(looks.ended);
}

#[test]
fn what_prometheus_gets() {
    let mut sample = ours(10);
    sample.processes[0].command = "a\"b\\".into();
    let mut kept = Kept::default();
    let text = prometheus::text(&sample, &mut kept);
    is_golden("prometheus", &text);
    // Each family once, and each value with a family.
    let mut families = std::collections::BTreeSet::new();
    let mut family = "";
    for line in text.lines() {
        match line.strip_prefix("# TYPE ") {
            Some(about) => {
                family = about.split(' ').next().unwrap();
                assert!(families.insert(family), "{family} twice");
            }
            None if line.starts_with('#') => {}
            None => {
                let name = line.split(['{', ' ']).next().unwrap();
                assert_eq!(name, family);
                let value = line.rsplit(' ').next().unwrap();
                assert!(value.parse::<u64>().is_ok(), "{line}");
            }
        }
    }
    // A process that closes one of its VA spaces: no counter becomes less.
    let numbers = |text: &str| -> BTreeMap<String, u64> {
        let lines = text.lines().filter(|line| line.contains("_total{pid"));
        let values = lines.filter_map(|line| line.rsplit_once(' '));
        let numbers = values.map(|(name, n)| (name.to_owned(), n.parse().unwrap()));
        numbers.collect()
    };
    for counts in sample.processes[0].gpus.iter_mut().flatten() {
        *counts.1 = uvmrust_system::Counts::default();
    }
    let later = numbers(&prometheus::text(&sample, &mut kept));
    assert!(later.len() > 3 && later == numbers(&text), "{later:?}");
    // What is not known is absent.
    let text = prometheus::text(&theirs(10), &mut kept);
    assert!(!text.contains("faults_total"), "{text}");
    assert!(prometheus::text(&nothing(), &mut kept).contains("module=\"none\""));
}

#[test]
fn what_programs_get() {
    let sample: serde_json::Value = serde_json::to_value(ours(10)).unwrap();
    assert_eq!(sample["format"], 1);
    assert_eq!(sample["seconds"], 10.0);
    assert_eq!(sample["gpus"][0]["uuid"], T4);
    assert_eq!(
        sample["gpus"][0]["counts"]["host_to_gpu"]["fault"],
        104857600
    );
    assert_eq!(sample["gpus"][0]["queued"]["discarded"], 30);
    assert!(sample["gpus"][1]["counts"].is_null());
    assert_eq!(sample["processes"][1]["gpus"]["1"]["faults"], 50000);
    assert_eq!(sample["processes"][1]["bytes_ssd_tenant"], 1610612736);
    assert!(sample["processes"][0]["bytes_ssd_tenant"].is_null());
    assert_eq!(sample["processes"][1]["bytes_host"], 3221225472_u64);
    assert_eq!(sample["processes"][1]["bytes_ssd"], 536870912);
    assert!(sample["processes"][0]["bytes_host"].is_null());
    let on_gpu = |process: usize| &sample["processes"][process]["bytes_gpu"];
    assert_eq!(on_gpu(1)["1"], 7516192768_u64);
    assert_eq!(sample["processes"][1]["bytes_gpu_discarded"]["1"], 62914560);
    assert_eq!(sample["processes"][1]["gpus"]["1"]["thrashed"], 30);
    assert_eq!(sample["gpus"][0]["counts"]["prefetch_wasted"], 20);
    assert_eq!(sample["processes_hidden_count"], 0);
    assert!(on_gpu(0).is_null());
    assert_eq!(sample["processes"][1]["bytes_gpu_max"]["1"], 8589934592_u64);
    assert_eq!(sample["processes"][1]["bytes_gpu_low"]["1"], 2147483648_u64);
    assert_eq!(sample["ssd"]["all"]["spilled"], 52428800);
}
