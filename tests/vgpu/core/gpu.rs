// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The GPU as a whole: what UVM asks of RM, what users ask of /dev/vgpu, and the
//! emulator's turn.

use super::channel::Channel;
use super::channel::ChannelId;
use super::channel::ChannelPlace;
use super::channel::Trouble;
use super::counters::AccessCounters;
use super::fault::FaultBuffer;
use super::fault::UTLB_FAULTS_MAX;
use super::kernel::Kernel;
use super::kernel::Op;
use super::kernel::Outcome;
use super::kernel::MAX_WARPS;
use super::machine::Loc;
use super::machine::Machine;
use super::machine::Slot;
use super::personality::Personality;
use super::pma::AllocRequest;
use super::pma::Counts;
use super::pma::Pma;
use super::pma::CHUNK;
use super::sm::Ring;
use super::sm::UserChannel;
use super::space::AddressSpace;
use super::space::SpaceId;
use super::stats::Stats;
use super::tlb::Tlb;
use super::walk::FaultType;
use super::walk::Miss;
use super::walk::Pdb;
use super::walk::VA_END;
use crate::mem::OutOfMemory;
use crate::mem::TryVec;

/// Offsets of registers in the register page, and of what a channel's control
/// page holds. The C side knows them too (`kernel/vgpu_rs.h`).
pub mod reg {
    /// Time in ns, low half.
    pub const TIME_LOW: u64 = 0x00;
    /// Time, high half.
    pub const TIME_HIGH: u64 = 0x04;
    /// Written by UVM after PUT. Nobody listens: the emulator polls PUT.
    pub const DOORBELL: u64 = 0x40;
    /// Replayable fault buffer: read up to here, by UVM.
    pub const FAULT_GET: u64 = 0x80;
    /// Written up to here.
    pub const FAULT_PUT: u64 = 0x84;
    /// Access counter notifications: read up to here, by UVM.
    pub const COUNTER_GET: u64 = 0xc0;
    /// Written up to here.
    pub const COUNTER_PUT: u64 = 0xc4;
    /// Registers that UVM writes and nothing reads (interrupts, prefetch control,
    /// runlists) start here.
    pub const SINK: u64 = 0x100;
    /// Bytes of the page.
    pub const BYTES: u64 = 0x1000;

    /// Of a control page: PUT.
    pub const CHANNEL_PUT: u64 = crate::emu::channel::PUT;
    /// Of a control page: GET.
    pub const CHANNEL_GET: u64 = crate::emu::channel::GET;
    /// Of a control page: the error notifier.
    pub const CHANNEL_NOTIFIER: u64 = crate::emu::channel::NOTIFIER;
}

/// Vidmem at its start that RM keeps.
pub(super) const RESERVED: u64 = CHUNK;
/// What freed memory is filled with: `VGPU_POISON`.
pub(super) const POISON: u64 = 0x5eed_5eed_bad0_bad0;
/// Outstanding faults per µTLB where a kernel does not say.
const UTLB_FAULTS: u32 = 56;
/// Bounds of `include/uapi/vgpu.h`, per open file.
const MAX_VASPACES: usize = 16;
const MAX_CHANNELS: usize = 16;
/// How much one turn executes, to bound the time the lock is held.
const SEGMENTS_PER_TURN: u32 = 64;
const INSTRUCTIONS_PER_TURN: u32 = 128;

/// Why a call failed. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The host has no memory.
    NoMemory,
    /// The GPU has no memory.
    NoVidmem,
    /// An argument is out of range.
    Invalid,
    /// No such object.
    NotFound,
    /// The object is in use.
    Busy,
    /// UVM has not bound the channel.
    NotBound,
    /// The channel is stopped.
    Stopped,
    /// A bound on the number of objects is reached.
    Full,
}

impl From<OutOfMemory> for Error {
    fn from(_: OutOfMemory) -> Self {
        Self::NoMemory
    }
}

