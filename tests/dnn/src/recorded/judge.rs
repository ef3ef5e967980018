// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What uvmsim predicts of a recorded program, and whether its runs were so.

use super::{
    Places, Run, AHEAD, DATA, DEEPUM, ELSEWHERE, GPU_BYTES, LAYERS, LEARNING, LEAVES, LEAVING,
    NEAR, NO_TREE, OTHER_LAYERS, PREEVICT, STEPS, UVM,
};
use crate::play::{off_percent, shown, MOST_PERCENT};
use crate::scaled::{faster, Bytes, AT_ONCE, MACHINE};
use anyhow::{ensure, Context, Result};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use uvm_policy::prefetch::worker::Params;
use uvm_policy::prefetch::Config;
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

/// What uvmsim says of each policy that it predicts, and of the program whose memory has other sizes.
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
    let elsewhere = resized(&workload, OTHER_LAYERS)?;
    let uvm = |n| predict(&machine, &workload, &placed, &mut Freeing, n);
    let learnt = |discards, ahead| {
        let ready = 1;
        let with = Learning {
            discards,
            ready,
            ahead,
        };
        let last = |n| learning(&played, &workload, &placed, with, n);
        each_step(STEPS + LEARNING, last)
    };
    // A plan moves allocations as a whole, of whatever size they are in this run.
    let planned = |workload: &Workload, layout: &Layout, n| {
        let mut planned = Planned::new("plan", plan.clone(), Tier::Host);
        predict(&played, workload, layout, &mut planned, n)
    };
    let other = Layout::new(&elsewhere);
    let of_plan = |n| planned(&workload, &layout, n);
    let of_elsewhere = |n| planned(&elsewhere, &other, n);
    Ok(Predictions::from([
        (NO_TREE, each_step(STEPS, uvm)?),
        (PREEVICT, learnt(false, AHEAD)?),
        (DEEPUM, learnt(true, AHEAD)?),
        (NEAR, learnt(true, 1)?),
        ("plan", each_step(STEPS, of_plan)?),
        (ELSEWHERE, each_step(STEPS, of_elsewhere)?),
    ]))
}

