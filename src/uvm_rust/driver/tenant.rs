// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The registry of tenants (`policy/tenants.rs`), which the prefetcher's tables and the SSD tier's
//! quotas are limited by.
//!
//! Locks: `Registry` is a mutex. It is taken inside the VA space's lock, and the SSD tier's spinlock alone is taken
//! inside it. All processes share it. Memory that is charged to one of them is allocated before the mutex is taken, so that no process waits for
//! another's memory limit. `shares` is a mutex that only the tenant's own descriptors take.

use crate::ffi::seam;
use crate::ffi::tenant::{registry, Charged, FlashOwner};
use crate::mem::ProcessVec;
use crate::policy::prefetch::Share;
use crate::policy::tenants::{Tenants, Who};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use kernel::prelude::*;
use kernel::sync::{new_mutex, Arc, Mutex};

/// The tenants that have a holder.
pub(crate) type Registry = Mutex<Tenants<Arc<Tenant>>>;

/// Makes a registry that knows no tenant yet.
///
/// # Errors
///
/// `ENOMEM`.
pub(crate) fn new_registry() -> Result<Pin<KBox<Registry>>> {
    KBox::pin_init(new_mutex!(Tenants::new()), GFP_KERNEL)
}

/// The driver's state of a tenant.
#[pin_data]
pub(crate) struct Tenant {
    who: Who,
    /// Which no other tenant has or had.
    number: u64,
    /// The tenant's state in the SSD tier. It is dropped before the group that pays for it.
    flash: FlashOwner,
    /// Whom its memory is charged to.
    charged: Charged,
    /// How many bytes the tenant's prefetch tables may take together, by the number of the GPU.
    #[pin]
    shares: Mutex<ProcessVec<(u32, Arc<Share>)>>,
}

impl Tenant {
    fn new(who: Who, charged: Charged) -> Result<Arc<Self>> {
        static LAST: AtomicU64 = AtomicU64::new(0);
        Arc::pin_init(
            pin_init!(Self {
                who,
                number: LAST.fetch_add(1, Relaxed) + 1,
                flash: FlashOwner::none(),
                charged,
                shares <- new_mutex!(ProcessVec::new()),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Whom its memory is charged to.
    pub(crate) fn charged(&self) -> &Charged {
        &self.charged
    }

    /// The tenant's number among all that there have been.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// The tenant's state in the SSD tier.
    pub(crate) fn flash(&self) -> &FlashOwner {
        &self.flash
    }

    /// The share of the tenant's tables for a GPU; the first caller sets it to `bytes`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn share(&self, gpu: u32, bytes: usize) -> Result<Arc<Share>> {
        let known = |shares: &[(u32, Arc<Share>)]| {
            let share = shares.iter().find(|(of, _)| *of == gpu);
            share.map(|(_, share)| share.clone())
        };
        if let Some(share) = known(&self.shares.lock()) {
            return Ok(share);
        }
        let made = Arc::new(Share::new(bytes), GFP_KERNEL_ACCOUNT)?;
        let mut shares = self.shares.lock();
        if let Some(share) = known(&shares) {
            return Ok(share);
        }
        shares.push((gpu, made.clone())).map_err(|_| ENOMEM)?;
        Ok(made)
    }
}

/// A tenant, as one of its holders.
pub(crate) struct Held {
    registry: &'static Registry,
    tenant: Arc<Tenant>,
}

impl Held {
    /// The tenant that this thread belongs to, which has an mm. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn of_this_thread(registry: &'static Registry) -> Result<Self> {
        let charged = Charged::of_this_thread();
        let who = charged.who();
        let held = |tenant| Self { registry, tenant };
        if let Some(tenant) = registry.lock().hold(who) {
            return Ok(held(tenant));
        }
        // If another thread was first, the new tenant is freed at the end, outside the lock.
        let made = Tenant::new(who, charged)?;
        let tenant = registry.lock().add(who, &made);
        Ok(held(tenant.map_err(|_| ENOMEM)?))
    }
}

impl Held {
    /// The tenant that this thread, which has an mm, belongs to, with what it is to the SSD tier; `None` without one.
    /// May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM` where there is no memory for what the tier keeps of a tenant.
    pub(crate) fn of_flash() -> Result<Option<Self>> {
        if !seam::flash_enabled() {
            return Ok(None);
        }
        let held = Self::of_this_thread(registry().ok_or(ENOMEM)?)?;
        held.flash().make(held.charged())?;
        Ok(Some(held))
    }
}

impl core::ops::Deref for Held {
    type Target = Arc<Tenant>;

    fn deref(&self) -> &Arc<Tenant> {
        &self.tenant
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut registry = self.registry.lock();
        let last = registry.release(self.tenant.who);
        if let Some(tenant) = &last {
            tenant.flash.leaves();
        }
        drop(registry);
        // The last holder frees the tenant here, outside the lock.
        drop(last);
    }
}
