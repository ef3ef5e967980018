// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Every application at every degree of oversubscription.

use crate::paper::{self, Allocated, Row};
use crate::program::Program;
use crate::train::Training;
use crate::{fir, join, radix};

/// An application and how much memory the GPU has for it.
#[derive(Debug)]
pub struct Case {
    /// Its name in the JSON, such as `fir` or `vgg16-150`.
    pub workload: String,
    /// Its memory, in times of what the GPU has for it. Where that is all there is,
    /// something below 1.
    pub oversubscription: f64,
    /// Blocks of GPU memory that it gets; `None`: all there are.
    pub available: Option<usize>,
    /// The application's steps, and its buffers.
    pub program: Program,
    /// What the paper measured, in GB.
    pub paper: Option<Row>,
}

impl Case {
    /// Its oversubscription on a GPU with room for so many blocks.
    pub fn oversubscription_with(&self, room: usize) -> f64 {
        match self.available {
            Some(_) => self.oversubscription,
            None => rounded(self.program.footprint() as f64 / room as f64),
        }
    }

    /// Is this the case of a cell?
    pub fn is(&self, workload: &str, oversubscription: f64) -> bool {
        let same = match self.available {
            Some(_) => oversubscription == self.oversubscription,
            None => oversubscription < 1.0,
        };
        same && self.workload == workload
    }

    /// Must the discarding modes move what the oracle requires, and no more?
    pub fn is_exact(workload: &str, oversubscription: f64) -> bool {
        match workload {
            "radix-sort" => false,
            "hash-join" => oversubscription <= 2.0,
            _ => true,
        }
    }
}

/// A ratio rounded to three digits, for people.
fn rounded(times: f64) -> f64 {
    (times * 1000.0).round() / 1000.0
}

/// All cases, those of one application together.
pub fn all() -> Vec<Case> {
    let mut cases = Vec::new();
    tables(&mut cases, "fir", paper::FIR, |_| fir::program());
    tables(&mut cases, "radix-sort", paper::RADIX, radix::program);
    tables(&mut cases, "hash-join", paper::JOIN, |_| join::program());
    cases.extend(paper::NETS.iter().filter_map(net));
    cases
}

/// The columns of a table; `program` is told whether its data fit.
fn tables(cases: &mut Vec<Case>, name: &str, rows: [Row; 4], program: impl Fn(bool) -> Program) {
    for (times, row) in (1..).zip(rows) {
        let fits = times == 1;
        let program = program(fits);
        let available = program.footprint() / times;
        cases.push(Case {
            workload: name.into(),
            oversubscription: if fits { 0.9 } else { times as f64 },
            available: (!fits).then_some(available),
            program,
            paper: Some(row),
        });
    }
}

/// A network: the GPU has as much for it, in parts of what it allocates, as the
/// paper's had.
fn net(paper: &Allocated) -> Option<Case> {
    let training = Training::new(paper.net, paper.batch);
    let program = training.program()?;
    let times = paper.gb / paper::GPU_GB;
    Some(Case {
        workload: format!("{}-{}", paper.net, paper.batch),
        oversubscription: rounded(times),
        available: Some((program.footprint() as f64 / times) as usize),
        program,
        paper: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::{traffic, Knowledge};
    use crate::paper;

    fn room(case: &Case) -> usize {
        case.available.unwrap_or(case.program.footprint())
    }

    #[test]
    fn no_program_reads_what_it_discarded() {
        for case in all() {
            let name = format!("{} at {}", case.workload, case.oversubscription);
            assert_eq!(case.program.check(), Ok(()), "{name}");
        }
    }

    #[test]
    fn two_buffers_explain_the_table_of_fir() {
        for case in all().iter().filter(|c| c.workload == "fir") {
            let row = case.paper.expect("FIR is in table 4");
            let of = |k| traffic(&case.program, room(case), k).blocks() as f64;
            let ratio = of(Knowledge::Told) / of(Knowledge::Nothing);
            let off = ratio / (row[1] / row[0]) - 1.0;
            assert!(off.abs() < 0.05, "{}: {off}", case.oversubscription);
        }
    }

    #[test]
    fn networks_allocate_what_the_paper_says() {
        for net in paper::NETS {
            let gb = Training::new(net.net, net.batch).bytes() / 1e9;
            let off = gb / net.gb - 1.0;
            assert!(
                off.abs() < 0.1,
                "{} at {}: {gb:.1} GB, {off:+.3}",
                net.net,
                net.batch
            );
        }
    }

    #[test]
    fn discards_leave_nothing_redundant_where_they_must_not() {
        for case in all() {
            if !Case::is_exact(&case.workload, case.oversubscription) {
                continue;
            }
            let of = |k| traffic(&case.program, room(&case), k);
            let name = format!("{} at {}", case.workload, case.oversubscription);
            assert_eq!(of(Knowledge::Told), of(Knowledge::Future), "{name}");
        }
    }
}
