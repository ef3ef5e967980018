// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * What UVM asks of RM, nvidia.ko's resource manager: the interface of
 * nv_uvm_interface.h, in flat calls of the emulator (vgpu_rs.h). bases.c has what is
 * not the same in all drivers.
 */
#define pr_fmt(fmt) "vgpu: " fmt

#include "vgpu.h"

#include <linux/export.h>
#include <linux/slab.h>

#include "uapi/vgpu.h"

static_assert(offsetof(NvNotification, status) == VGPU_NOTIFIER_STATUS);
static_assert(sizeof(NvNotification) == 16);
static_assert(sizeof(NvProcessorUuid) == 16);

/*
 * What UVM's handles point to. A device handle is the struct vgpu itself, as is
 * the handle of its physical memory allocator.
 */
struct object {
	struct vgpu *g;
	u64 id;			/* address space, or channel */
	u32 engine;		/* of a TSG */
};

static struct object *object_new(struct vgpu *g, u64 id, u32 engine)
{
	struct object *o = kzalloc(sizeof(*o), GFP_KERNEL);

	if (o) {
		o->g = g;
		o->id = id;
		o->engine = engine;
	}
	return o;
}

NV_STATUS vgpu_to_nv(int err)
{
	switch (err) {
	case 0:
		return NV_OK;
	case -ENOMEM:
	case -ENOSPC:
		return NV_ERR_NO_MEMORY;
	case -EINVAL:
		return NV_ERR_INVALID_ARGUMENT;
	case -ENOENT:
		return NV_ERR_OBJECT_NOT_FOUND;
	case -EBUSY:
		return NV_ERR_IN_USE;
	case -EPIPE:
		return NV_ERR_INVALID_STATE;
	default:
		return NV_ERR_GENERIC;
	}
}

/* UVM cannot be told, and did not expect it: people should know. */
void vgpu_expect_ok(struct vgpu *g, const char *what, int err)
{
	if (err)
		pr_err("vgpu%u: %s: error %d\n", g->index, what, -err);
}

/* --- session, device, constants --- */

NV_STATUS nvUvmInterfaceSessionCreate(uvmGpuSessionHandle *session, UvmPlatformInfo *platformInfo)
{
	static char session_object;

	memset(platformInfo, 0, sizeof(*platformInfo));
	*session = (void *)&session_object;
	return NV_OK;
}
EXPORT_SYMBOL(nvUvmInterfaceSessionCreate);

NV_STATUS nvUvmInterfaceSessionDestroy(uvmGpuSessionHandle session)
{
	return NV_OK;
}
EXPORT_SYMBOL(nvUvmInterfaceSessionDestroy);

NV_STATUS nvUvmInterfaceRegisterGpu(const NvProcessorUuid *gpuUuid, UvmGpuPlatformInfo *gpuInfo)
{
	struct vgpu *g = vgpu_find(gpuUuid);

	if (!g)
		return NV_ERR_GPU_UUID_NOT_FOUND;
	gpuInfo->pci_dev = g->pci;
	gpuInfo->dma_addressable_start = 0;
	gpuInfo->dma_addressable_limit = (1ULL << 47) - 1;
	return NV_OK;
}
EXPORT_SYMBOL(nvUvmInterfaceRegisterGpu);

void nvUvmInterfaceUnregisterGpu(const NvProcessorUuid *gpuUuid)
{
}
EXPORT_SYMBOL(nvUvmInterfaceUnregisterGpu);

