// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! A process whose memory has a model, and what may be done to it: of `random`, and of each process of `mix`.

mod area;
mod discard;
mod ever;
mod history;
mod placement;
mod program;
mod values;

pub use area::{Area, Span, Wrong, PAGE_WORDS};
pub use program::{Done, Kind, Memory, Program, Setup};
pub use values::Values;
