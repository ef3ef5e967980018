// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The world around the GPU: memory it reaches, a clock, a log.

use core::fmt;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::AtomicU8;
use core::sync::atomic::Ordering;

use crate::mem::OutOfMemory;

/// Memory that vgpu itself allocated: what RM would give UVM as a buffer, a
/// channel's rings, the GPU's registers. Named so that no address is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot(pub u32);

/// Peers that a GPU has at most: as many as its page tables have numbers for.
pub const MAX_PEERS: usize = 8;

/// By what number a GPU knows another one whose memory it reaches: from 0 to 7, and its own choice. That one knows it by
/// another number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerId(u32);

impl PeerId {
    /// The peer of a field of three bits; more of them do not count.
    #[inline(always)]
    pub const fn of(field: u64) -> Self {
        Self((field & (MAX_PEERS as u64 - 1)) as u32)
    }

    /// The slot in which a machine has its vidmem.
    pub const fn slot(self) -> Slot {
        Slot(self.0)
    }

    /// The number, below [`MAX_PEERS`].
    #[inline(always)]
    pub const fn number(self) -> usize {
        self.0 as usize
    }
}

/// Which memory an address is of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Space {
    /// The GPU's own; offset from its start.
    Vidmem,
    /// The host's; DMA address.
    Sysmem,
    /// A buffer of vgpu's, or in the first [`MAX_PEERS`] slots a peer's vidmem; offset from its start. The two are one kind, as
    /// one more would have each access ask.
    Buffer(Slot),
}

impl Space {
    /// The peer whose vidmem it is.
    #[inline(always)]
    fn peer(self) -> Option<PeerId> {
        match self {
            Self::Buffer(Slot(n)) if n < MAX_PEERS as u32 => Some(PeerId(n)),
            _ => None,
        }
    }
}

impl fmt::Debug for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self, self.peer()) {
            (_, Some(id)) => write!(f, "Peer({})", id.0),
            (Self::Vidmem, _) => f.write_str("Vidmem"),
            (Self::Sysmem, _) => f.write_str("Sysmem"),
            (Self::Buffer(slot), _) => write!(f, "Buffer({})", slot.0),
        }
    }
}

/// An address in some memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loc {
    /// The memory in which `at` is an address.
    pub space: Space,
    /// Byte address or offset in it.
    pub at: u64,
}

impl Loc {
    /// An address in vidmem.
    pub const fn vidmem(at: u64) -> Self {
        Self {
            space: Space::Vidmem,
            at,
        }
    }

    /// An address in system memory, as DMA sees it.
    pub const fn sysmem(at: u64) -> Self {
        Self {
            space: Space::Sysmem,
            at,
        }
    }

    /// An offset in a buffer.
    pub const fn buffer(slot: Slot, at: u64) -> Self {
        Self {
            space: Space::Buffer(slot),
            at,
        }
    }

    /// An address in a peer's vidmem.
    pub const fn peer(id: PeerId, at: u64) -> Self {
        Self {
            space: Space::Buffer(id.slot()),
            at,
        }
    }

    /// The peer in whose vidmem it is.
    #[inline(always)]
    pub(super) fn of_peer(self) -> Option<PeerId> {
        self.space.peer()
    }

    /// The address `n` bytes on. It may lie outside of memory: access finds out.
    pub const fn plus(self, n: u64) -> Self {
        Self {
            space: self.space,
            at: self.at.wrapping_add(n),
        }
    }
}

impl fmt::Display for Loc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.space {
            Space::Vidmem => write!(f, "vidmem {:#x}", self.at),
            Space::Sysmem => write!(f, "sysmem {:#x}", self.at),
            Space::Buffer(s) => match self.of_peer() {
                Some(id) => write!(f, "peer {} {:#x}", id.number(), self.at),
                None => write!(f, "buffer {} + {:#x}", s.0, self.at),
            },
        }
    }
}

/// There is no memory at this address, or not enough, or it is not aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadAddress(pub Loc);

/// What the emulator needs from where it runs.
///
/// All memory is shared with CPUs that may write it at any time, so it is seen as
/// atomics only. The views are `None` where an address is not aligned to their
/// element or not all of the range is contiguous memory.
pub trait Machine {
    /// Allocates a zeroed buffer of `bytes` bytes, page-aligned, in a slot that is not for a peer.
    fn alloc(&mut self, bytes: u64) -> Result<Slot, OutOfMemory>;

    /// Frees a buffer. Its slot may be used for another one from now on.
    fn free(&mut self, slot: Slot);

