// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What is found on machines that are made up, as folders.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use uvm_policy::stats::fdinfo::{show, Address, Told};
use uvm_policy::stats::places::Places;
use uvm_policy::stats::{Snapshot, Traffic};
use uvmrust_system::{
    fdinfo, gpus, processes, ByCause, ByQueue, Counts, Device, Driver, FdInfo, Limits, Linux,
    Module, NodeError, Root, User, Users, Uuid, Whose,
};

/// A folder of this name, emptied.
struct Machine(PathBuf);

impl Machine {
    fn new(name: &str) -> Self {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn file(&self, path: &str, text: &str) -> &Self {
        let path = self.0.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
        self
    }

    fn link(&self, path: &str, to: &str) -> &Self {
        let path = self.0.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(to, path).unwrap();
        self
    }

    fn root(&self) -> Root {
        Root::new(&self.0)
    }
}

const T4: &str = "GPU-d802726c-df8d-a3c3-ec53-48bdec201c27";
const PART: &str = "GPU-00000000-1111-2222-3333-444444444444";
const ON_BUS: &str = "proc/driver/nvidia/gpus/0000:3b:00.0/information";

fn information(uuid: &str) -> String {
    format!("Model: \t\t Tesla T4\nIRQ:   \t\t 64\nGPU UUID: \t {uuid}\nDevice Minor: \t 0\n")
}

#[test]
fn nothing_is_there() {
    let root = Machine::new("nothing").root();
    assert_eq!(Driver::loaded(&root), None);
    assert_eq!(Module::loaded(&root), None);
    assert_eq!(gpus(&root), []);
    let nobody = Users {
        seen: Vec::new(),
        hidden: Some(0),
    };
    assert_eq!(Users::now(&root, 1), nobody);
    assert_eq!(Limits::now(&root), Limits::default());
    assert!(processes(&root).is_err());
    assert_eq!(Linux(root).open().err(), Some(NodeError::Missing));
}

#[test]
fn drivers_and_modules_are_told_apart() {
    let machine = Machine::new("modules");
    machine.file(
        "proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.163.01  Release Build\n",
    );
    let driver = Driver::loaded(&machine.root()).unwrap();
    assert_eq!(driver.version.as_deref(), Some("550.163.01"));
    assert_eq!(driver.major(), Some(550));
    assert!(driver.open && !driver.software);

    machine.file(
        "proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.54  Tue\nGCC version:  12.2.0\n",
    );
    let driver = Driver::loaded(&machine.root()).unwrap();
    assert!(!driver.open);
    assert_eq!(driver.major(), Some(535));

    machine
        .file("sys/module/nvidia_uvm/version", "580.65.06\n")
        .file("sys/module/nvidia_uvm/parameters/uvm_disable_hmm", "N\n");
    let module = Module::loaded(&machine.root()).unwrap();
    assert_eq!(module.whose, Whose::Nvidia);
    assert_eq!(module.version.as_deref(), Some("580.65.06"));
    assert_eq!(module.number("uvm_disable_hmm"), Some(0));

    machine
        .file("sys/module/nvidia_uvm/parameters/uvm_rust_stats", "Y\n")
        .file("sys/module/nvidia_uvm/parameters/uvm_rust_preevict", "4\n")
        .file("sys/module/nvidia_uvm/refcnt", "3\n");
    let module = Module::loaded(&machine.root()).unwrap();
    assert_eq!(module.whose, Whose::UvmRust);
    assert_eq!(module.number("uvm_rust_stats"), Some(1));
    assert_eq!(module.number("uvm_rust_preevict"), Some(4));
    assert_eq!(module.number("uvm_rust_flash"), None);
    assert_eq!(module.references, Some(3));
}

#[test]
fn the_software_gpu_stands_for_the_driver() {
    let machine = Machine::new("vgpu");
    machine.file("sys/module/vgpu/refcnt", "1\n");
    let driver = Driver::loaded(&machine.root()).unwrap();
    assert!(driver.software);
    assert_eq!(driver.version, None);
}

#[test]
fn a_gpu_that_uvm_and_the_driver_know_is_one() {
    let machine = Machine::new("gpu");
    machine
        .file(ON_BUS, &information(T4))
        .file("proc/driver/nvidia/gpus/0000:5e:00.0/information", &information("GPU-????????-????-????-????-????????????"))
        .file(
            &format!("proc/driver/nvidia-uvm/gpus/UVM-{T4}/0/info"),
            "GPU ID: 1\nretained_count                         2\necc                                    enabled\n",
        )
        .link("proc/driver/nvidia-uvm/gpus/1", &format!("UVM-{T4}/0"));
    let found = gpus(&machine.root());
    assert_eq!(found.len(), 2);
    assert_eq!(found[0].uuid, Uuid::parse(T4));
    assert_eq!(found[0].id, Some(1));
    assert_eq!(found[0].part_of, None);
    assert_eq!(found[0].name.as_deref(), Some("Tesla T4"));
    assert_eq!(found[0].bus.as_deref(), Some("0000:3b:00.0"));
    assert_eq!(found[0].retained, Some(2));
    assert_eq!(found[0].debug, None);
    // Not started yet.
    assert_eq!((found[1].uuid, found[1].id), (None, None));
}

#[test]
fn what_nvidias_own_counts_say() {
    let machine = Machine::new("debug");
    machine
        .file(
            &format!("proc/driver/nvidia-uvm/gpus/UVM-{T4}/0/info"),
            "retained_count                         1\nvidmem_size                            1048576 (1 MBs)\n\
             replayable_faults_num_faults           77\nmigrated_pages_in                      10 (0 MB)\n\
             migrated_pages_out                     3 (0 MB)\n",
        )
        .link("proc/driver/nvidia-uvm/gpus/1", &format!("UVM-{T4}/0"));
    let debug = gpus(&machine.root())[0].debug.clone().unwrap();
    assert_eq!((debug.bytes_in, debug.bytes_out), (40960, 12288));
    assert_eq!((debug.faults, debug.memory), (77, 1048576));
}

#[test]
fn mig_parts_have_their_gpus_name() {
    let machine = Machine::new("mig");
    machine
        .file(ON_BUS, &information(T4))
        .file(
            "proc/driver/nvidia/capabilities/gpu0/mig/gi1/access",
            "DeviceFileMinor: 3\n",
        )
        .file(
            "proc/driver/nvidia/capabilities/gpu0/mig/gi2/access",
            "DeviceFileMinor: 12\n",
        )
        .file(
            "proc/driver/nvidia/capabilities/gpu0/mig/config",
            "DeviceFileMinor: 1\n",
        )
        .file(
            &format!("proc/driver/nvidia-uvm/gpus/UVM-{T4}/2/info"),
            "retained_count    1\n",
        )
        .link("proc/driver/nvidia-uvm/gpus/3", &format!("UVM-{T4}/2"))
        .link(
            &format!("proc/driver/nvidia-uvm/gpus/UVM-{PART}"),
            &format!("UVM-{T4}/2"),
        );
    let found = gpus(&machine.root());
    assert_eq!(found.len(), 2);
    assert_eq!(found[0].uuid, Uuid::parse(PART));
    assert_eq!(found[0].part_of, Uuid::parse(T4));
    assert_eq!(found[0].name.as_deref(), Some("Tesla T4"));
    assert_eq!(found[0].instances, 0);
    // The GPU itself: nobody has registered it as a whole.
    assert_eq!((found[1].uuid, found[1].id), (Uuid::parse(T4), None));
    assert_eq!(found[1].instances, 2);
}

/// As a machine with 580.159.04 and one H200 that is not divided has it.
#[test]
fn a_whole_gpu_with_an_alias_is_no_part() {
    let machine = Machine::new("alias");
    let alias = format!("UVM-GI-{}", &T4["GPU-".len()..]);
    machine
        .file(ON_BUS, &information(T4))
        .file(&format!("proc/driver/nvidia-uvm/gpus/UVM-{T4}/0/info"), "")
        .link("proc/driver/nvidia-uvm/gpus/1", &format!("UVM-{T4}/0"))
        .link(
            &format!("proc/driver/nvidia-uvm/gpus/{alias}"),
            &format!("UVM-{T4}/0"),
        );
    let found = gpus(&machine.root());
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!((found[0].uuid, found[0].part_of), (Uuid::parse(T4), None));
    assert_eq!(
        (found[0].id, found[0].name.as_deref()),
        (Some(1), Some("Tesla T4"))
    );
}

#[test]
fn gpus_of_drivers_before_550() {
    let machine = Machine::new("535");
    machine
        .file(
            "proc/driver/nvidia-uvm/gpus/1/info",
            "retained_count    4\n",
        )
        .link(&format!("proc/driver/nvidia-uvm/gpus/UVM-{T4}"), "1");
    let found = gpus(&machine.root());
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].uuid, Uuid::parse(T4));
    assert_eq!((found[0].part_of, found[0].retained), (None, Some(4)));
}

