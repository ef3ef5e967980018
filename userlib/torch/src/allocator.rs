// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The cache: free blocks by device, stream and size class.
//!
//! A free block is given out again in the stream in which it was used, so that no
//! wait is needed. One of 2 MiB or more is discarded lazily, in the stream's order,
//! when it is freed, and prefetched, in the same order, before it is given out.

use core::ffi::c_int;
use std::collections::HashMap;

use uvmrust::Range;

use crate::classes::{class_of, BLOCK};
use crate::device::{Device, StreamId};

/// Where a block may be reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    device: c_int,
    stream: StreamId,
    class: usize,
}

/// A block that PyTorch has.
#[derive(Debug)]
struct Used {
    key: Key,
    /// Other streams that use it, each once.
    others: Vec<StreamId>,
}

/// A block in the cache.
#[derive(Clone, Copy, Debug)]
struct Free {
    base: u64,
    /// Lazily discarded: not to be used before a prefetch.
    discarded: bool,
}

/// What was done, in calls and bytes since the start.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Blocks given out.
    pub mallocs: u64,
    /// Of these, from the cache.
    pub reused: u64,
    /// Bytes had from CUDA and not given back.
    pub held_bytes: u64,
    /// Bytes discarded.
    pub discarded_bytes: u64,
    /// Bytes prefetched, to be used after a discard.
    pub prefetched_bytes: u64,
}

/// An allocator on a device.
#[derive(Debug)]
pub struct Allocator<D> {
    device: D,
    used: Option<HashMap<u64, Used>>,
    free: Option<HashMap<Key, Vec<Free>>>,
    stats: Stats,
}

impl<D: Device> Allocator<D> {
    /// Empty.
    pub const fn new(device: D) -> Self {
        Self {
            device,
            used: None,
            free: None,
            stats: Stats {
                mallocs: 0,
                reused: 0,
                held_bytes: 0,
                discarded_bytes: 0,
                prefetched_bytes: 0,
            },
        }
    }

    /// See [`crate::uvmrust_torch_malloc`].
    pub fn malloc(&mut self, size: usize, device: c_int, stream: StreamId) -> Option<u64> {
        let class = class_of(size)?;
        let key = Key {
            device,
            stream,
            class,
        };
        let base = match self.reuse(key) {
            Some(base) => {
                self.stats.reused += 1;
                base
            }
            None => self.fresh(key)?,
        };
        let others = Vec::new();
        self.used
            .get_or_insert_default()
            .insert(base, Used { key, others });
        self.stats.mallocs += 1;
        Some(base)
    }

    /// See [`crate::uvmrust_torch_free`]. What is not ours is left alone.
    pub fn free(&mut self, base: u64) {
        let Some(block) = self.used.as_mut().and_then(|used| used.remove(&base)) else {
            return;
        };
        let key = block.key;
        let waited = block
            .others
            .iter()
            .all(|&other| self.device.wait(key.stream, other).is_ok());
        if !waited {
            // It can not be told when it is free. CUDA knows: it waits for all. A
            // part of a shared block is lost instead.
            if key.class >= BLOCK {
                self.give_back(base, key.class);
            }
            return;
        }
        let range = Range {
            base,
            length: key.class as u64,
        };
        let discarded = key.class >= BLOCK
            && !self.device.capturing(key.stream)
            && self.device.discard(range, key.stream).is_ok();
        if discarded {
            self.stats.discarded_bytes += range.length;
        }
        let list = self.free.get_or_insert_default().entry(key).or_default();
        list.push(Free { base, discarded });
    }

    /// See [`crate::uvmrust_torch_record_stream`].
    pub fn record_stream(&mut self, base: u64, stream: StreamId) {
        if let Some(block) = self.used.as_mut().and_then(|used| used.get_mut(&base)) {
            if stream != block.key.stream && !block.others.contains(&stream) {
                block.others.push(stream);
            }
        }
    }

    /// See [`crate::uvmrust_torch_empty_cache`]. Parts of shared blocks stay.
    pub fn empty_cache(&mut self) {
        let Some(free) = self.free.as_mut() else {
            return;
        };
        let (large, small): (HashMap<_, _>, _) =
            free.drain().partition(|(key, _)| key.class >= BLOCK);
        *free = small;
        for (key, list) in large {
            for block in list {
                self.give_back(block.base, key.class);
            }
        }
    }

    /// What was done so far.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// The block freed last is the likeliest to be on the GPU still.
    fn reuse(&mut self, key: Key) -> Option<u64> {
        let capturing = self.device.capturing(key.stream);
        let list = self.free.as_mut()?.get_mut(&key)?;
        let at = list
            .iter()
            .rposition(|block| !(capturing && block.discarded))?;
        let block = list.remove(at);
        if !block.discarded {
            return Some(block.base);
        }
        let range = Range {
            base: block.base,
            length: key.class as u64,
        };
        match self.device.prefetch(range, key.device, key.stream) {
            Ok(()) => {
                self.stats.prefetched_bytes += range.length;
                Some(block.base)
            }
            Err(_) => {
                // Without a prefetch it must not be used.
                self.give_back(block.base, key.class);
                None
            }
        }
    }

    /// A block that was not in the cache.
    fn fresh(&mut self, key: Key) -> Option<u64> {
        if key.class >= BLOCK {
            return self.alloc(key.class);
        }
        let base = self.alloc(BLOCK)?;
        let list = self.free.get_or_insert_default().entry(key).or_default();
        for part in (1..BLOCK / key.class).rev() {
            list.push(Free {
                base: base + (part * key.class) as u64,
                discarded: false,
            });
        }
        Some(base)
    }

    fn alloc(&mut self, length: usize) -> Option<u64> {
        let base = self.device.alloc(length).or_else(|_| {
            self.empty_cache();
            self.device.alloc(length)
        });
        self.stats.held_bytes += if base.is_ok() { length as u64 } else { 0 };
        base.ok()
    }

    fn give_back(&mut self, base: u64, length: usize) {
        self.device.free(base);
        self.stats.held_bytes -= length as u64;
    }
}

#[cfg(test)]
mod tests;
