// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! An address space of nvidia-uvm.ko, and UVM's calls on memory in it.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;

use crate::gpu::check;
use crate::uvm::{self, BareTest, Params, Uuid};
use crate::{ffi, Error, NvStatus, Result};

/// A process to UVM: one open /dev/nvidia-uvm. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Process(Arc<Files>);

#[derive(Debug)]
struct Files {
    uvm: File,
    /// Keeps UVM able to handle faults until the process has ended; without it
    /// there is no HMM.
    mm: Option<File>,
}

/// Opens minor `minor` of nvidia-uvm (0 the device, 1 the tools), and makes its
/// node if that is missing: the module makes none.
pub(crate) fn open_uvm(minor: u32) -> Result<File> {
    let path = ["/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"][minor as usize];
    let open = || OpenOptions::new().read(true).write(true).open(path);
    let missing = |e: &io::Error| {
        matches!(e.kind(), io::ErrorKind::NotFound) || e.raw_os_error() == Some(libc::ENXIO)
    };
    match open() {
        Err(e) if missing(&e) => {
            let devices = fs::read_to_string("/proc/devices").unwrap_or_default();
            let major = devices.lines().find_map(|line| {
                let (number, name) = line.trim().split_once(' ')?;
                (name == "nvidia-uvm")
                    .then(|| number.parse().ok())
                    .flatten()
            });
            let Some(major) = major else {
                let hint = "nvidia-uvm.ko is not loaded: load it, or run under `make vm`";
                return Err(Error::Missing(hint.into()));
            };
            // A node of a module loaded earlier may have had another number.
            let _ = fs::remove_file(path);
            ffi::mknod(path, major, minor).map_err(|e| Error::os(format!("mknod {path}"), e))?;
            open().map_err(|e| Error::os(format!("open {path}"), e))
        }
        other => other.map_err(|e| Error::os(format!("open {path}"), e)),
    }
}

/// Where one page is, by UVM_TEST_VA_RESIDENCY_INFO.
#[derive(Clone, Debug, Default)]
pub struct Residency {
    /// Processors that have a copy.
    pub resident: Vec<Uuid>,
    /// Processors that map it, with the kind of mapping (1 read, 2 write, 3
    /// atomic) and the size of the mapping in bytes.
    pub mapped: Vec<(Uuid, u32, u64)>,
    /// The CPU's node that has it, -1 if none.
    pub node: i32,
}

impl Residency {
    /// The kind of `processor`'s mapping, 0 if it has none.
    pub fn mapping(&self, processor: Uuid) -> u32 {
        self.mapped
            .iter()
            .find(|m| m.0 == processor)
            .map_or(0, |m| m.1)
    }
}

impl Process {
    /// A new address space, with HMM where the driver has it.
    pub fn new() -> Result<Self> {
        Self::with_flags(0)
    }

    /// One that several processes may share: it has no memory of a process', and no HMM.
    pub fn shared() -> Result<Self> {
        Self::with_flags(uvm::MULTI_PROCESS_SHARING_MODE)
    }

    fn with_flags(flags: u64) -> Result<Self> {
        let uvm = open_uvm(0)?;
        let mut init = uvm::Initialize {
            flags,
            ..Default::default()
        };
        ffi::uvm_ioctl(uvm.as_fd(), uvm::Initialize::NUMBER, &mut init)
            .map_err(|e| Error::os(uvm::Initialize::NAME, e))?;
        check(uvm::Initialize::NAME, init.status())?;

        let mm = open_uvm(0)?;
        let mut hold = uvm::MmInitialize {
            uvm_fd: uvm.as_raw_fd(),
            rm_status: 0,
        };
        ffi::uvm_ioctl(mm.as_fd(), uvm::MmInitialize::NUMBER, &mut hold)
            .map_err(|e| Error::os(uvm::MmInitialize::NAME, e))?;
        let mm = match hold.status() {
            NvStatus::NOTHING_TO_DO => None,
            status => check(uvm::MmInitialize::NAME, status).map(|()| Some(mm))?,
        };
        Ok(Self(Arc::new(Files { uvm, mm })))
    }

