// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The machines of the papers, and today's.

use crate::Machine;
use crate::COMMON;
use crate::GIB;

/// A named machine.
pub struct Preset {
    /// What `--machine` calls it.
    pub name: &'static str,
    /// The GPU and whose machine it is.
    pub about: &'static str,
    /// Where its numbers are from.
    pub source: &'static str,
    make: fn() -> Machine,
}

impl Preset {
    /// Its machine.
    pub fn machine(&self) -> Machine {
        Machine {
            preset: self.name,
            ..(self.make)()
        }
    }
}

/// The share of PCIe 3 x16's 15.754 GB/s that AutoVM measured (13.0 GB/s, table
/// 4.1); used for links of which no measurement is at hand.
const PCIE_MEASURED: f64 = 13.0 / 15.754;
const PCIE5_X16: f64 = 63.015e9;

/// Finds a machine by name.
pub fn find(name: &str) -> Option<Machine> {
    PRESETS.iter().find(|p| p.name == name).map(Preset::machine)
}

/// Every preset.
pub const PRESETS: &[Preset] = &[
    Preset {
        name: "a100",
        about: "A100 40 GB, 128 GiB host, Z-NAND SSD: G10's",
        source: "G10 table 2 and its artifact (SSD writes at 3.2 GB/s like reads); NVIDIA A100 datasheet",
        make: || Machine {
            gpu_mem: 40 * GIB,
            gpu_bw: 1555e9,
            fp32: 19.5e12,
            tf32: 156e12,
            fp16: 312e12,
            ssd_write: 3.2e9,
            ..COMMON
        },
    },
    Preset {
        name: "rtx4090",
        about: "RTX 4090 24 GB: MOST's, SSD only",
        source: "MOST table I (it says PCIe 5; the card itself has PCIe 4); Ada whitepaper",
        make: || Machine {
            gpu_mem: 24_000_000_000,
            gpu_bw: 1008e9,
            fp32: 82.6e12,
            tf32: 82.6e12,
            fp16: 165.2e12,
            pcie_h2d: PCIE5_X16,
            pcie_d2h: PCIE5_X16,
            host_mem: 0,
            ssd_write: 3.2e9,
            ..COMMON
        },
    },
    Preset {
        name: "rtx4090-host",
        about: "RTX 4090 24 GB, PCIe 4, 128 GiB host: a workstation",
        source: "Ada whitepaper; the link as the 3080 Ti's of UvmDiscard section 7.1",
        make: || Machine {
            gpu_mem: 24_000_000_000,
            gpu_bw: 1008e9,
            fp32: 82.6e12,
            tf32: 82.6e12,
            fp16: 165.2e12,
            pcie_h2d: 25e9,
            pcie_d2h: 25e9,
            ..COMMON
        },
    },
    Preset {
        name: "v100-32",
        about: "V100 PCIe 32 GB, 512 GB host: DeepUM's",
        source: "DeepUM table 1; V100 datasheet; link as measured by AutoVM (table 4.1)",
        make: || v100(32 * GIB),
    },
    Preset {
        name: "v100-16",
        about: "V100 PCIe 16 GB, 512 GB host: DeepUM's",
        source: "DeepUM table 1; V100 datasheet; link as measured by AutoVM (table 4.1)",
        make: || v100(16 * GIB),
    },
    Preset {
        name: "3080ti-pcie3",
        about: "RTX 3080 Ti, PCIe 3, 64 GB host: UvmDiscard's",
        source: "UvmDiscard sections 7.1 and 7.5; GA102 whitepaper; link as measured by AutoVM",
        make: || rtx3080ti(13.0e9),
    },
    Preset {
        name: "3080ti-pcie4",
        about: "RTX 3080 Ti, PCIe 4, 64 GB host: UvmDiscard's",
        source: "UvmDiscard sections 7.1 (25 GB/s) and 7.5; GA102 whitepaper",
        make: || rtx3080ti(25e9),
    },
    Preset {
        name: "2080ti",
        about: "RTX 2080 Ti, PCIe 3, 96 GB host: AutoVM's",
        source: "AutoVM table 4.1 (9.5 GB usable, 13.0 GB/s measured); TU102 whitepaper",
        make: || Machine {
            gpu_mem: 9_500_000_000,
            gpu_bw: 616e9,
            fp32: 13.4e12,
            tf32: 13.4e12,
            fp16: 53.8e12,
            pcie_h2d: 13.0e9,
            pcie_d2h: 13.0e9,
            host_mem: 96_000_000_000,
            ssd_read: 0.0,
            ssd_write: 0.0,
            ..COMMON
        },
    },
    Preset {
        name: "gtx1070",
        about: "GTX 1070 8 GB, PCIe 3: UvmDiscard's table 1",
        source: "UvmDiscard table 1; GTX 1070 datasheet; link as measured by AutoVM; host as in section 7.1",
        make: || Machine {
            gpu_mem: 8 * GIB,
            gpu_bw: 256e9,
            fp32: 6.5e12,
            tf32: 6.5e12,
            fp16: 6.5e12,
            pcie_h2d: 13.0e9,
            pcie_d2h: 13.0e9,
            host_mem: 64_000_000_000,
            ssd_read: 0.0,
            ssd_write: 0.0,
            ..COMMON
        },
    },
    Preset {
        name: "h100",
        about: "H100 SXM 80 GB, PCIe 5, 1 TiB host",
        source: "H100 datasheet (dense rates); PCIe 5 x16 at the share AutoVM measured on PCIe 3",
        make: || hopper(80_000_000_000, 3350e9),
    },
    Preset {
        name: "h200",
        about: "H200 SXM 141 GB, PCIe 5, 1 TiB host",
        source: "H200 datasheet (dense rates); PCIe 5 x16 at the share AutoVM measured on PCIe 3",
        make: || hopper(141_000_000_000, 4800e9),
    },
    Preset {
        name: "b200",
        about: "B200 SXM 180 GB, PCIe 5, 1 TiB host",
        source: "HGX B200 datasheet (dense rates, 1/8); PCIe 5 x16 at the share AutoVM measured on PCIe 3",
        make: || Machine {
            fp32: 75e12,
            tf32: 1.1e15,
            fp16: 2.25e15,
            nvlink: 1800e9,
            ..hopper(180_000_000_000, 7700e9)
        },
    },
];

