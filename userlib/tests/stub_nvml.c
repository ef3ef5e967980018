/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * libnvidia-ml.so.1 without a GPU, as NVML's reference has its calls. It knows one GPU, by the
 * UUID in STUB_NVML_GPU, with PROCESSES processes; of each second one it tells no memory.
 * STUB_NVML_INIT=n has nvmlInit_v2() fail with this error.
 */
#include <stdlib.h>
#include <string.h>

#define PROCESSES 20
/* nvmlReturn_t */
enum { SUCCESS, UNINITIALIZED, NOT_FOUND = 6, INSUFFICIENT_SIZE };

struct memory { unsigned long long total, free, used; };
struct info { unsigned int pid; unsigned long long used; unsigned int gpu, compute; };

static int initialised;

int nvmlInit_v2(void)
{
	const char *error = getenv("STUB_NVML_INIT");

	initialised = !error;
	return error ? atoi(error) : SUCCESS;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **out)
{
	const char *known = getenv("STUB_NVML_GPU");

	if (!initialised)
		return UNINITIALIZED;
	if (!known || strcmp(uuid, known))
		return NOT_FOUND;
	*out = &initialised;
	return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(void *device, struct memory *out)
{
	if (device != &initialised)
		return UNINITIALIZED;
	*out = (struct memory){ 16ull << 30, 12ull << 30, 4ull << 30 };
	return SUCCESS;
}

/* "count: in: size of infos; out: number of processes", which is told where it is too small. */
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned int *count, struct info *infos)
{
	unsigned int room = *count;

	if (device != &initialised)
		return UNINITIALIZED;
	*count = PROCESSES;
	if (room < PROCESSES)
		return INSUFFICIENT_SIZE;
	for (unsigned int i = 0; i < PROCESSES; i++)
		infos[i] = (struct info){ 100 + i, i % 2 ? -1ull : (1ull + i) << 20, -1u, -1u };
	return SUCCESS;
}
