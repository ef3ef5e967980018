/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Discards in the order of streams that are captured, or are the legacy default stream,
 * and what else goes wrong only in a process with CUDA, on the stub library. Arguments:
 * what to try; exits with 0 if all is as uvmrust.h says.
 */
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "cuda.h"
#define UVMRUST_NO_G10_NAMES
#include "uvmrust.h"

#ifndef UVMRUST_ECAPTURE
#define UVMRUST_ECAPTURE (-9)
#endif

#ifndef UVMRUST_EBUSY
#define UVMRUST_EBUSY (-10)
#endif

#define LENGTH ((uint64_t)2 << 20)

/* Somebody else's code, which has a name that the library had before. */
static int g10_free(const char *what)
{
	return strlen(what) == 0;
}

static struct uvmrust_range range(void *p)
{
	return (struct uvmrust_range){ (uintptr_t)p, LENGTH };
}

static void write_words(void *p, uint64_t value)
{
	for (uint64_t i = 0; i < LENGTH / 8; i++)
		((uint64_t *)p)[i] = value;
}

static void *instance(void *stream)
{
	void *graph, *executable;

	MUST(cuStreamEndCapture(stream, &graph));
	MUST(cuGraphInstantiateWithFlags(&executable, graph, 0));
	MUST(cuGraphDestroy(graph));
	return executable;
}

/* A discard that is captured is done at each launch, of its own ranges. */
static void replay(void)
{
	void *stream, *other, *executable, *a = managed(LENGTH), *b = managed(LENGTH);
	struct uvmrust_range of_a = range(a), of_b = range(b);

	MUST(cuStreamCreate(&stream, 0));
	MUST(cuStreamCreate(&other, NON_BLOCKING));
	MUST(cuStreamBeginCapture_v2(stream, 0));
	EXPECT(UvmDiscardBatchAsync(&of_a, 1, 0, stream) == 0);
	/* The caller's array is read before the call returns. */
	memset(&of_a, 0, sizeof(of_a));
	executable = instance(stream);
	for (uint64_t i = 1; i <= 3; i++) {
		put(stream, a, LENGTH, i);
		put(other, b, LENGTH, i);
		MUST(cuStreamSynchronize(other));
		/* Not before `other` comes there, which it does later. */
		EXPECT(UvmDiscardBatchAsync(&of_b, 1, 0, other) == 0);
		MUST(cuGraphLaunch(executable, stream));
		MUST(cuStreamSynchronize(stream));
		EXPECT(!all_words(a, LENGTH, i));
		put(stream, a, LENGTH, 10 + i);
		MUST(cuStreamSynchronize(stream));
		EXPECT(all_words(b, LENGTH, i));
		MUST(cuStreamSynchronize(other));
		EXPECT(!all_words(b, LENGTH, i) && all_words(a, LENGTH, 10 + i));
	}
	MUST(cuGraphExecDestroy(executable));
	EXPECT(UvmRustStreamError() == 0);
}

/* More ranges than the table of jobs has room for, replayed. */
static void many(void)
{
	struct uvmrust_range ranges[300];
	void *stream, *executable, *p = managed(LENGTH);

	for (size_t i = 0; i < 300; i++)
		ranges[i] = (struct uvmrust_range){ (uintptr_t)p + i * 4096, 4096 };
	MUST(cuStreamCreate(&stream, 0));
	MUST(cuStreamBeginCapture_v2(stream, 0));
	EXPECT(UvmDiscardBatchAsync(ranges, 300, 0, stream) == 0);
	executable = instance(stream);
	for (int i = 0; i < 3; i++) {
		put(stream, p, LENGTH, 7);
		MUST(cuGraphLaunch(executable, stream));
		MUST(cuStreamSynchronize(stream));
		EXPECT(!all_words(p, 300 * 4096, 7));
		EXPECT(all_words((char *)p + 300 * 4096, LENGTH - 300 * 4096, 7));
	}
	/* While it is in flight. */
	MUST(cuGraphLaunch(executable, stream));
	MUST(cuGraphExecDestroy(executable));
	MUST(cuStreamSynchronize(stream));
	EXPECT(UvmRustStreamError() == 0);
}

