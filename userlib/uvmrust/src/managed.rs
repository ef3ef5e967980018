// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The safe way: discard what you own.

use crate::{Error, Mode, Place, Range, Result, Sys, Uvm};

/// An owner of managed memory.
///
/// # Safety
/// - [`Managed::range`] is memory that nothing but this value, and what is borrowed
///   from it, accesses: no other owner, and no GPU kernel in flight.
/// - It does not change while the value lives, wherever it is moved.
/// - The memory may hold, page by page, zeros or any value it had before, and safe
///   code copes with that.
pub unsafe trait Managed {
    /// The memory.
    fn range(&self) -> Range;
}

/// Discards a buffer's contents; it can be used on, and holds then, page by page,
/// zeros or older values.
pub fn discard<S: Sys, B: Managed>(uvm: &Uvm<S>, buffer: &mut B) -> Result<()> {
    // SAFETY: the buffer is borrowed exclusively, and copes, by `Managed`.
    unsafe { uvm.discard(buffer.range(), Mode::Eager) }
}

/// Discards a buffer's contents lazily. Since it must be prefetched before it is used
/// again, it is given away until then.
pub fn discard_lazy<S: Sys, B: Managed>(
    uvm: &Uvm<S>,
    buffer: B,
) -> core::result::Result<Lazy<B>, (B, Error)> {
    // SAFETY: nothing can access it through `Lazy`, and it copes, by `Managed`.
    match unsafe { uvm.discard(buffer.range(), Mode::Lazy) } {
        Ok(()) => Ok(Lazy { buffer }),
        Err(error) => {
            // It may be discarded in part, so it must not be used as it is.
            let lazy = Lazy { buffer };
            match error {
                // This one is sure to have changed nothing.
                Error::NotSupported => Err((lazy.buffer, error)),
                _ => revive(uvm, lazy, error),
            }
        }
    }
}

/// A buffer whose contents are lazily discarded. Dropping it drops the buffer.
#[derive(Debug)]
pub struct Lazy<B> {
    buffer: B,
}

impl<B: Managed> Lazy<B> {
    /// Makes the buffer usable again, at `place`. On an error it stays discarded.
    pub fn prefetch<S: Sys>(
        self,
        uvm: &Uvm<S>,
        place: Place,
    ) -> core::result::Result<B, (Self, Error)> {
        match uvm.prefetch(self.buffer.range(), place) {
            Ok(()) => Ok(self.buffer),
            Err(error) => Err((self, error)),
        }
    }
}

/// After a discard that failed half-way: gives the buffer back usable, by way of the
/// host, or as lazily discarded where that fails too.
fn revive<S: Sys, B: Managed>(
    uvm: &Uvm<S>,
    lazy: Lazy<B>,
    error: Error,
) -> core::result::Result<Lazy<B>, (B, Error)> {
    match lazy.prefetch(uvm, Place::Host) {
        Ok(buffer) => Err((buffer, error)),
        Err((lazy, _)) => Ok(lazy),
    }
}
