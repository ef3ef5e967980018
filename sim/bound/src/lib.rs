// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A lower bound of the step time by a linear program, with a certificate.
//!
//! [`step::program`] says what every schedule of a step on the physical machine fulfils, as a linear
//! program over integers. [`solve::prices`] asks a solver for prices of the rows (the dual solution), in
//! floating point. [`check::proven`] reckons, in integers alone, what these prices prove. So a wrong
//! solver makes the bound lower, or null, and never wrong; whoever doubts the bound reads
//! `step.rs` and `check.rs`.

pub mod check;
pub mod lp;
pub mod solve;
pub mod step;

use uvmsim_machine::Machine;
use uvmsim_physical::Workload;

pub use lp::Lp;

/// A bound, and what it rests on.
#[derive(Clone, Debug)]
pub struct Certified {
    /// Nanoseconds that the prices prove: no steady step is shorter.
    pub bound_ns: u64,
    /// Nanoseconds that the solver says are the program's least; near `bound_ns` if it is right.
    pub claimed_ns: f64,
    /// How many unknowns the program has.
    pub columns: usize,
    /// How many rows the program has.
    pub rows: usize,
}

/// Nanoseconds below which no steady step of `workload` on `machine` can be, from a program that looks
/// at memory at `points` ends of kernels; `None` if the solver or the check has no result.
pub fn certify(machine: &Machine, workload: &Workload, points: usize) -> Option<Certified> {
    let program = step::program(machine, workload, points);
    let solved = solve::prices(&program)?;
    // That a step is no shorter than its kernels is proven without any price, to the nanosecond.
    let kernels = check::proven(&program, &vec![0; program.rows.len()])?;
    let proven = check::proven(&program, &solved.prices)?.max(kernels);
    Some(Certified {
        bound_ns: u64::try_from(proven.max(0)).ok()?,
        claimed_ns: solved.claimed,
        columns: program.columns.len(),
        rows: program.rows.len(),
    })
}

#[cfg(test)]
mod tests;
