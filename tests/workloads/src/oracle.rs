// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! How much has to be moved, computed from a program and a size of GPU memory.
//!
//! A GPU of so many blocks, each of which is on the host, on the GPU, or nowhere
//! (UVM's rule, with no second copy). Room is made by taking a block that holds
//! nothing anybody needs, or else the one least recently prefetched or faulted
//! in. A block that is needed is moved when it changes place; one that is not is
//! never moved. What is *needed* is a matter of [`Knowledge`]:
//!
//! - [`Knowledge::Future`], the oracle: a block is needed if the next thing that
//!   happens to it is a read. What it moves is the *required* traffic: bytes that
//!   are read after having been written elsewhere, or that had to leave a full
//!   GPU and are read later.
//! - [`Knowledge::Told`]: needed unless the program discarded it, which is what a
//!   discarding driver can know.
//! - [`Knowledge::Nothing`]: needed once it was ever written, UVM without discard.
//!
//! The last two predict the driver; the tests of this crate and the table of
//! `make workloads` put them beside what it did.

use std::collections::VecDeque;

use crate::program::{BufferId, Place, Program, Span, Step};

/// What is known of data that nobody will read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Knowledge {
    /// Nothing is known: all data has to be kept.
    Nothing,
    /// What the program discarded is known, and nothing else.
    Told,
    /// All of it is known, since the future is.
    Future,
}

/// Blocks moved between the program's `Start` and `Stop`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Blocks copied to the GPU.
    pub to_gpu: u64,
    /// Blocks copied to the host.
    pub to_host: u64,
}

impl Traffic {
    /// Blocks copied in both directions together.
    pub fn blocks(self) -> u64 {
        self.to_gpu + self.to_host
    }
}

/// What `program` moves on a GPU with room for `capacity` blocks.
pub fn traffic(program: &Program, capacity: usize, knowledge: Knowledge) -> Traffic {
    let mut machine = Machine::new(program, capacity.max(1), knowledge);
    program.steps.iter().for_each(|step| machine.step(step));
    machine.counted
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Nowhere,
    Host,
    Gpu,
}

#[derive(Clone, Debug)]
struct Block {
    at: At,
    /// Without knowledge of the future: holds something that may be needed.
    holds: bool,
    /// Prefetched for the next kernel.
    awaited: bool,
    /// Uses to come: does each see what is there now?
    uses: VecDeque<bool>,
}

struct Machine {
    knowledge: Knowledge,
    capacity: usize,
    blocks: Vec<Block>,
    /// Of each buffer, the number of its first block.
    first: Vec<usize>,
    /// Blocks on the GPU, the least recently moved one first.
    resident: VecDeque<usize>,
    counted: Traffic,
    counting: bool,
}

impl Machine {
    fn new(program: &Program, capacity: usize, knowledge: Knowledge) -> Self {
        let mut first = Vec::with_capacity(program.buffers.len());
        let mut count = 0;
        for buffer in &program.buffers {
            first.push(count);
            count += buffer.blocks;
        }
        let block = Block {
            at: At::Nowhere,
            holds: false,
            awaited: false,
            uses: VecDeque::new(),
        };
        let mut machine = Self {
            knowledge,
            capacity,
            blocks: vec![block; count],
            first,
            resident: VecDeque::new(),
            counted: Traffic::default(),
            counting: false,
        };
        machine.learn(program);
        machine
    }

    /// Notes all uses to come.
    fn learn(&mut self, program: &Program) {
        for step in &program.steps {
            let mut note = |span: Span, reads: bool| {
                for id in span.each() {
                    let number = self.number(id);
                    self.blocks[number].uses.push_back(reads);
                }
            };
            match step {
                Step::HostWrite(span) => note(*span, false),
                Step::HostRead(span) => note(*span, true),
                Step::Kernel(uses) => {
                    for u in uses {
                        note(u.span, u.access.reads());
                    }
                }
                _ => {}
            }
        }
    }

    fn number(&self, (buffer, block): (BufferId, usize)) -> usize {
        self.first[buffer] + block
    }

