// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Methods of the copy engine: copies, fills, and semaphores after them.
//!
//! UVM uses one line per launch, pitch layout, and for fills the remap unit with
//! constants, or where there is one the scrubber; anything else is an error.

use core::sync::atomic::AtomicU8;
use core::sync::atomic::Ordering;

use super::bits::bit32;
use super::bits::field32;
use super::bits::join;
use super::bits::mask32;
use super::channel::Channel;
use super::channel::Trouble;
use super::gpu::Hw;
use super::late::Who;
use super::machine::Loc;
use super::machine::Machine;
use super::machine::PeerId;
use super::machine::Space;
use super::personality::Personality;

/// The methods of a copy engine, by their byte addresses.
mod method {
    pub(super) const SET_SEMAPHORE_A: u32 = 0x240;
    pub(super) const SET_SEMAPHORE_B: u32 = 0x244;
    pub(super) const SET_SEMAPHORE_PAYLOAD: u32 = 0x248;
    pub(super) const SET_SRC_PHYS_MODE: u32 = 0x260;
    pub(super) const SET_DST_PHYS_MODE: u32 = 0x264;
    pub(super) const LAUNCH_DMA: u32 = 0x300;
    pub(super) const OFFSET_IN_UPPER: u32 = 0x400;
    pub(super) const OFFSET_IN_LOWER: u32 = 0x404;
    pub(super) const OFFSET_OUT_UPPER: u32 = 0x408;
    pub(super) const OFFSET_OUT_LOWER: u32 = 0x40c;
    pub(super) const LINE_LENGTH_IN: u32 = 0x418;
    pub(super) const SET_MEMORY_SCRUB_PARAMETERS: u32 = 0x6fc;
    pub(super) const SET_REMAP_CONST_A: u32 = 0x700;
    pub(super) const SET_REMAP_CONST_B: u32 = 0x704;
    pub(super) const SET_REMAP_COMPONENTS: u32 = 0x708;
}

/// A transfer that begins once those before it are over.
const NON_PIPELINED: u32 = 2;
/// Bits of a launch: to fill by the remap unit, and to scrub.
const REMAP: u32 = 10;
const SCRUB: u32 = 23;
/// The only reduction that UVM asks for: it wraps at the payload.
const UNSIGNED_INCREMENT: u32 = (1 << 5) | (1 << 4) | 6;

/// The bits of a method's word that belong to a field, by NVIDIA's class headers, and mean
/// something here. The rest must be zero.
mod known {
    use super::mask32;

    /// The target. The rest are for compressed kinds, and for peers where there are such targets.
    pub(super) const PHYS_MODE: u32 = mask32(1, 0);
    pub(super) const COMPONENTS: u32 = (COMPONENT * 0x1111) | mask32(17, 16) | COUNTS;
    /// Whence each of the four components comes.
    const COMPONENT: u32 = mask32(2, 0);
    const COUNTS: u32 = mask32(21, 20) | mask32(25, 24);
    /// Transfer, flush, semaphore; layouts, lines and remapping; kinds of addresses; the
    /// semaphore's reduction; and what is flushed.
    pub(super) const LAUNCH: u32 =
        mask32(4, 0) | mask32(10, 7) | mask32(13, 12) | REDUCTION | FLUSH;
    const REDUCTION: u32 = mask32(19, 14);
    const FLUSH: u32 = mask32(25, 25);
    /// What is scrubbed is not to be discardable.
    pub(super) const SCRUB_PARAMETERS: u32 = 0;
}

/// Addresses and lengths of what is scrubbed are multiples of it.
const SCRUB_UNIT: u64 = 4096;

/// The registers that a launch reads.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CopyEngine {
    semaphore: (u32, u32),
    payload: u32,
    source_mode: u32,
    target_mode: u32,
    from: (u32, u32),
    to: (u32, u32),
    length: u32,
    constants: [u32; 2],
    components: u32,
    scrub_parameters: u32,
}