/* What cannot be part of a graph is refused, and the capture goes on. */
static void refused(int discards_too, int prefetches_too)
{
	void *stream, *graph, *a = managed(LENGTH), *g = NULL, *h = NULL;
	struct uvmrust_range of_a = range(a);
	uint8_t gpu[16];

	EXPECT(UvmRustDeviceUuid(0, gpu) == 0);
	EXPECT(uvmrust_buffer_alloc(&g, LENGTH, NULL) == 0);
	MUST(cuStreamCreate(&stream, 0));
	MUST(cuStreamBeginCapture_v2(stream, 0));
	if (discards_too)
		EXPECT(UvmDiscardBatchAsync(&of_a, 1, 0, stream) == UVMRUST_ECAPTURE);
	EXPECT(UvmPrefetchAsync(a, LENGTH, gpu, stream) == (prefetches_too ? UVMRUST_ECAPTURE : 0));
	EXPECT(uvmrust_buffer_free(g, stream) == UVMRUST_ECAPTURE);
	/* The legacy stream has an implicit dependency on the captured one. */
	EXPECT(UvmDiscardBatchAsync(&of_a, 1, 0, NULL) == UVMRUST_ECAPTURE);
	EXPECT(UvmPrefetchAsync(a, LENGTH, gpu, NULL) == UVMRUST_ECAPTURE);
	EXPECT(uvmrust_buffer_free(g, NULL) == UVMRUST_ECAPTURE);
	/* Memory can be had meanwhile. */
	EXPECT(uvmrust_buffer_alloc(&h, LENGTH, NULL) == 0 && h != g);
	EXPECT(cuStreamEndCapture(stream, &graph) == 0);
	EXPECT(uvmrust_buffer_free(g, NULL) == 0 && uvmrust_buffer_free(h, NULL) == 0);
	MUST(cuCtxSynchronize());
	EXPECT(UvmRustStreamError() == 0);
}

/*
 * What waits does not break the capture of another stream, neither of this thread's nor of
 * another one's: the discard that acts at once with CUDA 13's, and the free of a buffer
 * where nothing can discard.
 */
static void waits(int discards)
{
	void *captured, *stream, *graph, *a = managed(LENGTH), *g = NULL;

	EXPECT(uvmrust_buffer_alloc(&g, LENGTH, NULL) == 0);
	MUST(cuStreamCreate(&captured, 1));
	MUST(cuStreamCreate(&stream, 1));
	for (int mode = 0; mode < 3; mode++) {
		MUST(cuStreamBeginCapture_v2(captured, mode));
		put(stream, a, LENGTH, 3);
		if (discards)
			EXPECT(UvmDiscard(a, LENGTH) == 0);
		else
			EXPECT(uvmrust_buffer_free(g, stream) == 0 && uvmrust_buffer_alloc(&g, LENGTH, NULL) == 0);
		EXPECT(cuStreamEndCapture(captured, &graph) == 0);
		MUST(cuCtxSynchronize());
	}
	EXPECT(uvmrust_buffer_free(g, stream) == 0);
	EXPECT(UvmRustStreamError() == 0);
}

/*
 * Where nothing discards, a free in a stream that blocks waits for the legacy stream's work too, which
 * comes before what that stream does next.
 */
static void free_behind_legacy(void)
{
	void *streams[] = { NULL, (void *)2 }, *g;
	unsigned int same = 0;
	uint64_t *next;

	MUST(cuStreamCreate(&streams[0], 0));
	for (uint64_t seed = 0; seed < 40; seed++) {
		stub_seed(seed);
		EXPECT(uvmrust_buffer_alloc(&g, LENGTH, NULL) == 0);
		put(NULL, g, LENGTH, 3);
		EXPECT(uvmrust_buffer_free(g, streams[seed % 2]) == 0);
		next = managed(LENGTH);
		same += next == g;
		write_words(next, 9);
		MUST(cuCtxSynchronize());
		EXPECT(all_words(next, LENGTH, 9));
		MUST(cuMemFree_v2((uintptr_t)next));
	}
	EXPECT(same > 20);
	EXPECT(UvmRustStreamError() == 0);
}

/* All of a context's blocking streams are ordered with its legacy stream. */
static void legacy(void)
{
	void *streams[2], *a = managed(LENGTH);
	struct uvmrust_range of_a = range(a);

	MUST(cuStreamCreate(&streams[0], 0));
	MUST(cuStreamCreate(&streams[1], 0));
	for (uint64_t i = 1; i <= 10; i++) {
		struct seen before = { 0 }, after = { 0 };

		put(streams[0], a, LENGTH, i);
		get(streams[0], a, LENGTH, &before);
		EXPECT(UvmDiscardBatchAsync(&of_a, 1, 0, i % 2 ? NULL : (void *)1) == 0);
		put(streams[1], a, LENGTH, 100 + i);
		get(streams[1], a, LENGTH, &after);
		if (i % 3 == 0)
			MUST(cuStreamSynchronize(streams[1]));
		MUST(cuCtxSynchronize());
		EXPECT(before.values[0] == i && after.values[0] == 100 + i);
		EXPECT(all_words(a, LENGTH, 100 + i));
	}
	EXPECT(UvmRustStreamError() == 0);
}

