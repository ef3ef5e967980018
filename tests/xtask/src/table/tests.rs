// SPDX-License-Identifier: GPL-2.0-only OR MIT

use super::*;
use crate::inputs::scripts_in;
use crate::part::How;
use crate::scratch::Scratch;
use crate::setting::tests::setting;
use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;

fn path() -> String {
    std::env::var("PATH").unwrap()
}

/// The parts of a target in this checkout, with these options.
fn of(target: &str, env: &[(&str, &str)]) -> Vec<Part> {
    let path = path();
    let all = [&[("PATH", path.as_str()), ("KERNEL", "release")][..], env].concat();
    parts(target, &setting(&all)).unwrap()
}

fn names(parts: &[Part]) -> Vec<&str> {
    parts.iter().map(|part| part.name.as_str()).collect()
}

fn named<'a>(parts: &'a [Part], name: &str) -> &'a Part {
    parts.iter().find(|part| part.name == name).unwrap()
}

/// The targets whose parts need no source of NVIDIA's to be listed.
const HERE: &[&str] = &[
    "host",
    "vm",
    "kselftest",
    "flash",
    "debug",
    "versions",
    "all",
];

#[test]
fn the_parts_on_the_host_also_one_that_may_be_skipped() {
    let parts = of("host", &[]);
    for name in [
        "host/rustfmt",
        "host/clippy",
        "host/cargo-test",
        "host/pytorch",
        "host/miri",
        "host/tsan",
    ] {
        assert!(names(&parts).contains(&name), "{name}");
    }
    assert!(names(&parts).iter().all(|name| name.starts_with("host/")));
    assert!(parts.iter().all(|part| part.how != How::Lane));
}

#[test]
fn the_lanes_of_the_vm() {
    let parts = of("vm", &[]);
    for name in [
        "rust/policies",
        "demo",
        "upstream/ladder",
        "rust/random",
        "rust/flash",
        "rust/overlap",
    ] {
        assert_eq!(named(&parts, name).how, How::Lane, "{name}");
    }
    assert!(!names(&parts).iter().any(|name| name.starts_with("host/")));
    let all = of("all", &[]);
    assert_eq!(all.len(), parts.len() + of("host", &[]).len());
}

#[test]
fn a_target_has_each_name_once() {
    for target in HERE {
        let parts = of(target, &[]);
        let once: BTreeSet<&str> = names(&parts).into_iter().collect();
        assert_eq!(once.len(), parts.len(), "{target}: {:?}", names(&parts));
    }
}

#[test]
fn there_are_no_parts_of_what_is_not_known() {
    let error = parts("nothing", &setting(&[])).unwrap_err();
    assert!(
        error.contains("use host, vm, kselftest, flash, extra, debug, versions or all"),
        "{error}"
    );
}

#[test]
fn lanes_come_after_what_builds_for_them() {
    for target in HERE {
        let parts = of(target, &[]);
        let lane = parts.iter().position(|part| part.how == How::Lane);
        let built = parts.iter().position(|part| part.name == "build/programs");
        if let Some(lane) = lane {
            assert!(built.is_some_and(|built| built < lane), "{target}");
        }
    }
}

#[test]
fn the_scripts_that_parts_name_are_there_and_can_be_run() {
    let top = setting(&[]).top;
    for target in HERE {
        for part in of(target, &[]) {
            for script in part.scripts() {
                if script.contains("vm-") {
                    continue;
                }
                let mode = std::fs::metadata(top.join(&script))
                    .unwrap()
                    .permissions()
                    .mode();
                assert!(mode & 0o111 != 0, "{script}");
            }
        }
    }
}

#[test]
fn a_script_of_a_part_takes_functions_only_from_what_counts_for_every_lane() {
    let top = setting(&[]).top;
    for entry in std::fs::read_dir(top.join("tests/parts")).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let sources = text
            .lines()
            .map(str::trim)
            .filter(|line| line.starts_with(". "));
        for line in sources {
            let known = ["scripts/lib.sh\"", "scripts/bugs.sh\"", "build/kbuild.sh\""];
            assert!(
                known.iter().any(|file| line.ends_with(file)),
                "{}: {line}",
                path.display()
            );
        }
        let others = scripts_in(&text);
        assert!(
            others.is_empty(),
            "{}: {others:?} is not in its lane's key",
            path.display()
        );
    }
}

#[test]
fn a_part_that_may_be_unable_to_run_is_on_the_list_of_skips() {
    let list = std::fs::read_to_string(setting(&[]).top.join("tests/skips")).unwrap();
    for part in HERE.iter().flat_map(|target| of(target, &[])) {
        if part.lacks.is_some() || part.skipped.is_some() {
            let known = crate::skips::known(&list, &part.name, &setting(&[]), "short");
            let may = known
                .iter()
                .any(|k| k.times.is_none() && k.pattern == "(the part)");
            assert!(may, "{}", part.name);
        }
    }
}

