/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* The part of CUDA's runtime that uvmrust_rmm.hpp uses, on the stub of the driver. */
#pragma once

#include "cuda.h"

typedef void *cudaStream_t;
enum cudaError_t { cudaSuccess = 0 };
#define cudaStreamLegacy ((cudaStream_t)1)
#define cudaStreamPerThread ((cudaStream_t)2)

extern "C" int cuCtxGetDevice(int *);

inline cudaError_t cudaGetDevice(int *device)
{
	return (cudaError_t)cuCtxGetDevice(device);
}
