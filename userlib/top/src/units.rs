// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Numbers for people, none wider than its column.

use std::collections::VecDeque;

/// Bytes, in at most 9 characters.
pub(crate) fn bytes(bytes: f64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    scaled(bytes, 1024.0, &UNITS)
}

/// A count, in at most 6 characters.
pub(crate) fn count(count: f64) -> String {
    const UNITS: [&str; 7] = ["", "k", "M", "G", "T", "P", "E"];
    scaled(count, 1000.0, &UNITS).trim_end().replace(' ', "")
}

fn scaled(mut value: f64, step: f64, units: &[&str]) -> String {
    let mut unit = 0;
    // What would be rounded up to four digits is one of the next unit.
    while value >= step - 0.5 && unit + 1 < units.len() {
        value /= step;
        unit += 1;
    }
    let whole = unit == 0 && value.fract() == 0.0 || value >= 99.95;
    match whole {
        true => format!("{value:.0} {}", units[unit]),
        false => format!("{value:.1} {}", units[unit]),
    }
}

/// The last values, the newest on the right, each as high as it is against the greatest.
/// A value that is not known leaves a gap.
pub(crate) fn spark(values: &VecDeque<Option<f64>>, width: usize) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let skip = values.len().saturating_sub(width);
    let shown = || values.iter().skip(skip);
    let most = shown()
        .flatten()
        .fold(0.0, |most: f64, &value| most.max(value));
    let mut text = " ".repeat(width.saturating_sub(values.len()));
    text.extend(shown().map(|value| match value {
        None => ' ',
        Some(value) if most > 0.0 => BARS[((value / most * 7.0).round() as usize).min(7)],
        Some(_) => BARS[0],
    }));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_fit_their_columns() {
        for (value, text) in [
            (0.0, "0 B"),
            (1.0, "1 B"),
            (0.5, "0.5 B"),
            (1023.0, "1023 B"),
            (1023.7, "1.0 KiB"),
            (1024.0, "1.0 KiB"),
            (102348.0, "99.9 KiB"),
            (1048575.0, "1.0 MiB"),
            (2.0 * 1024.0 * 1024.0, "2.0 MiB"),
            (18446744073709551615.0, "16.0 EiB"),
        ] {
            assert_eq!(bytes(value), text);
        }
        for (value, text) in [
            (0.0, "0"),
            (12.25, "12.2"),
            (999.0, "999"),
            (999.6, "1.0k"),
            (1234.0, "1.2k"),
            (123456.0, "123k"),
            (1e19, "10.0E"),
        ] {
            assert_eq!(count(value), text);
        }
        let mut value = 0.3;
        while value < 1.8e19 {
            assert!(bytes(value).len() <= 9, "{}", bytes(value));
            assert!(count(value).len() <= 6, "{}", count(value));
            value *= 1.07;
        }
    }

    #[test]
    fn sparklines_are_of_the_last_values() {
        let values = |values: &[f64]| values.iter().copied().map(Some).collect();
        assert_eq!(spark(&values(&[]), 3), "   ");
        assert_eq!(spark(&values(&[0.0, 0.0]), 3), " ▁▁");
        assert_eq!(spark(&values(&[1.0, 7.0, 3.5, 0.0]), 3), "█▅▁");
        let mut gap: VecDeque<_> = values(&[2.0, 1.0]);
        gap.insert(1, None);
        assert_eq!(spark(&gap, 3), "█ ▅");
    }
}
