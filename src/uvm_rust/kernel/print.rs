// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Lines for the kernel's log.
//!
//! A kernel with Rust formats in `printk()` itself (`%pA`). Here a line is formatted
//! into a buffer on the stack first: what does not fit is cut off, and marked.

use crate::helpers;
use core::ffi::c_int;
use core::fmt::{self, Write};

/// How long a line may be, in bytes with its prefix.
const MAX: usize = 240;
/// What stands at the end of a line that was too long.
const CUT: &[u8] = b"...\n";

/// How much it matters: the kernel's numbers.
#[doc(hidden)]
#[derive(Clone, Copy)]
pub enum Level {
    Emergency = 0,
    Error = 3,
    Warning = 4,
    Info = 6,
}

/// A line while it is formatted.
struct Line {
    bytes: [u8; MAX],
    len: usize,
    cut: bool,
}

impl Write for Line {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        let room = MAX - CUT.len() - self.len;
        self.cut |= s.len() > room;
        let n = s.len().min(room);
        self.bytes[self.len..][..n].copy_from_slice(&s.as_bytes()[..n]);
        self.len += n;
        Ok(())
    }
}

impl Line {
    fn new() -> Self {
        Self {
            bytes: [0; MAX],
            len: 0,
            cut: false,
        }
    }

    /// The bytes to print, marked if some are missing.
    fn finish(&mut self) -> &[u8] {
        if self.cut {
            self.bytes[self.len..][..CUT.len()].copy_from_slice(CUT);
            self.len += CUT.len();
            self.cut = false;
        }
        &self.bytes[..self.len]
    }
}

/// Prints one line to the kernel's log, `PREFIX: MESSAGE`, at this level.
#[cold]
#[doc(hidden)]
pub fn line(level: Level, prefix: &str, message: fmt::Arguments<'_>) {
    let mut line = Line::new();
    // A `Line` takes everything; only a `Display` of the caller's own could fail, and
    // then what it wrote before is printed.
    let _ = write!(line, "{prefix}: ").and_then(|()| line.write_fmt(message));
    let bytes = line.finish();
    // SAFETY: `bytes` is read during the call.
    unsafe { helpers::uvm_rust_k_print(level as c_int, bytes.as_ptr(), bytes.len()) }
}

/// What the `pr_*!` macros expand to: `prefix` is the caller's `__LOG_PREFIX`, which
/// ends with a zero byte.
#[cold]
#[doc(hidden)]
pub fn prefixed(level: Level, prefix: &[u8], message: fmt::Arguments<'_>) {
    let prefix = prefix.strip_suffix(b"\0").unwrap_or(prefix);
    line(level, core::str::from_utf8(prefix).unwrap_or("?"), message);
}

/// Prints an error, as `format!` would.
#[macro_export]
#[allow(clippy::crate_in_macro_def)] // The prefix is the caller's.
macro_rules! pr_err {
    ($($arg:tt)*) => {
        $crate::print::prefixed($crate::print::Level::Error, crate::__LOG_PREFIX, format_args!($($arg)*))
    };
}

/// Prints a warning, as `format!` would.
#[macro_export]
#[allow(clippy::crate_in_macro_def)] // The prefix is the caller's.
macro_rules! pr_warn {
    ($($arg:tt)*) => {
        $crate::print::prefixed($crate::print::Level::Warning, crate::__LOG_PREFIX, format_args!($($arg)*))
    };
}

/// Prints something to know, as `format!` would.
#[macro_export]
#[allow(clippy::crate_in_macro_def)] // The prefix is the caller's.
macro_rules! pr_info {
    ($($arg:tt)*) => {
        $crate::print::prefixed($crate::print::Level::Info, crate::__LOG_PREFIX, format_args!($($arg)*))
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::helpers::testing;
    use std::string::String;

    fn printed(prefix: &[u8], message: &str) -> (c_int, String) {
        prefixed(Level::Warning, prefix, format_args!("{message}"));
        testing::last_line()
    }

    #[test]
    fn a_line_has_its_level_and_prefix() {
        assert_eq!(printed(b"vgpu\0", "a\n"), (4, "vgpu: a\n".into()));
        assert_eq!(printed(b"no zero", "a\n"), (4, "no zero: a\n".into()));
    }

    #[test]
    fn a_line_that_is_too_long_is_cut_and_marked() {
        for n in [MAX - 12, MAX - 11, MAX - 10, MAX - 9, MAX, 10 * MAX] {
            let message = "x".repeat(n);
            let (_, line) = printed(b"vgpu\0", &message);
            assert!(line.len() <= MAX, "{n}");
            let whole = "vgpu: ".len() + n <= MAX - CUT.len();
            assert_eq!(line.ends_with("...\n"), !whole, "{n}");
            assert!(!whole || line == std::format!("vgpu: {message}"), "{n}");
        }
    }

    #[test]
    fn a_line_that_is_cut_inside_a_character_does_not_panic() {
        let (_, line) = printed(b"vgpu\0", &"ü".repeat(MAX));
        assert!(line.ends_with("...\n"));
    }
}
