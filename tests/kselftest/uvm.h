/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The calls of /dev/nvidia-uvm that the selftests make, and a process with a GPU.
 *
 * A GPU is found through /dev/vgpu, or by its UUID in /proc/driver/nvidia: with a
 * real one, what needs no GPU program runs as well.
 */
#ifndef UVM_SELFTEST_H
#define UVM_SELFTEST_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "uvm_rust_ioctl.h"
#include "vgpu.h"

#define UVM_INITIALIZE		0x30000001
#define UVM_REGISTER_GPU_VASPACE 25
#define UVM_REGISTER_CHANNEL	27
#define UVM_REGISTER_GPU	37
#define UVM_UNREGISTER_GPU	38
#define UVM_MIGRATE		51
#define UVM_MM_INITIALIZE	75

#define NV_ERR_ILLEGAL_ACTION	0x16

/* Move pages to a GPU without page tables of its own; needs the built-in tests. */
#define UVM_MIGRATE_NO_GPU_VA_SPACE	4

/* The harness gives a test 30 s, which an emulated machine may need. */
#undef TEST_TIMEOUT_DEFAULT
#define TEST_TIMEOUT_DEFAULT	300

#define BLOCK	(2UL << 20)

struct uuid { uint8_t byte[16]; };

static const struct uuid cpu_uuid = { {
	0xa6, 0x5e, 0x0f, 0x4e, 0xd7, 0xd4, 0x7b, 0xa2,
	0x50, 0x47, 0x41, 0x2c, 0x14, 0x2a, 0x77, 0x73
} };

struct uvm_initialize { uint64_t flags; uint32_t status; };
struct uvm_mm_initialize { int32_t fd; uint32_t status; };
struct uvm_unregister_gpu { struct uuid gpu; uint32_t status; };
struct uvm_register_gpu {
	struct uuid gpu;
	uint8_t numa_enabled;
	int32_t numa_node, rm_ctrl_fd;
	uint32_t h_client, h_smc_part_ref, status;
};
struct uvm_register_vaspace {
	struct uuid gpu;
	int32_t rm_ctrl_fd;
	uint32_t h_client, h_vaspace, status;
};
struct uvm_register_channel {
	struct uuid gpu;
	int32_t rm_ctrl_fd;
	uint32_t h_client, h_channel;
	uint64_t base, length;
	uint32_t status;
};
struct uvm_migrate {
	uint64_t base, length;
	struct uuid to;
	uint32_t flags;
	uint64_t semaphore;
	uint32_t payload;
	int32_t cpu_node;
	uint64_t user_start, user_length;
	uint32_t status;
};

_Static_assert(sizeof(struct uvm_register_gpu) == 40, "UVM_REGISTER_GPU_PARAMS");
_Static_assert(sizeof(struct uvm_register_channel) == 56, "UVM_REGISTER_CHANNEL_PARAMS");
_Static_assert(sizeof(struct uvm_migrate) == 80, "UVM_MIGRATE_PARAMS");

/*
 * Is what a call wanted absent, by its errno? Only then may a test skip: whatever else it
 * says, the thing is there and does not work.
 */
static inline int uvm_absent(void)
{
	return errno == ENOENT || errno == ENXIO || errno == ENODEV;
}

/* Writes @text to a file of the kernel's, such as a cgroup's. */
static inline bool uvm_put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	bool done = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);

	if (fd >= 0)
		close(fd);
	return done;
}

/*
 * Makes the memory cgroup @group, a folder of @root, where the groups are mounted for it. Returns
 * 0, the errno of the mount where the kernel has no groups of the second kind, or -1.
 */
static inline int uvm_group_make(const char *root, const char *group)
{
	char control[128];

	if (mkdir(root, 0700) && errno != EEXIST)
		return -1;
	if (mount("none", root, "cgroup2", 0, NULL))
		return errno;
	snprintf(control, sizeof(control), "%s/cgroup.subtree_control", root);
	uvm_put(control, "+memory");
	return mkdir(group, 0700) && errno != EEXIST ? -1 : 0;
}

