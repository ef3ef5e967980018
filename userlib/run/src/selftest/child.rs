// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The process in which the tests run, and what it tells the one that prints the page: a line for each
//! thing that is said, of a letter and the rest.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::mpsc::{channel, Sender};

use super::{line, tests, Said};

/// The option with which this program is such a process.
const OPTION: &str = "--selftest-child";

/// Starts the child, and passes on what it says.
pub(super) fn relay(say: &Sender<Said>) {
    let started = std::env::current_exe().and_then(|program| {
        let mut command = Command::new(program);
        command.arg(OPTION).stdin(Stdio::null());
        command.stdout(Stdio::piped()).spawn()
    });
    let out = match started.map(|child| child.stdout) {
        Ok(Some(out)) => out,
        Ok(None) => return,
        Err(why) => {
            let why = format!("the process of the tests does not start: {why}");
            let _ = say.send(Said::Line(line('!', "start", &why)));
            return;
        }
    };
    for text in BufReader::new(out).lines() {
        let Some(said) = text.ok().and_then(|text| Said::read(&text)) else {
            return;
        };
        // Nobody listens any more if the limit is over.
        if say.send(said).is_err() {
            return;
        }
    }
}

/// Runs the tests, and says on standard output what there is to say. Ends with the process that has
/// started this one.
pub(crate) fn run_child() -> u8 {
    // SAFETY: it changes what this process is sent when its parent ends, and nothing else.
    let _ = unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    let (sender, receiver) = channel();
    std::thread::spawn(move || tests(&sender));
    for said in receiver {
        let text = said.text();
        if std::io::stdout().write_all(text.as_bytes()).is_err() {
            return 1;
        }
        if let Said::Done(status) = said {
            return status;
        }
    }
    1
}

impl Said {
    fn text(&self) -> String {
        match self {
            Self::Begins(name) => format!("B{name}\n"),
            Self::Line(line) => format!("L{line}\n"),
            Self::Done(status) => format!("D{status}\n"),
        }
    }

    /// `None`: it is no such line.
    fn read(text: &str) -> Option<Self> {
        let rest = text.get(1..)?;
        match text.as_bytes().first()? {
            b'B' => Some(Self::Begins(rest.to_owned())),
            b'L' => Some(Self::Line(rest.to_owned())),
            b'D' => rest.parse().ok().map(Self::Done),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn what_is_said_is_read_as_it_was() {
        for said in [
            Said::Begins("both in a graph".into()),
            Said::Line(String::new()),
            Said::Line("! discard: WRONG".into()),
            Said::Done(2),
        ] {
            assert_eq!(Said::read(said.text().trim_end_matches('\n')), Some(said));
        }
        for other in ["", "x", "D", "D300", "\u{e9}"] {
            assert_eq!(Said::read(other), None, "{other}");
        }
    }
}
