// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Owners: processes that announce kernels, and mark the chunks that these will access.

use super::super::holders::list_of;
use super::{Asked, Holder, RootChunks};

/// How many processes can mark chunks of one GPU at a time. A further process takes the place of another one, which must
/// then register again: the one that has been there for longest of those of the tenant that has most places. A tenant that has as
/// many as that, or one less, takes the place of one of its own.
pub const OWNERS: u32 = 64;

/// A process that marks chunks. Numbers are not used twice (within 2^26 processes that came) by one
/// [`RootChunks`]; 0 is none.
pub type Owner = u32;

/// Whose processes they are that have places together, as the caller numbers them. One process can be many that mark chunks: it
/// opens the driver as often as it likes.
pub type Tenant = u64;

/// An owner, the process that it is, and its current kernel.
#[derive(Clone, Copy, Default)]
pub(super) struct Present {
    pub(super) owner: Owner,
    pub(super) holder: Holder,
    pub(super) tenant: Tenant,
    /// The previous owner among those whose processes share a list; 0 for none.
    pub(super) next: Owner,
    /// The number of the current kernel, as far as the prefetcher has learnt. Marks are compared with it.
    pub(super) now: u32,
    /// How many kernels the owner has begun, whether or not the prefetcher has learnt of them.
    pub(super) begun: u32,
    /// The count of evictions when the last of these kernels began.
    pub(super) since: u64,
}

impl RootChunks {
    /// Adds an owner that is a tenant by itself: see [`RootChunks::add_owner_of`].
    pub fn add_owner(&mut self, holder: Holder) -> Owner {
        self.add_owner_of(holder, holder)
    }

    /// Adds an owner, whose current kernel has number 0: the process that uses chunks as `holder`, and is `tenant`'s. If all
    /// places are taken, another owner goes.
    pub fn add_owner_of(&mut self, holder: Holder, tenant: Tenant) -> Owner {
        let place = self.free_place().or_else(|| self.place_of_another(tenant));
        let owner = self.next_owner(place.unwrap_or(0));
        self.last_owner = owner;
        let place = (owner % OWNERS) as usize;
        if let Some(before) = self.present.get(place).map(|p| p.owner) {
            self.remove_owner(before);
        }
        let since = self.evictions;
        let of_list = self.owners.get_mut(list_of(holder));
        if let (Some(p), Some(of_list)) = (self.present.get_mut(place), of_list) {
            *p = Present {
                owner,
                holder,
                tenant,
                next: core::mem::replace(of_list, owner),
                now: 0,
                begun: 0,
                since,
            };
            self.owners_now += 1;
        }
        owner
    }

    /// A place that no owner has; of several the one whose number comes next.
    fn free_place(&self) -> Option<u32> {
        let next = self.last_owner.wrapping_add(1);
        let mut places = (0..OWNERS).map(|n| next.wrapping_add(n) % OWNERS);
        places.find(|&place| {
            self.present
                .get(place as usize)
                .is_some_and(|p| p.owner == 0)
        })
    }

    /// The place that a further owner of `tenant` takes, where all are taken.
    fn place_of_another(&self, tenant: Tenant) -> Option<u32> {
        let places = |tenant| self.present.iter().filter(|p| p.tenant == tenant).count();
        let own = places(tenant);
        let most = self.present.iter().map(|p| places(p.tenant)).max()?;
        // To have one place more than the others is no reason to lose it: that would go on in turn.
        let keeps = own > 0 && own + 1 >= most;
        let goes = |p: &&Present| match keeps {
            true => p.tenant == tenant,
            false => places(p.tenant) == most,
        };
        let oldest = self
            .present
            .iter()
            .filter(goes)
            .max_by_key(|p| self.last_owner.wrapping_sub(p.owner));
        oldest.map(|p| p.owner % OWNERS)
    }

    /// The next number of an owner that has this place.
    fn next_owner(&self, place: u32) -> Owner {
        let next = self.last_owner.wrapping_add(1);
        let owner = next.wrapping_add(place.wrapping_sub(next) % OWNERS);
        // 0 is nobody.
        if owner == 0 {
            OWNERS
        } else {
            owner
        }
    }

    /// Removes an owner, and makes its marks void.
    pub fn remove_owner(&mut self, owner: Owner) {
        let Some(gone) = self.present_mut(owner).map(core::mem::take) else {
            return;
        };
        self.owners_now = self.owners_now.saturating_sub(1);
        let list = list_of(gone.holder);
        let before = self.of_list(list).find(|p| p.next == owner);
        let link = match before.map(|p| p.owner) {
            Some(before) => self.present_mut(before).map(|p| &mut p.next),
            None => self.owners.get_mut(list),
        };
        if let Some(link) = link {
            *link = gone.next;
        }
    }

