// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! What becomes of channels.

use std::time::{Duration, Instant};

use vgpu_client::{Buffer, Channel, Kernel, Op};

use crate::{ensure, Failure};

/// Waits at most so long until the driver has stopped a channel, so that it takes no kernel any more. Until then kernels write to
/// `written`.
pub fn until_it_dies(
    channel: &Channel,
    written: &Buffer<u64>,
    limit: Duration,
) -> Result<(), Failure> {
    let start = Instant::now();
    loop {
        let launch = channel.launch(&Kernel::new().op(Op::write(written).pattern(5, 1)));
        if launch.and_then(|launch| launch.wait()?.ok()).is_err() {
            return Ok(());
        }
        ensure!(start.elapsed() < limit, "the channel goes on");
    }
}
