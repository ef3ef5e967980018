// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What went wrong, in NVIDIA's numbers.

use crate::driver::discard::status;
use core::num::NonZeroU32;

/// An `NV_STATUS` other than `NV_OK`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Status(NonZeroU32);

impl Status {
    /// `NV_ERR_INVALID_STATE`: something was asked for that is not to be had there.
    pub(crate) const BROKEN: Self = Self(match NonZeroU32::new(status::INVALID_STATE) {
        Some(number) => number,
        None => NonZeroU32::MIN,
    });

    /// `NV_ERR_TIMEOUT`: what was waited for has not come.
    pub(crate) const TIMEOUT: Self = Self(match NonZeroU32::new(status::TIMEOUT) {
        Some(number) => number,
        None => NonZeroU32::MIN,
    });

    /// The status as a number; never 0.
    pub(crate) fn number(self) -> u32 {
        self.0.get()
    }

    /// The error that a status stands for which C returned; none for `NV_OK`.
    pub(crate) fn check(status: u32) -> Result<(), Self> {
        NonZeroU32::new(status).map_or(Ok(()), |s| Err(Self(s)))
    }
}