    /// Removes all owners that are the process `holder`, which comes to the GPU, maybe once more. What it announced before
    /// it left the GPU is over. One that was there before may have had its number, and gone without a word.
    pub fn remove_owners_of(&mut self, holder: Holder) {
        while let Some(owner) = self.announces(holder).map(|p| p.owner) {
            self.remove_owner(owner);
        }
    }

    /// Notes that the process of an owner begins another kernel. The announcement calls this at once: otherwise chunks that
    /// the kernel asks for would count as the last kernel's until the prefetcher learns of it. False if the owner is gone.
    pub fn begins(&mut self, owner: Owner) -> bool {
        let since = self.evictions;
        let Some(p) = self.present_mut(owner) else {
            return false;
        };
        (p.begun, p.since) = (p.begun.wrapping_add(1), since);
        true
    }

    /// Notes the prefetcher's knowledge that the owner's current kernel has number `now`: marks up to earlier kernels are
    /// void. False if the owner is gone.
    pub fn set_now(&mut self, owner: Owner, now: u32) -> bool {
        self.present_mut(owner).map(|p| p.now = now).is_some()
    }

    /// The kernel that `holder` runs, if that is known.
    #[inline(always)]
    pub(super) fn running(&self, holder: Holder) -> Asked {
        // Most often no process announces anything.
        if self.owners_now == 0 {
            return Asked::default();
        }
        self.running_of_some(holder)
    }

    /// The same, where there are owners.
    #[inline(never)]
    pub(super) fn running_of_some(&self, holder: Holder) -> Asked {
        let kernel = |p: &Present| Asked {
            owner: p.owner,
            kernel: p.begun,
        };
        self.announces(holder).map(kernel).unwrap_or_default()
    }

    /// Whether the current kernel of `owner` may not have had room yet for all that it needs at once.
    pub(super) fn needs_room(&self, owner: Owner) -> bool {
        let since = self.present_of(owner).map(|p| p.since);
        // An eviction that came to nothing may have been counted in `since`.
        since.is_some_and(|since| self.evictions.saturating_sub(since) <= self.room.into())
    }

    #[inline(always)]
    pub(super) fn present_of(&self, owner: Owner) -> Option<&Present> {
        if owner == 0 {
            return None;
        }
        let p = self.present.get((owner % OWNERS) as usize)?;
        (p.owner == owner).then_some(p)
    }

    /// The owner whose process is `holder`, if there is one; the last that was added.
    pub(super) fn announces(&self, holder: Holder) -> Option<&Present> {
        let mut owners = self.of_list(list_of(holder));
        owners.find(|p| holder != 0 && p.holder == holder)
    }

