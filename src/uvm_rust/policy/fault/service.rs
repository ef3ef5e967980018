// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The loop over batches, and over the VA spaces and va_blocks of a batch.

use super::again::{Returns, Tries, IN_PLACE_AFTER, LEFT_AFTER};
use super::decide::{self, AfterBatch, Flush, PrefetchFaults, PrefetchSwitch, ReplayPolicy};
use super::turns::Turns;
use super::{Access, Batch, Params, Record};
use crate::mem::OutOfMemory;
use core::ops::Range;

/// What an instance pointer and subcontext stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Translated {
    /// A VA space, as the machine numbers them.
    Space(u64),
    /// The channel is gone, so the entry is stale.
    Stale,
    /// A channel, but no such subcontext: its process broke the rules.
    NoSubcontext,
}

/// What became of a call of [`Machine::service`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// The next `faults` faults were seen to; `fatal` if any fault of the batch so
    /// far turned out to be fatal.
    Faults {
        /// How many, of those in order.
        faults: u32,
        /// Whether the batch holds a fatal fault.
        fatal: bool,
    },
    /// Nothing was serviced yet: the loop must release the VA space's locks and take them again.
    Again,
    /// As `Again`; the next try must not migrate memory that the CPU shares (HMM).
    AgainInPlace,
}

/// What [`Machine::enter`] takes the locks of a VA space for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entering {
    /// To service its faults.
    Service,
    /// As `Service`, or to cancel those that are fatal. The batch has had these locks before, and let them go.
    Again,
    /// To cancel all of its faults.
    Cancel,
}

/// What came of [`Machine::enter`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entered {
    /// The locks are taken, and the GPU is registered in the VA space.
    Registered,
    /// The locks are taken. The GPU has left the VA space, so its faults are stale.
    Unregistered,
    /// Others have the locks, for longer than this thread may wait. Nothing is taken.
    Busy,
}

/// What one call of [`Machine::service`] looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Looked {
    /// How many faults, of those in order.
    pub faults: u32,
    /// How many entries of the ring that these stand for needed no work of their own, as another fault of the batch
    /// asks for their page.
    pub duplicates: u32,
    /// How many of them besides found their page mapped for their access.
    pub mapped: u32,
}

/// What the machine counted in the batch that is being worked on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Entries that needed no work of their own.
    pub duplicates: u32,
    /// Prefetches of addresses that cannot be serviced.
    pub invalid_prefetches: u32,
    /// A page was left alone because it thrashes.
    pub throttled: bool,
    /// A VA space with a fatal fault, if there is any.
    pub fatal: Option<u64>,
    /// Whether prefetch faults are on.
    pub prefetch_faults: PrefetchFaults,
    /// How long they stay off, in milliseconds.
    pub prefetch_lapse_ms: u32,
    /// NVIDIA's tests are on, and the GPU is simulated.
    pub in_test: bool,
}

/// What the loop works on: a GPU, its ring, and the VA spaces behind it.
///
/// The machine keeps a fault cache, into which it copies entries of the ring, and
/// after [`Machine::publish`] a view of it in order. `first` and `n` below count
/// in that order, `entry` in the cache.
pub trait Machine {
    /// The machine's own errors.
    type Error: Copy;

    /// Whether the invariants are checked.
    const CHECKS: bool;

