/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The functions for pools of graphs, called as PyTorch calls them: by std::function, with a
 * pair of numbers and a function that tells which streams are meant
 * (torch/csrc/cuda/CUDAPluggableAllocator.h). On the stub library. Argument: the allocator.
 */
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <functional>
#include <thread>
#include <utility>

extern "C" {
#include "cuda.h"
}

using id = std::pair<unsigned long long, unsigned long long>;
using filter = std::function<bool(void *)>;

static void *library;

template <typename F> static F *find(const char *name)
{
	void *found = dlsym(library, name);

	if (!found) {
		printf("no %s\n", name);
		exit(2);
	}
	return reinterpret_cast<F *>(found);
}

static const std::size_t length = (std::size_t)4 << 20;
/* A segment for itself. */
static const std::size_t large = (std::size_t)12 << 20;

static std::function<void *(std::size_t, int, void *)> alloc;
static std::function<void(void *, std::size_t, int, void *)> release;
static std::function<void()> empty;
static std::function<void(int, id, filter)> begin_pool;
static std::function<void(int, id)> end_pool, release_pool;

static void begin(void *stream, id pool)
{
	begin_pool(1, pool, [=](void *other) { return other == stream; });
	MUST(cuStreamBeginCapture_v2(stream, 2));
}

static void end(void *stream, id pool)
{
	void *graph;

	MUST(cuStreamEndCapture(stream, &graph));
	end_pool(1, pool);
	MUST(cuGraphDestroy(graph));
}

/* The same pool twice, and one whose other number differs. */
static void one_after_the_other(void *stream)
{
	const id pools[] = { { 3, 4 }, { 3, 4 }, { 4, 4 } };
	void *p[3];

	for (int i = 0; i < 3; i++) {
		begin(stream, pools[i]);
		p[i] = alloc(length, 1, stream);
		put(stream, p[i], length, i);
		release(p[i], length, 1, stream);
		end(stream, pools[i]);
	}
	EXPECT(p[0] == p[1] && p[0] != p[2]);
	empty();
	EXPECT(stub_managed() == 2);
	release_pool(1, pools[0]);
	release_pool(1, pools[2]);
	empty();
	EXPECT(stub_managed() == 1);
	release_pool(1, pools[1]);
	empty();
	EXPECT(stub_managed() == 0);
}

/* Two threads capture at a time: what one of them allocates last is of its own pool still. */
static void at_a_time(void *stream, void *other)
{
	const id pool = { 0, 5 }, others = { 0, 6 };
	void *p[3];

	begin(stream, pool);
	p[0] = alloc(large, 1, stream);
	std::thread thread([&] {
		use_device(1);
		begin(other, others);
		p[2] = alloc(large, 1, other);
	});
	thread.join();
	p[1] = alloc(large, 1, stream);
	for (void *block : p)
		release(block, large, 1, nullptr);
	/* Relaxed captures may be ended by any thread. */
	end(other, others);
	end(stream, pool);
	release_pool(1, others);
	empty();
	EXPECT(stub_managed() == 2);
	release_pool(1, pool);
	empty();
	EXPECT(stub_managed() == 0);
}

/*
 * A thread frees between the beginning of another's pool and that of its capture, which comes
 * just before the call that would put the discard into the stream.
 */
static void just_before_the_capture(void *stream)
{
	const id pool = { 0, 7 };
	void *p = alloc(large, 1, stream);

	begin_pool(1, pool, [=](void *other) { return other == stream; });
	stub_capture_before(1);
	release(p, large, 1, stream);
	empty();
	stub_capture_before(0);
	MUST(cuStreamBeginCapture_v2(stream, 2));
	end(stream, pool);
	release_pool(1, pool);
	empty();
	EXPECT(stub_managed() == 0);
}

int main(int, char **argv)
{
	void *stream, *other;

	library = dlopen(argv[1], RTLD_NOW);
	if (!library) {
		puts(dlerror());
		return 2;
	}
	alloc = find<void *(std::size_t, int, void *)>("uvmrust_torch_malloc");
	release = find<void(void *, std::size_t, int, void *)>("uvmrust_torch_free");
	empty = find<void()>("uvmrust_torch_empty_cache");
	begin_pool = find<void(int, id, filter)>("uvmrust_torch_begin_pool");
	end_pool = find<void(int, id)>("uvmrust_torch_end_pool");
	release_pool = find<void(int, id)>("uvmrust_torch_release_pool");
	use_device(1);
	MUST(cuStreamCreate(&stream, NON_BLOCKING));
	MUST(cuStreamCreate(&other, NON_BLOCKING));
	one_after_the_other(stream);
	at_a_time(stream, other);
	just_before_the_capture(stream);
	EXPECT(stub_violations() == 0);
	return failed;
}
