/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Discards, prefetches, and both, in the order of streams, each of one range and of several, on
 * the stub library. Arguments: what to try; exits with 0 if all is as uvmrust.h says.
 */
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#define UVMRUST_NO_OLD_NAMES
#include "cuda.h"
#include "uvmrust.h"

unsigned int stub_host_functions(void);

#define LENGTH ((uint64_t)2 << 20)

enum task { EAGER, LAZY, PREFETCH, BOTH, TASKS };

static int discards(enum task task)
{
	return task != PREFETCH;
}

static struct uvmrust_batch batch_for(enum task task, const uint8_t *gpu,
				      const struct uvmrust_range *ranges, size_t count)
{
	struct uvmrust_batch batch = UVMRUST_BATCH(ranges, count);

	if (task == LAZY)
		batch.flags = UVMRUST_LAZY;
	if (task == PREFETCH || task == BOTH)
		batch.gpu_uuid = gpu;
	return batch;
}

static int batched(enum task task, const struct uvmrust_batch *batch, void *stream)
{
	switch (task) {
	case PREFETCH:
		return uvmrust_prefetch_batch_async(batch, stream);
	case BOTH:
		return uvmrust_discard_and_prefetch_batch_async(batch, stream);
	default:
		return uvmrust_discard_batch_async(batch, stream);
	}
}

static int single(enum task task, const uint8_t *gpu, void *p, size_t length, void *stream)
{
	switch (task) {
	case PREFETCH:
		return uvmrust_prefetch_async(p, length, gpu, stream);
	case BOTH:
		return uvmrust_discard_and_prefetch_async(p, length, gpu, stream);
	default:
		return uvmrust_discard_async(p, length, task == LAZY ? UVMRUST_LAZY : 0, stream);
	}
}

#define MOST 512

/*
 * A task on the first `count` pieces of LENGTH bytes, which together are all of them. Of a lazy discard, which leaves
 * parts of a block as they are, some are the whole block instead.
 */
static int in_pieces(enum task task, const uint8_t *gpu, void *p, size_t count, void *stream)
{
	struct uvmrust_range ranges[MOST];
	struct uvmrust_batch batch = batch_for(task, gpu, ranges, count);
	int code;

	if (!count)
		return single(task, gpu, p, LENGTH, stream);
	for (size_t i = 0; i < count; i++)
		ranges[i] = (struct uvmrust_range){ (uintptr_t)p + i * (LENGTH / count & ~4095ull),
						    LENGTH / count & ~4095ull };
	ranges[count - 1].length = (uintptr_t)p + LENGTH - ranges[count - 1].base;
	for (size_t i = 0; i < count; i++)
		if (task == LAZY && (i < 10 || i == count - 1))
			ranges[i] = (struct uvmrust_range){ (uintptr_t)p, LENGTH };
	code = batched(task, &batch, stream);
	/* It was read before the call returned. */
	memset(ranges, 0xff, sizeof(ranges));
	memset(&batch, 0xff, sizeof(batch));
	return code;
}

static void first_gpu(uint8_t gpu[16])
{
	MUST(uvmrust_device_uuid(0, gpu));
}

/* Makes lazily discarded memory usable, where a task has left it so. */
static void usable(enum task task, const uint8_t *gpu, void *p, void *stream)
{
	if (task == LAZY)
		EXPECT(uvmrust_prefetch_async(p, LENGTH, gpu, stream) == 0);
}

/* Each task takes its turn, in each kind of stream, and what is written behind it is kept. */
static void order(void)
{
	static const size_t pieces[] = { 0, 1, 3, 100, MOST };
	void *streams[] = { NULL, (void *)1, (void *)2, NULL, NULL }, *p = managed(LENGTH);
	uint64_t value = 1;
	uint8_t gpu[16];

	first_gpu(gpu);
	MUST(cuStreamCreate(&streams[3], 0));
	MUST(cuStreamCreate(&streams[4], NON_BLOCKING));
	for (size_t s = 0; s < sizeof(streams) / sizeof(*streams); s++)
		for (size_t n = 0; n < sizeof(pieces) / sizeof(*pieces); n++)
			for (enum task task = 0; task < TASKS; task++, value++) {
				put(streams[s], p, LENGTH, value);
				MUST(cuStreamSynchronize(streams[s]));
				EXPECT(in_pieces(task, task % 2 ? gpu : NULL, p, pieces[n],
						 streams[s]) == 0);
				/* Not before the stream comes there. */
				EXPECT(all_words(p, LENGTH, value));
				usable(task, gpu, p, streams[s]);
				MUST(cuStreamSynchronize(streams[s]));
				/* The last ranges too. */
				EXPECT(all_words((char *)p + LENGTH / 2, LENGTH / 2, value) ==
				       !discards(task));
				put(streams[s], p, LENGTH, ++value);
				MUST(cuStreamSynchronize(streams[s]));
				EXPECT(all_words(p, LENGTH, value));
				MUST(cuCtxSynchronize());
			}
	EXPECT(uvmrust_stream_error() == 0);
}

