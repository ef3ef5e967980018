// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! AutoVM (thesis, 2020), table 6.2.

use uvmsim_report::published::Cell;
use uvmsim_report::published::Row;
use uvmsim_report::published::Value;
use uvmsim_zoo::Optimizer;

use super::desk::both;
use super::desk::Answer;
use super::desk::Desk;
use super::desk::Point;
use super::desk::Sources;
use super::desk::Why;
use super::sheet::Sheet;

/// Memory of the thesis's GPU that a program gets (table 6.1).
const USABLE: f64 = 9.5e9;

fn at(net: &str, batch: u64) -> Point {
    Point {
        optimizer: Some(Optimizer::Adam),
        ..Point::new(net, batch, "2080ti").with("keep-clean", 0)
    }
}

/// The batch whose step has about `bytes` alive at its peak.
fn batch(net: &str, bytes: f64, s: &Sources) -> Result<u64, Why> {
    let peak =
        |batch| -> Result<f64, Why> { Ok(at(net, batch).workload(s)?.0.peak_bytes() as f64) };
    // Memory is linear in the batch, but for what does not depend on it.
    let (few, many) = (16, 64);
    let (a, b) = (peak(few)?, peak(many)?);
    let slope = (b - a) / (many - few) as f64;
    Ok((few as f64 + (bytes - a) / slope).round().max(1.0) as u64)
}

fn run(desk: &mut Desk, net: &str, level: f64, policy: &'static str) -> Answer {
    let name = net.to_string();
    desk.ask(format!("autovm {net} {level} {policy}"), move |s| {
        at(&name, batch(&name, level * USABLE, s)?).run(s, policy)
    })
}

/// Table 6.2, whose columns are what a step needs over what the GPU has.
pub fn table_6_2(desk: &mut Desk, sheet: &Sheet) -> Vec<Row> {
    let mut row = |(net, label, published): (String, String, Vec<f64>)| {
        let cells = published.into_iter().enumerate().map(|(i, per_cent)| {
            let level = 0.5 * (i + 1) as f64;
            let [uvm, autovm] = ["base-uvm", "autovm"].map(|p| run(desk, &net, level, p));
            let published = if per_cent.is_nan() {
                Value::Absent("the thesis has no such point".into())
            } else {
                Value::Number(1.0 + per_cent / 100.0)
            };
            let ours = both(&uvm, &autovm, |u, a| u.step_s / a.step_s);
            Cell::new(published, ours)
        });
        Row::new(label, cells)
    };
    sheet.rows().into_iter().map(&mut row).collect()
}
