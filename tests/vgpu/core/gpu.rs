// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The GPU as a whole: what UVM asks of RM, what users ask of /dev/vgpu, and the
//! emulator's turn.

use core::sync::atomic::Ordering;

use super::channel::Channel;
use super::channel::Trouble;
use super::counters::AccessCounters;
use super::fault::FaultBuffer;
use super::host::show_time;
use super::kernel::MAX_WARPS;
use super::late::Late;
use super::machine::BadAddress;
use super::machine::Loc;
use super::machine::Machine;
use super::machine::Slot;
use super::machine::MAX_PEERS;
use super::order::Order;
use super::order::Schedule;
use super::peer::Peers;
use super::personality::Personality;
use super::pma::Pma;
use super::pma::CHUNK;
use super::pma::GRANULE;
use super::sm::Budget;
use super::sm::Ring;
use super::sm::UserChannel;
use super::space::AddressSpace;
use super::space::Lost;
use super::space::SpaceId;
use super::stats::Stats;
use super::tlb::Invalidate;
use super::tlb::Tlb;
use super::walk::FaultType;
use super::walk::Miss;
use crate::mem::OutOfMemory;
use crate::mem::TryVec;

mod rm;
#[cfg(test)]
pub(super) mod tests;
mod turn;
mod users;
mod vidmem;

/// Offsets of registers in the register page, and of what a channel's control
/// page holds. The C side knows them too (`kernel/vgpu_rs.h`).
pub mod reg {
    /// Time in ns, low half.
    pub const TIME_LOW: u64 = 0x00;
    /// Time in ns, the upper 32 bits of it.
    pub const TIME_HIGH: u64 = 0x04;
    /// Replayable fault buffer: read up to here, by UVM.
    pub const FAULT_GET: u64 = 0x80;
    /// Written up to here.
    pub const FAULT_PUT: u64 = 0x84;
    /// Access counter notifications: read up to here, by UVM.
    pub const COUNTER_GET: u64 = 0xc0;
    /// Written up to here.
    pub const COUNTER_PUT: u64 = 0xc4;
    /// RM's ring of copies' faults: read up to here, by RM. Both of these count on.
    pub const COPY_FAULT_GET: u64 = 0xd0;
    /// Written up to here.
    pub const COPY_FAULT_PUT: u64 = 0xd4;
    /// In the adversarial order: which interrupts are pending, of the fault buffer (bit 0) and of notifications (bit 1). For RM, who
    /// clears it as it tells UVM.
    pub const PENDING: u64 = 0xd8;
    /// Registers that UVM writes, of which nothing but the interrupts' is read (prefetch control, runlists), start here.
    pub const SINK: u64 = 0x100;
    /// The entries of RM's ring of copies' faults start here.
    pub const COPY_FAULTS: u64 = 0x800;
    /// Bytes of all entries of that ring together, up to the end of the page.
    pub const COPY_FAULTS_BYTES: u64 = 0x800;
    /// Bytes of the page.
    pub const BYTES: u64 = 0x1000;

    /// In a channel's control page: PUT, the entry after the last one that UVM has written.
    pub const CHANNEL_PUT: u64 = crate::emu::channel::PUT;
    /// In a channel's control page: GET, the entry that is read next.
    pub const CHANNEL_GET: u64 = crate::emu::channel::GET;
    /// In a channel's control page: the doorbell, rung with the channel's token.
    pub const CHANNEL_DOORBELL: u64 = crate::emu::channel::DOORBELL;
    /// In a channel's control page: the error notifier.
    pub const CHANNEL_NOTIFIER: u64 = crate::emu::channel::NOTIFIER;
}

/// GPUs at most: each is a peer of all others.
pub const MAX_GPUS: usize = MAX_PEERS;
/// Vidmem at its start that RM keeps.
pub(super) const RESERVED: u64 = CHUNK;
/// Bits of a handle below the GPU's number, which is counted from 1. The C side knows it too.
const HANDLE_BITS: u32 = 27;
/// What of a channel's handle makes its instance pointer.
pub(super) const HANDLE_MASK: u32 = (1 << HANDLE_BITS) - 1;
/// Most vidmem: what RM keeps has a bit for each granule of it (`peer.rs`).
const MAX_VIDMEM: u64 = RESERVED * 8 * GRANULE;
/// Outstanding faults per µTLB where a kernel does not say.
pub(super) const UTLB_FAULTS: u32 = 56;
/// How much one turn executes, to bound the time the lock is held.
const ENTRIES_PER_TURN: u32 = 64;
/// How much all users' kernels together execute in one turn, for the same reason.
const BUDGET_PER_TURN: Budget = Budget {
    instructions: 128,
    // An instruction is at most 32 accesses of 4 KiB, and may pass the bound by so much.
    bytes: (4 << 20) - 32 * 4096,
};

