// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Samples that are made up, and what is shown of them; and a driver that is made up, and
//! what samples of it are.

#![allow(clippy::unwrap_used)]

mod fake;
mod live;
mod pages;
