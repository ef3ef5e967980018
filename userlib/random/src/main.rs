// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Random programs over the streams of two GPUs, graphs and captures: kernels that write
//! and read, discards, prefetches, `g10_alloc` and `g10_free`, and the PyTorch allocator as
//! PyTorch calls it. Each read must give what a model of the program says (`model.rs`,
//! `program.rs`); the stub of CUDA (`userlib/tests/stub`) runs the streams in threads of
//! their own, in a seeded random order, as wrongly as CUDA's documentation allows.
//!
//!     PROGRAMS=100000 SEED=1 FIRST=0 LD_PRELOAD=.../libcuda.so.1 uvmrust-random
//!
//! which `tests/random.rs` sets up. With `GPUS=1` they run on one GPU alone, which may be a real one:
//! `LD_PRELOAD=libgpu_kernels.so BACKEND=native` (`userlib/tests/gpu_kernels.c`,
//! `scripts/gpu-check.sh`). `BACKEND=ours|native|old` has all programs on one driver
//! (`old`: with CUDA 13's discard), and `BACKEND=cuda UVMRUST_FD=0` on CUDA alone. `TRACE=1` prints
//! what a program does. `WAIT=1` waits behind each action. `AGAIN=50` runs each so often and counts
//! how often it is wrong. `EMPTY_ORDERS=1` counts on an order that launches of empty graphs
//! do not have, and `EVENTS_WAIT=1` on one that an event of a blocking stream does not have with the
//! legacy stream. With `THREADS=2 STUB_UVM=ours` so many threads run
//! programs at the same time, on that driver, without captures.

mod cuda;
mod model;
mod program;

use core::ffi::c_int;
use std::time::Instant;

use program::Machine;

fn variable(name: &str, default: u64) -> u64 {
    let set = std::env::var(name).ok();
    set.and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn run(machine: &mut Machine, seed: u64, number: u64) {
    if let Err(wrong) = machine.run(seed, number, 0) {
        println!("wrong: {wrong}");
        println!("in program {number} of SEED={seed}");
        std::process::exit(1);
    }
}

/// Runs a program so often, whatever comes of it: how often it was wrong.
fn again(machine: &mut Machine, seed: u64, number: u64, times: u64) -> u64 {
    let mut wrong = 0;
    for time in 0..times {
        let result = machine.run(seed, number, time);
        wrong += u64::from(result.is_err());
        match result {
            Ok(()) => println!("{number}, time {time}: none wrong"),
            Err(what) => println!("{number}, time {time}: wrong: {what}"),
        }
    }
    println!("SEED={seed}: program {number} was wrong {wrong} times of {times}");
    wrong
}

fn many_threads(seed: u64, threads: u64, programs: u64) {
    let some = move |first: u64| {
        let mut machine = Machine::new(true, 2);
        let numbers = (first..programs).step_by(threads as usize);
        numbers.for_each(|number| run(&mut machine, seed, number));
        machine.totals
    };
    let running: Vec<_> = (0..threads)
        .map(|first| std::thread::spawn(move || some(first)))
        .collect();
    let totals: Vec<_> = running.into_iter().flat_map(|t| t.join()).collect();
    let reads: u64 = totals.iter().map(|t| t.reads).sum();
    let discards: u64 = totals.iter().map(|t| t.discards).sum();
    assert_eq!(totals.len() as u64, threads, "a thread panicked");
    println!(
        "SEED={seed} THREADS={threads}: {programs} programs, none wrong: {reads} reads, \
         {discards} discards"
    );
}

fn main() {
    let seed = variable("SEED", 1);
    let first = variable("FIRST", 0);
    let programs = variable("PROGRAMS", 1000);
    // Stop after so many seconds of this process's time; 0: never.
    let seconds = variable("LIMIT_S", 0);
    // A crash must tell where it was.
    let progress = std::env::var_os("PROGRESS").is_some();
    let threads = variable("THREADS", 1);
    let times = variable("AGAIN", 0);
    let gpus = variable("GPUS", 2).clamp(1, 2) as usize;
    if threads > 1 {
        return many_threads(seed, threads, programs);
    }
    let began = Instant::now();
    let mut machine = Machine::new(false, gpus);
    let mut done = 0;
    if times > 0 {
        let wrong: u64 = (first..first + programs)
            .map(|number| again(&mut machine, seed, number, times))
            .sum();
        std::process::exit(c_int::from(wrong > 0));
    }
    for number in first..first + programs {
        if seconds != 0 && began.elapsed().as_secs() >= seconds {
            break;
        }
        if progress {
            println!("program {number}");
        }
        run(&mut machine, seed, number);
        done += 1;
    }
    let t = machine.totals;
    println!(
        "SEED={seed}: {done} programs, none wrong: {} actions, {} reads, {} discards, {} graphs \
         launched {} times, {} refused in captures, {} PyTorch blocks, {} reused, {} prepared, \
         {} prefetches, {} batches, {} mistakes, {} elsewhere, {} at once, in {:.1} s",
        t.actions,
        t.reads,
        t.discards,
        t.graphs,
        t.launches,
        t.refused,
        t.mallocs,
        t.reused,
        t.prepared,
        t.prefetches,
        t.batches,
        t.mistakes,
        t.elsewhere,
        t.at_once,
        began.elapsed().as_secs_f64()
    );
}
