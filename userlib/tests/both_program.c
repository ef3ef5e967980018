/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Discard-and-prefetch of which something fails, on the stub library: what is written behind it is
 * kept. Arguments: what to try; exits with 0 if all is as uvmrust.h says.
 */
#include <string.h>
#include <sys/ioctl.h>
#define UVMRUST_NO_OLD_NAMES
#include "cuda.h"
#include "uvmrust.h"

unsigned int stub_host_functions(void);

#define LENGTH ((uint64_t)2 << 20)

static uint8_t gpu[16];
static void *memory, *stream;

/* A kernel writes a word behind what was queued, and it is still there when the driver takes the memory. */
static int keeps(void *in, uint64_t value)
{
	put(in, memory, LENGTH, value);
	MUST(cuStreamSynchronize(in));
	stub_evict(memory, LENGTH);
	return all_words(memory, LENGTH, value);
}

/* The tests can fail. */
static void lazy(void)
{
	EXPECT(uvmrust_discard(memory, LENGTH, UVMRUST_LAZY) == 0);
	memset(memory, 6, LENGTH);
	stub_evict(memory, LENGTH);
	EXPECT(!all_words(memory, LENGTH, UINT64_C(0x0606060606060606)));
	EXPECT(uvmrust_prefetch(memory, LENGTH, NULL) == 0);
}

/* At once: without room at the destination. */
static void at_once(void)
{
	lazy();
	stub_fail("UVM_MIGRATE", 1);
	EXPECT(uvmrust_discard_and_prefetch(memory, LENGTH, gpu) == UVMRUST_ENOMEMORY);
	EXPECT(keeps(stream, 7));
}

/*
 * Ends a graph that is being captured by a write. Of its two launches the first has no room for what it prefetches: what is written
 * is kept in both.
 */
static void launched_twice(void)
{
	void *recorded, *executable;

	put(stream, memory, LENGTH, 5);
	MUST(cuStreamEndCapture(stream, &recorded));
	MUST(cuGraphInstantiateWithFlags(&executable, recorded, 0));
	stub_fail("UVM_MIGRATE", 1);
	for (int launched = 0; launched < 2; launched++) {
		put(stream, memory, LENGTH, 1);
		MUST(cuGraphLaunch(executable, stream));
		MUST(cuStreamSynchronize(stream));
		stub_evict(memory, LENGTH);
		EXPECT(all_words(memory, LENGTH, 5));
		EXPECT(uvmrust_stream_error() == (launched ? 0 : UVMRUST_ENOMEMORY));
	}
}

/* In a graph, whose second launch has room. */
static void graph(void)
{
	lazy();
	MUST(cuStreamBeginCapture_v2(stream, 0));
	EXPECT(uvmrust_discard_and_prefetch_async(memory, LENGTH, gpu, stream) == 0);
	launched_twice();
}

/* CUDA refuses the prefetch behind the host function that discards. */
static void refused(void)
{
	lazy();
	stub_fail("cuMemPrefetchAsync", 1);
	EXPECT(uvmrust_discard_and_prefetch_async(memory, LENGTH, gpu, stream) ==
	       UVMRUST_ENOMEMORY);
	EXPECT(keeps(stream, 8));
	EXPECT(uvmrust_stream_error() == 0);
}

/* A prefetch that cannot be done when the stream comes there, whoever does it. Of CUDA's own nobody is told. */
static void later(void)
{
	lazy();
	stub_fail("cuMemPrefetchAsync later", 1);
	stub_fail("UVM_MIGRATE", 1);
	EXPECT(uvmrust_discard_and_prefetch_async(memory, LENGTH, gpu, stream) == 0);
	EXPECT(keeps(stream, 9));
	EXPECT(uvmrust_stream_error() == (getenv("STUB_MIG") ? 0 : UVMRUST_ENOMEMORY));
}

