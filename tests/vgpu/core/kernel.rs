// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Kernels: what a user submits, checked, and which access is whose.

use super::fault::Access;
use super::gpu::Error;
use super::personality::UTLBS;
use super::walk::VA_END;
use crate::mem::TryVec;

/// `struct vgpu_op`, which says what each field means (`include/uapi/vgpu.h`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)] // documented where users look: include/uapi/vgpu.h
pub struct Op {
    pub kind: u32,
    pub flags: u32,
    pub va: u64,
    pub stride: i64,
    pub count: u64,
    pub row_stride: i64,
    pub rows: u64,
    pub width: u32,
    pub warps: u32,
    pub lanes: u32,
    pub utlb_first: u32,
    pub utlb_count: u32,
    pub reserved: u32,
    pub value: u64,
    pub value_stride: u64,
}

/// The bounds that `include/uapi/vgpu.h` promises.
pub(super) const MAX_OPS: usize = 1024;
pub(super) const MAX_WARPS: u64 = 16384;
const MAX_ACCESSES: u64 = 1 << 40;
const MAX_LANES: u32 = 32;

const FLAG_BARRIER: u32 = 1 << 0;
const FLAG_BLOCKED: u32 = 1 << 1;
const FLAG_PERMUTE: u32 = 1 << 2;

/// What an op does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Write,
    AtomicAdd,
    Check,
    Prefetch,
}

impl Kind {
    /// Number in the interface.
    pub(super) fn uapi(self) -> u32 {
        self as u32
    }

    /// What the MMU is asked for.
    pub(super) fn access(self) -> Access {
        match self {
            Self::Read | Self::Check => Access::Read,
            Self::Write => Access::Write,
            Self::AtomicAdd => Access::Atomic,
            Self::Prefetch => Access::Prefetch,
        }
    }
}

/// An op that was checked, as was its range: no sum of its fields below can overflow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) kind: Kind,
    pub(super) width: u32,
    pub(super) value: u64,
    pub(super) value_stride: u64,
    pub(super) warps: u32,
    pub(super) lanes: u32,
    barrier: bool,
    blocked: bool,
    va: u64,
    stride: i64,
    row_stride: i64,
    count: u64,
    total: u64,
    utlb_first: u32,
    utlb_count: u32,
    /// Access i is access (i * factor + shift) mod total; 1 and 0 leave it be.
    factor: u64,
    shift: u64,
}

impl Plan {
    /// A plan of what `op` says, but for where it is; see [`check_range`].
    fn new(op: &Op) -> Result<Self, Error> {
        let kind = match op.kind {
            0 => Kind::Read,
            1 => Kind::Write,
            2 => Kind::AtomicAdd,
            3 => Kind::Check,
            4 => Kind::Prefetch,
            _ => return Err(Error::Invalid),
        };
        let or = |value: u32, default| if value == 0 { default } else { value };
        let (rows, warps) = (op.rows.max(1), op.warps.max(1));
        let (lanes, utlb_count) = (or(op.lanes, MAX_LANES), or(op.utlb_count, UTLBS));
        let known = FLAG_BARRIER | FLAG_BLOCKED | FLAG_PERMUTE;
        let width = op.width;
        let width_ok = width == 4 || (width.is_power_of_two() && (8..=4096).contains(&width));
        if op.flags & !known != 0
            || op.reserved != 0
            || !width_ok
            || op.count == 0
            || lanes > MAX_LANES
            || u64::from(warps) > MAX_WARPS
            || op.utlb_first >= UTLBS
            || utlb_count > UTLBS
        {
            return Err(Error::Invalid);
        }
        let total = op.count.checked_mul(rows).filter(|&n| n <= MAX_ACCESSES);
        let total = total.ok_or(Error::Invalid)?;
        let (factor, shift) = if op.flags & FLAG_PERMUTE != 0 {
            permutation(total)
        } else {
            (1, 0)
        };
        Ok(Self {
            kind,
            width,
            value: op.value,
            value_stride: op.value_stride,
            warps,
            lanes,
            barrier: op.flags & FLAG_BARRIER != 0,
            blocked: op.flags & FLAG_BLOCKED != 0,
            va: op.va,
            stride: op.stride,
            row_stride: op.row_stride,
            count: op.count,
            total,
            utlb_first: op.utlb_first,
            utlb_count,
            factor,
            shift,
        })
    }

    /// The accesses, in their order, of instruction `step` of warp `warp`: first
    /// and number; `None` after the last.
    pub(super) fn instruction(&self, warp: u32, step: u64) -> Option<(u64, u32)> {
        let (warp, lanes) = (u64::from(warp), u64::from(self.lanes));
        let (first, end) = if self.blocked {
            let share = (self.total - 1)
                .checked_div(u64::from(self.warps))
                .unwrap_or(0)
                + 1;
            let end = ((warp + 1) * share).min(self.total);
            (warp * share + step * lanes, end)
        } else {
            ((step * u64::from(self.warps) + warp) * lanes, self.total)
        };
        (first < end).then(|| (first, (end - first).min(lanes) as u32))
    }

    /// The access that is `i`th in order: which it is, and its address.
    pub(super) fn access(&self, i: u64) -> (u64, u64) {
        let i = if self.factor == 1 { i } else { self.scatter(i) };
        let row = if self.count == self.total {
            0
        } else {
            i.checked_div(self.count).unwrap_or(0)
        };
        let column = i - row * self.count;
        let offset = (row as i64)
            .wrapping_mul(self.row_stride)
            .wrapping_add((column as i64).wrapping_mul(self.stride));
        (i, self.va.wrapping_add_signed(offset))
    }

