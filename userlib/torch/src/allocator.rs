// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The cache: free blocks by device, stream and size class.
//!
//! A free block is given out again in the stream in which it was used, so that no
//! wait is needed. One of 2 MiB or more is discarded lazily, in the stream's order,
//! when it is freed, and prefetched, in the same order, before it is given out.
//!
//! The threads' own default streams have one handle, so their blocks are kept, discarded and
//! prefetched in the order of the legacy default stream, which waits for all of these, and
//! they for it.
//!
//! A block that is allocated while its stream is being captured is the graph's, which may
//! be launched at any time: it is new, and is never given to anybody else.
//!
//! A block that other streams have used waits for them when it is freed. If that can not
//! be put into a stream, since one is being captured, the block waits to be freed.

use std::collections::HashMap;

use uvmrust::Range;

use crate::classes::{class_of, BLOCK};
use crate::device::{Device, Queue, StreamId};

/// Where a block may be reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    queue: Queue,
    class: usize,
}

/// A block that PyTorch has.
#[derive(Debug)]
struct Used {
    key: Key,
    /// Other streams that use it, each once.
    others: Vec<Queue>,
    /// Allocated while its stream was being captured.
    captured: bool,
}

/// A block in the cache.
#[derive(Clone, Copy, Debug)]
struct Free {
    base: u64,
    /// Lazily discarded: not to be used before a prefetch.
    discarded: bool,
    /// Nobody has had it yet.
    unused: bool,
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
    /// Freed while a stream that used them was being captured.
    deferred: Vec<(u64, Used)>,
    stats: Stats,
}

