// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What is asked of a driver, and when.

use std::io;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use uvmrust_system::{Descriptor, Device, NodeError, Root, Uuid};

use super::fake::T4;
use crate::live::Live;
use crate::sample::Source;

/// What a driver was asked, and what it says.
#[derive(Default)]
struct Said {
    log: Vec<&'static str>,
    /// The errno with which a request for statistics fails.
    error: Option<i32>,
    node: Option<NodeError>,
    faults: u64,
    flash: uvmrust::uapi::FlashStats,
}

#[derive(Clone, Default)]
struct Fake(Arc<Mutex<Said>>);

impl Device for Fake {
    fn open(&self) -> Result<Box<dyn Descriptor>, NodeError> {
        self.0.lock().unwrap().log.push("open");
        match self.0.lock().unwrap().node.clone() {
            Some(error) => Err(error),
            None => Ok(Box::new(self.clone())),
        }
    }
}

impl Descriptor for Fake {
    fn version(&self) -> io::Result<Option<uvmrust::uapi::Version>> {
        Ok(None)
    }
    fn backend(&self) -> uvmrust::Backend {
        uvmrust::Backend::None
    }
    fn register(&mut self, gpu: Uuid) -> io::Result<()> {
        assert_eq!(gpu.to_string(), T4);
        self.0.lock().unwrap().log.push("register");
        Ok(())
    }
    fn unregister(&mut self, _: Uuid) -> io::Result<()> {
        self.0.lock().unwrap().log.push("unregister");
        Ok(())
    }
    fn stats(&self, _: Uuid) -> io::Result<uvmrust::uapi::Stats> {
        let said = self.0.lock().unwrap();
        match said.error {
            Some(error) => Err(io::Error::from_raw_os_error(error)),
            None => Ok(uvmrust::uapi::Stats {
                faults: said.faults,
                ..Default::default()
            }),
        }
    }
    fn flash(&self) -> io::Result<uvmrust::uapi::FlashStats> {
        match self.0.lock().unwrap().flash {
            stats if stats.slots == 0 => Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP)),
            stats => Ok(stats),
        }
    }
}

struct Machine {
    folder: PathBuf,
    fake: Fake,
    live: Live,
}

impl Machine {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("uvmtop-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        let fake = Fake::default();
        let live = Live::with(Root::new(&folder), Box::new(fake.clone()), 1);
        let machine = Self { folder, fake, live };
        machine.file("sys/module/nvidia_uvm/parameters/uvm_rust_stats", "Y\n");
        machine.file(
            "proc/driver/nvidia/gpus/0000:3b:00.0/information",
            &format!("Model: Tesla T4\nGPU UUID: {T4}\n"),
        );
        machine
    }

