// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Steps 2 to 12: one registered GPU, and only UVM's own channels.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use uvm_suite::{
    chunks_before, ensure, no_leak, skip, Allowed, Failure, Joined, Outcome, Pass, Suite,
};
use vgpu_client::uvm::{self, BareTest, Params, Uuid};
use vgpu_client::vgpu::PERSONALITY_VOLTA;
use vgpu_client::{Buffer, Fact, Facts, Kernel, NvStatus, Op, Process, Vgpu, BLOCK};

use crate::{CHANNEL, NONE, SEMAPHORE, SYNCS_TRACKERS};

/// A process with a GPU registered, and proof that it is: many of NVIDIA's tests
/// pass without having done anything when there is none.
pub(crate) struct Registered {
    pub(crate) process: Process,
    pub(crate) gpu: Uuid,
    personality: u32,
}

impl Registered {
    pub(crate) fn new() -> Result<Self, Failure> {
        let info = Vgpu::open()?.info(0)?;
        let process = Process::new()?;
        process.register_gpu(info.uuid())?;
        let count = process.gpu_references(info.uuid())?;
        ensure!(count >= 1, "UVM counts {count} registrations of the GPU");
        Ok(Self {
            process,
            gpu: info.uuid(),
            personality: info.personality,
        })
    }

    fn check_leak(&self, chunk_size: u64) -> Outcome {
        let chunks = self.process.check_leak(self.gpu, chunk_size)?;
        let before = chunks_before(0)?;
        ensure!(
            chunks * chunk_size >= before * BLOCK,
            "{chunks} chunks of {chunk_size} bytes are to be had; of 2 MiB {before} were"
        );
        Ok(Pass::Ok)
    }
}

pub(crate) fn run(suite: &mut Suite, full: bool) {
    register(suite);

    bare(suite, 3, BareTest::RM_MEM_SANITY, NONE);
    suite.test("step 3: UVM_TEST_GET_GPU_TIME", NONE, gpu_time);
    bare(suite, 4, BareTest::GPU_SEMAPHORE_SANITY, SEMAPHORE);
    bare(suite, 4, BareTest::TRACKER_SANITY, NONE);
    one(suite, 5, "", |_| uvm::PushSanity::default());
    bare(suite, 6, BareTest::HOST_SANITY, NONE);
    one(suite, 7, "", |_| uvm::CeSanity::default());

    let mut said = CHANNEL.to_vec();
    if Facts::loaded().has(Fact::SyncsTrackers) {
        said.extend_from_slice(SYNCS_TRACKERS);
    }
    suite.test("step 8: UVM_TEST_CHANNEL_SANITY", &said, channel_sanity);
    let scale = if full { 10 } else { 1 };
    for (mode, name, iterations) in [
        (0, "noop", 5000 * scale),
        (1, "update", 100 * scale),
        (2, "stream", 50 * scale),
    ] {
        one(suite, 8, name, |_| uvm::ChannelStress {
            mode,
            iterations,
            num_streams: 4,
            seed: 7,
            ..Default::default()
        });
    }
    bare(suite, 9, BareTest::MEM_SANITY, NONE);

    pmm(suite, full);
    blocks(suite);
    suite.test(
        "step 12: UVM_TEST_FAULT_BUFFER_FLUSH, while kernels fault",
        NONE,
        || fault_buffer_flush(10 * u64::from(scale)),
    );
    suite.test("step 12: no leak after steps 2 to 12", NONE, no_leak);
}

/// A test that takes nothing.
fn bare(suite: &mut Suite, step: u32, test: BareTest, allowed: &[Allowed]) {
    suite.test(&format!("step {step}: {}", test.name), allowed, || {
        Registered::new()?.process.run(test)?;
        Ok(Pass::Ok)
    });
}

/// A test with parameters.
fn one<P: Params>(suite: &mut Suite, step: u32, note: &str, params: impl Fn(Uuid) -> P) {
    let note = if note.is_empty() {
        String::new()
    } else {
        format!(", {note}")
    };
    suite.test(&format!("step {step}: {}{note}", P::NAME), NONE, || {
        let on = Registered::new()?;
        on.process.call(&mut params(on.gpu))?;
        Ok(Pass::Ok)
    });
}

