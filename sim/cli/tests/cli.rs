// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The program as scripts see it: exit codes, messages, JSON.

#![allow(clippy::unwrap_used)]

use std::io::Write;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::process::Output;
use std::process::Stdio;

use serde_json::Value;
use uvmsim_trace::testing::STEP;

/// Runs uvmsim with `args`, words divided by blanks, and `input`.
fn uvmsim(args: &str, input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_uvmsim"))
        .args(args.split_whitespace())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // One that fails before it reads leaves a broken pipe.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

/// Its exit code and what it said on standard error.
fn fails(args: &str, input: &str) -> (i32, String) {
    let done = uvmsim(args, input);
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(!said.contains("panicked"), "uvmsim {args}: {said}");
    (done.status.code().unwrap_or(-1), said)
}

/// The one JSON value that it prints.
fn json(args: &str, input: &str) -> Value {
    let done = uvmsim(args, input);
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "uvmsim {args}: {said}");
    serde_json::from_slice(&done.stdout).unwrap_or_else(|e| panic!("uvmsim {args}: {e}"))
}

/// The same where it is given nothing.
fn told(args: &str) -> Value {
    json(args, "")
}

/// What it prints, whatever becomes of it.
fn prints(args: &str, input: &str) -> String {
    String::from_utf8_lossy(&uvmsim(args, input).stdout).into_owned()
}

/// A folder of this test's own.
fn folder(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&path).unwrap();
    path
}

#[test]
fn what_is_wrong_in_a_trace_is_named_with_its_line() {
    let cases = [
        ("8388608 g", "-5 g", 2, "line 8: tensor 4: size -5 is negative"),
        ("kernel 1 1000000", "kernel 1 -7", 2, "line 11: kernel 1: duration -7 is negative"),
        ("second 2 3 5", "second 2,9 3 5", 2, "line 11: kernel 1 (second): tensor 9 (read) does not exist"),
        (
            "first 0,1 2 -",
            "first 0,1,3 2 -",
            2,
            "line 10: kernel 0 (first): it reads tensor 3 (b), which is first written by kernel 1 (second) in line 11: the order has a cycle",
        ),
        (
            "activation 16777216 b",
            "activation 99777216 b",
            1,
            "line 11: kernel 1 (second) needs 0.11 GiB at once and the GPU has 0.05 GiB; its largest is tensor 3 (b)",
        ),
        ("uvmtrace 1", "uvmtrace 2", 2, "line 1: format version 2"),
    ];
    let large = STEP.replacen("activation 16777216 b", "activation 99777216 b", 1);
    let run = "run --trace - --policy base-uvm --gpu-mem 48MiB --large-kernels --json";
    assert!(json(run, &large)["faults"].as_u64() > Some(0));
    for model in ["physical", "g10"] {
        for (from, to, code, what) in cases {
            let text = STEP.replacen(from, to, 1);
            assert_ne!(text, STEP);
            let args = format!("run --trace - --policy base-uvm --gpu-mem 48MiB --model {model}");
            let (got, said) = fails(&args, &text);
            assert!(said.contains(what), "{model}: {said}\nexpected {what}");
            assert_eq!(got, code, "{said}");
        }
    }
}

#[test]
fn a_step_too_large_for_a_model_is_an_error() {
    let text = "uvmtrace 1\ntensor 0 input 4503599627370496 big\nkernel 0 10 a 0 - -\n";
    let half = text.replace("4503599627370496", "200000000000000");
    for text in [text, &half] {
        for command in "run --policy best/plan/compare/run --policy most --model g10".split('/') {
            let args = format!("{command} --trace - --gpu-mem 8192TiB --host-mem 8192TiB");
            let (code, said) = fails(&args, text);
            assert_eq!(code, 1, "{said}");
            let named = said.contains("tensor 0 (big)") && said.contains("too much");
            assert!(named, "{said}");
        }
    }
}

