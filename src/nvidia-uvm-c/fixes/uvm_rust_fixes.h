/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What is mended of upstream. Each mend has a switch, a module parameter uvm_rust_fix_NAME, which
 * is on unless the module is loaded with it off: then upstream's code runs as it is, so that
 * the two can be compared. docs/fixes.md says what a user sees without each, and which test
 * notices.
 *
 * What only speeds upstream up is switched when it is compiled (uvm_rust_masks.h, uvm_rust_push.h).
 */
#ifndef UVM_RUST_FIXES_H
#define UVM_RUST_FIXES_H

#include <linux/types.h>

/* Which says whether this is a driver that discards by itself. */
#include "uvm_rust_compat.h"

#ifdef UVM_RUST_NATIVE
#define UVM_RUST_FIXES_OF_550(fix)
#else
#define UVM_RUST_FIXES_OF_550(fix)									\
	fix(strays, "Evictions take to the host what mremap() left on the GPU; 0: they look for it without end")	\
	fix(nobody, "A chunk of ordinary memory that its va_block gives up is nobody's; 0: it names a va_block that may be freed")	\
	fix(held, "Evictions leave pages of ordinary memory that somebody holds; 0: they take their memory")		\
	fix(pfns, "An eviction of a part of a va_block of ordinary memory tells Linux of that part; 0: of what else its memory held")	\
	fix(copies, "Ordinary memory stays where it is if a copy to the host fails; 0: it is lost")			\
	fix(lazy_pins, "An eviction has what Linux let go meanwhile, or the thread that frees it, not both; 0: both free it (570.190 and later)")	\
	fix(ever_resident, "NVIDIA's discard (580 and later, uvm_rust_discard=0) zeroes what a va_block gets on a GPU that had left it; 0: it does not")	\
	fix(host_pages, "NVIDIA's discard (the same) zeroes what a va_block has on the host and was not copied there; 0: it shows what others had")	\
	fix(kept_mapped, "NVIDIA's discard (the same) unmaps all that it is asked to, where pages are duplicated, too; 0: writes to the rest are lost")	\
	fix(in_vain, "An eviction that fails frees what it had got; 0: what others have got meanwhile, too")		\
	fix(batch, "An allocation waits for a batch of chunks that is on its way from PMA; 0: it fails")		\
	fix(notifier, "Without memory, too, the GPU loses pages that Linux takes back; 0: it keeps its mapping")	\
	fix(reclaim, "Memory notifiers do not wait for reclaim, which may be waiting for them; 0: they do")		\
	fix(cpu_fault, "A CPU fault on ordinary memory does not wait for who unregisters a GPU; 0: each waits for the other")	\
	fix(duplicates, "UVM_MIGRATE maps no page with two copies for writing; 0: it does, and writes are lost")	\
	fix(context, "UVM_MIGRATE sets what it works with; 0: it reads what the memory held")			\
	fix(charge, "An eviction ends no process where the owner's memory cgroup is full; 0: Linux ends the owner, or others' kernels end")
#endif

#define UVM_RUST_FIXES(fix)										\
	UVM_RUST_FIXES_OF_550(fix)									\
	fix(lazy, "What ordinary memory has left is freed before a GPU goes; 0: an assertion may fail")

#define UVM_RUST_DECLARE_FIX(name, text) extern bool uvm_rust_fix_##name;
UVM_RUST_FIXES(UVM_RUST_DECLARE_FIX)

#endif