/// Why a call failed. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The host has no memory.
    NoMemory,
    /// The GPU has no memory.
    NoVidmem,
    /// An argument is out of range.
    Invalid,
    /// There is no object of this handle.
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
    /// For messages and handles, from 0 to 7.
    pub index: u32,
    /// Which real GPU is emulated.
    pub chip: &'static Personality,
    /// Size of its memory, a multiple of 2 MiB, from 8 MiB to 1 TiB.
    pub vidmem_bytes: u64,
    /// Entries of the fault buffer, 4 to 65536.
    pub fault_entries: u32,
    /// Keep translations in a software TLB, so that missing invalidates show.
    pub tlb: bool,
    /// Ignore TLB invalidates, all of them.
    pub drop_invalidates: bool,
    /// Fill freed memory with a pattern.
    pub poison: bool,
    /// Give UVM zeroed memory, and say so, unless it asks not to.
    pub zero: bool,
    /// In which order channels and kernels run.
    pub order: Order,
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
        /// How many allocations to refuse after that.
        count: u64,
    },
    /// Stop a user's channel.
    ChannelError(u32),
    /// Stop a channel of UVM's.
    UvmChannelError(u32),
    /// Let users' channels stand still, as when the system is about to sleep, or go on.
    Preempt(bool),
}

/// What was done in one turn of the emulator.
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
    pub(super) peers: Peers,
    pub(super) spaces: TryVec<AddressSpace>,
    pub(super) users: TryVec<UserChannel>,
    pub(super) gpc_tlb: Tlb,
    pub(super) hub_tlb: Tlb,
    pub(super) tlb_on: bool,
    pub(super) faults: FaultBuffer,
    /// What is on its way, in the adversarial order.
    pub(super) late: Option<Late>,
    pub(super) counters: AccessCounters,
    pub(super) stats: Stats,
    /// A bit per 64 KiB of vidmem, a word per 2 MiB: written since it was last
    /// filled with the poison pattern, so that only this need be filled again.
    dirty: TryVec<u32>,
    /// Invalidates to ignore yet.
    drop_invalidates: u64,
    /// Scratch of the SMs: warps to try again next turn.
    pub(super) retry: Ring,
    /// Whose turn among `users` comes first.
    pub(super) next_user: u32,
    /// A kernel ended since the last turn's end.
    pub(super) finished: bool,
    /// Some users' copies may be tried.
    pub(super) has_copies: bool,
}

/// One emulated GPU: its memory, channels, users and counters.
#[derive(Debug)]
pub struct Gpu<M> {
    pub(super) hw: Hw<M>,
    channels: TryVec<Channel>,
    pma: Pma,
    user_spaces: TryVec<UserSpace>,
    config: Config,
    next_space: u64,
    next_channel: u32,
    next_handle: u32,
    pma_skip: u64,
    pma_fail: u64,
    /// Users' channels stand still.
    preempted: bool,
    /// Who goes next, in the adversarial order.
    schedule: Option<Schedule>,
    /// Whose each step was.
    #[cfg(test)]
    pub(super) trace: std::vec::Vec<super::order::Party>,
}

impl<M: Machine> Hw<M> {
    /// What every channel works on, idle, its memory full of the pattern if that is on. Apart because of the stack, as [`new()`](Self::new) is.
    #[inline(never)]
    fn filled(m: M, config: &Config) -> Result<Self, Error> {
        let mut hw = Self::new(m, config)?;
        if config.poison {
            hw.poison(RESERVED, config.vidmem_bytes - RESERVED);
        }
        Ok(hw)
    }

