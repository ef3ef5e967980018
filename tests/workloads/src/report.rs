// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! What the runs gave: one JSON object, a table, and a judgement.

use std::fmt::Write;

use serde::{Deserialize, Serialize};

use crate::cases::Case;
use crate::paper;
use crate::program::Mode;
use crate::scale::paper_gb;

/// What one run of an application moved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Name of the application.
    pub workload: String,
    /// Its memory in times of the GPU's.
    pub oversubscription: f64,
    /// The name of a [`Mode`].
    pub mode: String,
    /// Bytes to the GPU.
    pub h2d_bytes: u64,
    /// Bytes to the host.
    pub d2h_bytes: u64,
    /// Bytes, both ways, that the oracle moves.
    pub required_bytes: u64,
    /// Bytes in times of those of the same driver's baseline, `opt` or `plain`.
    pub ratio_to_opt: Option<f64>,
    /// The same in the paper, where it says.
    pub paper_ratio_to_opt: Option<f64>,
    /// All data were right.
    pub verified: bool,
}

/// What is written to `out/workloads.json`.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The release of NVIDIA's driver, where whoever ran them said it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
    /// The runs of all applications in all modes.
    pub cells: Vec<Cell>,
}

impl Cell {
    /// Bytes that were copied in both directions together.
    pub fn bytes(&self) -> u64 {
        self.h2d_bytes + self.d2h_bytes
    }

    /// Whether it is of the same application on as much memory.
    pub fn is_beside(&self, other: &Self) -> bool {
        self.workload == other.workload && self.oversubscription == other.oversubscription
    }

    /// Its mode; none if nobody knows that name.
    pub fn mode(&self) -> Option<Mode> {
        Mode::named(&self.mode)
    }

    /// How much more it moved than is required, as a part of that.
    fn excess(&self) -> f64 {
        self.bytes() as f64 / self.required_bytes.max(1) as f64 - 1.0
    }
}

/// What people call a cell.
pub fn name(workload: &str, oversubscription: f64, mode: &str) -> String {
    format!("{workload} at {oversubscription:.2} x, {mode}")
}

/// The paper's ratio to UVM-opt for a case, where it gives numbers.
pub fn paper_ratio(case: &Case, mode: Mode) -> Option<f64> {
    let row = case.paper?;
    Some(paper::of(&row, mode)? / paper::of(&row, Mode::Opt)?)
}

/// Fills in the ratios, once all cells are there.
pub fn relate(cells: &mut [Cell]) {
    let is_opt = |cell: &Cell| cell.mode().is_some_and(|m| m.of_ours() == Mode::Opt);
    let is_ours = |cell: &Cell| cell.mode().is_none_or(Mode::is_ours);
    let opts: Vec<Cell> = cells.iter().filter(|c| is_opt(c)).cloned().collect();
    for cell in cells {
        let of_its_driver = |o: &Cell| is_ours(o) == is_ours(cell);
        let opt = (opts.iter()).find(|o| o.is_beside(cell) && of_its_driver(o));
        cell.ratio_to_opt = opt.map(|o| cell.bytes() as f64 / o.bytes().max(1) as f64);
    }
}

/// How a table says in times of the GPU's what memory an application has.
pub fn times(oversubscription: f64) -> String {
    if oversubscription < 1.0 {
        "< 1".into()
    } else {
        format!("{oversubscription:.2}")
    }
}

/// The table, in GB of the paper's size.
pub fn table(cells: &[Cell], cases: &[Case]) -> String {
    let mut text = format!(
        "{:<14}{:>6} {:<11}{:>8}{:>8}{:>9}{:>8}{:>7}{:>7}  {}\n",
        "workload",
        "x GPU",
        "mode",
        "here",
        "paper",
        "required",
        "excess",
        "ratio",
        "paper",
        "data"
    );
    let mut last = None;
    for cell in cells {
        if last.is_some_and(|l: &Cell| !l.is_beside(cell)) {
            text.push('\n');
        }
        last = Some(cell);
        let case = (cases.iter()).find(|c| c.is(&cell.workload, cell.oversubscription));
        let paper = (case.and_then(|c| c.paper).zip(cell.mode()))
            .and_then(|(row, mode)| paper::of(&row, mode));
        let number =
            |n: Option<f64>, digits: usize| n.map_or("-".into(), |n| format!("{n:.digits$}"));
        let times = times(cell.oversubscription);
        let _ = writeln!(
            text,
            "{:<14}{:>6} {:<11}{:>8.2}{:>8}{:>9.2}{:>7.1}%{:>7}{:>7}  {}",
            cell.workload,
            times,
            cell.mode,
            paper_gb(cell.bytes()),
            number(paper, 2),
            paper_gb(cell.required_bytes),
            100.0 * cell.excess(),
            number(cell.ratio_to_opt, 3),
            number(cell.paper_ratio_to_opt, 3),
            if cell.verified { "right" } else { "WRONG" },
        );
    }
    text
}

