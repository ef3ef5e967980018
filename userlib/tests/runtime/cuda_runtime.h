/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* What examples/scratch.cu uses of CUDA's runtime, to see without it that the example compiles. */
#ifndef CUDA_RUNTIME_H
#define CUDA_RUNTIME_H

#include <stddef.h>

#define __global__

enum cudaError_t { cudaSuccess };
struct dim3 { unsigned int x, y, z; };
extern dim3 blockIdx, blockDim, threadIdx, gridDim;

const char *cudaGetErrorString(cudaError_t error);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaDeviceSynchronize();
template <typename T> cudaError_t cudaMallocManaged(T **p, size_t bytes);

#endif
