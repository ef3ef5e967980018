// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Makes room on the device: copies the extents that are left in the emptiest slots, as ciphertext.
//!
//! An extent that was read is compared with its checksums before it is written. The copy replaces the extent, which
//! may still be right if only the read was wrong.

use super::super::cause::Writer;
use super::super::Move;
use super::{Count, Machine, PAGE_BYTES};

/// How many extents a worker moves after each block, and a call moves when there is no room.
const MOVES: u32 = 16;

/// How often an extent is read: bytes that were changed on the way may be right another time.
const READS: u32 = 2;

/// Gathers free space, [`MOVES`] extents at a time. A suspend waits for one of them at most.
pub(in super::super) fn relocate<M: Machine>(m: &mut M, by: Writer) {
    let reserve = m.workers().saturating_add(1);
    for _ in 0..MOVES {
        let goes_on = match by {
            Writer::Worker => {
                m.enter() && {
                    let moved = moves_one(m, reserve);
                    m.leave();
                    moved
                }
            }
            // A call holds the lock that a worker takes here.
            Writer::Call => moves_one(m, reserve) && !m.suspends(),
        };
        if !goes_on {
            return;
        }
    }
}

/// Moves an extent, if less is free than `reserve` and there is something to gain. Returns whether that was done.
fn moves_one<M: Machine>(m: &mut M, reserve: u32) -> bool {
    let begun = m.table(|table| {
        let low = table.is_low(reserve);
        low.then(|| table.relocate_begin()).flatten()
    });
    let Some(to_move) = begun else {
        return false;
    };
    // The read and the write are one operation for the arbiter, as a read alone achieves nothing.
    if !m.take_turn() {
        m.table(|table| table.relocate_give_up(to_move));
        return false;
    }
    let copied = copy(m, &to_move);
    m.end_turn();
    let pages = m.table(|table| table.relocate_end(to_move, copied));
    m.count(Count::Relocated, u64::from(pages) * PAGE_BYTES);
    copied
}

/// Copies an extent to its new place. Returns whether that succeeded. An extent with wrong checksums is not copied.
fn copy<M: Machine>(m: &mut M, to_move: &Move) -> bool {
    is_right(|| m.copy_in(to_move)) && m.copy_out(to_move)
}

/// Reads until the checksums are right, [`READS`] times at most. An extent that the device does not give is not read
/// again.
fn is_right(mut read: impl FnMut() -> Option<bool>) -> bool {
    (0..READS).find_map(|_| read().map_or(Some(false), |is_right| is_right.then_some(true)))
        == Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_read_once_more_and_what_fails_is_not() {
        for (comes, is, reads) in [
            ([Some(true), None], true, 1),
            ([Some(false), Some(true)], true, 2),
            ([Some(false), Some(false)], false, 2),
            ([Some(false), None], false, 2),
            ([None, Some(true)], false, 1),
        ] {
            let mut left = comes.into_iter();
            assert_eq!(is_right(|| left.next().flatten()), is, "{comes:?}");
            assert_eq!(left.len(), 2 - reads, "{comes:?}");
        }
    }
}
