// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A machine of plain arrays, and a simple builder of page tables, for tests.

use core::cell::Cell;
use core::cell::RefCell;
use core::fmt;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::AtomicU8;
use core::sync::atomic::Ordering;
use std::boxed::Box;
use std::string::String;
use std::string::ToString;
use std::sync::Arc;
use std::vec;
use std::vec::Vec;

use crate::emu::reg;
use crate::emu::ChannelPlace;
use crate::emu::Loc;
use crate::emu::Machine;
use crate::emu::PeerId;
use crate::emu::Slot;
use crate::emu::Space;
use crate::emu::MAX_PEERS;
use crate::mem::OutOfMemory;

/// System memory starts here; nothing is below.
pub(crate) const SYSMEM: u64 = 0x1_0000_0000;
const PAGE: u64 = 4096;

fn words(bytes: u64) -> Vec<AtomicU64> {
    let zeros = vec![0u64; bytes.div_ceil(8) as usize].into_boxed_slice();
    // SAFETY: an AtomicU64 lies in memory as a u64 does, and the box is given up once. Made this
    // way, memory that a test does not touch costs it nothing.
    unsafe { Box::from_raw(Box::into_raw(zeros) as *mut [AtomicU64]) }.into_vec()
}

/// An array that machines share. Its slice stands beside it: how fast it is found is measured (`examples/cost.rs`).
#[derive(Clone, Debug)]
pub(crate) struct Memory {
    slice: &'static [AtomicU64],
    _keep: Arc<Vec<AtomicU64>>,
}

impl Memory {
    fn new(bytes: u64) -> Self {
        let keep = Arc::new(words(bytes));
        Self {
            // SAFETY: the array never changes, and is kept as long as this. `words` gives the slice out for no longer.
            slice: unsafe { core::slice::from_raw_parts(keep.as_ptr(), keep.len()) },
            _keep: keep,
        }
    }

    #[inline(always)]
    fn words(&self) -> &[AtomicU64] {
        self.slice
    }
}

/// A machine for tests: each memory is an array of 64 bit words.
#[derive(Debug)]
pub(crate) struct Fake {
    vidmem: Memory,
    sysmem: Memory,
    /// By slots; those of peers come first.
    buffers: Vec<Option<Memory>>,
    now: Cell<u64>,
    /// What the emulator would have written to the kernel's log.
    pub(crate) log: RefCell<Vec<String>>,
    /// Allocations to allow before they fail.
    pub(crate) allocations: usize,
}

impl Fake {
    pub(crate) fn new(vidmem: u64, sysmem: u64) -> Self {
        Self {
            vidmem: Memory::new(vidmem),
            sysmem: Memory::new(sysmem),
            buffers: vec![None; MAX_PEERS],
            now: Cell::new(0),
            log: RefCell::new(Vec::new()),
            allocations: usize::MAX,
        }
    }

    /// A machine with the same system memory, and vidmem of its own.
    pub(crate) fn beside(&self, vidmem: u64) -> Self {
        Self {
            sysmem: self.sysmem.clone(),
            ..Self::new(vidmem, 0)
        }
    }

    /// The GPU's memory, for its peers.
    pub(crate) fn vidmem(&self) -> Memory {
        self.vidmem.clone()
    }

    /// Lets `id` name the memory of another machine's GPU, or nothing.
    pub(crate) fn set_peer(&mut self, id: PeerId, vidmem: Option<Memory>) {
        self.buffers[id.number()] = vidmem;
    }

    /// Buffers allocated and not freed.
    pub(crate) fn live(&self) -> usize {
        self.buffers.iter().skip(MAX_PEERS).flatten().count()
    }

    /// A driver's part: writes a channel's PUT, and rings the doorbell.
    pub(crate) fn submit(&self, place: ChannelPlace, put: u32) {
        let control = |at| Loc::buffer(place.control, at);
        self.store32(control(reg::CHANNEL_PUT), put).unwrap();
        let bell = control(reg::CHANNEL_DOORBELL);
        self.store32(bell, place.token).unwrap();
    }

