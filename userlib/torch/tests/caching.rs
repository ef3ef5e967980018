// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The allocator against a model of PyTorch's own, on the allocations of training steps, where
//! all fits the GPU: no more memory of CUDA's, and no more calls.
//!
//! The steps are those of the simulator's zoo (`sim/zoo`), built from shapes: in the order of
//! kernels, weights and optimizer state first and for good, then what a step makes, from its
//! first use to its last.
//!
//! What a real PyTorch has allocated is there as well (`caching/*.txt`), with its temporaries:
//! `userlib/tests/record_allocations.py` records it. `RECORDED=FOLDER` adds other recordings.
//!
//! `ALL=1 cargo test --release -p uvmrust-torch --test caching -- --nocapture` prints the tables
//! with all of the zoo; without ALL it is those that take little time.

#![allow(clippy::unwrap_used)]

use core::ffi::c_int;
use std::cell::RefCell;
use std::collections::HashMap;

use uvmrust::{Range, Result};
use uvmrust_torch::{Allocator, Capture, Device, Mark, Queue, StreamId};
use uvmsim_zoo::{Entry, Options, Precision, NETS};

#[path = "caching/model.rs"]
mod model;

use model::Event::{self, Alloc, Free};
use model::{recordings, Model, Outcome, Recording};

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
    fn failed_prefetches(&self) -> u64 {
        0
    }
    fn wait(&self, _queue: Queue, _other: Queue) -> Result<()> {
        self.did.borrow_mut().others += 1;
        Ok(())
    }
    fn mark(&self, _queue: Queue) -> Result<Mark> {
        self.did.borrow_mut().others += 1;
        Ok(Mark {
            event: 1,
            context: 1,
        })
    }
    fn passed(&self, _mark: Mark) -> bool {
        true
    }
    fn reach(&self, _mark: Mark) -> Result<()> {
        self.did.borrow_mut().others += 1;
        Ok(())
    }
    fn capture(&self, _queue: Queue) -> Capture {
        Capture::None
    }
    fn active(&self) -> Vec<c_int> {
        vec![0]
    }
}

/// The allocations of some steps of a network.
fn sequence(net: &Entry, steps: usize) -> Vec<Event> {
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
    events
}

/// The most bytes asked for at once.
fn asked(events: &[Event]) -> u64 {
    let (mut now, mut most) = (0, 0);
    let mut sizes = HashMap::new();
    for event in events {
        match *event {
            Alloc(id, bytes) => {
                sizes.insert(id, bytes);
                now += bytes;
            }
            Free(id) => now -= sizes[&id],
        }
        most = most.max(now);
    }
    most
}

fn play(events: &[Event], allocator: &Allocator<&Gpu>) {
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

/// Plays a sequence on a GPU with room for all and on one with half of that, and prints its line.
/// Where all fits, ours has no more of CUDA's memory than PyTorch's, in no more calls.
fn compare(name: &str, events: &[Event]) {
    let model = Model::play(events);
    let asked = asked(events);
    let gpu = Gpu::default();
    let ours = Allocator::new(&gpu);
    play(events, &ours);
    let did = *gpu.did.borrow();
    let stats = ours.device_stats(0);
    let outcome = Outcome {
        allocs: did.allocs,
        reserved: stats.reserved_bytes.peak,
    };
    assert!(
        outcome.reserved <= model.reserved && outcome.allocs <= model.allocs,
        "{name}: {outcome:?} {model:?}"
    );
    // And nothing else is called.
    let called = (did.discards, did.prefetches, did.others);
    assert_eq!(called, (0, 0, 0), "{name}");
    assert_eq!(stats.requested_bytes.peak, asked, "{name}");

    // On a GPU with half of that, there is something to discard.
    let half = Gpu {
        bytes: Some(asked / 2),
        ..Gpu::default()
    };
    let short = Allocator::new(&half);
    play(events, &short);
    let discarded = short.device_stats(0).discarded_bytes;
    let discards = half.did.borrow().discards;
    assert!(discarded > 0 && discards > 0, "{name}");
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    println!(
        "{name:16} {:9.1} {:9.1} {:9.1} {:9.1} {:7} {:7} {:7}  {discards} of {:.0} MiB",
        mib(asked),
        mib(stats.allocated_bytes.peak),
        mib(model.reserved),
        mib(outcome.reserved),
        events.iter().filter(|e| matches!(e, Alloc(..))).count(),
        model.allocs,
        outcome.allocs,
        mib(discarded),
    );
}

fn heading() {
    println!(
        "{:16} {:>9} {:>9} {:>9} {:>9} {:>7} {:>7} {:>7}  discards with half",
        "MiB at most", "asked", "given", "PyTorch", "ours", "allocs", "PyTorch", "ours"
    );
}

#[test]
fn it_is_no_worse_than_pytorchs_own_when_all_fits() {
    heading();
    let all = std::env::var_os("ALL").is_some();
    for net in NETS.iter().filter(|net| all || QUICK.contains(&&*net.name)) {
        compare(&net.name, &sequence(net, 2));
    }
}

#[test]
fn nor_on_what_a_real_pytorch_has_allocated() {
    heading();
    let recordings = recordings();
    assert!(recordings.len() >= 2);
    for Recording { name, path, events } in recordings {
        assert!(events.len() > 1000, "{}", path.display());
        compare(&name, &events);
    }
}
