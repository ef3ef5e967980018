// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Tenants: whom the limits are for that several open files have together.
//!
//! A tenant is a user within a memory cgroup. It is known as long as it has a VA space. A tenant is not a process: open
//! files outlive the children that set them up, and each child would bring limits of its own. Nor is a tenant a user
//! alone, since containers have users of the same number. Whoever may make memory cgroups may make tenants.
//!
//! Locking: none here. The caller has one lock for all tenants.

use crate::mem::{OutOfMemory, TryVec};

/// Who a tenant is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Who {
    /// The user, as the kernel numbers users outside all namespaces.
    pub user: u32,
    /// The memory cgroup, by its address; 0 where there are none. Whoever is known keeps a
    /// reference on it, so that no other group has that address.
    pub group: u64,
}

struct Known<T> {
    who: Who,
    holders: u32,
    tenant: T,
}

/// The tenants that somebody holds, with what there is of each.
pub struct Tenants<T>(TryVec<Known<T>>);

impl<T: Clone> Tenants<T> {
    /// Nobody is known yet.
    pub const fn new() -> Self {
        Self(TryVec::new())
    }

    /// Adds a holder to the tenant `who`, and returns what there is of it; `None` if nobody holds it.
    pub fn hold(&mut self, who: Who) -> Option<T> {
        let known = self.0.iter_mut().find(|known| known.who == who)?;
        known.holders += 1;
        Some(known.tenant.clone())
    }

    /// Makes `tenant` what there is of the tenant `who`, with one holder. If another thread was first, the one that is
    /// known gets the holder instead. Returns whichever it is.
    ///
    /// # Errors
    ///
    /// There is no memory for a tenant that nobody holds yet.
    pub fn add(&mut self, who: Who, tenant: &T) -> Result<T, OutOfMemory> {
        if let Some(known) = self.hold(who) {
            return Ok(known);
        }
        self.0.push(Known {
            who,
            holders: 1,
            tenant: tenant.clone(),
        })?;
        Ok(tenant.clone())
    }

    /// A holder lets the tenant go. Returns what there was of it if that was the last.
    pub fn release(&mut self, who: Who) -> Option<T> {
        let at = self.0.iter().position(|known| known.who == who)?;
        let known = self.0.get_mut(at)?;
        known.holders -= 1;
        if known.holders > 0 {
            return None;
        }
        Some(self.0.swap_remove(at)?.tenant)
    }
}

impl<T: Clone> Default for Tenants<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;

    const A: Who = Who { user: 1, group: 7 };

    #[test]
    fn one_tenant_is_what_all_its_descriptors_hold() {
        let mut tenants = Tenants::new();
        assert!(tenants.hold(A).is_none());
        let first = tenants.add(A, &Rc::new("a")).unwrap();
        let again = tenants.hold(A).unwrap();
        assert!(Rc::ptr_eq(&first, &again));
        // Another thread had made one meanwhile: it is not taken.
        let late = tenants.add(A, &Rc::new("late")).unwrap();
        assert!(Rc::ptr_eq(&first, &late));
        assert!(tenants.release(A).is_none());
        assert!(tenants.release(A).is_none());
        assert_eq!(tenants.release(A).as_deref(), Some(&"a"), "the last one");
        assert!(tenants.hold(A).is_none());
        assert!(tenants.release(A).is_none());
    }

    #[test]
    fn the_same_user_in_another_group_is_another_tenant() {
        let mut tenants = Tenants::new();
        let others = [
            Who { group: 8, ..A },
            Who { user: 2, ..A },
            Who { group: 0, ..A },
        ];
        tenants.add(A, &"a").unwrap();
        for who in others {
            assert!(tenants.hold(who).is_none());
            tenants.add(who, &"other").unwrap();
        }
        assert_eq!(tenants.release(others[0]), Some("other"));
        assert_eq!(tenants.hold(A), Some("a"));
        assert_eq!(tenants.hold(others[1]), Some("other"));
        assert_eq!(tenants.release(others[1]), None);
        assert_eq!(tenants.hold(others[2]), Some("other"));
    }
}
