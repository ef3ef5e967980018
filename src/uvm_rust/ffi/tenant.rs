// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Tenants: the registry, whom memory is charged to, and what they are to the SSD tier.

use super::bindings;
use super::flash::{current, tenant_leaves, Owner, OwnerHandle};
use super::slot::Slot;
use crate::driver::tenant::{new_registry, Held, Registry};
use crate::policy::tenants::Who;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering::*};
use kernel::prelude::*;

/// The registry, from `init` to `exit`.
static REGISTRY: Slot<Pin<KBox<Registry>>> = Slot::empty();

/// The registry; `None` while the module is not there.
pub(crate) fn registry() -> Option<&'static Registry> {
    REGISTRY.get().map(Pin::get_ref)
}

/// A reference on a memory cgroup: whom memory is charged to.
pub(crate) struct Charged {
    /// Null where there are no memory cgroups.
    group: *mut bindings::mem_cgroup,
    user: u32,
}

// SAFETY: a memory cgroup belongs to no thread.
unsafe impl Send for Charged {}
// SAFETY: nothing is done with it here but to let it go.
unsafe impl Sync for Charged {}

impl Charged {
    /// Whom this thread's memory is charged to. It has an mm.
    pub(crate) fn of_this_thread() -> Self {
        let mut user = 0;
        // SAFETY: `user` is written once; the reference that is given is put by `drop`.
        let group = unsafe { bindings::uvm_seam_tenant_of_this_thread(&mut user) };
        Self { group, user }
    }

    /// Names the tenant: its user and its memory cgroup.
    pub(crate) fn who(&self) -> Who {
        Who {
            user: self.user,
            group: self.group as usize as u64,
        }
    }

    /// For whom it is named to C, as long as this is there.
    pub(super) fn group(&self) -> *mut bindings::mem_cgroup {
        self.group
    }
}

impl Drop for Charged {
    fn drop(&mut self) {
        // SAFETY: the reference was got by `of_this_thread`, and is put once.
        unsafe { bindings::uvm_seam_memcg_put(self.group) };
    }
}

/// What a tenant is to the SSD tier, from the first VA space on that may use it.
pub(crate) struct FlashOwner(AtomicPtr<Owner>);

impl FlashOwner {
    /// Makes a record without an owner.
    pub(crate) const fn none() -> Self {
        // Invariant: null, or what `Owner::create` gave, which is destroyed by `drop`.
        Self(AtomicPtr::new(null_mut()))
    }

    /// Makes it if there is none, with `charged` paying, which is there as long; without a tier there is none.
    pub(crate) fn make(&self, charged: &Charged) -> Result {
        if !self.0.load(Acquire).is_null() || current().is_null() {
            return Ok(());
        }
        let user = charged.who().user;
        // SAFETY: there is a tier, and the group is there, by this function's contract.
        let made = unsafe { Owner::create(current(), charged.group(), user) }?.as_ptr();
        let first = self.0.compare_exchange(null_mut(), made, AcqRel, Acquire);
        if first.is_err() {
            // SAFETY: just made, and nobody else's.
            unsafe { Owner::destroy(made) };
        }
        Ok(())
    }
}

impl FlashOwner {
    /// Nobody holds the tenant any more, which so writes nothing. The caller holds the registry's lock: nobody is the
    /// same tenant anew before what this one has to pay is noted.
    pub(crate) fn leaves(&self) {
        let owner = self.0.load(Acquire);
        if !owner.is_null() {
            // SAFETY: by the type's invariant it is there, until `drop`.
            unsafe { tenant_leaves(OwnerHandle::new(owner)) };
        }
    }
}

impl Drop for FlashOwner {
    fn drop(&mut self) {
        let owner = self.0.load(Acquire);
        if !owner.is_null() {
            // SAFETY: by the type's invariant; nobody holds the tenant, so none of its blocks is left.
            unsafe { Owner::destroy(owner) };
        }
    }
}

/// The module begins.
///
/// # Errors
///
/// `ENOMEM`.
pub(crate) fn init() -> Result {
    REGISTRY.fill(new_registry()?).map_err(|_| EBUSY)
}

/// The module ends, if it has begun.
///
/// # Safety
///
/// Nobody uses the registry any more: no VA space exists, and no call is under way.
pub(super) unsafe fn exit() {
    // SAFETY: by this function's contract.
    drop(unsafe { REGISTRY.take() });
}

/// What a tenant that [`Held::of_flash`] gave is to the SSD tier, as long as it is held.
pub(super) fn flash_owner(held: &Held) -> OwnerHandle {
    // SAFETY: it was made before it was given, and stays as long as the tenant.
    unsafe { OwnerHandle::new(held.flash().0.load(Acquire)) }
}
