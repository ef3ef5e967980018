// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Samples that are made up, for tests.

use std::collections::BTreeMap;
use std::time::Duration;

use uvmrust_system::{
    ByCause, ByQueue, Counts, Debug, Driver, Gpu, Module, Prefetching, Uuid, Whose,
};

use crate::sample::{GpuSample, ProcessSample, Sample, Source, SsdAll, SsdSample};

pub(super) const T4: &str = "GPU-d802726c-df8d-a3c3-ec53-48bdec201c27";

const MIB: u64 = 1 << 20;

/// A source that gives each of its samples once, and then the last.
pub(super) struct Fake(pub(super) Vec<Sample>);

impl Source for Fake {
    fn sample(&mut self) -> Sample {
        match self.0.len() {
            1 => self.0[0].clone(),
            _ => self.0.remove(0),
        }
    }
}

fn module(whose: Whose) -> Module {
    Module {
        whose,
        version: Some("550.163.01".into()),
        parameters: BTreeMap::new(),
        references: Some(2),
    }
}

/// After so many seconds of steady work.
fn counts(seconds: u64) -> Counts {
    Counts {
        faults: 5000 * seconds,
        duplicates: 1000 * seconds,
        batches: 40 * seconds,
        replays: 80 * seconds,
        evictions: ByQueue {
            free: 0,
            unused: seconds,
            discarded: 4 * seconds,
            used: 5 * seconds,
            address: 0,
        },
        host_to_gpu: ByCause {
            fault: 10 * MIB * seconds,
            prefetch: 30 * MIB * seconds,
            ..ByCause::default()
        },
        gpu_to_host: ByCause {
            eviction: 10 * MIB * seconds,
            ..ByCause::default()
        },
        gpu_to_gpu: ByCause::default(),
        thrashed: 3 * seconds,
        prefetch_wasted: 2 * seconds,
    }
}

fn gpu(seconds: u64) -> GpuSample {
    GpuSample {
        gpu: Gpu {
            uuid: Uuid::parse(T4),
            name: Some("Tesla T4".into()),
            bus: Some("0000:3b:00.0".into()),
            id: Some(1),
            retained: Some(3),
            ..Gpu::default()
        },
        counts: Some(counts(seconds)),
        queued: Some(ByQueue {
            free: 1,
            unused: 2,
            discarded: 30,
            used: 4000,
            address: 0,
        }),
        nvml: None,
    }
}

/// A machine with our module, a busy GPU and one that is not used, seen by root.
pub(super) fn ours(seconds: u64) -> Sample {
    let process = |pid, command: &str, busy: u64| ProcessSample {
        pid,
        command: command.into(),
        gpus: Some(BTreeMap::from([(1, counts(busy))])),
        prefetching: None,
        bytes_ssd_tenant: None,
        ..ProcessSample::default()
    };
    let mut trainer = process(1234, "python3", seconds);
    trainer.prefetching = Some(Prefetching {
        kernels: 200,
        right: 150,
        wrong: 10,
        predicted: 90,
        moved: 60,
        resident: 20,
        ..Prefetching::default()
    });
    trainer.bytes_ssd_tenant = Some(1536 * MIB);
    trainer.bytes_host = Some(3072 * MIB);
    trainer.bytes_ssd = Some(512 * MIB);
    trainer.bytes_gpu = Some([(1, 7168 * MIB)].into());
    trainer.bytes_gpu_discarded = Some([(1, 60 * MIB)].into());
    trainer.bytes_gpu_max = [(1, 8192 * MIB)].into();
    trainer.bytes_gpu_low = [(1, 2048 * MIB)].into();
    let idle = GpuSample {
        gpu: Gpu {
            name: Some("Tesla T4".into()),
            bus: Some("0000:5e:00.0".into()),
            ..Gpu::default()
        },
        ..GpuSample::default()
    };
    Sample {
        format: 1,
        at: Duration::from_secs(seconds),
        driver: Some(Driver {
            version: Some("550.163.01".into()),
            open: true,
            software: false,
        }),
        module: Some(module(Whose::UvmRust)),
        gpus: vec![gpu(seconds), idle],
        ssd: Some(SsdSample {
            attached: true,
            bytes: 8192 * MIB,
            bytes_mine: 0,
            all: Some(SsdAll {
                bytes_used: 2048 * MIB,
                host_bytes: 300 * MIB,
                host_peak: 400 * MIB,
                written: 6 * MIB * seconds,
                spilled: 5 * MIB * seconds,
                fetched: MIB * seconds,
                ..SsdAll::default()
            }),
        }),
        processes_hidden_count: Some(0),
        processes: vec![process(77, "a\u{1b}[2Jb", 0), trainer],
        ..Sample::default()
    }
}

/// A sample with NVIDIA's module, as a user without privileges sees it.
pub(super) fn theirs(seconds: u64) -> Sample {
    let mut sample = ours(seconds);
    sample.module = Some(module(Whose::Nvidia));
    sample.ssd = None;
    sample.gpus.truncate(1);
    sample.gpus[0].counts = None;
    sample.gpus[0].queued = None;
    sample.gpus[0].gpu.debug = Some(Debug {
        bytes_in: 40 * MIB * seconds,
        bytes_out: 10 * MIB * seconds,
        faults: 5000 * seconds,
        memory: 16384 * MIB,
    });
    for process in &mut sample.processes {
        (process.gpus, process.prefetching) = (None, None);
        (process.bytes_ssd_tenant, process.bytes_gpu) = (None, None);
        (process.bytes_host, process.bytes_ssd) = (None, None);
        process.bytes_gpu_discarded = None;
        process.bytes_gpu_max.clear();
        process.bytes_gpu_low.clear();
    }
    (sample.processes_hidden, sample.processes_hidden_count) = (true, Some(41));
    sample.notes =
        vec!["The module is NVIDIA's own, which counts nothing for this program.".into()];
    sample
}

/// A sample of a machine without the module.
pub(super) fn nothing() -> Sample {
    Sample {
        format: 1,
        notes: vec!["The module nvidia-uvm is not loaded: uvmrun --check says what to do.".into()],
        ..Sample::default()
    }
}
