// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Following the plan of a program that was recorded ([`crate::plan::Program`]): where in the
//! step it is, and which memory is meant.
//!
//! The program is on its plan while each launch is of the kernel that the plan has next. After
//! one that is not it is off, and back on it when its last launches (as many as
//! [`WINDOW`], or a whole step) are a part of the step that occurs there once.
//!
//! Only moves are taken from such a plan. What it frees the program frees by itself, and what
//! it discards may be read after all by a copy, which is no launch: so whatever is wrong in a
//! plan, or about the program, costs time, and no byte.
//!
//! A [`Follower`] says what is to be moved, and an [`Executor`] has it moved.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::plan::{Ask, Key, Plan, Program, Request};
use crate::{Range, Tier};

mod executor;

pub use executor::{Executor, Pending, Queued};

/// The name of a kernel that is not known: it may be any.
pub const ANY: &str = "?";

/// Launches in a row by which a place in the step is known again.
pub const WINDOW: usize = 32;

/// An allocation of managed memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// Which of the program's, from 0.
    pub number: u64,
    /// Where the allocation is, and how long.
    pub range: Range,
}

/// The allocations that are not freed, and how many there have been.
#[derive(Debug, Default)]
pub struct Allocations {
    live: BTreeMap<u64, Allocation>,
    made: u64,
    /// Where the first begins and the last ends of all that there were: most words of a kernel's
    /// arguments are no addresses, and lie outside.
    around: Option<(u64, u64)>,
}

impl Allocations {
    /// Adds one. What was there before is gone, whether that was told or not.
    pub fn add(&mut self, base: u64, length: u64) -> Allocation {
        while self.displace(base, length).is_some() {}
        let end = base.saturating_add(length);
        let allocation = Allocation {
            number: self.made,
            range: Range { base, length },
        };
        self.made += 1;
        self.live.insert(base, allocation);
        let (first, last) = self.around.unwrap_or((base, end));
        self.around = Some((first.min(base), last.max(end)));
        allocation
    }

    /// Takes out one in whose place a new one is, of which the last is taken first.
    pub fn displace(&mut self, base: u64, length: u64) -> Option<Allocation> {
        let (&at, old) = self.live.range(..base.saturating_add(length)).next_back()?;
        let before = at < base && at.saturating_add(old.range.length) <= base;
        if before {
            return None;
        }
        self.live.remove(&at)
    }

    /// The one that begins here, if there is one.
    pub fn begins(&self, base: u64) -> Option<Allocation> {
        self.live.get(&base).copied()
    }

    /// Takes out one; `false`: it was not there any more, which what lies in its place now is not
    /// to suffer from.
    pub fn remove(&mut self, allocation: Allocation) -> bool {
        self.is_live(allocation) && self.live.remove(&allocation.range.base).is_some()
    }

    /// The allocations that are not freed, by address.
    pub fn all(&self) -> impl Iterator<Item = Allocation> + '_ {
        self.live.values().copied()
    }

    /// The one that has this address in it.
    pub fn at(&self, address: u64) -> Option<Allocation> {
        let (first, end) = self.around?;
        if address < first || address >= end {
            return None;
        }
        let (_, &found) = self.live.range(..=address).next_back()?;
        (address - found.range.base < found.range.length).then_some(found)
    }

    /// Those that have a byte of this range in them.
    pub fn meeting(&self, base: u64, length: u64) -> impl Iterator<Item = Allocation> + '_ {
        let before = self.live.range(..base.saturating_add(length)).rev();
        let meets = move |a: &Allocation| base < a.range.base.saturating_add(a.range.length);
        // No two share a byte, so that who ends before the range ends behind all others before it.
        before.map(|(_, &allocation)| allocation).take_while(meets)
    }

    /// Whether this one is not freed.
    pub fn is_live(&self, allocation: Allocation) -> bool {
        self.live.get(&allocation.range.base) == Some(&allocation)
    }
}

/// What is to be done before a launch.
#[derive(Debug, PartialEq, Eq)]
pub enum Before {
    /// The program is on the plan, which asks for these moves.
    Plan(Vec<(Allocation, Whereto)>),
    /// The program is off the plan; if with this launch, which kernel the plan has here.
    Off(Option<u32>),
}

/// Where memory is to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whereto {
    /// To the GPU that the launch is for.
    Gpu,
    /// Host memory: out of the GPU's.
    Host,
    /// The SSD, by way of the host.
    Ssd,
}

