/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Linux 7.3 has no strncpy() any more, which NVIDIA's drivers up to 595.45 call. Includes nothing, as it
 * is in front of every file, NVIDIA's tests of what the kernel has (conftest.sh) among them.
 */
#ifndef UVM_RUST_STRNCPY_H
#define UVM_RUST_STRNCPY_H

static inline char *uvm_rust_strncpy(char *to, const char *from, __SIZE_TYPE__ size)
{
	__SIZE_TYPE__ i;

	for (i = 0; i < size && from[i]; i++)
		to[i] = from[i];
	for (; i < size; i++)
		to[i] = '\0';
	return to;
}
#define strncpy(to, from, size) uvm_rust_strncpy(to, from, size)

#endif
