// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! One va_block, contended for by everybody, with an oracle. Threads of the CPU and kernels
//! on two channels of a GPU write to words of the same pages. Each word has one writer, which
//! writes increasing numbers. Meanwhile other threads migrate the block in parts, fill the
//! GPU so that it is evicted, have RM take its memory back, duplicate it and discard part of
//! it. Readers, on the CPU and on the GPU, take turns through all words. What they see must be
//!
//! - no older than what the word's writer had written when the reader looked (or an update
//!   was lost, or a copy is stale), and no newer than what it had begun to write;
//! - no older than what the same reader saw before;
//! - before a writer begins a round, exactly what it wrote in the last one, as a reader may
//!   not come by before the next round hides that a store was lost. The CPU looks at its own
//!   and the GPU's words so, and the GPU, where a page may have two copies, at one thread's
//!   of the CPU;
//! - of words that the CPU and the GPU both add to, at the end, the sum of all additions;
//! - of words that are discarded now and then, zero or a number that was written before, and
//!   what their writer has just written while nothing is discarded.
//!
//! The seed decides what moves where; how the threads meet is the machine's to say.

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use uvm_suite::rm::inject;
use uvm_suite::{
    clock_seed, ensure, no_leak, Failure, Joined, Outcome, Pass, Suite, EVICTING_ORDINARY,
};
use vgpu_client::uvm::Uuid;
use vgpu_client::vgpu::INJECT_EVICT_PAGES;
use vgpu_client::{
    driver_version, Buffer, Channel, Discard, Gpu, Kernel, Op, Process, BLOCK, PAGE,
};

const HELP: &str = "usage: contend [--rounds N] [--seed N] [--only TEXT]
  --rounds N    how often each writer writes all its words (10)
  --seed N      what moves where (the clock's)
  --only TEXT   only tests whose name holds TEXT
";

/// Words of the block, and of a page.
const WORDS: usize = (BLOCK / 8) as usize;
const PAGE_WORDS: usize = (PAGE / 8) as usize;
/// Words from here on are discarded now and then: the last quarter of the block.
const DISCARDED: usize = WORDS / 4 * 3;
/// Below, word i of every [`STEP`] belongs to writer i: all of them share all pages. Threads of
/// the CPU come first.
const CPU_WRITERS: usize = 3;
const GPU_WRITERS: usize = 2;
/// The word after the writers' is added to by all of them.
const ADDED: usize = CPU_WRITERS + GPU_WRITERS;
/// From a word of a share to its next: there are eight in each page.
const STEP: usize = 64;

/// Root chunks that RM does not ask for: the block's, page tables', and one for each of two
/// channels that are having theirs filled.
const LEFT_BY_RM: u64 = 4;

type Done = Result<(), Failure>;

/// How far a writer is: numbers of the round that has begun and of the last that has ended.
#[derive(Default)]
struct Progress {
    begun: AtomicU64,
    ended: AtomicU64,
}

impl Progress {
    /// Runs `write` as round `round`.
    fn round(&self, round: u64, write: impl FnOnce() -> Done) -> Done {
        self.begun.store(round, Ordering::SeqCst);
        write()?;
        self.ended.store(round, Ordering::SeqCst);
        Ok(())
    }
}

/// What all threads share.
struct Contest<'a> {
    process: &'a Process,
    gpu: &'a Gpu,
    /// The block of memory that all threads use.
    block: &'a Buffer<u64>,
    rounds: u64,
    writers: [Progress; CPU_WRITERS + GPU_WRITERS],
    /// How far the writer of the words that are discarded has come.
    discarded: Progress,
    /// Additions of one to each of the words that all add to.
    additions: AtomicU64,
    /// How many writers have not finished yet.
    at_work: AtomicU64,
    stop: AtomicBool,
    moves: AtomicU64,
    /// Migrations that did not come to their end.
    refused: AtomicU64,
    looks: AtomicU64,
    gpu_looks: AtomicU64,
}

/// Words of a share, below the discarded ones.
fn words(share: usize) -> impl Iterator<Item = usize> {
    (share..DISCARDED).step_by(STEP)
}

/// How many words a share has.
const SHARE_WORDS: u64 = (DISCARDED / STEP) as u64;

/// An op of the GPU's on the words of a share.
fn every(op: Op, share: usize) -> Op {
    op.range(share, DISCARDED).every(8 * STEP as u64).warps(16)
}

/// All words of a share are `want`, as the CPU sees them.
fn all_are(block: &Buffer<u64>, share: usize, want: u64) -> Done {
    for i in words(share) {
        let seen = block.get(i);
        ensure!(
            seen == want,
            "word {i} of writer {share} is {seen:#x}, not {want}"
        );
    }
    Ok(())
}

