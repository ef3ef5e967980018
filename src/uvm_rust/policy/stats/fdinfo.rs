// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The text of `/proc/PID/fdinfo/FD` of an open `/dev/nvidia-uvm`, in the format of the kernel's
//! `Documentation/gpu/drm-usage-stats.rst`: a key and a value a line. Keys that this document does not know begin
//! with the driver's name.
//!
//! Counts of events and of copied bytes are those that `UVM_RUST_GET_STATS` gives at this moment, and a tenant's bytes on
//! the SSD those of `UVM_RUST_FLASH_GET_STATS`. Where a VA space's pages are is told here alone. Bytes have no unit behind
//! them.

use super::places::Places;
use super::returns::mix;
use super::{Snapshot, Traffic, CAUSES, CAUSE_NAMES, QUEUE_NAMES};
use core::fmt::{self, Write};

/// Room for the address of a PCI device, as Linux writes it (`0000:01:00.0`), whose domain may have 32 bits.
const ADDRESS_MAX: usize = 20;

/// The address of a PCI device, as Linux writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    bytes: [u8; ADDRESS_MAX],
    length: u8,
}

impl Address {
    /// Takes the `name` by which Linux calls the device. Of a name that is too long the end is lost.
    pub fn new(name: &[u8]) -> Self {
        let mut bytes = [0; ADDRESS_MAX];
        for (to, from) in bytes.iter_mut().zip(name) {
            *to = *from;
        }
        Self {
            bytes,
            length: name.len().min(ADDRESS_MAX) as u8,
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.bytes.iter().take(self.length.into()) {
            // A value is one word.
            let shown = if byte.is_ascii_graphic() { *byte } else { b'?' };
            f.write_char(shown.into())?;
        }
        Ok(())
    }
}

/// What is told of a GPU.
#[derive(Clone, Debug)]
pub struct Told {
    /// Its number as NVIDIA's driver prints it; the CPU is 0.
    pub gpu: u32,
    /// The address of its PCI device; parts of a GPU (MIG) have the same.
    pub address: Address,
    /// Bytes of the GPU's memory that pages of the file descriptor's VA space take; `None` if that is not known.
    pub held: Option<u64>,
    /// Of these, bytes of chunks that hold nothing but what is discarded; `None` if that is not known.
    pub discarded: Option<u64>,
    /// How many bytes of it the VA space may hold before its own memory makes room for more, and how many of its
    /// allocations have gone beyond that; `None` without a maximum.
    pub max: Option<(u64, u64)>,
    /// How many bytes of it are protected from other VA spaces, as long as it has them; `None` without such a share.
    pub low: Option<u64>,
    /// What the file descriptor's VA space did there.
    pub counts: Snapshot,
}

/// The number by which readers know the VA space that was made as number `made`. No other of 2^32 VA spaces has it.
///
/// Two numbers do not say at a glance how many VA spaces were made in between, as counts would. It is no cipher:
/// whoever collects many numbers of its own, and computes, may find the `key`, and with that the order.
pub fn client_id(made: u32, key: u64) -> u32 {
    // A Feistel network: whatever mixes a half, no two numbers become the same.
    let mut halves = (made >> 16, made & 0xffff);
    for round in 0..4 {
        let (left, right) = halves;
        let mixed = mix(key ^ (round << 32 | u64::from(right)));
        halves = (right, left ^ (mixed >> 48) as u32);
    }
    halves.0 << 16 | halves.1
}

/// Writes what there is of a VA space.
///
/// `client` is a number that no other VA space has. `gpus` are those that were registered in it, `None` if nothing is
/// counted. `tenant_ssd` is how many bytes its tenant has on the SSD tier's device, `None` without one. `places` is how many
/// bytes of its own are where, `None` if that is not known.
pub fn show(
    out: &mut dyn Write,
    client: u32,
    gpus: Option<impl Iterator<Item = Told> + Clone>,
    tenant_ssd: Option<u64>,
    places: Option<Places>,
) -> fmt::Result {
    writeln!(out, "drm-client-id:\t{client}")?;
    if let Some(address) = gpus.clone().and_then(only_address) {
        writeln!(out, "drm-pdev:\t{address}")?;
    }
    // Readers take these for the memory of the device that `drm-pdev` names, so they are there only for one device.
    for (key, of) in [
        ("resident", (|told| told.held) as fn(Told) -> Option<u64>),
        ("purgeable", |told| told.discarded),
    ] {
        if let Some(bytes) = gpus.clone().and_then(|gpus| sum_of_one(gpus, of)) {
            writeln!(out, "drm-{key}-vidmem:\t{bytes}")?;
        }
    }
    if let Some(places) = places {
        // The name is the kernel's for memory that is no device's.
        writeln!(out, "drm-resident-memory:\t{}", places.host)?;
    }
    if let Some(bytes) = tenant_ssd {
        writeln!(out, "nvidia-uvm-tenant-ssd:\t{bytes}")?;
        if let Some(places) = places {
            writeln!(out, "nvidia-uvm-ssd:\t{}", places.ssd)?;
        }
    }
    for told in gpus.into_iter().flatten() {
        show_gpu(out, &told)?;
    }
    Ok(())
}

/// The address that all GPUs have; `None` if two differ, or if there is no GPU. The key for it takes one address.
fn only_address(mut gpus: impl Iterator<Item = Told>) -> Option<Address> {
    let address = gpus.next()?.address;
    gpus.all(|told| told.address == address).then_some(address)
}

/// The sum of what `of` says of each GPU, if all are parts of one device; `None` if it does not know one of them, or there
/// are several devices.
fn sum_of_one(
    mut gpus: impl Iterator<Item = Told> + Clone,
    of: fn(Told) -> Option<u64>,
) -> Option<u64> {
    only_address(gpus.clone())?;
    gpus.try_fold(0, |sum: u64, told| Some(sum.saturating_add(of(told)?)))
}

fn show_gpu(out: &mut dyn Write, told: &Told) -> fmt::Result {
    let (gpu, s) = (told.gpu, &told.counts);
    writeln!(out, "nvidia-uvm-gpu{gpu}-pdev:\t{}", told.address)?;
    if let Some(bytes) = told.held {
        writeln!(out, "nvidia-uvm-gpu{gpu}-resident:\t{bytes}")?;
    }
    if let Some(bytes) = told.discarded {
        writeln!(out, "nvidia-uvm-gpu{gpu}-discarded:\t{bytes}")?;
    }
    if let Some((bytes, beyond)) = told.max {
        writeln!(out, "nvidia-uvm-gpu{gpu}-max:\t{bytes}")?;
        writeln!(out, "nvidia-uvm-gpu{gpu}-beyond-max:\t{beyond}")?;
    }
    if let Some(bytes) = told.low {
        writeln!(out, "nvidia-uvm-gpu{gpu}-low:\t{bytes}")?;
    }
    for (name, n) in s.named() {
        writeln!(out, "nvidia-uvm-gpu{gpu}-{name}:\t{n}")?;
    }
    for (queue, n) in QUEUE_NAMES.iter().zip(s.evictions) {
        writeln!(out, "nvidia-uvm-gpu{gpu}-evictions-{queue}:\t{n}")?;
    }
    let directions: [(&str, &[Traffic; CAUSES]); 3] = [
        ("host-to-gpu", &s.host_to_gpu),
        ("gpu-to-host", &s.gpu_to_host),
        ("gpu-to-gpu", &s.gpu_to_gpu),
    ];
    for (direction, traffic) in directions {
        for (cause, t) in CAUSE_NAMES.iter().zip(traffic) {
            writeln!(out, "nvidia-uvm-gpu{gpu}-{direction}-{cause}:\t{}", t.bytes)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::string::{String, ToString};
    use std::vec::Vec;

    fn told(gpu: u32, address: &str, base: u64) -> Told {
        let traffic = |first: u64| {
            core::array::from_fn(|i| Traffic {
                bytes: base + first + i as u64,
                pages: 0,
            })
        };
        Told {
            gpu,
            address: Address::new(address.as_bytes()),
            held: Some(base + 50),
            discarded: Some(base + 20),
            max: None,
            low: None,
            counts: Snapshot {
                host_to_gpu: traffic(10),
                gpu_to_host: traffic(20),
                gpu_to_gpu: traffic(30),
                faults: base + 1,
                duplicates: base + 2,
                batches: base + 3,
                replays: base + 4,
                evictions: core::array::from_fn(|i| base + 40 + i as u64),
                thrashed: base + 5,
                prefetch_wasted: base + 6,
            },
        }
    }

    /// The lines, by their keys, as a reader who knows the kernel's document takes them.
    fn read(gpus: Option<Vec<Told>>, ssd: Option<u64>) -> BTreeMap<String, String> {
        lines_of(gpus, ssd, None)
    }

    fn lines_of(
        gpus: Option<Vec<Told>>,
        ssd: Option<u64>,
        places: Option<Places>,
    ) -> BTreeMap<String, String> {
        let mut text = String::new();
        show(&mut text, 7, gpus.map(Vec::into_iter), ssd, places).unwrap();
        let mut lines = BTreeMap::new();
        for line in text.lines() {
            let (key, value) = line.split_once(':').unwrap();
            assert!(
                key.starts_with("drm-") || key.starts_with("nvidia-uvm-"),
                "{line}"
            );
            assert!(!key.contains(char::is_whitespace), "{line}");
            let value = value.strip_prefix('\t').unwrap();
            assert_eq!(value.split_whitespace().count(), 1, "{line}");
            assert!(
                lines.insert(key.to_string(), value.to_string()).is_none(),
                "{line}"
            );
        }
        lines
    }

    #[test]
    fn each_count_has_a_key_of_its_own() {
        let lines = read(Some([told(1, "0000:01:00.0", 100)].into()), Some(4096));
        let of = |key: &str| lines.get(key).unwrap().as_str();
        assert_eq!(of("drm-client-id"), "7");
        assert_eq!(of("drm-pdev"), "0000:01:00.0");
        assert_eq!(of("nvidia-uvm-tenant-ssd"), "4096");
        assert_eq!(of("nvidia-uvm-gpu1-pdev"), "0000:01:00.0");
        for (key, n) in [
            ("faults", 101),
            ("duplicates", 102),
            ("batches", 103),
            ("replays", 104),
            ("thrashed", 105),
            ("prefetch-wasted", 106),
            ("host-to-gpu-fault", 110),
            ("host-to-gpu-access-counter", 114),
            ("gpu-to-host-eviction", 122),
            ("gpu-to-gpu-api", 133),
            ("evictions-free", 140),
            ("evictions-used", 143),
            ("evictions-address", 144),
        ] {
            assert_eq!(
                of(&std::format!("nvidia-uvm-gpu1-{key}")),
                n.to_string(),
                "{key}"
            );
        }
        assert_eq!(of("nvidia-uvm-gpu1-resident"), "150");
        assert_eq!(of("drm-resident-vidmem"), "150");
        assert_eq!(of("nvidia-uvm-gpu1-discarded"), "120");
        assert_eq!(of("drm-purgeable-vidmem"), "120");
        assert_eq!(lines.len(), 8 + 6 + 5 + 3 * 5);
    }

    /// A process's own memory on the host is told with and without a GPU, and that on the SSD if there is one.
    #[test]
    fn where_the_pages_are_is_told_as_far_as_it_is_known() {
        let places = Places { host: 5, ssd: 6 };
        for gpus in [None, Some([told(1, "0000:01:00.0", 0)].into())] {
            let of = |ssd, places| {
                let lines = lines_of(gpus.clone(), ssd, places);
                ["drm-resident-memory", "nvidia-uvm-ssd"].map(|key| lines.get(key).cloned())
            };
            assert_eq!(of(Some(9), None), [None, None]);
            assert_eq!(of(None, Some(places)), [Some("5".into()), None]);
            let both = [Some("5".into()), Some("6".into())];
            assert_eq!(of(Some(9), Some(places)), both);
        }
    }

    /// Readers tell VA spaces apart by it, and add up what each has. A process with two of its own that are made one after
    /// the other learns nothing from their numbers, which a count would tell.
    #[test]
    fn a_client_has_a_number_of_its_own_that_counts_nobody() {
        for key in [0, 1, 0xdead_beef_0bad_cafe] {
            let ids = (0..40_000).map(|made| client_id(made, key));
            let distinct: std::collections::BTreeSet<_> = ids.clone().collect();
            assert_eq!(distinct.len(), 40_000, "{key}");
            let up = ids.clone().zip(ids.skip(1)).filter(|(a, b)| a < b).count();
            assert!((18_000..22_000).contains(&up), "{key}: {up} are in order");
        }
        let others = (0..1000).filter(|made| client_id(*made, 1) == client_id(*made, 2));
        assert!(others.count() < 10, "the key says nothing");
    }

    #[test]
    fn only_one_device_is_the_device() {
        let (a, b) = ("0000:01:00.0", "0000:02:00.0");
        let two = read(Some([told(1, a, 0), told(2, b, 50)].into()), None);
        assert_eq!(two.get("drm-pdev"), None);
        assert_eq!(two.get("drm-resident-vidmem"), None);
        assert_eq!(two.get("drm-purgeable-vidmem"), None);
        assert_eq!(two.get("nvidia-uvm-gpu2-resident").unwrap(), "100");
        assert_eq!(two.get("nvidia-uvm-gpu2-pdev").unwrap(), b);
        assert_eq!(two.get("nvidia-uvm-gpu2-faults").unwrap(), "51");
        // Two parts of one.
        let parts = read(Some([told(1, a, 0), told(2, a, 0)].into()), None);
        assert_eq!(parts.get("drm-pdev").unwrap(), a);
        assert_eq!(parts.get("drm-resident-vidmem").unwrap(), "100");
        // A sum that lacks one is not told.
        let with = |max| {
            let mut told = told(1, a, 0);
            told.max = max;
            let mut read = read(Some([told].into()), None);
            ["max", "beyond-max"].map(|key| read.remove(&std::format!("nvidia-uvm-gpu1-{key}")))
        };
        assert_eq!(
            with(Some((4 << 20, 3))),
            [Some("4194304".into()), Some("3".into())]
        );
        assert_eq!(with(None), [None, None]);
        let mut unknown = told(2, a, 0);
        (unknown.held, unknown.discarded) = (None, None);
        let some = read(Some([told(1, a, 0), unknown].into()), None);
        assert_eq!(some.get("drm-resident-vidmem"), None);
        assert_eq!(some.get("drm-purgeable-vidmem"), None);
        assert_eq!(some.get("nvidia-uvm-gpu2-discarded"), None);
        assert_eq!(some.get("nvidia-uvm-gpu1-resident").unwrap(), "50");
        assert_eq!(some.get("nvidia-uvm-gpu2-resident"), None);
        for nothing in [None, Some(Vec::new())] {
            assert_eq!(
                read(nothing, None).into_keys().collect::<Vec<_>>(),
                ["drm-client-id"]
            );
        }
    }

    #[test]
    fn an_address_is_one_word() {
        assert_eq!(Address::new(b"10000:e1:00.0").to_string(), "10000:e1:00.0");
        assert_eq!(Address::new(b"a b\n").to_string(), "a?b?");
        assert_eq!(
            Address::new(&[b'x'; 30]).to_string(),
            "x".repeat(ADDRESS_MAX)
        );
        assert_eq!(Address::new(b"").to_string(), "");
    }
}
