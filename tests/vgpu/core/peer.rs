// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Peers: other GPUs whose memory this one reaches.
//!
//! RM joins two GPUs when UVM asks for it, and each of them numbers the other one by itself. From then on page table
//! entries and copy engines name that one's vidmem by the number. The two share it as CPUs and GPUs share system memory:
//! no GPU's mutex guards it.
//!
//! Freed memory is filled with poison where it was written, so its owner must know what peers wrote. They note it in the
//! memory that RM keeps at the start of vidmem: a word for each 2 MiB, with a bit for each granule.

use core::sync::atomic::Ordering;

use super::gpu::Error;
use super::gpu::Gpu;
use super::gpu::Hw;
use super::machine::Loc;
use super::machine::Machine;
use super::machine::PeerId;
use super::machine::MAX_PEERS;
use super::pma::GRANULE;
use crate::mem::OutOfMemory;
use crate::mem::TryVec;

/// Another GPU, by its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Peer {
    gpu: u32,
    /// Whether atomics to its memory are atomic: over NVLink they are, over PCIe they are not.
    has_atomics: bool,
}

/// The peers of a GPU, by their numbers: room for all of them once there has been one. They are on the heap, as the kernel's
/// stack, on which the GPU is put together, is small.
#[derive(Debug, Default)]
pub(super) struct Peers(TryVec<Option<Peer>>);

impl Peers {
    /// Whether peers may have written to this GPU's memory.
    fn were_any(&self) -> bool {
        !self.0.is_empty()
    }

    fn at(&self, id: PeerId) -> Option<Peer> {
        self.0.get(id.number()).copied().flatten()
    }

    /// Gives a number to a peer, or takes it back.
    fn set(&mut self, id: PeerId, peer: Option<Peer>) -> Result<(), OutOfMemory> {
        while self.0.len() < MAX_PEERS {
            self.0.push(None)?;
        }
        self.0[id.number()] = peer;
        Ok(())
    }

    fn find(&self, gpu: u32) -> Option<PeerId> {
        let is_it = |p: &Option<Peer>| p.is_some_and(|p| p.gpu == gpu);
        let number = self.0.iter().position(is_it)?;
        Some(PeerId::of(number as u64))
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.0.iter().flatten().count()
    }

    /// Whether atomics to the memory of `id` are atomic.
    pub(super) fn has_atomics(&self, id: PeerId) -> bool {
        self.at(id).is_some_and(|p| p.has_atomics)
    }
}

impl<M: Machine> Gpu<M> {
    /// Makes the GPU of index `gpu` a peer; gives its number here. The machine has to know its memory by that number before
    /// UVM is told. Invalid for this GPU itself, busy if it is a peer, full if all numbers are in use.
    ///
    /// The search begins with this GPU's index, so that two GPUs seldom know each other by the same number: a driver that
    /// mixes the two up is found out.
    pub fn add_peer(&mut self, gpu: u32, has_atomics: bool) -> Result<PeerId, Error> {
        if gpu == self.config().index {
            return Err(Error::Invalid);
        }
        let peers = &mut self.hw.peers;
        if peers.find(gpu).is_some() {
            return Err(Error::Busy);
        }
        let first = self.hw.index as usize;
        let id = (first..first + MAX_PEERS)
            .map(|n| PeerId::of(n as u64))
            .find(|&id| peers.at(id).is_none())
            .ok_or(Error::Full)?;
        peers.set(id, Some(Peer { gpu, has_atomics }))?;
        Ok(id)
    }

    /// Parts with a peer; gives the number that it had, which names no memory from now on. What is on its way to the
    /// memory arrives before.
    pub fn remove_peer(&mut self, gpu: u32) -> Result<PeerId, Error> {
        let id = self.peer_id(gpu).ok_or(Error::NotFound)?;
        self.hw.all_arrive();
        self.hw.peers.set(id, None)?;
        Ok(id)
    }

    /// The number of a peer here.
    pub fn peer_id(&self, gpu: u32) -> Option<PeerId> {
        self.hw.peers.find(gpu)
    }
}

impl<M: Machine> Hw<M> {
    /// Notes that `bytes` bytes at `at` of a peer's memory, at least one, are written.
    #[cold]
    #[inline(never)]
    pub(super) fn mark_peer(&self, id: PeerId, at: u64, bytes: u64) {
        for granule in at / GRANULE..=at.saturating_add(bytes - 1) / GRANULE {
            // Beyond its memory nothing is written.
            if let Ok(word) = self.m.word32(Loc::peer(id, mark_of(granule))) {
                word.fetch_or(1 << (granule % 32), Ordering::Relaxed);
            }
        }
    }

    /// Marks as dirty what peers have written of `bytes` bytes at `at`, both multiples of 64 KiB.
    pub(super) fn take_peers_marks(&mut self, at: u64, bytes: u64) {
        if !self.peers.were_any() || bytes == 0 {
            return;
        }
        for chunk in at / GRANULE / 32..=(at + bytes - 1) / GRANULE / 32 {
            let Ok(word) = self.m.word32(Loc::vidmem(mark_of(chunk * 32))) else {
                return;
            };
            let written = word.swap(0, Ordering::Relaxed);
            self.mark_granules(chunk, written);
        }
    }
}

/// Where the word is that has the mark of a granule.
fn mark_of(granule: u64) -> u64 {
    granule / 32 * 4
}

#[cfg(test)]
mod tests;