/// One side of a copy.
#[derive(Clone, Copy)]
enum Side {
    Virtual(u64),
    Physical(Loc),
}

impl Side {
    fn physical(self) -> Option<Loc> {
        match self {
            Self::Virtual(_) => None,
            Self::Physical(at) => Some(at),
        }
    }
}

impl CopyEngine {
    /// The register of a method, and the bits of it that are known.
    fn register(&mut self, chip: &Personality, address: u32) -> Option<(&mut u32, u32)> {
        Some(match address {
            method::SET_SEMAPHORE_A => (&mut self.semaphore.0, chip.ce_upper()),
            method::SET_SEMAPHORE_B => (&mut self.semaphore.1, u32::MAX),
            method::SET_SEMAPHORE_PAYLOAD => (&mut self.payload, u32::MAX),
            method::SET_SRC_PHYS_MODE => {
                (&mut self.source_mode, known::PHYS_MODE | chip.peer_targets)
            }
            method::SET_DST_PHYS_MODE => {
                (&mut self.target_mode, known::PHYS_MODE | chip.peer_targets)
            }
            method::OFFSET_IN_UPPER => (&mut self.from.0, chip.ce_upper()),
            method::OFFSET_IN_LOWER => (&mut self.from.1, u32::MAX),
            method::OFFSET_OUT_UPPER => (&mut self.to.0, chip.ce_upper()),
            method::OFFSET_OUT_LOWER => (&mut self.to.1, u32::MAX),
            method::LINE_LENGTH_IN => (&mut self.length, u32::MAX),
            method::SET_MEMORY_SCRUB_PARAMETERS if chip.has_scrub => {
                (&mut self.scrub_parameters, known::SCRUB_PARAMETERS)
            }
            method::SET_REMAP_CONST_A => (&mut self.constants[0], u32::MAX),
            method::SET_REMAP_CONST_B => (&mut self.constants[1], u32::MAX),
            method::SET_REMAP_COMPONENTS => (&mut self.components, known::COMPONENTS),
            _ => return None,
        })
    }

    /// The bytes a fill repeats, and how many of them: components of 1 to 4 bytes,
    /// each from one of the constants.
    fn pattern(&self) -> Result<Pattern, Trouble> {
        let size = field32(self.components, 17, 16) as usize + 1;
        let count = field32(self.components, 25, 24) as usize + 1;
        let mut bytes = [0; 16];
        for i in 0..count {
            let constant = match field32(self.components, 4 * i as u32 + 2, 4 * i as u32) {
                4 => self.constants[0],
                5 => self.constants[1],
                _ => return Err(Trouble::NotEmulated("remap from the source")),
            };
            bytes[i * size..][..size].copy_from_slice(&constant.to_le_bytes()[..size]);
        }
        Ok((bytes, size * count))
    }

    /// What a scrub repeats: the two constants, whatever the components are.
    fn scrub_pattern(&self) -> Pattern {
        let mut bytes = [0; 16];
        for (b, constant) in bytes.chunks_exact_mut(4).zip(self.constants) {
            b.copy_from_slice(&constant.to_le_bytes());
        }
        (bytes, 8)
    }
}

/// Bytes, and how many of them count.
type Pattern = ([u8; 16], usize);

fn side(
    chip: &Personality,
    physical: bool,
    mode: u32,
    (high, low): (u32, u32),
) -> Result<Side, Trouble> {
    let address = join(high, low);
    if !physical {
        return Ok(Side::Virtual(address));
    }
    Ok(Side::Physical(match field32(mode, 1, 0) {
        0 => Loc::vidmem(address),
        1 => Loc::sysmem(address),
        2 => return Err(Trouble::NotEmulated("system memory that is not coherent")),
        _ if chip.peer_targets != 0 => Loc::peer(PeerId::of(field32(mode, 8, 6).into()), address),
        _ => return Err(Trouble::NotEmulated("peer memory")),
    }))
}

