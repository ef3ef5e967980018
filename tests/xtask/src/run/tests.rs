// SPDX-License-Identifier: GPL-2.0-only OR MIT

use super::*;
use crate::scratch::Scratch;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// What a run has printed.
#[derive(Clone, Default)]
struct Said(Rc<RefCell<Vec<u8>>>);

impl io::Write for Said {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A checkout that is made up: lanes are keyed by the file `sources`, and print the file `log`.
struct House {
    folder: Scratch,
    env: BTreeMap<String, String>,
    target: &'static str,
    fresh: bool,
    width: Option<usize>,
}

impl House {
    fn new() -> House {
        let folder = Scratch::new("run");
        folder.write("tests/skips", "");
        folder.write(
            "Makefile",
            "export GPU UVM_VERSION QEMU_OPTS SEED ONLY LANES\n",
        );
        folder.write("sources", "1");
        folder.write("log", "ok 1 - x\n1..1\n");
        let cache = folder.path().join("cache").display().to_string();
        let env = [
            ("PATH", "/usr/bin:/bin"),
            ("UVM_RUST_CACHE", &cache),
            ("LANES", "2"),
        ];
        let env = env
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect();
        House {
            folder,
            env,
            target: "all",
            fresh: false,
            width: None,
        }
    }

    fn given(env: &[(&str, &str)]) -> House {
        let mut house = House::new();
        house
            .env
            .extend(env.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())));
        house
    }

    /// Runs parts to their end; gives what was printed, and whether all is well.
    fn run(&self, parts: &[Part]) -> (String, bool) {
        self.within(|run| run.all(parts) == ExitCode::SUCCESS)
    }

    fn within<T>(&self, work: impl FnOnce(&mut Run) -> T) -> (String, T) {
        let setting = Setting::new(self.folder.path().to_owned(), self.env.clone());
        let wish = Wish {
            target: self.target.to_owned(),
            fresh: self.fresh,
            length: "short",
            last_word: Some(&["sh", "-c", "echo all is told"]),
            programs: Part::alone(
                "build/programs",
                &[
                    "sh",
                    "-c",
                    "echo >>built; [ ! -e broken ] && printf 'ok 1 - built\\n1..1\\n'",
                ],
            ),
        };
        let keys = |part: &Part, _: &[Known]| {
            let sources = self.folder.read("sources");
            let is_kept = part.judges || part.how == How::Lane;
            (is_kept && sources != "unknown")
                .then(|| format!("{}-{sources}", part.name.replace('/', "-")))
        };
        let said = Said::default();
        let screen = Screen::of(Box::new(said.clone()), self.width);
        let mut run = Run::new(&setting, wish, Box::new(keys), screen, Arc::default()).unwrap();
        let result = work(&mut run);
        let text = String::from_utf8(said.0.borrow().clone()).unwrap();
        (text, result)
    }

    /// How often the lanes have run, once these have.
    fn ran(&self, parts: &[Part]) -> usize {
        self.run(parts);
        self.folder.read("ran").lines().count()
    }

    /// How often the programs were built.
    fn built(&self) -> usize {
        self.folder.read("built").lines().count()
    }

    fn junit(&self) -> String {
        self.folder.read("out/test/junit.xml")
    }
}

const RAN: [&str; 3] = ["sh", "-c", "echo >>ran; cat log"];

fn lane(name: &str) -> Part {
    Part::lane(name, &RAN)
}

#[test]
fn a_lane_that_passed_does_not_run_again_until_its_sources_change() {
    let house = House::new();
    assert_eq!(house.ran(&[lane("r/s")]), 1);
    assert_eq!(house.ran(&[lane("r/s")]), 1);
    house.folder.write("sources", "2");
    assert_eq!(house.ran(&[lane("r/s")]), 2);
    let (said, _) = house.run(&[lane("r/s")]);
    assert!(said.contains("  r/s: ok 1 - x\n"), "{said}");
    assert!(
        said.contains("nothing changed since; FRESH=1 runs it"),
        "{said}"
    );
    assert!(said.ends_with("1 passed, 0 failed, 0 skipped\n"), "{said}");
    let fresh = House {
        fresh: true,
        ..house
    };
    assert_eq!(fresh.ran(&[lane("r/s")]), 3);
}

#[test]
fn a_lane_of_which_nobody_knows_the_inputs_is_not_remembered() {
    let house = House::new();
    house.folder.write("sources", "unknown");
    assert_eq!(house.ran(&[lane("r/s")]), 1);
    assert_eq!(house.ran(&[lane("r/s")]), 2);
}

