/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * NVIDIA's driver with execution IDs, for what announcing them costs on a real GPU: preloaded, it
 * answers UVM_RUST_GET_VERSION and UVM_RUST_ANNOUNCE itself, the latter after a call to the driver
 * that does nothing. At the end it says how many were announced. All else is as it is.
 *
 *   cc -shared -fPIC gpu_announce.c -o libgpu_announce.so
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "uvm_rust_ioctl.h"

/* A number that no driver has. */
#define NOBODYS 1999UL

static atomic_ulong announced;

__attribute__((visibility("default"))) int ioctl(int fd, unsigned long number, ...)
{
	struct uvm_rust_version *version;
	struct uvm_rust_announce *announce;
	static const uint8_t nobody[16];
	uint8_t room[64] = { 0 };
	va_list list;
	void *arg;

	va_start(list, number);
	arg = va_arg(list, void *);
	va_end(list);
	switch (number) {
	case UVM_RUST_GET_VERSION:
		version = arg;
		version->features = UVM_RUST_FEATURE_EXEC_ID;
		return 0;
	case UVM_RUST_ANNOUNCE:
		announce = arg;
		if (!memcmp(announce->gpu_uuid, nobody, sizeof(nobody))) {
			errno = ENODEV;
			return -1;
		}
		syscall(SYS_ioctl, fd, NOBODYS, room);
		announced++;
		return 0;
	}
	return syscall(SYS_ioctl, fd, number, arg);
}

__attribute__((destructor)) static void say(void)
{
	if (announced)
		fprintf(stderr, "fact - %lu announcements\n", announced);
}
