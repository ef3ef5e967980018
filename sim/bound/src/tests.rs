// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! That nobody is below the bound, and that the bound says something.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use uvmsim_machine::presets;
use uvmsim_machine::Machine;
use uvmsim_machine::GIB;
use uvmsim_machine::MIB;
use uvmsim_physical::bound_ns;
use uvmsim_physical::plan::best;
use uvmsim_physical::plan::best::Until;
use uvmsim_physical::plan::Plan;
use uvmsim_physical::plan::What;
use uvmsim_physical::policies;
use uvmsim_physical::policies::Planned;
use uvmsim_physical::run;
use uvmsim_physical::workload::Kernel;
use uvmsim_physical::workload::Use;
use uvmsim_physical::Layout;
use uvmsim_physical::Limits;
use uvmsim_physical::Policy;
use uvmsim_physical::Tier;
use uvmsim_physical::Workload;
use uvmsim_trace::testing::chain;
use uvmsim_trace::Kind;

use crate::certify;

fn machine(gpu_mem: u64) -> Machine {
    let a100 = presets::find("a100").unwrap();
    Machine { gpu_mem, ..a100 }
}

fn proven(m: &Machine, w: &Workload, points: usize) -> u64 {
    certify(m, w, points).expect("a bound").bound_ns
}

/// So many tensors of 1 GiB, written one after the other, then read in reverse.
fn there_and_back(count: u32, ns: u64) -> Workload {
    let tensors = (0..count).map(|i| (format!("t{i}"), GIB, Kind::Activation));
    let there = (0..count).map(Use::write);
    let uses = there.chain((0..count).rev().map(Use::read));
    let kernels = uses.map(|u| Kernel::new(format!("k{}", u.tensor), ns, [u]));
    Workload::new("w", tensors.collect(), kernels.collect())
}

/// What three of eight GiB take out and back, as each is there until the turn and after it.
#[test]
fn what_does_not_fit_must_go_and_come_back() {
    let w = there_and_back(8, 1_000_000);
    let mut m = machine(40 * GIB);
    assert_eq!(proven(&m, &w, 16), w.ideal_ns());
    m.gpu_mem = 5 * GIB;
    let copy = m.copy_setup as f64 + (2 * MIB) as f64 / m.pcie_d2h * 1e9;
    let least = 2.0 * 1536.0 * copy;
    let bound = proven(&m, &w, 16) as f64;
    assert!(
        bound > least * 0.999 && bound < least * 1.02,
        "{bound} {least}"
    );
    // The SSD is slower, and all that there is.
    m.host_mem = 0;
    let ssd = 6.0 * GIB as f64 / m.ssd_read * 1e9;
    let bound = proven(&m, &w, 16) as f64;
    assert!(bound > ssd * 0.999 && bound < ssd * 1.02, "{bound} {ssd}");
}

/// Weights that a step only reads were copied out before it, unless a fetch loses the copy.
#[test]
fn what_is_only_read_leaves_for_nothing_while_copies_are_kept() {
    let tensors = (0..8)
        .map(|i| (format!("w{i}"), GIB, Kind::Weight))
        .collect();
    let kernels = (0..8).map(|i| Kernel::new("k", 1_000_000, [Use::read(i)]));
    let w = Workload::new("w", tensors, kernels.collect());
    let mut m = machine(5 * GIB);
    // The ways in and out at once are as long as the one in, so the way out is made the slow one.
    m.pcie_d2h = 1e9;
    m.keep_clean = 1;
    let kept = proven(&m, &w, 8);
    m.keep_clean = 0;
    let lost = proven(&m, &w, 8);
    let [slow, fast] = [m.pcie_d2h, m.pcie_h2d].map(|rate| 3.0 * GIB as f64 / rate * 1e9);
    assert!((kept as f64) < fast * 1.1, "{kept} {fast}");
    assert!(lost as f64 > slow * 0.99, "{lost} {slow}");
}

