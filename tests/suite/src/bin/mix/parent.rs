// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The parent: it starts the workers, starts another one for each that it has killed, and does what concerns all of them.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use uvm_suite::modules::parameter;
use uvm_suite::{
    ensure, nothing_on_device, skip, stacks, this_program, Failure, Group, Killed, Outcome, Pass,
};
use vgpu_client::{driver_version, flash, Flash, Process, Vgpu, BLOCK};

use crate::board::{Board, Record};
use crate::deeds::{name, Has, ACTS, CHECKING, COUNT, EVENTS, ORDINARY};
use crate::events::{Events, TEST_HELD};
use crate::watch::watch;
use crate::worker::LACKS_MEMORY;
use crate::Options;

/// How often it looks at its children.
const PERIOD: Duration = Duration::from_millis(10);
/// From so many operations on, each kind must have been done.
const MANY: u64 = 4000;

/// Runs the workers to their end, and says what became of them.
pub(crate) fn run(options: &Options) -> Outcome {
    let process = Process::new()?;
    if driver_version(&process)?.is_none() {
        skip!("this is not uvm-rust, whose calls all processes make");
    }
    let group = match ["memory-max", "memory-high"]
        .iter()
        .all(|n| options.without.has(n))
    {
        true => None,
        false => Group::new()?,
    };
    let has = Has {
        ordinary: process.has_hmm()? && !options.without.has(ORDINARY),
        device: options.device.is_some(),
        groups: group.is_some(),
    };
    let tier = Tier::attach(&process, options)?;
    let board = Board::new(options.processes + 1)?;
    let [over, stuck] = [(); 2].map(|()| AtomicBool::new(false));
    let start = Instant::now();
    let records = options.processes + 1;
    let ended = std::thread::scope(|scope| {
        scope.spawn(|| watch(&board, records, options.patience, &over, &stuck));
        let ended = Crew::new(options, &board, group.as_ref(), has)
            .and_then(|mut crew| crew.work(&stuck).map(|()| crew.ends));
        over.store(true, Ordering::Relaxed);
        ended
    });
    let ends = ended?;
    let held = parameter("nvidia_uvm", TEST_HELD).unwrap_or_default();
    ensure!(
        held != "1",
        "{TEST_HELD} is still set, which only an event may set for a while"
    );
    report(options, &board, start.elapsed(), ends)?;
    if let Some(tier) = tier {
        tier.end()?;
    }
    let mut possible = has.possible(0, &ACTS, &options.without);
    possible.extend(has.possible(CHECKING + 1, &EVENTS, &options.without));
    let done = sums(options, &board)?;
    let never = possible.iter().find(|(deed, _)| done[*deed] == 0);
    ensure!(
        options.ops < MANY || never.is_none(),
        "{} was never done",
        never.map_or("", |(deed, _)| name(*deed))
    );
    Ok(Pass::Ok)
}

/// The device of the SSD tier, which is detached when this is dropped, also by a test that fails.
struct Tier<'a>(&'a Process);

impl<'a> Tier<'a> {
    /// Less host memory than the managed memory needs that has no room on the GPU.
    fn attach(process: &'a Process, options: &Options) -> Result<Option<Self>, Failure> {
        let Some(path) = &options.device else {
            return Ok(None);
        };
        let on = parameter("nvidia_uvm", "uvm_rust_flash").as_deref() == Some("Y");
        ensure!(on, "--device: load nvidia-uvm.ko with uvm_rust_flash=1");
        let vidmem = Vgpu::open()?.info(0)?.vidmem_bytes;
        process.flash_attach(Flash {
            path,
            host_bytes: (vidmem / 4).max(4 * BLOCK),
            quota_bytes: 0,
            flags: flash::FORCE,
        })?;
        Ok(Some(Self(process)))
    }

    /// Everybody is gone, and has left nothing there.
    fn end(self) -> Result<(), Failure> {
        let stats = self.0.flash_stats()?;
        println!("# {stats:?}");
        ensure!(
            stats.spilled > 0 && stats.fetched > 0,
            "nothing went to the device, or came back"
        );
        nothing_on_device(self.0)
    }
}

