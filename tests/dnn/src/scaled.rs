// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Steps scaled to the software GPU, their plans, and what uvmsim predicts of them.
//!
//! Bytes and the rates of the links shrink alike, and times stay: a step of a hundredth
//! of the bytes on links of a hundredth of the rate waits as long. Tensors shrink to whole
//! va_blocks, as a GPU's memory is handed out and taken back in chunks of that size: in the
//! network's own size nearly all tensors are many of them, and what shrinks to less than
//! half of one is left out. Written on the host, where planning is fast, and read in the VM.

use anyhow::{ensure, Context, Result};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};
use uvmsim_machine::{Machine, PAGE};
use uvmsim_physical::plan::Plan;
use uvmsim_physical::{policies, Layout, Limits, Workload};
use uvmsim_trace::{Kernel, Tensor, Trace};
use vgpu_client::{DriverStats, Traffic, BLOCK};

/// Networks of G10's figures and their batch sizes.
pub const NETS: [(&str, u64); 3] = [("bert-base", 256), ("resnet152", 1280), ("vit-base", 1280)];
/// Policies, the first of which has no plan.
pub const POLICIES: [&str; 4] = ["base-uvm", "g10", "most", "best"];
/// How much more than the GPU's memory a step's addresses span, at most.
const OVERSUBSCRIBED: u64 = 3;
/// How much faster the links are than those of that machine, as plans for so little memory
/// beside the step's would be late with its.
const LINKS: f64 = 16.0;
/// How much faster they are where a request is over before the next kernel begins.
pub const AT_ONCE: f64 = 1e6;
/// The machine that is scaled down: G10's.
pub const MACHINE: &str = "a100";
/// Steps before the one that is compared.
pub const WARM_UP: u32 = 2;

/// Bytes over each link in a step.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Bytes {
    /// From host memory, also what came there from the SSD.
    pub host_to_gpu: u64,
    /// To host memory, also what goes on to the SSD.
    pub gpu_to_host: u64,
    /// From the SSD to host memory.
    pub ssd_to_host: u64,
    /// From host memory to the SSD.
    pub host_to_ssd: u64,
}

impl Bytes {
    /// What the driver says that it moved between host and GPU.
    pub fn moved(stats: &DriverStats) -> Self {
        let sum = |traffic: &[Traffic; 8]| traffic.iter().map(|t| t.bytes).sum();
        Self {
            host_to_gpu: sum(&stats.host_to_gpu),
            gpu_to_host: sum(&stats.gpu_to_host),
            ..Self::default()
        }
    }

    /// To the GPU, back, to the SSD, and back.
    pub fn links(&self) -> [u64; 4] {
        let (ssd_out, ssd_in) = (self.host_to_ssd, self.ssd_to_host);
        [self.host_to_gpu, self.gpu_to_host, ssd_out, ssd_in]
    }
}

/// A case, but for its trace and its plan, which have files of their own.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Case {
    /// Name of the network in the zoo.
    pub net: String,
    /// Name of the policy that planned the step.
    pub policy: String,
    /// What tensors may have of the GPU's memory.
    pub gpu_bytes: u64,
    /// What they may have of the host's, beside what is on the GPU.
    pub host_bytes: u64,
    /// Addresses of the step.
    pub span: u64,
    /// Share of the network's bytes.
    pub scale: f64,
    /// The bytes that uvmsim predicts for a step.
    pub predicted: Bytes,
    /// The faults that uvmsim predicts for a step.
    pub predicted_faults: u64,
}

/// Where a case's files are.
pub struct Files(PathBuf);

impl Files {
    /// The files of the cases in `folder`.
    pub fn new(folder: &str) -> Self {
        Self(folder.into())
    }

    fn trace(&self, net: &str) -> PathBuf {
        self.0.join(format!("{net}.uvmtrace"))
    }

    fn plan(&self, net: &str, policy: &str) -> PathBuf {
        self.0.join(format!("{net}.{policy}.uvmplan"))
    }

    fn case(&self, net: &str, policy: &str) -> PathBuf {
        self.0.join(format!("{net}.{policy}.json"))
    }

