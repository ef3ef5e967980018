// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Waits for a GPU that goes on only after what another thread does.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use std::sync::{Condvar, Mutex};
use std::thread;
use std::time::Duration;

use super::*;

/// A GPU whose waits, and whose frees, which may wait too, end when somebody says so.
#[derive(Default)]
struct Slow {
    next: AtomicU64,
    open: Mutex<bool>,
    told: Condvar,
    waiting: AtomicU32,
    given_up: AtomicU32,
    frees_wait: bool,
    /// What is put into a stream waits, as for room in its queue, and not who drains one.
    puts_wait: bool,
    /// The only device that is slow, if not all are.
    only: Option<c_int>,
}

impl Slow {
    fn open(&self) {
        *self.open.lock().unwrap() = true;
        self.told.notify_all();
    }

    fn wait_until_open(&self) {
        self.waiting.fetch_add(1, SeqCst);
        let open = self.open.lock().unwrap();
        let long = Duration::from_secs(10);
        let waited = self.told.wait_timeout_while(open, long, |open| !*open);
        self.given_up
            .fetch_add(waited.unwrap().1.timed_out().into(), SeqCst);
    }

    /// Returns when a thread waits.
    fn somebody_waits(&self) {
        while self.waiting.load(SeqCst) == 0 {
            thread::yield_now();
        }
    }
}

impl Device for &Slow {
    fn alloc(&self, length: u64, _device: c_int) -> Result<u64> {
        match length > 1 << 40 {
            true => Err(Error::NoMemory),
            false => Ok(self.next.fetch_add(1 << 40, SeqCst) + (1 << 40)),
        }
    }
    fn memory(&self, _device: c_int) -> Result<(u64, u64)> {
        Ok((1 << 50, 1 << 50))
    }
    fn drain(&self, queue: Queue) -> Result<()> {
        if !self.frees_wait && !self.puts_wait && self.only.is_none_or(|only| only == queue.device)
        {
            self.wait_until_open();
        }
        Ok(())
    }
    fn drain_all(&self, device: c_int) -> Result<()> {
        self.drain(queue(device, 0))
    }
    fn free(&self, _base: u64, _device: c_int) {
        if self.frees_wait {
            self.wait_until_open();
        }
    }
    fn discard(&self, _range: Range, _queue: Queue) -> Result<()> {
        Ok(())
    }
    fn prefetch(&self, _range: Range, _queue: Queue) -> Result<()> {
        Ok(())
    }
    fn failed_prefetches(&self) -> u64 {
        0
    }
    fn wait(&self, queue: Queue, _other: Queue) -> Result<()> {
        if self.puts_wait && self.only.is_none_or(|only| only == queue.device) {
            self.wait_until_open();
        }
        Ok(())
    }
    fn mark(&self, _queue: Queue) -> Result<Mark> {
        Err(Error::NotSupported)
    }
    fn passed(&self, _mark: Mark) -> bool {
        true
    }
    fn reach(&self, _mark: Mark) -> Result<()> {
        Ok(())
    }
    fn capture(&self, _queue: Queue) -> Capture {
        Capture::None
    }
    fn active(&self) -> Vec<c_int> {
        Vec::new()
    }
}

/// A thread waits for the GPU by this, which goes on after an allocation and a free of this thread.
fn others_go_on(gpu: &Slow, waits: impl Fn(&Allocator<&Slow>) + Sync) {
    let a = Allocator::new(gpu);
    let cached = a.malloc(LARGE, S).unwrap();
    a.free(cached);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| waits(&a));
        gpu.somebody_waits();
        let base = a.malloc(LARGE, S).unwrap();
        assert_ne!(base, cached, "nobody has it any more");
        a.free(base);
        gpu.open();
        waiting.join().unwrap();
    });
    assert_eq!(gpu.given_up.load(SeqCst), 0, "a thread waited for this one");
    assert_eq!(a.stats().held_bytes, 12 << 20);
}

#[test]
fn other_threads_allocate_while_one_empties_the_cache() {
    others_go_on(&Slow::default(), |a| a.empty_cache());
    let gpu = Slow {
        frees_wait: true,
        ..Slow::default()
    };
    others_go_on(&gpu, |a| a.empty_cache());
}

#[test]
fn other_threads_allocate_while_one_has_no_memory() {
    let waits = |a: &Allocator<&Slow>| assert_eq!(a.malloc(1 << 41, T), None);
    others_go_on(&Slow::default(), waits);
}

/// The wait would break its capture.
#[test]
fn a_pool_begins_when_nobody_waits_for_the_gpu() {
    let gpu = Slow::default();
    let a = Allocator::new(&gpu);
    a.free(a.malloc(LARGE, S).unwrap());
    let (begun, a) = (AtomicU32::new(0), &a);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| a.empty_cache());
        gpu.somebody_waits();
        let begins = scope.spawn(|| {
            a.begin_pool(0, GraphPool(0, 7));
            begun.store(1, SeqCst);
        });
        thread::sleep(Duration::from_millis(200));
        assert_eq!(begun.load(SeqCst), 0, "a capture begins in a wait");
        gpu.open();
        waiting.join().unwrap();
        begins.join().unwrap();
    });
    assert_eq!(begun.load(SeqCst), 1);
}

