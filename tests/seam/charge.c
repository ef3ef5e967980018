// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Whom the host memory is charged to that an eviction takes, who is ended for it, who gets no more of a GPU's, what the host gives
 * of its reserve, whose faults go on, and who waits: uvm_rust_charge.h and its .c as they are, uvm_rust_account.h, uvm_rust_va_space.h and
 * uvm_rust_gpu_non_replayable_faults.h. Upstream has two GPUs here, and Linux two cgroups, four processes and a host of few
 * pages (charge.h). With NO_MEMCG it is a Linux that knows no cgroups' memory.
 */
#include "charge.h"

#include "uvm_rust_charge.c"
#include "uvm_rust_account.h"
#include "uvm_rust_gpu_non_replayable_faults.h"
#include "uvm_rust_va_space.h"

bool uvm_rust_fix_charge, uvm_rust_fix_cpu_fault, uvm_rust_fix_held;

/* --- the host ----------------------------------------------------------------------- */

/* What the host has, and what it keeps for who may not wait; it gives half of that with __GFP_HIGH. */
static long host_free, reserve;
/* How often who has __GFP_HIGH is left with nothing, as others were faster. */
static int lost;
/* What was asked: of upstream's kind, for nobody, with __GFP_HIGH; and processes that Linux has ended for the limit. */
static int asked_plainly, asked_for_nobody, asked_over, chosen;
static struct page page;

static void __free_pages(struct page *what, unsigned int pages)
{
	host_free += pages;
}

static bool charges(unsigned long pages, gfp_t gfp)
{
#ifdef CONFIG_MEMCG
	struct mem_cgroup *memcg;

	for (memcg = current->active_memcg; memcg; memcg = memcg->parent) {
		if (memcg->memory.usage + pages <= memcg->memory.max || gfp & __GFP_HIGH)
			continue;
		if (gfp & (__GFP_NORETRY | __GFP_RETRY_MAYFAIL))
			return false;
		chosen++;
	}
	for (memcg = current->active_memcg; memcg; memcg = memcg->parent) {
		memcg->memory.usage += pages;
		current->memcg_nr_pages_over_high += memcg->memory.usage > memcg->memory.high ? pages : 0;
	}
#endif
	return true;
}

/* Its cgroup is full, and Linux may end none of the processes. Where it is over memory.high, what is charged counts as much as Linux has at once. */
static void *(nv_kmem_cache_zalloc)(struct kmem_cache *cache, gfp_t flags)
{
#ifdef CONFIG_MEMCG
	if (flags & __GFP_ACCOUNT && current->memcg->memory.usage > current->memcg->memory.high)
		cache->waits += (current->memcg_nr_pages_over_high += UVM_RUST_HIGH_PAGES) > UVM_RUST_HIGH_PAGES;
#endif
	cache->refused += !!(flags & __GFP_ACCOUNT);
	cache->given += !(flags & __GFP_ACCOUNT);
	return flags & __GFP_ACCOUNT ? NULL : cache;
}

/* One page that Linux charges in the middle of something: to what the CPU has charged in advance, or to that and more. */
#ifdef CONFIG_MEMCG
static long stock;
static int slept;
#endif
static void charges_one(void)
{
#ifdef CONFIG_MEMCG
	struct mem_cgroup *memcg = current->memcg;

	if (!stock) {
		stock = UVM_RUST_HIGH_PAGES;
		memcg->memory.usage += stock;
		current->memcg_nr_pages_over_high += memcg->memory.usage > memcg->memory.high ? stock : 0;
		if (current->memcg_nr_pages_over_high > UVM_RUST_HIGH_PAGES) {
			slept++;
			current->memcg_nr_pages_over_high = 0;
		}
	}
	stock--;
#endif
}

static int (vm_insert_page)(struct vm_area_struct *vma, unsigned long address, struct page *what)
{
	charges_one();
	return -12;
}

static struct page *(alloc_pages)(gfp_t flags, unsigned int order)
{
	charges_one();
	return &page;
}

/* How many pages were moved, and how many at once. The first one needs a table. Notes where each is. */
static unsigned long moved, moves_at_once;
static void (migrate_vma_pages)(struct migrate_vma *args)
{
	if (!moved)
		charges_one();
	moves_at_once = args->npages;
	moved += args->npages;
	for (unsigned long i = 0; i < args->npages; i++) {
		charges_one();
		args->src[i] += args->start + i * PAGE_SIZE;
		args->dst[i] += args->end == args->start + args->npages * PAGE_SIZE;
	}
}

#include "uvm_rust_wait_later.h"

/* As uvm_cpu_chunk_alloc_page() is hooked. */
static struct page *alloc_piece(uvm_chunk_size_t size, uvm_cpu_chunk_alloc_flags_t flags)
{
	long pages = size / PAGE_SIZE;
	gfp_t gfp = flags & UVM_CPU_CHUNK_ALLOC_FLAGS_ACCOUNT ? uvm_rust_charge_flags(flags) : 0;

	asked_over += !!(gfp & __GFP_HIGH);
	asked_plainly += !gfp && flags & UVM_CPU_CHUNK_ALLOC_FLAGS_ACCOUNT;
	asked_for_nobody += !(flags & UVM_CPU_CHUNK_ALLOC_FLAGS_ACCOUNT);
	if (gfp & __GFP_HIGH && lost) {
		lost--;
		return NULL;
	}
	if (host_free - pages < (gfp & __GFP_HIGH ? reserve / 2 : reserve))
		return NULL;
	if (flags & UVM_CPU_CHUNK_ALLOC_FLAGS_ACCOUNT && !charges(pages, gfp))
		return NULL;
	host_free -= pages;
	return &page;
}

