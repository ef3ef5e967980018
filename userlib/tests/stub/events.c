/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Events, and the time that streams take. */
#include <stdio.h>
#include <stdlib.h>
#include "stub.h"

struct event {
	struct context *context;
	/* What its context's `ends` was when it was made. */
	unsigned int ends;
	unsigned int flags;
	/* What was captured in it: a point of a stream, or nodes of a capture. */
	struct point point;
	struct capture *capture;
	struct nodes nodes;
};

static unsigned int count;

/*
 * "Destroys and cleans up all resources associated with the context. It is the caller's responsibility to
 * ensure that the context or its resources are not accessed or passed in subsequent API calls and doing so
 * will result in undefined behavior. These resources include CUDA types CUmodule, CUfunction, CUstream,
 * CUevent" (Driver API, cuCtxDestroy)
 */
static void must_be_there(const struct event *event)
{
	if (event->ends == event->context->ends)
		return;
	fprintf(stderr, "an event is used whose context is gone\n");
	abort();
}

/* Events that are not destroyed. */
EXPORT unsigned int stub_events(void)
{
	return __atomic_load_n(&count, __ATOMIC_SEQ_CST);
}

EXPORT CUresult cuEventCreate(void **out, unsigned int flags)
{
	CUresult code = enter(true);

	if (!code) {
		struct event *event = calloc(1, sizeof(*event));

		event->context = current();
		event->ends = event->context->ends;
		event->flags = flags;
		__atomic_fetch_add(&count, 1, __ATOMIC_SEQ_CST);
		*out = event;
	}
	pthread_mutex_unlock(&lock);
	return code;
}

/*
 * "An event may be destroyed before it is complete ... the call does not block on
 * completion of the event" (Driver API, cuEventDestroy). What waits for it has a copy.
 */
EXPORT CUresult cuEventDestroy_v2(void *event)
{
	called();
	must_be_there(event);
	__atomic_fetch_sub(&count, 1, __ATOMIC_SEQ_CST);
	free(event);
	return SUCCESS;
}

/*
 * "Captures in hEvent the contents of hStream at the time of this call. hEvent and
 * hStream must be from the same context otherwise CUDA_ERROR_INVALID_HANDLE is
 * returned." (Driver API, cuEventRecord). In the legacy stream it is an action like
 * others ("uses standard default stream semantics", there).
 */
EXPORT CUresult cuEventRecord(struct event *event, void *handle)
{
	struct stream *stream;
	CUresult code = enter(true);

	must_be_there(event);
	if (!code)
		code = find_stream(handle, &stream);
	if (!code && event->context != stream->context)
		code = INVALID_HANDLE;
	if (!code && stream->capture) {
		event->capture = stream->capture;
		event->nodes = stream->frontier;
		event->point.stream = NULL;
	} else if (!code) {
		code = enqueue(stream, (struct work){ MARK });
		event->capture = NULL;
		event->point = now(stream);
	}
	pthread_mutex_unlock(&lock);
	return code;
}

/*
 * "Returns CUDA_SUCCESS if all captured work has been completed, or CUDA_ERROR_NOT_READY if any
 * captured work is incomplete." (Driver API, cuEventQuery). That it is unsafe during a capture
 * is said at cuStreamSynchronize().
 */
EXPORT CUresult cuEventQuery(struct event *event)
{
	CUresult code = enter(false);

	if (!code)
		code = event->capture ? CAPTURE_UNSUPPORTED : safe_in_capture();
	if (!code && !is_done(event->point))
		code = NOT_READY;
	pthread_mutex_unlock(&lock);
	return code;
}

/*
 * "Waits until the completion of all work currently captured in hEvent." (Driver API, cuEventSynchronize)
 * That it is unsafe during a capture is said at cuStreamSynchronize().
 */
EXPORT CUresult cuEventSynchronize(struct event *event)
{
	CUresult code = enter(false);

	must_be_there(event);
	if (!code)
		code = event->capture ? CAPTURE_UNSUPPORTED : safe_in_capture();
	if (!code)
		wait_for(event->point);
	pthread_mutex_unlock(&lock);
	return code;
}

/*
 * "If cuEventRecord() has not been called on either event then CUDA_ERROR_INVALID_HANDLE is
 * returned. If cuEventRecord() has been called on both events but one or both of them has not
 * yet been completed ..., CUDA_ERROR_NOT_READY is returned. If either event was created with the
 * CU_EVENT_DISABLE_TIMING flag, then this function will return CUDA_ERROR_INVALID_HANDLE."
 * (Driver API, cuEventElapsedTime). The time is in milliseconds, and less than 0 where the end was
 * before the start.
 */
EXPORT CUresult cuEventElapsedTime(float *ms, struct event *start, struct event *end)
{
	struct point a, b;
	CUresult code;

	meanwhile(ELAPSED);
	code = enter(false);
	must_be_there(start);
	must_be_there(end);
	a = start->point;
	b = end->point;
	if (!code && (!a.stream || !b.stream || ((start->flags | end->flags) & DISABLE_TIMING)))
		code = INVALID_HANDLE;
	if (!code && (!is_done(a) || !is_done(b)))
		code = NOT_READY;
	if (!code)
		*ms = (int64_t)(b.stream->times[b.at - 1] - a.stream->times[a.at - 1]) / 1e6;
	pthread_mutex_unlock(&lock);
	return code;
}

/*
 * "Makes all future work submitted to hStream wait for all work captured in hEvent.
 * ... hEvent may be from a different context or device than hStream." (Driver API,
 * cuStreamWaitEvent). "cuStreamWaitEvent() use[s] the most recently captured state at
 * the time of the API call" (cuEventRecord); "Before the first call to cuEventRecord(),
 * an event represents an empty set of work" (there).
 */
EXPORT CUresult cuStreamWaitEvent(void *handle, struct event *event, unsigned int flags)
{
	struct stream *stream;
	CUresult code = enter(true);

	if (!code)
		code = find_stream(handle, &stream);
	if (!code && fails("cuStreamWaitEvent captured"))
		code = CAPTURE_IMPLICIT;
	if (!code && (event->capture || stream->capture)) {
		if (stream->kind == LEGACY)
			code = may_use_legacy(stream->context, true);
		if (!code)
			code = join_capture(stream, event->capture, &event->nodes);
	} else if (!code) {
		code = enqueue_after(stream, (struct work){ MARK }, event->point);
	}
	pthread_mutex_unlock(&lock);
	return code;
}