#[test]
fn what_makes_no_sense_ends_with_2_and_names_the_remedy() {
    let cases = "
        run --trace - --policy fastest | there are base-uvm
        run --trace - --policy fastest --model g10 | base-uvm
        run --trace /nonexistent --policy best | /nonexistent
        run --trace - --policy best --gpu-mem 3MiB | --gpu-mem must be at least 32MiB
        run --trace - --policy best --gpu-mem -4GiB | --gpu-mem
        run --trace - --policy best --fault-batch 0 | --fault-batch must be at least 1
        run --trace - --policy base-uvm --evict-policy fifo | --evict-policy: `fifo` is not an eviction policy of the driver's: lru
        run --trace - --policy base-uvm --model g10 --evict-policy mru | needs --model physical
        compare --trace - --copy-engines 0 | --copy-engines must be at least 1
        plan --trace - --ssd-request 0 | --ssd-request
        plan --trace - --ssd-parallelism 0 | --ssd-parallelism
        run --trace - --policy best --machine a101 | there are a100
        compare --trace - --policies best,worst | `worst`
        compare --policies best | give --trace or --net
        compare --zoo --nets alexnet --over 1.5,0.5 | it must be from 1 to 100
        bound --json | give --trace or --net
        bound --trace - --net alexnet | cannot be used with
        bound --net alexnet --over 101 | it must be from 1 to 100
        zoo resnet51 | resnet50
        zoo resnet50 --batch 0 | --batch
        machine a101 | there are a100
        figures --only g10-99 | uvmsim figures --list
        figures --traces /nonexistent | /nonexistent
        import g10 --traces /nonexistent --net BERT --batch 1 | /nonexistent
        run --trace - --plan /nonexistent | /nonexistent
        advise nonesuch | the zoo has no `nonesuch`
        advise nonesuch | no file is called so
        zoo --config /nonexistent | /nonexistent
        zoo --config - | this is no JSON object
        zoo alexnet --config - | cannot be used with
        zoo tinyllama --batch 65536 --tokens 65536 | --batch times --tokens may be at most
        programs --programs 0 | there must be programs
        programs --working-set 4MiB | four blocks or more
        programs --gpu-mem 512MiB | room for a working set
        programs --turns 4000000 | more than can be looked at
        choose --gpu-mem 128MiB --patterns round,rund | no pattern is called `rund`; there are stream, fits, round
        choose | 32 MiB to 8 GiB of GPU memory
        frobnicate | unrecognized subcommand";
    for case in cases.trim().lines() {
        let (args, what) = case.trim().split_once(" | ").unwrap();
        let (code, said) = fails(args, STEP);
        assert_eq!(code, 2, "uvmsim {args}: {said}");
        assert!(said.contains(what), "uvmsim {args}: {said}\nnot {what}");
    }
    let (code, said) = fails("import pytorch a:b --python /nonexistent/python", "");
    assert!(code == 1 && said.contains("--python"), "{said}");
}

/// The chooser has a row beside each fixed policy, and a program that announces no kernels has no prefetcher.
#[test]
fn the_chooser_has_a_row_for_each_pattern() {
    let moved = |args: &str| {
        let args = format!("choose --gpu-mem 32MiB --patterns fits,round --json {args}");
        let said = prints(&args, "");
        let rows = said.lines().map(|l| serde_json::from_str(l).unwrap());
        rows.collect::<Vec<Value>>()
    };
    let (loud, silent) = (moved(""), moved("--silent"));
    assert_eq!((loud.len(), silent.len()), (18, 18));
    for (i, (row, other)) in loud.iter().zip(&silent).enumerate() {
        assert_eq!(row["pattern"], ["fits", "round"][i / 9]);
        assert_eq!(row["policy"] == "chooser", i % 9 == 8);
        assert_eq!(row == other, i != 17, "{row} {other}");
        assert_eq!(row["bytes"] == 0, i < 9, "{row}");
    }
    let run = json(
        "run --trace - --policy chooser --gpu-mem 80MiB --json",
        STEP,
    );
    assert_eq!(run["ran_as"], "chooser");
}

/// Programs that take turns bring what must come and no more with the policy `turns`, and all that they use without.
#[test]
fn programs_take_turns() {
    let said = prints("programs --working-set 64MiB --programs 2,4,8 --json", "");
    let rows: Vec<serde_json::Value> = said
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(rows.len(), 9);
    for row in rows {
        let [bytes, required] = ["bytes", "required"].map(|key| row[key].as_u64().unwrap());
        let programs = row["programs"].as_u64().unwrap();
        assert_eq!(row["gpu_bytes"], 96 << 20);
        match row["policy"].as_str().unwrap() {
            "turns" => assert!(required <= bytes && 10 * bytes <= 11 * required, "{row}"),
            "uvm" => assert_eq!(bytes, programs * 8 * (64 << 20), "{row}"),
            policy => assert!(policy == "deepum" && bytes >= required, "{row}"),
        }
        assert_eq!(row["simulated"], true);
    }
    let table = prints(
        "programs --working-set 64MiB --gpu-mem 80MiB --programs 2",
        "",
    );
    assert_eq!(table.lines().count(), 4, "{table}");
    assert!(table.contains("turns"), "{table}");
}

