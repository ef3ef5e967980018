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

use crate::device::{Capture, Queue, StreamId};
use crate::thread::{Task, Thread};

/// PyTorch's `MempoolId_t`, a pair of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GraphPool(pub u64, pub u64);

/// A pool that was begun and not ended.
#[derive(Clone, Copy, Debug)]
struct Begun {
    device: c_int,
    pool: GraphPool,
    /// Who began it, and so captures with it.
    thread: Thread,
    task: Task,
    /// Its capture, once that is known.
    capture: Option<Known>,
    /// The thread had begun another that had no capture: a new number may be that one's.
    doubtful: bool,
}

/// A capture, as it is found again.
#[derive(Clone, Copy, Debug)]
struct Known {
    number: u64,
    /// A stream that is part of it.
    queue: Queue,
    /// Who has named the stream: if it is a thread's own one, its handle means another elsewhere.
    by: Thread,
    task: Task,
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
    ///
    /// A pool that the same thread has begun, and that has no capture yet, counts as one whose
    /// capture has failed: PyTorch ends none of these. Or it is under way without an allocation so
    /// far, and then its number must not be taken for the new one's. So neither has the new pool's
    /// memory: a pool that is released too early is overwritten under the graph.
    pub(crate) fn begin(&mut self, device: c_int, pool: GraphPool, thread: Thread) {
        *self.uses.entry((device, pool)).or_default() += 1;
        self.gone.remove(&(device, pool));
        let failed = |begun: &Begun| begun.thread == thread && begun.capture.is_none();
        let doubtful = self.begun.iter().any(failed);
        self.begun.retain(|begun| !failed(begun));
        self.begun.push(Begun {
            device,
            pool,
            thread,
            task: Task::current(),
            capture: None,
            doubtful,
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
        thread: Thread,
    ) -> Option<GraphPool> {
        let here = |begun: &&mut Begun| begun.device == queue.device;
        let known = |begun: &Begun| begun.capture.is_some_and(|known| known.number == number);
        if let Some(begun) = self.begun.iter_mut().filter(here).find(|b| known(b)) {
            return Some(begun.pool);
        }
        let new = self.begun.iter_mut().filter(here);
        let mut new: Vec<&mut Begun> = new.filter(|begun| begun.capture.is_none()).collect();
        if new.len() > 1 {
            new.retain(|begun| begun.thread == thread);
        }
        match &mut new[..] {
            [only] if !only.doubtful => {
                only.capture = Some(Known {
                    number,
                    queue,
                    by: thread,
                    task: Task::current(),
                });
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
    /// it any more. One that has failed without a single allocation stays under way until its
    /// thread begins the next ([`Self::begin`]), and one in a thread's own stream until that
    /// thread asks; or until the thread is over, which nobody can ask any more.
    pub(crate) fn underway(&mut self, capture: impl Fn(Queue) -> Capture) -> bool {
        let elsewhere = |known: Known| {
            known.queue.stream == StreamId::PER_THREAD && known.by != Thread::current()
        };
        self.begun.retain(|begun| match begun.capture {
            None => !begun.task.is_over(),
            Some(known) if elsewhere(known) => !known.task.is_over(),
            Some(known) => match capture(known.queue) {
                Capture::Into(now) => now == known.number,
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

    /// Forgets of the pools of a device that are gone those that have no memory either.
    pub(crate) fn forget(&mut self, device: c_int, has_memory: impl Fn(GraphPool) -> bool) {
        self.gone
            .retain(|&(of, pool)| of != device || has_memory(pool));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::StreamId;
    use std::thread;
    use std::time::{Duration, Instant};

    const A: GraphPool = GraphPool(0, 1);
    const B: GraphPool = GraphPool(0, 2);

    fn queue(device: c_int) -> Queue {
        let stream = StreamId(16);
        Queue { device, stream }
    }

    /// This thread, another, and a third.
    fn threads() -> [Thread; 3] {
        [Thread::current(), Thread::new(), Thread::new()]
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
    fn of_two_new_captures_of_one_thread_neither_has_a_pool() {
        let ([thread, worker, _], mut graphs) = (threads(), Graphs::new());
        graphs.begin(0, A, thread);
        graphs.begin(0, B, thread);
        assert_eq!(graphs.pool_of(queue(0), 1, thread), None);
        assert_eq!(graphs.pool_of(queue(0), 2, worker), None);
        graphs.end(0, B);
        graphs.begin(0, B, thread);
        assert_eq!(graphs.pool_of(queue(0), 3, thread), Some(B));
        // One that has its capture makes no doubt.
        graphs.begin(0, A, thread);
        assert_eq!(graphs.pool_of(queue(0), 4, thread), Some(A));
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
    fn a_capture_that_failed_before_it_had_memory_ends_with_the_next() {
        let ([thread, other, _], mut graphs) = (threads(), Graphs::new());
        graphs.begin(0, A, thread);
        graphs.begin(0, B, other);
        graphs.begin(0, A, thread);
        graphs.end(0, A);
        assert!(graphs.underway(|_| Capture::None), "the other thread's");
        graphs.begin(1, A, thread);
        graphs.end(0, B);
        graphs.end(1, A);
        assert!(!graphs.underway(|_| Capture::None));
        // One that has memory is a capture, whatever the thread begins besides.
        graphs.begin(0, A, thread);
        graphs.pool_of(queue(0), 7, thread);
        graphs.begin(0, B, thread);
        graphs.end(0, B);
        assert!(graphs.underway(|_| Capture::Into(7)));
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

    /// Whether that is so before long: the kernel forgets a thread a little after its join.
    fn soon(mut is: impl FnMut() -> bool) -> bool {
        let from = Instant::now();
        while !is() {
            if from.elapsed() > Duration::from_secs(10) {
                return false;
            }
            thread::yield_now();
        }
        true
    }

    /// A thread begins a pool, captures with it, and ends, with whatever it has allocated before.
    fn fails_with_its_thread(allocated: Option<StreamId>) -> Graphs {
        let mut graphs = Graphs::new();
        thread::scope(|scope| {
            let ends = scope.spawn(|| {
                let thread = Thread::current();
                graphs.begin(0, A, thread);
                if let Some(stream) = allocated {
                    assert_eq!(
                        graphs.pool_of(Queue { device: 0, stream }, 7, thread),
                        Some(A)
                    );
                }
                assert!(graphs.underway(|_| Capture::Into(7)), "it goes on");
            });
            ends.join().unwrap();
        });
        graphs
    }

    /// CUDA has no thread's own stream any more when that is over, and nobody names it.
    #[test]
    fn a_capture_that_failed_ends_with_its_thread() {
        for allocated in [None, Some(StreamId::PER_THREAD)] {
            let mut graphs = fails_with_its_thread(allocated);
            let over = soon(|| !graphs.underway(|_| Capture::None));
            assert!(over, "{allocated:?}");
        }
    }

    /// Which CUDA is asked about another stream may end in another thread.
    #[test]
    fn a_capture_in_a_stream_of_all_threads_goes_on_without_its_thread() {
        let mut graphs = fails_with_its_thread(Some(StreamId(16)));
        let task = graphs.begun[0].task;
        assert!(soon(|| task.is_over()));
        assert!(graphs.underway(|_| Capture::Into(7)));
        assert!(!graphs.underway(|_| Capture::None));
    }

    /// A worker's own stream is asked as long as that one is there.
    #[test]
    fn a_capture_that_a_thread_has_begun_for_another_goes_on_with_that() {
        let (worker, mut graphs) = (Thread::new(), fails_with_its_thread(None));
        let task = graphs.begun[0].task;
        assert!(soon(|| task.is_over()));
        let own = Queue {
            device: 0,
            stream: StreamId::PER_THREAD,
        };
        assert_eq!(graphs.pool_of(own, 7, worker), Some(A));
        assert!(graphs.underway(|_| Capture::None));
    }

    /// Its handle means another stream to whoever else asks, of which no capture says anything.
    #[test]
    fn a_capture_in_a_threads_own_stream_is_asked_by_that_thread_alone() {
        let ([thread, other, _], mut graphs) = (threads(), Graphs::new());
        let own = Queue {
            device: 0,
            stream: StreamId::PER_THREAD,
        };
        graphs.begin(0, A, thread);
        assert_eq!(graphs.pool_of(own, 7, thread), Some(A));
        assert!(other.act(|| graphs.underway(|_| Capture::None)), "asked");
        assert!(graphs.underway(|_| Capture::Into(7)));
        assert!(!graphs.underway(|_| Capture::None), "it has failed");
    }
}