/* The program discards a range lazily: at once, in its stream, or by a graph that is launched there. */
static void discard_range(int how, void *p, uint64_t length)
{
	void *recorded, *executable;

	if (how == 0) {
		MUST(cuStreamSynchronize(stream));
		EXPECT(uvmrust_discard(p, length, UVMRUST_LAZY) == 0);
		return;
	}
	if (how == 2)
		MUST(cuStreamBeginCapture_v2(stream, 0));
	EXPECT(uvmrust_discard_async(p, length, UVMRUST_LAZY, stream) == 0);
	if (how == 2) {
		MUST(cuStreamEndCapture(stream, &recorded));
		MUST(cuGraphInstantiateWithFlags(&executable, recorded, 0));
		MUST(cuGraphLaunch(executable, stream));
	}
}

static void discard_lazily(int how)
{
	put(stream, memory, LENGTH, 1);
	discard_range(how, memory, LENGTH);
}

/*
 * CUDA may have memory of several owners in one block of 2 MiB. A part of a block is not discarded lazily, so that
 * its next owner, who prefetches nothing, loses nothing.
 */
static void in_part(void)
{
	static const uint64_t parts[][2] = {
		{ 0, LENGTH / 2 }, { 4096, LENGTH - 4096 }, { 0, LENGTH - 1 }, { LENGTH / 2, LENGTH },
	};
	char *p = managed(2 * LENGTH);
	unsigned int functions = stub_host_functions();

	for (uint64_t i = 0; i < 12; i++) {
		discard_range((int)(i % 3), p + parts[i / 3][0], parts[i / 3][1]);
		put(stream, p, 2 * LENGTH, 30 + i);
		MUST(cuStreamSynchronize(stream));
		stub_evict(p, 2 * LENGTH);
		EXPECT(all_words(p, 2 * LENGTH, 30 + i));
	}
	EXPECT(stub_host_functions() == functions);
	/* Nor is anything lazily discarded yet: a prefetch is CUDA's. */
	EXPECT(uvmrust_prefetch_async(p, LENGTH, gpu, stream) == 0);
	EXPECT(stub_host_functions() == functions);
	/* The whole blocks within are. */
	for (int how = 0; how < 3; how++) {
		put(stream, p, 2 * LENGTH, 50);
		discard_range(how, p + LENGTH / 2, LENGTH + LENGTH / 2);
		MUST(cuStreamSynchronize(stream));
		stub_evict(p, 2 * LENGTH);
		EXPECT(all_words(p, LENGTH, 50) && !all_words(p + LENGTH, LENGTH, 50));
		EXPECT(uvmrust_prefetch(p, 2 * LENGTH, NULL) == 0);
	}
	/* And so are pages where a prefetch comes in the same call. */
	put(stream, p, LENGTH, 51);
	MUST(cuStreamSynchronize(stream));
	EXPECT(uvmrust_discard_and_prefetch(p, LENGTH / 2, NULL) == 0);
	EXPECT(!all_words(p, LENGTH / 2, 51) && all_words(p + LENGTH / 2, LENGTH / 2, 51));
	put(stream, p, LENGTH, 52);
	EXPECT(uvmrust_discard_and_prefetch_async(p, LENGTH / 2, gpu, stream) == 0);
	MUST(cuStreamSynchronize(stream));
	EXPECT(!all_words(p, LENGTH / 2, 52) && all_words(p + LENGTH / 2, LENGTH / 2, 52));
}

/*
 * Of a lazy discard that others make, here by NVIDIA's call itself, the library knows nothing. A prefetch in a stream
 * is CUDA's then, of which nobody is told that it has failed. The call that waits tells it.
 */
