// SPDX-License-Identifier: GPL-2.0-only OR MIT

use uvmsim_physical::policies;
use uvmsim_physical::Layout;
use uvmsim_physical::Limits;

use super::*;

fn vgg16(machine: &Machine) -> Trace {
    let options = uvmsim_zoo::Options::new(16, uvmsim_zoo::Precision::Fp32);
    uvmsim_zoo::find("vgg16").unwrap().trace(&options, machine)
}

const POLICIES: [&str; 5] = ["base-uvm", "g10", "g10-host", "flashneuron", "ideal"];

/// What each of these policies makes of a step, with a timeline if there are bins for one.
pub(crate) fn outcomes(
    names: &[&str],
    trace: &Trace,
    machine: &Machine,
    bins: usize,
) -> Vec<(String, Result<Outcome, String>)> {
    let w = Workload::from_trace(trace);
    let l = Layout::new(&w);
    let limits = Limits {
        bins,
        ..Limits::default()
    };
    let outcome = |name: &&str| {
        let run = policies::make(name, machine, &w, &l)
            .and_then(|mut p| uvmsim_physical::run(machine, &w, &l, p.as_mut(), limits));
        (name.to_string(), run.map_err(|e| e.to_string()))
    };
    names.iter().map(outcome).collect()
}

#[test]
fn a_page_holds_every_policy_and_needs_nothing_else() {
    let mut machine = uvmsim_machine::presets::find("v100-16").unwrap();
    machine.gpu_mem = 2 << 30;
    let trace = vgg16(&machine);
    let outcomes = outcomes(&POLICIES, &trace, &machine, 50);
    let report = Report {
        trace: &trace,
        machine: &machine,
        outcomes: &outcomes,
        bound_s: Some(0.5),
        command: "a <b>".into(),
    };
    let html = report.html();
    for name in POLICIES {
        assert!(html.contains(name), "{name}");
    }
    assert!(html.contains("needs an SSD"), "why a policy could not run");
    for word in ["src=", "<script", "NaN", "inf "] {
        assert!(!html.contains(word), "{word}");
    }
    let count = |tag: &str| html.matches(tag).count();
    assert_eq!(count("<svg "), count("</svg>"));
    // Three policies ran with a timeline: three plots each, and three for all.
    assert_eq!(report.figures().len(), 12);
    let text = table(&outcomes);
    for line in text.lines() {
        assert!(line.len() <= 80 || line.contains("needs"), "{line}");
    }
    // What is no policy under UVM is marked, and the mark explained.
    for said in ["g10-host*", NO_UVM] {
        assert!(text.contains(said) && html.contains(said), "{said}: {text}");
    }
    assert_eq!(text.matches('*').count(), 2, "{text}");
}

#[test]
fn numbers_are_read_in_threes() {
    let numbers = [0, 999, 1000, 8_416_350].map(grouped);
    assert_eq!(numbers, ["0", "999", "1,000", "8,416,350"]);
}

/// What the bins hold is what the counters say.
#[test]
fn timelines_add_up() {
    let mut machine = uvmsim_machine::presets::find("a100").unwrap();
    machine.gpu_mem = 2 << 30;
    let trace = vgg16(&machine);
    for (name, o) in outcomes(&POLICIES, &trace, &machine, 50) {
        let Ok(o) = o else {
            assert_eq!(name, "flashneuron", "{o:?}");
            continue;
        };
        let Some(t) = &o.timeline else { continue };
        let sum = |f: fn(&uvmsim_physical::Bin) -> f64| t.bins.iter().map(f).sum::<f64>();
        let off = sum(|b| b.stalled) - o.stalls.total() as f64;
        assert!(off.abs() < 1e-3 * o.step_ns as f64, "{name}");
        // Copies may end after the step does.
        let moved = sum(|b| b.host_in + b.ssd_in + b.host_out + b.ssd_out);
        let all = o.bytes.total() as f64;
        assert!(moved <= all * 1.0001 && moved > 0.9 * all, "{name}");
    }
}