    /// The owners whose processes have list number `list`, the one that came last first.
    pub(super) fn of_list(&self, list: usize) -> impl Iterator<Item = &Present> + '_ {
        let last = self.owners.get(list).and_then(|&o| self.present_of(o));
        core::iter::successors(last, |p| self.present_of(p.next)).take(OWNERS as usize)
    }

    pub(super) fn present_mut(&mut self, owner: Owner) -> Option<&mut Present> {
        let p = self.present.get_mut((owner % OWNERS) as usize)?;
        (owner != 0 && p.owner == owner).then_some(p)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    const HOLDER: Holder = 5;

    /// Adds so many owners of `tenant`.
    fn add(roots: &mut RootChunks, tenant: Tenant, count: u32) -> Vec<Owner> {
        let owners = (0..count).map(|n| roots.add_owner_of(HOLDER + Holder::from(n), tenant));
        owners.collect()
    }

    /// How many of these are still there.
    fn left(roots: &RootChunks, owners: &[Owner]) -> usize {
        let there = owners.iter().filter(|&&o| roots.present_of(o).is_some());
        there.count()
    }

    #[test]
    fn who_takes_all_places_takes_its_own() {
        let mut roots = RootChunks::new(1).unwrap();
        let quiet = add(&mut roots, 1, 1);
        let loud = add(&mut roots, 2, OWNERS - 1);
        assert_eq!(left(&roots, &loud), 63);
        let more = add(&mut roots, 2, 3 * OWNERS + 1);
        assert_eq!((left(&roots, &quiet), left(&roots, &loud)), (1, 0));
        // Its oldest went first.
        let (gone, there) = more.split_at(more.len() - 63);
        assert_eq!((left(&roots, gone), left(&roots, there)), (0, 63));
    }

    #[test]
    fn who_comes_late_gets_its_part_of_who_has_most() {
        let mut roots = RootChunks::new(1).unwrap();
        let few = add(&mut roots, 1, 3);
        let loud = add(&mut roots, 2, OWNERS);
        assert_eq!((left(&roots, &few), left(&roots, &loud)), (3, 61));
        let late = add(&mut roots, 3, OWNERS);
        // They go on in turn with 31 and 30, and neither takes one of the other's.
        let numbers = |roots: &RootChunks| [&few, &loud, &late].map(|owners| left(roots, owners));
        assert_eq!(numbers(&roots), [3, 31, 30]);
        assert_eq!(left(&roots, &loud[33..]), 31, "its oldest went");
        let again = add(&mut roots, 2, 40);
        assert_eq!((numbers(&roots), left(&roots, &again)), ([3, 0, 30], 31));
    }

    /// As many tenants as there are places.
    #[test]
    fn who_has_none_gets_one_of_the_oldest() {
        let mut roots = RootChunks::new(1).unwrap();
        let owners: Vec<_> = (0..u64::from(OWNERS))
            .flat_map(|tenant| add(&mut roots, tenant, 1))
            .collect();
        assert_eq!(left(&roots, &owners), 64);
        let late = add(&mut roots, 99, 1);
        assert_eq!((left(&roots, &owners[1..]), left(&roots, &late)), (63, 1));
        // It may come as often as it likes.
        let later = add(&mut roots, 99, 3);
        assert_eq!((left(&roots, &owners[1..]), left(&roots, &later)), (63, 1));
    }

    /// Whoever comes and goes takes nobody's place as long as there are free ones.
    #[test]
    fn a_place_that_is_left_is_taken_first() {
        let mut roots = RootChunks::new(1).unwrap();
        let stays = add(&mut roots, 1, 60);
        for n in 0..500 {
            let comes = add(&mut roots, 2, 1);
            assert_eq!((left(&roots, &stays), left(&roots, &comes)), (60, 1), "{n}");
            roots.remove_owner(comes[0]);
        }
    }

    #[test]
    fn a_number_that_wraps_is_nobodys() {
        for place in 0..OWNERS {
            let mut roots = RootChunks::new(1).unwrap();
            let all = add(&mut roots, 1, OWNERS);
            roots.last_owner = Owner::MAX - 1;
            let free = all.iter().find(|&&o| o % OWNERS == place).unwrap();
            roots.remove_owner(*free);
            let new = roots.add_owner_of(HOLDER, 1);
            assert!(new != 0 && new % OWNERS == place);
            assert_eq!(left(&roots, &[new]), 1);
            assert_eq!(roots.owners_now, OWNERS);
        }
    }

    proptest! {
        #![proptest_config(crate::testing::model(64))]

        /// Nobody loses a place to another tenant as long as it has no more than its part, nor while one is free; and of
        /// each tenant the oldest goes.
        #[test]
        fn each_tenant_keeps_its_part(
            steps in proptest::collection::vec((0..9_u64, 0..4_u8, 0..64_usize), 1..crate::testing::steps(150)),
        ) {
            let mut roots = RootChunks::new(1).unwrap();
            let mut there: Vec<(Owner, Tenant)> = Vec::new();
            for (tenant, step, which) in steps {
                // Tenant 0 is loud.
                let tenant = if step == 0 { 0 } else { tenant };
                if step == 3 && !there.is_empty() {
                    let (owner, _) = there.remove(which % there.len());
                    roots.remove_owner(owner);
                    continue;
                }
                for _ in 0..=which / 16 {
                    let of = |there: &[(Owner, Tenant)], t| there.iter().filter(|o| o.1 == t).count();
                    let own = of(&there, tenant);
                    let mut tenants: Vec<_> = there.iter().map(|o| o.1).chain([tenant]).collect();
                    tenants.sort_unstable();
                    tenants.dedup();
                    let new = roots.add_owner_of(HOLDER, tenant);
                    let gone = there.iter().position(|o| roots.present_of(o.0).is_none());
                    prop_assert_eq!(gone.is_some(), there.len() == OWNERS as usize);
                    if let Some(gone) = gone {
                        let (owner, of_whom) = there[gone];
                        let lost = of(&there, of_whom);
                        let first = there.iter().position(|o| o.1 == of_whom);
                        prop_assert_eq!(first, Some(gone), "{} is not its oldest", owner);
                        if of_whom != tenant {
                            prop_assert!(lost > OWNERS as usize / tenants.len());
                            prop_assert!(own == 0 || lost > own + 1);
                        }
                        there.remove(gone);
                    }
                    there.push((new, tenant));
                    prop_assert!(there.iter().all(|o| roots.present_of(o.0).is_some()));
                    prop_assert_eq!(roots.owners_now as usize, there.len());
                }
            }
        }
    }
}
