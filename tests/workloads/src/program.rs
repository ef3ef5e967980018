// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! An application as data: buffers, and what is done to them, in order.
//!
//! The same program is run on the driver (`run`), walked through by the oracle
//! (`oracle`) and checked here. Everything is in whole 2 MiB blocks, the size in
//! which UVM moves and discards; a kernel reads or writes all of what it names.

use std::fmt;

/// A buffer's place in [`Program::buffers`].
pub type BufferId = usize;

/// Managed memory of the application.
#[derive(Clone, Debug)]
pub struct Buffer {
    /// Its name, unique in the program.
    pub name: String,
    /// How many blocks of 2 MiB it has.
    pub blocks: usize,
}

/// Consecutive blocks of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The buffer that the span lies in.
    pub buffer: BufferId,
    /// The first block, counted in the buffer.
    pub first: usize,
    /// How many, at least one.
    pub blocks: usize,
}

impl Span {
    /// The blocks, as (buffer, block).
    pub fn each(self) -> impl Iterator<Item = (BufferId, usize)> {
        (self.first..self.first + self.blocks).map(move |b| (self.buffer, b))
    }
}

/// What a kernel does to a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads all of it.
    Read,
    /// Overwrites all of it.
    Write,
    /// Reads it, then overwrites it.
    Update,
}

impl Access {
    /// Does it see what was there before?
    pub fn reads(self) -> bool {
        self != Self::Write
    }

    /// Does it leave something new?
    pub fn writes(self) -> bool {
        self != Self::Read
    }
}

/// One of the things that a kernel does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Use {
    /// The blocks that the kernel uses.
    pub span: Span,
    /// Whether it reads, writes or updates them.
    pub access: Access,
    /// At how many places at the same time: each is the start of an equal part of
    /// the span, which is gone through in order.
    pub streams: u32,
}

impl Span {
    /// Reads it, in order.
    pub fn read(self) -> Use {
        self.with(Access::Read)
    }

    /// Overwrites it, in order.
    pub fn write(self) -> Use {
        self.with(Access::Write)
    }

    /// Reads and then overwrites it.
    pub fn update(self) -> Use {
        self.with(Access::Update)
    }

    fn with(self, access: Access) -> Use {
        Use {
            span: self,
            access,
            streams: 1,
        }
    }
}

impl Use {
    /// At so many places at the same time.
    pub fn streams(self, streams: u32) -> Self {
        Self { streams, ..self }
    }
}

/// Where a prefetch goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Host memory, for the CPU to use.
    Host,
    /// GPU memory, for the next kernel.
    Gpu,
}

/// One thing that the application does.
#[derive(Clone, Debug)]
pub enum Step {
    /// The CPU overwrites a span.
    HostWrite(Span),
    /// The CPU reads a span.
    HostRead(Span),
    /// Moves a span, as cudaMemPrefetchAsync does.
    Prefetch(Span, Place),
    /// A kernel: what it does, all at the same time, but for the writing of updates.
    Kernel(Vec<Use>),
    /// Nobody will read what is in a span now.
    Discard(Span, Next),
    /// From here on traffic counts.
    Start,
    /// From here on traffic does not count any more.
    Stop,
}

/// What comes before the next use of a span that is discarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// A prefetch, so that the discard may be a lazy one.
    Prefetch,
    /// Just the use: the discard has to be an eager one (paper §7.1: "not all").
    Fault,
}

/// How an application treats data that it is done with, and on which driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// [`Mode::Opt`] on NVIDIA's driver as it is: plain UVM.
    Plain,
    /// [`Mode::Discard`] by NVIDIA's own discard, with the flag that unmaps.
    Native,
    /// [`Mode::Lazy`] by NVIDIA's own discard, without that flag where a prefetch follows.
    NativeLazy,
    /// It prefetches, and discards nothing (UVM-opt).
    Opt,
    /// It discards by UvmDiscard, also where a prefetch follows.
    Discard,
    /// UvmDiscardLazy where a prefetch follows, UvmDiscard elsewhere.
    Lazy,
}

impl Mode {
    /// The modes on NVIDIA's driver as it is, the baseline first.
    pub const NVIDIAS: [Self; 3] = [Self::Plain, Self::Native, Self::NativeLazy];
    /// The modes on our driver, the baseline first.
    pub const OURS: [Self; 3] = [Self::Opt, Self::Discard, Self::Lazy];
    /// All modes, each driver's baseline before its others.
    pub const ALL: [Self; 6] = [
        Self::Plain,
        Self::Native,
        Self::NativeLazy,
        Self::Opt,
        Self::Discard,
        Self::Lazy,
    ];

