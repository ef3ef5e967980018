/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Managed memory, what a discard makes of it, and the UVM driver's ioctls.
 *
 * What a read gives after a discard is what the driver promises least:
 * - ours: zeros, or a value from before (include/uapi/uvm_rust_ioctl.h): for each page one
 *   or the other, at random.
 * - NVIDIA's: "Reads from memory discarded with UVM_DISCARD_FLAGS_UNMAP, including
 *   back-to-back reads, return indeterminate data" (580.105.08, uvm.h, UvmDiscard).
 * - CUDA 13's: "Reading from a discarded range, without a subsequent write or
 *   prefetch to that part of the range, will return an indeterminate value" (Driver
 *   API, cuMemDiscardBatchAsync).
 * Indeterminate is POISON here. Memory that is lazily discarded becomes so at the
 * prefetch, and a kernel that touches it before is a violation: "Reads and writes
 * to/from memory discarded without UVM_DISCARD_FLAGS_UNMAP have undefined behavior"
 * (580.105.08, uvm.h, UvmDiscard).
 *
 * With STUB_SPARSE only the first word of a range and those at each multiple of
 * STRIDE are written and looked at: a thousand times faster for the random programs,
 * which use each buffer as a whole.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "stub.h"
#include "uvm_rust_ioctl.h"

#define POISON UINT64_C(0xdbdbdbdbdbdbdbdb)
#define STRIDE ((uint64_t)512 << 10)

pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void note(const char *format, ...)
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

static unsigned int violations;

void violation(const char *what)
{
	note("VIOLATION: %s", what);
	violations++;
}

EXPORT unsigned int stub_violations(void)
{
	return violations;
}

/* The calls that are to fail: of which function, and after how many more. */
static struct {
	const char *function;
	unsigned int after;
} faults[4];

/*
 * The `nth` call of this function from now on, 1 for the next, fails: for want of memory, as
 * "UVM_MIGRATE" does, or, of "UVM_DISCARD", as it does where a GPU cannot fault. "UVM_DISCARD unmap" is
 * one that has noted the discard and cannot unmap, and leaves it so (580.142 to 595.45.04,
 * uvm_va_block.c, va_block_discard_locked). "cuStreamWaitEvent captured" is a wait before which another
 * thread has begun a capture that forbids it, "cuMemPrefetchAsync captured" such a prefetch, and
 * "cuMemPrefetchAsync later" one that CUDA takes and cannot do. Any call can fail: "this
 * function may also return error codes from previous, asynchronous launches" (Driver API).
 */
EXPORT void stub_fail(const char *function, unsigned int nth)
{
	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < COUNT(faults); i++)
		if (!faults[i].function) {
			faults[i].function = function;
			faults[i].after = nth - 1;
			break;
		}
	pthread_mutex_unlock(&lock);
}

bool fails(const char *function)
{
	for (size_t i = 0; i < COUNT(faults); i++)
		if (faults[i].function && !strcmp(faults[i].function, function) &&
		    !faults[i].after--) {
			faults[i].function = NULL;
			return true;
		}
	return false;
}

struct area {
	uint64_t base, length;
	/* Of an allocation: what no other has, and where it was made. */
	uint64_t id;
	struct context *context;
	/* Of memory of a pool: which. */
	struct pool *pool;
};

static struct area managed[4096], lazy[4096];
/* What STUB_LOSES is to lose of what was discarded. */
static struct area doomed[4096];
/* Those from here on are empty. */
static size_t managed_end, lazy_end, doomed_end;

static struct area *area_add(struct area *list, size_t *end, uint64_t base, uint64_t length)
{
	for (size_t i = 0; i < COUNT(managed); i++)
		if (!list[i].length) {
			list[i] = (struct area){ base, length };
			if (i >= *end)
				*end = i + 1;
			return &list[i];
		}
	abort();
}

