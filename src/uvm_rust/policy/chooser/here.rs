// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Which blocks of a process a GPU has, as far as faults have brought them.
//!
//! The table has two places for each chunk of the GPU, in rows of four. Where a row is full, a block of it is forgotten,
//! and arrives once more with its next fault.

use super::super::mask::BLOCK_SHIFT;
use super::super::stats::returns::mix;
use crate::mem::{OutOfMemory, ProcessVec};

/// How many places there are in which a block may be.
const WAYS: usize = 4;

/// The blocks by their tags; 0: none.
pub(super) struct Here {
    places: ProcessVec<u32>,
    /// Blocks that were forgotten, by which the next one is picked.
    forgotten: usize,
}

impl Here {
    /// Makes an empty table for a GPU with `chunks` chunks.
    pub(super) fn new(chunks: u32) -> Result<Self, OutOfMemory> {
        let count = (chunks as usize).saturating_mul(2).max(WAYS);
        Ok(Self {
            places: ProcessVec::filled(count.next_power_of_two(), 0)?,
            forgotten: 0,
        })
    }

    /// The block at `address` is there from now on. Returns whether it was not before.
    pub(super) fn comes(&mut self, address: u64) -> bool {
        let victim = self.forgotten % WAYS;
        let (row, tag) = self.row(address);
        if row.contains(&tag) {
            return false;
        }
        match row.iter_mut().find(|place| **place == 0) {
            Some(free) => *free = tag,
            None => {
                if let Some(place) = row.get_mut(victim) {
                    *place = tag;
                }
                self.forgotten = self.forgotten.wrapping_add(1);
            }
        }
        true
    }

    /// The block at `address` is not there any more.
    pub(super) fn leaves(&mut self, address: u64) {
        let (row, tag) = self.row(address);
        if let Some(place) = row.iter_mut().find(|place| **place == tag) {
            *place = 0;
        }
    }

    /// The places that may be the block's, and its tag, which is not 0.
    fn row(&mut self, address: u64) -> (&mut [u32], u32) {
        let hash = mix(address >> BLOCK_SHIFT);
        let first = hash as usize & self.places.len().wrapping_sub(1) & !(WAYS - 1);
        let row = self.places.get_mut(first..first + WAYS);
        (row.unwrap_or_default(), (hash >> 32) as u32 | 1)
    }
}
