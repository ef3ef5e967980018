// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Large tensors in pieces, so that a part of one can leave or come back.
//!
//! A planner takes tensors whole. Where few of them fill the GPU, it moves more than must, and waits until there
//! is room for all of one. For it, each piece is a tensor here, of the same kernels. The machine runs the step as it
//! is: the requests for pieces are requests for [parts](Part) of tensors there.

use uvmsim_machine::Machine;
use uvmsim_machine::BLOCK;
use uvmsim_machine::PAGE;

use crate::plan::Op;
use crate::plan::Part;
use crate::plan::Plan;
use crate::workload::Layout;
use crate::workload::Tensor;
use crate::workload::Use;
use crate::workload::Workload;

/// Pieces that GPU memory has room for.
const PIECES: u64 = 64;

/// A step whose large tensors are several.
pub struct Pieces {
    /// The step, with a tensor for each piece.
    pub workload: Workload,
    /// Where the pieces lie; kernels touch them as they touch the whole tensors.
    pub layout: Layout,
    /// The pieces of each tensor.
    of: Vec<Vec<u32>>,
    /// What each piece is called in a plan for the step as it is.
    names: Vec<u32>,
    /// The parts that are called so.
    parts: Vec<Part>,
}

impl Pieces {
    /// Cuts what takes at least two shares of the memory of `machine`; `None` if nothing does.
    pub fn new(machine: &Machine, workload: &Workload, layout: &Layout) -> Option<Self> {
        let most = (machine.gpu_mem / PIECES).max(BLOCK);
        let mut pieces = Self {
            workload: Workload {
                tensors: Vec::new(),
                ..workload.clone()
            },
            layout: layout.clone(),
            of: Vec::new(),
            names: Vec::new(),
            parts: Vec::new(),
        };
        let mut addresses = Vec::new();
        for t in 0..workload.tensors.len() as u32 {
            pieces.cut_tensor(
                workload,
                layout.addresses[t as usize],
                t,
                most,
                &mut addresses,
            );
        }
        let of = &pieces.of;
        for kernel in &mut pieces.workload.kernels {
            let uses = kernel.uses.iter().flat_map(|u| {
                let pieces = of[u.tensor as usize].iter();
                pieces.map(move |&tensor| Use { tensor, ..*u })
            });
            kernel.uses = uses.collect();
        }
        pieces.layout = layout.of_pieces(&pieces.workload, addresses);
        (!pieces.parts.is_empty()).then_some(pieces)
    }

    /// Adds the pieces of tensor `t`, which begins at `start`, of about `most` bytes. They end where va_blocks do.
    fn cut_tensor(&mut self, w: &Workload, start: u64, t: u32, most: u64, at: &mut Vec<u64>) {
        let tensor = &w.tensors[t as usize];
        let (end, count) = (start + tensor.bytes, (tensor.bytes / most).max(1));
        let share = tensor.bytes / count;
        let mut of = Vec::new();
        let mut from = start;
        for i in 1..=count {
            let to = match i {
                _ if i == count => end,
                _ => (start + i * share) / BLOCK * BLOCK,
            };
            let part = Part {
                tensor: t,
                offset: from - start,
                bytes: (to - from).next_multiple_of(PAGE),
            };
            of.push(self.names.len() as u32);
            if count == 1 {
                self.names.push(t);
            } else {
                self.names.push((w.tensors.len() + self.parts.len()) as u32);
                self.parts.push(part);
            }
            at.push(from);
            self.workload.tensors.push(Tensor {
                bytes: to - from,
                ..tensor.clone()
            });
            from = to;
        }
        self.of.push(of);
    }

    /// A plan for the step as it is, which names no parts, as one for the pieces.
    pub fn cut(&self, plan: &Plan) -> Plan {
        let cut = |ops: &Vec<Op>| {
            let ops = ops.iter().flat_map(|&(what, t)| {
                let pieces = self.of[t as usize].iter();
                pieces.map(move |&piece| (what, piece))
            });
            ops.collect()
        };
        Plan {
            before: plan.before.iter().map(cut).collect(),
            behind: plan.behind.iter().map(cut).collect(),
            ..plan.clone()
        }
    }

    /// A plan for the pieces as one for the step as it is.
    pub fn named(&self, plan: &Plan) -> Plan {
        let mut plan = plan.clone();
        for (_, piece) in plan.before.iter_mut().chain(&mut plan.behind).flatten() {
            *piece = self.names[*piece as usize];
        }
        plan.parts.clone_from(&self.parts);
        plan
    }
}

#[cfg(test)]
mod tests {
    use uvmsim_machine::presets;
    use uvmsim_machine::MIB;
    use uvmsim_trace::Kind;

    use super::*;
    use crate::plan::What;
    use crate::policy::Tier;
    use crate::workload::Kernel;

    #[test]
    fn pieces_cover_each_tensor_once_and_end_where_va_blocks_do() {
        let sizes = [1, 9 * MIB + 5, 40 * MIB];
        let tensors = sizes.map(|bytes| ("t".into(), bytes, Kind::Weight));
        let kernels = vec![Kernel::new("k", 1, (0..3).map(Use::both))];
        let w = Workload::new("w", tensors.into(), kernels);
        let l = Layout::new(&w);
        let mut m = presets::find("a100").unwrap();
        m.gpu_mem = 64 * 4 * MIB;
        let p = Pieces::new(&m, &w, &l).unwrap();
        assert_eq!(p.of.iter().map(Vec::len).collect::<Vec<_>>(), [1, 2, 10]);
        for (t, of) in p.of.iter().enumerate() {
            let whole: Vec<_> = l.parts(&w, t as u32).collect();
            let cut = of.iter().flat_map(|&i| p.layout.parts(&p.workload, i));
            assert_eq!(cut.collect::<Vec<_>>(), whole);
        }
        assert_eq!(p.workload.kernels[0].uses.len(), 13);
        assert_eq!(p.layout.touches.len(), l.touches.len());
        let mut plan = Plan::new(1, 0);
        plan.before[0] = vec![(What::Prefetch, 0), (What::Prefetch, 1)];
        plan.behind[0] = vec![(What::Evict(Tier::Host), 1)];
        let named = p.named(&p.cut(&plan));
        let prefetched = [0, 3, 4].map(|t| (What::Prefetch, t));
        assert_eq!(named.before[0], prefetched);
        assert_eq!(
            named.behind[0].iter().map(|op| op.1).collect::<Vec<_>>(),
            [3, 4]
        );
        let covered = |t: u32| named.parts.iter().filter(move |p| p.tensor == t);
        assert_eq!(
            covered(1).map(|p| p.bytes).sum::<u64>(),
            (9 * MIB + 5).next_multiple_of(PAGE)
        );
        let begins = |p: &Part| p.offset == 0 || (l.addresses[2] + p.offset) % BLOCK == 0;
        assert!(covered(2).all(begins));
        m.gpu_mem = 64 * 40 * MIB;
        assert!(Pieces::new(&m, &w, &l).is_none());
    }
}
