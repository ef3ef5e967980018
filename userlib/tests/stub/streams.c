/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Streams.
 *
 * Each stream does its work in a thread of its own, one item after the other. An item
 * starts when the items of other streams are done that it comes behind (`after`). When
 * the threads run:
 * - without STUB_SEED only if somebody waits, and then only what that wait needs, so
 *   that a call made too early or too late is seen;
 * - with STUB_SEED some items at each call of CUDA, of streams chosen at random, and
 *   at a wait until what is waited for is done: the same each time for the same seed. With
 *   half of the seeds one stream is slow: it runs only where a wait finds no other that can;
 * - with STUB_FREE as fast as they can.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "stub.h"

struct item {
	struct item *next;
	struct work work;
	size_t count;
	struct point after[];
};

struct stream *streams[256];
size_t stream_count;
_Thread_local bool in_host_function;

static pthread_cond_t progress = PTHREAD_COND_INITIALIZER;
static bool seeded, running_free, looked;
static uint64_t state;
static struct stream *slow;

static void look_at_environment(void)
{
	const char *seed = getenv("STUB_SEED");

	if (looked)
		return;
	looked = true;
	running_free = !!getenv("STUB_FREE");
	seeded = seed != NULL;
	state = seed ? strtoull(seed, NULL, 0) : 0;
}

bool is_seeded(void)
{
	look_at_environment();
	return seeded;
}

/* From here on streams run as this number will have it. */
EXPORT void stub_seed(uint64_t seed)
{
	pthread_mutex_lock(&lock);
	look_at_environment();
	seeded = true;
	state = seed;
	slow = stream_count && random_number() % 2 ? streams[random_number() % stream_count] : NULL;
	pthread_mutex_unlock(&lock);
}

