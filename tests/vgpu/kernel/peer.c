// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Peers: what RM says of two GPUs, and the objects by which it lets each of them reach the other one's memory. Every
 * two GPUs have a link, of the kind that the parameter names.
 */
#define pr_fmt(fmt) "vgpu: " fmt

#include "vgpu.h"

#include <linux/export.h>

/* Handles begin above those of other objects, so that they are not mixed up. */
#define P2P_HANDLE	0x50320000U

/*
 * The P2P objects, by the indices of their GPUs, of which the first is the lower one. RM's real one counts how often a pair
 * is asked for; UVM asks once.
 */
static DEFINE_MUTEX(p2p_lock);
static struct p2p {
	bool exists;
	u32 ids[2];		/* ids[0]: by which the lower GPU knows the upper one */
} p2ps[VGPU_MAX_GPUS][VGPU_MAX_GPUS];

static u32 p2p_type(struct vgpu *g)
{
	if (vgpu_link == VGPU_LINK_NONE)
		return UVM_LINK_TYPE_NONE;
	if (vgpu_link == VGPU_LINK_PCIE)
		return UVM_LINK_TYPE_PCIE;
	switch (g->chip.nvlink) {
	case 2:
		return UVM_LINK_TYPE_NVLINK_2;
	case 3:
		return UVM_LINK_TYPE_NVLINK_3;
	default:
		return UVM_LINK_TYPE_NVLINK_4;
	}
}

/* Before there is an object of the two, they have no numbers for each other. */
NV_STATUS nvUvmInterfaceGetP2PCaps(uvmGpuDeviceHandle device1, uvmGpuDeviceHandle device2,
				   UvmGpuP2PCapsParams *p2pCapsParams)
{
	struct vgpu *a = (void *)device1, *b = (void *)device2;
	bool swapped = a->index > b->index;
	struct p2p *p = &p2ps[min(a->index, b->index)][max(a->index, b->index)];

	memset(p2pCapsParams, 0, sizeof(*p2pCapsParams));
	p2pCapsParams->p2pLink = p2p_type(a);
	p2pCapsParams->peerIds[0] = U32_MAX;
	p2pCapsParams->peerIds[1] = U32_MAX;
	mutex_lock(&p2p_lock);
	if (p->exists) {
		p2pCapsParams->peerIds[0] = p->ids[swapped];
		p2pCapsParams->peerIds[1] = p->ids[!swapped];
	}
	mutex_unlock(&p2p_lock);
	if (vgpu_link == VGPU_LINK_NONE)
		return NV_OK;
	p2pCapsParams->optimalNvlinkWriteCEs[0] = VGPU_PEER_ENGINE;
	p2pCapsParams->optimalNvlinkWriteCEs[1] = VGPU_PEER_ENGINE;
	p2pCapsParams->totalLinkLineRateMBps =
		vgpu_link == VGPU_LINK_PCIE ? VGPU_PCIE_MBPS : a->chip.nvlink_mbps;
	return NV_OK;
}
EXPORT_SYMBOL(nvUvmInterfaceGetP2PCaps);

static int join(struct vgpu *to, struct vgpu *other, u32 *id)
{
	return vgpu_rs_peer_add(to->rs, other->index, other->vidmem, other->vidmem_bytes,
				vgpu_link == VGPU_LINK_NVLINK, id);
}

NV_STATUS nvUvmInterfaceP2pObjectCreate(uvmGpuDeviceHandle device1, uvmGpuDeviceHandle device2,
					NvHandle *hP2pObject)
{
	struct vgpu *a = (void *)device1, *b = (void *)device2;
	struct p2p *p;
	int err;

	if (vgpu_link == VGPU_LINK_NONE)
		return NV_ERR_NOT_SUPPORTED;
	if (a == b)
		return NV_ERR_INVALID_ARGUMENT;
	if (a->index > b->index)
		swap(a, b);
	p = &p2ps[a->index][b->index];
	mutex_lock(&p2p_lock);
	err = p->exists ? -EBUSY : join(a, b, &p->ids[0]);
	if (!err) {
		err = join(b, a, &p->ids[1]);
		if (err)
			vgpu_expect_ok(a, "peer to part with", vgpu_rs_peer_remove(a->rs, b->index));
		p->exists = !err;
	}
	mutex_unlock(&p2p_lock);
	if (!err)
		*hP2pObject = P2P_HANDLE | a->index << 4 | b->index;
	return vgpu_to_nv(err);
}
EXPORT_SYMBOL(nvUvmInterfaceP2pObjectCreate);

void nvUvmInterfaceP2pObjectDestroy(uvmGpuSessionHandle session, NvHandle hP2pObject)
{
	u32 i = hP2pObject >> 4 & 0xf, j = hP2pObject & 0xf;

	mutex_lock(&p2p_lock);
	if ((hP2pObject & ~0xffU) != P2P_HANDLE || i >= vgpu_count || j >= vgpu_count || !p2ps[i][j].exists) {
		pr_err("P2P object to destroy: %#x is none\n", hP2pObject);
	} else {
		p2ps[i][j].exists = false;
		vgpu_expect_ok(vgpu_gpus[i], "peer to part with", vgpu_rs_peer_remove(vgpu_gpus[i]->rs, j));
		vgpu_expect_ok(vgpu_gpus[j], "peer to part with", vgpu_rs_peer_remove(vgpu_gpus[j]->rs, i));
	}
	mutex_unlock(&p2p_lock);
}
EXPORT_SYMBOL(nvUvmInterfaceP2pObjectDestroy);
