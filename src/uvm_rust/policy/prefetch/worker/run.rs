// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! One turn of the worker.

mod ssd;

use self::ssd::Ssd;
use super::part::Part;
use super::room::Victim;
use super::{
    Machine, Migrated, Outcome, Pages, To, Turn, Worker, BLOCKS_A_HOLD, BLOCKS_A_TURN,
    EVENTS_A_BLOCK, IN_FLIGHT, STEPS,
};
use crate::policy::evict::Chunk;
use crate::policy::mask::PageMask;
use crate::policy::prefetch::{FromSsd, Next, Prefetch, UmBlock};

/// Bytes of a UM block.
const BLOCK_SIZE: u64 = UmBlock::SIZE;

/// The state of a turn.
pub(super) struct Run<'a, M> {
    pub(super) worker: &'a Worker,
    pub(super) machine: &'a mut M,
    /// Whether the worker prefetches in this turn; otherwise it only learns.
    acts: bool,
    /// Whether the locks of [`Machine::enter`] are held.
    entered: bool,
    /// How many blocks were begun since `enter`.
    held: u32,
    /// Whether the worker has waited for faults since a block was begun.
    waited: bool,
    /// Whether the last such wait timed out.
    stalled: bool,
    /// Whether one more block may be asked for from the SSD.
    may_fetch: bool,
    /// How many chunks turned out not to be movable.
    pub(super) in_vain: u32,
    /// The current kernel's number as the chunks were last told.
    pub(super) said: Option<u32>,
    /// The copies under way, by their numbers.
    copies: [Option<Copy>; IN_FLIGHT as usize],
    /// The number of the next copy.
    next_copy: u32,
}

/// A block that is being copied.
#[derive(Clone, Copy)]
struct Copy {
    pages: u32,
    what: What,
}

#[derive(Clone, Copy)]
enum What {
    /// To the GPU, with the outcome of the block unless the copy fails.
    In(Outcome),
    /// To the host, out of this chunk; `true` if all of its pages were begun.
    Out(Chunk, bool),
}

/// Memory cannot be moved now: the VA space ends, or the system suspends.
struct Stop;

/// What the worker does next, after it has learnt.
struct Step {
    next: Next,
    now: u32,
    foresees: bool,
    may_fetch: bool,
}

/// The outcome of a va_block, or of all va_blocks of a UM block.
#[derive(Clone, Copy)]
struct Brought {
    outcome: Outcome,
    pages: u32,
    /// Whether a copy was begun, which has to be settled.
    begun: bool,
    waits_for: Ssd,
    /// Whether pages of it are being read from the SSD or will be, whether or not it waits for them.
    comes: bool,
}

impl Brought {
    const fn only(outcome: Outcome) -> Self {
        Self {
            outcome,
            pages: 0,
            begun: false,
            waits_for: Ssd::Nothing,
            comes: false,
        }
    }

    /// Adds the outcome of another va_block of the same UM block.
    fn and(self, part: Self) -> Self {
        let first = self.outcome == Outcome::Unfit;
        Self {
            outcome: match part.outcome {
                Outcome::Moved => Outcome::Moved,
                outcome if first => outcome,
                _ => self.outcome,
            },
            pages: self.pages + part.pages,
            begun: self.begun || part.begun,
            waits_for: match (self.waits_for, part.waits_for) {
                (waits_for, Ssd::Nothing) => waits_for,
                (Ssd::Asked, _) => Ssd::Asked,
                (_, waits_for) => waits_for,
            },
            comes: self.comes || part.comes,
        }
    }

    /// Adds that the SSD was asked for the va_block, though the rest of the attempt is to be made anew.
    fn and_asked(self, part: &Self) -> Self {
        match part.waits_for {
            waits_for @ Ssd::Asked => Self { waits_for, ..self },
            _ => self,
        }
    }
}

/// The attempts to bring a va_block, whose lock is released between them.
struct Attempt {
    so_far: Brought,
    /// Whether a copy number is reserved for this UM block.
    number: bool,
    /// Whether the GPU had room when this last asked.
    asked: bool,
    /// Whether this has looked which pages of the block an SSD has.
    looked: bool,
    /// Whether the SSD was already asked for the block; it is asked once.
    was_asked: bool,
    /// The pages of the last attempt.
    before: Option<PageMask>,
    /// The last kernel that the block is predicted for.
    until: u32,
    /// Whether the block has to wait for the fault service.
    waits: bool,
}