/// What the cells must show and do not, a line each.
pub fn failures(cells: &[Cell]) -> Vec<String> {
    let mut wrong = Vec::new();
    for c in cells {
        let name = name(&c.workload, c.oversubscription, &c.mode);
        if !c.verified {
            wrong.push(format!("{name}: wrong data, or bytes that nobody counted"));
        }
        if let (Some(ratio), Some(paper), "fir") =
            (c.ratio_to_opt, c.paper_ratio_to_opt, &*c.workload)
        {
            if (ratio / paper - 1.0).abs() > 0.05 {
                wrong.push(format!(
                    "{name}: ratio {ratio:.3}, more than 5 % off the paper's {paper:.3}"
                ));
            }
        }
        let exact = Case::is_exact(&c.workload, c.oversubscription);
        let ours = c.mode().is_none_or(Mode::is_ours);
        if exact && ours && c.mode != "opt" && c.excess().abs() > 0.02 {
            let percent = 100.0 * c.excess();
            wrong.push(format!(
                "{name}: {percent:+.1} % of the required traffic, more than 2"
            ));
        }
    }
    wrong
}

/// Cells of Radix-sort and Hash-join whose reduction is not the paper's, within 10
/// percentage points; docs/workloads.md gives the reasons.
pub fn distant(cells: &[Cell]) -> Vec<String> {
    let mut distant = Vec::new();
    for c in cells {
        let (Some(ratio), Some(paper)) = (c.ratio_to_opt, c.paper_ratio_to_opt) else {
            continue;
        };
        if (ratio - paper).abs() > 0.10 {
            distant.push(format!(
                "{}: {:.1} % less than opt, in the paper {:.1} %",
                name(&c.workload, c.oversubscription, &c.mode),
                100.0 * (1.0 - ratio),
                100.0 * (1.0 - paper)
            ));
        }
    }
    distant
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn cell(workload: &str, mode: &str, bytes: u64, required: u64, paper: f64) -> Cell {
        Cell {
            workload: workload.into(),
            oversubscription: 2.0,
            mode: mode.into(),
            h2d_bytes: bytes,
            d2h_bytes: 0,
            required_bytes: required,
            ratio_to_opt: None,
            paper_ratio_to_opt: Some(paper),
            verified: true,
        }
    }

    #[test]
    fn what_is_not_as_it_must_be_is_found() {
        let mut cells = [
            cell("fir", "opt", 1000, 500, 1.0),
            cell("fir", "discard", 505, 500, 0.5),
        ];
        relate(&mut cells);
        assert_eq!(cells[1].ratio_to_opt, Some(0.505));
        assert_eq!(failures(&cells), Vec::<String>::new());
        cells[1].verified = false;
        cells[1].h2d_bytes = 530;
        relate(&mut cells);
        assert_eq!(failures(&cells).len(), 3, "{:?}", failures(&cells));
        let mut cells = [
            cell("radix-sort", "opt", 1000, 1, 1.0),
            cell("radix-sort", "lazy", 700, 1, 0.81),
        ];
        relate(&mut cells);
        assert_eq!((failures(&cells).len(), distant(&cells).len()), (0, 1));
    }

    #[test]
    fn cells_of_nvidias_are_beside_their_own_baseline_and_may_move_more() {
        let mut cells = [
            cell("fir", "plain", 1000, 500, 1.0),
            cell("fir", "native", 600, 500, 0.6),
            cell("fir", "opt", 2000, 500, 1.0),
            cell("fir", "lazy", 500, 500, 0.25),
        ];
        relate(&mut cells);
        let ratios = cells.clone().map(|c| c.ratio_to_opt);
        assert_eq!(ratios, [Some(1.0), Some(0.6), Some(1.0), Some(0.25)]);
        assert_eq!(failures(&cells), Vec::<String>::new());
        let row = Some([4.0, 3.0, 2.0]);
        let case = crate::cases::all().swap_remove(0);
        let case = Case { paper: row, ..case };
        let of = |mode| paper_ratio(&case, mode);
        assert_eq!(
            [Mode::Plain, Mode::Opt, Mode::Lazy].map(of),
            [Some(1.0), Some(1.0), Some(0.5)]
        );
        assert_eq!([Mode::Native, Mode::NativeLazy].map(of), [None, None]);
        cells[1].verified = false;
        assert_eq!(failures(&cells).len(), 1);
    }

    #[test]
    fn a_cell_is_what_the_issue_asks_for() {
        let line = serde_json::to_string(&cell("fir", "opt", 7, 8, 1.0)).unwrap();
        assert_eq!(
            line,
            "{\"workload\":\"fir\",\"oversubscription\":2.0,\"mode\":\"opt\",\"h2d_bytes\":7,\"d2h_bytes\":0,\
             \"required_bytes\":8,\"ratio_to_opt\":null,\"paper_ratio_to_opt\":1.0,\"verified\":true}"
        );
        let cells = [cell("fir", "discard", 1 << 30, 1 << 30, 0.5)];
        let table = table(&cells, &[]);
        assert!(table.lines().all(|l| l.len() <= 100), "{table}");
    }
}
