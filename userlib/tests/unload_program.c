/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* A graph, and what waits in a stream, call the library after the program has closed it. */
#include <dlfcn.h>
#include "cuda.h"
#include "uvmrust.h"

#define LENGTH ((uint64_t)2 << 20)
/* The library's function, as the header declares it. */
#define NAMED(name) ((__typeof__(&name))dlsym(library, #name))

int main(void)
{
	void *stream, *graph, *executable, *memory, *library = dlopen("libuvmrust.so.0", RTLD_NOW);

	if (!library) {
		printf("%s\n", dlerror());
		return 2;
	}
	use_device(0);
	memory = managed(LENGTH);
	MUST(cuStreamCreate(&stream, NON_BLOCKING));
	MUST(cuStreamBeginCapture_v2(stream, 0));
	EXPECT(NAMED(uvmrust_discard_async)(memory, LENGTH, 0, stream) == 0);
	MUST(cuStreamEndCapture(stream, &graph));
	MUST(cuGraphInstantiateWithFlags(&executable, graph, 0));
	put(stream, memory, LENGTH, 3);
	EXPECT(NAMED(uvmrust_discard_async)(memory, LENGTH, 0, stream) == 0);
	EXPECT(dlclose(library) == 0);
	MUST(cuStreamSynchronize(stream));
	EXPECT(!all_words(memory, LENGTH, 3));
	put(stream, memory, LENGTH, 4);
	MUST(cuGraphLaunch(executable, stream));
	MUST(cuStreamSynchronize(stream));
	EXPECT(!all_words(memory, LENGTH, 4));
	MUST(cuGraphDestroy(graph));
	MUST(cuGraphExecDestroy(executable));
	return failed;
}
