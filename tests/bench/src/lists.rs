// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Eviction queues as upstream has them, doubly linked lists through the chunks, in C.

use std::ffi::c_void;
use std::ptr::NonNull;

/// Of chunks that a block holds, with nothing resident.
pub const UNUSED: u32 = 2;
/// The list of the chunks that hold data.
pub const USED: u32 = 3;

extern "C" {
    fn lists_new(chunks: u32) -> *mut c_void;
    fn lists_free(lists: *mut c_void);
    fn lists_move_tail(lists: *mut c_void, chunk: u32, list: u32);
    fn lists_take(lists: *mut c_void, chunk: u32);
    fn lists_take_first(lists: *mut c_void) -> u32;
}

/// The lists of one GPU.
#[derive(Debug)]
pub struct Lists {
    lists: NonNull<c_void>,
    chunks: u32,
}

impl Lists {
    /// All chunks are on neither list.
    #[allow(clippy::expect_used)]
    pub fn new(chunks: u32) -> Self {
        // SAFETY: no requirements; null if there is no memory.
        let lists = unsafe { lists_new(chunks) };
        Self {
            lists: NonNull::new(lists).expect("memory for the lists"),
            chunks,
        }
    }

    /// To the end of `list`, from wherever it is.
    pub fn move_tail(&mut self, chunk: u32, list: u32) {
        debug_assert!(chunk < self.chunks && list <= USED);
        // SAFETY: made by lists_new() and not freed; both numbers are in range, by the
        // callers in this crate, which take chunks modulo their count.
        unsafe { lists_move_tail(self.lists.as_ptr(), chunk, list) }
    }

    /// Off its list, if it is on one.
    pub fn take(&mut self, chunk: u32) {
        debug_assert!(chunk < self.chunks);
        // SAFETY: made by lists_new() and not freed; the number is in range, by the callers in this crate.
        unsafe { lists_take(self.lists.as_ptr(), chunk) }
    }

    /// The first free chunk, else the first unused one, else the first used one, off its list.
    pub fn take_first(&mut self) -> u32 {
        // SAFETY: made by lists_new() and not freed.
        unsafe { lists_take_first(self.lists.as_ptr()) }
    }
}

impl Drop for Lists {
    fn drop(&mut self) {
        // SAFETY: made by lists_new(), and not used again.
        unsafe { lists_free(self.lists.as_ptr()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unused_go_before_used_each_in_their_order() {
        let mut lists = Lists::new(4);
        for chunk in [2, 0, 1] {
            lists.move_tail(chunk, USED);
        }
        lists.move_tail(3, UNUSED);
        lists.move_tail(2, USED);
        assert_eq!([(); 4].map(|()| lists.take_first()), [3, 0, 1, 2]);
        assert_eq!(lists.take_first(), u32::MAX);
        lists.move_tail(1, USED);
        lists.move_tail(2, USED);
        lists.take(1);
        assert_eq!([(); 2].map(|()| lists.take_first()), [2, u32::MAX]);
    }
}
