// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What kernels fault on, in the record of a program on the stub libraries, which tell of faults as UVM's
//! tools interface does (`userlib/tests/stub/tools.c`).

#![allow(clippy::unwrap_used)]

#[path = "../../tests/harness.rs"]
mod harness;

use std::path::PathBuf;
use std::process::Output;
use std::sync::OnceLock;

use harness::{cuda_program, have_cc, said, tmp, under_uvmrun};

/// A record of the program with these variables: what `uvmrun` did, and the trace.
fn record(name: &str, variables: &[(&str, &str)]) -> (Output, String) {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        let built = tmp("reach-program");
        cuda_program("cuda-faults", &built, "reach_program.c");
        built
    });
    let (trace, log) = (
        tmp(&format!("{name}.uvmtrace")),
        tmp(&format!("{name}.log")),
    );
    let _ = std::fs::remove_file(&trace);
    let options = ["--record", trace.to_str().unwrap()];
    let done = under_uvmrun("cuda-faults", &[built], &log, &options)
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let log = std::fs::read_to_string(&log).unwrap_or_default();
    assert!(!log.contains("VIOLATION"), "{log}");
    assert!(done.status.success(), "{done:?}");
    (done, std::fs::read_to_string(&trace).unwrap())
}

/// What each kernel of the trace reads.
fn reads(trace: &str) -> Vec<(&str, &str)> {
    let lines = trace.lines().filter(|line| line.starts_with("kernel "));
    let fields = lines.map(|line| line.split(' ').collect::<Vec<_>>());
    fields.map(|f| (f[3], f[4])).collect()
}

/// The allocations that the trace has.
fn tensors(trace: &str) -> Vec<&str> {
    let lines = trace.lines().filter(|line| line.starts_with("tensor "));
    lines.map(|line| line.split(' ').nth(4).unwrap()).collect()
}

const REACHED: [(&str, &str); 2] = [("chase", "0,1"), ("layer", "2")];
const GIVEN: [(&str, &str); 2] = [("chase", "0"), ("layer", "1")];

#[test]
fn what_a_kernel_reaches_by_a_pointer_is_recorded_by_its_faults() {
    if !have_cc() {
        return;
    }
    let (done, trace) = record("reached", &[("STEPS", "20"), ("STUB_TOOLS", "0")]);
    assert_eq!(tensors(&trace), ["alloc0", "alloc1", "alloc2"], "{trace}");
    assert_eq!(reads(&trace), REACHED, "{trace}");
    assert!(
        trace.contains("meta faults tools, of 2 of 2 kernels\n"),
        "{trace}"
    );
    assert!(
        trace.contains("meta accesses arguments and faults,"),
        "{trace}"
    );
    assert!(!said(&done).contains("faults"), "{done:?}");

    let without = [
        ("STEPS", "20"),
        ("STUB_TOOLS", "0"),
        ("UVMRUST_RECORD_FAULTS", "0"),
    ];
    let (done, trace) = record("not-asked", &without);
    assert_eq!(tensors(&trace), ["alloc0", "alloc2"], "{trace}");
    assert_eq!(reads(&trace), GIVEN, "{trace}");
    assert!(!said(&done).contains("fault"), "{done:?}");
}

/// There is no such device, or the user may not open it.
#[test]
fn where_uvm_does_not_tell_that_is_said_and_all_else_is_recorded() {
    if !have_cc() {
        return;
    }
    for (name, tools, why) in [
        ("missing", None, "No such file or directory"),
        (
            "denied",
            Some(("STUB_TOOLS", "denied")),
            "Permission denied",
        ),
    ] {
        let variables: Vec<_> = [("STEPS", "20")].into_iter().chain(tools).collect();
        let (done, trace) = record(name, &variables);
        assert_eq!(reads(&trace), GIVEN, "{trace}");
        assert!(
            trace.contains("meta faults tools, of 0 of 2 kernels\n"),
            "{trace}"
        );
        let said = said(&done);
        let told = format!(
            "uvmrust: what kernels fault on is not recorded for now, since UVM's tools interface does \
             not tell: {why}"
        );
        assert!(said.starts_with(&told), "{said}");
        assert_eq!(said.matches("fault").count(), 1, "{said}");
    }
}

