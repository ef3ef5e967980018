// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Structures that grow: copied from and to user space by the size that the
//! caller states in their first field (see `include/uapi/uvm_rust_ioctl.h`).

use super::bindings;
use core::mem::{size_of, MaybeUninit};
use kernel::prelude::*;
use kernel::uaccess::UserSlice;

/// A structure of the uAPI: `repr(C)`, has no padding, any bytes make a valid one,
/// and it starts with its size as a `u32`, unless it is an element of an array.
///
/// # Safety
///
/// The type is all of that.
pub(crate) unsafe trait Sized32: Copy {}

// SAFETY: bindgen made it from the uAPI header: integers only, size first, and
// the sizes that `driver::ioctl` asserts leave no room for padding.
unsafe impl Sized32 for bindings::uvm_rust_version {}
// SAFETY: as above; its arrays hold integers and pairs of u64.
unsafe impl Sized32 for bindings::uvm_rust_stats {}

// SAFETY: as above.
unsafe impl Sized32 for bindings::uvm_rust_discard_batch {}
// SAFETY: two u64. An element of an array, read by `read_element` only.
unsafe impl Sized32 for bindings::uvm_rust_discard_range {}

// SAFETY: as for the version.
unsafe impl Sized32 for bindings::uvm_rust_announce {}
// SAFETY: as for the version.
unsafe impl Sized32 for bindings::uvm_rust_prefetch_stats {}
// SAFETY: as for the version.
unsafe impl Sized32 for bindings::uvm_rust_quota {}
// SAFETY: as for `uvm_rust_version`, all four.
unsafe impl Sized32 for bindings::uvm_rust_flash_attach {}
// SAFETY: as above.
unsafe impl Sized32 for bindings::uvm_rust_flash_detach {}
// SAFETY: as above.
unsafe impl Sized32 for bindings::uvm_rust_flash_stats {}
// SAFETY: as above.
unsafe impl Sized32 for bindings::uvm_rust_flash_move_range {}
// SAFETY: as above.
unsafe impl Sized32 for bindings::uvm_rust_flash_submit {}
// SAFETY: as above.
unsafe impl Sized32 for bindings::uvm_rust_flash_reap {}
// SAFETY: integers, of a size that leaves no room for padding. An element of an array, read by `read_element` only.
unsafe impl Sized32 for bindings::uvm_rust_flash_request {}
// SAFETY: as above, written by `write_element` only.
unsafe impl Sized32 for bindings::uvm_rust_flash_completion {}

/// Reads a structure from `arg`, of which the caller has `size` bytes. What the
/// caller's is too short for is zero. Nothing is written.
///
/// # Errors
///
/// `EFAULT` where the memory cannot be read, `E2BIG` if bytes that this driver does
/// not know are not zero.
pub(crate) fn read_element<T: Sized32>(arg: usize, size: usize) -> Result<T> {
    let known = size.min(size_of::<T>());
    let mut reader = UserSlice::new(arg, size).reader();
    let mut value = MaybeUninit::<T>::zeroed();
    // SAFETY: `value` is zeroed memory of `size_of::<T>()` bytes, at least
    // `known`, with no other reference to it.
    let buf = unsafe { core::slice::from_raw_parts_mut(value.as_mut_ptr().cast::<u8>(), known) };
    reader.read_slice(buf)?;
    while !reader.is_empty() {
        let mut rest = [0u8; 64];
        let n = reader.len().min(rest.len());
        let chunk = rest.get_mut(..n).ok_or(EINVAL)?;
        reader.read_slice(chunk)?;
        if chunk.iter().any(|b| *b != 0) {
            return Err(E2BIG);
        }
    }
    // SAFETY: zeroed, then partly overwritten; any bytes make a valid `Sized32`.
    Ok(unsafe { value.assume_init() })
}

/// The first `known` bytes of a structure, or all of them.
fn bytes_of<T: Sized32>(value: &T, known: usize) -> &[u8] {
    let known = known.min(size_of::<T>());
    // SAFETY: `value` is initialised and, being `Sized32`, without padding; it has so many bytes.
    unsafe { core::slice::from_raw_parts(core::ptr::from_ref(value).cast(), known) }
}

/// Writes as much of `value` to `arg` as the caller's `size` has room for, with
/// its first field set to the size that this driver knows.
///
/// # Errors
///
/// `EFAULT` where the memory cannot be written.
pub(crate) fn write_sized<T: Sized32>(arg: usize, value: T, size: usize) -> Result {
    write_with_size(arg, value, size, size_of::<T>() as u32)
}

/// The same, but with its first field set to `first`.
///
/// # Errors
///
/// `EFAULT` where the memory cannot be written.
pub(crate) fn write_with_size<T: Sized32>(arg: usize, value: T, size: usize, first: u32) -> Result {
    let known = size.min(size_of::<T>());
    let mut writer = UserSlice::new(arg, known).writer();
    let (_, rest) = bytes_of(&value, known).split_at_checked(4).ok_or(EINVAL)?;
    writer.write_slice(&first.to_ne_bytes())?;
    writer.write_slice(rest)
}

/// Writes `value` to `arg`, where the caller has `size` bytes for it: what it is too short for is left out, and
/// what is behind its end is set to 0.
///
/// # Errors
///
/// `EFAULT` where the memory cannot be written.
pub(crate) fn write_element<T: Sized32>(arg: usize, value: &T, size: usize) -> Result {
    let known = size.min(size_of::<T>());
    let mut writer = UserSlice::new(arg, size).writer();
    writer.write_slice(bytes_of(value, known))?;
    let mut left = size - known;
    while left > 0 {
        let n = left.min(64);
        writer.write_slice([0u8; 64].get(..n).ok_or(EINVAL)?)?;
        left -= n;
    }
    Ok(())
}
