/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A CUDA program with a step of three kernels, all of whose memory is one range: it runs
 * the step $STEPS times, and waits until $MOVED bytes were moved, as the stub's log says.
 * With $RESET it resets the device then.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "cudart.h"

#define MIB ((uint64_t)1 << 20)

static struct kernel add = { "add" };

int cuStreamCreate(void **, unsigned int);
int cuStreamBeginCapture_v2(void *, int);
int cuStreamEndCapture(void *, void **);
int cuGraphDestroy(void *);
int cuDevicePrimaryCtxReset_v2(int);

static void launch_in(void *stream, void *p, uint64_t length)
{
	int number = 1;
	void *params[] = { &p, &length, &number };

	if (cudaLaunchKernel(&add, (struct dim){ 1, 1, 1 }, (struct dim){ 32, 1, 1 }, params, 0,
			     stream))
		exit(1);
}

static void launch(void *p, uint64_t length)
{
	launch_in(NULL, p, length);
}

static unsigned long moved(void)
{
	FILE *file = fopen(getenv("STUB_LOG"), "r");
	unsigned long sum = 0, n;
	char line[256];

	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "prefetch %lu", &n) == 1 || sscanf(line, "spill %lu", &n) == 1)
			sum += n;
	if (file)
		fclose(file);
	return sum;
}

int main(void)
{
	unsigned char *small, *range;
	void *stream, *graph;
	unsigned long want = atol(getenv("MOVED"));

	if (cudaMalloc((void **)&small, 4 * MIB) || cuStreamCreate(&stream, 0))
		return 1;
	/* Not a kernel of the step: there is no range yet. */
	launch(small, MIB);
	if (cudaMalloc((void **)&range, 16 * MIB))
		return 1;
	for (int i = 0; i < atoi(getenv("STEPS")); i++) {
		launch(range, MIB);
		/* Not one either. */
		if (cuStreamBeginCapture_v2(stream, 0))
			return 1;
		launch_in(stream, range, MIB);
		if (cuStreamEndCapture(stream, &graph) || cuGraphDestroy(graph))
			return 1;
		cudaGraphLaunch((void *)0x1000, NULL);
		launch(range + 4 * MIB, MIB);
	}
	cudaDeviceSynchronize();
	for (int i = 0; i < 2000 && moved() < want; i++)
		usleep(10000);
	if (getenv("RESET")) {
		/* A step's worth of kernels of another range, which is not large enough. */
		if (cuDevicePrimaryCtxReset_v2(0) || cudaMalloc((void **)&small, 4 * MIB))
			return 1;
		launch(small, MIB);
		launch(small, MIB);
	} else {
		cudaFree(range);
	}
	launch(small, MIB);
	cudaDeviceSynchronize();
	return 0;
}
