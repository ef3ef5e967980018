// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! `--model g10`: the artifact's machine behind `run` and `compare`.

use serde_json::json;
use serde_json::Value;
use uvmsim_g10 as g10;
use uvmsim_g10::Machine;
use uvmsim_g10::Outcome;
use uvmsim_g10::Policy;
use uvmsim_physical::plan::autovm;
use uvmsim_physical::plan::most;
use uvmsim_physical::plan::teraio;
use uvmsim_physical::plan::Profile;
use uvmsim_physical::plan::What;
use uvmsim_physical::Tier;
use uvmsim_report::BOUND;
use uvmsim_report::BOUND_WHOM as WHOM;
use uvmsim_trace::Trace;

use crate::bound;
use crate::machine::Choice;
use crate::pool;
use crate::progress;
use crate::Failure;

/// Share of GPU memory that planners of the physical model plan to fill.
const PLANNED_FILL: f64 = 0.97;

/// The machine of the artifact with the user's changes.
pub fn machine(choice: &Choice) -> Result<Machine, Failure> {
    let m = choice.machine("a100")?;
    let defaults = Machine::default();
    let gib = |b: u64| b as f64 / (1u64 << 30) as f64;
    let named = choice.is_named();
    if m.pcie_h2d != m.pcie_d2h {
        return Err(Failure::usage(
            "--model g10 has one rate for both directions of the link; set it with --pcie",
        ));
    }
    let set = |option: &str| choice.is_set(option);
    if set("evict-policy") {
        return Err(Failure::usage(
            "--model g10 evicts in its artifact's order; --evict-policy needs --model physical",
        ));
    }
    let ssd =
        match (set("ssd-read"), set("ssd-write"), named) {
            (false, false, false) => defaults.ssd_gbps * 1e9,
            (true, false, _) => m.ssd_read,
            (false, true, _) => m.ssd_write,
            _ if m.ssd_read == m.ssd_write => m.ssd_read,
            // The paper's SSD writes at 3.0 GB/s; its artifact uses the rate of reads.
            (false, false, true) => m.ssd_read,
            _ => return Err(Failure::usage(
                "--model g10 has one rate for the SSD; give --ssd-read and --ssd-write the same",
            )),
        };
    let keep = |option: &str| named || set(option);
    let or = |keep: bool, value: f64, default: f64| if keep { value } else { default };
    let link = named || set("pcie") || set("pcie-h2d");
    Ok(Machine {
        gpu_gib: or(keep("gpu-mem"), gib(m.gpu_mem), defaults.gpu_gib),
        host_gib: or(keep("host-mem"), gib(m.host_mem), defaults.host_gib),
        pcie_gbps: or(link, m.pcie_h2d / 1e9, defaults.pcie_gbps),
        ssd_gbps: ssd / 1e9,
        ..defaults
    })
}

/// A policy of the artifact, or one of ours, or a planner of the physical model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runner {
    /// The engine has it.
    Built(Policy),
    /// MOST, planned as for the physical machine.
    Most,
    /// AutoVM, planned as for the physical machine.
    AutoVm,
    /// TERAIO, planned as for the physical machine.
    TeraIo,
}

impl Runner {
    /// The planners of the physical model.
    const PLANNERS: [Runner; 3] = [Runner::Most, Runner::AutoVm, Runner::TeraIo];

    /// Every policy of the model.
    fn all() -> Vec<Runner> {
        let built = Policy::ALL.into_iter().map(Runner::Built);
        built.chain(Self::PLANNERS).collect()
    }

