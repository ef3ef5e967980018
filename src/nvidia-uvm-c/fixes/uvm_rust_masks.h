/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Bitmaps of a fixed size, in line.
 *
 * A va_block's page mask has 512 bits, and a mask of processors some 260. linux/bitmap.h
 * writes out what has up to 64 and calls a loop for more, which with masks of a few words
 * spends most of its time on the call and on the loop; servicing one fault makes some 150
 * of these calls. Here every size up to 512 bits that is known when it is compiled is
 * written out, and looking for a bit begins in line. Upstream counts the NUMA nodes in front
 * of a page's, which on most machines are none, ten times for each page that it moves: that
 * needs no call either. What is computed is the same.
 *
 * The Kbuild includes this in front of every file of nvidia-uvm; UVM_RUST_MASKS=0 leaves
 * it out.
 */
#ifndef UVM_RUST_MASKS_H
#define UVM_RUST_MASKS_H

#include <linux/bitmap.h>
#include <linux/kernel.h>
#include <linux/string.h>

/* Whether the compiler knows @nbits to be a size to write out; linux/bitmap.h does the smaller ones. */
#define uvm_rust_mask_known(nbits) (__builtin_constant_p(nbits) && (nbits) > BITS_PER_LONG && (nbits) <= 512)

#define uvm_rust_mask_each(k, nbits) for (unsigned int k = 0; k < BITS_TO_LONGS(nbits); k++)

/* The bits of word @k that belong to the bitmap. */
#define uvm_rust_mask_valid(k, nbits) ((k) == ((nbits) - 1) / BITS_PER_LONG ? BITMAP_LAST_WORD_MASK(nbits) : ~0UL)

/* uvm_rust_mask_NAME(): @dst = @expression of each word k of @a and @b; true if @dst is not empty then. */
#define UVM_RUST_MASK_MAKE(name, expression)									\
static __always_inline bool uvm_rust_mask_##name(unsigned long *dst, const unsigned long *a,			\
						 const unsigned long *b, unsigned int nbits)			\
{														\
	unsigned long any = 0;											\
														\
	uvm_rust_mask_each(k, nbits)										\
		any |= dst[k] = (expression) & uvm_rust_mask_valid(k, nbits);					\
	return any != 0;											\
}

/* uvm_rust_mask_NAME(): true if @expression is 0 for each word k of @a and @b. */
#define UVM_RUST_MASK_NONE(name, expression)									\
static __always_inline bool uvm_rust_mask_##name(const unsigned long *a, const unsigned long *b,		\
						 unsigned int nbits)						\
{														\
	unsigned long any = 0;											\
														\
	uvm_rust_mask_each(k, nbits)										\
		any |= (expression) & uvm_rust_mask_valid(k, nbits);						\
	return any == 0;											\
}

UVM_RUST_MASK_MAKE(and, a[k] & b[k])
UVM_RUST_MASK_MAKE(andnot, a[k] & ~b[k])
UVM_RUST_MASK_MAKE(or, a[k] | b[k])
UVM_RUST_MASK_NONE(empty, a[k])
UVM_RUST_MASK_NONE(full, ~a[k])
UVM_RUST_MASK_NONE(disjoint, a[k] & b[k])
UVM_RUST_MASK_NONE(subset, a[k] & ~b[k])
UVM_RUST_MASK_NONE(equal, a[k] ^ b[k])

static __always_inline unsigned int uvm_rust_mask_weight(const unsigned long *a, unsigned int nbits)
{
	unsigned int sum = 0;

	uvm_rust_mask_each(k, nbits)
		sum += hweight_long(a[k] & uvm_rust_mask_valid(k, nbits));
	return sum;
}

/* For a result that may be left unused: gcc warns of a conditional that is, and not of a call. */
static __always_inline bool uvm_rust_mask_bool(bool value)
{
	return value;
}

/* The bits [@start, @start + @count), which must lie in one word; there are @count > 0. */
#define uvm_rust_mask_run(start, count) ((~0UL >> (BITS_PER_LONG - (count))) << ((start) % BITS_PER_LONG))

/* Whether they do; false for none. */
#define uvm_rust_mask_one_word(start, count) ((count) - 1u < BITS_PER_LONG - (start) % BITS_PER_LONG)

static __always_inline void uvm_rust_bitmap_set(unsigned long *map, unsigned int start, unsigned int count)
{
	if (uvm_rust_mask_one_word(start, count))
		map[BIT_WORD(start)] |= uvm_rust_mask_run(start, count);
	else
		bitmap_set(map, start, count);
}