#[test]
fn users_are_seen_by_their_descriptors() {
    let machine = Machine::new("users");
    machine
        .file("proc/1000/comm", "python3\n")
        .link("proc/1000/fd/0", "/dev/null")
        .link("proc/1000/fd/17", "/dev/nvidia-uvm")
        .file("proc/900/comm", "old\n")
        .link("proc/900/fd/3", "/dev/nvidia-uvm (deleted)")
        .file("proc/7/comm", "tools\n")
        .link("proc/7/fd/3", "/dev/nvidia-uvm-tools")
        .link("proc/55/fd/3", "/dev/nvidia-uvm")
        .file("proc/meminfo", "MemTotal: 1 kB\n");
    let users = Users::now(&machine.root(), 55);
    let seen: Vec<_> = users.seen.iter().map(|u| (u.pid, &*u.command)).collect();
    assert_eq!(seen, [(900, "old"), (1000, "python3")]);
    assert_eq!(users.hidden, Some(0));
}

#[test]
fn nobody_counts_the_processes_that_proc_does_not_show() {
    let hidden = |mounts: &str, first: bool| {
        let machine = Machine::new("hidepid");
        machine.file("proc/self/mounts", mounts);
        if first {
            machine.file("proc/1/comm", "init\n");
        }
        Users::now(&machine.root(), 1).hidden
    };
    let of = |options: &str| format!("dev /dev devtmpfs rw 0 0\nproc /proc proc {options} 0 0\n");
    assert_eq!(hidden(&of("rw,nosuid"), false), Some(0));
    assert_eq!(hidden(&of("rw,hidepid=1"), false), Some(0), "each is shown");
    for options in [
        "rw,hidepid=2",
        "hidepid=invisible,gid=7",
        "rw,hidepid=ptraceable",
    ] {
        assert_eq!(hidden(&of(options), false), None, "{options}");
    }
    assert_eq!(hidden(&of("rw,hidepid=2"), true), Some(0), "root sees all");
    // What was mounted over it is not seen; one elsewhere says nothing.
    let over = of("rw,hidepid=2") + "proc /proc proc rw 0 0\n";
    assert_eq!(hidden(&over, false), Some(0));
    let elsewhere = of("rw") + "proc /jail/proc proc rw,hidepid=2 0 0\n";
    assert_eq!(hidden(&elsewhere, false), Some(0));
}

