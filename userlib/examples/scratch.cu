/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Two stages with a scratch buffer between them, for each of several inputs. All of
 * it together is larger than the GPU. The scratch buffer's contents are of no use
 * once the second stage has read them.
 *
 *   nvcc scratch.cu $(pkg-config --cflags --libs uvmrust) -o scratch
 *   ./scratch [MiB per buffer] [inputs] [discard: 0 or 1]
 *
 * Prints the time; compare the two. The results are checked.
 */
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>
#include <cuda_runtime.h>
#include <uvmrust.h>

__global__ void stage1(const uint32_t *in, uint32_t *scratch, size_t n)
{
	for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
	     i += (size_t)gridDim.x * blockDim.x)
		scratch[i] = in[i] * 3;
}

__global__ void stage2(const uint32_t *scratch, uint32_t *out, size_t n)
{
	for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
	     i += (size_t)gridDim.x * blockDim.x)
		out[i] = scratch[i] + 1;
}

static void check(cudaError_t error)
{
	if (error != cudaSuccess) {
		fprintf(stderr, "%s\n", cudaGetErrorString(error));
		exit(1);
	}
}

int main(int argc, char **argv)
{
	size_t bytes = (size_t)(argc > 1 ? atoi(argv[1]) : 64) << 20;
	size_t n = bytes / sizeof(uint32_t);
	int inputs = argc > 2 ? atoi(argv[2]) : 4;
	bool discard = argc > 3 ? atoi(argv[3]) : true;
	std::vector<uint32_t *> in(inputs), out(inputs);
	uint32_t *scratch;
	uint8_t gpu[16];
	int error = 0;

	check(cudaSetDevice(0));
	check(cudaMallocManaged(&scratch, bytes));
	for (int k = 0; k < inputs; k++) {
		check(cudaMallocManaged(&in[k], bytes));
		check(cudaMallocManaged(&out[k], bytes));
		for (size_t i = 0; i < n; i++)
			in[k][i] = (uint32_t)(i + k);
	}
	if (uvmrust_device_uuid(0, gpu))
		return 1;
	printf("discard by %s\n", discard ? uvmrust_backend_name(uvmrust_backend()) : "nobody");

	auto start = std::chrono::steady_clock::now();
	for (int k = 0; k < inputs; k++) {
		stage1<<<256, 256>>>(in[k], scratch, n);
		stage2<<<256, 256>>>(scratch, out[k], n);
		if (!discard)
			continue;
		/* In the stream's order: after stage2, before the next stage1. */
		error = uvmrust_discard_and_prefetch_async(scratch, bytes, gpu, nullptr);
		if (error == UVMRUST_ENOTSUPPORTED)
			discard = false;	/* slower, not wrong */
		else if (error)
			return 1;
	}
	check(cudaDeviceSynchronize());
	error = uvmrust_stream_error();
	if (error)
		fprintf(stderr, "discard: %s\n", uvmrust_strerror(error));
	printf("%.3f s\n", std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
				   .count());
	for (int k = 0; k < inputs; k++)
		for (size_t i = 0; i < n; i++)
			if (out[k][i] != (uint32_t)(i + k) * 3 + 1) {
				fprintf(stderr, "out[%d][%zu] is wrong\n", k, i);
				return 1;
			}
	puts("results right");
	return 0;
}
