// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What uvmsim predicts of a recorded program, and whether its runs were so.

use super::{Places, Run, DEEPUM, GPU_BYTES, LEARNING, LEAVES, LEAVING, STEPS};
use crate::play::{off_percent, shown, MOST_PERCENT};
use crate::scaled::{faster, Bytes, AT_ONCE, MACHINE};
use anyhow::{ensure, Context, Result};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use uvm_policy::prefetch::worker::Params;
use uvmsim_machine::Machine;
use uvmsim_physical::plan::Plan;
use uvmsim_physical::policies::{deepum_config, execution_ids, Driver, Planned};
use uvmsim_physical::{Layout, Limits, Policy, System, Tier, Workload};
use uvmsim_trace::Trace;
use vgpu_client::{BLOCK, PAGE};

/// What uvmsim says of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Predicted {
    /// Faults of the last step, and of each.
    faults: u64,
    steps: Vec<u64>,
    /// Bytes that are moved in the last step.
    bytes: Bytes,
}

/// A run in `out/record.json`.
#[derive(Clone, Debug, Serialize)]
struct Judged {
    program: String,
    policy: String,
    faults: u64,
    bytes: Bytes,
    predicted: Option<Predicted>,
    /// How far the bytes of a link, or the faults of a step, are from that; of what is furthest off.
    off_percent: Option<f64>,
    verified: bool,
    program_bytes: u64,
    gpu_bytes: u64,
}

/// `uvm-dnn recorded`: shows the runs in a file of lines beside what uvmsim predicts of the trace
/// and the plan, and writes the report. Fails unless they were so.
pub fn run(trace: &Path, plan: &Path, lines: &Path, report: &Path) -> Result<()> {
    let read = |path: &Path| {
        fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))
    };
    let predicted = predictions(&read(trace)?, &read(plan)?)?;
    let text = read(lines)?;
    let runs = text.lines().filter(|line| line.starts_with('{'));
    let runs = runs.map(|line| Ok(serde_json::from_str(line)?));
    let runs = runs.collect::<Result<Vec<Run>>>()?;
    let judged: Vec<_> = runs.iter().map(|run| judged(run, &predicted)).collect();
    show(&judged);
    let all = serde_json::json!({ "runs": judged });
    fs::write(report, serde_json::to_string_pretty(&all)? + "\n")
        .with_context(|| format!("writing {}", report.display()))?;
    let wrong = wrong(&runs, &judged);
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// What uvmsim says of each policy that it predicts.
type Predictions = BTreeMap<&'static str, Predicted>;

fn predictions(trace: &str, plan: &str) -> Result<Predictions> {
    let trace: Trace = trace.parse()?;
    let workload = Workload::from_trace(&trace);
    let layout = Layout::new(&workload);
    let plan = Plan::parse(plan, &workload, &layout)?;
    let machine = machine()?;
    // What the plan moves before a kernel is waited for, as if links took no time; and what the driver's
    // worker moves before each block.
    let played = faster(&machine, AT_ONCE);
    let placed = placed(&workload);
    let uvm = |n| predict(&machine, &workload, &placed, &mut Freeing, n);
    let deepum = |n| learning(&played, &workload, &placed, 1, n);
    let plan = |n| {
        let mut planned = Planned::new("plan", plan.clone(), Tier::Host);
        predict(&played, &workload, &layout, &mut planned, n)
    };
    Ok(Predictions::from([
        ("uvm", each_step(STEPS, uvm)?),
        (DEEPUM, each_step(STEPS + LEARNING, deepum)?),
        ("plan", each_step(STEPS, plan)?),
    ]))
}

/// What is predicted of so many steps, by what `last` predicts of the last of any number of steps.
fn each_step(steps: u32, mut last: impl FnMut(u32) -> Result<Predicted>) -> Result<Predicted> {
    let mut predicted = last(1)?;
    let mut faults = vec![predicted.faults];
    for n in 2..=steps {
        predicted = last(n)?;
        faults.push(predicted.faults);
    }
    predicted.steps = faults;
    Ok(predicted)
}

/// The machine that the plan is for. As upstream, a page is in one place. The tree prefetcher is
/// off there and in the VM: what it brings depends on which faults come just before a batch is
/// fetched and which just behind, and that on the host's load.
fn machine() -> Result<Machine> {
    let whole = uvmsim_machine::presets::find(MACHINE).context("no such machine")?;
    Ok(Machine {
        gpu_mem: GPU_BYTES,
        keep_clean: 0,
        tree_prefetch: 0,
        ..whole
    })
}