/*
 * However many ranges a call has, it puts one host function into the stream, or none. A prefetch is CUDA's until
 * something is discarded lazily, and where CUDA discards, whose kind is never lazy.
 */
static void one_function(void)
{
	static const enum task tasks[] = { PREFETCH, EAGER, LAZY, PREFETCH, BOTH };
	int backend = uvmrust_backend(), cuda13 = getenv("CUDA13") != NULL;
	void *stream, *p = managed(LENGTH);
	uint8_t gpu[16];

	first_gpu(gpu);
	MUST(cuStreamCreate(&stream, NON_BLOCKING));
	for (size_t i = 0; i < sizeof(tasks) / sizeof(*tasks); i++) {
		unsigned int before = stub_host_functions(), by_cuda;

		by_cuda = i == 0 || backend == UVMRUST_BACKEND_CUDA ||
			  (backend == UVMRUST_BACKEND_NATIVE && cuda13 && tasks[i] == BOTH);
		EXPECT(in_pieces(tasks[i], gpu, p, MOST, stream) == 0);
		EXPECT(stub_host_functions() - before == !by_cuda);
		usable(tasks[i], gpu, p, stream);
	}
	MUST(cuStreamSynchronize(stream));
	EXPECT(uvmrust_stream_error() == 0);
}

/* What is wrong with a call is told by its documented error, and nothing has changed. */
static void refused(int error, int code, unsigned int functions, void *p, void *stream, int line)
{
	expect(code == error, uvmrust_strerror(code), line);
	expect(stub_host_functions() == functions, "nothing is enqueued", line);
	MUST(cuStreamSynchronize(stream));
	expect(all_words(p, 2 * LENGTH, 9), "nothing has changed", line);
}
#define REFUSED(error, call) refused(UVMRUST_##error, call, functions, p, stream, __LINE__)

static void bad_batches(enum task task, char *p, const uint8_t *gpu, void *stream)
{
	struct uvmrust_range ranges[] = { { (uintptr_t)p, LENGTH }, { (uintptr_t)p, UINT64_MAX } };
	const struct uvmrust_batch good = batch_for(task, gpu, ranges, 1);
	unsigned int functions = stub_host_functions();
	struct uvmrust_batch bad;

#define BAD(error, change) do { bad = good; change; REFUSED(error, batched(task, &bad, stream)); } while (0)
	REFUSED(EINVALID, batched(task, NULL, stream));
	BAD(EINVALID, bad.size = 0);
	BAD(EINVALID, bad.size--);
	BAD(EINVALID, bad.size = UINT32_MAX);
	BAD(EINVALID, bad.range_size = 8);
	BAD(EINVALID, bad.range_size = 17);
	BAD(EINVALID, bad.reserved = 1);
	BAD(EINVALID, bad.flags = 2);
	BAD(EINVALID, bad.flags |= 0x80000000u);
	BAD(EINVALID, bad.ranges = NULL);
	BAD(EINVALID, bad.count = SIZE_MAX);
	/* The first range is good, and is not worked on either. */
	BAD(EINVALID, bad.count = 2);
	if (task == EAGER || task == LAZY)
		BAD(EINVALID, bad.gpu_uuid = gpu);
	else
		BAD(EINVALID, bad.flags = UVMRUST_LAZY);
	EXPECT(batched(task, &good, (void *)0x123450) == UVMRUST_EINVALID);
	/* Of nothing there is nothing to do. */
	bad = good;
	bad.count = 0;
	bad.ranges = NULL;
	EXPECT(batched(task, &bad, stream) == 0);
	ranges[0] = (struct uvmrust_range){ (uintptr_t)p + 1, 0 };
	EXPECT(batched(task, &good, stream) == 0);
	EXPECT(stub_host_functions() == functions);
	MUST(cuStreamSynchronize(stream));
	EXPECT(all_words(p, 2 * LENGTH, 9));
}

