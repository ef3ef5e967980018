// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The command line of uvmtop, and its usage text.

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use crate::missing::MISSING;

pub(crate) const USAGE: &str = "usage: uvmtop [OPTION...]
Shows what GPUs do with unified memory. What all processes do is for root, or for
everybody with the module parameter uvm_rust_stats_public=1.
  --interval SECONDS  how often (1); with --once: show rates, measured in this time
  --once              print one page, and end
  --json              print a JSON object a line, each interval, or with --once one
  --prometheus        with --once: print the counts for Prometheus, as a file that
                      its node exporter collects
  --tools             on NVIDIA's own module, ask UVM's tools interface what processes
                      move and fault; uvmtop(1) says what that may cost them
  --listen [ADDR:]PORT  serve the counts to Prometheus, at /metrics; without an address
                      on 127.0.0.1. Whoever can connect sees them.
  --help              this text
Keys: q ends, arrows scroll, p pauses, ? says what cannot be shown.
Exit status: 0; 1 if it fails, 2 if the command line is wrong.
";

/// What the command line asks for.
#[derive(Debug, PartialEq)]
pub(crate) enum Asked {
    Help,
    Run(Options),
}

/// How to show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    Screen,
    Text,
    Json,
    Prometheus,
    Listen(SocketAddr),
}

#[derive(Debug, PartialEq)]
pub(crate) struct Options {
    pub(crate) how: How,
    pub(crate) once: bool,
    pub(crate) interval: Option<Duration>,
    /// UVM's tools interface is asked.
    pub(crate) tools: bool,
    /// Where /proc and the like are; for tests.
    pub(crate) root: PathBuf,
}

/// The usage, and what is missing.
pub(crate) fn help() -> String {
    let mut text = format!("{USAGE}\nWhat the driver does not tell:\n");
    for sentence in MISSING {
        for (index, line) in wrapped(sentence, 78).iter().enumerate() {
            text.push_str(if index == 0 { "- " } else { "  " });
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

/// Words in lines of at most so many characters, but for words that are longer.
pub(crate) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Asked, lexopt::Error> {
    use lexopt::prelude::*;
    let (mut once, mut json, mut listen, mut tools) = (false, false, None, false);
    let mut prometheus = false;
    let mut interval = None;
    let mut root = PathBuf::from("/");
    let mut parser = lexopt::Parser::from_args(args);
    while let Some(argument) = parser.next()? {
        match argument {
            Long("once") => once = true,
            Long("json") => json = true,
            Long("prometheus") => prometheus = true,
            Long("tools") => tools = true,
            Long("interval") => interval = Some(seconds(&parser.value()?.string()?)?),
            Long("listen") => listen = Some(address(&parser.value()?.string()?)?),
            // Below this folder are /proc and the like. Not in the help.
            Long("root") => root = parser.value()?.into(),
            Short('h') | Long("help") => return Ok(Asked::Help),
            _ => return Err(argument.unexpected()),
        }
    }
    if tools && (listen.is_some() || once && interval.is_none()) {
        // What nobody looks at would be kept, or there is nothing between two looks.
        return Err("--tools looks twice: it wants --interval with --once, and no --listen".into());
    }
    if prometheus && (!once || json || tools || listen.is_some() || interval.is_some()) {
        return Err("--prometheus wants --once, and nothing else".into());
    }
    let how = match (listen, json, once) {
        _ if prometheus => How::Prometheus,
        (Some(_), _, _) if json || once || interval.is_some() => {
            return Err("--listen answers when it is asked: no --once, --json, --interval".into())
        }
        (Some(address), ..) => How::Listen(address),
        (None, true, _) => How::Json,
        (None, false, true) => How::Text,
        (None, false, false) => How::Screen,
    };
    Ok(Asked::Run(Options {
        how,
        once,
        interval,
        tools,
        root,
    }))
}

/// Between a tenth of a second and a day.
fn seconds(text: &str) -> Result<Duration, lexopt::Error> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.1..=86400.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err(format!("{text}: an interval is 0.1 to 86400 seconds").into()),
    }
}

/// A port of this machine's own, unless an address is given with it.
fn address(text: &str) -> Result<SocketAddr, lexopt::Error> {
    let own = |port| SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port);
    let port = text.parse().map(own);
    port.or_else(|_| text.parse())
        .map_err(|_| format!("{text}: neither a port nor ADDRESS:PORT").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(args: &[&str]) -> Result<Asked, lexopt::Error> {
        parse(args.iter().map(OsString::from))
    }

    fn run(args: &[&str]) -> Options {
        match given(args) {
            Ok(Asked::Run(options)) => options,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_port_is_this_machines_own_unless_said() {
        let listen = |text| run(&["--listen", text]).how;
        assert_eq!(
            listen("9837"),
            How::Listen("127.0.0.1:9837".parse().unwrap())
        );
        assert_eq!(
            listen("0.0.0.0:1"),
            How::Listen("0.0.0.0:1".parse().unwrap())
        );
        assert_eq!(listen("[::1]:2"), How::Listen("[::1]:2".parse().unwrap()));
        for bad in ["", "x", "70000", "1.2.3.4", ":80", "localhost:80"] {
            assert!(given(&["--listen", bad]).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_is_asked_for() {
        assert_eq!(run(&[]).how, How::Screen);
        assert_eq!(run(&["--once"]).how, How::Text);
        assert_eq!(run(&["--once", "--json"]).how, How::Json);
        assert_eq!(run(&["--once", "--prometheus"]).how, How::Prometheus);
        let options = run(&["--interval", "0.5"]);
        assert_eq!(options.interval, Some(Duration::from_millis(500)));
        for bad in [
            &["--interval", "0"][..],
            &["--interval", "-1"],
            &["--interval", "NaN"],
            &["--interval", "inf"],
            &["--listen", "1", "--once"],
            &["--listen", "1", "--interval", "1"],
            &["--listen", "1", "--tools"],
            &["--once", "--tools"],
            &["--prometheus"],
            &["--prometheus", "--once", "--json"],
            &["--prometheus", "--once", "--interval", "1"],
            &["--prometheus", "--listen", "1"],
            &["--once", "--json", "--tools"],
            &["program"],
        ] {
            assert!(given(bad).is_err(), "{bad:?}");
        }
        assert!(!run(&[]).tools, "only who asks for it");
        assert!(run(&["--tools"]).tools);
        assert!(run(&["--tools", "--once", "--interval", "1"]).tools);
        assert!(help().contains("Thrashing"));
        assert!(help().lines().all(|line| line.chars().count() <= 88));
    }
}