    /// Reports that an invariant does not hold. The loop goes on.
    fn broken(&mut self, invariant: &'static str);

    /// GET and PUT. PUT is read from the GPU if it was equal to GET before.
    fn ring(&mut self) -> (u32, u32);

    /// Copies up to `n` entries from place `at` of the ring to `entry` and after in
    /// the fault cache and to `out`, clearing their valid bits; stops before one
    /// that the GPU has not written yet. Returns how many.
    fn fetch(
        &mut self,
        at: u32,
        n: u32,
        entry: u32,
        out: &mut [Record],
    ) -> Result<u32, Self::Error>;

    /// Waits until the GPU has written the entry at place `at`.
    fn wait_for(&mut self, at: u32) -> Result<(), Self::Error>;

    /// Tells the GPU that the ring is free up to place `get`.
    fn set_get(&mut self, get: u32);

    /// Microseconds, from some time on. Asked where several VA spaces have faults.
    fn now_us(&mut self) -> u64;

    /// Begins a batch: sets its counts to zero and gives it a new number.
    fn begin(&mut self);

    /// What the instance pointer and subcontext of `entry` stand for.
    fn translate(&mut self, entry: u32) -> Translated;

    /// Cancels what the channel of `entry` does; its subcontext is gone.
    fn cancel_channel(&mut self, entry: u32) -> Result<(), Self::Error>;

    /// The batch in order, for the calls below. `representatives` says for each
    /// entry which one stands for it.
    fn publish(&mut self, records: &[Record], representatives: &[u32]);

    /// Takes the locks of a VA space, for `entering`. It waits for others no longer than all processes' faults may.
    fn enter(&mut self, space: u64, entering: Entering) -> Entered;

    /// Whether [`Machine::enter`] has waited in this call for so long that the call is to end. Other work stands behind it,
    /// of which the loop knows nothing.
    fn has_waited(&self) -> bool;

    /// Sleeps for a moment: of the batch nothing was serviced, as others have all the locks. The GPU repeats the faults at
    /// once, and the CPU is left to those others.
    fn nap(&mut self);

    /// Invalidates what servicing left in the GPU's TLBs.
    fn invalidate(&mut self) -> Result<(), Self::Error>;

    /// Lets the locks go that [`Machine::enter`] took.
    fn leave(&mut self);

    /// Lets fault `first` and those after it, which `records` begins with, wait elsewhere if their pages are on a
    /// slower tier, to be tried again when they are back; `None` if they need not.
    fn park(&mut self, first: u32, records: &[Record]) -> Option<Served>;

    /// Services fault `first`, on the page at `address`, and those after it in its va_block. `looked` says how far that
    /// came, also where it failed.
    fn service(
        &mut self,
        first: u32,
        address: u64,
        per_block: bool,
        in_place: bool,
        looked: &mut Looked,
    ) -> Result<Served, Self::Error>;

    /// Whether a service that failed so may have failed for its VA space alone: memory was refused, as the cgroup of that
    /// process is full, or a page is none that a GPU can have. The batch's other faults are still tried.
    fn is_its_own(&self, error: Self::Error) -> bool;

    /// Counts faults for the process whose VA space is entered: `instances` entries of the ring, of which `duplicates`
    /// needed no work of their own.
    fn count(&mut self, instances: u64, duplicates: u32);

    /// Notes that the page at `address` of the entered VA space was missing, and is resident now.
    fn missed(&mut self, address: u64);

    /// Notes that fault `first` is fatal by its type, for [`Machine::outcome`].
    fn found_fatal(&mut self, first: u32);

    /// Returns the counts of this batch.
    fn outcome(&mut self) -> Outcome;

    /// Turns prefetch faults off or on.
    fn switch_prefetch_faults(&mut self, to: PrefetchSwitch);

    /// Has the GPU try again all accesses that are stalled. If `renumber`, what is left of the batch
    /// has another number from then on: to tools, the replays of one number would look like one.
    fn replay(&mut self, renumber: bool) -> Result<(), Self::Error>;

    /// Discards what is in the ring, as far as `how` says, and then has the GPU try again all accesses
    /// that are stalled.
    fn flush(&mut self, how: Flush) -> Result<(), Self::Error>;

    /// Waits until the replays have ended; if `settle`, until all faults they brought
    /// back are in the ring.
    fn wait_replays(&mut self, settle: bool) -> Result<(), Self::Error>;

    /// Waits until the copies and mappings of this batch are done.
    fn wait_service(&mut self) -> Result<(), Self::Error>;

    /// Cancels those of `n` faults from `first` that are fatal; all of them if there
    /// is a `reason` for those that are not.
    fn cancel(
        &mut self,
        first: u32,
        n: u32,
        reason: Option<Self::Error>,
    ) -> Result<(), Self::Error>;

    /// On a GPU that cannot cancel by address: finds and cancels the µTLBs with
    /// fatal faults, or with a `reason` all that the batch has faults of. Sends
    /// replays of its own.
    fn cancel_utlbs(&mut self, reason: Option<Self::Error>) -> Result<(), Self::Error>;
}

/// The service loop of one GPU.
pub struct Service {
    params: Params,
    batch: Batch,
    returns: Returns,
    turns: Turns,
}

/// One call of the loop.
pub(super) struct Call<'a, M: Machine> {
    pub(super) params: &'a Params,
    pub(super) batch: &'a mut Batch,
    returns: &'a mut Returns,
    pub(super) turns: &'a mut Turns,
    pub(super) machine: &'a mut M,
    /// F-replay: GET has moved since the last replay.
    pub(super) owed: bool,
    /// Faults of the batch were cancelled, as the service of their VA space failed.
    pub(super) refused: bool,
    /// Faults of the batch were left for the replay, as their service asked too often to be tried again (F-again), or
    /// as their VA space's turn was over (F-turn).
    pub(super) left: bool,
    replays: u32,
}