static void bad(void)
{
	static const uint8_t unknown[16] = { 1, 2, 3 };
	char *p = managed(2 * LENGTH);
	unsigned int functions;
	void *stream;
	uint8_t gpu[16];

	first_gpu(gpu);
	MUST(cuStreamCreate(&stream, NON_BLOCKING));
	put(stream, p, 2 * LENGTH, 9);
	MUST(cuStreamSynchronize(stream));
	functions = stub_host_functions();
	for (enum task task = 0; task < TASKS; task++) {
		bad_batches(task, p, gpu, stream);
		REFUSED(EINVALID, single(task, gpu, p, SIZE_MAX, stream));
		REFUSED(EINVALID, single(task, gpu, p, LENGTH, (void *)0x123450));
		if (task == PREFETCH || task == BOTH) {
			REFUSED(ENODEVICE, single(task, unknown, p, LENGTH, stream));
			REFUSED(ENODEVICE, in_pieces(task, unknown, p, 10, stream));
		}
	}
	REFUSED(EINVALID, uvmrust_discard_async(p, LENGTH, 2, stream));
	/* The calls that act at once. */
	REFUSED(EINVALID, uvmrust_discard(p, LENGTH, 2));
	REFUSED(EINVALID, uvmrust_discard(p, SIZE_MAX, 0));
	REFUSED(EINVALID, uvmrust_prefetch(p, SIZE_MAX, gpu));
	REFUSED(ENODEVICE, uvmrust_prefetch(p, LENGTH, unknown));
	REFUSED(EINVALID, uvmrust_discard_and_prefetch(p, SIZE_MAX, gpu));
	REFUSED(ENODEVICE, uvmrust_discard_and_prefetch(p, LENGTH, unknown));
	EXPECT(uvmrust_stream_error() == 0);
}

/* The same of those that act at once, which need no stream. */
static void bad_at_once(void)
{
	char *p = managed(2 * LENGTH);
	struct uvmrust_range ranges[] = { { (uintptr_t)p, LENGTH }, { (uintptr_t)p, UINT64_MAX } };
	struct uvmrust_batch batch = UVMRUST_BATCH(ranges, 2);
	struct uvmrust_outcome outcome = UVMRUST_OUTCOME;
	unsigned int functions = 0;
	void *stream = NULL;

	put(stream, p, 2 * LENGTH, 9);
	MUST(cuStreamSynchronize(stream));
	REFUSED(EINVALID, uvmrust_discard_batch(&batch, &outcome));
	EXPECT(outcome.done == 0 && outcome.counted == 0);
	REFUSED(EINVALID, uvmrust_prefetch_batch(&batch));
	REFUSED(EINVALID, uvmrust_discard_and_prefetch_batch(&batch));
	outcome.size = 4;
	batch.count = 1;
	REFUSED(EINVALID, uvmrust_discard_batch(&batch, &outcome));
	outcome.size = sizeof(outcome);
	EXPECT(uvmrust_discard_batch(&batch, &outcome) == 0 && outcome.done == 1);
	EXPECT(!outcome.counted == (uvmrust_backend() != UVMRUST_BACKEND_UVMRUST));
	EXPECT(outcome.size == sizeof(outcome));
	EXPECT(uvmrust_prefetch_batch(&batch) == 0);
	EXPECT(uvmrust_discard_and_prefetch_batch(&batch) == 0);
	EXPECT(uvmrust_discard_batch(&batch, NULL) == 0);
	MUST(cuCtxSynchronize());
	EXPECT(!all_words(p, LENGTH, 9) && all_words(p + LENGTH, LENGTH, 9));
}

/* Memory that is not managed: told now by CUDA's calls, or when the stream comes there. */
static void not_managed(void)
{
	void *stream;
	uint8_t gpu[16];

	first_gpu(gpu);
	MUST(cuStreamCreate(&stream, NON_BLOCKING));
	for (enum task task = 0; task < TASKS; task++) {
		int now = single(task, gpu, (void *)LENGTH, LENGTH, stream), later;

		MUST(cuStreamSynchronize(stream));
		later = uvmrust_stream_error();
		EXPECT(now == UVMRUST_ENOTMANAGED || (!now && later == UVMRUST_ENOTMANAGED));
	}
}

static void *end_capture(void *stream)
{
	void *graph, *executable;

	MUST(cuStreamEndCapture(stream, &graph));
	MUST(cuGraphInstantiateWithFlags(&executable, graph, 0));
	MUST(cuGraphDestroy(graph));
	return executable;
}

