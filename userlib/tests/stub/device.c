/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Devices, contexts and kernels, and how the functions are found. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "stub.h"

bool initialised;
/* The process that has called cuInit(): in its children CUDA is not initialised. */
static pid_t owner;

static bool here(void)
{
	return initialised && owner == getpid();
}

static struct context primary[DEVICES] = { { 0 }, { 1 } };
static struct context green[DEVICES] = { { 0, .primary = &primary[0] }, { 1, .primary = &primary[1] } };
static unsigned int retained[DEVICES];
/* The thread's stack of contexts. */
static _Thread_local struct context *stack[32];
static _Thread_local size_t depth;

struct context *current(void)
{
	return depth ? stack[depth - 1] : NULL;
}

/*
 * "If cuInit() has not been called, any function from the driver API will return
 * CUDA_ERROR_NOT_INITIALIZED." (Driver API, Initialization). Host functions may call
 * none (cuLaunchHostFunc), nor may the destructors of user objects: "Destructor
 * callbacks cannot make CUDA API calls" (cuUserObjectCreate). Takes the lock, also if
 * it fails.
 */
CUresult enter_function(const char *name, bool needs_context)
{
	called();
	pthread_mutex_lock(&lock);
	if (in_host_function) {
		violation("a host function calls CUDA");
		return NOT_PERMITTED;
	}
	if (!here())
		return NOT_INITIALIZED;
	if (needs_context && !depth)
		return INVALID_CONTEXT;
	if (fails(name))
		return OUT_OF_MEMORY;
	some_time_passes();
	return SUCCESS;
}

/* The same for those that need no lock. */
static bool in_callback(void)
{
	called();
	if (in_host_function) {
		pthread_mutex_lock(&lock);
		violation("a host function calls CUDA");
		pthread_mutex_unlock(&lock);
	}
	return in_host_function;
}

static unsigned int calls;

void called(void)
{
	__atomic_fetch_add(&calls, 1, __ATOMIC_SEQ_CST);
}

/* How often CUDA was called, but for calls that only ask for a number. */
EXPORT unsigned int stub_calls(void)
{
	return __atomic_load_n(&calls, __ATOMIC_SEQ_CST);
}

static bool stuck(const char *where)
{
	const char *set = getenv("STUB_STUCK");

	return set && !strcmp(set, where);
}

EXPORT CUresult cuInit(unsigned int flags)
{
	pid_t child;

	pthread_mutex_lock(&lock);
	initialised = true;
	owner = getpid();
	pthread_mutex_unlock(&lock);
	if (stuck("descriptors")) {
		fprintf(stderr, "the stub begins\n");
		/* As a thread that no signal ends keeps what is open: longer than any test takes, which ends it. */
		child = fork();
		if (!child) {
			sleep(1200);
			dprintf(STDERR_FILENO, "the stub ends\n");
			_exit(0);
		}
		note("keeps %d", child);
	}
	return SUCCESS;
}

/* What CUDA does at exit, of a process that has used it. */
__attribute__((destructor)) static void at_exit(void)
{
	if (initialised && stuck("exit"))
		pause();
}