    /// What every channel works on, idle. The caller fills the memory with the pattern.
    ///
    /// This is a function of its own because of the stack: within [`Gpu::new`] the parts would
    /// lie there beside the whole, and the kernel allows a frame 2 KiB.
    #[inline(never)]
    fn new(mut m: M, config: &Config) -> Result<Self, Error> {
        let registers = m.alloc(reg::BYTES)?;
        let faults = FaultBuffer::new(&mut m, registers, config.fault_entries)?;
        let counters = AccessCounters::new(&mut m, registers)?;
        Ok(Self {
            m,
            index: config.index,
            chip: config.chip,
            registers,
            peers: Peers::default(),
            spaces: TryVec::new(),
            users: TryVec::new(),
            gpc_tlb: Tlb::new()?,
            hub_tlb: Tlb::new()?,
            tlb_on: config.tlb,
            faults,
            late: Late::new(config.order, config.index)?,
            counters,
            stats: Stats::default(),
            dirty: TryVec::filled((config.vidmem_bytes / CHUNK) as usize, u32::MAX)?,
            drop_invalidates: if config.drop_invalidates { u64::MAX } else { 0 },
            retry: Ring::new(MAX_WARPS as usize)?,
            next_user: 0,
            finished: false,
            has_copies: false,
        })
    }
}

impl<M: Machine> Gpu<M> {
    /// A GPU at rest, its memory full of the poison pattern if that is on.
    pub fn new(m: M, config: Config) -> Result<Self, Error> {
        if config.vidmem_bytes % CHUNK != 0
            || config.vidmem_bytes < 4 * CHUNK
            || !(4..=1 << 16).contains(&config.fault_entries)
            || config.index as usize >= MAX_GPUS
            || config.vidmem_bytes > MAX_VIDMEM
        {
            return Err(Error::Invalid);
        }
        let pma = Pma::new(config.vidmem_bytes, RESERVED)?;
        // Put together where the caller wants it: twice were too much for the kernel's stack. So what is large comes last, when nothing else
        // can fail.
        Ok(Self {
            channels: TryVec::new(),
            pma,
            user_spaces: TryVec::new(),
            config,
            next_space: 1,
            next_channel: 0,
            next_handle: 1,
            pma_skip: 0,
            pma_fail: 0,
            preempted: false,
            schedule: Schedule::new(config.order, config.index),
            #[cfg(test)]
            trace: std::vec::Vec::new(),
            hw: Hw::filled(m, &config)?,
        })
    }

    /// The world around it.
    pub fn machine(&self) -> &M {
        &self.hw.m
    }

    /// The world around it, to be changed.
    pub fn machine_mut(&mut self) -> &mut M {
        &mut self.hw.m
    }

    /// The settings that the GPU was made with.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The register page; see [`reg`].
    pub fn registers(&self) -> Slot {
        self.hw.registers
    }

    /// The memory of the replayable fault buffer.
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

    /// What the GPU did since it was made, by the names in `include/uapi/vgpu.h`.
    pub fn stats(&self) -> Stats {
        Stats {
            pma_bytes: self.pma.allocated(),
            ..self.hw.stats
        }
    }

    /// Counts a call of UVM's interrupt handler.
    pub fn count_interrupt(&mut self) {
        self.hw.stats.interrupts += 1;
    }

    /// The emulator's turn: executes a bounded amount of what is queued.
    pub fn run(&mut self) -> Progress {
        let now = self.hw.m.now_ns();
        self.hw.begin_turn(now);
        let mut any = if self.schedule.is_none() {
            self.run_in_turn()
        } else {
            self.run_adversarially(now)
        };
        if !self.preempted {
            any |= self.hw.run_copies();
        }
        self.hw.show_interrupts();
        Progress {
            any,
            finished: core::mem::take(&mut self.hw.finished),
        }
    }

    /// A turn in the kind order. True if anything was done.
    fn run_in_turn(&mut self) -> bool {
        let mut any = false;
        for c in self.channels.iter_mut() {
            any |= c.run(&mut self.hw, ENTRIES_PER_TURN);
        }
        if !self.preempted {
            any |= self.hw.run_kernels(BUDGET_PER_TURN);
        }
        any
    }

    /// Makes something go wrong, now or the next time it could.
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
            Injection::Preempt(yes) => {
                self.preempted = yes;
                self.hw.look();
                self.hw.all_arrive();
            }
            Injection::UvmChannelError(id) => {
                let c = self.channels.iter_mut().find(|c| c.id.0 == id);
                c.ok_or(Error::NotFound)?
                    .fail(&mut self.hw, Trouble::Injected);
            }
        }
        Ok(())
    }
}

