// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* Flushes of the tools' events that are under way: uvm_rust_flush.h. */
#include <linux/delay.h>
#include <linux/jiffies.h>
#include <linux/rwsem.h>

#include "uvm_common.h"

#include "uvm_rust_flush.h"

DECLARE_RWSEM(uvm_rust_flushes);

/* How long a test may have a flush wait, in ms. */
#define TEST_FLUSH_MS	10000

static unsigned int uvm_rust_test_flush;
module_param(uvm_rust_test_flush, uint, 0600);
MODULE_PARM_DESC(uvm_rust_test_flush,
		 "For tests, with uvm_enable_builtin_tests=1: a flush of the tools' events waits before each channel as long as this is not 0 (default 0)");

void uvm_rust_test_flushes(void)
{
	unsigned long until = jiffies + msecs_to_jiffies(TEST_FLUSH_MS);

	while (unlikely(READ_ONCE(uvm_rust_test_flush)) && uvm_enable_builtin_tests && time_before(jiffies, until))
		msleep(1);
}
