// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A binary heap whose growth can fail: the largest element comes out first.

use uvm_policy::mem::{OutOfMemory, TryVec};

/// The heap: an element at `i` is no less than those at `2 * i + 1` and `2 * i + 2`.
pub(super) struct Heap<T>(TryVec<T>);

impl<T: Ord> Heap<T> {
    /// An empty heap. Allocates nothing.
    pub fn new() -> Self {
        Self(TryVec::new())
    }

    /// The largest element; `None` if there is no element.
    pub fn peek(&self) -> Option<&T> {
        self.0.first()
    }

    /// Adds `value`; nothing changes without memory for it.
    pub fn push(&mut self, value: T) -> Result<(), OutOfMemory> {
        self.0.push(value)?;
        let mut at = self.0.len() - 1;
        while at > 0 {
            let up = (at - 1) / 2;
            if self.0[at] <= self.0[up] {
                break;
            }
            self.0.swap(at, up);
            at = up;
        }
        Ok(())
    }

    /// Takes the largest element out.
    pub fn pop(&mut self) -> Option<T> {
        let top = self.0.swap_remove(0)?;
        let mut at = 0;
        loop {
            let left = 2 * at + 1;
            let Some(mut child) = self.0.get(left) else {
                break;
            };
            let mut down = left;
            if let Some(right) = self.0.get(left + 1) {
                if right > child {
                    child = right;
                    down = left + 1;
                }
            }
            if *child <= self.0[at] {
                break;
            }
            self.0.swap(at, down);
            at = down;
        }
        Some(top)
    }

    /// Drops all elements and keeps the memory.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}