/* A driver that takes no calls, since the system is about to sleep, and stays so. */
static void asleep(void)
{
	void *stream, *a = managed(LENGTH);
	struct uvmrust_range of_a = range(a);

	EXPECT(UvmRustBackend() != UVMRUST_BACKEND_NONE);
	MUST(cuStreamCreate(&stream, 0));
	setenv("STUB_ASLEEP", "0", 1);
	EXPECT(UvmDiscard(a, LENGTH) == UVMRUST_EBUSY);
	EXPECT(UvmPrefetch(a, LENGTH, NULL) == UVMRUST_EBUSY);
	EXPECT(UvmDiscardBatchAsync(&of_a, 1, 0, stream) == 0);
	MUST(cuStreamSynchronize(stream));
	EXPECT(UvmRustStreamError() == UVMRUST_EBUSY);
	/* It wakes up, and is asked as before. */
	setenv("STUB_ASLEEP", "1", 1);
	EXPECT(UvmDiscard(a, LENGTH) == 0);
}

/* Errors of CUDA that are not about memory, and arguments that give nothing. */
static void errors(void)
{
	void *a = managed(LENGTH);
	struct uvmrust_range of_a = range(a);
	unsigned int before = stub_managed();

	EXPECT(UvmDiscardBatchAsync(&of_a, 1, 0, (void *)0x123450) == UVMRUST_EINVALID);
	EXPECT(uvmrust_buffer_alloc(NULL, LENGTH, NULL) == UVMRUST_EINVALID);
	EXPECT(stub_managed() == before);
}

/* A child has the descriptor of its parent, and must not use it. */
static void forked(void)
{
	void *a = managed(LENGTH), *g = NULL;
	int backend = UvmRustBackend(), status;
	pid_t child;

	EXPECT(backend != UVMRUST_BACKEND_NONE);
	EXPECT(uvmrust_buffer_alloc(&g, LENGTH, NULL) == 0 && uvmrust_buffer_free(g, NULL) == 0);
	EXPECT(uvmrust_moves_wait(uvmrust_move_in(a, LENGTH, NULL), 10000) == 1);
	MUST(cuCtxSynchronize());
	fflush(stdout);
	child = fork();
	if (!child) {
		EXPECT(UvmRustBackend() == UVMRUST_BACKEND_NONE);
		EXPECT(UvmDiscard(a, LENGTH) == UVMRUST_ENOTSUPPORTED);
		EXPECT(UvmPrefetch(a, LENGTH, NULL) == UVMRUST_ENOTSUPPORTED);
		EXPECT(uvmrust_buffer_alloc(&g, LENGTH, NULL) == UVMRUST_ENOTSUPPORTED);
		EXPECT(uvmrust_move_in(a, LENGTH, NULL) == UVMRUST_ENOTSUPPORTED);
		/* One that it has opened itself. */
		UvmRustUseFd(900);
		EXPECT(UvmRustBackend() == backend);
		/* And a queue of moves of its own; but its parent's buffers are not there. */
		EXPECT(uvmrust_move_in(a, LENGTH, NULL) == 1);
		EXPECT(uvmrust_moves_wait(1, 10000) == 1 && uvmrust_moves_error() == 0);
		EXPECT(uvmrust_buffer_free(g, NULL) == UVMRUST_EINVALID);
		fflush(stdout);
		_exit(failed);
	}
	EXPECT(waitpid(child, &status, 0) == child && status == 0);
	EXPECT(UvmRustBackend() == backend && UvmDiscard(a, LENGTH) == 0);
}

/* The same, where the child is the first to ask. */
static void forked_first(void)
{
	void *a = managed(LENGTH);
	int status;
	pid_t child = fork();

	if (!child) {
		EXPECT(UvmRustBackend() == UVMRUST_BACKEND_NONE);
		EXPECT(UvmDiscard(a, LENGTH) == UVMRUST_ENOTSUPPORTED);
		fflush(stdout);
		_exit(failed);
	}
	EXPECT(waitpid(child, &status, 0) == child && status == 0);
	EXPECT(UvmDiscard(a, LENGTH) == 0);
}