/// A step under `plan` is as long as either bound says, wherever the program cuts it.
fn no_bound_is_above(m: &Machine, w: &Workload, plan: Plan) {
    let mut policy = Planned::new("p", plan, Tier::Host);
    let out = run(m, w, &Layout::new(w), &mut policy, Limits::default()).unwrap();
    let chain = bound_ns(m, w);
    assert!(out.step_ns >= chain, "{} {chain}", out.step_ns);
    for points in 1..=w.kernels.len() {
        let bound = proven(m, w, points);
        assert!(out.step_ns >= bound, "{points}: {} {bound}", out.step_ns);
    }
}

/// What stays is copied out while a long kernel runs, and read by the next. It leaves without another copy,
/// although copies are lost once they are fetched.
#[test]
fn what_is_copied_out_ahead_leaves_for_nothing() {
    let tensors = vec![
        ("w".into(), 64 * MIB, Kind::Weight),
        ("x".into(), 2 * MIB, Kind::Weight),
        ("b".into(), 96 * MIB, Kind::Activation),
    ];
    let long = |name: &str| Kernel::new(name, 20_000_000, [Use::read(1)]);
    let short = |u| Kernel::new("k", 1_000, [u]);
    let uses = [Use::read(0), Use::write(2), Use::read(2)];
    let kernels = [long("comes"), long("is copied")].into_iter();
    let w = Workload::new("w", tensors, kernels.chain(uses.map(short)).collect());
    let mut m = machine(100 * MIB);
    m.keep_clean = 0;
    let mut plan = Plan::new(5, 0);
    plan.before[0].push((What::Prefetch, 0));
    plan.before[1].push((What::Copy(Tier::Host), 0));
    plan.before[3].push((What::Evict(Tier::Host), 0));
    no_bound_is_above(&m, &w, plan);
}

/// What is next overwritten without being read is thrown away, and takes no copy with it.
#[test]
fn what_is_overwritten_need_not_leave() {
    let tensors = [("a", 64 * MIB), ("b", 96 * MIB)];
    let tensors = tensors.map(|(name, bytes)| (name.into(), bytes, Kind::Activation));
    let twice = |t| [Use::write(t), Use::read(t)];
    let uses = [0, 1, 0].into_iter().flat_map(twice);
    let kernels = uses.map(|u| Kernel::new("k", 1_000, [u])).collect();
    let w = Workload::new("w", tensors.into(), kernels);
    let mut plan = Plan::new(6, 0);
    plan.before[2].push((What::Discard, 0));
    plan.before[4].push((What::Prefetch, 0));
    for keep_clean in [0, 1] {
        let m = Machine {
            keep_clean,
            ..machine(100 * MIB)
        };
        no_bound_is_above(&m, &w, plan.clone());
    }
}

/// An input that two kernels read, and what is left of the step between them.
fn step_with_input(uses: [usize; 2], kernels: usize) -> Workload {
    let tensors = vec![
        ("x".into(), GIB, Kind::Input),
        ("w".into(), 4 * MIB, Kind::Weight),
    ];
    let kernel = |k: usize| {
        let input = uses.contains(&k).then(|| Use::read(0));
        Kernel::new("k", 1_000_000, input.into_iter().chain([Use::both(1)]))
    };
    Workload::new("w", tensors, (0..kernels).map(kernel).collect())
}

/// The next step's input is outside until the last use of this step's is over, and comes in before its first.
#[test]
fn an_input_comes_in_between_its_last_use_and_its_first() {
    let m = machine(40 * GIB);
    let copy = m.copy_setup as f64 + (2 * MIB) as f64 / m.pcie_h2d * 1e9;
    let all = 512.0 * copy;
    for (first, last) in [(0, 0), (2, 2), (3, 6), (0, 11), (11, 11)] {
        for points in [1, 3, 5, 12] {
            let w = step_with_input([first, last], 12);
            // Kernels between the uses have to wait; the others do not, nor do the two themselves.
            let between = (last.saturating_sub(first + 1) * 1_000_000) as f64;
            let bound = proven(&m, &w, points) as f64;
            assert!(bound > all * 0.999, "{first} {last} {points}: {bound}");
            // All kernels are cuts.
            if points == 12 && first < last {
                let least = all + between;
                assert!(bound > least * 0.999, "{first} {last}: {bound} {least}");
                assert!(bound < least * 1.05, "{first} {last}: {bound} {least}");
            }
        }
    }
}