/// How many CPUs a lane asks for.
fn cpus_of<'a>(parts: &'a [Part], name: &str) -> Option<&'a str> {
    let part = named(parts, name);
    let mut values = part.env.iter().filter(|(name, _)| name == "VM_CPUS");
    values.next().map(|(_, value)| value.as_str())
}

#[test]
fn lanes_whose_programs_have_one_thread_run_on_one_cpu() {
    for target in ["vm", "all"] {
        let parts = of(target, &[]);
        for name in cpus::ONE_CPU {
            let part = named(&parts, name);
            assert_eq!(part.how, How::Lane, "{name}");
            assert_eq!(cpus_of(&parts, name), Some("1"), "{name}");
        }
    }
    // What one target remembers, the other finds.
    assert_eq!(cpus_of(&of("kselftest", &[]), "rust/discard"), Some("1"));
}

#[test]
fn threads_that_meet_in_the_driver_have_two_cpus() {
    let parts = of("vm", &[]);
    for name in [
        "rust/contend",
        "rust/storms",
        "rust/hazards",
        "rust/odd-gpu",
        "rust/flash",
        "rust/kselftest",
        "rust/library",
        "rust/prefetch",
        "rust/together",
        "rust/prefetch-overlap",
        "rust/ladder",
        "rust/discard-two-gpus",
    ] {
        assert_eq!(cpus_of(&parts, name), None, "{name}");
    }
    assert_eq!(cpus_of(&parts, "rust/ladder-two-gpus"), Some("2"));
    let long = of("debug", &[]);
    assert!(long.iter().all(|part| cpus_of(&long, &part.name).is_none()));
    let setting = setting(&[]);
    let suite = vm::suite("rust", &setting, amount("extra"));
    assert!(suite
        .iter()
        .all(|part| cpus_of(&suite, &part.name).is_none()));
}

#[test]
fn who_says_how_many_cpus_has_them_in_all_lanes() {
    let parts = of("vm", &[("VM_CPUS", "4")]);
    for name in cpus::ONE_CPU {
        assert_eq!(cpus_of(&parts, name), None, "{name}");
    }
}

#[test]
fn long_lanes_begin_before_short_ones() {
    let parts = of("vm", &[]);
    let lanes = parts.iter().position(|part| part.how == How::Lane).unwrap();
    assert!(parts[lanes..].iter().all(|part| part.how == How::Lane));
    let first = &parts[lanes..][..order::LONGEST.len()];
    assert_eq!(names(first), order::LONGEST);
    // All others come as they stand in the list.
    let of_list = vm::parts(&setting(&[("KERNEL", "release")]), amount("vm"));
    let is_short = |name: &&str| !order::LONGEST.contains(name);
    let short = |parts| names(parts).into_iter().filter(is_short);
    let builds = |name: &&str| !names(&parts[..lanes]).contains(name);
    assert!(short(&parts)
        .filter(builds)
        .eq(short(&of_list).filter(builds)));
}

#[test]
fn options_reach_the_commands() {
    let random = |env: &[(&str, &str)]| named(&of("vm", env), "rust/random").command[1].clone();
    assert_eq!(random(&[]), "target/release/random --ops 4000");
    assert_eq!(
        random(&[("OPS", "50"), ("SEED", "7")]),
        "target/release/random --ops 50 --seed 7"
    );
    let loops = |env: &[(&str, &str)]| named(&of("vm", env), "rust/loops").command[1..].join(" ");
    assert_eq!(loops(&[]), "--storms 60");
    assert_eq!(
        loops(&[("STORMS", "3"), ("SEED", "7")]),
        "--storms 3 --seed 7"
    );
    let debug = of("debug", &[]);
    let random = named(&debug, "debug/random");
    assert_eq!(random.command[1], "target/release/random --ops 100000");
    let debugs = ("KERNEL".to_owned(), "debug".to_owned());
    assert!(random.env.contains(&debugs));
    let mix = named(&debug, "debug/mix");
    assert_eq!(
        mix.command[1],
        "target/release/mix --device $SSD --ops 100000"
    );
    assert!(mix.env.contains(&debugs));
    let mix = |env: &[(&str, &str)]| named(&of("debug", env), "debug/mix").command[1].clone();
    assert_eq!(
        mix(&[("SEED", "7")]),
        "target/release/mix --device $SSD --ops 100000 --seed 7"
    );
}

