// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! /dev/nvidia-uvm: a descriptor of one's own, and what may be asked with it.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};

use serde::Serialize;
use uvmrust::uapi::{self, FlashStats, Stats, Version};
use uvmrust::{Backend, Sys, Uvm};

use crate::{gpus, Root, Uuid};

const PATH: &str = "/dev/nvidia-uvm";

/// Why /dev/nvidia-uvm does not serve.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeError {
    /// There is no such file.
    Missing,
    /// The file is no character device.
    NotDevice,
    /// It has a number that is not UVM's, as it was made for a module loaded before.
    Stale,
    /// This process may not open the device.
    Denied,
    /// The device is there, but no module answers.
    Gone,
    /// UVM does not take this process, and says why.
    Refused(String),
}

impl fmt::Display for NodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => write!(f, "{PATH} is not there"),
            Self::NotDevice => write!(f, "{PATH} is not a device"),
            Self::Stale => write!(f, "{PATH} has the number of another device"),
            Self::Denied => write!(f, "{PATH} may not be opened by this user"),
            Self::Gone => write!(f, "{PATH} has no driver behind it"),
            Self::Refused(why) => write!(f, "{PATH} refuses: {why}"),
        }
    }
}

/// Where UVM is opened; tests have their own.
pub trait Device: Send {
    /// A descriptor that is initialised, and closed when it is dropped.
    ///
    /// # Errors
    /// Why there is none.
    fn open(&self) -> Result<Box<dyn Descriptor>, NodeError>;
}

/// A descriptor of UVM that is this program's own: it has no memory there, and its only use
/// is to be asked.
pub trait Descriptor: Send {
    /// What our driver offers; `None`: it is not ours.
    ///
    /// # Errors
    /// The system's, as all here.
    fn version(&self) -> io::Result<Option<Version>>;

    /// Who would discard for a program here, but for CUDA itself.
    fn backend(&self) -> Backend;

    /// Registers a GPU, without which nothing is told of it. This starts the GPU, takes some
    /// MiB of its memory, and keeps both until it is taken back.
    ///
    /// # Errors
    /// Also NVIDIA's, in words.
    fn register(&mut self, gpu: Uuid) -> io::Result<()>;

    /// Takes that back.
    ///
    /// # Errors
    /// As above.
    fn unregister(&mut self, gpu: Uuid) -> io::Result<()>;

    /// What a registered GPU did for all processes. (What it did for this one is nothing.)
    ///
    /// # Errors
    /// EPERM: that is not for this user; ENODEV: it is not registered, or does not count.
    fn stats(&self, gpu: Uuid) -> io::Result<Stats>;

    /// What the SSD tier did.
    ///
    /// # Errors
    /// EOPNOTSUPP: it is off.
    fn flash(&self) -> io::Result<FlashStats>;
}

/// The real one, below a [`Root`].
#[derive(Debug)]
pub struct Linux(pub Root);

impl Device for Linux {
    fn open(&self) -> Result<Box<dyn Descriptor>, NodeError> {
        let path = self.0.path(PATH);
        let found = std::fs::metadata(&path).map_err(|error| node_error(&error))?;
        if !found.file_type().is_char_device() {
            return Err(NodeError::NotDevice);
        }
        let devices = self.0.text("/proc/devices").unwrap_or_default();
        let major = devices.lines().find_map(|line| {
            let (major, name) = line.trim().split_once(' ')?;
            (name == "nvidia-uvm").then(|| major.parse::<u32>().ok())?
        });
        let number = (libc::major(found.rdev()), libc::minor(found.rdev()));
        match major {
            None => return Err(NodeError::Gone),
            Some(major) if number != (major, 0) => return Err(NodeError::Stale),
            Some(_) => {}
        }
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_CLOEXEC)
            .open(&path)
            .map_err(|error| node_error(&error))?;
        let descriptor = Open {
            file,
            sys: uvmrust::Linux::new(),
            root: self.0.clone(),
            nodes: BTreeMap::new(),
        };
        let refused = |error: io::Error| NodeError::Refused(error.to_string());
        let mut init = Roomy::new(uapi::Initialize::default());
        descriptor
            .ask(uapi::UVM_INITIALIZE, &mut init)
            .and_then(|()| nvidia(init.params.status))
            .map_err(refused)?;
        Ok(Box::new(descriptor))
    }
}

fn node_error(error: &io::Error) -> NodeError {
    match error.kind() {
        io::ErrorKind::NotFound => NodeError::Missing,
        io::ErrorKind::PermissionDenied => NodeError::Denied,
        _ => match error.raw_os_error() {
            Some(libc::ENXIO | libc::ENODEV) => NodeError::Gone,
            _ => NodeError::Refused(error.to_string()),
        },
    }
}

