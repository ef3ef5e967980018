// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The GPUs that the driver and UVM show in /proc.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{Root, Uuid};

/// A GPU, or with MIG a part of one that UVM knows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Gpu {
    /// Its UUID; `None`: the driver has not started it yet.
    pub uuid: Option<Uuid>,
    /// The GPU that this is a part of.
    pub part_of: Option<Uuid>,
    /// The name that NVIDIA's driver gives the GPU.
    pub name: Option<String>,
    /// The address of the GPU on the PCI bus.
    pub bus: Option<String>,
    /// Its number in UVM; `None`: no process has it registered there.
    pub id: Option<u32>,
    /// How many references UVM holds of the GPU.
    pub retained: Option<u64>,
    /// MIG instances that it is divided into.
    pub instances: usize,
    /// What UVM tells where it was loaded with `uvm_enable_debug_procfs=1`.
    pub debug: Option<Debug>,
}

/// Counts of NVIDIA's own, of the whole GPU since it was first registered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Debug {
    /// Bytes that came to the GPU.
    pub bytes_in: u64,
    /// Bytes that left it.
    pub bytes_out: u64,
    /// Replayable faults, as NVIDIA's debug statistics count them.
    pub faults: u64,
    /// Bytes of its memory.
    pub memory: u64,
}

const UVM: &str = "/proc/driver/nvidia-uvm/gpus";
const NVIDIA: &str = "/proc/driver/nvidia/gpus";

/// All of them, those that UVM numbers first.
pub fn gpus(root: &Root) -> Vec<Gpu> {
    let mut gpus = registered(root);
    for bus in root.names(NVIDIA) {
        let Ok(text) = root.text(&format!("{NVIDIA}/{bus}/information")) else {
            continue;
        };
        let says = fields(&text);
        let uuid = says.get("GPU UUID").copied().and_then(Uuid::parse);
        let name = says.get("Model").map(|&name| name.to_owned());
        let minor = says.get("Device Minor").copied().unwrap_or("");
        let instances = instances(root, minor);
        let mut known = false;
        // Its parts as well have its name.
        for gpu in gpus.iter_mut().filter(|gpu| {
            uuid.is_some() && (gpu.uuid == uuid && gpu.part_of.is_none() || gpu.part_of == uuid)
        }) {
            known |= gpu.part_of.is_none();
            gpu.name.clone_from(&name);
            gpu.bus = Some(bus.clone());
            gpu.instances = if gpu.part_of.is_none() { instances } else { 0 };
        }
        if !known {
            gpus.push(Gpu {
                uuid,
                name,
                bus: Some(bus),
                instances,
                ..Gpu::default()
            });
        }
    }
    gpus
}

/// The number N of a GPU's /dev/nvidiaN.
pub(crate) fn minor(root: &Root, gpu: Uuid) -> Option<u32> {
    root.names(NVIDIA).into_iter().find_map(|bus| {
        let text = root.text(&format!("{NVIDIA}/{bus}/information")).ok()?;
        let says = fields(&text);
        let uuid = says.get("GPU UUID").copied().and_then(Uuid::parse);
        (uuid == Some(gpu)).then(|| says.get("Device Minor")?.parse().ok())?
    })
}

/// MIG instances of the GPU whose device has this minor number.
fn instances(root: &Root, minor: &str) -> usize {
    let folder = format!("/proc/driver/nvidia/capabilities/gpu{minor}/mig");
    let names = root.names(&folder);
    names.iter().filter(|name| name.starts_with("gi")).count()
}

/// Those that some process has registered with UVM, by number. `N` is a link to
/// `UVM-GPU-…/PART` since 550, and before a folder to which `UVM-GPU-…` is a link.
fn registered(root: &Root) -> Vec<Gpu> {
    let names = root.names(UVM);
    let link = |name: &str| root.link(&format!("{UVM}/{name}"));
    let mut gpus: Vec<_> = names
        .iter()
        .filter_map(|name| {
            let id = name.parse().ok()?;
            let to = link(name).and_then(|to| to.into_os_string().into_string().ok());
            let place = to.as_deref().unwrap_or(name);
            let whole = to
                .as_deref()
                .and_then(|to| Uuid::parse(to.split('/').next()?));
            let alias = names.iter().find_map(|other| {
                let uuid = Uuid::parse(other)?;
                (link(other)? == std::path::Path::new(place)).then_some(uuid)
            });
            let text = root.text(&format!("{UVM}/{name}/info")).unwrap_or_default();
            Some(Gpu {
                uuid: alias.or(whole),
                // Of a GPU that is not divided, both names have its UUID.
                part_of: alias.and(whole).filter(|_| alias != whole),
                id: Some(id),
                retained: number(&text, "retained_count"),
                debug: debug(&text),
                ..Gpu::default()
            })
        })
        .collect();
    gpus.sort_by_key(|gpu| gpu.id);
    gpus
}

/// The lines `NAME: VALUE` of a file, by their names; other lines are left out.
fn fields(text: &str) -> BTreeMap<&str, &str> {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.trim(), value.trim()))
        .collect()
}

/// The number after a name, in lines as UVM writes them.
fn number(text: &str, name: &str) -> Option<u64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    line.split_whitespace().next()?.parse().ok()
}

/// What NVIDIA's own counts say. They are of pages of 4 KiB, the page size of every machine
/// that this driver is built for.
fn debug(text: &str) -> Option<Debug> {
    const PAGE: u64 = 4096;
    Some(Debug {
        bytes_in: number(text, "migrated_pages_in")?.saturating_mul(PAGE),
        bytes_out: number(text, "migrated_pages_out")?.saturating_mul(PAGE),
        faults: number(text, "replayable_faults_num_faults").unwrap_or(0),
        memory: number(text, "vidmem_size").unwrap_or(0),
    })
}