/// What is said finds no room, in a pipe that the program itself reads. Its reader launches a kernel
/// first.
#[test]
fn what_is_said_holds_up_no_other_thread() {
    if !have_cc() {
        return;
    }
    let variables = [("STEPS", "3"), ("STUB_TOOLS", "denied"), ("READS", "1")];
    let (done, _) = record("reads", &variables);
    assert!(
        said(&done).contains("does not tell: Permission"),
        "{done:?}"
    );
}

/// A program that has as many files open as it may, for a time.
#[test]
fn where_no_descriptor_is_to_be_had_uvm_is_asked_again() {
    if !have_cc() {
        return;
    }
    let (done, trace) = record("busy", &[("STEPS", "20"), ("STUB_TOOLS", "2")]);
    assert_eq!(reads(&trace), REACHED, "{trace}");
    let said = said(&done);
    assert!(
        said.contains("does not tell: Too many open files"),
        "{said}"
    );
    // Asked at launches 0, 1 and 3.
    assert!(
        said.contains("; faults of 3 launches are not known\n"),
        "{said}"
    );
}

#[test]
fn faults_that_find_no_room_are_said_in_the_trace() {
    if !have_cc() {
        return;
    }
    let variables = [
        ("STEPS", "3"),
        ("STUB_TOOLS", "0"),
        ("STUB_FAULTS", "70000"),
    ];
    let (done, trace) = record("many", &variables);
    // At the next launch the queue is taken out; of 70000, one more of each "chase", and 65535 of room.
    let lost = 3 * (70001 - 65535) + 3 * (70000 - 65535);
    let told = format!("meta faults tools, of 2 of 2 kernels, {lost} lost\n");
    assert!(trace.contains(&told), "{trace}");
    let told = format!("; {lost} faults are not known, for want of room\n");
    assert!(said(&done).contains(&told), "{done:?}");
}

/// The files that the program then opens have the numbers of those that the recorder had.
#[test]
fn a_program_may_close_what_the_recorder_has_open() {
    if !have_cc() {
        return;
    }
    let variables = [("STEPS", "40"), ("STUB_TOOLS", "0"), ("CLOSE", "10")];
    let (done, trace) = record("closed", &variables);
    assert_eq!(reads(&trace), REACHED, "{trace}");
    let said = said(&done);
    let why = "since the program has closed the descriptor of UVM's tools interface";
    assert_eq!(said.matches(why).count(), 1, "{said}");
    // Looked at by launches 16 and 32.
    assert!(
        said.contains("; faults of 16 launches are not known\n"),
        "{said}"
    );
    // Nothing is launched behind that but a few.
    let variables = [("STEPS", "5"), ("STUB_TOOLS", "0"), ("CLOSE", "4")];
    let (done, _) = record("closed-late", &variables);
    let said = self::said(&done);
    assert!(said.contains(why), "{said}");
    assert!(
        said.contains("; faults of 10 launches are not known\n"),
        "{said}"
    );
}

#[test]
fn a_child_leaves_its_parents_record_as_it_is() {
    if !have_cc() {
        return;
    }
    let variables = [("STEPS", "20"), ("STUB_TOOLS", "0"), ("FORK", "5")];
    let (done, trace) = record("forked", &variables);
    assert_eq!(reads(&trace), REACHED, "{trace}");
    assert!(!said(&done).contains("fault"), "{done:?}");
    assert!(said(&done).contains("40 launches"), "{done:?}");
}

#[test]
fn the_last_launches_before_a_reset_have_their_times_and_faults() {
    if !have_cc() {
        return;
    }
    let variables = [("STEPS", "5"), ("STUB_TOOLS", "0"), ("RESET", "1")];
    let (done, trace) = record("reset", &variables);
    assert!(
        trace.contains("meta times events, of 2 of 2 kernels\n"),
        "{trace}"
    );
    assert_eq!(reads(&trace), REACHED, "{trace}");
    assert!(!said(&done).contains("fault"), "{done:?}");
}
