/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A CUDA driver library without a GPU, and a UVM driver without a kernel, for
 * tests: libcuda.so.1. It is preloaded, so that it gets ioctl() too, and answers it
 * on the file descriptor $UVMRUST_FD, which is initialised by cuInit().
 *
 *   STUB_LOG=file        what happened, one line each, in the order it happened
 *   STUB_UVM=ours|native|old|future   which UVM driver; else none
 *   STUB_ASLEEP=n        UVM answers one call in n, as if the system slept; 0: none
 *   STUB_SEED=n          streams run as this random number will have it (streams.c)
 *   STUB_FREE=1          each stream runs in its thread as fast as it can
 *   STUB_MEMORY=n        MiB of a GPU, which only tell how much is free (memory.c)
 *   STUB_SPARSE=1        kernels and discards touch only some words (memory.c)
 *   STUB_WHERE=1         the log says where from and whereto UVM_MIGRATE moves
 *   STUB_NO_IDS=1        CUDA does not tell the number of an allocation
 *   STUB_STUCK=free|exit cuMemFree, or what CUDA does at exit, does not end
 *   STUB_ONE_NODE=1      a host function becomes no part of a graph, and is lost
 *   STUB_BROKEN=1        a discard drops a page too many
 *   STUB_TOOLS=n|denied  UVM's tools interface, which the first n opens find no descriptor for (tools.c);
 *                        kernels and their times are real then. Else there is none
 *   STUB_FAULTS=n        how often UVM tells of a kernel's fault; 1
 *   STUB_LOSES=write|move  what comes behind a discard is lost: the GPU's first write, or what is there
 *                        when the memory moves next
 *   STUB_DUPLICATED=1    what NVIDIA's driver discards was read-duplicated in part (memory.c)
 *   STUB_NO_OP=1         a discard succeeds and drops nothing
 *   STUB_MIG=1           the devices are parts of GPUs
 *   STUB_OLD_GPU=1       the system has a device without concurrent managed access
 *   STUB_NO_DISCARD, at compile time: a CUDA before 13
 *   STUB_NO_USER_OBJECTS, at compile time: a CUDA before 11.3
 *
 * Each rule that the stub follows stands with the sentence of NVIDIA's
 * documentation that it is from: "Driver API" is the CUDA Driver API reference,
 * followed by the function or section, "Programming Guide" is the CUDA C++
 * Programming Guide, followed by the section.
 */
#ifndef STUB_H
#define STUB_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))
#define COUNT(a) (sizeof(a) / sizeof(*(a)))

/* CUresult, by NVIDIA's names without CUDA_ERROR_. */
enum {
	SUCCESS = 0,
	INVALID_VALUE = 1,
	OUT_OF_MEMORY = 2,
	NOT_INITIALIZED = 3,
	INVALID_DEVICE = 101,
	INVALID_CONTEXT = 201,
	INVALID_HANDLE = 400,
	ILLEGAL_STATE = 401,
	NOT_FOUND = 500,
	NOT_READY = 600,
	NOT_PERMITTED = 800,
	NOT_SUPPORTED = 801,
	CAPTURE_UNSUPPORTED = 900,
	CAPTURE_INVALIDATED = 901,
	CAPTURE_MERGE = 902,
	CAPTURE_UNMATCHED = 903,
	CAPTURE_UNJOINED = 904,
	CAPTURE_ISOLATION = 905,
	CAPTURE_IMPLICIT = 906,
	CAPTURE_WRONG_THREAD = 908,
};

typedef int CUresult;
typedef uint64_t CUdeviceptr;

/* Everything below, and all of the stub's state, is under this lock. */
extern pthread_mutex_t lock;

