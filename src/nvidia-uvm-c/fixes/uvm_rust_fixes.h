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
	fix(copies, "Ordinary memory stays where it is if a copy to the host fails, and what a GPU has if one to it does (570 and later); 0: it is lost")			\
	fix(lazy_pins, "An eviction has what Linux let go meanwhile, or the thread that frees it, not both; 0: both free it (570.190 and later)")	\
	fix(ever_resident, "NVIDIA's discard (580 and later, uvm_rust_discard=0) zeroes what a va_block gets on a GPU that had left it; 0: it does not")	\
	fix(host_pages, "NVIDIA's discard (the same) zeroes what a va_block has on the host and was not copied there; 0: it shows what others had")	\
	fix(in_vain, "An eviction that fails frees what it had got; 0: what others have got meanwhile, too")		\
	fix(batch, "An allocation waits for a batch of chunks that is on its way from PMA; 0: it fails")		\
	fix(notifier, "Without memory, too, the GPU loses pages that Linux takes back; 0: it keeps its mapping")	\
	fix(reclaim, "Memory notifiers do not wait for reclaim, which may be waiting for them; 0: they do")		\
	fix(cpu_fault, "A CPU fault on ordinary memory does not wait for who unregisters a GPU; 0: each waits for the other")	\
	fix(nvlink_lock, "A CPU fault that asked for errors of NVLink's has the VA space's lock once, and keeps those GPUs (570 and later); 0: twice, and a process never ends")	\
	fix(forked, "A GPU gets no page of ordinary memory that a forked process has as well; 0: that process sees what the GPU writes")	\
	fix(isolation, "Who isolates ordinary memory waits for no va_block with Linux's locks held; 0: three processes wait for each other")	\
	fix(duplicates, "UVM_MIGRATE maps no page with two copies for writing, and fails if it could not duplicate; 0: writes are lost")	\
	fix(context, "UVM_MIGRATE sets what it works with; 0: it reads what the memory held")			\
	fix(charge, "An eviction ends no process where the owner's memory cgroup is full; 0: Linux ends the owner, or others' kernels end")	\
	fix(files, "No GPU fault waits for another process' file; 0: all do while a page of one does not come")		\
	fix(orphans, "A process' memory that nobody has any more is given back; 0: it may keep itself, and what it has of GPUs, for good")	\
	fix(mm_gone, "A VA space's memory does not go while a CPU fault looks for it; 0: that fault oopses")	\
	fix(two_spaces, "A VA space gives up ordinary memory that another one of its process moves; 0: its GPUs write to pages that Linux has freed")	\
	fix(covered, "Ordinary memory on a GPU stays its process' where that reserves addresses over it; 0: others get its chunks")	\
	fix(anew, "Ordinary memory gives up the GPU memory that it had for a move that failed, or began anew (until 570.181); 0: others have it, too")	\
	fix(replaced, "Managed memory that is mapped over ordinary memory has none of its pages; 0: pages of a VMA that is freed, which miss what a GPU writes")	\
	fix(mappings, "Nobody waits for the locks of a process of which memory was evicted that others may access; 0: close() and a suspend do")
#endif

#define UVM_RUST_FIXES(fix)										\
	UVM_RUST_FIXES_OF_550(fix)									\
	fix(kept_mapped, "NVIDIA's discard (580 and later, uvm_rust_discard=0) leaves nothing that may be written to unnoticed; 0: such writes are lost")	\
	fix(no_chunk, "NVIDIA's discard (580 and later, uvm_rust_discard=0) lists no chunk of a GPU that has none; 0: a GPU's read oopses")	\
	fix(dirty, "Linux keeps what a GPU writes to a page of ordinary memory in the host; 0: it drops such a page that no CPU has written to")	\
	fix(zombies, "Memory of a shared VA space stays for GPUs as its process ends, whoever takes it down; 0: a look at the process takes it away")	\
	fix(deferred, "A VA space that is closed while the system sleeps ends as others do; 0: debug builds oops")	\
	fix(resume, "A process that ends as the system goes to sleep leaves the GPU alone until it has woken up; 0: faults may be serviced no more")	\
	fix(params, "The system sleeps while calls copy to memory of UVM's; 0: it never does, and all calls and CPU faults are repeated for good")	\
	fix(access, "A debugger's call accesses ordinary memory as its process may; 0: it writes to files and pages that others have")	\
	fix(queues, "A queue of events that Linux does not map, or of a file's pages, is refused; 0: the next event oopses")	\
	fix(signals, "UVM_INITIALIZE goes on after a signal; 0: it fails, as if the driver were busy")	\
	fix(flush, "A GPU's channels stay while somebody hands out tools' events; 0: UVM_TOOLS_FLUSH_EVENTS looks at freed ones")	\
	fix(replays, "Tools' events tell a process of the replays of its own faults; 0: of all processes'")	\
	fix(trackers, "A VA space has few trackers of tools' events, and few events in wait; 0: others' faults wait for any number")	\
	fix(lazy, "What ordinary memory has left is freed before a GPU goes; 0: an assertion may fail")