/* A task that is captured is done at each launch. */
static void replay(void)
{
	static const size_t pieces[] = { 0, 3, 100 };
	void *stream, *executable, *p = managed(LENGTH);
	uint8_t gpu[16];

	first_gpu(gpu);
	MUST(cuStreamCreate(&stream, 0));
	for (size_t n = 0; n < sizeof(pieces) / sizeof(*pieces); n++)
		for (enum task task = 0; task < TASKS; task++) {
			unsigned int before = stub_host_functions();

			MUST(cuStreamBeginCapture_v2(stream, 0));
			if (task == PREFETCH)
				EXPECT(in_pieces(LAZY, gpu, p, 0, stream) == 0);
			EXPECT(in_pieces(task, gpu, p, pieces[n], stream) == 0);
			EXPECT(stub_host_functions() - before == 1 + (task == PREFETCH));
			if (task == LAZY)
				EXPECT(in_pieces(PREFETCH, gpu, p, 0, stream) == 0);
			executable = end_capture(stream);
			for (uint64_t i = 1; i <= 3; i++) {
				put(stream, p, LENGTH, i);
				MUST(cuGraphLaunch(executable, stream));
				/* What is lazily discarded must not be written: the stub looks. */
				put(stream, (char *)p + LENGTH / 2, LENGTH / 2, 10 + i);
				MUST(cuStreamSynchronize(stream));
				EXPECT(!all_words(p, LENGTH / 2, i));
				EXPECT(all_words((char *)p + LENGTH / 2, LENGTH / 2, 10 + i));
			}
			MUST(cuGraphLaunch(executable, stream));
			MUST(cuGraphExecDestroy(executable));
			MUST(cuStreamSynchronize(stream));
		}
	EXPECT(uvmrust_stream_error() == 0);
}

/*
 * What cannot become a node is refused, and the capture goes on. `which`: d, discards; p,
 * prefetches.
 */
static void no_nodes(const char *which)
{
	int of[TASKS] = { [EAGER] = !!strchr(which, 'd'), [LAZY] = !!strchr(which, 'd'),
			  [PREFETCH] = !!strchr(which, 'p') };
	void *stream, *executable, *p = managed(LENGTH);
	uint8_t gpu[16];

	of[BOTH] = of[EAGER] || of[PREFETCH];
	first_gpu(gpu);
	MUST(cuStreamCreate(&stream, 0));
	for (enum task task = 0; task < TASKS; task++) {
		put(stream, p, LENGTH, 5);
		MUST(cuStreamSynchronize(stream));
		MUST(cuStreamBeginCapture_v2(stream, 0));
		if (of[task]) {
			EXPECT(in_pieces(task, gpu, p, 0, stream) == UVMRUST_ECAPTURE);
			EXPECT(in_pieces(task, gpu, p, 3, stream) == UVMRUST_ECAPTURE);
		}
		/* The legacy stream has an implicit dependency on the captured one. */
		EXPECT(in_pieces(task, gpu, p, 0, NULL) == UVMRUST_ECAPTURE);
		EXPECT(in_pieces(task, gpu, p, 3, (void *)1) == UVMRUST_ECAPTURE);
		executable = end_capture(stream);
		MUST(cuGraphLaunch(executable, stream));
		MUST(cuStreamSynchronize(stream));
		MUST(cuGraphExecDestroy(executable));
		EXPECT(all_words(p, LENGTH, 5));
	}
	EXPECT(uvmrust_stream_error() == 0);
}

/* Two threads, each with a stream and memory of its own. */
static void *worker(void *arg)
{
	uint64_t mine = *(uint64_t *)arg, value = mine << 32;
	struct seen seen;
	uint8_t gpu[16];
	void *stream, *p;

	use_device(0);
	first_gpu(gpu);
	MUST(cuStreamCreate(&stream, NON_BLOCKING));
	p = managed(LENGTH);
	for (int i = 0; i < 60; i++)
		for (enum task task = 0; task < TASKS; task++) {
			put(stream, p, LENGTH, ++value);
			EXPECT(in_pieces(task, gpu, p, i % 3 ? 0 : 2 + i % 20, stream) == 0);
			usable(task, gpu, p, stream);
			put(stream, p, LENGTH, ++value);
			memset(&seen, 0, sizeof(seen));
			get(stream, p, LENGTH, &seen);
			MUST(cuStreamSynchronize(stream));
			EXPECT(seen.count == 1 && seen.values[0] == value);
		}
	return NULL;
}

