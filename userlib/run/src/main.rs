// SPDX-License-Identifier: GPL-2.0 OR MIT

//! `uvmrun`: starts a CUDA program under `libuvmrust_preload.so`.

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use uvmrust::plan::Plan;

const HELP: &str = "usage: uvmrun [OPTION...] [--] PROGRAM [ARGUMENT...]
Runs a CUDA program with its device memory managed, so that it may be larger than the
GPU's, and tells the driver which kernel comes.
  --plan FILE         before each kernel, do what this plan says (uvmsim plan)
  --managed-min SIZE  smallest allocation that becomes managed: bytes, 64K, 2M (1M)
  --no-managed        leave device memory as it is
  --no-announce       announce no kernels
  --library FILE      libuvmrust_preload.so, if it is not beside this program or in
                      ../lib, ../lib64, ../lib/<machine>-linux-gnu
  --help              this text
Exit status: the program's; 125 if uvmrun itself fails, 126 if the program cannot be
run, 127 if it is not found.
";

const LIBRARY: &str = "libuvmrust_preload.so";

/// What the command line asks for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Options {
    /// Variables of the preload.
    set: Vec<(&'static str, OsString)>,
    library: Option<PathBuf>,
    program: OsString,
    arguments: Vec<OsString>,
}

fn options(args: impl IntoIterator<Item = OsString>) -> Result<Option<Options>, lexopt::Error> {
    use lexopt::prelude::*;
    let mut options = Options::default();
    let mut parser = lexopt::Parser::from_args(args);
    while let Some(argument) = parser.next()? {
        match argument {
            Long("plan") => options.set.push(("UVMRUST_PLAN", parser.value()?)),
            Long("managed-min") => options.set.push(("UVMRUST_MANAGED_MIN", parser.value()?)),
            Long("no-managed") => options.set.push(("UVMRUST_MANAGED", "0".into())),
            Long("no-announce") => options.set.push(("UVMRUST_ANNOUNCE", "0".into())),
            Long("library") => options.library = Some(parser.value()?.into()),
            Long("help") => return Ok(None),
            Value(program) => {
                options.program = program;
                // The rest is the program's, its options too.
                options.arguments = parser.raw_args()?.collect();
                return Ok(Some(options));
            }
            _ => return Err(argument.unexpected()),
        }
    }
    Err("no program is given".into())
}

fn main() -> ExitCode {
    let options = match options(env::args_os().skip(1)) {
        Ok(Some(options)) => options,
        Ok(None) => {
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

/// The program with its environment. What can be wrong with a plan is said here, where
/// somebody looks, and not among the program's own words.
fn prepare(options: &Options) -> Result<Command, String> {
    let mut command = Command::new(&options.program);
    command.args(&options.arguments);
    for (name, value) in &options.set {
        if *name != "UVMRUST_PLAN" {
            command.env(name, value);
            continue;
        }
        let path = Path::new(value);
        let told = |why: String| format!("{}: {why}", path.display());
        let text = std::fs::read_to_string(path).map_err(|e| told(e.to_string()))?;
        Plan::parse(&text).map_err(|e| told(e.to_string()))?;
        // The program may go elsewhere before it is read.
        let whole = path.canonicalize().map_err(|e| told(e.to_string()))?;
        command.env(name, whole);
    }
    let library = match &options.library {
        Some(given) => given.canonicalize().ok(),
        None => find(&env::current_exe().map_err(|e| e.to_string())?),
    };
    let library = library.ok_or_else(|| {
        format!("{LIBRARY} is not there; build it with `make -C userlib`, or give --library")
    })?;
    command.env("LD_PRELOAD", before(&library, env::var_os("LD_PRELOAD")));
    Ok(command)
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

    fn given(args: &[&str]) -> Result<Option<Options>, lexopt::Error> {
        options(args.iter().map(OsString::from))
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
            let options = given(args).unwrap().unwrap();
            assert_eq!(options.program, "prog");
            assert_eq!(options.arguments, ["--plan", "x", "--", "-v"]);
            let set = [
                ("UVMRUST_PLAN", "p".into()),
                ("UVMRUST_MANAGED", "0".into()),
            ];
            assert_eq!(options.set, set);
        }
        assert_eq!(given(&["--help", "x"]).unwrap(), None);
        assert!(given(&[]).is_err() && given(&["--plan", "p"]).is_err());
        assert!(given(&["--what", "prog"]).is_err());
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
