// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Whether Linux is asked for pages as for a write that it has write-protected on a GPU: uvm_rust_range_fault() and uvm_rust_on_gpu() as they are in
 * uvm_rust_hmm.h, of which the rest is not compiled here. Linux's hmm_range_fault() and its page tables are made up.
 */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define PAGE_SHIFT			12
#define BITS_PER_LONG			64
#define PAGES_PER_UVM_VA_BLOCK		512
#define EBUSY				16
#define ENOMEM				12
#define HMM_PFN_VALID			(1ul << 63)
#define HMM_PFN_WRITE			(1ul << 62)
#define HMM_PFN_REQ_FAULT		HMM_PFN_VALID
#define HMM_PFN_REQ_WRITE		HMM_PFN_WRITE
#define ON_GPU				1
#define for_each_set_bit(bit, bits, n)	for (bit = 0; bit < (n); bit++) if (test_bit(bit, bits))
#define hmm_pfn_to_page(pfn)		(pfn)
#define is_device_private_page(page)	((page) & ON_GPU)

struct mm_struct { bool is_owned; };
struct notifier { struct mm_struct *mm; };
struct hmm_range { unsigned long start, end, *hmm_pfns; struct notifier *notifier; };

static bool uvm_rust_fix_forked = true, uvm_rust_fix_charge = true;
static bool uvm_rust_is_owned(const struct mm_struct *mm) { return mm->is_owned; }
static bool fails_alone = true;
#define uvm_rust_fails_alone(va_space)		fails_alone
static struct mm_struct memory = { true };
static struct notifier notifier = { &memory };

static void __set_bit(unsigned long bit, unsigned long *bits)
{
	bits[bit / BITS_PER_LONG] |= 1ul << bit % BITS_PER_LONG;
}

static bool test_bit(unsigned long bit, const unsigned long *bits)
{
	return bits[bit / BITS_PER_LONG] >> bit % BITS_PER_LONG & 1;
}

/* What Linux's page tables have; how often it was called, what it was asked for last, and which call fails. */
static unsigned long there[PAGES_PER_UVM_VA_BLOCK], asked[PAGES_PER_UVM_VA_BLOCK];
static int calls, fails;
/* It called the driver, as for a CPU fault. */
static bool recursed;
/* Somebody has isolated the last page, and puts it back where it was once Linux is asked for it. */
static bool isolated;

static int hmm_range_fault(struct hmm_range *range)
{
	if (++calls == fails)
		return -14;
	for (unsigned long i = 0; i < (range->end - range->start) >> PAGE_SHIFT; i++) {
		asked[i] = range->hmm_pfns[i];
		if (i == 2 && isolated) {
			isolated = !asked[i];
			if (isolated) {
				range->hmm_pfns[i] = 0;
				continue;
			}
		}
		if ((asked[i] & HMM_PFN_REQ_WRITE) && !(there[i] & HMM_PFN_WRITE)) {
			recursed |= there[i] & ON_GPU;
			there[i] = HMM_PFN_VALID | HMM_PFN_WRITE;
		}
		range->hmm_pfns[i] = there[i];
	}
	return 0;
}

/* Whether the thread services faults of all processes and the pages are of a file; how often these were looked at instead. */
static bool of_file;
static int looks;

#define uvm_rust_space_of_range(range)		NULL
#define uvm_rust_files_serves(range, va_space)	of_file

static int uvm_rust_files_look(struct hmm_range *range)
{
	looks++;
	return -115;
}

#include "range.h"

static int number, failed;

static void say(const char *name, bool holds)
{
	failed |= !holds;
	printf("%s %d - a range of pages: %s\n", holds ? "ok" : "not ok", ++number, name);
}

static unsigned long pfns[PAGES_PER_UVM_VA_BLOCK];

/* The last of three pages is as @last says, and asked for so. The others may be written to; the second is only read. */
static int fault(unsigned long last, unsigned long as)
{
	struct hmm_range range = { .start = 0, .end = 3ul << PAGE_SHIFT, .hmm_pfns = pfns, .notifier = &notifier };

	calls = 0;
	recursed = false;
	there[0] = there[1] = HMM_PFN_VALID | HMM_PFN_WRITE;
	there[2] = last;
	pfns[0] = HMM_PFN_REQ_FAULT | HMM_PFN_REQ_WRITE;
	pfns[1] = HMM_PFN_REQ_FAULT;
	pfns[2] = as;
	return uvm_rust_range_fault(&range);
}

int main(void)
{
	const unsigned long read = HMM_PFN_REQ_FAULT, write = HMM_PFN_REQ_FAULT | HMM_PFN_REQ_WRITE;

	printf("TAP version 13\n");
	say("one on the host that is protected is asked for", fault(HMM_PFN_VALID, write) == 0 && asked[0] == write &&
	    asked[1] == read && asked[2] == write && pfns[2] == (HMM_PFN_VALID | HMM_PFN_WRITE));
	say("so is one that is not there", fault(0, write) == 0 && asked[2] == write && pfns[2]);
	say("one on a GPU that is protected is not, and may be later", fault(HMM_PFN_VALID | ON_GPU, write) == -EBUSY &&
	    !recursed && pfns[0] == write && pfns[1] == read && pfns[2] == write);
	isolated = true;
	say("nor is one that somebody has isolated, and puts back there", fault(HMM_PFN_VALID | ON_GPU, write) == -EBUSY &&
	    !recursed && !isolated && pfns[0] == write && pfns[1] == read && pfns[2] == write);
	isolated = true;
	say("one that is put back on the host is", fault(HMM_PFN_VALID, write) == 0 && asked[2] == write && asked[0] == write);
	say("one on a GPU that may be written to is", fault(HMM_PFN_VALID | HMM_PFN_WRITE | ON_GPU, write) == 0 && asked[2] == write);
	say("so is one on a GPU that is only read", fault(HMM_PFN_VALID | ON_GPU, read) == 0 && !recursed && asked[2] == read);
	fails = 1;
	say("what Linux refuses is refused, and may be asked for again", fault(HMM_PFN_VALID, write) == -14 && calls == 1 &&
	    pfns[0] == write && pfns[1] == read && pfns[2] == write);
	fails = 0;
	say("whoever only looks gets what is there at once", fault(HMM_PFN_VALID | ON_GPU, 0) == 0 && calls == 1 && !recursed);
	of_file = true;
	say("of files Linux is asked for nothing here", fault(0, write) == -115 && looks == 1 && !calls);
	of_file = false;
	memory.is_owned = false;
	say("nor for memory that no process has, as it would charge nobody", fault(0, write) == -ENOMEM && !calls && pfns[2] == write);
	fails_alone = false;
	say("but where others' faults would be cancelled for one that is refused it is", fault(0, write) == 0 && calls && pfns[2] == (HMM_PFN_VALID | HMM_PFN_WRITE));
	fails_alone = true;
	uvm_rust_fix_charge = false;
	say("without that mend it is", fault(0, write) == 0 && asked[2] == write);
	uvm_rust_fix_forked = false;
	say("without the mend Linux calls the driver", fault(HMM_PFN_VALID | ON_GPU, write) == 0 && calls == 1 && recursed);
	printf("1..%d\n", number);
	return failed;
}
