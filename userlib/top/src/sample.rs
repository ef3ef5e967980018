// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A sample: what is known of one moment.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Serialize, Serializer};
use uvmrust_system::{
    ByQueue, Counts, Driver, Gpu, Module, NodeError, NvmlGpu, Prefetching, ToolCounts,
};

/// Where samples come from.
pub(crate) trait Source {
    /// Takes a sample of this moment.
    fn sample(&mut self) -> Sample;
}

/// What is known of one moment. What is not known is absent, never 0.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Sample {
    /// Raised when a field changes its meaning.
    pub(crate) format: u32,
    /// Seconds since this program began, by a clock that never goes back.
    #[serde(rename = "seconds", serialize_with = "as_seconds")]
    pub(crate) at: Duration,
    pub(crate) driver: Option<Driver>,
    pub(crate) module: Option<Module>,
    /// Why the device cannot be asked.
    pub(crate) device: Option<NodeError>,
    pub(crate) gpus: Vec<GpuSample>,
    pub(crate) ssd: Option<SsdSample>,
    pub(crate) processes: Vec<ProcessSample>,
    /// Some processes' descriptors may not be seen by this user.
    pub(crate) processes_hidden: bool,
    /// How many processes these are, whether or not they have UVM open. `None`: `/proc` does not show them.
    pub(crate) processes_hidden_count: Option<u32>,
    /// Something was not looked at, as no descriptor was left: what is absent may be there.
    #[serde(skip)]
    pub(crate) ran_short: bool,
    /// Why something is not shown, in sentences.
    pub(crate) notes: Vec<String>,
}

fn as_seconds<S: Serializer>(at: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(at.as_secs_f64())
}

/// A GPU, with what the driver counted there; `None` where it tells nothing.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct GpuSample {
    #[serde(flatten)]
    pub(crate) gpu: Gpu,
    /// What the GPU did for all processes together.
    pub(crate) counts: Option<Counts>,
    /// Chunks of 2 MiB on each queue now.
    pub(crate) queued: Option<ByQueue>,
    /// What NVML tells, which is asked where the module is not ours.
    pub(crate) nvml: Option<NvmlGpu>,
}

/// The SSD tier. What is of all users is absent for who may not see it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct SsdSample {
    pub(crate) attached: bool,
    pub(crate) bytes: u64,
    /// Bytes on the SSD of this user in this memory cgroup.
    pub(crate) bytes_mine: u64,
    pub(crate) all: Option<SsdAll>,
}

/// What all users did to the SSD.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct SsdAll {
    pub(crate) bytes_used: u64,
    pub(crate) host_bytes: u64,
    pub(crate) host_peak: u64,
    pub(crate) written: u64,
    pub(crate) spilled: u64,
    pub(crate) fetched: u64,
    /// Discarded, and so not written.
    pub(crate) dropped: u64,
    pub(crate) relocated: u64,
    pub(crate) unwritten: u64,
    pub(crate) write_errors: u64,
    pub(crate) read_errors: u64,
    pub(crate) lost_pages: u64,
    /// For want of room, or by a quota.
    pub(crate) refused: u64,
    pub(crate) parked: u64,
    pub(crate) throttled: u64,
}

/// A process that has UVM open.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct ProcessSample {
    pub(crate) pid: u32,
    pub(crate) command: String,
    /// By the number of the GPU in UVM. `None`: not known to this user.
    pub(crate) gpus: Option<BTreeMap<u32, Counts>>,
    /// The VA spaces that are counted, by the driver's numbers, as far as they are told. A sum over
    /// others does not go on where this one ended.
    #[serde(skip)]
    pub(crate) clients: BTreeSet<u64>,
    pub(crate) prefetching: Option<Prefetching>,
    /// What it did since the last sample, by UVM's tools interface, which is asked where no module of ours tells.
    pub(crate) tools: Option<ToolCounts>,
    /// Bytes of each GPU's memory that its pages take, in whole chunks of 2 MiB, by the number of the
    /// GPU in UVM. `None`: not known to this user, or to the driver.
    pub(crate) bytes_gpu: Option<BTreeMap<u32, u64>>,
    /// Of these, bytes of chunks that hold nothing but what is discarded. `None`: as above.
    pub(crate) bytes_gpu_discarded: Option<BTreeMap<u32, u64>>,
    /// Bytes that these may be at most, by the number of the GPU in UVM; a GPU that it may fill is not there.
    pub(crate) bytes_gpu_max: BTreeMap<u32, u64>,
    /// Bytes that others leave to it, by the number of the GPU in UVM; a GPU where it has no low is not there.
    pub(crate) bytes_gpu_low: BTreeMap<u32, u64>,
    /// Bytes of its managed memory that are in host memory. `None`: not known to this user, or to the driver.
    pub(crate) bytes_host: Option<u64>,
    /// Bytes of its managed memory that are on the SSD and nowhere else. `None`: as above, or no SSD is attached.
    pub(crate) bytes_ssd: Option<u64>,
    /// Bytes on the SSD of its tenant (its user, in its memory cgroup), the same for all of the
    /// tenant's processes. `None`: no SSD is attached, or this user may not know.
    pub(crate) bytes_ssd_tenant: Option<u64>,
}

impl ProcessSample {
    /// Whether its pages take all of a GPU that they may take.
    pub(crate) fn is_at_maximum(&self) -> bool {
        let mut on_gpu = self.bytes_gpu.iter().flatten();
        on_gpu.any(|(gpu, &bytes)| self.bytes_gpu_max.get(gpu).is_some_and(|&max| bytes >= max))
    }
}

impl GpuSample {
    /// What stays the same from sample to sample.
    pub(crate) fn key(&self) -> String {
        match (self.gpu.uuid, &self.gpu.bus) {
            (Some(uuid), _) => uuid.to_string(),
            (None, Some(bus)) => bus.clone(),
            (None, None) => format!("{:?}", self.gpu.id),
        }
    }
}
