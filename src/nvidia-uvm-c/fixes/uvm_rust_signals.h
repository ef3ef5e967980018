/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * In front of uvm.c: UVM_INITIALIZE of a process that gets a signal.
 *
 * UVM_INITIALIZE registers a notifier of the process' memory, for which Linux takes the lock of each mapping of that process
 * (mm_take_all_locks()). Linux stops there, with EINTR, if the thread has got a signal. Upstream returns NV_ERR_BUSY_RETRY then,
 * which nothing says is to be expected: a program under a profiler, or one that begins as the system goes to sleep, has no CUDA.
 *
 * So most signals wait until the call is over. SIGKILL and SIGSTOP cannot wait, and neither can the system's sleep: after
 * them the call begins anew. To begin anew after every signal would not do, as a process with many mappings may get one each time.
 */
#ifndef UVM_RUST_SIGNALS_H
#define UVM_RUST_SIGNALS_H

#include <linux/sched/signal.h>
#include <linux/uaccess.h>

#include "uvm_ioctl.h"
#include "uvm_linux_ioctl.h"

#include "uvm_rust_fixes.h"

/* Whether the UVM_INITIALIZE that has @params ended as a call does that a signal has stopped. */
static bool uvm_rust_was_stopped(const UVM_INITIALIZE_PARAMS __user *params)
{
	NV_STATUS status;

	return signal_pending(current) && !get_user(status, &params->rmStatus) && status == NV_ERR_BUSY_RETRY;
}

/* Called in place of @ioctl, which is upstream's, with the lock of power management held for reading. */
static long uvm_rust_ioctl_whole(long (*ioctl)(struct file *, unsigned int, unsigned long), struct file *filp, unsigned int cmd,
				 unsigned long arg)
{
	sigset_t later, before;
	bool stopped;
	long ret;

	if (cmd != UVM_INITIALIZE || !uvm_rust_fix_signals)
		return ioctl(filp, cmd, arg);
	siginitsetinv(&later, sigmask(SIGKILL) | sigmask(SIGSTOP));
	sigprocmask(SIG_BLOCK, &later, &before);
	ret = ioctl(filp, cmd, arg);
	stopped = ret == 0 && uvm_rust_was_stopped((const UVM_INITIALIZE_PARAMS __user *)arg);
	sigprocmask(SIG_SETMASK, &before, NULL);
	return stopped ? restart_syscall() : ret;
}

#endif
