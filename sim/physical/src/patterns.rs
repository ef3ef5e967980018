// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Programs that access memory in a known way, for policies that are to tell them apart.
//!
//! Each is a step that is run over and over, with sizes in multiples of the GPU's memory. The policies beside which the
//! chooser stands are those that a user of the driver can set for all of a run.

use uvm_policy::evict::Choice;
use uvm_policy::mask::Region;
use uvm_policy::mask::PAGES;
use uvmsim_machine::Machine;
use uvmsim_machine::BLOCK;
use uvmsim_trace::Kind;

use crate::policies::deepum_config;
use crate::policies::BaseUvm;
use crate::policies::Chosen;
use crate::policies::DeepUm;
use crate::policies::Parts;
use crate::run;
use crate::workload::Kernel;
use crate::workload::Random;
use crate::workload::Touch;
use crate::workload::Use;
use crate::Layout;
use crate::Limits;
use crate::Outcome;
use crate::Policy;
use crate::RunError;
use crate::Workload;

/// All patterns, by name, with what each program does.
pub const PATTERNS: &[(&str, &str)] = &[
    ("stream", "reads three times the memory, each of it once"),
    ("fits", "goes round in three quarters of the memory"),
    ("round", "goes round in one and a half times the memory"),
    (
        "to-and-fro",
        "goes through one and a half times the memory, and back",
    ),
    (
        "sparse",
        "reads single pages at random, of four times the memory",
    ),
    (
        "irregular",
        "reads whole blocks at random, of twice the memory, in kernels that look alike",
    ),
    (
        "phases",
        "is round, sparse, fits and to-and-fro, one after the other",
    ),
];

/// Blocks that a kernel reads.
const AT_ONCE: usize = 8;
/// Pages that a kernel reads which reads single ones.
const PAGES_AT_ONCE: usize = 64;
/// Nanoseconds of a kernel for each block or page that it reads.
const NS_OF_BLOCK: u64 = 10_000;
const NS_OF_PAGE: u64 = 100;

/// Steps before the one that counts: what learns has seen the pattern then.
const WARM_UP: u32 = 4;

/// A program, and where its memory lies.
pub struct Pattern {
    /// What the program does, as [`PATTERNS`] says.
    pub about: &'static str,
    /// The step that it runs over and over.
    pub workload: Workload,
    /// Where its memory lies.
    pub layout: Layout,
    /// The execution ID of each kernel.
    pub ids: Vec<u64>,
}

impl Pattern {
    /// The pattern of this name for a GPU of so many chunks, at least 16; what is random in it follows from `seed`.
    pub fn new(name: &str, chunks: u64, seed: u64) -> Option<Self> {
        let (name, about) = *PATTERNS.iter().find(|(n, _)| *n == name)?;
        let mut step = Step::new(seed);
        step.add(name, chunks.max(16));
        Some(step.pattern(name, about))
    }
}

/// A step in the making.
struct Step {
    random: Random,
    tensors: Vec<(String, u64, Kind)>,
    addresses: Vec<u64>,
    kernels: Vec<Kernel>,
    ids: Vec<u64>,
    /// The kernels that do not read all of their blocks, and what each of them does read.
    pages: Vec<(usize, Vec<Touch>)>,
    /// Bytes of the address space that are taken.
    end: u64,
}

impl Step {
    fn new(seed: u64) -> Self {
        Self {
            random: Random(seed),
            tensors: Vec::new(),
            addresses: Vec::new(),
            kernels: Vec::new(),
            ids: Vec::new(),
            pages: Vec::new(),
            end: 0,
        }
    }

    fn add(&mut self, name: &str, chunks: u64) {
        match name {
            "stream" => {
                let blocks = self.blocks(3 * chunks, Kind::Input);
                self.reads(&blocks);
            }
            "fits" => {
                let blocks = self.blocks(chunks * 3 / 4, Kind::Weight);
                (0..24).for_each(|_| self.reads(&blocks));
            }
            "round" => {
                let blocks = self.blocks(chunks * 3 / 2, Kind::Weight);
                (0..24).for_each(|_| self.reads(&blocks));
            }
            "to-and-fro" => {
                let mut blocks = self.blocks(chunks * 3 / 2, Kind::Weight);
                for _ in 0..24 {
                    self.reads(&blocks);
                    blocks.reverse();
                }
            }
            "sparse" => {
                let blocks = self.blocks(4 * chunks, Kind::Weight);
                for _ in 0..256 {
                    self.reads_pages(&blocks);
                }
            }
            "irregular" => {
                let blocks = self.blocks(2 * chunks, Kind::Weight);
                for _ in 0..256 {
                    let some = self.some(&blocks, AT_ONCE);
                    self.kernel(&some, NS_OF_BLOCK, 0);
                }
            }
            _ => {
                for phase in ["round", "sparse", "fits", "to-and-fro"] {
                    self.add(phase, chunks);
                }
            }
        }
    }

    fn tensor(&mut self, address: u64, bytes: u64, kind: Kind) -> u32 {
        let number = self.tensors.len() as u32;
        self.tensors.push((format!("t{number}"), bytes, kind));
        self.addresses.push(address);
        number
    }

    /// So many whole blocks of new memory.
    fn blocks(&mut self, count: u64, kind: Kind) -> Vec<u32> {
        let first = self.end;
        self.end += count * BLOCK;
        let block = |i| self.tensor(first + i * BLOCK, BLOCK, kind);
        (0..count).map(block).collect()
    }