/// How a batch came out of [`Call::prepare`].
pub(super) enum Prepared {
    Ordered,
    /// The batch held stale faults, so the loop flushed the ring with all entries in it.
    Flushed,
}

/// Why the faults of a batch have not all got their VA space.
enum Untranslated {
    Stale,
    NoSubcontext(u32),
}

/// What came of the VA spaces of a batch so far.
#[derive(Default)]
pub(super) struct Visit {
    /// Others have the locks of one.
    is_busy: bool,
    /// Faults of one were seen to.
    was_serviced: bool,
    tries: Tries,
}

/// How far [`Call::service_space`] came.
enum Progress<E> {
    Done,
    /// The VA space's turn is over.
    TurnOver,
    /// The locks must be let go and taken again.
    Again,
    /// The VA space's faults cannot be serviced, by an error that is its own.
    Refused(E),
}

impl Service {
    /// For a GPU with these parameters. All memory is had here.
    pub fn new(params: Params) -> Result<Self, OutOfMemory> {
        Ok(Self {
            params,
            batch: Batch::new(params.ring)?,
            returns: Returns::default(),
            turns: Turns::new(params.turn_us)?,
        })
    }

    /// Services what is in the ring, within the limits on batches of a call.
    ///
    /// # Errors
    ///
    /// An error that the machine could not handle. The loop has then cancelled the faults of that batch, as far as
    /// possible.
    pub fn run<M: Machine>(&mut self, machine: &mut M) -> Result<(), M::Error> {
        let mut call = Call {
            params: &self.params,
            batch: &mut self.batch,
            returns: &mut self.returns,
            turns: &mut self.turns,
            machine,
            owed: false,
            refused: false,
            left: false,
            replays: 0,
        };
        let result = call.batches();
        // Send at least one replay: a fault may have found no room in the ring.
        let replayed = if call.owed || call.replays == 0 {
            call.replay()
        } else {
            Ok(())
        };
        result.and(replayed)
    }
}