/* --- the tests ---------------------------------------------------------------------- */

static uvm_va_space_t va_space;
static uvm_va_block_t block = { .va_space = &va_space, .resident = 1 };

/* A cgroup of two processes with a limit of 100 pages that it has used up; the third process has another one. */
static void begin(void)
{
	const struct counter none = { PAGE_COUNTER_MAX, PAGE_COUNTER_MAX, 0 };
	int i;

	uvm_rust_charge_exit();
	above = (struct mem_cgroup){ .memory = none, .swap = none };
	other = full = (struct mem_cgroup){ .memory = none, .swap = none, .parent = &above };
	full.memory = (struct counter){ 100, PAGE_COUNTER_MAX, 100 };
	for (i = 0; i < 4; i++) {
		signals[i] = (struct signal_struct){ .thread_head = &tasks[i] };
		pids[i] = (struct pid){ .task = &tasks[i] };
		memory[i].owner = &tasks[i];
		tasks[i] = (struct task_struct){ .mm = &memory[i], .memcg = &full, .signal = &signals[i], .pid = &pids[i],
						 .comm = tasks[i].comm };
	}
	tasks[3].mm = NULL;
	tasks[3].flags = PF_KTHREAD;
	nobodys = (struct mem_cgroup){ .memory = none, .swap = none };
	init = NULL;
	tasks[3].memcg = &above;
	va_space = (uvm_va_space_t){ .registered_gpus = 1, .uvm_rust_payer = &full, .has_mm = true, .va_space_mm.mm = &memory[0] };
	block.resident = 1;
	block.is_hmm = false;
	for (int i = 0; i < 2; i++) {
		parents[i].cancels_by_address = true;
		parents[i].smc.enabled = false;
	}
	running = &tasks[3];
	ended = NULL;
	ends = lost = asked_plainly = asked_for_nobody = asked_over = chosen = 0;
	host_free = 10000;
	reserve = 64;
	uvm_rust_fix_charge = true;
	global_status = NV_OK;
	jiffies += 100 * HZ;
}

/* What charges in flight may count, and how far over its limit the owner of what is evicted may be. */
#define IN_FLIGHT	512
#define SLACK		(GPU_PAGES + IN_FLIGHT)

/* Whether it is one node's memory that evicts() asks for. */
static bool on_one_node;

/* Takes a piece of so many pages for a block whose memory is @mm; whether there was memory for it. */
static bool takes(struct mm_struct *mm, unsigned long pages, int cause)
{
	const uvm_va_block_context_t context = { mm, { cause } };
	uvm_cpu_chunk_alloc_flags_t flags = UVM_CPU_CHUNK_ALLOC_FLAGS_ZERO;
	struct mem_cgroup *before = set_active_memcg(NULL);
	uvm_memcg_context_t charged;
	struct page *got;

	uvm_rust_memcg_context_start(&charged, &block, mm);
	flags |= uvm_rust_account(&block, &context, mm) | (on_one_node ? UVM_CPU_CHUNK_ALLOC_FLAGS_STRICT : 0);
	got = uvm_rust_charged(flags, pages * PAGE_SIZE, alloc_piece(pages * PAGE_SIZE, flags));
	set_active_memcg(before);
	return got;
}

/* For an eviction from a GPU. */
static bool evicts(struct mm_struct *mm, unsigned long pages)
{
	return takes(mm, pages, UVM_MAKE_RESIDENT_CAUSE_EVICTION);
}

/* For a GPU's fault on what is to be on the host. */
static bool populates(struct mm_struct *mm, unsigned long pages)
{
	return takes(mm, pages, 0);
}

static int number, failed;

static void say(const char *name, bool holds)
{
	failed |= !holds;
	printf("%s %d - charge: %s\n", holds ? "ok" : "not ok", ++number, name);
}

#ifdef CONFIG_MEMCG
static void over_the_limit(void)
{
	begin();
	full.memory.usage = 0;
	say("while there is room, nothing goes over the limit",
	    evicts(&memory[0], 1) && !asked_over && !asked_for_nobody && full.memory.usage == 1);
	begin();
	say("a full cgroup is charged over its limit, and none of its processes is ended",
	    evicts(&memory[0], 1) && full.memory.usage == 101 && asked_over == 1 && !chosen && !ends);
	say("in pieces, too", evicts(&memory[0], 16) && full.memory.usage == 117 && !chosen);
	begin();
	full.memory.max = PAGE_COUNTER_MAX;
	above.memory.max = above.memory.usage = 7;
	say("the same where a cgroup above is full", evicts(&memory[0], 1) && above.memory.usage == 8 && !chosen);
	begin();
	uvm_rust_fix_charge = false;
	say("without the mend Linux ends a process", evicts(&memory[0], 1) && chosen == 1 && !asked_over);
}

static void reserve_stays(void)
{
	begin();
	host_free = reserve;
	say("what the host keeps for who may not wait is left alone", !evicts(&memory[0], 1) && host_free == reserve && !asked_over);
	say("in the end the host is asked as upstream does", asked_plainly == 1);
	begin();
	host_free = reserve + 8;
	say("nor is a larger piece taken of it", !evicts(&memory[0], 16) && host_free == reserve + 8 && !asked_over && !asked_plainly);
	begin();
	lost = 1;
	say("a larger piece is asked for once, and then a smaller one",
	    !evicts(&memory[0], 16) && asked_over == 1 && evicts(&memory[0], 1));
	begin();
	host_free = reserve + 1;
	say("the last page that is not of it is given", evicts(&memory[0], 1) && host_free == reserve && asked_over == 1);
	begin();
	lost = 2;
	say("a page that others were faster to take is asked for again", evicts(&memory[0], 1) && asked_over == 3 && !asked_plainly);
	begin();
	lost = 100;
	evicts(&memory[0], 1);
	say("three times, and then as upstream does", asked_over == 3 && asked_plainly == 1);
	begin();
	host_free = reserve;
	on_one_node = true;
	say("one NUMA node that has nothing is not asked as upstream does", !evicts(&memory[0], 1) && !asked_plainly && !chosen);
	on_one_node = false;
	say("of the other nodes the page is charged over the limit", (host_free = 10000) && evicts(&memory[0], 1) && asked_over == 1 && !chosen);
}

