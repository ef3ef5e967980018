// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The SSD tier: which pages of a va_block are on flash, and where.
//!
//! G10 (§4.5) extends the page table by entries that point to flash. Upstream's page
//! tables cannot hold such an entry, so it stands beside them, for each va_block: to
//! upstream a page on flash is resident nowhere, and whoever is about to populate it
//! asks here first.
//!
//! ```text
//!                  begin_spill                 end_spill
//!     ┌── host ─────────────────▶ spilling ─────────────────┐
//!     │    ▲ ▲                       │                      ▼
//!  forget  │ └─────── touched ───────┘                    flash ──── forget ──▶ (nowhere)
//!     │    │                                                │
//!     ▼    └──────────── end_read ─────── reading ◀─────────┘
//! (nowhere)                                 │        begin_read
//!                                           ├── put_off ──▶ lost, for now ── read_again ──▶ flash
//!                                           └── end_read, failed ──▶ lost
//! ```
//!
//! - *host* stands for all that upstream knows: host memory, GPUs, or untouched.
//! - *spilling*: in host memory, which counts, while a copy is on its way to flash. Any
//!   use of the page ends this state, so no fault waits for a write.
//! - *flash*: only there. *reading*: the same, while it is being fetched.
//! - *lost*: the device did not give the page back, so that whoever uses it fails. It stays so until it is freed,
//!   discarded, or its process ends: nothing is returned that was not written. *For now*: the device may have the page
//!   still. It keeps its place, and is read again some time later.
//!
//! [`BlockPages`] is this state of one va_block, [`Table`] the device: slots of 2 MiB
//! and extents in them. No page has two places that count, and no place two pages.
//! [`tier::Tier`] says whose pages are spilled, [`pressure::Pressure`] when, and who waits for that;
//! `pace.rs` how fast, [`room`] with what. [`wants::Wants`] is what GPU faults wait for, and [`asked`] reads it.
//! [`arbiter::Arbiter`] says whose read or write of the device begins next, [`wait`] has those wait who are not, [`pool::Pool`] has what reads are made with, and [`trim`] what the device may forget.
//! [`moves`] is what is moved by call, and [`queue`] who is asked to and does it later.
//!
//! Locks: a [`BlockPages`] is protected by its va_block's lock, a [`Table`] by one of
//! its own that is taken inside that and under which nothing sleeps but allocations.

pub mod arbiter;
pub mod asked;
pub mod block;
pub mod cause;
pub mod drain;
pub mod fetch;
pub mod list;
pub mod moves;
mod owed;
pub mod pace;
pub mod pool;
pub mod pressure;
pub mod probe;
pub mod queue;
pub mod room;
pub mod spill;
pub mod split;
pub mod table;
pub mod tier;
pub mod trim;
pub mod turn;
pub mod wait;
pub mod wants;

pub use block::{BlockPages, Read, ReadError, Spill};
pub use table::{Config, Error, Move, Piece, Place, Table};

#[cfg(test)]
mod tests;