/* A call that acts at once leaves nothing behind that acts later, also if it fails. */
static void half_way(void)
{
	void *a = managed(LENGTH);
	struct uvmrust_range ranges[] = { range(a), { (uintptr_t)a, UINT64_MAX } };
	struct uvmrust_result result;

	EXPECT(UvmDiscardBatch(ranges, 2, 0, &result) == UVMRUST_EINVALID && result.done == 1);
	for (uint64_t i = 0; i < LENGTH / 8; i++)
		((uint64_t *)a)[i] = 5;
	MUST(cuCtxSynchronize());
	EXPECT(all_words(a, LENGTH, 5));
}

/*
 * A free that fails when its discard is queued: nothing of it comes later, when the buffer
 * is another's.
 */
static void failed_free(void)
{
	void *a, *b, *c, *streams[2];
	/* Where a host function discards, it is another one than that of the free. */
	int by_cuda = UvmRustBackend() == UVMRUST_BACKEND_CUDA;

	MUST(cuStreamCreate(&streams[0], NON_BLOCKING));
	MUST(cuStreamCreate(&streams[1], NON_BLOCKING));
	EXPECT(UvmRustBackend() != UVMRUST_BACKEND_NONE);
	EXPECT(uvmrust_buffer_alloc(&a, LENGTH, NULL) == 0);
	stub_fail("cuLaunchHostFunc", by_cuda ? 1 : 2);
	EXPECT(uvmrust_buffer_free(a, streams[0]) == UVMRUST_ENOMEMORY);
	EXPECT(uvmrust_buffer_free(a, streams[1]) == 0);
	MUST(cuStreamSynchronize(streams[1]));
	EXPECT(uvmrust_buffer_alloc(&b, LENGTH, NULL) == 0 && b == a);
	write_words(b, 5);
	MUST(cuStreamSynchronize(streams[0]));
	EXPECT(all_words(b, LENGTH, 5));
	/* If CUDA cannot even wait, nobody gets the buffer. */
	stub_fail("cuLaunchHostFunc", by_cuda ? 1 : 2);
	stub_fail("cuStreamSynchronize", 1);
	EXPECT(uvmrust_buffer_free(b, streams[0]) == UVMRUST_EDRIVER);
	EXPECT(uvmrust_buffer_free(b, streams[1]) == UVMRUST_EINVALID);
	EXPECT(uvmrust_buffer_alloc(&c, LENGTH, NULL) == 0 && c != b);
	MUST(cuStreamSynchronize(streams[0]));
	EXPECT(UvmRustStreamError() == 0);
}

/*
 * CUDA 13's discard in the legacy stream, of which a later part fails: what is on its way
 * comes before what a blocking stream does next.
 */
static void failed_legacy(void)
{
	struct uvmrust_range ranges[65];
	void *stream, *a = managed(LENGTH);
	struct uvmrust_range of_a = range(a);

	for (size_t i = 0; i < 64; i++)
		ranges[i] = (struct uvmrust_range){ (uintptr_t)a + i * 4096, 4096 };
	ranges[64] = (struct uvmrust_range){ 4096, 4096 };
	MUST(cuStreamCreate(&stream, 0));
	for (int i = 0; i < 2; i++) {
		if (i) {
			stub_fail("cuEventCreate", 2);
			EXPECT(UvmDiscardBatchAsync(&of_a, 1, 0, NULL) == UVMRUST_ENOMEMORY);
		} else {
			EXPECT(UvmDiscardBatchAsync(ranges, 65, 0, NULL) == UVMRUST_ENOTMANAGED);
		}
		put(stream, a, LENGTH, 5);
		MUST(cuStreamSynchronize(stream));
		MUST(cuCtxSynchronize());
		EXPECT(all_words(a, LENGTH, 5));
	}
}

/*
 * NVIDIA's driver refuses the second range. The first is lazily discarded, so that the
 * answer is not that nothing has happened, and a prefetch has followed.
 */
static void half_refused(void)
{
	char *a = managed(2 * LENGTH);
	struct uvmrust_range halves[] = { range(a), range(a + LENGTH) };
	struct uvmrust_result result;
	uint8_t gpu[16];

	EXPECT(UvmRustDeviceUuid(0, gpu) == 0);
	EXPECT(UvmRustBackend() == UVMRUST_BACKEND_NATIVE);
	for (int i = 0; i < 2; i++) {
		put(NULL, a, 2 * LENGTH, 1);
		MUST(cuCtxSynchronize());
		stub_fail("UVM_DISCARD", 2);
		EXPECT(UvmDiscardAndPrefetchBatch(halves, 2, gpu) == UVMRUST_EDRIVER);
		put(NULL, a, 2 * LENGTH, 7);
		MUST(cuCtxSynchronize());
		/* An eager discard is two calls. */
		stub_fail("UVM_DISCARD", 3);
		EXPECT(UvmDiscardBatch(halves, 2, 0, &result) == UVMRUST_EDRIVER);
		EXPECT(result.done == 1);
		/* Where it is the first, nothing has happened. */
		stub_fail("UVM_DISCARD", 1);
		EXPECT(UvmDiscardAndPrefetchBatch(halves, 2, gpu) == UVMRUST_ENOTSUPPORTED);
	}
}

