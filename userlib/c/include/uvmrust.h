/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * uvmrust.h - discard of unified memory
 *
 * Tells the UVM driver that nobody will read what stands in a buffer of managed
 * memory (cudaMallocManaged). The driver then neither copies it out when it
 * evicts it nor in when it is used again. See uvmrust(7).
 *
 * There are three things to do with memory: discard it, prefetch it, and both. Each is done
 * to one range or to several, and at once or, by the calls whose names end in _async, in the
 * order of a stream.
 *
 * All functions may be called by any threads at the same time. Those that return
 * int return 0 or one of UVMRUST_E*, all negative. A child of fork() does not use its
 * parent's descriptor: it has no backend, unless it gives uvmrust_use_fd() its own.
 */
#ifndef UVMRUST_H
#define UVMRUST_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * The version of this header: it grows with each function or field that is added. None is ever
 * taken away, and a program runs with every library whose uvmrust_version() is not less.
 * 1 is the header without this macro.
 */
#define UVMRUST_VERSION		3

/* Errors. uvmrust_strerror() has a sentence for each. */
#define UVMRUST_ENOTSUPPORTED	(-1)	/* no driver here can discard; nothing changed */
#define UVMRUST_EINVALID	(-2)	/* bad address, length, flag, pointer or stream */
#define UVMRUST_ENOTMANAGED	(-3)	/* not, as a whole, managed memory of this process */
#define UVMRUST_ENOMEMORY	(-4)	/* no memory, in the driver or here */
#define UVMRUST_ENOCONTEXT	(-5)	/* needs a CUDA context, which this thread does not have */
#define UVMRUST_ENODEVICE	(-6)	/* a GPU that this process does not use */
#define UVMRUST_EINTERRUPTED	(-7)	/* a fatal signal came */
#define UVMRUST_EDRIVER		(-8)	/* the driver failed, or refused after some ranges were done; see the kernel log */
#define UVMRUST_ECAPTURE	(-9)	/* a stream is being captured, and this is not done in a graph; nothing changed */
#define UVMRUST_EBUSY		(-10)	/* the driver stayed busy, the system is about to sleep, or another thread began a capture; try again; contents may be gone */

/* Who discards: uvmrust_backend(). */
#define UVMRUST_BACKEND_NONE	0	/* nobody: no UVM yet, or a driver that cannot */
#define UVMRUST_BACKEND_UVMRUST	1	/* uvm-rust's driver */
#define UVMRUST_BACKEND_NATIVE	2	/* NVIDIA's driver, from 580 on */
#define UVMRUST_BACKEND_CUDA	3	/* CUDA 13: cuMemDiscardAndPrefetchBatchAsync */

/* Flag of discards: lazily. See uvmrust_discard(). */
#define UVMRUST_LAZY		1u

/*
 * A CUstream or cudaStream_t, of whichever context. NULL and 1 (CU_STREAM_LEGACY) are the default
 * stream that all threads share, and 2 (CU_STREAM_PER_THREAD) the thread's own, of the current
 * context; NULL also in a program that is compiled with --default-stream per-thread.
 */
typedef void *uvmrust_stream;

/**
 * struct uvmrust_range - a range of managed memory, as uvmrust_discard() and the like take it
 * @base:   first byte, as an integer
 * @length: how many bytes; each call says what it does with pages that are covered in part
 */
struct uvmrust_range {
	uint64_t base;
	uint64_t length;
};

/**
 * struct uvmrust_batch - several ranges for one call
 * @size:       sizeof(struct uvmrust_batch) as the caller knows it; another version's may be longer
 * @range_size: sizeof(struct uvmrust_range), which is the distance between elements of @ranges
 * @ranges:     array of @count ranges, which may overlap; may be NULL if @count is 0
 * @count:      how many elements @ranges has
 * @gpu_uuid:   of prefetches: the GPU that all of them go to (uvmrust_device_uuid()), or NULL for
 *              the host. Of others: NULL
 * @flags:      of discards: 0, or UVMRUST_LAZY. Of others: 0
 * @reserved:   0
 *
 * UVMRUST_BATCH() fills in all but the UUID and the flags. Structures of a later version may be
 * longer: an older library takes them if what it does not know is 0, and returns
 * UVMRUST_EINVALID if not. The batch and what it points to are read before a call returns.
 */