/* When all that were in it have ended; the last one may take a moment to leave. */
static inline int uvm_group_remove(const char *root, const char *group)
{
	int tries;

	for (tries = 0; tries < 100 && rmdir(group); tries++)
		usleep(10000);
	return umount2(root, MNT_DETACH);
}

/* Opens /dev/nvidia-uvm, and makes its node if the module is there. */
static inline int uvm_open(void)
{
	int fd = open("/dev/nvidia-uvm", O_RDWR | O_CLOEXEC);
	unsigned int major = 0, n;
	char line[128], name[64];
	FILE *devices;

	if (fd >= 0 || (errno != ENOENT && errno != ENXIO))
		return fd;
	devices = fopen("/proc/devices", "r");
	while (devices && fgets(line, sizeof(line), devices))
		if (sscanf(line, "%u %63s", &n, name) == 2 && !strcmp(name, "nvidia-uvm"))
			major = n;
	if (devices)
		fclose(devices);
	if (!major) {
		errno = ENOENT;
		return -1;
	}
	unlink("/dev/nvidia-uvm");
	if (mknod("/dev/nvidia-uvm", S_IFCHR | 0666, makedev(major, 0)))
		return -1;
	return open("/dev/nvidia-uvm", O_RDWR | O_CLOEXEC);
}

/* Skips a test where nvidia-uvm.ko is not loaded. */
#define UVM_OPEN_OR_SKIP(fd)							\
	do {									\
		(fd) = uvm_open();						\
		if ((fd) < 0 && uvm_absent())					\
			SKIP(return, "nvidia-uvm.ko is not loaded");		\
		ASSERT_LE(0, fd);						\
	} while (0)

/* Opens the software GPU; -1 where there is none, on a machine with a real one. */
#define VGPU_OPEN(fd)								\
	do {									\
		(fd) = open("/dev/vgpu", O_RDWR | O_CLOEXEC);			\
		if ((fd) < 0)							\
			ASSERT_TRUE(uvm_absent());				\
	} while (0)

/*
 * Skips a test on a driver that does not know our calls: UVM answers ENOSYS, or EINVAL where its
 * built-in tests are on.
 */
#define UVM_RUST_OR_SKIP(fd, version)						\
	do {									\
		if (ioctl(fd, UVM_RUST_GET_VERSION, version)) {			\
			ASSERT_TRUE(errno == ENOSYS || errno == EINVAL);	\
			SKIP(return, "this nvidia-uvm.ko has no Rust in it");	\
		}								\
	} while (0)

/* Was nvidia-uvm.ko loaded with NVIDIA's built-in tests? */
static inline int uvm_builtin_tests(void)
{
	FILE *f = fopen("/sys/module/nvidia_uvm/parameters/uvm_enable_builtin_tests", "r");
	int on = 0;

	if (!f)
		return 0;
	if (fscanf(f, "%d", &on) != 1)
		on = 0;
	fclose(f);
	return on;
}

/* Initialises an open file as a process. */
static inline uint32_t uvm_initialize(int fd)
{
	struct uvm_initialize init = { 0 };

	return ioctl(fd, UVM_INITIALIZE, &init) ? ~0U : init.status;
}

/*
 * Opens /dev/nvidiaN of the real GPUs, which NVIDIA's driver asks of a process that registers one
 * (else status 0x1b). They stay open until the process ends.
 */
static inline void uvm_open_devices(void)
{
	char path[32];
	int minor;

	for (minor = 0; minor < 16; minor++) {
		snprintf(path, sizeof(path), "/dev/nvidia%d", minor);
		(void)open(path, O_RDWR | O_CLOEXEC);
	}
}

