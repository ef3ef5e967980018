// SPDX-License-Identifier: GPL-2.0-only OR MIT

#![allow(clippy::unwrap_used)]

use uvmsim_trace::{Kind, Trace};

use super::recording::Recording;
use super::step::{repeats, text, Repeats};

fn numbers(text: &str) -> Vec<usize> {
    text.bytes().map(usize::from).collect()
}

fn found(text: &str) -> Option<(usize, usize, usize)> {
    repeats(&numbers(text)).map(
        |Repeats {
             from,
             period,
             length,
         }| (from, period, length),
    )
}

#[test]
fn what_repeats_is_found_with_its_shortest_period() {
    assert_eq!(found("abcabc"), Some((0, 3, 6)));
    assert_eq!(found("xyabcabcabcabz"), Some((2, 3, 11)));
    // Layers that are alike are not the step.
    let step = format!("e{}h{}u", "lm".repeat(12), "nl".repeat(12));
    let many = format!("init{}zzz", step.repeat(5));
    assert_eq!(found(&many), Some((4, step.len(), 5 * step.len())));
    assert_eq!(found("aaaaaa"), Some((0, 1, 6)));
}

#[test]
fn what_is_less_than_half_of_a_program_is_not_its_step() {
    for text in ["", "a", "ab", "abcdef", "aaabcdefgh", "abcdefabcde"] {
        assert_eq!(found(text), None, "{text}");
    }
}

/// Two allocations and a launch; then steps of three launches with an allocation of their own.
fn steps(count: usize, of_step: impl Fn(usize) -> String) -> String {
    let mut text = "a 1000\na 2000\nk 0 init 0\n".to_owned();
    (0..count).for_each(|n| text += &of_step(n));
    text
}

fn traced(recorded: &str) -> (Trace, String, String) {
    let recording = Recording::parse(recorded).unwrap();
    let (text, said) = text(&recording, "program").unwrap();
    (text.parse().unwrap(), text, said)
}

/// The same, with a time of each launch behind it.
fn timed(recorded: &str) -> String {
    let launches = recorded.lines().filter(|line| line.starts_with('k'));
    let times = (0..launches.count()).map(|launch| format!("t {launch} 5\n"));
    format!("{recorded}{}", times.collect::<String>())
}

fn tensors(trace: &Trace) -> Vec<(&str, Kind, u64)> {
    let all = trace.tensors.iter();
    all.map(|t| (t.name.as_str(), t.kind, t.bytes)).collect()
}

#[test]
fn a_step_is_named_by_what_is_the_same_in_the_next_run() {
    let recorded = steps(4, |n| {
        let own = 2 + n;
        format!("k 0 f 0\na 500\nk 0 g 0,{own}\nk 1 h 1,{own}\nf {own}\n")
    });
    let recorded = format!("{recorded}f 0\nf 1\nt 4 70\nt 7 50\nt 6 30\nt 0 9\n");
    let (trace, text, said) = traced(&recorded);
    let expected = [
        ("alloc0", Kind::Weight, 1000),
        ("kernel1.0", Kind::Activation, 500),
        ("alloc1", Kind::Weight, 2000),
    ];
    assert_eq!(tensors(&trace), expected);
    assert_eq!((trace.meta("start"), trace.meta("steps")), ("1", "4"));
    assert_eq!(trace.meta("streams"), "2");
    // The least of all steps.
    let times: Vec<_> = trace.kernels.iter().map(|k| k.duration_ns).collect();
    assert_eq!(times, [50, 0, 30]);
    assert_eq!(trace.meta("times"), "events, of 2 of 3 kernels");
    assert!(text.contains("# kernel 1 (g): its time was not measured; 0 stands for it\n"));
    // The first use of what the step makes reads nothing.
    let (g, h) = (&trace.kernels[1], &trace.kernels[2]);
    assert_eq!((g.reads.len(), g.writes.len()), (1, 2));
    assert_eq!((h.reads.len(), h.writes.len()), (2, 2));
    assert!(said.contains("a step of 3 4 times"), "{said}");
}

#[test]
fn a_step_begins_where_least_of_its_memory_lives() {
    // The first of these steps begins with `h`, by what repeats.
    let recorded = steps(1, |_| "k 0 h 1\n".to_owned());
    let mut recorded = recorded;
    for n in 0..3 {
        let own = 2 + n;
        recorded += &format!("a 500\nk 0 f {own}\nk 0 g {own}\nk 0 h {own}\nf {own}\n");
    }
    let (trace, _, _) = traced(&recorded);
    let names: Vec<_> = trace.kernels.iter().map(|k| k.name.as_str()).collect();
    assert_eq!(names, ["f", "g", "h"]);
    assert_eq!(tensors(&trace), [("kernel0.0", Kind::Activation, 500)]);
    assert_eq!(trace.meta("start"), "2");
}

