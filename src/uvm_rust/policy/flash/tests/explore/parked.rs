// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! GPU faults that are put off, and who reads for them, besides the reading as it is ([`super::asked`]); and what is
//! discarded lazily.

use super::super::super::wants::{Asks, Park};
use super::threads::{evict, fetch, fetch_all, use_on_gpu, Fetched};
use super::world::{World, ANY};
use super::Lack;
use crate::policy::mask::{PageMask, Region};

const NONE: PageMask = PageMask::EMPTY;

/// What of `pages` the block has, which may have been split since they were drawn.
fn within(w: &World, b: usize, pages: &PageMask) -> PageMask {
    *pages & Region::new(0, w.of(b, |block| block.length)).into()
}

/// So many of the next.
pub(super) async fn gpu_faults(w: &World, b: usize, times: usize) {
    for _ in 0..times {
        gpu_fault(w, b).await;
    }
    w.now().askers -= 1;
}

/// A GPU's fault: the service loop leaves it out as long as it has to wait, and the replay
/// brings it back. It never waits for a device with locks, but where a read has failed before.
async fn gpu_fault(w: &World, b: usize) {
    let space = w.of(b, |block| block.space);
    let drawn = w.some_pages(b);
    loop {
        w.read_lock(space).await;
        w.lock_block(b).await;
        let pages = within(w, b, &drawn);
        let dead = w.of(b, |block| block.dead) || pages.is_empty();
        if dead || !must_park(w, b, &pages) {
            if !dead && fetch_all(w, b, pages).await {
                use_on_gpu(w, b, &pages);
                // What is predicted to be needed next, and what is not brought along, though it could be.
                for asks in [Asks::Prefetch, Asks::Call] {
                    let along = w.some_pages(b);
                    let along = along & w.of(b, |block| block.state.on_flash());
                    if !along.is_empty() && w.chance(2) {
                        ask(w, b, &along, asks);
                    }
                }
            }
            w.unlock_block(b);
            w.read_unlock(space);
            break;
        }
        w.unlock_block(b);
        w.read_unlock(space);
        // Replays come all the time; those before something has changed change nothing.
        let seen = w.now().progress;
        w.until(|s| {
            let block = &s.blocks[b];
            let asks = !block.wants.asked().is_empty();
            (block.dead || !asks || s.progress != seen).then_some(())
        })
        .await;
    }
    let pages = within(w, b, &drawn);
    evict(w, b, &pages).await;
}

/// must_park(), without what is for room in the host.
fn must_park(w: &World, b: usize, pages: &PageMask) -> bool {
    let park = {
        let now = w.now_us();
        let block = &mut w.now().blocks[b];
        block.wants.park(&mut block.state, now, pages)
    };
    if let Park::Ask(wanted) = park {
        ask(w, b, &wanted, Asks::Fault);
    }
    park != Park::No
}

/// As `ask()` of ffi/flash/block.rs: the block wants its pages back, and a fetcher is told so.
pub(super) fn ask(w: &World, b: usize, pages: &PageMask, asks: Asks) {
    let is_news = w.now().blocks[b].wants.ask(pages, asks);
    if asks == Asks::Fault {
        w.fault_waits(b);
    }
    if !is_news {
        return;
    }
    let s = &mut *w.now();
    let owner = s.blocks[b].space;
    if let Some(fetcher) = s.with_tier(|tier, live| tier.ask(live, b, asks)) {
        if s.queued.contains(&(owner, fetcher)) || s.fetching.contains(&(owner, fetcher)) {
            s.blame("a fetcher was woken that is awake".into());
        }
        s.queued.push((owner, fetcher));
    }
}

/// A thread of one queue of fetchers, as ffi/flash/asked.rs has them, as long as there are faults and calls.
pub(super) async fn fetchers(w: &World, queue: Asks) {
    loop {
        let next = w.until(|s| match s.next_of(queue) {
            None if s.askers > 0 => None,
            next => Some(next),
        });
        let Some((owner, fetcher)) = next.await else {
            return;
        };
        w.now().fetching.push((owner, fetcher));
        w.pause().await;
        let asking = w
            .now()
            .with_tier(|tier, live| tier.next_asking(live, owner, fetcher));
        if let Some(b) = asking {
            fetch_block(w, b, queue).await;
        }
        w.pause().await;
        let s = &mut *w.now();
        s.fetching.retain(|at_work| *at_work != (owner, fetcher));
        if s.with_tier(|tier, live| tier.fetched(live, owner, fetcher)) {
            s.queued.push((owner, fetcher));
        }
    }
}

/// serve(), with a reference on the block, by one of this queue.
async fn fetch_block(w: &World, b: usize, queue: Asks) {
    w.lock_block(b).await;
    let (dead, space) = w.of(b, |block| (block.dead, block.space));
    let waits = !dead && w.lacks(Lack::FetchOnlyTries);
    if waits {
        w.read_lock(space).await;
    }
    let locked = waits || !dead && w.try_read_lock(space);
    let mut failed = false;
    if locked {
        loop {
            let wants = w.of(b, |block| block.wants);
            let Some(asks) = wants.read_by(queue) else {
                break;
            };
            match fetch(w, b, wants.asked(), asks).await {
                Fetched::Again => {}
                Fetched::All => break,
                Fetched::Lost | Fetched::NoMemory => {
                    failed = true;
                    break;
                }
            }
        }
    }
    if !dead && (locked || !w.lacks(Lack::FetchGivesUp)) {
        w.now().blocks[b].tried(queue, failed);
        w.fault_gives_up(b);
    }
    if locked {
        w.end_try(space).await;
    }
    w.unlock_block(b);
}

/// discard_block_locked() of a lazy discard: mappings and memory stay.
pub(super) async fn discard_lazily(w: &World, b: usize) {
    let space = w.of(b, |block| block.space);
    w.read_lock(space).await;
    let pages = w.some_pages(b);
    w.lock_block(b).await;
    if !w.of(b, |block| block.dead) {
        let s = &mut *w.now();
        let block = &mut s.blocks[b];
        block.state.forget(&mut s.table, &pages);
        block.stale |= pages & block.resident;
        for p in pages.pages() {
            block.value[usize::from(p)] = ANY;
        }
    }
    w.unlock_block(b);
    w.read_unlock(space);
}

/// drop_discarded(): what is stale leaves the host unwritten. The lock may be dropped before it
/// is unmapped; then it is looked again what is. Returns what left.
pub(super) async fn drop_discarded(w: &World, b: usize, wanted: &PageMask) -> PageMask {
    let of = |w: &World| w.of(b, |block| block.stale & block.resident & *wanted);
    let mut stale = of(w);
    if stale.is_empty() {
        return NONE;
    }
    if w.chance(3) {
        w.unlock_block(b);
        w.lock_block(b).await;
        if !w.lacks(Lack::DropLooksAgain) {
            stale = of(w);
        }
    }
    let block = &mut w.now().blocks[b];
    block.unmap(&stale);
    block.stale -= stale;
    block.left_host(&stale);
    stale
}
