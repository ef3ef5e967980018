// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The SSD tier of our driver.
#![allow(missing_docs)]

use std::ffi::CString;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::Path;

use uvm_uapi as uapi;

use crate::uvm::Uuid;
use crate::{ffi, Error, Process, Result};

/// What the SSD tier did; the header says what each means.
pub use uapi::uvm_rust_flash_stats as FlashStats;
use uapi::{
    uvm_rust_flash_attach as FlashAttach, uvm_rust_flash_detach as FlashDetach,
    uvm_rust_flash_move_range as FlashMove,
};
pub use uapi::{
    uvm_rust_flash_completion as FlashCompletion, uvm_rust_flash_reap as FlashReap,
    uvm_rust_flash_request as FlashRequest, uvm_rust_flash_submit as FlashSubmit,
    UVM_RUST_FLASH_AFTER as AFTER, UVM_RUST_FLASH_EVENT as EVENT, UVM_RUST_FLASH_FORCE as FORCE,
    UVM_RUST_FLASH_FROM_GPUS as FROM_GPUS, UVM_RUST_FLASH_NO_CHECKSUMS as NO_CHECKSUMS,
    UVM_RUST_FLASH_TO_GPU as TO_GPU, UVM_RUST_FLASH_TO_HOST as TO_HOST,
};

/// How a device is attached.
#[derive(Clone, Copy, Debug)]
pub struct Flash<'a> {
    pub path: &'a Path,
    /// Host memory above which pages are written to the device.
    pub host_bytes: u64,
    /// What a process may have there; 0 for all.
    pub quota_bytes: u64,
    pub flags: u32,
}

/// The name of the call that detaches.
const DETACH: &str = "UVM_RUST_FLASH_DETACH";

/// What that call takes.
fn detach() -> FlashDetach {
    FlashDetach {
        size: size_of::<FlashDetach>() as u32,
        flags: 0,
    }
}

impl Process {
    /// Attaches a device as SSD tier.
    pub fn flash_attach(&self, flash: Flash<'_>) -> Result<()> {
        let path = CString::new(flash.path.as_os_str().as_encoded_bytes())
            .map_err(|e| Error::os("path", e.into()))?;
        let mut attach = FlashAttach {
            size: size_of::<FlashAttach>() as u32,
            flags: flash.flags,
            path: path.as_ptr() as u64,
            host_bytes: flash.host_bytes,
            quota_bytes: flash.quota_bytes,
        };
        self.ask(
            "UVM_RUST_FLASH_ATTACH",
            uapi::UVM_RUST_FLASH_ATTACH,
            &mut attach,
        )
    }

    /// Brings all back from it and lets it go.
    pub fn flash_detach(&self) -> Result<()> {
        self.ask(DETACH, uapi::UVM_RUST_FLASH_DETACH, &mut detach())
    }

    /// The same, which the client does not repeat where the system is about to sleep: EAGAIN then.
    ///
    /// # Errors
    ///
    /// Those of the call.
    pub fn flash_detach_once(&self) -> Result<()> {
        let number = uapi::UVM_RUST_FLASH_DETACH;
        ffi::ioctl(self.uvm_fd(), number, &mut detach()).map_err(|e| Error::os(DETACH, e))
    }

    pub fn flash_stats(&self) -> Result<FlashStats> {
        let mut stats = FlashStats {
            size: size_of::<FlashStats>() as u32,
            ..Default::default()
        };
        self.ask(
            "UVM_RUST_FLASH_GET_STATS",
            uapi::UVM_RUST_FLASH_GET_STATS,
            &mut stats,
        )?;
        Ok(stats)
    }

    /// Moves a range from host memory to the device, or back.
    pub fn flash_move(&self, base: u64, length: u64, to_host: bool) -> Result<()> {
        let mut range = FlashMove {
            size: size_of::<FlashMove>() as u32,
            flags: u32::from(to_host),
            base,
            length,
            gpu_uuid: [0; 16],
        };
        self.ask("UVM_RUST_FLASH_MOVE", uapi::UVM_RUST_FLASH_MOVE, &mut range)
    }

    /// Moves a range from the device and from host memory to a GPU.
    pub fn flash_move_to_gpu(&self, base: u64, length: u64, gpu_uuid: Uuid) -> Result<()> {
        let mut range = FlashMove {
            size: size_of::<FlashMove>() as u32,
            flags: TO_GPU,
            base,
            length,
            gpu_uuid: gpu_uuid.0,
        };
        self.ask("UVM_RUST_FLASH_MOVE", uapi::UVM_RUST_FLASH_MOVE, &mut range)
    }

    /// Submits requests, with an event to signal; how many were taken.
    pub fn flash_submit(
        &self,
        requests: &[FlashRequest],
        event: Option<BorrowedFd<'_>>,
    ) -> Result<u32> {
        let mut submit = FlashSubmit {
            size: size_of::<FlashSubmit>() as u32,
            flags: if event.is_some() { EVENT } else { 0 },
            requests: requests.as_ptr() as u64,
            request_count: requests.len() as u32,
            request_size: size_of::<FlashRequest>() as u32,
            event_fd: event.map_or(0, |fd| fd.as_raw_fd()),
            ..Default::default()
        };
        self.ask(
            "UVM_RUST_FLASH_SUBMIT",
            uapi::UVM_RUST_FLASH_SUBMIT,
            &mut submit,
        )?;
        Ok(submit.taken)
    }

    /// Up to `most` completions, once `wait_for` are there or `wait_ms` are over; and how many requests are
    /// not done.
    pub fn flash_reap(
        &self,
        most: usize,
        wait_for: u32,
        wait_ms: u32,
    ) -> Result<(Vec<FlashCompletion>, u32)> {
        let mut completions = vec![FlashCompletion::default(); most];
        let mut reap = FlashReap {
            size: size_of::<FlashReap>() as u32,
            completions: completions.as_mut_ptr() as u64,
            completion_count: most as u32,
            completion_size: size_of::<FlashCompletion>() as u32,
            wait_for,
            wait_ms,
            ..Default::default()
        };
        self.ask("UVM_RUST_FLASH_REAP", uapi::UVM_RUST_FLASH_REAP, &mut reap)?;
        completions.truncate(reap.reaped as usize);
        Ok((completions, reap.pending))
    }
}
