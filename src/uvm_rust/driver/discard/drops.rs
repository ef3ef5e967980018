// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Discarded pages are dropped where upstream would copy them, and are live again where they are used.

use super::status;
use crate::ffi::block::LockedBlock;
use crate::ffi::vaspace::Context;
use crate::policy::discard::leaving::drop_leaving;
use crate::policy::discard::Memory;
use crate::policy::evict::Queue;
use crate::policy::mask::PageMask;

/// Drops `pages`, and forgets their discard. Unmaps `unmap`, of which `pages` are a part.
fn drop_pages(
    block: &mut LockedBlock<'_>,
    context: &Context<'_>,
    unmap: &PageMask,
    pages: &PageMask,
) -> u32 {
    let result = block.drop_pages(context, unmap, pages);
    if let (status::OK, Some(state)) = (result, block.state()) {
        state.dropped(pages);
    }
    result
}

/// Called before `pages` are made resident in the memory `there`: drops the lazily discarded pages, so that nobody
/// copies them. Returns an `NV_STATUS`, which may say that the lock was released. The VA space's lock is held, except
/// in an eviction, which has dropped these pages before ([`needless`]).
pub(crate) fn stale(
    block: &mut LockedBlock<'_>,
    context: &Context<'_>,
    pages: &PageMask,
    there: &PageMask,
) -> u32 {
    let stale = match block.state().map(|state| state.stale(pages, there)) {
        Some(stale) if !stale.is_empty() => stale,
        _ => return status::OK,
    };
    let result = drop_pages(block, context, &stale, &stale);
    if result == status::OK {
        // Upstream forgets thrashing when it copies. Otherwise it would take the page to be where thrashing had pinned it.
        block.forget_thrashing(&stale);
    }
    result
}

/// Called before the pages `leaving` are evicted, or go to the host with their GPU or by the prefetch worker: drops those
/// whose data nobody needs. Returns an `NV_STATUS`, which may say that the lock was released.
pub(crate) fn needless(block: &mut LockedBlock<'_>, leaving: &PageMask) -> u32 {
    let pages = match block.state().map(|state| state.needless(leaving)) {
        Some(pages) if !pages.is_empty() => pages,
        _ => return status::OK,
    };
    let Some(context) = Context::of_nobody() else {
        return status::NO_MEMORY;
    };
    // All pages of the chunk are unmapped by one call, so that no large mapping is split. Whether they thrash stays
    // known: an eviction does not have the VA space's lock, under which that is forgotten. The next fault does.
    drop_pages(block, &context, leaving, &pages)
}

/// Called before a GPU leaves the VA space, whose lock is held for writing. `once` is [`needless`] of all that the GPU has of
/// the block by then; it is called again if it released the block's lock.
pub(crate) fn leaving(mut once: impl FnMut() -> u32) {
    // What was not dropped is moved with the rest.
    let _ = drop_leaving(|| once() == status::AGAIN);
}

/// Called after `pages` were made resident in `memory` ([`BlockState::made_resident`]). Upstream calls only that memory's
/// chunk used. The VA space's lock is held, except in an eviction.
///
/// [`BlockState::made_resident`]: crate::policy::discard::BlockState::made_resident
pub(crate) fn made_resident(
    block: &mut LockedBlock<'_>,
    memory: Memory,
    pages: &PageMask,
    there: &PageMask,
    on_host: &PageMask,
    evicted: bool,
) {
    let state = block.state();
    let revived = state.map(|state| state.made_resident(memory, pages, there, on_host, evicted));
    let Some(revived) = revived.filter(|revived| !revived.is_empty()) else {
        return;
    };
    let mut from = Memory::HOST.next();
    while let Some(held) = from.and_then(|from| block.held(from)) {
        if held.root_chunk && held.memory != memory && held.resident.intersects(&revived) {
            block.requeue(held.memory, Queue::Used);
        }
        from = held.memory.next();
    }
}
