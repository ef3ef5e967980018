/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Capture of streams into graphs, and graphs that run.
 *
 * "When a stream is in capture mode, all operations pushed into the stream will not be
 * executed, but will instead be captured into a graph" (Driver API,
 * cuStreamBeginCapture). "When an invalid operation is attempted during stream capture,
 * any associated capture graphs are invalidated. When a capture graph is invalidated,
 * further use of any streams which are being captured or captured events associated
 * with the graph is invalid and will return an error, until stream capture is ended
 * with cudaStreamEndCapture(). This call will take the associated streams out of
 * capture mode, but will also return an error value and a NULL graph." (Programming
 * Guide, Invalidation)
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include "stub.h"

enum mode { GLOBAL, THREAD_LOCAL, RELAXED };

struct user_object {
	void *data;
	void (*destroy)(void *);
	unsigned int references;
};

struct graph {
	struct work work[MOST_NODES];
	/* What each node comes behind. */
	struct nodes after[MOST_NODES];
	size_t count;
	struct user_object *objects[MOST_NODES];
	size_t object_count;
	/* Of a conditional node, which owns it. */
	bool is_body;
};

struct capture {
	uint64_t id;
	struct graph *graph;
	struct stream *origin;
	enum mode mode;
	pthread_t thread;
	bool invalid, over;
	struct capture *next;
};

struct executable {
	struct graph graph;
	/* Its last launch. */
	struct point last;
	/* Launches that are not done, and whether the program still has it. */
	unsigned int launches;
	bool destroyed;
};

struct launch {
	struct executable *executable;
	struct nodes done;
};

/* All captures ever begun: events may refer to them. */
static struct capture *captures;

static bool has(const struct nodes *nodes, size_t i)
{
	return nodes->bits[i / 64] >> i % 64 & 1;
}

static void add(struct nodes *nodes, size_t i)
{
	nodes->bits[i / 64] |= UINT64_C(1) << i % 64;
}

static void add_all(struct nodes *nodes, const struct nodes *more)
{
	for (size_t i = 0; i < COUNT(nodes->bits); i++)
		nodes->bits[i] |= more->bits[i];
}

static bool all_in(const struct nodes *nodes, const struct nodes *of)
{
	for (size_t i = 0; i < COUNT(nodes->bits); i++)
		if (nodes->bits[i] & ~of->bits[i])
			return false;
	return true;
}

void invalidate(struct capture *capture)
{
	note("capture %lu invalidated", (unsigned long)capture->id);
	capture->invalid = true;
}

CUresult capture_work(struct stream *stream, struct work work)
{
	struct graph *graph = stream->capture->graph;

	if (stream->capture->invalid)
		return CAPTURE_INVALIDATED;
	/*
	 * "A small number of APIs that enqueue asynchronous operations into streams are not
	 * currently supported in graphs and will return an error if called with a stream
	 * which is being captured" (Programming Guide, Prohibited and Unhandled
	 * Operations). Among the types of nodes (Driver API, CUgraphNodeType) there is none
	 * for a prefetch or a discard. (A graph within a graph is left out here.)
	 */
	if (work.what != KERNEL && work.what != HOST) {
		invalidate(stream->capture);
		return CAPTURE_UNSUPPORTED;
	}
	/*
	 * "Allowed node types are kernel nodes, empty nodes, child graphs, memsets, memcopies, and
	 * conditionals." (Driver API, CUDA_CONDITIONAL_NODE_PARAMS). By which error a capture
	 * refuses others, no document says.
	 */
	if (work.what == HOST && graph->is_body)
		return NOT_SUPPORTED;
	if (work.what == HOST && getenv("STUB_ONE_NODE"))
		return SUCCESS;
	if (graph->count == MOST_NODES)
		abort();
	graph->work[graph->count] = work;
	graph->after[graph->count] = stream->frontier;
	memset(&stream->frontier, 0, sizeof(stream->frontier));
	add(&stream->frontier, graph->count++);
	return SUCCESS;
}

/*
 * "When a blocking stream is capturing, the legacy stream is in an unusable state until
 * the blocking stream capture is terminated." (Driver API, cuStreamIsCapturing).
 * "Whenever any stream in the same context is being captured, and it was not created
 * with cudaStreamNonBlocking, any attempted use of the legacy stream is invalid."
 * (Programming Guide, Prohibited and Unhandled Operations)
 */
CUresult may_use_legacy(struct context *context, bool breaks)
{
	CUresult code = SUCCESS;

	for (size_t i = 0; i < stream_count; i++) {
		struct stream *stream = streams[i];

		if (stream->context != context || stream->kind == NON_BLOCKING || !stream->capture)
			continue;
		if (breaks)
			invalidate(stream->capture);
		code = CAPTURE_IMPLICIT;
	}
	return code;
}

static _Thread_local enum mode mode = GLOBAL;

