/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A child of fork loads the library, as a worker of Python's multiprocessing does, and so
 * was never told that it is a child. What it finds is its parent's.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include "cuda.h"
#include "uvmrust.h"

#define LENGTH ((size_t)4 << 20)
/* The library's function, as the header declares it. */
#define NAMED(name) ((__typeof__(&name))dlsym(library, #name))

static int child(void *memory)
{
	void *library = dlopen("libuvmrust.so.0", RTLD_NOW);

	if (!library) {
		printf("%s\n", dlerror());
		return 2;
	}
	if (NAMED(UvmRustBackend)() != UVMRUST_BACKEND_NONE ||
	    NAMED(UvmDiscard)(memory, LENGTH) != UVMRUST_ENOTSUPPORTED ||
	    !NAMED(UvmPrefetch)(memory, LENGTH, NULL)) {
		printf("the child uses what is its parent's\n");
		return 1;
	}
	return 0;
}

int main(void)
{
	void *memory;
	int status = 0;
	pid_t pid;

	use_device(0);
	memory = managed(LENGTH);
	pid = fork();
	if (!pid) {
		status = child(memory);
		fflush(stdout);
		_exit(status);
	}
	return waitpid(pid, &status, 0) != pid || status;
}