#[test]
fn limits_are_the_least_of_all_cgroups() {
    let machine = Machine::new("limits");
    machine
        .file("proc/meminfo", "MemTotal:  1024 kB\nMemAvailable:   512 kB\n")
        .file("proc/self/cgroup", "1:name=systemd:/x\n0::/user/session\n")
        .file("sys/fs/cgroup/user/session/memory.max", "max\n")
        .file("sys/fs/cgroup/user/memory.max", "1000000\n")
        .file("sys/fs/cgroup/user/memory.current", "100000\n")
        .file("sys/fs/cgroup/memory.max", "2000000\n")
        .file("sys/fs/cgroup/memory.current", "1900000\n")
        .file(
            "proc/self/limits",
            "Limit   Soft  Hard  Units\nMax address space         4096                 unlimited            bytes\n",
        );
    let limits = Limits::now(&machine.root());
    assert_eq!(limits.host, Some(1 << 20));
    assert_eq!(limits.available, Some(1 << 19));
    assert_eq!(limits.cgroup, Some(1_000_000));
    assert_eq!(limits.cgroup_free, Some(100_000));
    let of = |limits: &Limits| (limits.managed().free, limits.managed().total);
    assert_eq!(of(&limits), (100_000, 1_000_000));
    let alone = Limits {
        cgroup: None,
        cgroup_free: None,
        ..limits.clone()
    };
    assert_eq!(of(&alone), (1 << 19, 1 << 20));
    assert_eq!(of(&Limits::default()), (0, 0));
    assert_eq!(limits.address_space, Some(4096));
}

