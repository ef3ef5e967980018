// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The discard of an address range by an upstream that discards by itself (from 580 on): range by range.
//!
//! What [`walk`](super::discard) does to each va_block upstream does here. The invariants are those of the walk, as far
//! as they are about ranges: D-lock, D-all, and D-rest between two ranges, as one may be one of a million.

use super::walk::{Counts, Failure, Kind, Span, BLOCK_BYTES};

/// The outcome of the discard of one range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Discarded {
    /// The last address that the discard has covered.
    pub last: u64,
    /// Whether it was discarded; nothing is where CPU and GPU share their memory.
    pub done: bool,
}

/// A VA space of such an upstream.
pub trait Machine {
    /// The error of upstream's functions.
    type Error: Copy;

    /// Takes the locks of the VA space, in read mode.
    fn enter(&mut self);

    /// Releases the locks of [`Machine::enter`].
    fn leave(&mut self);

    /// Whether a GPU is registered in the VA space that cannot fault.
    fn has_non_faultable(&mut self) -> bool;

    /// What kind of memory these addresses are.
    fn kind(&mut self, span: Span) -> Kind;

    /// Makes upstream's context, for all ranges of the call.
    fn open(&mut self) -> Result<(), Self::Error>;

    /// Frees what [`Machine::open`] made. Called once, and only if that succeeded.
    fn close(&mut self);

    /// Lets other threads run. Returns whether this thread is being killed.
    fn rest(&mut self) -> bool;

    /// Discards the part from `at` to `last` of the range that holds `at`.
    fn discard(&mut self, at: u64, last: u64) -> Result<Discarded, Self::Error>;
}

/// Discards `length` bytes from `base`, and adds the outcomes of the blocks to `counts`.
///
/// # Errors
///
/// D-all: what was discarded before stays so, and is in `counts`.
pub fn discard<M: Machine>(
    machine: &mut M,
    base: u64,
    length: u64,
    counts: &mut Counts,
) -> Result<(), Failure<M::Error>> {
    let span = Span::of_pages(base, length).ok_or(Failure::NotPages)?;
    machine.enter();
    let result = entered(machine, span, counts);
    machine.leave();
    result
}

/// As [`discard`], with the locks of the VA space.
fn entered<M: Machine>(
    machine: &mut M,
    span: Span,
    counts: &mut Counts,
) -> Result<(), Failure<M::Error>> {
    // 580 checks it, 595 does not.
    if machine.has_non_faultable() {
        return Err(Failure::CannotFault);
    }
    match machine.kind(span) {
        Kind::Managed => {}
        Kind::Ordinary => return Err(Failure::Ordinary),
        Kind::Unknown => return Err(Failure::Unknown),
    }
    machine.open().map_err(Failure::Machine)?;
    let result = ranges(machine, span, counts);
    machine.close();
    result
}