/// What to do with a va_block that is locked.
enum Way {
    /// Move nothing: this is the block's outcome.
    Not(Outcome),
    /// Move these pages, of which so many are elsewhere now.
    Move(PageMask, u32),
}

/// The outcome of pushing a va_block out.
enum Left {
    /// None of its pages is on the GPU any more, once its copy is done.
    Leaves,
    /// The block is needed by now.
    Needed,
    /// The block holds nothing, or cannot be moved.
    Stays,
}

impl<'a, M: Machine> Run<'a, M> {
    pub(super) fn new(worker: &'a Worker, machine: &'a mut M) -> Self {
        Self {
            worker,
            machine,
            acts: worker.acts(),
            entered: false,
            held: 0,
            waited: false,
            stalled: false,
            may_fetch: false,
            in_vain: 0,
            said: None,
            copies: [None; IN_FLIGHT as usize],
            next_copy: 0,
        }
    }

    /// Makes the turn, up to its end.
    pub(super) fn steps(&mut self) -> Turn {
        let mut blocks = 0;
        while blocks < BLOCKS_A_TURN || self.worker.lacks(Part::TurnEnds) {
            blocks += 1;
            let step = self.learn();
            self.may_fetch = step.may_fetch || self.worker.lacks(Part::SsdWindow);
            // Marks from the time when the worker prefetched lapse also while it only learns.
            if self.worker.params.act && self.said.replace(step.now) != Some(step.now) {
                if self.enter().is_err() {
                    if let Next::Prefetch(prefetch) = step.next {
                        self.put_back(prefetch, &Brought::only(Outcome::Unfit));
                    }
                    return Turn::Stopped;
                }
                self.mark_now(step.now);
            }
            if !self.acts {
                match step.next {
                    Next::More => continue,
                    _ => return Turn::Idle,
                }
            }
            match step.next {
                Next::More => {}
                Next::Prefetch(prefetch) if prefetch.ssd == FromSsd::Over => {
                    if self.look_whether_over(prefetch).is_err() {
                        return Turn::Stopped;
                    }
                }
                Next::Prefetch(prefetch) => {
                    let until = step.now.wrapping_add(prefetch.ahead);
                    if self.bring(prefetch, until).is_err() {
                        return Turn::Stopped;
                    }
                }
                Next::Idle if self.worker.params.watermark == 0 => return Turn::Idle,
                Next::Idle if !step.foresees && !self.worker.lacks(Part::Foresees) => {
                    return Turn::Idle
                }
                Next::Idle => match self.make_room() {
                    Ok(None) => {}
                    Ok(Some(turn)) => return turn,
                    Err(Stop) => return Turn::Stopped,
                },
            }
            // The block that the wait was for may have to be chosen again.
            if self.stalled && !self.waited && !self.worker.lacks(Part::StallEnds) {
                return Turn::More;
            }
        }
        Turn::More
    }

    /// Learns what happened, and then chooses a block (W-learn).
    fn learn(&mut self) -> Step {
        let (act, lacks) = (self.acts, self.worker.lacks(Part::LearnsFirst));
        self.machine.tables(|correlator, feed, share| {
            let early = lacks.then(|| correlator.next(STEPS));
            let all = correlator.absorb(feed, EVENTS_A_BLOCK);
            correlator.settle(share);
            let next = match (all, act, early) {
                (_, true, Some(early)) => early,
                (false, ..) => Next::More,
                (true, false, _) => Next::Idle,
                (true, true, _) => correlator.next(STEPS),
            };
            Step {
                next,
                now: correlator.now(),
                foresees: correlator.foresees(),
                may_fetch: correlator.may_fetch(),
            }
        })
    }

    // Locks, and copies.

    fn enter(&mut self) -> Result<(), Stop> {
        if !self.entered {
            self.entered = self.machine.enter();
            self.held = 0;
        }
        if self.entered {
            Ok(())
        } else {
            Err(Stop)
        }
    }

    /// Settles the copies under way, and releases the locks.
    pub(super) fn let_go(&mut self) {
        for _ in 0..IN_FLIGHT {
            if !self.worker.lacks(Part::Settles) {
                self.settle(self.next_copy);
            }
            self.next_copy = (self.next_copy + 1) % IN_FLIGHT;
        }
        if core::mem::take(&mut self.entered) {
            self.machine.leave();
        }
    }