/// The last of some steps.
fn predict(
    machine: &Machine,
    workload: &Workload,
    layout: &Layout,
    policy: &mut dyn Policy,
    steps: u32,
) -> Result<Predicted> {
    let limits = Limits {
        warm_up: steps - 1,
        ..Limits::default()
    };
    let outcome = uvmsim_physical::run(machine, workload, layout, policy, limits);
    let outcome = outcome.map_err(|e| anyhow::anyhow!("uvmsim: {e}"))?;
    let bytes = outcome.bytes;
    ensure!(
        bytes.ssd_to_gpu == 0 && bytes.gpu_to_ssd == 0,
        "uvmsim has an SSD in it"
    );
    Ok(Predicted {
        faults: outcome.faults,
        steps: vec![outcome.faults],
        bytes: Bytes {
            host_to_gpu: bytes.host_to_gpu,
            gpu_to_host: bytes.gpu_to_host,
            ..Bytes::default()
        },
    })
}

/// Upstream's UVM, under a program that frees what it does not need: nothing of that is copied.
struct Freeing;

impl Policy for Freeing {
    fn name(&self) -> &str {
        "uvm"
    }

    fn kernel_end(&mut self, kernel: usize, system: &mut System<'_>) {
        let layout = system.layout;
        for &tensor in &layout.deaths[kernel] {
            system.free(tensor);
        }
    }
}

/// The driver's prefetcher under the same program, with `uvm_rust_preevict=ready`: the last of some steps.
fn learning(
    machine: &Machine,
    workload: &Workload,
    layout: &Layout,
    ready: u32,
    steps: u32,
) -> Result<Predicted> {
    let ids = execution_ids(workload, layout);
    let params = Params {
        act: true,
        watermark: ready,
    };
    let driver = Driver::new(ids, deepum_config(), params);
    let mut driver = driver.map_err(|e| anyhow::anyhow!("uvmsim: {e}"))?;
    predict(machine, workload, layout, &mut driver, steps)
}

/// Where `train` has each tensor.
fn placed(workload: &Workload) -> Layout {
    let mut places = Places::up();
    let mut at = vec![places.next; workload.tensors.len()];
    let start = places.next;
    let bytes = |t: u32| workload.tensors[t as usize].bytes.next_multiple_of(BLOCK);
    for (t, tensor) in (0..).zip(&workload.tensors) {
        if tensor.lasting {
            at[t as usize] = places.take(bytes(t));
        }
    }
    let lives = Layout::new(workload);
    for (births, deaths) in lives.births.iter().zip(&lives.deaths) {
        for &t in births {
            at[t as usize] = places.take(bytes(t));
        }
        for &t in deaths {
            places.give(at[t as usize], bytes(t));
        }
    }
    Layout::at(workload, at.into_iter().map(|at| at - start).collect())
}

fn judged(run: &Run, predictions: &Predictions) -> Judged {
    let predicted = predictions.get(&*run.policy).cloned();
    let off_percent = predicted.as_ref().map(|p| off(run, p));
    Judged {
        program: run.program.clone(),
        policy: run.policy.clone(),
        faults: run.faults,
        bytes: run.bytes,
        predicted,
        off_percent,
        // A run that is wrong prints no line.
        verified: true,
        program_bytes: run.program_bytes,
        gpu_bytes: run.gpu_bytes,
    }
}

/// How far a run is from what was predicted, in percent; where nothing was, of a block.
fn off(run: &Run, predicted: &Predicted) -> f64 {
    let last = (run.faults, predicted.faults);
    let all = predicted_steps(run, predicted).chain([last]);
    let faults = all.map(|(faults, predicted)| {
        let least = predicted.max(BLOCK / PAGE) as f64;
        faults.abs_diff(predicted) as f64 / least * 100.0
    });
    faults.fold(off_percent(&run.bytes, &predicted.bytes), f64::max)
}

/// Faults of each step that uvmsim says something of, in the run and as predicted. A program that leaves its plan
/// is not predicted from there on until it has come back, which its last step shows.
fn predicted_steps<'a>(
    run: &'a Run,
    predicted: &'a Predicted,
) -> impl Iterator<Item = (u64, u64)> + 'a {
    let most = match run.program == LEAVING {
        true => LEAVES as usize,
        false => predicted.steps.len(),
    };
    let steps = run.steps.iter().copied();
    steps.zip(predicted.steps.iter().copied()).take(most)
}

