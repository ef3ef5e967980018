// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The cache: free memory by device, stream and size, and by graph.
//!
//! What is free is given out again in the stream in which it was used, so that no wait is
//! needed. While the GPU's memory is short ([`crate::pressure`]), the blocks of UVM's that are
//! free as a whole are discarded lazily, in the stream's order, and prefetched, in the same
//! order, before they are given out. While all fits, neither is done; but what the program has
//! discarded lazily before it freed it is prefetched as well.
//!
//! A discard does not come at the free, but at the next allocation of that stream, of those for which
//! the block could have been taken: then PyTorch's own allocator may have its memory overwritten, and
//! not before. Between the two a program may have the stream wait for another one that still reads it, as
//! autograd's engine does. What the allocation itself takes is not discarded for that. Memory of a stream that
//! allocates no more is never discarded: no call but that one says that the stream waits for all who use it.
//!
//! The threads' own default streams have one handle, so their memory is kept, discarded and
//! prefetched in the order of the legacy default stream, which waits for the work of all of these,
//! and they for it. What a thread's stream only waits for is not counted on (`Used::others`).
//!
//! What is allocated while its stream is being captured is the graph's, which may be launched
//! at any time. PyTorch gives graphs pools by number: memory of one is used again by captures
//! with the same pool, whose graphs are launched one after the other in the order of their
//! captures, and is given back when the last of them is gone. Of other captures nobody says when
//! their graph goes: they get memory that nobody has had, and keep it.
//!
//! A block that other streams have used waits for them when it is freed: its own stream does, which
//! PyTorch's allocator does not ask of it. If that cannot
//! be put into a stream, since one is being captured, the block waits to be freed. A graph's
//! block, whose stream is not known, waits until the others are seen to be done. So does one that
//! the default streams of other GPUs may use: these may wait, as by NCCL, for what is behind the
//! free.
//!
//! Who waits for a GPU holds back no other thread's allocations and frees, since the GPU may go on
//! only after these. Only a capture of that GPU begins when the wait is over. Where one GPU has no
//! memory, only what it has itself is waited for and given back. Each device has a lock of its own,
//! for CUDA's calls may wait inside, as for room in a stream's queue.
//!
//! While a pool of a graph is begun, any stream may become part of the capture between a look at
//! it and the call that follows: another thread's. So no free puts anything into a stream then,
//! nobody waits for one, and nothing is given back, as in PyTorch's own allocator
//! (c10/cuda/CUDACachingAllocator.cpp: `captures_underway`). But an event marks what the thread that
//! frees has in its own default stream, which no other thread can name, neither for a capture nor
//! later to wait for it. Of a capture that PyTorch does not
//! begin with a pool nothing is known before it is there: in such a program no other thread may
//! free while it begins.

use core::ffi::c_int;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use uvmrust::{Error, Range, Result};

use crate::device::{Device, Queue, StreamId, DEVICES};
use crate::graphs::{GraphPool, Graphs};
use crate::heap::{Owner, Pool};
use crate::sizes::rounded;
use crate::stats::{DeviceStats, Stats};
use crate::thread::Thread;

mod release;
mod state;

use release::Idle;
use state::State;

/// An allocator on a device, which all threads use.
#[derive(Debug)]
pub struct Allocator<D> {
    device: D,
    /// By device, as they are first used.
    states: [OnceLock<Mutex<State<D>>>; DEVICES],
    /// Those of all devices. Taken with a device's lock held, or alone.
    graphs: OnceLock<Arc<Mutex<Graphs>>>,
    /// Of what PyTorch has, by addresses: the device whose lock guards it, and the bytes. Nobody
    /// calls CUDA, or takes another lock, with this one.
    homes: Mutex<BTreeMap<u64, (c_int, u64)>>,
    /// For each device: held by who waits for it, which breaks captures, and by who begins a
    /// capture's pool there.
    waits: [Mutex<()>; DEVICES],
}

