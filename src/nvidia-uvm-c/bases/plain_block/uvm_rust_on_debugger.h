/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * How a debugger reads memory. Only for uvm_rust_flash.c.
 */
NV_STATUS uvm_va_block_read_to_cpu(uvm_va_block_t *block, uvm_mem_t *dst, NvU64 src, size_t size)
{
	NV_STATUS status = debug(block, NULL, src, false);

	return status != NV_OK ? status : uvm_va_block_read_to_cpu__c(block, dst, src, size);
}
