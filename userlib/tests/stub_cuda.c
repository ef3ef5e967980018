/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * A CUDA driver library without a GPU, and a UVM driver without a kernel, for
 * tests: libcuda.so.1. Streams are queues that run when somebody waits for them,
 * so that a call made too early or too late is seen. It is preloaded, so that it
 * gets ioctl() too, and answers it on the file descriptor $UVMRUST_FD.
 *
 *   STUB_LOG=file        what happened, one line each, in the order it happened
 *   STUB_UVM=ours|native|old   which UVM driver; else none
 *   STUB_ASLEEP=1        UVM answers one call in three, as if the system slept
 *   STUB_NO_DISCARD, at compile time: a CUDA before 13
 *
 * Discarded memory reads as zeros, at once for eager, from the prefetch on for
 * lazy. A kernel that touches lazily discarded memory before is a VIOLATION.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "uvm_rust_ioctl.h"

#define EXPORT __attribute__((visibility("default")))
#define COUNT(a) (sizeof(a) / sizeof(*(a)))

typedef int CUresult;
typedef uint64_t CUdeviceptr;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void note(const char *format, ...)
{
	const char *path = getenv("STUB_LOG");
	char line[256];
	va_list args;
	FILE *file;

	if (!path)
		return;
	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	file = fopen(path, "a");
	if (file) {
		fprintf(file, "%s\n", line);
		fclose(file);
	}
}

/* Memory, under @lock. */

struct area {
	uint64_t base, length;
};

static struct area managed[4096], lazy[4096];

static void area_add(struct area *list, uint64_t base, uint64_t length)
{
	for (size_t i = 0; i < COUNT(managed); i++)
		if (!list[i].length) {
			list[i] = (struct area){ base, length };
			return;
		}
	abort();
}

static int is_managed(uint64_t base, uint64_t length)
{
	for (size_t i = 0; i < COUNT(managed); i++)
		if (managed[i].length && base >= managed[i].base &&
		    base + length <= managed[i].base + managed[i].length)
			return 1;
	return 0;
}

static int is_lazy(uint64_t base, uint64_t length)
{
	for (size_t i = 0; i < COUNT(lazy); i++)
		if (lazy[i].length && base < lazy[i].base + lazy[i].length &&
		    lazy[i].base < base + length)
			return 1;
	return 0;
}

static int discard(uint64_t base, uint64_t length, int eager)
{
	note("discard %s %lu", eager ? "eager" : "lazy", (unsigned long)length);
	if (!is_managed(base, length))
		return 0;
	if (eager)
		memset((void *)base, 0, length);
	else
		area_add(lazy, base, length);
	return 1;
}

/* Lazily discarded memory was reclaimed meanwhile: the harshest legal case. */
static int prefetch(uint64_t base, uint64_t length)
{
	note("prefetch %lu", (unsigned long)length);
	if (!is_managed(base, length))
		return 0;
	for (size_t i = 0; i < COUNT(lazy); i++)
		if (lazy[i].length && lazy[i].base >= base &&
		    lazy[i].base + lazy[i].length <= base + length) {
			memset((void *)lazy[i].base, 0, lazy[i].length);
			lazy[i].length = 0;
		}
	return 1;
}

/* The UVM driver. */

static int uvm_batch(struct uvm_rust_discard_batch *p)
{
	const struct uvm_rust_discard_range *r = (void *)(uintptr_t)p->ranges;

	p->first_failed = 0;
	p->blocks_discarded = p->blocks_skipped = p->blocks_partial = 0;
	for (; p->first_failed < p->range_count; p->first_failed++, r++) {
		if (!discard(r->base, r->length, p->flags & UVM_RUST_DISCARD_EAGER))
			return ENXIO;
		p->blocks_discarded += r->length >> 21;
	}
	return 0;
}

struct native_discard {
	uint64_t base, length, flags;
	uint32_t status;
};

struct native_migrate {
	uint64_t base, length;
	uint8_t uuid[16];
	uint32_t flags;
	uint64_t semaphore;
	uint32_t payload;
	int32_t node;
	uint64_t start, user_length;
	uint32_t status;
};

