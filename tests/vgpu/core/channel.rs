// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! UVM's channels: a ring of entries (GPFIFO), each a run of words (pushbuffer
//! segment), which are methods for the host and the copy engine.
//!
//! A channel executes in order, until it has nothing to do, waits for a
//! semaphore, or meets an error. An error stops it for good: UVM sees it in the
//! error notifier, people in the log.

use core::fmt;
use core::sync::atomic::Ordering;

use super::bits::bit32;
use super::bits::field32;
use super::bits::join;
use super::bits::mask32;
use super::ce::CopyEngine;
use super::gpu::Hw;
use super::host::HostRegisters;
use super::machine::load64;
use super::machine::BadAddress;
use super::machine::Loc;
use super::machine::Machine;
use super::machine::Slot;
use super::personality::Personality;
use super::space::Lost;
use super::space::SpaceId;

/// Names a channel of UVM's, from ChannelAllocate to ChannelDestroy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelId(pub u32);

impl ChannelId {
    /// What UVM rings the doorbell with.
    pub(super) fn token(self) -> u32 {
        TOKEN | self.0
    }
}

/// Where a channel's memory is, for UVM to write to.
#[derive(Clone, Copy, Debug)]
pub struct ChannelPlace {
    /// The ring, 8 bytes an entry.
    pub ring: Slot,
    /// PUT, GET, the error notifier and the doorbell; see [`super::reg`].
    pub control: Slot,
    /// What the doorbell is rung with.
    pub token: u32,
}

/// In the control page: what UVM wrote last.
pub(super) const PUT: u64 = 0;
/// In the control page: what was executed last.
pub(super) const GET: u64 = 4;
/// In the control page: the doorbell, which UVM rings after PUT. On hardware all channels have one, by a token; but of two rings of one
/// word of memory the first would be lost.
pub(super) const DOORBELL: u64 = 128;
/// In the control page: RM's notification, whose status is its last 16 bits.
pub(super) const NOTIFIER: u64 = 64;
const NOTIFIER_STATUS: u64 = NOTIFIER + 12;
const STATUS_ERROR: u32 = 0xffff << 16;

/// Makes a channel's token of its number, and is in none that is 0. The C side knows it too.
const TOKEN: u32 = 1 << 31;

/// The second word of an entry without a segment: what it is for.
const NO_OPERATION: u32 = 0;
const SET_SEGMENTS: u32 = 4;

const HOST_METHODS_END: u32 = 0x100;
const SUBCHANNEL_CE: u32 = 4;
const METHOD_NOP: u32 = 0x8;

/// Whether a method is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Done,
    /// It waits for a semaphore: execute it again later.
    Blocked,
    /// The channel has done as many methods as it may for now.
    Preempted,
}

/// Why a channel stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    UnknownMethod,
    /// A known method with an operation that is not emulated.
    NotEmulated(&'static str),
    /// Bits of a word in which no field is known; which word.
    UnknownBits(&'static str, u32),
    /// What is wrong with the header of methods.
    BadHeader(&'static str),
    /// An address of the channel's address space; what it was for.
    Lost(&'static str, u64, Lost),
    /// A physical address that is in no memory; what it was for.
    NotMemory(&'static str, Loc),
    /// PUT is no entry of the ring.
    BadPut(u32),
    /// The doorbell was rung with what is not the channel's token.
    WrongToken(u32),
    /// Asked for by [`super::Gpu::inject`].
    Injected,
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownMethod => write!(f, "unknown method"),
            Self::NotEmulated(what) => write!(f, "{what} is not emulated"),
            Self::UnknownBits(word, bits) => write!(f, "bits {bits:#x} of {word} are not known"),
            Self::BadHeader(what) => write!(f, "{what}"),
            Self::Lost(what, va, lost) => write!(f, "{what} at {va:#x}: {lost:?}"),
            Self::NotMemory(what, at) => write!(f, "{what} at {at}, where there is no memory"),
            Self::BadPut(put) => write!(f, "PUT is {put:#x}, beyond the ring"),
            Self::WrongToken(token) => {
                write!(f, "the doorbell was rung with {token:#x}, another token")
            }
            Self::Injected => write!(f, "error injected"),
        }
    }
}

impl Trouble {
    /// An error if `value`, which is `word`'s, has bits out of `known`: either they mean what is
    /// not emulated, or the driver has put something where it does not belong.
    pub(super) fn unless_known(word: &'static str, value: u32, known: u32) -> Result<(), Self> {
        match value & !known {
            0 => Ok(()),
            bits => Err(Self::UnknownBits(word, bits)),
        }
    }

    /// Makes a `map_err` for an access to memory.
    pub(super) fn at(what: &'static str) -> impl Fn(BadAddress) -> Self {
        move |bad| Self::NotMemory(what, bad.0)
    }
}

/// What was next on the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// Nothing: GET has reached PUT.
    Nothing,
    /// An entry without a segment, which is done.
    NoOperation,
    /// A segment, now being executed.
    Segment,
}

/// How the address goes on after each word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Increase,
    IncreaseOnce,
    Stay,
}