/// The step of the zoo with the largest kernels beside its memory is bounded, and by no more than it takes.
#[test]
fn a_network_is_bounded() {
    let options = uvmsim_zoo::Options::new(16, uvmsim_zoo::Precision::Fp32);
    let a100 = machine(40 * GIB);
    let net = uvmsim_zoo::find("resnet50").unwrap();
    let w = Workload::from_trace(&net.trace(&options, &a100));
    let m = machine(w.peak_bytes() / 2);
    let bound = proven(&m, &w, 24);
    let chain = bound_ns(&m, &w);
    println!("certified {bound} chain {chain} ideal {}", w.ideal_ns());
    assert!(bound >= chain / 100 * 98 && bound > w.ideal_ns());
}

/// Makes a policy anew.
type Make<'a> = Box<dyn Fn() -> Option<Box<dyn Policy>> + 'a>;

/// How policy `name` is made anew for each run; `best` searches for its plan once.
fn maker<'a>(name: &'a str, m: &'a Machine, w: &'a Workload, l: &'a Layout) -> Option<Make<'a>> {
    if name != "best" {
        return Some(Box::new(move || policies::make(name, m, w, l).ok()));
    }
    let found = best::find(m, w, l, Until::NEVER).ok()?;
    match found.faster {
        Some((name, _)) => maker(name, m, w, l),
        None => Some(Box::new(move || {
            let plan = found.plan.clone();
            Some(Box::new(Planned::new("best", plan, Tier::Host)))
        })),
    }
}

/// What is proven of a step at the least, by either bound; and the solver is right.
fn least_ns(m: &Machine, w: &Workload, points: usize) -> Result<u64, TestCaseError> {
    let c = certify(m, w, points).expect("a bound");
    let near = (c.bound_ns as f64 - c.claimed_ns).abs() <= c.claimed_ns * 1e-4 + 1e3;
    prop_assert!(near, "{c:?}");
    Ok(c.bound_ns.max(bound_ns(m, w)))
}

/// Every policy takes as long as is proven at the least.
fn nobody_is_below(m: &Machine, w: &Workload, points: usize) -> Result<(), TestCaseError> {
    let l = Layout::new(w);
    let least = least_ns(m, w, points)?;
    for name in policies::NAMES.iter().filter(|n| **n != "ideal") {
        if let Some(make) = maker(name, m, w, &l) {
            is_not_below(name, (m, w, &l), least, &make)?;
        }
    }
    Ok(())
}

/// Steps under this policy, if there are any, take as long as `least` says.
fn is_not_below(
    name: &str,
    (m, w, l): (&Machine, &Workload, &Layout),
    least: u64,
    make: &Make<'_>,
) -> Result<(), TestCaseError> {
    // The step after so many others.
    let step = |warm_up| {
        let limits = Limits {
            warm_up,
            ..Limits::default()
        };
        let done = run(m, w, l, make()?.as_mut(), limits).ok()?;
        Some(done.step_ns)
    };
    match step(Limits::default().warm_up) {
        Some(ns) if ns < least => {}
        _ => return Ok(()),
    }
    // Not a steady step: it found more of its inputs in GPU memory than it left there. Many steps
    // and the copies that lead back to how they began are as steady as one.
    let all: u64 = w.tensors.iter().map(|t| t.bytes.div_ceil(2 * MIB)).sum();
    let copy = m.copy_setup + ((2 * MIB) as f64 / m.pcie_h2d * 1e9).ceil() as u64;
    let steps: Option<u64> = (0..STEPS).map(step).sum();
    prop_assert!(steps.is_some(), "{name}: no run of {STEPS} steps");
    let steps = steps.unwrap_or(0) + 2 * all * copy;
    let least = u64::from(STEPS) * least;
    prop_assert!(steps >= least, "{name}: {steps} < {least}");
    Ok(())
}