    /// Kernels that go through `blocks`. Each has an execution ID of its own, by what it reads.
    fn reads(&mut self, blocks: &[u32]) {
        for some in blocks.chunks(AT_ONCE) {
            let id = some
                .iter()
                .fold(1, |id, &t| Random(id ^ u64::from(t)).next());
            self.kernel(some, NS_OF_BLOCK, id);
        }
    }

    /// So many tensors of `all` at random.
    fn some(&mut self, all: &[u32], count: usize) -> Vec<u32> {
        let one = |_| all[(self.random.next() % all.len() as u64) as usize];
        (0..count).map(one).collect()
    }

    /// A kernel that reads a page at random of each of some blocks of `all`, with the execution ID of all such kernels.
    fn reads_pages(&mut self, all: &[u32]) {
        let some = self.some(all, PAGES_AT_ONCE);
        let touch = |&t: &u32| {
            let page = (self.random.next() % u64::from(PAGES)) as u16;
            Touch {
                block: (self.addresses[t as usize] / BLOCK) as u32,
                region: Region::new(page, page + 1),
                read: true,
                write: false,
            }
        };
        let touches = some.iter().map(touch).collect();
        self.pages.push((self.kernels.len(), touches));
        self.kernel(&some, NS_OF_PAGE, 1);
    }

    fn kernel(&mut self, tensors: &[u32], ns: u64, id: u64) {
        let uses = tensors.iter().map(|&t| Use::read(t));
        let ns = ns * tensors.len() as u64;
        self.kernels.push(Kernel::new("read", ns, uses));
        self.ids.push(id);
    }

    fn pattern(self, name: &str, about: &'static str) -> Pattern {
        let workload = Workload::new(name, self.tensors, self.kernels);
        let mut layout = Layout::at(&workload, self.addresses);
        for (kernel, touches) in self.pages {
            layout.touches[kernel] = touches;
        }
        Pattern {
            about,
            workload,
            layout,
            ids: self.ids,
        }
    }
}

/// What comes to the GPU, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Brings {
    /// What faults, and no more.
    Nothing,
    /// What the tree prefetcher says, with what faults.
    Tree,
    /// The whole block, with what faults.
    Block,
    /// The same, and ahead of need what DeepUM's prefetcher predicts.
    DeepUm,
}

/// What is set for all of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fixed {
    /// How tables call it.
    pub name: &'static str,
    /// What comes to the GPU.
    pub brings: Brings,
    /// The name of the eviction policy.
    pub evict: &'static str,
}

/// All of these settings.
pub const FIXED: [Fixed; 8] = [
    fixed("off, lru", Brings::Nothing, "lru"),
    fixed("off, mru", Brings::Nothing, "mru"),
    fixed("tree, lru", Brings::Tree, "lru"),
    fixed("tree, mru", Brings::Tree, "mru"),
    fixed("block, lru", Brings::Block, "lru"),
    fixed("block, mru", Brings::Block, "mru"),
    fixed("deepum, lru", Brings::DeepUm, "lru"),
    fixed("deepum, mru", Brings::DeepUm, "mru"),
];

const fn fixed(name: &'static str, brings: Brings, evict: &'static str) -> Fixed {
    Fixed {
        name,
        brings,
        evict,
    }
}

/// Upstream's driver with a threshold of the tree prefetcher at which it brings the whole block.
struct WholeBlocks;

impl Policy for WholeBlocks {
    fn name(&self) -> &str {
        "whole-blocks"
    }

    fn whole_blocks(&self) -> bool {
        true
    }
}

/// The machine `of`, as upstream's driver manages it: a page is in one place.
fn as_upstream(of: &Machine) -> Machine {
    Machine {
        keep_clean: 0,
        ..of.clone()
    }
}

/// Runs a pattern under what is set.
///
/// # Errors
/// As [`run`](fn@run).
pub fn under(fixed: Fixed, machine: &Machine, pattern: &Pattern) -> Result<Outcome, RunError> {
    let evict = Choice::named(fixed.evict).unwrap_or_default();
    let machine = Machine {
        evict_policy: evict.number(),
        tree_prefetch: u64::from(fixed.brings != Brings::Nothing),
        ..as_upstream(machine)
    };
    let mut policy: Box<dyn Policy> = match fixed.brings {
        Brings::DeepUm => {
            let deepum = DeepUm::new(pattern.ids.clone(), deepum_config())?;
            Box::new(deepum.with(Parts::PreEvict))
        }
        Brings::Block => Box::new(WholeBlocks),
        Brings::Nothing | Brings::Tree => Box::new(BaseUvm),
    };
    runs(&machine, pattern, policy.as_mut())
}

/// Runs a pattern under the chooser; the program announces its kernels or not.
///
/// # Errors
/// As [`run`](fn@run).
pub fn under_chooser(
    machine: &Machine,
    pattern: &Pattern,
    announces: bool,
) -> Result<Outcome, RunError> {
    let (ids, chunks) = (pattern.ids.clone(), machine.chunks());
    let mut policy = Chosen::new(ids, announces, chunks, deepum_config())?;
    runs(&as_upstream(machine), pattern, &mut policy)
}

fn runs(
    machine: &Machine,
    pattern: &Pattern,
    policy: &mut dyn Policy,
) -> Result<Outcome, RunError> {
    let (workload, layout) = (&pattern.workload, &pattern.layout);
    let limits = Limits {
        warm_up: WARM_UP,
        ..Limits::default()
    };
    run(machine, workload, layout, policy, limits)
}
