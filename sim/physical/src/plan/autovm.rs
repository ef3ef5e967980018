// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! AutoVM's policy (thesis, chapter 3): offload what forward makes and backward
//! reads much later; never weights.

use uvmsim_machine::BLOCK;
use uvmsim_trace::Kind;

use crate::plan::Gap;
use crate::plan::Plan;
use crate::plan::Profile;
use crate::plan::What;
use crate::policy::Tier;

/// What AutoVM leaves to be tuned.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Smallest tensor to offload, bytes (section 3.3.1.1: tuned by hand).
    pub size: u64,
    /// Fewest kernels between last use in forward and first in backward.
    pub distance: u32,
    /// Whether durations are known: prefetch as late as the copy allows
    /// (listing 3.3), else as early as memory allows (listing 3.4, as built).
    pub known_times: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            size: 2 * BLOCK,
            distance: 8,
            known_times: false,
        }
    }
}

/// The plan for a step.
///
/// A step without a backward pass has nothing to offload. Nothing is released when it
/// dies: TensorFlow takes and gives back memory within one allocation, of which the
/// driver sees nothing (section 6.3.1). Outputs are allocated, and touched, right before
/// the operation (sections 4.2.3, 5.4).
///
/// Where the thesis does not agree with itself, or says nothing: listing 3.3 returns the
/// first of the operations that cover the transfer, its case (C) the latest from which it
/// is in time, as `late` does. Neither listing stops at the backward pass, before which
/// here nothing is prefetched. Section 3.3.2.2 adds the tensor to the working sets up to
/// its last use, listing 3.4 to those before its first, as here. What these choices do to
/// table 6.2 was not measured.
pub fn plan(profile: &Profile<'_>, options: Options) -> Plan {
    let mut plan = profile.plan();
    plan.releases = false;
    plan.allocate_ahead = Some(0);
    let Some(backward) = profile.workload.backward else {
        return plan;
    };
    // Working sets, to which prefetched tensors are added (listing 3.4).
    let largest = |slot: &[u32]| {
        let sets = (slot[0]..slot[1]).map(|k| profile.workload.working_set(k as usize));
        sets.max().unwrap_or(0)
    };
    let mut working: Vec<u64> = profile.first_kernel.windows(2).map(largest).collect();
    let turn = profile.slot(backward);
    let mut gaps: Vec<&Gap> = offloads(profile, options, backward).collect();
    gaps.sort_by_key(|g| g.next);
    for g in gaps {
        let at = if options.known_times {
            late(profile, g, turn, &working)
        } else {
            early(profile, g, turn, &mut working)
        };
        match at {
            Some(at) => profile.schedule(&mut plan, g, Tier::Host, at),
            // It is paged in as it is read.
            None => plan.before[g.after as usize + 1].push((What::Evict(Tier::Host), g.tensor)),
        }
    }
    plan
}

/// Listing 3.3: the latest slot of the backward pass from which the copy is in time, if
/// the tensor fits beside the working set of each from there on.
fn late(profile: &Profile<'_>, g: &Gap, turn: usize, working: &[u64]) -> Option<usize> {
    let starts = profile.starts();
    let end = g.from + g.slots;
    let copy = profile.copy_ns(g.bytes, Tier::Host, true);
    let first = g.from.max(turn);
    let in_time = |&j: &usize| starts[end] - starts[j] >= copy;
    let at = (first..end).rev().find(in_time).unwrap_or(first);
    let fits = |j: usize| working[j] + g.bytes <= profile.capacity;
    (at < end && (at..end).all(fits)).then_some(at)
}

/// Listing 3.4: the earliest slot of the backward pass from which on the tensor fits
/// beside all working sets, to which it is added.
fn early(profile: &Profile<'_>, g: &Gap, turn: usize, working: &mut [u64]) -> Option<usize> {
    let end = g.from + g.slots;
    let fits = |j: &usize| working[*j] + g.bytes <= profile.capacity;
    let at = (g.from.max(turn)..end).rev().take_while(fits).last()?;
    for w in &mut working[at..end] {
        *w += g.bytes;
    }
    Some(at)
}

/// The time between forward and backward of each activation that is large enough and
/// idle long enough (listings 3.1, 3.2). `backward`: the first kernel of that pass.
fn offloads<'a>(
    profile: &'a Profile<'a>,
    options: Options,
    backward: u32,
) -> impl Iterator<Item = &'a Gap> {
    profile.gaps.iter().filter(move |g| {
        let tensor = &profile.workload.tensors[g.tensor as usize];
        !g.looped
            && !tensor.lasting
            && tensor.kind == Kind::Activation
            && tensor.bytes >= options.size
            && g.after < backward
            && backward <= g.next
            && g.next - g.after >= options.distance
    })
}

#[cfg(test)]
mod tests {
    use uvmsim_machine::MIB;
    use uvmsim_trace::Phase;
    use uvmsim_trace::Tensor;
    use uvmsim_trace::TensorId;
    use uvmsim_trace::Trace;

