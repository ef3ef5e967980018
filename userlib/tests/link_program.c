/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Which things put between two streams order them, on a real GPU. Stream A is busy, and then calls
 * the host function "first"; something comes between; stream B calls the host function
 * "second", and nothing else. If B is behind A, "second" comes after "first". A line each:
 *
 *   ok - BETWEEN: of N times B came behind A in all
 *   not ok - BETWEEN: of N times ...
 *
 * for what libuvmrust and its random programs count on; of the others the line begins with "fact",
 * and where nothing is between, B must not have waited each time, or nothing is seen here.
 * It also says whether a graph may be destroyed while a stream is being captured.
 * Exits with 0 if all is as it must be, 1 if not, 77 where there is no GPU or no CUDA 13.
 *
 *   link_program [TIMES]
 */
#include <pthread.h>
#include "native_cuda.h"

#define MIB ((size_t)1 << 20)
#define BUSY (64 * MIB)

/* What comes between the two. */
enum between {
	NOTHING,
	/* In the legacy stream, between two blocking ones. */
	LEGACY_MEMSET, LEGACY_HOST_FUNCTION, LEGACY_RECORD, LEGACY_WAIT, LEGACY_PREFETCH,
	LEGACY_GRAPH_EMPTY, LEGACY_GRAPH_EMPTY_NODE, LEGACY_GRAPH_HOST_FUNCTION, LEGACY_GRAPH_MEMSET,
	/* Of two streams that do not block: an event, or one executable graph launched in both. */
	EVENT, GRAPH_EMPTY, GRAPH_EMPTY_NODE, GRAPH_HOST_FUNCTION, GRAPH_MEMSET,
	/* A blocks, and B, which does not, waits for an event of the legacy stream; or the other way. */
	LEGACY_EVENT, EVENT_LEGACY,
	/* A is the legacy stream. B does not block, and waits for an event of a stream that does, which
	   has that event alone behind A, or a wait for another, or some work. */
	BLOCKING_RECORD, BLOCKING_WAIT, BLOCKING_MEMSET, BLOCKING_HOST_FUNCTION, BLOCKING_PREFETCH,
	BLOCKING_GRAPH_HOST_FUNCTION,
	/* The same, but the program waits for that stream. */
	BLOCKING_NOTHING_SYNC, BLOCKING_RECORD_SYNC, BLOCKING_MEMSET_SYNC,
	/* A blocks, and the program waits for the legacy stream. */
	LEGACY_SYNC,
	/* In the same stream. */
	SAME_GRAPH_EMPTY, SAME_PREFETCH,
	/* As BLOCKING_*: what libuvmrust counts on. */
	BLOCKING_DISCARD, BLOCKING_HOST_FUNCTION_SYNC,
	/* The stream that blocks is the thread's own default stream. */
	OWN_NOTHING_SYNC, OWN_HOST_FUNCTION_SYNC,
	/* A blocks, and the legacy stream waits for an event of its own, and the program for it. */
	LEGACY_ORDER_SYNC,
	/* A is the own default stream of this thread, or of another, and B, which does not block, waits
	   for an event of the legacy stream. */
	OWN_LEGACY_EVENT, OTHERS_LEGACY_EVENT,
	/* Nothing but a wait for A is in a stream that blocks, or in the thread's own. B is the legacy
	   stream, or waits for an event of it; or the legacy stream waits for an event of that stream. */
	WAITING, OWN_WAITING, WAITING_EVENT, OWN_WAITING_EVENT, WAITING_LINK, OWN_WAITING_LINK,
	/* The program frees managed memory that nobody uses. */
	FREE,
	BETWEENS
};