/// A plan under which what is used next in the longest time leaves, where more is needed than `room`. While a long
/// kernel runs, what is used next comes in as far as there is room. All that comes or is used is copied out right
/// after it, so that it leaves for nothing; and what is next overwritten is thrown away.
fn copying_ahead(w: &Workload, room: u64) -> Plan {
    let n = w.kernels.len();
    let mut plan = Plan::new(n, 0);
    let mut there = std::collections::BTreeSet::new();
    let bytes = |t: &u32| w.tensors[*t as usize].bytes;
    // How many kernels after `k` it is used next, around the step.
    let ahead = |t: u32, k: usize| {
        let uses = w.tensors[t as usize].uses.iter();
        uses.map(|u| (u.0 as usize + n - k - 1) % n).min()
    };
    // The first turn finds what is there as a step begins.
    for (turn, k) in [0, 1]
        .into_iter()
        .flat_map(|turn| (0..n).map(move |k| (turn, k)))
    {
        if (turn, k) == (1, 0) {
            plan = Plan::new(n, 0);
        }
        let used: Vec<u32> = w.kernels[k].uses.iter().map(|u| u.tensor).collect();
        let idle = there.iter().copied().filter(|t| !used.contains(t));
        let mut idle: Vec<u32> = idle.collect();
        idle.sort_by_key(|&t| ahead(t, k));
        let missing: Vec<u32> = used.iter().copied().filter(|t| there.insert(*t)).collect();
        while there.iter().map(bytes).sum::<u64>() > room {
            let Some(t) = idle.pop() else { break };
            let next = (k + 1 + ahead(t, k).unwrap_or(0)) % n;
            let mut uses = w.kernels[next].uses.iter();
            let reads = uses.any(|u| u.tensor == t && u.read);
            let out = if reads {
                What::Evict(Tier::Host)
            } else {
                What::Discard
            };
            plan.before[k].push((out, t));
            there.remove(&t);
        }
        let mut coming = missing;
        if w.kernels[k].ns >= LONG {
            let mut next: Vec<u32> = (0..w.tensors.len() as u32).collect();
            next.retain(|&t| w.tensors[t as usize].lasting && !there.contains(&t));
            next.sort_by_key(|&t| ahead(t, k));
            for t in next {
                if there.iter().chain([&t]).map(bytes).sum::<u64>() <= room {
                    there.insert(t);
                    coming.push(t);
                }
            }
        }
        plan.before[k].extend(coming.iter().map(|&t| (What::Prefetch, t)));
        let ended = |t: &u32| {
            let t = &w.tensors[*t as usize];
            t.last() as usize == k && (!t.lasting || t.kind == Kind::Input)
        };
        there.retain(|t| !ended(t));
        let copied = used.into_iter().chain(coming).filter(|t| there.contains(t));
        let copies = copied.map(|t| (What::Copy(Tier::Host), t));
        plan.before[(k + 1) % n].extend(copies);
    }
    plan
}

/// One copy engine and an SSD without host memory: the SSD reads while it writes. Here `best` alternates between steps
/// of 111.8 and 112.3 ms. The bound was 113.8 when both directions took turns at the SSD's rates.
#[test]
fn an_ssd_reads_and_writes_at_once_with_one_engine() {
    let layers = [
        (7_613_334, 7_748_053, 2_369_915),
        (5_127_317, 6_386_798, 796_562),
        (28_080_446, 1_521_733, 2_233_294),
        (38_356_644, 6_613_804, 2_125_217),
        (16_458_614, 7_589_276, 1_658_680),
        (30_053_759, 2_940_273, 2_974_955),
        (19_661_198, 3_320_782, 2_290_798),
        (21_607_849, 7_996_160, 1_160_351),
        (5_913_574, 8_373_556, 599_215),
        (35_660_143, 5_238_193, 842_794),
    ];
    let w = Workload::from_trace(&chain(&layers));
    let mut m = machine(104 * MIB);
    m.host_mem = 0;
    m.keep_clean = 0;
    m.copy_engines = 1;
    nobody_is_below(&m, &w, 30).unwrap();
    // A link's own directions still take turns, where it is the slower one.
    [m.pcie_h2d, m.pcie_d2h] = [2e9; 2];
    let one = proven(&m, &w, 30);
    m.copy_engines = 2;
    assert!(one > proven(&m, &w, 30));
}

