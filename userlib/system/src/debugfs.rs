// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What our driver counted: by its ioctl for a GPU, and in debugfs for each process. A process's user
//! reads it elsewhere (`fdinfo.rs`).

use std::collections::BTreeMap;
use std::io;

use serde::Serialize;
use uvmrust::uapi::{self, cause, queue, Stats, Traffic};

use crate::Root;

/// Bytes by why they moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ByCause {
    /// Moved because an access of a CPU or a GPU had no page.
    pub fault: u64,
    /// Brought along by the tree prefetcher.
    pub prefetch: u64,
    /// Pushed out to make room.
    pub eviction: u64,
    /// Moved because a call of the program's asked for it.
    pub api: u64,
    /// Moved because a GPU's access counters said that it is used much.
    pub access_counter: u64,
}

/// Chunks of 2 MiB by the queue that they are on, or were taken from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ByQueue {
    /// Held by UVM, used by nothing.
    pub free: u64,
    /// A va_block has the chunk, with nothing resident in it.
    pub unused: u64,
    /// A va_block has the chunk, with nothing resident but what is discarded.
    pub discarded: u64,
    /// A block's, with data that an eviction would have to copy.
    pub used: u64,
    /// Not taken off a queue: the chunk was asked for by its address.
    pub address: u64,
}

/// What a GPU did, for a process or for all. Each number only grows, until it begins anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Replayable faults that were taken off the fault buffer; each instance of a duplicate counts.
    pub faults: u64,
    /// Those for which nothing was left to do.
    pub duplicates: u64,
    /// Batches in which these faults were taken off the fault buffer.
    pub batches: u64,
    /// Replays that were sent to the GPU, after which its stopped accesses are tried again.
    pub replays: u64,
    /// Chunks of 2 MiB that were taken back.
    pub evictions: ByQueue,
    /// Blocks of 2 MiB that came back before as many others were evicted as the GPU has chunks.
    pub thrashed: u64,
    /// Blocks that were evicted before the kernel began for which a prediction had brought them.
    pub prefetch_wasted: u64,
    /// Bytes copied to the GPU from the host.
    pub host_to_gpu: ByCause,
    /// Bytes copied to the host.
    pub gpu_to_host: ByCause,
    /// Bytes copied to the GPU from another.
    pub gpu_to_gpu: ByCause,
}

impl Counts {
    /// Whether one of the numbers is smaller than before, so that it does not tell what happened since.
    pub fn shrank(&self, before: &Self) -> bool {
        let all = |counts: &Self| {
            let ByQueue {
                free,
                unused,
                discarded,
                used,
                address,
            } = counts.evictions;
            let few = [
                counts.faults,
                counts.duplicates,
                counts.batches,
                counts.replays,
                counts.thrashed,
                counts.prefetch_wasted,
            ];
            let bytes = [counts.host_to_gpu, counts.gpu_to_host, counts.gpu_to_gpu];
            let bytes = bytes.map(|causes| causes.named().map(|(_, bytes)| bytes));
            (few, [free, unused, discarded, used, address], bytes)
        };
        let (before, now) = (all(before), all(self));
        let smaller = |before: &[u64], now: &[u64]| before.iter().zip(now).any(|(b, n)| n < b);
        smaller(&before.0, &now.0)
            || smaller(&before.1, &now.1)
            || smaller(before.2.as_flattened(), now.2.as_flattened())
    }
}

