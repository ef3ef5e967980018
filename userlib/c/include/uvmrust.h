/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * uvmrust.h - discard of unified memory
 *
 * Tells the UVM driver that nobody will read what stands in a buffer of managed
 * memory (cudaMallocManaged). The driver then neither copies it out when it
 * evicts it nor in when it is used again. See uvmrust(7).
 *
 * All functions may be called by any threads at the same time. Those that return
 * int return 0 or one of UVMRUST_E*, all negative. A child of fork() does not use its
 * parent's descriptor: it has no backend, unless it gives UvmRustUseFd() its own.
 */
#ifndef UVMRUST_H
#define UVMRUST_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Errors. UvmRustStrError() has a sentence for each. */
#define UVMRUST_ENOTSUPPORTED	(-1)	/* no driver here can discard; nothing changed */
#define UVMRUST_EINVALID	(-2)	/* bad address, length, flag or pointer */
#define UVMRUST_ENOTMANAGED	(-3)	/* not, as a whole, managed memory of this process */
#define UVMRUST_ENOMEMORY	(-4)	/* no memory, in the driver or here */
#define UVMRUST_ENOCONTEXT	(-5)	/* needs a CUDA context, which this thread has not */
#define UVMRUST_ENODEVICE	(-6)	/* a GPU that this process does not use */
#define UVMRUST_EINTERRUPTED	(-7)	/* a fatal signal came */
#define UVMRUST_EDRIVER		(-8)	/* the driver failed, or refused after some ranges were done; see the kernel log */
#define UVMRUST_ECAPTURE	(-9)	/* a stream is being captured, and this is not done in a graph; nothing changed */
#define UVMRUST_EBUSY		(-10)	/* the driver stayed busy, or the system is about to sleep; try again */

/* Who discards: UvmRustBackend(). */
#define UVMRUST_BACKEND_NONE	0	/* nobody: no UVM yet, or a driver that can not */
#define UVMRUST_BACKEND_UVMRUST	1	/* uvm-rust's driver */
#define UVMRUST_BACKEND_NATIVE	2	/* NVIDIA's driver, from 580 on */
#define UVMRUST_BACKEND_CUDA	3	/* CUDA 13: cuMemDiscardBatchAsync */

/* Flag of the batch calls: as UvmDiscardLazy() does. */
#define UVMRUST_LAZY		1u

/* A CUstream or cudaStream_t; NULL is the default stream. */
typedef void *uvmrust_stream;

/**
 * struct uvmrust_range - some managed memory
 * @base:   first byte, as an integer
 * @length: bytes
 */
struct uvmrust_range {
	uint64_t base;
	uint64_t length;
};

/**
 * struct uvmrust_result - what became of a batch
 * @done:             ranges done; after an error, index of the range that failed.
 *                    With UVMRUST_BACKEND_CUDA, ranges are done in groups of up to
 *                    64, and this is the first of the group
 * @blocks_discarded: 2 MiB blocks of which all that was asked for is discarded
 * @blocks_skipped:   blocks left as they were
 * @blocks_partial:   blocks discarded in part
 * @counted:          not 0 if the driver counted blocks (uvm-rust's does); else the
 *                    three numbers are 0
 */
struct uvmrust_result {
	size_t done;
	uint64_t blocks_discarded;
	uint64_t blocks_skipped;
	uint64_t blocks_partial;
	int counted;
};

/**
 * UvmDiscard() - nobody will read what stands here
 * @base:   first byte of managed memory
 * @length: bytes
 *
 * All work on the memory, on the host and on GPUs, must be done before. Until it is
 * written again, a read gives indeterminate data, which may differ from one read to
 * the next: zeros or older values with uvm-rust's driver, but NVIDIA's and CUDA 13
 * promise nothing (docs/discard-guide.md has a table). A value written after it is
 * kept. Costs an unmap, and a fault at the next access
 * unless a prefetch comes first.
 *
 * Nor may the memory be migrated meanwhile, by UvmPrefetch(), g10_prefetch() or
 * cudaMemPrefetchAsync(): NVIDIA's driver leaves it to the caller that the one comes after
 * the other.
 *
 * Only the whole pages inside the range are discarded; a range without any is a
 * success. How much of a partly covered 2 MiB block is discarded, is the driver's
 * choice.
 */
int UvmDiscard(void *base, size_t length);

/**
 * UvmDiscardLazy() - as UvmDiscard(), but cheaper, for memory that is prefetched
 * @base:   first byte of managed memory
 * @length: bytes
 *
 * Nothing is unmapped, so the driver does not see the next access. The memory must
 * be prefetched, with UvmPrefetch() or cudaMemPrefetchAsync(), before it is next
 * written or read; what is written before that may be lost. After the prefetch it holds
 * what UvmDiscard() leaves, until it is written.
 */