/// The place of a device among so many: an impossible number has that of another.
fn place(device: c_int) -> usize {
    device.rem_euclid(DEVICES as c_int) as usize
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<D: Device + Copy> Allocator<D> {
    /// An allocator that has had no memory from `device` yet.
    pub const fn new(device: D) -> Self {
        Self {
            device,
            states: [const { OnceLock::new() }; DEVICES],
            graphs: OnceLock::new(),
            homes: Mutex::new(BTreeMap::new()),
            waits: [const { Mutex::new(()) }; DEVICES],
        }
    }

    /// A device's lock, of which a thread holds one at a time. It is held over calls of CUDA, as
    /// PyTorch's own allocator does, but for those that wait for a GPU. CUDA never calls back into it.
    fn lock(&self, device: c_int) -> MutexGuard<'_, State<D>> {
        let new = || Mutex::new(State::new(self.device, self.graphs().clone()));
        lock(self.states[place(device)].get_or_init(new))
    }

    fn graphs(&self) -> &Arc<Mutex<Graphs>> {
        self.graphs
            .get_or_init(|| Arc::new(Mutex::new(Graphs::new())))
    }

    /// Those that have been used, one after the other.
    fn all(&self) -> impl Iterator<Item = MutexGuard<'_, State<D>>> {
        self.states.iter().filter_map(|state| state.get()).map(lock)
    }

    /// The device whose lock guards what begins at an address, if that is ours.
    fn home(&self, base: u64) -> Option<c_int> {
        lock(&self.homes).get(&base).map(|&(device, _)| device)
    }

    /// [`Self::try_malloc`], for who does not ask why there is none.
    pub fn malloc(&self, size: usize, queue: Queue) -> Option<u64> {
        self.try_malloc(size, queue).ok()
    }

    /// Does what [`crate::uvmrust_torch_malloc`] describes.
    ///
    /// # Errors
    /// [`Error::NoMemory`]: there is none; any other: CUDA cannot tell, since it does not work.
    pub fn try_malloc(&self, size: usize, queue: Queue) -> Result<u64> {
        let length = rounded(size).ok_or(Error::NoMemory);
        let base = length.and_then(|length| self.given(size, length, queue));
        if base == Err(Error::NoMemory) {
            self.lock(queue.device).gpu(queue.device).stats.failures += 1;
        }
        base
    }

    fn given(&self, size: usize, length: u64, queue: Queue) -> Result<u64> {
        let mut given = self.lock(queue.device).malloc(size, length, queue);
        if given == Err(Error::NoMemory) {
            self.lock(queue.device).gpu(queue.device).stats.retries += 1;
            self.empty_cache_of(queue.device);
            given = self.lock(queue.device).malloc(size, length, queue);
        }
        let Range { base, length } = given?;
        lock(&self.homes).insert(base, (queue.device, length));
        Ok(base)
    }

    /// See [`crate::uvmrust_torch_free`]. What is not ours is left alone.
    pub fn free(&self, base: u64) {
        // Before it is free, when another may be given it.
        let home = lock(&self.homes).remove(&base);
        if let Some((device, _)) = home {
            self.lock(device).free(base);
        }
    }

    /// Does what [`crate::uvmrust_torch_record_stream`] describes.
    pub fn record_stream(&self, base: u64, stream: StreamId) {
        if let Some(home) = self.home(base) {
            self.lock(home).record_stream(base, None, stream);
        }
    }

    /// Does what [`crate::uvmrust_torch_record_stream_on`] describes.
    pub fn record_stream_on(&self, base: u64, queue: Queue) {
        let Queue { device, stream } = queue;
        if let Some(home) = self.home(base) {
            self.lock(home).record_stream(base, Some(device), stream);
        }
    }

    /// The program has discarded a range lazily, or may have. Nobody else gets the memory without a
    /// prefetch.
    pub fn discarded_lazily(&self, range: Range) {
        let end = range.base.saturating_add(range.length);
        let devices: BTreeSet<c_int> = {
            let homes = lock(&self.homes);
            let before = homes.range(..end).rev();
            let touched = before.take_while(|(&base, &(_, length))| base + length > range.base);
            touched.map(|(_, &(device, _))| device).collect()
        };
        for device in devices {
            self.lock(device).discarded_lazily(range);
        }
    }

    /// See [`crate::uvmrust_torch_empty_cache`]. Segments that are in use in part stay.
    pub fn empty_cache(&self) {
        self.trim(0);
    }

    /// Gives idle segments back, the largest first, until at most `keep` bytes are in them, as
    /// [`crate::uvmrust_torch_trim`] says. Meanwhile other threads allocate and free.
    pub fn trim(&self, keep: u64) {
        let devices: Vec<c_int> = self.all().flat_map(|state| state.devices()).collect();
        for device in devices {
            let _one = lock(self.waits(device));
            self.drain_others(device);
        }
        for (device, keep) in self.keeps(keep) {
            let _one = lock(self.waits(device));
            self.give_back(device, keep);
        }
    }

    /// How much each device keeps, where all of them together keep so many bytes, and give back the
    /// largest first.
    fn keeps(&self, keep: u64) -> BTreeMap<c_int, u64> {
        let mut idle: Vec<Idle> = self.all().flat_map(|mut state| state.idle()).collect();
        let mut cached: u64 = idle.iter().map(|idle| idle.length).sum();
        let mut keeps = BTreeMap::new();
        if cached <= keep {
            return keeps;
        }
        idle.sort_by_key(|idle| core::cmp::Reverse(idle.length));
        for idle in idle {
            let kept: &mut u64 = keeps.entry(idle.device).or_default();
            if cached > keep && !idle.of_graph {
                cached -= idle.length;
            } else {
                *kept += idle.length;
            }
        }
        keeps
    }

    /// Gives back all that is idle of one device. No other device is waited for: it may go on only
    /// after what this thread does next.
    fn empty_cache_of(&self, device: c_int) {
        let _one = lock(self.waits(device));
        self.drain_others(device);
        self.give_back(device, 0);
    }

    /// Held by who waits for a device, and by who begins a pool there.
    fn waits(&self, device: c_int) -> &Mutex<()> {
        &self.waits[place(device)]
    }

    /// Waits for what others had to do with a device's memory when it was freed. What is not done after
    /// that stays. Their streams may be another device's, where a capture may begin meanwhile, of
    /// which nothing must become part: so nothing is put into them. A stream that only another thread can
    /// name is waited for with all of the device: that thread may be over.
    fn drain_others(&self, device: c_int) {
        let marked = self.lock(device).marked(device);
        for base in marked {
            // Whoever looks meanwhile finds the others, and no event that is waited for.
            let Some(waiting) = self.lock(device).take_marked(base) else {
                continue;
            };
            for mark in waiting.marks_but_guesses(device) {
                let _ = self.device.reach(mark);
            }
            self.lock(device).put_back_marked(waiting);
        }
        let unnamed = self.lock(device).take_unnamed(device);
        if !unnamed.is_empty() {
            let done = self.device.drain_all(device).is_ok();
            self.lock(device).put_back(unnamed, device, done);
        }
    }

    fn give_back(&self, device: c_int, keep: u64) {
        let idle = self.lock(device).take_idle(device, keep);
        let mut done = BTreeMap::new();
        for (segment, pool) in idle {
            if *done.entry(pool).or_insert_with(|| self.is_done(pool)) {
                self.lock(device).forget(segment, pool);
                // Another thread may be given the addresses at once.
                self.device.free(segment.base, pool.queue.device);
            } else {
                self.lock(device).heap.give(segment.base);
            }
        }
    }

    /// Waits until nothing that the pool's stream has to do uses its memory any more, a discard of
    /// ours for one. `false`: that cannot be waited for now.
    fn is_done(&self, pool: Pool) -> bool {
        match pool.owner {
            Owner::Stream => self.device.drain(pool.queue).is_ok(),
            // Its graphs were launched in whatever streams.
            Owner::Graph(_) | Owner::SomeGraph => self.device.drain_all(pool.queue.device).is_ok(),
        }
    }

    /// PyTorch begins to allocate from a pool on a device, for a graph. The call waits until nobody
    /// waits for that GPU in here any more, or puts anything into a stream for memory of it. For
    /// others nobody waits: they may go on only after what this thread does next. So a program has no
    /// stream of another GPU join the capture while another thread frees memory there.
    pub fn begin_pool(&self, device: c_int, pool: GraphPool) {
        let _nobody = lock(self.waits(device));
        let thread = Thread::current();
        lock(self.graphs()).begin(device, pool, thread);
        // Who has looked before that holds the lock until what it puts into a stream is there.
        drop(self.lock(device));
    }

    /// Ends what [`Self::begin_pool`] began: allocations no longer go to the pool.
    pub fn end_pool(&self, device: c_int, pool: GraphPool) {
        lock(self.graphs()).end(device, pool);
    }

    /// A graph with memory of the pool is gone. When none is left, the next
    /// [`Allocator::trim`] gives the memory back.
    pub fn release_pool(&self, device: c_int, pool: GraphPool) {
        lock(self.graphs()).release(device, pool);
        self.lock(device).forget_pools(device);
    }

    /// Counts on no more than this part of a device's memory, from 0 to 1.
    pub fn set_fraction(&self, device: c_int, fraction: f64) {
        self.lock(device)
            .gpu(device)
            .pressure
            .set_fraction(fraction);
    }

    /// What was done so far.
    pub fn stats(&self) -> Stats {
        self.all()
            .map(|state| state.stats)
            .fold(Stats::default(), Stats::plus)
    }

    /// What was done so far for one device.
    pub fn device_stats(&self, device: c_int) -> DeviceStats {
        self.lock(device).device_stats(device)
    }

    /// Begins the peaks of a device anew.
    pub fn reset_peaks(&self, device: c_int) {
        self.lock(device).reset_peaks(device);
    }
}

#[cfg(test)]
mod tests;
