// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! A process with one GPU or two, and what the tests ask of it.

use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;

use uvm_suite::{ensure, Failure};
use uvmrust::{Linux, Mode, Range, Uvm};
use vgpu_client::uvm::Uuid;
use vgpu_client::vgpu::POISON;
use vgpu_client::{
    driver_version, AllocList, Buffer, Discard, DriverStats, Gpu, Kernel, Op, Process, Report,
    BLOCK, PAGE,
};

use crate::UNMODIFIED_TOO;

/// Words of a 2 MiB block and of a page.
pub(crate) const WORDS: usize = (BLOCK / 8) as usize;
pub(crate) const PAGE_WORDS: usize = (PAGE / 8) as usize;

pub(crate) type Done = Result<(), Failure>;

pub(crate) struct Rig {
    /// On NVIDIA's driver as it is: what a kernel reads that only has to end.
    scratch: Option<Buffer<u64>>,
    pub(crate) process: Process,
    /// The one that a test looks at.
    pub(crate) gpu: Gpu,
    /// With two GPUs: it had the data before, and keeps its chunks.
    pub(crate) other: Option<Gpu>,
    /// Of `UVM_RUST_GET_VERSION`; NVIDIA's driver as it is has none.
    features: Option<u64>,
}

/// Bytes moved since a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moved {
    pub(crate) to_gpu: u64,
    pub(crate) to_host: u64,
    pub(crate) faults: u64,
    /// Chunks taken, by queue.
    pub(crate) evictions: [u64; 8],
}

impl Rig {
    pub(crate) fn new() -> Result<Self, Failure> {
        let process = Process::new()?;
        let gpu = process.gpu(0)?;
        let other = (gpu.info().gpu_count > 1)
            .then(|| process.gpu(1))
            .transpose()?;
        let rig = Self::of(process, gpu)?;
        Ok(Self { other, ..rig })
    }

    /// A process with one GPU.
    pub(crate) fn of(process: Process, gpu: Gpu) -> Result<Self, Failure> {
        let features = driver_version(&process)?.map(|(_, features)| features);
        let scratch = features
            .is_none()
            .then(|| Buffer::managed(&process, PAGE_WORDS))
            .transpose()?;
        Ok(Self {
            scratch,
            process,
            gpu,
            other: None,
            features,
        })
    }

    /// Whether the discard is NVIDIA's, by its own rules ("Against NVIDIA's own" in docs/uapi.md): with
    /// `uvm_rust_discard=0` on 580 and later, and on NVIDIA's driver as it is.
    pub(crate) fn is_native(&self) -> bool {
        let native = u64::from(uvm_uapi::UVM_RUST_FEATURE_NATIVE_DISCARD);
        self.features.is_none_or(|features| features & native != 0)
    }

    /// The list that has the chunk of a block which is discarded so.
    pub(crate) fn list_of(&self, how: Discard) -> AllocList {
        match how {
            Discard::Eager if self.is_native() => AllocList::Unused,
            _ => AllocList::Discarded,
        }
    }

    /// Whether the driver is to be spared what NVIDIA's, as it is, does not survive.
    pub(crate) fn is_spared(&self) -> bool {
        self.features.is_none() && !UNMODIFIED_TOO.load(Ordering::Relaxed)
    }

    /// Whether the driver says how many chunks it has evicted, which NVIDIA's does not.
    pub(crate) fn counts_evictions(&self) -> bool {
        self.features.is_some()
    }

    pub(crate) fn buffer(&self, blocks: usize) -> Result<Buffer<u64>, Failure> {
        Ok(Buffer::managed(&self.process, blocks * WORDS)?)
    }

    pub(crate) fn on_gpu(&self, op: Op) -> Result<Report, Failure> {
        run(&self.gpu, op)
    }

    /// The same on the other GPU, or on the only one.
    pub(crate) fn on_other(&self, op: Op) -> Result<Report, Failure> {
        run(self.other.as_ref().unwrap_or(&self.gpu), op)
    }

    /// Writes `value` + index to the whole buffer on the GPU.
    pub(crate) fn gpu_write(&self, buffer: &Buffer<u64>, value: u64) -> Done {
        self.on_gpu(Op::write(buffer).pattern(value, 1)).map(drop)
    }

    pub(crate) fn discard(&self, buffer: &Buffer<u64>, how: Discard) -> Done {
        Ok(self
            .process
            .discard(buffer.address(), buffer.bytes(), how)?)
    }

    /// By the user library, which makes two of NVIDIA's calls of an eager one.
    pub(crate) fn discard_by_library(&self, buffer: &Buffer<u64>, how: Discard) -> Done {
        let uvm = Uvm::new(Linux::new());
        uvm.use_fd(Some(self.process.uvm_fd().as_raw_fd()));
        let mode = match how {
            Discard::Eager => Mode::Eager,
            Discard::Lazy => Mode::Lazy,
        };
        let range = Range {
            base: buffer.address(),
            length: buffer.bytes(),
        };
        // SAFETY: The buffer is the test's, which has no reference to its words and waits for its GPU's programs.
        // It writes or prefetches what it then reads, or reads what may hold anything.
        unsafe { uvm.discard(range, mode) }.map_err(|error| format!("{error:?}").into())
    }

