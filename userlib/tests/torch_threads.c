/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Threads that use the PyTorch allocator with their default streams, which all have the
 * handle 2. Arguments: the allocator's library.
 */
#include <dlfcn.h>
#include <pthread.h>
#include "cuda.h"

/* cudaStreamPerThread */
#define OWN ((void *)2)

static void *(*alloc)(size_t, int, void *);
static void (*release)(void *, size_t, int, void *);
static void (*record)(void *, void *);
static void (*empty)(void);
static void (*begin_pool)(int, uint64_t, uint64_t, void *);
static void (*end_pool)(int, uint64_t, uint64_t);

static uint64_t length;
static void *memory;
static struct seen seen;

static void *reads(void *unused)
{
	use_device(0);
	record(memory, OWN);
	get(OWN, memory, length, &seen);
	return NULL;
}

static void *writes_and_frees(void *unused)
{
	use_device(0);
	memory = alloc(length, 0, OWN);
	put(OWN, memory, length, 3);
	release(memory, length, 0, OWN);
	return NULL;
}

/* The other thread's work is still under way when it has ended. */
static void other_thread(void *(*work)(void *))
{
	pthread_t thread;

	EXPECT(!pthread_create(&thread, NULL, work, NULL) && !pthread_join(thread, NULL));
}

/* What is given back to CUDA is not used by a thread's stream any more, in any order. */
static void given_back(void)
{
	unsigned int same = 0;
	uint64_t *next;

	length = (uint64_t)12 << 20;
	for (uint64_t seed = 0; seed < 40; seed++) {
		stub_seed(seed);
		other_thread(writes_and_frees);
		empty();
		next = managed(length);
		same += next == memory;
		for (uint64_t i = 0; i < length / 8; i++)
			next[i] = 9;
		MUST(cuCtxSynchronize());
		EXPECT(all_words(next, length, 9));
		MUST(cuMemFree_v2((uintptr_t)next));
	}
	EXPECT(same > 20);
}

/*
 * What a thread's own stream only waits for is done with the memory, when the thread has freed it and
 * another has it.
 */
static void *side;

static void *waits_and_frees(void *unused)
{
	void *event;

	use_device(0);
	memory = alloc(length, 0, OWN);
	/* Nobody has used it yet: the side stream need not wait for this one. */
	put(side, memory, length, 3);
	get(side, memory, length, &seen);
	MUST(cuEventCreate(&event, 2));
	MUST(cuEventRecord(event, side));
	MUST(cuStreamWaitEvent(OWN, event, 0));
	release(memory, length, 0, OWN);
	return NULL;
}

static unsigned int reused;

static void *writes_again(void *unused)
{
	void *again;

	use_device(0);
	again = alloc(length, 0, OWN);
	reused += again == memory;
	put(OWN, again, length, 4);
	release(again, length, 0, OWN);
	return NULL;
}

static void waited_for(int in_capture)
{
	length = (uint64_t)4 << 20;
	reused = 0;
	for (uint64_t seed = 0; seed < 40; seed++) {
		empty();
		MUST(cuCtxSynchronize());
		stub_seed(seed);
		seen.count = 0;
		/* Then nothing is put into a stream by the free, but by whoever comes later. */
		if (in_capture)
			begin_pool(0, 0, 1, NULL);
		other_thread(waits_and_frees);
		if (in_capture)
			end_pool(0, 0, 1);
		other_thread(writes_again);
		MUST(cuCtxSynchronize());
		EXPECT(seen.count == 1 && seen.values[0] == 3);
	}
	/* What is only marked is there again when the mark has passed, as with some seeds. */
	EXPECT(in_capture ? reused > 0 : reused == 40);
}

/*
 * What a side stream reads, by a program that frees it first, and has the stream of the allocation wait for
 * that one before it allocates again: as autograd's engine.
 */
static void freed_before_the_wait(void *stream)
{
	void *event, *next;

	length = (uint64_t)4 << 20;
	MUST(cuEventCreate(&event, 2));
	for (uint64_t seed = 0; seed < 40; seed++) {
		stub_seed(seed);
		seen.count = 0;
		memory = alloc(length, 0, stream);
		put(stream, memory, length, 5);
		MUST(cuStreamSynchronize(stream));
		get(side, memory, length, &seen);
		release(memory, length, 0, stream);
		MUST(cuEventRecord(event, side));
		MUST(cuStreamWaitEvent(stream, event, 0));
		next = alloc(4 * length, 0, stream);
		MUST(cuCtxSynchronize());
		EXPECT(seen.count == 1 && seen.values[0] == 5);
		release(next, 4 * length, 0, stream);
	}
}

int main(int argc, char **argv)
{
	void *library = dlopen(argv[1], RTLD_NOW), *stream, *again;

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
	use_device(0);
	MUST(cuStreamCreate(&stream, NON_BLOCKING));
	for (length = (uint64_t)4 << 20; length; length = length > 4096 ? 4096 : 0) {
		memory = alloc(length, 0, stream);
		put(stream, memory, length, 1);
		MUST(cuStreamSynchronize(stream));
		seen.count = 0;
		other_thread(reads);
		release(memory, length, 0, stream);
		again = alloc(length, 0, stream);
		EXPECT(again == memory);
		put(stream, again, length, 2);
		MUST(cuStreamSynchronize(stream));
		MUST(cuCtxSynchronize());
		EXPECT(seen.count == 1 && seen.values[0] == 1);

		other_thread(writes_and_frees);
		again = alloc(length, 0, OWN);
		EXPECT(again == memory);
		put(OWN, again, length, 4);
		MUST(cuStreamSynchronize(OWN));
		MUST(cuCtxSynchronize());
		seen.count = 0;
		get(OWN, again, length, &seen);
		MUST(cuCtxSynchronize());
		EXPECT(seen.count == 1 && seen.values[0] == 4);
		release(again, length, 0, OWN);
	}
	given_back();
	MUST(cuStreamCreate(&side, NON_BLOCKING));
	freed_before_the_wait(stream);
	waited_for(0);
	waited_for(1);
	EXPECT(stub_violations() == 0);
	return failed;
}
