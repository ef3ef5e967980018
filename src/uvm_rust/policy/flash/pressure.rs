// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Too little host memory: when workers spill, who waits for room, and when both stop for a while.
//!
//! Above a low mark workers spill. Above the limit a thread that needs more host memory waits, if
//! its tenant has its equal share of the limit. If nothing can be spilled (all pages are held, or
//! the device is full or broken), nobody waits and no worker tries: the tier *stalls*. It rests for
//! a time that grows while writes fail. Then one worker tries, and one success ends the stall.
//!
//! Pages are of 4 KiB, and time is in milliseconds from wherever the caller counts.

/// For how long no worker tries after all va_blocks were looked at in vain. A rest after failed
/// writes is twice as long at first, and each further one twice as long as the one before.
pub const REST_MS: u64 = 100;
/// The longest rest, however many writes have failed.
pub const REST_MOST_MS: u64 = 10_000;
/// After how long a worker looks again if nobody wakes one before; twice as long each time in a
/// row.
pub const AGAIN_MS: u64 = 1000;
/// After how long a worker looks again at the latest, however often it looked in vain.
pub const AGAIN_MOST_MS: u64 = 32_000;
/// After how many failed writes since the last success each further one stalls the tier.
pub const FAILURES: u32 = 2;

/// How the try to spill a va_block ended, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tried {
    /// Pages left host memory.
    Moved,
    /// No page left host memory: there is none to spill, something is in the way, or the device has no room.
    Nothing,
    /// The device took none of the pages that it was given.
    Failed,
    /// The system is about to suspend, which comes first.
    Suspended,
}

/// What a worker does after a try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// It tries the next va_block.
    GoOn,
    /// It ends, and threads that wait for room stop waiting. With a time, the caller has a worker
    /// look again after it, because no thread that needs more pages may come by then to wake one.
    /// Without a time, another worker has seen to that.
    Stall(Option<u64>),
}

/// What the workers of a device have found.
///
/// Locking: the caller's, one call at a time.
#[derive(Clone, Debug)]
pub struct Pressure {
    limit: u64,
    /// Tries in vain and failed writes since a worker moved something, of all workers together: a
    /// worker that begins anew must not hide what the others found.
    fruitless: u32,
    failures: u32,
    /// When the tier stalled; `None` if it is not stalled.
    stalled: Option<u64>,
    /// How long the rest is that began at that time.
    rest: u64,
    /// After how long to look again; it grows faster than the rest, and begins longer.
    again: u64,
}

impl Pressure {
    /// The state before any try. More than `limit` pages of host memory, at least one, are too
    /// many.
    pub fn new(limit: u64) -> Self {
        Self {
            limit: limit.max(1),
            fruitless: 0,
            failures: 0,
            stalled: None,
            rest: REST_MS,
            again: AGAIN_MS,
        }
    }

    /// How many pages may be in use before workers spill: an eighth of the limit is kept free.
    fn low(&self) -> u64 {
        self.limit - self.limit / 8
    }

    fn is_resting(&self, now: u64) -> bool {
        self.stalled
            .is_some_and(|since| now < since.saturating_add(self.rest))
    }

    /// Whether a worker tries another va_block while `host` pages are in use.
    pub fn goes_on(&self, host: u64, now: u64) -> bool {
        self.is_above_low(host) && !self.is_resting(now)
    }

    /// How many of `workers` to wake. After a rest it is one, which tries.
    pub fn wakes(&self, host: u64, workers: u32, now: u64) -> u32 {
        if !self.goes_on(host, now) {
            0
        } else if self.stalled.is_some() {
            workers.min(1)
        } else {
            workers
        }
    }

    /// Whether a tenant that has `mine` of the `host` pages in use, as one of `tenants` that have
    /// any, waits for room before it uses more. A tenant with less than its share never waits for
    /// others.
    pub fn must_wait(&self, host: u64, mine: u64, tenants: u64) -> bool {
        self.stalled.is_none() && self.is_short(host) && has_share(mine, tenants, self.limit)
    }

    /// Whether `host` pages are more than may be in use, so that threads that need more may have to wait.
    pub fn is_short(&self, host: u64) -> bool {
        host > self.limit
    }

    /// Whether `host` pages are so many that workers spill some.
    pub fn is_above_low(&self, host: u64) -> bool {
        host > self.low()
    }

