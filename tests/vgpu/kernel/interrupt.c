// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Interrupts: while the fault buffer or the access counters' buffer holds
 * something, UVM's top half is called, again and again. UVM turns interrupts off
 * by writing registers that nobody reads; its own lock makes the surplus calls
 * harmless.
 */
#include "vgpu.h"

#include <linux/delay.h>
#include <linux/kthread.h>

/* Guards ops: held while UVM's top half runs, so that UVM can not go meanwhile. */
static DEFINE_MUTEX(ops_lock);
static struct UvmOpsUvmEvents *ops;

bool vgpu_interrupt_pending(struct vgpu *g)
{
	u32 get = READ_ONCE(*vgpu_register(g, VGPU_REG_FAULT_GET)) & 0xfffff;

	return get != READ_ONCE(*vgpu_register(g, VGPU_REG_FAULT_PUT)) ||
	       READ_ONCE(*vgpu_register(g, VGPU_REG_COUNTER_GET)) !=
	       READ_ONCE(*vgpu_register(g, VGPU_REG_COUNTER_PUT));
}

static void isr_work(struct irq_work *work)
{
	struct vgpu *g = container_of(work, struct vgpu, isr_work);

	/* The thread that queued this holds ops_lock. */
	ops->isrTopHalf(&g->uuid);
}

static void top_half(struct vgpu *g)
{
	mutex_lock(&ops_lock);
	if (ops && ops->isrTopHalf) {
		vgpu_rs_count_interrupt(g->rs);
		if (g->isr_work.func) {
			irq_work_queue(&g->isr_work);
			irq_work_sync(&g->isr_work);
		} else {
			ops->isrTopHalf(&g->uuid);
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

NV_STATUS nvUvmInterfaceRegisterUvmCallbacks(struct UvmOpsUvmEvents *importedUvmOps)
{
	mutex_lock(&ops_lock);
	ops = importedUvmOps;
	mutex_unlock(&ops_lock);
	return NV_OK;
}
EXPORT_SYMBOL(nvUvmInterfaceRegisterUvmCallbacks);

void nvUvmInterfaceDeRegisterUvmOps(void)
{
	mutex_lock(&ops_lock);
	ops = NULL;
	mutex_unlock(&ops_lock);
}
EXPORT_SYMBOL(nvUvmInterfaceDeRegisterUvmOps);
