// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Device memory that becomes managed memory.
//!
//! Not touched: what the program maps by itself (`mapped.rs`), arrays, and what is smaller than
//! the threshold. What is asked of a memory pool comes from no pool then, but for some pools (`pools.rs`); the pool's counts
//! have it (`counts.rs`). A program that shares device memory with another process (`cuIpcGetMemHandle`) needs
//! `UVMRUST_MANAGED=0` (`pointers.rs`).

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use uvmrust::cuda::{Cuda, Stream};
use uvmrust::follow::Allocation;
use uvmrust::PerProcess;
use uvmrust_system::{Limits, Root};

use crate::config::Config;
use crate::planned::Ending;
use crate::pools::PoolId;
use crate::real::{Code, Real, SUCCESS};
use crate::{counts, followed, planned, pools, record};

/// `CU_MEM_ATTACH_GLOBAL`: any stream on any device may use the memory.
const ATTACH_GLOBAL: u32 = 1;
/// `CUDA_ERROR_INVALID_VALUE`, by which CUDA says that nothing was allocated at an address.
const INVALID_VALUE: Code = 1;
/// `CU_POINTER_ATTRIBUTE_BUFFER_ID`: the number of an allocation.
const BUFFER_ID: i32 = 7;
/// `CUDA_ERROR_NOT_FOUND`, which stands for a function that the CUDA here lacks.
const NOT_FOUND: Code = 500;
/// Bytes to which rows are aligned; CUDA's own choice on all GPUs with UVM.
const PITCH: usize = 512;

/// Memory that we have made managed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Made {
    size: usize,
    /// The pool that the program has asked, if it was one.
    pool: Option<PoolId>,
}

/// What we have made managed, by its address. What a context took with it when it was destroyed is
/// forgotten ([`forget_gone`]), if CUDA tells that nothing is there: `cuMemFreeAsync` of it would
/// free what somebody else may have there later.
static MANAGED: PerProcess<Mutex<BTreeMap<u64, Made>>> = PerProcess::new(Mutex::default);

fn with<T>(work: impl FnOnce(&mut BTreeMap<u64, Made>) -> T) -> T {
    let managed = MANAGED.get().lock();
    work(&mut managed.unwrap_or_else(PoisonError::into_inner))
}

/// Whether an address is in memory that we have made managed.
pub(crate) fn is_made(address: u64) -> bool {
    with(|managed| {
        let before = managed.range(..=address).next_back();
        before.is_some_and(|(base, made)| address - base < made.size as u64)
    })
}

/// Forgets that memory was asked of a pool, which is about to go; where that memory is.
pub(crate) fn forget_pool(pool: PoolId) -> Vec<u64> {
    with(|managed| {
        let its = (managed.iter_mut()).filter(|(_, made)| made.pool == Some(pool));
        let forgotten = its.map(|(&base, made)| {
            made.pool = None;
            base
        });
        forgotten.collect()
    })
}

/// CUDA has not let a pool go of which [`forget_pool`] gave this memory: how many bytes of it there are still.
pub(crate) fn keep_pool(pool: PoolId, memory: &[u64]) -> u64 {
    with(|managed| {
        let mut bytes = 0;
        for base in memory {
            if let Some(made) = managed.get_mut(base).filter(|made| made.pool.is_none()) {
                made.pool = Some(pool);
                bytes += made.size as u64;
            }
        }
        bytes
    })
}

/// Managed memory instead of `size` bytes of device memory. `None`: leave it to
/// CUDA, since it is too small or there is none. During a capture that forbids one, it forbids the
/// other too.
///
/// # Safety
/// `out` is writable.
pub(crate) unsafe fn alloc(real: &Real, out: *mut u64, size: usize) -> Option<Code> {
    // SAFETY: by our contract.
    unsafe { alloc_by(real, out, size, None, |make| make()) }
}