NV_STATUS nvUvmInterfaceGetGpuInfo(const NvProcessorUuid *gpuUuid,
				   const UvmGpuClientInfo *pGpuClientInfo, UvmGpuInfo *pGpuInfo)
{
	struct vgpu *g = vgpu_find(gpuUuid);

	if (!g)
		return NV_ERR_GPU_UUID_NOT_FOUND;
	memset(pGpuInfo, 0, sizeof(*pGpuInfo));
	strscpy(pGpuInfo->name, g->chip.name, sizeof(g->chip.name));
	pGpuInfo->uuid = g->uuid;
	pGpuInfo->gpuArch = g->chip.architecture;
	pGpuInfo->gpuImplementation = g->chip.implementation;
	pGpuInfo->hostClass = g->chip.host_class;
	pGpuInfo->ceClass = g->chip.ce_class;
	pGpuInfo->computeClass = g->chip.compute_class;
	pGpuInfo->subdeviceCount = 1;
	pGpuInfo->virtMode = UVM_VIRT_MODE_NONE;
	pGpuInfo->isSimulated = vgpu_is_simulated;
	pGpuInfo->gpcCount = 4;
	pGpuInfo->maxGpcCount = 4;
	pGpuInfo->tpcCount = 16;
	pGpuInfo->maxTpcPerGpcCount = g->chip.tpcs_per_gpc;
	pGpuInfo->sysmemLink = UVM_LINK_TYPE_PCIE;
	pGpuInfo->sysmemLinkRateMBps = VGPU_PCIE_MBPS;
	vgpu_base_gpu_info(pGpuInfo);
	return NV_OK;
}
EXPORT_SYMBOL(nvUvmInterfaceGetGpuInfo);

NV_STATUS nvUvmInterfaceDeviceCreate(uvmGpuSessionHandle session, const UvmGpuInfo *pGpuInfo,
				     const NvProcessorUuid *gpuUuid, uvmGpuDeviceHandle *device,
				     NvBool bCreateSmcPartition)
{
	struct vgpu *g = vgpu_find(gpuUuid);

	if (!g)
		return NV_ERR_GPU_UUID_NOT_FOUND;
	if (bCreateSmcPartition)
		return NV_ERR_NOT_SUPPORTED;
	*device = (void *)g;
	return NV_OK;
}
EXPORT_SYMBOL(nvUvmInterfaceDeviceCreate);

void nvUvmInterfaceDeviceDestroy(uvmGpuDeviceHandle device)
{
}
EXPORT_SYMBOL(nvUvmInterfaceDeviceDestroy);

NV_STATUS nvUvmInterfaceQueryCaps(uvmGpuDeviceHandle device, UvmGpuCaps *caps)
{
	memset(caps, 0, sizeof(*caps));
	return NV_OK;
}
EXPORT_SYMBOL(nvUvmInterfaceQueryCaps);

NV_STATUS nvUvmInterfaceQueryCopyEnginesCaps(uvmGpuDeviceHandle device, UvmGpuCopyEnginesCaps *caps)
{
	int i;

	memset(caps, 0, sizeof(*caps));
	/* One each that UVM will prefer for reads, for writes, and for the rest. */
	for (i = 0; i < 3; i++) {
		UvmGpuCopyEngineCaps *ce = &caps->copyEngineCaps[i];

		ce->supported = 1;
		ce->sysmem = 1;
		ce->p2p = 1;
		ce->nvlinkP2p = vgpu_link == VGPU_LINK_NVLINK && i == VGPU_PEER_ENGINE;
		ce->sysmemRead = i == 0;
		ce->sysmemWrite = i == 1;
		ce->cePceMask = 1 << i;
	}
	return NV_OK;
}
EXPORT_SYMBOL(nvUvmInterfaceQueryCopyEnginesCaps);

NV_STATUS nvUvmInterfaceGetFbInfo(uvmGpuDeviceHandle device, UvmGpuFbInfo *fbInfo)
{
	struct vgpu *g = (void *)device;

	memset(fbInfo, 0, sizeof(*fbInfo));
	fbInfo->maxAllocatableAddress = g->vidmem_bytes - 1;
	fbInfo->heapSize = (g->vidmem_bytes - VGPU_RESERVED_BYTES) >> 10;
	/*
	 * UVM 570 and later look at the pages from the first to the one after the heap, which must
	 * not be beyond the memory (uvm_hmm_unregister_gpu, uvm_pmm_gpu_check_orphan_pages).
	 */
	fbInfo->reservedHeapSize = (VGPU_RESERVED_BYTES - PAGE_SIZE) >> 10;
	fbInfo->maxVidmemPageSize = UVM_PAGE_SIZE_2M;
	return NV_OK;
}
EXPORT_SYMBOL(nvUvmInterfaceGetFbInfo);

