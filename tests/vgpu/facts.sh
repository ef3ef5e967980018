#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# What is so in a driver of NVIDIA's, and not in all: each fact that is, one word a line. The build
# of vgpu.ko asks, whose C is chosen by the first kind (kernel/bases.c), and which tells the
# programs in the VM the others, by which they know what a call's structure looks like
# (client/src/facts.rs). It is asked of the headers, as branches get each other's changes in an
# order that version numbers do not show.
#
#   facts.sh TREE     TREE: the folder with common/inc and nvidia-uvm
set -eu
inc=$1/common/inc uvm=$1/nvidia-uvm
for f in "$inc/nv_uvm_interface.h" "$inc/nv_uvm_types.h" "$uvm/uvm_ioctl.h" "$uvm/uvm_test_ioctl.h" "$uvm/uvm_gpu.h"; do
	[ -r "$f" ] || { echo "facts.sh: no $f: this is no tree of NVIDIA's driver" >&2; exit 1; }
done

# fact WORD COMMAND...: it is so if the command says so.
fact() {
	word=$1
	shift
	if "$@"; then echo "$word"; fi
}

has() { grep -qw -e "$2" "$1"; }
lacks() { ! has "$@"; }

# member FILE STRUCTURE REGEX: has the structure, without its comments, a line like this?
member() {
	awk -v name="$2" -v want="$3" '
		{ sub("//.*", "") }
		/^typedef struct/ { body = 0 }
		$0 ~ want { body = 1 }
		$0 ~ "^} *" name ";" { found = body }
		END { exit !found }' "$1"
}
no_member() { ! member "$@"; }

# RM's interface, which vgpu.ko has.
rm=$inc/nv_uvm_interface.h
fact counter_buffer_count has "$inc/nv_uvm_types.h" accessCntrBufferCount
fact counter_kinds member "$inc/nv_uvm_types.h" UvmGpuAccessCntrConfig mimcGranularity
fact pdb_dma_address has "$rm" dmaAddress
fact runlist_base has "$inc/nv_uvm_types.h" pRunlistPRIBaseRegister
fact events_linux has "$inc/nv_uvm_types.h" UvmEventsLinux
fact nvlink_info has "$rm" nvUvmInterfaceGetNvlinkInfo
fact fatal_error has "$rm" nvUvmInterfaceReportFatalError
fact phys_addrs has "$rm" nvUvmInterfaceGetExternalAllocPhysAddrs
fact access_bits has "$rm" nvUvmInterfaceAccessBitsDump
fact csl_key_id has "$rm" keyRotationId
fact csl_rotate_key has "$rm" nvUvmInterfaceCslRotateKey
fact csl_update_context has "$rm" nvUvmInterfaceCslUpdateContext
fact csl_log_encryption has "$rm" nvUvmInterfaceCslLogEncryption

# UVM's calls, which programs make.
test=$uvm/uvm_test_ioctl.h
fact tools_v2 has "$uvm/uvm_ioctl.h" UVM_TOOLS_INIT_EVENT_TRACKER_V2
fact wide_sizes member "$test" UVM_TEST_PMA_ALLOC_FREE_PARAMS 'NvU64 *page_size'
fact residency_egm member "$test" UVM_TEST_VA_RESIDENCY_INFO_PARAMS is_egm_mapping
fact one_counter_kind no_member "$test" UVM_TEST_RECONFIGURE_ACCESS_COUNTERS_PARAMS mimc_granularity
fact unregister_without_gpu no_member "$uvm/uvm_ioctl.h" UVM_UNREGISTER_CHANNEL_PARAMS gpuUuid
fact pmm_state has "$test" UVM_TEST_VA_BLOCK_DISCARD_CHECK_PMM_STATE
fact no_pmm_sysmem lacks "$test" UVM_TEST_PMM_SYSMEM
fact no_pmm_reverse_map lacks "$test" UVM_TEST_PMM_REVERSE_MAP
fact no_pmm_indirect_peers lacks "$test" UVM_TEST_PMM_INDIRECT_PEERS
# What NVIDIA's tests do, and their headers tell: they wait for a GPU's trackers before its channels go.
fact syncs_trackers has "$uvm/uvm_gpu.h" uvm_parent_gpu_sync_trackers