struct Open {
    file: File,
    sys: uvmrust::Linux,
    root: Root,
    /// The /dev/nvidiaN of each GPU that is registered: NVIDIA's driver lets a process register only
    /// a GPU whose device it has open (`nv_is_gpu_accessible`; 0x1b otherwise).
    nodes: BTreeMap<Uuid, File>,
}

/// NVIDIA's numbers say nothing of the size of a structure: a driver whose structure has
/// grown may write behind ours.
#[repr(C)]
struct Roomy<T> {
    params: T,
    room: [u64; 64],
}

impl<T> Roomy<T> {
    fn new(params: T) -> Self {
        let room = [0; 64];
        Self { params, room }
    }
}

/// An rmStatus of NVIDIA's.
fn nvidia(status: u32) -> io::Result<()> {
    let why = match status {
        uapi::NV_OK => return Ok(()),
        uapi::NV_ERR_NO_MEMORY => "no memory",
        uapi::NV_ERR_INVALID_DEVICE => "no such GPU",
        uapi::NV_ERR_NOT_SUPPORTED => "not supported",
        uapi::NV_ERR_INSUFFICIENT_PERMISSIONS => "the GPU's /dev/nvidiaN is not open here",
        _ => return Err(io::Error::other(format!("NVIDIA's status {status:#x}"))),
    };
    Err(io::Error::other(why))
}

impl Open {
    /// One of the calls below, each with its structure.
    fn ask<T>(&self, number: u32, params: &mut T) -> io::Result<()> {
        let arg = std::ptr::from_mut(params).cast::<c_void>();
        // SAFETY: each caller below gives the structure of the number, or a longer one; none
        // of them points to anything, and none changes memory of this process.
        unsafe { self.sys.ioctl(self.file.as_raw_fd(), number, arg) }
            .map_err(io::Error::from_raw_os_error)
    }
}

impl Descriptor for Open {
    fn version(&self) -> io::Result<Option<Version>> {
        let mut version = Version {
            size: size_of::<Version>() as u32,
            ..Version::default()
        };
        match self.ask(uapi::GET_VERSION, &mut version) {
            Ok(()) => Ok(Some(version)),
            // NVIDIA's driver says ENOSYS of a number it does not know, or EINVAL where its tests
            // are on.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOSYS)) => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn backend(&self) -> Backend {
        let uvm = Uvm::new(uvmrust::Linux::new());
        uvm.use_fd(Some(self.file.as_raw_fd()));
        uvm.backend()
    }

    fn register(&mut self, gpu: Uuid) -> io::Result<()> {
        // Where it cannot be opened, UVM says what it thinks of that.
        let node = gpus::minor(&self.root, gpu).and_then(|minor| {
            let path = self.root.path(&format!("/dev/nvidia{minor}"));
            let mut open = OpenOptions::new();
            open.read(true).write(true).custom_flags(libc::O_CLOEXEC);
            open.open(path).ok()
        });
        if let Some(node) = node {
            self.nodes.insert(gpu, node);
        }
        let mut register = Roomy::new(uapi::RegisterGpu {
            gpu_uuid: gpu.0,
            rm_ctrl_fd: -1,
            ..Default::default()
        });
        let done = self
            .ask(uapi::UVM_REGISTER_GPU, &mut register)
            .and_then(|()| nvidia(register.params.status));
        if done.is_err() {
            self.nodes.remove(&gpu);
        }
        done
    }

    fn unregister(&mut self, gpu: Uuid) -> io::Result<()> {
        let mut unregister = Roomy::new(uapi::UnregisterGpu {
            gpu_uuid: gpu.0,
            status: 0,
        });
        self.ask(uapi::UVM_UNREGISTER_GPU, &mut unregister)?;
        self.nodes.remove(&gpu);
        nvidia(unregister.params.status)
    }

    fn stats(&self, gpu: Uuid) -> io::Result<Stats> {
        let mut stats = Stats {
            size: size_of::<Stats>() as u32,
            flags: uapi::STATS_WHOLE_GPU,
            gpu_uuid: gpu.0,
            ..Stats::default()
        };
        self.ask(uapi::GET_STATS, &mut stats)?;
        Ok(stats)
    }

    fn flash(&self) -> io::Result<FlashStats> {
        let mut stats = FlashStats {
            size: size_of::<FlashStats>() as u32,
            ..FlashStats::default()
        };
        self.ask(uapi::FLASH_GET_STATS, &mut stats)?;
        Ok(stats)
    }
}