    /// The name that the mode has in the JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Native => "native",
            Self::NativeLazy => "native-lazy",
            Self::Opt => "opt",
            Self::Discard => "discard",
            Self::Lazy => "lazy",
        }
    }

    /// The mode of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.name() == name)
    }

    /// The mode in which our driver is asked for the same.
    pub fn of_ours(self) -> Self {
        match self {
            Self::Plain | Self::Opt => Self::Opt,
            Self::Native | Self::Discard => Self::Discard,
            Self::NativeLazy | Self::Lazy => Self::Lazy,
        }
    }

    /// Whether the mode is one on our driver.
    pub fn is_ours(self) -> bool {
        self == self.of_ours()
    }
}

/// An application with its data.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// All memory that it allocates.
    pub buffers: Vec<Buffer>,
    /// What it does, one after the other.
    pub steps: Vec<Step>,
}

/// A step that reads what nobody wrote, or what was discarded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stale {
    /// Number of the step.
    pub step: usize,
    /// Name of the buffer.
    pub buffer: String,
    /// The block, counted in the buffer.
    pub block: usize,
}

impl fmt::Display for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            step,
            buffer,
            block,
        } = self;
        write!(
            f,
            "step {step} reads block {block} of {buffer}, which holds nothing"
        )
    }
}

impl Program {
    /// Adds a buffer of `blocks` blocks.
    pub fn buffer(&mut self, name: impl Into<String>, blocks: usize) -> BufferId {
        let name = name.into();
        self.buffers.push(Buffer { name, blocks });
        self.buffers.len() - 1
    }

    /// The span that is all of a buffer.
    pub fn all(&self, buffer: BufferId) -> Span {
        let blocks = self.buffers[buffer].blocks;
        Span {
            buffer,
            first: 0,
            blocks,
        }
    }

    /// Blocks of all buffers together.
    pub fn footprint(&self) -> usize {
        self.buffers.iter().map(|b| b.blocks).sum()
    }

    /// Adds a step behind all others.
    pub fn push(&mut self, step: Step) {
        self.steps.push(step);
    }

    /// Prefetches all that a kernel will use to the GPU, and launches it.
    pub fn launch(&mut self, uses: &[Use]) {
        for u in uses {
            self.push(Step::Prefetch(u.span, Place::Gpu));
        }
        self.push(Step::Kernel(uses.to_vec()));
    }

    /// The CPU overwrites a span that it has prefetched, as a span that was
    /// discarded lazily has to be.
    pub fn host_write(&mut self, span: Span) {
        self.push(Step::Prefetch(span, Place::Host));
        self.push(Step::HostWrite(span));
    }

    /// The CPU reads a span that it has prefetched.
    pub fn host_read(&mut self, span: Span) {
        self.push(Step::Prefetch(span, Place::Host));
        self.push(Step::HostRead(span));
    }

    /// Discards a span that will be prefetched before it is used again.
    pub fn discard(&mut self, span: Span) {
        self.push(Step::Discard(span, Next::Prefetch));
    }

    /// Finds a step that reads what holds nothing.
    pub fn check(&self) -> Result<(), Stale> {
        let mut holds: Vec<Vec<bool>> =
            (self.buffers.iter().map(|b| vec![false; b.blocks])).collect();
        for (number, step) in self.steps.iter().enumerate() {
            let read = |span: Span, holds: &[Vec<bool>]| match span
                .each()
                .find(|&(buffer, block)| !holds[buffer][block])
            {
                None => Ok(()),
                Some((buffer, block)) => Err(Stale {
                    step: number,
                    buffer: self.buffers[buffer].name.clone(),
                    block,
                }),
            };
            let set = |span: Span, holds: &mut [Vec<bool>], to: bool| {
                span.each()
                    .for_each(|(buffer, block)| holds[buffer][block] = to);
            };
            match step {
                Step::HostWrite(span) => set(*span, &mut holds, true),
                Step::HostRead(span) => read(*span, &holds)?,
                Step::Kernel(uses) => {
                    for u in uses.iter().filter(|u| u.access.reads()) {
                        read(u.span, &holds)?;
                    }
                    for u in uses.iter().filter(|u| u.access.writes()) {
                        set(u.span, &mut holds, true);
                    }
                }
                Step::Discard(span, _) => set(*span, &mut holds, false),
                Step::Prefetch(..) | Step::Start | Step::Stop => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_of_nothing_is_found() {
        let mut program = Program::default();
        let b = program.buffer("b", 4);
        let all = program.all(b);
        program.push(Step::HostWrite(Span { blocks: 3, ..all }));
        program.push(Step::Kernel(vec![Span { blocks: 3, ..all }.update()]));
        assert_eq!(program.check(), Ok(()));
        program.push(Step::HostRead(all));
        let stale = program.check().unwrap_err();
        assert_eq!((stale.step, stale.block), (2, 3));
        program.steps.pop();
        program.discard(Span {
            first: 1,
            blocks: 1,
            ..all
        });
        program.push(Step::Kernel(vec![all.write()]));
        assert_eq!(program.check(), Ok(()));
        program.discard(all);
        program.push(Step::HostRead(all));
        assert_eq!(program.check().unwrap_err().block, 0);
    }
}
