// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What is asked for, and how far it has come.

use super::super::super::discard::BLOCK_BYTES;
use super::super::super::evict::wait::HELD_MS;
use super::super::moves::{self, Failed, Run, To};
use super::LATER_MS;

/// So often in a row a worker looks for memory of a GPU, between which others have all locks: for as long as a fault
/// tries chunks that are held. Later requests of the lane wait meanwhile.
pub(super) const TRIES: u32 = (HELD_MS / LATER_MS) as u32;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The first byte, of a page.
    pub base: u64,
    /// How many bytes of whole pages, not 0.
    pub length: u64,
    /// Where they go, but not [`To::Home`].
    pub to: To,
    /// What is on GPUs goes to host memory first.
    pub from_gpus: bool,
    /// The GPU that they go to, if it is one.
    pub gpu: [u8; 16],
    /// The number by which the caller knows it.
    pub user: u64,
    /// The user of the VA space that made it, by the number that the user gave (`queue` of the call).
    pub of: u64,
    /// It begins when all that were submitted before it have ended, whichever their lane and whoever their user.
    pub after: bool,
}

impl Request {
    /// Whether bytes go to the device, or away from GPUs.
    pub(super) fn leaves(&self) -> bool {
        self.from_gpus || self.to == To::Device
    }

    /// The numbers of the first and the last va_block.
    pub(super) fn blocks(&self) -> (u64, u64) {
        let last = self.base.saturating_add(self.length.saturating_sub(1));
        (self.base / BLOCK_BYTES, last / BLOCK_BYTES)
    }
}

/// A request that has begun, and how far it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// From GPUs to host memory, a part ahead of `run`, and on its way while `run` writes; over from the start if
    /// that is not asked for.
    home: Run,
    run: Run,
    /// The GPU that is moved to, if one is.
    pub gpu: [u8; 16],
    /// How often in a row there was no memory on that GPU.
    tries: u32,
    /// The last step looked at much that nobody ever touched (Q-rest).
    pub(super) looked: bool,
}

impl Job {
    pub(super) fn new(request: &Request) -> Self {
        let from_gpus = if request.from_gpus { request.length } else { 0 };
        Self {
            home: Run::new(request.base, from_gpus, To::Home),
            run: Run::new(request.base, request.length, request.to),
            gpu: request.gpu,
            tries: 0,
            looked: false,
        }
    }

    /// Where the next part goes.
    pub fn to(&self) -> To {
        self.current().to()
    }

    fn is_home_next(&self) -> bool {
        !self.home.is_over() && self.home.at() <= self.run.at()
    }

    fn current(&self) -> &Run {
        if self.is_home_next() {
            &self.home
        } else {
            &self.run
        }
    }

    /// Moves the next part (Q-room).
    ///
    /// # Errors
    ///
    /// They are those of [`Run::step`], and mean the same here.
    pub fn step<M: moves::Machine>(&mut self, m: &mut M) -> Result<(), Failed> {
        let is_for_gpu = self.to() == To::Gpu;
        let (moved, run) = if self.is_home_next() {
            (self.home.step(m), &self.home)
        } else {
            (self.run.step_beside(m, &mut self.home), &self.run)
        };
        self.looked = run.looked_at_much();
        match moved {
            Err(Failed::NoMemory) if is_for_gpu && self.tries < TRIES => {
                self.tries += 1;
                Err(Failed::Again)
            }
            Ok(()) => {
                self.tries = 0;
                Ok(())
            }
            failed => failed,
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.run.is_over()
    }
}
