// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Everybody else: what runs while the worker does. Each `await` is a point where a lock is let go,
//! or waited for.

use super::world::{holder, Block, State, World, OURS, THEIRS};
use super::*;

/// Pages of a va_block of the model.
const PAGES: u16 = 4;

fn some_pages(w: &World) -> PageMask {
    let first = w.below(PAGES.into()) as u16;
    Region::new(first, PAGES).into()
}

/// A va_block of nothing yet.
pub(super) fn fresh(space: usize, um: u32) -> Block {
    Block {
        space,
        um,
        alive: true,
        locked: false,
        hindrances: Hindrances::default(),
        pages: Pages::default(),
        stored: PageMask::EMPTY,
        asked: PageMask::EMPTY,
        read: PageMask::EMPTY,
        counts: false,
        told: false,
        failed: false,
        chunk: None,
    }
}

/// The process: runs its kernels, 1 to `kernels`, `times` times, each on blocks of its own and
/// on one that it shares with the next; sometimes in another order.
pub(super) async fn program(w: &World, kernels: u32, times: u32) {
    for n in 0..times * kernels {
        let regular = n % kernels + 1;
        let id = match w.chance(8) {
            true => 1 + w.below(kernels as usize) as u32,
            false => regular,
        };
        w.announce(id);
        // It computes, too.
        let slow = [1, 10, 60][w.below(3)];
        for um in [2 * id, 2 * id + 1, 2 * id + 2] {
            w.pauses(slow).await;
            fault(w, OURS, um).await;
        }
    }
    w.announce(0);
}

/// Another process: faults on its memory, and marks some of it as expected.
pub(super) async fn neighbour(w: &World, times: u32) {
    let owner = w.now().roots.add_owner(holder(THEIRS));
    let generation = w.now().generation;
    for now in 0..times {
        w.pause().await;
        fault(w, THEIRS, 100 + w.below(4) as u32).await;
        let s = &mut *w.now();
        if s.generation == generation {
            s.roots.set_now(owner, now);
            let theirs = s.blocks.iter().filter(|b| b.space == THEIRS);
            if let Some(chunk) = theirs.filter_map(|b| b.chunk).next() {
                s.roots.expect(chunk, owner, now + 2);
            }
        }
    }
}

/// The fault service, for one fault of any process.
async fn fault(w: &World, space: usize, um: u32) {
    let find = move |b: &Block| b.space == space && b.um == um && b.alive;
    w.until(move |s| {
        // What faults later than its VA space ends, or while the GPU is away, is stale.
        let free = !s.serving;
        s.serving = true;
        free.then_some(())
    })
    .await;
    w.until(move |s| s.spaces[space].try_read().then_some(()))
        .await;
    let found = w.now().blocks.iter().position(find);
    if let Some(b) = found.filter(|_| space == THEIRS || w.now().registered) {
        serve(w, b).await;
        let block = UmBlock(um);
        if space == OURS && w.feed.fault(block) {
            w.now().woken = true;
        }
    }
    w.now().spaces[space].read_unlock();
    w.pause().await;
    w.now().serving = false;
}

/// Upstream's service of a va_block: all of it comes to the GPU.
async fn serve(w: &World, b: usize) {
    lock(w, b).await;
    while !has_chunk(w, b) {
        // All chunks are of va_blocks that are being worked on.
        w.now().blocks[b].locked = false;
        w.pause().await;
        lock(w, b).await;
    }
    let s = &mut *w.now();
    let p = &mut s.blocks[b].pages;
    p.populated = Region::new(0, PAGES).into();
    p.there = p.populated;
    p.discarded = PageMask::EMPTY;
    // What the SSD has is read for the fault.
    let is_read = !core::mem::take(&mut s.blocks[b].stored).is_empty();
    s.blocks[b].counts = false;
    if is_read {
        read_ended(w, s, b);
    }
    s.requeue(b);
    if let (OURS, Some(chunk)) = (s.blocks[b].space, s.blocks[b].chunk) {
        s.came_for[chunk as usize] = s.running;
    }
    s.blocks[b].locked = false;
}