/* SplitMix64 */
uint64_t random_number(void)
{
	uint64_t z = state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

/* Threads */

bool is_done(struct point point)
{
	return !point.stream || point.stream->done >= point.at;
}

/* An item that the first of the stream comes behind and that is not done, or NULL. */
static struct point *obstacle(struct stream *stream)
{
	struct item *item = stream->first;

	for (size_t i = 0; i < item->count; i++)
		if (!is_done(item->after[i]))
			return &item->after[i];
	return NULL;
}

static bool may_run(struct stream *stream)
{
	return stream->first && !obstacle(stream);
}

/*
 * "The host function must not make any CUDA API calls. Attempting to use a CUDA API
 * may result in CUDA_ERROR_NOT_PERMITTED" (Driver API, cuLaunchHostFunc): see enter().
 */
void do_work(struct work *work)
{
	switch (work->what) {
	case HOST:
		pthread_mutex_unlock(&lock);
		in_host_function = true;
		work->host(work->data);
		in_host_function = false;
		pthread_mutex_lock(&lock);
		return;
	case DISCARD:
		discard(work->base, work->length, true);
		return;
	case PREFETCH:
		if (!fails("cuMemPrefetchAsync later"))
			prefetch(work->base, work->length);
		return;
	case KERNEL: {
		struct { uint32_t count; uint64_t values[16]; } *seen;

		note("kernel %s", work->name);
		if (!work->base)
			return;
		if (is_lazy(work->base, work->length))
			violation("a kernel uses lazily discarded memory");
		tools_kernel(work);
		if (!strcmp(work->name, "chase"))
			return;
		if (!strcmp(work->name, "get")) {
			seen = (void *)(uintptr_t)work->value;
			seen->values[seen->count++ % 16] = look(work->base, work->length);
		} else {
			fill(work->base, work->length, strcmp(work->name, "put") ?
			     UINT64_C(0x5a5a5a5a5a5a5a5a) : work->value);
			written(work->base, work->length);
		}
		return;
	}
	case MARK:
	case GRAPH:
		return;
	}
}

/*
 * The time by which a stream has done an item, on a clock of its own: only kernels take any,
 * 1 us and 1 ns for each KiB that they use; or the time at which it was, if that is real.
 */
static void tick(struct stream *stream, const struct work *work)
{
	if (stream->done >= stream->room) {
		stream->room = stream->room ? 2 * stream->room : 64;
		stream->times = realloc(stream->times, stream->room * sizeof(*stream->times));
		if (!stream->times)
			abort();
	}
	if (work->what == KERNEL || work->what == GRAPH)
		stream->clock += 1000 + work->length / 1024;
	if (is_real_time())
		stream->clock = real_time();
	stream->times[stream->done] = stream->clock;
}

/* With the lock held. A launch of a graph takes several of these. */
static void do_first(struct stream *stream)
{
	struct item *item = stream->first;

	if (item->work.what == GRAPH) {
		if (!graph_step(item->work.launch))
			return;
	} else {
		do_work(&item->work);
	}
	tick(stream, &item->work);
	stream->first = item->next;
	if (!stream->first)
		stream->last = NULL;
	stream->done++;
	free(item);
}

static void *thread(void *arg)
{
	struct stream *stream = arg;

	pthread_mutex_lock(&lock);
	while (!stream->gone) {
		if (!stream->granted && !(running_free && may_run(stream))) {
			pthread_cond_wait(&stream->wake, &lock);
			continue;
		}
		do_first(stream);
		stream->granted = false;
		pthread_cond_signal(&stream->idle);
		if (running_free) {
			pthread_cond_broadcast(&progress);
			for (size_t i = 0; i < stream_count; i++)
				pthread_cond_signal(&streams[i]->wake);
		}
	}
	pthread_mutex_unlock(&lock);
	return NULL;
}

static void step(struct stream *stream)
{
	stream->granted = true;
	pthread_cond_signal(&stream->wake);
	while (stream->granted)
		pthread_cond_wait(&stream->idle, &lock);
}

static struct stream *any_ready(void)
{
	struct stream *ready[COUNT(streams)];
	size_t count = 0;

	for (size_t i = 0; i < stream_count; i++)
		if (may_run(streams[i]) && !streams[i]->granted && streams[i] != slow)
			ready[count++] = streams[i];
	return count ? ready[random_number() % count] : NULL;
}

/* A stream that runs next if nothing runs that `point` does not need. */
static struct stream *needed(struct point *point)
{
	struct point *before = obstacle(point->stream);

	return before ? needed(before) : point->stream;
}

void wait_for(struct point point)
{
	while (!is_done(point)) {
		struct stream *next;

		if (running_free) {
			pthread_cond_wait(&progress, &lock);
			continue;
		}
		next = seeded ? any_ready() : needed(&point);
		if (!next && slow && may_run(slow) && !slow->granted)
			next = slow;
		if (!next) {
			fputs("stub: nothing can run, and somebody waits\n", stderr);
			abort();
		}
		step(next);
	}
}

void run_all(void)
{
	for (size_t i = 0; i < stream_count; i++)
		wait_for((struct point){ streams[i], streams[i]->queued });
}

/* The same of one context's streams, as far as these do not wait for others. */
void run_context(struct context *context)
{
	for (size_t i = 0; i < stream_count; i++)
		if (streams[i]->context == context)
			wait_for((struct point){ streams[i], streams[i]->queued });
}

void some_time_passes(void)
{
	struct stream *next;

	look_at_environment();
	if (!seeded || running_free)
		return;
	for (unsigned int n = random_number() % 8; n > 4; n--) {
		next = any_ready();
		if (next)
			step(next);
	}
}

/* Streams */

struct stream *create_stream(struct context *context, enum kind kind)
{
	struct stream *stream = calloc(1, sizeof(*stream));
	pthread_t unused;

	look_at_environment();
	if (stream_count == COUNT(streams))
		return NULL;
	stream->context = context;
	stream->kind = kind;
	pthread_cond_init(&stream->wake, NULL);
	pthread_cond_init(&stream->idle, NULL);
	if (pthread_create(&unused, NULL, thread, stream))
		abort();
	pthread_detach(unused);
	streams[stream_count++] = stream;
	return stream;
}

/*
 * "Each device has its own default stream" (Programming Guide, Stream and Event
 * Behavior); the legacy one is one "in the same CUcontext" (Driver API, Stream
 * synchronization behavior), and the per-thread one is "local to both the thread and
 * the CUcontext" (there too). NULL means the legacy one in the functions without _ptsz.
 */
CUresult find_stream(void *handle, struct stream **out)
{
	static _Thread_local struct stream *own[DEVICES];
	struct context *context = current();

	if ((uintptr_t)handle > 2) {
		for (size_t i = 0; i < stream_count; i++)
			if (streams[i] == handle) {
				*out = handle;
				return SUCCESS;
			}
		return INVALID_HANDLE;
	}
	if (!context)
		return INVALID_CONTEXT;
	if ((uintptr_t)handle == 2) {
		struct stream **mine = &own[context->device];

		if (!*mine)
			*mine = create_stream(context, PER_THREAD);
		*out = *mine;
		return SUCCESS;
	}
	if (!context->legacy)
		context->legacy = create_stream(context, LEGACY);
	*out = context->legacy;
	return SUCCESS;
}

struct point now(struct stream *stream)
{
	return (struct point){ stream, stream->queued };
}

/*
 * "When an action is taken in the legacy stream such as a kernel launch or
 * cudaStreamWaitEvent(), the legacy stream first waits on all blocking streams, the
 * action is queued in the legacy stream, and then all blocking streams wait on the
 * legacy stream." (Driver API, Stream synchronization behavior). "The per-thread
 * default stream is not a non-blocking stream and will synchronize with the legacy
 * default stream if both are used in a program." (there too). Nothing says that two
 * blocking streams wait for each other, so they do not. On a GPU (H200, 580.159.04, CUDA 13.0)
 * a program that waited for a blocking stream with only events behind the legacy stream's work did not
 * wait for that work (0 of 20), though such an event came behind it (20 of 20). Here neither
 * does, but in the legacy stream. Nor does the legacy stream wait here for events and waits that
 * are the last in a blocking stream: so it may be with "waits on all blocking streams" too.
 */
static size_t implicit(struct stream *stream, const struct work *work, struct point *after)
{
	struct context *context = stream->context;
	size_t count = 0;

	if (stream->kind == NON_BLOCKING)
		return 0;
	if (stream->kind != LEGACY) {
		if (context->legacy && work->what != MARK)
			after[count++] = now(context->legacy);
		return count;
	}
	for (size_t i = 0; i < stream_count; i++) {
		struct stream *other = streams[i];

		if (other->context == context && other != stream && other->kind != NON_BLOCKING)
			after[count++] = (struct point){ other, other->worked };
	}
	return count;
}

CUresult enqueue_after(struct stream *stream, struct work work, struct point after)
{
	struct point behind[COUNT(streams) + 1];
	struct item *item;
	size_t count, kept = 0;
	CUresult code = SUCCESS;

	if (stream->kind == LEGACY)
		code = may_use_legacy(stream->context, true);
	if (code)
		return code;
	if (stream->capture)
		return capture_work(stream, work);
	count = implicit(stream, &work, behind);
	behind[count++] = after;
	for (size_t i = 0; i < count; i++)
		if (!is_done(behind[i]) && behind[i].stream != stream)
			behind[kept++] = behind[i];
	item = calloc(1, sizeof(*item) + kept * sizeof(*behind));
	item->work = work;
	item->count = kept;
	memcpy(item->after, behind, kept * sizeof(*behind));
	*(stream->last ? &stream->last->next : &stream->first) = item;
	stream->last = item;
	stream->queued++;
	if (work.what != MARK)
		stream->worked = stream->queued;
	if (running_free)
		pthread_cond_signal(&stream->wake);
	return SUCCESS;
}

CUresult enqueue(struct stream *stream, struct work work)
{
	return enqueue_after(stream, work, (struct point){ NULL, 0 });
}

/*
 * "CU_STREAM_NON_BLOCKING: ... work running in the created stream may run concurrently
 * with work in stream 0 (the NULL stream), and ... the created stream should perform
 * no implicit synchronization with stream 0" (Driver API, cuStreamCreate).
 */
EXPORT CUresult cuStreamCreate(void **out, unsigned int flags)
{
	CUresult code = enter(true);

	if (!code) {
		*out = create_stream(current(), flags & 1 ? NON_BLOCKING : BLOCKING);
		code = *out ? SUCCESS : OUT_OF_MEMORY;
	}
	pthread_mutex_unlock(&lock);
	return code;
}

EXPORT CUresult cuStreamCreateWithPriority(void **out, unsigned int flags, int priority)
{
	return cuStreamCreate(out, flags);
}

/* "Returned flags": those of cuStreamCreate() (Driver API, cuStreamGetFlags). */
EXPORT CUresult cuStreamGetFlags(void *handle, unsigned int *flags)
{
	struct stream *stream;
	CUresult code = enter(false);

	if (!code)
		code = find_stream(handle, &stream);
	if (!code)
		*flags = stream->kind == NON_BLOCKING;
	pthread_mutex_unlock(&lock);
	return code;
}

struct stream *create_green_stream(struct context *green)
{
	struct stream *stream = create_stream(green->primary, NON_BLOCKING);

	stream->green = green;
	return stream;
}

/*
 * "If the stream is associated with a green context, the API returns the green context in pGreenCtx
 * and the primary context of the associated device in pCtx." (Driver API, cuStreamGetCtx_v2, CUDA 12.5)
 */
EXPORT CUresult cuStreamGetCtx_v2(void *handle, void **context, void **green)
{
	struct stream *stream;
	CUresult code = enter(false);

	if (!code)
		code = find_stream(handle, &stream);
	if (!code) {
		*context = stream->context;
		*green = stream->green;
	}
	pthread_mutex_unlock(&lock);
	return code;
}

/*
 * "If the stream was created via the API cuGreenCtxStreamCreate, the returned context is equivalent to
 * the one returned by cuCtxFromGreenCtx() on the green context" (Driver API, cuStreamGetCtx)
 */
EXPORT CUresult cuStreamGetCtx(void *handle, void **out)
{
	void *context, *green;
	CUresult code = cuStreamGetCtx_v2(handle, &context, &green);

	if (!code)
		*out = green ? green : context;
	return code;
}

/*
 * "Synchronizing or querying the execution status of a stream which is being captured
 * or a captured event is invalid, because they do not represent items scheduled for
 * execution." (Programming Guide, Prohibited and Unhandled Operations)
 * Whether a wait for another stream is one of the "potentially unsafe API calls" that
 * safe_in_capture() is about, no list says; cudaEventQuery() is, as PyTorch found ("the
 * subsequent polling will query an event and crash the capture", pytorch/pytorch#104487;
 * since #148594 with another mode), and HIP, which does as CUDA does, counts
 * hipEventSynchronize() too (ROCm/rocm-systems#3176). So here a wait is one.
 */
EXPORT CUresult cuStreamSynchronize(void *handle)
{
	struct stream *stream;
	CUresult code = enter(true);

	if (!code)
		code = find_stream(handle, &stream);
	if (!code && stream->kind == LEGACY)
		code = may_use_legacy(stream->context, true);
	if (!code && stream->capture) {
		invalidate(stream->capture);
		code = CAPTURE_UNSUPPORTED;
	}
	if (!code)
		code = safe_in_capture();
	if (!code) {
		/*
		 * "Waits until the device has completed all operations in the stream". For the
		 * legacy stream these come behind those of blocking streams; but that the wait
		 * is an action of which that holds, no sentence says.
		 */
		wait_for(now(stream));
	}
	pthread_mutex_unlock(&lock);
	return code;
}

/*
 * "It is also invalid to query the execution status of or synchronize a broader handle
 * which encompasses active stream capture, such as a device or context handle when any
 * associated stream is in capture mode." (Programming Guide, Prohibited and Unhandled
 * Operations). That is said of every capture, so no mode allows it. In the others'
 * contexts it is a wait like cuStreamSynchronize().
 */
EXPORT CUresult cuCtxSynchronize(void)
{
	CUresult code = enter(true);
	struct context *context = current();

	for (size_t i = 0; i < stream_count && !code; i++)
		if (streams[i]->context == context && streams[i]->capture) {
			invalidate(streams[i]->capture);
			code = CAPTURE_UNSUPPORTED;
		}
	if (!code)
		code = safe_in_capture();
	for (size_t i = 0; i < stream_count && !code; i++)
		if (streams[i]->context == context)
			wait_for(now(streams[i]));
	pthread_mutex_unlock(&lock);
	return code;
}

/*
 * "A kernel launch will fail if it is issued to a stream that is not associated to the current
 * device" (Programming Guide, Stream and Event Behavior), where copies and events are allowed
 * more. Of host functions, prefetches and discards no sentence says which they are like, so
 * here these fail too.
 */
CUresult find_current_stream(void *handle, struct stream **out)
{
	CUresult code = find_stream(handle, out);

	return !code && (*out)->context != current() ? INVALID_HANDLE : code;
}

CUresult cuStreamBeginCapture_v2(void *handle, int mode);
static unsigned int capture_before, host_functions;

/* Host functions that were put into streams so far. */
EXPORT unsigned int stub_host_functions(void)
{
	return host_functions;
}

/*
 * Just before the `nth` call of cuLaunchHostFunc() another thread begins to capture its
 * stream, in the relaxed mode, so that it may be ended here.
 */
EXPORT void stub_capture_before(unsigned int nth)
{
	capture_before = nth;
}

/*
 * "The function will be called after currently enqueued work and will block work added
 * after it." (Driver API, cuLaunchHostFunc)
 */
EXPORT CUresult cuLaunchHostFunc(void *handle, void (*f)(void *), void *data)
{
	struct stream *stream;
	CUresult code;

	if (capture_before && !--capture_before)
		cuStreamBeginCapture_v2(handle, 2);
	code = enter(true);
	if (!code)
		code = find_current_stream(handle, &stream);
	host_functions++;
	if (!code)
		code = enqueue(stream, (struct work){ HOST, .host = f, .data = data });
	pthread_mutex_unlock(&lock);
	return code;
}
