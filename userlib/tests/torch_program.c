/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Uses the PyTorch allocator as PyTorch does, on the stub library: allocates,
 * launches kernels that write, frees before they have run, and looks at the data.
 * Arguments: the allocator's library, whether discards are to be expected, and, if one more is given, prefetches
 * now and then fail when the stream comes there: "told" is what the library sees, "untold" what it does not.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A segment for itself. */
#define LENGTH ((uint64_t)10 << 20)

struct kernel {
	const char *name;
} write_all = { "write_all" };

struct stats {
	uint64_t mallocs, reused, held, discarded, prefetched;
};

static void *find(void *library, const char *name)
{
	void *f = dlsym(library, name);

	if (!f) {
		printf("no %s\n", name);
		exit(2);
	}
	return f;
}

int main(int argc, char **argv)
{
	void *library = dlopen(argv[1], RTLD_NOW);
	int discards = atoi(argv[2]), bad = 0;
	void *(*alloc)(size_t, int, void *);
	void (*release)(void *, size_t, int, void *);
	void (*record)(void *, void *);
	void (*read_stats)(struct stats *);
	void (*fail)(const char *, unsigned);
	size_t (*read_all)(void *, size_t);
	int (*launch)(struct kernel *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
		      unsigned, void *, void **, void **);
	int (*create)(void **, unsigned);
	int (*synchronize)(void *);
	int (*event_create)(void **, unsigned);
	int (*event_record)(void *, void *);
	int (*wait)(void *, void *, unsigned);
	int (*init)(unsigned), (*retain)(void **, int), (*set_current)(void *);
	void *streams[2], *event, *context;
	struct stats stats;
	uint64_t words[16];

	if (!library) {
		puts(dlerror());
		return 2;
	}
	*(void **)&alloc = find(library, "uvmrust_torch_malloc");
	*(void **)&release = find(library, "uvmrust_torch_free");
	*(void **)&record = find(library, "uvmrust_torch_record_stream");
	*(void **)&read_stats = find(library, "uvmrust_torch_stats");
	*(void **)&fail = find(RTLD_DEFAULT, "stub_fail");
	*(void **)&launch = find(RTLD_DEFAULT, "cuLaunchKernel");
	*(void **)&create = find(RTLD_DEFAULT, "cuStreamCreate");
	*(void **)&synchronize = find(RTLD_DEFAULT, "cuStreamSynchronize");
	*(void **)&event_create = find(RTLD_DEFAULT, "cuEventCreate");
	*(void **)&event_record = find(RTLD_DEFAULT, "cuEventRecord");
	*(void **)&wait = find(RTLD_DEFAULT, "cuStreamWaitEvent");
	*(void **)&init = find(RTLD_DEFAULT, "cuInit");
	*(void **)&retain = find(RTLD_DEFAULT, "cuDevicePrimaryCtxRetain");
	*(void **)&set_current = find(RTLD_DEFAULT, "cuCtxSetCurrent");
	if (init(0) || retain(&context, 0) || set_current(context))
		return 2;
	event_create(&event, 0);
	create(&streams[0], 0);
	create(&streams[1], 0);

	for (int i = 0; i < 50; i++) {
		if (argc > 3 && i % 20 == 10) {
			fail("cuMemPrefetchAsync later", 1);
			fail("UVM_MIGRATE", 1);
		}
		void *stream = streams[i % 3 == 2];
		unsigned char *p = alloc(LENGTH, 0, stream), *q = alloc(LENGTH, 0, stream);
		uint64_t length = LENGTH;
		int step = i;
		void *to_p[] = { &p, &length, &step }, *to_q[] = { &q, &length, &step };

		if (!p || !q || p == q)
			return 1;
		launch(&write_all, 1, 1, 1, 1, 1, 1, 0, stream, to_p, NULL);
		/*
		 * Another stream writes q, which is freed at once. It waits for the one
		 * in which q was allocated, as PyTorch asks of its users.
		 */
		event_record(event, stream);
		wait(streams[i % 2], event, 0);
		launch(&write_all, 1, 1, 1, 1, 1, 1, 0, streams[i % 2], to_q, NULL);
		record(q, streams[i % 2]);
		release(q, LENGTH, 0, stream);
		if (i % 5 == 0) {
			synchronize(stream);
			for (uint64_t at = 0; at < LENGTH; at++)
				bad |= p[at] != 0x5a;
		}
		release(p, LENGTH, 0, stream);
	}
	read_stats(&stats);
	/* As much as the caller knows of, and no more than there is. */
	*(void **)&read_all = find(library, "uvmrust_torch_all_stats");
	memset(words, 0xee, sizeof(words));
	bad |= read_all(words, 16) != 16 || memcmp(words, &stats, 16) || words[2] != words[15];
	bad |= read_all(words, sizeof(words)) != sizeof(stats) || memcmp(words, &stats, sizeof(stats));
	bad |= words[5] != words[15] || read_all(NULL, sizeof(words)) != 0;
	printf("mallocs %lu reused %lu held %lu discarded %lu prefetched %lu bad %d\n",
	       stats.mallocs, stats.reused, stats.held, stats.discarded, stats.prefetched, bad);
	bad |= stats.mallocs != 100 || stats.reused != 100 - stats.held / LENGTH;
	if (argc > 3 && !strcmp(argv[3], "told"))
		/* From the failure on nothing is discarded for 64 frees. What is discarded by then, one of a stream, lies. */
		return bad || stats.prefetched > 30 * LENGTH || stats.held > 6 * LENGTH;
	bad |= stats.held != 4 * LENGTH;
	/* Of the two that are free, the first allocation takes one as it is, and discards the other. */
	bad |= stats.prefetched != (discards ? 48 * LENGTH : 0);
	return bad;
}