static void nobody_waits(void)
{
	begin();
	full.memory.max = PAGE_COUNTER_MAX;
	full.memory.high = 50;
	tasks[3].memcg_nr_pages_over_high = 3;
	say("who evicts for another is not made to wait for memory.high",
	    evicts(&memory[0], 16) && tasks[3].memcg_nr_pages_over_high == 3);
	say("and takes no piece for which Linux would have it wait at once", !evicts(&memory[0], 65) && evicts(&memory[0], 64));
	running = &tasks[0];
	say("who evicts its own memory waits later", evicts(&memory[0], 16) && tasks[0].memcg_nr_pages_over_high == 16);
	running = &tasks[1];
	say("of its cgroup nobody else", evicts(&memory[0], 16) && !tasks[1].memcg_nr_pages_over_high);
	say("where there is no mm, any process of the cgroup that pays", evicts(NULL, 16) && tasks[1].memcg_nr_pages_over_high == 16);
	tasks[2].memcg = &other;
	running = &tasks[2];
	say("and none of another", evicts(NULL, 16) && !tasks[2].memcg_nr_pages_over_high);
	begin();
	full.swap.high = 50;
	say("memory.swap.high is one that is waited for, too", !evicts(&memory[0], 65) && evicts(&memory[0], 64));
	begin();
	above.swap.high = 50;
	say("also a cgroup above's", !evicts(&memory[0], 65));
}

static void bound(void)
{
	begin();
	full.memory.usage = 100 + SLACK;
	evicts(&memory[1], 1);
	say("up to what the GPU holds nobody is ended", !ends);
	say("beyond it the process is whose memory is evicted, which has its memory still",
	    evicts(&memory[1], 1) && ends == 1 && ended == &tasks[1] && !chosen);
	jiffies += UVM_RUST_CHARGE_ENDS - 1;
	evicts(&memory[2], 1);
	say("for ten seconds no other process of the cgroup is ended", ends == 1);
	other.memory = (struct counter){ 100, PAGE_COUNTER_MAX, 101 + SLACK };
	tasks[2].memcg = &other;
	evicts(&memory[2], 1);
	say("one of another cgroup is", ends == 2 && ended == &tasks[2]);
	begin();
	full.memory.usage = 101 + SLACK;
	evicts(&memory[1], 1);
	jiffies += UVM_RUST_CHARGE_ENDS;
	evicts(&memory[0], 1);
	say("after ten seconds the next one is", ends == 2 && ended == &tasks[0]);
	jiffies += UVM_RUST_CHARGE_ENDS;
	evicts(&memory[0], 1);
	say("and none twice", ends == 2);
	begin();
	full.memory.usage = 100 + 2 * GPU_PAGES;
	va_space.registered_gpus = 3;
	evicts(&memory[1], 1);
	say("two GPUs hold twice as much", !ends);
}

/* A process of the cgroup has just been ended, as what it has on the host is beyond the bound. */
static void begin_with_one_ended(void)
{
	begin();
	full.memory.usage = 101 + SLACK;
	evicts(&memory[1], 1);
}

static void until_it_has_gone(void)
{
	struct task_struct thread = { 0 };

	begin_with_one_ended();
	tasks[1].thread_node = &thread;
	tasks[1].exit_state = 1;
	evicts(&memory[2], 1);
	say("of one that is ended a thread has its files open, and nobody else is", ends == 1);
	thread.exit_state = 1;
	evicts(&memory[2], 1);
	say("once it has closed them the next one is, though its parent has not asked for it", ends == 2 && ended == &tasks[2]);
	begin_with_one_ended();
	pids[1].task = NULL;
	evicts(&memory[2], 1);
	say("and where its parent has", ends == 2 && ended == &tasks[2] && !pids[1].references && pids[2].references == 1);
	uvm_rust_charge_exit();
	say("in the end no process is remembered", !pids[2].references);
	begin_with_one_ended();
	full.memory.usage = 100 + 2 * SLACK;
	evicts(&memory[2], 1);
	say("up to twice the bound nobody else is ended meanwhile", ends == 1);
	evicts(&memory[2], 1);
	say("beyond it the next one is", ends == 2 && ended == &tasks[2]);
	begin();
	full.memory.usage = 101 + 2 * GPU_PAGES + IN_FLIGHT;
	va_space.registered_gpus = 3;
	evicts(&memory[1], 1);
	va_space.registered_gpus = block.resident = 2;
	evicts(&memory[2], 1);
	say("which is twice that of the one with more GPUs", ends == 1);
}