/// The ranges that `span` lies in.
fn ranges<M: Machine>(
    machine: &mut M,
    span: Span,
    counts: &mut Counts,
) -> Result<(), Failure<M::Error>> {
    let mut at = span.first;
    loop {
        if machine.rest() {
            return Err(Failure::Killed);
        }
        let range = machine.discard(at, span.last).map_err(Failure::Machine)?;
        let last = range.last.clamp(at, span.last);
        // Upstream keeps its state by page of 4 KiB, so no part is left alone.
        let blocks = last / BLOCK_BYTES - at / BLOCK_BYTES + 1;
        if range.done {
            counts.discarded += blocks;
        } else {
            counts.skipped += blocks;
        }
        if last == span.last {
            return Ok(());
        }
        at = last + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    const LENGTH: u64 = 0x1000;

    /// A VA space of ranges of a page each, from address 0x1000 on.
    #[derive(Default)]
    struct Space {
        did: Vec<&'static str>,
        discarded: Vec<u64>,
        ranges: u64,
        dies_after: Option<usize>,
        fails_at: Option<usize>,
        no_memory: bool,
        cannot_fault: bool,
        shared: bool,
        kind: Option<Kind>,
    }

    impl Machine for Space {
        type Error = u32;

        fn enter(&mut self) {
            self.did.push("enter");
        }

        fn leave(&mut self) {
            self.did.push("leave");
        }

        fn has_non_faultable(&mut self) -> bool {
            self.cannot_fault
        }

        fn kind(&mut self, span: Span) -> Kind {
            assert_eq!(span.last, (self.ranges + 1) * LENGTH - 1);
            self.kind.unwrap_or(Kind::Managed)
        }

        fn open(&mut self) -> Result<(), u32> {
            if self.no_memory {
                return Err(2);
            }
            self.did.push("open");
            Ok(())
        }

        fn close(&mut self) {
            self.did.push("close");
        }

        fn rest(&mut self) -> bool {
            self.did.push("rest");
            self.dies_after.is_some_and(|n| self.discarded.len() >= n)
        }

        fn discard(&mut self, at: u64, last: u64) -> Result<Discarded, u32> {
            assert_eq!(
                self.did.last(),
                Some(&"rest"),
                "others run before each range"
            );
            self.did.push("discard");
            if self.fails_at == Some(self.discarded.len()) {
                return Err(3);
            }
            self.discarded.push(at);
            Ok(Discarded {
                last: (at + LENGTH - 1).min(last),
                done: !self.shared,
            })
        }
    }

    fn run(space: &mut Space) -> (Result<(), Failure<u32>>, Counts) {
        space.ranges = 3000;
        let mut counts = Counts::default();
        let result = discard(space, LENGTH, 3000 * LENGTH, &mut counts);
        let count = |what| space.did.iter().filter(|did| **did == what).count();
        assert_eq!(count("enter"), count("leave"));
        assert_eq!(count("open"), count("close"));
        (result, counts)
    }

    #[test]
    fn many_small_ranges_are_discarded_in_order() {
        let mut space = Space::default();
        let (result, counts) = run(&mut space);
        assert_eq!(
            (result, counts.discarded, counts.skipped),
            (Ok(()), 3000, 0)
        );
        assert!(space
            .discarded
            .iter()
            .copied()
            .eq((1..=3000).map(|n| n * LENGTH)));
        assert_eq!(space.did.last(), Some(&"leave"));
    }

    #[test]
    fn it_ends_when_the_thread_is_to_die_and_at_a_range_that_fails() {
        let mut space = Space {
            dies_after: Some(10),
            ..Space::default()
        };
        let (result, counts) = run(&mut space);
        assert_eq!((result, counts.discarded), (Err(Failure::Killed), 10));
        let mut space = Space {
            fails_at: Some(4),
            ..Space::default()
        };
        let (result, counts) = run(&mut space);
        assert_eq!((result, counts.discarded), (Err(Failure::Machine(3)), 4));
    }

    #[test]
    fn memory_that_is_shared_is_skipped() {
        let mut space = Space {
            shared: true,
            ..Space::default()
        };
        let (result, counts) = run(&mut space);
        assert_eq!(
            (result, counts.discarded, counts.skipped),
            (Ok(()), 0, 3000)
        );
    }

    #[test]
    fn what_is_not_to_be_discarded_is_refused() {
        let refused = |mut space: Space| {
            let (result, counts) = run(&mut space);
            assert!(space.discarded.is_empty());
            assert_eq!(counts, Counts::default());
            result
        };
        let space = Space {
            cannot_fault: true,
            ..Space::default()
        };
        assert_eq!(refused(space), Err(Failure::CannotFault));
        let space = Space {
            kind: Some(Kind::Ordinary),
            ..Space::default()
        };
        assert_eq!(refused(space), Err(Failure::Ordinary));
        let space = Space {
            kind: Some(Kind::Unknown),
            ..Space::default()
        };
        assert_eq!(refused(space), Err(Failure::Unknown));
        let space = Space {
            no_memory: true,
            ..Space::default()
        };
        assert_eq!(refused(space), Err(Failure::Machine(2)));
        let mut counts = Counts::default();
        let result = discard(&mut Space::default(), LENGTH, 1, &mut counts);
        assert_eq!(result, Err(Failure::NotPages));
    }
}