    /// How many bytes from `at` on are contiguous memory; 0 if there is none. Of
    /// system memory this ends with the page.
    fn extent(&self, at: Loc) -> u64;

    /// `n` bytes at `at`.
    fn bytes(&self, at: Loc, n: usize) -> Option<&[AtomicU8]>;

    /// `n` 32 bit words at `at`.
    fn words32(&self, at: Loc, n: usize) -> Option<&[AtomicU32]>;

    /// `n` 64 bit words at `at`.
    fn words(&self, at: Loc, n: usize) -> Option<&[AtomicU64]>;

    /// Time in nanoseconds, never going back.
    fn now_ns(&self) -> u64;

    /// Tells people about an error.
    fn report(&self, what: fmt::Arguments<'_>);

    /// Reads a 32 bit word, with acquire ordering.
    fn load32(&self, at: Loc) -> Result<u32, BadAddress> {
        Ok(self.word32(at)?.load(Ordering::Acquire))
    }

    /// Writes a 32 bit word, with release ordering.
    fn store32(&self, at: Loc, value: u32) -> Result<(), BadAddress> {
        self.word32(at)?.store(value, Ordering::Release);
        Ok(())
    }

    /// Adds to a 32 bit word atomically, wrapping, and returns what was there.
    fn fetch_add32(&self, at: Loc, value: u32) -> Result<u32, BadAddress> {
        Ok(self.word32(at)?.fetch_add(value, Ordering::AcqRel))
    }

    /// One 32 bit word.
    fn word32(&self, at: Loc) -> Result<&AtomicU32, BadAddress> {
        self.words32(at, 1)
            .and_then(<[_]>::first)
            .ok_or(BadAddress(at))
    }

    /// Copies `bytes` bytes, low addresses first; each side must lie within its
    /// [`Machine::extent`].
    fn copy(&self, to: Loc, from: Loc, bytes: u64) -> Result<(), BadAddress> {
        // Not memcpy: the bytes may be written meanwhile. Under an emulator this
        // is faster, too: its string instructions go byte by byte.
        let head = if (to.at ^ from.at) % 8 == 0 {
            (8 - to.at % 8) % 8
        } else {
            bytes
        };
        let head = head.min(bytes);
        self.copy_bytes(to, from, head)?;
        let words = (bytes - head) / 8;
        let (t, f) = (to.plus(head), from.plus(head));
        if words > 0 {
            let target = self.words(t, words as usize).ok_or(BadAddress(t))?;
            let source = self.words(f, words as usize).ok_or(BadAddress(f))?;
            for (t, f) in target.iter().zip(source) {
                t.store(f.load(Ordering::Relaxed), Ordering::Relaxed);
            }
        }
        let done = words * 8;
        self.copy_bytes(t.plus(done), f.plus(done), bytes - head - done)
    }

    /// [`Machine::copy`], byte by byte.
    fn copy_bytes(&self, to: Loc, from: Loc, bytes: u64) -> Result<(), BadAddress> {
        let target = self.bytes(to, bytes as usize).ok_or(BadAddress(to))?;
        let source = self.bytes(from, bytes as usize).ok_or(BadAddress(from))?;
        for (t, f) in target.iter().zip(source) {
            t.store(f.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        Ok(())
    }

    /// Fills `bytes` bytes, within their extent, with `pattern` over and over,
    /// beginning with its byte `phase`. The pattern has at least 1 byte.
    fn fill(&self, to: Loc, bytes: u64, pattern: &[u8], phase: usize) -> Result<(), BadAddress> {
        let size = pattern.len();
        let by_words = matches!(size, 1 | 2 | 4 | 8) && to.at % 8 == 0;
        let words = if by_words { bytes / 8 } else { 0 };
        let at = |i: usize| pattern[(phase + i).checked_rem(size).unwrap_or(0)];
        if words > 0 {
            let value = u64::from_ne_bytes(core::array::from_fn(at));
            for w in self.words(to, words as usize).ok_or(BadAddress(to))? {
                w.store(value, Ordering::Relaxed);
            }
        }
        let rest = to.plus(words * 8);
        let bytes = self
            .bytes(rest, (bytes - words * 8) as usize)
            .ok_or(BadAddress(rest))?;
        for (i, b) in bytes.iter().enumerate() {
            // Whole patterns fit into what was filled by words.
            b.store(at(i), Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Reads a 64 bit word.
pub(super) fn load64<M: Machine>(m: &M, at: Loc) -> Result<u64, BadAddress> {
    match m.words(at, 1) {
        Some([w]) => Ok(w.load(Ordering::Acquire)),
        _ => Err(BadAddress(at)),
    }
}

#[cfg(test)]
mod tests;