static void others_of_the_limit(void)
{
	begin_with_one_ended();
	other.memory = (struct counter){ 100, PAGE_COUNTER_MAX, 101 + SLACK };
	tasks[2].memcg = &other;
	evicts(&memory[2], 1);
	evicts(&memory[0], 1);
	say("that one of another cgroup is ended makes none of this one's be", ends == 2 && ended == &tasks[2]);
	begin_with_one_ended();
	above.memory = (struct counter){ 100, PAGE_COUNTER_MAX, 101 + SLACK };
	tasks[2].memcg = &other;
	evicts(&memory[2], 1);
	say("nor one for a cgroup above, which has less as well when it has gone", ends == 1);
	begin();
	full.memory.usage = 101 + SLACK;
	signals[1].flags = SIGNAL_GROUP_EXIT;
	evicts(&memory[1], 1);
	evicts(&memory[2], 1);
	say("nobody is ended while one of the limit ends by itself, or by Linux", !ends);
	jiffies += UVM_RUST_CHARGE_ENDS - 1;
	signals[0].flags = SIGNAL_GROUP_EXIT;
	evicts(&memory[1], 1);
	jiffies++;
	evicts(&memory[2], 1);
	say("for ten seconds, however often it is evicted", ends == 1 && ended == &tasks[2]);
	begin_with_one_ended();
	signals[0].flags = SIGNAL_GROUP_EXIT;
	evicts(&memory[0], 1);
	jiffies += UVM_RUST_CHARGE_ENDS;
	evicts(&memory[0], 1);
	evicts(&memory[2], 1);
	say("where two end at once it is the same ten seconds", ends == 2 && ended == &tasks[2]);
}

/* More processes of one cgroup end by themselves than are remembered. */
static void many_end(void)
{
	enum { MANY = DYING + 3 };
	struct mm_struct memories[MANY];
	struct task_struct processes[MANY];
	struct pid their[MANY];
	int i, remembered = 0;

	begin();
	other.memory = (struct counter){ 100, PAGE_COUNTER_MAX, 101 + SLACK };
	tasks[2].memcg = tasks[0].memcg = &other;
	evicts(&memory[2], 1);
	signals[1].flags = SIGNAL_GROUP_EXIT;
	full.memory.usage = 101 + SLACK;
	for (i = 0; i < MANY; i++, jiffies++) {
		their[i] = (struct pid){ .task = &processes[i] };
		processes[i] = (struct task_struct){ .memcg = &full, .signal = &signals[1], .pid = &their[i] };
		memories[i].owner = &processes[i];
		evicts(&memories[i], 1);
	}
	evicts(&memory[0], 1);
	say("however many of a cgroup end, the one of another is not forgotten", ends == 1 && ended == &tasks[2] && pids[2].references == 1);
	for (i = 0; i < MANY; i++)
		remembered += their[i].references;
	say("the oldest of its own are", remembered == DYING - 1 && !their[0].references && their[MANY - 1].references == 1);
	say("and each that is not holds the cgroup", full.css.references == DYING - 1);
	uvm_rust_charge_exit();
	say("until the driver goes", !full.css.references && !other.css.references && !their[MANY - 1].references && !pids[2].references);
}

static void ends_elder(void) { uvm_rust_charge_end(&memory[1], &full, SLACK); }
static void ends_younger(void) { uvm_rust_charge_end(&memory[2], &full, SLACK); }

static void begin_at_once(void)
{
	begin();
	full.memory.usage = 101 + SLACK;
}

static void end_at_once(void)
{
	if (ends != 1)
		explore_wrong(ends ? "two are ended" : "none is ended");
}

static void at_once(void)
{
	const struct explore two = { begin_at_once, end_at_once, { ends_elder, ends_younger } };
	const struct explore same = { begin_at_once, end_at_once, { ends_elder, ends_elder } };
	const char *why;

	say("in whatever order two threads evict, one process is ended", explore(&two, &why) > 1 && !why);
	say("and once, where both evict it", explore(&same, &why) > 1 && !why);
}

/* The two cgroups have no limit, but the one above them has. */
static void bound_above(void)
{
	begin();
	full.memory.max = PAGE_COUNTER_MAX;
	above.memory = (struct counter){ 100, PAGE_COUNTER_MAX, 101 + SLACK };
	tasks[2].memcg = &other;
	evicts(&memory[1], 1);
	say("where a cgroup above has the limit, one is ended of those below it", ends == 1 && ended == &tasks[1]);
	evicts(&memory[2], 1);
	say("and for ten seconds none of another one below it", ends == 1);
	other.memory = (struct counter){ 100, PAGE_COUNTER_MAX, 101 + SLACK };
	evicts(&memory[2], 1);
	say("nor one that has a limit besides", ends == 1);
	above.memory.usage = 0;
	evicts(&memory[2], 1);
	say("once the one above is within it, its own counts", ends == 2 && ended == &tasks[2]);
	begin();
	full.memory.max = PAGE_COUNTER_MAX;
	above.memory = (struct counter){ 100, PAGE_COUNTER_MAX, 100 };
	va_space.has_mm = false;
	while (!uvm_rust_has_enough(&block))
		evicts(NULL, 1);
	evicts(NULL, GPU_PAGES - 1);
	va_space.has_mm = true;
	tasks[2].memcg = &other;
	evicts(&memory[2], 1);
	say("by itself a VA space without an mm that has evicted all that it gets has no process of another cgroup ended", !ends);
}