impl Drop for Tier<'_> {
    fn drop(&mut self) {
        let _ = self.0.flash_detach();
    }
}

/// A worker's place, which one process after the other has.
struct Slot {
    child: Option<Killed>,
    life: u16,
    /// In the cgroup whose memory is limited.
    limited: bool,
    /// When it was killed, if it was.
    killed: Option<Instant>,
    ended: bool,
}

/// How often processes have ended before their work was done.
#[derive(Clone, Copy, Debug, Default)]
struct Ends {
    killed: u64,
    by_limit: u64,
}

struct Crew<'a> {
    options: &'a Options,
    board: &'a Board,
    group: Option<&'a Group>,
    events: Events<'a>,
    slots: Vec<Slot>,
    ends: Ends,
}

impl<'a> Crew<'a> {
    fn new(
        options: &'a Options,
        board: &'a Board,
        group: Option<&'a Group>,
        has: Has,
    ) -> Result<Self, Failure> {
        let slot = |n| Slot {
            child: None,
            life: 0,
            limited: group.is_some() && n % 2 == 0,
            killed: None,
            ended: false,
        };
        Ok(Self {
            options,
            board,
            group,
            events: Events::new(options, board, group, has)?,
            slots: (0..options.processes).map(slot).collect(),
            ends: Ends::default(),
        })
    }

    /// Until all have done their part.
    fn work(&mut self, stuck: &AtomicBool) -> Result<(), Failure> {
        (0..self.slots.len()).try_for_each(|n| self.start(n))?;
        let tenth = (self.options.ops / 10).max(1);
        let mut told = 0;
        loop {
            ensure!(
                !stuck.load(Ordering::Relaxed),
                "a process does not go on; above is which, and where it is"
            );
            (0..self.slots.len()).try_for_each(|n| self.look(n))?;
            if self.slots.iter().all(|slot| slot.ended) {
                return Ok(());
            }
            let done = self.done()?;
            if done / tenth > told {
                told = done / tenth;
                println!("# {done} operations done");
            }
            if self.events.turn(done)? {
                self.kill()?;
            }
            std::thread::sleep(PERIOD);
        }
    }

    /// Operations that all workers have done.
    fn done(&self) -> Result<u64, Failure> {
        (0..self.slots.len())
            .map(|n| Ok(acts(&self.board.read(n)?)))
            .sum()
    }

    /// Starts a process for a place, which does what is left of its part.
    fn start(&mut self, n: usize) -> Result<(), Failure> {
        let Options {
            ops,
            seed,
            processes,
            ..
        } = *self.options;
        let part = ops / processes as u64 + u64::from((n as u64) < ops % processes as u64);
        let left = part.saturating_sub(acts(&self.board.read(n)?));
        let slot = &mut self.slots[n];
        slot.life += 1;
        let mut command = this_program()?;
        for (option, value) in [
            ("--worker", n.to_string()),
            ("--life", slot.life.to_string()),
            ("--ops", left.to_string()),
            ("--seed", seed.to_string()),
            ("--processes", processes.to_string()),
            ("--without", self.options.without.list()),
            ("--large", self.options.large_percent.to_string()),
            (
                "--oversubscription",
                self.options.oversubscription.to_string(),
            ),
        ] {
            command.args([option, &value]);
        }
        // A group of its own, with its children.
        command.process_group(0);
        command.arg("--board").arg(self.board.path());
        if let Some(device) = &self.options.device {
            command.arg("--device").arg(device);
        }
        let child = match self.group {
            Some(group) if slot.limited => {
                // This process is in the group for a moment, and may not be ended for it.
                self.events.lift_limits()?;
                group.within(|| command.spawn())??
            }
            _ => command.spawn()?,
        };
        slot.child = Some(Killed(child));
        slot.killed = None;
        Ok(())
    }

