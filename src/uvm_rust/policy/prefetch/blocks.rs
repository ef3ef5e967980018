// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The UM block correlation table of one kernel (DeepUM §4.2, figure 7).
//!
//! `NumRows` rows of `Assoc` ways; each way holds a block and its `NumSuccs`
//! successors. Ways of a row and successors of a way are in most-recently-used
//! order. A block belongs to row (block number mod rows).
//!
//! A table begins small and gets more rows, up to `NumRows`, when a row overflows:
//! it holds what the paper's table would hold, at a fraction of the memory, as most
//! kernels touch few blocks. Growing takes time in proportion to the table, all other
//! changes to a row.

use super::UmBlock;
use crate::mem::{OutOfMemory, ProcessVec};

/// "No block", in tags and successors.
const NONE: u32 = u32::MAX;
/// Rows of a table that was just made.
const FIRST_ROWS: u32 = 8;
/// Words of a way before its successors: tag and stamp.
const HEAD: usize = 2;

/// The dimensions of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Rows, at most; a power of two.
    pub rows: u32,
    /// Ways in a row (`Assoc`).
    pub assoc: u32,
    /// Successors in a way (`NumSuccs`).
    pub succs: u32,
}

impl Shape {
    /// Configuration 9 of table 6, the paper's best.
    pub const DEEPUM: Self = Self {
        rows: 2048,
        assoc: 2,
        succs: 4,
    };

    /// Each dimension forced into what a table can have: 1 to 65536 rows, rounded
    /// up to a power of two, 1 to 16 ways, 1 to 16 successors.
    pub fn clamped(self) -> Self {
        Self {
            rows: self.rows.clamp(1, 1 << 16).next_power_of_two(),
            assoc: self.assoc.clamp(1, 16),
            succs: self.succs.clamp(1, 16),
        }
    }

    /// Bytes of a table with all its rows.
    pub fn bytes(self) -> usize {
        self.bytes_of(self.rows)
    }

    fn bytes_of(self, rows: u32) -> usize {
        rows as usize * self.assoc as usize * self.stride() * size_of::<u32>()
    }

    fn stride(self) -> usize {
        HEAD + self.succs as usize
    }
}

/// The table. Empty, it holds no memory.
#[derive(Default)]
pub struct BlockTable {
    /// `rows * assoc` ways of `stride` words: tag, stamp of the last walk that met
    /// the block, successors. A way whose tag is [`NONE`] is empty, and so are
    /// those behind it in its row.
    words: ProcessVec<u32>,
    rows: u32,
    used: u32,
    start: Option<UmBlock>,
    end: Option<UmBlock>,
}

impl BlockTable {
    /// The block that faults first in an execution of the kernel.
    pub fn start(&self) -> Option<UmBlock> {
        self.start
    }

    /// The block that faults last.
    pub fn end(&self) -> Option<UmBlock> {
        self.end
    }

    /// Sets the first block.
    pub fn set_start(&mut self, block: UmBlock) {
        self.start = Some(block);
    }

    /// Sets the last block.
    pub fn set_end(&mut self, block: UmBlock) {
        self.end = Some(block);
    }

    /// Blocks in the table.
    pub fn len(&self) -> u32 {
        self.used
    }

    /// Bytes of memory held.
    pub fn bytes(&self) -> usize {
        self.words.len() * size_of::<u32>()
    }

    /// Bytes that the next insertion of `block` adds to [`BlockTable::bytes`] if the
    /// table may grow. While it grows it holds its old memory too.
    pub fn growth(&self, block: UmBlock, shape: Shape) -> usize {
        shape.bytes_of(self.rows_for(block, shape)) - self.bytes()
    }

    /// Whether `block` is in the table.
    pub fn contains(&self, block: UmBlock, shape: Shape) -> bool {
        self.find(block, shape).is_some()
    }

    /// Makes `block` the most recently used of its row, adding it if need be, in
    /// place of the least recently used one where the row is full and the table may
    /// not or cannot grow. Fails only if the table had no memory yet.
    pub fn insert(
        &mut self,
        block: UmBlock,
        shape: Shape,
        may_grow: bool,
    ) -> Result<(), OutOfMemory> {
        let rows = self.rows_for(block, shape);
        if may_grow && rows != self.rows {
            let grown = self.grow(rows, shape);
            if self.rows == 0 {
                grown?;
            }
        } else if self.rows == 0 {
            return Err(OutOfMemory);
        }
        self.insert_in_row(block, shape);
        Ok(())
    }

    /// Records that `next` faulted right after `prev`. Does nothing if `prev` is not
    /// in the table.
    pub fn learn(&mut self, prev: UmBlock, next: UmBlock, shape: Shape) {
        let Some(at) = self.find(prev, shape) else {
            return;
        };
        if let Some(succs) = self.words.get_mut(at + HEAD..at + shape.stride()) {
            let old = succs
                .iter()
                .position(|&s| s == next.0)
                .unwrap_or(succs.len() - 1);
            succs[old] = next.0;
            succs[..=old].rotate_right(1);
        }
    }

    /// Marks `block` as met by the walk `stamp`. Returns false if it was already, or
    /// is not in the table.
    pub fn meet(&mut self, block: UmBlock, stamp: u32, shape: Shape) -> bool {
        let Some(at) = self.find(block, shape) else {
            return false;
        };
        self.words
            .get_mut(at + 1)
            .is_some_and(|s| core::mem::replace(s, stamp) != stamp)
    }

