/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What a discard in a stream's order costs on a real GPU, by a host function, as libuvmrust has
 * it, and by CUDA 13's own calls. A line each: the time from before two memsets of 4 KiB to the
 * end of both, with the call between them, of memory that is on the GPU and holds data. Takes
 * 128 MiB. Exits with 0, with 1 if a call fails or loses what is written behind it, or with 77
 * where there is no GPU or nobody discards.
 */
#include "native_cuda.h"
#include "timing.h"
#include "uvmrust.h"

#define MOST ((size_t)128 << 20)
#define ROUNDS 15
#define COUNT(a) (sizeof(a) / sizeof(*(a)))

static uint64_t all, small;
static uint8_t uuid[16];
static void *graph;
static int wrong;

static void nothing(void *data)
{
}

static int by_nobody(size_t length)
{
	return 0;
}

static int by_host_function(size_t length)
{
	return cuLaunchHostFunc(work, nothing, NULL);
}

static int eager(size_t length)
{
	return uvmrust_discard_async((void *)all, length, 0, work);
}

static int lazy(size_t length)
{
	return uvmrust_discard_async((void *)all, length, UVMRUST_LAZY, work);
}

static int both(size_t length)
{
	return uvmrust_discard_and_prefetch_async((void *)all, length, uuid, work);
}

static int cuda_discard(size_t length)
{
	return cuMemDiscardBatchAsync(&all, &length, 1, 0, work);
}

static int cuda_both(size_t length)
{
	struct location gpu = { 1, 0 };
	size_t first = 0;

	return cuMemDiscardAndPrefetchBatchAsync(&all, &length, 1, &gpu, &first, 1, 0, work);
}

static int cuda_discard_and_host_function(size_t length)
{
	int code = cuda_discard(length);

	return code ? code : by_host_function(length);
}

static int (*cuGraphLaunch)(void *, void *);

static int by_graph(size_t length)
{
	return cuGraphLaunch(graph, work);
}

static const struct way {
	const char *name;
	int (*call)(size_t length);
	int captured;
} ways[] = {
	{ "nothing", by_nobody, 0 },
	{ "an empty host function", by_host_function, 0 },
	{ "uvmrust_discard_async", eager, 0 },
	{ "the same, in a graph", eager, 1 },
	{ "uvmrust_discard_async, lazy", lazy, 0 },
	{ "the same, in a graph", lazy, 1 },
	{ "uvmrust_discard_and_prefetch_async", both, 0 },
	{ "the same, in a graph", both, 1 },
	{ "cuMemDiscardBatchAsync", cuda_discard, 0 },
	{ "the same, and an empty host function", cuda_discard_and_host_function, 0 },
	{ "cuMemDiscardAndPrefetchBatchAsync", cuda_both, 0 },
};

/* A graph of a call, and what it is launched by. */
static void capture(const struct way *way, size_t length)
{
	int (*instantiate)(void **, void *, unsigned long long);
	void *captured;

	*(void **)&instantiate = find_function(RTLD_DEFAULT, "cuGraphInstantiateWithFlags");
	*(void **)&cuGraphLaunch = find_function(RTLD_DEFAULT, "cuGraphLaunch");
	MUST(cuStreamBeginCapture_v2(work, 2));
	must_code(way->call(length), way->name);
	MUST(cuStreamEndCapture(work, &captured));
	MUST(instantiate(&graph, captured, 0));
	MUST(cuGraphDestroy(captured));
}

/* What is written behind the call is there. */
static void look(const struct way *way, size_t length)
{
	static uint32_t saw[MOST / 4];

	move_to(all, length, true);
	write_by_gpu(all, length, 0x5a5a5a5a);
	read_by_gpu(saw, all, length);
	for (size_t i = 0; i < length / 4; i++) {
		if (saw[i] != 0x5a5a5a5a) {
			printf("not ok - %s, %zu KiB: word %zu is %#x\n", way->name, length >> 10, i, saw[i]);
			wrong++;
			return;
		}
	}
}

static void measure(const struct way *way, size_t length)
{
	int (*call)(size_t) = way->captured ? by_graph : way->call;
	double took[ROUNDS], called[ROUNDS];

	if (way->captured)
		capture(way, length);
	for (int i = 0; i < ROUNDS; i++) {
		double began, until;
		int code;

		move_to(all, length, true);
		write_by_gpu(all, length, i);
		MUST(cuCtxSynchronize());
		began = now_us();
		MUST(cuMemsetD32Async(small, i, 1024, work));
		until = now_us();
		code = call(length);
		called[i] = now_us() - until;
		must_code(code, way->name);
		MUST(cuMemsetD32Async(small, i, 1024, work));
		MUST(cuStreamSynchronize(work));
		took[i] = now_us() - began;
		/* A wait for the stream alone has not waited for CUDA's discard (order_program.c). */
		MUST(cuCtxSynchronize());
		must_code(uvmrust_stream_error(), "uvmrust_stream_error()");
	}
	qsort(took, ROUNDS, sizeof(*took), compare);
	qsort(called, ROUNDS, sizeof(*called), compare);
	printf("fact - %6zu KiB: %8.1f us, at least %8.1f; the call returns after %6.1f: %s\n", length >> 10,
	       took[ROUNDS / 2], took[0], called[ROUNDS / 2], way->name);
	look(way, length);
}

int main(void)
{
	static const size_t lengths[] = { 64 << 10, 2 << 20, 32 << 20, MOST };
	uint32_t word;

	start_cuda(MOST);
	if (is_stub) {
		puts("the stub takes no time");
		return 77;
	}
	MUST(cuMemAllocManaged(&all, MOST, 1));
	MUST(cuMemAlloc_v2(&small, 4096));
	must_code(uvmrust_device_uuid(0, uuid), "uvmrust_device_uuid()");
	move_to(all, MOST, true);
	read_by_gpu(&word, all, 4);
	printf("fact - who discards: %s\n", uvmrust_backend_name(uvmrust_backend()));
	if (uvmrust_backend() == UVMRUST_BACKEND_NONE) {
		puts("nobody discards here");
		return 77;
	}
	for (size_t i = 0; i < COUNT(lengths); i++)
		for (size_t n = 0; n < COUNT(ways); n++)
			measure(&ways[n], lengths[i]);
	printf("%s - what is written behind each is kept\n", wrong ? "not ok" : "ok");
	return wrong != 0;
}
