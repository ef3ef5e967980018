// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The allocator against a model of PyTorch's own, on the allocations of training steps, where
//! all fits the GPU: no more memory of CUDA's, and no more calls.
//!
//! The steps are those of the simulator's zoo (`sim/zoo`), built from shapes: in the order of
//! kernels, weights and optimizer state first and for good, then what a step makes, from its
//! first use to its last. They are no recordings of PyTorch, whose temporaries are more.
//! `ALL=1 cargo test --release -p uvmrust-torch --test caching -- --nocapture` prints the table
//! of all of them; without ALL it is those that take little time.

#![allow(clippy::unwrap_used)]

use core::ffi::c_int;
use std::cell::RefCell;
use std::collections::HashMap;

use uvmrust::{Range, Result};
use uvmrust_torch::{Allocator, Capture, Device, Queue, StreamId};
use uvmsim_zoo::{Entry, Options, Precision, NETS};

/// Networks with few enough tensors for each run of the tests, of each family.
const QUICK: [&str; 7] = [
    "alexnet",
    "vgg16",
    "resnet50",
    "mobilenet",
    "dcgan",
    "bert-base",
    "dlrm",
];

/// An allocation or a free, by a number of the sequence's own.
#[derive(Clone, Copy)]
enum Event {
    Alloc(usize, u64),
    Free(usize),
}
use Event::{Alloc, Free};

/// What came of a sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Outcome {
    /// Calls of CUDA to allocate.
    allocs: u64,
    /// The most bytes had from CUDA at once.
    reserved: u64,
}

/// A segment of the model's.
struct Segment {
    small: bool,
    /// Bytes, and whether they are free.
    blocks: Vec<(u64, bool)>,
    /// Of the largest free block, to look no further.
    largest: u64,
}

impl Segment {
    fn changed(&mut self) {
        let free = self.blocks.iter().filter(|block| block.1);
        self.largest = free.map(|block| block.0).max().unwrap_or(0);
    }
}

/// PyTorch's caching allocator without options, as c10/cuda/CUDACachingAllocator.cpp has it
/// (2.9): `round_size`, `get_pool`, `get_free_block`, `get_allocation_size`, `should_split`,
/// `free_block` and `try_merge_blocks`; one stream. Nothing is ever given back to CUDA, as
/// there where memory suffices. Written for this test, and slow: lists that are searched.
#[derive(Default)]
struct Model {
    segments: Vec<Segment>,
    given: HashMap<usize, (usize, u64)>,
    outcome: Outcome,
}

impl Model {
    fn alloc(&mut self, id: usize, bytes: u64) {
        let size = bytes.max(512).next_multiple_of(512);
        let small = size <= 1 << 20;
        // The smallest that is large enough; of several, that of the lowest address. Segments
        // are at rising addresses.
        let mut best: Option<(u64, usize, usize)> = None;
        let fits = |segment: &Segment| segment.small == small && segment.largest >= size;
        for (s, segment) in self.segments.iter().enumerate().filter(|(_, s)| fits(s)) {
            for (b, &(length, free)) in segment.blocks.iter().enumerate() {
                let fits = free && length >= size;
                if fits && best.is_none_or(|(smallest, ..)| length < smallest) {
                    best = Some((length, s, b));
                }
            }
        }
        let (length, s, b) = best.unwrap_or_else(|| {
            let length = match size {
                _ if small => 2 << 20,
                _ if size < 10 << 20 => 20 << 20,
                _ => size.next_multiple_of(2 << 20),
            };
            self.outcome.allocs += 1;
            self.outcome.reserved += length;
            let (blocks, largest) = (vec![(length, true)], length);
            self.segments.push(Segment {
                small,
                blocks,
                largest,
            });
            (length, self.segments.len() - 1, 0)
        });
        let blocks = &mut self.segments[s].blocks;
        let rest = length - size;
        if (small && rest >= 512) || rest > 1 << 20 {
            blocks[b] = (size, false);
            blocks.insert(b + 1, (rest, true));
        } else {
            blocks[b].1 = false;
        }
        let offset = blocks[..b].iter().map(|(length, _)| length).sum();
        self.segments[s].changed();
        self.given.insert(id, (s, offset));
    }