/// As where ranks of a collective are threads: one has no memory while another's GPU waits for it.
#[test]
fn no_memory_of_one_device_waits_for_no_other() {
    let gpu = Slow {
        only: Some(1),
        ..Slow::default()
    };
    let a = Allocator::new(&gpu);
    for queue in [S, queue(1, 16)] {
        a.free(a.malloc(LARGE, queue).unwrap());
    }
    assert_eq!(a.malloc(1 << 41, T), None);
    assert_eq!(
        gpu.waiting.load(SeqCst),
        0,
        "the other device is waited for"
    );
    let held = [0, 1].map(|device| a.device_stats(device).reserved_bytes.current);
    assert_eq!(held, [0, 12 << 20]);
    gpu.open();
    a.empty_cache();
    assert_eq!(a.stats().held_bytes, 0);
}

#[test]
fn a_pool_begins_while_somebody_waits_for_another_device() {
    let gpu = Slow {
        only: Some(0),
        ..Slow::default()
    };
    let a = Allocator::new(&gpu);
    a.free(a.malloc(LARGE, S).unwrap());
    thread::scope(|scope| {
        let waiting = scope.spawn(|| a.malloc(1 << 41, S));
        gpu.somebody_waits();
        a.begin_pool(1, GraphPool(0, 7));
        gpu.open();
        assert_eq!(waiting.join().unwrap(), None);
    });
    assert_eq!(gpu.given_up.load(SeqCst), 0, "the pool waited");
}

/// As where a stream's queue is full, which empties only when the other GPU comes as far: a thread
/// is in CUDA with the lock of the first.
fn held_up(meanwhile: impl Fn(&Allocator<&Slow>, &Slow)) {
    let gpu = Slow {
        only: Some(0),
        puts_wait: true,
        ..Slow::default()
    };
    let a = Allocator::new(&gpu);
    let base = a.malloc(LARGE, S).unwrap();
    a.record_stream(base, T.stream);
    thread::scope(|scope| {
        let frees = scope.spawn(|| a.free(base));
        gpu.somebody_waits();
        meanwhile(&a, &gpu);
        gpu.open();
        frees.join().unwrap();
    });
    assert_eq!(gpu.given_up.load(SeqCst), 0, "a thread waited for this one");
    assert_eq!(a.malloc(LARGE, S), Some(base));
}

#[test]
fn one_device_goes_on_while_a_call_of_anothers_waits() {
    held_up(|a, _| {
        let its = queue(1, 16);
        let base = a.malloc(LARGE, its).unwrap();
        a.record_stream(base, T.stream);
        a.record_stream_on(base, queue(1, 48));
        a.discarded_lazily(Range {
            base,
            length: LARGE as u64,
        });
        a.free(base);
        assert_eq!(a.malloc(LARGE, its), Some(base));
        assert_eq!(a.malloc(1 << 41, its), None, "which empties the cache");
        a.set_fraction(1, 0.5);
        a.reset_peaks(1);
        a.release_pool(1, GraphPool(0, 7));
        a.end_pool(1, GraphPool(0, 7));
        assert_eq!(a.device_stats(1).blocks.current, 1);
    });
}

/// It has looked before whether there is a capture, and what it puts there would be part of that.
#[test]
fn a_pool_begins_when_what_is_put_into_a_stream_of_its_device_is_there() {
    let begun = AtomicU32::new(0);
    held_up(|a, gpu| {
        thread::scope(|scope| {
            let begins = scope.spawn(|| {
                a.begin_pool(0, GraphPool(0, 7));
                begun.store(1, SeqCst);
            });
            thread::sleep(Duration::from_millis(200));
            assert_eq!(begun.load(SeqCst), 0, "a capture begins in a call");
            gpu.open();
            begins.join().unwrap();
        });
        a.end_pool(0, GraphPool(0, 7));
    });
    assert_eq!(begun.load(SeqCst), 1);
}

/// As where ranks of a collective are threads: one begins a capture while another's call waits for
/// what the first launches next.
#[test]
fn a_pool_begins_while_a_call_of_another_device_waits() {
    held_up(|a, _| {
        a.begin_pool(1, GraphPool(0, 7));
        a.end_pool(1, GraphPool(0, 7));
    });
}

/// The devices are given back to, and counted, together.
#[test]
fn what_all_devices_have_done_is_told_as_one() {
    let gpu = Slow::default();
    gpu.open();
    let (a, mut bases) = (Allocator::new(&gpu), Vec::new());
    for device in 0..3 {
        let its = queue(device, 16);
        a.free(a.malloc(LARGE, its).unwrap());
        bases.push(a.malloc(LARGE, its).unwrap());
    }
    let stats = a.stats();
    assert_eq!((stats.mallocs, stats.reused), (6, 3));
    assert_eq!(stats.held_bytes, 3 * LARGE as u64);
    bases.into_iter().for_each(|base| a.free(base));
    assert!(lock(&a.homes).is_empty(), "of what is free");
}
