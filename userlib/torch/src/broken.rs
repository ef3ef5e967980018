// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Fixes that can be taken out, to see that the random programs notice
//! (`userlib/random`): by `RUSTFLAGS='--cfg broken="1"'`, which no feature gives.

/// Work is put into the stream of the device that is current.
pub(crate) const DEVICE: bool = cfg!(broken = "2");
