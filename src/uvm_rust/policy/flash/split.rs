// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What is done for the SSD tier before and after upstream splits a va_block in two.
//!
//! The caller holds the lock of the VA space in write mode from before the one to behind the other, so
//! that nobody reads, spills or brings back what the block has on a device. What comes between is an
//! eviction, which takes a block's lock only: it may be the first to find the upper half.
//!
//! # Invariants
//!
//! - **X-lock**: what needs the lock of a half is only asked with it, and no two are locked.
//! - **X-whole**: a split that upstream has made cannot fail here: all that it takes was made before it.
//! - **X-once**: the tier knows of each half once, and of the upper one with its state.

use super::spill::{give_up_copies, Copies};
use crate::mem::OutOfMemory;

/// A half of a va_block; the lower one is the whole before the split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Half {
    /// The one that keeps what is known of the block.
    Lower,
    /// The half that the split makes.
    Upper,
}

/// What a split works on.
pub trait Machine: Copies {
    /// Takes the lock of a half.
    fn lock(&mut self, half: Half);

    /// Lets the lock of a half go.
    fn unlock(&mut self, half: Half);

    // With the lock of the half.

    /// Whether the lower half has a state on a device.
    fn is_used(&mut self) -> bool;

    /// Makes what the upper half's state needs, and prepares that of the lower one: what is written of it
    /// comes to nothing. False without memory or room; then only the write has ended.
    fn cut(&mut self) -> bool;

    /// Moves the state of the upper pages out of that of the lower half, as `cut` has prepared it.
    fn share(&mut self);

    /// Whether `cut` has made something for the upper half.
    fn has_cut(&mut self) -> bool;

    /// Takes back what `cut` has made.
    fn undo(&mut self);

    /// Forgets what the tier knows of the upper half, if it knows anything.
    fn forget_upper(&mut self);

    /// The tier knows of the upper half from now on, with the state that `share` has moved.
    fn publish_upper(&mut self);

    /// Counts the host memory of a half. `used`: some has just come there.
    fn count(&mut self, half: Half, used: bool);
}

/// Before upstream splits the block.
///
/// # Errors
///
/// There is no memory; the block is as it was.
pub fn before<M: Machine>(m: &mut M) -> Result<(), OutOfMemory> {
    loop {
        m.lock(Half::Lower);
        let is_ready = !m.is_used() || m.cut();
        m.unlock(Half::Lower);
        if is_ready {
            return Ok(());
        }
        // Without an extent, those that copies have will do.
        if !give_up_copies(m, false) {
            return Err(OutOfMemory);
        }
    }
}

/// After upstream has split the block (`is_split`), or has failed to.
pub fn after<M: Machine>(m: &mut M, is_split: bool) {
    let has_cut = m.has_cut();
    if !is_split {
        if has_cut {
            m.undo();
        }
        return;
    }
    m.lock(Half::Lower);
    if has_cut {
        m.share();
    }
    m.count(Half::Lower, false);
    m.unlock(Half::Lower);

    m.lock(Half::Upper);
    if has_cut {
        // X-once: an eviction may have been first to find it, whose memory was noted. What that has made has
        // no state yet, as that takes the VA space's lock.
        m.forget_upper();
        m.publish_upper();
    }
    m.count(Half::Upper, true);
    m.unlock(Half::Upper);
}
