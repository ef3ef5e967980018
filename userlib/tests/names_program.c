/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A program with functions of its own by each name that libuvmrust's had in earlier versions, which is linked with
 * the static library, and calls that by the names of today.
 */
#include <stdint.h>
#define UVMRUST_NO_OLD_NAMES
#define UVMRUST_NO_G10_NAMES
#include "uvmrust.h"

/* As a program's may be: with other arguments, and other results. */
#define NAMES(F) F(UvmDiscard) F(UvmDiscardLazy) F(UvmDiscardBatch) F(UvmDiscardBatchAsync) F(UvmPrefetch) \
	F(UvmPrefetchAsync) F(UvmDiscardAndPrefetch) F(UvmDiscardAndPrefetchBatch) F(UvmRustBackend) \
	F(UvmRustBackendName) F(UvmRustUseFd) F(UvmRustDeviceUuid) F(UvmRustStreamError) F(UvmRustStrError) \
	F(g10_prefetch) F(g10_pre_evict) F(g10_alloc) F(g10_free) F(g10_done) F(g10_wait) F(g10_error)
#define OWN(name) double name(void) { return 0.5; }
NAMES(OWN)

int main(void)
{
	int strange = 0;

#define CALL(name) strange += name() != 0.5;
	NAMES(CALL)
	strange += uvmrust_version() != UVMRUST_VERSION;
	/* These were behind the old names. */
	strange += uvmrust_prefetch(0, 0, 0) != 0 || uvmrust_moves_error() != 0 || uvmrust_moves_done() != 0;
	return strange;
}
