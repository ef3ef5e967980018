// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * The part of RM's interface that a bare-metal GPU without confidential computing
 * and external allocations never needs. UVM must find the symbols; a
 * call is an error that people should see.
 */
#define pr_fmt(fmt) "vgpu: " fmt

#include "vgpu.h"

#include <linux/export.h>

static NV_STATUS unsupported(const char *what)
{
	pr_err_ratelimited("%s is not emulated\n", what);
	return NV_ERR_NOT_SUPPORTED;
}

#define UNSUPPORTED(name, ...)			\
	NV_STATUS name(__VA_ARGS__)		\
	{					\
		return unsupported(#name);	\
	}					\
	EXPORT_SYMBOL(name)

#define UNSUPPORTED_VOID(name, ...)		\
	void name(__VA_ARGS__)			\
	{					\
		unsupported(#name);		\
	}					\
	EXPORT_SYMBOL(name)

/* External allocations. */
UNSUPPORTED(nvUvmInterfaceDupMemory, uvmGpuDeviceHandle device, NvHandle hClient,
	    NvHandle hPhysMemory, NvHandle *hDupMemory, UvmGpuMemoryInfo *info);
UNSUPPORTED(nvUvmInterfaceFreeDupedHandle, uvmGpuDeviceHandle device, NvHandle handle);
UNSUPPORTED(nvUvmInterfaceGetExternalAllocPtes, uvmGpuAddressSpaceHandle vaSpace, NvHandle hMemory,
	    NvU64 offset, NvU64 size, UvmGpuExternalMappingInfo *info);
UNSUPPORTED(nvUvmInterfaceGetChannelResourcePtes, uvmGpuAddressSpaceHandle vaSpace,
	    NvP64 resourceDescriptor, NvU64 offset, NvU64 size, UvmGpuExternalMappingInfo *info);

#ifdef VGPU_FACT_phys_addrs
UNSUPPORTED(nvUvmInterfaceGetExternalAllocPhysAddrs, uvmGpuAddressSpaceHandle vaSpace,
	    NvHandle hMemory, NvU64 offset, NvU64 size, UvmGpuExternalPhysAddrInfo *info);
#endif

#ifdef VGPU_FACT_access_bits
/* GPUs that keep bits of which memory was accessed: some of Blackwell. */
UNSUPPORTED(nvUvmInterfaceAccessBitsBufAlloc, uvmGpuDeviceHandle device,
	    UvmGpuAccessBitsBufferAlloc *info);
UNSUPPORTED(nvUvmInterfaceAccessBitsBufFree, uvmGpuDeviceHandle device,
	    UvmGpuAccessBitsBufferAlloc *info);
UNSUPPORTED(nvUvmInterfaceAccessBitsDump, uvmGpuDeviceHandle device,
	    UvmGpuAccessBitsBufferAlloc *info, UVM_ACCESS_BITS_DUMP_MODE mode);
#endif

/* GPUs whose fault buffer belongs to firmware. */
UNSUPPORTED(nvUvmInterfaceFlushReplayableFaultBuffer, UvmGpuFaultInfo *info, NvBool copy);
UNSUPPORTED(nvUvmInterfaceTogglePrefetchFaults, UvmGpuFaultInfo *info, NvBool enable);

/* Virtual GPUs. */
UNSUPPORTED(nvUvmInterfacePagingChannelAllocate, uvmGpuDeviceHandle device,
	    const UvmGpuPagingChannelAllocParams *params, UvmGpuPagingChannelHandle *channel,
	    UvmGpuPagingChannelInfo *info);
UNSUPPORTED_VOID(nvUvmInterfacePagingChannelDestroy, UvmGpuPagingChannelHandle channel);
UNSUPPORTED(nvUvmInterfacePagingChannelsMap, uvmGpuAddressSpaceHandle vaSpace,
	    UvmGpuPointer address, uvmGpuDeviceHandle device, NvU64 *out);
UNSUPPORTED_VOID(nvUvmInterfacePagingChannelsUnmap, uvmGpuAddressSpaceHandle vaSpace,
		 UvmGpuPointer address, uvmGpuDeviceHandle device);
UNSUPPORTED(nvUvmInterfacePagingChannelPushStream, UvmGpuPagingChannelHandle channel, char *stream,
	    NvU32 size);

/* Confidential computing. */
UNSUPPORTED(nvUvmInterfaceCslInitContext, UvmCslContext *context, uvmGpuChannelHandle channel);
UNSUPPORTED_VOID(nvUvmInterfaceDeinitCslContext, UvmCslContext *context);
#ifdef VGPU_FACT_csl_rotate_key
UNSUPPORTED(nvUvmInterfaceCslRotateKey, UvmCslContext *list[], NvU32 count);
#endif
#ifdef VGPU_FACT_csl_update_context
UNSUPPORTED(nvUvmInterfaceCslUpdateContext, UvmCslContext *list[], NvU32 count);
#endif
UNSUPPORTED(nvUvmInterfaceCslRotateIv, UvmCslContext *context, UvmCslOperation operation);
UNSUPPORTED(nvUvmInterfaceCslEncrypt, UvmCslContext *context, NvU32 size, NvU8 const *input,
	    UvmCslIv *iv, NvU8 *output, NvU8 *tag);
#ifdef VGPU_FACT_csl_key_id
UNSUPPORTED(nvUvmInterfaceCslDecrypt, UvmCslContext *context, NvU32 size, NvU8 const *input,
	    UvmCslIv const *iv, NvU32 key, NvU8 *output, NvU8 const *extra, NvU32 extraSize,
	    NvU8 const *tag);
#else
UNSUPPORTED(nvUvmInterfaceCslDecrypt, UvmCslContext *context, NvU32 size, NvU8 const *input,
	    UvmCslIv const *iv, NvU8 *output, NvU8 const *extra, NvU32 extraSize, NvU8 const *tag);
#endif
UNSUPPORTED(nvUvmInterfaceCslSign, UvmCslContext *context, NvU32 size, NvU8 const *input,
	    NvU8 *tag);
UNSUPPORTED(nvUvmInterfaceCslQueryMessagePool, UvmCslContext *context, UvmCslOperation operation,
	    NvU64 *number);
UNSUPPORTED(nvUvmInterfaceCslIncrementIv, UvmCslContext *context, UvmCslOperation operation,
	    NvU64 increment, UvmCslIv *iv);
#ifdef VGPU_FACT_csl_log_encryption
UNSUPPORTED(nvUvmInterfaceCslLogEncryption, UvmCslContext *context, UvmCslOperation operation,
	    NvU32 size);
#endif
