// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! What RM asks of UVM, by the software GPU.

use std::time::Duration;

use vgpu_client::vgpu::{Inject, INJECT_CHANNEL_ERROR, INJECT_EVICT_RANGE, INJECT_KEEP};
use vgpu_client::{Buffer, Channel, Gpu, Kernel, Op, Outcome, Vgpu};

use crate::{ensure, Failure};

/// How often an op is made that ends only when its channel is stopped: weeks.
pub const ENDLESS: u64 = 1 << 39;

/// What RM says of a range with memory in it that UVM cannot give back.
pub const IN_USE: u32 = 0x17;

/// Has something happen to a GPU so often, or to so many pages: one of `VGPU_INJECT_…`.
///
/// # Errors
///
/// Those of the call. What UVM refuses is no error, but the status of what is returned.
pub fn inject(gpu: &Gpu, kind: u32, count: u64) -> vgpu_client::Result<Inject> {
    gpu.device().inject(Inject {
        gpu: gpu.index(),
        kind,
        count,
        ..Default::default()
    })
}

/// RM takes a range of vidmem of GPU number `gpu` back, for as long as its client is open.
///
/// # Errors
///
/// Those of the call. What UVM refuses is no error, but the status of what is returned.
pub fn keep(rm: &Vgpu, gpu: u32, begin: u64, end: u64) -> vgpu_client::Result<Inject> {
    rm.inject(Inject {
        gpu,
        kind: INJECT_EVICT_RANGE,
        flags: INJECT_KEEP,
        begin,
        end,
        ..Default::default()
    })
}

/// Stops a channel of `gpu` by an error, in the middle of a kernel that adds to the first word of `buffer`, which is 0. The
/// channel takes no kernel afterwards.
///
/// # Errors
///
/// The kernel did not end by that, or its additions are not all in memory.
pub fn stop_channel(gpu: &Gpu, victim: &Channel, buffer: &Buffer<u64>) -> Result<(), Failure> {
    // It cannot end before the error comes, and it is at work when it does.
    let endless = Op::atomic_add(buffer).range(0, 1).pattern(1, 0);
    let launch = victim.launch(&Kernel::new().op(endless.lanes(1).times(ENDLESS)))?;
    while buffer.get(0) == 0 {
        std::thread::yield_now();
    }
    gpu.device().inject(Inject {
        gpu: gpu.index(),
        kind: INJECT_CHANNEL_ERROR,
        handle: victim.handle(),
        ..Default::default()
    })?;
    let report = launch.wait_for(Duration::from_secs(60))?;
    ensure!(
        report.outcome == Outcome::Stopped,
        "it ended as {:?}",
        report.outcome
    );
    let made = buffer.get(0);
    ensure!(
        made == report.accesses,
        "{made} additions are in memory, {} were made",
        report.accesses
    );
    let again = victim.launch(&Kernel::new().op(Op::write(buffer).range(0, 1)));
    let errno = again.err().and_then(|e| e.errno());
    ensure!(
        errno == Some(libc::EPIPE),
        "a stopped channel: errno {errno:?}, not EPIPE"
    );
    Ok(())
}
