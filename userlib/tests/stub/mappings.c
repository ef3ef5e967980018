/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Memory that a program maps by itself: handles, reserved addresses, and which is where. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include "stub.h"

/* A piece of memory: "a memory handle representing a memory allocation" (Driver API, cuMemCreate). */
struct piece {
	int file;
	size_t size;
	unsigned int mapped;
	bool released;
};

static struct mapping {
	uint64_t base, length;
	struct piece *piece;
} mappings[64];

/* CUmemAllocationProp and CUmemAccessDesc, as far as they are looked at. */
struct props {
	int kind, handle_types;
	struct location location;
};

struct access {
	struct location location;
	int flags;
};

/* What a device needs that a program may use the functions here. */
#define VIRTUAL_MEMORY_MANAGEMENT 102

EXPORT CUresult cuDeviceGetAttribute(int *value, int attribute, int device)
{
	if (device < 0 || device >= DEVICES)
		return INVALID_DEVICE;
	*value = attribute == VIRTUAL_MEMORY_MANAGEMENT ? 1 : attribute;
	return SUCCESS;
}

/* Addresses where nothing is; a handle's memory where there is one. */
static bool place(uint64_t base, size_t length, const struct piece *piece)
{
	int flags = (piece ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE) | MAP_FIXED;

	return mmap((void *)base, length, PROT_NONE, flags, piece ? piece->file : -1, 0) !=
	       MAP_FAILED;
}

/* "Any backing memory allocations will be freed if there are no existing mappings and there are no
 * unreleased memory handles." (Driver API, cuMemUnmap)
 */
static void may_end(struct piece *piece)
{
	if (!piece->released || piece->mapped)
		return;
	note("piece gone");
	close(piece->file);
	free(piece);
}

EXPORT CUresult cuMemAddressReserve(CUdeviceptr *out, size_t size, size_t alignment,
				    CUdeviceptr hint, unsigned long long flags)
{
	CUresult code = enter(true);
	void *p;

	if (!code && (!size || flags))
		code = INVALID_VALUE;
	if (!code) {
		p = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		note("reserve %zu", size);
		*out = (CUdeviceptr)p;
		code = p == MAP_FAILED ? OUT_OF_MEMORY : SUCCESS;
	}
	pthread_mutex_unlock(&lock);
	return code;
}

EXPORT CUresult cuMemAddressFree(CUdeviceptr base, size_t size)
{
	CUresult code = enter(true);

	if (!code) {
		note("unreserve %zu", size);
		munmap((void *)base, size);
	}
	pthread_mutex_unlock(&lock);
	return code;
}

EXPORT CUresult cuMemCreate(struct piece **out, size_t size, const struct props *props,
			    unsigned long long flags)
{
	CUresult code = enter(true);
	struct piece *piece;

	if (!code && (!size || props->kind != 1 || flags))
		code = INVALID_VALUE;
	if (!code) {
		piece = calloc(1, sizeof(*piece));
		piece->size = size;
		piece->file = memfd_create("piece", 0);
		if (ftruncate(piece->file, size))
			abort();
		note("piece %zu handles %d in %d", size, props->handle_types, props->location.type);
		*out = piece;
	}
	pthread_mutex_unlock(&lock);
	return code;
}

EXPORT CUresult cuMemRelease(struct piece *piece)
{
	CUresult code = enter(true);

	if (!code) {
		piece->released = true;
		may_end(piece);
	}
	pthread_mutex_unlock(&lock);
	return code;
}

EXPORT CUresult cuMemMap(CUdeviceptr base, size_t size, size_t offset, struct piece *piece,
			 unsigned long long flags)
{
	CUresult code = enter(true);
	size_t at = 0;

	if (!code && (offset || flags || size != piece->size))
		code = INVALID_VALUE;
	while (at < COUNT(mappings) && mappings[at].length)
		at++;
	if (!code && at == COUNT(mappings))
		code = OUT_OF_MEMORY;
	if (!code && !place(base, size, piece))
		abort();
	if (!code) {
		note("map %zu", size);
		mappings[at] = (struct mapping){ base, size, piece };
		piece->mapped++;
	}
	pthread_mutex_unlock(&lock);
	return code;
}

/* "The range must be the entire contiguous address range that was mapped to." (cuMemUnmap) */
EXPORT CUresult cuMemUnmap(CUdeviceptr base, size_t size)
{
	CUresult code = enter(true);

	if (!code)
		code = INVALID_VALUE;
	for (size_t i = 0; i < COUNT(mappings) && code == INVALID_VALUE; i++) {
		if (mappings[i].base != base || mappings[i].length != size)
			continue;
		note("unmap %zu", size);
		if (!place(base, size, NULL))
			abort();
		mappings[i].length = 0;
		mappings[i].piece->mapped--;
		may_end(mappings[i].piece);
		code = SUCCESS;
	}
	pthread_mutex_unlock(&lock);
	return code;
}

/* "All mappings start with no accessibility setup." (Driver API, cuMemUnmap) */
EXPORT CUresult cuMemSetAccess(CUdeviceptr base, size_t size, const struct access *access,
			       size_t count)
{
	CUresult code = enter(true);
	int flags = count && access->flags == 3 ? PROT_READ | PROT_WRITE : PROT_NONE;

	if (!code && mprotect((void *)base, size, flags))
		code = INVALID_VALUE;
	pthread_mutex_unlock(&lock);
	return code;
}