/// A read of the locked va_block has ended, whoever made it, or was tried.
fn read_ended(w: &World, s: &mut State, b: usize) {
    let block = &mut s.blocks[b];
    if block.told {
        block.told = !block.coming().is_empty();
        w.feed.read_ended();
        s.woken = true;
    }
}

/// Gets a chunk for the locked va_block, if it needs one; whether it has one now.
fn has_chunk(w: &World, b: usize) -> bool {
    let s = &mut *w.now();
    if s.blocks[b].chunk.is_none() {
        let victim = s.roots.pick().filter(|c| !s.is_locked(*c));
        let taken = s.free.pop().or_else(|| victim.inspect(|c| s.evict(*c)));
        if let Some(chunk) = taken {
            s.back(b, chunk);
        }
    }
    s.blocks[b].chunk.is_some()
}

async fn lock(w: &World, b: usize) {
    w.until(move |s| {
        let free = !s.blocks[b].locked;
        s.blocks[b].locked |= free;
        free.then_some(())
    })
    .await;
}

/// A burst of faults that the model has no va_blocks for: the service is busy for long.
pub(super) async fn storm(w: &World, steps: usize) {
    w.until(|s| {
        let free = !s.serving;
        s.serving |= free;
        free.then_some(())
    })
    .await;
    w.pauses(steps).await;
    w.now().serving = false;
}

/// Holds the VA space's lock in write mode while `change` is made.
async fn writing(w: &World, change: impl FnOnce(&World)) {
    w.now().spaces[OURS].wait_to_write();
    w.until(|s| s.spaces[OURS].write_in_turn().then_some(()))
        .await;
    w.pause().await;
    change(w);
    w.pause().await;
    w.now().spaces[OURS].write_unlock();
}

/// Frees memory, and has memory at the same place again.
pub(super) async fn unmap(w: &World, b: usize) {
    let mut um = None;
    writing(w, |w| {
        let s = &mut *w.now();
        s.drop_chunk(b);
        if core::mem::take(&mut s.blocks[b].alive) {
            let block = UmBlock(s.blocks[b].um);
            w.tables.borrow_mut().forget(block, block);
            um = Some(block.0);
        }
    })
    .await;
    let Some(um) = um else { return };
    w.pause().await;
    writing(w, |w| w.now().blocks.push(fresh(OURS, um))).await;
}

/// Policy keeps memory where it is, and later does not.
pub(super) async fn policies(w: &World, b: usize) {
    for kept in [true, false] {
        writing(w, |w| {
            let h = &mut w.now().blocks[b].hindrances;
            match b % 4 {
                0 => h.preferred_elsewhere = kept,
                1 => h.read_duplicated = kept,
                2 => h.lite = kept,
                _ => h.group_stays = kept,
            }
        })
        .await;
        w.pauses(20).await;
    }
}

/// Pages of va_blocks thrash, are discarded, or go to the host, `times` times.
pub(super) async fn touches(w: &World, times: usize) {
    for _ in 0..times {
        let b = w.below(w.now().blocks.len());
        touch(w, b).await;
        w.pauses(w.below(40)).await;
    }
}

async fn touch(w: &World, b: usize) {
    lock(w, b).await;
    let pages = some_pages(w);
    let kind = w.below(3);
    {
        let s = &mut *w.now();
        let p = &mut s.blocks[b].pages;
        match kind {
            0 => p.thrashing = pages,
            1 => p.discarded |= pages & p.populated,
            _ => p.there -= pages,
        }
        s.requeue(b);
    }
    w.pause().await;
    let s = &mut *w.now();
    s.blocks[b].pages.thrashing = PageMask::EMPTY;
    s.blocks[b].locked = false;
}

