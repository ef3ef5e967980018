// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Runs a program on nvidia-uvm.ko and the software GPU, checking its data.
//!
//! Every write puts a value into the block that no other write does, and every
//! read, on the CPU as on the GPU, checks it: one word in each 4 KiB page, the
//! unit in which UVM copies, drops and zeroes.

use vgpu_client::uvm::Uuid;
use vgpu_client::{
    Buffer, Discard, DriverStats, Error, Gpu, Kernel, Op, Process, Result, BLOCK, PAGE,
};

use crate::program::{Access, Mode, Next, Place, Program, Span, Step, Use};

/// Words of a block and of a page, and pages of a block.
const WORDS: usize = (BLOCK / 8) as usize;
const PAGE_WORDS: usize = (PAGE / 8) as usize;
const PAGES: u64 = BLOCK / PAGE;

/// What a run gave.
#[derive(Clone, Copy, Debug, Default)]
pub struct Measured {
    /// Bytes to the GPU.
    pub h2d_bytes: u64,
    /// Bytes to the host.
    pub d2h_bytes: u64,
    /// All data were right, and the GPU's count of bytes is the driver's, if that counts.
    pub verified: bool,
}

/// Runs `program` in `mode`. `say` hears how far it is.
pub fn run(program: &Program, mode: Mode, say: &mut dyn FnMut(usize)) -> Result<Measured> {
    let process = Process::new()?;
    let gpu = process.gpu(0)?;
    let mut buffers = Vec::with_capacity(program.buffers.len());
    for buffer in &program.buffers {
        let blocks = vec![Stamp::default(); buffer.blocks];
        buffers.push((Buffer::managed(&process, buffer.blocks * WORDS)?, blocks));
    }
    let mut run = Run {
        process: &process,
        gpu: &gpu,
        mode,
        buffers,
        writes: 0,
        wrong: 0,
        start: Counts::default(),
        measured: Measured::default(),
    };
    for (number, step) in program.steps.iter().enumerate() {
        say(number);
        run.step(step)?;
    }
    run.measured.verified = run.wrong == 0 && run.measured.verified;
    Ok(run.measured)
}

/// Bytes moved so far: as the driver and as the GPU counts them.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    /// None of NVIDIA's driver, which does not say.
    driver: Option<(u64, u64)>,
    gpu: (u64, u64),
}

struct Run<'a> {
    process: &'a Process,
    gpu: &'a Gpu,
    mode: Mode,
    /// Each buffer, with what was last written to each of its blocks.
    buffers: Vec<(Buffer<u64>, Vec<Stamp>)>,
    /// Writes of blocks so far, of which the next takes its stamp.
    writes: u64,
    /// Checks of blocks that found another stamp.
    wrong: u64,
    start: Counts,
    measured: Measured,
}

/// Who wrote a block: which write of the program, and which block of its span.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Stamp {
    write: u64,
    block: u64,
}

impl Stamp {
    /// What the first word of a page of the block holds.
    fn value(self, page: u64) -> u64 {
        let page = self.block * PAGES + page;
        (self.write.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_add(page.wrapping_mul(PAGE_STEP))
    }

    /// Of the next block of the same write.
    fn next(self) -> Self {
        Self {
            block: self.block + 1,
            ..self
        }
    }
}

/// Between the values of two pages in a row.
const PAGE_STEP: u64 = 0x0001_0000_0001;

/// Counts a check that failed, and tells of the first.
fn wrong(count: &mut u64, what: impl FnOnce() -> String) {
    if *count == 0 {
        println!("# WRONG: {}", what());
    }
    *count += 1;
}

impl Run<'_> {
    fn step(&mut self, step: &Step) -> Result<()> {
        match step {
            Step::HostWrite(span) => self.host_write(*span),
            Step::HostRead(span) => self.host_read(*span),
            Step::Prefetch(span, place) => self.prefetch(*span, *place)?,
            Step::Kernel(uses) => self.kernel(uses)?,
            Step::Discard(span, next) => self.discard(*span, *next)?,
            Step::Start => self.start = self.counts()?,
            Step::Stop => self.stop()?,
        }
        Ok(())
    }

    fn counts(&self) -> Result<Counts> {
        let driver = if self.mode.is_ours() {
            let stats = DriverStats::get(self.process, self.gpu.uuid(), false)?;
            let sum = |t: &[vgpu_client::Traffic]| t.iter().map(|t| t.bytes).sum();
            Some((sum(&stats.host_to_gpu), sum(&stats.gpu_to_host)))
        } else {
            None
        };
        let gpu = self.gpu.stats()?;
        Ok(Counts {
            driver,
            gpu: (gpu.h2d_bytes, gpu.d2h_bytes),
        })
    }