/* What stands in memory is still there once the driver has taken it from where it was. */
static int survives(void *p, uint64_t value)
{
	stub_evict(p, LENGTH);
	return all_words(p, LENGTH, value);
}

/*
 * NVIDIA's driver cannot unmap what it discards, for want of memory, and leaves it discarded lazily:
 * what is written behind the failed discard is kept all the same.
 */
static void not_unmapped(void)
{
	void *stream, *a = managed(LENGTH), *g, *h, *i;
	unsigned int before;

	MUST(cuStreamCreate(&stream, NON_BLOCKING));
	EXPECT(uvmrust_backend() == UVMRUST_BACKEND_NATIVE);
	/* The test can fail. */
	EXPECT(uvmrust_discard(a, LENGTH, UVMRUST_LAZY) == 0);
	write_words(a, 6);
	EXPECT(!survives(a, 6));
	EXPECT(uvmrust_prefetch(a, LENGTH, NULL) == 0);

	stub_fail("UVM_DISCARD unmap", 1);
	EXPECT(uvmrust_discard(a, LENGTH, 0) == UVMRUST_ENOMEMORY);
	put(stream, a, LENGTH, 7);
	MUST(cuStreamSynchronize(stream));
	EXPECT(survives(a, 7));

	stub_fail("UVM_DISCARD unmap", 1);
	EXPECT(uvmrust_discard_async(a, LENGTH, 0, stream) == 0);
	put(stream, a, LENGTH, 8);
	MUST(cuStreamSynchronize(stream));
	EXPECT(survives(a, 8));
	EXPECT(uvmrust_stream_error() == UVMRUST_ENOMEMORY);

	/* Where not even a migration ends it, the next owner does not get the memory. */
	EXPECT(uvmrust_buffer_alloc(&g, LENGTH, NULL) == 0);
	before = stub_managed();
	stub_fail("UVM_DISCARD unmap", 1);
	stub_fail("UVM_MIGRATE", 1);
	EXPECT(uvmrust_buffer_free(g, stream) == 0);
	MUST(cuStreamSynchronize(stream));
	EXPECT(uvmrust_stream_error() == UVMRUST_ENOMEMORY);
	stub_fail("cuMemFree_v2", 1);
	EXPECT(uvmrust_buffer_alloc(&h, LENGTH, NULL) == 0 && h != g);
	/* CUDA does not take it yet. */
	EXPECT(stub_managed() == before + 1);
	put(stream, h, LENGTH, 9);
	MUST(cuStreamSynchronize(stream));
	EXPECT(survives(h, 9));
	/* What is free later is kept as ever. */
	EXPECT(uvmrust_buffer_free(h, stream) == 0);
	MUST(cuStreamSynchronize(stream));
	EXPECT(uvmrust_stream_error() == 0);
	EXPECT(uvmrust_buffer_alloc(&i, LENGTH, NULL) == 0 && i == h && stub_managed() == before);
	/* What the driver refuses to discard may be lazily discarded from before. */
	EXPECT(uvmrust_discard(i, LENGTH, UVMRUST_LAZY) == 0);
	stub_fail("UVM_DISCARD", 1);
	EXPECT(uvmrust_buffer_free(i, stream) == 0);
	MUST(cuStreamSynchronize(stream));
	EXPECT(uvmrust_stream_error() == UVMRUST_ENOTSUPPORTED);
	EXPECT(uvmrust_buffer_alloc(&h, LENGTH, NULL) == 0 && stub_managed() == before);
	write_words(h, 10);
	EXPECT(survives(h, 10));
}

/*
 * A page of the memory was read-duplicated, so that one call of NVIDIA's unmaps no other page of the
 * block: what is written behind a discard is kept all the same.
 */
