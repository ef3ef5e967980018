// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The program itself: on a terminal, which it gives back as it was; with its output cut
//! short; and asked over HTTP.

#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PROGRAM: &str = env!("CARGO_BIN_EXE_uvmtop");

/// A folder without anything, as the root of the file system.
fn nothing(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// A terminal of 80x24, with the program on it.
struct Terminal {
    master: OwnedFd,
    /// Keeps the terminal when the program is gone.
    slave: OwnedFd,
    before: String,
    program: Child,
    said: Vec<u8>,
}

/// How a terminal is set, to be compared.
fn settings(terminal: &OwnedFd) -> String {
    let mut set = std::mem::MaybeUninit::<libc::termios>::zeroed();
    // SAFETY: the structure is writable and of the right type.
    let told = unsafe { libc::tcgetattr(terminal.as_raw_fd(), set.as_mut_ptr()) };
    assert_eq!(told, 0);
    // SAFETY: zeros are a termios, and the call has succeeded.
    let set = unsafe { set.assume_init() };
    format!(
        "{:x} {:x} {:x} {:x}",
        set.c_iflag, set.c_oflag, set.c_cflag, set.c_lflag
    )
}

impl Terminal {
    fn new(name: &str, panic: bool) -> Self {
        let (mut master, mut slave) = (-1, -1);
        let size = libc::winsize {
            ws_row: 24,
            ws_col: 80,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        let none = std::ptr::null_mut();
        // SAFETY: the outputs are writable, there is room for no name, which is allowed, and
        // the size is readable.
        let made = unsafe { libc::openpty(&mut master, &mut slave, none, none.cast(), &size) };
        assert_eq!(made, 0);
        // SAFETY: both are open, and nobody else's.
        let (master, slave) =
            unsafe { (OwnedFd::from_raw_fd(master), OwnedFd::from_raw_fd(slave)) };
        let before = settings(&slave);
        let end = || Stdio::from(slave.try_clone().unwrap());
        let mut command = Command::new(PROGRAM);
        command
            .arg("--root")
            .arg(nothing(name))
            .args(["--interval", "0.1"]);
        if panic {
            command.env("UVMTOP_TEST_PANIC", "1");
        }
        let program = command
            .env("TERM", "xterm")
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn()
            .unwrap();
        Self {
            master,
            slave,
            before,
            program,
            said: Vec::new(),
        }
    }

    /// Takes in what is said until it holds this.
    fn wait(&mut self, text: &str) {
        let since = Instant::now();
        while !String::from_utf8_lossy(&self.said).contains(text) {
            let said = String::from_utf8_lossy(&self.said);
            assert!(
                since.elapsed() < Duration::from_secs(60),
                "no {text:?} in {said:?}"
            );
            self.take(100);
        }
    }

    fn take(&mut self, milliseconds: i32) {
        let mut ready = libc::pollfd {
            fd: self.master.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one structure, which is readable and writable.
        if unsafe { libc::poll(&mut ready, 1, milliseconds) } == 1 {
            let mut piece = [0; 4096];
            let mut file = std::fs::File::from(self.master.try_clone().unwrap());
            let read = file.read(&mut piece).unwrap();
            self.said.extend_from_slice(&piece[..read]);
        }
    }

    /// Waits for its end, after which the terminal is as it was.
    fn ended(mut self) -> (Option<i32>, String) {
        let since = Instant::now();
        let status = loop {
            if let Some(status) = self.program.try_wait().unwrap() {
                break status;
            }
            if since.elapsed() > Duration::from_secs(60) {
                let _ = self.program.kill();
                panic!("it does not end");
            }
            self.take(50);
        };
        self.take(50);
        assert_eq!(
            settings(&self.slave),
            self.before,
            "the terminal is not as it was"
        );
        let said = String::from_utf8_lossy(&self.said).into_owned();
        let (shown, hidden) = (said.rfind("\u{1b}[?1049h"), said.rfind("\u{1b}[?1049l"));
        assert!(
            shown.is_some() && hidden > shown,
            "the other screen stays: {said:?}"
        );
        assert!(
            said.rfind("\u{1b}[?25h") > said.rfind("\u{1b}[?25l"),
            "no cursor: {said:?}"
        );
        (status.code(), said)
    }
}

#[test]
fn a_terminal_is_given_back_by_key_and_by_signal() {
    let mut terminal = Terminal::new("key", false);
    terminal.wait("q end");
    assert_ne!(
        settings(&terminal.slave),
        terminal.before,
        "it was not changed at all"
    );
    let mut keys = std::fs::File::from(terminal.master.try_clone().unwrap());
    keys.write_all(b"?").unwrap();
    terminal.wait("Thrashing");
    keys.write_all(b"qq").unwrap();
    assert_eq!(terminal.ended().0, Some(0));

    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
        let mut terminal = Terminal::new("signal", false);
        terminal.wait("q end");
        // SAFETY: a signal to our own child, which has not been waited for.
        let sent = unsafe { libc::kill(terminal.program.id() as i32, signal) };
        assert_eq!(sent, 0);
        assert_eq!(terminal.ended().0, Some(0), "signal {signal}");
    }
}

#[test]
#[cfg(debug_assertions)]
fn a_terminal_is_given_back_by_a_panic() {
    let (status, said) = Terminal::new("panic", true).ended();
    assert_eq!(status, Some(101));
    let (told, hidden) = (said.rfind("asked for"), said.rfind("\u{1b}[?1049l"));
    assert!(told > hidden, "said on the screen that went away: {said:?}");
}

#[test]
fn pages_without_a_terminal() {
    let run = |args: &[&str]| {
        let mut command = Command::new(PROGRAM);
        command.arg("--root").arg(nothing("pages")).args(args);
        let done = command.output().unwrap();
        (done.status.code(), String::from_utf8(done.stdout).unwrap())
    };
    let (status, page) = run(&["--once"]);
    assert_eq!(status, Some(0));
    assert!(
        page.contains("no nvidia-uvm") && page.contains("No GPU is seen."),
        "{page}"
    );
    let (status, line) = run(&["--once", "--json"]);
    assert_eq!((status, line.lines().count()), (Some(0), 1));
    assert!(line.starts_with("{\"format\":1,"), "{line}");
    assert_eq!(run(&["--what"]).0, Some(2));
    // A screen wants a terminal.
    assert_eq!(run(&[]), (Some(1), String::new()));
    let (status, help) = run(&["--help"]);
    assert!(
        status == Some(0) && help.contains("- Thrashing that"),
        "{help}"
    );
}

#[test]
fn who_reads_one_line_ends_it() {
    let mut command = Command::new(PROGRAM);
    command
        .arg("--root")
        .arg(nothing("pipe"))
        .args(["--json", "--interval", "0.1"]);
    let mut program = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(program.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert!(line.ends_with("}\n"), "{line}");
    // The pipe is closed by now.
    let status = program.wait().unwrap();
    assert!(status.success() || status.code().is_none(), "{status}");
}

#[test]
fn prometheus_asks() {
    let mut command = Command::new(PROGRAM);
    command
        .arg("--root")
        .arg(nothing("http"))
        .args(["--listen", "0"]);
    let mut program = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(program.stderr.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    let address = line.trim().strip_prefix("uvmtop: http://").unwrap();
    let address = address.strip_suffix("/metrics").unwrap();
    assert!(address.starts_with("127.0.0.1:"), "{address}");
    let said = ["localhost", "127.0.0.1:1", "evil.example"].map(|host| {
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        let request = format!("GET /metrics HTTP/1.1\r\nHost: {host}\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut said = String::new();
        stream.read_to_string(&mut said).unwrap();
        said
    });
    program.kill().unwrap();
    program.wait().unwrap();
    assert!(said[2].starts_with("HTTP/1.1 403 "), "{}", said[2]);
    for said in &said[..2] {
        assert!(
            said.contains("uvm_rust_module_info{module=\"none\""),
            "{said}"
        );
    }
}