int UvmDiscardLazy(void *base, size_t length);

/**
 * UvmDiscardBatch() - discard several ranges in one call
 * @ranges: array of @count ranges; they may overlap
 * @count:  how many
 * @flags:  0, or UVMRUST_LAZY
 * @result: what became of it, also after an error; may be NULL
 *
 * Stops at the first range that fails; those before it are discarded, and it may be
 * in part. UVMRUST_ENOTSUPPORTED says that none is: where a driver refuses after it has
 * discarded some, this returns UVMRUST_EDRIVER.
 */
int UvmDiscardBatch(const struct uvmrust_range *ranges, size_t count,
		    unsigned int flags, struct uvmrust_result *result);

/**
 * UvmDiscardBatchAsync() - discard in the order of a stream
 * @ranges: array of @count ranges; read before the call returns
 * @count:  how many
 * @flags:  0, or UVMRUST_LAZY
 * @stream: a stream of the current context
 *
 * The memory is discarded when all work before it in @stream is done, and before
 * any after it starts. Errors of that moment are told by UvmRustStreamError(). The
 * memory must not be freed before: cudaFree() need not wait for it.
 * After an error, the discards of the ranges before the one that failed have taken their
 * turn in @stream, or are done.
 *
 * No other thread may begin or end a capture of @stream during the call: what is to be
 * done once, and what each launch of a graph does, are enqueued differently.
 *
 * While @stream is being captured, the discard becomes a node of the graph, which owns
 * a copy of the ranges: it is done at each launch. Where it can not (with
 * UVMRUST_BACKEND_CUDA, before CUDA 11.3), and in the legacy stream while a blocking
 * stream is being captured, this returns UVMRUST_ECAPTURE, and the capture goes on.
 */
int UvmDiscardBatchAsync(const struct uvmrust_range *ranges, size_t count,
			 unsigned int flags, uvmrust_stream stream);

/**
 * UvmPrefetch() - bring memory to a GPU, and make it usable after UvmDiscardLazy()
 * @base:     first byte of managed memory
 * @length:   bytes; all pages touched are brought
 * @gpu_uuid: the GPU (UvmRustDeviceUuid()); NULL: to the host
 *
 * Returns when it is done. Works on drivers without discard too. Memory that was lazily
 * discarded holds what UvmDiscard() leaves then, until it is written.
 */
int UvmPrefetch(void *base, size_t length, const uint8_t gpu_uuid[16]);

/**
 * UvmPrefetchAsync() - the same, in the order of a stream
 * @base:     first byte of managed memory
 * @length:   bytes
 * @gpu_uuid: the GPU; NULL: to the host
 * @stream:   a stream of the current context
 *
 * A prefetch is not documented as capturable: UVMRUST_ECAPTURE while @stream is captured.
 * No other thread may begin a capture of it during the call.
 */
int UvmPrefetchAsync(void *base, size_t length, const uint8_t gpu_uuid[16],
		     uvmrust_stream stream);

/**
 * UvmDiscardAndPrefetch() - prepare memory to be overwritten, without a copy
 * @base:     first byte of managed memory
 * @length:   bytes
 * @gpu_uuid: the GPU; NULL: on the host
 *
 * The memory can be used when this returns 0, and until it is written it holds what
 * UvmDiscard() leaves; or when this returns UVMRUST_ENOTSUPPORTED (then nothing has
 * changed). After another error, prefetch it before using it.
 */
int UvmDiscardAndPrefetch(void *base, size_t length, const uint8_t gpu_uuid[16]);

/**
 * UvmDiscardAndPrefetchBatch() - the same for several ranges
 * @ranges:   array of @count ranges
 * @count:    how many
 * @gpu_uuid: the GPU; NULL: on the host
 *
 * Returns as UvmDiscardAndPrefetch() does: UVMRUST_ENOTSUPPORTED only if nothing has
 * changed in any of the ranges.
 */
int UvmDiscardAndPrefetchBatch(const struct uvmrust_range *ranges, size_t count,
			       const uint8_t gpu_uuid[16]);

/**
 * UvmRustBackend() - which driver discards for this process
 *
 * Looked for at the first call of any function here and kept; until CUDA has initialised
 * its descriptor there is none, and it is looked for again. Looking changes nothing.
 */
int UvmRustBackend(void);

/**
 * UvmRustBackendName() - its name, for people
 * @backend: UVMRUST_BACKEND_*
 */
const char *UvmRustBackendName(int backend);

/**
 * UvmRustUseFd() - use this file descriptor of /dev/nvidia-uvm
 * @fd: initialised with UVM_INITIALIZE, and left open; -1: find it again
 *
 * For programs that use UVM without CUDA. Others need not call it. The environment
 * variable UVMRUST_FD, read when the library is loaded, names one too; but where CUDA is
 * loaded, that one is used only once CUDA is initialised, and not after fork(). -1 makes the
 * library forget either.
 */