NV_STATUS nvUvmInterfaceGetEccInfo(uvmGpuDeviceHandle device, UvmGpuEccInfo *eccInfo)
{
	memset(eccInfo, 0, sizeof(*eccInfo));
	return NV_OK;
}
EXPORT_SYMBOL(nvUvmInterfaceGetEccInfo);

NV_STATUS nvUvmInterfaceServiceDeviceInterruptsRM(uvmGpuDeviceHandle device)
{
	return NV_OK;
}
EXPORT_SYMBOL(nvUvmInterfaceServiceDeviceInterruptsRM);

/* --- address spaces and buffers --- */

static NV_STATUS space_new(struct vgpu *g, int err, u64 id, uvmGpuAddressSpaceHandle *vaSpace,
			   UvmGpuAddressSpaceInfo *info)
{
	struct object *o;

	if (err)
		return vgpu_to_nv(err);
	o = object_new(g, id, 0);
	if (!o) {
		vgpu_rs_space_destroy(g->rs, id);
		return NV_ERR_NO_MEMORY;
	}
	memset(info, 0, sizeof(*info));
	info->bigPageSize = UVM_PAGE_SIZE_64K;
	info->time0Offset = vgpu_register(g, VGPU_REG_TIME_LOW);
	info->time1Offset = vgpu_register(g, VGPU_REG_TIME_HIGH);
	info->maxSubctxCount = 64;
	*vaSpace = (void *)o;
	return NV_OK;
}

NV_STATUS nvUvmInterfaceAddressSpaceCreate(uvmGpuDeviceHandle device, unsigned long long vaBase,
					   unsigned long long vaSize, NvBool enableAts,
					   uvmGpuAddressSpaceHandle *vaSpace,
					   UvmGpuAddressSpaceInfo *vaSpaceInfo)
{
	struct vgpu *g = (void *)device;
	u64 id = 0;
	int err = vgpu_rs_space_create(g->rs, &id);

	return space_new(g, err, id, vaSpace, vaSpaceInfo);
}
EXPORT_SYMBOL(nvUvmInterfaceAddressSpaceCreate);

NV_STATUS nvUvmInterfaceDupAddressSpace(uvmGpuDeviceHandle device, NvHandle hUserClient,
					NvHandle hUserVASpace, uvmGpuAddressSpaceHandle *vaSpace,
					UvmGpuAddressSpaceInfo *vaSpaceInfo)
{
	struct vgpu *g = (void *)device;
	u64 id = 0;
	int err = vgpu_rs_space_dup(g->rs, hUserClient, hUserVASpace, &id);

	return space_new(g, err, id, vaSpace, vaSpaceInfo);
}
EXPORT_SYMBOL(nvUvmInterfaceDupAddressSpace);

void nvUvmInterfaceAddressSpaceDestroy(uvmGpuAddressSpaceHandle vaSpace)
{
	struct object *o = (void *)vaSpace;

	vgpu_expect_ok(o->g, "address space to destroy", vgpu_rs_space_destroy(o->g->rs, o->id));
	kfree(o);
}
EXPORT_SYMBOL(nvUvmInterfaceAddressSpaceDestroy);

NV_STATUS vgpu_set_page_directory(uvmGpuAddressSpaceHandle vaSpace, u64 at, bool in_vidmem)
{
	struct object *o = (void *)vaSpace;

	return vgpu_to_nv(vgpu_rs_space_set_pdb(o->g->rs, o->id, at, in_vidmem));
}

NV_STATUS nvUvmInterfaceUnsetPageDirectory(uvmGpuAddressSpaceHandle vaSpace)
{
	struct object *o = (void *)vaSpace;

	return vgpu_to_nv(vgpu_rs_space_unset_pdb(o->g->rs, o->id));
}
EXPORT_SYMBOL(nvUvmInterfaceUnsetPageDirectory);

/*
 * UVM reaches these buffers by the address given and by CPU mapping only, so
 * system memory will do for both kinds.
 */
static NV_STATUS buffer_alloc(uvmGpuAddressSpaceHandle vaSpace, NvLength length,
			      UvmGpuPointer *gpuPointer, UvmGpuAllocInfo *allocInfo)
{
	struct object *o = (void *)vaSpace;
	u64 align = max_t(u64, allocInfo->alignment, allocInfo->pageSize);
	u64 va;
	int err = vgpu_rs_buffer_alloc(o->g->rs, o->id, length, align, &va);

	if (!err)
		*gpuPointer = va;
	return vgpu_to_nv(err);
}

