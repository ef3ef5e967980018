// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The process that starts the workers, kills some, starts another one for each that has gone, and does what concerns all.
//! It is a process of one thread, so that a worker is a copy of it: to load a program from the host's files takes an emulated
//! machine several times as long.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use uvm_suite::{ensure, say, stacks, Failure, Forked, Group};
use vgpu_client::Process;

use crate::board::Board;
use crate::deeds::{name, Has, ACTS, EVENTS, FIRST_EVENT, ORDINARY};
use crate::events::Events;
use crate::worker::{self, Post, LACKS_MEMORY};
use crate::Options;

/// How often it looks at its children.
const PERIOD: Duration = Duration::from_millis(10);
/// From so many operations on, each kind must have been done.
const MANY: u64 = 4000;

/// The crew's process, which has not begun. It is made while this program has a single thread.
pub(crate) struct Waiting {
    crew: Forked,
    word: UnixStream,
}

impl Waiting {
    pub(crate) fn new(options: &Options, board: &Board) -> io::Result<Self> {
        let (word, mut heard) = UnixStream::pair()?;
        let crew = Forked::new(|| {
            let begins = heard.read_exact(&mut [0]).map_err(Failure::from);
            let ended = begins.and_then(|()| run(options, board));
            ended.map_err(|why| say(why.text())).is_ok()
        })?;
        Ok(Self { crew, word })
    }

    /// Lets the crew begin, for which what it works on has to be there: UVM, and the device of the SSD tier.
    pub(crate) fn go(mut self) -> io::Result<Forked> {
        self.word.write_all(&[0])?;
        Ok(self.crew)
    }
}

/// Runs the workers to their end.
fn run(options: &Options, board: &Board) -> Result<(), Failure> {
    let limits = ["memory-max", "memory-high"];
    let group = match limits.iter().all(|name| options.without.has(name)) {
        true => None,
        false => Group::new()?,
    };
    let has = Has {
        ordinary: Process::new()?.has_hmm()? && !options.without.has(ORDINARY),
        device: options.device.is_some(),
        groups: group.is_some(),
    };
    Crew::new(options, board, group.as_ref(), has)?.work()?;
    let mut possible = has.possible(0, &ACTS, &options.without);
    possible.extend(has.possible(FIRST_EVENT, &EVENTS, &options.without));
    let done = board.sums(options.processes + 1)?;
    let never = possible.iter().find(|(deed, _)| done[*deed] == 0);
    ensure!(
        options.ops < MANY || never.is_none(),
        "{} was never done",
        never.map_or("", |(deed, _)| name(*deed))
    );
    Ok(())
}

/// A worker's place, which one process after the other has.
struct Slot {
    child: Option<Forked>,
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

    /// Until all have ended, once they have done the operations together.
    fn work(&mut self) -> Result<(), Failure> {
        (0..self.slots.len()).try_for_each(|n| self.start(n))?;
        let tenth = (self.options.ops / 10).max(1);
        let mut told = 0;
        loop {
            (0..self.slots.len()).try_for_each(|n| self.look(n))?;
            if self.slots.iter().all(|slot| slot.ended) {
                break;
            }
            let done = self.board.operations(self.options.processes)?;
            if done / tenth > told {
                told = done / tenth;
                println!("# {done} operations done");
            }
            if self.events.turn(done)? {
                self.kill();
            }
            std::thread::sleep(PERIOD);
        }
        let Ends { killed, by_limit } = self.ends;
        println!(
            "# {killed} processes were killed, and {by_limit} ended by the limit of their memory"
        );
        Ok(())
    }

    /// Starts a process for a place.
    fn start(&mut self, n: usize) -> Result<(), Failure> {
        let slot = &mut self.slots[n];
        slot.life += 1;
        let group = self.group.filter(|_| slot.limited);
        let post = Post {
            number: n,
            life: slot.life,
            group: group.map(Group::procs),
        };
        let options = self.options.clone();
        slot.child = Some(Forked::apart(self.board.file()?, move |file| {
            worker::run(&options, &post, Board::of(file))
        })?);
        slot.killed = None;
        Ok(())
    }

    /// Looks whether a process has ended, and why.
    fn look(&mut self, n: usize) -> Result<(), Failure> {
        let slot = &mut self.slots[n];
        let Some(child) = slot.child.as_mut().filter(|_| !slot.ended) else {
            return Ok(());
        };
        let pid = child.id();
        let Some(status) = child.try_wait()? else {
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
    fn kill(&mut self) {
        let alive: Vec<_> = (0..self.slots.len())
            .filter(|&n| !self.slots[n].ended && self.slots[n].killed.is_none())
            .collect();
        if alive.is_empty() {
            return;
        }
        let slot = &mut self.slots[alive[self.events.below(alive.len())]];
        if let Some(child) = &slot.child {
            child.kill();
            slot.killed = Some(Instant::now());
        }
    }
}

/// Does a process end so if it gets no memory? Linux or the driver ends it, the driver fails its call or its kernel, or
/// Linux cannot give it a page.
pub(crate) fn is_for_lack_of_memory(status: ExitStatus) -> bool {
    status.code() == Some(i32::from(LACKS_MEMORY))
        || matches!(status.signal(), Some(libc::SIGKILL | libc::SIGBUS))
}