    /// Reads a case, its step, and its plan if it has one.
    pub fn read(&self, net: &str, policy: &str) -> Result<(Case, Workload, Layout, Option<Plan>)> {
        let text = |path: PathBuf| {
            fs::read_to_string(&path)
                .with_context(|| format!("{}: run `uvm-dnn plan` first", path.display()))
        };
        let case: Case = serde_json::from_str(&text(self.case(net, policy))?)?;
        let trace: Trace = text(self.trace(net))?.parse()?;
        let workload = Workload::from_trace(&trace);
        let layout = Layout::new(&workload);
        let path = self.plan(net, policy);
        let plan = match path.exists() {
            true => Some(Plan::parse(&text(path)?, &workload, &layout)?.explicit(&layout)),
            false => None,
        };
        Ok((case, workload, layout, plan))
    }
}

/// `uvm-dnn plan`: writes the cases of every network and policy for a GPU of so many MiB.
pub fn plan(folder: &str, gpu_mib: u64) -> Result<()> {
    fs::create_dir_all(folder)?;
    let files = Files::new(folder);
    println!(
        "{:<12} {:<10} {:>5} {:>6} {:>9} {:>9} {:>9} {:>9} {:>7} {:>6}",
        "MiB",
        "policy",
        "span",
        "widest",
        "host>gpu",
        "gpu>host",
        "ssd>host",
        "host>ssd",
        "faults",
        "speed"
    );
    for (net, batch) in NETS {
        let whole = crate::program::trace(net, batch)?;
        let (trace, scale) = scaled(&whole, gpu_mib << 20)?;
        fs::write(files.trace(net), trace.to_string())?;
        for policy in POLICIES {
            case(&files, net, policy, &trace, scale, gpu_mib << 20)?;
        }
    }
    Ok(())
}

fn case(files: &Files, net: &str, policy: &str, trace: &Trace, scale: f64, gpu: u64) -> Result<()> {
    let workload = Workload::from_trace(trace);
    let layout = Layout::new(&workload);
    let machine = machine(gpu, scale)?;
    let path = files.plan(net, policy);
    let failed = |e: uvmsim_physical::RunError| anyhow::anyhow!("{net}, {policy}: {e}");
    let mut runs = policies::make(policy, &machine, &workload, &layout).map_err(failed)?;
    if policy == POLICIES[0] {
        let _ = fs::remove_file(path);
    } else {
        let plan = policies::plan(policy, &machine, &workload, &layout).map_err(failed)?;
        fs::write(path, plan.text(&workload, &layout))?;
    }
    let limits = Limits {
        warm_up: WARM_UP,
        ..Limits::default()
    };
    // The player waits for each request of a plan, as if links took no time. On the machine
    // the plan is for, an eviction that its tensor's prefetch overtakes moves nothing.
    let played = match policy == POLICIES[0] {
        true => machine.clone(),
        false => faster(&machine, AT_ONCE),
    };
    let o =
        uvmsim_physical::run(&played, &workload, &layout, runs.as_mut(), limits).map_err(failed)?;
    // The driver's way to the SSD is by the host.
    let predicted = Bytes {
        host_to_gpu: o.bytes.host_to_gpu + o.bytes.ssd_to_gpu,
        gpu_to_host: o.bytes.gpu_to_host + o.bytes.gpu_to_ssd,
        ssd_to_host: o.bytes.ssd_to_gpu,
        host_to_ssd: o.bytes.gpu_to_ssd,
    };
    let case = Case {
        net: net.into(),
        policy: policy.into(),
        gpu_bytes: gpu,
        host_bytes: machine.host_mem,
        span: layout.span,
        scale,
        predicted,
        predicted_faults: o.faults,
    };
    let mib = |b: u64| b as f64 / 1048576.0;
    println!(
        "{net:<12} {policy:<10} {:>5.0} {:>6.1} {:>9.1} {:>9.1} {:>9.1} {:>9.1} {:>7} {:>6.3}",
        mib(layout.span),
        mib(widest(&workload)),
        mib(predicted.host_to_gpu),
        mib(predicted.gpu_to_host),
        mib(predicted.ssd_to_host),
        mib(predicted.host_to_ssd),
        o.faults,
        o.normalized()
    );
    write_json(&files.case(net, policy), &case)
}

fn write_json(path: &Path, value: &impl Serialize) -> Result<()> {
    fs::write(path, serde_json::to_string_pretty(value)? + "\n")
        .with_context(|| format!("writing {}", path.display()))
}

