// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! NVIDIA's driver and ours side by side: plain UVM, NVIDIA's own discard, ours, and what is required.

use std::fmt::Write;

use crate::program::Mode;
use crate::report::{name, times, Cell};
use crate::scale::paper_gb;

/// The cells of each application on as much memory, in the order in which they come.
fn groups(cells: &[Cell]) -> Vec<Vec<&Cell>> {
    let mut groups: Vec<Vec<&Cell>> = Vec::new();
    for cell in cells {
        match groups.iter_mut().find(|group| group[0].is_beside(cell)) {
            Some(group) => group.push(cell),
            None => groups.push(vec![cell]),
        }
    }
    groups
}

/// The cell of a mode, if it is there.
fn of<'a>(group: &[&'a Cell], mode: Mode) -> Option<&'a Cell> {
    group.iter().copied().find(|c| c.mode() == Some(mode))
}

/// A line for each application, in GB of the paper's size; a cell with wrong data is `wrong`.
pub fn table(cells: &[Cell], base: &str) -> String {
    let columns = Mode::ALL
        .map(|mode| format!("{:>12}", mode.name()))
        .concat();
    let mut text = format!(
        "GB on NVIDIA's driver {base} as it is (plain, native), and on ours built from it\n\
         {:<14}{:>6}{columns}{:>10}\n",
        "workload", "x GPU", "required"
    );
    for group in groups(cells) {
        let columns = Mode::ALL.map(|mode| match of(&group, mode) {
            None => format!("{:>12}", "-"),
            Some(cell) if !cell.verified => format!("{:>12}", "wrong"),
            Some(cell) => format!("{:>12.2}", paper_gb(cell.bytes())),
        });
        let _ = writeln!(
            text,
            "{:<14}{:>6}{}{:>10.2}",
            group[0].workload,
            times(group[0].oversubscription),
            columns.concat(),
            paper_gb(group[0].required_bytes)
        );
    }
    text
}

/// Why there are no cells of NVIDIA's own discard.
pub fn why_none(base: &str) -> String {
    format!(
        "no mode 'native': NVIDIA's driver {base} has no discard of its own, as those from 580 on have (BASE=580)"
    )
}

/// What is not there of what must be, a line for each application and mode.
pub fn missing(cells: &[Cell], expected: &[Mode]) -> Vec<String> {
    let mut missing = Vec::new();
    for group in groups(cells) {
        for &mode in expected.iter().filter(|&&mode| of(&group, mode).is_none()) {
            let (workload, times) = (&group[0].workload, group[0].oversubscription);
            missing.push(format!("{}: missing", name(workload, times, mode.name())));
        }
    }
    missing
}

/// Where our driver moved more than NVIDIA's does for the same, by over 2 %, a line each.
pub fn dearer(cells: &[Cell]) -> Vec<String> {
    let mut dearer = Vec::new();
    for group in groups(cells) {
        for nvidias in Mode::NVIDIAS {
            let (mode, ours) = (nvidias.of_ours(), of(&group, nvidias.of_ours()));
            let Some((ours, theirs)) = ours.zip(of(&group, nvidias)) else {
                continue;
            };
            let more = ours.bytes() as f64 / theirs.bytes().max(1) as f64 - 1.0;
            if more > 0.02 {
                dearer.push(format!(
                    "{}: {:.1} % more than {}",
                    name(&ours.workload, ours.oversubscription, mode.name()),
                    100.0 * more,
                    nvidias.name()
                ));
            }
        }
    }
    dearer
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::cell;

    /// What the two runs of one application print: NVIDIA's driver's, and ours.
    fn both() -> [Vec<Cell>; 2] {
        let theirs = [("plain", 4), ("native", 3), ("native-lazy", 3)];
        let ours = [("opt", 4), ("discard", 2), ("lazy", 2)];
        [theirs, ours].map(|run| {
            run.map(|(m, n)| cell("fir", m, n << 30, 2 << 30, 1.0))
                .to_vec()
        })
    }

    #[test]
    fn two_runs_make_one_line() {
        let table = table(&both().concat(), "580.142");
        let lines: Vec<Vec<&str>> = table
            .lines()
            .map(|l| l.split_whitespace().collect())
            .collect();
        assert_eq!(lines.len(), 3);
        assert!(
            table.starts_with("GB on NVIDIA's driver 580.142"),
            "{table}"
        );
        assert_eq!(
            lines[1][3..],
            [
                "plain",
                "native",
                "native-lazy",
                "opt",
                "discard",
                "lazy",
                "required"
            ]
        );
        let gb = [
            "137.44", "103.08", "103.08", "137.44", "68.72", "68.72", "68.72",
        ];
        assert_eq!(lines[2][..2], ["fir", "2.00"]);
        assert_eq!(lines[2][2..], gb);
        assert!(table.lines().all(|line| line.len() <= 105), "{table}");
    }

    #[test]
    fn wrong_data_are_no_number() {
        let mut cells = both().concat();
        cells[1].verified = false;
        let table = table(&cells, "580.142");
        let last: Vec<&str> = table.lines().last().unwrap().split_whitespace().collect();
        assert_eq!(last[2..5], ["137.44", "wrong", "103.08"]);
    }

    #[test]
    fn a_missing_half_is_told() {
        let [theirs, ours] = both();
        assert_eq!(
            missing(&[theirs.clone(), ours.clone()].concat(), &Mode::ALL),
            [""; 0]
        );
        let lacks = |cells: &[Cell], modes: [Mode; 3]| {
            let lines = modes.map(|mode| format!("fir at 2.00 x, {}: missing", mode.name()));
            assert_eq!(missing(cells, &Mode::ALL), lines);
        };
        lacks(&ours, Mode::NVIDIAS);
        lacks(&theirs, Mode::OURS);
        assert_eq!(missing(&ours, &Mode::OURS), [""; 0]);
        let last = table(&ours, "580.142").lines().last().unwrap().to_owned();
        let last: Vec<&str> = last.split_whitespace().collect();
        assert_eq!(last[2..5], ["-"; 3]);
    }

    #[test]
    fn ours_may_move_no_more_than_nvidias() {
        let mut cells = both().concat();
        assert_eq!(dearer(&cells), [""; 0]);
        cells[4].h2d_bytes = cells[1].h2d_bytes / 100 * 103;
        assert_eq!(
            dearer(&cells),
            ["fir at 2.00 x, discard: 3.0 % more than native"]
        );
        cells[1].oversubscription = 3.0;
        assert_eq!(dearer(&cells), [""; 0]);
    }
}
