// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! A process that does to its memory what it is told to, and knows what should be in it.

use std::sync::atomic::Ordering;

use oorandom::Rand64;
use vgpu_client::{
    driver_version, Buffer, Channel, Error, Gpu, Kernel, Op, Process, Report, Vgpu, BLOCK, PAGE,
};

use super::area::{Area, Span, Wrong, PAGE_WORDS};
use super::history::History;
use super::values::Values;

/// Largest and smallest area, in pages.
const AREA_PAGES: [usize; 2] = [1, 1024];

/// What may be done to memory, each of which [`Program::act`] does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The CPU reads words, and compares.
    CpuRead,
    /// The CPU writes words.
    CpuWrite,
    /// The CPU adds to words, and compares what was there.
    CpuAtomic,
    /// A GPU reads words, and their sum is compared.
    GpuRead,
    /// A GPU writes words.
    GpuWrite,
    /// A GPU adds to words.
    GpuAtomic,
    /// A kernel changes several areas while the CPU writes another.
    GpuMany,
    /// Pages go to some processor.
    Migrate,
    /// A preferred location is set or unset.
    PreferredLocation,
    /// A processor is to keep its mappings, or not.
    AccessedBy,
    /// Copies in several places are allowed, or not.
    ReadDuplication,
    /// A chunk of GPU memory is given up, or RM takes some.
    Evict,
    /// Pages are discarded, perhaps reclaimed, and used again.
    Discard,
    /// An area goes, and another one comes.
    Free,
}

/// Which memory is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// Managed memory, and no other.
    Managed,
    /// Ordinary memory alone, which GPUs reach through HMM.
    Ordinary,
    /// One area in three is ordinary memory.
    Both,
}

/// How an operation ended.
pub type Done = Result<(), Wrong>;

/// What a GPU does to the words of a span: the `k`th gets `value + k * stride`, or that is added to it.
pub(super) struct Change {
    pub(super) area: usize,
    pub(super) span: Span,
    pub(super) value: u64,
    pub(super) stride: u64,
    pub(super) atomic: bool,
}

/// What a program is to be.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// One seed gives one program.
    pub seed: u64,
    /// Memory used, in times of the first GPU's.
    pub oversubscription: f64,
    /// Which memory is used; managed alone where the driver has no HMM.
    pub memory: Memory,
    /// Nothing is evicted on purpose without.
    pub eviction: bool,
    /// Read duplication is never turned on without.
    pub read_duplication: bool,
    /// Which values are written.
    pub values: Values,
    /// A piece of memory may be refused other rules than the rest of it, for want of memory for the split: so it
    /// is with an SSD tier whose table of extents is full.
    pub splits_may_fail: bool,
    /// One by address may be refused: parts of a root chunk may be other processes', be held by somebody, or be what
    /// somebody has asked UVM to fail with.
    pub evictions_may_fail: bool,
    /// Of a hundred operations so many touch as much memory at a time as they can; the others touch a few pages.
    pub large_percent: usize,
}

/// Pages that an operation touches at most, if it is not a large one.
const FEW_PAGES: usize = 4;

/// A process, its memory, and what should be in it.
#[derive(Debug)]
pub struct Program {
    /// Decides what is done, and to what.
    pub rng: Rand64,
    /// The process, with its GPUs.
    pub process: Process,
    /// All GPUs there are.
    pub gpus: Vec<Gpu>,
    second_channel: Channel,
    pub(super) setup: Setup,
    /// The driver has UVM_DISCARD.
    pub(super) has_discard: bool,
    /// Its memory, in pieces of their own.
    pub areas: Vec<Area>,
    values: Values,
    next_id: usize,
    pub(super) history: History,
}

impl Program {
    /// A process that has registered all GPUs and made its memory, of zeros.
    pub fn new(setup: &Setup) -> vgpu_client::Result<Self> {
        let process = Process::new()?;
        let count = Vgpu::open()?.info(0)?.gpu_count;
        let gpus = (0..count)
            .map(|i| process.gpu(i))
            .collect::<Result<Vec<_>, _>>()?;
        let second_channel = gpus[0].new_channel()?;
        let mut setup = *setup;
        if !process.has_hmm()? {
            setup.memory = Memory::Managed;
        }
        let has_discard = driver_version(&process)?.is_some_and(|(_, features)| {
            features & u64::from(uvm_uapi::UVM_RUST_FEATURE_DISCARD) != 0
        });
        let mut program = Self {
            rng: Rand64::new(u128::from(setup.seed)),
            process,
            second_channel,
            has_discard,
            areas: Vec::new(),
            values: setup.values,
            next_id: 0,
            history: History::default(),
            gpus,
            setup,
        };
        let vidmem = program.gpus[0].info().vidmem_bytes;
        let wanted = (vidmem as f64 * setup.oversubscription) as u64;
        let mut bytes = 0;
        while bytes < wanted {
            let area = program.new_area()?;
            bytes += area.buffer.bytes();
            program.areas.push(area);
        }
        Ok(program)
    }