/// A step that reads one tensor of one and a half times the GPU's memory finds nothing of it there
/// under `lru`, whichever program asks for it, and more than a third of it under `mru`.
#[test]
fn the_driver_s_eviction_policies_go_by_name() {
    let step = "uvmtrace 1\ntensor 0 weight 100663296 w\nkernel 0 1000000 k 0 - -\n";
    let brought = |policy: &str| {
        let args = "run --trace - --policy base-uvm --gpu-mem 64MiB --large-kernels --json";
        json(&format!("{args} {policy}"), step)["bytes"]["host_to_gpu"]
            .as_u64()
            .unwrap()
    };
    assert_eq!(brought(""), 96 << 20);
    assert_eq!(brought("--evict-policy lru"), 96 << 20);
    let mru = brought("--evict-policy mru");
    assert!((32 << 20..64 << 20).contains(&mru), "{mru}");
    assert_eq!(told("machine a100 --json")["evict-policy"], "lru");
    let (_, said) = fails("run --trace - --policy base-uvm --evict-policy none", STEP);
    for choice in uvm_policy::evict::Choice::ALL {
        assert!(said.contains(choice.name()), "no {}: {said}", choice.name());
    }
}

/// A page of the checkout, and its commands that run uvmsim.
fn page(name: &str) -> (String, Vec<String>) {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = std::fs::read_to_string(top.join(name)).unwrap();
    let commands = text.lines().filter_map(|line| line.strip_prefix("$ "));
    let ours = commands
        .filter(|c| c.starts_with("uvmsim "))
        .map(Into::into);
    let ours = ours.collect();
    (text, ours)
}

/// What a command of a page prints, which may be several with pipes between them.
fn pipeline(command: &str) -> String {
    command.split(" | ").fold(String::new(), |input, part| {
        prints(part.strip_prefix("uvmsim ").unwrap(), &input)
    })
}

#[test]
fn the_tutorial_s_numbers_are_what_its_commands_give() {
    let (text, commands) = page("docs/your-first-policy.md");
    let [dlrm, resnet] = &commands[..] else {
        panic!("two commands: {commands:?}");
    };
    // GB to the GPU, and seconds, of the command under this policy.
    let outcome = |command: &str, policy: &str| {
        let mru = "--evict-policy mru";
        assert!(command.contains(mru), "{command}");
        let command = command.replace(mru, &format!("--evict-policy {policy}"));
        let o: Value = serde_json::from_str(&pipeline(&command)).unwrap();
        let gigabytes = o["bytes"]["host_to_gpu"].as_u64().unwrap() as f64 / 1e9;
        (gigabytes, o["step_s"].as_f64().unwrap())
    };
    let (mru, lru) = (outcome(dlrm, "mru"), outcome(dlrm, "lru"));
    let brings = format!(
        "brings {:.1} GB a step to the GPU, `lru` {:.1} GB",
        mru.0, lru.0
    );
    let faster = format!("the step is {:.1} times as fast", lru.1 / mru.1);
    let (mru, lru) = (outcome(resnet, "mru"), outcome(resnet, "lru"));
    let slower = format!("takes {:.1} times as long as with `lru`", mru.1 / lru.1);
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for says in [brings, faster, slower] {
        assert!(text.contains(&says), "the page does not say: {says}");
    }
}

/// What the README shows below its commands. `best` takes seconds to plan, and is left out.
#[test]
fn the_readme_shows_what_its_commands_print() {
    let (text, commands) = page("README.md");
    assert_eq!(commands.len(), 3);
    for command in commands {
        let shown = text.split_once(&command).unwrap().1.lines().skip(1);
        let shown = shown.take_while(|line| !line.starts_with(['$', '`']));
        let shown: Vec<_> = shown.filter(|line| !line.starts_with("best ")).collect();
        let said = pipeline(&command.replace(",best", ""));
        assert_eq!(said.lines().collect::<Vec<_>>(), shown, "{command}");
    }
}

