// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! In which order the lanes of `make test` begin.
//!
//! Two lanes run at a time. A long one that begins late runs alone at the end, while the other processor has nothing to
//! do. So the long ones begin first, and the short ones fill what is left.

use crate::part::{How, Part};

/// The lanes that take a minute or more, the longest first.
pub const LONGEST: &[&str] = &[
    "rust/flash",
    "rust/shares",
    "rust/hazards",
    "rust/flash-demo",
    "demo",
    "rust/odd-gpu",
    "rust/plans",
    "rust/ladder",
    "upstream/ladder",
    "rust/overlap",
    "rust/kselftest",
    "rust/trace",
    "rust/discard-two-gpus",
    "rust/thrashing",
    "rust/prefetch-overlap",
];

/// Puts what builds before all lanes, and of the lanes the longest first. Parts that are alike stay in their order.
pub fn longest_first(mut parts: Vec<Part>) -> Vec<Part> {
    parts.sort_by_key(|part| {
        let long = LONGEST.iter().position(|name| *name == part.name);
        (part.how == How::Lane, long.unwrap_or(LONGEST.len()))
    });
    parts
}