impl<D: Device> Allocator<D> {
    /// Empty.
    pub const fn new(device: D) -> Self {
        Self {
            device,
            used: None,
            free: None,
            deferred: Vec::new(),
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
    pub fn malloc(&mut self, size: usize, queue: Queue) -> Option<u64> {
        let class = class_of(size)?;
        let stream = queue.stream.shared();
        let key = Key {
            queue: Queue { stream, ..queue },
            class,
        };
        self.settle();
        let captured = self.device.capturing(queue);
        let base = match self.reuse_for(key, queue) {
            Some(base) => {
                self.stats.reused += 1;
                base
            }
            None => self.fresh(key)?,
        };
        let block = Used {
            key,
            others: Vec::new(),
            captured,
        };
        self.used.get_or_insert_default().insert(base, block);
        self.stats.mallocs += 1;
        Some(base)
    }

    /// See [`crate::uvmrust_torch_free`]. What is not ours is left alone.
    pub fn free(&mut self, base: u64) {
        let Some(block) = self.used.as_mut().and_then(|used| used.remove(&base)) else {
            return;
        };
        self.settle();
        // A graph that has one uses it at each launch, so nobody else ever may.
        if !block.captured {
            self.release(base, block);
        }
    }

    /// Frees what waits for the end of a capture.
    fn settle(&mut self) {
        for (base, block) in std::mem::take(&mut self.deferred) {
            self.release(base, block);
        }
    }

    fn release(&mut self, base: u64, block: Used) {
        let key = block.key;
        let captured = |queue: &Queue| self.device.capturing(*queue);
        let others = &block.others;
        if others.iter().any(captured) || (!others.is_empty() && captured(&key.queue)) {
            self.deferred.push((base, block));
            return;
        }
        let waited = block
            .others
            .iter()
            .all(|&other| self.device.wait(key.queue, other).is_ok());
        if !waited {
            // Then we wait. What can not be waited for, or is part of a shared block, is
            // lost instead.
            let drained = others.iter().all(|&other| self.device.drain(other).is_ok());
            if drained && key.class >= BLOCK {
                self.give_back(base, key);
            }
            return;
        }
        let range = Range {
            base,
            length: key.class as u64,
        };
        let discarded = key.class >= BLOCK
            && !self.device.capturing(key.queue)
            && self.device.discard(range, key.queue).is_ok();
        if discarded {
            self.stats.discarded_bytes += range.length;
        }
        let list = self.free.get_or_insert_default().entry(key).or_default();
        list.push(Free {
            base,
            discarded,
            unused: false,
        });
    }

    /// See [`crate::uvmrust_torch_record_stream`].
    pub fn record_stream(&mut self, base: u64, stream: StreamId) {
        let current = self.device.current();
        let Some(block) = self.used.as_mut().and_then(|used| used.get_mut(&base)) else {
            return;
        };
        let own = block.key.queue;
        let stream = stream.shared();
        let mut add = |device| {
            let queue = Queue { device, stream };
            if queue != own && !block.others.contains(&queue) {
                block.others.push(queue);
            }
        };
        add(own.device);
        // Which device's default stream it is, is not said.
        if let (Some(device), true) = (current, stream.is_special()) {
            add(device);
        }
    }

    /// See [`crate::uvmrust_torch_empty_cache`]. Parts of shared blocks stay.
    pub fn empty_cache(&mut self) {
        self.settle();
        let Some(free) = self.free.as_mut() else {
            return;
        };
        let (large, small): (HashMap<_, _>, _) =
            free.drain().partition(|(key, _)| key.class >= BLOCK);
        *free = small;
        for (key, list) in large {
            for block in list {
                if !self.give_back(block.base, key) {
                    let list = self.free.get_or_insert_default().entry(key).or_default();
                    list.push(block);
                }
            }
        }
    }

    /// What was done so far.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// For use in `queue`, which is that of the key, or a thread's own default stream: then it
    /// is made to wait for what other threads did.
    fn reuse_for(&mut self, key: Key, queue: Queue) -> Option<u64> {
        let own = queue != key.queue;
        if own && (self.device.capturing(queue) || self.device.capturing(key.queue)) {
            return None;
        }
        let base = self.reuse(key)?;
        if own && self.device.wait(queue, key.queue).is_err() {
            let list = self.free.get_or_insert_default().entry(key).or_default();
            list.push(Free {
                base,
                discarded: false,
                unused: false,
            });
            return None;
        }
        Some(base)
    }

    /// The block freed last is the likeliest to be on the GPU still. For a graph, which may be
    /// launched in another stream, only one that nothing has used.
    fn reuse(&mut self, key: Key) -> Option<u64> {
        let capturing = self.device.capturing(key.queue);
        let list = self.free.as_mut()?.get_mut(&key)?;
        let at = list.iter().rposition(|block| !capturing || block.unused)?;
        let block = list.remove(at);
        if !block.discarded {
            return Some(block.base);
        }
        let range = Range {
            base: block.base,
            length: key.class as u64,
        };
        match self.device.prefetch(range, key.queue) {
            Ok(()) => {
                self.stats.prefetched_bytes += range.length;
                Some(block.base)
            }
            Err(_) => {
                // Without a prefetch it must not be used: given back, or lost.
                self.give_back(block.base, key);
                None
            }
        }
    }

    /// A block that was not in the cache.
    fn fresh(&mut self, key: Key) -> Option<u64> {
        if key.class >= BLOCK {
            return self.alloc(key.class, key);
        }
        let base = self.alloc(BLOCK, key)?;
        let list = self.free.get_or_insert_default().entry(key).or_default();
        for part in (1..BLOCK / key.class).rev() {
            list.push(Free {
                base: base + (part * key.class) as u64,
                discarded: false,
                unused: true,
            });
        }
        Some(base)
    }

    fn alloc(&mut self, length: usize, key: Key) -> Option<u64> {
        let device = key.queue.device;
        let base = self.device.alloc(length, device).or_else(|_| {
            self.empty_cache();
            self.device.alloc(length, device)
        });
        self.stats.held_bytes += if base.is_ok() { length as u64 } else { 0 };
        base.ok()
    }

    /// Gives a block to CUDA when nothing that its stream has to do uses it any more, its
    /// discard for one. `false`: that can not be waited for now, and it is still ours.
    fn give_back(&mut self, base: u64, key: Key) -> bool {
        if self.device.drain(key.queue).is_err() {
            return false;
        }
        self.device.free(base, key.queue.device);
        self.stats.held_bytes -= key.class as u64;
        true
    }
}

#[cfg(test)]
mod tests;