impl Whereto {
    /// The tier of this place, with the GPU's UUID.
    pub fn tier(self, gpu: [u8; 16]) -> Tier {
        match self {
            Self::Gpu => Tier::Gpu(gpu),
            Self::Host => Tier::Host,
            Self::Ssd => Tier::Ssd,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// Before the first step.
    Start,
    /// The next launch is to be of this kernel.
    On(usize),
    Off,
}

/// A program on its way through its plan. Calls nothing, and knows no clock.
#[derive(Debug)]
pub struct Follower<'p> {
    plan: &'p Plan,
    program: &'p Program,
    /// Tensors by what their allocation is known by.
    tensors: HashMap<Key, u64>,
    /// What each tensor is now, or was.
    bound: HashMap<u64, Allocation>,
    allocations: Allocations,
    launches: u64,
    /// Allocations since the last launch, without those that are the program's.
    nth: u32,
    at: At,
    /// Memory that the plan brings before the program has it.
    owed: Vec<Request>,
    /// Hashes of the names of the last launches, and of each window of the step the kernel
    /// that is its last; `None` if that is not one.
    recent: VecDeque<u64>,
    windows: HashMap<u64, Option<usize>>,
}

impl<'p> Follower<'p> {
    /// At the start of a program; `None`: the plan was not made of a record.
    pub fn new(plan: &'p Plan) -> Option<Self> {
        let program = plan.program()?;
        let names: Vec<u64> = program.names().map(hash).collect();
        let kernels = names.len();
        let mut windows = HashMap::new();
        for last in 0..kernels {
            let window = (0..kernels.min(WINDOW)).rev();
            let window = window.map(|back| names[(last + kernels - back) % kernels]);
            let place = windows.entry(hash(window.collect::<Vec<_>>()));
            place.and_modify(|p| *p = None).or_insert(Some(last));
        }
        Some(Self {
            plan,
            program,
            tensors: program.keys().map(|(tensor, key)| (key, tensor)).collect(),
            bound: HashMap::new(),
            allocations: Allocations::default(),
            launches: 0,
            nth: 0,
            at: At::Start,
            owed: Vec::new(),
            recent: VecDeque::new(),
            windows,
        })
    }

    /// The allocations that the program has now.
    pub fn allocations(&self) -> &Allocations {
        &self.allocations
    }

    /// Says that there is a new allocation.
    pub fn allocated(&mut self, base: u64, length: u64) {
        let new = self.allocations.add(base, length);
        let program = self.tensors.get(&Key::Program(new.number));
        let step = || {
            let kernel = match self.at {
                At::On(kernel) => kernel,
                At::Start if self.launches == self.program.start => 0,
                At::Start | At::Off => return None,
            };
            let (kernel, nth) = (kernel as u32, self.nth);
            self.tensors.get(&Key::Step { kernel, nth })
        };
        if let Some(&tensor) = program.or_else(step) {
            self.bound.insert(tensor, new);
        }
        // In its first step a program may make what later ones find made.
        self.nth += u32::from(program.is_none());
    }

    /// Says that an allocation is freed. Another may be in its place already.
    pub fn freed(&mut self, gone: Allocation) {
        self.allocations.remove(gone);
    }

    /// Says that a kernel of this name is about to be launched.
    pub fn launch(&mut self, name: &str) -> Before {
        let launches = self.launches;
        self.launches += 1;
        self.nth = 0;
        if self.recent.len() == self.program.names().len().min(WINDOW) {
            self.recent.pop_front();
        }
        self.recent.push_back(hash(name));
        let kernel = match self.at {
            At::Start if launches < self.program.start => return Before::Plan(Vec::new()),
            At::Start => 0,
            At::On(kernel) => kernel,
            At::Off => match self.place() {
                Some(kernel) => kernel,
                None => return Before::Off(None),
            },
        };
        if !self.is(kernel, name) {
            self.at = At::Off;
            self.owed.clear();
            return Before::Off(Some(kernel as u32));
        }
        self.at = At::On((kernel + 1) % self.program.names().len());
        if kernel == 0 {
            self.owed.clear();
        }
        Before::Plan(self.moves(kernel as u64))
    }

    fn is(&self, kernel: usize, name: &str) -> bool {
        let wanted = self.program.name(kernel);
        wanted == Some(name) || wanted == Some(ANY) || name == ANY
    }

    /// The kernel of the last launch, if it can be told by those before.
    fn place(&self) -> Option<usize> {
        let recent: Vec<_> = self.recent.iter().copied().collect();
        *self.windows.get(&hash(recent))?
    }

    /// What the plan moves before a kernel, and what it would have moved if it had been there.
    fn moves(&mut self, kernel: u64) -> Vec<(Allocation, Whereto)> {
        let mut moves = Vec::new();
        let mut owed = std::mem::take(&mut self.owed);
        owed.retain(|request| match self.memory(request) {
            Some(memory) => {
                moves.push((memory, Whereto::Gpu));
                false
            }
            None => true,
        });
        let plan = self.plan;
        for request in plan.before(kernel) {
            let to = match request.ask {
                Ask::Bring => Whereto::Gpu,
                Ask::Evict { ssd: true } => Whereto::Ssd,
                Ask::Evict { ssd: false } => Whereto::Host,
                Ask::Copy | Ask::Drop => continue,
            };
            match self.memory(request) {
                Some(memory) => moves.push((memory, to)),
                None if to == Whereto::Gpu => owed.push(*request),
                None => {}
            }
        }
        self.owed = owed;
        moves
    }

    fn memory(&self, request: &Request) -> Option<Allocation> {
        let memory = *self.bound.get(&request.tensor)?;
        self.allocations.is_live(memory).then_some(memory)
    }
}

fn hash(what: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests;
