/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * How long a launch takes the program, on a real GPU: of small kernels, one after the other in a
 * stream, with a wait for each 500 of them. Prints the median and the least of 41 such rounds.
 * It is run by itself, under the preload, and while that records. Exits with 0, or with 77 where
 * there is no GPU.
 *
 *   launch_program
 *   launch_program --host       with an empty host function before each, as an announcement is one
 */
#include "native_cuda.h"
#include "timing.h"

#define LAUNCHES 500
#define ROUNDS 41
#define LENGTH ((size_t)1 << 20)

static bool host_functions;

static void nothing(void *data)
{
}

static double round_us(uint64_t to, uint64_t from)
{
	uint32_t count = 256;
	void *params[] = { &to, &from, &count };
	double began = now_us();

	for (int i = 0; i < LAUNCHES; i++) {
		if (host_functions)
			MUST(cuLaunchHostFunc(work, nothing, NULL));
		MUST(cuLaunchKernel(copy_kernel, 1, 1, 1, 256, 1, 1, 0, work, params, NULL));
	}
	MUST(cuStreamSynchronize(work));
	return (now_us() - began) / LAUNCHES;
}

int main(int argc, char **argv)
{
	double took[ROUNDS];
	uint64_t to, from;

	host_functions = argc > 1 && !strcmp(argv[1], "--host");
	start_cuda(4096);
	if (is_stub) {
		puts("the stub compiles no kernels");
		return 77;
	}
	MUST(cuMemAlloc_v2(&to, LENGTH));
	MUST(cuMemAlloc_v2(&from, LENGTH));
	round_us(to, from);
	for (int i = 0; i < ROUNDS; i++)
		took[i] = round_us(to, from);
	qsort(took, ROUNDS, sizeof(*took), compare);
	printf("fact - a launch takes %.2f us, at least %.2f\n", took[ROUNDS / 2], took[0]);
	MUST(cuMemFree_v2(to));
	MUST(cuMemFree_v2(from));
	return 0;
}