    fn free(&mut self, id: usize) {
        let (s, offset) = self.given.remove(&id).unwrap();
        let blocks = &mut self.segments[s].blocks;
        let (mut at, mut before) = (0, 0);
        while before < offset {
            before += blocks[at].0;
            at += 1;
        }
        blocks[at].1 = true;
        if blocks.get(at + 1).is_some_and(|block| block.1) {
            blocks[at].0 += blocks.remove(at + 1).0;
        }
        if at > 0 && blocks[at - 1].1 {
            blocks[at - 1].0 += blocks.remove(at).0;
        }
        self.segments[s].changed();
    }
}

/// A GPU with room for all, or, with a size, one of which others use nothing.
#[derive(Default)]
struct Gpu {
    bytes: Option<u64>,
    next: RefCell<u64>,
    did: RefCell<Counts>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    allocs: u64,
    others: u64,
    discards: u64,
    prefetches: u64,
}

impl Device for &Gpu {
    fn alloc(&self, length: u64, _device: c_int) -> Result<u64> {
        self.did.borrow_mut().allocs += 1;
        let mut next = self.next.borrow_mut();
        *next += 1 << 40;
        Ok(*next - length)
    }
    fn memory(&self, _device: c_int) -> Result<(u64, u64)> {
        let all = self.bytes.unwrap_or(1 << 50);
        Ok((all, all))
    }
    fn drain(&self, _queue: Queue) -> Result<()> {
        self.did.borrow_mut().others += 1;
        Ok(())
    }
    fn drain_all(&self, _device: c_int) -> Result<()> {
        self.did.borrow_mut().others += 1;
        Ok(())
    }
    fn free(&self, _base: u64, _device: c_int) {
        self.did.borrow_mut().others += 1;
    }
    fn discard(&self, _range: Range, _queue: Queue) -> Result<()> {
        self.did.borrow_mut().discards += 1;
        Ok(())
    }
    fn prefetch(&self, _range: Range, _queue: Queue) -> Result<()> {
        self.did.borrow_mut().prefetches += 1;
        Ok(())
    }
    fn wait(&self, _queue: Queue, _other: Queue) -> Result<()> {
        self.did.borrow_mut().others += 1;
        Ok(())
    }
    fn capture(&self, _queue: Queue) -> Capture {
        Capture::None
    }
    fn current(&self) -> Option<c_int> {
        Some(0)
    }
}

/// The allocations of some steps of a network, and the most bytes asked for at once.
fn sequence(net: &Entry, steps: usize) -> (Vec<Event>, u64) {
    let options = Options::new(net.batch, Precision::Fp32);
    let step = net.build(&options).trace;
    let lives = step.lifetimes();
    let alloc = |id: usize| Alloc(id, step.tensors[id].bytes);
    let persistent = |id: usize| step.tensors[id].kind.is_persistent();
    let all = 0..step.tensors.len();
    let mut events: Vec<Event> = all
        .clone()
        .filter(|&id| persistent(id))
        .map(alloc)
        .collect();
    let mut born = vec![Vec::new(); step.kernels.len()];
    let mut dead = vec![Vec::new(); step.kernels.len()];
    for id in all.filter(|&id| !persistent(id)) {
        if let Some((first, last)) = lives[id] {
            // An input is there from the start of the step.
            let first = if step.tensors[id].kind.exists_at_start() {
                0
            } else {
                first
            };
            born[first].push(id);
            dead[last].push(id);
        }
    }
    for _ in 0..steps {
        for k in 0..step.kernels.len() {
            events.extend(born[k].iter().map(|&id| alloc(id)));
            events.extend(dead[k].iter().map(|&id| Free(id)));
        }
    }
    let (mut now, mut most) = (0, 0);
    for event in &events {
        match *event {
            Alloc(_, bytes) => now += bytes,
            Free(id) => now -= step.tensors[id].bytes,
        }
        most = most.max(now);
    }
    (events, most)
}

