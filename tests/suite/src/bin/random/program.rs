// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The random program itself.

use std::sync::atomic::Ordering;

use oorandom::Rand64;
use vgpu_client::uvm::Uuid;
use vgpu_client::vgpu::{Inject, INJECT_EVICT_PAGES};
use vgpu_client::{
    driver_version, Buffer, Channel, Error, Gpu, Kernel, Op, Process, Report, Vgpu, BLOCK, PAGE,
};

use crate::area::{Area, Span, Wrong, PAGE_WORDS};
use crate::history::History;
use crate::Options;

/// Largest and smallest area, in pages.
const AREA_PAGES: [usize; 2] = [1, 1024];

/// Kinds of operation, with how likely they are.
const KINDS: [(Kind, u64); 14] = [
    (Kind::CpuRead, 14),
    (Kind::CpuWrite, 12),
    (Kind::CpuAtomic, 6),
    (Kind::GpuRead, 16),
    (Kind::GpuWrite, 16),
    (Kind::GpuAtomic, 8),
    (Kind::GpuMany, 6),
    (Kind::Migrate, 8),
    (Kind::PreferredLocation, 4),
    (Kind::AccessedBy, 3),
    (Kind::ReadDuplication, 3),
    (Kind::Evict, 3),
    (Kind::Discard, 6),
    (Kind::Free, 1),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    CpuRead,
    CpuWrite,
    CpuAtomic,
    GpuRead,
    GpuWrite,
    GpuAtomic,
    GpuMany,
    Migrate,
    PreferredLocation,
    AccessedBy,
    ReadDuplication,
    Evict,
    Discard,
    Free,
}

/// Which memory is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    Managed,
    Ordinary,
    Both,
}

pub(crate) type Done = Result<(), Wrong>;

/// State of a run.
pub(crate) struct Program {
    pub(crate) rng: Rand64,
    pub(crate) process: Process,
    pub(crate) gpus: Vec<Gpu>,
    second_channel: Channel,
    memory: Memory,
    eviction: bool,
    may_duplicate: bool,
    /// The driver has UVM_DISCARD.
    pub(crate) has_discard: bool,
    pub(crate) areas: Vec<Area>,
    next_id: usize,
    history: History,
    counts: [u64; KINDS.len()],
}

impl Program {
    pub(crate) fn new(options: &Options) -> vgpu_client::Result<Self> {
        let process = Process::new()?;
        let count = Vgpu::open()?.info(0)?.gpu_count;
        let gpus = (0..count)
            .map(|i| process.gpu(i))
            .collect::<Result<Vec<_>, _>>()?;
        let second_channel = gpus[0].new_channel()?;
        let memory = if process.has_hmm()? {
            options.memory
        } else {
            Memory::Managed
        };
        let has_discard = driver_version(&process)?.is_some_and(|(_, features)| {
            features & u64::from(uvm_uapi::UVM_RUST_FEATURE_DISCARD) != 0
        });
        let mut program = Self {
            rng: Rand64::new(u128::from(options.seed)),
            process,
            second_channel,
            memory,
            eviction: options.eviction,
            may_duplicate: options.read_duplication,
            has_discard,
            areas: Vec::new(),
            next_id: 0,
            history: History::default(),
            counts: [0; KINDS.len()],
            gpus,
        };
        let wanted = (program.gpus[0].info().vidmem_bytes as f64 * options.oversubscription) as u64;
        let mut bytes = 0;
        while bytes < wanted {
            let area = program.new_area()?;
            bytes += area.buffer.bytes();
            program.areas.push(area);
        }
        Ok(program)
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.rng.rand_range(0..end as u64) as usize
    }