static void duplicated(void)
{
	void *stream, *executable, *a = managed(2 * LENGTH), *g, *h;
	struct uvmrust_range halves[] = { range(a), range((char *)a + LENGTH) };
	struct uvmrust_batch batch = UVMRUST_BATCH(halves, 2);

	MUST(cuStreamCreate(&stream, NON_BLOCKING));
	setenv("STUB_DUPLICATED", "1", 1);
	EXPECT(uvmrust_backend() == UVMRUST_BACKEND_NATIVE);

	EXPECT(uvmrust_discard(a, LENGTH, 0) == 0);
	write_words(a, 1);
	EXPECT(survives(a, 1));

	EXPECT(uvmrust_discard_batch(&batch, NULL) == 0);
	put(stream, a, 2 * LENGTH, 2);
	MUST(cuStreamSynchronize(stream));
	EXPECT(survives(a, 2) && survives((char *)a + LENGTH, 2));

	EXPECT(uvmrust_discard_batch_async(&batch, stream) == 0);
	put(stream, a, 2 * LENGTH, 3);
	MUST(cuStreamSynchronize(stream));
	EXPECT(survives(a, 3) && survives((char *)a + LENGTH, 3));

	MUST(cuStreamBeginCapture_v2(stream, 0));
	EXPECT(uvmrust_discard_async(a, LENGTH, 0, stream) == 0);
	executable = instance(stream);
	for (uint64_t i = 4; i < 6; i++) {
		MUST(cuGraphLaunch(executable, stream));
		put(stream, a, LENGTH, i);
		MUST(cuStreamSynchronize(stream));
		EXPECT(survives(a, i));
	}

	EXPECT(uvmrust_buffer_alloc(&g, LENGTH, NULL) == 0 && uvmrust_buffer_free(g, stream) == 0);
	MUST(cuStreamSynchronize(stream));
	EXPECT(uvmrust_buffer_alloc(&h, LENGTH, NULL) == 0 && h == g);
	write_words(h, 6);
	EXPECT(survives(h, 6));
	EXPECT(uvmrust_stream_error() == 0);

	/* The second call is the one that fails: an error, and no lazy discard. */
	stub_fail("UVM_DISCARD", 2);
	EXPECT(uvmrust_discard(a, LENGTH, 0) == UVMRUST_EDRIVER);
	write_words(a, 7);
	EXPECT(survives(a, 7));
}

/*
 * Memory of a managed pool of CUDA's goes back to the pool, so that what is lazily discarded is
 * prefetched before it is freed.
 */
static void pools(void)
{
	/* CUmemPoolProps: CU_MEM_ALLOCATION_TYPE_MANAGED, for the first device. */
	int props[22] = { 2, 0, 1, 0 };
	uint64_t first = 0, second = 0;
	void *stream, *pool;

	MUST(cuStreamCreate(&stream, NON_BLOCKING));
	MUST(cuMemPoolCreate(&pool, props));
	for (int prefetched = 0; prefetched < 2; prefetched++) {
		unsigned int before = stub_violations();

		MUST(cuMemAllocFromPoolAsync(&first, LENGTH, pool, stream));
		EXPECT(uvmrust_discard((void *)first, LENGTH, UVMRUST_LAZY) == 0);
		if (prefetched)
			EXPECT(uvmrust_prefetch((void *)first, LENGTH, NULL) == 0);
		MUST(cuMemFree_v2(first));
		MUST(cuMemAllocFromPoolAsync(&second, LENGTH, pool, stream));
		EXPECT(second == first);
		put(stream, (void *)second, LENGTH, 4);
		MUST(cuStreamSynchronize(stream));
		EXPECT(survives((void *)second, 4) == prefetched);
		EXPECT((stub_violations() == before) == prefetched);
		EXPECT(uvmrust_prefetch((void *)second, LENGTH, NULL) == 0);
		MUST(cuMemFree_v2(second));
	}
}

/* A capture into the body of a conditional node, which has no host nodes. */
static void body(void)
{
	void *stream, *graph, *a = managed(LENGTH);
	uint8_t gpu[16];

	EXPECT(uvmrust_device_uuid(0, gpu) == 0);
	MUST(cuStreamCreate(&stream, NON_BLOCKING));
	stub_body(&graph);
	MUST(cuStreamBeginCaptureToGraph(stream, graph, NULL, NULL, 0, 0));
	EXPECT(uvmrust_discard_async(a, LENGTH, 0, stream) == UVMRUST_ECAPTURE);
	EXPECT(uvmrust_prefetch_async(a, LENGTH, gpu, stream) == UVMRUST_ECAPTURE);
	EXPECT(uvmrust_discard_and_prefetch_async(a, LENGTH, gpu, stream) == UVMRUST_ECAPTURE);
	put(stream, a, LENGTH, 1);
	EXPECT(cuStreamEndCapture(stream, &graph) == 0);
	MUST(cuGraphDestroy(graph));
	/* A graph that cannot own what a node needs. */
	MUST(cuStreamBeginCapture_v2(stream, 0));
	stub_fail("cuGraphRetainUserObject refused", 1);
	EXPECT(uvmrust_discard_async(a, LENGTH, 0, stream) == UVMRUST_ECAPTURE);
	put(stream, a, LENGTH, 1);
	EXPECT(cuStreamEndCapture(stream, &graph) == 0);
	MUST(cuGraphDestroy(graph));
}

