// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! What a GPU is asked to do, and how it went.

use std::fmt;

use crate::memory::Element;
use crate::{vgpu, Buffer, Error, Result, PAGE};

/// A kernel: ops that run at the same time, save for [`Op::barrier`].
#[derive(Clone, Debug, Default)]
pub struct Kernel {
    pub(crate) ops: Vec<vgpu::Op>,
    pub(crate) utlb_faults: u32,
}

impl Kernel {
    /// A kernel that does nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an op, which runs beside those before it unless it has a barrier.
    pub fn op(mut self, op: Op) -> Self {
        self.ops.push(op.raw);
        self
    }

    /// Faults that one µTLB may have outstanding, 1 to 512.
    pub fn utlb_faults(mut self, faults: u32) -> Self {
        self.utlb_faults = faults;
        self
    }
}

/// Many memory accesses by many warps; see `struct vgpu_op`.
///
/// Starts as: every element of a buffer once, in order, a page per access where
/// the buffer is whole pages of `u64`, one warp of 32 lanes.
#[derive(Clone, Copy, Debug)]
pub struct Op {
    raw: vgpu::Op,
    element: u64,
}

impl Op {
    /// Adds the elements up into [`Report::sum`].
    pub fn read<T: Element>(buffer: &Buffer<T>) -> Self {
        Self::over(vgpu::OP_READ, buffer)
    }

    /// Stores the op's pattern into every element of `buffer`.
    pub fn write<T: Element>(buffer: &Buffer<T>) -> Self {
        Self::over(vgpu::OP_WRITE, buffer)
    }

    /// Atomically adds the pattern.
    pub fn atomic_add<T: Element>(buffer: &Buffer<T>) -> Self {
        Self::over(vgpu::OP_ATOMIC_ADD, buffer)
    }

    /// Compares with the pattern; what differs counts in [`Report::mismatches`].
    pub fn check<T: Element>(buffer: &Buffer<T>) -> Self {
        Self::over(vgpu::OP_CHECK, buffer)
    }

    /// Prefetch instructions, which may fault and never wait.
    pub fn prefetch<T: Element>(buffer: &Buffer<T>) -> Self {
        Self::over(vgpu::OP_PREFETCH, buffer)
    }

    /// One access of 8 bytes at `va`, which need not be anything's.
    pub fn wild(kind: u32, va: u64) -> Self {
        let raw = vgpu::Op {
            kind,
            va,
            stride: 8,
            count: 1,
            width: 8,
            ..vgpu::Op::default()
        };
        Self { raw, element: 8 }
    }

    fn over<T: Element>(kind: u32, buffer: &Buffer<T>) -> Self {
        let raw = vgpu::Op {
            kind,
            va: buffer.address(),
            warps: 1,
            ..vgpu::Op::default()
        };
        Self {
            raw,
            element: T::BYTES,
        }
        .cover(buffer.bytes())
    }

    /// Makes accesses that together touch `bytes` from the op's address on.
    fn cover(mut self, bytes: u64) -> Self {
        let paged = self.element == 8 && bytes % PAGE == 0 && self.raw.va % PAGE == 0;
        let width = if paged { PAGE } else { self.element };
        self.raw.width = width as u32;
        self.raw.stride = width as i64;
        self.raw.count = bytes / width;
        self
    }

    /// Only `count` elements from `first` on; the pattern starts with them.
    pub fn range(mut self, first: usize, count: usize) -> Self {
        self.raw.va += first as u64 * self.element;
        self.cover(count as u64 * self.element)
    }

    /// Only one element in every `bytes`, which is a multiple of its size. The
    /// pattern counts the elements touched.
    pub fn every(mut self, bytes: u64) -> Self {
        let span = self.raw.count * u64::from(self.raw.width);
        self.raw.width = self.element as u32;
        self.raw.stride = bytes as i64;
        self.raw.count = span / bytes;
        self
    }

    /// Element k is `value + k * stride`.
    pub fn pattern(mut self, value: u64, stride: u64) -> Self {
        self.raw.value = value;
        self.raw.value_stride = stride;
        self
    }

    /// How many warps share the work.
    pub fn warps(mut self, warps: u32) -> Self {
        self.raw.warps = warps;
        self
    }

    /// How many accesses a warp makes at a time, 1 to 32.
    pub fn lanes(mut self, lanes: u32) -> Self {
        self.raw.lanes = lanes;
        self
    }

    /// Which µTLBs the warps use, round-robin.
    pub fn utlbs(mut self, first: u32, count: u32) -> Self {
        self.raw.utlb_first = first;
        self.raw.utlb_count = count;
        self
    }

    /// Does it all so many times.
    pub fn times(mut self, rows: u64) -> Self {
        self.raw.rows = rows;
        self
    }

    /// Starts only when all earlier ops of the kernel are done.
    pub fn barrier(mut self) -> Self {
        self.raw.flags |= vgpu::OP_BARRIER;
        self
    }

    /// Gives each warp a run of its own, instead of a grid-stride loop.
    pub fn blocked(mut self) -> Self {
        self.raw.flags |= vgpu::OP_BLOCKED;
        self
    }

