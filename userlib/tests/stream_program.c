/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Discards in the order of streams that are captured, or are the legacy default stream,
 * and what else goes wrong only in a process with CUDA, on the stub library. Arguments:
 * what to try; exits with 0 if all is as uvmrust.h says.
 */
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "cuda.h"
#include "uvmrust.h"

#ifndef UVMRUST_ECAPTURE
#define UVMRUST_ECAPTURE (-9)
#endif

#ifndef UVMRUST_EBUSY
#define UVMRUST_EBUSY (-10)
#endif

#define LENGTH ((uint64_t)2 << 20)

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

/* What can not be part of a graph is refused, and the capture goes on. */
static void refused(int discards_too, int prefetches_too)
{
	void *stream, *graph, *a = managed(LENGTH), *g = NULL, *h = NULL;
	struct uvmrust_range of_a = range(a);
	uint8_t gpu[16];

	EXPECT(UvmRustDeviceUuid(0, gpu) == 0);
	EXPECT(g10_alloc(&g, LENGTH, NULL) == 0);
	MUST(cuStreamCreate(&stream, 0));
	MUST(cuStreamBeginCapture_v2(stream, 0));
	if (discards_too)
		EXPECT(UvmDiscardBatchAsync(&of_a, 1, 0, stream) == UVMRUST_ECAPTURE);
	EXPECT(UvmPrefetchAsync(a, LENGTH, gpu, stream) == (prefetches_too ? UVMRUST_ECAPTURE : 0));
	EXPECT(g10_free(g, stream) == UVMRUST_ECAPTURE);
	/* The legacy stream has an implicit dependency on the captured one. */
	EXPECT(UvmDiscardBatchAsync(&of_a, 1, 0, NULL) == UVMRUST_ECAPTURE);
	EXPECT(UvmPrefetchAsync(a, LENGTH, gpu, NULL) == UVMRUST_ECAPTURE);
	EXPECT(g10_free(g, NULL) == UVMRUST_ECAPTURE);
	/* Memory can be had meanwhile. */
	EXPECT(g10_alloc(&h, LENGTH, NULL) == 0 && h != g);
	EXPECT(cuStreamEndCapture(stream, &graph) == 0);
	EXPECT(g10_free(g, NULL) == 0 && g10_free(h, NULL) == 0);
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

	EXPECT(g10_alloc(&g, LENGTH, NULL) == 0);
	MUST(cuStreamCreate(&captured, 1));
	MUST(cuStreamCreate(&stream, 1));
	for (int mode = 0; mode < 3; mode++) {
		MUST(cuStreamBeginCapture_v2(captured, mode));
		put(stream, a, LENGTH, 3);
		if (discards)
			EXPECT(UvmDiscard(a, LENGTH) == 0);
		else
			EXPECT(g10_free(g, stream) == 0 && g10_alloc(&g, LENGTH, NULL) == 0);
		EXPECT(cuStreamEndCapture(captured, &graph) == 0);
		MUST(cuCtxSynchronize());
	}
	EXPECT(g10_free(g, stream) == 0);
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
		EXPECT(g10_alloc(&g, LENGTH, NULL) == 0);
		put(NULL, g, LENGTH, 3);
		EXPECT(g10_free(g, streams[seed % 2]) == 0);
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
	EXPECT(g10_alloc(NULL, LENGTH, NULL) == UVMRUST_EINVALID);
	EXPECT(stub_managed() == before);
}

/* A child has the descriptor of its parent, and must not use it. */
static void forked(void)
{
	void *a = managed(LENGTH), *g = NULL;
	int backend = UvmRustBackend(), status;
	pid_t child;

	EXPECT(backend != UVMRUST_BACKEND_NONE);
	EXPECT(g10_alloc(&g, LENGTH, NULL) == 0 && g10_free(g, NULL) == 0);
	EXPECT(g10_wait(g10_prefetch(a, LENGTH, NULL), 10000) == 1);
	MUST(cuCtxSynchronize());
	fflush(stdout);
	child = fork();
	if (!child) {
		EXPECT(UvmRustBackend() == UVMRUST_BACKEND_NONE);
		EXPECT(UvmDiscard(a, LENGTH) == UVMRUST_ENOTSUPPORTED);
		EXPECT(UvmPrefetch(a, LENGTH, NULL) == UVMRUST_ENOTSUPPORTED);
		EXPECT(g10_alloc(&g, LENGTH, NULL) == UVMRUST_ENOTSUPPORTED);
		EXPECT(g10_prefetch(a, LENGTH, NULL) == UVMRUST_ENOTSUPPORTED);
		/* One that it has opened itself. */
		UvmRustUseFd(900);
		EXPECT(UvmRustBackend() == backend);
		/* And a queue of moves of its own; but its parent's buffers are not there. */
		EXPECT(g10_prefetch(a, LENGTH, NULL) == 1);
		EXPECT(g10_wait(1, 10000) == 1 && g10_error() == 0);
		EXPECT(g10_free(g, NULL) == UVMRUST_EINVALID);
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
	EXPECT(g10_alloc(&a, LENGTH, NULL) == 0);
	stub_fail("cuLaunchHostFunc", by_cuda ? 1 : 2);
	EXPECT(g10_free(a, streams[0]) == UVMRUST_ENOMEMORY);
	EXPECT(g10_free(a, streams[1]) == 0);
	MUST(cuStreamSynchronize(streams[1]));
	EXPECT(g10_alloc(&b, LENGTH, NULL) == 0 && b == a);
	write_words(b, 5);
	MUST(cuStreamSynchronize(streams[0]));
	EXPECT(all_words(b, LENGTH, 5));
	/* If CUDA can not even wait, nobody gets the buffer. */
	stub_fail("cuLaunchHostFunc", by_cuda ? 1 : 2);
	stub_fail("cuStreamSynchronize", 1);
	EXPECT(g10_free(b, streams[0]) == UVMRUST_EDRIVER);
	EXPECT(g10_free(b, streams[1]) == UVMRUST_EINVALID);
	EXPECT(g10_alloc(&c, LENGTH, NULL) == 0 && c != b);
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
		stub_fail("UVM_DISCARD", 2);
		EXPECT(UvmDiscardBatch(halves, 2, 0, &result) == UVMRUST_EDRIVER);
		EXPECT(result.done == 1);
		/* Where it is the first, nothing has happened. */
		stub_fail("UVM_DISCARD", 1);
		EXPECT(UvmDiscardAndPrefetchBatch(halves, 2, gpu) == UVMRUST_ENOTSUPPORTED);
	}
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

	EXPECT(g10_alloc(&a, LENGTH, NULL) == 0 && g10_alloc(&b, LENGTH, NULL) == 0);
	EXPECT(g10_free(a, NULL) == 0 && g10_free(b, NULL) == 0);
	MUST(cuStreamSynchronize(NULL));
	stub_fail("cuMemAllocManaged", 1);
	stub_fail("cuMemFree_v2", 1);
	EXPECT(g10_alloc(&c, 2 * LENGTH, NULL) == UVMRUST_ENOMEMORY);
	EXPECT(stub_managed() == 1);
	EXPECT(g10_alloc(&c, LENGTH, NULL) == 0 && (c == a || c == b));
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