    /// Whether a tenant's pages may be spilled: it has its share of what spills leave. A tenant
    /// with less is left alone, even if those with more cannot be spilled.
    pub fn may_spill(&self, mine: u64, tenants: u64) -> bool {
        has_share(mine, tenants, self.low())
    }

    /// Notes how a try ended, and says what the worker does next. `candidates` va_blocks may have
    /// something to spill, and `workers` workers look at them.
    ///
    /// Pages whose write fails were unmapped for nothing. So once [`FAILURES`] writes have failed,
    /// one try at a time is enough to see whether they still do.
    pub fn ended(&mut self, tried: Tried, candidates: u32, workers: u32, now: u64) -> Next {
        let stalls = match tried {
            Tried::Moved => {
                *self = Self::new(self.limit);
                false
            }
            Tried::Suspended => true,
            Tried::Failed => {
                self.failures = self.failures.saturating_add(1);
                self.failures > FAILURES || self.in_vain(candidates, workers)
            }
            Tried::Nothing => self.in_vain(candidates, workers),
        };
        if !stalls {
            return Next::GoOn;
        }
        let failing = self.failures > FAILURES && tried != Tried::Suspended;
        Next::Stall(self.stall(failing, now))
    }

    fn in_vain(&mut self, candidates: u32, workers: u32) -> bool {
        self.fruitless = self.fruitless.saturating_add(1);
        self.fruitless > candidates.saturating_add(workers)
    }

    /// When to look again, unless a worker was faster.
    fn stall(&mut self, failing: bool, now: u64) -> Option<u64> {
        self.fruitless = 0;
        if self.is_resting(now) {
            return None;
        }
        let rest = if failing { 2 * self.rest } else { 0 };
        self.rest = rest.clamp(REST_MS, REST_MOST_MS);
        self.stalled = Some(now);
        let again = self.again;
        self.again = (2 * again).min(AGAIN_MOST_MS);
        Some(again)
    }
}