void UvmRustUseFd(int fd);

/**
 * UvmRustDeviceUuid() - the UUID of a GPU
 * @ordinal: its number in CUDA
 * @uuid:    where to write it
 */
int UvmRustDeviceUuid(int ordinal, uint8_t uuid[16]);

/**
 * UvmRustStreamError() - first error of a discard in a stream since the last call
 */
int UvmRustStreamError(void);

/**
 * UvmRustStrError() - a sentence for people
 * @error: what a function returned
 */
const char *UvmRustStrError(int error);

/* Whereto g10_pre_evict() moves. */
#define UVMRUST_TO_HOST		0
#define UVMRUST_TO_SSD		1	/* by way of the host; needs uvm-rust's driver and an SSD attached */

/**
 * g10_prefetch() - bring managed memory to a GPU, without waiting for it
 * @base:     first byte of managed memory
 * @length:   bytes; all pages touched are brought
 * @gpu_uuid: the GPU (UvmRustDeviceUuid()); NULL: from the SSD to the host
 *
 * Moves wait in a queue of the process, which a thread works off: prefetches to a GPU
 * before evictions, but none before an earlier move of memory that both touch. They are
 * advice: what a move did not reach is brought by a fault when it is used.
 *
 * Returns a ticket, a positive number that grows with each call, or one of UVMRUST_E*.
 */
int64_t g10_prefetch(void *base, size_t length, const uint8_t gpu_uuid[16]);

/**
 * g10_pre_evict() - take managed memory away from a GPU, without waiting for it
 * @base:   first byte of managed memory
 * @length: bytes; all pages touched are moved
 * @to:     UVMRUST_TO_HOST or UVMRUST_TO_SSD
 *
 * As g10_prefetch().
 */
int64_t g10_pre_evict(void *base, size_t length, int to);

/**
 * g10_alloc() - managed memory that comes to a GPU, without waiting for it
 * @buffer:   out: where it is
 * @length:   bytes, not 0; the buffer has whole pages of its own
 * @gpu_uuid: the GPU; NULL: it comes where it is first used
 *
 * What the buffer holds is undefined. Needs a CUDA context, like cudaMallocManaged(). It
 * may be used at once: what has not come yet is brought by faults. Addresses of freed
 * buffers are used again, and are not told of the end of their context: after
 * cudaDeviceReset(), or cuCtxDestroy() of the context in which g10_alloc() was called,
 * neither g10_alloc() nor g10_free() may be called any more.
 *
 * Returns a ticket as g10_prefetch() does, 0 if nothing is on its way, or one of UVMRUST_E*.
 */
int64_t g10_alloc(void **buffer, size_t length, const uint8_t gpu_uuid[16]);

/**
 * g10_free() - free what g10_alloc() gave, in the order of a stream
 * @buffer: what g10_alloc() gave
 * @stream: a stream of the current context; the buffer is used by nothing that comes
 *          after this in it, and by nothing in other streams any more. No other thread
 *          begins or ends a capture of it meanwhile
 *
 * Moves of the buffer that are under way (g10_prefetch(), g10_pre_evict()) must be waited
 * for first, with g10_wait(): NVIDIA's driver leaves it to the caller that a migration and
 * a discard of the same memory do not come at the same time.
 *
 * Its contents are discarded, and its memory taken back without a copy, when the stream
 * comes here. The address is kept, for the next g10_alloc() of the same length. Where
 * nobody can discard, it waits for the stream and frees the buffer. A graph would take the
 * buffer back at each launch, whoever has it by then: UVMRUST_ECAPTURE while @stream is
 * being captured, and the buffer is as it was.
 *
 * Returns 0; UVMRUST_EINVALID if @buffer is not such a buffer, or free already. After
 * another error it is not free, but what it holds is undefined; nothing of this call is
 * still to come in @stream. After UVMRUST_EDRIVER CUDA may not even have been able to wait
 * for that: the buffer must not be used, and is lost if freeing it again gives
 * UVMRUST_EINVALID.
 */
int g10_free(void *buffer, uvmrust_stream stream);

/**
 * g10_done() - the last ticket up to which all moves are done; 0 for none
 */
int64_t g10_done(void);

/**
 * g10_wait() - wait until a ticket and all before it are done
 * @ticket:       what g10_prefetch() or g10_pre_evict() returned
 * @milliseconds: at most so long
 *
 * Returns 1 if they are, 0 if they are not yet, UVMRUST_EINVALID for no ticket.
 */
int g10_wait(int64_t ticket, int milliseconds);

/**
 * g10_error() - why the first move failed that did, of all so far; 0 if none
 */
int g10_error(void);

#ifdef __cplusplus
}
#endif

#endif /* UVMRUST_H */
