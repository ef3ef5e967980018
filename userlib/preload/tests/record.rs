// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A program that is recorded, planned and run with its plan, on the stub libraries.

#![allow(clippy::unwrap_used)]

#[path = "../../tests/harness.rs"]
mod harness;

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use harness::{cuda_program, have_cc, program, said, tmp, under_uvmrun};

const MIB: u64 = 1 << 20;

/// The program under `uvmrun` with these options and variables, and the stub's log.
fn prepared(name: &str, options: &[&str], variables: &[(&str, &str)]) -> (Command, PathBuf) {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        let built = tmp("record-program");
        cuda_program("cuda-record", &built, "record_program.c");
        built
    });
    let log = tmp(&format!("record-{name}.log"));
    let mut command = under_uvmrun("cuda-record", &[built], &log, options);
    command
        .env("STUB_MEMORY", "40")
        .env("STUB_WHERE", "1")
        .envs(variables.iter().copied());
    (command, log)
}

/// Runs the program; what it did, and what is in the stub's log.
fn run(name: &str, options: &[&str], variables: &[(&str, &str)]) -> (Output, Vec<String>) {
    let (mut command, log) = prepared(name, options, variables);
    let done = command.output().unwrap();
    let text = std::fs::read_to_string(&log).unwrap_or_default();
    assert!(!text.contains("VIOLATION"), "{text}");
    (done, text.lines().map(str::to_owned).collect())
}

/// Records a run of the program.
fn record(name: &str, variables: &[(&str, &str)]) -> (Output, PathBuf) {
    let trace = tmp(&format!("{name}.uvmtrace"));
    let _ = std::fs::remove_file(&trace);
    let (done, _) = run(name, &["--record", trace.to_str().unwrap()], variables);
    (done, trace)
}

/// `uvmsim` with these arguments; what it prints.
fn uvmsim(args: &[&str]) -> String {
    let done = Command::new(program("uvmsim")).args(args).output().unwrap();
    assert!(done.status.success(), "{done:?}");
    String::from_utf8(done.stdout).unwrap()
}

/// The trace of four steps, and the plan for a GPU of 40 MiB, made once.
fn planned() -> &'static (PathBuf, PathBuf) {
    static MADE: OnceLock<(PathBuf, PathBuf)> = OnceLock::new();
    MADE.get_or_init(|| {
        let (done, trace) = record("planned", &[("STEPS", "4")]);
        assert!(done.status.success(), "{done:?}");
        let plan = tmp("recorded.uvmplan");
        let (from, to) = (trace.to_str().unwrap(), plan.to_str().unwrap());
        uvmsim(&["plan", "--trace", from, "--gpu-mem", "40MiB", "-o", to]);
        (trace, plan)
    })
}

