// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What most files want: `use kernel::prelude::*`.

pub use crate::alloc::{flags::*, KBox, KVVec, KVec};
pub use crate::error::{code::*, Error, Result};
pub use crate::init::PinInit;
pub use crate::{pin_data, pin_init, pr_err, pr_info, pr_warn};
pub use core::ffi::{c_int, c_long, c_uint, c_ulong, c_void};
pub use core::pin::Pin;
