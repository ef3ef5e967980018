// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Software GPUs: as a device, and as a part of a process.

use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::uvm::{self, Uuid};
use crate::vgpu::{self, Call};
use crate::{ffi, Error, Kernel, NvStatus, Process, Report, Result};

/// An open /dev/vgpu: a client of the software GPUs, without UVM.
#[derive(Clone, Debug)]
pub struct Vgpu(Arc<File>);

impl Vgpu {
    /// Opens /dev/vgpu; [`Error::Missing`] if there is none.
    pub fn open() -> Result<Self> {
        match OpenOptions::new().read(true).write(true).open("/dev/vgpu") {
            Ok(file) => Ok(Self(Arc::new(file))),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Err(Error::Missing(
                "no /dev/vgpu: load vgpu.ko, or run under `make vm`".into(),
            )),
            Err(e) => Err(Error::os("open /dev/vgpu", e)),
        }
    }

    /// The file, for tests of bad input.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    fn call<P: Call>(&self, params: &mut P) -> Result<()> {
        params.set_size();
        ffi::ioctl(self.fd(), P::NUMBER, params).map_err(|e| Error::os(P::NAME, e))
    }

    /// GPU number `gpu`, from 0. ENODEV beyond the last.
    pub fn info(&self, gpu: u32) -> Result<vgpu::Info> {
        let mut info = vgpu::Info::default();
        info.0.gpu = gpu;
        self.call(&mut info)?;
        Ok(info)
    }

    /// What GPU `gpu` did since vgpu.ko was loaded.
    pub fn stats(&self, gpu: u32) -> Result<vgpu::Stats> {
        let mut stats = vgpu::Stats {
            gpu,
            ..Default::default()
        };
        self.call(&mut stats)?;
        Ok(stats)
    }

    /// Makes something go wrong; see `struct vgpu_inject`.
    pub fn inject(&self, mut what: vgpu::Inject) -> Result<vgpu::Inject> {
        self.call(&mut what)?;
        Ok(what)
    }

    /// Gives up an address space or a channel.
    pub fn destroy(&self, handle: u32) -> Result<()> {
        self.call(&mut vgpu::Destroy {
            handle,
            ..Default::default()
        })
    }

    fn create_vaspace(&self, gpu: u32) -> Result<vgpu::VaspaceCreate> {
        let mut create = vgpu::VaspaceCreate {
            gpu,
            ..Default::default()
        };
        self.call(&mut create)?;
        Ok(create)
    }

    fn create_channel(&self, h_vaspace: u32) -> Result<vgpu::ChannelCreate> {
        let mut create = vgpu::ChannelCreate {
            h_vaspace,
            ..Default::default()
        };
        self.call(&mut create)?;
        Ok(create)
    }
}

/// A GPU of a process: registered with UVM, with an address space and a channel.
///
/// UVM takes it all back when the process's last handle on it goes.
#[derive(Debug)]
pub struct Gpu {
    process: Process,
    vgpu: Vgpu,
    index: u32,
    info: vgpu::Info,
    vaspace: VaSpace,
    channel: Channel,
}

/// Names of an address space.
#[derive(Clone, Copy, Debug)]
pub struct VaSpace {
    /// The handle of the open /dev/vgpu.
    pub h_client: u32,
    /// The handle of the address space, here and to UVM.
    pub h_vaspace: u32,
}

impl Process {
    /// Registers GPU number `index`, and makes an address space and a channel on it.
    pub fn gpu(&self, index: u32) -> Result<Gpu> {
        self.register_gpu(Vgpu::open()?.info(index)?.uuid())?;
        self.attach(index)
    }

    /// Makes an address space and a channel on a GPU that is registered.
    pub fn attach(&self, index: u32) -> Result<Gpu> {
        let vgpu = Vgpu::open()?;
        let info = vgpu.info(index)?;
        let space = vgpu.create_vaspace(index)?;
        self.call(&mut uvm::RegisterGpuVaspace {
            gpu: info.uuid(),
            rm_ctrl_fd: -1,
            h_client: space.h_client,
            h_vaspace: space.h_vaspace,
            rm_status: 0,
        })?;
        let vaspace = VaSpace {
            h_client: space.h_client,
            h_vaspace: space.h_vaspace,
        };
        let channel = Channel::new(self, &vgpu, &info, vaspace)?;
        Ok(Gpu {
            process: self.clone(),
            vgpu,
            index,
            info,
            vaspace,
            channel,
        })
    }
}

impl Gpu {
    /// Its number, from 0.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Its name to UVM.
    pub fn uuid(&self) -> Uuid {
        self.info.uuid()
    }

    /// What VGPU_GET_INFO told when the GPU was opened.
    pub fn info(&self) -> &vgpu::Info {
        &self.info
    }

    /// Whether users' copy engines fault, and so copy ([`Channel::copy`]).
    pub fn has_copies(&self) -> bool {
        self.info.personality == vgpu::PERSONALITY_TURING
    }

    /// The device behind it.
    pub fn device(&self) -> &Vgpu {
        &self.vgpu
    }