struct uvmrust_batch {
	uint32_t size;
	uint32_t range_size;
	const struct uvmrust_range *ranges;
	size_t count;
	const uint8_t *gpu_uuid;
	uint32_t flags;
	uint32_t reserved;
};

#define UVMRUST_BATCH(ranges, count) \
	{ sizeof(struct uvmrust_batch), sizeof(struct uvmrust_range), (ranges), (count), 0, 0, 0 }

/**
 * struct uvmrust_outcome - what became of a batch
 * @size:             sizeof(struct uvmrust_outcome), filled in by the caller: a library writes
 *                    no more than that, and only what it knows
 * @counted:          not 0 if the driver counted blocks (uvm-rust's own discard does); else the
 *                    last three numbers are 0
 * @done:             ranges done; after an error, index of the range that failed.
 *                    With UVMRUST_BACKEND_CUDA, ranges are done in groups of up to
 *                    64, and this is the first of the group. After UVMRUST_EBUSY,
 *                    ranges from this one on may be discarded as well
 * @blocks_discarded: 2 MiB blocks of which all that was asked for is discarded
 * @blocks_skipped:   blocks left as they were
 * @blocks_partial:   blocks discarded in part
 */
struct uvmrust_outcome {
	uint32_t size;
	uint32_t counted;
	uint64_t done;
	uint64_t blocks_discarded;
	uint64_t blocks_skipped;
	uint64_t blocks_partial;
};

#define UVMRUST_OUTCOME	{ sizeof(struct uvmrust_outcome), 0, 0, 0, 0, 0 }

/* At once */

/**
 * uvmrust_discard() - nobody will read what stands here
 * @base:   first byte of managed memory
 * @length: how many bytes; 0 is a success that changes nothing
 * @flags:  0, or UVMRUST_LAZY
 *
 * All work on the memory, on the host and on GPUs, must be done before. Until it is
 * written again, a read gives indeterminate data, which may differ from one read to
 * the next: zeros or older values with uvm-rust's driver, but NVIDIA's and CUDA 13
 * promise nothing (docs/discard-guide.md has a table). A value written after it is
 * kept. Costs an unmap, and a fault at the next access
 * unless a prefetch comes first.
 *
 * With UVMRUST_LAZY it is cheaper: nothing is unmapped, so the driver does not see the next
 * access. The memory must be prefetched, with a call of this library, before it is next written or read;
 * what is written before that may be lost. cudaMemPrefetchAsync() ends a lazy discard too where it is done, but
 * CUDA tells nobody where it is not, and then what is written is lost as well. Nor may it go back to a
 * cache before, whose next user knows nothing of it, nor to a managed pool of CUDA 13, by cudaFree() too.
 * After the prefetch it holds what a discard without the flag leaves, until it is written.
 *
 * With it, only the whole 2 MiB blocks inside the range, at multiples of 2 MiB, are discarded, and a range
 * without any is a success that changes nothing. CUDA may have memory of several owners in one block,
 * and UVM is not told when a part of it changes hands. So cudaFree() of what cudaMallocManaged() gave
 * needs no prefetch, as far as is known: no document says whether CUDA keeps whole blocks for a next
 * owner. To be sure, discard once more without the flag before.
 *
 * With CUDA 13's discard alone the flag is ignored and the discard is eager.
 *
 * Nor may the memory be migrated meanwhile, by a prefetch, uvmrust_move_in() or
 * cudaMemPrefetchAsync(): NVIDIA's driver leaves it to the caller that the one comes after
 * the other.
 *
 * Memory of malloc() that a GPU uses (HMM, ATS) is not managed: which calls refuse it, by
 * UVMRUST_ENOTMANAGED, depends on driver and stream, and no call is meant for it.
 *
 * Without the flag, the whole pages inside the range are discarded; a range without any is a
 * success. How much of a partly covered 2 MiB block is discarded, is the driver's
 * choice.
 *
 * With UVMRUST_ENOTSUPPORTED and UVMRUST_EINVALID nothing has changed. After any other error of a
 * discard, with the flag or without, prefetch the memory before it is used. NVIDIA's driver leaves it
 * lazily discarded where it cannot unmap it, for want of memory. The library brings it to the host
 * then, but this can fail as well. After a success without the flag nothing of the range stays lazily
 * discarded, also where that driver finds pages read-duplicated, for which the library makes its call
 * twice. It may then map other pages of the same 2 MiB block that were discarded before, and what is
 * written to these is lost. So, with that driver, discard no part of a block that may be read-duplicated.
 */
