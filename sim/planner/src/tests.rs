// SPDX-License-Identifier: GPL-2.0-only OR MIT

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::vec::Vec;

use proptest::prelude::*;

use super::levels::Levels;
use super::walk::{Idle, Wanted};
use super::*;

#[path = "../../../tests/model.rs"]
mod random;

use random::{model, steps};

const MS: u64 = 1_000_000;

/// A step of these kernels, whose tensors live from their first use to the last, or always.
fn step(kernel_ns: Vec<u64>, tensors: Vec<Tensor>, uses: Vec<Use>) -> Step {
    let n = kernel_ns.len();
    let mut live = std::vec![0; n];
    for (i, t) in tensors.iter().enumerate() {
        let own = || uses.iter().filter(|u| u.tensor as usize == i);
        let (Some(first), Some(last)) = (own().next(), own().next_back()) else {
            continue;
        };
        let life = if t.lasting {
            0..n
        } else {
            first.kernel as usize..last.kernel as usize + 1
        };
        for l in &mut live[life] {
            *l += t.pages;
        }
    }
    Step {
        kernel_ns,
        live,
        tensors,
        uses,
    }
}

fn ideal(step: &Step) -> u64 {
    step.kernel_ns.iter().sum()
}

fn is_used(step: &Step, kernel: usize, tensor: u32) -> bool {
    let mut uses = step.uses.iter();
    uses.any(|u| u.kernel as usize == kernel && u.tensor == tensor)
}

/// Links of a page a microsecond, an SSD of a page in five.
fn machine(gpu: u64, host: u64) -> Machine {
    Machine {
        gpu,
        host,
        link_out: MS,
        link_in: MS,
        ssd_out: 5 * MS,
        ssd_in: 5 * MS,
        keep_clean: true,
    }
}

/// `layers` that push an activation and use a weight, then pop and update.
fn stack(layers: &[(u64, u64, u64)]) -> Step {
    let n = layers.len() as u32;
    let mut kernel_ns = Vec::new();
    let mut tensors = Vec::new();
    let mut uses = Vec::new();
    for &(activation, weight, ns) in layers {
        kernel_ns.push(ns);
        for (pages, lasting) in [(activation, false), (weight, true)] {
            tensors.push(Tensor { pages, lasting });
        }
    }
    let mut add = |kernel, tensor, write| {
        uses.push(Use {
            kernel,
            tensor,
            write,
        });
    };
    for i in 0..n {
        add(i, 2 * i, true);
        add(i, 2 * i + 1, false);
    }
    for i in (0..n).rev() {
        add(2 * n - 1 - i, 2 * i, false);
        add(2 * n - 1 - i, 2 * i + 1, true);
    }
    kernel_ns.extend(layers.iter().rev().map(|l| 2 * l.2));
    step(kernel_ns, tensors, uses)
}

fn requests(p: &Plan) -> Vec<Request> {
    p.requests.to_vec()
}

fn made(step: &Step, machine: &Machine, tuning: Tuning) -> Plan {
    plan(step, machine, tuning).expect("a plan")
}

#[test]
fn what_fits_stays() {
    let owned = stack(&[(10, 5, MS); 6]);
    for reads in [Reading::Booked, Reading::Walked] {
        let tuning = Tuning {
            reads,
            ..Tuning::default()
        };
        let p = made(&owned, &machine(1000, 1000), tuning);
        assert_eq!(p.step_ns, ideal(&owned));
        assert!(p.requests.is_empty());
    }
}

#[test]
fn copies_hide_behind_long_kernels() {
    // 8 layers of 100 pages; a copy of one takes a tenth of a kernel.
    let owned = stack(&[(100, 0, MS); 8]);
    let p = made(&owned, &machine(500, 1000), Tuning::default());
    assert_eq!(p.step_ns, ideal(&owned));
    assert_eq!(p.ssd_pages, 0);
    let evicted: Vec<u32> = requests(&p)
        .iter()
        .filter(|r| matches!(r.what, What::Evict(_)))
        .map(|r| r.tensor)
        .collect();
    // What is made first is needed last.
    assert_eq!(evicted, [0, 2, 4]);
}