/// G10's machine with so much GPU memory, twice as much host memory, and links as slow as
/// the step is small, but for [`LINKS`]. As upstream, a page is in one place.
pub fn machine(gpu: u64, scale: f64) -> Result<Machine> {
    let whole = uvmsim_machine::presets::find(MACHINE).context("no such machine")?;
    let small = Machine {
        gpu_mem: gpu,
        gpu_bw: whole.gpu_bw * scale,
        host_mem: gpu * 2,
        keep_clean: 0,
        ..whole
    };
    Ok(faster(&small, scale * LINKS))
}

/// The machine with all its links so many times as fast.
pub fn faster(machine: &Machine, times: f64) -> Machine {
    Machine {
        pcie_h2d: machine.pcie_h2d * times,
        pcie_d2h: machine.pcie_d2h * times,
        ssd_read: machine.ssd_read * times,
        ssd_write: machine.ssd_write * times,
        ..machine.clone()
    }
}

/// The step in so few bytes that its addresses span [`OVERSUBSCRIBED`] times the GPU's
/// memory, and that its widest kernel takes no more than five eighths of it.
fn scaled(whole: &Trace, gpu: u64) -> Result<(Trace, f64)> {
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..30 {
        let middle = (low + high) / 2.0;
        let workload = Workload::from_trace(&shrunk(whole, middle));
        let layout = Layout::new(&workload);
        if layout.span > gpu * OVERSUBSCRIBED || widest(&workload) > gpu * 5 / 8 {
            high = middle;
        } else {
            low = middle;
        }
    }
    ensure!(low > 0.0, "its tensors are too many for {gpu} bytes");
    Ok((shrunk(whole, low), low))
}

fn shrunk(whole: &Trace, scale: f64) -> Trace {
    let mut trace = whole.clone();
    let shrink = |tensor: &mut Tensor| {
        let blocks = (tensor.bytes as f64 * scale / BLOCK as f64).round() as u64;
        // One that is left out keeps its number, and no kernel uses it.
        tensor.bytes = (blocks * BLOCK).max(PAGE);
        blocks > 0
    };
    let there: Vec<bool> = trace.tensors.iter_mut().map(shrink).collect();
    for kernel in &mut trace.kernels {
        for of in [&mut kernel.reads, &mut kernel.writes, &mut kernel.workspace] {
            of.retain(|t| there.get(t.index()).is_some_and(|there| *there));
        }
    }
    // A kernel of nothing is time of the one before.
    let mut kernels: Vec<Kernel> = Vec::with_capacity(trace.kernels.len());
    for kernel in trace.kernels.drain(..) {
        let uses = kernel.reads.len() + kernel.writes.len() + kernel.workspace.len();
        match kernels.last_mut() {
            Some(last) if uses == 0 => last.duration_ns += kernel.duration_ns,
            None if uses == 0 => {}
            _ => kernels.push(kernel),
        }
    }
    trace.kernels = kernels;
    trace
}

fn widest(workload: &Workload) -> u64 {
    (0..workload.kernels.len())
        .map(|k| workload.working_set(k))
        .max()
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_is_read_as_it_was_written() -> Result<()> {
        let folder = std::env::temp_dir().join(format!("uvm-dnn-{}", std::process::id()));
        fs::create_dir_all(&folder)?;
        let files = Files::new(folder.to_str().context("a folder of letters")?);
        let (net, gpu) = ("bert-base", 48 << 20);
        let (trace, scale) = scaled(&crate::program::trace(net, 256)?, gpu)?;
        fs::write(files.trace(net), trace.to_string())?;
        for policy in ["base-uvm", "g10"] {
            case(&files, net, policy, &trace, scale, gpu)?;
        }
        let (without, workload, layout, none) = files.read(net, "base-uvm")?;
        let (with, .., plan) = files.read(net, "g10")?;
        fs::remove_dir_all(&folder)?;
        assert!(none.is_none());
        assert_eq!((without.span, with.span), (layout.span, layout.span));
        assert!(layout.span > 2 * gpu && layout.span <= OVERSUBSCRIBED * gpu);
        // A plan asks for the memory of all that is born, and moves less.
        let plan = plan.context("no plan")?;
        assert_eq!(plan.before.len(), workload.kernels.len());
        assert!(plan.evictions() > 0 && !plan.releases && plan.allocate_ahead.is_none());
        assert!(with.predicted.gpu_to_host < without.predicted.gpu_to_host);
        assert!(with.predicted.host_to_ssd <= with.predicted.gpu_to_host);
        Ok(())
    }
}