/// The segment being executed.
#[derive(Clone, Copy, Debug)]
struct Push {
    words: Loc,
    len: u32,
    next: u32,
    /// Data words still to come for the last header.
    count: u32,
    mode: Mode,
    subchannel: u32,
    method: u32,
}

/// A channel of UVM's own: its ring of pushbuffer segments, and how far it is.
#[derive(Debug)]
pub(super) struct Channel {
    pub(super) id: ChannelId,
    pub(super) space: SpaceId,
    engine: u32,
    entries: u32,
    pub(super) place: ChannelPlace,
    get: u32,
    /// What PUT was when the doorbell was rung last.
    put: u32,
    /// The upper bits of segments' addresses.
    segments: u64,
    push: Option<Push>,
    pub(super) stopped: bool,
    blocked: bool,
    pub(super) host: HostRegisters,
    pub(super) ce: CopyEngine,
}

impl Channel {
    pub(super) fn new(
        id: ChannelId,
        space: SpaceId,
        engine: u32,
        entries: u32,
        place: ChannelPlace,
    ) -> Self {
        Self {
            id,
            space,
            engine,
            entries,
            place,
            get: 0,
            put: 0,
            segments: 0,
            push: None,
            stopped: false,
            blocked: false,
            host: HostRegisters::default(),
            ce: CopyEngine::default(),
        }
    }

    /// Whether there is an entry to execute, or the rest of one.
    pub(super) fn is_busy<M: Machine>(&self, m: &M) -> bool {
        let bell = || m.load32(Loc::buffer(self.place.control, DOORBELL));
        !self.stopped && (self.push.is_some() || self.put != self.get || bell() != Ok(0))
    }

    /// Takes up to `entries` entries off the ring and executes their segments. True if
    /// there was anything to do.
    pub(super) fn run<M: Machine>(&mut self, hw: &mut Hw<M>, entries: u32) -> bool {
        self.run_until::<M, false>(hw, entries, 0)
    }

    /// The same, up to `methods` methods far.
    pub(super) fn run_methods<M: Machine>(
        &mut self,
        hw: &mut Hw<M>,
        entries: u32,
        methods: u64,
    ) -> bool {
        let end = hw.stats.methods.saturating_add(methods);
        self.run_until::<M, true>(hw, entries, end)
    }

    /// Runs, if `BOUNDED` until the GPU has executed `end` methods. That the kind order does not
    /// ask costs it nothing, as long as each of the two forms has its functions inlined.
    fn run_until<M: Machine, const BOUNDED: bool>(
        &mut self,
        hw: &mut Hw<M>,
        entries: u32,
        end: u64,
    ) -> bool {
        let mut progress = false;
        for _ in 0..entries {
            if self.stopped {
                break;
            }
            if self.push.is_none() {
                match self.fetch(hw) {
                    Ok(Next::Nothing) => break,
                    Ok(next) => {
                        progress = true;
                        if next == Next::NoOperation {
                            continue;
                        }
                    }
                    Err(t) => {
                        self.fail(hw, t);
                        return true;
                    }
                }
            }
            match self.execute::<M, BOUNDED>(hw, &mut progress, end) {
                Ok(Step::Done) => {
                    self.push = None;
                    if let Err(t) = self.advance(hw) {
                        self.fail(hw, t);
                    }
                    progress = true;
                }
                Ok(Step::Blocked | Step::Preempted) => break,
                Err(t) => {
                    self.fail(hw, t);
                    return true;
                }
            }
        }
        progress
    }

