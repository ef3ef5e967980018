// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What a split of a va_block in two does, step by step.
//!
//! The caller holds the lock of the VA space in write mode, so only an eviction may come between the steps, and what
//! [`BlockState::upper`](super::BlockState::upper) says of that holds. Upstream destroys a range whose split fails,
//! with all that it holds: what a split takes is made before it, and nothing after it can fail.

/// A half of a va_block. Before the split, the lower half is the whole block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Half {
    /// The half that keeps the block's state.
    Lower,
    /// The half that upstream makes anew.
    Upper,
}

/// What a split works on.
pub trait Machine {
    /// Why a step failed, in the caller's terms.
    type Error;

    /// There is no memory.
    const NO_MEMORY: Self::Error;

    /// Prepares the SSD tier.
    fn before(&mut self) -> Result<(), Self::Error>;

    /// Takes the lock of a half.
    fn lock(&mut self, half: Half);

    /// Releases the lock of a half.
    fn unlock(&mut self, half: Half);

    /// Copies the upper half's part of the discard state; the lower half is locked. False without memory.
    fn copy(&mut self) -> bool;

    /// Has upstream split its own state of the block.
    fn split(&mut self) -> Result<(), Self::Error>;

    /// Tells the SSD tier whether the block was split.
    fn after(&mut self, is_split: bool);

    /// Takes the upper half out of the discard state of the lower half, which is locked.
    fn truncate(&mut self);

    /// Gives the state that `copy` made to the upper half, which is locked.
    fn keep(&mut self);
}

/// Splits a va_block. If that fails, nothing has changed, except that the copy of [`Machine::copy`] exists.
///
/// # Errors
///
/// There is no memory, or upstream's split failed.
pub fn split<M: Machine>(m: &mut M) -> Result<(), M::Error> {
    m.before()?;
    m.lock(Half::Lower);
    let is_copied = m.copy();
    m.unlock(Half::Lower);
    let is_split = if is_copied {
        m.split()
    } else {
        Err(M::NO_MEMORY)
    };
    m.after(is_split.is_ok());
    is_split?;
    m.lock(Half::Lower);
    m.truncate();
    m.unlock(Half::Lower);
    m.lock(Half::Upper);
    m.keep();
    m.unlock(Half::Upper);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[derive(Default)]
    struct Block {
        fails: &'static str,
        did: Vec<&'static str>,
    }

    impl Block {
        fn does(&mut self, what: &'static str) -> Result<(), &'static str> {
            self.did.push(what);
            if what == self.fails {
                Err(what)
            } else {
                Ok(())
            }
        }
    }

    impl Machine for Block {
        type Error = &'static str;

        const NO_MEMORY: &'static str = "no memory";

        fn before(&mut self) -> Result<(), &'static str> {
            self.does("before")
        }

        fn lock(&mut self, half: Half) {
            self.did.push(["lock", "lock upper"][half as usize]);
        }

        fn unlock(&mut self, half: Half) {
            self.did.push(["unlock", "unlock upper"][half as usize]);
        }

        fn copy(&mut self) -> bool {
            self.does("copy").is_ok()
        }

        fn split(&mut self) -> Result<(), &'static str> {
            self.does("split")
        }

        fn after(&mut self, is_split: bool) {
            self.did.push(if is_split { "after" } else { "undo" });
        }

        fn truncate(&mut self) {
            self.did.push("truncate");
        }

        fn keep(&mut self) {
            self.did.push("keep");
        }
    }

    /// What a split does of which `fails` fails.
    fn did(fails: &'static str) -> (Result<(), &'static str>, std::string::String) {
        let mut block = Block {
            fails,
            ..Block::default()
        };
        (split(&mut block), block.did.join(", "))
    }

    #[test]
    fn nothing_can_fail_once_upstream_has_split() {
        let done = "before, lock, copy, unlock, split, after, lock, truncate, unlock, lock upper, keep, unlock upper";
        assert_eq!(did(""), (Ok(()), done.into()));
    }

    #[test]
    fn a_split_that_fails_leaves_the_block_as_it_was() {
        assert_eq!(did("before"), (Err("before"), "before".into()));
        let no_copy = "before, lock, copy, unlock, undo";
        assert_eq!(did("copy"), (Err("no memory"), no_copy.into()));
        let no_split = "before, lock, copy, unlock, split, undo";
        assert_eq!(did("split"), (Err("split"), no_split.into()));
    }
}
