// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Compiled twice: as it is, and with -DNAME=ours and uvm_rust_masks.h in front, each
 * with sizes that the compiler knows.
 */
#include <linux/bitmap.h>
#include "uvm_rust_big_ptes.h"
#include "ops.h"

#ifndef NAME
#define NAME plain
#endif

static __always_inline void run(enum op op, unsigned int size, const struct input *in, struct outcome *out)
{
	unsigned long *dst = out->dst;
	const unsigned long *a = in->a, *b = in->b;

	switch (op) {
	case AND: out->value = bitmap_and(dst, a, b, size); break;
	case ANDNOT: out->value = bitmap_andnot(dst, a, b, size); break;
	case OR: bitmap_or(dst, a, b, size); break;
	case ZERO: bitmap_zero(dst, size); break;
	case FILL: bitmap_fill(dst, size); break;
	case COPY: bitmap_copy(dst, a, size); break;
	case EMPTY: out->value = bitmap_empty(a, size); break;
	case FULL: out->value = bitmap_full(a, size); break;
	case INTERSECTS: out->value = bitmap_intersects(a, b, size); break;
	case SUBSET: out->value = bitmap_subset(a, b, size); break;
	case EQUAL: out->value = bitmap_equal(a, b, size); break;
	case WEIGHT: out->value = bitmap_weight(a, size); break;
	case SET: bitmap_set(dst, in->start, in->count); break;
	case CLEAR: bitmap_clear(dst, in->start, in->count); break;
	case FIRST: out->value = find_first_bit(a, size); break;
	case FIRST_ZERO: out->value = find_first_zero_bit(a, size); break;
	case NEXT: out->value = find_next_bit(a, size, in->start); break;
	case NEXT_ZERO: out->value = find_next_zero_bit(a, size, in->start); break;
	case RUNS:
		/* As a hook has upstream fill a mask of pages, one region for each run of big page table entries. */
		for (size_t i = find_next_bit(a, size, 0), last; i < size; i = find_next_bit(a, size, last + 1)) {
			last = uvm_rust_last_of_run(a, size, i);
			bitmap_set(dst, i, last + 1 - i);
		}
		break;
	/* Of a size that is not known as this is compiled, often 0. */
	case WEIGHT_OF_SOME: out->value = bitmap_weight(a, in->count); break;
	case OPS: break;
	}
}

void NAME(enum op op, unsigned int size, const struct input *in, struct outcome *out)
{
	switch (size) {
#define CASE(n) case n: run(op, n, in, out); break;
	SIZES(CASE)
	}
}
