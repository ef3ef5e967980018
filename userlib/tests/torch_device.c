/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Frees memory of one GPU while another is current, as PyTorch does: its raw_delete()
 * sets no device, and the default stream of each GPU is NULL. Another GPU's default stream
 * reads memory, which is recorded with the memory's own GPU current, as PyTorch does it.
 * Then forks: the child has no memory to give. Arguments: the allocator's library.
 */
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>
#include "cuda.h"

#define LENGTH ((uint64_t)2 << 20)

int main(int argc, char **argv)
{
	void *library = dlopen(argv[1], RTLD_NOW);
	void *(*alloc)(size_t, int, void *);
	void (*release)(void *, size_t, int, void *);
	void (*record)(void *, void *);
	struct seen seen = { 0 };
	int status;
	void *a, *b, *c, *stream;

	if (!library) {
		puts(dlerror());
		return 2;
	}
	*(void **)&alloc = dlsym(library, "uvmrust_torch_malloc");
	*(void **)&release = dlsym(library, "uvmrust_torch_free");
	*(void **)&record = dlsym(library, "uvmrust_torch_record_stream");
	use_device(1);
	a = alloc(LENGTH, 1, NULL);
	put(NULL, a, LENGTH, 1);
	/* Some other thread's GPU, say, with work under way in its default stream. */
	use_device(0);
	put(NULL, managed(LENGTH), LENGTH, 2);
	release(a, LENGTH, 1, NULL);
	use_device(1);
	b = alloc(LENGTH, 1, NULL);
	EXPECT(a == b);
	put(NULL, b, LENGTH, 3);
	MUST(cuStreamSynchronize(NULL));
	use_device(0);
	MUST(cuCtxSynchronize());
	use_device(1);
	get(NULL, b, LENGTH, &seen);
	MUST(cuCtxSynchronize());
	EXPECT(seen.count == 1 && seen.values[0] == 3);
	EXPECT(stub_violations() == 0);
	release(b, LENGTH, 1, NULL);

	use_device(0);
	MUST(cuStreamCreate(&stream, NON_BLOCKING));
	a = alloc(LENGTH, 0, stream);
	put(stream, a, LENGTH, 4);
	MUST(cuStreamSynchronize(stream));
	use_device(1);
	seen.count = 0;
	get(NULL, a, LENGTH, &seen);
	use_device(0);
	record(a, NULL);
	release(a, LENGTH, 0, stream);
	b = alloc(LENGTH, 0, stream);
	/* No stream waits for another GPU's default stream, which may wait for it. */
	EXPECT(a != b);
	put(stream, b, LENGTH, 5);
	MUST(cuStreamSynchronize(stream));
	use_device(1);
	MUST(cuCtxSynchronize());
	EXPECT(seen.count == 1 && seen.values[0] == 4);
	use_device(0);
	MUST(cuCtxSynchronize());
	release(b, LENGTH, 0, stream);
	b = alloc(LENGTH, 0, stream);
	c = alloc(LENGTH, 0, stream);
	EXPECT(a == b || a == c);
	release(b, LENGTH, 0, stream);
	release(c, LENGTH, 0, stream);

	if (!fork())
		_exit(alloc(LENGTH, 1, NULL) != NULL);
	EXPECT(wait(&status) > 0 && status == 0);
	return failed;
}