/// The same, made as `how` makes it.
///
/// # Safety
/// As for [`alloc`].
unsafe fn alloc_by(
    real: &Real,
    out: *mut u64,
    size: usize,
    pool: Option<PoolId>,
    how: impl FnOnce(&mut dyn FnMut() -> Code) -> Code,
) -> Option<Code> {
    let min = Config::get().managed_min?;
    let call = real.cuda.mem_alloc_managed()?;
    if size < min || out.is_null() {
        return None;
    }
    let mut base = 0;
    let done = how(&mut || {
        // SAFETY: the output is writable.
        unsafe { call(&mut base, size, ATTACH_GLOBAL) }
    });
    if done != SUCCESS {
        return None;
    }
    counts::took(pool, size);
    with(|managed| managed.insert(base, Made { size, pool }));
    appeared(real, base, size);
    // SAFETY: by our contract.
    unsafe { out.write(base) };
    Some(SUCCESS)
}

/// The same, of an allocation in a stream's order, which `call` makes where it is left to CUDA:
/// what is captured becomes part of the graph. `pool`: the pool that is asked; none is that of the stream's device.
///
/// "cuCtxDestroy() will not destroy memory allocations by cuMemCreate(), cuMemAllocAsync() and
/// cuMemAllocFromPoolAsync()" (CUDA Driver API, cuCtxDestroy), and managed memory goes with its context. So it
/// is made in the context of the stream, and only where that is the device's primary one, which is there
/// until the program lets go of the device.
///
/// # Safety
/// As for [`alloc`]; `stream` is a stream, of whichever context, or a special one; and `call`
/// has written the address where it succeeds.
pub(crate) unsafe fn alloc_in(
    real: &Real,
    out: *mut u64,
    size: usize,
    stream: Stream,
    pool: Option<PoolId>,
    call: impl FnOnce() -> Code,
) -> Code {
    let mut captured = false;
    // SAFETY: by our contract; the stream's context is current inside.
    let made = unsafe {
        real.cuda.in_context_of(stream, || {
            captured = is_capturing(&real.cuda, stream);
            let wanted = Config::get().managed_min.is_some_and(|min| size >= min);
            if captured || !wanted || !in_primary_context(real) {
                return Ok(None);
            }
            // CUDA allows it during others' captures.
            let unordered = |make: &mut dyn FnMut() -> Code| real.cuda.unordered(make);
            let pool = pool.or_else(|| pools::current(real));
            Ok(alloc_by(real, out, size, pool, unordered))
        })
    };
    match made {
        Ok(Some(code)) => code,
        _ if captured => call(),
        // SAFETY: CUDA has left the output so, by our contract.
        _ => unsafe { left_as_it_is(call(), out, size) },
    }
}

/// Whether the current context is the primary one of its device. An error counts as no.
fn in_primary_context(real: &Real) -> bool {
    let (Some(current), Some(retain), Some(release)) = (
        real.cuda.ctx_current(),
        real.cuda.primary_retain(),
        real.primary_release,
    ) else {
        return false;
    };
    let Ok(device) = real.cuda.current_device() else {
        return false;
    };
    // To ask for one that is not there would make it.
    if !real.is_active(device) {
        return false;
    }
    let (mut ours, mut primary) = (core::ptr::null_mut(), core::ptr::null_mut());
    // SAFETY: the outputs are writable; the device is CUDA's own number of it, and what is taken here is
    // given back.
    real.cuda.unordered(|| unsafe {
        let asked = current(&mut ours) == SUCCESS && retain(&mut primary, device) == SUCCESS;
        asked && release(device) == SUCCESS && ours == primary
    })
}

/// The same for `height` rows of `width` bytes.
///
/// # Safety
/// `out` and `pitch` are writable.
pub(crate) unsafe fn alloc_pitch(
    real: &Real,
    out: *mut u64,
    pitch: *mut usize,
    width: usize,
    height: usize,
) -> Option<Code> {
    let row = width.checked_next_multiple_of(PITCH)?;
    if pitch.is_null() {
        return None;
    }
    // SAFETY: by our contract.
    let done = unsafe { alloc(real, out, row.checked_mul(height)?) }?;
    // SAFETY: by our contract.
    unsafe { pitch.write(row) };
    Some(done)
}

