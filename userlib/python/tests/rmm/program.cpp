/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Uses the memory resource as RMM does, on the stub of CUDA, and looks at the data. */
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <new>

extern "C" {
#include "cuda.h"
}
#include <uvmrust_rmm.hpp>

static const std::size_t length = (std::size_t)4 << 20;

static void *allocate(uvmrust::memory_resource &mr, void *stream, std::size_t bytes)
{
#if UVMRUST_RMM_HAS_BASE
	return mr.allocate(bytes, stream);
#else
	return mr.allocate(cuda::stream_ref{ stream }, bytes);
#endif
}

static void deallocate(uvmrust::memory_resource &mr, void *stream, void *p, std::size_t bytes)
{
#if UVMRUST_RMM_HAS_BASE
	mr.deallocate(p, bytes, stream);
#else
	mr.deallocate(cuda::stream_ref{ stream }, p, bytes);
#endif
}

/* What another stream still reads when it frees is neither discarded nor given out. */
static void freed_in_another_stream(uvmrust::memory_resource &mr)
{
	void *first, *other, *p, *again;
	struct seen seen = {};

	MUST(cuStreamCreate(&first, NON_BLOCKING));
	MUST(cuStreamCreate(&other, NON_BLOCKING));
	p = allocate(mr, first, length);
	EXPECT((uintptr_t)p % 512 == 0);
	put(first, p, length, 1);
	MUST(cuStreamSynchronize(first));
	get(other, p, length, &seen);
	deallocate(mr, other, p, length);
	again = allocate(mr, first, length);
	EXPECT(again == p);
	put(first, again, length, 2);
	MUST(cuStreamSynchronize(first));
	MUST(cuCtxSynchronize());
	EXPECT(seen.count == 1 && seen.values[0] == 1);
	EXPECT(all_words(again, length, 2));
	deallocate(mr, first, again, length);
	deallocate(mr, first, nullptr, length);
}

static void too_much(uvmrust::memory_resource &mr)
{
	bool refused = false;

	try {
		allocate(mr, nullptr, (std::size_t)1 << 60);
	} catch (rmm::out_of_memory const &e) {
		refused = true;
	}
	EXPECT(refused);
}

#if !UVMRUST_RMM_HAS_BASE
static_assert(cuda::mr::resource_with<uvmrust::memory_resource, cuda::mr::device_accessible,
				      cuda::mr::host_accessible>);

static void synchronously(uvmrust::memory_resource &mr)
{
	void *p = mr.allocate_sync(length), *again;
	bool refused = false;

	put(nullptr, p, length, 5);
	MUST(cuCtxSynchronize());
	mr.deallocate_sync(p, length);
	/* Its discard and its prefetch are done when it is there again. */
	again = mr.allocate_sync(length);
	EXPECT(again == p);
	for (std::size_t i = 0; i < length / 8; i++)
		((uint64_t *)again)[i] = 6;
	MUST(cuCtxSynchronize());
	EXPECT(all_words(again, length, 6));
	mr.deallocate_sync(again, length);
	try {
		mr.allocate_sync(length, 1024);
	} catch (rmm::bad_alloc const &e) {
		refused = true;
	}
	EXPECT(refused);
}
#endif

int main()
{
	use_device(1);
	uvmrust::memory_resource mr, first(0), copy(mr);
	EXPECT(mr.device() == 1 && first.device() == 0);
#if UVMRUST_RMM_HAS_BASE
	EXPECT(mr.is_equal(copy) && !mr.is_equal(first));
#else
	EXPECT(mr == copy && mr != first);
	synchronously(mr);
#endif
	freed_in_another_stream(mr);
	too_much(mr);
	EXPECT(stub_violations() == 0);
	return failed;
}
