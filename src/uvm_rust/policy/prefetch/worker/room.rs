// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Chunks for expected blocks: marks, room, the watermark, and victims.

use super::part::Part;
use super::run::Run;
use super::{Machine, VICTIMS_A_TURN};
use crate::policy::evict::{Chunk, Queue, RootChunks};

/// The next block to push out.
pub(super) enum Victim {
    /// The va_block that the machine has chosen, which holds this chunk.
    Chunk(Chunk),
    /// None, because there are enough chunks.
    Enough,
    /// None, because no block may be pushed out.
    None,
}

impl<M: Machine> Run<'_, M> {
    /// Tells the chunks that the current kernel has number `now`: marks up to earlier kernels are void.
    pub(super) fn mark_now(&mut self, now: u32) {
        let (worker, holder) = (self.worker, self.machine.holder());
        let _ = self.machine.chunks(|roots, generation| {
            worker.as_owner(roots, generation, holder, |roots, owner| {
                roots.set_now(owner, now)
            });
        });
    }

    /// Marks the chunk that backs the locked va_block; `new`: none of the va_block was on the GPU before the worker
    /// brought it.
    pub(super) fn expect(&mut self, until: u32, new: bool) {
        let Some(chunk) = self.machine.chunk() else {
            return;
        };
        let worker = self.worker;
        let _ = self.machine.chunks(|roots, generation| {
            let owner = worker.owner_in(generation);
            roots.expect(chunk, owner, until);
            if new && !worker.lacks(Part::MarksBrought) {
                roots.brought(chunk, owner);
            }
        });
    }

    /// Whether a chunk can be had for a block of kernel number `until` without evicting an expected block, unless the
    /// policy gives that one up (W-room). If all queues are empty, all chunks are pinned, and a guess does not wait
    /// for one. If the process is at its maximum, one of its own chunks makes room, whatever is free.
    pub(super) fn has_room(&mut self, until: u32) -> bool {
        let holder = self.machine.holder();
        let ahead = until.wrapping_sub(self.said.unwrap_or(until));
        if self.machine.is_full() {
            let spare = self.machine.chunks(|roots, _| roots.has_spare(holder));
            return spare.unwrap_or(true);
        }
        self.worker.lacks(Part::Room)
            || self.machine.free_chunks(1) > 0
            || self
                .machine
                .chunks(|roots, _| roots.has_room_for(holder, ahead))
                .unwrap_or(true)
    }

    /// Whether enough chunks can be had without a copy, so that none need be pushed out: chunks that are free or
    /// unused, or hold only discarded pages.
    fn is_ready(&mut self) -> bool {
        let watermark = self.worker.params.watermark;
        let free = self.machine.free_chunks(watermark);
        let without_copy = self.machine.chunks(|roots, _| {
            let lengths = [Queue::Unused, Queue::Discarded].map(|q| roots.length(q));
            lengths[0].saturating_add(lengths[1])
        });
        free.saturating_add(without_copy.unwrap_or(0)) >= watermark
            && !self.worker.lacks(Part::Watermark)
    }

    /// The block to push out next: the process's oldest that nobody expects (W-own).
    pub(super) fn find_victim(&mut self) -> Victim {
        let holder = self.machine.holder();
        while self.in_vain < VICTIMS_A_TURN || self.worker.lacks(Part::VictimsEnd) {
            if self.is_ready() {
                return Victim::Enough;
            }
            let Some(chunk) = self.machine.pick(|roots| roots.pick_early(holder)) else {
                return Victim::None;
            };
            match self.machine.victim() {
                Some(h) if h.may_move() || self.worker.lacks(Part::PolicyOut) => {
                    return Victim::Chunk(chunk)
                }
                // Otherwise the same chunk would be picked again and again.
                _ => self.pass_over(chunk),
            }
        }
        Victim::None
    }

    /// Whether the locked va_block is needed by now (W-own). It was chosen for `chunk`, without a lock that the fault
    /// service would have waited for.
    pub(super) fn is_needed(&mut self, chunk: Chunk) -> bool {
        let chunk = self.machine.chunk().unwrap_or(chunk);
        let look = |roots: &mut RootChunks, _| !roots.may_leave_early(chunk);
        !self.worker.lacks(Part::StaysIfNeeded) && self.machine.chunks(look).unwrap_or(false)
    }

    /// Notes that `chunk` cannot be pushed out, as far as is known.
    pub(super) fn pass_over(&mut self, chunk: Chunk) {
        self.in_vain += 1;
        let holder = self.machine.holder();
        if !self.worker.lacks(Part::PassesOver) {
            let _ = self
                .machine
                .chunks(|roots, _| roots.pass_over(chunk, holder));
        }
    }
}
