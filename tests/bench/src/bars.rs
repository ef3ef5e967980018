// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What the measurements are held against, and whether they are as they must be.
//!
//! A difference that is smaller than the measurement's own noise says nothing. So where the two drivers that
//! are compared differ in next to nothing, a fault with the SSD tier loaded and no device attached, the row
//! says how far two runs of one driver are apart, and whether one could tell.

use crate::report::{row_of_ours, Measured};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A number, and the most that it may be.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Bar {
    /// What is measured, by its row's name.
    pub name: String,
    /// What the number is: a ratio of what to what, or its unit.
    pub unit: String,
    /// The most that the number may be.
    pub most: f64,
    /// The number; none if its row was not measured.
    pub measured: Option<f64>,
    /// How far two runs of the same are apart, where that is as much as what is to be told.
    pub noise: Option<f64>,
}

/// Whether a bar is met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Met {
    Yes,
    No,
    /// The noise is more than what is to be told.
    CannotTell,
    NotMeasured,
}

impl fmt::Display for Met {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Yes => "yes",
            Self::No => "NO",
            Self::CannotTell => "cannot tell",
            Self::NotMeasured => "not measured",
        })
    }
}

impl Bar {
    /// Whether the number is as it must be.
    pub fn met(&self) -> Met {
        let Some(measured) = self.measured else {
            return Met::NotMeasured;
        };
        let noise = self.noise.unwrap_or(0.0);
        if measured - noise > self.most {
            Met::No
        } else if measured > self.most || self.noise.is_some_and(|noise| noise > self.most - 1.0) {
            Met::CannotTell
        } else {
            Met::Yes
        }
    }
}

/// Rows that are held against the unmodified driver's, and the most that ours may be of those.
const OF_BASELINE: [(&str, f64); 12] = [
    ("fault/1/0", 0.95),
    ("fault/1/50", 0.95),
    ("fault/1/90", 0.95),
    ("fault/16/0", 0.95),
    ("fault/16/50", 0.95),
    ("fault/16/90", 0.95),
    ("fault/256/0", 0.95),
    ("fault/256/50", 0.95),
    ("fault/256/90", 0.95),
    ("queue/mark-used", 1.0),
    ("queue/take-and-queue", 1.0),
    ("evict/2MiB", 1.0),
];
/// Rows that are held against NVIDIA's own discard, where the unmodified driver has one: whole va_blocks.
const OF_NATIVE: [&str; 2] = ["discard/native/eager/128MiB", "discard/native/lazy/128MiB"];
/// Of those, what is copied when the memory is evicted and prefetched again.
const BYTES_OF_NATIVE: [&str; 2] = [
    "discard/native/bytes/eager/128MiB",
    "discard/native/bytes/lazy/128MiB",
];
/// What a lazy discard of 128 MiB may cost of an eager one.
const LAZY: f64 = 0.2;
/// Instructions that a page may take on its way between host memory and the SSD.
const PAGE: f64 = 9_000.0;
/// What a fault may cost with the SSD tier loaded and no device attached, of one without the tier. Each scattered fault has
/// to bring more pages, so that what the tier may add is a smaller part of it.
const NO_DEVICE: [(&str, f64); 2] = [("fault/in-order", 1.01), ("fault/scattered", 1.003)];

