// SPDX-License-Identifier: GPL-2.0 OR MIT

use uvmsim_physical::policies;
use uvmsim_physical::Layout;
use uvmsim_physical::Limits;

use super::*;

fn vgg16(machine: &Machine) -> Trace {
    let options = uvmsim_zoo::Options::new(16, uvmsim_zoo::Precision::Fp32);
    uvmsim_zoo::find("vgg16").unwrap().trace(&options, machine)
}

fn outcomes(trace: &Trace, machine: &Machine) -> Vec<(String, Result<Outcome, String>)> {
    let w = Workload::from_trace(trace);
    let l = Layout::new(&w);
    let limits = Limits {
        bins: 50,
        ..Limits::default()
    };
    ["base-uvm", "g10", "flashneuron", "ideal"]
        .into_iter()
        .map(|name| {
            let run = policies::make(name, machine, &w, &l)
                .and_then(|mut p| uvmsim_physical::run(machine, &w, &l, p.as_mut(), limits));
            (name.to_string(), run.map_err(|e| e.to_string()))
        })
        .collect()
}

#[test]
fn a_page_holds_every_policy_and_needs_nothing_else() {
    let mut machine = uvmsim_machine::presets::find("v100-16").unwrap();
    machine.gpu_mem = 2 << 30;
    let trace = vgg16(&machine);
    let outcomes = outcomes(&trace, &machine);
    let report = Report {
        trace: &trace,
        machine: &machine,
        outcomes: &outcomes,
        bound_s: Some(0.5),
        command: "a <b>".into(),
    };
    let html = report.html();
    for name in ["base-uvm", "g10", "flashneuron", "ideal"] {
        assert!(html.contains(name), "{name}");
    }
    assert!(html.contains("needs an SSD"), "why a policy could not run");
    assert!(
        !html.contains("src=")
            && !html.contains("<script")
            && !html.contains("NaN")
            && !html.contains("inf ")
    );
    assert_eq!(
        html.matches("<svg ").count(),
        html.matches("</svg>").count()
    );
    // Two policies ran with a timeline: three plots each, and three for all.
    assert_eq!(report.figures().len(), 9);
    for line in table(&outcomes).lines() {
        assert!(line.len() <= 80 || line.contains("needs"), "{line}");
    }
}

#[test]
fn numbers_are_read_in_threes() {
    for (n, text) in [
        (0, "0"),
        (999, "999"),
        (1000, "1,000"),
        (8_416_350, "8,416,350"),
    ] {
        assert_eq!(grouped(n), text);
    }
}

/// What the bins hold is what the counters say.
#[test]
fn timelines_add_up() {
    let mut machine = uvmsim_machine::presets::find("a100").unwrap();
    machine.gpu_mem = 2 << 30;
    let trace = vgg16(&machine);
    for (name, o) in outcomes(&trace, &machine) {
        let Ok(o) = o else {
            assert_eq!(name, "flashneuron", "{o:?}");
            continue;
        };
        let Some(t) = &o.timeline else { continue };
        let sum = |f: fn(&uvmsim_physical::Bin) -> f64| t.bins.iter().map(f).sum::<f64>();
        let stalled = sum(|b| b.stalled);
        assert!(
            (stalled - o.stalls.total() as f64).abs() < 1e-3 * o.step_ns as f64,
            "{name}"
        );
        // Copies may end after the step does.
        let moved = sum(|b| b.host_in + b.ssd_in + b.host_out + b.ssd_out);
        assert!(
            moved <= o.bytes.total() as f64 * 1.0001 && moved > 0.9 * o.bytes.total() as f64,
            "{name}"
        );
    }
}