    pub(crate) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    fn new_area(&mut self) -> vgpu_client::Result<Area> {
        let [min, max] = AREA_PAGES;
        let pages = if self.chance(30) {
            min + self.below(64)
        } else {
            min + self.below(max)
        };
        // One in three is ordinary memory, the rest managed.
        let managed = match self.memory {
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
    fn span(&mut self, area: usize) -> Span {
        let words = self.areas[area].model.len();
        let first = self.below(words);
        if self.chance(50) {
            // Whole pages, as most programs use memory.
            let pages = words / PAGE_WORDS;
            let first = first / PAGE_WORDS;
            let most = if self.chance(20) { 512 } else { 16 };
            let count = 1 + self.below((pages - first).min(most));
            return Span {
                first: first * PAGE_WORDS,
                count: count * PAGE_WORDS,
                step: 1,
            };
        }
        let step = [1, 1, 2, 8, PAGE_WORDS, 16 * PAGE_WORDS][self.below(6)];
        let fit = (words - first).div_ceil(step);
        Span {
            first,
            count: 1 + self.below(fit.min(256)),
            step,
        }
    }

    /// The same as whole pages: base and length.
    pub(crate) fn pages(&mut self, area: usize) -> (Span, u64, u64) {
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

    /// Runs operation number `index`.
    pub(crate) fn step(&mut self, index: u64) -> Done {
        let total: u64 = KINDS.iter().map(|k| k.1).sum();
        let mut draw = self.rng.rand_range(0..total);
        let mut chosen = 0;
        while draw >= KINDS[chosen].1 {
            draw -= KINDS[chosen].1;
            chosen += 1;
        }
        self.counts[chosen] += 1;
        if KINDS[chosen].0 == Kind::Evict && !self.eviction {
            return Ok(());
        }
        let area = self.below(self.areas.len());
        match KINDS[chosen].0 {
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

    pub(crate) fn note(&mut self, index: u64, area: usize, span: Span, what: impl Into<String>) {
        let id = self.areas[area].id;
        self.history.add(index, id, span, what.into());
    }

    // --- the CPU ---------------------------------------------------------------

    fn cpu_read(&mut self, index: u64, area: usize) -> Done {
        let span = self.span(area);
        self.note(index, area, span, "CPU reads");
        self.areas[area].check(span)
    }

    fn cpu_write(&mut self, index: u64, area: usize) -> Done {
        let span = self.span(area);
        let value = self.rng.rand_u64();
        self.note(index, area, span, format!("CPU writes {value:#x} + k"));
        let area = &mut self.areas[area];
        area.apply(span, |k, _| value.wrapping_add(k as u64));
        span.words().for_each(|i| area.buffer.set(i, area.model[i]));
        Ok(())
    }

    fn cpu_atomic(&mut self, index: u64, area: usize) -> Done {
        let span = self.span(area);
        let value = self.rng.rand_u64();
        self.note(index, area, span, format!("CPU atomically adds {value:#x}"));
        let area = &mut self.areas[area];
        for i in span.words() {
            let old = area.buffer.atomics()[i].fetch_add(value, Ordering::SeqCst);
            if old != area.model[i] {
                let expected = area.model[i];
                let what = format!("a CPU atomic saw {old:#x} in word {i}, not {expected:#x}");
                return Err(area.wrong(i, what));
            }
        }
        area.apply(span, |_, old| old.wrapping_add(value));
        Ok(())
    }

    // --- GPUs ------------------------------------------------------------------

    /// Gives an op a span and a random shape.
    pub(crate) fn shape(&mut self, op: Op, span: Span) -> Op {
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

    pub(crate) fn launch(&mut self, kernel: &Kernel) -> Result<Report, Error> {
        let which = self.below(self.gpus.len() + 1);
        match self.gpus.get(which) {
            Some(gpu) => gpu.launch(kernel)?.wait()?.ok(),
            None => self.second_channel.launch(kernel)?.wait()?.ok(),
        }
    }

    fn gpu_read(&mut self, index: u64, area: usize) -> Done {
        let span = self.span(area);
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
        Err(area.wrong(span.first, what))
    }

    fn gpu_change(&mut self, index: u64, area: usize, atomic: bool) -> Done {
        let span = self.span(area);
        let (value, stride) = (self.rng.rand_u64(), self.rng.rand_range(0..9));
        let verb = if atomic { "adds" } else { "writes" };
        self.note(
            index,
            area,
            span,
            format!("GPU {verb} {value:#x} + {stride} k"),
        );
        let op = self.change_op(area, span, value, stride, atomic);
        self.launch(&Kernel::new().op(op))?;
        self.change_model(area, span, value, stride, atomic);
        Ok(())
    }

    pub(crate) fn change_op(
        &mut self,
        area: usize,
        span: Span,
        value: u64,
        stride: u64,
        atomic: bool,
    ) -> Op {
        let make: fn(&Buffer<u64>) -> Op = if atomic { Op::atomic_add } else { Op::write };
        let op = make(&self.areas[area].buffer);
        self.shape(op, span).pattern(value, stride)
    }

    pub(crate) fn change_model(
        &mut self,
        area: usize,
        span: Span,
        value: u64,
        stride: u64,
        atomic: bool,
    ) {
        self.areas[area].apply(span, |k, old| {
            let new = value.wrapping_add(stride.wrapping_mul(k as u64));
            if atomic {
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
            let (value, stride, atomic) = (self.rng.rand_u64(), 1, self.chance(40));
            self.note(
                index,
                area,
                span,
                format!("GPU, with others: {value:#x}, atomic {atomic}"),
            );
            kernel = kernel.op(self.change_op(area, span, value, stride, atomic));
            changes.push((area, span, value, stride, atomic));
        }
        let launch = self.gpus[0].launch(&kernel)?;
        let aside = (start + count) % self.areas.len();
        let used = changes.iter().any(|change| change.0 == aside);
        let (span, value) = (self.areas[aside].all(), self.rng.rand_u64());
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
        for (area, span, value, stride, atomic) in changes {
            self.change_model(area, span, value, stride, atomic);
        }
        Ok(())
    }

    // --- where pages are -------------------------------------------------------

    pub(crate) fn processor(&mut self) -> Uuid {
        let which = self.below(self.gpus.len() + 1);
        self.gpus.get(which).map_or(Uuid::CPU, Gpu::uuid)
    }

    fn migrate(&mut self, index: u64, area: usize) -> Done {
        let to = self.processor();
        let (span, base, length) = self.pages(area);
        self.note(index, area, span, format!("migrate to {to:?}"));
        let managed = self.areas[area].buffer.is_managed();
        let node = if managed || to != Uuid::CPU { -1 } else { 0 };
        match self.process.migrate_with(base, length, to, node) {
            // Ordinary memory: the rest is left to move_pages(2), which we leave.
            Err(e) if !managed && e.status().is_some() => Ok(()),
            other => Ok(other?),
        }
    }

    /// A managed area from `area` on. Advice on part of a block of ordinary memory
    /// trips asserts of upstream's, which wants one policy for larger pages.
    fn managed_from(&self, area: usize) -> Option<usize> {
        let all = self.areas.len();
        (area..area + all)
            .map(|i| i % all)
            .find(|&i| self.areas[i].buffer.is_managed())
    }

    fn preferred_location(&mut self, index: u64, area: usize) -> Done {
        let to = self.processor();
        let (span, base, length) = self.pages(area);
        if self.chance(40) {
            self.note(index, area, span, "no preferred location");
            return Ok(self.process.unset_preferred_location(base, length)?);
        }
        self.note(index, area, span, format!("preferred location {to:?}"));
        Ok(self.process.set_preferred_location(base, length, to)?)
    }

    fn accessed_by(&mut self, index: u64, area: usize) -> Done {
        let by = self.processor();
        let (span, base, length) = self.pages(area);
        let set = self.chance(60);
        self.note(index, area, span, format!("accessed by {by:?}: {set}"));
        let done = match set {
            true => self.process.set_accessed_by(base, length, by),
            false => self.process.unset_accessed_by(base, length, by),
        };
        Ok(done?)
    }

    fn read_duplication(&mut self, index: u64, area: usize) -> Done {
        let (span, base, length) = self.pages(area);
        let on = self.chance(60) && self.may_duplicate;
        self.note(index, area, span, format!("read duplication: {on}"));
        Ok(self.process.read_duplication(base, length, on)?)
    }

    fn evict(&mut self, index: u64, area: usize) -> Done {
        let span = self.span(area);
        let gpu = self.below(self.gpus.len());
        let va = self.areas[area]
            .buffer
            .address_of(span.first / PAGE_WORDS * PAGE_WORDS);
        if self.chance(70) {
            self.note(index, area, span, "evict by address");
            return match self.gpus[gpu].evict(va) {
                // Ordinary memory that UVM does not know yet.
                Err(e) if !self.areas[area].buffer.is_managed() && e.status().is_some() => Ok(()),
                other => Ok(other.map(|_| ())?),
            };
        }
        let count = 1 + self.below(8) as u64;
        self.note(
            index,
            area,
            span,
            format!("RM takes {count} pages of 2 MiB"),
        );
        let gpu = &self.gpus[gpu];
        let kind = INJECT_EVICT_PAGES;
        gpu.device().inject(Inject {
            gpu: gpu.index(),
            kind,
            count,
            ..Default::default()
        })?;
        Ok(())
    }

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
    pub(crate) fn check_all(&self) -> Done {
        self.areas
            .iter()
            .try_for_each(|area| area.check(area.all()))
    }

    /// Says what went wrong, and how it came to it.
    pub(crate) fn explain(&self, index: u64, wrong: &Wrong) -> String {
        let what = &wrong.what;
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

    /// How many operations of each kind were done.
    pub(crate) fn summary(&self) -> String {
        let bytes: u64 = self.areas.iter().map(|a| a.buffer.bytes()).sum();
        let counts = KINDS.iter().zip(self.counts);
        let counts: Vec<_> = counts
            .map(|((kind, _), n)| format!("{kind:?} {n}"))
            .collect();
        let pages = bytes / PAGE;
        format!(
            "{} areas, {pages} pages, {} blocks; {}",
            self.areas.len(),
            bytes / BLOCK,
            counts.join(", ")
        )
    }

    /// True if every kind of operation ran.
    pub(crate) fn ran_everything(&self) -> bool {
        self.counts.iter().all(|n| *n > 0)
    }
}
