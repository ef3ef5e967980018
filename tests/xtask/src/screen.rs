// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What a person sees: lines that stay, and on a terminal one below them that says what runs now.

use std::io::{IsTerminal, Write};

/// Where lines are printed.
pub struct Screen {
    out: Box<dyn Write>,
    /// The width of the terminal's last line; nothing where there is no terminal.
    width: Option<usize>,
    /// The line that says what runs now; empty while there is none.
    shown: String,
}

impl Screen {
    /// The standard output, and whether it is a terminal.
    pub fn stdout() -> Screen {
        let width = std::io::stdout().is_terminal().then(|| {
            std::env::var("COLUMNS")
                .ok()
                .and_then(|n| n.parse().ok())
                .unwrap_or(80)
        });
        Screen {
            out: Box::new(std::io::stdout()),
            width,
            shown: String::new(),
        }
    }

    /// Somewhere else: a terminal of this width, or none.
    #[cfg(test)]
    pub fn of(out: Box<dyn Write>, width: Option<usize>) -> Screen {
        let shown = String::new();
        Screen { out, width, shown }
    }

    /// Prints lines that stay. That nobody reads them is no reason to stop.
    pub fn print(&mut self, lines: &str) {
        self.clear();
        let _ = writeln!(self.out, "{}", lines.trim_end_matches('\n'));
        let _ = self.out.flush();
    }

    /// Prints that a part begins.
    pub fn begins(&mut self, name: &str) {
        let mark = if self.width.is_some() {
            "\x1b[1m==>\x1b[0m"
        } else {
            "==>"
        };
        self.print(&format!("{mark} {name}"));
    }

    /// Shows what runs now, on a terminal, until something is printed.
    pub fn status(&mut self, status: &str) {
        let Some(width) = self.width else {
            return;
        };
        let status: String = status.chars().take(width.saturating_sub(1)).collect();
        if status != self.shown {
            let _ = write!(self.out, "\r\x1b[K\x1b[2m{status}\x1b[0m");
            let _ = self.out.flush();
            self.shown = status;
        }
    }

    /// Takes that line away.
    pub fn clear(&mut self) {
        if !std::mem::take(&mut self.shown).is_empty() {
            let _ = write!(self.out, "\r\x1b[K");
            let _ = self.out.flush();
        }
    }
}
