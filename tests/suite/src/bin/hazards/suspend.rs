// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The system goes to sleep, and wakes up, while processes use the GPU, and come and go.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use uvm_suite::{ensure, skip, Failure, Joined, Outcome, Pass, Suite};
use vgpu_client::uvm::{Migrate, Params};
use vgpu_client::{raw_ioctl, Buffer, Gpu, Kernel, NvStatus, Op, Process};

use crate::{spared, start, still_works, NONE, WORDS};

pub(crate) fn run(suite: &mut Suite) {
    suite.test("suspend: the system sleeps, and wakes up", NONE, suspended);
    suite.test(
        "suspend: a VA space is closed while the system sleeps",
        NONE,
        closed_asleep,
    );
    suite.test(
        "suspend: processes end as the system goes to sleep",
        NONE,
        ended,
    );
    suite.test(
        "suspend: the system sleeps while a call's parameters are moved",
        NONE,
        params_moved,
    );
}

/// Faults, migrations and kernels go on where they were.
fn suspended() -> Outcome {
    let (process, gpu) = start()?;
    let buffer = Buffer::<u64>::managed(&process, 8 * WORDS)?;
    let stop = AtomicBool::new(false);
    let rounds = std::thread::scope(|scope| {
        let worker = scope.spawn(|| -> Result<u64, Failure> {
            for round in 0.. {
                if stop.load(Ordering::Relaxed) {
                    return Ok(round);
                }
                let page = |op: Op| op.every(4096).pattern(round, 1).warps(32);
                gpu.launch(&Kernel::new().op(page(Op::write(&buffer))))?
                    .wait()?
                    .ok()?;
                for page in 0..8 * 512 {
                    let seen = buffer.get(page * 512);
                    let want = round + page as u64;
                    ensure!(seen == want, "page {page} is {seen}, not {want}");
                }
            }
            Ok(0)
        });
        let slept = sleep_and_wake(&gpu);
        stop.store(true, Ordering::Relaxed);
        let rounds = worker.joined()?;
        slept.and(rounds)
    })?;
    println!("# {rounds} rounds of a program meanwhile");
    still_works(&process, &gpu)?;
    Ok(Pass::Ok)
}

/// The end of a VA space is left to a thread of the driver's then. It has no memory, as munmap() would wait, and
/// keeps no process' memory, as whoever gives that back would.
fn closed_asleep() -> Outcome {
    let (process, gpu) = start()?;
    if spared(&process)? {
        skip!("debug builds of the unmodified driver oops there, see docs/fixes.md");
    }
    let other = Process::shared()?;
    let other_gpu = other.gpu(0)?;
    let before = process.gpu_references(gpu.uuid())?;
    std::thread::scope(|scope| {
        let sleeping = scope.spawn(|| gpu.suspend(Duration::from_secs(3)));
        // In seconds, as nothing tells when UVM has the lock of power management.
        std::thread::sleep(Duration::from_secs(1));
        drop((other_gpu, other));
        sleeping.joined()
    })??;
    let start = Instant::now();
    while process.gpu_references(gpu.uuid())? >= before {
        ensure!(
            start.elapsed() < Duration::from_secs(30),
            "its VA space is there still, 30 seconds after the system woke up"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    still_works(&process, &gpu)?;
    Ok(Pass::Ok)
}

fn sleep_and_wake(gpu: &Gpu) -> Result<(), Failure> {
    for n in 0..6 {
        std::thread::sleep(Duration::from_millis(150 + 70 * n));
        gpu.suspend(Duration::from_millis(200))?;
    }
    Ok(())
}

/// Processes that come and go meanwhile.
const PROCESSES: usize = 4;
/// How often the system sleeps.
const SLEEPS: u64 = 50;

/// Each flushes the fault buffer of a GPU that is in use, as the GPU is put to sleep, or wakes up.
fn ended() -> Outcome {
    let (process, gpu) = start()?;
    if spared(&process)? {
        skip!("the unmodified driver writes to a GPU that sleeps there, see docs/fixes.md");
    }
    let stop = AtomicBool::new(false);
    let come_and_go = || -> Result<u64, Failure> {
        let mut ended = 0;
        while !stop.load(Ordering::Relaxed) {
            drop(start()?);
            ended += 1;
        }
        Ok(ended)
    };
    let ended = std::thread::scope(|scope| {
        let all: Vec<_> = (0..PROCESSES).map(|_| scope.spawn(come_and_go)).collect();
        let slept = (0..SLEEPS).try_for_each(|n| {
            // Long enough for some to end, and to begin, and never the same.
            std::thread::sleep(Duration::from_millis(20 + 7 * n % 50));
            gpu.suspend(Duration::from_millis(20))
        });
        stop.store(true, Ordering::Relaxed);
        let ended: Result<u64, Failure> = all.into_iter().map(|one| one.joined()?).sum();
        slept?;
        ended
    });
    let ended = ended?;
    println!("# {ended} processes have ended meanwhile");
    ensure!(ended > SLEEPS / 2, "too few");
    still_works(&process, &gpu)?;
    Ok(Pass::Ok)
}

/// UVM_MIGRATE moves its own parameters to the GPU, and writes to them at its end: a CPU fault, when the system is about to
/// sleep.
fn params_moved() -> Outcome {
    let (process, gpu) = start()?;
    if spared(&process)? {
        skip!("the unmodified driver waits for good there, see docs/fixes.md");
    }
    let buffer = Buffer::<u64>::managed(&process, 20 * WORDS)?;
    for round in 0..5 {
        buffer.fill(|_| round);
        let params = buffer.address() as *mut Migrate;
        let call = Migrate {
            base: buffer.address(),
            length: buffer.bytes(),
            destination: gpu.uuid(),
            cpu_numa_node: -1,
            rm_status: u32::MAX,
            ..Default::default()
        };
        // SAFETY: the buffer begins with a page, and has room for it. It is there as long as `buffer` is.
        let bytes = unsafe {
            params.write(call);
            std::slice::from_raw_parts_mut(params.cast(), size_of::<Migrate>())
        };
        std::thread::scope(|scope| {
            let call = scope.spawn(|| raw_ioctl(process.uvm_fd(), Migrate::NUMBER, bytes, None));
            while !process
                .residency(buffer.address())?
                .resident
                .contains(&gpu.uuid())
            {
                ensure!(!call.is_finished(), "nothing was moved");
            }
            ensure!(!call.is_finished(), "the call is over at once");
            gpu.suspend(Duration::from_millis(20))?;
            Ok(call.joined()??)
        })?;
        // SAFETY: as above.
        let status = unsafe { params.read() }.status();
        ensure!(status == NvStatus::OK, "UVM_MIGRATE: {status:?}");
    }
    still_works(&process, &gpu)?;
    Ok(Pass::Ok)
}
