/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A program that has NVIDIA's UvmDiscard(), of three arguments, and libuvmrust's calls, too. Each call
 * reaches its own function: the library's memory is discarded by the library, on the stub.
 */
#include <stdint.h>

typedef uint32_t NV_STATUS;

/* As the declaration of NVIDIA's uvm.h has it. */
NV_STATUS UvmDiscard(void *base, uint64_t length, uint64_t flags);

#define UVMRUST_NO_OLD_NAMES
#include "cuda.h"
#include "uvmrust.h"

#define LENGTH ((size_t)2 << 20)

static unsigned int calls;

/* The program is linked with a library that has it; this one counts. */
NV_STATUS UvmDiscard(void *base, uint64_t length, uint64_t flags)
{
	EXPECT(base == (void *)4096 && length == LENGTH && flags == 1);
	calls++;
	return 0x40;
}

int main(void)
{
	struct uvmrust_range range;
	struct uvmrust_batch batch = UVMRUST_BATCH(&range, 1);
	void *p;

	use_device(0);
	p = managed(LENGTH);
	range = (struct uvmrust_range){ (uintptr_t)p, LENGTH };
	EXPECT(UvmDiscard((void *)4096, LENGTH, 1) == 0x40 && calls == 1);
	put(NULL, p, LENGTH, 5);
	MUST(cuCtxSynchronize());
	EXPECT(uvmrust_discard(p, LENGTH, 0) == 0);
	EXPECT(!all_words(p, LENGTH, 5));
	put(NULL, p, LENGTH, 6);
	EXPECT(uvmrust_discard_batch_async(&batch, NULL) == 0);
	MUST(cuCtxSynchronize());
	EXPECT(!all_words(p, LENGTH, 6));
	/* The library has not called the program's. */
	EXPECT(calls == 1 && uvmrust_stream_error() == 0 && stub_violations() == 0);
	return failed;
}