static const struct {
	const char *name;
	/* Counted on. */
	bool must;
} betweens[] = {
	[NOTHING] = { "nothing" },
	[LEGACY_MEMSET] = { "a memset in the legacy stream", true },
	[LEGACY_HOST_FUNCTION] = { "a host function in the legacy stream", true },
	[LEGACY_RECORD] = { "an event that is recorded in the legacy stream", true },
	[LEGACY_WAIT] = { "a wait of the legacy stream for an event that is over", true },
	[LEGACY_PREFETCH] = { "a prefetch in the legacy stream", true },
	[LEGACY_GRAPH_EMPTY] = { "a graph of no node in the legacy stream" },
	[LEGACY_GRAPH_EMPTY_NODE] = { "a graph of an empty node in the legacy stream" },
	[LEGACY_GRAPH_HOST_FUNCTION] = { "a graph of a host function in the legacy stream", true },
	[LEGACY_GRAPH_MEMSET] = { "a graph of a memset in the legacy stream", true },
	[EVENT] = { "an event", true },
	[GRAPH_EMPTY] = { "a graph of no node, launched in both" },
	[GRAPH_EMPTY_NODE] = { "a graph of an empty node, launched in both" },
	[GRAPH_HOST_FUNCTION] = { "a graph of a host function, launched in both", true },
	[GRAPH_MEMSET] = { "a graph of a memset, launched in both", true },
	[LEGACY_EVENT] = { "an event of the legacy stream, for a stream that does not block", true },
	[EVENT_LEGACY] = { "an event of a stream that does not block, for the legacy stream", true },
	[BLOCKING_RECORD] = { "an event of a blocking stream behind the legacy stream" },
	[BLOCKING_WAIT] = { "a wait for an event that is over and an event of a blocking stream behind the legacy stream" },
	[BLOCKING_MEMSET] = { "a memset and an event of a blocking stream behind the legacy stream", true },
	[BLOCKING_HOST_FUNCTION] = { "a host function and an event of a blocking stream behind the legacy stream", true },
	[BLOCKING_PREFETCH] = { "a prefetch and an event of a blocking stream behind the legacy stream", true },
	[BLOCKING_GRAPH_HOST_FUNCTION] = { "a graph of a host function and an event of a blocking stream behind the legacy stream", true },
	[BLOCKING_NOTHING_SYNC] = { "a wait of the program for a blocking stream behind the legacy stream" },
	[BLOCKING_RECORD_SYNC] = { "a wait of the program for an event and a blocking stream behind the legacy stream" },
	[BLOCKING_MEMSET_SYNC] = { "a wait of the program for a memset and a blocking stream behind the legacy stream", true },
	[LEGACY_SYNC] = { "a wait of the program for the legacy stream behind a blocking one" },
	[SAME_GRAPH_EMPTY] = { "a graph of no node in the same stream", true },
	[SAME_PREFETCH] = { "a prefetch in the same stream", true },
	[BLOCKING_DISCARD] = { "a discard with a prefetch and an event of a blocking stream behind the legacy stream", true },
	[BLOCKING_HOST_FUNCTION_SYNC] = { "a wait of the program for a host function and a blocking stream behind the legacy stream", true },
	[OWN_NOTHING_SYNC] = { "a wait of the program for its thread's own default stream behind the legacy stream" },
	[OWN_HOST_FUNCTION_SYNC] = { "a wait of the program for a host function and its thread's own default stream behind the legacy stream", true },
	[LEGACY_ORDER_SYNC] = { "a wait of the program for the legacy stream with a wait for its own event behind a blocking one", true },
	[OWN_LEGACY_EVENT] = { "an event of the legacy stream behind the thread's own default stream", true },
	[OTHERS_LEGACY_EVENT] = { "an event of the legacy stream behind another thread's own default stream", true },
	[WAITING] = { "a blocking stream that only waits, for the legacy stream" },
	[OWN_WAITING] = { "the thread's own default stream that only waits, for the legacy stream" },
	[WAITING_EVENT] = { "a blocking stream that only waits, for an event of the legacy stream" },
	[OWN_WAITING_EVENT] = { "the thread's own default stream that only waits, for an event of the legacy stream" },
	[WAITING_LINK] = { "an event of a blocking stream that only waits, for the legacy stream", true },
	[OWN_WAITING_LINK] = { "an event of the thread's own default stream that only waits, for the legacy stream", true },
	[FREE] = { "cuMemFree of managed memory that nobody uses" },
};

enum { EMPTY, EMPTY_NODE, HOST_FUNCTION, MEMSET, GRAPHS };

static int (*cuEventCreate)(void **, unsigned int), (*cuEventRecord)(void *, void *);
static int (*cuStreamWaitEvent)(void *, void *, unsigned int), (*cuEventDestroy_v2)(void *);
static int (*cuGraphInstantiateWithFlags)(void **, void *, unsigned long long), (*cuGraphLaunch)(void *, void *);
static int (*cuGraphExecDestroy)(void *), (*cuThreadExchangeStreamCaptureMode)(int *);
/* The stub has none. */
static int (*cuGraphAddEmptyNode)(void **, void *, const void *, size_t);

