/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A CUDA program whose step is two kernels: "chase" is given a table, whose first word leads to memory that
 * no kernel is given, and "layer" is given memory of its own.
 *
 *   STEPS=n   how many
 *   CLOSE=n   before this step, from 0, it closes all descriptors, and opens a file many times, each
 *             of which it writes to at its end
 *   FORK=n    before this step, from 0, it makes a child, which goes when the program does
 *   RESET=1   it resets its device at its end
 *   READS=1   a thread reads what the process says, but not before it has launched a kernel while
 *             the first launch has no room to say more
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cudart.h"

#define MIB ((size_t)1 << 20)
#define OWN 16

int cuDevicePrimaryCtxReset_v2(int device);
int cuCtxGetCurrent(void **context);
int cuCtxSetCurrent(void *context);

static unsigned long number(const char *name, unsigned long otherwise)
{
	const char *text = getenv(name);

	return text ? strtoul(text, NULL, 10) : otherwise;
}

static void launch(struct kernel *kernel, void *memory, uint64_t length)
{
	int one = 1;
	void *params[] = { &memory, &length, &one };

	if (cudaLaunchKernel(kernel, (struct dim){ 1, 1, 1 }, (struct dim){ 32, 1, 1 }, params, 0,
			     NULL))
		exit(1);
	cudaDeviceSynchronize();
}

static struct kernel chase = { "chase" }, layer = { "layer" };
static char *table, *far, *memory;

struct reader {
	pthread_t thread;
	void *context;
	int from, to;
};

static void *reads(void *arg)
{
	struct reader *reader = arg;
	char text[4096];
	ssize_t length;

	usleep(300000);
	cuCtxSetCurrent(reader->context);
	launch(&layer, memory, 6 * MIB);
	while ((length = read(reader->from, text, sizeof(text))) > 0)
		if (write(reader->to, text, length) != length)
			exit(5);
	return NULL;
}

/*
 * Begins the program again with a pipe for its stderr, which is full, as nothing is said in a file that takes the
 * place of stderr later.
 */
static void with_a_full_pipe(char **args)
{
	char text[16];
	int ends[2];

	snprintf(text, sizeof(text), "%d", dup(2));
	setenv("STDERR", text, 1);
	if (pipe2(ends, O_NONBLOCK))
		exit(1);
	while (write(ends[1], "\n", 1) == 1)
		;
	fcntl(ends[0], F_SETFL, 0);
	fcntl(ends[1], F_SETFL, 0);
	snprintf(text, sizeof(text), "%d", ends[0]);
	setenv("PIPE", text, 1);
	dup2(ends[1], 2);
	close(ends[1]);
	execv("/proc/self/exe", args);
	exit(1);
}

/* Puts a thread behind that pipe. */
static void begin_reader(struct reader *reader)
{
	/* Who waits for a lock that the other holds waits for ever. */
	alarm(30);
	cuCtxGetCurrent(&reader->context);
	reader->to = number("STDERR", 2);
	reader->from = number("PIPE", 0);
	pthread_create(&reader->thread, NULL, reads, reader);
}

static void end_reader(struct reader *reader)
{
	dup2(reader->to, 2);
	pthread_join(reader->thread, NULL);
}

int main(int argc, char **argv)
{
	int own[OWN], ends[2] = { -1, -1 };
	struct reader reader;
	pid_t child = 0;

	(void)argc;
	if (number("READS", 0) && !getenv("PIPE"))
		with_a_full_pipe(argv);
	if (cudaMalloc((void **)&table, 2 * MIB) || cudaMalloc((void **)&far, 4 * MIB) ||
	    cudaMalloc((void **)&memory, 6 * MIB))
		return 1;
	if (number("READS", 0))
		begin_reader(&reader);
	for (unsigned long n = 0; n < number("STEPS", 1); n++) {
		if (number("CLOSE", -1) == n) {
			syscall(SYS_close_range, 3, ~0u, 0);
			for (int i = 0; i < OWN; i++)
				own[i] = open("/dev/null", O_WRONLY | O_CLOEXEC);
		}
		if (number("FORK", -1) == n) {
			if (pipe(ends))
				return 1;
			child = fork();
			if (!child) {
				close(ends[1]);
				read(ends[0], &child, 1);
				_exit(0);
			}
		}
		*(char **)table = far + n * 4096;
		launch(&chase, table, 2 * MIB);
		launch(&layer, memory, 6 * MIB);
	}
	for (int i = 0; i < OWN && number("CLOSE", -1) < number("STEPS", 1); i++)
		if (write(own[i], "x", 1) != 1)
			return 2;
	if (number("READS", 0))
		end_reader(&reader);
	if (number("RESET", 0) && cuDevicePrimaryCtxReset_v2(0))
		return 3;
	if (child > 0) {
		close(ends[1]);
		if (waitpid(child, NULL, 0) != child)
			return 4;
	}
	return 0;
}