#[test]
fn the_long_form_does_more() {
    let setting = setting(&[]);
    let of = |amount| {
        let suite = vm::suite("rust", &setting, amount);
        let odd = vm::odd_gpu(&setting, amount).command[1].clone();
        (named(&suite, "rust/storms").command[1].clone(), odd)
    };
    let (storms, odd) = of(amount("vm"));
    assert_eq!(storms, "target/release/storms --times 15");
    assert!(!odd.contains("--full"));
    let (storms, odd) = of(amount("extra"));
    assert_eq!(storms, "target/release/storms --times 100");
    assert!(
        odd.ends_with(" && target/release/ladder --full --only 'step 10'"),
        "{odd}"
    );
    let shares = |target| vm::shares(amount(target)).command;
    assert_eq!(shares("vm"), ["tests/parts/shares.sh", "--short"]);
    assert_eq!(shares("extra"), ["tests/parts/shares.sh"]);
    let thrashing =
        named(&vm::suite("rust", &setting, amount("vm")), "rust/thrashing").command[1].clone();
    let (short, long) = thrashing.split_once("lapse_usec=1000000").unwrap();
    assert!(
        short.contains("by thrashing") && short.contains("where it was pinned"),
        "{short}"
    );
    assert!(long.ends_with("--only 'resident nowhere'"), "{long}");
    let upstream = vm::suite("upstream", &setting, amount("extra"));
    assert_eq!(
        named(&upstream, "upstream/storms").command[1],
        "target/release/storms --times 20"
    );
    assert!(!named(&upstream, "upstream/thrashing").command[1].contains("discard"));
}

#[test]
fn versions_without_trees_are_skipped() {
    let parts = of("versions", &[]);
    assert!(named(&parts, "versions/given").skipped.is_some());
    let driver = named(&parts, "versions/535");
    assert!(driver
        .env
        .contains(&("UVM_VERSION".to_owned(), "535".to_owned())));
    assert_eq!(driver.command[..3], ["env", "-u", "UVM_SRC"]);
}

#[test]
fn the_release_that_distributions_ship_has_lanes_where_none_is_asked_for() {
    let shipped = |env: &[(&str, &str)]| -> Vec<String> {
        let parts = of("vm", env);
        let shipped = parts.iter().filter(|part| part.name.starts_with("580/"));
        shipped.map(|part| part.name.clone()).collect()
    };
    let lanes = ["580/modules", "580/discard", "580/kselftest"];
    assert_eq!(shipped(&[]), lanes);
    assert_eq!(shipped(&[("UVM_VERSION", "550")]), [""; 0]);
    assert_eq!(shipped(&[("UVM_SRC", "/a/tree")]), [""; 0]);

    let parts = of("vm", &[]);
    for name in lanes {
        let part = named(&parts, name);
        let release = ("UVM_VERSION".to_owned(), "580".to_owned());
        assert!(part.env.contains(&release), "{name}");
        assert!(part.lacks.is_some(), "{name}");
    }
}

#[test]
fn a_script_that_refuses_says_why() {
    let path = path();
    let here = setting(&[("PATH", path.as_str())]);
    let refusal = |script: &str| versions::refusal(&here, &["sh", "-c", script]);
    assert_eq!(refusal("echo well; echo 'error: none' >&2"), None);
    assert_eq!(
        refusal("echo first >&2; echo 'error: no such release' >&2; exit 1").as_deref(),
        Some("no such release")
    );
    assert_eq!(refusal("exit 1").as_deref(), Some("it says nothing"));
}

#[test]
fn versions_are_compared_by_their_numbers() {
    assert!(at_least("1.88.0", "1.95.0") && at_least("1.88.0", "1.88.0"));
    assert!(at_least("1.88.0", "1.100.0") && at_least("1.88.0", "1.90.0-nightly"));
    assert!(!at_least("1.88.0", "1.85.1") && !at_least("1.88.0", "0.0.0"));
}

#[test]
fn what_a_release_tests_no_more_is_not_asked_for_alone() {
    let scratch = Scratch::new("volta-ladder");
    let folder = scratch.path().to_str().expect("a name in UTF-8");
    let asks = |folder| vm::volta_ladder(folder).contains("PMM_SYSMEM");
    assert!(asks(None) && asks(Some(folder)));
    scratch.write(
        "nvidia-uvm/uvm_test_ioctl.h",
        "#define UVM_TEST_PMM_SYSMEM 64",
    );
    assert!(asks(Some(folder)));
    scratch.write(
        "nvidia-uvm/uvm_test_ioctl.h",
        "#define UVM_TEST_PMM_QUERY 63",
    );
    assert!(!asks(Some(folder)));
}

#[test]
fn a_release_without_volta_says_so() {
    let scratch = Scratch::new("without-volta");
    let folder = scratch.path();
    // A folder of another kind says nothing: the build will.
    assert_eq!(vm::without_volta(folder), None);
    scratch.write("nvidia-uvm/uvm_hal.c", "");
    assert!(vm::without_volta(folder).is_some_and(|why| why.contains("Volta")));
    scratch.write("nvidia-uvm/uvm_volta.c", "");
    assert_eq!(vm::without_volta(folder), None);
}
