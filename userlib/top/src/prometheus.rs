// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A sample in Prometheus' text format. Counters are the driver's own, so that who scrapes
//! makes the rates. One that begins anew is what Prometheus expects of a counter; those of processes
//! become less without that, and are kept from it (`kept.rs`).

use std::fmt::Write as _;

use uvmrust_system::{ByCause, ByQueue, Prefetching};

use crate::kept::Kept;
use crate::sample::{GpuSample, ProcessSample, Sample, SsdSample};

/// Bytes of a chunk.
const CHUNK: u64 = 2 << 20;

/// Families of values, each with its help and type once, however many GPUs have it.
#[derive(Default)]
struct Page {
    families: Vec<Family>,
}

struct Family {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    values: String,
}

/// Labels of a value, by name.
type Labels<'a> = &'a [(&'a str, &'a str)];

impl Page {
    fn value(&mut self, about: (&'static str, &'static str), labels: Labels<'_>, value: u64) {
        let (name, help) = about;
        let kind = if name.ends_with("_total") {
            "counter"
        } else {
            "gauge"
        };
        let at = self.families.iter().position(|family| family.name == name);
        let at = at.unwrap_or_else(|| {
            self.families.push(Family {
                name,
                kind,
                help,
                values: String::new(),
            });
            self.families.len() - 1
        });
        let values = &mut self.families[at].values;
        let labels: Vec<_> = labels
            .iter()
            .map(|(name, value)| format!("{name}=\"{}\"", escaped(value)))
            .collect();
        let _ = match labels.is_empty() {
            true => writeln!(values, "{name} {value}"),
            false => writeln!(values, "{name}{{{}}} {value}", labels.join(",")),
        };
    }

    fn causes(&mut self, about: (&'static str, &'static str), labels: Labels<'_>, of: &ByCause) {
        for (cause, bytes) in of.named() {
            let labels = [labels, &[("cause", cause)]].concat();
            self.value(about, &labels, bytes);
        }
    }

    fn queues(&mut self, about: (&'static str, &'static str), labels: Labels<'_>, of: &ByQueue) {
        for (queue, chunks) in of.named() {
            let labels = [labels, &[("queue", queue)]].concat();
            self.value(about, &labels, chunks);
        }
    }
}

/// As the format wants it in a label.
fn escaped(value: &str) -> String {
    let mut text = String::new();
    for c in value.chars() {
        match c {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            c if c.is_control() => text.push(' '),
            c => text.push(c),
        }
    }
    text
}

/// All that is known of this moment.
pub(crate) fn text(sample: &Sample, kept: &mut Kept) -> String {
    let mut page = Page::default();
    let module = sample.module.as_ref();
    let whose = match module.map(|module| module.whose) {
        None => "none",
        Some(uvmrust_system::Whose::UvmRust) => "uvm-rust",
        Some(uvmrust_system::Whose::Nvidia) => "nvidia",
    };
    let version = module.and_then(|module| module.version.as_deref());
    page.value(
        (
            "uvm_rust_module_info",
            "The nvidia-uvm module that is loaded, and of which driver.",
        ),
        &[("module", whose), ("version", version.unwrap_or(""))],
        1,
    );
    for gpu in &sample.gpus {
        gpu_values(&mut page, gpu);
    }
    if let Some(ssd) = &sample.ssd {
        ssd_values(&mut page, ssd);
    }
    page.value(
        (
            "uvm_rust_processes",
            "Processes that are seen to have UVM open.",
        ),
        &[],
        sample.processes.len() as u64,
    );
    if let Some(hidden) = sample.processes_hidden_count {
        let about = (
            "uvm_rust_processes_hidden",
            "Processes whose descriptors this exporter may not see, whether or not they have UVM open.",
        );
        page.value(about, &[], hidden.into());
    }
    for process in &sample.processes {
        process_values(&mut page, process, kept);
    }
    kept.ended();
    let mut text = String::new();
    for Family {
        name,
        kind,
        help,
        values,
    } in page.families
    {
        let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{values}");
    }
    text
}