#[test]
fn what_a_program_frees_at_its_end_is_not_the_steps() {
    for count in 2..5 {
        let recorded = steps(count, |n| {
            let own = 2 + n;
            format!("a 500\nk 0 f 0,{own}\nk 0 g 1,{own}\nf {own}\n")
        });
        let (trace, _, _) = traced(&format!("{recorded}f 0\nf 1\n"));
        let expected = [
            ("alloc0", Kind::Weight, 1000),
            ("kernel0.0", Kind::Activation, 500),
            ("alloc1", Kind::Weight, 2000),
        ];
        assert_eq!(tensors(&trace), expected, "{count} steps");
    }
}

#[test]
fn what_the_step_before_made_is_not_known_again() {
    // Each step frees what the one before has made, when it has used it.
    let recorded = steps(4, |n| {
        let (old, new) = (2 + n, 3 + n);
        let first = if n == 0 { "a 400\n" } else { "" };
        format!("{first}a 400\nk 0 f {old},{new}\nf {old}\nk 0 g {new}\n")
    });
    let (trace, _, _) = traced(&recorded);
    let all = tensors(&trace);
    assert_eq!(all.len(), 2, "{all:?}");
    assert!(
        all[0].0.starts_with("other.") && all[0].1 == Kind::Input,
        "{all:?}"
    );
    assert_eq!(all[1], ("kernel0.0", Kind::Activation, 400));
}

#[test]
fn a_program_that_repeats_nothing_is_one_step() {
    let recorded = "a 1000\na 2000\nk 0 f 0\na 500\nk 0 g 0,2\nf 2\nk 0 h 1\nf 0\n\
                    k 0 graph ?\nf 1\nt 1 20\n";
    let (trace, text, said) = traced(recorded);
    let expected = [
        ("alloc0", Kind::Input, 1000),
        ("kernel1.0", Kind::Activation, 500),
        ("alloc1", Kind::Weight, 2000),
    ];
    assert_eq!(tensors(&trace), expected);
    assert_eq!((trace.meta("start"), trace.meta("steps")), ("0", "1"));
    assert!(
        text.contains("# kernel 3 (graph): what it uses is not known\n"),
        "{text}"
    );
    assert!(said.contains("the step is all of them"), "{said}");
}

/// Steps whose second kernel reaches two of its allocations by pointers that lie in memory. It faults on
/// allocation 1 in the first step alone, and on what a step has made in each.
fn faulting(faults: bool) -> String {
    steps(4, |n| {
        let (own, g) = (2 + n, 2 + 2 * n);
        let also = if n == 0 { "1," } else { "" };
        let line = format!("u {g} {also}{own}\n");
        let line = if faults { &*line } else { "" };
        format!("k 0 f 0\na 500\nk 0 g 0\n{line}f {own}\n")
    })
}

#[test]
fn what_a_kernel_faults_on_it_uses() {
    let (trace, _, said) = traced(&faulting(false));
    assert_eq!(tensors(&trace), [("alloc0", Kind::Weight, 1000)]);
    assert_eq!(trace.meta("accesses"), "arguments, as read and written");
    assert_eq!(trace.meta("faults"), "tools, of 0 of 2 kernels");
    assert!(!said.contains("faults"), "{said}");

    let (trace, _, said) = traced(&timed(&format!("w\n{}l 7\nw\nl 2\n", faulting(true))));
    let expected = [
        ("alloc0", Kind::Weight, 1000),
        ("kernel1.0", Kind::Activation, 500),
        ("alloc1", Kind::Weight, 2000),
    ];
    assert_eq!(tensors(&trace), expected);
    let accesses = trace.meta("accesses");
    assert_eq!(accesses, "arguments and faults, as read and written");
    assert_eq!(trace.meta("faults"), "tools, of 2 of 2 kernels, 9 lost");
    assert!(said.contains("; 9 faults are not known"), "{said}");
    assert!(!said.contains("launches are not known"), "{said}");
    let kernels = trace.kernels.iter();
    let uses: Vec<_> = kernels.map(|k| (k.reads.len(), k.writes.len())).collect();
    assert_eq!(uses, [(1, 1), (2, 3)]);
}

#[test]
fn a_fault_on_what_was_not_there_at_the_launch_is_anothers() {
    // Allocation 1 is made behind launch 0, and freed before launch 2.
    let recorded = "a 10\nk 0 f 0\na 20\nk 0 g 0\nf 1\nk 0 h 0\n\
                    u 0 1\nu 1 1,0\nu 2 1\n";
    let (trace, _, _) = traced(recorded);
    let uses: Vec<_> = trace.kernels.iter().map(|k| k.writes.len()).collect();
    assert_eq!(uses, [1, 2, 1]);
}

