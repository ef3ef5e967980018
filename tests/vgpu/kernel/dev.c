// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * /dev/vgpu: the calls of include/uapi/vgpu.h, which documents them. Here
 * arguments are copied and their sizes, flags and reserved fields checked; the
 * rest is the emulator's.
 */
#define pr_fmt(fmt) "vgpu: " fmt

#include "vgpu.h"

#include <linux/capability.h>
#include <linux/cred.h>
#include <linux/fs.h>
#include <linux/jiffies.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "uapi/vgpu.h"

static_assert(sizeof(struct vgpu_info) == VGPU_INFO_SIZE_V1);
static_assert(sizeof(struct vgpu_vaspace) == VGPU_VASPACE_SIZE_V1);
static_assert(sizeof(struct vgpu_channel) == VGPU_CHANNEL_SIZE_V1);
static_assert(sizeof(struct vgpu_destroy) == VGPU_DESTROY_SIZE_V1);
static_assert(sizeof(struct vgpu_op) == VGPU_OP_SIZE_V1);
static_assert(sizeof(struct vgpu_submit) == VGPU_SUBMIT_SIZE_V1);
static_assert(sizeof(struct vgpu_wait) == VGPU_WAIT_SIZE_V1);
static_assert(sizeof(struct vgpu_stats) == VGPU_STATS_SIZE_V3);
static_assert(sizeof(struct vgpu_inject) == VGPU_INJECT_SIZE_V1);
static_assert(sizeof(struct vgpu_translate) == VGPU_TRANSLATE_SIZE_V1);

#define PAGE_2M		(2ULL << 20)

/* 2 MiB pages that a client evicted and keeps. */
struct kept {
	struct kept *next;
	struct vgpu *g;
	u64 count;
	u64 pages[];
};

/**
 * struct client - one open file of /dev/vgpu
 * @user: who opened it, or VGPU_ADMIN: shares limits with his other files
 * @lock: guards @kept; the innermost lock
 */
struct client {
	u32 h_client;
	u32 user;
	spinlock_t lock;
	struct kept *kept;
};

/* The largest of all structures, and the smallest size of each. */
#define MAX_USER_SIZE	4096

/*
 * Copies a structure in: @size is the driver's, @min the first version's. The
 * user's size is the structure's first field.
 */
static int copy_in(void *to, size_t size, size_t min, void __user *from, u32 *user_size)
{
	if (get_user(*user_size, (u32 __user *)from))
		return -EFAULT;
	if (*user_size < min)
		return -EINVAL;
	if (*user_size > MAX_USER_SIZE)
		return -E2BIG;
	return copy_struct_from_user(to, size, from, *user_size);
}

static int copy_out(void __user *to, const void *from, size_t size, u32 user_size)
{
	return copy_to_user(to, from, min_t(size_t, size, user_size)) ? -EFAULT : 0;
}

static struct vgpu *gpu_of_handle(u32 handle)
{
	u32 index = (handle >> VGPU_HANDLE_BITS) - 1;

	return index < vgpu_count ? vgpu_gpus[index] : NULL;
}

static struct vgpu *gpu_of_index(u32 index)
{
	return index < vgpu_count ? vgpu_gpus[index] : NULL;
}

static int get_info(void __user *arg)
{
	struct vgpu_info info;
	struct vgpu *g;
	u32 size, index;
	int err = copy_in(&info, sizeof(info), VGPU_INFO_SIZE_V1, arg, &size);

	if (err)
		return err;
	if (info.reserved)
		return -EINVAL;
	index = info.gpu;
	g = gpu_of_index(index);
	if (!g)
		return -ENODEV;
	memset(&info, 0, sizeof(info));
	info.size = sizeof(info);
	info.gpu = index;
	info.gpu_count = vgpu_count;
	info.personality = vgpu_personality;
	memcpy(info.uuid, g->uuid.uuid, sizeof(info.uuid));
	memcpy(info.name, g->chip.name, sizeof(info.name));
	info.vidmem_bytes = g->vidmem_bytes;
	info.reserved_bytes = VGPU_RESERVED_BYTES;
	info.features = (vgpu_tlb ? VGPU_FEATURE_TLB : 0) |
			(vgpu_poison ? VGPU_FEATURE_POISON : 0) |
			(vgpu_is_simulated ? VGPU_FEATURE_SIMULATED : 0) |
			(vgpu_link == VGPU_LINK_PCIE ? VGPU_FEATURE_PCIE : 0) |
			(vgpu_link == VGPU_LINK_NVLINK ? VGPU_FEATURE_NVLINK : 0);
	info.utlb_count = g->chip.utlb_count;
	info.utlb_faults = g->chip.utlb_faults;
	info.fault_entries = g->fault_entries;
	return copy_out(arg, &info, sizeof(info), size);
}