/// How a GPU is made.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// For messages and handles, from 0 to 6.
    pub index: u32,
    /// Which GPU.
    pub chip: &'static Personality,
    /// Size of its memory, a multiple of 2 MiB and at least 8 MiB.
    pub vidmem_bytes: u64,
    /// Entries of the fault buffer, 4 to 65536.
    pub fault_entries: u32,
    /// Cache translations.
    pub tlb: bool,
    /// Ignore TLB invalidates, all of them.
    pub drop_invalidates: bool,
    /// Fill freed memory with a pattern.
    pub poison: bool,
    /// Give UVM zeroed memory, and say so, unless it asks not to.
    pub zero: bool,
}

/// What to make go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Injection {
    /// Ignore so many TLB invalidates.
    DropInvalidates(u64),
    /// Find the fault buffer full so often.
    FaultBufferFull(u64),
    /// Refuse `count` allocations of vidmem after `skip` more.
    PmaFailure {
        /// Allocations to let pass.
        skip: u64,
        /// Allocations to refuse.
        count: u64,
    },
    /// Stop a user's channel.
    ChannelError(u32),
    /// Stop a channel of UVM's.
    UvmChannelError(u32),
}

/// What a turn came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Something was executed: the next turn should come soon.
    pub any: bool,
    /// Kernels ended: those who wait should look.
    pub finished: bool,
}

/// A user's address space: a handle, from which UVM makes an address space.
#[derive(Clone, Copy, Debug)]
struct UserSpace {
    h_client: u32,
    h_vaspace: u32,
}

/// Everything but UVM's channels, which work on it.
#[derive(Debug)]
pub(super) struct Hw<M> {
    pub(super) m: M,
    pub(super) index: u32,
    pub(super) chip: &'static Personality,
    pub(super) registers: Slot,
    pub(super) spaces: TryVec<AddressSpace>,
    pub(super) users: TryVec<UserChannel>,
    pub(super) tlb: Tlb,
    pub(super) tlb_on: bool,
    pub(super) faults: FaultBuffer,
    pub(super) counters: AccessCounters,
    pub(super) stats: Stats,
    /// Invalidates to ignore yet.
    drop_invalidates: u64,
    /// Scratch of the SMs: warps to try again next turn.
    pub(super) retry: Ring,
    /// A kernel ended since the last turn's end.
    pub(super) finished: bool,
}

/// One GPU.
#[derive(Debug)]
pub struct Gpu<M> {
    hw: Hw<M>,
    channels: TryVec<Channel>,
    pma: Pma,
    user_spaces: TryVec<UserSpace>,
    config: Config,
    next_space: u64,
    next_channel: u32,
    next_handle: u32,
    pma_skip: u64,
    pma_fail: u64,
}

impl<M: Machine> Gpu<M> {
    /// A GPU at rest, its memory full of the poison pattern if that is on.
    pub fn new(mut m: M, config: Config) -> Result<Self, Error> {
        if config.vidmem_bytes % CHUNK != 0
            || config.vidmem_bytes < 4 * CHUNK
            || !(4..=1 << 16).contains(&config.fault_entries)
            || config.index > 6
        {
            return Err(Error::Invalid);
        }
        let registers = m.alloc(reg::BYTES)?;
        let faults = FaultBuffer::new(&mut m, registers, config.fault_entries)?;
        let counters = AccessCounters::new(&mut m, registers)?;
        let hw = Hw {
            m,
            index: config.index,
            chip: config.chip,
            registers,
            spaces: TryVec::new(),
            users: TryVec::new(),
            tlb: Tlb::new()?,
            tlb_on: config.tlb,
            faults,
            counters,
            stats: Stats::default(),
            drop_invalidates: if config.drop_invalidates { u64::MAX } else { 0 },
            retry: Ring::new(MAX_WARPS as usize)?,
            finished: false,
        };
        let mut gpu = Self {
            hw,
            channels: TryVec::new(),
            pma: Pma::new(config.vidmem_bytes, RESERVED)?,
            user_spaces: TryVec::new(),
            config,
            next_space: 1,
            next_channel: 0,
            next_handle: 1,
            pma_skip: 0,
            pma_fail: 0,
        };
        gpu.poison(RESERVED, config.vidmem_bytes - RESERVED);
        Ok(gpu)
    }