bool is_managed(uint64_t base, uint64_t length)
{
	for (size_t i = 0; i < managed_end; i++)
		if (managed[i].length && base >= managed[i].base &&
		    base + length <= managed[i].base + managed[i].length)
			return true;
	return false;
}

bool is_lazy(uint64_t base, uint64_t length)
{
	for (size_t i = 0; i < lazy_end; i++)
		if (lazy[i].length && base < lazy[i].base + lazy[i].length &&
		    lazy[i].base < base + length)
			return true;
	return false;
}

/* Something outside, a runtime's copy, uses this memory. */
EXPORT void stub_uses(const void *p, size_t length)
{
	pthread_mutex_lock(&lock);
	if (is_lazy((uint64_t)(uintptr_t)p, length))
		violation("lazily discarded memory is used");
	pthread_mutex_unlock(&lock);
}

/* Allocations of managed memory that are not freed. */
EXPORT unsigned int stub_managed(void)
{
	unsigned int count = 0;

	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < managed_end; i++)
		count += !!managed[i].length;
	pthread_mutex_unlock(&lock);
	return count;
}

static bool sparse(void)
{
	static int known = -1;

	if (known < 0)
		known = !!getenv("STUB_SPARSE");
	return known;
}

void fill(uint64_t base, uint64_t length, uint64_t word)
{
	if (!sparse()) {
		for (uint64_t at = 0; at + 8 <= length; at += 8)
			*(uint64_t *)(base + at) = word;
		memcpy((void *)(base + (length & ~7ull)), &word, length & 7);
		return;
	}
	*(uint64_t *)base = word;
	for (uint64_t at = (base / STRIDE + 1) * STRIDE; at + 8 <= base + length; at += STRIDE)
		*(uint64_t *)at = word;
}

/* The word that all are equal to, or MIXED. */
uint64_t look(uint64_t base, uint64_t length)
{
	uint64_t word = *(uint64_t *)base, step = sparse() ? STRIDE : 8;

	for (uint64_t at = (base / step + 1) * step; at + 8 <= base + length; at += step)
		if (*(uint64_t *)at != word)
			return MIXED;
	return word;
}

static void drop(uint64_t base, uint64_t length)
{
	const char *driver = getenv("STUB_UVM");

	/* What fill() writes at a time when it is sparse. */
	uint64_t step = sparse() ? STRIDE : 0x1000, next;

	if (!driver || strcmp(driver, "ours")) {
		fill(base, length, POISON);
		return;
	}
	for (uint64_t at = base, end = base + length; at < end; at = next) {
		next = (at / step + 1) * step;
		if (random_number() & 1)
			fill(at, (next < end ? next : end) - at, 0);
	}
}

/* Some memory is not lazily discarded any more; if `reclaimed`, it was taken back before. */
static void end_lazy(uint64_t base, uint64_t length, bool reclaimed)
{
	uint64_t end = base + length;
	size_t areas = lazy_end;

	for (size_t i = 0; i < areas; i++) {
		struct area whole = lazy[i];
		uint64_t whole_end = whole.base + whole.length;
		uint64_t from = base > whole.base ? base : whole.base;
		uint64_t to = end < whole_end ? end : whole_end;

		if (!whole.length || from >= to)
			continue;
		if (reclaimed)
			drop(from, to - from);
		lazy[i].length = from - whole.base;
		if (to < whole_end)
			area_add(lazy, &lazy_end, to, whole_end - to);
	}
}

static bool loses(const char *when)
{
	const char *given = getenv("STUB_LOSES");

	return given && !strcmp(given, when);
}

/* STUB_LOSES: a discard that is still to come over what lies here comes now. */
static void lose(uint64_t base, uint64_t length)
{
	for (size_t i = 0; i < doomed_end; i++)
		if (doomed[i].length && doomed[i].base < base + length &&
		    base < doomed[i].base + doomed[i].length) {
			fill(doomed[i].base, doomed[i].length, POISON);
			doomed[i].length = 0;
		}
}

void written(uint64_t base, uint64_t length)
{
	if (loses("write"))
		lose(base, length);
}

