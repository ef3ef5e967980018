// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! One of the processes: a random program of its own, which says on the board what it does.

use std::process::ExitCode;
use std::time::Instant;

use uvm_suite::random::{Done, Memory, Program, Setup, Values, Wrong};
use uvm_suite::Failure;

use crate::acts::Extras;
use crate::board::{Board, Record};
use crate::deeds::{Has, ACTS, CHECKING, ORDINARY};
use crate::{Options, Post};

/// The exit status of a worker to which something was refused for lack of memory, and nothing else went wrong.
pub(crate) const LACKS_MEMORY: u8 = 3;

/// Works until its operations are done.
pub(crate) fn run(options: &Options, post: &Post) -> ExitCode {
    let ended = Worker::new(options, post).and_then(|mut worker| worker.all(options));
    let Err(wrong) = ended else {
        return ExitCode::SUCCESS;
    };
    // In one piece, as others print as well.
    let Post { number, life, .. } = post;
    let text: String = wrong.what.lines().map(|l| format!("#   {l}\n")).collect();
    print!("# process {number}, life {life}:\n{text}");
    match wrong.for_lack_of_memory {
        true => ExitCode::from(LACKS_MEMORY),
        false => ExitCode::FAILURE,
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
    fn new(options: &Options, post: &Post) -> Result<Self, Wrong> {
        let told = |error: std::io::Error| Wrong::new(format!("the board: {error}"));
        let board = Board::open(&post.board).map_err(told)?;
        let mut record = board.read(post.number).map_err(told)?;
        record.pid = std::process::id();
        record.life = u64::from(post.life);
        record.index = u64::MAX;
        record.deed = Some(CHECKING);
        board.write(post.number, &record).map_err(told)?;
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
        for index in 0..options.ops {
            let deed = self.program.draw(&possible);
            self.one(index, deed, |worker| {
                let act = ACTS[deed].0;
                worker.extras.act(&mut worker.program, index, act)
            })?;
        }
        self.one(options.ops, CHECKING, |worker| {
            worker.extras.drain(&worker.program)
        })?;
        // One after the other, so that each has as long as an operation.
        for area in 0..self.program.areas.len() {
            let index = options.ops + 1 + area as u64;
            self.one(index, CHECKING, |worker| {
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
        self.write()?;
        let start = Instant::now();
        what(self).map_err(|why| Wrong {
            what: self.program.explain(index, &why),
            ..why
        })?;
        self.record.did(deed, start.elapsed());
        Ok(())
    }

    fn write(&self) -> Done {
        let written = self.board.write(self.number, &self.record);
        written.map_err(|error| Wrong::new(format!("the board: {error}")))
    }
}

/// A failure of what other programs use as well.
pub(crate) fn failed(failure: Failure) -> Wrong {
    Wrong::new(format!("{failure:?}"))
}
