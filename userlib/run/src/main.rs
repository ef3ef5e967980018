// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! `uvmrun`: starts a CUDA program under `libuvmrust_preload.so`.

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use uvmrust::plan::Plan;

mod check;
mod pytorch;
mod record;
mod selftest;

const HELP: &str = "usage: uvmrun [OPTION...] [--] PROGRAM [ARGUMENT...]
       uvmrun --check [--json]
       uvmrun --selftest
Runs a CUDA program with its device memory managed, so that it may be larger than the
GPU's, and tells the driver which kernel comes.
  --plan FILE         before each kernel, do what this plan says (uvmsim plan)
  --record FILE       write a trace of what the program does, for uvmsim plan
  --managed-min SIZE  smallest allocation that becomes managed: bytes, 64K, 2M (1M)
  --memory WHAT       what cuMemGetInfo tells the program: `gpu`, the GPU's memory (as
                      without uvmrun); `managed`, the host's too, which managed memory
                      can take
  --no-managed        leave device memory as it is; a record has it all the same
  --no-mapping        have the program map no memory by itself, which is not managed:
                      tell it that no GPU can, and take `expandable_segments:True` out of
                      PYTORCH_CUDA_ALLOC_CONF and PYTORCH_ALLOC_CONF
  --pytorch-cache     with --record and with a plan of a record: leave PyTorch's cache of
                      device memory on, which hides tensors; CUDA graphs need it
  --no-announce       announce no kernels
  --library FILE      libuvmrust_preload.so, if it is not beside this program or in
                      ../lib, ../lib64, ../lib/<machine>-linux-gnu
  --check             run nothing: say what of unified memory works on this machine, and
                      what to do about the rest
  --json              with --check: for programs
  --selftest          write, move and discard memory on the first GPU, also in a stream and
                      a graph, and compare what is there with what should be; takes some
                      seconds, 60 at most, and 20 MiB
  --help              this text
Exit status: the program's; 125 if uvmrun itself fails, 126 if the program cannot be
run, 127 if it is not found. Of --check: 0 if all works, 1 if programs run but there is
something to do, 2 if there is no unified memory. Of --selftest: 0 if all is right, 1 if
something is not or does not end, 2 if no discard could be tested.
";

/// What the preload reads of `--memory`.
const MEMORY: &str = "UVMRUST_MEMINFO";
/// What the preload reads of `--no-mapping`.
const MAPPING: &str = "UVMRUST_MAPPING";
const LIBRARY: &str = "libuvmrust_preload.so";

/// What the command line asks for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Options {
    /// Variables of the preload.
    set: Vec<(&'static str, OsString)>,
    library: Option<PathBuf>,
    /// Whether PyTorch's cache stays as it is where tensors are to be told apart.
    pytorch_cache: bool,
    /// File for the trace.
    record: Option<PathBuf>,
    program: OsString,
    arguments: Vec<OsString>,
}

/// What the command line asks for.
#[derive(Debug, PartialEq, Eq)]
enum Asked {
    Help,
    Check(check::Options),
    Selftest,
    /// The part of it that calls CUDA.
    SelftestChild,
    Run(Options),
}

