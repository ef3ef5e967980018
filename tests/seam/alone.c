// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Whose faults may be refused something, or put off: uvm_rust_alone.h as it is, and uvm_rust_puts_off() of uvm_rust_files.h, of which the
 * rest is not compiled here. With PARTS it is a driver whose loop services a parent GPU's faults. Upstream has two GPUs here.
 */
#include <stdbool.h>
#include <stdio.h>

#define PF_KTHREAD	1

typedef struct { int val; } uvm_gpu_id_t;
typedef struct { bool fault_cancel_va_supported; struct { bool enabled; } smc; } uvm_parent_gpu_t;
typedef struct { uvm_parent_gpu_t *parent; } uvm_gpu_t;
typedef struct { int registered_gpus; } uvm_va_space_t;

static uvm_parent_gpu_t parents[2];
static uvm_gpu_t gpus[2] = { { &parents[0] }, { &parents[1] } };
static bool uvm_rust_fix_files, uvm_rust_fault;
static struct { int flags; } thread, *current = &thread;

#define uvm_rust_cancels_by_address(parent)	((parent)->fault_cancel_va_supported)
#define uvm_rust_gpu(space, id)			(&gpus[(id).val])
#define for_each_gpu_id_in_mask(id, mask)	for ((id).val = 0; (id).val < 2; (id).val++) if (*(mask) >> (id).val & 1)

#include "uvm_rust_on_parts.h"
#include "alone.h"

#ifdef PARTS
#define LOOP	"where upstream's loop services a parent's"
static const bool parts_fail_alone;
#else
#define LOOP	"where it services one GPU's"
static const bool parts_fail_alone = true;
#endif

static int number, failed;

static void say(const char *name, bool holds)
{
	failed |= !holds;
	printf("%s %d - faults alone, " LOOP ": %s\n", holds ? "ok" : "not ok", ++number, name);
}

static uvm_va_space_t va_space;

/* The VA space has the first GPU. A thread of the kernel's services its faults. */
static void begin(void)
{
	va_space.registered_gpus = 1;
	for (int i = 0; i < 2; i++)
		parents[i] = (uvm_parent_gpu_t){ .fault_cancel_va_supported = true };
	uvm_rust_fix_files = uvm_rust_fault = true;
	thread.flags = PF_KTHREAD;
}

/* Whether its faults may both be refused something, and put off; or neither. */
static bool may(bool what)
{
	return uvm_rust_fails_alone(&va_space) == what && uvm_rust_puts_off(&va_space) == what;
}

int main(void)
{
	printf("TAP version 13\n");
	begin();
	say("a VA space's may be refused, and put off", may(true));
	parents[0].fault_cancel_va_supported = false;
	say("not on a GPU that cannot cancel by address", may(false));
	begin();
	parents[1] = (uvm_parent_gpu_t){ .smc.enabled = true };
	say("a GPU that it does not have is not asked", may(true));
	va_space.registered_gpus = 3;
	say("any of those that it has is", may(false));
	begin();
	parents[0].smc.enabled = true;
	say("on a part of a GPU, if that loop does not service them", may(parts_fail_alone));
	parents[1].smc.enabled = true;
	va_space.registered_gpus = 2;
	say("whichever GPU that is", may(parts_fail_alone));
	begin();
	thread.flags = 0;
	say("a call is not put off, but refused", uvm_rust_fails_alone(&va_space) && !uvm_rust_puts_off(&va_space));
	begin();
	uvm_rust_fix_files = false;
	say("nor is a fault without the mend", !uvm_rust_puts_off(&va_space));
	begin();
	uvm_rust_fault = false;
	say("nor is one that upstream's loop services", !uvm_rust_puts_off(&va_space));
	printf("1..%d\n", number);
	return failed;
}