    /// Takes the next entry off the ring.
    #[inline(always)]
    fn fetch<M: Machine>(&mut self, hw: &mut Hw<M>) -> Result<Next, Trouble> {
        let bell = Loc::buffer(self.place.control, DOORBELL);
        let bell = hw.m.word32(bell).map_err(Trouble::at("doorbell"))?;
        if bell.load(Ordering::Acquire) != 0 {
            self.answer(&hw.m, bell.swap(0, Ordering::AcqRel))?;
        }
        if self.put == self.get {
            return Ok(Next::Nothing);
        }
        let entry = Loc::buffer(self.place.ring, u64::from(self.get) * 8);
        let entry = load64(&hw.m, entry).map_err(Trouble::at("GPFIFO entry"))?;
        let (low, high) = (entry as u32, (entry >> 32) as u32);
        if field32(high, 30, 10) == 0 {
            self.control(hw.chip, low, high)?;
            self.advance(hw)?;
            return Ok(Next::NoOperation);
        }
        self.segment(hw, low, high)?;
        Ok(Next::Segment)
    }

    /// The doorbell was rung: PUT counts as it is now.
    #[inline(never)]
    fn answer<M: Machine>(&mut self, m: &M, token: u32) -> Result<(), Trouble> {
        if token != self.place.token {
            return Err(Trouble::WrongToken(token));
        }
        let put = Loc::buffer(self.place.control, PUT);
        let put = m.load32(put).map_err(Trouble::at("PUT"))?;
        // GET never gets there: it would go round the ring for ever.
        if put >= self.entries {
            return Err(Trouble::BadPut(put));
        }
        self.put = put;
        Ok(())
    }

    /// Begins with an entry's segment.
    #[inline(never)]
    fn segment<M: Machine>(&mut self, hw: &mut Hw<M>, low: u32, high: u32) -> Result<(), Trouble> {
        let len = field32(high, 30, 10);
        // The length, and the address in both words. Hosts that know Maxwell's semaphores are told as
        // well that the kernel wrote the entry.
        let privilege = u32::from(hw.chip.old_semaphores) << 8;
        let known = mask32(30, 10) | mask32(7, 0) | privilege;
        Trouble::unless_known("the GPFIFO entry's second word", high, known)?;
        Trouble::unless_known("the GPFIFO entry's first word", low, mask32(31, 2))?;
        let va = self.segments | join(high & 0xff, low);
        let (words, extent) = hw.locate(self.space, va, false, "pushbuffer")?;
        if extent < u64::from(len) * 4 {
            return Err(Trouble::NotMemory("end of pushbuffer", words.plus(extent)));
        }
        self.push = Some(Push {
            words,
            len,
            next: 0,
            count: 0,
            mode: Mode::Stay,
            subchannel: 0,
            method: 0,
        });
        hw.stats.pushes += 1;
        Ok(())
    }

    /// Executes an entry without a segment.
    #[cold]
    #[inline(never)]
    fn control(&mut self, chip: &Personality, low: u32, high: u32) -> Result<(), Trouble> {
        match (high, low) {
            (NO_OPERATION, 0) => Ok(()),
            (SET_SEGMENTS, base) if chip.has_segments => {
                let known = mask32(24, 8);
                Trouble::unless_known("the base of segments", base, known)?;
                self.segments = u64::from(field32(base, 24, 8)) << 40;
                Ok(())
            }
            _ => Err(Trouble::NotEmulated("GPFIFO control entry")),
        }
    }

    /// Moves GET to the next entry of the ring, where UVM reads it.
    fn advance<M: Machine>(&mut self, hw: &Hw<M>) -> Result<(), Trouble> {
        self.get = if self.get + 1 < self.entries {
            self.get + 1
        } else {
            0
        };
        let at = Loc::buffer(self.place.control, GET);
        hw.m.store32(at, self.get).map_err(Trouble::at("GET"))
    }

    /// Executes the segment until its end or a semaphore; see [`Channel::run_until`].
    #[inline(always)]
    fn execute<M: Machine, const BOUNDED: bool>(
        &mut self,
        hw: &mut Hw<M>,
        progress: &mut bool,
        end: u64,
    ) -> Result<Step, Trouble> {
        while let Some(p) = self.push.filter(|p| p.next < p.len) {
            if BOUNDED && hw.stats.methods >= end {
                return Ok(Step::Preempted);
            }
            let at = p.words.plus(u64::from(p.next) * 4);
            let word = hw.m.load32(at).map_err(Trouble::at("pushbuffer"))?;
            let (step, after) = if p.count == 0 {
                self.header(hw, p, word)?
            } else {
                self.data(hw, p, word)?
            };
            if step == Step::Blocked {
                if !self.blocked {
                    hw.stats.semaphore_blocks += 1;
                }
                self.blocked = true;
                return Ok(step);
            }
            self.blocked = false;
            self.push = Some(after);
            *progress = true;
        }
        Ok(Step::Done)
    }