/// All bars, with what was measured; those of NVIDIA's own discard, if the unmodified driver is said to have one.
pub fn bars(measured: &Measured<'_>, native: bool) -> Vec<Bar> {
    let ours = |name: &str| measured.least("rust", name);
    let bar = |name: &str, unit: &str, most, measured| Bar {
        name: name.to_owned(),
        unit: unit.to_owned(),
        most,
        measured,
        noise: None,
    };
    let mut bars: Vec<Bar> = (OF_BASELINE.iter())
        .map(|&(name, most)| {
            let ratio = ratio(ours(name), measured.least("upstream", name));
            bar(name, "of upstream's", most, ratio)
        })
        .collect();
    let lazy = ratio(ours("discard/lazy/128MiB"), ours("discard/eager/128MiB"));
    bars.push(bar("discard/lazy/128MiB", "of an eager one", LAZY, lazy));
    for name in ["flash/spill", "flash/fetch"] {
        bars.push(bar(name, "instructions/page", PAGE, ours(name)));
    }
    for (name, most) in NO_DEVICE {
        let with = format!("{name} (SSD tier)");
        let noise = [name, &with].map(|name| measured.between_runs("rust", name));
        let noise = noise[0].zip(noise[1]).map(|(a, b)| a.max(b));
        // Without two runs of each nobody knows what a difference means.
        // Neither is the least of many rounds: one in twenty comes in batches that cost less.
        let [without, with_it] = [name, &with].map(|name| measured.median("rust", name));
        let ratio = ratio(with_it, without).filter(|_| noise.is_some());
        let bar = bar(&with, "of one without", most, ratio);
        bars.push(Bar { noise, ..bar });
    }
    if native {
        let pair = |name: &str| (ours(&row_of_ours(name)), measured.least("upstream", name));
        bars.extend(OF_NATIVE.map(|name| {
            let (ours, theirs) = pair(name);
            bar(name, "of NVIDIA's", 1.0, ratio(ours, theirs))
        }));
        bars.extend(BYTES_OF_NATIVE.map(|name| {
            let (ours, theirs) = pair(name);
            let more = ours.zip(theirs).map(|(ours, theirs)| ours - theirs);
            bar(name, "bytes more", 0.0, more)
        }));
    }
    bars
}

fn ratio(of: Option<f64>, to: Option<f64>) -> Option<f64> {
    Some(of? / to.filter(|to| *to > 0.0)?)
}

/// Prints what is held against what.
pub fn show(bars: &[Bar]) {
    println!(
        "\n{:<33} {:<18} {:>8} {:>9} {:>7}  met",
        "bar", "unit", "at most", "measured", "noise"
    );
    for bar in bars {
        let digits = if bar.most < 10.0 { 3 } else { 0 };
        let shown = |number: Option<f64>| {
            number.map_or_else(|| "-".to_owned(), |number| format!("{number:.digits$}"))
        };
        println!(
            "{:<33} {:<18} {:>8.digits$} {:>9} {:>7}  {}",
            bar.name,
            bar.unit,
            bar.most,
            shown(bar.measured),
            shown(bar.noise),
            bar.met()
        );
    }
}

