// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The tracepoint `uvm_rust:spill`: each event is of pages that left host memory, and the statistics count the same.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use uvm_suite::{ensure, skip, Failure, Outcome, Pass, Suite};
use vgpu_client::{Discard, BLOCK};

use crate::rig::{write, Done, Rig};
use crate::NONE;

pub(crate) fn run(suite: &mut Suite) {
    suite.test("a spill is a trace event, if it is on", NONE, events);
}

/// Where Linux has its tracing.
const TRACING: &str = "/sys/kernel/tracing";

/// A place of its own to record in.
struct Instance(PathBuf);

impl Instance {
    /// `None` where the kernel has no tracing.
    fn new() -> Result<Option<Self>, Failure> {
        let root = Path::new(TRACING);
        if !root.join("trace").exists() {
            let mut mount = Command::new("mount");
            mount.args(["-t", "tracefs", "none", TRACING]);
            if !mount.output()?.status.success() {
                return Ok(None);
            }
        }
        let path = root.join("instances/uvm_rust_flash");
        fs::create_dir(&path)?;
        Ok(Some(Self(path)))
    }

    fn enable(&self, on: bool) -> Done {
        let switch = self.0.join("events/uvm_rust/spill/enable");
        Ok(fs::write(switch, if on { "1" } else { "0" })?)
    }

    /// Client, address, bytes and how, of each event.
    fn spills(&self) -> Result<Vec<[u64; 4]>, Failure> {
        let text = fs::read_to_string(self.0.join("trace"))?;
        let events = text.lines().filter_map(|l| l.split_once(" spill: "));
        events.map(|(_, event)| numbers(event)).collect()
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = self.enable(false);
        let _ = fs::remove_dir(&self.0);
    }
}

fn numbers(event: &str) -> Result<[u64; 4], Failure> {
    let wanted = ["client", "address", "bytes", "how"];
    let mut numbers = [0; 4];
    let mut words = event.split_whitespace();
    for (key, number) in wanted.iter().zip(&mut numbers) {
        let word = words.next().and_then(|word| word.split_once('='));
        let value = word
            .filter(|(found, _)| found == key)
            .map(|(_, value)| value);
        let parsed = value.and_then(|value| match value.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => value.parse().ok(),
        });
        *number = parsed.ok_or_else(|| format!("{key} of: {event}"))?;
    }
    Ok(numbers)
}

fn events() -> Outcome {
    let Some(instance) = Instance::new()? else {
        skip!("this kernel has no tracefs");
    };
    let rig = Rig::new(64)?;
    let buffer = rig.buffer(6)?;
    write(&buffer, 11);
    rig.spill(&buffer)?;
    ensure!(rig.stats()?.spilled == 6 * BLOCK, "{:?}", rig.stats()?);
    ensure!(instance.spills()?.is_empty(), "it is off, and records");

    // Four blocks that are written, and one that is discarded and so is not.
    let other = rig.buffer(5)?;
    write(&other, 12);
    rig.process
        .discard(other.address() + 4 * BLOCK, BLOCK, Discard::Lazy)?;
    instance.enable(true)?;
    let before = rig.stats()?;
    rig.spill(&other)?;
    instance.enable(false)?;
    let after = rig.stats()?;
    let events = instance.spills()?;
    println!("# {events:?}");
    let client = rig.process.told("drm-client-id")?;
    for [of, address, bytes, _] in &events {
        ensure!(Some(*of) == client, "client {of}, not {client:?}");
        let end = other.address() + other.bytes();
        let inside = (other.address()..end).contains(address) && address % BLOCK == 0;
        ensure!(inside, "{address:#x} is no block of the buffer");
        ensure!(*bytes > 0 && *bytes <= BLOCK, "{bytes} bytes of a block");
    }
    let sum = |how| -> u64 { events.iter().filter(|e| e[3] == how).map(|e| e[2]).sum() };
    for (how, counted) in [
        (0, after.spilled - before.spilled),
        (1, after.unwritten - before.unwritten),
        (2, after.dropped - before.dropped),
    ] {
        ensure!(
            sum(how) == counted,
            "how={how}: {} bytes, but {counted}",
            sum(how)
        );
    }
    ensure!(
        sum(0) == 4 * BLOCK,
        "four blocks were to be written: {events:?}"
    );
    Ok(Pass::Ok)
}
