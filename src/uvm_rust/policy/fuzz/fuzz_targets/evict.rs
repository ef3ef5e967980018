// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Any sequence of calls, with chunks and owners that there are not: no panic, and the
//! queues, the marks and every choice are those of plain lists.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::collections::HashMap;
use uvm_policy::evict::{spared, Change, Owner, Queue, Queues, RootChunks, Victim, OWNERS};

const KINDS: [Queue; 4] = [Queue::Unused, Queue::Discarded, Queue::Used, Queue::Used];
/// How many marked chunks are passed over: as many as `RootChunks` looks at.
const PATIENCE: usize = 64;
/// The process that has all chunks, and that each owner is.
const HOLDER: u64 = 1;

/// What `RootChunks` has to be, without links.
struct Plain {
    /// Those that are on a queue, in order of arrival.
    on: Vec<u32>,
    belongs: Vec<Queue>,
    marks: Vec<(Owner, u32)>,
    now: HashMap<Owner, u32>,
}

impl Plain {
    fn left(&self, owner: Owner, until: u32) -> Option<u32> {
        let now = self.now.get(&owner)?;
        u32::try_from(until.wrapping_sub(*now) as i32).ok()
    }

    fn needed_in(&self, chunk: u32) -> Option<u32> {
        let (owner, until) = *self.marks.get(chunk as usize)?;
        self.left(owner, until)
    }

    fn on_queue(&self, queue: Queue) -> impl Iterator<Item = u32> + '_ {
        let of = move |c: &u32| self.belongs[*c as usize] == queue;
        self.on.iter().copied().filter(of)
    }

    /// The used chunks that are looked at.
    fn used(&self) -> impl Iterator<Item = u32> + '_ {
        self.on_queue(Queue::Used).take(PATIENCE)
    }

    fn early(&self) -> Option<u32> {
        self.used().find(|&c| self.needed_in(c).is_none())
    }

    fn victim(&self) -> Option<Victim> {
        let plain = |chunk, queue, expected| Victim {
            chunk,
            queue,
            expected,
        };
        for queue in [Queue::Unused, Queue::Discarded] {
            if let Some(c) = self.on_queue(queue).next() {
                return Some(plain(c, queue, false));
            }
        }
        // Where nobody announces, only the oldest goes ahead of what is marked.
        let reach = if self.now.is_empty() { 1 } else { PATIENCE };
        let unmarked = |&c: &u32| self.needed_in(c).is_none();
        if let Some(c) = self.used().take(reach).find(unmarked) {
            return Some(plain(c, Queue::Used, false));
        }
        // The first of those that are needed last.
        let last = self.used().map(|c| self.needed_in(c)).max()?;
        let c = self.used().find(|&c| self.needed_in(c) == last)?;
        Some(plain(c, Queue::Used, true))
    }

    fn arrive(&mut self, chunk: u32) {
        self.on.retain(|&c| c != chunk);
        self.on.push(chunk);
    }
}