    /// Takes the locks before a block is looked at, unless the VA space ends (W-stop).
    fn ready(&mut self) -> Result<(), Stop> {
        if self.machine.is_stopping() && !self.worker.lacks(Part::Stops) {
            return Err(Stop);
        }
        if self.held >= BLOCKS_A_HOLD && !self.worker.lacks(Part::HoldEnds) {
            self.let_go();
        }
        self.enter()
    }

    /// Whether a block may be begun (W-faults). A block that needs no copy is not kept waiting.
    fn may_begin(&mut self) -> bool {
        self.waited || !self.machine.faults() || self.worker.lacks(Part::FaultsMeanwhile)
    }

    /// Waits for the fault service (W-faults). Returns whether the kernel that was learnt of last still runs.
    fn wait_faults(&mut self) -> Result<bool, Stop> {
        if !self.worker.lacks(Part::WaitsUnlocked) {
            self.let_go();
        }
        if !self.worker.lacks(Part::FaultsFirst) {
            self.stalled = !self.machine.wait_faults();
        }
        self.waited = true;
        self.ready()?;
        let lacks = self.worker.lacks(Part::LearnsAgain);
        Ok(lacks || self.machine.tables(|c, feed, _| c.is_current(feed)))
    }

    /// Whether the next copy has a number without waiting for another.
    fn has_number(&self) -> bool {
        let copy = self.copies.get(self.next_copy as usize);
        copy.is_none_or(|c| c.is_none())
    }

    /// Waits for the copies numbered `number`, if there are any (W-copies).
    fn settle(&mut self, number: u32) {
        let place = self.copies.get_mut(number as usize);
        let Some(copy) = place.and_then(Option::take) else {
            return;
        };
        let settled = self.machine.settle(number);
        if settled.waited {
            let beside = self.copies.iter().flatten().count();
            self.machine.waited(beside as u32);
        }
        let good = settled.good || self.worker.lacks(Part::SettleTells);
        match copy.what {
            What::In(outcome) if good => self.machine.brought(outcome, copy.pages),
            What::In(_) => self.machine.brought(Outcome::Failed, 0),
            What::Out(_, true) if good => self.machine.pushed_out(copy.pages),
            What::Out(chunk, _) => self.pass_over(chunk),
        }
    }

    /// Notes the copy of a block that was begun, under the next number.
    fn note(&mut self, copy: Copy) {
        self.held += 1;
        self.waited = false;
        if let Some(place) = self.copies.get_mut(self.next_copy as usize) {
            *place = Some(copy);
        }
        self.next_copy = (self.next_copy + 1) % IN_FLIGHT;
    }

    // To the GPU.

    /// Brings a predicted block, which has to stay up to kernel number `until`.
    fn bring(&mut self, prefetch: Prefetch, until: u32) -> Result<(), Stop> {
        let mut all = Brought::only(Outcome::Unfit);
        let brought = self.bring_all(prefetch, until, &mut all);
        if !matches!(brought, Ok(true)) {
            self.put_back(prefetch, &all);
            return brought.map(|_| ());
        }
        let waits = self.put_aside(prefetch, &all);
        if all.begun {
            self.note(Copy {
                pages: all.pages,
                what: What::In(all.outcome),
            });
        } else if !waits {
            self.machine.brought(all.outcome, all.pages);
        }
        Ok(())
    }

