// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Random programs, and what holds of each.

use super::*;

/// Random programs: no address is with two owners, and what is given out is never
/// discarded without a later prefetch.
#[test]
fn random_programs_never_share_or_forget_a_prefetch() {
    let mut next = random();
    let log = Log::default();
    let a = Allocator::new(&log);
    let mut live: Vec<(u64, usize)> = Vec::new();
    // Those that the program itself has discarded lazily, and not prefetched.
    let mut theirs = BTreeSet::new();
    for _ in 0..20_000 {
        log.no_discard.set(next(8) == 0);
        let half = [None, Some(Error::Driver), Some(Error::Busy)];
        log.half_discard
            .set(half[(next(8) as usize).min(2)].filter(|_| next(8) == 0));
        log.no_prefetch.set(next(2000) == 0);
        log.no_wait.set(next(16) == 0);
        log.stuck.set(next(2) == 0);
        log.capturing.set(next(16) == 0);
        let free = if next(2) == 0 { 1 << 40 } else { 0 };
        log.memory.set((next(4) > 0).then_some((free, 1 << 40)));
        let device = next(2) as c_int;
        match next(8) {
            0..=3 if live.len() < 64 => {
                let magnitude = 10 + next(15);
                let size = 1 + next(1 << magnitude) as usize;
                let base = a.malloc(size, queue(device, next(4) as usize)).unwrap();
                assert!(live
                    .iter()
                    .all(|&(b, s)| base + size as u64 <= b || b + s as u64 <= base));
                live.push((base, size));
            }
            4 | 5 if !live.is_empty() => {
                let (base, _) = live.swap_remove(next(live.len() as u64) as usize);
                if next(4) == 0 {
                    a.record_stream(base, StreamId(next(4) as usize));
                }
                theirs.remove(&base);
                a.free(base);
            }
            7 if next(4) == 0 && !live.is_empty() => {
                let (base, size) = live[next(live.len() as u64) as usize];
                let (skipped, length) = (next(3000), size as u64);
                if length > skipped {
                    log.program_discards(base + skipped, length - skipped);
                    a.discarded_lazily(Range {
                        base: base + skipped,
                        length: length - skipped,
                    });
                    theirs.insert(base);
                }
            }
            6 if next(50) == 0 => a.trim(next(1 << 26)),
            _ => {}
        }
        log.did.borrow_mut().clear();
        let lazy = log.lazy.borrow();
        let usable = |&(base, size): &(u64, usize)| {
            let length = size as u64;
            let lies_in_lazy = blocks(Range { base, length }).any(|block| lazy.contains(&block));
            theirs.contains(&base) || !(lies_in_lazy || log.is_lazy(base, length))
        };
        assert!(live.iter().all(usable));
    }
    let stats = [0, 1].map(|device| a.device_stats(device));
    let of = |metric: fn(&DeviceStats) -> u64| stats.iter().map(metric).sum::<u64>();
    assert_eq!(of(|s| s.blocks.current), live.len() as u64);
    let requested: usize = live.iter().map(|(_, size)| size).sum();
    assert_eq!(of(|s| s.requested_bytes.current), requested as u64);
    assert_eq!(of(|s| s.reserved_bytes.current), log.held.get());
    assert_eq!(of(|s| s.segments.current), log.sizes.borrow().len() as u64);
    assert!(
        a.stats().reused > 100 && of(|s| s.discards) > 100,
        "{stats:?}"
    );
}
