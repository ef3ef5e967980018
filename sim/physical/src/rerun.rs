// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Kernels that run a second time, so that what they write need not be kept until it is
//! read again (recomputation; `torch.utils.checkpoint` calls it checkpointing).
//!
//! A step with [`Rerun`]s is a step like any other, [`Workload::with_reruns`]: kernels that
//! run again are kernels of their own, and what they write are tensors of their own. The
//! tensor of before is dead from its last use before the rerun on. So whatever plans, runs or
//! bounds a step does so with recomputation as well.
//!
//! What a kernel of the step reads is the same as without reruns, and so is what a kernel that
//! runs again reads. A value is a tensor and how often it was written (in place, for one). Each
//! read finds the tensor that holds just that value, or the reruns are refused. Kernels
//! are taken to compute the same twice; PyTorch keeps the state of its random numbers for that.
//! What lasts (running statistics) is not changed a second time, and what was changed since
//! cannot be read again.

use std::collections::HashSet;

use uvmsim_trace::Kind;

use crate::workload::Kernel;
use crate::workload::Use;
use crate::workload::Workload;

/// A kernel that runs again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rerun {
    /// The kernel before which it does.
    pub before: u32,
    /// Which kernel it is; an earlier one.
    pub kernel: u32,
}

/// Why a kernel cannot run again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("rerun {rerun}: {what}")]
pub struct Refused {
    /// Which of the reruns, from 0.
    pub rerun: usize,
    /// What is wrong with the rerun, as a sentence for who wrote it.
    pub what: String,
}

/// The times of kernels that run again, in thousandths of those of the first time.
pub const SAME: u64 = 1000;

impl Workload {
    /// The step with `reruns`, which are in the order in which they run, each taking `cost`
    /// thousandths of what the kernel took ([`SAME`]).
    ///
    /// # Errors
    /// A rerun is out of order, of a later kernel, or reads what nothing holds any more.
    pub fn with_reruns(&self, reruns: &[Rerun], cost: u64) -> Result<Self, Refused> {
        let mut rewrite = Rewrite::new(self, cost);
        let mut rest = reruns.iter().enumerate().peekable();
        for k in 0..self.kernels.len() as u32 {
            while let Some((i, r)) = rest.next_if(|(_, r)| r.before <= k) {
                let refused = |what| Refused { rerun: i, what };
                if r.before < k || r.kernel >= k {
                    let what = "it is out of order, or of a kernel that has not run".into();
                    return Err(refused(what));
                }
                rewrite.rerun(r.kernel).map_err(refused)?;
            }
            rewrite.kernel(k);
        }
        if let Some((i, r)) = rest.next() {
            return Err(Refused {
                rerun: i,
                what: format!("there is no kernel {}", r.before),
            });
        }
        Ok(rewrite.finish(reruns))
    }

    /// The kernels to run again so that the `dropped` tensors need not be kept from their
    /// last use in the forward pass to their first in the backward pass; each as late as
    /// can be. Where `group` gives tensors the same number, all of them come back with the
    /// first. What cannot be computed again is kept.
    pub fn reruns_for(&self, dropped: &[bool], group: &[Option<u32>]) -> Vec<Rerun> {
        let turn = self.backward.unwrap_or(self.kernels.len() as u32);
        let mut rewrite = Rewrite::new(self, 0);
        let mut members: Vec<Vec<u32>> = Vec::new();
        for (t, g) in group.iter().enumerate() {
            if let (Some(g), true) = (g, dropped[t]) {
                let g = *g as usize;
                members.resize(members.len().max(g + 1), Vec::new());
                members[g].push(t as u32);
            }
        }
        let mut reruns = Vec::new();
        for k in 0..self.kernels.len() as u32 {
            if k >= turn {
                let mut wanted: Vec<u32> = self.kernels[k as usize]
                    .uses
                    .iter()
                    .filter(|u| u.read && dropped[u.tensor as usize])
                    .map(|u| u.tensor)
                    .filter(|&t| !rewrite.is_anew(t))
                    .collect();
                for i in 0..wanted.len() {
                    if let Some(g) = group[wanted[i] as usize] {
                        wanted.append(&mut std::mem::take(&mut members[g as usize]));
                    }
                }
                for p in rewrite.missing(&wanted, dropped, turn) {
                    if rewrite.rerun(p).is_ok() {
                        reruns.push(Rerun {
                            before: k,
                            kernel: p,
                        });
                    }
                }
            }
            rewrite.kernel(k);
        }
        reruns
    }
}

