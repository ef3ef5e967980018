// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Chunks of ordinary memory are freed by a thread of the driver's, which runs when a CPU has
//! time for it. Here none has: the thread gets what is left beside others that never wait.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use uvm_suite::{ensure, Failure, Outcome, Pass, Suite};
use vgpu_client::Buffer;

use crate::{gpu_writes, start, start_ordinary, NONE, WORDS};

pub(crate) fn run(suite: &mut Suite) {
    suite.test(
        "lazy: what ordinary memory has left is freed before its GPU goes",
        NONE,
        freed_before_its_gpu_goes,
    );
    suite.test(
        "lazy: what a process has left is evicted before it is freed",
        NONE,
        evicted_before_they_are_freed,
    );
    suite.test(
        "lazy: what Linux lets go during an eviction has one owner",
        NONE,
        one_owner_after_an_eviction,
    );
}

/// The last process ends right after it has unmapped what the GPU had. Upstream asserts that
/// no chunk is left before it waits for the thread.
fn freed_before_its_gpu_goes() -> Outcome {
    for _ in 0..2 {
        let (process, gpu) = start_ordinary!("an assertion of the unmodified driver fails");
        let buffer = Buffer::<u64>::ordinary(WORDS)?;
        gpu_writes(&gpu, &buffer, 1)?;
        let busy = Busy::but_for("vidmem lazy")?;
        drop((buffer, gpu, process));
        drop(busy);
    }
    Ok(Pass::Ok)
}

/// A process is gone, and its va_blocks with it, before its chunks are freed: who evicts them
/// finds them nobody's.
fn evicted_before_they_are_freed() -> Outcome {
    for _ in 0..2 {
        let (process, gpu) =
            start_ordinary!("the unmodified driver takes a va_block that was freed");
        let (_other, other_gpu) = start()?;
        let buffer = Buffer::<u64>::ordinary(WORDS)?;
        gpu_writes(&gpu, &buffer, 1)?;
        let busy = Busy::but_for("vidmem lazy")?;
        drop((buffer, gpu, process));
        while other_gpu.evict_any()? {}
        drop(busy);
    }
    Ok(Pass::Ok)
}

/// Blocks of [`one_owner_after_an_eviction()`]: half as many again as a GPU of 64 MiB has room for.
const BLOCKS: u64 = 48;

/// Ordinary memory goes to the host for other such memory: Linux lets a block's pages go while the
/// eviction makes one chunk of theirs, and the thread that frees pages comes later. From 570.190 on it
/// has a list of them; a chunk that is on this list and has been evicted would be freed once more.
fn one_owner_after_an_eviction() -> Outcome {
    let (_process, gpu) = start_ordinary!("the unmodified driver frees chunks twice");
    let mut buffers = Vec::new();
    let busy = Busy::but_for("vidmem lazy")?;
    for block in 0..BLOCKS {
        let buffer = Buffer::<u64>::ordinary(WORDS)?;
        buffer.huge_pages(false)?;
        gpu_writes(&gpu, &buffer, block << 32)?;
        buffers.push(buffer);
    }
    drop(busy);
    for (block, buffer) in (0..BLOCKS).zip(&buffers) {
        let wrong = buffer.first_other(|i| (block << 32) + i as u64);
        ensure!(
            wrong.is_none(),
            "block {block}: {wrong:x?} is not what was written"
        );
    }
    Ok(Pass::Ok)
}

/// A thread on each CPU that never waits, until this is dropped; those of the driver that free
/// run when no other wants to.
struct Busy {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Busy {
    /// `name`: how the names of the driver's threads begin.
    fn but_for(name: &str) -> Result<Self, Failure> {
        ensure!(run_last(name)? > 0, "there is no thread {name}");
        let over = Arc::new(AtomicBool::new(false));
        let spin = |_| {
            let over = over.clone();
            thread::spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            })
        };
        let cpus = thread::available_parallelism()?.get();
        let threads = (0..cpus).map(spin).collect();
        Ok(Self { over, threads })
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Threads whose name begins with `name` run when no other wants to; returns how many there are.
fn run_last(name: &str) -> Result<usize, Failure> {
    let mut found = 0;
    for entry in fs::read_dir("/proc")? {
        let path = entry?.path();
        let Some(id) = path.file_name().and_then(|id| id.to_str()?.parse().ok()) else {
            continue;
        };
        // It may have ended meanwhile.
        if fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm.starts_with(name)) {
            let none = libc::sched_param { sched_priority: 0 };
            // SAFETY: `none` is valid for the call, which changes no memory of this process.
            let ret = unsafe { libc::sched_setscheduler(id, libc::SCHED_IDLE, &none) };
            ensure!(ret == 0, "{}", std::io::Error::last_os_error());
            found += 1;
        }
    }
    Ok(found)
}