    /// The number behind `key` in /proc/self/fdinfo; `None` if it does not stand there.
    pub fn told(&self, key: &str) -> Result<Option<u64>> {
        let path = format!("/proc/self/fdinfo/{}", self.0.uvm.as_raw_fd());
        let text = fs::read_to_string(&path).map_err(|e| Error::os(format!("read {path}"), e))?;
        let mut lines = text.lines().filter_map(|line| line.split_once(':'));
        let value = lines.find(|(found, _)| *found == key);
        Ok(value.and_then(|(_, value)| value.trim().parse().ok()))
    }

    /// The open /dev/nvidia-uvm, which is this process to UVM.
    pub fn uvm_fd(&self) -> BorrowedFd<'_> {
        self.0.uvm.as_fd()
    }

    /// The file that keeps the memory of this process for UVM; a VA space that is shared has none.
    pub fn mm_fd(&self) -> Option<BorrowedFd<'_>> {
        self.0.mm.as_ref().map(AsFd::as_fd)
    }

    /// Makes a call that `layout` describes; what it answers is in `params`.
    pub(crate) fn ask<T: bytemuck::AnyBitPattern>(
        &self,
        name: &'static str,
        number: u32,
        params: &mut T,
    ) -> Result<()> {
        ffi::uvm_ioctl(self.uvm_fd(), number, params).map_err(|e| Error::os(name, e))
    }

    /// Makes one of UVM's calls.
    pub fn call<P: Params>(&self, params: &mut P) -> Result<()> {
        params
            .make(self.uvm_fd())
            .map_err(|e| Error::os(P::NAME, e))?;
        check(P::NAME, params.status())
    }

    /// Runs a test of NVIDIA's that takes nothing.
    pub fn run(&self, test: BareTest) -> Result<()> {
        let mut status = 0u32;
        ffi::uvm_ioctl(self.uvm_fd(), test.number, &mut status)
            .map_err(|e| Error::os(test.name, e))?;
        check(test.name, NvStatus(status))
    }

    /// Registers a GPU by its name, and nothing more.
    pub fn register_gpu(&self, gpu: Uuid) -> Result<()> {
        self.call(&mut uvm::RegisterGpu {
            gpu,
            rm_ctrl_fd: -1,
            ..Default::default()
        })
    }

    /// Takes a GPU back.
    pub fn unregister_gpu(&self, gpu: Uuid) -> Result<()> {
        self.call(&mut uvm::UnregisterGpu { gpu, rm_status: 0 })
    }

    /// How often a GPU is registered, by all processes.
    pub fn gpu_references(&self, gpu: Uuid) -> Result<u64> {
        let mut count = uvm::GetGpuRefCount {
            gpu,
            ..Default::default()
        };
        self.call(&mut count)?;
        Ok(count.ref_count)
    }

    /// Moves pages of managed memory to a processor, like cudaMemPrefetchAsync.
    pub fn migrate(&self, base: u64, length: u64, to: Uuid) -> Result<()> {
        self.migrate_with(base, length, to, -1)
    }

    /// Moves pages of managed or ordinary memory to a processor. HMM wants a node
    /// for the CPU (`node` 0) where managed memory takes any (-1).
    pub fn migrate_with(&self, base: u64, length: u64, to: Uuid, node: i32) -> Result<()> {
        self.call(&mut uvm::Migrate {
            base,
            length,
            destination: to,
            cpu_numa_node: node,
            ..Default::default()
        })
    }

    /// Reserves addresses for memory that RM allocates. Ordinary memory there is moved to the host, and stays there.
    pub fn create_external_range(&self, base: u64, length: u64) -> Result<()> {
        self.call(&mut uvm::CreateExternalRange {
            base,
            length,
            rm_status: 0,
        })
    }

    /// Advises where pages should stay.
    pub fn set_preferred_location(&self, base: u64, length: u64, location: Uuid) -> Result<()> {
        let cpu_numa_node = -1;
        self.call(&mut uvm::SetPreferredLocation {
            base,
            length,
            location,
            cpu_numa_node,
            rm_status: 0,
        })
    }

    /// Takes a preferred location back, if the range has one.
    pub fn unset_preferred_location(&self, base: u64, length: u64) -> Result<()> {
        self.call(&mut uvm::UnsetPreferredLocation {
            base,
            length,
            rm_status: 0,
        })
    }

    /// Asks for pages to be mapped on a processor wherever they are.
    pub fn set_accessed_by(&self, base: u64, length: u64, processor: Uuid) -> Result<()> {
        self.call(&mut uvm::SetAccessedBy {
            base,
            length,
            processor,
            rm_status: 0,
        })
    }

    /// Takes back that `processor` keeps a mapping of the range.
    pub fn unset_accessed_by(&self, base: u64, length: u64, processor: Uuid) -> Result<()> {
        self.call(&mut uvm::UnsetAccessedBy {
            base,
            length,
            processor,
            rm_status: 0,
        })
    }

    /// Lets pages that are only read have copies in several places, or not.
    pub fn read_duplication(&self, base: u64, length: u64, on: bool) -> Result<()> {
        if on {
            return self.call(&mut uvm::EnableReadDuplication {
                base,
                length,
                rm_status: 0,
            });
        }
        self.call(&mut uvm::DisableReadDuplication {
            base,
            length,
            rm_status: 0,
        })
    }

    /// A new range group.
    pub fn create_range_group(&self) -> Result<u64> {
        let mut create = uvm::CreateRangeGroup::default();
        self.call(&mut create)?;
        Ok(create.id)
    }

    /// Gives a range group up.
    pub fn destroy_range_group(&self, id: u64) -> Result<()> {
        self.call(&mut uvm::DestroyRangeGroup { id, rm_status: 0 })
    }

    /// Puts memory into a range group; 0 is none.
    pub fn set_range_group(&self, id: u64, base: u64, length: u64) -> Result<()> {
        self.call(&mut uvm::SetRangeGroup {
            id,
            base,
            length,
            rm_status: 0,
        })
    }

    /// Lets the pages of a range group move, or pins them where they are.
    pub fn range_group_may_move(&self, id: u64, may: bool) -> Result<()> {
        let mut ids = [0; 32];
        ids[0] = id;
        if may {
            return self.call(&mut uvm::AllowMigration {
                ids,
                count: 1,
                rm_status: 0,
            });
        }
        self.call(&mut uvm::PreventMigration {
            ids,
            count: 1,
            rm_status: 0,
        })
    }

    /// Where the page of `va` is.
    pub fn residency(&self, va: u64) -> Result<Residency> {
        let mut info = Box::new(uvm::VaResidencyInfo {
            lookup_address: va,
            ..Default::default()
        });
        self.call(&mut *info)?;
        let resident = info.resident_on[..info.resident_on_count as usize].to_vec();
        let mapped = (0..info.mapped_on_count as usize)
            .map(|i| (info.mapped_on[i], info.mapping_type[i], info.page_size[i]))
            .collect();
        Ok(Residency {
            resident,
            mapped,
            node: info.resident_nid,
        })
    }

    /// True if GPUs can reach ordinary memory (HMM).
    pub fn has_hmm(&self) -> Result<bool> {
        let mut params = uvm::PageableMemAccess::default();
        self.call(&mut params)?;
        Ok(params.supported != 0)
    }

    /// Allocates and frees all of a GPU's memory in chunks of `chunk_size` bytes,
    /// and gives the number of chunks it got. UVM is content with any number: whoever looks
    /// for a leak compares it with one from before.
    pub fn check_leak(&self, gpu: Uuid, chunk_size: u64) -> Result<u64> {
        let mut leak = uvm::PmmCheckLeak {
            gpu,
            chunk_size,
            alloc_limit: -1,
            ..Default::default()
        };
        self.call(&mut leak)?;
        Ok(leak.allocated)
    }
}
