/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * UVM's tools interface, /dev/nvidia-uvm-tools, as far as it tells of faults: the calls and the
 * queue of uvm_tools.c, whose structures are in uvm_ioctl.h and uvm_types.h. Each kernel faults on the
 * first page of its memory, as if that had been evicted each time. A kernel "chase" faults, behind
 * that, on the page that a pointer at the beginning of its memory leads to.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "stub.h"

/* UVM_TOOLS_INIT_EVENT_TRACKER and its parameters; UVM_TOOLS_EVENT_QUEUE_ENABLE_EVENTS. */
#define INIT 56
#define ENABLE 58

struct init {
	uint64_t *queue;
	uint64_t length;
	uint32_t *control;
	uint8_t processor[16];
	uint32_t all, uvm_fd, status;
};

struct enable {
	uint64_t events;
	uint32_t status;
};

/* UvmEventTypeGpuFault, UvmEventMemoryAccessTypeWrite, UvmEventFaultClientTypeGpc. */
enum { GPU_FAULT = 3, WRITE = 2, GPC = 1 };
/* UvmToolsEventControlData: by words of 4 bytes. */
enum { GET_BEHIND = 1, PUT_AHEAD = 2, PUT_BEHIND = 3, DROPPED = 4 };

static void (*asked[MOMENTS])(void);

/*
 * Has this called at the next such moment: in the midst of cuEventElapsedTime(), when UVM's tools interface is
 * opened or closed, when a file is to have room for more than it had at first, or when a pool is destroyed. As CUDA waits for
 * another thread then, or calls the program's functions, or a signal comes.
 */
EXPORT void stub_meanwhile(enum moment moment, void (*what)(void))
{
	__atomic_store_n(&asked[moment], what, __ATOMIC_SEQ_CST);
}

void meanwhile(enum moment moment)
{
	void (*what)(void) = __atomic_exchange_n(&asked[moment], NULL, __ATOMIC_SEQ_CST);

	if (what)
		what();
}

EXPORT int posix_fallocate(int fd, off_t offset, off_t length)
{
	if (offset)
		meanwhile(FILE_GROWS);
	return syscall(SYS_fallocate, fd, 0, offset, length) ? errno : 0;
}

static struct init queue;
static bool enabled;
/* The descriptor, and the number of the file: its descriptor may be closed, and be another's. */
static int tools = -1;
static ino_t number;

static unsigned long asked_for(const char *name, unsigned long otherwise)
{
	const char *text = getenv(name);

	return text ? strtoul(text, NULL, 10) : otherwise;
}

static bool is_tools(int fd)
{
	struct stat stat;

	return fd >= 0 && fd == tools && !fstat(fd, &stat) && stat.st_ino == number;
}

static int open_tools(void)
{
	static unsigned int tries;
	const char *how = getenv("STUB_TOOLS");
	struct stat stat;

	if (!how)
		errno = ENOENT;
	else if (!strcmp(how, "denied"))
		errno = EACCES;
	else if (tries++ < asked_for("STUB_TOOLS", 0))
		errno = EMFILE;
	else
		errno = 0;
	if (errno)
		return -1;
	meanwhile(OPENED);
	pthread_mutex_lock(&lock);
	enabled = false;
	tools = memfd_create("nvidia-uvm-tools", MFD_CLOEXEC);
	if (fstat(tools, &stat))
		abort();
	number = stat.st_ino;
	note("tools");
	pthread_mutex_unlock(&lock);
	return tools;
}

EXPORT int open64(const char *path, int flags, ...)
{
	unsigned int mode;
	va_list args;

	va_start(args, flags);
	mode = va_arg(args, unsigned int);
	va_end(args);
	if (!strcmp(path, "/dev/nvidia-uvm-tools"))
		return open_tools();
	return syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

EXPORT int close(int fd)
{
	if (is_tools(fd))
		meanwhile(CLOSED);
	return syscall(SYS_close, fd);
}

/* `false`: this is another file. */
bool tools_ioctl(int fd, unsigned long nr, void *arg)
{
	struct enable *enable = arg;
	struct init *init = arg;

	if (!is_tools(fd))
		return false;
	pthread_mutex_lock(&lock);
	if (nr == INIT) {
		/* A length that is no power of two, or less than two, is refused. */
		queue = *init;
		init->status = init->length < 2 || init->length & (init->length - 1) ||
			       init->uvm_fd != asked_for("UVMRUST_FD", -1) ? 0x1f : 0;
	} else if (nr == ENABLE) {
		enabled = enable->events & 1 << GPU_FAULT;
		enable->status = 0;
	}
	pthread_mutex_unlock(&lock);
	return true;
}

/* Nanoseconds, of CLOCK_MONOTONIC_RAW: NV_GETTIME(). */
uint64_t real_time(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC_RAW, &time);
	return time.tv_sec * UINT64_C(1000000000) + time.tv_nsec;
}

bool is_real_time(void)
{
	return getenv("STUB_TOOLS") != NULL;
}

/* "one free element means that the queue is full" */
static void fault(uint64_t address)
{
	uint32_t mask = queue.length - 1, *control = queue.control, put, get;
	unsigned char entry[64] = { GPU_FAULT, 0, WRITE };
	uint64_t page = address & -(uint64_t)sysconf(_SC_PAGESIZE), now = real_time();

	put = control[PUT_BEHIND] & mask;
	get = __atomic_load_n(&control[GET_BEHIND], __ATOMIC_ACQUIRE) & mask;
	if (((queue.length + get - put) & mask) == 1) {
		((uint64_t *)(control + DROPPED))[GPU_FAULT]++;
		return;
	}
	memcpy(entry + 8, &page, 8);
	memcpy(entry + 16, &now, 8);
	entry[36] = GPC;
	memcpy(queue.queue + 8 * put, entry, sizeof(entry));
	put = (put + 1) & mask;
	control[PUT_AHEAD] = put;
	__atomic_store_n(&control[PUT_BEHIND], put, __ATOMIC_RELEASE);
}

/* With the lock held, which is given up while the kernel takes its time. */
void tools_kernel(const struct work *work)
{
	bool tells = enabled && is_tools(tools);

	if (!is_real_time())
		return;
	usleep(500);
	for (unsigned long n = asked_for("STUB_FAULTS", 1); n && tells; n--)
		fault(work->base);
	if (tells && !strcmp(work->name, "chase"))
		fault(*(uint64_t *)(uintptr_t)work->base);
	pthread_mutex_unlock(&lock);
	usleep(2000);
	pthread_mutex_lock(&lock);
}
