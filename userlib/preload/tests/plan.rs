// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A program under `uvmrun --plan`, on the stub libraries.

#![allow(clippy::unwrap_used)]

#[path = "../../tests/harness.rs"]
mod harness;

use std::process::{Command, Output};
use std::sync::Once;

use harness::{cdylib, cuda_program, have_cc, program, said, tmp, under_preload, under_uvmrun};

/// 16 MiB of tensors: what comes and leaves in a step is 4 + 2 MiB, 4 MiB to the SSD by way
/// of the host, and 6 MiB.
const PLAN: &str = "uvmplan 1\nkernels 3\nspan 16777216\n\
    at 0 allocate 0 0 4194304\nat 1 evict 0 0 4194304 ssd\nat 1 prefetch 1 4194304 2097152\n\
    at 2 copy 1 4194304 2097152 host\nat 2 evict 2 4194304 6291456 host\n\
    at 2 free 3 12582912 1048576\n";
const MIB: u64 = 1 << 20;

/// Runs the program under `uvmrun` with a plan of this text; what is in the stub's log.
fn run(name: &str, plan: &str, driver: &str, moved: u64) -> (Output, Vec<String>) {
    run_with(name, plan, driver, moved, &[])
}

/// The same, with these variables in its environment.
fn run_with(
    name: &str,
    plan: &str,
    driver: &str,
    moved: u64,
    variables: &[(&str, &str)],
) -> (Output, Vec<String>) {
    run_by(name, plan, driver, moved, variables, &[])
}

/// The same, started by these words.
fn run_by(
    name: &str,
    plan: &str,
    driver: &str,
    moved: u64,
    variables: &[(&str, &str)],
    by: &[&str],
) -> (Output, Vec<String>) {
    static BUILT: Once = Once::new();
    let built = tmp("plan-program");
    BUILT.call_once(|| cuda_program("cuda-plan", &built, "plan_program.c"));
    let file = tmp(&format!("{name}.uvmplan"));
    std::fs::write(&file, plan).unwrap();
    let log = tmp(&format!("{name}.log"));
    let options = ["--plan", file.to_str().unwrap(), "--managed-min", "1M"];
    let started = [by, &[built.to_str().unwrap()]].concat();
    let done = under_uvmrun("cuda-plan", &started, &log, &options)
        .env("STUB_UVM", driver)
        .env("UVMRUST_ANNOUNCE", "0")
        .env("STEPS", "2")
        .env("MOVED", moved.to_string())
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let text = std::fs::read_to_string(&log).unwrap_or_default();
    (done, text.lines().map(str::to_owned).collect())
}

/// The bytes of all lines that begin with this word.
fn bytes(log: &[String], word: &str) -> u64 {
    log.iter()
        .filter_map(|line| line.strip_prefix(word))
        .map(|n| n.trim().parse::<u64>().unwrap())
        .sum()
}

#[test]
fn a_plan_is_carried_out_in_the_order_of_the_stream() {
    if !have_cc() {
        return;
    }
    let (done, log) = run("good", PLAN, "ours", 2 * 20 * MIB);
    assert!(done.status.success() && said(&done).is_empty(), "{done:?}");
    assert_eq!(bytes(&log, "prefetch "), 2 * 16 * MIB, "{log:?}");
    assert_eq!(bytes(&log, "spill "), 2 * 4 * MIB, "{log:?}");
    // What is freed is discarded just before the third kernel of the step.
    let order: Vec<_> = log
        .iter()
        .filter(|l| l.starts_with("kernel") || l.starts_with("discard") || l.starts_with("graph"))
        .map(|l| l.split(' ').next().unwrap())
        .collect();
    // (What is captured in between does not run.)
    let step = ["kernel", "kernel", "discard", "kernel"];
    let whole = [&["kernel"][..], &step, &step, &["kernel"]].concat();
    assert_eq!(order, whole, "{log:?}");
    assert!(!log.iter().any(|l| l.contains("VIOLATION")), "{log:?}");
}

/// The range of the plan is gone with the context, and what comes there is another's.
#[test]
fn a_plan_ends_with_the_context_of_its_range() {
    if !have_cc() {
        return;
    }
    let reset = [("RESET", "1")];
    let (done, log) = run_with("reset", PLAN, "ours", 2 * 20 * MIB, &reset);
    assert!(done.status.success() && said(&done).is_empty(), "{done:?}");
    let at = log.iter().position(|line| line == "reset").unwrap();
    let after: Vec<_> = log[at..]
        .iter()
        .filter(|l| !l.starts_with("managed"))
        .collect();
    assert_eq!(after, ["reset", "kernel add", "kernel add", "kernel add"]);
}

