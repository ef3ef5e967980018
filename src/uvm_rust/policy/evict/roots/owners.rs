// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Owners: processes that announce kernels, and mark the chunks that these will access.

use super::super::holders::list_of;
use super::{Asked, Holder, RootChunks};

/// How many processes can mark chunks of one GPU at a time. A further process takes the place of the one that has been
/// there for longest, which must then register again.
pub const OWNERS: u32 = 64;

/// A process that marks chunks. Numbers are not used twice (within 2^32) by one
/// [`RootChunks`]; 0 is none.
pub type Owner = u32;

/// An owner, the process that it is, and its current kernel.
#[derive(Clone, Copy, Default)]
pub(super) struct Present {
    pub(super) owner: Owner,
    pub(super) holder: Holder,
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
    /// Adds an owner, whose current kernel has number 0: the process that uses chunks as `holder`.
    pub fn add_owner(&mut self, holder: Holder) -> Owner {
        let owner = self.last_owner.wrapping_add(1).max(1);
        self.last_owner = owner;
        let place = (owner % OWNERS) as usize;
        // The owner that had this place before goes.
        if let Some(first) = self.present.get(place).map(|p| p.owner) {
            self.remove_owner(first);
        }
        let since = self.evictions;
        let of_list = self.owners.get_mut(list_of(holder));
        if let (Some(p), Some(of_list)) = (self.present.get_mut(place), of_list) {
            *p = Present {
                owner,
                holder,
                next: core::mem::replace(of_list, owner),
                now: 0,
                begun: 0,
                since,
            };
            self.owners_now += 1;
        }
        owner
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