static int uvm_ioctl(const char *driver, unsigned long nr, void *arg)
{
	int ours = !strcmp(driver, "ours");

	if (ours && nr == UVM_RUST_GET_VERSION) {
		struct uvm_rust_version *p = arg;

		p->version = UVM_RUST_VERSION;
		p->features = UVM_RUST_FEATURE_DISCARD | UVM_RUST_FEATURE_EXEC_ID;
		return 0;
	}
	if (ours && nr == UVM_RUST_DISCARD_BATCH)
		return uvm_batch(arg);
	if (ours && nr == UVM_RUST_ANNOUNCE) {
		struct uvm_rust_announce *p = arg;

		if (p->gpu_uuid[0] != 0x60)
			return ENODEV;
		note("announce %016llx gpu %d", (unsigned long long)p->exec_id,
		     p->gpu_uuid[15]);
		return 0;
	}
	if (ours && nr == UVM_RUST_FLASH_MOVE) {
		struct uvm_rust_flash_move_range *p = arg;

		note("spill %lu", (unsigned long)p->length);
		return p->flags || !is_managed(p->base, p->length) ? ENXIO : 0;
	}
	if (nr == 80 && strcmp(driver, "old")) {
		struct native_discard *p = arg;

		if (p->flags > 1)
			p->status = 0x1f;
		else
			p->status = discard(p->base, p->length, p->flags) ? 0 : 0x1e;
		return 0;
	}
	if (nr == 51) {
		struct native_migrate *p = arg;

		p->status = p->length && prefetch(p->base, p->length) ? 0 : 0x1e;
		return 0;
	}
	return EINVAL;
}

static atomic_uint asked;

EXPORT int ioctl(int fd, unsigned long nr, ...)
{
	const char *number = getenv("UVMRUST_FD"), *driver = getenv("STUB_UVM");
	va_list args;
	void *arg;
	int error;

	va_start(args, nr);
	arg = va_arg(args, void *);
	va_end(args);
	if (!driver || !number || atoi(number) != fd)
		return syscall(SYS_ioctl, fd, nr, arg);
	if (getenv("STUB_ASLEEP") && atomic_fetch_add(&asked, 1) % 3) {
		errno = EAGAIN;
		return -1;
	}
	pthread_mutex_lock(&lock);
	error = uvm_ioctl(driver, nr, arg);
	pthread_mutex_unlock(&lock);
	errno = error;
	return error ? -1 : 0;
}

/* Streams: what is queued runs at the next wait. */

enum kind { HOST, KERNEL, DISCARD, PREFETCH, WAIT };

struct stream;

struct item {
	enum kind kind;
	void (*host)(void *);
	void *data;
	const char *name;
	uint64_t base, length;
	struct stream *other;
	unsigned int until;
};

struct stream {
	struct item queue[65536];
	unsigned int head, tail;
};

struct event {
	struct stream *stream;
	unsigned int at;
};

static struct stream null_stream, *streams[16];
static unsigned int stream_count;
static int capturing;

/* The two default streams wait for each other: one queue will do. */
static struct stream *stream_of(void *handle)
{
	return (uintptr_t)handle <= 2 ? &null_stream : handle;
}

static void run_until(struct stream *s, unsigned int until);

static void run_one(struct item *it)
{
	switch (it->kind) {
	case HOST:
		it->host(it->data);
		return;
	case WAIT:
		run_until(it->other, it->until);
		return;
	default:
		break;
	}
	pthread_mutex_lock(&lock);
	if (it->kind == DISCARD)
		discard(it->base, it->length, 1);
	else if (it->kind == PREFETCH)
		prefetch(it->base, it->length);
	else {
		note("kernel %s", it->name);
		if (it->base && is_lazy(it->base, it->length))
			note("VIOLATION");
		if (it->base)
			memset((void *)it->base, 0x5a, it->length);
	}
	pthread_mutex_unlock(&lock);
}

static void run_until(struct stream *s, unsigned int until)
{
	while ((int)(until - s->head) > 0)
		run_one(&s->queue[s->head++ % COUNT(s->queue)]);
}

static CUresult enqueue(void *handle, struct item item)
{
	struct stream *s = stream_of(handle);

	if (s->tail - s->head == COUNT(s->queue))
		run_until(s, s->tail);
	s->queue[s->tail++ % COUNT(s->queue)] = item;
	return 0;
}

static void run_all(void)
{
	run_until(&null_stream, null_stream.tail);
	for (unsigned int i = 0; i < stream_count; i++)
		run_until(streams[i], streams[i]->tail);
}

EXPORT CUresult cuStreamCreate(void **out, unsigned int flags)
{
	if (stream_count == COUNT(streams))
		return 2;
	*out = streams[stream_count++] = calloc(1, sizeof(struct stream));
	return 0;
}

EXPORT CUresult cuStreamSynchronize(void *handle)
{
	struct stream *s = stream_of(handle);

	run_until(s, s->tail);
	return 0;
}