static __always_inline void uvm_rust_bitmap_clear(unsigned long *map, unsigned int start, unsigned int count)
{
	if (uvm_rust_mask_one_word(start, count))
		map[BIT_WORD(start)] &= ~uvm_rust_mask_run(start, count);
	else
		bitmap_clear(map, start, count);
}

/* The first bit of @map that is set, or with @flip ~0 that is not, from @offset on; @size if none is. */
static __always_inline unsigned long uvm_rust_mask_find(const unsigned long *map, unsigned long size,
							unsigned long offset, unsigned long flip)
{
	unsigned long k, word;

	if (offset >= size)
		return size;
	k = BIT_WORD(offset);
	word = (map[k] ^ flip) & BITMAP_FIRST_WORD_MASK(offset);
	while (!word) {
		if (++k * BITS_PER_LONG >= size)
			return size;
		word = map[k] ^ flip;
	}
	return min(k * BITS_PER_LONG + __ffs(word), size);
}

/*
 * In place of linux/bitmap.h's from here on. NVIDIA builds with -ffreestanding, which makes
 * a call of every memset(), of 64 bytes too; so the compiler's own are asked for, unless
 * the kernel has its checked ones, which come down to the same.
 */

#ifndef memset
#define memset __builtin_memset
#endif
#ifndef memcpy
#define memcpy __builtin_memcpy
#endif
#define uvm_rust_mask_bytes(nbits) (BITS_TO_LONGS(nbits) * sizeof(long))
#define bitmap_zero(dst, nbits) \
	(uvm_rust_mask_known(nbits) ? (void)memset(dst, 0, uvm_rust_mask_bytes(nbits)) : bitmap_zero(dst, nbits))
#define bitmap_fill(dst, nbits) \
	(uvm_rust_mask_known(nbits) ? (void)memset(dst, 0xff, uvm_rust_mask_bytes(nbits)) : bitmap_fill(dst, nbits))
#define bitmap_copy(dst, src, nbits) \
	(uvm_rust_mask_known(nbits) ? (void)memcpy(dst, src, uvm_rust_mask_bytes(nbits)) : bitmap_copy(dst, src, nbits))

#define bitmap_and(dst, a, b, nbits) \
	uvm_rust_mask_bool(uvm_rust_mask_known(nbits) ? uvm_rust_mask_and(dst, a, b, nbits) : bitmap_and(dst, a, b, nbits))
#define bitmap_andnot(dst, a, b, nbits) \
	uvm_rust_mask_bool(uvm_rust_mask_known(nbits) ? uvm_rust_mask_andnot(dst, a, b, nbits) : bitmap_andnot(dst, a, b, nbits))
#define bitmap_or(dst, a, b, nbits) \
	(uvm_rust_mask_known(nbits) ? (void)uvm_rust_mask_or(dst, a, b, nbits) : bitmap_or(dst, a, b, nbits))
#define bitmap_empty(a, nbits) \
	(uvm_rust_mask_known(nbits) ? uvm_rust_mask_empty(a, NULL, nbits) : bitmap_empty(a, nbits))
#define bitmap_full(a, nbits) \
	(uvm_rust_mask_known(nbits) ? uvm_rust_mask_full(a, NULL, nbits) : bitmap_full(a, nbits))
#define bitmap_intersects(a, b, nbits) \
	(uvm_rust_mask_known(nbits) ? !uvm_rust_mask_disjoint(a, b, nbits) : bitmap_intersects(a, b, nbits))
#define bitmap_subset(a, b, nbits) \
	(uvm_rust_mask_known(nbits) ? uvm_rust_mask_subset(a, b, nbits) : bitmap_subset(a, b, nbits))
#define bitmap_equal(a, b, nbits) \
	(uvm_rust_mask_known(nbits) ? uvm_rust_mask_equal(a, b, nbits) : bitmap_equal(a, b, nbits))
#define bitmap_weight(a, nbits) \
	(uvm_rust_mask_known(nbits) ? uvm_rust_mask_weight(a, nbits) : (nbits) ? bitmap_weight(a, nbits) : 0)
#define bitmap_set		uvm_rust_bitmap_set
#define bitmap_clear		uvm_rust_bitmap_clear
#define find_first_bit(map, size)		uvm_rust_mask_find(map, size, 0, 0)
#define find_first_zero_bit(map, size)		uvm_rust_mask_find(map, size, 0, ~0UL)
#define find_next_bit(map, size, offset)	uvm_rust_mask_find(map, size, offset, 0)
#define find_next_zero_bit(map, size, offset)	uvm_rust_mask_find(map, size, offset, ~0UL)

#endif