    fn stop(&mut self) -> Result<()> {
        let (from, to) = (self.start, self.counts()?);
        let seen = (to.gpu.0 - from.gpu.0, to.gpu.1 - from.gpu.1);
        let counted = (from.driver.zip(to.driver)).map(|(a, b)| (b.0 - a.0, b.1 - a.1));
        let is_counted = counted.is_none_or(|counted| counted == seen);
        if let (false, Some(counted)) = (is_counted, counted) {
            println!(
                "# WRONG: the GPU moved {seen:?} bytes (in, out), the driver counted {counted:?}"
            );
        }
        self.measured = Measured {
            h2d_bytes: seen.0,
            d2h_bytes: seen.1,
            verified: is_counted,
        };
        Ok(())
    }

    fn range(&self, span: Span) -> (u64, u64) {
        let base = self.buffers[span.buffer].0.address_of(span.first * WORDS);
        (base, span.blocks as u64 * BLOCK)
    }

    fn prefetch(&self, span: Span, place: Place) -> Result<()> {
        let (base, length) = self.range(span);
        let to = match place {
            Place::Host => Uuid::CPU,
            Place::Gpu => self.gpu.uuid(),
        };
        self.process.migrate(base, length, to)
    }

    fn discard(&mut self, span: Span, next: Next) -> Result<()> {
        let how = match (self.mode.of_ours(), next) {
            (Mode::Opt, _) => return Ok(()),
            (Mode::Lazy, Next::Prefetch) => Discard::Lazy,
            _ => Discard::Eager,
        };
        let (base, length) = self.range(span);
        self.process.discard(base, length, how)
    }

    /// Marks a span as written once more, from its first block to its last.
    fn stamp(&mut self, span: Span) {
        self.writes += 1;
        let write = self.writes;
        let stamps = &mut self.buffers[span.buffer].1[span.first..span.first + span.blocks];
        for (block, stamp) in (0..).zip(stamps) {
            *stamp = Stamp { write, block };
        }
    }

    fn host_write(&mut self, span: Span) {
        self.stamp(span);
        let (memory, stamps) = &self.buffers[span.buffer];
        for (_, block) in span.each() {
            for page in 0..PAGES {
                memory.set(word(block, page), stamps[block].value(page));
            }
        }
    }

    fn host_read(&mut self, span: Span) {
        let (memory, stamps) = &self.buffers[span.buffer];
        for (buffer, block) in span.each() {
            for page in 0..PAGES {
                if memory.get(word(block, page)) != stamps[block].value(page) {
                    wrong(&mut self.wrong, || {
                        format!("the CPU, page {page} of block {block} of buffer {buffer}")
                    });
                }
            }
        }
    }

    fn kernel(&mut self, uses: &[Use]) -> Result<()> {
        let mut kernel = Kernel::new();
        for u in uses.iter().filter(|u| u.access.reads()) {
            for part in self.of_one_write(u.span) {
                kernel = kernel.op(self.op(Op::check, part, u.streams));
            }
        }
        let mut barrier = uses.iter().any(|u| u.access == Access::Update);
        for u in uses.iter().filter(|u| u.access.writes()) {
            self.stamp(u.span);
            let op = self.op(Op::write, u.span, u.streams);
            kernel = kernel.op(if barrier { op.barrier() } else { op });
            barrier = false;
        }
        match self.gpu.launch(&kernel)?.wait()?.ok() {
            Ok(_) => Ok(()),
            Err(Error::Kernel(report)) if report.mismatches > 0 => {
                wrong(&mut self.wrong, || format!("the GPU: {report}"));
                Ok(())
            }
            Err(other) => Err(other),
        }
    }

    /// The parts of a span that were written at once.
    fn of_one_write(&self, span: Span) -> Vec<Span> {
        let stamps = &self.buffers[span.buffer].1;
        let mut parts: Vec<Span> = Vec::new();
        for block in span.first..span.first + span.blocks {
            match parts.last_mut() {
                Some(part) if stamps[block] == stamps[block - 1].next() => part.blocks += 1,
                _ => parts.push(Span {
                    first: block,
                    blocks: 1,
                    ..span
                }),
            }
        }
        parts
    }

    fn op(&self, kind: fn(&Buffer<u64>) -> Op, span: Span, streams: u32) -> Op {
        let (memory, stamps) = &self.buffers[span.buffer];
        let op = kind(memory)
            .range(span.first * WORDS, span.blocks * WORDS)
            .every(PAGE)
            .pattern(stamps[span.first].value(0), PAGE_STEP);
        match streams {
            1 => op,
            _ => op.warps(streams).blocked(),
        }
    }
}

/// Index of the first word of a page of a block.
fn word(block: usize, page: u64) -> usize {
    block * WORDS + page as usize * PAGE_WORDS
}