EXPORT CUresult cuDriverGetVersion(int *version)
{
#ifdef STUB_NO_DISCARD
	*version = 12080;
#else
	*version = 13000;
#endif
	return SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxRetain(void **context, int device)
{
	if (in_callback())
		return NOT_PERMITTED;
	if (!initialised)
		return NOT_INITIALIZED;
	if (device < 0 || device >= DEVICES)
		return INVALID_DEVICE;
	pthread_mutex_lock(&lock);
	retained[device]++;
	pthread_mutex_unlock(&lock);
	*context = &primary[device];
	return SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxGetState(int device, unsigned int *flags, int *active)
{
	if (device < 0 || device >= DEVICES)
		return INVALID_DEVICE;
	pthread_mutex_lock(&lock);
	*flags = 0;
	*active = retained[device] > 0;
	pthread_mutex_unlock(&lock);
	return SUCCESS;
}

/*
 * "The primary context is automatically reset once the last reference to it is released." (Driver
 * API, cuDevicePrimaryCtxRelease)
 */
static CUresult release(int device)
{
	CUresult code = enter(false);
	bool is_last = false;

	if (!code && !retained[device])
		code = INVALID_CONTEXT;
	if (!code && !--retained[device]) {
		run_context(&primary[device]);
		free_memory_of(&primary[device]);
		primary[device].ends++;
		is_last = true;
		note("release");
		/* Other contexts' work may run at any time, and so before this is over. */
		run_all();
	}
	pthread_mutex_unlock(&lock);
	if (is_last)
		meanwhile(RELEASED);
	return code;
}

EXPORT CUresult cuDevicePrimaryCtxRelease_v2(int device)
{
	return release(device);
}

/* As all programs called it before CUDA 11. */
EXPORT CUresult cuDevicePrimaryCtxRelease(int device)
{
	return release(device);
}

/*
 * "Explicitly destroys and cleans up all resources associated with the current device in
 * the current process." (Runtime API, cudaDeviceReset)
 */
static CUresult reset(int device)
{
	CUresult code = enter(false);

	if (!code) {
		run_all();
		free_memory_of(&primary[device]);
		primary[device].ends++;
		note("reset");
	}
	pthread_mutex_unlock(&lock);
	return code;
}

EXPORT CUresult cuDevicePrimaryCtxReset_v2(int device)
{
	return reset(device);
}

EXPORT CUresult cuDevicePrimaryCtxReset(int device)
{
	return reset(device);
}

/*
 * "The context is created with a usage count of 1 and the caller of cuCtxCreate() must call
 * cuCtxDestroy() when done using the context. If a context is already current to the thread, it is
 * supplanted by the newly created context" (Driver API, cuCtxCreate)
 */
EXPORT CUresult cuCtxCreate_v2(void **out, unsigned int flags, int device)
{
	struct context *context;
	CUresult code = enter(false);

	if (!code && (device < 0 || device >= DEVICES))
		code = INVALID_DEVICE;
	if (!code && depth == COUNT(stack))
		code = OUT_OF_MEMORY;
	if (!code) {
		context = calloc(1, sizeof(*context));
		if (!context)
			abort();
		context->device = device;
		*out = stack[depth++] = context;
	}
	pthread_mutex_unlock(&lock);
	return code;
}

/*
 * "If ctx is current to the calling thread then ctx will also be popped from the current thread's
 * context stack (as though cuCtxPopCurrent() were called)." Resources of the context "include memory
 * allocations by cuMemAlloc(), cuMemAllocHost(), cuMemAllocManaged() and cuMemAllocPitch()." (Driver
 * API, cuCtxDestroy). Its streams stay, which nobody uses any more.
 */
static CUresult destroy(void *context)
{
	CUresult code = enter(false);

	if (!code) {
		run_all();
		free_memory_of(context);
		((struct context *)context)->ends++;
		if (current() == context)
			depth--;
		note("destroy");
	}
	pthread_mutex_unlock(&lock);
	return code;
}

EXPORT CUresult cuCtxDestroy_v2(void *context)
{
	return destroy(context);
}

EXPORT CUresult cuCtxDestroy(void *context)
{
	return destroy(context);
}

/*
 * "Decrements the usage count of the context ctx, and destroys the context if the usage count goes to
 * 0." (Driver API, cuCtxDetach). Nobody attaches here.
 */
EXPORT CUresult cuCtxDetach(void *context)
{
	return destroy(context);
}

/* A call that no preload knows. */
EXPORT void stub_destroy(void *context)
{
	destroy(context);
}

/* A green context of this device, as cuCtxFromGreenCtx() gives it, and a stream of it. */
EXPORT void stub_green(int device, void **context, void **stream)
{
	pthread_mutex_lock(&lock);
	*context = &green[device];
	*stream = create_green_stream(&green[device]);
	pthread_mutex_unlock(&lock);
}

/*
 * "It should be noted that a green context can be current to only one thread at a time. There is no
 * internal synchronization to make API calls accessing the same green context from multiple threads
 * work." (Driver API, cuGreenCtxCreate)
 */
static void hold(struct context *context)
{
	if (!context || !context->primary)
		return;
	pthread_mutex_lock(&lock);
	if (context->held && !pthread_equal(context->holder, pthread_self()))
		violation("a green context is current to two threads");
	context->holder = pthread_self();
	context->held++;
	pthread_mutex_unlock(&lock);
}

static void let_go(struct context *context)
{
	if (!context || !context->primary)
		return;
	pthread_mutex_lock(&lock);
	context->held--;
	pthread_mutex_unlock(&lock);
}

/*
 * "If there exists a CUDA context stack on the calling CPU thread, this will replace the
 * top of that stack with ctx. If ctx is NULL, this will be equivalent to popping the top
 * of the calling CPU thread's CUDA context stack" (Driver API, cuCtxSetCurrent)
 */
EXPORT CUresult cuCtxSetCurrent(void *context)
{
	if (in_callback())
		return NOT_PERMITTED;
	let_go(current());
	hold(context);
	if (!depth)
		depth = 1;
	stack[depth - 1] = context;
	if (!context)
		depth--;
	return SUCCESS;
}

EXPORT CUresult cuCtxGetCurrent(void **context)
{
	if (in_callback())
		return NOT_PERMITTED;
	*context = current();
	return SUCCESS;
}

EXPORT CUresult cuCtxPushCurrent_v2(void *context)
{
	if (in_callback())
		return NOT_PERMITTED;
	if (depth == COUNT(stack))
		return OUT_OF_MEMORY;
	hold(context);
	stack[depth++] = context;
	return SUCCESS;
}

EXPORT CUresult cuCtxPopCurrent_v2(void **context)
{
	if (in_callback())
		return NOT_PERMITTED;
	if (!depth)
		return INVALID_CONTEXT;
	let_go(current());
	depth--;
	if (context)
		*context = stack[depth];
	return SUCCESS;
}

EXPORT CUresult cuCtxGetDevice(int *device)
{
	if (in_callback())
		return NOT_PERMITTED;
	if (!depth)
		return INVALID_CONTEXT;
	*device = current()->device;
	return SUCCESS;
}

EXPORT CUresult cuDeviceGetCount(int *count)
{
	if (in_callback())
		return NOT_PERMITTED;
	*count = DEVICES;
	return here() ? SUCCESS : NOT_INITIALIZED;
}

EXPORT CUresult cuDeviceGet(int *device, int ordinal)
{
	if (in_callback())
		return NOT_PERMITTED;
	*device = ordinal;
	if (!initialised)
		return NOT_INITIALIZED;
	return ordinal < 0 || ordinal >= DEVICES ? INVALID_DEVICE : SUCCESS;
}

static CUresult get_uuid(uint8_t *uuid, uint8_t byte, int device)
{
	if (in_callback())
		return NOT_PERMITTED;
	memset(uuid, byte, 16);
	uuid[15] = device;
	return SUCCESS;
}

EXPORT CUresult cuDeviceGetUuid(uint8_t *uuid, int device)
{
	return get_uuid(uuid, 0x60, device);
}

/*
 * "If the device is in MIG mode, returns its MIG UUID which uniquely identifies the subscribed
 * MIG compute instance." (Driver API, cuDeviceGetUuid, which is this version since CUDA 12)
 */
EXPORT CUresult cuDeviceGetUuid_v2(uint8_t *uuid, int device)
{
	return get_uuid(uuid, getenv("STUB_MIG") ? 0x61 : 0x60, device);
}

/*
 * Kernels. A function is a struct kernel of the program's. Its parameters: the memory
 * that it uses, 8 bytes; how much of it, 8 bytes; and a number, 4 bytes (8 for "put",
 * which writes that number, and "get", which tells what it reads in the structure that
 * stands there). Others write 0x5a.
 */
struct kernel {
	const char *name;
};

EXPORT CUresult cuFuncGetName(const char **name, struct kernel *k)
{
	*name = k->name;
	return SUCCESS;
}

/* A kernel whose name begins with "wide" is given a structure by value besides, as PyTorch's are. */
EXPORT CUresult cuFuncGetParamInfo(struct kernel *k, size_t i, size_t *offset, size_t *size)
{
	static const size_t sizes[] = { 8, 8, 4, 512 };

	if (i >= COUNT(sizes) - !!strncmp(k->name, "wide", 4))
		return INVALID_VALUE;
	*offset = i * 8;
	*size = sizes[i];
	return SUCCESS;
}

/*
 * "A kernel launch will fail if it is issued to a stream that is not associated to the
 * current device" (Programming Guide, Stream and Event Behavior)
 */
static CUresult launch(struct kernel *k, void *handle, void **params)
{
	struct work work = { KERNEL, .name = k->name };
	struct stream *stream;
	CUresult code = enter(true);

	if (!code)
		code = find_stream(handle, &stream);
	if (!code && stream->context != current())
		code = INVALID_HANDLE;
	if (!code && params) {
		work.base = *(uint64_t *)params[0];
		work.length = *(uint64_t *)params[1];
		if (!strcmp(k->name, "put") || !strcmp(k->name, "get"))
			work.value = *(uint64_t *)params[2];
	}
	if (!code)
		code = enqueue(stream, work);
	pthread_mutex_unlock(&lock);
	return code;
}

EXPORT CUresult cuLaunchKernel(struct kernel *k, unsigned int gx, unsigned int gy, unsigned int gz,
			       unsigned int bx, unsigned int by, unsigned int bz,
			       unsigned int shared, void *stream, void **params, void **extra)
{
	return launch(k, stream, params);
}

struct config {
	unsigned int grid[3], block[3], shared;
	void *stream, *attrs;
	unsigned int count;
};

EXPORT CUresult cuLaunchKernelEx(const struct config *c, struct kernel *k, void **params,
				 void **extra)
{
	return launch(k, c->stream, params);
}

EXPORT CUresult cuLaunchCooperativeKernel(struct kernel *k, unsigned int gx, unsigned int gy,
					  unsigned int gz, unsigned int bx, unsigned int by,
					  unsigned int bz, unsigned int shared, void *stream,
					  void **params)
{
	return launch(k, stream, params);
}

/* By a kernel: "Sets the memory range of N 32-bit values to the specified value ui." */
EXPORT CUresult cuMemsetD32Async(uint64_t base, unsigned int value, size_t n, void *handle)
{
	struct work work = { KERNEL, .name = "put", .base = base, .length = 4 * n };
	struct stream *stream;
	CUresult code = enter(true);

	work.value = (uint64_t)value << 32 | value;
	if (!code)
		code = find_stream(handle, &stream);
	if (!code)
		code = enqueue(stream, work);
	pthread_mutex_unlock(&lock);
	return code;
}

EXPORT CUresult cuModuleUnload(void *module)
{
	note("unload");
	return SUCCESS;
}

/* With the default stream of a thread: only this one differs, as far as is used. */
EXPORT CUresult cuLaunchKernel_ptsz(struct kernel *k, unsigned int gx, unsigned int gy,
				    unsigned int gz, unsigned int bx, unsigned int by,
				    unsigned int bz, unsigned int shared, void *stream,
				    void **params, void **extra)
{
	return launch(k, stream ? stream : (void *)2, params);
}

/* Gives the library's own functions, as the real one does; no preload sees that. */

#define FUNCTION(name, version) { #name, name##version }
#define DECLARE(name) CUresult name(void)
#define PER_THREAD_FLAG 2

DECLARE(cuDeviceGetAttribute);
DECLARE(cuMemAlloc_v2);
DECLARE(cuMemAllocPitch_v2);
DECLARE(cuMemAllocAsync);
DECLARE(cuMemAllocManaged);
DECLARE(cuMemFree_v2);
DECLARE(cuMemFreeAsync);
DECLARE(cuGraphLaunch);
DECLARE(cuStreamSynchronize);

static const struct {
	const char *name;
	void *function;
} functions[] = {
	FUNCTION(cuInit, ),
	FUNCTION(cuDevicePrimaryCtxRetain, ),
	FUNCTION(cuCtxGetCurrent, ),
	FUNCTION(cuCtxSetCurrent, ),
	FUNCTION(cuDeviceGetAttribute, ),
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

EXPORT CUresult cuGetProcAddress_v2(const char *name, void **out, int version, uint64_t flags,
				    int *found)
{
	*out = NULL;
	if (!strcmp(name, "cuLaunchKernel") && (flags & PER_THREAD_FLAG))
		*out = cuLaunchKernel_ptsz;
	for (size_t i = 0; i < COUNT(functions) && !*out; i++)
		if (!strcmp(functions[i].name, name))
			*out = functions[i].function;
	if (found)
		*found = !*out;
	return *out ? SUCCESS : NOT_FOUND;
}
