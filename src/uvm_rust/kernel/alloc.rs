// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Memory, and containers whose growth can fail.

use crate::{helpers, layout};
use core::alloc::Layout;
use core::ptr::NonNull;

mod boxed;
mod vec;

pub use boxed::Box;
pub use vec::Vec;

/// A box on the slab allocator.
pub type KBox<T> = Box<T, Kmalloc>;
/// An array on the slab allocator: its memory is contiguous.
pub type KVec<T> = Vec<T, Kmalloc>;
/// An array on the slab allocator, or in pages of its own where it is large.
pub type KVVec<T> = Vec<T, KVmalloc>;

/// Memory could not be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocError;

/// How an allocation may behave: the kernel's `gfp_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flags(u32);

impl core::ops::BitOr for Flags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl core::ops::BitAnd for Flags {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl core::ops::Not for Flags {
    type Output = Self;

    fn not(self) -> Self {
        Self(!self.0)
    }
}

/// The kinds of asking.
pub mod flags {
    use super::Flags;
    use crate::layout;

    /// The allocation may sleep, and reclaim memory.
    pub const GFP_KERNEL: Flags = Flags(layout::GFP_KERNEL);
    /// The allocation may sleep, and is charged to the process that makes it.
    pub const GFP_KERNEL_ACCOUNT: Flags = Flags(layout::GFP_KERNEL_ACCOUNT);
    /// The allocation does not sleep. It may well fail, and the kernel logs nothing then.
    pub const GFP_NOWAIT: Flags = Flags(layout::GFP_NOWAIT);
}

/// One of the kernel's allocators.
///
/// # Safety
///
/// What `alloc` gives is memory of the layout, unused by others until `free`.
pub unsafe trait Allocator {
    /// Memory of this layout, whose size is not 0. Not initialised.
    ///
    /// # Errors
    ///
    /// There is no memory, or the alignment is more than a page.
    fn alloc(layout: Layout, flags: Flags) -> Result<NonNull<u8>, AllocError>;

    /// Gives the memory at `ptr` back to the allocator.
    ///
    /// # Safety
    ///
    /// `ptr` is from this `alloc`, and is not used after this.
    unsafe fn free(ptr: NonNull<u8>);
}

/// `kmalloc()`: contiguous memory of at most a few MiB.
pub struct Kmalloc;

/// `kvmalloc()`: as `kmalloc()`, or mapped page by page where that fails.
pub struct KVmalloc;

/// How many bytes to allocate so that the memory is aligned as well. The kernel aligns an allocation whose size is a
/// power of two to that size, one larger than a page to a page, and every other one only to a few bytes.
fn size_for(layout: Layout) -> Result<usize, AllocError> {
    if layout.align() > layout::PAGE_SIZE {
        return Err(AllocError);
    }
    let size = layout.pad_to_align().size();
    if layout.align() <= layout::KMALLOC_MINALIGN || size > layout::PAGE_SIZE {
        return Ok(size);
    }
    size.checked_next_power_of_two().ok_or(AllocError)
}

// SAFETY: `kmalloc()` gives that many bytes, aligned as `size_for` says.
unsafe impl Allocator for Kmalloc {
    fn alloc(layout: Layout, flags: Flags) -> Result<NonNull<u8>, AllocError> {
        let size = size_for(layout)?;
        // SAFETY: It has no preconditions but a size that is not 0, which is the caller's.
        NonNull::new(unsafe { helpers::uvm_rust_k_kmalloc(size, flags.0) }.cast()).ok_or(AllocError)
    }

    unsafe fn free(ptr: NonNull<u8>) {
        // SAFETY: By this function's contract it is from `kmalloc()`, and unused.
        unsafe { helpers::uvm_rust_k_kfree(ptr.as_ptr().cast()) }
    }
}

// SAFETY: `kvmalloc()` gives that many bytes, aligned as `size_for` says, or to pages.
unsafe impl Allocator for KVmalloc {
    fn alloc(layout: Layout, flags: Flags) -> Result<NonNull<u8>, AllocError> {
        let size = size_for(layout)?;
        // SAFETY: It has no preconditions but a size that is not 0, which is the caller's.
        NonNull::new(unsafe { helpers::uvm_rust_k_kvmalloc(size, flags.0) }.cast())
            .ok_or(AllocError)
    }

    unsafe fn free(ptr: NonNull<u8>) {
        // SAFETY: By this function's contract it is from `kvmalloc()`, and unused.
        unsafe { helpers::uvm_rust_k_kvfree(ptr.as_ptr().cast()) }
    }
}

/// Memory for `n` values of a type; a dangling pointer if they take no bytes.
fn array<T, A: Allocator>(n: usize, flags: Flags) -> Result<NonNull<T>, AllocError> {
    let layout = Layout::array::<T>(n).map_err(|_| AllocError)?;
    if layout.size() == 0 {
        return Ok(NonNull::dangling());
    }
    A::alloc(layout, flags).map(NonNull::cast)
}

/// Frees the memory that [`array()`] gave for as many values.
///
/// # Safety
///
/// `ptr` is from `array::<T, A>(n, ..)`, and is not used after this.
unsafe fn free_array<T, A: Allocator>(ptr: NonNull<T>, n: usize) {
    if size_of::<T>() != 0 && n != 0 {
        // SAFETY: It is not the dangling one, so `A::alloc` gave it.
        unsafe { A::free(ptr.cast()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(size: usize, align: usize) -> Result<usize, AllocError> {
        size_for(Layout::from_size_align(size, align).unwrap())
    }

    #[test]
    fn what_needs_more_alignment_than_kmalloc_gives_becomes_a_power_of_two() {
        assert_eq!(size(24, 8), Ok(24));
        assert_eq!(size(48, 16), Ok(64));
        assert_eq!(size(64, 64), Ok(64));
        assert_eq!(size(1, 4096), Ok(4096));
        assert_eq!(size(4097, 4096), Ok(8192));
        assert_eq!(size(1, 8192), Err(AllocError));
        assert_eq!(size(4112, 16), Ok(4112));
        let most = isize::MAX as usize & !15;
        assert_eq!(size(most, 16), Ok(most));
    }
}
