// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Requests that write beside calls that do: all are of one tenant, which may write so much a second.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use uvm_suite::{ensure, Joined, Outcome, Pass};

use super::{request, submit, LONG_MS};
use crate::rig::{check, write, Done, Rig};
use crate::wear::limit;

/// Two threads write all the time, of which each waits two seconds for its rate; a request has its turn all the same.
pub(super) fn beside_calls() -> Outcome {
    let rig = Rig::new(1 << 10)?;
    let (calls, asked) = ([rig.buffer(2)?, rig.buffer(2)?], rig.buffer(2)?);
    for buffer in calls.iter().chain([&asked]) {
        write(buffer, 47);
    }
    let _slow = limit("2")?;
    let (over, began) = (AtomicBool::new(false), AtomicBool::new(false));
    let told = std::thread::scope(|scope| {
        let threads = calls.each_ref().map(|buffer| {
            scope.spawn(|| -> Done {
                while !over.load(Relaxed) {
                    rig.spill(buffer)?;
                    began.store(true, Relaxed);
                    rig.fetch(buffer)?;
                }
                Ok(())
            })
        });
        while !began.load(Relaxed) && !threads.iter().any(|thread| thread.is_finished()) {
            std::thread::sleep(Duration::from_millis(10));
        }
        let told = submit(&rig, &[request(&asked, 0, 7)])
            .and_then(|()| Ok(rig.process.flash_reap(2, 1, LONG_MS)?));
        over.store(true, Relaxed);
        for thread in threads {
            thread.joined()??;
        }
        told
    });
    let (done, pending) = told?;
    ensure!(
        pending == 0 && done.len() == 1 && done[0].status == 0,
        "it has no turn: {done:?}, {pending} to come"
    );
    for buffer in calls.iter().chain([&asked]) {
        check(buffer, 47)?;
    }
    Ok(Pass::Ok)
}
