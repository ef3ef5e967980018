// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What both kinds of graph build with.

use uvmsim_trace::Kernel;
use uvmsim_trace::Kind;
use uvmsim_trace::Tensor;
use uvmsim_trace::TensorId;
use uvmsim_trace::Trace;

/// Bytes of the artifact's page.
const PAGE: u64 = 4096;

/// `bytes`, rounded up to whole pages.
pub(super) fn whole_pages(bytes: u64) -> u64 {
    bytes.div_ceil(PAGE).saturating_mul(PAGE)
}

/// Adds a tensor of `elements` numbers of four bytes.
pub(super) fn tensor(t: &mut Trace, kind: Kind, elements: u64, name: &str) -> TensorId {
    let bytes = whole_pages(elements.saturating_mul(4).max(1));
    t.add_tensor(Tensor::new(kind, bytes, name))
}

/// Adds a kernel; its time comes later. A tensor named twice in a list counts
/// once, as in the artifact's sets.
pub(super) fn kernel(t: &mut Trace, name: &str, reads: &[TensorId], writes: &[TensorId]) {
    let mut k = Kernel::new(name, 0);
    for (list, ids) in [(&mut k.reads, reads), (&mut k.writes, writes)] {
        for &id in ids {
            if !list.contains(&id) {
                list.push(id);
            }
        }
    }
    t.kernels.push(k);
}

/// Marks as inputs what is read before any kernel has written it: the artifact's
/// constants and masks.
pub(super) fn mark_inputs(t: &mut Trace) {
    let mut written = vec![false; t.tensors.len()];
    for k in &t.kernels {
        for id in &k.reads {
            let tensor = &mut t.tensors[id.index()];
            if !written[id.index()] && !tensor.kind.exists_at_start() {
                tensor.kind = Kind::Input;
            }
        }
        for id in &k.writes {
            written[id.index()] = true;
        }
    }
}
