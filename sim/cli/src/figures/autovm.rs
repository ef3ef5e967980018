// SPDX-License-Identifier: GPL-2.0 OR MIT

//! AutoVM (thesis, 2020), table 6.2.

use uvmsim_report::published::Cell;
use uvmsim_report::published::Figure;
use uvmsim_report::published::Row;
use uvmsim_report::published::Value;
use uvmsim_zoo::Optimizer;

use super::desk::both;
use super::desk::run_physical;
use super::desk::Answer;
use super::desk::Desk;
use super::desk::Point;
use super::desk::Sources;
use super::desk::Why;

/// Memory of the thesis's GPU that a program gets (table 6.1).
const USABLE: f64 = 9.5e9;

/// Speedups in per cent at N_m of 0.5 to 2.5; NAN where the table is empty.
const NETS: [(&str, &str, [f64; 5]); 3] = [
    ("alexnet", "AlexNet", [-8.73, 83.4, 48.7, 6.27, f64::NAN]),
    ("vgg19", "VGG-19", [-3.24, 153.4, 78.2, 41.4, 24.6]),
    ("resnet152", "ResNet-152", [-19.0, 22.8, 68.1, 20.0, 16.4]),
];
const LEVELS: [f64; 5] = [0.5, 1.0, 1.5, 2.0, 2.5];

fn at(net: &'static str, batch: u64) -> Point {
    Point {
        optimizer: Some(Optimizer::Adam),
        ..Point::new(net, batch, "2080ti").with("keep-clean", 0)
    }
}

/// The batch whose step has about `bytes` alive at its peak.
fn batch(net: &'static str, bytes: f64, s: &Sources) -> Result<u64, Why> {
    let peak = |batch| -> Result<f64, Why> {
        let live = at(net, batch).workload(s)?.0.live_bytes();
        Ok(live.into_iter().max().unwrap_or(0) as f64)
    };
    // Memory is linear in the batch, but for what does not depend on it.
    let (few, many) = (16, 64);
    let (a, b) = (peak(few)?, peak(many)?);
    let slope = (b - a) / (many - few) as f64;
    Ok((few as f64 + (bytes - a) / slope).round().max(1.0) as u64)
}

fn run(desk: &mut Desk, net: &'static str, level: f64, policy: &'static str) -> Answer {
    desk.ask(format!("autovm {net} {level} {policy}"), move |s| {
        let point = at(net, batch(net, level * USABLE, s)?);
        let (w, l) = point.workload(s)?;
        let machine = point.machine()?;
        let mut policy = uvmsim_physical::policies::make(policy, &machine, &w, &l)
            .map_err(|e| Why::Fails(e.to_string()))?;
        run_physical(&machine, &w, &l, policy.as_mut())
    })
}

/// Table 6.2.
pub fn table_6_2(desk: &mut Desk) -> Figure {
    let mut f = Figure {
        published: "printed in the thesis as percentages, three digits",
        machine: "physical model, preset 2080ti: 9.5 GB usable, 96 GB host, link 13 GB/s, copies exclusive as upstream (--keep-clean 0); steps of the zoo with Adam in 32-bit numbers".into(),
        notes: vec![
            "columns are N_m: memory at the peak over what the GPU has; ours takes the batch whose live bytes are that many times 9.5 GB".into(),
            "TensorFlow's allocator and cuDNN's workspaces are not modelled".into(),
            "AutoVM as in the thesis: what dies is not released (section 6.3.1), what fits nowhere is not prefetched (listing 3.4)".into(),
        ],
        columns: LEVELS.map(|n| format!("N_m {n}")).into(),
        ..Figure::new(
            "autovm-t6.2",
            "AutoVM table 6.2",
            "AutoVM against UVM",
            "AutoVM's speed over UVM's",
        )
    };
    for (net, label, published) in NETS {
        let cells = LEVELS.iter().zip(published).map(|(&level, published)| {
            let (uvm, autovm) = (
                run(desk, net, level, "base-uvm"),
                run(desk, net, level, "autovm"),
            );
            Cell {
                published: if published.is_nan() {
                    Value::Absent("the thesis has no such point".into())
                } else {
                    Value::Number(1.0 + published / 100.0)
                },
                ours: both(&uvm, &autovm, |u, a| u.step_s / a.step_s),
            }
        });
        f.rows.push(Row {
            label: label.into(),
            cells: cells.collect(),
        });
    }
    f
}
