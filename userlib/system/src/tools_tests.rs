// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Trackers without UVM: a pair of sockets stands for the file of UVM's tools, as its other end tells when it is closed.

#![allow(clippy::unwrap_used)]

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command};

use super::*;

/// Longer than any test waits.
const LONG: Duration = Duration::from_secs(3600);

fn process() -> Child {
    Command::new("sleep").arg("3600").spawn().unwrap()
}

/// A tracker of this process that holds one end of a pair, and the other end.
fn tracker(pid: u32) -> (Tracker, UnixStream) {
    let (reads, writes) = UnixStream::pair().unwrap();
    // SAFETY: the call takes two numbers.
    let process = unsafe { libc::syscall(libc::SYS_pidfd_open, libc::c_long::from(pid), 0) };
    let tracker = Tracker {
        pid,
        process: Arc::new(descriptor(process).unwrap()),
        since: Instant::now(),
        spaces: vec![Space {
            page: Page::new().unwrap(),
            _tools: writes.into(),
        }],
    };
    (tracker, reads)
}

fn tools(trackers: Vec<Tracker>, most: Duration) -> Tools {
    let tools = Tools::new(&Root::new("/made-up")).unwrap();
    tools.shared.set(|open| {
        open.until = Some(Instant::now() + most);
        open.trackers = trackers;
    });
    tools
}

/// Whether the other end is closed within this time.
fn is_closed(pipe: &UnixStream, within: Duration) -> bool {
    let mut ready = libc::pollfd {
        fd: pipe.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one structure, which is readable and writable.
    let ended = unsafe { libc::poll(&mut ready, 1, within.as_millis() as i32) } == 1;
    ended && pipe.try_clone().unwrap().read(&mut [0]).unwrap() == 0
}

#[test]
fn a_process_that_ends_is_let_go_at_once_and_others_are_not() {
    let (mut one, mut other) = (process(), process());
    let ((of_one, one_closed), (of_other, other_closed)) = (tracker(one.id()), tracker(other.id()));
    let tools = tools(vec![of_one, of_other], LONG);
    assert!(!is_closed(&one_closed, Duration::from_millis(200)));
    one.kill().unwrap();
    // Nobody looks, and nobody has waited for the process.
    assert!(is_closed(&one_closed, Duration::from_secs(60)));
    assert!(!is_closed(&other_closed, Duration::from_millis(200)));
    other.kill().unwrap();
    assert!(is_closed(&other_closed, Duration::from_secs(60)));
    drop(tools);
    for mut child in [one, other] {
        child.wait().unwrap();
    }
}

#[test]
fn who_looks_no_more_keeps_nothing() {
    let mut child = process();
    let (of_child, closed) = tracker(child.id());
    let tools = tools(vec![of_child], Duration::from_millis(300));
    assert!(is_closed(&closed, Duration::from_secs(60)));
    // A look and the end close what is open, too.
    let (of_child, closed) = tracker(child.id());
    tools.shared.set(|open| {
        (open.until, open.trackers) = (Some(Instant::now() + LONG), vec![of_child]);
    });
    assert!(!is_closed(&closed, Duration::from_millis(200)));
    let (counts, why) = tools.look(&[], LONG);
    assert_eq!(counts.keys().collect::<Vec<_>>(), [&child.id()]);
    assert_eq!(
        why.unwrap().kind(),
        io::ErrorKind::Unsupported,
        "in a folder that stands for /"
    );
    assert!(is_closed(&closed, Duration::ZERO));
    let (of_child, closed) = tracker(child.id());
    tools.shared.set(|open| open.trackers = vec![of_child]);
    drop(tools);
    assert!(is_closed(&closed, Duration::ZERO));
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn counts_are_those_of_all_va_spaces() {
    let (mut tracker, _pipe) = tracker(std::process::id());
    let (second, _) = self::tracker(std::process::id());
    tracker.spaces.extend(second.spaces);
    for (space, n) in tracker.spaces.iter().zip([1, 100]) {
        for (which, n) in [
            (BYTES_IN, n),
            (BYTES_OUT, 2 * n),
            (CPU_FAULTS, 3 * n),
            (GPU_FAULTS, 4 * n),
        ] {
            // SAFETY: the page has 512 counters, and UVM writes none of them here.
            unsafe { space.page.0.cast::<u64>().add(which).write(n) };
        }
    }
    let counts = tracker.counts();
    let all = (
        counts.bytes_in,
        counts.bytes_out,
        counts.cpu_faults,
        counts.faults,
    );
    assert_eq!(all, (101, 202, 303, 404));
    assert!(counts.seconds > 0.0 && counts.seconds < 60.0);
}

#[test]
fn a_copy_of_a_descriptor_is_the_same_file_and_another_opening_is_not() {
    let open = || OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
    let (one, other) = (open(), open());
    match is_same(&one, &other) {
        Err(error) => assert_eq!(error.raw_os_error(), Some(libc::ENOSYS)),
        Ok(same) => {
            assert!(!same);
            assert!(is_same(&one, &one.try_clone().unwrap()).unwrap());
        }
    }
}