#[test]
fn what_the_host_cannot_hold_goes_to_the_ssd() {
    let owned = stack(&[(100, 0, 2 * MS); 8]);
    let p = made(&owned, &machine(400, 150), Tuning::default());
    assert!(p.ssd_pages >= 200, "{}", p.ssd_pages);
    assert_eq!(p.step_ns, ideal(&owned));
}

#[test]
fn kernels_wait_where_links_are_slow() {
    // A copy takes ten times as long as a kernel; 300 pages must go and return.
    let owned = stack(&[(100, 0, MS / 100); 8]);
    let least = 2 * 300 * MS / 1000;
    let tuning = Tuning {
        reads: Reading::Walked,
        ..Tuning::default()
    };
    let p = made(&owned, &machine(500, 1000), tuning);
    assert!(p.step_ns >= least, "{} {least}", p.step_ns);
    assert!(p.step_ns < 2 * least, "{} {least}", p.step_ns);
    assert_eq!(
        p.waits.iter().sum::<u64>(),
        p.step_ns - ideal(&owned),
        "what is not computing is waiting"
    );
}

#[test]
fn a_clean_copy_is_written_once_and_dropped_free() {
    // Weights too large to stay, updated once a step, used twice.
    let owned = stack(&[(60, 60, MS); 8]);
    let p = made(&owned, &machine(700, 2000), Tuning::default());
    assert_eq!(p.step_ns, ideal(&owned));
    let weight = |r: &&Request| r.tensor % 2 == 1;
    let copied = requests(&p)
        .iter()
        .filter(weight)
        .filter(|r| matches!(r.what, What::Copy(_)))
        .count();
    assert!(copied > 0);
    // Where copies are lost when they are fetched, there is nothing to copy early.
    let exclusive = Machine {
        keep_clean: false,
        ..machine(700, 2000)
    };
    let p = made(&owned, &exclusive, Tuning::default());
    assert!(!requests(&p).iter().any(|r| matches!(r.what, What::Copy(_))));
}

#[test]
fn nonsense_is_refused() {
    let owned = stack(&[(10, 5, MS); 3]);
    let m = machine(20, 100);
    let tuning = Tuning::default();
    let fails = |step: &Step, m: &Machine| plan(step, m, tuning).err();
    let mut bad = owned.clone();
    bad.uses[0].tensor = 99;
    assert_eq!(fails(&bad, &m), Some(Error::Step));
    let mut bad = owned.clone();
    bad.uses.reverse();
    assert_eq!(fails(&bad, &m), Some(Error::Step));
    let mut bad = owned.clone();
    bad.live.pop();
    assert_eq!(fails(&bad, &m), Some(Error::Step));
    let mut bad = owned.clone();
    bad.tensors[0].pages = u64::MAX;
    assert_eq!(fails(&bad, &m), Some(Error::Range));
    let slow = Machine {
        link_in: u64::MAX,
        ..m
    };
    assert_eq!(fails(&owned, &slow), Some(Error::Range));
    let nothing = step(Vec::new(), Vec::new(), Vec::new());
    assert_eq!(made(&nothing, &m, tuning).step_ns, 0);
}

fn tuning() -> impl Strategy<Value = Tuning> {
    let shares = (1u64..1200, 0u64..2000, 0u64..40_000, 0u64..300, 0u64..4000);
    (shares, any::<bool>()).prop_map(|((ssd_share, ratio, lead, reserve, urgency), walked)| {
        Tuning {
            ssd_share,
            ratio,
            lead,
            reserve,
            urgency,
            reads: if walked {
                Reading::Walked
            } else {
                Reading::Booked
            },
        }
    })
}

