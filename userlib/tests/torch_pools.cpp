/* SPDX-License-Identifier: GPL-2.0 OR MIT */
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

int main(int, char **argv)
{
	library = dlopen(argv[1], RTLD_NOW);
	if (!library) {
		puts(dlerror());
		return 2;
	}
	std::function<void *(std::size_t, int, void *)> alloc =
		find<void *(std::size_t, int, void *)>("uvmrust_torch_malloc");
	std::function<void(void *, std::size_t, int, void *)> release =
		find<void(void *, std::size_t, int, void *)>("uvmrust_torch_free");
	std::function<void()> empty = find<void()>("uvmrust_torch_empty_cache");
	std::function<void(int, id, filter)> begin_pool =
		find<void(int, id, filter)>("uvmrust_torch_begin_pool");
	std::function<void(int, id)> end_pool = find<void(int, id)>("uvmrust_torch_end_pool");
	std::function<void(int, id)> release_pool =
		find<void(int, id)>("uvmrust_torch_release_pool");
	void *stream, *graph, *p[3];
	/* The same pool twice, and one whose other number differs. */
	const id pools[] = { { 3, 4 }, { 3, 4 }, { 4, 4 } };

	use_device(1);
	MUST(cuStreamCreate(&stream, NON_BLOCKING));
	for (int i = 0; i < 3; i++) {
		begin_pool(1, pools[i], [&](void *other) { return other == stream; });
		MUST(cuStreamBeginCapture_v2(stream, 2));
		p[i] = alloc(length, 1, stream);
		put(stream, p[i], length, i);
		release(p[i], length, 1, stream);
		MUST(cuStreamEndCapture(stream, &graph));
		end_pool(1, pools[i]);
		MUST(cuGraphDestroy(graph));
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
	EXPECT(stub_violations() == 0);
	return failed;
}