    /// Brings the va_blocks of a UM block, and adds their outcomes to `all`. Returns false if the prefetch has to
    /// come again, because another kernel was announced.
    fn bring_all(
        &mut self,
        prefetch: Prefetch,
        until: u32,
        all: &mut Brought,
    ) -> Result<bool, Stop> {
        self.ready()?;
        if self.worker.lacks(Part::WaitsToMove) && !self.may_begin() {
            self.wait_faults()?;
        }
        let mut at = prefetch.block.address();
        let last = at + (BLOCK_SIZE - 1);
        let is_coming = prefetch.ssd != FromSsd::Not;
        // Several va_blocks, where ranges are smaller than 2 MiB or not aligned.
        while at <= last {
            let Some(found) = self.machine.next_block(at, last) else {
                break;
            };
            let may_move = found.hindrances.may_move()
                || self.worker.lacks(Part::PolicyIn) && !found.hindrances.no_block;
            let part = if may_move {
                self.bring_block(all, until, prefetch.ssd == FromSsd::Asked)
            } else {
                let comes = is_coming && self.is_on_its_way(&found);
                let unfit = Brought::only(Outcome::Unfit);
                Some(Brought { comes, ..unfit })
            };
            let Some(part) = part else {
                // The wait released the locks, so the same memory is looked up again.
                if self.wait_faults()? {
                    continue;
                }
                return Ok(false);
            };
            *all = all.and(part);
            // What the SSD did not give says nothing of the va_blocks beside it.
            let failed = part.outcome == Outcome::Failed && part.begun;
            if failed || part.outcome == Outcome::NoRoom {
                // Those behind it were not looked at.
                all.comes |= is_coming && found.next <= last;
                break;
            }
            if found.next <= at {
                if M::CHECKS {
                    self.machine.broken("W-bound: the same memory twice");
                }
                break;
            }
            at = found.next;
        }
        Ok(true)
    }

    /// Brings the chosen va_block, under the next copy number, which other va_blocks of its UM block may have. `None`
    /// if the worker has to wait for faults first. `all` is the outcome of those others.
    fn bring_block(&mut self, all: &mut Brought, until: u32, was_asked: bool) -> Option<Brought> {
        let mut attempt = Attempt {
            so_far: Brought::only(Outcome::Resident),
            number: all.begun,
            asked: false,
            looked: false,
            was_asked,
            before: None,
            until,
            waits: false,
        };
        self.machine.lock(To::Gpu);
        while self.try_to_bring(&mut attempt) {}
        self.machine.unlock();
        if attempt.waits {
            *all = all.and_asked(&attempt.so_far);
            return None;
        }
        Some(attempt.so_far)
    }

    /// Makes an attempt. Returns whether another one has to follow, because the va_block's lock was released.
    fn try_to_bring(&mut self, attempt: &mut Attempt) -> bool {
        let pages = self.machine.pages();
        let (mut wanted, missing) = match self.way(&pages, attempt) {
            Way::Move(wanted, missing) => (wanted, missing),
            Way::Not(outcome) => {
                let resident = outcome == Outcome::Resident;
                if resident && !self.worker.lacks(Part::MarksResident) {
                    self.expect(attempt.until, false);
                }
                // The other pages came before the lock was released.
                let came = resident && attempt.so_far.begun;
                attempt.so_far.outcome = if came { Outcome::Moved } else { outcome };
                return false;
            }
        };
        if !attempt.number && !self.may_begin() {
            attempt.waits = true;
            return false;
        }
        if !attempt.number && !self.has_number() && !self.worker.lacks(Part::Window) {
            // The worker waits for no copy with a va_block locked.
            self.machine.unlock();
            self.settle(self.next_copy);
            self.machine.lock(To::Gpu);
            attempt.asked = false;
            return true;
        }
        attempt.number = true;
        attempt.so_far.begun = true;
        attempt.so_far.pages = attempt.so_far.pages.max(missing);
        if let (Some(before), true) = (attempt.before, self.worker.lacks(Part::LooksAgain)) {
            wanted = before;
        }
        attempt.before = Some(wanted);
        match self.machine.migrate(self.next_copy, &wanted, To::Gpu) {
            Migrated::Again => return true,
            Migrated::Begun => {
                attempt.so_far.outcome = Outcome::Moved;
                if !self.worker.lacks(Part::Marks) {
                    self.expect(attempt.until, pages.there.is_empty());
                }
            }
            failed => {
                attempt.so_far.outcome = match failed {
                    Migrated::NoRoom => Outcome::NoRoom,
                    _ => Outcome::Failed,
                };
                attempt.so_far.pages = 0;
            }
        }
        false
    }

    /// The part of some pages of a va_block that a prefetch may bring (W-fit).
    fn fit(&self, mut of: PageMask, pages: &Pages) -> PageMask {
        if !self.worker.lacks(Part::Thrashing) {
            of -= pages.thrashing;
        }
        // A guess must not bring back what was discarded.
        if !self.worker.lacks(Part::Discarded) {
            of -= pages.discarded;
        }
        of
    }