impl Channel {
    /// Executes a method of the copy engine.
    pub(super) fn ce_method<M: Machine>(
        &mut self,
        hw: &mut Hw<M>,
        address: u32,
        value: u32,
    ) -> Result<(), Trouble> {
        if address == method::LAUNCH_DMA {
            return self.launch(hw, value);
        }
        let register = self.ce.register(hw.chip, address);
        let (register, known) = register.ok_or(Trouble::UnknownMethod)?;
        Trouble::unless_known("the word", value, known)?;
        *register = value;
        Ok(())
    }

    /// Not a part of what sets a register, which is done more often.
    #[inline(never)]
    fn launch<M: Machine>(&mut self, hw: &mut Hw<M>, launch: u32) -> Result<(), Trouble> {
        let known = known::LAUNCH | hw.chip.launch_bits;
        Trouble::unless_known("LAUNCH_DMA", launch, known)?;
        if bit32(launch, 9) {
            return Err(Trouble::NotEmulated("launch of several lines"));
        }
        let transfer = field32(launch, 1, 0);
        if transfer == 3 {
            return Err(Trouble::NotEmulated("kind of transfer"));
        }
        if bit32(launch, SCRUB) {
            self.check_scrub(launch, transfer)?;
        }
        if transfer == NON_PIPELINED {
            hw.complete(self.id);
        }
        if transfer != 0 {
            if !bit32(launch, 7) || !bit32(launch, 8) {
                return Err(Trouble::NotEmulated("block-linear layout"));
            }
            let to = side(hw.chip, bit32(launch, 13), self.ce.target_mode, self.ce.to)?;
            if bit32(launch, SCRUB) {
                let pattern = self.ce.scrub_pattern();
                self.fill(hw, to, pattern, u64::from(self.ce.length))?;
            } else if bit32(launch, REMAP) {
                let pattern = self.ce.pattern()?;
                let total = u64::from(self.ce.length) * pattern.1 as u64;
                self.fill(hw, to, pattern, total)?;
            } else {
                let from = side(
                    hw.chip,
                    bit32(launch, 12),
                    self.ce.source_mode,
                    self.ce.from,
                )?;
                self.copy(hw, from, to)?;
            }
        }
        if bit32(launch, 2) {
            hw.stats.membars += 1;
            hw.flush(self.id, !bit32(launch, 25));
        }
        let va = join(self.ce.semaphore.0, self.ce.semaphore.1);
        let payload = self.ce.payload;
        // Enable, sign (set for unsigned) and operation.
        match (field32(launch, 4, 3), field32(launch, 19, 14)) {
            (0, 0) => Ok(()),
            (1, UNSIGNED_INCREMENT) => self.increment(hw, va, payload),
            (1, 0) => self.release(hw, va, payload, false).map(drop),
            (2, 0) => self.release(hw, va, payload, true).map(drop),
            _ => Err(Trouble::NotEmulated("semaphore reduction")),
        }
    }

    /// Refuses a scrub of what cannot be scrubbed: all but pages of vidmem, by physical addresses.
    #[cold]
    #[inline(never)]
    fn check_scrub(&self, launch: u32, transfer: u32) -> Result<(), Trouble> {
        let target = join(self.ce.to.0, self.ce.to.1);
        let is_vidmem = bit32(launch, 13) && field32(self.ce.target_mode, 1, 0) == 0;
        let is_aligned = (target | u64::from(self.ce.length)) % SCRUB_UNIT == 0;
        match (transfer, bit32(launch, REMAP)) {
            (0, _) => Err(Trouble::NotEmulated("scrub without a transfer")),
            (_, true) => Err(Trouble::NotEmulated("scrub with remapping")),
            _ if !is_vidmem => Err(Trouble::NotEmulated("scrub of what is not physical vidmem")),
            _ if !is_aligned => Err(Trouble::NotEmulated("scrub of a part of a page")),
            _ => Ok(()),
        }
    }