proptest! {
    #![proptest_config(model(512))]

    /// Whatever the step and the machine: no tensor is away while it is used, each
    /// eviction has its fetch in time, and the same input gives the same plan.
    #[test]
    fn requests_make_sense(
        layers in prop::collection::vec((0u64..200, 0u64..50, 1u64..2 * MS), 1..steps(20)),
        gpu in 1u64..3000,
        host in 0u64..2000,
        ssd in any::<bool>(),
        keep_clean in any::<bool>(),
        tuning in tuning(),
    ) {
        let owned = stack(&layers);
        let mut m = Machine { keep_clean, ..machine(gpu, host) };
        if !ssd {
            (m.ssd_out, m.ssd_in) = (0, 0);
        }
        let p = made(&owned, &m, tuning);
        prop_assert_eq!(requests(&p), requests(&made(&owned, &m, tuning)));
        prop_assert!(p.step_ns >= ideal(&owned));
        prop_assert!(p.requests.windows(2).all(|w| w[0].kernel <= w[1].kernel));
        let n = owned.kernel_ns.len();
        for r in p.requests.iter() {
            let (k, tensor) = (r.kernel as usize, &owned.tensors[r.tensor as usize]);
            prop_assert!(k < n && tensor.pages > 0);
            prop_assert!(ssd || !matches!(r.what, What::Evict(Tier::Ssd) | What::Copy(Tier::Ssd)));
            prop_assert!(keep_clean || !matches!(r.what, What::Copy(_)));
            if let What::Evict(_) = r.what {
                prop_assert!(!is_used(&owned, k, r.tensor), "evicted while used: {r:?}");
                // The fetch comes before the next use or with it. Reads that are walked
                // may belong to what an earlier step evicted.
                let fetched = (0..n).map(|i| (k + i) % n).find_map(|k| {
                    let mut all = p.requests.iter();
                    let fetch = all.any(|f| {
                        f.kernel as usize == k && f.tensor == r.tensor && f.what == What::Prefetch
                    });
                    if fetch {
                        Some(true)
                    } else {
                        is_used(&owned, k, r.tensor).then_some(false)
                    }
                });
                if tuning.reads == Reading::Booked {
                    prop_assert_eq!(fetched, Some(true), "{:?}", r);
                }
            }
        }
    }

    /// What a heap gives first: the gap that ends last, and what is needed soonest; of those that tie, the
    /// one that is numbered first.
    #[test]
    fn the_heap_sorts(all in prop::collection::vec((0usize..40, any::<u32>()), 0..100)) {
        let idle = all.iter().map(|&(next, gap)| Idle { next, start: 0, gap: Reverse(gap) });
        let mut idle: BinaryHeap<Idle> = idle.collect();
        let wanted = all.iter().map(|&(next, tensor)| Reverse(Wanted { next, tensor, pages: 1, gone: 0 }));
        let mut wanted: BinaryHeap<Reverse<Wanted>> = wanted.collect();
        let (mut farthest, mut soonest) = (all.clone(), all);
        farthest.sort_by_key(|&(next, gap)| (Reverse(next), gap));
        soonest.sort_unstable();
        for (far, soon) in farthest.into_iter().zip(soonest) {
            prop_assert_eq!(idle.pop().map(|i| (i.next, i.gap.0)), Some(far));
            prop_assert_eq!(wanted.pop().map(|w| (w.0.next, w.0.tensor)), Some(soon));
        }
        prop_assert!(idle.is_empty() && wanted.is_empty());
    }

    #[test]
    fn levels_are_sums_and_maxima(
        n in 1usize..1700,
        adds in prop::collection::vec((0usize..1800, 0usize..1800, -100i64..100), 0..30),
        limit in -200i64..200,
    ) {
        let mut levels = Levels::repeated(1, (0..n as i64).map(|i| i % 7));
        let mut plain: Vec<i64> = (0..n as i64).map(|i| i % 7).collect();
        for (from, to, x) in adds {
            levels.add(from, to, x);
            for v in plain.iter_mut().take(to).skip(from) {
                *v += x;
            }
            let (from, to) = (from.min(n), to.min(n).max(from.min(n)));
            let mut seen = Vec::new();
            levels.any_above(from, to, limit, |i, v| {
                seen.push((i, v));
                false
            });
            let above = plain.iter().copied().enumerate().take(to).skip(from);
            let above: Vec<(usize, i64)> = above.filter(|a| a.1 > limit).collect();
            prop_assert_eq!(levels.last_above(from, to, limit), above.last().map(|a| a.0));
            prop_assert_eq!(levels.any_above(from, to, limit, |_, _| true), !above.is_empty());
            prop_assert_eq!(seen, above);
        }
        for (i, v) in plain.iter().enumerate() {
            prop_assert_eq!(levels.get(i), *v);
        }
    }
}
