// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What `UVM_MIGRATE` has on its way for a VA space, while others copy on the same GPU (`policy/link.rs`).
//!
//! Upstream calls from between two va_blocks of a range, and so does each of its two passes. The thread has the VA space's lock in
//! read mode there, that of the process' memory, and no va_block's. Waiting with these is no new thing for upstream: in the same
//! place it waits for a block's copies before it maps the block on the host, for a channel that is full, and at its end, with
//! the VA space's lock, for all. What this waits for is less, and bounded:
//!
//! - It waits for copies of its own VA space, which are in the channels already. A GPU needs no lock for them.
//! - Who is kept from the locks meanwhile is of the same process, such as its `munmap`. The fault service only tries the locks, or
//!   waits with a limit of its own (docs/fault.md). So a process delays nobody else by its waiting.
//! - If none of these ends for a quarter of a second, one thread goes on, and after each further one another (L-deadline). A
//!   thread that is killed goes on at once.
//!
//! The fault service, evictions and the prefetch worker do not come here. The last has few copies under way at a time.
//!
//! Locks: `window` is a mutex below the VA space's lock and above those of its va_blocks, which are looked at under it. Nobody
//! takes it with a va_block's lock, nor sleeps by the clock with it.

use crate::ffi::block::Block;
use crate::ffi::{bindings as c, seam, time, vaspace::LockedVaSpace};
use crate::policy::link::{Sharers, Window, LOOK_US};
use crate::policy::stats::Cause;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use kernel::prelude::*;
use kernel::sync::{new_mutex, Mutex};

/// Who has copied on each GPU of late, by the GPU's number. Nothing of a VA space or GPU that is gone is kept there but a number.
static SHARERS: [Sharers; c::UVM_RUST_MAX_GPUS as usize] =
    [const { Sharers::new() }; c::UVM_RUST_MAX_GPUS as usize];

/// What a VA space has on its way.
#[pin_data]
pub(crate) struct Link {
    /// The number of the VA space, which no other has.
    client: u32,
    /// The GPU of the VA space's last copy.
    last: AtomicU32,
    #[pin]
    window: Mutex<Window>,
}

impl Link {
    /// Makes it for the VA space with this number; `None` if a module parameter says that nothing is limited, or
    /// there are no statistics, which tell of copies.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if there is no memory for it.
    pub(crate) fn of_parameters(client: u32) -> Result<Option<Pin<KBox<Self>>>> {
        let quantum = u64::from(seam::link_quantum()) << 20;
        if quantum == 0 || !seam::stats_enabled() {
            return Ok(None);
        }
        let link = pin_init!(Self {
            client,
            last: AtomicU32::new(0),
            window <- new_mutex!(Window::new(quantum)),
        });
        KBox::pin_init(link, GFP_KERNEL_ACCOUNT).map(Some)
    }

    /// Notes that there is a copy for the VA space to one GPU, by its number, from another; `None` is the host. What others
    /// evict of it counts for nobody.
    #[inline]
    pub(crate) fn copies(&self, (dst, src): (Option<u32>, Option<u32>), cause: Cause) {
        if cause == Cause::Eviction {
            return;
        }
        for gpu in [src, dst].into_iter().flatten() {
            if let Some(sharers) = SHARERS.get(gpu as usize) {
                sharers.meets(self.client);
            }
            if self.last.load(Relaxed) != gpu {
                self.last.store(gpu, Relaxed);
            }
        }
    }

    /// Whether others copy on the GPU with this number as well; `None` stands for the one that the last copy was for.
    #[inline]
    pub(crate) fn is_shared(&self, gpu: Option<u32>) -> bool {
        let gpu = gpu.unwrap_or_else(|| self.last.load(Relaxed));
        let sharers = SHARERS.get(gpu as usize);
        sharers.is_some_and(|sharers| sharers.are_several(time::now_us))
    }

    /// Waits until so many bytes of a va_block may be moved. The caller holds no va_block's lock.
    #[inline(never)]
    pub(crate) fn wait(&self, space: &LockedVaSpace<'_>, block: Block<'_>, bytes: u64) {
        let block = block.span().first;
        let is_copied = |block| space.block(block).map_or(true, |b| b.lock().is_settled());
        loop {
            // In a statement of its own: within a condition, the lock would be held for all of that.
            let has_room = self
                .window
                .lock()
                .takes(block, bytes, is_copied, time::now_us);
            if has_room {
                return;
            }
            if time::rest() {
                self.window.lock().takes_anyway(block, bytes);
                return;
            }
            time::sleep_us(LOOK_US);
        }
    }
}