    fn header<M: Machine>(
        &mut self,
        hw: &mut Hw<M>,
        p: Push,
        word: u32,
    ) -> Result<(Step, Push), Trouble> {
        let count = field32(word, 28, 16);
        let mut after = Push {
            next: p.next + 1,
            count,
            subchannel: field32(word, 15, 13),
            method: field32(word, 11, 0) << 2,
            ..p
        };
        // For the log, should it fail.
        self.push = Some(Push {
            next: p.next,
            count: 0,
            ..after
        });
        // Between the fields for method and subchannel.
        if bit32(word, 12) {
            return Err(Trouble::BadHeader("no method header"));
        }
        after.mode = match field32(word, 31, 29) {
            1 => Mode::Increase,
            3 => Mode::Stay,
            5 => Mode::IncreaseOnce,
            4 => {
                after.count = 0;
                let step = self.method(hw, after.subchannel, after.method, count)?;
                return Ok((step, after));
            }
            _ => return Err(Trouble::BadHeader("no method header")),
        };
        if count > p.len - after.next {
            return Err(Trouble::BadHeader(
                "a header that promises more words than its segment has",
            ));
        }
        Ok((Step::Done, after))
    }

    fn data<M: Machine>(
        &mut self,
        hw: &mut Hw<M>,
        p: Push,
        word: u32,
    ) -> Result<(Step, Push), Trouble> {
        if p.method == METHOD_NOP {
            // UVM hides page table entries and other data in NOPs.
            let n = p.count;
            hw.stats.methods += 1;
            return Ok((
                Step::Done,
                Push {
                    next: p.next + n,
                    count: 0,
                    ..p
                },
            ));
        }
        let step = self.method(hw, p.subchannel, p.method, word)?;
        let (method, mode) = match p.mode {
            Mode::Increase => (p.method + 4, Mode::Increase),
            Mode::IncreaseOnce => (p.method + 4, Mode::Stay),
            Mode::Stay => (p.method, Mode::Stay),
        };
        Ok((
            step,
            Push {
                next: p.next + 1,
                count: p.count - 1,
                method,
                mode,
                ..p
            },
        ))
    }

    fn method<M: Machine>(
        &mut self,
        hw: &mut Hw<M>,
        subchannel: u32,
        method: u32,
        value: u32,
    ) -> Result<Step, Trouble> {
        let step = if method < HOST_METHODS_END {
            self.host_method(hw, method, value)?
        } else if subchannel == SUBCHANNEL_CE {
            self.ce_method(hw, method, value)?;
            Step::Done
        } else {
            return Err(Trouble::UnknownMethod);
        };
        if step == Step::Done {
            hw.stats.methods += 1;
        }
        Ok(step)
    }

    /// Stops the channel, tells UVM and the log.
    pub(super) fn fail<M: Machine>(&mut self, hw: &mut Hw<M>, trouble: Trouble) {
        self.stopped = true;
        hw.stats.channel_errors += 1;
        match trouble {
            Trouble::UnknownMethod | Trouble::NotEmulated(_) | Trouble::UnknownBits(..) => {
                hw.stats.unknown_methods += 1;
            }
            Trouble::Lost(..) | Trouble::NotMemory(..) => hw.stats.bad_addresses += 1,
            Trouble::BadHeader(_)
            | Trouble::BadPut(_)
            | Trouble::WrongToken(_)
            | Trouble::Injected => {}
        }
        let (method, subchannel, value) = match self.push {
            Some(p) => {
                let at = p.words.plus(u64::from(p.next) * 4);
                (p.method, p.subchannel, hw.m.load32(at).unwrap_or(0))
            }
            None => (0, 0, 0),
        };
        hw.m.report(format_args!(
            "vgpu{}: channel {} (engine {}), method {method:#x} of subchannel {subchannel}, \
             word {value:#010x}: {trouble}; channel stopped",
            hw.index, self.id.0, self.engine
        ));
        let status = Loc::buffer(self.place.control, NOTIFIER_STATUS);
        if hw.m.store32(status, STATUS_ERROR).is_err() {
            hw.m.report(format_args!("vgpu{}: no error notifier", hw.index));
        }
    }
}