/// A tensor of the new step that holds a value of one of the old step.
#[derive(Clone, Copy)]
struct Holder {
    /// How often the old tensor was written when it had this value.
    version: u32,
    /// The number of the tensor in the new step.
    tensor: u32,
}

/// Writes a step anew, kernel by kernel.
struct Rewrite<'a> {
    old: &'a Workload,
    cost: u64,
    tensors: Vec<(String, u64, Kind)>,
    kernels: Vec<Kernel>,
    /// By old tensor, what holds a value of it; the first is that tensor itself.
    holders: Vec<Vec<Holder>>,
    /// By old tensor, the kernels that write it.
    writers: Vec<Vec<u32>>,
    again_ns: u64,
}

impl<'a> Rewrite<'a> {
    fn new(old: &'a Workload, cost: u64) -> Self {
        let tensors = old.tensors.iter();
        let same = tensors.clone().map(|t| (t.name.clone(), t.bytes, t.kind));
        let writers = tensors.map(|t| t.uses.iter().filter(|u| u.1).map(|u| u.0).collect());
        let itself = |t: usize| {
            vec![Holder {
                version: 0,
                tensor: t as u32,
            }]
        };
        Self {
            old,
            cost,
            tensors: same.collect(),
            kernels: Vec::with_capacity(old.kernels.len()),
            holders: (0..old.tensors.len()).map(itself).collect(),
            writers: writers.collect(),
            again_ns: 0,
        }
    }

    /// How often tensor `t` was written before kernel `k`.
    fn version(&self, t: u32, k: u32) -> u32 {
        self.writers[t as usize].partition_point(|&w| w < k) as u32
    }

    /// Where the value of `t` is that kernel `k` reads; what was computed last, if there are two.
    fn holder(&mut self, t: u32, k: u32) -> Option<&mut Holder> {
        let version = self.version(t, k);
        let mut all = self.holders[t as usize].iter_mut().rev();
        all.find(|h| h.version == version)
    }

    /// Whether the last value of `t` was computed again.
    fn is_anew(&self, t: u32) -> bool {
        let last = self.writers[t as usize].len() as u32;
        let mut anew = self.holders[t as usize].iter().skip(1);
        anew.any(|h| h.version == last)
    }

    /// Kernel `k` of the old step.
    fn kernel(&mut self, k: u32) {
        let old = self.old;
        let kernel = &old.kernels[k as usize];
        let uses = kernel.uses.iter().map(|u| {
            let version = self.version(u.tensor, k);
            // What is only written has no value to look for: it is where it was last.
            let holder = match self.holder(u.tensor, k) {
                Some(holder) => holder,
                None => &mut self.holders[u.tensor as usize][0],
            };
            if u.write {
                holder.version = version + 1;
            }
            Use {
                tensor: holder.tensor,
                ..*u
            }
        });
        let uses = uses.collect();
        self.kernels.push(Kernel {
            uses,
            ..kernel.clone()
        });
    }

