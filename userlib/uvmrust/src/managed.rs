// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The safe way: discard what you own.
//!
//! What a read gives after a discard differs by backend (the table in
//! `docs/discard-guide.md`), and the least that one promises is nothing: "Reads from memory
//! discarded with UVM_DISCARD_FLAGS_UNMAP, including back-to-back reads, return
//! indeterminate data" (NVIDIA's 580.105.08, `UvmDiscard`), and so does CUDA 13
//! (`cuMemDiscardBatchAsync`). To Rust that is uninitialised memory. So a discarded
//! buffer is a [`Discarded`], which can be written and not read, until it is a buffer again.

use core::mem::MaybeUninit;

use crate::{Error, Mode, Place, Range, Result, Sys, Uvm};

/// An owner of managed memory.
///
/// # Safety
/// - [`Managed::range`] is memory that nothing but this value, and what is borrowed
///   from it, accesses: no other owner, and no GPU kernel in flight.
/// - The processor may read and write it by the address that [`Managed::range`] gives,
///   whose provenance is exposed, and the range does not change while the value lives,
///   wherever that is moved.
/// - Nothing of it is read by [`Managed::range`], by moving the value or by dropping it.
/// - Dropping the value gives the memory back to CUDA, or prefetches it before another owner
///   has it: it may be lazily discarded, and what is written then would be lost.
/// - Zeros in all of it are a value that safe code may see.
pub unsafe trait Managed {
    /// The memory, the same as long as the value lives.
    fn range(&self) -> Range;
}

/// Discards a buffer's contents. What comes back is to be written before it is read.
///
/// ```
/// use uvmrust::{discard, Error, Managed, Uvm};
///
/// fn reuse<B: Managed>(uvm: &Uvm, buffer: B) -> B {
///     let mut discarded = match discard(uvm, buffer) {
///         Ok(discarded) => discarded,
///         // Slower, not wrong.
///         Err((discarded, Error::NotSupported)) => discarded,
///         Err((_, error)) => panic!("{error}"),
///     };
///     discarded.bytes().fill(core::mem::MaybeUninit::new(7));
///     // SAFETY: all of it was written, with bytes that B may hold.
///     unsafe { discarded.assume_written() }
/// }
/// ```
///
/// Safe code cannot read what was discarded and not written since:
///
/// ```compile_fail,E0277
/// fn read<B>(uvm: &uvmrust::Uvm, mut buffer: B) -> u8
/// where
///     B: uvmrust::Managed + core::ops::Deref<Target = [u8]>,
/// {
///     uvmrust::discard(uvm, &mut buffer);
///     buffer[0]
/// }
/// ```
///
/// ```compile_fail,E0608
/// fn read<B>(uvm: &uvmrust::Uvm, buffer: B) -> u8
/// where
///     B: uvmrust::Managed + core::ops::Deref<Target = [u8]>,
/// {
///     let discarded = uvmrust::discard(uvm, buffer).unwrap_or_else(|(buffer, _)| buffer);
///     discarded[0]
/// }
/// ```
///
/// # Errors
/// As [`Uvm::discard`]. The buffer counts as discarded then too: it may be so in part.
pub fn discard<S: Sys, B: Managed>(
    uvm: &Uvm<S>,
    buffer: B,
) -> core::result::Result<Discarded<B>, (Discarded<B>, Error)> {
    let discarded = Discarded { buffer };
    // SAFETY: nothing reads it through `Discarded`, or uses it otherwise, by `Managed`.
    match unsafe { uvm.discard(discarded.range(), Mode::Eager) } {
        Ok(()) => Ok(discarded),
        Err(error) => Err((discarded, error)),
    }
}

/// Discards a buffer's contents lazily. Since it must be prefetched before it is used
/// again, it is given away until then.
///
/// # Errors
/// As [`Uvm::discard`]. The buffer can be written then without a prefetch.
pub fn discard_lazy<S: Sys, B: Managed>(
    uvm: &Uvm<S>,
    buffer: B,
) -> core::result::Result<Lazy<B>, (Discarded<B>, Error)> {
    let lazy = Lazy { buffer };
    // SAFETY: nothing can access it through `Lazy`, nor otherwise, by `Managed`.
    match unsafe { uvm.discard(lazy.range(), Mode::Lazy) } {
        Ok(()) => Ok(lazy),
        // This one is sure to have changed nothing.
        Err(Error::NotSupported) => Err((lazy.written_again(), Error::NotSupported)),
        // It may be discarded in part.
        Err(error) => match lazy.prefetch(uvm, Place::Host) {
            Ok(discarded) => Err((discarded, error)),
            Err((lazy, _)) => Ok(lazy),
        },
    }
}

/// A buffer whose contents are discarded. Dropping it drops the buffer.
pub struct Discarded<B> {
    buffer: B,
}

impl<B: Managed> Discarded<B> {
    /// The memory, which a GPU may write.
    pub fn range(&self) -> Range {
        self.buffer.range()
    }

    /// The memory, to be written here.
    pub fn bytes(&mut self) -> &mut [MaybeUninit<u8>] {
        let Range { base, length } = self.range();
        let first = core::ptr::with_exposed_provenance_mut::<MaybeUninit<u8>>(base as usize);
        if length == 0 {
            return &mut [];
        }
        // SAFETY: by `Managed` the memory is there, the processor may access it, and nobody
        // else does while we are borrowed. It need not be initialised.
        unsafe { core::slice::from_raw_parts_mut(first, length as usize) }
    }

    /// The buffer, with zeros written to all of it.
    pub fn zeroed(mut self) -> B {
        self.bytes().fill(MaybeUninit::new(0));
        self.buffer
    }

    /// The buffer, as it is.
    ///
    /// # Safety
    /// Each byte that is read from now on was written since the discard, by the processor
    /// or by a kernel that is done, with what the buffer may hold.
    pub unsafe fn assume_written(self) -> B {
        self.buffer
    }
}

/// Shows where it is, and not what is in it: that must not be read.
impl<B: Managed> core::fmt::Debug for Discarded<B> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Discarded")
            .field("range", &self.range())
            .finish_non_exhaustive()
    }
}

/// A buffer whose contents are lazily discarded. Dropping it drops the buffer.
pub struct Lazy<B> {
    buffer: B,
}

impl<B: Managed> Lazy<B> {
    fn range(&self) -> Range {
        self.buffer.range()
    }

    /// Nothing has happened to it, or a prefetch has.
    fn written_again(self) -> Discarded<B> {
        Discarded {
            buffer: self.buffer,
        }
    }

    /// Makes the buffer usable again, at `place`, to be written before it is read. On an
    /// error it stays lazily discarded.
    pub fn prefetch<S: Sys>(
        self,
        uvm: &Uvm<S>,
        place: Place,
    ) -> core::result::Result<Discarded<B>, (Self, Error)> {
        let prefetched: Result<()> = uvm.prefetch(self.range(), place);
        match prefetched {
            Ok(()) => Ok(self.written_again()),
            Err(error) => Err((self, error)),
        }
    }
}

/// Shows where it is, and not what is in it: that must not be read.
impl<B: Managed> core::fmt::Debug for Lazy<B> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Lazy")
            .field("range", &self.range())
            .finish_non_exhaustive()
    }
}