#define UVM_RUST_DECLARE_FIX(name, text) extern bool uvm_rust_fix_##name;
UVM_RUST_FIXES(UVM_RUST_DECLARE_FIX)

/* --- calls of upstream's that are under way: uvm_rust_fixes.c, uvm_rust_calls.h --------- */

struct rw_semaphore;

/* Each holds it for reading. No other lock is held where it is taken for writing; for reading it is only tried. */
extern struct rw_semaphore uvm_rust_calls;

/* --- whom host memory is charged to: uvm_rust_charge.c --------------------------------- */

/* Forgets who was ended. */
void uvm_rust_charge_exit(void);

/* --- memory that UVM keeps of processes that have gone: uvm_rust_orphans.c ------------- */

NV_STATUS uvm_rust_orphans_init(void);
/* Once no VA space is left; also if the former failed, or was not called. */
void uvm_rust_orphans_exit(void);

/* Hook of uvm.c: from now on the memory of @va_space's process is kept, whose file is @uvm_file. Caller holds va_space_mm.lock. */
void uvm_rust_orphans_keep(uvm_va_space_t *va_space, struct file *uvm_file);
/* Hook of uvm.c, where that memory is to be given back: whether ours does, and the caller must not. */
bool uvm_rust_orphans_taken(uvm_va_space_t *va_space);
/* Hook of uvm.c, and of the former's: @va_space has no memory of a process any more; its mm is unregistered. Takes its lock. */
void uvm_rust_mm_gone(uvm_va_space_t *va_space);

/* --- ordinary memory: uvm_rust_notifier.c, uvm_rust_hmm_pages.c ---------------------- */

/* Once va_block contexts can be allocated, and before that ends; the latter also if the former failed. */
NV_STATUS uvm_rust_notifier_init(void);
void uvm_rust_notifier_exit(void);

/*
 * The context that uvm_hmm.c's notifier works with; never NULL, unless the mend is off. May sleep,
 * but not for reclaim.
 */
uvm_va_block_context_t *uvm_rust_notifier_context(struct mm_struct *mm);
void uvm_rust_notifier_context_free(uvm_va_block_context_t *context);

/*
 * The va_block of a VA space's chunks that no va_block has: made with the VA space, and given back once its GPUs are gone,
 * also if the former failed. All are freed with the module. uvm_rust_hmm_pages.c.
 */
NV_STATUS uvm_rust_nobody_of(uvm_va_space_t *va_space);
void uvm_rust_nobody_gone(uvm_va_space_t *va_space);
void uvm_rust_nobodies_exit(void);
bool uvm_rust_is_nobody(const uvm_va_block_t *va_block);
/* Hook of uvm_va_block.c and uvm_hmm.c: @va_block, whose lock the caller holds, gives @chunk up. */
void uvm_rust_chunk_is_nobodys(uvm_va_block_t *va_block, uvm_gpu_chunk_t *chunk);

/* Hook of uvm_va_block.c. @context: a uvm_va_block_context_t. */
void uvm_rust_clear_hmm_pfns(void *context);

/* Brings a page of ordinary memory from the GPU to the host, wherever it is mapped. Sleeps. */
NV_STATUS uvm_rust_hmm_evict_pfn(unsigned long pfn);

/* For tests: whether all ordinary memory counts as held by somebody (uvm_rust_test_held). */
bool uvm_rust_all_held(void);
/* For tests: whether copies of ordinary memory to the host fail (uvm_rust_test_copy). */
bool uvm_rust_test_copy_fails(void);
/* The same parameter's other values: time for others once pages are isolated, and before they are. Both sleep. */
void uvm_rust_test_isolated(void);
void uvm_rust_test_isolates(void);
/* For tests: time for others to take a chunk that a failed eviction has freed. Sleeps. */
void uvm_rust_test_freed(void);

/* Hook of uvm_va_block.c: whether an evicted chunk still holds a page of Linux's. */
bool uvm_rust_chunk_stays(uvm_gpu_chunk_t *chunk);

/*
 * Hook of uvm_va_block.c: takes the pages that Linux will not let go out of the context's
 * caller_page_mask. @block_context: a uvm_va_block_context_t.
 */
void uvm_rust_leave_held_pages(uvm_va_block_t *block, void *block_context);

/* --- pages of files: uvm_rust_files.c --------------------------------------------------- */

NV_STATUS uvm_rust_files_init(void);
/* Once no fault is serviced any more; also if the former failed, or was not called. */
void uvm_rust_files_exit(void);

/* --- all of them ----------------------------------------------------------------------- */

/* Once va_block contexts can be allocated; the latter also if the former failed. */
static inline NV_STATUS uvm_rust_fixes_init(void)
{
	return uvm_rust_notifier_init() ?: uvm_rust_files_init() ?: uvm_rust_orphans_init();
}

/* Gives back what they keep, once nothing is evicted any more and before va_block contexts can no longer be allocated. */
static inline void uvm_rust_fixes_exit(void)
{
	uvm_rust_orphans_exit();
	uvm_rust_files_exit();
	uvm_rust_notifier_exit();
	uvm_rust_nobodies_exit();
	uvm_rust_charge_exit();
}

#endif
