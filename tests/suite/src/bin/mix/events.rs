// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! What happens to all processes, or to some, by the parent's hand and by its own random numbers.

use std::time::{Duration, Instant};

use oorandom::Rand64;
use uvm_suite::modules::SetParameter;
use uvm_suite::rm::{keep, IN_USE};
use uvm_suite::{ensure, Failure, Frozen, Group};
use vgpu_client::vgpu::{self, Inject};
use vgpu_client::{NvStatus, Vgpu, BLOCK};

use crate::board::{Board, Record};
use crate::deeds::{Event, Has, EVENTS, FIRST_EVENT};
use crate::Options;

/// Operations of all workers from one event to the next, on average.
const EVERY: u64 = 25;
/// What a limited group may have beyond what it has, at most.
const HEADROOM: u64 = 4 << 20;
/// How much of what a limited group has is too much, at most, in permille of the rest. Linux has a process wait by the square of
/// it for each 256 KiB: at 60 permille a quarter of a second, and two seconds, the most there is, from 180 on.
const EXCESS: u64 = 60;
/// The same, once in so many times.
const LARGE_EXCESS: (u64, u64) = (250, 8);

/// The module parameter by which evictions find all ordinary memory held.
pub(crate) const TEST_HELD: &str = "uvm_rust_test_held";

