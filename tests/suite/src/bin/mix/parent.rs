// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! What is there before the first process and after the last: the device of the SSD tier, and the report.

use std::time::{Duration, Instant};

use uvm_suite::modules::parameter;
use uvm_suite::{ensure, nothing_on_device, skip, Failure, Outcome, Pass};
use vgpu_client::{driver_version, flash, Flash, Process, Vgpu, BLOCK};

use crate::board::Board;
use crate::crew::Waiting;
use crate::deeds::{name, CHECKING, COUNT};
use crate::events::TEST_HELD;
use crate::watch::watch;
use crate::Options;

/// Has the crew work to its end, and says whether all is as it should be then.
pub(crate) fn run(options: &Options, board: &Board, crew: Waiting) -> Outcome {
    let process = Process::new()?;
    if driver_version(&process)?.is_none() {
        skip!("this is not uvm-rust, whose calls all processes make");
    }
    let tier = Tier::attach(&process, options)?;
    let start = Instant::now();
    let status = watch(board, options.processes + 1, options.patience, crew.go()?)?;
    ensure!(
        status.success(),
        "who starts the processes ended with {status}; why is above"
    );
    let held = parameter("nvidia_uvm", TEST_HELD).unwrap_or_default();
    ensure!(
        held != "1",
        "{TEST_HELD} is still set, which only an event may set for a while"
    );
    report(options, board, start.elapsed())?;
    if let Some(tier) = tier {
        tier.end()?;
    }
    Ok(Pass::Ok)
}

/// The device of the SSD tier, which is detached when this is dropped, also by a test that fails.
struct Tier<'a>(&'a Process);

impl<'a> Tier<'a> {
    /// Less host memory than the managed memory needs that has no room on the GPU.
    fn attach(process: &'a Process, options: &Options) -> Result<Option<Self>, Failure> {
        let Some(path) = &options.device else {
            return Ok(None);
        };
        let on = parameter("nvidia_uvm", "uvm_rust_flash").as_deref() == Some("Y");
        ensure!(on, "--device: load nvidia-uvm.ko with uvm_rust_flash=1");
        let vidmem = Vgpu::open()?.info(0)?.vidmem_bytes;
        process.flash_attach(Flash {
            path,
            host_bytes: (vidmem / 4).max(4 * BLOCK),
            quota_bytes: 0,
            flags: flash::FORCE,
        })?;
        Ok(Some(Self(process)))
    }

    /// Everybody is gone, and has left nothing there.
    fn end(self) -> Result<(), Failure> {
        let stats = self.0.flash_stats()?;
        println!("# {stats:?}");
        ensure!(
            stats.spilled > 0 && stats.fetched > 0,
            "nothing went to the device, or came back"
        );
        nothing_on_device(self.0)
    }
}

impl Drop for Tier<'_> {
    fn drop(&mut self) {
        let _ = self.0.flash_detach();
    }
}

fn report(options: &Options, board: &Board, took: Duration) -> Result<(), Failure> {
    let done = board.sums(options.processes + 1)?;
    let (mut longest, mut spent) = ([0; COUNT], [0; COUNT]);
    for n in 0..=options.processes {
        let record = board.read(n)?;
        for deed in 0..COUNT {
            longest[deed] = record.longest_ms[deed].max(longest[deed]);
            spent[deed] += record.all_us[deed];
        }
    }
    println!("# kind                     done   longest ms  on average ms  all of it s");
    for n in 0..COUNT {
        let (times, seconds) = (done[n], spent[n] as f64 / 1e6);
        let average = seconds * 1e3 / times.max(1) as f64;
        println!(
            "# {:<20} {times:>8} {:>12} {average:>14.1} {seconds:>12.1}",
            name(n),
            longest[n]
        );
    }
    let all: u64 = done[..CHECKING].iter().sum();
    println!(
        "# {all} operations in {:.0} s, {:.1} a second",
        took.as_secs_f64(),
        all as f64 / took.as_secs_f64()
    );
    Ok(())
}