fn register(suite: &mut Suite) {
    suite.test(
        "step 2: UVM_REGISTER_GPU, UVM_UNREGISTER_GPU and UVM_TEST_GET_GPU_REF_COUNT",
        NONE,
        || {
            let on = Registered::new()?;
            let other = Process::new()?;
            let before = other.gpu_references(on.gpu)?;
            other.register_gpu(on.gpu)?;
            let both = other.gpu_references(on.gpu)?;
            ensure!(
                (before, both) == (1, 2),
                "{before} then {both} references, not 1 then 2"
            );
            other.unregister_gpu(on.gpu)?;
            let after = on.process.gpu_references(on.gpu)?;
            ensure!(after == 1, "{after} references, not 1");
            Ok(Pass::Ok)
        },
    );
    suite.test("step 2: register and unregister 100 times", NONE, || {
        let info = Vgpu::open()?.info(0)?;
        let process = Process::new()?;
        for _ in 0..100 {
            process.register_gpu(info.uuid())?;
            process.unregister_gpu(info.uuid())?;
        }
        Ok(Pass::Ok)
    });
}

fn gpu_time() -> Outcome {
    let on = Registered::new()?;
    let mut last = 0;
    for _ in 0..10 {
        let mut time = uvm::GetGpuTime {
            gpu: on.gpu,
            ..Default::default()
        };
        on.process.call(&mut time)?;
        let now = time.timestamp_ns;
        ensure!(
            now > 0 && now >= last,
            "the GPU's clock went from {last} to {now}"
        );
        last = now;
    }
    Ok(Pass::Ok)
}

/// Flushes drop faults that are in the buffer and replay, while a kernel makes more. Each is
/// a replay at the GPU; no access is lost.
fn fault_buffer_flush(iterations: u64) -> Outcome {
    let process = Process::new()?;
    let gpu = process.gpu(0)?;
    let words = (4 * BLOCK / 8) as usize;
    let buffer = Buffer::<u64>::managed(&process, words)?;
    let replays = || -> Result<u64, Failure> {
        let stats = gpu.stats()?;
        Ok(stats.replays_start + stats.replays_ack)
    };
    let quiet = replays()?;
    process.call(&mut uvm::FaultBufferFlush {
        iterations,
        rm_status: 0,
    })?;
    // UVM does not wait for the last replay that it has pushed.
    let patience = Instant::now() + Duration::from_secs(10);
    let mut made = replays()? - quiet;
    while made < iterations && Instant::now() < patience {
        std::thread::sleep(Duration::from_millis(10));
        made = replays()? - quiet;
    }
    ensure!(made >= iterations, "{made} replays of {iterations} flushes");

    let ended = AtomicBool::new(false);
    let flushes = std::thread::scope(|scope| -> Result<u64, Failure> {
        let flusher = scope.spawn(|| -> Result<u64, Failure> {
            let mut flushes = 0;
            while !ended.load(Ordering::Relaxed) {
                process.call(&mut uvm::FaultBufferFlush {
                    iterations: 1,
                    rm_status: 0,
                })?;
                flushes += 1;
            }
            Ok(flushes)
        });
        let work = (1..=4u64).try_for_each(|round| -> Result<(), Failure> {
            // On the CPU, so that the GPU faults for each page.
            buffer.fill(|i| i as u64);
            let add = Op::atomic_add(&buffer).pattern(round, 0).warps(32);
            let done = gpu.launch(&Kernel::new().op(add))?.wait()?.ok()?;
            ensure!(done.faults > 0, "round {round}: no fault to flush");
            match buffer.first_other(|i| i as u64 + round) {
                None => Ok(()),
                Some((i, seen)) => Err(format!("round {round}: word {i} is {seen:#x}").into()),
            }
        });
        ended.store(true, Ordering::Relaxed);
        let flushes = flusher.joined()?;
        work.and(flushes)
    })?;
    ensure!(flushes > 0, "nothing was flushed beside the kernels");
    Ok(Pass::Ok)
}

/// The test frees UVM's channels while root chunks may still have trackers that
/// point to them, and the next allocation there follows the pointer: a bug of
/// NVIDIA's (`docs/vgpu.md`). Allocating and freeing all memory right before
/// prunes the trackers. `hazards --channel-sanity` does without, to show the bug.
fn channel_sanity() -> Outcome {
    let on = Registered::new()?;
    on.check_leak(4096)?;
    on.process.run(BareTest::CHANNEL_SANITY)?;
    on.process.run(BareTest::MEM_SANITY)?;
    Ok(Pass::Ok)
}