#[test]
fn a_lane_whose_sources_change_while_it_runs_is_not_remembered() {
    let house = House::new();
    let edits = Part::lane(
        "r/s",
        &["sh", "-c", "echo >>ran; printf 2 >sources; cat log"],
    );
    let (said, passed) = house.run(&[edits]);
    assert!(
        passed && said.contains("its sources changed while it ran"),
        "{said}"
    );
    house.folder.write("sources", "1");
    assert_eq!(house.ran(&[lane("r/s")]), 2);
}

#[test]
fn a_part_beside_others_runs_each_time() {
    let house = House::new();
    let beside = Part::beside("r/s", &RAN);
    assert_eq!(house.ran(std::slice::from_ref(&beside)), 1);
    assert_eq!(house.ran(&[beside]), 2);
    assert_eq!(
        std::fs::read_dir(house.folder.path().join("cache/passed"))
            .unwrap()
            .count(),
        0
    );
}

#[test]
fn what_judges_the_checkout_does_not_run_again_until_something_changes() {
    let house = House::new();
    let parts = [
        Part::alone("r/s", &RAN).judging(),
        Part::beside("r/t", &RAN).judging(),
    ];
    assert_eq!(house.ran(&parts), 2);
    assert_eq!(house.ran(&parts), 2);
    let (said, _) = house.run(&parts);
    assert!(said.contains("(r/t: passed on "), "{said}");
    house.folder.write("sources", "2");
    assert_eq!(house.ran(&parts), 4);
    house.folder.write("sources", "3");
    house.folder.write("log", "not ok 1 - x\n1..1\n");
    assert_eq!(house.ran(&parts), 6);
    assert_eq!(house.ran(&parts), 8);
    let fresh = House {
        fresh: true,
        ..house
    };
    fresh.folder.write("sources", "2");
    assert_eq!(fresh.ran(&parts), 10);
}

#[test]
fn what_failed_runs_again_and_is_told_at_once_and_at_the_end() {
    let house = House::new();
    house.folder.write("log", "not ok 1 - x\n# why\n1..1\n");
    assert_eq!(house.ran(&[lane("r/s")]), 1);
    let (said, passed) = house.run(&[lane("r/s")]);
    assert_eq!(house.ran(&[]), 2);
    assert!(!passed);
    for line in [
        "all is told\nr/s: not ok",
        "--- the end of out/test/r/s.log:\n",
        "r/s: not ok 1 - x\n# why\n",
        "failed: r/s\n",
        "1 passed, 1 failed, 0 skipped\n",
    ] {
        assert!(said.contains(line), "{line} {said}");
    }
    let kept = std::fs::read_dir(house.folder.path().join("cache/failed")).unwrap();
    assert!(kept.count() >= 1);
}

#[test]
fn a_command_that_is_not_there_has_failed() {
    let house = House::new();
    let (said, passed) = house.run(&[Part::alone("r/s", &["scripts/nowhere.sh"])]);
    assert!(!passed && said.contains("No such file"), "{said}");
}

#[test]
fn what_passed_elsewhere_does_not_run_here() {
    let house = House::new();
    let elsewhere = |log: &str| house.within(|run| run.ran_elsewhere(&lane("r/s"), log));
    elsewhere("ok 1 - w\nnot ok 2 - x\n1..2\n");
    assert_eq!(house.ran(&[lane("r/s")]), 1);
    house.folder.write("sources", "2");
    elsewhere("");
    assert_eq!(house.ran(&[lane("r/s")]), 2);
    house.folder.write("sources", "3");
    elsewhere("ok 1 - x\n1..1\n");
    assert_eq!(house.ran(&[lane("r/s")]), 2);
}

#[test]
fn programs_are_built_once_and_only_for_what_runs() {
    let house = House::new();
    assert_eq!(house.ran(&[lane("r/v"), lane("r/w")]), 2);
    assert_eq!(house.built(), 1);
    assert_eq!(house.ran(&[lane("r/v"), lane("r/w")]), 2);
    assert_eq!(house.built(), 1);
    assert_eq!(house.ran(&[lane("r/x")]), 3);
    assert_eq!(house.built(), 2);
    let programs = house.within(|run| run.wish.programs.clone()).1;
    assert_eq!(house.ran(&[programs, lane("r/y")]), 4);
    assert_eq!(house.built(), 3);
}

#[test]
fn programs_that_cannot_be_built_are_run_by_no_lane() {
    let house = House::new();
    house.folder.write("broken", "");
    let (said, passed) = house.run(&[lane("r/y"), lane("r/z")]);
    assert!(!passed);
    assert_eq!(
        said.matches("not run, as its programs could not be built")
            .count(),
        2,
        "{said}"
    );
    assert_eq!((house.ran(&[]), house.built()), (0, 1));
    assert_eq!(
        house.folder.read("out/test/unpassed"),
        "build/programs\nr/y\nr/z\n"
    );
    house.folder.remove("broken");
    assert_eq!(house.ran(&[lane("r/y"), lane("r/z")]), 2);
    assert_eq!(house.folder.read("out/test/unpassed"), "");
}