bool discard(uint64_t base, uint64_t length, bool eager)
{
	note("discard %s %lu", eager ? "eager" : "lazy", (unsigned long)length);
	if (!is_managed(base, length))
		return false;
	if (getenv("STUB_NO_OP"))
		return true;
	if (getenv("STUB_BROKEN"))
		length += 0x1000;
	end_lazy(base, length, false);
	if (getenv("STUB_LOSES"))
		area_add(doomed, &doomed_end, base, length);
	if (eager)
		drop(base, length);
	else
		area_add(lazy, &lazy_end, base, length);
	return true;
}

/* Lazily discarded memory was reclaimed meanwhile: the harshest legal case. */
bool prefetch(uint64_t base, uint64_t length)
{
	note("prefetch %lu", (unsigned long)length);
	if (!is_managed(base, length))
		return false;
	end_lazy(base, length, true);
	if (loses("move"))
		lose(base, length);
	return true;
}

/*
 * "If discarded memory is evicted, the data in the pages backing the evicted virtual range is not
 * copied to the eviction destination and the discard status of the evicted pages is not cleared."
 * (580.105.08, uvm.h, UvmDiscard)
 */
EXPORT void stub_evict(const void *p, size_t length)
{
	uint64_t base = (uintptr_t)p, end = base + length;

	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < lazy_end; i++) {
		uint64_t from = base > lazy[i].base ? base : lazy[i].base;
		uint64_t to = lazy[i].base + lazy[i].length;

		if (to > end)
			to = end;
		if (from < to)
			drop(from, to - from);
	}
	pthread_mutex_unlock(&lock);
}

/* CUDA's memory calls. */

/* UVM's block: large memory begins with one, as the real driver has it. */
#define BLOCK ((size_t)2 << 20)

/*
 * "For all other pointers, this API may perform implicit synchronization." (Driver API,
 * cuMemFree): so with a seed it does not, and the addresses are given out again at once.
 */
static struct area kept[256];

static void *kept_pages(size_t length)
{
	for (size_t i = 0; i < COUNT(kept); i++)
		if (kept[i].length == length) {
			kept[i].length = 0;
			return (void *)kept[i].base;
		}
	return NULL;
}

static bool keep(uint64_t base, uint64_t length)
{
	for (size_t i = 0; i < COUNT(kept); i++)
		if (!kept[i].length) {
			kept[i] = (struct area){ base, length };
			return true;
		}
	return false;
}

/* Where the next managed allocation is to be, if not 0: nothing may be there. */
static uint64_t place;

EXPORT void stub_place(void *p)
{
	place = (uint64_t)p;
}

static void *pages(size_t length)
{
	size_t spare = length >= BLOCK && !place ? BLOCK : 0;
	char *p = mmap((void *)place, length + spare, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE |
		       (place ? MAP_FIXED_NOREPLACE : 0), -1, 0);
	char *aligned;

	place = 0;
	if (p == MAP_FAILED || !spare)
		return p;
	aligned = (char *)(((uintptr_t)p + spare - 1) & ~(spare - 1));
	if (aligned > p)
		munmap(p, aligned - p);
	munmap(aligned + length, p + spare - aligned);
	return aligned;
}

EXPORT CUresult cuMemAllocManaged(CUdeviceptr *out, size_t size, unsigned int flags)
{
	size_t length = (size + 0xfff) & ~(size_t)0xfff;
	CUresult code = enter(true);
	static uint64_t last_id;
	struct area *area;
	void *p;

	if (!code)
		code = safe_in_capture();
	/* Driver API, cuMemAllocManaged: of size 0 it is CUDA_ERROR_INVALID_VALUE. */
	if (!code && !size)
		code = INVALID_VALUE;
	p = code ? MAP_FAILED : kept_pages(length);
	if (!p)
		p = pages(length);
	if (!code && p == MAP_FAILED)
		code = OUT_OF_MEMORY;
	if (!code) {
		note("managed %zu", size);
		area = area_add(managed, &managed_end, (uint64_t)p, length);
		area->id = ++last_id;
		area->context = current();
		*out = (CUdeviceptr)p;
	}
	pthread_mutex_unlock(&lock);
	return code;
}