/// Drops the last quarter of the range before each launch.
const DROPS: &str = "uvmplan 1\nkernels 1\nspan 16777216\nat 0 free 0 12582912 4194304\n";

/// Runs the program that ends its range in this way; what it and CUDA's log said.
fn ends(how: &str, set: &[(&str, &str)]) -> (Output, Vec<String>) {
    static BUILT: Once = Once::new();
    let name = format!("ends-{how}-{}", set.len());
    let built = tmp("plan-ends");
    BUILT.call_once(|| cuda_program("cuda-ends", &built, "plan_ends_program.c"));
    let plan = tmp(&format!("{name}.uvmplan"));
    let log = tmp(&format!("{name}.log"));
    std::fs::write(&plan, DROPS).unwrap();
    let done = under_preload("cuda-ends", &built, &log)
        .env("UVMRUST_PLAN", plan)
        .env("UVMRUST_ANNOUNCE", "0")
        .env("END", how)
        .envs(set.iter().copied())
        .output()
        .unwrap();
    let text = std::fs::read_to_string(&log).unwrap_or_default();
    (done, text.lines().map(str::to_owned).collect())
}

/// What the plan drops would be lost in memory that is not laid out as the plan says.
#[test]
fn no_other_allocation_becomes_the_range() {
    if !have_cc() {
        return;
    }
    let gone = [
        "freed",
        "destroyed",
        "destroyed-v1",
        "detached",
        "reset",
        "reset-v1",
        "released-v1",
        "green",
        "unhooked",
    ];
    let stays = ["refused", "other", "held", "green-held"];
    for how in gone.into_iter().chain(stays) {
        let (done, log) = ends(how, &[]);
        assert!(
            done.status.success() && said(&done).is_empty(),
            "{how}: {done:?} {log:?}"
        );
    }
}

#[test]
fn a_plan_ends_where_it_is_not_known_if_its_range_is_gone() {
    if !have_cc() {
        return;
    }
    let (done, log) = ends("unknown", &[("STUB_NO_IDS", "1")]);
    assert!(done.status.success(), "{done:?} {log:?}");
    let says = "uvmrust: the plan ends here: it is not known whether the memory that it is for \
                is still there\n";
    assert_eq!(said(&done), says);
}

/// Nobody knows which of the plan's kernels the program launches next.
#[test]
fn a_plan_ends_where_cuda_refuses_a_launch() {
    if !have_cc() {
        return;
    }
    for how in ["launch", "launch-ex", "cooperative", "graph"] {
        let (done, log) = ends(how, &[]);
        assert!(done.status.success(), "{how}: {done:?} {log:?}");
        let says =
            "uvmrust: the plan ends here: CUDA has refused a launch, so that it is not known \
                    where in the plan the program is\n";
        assert_eq!(said(&done), says, "{how}");
    }
}

/// A record forgets what a context takes with it, and nothing else.
#[test]
fn what_is_of_another_context_stays_in_a_record() {
    if !have_cc() {
        return;
    }
    let gone = [
        "destroyed",
        "destroyed-v1",
        "detached",
        "reset-v1",
        "released-v1",
        "green",
    ];
    let cases = [("other", 0), ("held", 0), ("green-held", 0)].into_iter();
    for (how, freed) in cases.chain(gone.map(|how| (how, 1))) {
        let text = record(how, &[]);
        assert_eq!(text.matches("\nf ").count(), freed, "{how}: {text}");
    }
}

/// Where CUDA does not tell what is gone with a context, nothing of another's is taken to be.
#[test]
fn what_may_be_of_another_context_stays_in_a_record() {
    if !have_cc() {
        return;
    }
    let text = record("other", &[("STUB_NO_IDS", "1")]);
    assert!(!text.contains("\nf "), "{text}");
}

