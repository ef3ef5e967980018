/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Linux 6.12 has no PageSwapCache() any more, which NVIDIA's drivers up to 560.35.03 call. Includes nothing, as it is in
 * front of every file, NVIDIA's tests of what the kernel has (conftest.sh) among them.
 */
#ifndef UVM_RUST_SWAP_CACHE_H
#define UVM_RUST_SWAP_CACHE_H

#define PageSwapCache(page) folio_test_swapcache(page_folio(page))

#endif