NV_STATUS nvUvmInterfaceMemoryAllocFB(uvmGpuAddressSpaceHandle vaSpace, NvLength length,
				      UvmGpuPointer *gpuPointer, UvmGpuAllocInfo *allocInfo)
{
	return buffer_alloc(vaSpace, length, gpuPointer, allocInfo);
}
EXPORT_SYMBOL(nvUvmInterfaceMemoryAllocFB);

NV_STATUS nvUvmInterfaceMemoryAllocSys(uvmGpuAddressSpaceHandle vaSpace, NvLength length,
				       UvmGpuPointer *gpuPointer, UvmGpuAllocInfo *allocInfo)
{
	return buffer_alloc(vaSpace, length, gpuPointer, allocInfo);
}
EXPORT_SYMBOL(nvUvmInterfaceMemoryAllocSys);

void nvUvmInterfaceMemoryFree(uvmGpuAddressSpaceHandle vaSpace, UvmGpuPointer gpuPointer)
{
	struct object *o = (void *)vaSpace;

	vgpu_expect_ok(o->g, "memory to free", vgpu_rs_buffer_free(o->g->rs, o->id, gpuPointer));
}
EXPORT_SYMBOL(nvUvmInterfaceMemoryFree);

NV_STATUS nvUvmInterfaceMemoryCpuMap(uvmGpuAddressSpaceHandle vaSpace, UvmGpuPointer gpuPointer,
				     NvLength length, void **cpuPtr, NvU64 pageSize)
{
	struct object *o = (void *)vaSpace;

	return vgpu_to_nv(vgpu_rs_buffer_map(o->g->rs, o->id, gpuPointer, length, cpuPtr));
}
EXPORT_SYMBOL(nvUvmInterfaceMemoryCpuMap);

void nvUvmInterfaceMemoryCpuUnMap(uvmGpuAddressSpaceHandle vaSpace, void *cpuPtr)
{
}
EXPORT_SYMBOL(nvUvmInterfaceMemoryCpuUnMap);

/* With several GPUs, each needs to reach the semaphores of the others. */
NV_STATUS nvUvmInterfaceDupAllocation(uvmGpuAddressSpaceHandle srcVaSpace, NvU64 srcAddress,
				      uvmGpuAddressSpaceHandle dstVaSpace, NvU64 dstVaAlignment,
				      NvU64 *dstAddress)
{
	struct object *from = (void *)srcVaSpace;
	struct object *to = (void *)dstVaSpace;
	struct vgpu_mem *mem;
	u64 va;
	int err = vgpu_rs_buffer_share(from->g->rs, from->id, srcAddress, &mem);

	if (err)
		return vgpu_to_nv(err);
	err = vgpu_rs_buffer_adopt(to->g->rs, to->id, mem, dstVaAlignment, &va);
	if (err)
		vgpu_c_put(mem);
	else
		*dstAddress = va;
	return vgpu_to_nv(err);
}
EXPORT_SYMBOL(nvUvmInterfaceDupAllocation);

/* --- UVM's channels --- */

NV_STATUS nvUvmInterfaceTsgAllocate(uvmGpuAddressSpaceHandle vaSpace,
				    const UvmGpuTsgAllocParams *allocParams, uvmGpuTsgHandle *tsg)
{
	struct object *space = (void *)vaSpace;
	struct object *o;

	if (allocParams->engineType != UVM_GPU_CHANNEL_ENGINE_TYPE_CE)
		return NV_ERR_NOT_SUPPORTED;
	o = object_new(space->g, space->id, allocParams->engineIndex);
	if (!o)
		return NV_ERR_NO_MEMORY;
	*tsg = (void *)o;
	return NV_OK;
}
EXPORT_SYMBOL(nvUvmInterfaceTsgAllocate);

void nvUvmInterfaceTsgDestroy(uvmGpuTsgHandle tsg)
{
	kfree(tsg);
}
EXPORT_SYMBOL(nvUvmInterfaceTsgDestroy);

