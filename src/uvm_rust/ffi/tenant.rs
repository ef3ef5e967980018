// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Tenants: what C calls, and what is theirs in C.

// What each asks of its caller is in uvm_rust_base_ffi.h, where the caller looks.
#![allow(clippy::missing_safety_doc)]

use super::bindings;
use crate::driver::tenant::{new_registry, Held, Registry, Tenant};
use crate::policy::tenants::Who;
use core::ffi::c_void;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering::*};
use kernel::prelude::*;
use kernel::sync::Arc;
use kernel::types::ForeignOwnable;

super::check_exports!(
    uvm_rust_tenants_init,
    uvm_rust_tenants_exit,
    uvm_rust_tenant_get,
    uvm_rust_tenant_put,
    uvm_rust_tenant_flash,
);

/// The registry, from `uvm_rust_tenants_init` to `uvm_rust_tenants_exit`; else null.
static REGISTRY: AtomicPtr<Registry> = AtomicPtr::new(null_mut());

/// The registry; `None` while the module is not there.
pub(crate) fn registry() -> Option<&'static Registry> {
    // SAFETY: what stands there was boxed, and is only freed when the module goes, at which no
    // call is under way and no VA space exists that could hold a tenant.
    unsafe { REGISTRY.load(Acquire).as_ref() }
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

    /// Who that is.
    pub(crate) fn who(&self) -> Who {
        Who {
            user: self.user,
            group: self.group as usize as u64,
        }
    }

    /// For C, which uses it as long as this is there.
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

/// What a tenant is to the SSD tier, in C, from the first VA space on that may use it.
pub(crate) struct FlashOwner(AtomicPtr<bindings::uvm_rust_flash_owner>);

impl FlashOwner {
    /// Nothing yet.
    pub(crate) const fn none() -> Self {
        // Invariant: null, or what `uvm_seam_flash_owner_new` gave, which is freed by `drop`.
        Self(AtomicPtr::new(null_mut()))
    }

    /// Makes it if there is none, with `charged` paying, which is there as long.
    fn make(&self, charged: &Charged) -> Result {
        if !self.0.load(Acquire).is_null() {
            return Ok(());
        }
        // SAFETY: the group is there, by this function's contract.
        let made = unsafe { bindings::uvm_seam_flash_owner_new(charged.group()) };
        if made.is_null() {
            return Err(ENOMEM);
        }
        let first = self.0.compare_exchange(null_mut(), made, AcqRel, Acquire);
        if first.is_err() {
            // SAFETY: just made, and nobody else's.
            unsafe { bindings::uvm_seam_flash_owner_free(made) };
        }
        Ok(())
    }
}

impl Drop for FlashOwner {
    fn drop(&mut self) {
        let owner = self.0.load(Acquire);
        if !owner.is_null() {
            // SAFETY: by the type's invariant; nobody holds the tenant, so none of its blocks is left.
            unsafe { bindings::uvm_seam_flash_owner_free(owner) };
        }
    }
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_tenants_init() -> bool {
    let Ok(registry) = new_registry() else {
        return false;
    };
    REGISTRY.store(registry.into_foreign().cast_mut().cast(), Release);
    true
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_tenants_exit() {
    let registry = REGISTRY.swap(null_mut(), AcqRel);
    if !registry.is_null() {
        // SAFETY: it came from `into_foreign`, and nobody uses it any more, as the header says.
        drop(unsafe { <Pin<KBox<Registry>> as ForeignOwnable>::from_foreign(registry.cast()) });
    }
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_tenant_get() -> *mut bindings::uvm_rust_tenant {
    let held = registry().ok_or(ENOMEM).and_then(|registry| {
        let held = Held::of_this_thread(registry)?;
        held.flash().make(held.charged())?;
        Ok(held)
    });
    match held {
        // What C holds, it puts.
        Ok(held) => held.keep().into_foreign().cast_mut().cast(),
        Err(_) => null_mut(),
    }
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_tenant_put(tenant: *mut bindings::uvm_rust_tenant) {
    let (Some(registry), false) = (registry(), tenant.is_null()) else {
        return;
    };
    // SAFETY: I-own: it came from `into_foreign`, and C puts it once.
    let tenant = unsafe { <Arc<Tenant> as ForeignOwnable>::from_foreign(tenant.cast::<c_void>()) };
    drop(Held::again(registry, tenant));
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_tenant_flash(
    tenant: *mut bindings::uvm_rust_tenant,
) -> *mut bindings::uvm_rust_flash_owner {
    // SAFETY: I-own: it is held.
    let tenant = unsafe { <Arc<Tenant> as ForeignOwnable>::borrow(tenant.cast::<c_void>()) };
    tenant.flash().0.load(Acquire)
}