    fn needed(&self, block: usize) -> bool {
        let b = &self.blocks[block];
        match self.knowledge {
            Knowledge::Future => b.uses.front().is_some_and(|&reads| reads),
            _ => b.holds,
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Start => self.counting = true,
            Step::Stop => self.counting = false,
            Step::HostWrite(span) | Step::HostRead(span) => {
                for id in span.each() {
                    self.use_on_host(self.number(id));
                }
            }
            Step::Prefetch(span, place) => {
                for id in span.each() {
                    match place {
                        Place::Gpu => self.move_to_gpu(self.number(id)),
                        Place::Host => self.move_to_host(self.number(id)),
                    }
                }
            }
            Step::Kernel(uses) => {
                // All of it is in use until the kernel ends.
                let order = side_by_side(uses.iter().map(|u| u.span).collect());
                for &id in &order {
                    self.use_on_gpu(self.number(id));
                }
                for &id in &order {
                    self.used(self.number(id));
                }
            }
            Step::Discard(span, _) => {
                for id in span.each() {
                    let number = self.number(id);
                    if self.knowledge == Knowledge::Told {
                        self.blocks[number].holds = false;
                        self.blocks[number].awaited = false;
                    }
                }
            }
        }
    }

    fn use_on_host(&mut self, block: usize) {
        self.move_to_host(block);
        self.used(block);
    }

    fn use_on_gpu(&mut self, block: usize) {
        // An access to what is there goes unseen: it makes nothing more recent.
        if self.blocks[block].at != At::Gpu {
            self.move_to_gpu(block);
        }
    }

    fn used(&mut self, block: usize) {
        let b = &mut self.blocks[block];
        b.uses.pop_front();
        b.holds = true;
        b.awaited = false;
    }

    fn move_to_host(&mut self, block: usize) {
        if self.blocks[block].at == At::Gpu {
            self.resident.retain(|&other| other != block);
            if self.needed(block) {
                self.count(|t| t.to_host += 1);
            }
        }
        let b = &mut self.blocks[block];
        b.at = At::Host;
        b.holds = true;
    }

    fn move_to_gpu(&mut self, block: usize) {
        if self.blocks[block].at == At::Gpu {
            self.resident.retain(|&other| other != block);
        } else {
            if self.resident.len() >= self.capacity {
                self.make_room();
            }
            if self.blocks[block].at == At::Host && self.needed(block) {
                self.count(|t| t.to_gpu += 1);
            }
        }
        let b = &mut self.blocks[block];
        b.at = At::Gpu;
        b.holds = true;
        b.awaited = true;
        self.resident.push_back(block);
    }

    fn make_room(&mut self) {
        let idle = |b: usize| !self.needed(b) && !self.blocks[b].awaited;
        let needless = self.resident.iter().position(|&b| idle(b));
        let Some(victim) = self.resident.remove(needless.unwrap_or(0)) else {
            return;
        };
        if self.needed(victim) {
            self.count(|t| t.to_host += 1);
            self.blocks[victim].at = At::Host;
        } else {
            self.blocks[victim].at = At::Nowhere;
        }
    }

    fn count(&mut self, what: impl FnOnce(&mut Traffic)) {
        if self.counting {
            what(&mut self.counted);
        }
    }
}