int uvmrust_discard(void *base, size_t length, unsigned int flags);

/**
 * uvmrust_discard_batch() - uvmrust_discard() of several ranges, in one call
 * @batch:   the ranges, and the flags
 * @outcome: what became of it, also after an error; may be NULL
 *
 * Stops at the first range that fails; those before it are discarded, and it may be
 * in part. UVMRUST_ENOTSUPPORTED says that none is: where a driver refuses after it has
 * discarded some, this returns UVMRUST_EDRIVER. Nor is any after UVMRUST_EINVALID.
 */
int uvmrust_discard_batch(const struct uvmrust_batch *batch, struct uvmrust_outcome *outcome);

/**
 * uvmrust_prefetch() - bring memory to a GPU, and make it usable after a lazy discard
 * @base:     first byte of managed memory
 * @length:   bytes; all pages touched are brought
 * @gpu_uuid: the GPU (uvmrust_device_uuid()); NULL: to the host
 *
 * Returns when it is done. Works on drivers without discard too.
 */
int uvmrust_prefetch(void *base, size_t length, const uint8_t gpu_uuid[16]);

/**
 * uvmrust_prefetch_batch() - uvmrust_prefetch() of several ranges
 * @batch: the ranges, and where they go
 *
 * An error is that of the first range that did not come; the others did, but for
 * UVMRUST_EINVALID, after which nothing has changed.
 */
int uvmrust_prefetch_batch(const struct uvmrust_batch *batch);

/**
 * uvmrust_discard_and_prefetch() - prepare memory to be overwritten, without a copy
 * @base:     first byte of managed memory
 * @length:   how many bytes; only the whole pages inside the range are discarded
 * @gpu_uuid: the GPU; NULL: on the host
 *
 * As a discard, and a prefetch behind it: the next access does not fault. Pages that the range
 * covers in part are prefetched with their contents.
 *
 * The memory can be used when this returns 0, or UVMRUST_ENOTSUPPORTED, UVMRUST_EINVALID or
 * UVMRUST_ENODEVICE (then nothing has changed). With a GPU that CUDA
 * knows and this process does not use, or any after uvmrust_use_fd(), it is the prefetch that fails. Where
 * the prefetch fails, the contents are gone, and the library discards the memory once more, without the
 * flag, or brings it to the host: a write is kept, and the next access of a GPU faults.
 * This can fail as well, so that after another error the memory is to be prefetched before it is used.
 */
int uvmrust_discard_and_prefetch(void *base, size_t length, const uint8_t gpu_uuid[16]);

/**
 * uvmrust_discard_and_prefetch_batch() - the same for several ranges
 * @batch: the ranges, and where they go
 *
 * Returns as uvmrust_discard_and_prefetch() does: with UVMRUST_ENOTSUPPORTED, UVMRUST_EINVALID and
 * UVMRUST_ENODEVICE nothing has changed in any of the ranges.
 */
