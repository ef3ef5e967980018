// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The SSD tier: data that goes to a device and comes back, and what else a page on
//! flash can meet.
//!
//! Needs nvidia-uvm.ko with `uvm_rust_flash=1` and `uvm_enable_builtin_tests=1`,
//! vgpu.ko, and a block device of at least 256 MiB that is OVERWRITTEN.

mod interface;
mod paths;
mod rig;

use std::process::ExitCode;

use uvm_suite::{Allowed, Suite};

const HELP: &str = "usage: flash [--device PATH] [--only TEXT]
  --device PATH  a block device, which is OVERWRITTEN (/dev/nvme0n1)
  --only TEXT    only tests whose name holds TEXT
";

const NONE: &[Allowed] = &[];

fn options() -> Result<Option<String>, lexopt::Error> {
    use lexopt::prelude::*;
    let mut only = None;
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("device") => rig::set_device(parser.value()?.into()),
            Long("only") => only = Some(parser.value()?.string()?),
            Long("help") => {
                print!("{HELP}");
                std::process::exit(0);
            }
            _ => return Err(argument.unexpected()),
        }
    }
    Ok(only)
}

fn main() -> ExitCode {
    let only = match options() {
        Ok(only) => only,
        Err(error) => {
            eprint!("flash: {error}\n{HELP}");
            return ExitCode::from(2);
        }
    };
    let mut suite = Suite::new("flash", only);
    interface::run(&mut suite);
    paths::run(&mut suite);
    suite.finish()
}
