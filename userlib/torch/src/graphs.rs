// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The pools that PyTorch's graphs allocate from: it says when one begins, when it ends, and
//! when the last graph that has memory of it is gone.
//!
//! PyTorch also gives a function that says of a stream whether its memory is to come from the
//! pool: whether the stream is part of the capture (`create_allocate_filter` of
//! aten/src/ATen/cuda/CUDAGraph.cpp compares the captures' numbers; `get_pool` of
//! c10/cuda/CUDACachingAllocator.cpp takes the first pool whose function says so). It is an
//! object of C++'s, which is not called here; the captures' numbers, which CUDA tells, say the
//! same. A pool is begun before its capture has a number (`capture_begin`), so the number is
//! learnt at the first allocation from a stream that is captured under a new one.
//!
//! From the beginning of a pool on, some stream may be captured at any moment. Whatever would
//! become part of the graph then, or would break the capture, has to wait ([`Graphs::underway`]),
//! as in PyTorch's own allocator ("beginAllocateStreamToPool is now called before
//! cudaStreamBeginCapture to prevent an autograd thread's free() call triggering an invalid
//! cudaEventRecord in the caching allocator": `capture_begin`; `captures_underway`).

use core::ffi::c_int;
use std::collections::{BTreeMap, BTreeSet};
use std::thread::ThreadId;

use crate::device::{Capture, Queue};

/// PyTorch's `MempoolId_t`, a pair of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GraphPool(pub u64, pub u64);

/// A pool that was begun and not ended.
#[derive(Clone, Copy, Debug)]
struct Begun {
    device: c_int,
    pool: GraphPool,
    /// Who began it, and so captures with it.
    thread: ThreadId,
    /// The number of its capture, and a stream that is part of that, once they are known.
    capture: Option<(u64, Queue)>,
}

/// The pools of graphs that PyTorch has begun.
#[derive(Debug)]
pub(crate) struct Graphs {
    /// In the order in which they were begun.
    begun: Vec<Begun>,
    /// How often each was begun and not released.
    uses: BTreeMap<(c_int, GraphPool), u64>,
    /// Those that no graph has any more, as far as they may still have memory.
    gone: BTreeSet<(c_int, GraphPool)>,
}

impl Graphs {
    pub(crate) const fn new() -> Self {
        Self {
            begun: Vec::new(),
            uses: BTreeMap::new(),
            gone: BTreeSet::new(),
        }
    }

    /// Each begin is one use, which a release ends (`beginAllocateToPool` and `releasePool`
    /// of c10/cuda/CUDACachingAllocator.cpp: `createOrIncrefPool`, `use_count`).
    pub(crate) fn begin(&mut self, device: c_int, pool: GraphPool, thread: ThreadId) {
        *self.uses.entry((device, pool)).or_default() += 1;
        self.gone.remove(&(device, pool));
        self.begun.push(Begun {
            device,
            pool,
            thread,
            capture: None,
        });
    }

    pub(crate) fn end(&mut self, device: c_int, pool: GraphPool) {
        let is = |begun: &Begun| (begun.device, begun.pool) == (device, pool);
        if let Some(at) = self.begun.iter().rposition(is) {
            self.begun.remove(at);
        }
    }

    pub(crate) fn release(&mut self, device: c_int, pool: GraphPool) {
        let Some(uses) = self.uses.get_mut(&(device, pool)) else {
            return;
        };
        *uses -= 1;
        if *uses == 0 {
            self.uses.remove(&(device, pool));
            self.gone.insert((device, pool));
        }
    }

    /// The pool for an allocation of `thread` in a stream that is part of the capture of this
    /// number. `None`: which one it is, is not known.
    ///
    /// A capture of a new number is that of the one pool that has none yet; of several it is the
    /// one that the same thread began. (Someone else's capture, of which PyTorch knows nothing,
    /// may be taken for a pool's here, if it allocates first. PyTorch's own allocator gives such
    /// a capture memory that is anybody's.)
    pub(crate) fn pool_of(
        &mut self,
        queue: Queue,
        number: u64,
        thread: ThreadId,
    ) -> Option<GraphPool> {
        let here = |begun: &&mut Begun| begun.device == queue.device;
        let known = |begun: &Begun| begun.capture.is_some_and(|(known, _)| known == number);
        if let Some(begun) = self.begun.iter_mut().filter(here).find(|b| known(b)) {
            return Some(begun.pool);
        }
        let new = self.begun.iter_mut().filter(here);
        let mut new: Vec<&mut Begun> = new.filter(|begun| begun.capture.is_none()).collect();
        if new.len() > 1 {
            new.retain(|begun| begun.thread == thread);
        }
        match &mut new[..] {
            [only] => {
                only.capture = Some((number, queue));
                Some(only.pool)
            }
            _ => None,
        }
    }