static void others(void)
{
	struct { uint64_t base, length, flags; uint32_t status, rest[64]; } lazily = {
		(uintptr_t)memory, LENGTH, 0, 1, { 0 },
	};
	void *other = managed(LENGTH);

	EXPECT(ioctl(atoi(getenv("UVMRUST_FD")), 80ul, &lazily) == 0 && lazily.status == 0);
	stub_fail("cuMemPrefetchAsync later", 1);
	EXPECT(uvmrust_prefetch_async(memory, LENGTH, gpu, stream) == 0);
	EXPECT(!keeps(stream, 60) && uvmrust_stream_error() == 0);
	stub_fail("UVM_MIGRATE", 1);
	EXPECT(uvmrust_prefetch(memory, LENGTH, gpu) == UVMRUST_ENOMEMORY);
	EXPECT(uvmrust_prefetch(memory, LENGTH, NULL) == 0);
	EXPECT(keeps(stream, 61));
	/* Behind a lazy discard by the library all prefetches are its own. */
	EXPECT(uvmrust_discard(other, LENGTH, UVMRUST_LAZY) == 0);
	EXPECT(ioctl(atoi(getenv("UVMRUST_FD")), 80ul, &lazily) == 0 && lazily.status == 0);
	stub_fail("UVM_MIGRATE", 1);
	EXPECT(uvmrust_prefetch_async(memory, LENGTH, gpu, stream) == 0);
	EXPECT(keeps(stream, 62) && uvmrust_stream_error() == UVMRUST_ENOMEMORY);
	/* Not by main(): the first write was lost. */
	exit(failed);
}

/* A prefetch by itself, behind a lazy discard, that cannot be done when the stream comes there. */
static void alone(const char *how)
{
	stub_fail("cuMemPrefetchAsync later", 1);
	stub_fail("UVM_MIGRATE", 1);
	discard_lazily(atoi(how));
	EXPECT(uvmrust_prefetch_async(memory, LENGTH, gpu, stream) == 0);
	EXPECT(keeps(stream, 11));
	/* In a stream of a part of a GPU no discard is lazy, and the prefetch is CUDA's. */
	EXPECT(uvmrust_stream_error() == (getenv("STUB_MIG") && *how == '1' ? 0 : UVMRUST_ENOMEMORY));
}

/*
 * Of several ranges the first is no managed memory, which no prefetch can help, and the second fails. The third
 * arrives, and stays there: both.rs reads that in the stub's log.
 */
static void several(void)
{
	void *unmanaged = aligned_alloc(LENGTH, LENGTH), *arrives = managed(LENGTH);
	const struct uvmrust_range ranges[] = {
		{ (uintptr_t)unmanaged, LENGTH },
		{ (uintptr_t)memory, LENGTH },
		{ (uintptr_t)arrives, LENGTH },
	};
	struct uvmrust_batch batch = UVMRUST_BATCH(ranges, 3);

	batch.gpu_uuid = gpu;
	discard_lazily(0);
	stub_fail("UVM_MIGRATE", 2);
	EXPECT(uvmrust_prefetch_batch_async(&batch, stream) == 0);
	EXPECT(keeps(stream, 15));
	EXPECT(uvmrust_stream_error() == UVMRUST_ENOTMANAGED);
	free(unmanaged);
}

/* At once, to a part of a GPU: CUDA's prefetch is not done, which it says to nobody. */
static void part_at_once(void)
{
	stub_fail("cuMemPrefetchAsync later", 1);
	EXPECT(uvmrust_discard_and_prefetch(memory, LENGTH, gpu) == 0);
	EXPECT(keeps(stream, 13));
	discard_lazily(0);
	stub_fail("cuMemPrefetchAsync later", 1);
	EXPECT(uvmrust_prefetch(memory, LENGTH, gpu) == 0);
	EXPECT(keeps(stream, 14));
}

/* Where nothing was discarded lazily, a prefetch is CUDA's. */
static void never_lazy(void)
{
	stub_fail("UVM_MIGRATE", 1);
	EXPECT(uvmrust_discard_async(memory, LENGTH, 0, stream) == 0);
	EXPECT(uvmrust_discard_and_prefetch_async(memory, LENGTH, gpu, (void *)2) == 0);
	MUST(cuStreamSynchronize((void *)2));
	(void)uvmrust_stream_error();
	stub_fail("UVM_MIGRATE", 1);
	EXPECT(uvmrust_prefetch_async(memory, LENGTH, gpu, stream) == 0);
	EXPECT(keeps(stream, 12));
	EXPECT(uvmrust_stream_error() == 0);
}

