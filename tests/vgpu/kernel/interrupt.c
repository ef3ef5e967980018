// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Interrupts: while the fault buffer, the access counters' buffer or RM's ring of copies' faults holds
 * something, UVM's top half is called, again and again. In the adversarial order the core says whether
 * an interrupt of the first two is pending, at the end of each turn (core/interrupt.rs). UVM's own lock
 * makes surplus calls harmless, as all of them are in the kind order.
 */
#include "vgpu.h"

#include <linux/delay.h>
#include <linux/kthread.h>
#include <linux/lockdep.h>

#include "uapi/vgpu.h"

/* The index in GET and PUT; above it are bits about an overflow, of which the core takes note. */
#define FAULT_INDEX 0xfffffU

/* Guards uvm: held while UVM's top half runs, so that UVM cannot go meanwhile. */
static DEFINE_MUTEX(ops_lock);
static struct vgpu_uvm uvm;

/* Whether there is an entry of a fault that UVM has not taken. */
static bool has_faults(struct vgpu *g)
{
	u32 get = READ_ONCE(*vgpu_register(g, VGPU_REG_FAULT_GET));
	u32 put = READ_ONCE(*vgpu_register(g, VGPU_REG_FAULT_PUT));

	return (get ^ put) & FAULT_INDEX;
}

/* How many faults of users' copies RM has for UVM. Any context. */
u32 vgpu_copy_faults(struct vgpu *g)
{
	return READ_ONCE(*vgpu_register(g, VGPU_REG_COPY_FAULT_PUT)) -
	       READ_ONCE(*vgpu_register(g, VGPU_REG_COPY_FAULT_GET));
}

bool vgpu_interrupt_pending(struct vgpu *g)
{
	if (vgpu_copy_faults(g))
		return true;
	if (vgpu_adversarial)
		return READ_ONCE(*vgpu_register(g, VGPU_REG_PENDING));
	return has_faults(g) || READ_ONCE(*vgpu_register(g, VGPU_REG_COUNTER_GET)) !=
				READ_ONCE(*vgpu_register(g, VGPU_REG_COUNTER_PUT));
}

static void isr_work(struct irq_work *work)
{
	struct vgpu *g = container_of(work, struct vgpu, isr_work);

	/* The thread that queued this holds ops_lock. */
	uvm.top_half(&g->uuid);
}

static void top_half(struct vgpu *g)
{
	mutex_lock(&ops_lock);
	if (uvm.top_half) {
		vgpu_rs_count_interrupt(g->rs);
		if (g->isr_work.func) {
			irq_work_queue(&g->isr_work);
			irq_work_sync(&g->isr_work);
		} else {
			uvm.top_half(&g->uuid);
		}
	}
	mutex_unlock(&ops_lock);
}

static int isr(void *arg)
{
	struct vgpu *g = arg;

	while (!kthread_should_stop()) {
		wait_event_interruptible(g->isr_wait,
					 kthread_should_stop() || vgpu_interrupt_pending(g));
		if (kthread_should_stop())
			break;
		/* The emulator's next turn says whether it is pending still, once UVM has done something about it. */
		WRITE_ONCE(*vgpu_register(g, VGPU_REG_PENDING), 0);
		top_half(g);
		usleep_range(100, 200);
	}
	return 0;
}

int vgpu_interrupt_start(struct vgpu *g, bool hard)
{
	if (hard)
		g->isr_work = IRQ_WORK_INIT_HARD(isr_work);
	g->isr = kthread_run(isr, g, "vgpu%u-isr", g->index);
	if (IS_ERR(g->isr)) {
		int err = PTR_ERR(g->isr);

		g->isr = NULL;
		return err;
	}
	return 0;
}

void vgpu_interrupt_stop(struct vgpu *g)
{
	if (g->isr)
		kthread_stop(g->isr);
	g->isr = NULL;
}

/*
 * Written while the system sleeps. RM's calls read it in the same way, so that RM asks UVM for nothing while UVM is
 * suspended. Outside of all other locks.
 */
DECLARE_RWSEM(vgpu_awake);

static void preempt(bool yes)
{
	for (unsigned int i = 0; i < vgpu_count; i++)
		vgpu_rs_inject(vgpu_gpus[i]->rs, VGPU_INJECT_SUSPEND, yes, 0, 0);
}

/*
 * Sleeps as the system does: users' channels stand still, UVM is suspended, and no
 * interrupt comes, as ops_lock is held. UVM wants to be resumed by the thread that
 * suspended it.
 */
int vgpu_suspend(unsigned int ms, u32 *status)
{
	int err = -EAGAIN;

	down_write(&vgpu_awake);
	mutex_lock(&ops_lock);
	if (uvm.suspend && uvm.resume) {
		preempt(true);
		/* Resuming takes locks out of order, while nobody else can have one. */
		lockdep_off();
		*status = uvm.suspend();
		if (*status == NV_OK) {
			msleep(ms);
			/* UVM reads GET as it is resumed, which must be without bits that were written to clear something. */
			preempt(true);
			*status = uvm.resume();
		}
		lockdep_on();
		preempt(false);
		err = 0;
	}
	mutex_unlock(&ops_lock);
	up_write(&vgpu_awake);
	return err;
}

NV_STATUS vgpu_register_uvm(const struct vgpu_uvm *who)
{
	mutex_lock(&ops_lock);
	uvm = *who;
	mutex_unlock(&ops_lock);
	return NV_OK;
}

void vgpu_deregister_uvm(void)
{
	mutex_lock(&ops_lock);
	memset(&uvm, 0, sizeof(uvm));
	mutex_unlock(&ops_lock);
}