    fn as_str(self) -> &'static str {
        match self {
            Runner::Built(p) => p.as_str(),
            Runner::Most => "most",
            Runner::AutoVm => "autovm",
            Runner::TeraIo => "teraio",
        }
    }

    fn run(self, trace: &Trace, machine: &Machine, choice: &Choice) -> Result<Outcome, String> {
        let physical = choice.machine("a100").map_err(|e| e.to_string())?;
        self.run_planned_for(trace, machine, &physical)
    }

    /// The same on a machine given by the artifact's constants alone.
    pub fn run_on(self, trace: &Trace, machine: &Machine) -> Result<Outcome, String> {
        self.run_planned_for(trace, machine, &physical(machine)?)
    }

    /// Runs on `machine`; a planner of the physical model plans for `physical`.
    fn run_planned_for(
        self,
        trace: &Trace,
        machine: &Machine,
        physical: &uvmsim_machine::Machine,
    ) -> Result<Outcome, String> {
        match self {
            Runner::Built(Policy::Best) => {
                let others = || {
                    let mut all = Vec::new();
                    for planner in Self::PLANNERS {
                        let Ok(moves) = planner.moves(trace, physical) else {
                            continue;
                        };
                        if !moves.frees {
                            // With what the driver is not told there.
                            all.push(g10::Moves {
                                frees: true,
                                ..moves.clone()
                            });
                        }
                        all.push(moves);
                    }
                    all
                };
                g10::run_best(trace, machine, others).map_err(|e| e.to_string())
            }
            Runner::Built(p) => g10::run(trace, p, machine).map_err(|e| e.to_string()),
            _ => {
                let moves = self.moves(trace, physical)?;
                g10::run_plan(trace, &moves, machine).map_err(|e| e.to_string())
            }
        }
    }

    /// The plan of a planner of the physical model, as moves.
    fn moves(self, trace: &Trace, machine: &uvmsim_machine::Machine) -> Result<g10::Moves, String> {
        let (workload, layout) = crate::workload(trace).map_err(|e| e.to_string())?;
        let profile = Profile::new(machine, &workload, &layout, PLANNED_FILL, 1);
        let plan = match self {
            Runner::Most => most::plan(&profile, machine.host_mem > 0),
            Runner::TeraIo => teraio::plan(&profile),
            _ => autovm::plan(&profile, autovm::Options::default()),
        };
        let mut list = Vec::new();
        for (kernel, ops) in plan.before.iter().enumerate() {
            for &(what, tensor) in ops {
                let to = match what {
                    What::Prefetch => g10::Target::Gpu,
                    What::Evict(Tier::Host) => g10::Target::Host,
                    What::Evict(Tier::Ssd) => g10::Target::Ssd,
                    // The artifact's machine allocates and frees by itself.
                    What::Copy(_) | What::Allocate | What::Free | What::Discard => continue,
                };
                let kernel = kernel % trace.kernels.len();
                list.push(g10::Hint::new(kernel, tensor, to));
            }
        }
        Ok(g10::Moves {
            list,
            frees: plan.releases,
        })
    }
}

/// The machine that planners of the physical model plan for, where only the artifact's
/// constants are given.
pub fn physical(machine: &Machine) -> Result<uvmsim_machine::Machine, String> {
    let gib = |v: f64| (v * (1u64 << 30) as f64) as u64;
    let (link, ssd) = (machine.pcie_gbps * 1e9, machine.ssd_gbps * 1e9);
    let a100 = uvmsim_machine::presets::find("a100").ok_or("there is no machine a100")?;
    Ok(uvmsim_machine::Machine {
        gpu_mem: gib(machine.gpu_gib),
        host_mem: gib(machine.host_gib),
        pcie_h2d: link,
        pcie_d2h: link,
        ssd_read: ssd,
        ssd_write: ssd,
        ..a100
    })
}

/// The policy called `name`.
fn runner(name: &str) -> Result<Runner, Failure> {
    let mut all = Runner::all().into_iter();
    all.find(|r| r.as_str() == name).ok_or_else(|| {
        let all: Vec<&str> = Runner::all().into_iter().map(Runner::as_str).collect();
        let all = all.join(", ");
        Failure::usage(format!(
            "--model g10 has no policy called `{name}`; it has {all}"
        ))
    })
}

/// Seconds below which no step of `trace` can be under `policy`; `None` where the
/// artifact does not hold the policy to the GPU's size (G10-GDS, G10-Host).
fn bound_s(policy: Runner, trace: &Trace, m: &Machine) -> Option<f64> {
    if let Runner::Built(Policy::G10Gds | Policy::G10Host | Policy::Ideal) = policy {
        return None;
    }
    Some(bound::seconds(trace, m))
}

