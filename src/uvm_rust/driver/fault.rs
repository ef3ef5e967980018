// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The replayable-fault service loop of a GPU: `policy/fault.rs` on upstream's GPU.
//!
//! One [`FaultLoop`] per parent GPU, made and unmade with its fault buffer. The
//! bottom half calls [`FaultLoop::service`], a kernel thread that may sleep and
//! that holds the GPU's replayable-fault service lock throughout; that lock is
//! what makes `&mut self` exclusive. Below it the loop takes, one VA space at a
//! time, `mmap_lock` and the VA space's lock in read mode (`FaultGpu::enter`);
//! va_block locks and what is below them are taken and let go by upstream's code.
//!
//! Nothing is allocated while faults are serviced: the arrays are as long as the
//! ring from the start.

use crate::ffi::bindings::uvm_rust_fault_params;
use crate::ffi::fault::FaultGpu;
use crate::ffi::status::Status;
use crate::policy::fault::{Params, ReplayPolicy, Service};
use kernel::prelude::*;

/// The loop of one GPU.
pub(crate) struct FaultLoop(Service);

impl FaultLoop {
    /// For a GPU with these parameters.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(p: &uvm_rust_fault_params) -> Result<KBox<Self>> {
        let params = Params {
            ring: p.ring,
            max_batch: p.max_batch,
            utlbs: p.utlbs,
            policy: ReplayPolicy::from_number(p.policy),
            update_put_percent: p.update_put_percent,
            max_batches: p.max_batches,
            max_throttled: p.max_throttled,
            coalesce: p.coalesce != 0,
            cancels_by_address: p.cancels_by_address != 0,
        };
        let service = Service::new(params).map_err(|_| ENOMEM)?;
        Ok(KBox::new(Self(service), GFP_KERNEL)?)
    }

    /// Services what is in the ring. Returns an `NV_STATUS`.
    pub(crate) fn service(&mut self, gpu: &mut FaultGpu<'_>) -> u32 {
        self.0.run(gpu).err().map_or(0, Status::number)
    }
}
