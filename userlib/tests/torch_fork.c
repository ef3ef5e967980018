/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A program asks the allocator for what it has done, and sets it up, and forks before anybody
 * uses the GPU, as a loader's workers and servers do: the child is the first to use it.
 * Arguments: the allocator's library.
 */
#include <dlfcn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "cuda.h"

#define LENGTH ((uint64_t)2 << 20)

int main(int argc, char **argv)
{
	void *library = dlopen(argv[1], RTLD_NOW);
	void *(*alloc)(size_t, int, void *);
	void (*empty)(void), (*stats)(uint64_t *), (*trim)(uint64_t);
	void (*set_fraction)(double, int);
	uint64_t seen[5];
	int status;

	if (!library) {
		puts(dlerror());
		return 2;
	}
	*(void **)&alloc = dlsym(library, "uvmrust_torch_malloc");
	*(void **)&empty = dlsym(library, "uvmrust_torch_empty_cache");
	*(void **)&trim = dlsym(library, "uvmrust_torch_trim");
	*(void **)&stats = dlsym(library, "uvmrust_torch_stats");
	*(void **)&set_fraction = dlsym(library, "uvmrust_torch_set_fraction");
	memset(seen, 1, sizeof(seen));
	stats(seen);
	EXPECT(seen[0] == 0);
	empty();
	trim(0);
	set_fraction(0.5, 0);
	if (!fork()) {
		use_device(0);
		EXPECT(alloc(LENGTH, 0, NULL) != NULL);
		stats(seen);
		EXPECT(seen[0] == 1);
		fflush(stdout);
		_exit(failed);
	}
	EXPECT(wait(&status) > 0 && status == 0);
	/* The parent has memory of its own, and its next child none. */
	use_device(0);
	EXPECT(alloc(LENGTH, 0, NULL) != NULL);
	if (!fork())
		_exit(alloc(LENGTH, 0, NULL) != NULL);
	EXPECT(wait(&status) > 0 && status == 0);
	return failed;
}