int uvmrust_discard_and_prefetch_batch(const struct uvmrust_batch *batch);

/*
 * In the order of a stream
 *
 * These return at once. What they do is done when all work before it in the stream is done, and
 * before any after it starts. The memory must not be freed before: cudaFree() need not wait for
 * it.
 *
 * CUDA 13 has calls for it, which are used where they serve; else a host function does it, one
 * for each call. uvmrust(7) has a table, and of what a read gives. What is wrong with the memory
 * may be found only then: uvmrust_stream_error() tells.
 *
 * While the stream is being captured, what is to be done becomes a node of the graph, which owns
 * a copy of the ranges: it is done at each launch. No other thread may begin or end a
 * capture of the stream during a call: what is to be done once, and what each launch of a graph
 * does, are enqueued differently.
 *
 * Where it cannot become a node, the call returns UVMRUST_ECAPTURE, and the capture goes on:
 * before CUDA 11.3; a discard with UVMRUST_BACKEND_CUDA; a prefetch where UVM's descriptor is not
 * found, or to a part of a GPU (MIG); in the body of a conditional node, which takes no host
 * functions. So it is in the legacy stream while a blocking stream is being captured. A graph with
 * such a node cannot be instantiated for launch from the device.
 *
 * With UVMRUST_EINVALID, UVMRUST_ENOTSUPPORTED, UVMRUST_ENODEVICE and UVMRUST_ECAPTURE nothing has
 * changed, and nothing will. Where another thread begins a capture during a call in the legacy stream,
 * and a discard is there by then, it is UVMRUST_EBUSY. Where nothing is to be done, as of length 0, nothing
 * else is looked at: that is a success. After another error, some of the ranges may have been worked on, or
 * be about to be. After it, and after one that uvmrust_stream_error() tells, memory that was to be
 * discarded must be prefetched before it is used, as after an error of uvmrust_discard().
 */

/**
 * uvmrust_discard_async() - uvmrust_discard() in the order of a stream
 * @base:   first byte of managed memory
 * @length: how many bytes; 0 is a success that changes nothing
 * @flags:  0, or UVMRUST_LAZY with what uvmrust_discard() asks of its caller
 * @stream: the stream in whose order it is done
 */
int uvmrust_discard_async(void *base, size_t length, unsigned int flags, uvmrust_stream stream);

/**
 * uvmrust_discard_batch_async() - the same for several ranges
 * @batch:  the ranges, and the flags
 * @stream: the stream in whose order it is done
 */
int uvmrust_discard_batch_async(const struct uvmrust_batch *batch, uvmrust_stream stream);

/**
 * uvmrust_prefetch_async() - uvmrust_prefetch() in the order of a stream
 * @base:     first byte of managed memory
 * @length:   bytes; all pages touched are brought
 * @gpu_uuid: the GPU, of whichever device is current; NULL: to the host
 * @stream:   the stream
 *
 * Works on drivers without discard too.
 *
 * It is CUDA's prefetch until this copy of the library discards something with UVMRUST_LAZY, and one that CUDA fails
 * to make is reported to nobody. From then on a host function prefetches. Where that fails, uvmrust_stream_error() tells
 * it, and the memory is brought to the host with what it holds, so that what is written next is kept. Of a lazy discard
 * that somebody else makes, as another copy of the library does, this one knows nothing: use uvmrust_prefetch() behind it.
 */
int uvmrust_prefetch_async(void *base, size_t length, const uint8_t gpu_uuid[16],
			   uvmrust_stream stream);

/**
 * uvmrust_prefetch_batch_async() - the same for several ranges
 * @batch:  the ranges, and where they go
 * @stream: the stream in whose order it is done
 */
int uvmrust_prefetch_batch_async(const struct uvmrust_batch *batch, uvmrust_stream stream);

