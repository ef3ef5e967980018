// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * uvm_rust_masks.h against a reference that goes bit by bit: every operation, on bitmaps
 * that are empty, full, nearly so, and random. Prints TAP.
 *
 *   masks [SEED]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ops.h"

#define ROUNDS 20000

static const char *const names[OPS] = {
	[AND] = "and", [ANDNOT] = "andnot", [OR] = "or", [ZERO] = "zero", [FILL] = "fill", [COPY] = "copy",
	[EMPTY] = "empty", [FULL] = "full", [INTERSECTS] = "intersects", [SUBSET] = "subset", [EQUAL] = "equal",
	[WEIGHT] = "weight", [SET] = "set", [CLEAR] = "clear", [FIRST] = "find first",
	[FIRST_ZERO] = "find first zero", [NEXT] = "find next", [NEXT_ZERO] = "find next zero", [RUNS] = "runs of set bits",
	[WEIGHT_OF_SOME] = "weight of some",
};

#define NUMBER(n) n,
static const unsigned int sizes[] = { SIZES(NUMBER) };

static unsigned long state;

/* splitmix64 */
static unsigned long any(void)
{
	unsigned long z = state += 0x9E3779B97F4A7C15;

	z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
	z = (z ^ z >> 27) * 0x94D049BB133111EB;
	return z ^ z >> 31;
}

static void fill(unsigned long *map)
{
	unsigned int kind = any() % 6, i;

	for (i = 0; i < WORDS; i++)
		map[i] = kind < 2 ? 0 : kind < 4 ? ~0UL : any();
	if (kind == 1 || kind == 3)
		map[any() % WORDS] ^= 1UL << any() % 64;
}

/* Bits behind @size are nobody's where the last word is not whole, and not for words behind it. */
static int same(const struct outcome *a, const struct outcome *b, unsigned int size)
{
	unsigned int i;

	for (i = 0; i < WORDS; i++) {
		unsigned long cared = i == size / 64 && size % 64 ? ~0UL >> (64 - size % 64) : ~0UL;

		if ((a->dst[i] ^ b->dst[i]) & cared)
			return 0;
	}
	return a->value == b->value;
}

/* One operation on one size; bitmaps that are each other's subset, or equal, now and then. */
static int round_of(enum op op, unsigned int size)
{
	struct outcome want = { .value = 0 }, got;
	struct input in;
	unsigned int i;

	fill(in.a);
	fill(in.b);
	if (any() % 4 == 0)
		for (i = 0; i < WORDS; i++)
			in.b[i] |= in.a[i];
	if (any() % 4 == 0)
		memcpy(in.b, in.a, sizeof(in.a));
	in.start = any() % (size + 1);
	in.count = any() % 2 ? any() % (size - in.start + 1) : any() % 4;
	if (in.count > size - in.start)
		in.count = size - in.start;
	fill(want.dst);
	got = want;
	plain(op, size, &in, &want);
	ours(op, size, &in, &got);
	return same(&want, &got, size);
}

int main(int argc, char **argv)
{
	int bad = 0;
	enum op op;

	state = argc > 1 ? strtoul(argv[1], NULL, 0) : (unsigned long)time(NULL);
	printf("# seed %lu\nTAP version 13\n1..%d\n", state, OPS);
	for (op = 0; op < OPS; op++) {
		unsigned int round, size = 0, wrong = 0;

		for (round = 0; round < ROUNDS && !wrong; round++) {
			size = sizes[round % (sizeof(sizes) / sizeof(*sizes))];
			wrong = !round_of(op, size);
		}
		if (wrong)
			printf("not ok %d - masks: %s # %u bits, round %u\n", op + 1, names[op], size, round);
		else
			printf("ok %d - masks: %s\n", op + 1, names[op]);
		bad |= wrong;
	}
	return bad;
}