static void nobodys_mm(void)
{
	uvm_cpu_chunk_alloc_flags_t flags;

	begin();
	va_space.has_mm = false;
	say("a VA space without an mm is charged to the cgroup of who opened it",
	    evicts(NULL, 1) && full.memory.usage == 101 && full.css.references == 1 && !chosen);
	full.memory.usage = 100;
	say("within the limit it gets memory of the GPU", !uvm_rust_has_enough(&block));
	full.memory.usage = 100 + IN_FLIGHT;
	say("so it does where it seems to be over it, by what Linux refuses at this moment", !uvm_rust_has_enough(&block));
	full.memory.usage++;
	say("over it no more, as that could be evicted as well", uvm_rust_has_enough(&block));
	full.memory.usage = 101 + SLACK;
	say("what it has there is evicted, and no process is ended", evicts(NULL, 1) && full.memory.usage == 102 + SLACK && !ends && !chosen);
	say("nor is who calls, by whose mm an unregistering GPU's pages are charged", evicts(&memory[1], 1) && !ends && !chosen);
	va_space.has_mm = true;
	say("one with an mm gets memory of the GPU, as its process can be ended", !uvm_rust_has_enough(&block));
	say("when that process has gone nobody is ended", evicts(NULL, 1) && !ends);
	va_space.has_mm = false;
	uvm_rust_fix_charge = false;
	say("without the mend it gets all", !uvm_rust_has_enough(&block));
	begin();
	va_space.has_mm = false;
	above.memory = (struct counter){ 100, PAGE_COUNTER_MAX, 101 + IN_FLIGHT };
	say("a cgroup above has the limit for it, too", uvm_rust_has_enough(&block));
	begin();
	flags = uvm_rust_account(&block, &(uvm_va_block_context_t){ 0 }, false);
	say("outside of what is charged to who opened it it is nobody's", flags == UVM_CPU_CHUNK_ALLOC_FLAGS_NONE);
	va_space.uvm_rust_payer = NULL;
	va_space.has_mm = false;
	say("without who pays nobody does", evicts(NULL, 1) && full.memory.usage == 100 && asked_for_nobody == 1);
	say("and nobody is over a limit", !uvm_rust_has_enough(&block));
}

static void removed_cgroup(void)
{
	begin();
	va_space.has_mm = false;
	full.removed = true;
	full.memory.usage = 101 + IN_FLIGHT;
	say("a cgroup that was removed has no limit any more", !uvm_rust_has_enough(&block));
	say("the next one above it pays", evicts(NULL, 1) && above.memory.usage == 1 && above.css.references == 1 && !full.css.references);
	above.memory.max = 0;
	above.memory.usage = 1 + IN_FLIGHT;
	say("and its limit counts", uvm_rust_has_enough(&block));
	other.parent = &full;
	other.removed = true;
	va_space.uvm_rust_payer = &other;
	above.memory.usage = 0;
	say("it is looked for all the way up", evicts(NULL, 1) && above.css.references == 2 && !other.css.references && !full.css.references);
}

static void faults(void)
{
	begin();
	va_space.has_mm = false;
	say("a GPU's fault of a VA space without an mm is refused the host's memory over the limit, and no process is ended",
	    !populates(NULL, 1) && full.memory.usage == 100 && !chosen && !ends);
	full.memory.usage = 0;
	say("within it it has that, and is charged", populates(NULL, 1) && full.memory.usage == 1 && full.css.references == 2);
	begin();
	say("the same when its process has gone", !populates(NULL, 1) && !chosen);
	say("one whose process is there is charged as upstream does", populates(&memory[0], 1) && chosen == 1 && asked_plainly == 1);
}

/* UVM keeps memory of processes that have gone. */
static void no_process(void)
{
	const uvm_va_block_context_t context = { &memory[0], { 0 } };

	begin();
	memory[0].owner = NULL;
	say("memory that no process has is charged to the cgroup of who opened the VA space",
	    evicts(&memory[0], 1) && full.memory.usage == 101 && full.css.references == 1 && !nobodys.css.references && !chosen);
	full.memory.usage = 100 + IN_FLIGHT;
	say("which gets memory of the GPU within the limit", !uvm_rust_has_enough(&block));
	full.memory.usage++;
	say("and beyond it no more", uvm_rust_has_enough(&block));
	full.memory.usage = 101 + SLACK;
	say("nor is anybody ended for it", evicts(&memory[0], 1) && !ends && !chosen);
	full.memory.usage = 100;
	say("a GPU's fault is refused the host's memory over it", !populates(&memory[0], 1) && !chosen);
	full.memory.max = PAGE_COUNTER_MAX;
	full.memory.high = 50;
	running = &tasks[1];
	say("who evicts it, and pays, waits later", evicts(&memory[0], 16) && tasks[1].memcg_nr_pages_over_high == 16);
	begin();
	memory[0].owner = NULL;
	block.is_hmm = true;
	full.memory.usage = 0;
	say("ordinary memory gets nothing of a GPU then, as Linux charges it to nobody", uvm_rust_has_enough(&block));
	set_active_memcg(&full);
	say("nor is it charged here", uvm_rust_account(&block, &context, false) == UVM_CPU_CHUNK_ALLOC_FLAGS_NONE);
	memory[0].owner = &tasks[0];
	say("that of a process does", !uvm_rust_has_enough(&block));
	begin();
	memory[0].owner = NULL;
	uvm_rust_fix_charge = false;
	va_space.uvm_rust_payer = NULL;
	say("without the mend nobody is charged", evicts(&memory[0], 1) && nobodys.memory.usage == 1 && !uvm_rust_has_enough(&block));
	block.is_hmm = true;
	say("and ordinary memory gets all", !uvm_rust_has_enough(&block));
	begin();
	va_space.va_space_mm.mm = NULL;
	full.memory.usage = 101 + IN_FLIGHT;
	say("a VA space whose process keeps no memory for it gets no more, either", uvm_rust_has_enough(&block));
	say("and no lock stays", !va_space.va_space_mm.lock);
}

