// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The replayable-fault service loop of a GPU: `policy/fault.rs` on upstream's GPU.
//!
//! One [`FaultLoop`] per parent GPU, made and unmade with its fault buffer. The
//! bottom half calls [`service`], a kernel thread that may sleep and that holds
//! the GPU's replayable-fault service lock throughout; so it finds the loop in
//! its place, and brings it back. Below it the loop takes, one VA space at a
//! time, `mmap_lock` and the VA space's lock in read mode (`FaultGpu::enter`);
//! va_block locks and what is below them are taken and let go by upstream's code.
//! A process may have its locks held for as long as it likes. So they are tried, and
//! waited for as long as [`Patience`] allows; else its faults come back by replay.
//!
//! Nothing is allocated while faults are serviced: the arrays are as long as the
//! ring from the start.

use super::choose::Choosing;
use super::discard::status;
use super::stats::{number_of, Gpu};
use super::tree::Now;
use crate::ffi::alarm::Alarm;
use crate::ffi::bindings::{uvm_rust_fault_params, UVM_RUST_MAX_GPUS};
use crate::ffi::fault::{Call, FaultGpu, Inside, Met};
use crate::ffi::seam;
use crate::ffi::slot::Lent;
use crate::ffi::status::Status;
use crate::ffi::time::{nap, now, now_us, rest, sleep_us};
use crate::ffi::trace::{self, FaultBatch};
use crate::policy::fault::{
    cancels_as, cancels_where_it_came_from, waits_for_entry, Entered, Entering, EntryWait, Flush,
    Looked, Machine, Outcome, Params, Patience, PrefetchFaults, PrefetchSwitch, Record,
    ReplayPolicy, Served, Service, Translated,
};
use crate::policy::mask::BLOCK_SHIFT;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use kernel::prelude::*;

/// How many microseconds the thread sleeps, up to twice as long, after a batch that served no fault because others hold
/// the locks.
const BUSY_US: u64 = 50;

/// The fault loop's state of a parent GPU.
struct Parent {
    /// The GPU's loop, from create to destroy; empty while the loop runs.
    fault_loop: Lent<KBox<FaultLoop>>,
    /// Whether the GPU's faults are being serviced.
    is_busy: AtomicBool,
    /// What comes along with the faults that are being serviced.
    along: Now,
    /// Faults that found their page mapped. The bottom half alone counts them, and begins anew with each call of
    /// [`Machine::service`].
    mapped: AtomicU32,
}

static PARENTS: [Parent; UVM_RUST_MAX_GPUS as usize] = [const {
    Parent {
        fault_loop: Lent::empty(),
        is_busy: AtomicBool::new(false),
        along: Now::new(),
        mapped: AtomicU32::new(0),
    }
}; UVM_RUST_MAX_GPUS as usize];

/// The loop of one GPU.
struct FaultLoop {
    service: Service,
    met: Met,
    prefetches: Prefetches,
    /// Whether the GPU is divided into partitions.
    partitioned: bool,
    locking: Locking,
}

/// How a loop waits for the locks of VA spaces.
struct Locking {
    patience: Patience,
    alarm: Alarm,
}

/// What does not change of a GPU's prefetch faults.
#[derive(Clone, Copy)]
struct Prefetches {
    /// Whether the GPU can turn them off.
    has_switch: bool,
    /// NVIDIA's tests are on, and the GPU is simulated.
    in_test: bool,
}

impl FaultLoop {
    /// Makes the loop for a GPU with these parameters.
    fn new(p: &uvm_rust_fault_params) -> Result<KBox<Self>> {
        let params = Params {
            ring: p.ring,
            max_batch: p.max_batch,
            utlbs: p.utlbs,
            policy: ReplayPolicy::from_number(p.policy),
            update_put_percent: p.update_put_percent,
            max_batches: p.max_batches,
            max_throttled: p.max_throttled,
            coalesce: p.coalesce != 0,
            cancels_by_address: p.cancels_by_address != 0,
            turn_us: seam::fault_turn_us(),
        };
        let service = Service::new(params).map_err(|_| ENOMEM)?;
        let met = Met::new(p.ring).map_err(|_| ENOMEM)?;
        let prefetches = Prefetches {
            has_switch: p.has_prefetch_switch != 0,
            in_test: p.simulated != 0 && seam::tests_enabled(),
        };
        let locking = Locking {
            patience: Patience::new(),
            alarm: Alarm::new()?,
        };
        let new = Self {
            service,
            met,
            prefetches,
            partitioned: p.partitioned != 0,
            locking,
        };
        Ok(KBox::new(new, GFP_KERNEL)?)
    }
}

