// SPDX-License-Identifier: GPL-2.0-only OR MIT

use super::*;
use crate::setting::tests::setting;

const LIST: &str = "
# PART TEST
p/q\tsuite: needs two GPUs
p/*\tuvm.discard*
?p/q\tsuite: only here and there
?p/q\thost test
other\tsuite: elsewhere
";
const SKIPS: &str = "ok 2 - suite: needs two GPUs # SKIP one\nok 3 uvm.discard_one # SKIP none";

/// Counts a log as part "p/q" under a list of skips and options: passed, failed, skipped.
fn with(
    list: &str,
    env: &[(&str, &str)],
    length: &str,
    ok: bool,
    log: &str,
) -> (usize, usize, usize) {
    let tally = tally(
        "p/q",
        ok,
        log,
        &skips::known(list, "p/q", &setting(env), length),
    );
    (tally.passed, tally.failed, tally.skipped)
}

fn counts(list: &str, ok: bool, log: &str) -> (usize, usize, usize) {
    with(list, &[], "short", ok, log)
}

/// What the list says against a log, joined.
fn against(list: &str, log: &str) -> String {
    tally(
        "p/q",
        true,
        log,
        &skips::known(list, "p/q", &setting(&[]), "short"),
    )
    .against
    .join("\n")
}

#[test]
fn a_run_with_the_known_skips() {
    assert_eq!(
        counts(LIST, true, &format!("ok 1 - suite: a\n{SKIPS}\n1..3")),
        (1, 0, 2)
    );
}

#[test]
fn a_skip_that_is_not_on_the_list_fails_and_is_named() {
    let log = format!("ok 1 - suite: a\n{SKIPS}\nok 4 - suite: b # SKIP\n1..4");
    assert_eq!(counts(LIST, true, &log), (1, 1, 3));
    assert_eq!(
        against(LIST, &log),
        "not ok p/q: skipped, but not on the list tests/skips: suite: b"
    );
}

#[test]
fn the_list_of_another_part_does_not_count() {
    let log = format!("ok 1 - suite: a\n{SKIPS}\nok 4 - suite: elsewhere # SKIP x\n1..4");
    assert_eq!(counts(LIST, true, &log), (1, 1, 3));
}

#[test]
fn a_listed_test_that_is_skipped_no_more_fails() {
    let log = "ok 1 - suite: a\nok 2 - suite: needs two GPUs # 0.1 s\nok 3 uvm.discard_one # SKIP none\n1..3";
    assert_eq!(counts(LIST, true, log), (2, 1, 1));
    let said = "on the list tests/skips, but not skipped any more (0 of 1): suite: needs two GPUs";
    assert_eq!(against(LIST, log), format!("not ok p/q: {said}"));
}

#[test]
fn one_that_may_be_skipped_and_is() {
    let log = format!("ok 1 - suite: a\n{SKIPS}\nok 4 - suite: only here and there # SKIP y\n1..4");
    assert_eq!(counts(LIST, true, &log), (1, 0, 3));
}

#[test]
fn a_program_that_plans_nothing_is_a_skip() {
    let log = format!("ok 1 - suite: a\n{SKIPS}\n1..3\n1..0 # SKIP load it otherwise");
    assert_eq!(counts(LIST, true, &log), (1, 1, 3));
    assert_eq!(counts(LIST, true, "1..0"), (0, 1, 1));
    assert_eq!(
        counts(LIST, true, "TAP version 14\n1..0 # SKIP no device"),
        (0, 1, 1)
    );
    assert!(against(LIST, "1..0 # SKIP x").contains("(a whole program)"));
    assert_eq!(
        counts("?p/q\t# no device", true, "1..0 # SKIP no device"),
        (0, 0, 1)
    );
}

#[test]
fn a_plan_of_ten_is_no_plan_of_nothing() {
    let log = format!("ok 1 - suite: a\n{SKIPS}\n1..10");
    assert_eq!(counts(LIST, true, &log), (1, 1, 2));
    assert_eq!(
        against(LIST, &log),
        "not ok p/q: 3 tests reported, but 10 planned"
    );
}

#[test]
fn a_test_that_failed_and_a_status_without_one() {
    let log = "ok 1 - suite: a\nnot ok 2 - suite: b\n1..2";
    assert_eq!(counts(LIST, false, log), (1, 1, 0));
    let broken = tally("p/q", false, log, &[]).broken;
    assert_eq!(broken, ["not ok 2 - suite: b"]);
    let log = format!("ok 1 - suite: a\n{SKIPS}\n1..3");
    assert_eq!(counts(LIST, false, &log), (1, 1, 2));
}

#[test]
fn a_part_without_tap_is_a_test_itself() {
    assert_eq!(counts(LIST, true, "built"), (1, 2, 0));
    assert_eq!(counts("?p/q\thost test\n", true, "built"), (1, 0, 0));
    assert_eq!(counts("", false, "built"), (0, 1, 0));
    assert_eq!(counts("", true, ""), (1, 0, 0));
}

#[test]
fn cargo_counts_for_itself() {
    let list = "?p/q\thost test\n";
    let result = "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured";
    let known = format!("test a ... ok\ntest host test ... ignored\n{result}");
    assert_eq!(counts(list, true, &known), (3, 0, 1));
    let other = format!("test slow ... ignored, too slow\n{result}");
    assert_eq!(counts(list, true, &other), (3, 1, 1));
    let two = format!("{result}\ntest result: FAILED. 2 passed; 1 failed; 0 ignored");
    assert_eq!(counts(list, false, &two), (5, 1, 1));
}

#[test]
fn a_test_of_cargos_that_says_it_was_skipped_did_not_pass() {
    let list = "?p/q\thost test\n?p/q\t# no compiler*\n";
    let passed = "test a ... ok\ntest result: ok. 3 passed; 0 failed; 1 ignored; 0 measured";
    let one = "test host test ... ignored\n\nskipped: one # no compiler; get one\n";
    assert_eq!(counts(list, true, &format!("{one}{passed}")), (2, 0, 2));
    let two = "test a ... \nskipped: host test # no device\nok\ntest b ... \nskipped: b.rs:1 # no compiler\nok\n";
    assert_eq!(counts(list, true, &format!("{two}{passed}")), (1, 0, 3));
    let other = format!("skipped: one # no linker\n{passed}");
    assert_eq!(counts(list, true, &other), (2, 1, 2));
    assert!(against(list, &other).ends_with("not on the list tests/skips: one"));
}

const CONDITIONS: &str = "
GPU!=volta,GPUS=1:p/q\t2x suite: counters (*)
?KERNEL=stock:p/q\t# no HMM
LENGTH=long:p/q\tsuite: to the end
?LENGTH=short:p/q\t# in part
BASE=570:p/q\tsuite: of 570
";
const TWO: &str = "ok 1 - suite: counters (a) # SKIP x\nok 2 - suite: counters (b) # SKIP x";

#[test]
fn as_often_as_the_list_says() {
    assert_eq!(counts(CONDITIONS, true, &format!("{TWO}\n1..2")), (0, 0, 2));
    let fewer = "ok 1 - suite: counters (a) # SKIP x\nok 2 - suite: counters (b)\n1..2";
    assert_eq!(counts(CONDITIONS, true, fewer), (1, 1, 1));
    let more = format!("{TWO}\nok 3 - suite: counters (c) # SKIP x\n1..3");
    assert_eq!(counts(CONDITIONS, true, &more), (0, 1, 3));
}

#[test]
fn a_condition_that_does_not_hold() {
    let ran = "ok 1 - suite: counters (a)\n1..1";
    assert_eq!(
        with(CONDITIONS, &[("GPU", "volta")], "short", true, ran),
        (1, 0, 0)
    );
    let skipped = format!("{TWO}\n1..2");
    assert_eq!(
        with(CONDITIONS, &[("GPUS", "2")], "short", true, &skipped),
        (0, 2, 2)
    );
    for base in ["570", "570.211.01"] {
        let base = [("UVM_VERSION", base)];
        assert_eq!(with(CONDITIONS, &base, "short", true, &skipped), (0, 1, 2));
    }
}

#[test]
fn the_long_form_and_the_short_one() {
    let end = format!("{TWO}\nok 3 - suite: to the end # SKIP x\n1..3");
    assert_eq!(with(CONDITIONS, &[], "long", true, &end), (0, 0, 3));
    assert_eq!(
        with(CONDITIONS, &[], "long", true, &format!("{TWO}\n1..2")),
        (0, 1, 2)
    );
    let all = format!("{TWO}\nok 3 - suite: all # SKIP in part\n1..3");
    assert_eq!(with(CONDITIONS, &[], "short", true, &all), (0, 0, 3));
    assert_eq!(with(CONDITIONS, &[], "long", true, &all), (0, 1, 3));
}

#[test]
fn a_reason_under_its_condition() {
    let hmm = format!("{TWO}\nok 3 - suite: HMM # SKIP no HMM\n1..3");
    assert_eq!(with(CONDITIONS, &[], "short", true, &hmm), (0, 1, 3));
    assert_eq!(
        with(CONDITIONS, &[("KERNEL", "stock")], "short", true, &hmm),
        (0, 0, 3)
    );
    let slow = format!("{TWO}\nok 3 - suite: HMM # SKIP slow\n1..3");
    assert_eq!(
        with(CONDITIONS, &[("KERNEL", "stock")], "short", true, &slow),
        (0, 1, 3)
    );
}

#[test]
fn what_can_be_installed_is_no_reason_where_nothing_may_be_skipped() {
    let list = "+p/q\t# no torch\n?p/q\t# no GPU\n+p/other\t# no GPU\n";
    let log = "ok 1 - a # SKIP no torch\nok 2 - b # SKIP no GPU\n1..2";
    for (set, failed) in [
        (&[][..], 0),
        (&[("NO_SKIPS", "0")], 0),
        (&[("NO_SKIPS", "1")], 1),
    ] {
        assert_eq!(
            with(list, set, "short", true, log),
            (0, failed, 2),
            "{set:?}"
        );
    }
    // Nor has it to be skipped.
    assert_eq!(with(list, &[], "short", true, "ok 1 - a\n1..1"), (1, 0, 0));
}

#[test]
fn the_list_of_this_checkout_is_understood() {
    let setting = setting(&[]);
    let list = std::fs::read_to_string(setting.top.join("tests/skips")).unwrap();
    let known = skips::known(&list, "rust/ladder", &setting, "short");
    assert!(known
        .iter()
        .any(|k| k.times == Some(18) && k.pattern == "ladder: step 19: *"));
    assert!(known.iter().any(|k| k.times.is_none()));
    let lines = list
        .lines()
        .filter(|l| !l.trim().is_empty() && !l.starts_with('#'));
    for line in lines {
        assert!(!line.contains('['), "glob.rs knows no classes: {line}");
        assert!(line.split_once(char::is_whitespace).is_some(), "{line}");
    }
    let strict = self::setting(&[("NO_SKIPS", "1")]);
    for part in ["host/pytorch", "host/wheel", "host/miri", "rust/record"] {
        let allowed = |setting| !skips::known(&list, part, setting, "short").is_empty();
        assert!(allowed(&setting), "{part}");
    }
    for part in ["host/pytorch", "host/miri", "rust/record"] {
        assert!(
            skips::known(&list, part, &strict, "short").is_empty(),
            "{part}"
        );
    }
}

#[test]
fn a_failure_is_told_with_what_its_test_said() {
    let log =
        "ok 1 - a\nnot ok 2 - b\n# because\n  # of this\nother\n# not of b\nnot ok 3 - c\n1..3\n";
    assert_eq!(
        why("p/q", log),
        "p/q: not ok 2 - b\n# because\n  # of this\np/q: not ok 3 - c\n# not of b\n"
    );
    // A test's child says why before the test's end is told. What an earlier test said that passed is not of it.
    let log = "# of a\nok 1 - a\n# 1\n# 2\nother\n# 3\n# 4\n# 5\n# 6\n# 7\nnot ok 2 - b\n# ended with 1\n1..2\n";
    assert_eq!(
        why("p", log),
        "p: not ok 2 - b\n# 2\n# 3\n# 4\n# 5\n# 6\n# 7\n# ended with 1\n"
    );
    let many: String = std::iter::once("not ok 1 - a\n".to_owned())
        .chain((0..20).map(|n| format!("# {n}\n")))
        .collect();
    assert_eq!(why("p", &many).lines().count(), 13);
    let end: String = (0..20).map(|n| format!("line {n}\n")).collect();
    assert_eq!(why("p", &end).lines().count(), 13);
    assert!(why("p", &end).starts_with("p: the end of its log:\nline 8\n"));
    assert_eq!(
        why("p", &"x".repeat(400)).lines().nth(1).unwrap().len(),
        300
    );
}

#[test]
fn a_seed_counts_if_there_is_one_alone() {
    assert_eq!(seed("a\n# seed 7 (repeat with: x)\n"), Some("7"));
    assert_eq!(seed("# seed 7 (a)\n# seed 7 (b)\n"), Some("7"));
    assert_eq!(seed("# seed 7\n# seed 9\n"), None);
    assert_eq!(seed("# seed of nothing\n# seed\n"), None);
    assert_eq!(seed(""), None);
}
