// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Step 19: two GPUs that nobody has told to reach each other's memory.

use uvm_suite::{ensure, no_leak, skip, Allowed, Failure, Outcome, Pass, Suite};
use vgpu_client::uvm::{self, BareTest};
use vgpu_client::vgpu::{PERSONALITY_AMPERE, PERSONALITY_BLACKWELL, PERSONALITY_HOPPER};
use vgpu_client::{Buffer, Facts, Gpu, Kernel, NvStatus, Op, Process, Vgpu, BLOCK};

use crate::peers::{self, Link};
use crate::{NONE, SEMAPHORE};

/// What UVM says when peer access is asked for and there is no link.
const NO_LINK: &[Allowed] = &[Allowed {
    text: "P2pObjectCreate",
    times: 2,
}];

pub(crate) fn run(suite: &mut Suite) {
    let two = Vgpu::open()
        .and_then(|v| v.info(0))
        .is_ok_and(|info| info.gpu_count >= 2);
    let with_two = |test: fn(Process, [Gpu; 2]) -> Outcome| {
        move || -> Outcome {
            if !two {
                skip!("one GPU; run with GPUS=2");
            }
            let process = Process::new()?;
            let gpus = [process.gpu(0)?, process.gpu(1)?];
            test(process, gpus)
        }
    };
    for (test, allowed) in [
        (BareTest::GPU_SEMAPHORE_SANITY, SEMAPHORE),
        (BareTest::TRACKER_SANITY, NONE),
        (BareTest::MEM_SANITY, NONE),
        (BareTest::CPU_CHUNK_API, NONE),
        (BareTest::PMM_INDIRECT_PEERS, NONE),
    ] {
        suite.test(
            &format!("step 19: {}, two GPUs", test.name),
            allowed,
            || {
                if !two {
                    skip!("one GPU; run with GPUS=2");
                }
                if !uvm::is_there(test.name, Facts::loaded()) {
                    skip!("this driver has no such test");
                }
                let process = Process::new()?;
                let _gpus = [process.gpu(0)?, process.gpu(1)?];
                match process.run(test) {
                    Err(e) if e.status() == Some(NvStatus::NOTHING_TO_DO) => {
                        skip!("needs GPUs that reach each other through a CPU (docs/vgpu.md)")
                    }
                    other => other?,
                }
                Ok(Pass::Ok)
            },
        );
    }
    suite.test(
        "step 19: UVM_TEST_PMM_ASYNC_ALLOC, two GPUs",
        NONE,
        with_two(async_alloc),
    );
    suite.test("step 19: UVM_TEST_PEER_REF_COUNT", NO_LINK, with_two(peers));
    suite.test(
        "step 19: UVM_TEST_PEER_IDENTITY_MAPPINGS, without peer access",
        NONE,
        with_two(identity_mappings),
    );
    suite.test("step 19: data goes from GPU to GPU", NONE, with_two(relay));
    peers::run(suite);
    suite.test("step 19: no leak on either GPU", NONE, || {
        if !two {
            skip!("one GPU; run with GPUS=2");
        }
        no_leak()
    });
}

fn async_alloc(process: Process, gpus: [Gpu; 2]) -> Outcome {
    for gpu in &gpus {
        process.call(&mut uvm::PmmAsyncAlloc {
            gpu: gpu.uuid(),
            num_chunks: 8,
            num_work_iterations: 2,
            rm_status: 0,
        })?;
    }
    Ok(Pass::Ok)
}

fn peers(process: Process, gpus: [Gpu; 2]) -> Outcome {
    let [a, b] = [gpus[0].uuid(), gpus[1].uuid()];
    let mut count = uvm::PeerRefCount {
        gpu1: a,
        gpu2: b,
        ..Default::default()
    };
    process.call(&mut count)?;
    let link = Link::loaded();
    ensure!(
        count.ref_count == u64::from(link == Link::Nvlink),
        "{} by {link:?}, before anybody has asked",
        count.ref_count
    );
    // What comes of it with PCIe is seen elsewhere.
    if link != Link::Pcie {
        let linked = process.call(&mut uvm::EnablePeerAccess { a, b, rm_status: 0 });
        ensure!(linked.is_err(), "access over PCIe was granted by {link:?}");
    }
    Ok(Pass::Ok)
}

/// A GPU has no page tables of the memory of one that it does not reach, and the test says which
/// of its reasons it is: NVIDIA's Ampere and later ones would do without them in any case.
fn identity_mappings(process: Process, gpus: [Gpu; 2]) -> Outcome {
    if Link::loaded() == Link::Nvlink {
        skip!("NVLink lets them reach each other at once");
    }
    let refusal = match gpus[0].info().personality {
        PERSONALITY_AMPERE | PERSONALITY_HOPPER | PERSONALITY_BLACKWELL => NvStatus::NOTHING_TO_DO,
        _ => NvStatus::INVALID_DEVICE,
    };
    let [a, b] = [gpus[0].uuid(), gpus[1].uuid()];
    for (a, b) in [(a, b), (b, a)] {
        let asked = process.call(&mut uvm::PeerIdentityMappings { a, b, rm_status: 0 });
        let said = asked.err().map(|e| e.status());
        ensure!(said == Some(Some(refusal)), "it said {said:?}");
    }
    Ok(Pass::Ok)
}

fn relay(process: Process, gpus: [Gpu; 2]) -> Outcome {
    let words = (2 * BLOCK / 8) as usize;
    let buffer = Buffer::<u64>::managed(&process, words)?;
    buffer.fill(|i| i as u64);
    for round in 1..=6u64 {
        let gpu = &gpus[round as usize % 2];
        let kernel = Kernel::new()
            .op(Op::check(&buffer).pattern(round - 1, 1).warps(16))
            .op(Op::atomic_add(&buffer).pattern(1, 0).warps(16).barrier());
        gpu.launch(&kernel)?.wait()?.ok()?;
        let residency = process.residency(buffer.address())?;
        ensure!(
            residency.resident == [gpu.uuid()],
            "it is on {:?}",
            residency.resident
        );
    }
    match buffer.first_other(|i| i as u64 + 6) {
        None => Ok(Pass::Ok),
        Some((i, seen)) => Err(Failure::from(format!("element {i} is {seen}"))),
    }
}