static int vaspace_create(struct client *c, void __user *arg)
{
	struct vgpu_vaspace v;
	struct vgpu *g;
	u32 size;
	int err = copy_in(&v, sizeof(v), VGPU_VASPACE_SIZE_V1, arg, &size);

	if (err)
		return err;
	if (v.flags || v.reserved)
		return -EINVAL;
	g = gpu_of_index(v.gpu);
	if (!g)
		return -ENODEV;
	err = vgpu_rs_vaspace_create(g->rs, c->h_client, &v.h_vaspace);
	if (err)
		return err;
	v.h_client = c->h_client;
	err = copy_out(arg, &v, sizeof(v), size);
	if (err)
		vgpu_rs_handle_destroy(g->rs, c->h_client, v.h_vaspace);
	return err;
}

static int channel_create(struct client *c, void __user *arg)
{
	struct vgpu_channel ch;
	struct vgpu *g;
	u32 size;
	int err = copy_in(&ch, sizeof(ch), VGPU_CHANNEL_SIZE_V1, arg, &size);

	if (err)
		return err;
	if (ch.flags || ch.reserved)
		return -EINVAL;
	g = gpu_of_handle(ch.h_vaspace);
	if (!g)
		return -ENOENT;
	err = vgpu_rs_user_channel_create(g->rs, c->h_client, ch.h_vaspace, c->user, &ch.h_channel);
	if (err)
		return err;
	ch.h_client = c->h_client;
	err = copy_out(arg, &ch, sizeof(ch), size);
	if (err)
		vgpu_rs_handle_destroy(g->rs, c->h_client, ch.h_channel);
	return err;
}

static int destroy(struct client *c, void __user *arg)
{
	struct vgpu_destroy d;
	struct vgpu *g;
	u32 size;
	int err = copy_in(&d, sizeof(d), VGPU_DESTROY_SIZE_V1, arg, &size);

	if (err)
		return err;
	if (d.flags || d.reserved)
		return -EINVAL;
	g = gpu_of_handle(d.handle);
	if (!g)
		return -ENOENT;
	return vgpu_rs_handle_destroy(g->rs, c->h_client, d.handle);
}

static struct vgpu_op *copy_ops(const struct vgpu_submit *s)
{
	const void __user *from = u64_to_user_ptr(s->ops);
	struct vgpu_op *ops;
	u32 i;
	int err;

	if (!s->op_count || s->op_count > VGPU_MAX_OPS || s->op_size < VGPU_OP_SIZE_V1)
		return ERR_PTR(-EINVAL);
	if (s->op_size > MAX_USER_SIZE)
		return ERR_PTR(-E2BIG);
	ops = kvcalloc(s->op_count, sizeof(*ops), GFP_KERNEL_ACCOUNT);
	if (!ops)
		return ERR_PTR(-ENOMEM);
	for (i = 0; i < s->op_count; i++) {
		err = copy_struct_from_user(&ops[i], sizeof(*ops), from + (size_t)i * s->op_size,
					    s->op_size);
		if (err) {
			kvfree(ops);
			return ERR_PTR(err);
		}
	}
	return ops;
}

static int submit(struct client *c, void __user *arg)
{
	struct vgpu_submit s;
	struct vgpu_op *ops;
	struct vgpu *g;
	u32 size;
	int err = copy_in(&s, sizeof(s), VGPU_SUBMIT_SIZE_V1, arg, &size);

	if (err)
		return err;
	if (s.flags || s.reserved)
		return -EINVAL;
	g = gpu_of_handle(s.h_channel);
	if (!g)
		return -ENOENT;
	ops = copy_ops(&s);
	if (IS_ERR(ops))
		return PTR_ERR(ops);
	/* A kernel cannot be taken back: see that its fence can be told. */
	err = copy_out(arg, &s, sizeof(s), size);
	if (!err)
		err = vgpu_rs_submit(g->rs, c->h_client, s.h_channel, ops, s.op_count,
				     s.utlb_faults, &s.fence);
	kvfree(ops);
	if (err)
		return err;
	return copy_out(arg, &s, sizeof(s), size);
}

/* Rounded up, and so that the longest waits for ever. */
static unsigned long to_jiffies(u64 ns)
{
	u64 j;

	if (ns == 0)
		return 0;
	j = nsecs_to_jiffies64(ns);
	return j >= MAX_SCHEDULE_TIMEOUT ? MAX_SCHEDULE_TIMEOUT : j + 1;
}

static int wait_for(struct client *c, void __user *arg)
{
	struct vgpu_wait w;
	struct vgpu *g;
	u32 size;
	int err = copy_in(&w, sizeof(w), VGPU_WAIT_SIZE_V1, arg, &size);

	if (err)
		return err;
	if (w.flags)
		return -EINVAL;
	g = gpu_of_handle(w.h_channel);
	if (!g)
		return -ENOENT;
	err = vgpu_rs_wait(g->rs, c->h_client, &w, to_jiffies(w.timeout_ns));
	if (err)
		return err;
	return copy_out(arg, &w, sizeof(w), size);
}

