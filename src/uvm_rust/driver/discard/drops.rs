// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Discarded pages are dropped where upstream would copy them.

use super::status;
use crate::ffi::block::LockedBlock;
use crate::ffi::vaspace::Context;
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
        // Upstream does so as it copies: it would take a page to be where it was pinned, and not where it comes now.
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