/* With STUB_MEMORY MiB a GPU, of which all managed memory takes its part; else all is taken. */
EXPORT CUresult cuMemGetInfo_v2(size_t *free, size_t *total)
{
	const char *memory = getenv("STUB_MEMORY");
	CUresult code = enter(true);

	*total = *free = memory ? (size_t)atoi(memory) << 20 : (size_t)1 << 30;
	if (!memory)
		*free = 0;
	for (size_t i = 0; i < managed_end; i++)
		*free -= managed[i].length < *free ? managed[i].length : *free;
	pthread_mutex_unlock(&lock);
	return code;
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t size)
{
	CUresult code = enter(true);

	if (!code)
		code = safe_in_capture();
	if (!code) {
		note("device %zu", size);
		*out = (CUdeviceptr)malloc(size);
		code = *out ? SUCCESS : OUT_OF_MEMORY;
	}
	pthread_mutex_unlock(&lock);
	return code;
}

EXPORT CUresult cuMemAllocPitch_v2(CUdeviceptr *out, size_t *pitch, size_t width, size_t height,
				   unsigned int element)
{
	*pitch = (width + 511) & ~(size_t)511;
	return cuMemAlloc_v2(out, *pitch * height);
}

/* A pool, as the program has asked for it: CUmemPoolProps begins so. */
struct pool_props {
	int kind, handle_types, location_kind, location;
	void *security;
	size_t most_bytes;
	unsigned char reserved[56];
};

static struct pool {
	struct pool_props props;
	/* What is allocated from it, and the most since each of the two was reset. */
	uint64_t used, reserved_high, used_high;
} own_pool[DEVICES] = { { { 1, 0, 1, 0 } }, { { 1, 0, 1, 1 } } }, *current_pool[DEVICES];

/* The last that was destroyed: the next has its handle. */
static struct pool *gone;

EXPORT CUresult cuMemPoolCreate(struct pool **out, const struct pool_props *props)
{
	*out = gone ? gone : malloc(sizeof(**out));
	gone = NULL;
	if (!*out)
		return OUT_OF_MEMORY;
	**out = (struct pool){ *props };
	return SUCCESS;
}

/*
 * "If any pointers obtained from this pool haven't been freed [...] the resources associated with the pool will be
 * released automatically once there are no more outstanding allocations. [...] A device's default memory pool cannot be
 * destroyed." (Driver API, cuMemPoolDestroy): here the resources are not released at all.
 */
EXPORT CUresult cuMemPoolDestroy(struct pool *pool)
{
	for (int device = 0; device < DEVICES; device++)
		if (pool == &own_pool[device])
			return INVALID_VALUE;
	if (!pool->used) {
		free(gone);
		gone = pool;
	}
	meanwhile(POOL_GONE);
	return SUCCESS;
}

/* "The memory pool must be local to the specified device." (Driver API, cuDeviceSetMemPool) */
EXPORT CUresult cuDeviceSetMemPool(int device, struct pool *pool)
{
	if (pool->props.location_kind != 1 || pool->props.location != device)
		return INVALID_VALUE;
	current_pool[device] = pool;
	return SUCCESS;
}

/* "Returns the last pool provided to cuDeviceSetMemPool for this device or the device's default
 * memory pool if cuDeviceSetMemPool has never been called." (Driver API, cuDeviceGetMemPool)
 */
EXPORT CUresult cuDeviceGetMemPool(struct pool **out, int device)
{
	*out = current_pool[device] ? current_pool[device] : &own_pool[device];
	return SUCCESS;
}

/* CUDA's own pools of the host's memory, and of managed memory. */
static struct pool host_pool, managed_pool;