/// Debugfs' lines as `uvm_rust::policy::stats::Snapshot` and the prefetcher print them.
const PROCESSES: &str = "\
process 1000 gpu-1
faults                 50
duplicates             5
batches                3
replays                4
evictions-free         0
evictions-unused       1
evictions-discarded    2
evictions-used         3
evictions-address      4
thrashed               5
prefetch-wasted        6
bytes-by-cause            host-to-gpu          gpu-to-host           gpu-to-gpu
fault                            4096                   10                   20
prefetch                         8192                    0                    0
eviction                            0                12288                    0
api                                 1                    0                    0
access-counter                      0                    0                    0
process 1000 gpu-2
faults                 7
prefetch kernels 10 right 8 wrong 1 dropped 0
prefetch faulted blocks 5 unknown 4 dropped 0
prefetch predicted 9 moved 6 resident 2 held 1 unfit 0 failed 0 bytes 12582912
prefetch pushed out 1 bytes 2097152
prefetch tables 1000 bytes, 3 ids, 0 dropped, window 32
process 1000 gpu-1
faults                 100
process 2000 gpu-1
faults                 1
";

#[test]
fn processes_are_read_as_the_driver_writes_them() {
    let machine = Machine::new("processes");
    machine.file("sys/kernel/debug/nvidia-uvm/processes", PROCESSES);
    let found = processes(&machine.root()).unwrap();
    assert_eq!(found.len(), 2);
    assert_eq!((found[0].pid, found[1].pid), (1000, 2000));
    let counts = found[0].gpus[&1];
    // Two address spaces.
    assert_eq!(counts.faults, 150);
    assert_eq!(
        (counts.duplicates, counts.batches, counts.replays),
        (5, 3, 4)
    );
    assert_eq!(counts.evictions.taken(), 10);
    assert_eq!((counts.thrashed, counts.prefetch_wasted), (5, 6));
    assert_eq!(counts.host_to_gpu.total(), 4096 + 8192 + 1);
    assert_eq!(counts.host_to_gpu.prefetch, 8192);
    assert_eq!(counts.gpu_to_host.eviction, 12288);
    assert_eq!(
        (counts.gpu_to_host.fault, counts.gpu_to_gpu.fault),
        (10, 20)
    );
    assert_eq!(found[0].gpus[&2].faults, 7);
    let learnt = found[0].prefetching.unwrap();
    assert_eq!((learnt.kernels, learnt.right, learnt.wrong), (10, 8, 1));
    assert_eq!((learnt.predicted, learnt.moved, learnt.resident), (9, 6, 2));
    assert_eq!((learnt.bytes_in, learnt.bytes_out), (12582912, 2097152));
    assert_eq!(found[1].prefetching, None);
}

/// What Linux and the driver say of a file, with these lines of the driver's.
fn text_of(client: u32, lines: &[&str]) -> String {
    format!("{FILE}drm-client-id:\t{client}\n{}\n", lines.join("\n"))
}

/// What stands before all that the driver's policy writes.
const FILE: &str = "pos:\t0\nflags:\t02100002\nmnt_id:\t26\nino:\t440\ndrm-driver:\tnvidia-uvm\n";

/// What there is of the processes that have the device open.
fn asked(machine: &Machine) -> BTreeMap<u32, FdInfo> {
    fdinfo(&machine.root(), &Users::now(&machine.root(), 1).seen)
}

/// What the driver's own code writes of a GPU, each count with a number of its own.
fn written(client: u32, gpu: u32, ssd: u64) -> String {
    let traffic = |first: u64| {
        std::array::from_fn(|cause| Traffic {
            bytes: first + cause as u64,
            pages: 0,
        })
    };
    let counts = Snapshot {
        host_to_gpu: traffic(10),
        gpu_to_host: traffic(20),
        gpu_to_gpu: traffic(30),
        faults: 1,
        duplicates: 2,
        batches: 3,
        replays: 4,
        evictions: std::array::from_fn(|queue| 40 + queue as u64),
        thrashed: 5,
        prefetch_wasted: 6,
    };
    let address = Address::new(b"0000:3b:00.0");
    let told = Told {
        gpu,
        address,
        held: Some(6 << 20),
        discarded: Some(2 << 20),
        max: Some((8 << 20, 0)),
        low: Some(4 << 20),
        counts,
    };
    let mut text = FILE.to_owned();
    let places = Places {
        host: 7 << 12,
        ssd: 8 << 12,
    };
    let gpus = Some([told].into_iter());
    show(&mut text, client, gpus, Some(ssd), Some(places)).unwrap();
    text
}

