// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The driver's structures that grow (`driver/params.rs`, `ffi/uaccess.rs`), as it reads and writes them, on the
//! host's user space, which ends where the caller's memory does.

#[path = "../../ffi"]
mod ffi {
    // What ffi.rs says of it too.
    #[allow(
        clippy::all,
        clippy::undocumented_unsafe_blocks,
        dead_code,
        missing_docs,
        non_camel_case_types,
        non_snake_case,
        non_upper_case_globals,
        unsafe_op_in_unsafe_fn
    )]
    pub(crate) mod bindings;
    #[allow(dead_code)]
    pub(crate) mod uaccess;
}
/// The system is always awake.
mod ioctl {
    pub(crate) fn awake<R>(f: impl FnOnce() -> super::Result<R>) -> super::Result<R> {
        f()
    }

    pub(crate) use awake as unsuspended;
}
#[path = "../../driver/params.rs"]
#[allow(dead_code)]
mod params;

use ffi::bindings::{uvm_rust_discard_range as Range, uvm_rust_version as Version};
use ffi::uaccess::{read_element, write_sized};
use kernel::prelude::*;
use kernel::testing::user_memory;
use params::read_sized;
use std::vec::Vec;

/// `UVM_RUST_VERSION_SIZE_V1`, and what the driver knows.
const VERSION: usize = 16;

/// A structure that says that it has `said` bytes, and has as many as `rest` and four.
fn sized(said: u32, rest: &[u8]) -> Vec<u8> {
    [&said.to_ne_bytes(), rest].concat()
}

fn version(user: &[u8]) -> (Result<(u32, u64, usize)>, Vec<u8>) {
    let memory = user_memory(user);
    let read = read_sized::<Version>(memory.address(), VERSION as u32);
    let read = read.map(|(v, size)| (v.version, v.features, size));
    (read, memory.bytes())
}

#[test]
fn what_is_not_known_must_be_zero() {
    for longer in [VERSION + 1, VERSION + 63, VERSION + 65, 4096] {
        let mut user = sized(longer as u32, &vec![0; longer - 4]);
        user[4] = 7;
        assert_eq!(version(&user), (Ok((7, 0, longer)), user.clone()));
        for at in [VERSION, longer - 1] {
            let mut unknown = user.clone();
            unknown[at] = 1;
            let (read, left) = version(&unknown);
            assert_eq!(read, Err(E2BIG), "byte {at} of {longer}");
            // The size is what the driver knows then, and nothing else has changed.
            unknown[..4].copy_from_slice(&(VERSION as u32).to_ne_bytes());
            assert_eq!(left, unknown);
        }
    }
}

#[test]
fn a_size_that_cannot_be_is_left_alone() {
    for (said, error) in [
        (0, EINVAL),
        (VERSION as u32 - 1, EINVAL),
        (4097, E2BIG),
        (u32::MAX, E2BIG),
        // Not all of it is there.
        (VERSION as u32 + 1, EFAULT),
    ] {
        let user = sized(said, &[1; VERSION - 4]);
        assert_eq!(version(&user), (Err(error), user.clone()), "{said}");
    }
    let user = [16, 0, 0];
    assert_eq!(version(&user), (Err(EFAULT), user.to_vec()));
}

/// An element of an array begins with what it is about: there is no size to correct.
#[test]
fn an_element_is_only_read() {
    for size in [24, 256] {
        let mut user = vec![0; size];
        user[..8].copy_from_slice(&0x1000u64.to_ne_bytes());
        user[8..16].copy_from_slice(&0x2000u64.to_ne_bytes());
        let read = |user: &[u8]| {
            let memory = user_memory(user);
            let range = read_element::<Range>(memory.address(), size);
            (range.map(|r| (r.base, r.length)), memory.bytes())
        };
        assert_eq!(read(&user), (Ok((0x1000, 0x2000)), user.clone()));
        for at in [16, size - 1] {
            let mut unknown = user.clone();
            unknown[at] = 1;
            assert_eq!(read(&unknown), (Err(E2BIG), unknown.clone()));
        }
        let short = &user[..size - 1];
        assert_eq!(read(short), (Err(EFAULT), short.to_vec()));
    }
}

#[test]
fn as_much_is_written_as_the_caller_has_room_for() {
    let value = Version {
        size: 99,
        version: 3,
        features: u64::MAX,
    };
    for size in [4, 8, VERSION, 64] {
        let memory = user_memory(&vec![0x5c; size]);
        assert_eq!(write_sized(memory.address(), value, size), Ok(()));
        let mut want = sized(VERSION as u32, &3u32.to_ne_bytes());
        want.extend([0xff; 8]);
        want.resize(size, 0x5c);
        assert_eq!(memory.bytes(), want, "{size} bytes");
    }
}