fn play(events: &[Event], allocator: &mut Allocator<&Gpu>) {
    let queue = Queue {
        device: 0,
        stream: StreamId(16),
    };
    let mut given = HashMap::new();
    for event in events {
        match *event {
            Alloc(id, bytes) => {
                let base = allocator.malloc(bytes as usize, queue).unwrap();
                given.insert(id, base);
            }
            Free(id) => allocator.free(given.remove(&id).unwrap()),
        }
    }
}

#[test]
fn it_is_no_worse_than_pytorchs_own_when_all_fits() {
    println!(
        "{:16} {:>9} {:>9} {:>9} {:>7} {:>7}  discards with half",
        "net", "MiB", "PyTorch", "ours", "calls", "ours"
    );
    let all = std::env::var_os("ALL").is_some();
    for net in NETS.iter().filter(|net| all || QUICK.contains(&&*net.name)) {
        let (events, asked) = sequence(net, 2);
        let mut model = Model::default();
        for event in &events {
            match *event {
                Alloc(id, bytes) => model.alloc(id, bytes),
                Free(id) => model.free(id),
            }
        }
        let gpu = Gpu::default();
        let mut ours = Allocator::new(&gpu);
        play(&events, &mut ours);
        let did = *gpu.did.borrow();
        let stats = ours.device_stats(0);
        let outcome = Outcome {
            allocs: did.allocs,
            reserved: stats.reserved_bytes.peak,
        };
        assert!(
            outcome.reserved <= model.outcome.reserved,
            "{}: {outcome:?} {:?}",
            net.name,
            model.outcome
        );
        assert!(
            outcome.allocs <= model.outcome.allocs,
            "{}: {outcome:?} {:?}",
            net.name,
            model.outcome
        );
        // And nothing else is called.
        assert_eq!(
            (did.discards, did.prefetches, did.others),
            (0, 0, 0),
            "{}",
            net.name
        );
        assert_eq!(stats.requested_bytes.peak, asked, "{}", net.name);

        // On a GPU with half of that, there is something to discard.
        let half = Gpu {
            bytes: Some(asked / 2),
            ..Gpu::default()
        };
        let mut short = Allocator::new(&half);
        play(&events, &mut short);
        let discarded = short.device_stats(0).discarded_bytes;
        assert!(
            discarded > 0 && half.did.borrow().discards > 0,
            "{}",
            net.name
        );
        let m = |bytes: u64| bytes >> 20;
        println!(
            "{:16} {:9} {:9} {:9} {:7} {:7}  {} of {} MiB",
            net.name,
            m(asked),
            m(model.outcome.reserved),
            m(outcome.reserved),
            model.outcome.allocs,
            outcome.allocs,
            half.did.borrow().discards,
            m(discarded),
        );
    }
}

/// The model does what is known of PyTorch's allocator.
#[test]
fn the_model_splits_and_merges() {
    let mut model = Model::default();
    model.alloc(0, 3 << 20);
    model.alloc(1, 5 << 20);
    model.alloc(2, 100);
    assert_eq!(
        model.outcome,
        Outcome {
            allocs: 2,
            reserved: 22 << 20
        }
    );
    model.free(0);
    model.alloc(3, 8 << 20);
    assert_eq!(model.given[&3], (0, 8 << 20), "behind, where there is room");
    model.free(1);
    model.alloc(4, 7 << 20);
    assert_eq!(model.given[&4], (0, 0), "both together");
    model.alloc(5, 11 << 20);
    assert_eq!(
        model.outcome,
        Outcome {
            allocs: 3,
            reserved: 34 << 20
        }
    );
}
