// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Machines that are made up, one for each outcome.

#![allow(clippy::unwrap_used)]

use std::io;

use uvmrust::uapi::{self, Stats, Version};
use uvmrust_system::{Descriptor, Uuid};

use super::*;

const UUID: &str = "GPU-d802726c-df8d-a3c3-ec53-48bdec201c27";
const PARAMETERS: &str = "sys/module/nvidia_uvm/parameters";
const ALL: u64 = uapi::FEATURE_STATS | uapi::FEATURE_DISCARD | uapi::FEATURE_EXEC_ID;

/// A descriptor that answers as told.
#[derive(Clone)]
struct Fake {
    features: Option<u64>,
    backend: Backend,
    flash: Option<FlashStats>,
}

impl Descriptor for Fake {
    fn version(&self) -> io::Result<Option<Version>> {
        Ok(self.features.map(|features| Version {
            size: 16,
            version: 3,
            features,
        }))
    }
    fn backend(&self) -> Backend {
        self.backend
    }
    fn register(&mut self, _: Uuid) -> io::Result<()> {
        panic!("a check starts no GPU")
    }
    fn unregister(&mut self, _: Uuid) -> io::Result<()> {
        panic!("a check starts no GPU")
    }
    fn stats(&self, _: Uuid) -> io::Result<Stats> {
        panic!("a check registers no GPU, so there are none")
    }
    fn flash(&self) -> io::Result<FlashStats> {
        let off = || io::Error::from_raw_os_error(libc::EOPNOTSUPP);
        self.flash.ok_or_else(off)
    }
}

/// The device of a machine.
struct Door<'a>(&'a Result<Fake, NodeError>);

impl Device for Door<'_> {
    fn open(&self) -> Result<Box<dyn Descriptor>, NodeError> {
        match self.0 {
            Ok(fake) => Ok(Box::new(fake.clone())),
            Err(error) => Err(error.clone()),
        }
    }
}

struct Machine {
    folder: PathBuf,
    device: Result<Fake, NodeError>,
    cuda: Option<Cuda>,
    preload: bool,
    admin: bool,
}