/**
 * uvmrust_discard_and_prefetch_async() - uvmrust_discard_and_prefetch() in the order of a stream
 * @base:     first byte of managed memory
 * @length:   how many bytes; only the whole pages inside the range are discarded
 * @gpu_uuid: the GPU; NULL: on the host
 * @stream:   the stream
 *
 * What comes behind in the stream may write the memory. Where the prefetch fails, it is discarded
 * once more, as uvmrust_discard_and_prefetch() says, before the stream goes on, and
 * uvmrust_stream_error() tells it; so it is at each launch of a graph. A GPU that this process does not use
 * is such a failure too. To a part of a GPU (MIG), and where CUDA 13 does both, the prefetch is CUDA's.
 * A prefetch that CUDA fails to make is reported to nobody; what is written next is kept all the same.
 */
int uvmrust_discard_and_prefetch_async(void *base, size_t length, const uint8_t gpu_uuid[16],
				       uvmrust_stream stream);

/**
 * uvmrust_discard_and_prefetch_batch_async() - the same for several ranges
 * @batch:  the ranges, and where they go
 * @stream: the stream in whose order it is done
 */
int uvmrust_discard_and_prefetch_batch_async(const struct uvmrust_batch *batch,
					     uvmrust_stream stream);

/**
 * uvmrust_stream_error() - first error of what was done in a stream since the last call
 */
int uvmrust_stream_error(void);

/* About this process */

/**
 * uvmrust_version() - the UVMRUST_VERSION that the library was built with
 */
unsigned int uvmrust_version(void);

/**
 * uvmrust_backend() - which driver discards for this process
 *
 * Looked for at the first call of any function here and kept; until CUDA has initialised
 * its descriptor there is none, and it is looked for again. Looking changes nothing.
 */
int uvmrust_backend(void);

/**
 * uvmrust_backend_name() - its name, for people
 * @backend: what uvmrust_backend() returned; for any other number the name is "unknown"
 */
const char *uvmrust_backend_name(int backend);

/**
 * uvmrust_use_fd() - use this file descriptor of /dev/nvidia-uvm
 * @fd: initialised with UVM_INITIALIZE, and left open; -1: find it again
 *
 * For programs that use UVM without CUDA. Others need not call it. The environment
 * variable UVMRUST_FD, read when the library is loaded, names one too; but where CUDA is
 * loaded, that one is used only once CUDA is initialised, and not after fork(). -1 makes the
 * library forget either.
 */
void uvmrust_use_fd(int fd);

/**
 * uvmrust_device_uuid() - the UUID of a GPU, or of a part of one (MIG)
 * @ordinal: its number in CUDA
 * @uuid:    where to write it
 */
int uvmrust_device_uuid(int ordinal, uint8_t uuid[16]);

/**
 * uvmrust_strerror() - a sentence for people
 * @error: what a function returned
 */
const char *uvmrust_strerror(int error);

/* Moves between GPU, host and SSD, without waiting for them */

/* Where uvmrust_move_out() moves to. */
#define UVMRUST_TO_HOST		0
#define UVMRUST_TO_SSD		1	/* by way of the host; needs uvm-rust's driver and an SSD attached */

/**
 * uvmrust_move_in() - bring managed memory to a GPU, without waiting for it
 * @base:     first byte of managed memory
 * @length:   bytes; all pages touched are brought
 * @gpu_uuid: the GPU (uvmrust_device_uuid()); NULL: from the SSD to the host
 *
 * Moves wait in a queue: in uvm-rust's driver, if its SSD tier is on, where what comes and
 * what leaves go on at the same time; or in the process, where a thread makes them one after
 * the other, in their order. None is made before an earlier move of memory that both touch, and
 * none to a GPU before all earlier ones to the host or the SSD, whichever call asked for them: they
 * make the room for it. In the driver's queue this holds for the moves that the queue takes. Moves
 * of malloc() memory, or to a part of a GPU (MIG), are made by a thread, and the two do not wait for
 * each other.
 * They are advice: what a move did not reach is brought by a fault when it is used.
 *
 * Returns a ticket, a positive number that grows with each call, or one of UVMRUST_E*.
 */
