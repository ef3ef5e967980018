// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Chunks that a prediction brought, and which of them go before their kernel comes: prefetches in vain.

use super::{Asked, Chunk, Owner, RootChunks};

impl RootChunks {
    /// Notes that `owner` has brought `chunk` on a prediction, for the kernel up to which it has just marked the chunk
    /// ([`RootChunks::expect`]): no kernel has asked for it yet.
    pub fn brought(&mut self, chunk: Chunk, owner: Owner) {
        let present = self.present_of(owner);
        let present = present.map(|p| (p.begun.wrapping_sub(1), p.holder));
        if let Ok(root) = self.root_mut(chunk) {
            if let Some((kernel, _)) = present {
                root.asked = Asked { owner, kernel };
            }
            if root.mark.owner == owner {
                root.brought = root.mark;
            }
        }
        if let Some((_, holder)) = present {
            self.policy.brings(holder, true);
        }
    }

    /// Whether a prediction brought `chunk` for a kernel that has not begun, as far as the prefetcher has learnt, and
    /// nobody has asked for the chunk since. An eviction of it wastes the prefetch.
    #[inline(always)]
    pub fn is_early(&self, chunk: Chunk) -> bool {
        let brought = self.root(chunk).map(|root| root.brought);
        let left = brought.and_then(|mark| self.left(mark.owner, mark.until));
        left.is_some_and(|kernels| kernels > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Holder, Queue};
    use super::*;

    const HOLDER: Holder = 5;

    /// A chunk that was brought for kernel 3, while kernel 1 runs.
    fn one() -> (RootChunks, Owner) {
        let mut roots = RootChunks::new(1).unwrap();
        let owner = roots.add_owner(HOLDER);
        roots.set_now(owner, 1);
        roots.used_by(0, HOLDER).unwrap();
        roots.expect(0, owner, 3);
        assert!(!roots.is_early(0), "it was there");
        roots.brought(0, owner);
        roots.insert(0, HOLDER).unwrap();
        assert!(roots.is_early(0) && !roots.is_early(1));
        (roots, owner)
    }

    #[test]
    fn a_chunk_is_early_until_its_kernel_begins() {
        let (mut roots, owner) = one();
        roots.set_now(owner, 2);
        assert!(roots.is_early(0));
        roots.set_now(owner, 3);
        assert!(!roots.is_early(0));
        // It has served its kernel, and a later one expects it.
        roots.expect(0, owner, 9);
        assert_eq!(roots.needed_in(0), Some(6));
        assert!(!roots.is_early(0));
    }

    #[test]
    fn a_chunk_that_somebody_asks_for_is_early_no_more() {
        let (mut roots, _) = one();
        roots.used_by(0, HOLDER).unwrap();
        assert!(!roots.is_early(0));
        let (mut roots, _) = one();
        roots.begin_eviction(0);
        assert!(roots.is_early(0), "it is not gone yet");
        roots.evicted(0).unwrap();
        assert!(!roots.is_early(0));
        let (mut roots, owner) = one();
        roots.remove_owner(owner);
        assert!(!roots.is_early(0), "nobody waits for it");
        let (mut roots, _) = one();
        roots.set(0, Queue::Unused).unwrap();
        roots.insert(0, HOLDER + 1).unwrap();
        assert!(!roots.is_early(0), "another has it");
    }

    /// A mark of another owner says nothing of whom the chunk was brought for.
    #[test]
    fn a_chunk_is_brought_for_who_marked_it() {
        let mut roots = RootChunks::new(1).unwrap();
        let [owner, other] = [HOLDER, HOLDER + 1].map(|holder| roots.add_owner(holder));
        roots.expect(0, other, 7);
        roots.brought(0, owner);
        assert!(!roots.is_early(0));
    }
}