fn roots(chunks: u32, ops: &[u8]) {
    let mut s = RootChunks::new(chunks).expect("memory");
    for chunk in 0..chunks {
        s.used_by(chunk, HOLDER).expect("a chunk of this GPU");
    }
    let mut p = Plain {
        on: Vec::new(),
        belongs: vec![Queue::Used; chunks as usize],
        marks: vec![(0, 0); chunks as usize],
        now: HashMap::new(),
    };
    for op in ops.chunks_exact(4) {
        let chunk = u32::from(op[1]);
        let there = chunk < chunks;
        let (owner, number) = (u32::from(op[2]), u32::from(op[3]) << 24);
        match op[0] & 15 {
            0..=2 => {
                let queue = KINDS[usize::from(op[3] & 3)];
                assert_eq!(s.set(chunk, queue).is_ok(), there);
                if there {
                    p.belongs[chunk as usize] = queue;
                    if p.on.contains(&chunk) {
                        p.arrive(chunk);
                    }
                }
            }
            3..=6 => {
                assert_eq!(s.insert(chunk, HOLDER).is_ok(), there);
                if there {
                    p.arrive(chunk);
                }
            }
            7 => {
                let was = p.on.contains(&chunk).then(|| p.belongs[chunk as usize]);
                assert_eq!(s.remove(chunk), was);
                p.on.retain(|&c| c != chunk);
            }
            8 => {
                let owner = s.add_owner(HOLDER);
                assert!(owner != 0 && !p.now.contains_key(&owner));
                // Once all places are taken, the one that came first goes.
                if p.now.len() == OWNERS as usize {
                    let first = p.now.keys().copied().min().expect("an owner");
                    p.now.remove(&first);
                }
                p.now.insert(owner, 0);
            }
            9 => {
                s.remove_owner(owner);
                p.now.remove(&owner);
            }
            10 | 11 => {
                let known = p.now.get_mut(&owner).map(|n| *n = number).is_some();
                assert_eq!(s.set_now(owner, number), known);
            }
            12..=14 => {
                s.expect(chunk, owner, number);
                let left = p.left(owner, number);
                if there && left.is_some() && left > p.needed_in(chunk) {
                    p.marks[chunk as usize] = (owner, number);
                }
            }
            _ => {
                s.unexpect(chunk);
                if there {
                    p.marks[chunk as usize] = (0, 0);
                }
            }
        }
        assert_eq!(s.needed_in(chunk), p.needed_in(chunk));
        assert_eq!((s.victim(), s.pick_early(HOLDER)), (p.victim(), p.early()));
        for queue in Queue::ORDER {
            assert_eq!(s.length(queue) as usize, p.on_queue(queue).count());
        }
    }
}

/// The queues alone, with takes that fail.
fn queues(chunks: u32, ops: &[u8]) {
    let mut s = Queues::new(chunks).expect("memory");
    let mut p: [Vec<u32>; 4] = Default::default();
    let mut reclaimed = [0_u64; 4];
    let mut taken: Vec<Victim> = Vec::new();
    for op in ops.chunks_exact(3) {
        let chunk = u32::from(op[1]);
        let queue = Queue::ORDER[usize::from(op[2] & 3)];
        let was = Queue::ORDER
            .into_iter()
            .find(|&q| p[q as usize].contains(&chunk));
        match op[0] & 3 {
            0 | 1 => {
                let got = s.enqueue(chunk, queue);
                assert_eq!(got.ok(), (chunk < chunks).then_some(was));
                if chunk < chunks {
                    p.iter_mut().for_each(|q| q.retain(|&c| c != chunk));
                    p[queue as usize].push(chunk);
                }
            }
            2 => {
                let victim = s.take(1, |_| None);
                let first = Queue::ORDER
                    .into_iter()
                    .find(|&q| !p[q as usize].is_empty());
                assert_eq!(victim.map(|v| v.queue), first);
                if let Some(v) = victim {
                    assert_eq!(v.chunk, p[v.queue as usize].remove(0));
                    reclaimed[v.queue as usize] += 1;
                    taken.push(v);
                }
            }
            // It may have come to another queue in the meantime.
            _ => {
                let Some(v) = taken.pop() else { continue };
                assert!(s.put_back(v).is_ok());
                p.iter_mut().for_each(|q| q.retain(|&c| c != v.chunk));
                p[v.queue as usize].push(v.chunk);
                reclaimed[v.queue as usize] -= 1;
            }
        }
        for q in Queue::ORDER {
            assert!(s.iter(q).eq(p[q as usize].iter().copied()));
            assert_eq!(s.counts().lengths[q as usize] as usize, p[q as usize].len());
        }
        assert_eq!(s.counts().reclaimed, reclaimed);
        assert_eq!(s.available() as usize, p[..3].iter().map(Vec::len).sum());
    }
}