/// What a run says of itself.
fn object(policy: Runner, o: &Outcome, bound_s: Option<f64>) -> Value {
    let s = |cycles: u64| cycles as f64 / g10::CYCLES_PER_SECOND as f64;
    json!({
        "model": "g10",
        "policy": policy.as_str(),
        "ideal_s": s(o.ideal_cycles),
        "step_s": s(o.step_cycles),
        "normalized": o.normalized(),
        "bound_s": bound_s,
        "bytes": o.traffic,
        "faults": o.faults,
        "stall_s": s(o.step_cycles.saturating_sub(o.ideal_cycles)),
        "ideal_cycles": o.ideal_cycles,
        "step_cycles": o.step_cycles,
    })
}

type Row = (Runner, Result<Outcome, String>);

/// A table of outcomes.
fn table(rows: &[Row]) -> String {
    let mut out =
        format!(
        "{:<12} {:>10} {:>7} {:>10} {:>9} {:>9} {:>9} {:>9}\n{:<12} {:>10} {:>7} {:>10} {:>39}\n",
        "policy", "step", "of", "faults", "host>gpu", "gpu>host", "ssd>gpu", "gpu>ssd", "", "s",
        "ideal", "pages", "GiB"
    );
    let gib = |b: u64| b as f64 / (1u64 << 30) as f64;
    for (p, o) in rows {
        out += &match o {
            Ok(o) => format!(
                "{:<12} {:>10.3} {:>7.4} {:>10} {:>9.1} {:>9.1} {:>9.1} {:>9.1}\n",
                p.as_str(),
                o.step_cycles as f64 / g10::CYCLES_PER_SECOND as f64,
                o.normalized(),
                o.faults,
                gib(o.traffic.host_to_gpu),
                gib(o.traffic.gpu_to_host),
                gib(o.traffic.ssd_to_gpu),
                gib(o.traffic.gpu_to_ssd),
            ),
            Err(e) => format!("{:<12} fails: {e}\n", p.as_str()),
        };
    }
    out
}

/// `uvmsim run --model g10`.
pub fn run(trace: &Trace, name: &str, choice: &Choice, json: bool) -> Result<(), Failure> {
    let (policy, machine) = (runner(name)?, machine(choice)?);
    let outcome = progress::during(policy.as_str(), |_| policy.run(trace, &machine, choice));
    let o = outcome.map_err(|e| Failure::run(format!("{}: {e}", policy.as_str())))?;
    if json {
        return crate::print_json(&object(policy, &o, bound_s(policy, trace, &machine)));
    }
    crate::write_file("-", &table(&[(policy, Ok(o))]))
}