/// Makes the loop of a parent GPU.
///
/// # Errors
///
/// `ENOMEM`; `EINVAL` for a number that no GPU has.
pub(crate) fn create(parent: u32, params: &uvm_rust_fault_params) -> Result {
    let place = PARENTS.get(parent as usize).ok_or(EINVAL)?;
    place.fault_loop.put(FaultLoop::new(params)?);
    Ok(())
}

/// Destroys the loop of a parent GPU, if there is one. No fault can be serviced at this time.
pub(crate) fn destroy(parent: u32) {
    drop(loop_of(parent));
}

fn loop_of(parent: u32) -> Option<KBox<FaultLoop>> {
    PARENTS.get(parent as usize)?.fault_loop.take()
}

/// Whether the faults of a parent GPU are being serviced. The answer may be out of date at once.
pub(crate) fn is_busy(parent: u32) -> bool {
    let place = PARENTS.get(parent as usize);
    place.is_some_and(|place| place.is_busy.load(Relaxed))
}

/// Waits until the faults of a parent GPU are serviced, for so many milliseconds at most. Returns whether they are.
/// Sleeps.
pub(crate) fn wait_idle(parent: u32, within: u64) -> bool {
    let until = now() + within;
    while is_busy(parent) {
        if now() > until {
            return false;
        }
        nap();
    }
    true
}

/// Services what is in the ring of a GPU, by the loop here or by upstream's.
pub(crate) fn service(parent: u32, mut call: Call<'_>) {
    let Some(place) = PARENTS.get(parent as usize) else {
        return;
    };
    let stats = call.stats();
    place.is_busy.store(true, Relaxed);
    match place.fault_loop.take() {
        Some(mut fault_loop) => {
            fault_loop.run(call, stats, place);
            place.fault_loop.put(fault_loop);
        }
        None => call.run_in_c(),
    }
    if let Some(gpu) = stats {
        gpu.end_service();
    }
    place.is_busy.store(false, Relaxed);
}

/// What comes along with the faults that this thread services; `None` if it services none, or upstream says what comes.
pub(crate) fn serviced_here() -> Option<&'static Now> {
    let picks = || {
        PARENTS
            .iter()
            .map(|place| &place.along)
            .find(|now| now.is_here())
    };
    seam::chooses().then(picks)?
}

/// Notes a fault that found its page mapped, in the running call of [`service`] for a parent GPU.
pub(crate) fn note_mapped(parent: u32) {
    if let Some(place) = PARENTS.get(parent as usize) {
        place.mapped.fetch_add(1, Relaxed);
    }
}

impl FaultLoop {
    /// Services what is in the ring of a GPU, whose `place` among the GPUs this is.
    fn run(&mut self, call: Call<'_>, stats: Option<&Gpu>, place: &Parent) {
        let number = call.gpu();
        let mut servicing = Servicing {
            gpu: FaultGpu::new(call, &mut self.met),
            number,
            stats,
            mapped: &place.mapped,
            along: &place.along,
            blocks: 0,
            prefetches: self.prefetches,
            partitioned: self.partitioned,
            locking: &mut self.locking,
            batch: 0,
            told: FaultBatch::default(),
            duplicates: 0,
            fatal: false,
            parked: false,
            has_waited: false,
        };
        if let Err(failed) = self.service.run(&mut servicing) {
            servicing.gpu.failed(failed);
        }
    }
}