    /// The world around it.
    pub fn machine(&self) -> &M {
        &self.hw.m
    }

    /// How it was made.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The register page; see [`reg`].
    pub fn registers(&self) -> Slot {
        self.hw.registers
    }

    /// The fault buffer.
    pub fn fault_buffer(&self) -> Slot {
        self.hw.faults.slot()
    }

    /// The buffer of access counter notifications.
    pub fn counter_buffer(&self) -> Slot {
        self.hw.counters.slot()
    }

    /// Number of µTLBs, and outstanding faults of each by default.
    pub fn utlbs(&self) -> (u32, u32) {
        (super::personality::UTLBS, UTLB_FAULTS)
    }

    /// The counters.
    pub fn stats(&self) -> Stats {
        Stats { pma_bytes: self.pma.allocated(), ..self.hw.stats }
    }

    /// Counts a call of UVM's interrupt handler.
    pub fn count_interrupt(&mut self) {
        self.hw.stats.interrupts += 1;
    }

    /// The emulator's turn: executes a bounded amount of what is queued.
    pub fn run(&mut self) -> Progress {
        self.hw.set_time(self.hw.m.now_ns());
        let mut any = false;
        for c in self.channels.iter_mut() {
            any |= c.run(&mut self.hw, SEGMENTS_PER_TURN);
        }
        any |= self.hw.run_kernels(INSTRUCTIONS_PER_TURN);
        Progress { any, finished: core::mem::take(&mut self.hw.finished) }
    }

    /// Makes `injection` happen.
    pub fn inject(&mut self, injection: Injection) -> Result<(), Error> {
        match injection {
            Injection::DropInvalidates(n) => self.hw.drop_invalidates = n,
            Injection::FaultBufferFull(n) => self.hw.faults.pretend_full = n,
            Injection::PmaFailure { skip, count } => {
                (self.pma_skip, self.pma_fail) = (skip, count);
            }
            Injection::ChannelError(h_channel) => {
                let i = self.find_user(h_channel)?;
                self.stop_user(i);
            }
            Injection::UvmChannelError(id) => {
                let c = self.channels.iter_mut().find(|c| c.id.0 == id);
                c.ok_or(Error::NotFound)?.fail(&mut self.hw, Trouble::Injected);
            }
        }
        Ok(())
    }
}

// What UVM asks of RM: address spaces and memory.
impl<M: Machine> Gpu<M> {
    /// Makes UVM's own address space.
    pub fn create_space(&mut self) -> Result<SpaceId, Error> {
        self.add_space(None)
    }

    /// Makes UVM's view of a user's address space.
    pub fn dup_space(&mut self, h_client: u32, h_vaspace: u32) -> Result<SpaceId, Error> {
        let user = |u: &UserSpace| u.h_client == h_client && u.h_vaspace == h_vaspace;
        if !self.user_spaces.iter().any(user) {
            return Err(Error::NotFound);
        }
        if self.hw.spaces.iter().any(|s| s.h_vaspace == Some(h_vaspace)) {
            return Err(Error::Busy);
        }
        self.add_space(Some(h_vaspace))
    }

    fn add_space(&mut self, h_vaspace: Option<u32>) -> Result<SpaceId, Error> {
        let id = SpaceId(self.next_space);
        self.hw.spaces.push(AddressSpace::new(id, h_vaspace))?;
        self.next_space += 1;
        Ok(id)
    }