static void *graphs[GRAPHS], *legacy, *blocking[2], *free_streams[2];
static void *const own = (void *)2; /* CU_STREAM_PER_THREAD */
static void *context;
static uint64_t busy_memory, word, managed, freed;
static volatile int came, saw;

static void first(void *data)
{
	came = 1;
}

static void second(void *data)
{
	saw = came;
}

static void nothing(void *data)
{
}

static void make_graphs(void)
{
	void *graph, *node;

	for (int kind = 0; kind < GRAPHS; kind++) {
		MUST(cuStreamBeginCapture_v2(work, 2));
		if (kind == HOST_FUNCTION)
			MUST(cuLaunchHostFunc(work, nothing, NULL));
		if (kind == MEMSET)
			MUST(cuMemsetD32Async(word, 1, 1, work));
		MUST(cuStreamEndCapture(work, &graph));
		if (kind == EMPTY_NODE && cuGraphAddEmptyNode)
			MUST(cuGraphAddEmptyNode(&node, graph, NULL, 0));
		if (kind != EMPTY_NODE || cuGraphAddEmptyNode)
			MUST(cuGraphInstantiateWithFlags(&graphs[kind], graph, 0));
		MUST(cuGraphDestroy(graph));
	}
}

static void order_or_not(void *earlier, void *later, bool waits)
{
	void *event;

	MUST(cuEventCreate(&event, 2));
	MUST(cuEventRecord(event, earlier));
	if (waits)
		MUST(cuStreamWaitEvent(later, event, 0));
	MUST(cuEventDestroy_v2(event));
}

/* An event of one stream, for which the other waits. */
static void order(void *earlier, void *later)
{
	order_or_not(earlier, later, later != earlier);
}

/* A stream waits for an event of its own. */
static void order_itself(void *stream)
{
	order_or_not(stream, stream, true);
}

/* In the legacy stream. */
static void put_legacy(enum between between)
{
	struct location gpu = { 1, 0 };

	switch (between) {
	case LEGACY_MEMSET:
		MUST(cuMemsetD32Async(word, 1, 1, legacy));
		return;
	case LEGACY_HOST_FUNCTION:
		MUST(cuLaunchHostFunc(legacy, nothing, NULL));
		return;
	case LEGACY_RECORD:
		order(legacy, legacy);
		return;
	case LEGACY_WAIT:
		order(work, legacy);
		return;
	case LEGACY_PREFETCH:
		MUST(cuMemPrefetchAsync_v2(managed, 4096, gpu, 0, legacy));
		return;
	default:
		MUST(cuGraphLaunch(graphs[between - LEGACY_GRAPH_EMPTY], legacy));
	}
}

/* In a stream that blocks, behind the legacy stream. */
static void put_blocking(enum between between, void *b)
{
	struct location gpu = { 1, 0 };
	bool its_own = between == OWN_NOTHING_SYNC || between == OWN_HOST_FUNCTION_SYNC;
	void *middle = its_own ? own : blocking[0];
	size_t length = 4096, at = 0;

	switch (between) {
	case BLOCKING_WAIT:
		order(work, middle);
		break;
	case BLOCKING_MEMSET:
	case BLOCKING_MEMSET_SYNC:
		MUST(cuMemsetD32Async(word, 1, 1, middle));
		break;
	case BLOCKING_HOST_FUNCTION:
	case BLOCKING_HOST_FUNCTION_SYNC:
	case OWN_HOST_FUNCTION_SYNC:
		MUST(cuLaunchHostFunc(middle, nothing, NULL));
		break;
	case BLOCKING_DISCARD:
		MUST(cuMemDiscardAndPrefetchBatchAsync(&managed, &length, 1, &gpu, &at, 1, 0, middle));
		break;
	case BLOCKING_PREFETCH:
		MUST(cuMemPrefetchAsync_v2(managed, 4096, gpu, 0, middle));
		break;
	case BLOCKING_GRAPH_HOST_FUNCTION:
		MUST(cuGraphLaunch(graphs[HOST_FUNCTION], middle));
		break;
	case BLOCKING_RECORD_SYNC:
		order(middle, middle);
		break;
	default:
		break;
	}
	if (between < BLOCKING_NOTHING_SYNC || between == BLOCKING_DISCARD)
		order(middle, b);
	else
		MUST(cuStreamSynchronize(middle));
}

