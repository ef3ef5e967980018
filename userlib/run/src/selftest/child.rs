// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The process in which the tests run, and what it tells the one that prints the page: a line for each
//! thing that is said, of a letter and the rest.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};
use std::sync::mpsc::{channel, Sender};
use std::time::{Duration, Instant};

use super::{line, tests, Said};

/// What a line of the child's begins with, as none of a library's does.
const MARK: char = '\u{1}';

/// The option with which this program is such a process.
const OPTION: &str = "--selftest-child";

/// Starts the child, and passes on what it says.
pub(super) fn relay(say: &Sender<Said>) {
    let started = std::env::current_exe().and_then(|program| {
        let mut command = Command::new(program);
        command.arg(OPTION).stdin(Stdio::null());
        // None of ours: who reads these to their end would wait for the child.
        command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
    });
    let (out, errors) = match started.map(|child| (child.stdout, child.stderr)) {
        Ok((Some(out), Some(errors))) => (out, errors),
        Ok(_) => return,
        Err(why) => {
            let why = format!("the process of the tests does not start: {why}");
            let _ = say.send(Said::Line(line('!', "start", &why)));
            return;
        }
    };
    let errors = std::thread::spawn(|| pass(errors, &mut std::io::stderr()));
    let mut done = None;
    for said in all_said(out) {
        // What the child had to say before comes before.
        if matches!(said, Said::Done(_)) {
            done = Some(said);
            break;
        }
        // Nobody listens any more if the limit is over.
        if say.send(said).is_err() {
            return;
        }
    }
    let began = Instant::now();
    while !errors.is_finished() && began.elapsed() < LAST_WORDS {
        std::thread::sleep(Duration::from_millis(1));
    }
    if let Some(done) = done {
        let _ = say.send(done);
    }
}

/// How long a child that is done is waited for, which may say more on its standard error; one that is
/// stuck no longer.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// Passes on what comes, as it comes.
fn pass(mut from: impl Read, to: &mut impl Write) {
    let mut part = [0; 4096];
    while let Ok(length @ 1..) = from.read(&mut part) {
        if to.write_all(&part[..length]).is_err() {
            return;
        }
    }
}

/// What the child says. Lines that are not of it are those of a library there, and are left out.
fn all_said(out: impl Read) -> impl Iterator<Item = Said> {
    BufReader::new(out)
        .split(b'\n')
        .map_while(Result::ok)
        .filter_map(|line| Said::read(&String::from_utf8_lossy(&line)))
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
            Self::Begins(name) => format!("{MARK}B{name}\n"),
            Self::Line(line) => format!("{MARK}L{line}\n"),
            Self::Done(status) => format!("{MARK}D{status}\n"),
        }
    }

    /// `None`: it is no such line. What a library has left in front of it, without an end, is not its.
    fn read(text: &str) -> Option<Self> {
        let text = text.split_once(MARK)?.1;
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
            assert_eq!(Said::read(&format!("{MARK}{other}")), None, "{other}");
        }
    }

    #[test]
    fn what_a_library_prints_is_not_the_childs() {
        let begins = Said::Begins("write".into());
        let line = Said::Line("  write: right".into());
        let mut out = b"Loading \xff\n\nD0\nno end:".to_vec();
        for said in [&begins, &line] {
            out.extend(said.text().as_bytes());
            out.extend(b"Begins\n");
        }
        out.extend(Said::Done(0).text().as_bytes());
        let said: Vec<_> = all_said(&*out).collect();
        assert_eq!(said, [begins, line, Said::Done(0)]);
    }
}
