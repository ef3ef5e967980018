// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! `uvmtop`: what GPUs do with unified memory.

mod http;
mod kept;
mod live;
mod missing;
mod options;
mod processes;
mod prometheus;
mod rates;
mod sample;
mod screen;
mod terminal;
#[cfg(test)]
mod tests;
mod units;
mod view;

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use kept::Kept;
use live::Live;
use options::{Asked, How, Options};
use sample::Source;
use view::View;

fn main() -> ExitCode {
    let options = match options::parse(std::env::args_os().skip(1)) {
        Ok(Asked::Run(options)) => options,
        Ok(Asked::Help) => {
            return ended(io::stdout().write_all(options::help().as_bytes()));
        }
        Err(error) => {
            eprint!("uvmtop: {error}\n{}", options::USAGE);
            return ExitCode::from(2);
        }
    };
    let interval = options.interval.unwrap_or(Duration::from_secs(1));
    let mut source = Live::new(&options.root);
    if options.tools {
        source = match source.with_tools(interval) {
            Ok(source) => source,
            Err(error) => return ended(Err(error)),
        };
    }
    ended(match options.how {
        How::Screen => terminal::run(&mut source, &options),
        How::Text => once(&mut source, &options),
        How::Json => json(&mut source, &options),
        How::Prometheus => {
            let sample = source.sample();
            if sample.ran_short {
                return ended(Err(io::Error::from_raw_os_error(libc::EMFILE)));
            }
            let page = prometheus::text(&sample, &mut Kept::default());
            io::stdout().write_all(page.as_bytes())
        }
        How::Listen(address) => {
            let mut kept = Kept::default();
            http::listen(address, || {
                let sample = source.sample();
                (!sample.ran_short).then(|| prometheus::text(&sample, &mut kept))
            })
        }
    })
}

/// Who reads no further, as `head`, has had enough.
fn ended(result: io::Result<()>) -> ExitCode {
    match result {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            eprintln!("uvmtop: {error}");
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}

/// How wide a page is that goes to no terminal: all columns of processes fit.
const PAGE: u16 = 192;

/// How wide a page is: as wide as the terminal, if it goes to one.
fn page_width() -> u16 {
    match io::stdout().is_terminal() {
        true => ratatui::crossterm::terminal::size().map_or(PAGE, |(width, _)| width),
        false => PAGE,
    }
}

/// One page, with rates if an interval is given to measure them in.
fn once(source: &mut dyn Source, options: &Options) -> io::Result<()> {
    let mut view = View::new(source.sample());
    if let Some(interval) = options.interval {
        std::thread::sleep(interval);
        view.update(source.sample());
    }
    let mut page = String::new();
    let width = page_width();
    let head = std::iter::once(screen::head(&view, width));
    for line in head.chain(screen::body(&view, width)) {
        page.push_str(line.to_string().trim_end());
        page.push('\n');
    }
    io::stdout().write_all(page.as_bytes())
}

/// A sample a line, for as long as somebody reads, or one.
fn json(source: &mut dyn Source, options: &Options) -> io::Result<()> {
    let interval = options.interval.unwrap_or(Duration::from_secs(1));
    let mut out = io::stdout();
    if options.once && options.tools {
        source.sample();
        std::thread::sleep(interval);
    }
    loop {
        let mut line = serde_json::to_string(&source.sample())?;
        line.push('\n');
        out.write_all(line.as_bytes())?;
        out.flush()?;
        if options.once {
            return Ok(());
        }
        std::thread::sleep(interval);
    }
}
