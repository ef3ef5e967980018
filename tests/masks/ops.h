/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
#ifndef MASKS_OPS_H
#define MASKS_OPS_H

/* Words of the longest bitmap, and one behind it that nobody may write. */
#define WORDS 9

/* The sizes in use (page masks, processors, big pages), and around them. */
#define SIZES(X) X(32) X(64) X(65) X(128) X(255) X(257) X(264) X(511) X(512) X(513)

/* What an operation gave: the bitmap it made, and what it returned. */
struct outcome {
	unsigned long dst[WORDS], value;
};

enum op {
	AND, ANDNOT, OR, ZERO, FILL, COPY, EMPTY, FULL, INTERSECTS, SUBSET, EQUAL, WEIGHT,
	SET, CLEAR, FIRST, FIRST_ZERO, NEXT, NEXT_ZERO, RUNS, WEIGHT_OF_SOME, OPS,
};

struct input {
	unsigned long a[WORDS], b[WORDS];
	unsigned int start, count;
};

/* Runs @op on bitmaps of @size bits; one by the reference, one by what is tested. */
void plain(enum op op, unsigned int size, const struct input *in, struct outcome *out);
void ours(enum op op, unsigned int size, const struct input *in, struct outcome *out);

#endif