    /// (i * factor + shift) mod total, in 64 bits: all are at most 2^40.
    fn scatter(&self, i: u64) -> u64 {
        let rem = |n: u64| n.checked_rem(self.total).unwrap_or(0);
        let (high, low) = (self.factor >> 20, self.factor & 0xf_ffff);
        rem((rem(i * high) << 20) + i * low + self.shift)
    }

    /// The pattern's first value in access `i`.
    pub(super) fn first_value(&self, i: u64) -> u64 {
        let elements = u64::from(self.width.div_ceil(8));
        self.value
            .wrapping_add(i.wrapping_mul(elements).wrapping_mul(self.value_stride))
    }

    /// The µTLB of a warp.
    pub(super) fn utlb(&self, warp: u32) -> u32 {
        (self.utlb_first + warp.checked_rem(self.utlb_count).unwrap_or(0)) % UTLBS
    }
}

/// Refuses accesses, of an op that a plan was made of, that are not aligned or not below the end of any GPU's addresses. Gives the
/// address after the last one.
fn check_range(op: &Op) -> Result<u64, Error> {
    let width = i64::from(op.width);
    if op.va % u64::from(op.width) != 0 || op.stride % width != 0 || op.row_stride % width != 0 {
        return Err(Error::Invalid);
    }
    // Both factors of each product are below 2^64, so nothing wraps.
    let across = i128::from(op.stride) * (i128::from(op.count) - 1);
    let down = i128::from(op.row_stride) * i128::from(op.rows.max(1) - 1);
    let va = i128::from(op.va);
    let lowest = va + across.min(0) + down.min(0);
    let end = va + across.max(0) + down.max(0) + i128::from(op.width);
    if lowest < 0 || end > i128::from(VA_END) {
        return Err(Error::Invalid);
    }
    Ok(end as u64)
}

/// A one-to-one map of 0..total without locality: a factor near total divided by
/// the golden ratio that has no divisor in common with it.
fn permutation(total: u64) -> (u64, u64) {
    let mut factor = (total / 1000 * 618 + total % 1000 * 618 / 1000) | 1;
    while gcd(factor, total) != 1 {
        factor += 1;
    }
    (factor, total / 3)
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while let Some(r) = a.checked_rem(b) {
        (a, b) = (b, r);
    }
    a
}

/// How a kernel ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// The kernel is queued, or runs.
    #[default]
    Unfinished = 0,
    /// All accesses were made, whatever they saw.
    Done = 1,
    /// UVM cancelled an access.
    Faulted = 2,
    /// Its channel was stopped.
    Stopped = 3,
    /// A mapping led nowhere.
    Error = 4,
}

/// A kernel's result: `struct vgpu_wait`, which says what each field means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // documented where users look: include/uapi/vgpu.h
pub struct Outcome {
    pub state: State,
    pub accesses: u64,
    pub faults: u64,
    pub duplicates: u64,
    pub refaults: u64,
    pub replays: u64,
    pub mismatches: u64,
    pub bad_va: u64,
    pub bad_expected: u64,
    pub bad_seen: u64,
    pub sum: u64,
    pub fault_va: u64,
    /// Type and op kind of the fatal fault.
    pub fault: Option<(u32, u32)>,
    pub elapsed_ns: u64,
}

/// A submitted kernel, checked, with its ops as plans of instructions.
#[derive(Debug)]
pub(super) struct Kernel {
    /// The number by which it is waited for, given when it is queued.
    pub(super) fence: u64,
    pub(super) plans: TryVec<Plan>,
    /// Outstanding faults allowed per µTLB.
    pub(super) utlb_faults: u32,
    /// The address after the last one that its accesses touch.
    pub(super) end: u64,
}

impl Kernel {
    /// Checks and copies `ops`.
    pub(super) fn new(ops: &[Op], utlb_faults: u32) -> Result<Self, Error> {
        if ops.is_empty() || ops.len() > MAX_OPS {
            return Err(Error::Invalid);
        }
        let mut plans = TryVec::with_capacity(ops.len()).map_err(|_| Error::NoMemory)?;
        let (mut warps, mut end) = (0, 0);
        for op in ops {
            let plan = Plan::new(op)?;
            end = end.max(check_range(op)?);
            warps += u64::from(plan.warps);
            plans.push(plan).map_err(|_| Error::NoMemory)?;
        }
        if warps > MAX_WARPS {
            return Err(Error::Invalid);
        }
        Ok(Self {
            fence: 0,
            plans,
            utlb_faults,
            end,
        })
    }

    /// The ops that run together from `first` on: the index after the last.
    pub(super) fn phase_end(&self, first: usize) -> usize {
        let later = self.plans.iter().skip(first + 1).position(|p| p.barrier);
        later.map_or(self.plans.len(), |n| first + 1 + n)
    }

    /// Most warps that ever run together.
    pub(super) fn most_warps(&self) -> usize {
        let mut most = 0;
        let mut first = 0;
        while first < self.plans.len() {
            let end = self.phase_end(first);
            most = most.max(
                self.plans[first..end]
                    .iter()
                    .map(|p| p.warps as usize)
                    .sum(),
            );
            first = end;
        }
        most
    }
}

#[cfg(test)]
mod tests;