/* In a graph both are nodes, and the second launch has room. */
static void alone_in_a_graph(void)
{
	MUST(cuStreamBeginCapture_v2(stream, 0));
	EXPECT(uvmrust_discard_async(memory, LENGTH, UVMRUST_LAZY, stream) == 0);
	EXPECT(uvmrust_prefetch_async(memory, LENGTH, gpu, stream) == 0);
	launched_twice();
}

/*
 * The prefetch and the write are in another stream than the discard, behind an event: the prefetch is the library's,
 * or CUDA's, as a program calls it that knows of no other.
 */
static void elsewhere(void)
{
	void *other, *event, *streams[] = { NULL, (void *)2, stream, NULL };

	MUST(cuStreamCreate(&other, NON_BLOCKING));
	MUST(cuEventCreate(&event, 2));
	streams[3] = other;
	for (uint64_t i = 0; i < 8; i++) {
		void *in = streams[i / 2];

		discard_lazily(1 + i % 2);
		MUST(cuEventRecord(event, stream));
		MUST(cuStreamWaitEvent(in, event, 0));
		if (i % 2)
			MUST(cuMemPrefetchAsync((uint64_t)(uintptr_t)memory, LENGTH, 0, in));
		else
			EXPECT(uvmrust_prefetch_async(memory, LENGTH, gpu, in) == 0);
		EXPECT(keeps(in, 20 + i));
		EXPECT(uvmrust_stream_error() == 0);
	}
}

/* Where even the second discard fails, it counts as one that failed: what is freed meanwhile goes to nobody. */
static void counted(void)
{
	void *recorded, *executable, *freed, *other;

	EXPECT(uvmrust_backend() == UVMRUST_BACKEND_NATIVE);
	EXPECT(g10_alloc(&freed, LENGTH, NULL) == 0);
	MUST(cuStreamBeginCapture_v2(stream, 0));
	EXPECT(uvmrust_discard_and_prefetch_async(memory, LENGTH, gpu, stream) == 0);
	MUST(cuStreamEndCapture(stream, &recorded));
	MUST(cuGraphInstantiateWithFlags(&executable, recorded, 0));
	stub_fail("UVM_MIGRATE", 1);
	stub_fail("UVM_DISCARD", 2);
	MUST(cuGraphLaunch(executable, stream));
	EXPECT(g10_free(freed, stream) == 0);
	MUST(cuStreamSynchronize(stream));
	EXPECT(uvmrust_stream_error() == UVMRUST_ENOMEMORY);
	/* CUDA does not take it back yet, so that its address is no other's. */
	stub_fail("cuMemFree_v2", 1);
	EXPECT(g10_alloc(&other, LENGTH, NULL) == 0 && other != freed);
}

/* CUDA's own discard, in the legacy stream, behind which another thread begins a capture. */
static void captured_behind(void)
{
	void *buffer;

	EXPECT(uvmrust_backend() == UVMRUST_BACKEND_CUDA);
	/* Before the discard, nothing has changed. */
	put(NULL, memory, LENGTH, 3);
	stub_fail("cuStreamWaitEvent captured", 1);
	EXPECT(uvmrust_discard_async(memory, LENGTH, 0, NULL) == UVMRUST_ECAPTURE);
	MUST(cuCtxSynchronize());
	EXPECT(all_words(memory, LENGTH, 3));
	stub_fail("cuStreamWaitEvent captured", 2);
	EXPECT(uvmrust_discard_async(memory, LENGTH, 0, NULL) == UVMRUST_EBUSY);
	EXPECT(!all_words(memory, LENGTH, 3));
	EXPECT(strstr(uvmrust_strerror(UVMRUST_EBUSY), "another thread began a capture") != NULL);
	stub_fail("cuStreamWaitEvent captured", 2);
	EXPECT(uvmrust_discard_and_prefetch_async(memory, LENGTH, gpu, NULL) == UVMRUST_EBUSY);
	EXPECT(keeps(NULL, 4));
	/* The buffer is not lost. */
	EXPECT(g10_alloc(&buffer, LENGTH, NULL) == 0);
	stub_fail("cuStreamWaitEvent captured", 2);
	EXPECT(g10_free(buffer, NULL) == UVMRUST_EBUSY);
	EXPECT(g10_free(buffer, NULL) == 0);
}