fn pmm(suite: &mut Suite, full: bool) {
    let mode = 2;
    one(suite, 10, "basic", |_| uvm::PmmSanity {
        mode,
        rm_status: 0,
    });
    if full {
        one(suite, 10, "full", |_| uvm::PmmSanity {
            mode: 1,
            rm_status: 0,
        });
    }
    one(suite, 10, "", |gpu| uvm::PmmQuery {
        gpu,
        ..Default::default()
    });
    one(suite, 10, "", |gpu| uvm::PmaGetBatchSize {
        gpu,
        ..Default::default()
    });
    let chunks = [(65536, 4, 0), (65536, 4, 1), (2 << 20, 4, 1)];
    for (page_size, num_pages, contiguous) in chunks {
        let note = format!(
            "{num_pages} x {} KiB, contiguous {contiguous}",
            page_size >> 10
        );
        one(suite, 10, &note, |gpu| uvm::PmaAllocFree {
            gpu,
            page_size,
            num_pages,
            contiguous,
            ..Default::default()
        });
    }
    one(suite, 10, "", |gpu| uvm::PmmAllocFreeRoot {
        gpu,
        ..Default::default()
    });
    one(suite, 10, "", |gpu| uvm::PmmAsyncAlloc {
        gpu,
        num_chunks: 8,
        num_work_iterations: 2,
        rm_status: 0,
    });
    one(suite, 10, "", |gpu| uvm::PmmReleaseFreeRootChunks {
        gpu,
        rm_status: 0,
    });
    suite.test(
        "step 10: UVM_TEST_PMM_CHUNK_WITH_ELEVATED_PAGE",
        NONE,
        || {
            let on = Registered::new()?;
            match on.process.run(BareTest::PMM_CHUNK_WITH_ELEVATED_PAGE) {
                Err(e) if e.status() == Some(NvStatus::NOTHING_TO_DO) => {
                    skip!("only for GPU memory that is a NUMA node (docs/vgpu.md)")
                }
                other => Ok(other.map(|()| Pass::Ok)?),
            }
        },
    );
    for size in [BLOCK, 65536] {
        suite.test(
            &format!("step 10: UVM_TEST_PMM_CHECK_LEAK, {} KiB", size >> 10),
            NONE,
            || Registered::new()?.check_leak(size),
        );
    }
}

fn blocks(suite: &mut Suite) {
    bare(suite, 11, BareTest::VA_BLOCK, NONE);
    bare(suite, 11, BareTest::CPU_CHUNK_API, NONE);
    suite.test("step 11: UVM_TEST_PMM_REVERSE_MAP", NONE, || {
        if !uvm::is_there(uvm::PmmReverseMap::NAME, Facts::loaded()) {
            skip!("this driver has no such test");
        }
        let process = Process::new()?;
        let gpu = process.gpu(0)?;
        let ranges = [
            Buffer::<u64>::managed(&process, (BLOCK / 8) as usize)?,
            Buffer::<u64>::managed(&process, (BLOCK / 4) as usize)?,
        ];
        for range in &ranges {
            range.fill(|_| 1);
            process.migrate(range.address(), range.bytes(), gpu.uuid())?;
        }
        process.call(&mut uvm::PmmReverseMap {
            gpu: gpu.uuid(),
            range1: ranges[0].address(),
            range2: ranges[1].address(),
            range_size2: ranges[1].bytes(),
            rm_status: 0,
        })?;
        Ok(Pass::Ok)
    });
    suite.test("step 11: UVM_TEST_PMM_SYSMEM", NONE, pmm_sysmem);
}

/// Wants a va_block of 2 MiB, and a 2 MiB area of four va_blocks.
fn pmm_sysmem() -> Outcome {
    if !uvm::is_there(uvm::PmmSysmem::NAME, Facts::loaded()) {
        skip!("this driver has no such test");
    }
    let on = Registered::new()?;
    if on.personality != PERSONALITY_VOLTA {
        skip!("only Volta counts accesses by physical address (docs/vgpu.md)");
    }
    let [whole, parts] =
        [(); 2].map(|()| Buffer::<u64>::managed(&on.process, (BLOCK / 8) as usize));
    let (whole, parts) = (whole?, parts?);
    for quarter in [2, 1, 3] {
        let split_address = parts.address() + quarter * BLOCK / 4 - 1;
        on.process.call(&mut uvm::VaRangeSplit {
            split_address,
            rm_status: 0,
        })?;
    }
    whole.fill(|_| 1);
    parts.fill(|_| 2);
    on.process.call(&mut uvm::PmmSysmem {
        range1: whole.address(),
        range2: parts.address(),
        rm_status: 0,
    })?;
    Ok(Pass::Ok)
}
