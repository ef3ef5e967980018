/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * CUDA's calls that move or discard managed memory in the order of a stream.
 *
 * "The batch as a whole executes in stream order but operations within a batch are not
 * guaranteed to execute in any specific order." (Driver API, cuMemDiscardBatchAsync,
 * cuMemPrefetchBatchAsync and cuMemDiscardAndPrefetchBatchAsync): here they do in a random one.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include "stub.h"

static bool is_location(struct location to)
{
	return to.type == 2 || (to.type == 1 && to.id >= 0 && to.id < DEVICES);
}

/* What a prefetch comes behind: see discard_beside(). */
static struct point behind_discards(struct stream *stream)
{
	struct stream *discards = stream->context->discards;

	return discards ? now(discards) : (struct point){ NULL, 0 };
}

static CUresult prefetch_one(CUdeviceptr p, size_t size, struct location to, void *handle)
{
	struct stream *stream;
	CUresult code = find_current_stream(handle, &stream);

	if (!code && !is_managed(p, size))
		code = INVALID_VALUE;
	if (!code && !is_location(to))
		code = INVALID_DEVICE;
	if (!code && fails("cuMemPrefetchAsync captured"))
		code = CAPTURE_IMPLICIT;
	if (!code)
		code = enqueue_after(stream, (struct work){ PREFETCH, .base = p, .length = size },
				     behind_discards(stream));
	return code;
}

EXPORT CUresult cuMemPrefetchAsync(CUdeviceptr p, size_t size, int device, void *handle)
{
	CUresult code = enter(true);

	/* "Passing in CU_DEVICE_CPU for dstDevice will prefetch the data to host memory" */
	if (!code)
		code = prefetch_one(p, size, (struct location){ device == -1 ? 2 : 1, device },
				    handle);
	pthread_mutex_unlock(&lock);
	return code;
}

EXPORT CUresult cuMemPrefetchAsync_v2(CUdeviceptr p, size_t size, struct location to,
				      unsigned int flags, void *handle)
{
	CUresult code = enter(true);

	/* "flags for future use, must be zero now." */
	if (!code)
		code = flags ? INVALID_VALUE : prefetch_one(p, size, to, handle);
	pthread_mutex_unlock(&lock);
	return code;
}

#ifndef STUB_NO_DISCARD

/* What a batch is given. */
struct batch {
	CUdeviceptr *p;
	size_t *size, count;
	struct location *to;
	size_t *first, locations;
};

/*
 * "Note the first entry in prefetchLocIdxs must always be 0. Also, each entry must be greater
 * than the previous entry and the last entry should be less than count. Furthermore,
 * numPrefetchLocs must be lesser than or equal to count." (cuMemPrefetchBatchAsync)
 */
static bool locations_fit(const struct batch *b)
{
	if (!b->locations || b->locations > b->count || b->first[0])
		return false;
	for (size_t i = 0; i < b->locations; i++)
		if (!is_location(b->to[i]) || b->first[i] >= b->count ||
		    (i && b->first[i] <= b->first[i - 1]))
			return false;
	return true;
}

/*
 * "hStream: The stream to enqueue the operations in. Must not be legacy NULL stream.";
 * "Flags reserved for future use. Must be zero."; "All devices in the system must have a
 * non-zero value for the device attribute CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS
 * otherwise the API will return an error" (of each of the three).
 */
static CUresult check(const struct batch *b, unsigned long long flags, void *handle,
		      struct stream **stream)
{
	CUresult code = find_current_stream(handle, stream);

	if (!code && ((*stream)->kind == LEGACY || flags))
		code = INVALID_VALUE;
	for (size_t i = 0; i < b->count && !code; i++)
		if (!is_managed(b->p[i], b->size[i]))
			code = INVALID_VALUE;
	if (!code && getenv("STUB_OLD_GPU"))
		code = INVALID_DEVICE;
	return code;
}

