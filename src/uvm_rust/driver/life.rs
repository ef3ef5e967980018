// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What there is as long as the module is. It goes in `ffi/life.rs`, in any case.

use super::discard::status;
use super::{evict, quota};
use crate::ffi::{alarm, flash, prefetch, tenant};
use kernel::prelude::*;

/// The module begins. Returns an `NV_STATUS`.
pub(crate) fn init() -> u32 {
    let begun = || -> Result {
        evict::choose_policy()?;
        quota::check_parameters()?;
        tenant::init()?;
        prefetch::WORKERS.make(c"uvm_rust_prefetch", 0)?;
        alarm::RINGERS.make_urgent(c"uvm_rust_alarm")?;
        flash::init();
        Ok(())
    };
    match begun() {
        Ok(()) => status::OK,
        Err(failed) if failed == EINVAL => status::INVALID_ARGUMENT,
        Err(_) => status::NO_MEMORY,
    }
}
