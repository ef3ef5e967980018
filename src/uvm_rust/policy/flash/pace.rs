// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! How fast the device is written to: the share of time in which a worker spills, so that others can use the device,
//! and the rate at which a tenant may write by call, because writes wear the device.
//!
//! Times are in the units that each function names.

/// The longest rest after a write, in microseconds.
pub const REST_MOST_US: u64 = 1_000_000;

const SECOND_NS: u64 = 1_000_000_000;

/// A time on a monotonic clock, in nanoseconds. Other clocks of the tier count in other units, so this one has a type
/// of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ns(pub u64);

impl Ns {
    fn saturating_add(self, nanoseconds: u64) -> Self {
        Self(self.0.saturating_add(nanoseconds))
    }
}

/// How many microseconds a worker rests after a write of `took` microseconds, to be at work for `percent` of the
/// time. A percentage outside 1 to 100 counts as the nearest in it.
pub fn rest_us(took: u64, percent: u32) -> u64 {
    let percent = u64::from(percent.clamp(1, 100));
    (took.saturating_mul(100 - percent) / percent).min(REST_MOST_US)
}

/// Whether a tenant that will have paid for its writes at the time `paid` may write again `now`. A tenant may write a
/// second's worth at once; then each byte takes its time.
pub fn may_write(paid: Ns, now: Ns) -> bool {
    paid <= now.saturating_add(SECOND_NS)
}

/// When a tenant that would have paid at `paid` will have paid for `bytes` more, at `mib` MiB a second (0: no limit).
/// A tenant that did not write for a while has saved nothing by that.
pub fn paid_after(paid: Ns, now: Ns, bytes: u64, mib: u32) -> Ns {
    if mib == 0 || bytes == 0 {
        return paid;
    }
    // Any rate above 4 TiB a second counts as that, so that nothing below overflows.
    let mib = u64::from(mib.min(1 << 22));
    let (seconds, rest) = (bytes / (mib << 20), bytes % (mib << 20));
    // 10^9 / 2^20, reduced by 2^9.
    let nanoseconds = rest * 1_953_125 / (mib << 11);
    paid.max(now)
        .saturating_add(seconds.saturating_mul(SECOND_NS))
        .saturating_add(nanoseconds)
}

/// How many users' debts are kept.
const DEBTORS: usize = 64;

/// When users whose tenants are gone will have paid for what these wrote. So a user that closes all its files and
/// begins anew goes on paying. Of more than `DEBTORS` users, those whose debts last longest are kept.
#[derive(Clone, Copy, Debug)]
pub struct Debts([(u32, Ns); DEBTORS]);

impl Debts {
    /// Keeps the debt of a tenant that is gone, and would have paid at the time `paid`, for its user.
    pub fn keep(&mut self, user: u32, paid: Ns) {
        let same = self.0.iter_mut().find(|(of, _)| *of == user);
        let least = match same {
            Some(debt) => Some(debt),
            // The debt that is paid first makes room; one that is paid by now comes before all others.
            None => self.0.iter_mut().min_by_key(|(_, paid)| *paid),
        };
        if let Some(debt) = least.filter(|debt| debt.1 < paid) {
            *debt = (user, paid);
        }
    }

    /// When this user will have paid for what its tenants that are gone wrote.
    pub fn of(&self, user: u32) -> Ns {
        let same = self.0.iter().find(|(of, _)| *of == user);
        same.map_or(Ns(0), |(_, paid)| *paid)
    }
}

impl Default for Debts {
    fn default() -> Self {
        Self([(0, Ns(0)); DEBTORS])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debts_outlive_those_who_made_them_and_the_longest_stay() {
        let mut debts = Debts::default();
        assert_eq!(debts.of(7), Ns(0));
        debts.keep(7, Ns(500));
        debts.keep(7, Ns(400));
        assert_eq!(debts.of(7), Ns(500), "one tenant of several");
        debts.keep(7, Ns(600));
        assert_eq!((debts.of(7), debts.of(8)), (Ns(600), Ns(0)));
        // More users than there is room for.
        for user in 100..100 + DEBTORS as u32 {
            debts.keep(user, Ns(1000 + u64::from(user)));
        }
        assert_eq!(debts.of(7), Ns(0), "the one that ends first");
        assert!((100..100 + DEBTORS as u32).all(|user| debts.of(user) > Ns(0)));
        debts.keep(9, Ns(1));
        assert_eq!(debts.of(9), Ns(0), "others last longer");
    }

    #[test]
    fn a_worker_rests_for_what_its_share_leaves() {
        assert_eq!(rest_us(1000, 100), 0);
        assert_eq!(rest_us(1000, 50), 1000);
        assert_eq!(rest_us(1000, 20), 4000);
        assert_eq!(rest_us(1000, 0), rest_us(1000, 1));
        assert_eq!(rest_us(1000, 1), 99_000);
        assert_eq!(rest_us(1000, 101), 0);
        assert_eq!(rest_us(REST_MOST_US, 1), REST_MOST_US);
        assert_eq!(rest_us(u64::MAX, 7), REST_MOST_US);
    }

    #[test]
    fn a_second_is_written_at_once_and_then_each_byte_takes_its_time() {
        let mut now = Ns(5 * SECOND_NS);
        let mut paid = Ns(0);
        let mut written = 0u64;
        while may_write(paid, now) {
            paid = paid_after(paid, now, 1 << 20, 64);
            written += 1;
        }
        assert_eq!(written, 65);
        // From then on 64 MiB a second.
        for _ in 0..1000 {
            while !may_write(paid, now) {
                now.0 += 1000;
            }
            paid = paid_after(paid, now, 1 << 20, 64);
        }
        let seconds = (now.0 - 5 * SECOND_NS) as f64 / 1e9;
        assert!((seconds - 1000.0 / 64.0).abs() < 0.05, "{seconds} s");
    }

    #[test]
    fn who_pauses_saves_nothing_and_no_rate_is_any_rate() {
        let paid = paid_after(Ns(0), Ns(90 * SECOND_NS), 1 << 20, 1);
        assert_eq!(paid, Ns(91 * SECOND_NS));
        assert_eq!(paid_after(Ns(7), Ns(90), 1 << 40, 0), Ns(7));
        assert_eq!(paid_after(Ns(7), Ns(90), 0, 1), Ns(7));
    }

    #[test]
    fn no_number_is_too_big() {
        for mib in [1, 3, 512, 1 << 22, u32::MAX] {
            for bytes in [1, 4095, 1 << 30, u64::MAX] {
                let exact =
                    u128::from(bytes) * 1_000_000_000 / (u128::from(mib.min(1 << 22)) << 20);
                let exact = exact.min(u64::MAX.into());
                let Ns(paid) = paid_after(Ns(0), Ns(0), bytes, mib);
                assert!(
                    u128::from(paid).abs_diff(exact) <= 1,
                    "{bytes} at {mib}: {paid}, {exact}"
                );
            }
        }
        let last = Ns(u64::MAX);
        assert!(may_write(last, last));
        assert_eq!(paid_after(last, Ns(0), 1 << 20, 1), last);
    }
}