    /// Fills `total` bytes with a pattern over and over.
    fn fill<M: Machine>(
        &mut self,
        hw: &mut Hw<M>,
        to: Side,
        (pattern, size): Pattern,
        total: u64,
    ) -> Result<(), Trouble> {
        let mut done = 0;
        while done < total {
            let (at, extent) = self.reach(hw, to, done, true, "fill target")?;
            let n = extent.min(total - done);
            hw.settle(Who::Channel(self.id), at, n);
            hw.mark_dirty(at, n);
            let phase = |done: u64| done.checked_rem(size as u64).unwrap_or(0) as usize;
            let held = hw.bytes_held(n);
            let now = n - held;
            hw.m.fill(at, now, &pattern[..size], phase(done))
                .map_err(Trouble::at("fill target"))?;
            if held > 0 {
                let phase = phase(done + now);
                hw.hold(
                    Who::Channel(self.id),
                    None,
                    at.plus(now),
                    held,
                    |_, data| {
                        let bytes = pattern[..size].iter().cycle().skip(phase);
                        data.iter_mut().zip(bytes).for_each(|(d, b)| *d = *b);
                    },
                );
            }
            done += n;
        }
        hw.stats.ce_memsets += 1;
        hw.stats.memset_bytes += total;
        Ok(())
    }

    fn copy<M: Machine>(&mut self, hw: &mut Hw<M>, from: Side, to: Side) -> Result<(), Trouble> {
        let total = u64::from(self.ce.length);
        let mut done = 0;
        let mut among_peers = false;
        while done < total {
            let (source, m) = self.reach(hw, from, done, false, "copy source")?;
            let (target, n) = self.reach(hw, to, done, true, "copy target")?;
            let n = n.min(m).min(total - done);
            among_peers |= source.of_peer().or(target.of_peer()).is_some();
            hw.settle(Who::Channel(self.id), source, n);
            hw.settle(Who::Channel(self.id), target, n);
            hw.mark_dirty(target, n);
            let held = hw.bytes_held(n);
            let now = n - held;
            hw.m.copy(target, source, now)
                .map_err(Trouble::at("copy"))?;
            if held > 0 {
                let to = target.plus(now);
                hw.hold(Who::Channel(self.id), None, to, held, |m, data| {
                    // There is memory: see the extent.
                    let bytes = m.bytes(source.plus(now), data.len()).unwrap_or(&[]);
                    let read = |b: &AtomicU8| b.load(Ordering::Relaxed);
                    data.iter_mut().zip(bytes).for_each(|(d, b)| *d = read(b));
                });
            }
            done += n;
        }
        hw.stats.ce_copies += 1;
        let counter = match (from.physical(), to.physical()) {
            _ if among_peers => &mut hw.stats.peer_bytes,
            (Some(f), Some(t)) => match (f.space, t.space) {
                (Space::Vidmem, Space::Vidmem) => &mut hw.stats.d2d_bytes,
                (Space::Vidmem, _) => &mut hw.stats.d2h_bytes,
                (_, Space::Vidmem) => &mut hw.stats.h2d_bytes,
                _ => &mut hw.stats.h2h_bytes,
            },
            _ => &mut hw.stats.virtual_bytes,
        };
        *counter += total;
        Ok(())
    }

    /// Where byte `offset` of a side is, and how many contiguous bytes follow.
    fn reach<M: Machine>(
        &mut self,
        hw: &mut Hw<M>,
        side: Side,
        offset: u64,
        write: bool,
        what: &'static str,
    ) -> Result<(Loc, u64), Trouble> {
        match side {
            Side::Virtual(va) => hw.locate(self.space, va.wrapping_add(offset), write, what),
            Side::Physical(base) => {
                let at = base.plus(offset);
                match hw.m.extent(at) {
                    0 => Err(Trouble::NotMemory(what, at)),
                    n => Ok((at, n)),
                }
            }
        }
    }
}