impl<M: Machine> Hw<M> {
    /// Shows the time, and looks at what UVM has written to GET, if it has.
    fn begin_turn(&mut self, now: u64) {
        const GET: usize = (reg::FAULT_GET / 4) as usize;
        let get = match self.m.words32(Loc::buffer(self.registers, 0), GET + 1) {
            Some(words) => {
                show_time(words, now);
                words[GET].load(Ordering::Relaxed)
            }
            None => u32::MAX,
        };
        if FaultBuffer::has_bits(get) {
            self.look();
        }
    }

    /// Takes note of what UVM has written to registers.
    #[inline(never)]
    fn look(&mut self) {
        let looked = self.faults.look(&self.m).map(drop);
        self.report_no_register(looked);
    }

    /// Tells of a register page that is too small. The emulator made it, so that it never is.
    #[inline(always)]
    pub(super) fn report_no_register(&self, looked: Result<(), BadAddress>) {
        if let Err(bad) = looked {
            let index = self.index;
            self.m
                .report(format_args!("vgpu{index}: no register at {}", bad.0));
        }
    }

    pub(super) fn find_space(&self, id: SpaceId) -> Result<usize, Error> {
        self.spaces
            .iter()
            .position(|s| s.id == id)
            .ok_or(Error::NotFound)
    }

    /// Where a channel's access goes, and how many bytes from there are contiguous; what for, in
    /// words.
    pub(super) fn locate(
        &mut self,
        id: SpaceId,
        va: u64,
        write: bool,
        what: &'static str,
    ) -> Result<(Loc, u64), Trouble> {
        let i = self
            .find_space(id)
            .map_err(|_| Trouble::NotEmulated("no address space"))?;
        let space = &mut self.spaces[i];
        let found = if space.is_rms(va) {
            space.find_buffer(va).ok_or(Lost::NoBuffer)
        } else {
            self.locate_mapped(i, va, write)
        };
        found.map_err(|lost| Trouble::Lost(what, va, lost))
    }

    /// The same, of an address that page tables map.
    #[inline(never)]
    pub(super) fn locate_mapped(
        &mut self,
        i: usize,
        va: u64,
        write: bool,
    ) -> Result<(Loc, u64), Lost> {
        let space = &self.spaces[i];
        let page = if self.tlb_on {
            space.cached_page(&self.m, &mut self.hub_tlb, va)
        } else {
            space.page(&self.m, va)
        };
        let page = page.map_err(Lost::Miss)?;
        if write && !page.writable {
            return Err(Lost::Miss(Miss::Fault(FaultType::WriteToReadOnly)));
        }
        let offset = va & (page.bytes - 1);
        let at = page.base.plus(offset);
        match (page.bytes - offset).min(self.m.extent(at)) {
            0 => Err(Lost::NotMemory(at)),
            n => Ok((at, n)),
        }
    }

    /// Executes an invalidate, unless it is to be ignored.
    pub(super) fn invalidate(&mut self, what: &Invalidate) {
        if !self.is_dropped() {
            self.apply(what);
        }
    }

    /// Counts an invalidate that is to be ignored; false if it is not.
    pub(super) fn is_dropped(&mut self) -> bool {
        if self.drop_invalidates == 0 {
            return false;
        }
        if self.drop_invalidates != u64::MAX {
            self.drop_invalidates -= 1;
        }
        self.stats.tlb_invalidates_dropped += 1;
        // With these no access that has faulted could ever go on.
        self.gpc_tlb.forget_misses();
        true
    }

    /// Has the TLBs forget what an invalidate names.
    pub(super) fn apply(&mut self, what: &Invalidate) {
        let mut forget = |space| {
            self.hub_tlb.invalidate(space, what);
            if what.gpcs {
                self.gpc_tlb.invalidate(space, what);
            }
        };
        match what.pdb {
            None => forget(None),
            // One that is bound to no address space is dropped.
            Some(_) => {
                let named = self.spaces.iter().filter(|s| s.pdb == what.pdb);
                named.for_each(|s| forget(Some(s.id)));
            }
        }
    }

    /// Forgets all translations of an address space.
    pub(super) fn forget_translations(&mut self, id: SpaceId) {
        self.gpc_tlb.forget(id);
        self.hub_tlb.forget(id);
    }
}
