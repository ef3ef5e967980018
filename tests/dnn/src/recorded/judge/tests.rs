// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What is told of runs that are not as predicted, and what uvmsim predicts of the demo's step.

#![allow(clippy::unwrap_used)]

mod replayed;

use super::*;
use uvmsim_physical::plan::best;

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
        // The same bytes for each, but in the order of its layers.
        sizes: vec![GPU_BYTES, GPU_BYTES + second],
        compared: 2 * GPU_BYTES + second,
        differ: 0,
        mismatches: 0,
    }
}

fn told(change: impl FnOnce(&mut Vec<Run>)) -> Vec<String> {
    told_of(|runs, _| change(runs))
}

fn told_of(change: impl FnOnce(&mut Vec<Run>, &mut Predictions)) -> Vec<String> {
    let mut runs = vec![
        run("train", NO_TREE, 1000, 200 << 20, 2 << 40),
        run("train", "deepum", 1122, 204 << 20, 2 << 40),
        run("train", "plan", 10, 98 << 20, 2 << 40),
        run(ELSEWHERE, "plan", 0, 202 << 20, 3 << 40),
        run(LEAVING, "plan", 0, 100 << 20, 2 << 40),
        run("train", UVM, 990, 200 << 20, 2 << 40),
        run("train", PREEVICT, 1400, 300 << 20, 2 << 40),
        run("train", NEAR, 0, 198 << 20, 2 << 40),
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
        (NO_TREE, of(1000, 200)),
        (PREEVICT, of(1400, 300)),
        (NEAR, of(0, 198)),
        ("deepum", of(1100, 200)),
        ("plan", of(0, 100)),
        (ELSEWHERE, of(0, 200)),
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
        (told(|r| r[3].bytes.host_to_gpu = 100 << 20), "off uvmsim's"),
        (
            told(|r| (r[3].sizes, r[3].compared) = (r[0].sizes.clone(), r[0].compared)),
            "the sizes of train's",
        ),
        (told(|r| r[0].differ = 1), "1 of "),
        (told(|r| r[4].mismatches = 1), "1 words that kernels read"),
        (told(|r| r[1].compared -= 1), "not all of it was compared"),
        (told(|r| r[1].compared += 1), "not all of it was compared"),
        (
            told(|r| (r[2].compared, r[2].sizes) = (0, Vec::new())),
            "0 bytes",
        ),
        (told(|r| r[2].program_bytes -= 1), "less than twice"),
        (told(|r| drop(r.remove(1))), "it was not run"),
        (told(|r| drop(r.remove(5))), "it was not run"),
        (told(|r| drop(r.remove(7))), "it was not run"),
        (told(|r| r[7].faults = 11), "off uvmsim's"),
        (told(|r| r[5].faults = 1001), "without its prefetcher"),
        (told(|r| r[6].bytes.host_to_gpu = 200 << 20), "off uvmsim's"),
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
            for run in &mut runs[2..5] {
                (run.faults, run.steps[0], run.steps[2]) = (faults, faults, faults);
            }
            for run in &mut runs[2..4] {
                run.steps[1] = faults;
            }
            for of in ["plan", ELSEWHERE] {
                let plan = predictions.get_mut(of).unwrap();
                (plan.faults, plan.steps) = (faults, vec![faults; 3]);
            }
        })
    };
    assert_eq!(with(19), Vec::<String>::new());
    // Of 990 faults of plain UVM with its prefetcher, and 1000 without.
    let name = |program| format!("{program}, plan: 20 faults, more than 20");
    let programs = ["train", ELSEWHERE, LEAVING];
    assert_eq!(with(20), programs.map(name));
}

