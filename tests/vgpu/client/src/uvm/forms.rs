// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Calls whose structures are not the same in all of NVIDIA's drivers. A program fills in one
//! structure, with the fields of all forms; the driver gets, and answers in, the form it has.

use std::io;
use std::os::fd::BorrowedFd;

use super::{sealed, Params, Uuid, MAX_PROCESSORS};
use crate::facts::{Fact, Facts};
use crate::layout::{c_struct, Layout};
use crate::{ffi, NvStatus};

/// A field of one form as the same field of another.
trait Convert<T> {
    fn convert(self) -> T;
}

macro_rules! same {
    ($($type:ty)*) => {
        $(impl Convert<$type> for $type {
            fn convert(self) -> $type { self }
        })*
    };
}
same!(u8 u32 i32 u64 Uuid);

impl Convert<u64> for u32 {
    fn convert(self) -> u64 {
        self.into()
    }
}

/// Sizes, and masks of sizes, of which the driver with the shorter field has none that are longer.
impl Convert<u32> for u64 {
    fn convert(self) -> u32 {
        self as u32
    }
}

impl<T: Convert<U>, U, const N: usize> Convert<[U; N]> for [T; N] {
    fn convert(self) -> [U; N] {
        self.map(Convert::convert)
    }
}

/// `name "C name" = number { field: type } as { form… }`, a form being `name [facts] size { field
/// "C field": type }`. The first one whose facts are all true is the driver's.
macro_rules! forms {
    ($(
        $(#[$doc:meta])* $name:ident $c:literal = $number:literal { $($field:ident: $type:ty,)* }
        as { $($form:ident [$($fact:ident)*] $size:literal {
            $($ff:ident $cfield:literal: $ftype:ty,)*
        })+ }
    )*) => {
        $(
            $(#[$doc])*
            #[repr(C)]
            #[derive(Clone, Copy, Debug, bytemuck::AnyBitPattern)]
            pub struct $name { $(pub $field: $type,)* }

            impl Default for $name {
                fn default() -> Self { bytemuck::Zeroable::zeroed() }
            }

            $(c_struct!(
                /// One form of the call, which some drivers have.
                $form, $c, $c = $number, $size, { $($ff $cfield: $ftype,)* }
            );)+

            impl sealed::Sealed for $name {}
            impl Params for $name {
                const NUMBER: u32 = $number;
                const NAME: &'static str = $c;
                fn status(&self) -> NvStatus { NvStatus(self.rm_status) }
                fn make(&mut self, fd: BorrowedFd<'_>) -> io::Result<()> {
                    let facts = Facts::loaded();
                    $(
                        if facts.have(&[$(Fact::$fact),*]) {
                            let mut form = $form::default();
                            $(form.$ff = self.$ff.convert();)*
                            ffi::uvm_ioctl(fd, Self::NUMBER, &mut form)?;
                            $(self.$ff = form.$ff.convert();)*
                            return Ok(());
                        }
                    )+
                    Err(io::ErrorKind::Unsupported.into())
                }
            }
        )*

        /// The form that each call has in a driver.
        pub(super) fn layouts(facts: Facts) -> Vec<Layout> {
            let calls = [$(
                [$((facts.have(&[$(Fact::$fact),*]), $form::LAYOUT)),+]
                    .into_iter().find(|form| form.0)
            ),*];
            calls.into_iter().flatten().map(|form| form.1).collect()
        }
    };
}

forms! {
    /// Takes a channel back.
    UnregisterChannel "UVM_UNREGISTER_CHANNEL" = 28 {
        gpu: Uuid,
        h_client: u32,
        h_channel: u32,
        rm_status: u32,
    } as {
        UnregisterChannelWithoutGpu [UnregisterWithoutGpu] 12 {
            h_client "hClient": u32,
            h_channel "hChannel": u32,
            rm_status "rmStatus": u32,
        }
        UnregisterChannelOfGpu [] 28 {
            gpu "gpuUuid": Uuid,
            h_client "hClient": u32,
            h_channel "hChannel": u32,
            rm_status "rmStatus": u32,
        }
    }

    /// Which errors are injected into a va_block.
    VaBlockInjectError "UVM_TEST_VA_BLOCK_INJECT_ERROR" = 233 {
        lookup_address: u64,
        page_table_retries: u32,
        user_pages_retries: u32,
        cpu_chunk_size_mask: u64,
        cpu_chunk_target_id: i32,
        cpu_chunk_actual_id: i32,
        cpu_chunk_errors: u32,
        eviction_error: u8,
        populate_error: u8,
        rm_status: u32,
    } as {
        VaBlockInjectErrorWide [WideSizes] 48 {
            lookup_address "lookup_address": u64,
            page_table_retries "page_table_allocation_retry_force_count": u32,
            user_pages_retries "user_pages_allocation_retry_force_count": u32,
            cpu_chunk_size_mask "cpu_chunk_allocation_size_mask": u64,
            cpu_chunk_target_id "cpu_chunk_allocation_target_id": i32,
            cpu_chunk_actual_id "cpu_chunk_allocation_actual_id": i32,
            cpu_chunk_errors "cpu_chunk_allocation_error_count": u32,
            eviction_error "eviction_error": u8,
            populate_error "populate_error": u8,
            rm_status "rmStatus": u32,
        }
        VaBlockInjectErrorNarrow [] 40 {
            lookup_address "lookup_address": u64,
            page_table_retries "page_table_allocation_retry_force_count": u32,
            user_pages_retries "user_pages_allocation_retry_force_count": u32,
            cpu_chunk_size_mask "cpu_chunk_allocation_size_mask": u32,
            cpu_chunk_target_id "cpu_chunk_allocation_target_id": i32,
            cpu_chunk_actual_id "cpu_chunk_allocation_actual_id": i32,
            cpu_chunk_errors "cpu_pages_allocation_error_count": u32,
            eviction_error "eviction_error": u8,
            populate_error "populate_error": u8,
            rm_status "rmStatus": u32,
        }
    }

    /// On which processors a page is resident.
    VaResidencyInfo "UVM_TEST_VA_RESIDENCY_INFO" = 235 {
        lookup_address: u64,
        is_async: u8,
        resident_on: [Uuid; MAX_PROCESSORS],
        resident_on_count: u32,
        resident_nid: i32,
        resident_physical_size: [u32; MAX_PROCESSORS],
        resident_physical_address: [u64; MAX_PROCESSORS],
        mapped_on: [Uuid; MAX_PROCESSORS],
        mapping_type: [u32; MAX_PROCESSORS],
        mapping_physical_address: [u64; MAX_PROCESSORS],
        is_egm_mapping: [u8; MAX_PROCESSORS],
        mapped_on_count: u32,
        page_size: [u64; MAX_PROCESSORS],
        populated_on: [Uuid; MAX_PROCESSORS],
        populated_on_count: u32,
        rm_status: u32,
    } as {
        VaResidencyInfoEgm [WideSizes ResidencyEgm] 20856 {
            lookup_address "lookup_address": u64,
            is_async "is_async": u8,
            resident_on "resident_on": [Uuid; MAX_PROCESSORS],
            resident_on_count "resident_on_count": u32,
            resident_nid "resident_nid": i32,
            resident_physical_size "resident_physical_size": [u32; MAX_PROCESSORS],
            resident_physical_address "resident_physical_address": [u64; MAX_PROCESSORS],
            mapped_on "mapped_on": [Uuid; MAX_PROCESSORS],
            mapping_type "mapping_type": [u32; MAX_PROCESSORS],
            mapping_physical_address "mapping_physical_address": [u64; MAX_PROCESSORS],
            is_egm_mapping "is_egm_mapping": [u8; MAX_PROCESSORS],
            mapped_on_count "mapped_on_count": u32,
            page_size "page_size": [u64; MAX_PROCESSORS],
            populated_on "populated_on": [Uuid; MAX_PROCESSORS],
            populated_on_count "populated_on_count": u32,
            rm_status "rmStatus": u32,
        }
        VaResidencyInfoWide [WideSizes] 20600 {
            lookup_address "lookup_address": u64,
            is_async "is_async": u8,
            resident_on "resident_on": [Uuid; MAX_PROCESSORS],
            resident_on_count "resident_on_count": u32,
            resident_nid "resident_nid": i32,
            resident_physical_size "resident_physical_size": [u32; MAX_PROCESSORS],
            resident_physical_address "resident_physical_address": [u64; MAX_PROCESSORS],
            mapped_on "mapped_on": [Uuid; MAX_PROCESSORS],
            mapping_type "mapping_type": [u32; MAX_PROCESSORS],
            mapping_physical_address "mapping_physical_address": [u64; MAX_PROCESSORS],
            mapped_on_count "mapped_on_count": u32,
            page_size "page_size": [u64; MAX_PROCESSORS],
            populated_on "populated_on": [Uuid; MAX_PROCESSORS],
            populated_on_count "populated_on_count": u32,
            rm_status "rmStatus": u32,
        }
        VaResidencyInfoNarrow [] 19568 {
            lookup_address "lookup_address": u64,
            is_async "is_async": u8,
            resident_on "resident_on": [Uuid; MAX_PROCESSORS],
            resident_on_count "resident_on_count": u32,
            resident_nid "resident_nid": i32,
            resident_physical_size "resident_physical_size": [u32; MAX_PROCESSORS],
            resident_physical_address "resident_physical_address": [u64; MAX_PROCESSORS],
            mapped_on "mapped_on": [Uuid; MAX_PROCESSORS],
            mapping_type "mapping_type": [u32; MAX_PROCESSORS],
            mapping_physical_address "mapping_physical_address": [u64; MAX_PROCESSORS],
            mapped_on_count "mapped_on_count": u32,
            page_size "page_size": [u32; MAX_PROCESSORS],
            populated_on "populated_on": [Uuid; MAX_PROCESSORS],
            populated_on_count "populated_on_count": u32,
            rm_status "rmStatus": u32,
        }
    }

    /// Allocates and frees memory of RM's.
    PmaAllocFree "UVM_TEST_PMA_ALLOC_FREE" = 253 {
        gpu: Uuid,
        page_size: u64,
        contiguous: u8,
        num_pages: u64,
        phys_begin: u64,
        phys_end: u64,
        nap_us_before_free: u32,
        rm_status: u32,
    } as {
        PmaAllocFreeWide [WideSizes] 64 {
            gpu "gpu_uuid": Uuid,
            page_size "page_size": u64,
            contiguous "contiguous": u8,
            num_pages "num_pages": u64,
            phys_begin "phys_begin": u64,
            phys_end "phys_end": u64,
            nap_us_before_free "nap_us_before_free": u32,
            rm_status "rmStatus": u32,
        }
        PmaAllocFreeNarrow [] 56 {
            gpu "gpu_uuid": Uuid,
            page_size "page_size": u32,
            contiguous "contiguous": u8,
            num_pages "num_pages": u64,
            phys_begin "phys_begin": u64,
            phys_end "phys_end": u64,
            nap_us_before_free "nap_us_before_free": u32,
            rm_status "rmStatus": u32,
        }
    }

    /// How a GPU counts accesses. Where there is one kind of counters, it is of accesses to
    /// others' memory, and is never exhausted.
    ReconfigureAccessCounters "UVM_TEST_RECONFIGURE_ACCESS_COUNTERS" = 256 {
        gpu: Uuid,
        granularity: u32,
        momc_granularity: u32,
        use_limit: u32,
        momc_use_limit: u32,
        threshold: u32,
        enable_migrations: u8,
        enable_momc_migrations: u8,
        max_batch_size: u32,
        one_iteration_per_batch: u8,
        sleep_per_iteration_us: u32,
        rm_status: u32,
    } as {
        ReconfigureOneKind [OneCounterKind] 44 {
            gpu "gpu_uuid": Uuid,
            granularity "granularity": u32,
            threshold "threshold": u32,
            enable_migrations "enable_migrations": u8,
            max_batch_size "max_batch_size": u32,
            one_iteration_per_batch "one_iteration_per_batch": u8,
            sleep_per_iteration_us "sleep_per_iteration_us": u32,
            rm_status "rmStatus": u32,
        }
        ReconfigureTwoKinds [] 44 {
            gpu "gpu_uuid": Uuid,
            granularity "mimc_granularity": u32,
            momc_granularity "momc_granularity": u32,
            use_limit "mimc_use_limit": u32,
            momc_use_limit "momc_use_limit": u32,
            threshold "threshold": u32,
            enable_migrations "enable_mimc_migrations": u8,
            enable_momc_migrations "enable_momc_migrations": u8,
            rm_status "rmStatus": u32,
        }
    }

    /// Has a GPU's counters start over.
    ResetAccessCounters "UVM_TEST_RESET_ACCESS_COUNTERS" = 257 {
        gpu: Uuid,
        mode: u32,
        counter_type: u32,
        bank: u32,
        tag: u32,
        rm_status: u32,
    } as {
        ResetOneKind [OneCounterKind] 32 {
            gpu "gpu_uuid": Uuid,
            mode "mode": u32,
            bank "bank": u32,
            tag "tag": u32,
            rm_status "rmStatus": u32,
        }
        ResetTwoKinds [] 36 {
            gpu "gpu_uuid": Uuid,
            mode "mode": u32,
            counter_type "counter_type": u32,
            bank "bank": u32,
            tag "tag": u32,
            rm_status "rmStatus": u32,
        }
    }

    /// What goes wrong in a VA space.
    VaSpaceInjectError "UVM_TEST_VA_SPACE_INJECT_ERROR" = 272 {
        migrate_vma_fail_nth: u32,
        va_block_fail_nth: u32,
        counter_buffer: u8,
        counter_block_context: u8,
        counter_isr: u8,
        counter_isr_stats: u8,
        counter_notifications: u8,
        counter_notification_cache: u8,
        rm_status: u32,
    } as {
        VaSpaceInjectErrorOneKind [OneCounterKind] 20 {
            migrate_vma_fail_nth "migrate_vma_allocation_fail_nth": u32,
            va_block_fail_nth "va_block_allocation_fail_nth": u32,
            counter_buffer "gpu_access_counters_alloc_buffer": u8,
            counter_block_context "gpu_access_counters_alloc_block_context": u8,
            counter_isr "gpu_isr_access_counters_alloc": u8,
            counter_isr_stats "gpu_isr_access_counters_alloc_stats_cpu": u8,
            counter_notifications "access_counters_batch_context_notifications": u8,
            counter_notification_cache "access_counters_batch_context_notification_cache": u8,
            rm_status "rmStatus": u32,
        }
        VaSpaceInjectErrorTwoKinds [] 12 {
            migrate_vma_fail_nth "migrate_vma_allocation_fail_nth": u32,
            va_block_fail_nth "va_block_allocation_fail_nth": u32,
            rm_status "rmStatus": u32,
        }
    }

    /// Which sizes UVM allocates host memory in.
    GetCpuChunkAllocSizes "UVM_TEST_GET_CPU_CHUNK_ALLOC_SIZES" = 291 {
        size_mask: u64,
        rm_status: u32,
    } as {
        GetCpuChunkAllocSizesWide [WideSizes] 16 {
            size_mask "alloc_size_mask": u64,
            rm_status "rmStatus": u32,
        }
        GetCpuChunkAllocSizesNarrow [] 8 {
            size_mask "alloc_size_mask": u32,
            rm_status "rmStatus": u32,
        }
    }
}