fn lines(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn a_program_is_recorded_as_a_trace_of_its_step() {
    if !have_cc() {
        return;
    }
    let (trace, _) = planned();
    let text = std::fs::read_to_string(trace).unwrap();
    // 1 us, and 1 ns for each KiB: the stub's kernels (userlib/tests/stub/streams.c).
    let expected = "tensor 0 weight 12582912 alloc0\n\
                    tensor 1 activation 18874368 kernel1.0\n\
                    tensor 2 weight 14680064 alloc1\n\
                    tensor 3 weight 16777216 alloc2\n\
                    kernel 0 13288 embed 0 0 -\n\
                    kernel 1 19432 layer - 1 -\n\
                    kernel 2 15336 layer 2 2 -\n\
                    kernel 3 17384 head 3 3 -\n\
                    kernel 4 19432 loss 1 1 -\n\
                    kernel 5 13288 update 0 0 -\n\
                    kernel 6 15336 update 2 2 -\n\
                    kernel 7 17384 update 3 3 -\n";
    assert!(text.ends_with(expected), "{text}");
    for fact in [
        "source uvmrun",
        "start 3",
        "steps 4",
        "times events, of 8 of 8 kernels",
    ] {
        assert!(text.contains(&format!("meta {fact}\n")), "{text}");
    }
    // uvmsim reads it, and its own plan of it.
    let trace = trace.to_str().unwrap();
    uvmsim(&["trace", trace]);
    let plan = planned().1.to_str().unwrap();
    uvmsim(&[
        "run",
        "--trace",
        trace,
        "--gpu-mem",
        "40MiB",
        "--plan",
        plan,
    ]);
    // The folder in which it was made is gone.
    let left = std::fs::read_dir(tmp("")).unwrap();
    let left = left.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert!(!left.into_iter().any(|n| n.starts_with("planned.uvmtrace.")));
}

/// What a plan moves, by memory and destination, if the program is on it this many times before
/// a kernel while it has the memory.
fn wanted(plan: &Path, times: impl Fn(u32, &str) -> u64) -> BTreeMap<(String, String), u64> {
    let names = BTreeMap::from([
        ("alloc0", "w0"),
        ("alloc1", "w1"),
        ("alloc2", "w2"),
        ("kernel1.0", "own"),
    ]);
    let lines = lines(plan);
    let tensor = |number: &str| {
        let start = format!("tensor {number} ");
        let key = lines
            .iter()
            .find_map(|line| line.strip_prefix(&start))
            .unwrap();
        names[key].to_owned()
    };
    let mut wanted = BTreeMap::new();
    for line in &lines {
        let fields: Vec<_> = line.split(' ').collect();
        let to = match fields[..] {
            ["at", _, "prefetch" | "allocate", ..] => "gpu",
            ["at", _, "evict", ..] => "host",
            _ => continue,
        };
        let name = tensor(fields[3]);
        let times = times(fields[1].parse().unwrap(), &name);
        *wanted.entry((name, to.to_owned())).or_insert(0) += times;
    }
    wanted
}

/// The program's memory, by name: where each was, and how large.
fn memory(done: &Output) -> Vec<(String, u64, u64)> {
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    let line = |line: &str| {
        let fields: Vec<_> = line.split(' ').collect();
        (
            fields[0].to_owned(),
            fields[1].parse().unwrap(),
            fields[2].parse().unwrap(),
        )
    };
    text.lines().map(line).collect()
}

/// What was moved, in times of the whole memory, by name and destination.
fn moved(done: &Output, log: &[String]) -> BTreeMap<(String, String), u64> {
    let memory = memory(done);
    let mut bytes: BTreeMap<(String, String), u64> = BTreeMap::new();
    for line in log.iter().filter_map(|line| line.strip_prefix("migrate ")) {
        let fields: Vec<_> = line.split(' ').collect();
        let (at, length): (u64, u64) = (fields[0].parse().unwrap(), fields[1].parse().unwrap());
        let of = memory
            .iter()
            .find(|(_, base, size)| (*base..base + size).contains(&at));
        let name = of
            .unwrap_or_else(|| panic!("{line} is in none of {memory:?}"))
            .0
            .clone();
        *bytes.entry((name, fields[2].to_owned())).or_default() += length;
    }
    let times = |((name, to), bytes): ((String, String), u64)| {
        let size = memory.iter().find(|(known, ..)| *known == name).unwrap().2;
        assert_eq!(bytes % size, 0, "{name} {to}: {bytes} of {size}");
        ((name, to), bytes / size)
    };
    bytes.into_iter().map(times).collect()
}

#[test]
fn a_plan_is_followed_where_addresses_and_sizes_are_others() {
    if !have_cc() {
        return;
    }
    let plan = &planned().1;
    let wanted = wanted(plan, |_, _| 3);
    assert!(
        wanted.contains_key(&("own".to_owned(), "gpu".to_owned())),
        "{wanted:?}"
    );
    assert!(wanted.keys().any(|(_, to)| to == "host"), "{wanted:?}");
    let mut addresses = Vec::new();
    for more in ["0", "2"] {
        let variables = [("STEPS", "3"), ("MORE", more), ("WAIT", "50")];
        let options = ["--plan", plan.to_str().unwrap()];
        let (done, log) = run(&format!("followed-{more}"), &options, &variables);
        assert!(done.status.success() && said(&done).is_empty(), "{done:?}");
        assert_eq!(moved(&done, &log), wanted, "{log:?}");
        // A plan of what a program does drops nothing: it frees by itself.
        assert!(!log.iter().any(|line| line.starts_with("discard")));
        addresses.push(memory(&done)[0].1);
    }
    assert_ne!(addresses[0], addresses[1]);
}

#[test]
fn off_its_plan_a_program_is_prefetched_for_until_it_is_back() {
    if !have_cc() {
        return;
    }
    let plan = &planned().1;
    let options = ["--plan", plan.to_str().unwrap()];
    let variables = [("STEPS", "6"), ("LEAVE", "1"), ("WAIT", "50")];
    let (done, log) = run("left", &options, &variables);
    assert!(done.status.success(), "{done:?}");
    let said = said(&done);
    let leaves = "uvmrust: the program leaves its plan: `other` is launched where the plan has \
                  kernel 2, `layer`.";
    assert!(
        said.starts_with(leaves) && said.lines().count() == 1,
        "{said}"
    );
    // Of the second step, what is behind `other` is off the plan. Of the third the first kernel
    // is: with the second, it has launched a whole step. What it allocates between these two is
    // not known, and not moved.
    let times = |kernel: u32, name: &str| match (kernel, name) {
        (0, "own") | (1, "own") => 5,
        (_, "own") => 4,
        (1, _) => 6,
        _ => 5,
    };
    let mut wanted = wanted(plan, times);
    // What kernels are given while it is off: `other` and the seven behind it.
    for (name, times) in [("w0", 2), ("w1", 3), ("w2", 2), ("own", 1)] {
        *wanted
            .entry((name.to_owned(), "gpu".to_owned()))
            .or_insert(0) += times;
    }
    assert_eq!(moved(&done, &log), wanted, "{log:?}");
}

/// What a program is told of its plan neither ends it by a panic nor by a signal.
#[test]
fn a_program_goes_on_whose_standard_error_nobody_takes() {
    if !have_cc() {
        return;
    }
    let full = || OwnedFd::from(File::options().write(true).open("/dev/full").unwrap());
    let unread = || OwnedFd::from(UnixStream::pair().unwrap().0);
    for (name, to) in [("full", full()), ("unread", unread())] {
        let options = ["--plan", planned().1.to_str().unwrap()];
        let variables = [("STEPS", "3"), ("LEAVE", "1")];
        let (mut command, log) = prepared(&format!("{name}-error"), &options, &variables);
        let status = command.stderr(to).stdout(Stdio::null()).status().unwrap();
        assert_eq!(status.code(), Some(0), "{name}: {status:?}");
        assert!(log.exists());
    }
}

#[test]
fn a_program_that_repeats_nothing_is_recorded_whole_and_followed() {
    if !have_cc() {
        return;
    }
    let variables = [("STEPS", "2"), ("ONCE", "1"), ("WAIT", "50")];
    let (done, trace) = record("once", &variables);
    assert!(done.status.success(), "{done:?}");
    let text = std::fs::read_to_string(&trace).unwrap();
    assert!(
        text.contains("meta steps 1\n") && text.contains("kernel 18 "),
        "{text}"
    );
    let plan = tmp("once.uvmplan");
    let (from, to) = (trace.to_str().unwrap(), plan.to_str().unwrap());
    uvmsim(&["plan", "--trace", from, "--gpu-mem", "40MiB", "-o", to]);
    let (done, log) = run("once-followed", &["--plan", to], &variables);
    assert!(done.status.success() && said(&done).is_empty(), "{done:?}");
    assert!(
        log.iter().any(|line| line.starts_with("migrate")),
        "{log:?}"
    );
}

#[test]
fn the_programs_status_is_uvmruns_and_what_is_not_recorded_is_said() {
    if !have_cc() {
        return;
    }
    let (done, trace) = record("status", &[("STEPS", "2"), ("STATUS", "7")]);
    assert_eq!(done.status.code(), Some(7), "{done:?}");
    assert!(
        trace.exists() && said(&done).contains("a step of 8 2 times"),
        "{done:?}"
    );
    let (done, trace) = record("nothing", &[("LAUNCHES", "0")]);
    assert_eq!(done.status.code(), Some(125), "{done:?}");
    assert!(
        !trace.exists() && said(&done).contains("uvmrun --check"),
        "{done:?}"
    );
    // In no folder that is there.
    let (done, _) = run("nowhere", &["--record", "/nowhere/trace"], &[]);
    assert_eq!(done.status.code(), Some(125), "{done:?}");
    assert!(
        said(&done).contains("--record needs a file in a folder"),
        "{done:?}"
    );
}

/// A record does not keep memory from being what it is, and says so if there is none.
#[test]
fn memory_that_is_not_managed_is_in_no_trace() {
    if !have_cc() {
        return;
    }
    let variables = [("STEPS", "2"), ("UVMRUST_MANAGED_MIN", "13M")];
    let (done, trace) = record("some", &variables);
    let text = std::fs::read_to_string(trace).unwrap();
    assert!(
        done.status.success() && !text.contains(&format!(" {} ", 12 * MIB)),
        "{text}"
    );
    assert!(text.contains("tensor 1 weight 14680064 alloc0\n"), "{text}");
}

/// The stub's memory has an address all the same, and a plan of such a trace is for the same
/// program in managed memory.
#[test]
fn device_memory_is_recorded_as_what_it_would_be_where_nothing_becomes_managed() {
    if !have_cc() {
        return;
    }
    let (managed, plan) = planned();
    let trace = tmp("as-it-is.uvmtrace");
    let _ = std::fs::remove_file(&trace);
    let options = ["--no-managed", "--record", trace.to_str().unwrap()];
    let (done, log) = run("as-it-is", &options, &[("STEPS", "4")]);
    assert!(done.status.success(), "{done:?}");
    assert!(
        log.iter().any(|line| line.starts_with("device ")),
        "{log:?}"
    );
    assert!(
        !log.iter().any(|line| line.starts_with("managed ")),
        "{log:?}"
    );
    assert_eq!(lines(&trace), lines(managed));
    let same = tmp("as-it-is.uvmplan");
    let (from, to) = (trace.to_str().unwrap(), same.to_str().unwrap());
    uvmsim(&["plan", "--trace", from, "--gpu-mem", "40MiB", "-o", to]);
    assert_eq!(lines(&same), lines(plan));
}

/// The file of the one process that is recorded, once there are so many launches in it.
fn recorded(folder: &Path, launches: usize) -> PathBuf {
    for _ in 0..6000 {
        std::thread::sleep(Duration::from_millis(10));
        let file = std::fs::read_dir(folder).ok().and_then(|mut f| f.next());
        let Some(Ok(file)) = file else { continue };
        let text = std::fs::read_to_string(file.path()).unwrap();
        if text.lines().filter(|line| line.starts_with('k')).count() >= launches {
            return file.path();
        }
    }
    panic!(
        "{launches} launches are not recorded in {}",
        folder.display()
    );
}

/// A shell without job control starts what is to run in its background with SIGINT ignored, which
/// programs inherit, and which uvmrun respects. These tests may run there.
fn asks_for_no_signal(command: &mut Command) {
    let default = || {
        // SAFETY: a system call, which a child may make between fork and exec.
        unsafe { libc::signal(libc::SIGINT, libc::SIG_DFL) };
        Ok(())
    };
    // SAFETY: the function makes a system call and neither allocates nor locks.
    unsafe { command.pre_exec(default) };
}

/// What a program has said that ends within a minute; its group is ended if it does not.
fn ended(mut running: Child) -> Output {
    for _ in 0..6000 {
        if running.try_wait().unwrap().is_some() {
            return running.wait_with_output().unwrap();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    // SAFETY: a signal to the group of our own child, which has not been waited for.
    unsafe { libc::kill(-(running.id() as i32), libc::SIGKILL) };
    panic!("not ended: {:?}", running.wait_with_output());
}

/// By Ctrl-C, which all processes get; by a signal to uvmrun alone; and by one that nobody can
/// catch.
#[test]
fn a_program_that_is_ended_half_way_leaves_a_whole_trace() {
    if !have_cc() {
        return;
    }
    for (how, status) in [("all", 130), ("uvmrun", 130), ("program", 137)] {
        let trace = tmp(&format!("ended-{how}.uvmtrace"));
        let _ = std::fs::remove_file(&trace);
        let options = ["--record", trace.to_str().unwrap()];
        let variables = [("STEPS", "1000000"), ("WAIT", "1")];
        let (mut command, _) = prepared(&format!("ended-{how}"), &options, &variables);
        command.process_group(0).stderr(Stdio::piped());
        asks_for_no_signal(&mut command);
        let running = command.stdout(Stdio::null()).spawn().unwrap();
        let mut folder = trace.clone().into_os_string();
        folder.push(format!(".{}", running.id()));
        let file = recorded(Path::new(&folder), 3 + 8 * 4);
        let number = file.file_name().unwrap().to_str().unwrap();
        let (signal, to) = match how {
            "all" => ("-INT", format!("-{}", running.id())),
            "uvmrun" => ("-INT", running.id().to_string()),
            _ => ("-KILL", number.to_owned()),
        };
        let sent = Command::new("kill").args([signal, "--", &to]).status();
        assert!(sent.unwrap().success());
        let done = ended(running);
        assert_eq!(done.status.code(), Some(status), "{how}: {done:?}");
        assert!(said(&done).contains("a step of 8"), "{how}: {done:?}");
        let text = std::fs::read_to_string(&trace).unwrap();
        assert!(text.contains("meta start 3\n"), "{how}: {text}");
        assert!(
            text.contains("meta times events, of 8 of 8 kernels\n"),
            "{how}: {text}"
        );
        uvmsim(&["trace", trace.to_str().unwrap()]);
        assert!(!Path::new(&folder).exists(), "{how}");
    }
}