static CUresult enqueue_all(struct stream *stream, const struct batch *b, enum operation what)
{
	CUresult code = SUCCESS;
	size_t order[b->count + 1];

	for (size_t i = 0; i < b->count; i++) {
		size_t at = random_number() % (i + 1);

		order[i] = order[at];
		order[at] = i;
	}
	for (size_t i = 0; i < b->count && !code; i++)
		code = enqueue_after(stream, (struct work){ what, .base = b->p[order[i]],
							    .length = b->size[order[i]] },
				     behind_discards(stream));
	return code;
}

/*
 * The discards of a batch come behind what is in the stream, but nothing in the stream waits for
 * them, nor who waits for the stream: on a GPU (H200, driver 580.159.04, CUDA 13.0) what was
 * written behind cuMemDiscardBatchAsync, and then moved to the host, was lost in 7 of 48 cases, in
 * 4 of which cuStreamSynchronize stood before the write; in 8 of 48 where another stream wrote it
 * behind an event (tests/order_program.c). That is against "executes in stream order". With
 * a prefetch or a host function behind the discard, or cuMemDiscardAndPrefetchBatchAsync in its
 * place, it was lost in 0 of 48. Here a prefetch comes behind the discards before it, and a host
 * function does not.
 */
static CUresult discard_beside(struct stream *stream, const struct batch *b)
{
	struct context *context = stream->context;
	CUresult code = SUCCESS;

	if (stream->capture)
		return enqueue_all(stream, b, DISCARD);
	if (!context->discards)
		context->discards = create_stream(context, NON_BLOCKING);
	for (size_t i = 0; i < b->count && !code; i++)
		code = enqueue_after(context->discards, (struct work){ DISCARD, .base = b->p[i],
							      .length = b->size[i] }, now(stream));
	return code;
}

EXPORT CUresult cuMemDiscardBatchAsync(CUdeviceptr *p, size_t *size, size_t count,
				       unsigned long long flags, void *handle)
{
	struct batch b = { p, size, count };
	struct stream *stream;
	CUresult code = enter(true);

	if (!code)
		code = check(&b, flags, handle, &stream);
	if (!code)
		note("cuMemDiscardBatchAsync %zu", count);
	if (!code)
		code = discard_beside(stream, &b);
	pthread_mutex_unlock(&lock);
	return code;
}

EXPORT CUresult cuMemPrefetchBatchAsync(CUdeviceptr *p, size_t *size, size_t count,
					struct location *to, size_t *first, size_t locations,
					unsigned long long flags, void *handle)
{
	struct batch b = { p, size, count, to, first, locations };
	struct stream *stream;
	CUresult code = enter(true);

	if (!code)
		code = check(&b, flags, handle, &stream);
	if (!code && !locations_fit(&b))
		code = INVALID_VALUE;
	if (!code)
		note("cuMemPrefetchBatchAsync %zu", count);
	if (!code)
		code = enqueue_all(stream, &b, PREFETCH);
	pthread_mutex_unlock(&lock);
	return code;
}

/*
 * "Performs a batch of memory discards followed by prefetches." "Note that any reads, writes or
 * prefetches to any part of the memory range that occur simultaneously with this combined
 * discard+prefetch operation result in undefined behavior": so of two ranges that touch, the one
 * may be prefetched while the other is discarded.
 */
EXPORT CUresult cuMemDiscardAndPrefetchBatchAsync(CUdeviceptr *p, size_t *size, size_t count,
						  struct location *to, size_t *first,
						  size_t locations, unsigned long long flags,
						  void *handle)
{
	struct batch b = { p, size, count, to, first, locations };
	struct stream *stream;
	CUresult code = enter(true);

	if (!code)
		code = check(&b, flags, handle, &stream);
	if (!code && !locations_fit(&b))
		code = INVALID_VALUE;
	for (size_t i = 0; i < count && !code; i++)
		for (size_t j = 0; j < i; j++)
			if (p[i] < p[j] + size[j] && p[j] < p[i] + size[i])
				violation("memory is discarded and prefetched at the same time");
	if (!code)
		note("cuMemDiscardAndPrefetchBatchAsync %zu", count);
	if (!code)
		code = enqueue_all(stream, &b, DISCARD);
	if (!code)
		code = enqueue_all(stream, &b, PREFETCH);
	pthread_mutex_unlock(&lock);
	return code;
}

#endif
