// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! What `uvmtop` has to tell of this process and its GPU, known by other calls than it makes.
//!
//! Nobody else has memory on the GPU while these tests run. So what a process has there is what the eviction queues have. On
//! the host it has the pages that NVIDIA's test call says are there, one by one.

use serde_json::Value;
use vgpu_client::uvm::Uuid;
use vgpu_client::{driver_version, Buffer, DriverStats, Gpu, PrefetchStats, Process, BLOCK, PAGE};

use crate::uvmtop::{self, Metrics};
use crate::{ensure, Failure};

/// The names that uvmtop gives causes and queues, in the order of the uAPI's numbers.
pub const CAUSES: [&str; 5] = ["fault", "prefetch", "eviction", "api", "access_counter"];
/// The names of the queues.
pub const QUEUES: [&str; 5] = ["free", "unused", "discarded", "used", "address"];
/// Bit of `UVM_RUST_GET_VERSION`: the driver has queues, which know what a process holds.
pub const FEATURE_QUOTA: u64 = uvm_uapi::UVM_RUST_FEATURE_QUOTA as u64;
/// Two of these queues, by their numbers.
const DISCARDED: usize = 2;
const USED: usize = 3;
/// How often the driver is asked until nothing moves meanwhile.
const TRIES: usize = 5;