fn gpu_values(page: &mut Page, gpu: &GpuSample) {
    let key = gpu.key();
    let labels: Labels<'_> = &[("gpu", &key)];
    let number = gpu.gpu.id.map(|id| id.to_string()).unwrap_or_default();
    let about = (
        "uvm_rust_gpu_info",
        "The number of a GPU in UVM, as in the label gpu_number of processes, beside its name and its address.",
    );
    let [name, bus] = [&gpu.gpu.name, &gpu.gpu.bus].map(|text| text.as_deref().unwrap_or(""));
    let info = [
        ("gpu", &*key),
        ("gpu_number", &*number),
        ("name", name),
        ("bus", bus),
    ];
    page.value(about, &info, 1);
    let used = u64::from(gpu.gpu.id.is_some());
    page.value(
        (
            "uvm_rust_gpu_registered",
            "Whether some process has the GPU registered with UVM.",
        ),
        labels,
        used,
    );
    if let Some(nvml) = &gpu.nvml {
        let about = (
            "uvm_rust_gpu_nvml_memory_bytes",
            "Memory of all kinds on the GPU, as NVML tells it where the module is not uvm-rust's.",
        );
        for (kind, bytes) in [("used", nvml.bytes_used), ("total", nvml.bytes_total)] {
            page.value(about, &[("gpu", &key), ("kind", kind)], bytes);
        }
        let about = (
            "uvm_rust_process_nvml_memory_bytes",
            "Memory of a process on the GPU, as NVML tells it.",
        );
        for process in &nvml.processes {
            let pid = process.pid.to_string();
            if let Some(bytes) = process.bytes {
                page.value(about, &[("gpu", &key), ("pid", &pid)], bytes);
            }
        }
    }
    if let Some(queued) = &gpu.queued {
        let about = (
            "uvm_rust_gpu_memory_bytes",
            "Managed memory on the GPU, by eviction queue.",
        );
        for (queue, chunks) in queued.named() {
            // Chunks are taken by their address, and none lies there.
            if queue != "address" {
                let labels = [labels, &[("queue", queue)]].concat();
                page.value(about, &labels, chunks.saturating_mul(CHUNK));
            }
        }
    }
    let Some(counts) = &gpu.counts else {
        return;
    };
    let moved = (
        "uvm_rust_gpu_moved_bytes_total",
        "Bytes moved, by direction and cause.",
    );
    for (direction, bytes) in [
        ("host-to-gpu", &counts.host_to_gpu),
        ("gpu-to-host", &counts.gpu_to_host),
        ("gpu-to-gpu", &counts.gpu_to_gpu),
    ] {
        page.causes(moved, &[("gpu", &key), ("direction", direction)], bytes);
    }
    for (about, count) in [
        (
            ("uvm_rust_gpu_faults_total", "Replayable faults."),
            counts.faults,
        ),
        (
            (
                "uvm_rust_gpu_duplicate_faults_total",
                "Faults for which nothing was left to do.",
            ),
            counts.duplicates,
        ),
        (
            ("uvm_rust_gpu_fault_batches_total", "Batches of faults."),
            counts.batches,
        ),
        (("uvm_rust_gpu_replays_total", "Replays."), counts.replays),
        (
            (
                "uvm_rust_gpu_thrashed_blocks_total",
                "Blocks of 2 MiB that came back before as many others were evicted as the GPU has chunks.",
            ),
            counts.thrashed,
        ),
        (
            (
                "uvm_rust_gpu_prefetch_wasted_blocks_total",
                "Blocks that were evicted before the kernel for which a prediction had brought them.",
            ),
            counts.prefetch_wasted,
        ),
    ] {
        page.value(about, labels, count);
    }
    let about = (
        "uvm_rust_gpu_evicted_chunks_total",
        "Chunks of 2 MiB taken back, by queue.",
    );
    page.queues(about, labels, &counts.evictions);
}

fn ssd_values(page: &mut Page, ssd: &SsdSample) {
    let attached = u64::from(ssd.attached);
    page.value(
        ("uvm_rust_ssd_attached", "Whether an SSD is attached."),
        &[],
        attached,
    );
    page.value(("uvm_rust_ssd_bytes", "Its size."), &[], ssd.bytes);
    let Some(all) = ssd.all else {
        return;
    };
    for (about, value) in [
        (
            ("uvm_rust_ssd_used_bytes", "Managed memory on the SSD."),
            all.bytes_used,
        ),
        (
            ("uvm_rust_ssd_host_bytes", "Host memory for managed pages."),
            all.host_bytes,
        ),
        (
            ("uvm_rust_ssd_written_bytes_total", "Bytes written."),
            all.written,
        ),
        (
            (
                "uvm_rust_ssd_spilled_bytes_total",
                "Bytes that left host memory.",
            ),
            all.spilled,
        ),
        (
            ("uvm_rust_ssd_fetched_bytes_total", "Bytes that came back."),
            all.fetched,
        ),
        (
            (
                "uvm_rust_ssd_dropped_bytes_total",
                "Bytes discarded, and so not written.",
            ),
            all.dropped,
        ),
        (
            (
                "uvm_rust_ssd_relocated_bytes_total",
                "Bytes copied inside the device.",
            ),
            all.relocated,
        ),
        (
            ("uvm_rust_ssd_write_errors_total", "Writes that failed."),
            all.write_errors,
        ),
        (
            ("uvm_rust_ssd_read_errors_total", "Reads that failed."),
            all.read_errors,
        ),
        (
            ("uvm_rust_ssd_lost_pages_total", "Pages that are lost."),
            all.lost_pages,
        ),
        (
            (
                "uvm_rust_ssd_refused_total",
                "Blocks not written for want of room, or by a quota.",
            ),
            all.refused,
        ),
    ] {
        page.value(about, &[], value);
    }
}