/// `cargo run` in the checkout takes the one program that a package calls its default;
/// where none or several do, it refuses.
#[test]
fn cargo_run_is_uvmsim() {
    let done = Command::new(env!("CARGO"))
        .args("metadata --no-deps --offline --format-version 1".split(' '))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    let workspace: Value = serde_json::from_slice(&done.stdout).unwrap();
    let packages = workspace["packages"].as_array().unwrap();
    let defaults = packages.iter().filter_map(|p| p["default_run"].as_str());
    assert_eq!(defaults.collect::<Vec<_>>(), ["uvmsim"]);
}

/// What whoever sits before a terminal sees of it, standard error included (script(1)).
fn on_a_terminal(args: &str) -> String {
    let command = format!("{} {args}", env!("CARGO_BIN_EXE_uvmsim"));
    let done = Command::new("script")
        .args(["-qec", &command, "/dev/null"])
        .env("SHELL", "/bin/sh")
        .env("TERM", "xterm")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success(), "uvmsim {args}: {said}");
    said
}

/// Each of them may take minutes: what it is at is on the screen from the beginning. That its
/// time goes on there is a test of `progress`.
#[test]
fn what_may_take_long_says_what_it_is_at() {
    let trace = folder("progress").join("step");
    std::fs::write(&trace, STEP).unwrap();
    let trace = trace.display();
    let step = format!("--trace {trace} --gpu-mem 48MiB");
    for (args, shown) in [
        (format!("run {step} --policy best --json"), "best: planning"),
        (format!("run {step} --policy best --json"), "best: running"),
        (
            format!("plan {step} --policy best --json"),
            "best: planning",
        ),
        (
            format!("run {step} --policy g10 --model g10 --json"),
            "g10, ",
        ),
        (format!("compare {step} --json"), "/15 policies, "),
        (format!("compare {step} --model g10 --json"), " policies, "),
        (
            "advise alexnet --batch 8 --gpu-mem 600MiB --budget 0 --json".into(),
            "/8 policies, ",
        ),
        ("figures --only discard-t7 --json".into(), " runs, "),
    ] {
        let said = on_a_terminal(&args);
        assert!(said.contains(shown), "uvmsim {args}: no {shown} in {said}");
    }
    // Where nobody looks, and a script reads, there is none of it.
    let done = uvmsim(&format!("run {step} --policy best --json"), "");
    assert_eq!(String::from_utf8_lossy(&done.stderr), "");
}

#[test]
fn help_shows_no_default_that_is_nothing() {
    for command in ["run", "plan", "compare", "figures", "zoo", "advise"] {
        let said = prints(&format!("{command} --help"), "");
        assert!(said.contains("Usage:"), "{command}: {said}");
        assert!(!said.contains("[default: \"\"]"), "{command}: {said}");
    }
    let (code, said) = fails("run --trace -", STEP);
    assert!(code == 2 && said.contains("--policy"), "{said}");
}

#[test]
fn every_command_has_json() {
    let list = |v: &Value| v.as_array().map_or(0, Vec::len);
    assert!(list(&told("zoo --json")) >= 20);
    assert!(list(&told("machine --json")) >= 10);
    assert_eq!(
        told("machine a100 --json")["gpu-mem"].as_f64(),
        Some(40.0 * f64::from(1 << 30))
    );

    let net = told("zoo alexnet --batch 4 --json");
    assert_eq!(net["bytes_by_kind"]["weight"], 4 * 61_100_840u64);
    let again = json("trace - --json", net["trace"].as_str().unwrap());
    assert_eq!(net["bytes"], again["bytes"]);

    let trace = json("trace - --json", STEP);
    assert_eq!(
        (&trace["kernels"], &trace["tensors"]),
        (&4.into(), &6.into())
    );
    assert_eq!(trace["meta"]["name"], "small");

    let figures = told("figures --only discard-t7 --json");
    assert_eq!(figures["figures"][0]["name"], "discard-t7");

    for model in ["physical", "g10"] {
        let args = format!("compare --trace - --gpu-mem 48MiB --model {model} --json");
        let all = json(&args, STEP);
        assert!(list(&all["policies"]) >= 10, "{all}");
    }
}

