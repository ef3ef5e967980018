// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! A GPU with less memory than it has.

use crate::uvm::Uuid;
use crate::vgpu::{Inject, INJECT_EVICT_PAGES, INJECT_KEEP};
use crate::{Buffer, Discard, Error, Process, Result, Vgpu, BLOCK};

/// Words of a block.
const WORDS: usize = (BLOCK / 8) as usize;

/// GPU memory that an idle program holds, so that others have less (as in UvmDiscard §7.1).
/// For ours: it discards.
#[derive(Debug)]
pub struct Idle {
    /// Keeps the memory while it is open.
    _device: Vgpu,
    available: usize,
}

impl Idle {
    /// Leaves `available` blocks of the GPU to others, or all there are.
    pub fn leaving(available: Option<usize>) -> Result<Self> {
        let device = Vgpu::open()?;
        let process = Process::new()?;
        let gpu = process.gpu(0)?;
        let most = (gpu.info().vidmem_bytes / BLOCK) as usize;
        let filler = Buffer::<u64>::managed(&process, most * WORDS)?;
        let fill = |blocks: usize| {
            // Nothing of the filler's is ever read: it is not copied out.
            process.discard(filler.address(), filler.bytes(), Discard::Eager)?;
            process.migrate(filler.address(), blocks as u64 * BLOCK, gpu.uuid())?;
            on_gpu(&process, &filler, gpu.uuid())
        };
        let there = fill(most)?;
        let Some(available) = available.filter(|&n| n < there) else {
            return Ok(Self {
                _device: device,
                available: there,
            });
        };
        process.discard(filler.address(), filler.bytes(), Discard::Eager)?;
        let gave = device.inject(Inject {
            kind: INJECT_EVICT_PAGES,
            flags: INJECT_KEEP,
            count: (there - available) as u64,
            ..Default::default()
        })?;
        // One block too many shows how many fit.
        let left = fill(available + 1)?;
        if gave.status != 0 || left != available {
            let bytes = gave.bytes;
            return Err(Error::Missing(format!(
                "{left} blocks of the GPU are free, not {available}: the idle program got {bytes} bytes"
            )));
        }
        Ok(Self {
            _device: device,
            available,
        })
    }

    /// Blocks left to others.
    pub fn available(&self) -> usize {
        self.available
    }
}

/// How many blocks of a buffer are on the GPU.
fn on_gpu(process: &Process, buffer: &Buffer<u64>, gpu: Uuid) -> Result<usize> {
    let mut count = 0;
    for block in 0..buffer.len() / WORDS {
        let residency = process.residency(buffer.address_of(block * WORDS))?;
        count += usize::from(residency.resident.contains(&gpu));
    }
    Ok(count)
}
