// SPDX-License-Identifier: GPL-2.0 OR MIT

//! What went wrong, in NVIDIA's numbers.

use core::num::NonZeroU32;

/// An `NV_STATUS` other than `NV_OK`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Status(NonZeroU32);

impl Status {
    /// The status as a number; never 0.
    pub(crate) fn number(self) -> u32 {
        self.0.get()
    }

    /// The error that a status stands for which C returned; none for `NV_OK`.
    pub(super) fn check(status: u32) -> Result<(), Self> {
        NonZeroU32::new(status).map_or(Ok(()), |s| Err(Self(s)))
    }
}