/// The program's step, as a record of it has it: each kernel's memory, and what is freed behind it.
fn recorded() -> Workload {
    let mut tensors = vec![(6, "weight", "alloc0".to_owned())];
    for (layer, (mib, _)) in (1..).zip(LAYERS) {
        tensors.push((mib, "weight", format!("alloc{layer}")));
    }
    let mut kernels: Vec<(&str, Vec<usize>, usize)> = Vec::new();
    let mut make = |mib, kernel| {
        tensors.push((mib, "activation", format!("kernel{kernel}.0")));
        tensors.len() - 1
    };
    let mut handed = vec![0];
    for (layer, (_, mib)) in (1..).zip(LAYERS) {
        let next = make(mib, kernels.len());
        kernels.push(("forward", vec![handed[layer - 1], layer], next));
        handed.push(next);
    }
    let mut gradient = make(4, kernels.len());
    kernels.push(("loss", vec![handed[8]], gradient));
    for layer in (1..=8).rev() {
        let below = handed[layer - 1];
        let of_below = (below != 0).then(|| {
            let (_, mib) = LAYERS[layer - 2];
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
        text += &format!("kernel {kernel} {ns:.0} {name}{kernel} {reads} {reads},{written} -\n");
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
    let with = |ready| Learning {
        discards: false,
        ready,
        ahead: AHEAD,
    };
    let mib = |of: &Predicted| [of.bytes.host_to_gpu >> 20, of.bytes.gpu_to_host >> 20];
    assert_eq!((plain.faults, mib(&plain)), (25_088, [50, 50]));
    let last = learning(&played, &workload, &placed, with(1), 5).unwrap();
    assert_eq!(mib(&last), [98, 102]);
    let steps = |program| {
        let learning = |n| learning(&played, &workload, &placed, program, n).unwrap();
        [1, 2, 3, 4, 5].map(|n| learning(n).faults)
    };
    assert_eq!(steps(with(0)), [30_720, 35_328, 28_672, 27_136, 27_136]);
    assert_eq!(steps(with(1)), [31_232, 36_864, 35_840, 32_768, 30_720]);
}

/// What discards make of the same prefetcher: docs/prefetch.md, "The same with discards". The driver had these in
/// the VM.
#[test]
fn with_discards_the_demo_s_prefetcher_has_these_faults() {
    let (machine, workload) = (machine().unwrap(), recorded());
    let (played, placed) = (faster(&machine, AT_ONCE), placed(&workload));
    let steps = |program| {
        [1, 2, 3, 4, 5].map(|n| learning(&played, &workload, &placed, program, n).unwrap())
    };
    let with = |ahead| Learning {
        discards: true,
        ready: 1,
        ahead,
    };
    let of = |ahead| {
        let steps = steps(with(ahead));
        let [.., last] = &steps;
        let moved = [last.bytes.host_to_gpu >> 20, last.bytes.gpu_to_host >> 20];
        (steps.map(|step| step.faults), moved)
    };
    let all = [26_624, 26_112, 22_016, 26_112, 28_672];
    assert_eq!(of(AHEAD), (all, [218, 220]));
    assert_eq!(of(1), ([26_624, 512, 0, 0, 0], [52, 52]));
    let first = |ahead| (of(ahead).0[4], of(ahead).1);
    assert_eq!(first(4), (0, [60, 60]));
    assert_eq!(first(8), (14_848, [136, 138]));
    assert_eq!(first(16), (31_232, [202, 208]));
}

/// A plan of `train` for `train-elsewhere`: it moves what it names, of whatever size that is.
#[test]
fn a_plan_is_as_good_where_some_sizes_are_others() {
    let (machine, workload) = (machine().unwrap(), recorded());
    let planned_for = Machine {
        gpu_mem: GPU_BYTES,
        keep_clean: 0,
        ..uvmsim_machine::presets::find(MACHINE).unwrap()
    };
    let layout = Layout::new(&workload);
    let found = best::find(&planned_for, &workload, &layout, best::Until::NEVER).unwrap();
    let played = faster(&machine, AT_ONCE);
    let steps = |workload: &Workload| {
        let layout = Layout::new(workload);
        [1, 2, 3].map(|n| {
            let mut planned = Planned::new("plan", found.plan.clone(), Tier::Host);
            let step = predict(&played, workload, &layout, &mut planned, n).unwrap();
            let bytes = step.bytes;
            (
                step.faults,
                bytes.host_to_gpu >> 20,
                bytes.gpu_to_host >> 20,
            )
        })
    };
    let rest = |mib| [(0, mib, mib); 2];
    let [first, then @ ..] = steps(&workload);
    assert_eq!((first, then), ((6144, 76, 52), rest(52)));
    // What is moved tells these sizes from the others.
    let other = resized(&workload, OTHER_LAYERS).unwrap();
    let [first, then @ ..] = steps(&other);
    assert_eq!((first, then), ((6656, 82, 56), rest(56)));
    assert_eq!(
        steps(&resized(&workload, LAYERS).unwrap()),
        steps(&workload)
    );
    // Its bytes at once are twice the GPU's memory as well.
    let mib = OTHER_LAYERS
        .iter()
        .map(|(weights, handed)| weights + handed);
    assert!((DATA + mib.sum::<u64>()) << 20 >= 2 * GPU_BYTES);
    // What carries plans out does as uvmsim says.
    let text = found.plan.text(&workload, &layout);
    assert_eq!(replayed::steps(&text, &other), [6656, 0, 0]);
    assert_eq!(replayed::steps(&text, &workload), [6144, 0, 0]);
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
