// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! One access of a lane, once it is translated.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering;

use super::By;
use crate::emu::counters::Remote;
use crate::emu::gpu::Hw;
use crate::emu::kernel::Kind;
use crate::emu::kernel::Outcome;
use crate::emu::kernel::Plan;
use crate::emu::late::Late;
use crate::emu::late::Who;
use crate::emu::machine::load64;
use crate::emu::machine::BadAddress;
use crate::emu::machine::Loc;
use crate::emu::machine::Machine;
use crate::emu::machine::Space;

impl<M: Machine> Hw<M> {
    /// Makes one access, all within a page.
    pub(super) fn access(
        &mut self,
        by: &By,
        plan: &Plan,
        number: u64,
        va: u64,
        at: Loc,
        outcome: &mut Outcome,
    ) -> Result<(), BadAddress> {
        outcome.accesses += 1;
        if plan.kind == Kind::Prefetch {
            return Ok(());
        }
        if at.space == Space::Vidmem {
            self.stats.local_accesses += 1;
        } else if at.space == Space::Sysmem {
            self.stats.remote_accesses += 1;
            let remote = Remote {
                instance: by.instance,
                va,
                physical: at.at,
            };
            let late = &mut self.late;
            let is_late = || late.as_mut().is_some_and(Late::is_entry_late);
            let counters = &mut self.counters;
            if counters.count(&self.m, self.chip, &remote, 1, is_late)? {
                self.stats.access_notifications += 1;
            }
        } else {
            self.stats.peer_accesses += 1;
        }
        if plan.kind == Kind::AtomicAdd && at.space != Space::Vidmem && self.adds_apart(at) {
            return self.add_apart(by, plan, number, va, at);
        }
        self.touch(by, plan, number, va, at, outcome)
    }

    /// Makes an access that is counted.
    #[inline(always)]
    fn touch(
        &mut self,
        by: &By,
        plan: &Plan,
        number: u64,
        va: u64,
        at: Loc,
        outcome: &mut Outcome,
    ) -> Result<(), BadAddress> {
        if matches!(plan.kind, Kind::Write | Kind::AtomicAdd) {
            self.mark_dirty(at, u64::from(plan.width));
        }
        let value = plan.first_value(number);
        if self.late.is_some() {
            self.settle(Who::User(by.instance), at, u64::from(plan.width));
            if plan.kind == Kind::Write {
                return self.write_late(by, plan, value, va, at);
            }
        }
        if plan.width == 4 {
            return access32(&self.m, plan.kind, at, va, value as u32, outcome);
        }
        let words = self
            .m
            .words(at, plan.width as usize / 8)
            .ok_or(BadAddress(at))?;
        access64(words, plan, va, value, outcome);
        Ok(())
    }

    /// Makes an atomic that is none to anybody but this GPU, as over PCIe, where it reads, adds and writes.
    #[cold]
    #[inline(never)]
    fn add_apart(
        &mut self,
        by: &By,
        plan: &Plan,
        number: u64,
        va: u64,
        at: Loc,
    ) -> Result<(), BadAddress> {
        let bytes = u64::from(plan.width);
        self.mark_dirty(at, bytes);
        self.settle(Who::User(by.instance), at, bytes);
        self.settle_sums(at, bytes);
        self.write_late(by, plan, plan.first_value(number), va, at)
    }

    /// Whether an atomic outside of the GPU's memory is none: over PCIe a GPU reads, adds and writes. So a driver lets nobody else
    /// write meanwhile. With the system's memory that shows in the adversarial order alone.
    #[cold]
    fn adds_apart(&self, at: Loc) -> bool {
        match at.of_peer() {
            Some(id) => !self.peers.has_atomics(id),
            None => self.late.is_some(),
        }
    }

    /// Makes a write, of which the end may be held back; or the addition of an atomic that is none.
    #[cold]
    #[inline(never)]
    fn write_late(
        &mut self,
        by: &By,
        plan: &Plan,
        value: u64,
        va: u64,
        at: Loc,
    ) -> Result<(), BadAddress> {
        let width = u64::from(plan.width);
        let held = self.bytes_held(width);
        let element = |m: &M, i: u64| {
            let old = match plan.kind {
                Kind::AtomicAdd if width == 4 => m.load32(at).map(u64::from),
                Kind::AtomicAdd => load64(m, at.plus(8 * i)),
                _ => Ok(0),
            };
            let new = value.wrapping_add(plan.value_stride.wrapping_mul(i));
            old.map(|old| new.wrapping_add(old))
        };
        let put = |m: &M, to: Loc, value: u64| match width {
            4 => m.store32(to, value as u32),
            _ => m
                .words(to, 1)
                .and_then(<[_]>::first)
                .map_or(Err(BadAddress(to)), |w| {
                    w.store(value, Ordering::Relaxed);
                    Ok(())
                }),
        };
        let now = (width - held).div_ceil(8);
        for i in 0..now {
            put(&self.m, at.plus(8 * i), element(&self.m, i)?)?;
        }
        if held == 0 {
            return Ok(());
        }
        if self.m.bytes(at, width as usize).is_none() {
            return Err(BadAddress(at));
        }
        let through = Some((by.space, va, plan.kind == Kind::AtomicAdd));
        self.hold(
            Who::User(by.instance),
            through,
            at.plus(8 * now),
            held,
            |m, data| {
                for (i, chunk) in (now..).zip(data.chunks_mut(8)) {
                    // There is memory: see above.
                    let bytes = element(m, i).unwrap_or(0).to_ne_bytes();
                    chunk.iter_mut().zip(bytes).for_each(|(c, b)| *c = b);
                }
            },
        );
        Ok(())
    }
}

fn access64(words: &[AtomicU64], plan: &Plan, va: u64, first: u64, outcome: &mut Outcome) {
    let mut value = first;
    for (i, w) in words.iter().enumerate() {
        match plan.kind {
            Kind::Read => {
                outcome.sum = outcome.sum.wrapping_add(w.load(Ordering::Relaxed));
            }
            Kind::Write => w.store(value, Ordering::Relaxed),
            Kind::AtomicAdd => {
                w.fetch_add(value, Ordering::Relaxed);
            }
            Kind::Check => {
                let seen = w.load(Ordering::Relaxed);
                if seen != value {
                    mismatch(outcome, va + 8 * i as u64, value, seen);
                }
            }
            Kind::Prefetch => {}
        }
        value = value.wrapping_add(plan.value_stride);
    }
}

fn access32<M: Machine>(
    m: &M,
    kind: Kind,
    at: Loc,
    va: u64,
    value: u32,
    outcome: &mut Outcome,
) -> Result<(), BadAddress> {
    match kind {
        Kind::Read => outcome.sum = outcome.sum.wrapping_add(u64::from(m.load32(at)?)),
        Kind::Write => m.store32(at, value)?,
        Kind::AtomicAdd => {
            m.fetch_add32(at, value)?;
        }
        Kind::Check => {
            let seen = m.load32(at)?;
            if seen != value {
                mismatch(outcome, va, value.into(), seen.into());
            }
        }
        Kind::Prefetch => {}
    }
    Ok(())
}

fn mismatch(outcome: &mut Outcome, va: u64, expected: u64, seen: u64) {
    if outcome.mismatches == 0 {
        outcome.bad_va = va;
        outcome.bad_expected = expected;
        outcome.bad_seen = seen;
    }
    outcome.mismatches += 1;
}