/* "Returns the default memory pool for a given location and allocation type." (Driver API,
 * cuMemGetDefaultMemPool)
 */
EXPORT CUresult cuMemGetDefaultMemPool(struct pool **out, const struct location *place, int kind)
{
	if (kind != 1)
		*out = &managed_pool;
	else
		*out = place->type == 1 ? &own_pool[place->id] : &host_pool;
	return SUCCESS;
}

EXPORT CUresult cuMemGetMemPool(struct pool **out, const struct location *place, int kind)
{
	if (kind == 1 && place->type == 1)
		return cuDeviceGetMemPool(out, place->id);
	return cuMemGetDefaultMemPool(out, place, kind);
}

/* Device memory that comes from pools. */
static struct area from_pool[256];

static CUresult from_device_pool(CUdeviceptr *out, size_t size, struct pool *pool)
{
	*out = (CUdeviceptr)malloc(size);
	if (!*out)
		return OUT_OF_MEMORY;
	for (size_t i = 0; i < COUNT(from_pool); i++)
		if (!from_pool[i].length) {
			from_pool[i] = (struct area){ *out, size, .pool = pool };
			pool->used += size;
			break;
		}
	if (pool->used > pool->used_high)
		pool->used_high = pool->used;
	if (pool->used > pool->reserved_high)
		pool->reserved_high = pool->used;
	return SUCCESS;
}

static void to_device_pool(CUdeviceptr p)
{
	for (size_t i = 0; i < COUNT(from_pool); i++)
		if (from_pool[i].length && from_pool[i].base == p) {
			from_pool[i].pool->used -= from_pool[i].length;
			from_pool[i].length = 0;
		}
}

/*
 * CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT to _USED_MEM_HIGH are 5 to 8: memory that is reserved, its highest, memory that
 * is used, and its highest, each of 64 bits. Here a pool keeps nothing. "High watermark [...] Value must be zero" when it
 * is set (Driver API, cuMemPoolSetAttribute).
 */
EXPORT CUresult cuMemPoolGetAttribute(struct pool *pool, int attribute, uint64_t *value)
{
	if (attribute < 5 || attribute > 8)
		return INVALID_VALUE;
	*value = attribute == 6 ? pool->reserved_high : attribute == 8 ? pool->used_high : pool->used;
	return SUCCESS;
}

EXPORT CUresult cuMemPoolSetAttribute(struct pool *pool, int attribute, const uint64_t *value)
{
	if ((attribute != 6 && attribute != 8) || *value)
		return INVALID_VALUE;
	*(attribute == 6 ? &pool->reserved_high : &pool->used_high) = pool->used;
	return SUCCESS;
}

/*
 * "cuCtxDestroy() will not destroy memory allocations by cuMemCreate(), cuMemAllocAsync() and
 * cuMemAllocFromPoolAsync(). These memory allocations are not associated with any CUDA context and need
 * to be destroyed explicitly." (Driver API, cuCtxDestroy). No sentence asks for a current context, but
 * for that of a default stream.
 */
EXPORT CUresult cuMemAllocAsync(CUdeviceptr *out, size_t size, void *handle)
{
	struct stream *stream;
	struct pool *pool;
	CUresult code = enter(false);

	if (!code)
		code = find_stream(handle, &stream);
	if (!code) {
		note("device %zu", size);
		cuDeviceGetMemPool(&pool, stream->context->device);
		code = from_device_pool(out, size, pool);
	}
	pthread_mutex_unlock(&lock);
	return code;
}

/* CU_MEM_ALLOCATION_TYPE_MANAGED */
#define MANAGED 2

/* What was freed to a pool of managed memory: still there, and as it was discarded. */
static struct area pooled[64];