NV_STATUS nvUvmInterfaceChannelAllocate(const uvmGpuTsgHandle tsg,
					const UvmGpuChannelAllocParams *allocParams,
					uvmGpuChannelHandle *channel, UvmGpuChannelInfo *channelInfo)
{
	struct object *t = (void *)tsg;
	struct vgpu *g = t->g;
	u32 entries = allocParams->numGpFifoEntries;
	void *ring, *control;
	struct object *o;
	u32 id;
	int err;

	err = vgpu_rs_channel_create(g->rs, t->id, t->engine, entries, &id, &ring, &control);
	if (err)
		return vgpu_to_nv(err);
	o = object_new(g, id, t->engine);
	if (!o) {
		vgpu_rs_channel_destroy(g->rs, id);
		return NV_ERR_NO_MEMORY;
	}
	memset(channelInfo, 0, sizeof(*channelInfo));
	channelInfo->gpPut = control + VGPU_CHANNEL_PUT;
	channelInfo->gpGet = control + VGPU_CHANNEL_GET;
	channelInfo->errorNotifier = control + VGPU_CHANNEL_NOTIFIER;
	channelInfo->gpFifoEntries = ring;
	channelInfo->numGpFifoEntries = entries;
	channelInfo->channelClassNum = g->chip.host_class;
	channelInfo->hwRunlistId = t->engine;
	channelInfo->hwChannelId = id;
	channelInfo->workSubmissionOffset = control + VGPU_CHANNEL_DOORBELL;
	channelInfo->workSubmissionToken = VGPU_CHANNEL_TOKEN | id;
	*channel = (void *)o;
	return NV_OK;
}
EXPORT_SYMBOL(nvUvmInterfaceChannelAllocate);

void nvUvmInterfaceChannelDestroy(uvmGpuChannelHandle channel)
{
	struct object *o = (void *)channel;

	vgpu_expect_ok(o->g, "channel to destroy", vgpu_rs_channel_destroy(o->g->rs, o->id));
	kfree(o);
}
EXPORT_SYMBOL(nvUvmInterfaceChannelDestroy);

/* --- users' channels --- */

NV_STATUS nvUvmInterfaceRetainChannel(uvmGpuAddressSpaceHandle vaSpace, NvHandle hClient,
				      NvHandle hChannel, void **retainedChannel,
				      UvmGpuChannelInstanceInfo *channelInstanceInfo)
{
	struct object *space = (void *)vaSpace;
	struct vgpu *g = space->g;
	struct object *o = object_new(g, hChannel, 0);
	u64 instance;
	int err;

	if (!o)
		return NV_ERR_NO_MEMORY;
	err = vgpu_rs_user_channel_retain(g->rs, space->id, hClient, hChannel, &instance);
	if (err) {
		kfree(o);
		return vgpu_to_nv(err);
	}
	memset(channelInstanceInfo, 0, sizeof(*channelInstanceInfo));
	channelInstanceInfo->base = instance;
	channelInstanceInfo->sysmem = NV_FALSE;
	channelInstanceInfo->chId = instance >> 12;
	channelInstanceInfo->channelEngineType = UVM_GPU_CHANNEL_ENGINE_TYPE_GR;
	channelInstanceInfo->clearFaultedToken = channelInstanceInfo->chId;
	vgpu_base_channel(g, channelInstanceInfo);
	*retainedChannel = o;
	return NV_OK;
}
EXPORT_SYMBOL(nvUvmInterfaceRetainChannel);

NV_STATUS nvUvmInterfaceBindChannelResources(void *retainedChannel,
					     UvmGpuChannelResourceBindParams *params)
{
	return NV_OK;
}
EXPORT_SYMBOL(nvUvmInterfaceBindChannelResources);

void nvUvmInterfaceStopChannel(void *retainedChannel, NvBool bImmediate)
{
	struct object *o = retainedChannel;

	vgpu_expect_ok(o->g, "channel to stop", vgpu_rs_user_channel_stop(o->g->rs, o->id));
}
EXPORT_SYMBOL(nvUvmInterfaceStopChannel);

