// SPDX-License-Identifier: GPL-2.0-only OR MIT

use std::cell::RefCell;
use std::collections::hash_map::DefaultHasher;
use std::hash::Hash;
use std::hash::Hasher;

use proptest::prelude::*;
use uvmsim_machine::Machine;
use uvmsim_machine::MIB;

use super::*;
use crate::plan::best;
use crate::plan::best::Until;
use crate::plan::recompute;
use crate::plan::recompute::Made;
use crate::plan::Plan;
use crate::policies::Planned;
use crate::run;
use crate::tests::machine;
use crate::tests::planned;
use crate::Layout;
use crate::Limits;
use crate::Policy;
use crate::RunError;
use crate::System;
use crate::Tier;

/// What a layer does, with numbers to choose by.
#[derive(Clone, Debug)]
struct Layer {
    us: u64,
    mib: u64,
    /// Which earlier outputs forward and backward read.
    reads: (usize, usize),
    /// It works in place on an output that it reads.
    in_place: bool,
    /// It has a second output, which backward reads (a dropout's mask).
    mask: bool,
    /// It is two kernels, the first of whose output nothing else reads.
    hidden: bool,
    /// It has statistics that it updates.
    statistics: bool,
    /// Where the trace says of parts, whether one begins here.
    part: bool,
}

fn layer() -> impl Strategy<Value = Layer> {
    let flags = any::<(bool, bool, bool, bool, bool)>();
    (1u64..2000, 1u64..20, any::<(usize, usize)>(), flags).prop_map(|(us, mib, reads, flags)| {
        let (in_place, mask, hidden, statistics, part) = flags;
        Layer {
            us,
            mib,
            reads,
            in_place,
            mask,
            hidden,
            statistics,
            part,
        }
    })
}

/// A step in which values are changed in place, read by several and hidden.
fn step_of(layers: &[Layer], says_parts: bool) -> Workload {
    let mut tensors = vec![("input".to_string(), MIB, Kind::Input)];
    let mut add = |name: &str, mib: u64, kind: Kind| {
        tensors.push((format!("{name}{}", tensors.len()), mib * MIB + 100, kind));
        tensors.len() as u32 - 1
    };
    let kernel = |name: String, us: u64, uses: Vec<Use>| Kernel::new(name, us * 1000, uses);
    let mut values = vec![0];
    let (mut forward, mut backward, mut parts, mut part) = (vec![], vec![], vec![], 0);
    for (i, l) in layers.iter().enumerate() {
        let begun = forward.len();
        let from = *values.last().unwrap_or(&0);
        let other = values[l.reads.0 % values.len()];
        let mut uses = vec![Use::read(from), Use::read(other)];
        if l.hidden {
            let hidden = add("hidden", l.mib, Kind::Activation);
            let mut first = uses.clone();
            first.push(Use::write(hidden));
            forward.push(kernel(format!("h{i}"), l.us, first));
            uses = vec![Use::read(hidden)];
        }
        let out = if l.in_place && from != 0 {
            uses.push(Use::both(from));
            from
        } else {
            add("out", l.mib, Kind::Activation)
        };
        uses.push(Use::write(out));
        let mut saved = vec![out, values[l.reads.1 % values.len()]];
        if l.mask {
            let mask = add("mask", 1, Kind::Activation);
            uses.push(Use::write(mask));
            saved.push(mask);
        }
        if l.statistics {
            uses.push(Use::both(add("statistics", 1, Kind::Weight)));
        }
        uses.push(Use::write(add("scratch", 1, Kind::Workspace)));
        forward.push(kernel(format!("f{i}"), l.us, uses));
        values.push(out);
        let weight = add("w", 1, Kind::Weight);
        let gradient = add("g", 1, Kind::Gradient);
        let mut uses: Vec<Use> = saved.into_iter().map(Use::read).collect();
        uses.push(Use::write(gradient));
        let update = vec![Use::read(gradient), Use::both(weight)];
        backward.push(kernel(format!("u{i}"), 1, update));
        backward.push(kernel(format!("b{i}"), l.us * 2, uses));
        part += u32::from(l.part);
        parts.extend(std::iter::repeat_n(Some(part), forward.len() - begun));
    }
    backward.reverse();
    parts.extend(std::iter::repeat_n(None, backward.len()));
    forward.append(&mut backward);
    let mut w = Workload::new("random", tensors, forward);
    if says_parts {
        w.parts = parts;
    }
    w
}

fn random_step() -> impl Strategy<Value = Workload> {
    (prop::collection::vec(layer(), 2..14), any::<bool>())
        .prop_map(|(layers, says)| step_of(&layers, says))
}

/// What each kernel that does not run again reads, as a value of what was computed: equal for
/// equal computations alone. `None`: a tensor that nothing has written yet.
fn values_read(w: &Workload) -> Vec<(String, Vec<Option<u64>>)> {
    let lasting = w.tensors.iter().enumerate();
    let mut held: Vec<Option<u64>> = lasting
        .map(|(i, t)| t.lasting.then_some(i as u64))
        .collect();
    let mut all = Vec::new();
    for k in &w.kernels {
        // Statistics make no difference to what is computed.
        let is_statistic = |u: &&Use| u.read && u.write && w.tensors[u.tensor as usize].lasting;
        let read: Vec<Option<u64>> = k
            .uses
            .iter()
            .filter(|u| u.read && !is_statistic(u))
            .map(|u| held[u.tensor as usize])
            .collect();
        let name = k.name.strip_prefix("again.").unwrap_or(&k.name);
        for (i, u) in k.uses.iter().filter(|u| !is_statistic(u)).enumerate() {
            if u.write {
                let mut hash = DefaultHasher::new();
                (name, i, &read).hash(&mut hash);
                held[u.tensor as usize] = Some(hash.finish());
            }
        }
        if name == k.name {
            all.push((k.name.clone(), read));
        } else {
            // Nor does what runs again read what is not there.
            assert!(!read.contains(&None), "{}", k.name);
        }
    }
    all
}

