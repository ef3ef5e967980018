// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Sizes, rates, times and names as people write them.

use uvm_policy::evict::Choice;

/// Text that is not what was asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not {want}")]
pub struct ParseError {
    text: String,
    want: String,
}

impl ParseError {
    pub(crate) fn new(text: &str, want: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            want: want.into(),
        }
    }
}

/// Splits a non-negative finite number from the unit behind it.
fn split(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let is_unit = |c: char| !(c.is_ascii_digit() || matches!(c, '.' | '_'));
    let at = text.find(is_unit).unwrap_or(text.len());
    let number: f64 = text[..at].replace('_', "").parse().ok()?;
    number.is_finite().then_some((number, text[at..].trim()))
}

/// Bytes: a number with `B`, `kB`, `MB`, `GB`, `TB`, `KiB`, `MiB`, `GiB`, `TiB`,
/// or none of them.
///
/// # Errors
/// It is no such text, or more than 2^60 bytes.
pub fn parse_bytes(text: &str) -> Result<u64, ParseError> {
    let error = || ParseError::new(text, "a size such as 40GiB, 24GB or 4096");
    let (number, unit) = split(text).ok_or_else(error)?;
    let factor = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1.0,
        "kb" => 1e3,
        "mb" => 1e6,
        "gb" => 1e9,
        "tb" => 1e12,
        "kib" | "k" => 1024.0,
        "mib" | "m" => (1u64 << 20) as f64,
        "gib" | "g" => (1u64 << 30) as f64,
        "tib" | "t" => (1u64 << 40) as f64,
        _ => return Err(error()),
    };
    let bytes = (number * factor).round();
    if bytes > (1u64 << 60) as f64 {
        return Err(error());
    }
    Ok(bytes as u64)
}

/// A rate: a number with `kB/s` to `TB/s`, or `TFLOP/s`; alone, in units of ten to the `bare`.
///
/// # Errors
/// It is no such text.
pub fn parse_rate(text: &str, bare: u32) -> Result<f64, ParseError> {
    let error = || ParseError::new(text, "a rate such as 15.754 or 25GB/s");
    let (number, unit) = split(text).ok_or_else(error)?;
    let power = match unit.to_ascii_lowercase().as_str() {
        "" => bare,
        "b/s" => 0,
        "kb/s" => 3,
        "mb/s" => 6,
        "gb/s" => 9,
        "tb/s" | "tflop/s" | "tflops" => 12,
        "gib/s" => return Ok(number * (1u64 << 30) as f64),
        _ => return Err(error()),
    };
    // A product would be rounded a second time: 66.9 times 1e12 is not 66.9e12.
    let rate = format!("{number}e{power}").parse().ok();
    rate.filter(|r: &f64| r.is_finite()).ok_or_else(error)
}

/// A time in nanoseconds: a number with `ns`, `us`, `ms`, `s`; alone, in
/// microseconds.
///
/// # Errors
/// It is no such text, or over an hour.
pub fn parse_time(text: &str) -> Result<u64, ParseError> {
    let error = || ParseError::new(text, "a time such as 45us or 1.5ms");
    let (number, unit) = split(text).ok_or_else(error)?;
    let factor = match unit {
        "ns" => 1.0,
        "" | "us" | "µs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        _ => return Err(error()),
    };
    let ns = (number * factor).round();
    if ns > 3.6e12 {
        return Err(error());
    }
    Ok(ns as u64)
}

/// A whole number, up to 2^32.
///
/// # Errors
/// It is no such text.
pub fn parse_count(text: &str) -> Result<u64, ParseError> {
    match text.trim().parse::<u64>() {
        Ok(n) if n <= 1 << 32 => Ok(n),
        _ => Err(ParseError::new(text, "a whole number")),
    }
}

/// An eviction policy of the driver's, by the name that its module parameter takes.
///
/// # Errors
/// There is no such policy.
pub fn parse_evict_policy(text: &str) -> Result<Choice, ParseError> {
    Choice::named(text).ok_or_else(|| {
        let want = format!("an eviction policy of the driver's: {}", evict_policies());
        ParseError::new(text, want)
    })
}

/// The names of the driver's eviction policies, for a message.
pub fn evict_policies() -> String {
    let names: Vec<_> = Choice::ALL.iter().map(|c| c.name()).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_rates_times() {
        assert_eq!(parse_bytes("40GiB"), Ok(40 << 30));
        assert_eq!(parse_bytes("24 GB"), Ok(24_000_000_000));
        assert_eq!(parse_bytes("1_000"), Ok(1000));
        assert_eq!(parse_rate("15.754", 9), Ok(15.754e9));
        assert_eq!(parse_rate("500MB/s", 9), Ok(5e8));
        assert_eq!(parse_rate("66.9", 12), Ok(66.9e12));
        assert!(
            parse_rate(&"9".repeat(300), 12).is_err(),
            "beyond all numbers"
        );
        assert_eq!(parse_time("45us"), Ok(45_000));
        assert_eq!(parse_time("1.5ms"), Ok(1_500_000));
        for bad in ["", "-1", "GiB", "1 parsec", "1e300", "nan", "inf"] {
            assert!(parse_bytes(bad).is_err(), "{bad}");
            assert!(parse_time(bad).is_err(), "{bad}");
        }
        assert!(parse_bytes("9999999999TiB").is_err());
    }

    #[test]
    fn an_eviction_policy_goes_by_the_drivers_name() {
        assert_eq!(parse_evict_policy("lru"), Ok(Choice::default()));
        for bad in ["", "LRU", "lru ", "fifo"] {
            let said = parse_evict_policy(bad).unwrap_err().to_string();
            assert!(said.starts_with(&format!("`{bad}` is not")), "{said}");
            for choice in Choice::ALL {
                assert!(said.contains(choice.name()), "{said}");
            }
        }
    }
}