#[test]
fn a_process_is_told_of_by_its_descriptors() {
    let machine = Machine::new("fdinfo");
    let later = "nvidia-uvm-gpu12-a-later-one:\t9\nnvidia-uvm-gpu12-evictions-a-later-one:\t9\n\
                 nvidia-uvm-gpux-faults:\t9\nnvidia-uvm-gpu-faults:\t9\nno line\n";
    machine
        .link("proc/1000/fd/0", "/dev/null")
        .link("proc/1000/fd/17", "/dev/nvidia-uvm")
        .file("proc/1000/fdinfo/17", &(written(3, 12, 8192) + later))
        // A second VA space, of a second tenant.
        .link("proc/1000/fd/18", "/dev/nvidia-uvm")
        .file(
            "proc/1000/fdinfo/18",
            &text_of(
                4,
                &[
                    "nvidia-uvm-gpu12-faults:\t100",
                    "nvidia-uvm-tenant-ssd:\t4096",
                    "drm-resident-memory:\t4096",
                    "nvidia-uvm-ssd:\t8192",
                ],
            ),
        );
    let found = asked(&machine).remove(&1000).unwrap();
    assert_eq!(found.tenant_ssd, Some(8192));
    assert_eq!((found.host, found.ssd), (Some(8 << 12), Some(10 << 12)));
    let of_cause = |first| ByCause {
        fault: first,
        prefetch: first + 1,
        eviction: first + 2,
        api: first + 3,
        access_counter: first + 4,
    };
    let counts = Counts {
        faults: 101,
        duplicates: 2,
        batches: 3,
        replays: 4,
        evictions: ByQueue {
            free: 40,
            unused: 41,
            discarded: 42,
            used: 43,
            address: 44,
        },
        host_to_gpu: of_cause(10),
        gpu_to_host: of_cause(20),
        gpu_to_gpu: of_cause(30),
        thrashed: 5,
        prefetch_wasted: 6,
    };
    assert_eq!(found.gpus, Some(BTreeMap::from([(12, counts)])));
    assert_eq!(found.clients, [3, 4].into());
    assert_eq!(found.resident, Some([(12, 6 << 20)].into()));
    assert_eq!(found.discarded, Some([(12, 2 << 20)].into()));
    assert_eq!(found.max, [(12, 8 << 20)].into());
}

/// A sum over VA spaces of which one does not know its part would be too small.
#[test]
fn host_memory_is_told_where_all_va_spaces_know_theirs() {
    let machine = Machine::new("host");
    let host = "drm-resident-memory:\t4096";
    for (pid, spaces) in [
        (1000, [host, ""]),
        (1001, ["", host]),
        (1002, [host, host]),
        (1003, [host, "drm-resident-memory:\tmuch"]),
    ] {
        for (fd, line) in [3, 4].into_iter().zip(spaces) {
            let text = text_of(pid * 10 + fd, &[line]);
            machine
                .link(&format!("proc/{pid}/fd/{fd}"), "/dev/nvidia-uvm")
                .file(&format!("proc/{pid}/fdinfo/{fd}"), &text);
        }
    }
    let found = asked(&machine);
    let told = [1000, 1001, 1002, 1003].map(|pid| (found[&pid].host, found[&pid].ssd));
    assert_eq!(
        told,
        [(None, None), (None, None), (Some(8192), None), (None, None)]
    );
}

/// A process has a maximum where each of its VA spaces has one.
#[test]
fn a_maximum_is_of_all_va_spaces_of_a_process() {
    let machine = Machine::new("maximum");
    let of = |client, resident, max: &[&str]| text_of(client, &[&[resident][..], max].concat());
    let (resident, second) = (
        "nvidia-uvm-gpu1-resident:\t4096\nnvidia-uvm-gpu1-discarded:\t1024",
        "nvidia-uvm-gpu2-resident:\t0",
    );
    for (fd, text) in [
        (3, of(1, resident, &["nvidia-uvm-gpu1-max:\t8192"])),
        (4, of(2, resident, &["nvidia-uvm-gpu1-max:\t16384", second])),
        (5, of(3, second, &["nvidia-uvm-gpu2-max:\t4096"])),
    ] {
        machine
            .link(&format!("proc/1000/fd/{fd}"), "/dev/nvidia-uvm")
            .file(&format!("proc/1000/fdinfo/{fd}"), &text);
    }
    let found = asked(&machine).remove(&1000).unwrap();
    assert_eq!(found.resident, Some([(1, 8192), (2, 0)].into()));
    assert_eq!(found.discarded, Some([(1, 2048)].into()));
    assert_eq!(found.max, [(1, 24576)].into());
    assert_eq!(found.low, [].into());
}