/* A thread that has another device's context than a green one's stream. */
static void *beside_green(void *arg)
{
	void **green = arg, *context;

	MUST(cuDevicePrimaryCtxRetain(&context, 1));
	MUST(cuCtxSetCurrent(context));
	EXPECT(uvmrust_discard_async(green[2], LENGTH, 0, green[1]) == 0);
	EXPECT(uvmrust_prefetch_async(green[2], LENGTH, NULL, green[1]) == 0);
	return NULL;
}

/* A green context is current to one thread: no other makes it so for a moment. */
static void green(void)
{
	void *green[3] = { NULL, NULL, managed(LENGTH) };
	pthread_t thread;

	stub_green(0, &green[0], &green[1]);
	MUST(cuCtxSetCurrent(green[0]));
	MUST(pthread_create(&thread, NULL, beside_green, green));
	MUST(pthread_join(thread, NULL));
	MUST(cuStreamSynchronize(green[1]));
	EXPECT(uvmrust_stream_error() == 0);
}

/*
 * Without a driver that discards, and without anything to discard: "0 is a success that changes
 * nothing" (uvmrust.h).
 */
static void nothing(void)
{
	struct uvmrust_range none[] = { { 4097, 100 }, { 4096, 0 } };
	struct uvmrust_batch batch = UVMRUST_BATCH(none, 2);
	struct uvmrust_outcome outcome = UVMRUST_OUTCOME;
	void *a = managed(LENGTH);

	EXPECT(uvmrust_backend() == UVMRUST_BACKEND_NONE);
	EXPECT(uvmrust_discard(a, 0, 0) == 0);
	EXPECT(uvmrust_discard_batch(&batch, &outcome) == 0 && outcome.done == 2);
	EXPECT(uvmrust_discard_and_prefetch(a, 0, NULL) == 0);
	EXPECT(uvmrust_discard_async(a, 0, 0, NULL) == 0);
	EXPECT(uvmrust_discard_and_prefetch_async(a, 0, NULL, NULL) == 0);
	EXPECT(uvmrust_discard(a, LENGTH, 0) == UVMRUST_ENOTSUPPORTED);
	EXPECT(uvmrust_discard_async(a, LENGTH, 0, NULL) == UVMRUST_ENOTSUPPORTED);
}

/*
 * CUDA 13's discard in the legacy stream, of which CUDA can neither keep the order nor wait for it:
 * it may still come, so that nobody gets the buffer.
 */
static void lost_legacy(void)
{
	void *a, *b;

	EXPECT(uvmrust_backend() == UVMRUST_BACKEND_CUDA);
	EXPECT(uvmrust_buffer_alloc(&a, LENGTH, NULL) == 0);
	stub_fail("cuEventCreate", 2);
	stub_fail("cuStreamSynchronize", 1);
	EXPECT(uvmrust_buffer_free(a, NULL) == UVMRUST_EDRIVER);
	EXPECT(uvmrust_buffer_free(a, NULL) == UVMRUST_EINVALID);
	EXPECT(uvmrust_buffer_alloc(&b, LENGTH, NULL) == 0 && b != a);
}

/*
 * A host function that has to look for the driver again calls nothing of CUDA; also where
 * the driver was found before CUDA was initialised.
 */
static void given(int early)
{
	struct uvmrust_range of_a;
	void *a;

	if (early) {
		stub_initialise_uvm();
		UvmRustUseFd(900);
		EXPECT(UvmRustBackend() != UVMRUST_BACKEND_NONE);
	}
	use_device(0);
	a = managed(LENGTH);
	of_a = range(a);
	if (!early)
		UvmRustUseFd(900);
	EXPECT(UvmDiscardBatchAsync(&of_a, 1, 0, NULL) == 0);
	UvmRustUseFd(-1);
	MUST(cuStreamSynchronize(NULL));
	/* Without the one that the stub answers on there is none. */
	EXPECT(UvmRustStreamError() == UVMRUST_ENOTSUPPORTED);
	EXPECT(stub_violations() == 0);
}