/* Behind a stream that blocks and only waits for A. */
static void put_waiting(enum between between, void *a, void *b)
{
	void *middle = (between - WAITING) % 2 ? own : blocking[0];

	order(a, middle);
	if (between >= WAITING_LINK)
		order(middle, b);
	else if (between >= WAITING_EVENT)
		order(legacy, b);
}

static bool is_blocking_case(enum between between)
{
	return (between >= BLOCKING_RECORD && between <= BLOCKING_MEMSET_SYNC) ||
	       (between >= BLOCKING_DISCARD && between <= OWN_HOST_FUNCTION_SYNC);
}

static void put_between(enum between between, void *a, void *b)
{
	struct location gpu = { 1, 0 };

	if (between >= LEGACY_MEMSET && between <= LEGACY_GRAPH_MEMSET)
		put_legacy(between);
	else if (between >= GRAPH_EMPTY && between <= GRAPH_MEMSET) {
		MUST(cuGraphLaunch(graphs[between - GRAPH_EMPTY], a));
		MUST(cuGraphLaunch(graphs[between - GRAPH_EMPTY], b));
	} else if (between == EVENT)
		order(a, b);
	else if (between == LEGACY_EVENT || between == OWN_LEGACY_EVENT || between == OTHERS_LEGACY_EVENT)
		order(legacy, b);
	else if (between == EVENT_LEGACY)
		order(a, legacy);
	else if (is_blocking_case(between))
		put_blocking(between, b);
	else if (between == LEGACY_SYNC || between == LEGACY_ORDER_SYNC) {
		if (between == LEGACY_ORDER_SYNC)
			order_itself(legacy);
		MUST(cuStreamSynchronize(legacy));
	} else if (between >= WAITING && between <= OWN_WAITING_LINK)
		put_waiting(between, a, b);
	else if (between == FREE)
		MUST(cuMemFree_v2(freed));
	else if (between == SAME_GRAPH_EMPTY)
		MUST(cuGraphLaunch(graphs[EMPTY], a));
	else if (between == SAME_PREFETCH)
		MUST(cuMemPrefetchAsync_v2(managed, 4096, gpu, 0, a));
}

static void put_first(void *a)
{
	for (int i = 0; i < (is_stub ? 1 : 100); i++)
		MUST(cuMemsetD32Async(busy_memory, i, BUSY / 4, a));
	MUST(cuLaunchHostFunc(a, first, NULL));
}

/* A is the own stream of a thread that has ended then. */
static void *other_thread(void *unused)
{
	MUST(cuCtxSetCurrent(context));
	put_first(own);
	return NULL;
}

/* Whether B came behind A. */
static bool one_time(enum between between)
{
	bool legacy_only = between >= LEGACY_MEMSET && between <= LEGACY_GRAPH_MEMSET;
	bool blocks = legacy_only || between == LEGACY_EVENT || between == LEGACY_SYNC || between == LEGACY_ORDER_SYNC;
	void *a = blocks ? blocking[0] : free_streams[0];
	void *b = legacy_only || between == EVENT_LEGACY ? blocking[1] : free_streams[1];
	pthread_t thread;

	if (is_blocking_case(between))
		a = legacy;
	else if (between == OWN_LEGACY_EVENT)
		a = own;
	if (between == SAME_GRAPH_EMPTY || between == SAME_PREFETCH)
		b = a;
	else if (between == WAITING || between == OWN_WAITING || between >= WAITING_LINK)
		b = legacy;
	if (between == FREE) {
		b = free_streams[1];
		MUST(cuMemAllocManaged(&freed, 2 * MIB, 1));
		write_by_host(freed, 4096, 1);
	}
	came = 0;
	saw = -1;
	if (between != OTHERS_LEGACY_EVENT)
		put_first(a);
	else if (pthread_create(&thread, NULL, other_thread, NULL) || pthread_join(thread, NULL))
		exit(1);
	put_between(between, a, b);
	MUST(cuLaunchHostFunc(b, second, NULL));
	MUST(cuStreamSynchronize(b));
	MUST(cuCtxSynchronize());
	return saw == 1;
}

