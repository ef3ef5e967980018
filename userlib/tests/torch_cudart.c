/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A CUDA runtime for a real PyTorch without a GPU: libcudart.so.12 on the stub driver
 * library. It is compiled against the header that comes with PyTorch, so the compiler
 * checks what stands here. Two GPUs; copies, memset and the kernel of fill_() on bytes
 * are done, in the order of their streams; other kernels are refused. What PyTorch needs
 * of the runtime and is not here, the test generates (torch.rs): it fails.
 */
#define _GNU_SOURCE
#include <cuda_runtime_api.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* The stub driver library. */
int cuInit(unsigned int);
int cuDevicePrimaryCtxRetain(void **, int);
int cuCtxSetCurrent(void *);
int cuCtxGetDevice(int *);
int cuCtxSynchronize(void);
int cuStreamCreate(void **, unsigned int);
int cuStreamSynchronize(void *);
int cuStreamWaitEvent(void *, void *, unsigned int);
int cuStreamIsCapturing(void *, int *);
int cuEventCreate(void **, unsigned int);
int cuEventRecord(void *, void *);
int cuEventDestroy_v2(void *);
int cuLaunchHostFunc(void *, void (*)(void *), void *);
void stub_uses(const void *, size_t);

#define GPUS 2

/* The first call of a thread makes the first device current. */
static void begin(void)
{
	void *context;
	int device;

	cuInit(0);
	if (cuCtxGetDevice(&device) && !cuDevicePrimaryCtxRetain(&context, 0))
		cuCtxSetCurrent(context);
}

cudaError_t cudaGetDeviceCount(int *count)
{
	*count = GPUS;
	return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
	begin();
	return cuCtxGetDevice(device);
}

cudaError_t cudaSetDevice(int device)
{
	void *context;

	begin();
	if (cuDevicePrimaryCtxRetain(&context, device))
		return cudaErrorInvalidDevice;
	return cuCtxSetCurrent(context);
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device)
{
	memset(p, 0, sizeof(*p));
	strcpy(p->name, "stub");
	p->totalGlobalMem = (size_t)1 << 30;
	p->major = 9;
	p->warpSize = 32;
	p->multiProcessorCount = 1;
	p->maxThreadsPerBlock = p->maxThreadsPerMultiProcessor = 1024;
	p->maxThreadsDim[0] = p->maxGridSize[0] = 1 << 20;
	return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
	*value = 0;
	return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
	*can = 0;
	return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
	*least = *greatest = 0;
	return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version)
{
	*version = CUDART_VERSION;
	return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
	*version = CUDART_VERSION;
	return cudaSuccess;
}

const char *cudaGetErrorString(cudaError_t error)
{
	return "an error of the stub runtime";
}

const char *cudaGetErrorName(cudaError_t error)
{
	return "cudaErrorOfTheStub";
}

cudaError_t cudaGetLastError(void)
{
	return cudaSuccess;
}

cudaError_t cudaPeekAtLastError(void)
{
	return cudaSuccess;
}

/*
 * Memory for PyTorch's own allocator, at rising addresses, as its choice between free blocks of
 * one size is by address. Nobody touches it, so it has no pages.
 */
cudaError_t cudaMalloc(void **out, size_t size)
{
	static char *next;

	if (!next)
		next = mmap(NULL, (size_t)1 << 42, PROT_NONE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (next == MAP_FAILED)
		return cudaErrorMemoryAllocation;
	*out = next;
	next += (size + (2 << 20) - 1) & ~(size_t)((2 << 20) - 1);
	return cudaSuccess;
}

cudaError_t cudaFree(void *memory)
{
	return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *free, size_t *total)
{
	*free = *total = (size_t)1 << 40;
	return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void)
{
	begin();
	return cuCtxSynchronize();
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned int flags, int priority)
{
	begin();
	return cuStreamCreate((void **)stream, flags);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
	begin();
	return cuStreamSynchronize(stream);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status)
{
	begin();
	return cuStreamIsCapturing(stream, (int *)status);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags)
{
	begin();
	return cuStreamWaitEvent(stream, event, 0);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags)
{
	begin();
	return cuEventCreate((void **)event, flags);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
	begin();
	return cuEventRecord(event, stream);
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned int flags)
{
	return cudaEventRecord(event, stream);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
	return cuEventDestroy_v2(event);
}

/* Work, in the order of a stream. */

struct bytes {
	void *to;
	const void *from;
	unsigned char value;
	size_t count;
};

static void do_bytes(void *data)
{
	struct bytes *b = data;

	stub_uses(b->to, b->count);
	if (b->from)
		stub_uses(b->from, b->count);
	if (b->from)
		memcpy(b->to, b->from, b->count);
	else
		memset(b->to, b->value, b->count);
	free(b);
}

static cudaError_t put(cudaStream_t stream, struct bytes bytes)
{
	struct bytes *copy = malloc(sizeof(*copy));

	begin();
	*copy = bytes;
	return cuLaunchHostFunc(stream, do_bytes, copy);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t count, enum cudaMemcpyKind kind,
			    cudaStream_t stream)
{
	return put(stream, (struct bytes){ to, from, 0, count });
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t count, cudaStream_t stream)
{
	return put(stream, (struct bytes){ to, NULL, value, count });
}

/* Kernels, by the names under which PyTorch registers them. */

static struct {
	const void *host;
	char *name;
} kernels[1 << 17];
static size_t kernel_count;

void **__cudaRegisterFatBinary(void *binary)
{
	static void *handle;

	return &handle;
}

void __cudaRegisterFatBinaryEnd(void **handle)
{
}

void __cudaUnregisterFatBinary(void **handle)
{
}

char __cudaInitModule(void **handle)
{
	return 0;
}

void __cudaRegisterVar(void **handle, char *host, char *address, const char *name, int ext,
		       size_t size, int constant, int global)
{
}

void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name,
			    int limit, void *tid, void *bid, void *block, void *grid, int *size)
{
	if (kernel_count == sizeof(kernels) / sizeof(*kernels))
		abort();
	kernels[kernel_count].host = host;
	kernels[kernel_count++].name = strdup(name);
}

static _Thread_local struct {
	dim3 grid, block;
	size_t shared;
	void *stream;
} pushed;

unsigned int __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void *stream)
{
	pushed.grid = grid;
	pushed.block = block;
	pushed.shared = shared;
	pushed.stream = stream;
	return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream)
{
	*grid = pushed.grid;
	*block = pushed.block;
	*shared = pushed.shared;
	*(void **)stream = pushed.stream;
	return cudaSuccess;
}

/* A kernel of fill_(): how many elements, the value, and where they are. */
cudaError_t cudaLaunchKernel(const void *host, dim3 grid, dim3 block, void **args, size_t shared,
			     cudaStream_t stream)
{
	for (size_t i = 0; i < kernel_count; i++)
		if (kernels[i].host == host && strstr(kernels[i].name, "vectorized_elementwise") &&
		    strstr(kernels[i].name, "FillFunctorIhE"))
			return put(stream, (struct bytes){ *(void **)args[2], NULL,
							   *(unsigned char *)args[1],
							   *(int *)args[0] });
	for (size_t i = 0; i < kernel_count; i++)
		if (kernels[i].host == host)
			fprintf(stderr, "stub runtime: no kernel %s\n", kernels[i].name);
	return cudaErrorNotSupported;
}
