/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * How a page of ordinary memory that no va_block leads to goes to the host. Only for uvm_rust_hmm.h.
 */
static NV_STATUS hmm_copy_devmem_page(struct page *dst_page, struct page *src_page);

/*
 * Moves the page of device memory @pfn to the host, by way of Linux. BUSY_RETRY if Linux does
 * not let it go now. Called without locks, as it may sleep and Linux calls notifiers.
 *
 * Upstream has such a function for when a GPU goes, where it must not fail: a page that could
 * not be copied becomes one of zeros. An eviction may fail, and leaves the page where it is.
 */
NV_STATUS uvm_rust_hmm_evict_pfn(unsigned long pfn)
{
	unsigned long src = 0, dst = 0;
	struct page *page;
	NV_STATUS status = NV_ERR_NO_MEMORY;
	int ret = migrate_device_range(&src, pfn, 1);

	if (ret)
		return errno_to_nv_status(ret);
	if (!(src & MIGRATE_PFN_MIGRATE)) {
		migrate_device_finalize(&src, &dst, 1);
		return NV_ERR_BUSY_RETRY;
	}
	page = alloc_page(GFP_HIGHUSER_MOVABLE);
	if (page) {
		lock_page(page);
		if (!uvm_rust_test_copy_fails())
			status = hmm_copy_devmem_page(page, migrate_pfn_to_page(src));
		if (status == NV_OK) {
			dst = migrate_pfn(page_to_pfn(page));
			migrate_device_pages(&src, &dst, 1);
		}
		else {
			unlock_page(page);
			put_page(page);
		}
	}
	migrate_device_finalize(&src, &dst, 1);
	if (status == NV_OK && !(src & MIGRATE_PFN_MIGRATE))
		status = NV_ERR_BUSY_RETRY;
	return status;
}