    /// What to do with the locked va_block (W-fit, W-room, W-ssd).
    fn way(&mut self, pages: &Pages, attempt: &mut Attempt) -> Way {
        // Never populated: the first access decides where.
        let wanted = self.fit(pages.populated, pages);
        let missing = wanted - pages.there;
        let stored = self.stored(pages, attempt);
        let once = attempt.was_asked && !self.worker.lacks(Part::SsdOnce);
        let asks = !stored.idle.is_empty() && !once;
        if missing.is_empty() && !asks {
            let did_not_come = stored.failed || !stored.idle.is_empty();
            if did_not_come && stored.coming.is_empty() && pages.there.is_empty() {
                return Way::Not(Outcome::Failed);
            }
            self.ask(&stored, false, attempt);
            return Way::Not(Outcome::Resident);
        }
        let has_chunk = !pages.there.is_empty() && !self.worker.lacks(Part::HasChunk);
        let needs_none = missing.is_empty() && self.worker.lacks(Part::SsdRoom);
        if !has_chunk && !attempt.asked && !needs_none {
            if !self.has_room(attempt.until) {
                return Way::Not(Outcome::NoRoom);
            }
            // The chunk that the lock is let go for may have been the last one.
            attempt.asked = true;
        }
        self.ask(&stored, asks, attempt);
        if missing.is_empty() {
            return Way::Not(Outcome::Resident);
        }
        Way::Move(wanted, missing.count().into())
    }

    // To the host.

    /// Pushes a block out if chunks are short. Returns how the turn ends if none was.
    fn make_room(&mut self) -> Result<Option<Turn>, Stop> {
        self.ready()?;
        let chunk = match self.find_victim() {
            Victim::Enough => return Ok(Some(Turn::Ready)),
            Victim::None => return Ok(Some(Turn::NoVictim)),
            Victim::Chunk(chunk) => chunk,
        };
        if !self.may_begin() {
            self.wait_faults()?;
            // There may be something to bring, and another victim.
            return Ok(None);
        }
        if !self.worker.lacks(Part::Window) {
            self.settle(self.next_copy);
        }
        let mut copied = None;
        self.machine.lock(To::Host);
        let left = loop {
            if let Some(left) = self.try_to_push_out(chunk, &mut copied) {
                break left;
            }
        };
        self.machine.unlock();
        let good = matches!(left, Left::Leaves);
        match (copied, left) {
            (Some(pages), _) => {
                let what = What::Out(chunk, good);
                self.note(Copy { pages, what });
            }
            // A needed block is not chosen again while the kernel runs, and the chunk of a dropped block can be had
            // without a copy.
            (None, Left::Leaves | Left::Needed) => {
                self.in_vain += 1;
                return Ok(None);
            }
            (None, Left::Stays) => self.pass_over(chunk),
        }
        Ok((!good).then_some(Turn::GaveUp))
    }

    /// Tries to push the locked va_block out of `chunk`. `None` if another attempt has to follow, because the lock
    /// was released. `copied` says whether a copy was begun, and of how many pages.
    fn try_to_push_out(&mut self, chunk: Chunk, copied: &mut Option<u32>) -> Option<Left> {
        let Pages {
            there, discarded, ..
        } = self.machine.pages();
        if there.is_empty() {
            // The block left while the lock was released, or held nothing.
            let left = copied.map_or(Left::Stays, |_| Left::Leaves);
            return Some(left);
        }
        if self.is_needed(chunk) {
            return Some(Left::Needed);
        }
        let mut leaving = there;
        if there.intersects(&discarded) && !self.worker.lacks(Part::DropsFirst) {
            match self.machine.drop_discarded(&there) {
                Migrated::Begun => leaving -= discarded,
                Migrated::Again => return None,
                Migrated::NoRoom | Migrated::Failed => return Some(Left::Stays),
            }
        }
        if leaving.is_empty() {
            return Some(Left::Leaves);
        }
        let pages = u32::from(leaving.count());
        *copied = Some(copied.map_or(pages, |before| before.max(pages)));
        match self.machine.migrate(self.next_copy, &leaving, To::Host) {
            Migrated::Again => None,
            Migrated::Begun => Some(Left::Leaves),
            Migrated::NoRoom | Migrated::Failed => Some(Left::Stays),
        }
    }
}