/*
 * "CU_STREAM_CAPTURE_MODE_GLOBAL: This is the default mode. If the local thread has an
 * ongoing capture sequence that was not initiated with CU_STREAM_CAPTURE_MODE_RELAXED
 * at cuStreamBeginCapture, or if any other thread has a concurrent capture sequence
 * initiated with CU_STREAM_CAPTURE_MODE_GLOBAL, this thread is prohibited from
 * potentially unsafe API calls." THREAD_LOCAL: "Concurrent capture sequences in other
 * threads are ignored." RELAXED: "The local thread is not prohibited from potentially
 * unsafe API calls." (Driver API, cuThreadExchangeStreamCaptureMode, which names
 * cudaMalloc as such a call)
 */
CUresult safe_in_capture(void)
{
	CUresult code = SUCCESS;

	if (mode == RELAXED)
		return SUCCESS;
	for (struct capture *c = captures; c; c = c->next) {
		bool mine = pthread_equal(c->thread, pthread_self());

		if (c->over || (mine ? c->mode == RELAXED : mode != GLOBAL || c->mode != GLOBAL))
			continue;
		invalidate(c);
		code = CAPTURE_UNSUPPORTED;
	}
	return code;
}

EXPORT CUresult cuThreadExchangeStreamCaptureMode(enum mode *swapped)
{
	enum mode before = mode;

	called();
	if (in_host_function) {
		violation("a host function calls CUDA");
		return NOT_PERMITTED;
	}
	mode = *swapped;
	*swapped = before;
	return SUCCESS;
}

/*
 * "Capture may not be initiated if stream is CU_STREAM_LEGACY. ... it may only be
 * initiated if the stream is not already in capture mode." (Driver API,
 * cuStreamBeginCapture)
 */
static CUresult begin(void *handle, struct graph *into, enum mode how)
{
	static uint64_t id;
	struct capture *capture;
	struct stream *stream;
	CUresult code = enter(true);

	if (!code)
		code = find_stream(handle, &stream);
	if (!code && (stream->kind == LEGACY || stream->capture))
		code = stream->capture ? ILLEGAL_STATE : CAPTURE_UNSUPPORTED;
	if (!code) {
		capture = calloc(1, sizeof(*capture));
		*capture = (struct capture){ .id = ++id, .origin = stream, .mode = how,
					     .graph = into ? into : calloc(1, sizeof(*into)),
					     .thread = pthread_self(), .next = captures };
		captures = capture;
		stream->capture = capture;
		memset(&stream->frontier, 0, sizeof(stream->frontier));
	}
	pthread_mutex_unlock(&lock);
	return code;
}

EXPORT CUresult cuStreamBeginCapture_v2(void *handle, enum mode how)
{
	return begin(handle, NULL, how);
}

/* "These graphs may be populated using graph node creation APIs or cuStreamBeginCaptureToGraph." */
EXPORT CUresult cuStreamBeginCaptureToGraph(void *handle, struct graph *graph, const void *dependencies,
					    const void *data, size_t count, enum mode how)
{
	return count ? NOT_SUPPORTED : begin(handle, graph, how);
}

/* The body of a conditional node, which is for the program to destroy here. */
EXPORT void stub_body(struct graph **out)
{
	*out = calloc(1, sizeof(**out));
	(*out)->is_body = true;
}

/*
 * "When a captured event is waited on by a stream, it places the stream in capture mode
 * if it is not already, and the next item in the stream will have additional
 * dependencies on the nodes in the captured event." (Programming Guide, Cross-stream
 * Dependencies and Events)
 * "It is invalid to merge two separate capture graphs by waiting on a captured event
 * from a stream which is being captured and is associated with a different capture
 * graph than the event. It is invalid to wait on a non-captured event from a stream
 * which is being captured" (there, Prohibited and Unhandled Operations).
 */
CUresult join_capture(struct stream *stream, struct capture *capture, const struct nodes *nodes)
{
	if (!capture || capture->over) {
		if (stream->capture)
			invalidate(stream->capture);
		return stream->capture ? CAPTURE_ISOLATION : INVALID_VALUE;
	}
	if (capture->invalid || (stream->capture && stream->capture->invalid))
		return CAPTURE_INVALIDATED;
	if (stream->capture && stream->capture != capture) {
		invalidate(stream->capture);
		invalidate(capture);
		return CAPTURE_MERGE;
	}
	if (!stream->capture) {
		stream->capture = capture;
		memset(&stream->frontier, 0, sizeof(stream->frontier));
	}
	add_all(&stream->frontier, nodes);
	return SUCCESS;
}

/* These nodes and all that they come behind. */
static struct nodes with_ancestors(const struct graph *graph, struct nodes nodes)
{
	for (size_t i = graph->count; i-- > 0;)
		if (has(&nodes, i))
			add_all(&nodes, &graph->after[i]);
	return nodes;
}

