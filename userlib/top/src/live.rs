// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Samples of this machine.
//!
//! Our driver tells what a GPU did to a process that has the GPU registered. Registering a
//! GPU starts it and takes some of its memory. So only a GPU that some process uses already
//! is registered here, and it is given back when nobody else has it any more: the GPU sleeps
//! when it may, and its counts begin anew as they would without us.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use uvmrust_system::{
    fdinfo, gpus, processes, Descriptor, Device, Driver, Gpu, Linux, Module, Nvml, Root,
    ToolCounts, Tools, User, Users, Uuid, Whose,
};

use crate::sample::{GpuSample, ProcessSample, Sample, Source, SsdAll, SsdSample};

/// What [`Sample::format`] says of samples that are made here.
const FORMAT: u32 = 1;

/// Pages of the driver's counts.
const PAGE: u64 = 4096;

/// This machine, or a folder that stands for it.
pub(crate) struct Live {
    root: Root,
    device: Box<dyn Device>,
    /// The process ID of this program, which does not show itself.
    own: u32,
    started: Instant,
    open: Option<Box<dyn Descriptor>>,
    registered: BTreeSet<Uuid>,
    /// The driver does not tell this user what all processes do.
    denied: bool,
    /// NVML, or why it tells nothing, once it was wanted.
    nvml: Option<Result<Nvml, String>>,
    /// UVM's tools interface, if it was asked for, and for how long a sample's trackers may stay.
    tools: Option<(Tools, Duration)>,
}

impl Live {
    /// Below this folder are /proc, /sys and /dev.
    pub(crate) fn new(folder: &Path) -> Self {
        let root = Root::new(folder);
        let device = Box::new(Linux(root.clone()));
        Self::with(root, device, std::process::id())
    }

    pub(crate) fn with(root: Root, device: Box<dyn Device>, own: u32) -> Self {
        Self {
            root,
            device,
            own,
            started: Instant::now(),
            open: None,
            registered: BTreeSet::new(),
            denied: false,
            nvml: None,
            tools: None,
        }
    }

    /// Asks UVM's tools interface, too, where the module is not ours; a sample comes each `interval`.
    ///
    /// # Errors
    /// As [`Tools::new`].
    pub(crate) fn with_tools(mut self, interval: Duration) -> io::Result<Self> {
        // Twice, as a sample may be late.
        let most = interval.saturating_mul(2) + Duration::from_secs(1);
        self.tools = Some((Tools::new(&self.root)?, most));
        Ok(self)
    }

    fn close(&mut self) {
        self.open = None;
        self.registered.clear();
        self.denied = false;
    }

    /// Opens our driver's device, if that is what is loaded.
    fn reach(&mut self, sample: &mut Sample) {
        let ours = match &sample.module {
            Some(module) => module.whose == Whose::UvmRust,
            None => false,
        };
        if !ours {
            self.close();
            sample.notes.push(match sample.module {
                Some(_) => {
                    "The module is NVIDIA's own, which counts nothing for this program.".into()
                }
                None => {
                    "The module nvidia-uvm is not loaded: uvmrun --check says what to do.".into()
                }
            });
            return;
        }
        if self.open.is_none() {
            match self.device.open() {
                Ok(descriptor) => self.open = Some(descriptor),
                Err(error) => {
                    let why = format!("{error}: uvmrun --check says what to do.");
                    sample.notes.push(why);
                    sample.device = Some(error);
                }
            }
        }
    }