/// The step of a program whose layers have these MiB, by that of `train`: what is there from the start is
/// `allocN`, and what the step makes comes in the order of its first uses.
fn resized(workload: &Workload, layers: [(u64, u64); 8]) -> Result<Workload> {
    let mut resized = workload.clone();
    let mut made = Vec::new();
    for (t, tensor) in resized.tensors.iter_mut().enumerate() {
        let number = tensor.name.strip_prefix("alloc").map(str::parse::<usize>);
        match number.transpose()? {
            Some(0) => tensor.bytes = DATA << 20,
            Some(layer) => {
                let layer = layers.get(layer - 1);
                tensor.bytes = layer.context("the trace has more layers")?.0 << 20;
            }
            None => made.push(t),
        }
    }
    made.sort_by_key(|&t| resized.tensors[t].first());
    // Gradients have the sizes of what was handed on.
    let handed = layers.map(|(_, handed)| handed);
    let sizes: Vec<_> = handed.iter().chain(handed.iter().rev()).collect();
    ensure!(made.len() == sizes.len(), "the trace's step is another");
    for (t, mib) in made.into_iter().zip(sizes) {
        resized.tensors[t].bytes = mib << 20;
    }
    Ok(resized)
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
/// off there and in the VM, but for `uvm`, which is not predicted: what it brings depends on which faults
/// come just before a batch is fetched and which just behind, and that on the host's load.
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

/// The driver's prefetcher, and what the program does with memory that its kernels need no more.
#[derive(Clone, Copy)]
struct Learning {
    /// Its allocator keeps that, and discards it; otherwise that is freed.
    discards: bool,
    /// The value of `uvm_rust_preevict`: how many chunks the driver keeps ready.
    ready: u32,
    /// The value of `uvm_rust_prefetch_ahead`: how many kernels ahead the driver fetches.
    ahead: u32,
}

/// The driver's prefetcher under such a program: the last of some steps.
fn learning(
    machine: &Machine,
    workload: &Workload,
    layout: &Layout,
    with: Learning,
    steps: u32,
) -> Result<Predicted> {
    let ids = execution_ids(workload, layout);
    let params = Params {
        act: true,
        watermark: with.ready,
        tenant: 1,
    };
    let config = Config {
        ahead: with.ahead,
        ..deepum_config()
    };
    let driver = Driver::new(ids, config, params);
    let mut driver = driver.map_err(|e| anyhow::anyhow!("uvmsim: {e}"))?;
    if with.discards {
        driver = driver.discarding();
    }
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
    let of = match &*run.program {
        ELSEWHERE => ELSEWHERE,
        _ => &*run.policy,
    };
    let predicted = predictions.get(of).cloned();
    let off_percent = predicted.as_ref().map(|p| off(run, p));
    Judged {
        program: run.program.clone(),
        policy: run.policy.clone(),
        faults: run.faults,
        bytes: run.bytes,
        predicted,
        off_percent,
        verified: verified(run),
        program_bytes: run.program_bytes,
        gpu_bytes: run.gpu_bytes,
    }
}

/// Whether all of the data and weights, which a program allocates first, were compared at the end of this run, and no
/// byte of them was wrong, nor a word of what its kernels checked.
fn verified(run: &Run) -> bool {
    let lasting = run.sizes.iter().take(1 + LAYERS.len());
    let wrong = run.differ + run.mismatches;
    run.compared > 0 && run.compared == lasting.sum::<u64>() && wrong == 0
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
        "{:<16} {:<15} {:>7} {:>7} {:>7} {:>7} {:>7} {:>7} {:>6}",
        "MiB", "policy", "to GPU", "of", "back", "of", "faults", "of", "off %"
    );
    for run in runs {
        let mib = |bytes: u64| bytes as f64 / 1048576.0;
        let predicted = run.predicted.as_ref().map(|p| p.bytes);
        println!(
            "{:<16} {:<15} {:>7.1} {:>7} {:>7.1} {:>7} {:>7} {:>7} {:>6}",
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
const WANTED: [(&str, &str); 8] = [
    ("train", NO_TREE),
    ("train", UVM),
    ("train", PREEVICT),
    ("train", NEAR),
    ("train", DEEPUM),
    ("train", "plan"),
    (ELSEWHERE, "plan"),
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
    let Some(recorded) = found("train", NO_TREE) else {
        return wrong;
    };
    // Plain UVM's faults, with its prefetcher if those are fewer.
    let plain = found("train", UVM).map_or(recorded.faults, |uvm| uvm.faults.min(recorded.faults));
    let most = plain as f64 * MOST_PERCENT / 100.0;
    for (run, judged) in runs.iter().zip(judged) {
        let name = format!("{}, {}", run.program, run.policy);
        if !judged.verified {
            let (compared, differ, words) = (run.compared, run.differ, run.mismatches);
            wrong.push(format!(
                "{name}: wrong data, or not all of it was compared: {differ} of {compared} bytes, and {words} words \
                 that kernels read"
            ));
        }
        if let Some(off) = judged.off_percent.filter(|&off| off > MOST_PERCENT) {
            let predicted = judged.predicted.as_ref().map(|p| &p.steps);
            wrong.push(format!(
                "{name}: {off:.2} % off uvmsim's; faults of its steps {:?}, predicted {predicted:?}",
                run.steps
            ));
        }
        let predicted = judged.predicted.as_ref().map(|p| p.steps.len());
        if let Some(predicted) = predicted.filter(|&n| n != run.steps.len()) {
            let steps = run.steps.len();
            if run.program != LEAVING {
                wrong.push(format!("{name}: {steps} steps, not {predicted}"));
            }
        }
        if run.policy == NO_TREE {
            continue;
        }
        let faults = run.faults;
        if run.policy == UVM && faults > recorded.faults {
            let without = recorded.faults;
            wrong.push(format!(
                "{name}: {faults} faults, and {without} without its prefetcher"
            ));
        }
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
        if leaves && faults.is_none_or(|faults| faults as f64 > most) {
            wrong.push(format!(
                "{LEAVING}: {faults:?} faults off the plan, more than {most:.0}"
            ));
        }
    }
    if let Some(elsewhere) = found(ELSEWHERE, "plan") {
        if distances(recorded) == distances(elsewhere) {
            wrong.push(format!("{ELSEWHERE}: its memory lies as train's did"));
        }
        if recorded.sizes == elsewhere.sizes {
            wrong.push(format!("{ELSEWHERE}: its memory has the sizes of train's"));
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
mod tests;