static void release(struct user_object *object)
{
	if (--object->references)
		return;
	pthread_mutex_unlock(&lock);
	in_host_function = true;
	object->destroy(object->data);
	in_host_function = false;
	pthread_mutex_lock(&lock);
	free(object);
}

static void release_all(struct graph *graph)
{
	for (size_t i = 0; i < graph->object_count; i++)
		release(graph->objects[i]);
}

/*
 * "Capture must be ended on the same stream in which it was initiated" and, if not
 * relaxed, in the same thread (Driver API, cuStreamBeginCapture). "the capture sequence
 * contains a fork that was not joined to the primary stream" (Driver API,
 * CUDA_ERROR_STREAM_CAPTURE_UNJOINED).
 */
EXPORT CUresult cuStreamEndCapture(void *handle, struct graph **out)
{
	struct capture *capture = NULL;
	struct nodes reached;
	struct stream *stream;
	CUresult code = enter(true);

	if (!code)
		code = find_stream(handle, &stream);
	if (!code && !(capture = stream->capture))
		code = ILLEGAL_STATE;
	if (!code && capture->origin != stream)
		code = CAPTURE_UNMATCHED;
	if (!code && capture->mode != RELAXED && !pthread_equal(capture->thread, pthread_self()))
		code = CAPTURE_WRONG_THREAD;
	if (code) {
		pthread_mutex_unlock(&lock);
		return code;
	}
	if (capture->invalid)
		code = CAPTURE_INVALIDATED;
	reached = with_ancestors(capture->graph, stream->frontier);
	for (size_t i = 0; i < stream_count; i++) {
		if (streams[i]->capture != capture)
			continue;
		if (!code && !all_in(&streams[i]->frontier, &reached))
			code = CAPTURE_UNJOINED;
		streams[i]->capture = NULL;
	}
	capture->over = true;
	*out = capture->graph;
	if (code) {
		*out = NULL;
		if (!capture->graph->is_body) {
			release_all(capture->graph);
			free(capture->graph);
		}
	}
	pthread_mutex_unlock(&lock);
	return code;
}

/* CU_STREAM_CAPTURE_STATUS_* */
static int status(struct stream *stream)
{
	return !stream->capture ? 0 : stream->capture->invalid ? 2 : 1;
}

EXPORT CUresult cuStreamGetCaptureInfo_v2(void *handle, int *out, uint64_t *id,
					  struct graph **graph, void *dependencies, size_t *count)
{
	struct stream *stream;
	CUresult code = enter(true);

	if (!code)
		code = find_stream(handle, &stream);
	if (!code && stream->kind == LEGACY)
		code = may_use_legacy(stream->context, false);
	if (!code) {
		*out = status(stream);
		if (*out == 1 && id)
			*id = stream->capture->id;
		if (*out == 1 && graph)
			*graph = stream->capture->graph;
	}
	pthread_mutex_unlock(&lock);
	return code;
}

/*
 * "if this is called on CU_STREAM_LEGACY (the "null stream") while a blocking stream in
 * the same context is capturing, it will return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT and
 * *captureStatus is unspecified after the call. The blocking stream capture is not
 * invalidated." (Driver API, cuStreamIsCapturing; cuStreamGetCaptureInfo says so too)
 */
EXPORT CUresult cuStreamIsCapturing(void *handle, int *out)
{
	return cuStreamGetCaptureInfo_v2(handle, out, NULL, NULL, NULL, NULL);
}

#ifndef STUB_NO_USER_OBJECTS
/*
 * "Create a user object with the specified destructor callback and initial reference
 * count. ... Currently it is required to pass CU_USER_OBJECT_NO_DESTRUCTOR_SYNC" (Driver
 * API, cuUserObjectCreate)
 */
EXPORT CUresult cuUserObjectCreate(struct user_object **out, void *data, void (*destroy)(void *),
				   unsigned int references, unsigned int flags)
{
	if (flags != 1 || !references)
		return INVALID_VALUE;
	*out = calloc(1, sizeof(**out));
	**out = (struct user_object){ data, destroy, references };
	return SUCCESS;
}

EXPORT CUresult cuUserObjectRelease(struct user_object *object, unsigned int count)
{
	CUresult code = enter(false);

	while (!code && count--)
		release(object);
	pthread_mutex_unlock(&lock);
	return code;
}

/*
 * "CU_GRAPH_USER_OBJECT_MOVE transfers references from the calling thread, rather than
 * create new references." (Driver API, cuGraphRetainUserObject). "All operations other
 * than destroy and node removal are permitted on the graph while the capture sequence is
 * in progress." (cuStreamGetCaptureInfo)
 */