/// Nobody looks before UVM tells, or behind a program's having closed the descriptor.
#[test]
fn of_which_launches_faults_are_not_known_is_said() {
    let step = "k 0 f 0\nk 0 g 0\n";
    let traced = |recorded: &str| self::traced(&timed(recorded));
    let (trace, _, said) = traced(&format!(
        "a 10\n{step}{step}k 0 f 0\nw\nk 0 g 0\n{step}n 7\n"
    ));
    assert_eq!((trace.meta("steps"), trace.kernels.len()), ("4", 2));
    assert_eq!(trace.meta("faults"), "tools, of 2 of 2 kernels");
    assert!(
        said.ends_with("; faults of 6 launches are not known"),
        "{said}"
    );
    let (trace, _, said) = traced(&format!(
        "a 10\n{step}{step}k 0 f 0\nw\nk 0 g 0\n{step}n 6\nw\n"
    ));
    assert_eq!(trace.meta("faults"), "tools, of 1 of 2 kernels");
    assert!(
        said.ends_with("; faults of 7 launches are not known"),
        "{said}"
    );
    // Of none for certain.
    let (trace, _, said) = traced(&format!("a 10\nw\n{step}{step}n 0\n"));
    let accesses = trace.meta("accesses");
    assert_eq!(accesses, "arguments and faults, as read and written");
    assert_eq!(trace.meta("faults"), "tools, of 0 of 2 kernels");
    assert!(
        said.ends_with("; faults of 4 launches are not known"),
        "{said}"
    );
}

/// A fault is a launch's by its time: what a launch without one faulted on is not nothing.
#[test]
fn of_a_launch_without_a_time_its_faults_are_not_known() {
    let step = "k 0 f 0\nk 0 g 0\n";
    let recorded = format!("a 10\nw\n{}", step.repeat(4));
    // `g` has a time in no step, and `f` in two.
    let (trace, text, said) = traced(&format!("{recorded}t 0 5\nt 4 5\n"));
    assert_eq!(trace.meta("faults"), "tools, of 1 of 2 kernels");
    assert!(
        said.ends_with("; faults of 6 launches are not known"),
        "{said}"
    );
    let about = "what it faults on is not known\n";
    assert!(text.contains(&format!("# kernel 1 (g): {about}")), "{text}");
    assert_eq!(text.matches(about).count(), 1, "{text}");
    // Where nobody looked for faults, nobody says so.
    let (_, text, said) = traced(&recorded.replace("w\n", ""));
    assert!(
        !text.contains(about) && !said.contains("faults of"),
        "{text}"
    );
}

/// Each step's `f` faults on allocation 1, and now and then the fault counts as that of `g`, or of `h`.
#[test]
fn a_fault_that_seldom_is_a_kernels_is_a_neighbours() {
    let uses = |g: usize, h: usize| {
        let recorded = steps(64, |n| {
            let also = |kernel: usize, times: usize| match n < times {
                true => format!("u {} 1\n", 1 + 3 * n + kernel),
                false => String::new(),
            };
            let lines = format!("{}{}{}", also(0, 64), also(1, g), also(2, h));
            format!("k 0 f 0\nk 0 g 0\nk 0 h 0\n{lines}")
        });
        let (trace, _, _) = traced(&timed(&format!("w\n{recorded}")));
        let kernels = trace.kernels.iter();
        kernels.map(|k| k.writes.len() == 2).collect::<Vec<_>>()
    };
    assert_eq!(uses(0, 0), [true, false, false]);
    // However many steps there are, one in eight is needed.
    assert_eq!(uses(7, 8), [true, false, true]);
    assert_eq!(uses(64, 1), [true, true, false]);
}

/// What is on the GPU already does not fault: once may be all that is seen of a use.
#[test]
fn a_fault_in_one_step_counts_where_no_kernel_has_more() {
    let recorded = steps(64, |n| {
        let line = if n == 3 { "u 11 1\n" } else { "" };
        format!("k 0 f 0\nk 0 g 0\nk 0 h 0\n{line}")
    });
    let (trace, _, _) = traced(&timed(&format!("w\n{recorded}")));
    let kernels = trace.kernels.iter();
    let uses: Vec<_> = kernels.map(|k| k.writes.len()).collect();
    assert_eq!(uses, [1, 2, 1]);
}

#[test]
fn what_a_graph_faults_on_is_said() {
    let (trace, text, _) = traced("w\na 10\nk 0 graph ?\nk 0 f 0\nu 0 0\n");
    assert_eq!(trace.kernels[0].writes.len(), 1);
    let said = "# kernel 0 (graph): what it uses is known by its faults alone\n";
    assert!(text.contains(said), "{text}");
}

