// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! What a debugger has UVM do: read and write memory of the process, wherever that is.

use crate::ffi::Mapping;
use crate::gpu::check;
use crate::layout::{c_struct, Layout};
use crate::{Buffer, NvStatus, Process, Result};

c_struct!(
    /// Reads the process' memory. Not public: UVM writes to the buffer.
    ReadProcessMemory, "UVM_TOOLS_READ_PROCESS_MEMORY", "UVM_TOOLS_READ_PROCESS_MEMORY" = 62, 40, {
        buffer "buffer": u64,
        size "size": u64,
        target "targetVa": u64,
        done "bytesRead": u64,
        rm_status "rmStatus": u32,
    }
);

c_struct!(
    /// Writes to the process' memory. Not public: UVM does so at any address.
    WriteProcessMemory, "UVM_TOOLS_WRITE_PROCESS_MEMORY", "UVM_TOOLS_WRITE_PROCESS_MEMORY" = 63, 40, {
        buffer "buffer": u64,
        size "size": u64,
        target "targetVa": u64,
        done "bytesWritten": u64,
        rm_status "rmStatus": u32,
    }
);

/// The layouts of both, for the check against C.
pub(crate) const LAYOUTS: [Layout; 2] = [ReadProcessMemory::LAYOUT, WriteProcessMemory::LAYOUT];

impl Process {
    /// The `count` words of `buffer` from `first` on, as UVM_TOOLS_READ_PROCESS_MEMORY reads them.
    pub fn debugger_reads(
        &self,
        buffer: &Buffer<u64>,
        first: usize,
        count: usize,
    ) -> Result<Vec<u64>> {
        let bytes = (count * 8).next_multiple_of(crate::PAGE as usize);
        let read = Mapping::anonymous(0, bytes)
            .map_err(|e| crate::Error::os(format!("mmap of {bytes} bytes"), e))?;
        let (name, number) = ReadProcessMemory::LAYOUT.number;
        let mut params = ReadProcessMemory {
            buffer: read.address() as u64,
            size: count as u64 * 8,
            target: buffer.address_of(first),
            ..Default::default()
        };
        self.ask(name, number, &mut params)?;
        check(name, NvStatus(params.rm_status))?;
        let mut words = vec![0; count];
        read.copy_words(0, &mut words);
        Ok(words)
    }

    /// Writes `words` to `buffer` from its word `first` on, by UVM_TOOLS_WRITE_PROCESS_MEMORY. Panics beyond the end.
    pub fn debugger_writes(&self, buffer: &Buffer<u64>, first: usize, words: &[u64]) -> Result<()> {
        assert!(first + words.len() <= buffer.len());
        let (name, number) = WriteProcessMemory::LAYOUT.number;
        let mut params = WriteProcessMemory {
            buffer: words.as_ptr() as u64,
            size: words.len() as u64 * 8,
            target: buffer.address_of(first),
            ..Default::default()
        };
        self.ask(name, number, &mut params)?;
        check(name, NvStatus(params.rm_status))
    }
}