#[test]
fn so_many_lanes_run_at_a_time_and_an_alone_one_is_waited_for() {
    let house = House::new();
    let both = "echo + >>n; sleep 0.3; echo - >>n; cat log";
    let lanes: Vec<Part> = ["r/a", "r/b", "r/c", "r/d"]
        .iter()
        .map(|name| Part::lane(name, &["sh", "-c", both]))
        .chain([Part::alone("r/e", &["sh", "-c", "sleep 1; echo e >>n"])])
        .chain([Part::beside("r/f", &["sh", "-c", "echo f >>n"])])
        .collect();
    assert!(house.run(&lanes).1);
    let order = house.folder.read("n").replace('\n', "");
    assert!(order.starts_with("++-") && order.ends_with("ef"), "{order}");
    let mut now = 0_i32;
    for c in order.chars() {
        now += i32::from(c == '+') - i32::from(c == '-');
        assert!(now <= 2, "{order}");
    }
    let one = House::given(&[("LANES", "1")]);
    assert!(one.run(&lanes).1);
    assert_eq!(one.folder.read("n").replace('\n', ""), "+-+-+-+-ef");
}

#[test]
fn a_part_has_its_variables_and_those_of_the_run() {
    let house = House::given(&[("GPU", "volta")]);
    let part = Part::alone("r/s", &["sh", "-c", "echo $GPU $VIDMEM $PWD >seen"]);
    assert!(house.run(&[part.with(&["VIDMEM=64M"])]).1);
    let here = house.folder.path().display();
    assert_eq!(house.folder.read("seen"), format!("volta 64M {here}\n"));
}

#[test]
fn tests_are_shown_as_they_go_by() {
    let house = House::new();
    let log = "echo 'ok 1 - a'; printf 'ok 2'; sleep 0.2; echo ' - b'; echo no; echo 1..2";
    let command = ["sh", "-c", log];
    let (said, _) = house.run(&[Part::alone("r/s", &command), Part::beside("r/t", &command)]);
    assert!(said.contains("==> r/s\n  ok 1 - a\n  ok 2 - b\n"), "{said}");
    assert!(
        said.contains("  r/t: ok 1 - a\n  r/t: ok 2 - b\n"),
        "{said}"
    );
    let line = format!(
        "{:<34} {:5} passed {:3} failed {:3} skipped\n",
        "r/t", 2, 0, 0
    );
    assert!(said.contains(&line), "{said}");
}

#[test]
fn a_terminal_says_what_runs_and_lines_that_stay_take_its_place() {
    let house = House {
        width: Some(60),
        ..House::new()
    };
    let slow = "echo 'ok 1 - a'; sleep 0.5; echo 1..1";
    let slow = [Part::lane("r/s", &["sh", "-c", slow])];
    let (said, _) = house.run(&slow);
    let parts: Vec<&str> = said.split("\r\x1b[K").collect();
    assert!(parts.windows(2).all(|two| two[0] != two[1]), "{said:?}");
    let of_lane = |part: &&&str| part.contains("[1 passed, 0 failed, 0 min] r/s ");
    let told = parts
        .iter()
        .filter(of_lane)
        .any(|part| part.ends_with(" s, 1 tests\x1b[0m"));
    assert!(told, "{said:?}");
    assert!(
        parts.last().is_some_and(|rest| rest.starts_with("r/s  ")),
        "{said:?}"
    );
    assert!(
        said.ends_with("\n2 passed, 0 failed, 0 skipped\n"),
        "{said:?}"
    );
    let narrow = House {
        width: Some(20),
        ..House::new()
    };
    let (said, _) = narrow.run(&slow);
    assert!(
        said.contains("\x1b[2m[1 passed, 0 failed\x1b[0m"),
        "{said:?}"
    );
}

#[test]
fn a_part_that_cannot_run_is_skipped_where_the_list_allows_it() {
    let house = House::new();
    house
        .folder
        .write("tests/skips", "?r/s\t(the part)\nr/t\t(the part)\n");
    let skipped = |name| Part::skipped(name, "no device".to_owned());
    let (said, passed) = house.run(&[skipped("r/s")]);
    assert!(passed && said.contains("skipped: no device"), "{said}");
    assert!(said.ends_with("0 passed, 0 failed, 1 skipped\n"), "{said}");
    assert!(house.junit().contains("<skipped message=\"no device\"/>"));
    for name in ["r/t", "r/u"] {
        let (said, passed) = house.run(&[skipped(name)]);
        assert!(
            !passed && said.contains("not on the list tests/skips: no device"),
            "{said}"
        );
    }
    let asked = Part::alone("r/s", &["false"]).unless(|_| Some("no device".to_owned()));
    assert!(house.run(&[asked]).1);
    assert!(
        house
            .run(&[Part::alone("r/s", &["true"]).unless(|_| None)])
            .1
    );
}