/// A step that is recomputed in part moves less: the bound says that it is none of that.
#[test]
fn the_bound_says_what_it_bounds() {
    const WHOM: &str = "no policy that keeps all tensors, without recomputation,";
    for model in ["physical", "g10"] {
        let args = format!("compare --trace - --gpu-mem 48MiB --policies base-uvm --model {model}");
        let said = prints(&args, STEP);
        let line = said.lines().find(|l| l.starts_with("(bound of moves)"));
        let line = line.unwrap();
        assert!(line.contains(WHOM), "{line}");
    }
    let page = folder("bounds").join("r.html");
    let args = "compare --trace - --gpu-mem 48MiB --policies base-uvm --report";
    assert!(uvmsim(&format!("{args} {}", page.display()), STEP)
        .status
        .success());
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains(WHOM));
}

/// Recomputation is nobody's unless it is asked for; it is below the bound of those that move;
/// and its plan, which says what runs again, is replayed.
#[test]
fn recomputation_is_asked_for_by_name() {
    let folder = folder("recompute");
    let (trace, plan) = (folder.join("a.uvmtrace"), folder.join("a.uvmplan"));
    let args = "zoo bert-base --batch 8 --tokens 128 -o";
    assert!(uvmsim(&format!("{args} {}", trace.display()), "")
        .status
        .success());
    let text = std::fs::read_to_string(&trace).unwrap();
    assert!(text.contains(" checkpoint=11\n"), "a layer is a part");
    let (trace, plan) = (trace.display(), plan.display());
    let machine = "--gpu-mem 2200MiB";
    let all = told(&format!("compare --trace {trace} {machine} --json"));
    let named = |name: &str, all: &Value| {
        let list = all["policies"].as_array().unwrap();
        let found = list.iter().find(|p| p["policy"] == name);
        found.map(|p| p["step_s"].as_f64().unwrap())
    };
    assert!(named("best-recompute", &all).is_none() && named("checkpoint", &all).is_none());
    let best = named("best", &all).unwrap();
    let bound = all["bound_s"].as_f64().unwrap();
    let names = "--policies checkpoint,best-recompute";
    let all = told(&format!("compare --trace {trace} {machine} {names} --json"));
    let [checkpoint, ours] = ["checkpoint", "best-recompute"].map(|n| named(n, &all).unwrap());
    assert!(
        ours <= checkpoint && ours < bound && bound <= best,
        "{ours} {checkpoint} {bound} {best}"
    );
    for policy in ["checkpoint", "best-recompute"] {
        let made = told(&format!(
            "plan --trace {trace} --policy {policy} {machine} -o {plan} --json"
        ));
        let text = std::fs::read_to_string(plan.to_string()).unwrap();
        let again = text.lines().filter(|l| l.starts_with("again ")).count();
        assert!(text.starts_with("uvmplan 2\n") && again > 0);
        assert_eq!(made["again"], again as u64);
        let [replayed, run] = [format!("--plan {plan}"), format!("--policy {policy}")]
            .map(|by| told(&format!("run --trace {trace} {by} {machine} --json")));
        assert_eq!(replayed["step_s"], run["step_s"], "{policy}");
        assert_eq!(replayed["ideal_s"], run["ideal_s"], "{policy}");
    }
    // A program that was recorded is not named there: nobody could make it run kernels again.
    let recorded = folder.join("recorded.uvmtrace");
    let source = text.lines().find(|l| l.starts_with("meta source "));
    let as_recorded = text.replacen(source.unwrap(), "meta source uvmrun\nmeta start 7", 1);
    std::fs::write(&recorded, as_recorded).unwrap();
    let recorded = recorded.display();
    let args = format!("plan --trace {recorded} --policy checkpoint {machine} --json");
    let named: uvmsim_plan::Plan = told(&args)["plan"].as_str().unwrap().parse().unwrap();
    assert!(named.program.is_none() && !named.again.is_empty());
    // What cannot run again, or not then, is told with its line.
    let text = std::fs::read_to_string(plan.to_string()).unwrap();
    let line = text.lines().position(|l| l.starts_with("again ")).unwrap() + 1;
    let wrong = text.replacen("again ", "again 999999 0\nagain ", 1);
    std::fs::write(plan.to_string(), wrong).unwrap();
    let (code, said) = fails(&format!("run --trace {trace} --plan {plan} {machine}"), "");
    let named = said.contains(&format!("line {line}:"));
    assert!(code == 2 && named, "{said}");
}