static void threads(void)
{
	uint64_t numbers[] = { 1, 2 };
	pthread_t thread;

	if (pthread_create(&thread, NULL, worker, &numbers[0]))
		exit(2);
	worker(&numbers[1]);
	pthread_join(thread, NULL);
	EXPECT(uvmrust_stream_error() == 0);
}

/* A child has its parent's descriptor, and must not use it. */
static void forked(void)
{
	void *p = managed(LENGTH);
	int backend = uvmrust_backend(), status;
	uint8_t gpu[16];
	pid_t child;

	first_gpu(gpu);
	EXPECT(backend != UVMRUST_BACKEND_NONE);
	put(NULL, p, LENGTH, 7);
	MUST(cuStreamSynchronize(NULL));
	child = fork();
	if (!child) {
		for (enum task task = 0; task < TASKS; task++) {
			EXPECT(in_pieces(task, gpu, p, 0, NULL) == UVMRUST_ENOTSUPPORTED);
			EXPECT(in_pieces(task, gpu, p, 3, NULL) == UVMRUST_ENOTSUPPORTED);
		}
		EXPECT(uvmrust_discard_and_prefetch(p, LENGTH, NULL) == UVMRUST_ENOTSUPPORTED);
		EXPECT(all_words(p, LENGTH, 7));
		fflush(stdout);
		_exit(failed);
	}
	EXPECT(waitpid(child, &status, 0) == child && status == 0);
	for (enum task task = 0; task < TASKS; task++)
		EXPECT(in_pieces(task, gpu, p, 3, NULL) == 0);
	MUST(cuStreamSynchronize(NULL));
	EXPECT(uvmrust_backend() == backend && uvmrust_stream_error() == 0);
}

int cuCtxGetCurrent(void **);

/* A stream of a device that is not current, or where none is; and the current one is left so. */
static void not_current(void)
{
	void *stream, *executable, *p = managed(LENGTH), *contexts[2], *now;
	uint64_t value = 1;
	uint8_t gpus[2][16];

	for (int i = 0; i < 2; i++) {
		MUST(uvmrust_device_uuid(i, gpus[i]));
		MUST(cuDevicePrimaryCtxRetain(&contexts[i], i));
	}
	MUST(cuCtxSetCurrent(contexts[1]));
	MUST(cuStreamCreate(&stream, 0));
	for (int current = 0; current < 2; current++)
		for (enum task task = 0; task < TASKS; task++)
			for (int captured = 0; captured < 2; captured++) {
				void *there = current ? NULL : contexts[0];

				if (captured && uvmrust_backend() == UVMRUST_BACKEND_CUDA)
					continue;
				MUST(cuCtxSetCurrent(contexts[1]));
				put(stream, p, LENGTH, ++value);
				if (captured)
					MUST(cuStreamBeginCapture_v2(stream, 2));
				MUST(cuCtxSetCurrent(there));
				EXPECT(in_pieces(task, gpus[task % 2], p, captured ? 3 : 0,
						 stream) == 0);
				usable(task, gpus[1], p, stream);
				MUST(cuCtxGetCurrent(&now));
				EXPECT(now == there);
				MUST(cuCtxSetCurrent(contexts[1]));
				if (captured) {
					executable = end_capture(stream);
					MUST(cuGraphLaunch(executable, stream));
					MUST(cuGraphExecDestroy(executable));
				}
				MUST(cuStreamSynchronize(stream));
				EXPECT(all_words(p, LENGTH, value) == !discards(task));
			}
	EXPECT(uvmrust_stream_error() == 0);
}

/* Parts of GPUs, which UVM does not know by the UUIDs that CUDA tells. */
static void mig(void)
{
	void *p = managed(LENGTH);
	struct uvmrust_range whole = { (uintptr_t)p, LENGTH };
	struct uvmrust_batch batch = batch_for(BOTH, NULL, &whole, 1);
	uint8_t gpu[16];

	first_gpu(gpu);
	EXPECT(gpu[0] == 0x61);
	batch.gpu_uuid = gpu;
	EXPECT(uvmrust_discard(p, LENGTH, UVMRUST_LAZY) == 0);
	EXPECT(uvmrust_prefetch(p, LENGTH, gpu) == 0);
	put(NULL, p, LENGTH, 1);
	EXPECT(uvmrust_discard_and_prefetch_batch_async(&batch, NULL) == 0);
	put(NULL, p, LENGTH, 2);
	MUST(cuCtxSynchronize());
	EXPECT(uvmrust_discard_and_prefetch_batch(&batch) == 0);
	put(NULL, p, LENGTH, 3);
	MUST(cuCtxSynchronize());
	EXPECT(all_words(p, LENGTH, 3) && uvmrust_stream_error() == 0);
	no_nodes("p");
}