    fn file(&self, path: &str, text: &str) {
        let path = self.folder.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// UVM shows the GPU, registered so often; 0: it does not.
    fn registered(&self, times: u32) {
        let gpus = self.folder.join("proc/driver/nvidia-uvm/gpus");
        let _ = std::fs::remove_dir_all(&gpus);
        if times > 0 {
            let info = format!("proc/driver/nvidia-uvm/gpus/UVM-{T4}/0/info");
            self.file(&info, &format!("retained_count    {times}\n"));
            symlink(format!("UVM-{T4}/0"), gpus.join("1")).unwrap();
        }
    }

    fn log(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.fake.0.lock().unwrap().log)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn a_gpu_is_registered_while_somebody_else_has_it() {
    let mut machine = Machine::new("registered");
    let sample = machine.live.sample();
    assert_eq!((sample.gpus.len(), sample.gpus[0].counts), (1, None));
    assert_eq!(
        machine.log(),
        ["open"],
        "a GPU that nobody uses is left asleep"
    );

    machine.registered(1);
    machine.fake.0.lock().unwrap().faults = 7;
    let sample = machine.live.sample();
    assert_eq!(sample.gpus[0].counts.unwrap().faults, 7);
    assert_eq!(machine.log(), ["register"]);

    machine.registered(2);
    assert!(machine.live.sample().gpus[0].counts.is_some());
    assert_eq!(machine.log(), [""; 0]);

    machine.registered(1);
    assert!(machine.live.sample().gpus[0].counts.is_none());
    assert_eq!(machine.log(), ["unregister"], "only this program had it");

    machine.registered(0);
    machine.live.sample();
    machine.registered(1);
    assert!(machine.live.sample().gpus[0].counts.is_some());
    assert_eq!(machine.log(), ["register"], "somebody came");
}

#[test]
fn who_may_not_see_others_keeps_no_gpu() {
    let mut machine = Machine::new("denied");
    machine.registered(1);
    machine.fake.0.lock().unwrap().error = Some(libc::EPERM);
    let sample = machine.live.sample();
    assert!(sample.gpus[0].counts.is_none());
    assert!(
        sample.notes[0].contains("uvm_rust_stats_public=1"),
        "{:?}",
        sample.notes
    );
    assert_eq!(machine.log(), ["open", "register", "unregister"]);
    let sample = machine.live.sample();
    assert!(sample.notes[0].contains("uvm_rust_stats_public=1"));
    assert_eq!(machine.log(), [""; 0], "it is not tried again");
}

#[test]
fn errors_are_said() {
    for (error, says) in [
        (libc::EOPNOTSUPP, "uvm_rust_stats=0"),
        (libc::ENODEV, "does not count"),
        (libc::EIO, "cannot be asked"),
    ] {
        let mut machine = Machine::new("errors");
        machine.registered(1);
        machine.fake.0.lock().unwrap().error = Some(error);
        let notes = machine.live.sample().notes;
        assert!(notes.len() == 1 && notes[0].contains(says), "{notes:?}");
    }
    let mut machine = Machine::new("node");
    machine.fake.0.lock().unwrap().node = Some(NodeError::Denied);
    let sample = machine.live.sample();
    assert_eq!(sample.device, Some(NodeError::Denied));
    assert!(
        sample.notes[0].contains("uvmrun --check"),
        "{:?}",
        sample.notes
    );
    // It may be mended meanwhile.
    machine.fake.0.lock().unwrap().node = None;
    assert_eq!(machine.live.sample().device, None);
    assert_eq!(machine.log(), ["open", "open"]);
}

#[test]
fn nvidias_module_is_asked_nothing() {
    let mut machine = Machine::new("theirs");
    machine.registered(1);
    machine.live.sample();
    assert_eq!(machine.log(), ["open", "register"]);
    // It took the place of ours meanwhile.
    std::fs::remove_dir_all(machine.folder.join("sys/module/nvidia_uvm/parameters")).unwrap();
    let sample = machine.live.sample();
    assert!(
        sample.notes[0].contains("NVIDIA's own"),
        "{:?}",
        sample.notes
    );
    assert!(sample.gpus[0].counts.is_none());
    std::fs::remove_dir_all(machine.folder.join("sys")).unwrap();
    let sample = machine.live.sample();
    assert!(sample.notes[0].contains("not loaded"), "{:?}", sample.notes);
    assert_eq!(machine.log(), [""; 0]);
}

#[test]
fn the_ssd_is_shown_as_far_as_it_is_told() {
    let mut machine = Machine::new("ssd");
    assert_eq!(machine.live.sample().ssd, None);
    machine.fake.0.lock().unwrap().flash = uvmrust::uapi::FlashStats {
        attached: 1,
        slots: 4,
        pages_mine: 2,
        ..Default::default()
    };
    let ssd = machine.live.sample().ssd.unwrap();
    assert_eq!((ssd.bytes, ssd.bytes_mine, ssd.all), (8 << 20, 8192, None));
    machine.fake.0.lock().unwrap().flash.free_slots = 3;
    machine.fake.0.lock().unwrap().flash.pages = 5;
    let all = machine.live.sample().ssd.unwrap().all.unwrap();
    assert_eq!(all.bytes_used, 5 * 4096);
}

#[test]
fn processes_are_those_with_a_descriptor_and_those_that_are_counted() {
    let mut machine = Machine::new("processes");
    // It has the number of one that opened UVM, gave its descriptor away, and ended.
    machine.file("proc/50/comm", "another\n");
    machine.file("proc/60/comm", "tool\n");
    machine.file("proc/60/fd/x", "");
    symlink("/dev/nvidia-uvm", machine.folder.join("proc/60/fd/3")).unwrap();
    machine.file(
        "sys/kernel/debug/nvidia-uvm/processes",
        "process 50 gpu-1\nfaults 9\nprocess 1 gpu-1\nfaults 1\n",
    );
    let processes = machine.live.sample().processes;
    let names: Vec<_> = processes.iter().map(|p| (p.pid, &*p.command)).collect();
    assert_eq!(names, [(50, "(ended)"), (60, "tool")]);
    assert_eq!(processes[0].gpus.as_ref().unwrap()[&1].faults, 9);
    assert_eq!(processes[1].gpus, None);
}

#[test]
fn without_debugfs_descriptors_say_what_their_process_did() {
    let mut machine = Machine::new("fdinfo");
    machine.file("proc/60/comm", "train\n");
    std::fs::create_dir_all(machine.folder.join("proc/60/fd")).unwrap();
    symlink("/dev/nvidia-uvm", machine.folder.join("proc/60/fd/3")).unwrap();
    machine.file(
        "proc/60/fdinfo/3",
        "drm-driver:\tnvidia-uvm\ndrm-client-id:\t3\nnvidia-uvm-tenant-ssd:\t4096\nnvidia-uvm-gpu1-faults:\t50\nnvidia-uvm-gpu1-resident:\t2097152\nnvidia-uvm-gpu1-low:\t4096\n\
         drm-resident-memory:\t8192\nnvidia-uvm-ssd:\t12288\n",
    );
    let on_gpu = |machine: &mut Machine| machine.live.sample().processes.remove(0).bytes_gpu;
    assert_eq!(on_gpu(&mut machine), Some([(1, 2 << 20)].into()));
    let process = machine.live.sample().processes.remove(0);
    let off_gpu = (process.bytes_host, process.bytes_ssd);
    assert_eq!(off_gpu, (Some(8192), Some(12288)));
    let max = |machine: &mut Machine| machine.live.sample().processes.remove(0).bytes_gpu_max;
    assert_eq!(max(&mut machine), [].into());
    let low = |machine: &mut Machine| machine.live.sample().processes.remove(0).bytes_gpu_low;
    assert_eq!(low(&mut machine), [(1, 4096)].into());
    let told = |machine: &mut Machine| {
        let process = machine.live.sample().processes.remove(0);
        let faults = process.gpus.map(|gpus| gpus[&1].faults);
        (process.pid, faults, process.bytes_ssd_tenant)
    };
    assert_eq!(told(&mut machine), (60, Some(50), Some(4096)));
    let clients = |machine: &mut Machine| machine.live.sample().processes.remove(0).clients;
    assert_eq!(clients(&mut machine), [3].into());
    // For root debugfs tells, and the tenant's bytes and the VA spaces are not there.
    let debugfs = "sys/kernel/debug/nvidia-uvm/processes";
    machine.file(debugfs, "process 60 gpu-1\nfaults 9\n");
    assert_eq!(told(&mut machine), (60, Some(9), Some(4096)));
    assert_eq!(clients(&mut machine), [3].into());
    assert_eq!(on_gpu(&mut machine), Some([(1, 2 << 20)].into()));
    machine.file(debugfs, "");
    assert_eq!(told(&mut machine), (60, None, Some(4096)));
}