#[test]
fn runs_have_the_keys_that_others_script() {
    for model in ["physical", "g10"] {
        let policies =
            "base-uvm flashneuron deepum g10-gds g10-host g10 most teraio autovm best ideal";
        for policy in policies.split(' ') {
            let args = format!(
                "run --trace - --policy {policy} --model {model} --gpu-mem 80MiB --host-mem 128GiB --pcie 15.754 --ssd-read 3.2 --ssd-write 3.2 --json"
            );
            let run = json(&args, STEP);
            for key in ["ideal_s", "step_s", "normalized", "faults", "stall_s"] {
                assert!(run[key].is_number(), "{model} {policy}: {key} in {run}");
            }
            for key in ["host_to_gpu", "gpu_to_host", "ssd_to_gpu", "gpu_to_ssd"] {
                let bytes = &run["bytes"][key];
                assert!(bytes.is_number(), "{model} {policy}: {key} in {run}");
            }
            let [ideal, step, normalized] =
                ["ideal_s", "step_s", "normalized"].map(|key| run[key].as_f64().unwrap());
            assert!((ideal - 0.004).abs() < 1e-4, "{run}");
            assert!((normalized - ideal / step).abs() < 1e-6, "{run}");
            match &run["bound_s"] {
                Value::Null => assert_eq!(model, "g10"),
                bound => assert!(
                    policy == "ideal" || bound.as_f64().unwrap() <= step * (1.0 + 1e-9),
                    "{run}"
                ),
            }
        }
    }
}

#[test]
fn a_plan_is_written_and_replayed() {
    let folder = folder("plans");
    let (trace, plan) = (folder.join("a.uvmtrace"), folder.join("a.uvmplan"));
    std::fs::write(&trace, STEP).unwrap();
    let (trace, plan) = (trace.display(), plan.display());
    let machine = "--gpu-mem 60MiB --ssd-read 3 --ssd-write 3";
    for policy in ["best", "g10", "most", "teraio", "autovm", "flashneuron"] {
        let made = told(&format!(
            "plan --trace {trace} --policy {policy} {machine} -o {plan} --json"
        ));
        assert_eq!(made["file"], plan.to_string());
        let text = std::fs::read_to_string(plan.to_string()).unwrap();
        assert!(text.starts_with("uvmplan 1\n"), "{text}");
        // What uvmrun carries out is the same plan.
        let runtime = uvmrust::plan::Plan::parse(&text).unwrap();
        let asked = (0..runtime.kernels()).map(|k| runtime.before(k).len());
        let lines = text.lines().filter(|l| l.starts_with("at "));
        assert_eq!(asked.sum::<usize>(), lines.count(), "{text}");
        let printed = told(&format!(
            "plan --trace {trace} --policy {policy} {machine} --json"
        ));
        assert_eq!(printed["plan"], text, "the same trace gives the same plan");
        let [replayed, run] = [format!("--plan {plan}"), format!("--policy {policy}")]
            .map(|by| told(&format!("run --trace {trace} {by} {machine} --json")));
        assert_eq!(replayed["step_s"], run["step_s"], "{policy}");
    }
    // A plan of another trace is refused, with its line.
    std::fs::write(plan.to_string(), "uvmplan 1\nkernels 5\nspan 4096\n").unwrap();
    let (code, said) = fails(&format!("run --trace {trace} --plan {plan}"), "");
    let named = said.contains("line 2: the plan is for 5 kernels");
    assert!(code == 2 && named, "{said}");
}

#[test]
fn reports_are_written() {
    let folder = folder("reports");
    let (page, plots) = (folder.join("r.html"), folder.join("plots"));
    let args = format!(
        "compare --trace - --gpu-mem 48MiB --policies base-uvm,best --report {} --svg {}",
        page.display(),
        plots.display()
    );
    assert!(uvmsim(&args, STEP).status.success());
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
    for name in "times traffic lifetimes best-memory best-links best-stalls".split(' ') {
        let svg = std::fs::read_to_string(plots.join(format!("{name}.svg"))).unwrap();
        let whole = svg.starts_with("<svg ") && svg.ends_with("</svg>");
        assert!(whole, "{name}");
    }
}

