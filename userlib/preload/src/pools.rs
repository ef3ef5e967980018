// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Memory pools whose allocations are CUDA's, as what they are for is lost in managed memory: to be
//! given to another process, to be host memory, to be no more than so much, or to be the decompression engine's. What that
//! reads and writes "should have been allocated" so (CUDA Driver API, cuMemBatchDecompressAsync). All others' become
//! managed, those of the devices' own pools too (`memory.rs`).

use core::ffi::{c_int, c_void};
use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use uvmrust::cuda::Stream;
use uvmrust::PerProcess;

use crate::real::{PoolOfDeviceFn, PoolPlace, PoolProps, Real, SUCCESS};

/// `CU_MEM_ALLOCATION_TYPE_PINNED`, the one kind before CUDA 13, whose memory may be managed instead.
const PINNED: c_int = 1;
/// `CU_MEM_LOCATION_TYPE_DEVICE`: memory of a GPU.
const DEVICE: c_int = 1;

/// A pool, by its handle as a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PoolId(usize);

impl PoolId {
    pub(crate) fn of(pool: *mut c_void) -> Self {
        Self(pool.addr())
    }
}

/// The handles of these pools.
static LEFT: PerProcess<Mutex<HashSet<usize>>> = PerProcess::new(Mutex::default);
/// How many there are, so that a program without one asks for no lock and CUDA for no pool.
static COUNT: AtomicUsize = AtomicUsize::new(0);

fn with<T>(work: impl FnOnce(&mut HashSet<usize>) -> T) -> T {
    let mut left = LEFT.get().lock().unwrap_or_else(PoisonError::into_inner);
    let done = work(&mut left);
    COUNT.store(left.len(), Relaxed);
    done
}

/// CUDA has made a pool.
pub(crate) fn made(pool: *mut c_void, props: &PoolProps) {
    if !may_be_managed(props) {
        leave(pool);
    }
}

/// CUDA has told of a pool, which it may have made itself: it has one for each place and kind.
pub(crate) fn told(pool: *mut c_void, place: PoolPlace, kind: c_int) {
    if kind != PINNED || place.kind != DEVICE {
        leave(pool);
    }
}

/// The allocations of a pool stay CUDA's.
pub(crate) fn leave(pool: *mut c_void) {
    with(|left| left.insert(pool.addr()));
}

/// A pool is about to be destroyed; whether it was one of these.
pub(crate) fn forget(pool: *mut c_void) -> bool {
    COUNT.load(Relaxed) != 0 && with(|left| left.remove(&pool.addr()))
}

/// Whether the allocations of a pool stay CUDA's.
pub(crate) fn is_left(pool: *mut c_void) -> bool {
    COUNT.load(Relaxed) != 0 && with(|left| left.contains(&pool.addr()))
}

/// The same of the pool that cuMemAllocAsync takes from, which a program may have set: "The allocation
/// comes from the memory pool current to the stream's device" (CUDA Driver API, cuMemAllocAsync). That
/// need not be the current context's.
///
/// # Safety
/// `stream` is a stream, of whichever context, or a special one.
pub(crate) unsafe fn current_is_left(real: &Real, stream: Stream) -> bool {
    let (Some(call), true) = (real.pool_of_device, COUNT.load(Relaxed) != 0) else {
        return false;
    };
    // SAFETY: by our contract.
    let pool = unsafe { (real.cuda).in_context_of(stream, || Ok(current_handle(real, call))) };
    pool.is_ok_and(|pool| pool.is_some_and(is_left))
}

/// The pool of the current device that is asked where none is named.
pub(crate) fn current(real: &Real) -> Option<PoolId> {
    current_handle(real, real.pool_of_device?).map(PoolId::of)
}

fn current_handle(real: &Real, call: PoolOfDeviceFn) -> Option<*mut c_void> {
    let device = real.cuda.current_device().ok()?;
    let mut pool = core::ptr::null_mut();
    // SAFETY: the output is writable; the device is CUDA's own number of it.
    let code = unsafe { call(&mut pool, device) };
    (code == SUCCESS).then_some(pool)
}

fn may_be_managed(props: &PoolProps) -> bool {
    props.kind == PINNED
        && props.handle_types == 0
        && props.location_kind == DEVICE
        && props.most_bytes == 0
        && props.usage == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: PoolProps = PoolProps {
        kind: PINNED,
        handle_types: 0,
        location_kind: DEVICE,
        location: 0,
        security: core::ptr::null_mut(),
        most_bytes: 0,
        usage: 0,
    };

    #[test]
    fn only_what_is_nothing_but_memory_of_a_device_may_be_managed() {
        assert!(may_be_managed(&PLAIN));
        let others = [
            PoolProps { kind: 2, ..PLAIN },
            PoolProps {
                handle_types: 1,
                ..PLAIN
            },
            PoolProps {
                handle_types: 8,
                ..PLAIN
            },
            PoolProps {
                location_kind: 2,
                ..PLAIN
            },
            PoolProps {
                location_kind: 3,
                ..PLAIN
            },
            PoolProps {
                most_bytes: 1 << 30,
                ..PLAIN
            },
            PoolProps { usage: 2, ..PLAIN },
        ];
        for other in others {
            assert!(!may_be_managed(&other), "{other:?}");
        }
    }
}
