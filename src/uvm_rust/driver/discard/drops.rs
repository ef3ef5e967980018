// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Dropping what is discarded, where others would copy it.

use super::status;
use crate::ffi::block::LockedBlock;
use crate::ffi::vaspace::Context;
use crate::policy::mask::PageMask;

/// Drops `pages`, and what is discarded is not there any more; `unmap`, of which they are a part, is unmapped.
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

/// Before `pages` are made resident where `there` is: drops what is discarded lazily instead of copying it. Returns an
/// `NV_STATUS`, also that the lock was let go.
pub(crate) fn stale(
    block: &mut LockedBlock<'_>,
    context: &Context<'_>,
    pages: &PageMask,
    there: &PageMask,
) -> u32 {
    match block.state().map(|state| state.stale(pages, there)) {
        Some(stale) if !stale.is_empty() => drop_pages(block, context, &stale, &stale),
        _ => status::OK,
    }
}

/// Before `leaving` pages are evicted: drops those whose data nobody needs. Returns an `NV_STATUS`.
pub(crate) fn needless(block: &mut LockedBlock<'_>, leaving: &PageMask) -> u32 {
    let pages = match block.state().map(|state| state.needless(leaving)) {
        Some(pages) if !pages.is_empty() => pages,
        _ => return status::OK,
    };
    let Some(context) = Context::of_nobody() else {
        return status::NO_MEMORY;
    };
    // Whatever leaves with the chunk is unmapped in one go, so that no large mapping is split for it.
    let result = drop_pages(block, &context, leaving, &pages);
    if result == status::OK {
        block.forget_thrashing(&pages);
    }
    result
}
