/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Says which driver discards for a process that uses the first GPU, and why none does.
 * It initialises CUDA first, as a program does by its first call: before that no process
 * has a descriptor of /dev/nvidia-uvm, and the library could find nothing.
 *
 *   cc which.c $(pkg-config --cflags --libs uvmrust) -ldl
 *
 * Exits with 0 if somebody discards.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <uvmrust.h>

static int none(const char *why)
{
	printf("discard: %s\n%s\n", uvmrust_backend_name(UVMRUST_BACKEND_NONE), why);
	return 1;
}

int main(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL), *context = NULL;
	int (*init)(unsigned int), (*retain)(void **, int), (*set_current)(void *);
	int (*get_version)(int *), code, backend, version = 0;
	char line[256];

	if (!library)
		return none("there is no libcuda.so.1: install NVIDIA's driver");
	*(void **)&init = dlsym(library, "cuInit");
	*(void **)&get_version = dlsym(library, "cuDriverGetVersion");
	*(void **)&retain = dlsym(library, "cuDevicePrimaryCtxRetain");
	*(void **)&set_current = dlsym(library, "cuCtxSetCurrent");
	if (!init || !get_version || !retain || !set_current)
		return none("libcuda.so.1 is not CUDA's");
	code = init(0);
	if (!code)
		code = retain(&context, 0);
	if (!code)
		code = set_current(context);
	if (code) {
		snprintf(line, sizeof(line), "CUDA cannot be initialised (CUresult %d): "
			 "is a GPU there, and its driver loaded?", code);
		return none(line);
	}
	backend = uvmrust_backend();
	if (backend != UVMRUST_BACKEND_NONE) {
		printf("discard: %s\n", uvmrust_backend_name(backend));
		return 0;
	}
	get_version(&version);
	snprintf(line, sizeof(line), "the driver, of CUDA %d.%d, cannot discard: %s", version / 1000,
		 version % 1000 / 10, uvmrust_strerror(UVMRUST_ENOTSUPPORTED));
	return none(line);
}