/// What lasts for a while, and is over when this is dropped.
enum Lasting<'a> {
    /// A limit of the group's.
    Limit(&'a Group),
    /// From where on the group's processes are made to wait.
    Slow(&'a Group),
    /// RM's client that keeps memory.
    Kept(#[allow(dead_code)] Vgpu),
    /// All ordinary memory is held.
    Held(#[allow(dead_code)] SetParameter),
}

impl Drop for Lasting<'_> {
    fn drop(&mut self) {
        match self {
            Self::Limit(group) => drop(group.limit("max")),
            Self::Slow(group) => drop(group.slow_from("max")),
            Self::Kept(_) | Self::Held(_) => {}
        }
    }
}

pub(crate) struct Events<'a> {
    board: &'a Board,
    record: Record,
    /// Where the parent's record is.
    place: usize,
    patience: Duration,
    group: Option<&'a Group>,
    device: Vgpu,
    rng: Rand64,
    possible: Vec<(usize, u64)>,
    /// How many operations there are when the next one comes.
    next: u64,
    lasting: Vec<(Instant, Lasting<'a>)>,
    /// When the last limit was lifted.
    lifted: Option<Instant>,
}

impl Drop for Events<'_> {
    /// What was to fail so many times may not have been asked for as often.
    fn drop(&mut self) {
        for kind in [vgpu::INJECT_FAULT_BUFFER_FULL, vgpu::INJECT_PMA_FAILURE] {
            let _ = self.inject(kind, 0, 0);
        }
    }
}

impl<'a> Events<'a> {
    pub(crate) fn new(
        options: &Options,
        board: &'a Board,
        group: Option<&'a Group>,
        has: Has,
    ) -> Result<Self, Failure> {
        Ok(Self {
            board,
            record: Record {
                pid: std::process::id(),
                ..Record::default()
            },
            place: options.processes,
            patience: options.patience,
            group,
            device: Vgpu::open()?,
            rng: Rand64::new(u128::from(options.seed)),
            possible: has.possible(FIRST_EVENT, &EVENTS, &options.without),
            next: EVERY,
            lasting: Vec::new(),
            lifted: None,
        })
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.rng.rand_range(0..end as u64) as usize
    }

    fn millis(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(self.rng.rand_range(from..to))
    }

    /// Ends what has lasted long enough; and if its time has come, after so many operations of all workers, has something
    /// happen. True if a process is to be killed.
    pub(crate) fn turn(&mut self, done: u64) -> Result<bool, Failure> {
        let now = Instant::now();
        self.end(|until, _| *until <= now);
        if done < self.next || self.possible.is_empty() {
            return Ok(false);
        }
        self.next = done + 1 + self.rng.rand_range(0..2 * EVERY);
        let deed = self.draw();
        self.record.index += 1;
        self.record.deed = Some(deed);
        self.board.write(self.place, &self.record)?;
        let start = Instant::now();
        let event = EVENTS[deed - FIRST_EVENT].0;
        self.happen(event)?;
        self.record.did(deed, start.elapsed());
        self.record.deed = None;
        self.board.write(self.place, &self.record)?;
        Ok(event == Event::Kill)
    }

    fn draw(&mut self) -> usize {
        let total = self.possible.iter().map(|one| one.1).sum();
        let mut draw = self.rng.rand_range(0..total);
        for (deed, weight) in &self.possible {
            if draw < *weight {
                return *deed;
            }
            draw -= weight;
        }
        self.possible[0].0
    }

    fn end(&mut self, which: impl Fn(&Instant, &Lasting<'_>) -> bool) {
        let before = self.lasting.len();
        let limited = self.is_limited();
        self.lasting.retain(|(until, what)| !which(until, what));
        if limited && self.lasting.len() < before {
            self.lifted = Some(Instant::now());
        }
    }

    fn lasts(&self, which: impl Fn(&Lasting<'_>) -> bool) -> bool {
        self.lasting.iter().any(|(_, what)| which(what))
    }

    fn is_limited(&self) -> bool {
        self.lasts(|what| matches!(what, Lasting::Limit(_)))
    }

    /// Evictions find ordinary memory again. What this thread waits for may need that, and nobody else lifts it.
    fn lift_held(&mut self) {
        self.end(|_, what| matches!(what, Lasting::Held(_)));
    }

    /// Was there a limit a moment ago, or is there?
    pub(crate) fn limited(&self, moment: Duration) -> bool {
        self.is_limited() || self.lifted.is_some_and(|when| when.elapsed() < moment)
    }

    fn last(&mut self, time: Duration, what: Lasting<'a>) {
        self.lasting.push((Instant::now() + time, what));
    }

    fn inject(&self, kind: u32, count: u64, skip: u64) -> Result<u32, Failure> {
        let done = self.device.inject(Inject {
            kind,
            count,
            skip,
            ..Default::default()
        })?;
        Ok(done.status)
    }

    fn happen(&mut self, event: Event) -> Result<(), Failure> {
        match (event, self.group) {
            // The parent does that.
            (Event::Kill, _) => {}
            (Event::Max, Some(group)) => {
                let more = self.rng.rand_range(0..HEADROOM);
                let time = self.millis(100, 2000);
                self.last(time, Lasting::Limit(group));
                group.limit(&(group.charged()? + more).to_string())?;
            }
            (Event::High, Some(group)) => {
                let (large, times) = LARGE_EXCESS;
                let most = match self.rng.rand_range(0..times) {
                    0 => large,
                    _ => EXCESS,
                };
                let excess = self.rng.rand_range(0..most);
                let time = self.millis(100, 1000);
                self.last(time, Lasting::Slow(group));
                group.slow_from(&(group.charged()? * 1000 / (1000 + excess)).to_string())?;
            }
            (Event::Max | Event::High, None) => {}
            (Event::Buffer, _) => {
                let count = 1 + self.below(50) as u64;
                self.inject(vgpu::INJECT_FAULT_BUFFER_FULL, count, 0)?;
            }
            (Event::Refuse, _) => {
                let (count, skip) = (1 + self.below(30) as u64, self.below(5) as u64);
                self.inject(vgpu::INJECT_PMA_FAILURE, count, skip)?;
            }
            (Event::Keep, _) => {
                self.lift_held();
                self.rm_keeps()?;
            }
            // Each would set back what it has found, and the first of two that overlap ends before the second.
            (Event::Held, _) if self.lasts(|what| matches!(what, Lasting::Held(_))) => {}
            (Event::Held, _) => {
                let set = SetParameter::new("nvidia_uvm", TEST_HELD, "1")?;
                let set = set.ok_or(format!("this nvidia-uvm.ko has no parameter {TEST_HELD}"))?;
                let time = self.millis(20, 300);
                self.last(time, Lasting::Held(set));
            }
            (Event::Sleep, _) => {
                self.lift_held();
                let time = self.millis(5, 60);
                let _frozen = self.freeze()?;
                let status = self.inject(vgpu::INJECT_SUSPEND, time.as_millis() as u64, 0)?;
                ensure!(status == 0, "UVM does not sleep, or wake up: {status:#x}");
            }
        }
        Ok(())
    }

    /// The workers and their children stand still. UVM works on all the same for what they have asked for: kernels fault, and
    /// pages are moved.
    fn freeze(&self) -> Result<Frozen, Failure> {
        let groups = (0..self.place).map(|n| Ok(self.board.read(n)?.pid));
        let groups: Vec<u32> = groups.collect::<Result<_, Failure>>()?;
        // One that has just been started has not said its number: it is not in a call of UVM's for long.
        let groups: Vec<u32> = groups.into_iter().filter(|pid| *pid != 0).collect();
        Ok(Frozen::new(&groups, self.patience)?)
    }

    /// RM takes some ranges of vidmem, an eighth of it at most, and keeps them.
    fn rm_keeps(&mut self) -> Result<(), Failure> {
        let rm = Vgpu::open()?;
        let blocks = rm.info(0)?.vidmem_bytes / BLOCK;
        for _ in 0..1 + self.rng.rand_range(0..blocks / 8) {
            let begin = self.rng.rand_range(1..blocks) * BLOCK;
            match keep(&rm, 0, begin, begin + BLOCK) {
                // An eviction that is to fail is one that RM wanted.
                Ok(done) => ensure!(
                    matches!(
                        NvStatus(done.status),
                        NvStatus(IN_USE) | NvStatus::OK | NvStatus::NO_MEMORY
                    ),
                    "the range at {begin:#x}: {}",
                    NvStatus(done.status)
                ),
                // Nobody has the GPU registered just now.
                Err(error) if error.errno() == Some(libc::EAGAIN) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let time = self.millis(100, 3000);
        self.last(time, Lasting::Kept(rm));
        Ok(())
    }
}