int64_t uvmrust_move_in(void *base, size_t length, const uint8_t gpu_uuid[16]);

/**
 * uvmrust_move_out() - take managed memory away from a GPU, without waiting for it
 * @base:   first byte of managed memory
 * @length: bytes; all pages touched are moved
 * @to:     UVMRUST_TO_HOST or UVMRUST_TO_SSD
 *
 * As uvmrust_move_in().
 */
int64_t uvmrust_move_out(void *base, size_t length, int to);

/**
 * uvmrust_buffer_alloc() - managed memory that comes to a GPU, without waiting for it
 * @buffer:   out: where it is
 * @length:   bytes, not 0; the buffer has whole pages of its own
 * @gpu_uuid: the GPU; NULL: it comes where it is first used
 *
 * What the buffer holds is undefined. Needs a CUDA context, like cudaMallocManaged(). It
 * may be used at once: what has not come yet is brought by faults. Addresses of freed
 * buffers are used again, and are not told of the end of their context: after
 * cudaDeviceReset(), or cuCtxDestroy() of the context in which uvmrust_buffer_alloc() was called,
 * neither uvmrust_buffer_alloc() nor uvmrust_buffer_free() may be called any more.
 *
 * Returns a ticket as uvmrust_move_in() does, 0 if nothing is on its way, or one of UVMRUST_E*.
 */
int64_t uvmrust_buffer_alloc(void **buffer, size_t length, const uint8_t gpu_uuid[16]);

/**
 * uvmrust_buffer_free() - free what uvmrust_buffer_alloc() gave, in the order of a stream
 * @buffer: what uvmrust_buffer_alloc() wrote to its @buffer
 * @stream: a stream of the current context; the buffer is used by nothing that comes
 *          after this in it, and by nothing in other streams any more. No other thread
 *          begins or ends a capture of it meanwhile
 *
 * Moves of the buffer that are under way must be waited for first, with uvmrust_moves_wait(): that of
 * uvmrust_buffer_alloc() itself, if it returned a ticket, and those of uvmrust_move_in() and uvmrust_move_out().
 * NVIDIA's driver leaves it to the caller that a migration and a discard of the same memory do not
 * come at the same time.
 *
 * Its contents are discarded, and its memory taken back without a copy, when the stream
 * comes here. The address is kept, for the next uvmrust_buffer_alloc() of the same length, or, if the
 * discard fails, given back to CUDA by the next uvmrust_buffer_alloc(). Where nobody can discard, it waits
 * for the stream and frees the buffer. A graph would take the
 * buffer back at each launch, whoever has it by then: UVMRUST_ECAPTURE while @stream is
 * being captured, and the buffer is as it was.
 *
 * Returns 0; UVMRUST_EINVALID if @buffer is not such a buffer, or free already. After
 * another error it is not free, but what it holds is undefined; nothing of this call is
 * still to come in @stream. After UVMRUST_EDRIVER CUDA may not even have been able to wait
 * for that: the buffer must not be used, and is lost if freeing it again gives
 * UVMRUST_EINVALID.
 */
int uvmrust_buffer_free(void *buffer, uvmrust_stream stream);

/**
 * uvmrust_moves_done() - the last ticket up to which all moves are done; 0 for none
 */
int64_t uvmrust_moves_done(void);

/**
 * uvmrust_moves_wait() - wait until a ticket and all before it are done
 * @ticket:       what uvmrust_move_in() or uvmrust_move_out() returned
 * @milliseconds: at most so long
 *
 * Returns 1 if they are, 0 if they are not yet, UVMRUST_EINVALID for no ticket.
 */
int uvmrust_moves_wait(int64_t ticket, int milliseconds);

/**
 * uvmrust_moves_error() - why the first move failed that did, of all so far; 0 if none
 */
int uvmrust_moves_error(void);

