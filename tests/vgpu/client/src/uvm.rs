// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The calls of /dev/nvidia-uvm that this crate and the tests make, as 550.163.01 has them; where
//! later drivers differ, by the facts of the one that runs ([`Facts`]).
//!
//! Fields are named as in `uvm_ioctl.h`, `uvm_linux_ioctl.h`, `uvm_test_ioctl.h`
//! and `uvm_types.h`, in our spelling; those headers say what they mean. Numbers
//! are raw, without _IOC encoding; NVIDIA's tests start at 200.
#![allow(missing_docs)]

mod forms;

use std::io;
use std::os::fd::BorrowedFd;

use crate::facts::{Fact, Facts};
use crate::layout::{c_struct, Layout};
use crate::{ffi, NvStatus};

pub use forms::{
    GetCpuChunkAllocSizes, PmaAllocFree, ReconfigureAccessCounters, ResetAccessCounters,
    UnregisterChannel, VaBlockInjectError, VaResidencyInfo, VaSpaceInjectError,
};

/// Most processors UVM knows: 32 GPUs of up to 8 instances, and the CPU.
pub const MAX_PROCESSORS: usize = 257;

/// A GPU or the CPU, as UVM names it.
#[repr(transparent)]
#[derive(
    Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, bytemuck::Pod, bytemuck::Zeroable,
)]
pub struct Uuid(pub [u8; 16]);

impl Uuid {
    /// The UUID under which UVM knows the CPU.
    pub const CPU: Self = Self([
        0xa6, 0x5e, 0x0f, 0x4e, 0xd7, 0xd4, 0x7b, 0xa2, 0x50, 0x47, 0x41, 0x2c, 0x14, 0x2a, 0x77,
        0x73,
    ]);
}

impl std::fmt::Debug for Uuid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if *self == Self::CPU {
            return f.write_str("CPU");
        }
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

mod sealed {
    pub trait Sealed {}
}

/// The structure of one of UVM's calls, none of which holds an address of the
/// program's that UVM writes to.
pub trait Params: bytemuck::AnyBitPattern + sealed::Sealed {
    /// The ioctl's number, raw as all of UVM's are.
    const NUMBER: u32;
    /// The call's name, for messages.
    const NAME: &'static str;
    /// The `rmStatus` that UVM wrote.
    fn status(&self) -> NvStatus;
    /// Makes the call, in the form that the driver has.
    #[doc(hidden)]
    fn make(&mut self, fd: BorrowedFd<'_>) -> io::Result<()> {
        ffi::uvm_ioctl(fd, Self::NUMBER, self)
    }
}