/// Whether `mine` is an equal share of `limit` among `tenants`, or more.
fn has_share(mine: u64, tenants: u64, limit: u64) -> bool {
    mine.saturating_mul(tenants) >= limit
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: u64 = 800;
    const LOW: u64 = 700;

    fn stalled(at: u64) -> Pressure {
        let mut p = Pressure::new(LIMIT);
        assert_eq!(
            p.ended(Tried::Suspended, 9, 4, at),
            Next::Stall(Some(AGAIN_MS))
        );
        p
    }

    #[test]
    fn workers_spill_above_the_low_mark_and_others_wait_above_the_limit() {
        let p = Pressure::new(LIMIT);
        assert_eq!(p.wakes(LOW, 4, 0), 0);
        assert_eq!(p.wakes(LOW + 1, 4, 0), 4);
        assert!(!p.goes_on(LOW, 0) && p.goes_on(LOW + 1, 0));
        assert!(!p.must_wait(LIMIT, LIMIT, 1));
        assert!(p.must_wait(LIMIT + 1, LIMIT + 1, 1));
        assert!(!p.is_short(LIMIT) && p.is_short(LIMIT + 1));
        // A limit of nothing is one page.
        let p = Pressure::new(0);
        assert!(!p.must_wait(1, 1, 1) && p.must_wait(2, 2, 1));
        assert_eq!(p.wakes(1, 3, 0), 0);
    }

    #[test]
    fn who_has_less_than_its_share_neither_waits_nor_is_spilled() {
        let p = Pressure::new(LIMIT);
        assert!(p.must_wait(900, 200, 4) && !p.must_wait(900, 199, 4));
        assert!(p.may_spill(175, 4) && !p.may_spill(174, 4));
        assert!(p.must_wait(u64::MAX, u64::MAX, u64::MAX));
    }

    #[test]
    fn a_stall_begins_when_all_were_looked_at_in_vain() {
        let mut p = Pressure::new(LIMIT);
        for n in 0..13 {
            assert_eq!(p.ended(Tried::Nothing, 9, 4, n), Next::GoOn, "look {n}");
        }
        assert_eq!(
            p.ended(Tried::Nothing, 9, 4, 50),
            Next::Stall(Some(AGAIN_MS))
        );
        // Whoever comes meanwhile ends too, but somebody looks again already.
        assert_eq!(p.ended(Tried::Suspended, 9, 4, 60), Next::Stall(None));
        assert!(!p.must_wait(u64::MAX, u64::MAX, 1), "nobody waits in vain");
        assert_eq!(p.wakes(LOW + 1, 4, 50 + REST_MS - 1), 0);
        assert_eq!(p.wakes(LOW + 1, 4, 50 + REST_MS), 1, "one, to see");
        assert_eq!(p.wakes(LOW, 4, 50 + REST_MS), 0);
        assert_eq!(p.wakes(LOW + 1, 0, 50 + REST_MS), 0);
        // After it, all are looked at once more.
        for n in 0..13 {
            assert_eq!(
                p.ended(Tried::Nothing, 9, 4, 1000 + n),
                Next::GoOn,
                "look {n}"
            );
        }
        let stall = p.ended(Tried::Nothing, 9, 4, 1050);
        assert_eq!(stall, Next::Stall(Some(2 * AGAIN_MS)));
    }

    /// Where few may have something to spill, a write that fails is a look in vain as well.
    #[test]
    fn a_failed_write_is_a_look_in_vain() {
        let mut p = Pressure::new(LIMIT);
        assert_eq!(p.ended(Tried::Failed, 1, 0, 0), Next::GoOn);
        let stall = p.ended(Tried::Failed, 1, 0, 1);
        assert_eq!(stall, Next::Stall(Some(AGAIN_MS)));
    }

    #[test]
    fn what_moves_ends_a_stall_and_all_that_was_counted() {
        let mut p = stalled(0);
        p.ended(Tried::Failed, 9, 4, 200);
        p.ended(Tried::Nothing, 9, 4, 200);
        assert_eq!(p.ended(Tried::Moved, 9, 4, 201), Next::GoOn);
        assert!(p.must_wait(LIMIT + 1, LIMIT + 1, 1));
        assert_eq!(p.wakes(LOW + 1, 4, 201), 4);
        for _ in 0..13 {
            assert_eq!(p.ended(Tried::Nothing, 9, 4, 202), Next::GoOn);
        }
        for _ in 0..FAILURES {
            // Of more candidates, so that not all were looked at.
            assert_eq!(p.ended(Tried::Failed, 99, 4, 203), Next::GoOn);
        }
        assert_eq!(
            p.ended(Tried::Failed, 99, 4, 204),
            Next::Stall(Some(AGAIN_MS))
        );
    }

    #[test]
    fn while_writes_fail_each_rest_is_twice_as_long() {
        let mut p = Pressure::new(LIMIT);
        let mut now = 0;
        for _ in 0..FAILURES {
            assert_eq!(p.ended(Tried::Failed, 99, 4, now), Next::GoOn);
        }
        let mut rests = std::vec::Vec::new();
        for _ in 0..9 {
            let Next::Stall(Some(again)) = p.ended(Tried::Failed, 99, 4, now) else {
                panic!("it goes on at {now}");
            };
            let began = now;
            while !p.goes_on(LOW + 1, now) {
                now += 1;
                assert!(now <= began + REST_MOST_MS, "it rests for ever");
            }
            rests.push(now - began);
            assert!(again > now - began, "looked again while it rests");
        }
        assert_eq!(
            rests,
            [200, 400, 800, 1600, 3200, 6400, 10_000, 10_000, 10_000]
        );
        // A look in vain is another thing, whose rest is short; so is a suspend, whatever failed.
        assert!(matches!(
            p.ended(Tried::Suspended, 0, 4, now),
            Next::Stall(Some(_))
        ));
        assert!(!p.goes_on(LOW + 1, now + REST_MS - 1) && p.goes_on(LOW + 1, now + REST_MS));
    }

    #[test]
    fn where_nobody_wakes_the_workers_they_look_again_ever_more_seldom() {
        let mut p = Pressure::new(LIMIT);
        let mut now = 0;
        let mut times = std::vec::Vec::new();
        for _ in 0..7 {
            let Next::Stall(Some(again)) = p.ended(Tried::Suspended, 0, 4, now) else {
                panic!("it goes on at {now}");
            };
            now += again;
            assert!(p.goes_on(LOW + 1, now));
            times.push(again);
        }
        assert_eq!(times, [1000, 2000, 4000, 8000, 16_000, 32_000, 32_000]);
    }
}
