// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Sequences of allocations, and a model of PyTorch's own allocator that plays them.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// An allocation or a free, by a number of the sequence's own.
#[derive(Clone, Copy)]
pub enum Event {
    Alloc(usize, u64),
    Free(usize),
}
use Event::{Alloc, Free};

/// The events of a recording's lines.
fn events(text: &str) -> Vec<Event> {
    let mut next = 0..;
    let event = |line: &str| match line.split_at(1) {
        ("+", bytes) => Alloc(next.next().unwrap(), bytes.parse().unwrap()),
        ("-", number) => Free(number.parse().unwrap()),
        _ => panic!("{line}"),
    };
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(event).collect()
}

/// A file of `userlib/tests/record_allocations.py`.
pub struct Recording {
    pub name: String,
    pub path: PathBuf,
    pub events: Vec<Event>,
}

/// The recordings that are here, and those of the folder RECORDED.
pub fn recordings() -> Vec<Recording> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/caching");
    let more = std::env::var_os("RECORDED").map(PathBuf::from);
    let folders = [Some(here), more].into_iter().flatten();
    let entries = folders.flat_map(|folder| std::fs::read_dir(folder).unwrap());
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|end| end == "txt"));
    files.sort();
    let read = |path: PathBuf| Recording {
        name: path.file_stem().unwrap().to_str().unwrap().to_owned(),
        events: events(&std::fs::read_to_string(&path).unwrap()),
        path,
    };
    files.into_iter().map(read).collect()
}

/// What came of a sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Calls of CUDA to allocate.
    pub allocs: u64,
    /// The most bytes had from CUDA at once.
    pub reserved: u64,
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
pub struct Model {
    segments: Vec<Segment>,
    given: HashMap<usize, (usize, u64)>,
    outcome: Outcome,
}

impl Model {
    pub fn play(events: &[Event]) -> Outcome {
        let mut model = Self::default();
        for event in events {
            match *event {
                Alloc(id, bytes) => model.alloc(id, bytes),
                Free(id) => model.free(id),
            }
        }
        model.outcome
    }

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