impl ByCause {
    /// In the order in which they are shown, with their names.
    pub fn named(&self) -> [(&'static str, u64); 5] {
        [
            ("fault", self.fault),
            ("prefetch", self.prefetch),
            ("eviction", self.eviction),
            ("api", self.api),
            ("access-counter", self.access_counter),
        ]
    }

    /// The sum over all causes, which stops at the largest number instead of wrapping.
    pub fn total(&self) -> u64 {
        let sum = |sum: u64, (_, bytes)| sum.saturating_add(bytes);
        self.named().into_iter().fold(0, sum)
    }

    fn set(&mut self, name: &str, bytes: u64) {
        let field = match name {
            "fault" => &mut self.fault,
            "prefetch" => &mut self.prefetch,
            "eviction" => &mut self.eviction,
            "api" => &mut self.api,
            "access-counter" => &mut self.access_counter,
            // A driver newer than this program.
            _ => return,
        };
        *field = field.saturating_add(bytes);
    }
}

impl ByQueue {
    /// In the order in which they are taken, with their names.
    pub fn named(&self) -> [(&'static str, u64); 5] {
        [
            ("free", self.free),
            ("unused", self.unused),
            ("discarded", self.discarded),
            ("used", self.used),
            ("address", self.address),
        ]
    }

    /// Those that somebody had, also if there was nothing in them.
    pub fn taken(&self) -> u64 {
        let of = [self.unused, self.discarded, self.used, self.address];
        of.into_iter().fold(0, u64::saturating_add)
    }

    fn set(&mut self, name: &str, chunks: u64) {
        let field = match name {
            "free" => &mut self.free,
            "unused" => &mut self.unused,
            "discarded" => &mut self.discarded,
            "used" => &mut self.used,
            "address" => &mut self.address,
            _ => return,
        };
        *field = field.saturating_add(chunks);
    }
}

impl From<&[Traffic; uapi::CAUSES]> for ByCause {
    fn from(traffic: &[Traffic; uapi::CAUSES]) -> Self {
        Self {
            fault: traffic[cause::FAULT].bytes,
            prefetch: traffic[cause::PREFETCH].bytes,
            eviction: traffic[cause::EVICTION].bytes,
            api: traffic[cause::API].bytes,
            access_counter: traffic[cause::ACCESS_COUNTER].bytes,
        }
    }
}

impl From<&[u64; uapi::QUEUES]> for ByQueue {
    fn from(chunks: &[u64; uapi::QUEUES]) -> Self {
        Self {
            free: chunks[queue::FREE],
            unused: chunks[queue::UNUSED],
            discarded: chunks[queue::DISCARDED],
            used: chunks[queue::USED],
            address: chunks[queue::ADDRESS],
        }
    }
}

impl From<&Stats> for Counts {
    fn from(stats: &Stats) -> Self {
        Self {
            faults: stats.faults,
            duplicates: stats.duplicates,
            batches: stats.batches,
            replays: stats.replays,
            evictions: (&stats.evictions).into(),
            thrashed: stats.thrashed,
            prefetch_wasted: stats.prefetch_wasted,
            host_to_gpu: (&stats.host_to_gpu).into(),
            gpu_to_host: (&stats.gpu_to_host).into(),
            gpu_to_gpu: (&stats.gpu_to_gpu).into(),
        }
    }
}

impl Counts {
    /// Adds a count by the driver's name for it; those of bytes begin with their direction.
    pub(crate) fn set(&mut self, name: &str, n: u64) {
        let directions = [
            ("host-to-gpu-", &mut self.host_to_gpu),
            ("gpu-to-host-", &mut self.gpu_to_host),
            ("gpu-to-gpu-", &mut self.gpu_to_gpu),
        ];
        for (direction, bytes) in directions {
            if let Some(cause) = name.strip_prefix(direction) {
                return bytes.set(cause, n);
            }
        }
        let field = match name {
            "faults" => &mut self.faults,
            "duplicates" => &mut self.duplicates,
            "batches" => &mut self.batches,
            "replays" => &mut self.replays,
            "thrashed" => &mut self.thrashed,
            "prefetch-wasted" => &mut self.prefetch_wasted,
            _ => match name.strip_prefix("evictions-") {
                Some(queue) => return self.evictions.set(queue, n),
                None => return,
            },
        };
        *field = field.saturating_add(n);
    }
}

/// What was learnt of a process's kernels, and done with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Prefetching {
    /// Kernels that the process announced, by their execution IDs.
    pub kernels: u64,
    /// Kernels that had been predicted to come next.
    pub right: u64,
    /// Kernels in whose place another had been predicted.
    pub wrong: u64,
    /// Blocks of 2 MiB that were predicted.
    pub predicted: u64,
    /// Predicted blocks that were moved to the GPU.
    pub moved: u64,
    /// Predicted blocks that were on the GPU already.
    pub resident: u64,
    /// Bytes moved to the GPU.
    pub bytes_in: u64,
    /// Bytes moved to the host ahead of need.
    pub bytes_out: u64,
}

/// What a process did with UVM. One that has several address spaces in UVM is one here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Process {
    /// Its process ID, as the driver's debugfs files have it.
    pub pid: u32,
    /// By the number of the GPU in UVM.
    pub gpus: BTreeMap<u32, Counts>,
    /// On all GPUs, since debugfs does not tell them apart. `None`: it announces nothing.
    pub prefetching: Option<Prefetching>,
}

/// What our driver says of each process. For root only.
///
/// # Errors
/// As reading the file.
pub fn processes(root: &Root) -> io::Result<Vec<Process>> {
    let text = root.text("/sys/kernel/debug/nvidia-uvm/processes")?;
    let mut processes = BTreeMap::new();
    // The process and the GPU that lines are of.
    let mut of: Option<(u32, u32)> = None;
    for line in text.lines() {
        let words: Vec<_> = line.split_whitespace().collect();
        if let ["process", pid, gpu] = words[..] {
            let gpu = gpu.strip_prefix("gpu-").and_then(|gpu| gpu.parse().ok());
            of = pid.parse().ok().zip(gpu);
        }
        if let Some((pid, gpu)) = of {
            let process: &mut Process = processes.entry(pid).or_default();
            process.pid = pid;
            process.take(gpu, &words);
        }
    }
    Ok(processes.into_values().collect())
}

impl Process {
    /// A line that is about this process, or its part of a GPU.
    fn take(&mut self, gpu: u32, words: &[&str]) {
        let number = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok());
        let counts = self.gpus.entry(gpu).or_default();
        match (words.first().copied().unwrap_or(""), number(1), number(2)) {
            ("prefetch", None, _) => self.learnt(words),
            // Bytes of a cause, in each direction.
            (cause, Some(n), Some(out)) => {
                counts.host_to_gpu.set(cause, n);
                counts.gpu_to_host.set(cause, out);
                counts.gpu_to_gpu.set(cause, number(3).unwrap_or(0));
            }
            (name, Some(n), None) => counts.set(name, n),
            _ => {}
        }
    }

    /// A line of the prefetcher's: names with a number behind.
    fn learnt(&mut self, words: &[&str]) {
        let about = self.prefetching.get_or_insert_with(Default::default);
        let out = words.get(1) == Some(&"pushed");
        let kernels = words.get(1) == Some(&"kernels");
        for pair in words.windows(2) {
            let Ok(n) = pair[1].parse::<u64>() else {
                continue;
            };
            let field = match pair[0] {
                "kernels" => &mut about.kernels,
                "right" if kernels => &mut about.right,
                "wrong" if kernels => &mut about.wrong,
                "predicted" => &mut about.predicted,
                "moved" => &mut about.moved,
                "resident" => &mut about.resident,
                "bytes" if out => &mut about.bytes_out,
                "bytes" => &mut about.bytes_in,
                _ => continue,
            };
            *field = field.saturating_add(n);
        }
    }
}