impl Machine {
    /// One on which all works with our module.
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("uvmrun-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        let fake = Fake {
            features: Some(ALL),
            backend: Backend::UvmRust,
            flash: None,
        };
        let machine = Self {
            folder,
            device: Ok(fake),
            cuda: Some(Cuda {
                version: Some(12040),
                discards: false,
            }),
            preload: true,
            admin: false,
        };
        machine
            .file(
                "proc/driver/nvidia/version",
                "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.163.01  Release\n",
            )
            .file(
                "proc/driver/nvidia/gpus/0000:3b:00.0/information",
                &format!("Model: Tesla T4\nGPU UUID: {UUID}\nDevice Minor: 0\n"),
            )
            .file("sys/module/nvidia_uvm/version", "550.163.01\n")
            .file(&format!("{PARAMETERS}/uvm_rust_stats"), "Y\n")
            .file(&format!("{PARAMETERS}/uvm_rust_discard"), "Y\n")
            .file(
                "proc/meminfo",
                "MemTotal: 8388608 kB\nMemAvailable: 4194304 kB\n",
            );
        machine
    }

    /// The same machine with NVIDIA's module, which has none of our parameters.
    fn nvidia(name: &str, backend: Backend) -> Self {
        let mut machine = Self::new(name).without(PARAMETERS);
        machine.device = Ok(Fake {
            features: None,
            backend,
            flash: None,
        });
        machine
    }

    fn file(&self, path: &str, text: &str) -> &Self {
        let path = self.folder.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
        self
    }

    fn without(self, path: &str) -> Self {
        let path = self.folder.join(path);
        match path.is_dir() {
            true => std::fs::remove_dir_all(path).unwrap(),
            false => std::fs::remove_file(path).unwrap(),
        }
        self
    }

    fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    fn facts(&self) -> Facts {
        Facts::gather(Host {
            root: &Root::new(&self.folder),
            device: &Door(&self.device),
            cuda: self.cuda,
            preload: self.preload.then(|| "/lib/libuvmrust_preload.so".into()),
            admin: self.admin,
        })
    }

    fn lines(&self) -> Vec<Line> {
        topics::lines(&self.facts())
    }

    /// The status, and the line of a topic whose state is this, with its fix.
    fn is(&self, status: u8, topic: &str, state: State, says: &str, fix: &str) -> &Self {
        let lines = self.lines();
        let page = text(&lines, super::status(&lines));
        assert_eq!(super::status(&lines), status, "{page}");
        let line = lines.iter().find(|line| {
            let mends = line.fix.as_deref().unwrap_or("");
            line.topic == topic && line.says.contains(says) && mends.contains(fix)
        });
        let line = line.unwrap_or_else(|| panic!("no {topic}: {says} -> {fix} in:\n{page}"));
        assert_eq!(line.state, state, "{page}");
        self
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

use State::{Broken, Note, Problem, Unknown, Works};

#[test]
fn all_works_with_our_module() {
    Machine::new("works")
        .is(0, "driver", Works, "550.163.01, with the open", "")
        .is(
            0,
            "module",
            Works,
            "uvm-rust's nvidia-uvm, for NVIDIA's 550.163.01, interface 3",
            "",
        )
        .is(
            0,
            "GPU",
            Works,
            &format!("Tesla T4, {UUID}, 0000:3b:00.0"),
            "",
        )
        .is(0, "CUDA", Works, "12.4", "")
        .is(0, "discard", Works, "uvm-rust's driver", "")
        .is(0, "statistics", Works, "sudo uvmtop", "")
        .is(0, "SSD tier", Note, "off", "")
        .is(0, "host memory", Works, "4.0 GiB of 8.0 GiB", "")
        .is(0, "parameters", Works, "by default", "");
}

#[test]
fn every_problem_has_its_fix_and_nothing_else_has_one() {
    for machine in [
        Machine::new("all"),
        Machine::nvidia("theirs", Backend::None),
        Machine::new("empty")
            .without("proc")
            .without("sys")
            .with(|m| {
                m.device = Err(NodeError::Missing);
                (m.cuda, m.preload) = (None, false);
            }),
    ] {
        for line in machine.lines() {
            let bad = matches!(line.state, Broken | Problem);
            assert_eq!(line.fix.is_some(), bad, "{line:?}");
        }
    }
}

#[test]
fn nothing_is_there() {
    let machine = Machine::new("nothing")
        .without("proc")
        .without("sys")
        .with(|m| {
            m.device = Err(NodeError::Missing);
            (m.cuda, m.preload) = (None, false);
        });
    machine
        .is(
            2,
            "driver",
            Broken,
            "none",
            "apt install nvidia-open-kernel-dkms",
        )
        .is(2, "module", Unknown, "needs the driver", "")
        .is(2, "device", Unknown, "without the module", "")
        .is(2, "CUDA", Broken, "libcuda.so.1 is not found", "libcuda1")
        .is(2, "discard", Unknown, "before the device opens", "")
        .is(
            2,
            "preload",
            Problem,
            "is not there",
            "make -C userlib install",
        );
    machine.file("proc/sys/kernel/osrelease", "6.12\n").file(
        "lib/modules/6.12/modules.dep",
        "updates/dkms/nvidia-current-open.ko.xz:\n",
    );
    machine.is(2, "driver", Broken, "none", "sudo modprobe nvidia");
}

/// After an upgrade of the kernel without its headers.
#[test]
fn a_driver_that_is_not_built_for_this_kernel_comes_again_as_it_came() {
    for (file, fix) in [
        ("usr/bin/nvidia-installer", "*.run again"),
        ("var/lib/dkms/nvidia/580.142/source", "dkms autoinstall"),
        (DEBIAN, "dkms autoinstall"),
        ("var/lib/dkms/nvidia-fs/2.26/source", "by the way it came"),
    ] {
        let machine = Machine::new("upgraded").without("proc").without("sys");
        machine
            .file("proc/sys/kernel/osrelease", "6.13\n")
            .file("lib/modules/6.13/modules.dep", "")
            .file(file, "");
        machine.is(2, "driver", Broken, "none", fix);
        let replaces = machine.lines().iter().any(|line| {
            let fix = line.fix.as_deref().unwrap_or_default();
            fix.contains("nvidia-open-kernel-dkms")
        });
        assert_eq!(replaces, file.contains("nvidia-fs"), "{file}");
    }
    // DKMS builds what the installer has given to it.
    let both = Machine::new("both").without("proc").without("sys");
    both.file("usr/bin/nvidia-installer", "")
        .file("var/lib/dkms/nvidia/580.142/source", "")
        .is(2, "driver", Broken, "none", "dkms autoinstall");
}

#[test]
fn the_module_is_not_loaded() {
    let machine = Machine::new("unloaded").without("sys").with(|m| {
        m.device = Err(NodeError::Gone);
    });
    machine
        .is(
            2,
            "module",
            Broken,
            "not loaded",
            "sudo modprobe nvidia-uvm",
        )
        .is(2, "device", Unknown, "", "");
}

#[test]
fn the_node_does_not_serve() {
    for (error, says, fix) in [
        (
            NodeError::Missing,
            "is not there",
            "nvidia-modprobe -u -c 0; in a container",
        ),
        (NodeError::NotDevice, "not a device", "rm /dev/nvidia-uvm"),
        (NodeError::Stale, "number of another", "rm /dev/nvidia-uvm"),
        (NodeError::Gone, "no driver", "rm /dev/nvidia-uvm"),
        (NodeError::Denied, "may not be opened", "chmod 666"),
        (NodeError::Refused("x y".into()), "refuses: x y", "dmesg"),
    ] {
        let machine = Machine::new("node").with(|m| m.device = Err(error.clone()));
        machine.is(2, "device", Broken, says, fix);
        machine.is(2, "discard", Unknown, "before the device opens", "");
    }
}

#[test]
fn no_gpu_and_no_cuda() {
    let machine = Machine::new("no-gpu").without("proc/driver/nvidia/gpus");
    machine.is(2, "GPU", Broken, "shows none", "lspci");
    let machine = Machine::new("no-cuda").with(|m| m.cuda = None);
    machine.is(2, "CUDA", Broken, "not found", "apt install libcuda1");
}

/// Where DKMS has Debian's open driver.
const DEBIAN: &str = "var/lib/dkms/nvidia-current-open/550.163.01/x";

/// What the driver says that is not known to be open.
const CLOSED: &str = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.163.01  Tue\n";

#[test]
fn nvidias_module() {
    let native = Machine::nvidia("580", Backend::Native);
    native.file(DEBIAN, "");
    native
        .is(0, "module", Note, "package uvm-rust-dkms", "")
        .is(0, "discard", Works, "one range a call", "");
    assert!(!native.lines().iter().any(|line| line.topic == "statistics"));
    native.file("usr/bin/uvm-rust", "");
    native.is(0, "module", Note, "uvm-rust's: sudo uvm-rust enable", "");

    let none = Machine::nvidia("550", Backend::None);
    none.file(DEBIAN, "");
    none.is(1, "discard", Problem, "nobody discards", "uvm-rust-dkms");
    none.file("usr/bin/uvm-rust", "");
    none.is(
        1,
        "discard",
        Problem,
        "nobody discards",
        "sudo uvm-rust enable",
    );

    let cuda = Machine::nvidia("cuda-13", Backend::None).with(|m| {
        m.cuda = Some(Cuda {
            version: Some(13000),
            discards: true,
        });
    });
    cuda.is(0, "discard", Works, "CUDA 13", "");
}

/// By NVIDIA's installer or repository, or the closed one beside Debian's open one.
#[test]
fn a_driver_that_ours_cannot_stand_beside_is_not_to_be_replaced() {
    let foreign = Machine::nvidia("foreign", Backend::None);
    let closed = Machine::nvidia("closed-beside", Backend::None);
    closed.file("proc/driver/nvidia/version", CLOSED);
    closed.file(DEBIAN, "").file("usr/bin/uvm-rust", "");
    for machine in [foreign, closed] {
        machine.is(
            1,
            "discard",
            Problem,
            "nobody discards",
            "driver from 580 on",
        );
        for line in machine.lines() {
            let all = format!("{} {}", line.says, line.fix.as_deref().unwrap_or_default());
            assert!(!all.contains("uvm-rust-dkms"), "{all}");
            assert!(!all.contains("uvm-rust enable"), "{all}");
        }
    }
}

#[test]
fn the_closed_driver_and_the_software_gpu() {
    let closed = Machine::new("closed");
    closed.file("proc/driver/nvidia/version", CLOSED);
    closed.is(0, "driver", Note, "not known to be with the open", "");

    let software = Machine::new("software")
        .without("proc/driver")
        .with(|m| m.cuda = None);
    software.file("sys/module/vgpu/refcnt", "1\n");
    software
        .is(0, "driver", Note, "software GPU", "")
        .is(0, "CUDA", Note, "none is needed", "")
        .is(0, "GPU", Note, "while a program uses it", "");
}

#[test]
fn mig_is_said() {
    let machine = Machine::new("mig");
    machine.file("proc/driver/nvidia/capabilities/gpu0/mig/gi3/access", "");
    machine.is(0, "MIG", Note, "1 GPU instances; each is a GPU", "");
    machine.file("sys/module/nvidia/version", "580.65.06\n");
    machine.is(0, "MIG", Note, "nothing is counted", "");
}

#[test]
fn parameters_that_matter() {
    let machine = Machine::new("parameters").with(|m| {
        m.device = Ok(Fake {
            features: Some(0),
            backend: Backend::None,
            flash: None,
        });
    });
    machine
        .file(&format!("{PARAMETERS}/uvm_rust_discard"), "N\n")
        .file(&format!("{PARAMETERS}/uvm_rust_evict"), "N\n")
        .file(&format!("{PARAMETERS}/uvm_global_oversubscription"), "0\n");
    machine
        .is(
            1,
            "parameter",
            Problem,
            "uvm_rust_discard=0",
            "remove uvm_rust_discard=0 from",
        )
        .is(1, "parameter", Note, "uvm_rust_evict=0", "")
        .is(
            1,
            "parameter",
            Problem,
            "larger than the GPU's",
            topics::RELOAD,
        )
        .is(1, "discard", Note, "nobody discards", "");
}

#[test]
fn announcing_and_statistics() {
    let machine = Machine::new("features").with(|m| m.admin = true);
    machine
        .file(&format!("{PARAMETERS}/uvm_rust_prefetch"), "Y\n")
        .is(0, "kernels", Works, "is prefetched", "")
        .is(0, "statistics", Works, "to root", "");
    machine.file(&format!("{PARAMETERS}/uvm_rust_stats_public"), "Y\n");
    machine.is(0, "statistics", Works, "everybody", "");
}

#[test]
fn the_ssd_tier() {
    let with = |name: &str, stats: FlashStats| {
        Machine::new(name).with(|m| {
            m.device = Ok(Fake {
                features: Some(ALL | uapi::FEATURE_FLASH),
                backend: Backend::UvmRust,
                flash: Some(stats),
            });
        })
    };
    let none = FlashStats::default();
    with("ssd-none", none).is(0, "SSD tier", Note, "no device is attached", "");
    let attached = FlashStats {
        attached: 1,
        slots: 1024,
        pages_mine: 256,
        ..none
    };
    let says = "2.0 GiB attached, 1.0 MiB of it used";
    with("ssd", attached).is(0, "SSD tier", Works, says, "");
    let failing = FlashStats {
        lost_pages: 2,
        ..attached
    };
    with("ssd-fails", failing).is(1, "SSD tier", Problem, "2 pages are lost", "smartctl");
}

#[test]
fn limits_that_matter() {
    let machine = Machine::new("limits");
    machine
        .file(
            "proc/self/limits",
            "Max address space         1073741824  unlimited  bytes\n",
        )
        .file("proc/self/cgroup", "0::/x\n")
        .file("sys/fs/cgroup/x/memory.max", "1048576\n");
    machine
        .is(
            1,
            "limits",
            Problem,
            "limited to 1.0 GiB",
            "ulimit -v unlimited",
        )
        .is(1, "cgroup", Note, "1.0 MiB", "");
}

#[test]
fn a_page_is_a_page() {
    let machine = Machine::nvidia("page", Backend::None);
    let lines = machine.lines();
    let page = text(&lines, 1);
    assert!(page.lines().count() < 45, "{page}");
    let mut says = page.lines().filter(|line| !line.contains("-> "));
    assert!(says.all(|line| line.chars().count() <= WIDTH), "{page}");
    assert!(page.contains("! discard:     nobody discards"), "{page}");
    assert!(
        page.contains("\n               -> NVIDIA's driver"),
        "{page}"
    );
}

#[test]
fn programs_read_the_same() {
    let machine = Machine::nvidia("json", Backend::None);
    let (facts, lines) = (machine.facts(), machine.lines());
    let report: serde_json::Value = serde_json::from_str(&json(&facts, &lines, 1)).unwrap();
    assert_eq!(report["status"], 1);
    assert_eq!(report["facts"]["module"]["whose"], "nvidia");
    assert_eq!(report["facts"]["backend"], "none");
    assert_eq!(report["facts"]["gpus"][0]["uuid"], UUID);
    let checks = report["checks"].as_array().unwrap();
    assert_eq!(checks.len(), lines.len());
    let discard = checks
        .iter()
        .find(|check| check["topic"] == "discard")
        .unwrap();
    assert_eq!(discard["state"], "problem");
    assert!(discard["fix"].is_string());
}