void nvUvmInterfaceReleaseChannel(void *retainedChannel)
{
	struct object *o = retainedChannel;

	vgpu_expect_ok(o->g, "channel to release", vgpu_rs_user_channel_release(o->g->rs, o->id));
	kfree(o);
}
EXPORT_SYMBOL(nvUvmInterfaceReleaseChannel);

/* --- faults and access counters --- */

NV_STATUS nvUvmInterfaceOwnPageFaultIntr(uvmGpuDeviceHandle device, NvBool bOwnInterrupts)
{
	return NV_OK;
}
EXPORT_SYMBOL(nvUvmInterfaceOwnPageFaultIntr);

NV_STATUS nvUvmInterfaceInitFaultInfo(uvmGpuDeviceHandle device, UvmGpuFaultInfo *pFaultInfo)
{
	struct vgpu *g = (void *)device;
	u32 *sink = vgpu_register(g, VGPU_REG_SINK);
	int err = vgpu_rs_faults_reset(g->rs);

	if (err)
		return vgpu_to_nv(err);
	memset(pFaultInfo, 0, sizeof(*pFaultInfo));
	pFaultInfo->replayable.pFaultBufferGet = vgpu_register(g, VGPU_REG_FAULT_GET);
	pFaultInfo->replayable.pFaultBufferPut = vgpu_register(g, VGPU_REG_FAULT_PUT);
	pFaultInfo->replayable.pPmcIntr = sink + VGPU_SINK_FAULT_INTR;
	pFaultInfo->replayable.pPmcIntrEnSet = sink + VGPU_SINK_FAULT_EN_SET;
	pFaultInfo->replayable.pPmcIntrEnClear = sink + VGPU_SINK_FAULT_EN_CLEAR;
	pFaultInfo->replayable.pPrefetchCtrl = sink + VGPU_SINK_PREFETCH;
	pFaultInfo->replayable.replayableFaultMask = 1;
	pFaultInfo->replayable.bufferAddress = vgpu_rs_fault_buffer(g->rs);
	pFaultInfo->replayable.bufferSize = g->fault_entries * VGPU_FAULT_ENTRY_BYTES;
	pFaultInfo->nonReplayable.bufferSize = VGPU_COPY_FAULTS * VGPU_FAULT_ENTRY_BYTES;
	pFaultInfo->faultBufferHandle = 1;
	return NV_OK;
}
EXPORT_SYMBOL(nvUvmInterfaceInitFaultInfo);

NV_STATUS nvUvmInterfaceDestroyFaultInfo(uvmGpuDeviceHandle device, UvmGpuFaultInfo *pFaultInfo)
{
	struct vgpu *g = (void *)device;

	/* What is left would keep the interrupt pending. */
	return vgpu_to_nv(vgpu_rs_faults_reset(g->rs));
}
EXPORT_SYMBOL(nvUvmInterfaceDestroyFaultInfo);

/* Whose faults these are: they begin with a register of the GPU. */
static struct vgpu *gpu_of_faults(UvmGpuFaultInfo *info)
{
	unsigned int i;

	for (i = 1; i < vgpu_count; i++)
		if (info->replayable.pFaultBufferGet == vgpu_register(vgpu_gpus[i], VGPU_REG_FAULT_GET))
			return vgpu_gpus[i];
	return vgpu_gpus[0];
}

/* Called with interrupts off: must not sleep. */
NV_STATUS nvUvmInterfaceHasPendingNonReplayableFaults(UvmGpuFaultInfo *pFaultInfo,
						      NvBool *hasPendingFaults)
{
	*hasPendingFaults = vgpu_copy_faults(gpu_of_faults(pFaultInfo)) != 0;
	return NV_OK;
}
EXPORT_SYMBOL(nvUvmInterfaceHasPendingNonReplayableFaults);

