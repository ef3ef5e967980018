// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The recorder in programs that end, wait or call CUDA where it may not expect that, on the stub libraries.

#![allow(clippy::unwrap_used)]

#[path = "../../tests/harness.rs"]
mod harness;

use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::OnceLock;

use harness::{cuda_program, have_cc, said, tmp, under_preload, under_uvmrun};

/// The folder of the program's CUDA.
const CUDA: &str = "cuda-hostile";

fn program() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let built = tmp("hostile-program");
        cuda_program(CUDA, &built, "hostile_program.c");
        built
    })
}

/// The program under `uvmrun --record`: what that did, and the trace.
fn traced(how: &str) -> (Output, String) {
    let trace = tmp(&format!("hostile-{how}.uvmtrace"));
    let log = tmp(&format!("hostile-{how}.log"));
    let _ = std::fs::remove_file(&trace);
    let options = ["--record", trace.to_str().unwrap()];
    let mut command = under_uvmrun(CUDA, &[program()], &log, &options);
    let done = command.env("HOW", how).output().unwrap();
    let text = std::fs::read_to_string(&trace).unwrap_or_default();
    (done, text)
}

/// What the program has recorded of itself, and printed.
fn recorded(how: &str, tools: bool) -> (String, String) {
    let folder = tmp(&format!("hostile-{how}"));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir(&folder).unwrap();
    let log = tmp(&format!("hostile-{how}-alone.log"));
    let mut command = under_preload(CUDA, program(), &log);
    command.env("UVMRUST_RECORD", &folder).env("HOW", how);
    command.env("UVMRUST_ANNOUNCE", "0");
    if tools {
        command.env("STUB_TOOLS", "0");
    }
    let done = command.output().unwrap();
    assert!(done.status.success(), "{how}: {done:?}");
    let file = std::fs::read_dir(&folder).unwrap().next().unwrap().unwrap();
    let text = std::fs::read_to_string(file.path()).unwrap();
    let text = text.trim_end_matches('\0').to_owned();
    (text, String::from_utf8(done.stdout).unwrap())
}

/// How many lines of the record begin so.
fn count(record: &str, with: &str) -> usize {
    record.lines().filter(|line| line.starts_with(with)).count()
}

/// CUDA calls what calls CUDA, or waits for a thread that does.
#[test]
fn what_is_done_in_the_midst_of_a_question_to_cuda_or_uvm_is_recorded() {
    if !have_cc() {
        return;
    }
    for when in ["elapsed", "opened", "closed"] {
        for how in [when.to_owned(), format!("others-{when}")] {
            let (record, _) = recorded(&how, true);
            assert_eq!(count(&record, "k 0 layer "), 40, "{how}: {record}");
            assert_eq!(count(&record, "k 0 meanwhile "), 1, "{how}: {record}");
            let (made, freed) = (count(&record, "a "), count(&record, "f "));
            // A reset takes the other one.
            let gone = 1 + usize::from(when == "closed");
            assert_eq!((made, freed), (2, gone), "{how}: {record}");
            assert!(!record.contains("\nx\n"), "{how}: {record}");
            // Each launch has its time: at the end of the process, at the latest.
            let times = 41 - usize::from(when == "closed");
            assert!(count(&record, "t ") >= times, "{how}: {record}");
        }
    }
}

#[test]
fn a_program_may_end_in_the_midst_of_a_line_and_the_record_is_cut_there() {
    if !have_cc() {
        return;
    }
    for how in ["signal", "thread"] {
        let (done, trace) = traced(how);
        assert_eq!(done.status.code(), Some(7), "{how}: {done:?}");
        let says = "; the record is cut where the program ended";
        assert!(said(&done).contains(says), "{how}: {done:?}");
        assert!(trace.contains("meta steps "), "{how}: {trace}");
    }
}

/// The new program has the number of the old one.
#[test]
fn a_program_that_calls_exec_keeps_its_record() {
    if !have_cc() {
        return;
    }
    let (done, trace) = traced("exec");
    assert!(done.status.success(), "{done:?}");
    let said = said(&done);
    assert!(said.contains("20 launches, a step of 1 20 times"), "{said}");
    assert!(said.contains("; of 1 more of its processes"), "{said}");
    assert!(trace.contains("meta steps 20\n"), "{trace}");
}

#[test]
fn launches_that_have_no_time_leave_no_events_behind() {
    if !have_cc() {
        return;
    }
    let (record, printed) = recorded("refused", false);
    assert_eq!(count(&record, "k "), 300, "{record}");
    let events = printed.strip_suffix(" events\n").unwrap();
    // Some run while the next is launched.
    let events: u32 = events.parse().unwrap();
    assert!(events <= 64, "{events}");
}

#[test]
fn no_event_is_used_of_a_context_that_is_gone() {
    if !have_cc() {
        return;
    }
    let (record, _) = recorded("released", false);
    assert_eq!(count(&record, "k 0 layer "), 105, "{record}");
    assert_eq!(count(&record, "k 0 elsewhere "), 40, "{record}");
    // What ran while the context went may have none.
    assert!(count(&record, "t ") >= 100, "{record}");
}

#[test]
fn contexts_that_come_and_go_leave_no_events_behind() {
    if !have_cc() {
        return;
    }
    for (how, launches) in [("contexts", 200), ("green", 300)] {
        let (record, printed) = recorded(how, false);
        assert_eq!(count(&record, "k "), launches, "{how}: {record}");
        let events = printed.strip_suffix(" events\n").unwrap();
        let events: u32 = events.parse().unwrap();
        assert!(events <= 8, "{how}: {events}");
    }
}

#[test]
fn a_child_that_only_ends_does_not_call_cuda() {
    if !have_cc() {
        return;
    }
    let (record, _) = recorded("child", false);
    assert_eq!(count(&record, "t "), 20, "{record}");
}

/// The thread that reads what is said is in need of what is locked in a launch.
#[test]
fn what_is_said_of_a_plan_is_said_where_nothing_is_locked() {
    if !have_cc() {
        return;
    }
    let plan = tmp("hostile-full.uvmplan");
    let text = "uvmplan 1\nkernels 1\nspan 4096\nstart 0\nlaunch 0 other\n";
    std::fs::write(&plan, text).unwrap();
    let options = ["--plan", plan.to_str().unwrap()];
    let log = tmp("hostile-full.log");
    let mut command = under_uvmrun(CUDA, &[program()], &log, &options);
    let done = command.env("HOW", "full").output().unwrap();
    assert!(done.status.success(), "{done:?}");
}
