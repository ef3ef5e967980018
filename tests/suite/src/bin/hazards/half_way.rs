// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Ordinary memory on its way to the host, and what stops half-way: nothing may be lost.

use uvm_suite::modules::SetParameter;
use uvm_suite::{ensure, skip, Allowed, Failure, Outcome, Pass, Suite};
use vgpu_client::uvm::Uuid;
use vgpu_client::{Buffer, Gpu, Kernel, Op, Process, BLOCK};

use crate::held::{can_hold, held, rm_wants_all, NO_HOLDING};
use crate::{gpu_writes, start, NONE, PAGE_WORDS, WORDS};

/// Upstream's develop build asserts, also unmodified, whenever it looks at a region of ordinary
/// memory that has two policies; so often that the kernel's log does not hold all of it.
pub(crate) const ACROSS_POLICIES: &[Allowed] = &[
    Allowed {
        text: "uvm_hmm_va_block_assert_policy_is_valid",
        times: usize::MAX,
    },
    Allowed {
        text: "BUG: lines of the kernel log were lost",
        times: usize::MAX,
    },
];

/// Tests of evictions and migrations to the host that fail in the middle.
pub(crate) fn run(suite: &mut Suite) {
    suite.test(
        "held: an eviction that fails gives back the pages of all policies",
        ACROSS_POLICIES,
        policies_given_back,
    );
    suite.test(
        "held: a copy to the host that fails loses nothing",
        NONE,
        copy_fails,
    );
    suite.test(
        "held: a stray that cannot be copied is not made one of zeros",
        NONE,
        stray_stays,
    );
}

/// A block that has a preferred location in one half is evicted in two steps. The first one fails:
/// the pages of the second must not stay locked. A CPU that touches them waits for as long.
fn policies_given_back() -> Outcome {
    let (process, gpu) = start()?;
    if !process.has_hmm()? {
        skip!("no HMM");
    }
    if !can_hold()? {
        skip!("{NO_HOLDING}");
    }
    let Some(held) = held(&process, &gpu, 2)? else {
        skip!("{NO_HOLDING}");
    };
    for buffer in &held.buffers {
        let half = BLOCK / 2;
        process.set_preferred_location(buffer.address() + half, half, gpu.uuid())?;
    }
    let asked = rm_wants_all(&gpu)?;
    ensure!(asked.status != 0, "RM got all it asked for");
    drop(held.set);
    // A page in sixty-four, as each fault is an assert or more.
    for (round, buffer) in (0u64..).zip(&held.buffers) {
        for i in (0..buffer.len()).step_by(64 * PAGE_WORDS) {
            let seen = buffer.get(i);
            ensure!(
                seen == (round << 32) + i as u64,
                "word {i} of block {round} is {seen:#x}"
            );
        }
    }
    Ok(Pass::Ok)
}

/// While it lives, copies of ordinary memory to the host fail.
fn failing_copies() -> Result<Option<SetParameter>, Failure> {
    SetParameter::new("nvidia_uvm", "uvm_rust_test_copy", "1")
}

/// The GPU's memory, filled with ordinary memory; word i of block n is n << 32 | i.
fn on_gpu(process: &Process, gpu: &Gpu, blocks: u64) -> Result<Vec<Buffer<u64>>, Failure> {
    let mut buffers = Vec::new();
    for round in 0..blocks {
        let buffer = Buffer::<u64>::ordinary(WORDS)?;
        buffer.huge_pages(false)?;
        gpu_writes(gpu, &buffer, round << 32)?;
        process.migrate(buffer.address(), buffer.bytes(), gpu.uuid())?;
        buffers.push(buffer);
    }
    Ok(buffers)
}

fn all_there(buffers: &[Buffer<u64>]) -> Result<(), Failure> {
    for (round, buffer) in buffers.iter().enumerate() {
        let first = (round as u64) << 32;
        if let Some((i, seen)) = buffer.first_other(|i| first + i as u64) {
            return Err(format!("word {i} of block {round} is {seen:#x}").into());
        }
    }
    Ok(())
}

/// Reads a word as another process would, so that a fault that fails is an error.
fn peek(address: u64) -> std::io::Result<u64> {
    let mut word = 0u64;
    let local = libc::iovec {
        iov_base: std::ptr::from_mut(&mut word).cast(),
        iov_len: 8,
    };
    let remote = libc::iovec {
        iov_base: address as *mut _,
        iov_len: 8,
    };
    // SAFETY: `local` is a word of ours; the kernel checks `remote`.
    let got = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
    if got == 8 {
        Ok(word)
    } else {
        Err(std::io::Error::last_os_error())
    }
}

/// Evictions for RM, migrations by call and CPU faults, each of which cannot copy: whoever asks
/// is told, and all words are as they were, the GPU's and the host's.
fn copy_fails() -> Outcome {
    let (process, gpu) = start()?;
    if !process.has_hmm()? {
        skip!("no HMM");
    }
    if SetParameter::new("nvidia_uvm", "uvm_rust_test_copy", "0")?.is_none() {
        skip!("this nvidia-uvm.ko has no parameter uvm_rust_test_copy");
    }
    for round in 0..4 {
        let buffers = on_gpu(&process, &gpu, 3)?;
        let failing = failing_copies()?;
        let told = match round {
            0 => rm_wants_all(&gpu)?.status != 0,
            1 => {
                let buffer = &buffers[0];
                process
                    .migrate(buffer.address(), buffer.bytes(), Uuid::CPU)
                    .is_err()
            }
            2 => peek(buffers[0].address()).is_err(),
            // One after the other, on the same pages.
            _ => {
                let buffer = &buffers[0];
                let _ = peek(buffer.address());
                let _ = process.migrate(buffer.address(), buffer.bytes(), Uuid::CPU);
                rm_wants_all(&gpu)?.status != 0
            }
        };
        ensure!(told, "round {round}: nobody was told");
        drop(failing);
        // What the GPU still has, its kernels see.
        let check = Op::check(&buffers[1]).pattern(1 << 32, 1).warps(8);
        gpu.launch(&Kernel::new().op(check))?.wait()?.ok()?;
        all_there(&buffers)?;
        // And the pages can be used on: there and back again.
        for (round, buffer) in (0u64..).zip(&buffers) {
            let write = Op::write(buffer).pattern(round << 32, 1).warps(8);
            gpu.launch(&Kernel::new().op(write))?.wait()?.ok()?;
        }
        all_there(&buffers)?;
    }
    Ok(Pass::Ok)
}

/// mremap() leaves chunks behind that claim to be another va_block's. An eviction takes their
/// pages to the host one by one, and leaves them if it cannot copy.
fn stray_stays() -> Outcome {
    let (process, gpu) = start()?;
    if !process.has_hmm()? {
        skip!("no HMM");
    }
    if SetParameter::new("nvidia_uvm", "uvm_rust_test_copy", "0")?.is_none() {
        skip!("this nvidia-uvm.ko has no parameter uvm_rust_test_copy");
    }
    let mut moved = Vec::new();
    for old in on_gpu(&process, &gpu, 3)? {
        let new = Buffer::<u64>::ordinary(WORDS)?;
        new.huge_pages(false)?;
        new.take_pages_of(&old)?;
        moved.push(new);
    }
    let failing = failing_copies()?;
    let asked = rm_wants_all(&gpu)?;
    ensure!(asked.status != 0, "RM got all it asked for");
    drop(failing);
    all_there(&moved)?;
    Ok(Pass::Ok)
}