/// What lows are to come to, without lists for each process.
struct Lows {
    roots: RootChunks,
    /// The used chunks, the oldest first.
    used: Vec<u32>,
    lows: HashMap<u64, u32>,
    heeded: bool,
    /// Processes of which chunks may be on their way to another list.
    settling: Vec<u64>,
    chunks: u32,
}

impl Lows {
    fn held(&self, holder: u64) -> u32 {
        let held = (0..self.chunks).filter(|c| self.roots.holder_of(*c) == holder);
        held.count() as u32
    }

    fn is_protected(&self, chunk: u32) -> bool {
        let holder = self.roots.holder_of(chunk);
        let low = self.lows.get(&holder).copied().unwrap_or(0);
        low > 0 && self.held(holder) <= low
    }

    /// The used chunk that goes first.
    fn first(&self) -> Option<u32> {
        let may_go: Vec<_> = self
            .used
            .iter()
            .filter(|c| !self.is_protected(**c))
            .collect();
        let some = may_go.len() > spared(self.chunks) as usize;
        let first = if some { may_go[0] } else { self.used.first()? };
        Some(*first)
    }

    fn uses(&mut self, chunk: u32, holder: u64) {
        self.roots.used_by(chunk, holder).expect("a chunk");
        self.roots
            .change(chunk, Change::Whole(holder))
            .expect("a chunk");
        self.used.retain(|c| *c != chunk);
        self.used.push(chunk);
    }

    fn leaves(&mut self, chunk: u32, change: Change) {
        self.roots.change(chunk, change).expect("a chunk");
        self.used.retain(|c| *c != chunk);
    }

    /// As the driver does, which has lows heeded before it sets one. There are places for all.
    fn sets(&mut self, holder: u64, low: u32) {
        assert!(self.roots.protect(holder, low, self.held(holder)));
        self.lows.insert(holder, low);
        self.roots.unsettle_low(holder);
        self.settling.push(holder);
    }

    fn settles(&mut self, holder: u64, most: u32) {
        if self.roots.settle_low(holder, most) {
            self.settling.retain(|of| *of != holder);
        }
    }
}

/// Lows that are set, and are no more, while chunks come and go.
fn lows(chunks: u32, ops: &[u8]) {
    let mut w = Lows {
        roots: RootChunks::new(chunks).expect("memory"),
        used: Vec::new(),
        lows: HashMap::new(),
        heeded: false,
        settling: Vec::new(),
        chunks,
    };
    for op in ops.chunks_exact(4) {
        let (chunk, holder) = (u32::from(op[1]), u64::from(op[2] % 48));
        let number = u32::from(op[3] % 16);
        match op[0] & 15 {
            0..=5 if chunk < chunks => w.uses(chunk, holder),
            6 if chunk < chunks => w.leaves(chunk, Change::Free { zeroed: false }),
            7 if chunk < chunks => w.leaves(chunk, Change::Pinned),
            8 | 9 => w.heeded |= w.roots.heed_lows(number),
            10..=12 if w.heeded && holder > 0 && w.held(holder) > 0 => w.sets(holder, number / 2),
            13.. => w.settles(holder, number),
            _ => {}
        }
        let held: Vec<_> = w
            .lows
            .keys()
            .filter(|of| w.held(**of) == 0)
            .copied()
            .collect();
        held.iter().for_each(|of| _ = w.lows.remove(of));
        let Some(victim) = w.roots.victim().filter(|v| v.queue == Queue::Used) else {
            continue;
        };
        if w.settling.is_empty() {
            assert_eq!(Some(victim.chunk), w.first());
        } else {
            assert!(w.used.contains(&victim.chunk));
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let [head, ops @ ..] = data else { return };
    let chunks = u32::from(head / 3);
    match head % 3 {
        0 => roots(chunks, ops),
        1 => queues(chunks, ops),
        _ => lows(chunks, ops),
    }
});