static void ends_slowly(void)
{
	begin();
	full.memory.usage = 101 + IN_FLIGHT;
	say("a process over the limit gets memory of the GPU", !uvm_rust_has_enough(&block));
	signals[0].flags = SIGNAL_GROUP_EXIT;
	say("and no more once it was killed, as it may not end", uvm_rust_has_enough(&block));
	full.memory.usage--;
	say("within the limit it does", !uvm_rust_has_enough(&block));
	tasks[0].memcg = &other;
	other.memory = (struct counter){ 100, PAGE_COUNTER_MAX, 101 + IN_FLIGHT };
	say("which is that of its own cgroup", uvm_rust_has_enough(&block));
}

static void share_memory(void)
{
	begin();
	tasks[1].mm = tasks[3].mm = &memory[0];
	full.memory.usage = 101 + SLACK;
	say("all processes are ended that have the memory, and no thread of the kernel's that is lent it",
	    evicts(&memory[0], 1) && ends == 2 && signals[0].flags && signals[1].flags && !signals[2].flags && !signals[3].flags);
	begin();
	tasks[2].mm = &memory[0];
	init = &tasks[2];
	full.memory.usage = 101 + SLACK;
	say("nor the first process of all", evicts(&memory[0], 1) && ends == 1 && signals[0].flags);
	begin();
	tasks[0].mm = NULL;
	tasks[0].thread_node = &tasks[2];
	tasks[2].mm = &memory[0];
	full.memory.usage = 101 + SLACK;
	evicts(&memory[0], 1);
	say("a process is whose first thread has gone", signals[0].flags);
}

/* The thread that services all processes' faults has no mm. */
static void faults_wait_for_nothing(void)
{
	begin();
	full.memory.max = PAGE_COUNTER_MAX;
	full.memory.high = 50;
	say("who services a fault is not made to wait for memory.high",
	    populates(&memory[0], 64) && full.memory.usage == 164 && !tasks[3].memcg_nr_pages_over_high);
	say("and takes no piece for which Linux would have it wait at once", !populates(&memory[0], 65));
	va_space.has_mm = false;
	say("nor where the VA space has no mm", populates(NULL, 64) && !populates(NULL, 65) && !tasks[3].memcg_nr_pages_over_high);
	running = &tasks[0];
	va_space.has_mm = true;
	say("nor is a process, which waits once its call is over",
	    populates(&memory[0], 64) && !populates(&memory[0], 65) && tasks[0].memcg_nr_pages_over_high == 64);
	running = &tasks[3];
	uvm_rust_fix_charge = false;
	say("without the mend everybody waits", populates(&memory[0], 65) && tasks[3].memcg_nr_pages_over_high == 65);
}

/* Where a fault that is refused memory would be serviced again and again. */
static void cannot_refuse(void)
{
	begin();
	va_space.has_mm = false;
	full.memory.usage = 101 + IN_FLIGHT;
	parents[0].cancels_by_address = false;
	say("a VA space with a GPU that does not cancel by address gets memory of it over the limit", !uvm_rust_has_enough(&block));
	say("and the host's, over the limit, and no process is ended",
	    populates(NULL, 1) && full.memory.usage == 102 + IN_FLIGHT && !chosen && !ends);
	parents[0].cancels_by_address = true;
	parents[1].cancels_by_address = false;
	say("a GPU that it does not have is not asked", uvm_rust_has_enough(&block) && !populates(NULL, 1));
	va_space.registered_gpus = 3;
	say("any of those that it has is", !uvm_rust_has_enough(&block) && populates(NULL, 1));
}

/* Where one that is refused memory would have those of all be cancelled. */
static void serves_in_c(void)
{
	begin();
	va_space.has_mm = false;
	full.memory.usage = 101 + IN_FLIGHT;
	parents[0].smc.enabled = true;
	say("a VA space with a part of a GPU, whose faults upstream's loop services, gets memory of it over the limit", !uvm_rust_has_enough(&block));
	say("and the host's as well, and no process is ended",
	    populates(NULL, 1) && full.memory.usage == 102 + IN_FLIGHT && !chosen && !ends);
	begin();
	full.memory.usage = 0;
	memory[0].owner = NULL;
	block.is_hmm = true;
	say("ordinary memory that is no process' is refused elsewhere", uvm_rust_has_enough(&block));
	parents[0].smc.enabled = true;
	say("but not there", !uvm_rust_has_enough(&block));
}

static void cpu_faults(void)
{
	begin();
	va_space.has_mm = false;
	full.memory.usage = 101 + IN_FLIGHT;
	say("a CPU's fault that is refused memory of a GPU is not repeated for ever",
	    uvm_rust_cpu_fault_ends(&va_space, NV_ERR_NO_MEMORY) == NV_ERR_INVALID_STATE);
	say("one that was serviced is over", uvm_rust_cpu_fault_ends(&va_space, NV_OK) == NV_OK);
	full.memory.usage = 100;
	say("where only the host or the GPU has none it is repeated", uvm_rust_cpu_fault_ends(&va_space, NV_ERR_NO_MEMORY) == NV_ERR_NO_MEMORY);
	begin();
	full.memory.usage = 101 + IN_FLIGHT;
	say("and so it is in a VA space with an mm", uvm_rust_cpu_fault_ends(&va_space, NV_ERR_NO_MEMORY) == NV_ERR_NO_MEMORY);
}

