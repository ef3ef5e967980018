// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! One of the processes: a random program of its own, which says on the board what it does.

use std::path::PathBuf;
use std::time::Instant;

use uvm_suite::random::{Done, Memory, Program, Setup, Values, Wrong};
use uvm_suite::Failure;

use crate::acts::Extras;
use crate::board::{Board, Record};
use crate::deeds::{Has, ACTS, CHECKING, ORDINARY};
use crate::Options;

/// The exit status of a worker to which something was refused for lack of memory, and nothing else went wrong.
pub(crate) const LACKS_MEMORY: u8 = 3;

/// What one worker is told, and no other.
#[derive(Clone, Debug)]
pub(crate) struct Post {
    /// Its number, from 0.
    pub(crate) number: usize,
    /// Which of the processes that have this number one after the other, from 1.
    pub(crate) life: u16,
    /// By this file it enters the cgroup whose memory is limited, if it is to.
    pub(crate) group: Option<PathBuf>,
}

/// Works until all workers have done their operations together, and says with which status this process ends.
pub(crate) fn run(options: &Options, post: &Post, board: Board) -> u8 {
    let ended = Worker::new(options, post, board).and_then(|mut worker| worker.all(options));
    let Err(wrong) = ended else {
        return 0;
    };
    // In one piece, as others print as well.
    let Post { number, life, .. } = post;
    let text: String = wrong.what.lines().map(|l| format!("#   {l}\n")).collect();
    print!("# process {number}, life {life}:\n{text}");
    match wrong.for_lack_of_memory {
        true => LACKS_MEMORY,
        false => 1,
    }
}

struct Worker {
    number: usize,
    board: Board,
    record: Record,
    program: Program,
    extras: Extras,
}

/// The seed of one life of one worker.
fn seed(options: &Options, post: &Post) -> u64 {
    let which = (post.number as u64 + 1) << 16 | u64::from(post.life);
    options.seed ^ which.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Worker {
    fn new(options: &Options, post: &Post, board: Board) -> Result<Self, Wrong> {
        let start = Instant::now();
        let mut record = board.read(post.number).map_err(told)?;
        record.pid = std::process::id();
        record.life = u64::from(post.life);
        record.index = u64::MAX;
        record.deed = Some(CHECKING);
        board.write(post.number, &record).map_err(told)?;
        if let Some(group) = &post.group {
            let entered = std::fs::write(group, "0");
            entered.map_err(|error| Wrong::new(format!("the memory cgroup: {error}")))?;
        }
        let memory = match options.without.has(ORDINARY) {
            true => Memory::Managed,
            false => Memory::Both,
        };
        let program = Program::new(&Setup {
            seed: seed(options, post),
            oversubscription: options.oversubscription / options.processes as f64,
            memory,
            eviction: true,
            read_duplication: true,
            values: Values::Owned {
                owner: post.number as u8,
                life: post.life,
                writes: 0,
            },
            splits_may_fail: options.device.is_some(),
            evictions_may_fail: true,
            large_percent: options.large_percent,
        })?;
        record.did(CHECKING, start.elapsed());
        Ok(Self {
            number: post.number,
            board,
            record,
            program,
            extras: Extras::default(),
        })
    }

    fn all(&mut self, options: &Options) -> Done {
        let has = Has {
            ordinary: self.program.memory() != Memory::Managed,
            device: options.device.is_some(),
            groups: false,
        };
        let possible = has.possible(0, &ACTS, &options.without);
        let mut index = 0;
        while self.board.operations(options.processes).map_err(told)? < options.ops {
            let deed = self.program.draw(&possible);
            self.one(index, deed, |worker| {
                let act = ACTS[deed].0;
                worker.extras.act(&mut worker.program, index, act)
            })?;
            index += 1;
        }
        self.one(index, CHECKING, |worker| {
            worker.extras.drain(&worker.program)
        })?;
        // One after the other, so that each has as long as an operation.
        for area in 0..self.program.areas.len() {
            self.one(index + 1 + area as u64, CHECKING, |worker| {
                let area = &worker.program.areas[area];
                area.check(area.all())
            })?;
        }
        self.record.deed = None;
        self.write()
    }

    /// Does one thing, and says so on the board.
    fn one(&mut self, index: u64, deed: usize, what: impl FnOnce(&mut Self) -> Done) -> Done {
        self.record.index = index;
        self.record.deed = Some(deed);
        let written = self.board.write_head(self.number, &self.record);
        written.map_err(told)?;
        let start = Instant::now();
        what(self).map_err(|why| Wrong {
            what: self.program.explain(index, &why),
            ..why
        })?;
        self.record.did(deed, start.elapsed());
        self.write()
    }

    fn write(&self) -> Done {
        self.board.write(self.number, &self.record).map_err(told)
    }
}

fn told(error: std::io::Error) -> Wrong {
    Wrong::new(format!("the board: {error}"))
}

/// A failure of what other programs use as well.
pub(crate) fn failed(failure: Failure) -> Wrong {
    Wrong::new(format!("{failure:?}"))
}