    /// Moves the clock on by so many nanoseconds.
    pub(crate) fn pass(&self, ns: u64) {
        self.now.set(self.now.get() + ns);
    }

    fn find(&self, at: Loc) -> Option<(&[AtomicU64], u64)> {
        let (memory, offset) = match at.space {
            Space::Vidmem => (self.vidmem.words(), at.at),
            Space::Sysmem => (self.sysmem.words(), at.at.checked_sub(SYSMEM)?),
            Space::Buffer(slot) => (self.buffers.get(slot.0 as usize)?.as_ref()?.words(), at.at),
        };
        (offset < memory.len() as u64 * 8).then_some((memory, offset))
    }

    /// `n` elements at an address.
    ///
    /// # Safety
    ///
    /// `T` is an atomic integer of at most 64 bits.
    unsafe fn view<T>(&self, at: Loc, n: usize) -> Option<&[T]> {
        if n == 0 {
            return Some(&[]);
        }
        let (memory, offset) = self.find(at)?;
        let size = size_of::<T>() as u64;
        if offset % size != 0 || n as u64 * size > left(at, memory, offset) {
            return None;
        }
        // SAFETY: within the array and aligned, by the checks above; an atomic
        // integer may have any bits.
        Some(unsafe {
            let start = memory.as_ptr().cast::<u8>().add(offset as usize);
            core::slice::from_raw_parts(start.cast::<T>(), n)
        })
    }

    pub(crate) fn get(&self, at: Loc) -> u64 {
        self.words(at, 1).unwrap()[0].load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, at: Loc, value: u64) {
        self.words(at, 1).unwrap()[0].store(value, Ordering::Relaxed);
    }
}

/// How many bytes are contiguous from an address on, which is within `memory`.
fn left(at: Loc, memory: &[AtomicU64], offset: u64) -> u64 {
    match at.space {
        Space::Sysmem => PAGE - at.at % PAGE,
        _ => memory.len() as u64 * 8 - offset,
    }
}

impl Machine for Fake {
    fn alloc(&mut self, bytes: u64) -> Result<Slot, OutOfMemory> {
        self.allocations = self.allocations.checked_sub(1).ok_or(OutOfMemory)?;
        self.buffers.push(Some(Memory::new(bytes)));
        Ok(Slot(self.buffers.len() as u32 - 1))
    }

    fn free(&mut self, slot: Slot) {
        assert!(
            self.buffers[slot.0 as usize].take().is_some(),
            "freed twice"
        );
    }

    fn extent(&self, at: Loc) -> u64 {
        self.find(at)
            .map_or(0, |(memory, offset)| left(at, memory, offset))
    }

    fn bytes(&self, at: Loc, n: usize) -> Option<&[AtomicU8]> {
        // SAFETY: atomic.
        unsafe { self.view(at, n) }
    }

    fn words32(&self, at: Loc, n: usize) -> Option<&[AtomicU32]> {
        // SAFETY: atomic.
        unsafe { self.view(at, n) }
    }

    fn words(&self, at: Loc, n: usize) -> Option<&[AtomicU64]> {
        // SAFETY: atomic.
        unsafe { self.view(at, n) }
    }

    fn now_ns(&self) -> u64 {
        self.now.set(self.now.get() + 1);
        self.now.get()
    }

    fn report(&self, what: fmt::Arguments<'_>) {
        self.log.borrow_mut().push(what.to_string());
    }
}

/// Page sizes of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    Small = 1 << 12,
    Big = 1 << 16,
    Huge = 1 << 21,
    /// A page that only version 3 has.
    Giant = 1 << 29,
}

/// Bits of a page table entry of version 2; [`Tables::map`] takes them for version 3 as well.
pub(crate) const VALID: u64 = 1;
pub(crate) const READ_ONLY: u64 = 1 << 6;
pub(crate) const NO_ATOMICS: u64 = 1 << 7;
/// Of an entry of either version: the L2 does not keep it, as UVM says of all that is not the GPU's own.
pub(crate) const UNCACHED: u64 = 1 << 3;