/* A host function discards in the legacy stream, and another thread begins a capture before CUDA's prefetch. */
static void captured_between(void)
{
	put(NULL, memory, LENGTH, 3);
	stub_fail("cuMemPrefetchAsync captured", 1);
	EXPECT(uvmrust_discard_and_prefetch_async(memory, LENGTH, gpu, NULL) == UVMRUST_EBUSY);
	MUST(cuCtxSynchronize());
	EXPECT(!all_words(memory, LENGTH, 3));
	EXPECT(keeps(NULL, 4));
}

/* Of nothing, nothing can be wrong: as of length 0, of a part of a page, and of an empty batch. */
static void nothing(void)
{
	static const uint8_t unknown[16] = { 1, 2, 3 };
	const struct uvmrust_batch none = UVMRUST_BATCH(NULL, 0);
	void *captured, *streams[] = { NULL, (void *)2, stream }, *graph;
	char *p = memory;

	MUST(cuStreamCreate(&captured, 0));
	streams[2] = captured;
	MUST(cuStreamBeginCapture_v2(captured, 2));
	for (size_t i = 0; i < sizeof(streams) / sizeof(*streams); i++) {
		EXPECT(uvmrust_discard_async(p, 0, 0, streams[i]) == 0);
		EXPECT(uvmrust_discard_async(p + 1, 100, UVMRUST_LAZY, streams[i]) == 0);
		EXPECT(uvmrust_discard_batch_async(&none, streams[i]) == 0);
		EXPECT(uvmrust_prefetch_async(p, 0, unknown, streams[i]) == 0);
		EXPECT(uvmrust_prefetch_batch_async(&none, streams[i]) == 0);
		EXPECT(uvmrust_discard_and_prefetch_async(p, 0, unknown, streams[i]) == 0);
		EXPECT(uvmrust_discard_and_prefetch_batch_async(&none, streams[i]) == 0);
	}
	MUST(cuStreamEndCapture(captured, &graph));
	/* At once: CUDA's own discard is done in the thread's own stream. */
	MUST(cuStreamBeginCapture_v2((void *)2, 2));
	EXPECT(uvmrust_discard(p, 0, 0) == 0);
	EXPECT(uvmrust_discard(p + 1, 100, 0) == 0);
	EXPECT(uvmrust_prefetch(p, 0, unknown) == 0);
	EXPECT(uvmrust_discard_and_prefetch(p, 0, unknown) == 0);
	MUST(cuStreamEndCapture((void *)2, &graph));
	EXPECT(uvmrust_stream_error() == 0);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} parts[] = {
		{ "at-once", at_once }, { "graph", graph }, { "refused", refused },
		{ "later", later }, { "counted", counted },
		{ "never-lazy", never_lazy }, { "alone-in-a-graph", alone_in_a_graph },
		{ "several", several }, { "elsewhere", elsewhere },
		{ "part-at-once", part_at_once }, { "captured-behind", captured_behind },
		{ "captured-between", captured_between }, { "nothing", nothing },
		{ "in-part", in_part }, { "others", others },
	};
	const char *what = argc > 1 ? argv[1] : "";

	use_device(0);
	MUST(uvmrust_device_uuid(0, gpu));
	memory = managed(LENGTH);
	/* With NVIDIA's driver and CUDA 13 a host function discards in the legacy stream alone. */
	if (strcmp(what, "refused") && strcmp(what, "later"))
		MUST(cuStreamCreate(&stream, 0));
	if (!strncmp(what, "alone-", 6) && what[7] == '\0') {
		alone(what + 6);
		EXPECT(stub_violations() == 0);
		return failed;
	}
	for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++)
		if (!strcmp(parts[i].name, what)) {
			parts[i].run();
			EXPECT(stub_violations() == 0);
			return failed;
		}
	return 2;
}