/* Comes last, as what the GPUs hold of which memory was evicted counts from then on. */
static void two_gpus(void)
{
	begin();
	full.memory.max = PAGE_COUNTER_MAX;
	above.memory = (struct counter){ 100, PAGE_COUNTER_MAX, 100 };
	va_space.has_mm = false;
	va_space.registered_gpus = 3;
	while (!uvm_rust_has_enough(&block))
		evicts(NULL, 1);
	evicts(NULL, GPU_PAGES);
	block.resident = 2;
	evicts(NULL, SMALL_GPU_PAGES - 1);
	va_space.has_mm = true;
	va_space.registered_gpus = block.resident = 1;
	tasks[2].memcg = &other;
	evicts(&memory[2], 1);
	say("nor where it has filled two GPUs, and the process has one of them", !ends);
	evicts(&memory[2], 1);
	say("the process is ended for what is beyond these", ends == 1 && ended == &tasks[2]);
	begin();
	full.memory.usage = 101 + GPU_PAGES + SMALL_GPU_PAGES + IN_FLIGHT;
	va_space.registered_gpus = block.resident = 2;
	evicts(&memory[1], 1);
	say("which is so for a process of the other one, too", ends == 1);
}

static void opens(void)
{
	begin();
	running = &tasks[1];
	va_space.uvm_rust_payer = NULL;
	uvm_rust_opened(&va_space);
	say("who opens a VA space has its cgroup kept", va_space.uvm_rust_payer == &full && full.css.references == 1);
	uvm_rust_closed(&va_space);
	say("until the VA space is closed", !full.css.references);
}

#else
static void nobody_is_charged(void)
{
	begin();
	say("where Linux knows none, nobody", evicts(&memory[0], 1) && evicts(NULL, 16) && host_free == 10000 - 17 && !full.css.references);
	va_space.has_mm = false;
	say("and a VA space without an mm gets memory of the GPU, and of the host",
	    evicts(NULL, 1) && !uvm_rust_has_enough(&block) && populates(NULL, 1));
	say("a CPU's fault is repeated", uvm_rust_cpu_fault_ends(&va_space, NV_ERR_NO_MEMORY) == NV_ERR_NO_MEMORY);
}
#endif

/* What the service of each fault of a batch ends with; and how many of them are serviced, by a loop that leaves as upstream's does. */
static int serviced(const NV_STATUS *ends_with, int faults, uvm_tracker_t *tracker)
{
	NV_STATUS status;
	int i;

	for (i = 0; i < faults; i++) {
		tracker->entries++;
		status = uvm_rust_fault_ended(ends_with[i], tracker);
		if (status != NV_OK)
			return i + 1;
	}
	return faults;
}

static void copy_engines(void)
{
	const NV_STATUS refused[] = { NV_OK, NV_ERR_NO_MEMORY, NV_OK, NV_OK }, broken[] = { NV_ERR_INVALID_ADDRESS, NV_OK };
	uvm_tracker_t tracker = { 0 };

	begin();
	say("a copy engine's fault that is refused memory takes no other of its batch with it", serviced(refused, 4, &tracker) == 4);
	tracker.entries = 0;
	serviced(refused, 2, &tracker);
	say("what was begun for it is not the next one's", !tracker.entries);
	say("nor does one for which there is nothing to be had", serviced(broken, 2, &tracker) == 2);
	global_status = NV_ERR_INVALID_STATE;
	say("and where the driver has failed", serviced(refused, 4, &tracker) == 2);
	begin();
	uvm_rust_fix_charge = false;
	say("without the mend the others are lost", serviced(refused, 4, &tracker) == 2);
}

/* How often a handler fetches, as upstream's does, whose faults always come again. */
static int fetches(uvm_user_channel_t *channel, NV_STATUS status)
{
	int fetched = 0;

	do {
		fetched++;
		uvm_rust_copy_again(channel, status);
	} while (fetched < 10 && !uvm_rust_copies_end(channel->gpu->parent));
	return fetched;
}

static void copies_of_flash(void)
{
	uvm_user_channel_t channel = { &gpus[0] }, other = { &gpus[1] };

	say("one whose page is asked for ends as if it were serviced", uvm_rust_copy_again(&channel, NV_ERR_NOT_READY) == NV_OK);
	rests = 0;
	say("and so does the handler of its GPU, and of no other, and rests", !uvm_rust_copies_end(&parents[1]) && !rests &&
	    uvm_rust_copies_end(&parents[0]) && rests == 1);
	say("once for each time", !uvm_rust_copies_end(&parents[0]) && rests == 1 && fetches(&channel, NV_ERR_NOT_READY) == 1 &&
	    fetches(&other, NV_ERR_NOT_READY) == 1);
	say("what ends otherwise does as before", uvm_rust_copy_again(&channel, NV_ERR_NO_MEMORY) == NV_ERR_NO_MEMORY &&
	    uvm_rust_copy_again(&channel, NV_OK) == NV_OK && fetches(&channel, NV_OK) == 10);
}

/* How often in a row the page of a fault may move, of at most 20 times. */
static int moves(int gpu, NvU64 instance, NvU64 address)
{
	uvm_fault_buffer_entry_t entry = { { instance }, address };
	int times = 0;

	while (times < 20 && uvm_rust_copy_moves(&parents[gpu], &entry))
		times++;
	return times;
}

static void copies_of_held_pages(void)
{
	begin();
	uvm_rust_fix_held = true;
	say("a page that cannot be moved is used in place the ninth time", moves(0, 1, 4096) == 8);
	say("and may move again the next", moves(0, 1, 4096) == 8);
	uvm_rust_copy_moves(&parents[0], &(uvm_fault_buffer_entry_t) { { 1 }, 4096 });
	say("another one of the channel's has as many tries", moves(0, 1, 8192) == 8);
	uvm_rust_copy_moves(&parents[0], &(uvm_fault_buffer_entry_t) { { 1 }, 8192 });
	say("so has another channel's", moves(0, 2, 8192) == 8);
	uvm_rust_copy_moves(&parents[0], &(uvm_fault_buffer_entry_t) { { 2 }, 8192 });
	say("and another GPU's", moves(1, 2, 8192) == 8 && moves(0, 2, 8192) == 7);
	uvm_rust_fix_held = false;
	say("without the mend it moves for ever", moves(0, 1, 4096) == 20);
}