/// A GPU for the length of one call, as the loop sees it.
struct Servicing<'a> {
    gpu: FaultGpu<'a>,
    /// The number of the GPU.
    number: u32,
    /// The GPU's statistics; `None` if they are off.
    stats: Option<&'a Gpu>,
    /// Faults that found their page mapped, as the GPU's [`Parent`] counts them.
    mapped: &'a AtomicU32,
    /// What comes along with the faults that are being serviced.
    along: &'a Now,
    /// The va_blocks of the running batch, if anything is picked.
    blocks: u32,
    prefetches: Prefetches,
    /// Whether the GPU is divided into partitions.
    partitioned: bool,
    locking: &'a mut Locking,
    /// The number of the running batch.
    batch: u32,
    /// Duplicates counted before the running call of the service code.
    duplicates: u32,
    /// What the tracepoint says of that batch, if somebody listens.
    told: FaultBatch,
    /// Whether that batch holds a fatal fault.
    fatal: bool,
    /// Whether some faults of the batch were put off.
    parked: bool,
    /// Whether the call has waited in vain, or for long, for a VA space that is alone.
    has_waited: bool,
}

impl Servicing<'_> {
    /// Waits for the locks that others have, if there is patience left. Else the faults are put off.
    #[cold]
    fn enter_busy(&mut self, space: u64, entering: Entering) -> Entered {
        let Locking { patience, alarm } = &mut *self.locking;
        let began = now_us();
        let us = patience.allows(space, entering == Entering::Again, began);
        let to_cancel = entering == Entering::Cancel;
        if us > 0 {
            let entered = self.gpu.enter_within(space, to_cancel, alarm, us);
            let got = entered != Entered::Busy;
            self.has_waited |= patience.waited(space, got, began, now_us());
            if got {
                return entered;
            }
        }
        self.parked = true;
        Entered::Busy
    }

    /// Shows what is known of the VA space that is entered to `look`, if its picks are its own.
    #[inline(always)]
    fn choosing<R>(&mut self, look: impl FnOnce(&Choosing) -> R) -> Option<R> {
        if !seam::chooses() {
            return None;
        }
        let share = self.gpu.inside()?.stats()?.share(self.number)?;
        Some(look(share.choosing()))
    }
}

