// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Faults of users' copy engines on pages that are on the device. Nobody replays such a fault; the thread that services all
//! GPU faults reads the page for it (docs/ssd.md).

use std::time::Duration;

use uvm_suite::{ensure, skip, Outcome, Pass, Suite};

use crate::rig::{no_leak, write, Rig};
use crate::NONE;

pub(crate) fn run(suite: &mut Suite) {
    suite.test(
        "a copy engine's fault brings its page from the device",
        NONE,
        brought,
    );
}

/// The page, and the word of it, to which the copy engine adds 1, and what was written first.
const WORD: usize = 77 * 512 + 1;
const FIRST: u64 = 103;
const PATIENCE: Duration = Duration::from_secs(20);

fn brought() -> Outcome {
    let rig = Rig::new(1 << 10)?;
    if !rig.gpu.has_copies() {
        skip!("copy engines of this GPU do not fault");
    }
    let buffer = rig.buffer(1)?;
    write(&buffer, FIRST);
    rig.spill(&buffer)?;
    let before = rig.stats()?;
    ensure!(before.pages == 512, "{before:?}");
    let channel = rig.gpu.channel();
    channel.copy(buffer.address() + 8 * WORD as u64)?;
    channel.wait_for_copies(1, PATIENCE)?;
    let after = rig.stats()?;
    ensure!(after.pages < before.pages, "nothing was read: {after:?}");
    let wrong = buffer.first_other(|i| FIRST + i as u64 + u64::from(i == WORD));
    ensure!(wrong.is_none(), "(word, value) is {wrong:x?}");
    drop(buffer);
    no_leak(&rig)?;
    drop(rig);
    Ok(Pass::Ok)
}