static CUresult from_managed_pool(CUdeviceptr *out, size_t size, struct pool *pool)
{
	size_t length = (size + BLOCK - 1) & ~(BLOCK - 1);
	struct area *area;
	void *p = NULL;

	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < COUNT(pooled) && !p; i++)
		if (pooled[i].pool == pool && pooled[i].length == length) {
			p = (void *)pooled[i].base;
			pooled[i].length = 0;
		}
	if (!p)
		p = pages(length);
	if (p != MAP_FAILED) {
		area = area_add(managed, &managed_end, (uint64_t)p, length);
		area->pool = pool;
		*out = (CUdeviceptr)p;
	}
	pthread_mutex_unlock(&lock);
	return p == MAP_FAILED ? OUT_OF_MEMORY : SUCCESS;
}

static void to_managed_pool(struct area *area)
{
	for (size_t i = 0; i < COUNT(pooled); i++)
		if (!pooled[i].length) {
			pooled[i] = *area;
			area->length = 0;
			return;
		}
	abort();
}

/* "Allocates memory from a specified pool with stream ordered semantics." (Driver API) */
EXPORT CUresult cuMemAllocFromPoolAsync(CUdeviceptr *out, size_t size, struct pool *pool, void *stream)
{
	note("pool %zu", size);
	if (pool == &managed_pool || pool->props.kind == MANAGED)
		return from_managed_pool(out, size, pool);
	return from_device_pool(out, size, pool);
}

static void free_now(CUdeviceptr p)
{
	for (size_t i = 0; i < managed_end; i++)
		if (managed[i].length && managed[i].base == p) {
			note("free managed");
			if (managed[i].pool) {
				to_managed_pool(&managed[i]);
				return;
			}
			end_lazy(p, managed[i].length, false);
			if (!is_seeded() || !keep(p, managed[i].length))
				munmap((void *)p, managed[i].length);
			managed[i].length = 0;
			return;
		}
	note("free device");
	to_device_pool(p);
	free((void *)p);
}

EXPORT CUresult cuMemFree_v2(CUdeviceptr p)
{
	CUresult code = enter(true);

	if (getenv("STUB_STUCK") && !strcmp(getenv("STUB_STUCK"), "free"))
		pause();
	if (!code)
		code = safe_in_capture();
	if (!code) {
		if (!is_seeded())
			run_all();
		free_now(p);
	}
	pthread_mutex_unlock(&lock);
	return code;
}

void free_memory_of(struct context *context)
{
	for (size_t i = 0; i < managed_end; i++)
		if (managed[i].length && managed[i].context == context)
			free_now(managed[i].base);
}

#define MEMORY_TYPE 2
#define BUFFER_ID 7
#define IS_MANAGED 8

/*
 * "Every memory allocation from any of the CUDA memory allocation APIs will have a unique ID over
 * a process lifetime. Subsequent allocations do not reuse IDs from previous freed allocations."
 * (Driver API, cuPointerGetAttribute). Of managed memory alone here.
 */
EXPORT CUresult cuPointerGetAttribute(void *out, int attribute, CUdeviceptr p)
{
	CUresult code = enter(true);

	if (!code && (attribute == IS_MANAGED || attribute == MEMORY_TYPE)) {
		/* "Note that managed memory may return either" of a device's and the host's (cuPointerGetAttribute). */
		*(unsigned int *)out = attribute == IS_MANAGED ? is_managed(p, 1) : is_managed(p, 1) ? 1 : 2;
	} else if (!code && getenv("STUB_NO_IDS")) {
		code = NOT_SUPPORTED;
	} else if (!code) {
		code = INVALID_VALUE;
		for (size_t i = 0; i < managed_end && attribute == BUFFER_ID; i++)
			if (managed[i].length && p >= managed[i].base &&
			    p < managed[i].base + managed[i].length) {
				*(uint64_t *)out = managed[i].id;
				code = SUCCESS;
			}
	}
	pthread_mutex_unlock(&lock);
	return code;
}

EXPORT CUresult cuPointerGetAttributes(unsigned int count, const int *attributes, void **out,
				       CUdeviceptr p)
{
	CUresult code = SUCCESS;

	for (unsigned int i = 0; i < count && !code; i++)
		code = cuPointerGetAttribute(out[i], attributes[i], p);
	return code;
}

