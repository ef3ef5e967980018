/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A process whose allocator must not be called while it forks: one that takes its locks
 * in a handler of pthread_atfork() may have done so before the library is told of the fork.
 */
#include <pthread.h>
#include <stddef.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "uvmrust.h"

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);

extern char **environ;

static int forking, asked;

/* What the library looks for in the environment. */
char *getenv(const char *name)
{
	size_t length = strlen(name);

	asked += !strcmp(name, "UVMRUST_FD");
	for (char **entry = environ; *entry; entry++)
		if (!strncmp(*entry, name, length) && (*entry)[length] == '=')
			return *entry + length + 1;
	return NULL;
}

static void check(void)
{
	static const char said[] = "the allocator is called during a fork\n";

	if (forking && write(2, said, sizeof(said) - 1))
		_exit(99);
}

void *malloc(size_t size)
{
	check();
	return __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
	check();
	return __libc_calloc(count, size);
}

void *realloc(void *p, size_t size)
{
	check();
	return __libc_realloc(p, size);
}

static void before(void)
{
	forking = 1;
}

static void after(void)
{
	forking = 0;
}

int main(void)
{
	int status;
	pid_t child;

	/*
	 * When it is loaded: a child would wait for ever for a thread of its parent that is in
	 * the midst of it.
	 */
	if (asked != 1)
		return 3;
	/* Of the handlers that come before, the one registered last comes first. */
	if (pthread_atfork(before, after, after))
		return 2;
	for (int i = 0; i < 2; i++) {
		child = fork();
		if (!child)
			_exit(UvmRustBackend() != UVMRUST_BACKEND_NONE);
		if (waitpid(child, &status, 0) != child || status)
			return 1;
		/* And once the library has been used. */
		UvmRustBackend();
	}
	return 0;
}