    /// Whether some stream is being captured, or may be so any moment, with a pool. `capture`
    /// tells what a stream is part of.
    ///
    /// A capture that has failed is never ended (`capture_end` throws before it comes to
    /// `endAllocateToPool`): it is forgotten here when CUDA says that its stream is no part of
    /// it any more. One that has failed without a single allocation stays under way until the
    /// process ends.
    pub(crate) fn underway(&mut self, capture: impl Fn(Queue) -> Capture) -> bool {
        self.begun.retain(|begun| match begun.capture {
            None => true,
            Some((number, queue)) => match capture(queue) {
                Capture::Into(now) => now == number,
                Capture::Unknown => true,
                Capture::None => false,
            },
        });
        !self.begun.is_empty()
    }

    /// Whether no graph has the pool any more.
    pub(crate) fn is_gone(&self, device: c_int, pool: GraphPool) -> bool {
        self.gone.contains(&(device, pool))
    }

    /// Forgets of the pools that are gone those that have no memory either.
    pub(crate) fn forget(&mut self, has_memory: impl Fn(c_int, GraphPool) -> bool) {
        self.gone.retain(|&(device, pool)| has_memory(device, pool));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::StreamId;

    const A: GraphPool = GraphPool(0, 1);
    const B: GraphPool = GraphPool(0, 2);

    fn queue(device: c_int) -> Queue {
        let stream = StreamId(16);
        Queue { device, stream }
    }

    /// The ids of this thread, of another, and of a third.
    fn threads() -> [ThreadId; 3] {
        let other = || std::thread::spawn(|| std::thread::current().id()).join();
        let ids = [Ok(std::thread::current().id()), other(), other()];
        ids.map(|id| id.unwrap_or_else(|_| unreachable!("the thread does not panic")))
    }

    #[test]
    fn of_two_new_captures_each_has_the_pool_that_its_thread_began() {
        let ([first, second, worker], mut graphs) = (threads(), Graphs::new());
        graphs.begin(0, A, first);
        graphs.begin(0, B, second);
        assert_eq!(graphs.pool_of(queue(0), 1, worker), None, "of either");
        assert_eq!(graphs.pool_of(queue(0), 1, first), Some(A));
        // Now it is known, whoever asks, and only the other is left.
        assert_eq!(graphs.pool_of(queue(0), 1, worker), Some(A));
        assert_eq!(graphs.pool_of(queue(0), 2, worker), Some(B));
        assert_eq!(
            graphs.pool_of(queue(0), 3, first),
            None,
            "no pool is left for it"
        );
    }

    #[test]
    fn a_pool_is_that_of_its_device() {
        let ([thread, ..], mut graphs) = (threads(), Graphs::new());
        graphs.begin(1, A, thread);
        assert_eq!(graphs.pool_of(queue(0), 1, thread), None);
        assert_eq!(graphs.pool_of(queue(1), 1, thread), Some(A));
        graphs.end(0, A);
        assert!(graphs.underway(|_| Capture::Into(1)));
        graphs.end(1, A);
        assert!(!graphs.underway(|_| Capture::Into(1)));
    }

    #[test]
    fn a_pool_is_under_way_until_its_capture_is_over() {
        let ([thread, ..], mut graphs) = (threads(), Graphs::new());
        graphs.begin(0, A, thread);
        assert!(graphs.underway(|_| Capture::None), "it has not begun");
        graphs.pool_of(queue(0), 7, thread);
        assert!(graphs.underway(|_| Capture::Into(7)) && graphs.underway(|_| Capture::Unknown));
        assert!(!graphs.underway(|_| Capture::Into(8)), "a later capture");
        assert!(
            !graphs.underway(|_| Capture::Unknown),
            "and it is forgotten"
        );
    }
}
