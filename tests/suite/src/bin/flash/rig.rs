// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! A process with a GPU and an attached device, and what the tests ask of them.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use uvm_suite::{nothing_on_device, Failure};
use vgpu_client::{flash, Buffer, Flash, FlashStats, Gpu, Kernel, Op, Process, BLOCK};

/// Words of a 2 MiB block.
pub(crate) const WORDS: usize = (BLOCK / 8) as usize;

pub(crate) type Done = Result<(), Failure>;

/// The device that the tests may overwrite.
static DEVICE: OnceLock<PathBuf> = OnceLock::new();

/// The variable with its name, for programs that tests run; scripts/ssd.sh sets it too.
const VARIABLE: &str = "SSD";

/// Before there are threads.
pub(crate) fn set_device(path: PathBuf) {
    std::env::set_var(VARIABLE, path);
}

/// Whether somebody has said which device to use.
pub(crate) fn is_named() -> bool {
    std::env::var_os(VARIABLE).is_some()
}

pub(crate) fn device() -> &'static Path {
    DEVICE.get_or_init(|| {
        let named = std::env::var_os(VARIABLE);
        named.map_or_else(|| "/dev/nvme0n1".into(), PathBuf::from)
    })
}

/// The device of that path, whatever is on it, without a quota.
pub(crate) fn plain(path: &Path, host_blocks: u64) -> Flash<'_> {
    Flash {
        path,
        host_bytes: host_blocks * BLOCK,
        quota_bytes: 0,
        flags: flash::FORCE,
    }
}

/// A device that is detached when this is dropped, also by a test that fails.
pub(crate) struct Rig {
    pub(crate) process: Process,
    pub(crate) gpu: Gpu,
    attached: bool,
}

impl Rig {
    /// Attaches the device; above `host_blocks` blocks of host memory it is written to.
    pub(crate) fn new(host_blocks: u64) -> Result<Self, Failure> {
        Self::with(plain(device(), host_blocks))
    }

    pub(crate) fn with(flash: Flash<'_>) -> Result<Self, Failure> {
        let process = Process::new()?;
        let gpu = process.gpu(0)?;
        process.flash_attach(flash)?;
        Ok(Self {
            process,
            gpu,
            attached: true,
        })
    }

    /// A process that uses what another one has attached.
    pub(crate) fn unattached(process: Process) -> Result<Self, Failure> {
        Ok(Self {
            gpu: process.gpu(0)?,
            process,
            attached: false,
        })
    }

    pub(crate) fn buffer(&self, blocks: usize) -> Result<Buffer<u64>, Failure> {
        Ok(Buffer::managed(&self.process, blocks * WORDS)?)
    }

    pub(crate) fn stats(&self) -> Result<FlashStats, Failure> {
        Ok(self.process.flash_stats()?)
    }

    /// Moves the buffer from host memory to the device.
    pub(crate) fn spill(&self, buffer: &Buffer<u64>) -> Done {
        Ok(self
            .process
            .flash_move(buffer.address(), buffer.bytes(), false)?)
    }

    /// Moves all of it back to host memory.
    pub(crate) fn fetch(&self, buffer: &Buffer<u64>) -> Done {
        Ok(self
            .process
            .flash_move(buffer.address(), buffer.bytes(), true)?)
    }

    /// Writes `value` + index on the GPU.
    pub(crate) fn gpu_write(&self, buffer: &Buffer<u64>, value: u64) -> Done {
        let op = Op::write(buffer).pattern(value, 1).warps(8);
        self.gpu.launch(&Kernel::new().op(op))?.wait()?.ok()?;
        // A kernel may be done before the calls of the fault service that helped it.
        self.gpu.drain_faults()?;
        Ok(())
    }

    /// Waits until the driver's counts are so, or `patience` is over; returns what they are then.
    pub(crate) fn wait_until(
        &self,
        patience: Duration,
        so: impl Fn(&FlashStats) -> bool,
    ) -> Result<FlashStats, Failure> {
        let start = Instant::now();
        loop {
            let stats = self.stats()?;
            if so(&stats) || start.elapsed() > patience {
                return Ok(stats);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Each word is `value` + index, to the GPU.
    pub(crate) fn gpu_check(&self, buffer: &Buffer<u64>, value: u64) -> Done {
        self.gpu_sees(buffer, value)?;
        // A kernel may be done before the calls of the fault service that helped it.
        self.gpu.drain_faults()?;
        Ok(())
    }

    /// The same beside a kernel whose faults are put off, which come back with each replay: some may be pending always.
    pub(crate) fn gpu_sees(&self, buffer: &Buffer<u64>, value: u64) -> Done {
        let op = Op::check(buffer).pattern(value, 1).warps(8);
        self.gpu.launch(&Kernel::new().op(op))?.wait()?.ok()?;
        Ok(())
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if self.attached {
            let _ = self.process.flash_detach();
        }
    }
}

/// Writes `value` + index on the CPU.
pub(crate) fn write(buffer: &Buffer<u64>, value: u64) {
    buffer.fill(|i| value + i as u64);
}

/// Each word is `value` + index, to the CPU.
pub(crate) fn check(buffer: &Buffer<u64>, value: u64) -> Done {
    match buffer.first_other(|i| value + i as u64) {
        None => Ok(()),
        Some((i, seen)) => {
            Err(format!("word {i} is {seen:#x}, not {:#x}", value + i as u64).into())
        }
    }
}

/// Nothing is left on the device, and no slot is in use.
pub(crate) fn no_leak(rig: &Rig) -> Done {
    nothing_on_device(&rig.process)
}