    /// The successors of `block`, most recently used first.
    pub fn successors(&self, block: UmBlock, shape: Shape) -> impl Iterator<Item = UmBlock> + '_ {
        let at = self.find(block, shape);
        let succs = at.and_then(|at| self.words.get(at + HEAD..at + shape.stride()));
        succs
            .unwrap_or(&[])
            .iter()
            .take_while(|&&s| s != NONE)
            .map(|&s| UmBlock(s))
    }

    /// Removes the blocks for which `gone` holds, wherever they are named. Takes
    /// time in proportion to the size of the table.
    pub fn forget(&mut self, shape: Shape, gone: impl Fn(UmBlock) -> bool) {
        let gone = |w: u32| w != NONE && gone(UmBlock(w));
        self.start = self.start.filter(|b| !gone(b.0));
        self.end = self.end.filter(|b| !gone(b.0));
        let stride = shape.stride();
        for row in self.words.chunks_exact_mut(shape.assoc as usize * stride) {
            for way in row.chunks_exact_mut(stride) {
                compact(&mut way[HEAD..], 1, |s| gone(s[0]));
            }
            let removed = compact(row, stride, |way| gone(way[0]));
            self.used -= removed as u32;
        }
        if self.used == 0 {
            *self = Self::default();
        }
        // Where the first or the last block went, any other will do.
        let any = self
            .words
            .chunks_exact(stride)
            .find(|w| w[0] != NONE)
            .map(|w| UmBlock(w[0]));
        self.start = self.start.or(any);
        self.end = self.end.or(any);
    }

    fn row_of(&self, block: UmBlock, shape: Shape) -> core::ops::Range<usize> {
        let len = shape.assoc as usize * shape.stride();
        // `rows` is a power of two, or 0 in a table without memory.
        let row = (block.0 & self.rows.wrapping_sub(1)) as usize;
        row * len..(row + 1) * len
    }

    /// Where the way of `block` begins in `words`.
    fn find(&self, block: UmBlock, shape: Shape) -> Option<usize> {
        self.way_with(block.0, block, shape)
    }

    /// Where the first empty way of the row of `block` begins.
    fn room_in_row(&self, block: UmBlock, shape: Shape) -> Option<usize> {
        self.way_with(NONE, block, shape)
    }

    fn way_with(&self, tag: u32, block: UmBlock, shape: Shape) -> Option<usize> {
        let range = self.row_of(block, shape);
        let row = self.words.get(range.clone())?;
        let way = row.chunks_exact(shape.stride()).position(|w| w[0] == tag)?;
        Some(range.start + way * shape.stride())
    }

    fn insert_in_row(&mut self, block: UmBlock, shape: Shape) {
        let stride = shape.stride();
        let range = self.row_of(block, shape);
        let Some(row) = self.words.get_mut(range) else {
            return;
        };
        let way = |tag: u32| row.chunks_exact(stride).position(|w| w[0] == tag);
        let found = way(block.0);
        let at = found.or(way(NONE)).unwrap_or(shape.assoc as usize - 1);
        if found.is_none() {
            let way = &mut row[at * stride..(at + 1) * stride];
            self.used += u32::from(way[0] == NONE);
            way.fill(NONE);
            way[0] = block.0;
            way[1] = 0;
        }
        row[..(at + 1) * stride].rotate_right(stride);
    }

    /// How many rows the table needs to take `block` without losing another; as
    /// many as it has, if it needs no more or no number of rows would do.
    fn rows_for(&self, block: UmBlock, shape: Shape) -> u32 {
        if self.rows == 0 {
            return FIRST_ROWS.min(shape.rows);
        }
        if self.find(block, shape).is_some() || self.room_in_row(block, shape).is_some() {
            return self.rows;
        }
        let row = self.words.get(self.row_of(block, shape)).unwrap_or(&[]);
        let mut rows = self.rows;
        while rows < shape.rows {
            rows *= 2;
            let stays = |w: &&[u32]| (w[0] ^ block.0) & (rows - 1) == 0;
            if row.chunks_exact(shape.stride()).filter(stays).count() < shape.assoc as usize {
                return rows;
            }
        }
        self.rows
    }

    /// Makes it `rows` rows. Each row falls apart into several, so nothing is lost.
    fn grow(&mut self, rows: u32, shape: Shape) -> Result<(), OutOfMemory> {
        let mut bigger = Self {
            words: ProcessVec::filled(shape.bytes_of(rows) / size_of::<u32>(), NONE)?,
            rows,
            used: 0,
            start: self.start,
            end: self.end,
        };
        // Backwards, so that the most recently used is inserted last.
        for way in self.words.chunks_exact(shape.stride()).rev() {
            if way[0] != NONE {
                let block = UmBlock(way[0]);
                bigger.insert_in_row(block, shape);
                if let Some(at) = bigger.find(block, shape) {
                    if let Some(to) = bigger.words.get_mut(at..at + shape.stride()) {
                        to.copy_from_slice(way);
                    }
                }
            }
        }
        *self = bigger;
        Ok(())
    }
}

/// Removes the items of `width` words for which `gone` holds, moves the others up
/// in order and fills the rest with [`NONE`]. Returns how many it removed.
fn compact(words: &mut [u32], width: usize, gone: impl Fn(&[u32]) -> bool) -> usize {
    let mut kept = 0;
    let items = words.len() / width;
    for i in 0..items {
        if !gone(&words[i * width..(i + 1) * width]) {
            words.copy_within(i * width..(i + 1) * width, kept * width);
            kept += 1;
        }
    }
    words[kept * width..].fill(NONE);
    items - kept
}

#[cfg(test)]
mod tests;