/*
 * CUDA 13's batches are for systems of which each device has concurrent managed access. The prefetch comes after a
 * lazy discard, and so is none of CUDA's either.
 */
static void old_gpu(void)
{
	void *stream, *p = managed(LENGTH);
	uint8_t gpu[16];

	first_gpu(gpu);
	MUST(cuStreamCreate(&stream, NON_BLOCKING));
	put(stream, p, LENGTH, 4);
	MUST(cuStreamSynchronize(stream));
	if (uvmrust_backend() == UVMRUST_BACKEND_CUDA) {
		for (enum task task = 0; task < TASKS; task++) {
			int must = task == PREFETCH ? 0 : UVMRUST_ENOTSUPPORTED;

			EXPECT(in_pieces(task, gpu, p, 0, stream) == must);
			EXPECT(in_pieces(task, gpu, p, 70, stream) == must);
		}
		MUST(cuStreamSynchronize(stream));
		EXPECT(all_words(p, LENGTH, 4));
		return;
	}
	for (enum task task = 0; task < TASKS; task++) {
		unsigned int before = stub_host_functions();

		put(stream, p, LENGTH, 10 + task);
		EXPECT(in_pieces(task, gpu, p, 70, stream) == 0);
		EXPECT(stub_host_functions() - before == 1);
		usable(task, gpu, p, stream);
		MUST(cuStreamSynchronize(stream));
		EXPECT(all_words(p, LENGTH, 10 + task) == !discards(task));
	}
	EXPECT(uvmrust_stream_error() == 0);
}

/* Ranges that overlap, and that cover pages in part, whose contents are kept. */
static void ragged(void)
{
	char *p = managed(LENGTH);
	struct uvmrust_range ranges[] = {
		{ (uintptr_t)p + 8, 3 * 4096 }, { (uintptr_t)p + 4096, 8192 },
		{ (uintptr_t)p + 0x20000, 0x20000 }, { (uintptr_t)p + 0x10000, 0x20000 },
	};
	uint64_t value = 1;
	void *stream, *executable;
	uint8_t gpu[16];

	first_gpu(gpu);
	MUST(cuStreamCreate(&stream, NON_BLOCKING));
	for (enum task task = 0; task < TASKS; task++)
		for (int captured = 0; captured < 2; captured++) {
			struct uvmrust_batch batch = batch_for(task, gpu, ranges, 4);
			int kept;

			if (captured && uvmrust_backend() == UVMRUST_BACKEND_CUDA)
				continue;
			put(stream, p, LENGTH, ++value);
			if (captured)
				MUST(cuStreamBeginCapture_v2(stream, 0));
			EXPECT(batched(task, &batch, stream) == 0);
			if (captured) {
				executable = end_capture(stream);
				MUST(cuGraphLaunch(executable, stream));
				MUST(cuGraphExecDestroy(executable));
			}
			usable(task, gpu, p, stream);
			MUST(cuStreamSynchronize(stream));
			/* The whole pages are 1 and 2, of the first two ranges, and 16 to 63. */
			EXPECT(all_words(p, 4096, value));
			EXPECT(all_words(p + 3 * 4096, 0x10000 - 3 * 4096, value));
			EXPECT(all_words(p + 0x40000, LENGTH - 0x40000, value));
			/* No lazy discard takes a part of a block; CUDA's own is none. */
			kept = task == LAZY && uvmrust_backend() != UVMRUST_BACKEND_CUDA;
			EXPECT(all_words(p + 0x10000, 0x30000, value) == (kept || !discards(task)));
			put(stream, p, LENGTH, ++value);
			MUST(cuStreamSynchronize(stream));
			EXPECT(all_words(p, LENGTH, value));
		}
	EXPECT(uvmrust_stream_error() == 0);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} parts[] = {
		{ "order", order }, { "one-function", one_function }, { "bad", bad },
		{ "bad-at-once", bad_at_once }, { "not-managed", not_managed },
		{ "replay", replay }, { "threads", threads }, { "forked", forked },
		{ "not-current", not_current }, { "mig", mig }, { "old-gpu", old_gpu },
		{ "ragged", ragged },
	};
	const char *what = argc > 1 ? argv[1] : "";

	use_device(0);
	EXPECT(uvmrust_version() == UVMRUST_VERSION);
	if (!strncmp(what, "no-nodes-", 9)) {
		no_nodes(what + 9);
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