/// A trace of `uvmrun --record`: its plan says how to know the program again.
#[test]
fn the_plan_of_a_recorded_program_names_it() {
    let folder = folder("recorded");
    let (trace, plan) = (folder.join("a.uvmtrace"), folder.join("a.uvmplan"));
    let (trace, plan) = (trace.display(), plan.display());
    let made = |text: &str| {
        std::fs::write(trace.to_string(), text).unwrap();
        let line = format!("plan --trace {trace} --policy most --gpu-mem 48MiB -o {plan}");
        let done = uvmsim(&line, "");
        let plan = std::fs::read_to_string(plan.to_string());
        (done.status.code(), plan)
    };
    assert!(!made(STEP).1.unwrap().contains("launch"));
    let recorded = STEP.replace("meta batch 4\n", "meta source uvmrun\nmeta start 7\n");
    let text = made(&recorded).1.unwrap();
    let program = "start 7\nlaunch 0 first\nlaunch 1 second\nlaunch 2 makeLoss\n\
                   launch 3 update\ntensor 0 x\n";
    assert!(text.contains(program), "{text}");
    // The requests come last.
    assert!(text.contains("tensor 5 s\nat "), "{text}");
    // What reads it reads all of it, for uvmrun as well.
    let read: uvmsim_plan::Plan = text.parse().unwrap();
    assert_eq!(read.to_string(), text);
    // So does that of a step that was recorded inside PyTorch.
    let inside = recorded.replace("source uvmrun", "source uvmrust.offload");
    assert_eq!(made(&inside).1.unwrap(), text);
    made(&recorded).1.unwrap();
    let runtime = uvmrust::plan::Plan::parse(&text).unwrap();
    assert_eq!(runtime.program(), read.program.as_ref());
    let names: Vec<_> = runtime.program().unwrap().names().collect();
    assert_eq!(names, ["first", "second", "makeLoss", "update"]);
    // It is replayed, but not on a trace of another program.
    let run = format!("run --trace {trace} --gpu-mem 48MiB --plan {plan}");
    assert!(uvmsim(&run, "").status.success());
    for (old, new) in [("second", "other"), (" x\n", " y\n")] {
        std::fs::write(trace.to_string(), recorded.replace(old, new)).unwrap();
        let (code, said) = fails(&run, "");
        let (old, new) = (old.trim(), new.trim());
        assert_eq!(code, 2, "{said}");
        let both = format!("is {old}, the trace's {new}");
        assert!(said.contains(&both), "{said}");
    }
    // Where it starts, a record says.
    assert_eq!(made(&recorded.replace("meta start 7\n", "")).0, Some(2));
}

/// Who follows a plan by launches and allocations does not see how far a kernel is, and moves allocations whole.
#[test]
fn the_plan_of_a_recorded_program_moves_whole_tensors_between_kernels() {
    let size = |i: u32| if i < 8 { 32u64 << 20 } else { 128 << 20 };
    let tensors = (0..10).map(|i| format!("tensor {i} activation {} t{i}\n", size(i)));
    let written = (0..9).map(|i| format!("- {i}"));
    let read = (0..8).rev().map(|i| format!("{i} -"));
    let uses = written.chain(["8 9".into(), "9 -".into()]).chain(read);
    let kernels = uses
        .zip(0..)
        .map(|(uses, k)| format!("kernel {k} 100000 k{k} {uses} -\n"));
    let step: String = tensors.chain(kernels).collect();
    let plan = |meta: &str| {
        let trace = format!("uvmtrace 1\nmeta name step\n{meta}{step}");
        json(
            "plan --trace - --policy best --gpu-mem 400MiB --json",
            &trace,
        )
    };
    let text = |made: &Value| made["plan"].as_str().unwrap().to_owned();
    let of_trace = text(&plan(""));
    assert!(of_trace.contains(" behind\n"), "{of_trace}");
    let recorded = text(&plan("meta source uvmrun\nmeta start 0\n"));
    assert!(
        recorded.contains(" evict ") && !recorded.contains(" behind\n"),
        "{recorded}"
    );
    let whole = |line: &str| {
        let fields: Vec<_> = line.split(' ').collect();
        size(fields[3].parse().unwrap()).to_string() == fields[5]
    };
    let mut requests = recorded.lines().filter(|line| line.starts_with("at "));
    assert!(requests.all(whole), "{recorded}");
}

#[test]
fn completions_know_every_command() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = prints(&format!("completions {shell}"), "");
        let words = "zoo import trace machine run plan compare figures ssd-read";
        for word in words.split(' ') {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
}

