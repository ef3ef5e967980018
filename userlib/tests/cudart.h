/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* What the tests' programs use of CUDA's runtime library, as stub_cudart.c has it. */
#ifndef CUDART_H
#define CUDART_H

#include <stddef.h>

/* A kernel of the stub's is known by its address. */
struct kernel {
	const char *name;
};

struct dim {
	unsigned int x, y, z;
};

int cudaMalloc(void **, size_t);
int cudaFree(void *);
int cudaDeviceSynchronize(void);
int cudaLaunchKernel(const void *, struct dim, struct dim, void **, size_t, void *);
int cudaGraphLaunch(void *, void *);

#endif
