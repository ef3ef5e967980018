// SPDX-License-Identifier: GPL-2.0-only OR MIT

use super::*;
use crate::scratch::Scratch;

const RANDOM: &str = "TAP version 14
# seed 12 (repeat with: random --ops 40 --seed 12)
ok 1 - random: 40 operations, seed 12 # 1.2 s
not ok 2 - random: no leak after it # 0.1 s
# it is not ok 3 - to take this for a test
ok 3 uvm.reads # SKIP no HMM
    ok 1 - a part of a test
1..3
ok 1 - unload: the modules report that nothing is left
1..1
";
const CARGO: &str =
    "     Running unittests src/main.rs (target/debug/deps/uvm_bench-38f33bf755df3178)
test report::a ... ok
test report::b ... FAILED
test report::c ... ignored, too slow
     Running tests/fork.rs (target/debug/deps/fork-0123456789abcdef)
test report::a ...\u{20}
skipped: report::a # no compiler
ok
   Doc-tests uvmrust
test userlib/uvmrust/src/lib.rs - Uvm::new (line 40) ... ok
test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out
";
const NAMES: &str = "host/cargo-test uvm_bench::report::a
host/cargo-test uvm_bench::report::b
host/cargo-test uvm_bench::report::c
host/cargo-test fork::report::a
host/cargo-test uvmrust (documentation)::userlib/uvmrust/src/lib.rs - Uvm::new (line N)
host/docs (the part)
rust/random random: 40 operations, seed N
rust/random random: no leak after it
rust/random uvm.reads
rust/random unload: the modules report that nothing is left";

fn logs() -> Scratch {
    let logs = Scratch::new("names");
    logs.write("rust/random.log", RANDOM);
    logs.write("host/cargo-test.log", CARGO);
    logs.write("host/docs.log", "built\n");
    logs.write("host/notes", "no log\n");
    logs
}

/// Compares the list of the logs with what the logs are once they are changed.
fn after(change: impl Fn(&Scratch)) -> (String, bool) {
    let logs = logs();
    let old = names(logs.path()).unwrap();
    change(&logs);
    compare(&old, &names(logs.path()).unwrap())
}

#[test]
fn names_are_found_in_tap_in_cargos_logs_and_of_a_part_that_has_none() {
    assert_eq!(names(logs().path()).unwrap().join("\n"), NAMES);
}

#[test]
fn the_same_names() {
    assert_eq!(
        after(|_| ()),
        ("10 names before, 10 now, 0 gone\n".to_owned(), true)
    );
}

#[test]
fn another_seed_line_and_build() {
    let (said, same) = after(|logs| {
        logs.write("rust/random.log", &RANDOM.replace("seed 12", "seed 13"));
        let cargo = CARGO.replace("(line 40)", "(line 41)");
        logs.write(
            "host/cargo-test.log",
            &cargo.replace("38f33bf755df3178", "ffffffffffffffff"),
        );
    });
    assert_eq!(
        (said.as_str(), same),
        ("10 names before, 10 now, 0 gone\n", true)
    );
}

#[test]
fn one_more_and_one_that_is_gone() {
    let more = format!("{RANDOM}ok 1 - new\n");
    let (said, same) = after(|logs| logs.write("rust/random.log", &more));
    assert_eq!(
        (said.as_str(), same),
        ("10 names before, 11 now, 0 gone\n", true)
    );
    let less: String = more
        .lines()
        .filter(|line| !line.contains("no leak"))
        .map(|l| format!("{l}\n"))
        .collect();
    let (said, same) = after(|logs| logs.write("rust/random.log", &less));
    let gone = "gone: rust/random random: no leak after it\n10 names before, 10 now, 1 gone\n";
    assert_eq!((said.as_str(), same), (gone, false));
}

#[test]
fn a_part_that_is_gone() {
    let (said, same) = after(|logs| logs.remove("host/docs.log"));
    let gone = "gone: host/docs (the part)\n10 names before, 9 now, 1 gone\n";
    assert_eq!((said.as_str(), same), (gone, false));
}

#[test]
fn one_of_two_that_have_one_name() {
    let logs = logs();
    logs.write("rust/policies.log", "ok 1 - twice\nok 1 - twice\n");
    let old = names(logs.path()).unwrap();
    logs.write("rust/policies.log", "ok 1 - twice\n");
    let (said, same) = compare(&old, &names(logs.path()).unwrap());
    assert_eq!(
        said,
        "gone: rust/policies twice\n12 names before, 11 now, 1 gone\n"
    );
    assert!(!same);
}

#[test]
fn a_file_has_the_names_already_and_what_is_not_there_is_an_error() {
    let logs = logs();
    logs.write("list", &format!("{NAMES}\n"));
    assert_eq!(
        names(&logs.path().join("list")).unwrap(),
        names(logs.path()).unwrap()
    );
    assert!(names(&logs.path().join("none"))
        .unwrap_err()
        .contains("none"));
}