/// `uvmsim compare --model g10`.
pub fn compare(
    trace: &Trace,
    names: &[String],
    choice: &Choice,
    json: bool,
    threads: usize,
) -> Result<(), Failure> {
    let machine = machine(choice)?;
    let policies: Vec<Runner> = if names.is_empty() {
        Runner::all()
    } else {
        names.iter().map(|n| runner(n)).collect::<Result<_, _>>()?
    };
    let bar = progress::of(policies.len(), "policies");
    let rows: Vec<Row> = pool::map(&policies, threads, |&p| {
        bar.set_message(p.as_str());
        let outcome = p.run(trace, &machine, choice);
        bar.inc(1);
        (p, outcome)
    });
    bar.finish_and_clear();
    if json {
        let object = |(p, o): &Row| match o {
            Ok(o) => object(*p, o, bound_s(*p, trace, &machine)),
            Err(e) => json!({"policy": p.as_str(), "error": e}),
        };
        let list: Vec<Value> = rows.iter().map(object).collect();
        crate::print_json(&json!({"model": "g10", "policies": list}))?;
    } else {
        let (bound, name) = (bound::seconds(trace, &machine), format!("({BOUND})"));
        let line =
            format!("{name:<12} {bound:>10.3}  {WHOM} and to the GPU's size can be faster\n");
        crate::write_file("-", &(table(&rows) + &line))?;
    }
    if rows.iter().all(|(_, o)| o.is_err()) {
        return Err(Failure::run("no policy could run this"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use uvmsim_trace::testing::chain;
    use uvmsim_trace::testing::g10_traces;

    /// Everything that runs on the page simulator; whole tensors in queues, without
    /// faults, are another machine.
    fn rivals() -> Vec<Runner> {
        let apart = [
            Policy::FlashNeuron,
            Policy::G10Gds,
            Policy::G10Host,
            Policy::Best,
            Policy::Ideal,
        ];
        let all = Runner::all().into_iter();
        all.filter(|r| !apart.map(Runner::Built).contains(r))
            .collect()
    }

    fn step(runner: Runner, trace: &Trace, m: &Machine) -> Result<u64, String> {
        runner.run_on(trace, m).map(|o| o.step_cycles)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

        /// Ours is behind nobody.
        #[test]
        fn best_is_behind_no_planner(
            layers in prop::collection::vec((1u64 << 20..60 << 20, 1u64..8 << 20, 1_000u64..4_000_000), 8..40),
            gpu_mib in 150u32..250,
            host_mib in 0u32..600,
        ) {
            let trace = chain(&layers);
            let machine = Machine::of_mib(gpu_mib, host_mib);
            let best = Runner::Built(Policy::Best).run_on(&trace, &machine);
            let Ok(best) = best else {
                // A kernel that needs more than the GPU has: then nobody can run the step.
                for rival in rivals() {
                    prop_assert!(step(rival, &trace, &machine).is_err(), "{} runs it", rival.as_str());
                }
                return Ok(());
            };
            for rival in rivals() {
                if let Ok(o) = step(rival, &trace, &machine) {
                    prop_assert!(best.step_cycles <= o, "{}: {o} {}", rival.as_str(), best.step_cycles);
                }
            }
        }
    }

    /// AutoVM's driver does not see what the framework frees (thesis, section 6.3.1):
    /// the dead are written out where memory is short, though the plan moves nothing.
    #[test]
    fn autovm_frees_nothing() {
        use uvmsim_trace::Kernel;
        use uvmsim_trace::Kind;
        use uvmsim_trace::Tensor;
        const TENSOR: u64 = 64 << 20;
        let mut trace = Trace::new("short lives", 1);
        for _ in 0..8 {
            let own = trace.add_tensor(Tensor::new(Kind::Activation, TENSOR, "own"));
            let mut k = Kernel::new("k", 20_000_000);
            k.writes = vec![own];
            trace.kernels.push(k);
        }
        let m = Machine {
            gpu_gib: 0.25,
            ..Machine::default()
        };
        let out = |r: Runner| {
            let o = r.run_on(&trace, &m).unwrap();
            o.traffic.gpu_to_host + o.traffic.gpu_to_ssd
        };
        assert_eq!(out(Runner::Most), 0);
        assert!(out(Runner::AutoVm) >= 3 * TENSOR, "{}", out(Runner::AutoVm));
        // Ours may free all the same.
        assert_eq!(out(Runner::Built(Policy::Best)), 0);
    }

    /// There MOST's plan is ahead of all that the search makes by itself, and so is
    /// AutoVM's with what its driver is not told of the dead.
    #[test]
    fn best_is_not_behind_the_others_at_resnet152_2048() {
        let Some(traces) = g10_traces() else { return };
        let trace = uvmsim_g10::import(&traces, "ResNet152", 2048).unwrap();
        let m = Machine::default();
        let of = |r| step(r, &trace, &m).unwrap_or_else(|e| panic!("{e}"));
        let physical = physical(&m).unwrap();
        let told = g10::Moves {
            frees: true,
            ..Runner::AutoVm.moves(&trace, &physical).unwrap()
        };
        let told = g10::run_plan(&trace, &told, &m).unwrap().step_cycles;
        let most = of(Runner::Most);
        let best = of(Runner::Built(Policy::Best));
        println!("best {best}, MOST {most}, AutoVM told of the dead {told} cycles");
        assert!(best <= most.min(told), "{best} {most} {told}");
    }
}