    use super::*;
    use crate::plan::Op;
    use crate::tests::byte_a_ns;
    use crate::tests::planned as run_plan;
    use crate::workload::Layout;
    use crate::workload::Workload;

    /// Memory of the GPU that the steps below run on.
    const GPU: u64 = 256 * MIB;
    const KEPT: u64 = 64 * MIB;
    /// Nanoseconds that `KEPT` bytes take over the link: a byte a nanosecond.
    const COPY: u64 = 64 * MIB;

    /// A step that writes a tensor in its first kernel and reads it in its last; each
    /// of the kernels between has its duration, its phase and the bytes of a tensor of
    /// its own.
    fn step(between: &[(u64, Phase, u64)]) -> Workload {
        let mut t = Trace::new("step", 1);
        let kept = t.add_tensor(Tensor::new(Kind::Activation, KEPT, "kept"));
        let add = |t: &mut Trace, ns: u64, phase: Phase, writes: Vec<TensorId>| {
            t.kernels.push(uvmsim_trace::Kernel {
                phase: Some(phase),
                writes,
                ..uvmsim_trace::Kernel::new("k", ns)
            });
        };
        add(&mut t, COPY, Phase::Forward, vec![kept]);
        for (i, &(ns, phase, bytes)) in between.iter().enumerate() {
            let own = t.add_tensor(Tensor::new(Kind::Activation, bytes, &format!("own{i}")));
            add(&mut t, ns, phase, vec![own]);
        }
        add(&mut t, COPY, Phase::Backward, vec![]);
        t.kernels[between.len() + 1].reads = vec![kept];
        Workload::from_trace(&t)
    }

    fn planned(w: &Workload, known_times: bool) -> Plan {
        let (l, m) = (Layout::new(w), byte_a_ns(GPU));
        let options = Options {
            distance: 2,
            known_times,
            ..Options::default()
        };
        plan(&Profile::new(&m, w, &l, 1.0, 1), options)
    }

    /// The requests for the kept tensor, with the kernels before which they are made.
    fn requests(w: &Workload, known_times: bool) -> Vec<(usize, Op)> {
        planned(w, known_times).requests().collect()
    }

    const OUT: (usize, Op) = (1, (What::Evict(Tier::Host), 0));

    /// Forward is most of the step: a third of it, or half, is not yet backward.
    #[test]
    fn prefetches_begin_with_the_backward_pass() {
        let mut between = vec![(COPY / 4, Phase::Forward, MIB); 20];
        between.extend([(COPY / 4, Phase::Backward, MIB); 4]);
        let w = step(&between);
        assert_eq!(requests(&w, false), [OUT, (21, (What::Prefetch, 0))]);
    }

    /// Listing 3.4: back to the first operation with which it does not fit.
    #[test]
    fn a_prefetch_stops_where_it_does_not_fit() {
        let mut between = vec![(COPY, Phase::Backward, MIB); 6];
        between[3].2 = GPU - KEPT + MIB;
        let w = step(&between);
        assert_eq!(requests(&w, false), [OUT, (5, (What::Prefetch, 0))]);
    }

    /// Listings 3.3 and 3.4 return None: the tensor is paged in as it is read.
    #[test]
    fn what_fits_nowhere_is_not_prefetched() {
        let large = vec![(COPY, Phase::Backward, GPU - KEPT + MIB); 4];
        let w = step(&large);
        for known_times in [false, true] {
            assert_eq!(requests(&w, known_times), [OUT], "{known_times}");
        }
        // Known times: one of the operations that the transfer spans is enough.
        let mut between = vec![(COPY / 2, Phase::Backward, MIB); 4];
        between[2].2 = GPU - KEPT + MIB;
        assert_eq!(requests(&step(&between), true), [OUT]);
        between.swap(0, 2);
        let late = [OUT, (3, (What::Prefetch, 0))];
        assert_eq!(requests(&step(&between), true), late);
    }

    /// The driver does not see what the framework frees (thesis, section 6.3.1): dead
    /// tensors are written out as if they mattered.
    #[test]
    fn the_dead_are_not_released() {
        let mut between = vec![(COPY, Phase::Forward, 96 * MIB); 8];
        between.extend([(COPY, Phase::Backward, 96 * MIB); 8]);
        // Each lives in a kernel of its own, and no two at the same address.
        let w = step(&between);
        let addresses = w.tensors.iter().scan(0, |at, t| {
            let here = *at;
            *at += t.bytes;
            Some(here)
        });
        let l = Layout::at(&w, addresses.collect());
        let plan = planned(&w, false);
        assert!(!plan.releases);
        assert_eq!(plan.allocate_ahead, Some(0), "right before the operation");
        let out = |releases: bool| {
            let plan = Plan {
                releases,
                ..plan.clone()
            };
            run_plan(plan, &byte_a_ns(GPU), &w, &l).bytes.gpu_to_host
        };
        assert_eq!(out(true), KEPT);
        assert!(out(false) > 4 * 96 * MIB, "{}", out(false));
    }
}