    /// Makes the accesses in a scattered order.
    pub fn permuted(mut self) -> Self {
        self.raw.flags |= vgpu::OP_PERMUTE;
        self
    }
}

/// How a kernel ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All accesses were made.
    Done,
    /// UVM cancelled an access: a fatal fault.
    Faulted,
    /// Its channel was stopped.
    Stopped,
    /// A mapping led nowhere: the kernel log says more.
    Broken,
}

/// What a kernel did; see `struct vgpu_wait`.
#[derive(Clone, Copy, Debug)]
pub struct Report {
    /// How the kernel ended: whether its numbers are those of a whole run.
    pub outcome: Outcome,
    /// Accesses that the kernel made.
    pub accesses: u64,
    /// Fault buffer entries written for it.
    pub faults: u64,
    /// Of these, for a page that already had one since the last replay.
    pub duplicates: u64,
    /// Replays it waited for.
    pub replays: u64,
    /// Elements that were not what [`Op::check`] expected.
    pub mismatches: u64,
    /// The first such element: address, expected, seen.
    pub bad: (u64, u64, u64),
    /// Sum of what [`Op::read`] saw.
    pub sum: u64,
    /// Address of the access that ended it.
    pub fault_va: u64,
    /// `VGPU_FAULT_*` of that access.
    pub fault_type: u32,
    /// `VGPU_OP_*` of that access.
    pub fault_kind: u32,
}

impl Report {
    pub(crate) fn from_wait(wait: &vgpu::Wait) -> Self {
        let outcome = match wait.state {
            vgpu::KERNEL_DONE => Outcome::Done,
            vgpu::KERNEL_FAULTED => Outcome::Faulted,
            vgpu::KERNEL_STOPPED => Outcome::Stopped,
            _ => Outcome::Broken,
        };
        Self {
            outcome,
            accesses: wait.accesses,
            faults: wait.faults,
            duplicates: wait.duplicates,
            replays: wait.replays,
            mismatches: wait.mismatches,
            bad: (wait.bad_va, wait.bad_expected, wait.bad_seen),
            sum: wait.sum,
            fault_va: wait.fault_va,
            fault_type: wait.fault_type,
            fault_kind: wait.fault_kind,
        }
    }

    /// The report, if every access was made and every check held.
    pub fn ok(self) -> Result<Self> {
        if self.outcome == Outcome::Done && self.mismatches == 0 {
            return Ok(self);
        }
        Err(Error::Kernel(self))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.outcome {
            Outcome::Done if self.mismatches == 0 => write!(f, "done"),
            Outcome::Done => {
                let (va, expected, seen) = self.bad;
                let n = self.mismatches;
                write!(
                    f,
                    "{n} wrong elements, one at {va:#x}: {seen:#x}, not {expected:#x}"
                )
            }
            Outcome::Stopped => write!(f, "its channel was stopped"),
            Outcome::Faulted | Outcome::Broken => {
                let what = match self.fault_kind {
                    vgpu::OP_WRITE => "write",
                    vgpu::OP_ATOMIC_ADD => "atomic",
                    vgpu::OP_PREFETCH => "prefetch",
                    _ => "read",
                };
                let why = match self.outcome {
                    Outcome::Faulted => "fatal fault",
                    _ => "a mapping led nowhere",
                };
                write!(
                    f,
                    "{why}: {what} of {:#x}, type {}",
                    self.fault_va, self.fault_type
                )
            }
        }?;
        write!(f, " ({} accesses, {} faults)", self.accesses, self.faults)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_op_covers_its_buffer() -> Result<()> {
        let pages = Buffer::<u64>::ordinary(1024)?;
        let op = Op::write(&pages).raw;
        assert_eq!(
            (op.va, op.width, op.stride, op.count),
            (pages.address(), 4096, 4096, 2)
        );
        let op = Op::write(&pages).range(512, 100).raw;
        assert_eq!(
            (op.va, op.width, op.count),
            (pages.address() + 4096, 8, 100)
        );
        let op = Op::read(&pages).every(4096).raw;
        assert_eq!((op.width, op.stride, op.count), (8, 4096, 2));
        let halves = Buffer::<u32>::ordinary(1024)?;
        let op = Op::atomic_add(&halves).raw;
        assert_eq!((op.width, op.stride, op.count), (4, 4, 1024));
        Ok(())
    }

    #[test]
    fn a_report_is_an_error_unless_all_is_well() {
        let mut wait = vgpu::Wait {
            state: vgpu::KERNEL_DONE,
            ..Default::default()
        };
        assert!(Report::from_wait(&wait).ok().is_ok());
        wait.mismatches = 1;
        let text = Report::from_wait(&wait).ok().unwrap_err().to_string();
        assert!(text.contains("1 wrong elements"), "{text}");
        wait = vgpu::Wait {
            state: vgpu::KERNEL_FAULTED,
            fault_va: 0x1000,
            ..Default::default()
        };
        let text = Report::from_wait(&wait).ok().unwrap_err().to_string();
        assert!(text.contains("fatal fault: read of 0x1000"), "{text}");
    }
}