#ifdef CONFIG_MEMCG
/* The first process has a call that holds a va_block's lock, in a cgroup above memory.high; so much was counted before. */
static void begin_above_high(unsigned int before)
{
	begin();
	full.memory = (struct counter){ PAGE_COUNTER_MAX, 50, 100 };
	running = &tasks[0];
	tasks[0].memcg_nr_pages_over_high = before;
	stock = slept = moved = 0;
}

/* Moves so many pages, of which Linux charges for each; whether it was told of each, once and in its place. */
static bool moves_pages(unsigned long pages)
{
	unsigned long src[512], dst[512];
	struct vm_area_struct vma = { 0 };
	struct migrate_vma args = { &vma, src, dst, pages, 7 * PAGE_SIZE, (7 + pages) * PAGE_SIZE };
	bool is_right = true;
	unsigned long i;

	for (i = 0; i < pages; i++)
		dst[i] = src[i] = 0;
	migrate_vma_pages(&args);
	for (i = 0; i < pages; i++)
		is_right &= src[i] == (7 + i) * PAGE_SIZE && dst[i] == 1;
	return is_right && args.npages == pages && args.start == 7 * PAGE_SIZE && moved == pages;
}

static void nobody_waits_in_a_lock(void)
{
	struct vm_area_struct vma = { 0 };

	begin_above_high(200);
	say("a table that maps memory for the CPU is charged, and nobody waits for memory.high there",
	    vm_insert_page(&vma, 4096, &page) == -12 && full.memory.usage == 164 && !slept);
	say("whoever has a process waits later", tasks[0].memcg_nr_pages_over_high == 264);
	begin_above_high(200);
	say("nor for a table of a GPU's in the host's memory", alloc_pages(__GFP_ACCOUNT, 0) == &page && !slept &&
	    full.memory.usage == 164 && tasks[0].memcg_nr_pages_over_high == 264);
	begin_above_high(200);
	say("nor for pages that nobody has touched, which are moved", moves_pages(512) && !slept && full.memory.usage >= 612);
	say("which all count later", tasks[0].memcg_nr_pages_over_high == 200 + full.memory.usage - 100);
	begin_above_high(0);
	stock = 1;
	say("whatever the CPU has left of what it charged before", moves_pages(40) && !slept && full.memory.usage == 164);
	begin_above_high(200);
	running = &tasks[3];
	tasks[3].memcg = &full;
	vm_insert_page(&vma, 4096, &page);
	say("a thread of the kernel's does not wait", !tasks[3].memcg_nr_pages_over_high && !slept);
	say("and moves them at once", moves_pages(512) && moves_at_once == 512);
	begin_above_high(200);
	uvm_rust_fix_charge = false;
	say("without the mend one waits", moves_pages(512) && moves_at_once == 512 && slept);
	begin_above_high(200);
	uvm_rust_fix_charge = false;
	say("as for a table", vm_insert_page(&vma, 4096, &page) && slept == 1 && alloc_pages(__GFP_ACCOUNT, 0));
}
#endif

/* Whether upstream gets an object of the cache that has this name. */
#define asks(name)	(cache = (struct kmem_cache){ 0 }, uvm_rust_zalloc(&cache, name, 0))

static void calls(void)
{
	struct kmem_cache cache;

	begin();
	say("a range group is refused where its cgroup is full", !asks("g_uvm_range_group_cache") && cache.refused == 1);
	say("a range is charged, and had without where that fails: its split may not fail",
	    asks("g_uvm_va_range_cache") && cache.refused == 1 && asks("g_uvm_va_range_managed_cache") && cache.refused == 1);
	say("so are its part of a range group", asks("g_uvm_range_group_range_cache") && cache.refused == 1);
	say("and a va_block", asks("g_uvm_va_block_cache") && cache.refused == 1);
	say("what is made with a va_block's lock held is charged to nobody", asks("g_uvm_va_policy_node_cache") && !cache.refused);
	say("and so is what belongs to a va_block, or to a vm_area_struct",
	    asks("g_uvm_va_block_gpu_state_cache") && !cache.refused && asks("g_uvm_vma_wrapper_cache") && !cache.refused);
	uvm_rust_fix_charge = false;
	say("without the mend a range group is, too", asks("g_uvm_range_group_cache") && !cache.refused);
#ifdef CONFIG_MEMCG
	begin();
	full.memory.high = 50;
	running = &tasks[0];
	tasks[0].memcg_nr_pages_over_high = 3;
	say("no call waits for memory.high with its locks held", asks("g_uvm_va_range_cache") && !cache.waits);
	say("it waits later, for what is charged and what was before", tasks[0].memcg_nr_pages_over_high == 3 + UVM_RUST_HIGH_PAGES);
#endif
}

int main(void)
{
	printf("TAP version 13\n");
#ifdef CONFIG_MEMCG
	over_the_limit();
	reserve_stays();
	nobody_waits();
	bound();
	until_it_has_gone();
	others_of_the_limit();
	many_end();
	at_once();
	bound_above();
	nobodys_mm();
	removed_cgroup();
	faults();
	no_process();
	ends_slowly();
	share_memory();
	faults_wait_for_nothing();
	cannot_refuse();
	serves_in_c();
	cpu_faults();
	opens();
	nobody_waits_in_a_lock();
#else
	nobody_is_charged();
#endif
	copy_engines();
	copies_of_flash();
	copies_of_held_pages();
	calls();
#ifdef CONFIG_MEMCG
	two_gpus();
#endif
	printf("1..%d\n", number);
	return failed;
}