    /// Destroys an address space, with the buffers left in it.
    pub fn destroy_space(&mut self, id: SpaceId) -> Result<(), Error> {
        let i = self.hw.find_space(id)?;
        for u in self.hw.users.iter_mut().filter(|u| u.bound == Some(id)) {
            // UVM releases channels first; see that none is left to use it.
            self.hw.stats.kernels += u.stop();
            self.hw.finished = true;
            u.bound = None;
        }
        while let Some(slot) = self.hw.spaces[i].take_buffer() {
            self.hw.m.report(format_args!(
                "vgpu{}: address space {} destroyed with memory in it",
                self.hw.index, id.0
            ));
            self.hw.m.free(slot);
        }
        self.hw.spaces.swap_remove(i);
        self.hw.tlb.invalidate_space(id);
        Ok(())
    }

    /// Sets the root of a space's page tables.
    pub fn set_pdb(&mut self, id: SpaceId, at: u64, vidmem: bool) -> Result<(), Error> {
        let i = self.hw.find_space(id)?;
        self.hw.spaces[i].pdb = Some(Pdb { at, vidmem });
        Ok(())
    }

    /// Takes the page tables away. All translations go.
    pub fn unset_pdb(&mut self, id: SpaceId) -> Result<(), Error> {
        let i = self.hw.find_space(id)?;
        self.hw.spaces[i].pdb = None;
        self.hw.tlb.invalidate_space(id);
        Ok(())
    }

    /// Gives UVM memory at an address of its own space: address and buffer.
    pub fn alloc_buffer(
        &mut self,
        id: SpaceId,
        bytes: u64,
        align: u64,
    ) -> Result<(u64, Slot), Error> {
        let i = self.hw.find_space(id)?;
        if bytes == 0 || !align.max(1).is_power_of_two() {
            return Err(Error::Invalid);
        }
        let bytes = bytes.checked_next_multiple_of(4096).ok_or(Error::Invalid)?;
        let slot = self.hw.m.alloc(bytes)?;
        let va = self.hw.spaces[i].add_buffer(slot, bytes, align);
        if va.is_err() {
            self.hw.m.free(slot);
        }
        va.map(|va| (va, slot))
    }

    /// Frees the buffer at `va`.
    pub fn free_buffer(&mut self, id: SpaceId, va: u64) -> Result<(), Error> {
        let i = self.hw.find_space(id)?;
        let slot = self.hw.spaces[i].remove_buffer(va).ok_or(Error::NotFound)?;
        self.hw.m.free(slot);
        Ok(())
    }

    /// Where `bytes` bytes at `va` are, if that is in one buffer.
    pub fn map_buffer(&mut self, id: SpaceId, va: u64, bytes: u64) -> Result<Loc, Error> {
        let i = self.hw.find_space(id)?;
        match self.hw.spaces[i].locate(&self.hw.m, va, true) {
            Ok((at, extent)) if extent >= bytes => Ok(at),
            _ => Err(Error::Invalid),
        }
    }

    /// Allocates vidmem; see [`AllocRequest`]. Gives the number of pages and
    /// whether they are zero.
    pub fn pma_alloc(
        &mut self,
        ask: &AllocRequest,
        no_zero: bool,
        pages: &mut [u64],
    ) -> Result<(u64, bool), Error> {
        if self.pma_skip > 0 {
            self.pma_skip -= 1;
        } else if self.pma_fail > 0 {
            if self.pma_fail != u64::MAX {
                self.pma_fail -= 1;
            }
            self.hw.stats.pma_failures += 1;
            return Err(Error::NoVidmem);
        }
        let n = match self.pma.alloc(ask, pages) {
            Ok(n) => n,
            Err(e) => {
                self.hw.stats.pma_failures += 1;
                return Err(e);
            }
        };
        self.hw.stats.pma_allocs += n;
        let zero = self.config.zero && !no_zero;
        if zero {
            let (runs, bytes) = runs(n, ask.page_bytes, ask.contiguous);
            for &at in &pages[..runs] {
                self.fill(at, bytes, 0);
            }
        }
        Ok((n, zero))
    }