macro_rules! calls {
    ($($(#[$doc:meta])* $name:ident $c:literal = $number:literal, $size:literal, {
        $($field:ident $cfield:literal: $type:ty,)*
    })*) => {
        $(
            c_struct!($(#[$doc])* $name, $c, $c = $number, $size, { $($field $cfield: $type,)* });
            impl sealed::Sealed for $name {}
            impl Params for $name {
                const NUMBER: u32 = $number;
                const NAME: &'static str = $c;
                fn status(&self) -> NvStatus { NvStatus(self.rm_status) }
            }
        )*
        const CALLS: &[Layout] = &[$($name::LAYOUT,)*];
    };
}

/// Does the driver have the test of this name? Some have been taken out.
pub fn is_there(name: &str, facts: Facts) -> bool {
    let gone = match name {
        "UVM_TEST_PMM_SYSMEM" => Fact::NoPmmSysmem,
        "UVM_TEST_PMM_REVERSE_MAP" => Fact::NoPmmReverseMap,
        "UVM_TEST_PMM_INDIRECT_PEERS" => Fact::NoPmmIndirectPeers,
        _ => return true,
    };
    !facts.has(gone)
}

/// Every layout of this module as a driver with these facts has it, with the C types' names
/// filled in.
pub fn layouts(facts: Facts) -> Vec<Layout> {
    let v2 = facts.has(Fact::ToolsV2);
    let (tracker, others) = match v2 {
        true => (
            InitEventTrackerV2::LAYOUT,
            [PlainEventControl::LAYOUT, GpuFaultEventToolsV2::LAYOUT],
        ),
        false => (
            InitEventTracker::LAYOUT,
            [EventControl::LAYOUT, GpuFaultEvent::LAYOUT],
        ),
    };
    let calls = CALLS
        .iter()
        .copied()
        .chain(forms::layouts(facts))
        .chain([tracker])
        .chain(crate::access::LAYOUTS)
        .filter(|layout| is_there(layout.number.0, facts))
        .map(|layout| {
            // A call's structure is its name and this.
            let c_type: &'static str = format!("{}_PARAMS", layout.number.0).leak();
            Layout { c_type, ..layout }
        });
    calls
        .chain([MigrationEvent::LAYOUT])
        .chain(others)
        .collect()
}

c_struct!(
    /// Starts an event queue. Not public: UVM writes to its buffers.
    InitEventTracker, "UVM_TOOLS_INIT_EVENT_TRACKER", "UVM_TOOLS_INIT_EVENT_TRACKER" = 56, 64, {
        queue_buffer "queueBuffer": u64,
        queue_buffer_size "queueBufferSize": u64,
        control_buffer "controlBuffer": u64,
        processor "processor": Uuid,
        all_processors "allProcessors": u32,
        uvm_fd "uvmFd": u32,
        rm_status "rmStatus": u32,
        requested_version "requestedVersion": u32,
        granted_version "grantedVersion": u32,
    }
);

c_struct!(
    /// The same where it is a call of its own.
    InitEventTrackerV2, "UVM_TOOLS_INIT_EVENT_TRACKER_V2", "UVM_TOOLS_INIT_EVENT_TRACKER_V2" = 76, 56, {
        queue_buffer "queueBuffer": u64,
        queue_buffer_size "queueBufferSize": u64,
        control_buffer "controlBuffer": u64,
        processor "processor": Uuid,
        all_processors "allProcessors": u32,
        uvm_fd "uvmFd": u32,
        rm_status "rmStatus": u32,
    }
);

c_struct!(
    /// Where an event queue's ends are.
    EventControl, "UvmToolsEventControlData_V2", "" = 0, 536, {
        get_ahead "get_ahead": u32,
        get_behind "get_behind": u32,
        put_ahead "put_ahead": u32,
        put_behind "put_behind": u32,
        version "version": u32,
        padding "padding32Bits": u32,
        dropped "dropped": [u64; 64],
    }
);

c_struct!(
    /// The same where queues of the second version are a call of their own.
    PlainEventControl, "UvmToolsEventControlData", "" = 0, 528, {
        get_ahead "get_ahead": u32,
        get_behind "get_behind": u32,
        put_ahead "put_ahead": u32,
        put_behind "put_behind": u32,
        dropped "dropped": [u64; 64],
    }
);

c_struct!(
    /// What UVM's tools are told when pages moved.
    MigrationEvent, "UvmEventMigrationInfo_V2", "" = 0, 72, {
        event_type "eventType": u8,
        cause "migrationCause": u8,
        padding "padding16Bits": u16,
        source "srcIndex": u16,
        destination "dstIndex": u16,
        source_node "srcNid": i32,
        destination_node "dstNid": i32,
        address "address": u64,
        bytes "migratedBytes": u64,
        begin "beginTimeStamp": u64,
        end "endTimeStamp": u64,
        range_group "rangeGroupId": u64,
        begin_gpu "beginTimeStampGpu": u64,
        end_gpu "endTimeStampGpu": u64,
    }
);

c_struct!(
    /// An entry of the fault buffer.
    GpuFaultEvent, "UvmEventGpuFaultInfo_V2", "" = 0, 40, {
        event_type "eventType": u8,
        fault_type "faultType": u8,
        access_type "accessType": u8,
        padding1 "padding8Bits_1": u8,
        gpc "gpcId": u16,
        client "clientId": u16,
        address "address": u64,
        time "timeStamp": u64,
        time_gpu "timeStampGpu": u64,
        batch "batchId": u32,
        client_type "clientType": u8,
        padding2 "padding8Bits_2": u8,
        gpu "gpuIndex": u16,
    }
);

c_struct!(
    /// The same where queues of the second version are a call of their own.
    GpuFaultEventToolsV2, "UvmEventGpuFaultInfo_V2", "" = 0, 40, {
        event_type "eventType": u8,
        fault_type "faultType": u8,
        gpu "gpuIndex": u16,
        gpc "gpcId": u16,
        client "clientId": u16,
        address "address": u64,
        time "timeStamp": u64,
        time_gpu "timeStampGpu": u64,
        batch "batchId": u32,
        client_type "clientType": u8,
        access_type "accessType": u8,
        padding "padding16bits": u16,
    }
);

// What is read of it lies in the same place.
const _: () = {
    use std::mem::offset_of as at;
    assert!(at!(GpuFaultEvent, address) == at!(GpuFaultEventToolsV2, address));
    assert!(at!(GpuFaultEvent, batch) == at!(GpuFaultEventToolsV2, batch));
};

/// Size of an entry of an event queue, version 2.
pub const EVENT_SIZE: usize = 72;

/// A bit of `Initialize::flags`: several processes may share the VA space, which has the memory of none.
pub const MULTI_PROCESS_SHARING_MODE: u64 = 2;

calls! {
    Initialize "UVM_INITIALIZE" = 0x3000_0001, 16, {
        flags "flags": u64,
        rm_status "rmStatus": u32,
    }
    MmInitialize "UVM_MM_INITIALIZE" = 75, 8, {
        uvm_fd "uvmFd": i32,
        rm_status "rmStatus": u32,
    }
    RegisterGpu "UVM_REGISTER_GPU" = 37, 40, {
        gpu "gpu_uuid": Uuid,
        numa_enabled "numaEnabled": u8,
        numa_node "numaNodeId": i32,
        rm_ctrl_fd "rmCtrlFd": i32,
        h_client "hClient": u32,
        h_smc_part_ref "hSmcPartRef": u32,
        rm_status "rmStatus": u32,
    }
    UnregisterGpu "UVM_UNREGISTER_GPU" = 38, 20, {
        gpu "gpu_uuid": Uuid,
        rm_status "rmStatus": u32,
    }
    RegisterGpuVaspace "UVM_REGISTER_GPU_VASPACE" = 25, 32, {
        gpu "gpuUuid": Uuid,
        rm_ctrl_fd "rmCtrlFd": i32,
        h_client "hClient": u32,
        h_vaspace "hVaSpace": u32,
        rm_status "rmStatus": u32,
    }
    UnregisterGpuVaspace "UVM_UNREGISTER_GPU_VASPACE" = 26, 20, {
        gpu "gpuUuid": Uuid,
        rm_status "rmStatus": u32,
    }
    RegisterChannel "UVM_REGISTER_CHANNEL" = 27, 56, {
        gpu "gpuUuid": Uuid,
        rm_ctrl_fd "rmCtrlFd": i32,
        h_client "hClient": u32,
        h_channel "hChannel": u32,
        base "base": u64,
        length "length": u64,
        rm_status "rmStatus": u32,
    }
    Migrate "UVM_MIGRATE" = 51, 80, {
        base "base": u64,
        length "length": u64,
        destination "destinationUuid": Uuid,
        flags "flags": u32,
        semaphore_address "semaphoreAddress": u64,
        semaphore_payload "semaphorePayload": u32,
        cpu_numa_node "cpuNumaNode": i32,
        user_space_start "userSpaceStart": u64,
        user_space_length "userSpaceLength": u64,
        rm_status "rmStatus": u32,
    }
    SetPreferredLocation "UVM_SET_PREFERRED_LOCATION" = 42, 40, {
        base "requestedBase": u64,
        length "length": u64,
        location "preferredLocation": Uuid,
        cpu_numa_node "preferredCpuNumaNode": i32,
        rm_status "rmStatus": u32,
    }
    UnsetPreferredLocation "UVM_UNSET_PREFERRED_LOCATION" = 43, 24, {
        base "requestedBase": u64,
        length "length": u64,
        rm_status "rmStatus": u32,
    }
    EnableReadDuplication "UVM_ENABLE_READ_DUPLICATION" = 44, 24, {
        base "requestedBase": u64,
        length "length": u64,
        rm_status "rmStatus": u32,
    }
    DisableReadDuplication "UVM_DISABLE_READ_DUPLICATION" = 45, 24, {
        base "requestedBase": u64,
        length "length": u64,
        rm_status "rmStatus": u32,
    }
    SetAccessedBy "UVM_SET_ACCESSED_BY" = 46, 40, {
        base "requestedBase": u64,
        length "length": u64,
        processor "accessedByUuid": Uuid,
        rm_status "rmStatus": u32,
    }
    UnsetAccessedBy "UVM_UNSET_ACCESSED_BY" = 47, 40, {
        base "requestedBase": u64,
        length "length": u64,
        processor "accessedByUuid": Uuid,
        rm_status "rmStatus": u32,
    }
    CreateRangeGroup "UVM_CREATE_RANGE_GROUP" = 23, 16, {
        id "rangeGroupId": u64,
        rm_status "rmStatus": u32,
    }
    DestroyRangeGroup "UVM_DESTROY_RANGE_GROUP" = 24, 16, {
        id "rangeGroupId": u64,
        rm_status "rmStatus": u32,
    }
    SetRangeGroup "UVM_SET_RANGE_GROUP" = 31, 32, {
        id "rangeGroupId": u64,
        base "requestedBase": u64,
        length "length": u64,
        rm_status "rmStatus": u32,
    }
    PreventMigration "UVM_PREVENT_MIGRATION_RANGE_GROUPS" = 40, 272, {
        ids "rangeGroupIds": [u64; 32],
        count "numGroupIds": u64,
        rm_status "rmStatus": u32,
    }
    AllowMigration "UVM_ALLOW_MIGRATION_RANGE_GROUPS" = 41, 272, {
        ids "rangeGroupIds": [u64; 32],
        count "numGroupIds": u64,
        rm_status "rmStatus": u32,
    }
    PageableMemAccess "UVM_PAGEABLE_MEM_ACCESS" = 39, 8, {
        supported "pageableMemAccess": u8,
        rm_status "rmStatus": u32,
    }
    EnablePeerAccess "UVM_ENABLE_PEER_ACCESS" = 29, 36, {
        a "gpuUuidA": Uuid,
        b "gpuUuidB": Uuid,
        rm_status "rmStatus": u32,
    }
    DisablePeerAccess "UVM_DISABLE_PEER_ACCESS" = 30, 36, {
        a "gpuUuidA": Uuid,
        b "gpuUuidB": Uuid,
        rm_status "rmStatus": u32,
    }
    CreateExternalRange "UVM_CREATE_EXTERNAL_RANGE" = 73, 24, {
        base "base": u64,
        length "length": u64,
        rm_status "rmStatus": u32,
    }
    EnableEvents "UVM_TOOLS_EVENT_QUEUE_ENABLE_EVENTS" = 58, 16, {
        flags "eventTypeFlags": u64,
        rm_status "rmStatus": u32,
    }
    FlushEvents "UVM_TOOLS_FLUSH_EVENTS" = 67, 4, {
        rm_status "rmStatus": u32,
    }
    ValidateVaRange "UVM_VALIDATE_VA_RANGE" = 72, 24, {
        base "base": u64,
        length "length": u64,
        rm_status "rmStatus": u32,
    }
    GetGpuRefCount "UVM_TEST_GET_GPU_REF_COUNT" = 200, 32, {
        gpu "gpu_uuid": Uuid,
        ref_count "ref_count": u64,
        rm_status "rmStatus": u32,
    }
    RangeTreeRandom "UVM_TEST_RANGE_TREE_RANDOM" = 203, 176, {
        seed "seed": u32,
        main_iterations "main_iterations": u64,
        verbose "verbose": u32,
        high_probability "high_probability": u32,
        add_remove_shrink_group_probability "add_remove_shrink_group_probability": u32,
        shrink_probability "shrink_probability": u32,
        collision_checks "collision_checks": u32,
        iterator_checks "iterator_checks": u32,
        max_end "max_end": u64,
        max_ranges "max_ranges": u64,
        max_batch_count "max_batch_count": u64,
        max_attempts "max_attempts": u32,
        stats "stats": [u64; 12],
        rm_status "rmStatus": u32,
    }
    PeerRefCount "UVM_TEST_PEER_REF_COUNT" = 207, 48, {
        gpu1 "gpu_uuid_1": Uuid,
        gpu2 "gpu_uuid_2": Uuid,
        rm_status "rmStatus": u32,
        ref_count "ref_count": u64,
    }
    VaRangeSplit "UVM_TEST_VA_RANGE_SPLIT" = 208, 16, {
        split_address "split_address": u64,
        rm_status "rmStatus": u32,
    }
    VaRangeInjectSplitError "UVM_TEST_VA_RANGE_INJECT_SPLIT_ERROR" = 209, 16, {
        lookup_address "lookup_address": u64,
        rm_status "rmStatus": u32,
    }
    ChangePteMapping "UVM_TEST_CHANGE_PTE_MAPPING" = 211, 32, {
        processor "uuid": Uuid,
        va "va": u64,
        mapping "mapping": u32,
        rm_status "rmStatus": u32,
    }
    PushSanity "UVM_TEST_PUSH_SANITY" = 213, 8, {
        skip_timestamp_test "skipTimestampTest": u8,
        rm_status "rmStatus": u32,
    }
    ChannelStress "UVM_TEST_CHANNEL_STRESS" = 215, 28, {
        mode "mode": u32,
        iterations "iterations": u32,
        num_streams "num_streams": u32,
        key_rotation_operation "key_rotation_operation": u32,
        seed "seed": u32,
        verbose "verbose": u32,
        rm_status "rmStatus": u32,
    }
    CeSanity "UVM_TEST_CE_SANITY" = 216, 8, {
        skip_timestamp_test "skipTimestampTest": u8,
        rm_status "rmStatus": u32,
    }
    PmmQuery "UVM_TEST_PMM_QUERY" = 221, 40, {
        gpu "gpu_uuid": Uuid,
        key "key": u64,
        value "value": u64,
        rm_status "rmStatus": u32,
    }
    PmmCheckLeak "UVM_TEST_PMM_CHECK_LEAK" = 222, 48, {
        gpu "gpu_uuid": Uuid,
        chunk_size "chunk_size": u64,
        alloc_limit "alloc_limit": i64,
        allocated "allocated": u64,
        rm_status "rmStatus": u32,
    }
    PerfModuleSanity "UVM_TEST_PERF_MODULE_SANITY" = 224, 16, {
        range_address "range_address": u64,
        range_size "range_size": u32,
        rm_status "rmStatus": u32,
    }
    RangeAllocatorSanity "UVM_TEST_RANGE_ALLOCATOR_SANITY" = 225, 16, {
        verbose "verbose": u32,
        seed "seed": u32,
        iters "iters": u32,
        rm_status "rmStatus": u32,
    }
    FaultBufferFlush "UVM_TEST_FAULT_BUFFER_FLUSH" = 227, 16, {
        iterations "iterations": u64,
        rm_status "rmStatus": u32,
    }
    PeerIdentityMappings "UVM_TEST_PEER_IDENTITY_MAPPINGS" = 234, 36, {
        a "gpuA": Uuid,
        b "gpuB": Uuid,
        rm_status "rmStatus": u32,
    }
    EnableNvlinkPeerAccess "UVM_TEST_ENABLE_NVLINK_PEER_ACCESS" = 260, 36, {
        a "gpuUuidA": Uuid,
        b "gpuUuidB": Uuid,
        rm_status "rmStatus": u32,
    }
    DisableNvlinkPeerAccess "UVM_TEST_DISABLE_NVLINK_PEER_ACCESS" = 261, 36, {
        a "gpuUuidA": Uuid,
        b "gpuUuidB": Uuid,
        rm_status "rmStatus": u32,
    }
    PmmAsyncAlloc "UVM_TEST_PMM_ASYNC_ALLOC" = 236, 28, {
        gpu "gpu_uuid": Uuid,
        num_chunks "num_chunks": u32,
        num_work_iterations "num_work_iterations": u32,
        rm_status "rmStatus": u32,
    }
    SetPrefetchFiltering "UVM_TEST_SET_PREFETCH_FILTERING" = 237, 24, {
        gpu "gpu_uuid": Uuid,
        mode "filtering_mode": u32,
        rm_status "rmStatus": u32,
    }
    PmmSanity "UVM_TEST_PMM_SANITY" = 240, 8, {
        mode "mode": u32,
        rm_status "rmStatus": u32,
    }
    InvalidateTlb "UVM_TEST_INVALIDATE_TLB" = 241, 48, {
        gpu "gpu_uuid": Uuid,
        va "va": u64,
        target_va_mode "target_va_mode": u32,
        page_table_level "page_table_level": u32,
        membar "membar": u32,
        disable_gpc_invalidate "disable_gpc_invalidate": u8,
        rm_status "rmStatus": u32,
    }
    EvictChunk "UVM_TEST_EVICT_CHUNK" = 243, 64, {
        gpu "gpu_uuid": Uuid,
        mode "eviction_mode": u32,
        address "address": u64,
        evicted "chunk_was_evicted": u8,
        evicted_physical_address "evicted_physical_address": u64,
        chunk_size "chunk_size_backing_virtual": u64,
        rm_status "rmStatus": u32,
    }
    FlushDeferredWork "UVM_TEST_FLUSH_DEFERRED_WORK" = 244, 8, {
        work_type "work_type": u32,
        rm_status "rmStatus": u32,
    }
    SetPagePrefetchPolicy "UVM_TEST_SET_PAGE_PREFETCH_POLICY" = 246, 8, {
        policy "policy": u32,
        rm_status "rmStatus": u32,
    }
    RangeGroupTree "UVM_TEST_RANGE_GROUP_TREE" = 247, 40, {
        ids "rangeGroupIds": [u64; 4],
        rm_status "rmStatus": u32,
    }
    GetKernelVirtualAddress "UVM_TEST_GET_KERNEL_VIRTUAL_ADDRESS" = 252, 16, {
        addr "addr": u64,
        rm_status "rmStatus": u32,
    }
    PmmAllocFreeRoot "UVM_TEST_PMM_ALLOC_FREE_ROOT" = 254, 24, {
        gpu "gpu_uuid": Uuid,
        nap_us_before_free "nap_us_before_free": u32,
        rm_status "rmStatus": u32,
    }
    PmmInjectPmaEvictError "UVM_TEST_PMM_INJECT_PMA_EVICT_ERROR" = 255, 24, {
        gpu "gpu_uuid": Uuid,
        error_after_num_chunks "error_after_num_chunks": u32,
        rm_status "rmStatus": u32,
    }
    SetIgnoreAccessCounters "UVM_TEST_SET_IGNORE_ACCESS_COUNTERS" = 258, 24, {
        gpu "gpu_uuid": Uuid,
        ignore "ignore": u8,
        rm_status "rmStatus": u32,
    }
    CheckChannelVaSpace "UVM_TEST_CHECK_CHANNEL_VA_SPACE" = 259, 40, {
        gpu "gpu_uuid": Uuid,
        rm_ctrl_fd "rm_ctrl_fd": i32,
        h_client "client": u32,
        h_channel "channel": u32,
        ve_id "ve_id": u32,
        va_space_fd "va_space_fd": i32,
        rm_status "rmStatus": u32,
    }
    GetPageThrashingPolicy "UVM_TEST_GET_PAGE_THRASHING_POLICY" = 262, 32, {
        policy "policy": u32,
        nap_ns "nap_ns": u64,
        pin_ns "pin_ns": u64,
        map_remote "map_remote_on_native_atomics_fault": u8,
        rm_status "rmStatus": u32,
    }
    SetPageThrashingPolicy "UVM_TEST_SET_PAGE_THRASHING_POLICY" = 263, 24, {
        policy "policy": u32,
        pin_ns "pin_ns": u64,
        rm_status "rmStatus": u32,
    }
    PmmSysmem "UVM_TEST_PMM_SYSMEM" = 264, 24, {
        range1 "range_address1": u64,
        range2 "range_address2": u64,
        rm_status "rmStatus": u32,
    }
    PmmReverseMap "UVM_TEST_PMM_REVERSE_MAP" = 265, 48, {
        gpu "gpu_uuid": Uuid,
        range1 "range_address1": u64,
        range2 "range_address2": u64,
        range_size2 "range_size2": u64,
        rm_status "rmStatus": u32,
    }
    VaSpaceMmRetain "UVM_TEST_VA_SPACE_MM_RETAIN" = 267, 48, {
        va_space_ptr "va_space_ptr": u64,
        addr "addr": u64,
        val_before "val_before": u64,
        val_after "val_after": u64,
        sleep_us "sleep_us": u64,
        rm_status "rmStatus": u32,
    }
    GetGpuTime "UVM_TEST_GET_GPU_TIME" = 270, 32, {
        gpu "gpu_uuid": Uuid,
        timestamp_ns "timestamp_ns": u64,
        rm_status "rmStatus": u32,
    }
    AccessCountersEnabledByDefault "UVM_TEST_ACCESS_COUNTERS_ENABLED_BY_DEFAULT" = 271, 24, {
        gpu "gpu_uuid": Uuid,
        enabled "enabled": u8,
        rm_status "rmStatus": u32,
    }
    PmmReleaseFreeRootChunks "UVM_TEST_PMM_RELEASE_FREE_ROOT_CHUNKS" = 273, 20, {
        gpu "gpu_uuid": Uuid,
        rm_status "rmStatus": u32,
    }
    DrainReplayableFaults "UVM_TEST_DRAIN_REPLAYABLE_FAULTS" = 274, 32, {
        gpu "gpu_uuid": Uuid,
        timeout_ns "timeout_ns": u64,
        rm_status "rmStatus": u32,
    }
    PmaGetBatchSize "UVM_TEST_PMA_GET_BATCH_SIZE" = 275, 32, {
        gpu "gpu_uuid": Uuid,
        pma_batch_size "pma_batch_size": u64,
        rm_status "rmStatus": u32,
    }
    NumaCheckAffinity "UVM_TEST_NUMA_CHECK_AFFINITY" = 278, 20, {
        gpu "gpu_uuid": Uuid,
        rm_status "rmStatus": u32,
    }
    ThreadContextSanity "UVM_TEST_THREAD_CONTEXT_SANITY" = 281, 8, {
        iterations "iterations": u32,
        rm_status "rmStatus": u32,
    }
    GetPageableMemAccessType "UVM_TEST_GET_PAGEABLE_MEM_ACCESS_TYPE" = 283, 8, {
        access_type "type": u32,
        rm_status "rmStatus": u32,
    }
    FlushReplayEvents "UVM_TEST_TOOLS_FLUSH_REPLAY_EVENTS" = 284, 20, {
        gpu "gpuUuid": Uuid,
        rm_status "rmStatus": u32,
    }
    RbTreeRandom "UVM_TEST_RB_TREE_RANDOM" = 287, 32, {
        iterations "iterations": u64,
        range_max "range_max": u64,
        node_limit "node_limit": u32,
        seed "seed": u32,
        rm_status "rmStatus": u32,
    }
    GetUserSpaceEndAddress "UVM_TEST_GET_USER_SPACE_END_ADDRESS" = 290, 16, {
        end "user_space_end_address": u64,
        rm_status "rmStatus": u32,
    }
    VaRangeInjectAddGpuVaSpaceError "UVM_TEST_VA_RANGE_INJECT_ADD_GPU_VA_SPACE_ERROR" = 293, 16, {
        lookup_address "lookup_address": u64,
        rm_status "rmStatus": u32,
    }
    DestroyGpuVaSpaceDelay "UVM_TEST_DESTROY_GPU_VA_SPACE_DELAY" = 294, 16, {
        delay_us "delay_us": u64,
        rm_status "rmStatus": u32,
    }
    SplitInvalidateDelay "UVM_TEST_SPLIT_INVALIDATE_DELAY" = 298, 16, {
        delay_us "delay_us": u64,
        rm_status "rmStatus": u32,
    }
    ForceCpuToCpuCopyWithCe "UVM_TEST_FORCE_CPU_TO_CPU_COPY_WITH_CE" = 301, 8, {
        force "force_copy_with_ce": u8,
        rm_status "rmStatus": u32,
    }
    SkipMigrateVma "UVM_TEST_SKIP_MIGRATE_VMA" = 303, 8, {
        skip "skip": u8,
        rm_status "rmStatus": u32,
    }
}

/// A test of NVIDIA's that takes nothing and returns only its rmStatus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BareTest {
    /// The name in NVIDIA's header, for messages.
    pub name: &'static str,
    /// The ioctl's number, raw as all of UVM's are.
    pub number: u32,
}

macro_rules! bare_tests {
    ($($name:ident $c:literal = $number:literal,)*) => {
        impl BareTest {
            $(pub const $name: Self = Self { name: $c, number: $number };)*
            /// All of them, for the check against C.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];
        }
    };
}

bare_tests! {
    RNG_SANITY "UVM_TEST_RNG_SANITY" = 201,
    RANGE_TREE_DIRECTED "UVM_TEST_RANGE_TREE_DIRECTED" = 202,
    RM_MEM_SANITY "UVM_TEST_RM_MEM_SANITY" = 205,
    GPU_SEMAPHORE_SANITY "UVM_TEST_GPU_SEMAPHORE_SANITY" = 206,
    PAGE_TREE "UVM_TEST_PAGE_TREE" = 210,
    TRACKER_SANITY "UVM_TEST_TRACKER_SANITY" = 212,
    CHANNEL_SANITY "UVM_TEST_CHANNEL_SANITY" = 214,
    LOCK_SANITY "UVM_TEST_LOCK_SANITY" = 218,
    PERF_UTILS_SANITY "UVM_TEST_PERF_UTILS_SANITY" = 219,
    KVMALLOC "UVM_TEST_KVMALLOC" = 220,
    PERF_EVENTS_SANITY "UVM_TEST_PERF_EVENTS_SANITY" = 223,
    MEM_SANITY "UVM_TEST_MEM_SANITY" = 230,
    MAKE_CHANNEL_STOPS_IMMEDIATE "UVM_TEST_MAKE_CHANNEL_STOPS_IMMEDIATE" = 232,
    VA_BLOCK "UVM_TEST_VA_BLOCK" = 242,
    NV_KTHREAD_Q "UVM_TEST_NV_KTHREAD_Q" = 245,
    PMM_INDIRECT_PEERS "UVM_TEST_PMM_INDIRECT_PEERS" = 266,
    PMM_CHUNK_WITH_ELEVATED_PAGE "UVM_TEST_PMM_CHUNK_WITH_ELEVATED_PAGE" = 269,
    RB_TREE_DIRECTED "UVM_TEST_RB_TREE_DIRECTED" = 286,
    HOST_SANITY "UVM_TEST_HOST_SANITY" = 288,
    SEC2_SANITY "UVM_TEST_SEC2_SANITY" = 295,
    CGROUP_ACCOUNTING_SUPPORTED "UVM_TEST_CGROUP_ACCOUNTING_SUPPORTED" = 296,
    SEC2_CPU_GPU_ROUNDTRIP "UVM_TEST_SEC2_CPU_GPU_ROUNDTRIP" = 299,
    CPU_CHUNK_API "UVM_TEST_CPU_CHUNK_API" = 300,
}