/// The blocks of spans that a kernel goes through at the same time, all reaching
/// their ends together.
fn side_by_side(spans: Vec<Span>) -> Vec<(BufferId, usize)> {
    let longest = spans.iter().map(|s| s.blocks).max().unwrap_or(0);
    let mut order = Vec::with_capacity(spans.iter().map(|s| s.blocks).sum());
    for i in 0..longest {
        for s in &spans {
            let (from, to) = (i * s.blocks / longest, (i + 1) * s.blocks / longest);
            order.extend((from..to).map(|b| (s.buffer, s.first + b)));
        }
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use Knowledge::{Future, Nothing, Told};

    /// A buffer, written by the CPU before `Start` if it is the input.
    fn start(input: usize, others: &[usize]) -> (Program, Vec<Span>) {
        let mut p = Program::default();
        let input = p.buffer("input", input);
        let mut spans = vec![p.all(input)];
        p.host_write(spans[0]);
        for (i, &blocks) in others.iter().enumerate() {
            let buffer = p.buffer(format!("{i}"), blocks);
            spans.push(p.all(buffer));
        }
        p.push(Step::Start);
        (p, spans)
    }

    fn moved(p: &Program, capacity: usize, knowledge: Knowledge) -> (u64, u64) {
        let t = traffic(p, capacity, knowledge);
        (t.to_gpu, t.to_host)
    }

    #[test]
    fn what_the_cpu_wrote_and_the_gpu_reads_moves_once() {
        let (mut p, s) = start(4, &[]);
        p.launch(&[s[0].read()]);
        p.launch(&[s[0].update()]);
        for knowledge in [Nothing, Told, Future] {
            assert_eq!(moved(&p, 4, knowledge), (4, 0));
        }
        p.push(Step::HostRead(s[0]));
        assert_eq!(moved(&p, 4, Future), (4, 4));
        p.push(Step::Stop);
        p.launch(&[s[0].read()]);
        assert_eq!(moved(&p, 4, Future), (4, 4), "after the end");
    }

    #[test]
    fn what_is_overwritten_unread_is_not_required() {
        // The GPU overwrites what the CPU wrote.
        let (mut p, s) = start(4, &[]);
        p.launch(&[s[0].write()]);
        assert_eq!(
            (moved(&p, 4, Nothing), moved(&p, 4, Future)),
            ((4, 0), (0, 0))
        );
        // The CPU overwrites what the GPU wrote.
        p.host_write(s[0]);
        assert_eq!(
            (moved(&p, 4, Nothing), moved(&p, 4, Future)),
            ((4, 4), (0, 0))
        );
    }

    #[test]
    fn scratch_is_evicted_for_nothing_unless_that_is_known() {
        let (mut p, s) = start(1, &[4, 4]);
        for scratch in [s[1], s[2], s[1]] {
            p.launch(&[scratch.write()]);
            p.launch(&[scratch.read()]);
        }
        assert_eq!(moved(&p, 4, Nothing), (4, 8));
        assert_eq!(moved(&p, 4, Told), (4, 8), "nothing was discarded");
        assert_eq!(moved(&p, 4, Future), (0, 0));
        let told = Program {
            steps: (p.steps.iter().cloned())
                .flat_map(|step| match &step {
                    Step::Kernel(uses) if uses[0].access.reads() => {
                        let of = uses[0].span;
                        vec![step, Step::Discard(of, crate::program::Next::Prefetch)]
                    }
                    _ => vec![step],
                })
                .collect(),
            ..p
        };
        assert_eq!(moved(&told, 4, Told), (0, 0));
        assert_eq!(moved(&told, 4, Nothing), (4, 8));
    }

    #[test]
    fn what_is_needed_later_has_to_leave_and_come_back() {
        let (mut p, s) = start(1, &[4, 4]);
        for span in [s[1], s[2]] {
            p.launch(&[span.write()]);
        }
        p.launch(&[s[1].read()]);
        p.push(Step::HostRead(s[2]));
        assert_eq!(moved(&p, 8, Future), (0, 4));
        // Both leave once, for each other; the CPU reads the second where it is.
        assert_eq!(moved(&p, 4, Future), (4, 8));
        assert_eq!(moved(&p, 4, Nothing), (4, 8));
    }

    #[test]
    fn the_least_recently_prefetched_leaves_first() {
        let (mut p, s) = start(1, &[1, 1, 1]);
        p.launch(&[s[1].write()]);
        p.launch(&[s[2].write()]);
        // An access alone makes nothing more recent, a prefetch does.
        p.push(Step::Kernel(vec![s[1].read()]));
        p.launch(&[s[3].write()]);
        p.launch(&[s[2].read()]);
        assert_eq!(moved(&p, 2, Nothing), (0, 1));
        p.launch(&[s[3].read()]);
        p.launch(&[s[1].read()]);
        assert_eq!(
            moved(&p, 2, Nothing),
            (1, 2),
            "2 leaves, as 3 was prefetched again"
        );
    }

    #[test]
    fn what_a_kernel_was_given_stays_until_it_ran() {
        // s[2] is worthless until it is written, and s[0] once it is read, but one
        // cannot take the other's place.
        let (mut p, s) = start(2, &[2, 2]);
        p.launch(&[s[1].write()]);
        p.launch(&[s[2].write(), s[0].read()]);
        p.push(Step::Stop);
        p.push(Step::HostRead(s[1]));
        p.push(Step::HostRead(s[2]));
        assert_eq!(moved(&p, 6, Future), (2, 0));
        assert_eq!(moved(&p, 4, Future), (2, 2));
    }

    #[test]
    fn nobody_beats_the_future() {
        let mut seed = 7_u64;
        println!("seed {seed}");
        let mut random = move |n: usize| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) as usize % n
        };
        for _ in 0..500 {
            let (mut p, s) = start(2, &[1, 2, 3]);
            for _ in 0..30 {
                let span = s[random(4)];
                match random(5) {
                    0 => p.launch(&[span.write()]),
                    1 => p.launch(&[span.update()]),
                    2 => p.launch(&[span.read(), s[0].read()]),
                    3 => p.push(Step::HostRead(span)),
                    _ => p.host_write(span),
                }
            }
            // With room for all there is no choice of whom to evict.
            let all = p.footprint();
            let (nothing, future) = (traffic(&p, all, Nothing), traffic(&p, all, Future));
            assert!(future.to_gpu <= nothing.to_gpu && future.to_host <= nothing.to_host);
            assert_eq!(traffic(&p, all, Told), nothing, "nothing was discarded");
        }
    }
}