/// Says that there is new device memory, which CUDA gave with `code`. A record has it where nothing
/// is made managed: as what it would be.
///
/// # Safety
/// `out` is as CUDA has left it.
pub(crate) unsafe fn left_as_it_is(code: Code, out: *mut u64, size: usize) -> Code {
    let wanted = Config::get().recorded_min.is_some_and(|min| size >= min);
    if wanted && code == SUCCESS && !out.is_null() {
        // SAFETY: CUDA has written the address.
        record::allocated(unsafe { *out }, size);
    }
    code
}

/// Says that there is new managed memory, made so by us or by the program.
pub(crate) fn appeared(real: &Real, base: u64, size: usize) {
    planned::allocated(&real.cuda, base, size);
    followed::allocated(base, size);
    record::allocated(base, size);
}

/// What CUDA tells of the allocation at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// There is one, of this number, which no other has: "subsequent allocations do not reuse IDs
    /// from previous freed allocations" (CUDA Driver API, `cuPointerGetAttribute`).
    Id(u64),
    /// Nothing is allocated at that address.
    Nothing,
    /// CUDA does not tell, as where the thread has no context.
    Unknown,
}

/// The number of the allocation at an address.
pub(crate) fn id_of(cuda: &Cuda, base: u64) -> Asked {
    let mut id = 0_u64;
    let Some(call) = cuda.pointer_attribute() else {
        return Asked::Unknown;
    };
    // It takes no turn in a stream, and so becomes no part of what some other thread captures.
    // SAFETY: the output is writable and of the attribute's type.
    match cuda.unordered(|| unsafe { call((&raw mut id).cast(), BUFFER_ID, base) }) {
        SUCCESS => Asked::Id(id),
        INVALID_VALUE => Asked::Nothing,
        _ => Asked::Unknown,
    }
}

/// A context that may be about to be destroyed, with the memory that was allocated in it.
#[must_use]
pub(crate) struct Going {
    planned: Option<Ending>,
    /// What there is before. What comes meanwhile, in another thread, is not of this context.
    followed: Vec<Allocation>,
    recorded: Vec<Allocation>,
}

impl Going {
    /// Before CUDA is asked.
    pub(crate) fn new() -> Self {
        Self {
            planned: planned::may_end(),
            followed: followed::all(),
            recorded: record::all(),
        }
    }

    /// Takes whether CUDA has destroyed the context. Of the memory that was there the part goes of which CUDA
    /// says that nothing is there. Where CUDA does not tell, it may be another context's, and stays: what is made
    /// of it then is a move in vain, and of what was taken out nothing would be known any more.
    pub(crate) fn went(self, real: &Real, destroyed: bool) {
        planned::ended(self.planned, false);
        if !destroyed {
            return;
        }
        let gone =
            |allocation: &Allocation| id_of(&real.cuda, allocation.range.base) == Asked::Nothing;
        self.followed
            .into_iter()
            .filter(gone)
            .for_each(followed::freed);
        self.recorded
            .into_iter()
            .filter(gone)
            .for_each(record::freed);
    }
}

/// Memory that is about to be freed, with what is known of it: it is forgotten when CUDA has freed
/// it, and not where CUDA refuses.
#[must_use]
pub(crate) struct Leaving {
    base: u64,
    /// What we have made managed there.
    managed: Option<Made>,
    planned: Option<Ending>,
    followed: Option<Allocation>,
    recorded: Option<Allocation>,
}

impl Leaving {
    /// What is known of an address that is about to be freed. As soon as CUDA has freed it, another
    /// thread may have it anew: so it is no more among those that are managed, and what is taken out
    /// later is this allocation, not its address.
    ///
    /// In a plan's range nothing is carried out from here on, until CUDA has said what came of it.
    pub(crate) fn new(base: u64) -> Self {
        Self {
            base,
            planned: planned::ending(base),
            managed: with(|managed| managed.remove(&base)),
            followed: followed::begins(base),
            recorded: record::begins(base),
        }
    }

    /// Takes what CUDA has answered, and gives it on.
    pub(crate) fn freed(self, code: Code) -> Code {
        planned::ended(self.planned, code == SUCCESS);
        if code == SUCCESS {
            self.followed.into_iter().for_each(followed::freed);
            self.recorded.into_iter().for_each(record::freed);
            self.managed
                .inspect(|made| counts::gave(made.pool, made.size));
        } else if let Some(made) = self.managed {
            with(|managed| managed.insert(self.base, made));
        }
        code
    }
}