#[test]
fn what_is_not_known_of_arguments_is_said() {
    let (trace, _, said) = traced("k 0 ? -\nk 0 ? -\n");
    assert_eq!((trace.kernels.len(), trace.tensors.len()), (1, 0));
    assert!(said.contains("CUDA 12.4"), "{said}");
}

#[test]
fn the_time_of_others_of_its_name_stands_for_one_that_was_not_measured() {
    let (trace, text, _) =
        traced("a 9\nk 0 f 0\nk 0 g 0\nk 0 f 0\nk 0 h 0\nt 0 30\nt 2 50\nt 1 7\n");
    let times: Vec<_> = trace.kernels.iter().map(|k| k.duration_ns).collect();
    assert_eq!(times, [30, 7, 50, 0]);
    assert!(
        !text.contains("kernel 0") || !text.contains("# kernel 0"),
        "{text}"
    );
    let (trace, text, _) = traced("a 9\nk 0 f 0\nk 0 g 0\nk 0 f 0\nk 0 h 0\nt 0 30\n");
    assert_eq!(trace.kernels[2].duration_ns, 30);
    assert!(text.contains("# kernel 2 (f): its time was not measured; that of others"));
}

#[test]
fn that_a_record_is_cut_is_said() {
    let whole = "a 10\nk 0 f 0\nk 0 f 0\n";
    let (_, _, said) = traced(whole);
    assert!(!said.contains("cut"), "{said}");
    // Behind it is what the file held before.
    let (trace, _, said) = traced(&format!("{whole}x\n\0 0\nk 0 g 0\n"));
    assert_eq!(trace.meta("steps"), "2");
    assert!(
        said.contains("; the record is cut where the program ended"),
        "{said}"
    );
}

#[test]
fn half_of_a_last_line_is_left_out_and_others_are_refused() {
    let whole = "a 10\nk 0 f 0\n";
    let cut = Recording::parse(&format!("{whole}k 0 g")).unwrap();
    assert_eq!(cut, Recording::parse(whole).unwrap());
    assert_eq!(Recording::parse("").unwrap(), Recording::default());
    for bad in [
        "y", "a", "a -1", "f 0", "k 0 f", "k x f -", "k 0 f 1", "t 0 1", "k 0 f 0,", "u 0 -", "l",
        "w 1", "n", "n 1",
    ] {
        let said = Recording::parse(&format!("{bad}\n")).unwrap_err();
        assert!(said.starts_with("line 1: `"), "{said}");
    }
}

/// A link is put into the place of the folder as soon as that is there, again and again, by a thread that may
/// rename what is beside the file.
#[test]
fn a_link_in_the_place_of_the_folder_is_not_followed() {
    use std::ffi::CString;
    use std::fs;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::{symlink, PermissionsExt};
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    let name = |what| format!("{what}.{}", std::process::id());
    let top = std::env::temp_dir().join(name("uvmrun-folder"));
    let others = top.join("others");
    fs::create_dir_all(&others).unwrap();
    let (file, in_place) = (top.join("trace"), top.join(name("trace")));
    let link = top.join("link");
    let names = [&link, &in_place].map(|path| CString::new(path.as_os_str().as_bytes()).unwrap());
    let clear = |path| fs::remove_file(path).or_else(|_| fs::remove_dir(path));
    let ended = AtomicBool::new(false);
    let exchanges = || {
        while !ended.load(Relaxed) {
            let [from, to] = [&names[0], &names[1]].map(|name| name.as_ptr());
            let (here, exchange) = (libc::AT_FDCWD, libc::RENAME_EXCHANGE);
            // SAFETY: the names are C strings.
            let _ = unsafe { libc::renameat2(here, from, here, to, exchange) };
            std::thread::yield_now();
        }
    };
    let followed = std::thread::scope(|scope| {
        scope.spawn(exchanges);
        let tries = (0..200).map(|_| {
            let _ = (clear(&link), clear(&in_place));
            let _ = symlink(&others, &link);
            let folder = super::Folder::new(&file);
            folder.map(|folder| folder.0.clone())
        });
        let elsewhere = |folder: &Result<_, _>| folder.as_ref().is_ok_and(|path| *path != in_place);
        let followed = tries.filter(elsewhere).count();
        ended.store(true, Relaxed);
        followed
    });
    assert_eq!(followed, 0);
    assert!(others.is_dir());
    let _ = (clear(&link), clear(&in_place));
    // What is recorded is nobody else's to read.
    let folder = super::Folder::new(&file).unwrap();
    let mode = fs::metadata(&folder.0).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    drop(folder);
    assert!(!in_place.exists());
    fs::remove_dir_all(&top).unwrap();
}