#[test]
fn a_reader_that_has_enough_is_no_error() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_uvmsim"))
        .args(["zoo", "resnet152", "--batch", "4"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let done = child.wait_with_output().unwrap();
    assert!(done.status.success() && done.stderr.is_empty(), "{done:?}");
}

/// A Llama of 5.5 million parameters.
const LLAMA: &str = r#"{"model_type": "llama", "vocab_size": 2000, "hidden_size": 256,
    "intermediate_size": 512, "num_hidden_layers": 8, "num_attention_heads": 8,
    "num_key_value_heads": 2, "max_position_embeddings": 2048}"#;

#[test]
fn a_configuration_file_makes_a_step() {
    let path = folder("config").join("own.json");
    std::fs::write(&path, LLAMA).unwrap();
    let path = path.display();
    let step = told(&format!(
        "zoo --config {path} --batch 2 --tokens 64 --precision bf16 --json"
    ));
    // Words, head, the blocks' and the last norm; 2 bytes each.
    let block = 2 * 256 * 256 + 2 * 256 * 64 + 3 * 256 * 512 + 2 * 256;
    let parameters: u64 = 2 * 2000 * 256 + 8 * block + 256;
    assert_eq!(step["bytes_by_kind"]["weight"], 2 * parameters);
    let again = json("trace - --json", step["trace"].as_str().unwrap());
    assert_eq!(again["meta"]["name"], "own");
    let args = "zoo --config - --batch 2 --tokens 64 --precision bf16 --json";
    assert_eq!(json(args, LLAMA)["bytes"], step["bytes"]);
    let (code, said) = fails(
        "zoo --config -",
        &LLAMA.replace("intermediate_size", "feed"),
    );
    let named = said.contains("-: `intermediate_size` is missing");
    assert!(code == 2 && named, "{said}");
}

/// The largest batch that fits whole does and the next does not; what does not fit is run under each
/// policy, and the fastest is named.
#[test]
fn advise_says_what_fits_and_who_is_fastest() {
    let folder = folder("advise");
    let (path, page) = (folder.join("own.json"), folder.join("page.html"));
    std::fs::write(&path, LLAMA).unwrap();
    let common = format!(
        "advise {} --tokens 128 --gpu-mem 160MiB --budget 0.1",
        path.display()
    );
    let of = |batch: u64| told(&format!("{common} --batch {batch} --json"));
    let spilled = of(16);
    let whole = spilled["largest_whole_batch"].as_u64().unwrap();
    assert!((1..16).contains(&whole), "{whole}");
    let [fits, next] = [whole, whole + 1].map(of);
    assert_eq!(
        (&fits["spilled_bytes"], &fits["policies"]),
        (&0.into(), &Value::Array(Vec::new()))
    );
    assert!(next["spilled_bytes"].as_u64() > Some(0));
    assert!(spilled["spilled_bytes"].as_u64() > next["spilled_bytes"].as_u64());
    let held = spilled["held_bytes"].as_object().unwrap().values();
    let held: u64 = held.filter_map(Value::as_u64).sum();
    let peak = spilled["peak_bytes"].as_u64().unwrap();
    assert!(held <= peak && peak - held < 4096 * 2000);
    let seconds = |p: &Value| p["step_s"].as_f64();
    let policies = spilled["policies"].as_array().unwrap();
    assert_eq!(policies.len(), 8);
    let again = |p: &&Value| {
        ["checkpoint", "best-recompute"]
            .iter()
            .any(|n| p["policy"] == *n)
    };
    let once = policies.iter().filter(|p| !again(p));
    let least = once.min_by(|a, b| seconds(a).partial_cmp(&seconds(b)).unwrap());
    assert_eq!(spilled["fastest"], least.unwrap()["policy"]);

    let args = format!("{common} --batch 16 --html {}", page.display());
    let text = prints(&args, "");
    let fastest = spilled["fastest"].as_str().unwrap();
    for said in [
        "spill to host memory",
        "under each policy",
        &format!("Batch {whole} is the largest"),
    ] {
        assert!(text.contains(said), "no {said} in {text}");
    }
    // With so little time, another policy may be ahead on another run.
    assert!(text.contains("is the fastest policy"), "{fastest}: {text}");
    assert!(text.lines().all(|line| line.len() <= 80), "{text}");
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("under each policy") && page.ends_with("</html>\n"));

    let small = format!(
        "advise {} --tokens 128 --gpu-mem 32MiB --batch 64",
        path.display()
    );
    let (code, said) = fails(&small, "");
    let named =
        said.contains("needs") && said.contains("the largest batch whose kernels all fit is");
    assert!(code == 1 && named, "{said}");
}
