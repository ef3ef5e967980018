/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Uses the memory resource as RMM does, on the stub of CUDA, and looks at the data. */
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <thread>

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

/*
 * What was freed in another stream is waited for, whichever GPU is current: the wait is in the default stream of the
 * memory's GPU, which has to come there first.
 */
static void synchronously_elsewhere(uvmrust::memory_resource &mr, int current)
{
	void *side, *p = mr.allocate_sync(length), *again;

	MUST(cuStreamCreate(&side, NON_BLOCKING));
	put(side, p, length, 7);
	deallocate(mr, side, p, length);
	use_device(current);
	again = mr.allocate_sync(length);
	EXPECT(again == p);
	for (std::size_t i = 0; i < length / 8; i++)
		((uint64_t *)again)[i] = 8;
	use_device(1);
	MUST(cuCtxSynchronize());
	EXPECT(all_words(again, length, 8));
	mr.deallocate_sync(again, length);
}
#endif

#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
static void stream_waits(void *stream, void *other)
{
	void *event;

	MUST(cuEventCreate(&event, 2));
	MUST(cuEventRecord(event, other));
	MUST(cuStreamWaitEvent(stream, event, 0));
}

/* What one thread's stream still reads is neither discarded nor written in that of another. */
static void freed_in_one_thread(uvmrust::memory_resource &mr, std::size_t bytes)
{
	void *const own = cudaStreamPerThread;
	unsigned int same = 0;
	void *side;

	MUST(cuStreamCreate(&side, NON_BLOCKING));
	for (uint64_t seed = 0; seed < 40; seed++) {
		void *p = nullptr, *again = nullptr;
		struct seen seen = {};

		stub_seed(seed);
		std::thread([&] {
			use_device(1);
			p = allocate(mr, nullptr, bytes);
			put(own, p, bytes, 3);
			get(own, p, bytes, &seen);
			deallocate(mr, nullptr, p, bytes);
		}).join();
		std::thread([&] {
			use_device(1);
			again = allocate(mr, nullptr, bytes);
			/* Its own stream has no work, and may be behind others' by its waits alone. */
			stream_waits(side, own);
			put(side, again, bytes, 4);
			stream_waits(own, side);
			deallocate(mr, nullptr, again, bytes);
		}).join();
		same += again == p;
		MUST(cuCtxSynchronize());
		EXPECT(seen.count == 1 && seen.values[0] == 3);
	}
	EXPECT(same > 20);
}

/* What a thread's stream only waits for is done before what it frees is used again elsewhere. */
static void freed_behind_a_wait(uvmrust::memory_resource &mr)
{
	void *const own = cudaStreamPerThread;
	void *first, *side;

	MUST(cuStreamCreate(&first, NON_BLOCKING));
	MUST(cuStreamCreate(&side, NON_BLOCKING));
	for (uint64_t seed = 0; seed < 40; seed++) {
		struct seen seen = {};
		void *p = allocate(mr, first, length), *again;

		stub_seed(seed);
		put(first, p, length, 1);
		MUST(cuStreamSynchronize(first));
		get(side, p, length, &seen);
		stream_waits(own, side);
		deallocate(mr, nullptr, p, length);
		again = allocate(mr, first, length);
		EXPECT(again == p);
		put(first, again, length, 2);
		MUST(cuCtxSynchronize());
		EXPECT(seen.count == 1 && seen.values[0] == 1);
		deallocate(mr, first, again, length);
	}
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
	synchronously_elsewhere(mr, 1);
	synchronously_elsewhere(mr, 0);
#endif
	freed_in_another_stream(mr);
	too_much(mr);
#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
	freed_behind_a_wait(mr);
	freed_in_one_thread(mr, length);
	/* Too little to be discarded beside what stays: a discard would bring an order with it. */
	void *kept = allocate(mr, nullptr, 4096);
	freed_in_one_thread(mr, 4096);
	deallocate(mr, nullptr, kept, 4096);
#endif
	EXPECT(stub_violations() == 0);
	return failed;
}