#[test]
fn what_the_list_says_against_a_log_belongs_to_it() {
    let house = House::new();
    house.folder.write("log", "ok 1 - x # SKIP y\n1..1\n");
    assert!(!house.run(&[lane("r/s")]).1);
    let against = "not ok r/s: skipped, but not on the list tests/skips: x\n";
    assert!(house.folder.read("out/test/r/s.log").ends_with(against));
}

/// The commands that a run says it would be run again with.
fn again(house: &House, part: &str, seeds: &str) -> Vec<String> {
    let fails = format!("printf 'not ok 1 - x\\n1..1\\n'; for s in {seeds}; do echo \"# seed $s (repeat)\"; done; exit 1");
    let (said, _) = house.run(&[Part::lane(part, &["sh", "-c", &fails])]);
    let mut commands = Vec::new();
    for line in said.lines() {
        let line = line.strip_prefix("--- ").unwrap_or(line);
        commands.extend(line.strip_prefix("again: ").map(str::to_owned));
    }
    commands
}

#[test]
fn a_failure_says_how_to_run_it_again() {
    let command = "make test ONLY='^r/a$' FRESH=1 SEED=7";
    assert_eq!(again(&House::new(), "r/a", "7"), [command, command]);
    let mut house = House::given(&[
        ("GPU", "volta"),
        ("UVM_VERSION", "570"),
        ("QEMU_OPTS", "-a b"),
        ("SEED", "8"),
        ("ONLY", "r/a"),
    ]);
    house.target = "debug";
    let options = "GPU=volta BASE=570 QEMU_OPTS=-a\\ b SEED=8";
    let command = format!("make test-debug ONLY='^r/a$' FRESH=1 {options}");
    assert_eq!(again(&house, "r/a", "7"), [command.clone(), command]);
    house = House::new();
    house.target = "vm";
    assert_eq!(
        again(&house, "r/hazards", "7")[0],
        "make test ONLY='^r/hazards$' FRESH=1"
    );
    house.target = "host";
    assert_eq!(
        again(&house, "r/a", "7 9")[0],
        "make test-host ONLY='^r/a$' FRESH=1"
    );
}

#[test]
fn what_did_not_pass_is_noted_until_it_does() {
    let house = House::new();
    house.folder.write("log", "not ok 1 - x\n1..1\n");
    house.run(&[lane("r/s"), Part::alone("r/t", &["true"])]);
    assert_eq!(house.folder.read("out/test/unpassed"), "r/s\n");
    house.folder.write("log", "ok 1 - x\n1..1\n");
    house.run(&[lane("r/s")]);
    assert_eq!(house.folder.read("out/test/unpassed"), "");
}

#[test]
fn the_time_of_vms_is_told_by_lane() {
    let house = House::new();
    let vm = "echo 'build 1 boot 20.5 load 2 tests 7 down 1' >>$UVM_TIMES; cat log";
    let lane = Part::lane("r/s", &["sh", "-c", vm]);
    let (said, _) = house.run(std::slice::from_ref(&lane));
    assert!(said.contains("20.5"), "{said}");
    // What is remembered took no time now.
    let (said, _) = house.run(std::slice::from_ref(&lane));
    assert!(!said.contains("20.5"), "{said}");
    // Nor are old times added to new ones.
    let fresh = House {
        fresh: true,
        ..house
    };
    let (said, _) = fresh.run(&[lane]);
    assert!(said.contains("20.5") && !said.contains("41.0"), "{said}");
}

#[test]
fn a_lane_that_is_newer_than_its_programs_is_not_remembered() {
    let house = House::new();
    let edits = Part::alone("r/edits", &["sh", "-c", "printf 2 >sources; cat log"]);
    let programs = house.within(|run| run.wish.programs.clone()).1;
    let (said, passed) = house.run(&[programs, edits, lane("r/s")]);
    let why = "(r/s: its sources changed after its programs were built";
    assert!(passed && said.contains(why), "{said}");
    assert_eq!(house.ran(&[lane("r/s")]), 2);
    assert_eq!(house.ran(&[lane("r/s")]), 2);
}

#[test]
fn a_part_that_ends_as_the_run_is_stopped_is_neither_counted_nor_waited_for() {
    let house = House::new();
    house.within(|run| {
        run.start(&Part::alone("r/s", &["true"]), None);
        while run.running[0].child.try_wait().unwrap().is_none() {
            std::thread::sleep(TICK);
        }
        run.stop.store(true, Ordering::Relaxed);
        assert!(run.look().is_err());
        assert_eq!((run.running.len(), run.outcomes.len()), (1, 0));
    });
}
