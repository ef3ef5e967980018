// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Places that are pinned while they are read or written. The lists of them are made beforehand, so that neither needs
//! memory when it begins.

use super::super::super::mask::PageMask;
use super::{Chain, OutOfMemory, Piece, Table, TryVec, SLOT_PAGES};

/// What a list of pieces is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum For {
    /// A read, of which there are never more than were prepared for ([`super::super::pool`]).
    Read,
    /// A write; more of them than were prepared for make lists of their own.
    Write,
}

/// Lists that are empty and in no use.
pub(super) struct Lists {
    reads: Spare,
    writes: Spare,
}

struct Spare {
    lists: TryVec<TryVec<Piece>>,
    /// So many there are at most, and there is room for.
    most: usize,
}

impl Spare {
    const NONE: Self = Self {
        lists: TryVec::new(),
        most: 0,
    };

    fn new(most: usize) -> Result<Self, OutOfMemory> {
        let mut lists = TryVec::with_capacity(most)?;
        for _ in 0..most {
            // No va_block has more pieces than pages.
            lists.push(TryVec::with_capacity(SLOT_PAGES.into())?)?;
        }
        Ok(Self { lists, most })
    }
}

impl Lists {
    pub(super) const NONE: Self = Self {
        reads: Spare::NONE,
        writes: Spare::NONE,
    };

    fn of(&mut self, whom: For) -> &mut Spare {
        match whom {
            For::Read => &mut self.reads,
            For::Write => &mut self.writes,
        }
    }
}

impl Table {
    /// Makes lists for so many reads and writes at a time.
    ///
    /// # Errors
    ///
    /// There is no memory for them.
    pub fn prepare(&mut self, reads: usize, writes: usize) -> Result<(), OutOfMemory> {
        self.lists = Lists {
            reads: Spare::new(reads)?,
            writes: Spare::new(writes)?,
        };
        Ok(())
    }

    /// An empty list, with room for all pieces if one is left.
    fn take_list(&mut self, whom: For) -> TryVec<Piece> {
        const EMPTY: TryVec<Piece> = TryVec::new();
        self.lists.of(whom).lists.pop().unwrap_or(EMPTY)
    }

    /// A list is not needed any more.
    pub(in super::super) fn keep_list(&mut self, whom: For, mut list: TryVec<Piece>) {
        let spare = self.lists.of(whom);
        // One that was made without memory for all pieces would take the place of one that was prepared.
        if spare.lists.len() < spare.most && list.capacity() >= SLOT_PAGES.into() {
            list.clear();
            // There is room for it.
            let _ = spare.lists.push(list);
        }
    }

    /// Where those of `pages` are that `chain` has, in no particular order. Until
    /// [`Table::unpin`] none of them is moved from there by relocation, unless a move has begun
    /// before, and none of the places is handed out again.
    pub(in super::super) fn pin(
        &mut self,
        chain: &Chain,
        pages: &PageMask,
        whom: For,
    ) -> Result<TryVec<Piece>, OutOfMemory> {
        let mut pieces = self.take_list(whom);
        let mut i = chain.0;
        while let Some(&e) = self.extents.get(i as usize) {
            i = e.next;
            for run in (PageMask::from(e.region()) & *pages).runs() {
                let part = e.part(run);
                let piece = Piece {
                    pages: run,
                    place: part.place(),
                    stamp: part.stamp,
                };
                if pieces.push(piece).is_err() {
                    self.unpin(pieces, whom);
                    return Err(OutOfMemory);
                }
                if let Some(s) = self.slots.get_mut(e.slot as usize) {
                    s.pins += 1;
                    self.pins += 1;
                }
            }
        }
        Ok(pieces)
    }

    /// Ends what [`Table::pin`] began.
    pub(in super::super) fn unpin(&mut self, pieces: TryVec<Piece>, whom: For) {
        self.let_places_go(&pieces);
        self.keep_list(whom, pieces);
    }

    /// Lets relocation have the places, and hands them out again.
    pub(in super::super) fn let_places_go(&mut self, pieces: &[Piece]) {
        for piece in pieces {
            self.unpin_slot(piece.place.slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::*;
    use std::vec::Vec;

    #[test]
    fn reads_and_writes_have_lists_of_their_own_and_give_them_back() {
        let config = Config {
            slots: 4,
            checksums: false,
            quota: u64::MAX,
        };
        let mut t = Table::new(config).unwrap();
        t.prepare(2, 1).unwrap();
        let left = |t: &Table| (t.lists.reads.lists.len(), t.lists.writes.lists.len());
        let (all, tenant) = (PageMask::FULL, t.tenant(1).unwrap());
        let write = t.reserve(tenant, &all).unwrap();
        assert_eq!((left(&t), write.pieces().len()), ((2, 0), 1));
        let chain = t.commit(write, &all);
        assert_eq!(left(&t), (2, 1));
        // The third finds none, and makes one. It comes back first, and is not kept: it has room for too few.
        let mut reads: Vec<_> = (0..3)
            .map(|_| t.pin(&chain, &all, For::Read).unwrap())
            .collect();
        assert_eq!(left(&t), (0, 1));
        reads.rotate_right(1);
        for read in reads {
            assert_eq!(read.len(), 1);
            t.unpin(read, For::Read);
        }
        assert_eq!(left(&t), (2, 1));
        let is_whole = |list: &TryVec<Piece>| list.is_empty() && list.capacity() >= 512;
        assert!(t.lists.reads.lists.iter().all(is_whole));
        t.release(chain);
        assert!(!t.is_busy());
    }
}