fn options(args: impl IntoIterator<Item = OsString>) -> Result<Asked, lexopt::Error> {
    use lexopt::prelude::*;
    let mut options = Options::default();
    let (mut checks, mut selftest, mut json, mut root) = (false, false, false, None);
    let mut parser = lexopt::Parser::from_args(args);
    while let Some(argument) = parser.next()? {
        match argument {
            Long("plan") => options.set.push(("UVMRUST_PLAN", parser.value()?)),
            Long("record") => options.record = Some(parser.value()?.into()),
            Long("managed-min") => options.set.push(("UVMRUST_MANAGED_MIN", parser.value()?)),
            Long("memory") => options.set.push((MEMORY, memory(parser.value()?)?)),
            Long("no-managed") => options.set.push(("UVMRUST_MANAGED", "0".into())),
            Long("no-mapping") => options.set.push((MAPPING, "0".into())),
            Long("pytorch-cache") => options.pytorch_cache = true,
            Long("no-announce") => options.set.push(("UVMRUST_ANNOUNCE", "0".into())),
            Long("library") => options.library = Some(parser.value()?.into()),
            Long("check") => checks = true,
            Long("selftest") => selftest = true,
            // For --selftest itself. Not in the help.
            Long("selftest-child") => return Ok(Asked::SelftestChild),
            Long("json") => json = true,
            // For tests: below this folder are /proc and the like. Not in the help.
            Long("root") => root = Some(PathBuf::from(parser.value()?)),
            Long("help") => return Ok(Asked::Help),
            Value(_) if checks => return Err("--check takes no program".into()),
            Value(_) if selftest => return Err("--selftest takes no program".into()),
            Value(_) if json || root.is_some() => return Err("--json is for --check".into()),
            Value(program) => {
                let has = |name, value: &str| options.set.contains(&(name, value.into()));
                if has(MEMORY, "managed") && has("UVMRUST_MANAGED", "0") {
                    return Err("--memory managed and --no-managed exclude each other".into());
                }
                options.program = program;
                // The rest is the program's, its options too.
                options.arguments = parser.raw_args()?.collect();
                return Ok(Asked::Run(options));
            }
            _ => return Err(argument.unexpected()),
        }
    }
    if !checks && !selftest {
        return Err("no program is given".into());
    }
    if selftest {
        let alone = !checks && !json && root.is_none() && options == Options::default();
        let why = "--selftest takes no other option";
        return alone.then_some(Asked::Selftest).ok_or_else(|| why.into());
    }
    if !options.set.is_empty() || options.record.is_some() || options.pytorch_cache {
        return Err("--check takes no option but --json and --library".into());
    }
    Ok(Asked::Check(check::Options {
        json,
        root: root.unwrap_or_else(|| "/".into()),
        library: options.library,
    }))
}

/// A value of `--memory`: a program that is told less than was meant would fill the GPU alone.
fn memory(given: OsString) -> Result<OsString, lexopt::Error> {
    if given == "gpu" || given == "managed" {
        return Ok(given);
    }
    Err(format!(
        "--memory is `gpu` or `managed`, not `{}`",
        given.to_string_lossy()
    )
    .into())
}

fn main() -> ExitCode {
    let options = match options(env::args_os().skip(1)) {
        Ok(Asked::Run(options)) => options,
        Ok(Asked::Check(options)) => return told(check_page(&options)),
        Ok(Asked::Selftest) => tested(selftest::run()),
        Ok(Asked::SelftestChild) => leave(selftest::run_child()),
        Ok(Asked::Help) => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprint!("uvmrun: {error}\n{HELP}");
            return ExitCode::from(125);
        }
    };
    match prepare(&options) {
        Ok(mut command) => {
            if let Some(file) = &options.record {
                return record(&mut command, file);
            }
            let error = command.exec();
            eprintln!("uvmrun: {}: {error}", options.program.to_string_lossy());
            let missing = error.kind() == std::io::ErrorKind::NotFound;
            ExitCode::from(if missing { 127 } else { 126 })
        }
        Err(why) => {
            eprintln!("uvmrun: {why}");
            ExitCode::from(125)
        }
    }
}

/// Runs the program and makes a trace of it.
fn record(command: &mut Command, file: &Path) -> ExitCode {
    match record::run(command, file) {
        Ok((status, said)) => {
            eprintln!("uvmrun: {}: {said}", file.display());
            ExitCode::from(status)
        }
        Err(failure) => {
            eprintln!("uvmrun: {}", failure.why);
            ExitCode::from(failure.status.unwrap_or(125))
        }
    }
}

fn check_page(options: &check::Options) -> (String, u8) {
    check::check(options, library(options.library.as_deref()).ok())
}

/// Prints a page, and exits with what it comes to.
fn told((text, status): (String, u8)) -> ExitCode {
    use std::io::Write;
    // Who reads no further, as `head`, has had enough.
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            eprintln!("uvmrun: {error}");
            ExitCode::from(125)
        }
        _ => ExitCode::from(status),
    }
}

/// Prints a page of the self-test, and exits.
fn tested((text, status): (String, u8)) -> ! {
    use std::io::Write;
    // Who reads no further has had enough.
    let mut out = std::io::stdout();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    leave(status)
}