fn show(runs: &[Judged]) {
    println!(
        "{:<16} {:<7} {:>7} {:>7} {:>7} {:>7} {:>7} {:>7} {:>6}",
        "MiB", "policy", "to GPU", "of", "back", "of", "faults", "of", "off %"
    );
    for run in runs {
        let mib = |bytes: u64| bytes as f64 / 1048576.0;
        let predicted = run.predicted.as_ref().map(|p| p.bytes);
        println!(
            "{:<16} {:<7} {:>7.1} {:>7} {:>7.1} {:>7} {:>7} {:>7} {:>6}",
            run.program,
            run.policy,
            mib(run.bytes.host_to_gpu),
            shown(predicted.map(|p| mib(p.host_to_gpu)), 1),
            mib(run.bytes.gpu_to_host),
            shown(predicted.map(|p| mib(p.gpu_to_host)), 1),
            run.faults,
            shown(run.predicted.as_ref().map(|p| p.faults as f64), 0),
            shown(run.off_percent, 2),
        );
    }
}

/// Which runs there must be.
const WANTED: [(&str, &str); 5] = [
    ("train", "uvm"),
    ("train", DEEPUM),
    ("train", "plan"),
    ("train-elsewhere", "plan"),
    (LEAVING, "plan"),
];

/// What is not as it must be.
fn wrong(runs: &[Run], judged: &[Judged]) -> Vec<String> {
    let mut wrong = Vec::new();
    let found = |program, policy| {
        let mut all = runs.iter();
        all.find(|r| r.program == program && r.policy == policy)
    };
    for (program, policy) in WANTED {
        if found(program, policy).is_none() {
            wrong.push(format!("{program}, {policy}: it was not run"));
        }
    }
    let Some(recorded) = found("train", "uvm") else {
        return wrong;
    };
    for (run, judged) in runs.iter().zip(judged) {
        let name = format!("{}, {}", run.program, run.policy);
        if let Some(off) = judged.off_percent.filter(|&off| off > MOST_PERCENT) {
            let predicted = judged.predicted.as_ref().map(|p| &p.steps);
            wrong.push(format!(
                "{name}: {off:.2} % off uvmsim's; faults of its steps {:?}, predicted {predicted:?}",
                run.steps
            ));
        }
        let predicted = judged.predicted.as_ref().map_or(0, |p| p.steps.len());
        if run.program != LEAVING && run.steps.len() != predicted {
            let steps = run.steps.len();
            wrong.push(format!("{name}: {steps} steps, not {predicted}"));
        }
        if run.policy == "uvm" {
            continue;
        }
        let (faults, most) = (run.faults, recorded.faults as f64 * MOST_PERCENT / 100.0);
        if run.policy == "plan" && faults as f64 > most {
            wrong.push(format!("{name}: {faults} faults, more than {most:.0}"));
        }
        if run.program_bytes < 2 * run.gpu_bytes {
            wrong.push(format!("{name}: it has less than twice the GPU's memory"));
        }
    }
    for run in runs {
        let leaves = run.program == LEAVING;
        if run.left != u64::from(leaves) {
            let left = run.left;
            wrong.push(format!(
                "{}, {}: it left its plan {left} times",
                run.program, run.policy
            ));
        }
        let faults = run.steps.get(LEAVES as usize).copied();
        let most = recorded.faults as f64 * MOST_PERCENT / 100.0;
        if leaves && faults.is_none_or(|faults| faults as f64 > most) {
            wrong.push(format!(
                "{LEAVING}: {faults:?} faults off the plan, more than {most:.0}"
            ));
        }
    }
    if let Some(elsewhere) = found("train-elsewhere", "plan") {
        if distances(recorded) == distances(elsewhere) {
            wrong.push("train-elsewhere: its memory lies as train's did".to_owned());
        }
    }
    wrong
}