    /// What our driver counted on a GPU.
    fn count(&mut self, gpu: &Gpu, sample: &mut GpuSample) -> Result<(), String> {
        let (Some(uuid), Some(_), None) = (gpu.uuid, gpu.id, gpu.part_of) else {
            return Ok(());
        };
        let Some(open) = self.open.as_mut().filter(|_| !self.denied) else {
            return Ok(());
        };
        if self.registered.contains(&uuid) && gpu.retained == Some(1) {
            self.registered.remove(&uuid);
            return told(open.unregister(uuid), uuid);
        }
        if !self.registered.contains(&uuid) {
            told(open.register(uuid), uuid)?;
            self.registered.insert(uuid);
        }
        match open.stats(uuid) {
            Ok(stats) => {
                sample.counts = Some((&stats).into());
                sample.queued = Some((&stats.queued).into());
                Ok(())
            }
            Err(error) => {
                // Registered for nothing. It may be gone, and then UVM says so again.
                self.registered.remove(&uuid);
                let _ = open.unregister(uuid);
                self.denied = error.raw_os_error() == Some(libc::EPERM);
                match self.denied {
                    true => Ok(()),
                    false => told(Err(error), uuid),
                }
            }
        }
    }

    /// What NVML tells of a GPU of NVIDIA's driver, where no module of ours does.
    fn ask_nvml(&mut self, gpu: &Gpu, now: &Sample, to: &mut GpuSample) -> Result<(), String> {
        let ours = matches!(&now.module, Some(module) if module.whose == Whose::UvmRust);
        let (Some(uuid), Some(_), None, false) = (gpu.uuid, &now.driver, gpu.part_of, ours) else {
            return Ok(());
        };
        let nvml = self.nvml.get_or_insert_with(Nvml::load).clone();
        let told = nvml.and_then(|nvml| nvml.gpu(uuid));
        to.nvml = Some(told.map_err(|why| format!("NVML tells nothing of {uuid}: {why}."))?);
        let missing = "NVML tells of all memory of a GPU together, and nothing of faults, moves and \
                       evictions, nor of what of it is managed or discarded: uvm-rust's module does.";
        Err(missing.into())
    }

    fn ssd(&self) -> Option<SsdSample> {
        let stats = self.open.as_ref()?.flash().ok()?;
        let attached = stats.attached != 0;
        // A device with neither pages nor room is one whose counts are not for this user.
        let told = attached && (stats.pages != 0 || stats.free_slots != 0);
        Some(SsdSample {
            attached,
            bytes: u64::from(stats.slots) << 21,
            bytes_mine: stats.pages_mine.saturating_mul(PAGE),
            all: told.then_some(SsdAll {
                bytes_used: stats.pages.saturating_mul(PAGE),
                host_bytes: stats.host_pages.saturating_mul(PAGE),
                host_peak: stats.host_peak.saturating_mul(PAGE),
                written: stats.written,
                spilled: stats.spilled,
                fetched: stats.fetched,
                dropped: stats.dropped,
                relocated: stats.relocated,
                unwritten: stats.unwritten,
                write_errors: stats.write_errors,
                read_errors: stats.read_errors,
                lost_pages: stats.lost_pages,
                refused: stats.refused,
                parked: stats.parked,
                throttled: stats.throttled,
            }),
        })
    }

    /// What UVM's tools interface has counted of processes since the last sample, where no module of ours does.
    fn ask_tools(&self, users: &[User], sample: &mut Sample) -> BTreeMap<u32, ToolCounts> {
        let Some((tools, most)) = &self.tools else {
            return BTreeMap::new();
        };
        let theirs = matches!(&sample.module, Some(module) if module.whose != Whose::UvmRust);
        let users = if theirs { users } else { &[] };
        let (counts, why) = tools.look(users, *most);
        sample.notes.push(match why {
            _ if !theirs => "--tools is for NVIDIA's own module: nothing is asked of UVM's tools interface.".into(),
            None => "Of processes UVM's tools interface tells what they move and fault, and nothing of evictions.".into(),
            Some(error) => match error.raw_os_error() {
                Some(libc::ENOSYS) => "UVM's tools interface is not asked: this kernel has no kcmp(2), which tells \
                                       the processes' VA spaces apart."
                    .into(),
                _ => format!("Of some processes UVM's tools interface tells nothing: {error}."),
            },
        });
        counts
    }

