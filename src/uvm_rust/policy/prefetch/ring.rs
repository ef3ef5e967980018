// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A queue of fixed capacity.

use crate::mem::{OutOfMemory, ProcessVec};

/// First in, first out; never grows.
pub struct Ring<T> {
    items: ProcessVec<T>,
    head: usize,
    len: usize,
}

impl<T: Copy + Default> Ring<T> {
    /// An empty ring for `capacity` items.
    pub fn new(capacity: usize) -> Result<Self, OutOfMemory> {
        Ok(Self {
            items: ProcessVec::filled(capacity, T::default())?,
            head: 0,
            len: 0,
        })
    }

    /// Items in the ring.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Bytes of memory held.
    pub fn bytes(&self) -> usize {
        self.items.len() * size_of::<T>()
    }

    /// Appends an item; returns false, and does nothing, if the ring is full.
    pub fn push(&mut self, item: T) -> bool {
        let at = self.index(self.len);
        let fits = self.len < self.items.len();
        if let (true, Some(place)) = (fits, self.items.get_mut(at)) {
            *place = item;
            self.len += 1;
        }
        fits
    }

    /// Removes the oldest item.
    pub fn pop(&mut self) -> Option<T> {
        let item = self.front()?;
        self.head = self.index(1);
        self.len -= 1;
        Some(item)
    }

    /// The oldest item, which stays; `None` if the ring is empty.
    pub fn front(&self) -> Option<T> {
        (self.len != 0).then(|| self.items.get(self.head).copied())?
    }

    /// The newest item, to change it in place; `None` if the ring is empty.
    pub fn back_mut(&mut self) -> Option<&mut T> {
        let at = self.index(self.len.checked_sub(1)?);
        self.items.get_mut(at)
    }

    /// The items, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        (0..self.len).filter_map(|i| self.items.get(self.index(i)))
    }

    /// Empties the ring, and keeps its memory.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    fn index(&self, i: usize) -> usize {
        let at = self.head + i;
        if at >= self.items.len() {
            at - self.items.len()
        } else {
            at
        }
    }
}