/// Each VA space has a low of its own, and they are the process's together.
#[test]
fn a_low_is_the_sum_of_those_of_all_va_spaces() {
    let machine = Machine::new("low");
    let (first, second) = ("nvidia-uvm-gpu1-low:\t8192", "nvidia-uvm-gpu2-low:\t0");
    for (fd, lows) in [(3, &[first][..]), (4, &[first, second]), (5, &[])] {
        machine
            .link(&format!("proc/1000/fd/{fd}"), "/dev/nvidia-uvm")
            .file(&format!("proc/1000/fdinfo/{fd}"), &text_of(fd, lows));
    }
    let found = asked(&machine).remove(&1000).unwrap();
    assert_eq!(found.low, [(1, 16384), (2, 0)].into());
    assert_eq!(found.gpus, None, "it is no count");
}

#[test]
fn a_va_space_that_is_shared_counts_once() {
    let machine = Machine::new("shared");
    let text = text_of(
        3,
        &[
            "nvidia-uvm-gpu1-faults:\t50",
            "nvidia-uvm-tenant-ssd:\t4096",
        ],
    );
    for (pid, fd) in [(1000, 17), (1000, 18), (1001, 17)] {
        machine
            .link(&format!("proc/{pid}/fd/{fd}"), "/dev/nvidia-uvm")
            .file(&format!("proc/{pid}/fdinfo/{fd}"), &text);
    }
    let found = asked(&machine);
    assert_eq!(found[&1000].gpus.as_ref().unwrap()[&1].faults, 50);
    assert_eq!(found[&1001].gpus, None);
    assert_eq!(found[&1000].clients, [3].into());
    assert_eq!(found[&1001].clients, [].into());
    // This is the tenant's, whose both are.
    assert_eq!(
        (found[&1000].tenant_ssd, found[&1001].tenant_ssd),
        (Some(4096), Some(4096))
    );
}

#[test]
fn what_a_descriptor_does_not_say_is_not_known() {
    let theirs = "pos:\t0\nflags:\t02100002\n";
    let nothing_counted = text_of(3, &[]);
    let uninitialized = "pos:\t0\ndrm-driver:\tnvidia-uvm\n";
    // The descriptor has become another driver's since its link was read.
    let others = text_of(
        3,
        &["nvidia-uvm-gpu1-faults:\t50", "nvidia-uvm-tenant-ssd:\t1"],
    )
    .replace("drm-driver:\tnvidia-uvm", "drm-driver:\tother");
    let no_number = text_of(3, &[]).replace("id:\t3", "id:\tx") + "nvidia-uvm-gpu1-faults:\t50\n";
    for text in [theirs, &nothing_counted, uninitialized, &others, &no_number] {
        let machine = Machine::new("silent");
        machine
            .link("proc/1000/fd/17", "/dev/nvidia-uvm")
            .file("proc/1000/fdinfo/17", text);
        let found = asked(&machine).remove(&1000).unwrap();
        assert_eq!((found.gpus, found.tenant_ssd), (None, None), "{text}");
    }
    // It was closed meanwhile.
    let machine = Machine::new("closed");
    let user = User {
        pid: 1000,
        command: String::new(),
        descriptors: vec![17],
    };
    assert_eq!(fdinfo(&machine.root(), &[user])[&1000], FdInfo::default());
}

#[test]
fn what_is_no_device_is_not_opened() {
    let machine = Machine::new("node");
    machine.file("dev/nvidia-uvm", "");
    let opened = Linux(machine.root()).open().err();
    assert_eq!(opened, Some(NodeError::NotDevice));
    std::fs::remove_file(machine.0.join("dev/nvidia-uvm")).unwrap();
    machine.link("dev/nvidia-uvm", "/dev/null");
    let opened = Linux(machine.root()).open().err();
    assert_eq!(opened, Some(NodeError::Gone));
    machine.file("proc/devices", "Character devices:\n510 nvidia-uvm\n");
    let opened = Linux(machine.root()).open().err();
    assert_eq!(opened, Some(NodeError::Stale));
    // /dev/null's own number: it is opened, and knows nothing of UVM.
    machine.file("proc/devices", "Character devices:\n  1 nvidia-uvm\n");
    let opened = Linux(machine.root()).open().err();
    assert_eq!(opened, Some(NodeError::Stale), "its minor is 3");
}