    /// Kernel `p` of the old step once more.
    fn rerun(&mut self, p: u32) -> Result<(), String> {
        let old = self.old;
        let kernel = &old.kernels[p as usize];
        let mut uses = Vec::with_capacity(kernel.uses.len());
        // Reads first: what cannot be read is refused before anything is changed.
        for u in &kernel.uses {
            if u.read && !self.is_left_out(u) && self.holder(u.tensor, p).is_none() {
                return Err(format!(
                    "kernel {p} ({}) reads tensor {} ({}), whose value of then is nowhere",
                    kernel.name, u.tensor, old.tensors[u.tensor as usize].name
                ));
            }
        }
        for u in &kernel.uses {
            if self.is_left_out(u) {
                continue;
            }
            let version = self.version(u.tensor, p) + u32::from(u.write);
            let held = self.holder(u.tensor, p).filter(|_| u.read);
            let tensor = match held {
                Some(holder) => {
                    holder.version = version;
                    holder.tensor
                }
                None => self.copy_of(u.tensor, version),
            };
            uses.push(Use { tensor, ..*u });
        }
        let ns = (u128::from(kernel.ns) * u128::from(self.cost) / u128::from(SAME))
            .min(u64::MAX.into()) as u64;
        self.again_ns = self.again_ns.saturating_add(ns);
        let name = format!("again.{}", kernel.name);
        self.kernels.push(Kernel::new(name, ns, uses));
        Ok(())
    }

    /// Whether a rerun does without this use: what lasts is not changed twice.
    fn is_left_out(&self, u: &Use) -> bool {
        u.write && self.old.tensors[u.tensor as usize].lasting
    }

    /// A new tensor for a value of `t`.
    fn copy_of(&mut self, t: u32, version: u32) -> u32 {
        let tensor = self.tensors.len() as u32;
        let old = &self.old.tensors[t as usize];
        let name = format!("again.{}", old.name);
        self.tensors.push((name, old.bytes, old.kind));
        self.holders[t as usize].push(Holder { version, tensor });
        tensor
    }

    /// The kernels to run again for the last values of the `wanted` tensors, in order; none
    /// for what can be had from no rerun. What the backward pass, from `turn` on, does not
    /// read itself is taken to be gone.
    fn missing(&mut self, wanted: &[u32], dropped: &[bool], turn: u32) -> Vec<u32> {
        let mut known = HashSet::new();
        for &t in wanted {
            let mut needed = HashSet::new();
            let mut open = vec![(t, self.old.kernels.len() as u32)];
            let mut possible = true;
            while let Some((t, at)) = open.pop() {
                let version = self.version(t, at);
                let tensor = &self.old.tensors[t as usize];
                let there = !dropped[t as usize] && tensor.last() >= turn || tensor.lasting;
                let mut holders = self.holders[t as usize].iter();
                let itself = holders.next().filter(|_| there);
                if holders.chain(itself).any(|h| h.version == version) {
                    continue;
                }
                let writer = version.checked_sub(1);
                let writer = writer.map(|v| self.writers[t as usize][v as usize]);
                let Some(p) = writer.filter(|&p| p < turn && !tensor.lasting) else {
                    possible = false;
                    break;
                };
                if known.contains(&p) || !needed.insert(p) {
                    continue;
                }
                let uses = self.old.kernels[p as usize].uses.iter();
                let reads = uses.filter(|u| u.read && !self.is_left_out(u));
                open.extend(reads.map(|u| (u.tensor, p)));
            }
            if possible {
                known.extend(needed);
            }
        }
        let mut all: Vec<u32> = known.into_iter().collect();
        all.sort_unstable();
        all
    }

    /// The step with its reruns, once all kernels are placed.
    fn finish(self, reruns: &[Rerun]) -> Workload {
        let mut new = Workload::new(&self.old.name, self.tensors, self.kernels);
        for (new, old) in new.tensors.iter_mut().zip(&self.old.tensors) {
            new.lasting = old.lasting;
        }
        let earlier = |b: u32| reruns.partition_point(|r| r.before < b) as u32;
        new.backward = self.old.backward.map(|b| b + earlier(b));
        new.again_ns = self.again_ns;
        new
    }
}

#[cfg(test)]
mod tests;
