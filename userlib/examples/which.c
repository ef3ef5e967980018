/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Says which driver would discard for this process. Without CUDA in it, that is
 * none; LD_PRELOAD=libcuda.so.1 does not initialise it either. Call it from a
 * program of yours, after cudaSetDevice().
 *
 *   cc which.c $(pkg-config --cflags --libs uvmrust)
 */
#include <stdio.h>
#include <uvmrust.h>

int main(void)
{
	int backend = UvmRustBackend();

	printf("discard: %s\n", UvmRustBackendName(backend));
	if (backend == UVMRUST_BACKEND_NONE)
		printf("%s\n", UvmRustStrError(UVMRUST_ENOTSUPPORTED));
	return 0;
}