EXPORT CUresult cuGraphRetainUserObject(struct graph *graph, struct user_object *object,
					unsigned int count, unsigned int flags)
{
	CUresult code = enter(false);

	if (!code && (count != 1 || graph->object_count == MOST_NODES))
		code = INVALID_VALUE;
	if (!code && fails("cuGraphRetainUserObject refused"))
		code = NOT_SUPPORTED;
	if (!code) {
		object->references += flags != 1;
		graph->objects[graph->object_count++] = object;
	}
	pthread_mutex_unlock(&lock);
	return code;
}
#endif

/*
 * "If nodes is NULL, this function will return the number of nodes in numNodes." (Driver API,
 * cuGraphGetNodes). Only that is asked for.
 */
EXPORT CUresult cuGraphGetNodes(struct graph *graph, void **nodes, size_t *count)
{
	CUresult code = enter(false);

	if (!code && nodes)
		code = NOT_SUPPORTED;
	if (!code)
		*count = graph->count;
	pthread_mutex_unlock(&lock);
	return code;
}

EXPORT CUresult cuGraphDestroy(struct graph *graph)
{
	CUresult code = enter(false);

	if (!code) {
		release_all(graph);
		free(graph);
	}
	pthread_mutex_unlock(&lock);
	return code;
}

/*
 * "An instantiated cudaGraphExec_t retains a copy of every reference in the source
 * cudaGraph_t. When a cudaGraphExec_t is destroyed without being synchronized, the
 * references are retained until the execution is completed." (Programming Guide, CUDA
 * User Objects)
 */
EXPORT CUresult cuGraphInstantiateWithFlags(struct executable **out, struct graph *graph,
					    unsigned long long flags)
{
	CUresult code = enter(true);

	if (!code) {
		*out = calloc(1, sizeof(**out));
		(*out)->graph = *graph;
		for (size_t i = 0; i < graph->object_count; i++)
			graph->objects[i]->references++;
	}
	pthread_mutex_unlock(&lock);
	return code;
}

static void free_if_unused(struct executable *executable)
{
	if (!executable->destroyed || executable->launches)
		return;
	release_all(&executable->graph);
	free(executable);
}

/*
 * "If the executable graph is in-flight, it will not be terminated, but rather freed
 * asynchronously on completion." (Driver API, cuGraphExecDestroy). That it is one of the
 * "potentially unsafe API calls" that safe_in_capture() is about, no list says: on a GPU (H200,
 * driver 580.159.04, CUDA 13.0) it gave CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED while another stream was
 * being captured, as microsoft/onnxruntime#32081 found too.
 */
EXPORT CUresult cuGraphExecDestroy(struct executable *executable)
{
	CUresult code = enter(false);

	if (!code)
		code = safe_in_capture();
	if (!code) {
		executable->destroyed = true;
		free_if_unused(executable);
	}
	pthread_mutex_unlock(&lock);
	return code;
}

/*
 * "Only one instance of hGraphExec may be executing at a time. Each launch is ordered
 * behind both any previous work in hStream and any previous launches of hGraphExec."
 * (Driver API, cuGraphLaunch). That a launch of a graph without nodes stands in any order, no
 * sentence says, and on a GPU (H200, driver 580.159.04, CUDA 13.0) it seems to stand in none: a
 * kernel ran before those that come before it only by way of such a launch, in the legacy stream or
 * behind an earlier one. So here it is nothing. Handles of the page 0 are graphs of one kernel.
 */
EXPORT CUresult cuGraphLaunch(struct executable *executable, void *handle)
{
	struct launch *launch;
	struct stream *stream;
	CUresult code = enter(true);

	if (!code)
		code = find_stream(handle, &stream);
	if (!code && (uintptr_t)executable <= 0x2000) {
		code = enqueue(stream, (struct work){ KERNEL, .name = "graph" });
	} else if (!code && executable->graph.count) {
		launch = calloc(1, sizeof(*launch));
		launch->executable = executable;
		code = enqueue_after(stream, (struct work){ GRAPH, .launch = launch },
				     executable->last);
		if (!code) {
			executable->last = now(stream);
			executable->launches++;
		}
	}
	pthread_mutex_unlock(&lock);
	return code;
}

/* Nodes without a path between them run in any order. */
bool graph_step(struct launch *launch)
{
	struct graph *graph = &launch->executable->graph;
	size_t ready[MOST_NODES], count = 0, done = 0, chosen;

	for (size_t i = 0; i < graph->count; i++) {
		if (has(&launch->done, i))
			done++;
		else if (all_in(&graph->after[i], &launch->done))
			ready[count++] = i;
	}
	if (count) {
		struct work work;

		chosen = ready[random_number() % count];
		work = graph->work[chosen];
		do_work(&work);
		add(&launch->done, chosen);
		done++;
	}
	if (done < graph->count)
		return false;
	launch->executable->launches--;
	free_if_unused(launch->executable);
	free(launch);
	return true;
}
