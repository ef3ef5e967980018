// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Fixes that can be taken out, to see that the random programs notice
//! (`userlib/random`): by `RUSTFLAGS='--cfg broken="1"'`, which no feature gives.

/// Nobody looks whether a stream is being captured.
pub(crate) const CAPTURE: bool = cfg!(broken = "1");
/// A discard in the legacy stream is done in the thread's own, without events.
pub(crate) const LEGACY: bool = cfg!(broken = "4");
/// A batch of prefetches ends with its first range.
pub(crate) const BATCH: bool = cfg!(broken = "5");
/// A discard is CUDA's own, behind which a stream does not wait.
pub(crate) const DISCARD: bool = cfg!(broken = "7");
/// A call is made in whichever context is current, not in its stream's.
pub(crate) const CONTEXT: bool = cfg!(broken = "6");