    /// Looks whether a process has ended, and why.
    fn look(&mut self, n: usize) -> Result<(), Failure> {
        let slot = &mut self.slots[n];
        let Some(child) = slot.child.as_mut().filter(|_| !slot.ended) else {
            return Ok(());
        };
        let pid = child.0.id();
        let Some(status) = child.0.try_wait()? else {
            let hangs = slot.killed.map(|when| when.elapsed());
            let hangs = hangs.filter(|waited| *waited > self.options.patience);
            return match hangs {
                None => Ok(()),
                Some(waited) => Err(format!(
                    "process {n} hangs {waited:?} after SIGKILL\n{}",
                    stacks(pid)
                )
                .into()),
            };
        };
        let was_killed = slot.killed.is_some() && status.signal() == Some(libc::SIGKILL);
        if status.success() {
            slot.ended = true;
            return Ok(());
        }
        if was_killed {
            self.ends.killed += 1;
        } else if slot.limited
            && is_for_lack_of_memory(status)
            // The end of one that is killed takes a while, and so may what this process does meanwhile.
            && self.events.limited(self.options.patience)
        {
            self.ends.by_limit += 1;
        } else {
            let life = slot.life;
            let text = format!(
                "process {n}, life {life}, ended with {status}; what it says of it is above"
            );
            return Err(text.into());
        }
        self.start(n)
    }

    /// Kills one that is at work.
    fn kill(&mut self) -> Result<(), Failure> {
        let alive: Vec<_> = (0..self.slots.len())
            .filter(|&n| !self.slots[n].ended && self.slots[n].killed.is_none())
            .collect();
        if alive.is_empty() {
            return Ok(());
        }
        let slot = &mut self.slots[alive[self.events.below(alive.len())]];
        if let Some(child) = &mut slot.child {
            child.0.kill()?;
            slot.killed = Some(Instant::now());
        }
        Ok(())
    }
}

/// Does a process end so if it gets no memory? Linux or the driver ends it, the driver fails its call or its kernel, or
/// Linux cannot give it a page.
pub(crate) fn is_for_lack_of_memory(status: ExitStatus) -> bool {
    status.code() == Some(i32::from(LACKS_MEMORY))
        || matches!(status.signal(), Some(libc::SIGKILL | libc::SIGBUS))
}

/// Operations in a worker's record.
fn acts(record: &Record) -> u64 {
    record.done[..CHECKING].iter().sum()
}

/// How often each deed was done, by all.
fn sums(options: &Options, board: &Board) -> Result<[u64; COUNT], Failure> {
    let mut sums = [0; COUNT];
    for n in 0..=options.processes {
        let record = board.read(n)?;
        sums.iter_mut().zip(record.done).for_each(|(s, n)| *s += n);
    }
    Ok(sums)
}

fn report(options: &Options, board: &Board, took: Duration, ends: Ends) -> Result<(), Failure> {
    let done = sums(options, board)?;
    let (mut longest, mut spent) = ([0; COUNT], [0; COUNT]);
    for n in 0..=options.processes {
        let record = board.read(n)?;
        for deed in 0..COUNT {
            longest[deed] = record.longest_ms[deed].max(longest[deed]);
            spent[deed] += record.all_us[deed];
        }
    }
    println!("# kind                     done   longest ms  on average ms  all of it s");
    for n in 0..COUNT {
        let (times, seconds) = (done[n], spent[n] as f64 / 1e6);
        let average = seconds * 1e3 / times.max(1) as f64;
        println!(
            "# {:<20} {times:>8} {:>12} {average:>14.1} {seconds:>12.1}",
            name(n),
            longest[n]
        );
    }
    let all: u64 = done[..CHECKING].iter().sum();
    println!(
        "# {all} operations in {:.0} s, {:.1} a second; {} processes were killed, and {} ended by the limit of their memory",
        took.as_secs_f64(),
        all as f64 / took.as_secs_f64(),
        ends.killed,
        ends.by_limit
    );
    Ok(())
}