// A batch may be of one fault, for which calls count: what each batch does is inlined.
impl Machine for Servicing<'_> {
    type Error = Status;

    const CHECKS: bool = cfg!(uvm_checks);

    fn broken(&mut self, invariant: &'static str) {
        pr_err!(
            "Assert failed: GPU {}: invariant {} of the fault service loop\n",
            self.number,
            invariant
        );
    }

    fn ring(&mut self) -> (u32, u32) {
        let counts = self.gpu.counts;
        let (get, put) = counts.ring();
        if get == put {
            self.gpu.read_put();
        }
        counts.ring()
    }

    #[inline(always)]
    fn fetch(&mut self, at: u32, n: u32, entry: u32, out: &mut [Record]) -> Result<u32, Status> {
        self.gpu.fetch(at, n, entry, out)
    }

    fn wait_for(&mut self, at: u32) -> Result<(), Status> {
        let began = now_us();
        loop {
            // Before the entry is looked at: a machine that stands still in between is no reason to give up.
            let waited = now_us().saturating_sub(began);
            if self.gpu.is_written(at)? {
                return Ok(());
            }
            Status::check(seam::global_status())?;
            match waits_for_entry(waited) {
                EntryWait::Spin => _ = rest(),
                EntryWait::Sleep => sleep_us(BUSY_US),
                EntryWait::GiveUp => return Err(Status::TIMEOUT),
            }
        }
    }

    fn set_get(&mut self, get: u32) {
        self.gpu.set_get(get);
    }

    fn now_us(&mut self) -> u64 {
        now_us()
    }

    #[inline(always)]
    fn begin(&mut self) {
        (self.duplicates, self.fatal, self.parked) = (0, false, false);
        (self.told.faults, self.told.duplicates, self.told.status) = (0, 0, status::OK);
        let counts = self.gpu.counts;
        counts.invalid_prefetches.set(0);
        counts.duplicates.set(0);
        counts.replays.set(0);
        counts.throttled.set(false);
        counts.forget_fatal();
        counts.number.set(counts.number.get().wrapping_add(1));
    }

    #[inline(always)]
    fn translate(&mut self, entry: u32) -> Translated {
        self.gpu.translate(entry)
    }

    fn cancel_channel(&mut self, entry: u32) -> Result<(), Status> {
        let targeted = cancels_where_it_came_from(self.partitioned);
        self.gpu.cancel_channel(entry, targeted)
    }

    #[inline(always)]
    fn publish(&mut self, records: &[Record], representatives: &[u32]) {
        self.told.entries = representatives.len() as u32;
        if let (Some(first), Some(last)) = (records.first(), records.last()) {
            self.locking.patience.meets_all(first.who, last.who);
        }
        if seam::chooses() {
            let block = |r: &Record| (r.who, r.address >> BLOCK_SHIFT);
            let others = records.windows(2).filter(|two| match two {
                [one, next] => block(one) != block(next),
                _ => false,
            });
            self.blocks = others.count() as u32 + 1;
        }
        if !self.gpu.publish(records, representatives) {
            self.broken("F-order");
        }
    }

    #[inline(always)]
    fn enter(&mut self, space: u64, entering: Entering) -> Entered {
        if self.gpu.inside().is_some() {
            self.broken("F-lock");
            self.leave();
        }
        match self.gpu.enter(space, entering == Entering::Cancel) {
            Entered::Busy => self.enter_busy(space, entering),
            entered => entered,
        }
    }

    #[inline(always)]
    fn has_waited(&self) -> bool {
        self.has_waited
    }

    #[cold]
    fn nap(&mut self) {
        sleep_us(BUSY_US);
    }

    fn invalidate(&mut self) -> Result<(), Status> {
        match self.gpu.inside() {
            Some(mut inside) => inside.invalidate(),
            None => {
                self.broken("F-lock");
                Ok(())
            }
        }
    }

    fn leave(&mut self) {
        self.gpu.leave();
    }

    #[inline]
    fn park(&mut self, first: u32, records: &[Record]) -> Option<Served> {
        let faults = self.gpu.inside()?.park(records, first == 0);
        self.parked |= faults > 0;
        let fatal = self.fatal;
        (faults > 0).then_some(Served::Faults { faults, fatal })
    }

    #[inline]
    fn service(
        &mut self,
        first: u32,
        address: u64,
        per_block: bool,
        in_place: bool,
        looked: &mut Looked,
    ) -> Result<Served, Status> {
        self.mapped.store(0, Relaxed);
        let along = self.choosing(|choosing| choosing.faults(address)).flatten();
        let now = self.along;
        let mut inside = self.gpu.inside();
        let service = |inside: &mut Inside<'_, '_>| {
            now.picks(along, || inside.service(first, per_block, in_place))
        };
        let Some((result, faults)) = inside.as_mut().and_then(service) else {
            self.broken("F-lock, F-order");
            return Ok(Served::Faults {
                faults: 1,
                fatal: false,
            });
        };
        let (counts, before) = (self.gpu.counts, self.duplicates);
        (self.batch, self.duplicates) = (counts.number.get(), counts.duplicates.get());
        self.fatal = counts.fatal().is_some();
        *looked = Looked {
            faults,
            duplicates: self.duplicates.saturating_sub(before),
            mapped: self.mapped.load(Relaxed),
        };
        let missing = faults.saturating_sub(looked.mapped);
        if along.is_some() && missing > 0 {
            let blocks = self.blocks;
            self.choosing(|choosing| choosing.served(address, missing, blocks));
        }
        match result {
            status::MORE_PROCESSING => Ok(Served::Again),
            status::MISMATCHED_TARGET => Ok(Served::AgainInPlace),
            // The page of a file has yet to come, or somebody moves pages of this va_block, and no fault was looked at. Faults are
            // told when they are serviced.
            status::NOT_READY => {
                looked.faults = 0;
                self.parked = true;
                if first == 0 {
                    self.nap();
                }
                Ok(Served::Faults {
                    faults: faults.max(1),
                    fatal: self.fatal,
                })
            }
            other => {
                if other != status::OK {
                    self.told.status = other;
                }
                Status::check(other).map(|()| Served::Faults {
                    faults,
                    fatal: self.fatal,
                })
            }
        }
    }

    #[cold]
    fn is_its_own(&self, _: Status) -> bool {
        // After a fatal error of GPU or driver nobody's faults can be serviced. Any other error is the VA space's own: its
        // cgroup is full, or a file has no such page.
        seam::healthy()
    }

    #[inline(always)]
    fn count(&mut self, instances: u64, duplicates: u32) {
        self.told.faults += instances;
        self.told.duplicates += u64::from(duplicates);
        let (Some(gpu), Some(inside)) = (self.stats, self.gpu.inside()) else {
            return;
        };
        if let Some(space) = inside.stats() {
            space.note_fault(gpu, self.number, self.batch, instances, duplicates.into());
        }
    }

    #[inline(always)]
    fn missed(&mut self, address: u64) {
        let inside = self.gpu.inside();
        if let Some(process) = inside.and_then(Inside::process) {
            process.fault(self.number, address);
        }
    }

    fn found_fatal(&mut self, first: u32) {
        let inside = self.gpu.inside();
        self.fatal |= inside.is_some_and(|mut inside| inside.found_fatal(first));
    }

    #[inline(always)]
    fn outcome(&mut self) -> Outcome {
        let counts = self.gpu.counts;
        self.told.gpu = number_of(self.number);
        self.told.batch = counts.number.get();
        trace::fault_batch(&self.told);
        let mut outcome = Outcome {
            duplicates: counts.duplicates.get(),
            invalid_prefetches: counts.invalid_prefetches.get(),
            throttled: counts.throttled.get() || self.parked,
            fatal: counts.fatal(),
            prefetch_faults: PrefetchFaults::On,
            ..Outcome::default()
        };
        // Prefetch faults stay on as long as none of them is invalid.
        let are_on = counts.prefetches_are_on.get();
        if !are_on || outcome.invalid_prefetches != 0 {
            let prefetches = self.prefetches;
            let (off_ns, lapse_ms) = self.gpu.prefetch_off();
            outcome.prefetch_faults = match (prefetches.has_switch, are_on) {
                (false, _) => PrefetchFaults::Fixed,
                (_, false) => PrefetchFaults::Off(off_ns),
                _ => PrefetchFaults::On,
            };
            outcome.prefetch_lapse_ms = lapse_ms;
            outcome.in_test = prefetches.in_test;
        }
        outcome
    }

    fn switch_prefetch_faults(&mut self, to: PrefetchSwitch) {
        self.gpu.switch_prefetch(to == PrefetchSwitch::On);
    }

    fn replay(&mut self, renumber: bool) -> Result<(), Status> {
        let result = self.gpu.replay();
        let number = self.gpu.counts.number;
        number.set(number.get().wrapping_add(renumber.into()));
        result
    }

    fn flush(&mut self, how: Flush) -> Result<(), Status> {
        self.gpu.flush(how)
    }

    fn wait_replays(&mut self, settle: bool) -> Result<(), Status> {
        self.gpu.wait(true)?;
        if settle {
            self.gpu.settle()?;
        }
        Ok(())
    }

    fn wait_service(&mut self) -> Result<(), Status> {
        self.gpu.wait(false)
    }

    fn cancel(&mut self, first: u32, n: u32, reason: Option<Status>) -> Result<(), Status> {
        let Some(mut inside) = self.gpu.inside() else {
            self.broken("F-lock");
            return Ok(());
        };
        let n = inside.clip(first, n);
        (first..first.saturating_add(n))
            .try_for_each(|at| inside.cancel(at, |fatal| cancels_as(fatal, reason)))
    }

    fn cancel_utlbs(&mut self, reason: Option<Status>) -> Result<(), Status> {
        self.gpu.cancel_utlbs(reason)
    }
}
