// SPDX-License-Identifier: GPL-2.0 OR MIT

//! What a training step costs on a machine, under a policy.
//!
//! Two models of the machine: [`g10`] follows the rules of the G10 artifact,
//! its bugs included, so that its published numbers can be reproduced.

pub mod g10;
