// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Requests, and how far each has come.

use super::super::super::discard::BLOCK_BYTES;
use super::super::super::evict::wait::HELD_MS;
use super::super::moves::{self, Failed, Run, To};
use super::LATER_MS;

/// How often in a row a worker looks for memory of a GPU; in between it holds no lock. This takes as long as a fault
/// tries held chunks. Later requests of the lane wait meanwhile.
pub(super) const TRIES: u32 = (HELD_MS / LATER_MS) as u32;

/// A request to move a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The first byte, which begins a page.
    pub base: u64,
    /// How many bytes, of whole pages, not 0.
    pub length: u64,
    /// The destination, but not [`To::Home`].
    pub to: To,
    /// Whether pages on GPUs go to host memory first.
    pub from_gpus: bool,
    /// The destination GPU's UUID, if the destination is a GPU.
    pub gpu: [u8; 16],
    /// The caller's number for the request.
    pub user: u64,
    /// The number of the user that submitted it (`queue` of the call).
    pub of: u64,
    /// Whether it begins only when all that were submitted before it have ended, whichever their lane and user.
    pub after: bool,
}

impl Request {
    /// Whether it moves bytes to the device, or away from GPUs.
    pub(super) fn leaves(&self) -> bool {
        self.from_gpus || self.to == To::Device
    }

    /// The numbers of its first and last va_block.
    pub(super) fn blocks(&self) -> (u64, u64) {
        let last = self.base.saturating_add(self.length.saturating_sub(1));
        (self.base / BLOCK_BYTES, last / BLOCK_BYTES)
    }
}

/// A request that has begun, and how far it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// The copies from GPUs to host memory, a part ahead of `run`, which go on while `run` writes. Over from the
    /// start if the request does not ask for them.
    home: Run,
    run: Run,
    /// The destination GPU's UUID, if the destination is a GPU.
    pub gpu: [u8; 16],
    /// How often in a row that GPU had no memory.
    tries: u32,
    /// Whether the last step looked at many bytes that nobody ever touched (Q-rest).
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

    /// The destination of the next part.
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