    /// The address space that its kernels use.
    pub fn vaspace(&self) -> VaSpace {
        self.vaspace
    }

    /// The channel that was made with the GPU.
    pub fn channel(&self) -> &Channel {
        &self.channel
    }

    /// What the device did since vgpu.ko was loaded, for all its users.
    pub fn stats(&self) -> Result<vgpu::Stats> {
        self.vgpu.stats(self.index)
    }

    /// Another channel, whose kernels run beside the first one's.
    pub fn new_channel(&self) -> Result<Channel> {
        Channel::new(&self.process, &self.vgpu, &self.info, self.vaspace)
    }

    /// Queues a kernel on the first channel.
    pub fn launch(&self, kernel: &Kernel) -> Result<Launch<'_>> {
        self.channel.launch(kernel)
    }

    /// Where the page tables lead for `va`; see `struct vgpu_translate`.
    pub fn translate(&self, va: u64) -> Result<vgpu::Translate> {
        let h_vaspace = self.vaspace.h_vaspace;
        let mut translate = vgpu::Translate {
            h_vaspace,
            va,
            ..Default::default()
        };
        self.vgpu.call(&mut translate)?;
        Ok(translate)
    }

    /// Makes UVM give up the 2 MiB chunk that backs `va`. False if nothing was
    /// evicted.
    pub fn evict(&self, va: u64) -> Result<bool> {
        let mut evict = uvm::EvictChunk {
            gpu: self.uuid(),
            mode: 2,
            address: va,
            ..Default::default()
        };
        self.process.call(&mut evict)?;
        Ok(evict.evicted != 0)
    }

    /// Makes UVM give up the chunk it would choose. False if there was none.
    pub fn evict_any(&self) -> Result<bool> {
        let mut evict = uvm::EvictChunk {
            gpu: self.uuid(),
            mode: 1,
            ..Default::default()
        };
        self.process.call(&mut evict)?;
        Ok(evict.evicted != 0)
    }

    /// Has the system sleep for so long, with all GPUs.
    pub fn suspend(&self, time: Duration) -> Result<()> {
        let done = self.device().inject(vgpu::Inject {
            gpu: self.index(),
            kind: vgpu::INJECT_SUSPEND,
            count: time.as_millis() as u64,
            ..Default::default()
        })?;
        check("VGPU_INJECT_SUSPEND", NvStatus(done.status))
    }

    /// Waits until UVM has handled all faults.
    pub fn drain_faults(&self) -> Result<()> {
        self.process.call(&mut uvm::DrainReplayableFaults {
            gpu: self.uuid(),
            timeout_ns: 20_000_000_000,
            ..Default::default()
        })
    }

    /// Takes channel, address space and GPU back from UVM, in this order.
    pub fn unregister(self) -> Result<()> {
        let (process, gpu) = (self.process.clone(), self.uuid());
        self.detach()?;
        process.call(&mut uvm::UnregisterGpu { gpu, rm_status: 0 })
    }

    /// Takes channel and address space back from UVM; the GPU stays registered.
    pub fn detach(self) -> Result<()> {
        let gpu = self.uuid();
        self.process.call(&mut uvm::UnregisterChannel {
            gpu,
            h_client: self.vaspace.h_client,
            h_channel: self.channel.handle,
            rm_status: 0,
        })?;
        self.process
            .call(&mut uvm::UnregisterGpuVaspace { gpu, rm_status: 0 })
    }
}

/// A queue of kernels on one GPU.
#[derive(Clone, Debug)]
pub struct Channel {
    vgpu: Vgpu,
    /// Which GPU it is on, from 0.
    gpu: u32,
    handle: u32,
}

impl Channel {
    fn new(process: &Process, vgpu: &Vgpu, info: &vgpu::Info, space: VaSpace) -> Result<Self> {
        let create = vgpu.create_channel(space.h_vaspace)?;
        process.call(&mut uvm::RegisterChannel {
            gpu: info.uuid(),
            rm_ctrl_fd: -1,
            h_client: create.h_client,
            h_channel: create.h_channel,
            ..Default::default()
        })?;
        Ok(Self {
            vgpu: vgpu.clone(),
            gpu: info.gpu,
            handle: create.h_channel,
        })
    }

    /// The handle of the channel, `h_channel`, here and to UVM.
    pub fn handle(&self) -> u32 {
        self.handle
    }

    fn copies_with(&self, count: u64, begin: u64) -> Result<Copies> {
        let told = self.vgpu.inject(vgpu::Inject {
            gpu: self.gpu,
            kind: vgpu::INJECT_COPY,
            handle: self.handle,
            count,
            begin,
            ..Default::default()
        })?;
        Ok(Copies {
            made: told.bytes,
            faults: told.status,
        })
    }

    /// Has the channel's copy engine add 1 to the 32-bit word at `va`, and returns without waiting for that. EBUSY: the last
    /// one is not over.
    pub fn copy(&self, va: u64) -> Result<Copies> {
        self.copies_with(1, va)
    }