/* "Takes a pointer to the base of an existing device memory allocation created with cuMemAlloc" (Driver API) */
EXPORT CUresult cuIpcGetMemHandle(void *out, CUdeviceptr p)
{
	CUresult code = enter(true);

	if (!code)
		code = is_managed(p, 1) ? INVALID_VALUE : SUCCESS;
	pthread_mutex_unlock(&lock);
	return code;
}

static struct pool *pool_of(CUdeviceptr p)
{
	for (size_t i = 0; i < managed_end; i++)
		if (managed[i].length && managed[i].base == p)
			return managed[i].pool;
	return NULL;
}

EXPORT CUresult cuMemFreeAsync(CUdeviceptr p, void *handle)
{
	struct stream *stream;
	CUresult code = enter(false);

	if (!code)
		code = find_stream(handle, &stream);
	/*
	 * "During stream capture, this function results in the creation of a free node and
	 * must therefore be passed the address of a graph allocation." (Driver API,
	 * cuMemFreeAsync). There are none here.
	 */
	if (!code && stream->capture)
		code = INVALID_VALUE;
	/* What a pool of managed memory gave goes back to it. */
	if (!code && is_managed(p, 1) && !pool_of(p)) {
		violation("cuMemFreeAsync of managed memory");
		code = INVALID_VALUE;
	}
	if (!code) {
		run_all();
		free_now(p);
	}
	pthread_mutex_unlock(&lock);
	return code;
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

/* NV_ERR_* */
#define ILLEGAL_ACTION 0x16
#define INVALID_ADDRESS 0x1e
#define INVALID_ARGUMENT 0x1f
#define NV_INVALID_DEVICE 0x26
#define NV_NO_MEMORY 0x51

/*
 * Whether UVM knows a processor: a GPU that the program uses, or the host. (By which UUID it
 * knows a part of a GPU, no document says: here by none that CUDA tells.)
 */
static bool is_processor(const uint8_t *uuid)
{
	static const uint8_t host[16] = { 0xa6, 0x5e, 0x0f, 0x4e, 0xd7, 0xd4, 0x7b, 0xa2,
					  0x50, 0x47, 0x41, 0x2c, 0x14, 0x2a, 0x77, 0x73 };

	if (!memcmp(uuid, host, sizeof(host)))
		return true;
	for (int i = 0; i < 15; i++)
		if (uuid[i] != (getenv("STUB_MIG") ? 0x62 : 0x60))
			return false;
	return uuid[15] < DEVICES;
}

static bool initialised_by_program;

/* The program has called UVM_INITIALIZE itself. */
EXPORT void stub_initialise_uvm(void)
{
	initialised_by_program = true;
}

static bool uvm_initialised(void)
{
	return initialised || initialised_by_program;
}

static int ours_ioctl(unsigned long nr, void *arg)
{
	switch (nr) {
	case UVM_RUST_GET_VERSION: {
		struct uvm_rust_version *p = arg;

		p->version = UVM_RUST_VERSION;
		p->features = UVM_RUST_FEATURE_DISCARD | UVM_RUST_FEATURE_EXEC_ID;
		return 0;
	}
	case UVM_RUST_DISCARD_BATCH:
		return uvm_initialised() ? uvm_batch(arg) : EPERM;
	case UVM_RUST_ANNOUNCE: {
		struct uvm_rust_announce *p = arg;

		if (!uvm_initialised())
			return EPERM;
		if (p->gpu_uuid[0] != 0x60)
			return ENODEV;
		note("announce %016llx gpu %d", (unsigned long long)p->exec_id, p->gpu_uuid[15]);
		return 0;
	}
	case UVM_RUST_FLASH_MOVE: {
		struct uvm_rust_flash_move_range *p = arg;

		note("spill %lu", (unsigned long)p->length);
		return p->flags || !is_managed(p->base, p->length) ? ENXIO : 0;
	}
	default:
		return ENOSYS;
	}
}

/*
 * With STUB_DUPLICATED the first page of what is discarded was read-duplicated. An eager discard, which
 * breaks that, unmaps this page alone. The rest of the block stays mapped and is marked, as by a lazy
 * discard, which breaks it too: so the next call is complete. (580.142 to 595.45.04, uvm_va_block.c,
 * va_block_discard_locked)
 */
static bool native_discard(uint64_t base, uint64_t length, bool eager)
{
	uint64_t block = (base / BLOCK + 1) * BLOCK, first = 0x1000;
	uint64_t rest = (block - base < length ? block - base : length) - first;

	if (!eager || !getenv("STUB_DUPLICATED") || !rest || is_lazy(base, first + rest))
		return discard(base, length, eager);
	return discard(base, length, true) && discard(base + first, rest, false);
}

static int uvm_ioctl(const char *driver, unsigned long nr, void *arg)
{
	/* Some later driver whose structure has grown. */
	if (nr == 80 && !strcmp(driver, "future")) {
		memset(arg, 0xff, 256);
		return 0;
	}
	if (nr == 80 && strcmp(driver, "old")) {
		struct native_discard *p = arg;

		if (!uvm_initialised())
			p->status = ILLEGAL_ACTION;
		else if (p->flags > 1)
			p->status = INVALID_ARGUMENT;
		else if (fails("UVM_DISCARD"))
			p->status = NV_INVALID_DEVICE;
		else if (fails("UVM_DISCARD unmap"))
			p->status = discard(p->base, p->length, false) ? NV_NO_MEMORY :
									 INVALID_ADDRESS;
		else
			p->status = native_discard(p->base, p->length, p->flags) ? 0 :
										   INVALID_ADDRESS;
		return 0;
	}
	if (nr == 51) {
		struct native_migrate *p = arg;

		if (!uvm_initialised())
			p->status = ILLEGAL_ACTION;
		else if (!p->length)
			p->status = INVALID_ADDRESS;
		else if (!is_processor(p->uuid))
			p->status = NV_INVALID_DEVICE;
		else if (fails("UVM_MIGRATE"))
			p->status = NV_NO_MEMORY;
		else
			p->status = prefetch(p->base, p->length) ? 0 : INVALID_ADDRESS;
		if (getenv("STUB_WHERE"))
			note("migrate %lu %lu %s", (unsigned long)p->base,
			     (unsigned long)p->length, p->uuid[0] == 0x60 ? "gpu" : "host");
		return 0;
	}
	/*
	 * "ioctl %d not found. Did you mean to insmod with uvm_enable_builtin_tests=1?": a number
	 * that NVIDIA's driver does not know is taken for one of its tests, which are off. (550
	 * to 580, uvm_test.c; seen with 580.159.04.)
	 */
	return strcmp(driver, "ours") ? ENOSYS : ours_ioctl(nr, arg);
}

static bool asleep(void)
{
	static atomic_uint asked;
	const char *every = getenv("STUB_ASLEEP");

	if (!every)
		return false;
	return !atoi(every) || atomic_fetch_add(&asked, 1) % atoi(every);
}

EXPORT int ioctl(int fd, unsigned long nr, ...)
{
	const char *number = getenv("UVMRUST_FD"), *driver = getenv("STUB_UVM");
	va_list args;
	void *arg;
	int error;

	va_start(args, nr);
	arg = va_arg(args, void *);
	va_end(args);
	if (tools_ioctl(fd, nr, arg))
		return 0;
	if (!driver || !*driver || !number || atoi(number) != fd)
		return syscall(SYS_ioctl, fd, nr, arg);
	if (asleep()) {
		errno = EAGAIN;
		return -1;
	}
	pthread_mutex_lock(&lock);
	error = uvm_ioctl(driver, nr, arg);
	pthread_mutex_unlock(&lock);
	errno = error;
	return error ? -1 : 0;
}