NV_STATUS nvUvmInterfaceGetNonReplayableFaults(UvmGpuFaultInfo *pFaultInfo, void *pFaultBuffer,
					       NvU32 *numFaults)
{
	struct vgpu *g = gpu_of_faults(pFaultInfo);
	u32 *get = vgpu_register(g, VGPU_REG_COPY_FAULT_GET);
	u32 i, n = vgpu_copy_faults(g);

	/* Pairs with the emulator's release of PUT: the entries before that are written. */
	smp_rmb();
	for (i = 0; i < n; i++)
		memcpy(pFaultBuffer + i * VGPU_FAULT_ENTRY_BYTES,
		       (void *)vgpu_register(g, VGPU_REG_COPY_FAULTS) +
		       (*get + i) % VGPU_COPY_FAULTS * VGPU_FAULT_ENTRY_BYTES, VGPU_FAULT_ENTRY_BYTES);
	smp_store_release(get, *get + n);
	*numFaults = n;
	return NV_OK;
}
EXPORT_SYMBOL(nvUvmInterfaceGetNonReplayableFaults);

NV_STATUS nvUvmInterfaceReportNonReplayableFault(uvmGpuDeviceHandle device,
						 const void *pFaultPacket)
{
	struct vgpu *g = (void *)device;
	const u32 *words = pFaultPacket;

	/* RM tears the channel down, which its instance pointer names as its handle does. It may be gone. */
	vgpu_rs_inject(g->rs, VGPU_INJECT_CHANNEL_ERROR, 0, 0, (g->index + 1) << VGPU_HANDLE_BITS | words[0] >> 12 | words[1] << 20);
	return NV_OK;
}
EXPORT_SYMBOL(nvUvmInterfaceReportNonReplayableFault);

NV_STATUS nvUvmInterfaceInitAccessCntrInfo(uvmGpuDeviceHandle device,
					   UvmGpuAccessCntrInfo *pAccessCntrInfo,
					   NvU32 accessCntrIndex)
{
	struct vgpu *g = (void *)device;
	u32 *sink = vgpu_register(g, VGPU_REG_SINK);
	int err = vgpu_rs_counters_reset(g->rs);

	if (err)
		return vgpu_to_nv(err);
	memset(pAccessCntrInfo, 0, sizeof(*pAccessCntrInfo));
	pAccessCntrInfo->pAccessCntrBufferGet = vgpu_register(g, VGPU_REG_COUNTER_GET);
	pAccessCntrInfo->pAccessCntrBufferPut = vgpu_register(g, VGPU_REG_COUNTER_PUT);
	pAccessCntrInfo->pAccessCntrBufferFull = sink + VGPU_SINK_COUNTER_FULL;
	pAccessCntrInfo->pHubIntr = sink + VGPU_SINK_COUNTER_INTR;
	pAccessCntrInfo->pHubIntrEnSet = sink + VGPU_SINK_COUNTER_EN_SET;
	pAccessCntrInfo->pHubIntrEnClear = sink + VGPU_SINK_COUNTER_EN_CLEAR;
	pAccessCntrInfo->accessCounterMask = 2;
	pAccessCntrInfo->bufferAddress = vgpu_rs_counter_buffer(g->rs);
	pAccessCntrInfo->bufferSize = VGPU_COUNTER_BYTES;
	pAccessCntrInfo->accessCntrBufferHandle = 1;
	return NV_OK;
}
EXPORT_SYMBOL(nvUvmInterfaceInitAccessCntrInfo);

NV_STATUS nvUvmInterfaceDestroyAccessCntrInfo(uvmGpuDeviceHandle device,
					      UvmGpuAccessCntrInfo *pAccessCntrInfo)
{
	struct vgpu *g = (void *)device;

	return vgpu_to_nv(vgpu_rs_counters_reset(g->rs));
}
EXPORT_SYMBOL(nvUvmInterfaceDestroyAccessCntrInfo);

void vgpu_counters_enable(uvmGpuDeviceHandle device, u32 granularity, u32 threshold)
{
	struct vgpu *g = (void *)device;

	vgpu_rs_counters_enable(g->rs, granularity, threshold);
}

NV_STATUS nvUvmInterfaceDisableAccessCntr(uvmGpuDeviceHandle device,
					  UvmGpuAccessCntrInfo *pAccessCntrInfo)
{
	struct vgpu *g = (void *)device;

	vgpu_rs_counters_disable(g->rs);
	return NV_OK;
}
EXPORT_SYMBOL(nvUvmInterfaceDisableAccessCntr);
