#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# What tests/vgpu/facts.sh finds in a driver's headers, and what it does not take for a fact. The
# headers are made up.
set -u
top=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck source-path=SCRIPTDIR source=tap.sh
. "$(dirname "$0")/tap.sh"

# header NAME LINE...: one of the five.
header() {
	mkdir -p "$work/tree/common/inc" "$work/tree/nvidia-uvm"
	local name=$1
	shift
	printf '%s\n' "$@" >"$work/tree/$name"
}

# facts: those of the tree, in one line; without those of a driver of which nothing is known.
facts() { sh "$top/tests/vgpu/facts.sh" "$work/tree" 2>"$work/said" | grep -vxE 'no_pmm_.*' | paste -sd' '; }

header common/inc/nv_uvm_interface.h ''
header common/inc/nv_uvm_types.h ''
header nvidia-uvm/uvm_gpu.h 'void uvm_parent_gpu_sync_trackers_of_others(void);'
header nvidia-uvm/uvm_ioctl.h 'typedef struct' '{' '    NvProcessorUuid gpuUuid; // IN' '} UVM_UNREGISTER_CHANNEL_PARAMS;'
header nvidia-uvm/uvm_test_ioctl.h 'typedef struct' '{' '    NvU32 mimc_granularity; // In' \
	'} UVM_TEST_RECONFIGURE_ACCESS_COUNTERS_PARAMS;' \
	'typedef struct' '{' '    NvU32                           page_size;' '} UVM_TEST_PMA_ALLOC_FREE_PARAMS;' \
	'typedef struct' '{' '    NvU64                           page_size;' '} UVM_TEST_OTHER_PARAMS;'
[ "$(facts)" = '' ]
check "a field of another structure is none of this one's"

header common/inc/nv_uvm_types.h 'typedef struct' '{' '    // mimcGranularity is no more' '    NvU32 granularity;' \
	'} UvmGpuAccessCntrConfig;' 'typedef struct' '{' '    NvU32 accessCntrBufferCount;' '} UvmGpuInfo;'
header common/inc/nv_uvm_interface.h 'NV_STATUS nvUvmInterfaceGetNvlinkInfoOfOthers(void);'
[ "$(facts)" = counter_buffer_count ]
check "nor is what only a comment says, or a longer name"

header nvidia-uvm/uvm_test_ioctl.h 'typedef struct' '{' '    NvU32 granularity; // not mimc_granularity' \
	'} UVM_TEST_RECONFIGURE_ACCESS_COUNTERS_PARAMS;' \
	'typedef struct' '{' '    NvU64                           page_size;' '} UVM_TEST_PMA_ALLOC_FREE_PARAMS;'
header nvidia-uvm/uvm_ioctl.h 'typedef struct' '{' '    NvHandle hClient; // IN' '} UVM_UNREGISTER_CHANNEL_PARAMS;' \
	'#define UVM_TOOLS_INIT_EVENT_TRACKER_V2 UVM_IOCTL_BASE(76)'
[ "$(facts)" = 'counter_buffer_count tools_v2 wide_sizes one_counter_kind unregister_without_gpu' ]
check "what is there is found, and what is gone is missed"

header nvidia-uvm/uvm_test_ioctl.h '// UVM_TEST_PMM_SYSMEM_PARAMS' '#define UVM_TEST_PMM_REVERSE_MAP UVM_TEST_IOCTL_BASE(65)'
[ "$(sh "$top/tests/vgpu/facts.sh" "$work/tree" 2>"$work/said" | grep '^no_pmm' | paste -sd' ')" = 'no_pmm_sysmem no_pmm_indirect_peers' ]
check "so is a test of NVIDIA's"

header nvidia-uvm/uvm_gpu.h 'void uvm_parent_gpu_sync_trackers(uvm_parent_gpu_t *parent_gpu);'
facts | grep -qw syncs_trackers
check "what a test of NVIDIA's does, a header of UVM's own tells"

rm "$work/tree/nvidia-uvm/uvm_ioctl.h"
! sh "$top/tests/vgpu/facts.sh" "$work/tree" >"$work/out" 2>"$work/said" && [ ! -s "$work/out" ] && grep -q 'uvm_ioctl.h: this is no tree' "$work/said"
check "where a header is missing, nothing is known of anything"

# What vgpu.ko's C and the programs go by, they are told; and nothing else is asked.
asked=$(sed -n 's/^fact \([a-z0-9_]*\) .*/\1/p' "$top/tests/vgpu/facts.sh" | sort)
used=$({ grep -rhoE 'VGPU_FACT_[a-z0-9_]+' "$top/tests/vgpu/kernel" | sed 's/VGPU_FACT_//'
	sed -n 's/^ *("\([a-z0-9_]*\)", Self::.*/\1/p' "$top/tests/vgpu/client/src/facts.rs"; } | sort -u)
diff <(echo "$asked") <(echo "$used") >"$work/said"
check "each fact is somebody's, and each that somebody goes by is asked for"
done_testing
