/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A stream goes on only after an allocation that this program makes later. Nobody may wait
 * for that stream before: neither a free of a graph's memory, nor, with the allocator's lock, a
 * thread that empties the cache. Arguments: the allocator's library.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <unistd.h>
#include "cuda.h"

#define LENGTH ((uint64_t)12 << 20)

int cuLaunchHostFunc(void *, void (*)(void *), void *);

static void *(*alloc)(size_t, int, void *);
static void (*release)(void *, size_t, int, void *);
static void (*record)(void *, void *);
static void (*empty)(void);
static void (*begin_pool)(int, uint64_t, uint64_t, void *);
static void (*end_pool)(int, uint64_t, uint64_t);
static sem_t allocated, under_way;

static void until_allocated(void *unused)
{
	sem_post(&under_way);
	sem_wait(&allocated);
}

static void *empties(void *unused)
{
	use_device(0);
	empty();
	return NULL;
}

int main(int argc, char **argv)
{
	void *library = dlopen(argv[1], RTLD_NOW), *stream, *other, *graph, *first, *again;
	pthread_t thread;

	if (!library) {
		puts(dlerror());
		return 2;
	}
	*(void **)&alloc = dlsym(library, "uvmrust_torch_malloc");
	*(void **)&release = dlsym(library, "uvmrust_torch_free");
	*(void **)&record = dlsym(library, "uvmrust_torch_record_stream");
	*(void **)&empty = dlsym(library, "uvmrust_torch_empty_cache");
	*(void **)&begin_pool = dlsym(library, "uvmrust_torch_begin_pool");
	*(void **)&end_pool = dlsym(library, "uvmrust_torch_end_pool");
	alarm(60);
	sem_init(&allocated, 0, 0);
	sem_init(&under_way, 0, 0);
	use_device(0);
	MUST(cuStreamCreate(&stream, NON_BLOCKING));
	MUST(cuStreamCreate(&other, NON_BLOCKING));

	begin_pool(0, 0, 1, NULL);
	MUST(cuStreamBeginCapture_v2(stream, 2));
	first = alloc(LENGTH, 0, stream);
	put(stream, first, LENGTH, 1);
	MUST(cuStreamEndCapture(stream, &graph));
	end_pool(0, 0, 1);
	MUST(cuLaunchHostFunc(other, until_allocated, NULL));
	put(other, first, LENGTH, 2);
	record(first, other);
	release(first, LENGTH, 0, stream);
	sem_wait(&under_way);
	/* The other stream still uses the first: a later capture with the pool does not get it. */
	begin_pool(0, 0, 1, NULL);
	MUST(cuStreamBeginCapture_v2(stream, 2));
	again = alloc(LENGTH, 0, stream);
	EXPECT(again != first);
	sem_post(&allocated);
	MUST(cuStreamEndCapture(stream, &graph));
	end_pool(0, 0, 1);
	MUST(cuStreamSynchronize(other));
	begin_pool(0, 0, 1, NULL);
	MUST(cuStreamBeginCapture_v2(stream, 2));
	EXPECT(alloc(LENGTH, 0, stream) == first);
	MUST(cuStreamEndCapture(stream, &graph));
	end_pool(0, 0, 1);

	first = alloc(LENGTH, 0, other);
	MUST(cuLaunchHostFunc(other, until_allocated, NULL));
	put(other, first, LENGTH, 3);
	release(first, LENGTH, 0, other);
	sem_wait(&under_way);
	EXPECT(!pthread_create(&thread, NULL, empties, NULL));
	usleep(200000);
	again = alloc(LENGTH, 0, other);
	EXPECT(again && again != first);
	release(again, LENGTH, 0, other);
	sem_post(&allocated);
	EXPECT(!pthread_join(thread, NULL));
	MUST(cuCtxSynchronize());
	EXPECT(stub_violations() == 0);
	return failed;
}
