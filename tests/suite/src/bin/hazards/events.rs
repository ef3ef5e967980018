// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! UVM's tools: events that one process wants to hear of neither hurt others nor tell of them.

use std::thread;
use std::time::Duration;

use uvm_suite::modules::SetParameter;
use uvm_suite::{ensure, skip, Failure, Outcome, Pass, Suite};
use vgpu_client::uvm::FlushEvents;
use vgpu_client::{Buffer, EventQueue, Process};

use crate::{gpu_writes, start, still_works, NONE, WORDS};

/// Time for others to come to where they wait, on a machine that is busy.
const WHILE: Duration = Duration::from_millis(500);

pub(crate) fn run(suite: &mut Suite) {
    suite.test(
        "events: a GPU goes while another process hands out its events",
        NONE,
        gpu_goes,
    );
}

fn flushes(while_it_is: &str) -> Result<Option<SetParameter>, Failure> {
    SetParameter::new("nvidia_uvm", "uvm_rust_test_flush", while_it_is)
}

/// A process without a GPU hands out events, among which is one of a channel of the GPU's; meanwhile the GPU's last process
/// unregisters it.
fn gpu_goes() -> Outcome {
    if flushes("0")?.is_none() {
        skip!("this nvidia-uvm.ko has no parameter uvm_rust_test_flush");
    }
    let other = Process::new()?;
    let (process, gpu) = start()?;
    let buffer = Buffer::<u64>::managed(&process, WORDS)?;
    let queue = EventQueue::new(&process, 1 << 12)?;
    gpu_writes(&gpu, &buffer, 1)?;
    let waits = flushes("1")?;
    thread::scope(|scope| {
        let flush = scope.spawn(|| other.call(&mut FlushEvents::default()));
        thread::sleep(WHILE);
        ensure!(!flush.is_finished(), "no event was left to be handed out");
        let goes = scope.spawn(|| gpu.unregister());
        thread::sleep(WHILE);
        drop(waits);
        flush.join().map_err(|_| "who hands out panicked")??;
        goes.join().map_err(|_| "who unregisters panicked")??;
        Ok::<_, Failure>(())
    })?;
    drop((queue, buffer, process));
    let (process, gpu) = start()?;
    still_works(&process, &gpu)?;
    Ok(Pass::Ok)
}
