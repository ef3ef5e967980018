// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The atomics of what threads share without a lock, where `tests/loom` builds it on loom's to run it under every
//! interleaving and with every order of memory: the arbiter, reclaim, and the lanes of the prefetcher.

pub(crate) use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