static int get_stats(void __user *arg)
{
	struct vgpu_stats s;
	struct vgpu *g;
	u32 size;
	int err = copy_in(&s, sizeof(s), VGPU_STATS_SIZE_V1, arg, &size);

	if (err)
		return err;
	if (s.flags || s.reserved)
		return -EINVAL;
	g = gpu_of_index(s.gpu);
	if (!g)
		return -ENODEV;
	vgpu_rs_stats(g->rs, &s.ce_copies);
	s.size = sizeof(s);
	return copy_out(arg, &s, sizeof(s), size);
}

static int translate(struct client *c, void __user *arg)
{
	struct vgpu_translate t;
	struct vgpu *g;
	u32 size;
	int err = copy_in(&t, sizeof(t), VGPU_TRANSLATE_SIZE_V1, arg, &size);

	if (err)
		return err;
	if (t.flags)
		return -EINVAL;
	g = gpu_of_handle(t.h_vaspace);
	if (!g)
		return -ENOENT;
	err = vgpu_rs_translate(g->rs, c->h_client, &t);
	if (err)
		return err;
	return copy_out(arg, &t, sizeof(t), size);
}

/* Gives @count evicted pages back to PMA, or keeps them with the client. */
static void dispose(struct client *c, struct kept *k, bool keep)
{
	if (keep && k->count) {
		spin_lock(&c->lock);
		k->next = c->kept;
		c->kept = k;
		spin_unlock(&c->lock);
		return;
	}
	if (k->count) {
		if (vgpu_rs_pma_free(k->g->rs, k->pages, k->count, PAGE_2M, false))
			pr_err("vgpu%u: evicted pages are not allocated\n", k->g->index);
		vgpu_update_pma_stats(k->g);
	}
	kvfree(k);
}

/*
 * Asks UVM for memory, as RM does when another of its clients needs it. Called
 * with no lock but vgpu_awake and evict_lock: UVM takes its own, and calls back into PMA.
 */
static int evict(struct client *c, struct vgpu *g, struct vgpu_inject *in)
{
	u64 end = in->end ? in->end : g->vidmem_bytes;
	bool by_range = in->kind == VGPU_INJECT_EVICT_RANGE;
	u64 max = by_range ? g->vidmem_bytes / PAGE_2M : in->count;
	struct kept *k;
	NV_STATUS status;
	int err = 0;

	if (in->begin % PAGE_2M || end % PAGE_2M || in->begin >= end || end > g->vidmem_bytes)
		return -EINVAL;
	if (by_range ? in->count != 0 : !in->count || in->count > VGPU_MAX_EVICT_PAGES)
		return -EINVAL;
	k = kvzalloc(struct_size(k, pages, max), GFP_KERNEL);
	if (!k)
		return -ENOMEM;
	k->g = g;
	down_read(&vgpu_awake);
	down_read(&g->evict_lock);
	if (!g->evict_pages) {
		err = -EAGAIN;
	} else if (by_range) {
		/* Pinned memory is not UVM's to give, and it relies on not being asked. */
		if (vgpu_rs_eviction_begin(g->rs, in->begin, end)) {
			status = NV_ERR_IN_USE;
		} else {
			status = g->evict_range(g->evict_data, in->begin, end - 1,
						UVM_PMA_GPU_MEMORY_TYPE_UNPROTECTED);
			k->count = vgpu_rs_eviction_end(g->rs, in->begin, end, k->pages, max);
		}
	} else {
		status = g->evict_pages(g->evict_data, PAGE_2M, k->pages, max, in->begin, end,
					UVM_PMA_GPU_MEMORY_TYPE_UNPROTECTED);
		if (status == NV_OK)
			k->count = max;
	}
	up_read(&g->evict_lock);
	up_read(&vgpu_awake);
	if (err) {
		kvfree(k);
		return err;
	}
	in->status = status;
	in->bytes = k->count * PAGE_2M;
	dispose(c, k, in->flags & VGPU_INJECT_KEEP);
	return 0;
}

/* Begins an access of a channel's copy engine, if it is asked for, and says what there was of such. */
static int copy(struct vgpu *g, struct vgpu_inject *in)
{
	u64 counts[2] = {};
	int err = in->count ? vgpu_rs_copy(g->rs, in->handle, in->begin) : 0;

	if (!err)
		err = vgpu_rs_copies(g->rs, in->handle, counts);
	in->bytes = counts[0];
	in->status = counts[1];
	return err;
}