    /// What the channel's copy engine has done so far.
    pub fn copies(&self) -> Result<Copies> {
        self.copies_with(0, 0)
    }

    /// Waits at most so long until the channel's copy engine has made `made` accesses; then the error is ETIMEDOUT.
    pub fn wait_for_copies(&self, made: u64, limit: Duration) -> Result<Copies> {
        self.wait_until(&format!("{made} copies"), limit, |copies| {
            copies.made >= made
        })
    }

    /// Waits at most so long until the channel's copy engine has faulted; then the error is ETIMEDOUT.
    pub fn wait_for_copy_fault(&self, limit: Duration) -> Result<Copies> {
        self.wait_until("a copy's fault", limit, |copies| copies.faults > 0)
    }

    fn wait_until(
        &self,
        what: &str,
        limit: Duration,
        holds: impl Fn(&Copies) -> bool,
    ) -> Result<Copies> {
        let start = Instant::now();
        loop {
            let copies = self.copies()?;
            if holds(&copies) {
                return Ok(copies);
            }
            if start.elapsed() >= limit {
                let late = std::io::Error::from_raw_os_error(libc::ETIMEDOUT);
                let name = format!("{what}, of which are {copies:?}");
                return Err(Error::os(name, late));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Queues a kernel, and returns without waiting for it.
    pub fn launch(&self, kernel: &Kernel) -> Result<Launch<'_>> {
        let mut submit = vgpu::Submit {
            h_channel: self.handle,
            op_count: kernel.ops.len() as u32,
            ops: kernel.ops.as_ptr() as u64,
            op_size: size_of::<vgpu::Op>() as u32,
            utlb_faults: kernel.utlb_faults,
            ..Default::default()
        };
        // The ops are only read, and only during the call.
        self.vgpu.call(&mut submit)?;
        Ok(Launch {
            channel: self,
            fence: submit.fence,
        })
    }
}

/// What a channel's copy engine has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copies {
    /// Accesses that are over.
    pub made: u64,
    /// Faults of accesses, none of which is replayed.
    pub faults: u32,
}

/// A kernel that was queued. Dropping it does not stop the kernel.
#[derive(Clone, Copy, Debug)]
pub struct Launch<'a> {
    channel: &'a Channel,
    fence: u64,
}

/// How long a kernel may take, for a driver that may never let it end (scripts/mutants.sh).
fn patience_ns() -> u64 {
    static PATIENCE: OnceLock<u64> = OnceLock::new();
    *PATIENCE.get_or_init(|| {
        let seconds = std::env::var("VGPU_PATIENCE").ok();
        let seconds = seconds.and_then(|text| text.parse::<u64>().ok());
        seconds.map_or(vgpu::TIMEOUT_NEVER, |s| s.saturating_mul(1_000_000_000))
    })
}

impl Launch<'_> {
    /// The fence that names it.
    pub fn fence(&self) -> u64 {
        self.fence
    }

    /// Waits for its end, as long as it takes, or for the seconds that the environment's `VGPU_PATIENCE` names; then
    /// the error is ETIMEDOUT.
    pub fn wait(&self) -> Result<Report> {
        loop {
            match self.wait_ns(patience_ns()) {
                Err(e) if e.errno() == Some(libc::EINTR) => {}
                done => return done,
            }
        }
    }

    /// Waits for its end at most so long; then the error is ETIMEDOUT.
    pub fn wait_for(&self, limit: Duration) -> Result<Report> {
        self.wait_ns(u64::try_from(limit.as_nanos()).unwrap_or(vgpu::TIMEOUT_NEVER))
    }

    fn wait_ns(&self, timeout_ns: u64) -> Result<Report> {
        let mut wait = vgpu::Wait {
            h_channel: self.channel.handle,
            fence: self.fence,
            timeout_ns,
            ..Default::default()
        };
        self.channel.vgpu.call(&mut wait)?;
        Ok(Report::from_wait(&wait))
    }
}

impl vgpu::Info {
    /// The name, for people.
    pub fn name(&self) -> String {
        let name = self.name.map(|c| c as u8);
        let end = name.iter().position(|&b| b == 0).unwrap_or(name.len());
        String::from_utf8_lossy(&name[..end]).into_owned()
    }

    /// The UUID by which UVM knows the GPU.
    pub fn uuid(&self) -> Uuid {
        Uuid(self.uuid)
    }

    /// Bits of an address that the GPU's page tables translate.
    pub fn va_bits(&self) -> u32 {
        match self.personality {
            vgpu::PERSONALITY_HOPPER | vgpu::PERSONALITY_BLACKWELL => 57,
            _ => 49,
        }
    }

    /// Bytes of GPU memory that UVM can have.
    pub fn usable_bytes(&self) -> u64 {
        self.vidmem_bytes - self.reserved_bytes
    }
}

/// Turns an rmStatus into a result.
pub(crate) fn check(call: &'static str, status: NvStatus) -> Result<()> {
    match status {
        NvStatus::OK => Ok(()),
        status => Err(Error::Uvm { call, status }),
    }
}
