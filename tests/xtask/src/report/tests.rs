// SPDX-License-Identifier: GPL-2.0-only OR MIT

use super::*;
use crate::count;
use crate::scratch::Scratch;

/// An outcome as a run makes it, of a log.
fn outcome(part: &str, ok: bool, log: &str) -> Outcome {
    let tally = count::tally(part, ok, log, &[]);
    let mut outcome = Outcome::new(part, tally, log, Duration::from_millis(1500));
    outcome.digest = "the \"end\" & <more>\n\u{1}".to_owned();
    outcome
}

fn outcomes() -> Vec<Outcome> {
    let mut skipped = outcome("host/pytorch", true, "");
    skipped.tally = Tally {
        skipped: 1,
        ..Tally::default()
    };
    skipped.skipped = Some("no PyTorch".to_owned());
    vec![
        outcome(
            "rust/a",
            false,
            "ok 1 - x & y # 1.2 s\nnot ok 2 - <z> #3\n# why\n1..2\n",
        ),
        outcome("host/docs", true, ""),
        outcome("host/fmt", false, "error: it is not\n"),
        outcome("rust/b", true, "ok 1 - x\n1..2\n"),
        skipped,
    ]
}

#[test]
fn junit_has_a_suite_for_each_part() {
    let xml = junit(&outcomes());
    for line in [
        "<testsuite name=\"rust/a\" tests=\"2\" failures=\"1\" errors=\"0\" skipped=\"0\" time=\"1.500\">",
        "<testcase classname=\"rust/a\" name=\"x &amp; y\" time=\"1.2\"/>",
        "<testcase classname=\"rust/a\" name=\"&lt;z&gt; #3\"><failure># why&#10;</failure></testcase>",
        "<testcase classname=\"host/docs\" name=\"(the part)\"/>",
        "<failure>the &quot;end&quot; &amp; &lt;more&gt;&#10;?</failure>",
        "<testsuite name=\"rust/b\" tests=\"2\" failures=\"1\"",
        "<skipped message=\"no PyTorch\"/>",
    ] {
        assert!(xml.contains(line), "{line}\n{xml}");
    }
}

#[test]
fn others_can_read_it() {
    let scratch = Scratch::new("junit");
    scratch.write("junit.xml", &junit(&outcomes()));
    let read = "import sys, xml.etree.ElementTree as e; r = e.parse(sys.argv[1]).getroot(); \
         print(len(r), len(r.findall('.//testcase')), len(r.findall('.//failure')))";
    let said = std::process::Command::new("python3")
        .args(["-c", read])
        .arg(scratch.path().join("junit.xml"))
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&said.stdout).trim(), "5 7 3");
}

#[test]
fn tap_counts_through_all_parts() {
    let text = tap(&outcomes());
    let want = "TAP version 14
1..7
ok 1 - rust/a: x & y
not ok 2 - rust/a: <z> \\#3
# # why
ok 3 - host/docs: (the part)
not ok 4 - host/fmt: (the part)
# the \"end\" & <more>
# \u{1}
ok 5 - rust/b: x
not ok 6 - rust/b: (the part)
# the \"end\" & <more>
# \u{1}
ok 7 - host/pytorch: (the part) # SKIP no PyTorch
";
    assert_eq!(text, want);
}

#[test]
fn parts_are_added_up() {
    let Tally {
        passed,
        failed,
        skipped,
        ..
    } = sum(&outcomes());
    assert_eq!((passed, failed, skipped), (3, 3, 1));
}

#[test]
fn the_times_of_several_vms_are_added_up() {
    let two =
        "build 1 boot 20.5 load 2 tests 7 down 1\nbuild 0.5 boot 10 load 1 tests 3 down 0.25\n";
    let want = Times {
        vms: 2,
        build: 1.5,
        boot: 30.5,
        load: 3.0,
        tests: 10.0,
        down: 1.25,
    };
    assert_eq!(times(two), want);
    assert_eq!(times(""), Times::default());
}

#[test]
fn the_table_has_the_lanes_that_ran_and_their_sum() {
    let lane = |name: &str, boot| {
        let mut lane = outcome(name, true, "ok 1\n1..1\n");
        lane.times = Times {
            vms: 1,
            boot,
            ..Times::default()
        };
        lane
    };
    let mut old = lane("rust/old", 99.0);
    old.recalled = Some("yesterday".to_owned());
    let table = time_table(&[
        lane("rust/a", 20.0),
        old,
        lane("rust/b", 11.5),
        outcome("host/x", true, ""),
    ]);
    let rows: Vec<Vec<&str>> = table
        .lines()
        .map(|l| l.split_whitespace().collect())
        .collect();
    assert_eq!(rows.len(), 4, "{table}");
    assert_eq!(rows[1][..5], ["rust/a", "1", "2", "0.0", "20.0"]);
    assert_eq!(
        rows[3],
        ["all", "lanes", "2", "3", "0.0", "31.5", "0.0", "0.0", "0.0"]
    );
    assert_eq!(time_table(&[outcome("host/x", true, "")]), "");
}
