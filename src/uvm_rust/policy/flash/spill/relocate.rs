// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! How room is made on the device: what is left of the emptiest slots is copied, as ciphertext.
//!
//! What is read is compared with its sums before it is written. The copy takes the place of the bytes that it was made
//! of, and these may still be right where only the read was wrong.

use super::super::cause::Writer;
use super::super::Move;
use super::{Count, Machine, PAGE_BYTES};

/// How many extents a worker moves after each block, and a call where there is no room.
const MOVES: u32 = 16;

/// How often what is to be moved is read: bytes that were changed on the way may be right another time.
const READS: u32 = 2;

/// Gathers free space, some at a time. Whoever suspends waits for one of these at most.
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
            // It has what a worker takes here.
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
    // Both are one operation for the arbiter: who has only read has done nothing yet.
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

/// Copies an extent to its new place; returns whether that succeeded. Bytes that are not those that were written are not
/// copied.
fn copy<M: Machine>(m: &mut M, to_move: &Move) -> bool {
    is_right(|| m.copy_in(to_move)) && m.copy_out(to_move)
}

/// Reads until it is what was written, [`READS`] times at most. What the device does not give is not asked for again.
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