EXPORT CUresult cuStreamIsCapturing(void *handle, int *out)
{
	*out = capturing;
	return 0;
}

EXPORT void stub_capture(int on)
{
	capturing = on;
}

EXPORT CUresult cuLaunchHostFunc(void *handle, void (*f)(void *), void *data)
{
	return enqueue(handle, (struct item){ HOST, .host = f, .data = data });
}

EXPORT CUresult cuEventCreate(void **out, unsigned int flags)
{
	*out = calloc(1, sizeof(struct event));
	return 0;
}

EXPORT CUresult cuEventDestroy_v2(void *event)
{
	free(event);
	return 0;
}

EXPORT CUresult cuEventRecord(struct event *event, void *handle)
{
	event->stream = stream_of(handle);
	event->at = event->stream->tail;
	return 0;
}

EXPORT CUresult cuStreamWaitEvent(void *handle, struct event *event, unsigned int flags)
{
	return enqueue(handle, (struct item){ WAIT, .other = event->stream,
					      .until = event->at });
}

/* Devices */

EXPORT CUresult cuInit(unsigned int flags)
{
	return 0;
}

EXPORT CUresult cuDevicePrimaryCtxRetain(void **context, int device)
{
	*context = (void *)0x10;
	return 0;
}

EXPORT CUresult cuCtxSetCurrent(void *context)
{
	return 0;
}

EXPORT CUresult cuDeviceGetCount(int *count)
{
	*count = 2;
	return 0;
}

EXPORT CUresult cuDeviceGet(int *device, int ordinal)
{
	*device = ordinal;
	return ordinal < 0 || ordinal > 1 ? 101 : 0;
}

EXPORT CUresult cuDeviceGetUuid(uint8_t *uuid, int device)
{
	memset(uuid, 0x60, 16);
	uuid[15] = device;
	return 0;
}

EXPORT CUresult cuCtxGetDevice(int *device)
{
	*device = 0;
	return 0;
}

/* Memory */

EXPORT CUresult cuMemAllocManaged(CUdeviceptr *out, size_t size, unsigned int flags)
{
	size_t length = (size + 0xfff) & ~(size_t)0xfff;
	void *p = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED || !size)
		return 2;
	pthread_mutex_lock(&lock);
	note("managed %zu", size);
	area_add(managed, (uint64_t)p, length);
	pthread_mutex_unlock(&lock);
	*out = (CUdeviceptr)p;
	return 0;
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t size)
{
	note("device %zu", size);
	*out = (CUdeviceptr)malloc(size);
	return *out ? 0 : 2;
}

EXPORT CUresult cuMemAllocPitch_v2(CUdeviceptr *out, size_t *pitch, size_t width, size_t height,
				   unsigned int element)
{
	*pitch = (width + 511) & ~(size_t)511;
	return cuMemAlloc_v2(out, *pitch * height);
}

EXPORT CUresult cuMemAllocAsync(CUdeviceptr *out, size_t size, void *stream)
{
	return cuMemAlloc_v2(out, size);
}

EXPORT CUresult cuMemFree_v2(CUdeviceptr p)
{
	run_all();
	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < COUNT(managed); i++)
		if (managed[i].length && managed[i].base == p) {
			note("free managed");
			for (size_t j = 0; j < COUNT(lazy); j++)
				if (lazy[j].base >= p && lazy[j].base < p + managed[i].length)
					lazy[j].length = 0;
			munmap((void *)p, managed[i].length);
			managed[i].length = 0;
			pthread_mutex_unlock(&lock);
			return 0;
		}
	pthread_mutex_unlock(&lock);
	note("free device");
	free((void *)p);
	return 0;
}

EXPORT CUresult cuMemFreeAsync(CUdeviceptr p, void *stream)
{
	if (is_managed(p, 1)) {
		note("VIOLATION: cuMemFreeAsync of managed memory");
		return 1;
	}
	return cuMemFree_v2(p);
}

EXPORT CUresult cuMemPrefetchAsync(CUdeviceptr p, size_t size, int device, void *stream)
{
	if (!is_managed(p, size))
		return 1;
	return enqueue(stream, (struct item){ PREFETCH, .base = p, .length = size });
}