/// Exits, and runs nothing of CUDA's or the C library's before: what waits for a GPU might wait for
/// ever.
fn leave(status: u8) -> ! {
    // SAFETY: nothing of this process is needed any more.
    unsafe { libc::_exit(status.into()) }
}

/// The program with its environment. What can be wrong with a plan is said here, where
/// somebody looks, and not among the program's own words.
fn prepare(options: &Options) -> Result<Command, String> {
    let mut command = Command::new(&options.program);
    command.args(&options.arguments);
    // Of another that has started this one.
    command.env_remove("UVMRUST_PLAN_PID");
    if options.set.iter().any(|(name, _)| *name == MAPPING) {
        for name in pytorch::CONF {
            let conf = env::var(name).ok();
            command.envs(conf.map(|conf| (name, pytorch::without_segments(&conf))));
        }
    }
    let mut tells_tensors = options.record.is_some();
    for (name, value) in &options.set {
        if *name != "UVMRUST_PLAN" {
            command.env(name, value);
            continue;
        }
        let path = Path::new(value);
        let told = |why: String| format!("{}: {why}", path.display());
        let text = std::fs::read_to_string(path).map_err(|e| told(e.to_string()))?;
        let plan = Plan::parse(&text).map_err(|e| told(e.to_string()))?;
        tells_tensors |= plan.program().is_some();
        // The program may go elsewhere before it is read.
        let whole = path.canonicalize().map_err(|e| told(e.to_string()))?;
        command.env(name, whole);
        // The program takes this process's place, and its number; but one that is recorded is a child.
        let own = std::process::id();
        let parent = if options.record.is_some() {
            "parent:"
        } else {
            ""
        };
        command.env("UVMRUST_PLAN_PID", format!("{parent}{own}"));
    }
    if tells_tensors && !options.pytorch_cache {
        command.envs(pytorch::without_cache(env::var_os(pytorch::NO_CACHE)));
    }
    let library = library(options.library.as_deref())?;
    command.env("LD_PRELOAD", before(&library, env::var_os("LD_PRELOAD")));
    Ok(command)
}

/// The preload that is given, or that belongs to this program.
fn library(given: Option<&Path>) -> Result<PathBuf, String> {
    let library = match given {
        Some(given) => given.canonicalize().ok(),
        None => find(&env::current_exe().map_err(|e| e.to_string())?),
    };
    library.ok_or_else(|| {
        format!(
            "{LIBRARY} is not there; build it with `make -C userlib` and Rust 1.88 or later, \
             or give --library"
        )
    })
}

/// The preload that belongs to this program: as built, or as installed.
fn find(program: &Path) -> Option<PathBuf> {
    let folder = program.parent()?;
    let machine = format!("../lib/{}-linux-gnu", env::consts::ARCH);
    [".", "../lib", "../lib64", &machine]
        .iter()
        .find_map(|place| folder.join(place).join(LIBRARY).canonicalize().ok())
}