/// Forgets memory that is gone with its context.
pub(crate) fn forget_gone(real: &Real) {
    // Whoever has such an address anew adds it behind this.
    with(|managed| {
        managed.retain(|&base, made| {
            let stays = id_of(&real.cuda, base) != Asked::Nothing;
            if !stays {
                counts::gave(made.pool, made.size);
            }
            stays
        });
    });
}

/// Frees, after all that is in `stream`, memory that CUDA cannot free in a stream's
/// order, being managed: so it waits for the stream, in its context. What is not ours `call` frees, CUDA's own;
/// also while the stream is being captured, where CUDA knows best (a graph frees only what it has
/// allocated) and a wait would break the capture.
///
/// # Safety
/// `stream` is a stream, of whichever context, or a special one.
pub(crate) unsafe fn free_async(
    real: &Real,
    base: u64,
    stream: Stream,
    call: impl FnOnce() -> Code,
) -> Code {
    // SAFETY: by our contract.
    let captured =
        unsafe { (real.cuda).in_context_of(stream, || Ok(is_capturing(&real.cuda, stream))) };
    // CUDA knows best what is wrong with a stream, too.
    if captured != Ok(false) {
        return call();
    }
    let leaving = Leaving::new(base);
    let free = real.free.filter(|_| leaving.managed.is_some());
    // SAFETY: by our contract; the address is from cuMemAllocManaged.
    let freed = free.map(|free| unsafe {
        (real.cuda).in_context_of(stream, || {
            Ok(match real.cuda.drain_code(stream) {
                SUCCESS => real.cuda.unordered(|| free(base)),
                error => error,
            })
        })
    });
    let code = match freed {
        Some(Ok(code)) => code,
        _ => call(),
    };
    leaving.freed(code)
}

/// Adds to what a GPU has, free and in all, what managed memory has besides: the host's.
pub(crate) fn with_host(free: &mut usize, total: &mut usize) {
    let host = Limits::now(&Root::new("/")).managed();
    *free = free.saturating_add(host.free as usize);
    *total = total.saturating_add(host.total as usize);
}

/// Whether what is put into `stream` becomes part of a graph. An error counts as yes: then
/// nothing is to be put there.
///
/// # Safety
/// `stream` is a stream of the current context, or a special one.
pub(crate) unsafe fn is_capturing(cuda: &Cuda, stream: Stream) -> bool {
    let mut status = 0;
    match cuda.stream_is_capturing() {
        // SAFETY: the output is writable, the stream by our contract.
        Some(call) => unsafe { call(stream, &mut status) != SUCCESS || status != 0 },
        None => false,
    }
}

/// What a missing CUDA function returns.
pub(crate) const MISSING: Code = NOT_FOUND;

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Runs `child` in a child of `fork`, of which this thread has all locks.
    pub(crate) fn in_child(child: impl FnOnce()) {
        // SAFETY: the child ends soon, one way or the other.
        let id = unsafe { libc::fork() };
        if id == 0 {
            // SAFETY: as above.
            unsafe { libc::alarm(10) };
            // A thread that panics as the last one of a process has that end with 0.
            let child = std::panic::AssertUnwindSafe(child);
            let failed = std::panic::catch_unwind(child).is_err();
            // SAFETY: as above.
            unsafe { libc::_exit(failed.into()) };
        }
        let mut status = 0;
        // SAFETY: the output is writable.
        assert_eq!(unsafe { libc::waitpid(id, &mut status, 0) }, id);
        assert_eq!(status, 0, "it waits for ever, or has found something wrong");
    }

    #[test]
    fn a_child_does_not_wait_for_its_parents_threads() {
        let (size, pool) = (4096, None);
        with(|managed| {
            managed.insert(4096, Made { size, pool });
            in_child(|| assert!(with(|managed| managed.is_empty())));
        });
        assert!(!is_made(4095) && is_made(4096) && is_made(8191) && !is_made(8192));
        with(|managed| assert!(managed.remove(&4096).is_some()));
    }
}
