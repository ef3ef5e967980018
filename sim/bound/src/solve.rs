// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Prices of a linear program's rows, by the interior-point solver Clarabel.

use clarabel::algebra::CscMatrix;
use clarabel::solver::DefaultSettingsBuilder;
use clarabel::solver::DefaultSolver;
use clarabel::solver::IPSolver;
use clarabel::solver::NonnegativeConeT;

use crate::check::BITS;
use crate::lp::Lp;

/// What the solver returns.
#[derive(Clone, Debug)]
pub struct Solved {
    /// A price of each row, in units of 2^-[`BITS`].
    pub prices: Vec<i64>,
    /// The least cost, as the solver has it.
    pub claimed: f64,
}

/// The order of magnitude of a row: that of its largest term.
fn order(lp: &Lp, terms: &[(usize, i64)]) -> f64 {
    let size = |&(j, f): &(usize, i64)| f.abs() as f64 * scale(lp, j);
    terms.iter().map(size).fold(1.0, f64::max)
}

fn scale(lp: &Lp, column: usize) -> f64 {
    f64::from(lp.columns[column].order).exp2()
}

/// Prices that prove much, as far as the solver finds them; `None` if it fails.
pub fn prices(lp: &Lp) -> Option<Solved> {
    let n = lp.columns.len();
    // What the costs are counted in.
    let unit = (0..n).map(|j| lp.columns[j].cost.abs() as f64 * scale(lp, j));
    let unit = unit.fold(0.0, f64::max);
    let unit = if unit > 0.0 { unit } else { 1.0 };
    let costs: Vec<f64> = (0..n)
        .map(|j| lp.columns[j].cost as f64 * scale(lp, j) / unit)
        .collect();
    // In Clarabel's form, A x + s = b with s >= 0: rows, upper ends, lower ends.
    let (mut i, mut j, mut v, mut b) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let orders: Vec<f64> = lp.rows.iter().map(|r| order(lp, &r.terms)).collect();
    for (row, by) in lp.rows.iter().zip(&orders) {
        for &(column, factor) in &row.terms {
            i.push(b.len());
            j.push(column);
            v.push(-(factor as f64) * scale(lp, column) / by);
        }
        b.push(-(row.least as f64) / by);
    }
    for (sign, end) in [(1.0, true), (-1.0, false)] {
        for (column, c) in lp.columns.iter().enumerate() {
            let end = if end { c.high } else { c.low };
            i.push(b.len());
            j.push(column);
            v.push(sign);
            b.push(sign * end as f64 / scale(lp, column));
        }
    }
    let a = CscMatrix::new_from_triplets(b.len(), n, i, j, v);
    let none = CscMatrix::zeros((n, n));
    let settings = DefaultSettingsBuilder::default()
        .verbose(false)
        .build()
        .ok()?;
    let cones = [NonnegativeConeT(b.len())];
    let mut solver = DefaultSolver::new(&none, &costs, &a, &b, &cones, settings).ok()?;
    solver.solve();
    let z = &solver.solution.z;
    let one = f64::from(BITS).exp2();
    let price = |(z, by): (&f64, &f64)| (z.max(0.0) * unit / by * one).round() as i64;
    Some(Solved {
        prices: z.iter().zip(&orders).map(price).collect(),
        claimed: solver.solution.obj_val * unit,
    })
}