fn v100(gpu_mem: u64) -> Machine {
    Machine {
        gpu_mem,
        gpu_bw: 900e9,
        fp32: 14e12,
        tf32: 14e12,
        fp16: 112e12,
        pcie_h2d: 13.0e9,
        pcie_d2h: 13.0e9,
        host_mem: 512_000_000_000,
        ssd_read: 0.0,
        ssd_write: 0.0,
        ..COMMON
    }
}

fn rtx3080ti(pcie: f64) -> Machine {
    Machine {
        gpu_mem: 11_770_000_000,
        gpu_bw: 912e9,
        fp32: 34.1e12,
        tf32: 34.1e12,
        fp16: 68.2e12,
        pcie_h2d: pcie,
        pcie_d2h: pcie,
        host_mem: 64_000_000_000,
        ssd_read: 0.0,
        ssd_write: 0.0,
        ..COMMON
    }
}

fn hopper(gpu_mem: u64, gpu_bw: f64) -> Machine {
    Machine {
        gpu_mem,
        gpu_bw,
        fp32: 66.9e12,
        tf32: 494.7e12,
        fp16: 989.4e12,
        pcie_h2d: PCIE5_X16 * PCIE_MEASURED,
        pcie_d2h: PCIE5_X16 * PCIE_MEASURED,
        host_mem: 1024 * GIB,
        ssd_read: 6.4e9,
        ssd_write: 6.4e9,
        ..COMMON
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_are_whole() {
        for (i, p) in PRESETS.iter().enumerate() {
            let m = p.machine();
            assert_eq!(m.preset, p.name);
            assert!(m.chunks() > 1000 && m.gpu_bw > 1e11, "{}", p.name);
            assert!(
                m.fp32 > 1e12 && m.tf32 >= m.fp32 && m.fp16 >= m.fp32,
                "{}",
                p.name
            );
            assert!(PRESETS[i + 1..].iter().all(|q| q.name != p.name));
            assert!(
                m.host_mem > 0 || m.ssd_read > 0.0,
                "{}: nowhere to evict to",
                p.name
            );
        }
        assert_eq!(find("a100").map(|m| m.gpu_mem), Some(40 * GIB));
        assert!(find("voodoo2").is_none());
    }
}