/// What is recorded of the program that ends its range in this way.
fn record(how: &str, set: &[(&str, &str)]) -> String {
    let folder = tmp(&format!("ends-record-{how}-{}", set.len()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir(&folder).unwrap();
    let records = [("UVMRUST_RECORD", folder.to_str().unwrap())];
    let (done, log) = ends(how, &[&records, set].concat());
    // Without numbers of allocations the program's plan ends, which it says.
    assert!(
        done.status.success() || !set.is_empty(),
        "{how}: {done:?} {log:?}"
    );
    let file = std::fs::read_dir(&folder).unwrap().next().unwrap().unwrap();
    std::fs::read_to_string(file.path()).unwrap()
}

/// The context goes with its last reference, while launches of another context are still to come.
#[test]
fn nothing_is_dropped_in_a_range_that_is_released() {
    if !have_cc() {
        return;
    }
    let (done, log) = ends("released", &[]);
    assert!(done.status.success(), "{done:?}");
    let at = log.iter().position(|line| line == "release").unwrap();
    assert!(log[at..].contains(&"kernel put".to_owned()), "{log:?}");
    assert!(
        !log[at..].iter().any(|line| line.starts_with("discard")),
        "{log:?}"
    );
}

#[test]
fn a_driver_without_an_ssd_is_told_of_once() {
    if !have_cc() {
        return;
    }
    let (done, log) = run("old", PLAN, "old", 2 * 16 * MIB);
    assert!(done.status.success(), "{done:?}");
    assert_eq!(bytes(&log, "prefetch "), 2 * 16 * MIB, "{log:?}");
    assert!(!log.iter().any(|l| l.starts_with("discard")), "{log:?}");
    assert!(said(&done).matches("not carried out in full").count() <= 1);
    // This one discards, and lacks the SSD alone. (Whether the first move has failed before the
    // last launch is the threads' affair.)
    let many = [("STEPS", "100")];
    let (done, log) = run_with("native", PLAN, "native", 16 * MIB, &many);
    assert!(done.status.success(), "{done:?}");
    assert!(log.iter().any(|l| l.starts_with("discard")), "{log:?}");
    let said = said(&done);
    let ssd =
        "uvmrust: the plan is not carried out in full: no driver here moves memory to an SSD, \
               so that what is to go there stays in host memory\n";
    assert!(said.is_empty() || said == ssd, "{said}");
}

#[test]
fn nothing_is_done_without_a_range_for_the_plan() {
    if !have_cc() {
        return;
    }
    let large = PLAN.replace("span 16777216", "span 33554432");
    let (done, log) = run("large", &large, "ours", 0);
    assert!(done.status.success(), "{done:?}");
    assert_eq!((bytes(&log, "prefetch "), bytes(&log, "spill ")), (0, 0));
}

/// Its environment is inherited, and its plan is not for what it starts.
#[test]
fn a_program_that_the_program_starts_has_no_plan() {
    if !have_cc() {
        return;
    }
    let by = ["sh", "-c", "\"$0\"; exit $?"];
    let (done, log) = run_by("child", PLAN, "ours", 0, &[], &by);
    assert!(done.status.success(), "{done:?}");
    let says = "uvmrust: the plan is for the program that uvmrun has started, and not for this one";
    assert_eq!(said(&done).matches(says).count(), 1, "{done:?}");
    assert!(log.iter().any(|l| l.starts_with("kernel")), "{log:?}");
    assert!(
        !log.iter()
            .any(|l| l.starts_with("discard") || l.starts_with("prefetch")),
        "{log:?}"
    );
}

#[test]
fn what_is_wrong_is_said_before_the_program_runs() {
    if !have_cc() {
        return;
    }
    let bad = PLAN.replace("at 2 free", "at 9 free");
    let (done, log) = run("bad", &bad, "ours", 0);
    assert_eq!(done.status.code(), Some(125));
    assert!(
        said(&done).contains("line 9: there is no kernel 9"),
        "{done:?}"
    );
    assert_eq!(log.len(), 0);
    let run = |args: &[&str]| {
        let done = Command::new(program("uvmrun")).args(args).output().unwrap();
        (done.status.code(), said(&done))
    };
    let library = cdylib("uvmrust-preload", false);
    let library = library.to_str().unwrap();
    assert_eq!(run(&["--library", library, "/nowhere"]).0, Some(127));
    assert_eq!(run(&["--library", library, "/"]).0, Some(126));
    let (code, said) = run(&["--library", "/nowhere.so", "true"]);
    assert!(
        code == Some(125) && said.contains("make -C userlib"),
        "{said}"
    );
    assert_eq!(run(&["--plan", "/nowhere.uvmplan", "true"]).0, Some(125));
    assert_eq!(run(&[]).0, Some(125));
}
