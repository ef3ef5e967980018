// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Runs the tests of uvm-rust, in parts, and says what came of them.
//!
//! `scripts/test.sh` builds this and starts it; `make test` and its relatives start that. The last line is
//! "N passed, N failed, N skipped", and the exit status is 0 only if nothing failed.

mod count;
mod follow;
mod glob;
mod inputs;
mod log;
mod memory;
mod names;
mod part;
mod process;
mod report;
mod run;
#[cfg(test)]
mod scratch;
mod screen;
mod setting;
mod skips;
mod table;

use inputs::Inputs;
use memory::Unpassed;
use part::Part;
use regex_lite::Regex;
use run::{Run, Wish};
use screen::Screen;
use setting::Setting;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::sync::Arc;

const HELP: &str = "\
test.sh TARGET [OPTIONS]     runs the parts of host, vm, kselftest, flash, extra, debug, versions or all
test.sh list [TARGET]        names them, and runs nothing
test.sh names FOLDER         prints the tests that ran, by the logs below FOLDER (out/test)
test.sh names OLD NEW        prints what OLD names and NEW does not, and fails if there is any; each is such
                             a folder, or a file with names: of tests, or of parts (test.sh list)
test.sh demo-ran LOG         what `make demo` printed as it passed, for the lane of that name

  --only REGEX      (ONLY)      parts whose names match
  --fresh           (FRESH=1)   runs what has passed before, too
  --rerun-failed    (FAILED=1)  parts that did not pass when they last ran
  --list                        names the parts that would run
  --commands                    names them with their commands

What passed is remembered in the cache by all that went into it, as Go's tests are: unchanged, it does not run
again, its log is shown, and the output says so. A lane in the VM is made of the sources that its command names, a
part on the host of the whole checkout and of the packages that are installed.

Each part writes out/test/PART.log. A part in TAP counts its test lines and must keep to its plan; cargo's
counts are taken from its own summaries. What is skipped must be on the list tests/skips. All tests together
are in out/test/junit.xml and out/test/tests.tap.";

/// What the command line asks for.
#[derive(Default)]
struct Asked {
    words: Vec<String>,
    only: Option<String>,
    fresh: bool,
    failed: bool,
    list: bool,
    commands: bool,
    help: bool,
}

fn main() -> ExitCode {
    match asked().and_then(|asked| run(&asked)) {
        Ok(code) => code,
        Err(why) => {
            eprintln!("error: {why}");
            ExitCode::from(2)
        }
    }
}

fn asked() -> Result<Asked, String> {
    use lexopt::prelude::*;
    let mut asked = Asked::default();
    let mut parser = lexopt::Parser::from_env();
    let unread = |error: lexopt::Error| format!("test.sh: {error} (--help)");
    while let Some(argument) = parser.next().map_err(unread)? {
        match argument {
            Long("only") => {
                let value = parser.value().and_then(|v| v.string()).map_err(unread)?;
                asked.only = Some(value);
            }
            Long("fresh") => asked.fresh = true,
            Long("rerun-failed") => asked.failed = true,
            Long("list") => asked.list = true,
            Long("commands") => asked.commands = true,
            Short('h') | Long("help") => asked.help = true,
            Value(word) => asked.words.push(word.to_string_lossy().into_owned()),
            other => return Err(unread(other.unexpected())),
        }
    }
    Ok(asked)
}

fn run(asked: &Asked) -> Result<ExitCode, String> {
    if asked.help {
        println!("{HELP}");
        return Ok(ExitCode::SUCCESS);
    }
    let mut setting = Setting::of_process(checkout()?);
    let words: Vec<&str> = asked.words.iter().map(String::as_str).collect();
    match words[..] {
        ["names", of] => {
            for name in names::names(Path::new(of))? {
                println!("{name}");
            }
            Ok(ExitCode::SUCCESS)
        }
        ["names", old, new] => {
            let (old, new) = (names::names(Path::new(old))?, names::names(Path::new(new))?);
            let (said, same) = names::compare(&old, &new);
            print!("{said}");
            Ok(if same {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            })
        }
        ["names"] | ["demo-ran"] => Err("test.sh: too few words (--help)".to_owned()),
        ["demo-ran", log] => {
            export(&mut setting);
            demo_ran(&setting, log)
        }
        ["list"] => list("all", asked, &setting),
        ["list", target] => list(target, asked, &setting),
        [] | [_] => {
            let target = words.first().copied().unwrap_or("all");
            if asked.list || asked.commands {
                return list(target, asked, &setting);
            }
            export(&mut setting);
            test(target, asked, &setting)
        }
        _ => Err("test.sh: too many words (--help)".to_owned()),
    }
}

