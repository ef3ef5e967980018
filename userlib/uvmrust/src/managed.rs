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
///   from it, accesses: no other owner, and no GPU kernel in flight. Nor is it moved at the same
///   time, as safe calls move any memory: [`Uvm::prefetch`] and [`crate::Moves::submit`].
/// - The processor may read and write it by the address that [`Managed::range`] gives,
///   whose provenance is exposed, and the range does not change while the value lives,
///   wherever that is moved.
/// - Nothing of it is read by [`Managed::range`], by moving the value or by dropping it.
/// - Dropping the value gives the memory back to CUDA (`cuMemFree` of what `cuMemAllocManaged` gave; a
///   pool of CUDA's is another owner), or prefetches it before another owner has it: it may be
///   lazily discarded, and what is written then would be lost. After [`discard`] has succeeded it is
///   not, whoever discards, read-duplicated or not.
/// - Whoever has the memory after the value's end takes it for uninitialised.
/// - Zeros in all of it are a value that safe code may see.
///
/// Nothing is borrowed by the value: who lent it the memory could read that once the value was
/// forgotten, discarded as it is.
///
/// ```compile_fail,E0478
/// struct Lent<'a>(&'a mut [u8]);
///
/// // SAFETY: none.
/// unsafe impl<'a> uvmrust::Managed for Lent<'a> {
///     fn range(&self) -> uvmrust::Range {
///         uvmrust::Range::new(self.0.as_ptr(), self.0.len())
///     }
/// }
/// ```
pub unsafe trait Managed: 'static {
    /// The memory, the same as long as the value lives.
    fn range(&self) -> Range;
}

/// Discards a buffer's contents. What comes back is to be written before it is read.
///
/// ```
/// use uvmrust::{discard, Error, Left, Managed, Uvm};
///
/// fn reuse<B: Managed>(uvm: &Uvm, buffer: B) -> B {
///     let mut discarded = match discard(uvm, buffer) {
///         Ok(discarded) => discarded,
///         // Slower, not wrong.
///         Err((Left::Discarded(discarded), Error::NotSupported)) => discarded,
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
///     let Ok(discarded) = uvmrust::discard(uvm, buffer) else {
///         panic!();
///     };
///     discarded[0]
/// }
/// ```
///
/// # Errors
/// As [`Uvm::discard`]. The buffer counts as discarded then too: it may be so in part.
pub fn discard<S: Sys, B: Managed>(
    uvm: &Uvm<S>,
    buffer: B,
) -> core::result::Result<Discarded<B>, (Left<B>, Error)> {
    let lazy = Lazy { buffer };
    // SAFETY: nothing can access it through `Lazy`, nor otherwise, by `Managed`.
    match unsafe { uvm.discard(lazy.range(), Mode::Eager) } {
        Ok(()) => Ok(lazy.written_again()),
        Err(error) => Err((lazy.left(uvm, error), error)),
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
        Err(error) => match lazy.left(uvm, error) {
            Left::Discarded(discarded) => Err((discarded, error)),
            Left::Lazy(lazy) => Ok(lazy),
        },
    }
}

/// What a discard that failed has left of a buffer.
pub enum Left<B: Managed> {
    /// It can be written.
    Discarded(Discarded<B>),
    /// It may be lazily discarded, and the prefetch that would have ended that failed as well.
    Lazy(Lazy<B>),
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

    /// What an error of a discard leaves, which may be a lazy discard of a part, also after an eager
    /// one ([`Uvm::discard`]).
    fn left<S: Sys>(self, uvm: &Uvm<S>, error: Error) -> Left<B> {
        if error == Error::NotSupported {
            // Nothing has changed.
            return Left::Discarded(self.written_again());
        }
        match self.prefetch(uvm, Place::Host) {
            Ok(discarded) => Left::Discarded(discarded),
            Err((lazy, _)) => Left::Lazy(lazy),
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

/// Shows where it is, as those do.
impl<B: Managed> core::fmt::Debug for Left<B> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Discarded(discarded) => discarded.fmt(f),
            Self::Lazy(lazy) => lazy.fmt(f),
        }
    }
}
