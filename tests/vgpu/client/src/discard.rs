// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Discard: NVIDIA's calls of drivers from 580 on, which ours answers too, and our
//! batch.
#![allow(missing_docs)]

use crate::facts::{Fact, Facts};
use crate::layout::c_struct;
use crate::uvm::Uuid;
use crate::{NvStatus, Process, Result};

/// The two kinds of discard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discard {
    /// UvmDiscard: mappings are destroyed at once.
    Eager,
    /// UvmDiscardLazy: mappings stay; a prefetch must come before the next access.
    Lazy,
}

/// A list of the driver's that a chunk is on: `UVM_TEST_PMM_ALLOC_LIST_TYPE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllocList {
    Unused,
    Discarded,
    Used,
}

// NVIDIA's, which the headers of 550 do not have: checked by nothing but size.
c_struct!(
    DiscardParams, "UVM_DISCARD_PARAMS", "UVM_DISCARD" = 80, 32, {
        base "base": u64,
        length "length": u64,
        flags "flags": u64,
        rm_status "rmStatus": u32,
        padding "": u32,
    }
);

c_struct!(
    DiscardStatus, "UVM_TEST_VA_BLOCK_DISCARD_STATUS_PARAMS", "UVM_TEST_VA_BLOCK_DISCARD_STATUS" = 310, 16, {
        lookup_address "lookup_address": u64,
        discarded "discarded": u8,
        padding "": [u8; 3],
        rm_status "rmStatus": u32,
    }
);

c_struct!(
    GetAllocList, "UVM_TEST_PMM_GET_ALLOC_LIST_PARAMS", "UVM_TEST_PMM_GET_ALLOC_LIST" = 311, 32, {
        address "address": u64,
        gpu "gpu_uuid": Uuid,
        list_type "list_type": u32,
        rm_status "rmStatus": u32,
    }
);

/// Several ranges at once; the header says what the counts mean.
pub use uvm_uapi::uvm_rust_discard_batch as DiscardBatch;
/// One range of a [`DiscardBatch`].
pub use uvm_uapi::uvm_rust_discard_range as DiscardRange;

impl Process {
    /// Discards a range, like cuMemDiscardBatchAsync.
    pub fn discard(&self, base: u64, length: u64, how: Discard) -> Result<()> {
        self.discard_with(base, length, u64::from(how == Discard::Eager))
    }

    /// The same, with flags that need not be right.
    pub fn discard_with(&self, base: u64, length: u64, flags: u64) -> Result<()> {
        let mut params = DiscardParams {
            base,
            length,
            flags,
            ..Default::default()
        };
        self.ask("UVM_DISCARD", DiscardParams::LAYOUT.number.1, &mut params)?;
        crate::gpu::check("UVM_DISCARD", NvStatus(params.rm_status))
    }

    /// Whether the page of `va` is discarded.
    pub fn is_discarded(&self, va: u64) -> Result<bool> {
        let mut params = DiscardStatus {
            lookup_address: va,
            ..Default::default()
        };
        let name = "UVM_TEST_VA_BLOCK_DISCARD_STATUS";
        self.ask(name, DiscardStatus::LAYOUT.number.1, &mut params)?;
        crate::gpu::check(name, NvStatus(params.rm_status))?;
        Ok(params.discarded != 0)
    }

    /// The list that the chunk behind `va` on `gpu` is on; `None` without a chunk.
    pub fn alloc_list(&self, va: u64, gpu: Uuid) -> Result<Option<AllocList>> {
        let mut params = GetAllocList {
            address: va,
            gpu,
            ..Default::default()
        };
        let name = "UVM_TEST_PMM_GET_ALLOC_LIST";
        self.ask(name, GetAllocList::LAYOUT.number.1, &mut params)?;
        if NvStatus(params.rm_status) == NvStatus::INVALID_STATE {
            return Ok(None);
        }
        crate::gpu::check(name, NvStatus(params.rm_status))?;
        let counts_from_one = Facts::loaded().has(Fact::PmmState);
        Ok(list_of(params.list_type, counts_from_one))
    }

    /// Discards several ranges in one call. Returns what the driver filled in, also
    /// where it failed half-way, and how it ended.
    pub fn discard_batch(
        &self,
        ranges: &[DiscardRange],
        how: Discard,
    ) -> (DiscardBatch, Result<()>) {
        let mut batch = DiscardBatch {
            size: size_of::<DiscardBatch>() as u32,
            flags: u32::from(how == Discard::Eager),
            ranges: ranges.as_ptr() as u64,
            range_count: ranges.len() as u32,
            range_size: size_of::<DiscardRange>() as u32,
            ..Default::default()
        };
        let name = "UVM_RUST_DISCARD_BATCH";
        let result = self.ask(name, uvm_uapi::UVM_RUST_DISCARD_BATCH, &mut batch);
        (batch, result)
    }
}

/// What the test says of a chunk: 590 and later have an error for one that is on no list, 580 has the number 0.
fn list_of(number: u32, counts_from_one: bool) -> Option<AllocList> {
    let lists = [AllocList::Unused, AllocList::Discarded, AllocList::Used];
    let index = number.checked_sub(u32::from(counts_from_one))?;
    lists.get(index as usize).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_the_list_are_read() {
        let read = |counts| [0, 1, 2, 3].map(|number| list_of(number, counts));
        let [unused, discarded, used] = [
            Some(AllocList::Unused),
            Some(AllocList::Discarded),
            Some(AllocList::Used),
        ];
        assert_eq!(read(false), [unused, discarded, used, None]);
        assert_eq!(read(true), [None, unused, discarded, used]);
    }
}
