// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The screen, until somebody ends it.
//!
//! Whatever ends it, the terminal is as before: `ratatui::try_init` has a panic restore it,
//! and signals only set a flag, which is looked at a few times a second.

use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::style::Modifier;
use ratatui::text::Line;
use ratatui::widgets::Paragraph;
use ratatui::Frame;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::options::Options;
use crate::sample::Source;
use crate::screen;
use crate::view::View;

/// How soon a signal is noticed.
const NOTICE: Duration = Duration::from_millis(200);

/// What the keys have changed.
#[derive(Debug, Default)]
pub(crate) struct Looks {
    /// Lines that are above the screen.
    pub(crate) above: usize,
    /// What is missing is shown, instead of what is there.
    pub(crate) missing: bool,
    pub(crate) paused: bool,
    pub(crate) ended: bool,
}

/// Shows it until `q`, ^C or a signal.
pub(crate) fn run(source: &mut dyn Source, options: &Options) -> io::Result<()> {
    if !io::stdout().is_terminal() {
        return Err(io::Error::other(
            "no terminal: try --once, --json or --listen",
        ));
    }
    let end = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&end))?;
    }
    let mut terminal = ratatui::try_init()?;
    let done = shown(&mut terminal, source, options, &end);
    // Whose terminal is gone has none to restore.
    let restored = ratatui::try_restore();
    done.and(restored)
}

fn shown(
    terminal: &mut ratatui::DefaultTerminal,
    source: &mut dyn Source,
    options: &Options,
    end: &AtomicBool,
) -> io::Result<()> {
    let interval = options.interval.unwrap_or(Duration::from_secs(1));
    let mut view = View::new(source.sample());
    let mut looks = Looks::default();
    let mut last = Instant::now();
    loop {
        terminal.draw(|frame| draw(frame, &view, &mut looks))?;
        let mut redraw = false;
        while !redraw {
            if end.load(Relaxed) {
                return Ok(());
            }
            let left = interval.saturating_sub(last.elapsed());
            if event::poll(left.min(NOTICE))? {
                if let Event::Key(key) = event::read()? {
                    looks.key(key, terminal.size()?.height);
                }
                redraw = true;
            }
            if looks.ended {
                return Ok(());
            }
            if last.elapsed() >= interval {
                last = Instant::now();
                panic_if_asked();
                if !looks.paused {
                    view.update(source.sample());
                    redraw = true;
                }
            }
        }
    }
}

/// For the test that a panic restores the terminal, and not in what is installed.
fn panic_if_asked() {
    #[cfg(debug_assertions)]
    if std::env::var_os("UVMTOP_TEST_PANIC").is_some() {
        panic!("asked for");
    }
}

impl Looks {
    /// Does what a key is for, on a screen of so many lines.
    pub(crate) fn key(&mut self, key: KeyEvent, height: u16) {
        if key.kind == KeyEventKind::Release {
            return;
        }
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        let page = usize::from(height.saturating_sub(2)).max(1);
        match key.code {
            KeyCode::Char('c') if control => self.ended = true,
            KeyCode::Esc | KeyCode::Char('q') if self.missing => self.toggle(),
            KeyCode::Esc | KeyCode::Char('q') => self.ended = true,
            KeyCode::Char('?' | 'h') => self.toggle(),
            KeyCode::Char('p' | ' ') => self.paused = !self.paused,
            KeyCode::Up | KeyCode::Char('k') => self.above = self.above.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.above += 1,
            KeyCode::PageUp => self.above = self.above.saturating_sub(page),
            KeyCode::PageDown => self.above += page,
            KeyCode::Home => self.above = 0,
            _ => {}
        }
    }

    fn toggle(&mut self) {
        self.missing = !self.missing;
        self.above = 0;
    }
}

/// One screen: a line on top, what fits of the rest, and a line of keys.
pub(crate) fn draw(frame: &mut Frame<'_>, view: &View, looks: &mut Looks) {
    let area = frame.area();
    let body = match looks.missing {
        true => screen::missing(area.width),
        false => screen::body(view, area.width),
    };
    let room = usize::from(area.height.saturating_sub(2));
    // Whoever scrolls past the end, or whose list has become shorter, sees the end.
    looks.above = looks.above.min(body.len().saturating_sub(room));
    let below = body.len().saturating_sub(looks.above + room);
    let mut lines = vec![screen::head(view, area.width)];
    lines.extend(body.into_iter().skip(looks.above).take(room));
    lines.resize(usize::from(area.height).saturating_sub(1), Line::default());
    let mut keys = match looks.missing {
        true => String::from("q back"),
        false => String::from("q end  p pause  ? not shown"),
    };
    if looks.paused {
        keys.push_str("  PAUSED");
    }
    if below > 0 {
        keys.push_str(&format!("  ↓ {below} more"));
    }
    lines.push(Line::styled(keys, Modifier::DIM));
    frame.render_widget(Paragraph::new(lines), area);
}
