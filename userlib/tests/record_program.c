/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A CUDA program whose step is eight kernels on three weights and on memory that the step
 * allocates and frees. It says where its memory is, a line for each allocation: its name,
 * address and bytes.
 *
 *   STEPS=n   how many
 *   MORE=n    MiB more of each allocation, which lies elsewhere then
 *   LEAVE=n   in this step, from 0, another kernel comes in between
 *   ONCE=1    each step's kernels have names of their own: nothing repeats
 *   LAUNCHES=0  it only allocates
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cudart.h"

#define MIB ((uint64_t)1 << 20)
#define COUNT(a) (sizeof(a) / sizeof(*(a)))

struct memory {
	const char *name;
	uint64_t bytes;
	unsigned char *at;
};

static struct memory weights[] = { { "w0", 12 * MIB }, { "w1", 14 * MIB }, { "w2", 16 * MIB } };
static struct memory own = { "own", 18 * MIB };

static unsigned long number(const char *name, unsigned long otherwise)
{
	const char *text = getenv(name);

	return text ? strtoul(text, NULL, 10) : otherwise;
}

static void allocate(struct memory *memory)
{
	uint64_t bytes = memory->bytes + number("MORE", 0) * MIB;

	if (number("MORE", 0))
		mmap(NULL, 64 * MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (cudaMalloc((void **)&memory->at, bytes))
		exit(1);
	printf("%s %lu %lu\n", memory->name, (unsigned long)memory->at, (unsigned long)bytes);
}

/* A kernel is known by its address: one of each name. */
static struct kernel *kernel(const char *name)
{
	static struct kernel known[32];

	for (size_t i = 0; i < COUNT(known); i++) {
		if (!known[i].name)
			known[i].name = strdup(name);
		if (!strcmp(known[i].name, name))
			return &known[i];
	}
	exit(1);
}

/* Waits, so that what is moved before a kernel has its time. */
static void launch(const char *name, struct memory *memory)
{
	uint64_t length = memory->bytes;
	int one = 1;
	void *params[] = { &memory->at, &length, &one };

	if (cudaLaunchKernel(kernel(name), (struct dim){ 1, 1, 1 }, (struct dim){ 32, 1, 1 },
			     params, 0, NULL))
		exit(1);
	cudaDeviceSynchronize();
	usleep(number("WAIT", 0) * 1000);
}

static void step(unsigned long n)
{
	char names[8][16];
	static const char *const usual[8] = { "embed", "layer", "layer", "head",
					      "loss",  "update", "update", "update" };

	for (size_t i = 0; i < 8; i++)
		snprintf(names[i], sizeof(names[i]), getenv("ONCE") ? "%s%lu" : "%s", usual[i], n);
	launch(names[0], &weights[0]);
	allocate(&own);
	launch(names[1], &own);
	if (number("LEAVE", -1) == n)
		launch("other", &weights[1]);
	launch(names[2], &weights[1]);
	launch(names[3], &weights[2]);
	launch(names[4], &own);
	if (cudaFree(own.at))
		exit(1);
	for (size_t i = 0; i < COUNT(weights); i++)
		launch(names[5 + i], &weights[i]);
}

int main(void)
{
	for (size_t i = 0; i < COUNT(weights); i++)
		allocate(&weights[i]);
	if (!number("LAUNCHES", 1))
		return 0;
	for (size_t i = 0; i < COUNT(weights); i++)
		launch("init", &weights[i]);
	for (unsigned long n = 0; n < number("STEPS", 1); n++)
		step(n);
	for (size_t i = 0; i < COUNT(weights); i++)
		for (uint64_t at = 0; at < weights[i].bytes; at++)
			if (weights[i].at[at] != 0x5a)
				return 3;
	for (size_t i = 0; i < COUNT(weights); i++)
		if (cudaFree(weights[i].at))
			return 1;
	return number("STATUS", 0);
}