/// Where each allocation is, from the first on.
fn distances(run: &Run) -> Vec<i64> {
    let first = run.addresses.first().copied().unwrap_or(0);
    let distance = |&at: &u64| at.wrapping_sub(first) as i64;
    run.addresses.iter().map(distance).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn run(program: &str, policy: &str, faults: u64, to_gpu: u64, second: u64) -> Run {
        Run {
            program: program.into(),
            policy: policy.into(),
            faults,
            steps: vec![faults; 3],
            left: u64::from(program == LEAVING),
            bytes: Bytes {
                host_to_gpu: to_gpu,
                ..Bytes::default()
            },
            program_bytes: 2 * GPU_BYTES,
            gpu_bytes: GPU_BYTES,
            addresses: vec![1 << 40, second],
        }
    }

    fn told(change: impl FnOnce(&mut Vec<Run>)) -> Vec<String> {
        told_of(|runs, _| change(runs))
    }

    fn told_of(change: impl FnOnce(&mut Vec<Run>, &mut Predictions)) -> Vec<String> {
        let mut runs = vec![
            run("train", "uvm", 1000, 200 << 20, 2 << 40),
            run("train", "deepum", 1122, 204 << 20, 2 << 40),
            run("train", "plan", 10, 98 << 20, 2 << 40),
            run("train-elsewhere", "plan", 0, 102 << 20, 3 << 40),
            run(LEAVING, "plan", 0, 100 << 20, 2 << 40),
        ];
        let of = |faults, mib: u64| Predicted {
            faults,
            steps: vec![faults; 3],
            bytes: Bytes {
                host_to_gpu: mib << 20,
                ..Bytes::default()
            },
        };
        let mut predictions = Predictions::from([
            ("uvm", of(1000, 200)),
            ("deepum", of(1100, 200)),
            ("plan", of(0, 100)),
        ]);
        change(&mut runs, &mut predictions);
        let judged: Vec<_> = runs.iter().map(|run| judged(run, &predictions)).collect();
        wrong(&runs, &judged)
    }

    #[test]
    fn what_is_not_as_predicted_is_told() {
        assert_eq!(told(|_| ()), Vec::<String>::new());
        for (what, said) in [
            (told(|r| r[2].bytes.host_to_gpu = 97 << 20), "off uvmsim's"),
            (told(|r| r[0].bytes.host_to_gpu = 300 << 20), "off uvmsim's"),
            (told(|r| r[3].bytes.gpu_to_host = 2 << 20), "off uvmsim's"),
            (told(|r| r[2].faults = 11), "off uvmsim's"),
            (told(|r| r[0].faults = 1021), "off uvmsim's"),
            (told(|r| r[1].faults = 1123), "off uvmsim's"),
            (told(|r| r[1].faults = 1077), "off uvmsim's"),
            (told(|r| r[1].bytes.host_to_gpu += 1), "off uvmsim's"),
            (told(|r| r[0].steps[0] = 1021), "off uvmsim's"),
            (told(|r| r[1].steps[1] = 1077), "off uvmsim's"),
            (told(|r| r[4].steps[0] = 11), "off uvmsim's"),
            (told(|r| r[3].steps.truncate(2)), "2 steps, not 3"),
            (told(|r| r[1].steps.push(1100)), "4 steps, not 3"),
            (told(|r| r[4].steps[1] = 21), "faults off the plan"),
            (told(|r| r[4].left = 0), "left its plan 0 times"),
            (told(|r| r[2].left = 1), "left its plan 1 times"),
            (told(|r| r[3].addresses[1] = 2 << 40), "as train's did"),
            (told(|r| r[2].program_bytes -= 1), "less than twice"),
            (told(|r| drop(r.remove(1))), "it was not run"),
        ] {
            assert_eq!(what.len(), 1, "{what:?}");
            assert!(what[0].contains(said), "{what:?}");
        }
    }

    /// What a program does where it has left its plan, and before it is back, nobody predicts.
    #[test]
    fn a_step_off_the_plan_is_not_compared() {
        assert_eq!(told(|runs| runs[4].steps[2] = 512), Vec::<String>::new());
    }

    /// A plan that faults as often as uvmsim says, which is often, is no good plan.
    #[test]
    fn a_plan_that_leaves_many_faults_is_told_though_they_were_predicted() {
        let with = |faults| {
            told_of(|runs, predictions| {
                for run in &mut runs[2..] {
                    (run.faults, run.steps[0], run.steps[2]) = (faults, faults, faults);
                }
                for run in &mut runs[2..4] {
                    run.steps[1] = faults;
                }
                let plan = predictions.get_mut("plan").unwrap();
                (plan.faults, plan.steps) = (faults, vec![faults; 3]);
            })
        };
        assert_eq!(with(20), Vec::<String>::new());
        let name = |program| format!("{program}, plan: 21 faults, more than 20");
        let programs = ["train", "train-elsewhere", LEAVING];
        assert_eq!(with(21), programs.map(name));
    }

    /// The program's step, as a record of it has it: each kernel's memory, and what is freed behind it.
    fn recorded() -> Workload {
        let mut tensors = vec![(6, "weight", "alloc0".to_owned())];
        for (layer, (mib, _)) in (1..).zip(super::super::LAYERS) {
            tensors.push((mib, "weight", format!("alloc{layer}")));
        }
        let mut kernels: Vec<(&str, Vec<usize>, usize)> = Vec::new();
        let mut make = |mib, kernel| {
            tensors.push((mib, "activation", format!("kernel{kernel}.0")));
            tensors.len() - 1
        };
        let mut handed = vec![0];
        for (layer, (_, mib)) in (1..).zip(super::super::LAYERS) {
            let next = make(mib, kernels.len());
            kernels.push(("forward", vec![handed[layer - 1], layer], next));
            handed.push(next);
        }
        let mut gradient = make(4, kernels.len());
        kernels.push(("loss", vec![handed[8]], gradient));
        for layer in (1..=8).rev() {
            let below = handed[layer - 1];
            let of_below = (below != 0).then(|| {
                let (_, mib) = super::super::LAYERS[layer - 2];
                let made = make(mib, kernels.len());
                kernels.push(("backward", vec![gradient, layer], made));
                made
            });
            kernels.push(("update", vec![below, gradient], layer));
            gradient = of_below.unwrap_or(gradient);
        }
        let mut text = "uvmtrace 1\nmeta name train\n".to_owned();
        for (tensor, (mib, kind, key)) in tensors.iter().enumerate() {
            text += &format!("tensor {tensor} {kind} {} {key}\n", mib << 20);
        }
        for (kernel, (name, reads, written)) in kernels.into_iter().enumerate() {
            let all = reads.iter().chain([&written]);
            let bytes: u64 = all.map(|&tensor| tensors[tensor].0 << 20).sum();
            let ns = bytes as f64 / super::super::RATE * 1e9;
            let reads: Vec<_> = reads.iter().map(usize::to_string).collect();
            let reads = reads.join(",");
            // A record does not know which arguments are only read.
            text +=
                &format!("kernel {kernel} {ns:.0} {name}{kernel} {reads} {reads},{written} -\n");
        }
        Workload::from_trace(&text.parse::<Trace>().unwrap())
    }

    /// Why the demo's prefetcher has more faults than plain UVM: docs/prefetch.md, "Where marks cost faults". The
    /// driver had these in the VM.
    #[test]
    fn the_demo_s_prefetcher_has_these_faults_in_each_step() {
        let (machine, workload) = (machine().unwrap(), recorded());
        let (played, placed) = (faster(&machine, AT_ONCE), placed(&workload));
        let plain = predict(&machine, &workload, &placed, &mut Freeing, STEPS).unwrap();
        let mib = |of: &Predicted| [of.bytes.host_to_gpu >> 20, of.bytes.gpu_to_host >> 20];
        assert_eq!((plain.faults, mib(&plain)), (25_088, [50, 50]));
        let last = learning(&played, &workload, &placed, 1, 5).unwrap();
        assert_eq!(mib(&last), [98, 102]);
        let steps = |ready| {
            let learning = |n| learning(&played, &workload, &placed, ready, n).unwrap();
            [1, 2, 3, 4, 5].map(|n| learning(n).faults)
        };
        assert_eq!(steps(0), [30_720, 35_328, 28_672, 27_136, 27_136]);
        assert_eq!(steps(1), [31_232, 36_864, 35_840, 32_768, 30_720]);
    }

    /// What the program frees is not copied, and the rest is.
    #[test]
    fn what_is_freed_is_not_copied() {
        let text = "uvmtrace 1\nmeta name a\n\
            tensor 0 weight 20971520 alloc0\ntensor 1 activation 20971520 kernel0.0\n\
            kernel 0 1000 a 0 1 -\nkernel 1 1000 b 1 0 -\n";
        let trace: Trace = text.parse().unwrap();
        let workload = Workload::from_trace(&trace);
        let layout = placed(&workload);
        let machine = machine().unwrap();
        let predicted = predict(&machine, &workload, &layout, &mut Freeing, STEPS).unwrap();
        assert!(predicted.faults > 0);
        // The weight's 20 MiB, and at most those 12 that pushed it out.
        assert!(predicted.bytes.gpu_to_host <= 32 << 20, "{predicted:?}");
        let kept = uvmsim_physical::policies::BaseUvm;
        let kept = predict(&machine, &workload, &layout, &mut { kept }, STEPS).unwrap();
        assert!(kept.bytes.gpu_to_host > predicted.bytes.gpu_to_host);
    }
}