    /// Which memory it has, on this driver.
    pub fn memory(&self) -> Memory {
        self.setup.memory
    }

    /// Of a hundred operations, so many are large: see [`Setup::large_percent`].
    pub fn large_percent(&self) -> usize {
        self.setup.large_percent
    }

    /// A number below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        self.rng.rand_range(0..end as u64) as usize
    }

    /// True so many times in a hundred.
    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// What is written, or with `adds` added to what is there, next.
    pub fn value(&mut self, adds: bool) -> u64 {
        let drawn = self.rng.rand_u64();
        self.values.next(drawn, adds)
    }

    fn new_area(&mut self) -> vgpu_client::Result<Area> {
        let [min, max] = AREA_PAGES;
        let pages = if self.chance(30) {
            min + self.below(64)
        } else {
            min + self.below(max)
        };
        // One in three is ordinary memory, the rest managed.
        let managed = match self.setup.memory {
            Memory::Managed => true,
            Memory::Ordinary => false,
            Memory::Both => self.chance(67),
        };
        self.next_id += 1;
        let area = Area::new(&self.process, pages * PAGE_WORDS, managed, self.next_id)?;
        if !managed {
            area.buffer.huge_pages(self.chance(50))?;
        }
        Ok(area)
    }

    /// Words of an area for an operation: few or many, close or far apart.
    pub fn span(&mut self, area: usize) -> Span {
        let words = self.areas[area].model.len();
        let first = self.below(words);
        let large = self.is_large();
        if self.chance(50) {
            // Whole pages, as most programs use memory.
            let pages = words / PAGE_WORDS;
            let first = first / PAGE_WORDS;
            let most = match large {
                true if self.chance(20) => 512,
                true => 16,
                false => FEW_PAGES,
            };
            let count = 1 + self.below((pages - first).min(most));
            return Span {
                first: first * PAGE_WORDS,
                count: count * PAGE_WORDS,
                step: 1,
            };
        }
        let step = [1, 1, 2, 8, PAGE_WORDS, 16 * PAGE_WORDS][self.below(6)];
        let fit = (words - first).div_ceil(step);
        let most = match large {
            true => 256,
            false => (FEW_PAGES * PAGE_WORDS).div_ceil(step).min(32),
        };
        Span {
            first,
            count: 1 + self.below(fit.min(most)),
            step,
        }
    }

    /// Is the next operation one that touches as much memory as it can?
    pub fn is_large(&mut self) -> bool {
        self.setup.large_percent >= 100 || self.chance(self.setup.large_percent)
    }

    /// The same as whole pages: base and length.
    pub fn pages(&mut self, area: usize) -> (Span, u64, u64) {
        let span = self.span(area);
        let from = span.first / PAGE_WORDS * PAGE_WORDS;
        let to = span.end().next_multiple_of(PAGE_WORDS);
        let whole = Span {
            first: from,
            count: to - from,
            step: 1,
        };
        (
            whole,
            self.areas[area].buffer.address_of(from),
            (to - from) as u64 * 8,
        )
    }

    /// Which of `kinds` is next, by their weights.
    pub fn draw<T: Copy>(&mut self, kinds: &[(T, u64)]) -> T {
        let total = kinds.iter().map(|kind| kind.1).sum();
        let mut draw = self.rng.rand_range(0..total);
        let mut chosen = 0;
        while draw >= kinds[chosen].1 {
            draw -= kinds[chosen].1;
            chosen += 1;
        }
        kinds[chosen].0
    }

    /// Runs operation number `index`.
    pub fn act(&mut self, index: u64, kind: Kind) -> Done {
        if kind == Kind::Evict && !self.setup.eviction {
            return Ok(());
        }
        let area = self.below(self.areas.len());
        match kind {
            Kind::CpuRead => self.cpu_read(index, area),
            Kind::CpuWrite => self.cpu_write(index, area),
            Kind::CpuAtomic => self.cpu_atomic(index, area),
            Kind::GpuRead => self.gpu_read(index, area),
            Kind::GpuWrite => self.gpu_change(index, area, false),
            Kind::GpuAtomic => self.gpu_change(index, area, true),
            Kind::GpuMany => self.gpu_many(index),
            Kind::Migrate => self.migrate(index, area),
            Kind::PreferredLocation => self
                .managed_from(area)
                .map_or(Ok(()), |a| self.preferred_location(index, a)),
            Kind::AccessedBy => self
                .managed_from(area)
                .map_or(Ok(()), |a| self.accessed_by(index, a)),
            Kind::ReadDuplication => self
                .managed_from(area)
                .map_or(Ok(()), |a| self.read_duplication(index, a)),
            Kind::Evict => self.evict(index, area),
            Kind::Discard => self.discard(index, area),
            Kind::Free => self.free(index, area),
        }
    }

    /// Remembers what is about to be done to a span, for the story of a page that goes wrong.
    pub fn note(&mut self, index: u64, area: usize, span: Span, what: impl Into<String>) {
        let id = self.areas[area].id;
        self.history.add(index, id, span, what.into());
    }

    // --- the CPU ---------------------------------------------------------------

    fn cpu_read(&mut self, index: u64, area: usize) -> Done {
        let span = self.span(area);
        self.note(index, area, span, "CPU reads");
        self.areas[area].check(span)
    }

    /// The CPU writes to a span of an area.
    ///
    /// # Errors
    ///
    /// None: it returns what all kinds of operations return.
    pub fn cpu_write(&mut self, index: u64, area: usize) -> Done {
        let span = self.span(area);
        let value = self.value(false);
        self.note(index, area, span, format!("CPU writes {value:#x} + k"));
        let area = &mut self.areas[area];
        area.apply(span, |k, _| value.wrapping_add(k as u64));
        span.words().for_each(|i| area.buffer.set(i, area.model[i]));
        Ok(())
    }

    fn cpu_atomic(&mut self, index: u64, area: usize) -> Done {
        let span = self.span(area);
        let value = self.value(true);
        self.note(index, area, span, format!("CPU atomically adds {value:#x}"));
        let area = &mut self.areas[area];
        for i in span.words() {
            let old = area.buffer.atomics()[i].fetch_add(value, Ordering::SeqCst);
            if old != area.model[i] {
                let expected = area.model[i];
                let what = format!("a CPU atomic saw {old:#x} in word {i}, not {expected:#x}");
                return Err(area.wrong(i, Some(old), what));
            }
        }
        area.apply(span, |_, old| old.wrapping_add(value));
        Ok(())
    }

    // --- GPUs ------------------------------------------------------------------

    /// Gives an op a span and a random shape.
    pub fn shape(&mut self, op: Op, span: Span) -> Op {
        // `every` wants the range up to the end of the last step.
        let op = match span.step {
            1 => op.range(span.first, span.count),
            step => op
                .range(span.first, span.count * step)
                .every(step as u64 * 8),
        };
        let op = op
            .warps(1 + self.below(64) as u32)
            .lanes(1 + self.below(32) as u32);
        match self.below(3) {
            0 => op.blocked(),
            1 => op.permuted(),
            _ => op,
        }
    }

    /// Runs a kernel to its end, on any channel.
    pub fn launch(&mut self, kernel: &Kernel) -> Result<Report, Error> {
        let which = self.below(self.gpus.len() + 1);
        match self.gpus.get(which) {
            Some(gpu) => gpu.launch(kernel)?.wait()?.ok(),
            None => self.second_channel.launch(kernel)?.wait()?.ok(),
        }
    }

    fn gpu_read(&mut self, index: u64, area: usize) -> Done {
        let span = self.span(area);
        self.gpu_looks(index, area, span)
    }

    /// A GPU reads a span, and its sum is compared.
    ///
    /// # Errors
    ///
    /// The sum is not that of the model, or the kernel does not end well.
    pub fn gpu_looks(&mut self, index: u64, area: usize, span: Span) -> Done {
        self.note(index, area, span, "GPU reads");
        let op = self.shape(Op::read(&self.areas[area].buffer), span);
        let report = self.launch(&Kernel::new().op(op))?;
        let area = &self.areas[area];
        let sum = span
            .words()
            .fold(0u64, |sum, i| sum.wrapping_add(area.model[i]));
        if report.sum == sum {
            return Ok(());
        }
        let what = format!("a GPU's sum is {:#x}, not {sum:#x}", report.sum);
        // The CPU's look may say which word it was.
        area.check(span)?;
        Err(area.wrong(span.first, None, what))
    }

    /// A GPU writes to a span of an area, or adds to it.
    ///
    /// # Errors
    ///
    /// Those of the kernel.
    pub fn gpu_change(&mut self, index: u64, area: usize, atomic: bool) -> Done {
        let span = self.span(area);
        let (value, stride) = (self.value(atomic), self.rng.rand_range(0..9));
        let verb = if atomic { "adds" } else { "writes" };
        self.note(
            index,
            area,
            span,
            format!("GPU {verb} {value:#x} + {stride} k"),
        );
        self.make(Change {
            area,
            span,
            value,
            stride,
            atomic,
        })
    }

    /// A kernel of its own makes a change.
    pub(super) fn make(&mut self, change: Change) -> Done {
        let op = self.change_op(&change);
        self.launch(&Kernel::new().op(op))?;
        self.change_model(&change);
        Ok(())
    }

    fn change_op(&mut self, change: &Change) -> Op {
        let make: fn(&Buffer<u64>) -> Op = if change.atomic {
            Op::atomic_add
        } else {
            Op::write
        };
        let op = make(&self.areas[change.area].buffer);
        self.shape(op, change.span)
            .pattern(change.value, change.stride)
    }

    fn change_model(&mut self, change: &Change) {
        self.areas[change.area].apply(change.span, |k, old| {
            let new = (change.value).wrapping_add(change.stride.wrapping_mul(k as u64));
            if change.atomic {
                old.wrapping_add(new)
            } else {
                new
            }
        });
    }

    /// Several areas in one kernel, at the same time as the CPU writes another.
    fn gpu_many(&mut self, index: u64) -> Done {
        let mut kernel = Kernel::new();
        let mut changes = Vec::new();
        let start = self.below(self.areas.len());
        let count = 2 + self.below(4);
        for k in 0..count {
            let area = (start + k) % self.areas.len();
            let span = self.span(area);
            let (drawn, atomic) = (self.rng.rand_u64(), self.chance(40));
            let value = self.values.next(drawn, atomic);
            self.note(
                index,
                area,
                span,
                format!("GPU, with others: {value:#x}, atomic {atomic}"),
            );
            let change = Change {
                area,
                span,
                value,
                stride: 1,
                atomic,
            };
            kernel = kernel.op(self.change_op(&change));
            changes.push(change);
        }
        let launch = self.gpus[0].launch(&kernel)?;
        let aside = (start + count) % self.areas.len();
        let used = changes.iter().any(|change| change.area == aside);
        let (span, drawn) = (self.areas[aside].all(), self.rng.rand_u64());
        let value = self.values.next(drawn, false);
        let few = Span {
            count: span.count.min(PAGE_WORDS),
            ..span
        };
        if !used {
            let area = &mut self.areas[aside];
            area.apply(few, |k, _| value ^ k as u64);
            few.words().for_each(|i| area.buffer.set(i, area.model[i]));
            let id = area.id;
            self.history
                .add(index, id, few, "CPU writes beside a kernel".into());
        }
        launch.wait()?.ok()?;
        changes.iter().for_each(|change| self.change_model(change));
        Ok(())
    }

    // --- memory that comes and goes ---------------------------------------------

    fn free(&mut self, index: u64, area: usize) -> Done {
        let all = self.areas[area].all();
        self.note(index, area, all, "free");
        // Half of the time without a last look at what is freed.
        if self.chance(50) {
            self.areas[area].check(all)?;
        }
        let fresh = self.new_area()?;
        self.areas[area] = fresh;
        Ok(())
    }

    // --- the end ---------------------------------------------------------------

    /// Compares everything with the model.
    pub fn check_all(&self) -> Done {
        self.areas
            .iter()
            .try_for_each(|area| area.check(area.all()))
    }

    /// Says what went wrong, and how it came to it.
    pub fn explain(&self, index: u64, wrong: &Wrong) -> String {
        let origin = wrong.seen.map(|seen| self.values.origin(seen));
        let what = format!("{}{}", wrong.what, origin.unwrap_or_default());
        let (title, story) = match wrong.place {
            Some((area, page)) => {
                let managed = self.areas.iter().find(|a| a.id == area);
                let managed = managed.is_some_and(|a| a.buffer.is_managed());
                let kind = if managed { "managed" } else { "ordinary" };
                let title = format!("on page {page} of area {area} ({kind})");
                (title, self.history.of_page(area, page))
            }
            None => ("at all".into(), self.history.last()),
        };
        format!("operation {index}: {what}\nthe last operations {title}:\n{story}")
    }

    /// How much memory there is.
    pub fn size(&self) -> String {
        let bytes: u64 = self.areas.iter().map(|a| a.buffer.bytes()).sum();
        let (areas, pages, blocks) = (self.areas.len(), bytes / PAGE, bytes / BLOCK);
        format!("{areas} areas, {pages} pages, {blocks} blocks")
    }
}
