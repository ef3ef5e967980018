// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! That nobody is below the bound, and that the bound says something.

use proptest::prelude::*;
use uvmsim_machine::presets;
use uvmsim_machine::Machine;
use uvmsim_machine::GIB;
use uvmsim_machine::MIB;
use uvmsim_physical::bound_ns;
use uvmsim_physical::policies;
use uvmsim_physical::run;
use uvmsim_physical::workload::Kernel;
use uvmsim_physical::workload::Use;
use uvmsim_physical::Layout;
use uvmsim_physical::Limits;
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
        let l = Layout::new(&w);
        let mut m = machine(gpu * MIB);
        m.host_mem = host * MIB;
        m.keep_clean = clean;
        m.copy_engines = engines;
        let c = certify(&m, &w, points).expect("a bound");
        let near = (c.bound_ns as f64 - c.claimed_ns).abs() <= c.claimed_ns * 1e-4 + 1e3;
        prop_assert!(near, "{c:?}");
        for name in policies::NAMES.iter().filter(|n| **n != "ideal") {
            let Ok(mut policy) = policies::make(name, &m, &w, &l) else { continue };
            if let Ok(o) = run(&m, &w, &l, policy.as_mut(), Limits::default()) {
                prop_assert!(o.step_ns >= c.bound_ns, "{name}: {} < {c:?}", o.step_ns);
            }
        }
    }
}