    /// Takes vidmem back, all of it or none.
    pub fn pma_free(
        &mut self,
        pages: &[u64],
        count: u64,
        page_bytes: u64,
        contiguous: bool,
    ) -> Result<(), Error> {
        let pages = self.check_pages(pages, count, page_bytes, contiguous)?;
        let (_, bytes) = runs(count, page_bytes, contiguous);
        for &at in pages {
            // A page given twice is an error that was not seen above.
            self.pma.free(at, bytes)?;
            self.poison(at, bytes);
        }
        self.hw.stats.pma_frees += count;
        Ok(())
    }

    /// Pins vidmem.
    pub fn pma_pin(&mut self, pages: &[u64], count: u64, page_bytes: u64) -> Result<(), Error> {
        for &at in self.check_pages(pages, count, page_bytes, false)? {
            self.pma.pin(at, page_bytes)?;
        }
        Ok(())
    }

    fn check_pages<'p>(
        &self,
        pages: &'p [u64],
        count: u64,
        page_bytes: u64,
        contiguous: bool,
    ) -> Result<&'p [u64], Error> {
        count.checked_mul(page_bytes).ok_or(Error::Invalid)?;
        let (n, bytes) = runs(count, page_bytes, contiguous);
        let pages = pages.get(..n).ok_or(Error::Invalid)?;
        if pages.iter().all(|&at| self.pma.is_allocated(at, bytes)) {
            Ok(pages)
        } else {
            Err(Error::Invalid)
        }
    }

    /// How much vidmem there is.
    pub fn pma_counts(&self) -> Counts {
        self.pma.counts()
    }

    /// Prepares an eviction of `begin..end`, 2 MiB aligned: nothing there is given
    /// out until [`Gpu::end_eviction`]. Busy if something there is pinned.
    pub fn begin_eviction(&mut self, begin: u64, end: u64) -> Result<(), Error> {
        if begin % CHUNK != 0 || end % CHUNK != 0 || begin >= end || end > self.pma.bytes() {
            return Err(Error::Invalid);
        }
        if self.pma.any_pinned(begin, end) {
            return Err(Error::Busy);
        }
        self.pma.set_evicting(begin, end);
        Ok(())
    }

    /// Ends an eviction: takes the 2 MiB pages that are free there for RM, as far
    /// as `pages` holds them. Gives their number.
    pub fn end_eviction(&mut self, begin: u64, end: u64, pages: &mut [u64]) -> usize {
        self.pma.set_evicting(0, 0);
        if begin % CHUNK != 0 {
            return 0;
        }
        self.pma.claim(begin, end, pages)
    }

    fn poison(&mut self, at: u64, bytes: u64) {
        if self.config.poison {
            self.fill(at, bytes, POISON);
            self.hw.stats.poisoned_bytes += bytes;
        }
    }

    fn fill(&mut self, at: u64, bytes: u64, value: u64) {
        if self.hw.m.fill(Loc::vidmem(at), bytes, &value.to_ne_bytes(), 0).is_err() {
            self.hw.m.report(format_args!("vgpu{}: no vidmem at {at:#x}", self.hw.index));
        }
    }
}

/// How many addresses stand for `count` pages, and the bytes at each.
fn runs(count: u64, page_bytes: u64, contiguous: bool) -> (usize, u64) {
    if contiguous {
        (1, count.saturating_mul(page_bytes))
    } else {
        (count as usize, page_bytes)
    }
}

