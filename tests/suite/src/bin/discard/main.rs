// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Discard: a test for each sentence of UvmDiscard §4.1 and §5.1 to §5.7 that says
//! what the driver does, for what it leaves to the driver, and for what only one
//! with two GPUs or with odd policies meets. Each runs eager and lazy.
//!
//! Needs nvidia-uvm.ko with `uvm_enable_builtin_tests=1` and discard, and vgpu.ko.
//! With `uvm_rust_test_unprepared=1` the tests called "foreign data" must fail:
//! `--leaks` runs them and fails if they do not.

mod cases;
mod early;
mod interface;
mod kept;
mod native;
mod paper;
mod reclaim;
mod rig;
mod thrashing;

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use uvm_suite::{no_leak, Allowed, Outcome, Suite};
use vgpu_client::Discard;

const HELP: &str = "usage: discard [--only TEXT] [--leaks] [--unmodified-too]
  --only TEXT       only tests whose name holds TEXT, such as '5.5'
  --leaks           with uvm_rust_test_unprepared=1: foreign data must be seen
  --unmodified-too  also on NVIDIA's driver what it is known not to survive
";

/// Whether NVIDIA's driver, as it is, is given what it does not survive.
static UNMODIFIED_TOO: AtomicBool = AtomicBool::new(false);

const NONE: &[Allowed] = &[];

struct Options {
    only: Option<String>,
    leaks: bool,
}

fn options() -> Result<Options, lexopt::Error> {
    use lexopt::prelude::*;
    let mut options = Options {
        only: None,
        leaks: false,
    };
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("only") => options.only = Some(parser.value()?.string()?),
            Long("leaks") => options.leaks = true,
            Long("unmodified-too") => UNMODIFIED_TOO.store(true, Ordering::Relaxed),
            Long("help") => {
                print!("{HELP}");
                std::process::exit(0);
            }
            _ => return Err(argument.unexpected()),
        }
    }
    Ok(options)
}

/// Runs a test for both kinds of discard.
fn both(suite: &mut Suite, name: &str, test: fn(Discard) -> Outcome) {
    for (how, kind) in [(Discard::Eager, "eager"), (Discard::Lazy, "lazy")] {
        suite.test(&format!("{name} ({kind})"), NONE, || test(how));
    }
}

fn main() -> ExitCode {
    let options = match options() {
        Ok(options) => options,
        Err(error) => {
            eprint!("discard: {error}\n{HELP}");
            return ExitCode::from(2);
        }
    };
    let mut suite = Suite::new("discard", options.only);
    if options.leaks {
        suite.test(
            "foreign data is seen in GPU chunks without prepared tracking",
            NONE,
            reclaim::foreign_gpu_data_leaks,
        );
        suite.test(
            "foreign data is seen in host pages without prepared tracking",
            NONE,
            reclaim::foreign_host_data_leaks,
        );
        return suite.finish();
    }
    interface::run(&mut suite);
    paper::run(&mut suite);
    reclaim::run(&mut suite);
    cases::run(&mut suite);
    native::run(&mut suite);
    suite.test("pushed out ahead of need", NONE, early::pushed_out);
    suite.test("no leak after it all", NONE, no_leak);
    suite.finish()
}
