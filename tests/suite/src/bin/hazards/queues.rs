// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Memory of a process that UVM writes events to for as long as it likes: which of it, and how much.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd};

use uvm_suite::{ensure, file_in_memory, memory_of_host, skip, Failure, Outcome, Pass, Suite};
use vgpu_client::uvm::EVENT_SIZE;
use vgpu_client::EventQueue;

use crate::{spared, start, still_works, NONE};

/// Of a file that is mapped again and again; each of its pages may be pinned a thousand times.
const PART: u64 = 16 << 20;
/// Events of the largest queue.
const MOST: u32 = 1 << 20;
/// Events of a small one, and the bytes of a file that has room for them.
const FEW: u32 = 64;
const ROOM: u64 = 1 << 20;

pub(crate) fn run(suite: &mut Suite) {
    suite.test(
        "queues: a queue that Linux cannot map is refused",
        NONE,
        beyond_memory,
    );
    suite.test(
        "queues: a large queue is made, and a larger one is not",
        NONE,
        as_large,
    );
    suite.test(
        "queues: a queue in a file that is written to a disk is refused",
        NONE,
        in_a_file,
    );
}

/// A queue of more pages than the machine has, which Linux maps for nobody.
fn beyond_memory() -> Outcome {
    let (process, gpu) = start()?;
    if spared(&process)? {
        skip!("the unmodified driver oopses at the next event, see docs/fixes.md");
    }
    let events = memory_of_host("MemTotal")? / EVENT_SIZE as u64 + 1;
    let capacity =
        u32::try_from(events.next_power_of_two()).map_err(|_| "this machine is large")?;
    ensure!(
        EventQueue::in_file(&process, capacity, part()?.as_fd(), PART).is_err(),
        "a queue of {capacity} events was made"
    );
    still_works(&process, &gpu)?;
    Ok(Pass::Ok)
}

fn as_large() -> Outcome {
    let (process, gpu) = start()?;
    if spared(&process)? {
        skip!("the unmodified driver makes any queue, see docs/fixes.md");
    }
    let file = part()?;
    drop(EventQueue::in_file(&process, MOST, file.as_fd(), PART)?);
    ensure!(
        EventQueue::in_file(&process, 2 * MOST, file.as_fd(), PART).is_err(),
        "a queue of {} events was made",
        2 * MOST
    );
    still_works(&process, &gpu)?;
    Ok(Pass::Ok)
}

/// A disk's own pages are a file's as well.
fn in_a_file() -> Outcome {
    let (process, gpu) = start()?;
    if spared(&process)? {
        skip!("the file system warns of the unmodified driver, see docs/fixes.md");
    }
    let Some(disk) = Disk::new()? else {
        skip!("no loop device");
    };
    let made = EventQueue::in_file(&process, FEW, disk.0.as_fd(), ROOM);
    ensure!(made.is_err(), "a queue in pages of a disk was made");
    drop(EventQueue::in_file(&process, FEW, part()?.as_fd(), PART)?);
    still_works(&process, &gpu)?;
    Ok(Pass::Ok)
}

fn part() -> Result<File, Failure> {
    let file = file_in_memory(c"queue")?;
    file.set_len(PART)?;
    Ok(file)
}

/// A disk in memory, until it is dropped.
struct Disk(File);

/// Calls of a loop device, as `linux/loop.h` numbers them.
const LOOP_SET_FD: libc::Ioctl = 0x4c00;
const LOOP_CLR_FD: libc::Ioctl = 0x4c01;

impl Disk {
    fn new() -> Result<Option<Self>, Failure> {
        let Ok(device) = OpenOptions::new().read(true).write(true).open("/dev/loop7") else {
            return Ok(None);
        };
        let file = file_in_memory(c"disk")?;
        file.set_len(ROOM)?;
        // SAFETY: the call takes a number, and keeps the file for itself.
        let set = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_SET_FD, file.as_raw_fd()) };
        ensure!(set == 0, "LOOP_SET_FD: {}", io::Error::last_os_error());
        Ok(Some(Self(device)))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // SAFETY: the call takes no argument.
        unsafe { libc::ioctl(self.0.as_raw_fd(), LOOP_CLR_FD, 0) };
    }
}
