// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Stands where the compiler looks for its run-time library. That of rust-src is not
//! needed: memcpy() and its like are the kernel's, and nothing here divides 128 bits.

#![feature(compiler_builtins)]
#![allow(internal_features)]
#![compiler_builtins]
#![no_builtins]
#![no_std]