static int inject(struct client *c, void __user *arg)
{
	struct vgpu_inject in;
	struct vgpu *g;
	u32 size;
	int err = copy_in(&in, sizeof(in), VGPU_INJECT_SIZE_V1, arg, &size);
	bool evicts, copies, stops;

	if (err)
		return err;
	evicts = in.kind == VGPU_INJECT_EVICT_PAGES || in.kind == VGPU_INJECT_EVICT_RANGE;
	copies = in.kind == VGPU_INJECT_COPY;
	stops = in.kind == VGPU_INJECT_CHANNEL_ERROR;
	if (in.kind < VGPU_INJECT_DROP_INVALIDATES || in.kind > VGPU_INJECT_COPY)
		return -EINVAL;
	if (in.kind == VGPU_INJECT_SUSPEND && (!in.count || in.count > VGPU_MAX_SUSPEND_MS))
		return -EINVAL;
	if (in.flags & ~(evicts ? VGPU_INJECT_KEEP : 0))
		return -EINVAL;
	if ((copies && in.count > 1) || (stops && in.count))
		return -EINVAL;
	if ((in.skip && in.kind != VGPU_INJECT_PMA_FAILURE) || (in.handle && !stops && !copies))
		return -EINVAL;
	if ((in.begin && !evicts && !(copies && in.count)) || (in.end && !evicts))
		return -EINVAL;
	g = gpu_of_index(in.gpu);
	if (!g)
		return -ENODEV;
	if (!capable(CAP_SYS_ADMIN))
		return -EPERM;
	in.status = 0;
	in.bytes = 0;
	if (evicts)
		err = evict(c, g, &in);
	else if (in.kind == VGPU_INJECT_SUSPEND)
		err = vgpu_suspend(in.count, &in.status);
	else if (copies)
		err = copy(g, &in);
	else
		err = vgpu_rs_inject(g->rs, in.kind, in.count, in.skip, in.handle);
	if (err)
		return err;
	return copy_out(arg, &in, sizeof(in), size);
}

static long dev_ioctl(struct file *file, unsigned int cmd, unsigned long value)
{
	struct client *c = file->private_data;
	void __user *arg = (void __user *)value;

	switch (cmd) {
	case VGPU_GET_INFO:
		return get_info(arg);
	case VGPU_VASPACE_CREATE:
		return vaspace_create(c, arg);
	case VGPU_CHANNEL_CREATE:
		return channel_create(c, arg);
	case VGPU_DESTROY:
		return destroy(c, arg);
	case VGPU_SUBMIT:
		return submit(c, arg);
	case VGPU_WAIT:
		return wait_for(c, arg);
	case VGPU_GET_STATS:
		return get_stats(arg);
	case VGPU_INJECT:
		return inject(c, arg);
	case VGPU_TRANSLATE:
		return translate(c, arg);
	default:
		return -ENOTTY;
	}
}

static int dev_open(struct inode *inode, struct file *file)
{
	static atomic_t next = ATOMIC_INIT(0);
	struct client *c = kzalloc(sizeof(*c), GFP_KERNEL_ACCOUNT);

	if (!c)
		return -ENOMEM;
	/* Never 0 in a VM's life. */
	c->h_client = atomic_inc_return(&next);
	c->user = capable(CAP_SYS_ADMIN) ? VGPU_ADMIN : from_kuid(&init_user_ns, current_euid());
	spin_lock_init(&c->lock);
	file->private_data = c;
	return 0;
}

static int dev_release(struct inode *inode, struct file *file)
{
	struct client *c = file->private_data;
	unsigned int i;

	for (i = 0; i < vgpu_count; i++)
		vgpu_rs_client_close(vgpu_gpus[i]->rs, c->h_client);
	while (c->kept) {
		struct kept *k = c->kept;

		c->kept = k->next;
		dispose(c, k, false);
	}
	kfree(c);
	return 0;
}

/*
 * A killed process lets go of its files one by one, UVM's perhaps first, and UVM
 * waits there for faults in progress. So its kernels are stopped as soon as any
 * descriptor of this file is closed by a dying process.
 */
static int dev_flush(struct file *file, fl_owner_t id)
{
	struct client *c = file->private_data;
	unsigned int i;

	if (!(current->flags & PF_EXITING) || file_count(file) > 1)
		return 0;
	for (i = 0; i < vgpu_count; i++)
		vgpu_rs_client_close(vgpu_gpus[i]->rs, c->h_client);
	return 0;
}

static const struct file_operations fops = {
	.owner = THIS_MODULE,
	.open = dev_open,
	.flush = dev_flush,
	.release = dev_release,
	.unlocked_ioctl = dev_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
};

static struct miscdevice misc = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "vgpu",
	.fops = &fops,
	.mode = 0666,
};

int vgpu_dev_register(void)
{
	return misc_register(&misc);
}

void vgpu_dev_unregister(void)
{
	misc_deregister(&misc);
}