/// A list of libraries to load first, with this one before the others.
fn before(library: &Path, others: Option<OsString>) -> OsString {
    let mut list = library.as_os_str().to_owned();
    if let Some(others) = others.filter(|o| !o.is_empty()) {
        list.push(OsStr::new(":"));
        list.push(others);
    }
    list
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn given(args: &[&str]) -> Result<Asked, lexopt::Error> {
        options(args.iter().map(OsString::from))
    }

    fn program(args: &[&str]) -> Options {
        match given(args) {
            Ok(Asked::Run(options)) => options,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn options_end_where_the_program_begins() {
        let line = [
            "--plan",
            "p",
            "--no-managed",
            "prog",
            "--plan",
            "x",
            "--",
            "-v",
        ];
        for args in [
            &line[..],
            &[
                "--plan",
                "p",
                "--no-managed",
                "--",
                "prog",
                "--plan",
                "x",
                "--",
                "-v",
            ],
        ] {
            let options = program(args);
            assert_eq!(options.program, "prog");
            assert_eq!(options.arguments, ["--plan", "x", "--", "-v"]);
            let set = [
                ("UVMRUST_PLAN", "p".into()),
                ("UVMRUST_MANAGED", "0".into()),
            ];
            assert_eq!(options.set, set);
        }
        assert_eq!(given(&["--help", "x"]).unwrap(), Asked::Help);
        assert!(given(&[]).is_err() && given(&["--plan", "p"]).is_err());
        assert!(given(&["--what", "prog"]).is_err());
    }

    #[test]
    fn how_much_memory_a_program_is_told_of() {
        for what in ["gpu", "managed"] {
            let set = program(&["--memory", what, "prog"]).set;
            assert_eq!(set, [("UVMRUST_MEMINFO", what.into())]);
        }
        assert!(given(&["--memory", "all", "prog"]).is_err());
        // No memory is managed then.
        assert!(given(&["--memory", "managed", "--no-managed", "prog"]).is_err());
        assert!(given(&["--no-managed", "--memory", "gpu", "prog"]).is_ok());
        assert!(given(&["--check", "--memory", "gpu"]).is_err());
    }

    #[test]
    fn a_check_runs_nothing() {
        let asked = |json, root: &str| {
            Asked::Check(check::Options {
                json,
                root: root.into(),
                library: None,
            })
        };
        assert_eq!(given(&["--check"]).unwrap(), asked(false, "/"));
        assert_eq!(given(&["--json", "--check"]).unwrap(), asked(true, "/"));
        let line = ["--check", "--root", "/x"];
        assert_eq!(given(&line).unwrap(), asked(false, "/x"));
        for bad in [
            &["--check", "program"][..],
            &["--json", "program"],
            &["--json"],
            &["--check", "--plan", "p"],
            &["--root", "/x", "program"],
            &["--selftest", "program"],
            &["--selftest", "--check"],
            &["--selftest", "--plan", "p"],
            &["--record", "t"],
            &["--check", "--record", "t"],
            &["--check", "--pytorch-cache"],
            &["--selftest", "--pytorch-cache"],
        ] {
            assert!(given(bad).is_err(), "{bad:?}");
        }
        assert_eq!(given(&["--selftest"]).unwrap(), Asked::Selftest);
        let record = program(&["--record", "t", "prog"]).record;
        assert_eq!(record, Some("t".into()));
        // A program's own options.
        assert_eq!(program(&["prog", "--check"]).arguments, ["--check"]);
    }

    /// A file that stands for the preload, and one of this text.
    fn file(name: &str, text: &str) -> PathBuf {
        let path = env::temp_dir().join(format!("uvmrun-{}-{name}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        path
    }

    #[test]
    fn pytorchs_cache_is_off_where_tensors_are_told_apart() {
        let of_range = "uvmplan 1\nkernels 1\nspan 4096\n";
        let of_record = format!("{of_range}start 0\nlaunch 0 k\n");
        let (library, of_range) = (file("preload", ""), file("range", of_range));
        let of_record = file("record", &of_record);
        let off = |more: &[&str]| {
            let line = [
                &["--library", library.to_str().unwrap()][..],
                more,
                &["prog"],
            ]
            .concat();
            let command = prepare(&program(&line)).unwrap();
            let mut set = command.get_envs();
            set.any(|(name, value)| name == pytorch::NO_CACHE && value == Some(OsStr::new("1")))
        };
        let (range, record) = (of_range.to_str().unwrap(), of_record.to_str().unwrap());
        assert!(off(&["--record", "t"]) && off(&["--plan", record]));
        assert!(!off(&[]) && !off(&["--plan", range]));
        assert!(!off(&["--record", "t", "--pytorch-cache"]));
        assert!(!off(&["--plan", record, "--pytorch-cache"]));
        for path in [library, of_range, of_record] {
            std::fs::remove_file(path).unwrap();
        }
    }

    #[test]
    fn other_preloads_stay() {
        let ours = Path::new("/a/b.so");
        assert_eq!(before(ours, None), "/a/b.so");
        assert_eq!(before(ours, Some("".into())), "/a/b.so");
        assert_eq!(
            before(ours, Some("/c.so:/d.so".into())),
            "/a/b.so:/c.so:/d.so"
        );
    }
}