fn process_values(page: &mut Page, process: &ProcessSample, kept: &mut Kept) {
    let pid = process.pid.to_string();
    for (about, bytes) in [
        (
            (
                "uvm_rust_process_host_bytes",
                "Managed memory of the process that is in host memory.",
            ),
            process.bytes_host,
        ),
        (
            (
                "uvm_rust_process_ssd_bytes",
                "Managed memory of the process that is on the SSD and nowhere else.",
            ),
            process.bytes_ssd,
        ),
        (
            (
                "uvm_rust_process_tenant_ssd_bytes",
                "Managed memory on the SSD of the process's tenant, the same for all of the tenant's processes.",
            ),
            process.bytes_ssd_tenant,
        ),
    ] {
        let labels = [("pid", &*pid), ("command", &*process.command)];
        if let Some(bytes) = bytes {
            page.value(about, &labels, bytes);
        }
    }
    let mut on_gpu = |about, number: u32, bytes| {
        let gpu = number.to_string();
        let labels = [
            ("pid", &*pid),
            ("command", &*process.command),
            ("gpu_number", &*gpu),
        ];
        page.value(about, &labels, bytes);
    };
    for (&number, bytes) in process.bytes_gpu.iter().flatten() {
        let about = (
            "uvm_rust_process_gpu_bytes",
            "GPU memory that pages of the process take, in whole chunks of 2 MiB.",
        );
        on_gpu(about, number, *bytes);
        let about = (
            "uvm_rust_process_gpu_max_bytes",
            "How much of that memory the process may hold; not there if it may hold all.",
        );
        if let Some(max) = process.bytes_gpu_max.get(&number) {
            on_gpu(about, number, *max);
        }
        let about = (
            "uvm_rust_process_gpu_low_bytes",
            "How much GPU memory others leave to the process; not there if none.",
        );
        if let Some(low) = process.bytes_gpu_low.get(&number) {
            on_gpu(about, number, *low);
        }
    }
    for (&number, bytes) in process.bytes_gpu_discarded.iter().flatten() {
        let about = (
            "uvm_rust_process_gpu_discarded_bytes",
            "How much of that memory holds nothing but what is discarded.",
        );
        on_gpu(about, number, *bytes);
    }
    if let Some(learnt) = &process.prefetching {
        prefetching_values(page, process, learnt, kept);
    }
    for (&number, counts) in process.gpus.iter().flatten() {
        let mut grows = |name: &str, n| kept.value((process.pid, number, name.into()), n);
        let gpu = number.to_string();
        let labels = [
            ("pid", &*pid),
            ("command", &*process.command),
            ("gpu_number", &*gpu),
        ];
        let about = (
            "uvm_rust_process_moved_bytes_total",
            "Bytes moved for a process.",
        );
        for (direction, bytes) in [
            ("host-to-gpu", counts.host_to_gpu.total()),
            ("gpu-to-host", counts.gpu_to_host.total()),
        ] {
            let labels = [&labels[..], &[("direction", direction)]].concat();
            page.value(about, &labels, grows(direction, bytes));
        }
        let about = (
            "uvm_rust_process_faults_total",
            "Replayable faults of a process.",
        );
        page.value(about, &labels, grows("faults", counts.faults));
        let about = (
            "uvm_rust_process_evictions_total",
            "Evictions of blocks of a process, also in vain.",
        );
        page.value(about, &labels, grows("evictions", counts.evictions.taken()));
        let about = (
            "uvm_rust_process_thrashed_blocks_total",
            "Blocks of a process that came back before as many others were evicted as the GPU has chunks.",
        );
        page.value(about, &labels, grows("thrashed", counts.thrashed));
        let about = (
            "uvm_rust_process_prefetch_wasted_blocks_total",
            "Blocks of a process that were evicted before the kernel for which a prediction had brought them.",
        );
        page.value(about, &labels, grows("wasted", counts.prefetch_wasted));
    }
}

/// What was predicted of a process's announced kernels, on all GPUs together.
fn prefetching_values(
    page: &mut Page,
    process: &ProcessSample,
    learnt: &Prefetching,
    kept: &mut Kept,
) {
    let pid = process.pid.to_string();
    let kernels = (
        "uvm_rust_process_predicted_kernels_total",
        "Announced kernels of a process, by whether they had been predicted.",
    );
    let blocks = (
        "uvm_rust_process_predicted_blocks_total",
        "Blocks of 2 MiB that were predicted for a process, by where they were: some of the rest found no room.",
    );
    for (about, label, kind, n) in [
        (kernels, "prediction", "right", learnt.right),
        (kernels, "prediction", "wrong", learnt.wrong),
        (blocks, "outcome", "moved", learnt.moved),
        (blocks, "outcome", "resident", learnt.resident),
    ] {
        // No GPU of UVM's has number 0.
        let n = kept.value((process.pid, 0, kind.into()), n);
        let labels = [
            ("pid", &*pid),
            ("command", &*process.command),
            (label, kind),
        ];
        page.value(about, &labels, n);
    }
}