// What UVM asks of RM: channels, faults and counters.
impl<M: Machine> Gpu<M> {
    /// Makes a channel of UVM's, on copy engine `engine`.
    pub fn create_channel(
        &mut self,
        space: SpaceId,
        engine: u32,
        entries: u32,
    ) -> Result<(ChannelId, ChannelPlace), Error> {
        self.hw.find_space(space)?;
        if !(2..=1 << 20).contains(&entries) {
            return Err(Error::Invalid);
        }
        let ring = self.hw.m.alloc(u64::from(entries) * 8)?;
        let made = self.hw.m.alloc(4096).map_err(Error::from).and_then(|control| {
            let place = ChannelPlace { ring, control };
            let id = ChannelId(self.next_channel);
            let pushed = self.channels.push(Channel::new(id, space, engine, entries, place));
            if pushed.is_err() {
                self.hw.m.free(control);
                return Err(Error::NoMemory);
            }
            Ok((id, place))
        });
        match made {
            Ok(_) => self.next_channel = self.next_channel.wrapping_add(1),
            Err(_) => self.hw.m.free(ring),
        }
        made
    }

    /// Destroys a channel of UVM's.
    pub fn destroy_channel(&mut self, id: ChannelId) -> Result<(), Error> {
        let i = self.channels.iter().position(|c| c.id == id).ok_or(Error::NotFound)?;
        if let Some(c) = self.channels.swap_remove(i) {
            self.hw.m.free(c.place.ring);
            self.hw.m.free(c.place.control);
        }
        Ok(())
    }

    /// Empties the fault buffer: UVM takes it over.
    pub fn reset_faults(&mut self) -> Result<(), Error> {
        self.hw.faults.reset(&self.hw.m).map_err(|_| Error::Invalid)
    }

    /// Empties the access counters' buffer: UVM takes it over.
    pub fn reset_counters(&mut self) -> Result<(), Error> {
        self.hw.counters.reset(&self.hw.m).map_err(|_| Error::Invalid)
    }

    /// Starts access counting. Numbers are UVM's.
    pub fn enable_counters(&mut self, granularity: u32, threshold: u32) {
        self.hw.counters.enable(granularity, threshold);
    }

    /// Ends access counting.
    pub fn disable_counters(&mut self) {
        self.hw.counters.disable();
    }

    /// Binds a user's channel to the address space it was made for. May be asked
    /// for again. Gives its instance pointer.
    pub fn retain_channel(
        &mut self,
        space: SpaceId,
        h_client: u32,
        h_channel: u32,
    ) -> Result<u64, Error> {
        let s = self.hw.find_space(space)?;
        let h_vaspace = self.hw.spaces[s].h_vaspace;
        let i = self.find_user(h_channel)?;
        let u = &mut self.hw.users[i];
        if !u.owned || u.h_client != h_client {
            return Err(Error::NotFound);
        }
        if h_vaspace != Some(u.h_vaspace) {
            return Err(Error::Invalid);
        }
        if u.stopped {
            return Err(Error::Stopped);
        }
        u.bound = Some(space);
        u.retained += 1;
        Ok(u.instance())
    }

    /// Stops a channel: it makes no access and no fault from now on.
    pub fn stop_channel(&mut self, h_channel: u32) -> Result<(), Error> {
        let i = self.find_user(h_channel)?;
        self.stop_user(i);
        Ok(())
    }

    /// Undoes one [`Gpu::retain_channel`].
    pub fn release_channel(&mut self, h_channel: u32) -> Result<(), Error> {
        let i = self.find_user(h_channel)?;
        let u = &mut self.hw.users[i];
        if u.retained == 0 {
            return Err(Error::Invalid);
        }
        u.retained -= 1;
        if u.retained == 0 {
            if !u.stopped {
                self.stop_user(i);
            }
            self.hw.users[i].bound = None;
            self.reap(i);
        }
        Ok(())
    }

    fn find_user(&self, h_channel: u32) -> Result<usize, Error> {
        let found = self.hw.users.iter().position(|u| u.h_channel == h_channel);
        found.ok_or(Error::NotFound)
    }

    fn stop_user(&mut self, i: usize) {
        self.hw.stats.kernels += self.hw.users[i].stop();
        self.hw.finished = true;
    }