    /// Those that have UVM open, with what debugfs tells of them, or else their descriptors. To take
    /// both for counts would have those twice that two processes share a descriptor of.
    fn processes(&self, sample: &mut Sample) {
        let users = Users::now(&self.root, self.own);
        let mut tools = self.ask_tools(&users.seen, sample);
        sample.processes_hidden = users.hidden != Some(0);
        sample.processes_hidden_count = users.hidden;
        let counted = processes(&self.root).ok();
        let mut said = fdinfo(&self.root, &users.seen);
        let mut found: BTreeMap<_, _> = users
            .seen
            .into_iter()
            .map(|user| {
                let said = said.remove(&user.pid).unwrap_or_default();
                let process = ProcessSample {
                    pid: user.pid,
                    command: user.command,
                    gpus: said.gpus.filter(|_| counted.is_none()),
                    clients: said.clients,
                    bytes_gpu: said.resident,
                    bytes_gpu_discarded: said.discarded,
                    bytes_gpu_max: said.max,
                    bytes_gpu_low: said.low,
                    prefetching: None,
                    tools: tools.remove(&user.pid),
                    bytes_host: said.host,
                    bytes_ssd: said.ssd,
                    bytes_ssd_tenant: said.tenant_ssd,
                };
                (user.pid, process)
            })
            .collect();
        for counted in counted
            .into_iter()
            .flatten()
            .filter(|counted| counted.pid != self.own)
        {
            // The driver counts for who opened the VA space. If that process has no descriptor any more, it has ended,
            // and who has its number now is another.
            let hidden = sample.processes_hidden;
            let comm = || match hidden {
                true => self.root.line(&format!("/proc/{}/comm", counted.pid)),
                false => Some("(ended)".into()),
            };
            let process = found.entry(counted.pid).or_insert_with(|| ProcessSample {
                pid: counted.pid,
                command: comm().unwrap_or_default(),
                ..ProcessSample::default()
            });
            process.gpus = Some(counted.gpus);
            process.prefetching = counted.prefetching;
        }
        sample.processes = found.into_values().collect();
    }
}

/// An error of a GPU's, in words.
fn told(result: io::Result<()>, gpu: Uuid) -> Result<(), String> {
    result.map_err(|error| match error.raw_os_error() {
        Some(libc::EOPNOTSUPP) => "Nothing is counted: uvm_rust_stats=0.".into(),
        Some(libc::ENODEV) => format!("{gpu} does not count."),
        _ => format!("{gpu} cannot be asked: {error}."),
    })
}

impl Source for Live {
    fn sample(&mut self) -> Sample {
        let mut sample = Sample {
            format: FORMAT,
            at: self.started.elapsed(),
            driver: Driver::loaded(&self.root),
            module: Module::loaded(&self.root),
            ..Sample::default()
        };
        self.reach(&mut sample);
        for gpu in gpus(&self.root) {
            let mut shown = GpuSample::default();
            if let Err(why) = self.count(&gpu, &mut shown) {
                if !sample.notes.contains(&why) {
                    sample.notes.push(why);
                }
            }
            if let Err(why) = self.ask_nvml(&gpu, &sample, &mut shown) {
                if !sample.notes.contains(&why) {
                    sample.notes.push(why);
                }
            }
            shown.gpu = gpu;
            sample.gpus.push(shown);
        }
        if self.denied {
            sample.notes.push(
                "What GPUs do for all processes is for root, or everybody with the module \
                 parameter uvm_rust_stats_public=1."
                    .into(),
            );
        }
        sample.ssd = self.ssd();
        self.processes(&mut sample);
        sample.ran_short = self.root.ran_short();
        if sample.ran_short {
            let why =
                "Some of it is not shown, as this process or the system has no descriptor left.";
            sample.notes.push(why.into());
        }
        sample
    }
}
