// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The planner's budgets: what each kernel's duration lets each link carry.

use std::ops::RangeInclusive;

use super::super::Machine;
use super::intervals::Interval;
use super::per_us;
use super::Target;

/// A link during one kernel.
#[derive(Clone, Copy, Debug)]
struct Slot {
    capacity: f64,
    booked: f64,
    full: bool,
}

impl Slot {
    fn left(&self) -> f64 {
        self.capacity - self.booked
    }
}

/// One direction: the GPU's link, and the SSD's share of it.
#[derive(Clone, Debug)]
struct Way {
    pcie: Vec<Slot>,
    ssd: Vec<Slot>,
}

/// The budgets of both directions.
#[derive(Clone, Debug)]
pub(in super::super) struct Links {
    out: Way,
    into: Way,
}

/// `bytes` less what fits in a slot, in the artifact's mix of integers and floats.
fn less(bytes: i64, slot: &Slot) -> i64 {
    (bytes as f64 - slot.left()) as i64
}

/// The kernel in which the last of `bytes` passes, of those from `first` on in this order.
fn last_of(slots: &[Slot], mut bytes: i64, kernels: impl Iterator<Item = usize>) -> Option<usize> {
    let mut last = None;
    for k in kernels {
        last = Some(k);
        if !slots[k].full {
            bytes = less(bytes, &slots[k]);
        }
        if bytes <= 0 {
            break;
        }
    }
    last
}

/// From kernel `from` on: the kernel in which the last of `bytes` is written.
fn last_kernel(slots: &[Slot], bytes: i64, from: usize) -> usize {
    last_of(slots, bytes, from..slots.len()).unwrap_or(from)
}

/// Before kernel `before`: the latest kernel from which `bytes` can be read in time.
fn first_kernel(slots: &[Slot], bytes: i64, before: usize) -> usize {
    last_of(slots, bytes, (0..before).rev()).unwrap_or(before)
}

impl Way {
    /// Books `bytes` on the SSD from kernel `from` on, and on the link with it.
    /// Returns the kernels touched.
    fn book_ssd(&mut self, mut bytes: i64, from: usize) -> RangeInclusive<usize> {
        let mut k = from;
        while bytes > 0 {
            let (ssd, pcie) = (&mut self.ssd[k], &mut self.pcie[k]);
            if !ssd.full {
                let all = bytes as f64 + ssd.booked <= ssd.capacity;
                let part = if all { bytes as f64 } else { ssd.left() };
                pcie.booked += part;
                pcie.full |= pcie.booked >= pcie.capacity;
                if all {
                    ssd.booked += part;
                    bytes = -1;
                } else {
                    bytes = less(bytes, ssd);
                    ssd.booked = ssd.capacity;
                    ssd.full = true;
                }
            }
            if bytes <= 0 || k + 1 == self.ssd.len() {
                break;
            }
            k += 1;
        }
        from..=k
    }

    /// Books `bytes` on the link from kernel `from` on; what exceeds the host's
    /// share of it takes from the SSD's. Returns the kernels touched.
    fn book_pcie(&mut self, mut bytes: i64, from: usize) -> RangeInclusive<usize> {
        let mut k = from;
        while bytes > 0 {
            let (ssd, pcie) = (&mut self.ssd[k], &mut self.pcie[k]);
            if !pcie.full {
                if bytes as f64 + pcie.booked > pcie.capacity {
                    bytes = less(bytes, pcie);
                    pcie.booked = pcie.capacity;
                    pcie.full = true;
                    ssd.booked = ssd.capacity;
                    ssd.full = true;
                } else {
                    pcie.booked += bytes as f64;
                    let share = pcie.capacity - ssd.capacity;
                    if pcie.booked >= share {
                        ssd.booked += pcie.booked - share;
                        if ssd.booked >= ssd.capacity {
                            ssd.booked = ssd.capacity;
                            ssd.full = true;
                        }
                    }
                    bytes = -1;
                }
            }
            if bytes <= 0 || k + 1 == self.pcie.len() {
                break;
            }
            k += 1;
        }
        from..=k
    }
}

impl Links {
    pub(super) fn new(starts: &[f64], m: &Machine) -> Self {
        Self::with_rates(starts, per_us(m.pcie_gbps), per_us(m.ssd_gbps))
    }

    /// Links of these rates, in bytes per µs.
    pub(in super::super) fn with_rates(starts: &[f64], pcie: f64, ssd: f64) -> Self {
        let slots = |rate: f64| -> Vec<Slot> {
            starts
                .windows(2)
                .map(|w| Slot {
                    capacity: rate * (w[1] - w[0]),
                    booked: 0.0,
                    full: false,
                })
                .collect()
        };
        let way = Way {
            pcie: slots(pcie),
            ssd: slots(ssd),
        };
        Self {
            out: way.clone(),
            into: way,
        }
    }

    /// The kernel in which half of the interval's tensor is written to the SSD.
    pub(super) fn half_written(&self, i: &Interval) -> usize {
        last_kernel(&self.out.ssd, i.bytes / 2, i.start)
    }

    /// The kernel from which half of it must be read back.
    pub(super) fn half_read(&self, i: &Interval) -> usize {
        first_kernel(&self.into.ssd, i.bytes / 2, i.end)
    }

    /// Whether the SSD's writes are booked out in all kernels `from..to`.
    pub(super) fn ssd_is_busy(&self, from: usize, to: usize) -> bool {
        self.out.ssd[from..to].iter().all(|s| s.full)
    }

    /// When the tensor is there, on the SSD or in host memory, and when it must start back.
    pub(super) fn when(&self, i: &Interval, to: Target) -> (usize, usize) {
        let [out, into] = [&self.out, &self.into].map(|way| match to {
            Target::Host => &way.pcie,
            _ => &way.ssd,
        });
        let written = last_kernel(out, i.bytes, i.start);
        (written, first_kernel(into, i.bytes, i.end))
    }

    /// Books the way there and back, the latter from kernel `read` on. Returns the kernels
    /// touched, out and in.
    pub(super) fn book(
        &mut self,
        i: &Interval,
        read: usize,
        to: Target,
    ) -> (RangeInclusive<usize>, RangeInclusive<usize>) {
        let book = match to {
            Target::Host => Way::book_pcie,
            _ => Way::book_ssd,
        };
        let into = book(&mut self.into, i.bytes, read);
        (book(&mut self.out, i.bytes, i.start), into)
    }
}