void note(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* What no program may do: noted, and counted for stub_violations(). */
void violation(const char *what);
/* Whether this call of a function is one that stub_fail() was asked to let fail. */
bool fails(const char *function);

/* memory.c */

/* CUmemLocation. "CU_MEM_LOCATION_TYPE_DEVICE = 0x1", "_HOST = 0x2" (Driver API). */
struct location {
	int type, id;
};

bool is_managed(uint64_t base, uint64_t length);
bool is_lazy(uint64_t base, uint64_t length);
bool discard(uint64_t base, uint64_t length, bool eager);
bool prefetch(uint64_t base, uint64_t length);
void fill(uint64_t base, uint64_t length, uint64_t word);
/* A kernel has written this memory. */
void written(uint64_t base, uint64_t length);
uint64_t look(uint64_t base, uint64_t length);

/* What look() finds where not all words are equal. */
#define MIXED UINT64_C(0xbad0bad0bad0bad0)

/* tools.c */

/* What a program may have done in the midst of something, with no lock held. */
enum moment { ELAPSED, OPENED, CLOSED, FILE_GROWS, RELEASED, POOL_GONE, MOMENTS };
void meanwhile(enum moment moment);

/* device.c */

#define DEVICES 2

struct context {
	int device;
	struct stream *legacy;
	/* What does discards, beside the streams (batches.c). */
	struct stream *discards;
	/* How often all that is in it was destroyed. */
	unsigned int ends;
	/* Of a green context: that of its device. How often it is current, and in which thread. */
	struct context *primary;
	unsigned int held;
	pthread_t holder;
};

/* Frees what was allocated in a context (memory.c). */
void free_memory_of(struct context *context);

extern bool initialised;
/* The context that is current in this thread, or NULL. */
struct context *current(void);
/* CUDA is called. */
void called(void);
/* What a call must look at first: 0, or the error to return. */
CUresult enter_function(const char *name, bool needs_context);
#define enter(needs_context) enter_function(__func__, needs_context)

/* streams.c */

enum operation { HOST, KERNEL, DISCARD, PREFETCH, MARK, GRAPH };

/* CU_EVENT_DISABLE_TIMING */
#define DISABLE_TIMING 2

/* Something that a stream or a graph does. */
struct work {
	enum operation what;
	void (*host)(void *);
	void *data;
	const char *name;
	uint64_t base, length, value;
	struct launch *launch;
};

/* All of a stream's work up to a number. */
struct point {
	struct stream *stream;
	uint64_t at;
};

enum kind { LEGACY, PER_THREAD, BLOCKING, NON_BLOCKING };

#define MOST_NODES 256

/* Some nodes of a graph. */
struct nodes {
	uint64_t bits[MOST_NODES / 64];
};

struct stream {
	struct context *context;
	/* The green context that it was made in, or NULL. */
	struct context *green;
	enum kind kind;
	struct item *first, *last;
	/* Items ever queued, those up to the last that is neither an event nor a wait, and done. */
	uint64_t queued, worked, done;
	/* The stream's own clock, in ns, and when each item was done (streams.c). */
	uint64_t clock, *times;
	size_t room;
	/* What the thread of the stream is told, and by what. */
	bool granted, gone;
	pthread_cond_t wake, idle;
	/* The capture that the stream is part of, and what its next node depends on. */
	struct capture *capture;
	struct nodes frontier;
};

extern struct stream *streams[256];
extern size_t stream_count;

struct stream *create_stream(struct context *context, enum kind kind);
struct stream *create_green_stream(struct context *green);
CUresult find_stream(void *handle, struct stream **out);
CUresult find_current_stream(void *handle, struct stream **out);
CUresult enqueue(struct stream *stream, struct work work);
CUresult enqueue_after(struct stream *stream, struct work work, struct point after);
/* What work that is put into the stream now comes behind, at least. */
struct point now(struct stream *stream);
/* Waits, with the lock held (and given up meanwhile). */
void wait_for(struct point point);
bool is_done(struct point point);
void run_all(void);
void run_context(struct context *context);
void do_work(struct work *work);
void some_time_passes(void);
uint64_t random_number(void);
bool is_seeded(void);
extern _Thread_local bool in_host_function;

/* tools.c */

/* Whether events have the time at which they were, by this clock, in ns. */
bool is_real_time(void);
uint64_t real_time(void);
bool tools_ioctl(int fd, unsigned long nr, void *arg);
/* Takes the time that a kernel takes, if that is real, and tells of its faults. */
void tools_kernel(const struct work *work);

/* graphs.c */

CUresult capture_work(struct stream *stream, struct work work);
CUresult may_use_legacy(struct context *context, bool invalidate);
CUresult safe_in_capture(void);
CUresult join_capture(struct stream *stream, struct capture *capture, const struct nodes *nodes);
void invalidate(struct capture *capture);
/* Does one node of a launch; true when none is left. */
bool graph_step(struct launch *launch);

#endif