/*
 * Whether a graph may be destroyed while a stream is being captured, and the capture goes on: by the
 * mode of the capture, and of the thread.
 */
static int destroyed_in_captures(void)
{
	static const char *const modes[] = { "global", "of the thread", "relaxed" };
	int wrong = 0;

	for (int n = 0; n < 6; n++) {
		int mode = n % 3, relaxed = 2, destroyed, ended;
		void *graph, *executable;

		MUST(cuStreamBeginCapture_v2(work, 2));
		MUST(cuLaunchHostFunc(work, nothing, NULL));
		MUST(cuStreamEndCapture(work, &graph));
		MUST(cuGraphInstantiateWithFlags(&executable, graph, 0));
		MUST(cuGraphDestroy(graph));
		MUST(cuStreamBeginCapture_v2(free_streams[0], mode));
		if (n >= 3)
			MUST(cuThreadExchangeStreamCaptureMode(&relaxed));
		destroyed = cuGraphExecDestroy(executable);
		if (n >= 3)
			MUST(cuThreadExchangeStreamCaptureMode(&relaxed));
		ended = cuStreamEndCapture(free_streams[0], &graph);
		if (!ended)
			MUST(cuGraphDestroy(graph));
		if (destroyed)
			MUST(cuGraphExecDestroy(executable));
		wrong += n >= 3 && (destroyed || ended);
		printf("%s - a graph is destroyed during a capture, %s, by a thread that %s: cuGraphExecDestroy gives %d, cuStreamEndCapture %d\n",
		       n < 3 ? "fact" : destroyed || ended ? "not ok" : "ok", modes[mode],
		       n >= 3 ? "is relaxed" : "is not", destroyed, ended);
	}
	return wrong;
}

int main(int argc, char **argv)
{
	int times = argc > 1 ? atoi(argv[1]) : 20, wrong = 0;
	void *library;

	setvbuf(stdout, NULL, _IOLBF, 0);
	start_cuda(4096);
	library = dlopen("libcuda.so.1", RTLD_NOW);
	*(void **)&cuEventCreate = find_function(library, "cuEventCreate");
	*(void **)&cuEventRecord = find_function(library, "cuEventRecord");
	*(void **)&cuEventDestroy_v2 = find_function(library, "cuEventDestroy_v2");
	*(void **)&cuStreamWaitEvent = find_function(library, "cuStreamWaitEvent");
	*(void **)&cuGraphInstantiateWithFlags = find_function(library, "cuGraphInstantiateWithFlags");
	*(void **)&cuGraphLaunch = find_function(library, "cuGraphLaunch");
	*(void **)&cuGraphExecDestroy = find_function(library, "cuGraphExecDestroy");
	*(void **)&cuThreadExchangeStreamCaptureMode =
		find_function(library, "cuThreadExchangeStreamCaptureMode");
	MUST(cuDevicePrimaryCtxRetain(&context, 0));
	*(void **)&cuGraphAddEmptyNode = dlsym(library, "cuGraphAddEmptyNode");
	for (int i = 0; i < 2; i++) {
		MUST(cuStreamCreate(&blocking[i], 0));
		MUST(cuStreamCreate(&free_streams[i], 1));
	}
	MUST(cuMemAlloc_v2(&busy_memory, BUSY));
	MUST(cuMemAlloc_v2(&word, 4096));
	MUST(cuMemAllocManaged(&managed, 2 * MIB, 1));
	make_graphs();
	for (int between = 0; between < BETWEENS; between++) {
		bool graph_lacks = !graphs[EMPTY_NODE] &&
				   (between == LEGACY_GRAPH_EMPTY_NODE || between == GRAPH_EMPTY_NODE);
		bool must = betweens[between].must, as_it_must;
		int behind = 0;

		if (graph_lacks)
			continue;
		for (int time = 0; time < times; time++)
			behind += one_time(between);
		as_it_must = must ? behind == times : between != NOTHING || behind < times;
		wrong += !as_it_must;
		printf("%s - %s: of %d times B came behind A in %d\n",
		       !as_it_must ? "not ok" : must ? "ok" : "fact", betweens[between].name, times, behind);
	}
	wrong += destroyed_in_captures();
	printf("%d are not as they must be\n", wrong);
	return wrong > 0;
}