/* What CUDA does not take back is still there, for who wants as much. */
static void kept(void)
{
	void *a, *b, *c;

	EXPECT(uvmrust_buffer_alloc(&a, LENGTH, NULL) == 0 && uvmrust_buffer_alloc(&b, LENGTH, NULL) == 0);
	EXPECT(uvmrust_buffer_free(a, NULL) == 0 && uvmrust_buffer_free(b, NULL) == 0);
	MUST(cuStreamSynchronize(NULL));
	stub_fail("cuMemAllocManaged", 1);
	stub_fail("cuMemFree_v2", 1);
	EXPECT(uvmrust_buffer_alloc(&c, 2 * LENGTH, NULL) == UVMRUST_ENOMEMORY);
	EXPECT(stub_managed() == 1);
	EXPECT(uvmrust_buffer_alloc(&c, LENGTH, NULL) == 0 && (c == a || c == b));
	EXPECT(stub_managed() == 1);
}

/*
 * Another thread begins to capture the stream during the call, which it must not. The node
 * that the discard has become touches nobody else's at a later launch.
 */
static void captured_meanwhile(void)
{
	void *stream, *other, *executable, *a = managed(LENGTH), *b = managed(LENGTH);
	struct uvmrust_range of_a = range(a), of_b = range(b);

	MUST(cuStreamCreate(&stream, NON_BLOCKING));
	MUST(cuStreamCreate(&other, NON_BLOCKING));
	EXPECT(UvmRustBackend() != UVMRUST_BACKEND_NONE);
	stub_capture_before(1);
	EXPECT(UvmDiscardBatchAsync(&of_a, 1, 0, stream) == 0);
	executable = instance(stream);
	for (int i = 0; i < 3; i++) {
		put(other, b, LENGTH, 7);
		MUST(cuStreamSynchronize(other));
		/* In the place of what the launch before had, if it gave that back. */
		EXPECT(UvmDiscardBatchAsync(&of_b, 1, 0, other) == 0);
		MUST(cuGraphLaunch(executable, stream));
		MUST(cuStreamSynchronize(stream));
		EXPECT(all_words(b, LENGTH, 7));
		MUST(cuStreamSynchronize(other));
		EXPECT(!all_words(b, LENGTH, 7));
	}
	EXPECT(UvmRustStreamError() == UVMRUST_ECAPTURE && UvmRustStreamError() == 0);
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";

	EXPECT(!g10_free(what));
	if (strncmp(what, "given", 5))
		use_device(0);
	if (!strcmp(what, "replay"))
		replay();
	else if (!strcmp(what, "many"))
		many();
	else if (!strcmp(what, "refused"))
		refused(0, 0);
	else if (!strcmp(what, "discards-refused"))
		refused(1, 0);
	else if (!strcmp(what, "all-refused"))
		refused(1, 1);
	else if (!strcmp(what, "waits"))
		waits(1);
	else if (!strcmp(what, "waits-to-free"))
		waits(0);
	else if (!strcmp(what, "free-behind-legacy"))
		free_behind_legacy();
	else if (!strcmp(what, "legacy"))
		legacy();
	else if (!strcmp(what, "half-way"))
		half_way();
	else if (!strcmp(what, "failed-free"))
		failed_free();
	else if (!strcmp(what, "failed-legacy"))
		failed_legacy();
	else if (!strcmp(what, "half-refused"))
		half_refused();
	else if (!strcmp(what, "not-unmapped"))
		not_unmapped();
	else if (!strcmp(what, "duplicated"))
		duplicated();
	else if (!strcmp(what, "pools"))
		return pools(), failed;
	else if (!strcmp(what, "body"))
		body();
	else if (!strcmp(what, "green"))
		green();
	else if (!strcmp(what, "nothing"))
		nothing();
	else if (!strcmp(what, "lost-legacy"))
		lost_legacy();
	else if (!strcmp(what, "given"))
		given(0);
	else if (!strcmp(what, "given-early"))
		given(1);
	else if (!strcmp(what, "captured-meanwhile"))
		captured_meanwhile();
	else if (!strcmp(what, "kept"))
		kept();
	else if (!strcmp(what, "asleep"))
		asleep();
	else if (!strcmp(what, "errors"))
		errors();
	else if (!strcmp(what, "forked"))
		forked();
	else if (!strcmp(what, "forked-first"))
		forked_first();
	else
		return 2;
	EXPECT(stub_violations() == 0);
	return failed;
}