/// What is in host memory goes to the SSD, of some va_blocks, `times` times; or `of_all`, and what is on the GPU as well.
pub(super) async fn spills(w: &World, times: usize, of_all: bool) {
    for _ in 0..times {
        let n = w.now().blocks.len();
        let from = w.below(n);
        for b in from..if of_all { n } else { from + 1 } {
            lock(w, b).await;
            w.pause().await;
            let s = &mut *w.now();
            if of_all && s.blocks[b].space == OURS {
                s.drop_chunk(b);
            }
            let block = &mut s.blocks[b];
            let left = block.pages.populated - block.pages.there;
            block.pages.populated -= left;
            block.stored |= left;
            block.locked = false;
        }
        w.pauses(w.below(60)).await;
    }
}

/// One who reads what the worker has asked for, `times` times, at most so many steps apart. Some of it does not come, and
/// some cannot be read.
pub(super) async fn reads(w: &World, times: usize, apart: usize) {
    for _ in 0..times {
        w.pauses(w.below(apart)).await;
        let next = w.now().reads.pop();
        let Some(b) = next else { continue };
        lock(w, b).await;
        w.pause().await;
        let (comes, fails) = (!w.chance(6), w.chance(16));
        let s = &mut *w.now();
        let block = &mut s.blocks[b];
        // What was faulted on meanwhile is not there any more.
        let came = block.asked & block.stored;
        if comes && !fails {
            block.stored -= came;
            block.pages.populated |= came;
        }
        block.failed |= fails && !came.is_empty();
        block.asked = PageMask::EMPTY;
        (block.counts, block.locked) = (false, false);
        read_ended(w, s, b);
    }
}

/// Others read some of what is on the SSD, `times` times: a call, or a fault beside it.
pub(super) async fn reads_of_others(w: &World, times: usize) {
    for _ in 0..times {
        let b = w.below(w.now().blocks.len());
        lock(w, b).await;
        let pages = some_pages(w);
        let reads = {
            let block = &mut w.now().blocks[b];
            let reads = pages & (block.stored - block.coming());
            block.read |= reads;
            block.locked = false;
            reads
        };
        w.pauses(w.below(60)).await;
        lock(w, b).await;
        let s = &mut *w.now();
        let block = &mut s.blocks[b];
        let came = reads & block.stored;
        block.stored -= came;
        block.pages.populated |= came;
        block.read -= reads;
        block.locked = false;
        if !reads.is_empty() {
            read_ended(w, s, b);
        }
    }
}

/// The GPU leaves the VA space, with all that is there; if nobody else has it, it is set up anew when
/// it comes back, and its queues number processes anew.
pub(super) async fn away(w: &World, for_all: bool) {
    writing(w, |w| {
        let s = &mut *w.now();
        s.registered = false;
        for b in 0..s.blocks.len() {
            if for_all || s.blocks[b].space == OURS {
                s.drop_chunk(b);
            }
        }
        if for_all {
            // A chunk on its way to a va_block keeps its number.
            s.roots = RootChunks::new(s.backs.len() as u32).unwrap();
            s.generation += 1;
            s.running = 0;
            let other = s.roots.add_owner(holder(THEIRS));
            s.roots.set_now(other, 1 << 20);
        }
    })
    .await;
    w.pauses(10).await;
    writing(w, |w| w.now().registered = true).await;
}

/// The system suspends and resumes.
pub(super) async fn suspend(w: &World) {
    w.until(|s| {
        let free = s.pm_readers == 0;
        s.suspended |= free;
        free.then_some(())
    })
    .await;
    w.pauses(10).await;
    w.now().suspended = false;
}

/// The process closes the device: its VA space ends, while its worker may be at work.
pub(super) async fn close(w: &World, after: usize) {
    w.pauses(after).await;
    w.now().stopping = true;
}

/// Whether a chunk of the VA space is marked by whoever is not the neighbour.
pub(super) fn is_marked(w: &World) -> bool {
    let s = w.now();
    let ours = |c: &Option<usize>| c.is_some_and(|b| s.blocks[b].space == OURS);
    let chunks = (0..s.backs.len()).filter(|c| ours(&s.backs[*c]));
    let marked = chunks
        .filter(|c| s.roots.needed_in(*c as u32).is_some())
        .count();
    marked > 0
}