impl<M: Machine> Call<'_, M> {
    fn batches(&mut self) -> Result<(), M::Error> {
        let (mut batches, mut throttled) = (0, 0);
        while decide::goes_on(self.params, batches, throttled) && !self.machine.has_waited() {
            self.fetch(false)?;
            if self.batch.entries() == 0 {
                break;
            }
            batches += 1;
            self.machine.begin();
            if let Prepared::Flushed = self.prepare()? {
                continue;
            }
            let serviced = self.service_batch();
            let outcome = self.machine.outcome();
            self.throttle_prefetches(&outcome);
            if outcome.throttled {
                self.returns.forget();
            }
            if let Err(e) = serviced {
                self.cancel_all(e);
                return Err(e);
            }
            if let Some(space) = outcome.fatal {
                self.machine.wait_service()?;
                self.cancel_fatal(space)?;
                continue;
            }
            // Each cancel is a replay too: the duplicates that it brought are discarded.
            let after = match self.refused {
                true => AfterBatch::Flush(Flush::UpdatePut),
                false => {
                    decide::flush_after_batch(self.params, self.batch.entries(), outcome.duplicates)
                }
            };
            match after {
                AfterBatch::GoOn => {}
                AfterBatch::Replay => self.replay()?,
                AfterBatch::Flush(how) => {
                    self.flush(how)?;
                    self.machine.wait_replays(false)?;
                }
            }
            throttled += u32::from(outcome.throttled || self.left);
        }
        Ok(())
    }

    /// Reads entries into the batch: `all` up to PUT, waiting for each; else those
    /// that are ready, at least one and at most a batch. None if the ring is empty.
    // As `prepare` and `serve`, a part of the loop: a batch may be of one fault, for which calls count.
    #[inline(always)]
    pub(super) fn fetch(&mut self, all: bool) -> Result<(), M::Error> {
        self.batch.clear();
        let (mut get, put) = self.machine.ring();
        let ring = self.params.ring;
        let pending = if put >= get {
            put - get
        } else {
            (ring - get.min(ring)).saturating_add(put)
        };
        let most = if all { ring } else { self.params.max_batch };
        let want = pending.min(most).min(self.batch.capacity() as u32);
        let mut got = 0;
        let result = loop {
            if got >= want {
                break Ok(());
            }
            match self.machine.fetch(get, want - got, got, self.batch.room()) {
                Ok(0) if got > 0 && !all => break Ok(()),
                Ok(0) => {
                    if let Err(e) = self.machine.wait_for(get) {
                        break Err(e);
                    }
                }
                Ok(n) => {
                    self.check(n <= want - got, "F-get");
                    self.batch.absorb(n as usize, self.params.coalesce);
                    got += n;
                    get += n;
                    if get >= ring {
                        get -= ring;
                    }
                }
                Err(e) => break Err(e),
            }
        };
        if got > 0 {
            self.machine.set_get(get);
            self.owed = true;
        }
        result
    }

    /// Orders the batch and finds its VA spaces.
    #[inline(always)]
    pub(super) fn prepare(&mut self) -> Result<Prepared, M::Error> {
        self.batch.order(self.params.coalesce);
        let machine = &mut *self.machine;
        let translated = self
            .batch
            .translate(|entry| match machine.translate(entry) {
                Translated::Space(space) => Ok(space),
                Translated::Stale => Err(Untranslated::Stale),
                Translated::NoSubcontext => Err(Untranslated::NoSubcontext(entry)),
            });
        match translated {
            Ok(()) => {
                if M::CHECKS && !self.batch.is_sound() {
                    self.machine.broken("F-order, F-merge");
                }
                self.machine
                    .publish(self.batch.records(), self.batch.representatives());
                return Ok(Prepared::Ordered);
            }
            Err(Untranslated::NoSubcontext(entry)) => self.machine.cancel_channel(entry)?,
            Err(Untranslated::Stale) => {}
        }
        // F-dead. No need to wait for replays: the context was preempted, so PUT is
        // already past what it left behind.
        self.flush(Flush::UpdatePut)?;
        Ok(Prepared::Flushed)
    }

    fn service_batch(&mut self) -> Result<(), M::Error> {
        let mut visit = Visit::default();
        (self.refused, self.left) = (false, false);
        if self.takes_turns() {
            self.service_in_turns(&mut visit)?;
        } else {
            let all = 0..self.batch.records().len();
            self.service_those(all, Entering::Service, &mut visit)?;
        }
        if (visit.is_busy || self.left) && !visit.was_serviced {
            self.machine.nap();
        }
        Ok(())
    }

    /// Services the faults at these places of the order: of one VA space after the other, all that it has, or what its
    /// turn allows. The locks of the first one are taken for `entering`.
    pub(super) fn service_those(
        &mut self,
        faults: Range<usize>,
        entering: Entering,
        visit: &mut Visit,
    ) -> Result<(), M::Error> {
        let (mut at, mut in_place) = (faults.start, false);
        let (mut entering, mut is_another_try) = (entering, false);
        while let Some(space) = self.whose(at).filter(|_| at < faults.end) {
            let enters = core::mem::replace(&mut entering, Entering::Service);
            let is_new = !core::mem::take(&mut is_another_try);
            let registered = match self.machine.enter(space, enters) {
                Entered::Busy => {
                    visit.is_busy = true;
                    self.turns.stop();
                    at += self.faults_from(at, space);
                    in_place = false;
                    continue;
                }
                entered => entered == Entered::Registered,
            };
            if is_new && self.is_first_of(at, space) {
                let address = self.batch.records().get(at).map_or(0, |r| r.address);
                in_place |= self.returns.comes(space, address) && self.may_stay(at);
            }
            if self.turns.is_shared() {
                self.turns.resume(self.machine.now_us());
            }
            let first = at;
            let progress =
                self.service_space(space, registered, &mut at, faults.end, &mut in_place);
            visit.was_serviced |= at > first || matches!(progress, Ok(Progress::Refused(_)));
            let result = match progress {
                Ok(Progress::Done) => self.machine.invalidate(),
                Ok(Progress::TurnOver) => {
                    self.turns.stop_at(at);
                    at = faults.end;
                    self.machine.invalidate()
                }
                Ok(Progress::Refused(e)) => {
                    in_place = false;
                    self.turns.stop();
                    self.cancel_refused(space, e).map(|behind| at = behind)
                }
                Ok(Progress::Again) => {
                    let times = visit.tries.again(at);
                    in_place |= times >= IN_PLACE_AFTER && self.may_stay(at);
                    if times < LEFT_AFTER {
                        (entering, is_another_try) = (Entering::Again, true);
                    } else {
                        self.left = true;
                        at += self.faults_from(at, space);
                        in_place = false;
                    }
                    Ok(())
                }
                Err(e) => Err(e),
            };
            self.machine.leave();
            if self.turns.is_shared() {
                self.turns.pause(self.machine.now_us());
            }
            result?;
        }
        Ok(())
    }

    /// Services the faults of one VA space, from `at` to those at `end`.
    fn service_space(
        &mut self,
        space: u64,
        registered: bool,
        at: &mut usize,
        end: usize,
        in_place: &mut bool,
    ) -> Result<Progress<M::Error>, M::Error> {
        let per_block = self.params.policy == ReplayPolicy::Block;
        while let Some(record) = self.batch.records().get(*at) {
            if record.who != space || *at >= end {
                break;
            }
            if record.fatal != 0 {
                self.machine.found_fatal(*at as u32);
                *at += 1;
                continue;
            }
            if !registered {
                // The GPU has left this VA space since, so the fault is stale.
                *at += 1;
                continue;
            }
            let served = match self.serve(*at, per_block, *in_place) {
                // Where faults are not cancelled by address, those of others would be cancelled with them (F-own).
                Err(e) if self.params.cancels_by_address && self.machine.is_its_own(e) => {
                    return Ok(Progress::Refused(e));
                }
                served => served?,
            };
            match served {
                Served::Again => return Ok(Progress::Again),
                Served::AgainInPlace => {
                    *in_place = true;
                    return Ok(Progress::Again);
                }
                Served::Faults { faults, fatal } => {
                    self.check(faults > 0, "F-order: a fault that was not looked at");
                    *in_place = false;
                    *at += faults.max(1) as usize;
                    if per_block && !fatal {
                        // The rest of this batch needs another replay.
                        self.replay()?;
                        self.owed = *at < self.batch.records().len();
                    }
                    if self.turns.is_shared() && self.ends_turn()? {
                        return Ok(Progress::TurnOver);
                    }
                }
            }
        }
        Ok(Progress::Done)
    }

    /// Services the faults of one va_block, from `at`, and tells whose they were. Those that wait
    /// elsewhere are told when they are serviced.
    #[inline(always)]
    pub(super) fn serve(
        &mut self,
        at: usize,
        per_block: bool,
        in_place: bool,
    ) -> Result<Served, M::Error> {
        let first = at as u32;
        let records = self.batch.records().get(at..).unwrap_or(&[]);
        if let Some(parked) = self.machine.park(first, records) {
            return Ok(parked);
        }
        let mut looked = Looked::default();
        let address = records.first().map_or(0, |record| record.address);
        let served = self
            .machine
            .service(first, address, per_block, in_place, &mut looked);
        if matches!(served, Ok(Served::Again | Served::AgainInPlace)) {
            return served;
        }
        if looked.faults > 0 {
            let of_call = records.get(..looked.faults as usize).unwrap_or(records);
            let instances = of_call.iter().map(|r| u64::from(r.instances)).sum();
            let needless = looked.duplicates.saturating_add(looked.mapped);
            self.machine.count(instances, needless);
            // Where all pages were mapped already, none was missing.
            if served.is_ok() && instances > u64::from(needless) {
                if let Some(record) = records.first() {
                    self.machine.missed(record.address);
                }
            }
        }
        served
    }

    fn throttle_prefetches(&mut self, outcome: &Outcome) {
        let switch = decide::prefetch_faults(
            self.params,
            outcome.prefetch_faults,
            outcome.invalid_prefetches,
            outcome.prefetch_lapse_ms,
            outcome.in_test,
        );
        if let Some(to) = switch {
            self.machine.switch_prefetch_faults(to);
        }
    }

    /// Whether the fault at place `at` of the order can be tried in place. For an atomic NVIDIA's code has Linux take the
    /// page from the CPU, and split the mapping of a huge page, which is never migrated from then on.
    fn may_stay(&self, at: usize) -> bool {
        let record = self.batch.records().get(at);
        record.is_some_and(|r| r.access < Access::AtomicStrong as u8)
    }

    /// The VA space of the fault at place `at` of the order.
    pub(super) fn whose(&self, at: usize) -> Option<u64> {
        Some(self.batch.records().get(at)?.who)
    }

    /// Whether the fault at place `at` of the order is the first one of this VA space.
    fn is_first_of(&self, at: usize, space: u64) -> bool {
        at.checked_sub(1).and_then(|before| self.whose(before)) != Some(space)
    }

    /// How many faults of this VA space there are from place `at` of the order on; one at least, so that who goes on
    /// behind them goes on.
    pub(super) fn faults_from(&self, at: usize, space: u64) -> usize {
        let behind = self.batch.records().iter().skip(at);
        behind.take_while(|r| r.who == space).count().max(1)
    }

    pub(super) fn replay(&mut self) -> Result<(), M::Error> {
        let renumber = self.params.policy == ReplayPolicy::Block;
        self.machine.replay(renumber)?;
        self.replayed();
        Ok(())
    }

    pub(super) fn flush(&mut self, how: Flush) -> Result<(), M::Error> {
        // GET moves even if the flush fails half-way.
        self.owed = true;
        self.machine.flush(how)?;
        self.replayed();
        Ok(())
    }

    pub(super) fn replayed(&mut self) {
        self.owed = false;
        self.replays = self.replays.saturating_add(1);
    }

    pub(super) fn check(&mut self, holds: bool, invariant: &'static str) {
        if M::CHECKS && !holds {
            self.machine.broken(invariant);
        }
    }
}