/// What the driver says of this process and of its GPU.
pub struct Truth {
    /// What the GPU did for this process.
    pub here: DriverStats,
    /// What the GPU did for all processes together.
    pub all: DriverStats,
    /// Bytes of this process that are in host memory.
    pub host: u64,
    /// What was predicted of its kernels, by the names in uvmtop's JSON.
    pub learnt: [(&'static str, u64); 8],
    /// The most that the process may have of the GPU; `None` for all.
    max: Option<u64>,
    /// The driver knows how much a process holds, and where.
    knows: bool,
}

impl Truth {
    /// Asks the driver about a process whose memory is `buffers`.
    fn of(
        process: &Process,
        gpu: &Gpu,
        buffers: &[&Buffer<u64>],
        max: Option<u64>,
    ) -> Result<Self, Failure> {
        let mut host = 0;
        for buffer in buffers {
            for at in (buffer.address()..buffer.address() + buffer.bytes()).step_by(PAGE as usize) {
                let is_there = process.residency(at)?.resident.contains(&Uuid::CPU);
                host += if is_there { PAGE } else { 0 };
            }
        }
        let features = driver_version(process)?.map_or(0, |(_, features)| features);
        Ok(Self {
            knows: features & FEATURE_QUOTA != 0,
            here: DriverStats::get(process, gpu.uuid(), false)?,
            all: DriverStats::get(process, gpu.uuid(), true)?,
            host,
            learnt: learnt(&process.prefetch_stats(gpu.uuid())?),
            max,
        })
    }

    /// Bytes of the GPU's memory that hold pages of this process.
    pub fn on_gpu(&self) -> u64 {
        (self.all.queued[USED] + self.all.queued[DISCARDED]) * BLOCK
    }

    /// Of these, bytes that hold nothing but what is discarded.
    pub fn discarded(&self) -> u64 {
        self.all.queued[DISCARDED] * BLOCK
    }

    /// Some kernel was announced.
    fn announces(&self) -> bool {
        !self.learnt.contains(&("kernels", 0))
    }

    /// What changes whenever something moves.
    fn moves(&self) -> impl PartialEq {
        let counts = |of: &DriverStats| (of.faults, of.replays, of.evictions, of.queued);
        (
            counts(&self.here),
            counts(&self.all),
            self.host,
            self.learnt,
        )
    }
}

/// Compares all that uvmtop tells of this process and its GPU, as JSON and to Prometheus, with what the driver says.
pub fn agrees(
    process: &Process,
    gpu: &Gpu,
    buffers: &[&Buffer<u64>],
    max: Option<u64>,
) -> Result<Truth, Failure> {
    for _ in 0..TRIES {
        let truth = Truth::of(process, gpu, buffers, max)?;
        let (sample, metrics) = (uvmtop::sample()?, Metrics::get()?);
        if Truth::of(process, gpu, buffers, max)?.moves() == truth.moves() {
            let number = json(&sample, &truth)?;
            prometheus(&metrics, &truth, &number)?;
            return Ok(truth);
        }
    }
    Err(format!("memory moves whenever uvmtop looks, {TRIES} times").into())
}

/// Compares a sample. Returns the number of the GPU in UVM, as text.
fn json(sample: &Value, truth: &Truth) -> Result<String, Failure> {
    let mine = uvmtop::own(sample)?;
    let mut gpus = mine["gpus"].as_object().into_iter().flatten();
    let (Some((number, counts)), None) = (gpus.next(), gpus.next()) else {
        return Err(format!("not one GPU of this process: {mine}").into());
    };
    same("this process", counts, &truth.here)?;
    let gpus = sample["gpus"].as_array().into_iter().flatten();
    let whole: Vec<_> = gpus.filter(|gpu| !gpu["counts"].is_null()).collect();
    let [whole] = whole[..] else {
        return Err(format!("not one GPU has counts: {sample}").into());
    };
    same("the GPU", &whole["counts"], &truth.all)?;
    if truth.announces() {
        for (name, told) in truth.learnt {
            is("this process", name, &mine["prefetching"][name], Some(told))?;
        }
    }
    for (n, queue) in QUEUES.iter().enumerate() {
        let chunks = truth.all.queued[n];
        is("queue", queue, &whole["queued"][*queue], Some(chunks))?;
    }
    if !truth.knows {
        return Ok(number.clone());
    }
    for (key, bytes) in [
        ("bytes_gpu", Some(truth.on_gpu())),
        ("bytes_gpu_discarded", Some(truth.discarded())),
        ("bytes_gpu_max", truth.max),
    ] {
        is("this process", key, &mine[key][number], bytes)?;
    }
    is(
        "this process",
        "bytes_host",
        &mine["bytes_host"],
        Some(truth.host),
    )?;
    Ok(number.clone())
}

/// What was predicted of a process's kernels.
fn learnt(of: &PrefetchStats) -> [(&'static str, u64); 8] {
    [
        ("kernels", of.kernels),
        ("right", of.kernels_right),
        ("wrong", of.kernels_wrong),
        ("predicted", of.predicted),
        ("moved", of.prefetched),
        ("resident", of.resident),
        ("bytes_in", of.bytes_in),
        ("bytes_out", of.bytes_out),
    ]
}

/// Whether what uvmtop shows as JSON is what the driver says; `None`: nothing.
fn is(whom: &str, name: &str, shown: &Value, told: Option<u64>) -> Result<(), Failure> {
    ensure!(
        shown == &Value::from(told),
        "{whom}: uvmtop says {name} {shown}, the driver {told:?}"
    );
    Ok(())
}

/// Whether all that uvmtop shows of `whom` is what the driver's statistics say.
pub fn same(whom: &str, shown: &Value, told: &DriverStats) -> Result<(), Failure> {
    let is = |name: &str, shown: &Value, told: u64| is(whom, name, shown, Some(told));
    for (name, told) in single(told) {
        is(name, &shown[name], told)?;
    }
    for (n, queue) in QUEUES.iter().enumerate() {
        is(queue, &shown["evictions"][*queue], told.evictions[n])?;
    }
    for (direction, traffic) in directions(told) {
        for (n, cause) in CAUSES.iter().enumerate() {
            is(cause, &shown[direction][*cause], traffic[n])?;
        }
    }
    Ok(())
}

/// Counts that are one number each, by their names in uvmtop's JSON.
fn single(of: &DriverStats) -> [(&'static str, u64); 6] {
    [
        ("faults", of.faults),
        ("duplicates", of.duplicates),
        ("batches", of.batches),
        ("replays", of.replays),
        ("thrashed", of.thrashed),
        ("prefetch_wasted", of.prefetch_wasted),
    ]
}

/// Bytes by cause, of each direction by its name in uvmtop's JSON.
fn directions(of: &DriverStats) -> [(&'static str, [u64; 5]); 3] {
    [
        ("host_to_gpu", of.host_to_gpu),
        ("gpu_to_host", of.gpu_to_host),
        ("gpu_to_gpu", of.gpu_to_gpu),
    ]
    .map(|(name, traffic)| (name, std::array::from_fn(|n| traffic[n].bytes)))
}

/// Compares a page for Prometheus, where UVM's number of the GPU is `number`.
fn prometheus(metrics: &Metrics, truth: &Truth, number: &str) -> Result<(), Failure> {
    let is = |name: &str, labels: &[(&str, &str)], told: Option<u64>| {
        let shown = metrics.value(name, labels)?;
        ensure!(
            shown == told,
            "uvmtop tells Prometheus {name} {labels:?} {shown:?}, the driver {told:?}"
        );
        Ok::<(), Failure>(())
    };
    let pid = std::process::id().to_string();
    let (process, mine) = ([("pid", &*pid)], [("pid", &*pid), ("gpu_number", number)]);
    if truth.knows {
        is("uvm_rust_process_host_bytes", &process, Some(truth.host))?;
        for (name, told) in [
            ("gpu_bytes", Some(truth.on_gpu())),
            ("gpu_discarded_bytes", Some(truth.discarded())),
            ("gpu_max_bytes", truth.max),
        ] {
            is(&format!("uvm_rust_process_{name}"), &mine, told)?;
        }
    }
    if truth.announces() {
        for (name, label, kinds) in [
            ("kernels", "prediction", ["right", "wrong"]),
            ("blocks", "outcome", ["moved", "resident"]),
        ] {
            let name = format!("uvm_rust_process_predicted_{name}_total");
            for kind in kinds {
                let told = truth.learnt.iter().find(|(name, _)| *name == kind);
                let labels = [process[0], (label, kind)];
                is(&name, &labels, told.map(|told| told.1))?;
            }
        }
    }
    let here = &truth.here;
    for (name, told) in [
        ("faults_total", here.faults),
        ("evictions_total", here.evicted_chunks()),
        ("thrashed_blocks_total", here.thrashed),
        ("prefetch_wasted_blocks_total", here.prefetch_wasted),
    ] {
        is(&format!("uvm_rust_process_{name}"), &mine, Some(told))?;
    }
    let moved = "uvm_rust_process_moved_bytes_total";
    for (direction, traffic) in directions(here).iter().take(2) {
        let direction = direction.replace('_', "-");
        let labels = [&mine[..], &[("direction", &direction)]].concat();
        is(moved, &labels, Some(traffic.iter().sum()))?;
    }

    let all = &truth.all;
    for (name, told) in [
        ("faults_total", all.faults),
        ("duplicate_faults_total", all.duplicates),
        ("fault_batches_total", all.batches),
        ("replays_total", all.replays),
        ("thrashed_blocks_total", all.thrashed),
        ("prefetch_wasted_blocks_total", all.prefetch_wasted),
    ] {
        is(&format!("uvm_rust_gpu_{name}"), &[], Some(told))?;
    }
    for (n, queue) in QUEUES.iter().enumerate() {
        let labels = [("queue", *queue)];
        is(
            "uvm_rust_gpu_evicted_chunks_total",
            &labels,
            Some(all.evictions[n]),
        )?;
        let bytes = (*queue != "address").then_some(all.queued[n] * BLOCK);
        is("uvm_rust_gpu_memory_bytes", &labels, bytes)?;
    }
    for (direction, traffic) in directions(all) {
        let direction = direction.replace('_', "-");
        for (cause, told) in CAUSES.iter().zip(traffic) {
            let cause = cause.replace('_', "-");
            let labels = [("direction", &*direction), ("cause", &*cause)];
            is("uvm_rust_gpu_moved_bytes_total", &labels, Some(told))?;
        }
    }
    Ok(())
}
