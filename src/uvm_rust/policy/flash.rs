// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The SSD tier: which pages of a va_block are on flash, and where.
//!
//! G10 (§4.5) extends the page table by entries that point to flash. Upstream's page tables cannot
//! hold such an entry, so each va_block has a table of its own beside them. To upstream a page on
//! flash is resident nowhere, and code that is about to populate a page asks here first.
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
//! - *host* stands for all states that upstream knows: in host memory, on GPUs, or untouched.
//! - *spilling*: in host memory, which counts, while a copy is being written to flash. Any use of the page ends this
//!   state, so no fault waits for a write.
//! - *flash*: on flash only. *reading*: on flash only, and being fetched.
//! - *lost*: the device did not give the page back, so that accesses to it fail. A page stays lost until it is freed
//!   or discarded, or its process ends: nothing is returned that was not written. *For now*: the device may still have
//!   the page, which keeps its place and is read again some time later.
//!
//! [`BlockPages`] is this state of one va_block. [`Table`] is the device: slots of 2 MiB and extents in them. No page
//! has two places that count, and no place two pages.
//! [`tier::Tier`] chooses whose pages are spilled, and [`pressure::Pressure`] when, and who waits for that; `pace.rs`
//! says how fast, and [`room`] what needs host memory. [`wants::Wants`] holds the pages that GPU faults wait for, and
//! [`asked`] reads them. [`arbiter::Arbiter`] chooses whose read or write of the device begins next, and [`wait`] is
//! how the others wait. [`pool::Pool`] lends the buffers of reads, and [`trim`] tells the device what it may forget.
//! [`moves`] moves ranges by call, and [`queue`] does so after the call.
//!
//! Locks: a va_block's lock protects its [`BlockPages`]. A [`Table`] has a lock of its own, inside that one, under
//! which nothing sleeps but allocations.

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
