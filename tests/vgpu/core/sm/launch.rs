// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A kernel with its warps, from its submission to its end.

use crate::emu::fault::UTLB_FAULTS_MAX;
use crate::emu::gpu::Error;
use crate::emu::gpu::UTLB_FAULTS;
use crate::emu::kernel::Kernel;
use crate::emu::kernel::Outcome;
use crate::emu::walk::FaultType;
use crate::emu::Op;
use crate::mem::OutOfMemory;
use crate::mem::TryVec;

/// The type of each lane's fault, two bits a lane: there may be many warps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::emu) struct LaneFaults(u64);

impl LaneFaults {
    const TYPES: [FaultType; 4] = [
        FaultType::InvalidPde,
        FaultType::InvalidPte,
        FaultType::WriteToReadOnly,
        FaultType::AtomicDisabled,
    ];

    /// Notes why `lane`, below 32, faulted.
    pub(super) fn set(&mut self, lane: u32, kind: FaultType) {
        let code = match kind {
            FaultType::InvalidPde => 0,
            FaultType::InvalidPte => 1,
            FaultType::WriteToReadOnly => 2,
            FaultType::AtomicDisabled => 3,
        };
        self.0 = self.0 & !(3 << (2 * lane)) | (code << (2 * lane));
    }

    /// Why `lane`, below 32, faulted last; means nothing if it did not.
    pub(super) fn get(self, lane: u32) -> FaultType {
        Self::TYPES[((self.0 >> (2 * lane)) & 3) as usize]
    }
}

/// One warp of the running phase.
#[derive(Clone, Copy, Debug)]
pub(in crate::emu) struct Warp {
    pub(super) plan: u16,
    /// Number within the op.
    pub(super) number: u32,
    pub(super) step: u64,
    /// Lanes of the instruction that are not done.
    pub(super) todo: u32,
    /// Of these, lanes whose fault is written or dropped and that wait for the next replay.
    pub(super) waiting: u32,
    /// Of the lanes in `todo`, those that have faulted before.
    pub(super) faulted: u32,
    /// Of the lanes in `faulted`, why they did, as the last try found.
    pub(super) kinds: LaneFaults,
}

/// A kernel with its warps: all the memory it will ever need, so that running it
/// allocates none.
#[derive(Debug)]
pub struct Launch {
    pub(super) kernel: Kernel,
    /// Ops of this phase: first, and the one after the last.
    pub(super) phase: (usize, usize),
    pub(super) warps: TryVec<Warp>,
    /// Warps that can go on: a ring of indices with room for all.
    pub(super) ready: Ring,
    /// Warps of this phase that have not finished.
    pub(super) left: usize,
    pub(super) outcome: Outcome,
    pub(super) start_ns: u64,
}

impl Launch {
    /// Checks and copies `ops`, and makes the warps that start. `utlb_faults` of 0
    /// is the default.
    pub fn new(ops: &[Op], utlb_faults: u32) -> Result<Self, Error> {
        let limit = match utlb_faults {
            0 => UTLB_FAULTS,
            n if n <= UTLB_FAULTS_MAX => n,
            _ => return Err(Error::Invalid),
        };
        let kernel = Kernel::new(ops, limit)?;
        let most_warps = kernel.most_warps();
        let mut launch = Self {
            kernel,
            phase: (0, 0),
            warps: TryVec::with_capacity(most_warps)?,
            ready: Ring::new(most_warps)?,
            left: 0,
            outcome: Outcome::default(),
            start_ns: 0,
        };
        launch.next_phase();
        Ok(launch)
    }

    /// The address after the last one that is accessed.
    pub(in crate::emu) fn end(&self) -> u64 {
        self.kernel.end
    }

    /// Room for so many warps is held.
    pub(in crate::emu) fn most_warps(&self) -> usize {
        self.ready.capacity()
    }

    /// Starts the next phase that has anything to do, and gives how many warps it was asked
    /// for, with those that have nothing to do; `None` if there is none.
    pub(in crate::emu) fn next_phase(&mut self) -> Option<usize> {
        let mut asked = 0;
        while self.phase.1 < self.kernel.plans.len() {
            let first = self.phase.1;
            self.phase = (first, self.kernel.phase_end(first));
            self.warps.clear();
            self.ready.clear();
            for plan in self.phase.0..self.phase.1 {
                asked += self.kernel.plans[plan].warps as usize;
                for number in 0..self.kernel.plans[plan].warps {
                    self.add_warp(plan, number);
                }
            }
            self.left = self.warps.len();
            if self.left > 0 {
                return Some(asked);
            }
        }
        None
    }

    fn add_warp(&mut self, plan: usize, number: u32) {
        let Some((_, lanes)) = self.kernel.plans[plan].instruction(number, 0) else {
            return;
        };
        let warp = Warp {
            plan: plan as u16,
            number,
            step: 0,
            todo: all_lanes(lanes),
            waiting: 0,
            faulted: 0,
            kinds: LaneFaults::default(),
        };
        // There is room for all warps of the phase: see `new`.
        if self.warps.push(warp).is_ok() {
            self.ready.push(self.warps.len() as u32 - 1);
        }
    }

    /// Moves a warp to its next instruction; false if it has none.
    pub(in crate::emu) fn next_instruction(&mut self, i: usize) -> bool {
        let w = &mut self.warps[i];
        w.step += 1;
        w.waiting = 0;
        w.faulted = 0;
        w.kinds = LaneFaults::default();
        match self.kernel.plans[usize::from(w.plan)].instruction(w.number, w.step) {
            Some((_, lanes)) => {
                w.todo = all_lanes(lanes);
                true
            }
            None => {
                w.todo = 0;
                self.left -= 1;
                false
            }
        }
    }
}

fn all_lanes(n: u32) -> u32 {
    u32::MAX >> (32 - n)
}

/// A ring of indices with a fixed capacity.
#[derive(Debug, Default)]
pub(in crate::emu) struct Ring {
    slots: TryVec<u32>,
    first: usize,
    len: usize,
}

impl Ring {
    pub(in crate::emu) fn new(capacity: usize) -> Result<Self, OutOfMemory> {
        Ok(Self {
            slots: TryVec::filled(capacity, 0)?,
            first: 0,
            len: 0,
        })
    }

    pub(in crate::emu) fn capacity(&self) -> usize {
        self.slots.len()
    }

    pub(in crate::emu) fn len(&self) -> usize {
        self.len
    }

    /// `i` is below twice the capacity.
    fn wrap(&self, i: usize) -> usize {
        if i < self.slots.len() {
            i
        } else {
            i - self.slots.len()
        }
    }

    pub(in crate::emu) fn clear(&mut self) {
        self.len = 0;
    }

    /// False if it is full.
    pub(in crate::emu) fn push(&mut self, value: u32) -> bool {
        if self.len == self.slots.len() {
            return false;
        }
        let at = self.wrap(self.first + self.len);
        self.slots[at] = value;
        self.len += 1;
        true
    }

    pub(in crate::emu) fn pop(&mut self) -> Option<u32> {
        if self.len == 0 {
            return None;
        }
        let value = self.slots[self.first];
        self.first = self.wrap(self.first + 1);
        self.len -= 1;
        Some(value)
    }
}
