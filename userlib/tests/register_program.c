/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Who may register a real GPU with UVM, without CUDA: uvmtop does, to be told of it. NVIDIA's
 * driver lets a process do so only while it has the GPU's /dev/nvidiaN open. Exits with 77
 * where the driver lists no GPU.
 */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { INSUFFICIENT_PERMISSIONS = 0x1b };

struct initialize {
	uint64_t flags;
	uint32_t status, rest[64];
};

struct register_gpu {
	uint8_t uuid[16], numa_enabled;
	int32_t numa_node, rm_ctrl_fd;
	uint32_t client, part, status, rest[64];
};

static long initialize(int fd)
{
	struct initialize p = { .status = 0xdeadbeef };

	return ioctl(fd, 0x30000001UL, &p) ? -errno : (long)p.status;
}

static long register_gpu(int fd, const uint8_t *uuid)
{
	struct register_gpu p = { .rm_ctrl_fd = -1, .status = 0xdeadbeef };

	memcpy(p.uuid, uuid, 16);
	return ioctl(fd, 37UL, &p) ? -errno : (long)p.status;
}

/* The first GPU that the driver lists: its UUID and the number of its device. */
static int first_gpu(uint8_t *uuid)
{
	int minor = -1, digits = 0;
	char line[256];
	glob_t found;
	FILE *file;

	if (glob("/proc/driver/nvidia/gpus/*/information", 0, NULL, &found))
		return -1;
	file = fopen(found.gl_pathv[0], "r");
	while (file && fgets(line, sizeof(line), file)) {
		const char *text = strstr(line, "GPU-");

		sscanf(line, "Device Minor: %d", &minor);
		for (text = text ? text + 4 : ""; *text && digits < 32; text++) {
			unsigned int digit;

			if (sscanf(text, "%1x", &digit) != 1)
				continue;
			uuid[digits / 2] = uuid[digits / 2] << 4 | digit;
			digits++;
		}
	}
	return digits == 32 ? minor : -1;
}

int main(void)
{
	uint8_t uuid[16] = { 0 };
	int minor = first_gpu(uuid), fd = open("/dev/nvidia-uvm", O_RDWR | O_CLOEXEC);
	long without, with;
	char path[64];

	if (minor < 0 || fd < 0) {
		puts("NVIDIA's driver lists no GPU here");
		return 77;
	}
	printf("fact - UVM_INITIALIZE: %#lx\n", initialize(fd));
	without = register_gpu(fd, uuid);
	snprintf(path, sizeof(path), "/dev/nvidia%d", minor);
	printf("fact - %s is descriptor %d\n", path, open(path, O_RDWR | O_CLOEXEC));
	with = register_gpu(fd, uuid);
	printf("%s - UVM_REGISTER_GPU without the GPU's device: %#lx\n",
	       without == INSUFFICIENT_PERMISSIONS ? "ok" : "not ok", without);
	printf("%s - UVM_REGISTER_GPU with it: %#lx\n", with ? "not ok" : "ok", with);
	return without != INSUFFICIENT_PERMISSIONS || with;
}