/// Finds the checkout that the current folder is in.
fn checkout() -> Result<PathBuf, String> {
    let here = std::env::current_dir().map_err(|error| format!("test.sh: {error}"))?;
    let top = here
        .ancestors()
        .find(|folder| folder.join("scripts/test.sh").is_file());
    top.map(Path::to_owned)
        .ok_or_else(|| "test.sh: this is no checkout of uvm-rust".to_owned())
}

/// Sets what all that runs has to know.
fn export(setting: &mut Setting) {
    // Every VM ends by unloading the modules, which report what is left.
    setting.set("VM_UNLOAD", "1");
    // Where this run has built the modules: vm.sh need not have it looked up.
    let built = setting.top.join("out/test/built").display().to_string();
    setting.set("UVM_BUILT", &built);
    // A test of a script that asks for the list of parts need not wait for cargo.
    if let Ok(this) = std::env::current_exe() {
        setting.set("UVM_RUST_XTASK", &this.display().to_string());
    }
}

/// The parts of a target that are asked for.
fn wanted(target: &str, asked: &Asked, setting: &Setting) -> Result<Vec<Part>, String> {
    let mut parts = table::parts(target, setting)?;
    if let Some(only) = asked.only.as_deref().or(setting.get("ONLY")) {
        let only = Regex::new(only).map_err(|error| format!("ONLY={only}: {error}"))?;
        parts.retain(|part| only.is_match(&part.name));
        if parts.is_empty() {
            return Err(format!(
                "no part of {target} is called {only} (scripts/test.sh list)"
            ));
        }
    }
    if asked.failed || setting.get("FAILED").is_some() {
        let unpassed = Unpassed::open(setting.top.join("out/test/unpassed"));
        parts.retain(|part| unpassed.names().contains(&part.name));
    }
    Ok(parts)
}

/// Names parts, and runs nothing. What cannot run here is a part, too.
fn list(target: &str, asked: &Asked, setting: &Setting) -> Result<ExitCode, String> {
    for part in wanted(target, asked, setting)? {
        if !asked.commands {
            println!("{}", part.name);
            continue;
        }
        let env = part
            .env
            .iter()
            .map(|(name, value)| format!("{name}={}", setting::quoted(value)));
        let command = part.command.iter().map(|word| setting::quoted(word));
        let words: Vec<String> = env.chain(command).collect();
        let words = part
            .skipped
            .map_or(words.join(" "), |why| format!("skipped: {why}"));
        println!("{} {words}", part.name);
    }
    Ok(ExitCode::SUCCESS)
}

fn test(target: &str, asked: &Asked, setting: &Setting) -> Result<ExitCode, String> {
    let parts = wanted(target, asked, setting)?;
    if target != "host" {
        // What an earlier run has built may be another kernel's by now.
        let _ = std::fs::remove_file(setting.top.join("out/test/built"));
    }
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [
        signal_hook::consts::SIGINT,
        signal_hook::consts::SIGTERM,
        signal_hook::consts::SIGHUP,
    ] {
        signal_hook::flag::register(signal, Arc::clone(&stop))
            .map_err(|error| format!("test.sh: {error}"))?;
    }
    process::adopt_orphans();
    let fresh = asked.fresh || setting.get("FRESH").is_some();
    let mut run = prepared(target, fresh, setting, Screen::stdout(), stop)?;
    Ok(run.all(&parts))
}

fn prepared<'a>(
    target: &str,
    fresh: bool,
    setting: &'a Setting,
    screen: Screen,
    stop: Arc<AtomicBool>,
) -> Result<Run<'a>, String> {
    let wish = Wish {
        target: target.to_owned(),
        fresh,
        length: table::amount(target).length,
        last_word: table::last_word(target),
        programs: table::programs(),
    };
    let inputs = Inputs::new(setting);
    let keys = Box::new(move |part: &Part, known: &[skips::Known]| inputs.key(part, known));
    Run::new(setting, wish, keys, screen, stop).map_err(|error| format!("test.sh: {error}"))
}

/// `make demo` ran with success and printed this log. Among the tests it need not run again.
fn demo_ran(setting: &Setting, log: &str) -> Result<ExitCode, String> {
    let text = std::fs::read(log).map_err(|error| format!("test.sh: {log}: {error}"))?;
    let parts = table::parts("vm", setting)?;
    let demo = parts.iter().find(|part| part.name == "demo");
    let demo = demo.ok_or("test.sh: there is no part called demo")?;
    let mut run = prepared("vm", false, setting, Screen::stdout(), Arc::default())?;
    run.ran_elsewhere(demo, &String::from_utf8_lossy(&text));
    Ok(ExitCode::SUCCESS)
}
