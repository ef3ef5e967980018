// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! How many CPUs the guest of a lane has.
//!
//! UVM spins while it waits for the GPU. On a guest of two CPUs the software GPU computes on one, and UVM spins on
//! the other: half of what the host computes is spun away. On one CPU, UVM's spinning gives way to the software GPU.

use crate::part::Part;
use crate::setting::Setting;

/// The lanes of `make test` whose guest has one CPU.
///
/// Their programs have one thread at a time, or compare what processes get in the end, not how their threads meet.
/// Threads that meet in the driver are the subject of other lanes, whose guests have two CPUs: `contend`, `storms`,
/// `hazards`, `odd-gpu`, `flash`, `kselftest`, `library`, `prefetch`, `prefetch-overlap`, `together` and NVIDIA's ladder on our driver.
/// `discard-two-gpus` repeats each test of `discard` on two CPUs, and so do `make test-extra` and `make test-debug`
/// with what they have of these lanes.
///
/// `trace` has another reason. An event that is turned on has the kernel patch code that runs, of its scheduler
/// too: a breakpoint stands there meanwhile. On QEMU's CPUs another one may still meet the breakpoint once the
/// patch is over, when nobody knows it any more, and the guest panics.
pub const ONE_CPU: &[&str] = &[
    "580/discard",
    "rust/choose",
    "rust/discard",
    "rust/discard-c-lists",
    "rust/discard-leaks",
    "rust/loops",
    "rust/policies",
    "rust/random",
    "rust/shares",
    "rust/trace",
];

/// Gives one CPU to the lanes that need no more, unless somebody has said how many all have.
pub fn with_cpus(parts: Vec<Part>, setting: &Setting) -> Vec<Part> {
    if setting.get("VM_CPUS").is_some() {
        return parts;
    }
    let one = |part: Part| {
        if ONE_CPU.contains(&part.name.as_str()) {
            part.with(&["VM_CPUS=1"])
        } else {
            part
        }
    };
    parts.into_iter().map(one).collect()
}