    /// Drops a channel that nobody knows any more.
    fn reap(&mut self, i: usize) {
        let u = &self.hw.users[i];
        if !u.owned && u.retained == 0 {
            self.hw.users.swap_remove(i);
        }
    }
}

// What users ask of /dev/vgpu.
impl<M: Machine> Gpu<M> {
    /// A new handle, with the GPU's number in it.
    fn handle(&mut self) -> Result<u32, Error> {
        // Handles are not used again, so that an old one means nothing.
        if self.next_handle >= 1 << 28 {
            return Err(Error::Full);
        }
        let h = (self.config.index + 1) << 28 | self.next_handle;
        self.next_handle += 1;
        Ok(h)
    }

    /// The GPU's number that a handle was made with.
    pub fn handle_gpu(handle: u32) -> Option<u32> {
        (handle >> 28).checked_sub(1)
    }

    /// Makes an address space for a client.
    pub fn create_vaspace(&mut self, h_client: u32) -> Result<u32, Error> {
        let held = self.user_spaces.iter().filter(|u| u.h_client == h_client).count();
        if held >= MAX_VASPACES {
            return Err(Error::Full);
        }
        let h_vaspace = self.handle()?;
        self.user_spaces.push(UserSpace { h_client, h_vaspace })?;
        Ok(h_vaspace)
    }

    /// Makes a channel.
    pub fn create_user_channel(&mut self, h_client: u32, h_vaspace: u32) -> Result<u32, Error> {
        self.find_vaspace(h_client, h_vaspace)?;
        let mine = |u: &&UserChannel| u.h_client == h_client && u.owned;
        if self.hw.users.iter().filter(mine).count() >= MAX_CHANNELS {
            return Err(Error::Full);
        }
        let h_channel = self.handle()?;
        self.hw.users.push(UserChannel::new(h_client, h_channel, h_vaspace)?)?;
        Ok(h_channel)
    }

    /// Gives up an address space or channel.
    pub fn destroy_handle(&mut self, h_client: u32, handle: u32) -> Result<(), Error> {
        if let Ok(i) = self.find_owned(h_client, handle) {
            self.stop_user(i);
            self.hw.users[i].owned = false;
            self.reap(i);
            return Ok(());
        }
        let i = self.find_vaspace(h_client, handle)?;
        if self.hw.users.iter().any(|u| u.owned && u.h_vaspace == handle) {
            return Err(Error::Busy);
        }
        self.user_spaces.swap_remove(i);
        Ok(())
    }

    /// Gives up everything of a client.
    pub fn close_client(&mut self, h_client: u32) {
        while let Some(i) =
            self.hw.users.iter().position(|u| u.h_client == h_client && u.owned)
        {
            self.stop_user(i);
            self.hw.users[i].owned = false;
            self.reap(i);
        }
        while let Some(i) = self.user_spaces.iter().position(|u| u.h_client == h_client) {
            self.user_spaces.swap_remove(i);
        }
    }

    /// Queues a kernel; gives its fence. `utlb_faults` of 0 is the default.
    pub fn submit(
        &mut self,
        h_client: u32,
        h_channel: u32,
        ops: &[Op],
        utlb_faults: u32,
    ) -> Result<u64, Error> {
        let i = self.find_owned(h_client, h_channel)?;
        let u = &mut self.hw.users[i];
        if u.stopped {
            return Err(Error::Stopped);
        }
        if u.bound.is_none() {
            return Err(Error::NotBound);
        }
        if utlb_faults > UTLB_FAULTS_MAX {
            return Err(Error::Invalid);
        }
        let limit = if utlb_faults == 0 { UTLB_FAULTS } else { utlb_faults };
        let fence = u.next_fence();
        u.submit(Kernel::new(fence, ops, limit)?)?;
        Ok(fence)
    }