/// The sum of a share's words is one of words between two rounds.
fn sum_between(share: usize, sum: u64, oldest: u64, newest: u64) -> Done {
    ensure!(
        (oldest * SHARE_WORDS..=newest * SHARE_WORDS).contains(&sum),
        "the words of writer {share} add up to {sum} on the GPU, those of round {oldest}, \
         which had ended, to {}, of {newest}, which had begun, to {}",
        oldest * SHARE_WORDS,
        newest * SHARE_WORDS
    );
    Ok(())
}

/// Marks the end of a thread's work, or its failure, whatever happens.
struct AtWork<'a>(&'a Contest<'a>, bool);

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        let left = self
            .0
            .at_work
            .fetch_sub(u64::from(self.1), Ordering::SeqCst);
        if std::thread::panicking() || (self.1 && left == 1) {
            self.0.stop.store(true, Ordering::SeqCst);
        }
    }
}

impl Contest<'_> {
    fn stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    /// Runs a thread's part; a failure ends everybody's.
    fn part(&self, writes: bool, part: impl FnOnce() -> Done) -> Done {
        let _at_work = AtWork(self, writes);
        let outcome = part();
        if outcome.is_err() {
            self.stop.store(true, Ordering::SeqCst);
        }
        outcome
    }

    /// All words of a share are `want`, as the GPU sees them.
    fn all_are_on_gpu(&self, channel: &Channel, share: usize, want: u64) -> Done {
        let check = every(Op::check(self.block), share).pattern(want, 0);
        let seen = channel.launch(&Kernel::new().op(check))?.wait()?;
        seen.ok()
            .map_err(|e| format!("words of writer {share}, on the GPU: {e}"))?;
        Ok(())
    }

    /// A CPU thread writes its share, and adds to the common one. With a channel, the GPU
    /// looks at what was written, too.
    fn cpu_writer(&self, share: usize, looks: Option<&Channel>) -> Done {
        for round in 1..=self.rounds {
            if self.stopped() {
                break;
            }
            all_are(self.block, share, round - 1)?;
            if let Some(channel) = looks {
                self.all_are_on_gpu(channel, share, round - 1)?;
            }
            self.writers[share].round(round, || {
                words(share).for_each(|i| self.block.set(i, round));
                Ok(())
            })?;
            for i in words(ADDED) {
                self.block.atomics()[i].fetch_add(1, Ordering::SeqCst);
            }
            self.additions.fetch_add(1, Ordering::SeqCst);
        }
        Ok(())
    }

    /// A channel of the GPU's writes its share, by stores or by additions, and adds to the
    /// common one.
    fn gpu_writer(&self, share: usize, channel: &Channel, by_adding: bool) -> Done {
        for round in 1..=self.rounds {
            if self.stopped() {
                break;
            }
            all_are(self.block, share, round - 1)?;
            self.writers[share].round(round, || {
                let own = match by_adding {
                    true => every(Op::atomic_add(self.block), share).pattern(1, 0),
                    false => every(Op::write(self.block), share).pattern(round, 0),
                };
                channel.launch(&Kernel::new().op(own))?.wait()?.ok()?;
                Ok(())
            })?;
            let common = every(Op::atomic_add(self.block), ADDED).pattern(1, 0);
            channel.launch(&Kernel::new().op(common))?.wait()?.ok()?;
            self.additions.fetch_add(1, Ordering::SeqCst);
        }
        Ok(())
    }

    /// Looks at all words of all shares again and again.
    fn reader(&self, mut rng: oorandom::Rand64) -> Done {
        let mut before = vec![0; DISCARDED];
        while !self.stopped() {
            let share = rng.rand_range(0..self.writers.len() as u64) as usize;
            let writer = &self.writers[share];
            for i in words(share) {
                let oldest = writer.ended.load(Ordering::SeqCst);
                let seen = self.block.get(i);
                let newest = writer.begun.load(Ordering::SeqCst);
                ensure!(
                    (oldest..=newest).contains(&seen),
                    "word {i} of writer {share} is {seen:#x}; round {oldest} had ended, {newest} begun"
                );
                ensure!(
                    seen >= before[i],
                    "word {i} of writer {share} went back from {} to {seen}",
                    before[i]
                );
                before[i] = seen;
                self.looks.fetch_add(1, Ordering::Relaxed);
            }
            self.discarded_words()?;
        }
        Ok(())
    }

    /// The GPU looks at all words of all shares again and again.
    fn gpu_reader(&self, channel: &Channel, mut rng: oorandom::Rand64) -> Done {
        let mut before = [0; CPU_WRITERS + GPU_WRITERS];
        while !self.stopped() {
            let share = rng.rand_range(0..self.writers.len() as u64) as usize;
            let writer = &self.writers[share];
            let oldest = writer.ended.load(Ordering::SeqCst);
            let read = every(Op::read(self.block), share);
            let sum = channel.launch(&Kernel::new().op(read))?.wait()?.ok()?.sum;
            let newest = writer.begun.load(Ordering::SeqCst);
            sum_between(share, sum, oldest, newest)?;
            ensure!(
                sum >= before[share],
                "the words of writer {share} went back from {} to {sum} on the GPU",
                before[share]
            );
            before[share] = sum;
            self.gpu_looks.fetch_add(1, Ordering::Relaxed);
            // Ordinary memory has one copy, which a look takes from all others: too many
            // looks, and nobody else comes to anything.
            let pause = if self.block.is_managed() { 1 } else { 1000 };
            std::thread::sleep(Duration::from_millis(pause));
        }
        Ok(())
    }

    /// Words that are discarded: zero, or of a round that has begun.
    fn discarded_words(&self) -> Done {
        for i in (DISCARDED..WORDS).step_by(PAGE_WORDS / 2) {
            let seen = self.block.get(i);
            let newest = self.discarded.begun.load(Ordering::SeqCst);
            let (round, word) = (seen >> 32, seen & 0xffff_ffff);
            ensure!(
                seen == 0 || (word == i as u64 && (1..=newest).contains(&round)),
                "discarded word {i} is {seen:#x}; round {newest} has begun"
            );
        }
        Ok(())
    }

    /// Writes the last quarter of the block, on the GPU or the CPU, sees that it is there,
    /// and discards it.
    fn discarder(&self, channel: &Channel, mut rng: oorandom::Rand64) -> Done {
        let words = DISCARDED..WORDS;
        let (at, bytes) = (self.block.address_of(DISCARDED), BLOCK / 4);
        for round in 1..=self.rounds {
            if self.stopped() {
                break;
            }
            let first = round << 32 | DISCARDED as u64;
            self.discarded.round(round, || {
                if rng.rand_range(0..2) == 0 {
                    words
                        .clone()
                        .for_each(|i| self.block.set(i, round << 32 | i as u64));
                } else {
                    let write = Op::write(self.block).range(DISCARDED, WORDS - DISCARDED);
                    let write = write.pattern(first, 1).warps(16);
                    channel.launch(&Kernel::new().op(write))?.wait()?.ok()?;
                }
                Ok(())
            })?;
            // Nobody else discards: what was written stays, wherever it moves.
            let check = Op::check(self.block).range(DISCARDED, WORDS - DISCARDED);
            let check = check.pattern(first, 1).warps(16);
            channel.launch(&Kernel::new().op(check))?.wait()?.ok()?;
            for i in words.clone() {
                let (seen, want) = (self.block.get(i), round << 32 | i as u64);
                ensure!(seen == want, "word {i} is {seen:#x}, not {want:#x}");
            }
            let how = match rng.rand_range(0..2) {
                0 => Discard::Eager,
                _ => Discard::Lazy,
            };
            self.process.discard(at, bytes, how)?;
            if how == Discard::Lazy {
                // In use again, for what the next round writes.
                self.process.migrate(at, bytes, self.processor(&mut rng))?;
            }
        }
        Ok(())
    }

    fn processor(&self, rng: &mut oorandom::Rand64) -> Uuid {
        match rng.rand_range(0..2) {
            0 => Uuid::CPU,
            _ => self.gpu.uuid(),
        }
    }

    /// Moves parts of the block about, and changes what is advised for all of it.
    fn mover(&self, mut rng: oorandom::Rand64) -> Done {
        let (base, all) = (self.block.address(), self.block.bytes());
        let managed = self.block.is_managed();
        while !self.stopped() {
            let first = rng.rand_range(0..512);
            let pages = 1 + rng.rand_range(0..512 - first);
            let (at, bytes) = (base + first * PAGE, pages * PAGE);
            let to = self.processor(&mut rng);
            match rng.rand_range(0..if managed { 10 } else { 5 }) {
                0..=4 => {
                    let node = if managed || to != Uuid::CPU { -1 } else { 0 };
                    match self.process.migrate_with(at, bytes, to, node) {
                        // Ordinary memory: pages that others hold just then. Not a move.
                        Err(e) if !managed && e.status().is_some() => {
                            if self.refused.fetch_add(1, Ordering::Relaxed) == 0 {
                                println!("# the first that was refused: {e}");
                            }
                            continue;
                        }
                        other => other?,
                    }
                }
                5 => self.process.set_preferred_location(base, all, to)?,
                6 => self.process.unset_preferred_location(base, all)?,
                7 => self.process.set_accessed_by(base, all, to)?,
                8 => self.process.unset_accessed_by(base, all, to)?,
                _ => {
                    let ours = driver_version(self.process)?.is_some();
                    let on = ours && rng.rand_range(0..3) == 0;
                    self.process.read_duplication(base, all, on)?;
                }
            }
            self.moves.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Takes the GPU's memory: by data of its own, which evicts what is least used, or as
    /// RM does.
    fn evicter(&self, filler: &Buffer<u64>, mut rng: oorandom::Rand64) -> Done {
        while !self.stopped() {
            if rng.rand_range(0..2) == 0 {
                self.process
                    .migrate(filler.address(), filler.bytes(), self.gpu.uuid())?;
            } else {
                // Where RM keeps all there is, a fault finds no memory, and is a fatal one.
                let count = self.gpu.info().usable_bytes() / BLOCK - LEFT_BY_RM;
                let count = 1 + rng.rand_range(0..count);
                // UVM may refuse so much while others allocate.
                inject(self.gpu, INJECT_EVICT_PAGES, count)?;
            }
        }
        Ok(())
    }

    /// When all have ended: every word is its writer's last, on the GPU and on the CPU.
    fn last_look(&self, channel: &Channel) -> Done {
        for (share, writer) in self.writers.iter().enumerate() {
            let last = writer.ended.load(Ordering::SeqCst);
            ensure!(last == self.rounds, "writer {share} ended at round {last}");
            self.all_are_on_gpu(channel, share, last)?;
        }
        let all = self.additions.load(Ordering::SeqCst);
        self.all_are_on_gpu(channel, ADDED, all)?;
        (0..self.writers.len()).try_for_each(|share| all_are(self.block, share, self.rounds))?;
        all_are(self.block, ADDED, all)
    }
}

fn contend(seed: u64, rounds: u64, managed: bool) -> Outcome {
    let process = Process::new()?;
    let gpu = process.gpu(0)?;
    if !managed && !process.has_hmm()? {
        uvm_suite::skip!("this driver or kernel has no HMM");
    }
    // Checked before the buffer is made: the unmodified driver evicts ordinary memory from under a CPU fault (docs/fixes.md).
    if !managed && driver_version(&process)?.is_none() {
        uvm_suite::skip!("the unmodified driver takes memory that a CPU faults on (docs/fixes.md)");
    }
    let block = match managed {
        true => Buffer::<u64>::managed(&process, WORDS)?,
        false => Buffer::<u64>::ordinary(WORDS)?,
    };
    if !managed {
        // The contest is for a va_block's pages, not for one page of 2 MiB.
        block.huge_pages(false)?;
    }
    // Now the va_block is there. Of two that make it at the same time under the shared lock,
    // UVM ends the second one's as if it had the lock alone, and asserts it (docs/fixes.md).
    block.set(0, 0);
    let filler = Buffer::<u64>::managed(&process, (gpu.info().vidmem_bytes / 8) as usize)?;
    let [a, b, c, d, e] = [(); 5].map(|()| gpu.new_channel());
    let channels = [a?, b?, c?, d?, e?];
    let discards = managed && driver_version(&process)?.is_some();
    let contest = Contest {
        process: &process,
        gpu: &gpu,
        block: &block,
        rounds,
        writers: Default::default(),
        discarded: Progress::default(),
        additions: AtomicU64::new(0),
        at_work: AtomicU64::new((CPU_WRITERS + GPU_WRITERS) as u64 + u64::from(discards)),
        stop: AtomicBool::new(false),
        moves: AtomicU64::new(0),
        refused: AtomicU64::new(0),
        looks: AtomicU64::new(0),
        gpu_looks: AtomicU64::new(0),
    };
    let before = gpu.stats()?;
    let rng = |stream: u128| oorandom::Rand64::new(u128::from(seed) << 8 | stream);
    let c = &contest;
    let outcome = std::thread::scope(|scope| {
        let mut parts = Vec::new();
        for share in 0..CPU_WRITERS {
            let looks = (share == 0 && managed).then_some(&channels[GPU_WRITERS + 1]);
            parts.push(scope.spawn(move || c.part(true, || c.cpu_writer(share, looks))));
        }
        let channel = &channels[GPU_WRITERS + 2];
        parts.push(scope.spawn(move || c.part(false, || c.gpu_reader(channel, rng(6)))));
        for (k, channel) in channels[..GPU_WRITERS].iter().enumerate() {
            let share = CPU_WRITERS + k;
            parts.push(scope.spawn(move || c.part(true, || c.gpu_writer(share, channel, k == 1))));
        }
        if discards {
            let channel = &channels[GPU_WRITERS];
            parts.push(scope.spawn(move || c.part(true, || c.discarder(channel, rng(1)))));
        }
        for reader in 0..2 {
            parts.push(scope.spawn(move || c.part(false, || c.reader(rng(2 + reader)))));
        }
        parts.push(scope.spawn(move || c.part(false, || c.mover(rng(4)))));
        let filler = &filler;
        parts.push(scope.spawn(move || c.part(false, || c.evicter(filler, rng(5)))));
        let mut outcome = Ok(());
        for part in parts {
            let part = part.joined();
            outcome = outcome.and(part.and_then(|p| p));
        }
        outcome
    });
    outcome?;
    contest.last_look(gpu.channel())?;
    let after = gpu.stats()?;
    let (there, back) = (
        (after.h2d_bytes - before.h2d_bytes) / PAGE,
        (after.d2h_bytes - before.d2h_bytes) / PAGE,
    );
    let c = &contest;
    let counts = [&c.moves, &c.refused, &c.looks, &c.gpu_looks];
    let [moves, refused, looks, gpu_looks] = counts.map(|n| n.load(Ordering::Relaxed));
    let faults = after.faults - before.faults;
    println!(
        "# {moves} moves, {refused} refused, {looks} looks, {gpu_looks} of the GPU's, {faults} faults, {there} pages to the GPU, {back} back"
    );
    // Or it was no contest.
    ensure!(
        moves > 0 && looks > 0 && gpu_looks > 0 && faults > 0 && there > 0 && back > 0,
        "nothing was contended for"
    );
    Ok(Pass::Ok)
}

fn main() -> ExitCode {
    use lexopt::prelude::*;
    let (mut rounds, mut seed, mut only) = (10, clock_seed(), None);
    let mut parser = lexopt::Parser::from_env();
    let parsed: Result<(), lexopt::Error> = (|| {
        while let Some(argument) = parser.next()? {
            match argument {
                Long("rounds") => rounds = parser.value()?.parse()?,
                Long("seed") => seed = parser.value()?.parse()?,
                Long("only") => only = Some(parser.value()?.string()?),
                Long("help") => {
                    print!("{HELP}");
                    std::process::exit(0);
                }
                _ => return Err(argument.unexpected()),
            }
        }
        Ok(())
    })();
    if let Err(error) = parsed {
        eprint!("contend: {error}\n{HELP}");
        return ExitCode::from(2);
    }
    println!("# seed {seed} (repeat with: contend --rounds {rounds} --seed {seed})");
    let mut suite = Suite::new("contend", only);
    suite.test(
        &format!("one block of managed memory, {rounds} rounds"),
        &[],
        || contend(seed, rounds, true),
    );
    suite.test(
        &format!("one block of ordinary memory, {rounds} rounds"),
        EVICTING_ORDINARY,
        || contend(seed, rounds, false),
    );
    suite.test("no leak after it", &[], no_leak);
    suite.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A store that was lost hides from readers once the writer's next round has begun: they
    /// accept the word's older number. The writer's own look does not.
    #[test]
    fn one_lost_store_is_seen() -> Done {
        let block = Buffer::<u64>::ordinary(WORDS)?;
        let share = 2;
        words(share).for_each(|i| block.set(i, 4));
        all_are(&block, share, 4)?;
        assert_eq!(words(share).count() as u64, SHARE_WORDS);
        let last = words(share).last().unwrap_or_default();
        block.set(last, 3);
        assert!(all_are(&block, share, 4).is_err());
        // Other shares are no concern of its.
        all_are(&block, share + 1, 0)
    }

    /// One stale word of a share is seen in its sum, while its writer is between two rounds.
    #[test]
    fn a_stale_word_is_seen_in_the_sum() -> Done {
        sum_between(0, 4 * SHARE_WORDS, 4, 4)?;
        sum_between(0, 4 * SHARE_WORDS + 7, 4, 5)?;
        assert!(sum_between(0, 4 * SHARE_WORDS - 1, 4, 5).is_err());
        assert!(sum_between(0, 5 * SHARE_WORDS + 1, 4, 5).is_err());
        Ok(())
    }
}
