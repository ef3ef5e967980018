// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Requests that begin when all that were submitted before them have ended: `UVM_RUST_FLASH_AFTER`.

use uvm_suite::{ensure, Outcome, Pass};
use vgpu_client::flash::{FlashRequest, AFTER, TO_HOST};
use vgpu_client::{BLOCK, PAGE};

use super::{by_block, request, submit, users, LONG_MS};
use crate::rig::{check, write, Rig};
use crate::wear::limit;

/// What comes waits for what leaves slowly, if it is told to, and for one that fails.
pub(super) fn all() -> Outcome {
    let rig = Rig::new(1 << 10)?;
    let (there, here) = (rig.buffer(2)?, rig.buffer(4)?);
    write(&there, 41);
    write(&here, 43);
    rig.spill(&there)?;
    {
        let _slow = limit("1")?;
        let mut both = by_block(&here, 0, 0);
        both.push(FlashRequest {
            base: 1 << 30,
            ..request(&here, 0, 50)
        });
        both.extend(by_block(&there, TO_HOST | AFTER, 100));
        submit(&rig, &both)?;
        // The first of them takes its time, and the flag is all that holds those back that come.
        let (done, pending) = rig.process.flash_reap(9, 1, LONG_MS)?;
        ensure!(!done.is_empty() && pending > 0, "{done:?}, {pending}");
        ensure!(
            users(&done, 100..200).is_empty(),
            "they overtook: {done:?}, {pending}"
        );
        let (rest, pending) = rig.process.flash_reap(9, 7 - done.len() as u32, LONG_MS)?;
        let all: Vec<_> = done.into_iter().chain(rest).collect();
        ensure!(pending == 0, "{pending} to come: {all:?}");
        let order: Vec<_> = all.iter().map(|c| c.user_data).collect();
        ensure!(order == [0, 1, 2, 3, 50, 100, 101], "{all:?}");
        let failed: Vec<_> = all.iter().filter(|c| c.status != 0).collect();
        ensure!(
            failed.len() == 1 && (failed[0].user_data, failed[0].status) == (50, -libc::ENXIO),
            "{all:?}"
        );
    }
    let stats = rig.stats()?;
    ensure!(stats.pages == 4 * BLOCK / PAGE, "{stats:?}");
    check(&there, 41)?;
    check(&here, 43)?;
    Ok(Pass::Ok)
}