    /// A kernel's result; `None` while it is unfinished.
    pub fn result(
        &self,
        h_client: u32,
        h_channel: u32,
        fence: u64,
    ) -> Result<Option<Outcome>, Error> {
        let i = self.find_owned(h_client, h_channel)?;
        self.hw.users[i].result(fence)
    }

    /// Walks a user's page tables: aperture (0 none, 1 vidmem, 2 system memory),
    /// bytes of the page, permissions as in the interface, and fault type.
    pub fn translate(
        &self,
        h_client: u32,
        h_vaspace: u32,
        va: u64,
    ) -> Result<(u32, u64, u32, u32), Error> {
        self.find_vaspace(h_client, h_vaspace)?;
        if va >= VA_END {
            return Err(Error::Invalid);
        }
        let none = |fault| Ok((0, 0, 0, fault));
        let Some(space) = self.hw.spaces.iter().find(|s| s.h_vaspace == Some(h_vaspace)) else {
            return none(FaultType::InvalidPde as u32);
        };
        match space.page(&self.hw.m, va) {
            Ok(page) => {
                let aperture = if page.base.space == super::Space::Vidmem { 1 } else { 2 };
                let may_write = u32::from(page.writable) << 1;
                let may_atomic = u32::from(page.writable && page.atomic) << 2;
                Ok((aperture, page.bytes, 1 | may_write | may_atomic, u32::MAX))
            }
            Err(Miss::Fault(f)) => none(f as u32),
            Err(_) => none(FaultType::InvalidPte as u32),
        }
    }

    fn find_vaspace(&self, h_client: u32, h_vaspace: u32) -> Result<usize, Error> {
        let ours = |u: &UserSpace| u.h_client == h_client && u.h_vaspace == h_vaspace;
        self.user_spaces.iter().position(ours).ok_or(Error::NotFound)
    }

    fn find_owned(&self, h_client: u32, h_channel: u32) -> Result<usize, Error> {
        let ours =
            |u: &UserChannel| u.h_client == h_client && u.h_channel == h_channel && u.owned;
        self.hw.users.iter().position(ours).ok_or(Error::NotFound)
    }

    /// What is left that should have gone: channels, address spaces, vidmem bytes.
    pub fn leaks(&self) -> (usize, usize, u64) {
        (self.channels.len(), self.hw.spaces.len(), self.pma.allocated())
    }
}

impl<M: Machine> Hw<M> {
    pub(super) fn find_space(&self, id: SpaceId) -> Result<usize, Error> {
        self.spaces.iter().position(|s| s.id == id).ok_or(Error::NotFound)
    }

    /// Where a channel's access goes; what for, in words.
    pub(super) fn locate(
        &mut self,
        id: SpaceId,
        va: u64,
        write: bool,
        what: &'static str,
    ) -> Result<(Loc, u64), Trouble> {
        let i = self.find_space(id).map_err(|_| Trouble::NotEmulated("no address space"))?;
        self.spaces[i].locate(&self.m, va, write).map_err(|lost| Trouble::Lost(what, va, lost))
    }

    /// Invalidates the TLB: of one page directory or all; of a range (address and
    /// 4 KiB pages) or all.
    pub(super) fn invalidate(&mut self, pdb: Option<Pdb>, range: Option<(u64, u64)>) {
        if self.drop_invalidates > 0 {
            if self.drop_invalidates != u64::MAX {
                self.drop_invalidates -= 1;
            }
            self.stats.tlb_invalidates_dropped += 1;
            return;
        }
        if pdb.is_none() && range.is_none() {
            self.tlb.invalidate_all();
            return;
        }
        for s in self.spaces.iter().filter(|s| pdb.is_none() || s.pdb == pdb) {
            match range {
                Some((va, pages)) => self.tlb.invalidate_range(s.id, va, pages),
                None => self.tlb.invalidate_space(s.id),
            }
        }
    }
}

#[cfg(test)]
mod tests;