/// A plan's policy that looks at the books before and after each kernel.
struct Checked {
    planned: Planned,
    error: RefCell<Option<RunError>>,
}

impl Checked {
    fn check(&self, s: &System<'_>) {
        let over = s.chunks.used_bytes() > s.machine.gpu_mem;
        let over = over.then_some(RunError::Accounts { what: "GPU memory" });
        if let Some(e) = s.check().err().or(over) {
            self.error.borrow_mut().get_or_insert(e);
        }
    }
}

impl Policy for Checked {
    fn name(&self) -> &str {
        "checked"
    }

    fn kernel_start(&mut self, k: usize, s: &mut System<'_>) {
        self.check(s);
        self.planned.kernel_start(k, s);
        self.check(s);
    }

    fn kernel_end(&mut self, k: usize, s: &mut System<'_>) {
        self.check(s);
        self.planned.kernel_end(k, s);
        self.check(s);
    }

    fn waits(&self) -> bool {
        true
    }
}

/// The time of the step as planned; fails if memory is over its limit at any kernel.
fn checked_ns(m: &Machine, made: &Made) -> u64 {
    let mut policy = Checked {
        planned: Planned::new("p", made.plan.clone(), Tier::Host),
        error: RefCell::new(None),
    };
    let Made {
        workload, layout, ..
    } = made;
    let out = run(m, workload, layout, &mut policy, Limits::default());
    assert_eq!(policy.error.into_inner(), None);
    let out = out.unwrap();
    assert!(out.gpu_peak <= m.gpu_mem && out.host_peak <= m.host_mem);
    out.step_ns
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    /// Whatever is dropped, alone or in groups: each kernel reads the same values as without,
    /// and none that is not there; nothing else is added to the step than what runs again.
    #[test]
    fn what_is_dropped_is_there_again_when_it_is_read(
        w in random_step(),
        dropped in prop::collection::vec(any::<bool>(), 200),
        group in prop::collection::vec(prop::option::of(0u32..3), 200),
    ) {
        let n = w.tensors.len();
        let of = |t: usize| dropped[t] && !w.tensors[t].lasting;
        let dropped: Vec<bool> = (0..n).map(of).collect();
        let reruns = w.reruns_for(&dropped, &group[..n]);
        let new = w.with_reruns(&reruns, SAME).map_err(|e| TestCaseError::fail(e.to_string()))?;
        prop_assert_eq!(values_read(&new), values_read(&w));
        prop_assert_eq!(new.kernels.len(), w.kernels.len() + reruns.len());
        prop_assert_eq!(new.ideal_ns(), w.ideal_ns() + new.again_ns);
        let lasting = |w: &Workload| w.tensors.iter().filter(|t| t.lasting).count();
        prop_assert_eq!(lasting(&new), lasting(&w));
        // The backward pass begins with what it read first, or has computed again for it.
        let (old, now) = (w.backward.unwrap() as usize, new.backward.unwrap() as usize);
        prop_assert_eq!(old, now);
    }

    /// Reruns that nobody chose are refused, or change nothing of what is read.
    #[test]
    fn reruns_are_refused_or_harmless(
        w in random_step(),
        mut pairs in prop::collection::vec((0u32..60, 0u32..60), 0..12),
    ) {
        pairs.sort_unstable();
        let reruns: Vec<Rerun> = pairs.into_iter().map(|(before, kernel)| Rerun { before, kernel }).collect();
        if let Ok(new) = w.with_reruns(&reruns, SAME) {
            prop_assert_eq!(values_read(&new), values_read(&w));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    /// Ours with recomputation keeps every byte within every memory, reads nothing that is
    /// dropped (the run refuses that), is behind neither the checkpointing schedule nor our plan
    /// without recomputation, and does the same when it is read from text.
    #[test]
    fn plans_that_recompute_are_sound_and_ahead(w in random_step(), gpu in 40u64..160) {
        let l = Layout::new(&w);
        let m = machine(gpu);
        let made = recompute::plan(&m, &w, Until::NEVER).unwrap();
        let ns = checked_ns(&m, &made);
        prop_assert_eq!(values_read(&made.workload), values_read(&w));
        let text = made.plan.text(&made.workload, &made.layout);
        let read = Plan::read(&text, &w).map_err(|e| TestCaseError::fail(e.to_string()))?;
        prop_assert_eq!(&read.plan.again, &made.plan.again);
        prop_assert_eq!(checked_ns(&m, &read), ns);
        if let Ok(checkpoint) = recompute::checkpoint(&m, &w, Until::NEVER) {
            let theirs = checked_ns(&m, &checkpoint);
            prop_assert_eq!(values_read(&checkpoint.workload), values_read(&w));
            prop_assert!(ns <= theirs, "{ns} {theirs}");
        }
        let plan = best::find(&m, &w, &l, Until::NEVER).unwrap().plan;
        let moves = planned(plan, &m, &w, &l).step_ns;
        prop_assert!(ns <= moves, "{ns} {moves}");
    }

    /// Where it costs too much to compute anything again, the plan is that without.
    #[test]
    fn without_recomputation_the_plan_is_as_before(w in random_step(), gpu in 40u64..160) {
        let l = Layout::new(&w);
        let m = machine(gpu);
        let made = recompute::plan_at(&m, &w, u64::MAX, Until::NEVER).unwrap();
        let before = best::find(&m, &w, &l, Until::NEVER).unwrap().plan;
        prop_assert_eq!(made.plan.text(&made.workload, &made.layout), before.text(&w, &l));
    }
}
