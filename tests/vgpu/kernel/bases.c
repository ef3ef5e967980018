// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * The part of RM's interface that is not the same in all of NVIDIA's drivers. What holds for the
 * one that vgpu.ko is built for, facts.sh finds in its headers.
 */
#define pr_fmt(fmt) "vgpu: " fmt

#include "vgpu.h"

#include <linux/export.h>

/* --- functions that have changed --- */

#ifdef VGPU_FACT_pdb_dma_address
/* RM makes the DMA mapping of a page directory in system memory, and says where it is. */
NV_STATUS nvUvmInterfaceSetPageDirectory(uvmGpuAddressSpaceHandle vaSpace, NvU64 physAddress,
					 unsigned numEntries, NvBool bVidMemAperture, NvU32 pasid,
					 NvU64 *dmaAddress)
{
	NV_STATUS status = vgpu_set_page_directory(vaSpace, physAddress, bVidMemAperture);

	/* No IOMMU: DMA addresses are physical ones. */
	if (status == NV_OK)
		*dmaAddress = physAddress;
	return status;
}
#else
NV_STATUS nvUvmInterfaceSetPageDirectory(uvmGpuAddressSpaceHandle vaSpace, NvU64 physAddress,
					 unsigned numEntries, NvBool bVidMemAperture, NvU32 pasid)
{
	return vgpu_set_page_directory(vaSpace, physAddress, bVidMemAperture);
}
#endif
EXPORT_SYMBOL(nvUvmInterfaceSetPageDirectory);

/*
 * The configuration is UVM's wish, despite its header. Only GPU accesses to system memory (MIMC)
 * are counted; where there is one kind of counters, it is of these.
 */
#ifdef VGPU_FACT_counter_kinds
NV_STATUS nvUvmInterfaceEnableAccessCntr(uvmGpuDeviceHandle device,
					 UvmGpuAccessCntrInfo *pAccessCntrInfo,
					 UvmGpuAccessCntrConfig *pAccessCntrConfig)
{
	vgpu_counters_enable(device, pAccessCntrConfig->mimcGranularity,
			     pAccessCntrConfig->threshold);
	return NV_OK;
}
#else
NV_STATUS nvUvmInterfaceEnableAccessCntr(uvmGpuDeviceHandle device,
					 UvmGpuAccessCntrInfo *pAccessCntrInfo,
					 const UvmGpuAccessCntrConfig *pAccessCntrConfig)
{
	vgpu_counters_enable(device, pAccessCntrConfig->granularity, pAccessCntrConfig->threshold);
	return NV_OK;
}
#endif
EXPORT_SYMBOL(nvUvmInterfaceEnableAccessCntr);

#ifdef VGPU_FACT_events_linux
NV_STATUS nvUvmInterfaceRegisterUvmEvents(struct UvmEventsLinux *importedEvents)
{
	return vgpu_register_uvm(&(struct vgpu_uvm){
		.top_half = importedEvents->isrTopHalf,
		.suspend = importedEvents->suspend,
		.resume = importedEvents->resume,
	});
}
EXPORT_SYMBOL(nvUvmInterfaceRegisterUvmEvents);

void nvUvmInterfaceDeRegisterUvmEvents(void)
{
	vgpu_deregister_uvm();
}
EXPORT_SYMBOL(nvUvmInterfaceDeRegisterUvmEvents);
#else
NV_STATUS nvUvmInterfaceRegisterUvmCallbacks(struct UvmOpsUvmEvents *importedUvmOps)
{
	return vgpu_register_uvm(&(struct vgpu_uvm){
		.top_half = importedUvmOps->isrTopHalf,
		.suspend = importedUvmOps->suspend,
		.resume = importedUvmOps->resume,
	});
}
EXPORT_SYMBOL(nvUvmInterfaceRegisterUvmCallbacks);

void nvUvmInterfaceDeRegisterUvmOps(void)
{
	vgpu_deregister_uvm();
}
EXPORT_SYMBOL(nvUvmInterfaceDeRegisterUvmOps);
#endif

/* --- fields that are not everywhere --- */

void vgpu_base_gpu_info(UvmGpuInfo *info)
{
#ifdef VGPU_FACT_counter_buffer_count
	info->accessCntrBufferCount = 1;
#endif
}

/* Ampere clears faulted channels by registers; SMs' faults need none of it. */
void vgpu_base_channel(struct vgpu *g, UvmGpuChannelInstanceInfo *info)
{
	info->pChramChannelRegister = vgpu_register(g, VGPU_REG_SINK);
#ifdef VGPU_FACT_runlist_base
	info->pRunlistPRIBaseRegister = vgpu_register(g, VGPU_REG_SINK);
#else
	info->workSubmissionOffset = vgpu_register(g, VGPU_REG_SINK);
	info->workSubmissionToken = info->chId;
#endif
}

/* --- functions that are not everywhere --- */

#ifdef VGPU_FACT_nvlink_info
/* There are no links, and so none to recover. */
NV_STATUS nvUvmInterfaceGetNvlinkInfo(uvmGpuDeviceHandle device, UvmGpuNvlinkInfo *nvlinkInfo)
{
	memset(nvlinkInfo, 0, sizeof(*nvlinkInfo));
	return NV_OK;
}
EXPORT_SYMBOL(nvUvmInterfaceGetNvlinkInfo);
#endif

#ifdef VGPU_FACT_fatal_error
/* RM tells its clients, and here are none. UVM has said it itself. */
void nvUvmInterfaceReportFatalError(NV_STATUS error)
{
}
EXPORT_SYMBOL(nvUvmInterfaceReportFatalError);
#endif
