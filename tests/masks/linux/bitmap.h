/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What uvm_rust_masks.h takes of the kernel's header of this name, done bit by bit: the
 * reference that it is compared with, and what it falls back to.
 */
#ifndef MASKS_LINUX_BITMAP_H
#define MASKS_LINUX_BITMAP_H

#include <stdbool.h>
#include <stddef.h>

#define __always_inline inline __attribute__((always_inline, unused))
#define BITS_PER_LONG 64u
#define BITS_TO_LONGS(n) (((n) + 63) / 64)
#define BIT_WORD(n) ((n) / 64)
#define BITMAP_FIRST_WORD_MASK(n) (~0UL << ((n) % 64))
#define BITMAP_LAST_WORD_MASK(n) (~0UL >> (-(n) % 64))
#define hweight_long(word) ((unsigned int)__builtin_popcountl(word))
#define __ffs(word) ((unsigned long)__builtin_ctzl(word))

static __always_inline bool bit(const unsigned long *map, unsigned long n)
{
	return map[n / 64] >> n % 64 & 1;
}

static __always_inline void put(unsigned long *map, unsigned long n, bool on)
{
	map[n / 64] = (map[n / 64] & ~(1UL << n % 64)) | (unsigned long)on << n % 64;
}

/* Of each bit, @x and @y of the operands. */
#define MAKE(name, expression)									\
static __always_inline bool bitmap_##name(unsigned long *dst, const unsigned long *a,		\
					  const unsigned long *b, unsigned int nbits)		\
{												\
	bool any = false;									\
												\
	for (unsigned int i = 0; i < nbits; i++) {						\
		bool x = bit(a, i), y = bit(b, i);						\
												\
		put(dst, i, expression);							\
		any |= (expression);								\
	}											\
	return any;										\
}

#define ALL(name, expression)									\
static __always_inline bool bitmap_##name(const unsigned long *a, const unsigned long *b,	\
					  unsigned int nbits)					\
{												\
	bool all = true;									\
												\
	for (unsigned int i = 0; i < nbits; i++) {						\
		bool x = bit(a, i), y = bit(b, i);						\
												\
		all &= (expression);								\
	}											\
	return all;										\
}

MAKE(and, x && y)
MAKE(andnot, x && !y)
MAKE(make_or, x || y)
ALL(disjoint, !(x && y))
ALL(subset, !x || y)
ALL(equal, x == y)
ALL(clear_in_both, !x && !y)
ALL(set_in_both, x && y)

static __always_inline void bitmap_or(unsigned long *dst, const unsigned long *a, const unsigned long *b,
				      unsigned int nbits)
{
	bitmap_make_or(dst, a, b, nbits);
}

static __always_inline bool bitmap_empty(const unsigned long *a, unsigned int nbits)
{
	return bitmap_clear_in_both(a, a, nbits);
}

static __always_inline bool bitmap_full(const unsigned long *a, unsigned int nbits)
{
	return bitmap_set_in_both(a, a, nbits);
}

static __always_inline bool bitmap_intersects(const unsigned long *a, const unsigned long *b, unsigned int nbits)
{
	return !bitmap_disjoint(a, b, nbits);
}

static __always_inline unsigned int bitmap_weight(const unsigned long *a, unsigned int nbits)
{
	unsigned int sum = 0;

	for (unsigned int i = 0; i < nbits; i++)
		sum += bit(a, i);
	return sum;
}

static __always_inline void bitmap_set(unsigned long *map, unsigned int start, unsigned int count)
{
	while (count--)
		put(map, start++, true);
}

static __always_inline void bitmap_clear(unsigned long *map, unsigned int start, unsigned int count)
{
	while (count--)
		put(map, start++, false);
}

/* Of whole words, as the kernel's. */
static __always_inline void bitmap_fill(unsigned long *dst, unsigned int nbits)
{
	bitmap_set(dst, 0, 64 * BITS_TO_LONGS(nbits));
}

static __always_inline void bitmap_zero(unsigned long *dst, unsigned int nbits)
{
	bitmap_clear(dst, 0, 64 * BITS_TO_LONGS(nbits));
}

static __always_inline void bitmap_copy(unsigned long *dst, const unsigned long *a, unsigned int nbits)
{
	for (unsigned int i = 0; i < 64 * BITS_TO_LONGS(nbits); i++)
		put(dst, i, bit(a, i));
}

static __always_inline unsigned long find(const unsigned long *map, unsigned long size, unsigned long n, bool on)
{
	while (n < size && bit(map, n) != on)
		n++;
	return n < size ? n : size;
}

static __always_inline unsigned long find_first_bit(const unsigned long *map, unsigned long size)
{
	return find(map, size, 0, true);
}

static __always_inline unsigned long find_first_zero_bit(const unsigned long *map, unsigned long size)
{
	return find(map, size, 0, false);
}

static __always_inline unsigned long find_next_bit(const unsigned long *map, unsigned long size, unsigned long n)
{
	return find(map, size, n, true);
}

static __always_inline unsigned long find_next_zero_bit(const unsigned long *map, unsigned long size, unsigned long n)
{
	return find(map, size, n, false);
}

#endif