/*
 * The names that these calls had in version 1. They stay, and do the same. UvmDiscard() is also
 * the name of a function of NVIDIA's uvm.h, with three arguments: where both headers are wanted,
 * define UVMRUST_NO_OLD_NAMES. A program's own functions of these names take the place of the
 * library's, which calls none of them; so it is with libuvmrust.a, where they are weak.
 */
#ifndef UVMRUST_NO_OLD_NAMES

/**
 * struct uvmrust_result - what became of a batch
 * @done:             ranges done; after an error, index of the range that failed.
 *                    With UVMRUST_BACKEND_CUDA, ranges are done in groups of up to
 *                    64, and this is the first of the group
 * @blocks_discarded: 2 MiB blocks of which all that was asked for is discarded
 * @blocks_skipped:   blocks left as they were
 * @blocks_partial:   blocks discarded in part
 * @counted:          not 0 if the driver counted blocks (uvm-rust's own discard does); else the
 *                    three numbers are 0
 */
struct uvmrust_result {
	size_t done;
	uint64_t blocks_discarded;
	uint64_t blocks_skipped;
	uint64_t blocks_partial;
	int counted;
};

/* uvmrust_discard() without a flag, and with UVMRUST_LAZY. */
int UvmDiscard(void *base, size_t length);
int UvmDiscardLazy(void *base, size_t length);

/*
 * uvmrust_discard_batch(), but the ranges before one for which it returns UVMRUST_EINVALID are
 * discarded; and the same in a stream.
 */
int UvmDiscardBatch(const struct uvmrust_range *ranges, size_t count,
		    unsigned int flags, struct uvmrust_result *result);
int UvmDiscardBatchAsync(const struct uvmrust_range *ranges, size_t count,
			 unsigned int flags, uvmrust_stream stream);

/* uvmrust_prefetch(), uvmrust_prefetch_async() */
int UvmPrefetch(void *base, size_t length, const uint8_t gpu_uuid[16]);
int UvmPrefetchAsync(void *base, size_t length, const uint8_t gpu_uuid[16],
		     uvmrust_stream stream);

/* uvmrust_discard_and_prefetch(), uvmrust_discard_and_prefetch_batch() */
int UvmDiscardAndPrefetch(void *base, size_t length, const uint8_t gpu_uuid[16]);
int UvmDiscardAndPrefetchBatch(const struct uvmrust_range *ranges, size_t count,
			       const uint8_t gpu_uuid[16]);

int UvmRustBackend(void);
const char *UvmRustBackendName(int backend);
void UvmRustUseFd(int fd);
int UvmRustDeviceUuid(int ordinal, uint8_t uuid[16]);
int UvmRustStreamError(void);
const char *UvmRustStrError(int error);

#endif /* !UVMRUST_NO_OLD_NAMES */

/*
 * The names that moves and buffers had before version 3: G10's, after the paper. They stay, and do
 * the same; where somebody else's code has such names, define UVMRUST_NO_G10_NAMES. As with those of
 * version 1, a program's own functions take the place of the library's.
 */
#ifndef UVMRUST_NO_G10_NAMES

/* uvmrust_move_in(), uvmrust_move_out() */
int64_t g10_prefetch(void *base, size_t length, const uint8_t gpu_uuid[16]);
int64_t g10_pre_evict(void *base, size_t length, int to);

/* uvmrust_buffer_alloc(), uvmrust_buffer_free() */
int64_t g10_alloc(void **buffer, size_t length, const uint8_t gpu_uuid[16]);
int g10_free(void *buffer, uvmrust_stream stream);

/* uvmrust_moves_done(), uvmrust_moves_wait(), uvmrust_moves_error() */
int64_t g10_done(void);
int g10_wait(int64_t ticket, int milliseconds);
int g10_error(void);

#endif /* !UVMRUST_NO_G10_NAMES */

#ifdef __cplusplus
}
#endif

#endif /* UVMRUST_H */