    /// UVM_MIGRATE, the prefetch of the paper.
    pub(crate) fn prefetch(&self, buffer: &Buffer<u64>, to: Uuid) -> Done {
        Ok(self.process.migrate(buffer.address(), buffer.bytes(), to)?)
    }

    /// Makes what was discarded usable again: nothing if eager, a prefetch if lazy.
    pub(crate) fn revive(&self, buffer: &Buffer<u64>, how: Discard) -> Done {
        match how {
            Discard::Eager => Ok(()),
            Discard::Lazy => self.prefetch(buffer, self.gpu.uuid()),
        }
    }

    pub(crate) fn list(
        &self,
        buffer: &Buffer<u64>,
        block: usize,
    ) -> Result<Option<AllocList>, Failure> {
        let va = buffer.address_of(block * WORDS);
        Ok(self.process.alloc_list(va, self.gpu.uuid())?)
    }

    pub(crate) fn is_discarded(&self, buffer: &Buffer<u64>, page: usize) -> Result<bool, Failure> {
        Ok(self
            .process
            .is_discarded(buffer.address_of(page * PAGE_WORDS))?)
    }

    /// (resident on, mapped on) of a page: is it anywhere?
    pub(crate) fn is_resident_and_mapped(
        &self,
        buffer: &Buffer<u64>,
        page: usize,
    ) -> Result<(bool, bool), Failure> {
        let residency = self
            .process
            .residency(buffer.address_of(page * PAGE_WORDS))?;
        Ok((!residency.resident.is_empty(), !residency.mapped.is_empty()))
    }

    /// Lets UVM reclaim chunks of its choice until block `block` has none.
    pub(crate) fn reclaim_until(&self, buffer: &Buffer<u64>, block: usize) -> Done {
        for _ in 0..256 {
            if self.list(buffer, block)?.is_none() {
                return Ok(());
            }
            self.gpu.evict_any()?;
        }
        Err(format!("block {block} was not reclaimed").into())
    }

    /// Has UVM reclaim the chunk of each block of the buffer.
    pub(crate) fn reclaim(&self, buffer: &Buffer<u64>) -> Done {
        for block in 0..buffer.len() / WORDS {
            let va = buffer.address_of(block * WORDS);
            ensure!(self.gpu.evict(va)?, "block {block} had no chunk to reclaim");
        }
        Ok(())
    }

    fn stats(&self) -> Result<Moved, Failure> {
        if !self.counts_evictions() {
            // What the GPU itself has seen is all there is, once it has done what UVM sent: no kernel ends before.
            if let Some(scratch) = &self.scratch {
                self.on_gpu(Op::read(scratch).range(0, 1))?;
            }
            let s = self.gpu.stats()?;
            return Ok(Moved {
                to_gpu: s.h2d_bytes,
                to_host: s.d2h_bytes,
                faults: s.faults,
                evictions: [0; 8],
            });
        }
        let s = DriverStats::get(&self.process, self.gpu.uuid(), false)?;
        let sum = |t: &[vgpu_client::Traffic; 8]| t.iter().map(|t| t.bytes).sum();
        Ok(Moved {
            to_gpu: sum(&s.host_to_gpu),
            to_host: sum(&s.gpu_to_host),
            faults: s.faults,
            evictions: s.evictions,
        })
    }

    /// What the driver copied and evicted while `work` ran.
    pub(crate) fn moved(&self, work: impl FnOnce() -> Done) -> Result<Moved, Failure> {
        let before = self.stats()?;
        work()?;
        let after = self.stats()?;
        let mut evictions = after.evictions;
        evictions
            .iter_mut()
            .zip(before.evictions)
            .for_each(|(a, b)| *a -= b);
        Ok(Moved {
            to_gpu: after.to_gpu - before.to_gpu,
            to_host: after.to_host - before.to_host,
            faults: after.faults - before.faults,
            evictions,
        })
    }
}

/// Runs a kernel, to the end of what UVM does for it: a fault that comes between UVM's
/// flush of the buffer and its replay is served after the kernel has gone on, and would
/// count among what comes next.
fn run(gpu: &Gpu, op: Op) -> Result<Report, Failure> {
    let report = gpu.launch(&Kernel::new().op(op.warps(8)))?.wait()?.ok()?;
    gpu.drain_faults()?;
    Ok(report)
}

/// Each word is 0 or what one of `written` put there (value + index).
pub(crate) fn zeros_or(buffer: &Buffer<u64>, written: &[u64]) -> Done {
    let mut word = vec![0; buffer.len()];
    buffer.copy_out(0, &mut word);
    for (i, &seen) in word.iter().enumerate() {
        let legal = seen == 0 || written.iter().any(|w| seen == w + i as u64);
        let what = if seen == POISON {
            "foreign data"
        } else {
            "an unknown value"
        };
        ensure!(legal, "word {i} holds {what}, {seen:#x}");
    }
    Ok(())
}

/// Each word is value + index.
pub(crate) fn exactly(buffer: &Buffer<u64>, value: u64) -> Done {
    match buffer.first_other(|i| value + i as u64) {
        None => Ok(()),
        Some((i, seen)) => {
            Err(format!("word {i} is {seen:#x}, not {:#x}", value + i as u64).into())
        }
    }
}