/// Builds page tables from a pool of zeroed memory. The tables may be in vidmem
/// or system memory, by turns if `mixed`.
pub(crate) struct Tables {
    pub(crate) root: Loc,
    next: [Loc; 2],
    mixed: bool,
    turn: bool,
    is_version_3: bool,
}

impl Tables {
    /// `vidmem` and `sysmem` start the pools; the root is in vidmem.
    pub(crate) fn new(vidmem: u64, sysmem: u64, mixed: bool) -> Self {
        let next = [Loc::vidmem(vidmem + PAGE), Loc::sysmem(sysmem)];
        Self {
            root: Loc::vidmem(vidmem),
            next,
            mixed,
            turn: false,
            is_version_3: false,
        }
    }

    /// The same, of version 3.
    pub(crate) fn version_3(self) -> Self {
        Self {
            is_version_3: true,
            ..self
        }
    }

    fn table(&mut self) -> Loc {
        self.turn = self.mixed && !self.turn;
        let next = &mut self.next[usize::from(self.turn)];
        let at = *next;
        *next = at.plus(PAGE);
        at
    }

    /// The table an entry points to, made if there is none. Its address is in units of so many
    /// bits, in version 2 from bit `low` on.
    fn descend(&mut self, m: &Fake, entry: Loc, unit: u32, low: u32) -> Loc {
        let (low, end) = match self.is_version_3 {
            true => (unit, 52),
            false => (low, 54),
        };
        let old = m.get(entry);
        let aperture = old >> 1 & 3;
        if aperture != 0 {
            let at = (old >> low & ((1 << (end - low)) - 1)) << unit;
            return if aperture == 1 {
                Loc::vidmem(at)
            } else {
                Loc::sysmem(at)
            };
        }
        let table = self.table();
        let aperture = if table.space == Space::Vidmem { 1 } else { 2 };
        // UVM says of directories that they are not cached.
        m.set(entry, table.at >> unit << low | aperture << 1 | UNCACHED);
        table
    }

    /// Where the entry of `va` for a page of `size` is.
    pub(crate) fn entry(&mut self, m: &Fake, va: u64, size: Size) -> Loc {
        let mut at = self.root;
        let levels = [(56, 2), (47, 512), (38, 512), (29, 512)];
        for (shift, entries) in levels.into_iter().skip(usize::from(!self.is_version_3)) {
            let entry = at.plus((va >> shift) % entries * 8);
            if shift == 29 && size == Size::Giant {
                return entry;
            }
            at = self.descend(m, entry, 12, 8);
        }
        let pde0 = at.plus((va >> 21) % 256 * 16);
        match size {
            Size::Huge | Size::Giant => pde0,
            Size::Big => self.descend(m, pde0, 8, 4).plus((va >> 16) % 32 * 8),
            Size::Small => self
                .descend(m, pde0.plus(8), 12, 8)
                .plus((va >> 12) % 512 * 8),
        }
    }

    /// Makes the page table entry for a page, and the tables above it.
    pub(crate) fn map(&mut self, m: &Fake, va: u64, size: Size, to: Loc, flags: u64) {
        let entry = self.entry(m, va, size);
        let (aperture, peer, uncached) = match to.space {
            Space::Vidmem => (0, 0, 0),
            Space::Sysmem => (2, 0, UNCACHED),
            Space::Buffer(slot) => (1, slot.0.into(), UNCACHED),
        };
        let rest = match self.is_version_3 {
            // The flags are a bit lower, and the kind is that of ordinary memory.
            true => peer << 61 | to.at >> 12 << 12 | 6 << 8 | flags >> 1,
            false => peer << 33 | to.at >> 12 << 8 | flags,
        };
        m.set(entry, rest | aperture << 1 | uncached | VALID);
    }
}