#ifndef STUB_NO_DISCARD
EXPORT CUresult cuMemDiscardBatchAsync(CUdeviceptr *p, size_t *size, size_t count,
				       unsigned long long flags, void *stream)
{
	if ((uintptr_t)stream <= 1)
		return 1;
	for (size_t i = 0; i < count; i++)
		if (flags || !is_managed(p[i], size[i]))
			return 1;
	note("cuMemDiscardBatchAsync %zu", count);
	for (size_t i = 0; i < count; i++)
		enqueue(stream, (struct item){ DISCARD, .base = p[i], .length = size[i] });
	return 0;
}
#endif

/*
 * Kernels. A function is a struct kernel of the program's. Its parameters: the
 * memory that it writes, 8 bytes; how much of it, 8 bytes; and a number, 4 bytes.
 */
struct kernel {
	const char *name;
};

EXPORT CUresult cuFuncGetName(const char **name, struct kernel *k)
{
	*name = k->name;
	return 0;
}

EXPORT CUresult cuFuncGetParamInfo(struct kernel *k, size_t i, size_t *offset, size_t *size)
{
	static const size_t sizes[] = { 8, 8, 4 };

	if (i >= COUNT(sizes))
		return 1;
	*offset = i * 8;
	*size = sizes[i];
	return 0;
}

EXPORT CUresult cuLaunchKernel(struct kernel *k, unsigned int gx, unsigned int gy, unsigned int gz,
			       unsigned int bx, unsigned int by, unsigned int bz,
			       unsigned int shared, void *stream, void **params, void **extra)
{
	struct item item = { KERNEL, .name = k->name };

	if (params) {
		item.base = *(uint64_t *)params[0];
		item.length = *(uint64_t *)params[1];
	}
	return enqueue(stream, item);
}

struct config {
	unsigned int grid[3], block[3], shared;
	void *stream, *attrs;
	unsigned int count;
};

EXPORT CUresult cuLaunchKernelEx(const struct config *c, struct kernel *k, void **params,
				 void **extra)
{
	return cuLaunchKernel(k, 1, 1, 1, 1, 1, 1, 0, c->stream, params, extra);
}

EXPORT CUresult cuLaunchCooperativeKernel(struct kernel *k, unsigned int gx, unsigned int gy,
					  unsigned int gz, unsigned int bx, unsigned int by,
					  unsigned int bz, unsigned int shared, void *stream,
					  void **params)
{
	return cuLaunchKernel(k, gx, gy, gz, bx, by, bz, shared, stream, params, NULL);
}

EXPORT CUresult cuGraphLaunch(void *graph, void *stream)
{
	return enqueue(stream, (struct item){ KERNEL, .name = "graph" });
}

EXPORT CUresult cuModuleUnload(void *module)
{
	note("unload");
	return 0;
}

/* Gives the library's own functions, as the real one does; no preload sees that. */

#define FUNCTION(name, version) { #name, name##version }
#define PER_THREAD 2

static const struct {
	const char *name;
	void *function;
} functions[] = {
	FUNCTION(cuInit, ),
	FUNCTION(cuMemAlloc, _v2),
	FUNCTION(cuMemAllocPitch, _v2),
	FUNCTION(cuMemAllocAsync, ),
	FUNCTION(cuMemAllocManaged, ),
	FUNCTION(cuMemFree, _v2),
	FUNCTION(cuMemFreeAsync, ),
	FUNCTION(cuLaunchKernel, ),
	FUNCTION(cuLaunchKernelEx, ),
	FUNCTION(cuLaunchCooperativeKernel, ),
	FUNCTION(cuGraphLaunch, ),
	FUNCTION(cuStreamSynchronize, ),
	FUNCTION(cuModuleUnload, ),
};

/* With the default stream of a thread: only this one differs, as far as is used. */
EXPORT CUresult cuLaunchKernel_ptsz(struct kernel *k, unsigned int gx, unsigned int gy,
				    unsigned int gz, unsigned int bx, unsigned int by,
				    unsigned int bz, unsigned int shared, void *stream,
				    void **params, void **extra)
{
	return cuLaunchKernel(k, gx, gy, gz, bx, by, bz, shared, stream ? stream : (void *)2,
			      params, extra);
}

EXPORT CUresult cuGetProcAddress_v2(const char *name, void **out, int version, uint64_t flags,
				    int *found)
{
	*out = NULL;
	if (!strcmp(name, "cuLaunchKernel") && (flags & PER_THREAD))
		*out = cuLaunchKernel_ptsz;
	for (size_t i = 0; i < COUNT(functions) && !*out; i++)
		if (!strcmp(functions[i].name, name))
			*out = functions[i].function;
	if (found)
		*found = !*out;
	return *out ? 0 : 500;
}