/* The first GPU: the software one, else a real one that the driver lists. */
static inline int uvm_find_gpu(int vgpu, struct uuid *uuid)
{
	struct vgpu_info info = { .size = sizeof(info) };
	char path[512], line[256];
	struct dirent *entry;
	int found = 0;
	DIR *gpus;

	if (vgpu >= 0 && !ioctl(vgpu, VGPU_GET_INFO, &info)) {
		memcpy(uuid, info.uuid, sizeof(*uuid));
		return 1;
	}
	gpus = opendir("/proc/driver/nvidia/gpus");
	while (gpus && !found && (entry = readdir(gpus))) {
		snprintf(path, sizeof(path), "/proc/driver/nvidia/gpus/%s/information",
			 entry->d_name);
		FILE *information = fopen(path, "r");

		while (information && !found && fgets(line, sizeof(line), information)) {
			const char *text = strstr(line, "GPU-");
			int digits = 0;

			for (text = text ? text + 4 : ""; *text && digits < 32; text++) {
				unsigned int digit;

				if (sscanf(text, "%1x", &digit) != 1)
					continue;
				uuid->byte[digits / 2] = uuid->byte[digits / 2] << 4 | digit;
				digits++;
			}
			found = digits == 32;
		}
		if (information)
			fclose(information);
	}
	if (gpus)
		closedir(gpus);
	return found;
}

static inline uint32_t uvm_register_gpu(int fd, const struct uuid *gpu)
{
	struct uvm_register_gpu reg = { .gpu = *gpu, .rm_ctrl_fd = -1 };

	return ioctl(fd, UVM_REGISTER_GPU, &reg) ? ~0U : reg.status;
}

static inline uint32_t uvm_unregister_gpu(int fd, const struct uuid *gpu)
{
	struct uvm_unregister_gpu unreg = { .gpu = *gpu };

	return ioctl(fd, UVM_UNREGISTER_GPU, &unreg) ? ~0U : unreg.status;
}

static inline uint32_t uvm_migrate(int fd, void *base, size_t length,
				   const struct uuid *to, uint32_t flags)
{
	struct uvm_migrate migrate = {
		.base = (uintptr_t)base, .length = length, .to = *to,
		.flags = flags, .cpu_node = -1,
	};

	return ioctl(fd, UVM_MIGRATE, &migrate) ? ~0U : migrate.status;
}

/* Managed memory, at the address that its offset in the file has to be. */
static inline void *uvm_managed(int fd, size_t length)
{
	static uintptr_t next = 0x200000000000;
	void *at = (void *)next;

	next += (length + 2 * BLOCK - 1) & ~(BLOCK - 1);
	return mmap(at, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
		    (off_t)(uintptr_t)at);
}

/* A channel of the software GPU in this process, or 0. */
static inline uint32_t uvm_channel(int fd, int vgpu, const struct uuid *gpu)
{
	struct vgpu_vaspace space = { .size = sizeof(space) };
	struct vgpu_channel channel = { .size = sizeof(channel) };
	struct uvm_register_vaspace reg_space = { .gpu = *gpu, .rm_ctrl_fd = -1 };
	struct uvm_register_channel reg_channel = { .gpu = *gpu, .rm_ctrl_fd = -1 };

	if (ioctl(vgpu, VGPU_VASPACE_CREATE, &space))
		return 0;
	reg_space.h_client = space.h_client;
	reg_space.h_vaspace = space.h_vaspace;
	if (ioctl(fd, UVM_REGISTER_GPU_VASPACE, &reg_space) || reg_space.status)
		return 0;
	channel.h_vaspace = space.h_vaspace;
	if (ioctl(vgpu, VGPU_CHANNEL_CREATE, &channel))
		return 0;
	reg_channel.h_client = channel.h_client;
	reg_channel.h_channel = channel.h_channel;
	if (ioctl(fd, UVM_REGISTER_CHANNEL, &reg_channel) || reg_channel.status)
		return 0;
	return channel.h_channel;
}

/* Runs one op and waits for its end. Returns 0, or an errno. */
static inline int vgpu_run(int vgpu, uint32_t channel, const struct vgpu_op *op,
			   struct vgpu_wait *wait)
{
	struct vgpu_submit submit = {
		.size = sizeof(submit), .h_channel = channel, .op_count = 1,
		.ops = (uintptr_t)op, .op_size = sizeof(*op),
	};

	if (ioctl(vgpu, VGPU_SUBMIT, &submit))
		return errno;
	memset(wait, 0, sizeof(*wait));
	wait->size = sizeof(*wait);
	wait->h_channel = channel;
	wait->fence = submit.fence;
	wait->timeout_ns = 60ULL * 1000 * 1000 * 1000;
	return ioctl(vgpu, VGPU_WAIT, wait) ? errno : 0;
}

#endif