/// The names of those that are missed, or were not measured.
pub fn missed(bars: &[Bar]) -> Vec<&str> {
    let bars = bars.iter();
    bars.filter(|bar| matches!(bar.met(), Met::No | Met::NotMeasured))
        .map(|bar| bar.name.as_str())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write;

    /// What `make bench` writes where all is well, each value in two runs; `change` gives another for ours.
    fn text(change: impl Fn(&str, f64) -> f64) -> String {
        let mut text = String::new();
        let mut say = |driver, name: &str, value: f64| {
            for _ in 0..2 {
                writeln!(text, "{driver}\t{name}\tn\t{value}").unwrap();
            }
        };
        for (name, most) in OF_BASELINE {
            say("upstream", name, 1000.0);
            say("rust", name, change(name, 1000.0 * most));
        }
        for (name, value) in [
            ("discard/eager/128MiB", 1000.0),
            ("discard/lazy/128MiB", 200.0),
            ("flash/spill", 9000.0),
            ("flash/fetch", 9000.0),
            ("fault/in-order", 1000.0),
            ("fault/in-order (SSD tier)", 1010.0),
            ("fault/scattered", 1000.0),
            ("fault/scattered (SSD tier)", 1003.0),
        ] {
            say("rust", name, change(name, value));
        }
        text
    }

    fn held_against(text: &str) -> Vec<Bar> {
        bars(&Measured::parse(text).unwrap(), false)
    }

    /// Where NVIDIA's driver discards as well: ours does, and what the bars of NVIDIA's then say.
    fn held_against_native(ours: [f64; 4], theirs: &[f64]) -> Vec<Bar> {
        let names = || OF_NATIVE.iter().chain(&BYTES_OF_NATIVE);
        let mut text = String::new();
        for (name, value) in names().zip(ours) {
            writeln!(text, "rust\t{}\tn\t{value}", row_of_ours(name)).unwrap();
        }
        for (name, value) in names().zip(theirs) {
            writeln!(text, "upstream\t{name}\tn\t{value}").unwrap();
        }
        let bars = bars(&Measured::parse(&text).unwrap(), true);
        let native = bars.into_iter().filter(|bar| bar.name.contains("native"));
        native.collect()
    }

    #[test]
    fn ours_may_cost_no_more_than_nvidias_own_discard() {
        let met = |ours, theirs: &[f64]| {
            let bars = held_against_native(ours, theirs);
            assert_eq!(bars.len(), 4, "{bars:?}");
            bars.iter().map(Bar::met).collect::<Vec<_>>()
        };
        let (yes, no, none) = (Met::Yes, Met::No, Met::NotMeasured);
        let theirs = [1000.0, 100.0, 0.0, 8.0];
        assert_eq!(met([1000.0, 90.0, 0.0, 8.0], &theirs), [yes; 4]);
        assert_eq!(met([1001.0, 101.0, 1.0, 9.0], &theirs), [no; 4]);
        assert_eq!(
            met([1000.0, 100.0, 0.0, 8.0], &theirs[..1]),
            [yes, none, none, none]
        );
        assert_eq!(
            held_against("")
                .iter()
                .filter(|bar| bar.name.contains("native"))
                .count(),
            0
        );
    }

    #[test]
    fn what_just_meets_all_bars_meets_them() {
        let bars = held_against(&text(|_, value| value));
        assert_eq!(bars.len(), 17);
        let of = |most: f64| bars.iter().filter(|bar| bar.most == most).count();
        assert_eq!((of(0.95), of(1.0)), (9, 3));
        for bar in &bars {
            assert_eq!(bar.met(), Met::Yes, "{bar:?}");
        }
        assert!(missed(&bars).is_empty());
    }

    #[test]
    fn each_bar_can_be_missed() {
        for bar in held_against(&text(|_, value| value)) {
            let more = |name: &str, value: f64| value * if name == bar.name { 1.02 } else { 1.0 };
            let bars = held_against(&text(more));
            assert_eq!(missed(&bars), [&bar.name]);
        }
    }

    #[test]
    fn what_was_not_measured_is_not_met() {
        for bar in held_against(&text(|_, value| value)) {
            let all = text(|_, value| value);
            let ours = format!("rust\t{}\t", bar.name);
            let rest: Vec<&str> = all.lines().filter(|l| !l.starts_with(&ours)).collect();
            assert_eq!(missed(&held_against(&rest.join("\n"))), [&bar.name]);
        }
        assert_eq!(missed(&held_against("rust\tother\tn\t1\n")).len(), 17);
    }

    /// Two runs of one driver, and one of two of the other.
    fn no_device(without: [f64; 2], with: [f64; 2]) -> Bar {
        let mut text = String::new();
        for (name, values) in [
            ("fault/in-order", without),
            ("fault/in-order (SSD tier)", with),
        ] {
            for value in values {
                writeln!(text, "rust\t{name}\tn\t{value}").unwrap();
            }
        }
        let name = "fault/in-order (SSD tier)";
        held_against(&text)
            .into_iter()
            .find(|bar| bar.name == name)
            .unwrap()
    }

    #[test]
    fn a_difference_that_is_less_than_the_noise_says_nothing() {
        assert_eq!(
            no_device([1000.0, 1009.0], [1005.0, 1000.0]).met(),
            Met::Yes
        );
        for (without, with) in [
            ([1000.0, 1020.0], [1000.0, 1000.0]),
            ([1000.0, 1000.0], [1020.0, 1050.0]),
        ] {
            let bar = no_device(without, with);
            assert_eq!(bar.met(), Met::CannotTell, "{bar:?}");
            assert!(missed(&[bar]).is_empty());
        }
        assert_eq!(no_device([1000.0, 1005.0], [1050.0, 1060.0]).met(), Met::No);
        let one_run = "rust\tfault/in-order\tn\t1\nrust\tfault/in-order (SSD tier)\tn\t1\n";
        assert!(held_against(one_run)
            .iter()
            .all(|bar| bar.met() == Met::NotMeasured));
    }
}
