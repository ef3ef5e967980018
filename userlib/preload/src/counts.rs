// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What pools are said to hold (`cuMemPoolGetAttribute`). What a program asks of a pool may become managed
//! memory, which comes from none (`memory.rs`): CUDA counts nothing of it, so it is added here. PyTorch's
//! `torch.cuda.memory_allocated()` is such a count with `backend:cudaMallocAsync`, and so is the
//! `used_bytes()` of CuPy's `MemoryAsyncPool`.
//!
//! Managed memory counts as reserved as long as it is used, since nothing of it is kept for later.

use core::ffi::{c_int, c_void};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use rustc_hash::FxBuildHasher;
use uvmrust::PerProcess;

use crate::pools::PoolId;

/// `CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT`: "Amount of backing memory currently allocated for the mempool".
const RESERVED: c_int = 5;
/// `CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH`, its highest since the last reset.
const RESERVED_HIGH: c_int = 6;
/// `CU_MEMPOOL_ATTR_USED_MEM_CURRENT`: "Amount of memory from the pool that is currently in use by the application".
const USED: c_int = 7;
/// `CU_MEMPOOL_ATTR_USED_MEM_HIGH`, its highest since the last reset.
const USED_HIGH: c_int = 8;

/// The bytes that are managed instead of a pool's.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Count {
    now: u64,
    /// The most since each of the two was reset.
    reserved_high: u64,
    used_high: u64,
}

static COUNTS: PerProcess<Mutex<HashMap<PoolId, Count, FxBuildHasher>>> =
    PerProcess::new(Mutex::default);

fn with<T>(work: impl FnOnce(&mut HashMap<PoolId, Count, FxBuildHasher>) -> T) -> T {
    let counts = COUNTS.get().lock();
    work(&mut counts.unwrap_or_else(PoisonError::into_inner))
}

/// So many bytes were asked of a pool, and are managed.
pub(crate) fn took(pool: Option<PoolId>, size: usize) {
    let Some(pool) = pool else {
        return;
    };
    with(|counts| {
        let count = counts.entry(pool).or_default();
        count.now += size as u64;
        count.reserved_high = count.reserved_high.max(count.now);
        count.used_high = count.used_high.max(count.now);
    });
}

/// Memory of so many bytes that [`took`] has counted is freed.
pub(crate) fn gave(pool: Option<PoolId>, size: usize) {
    let Some(pool) = pool else {
        return;
    };
    with(|counts| {
        if let Some(count) = counts.get_mut(&pool) {
            count.now = count.now.saturating_sub(size as u64);
        }
    });
}

/// A pool is about to go, and another may have its handle then; what was counted of it.
pub(crate) fn forget(pool: PoolId) -> Option<Count> {
    with(|counts| counts.remove(&pool))
}

/// CUDA has not let it go. So many bytes of what was counted are still used, beside what was asked of it meanwhile.
pub(crate) fn keep(pool: PoolId, forgotten: Count, still: u64) {
    with(|counts| {
        let count = counts.entry(pool).or_default();
        count.now += still;
        count.reserved_high = forgotten.reserved_high.max(count.now);
        count.used_high = forgotten.used_high.max(count.now);
    });
}

/// Adds to an attribute of a pool, which CUDA has told. The highest of a sum is no more than the sum of the highest.
///
/// # Safety
/// `value` is what `cuMemPoolGetAttribute` has filled in for this attribute: 64 bits, for those of memory.
pub(crate) unsafe fn told(pool: *mut c_void, attribute: c_int, value: *mut c_void) {
    let count = with(|counts| counts.get(&PoolId::of(pool)).copied());
    let more = count.and_then(|count| match attribute {
        RESERVED | USED => Some(count.now),
        RESERVED_HIGH => Some(count.reserved_high),
        USED_HIGH => Some(count.used_high),
        _ => None,
    });
    if let (Some(more), false) = (more, value.is_null()) {
        let value = value.cast::<u64>();
        // SAFETY: by our contract.
        unsafe { value.write_unaligned(value.read_unaligned().saturating_add(more)) };
    }
}

/// CUDA has set an attribute: of the two that are the highest since a reset, that is the reset.
pub(crate) fn set(pool: *mut c_void, attribute: c_int) {
    with(|counts| {
        if let Some(count) = counts.get_mut(&PoolId::of(pool)) {
            match attribute {
                RESERVED_HIGH => count.reserved_high = count.now,
                USED_HIGH => count.used_high = count.now,
                _ => {}
            }
        }
    });
}