/// Nanoseconds of a kernel that there is time to copy in.
const LONG: u64 = 1_000_000;
/// Steps that are taken together where one is not steady.
const STEPS: u32 = 64;

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// No policy is faster than what is proven, however the step is cut; and the solver is right.
    #[test]
    fn nobody_is_faster(
        layers in prop::collection::vec((1u64 << 20..40 << 20, 1u64..8 << 20, 1_000u64..4_000_000), 2..12),
        gpu in 100u64..300,
        host in prop::sample::select(vec![0u64, 4096]),
        clean in 0u64..2,
        engines in 1u64..3,
        points in 1usize..40,
    ) {
        let w = Workload::from_trace(&chain(&layers));
        let mut m = machine(gpu * MIB);
        m.host_mem = host * MIB;
        m.keep_clean = clean;
        m.copy_engines = engines;
        nobody_is_below(&m, &w, points)?;
    }

    /// The same with inputs, which kernels read anywhere in the step and some change in place.
    #[test]
    fn nobody_is_faster_with_inputs(
        sizes in prop::collection::vec(1u64 << 20..50 << 20, 2..6),
        uses in prop::collection::vec((0usize..6, 0usize..6, 0u32..8, 1_000u64..3_000_000), 1..16),
        gpu in 130u64..300,
        clean in 0u64..2,
        engines in 1u64..3,
        points in 1usize..20,
    ) {
        // One of the tensors lasts, all others are inputs.
        let kind = |i| if i == 0 { Kind::Weight } else { Kind::Input };
        let n = sizes.len();
        let tensors = sizes.iter().enumerate().map(|(i, &b)| (format!("t{i}"), b, kind(i)));
        let kernels = uses.iter().map(|&(a, b, write, ns)| {
            let first = match write {
                0 => Use::both((a % n) as u32),
                1 => Use::write((a % n) as u32),
                _ => Use::read((a % n) as u32),
            };
            Kernel::new("k", ns, [first, Use::read((b % n) as u32)])
        });
        let w = Workload::new("w", tensors.collect(), kernels.collect());
        let mut m = machine(gpu * MIB);
        m.keep_clean = clean;
        m.copy_engines = engines;
        nobody_is_below(&m, &w, points)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, rng_seed: RngSeed::Fixed(21), ..ProptestConfig::default() })]

    /// Nor is a plan that copies out ahead of its leaving what is used in a row of short kernels, after two long ones;
    /// between kernels, or behind those that use it.
    #[test]
    fn nobody_is_faster_who_copies_ahead(
        sizes in prop::collection::vec(4u64..16, 6..10),
        uses in prop::collection::vec((0usize..9, 0usize..9, 0u32..6, 300u64..3_000), 4..14),
        gpu in 66u64..100,
        host in prop::sample::select(vec![0u64, 4096]),
        clean in 0u64..2,
        engines in 1u64..3,
        points in 1usize..16,
    ) {
        // Every other tensor lasts.
        let kind = |i| [Kind::Weight, Kind::Activation][i % 2];
        let n = sizes.len();
        let tensors = sizes.iter().enumerate();
        let tensors = tensors.map(|(i, &mib)| (format!("t{i}"), 2 * mib * MIB, kind(i)));
        let long = [0; 2].map(|t| Kernel::new("long", 20 * LONG, [Use::read(t)]));
        let kernels = uses.iter().map(|&(a, b, write, ns)| {
            let first = match write {
                0 => Use::both((a % n) as u32),
                1 | 2 => Use::write((a % n) as u32),
                _ => Use::read((a % n) as u32),
            };
            Kernel::new("k", ns, [first, Use::read((b % n) as u32)])
        });
        let kernels = long.into_iter().chain(kernels);
        let w = Workload::new("w", tensors.collect(), kernels.collect());
        let l = Layout::new(&w);
        let mut m = machine(gpu * MIB);
        m.host_mem = host * MIB;
        m.keep_clean = clean;
        m.copy_engines = engines;
        // So that it is the copies out that count.
        m.pcie_d2h /= 4.0;
        let least = least_ns(&m, &w, points)?;
        for (spare, behind) in [(0, false), (4, false), (0, true), (4, true)] {
            let mut plan = copying_ahead(&w, (gpu - spare) * MIB);
            if behind {
                plan = plan.sooner(&w);
            }
            let make: Make<'_> = Box::new(move || Some(Box::new(Planned::new("p", plan.clone(), Tier::Host))));
            is_not_below("copying ahead", (&m, &w, &l), least, &make)?;
        }
    }
}
