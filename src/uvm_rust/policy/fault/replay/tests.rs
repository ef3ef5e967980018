// SPDX-License-Identifier: GPL-2.0 OR MIT

use super::*;

const MS: u64 = 1_000_000;

fn batch(faults: u32, duplicates: u32) -> Summary {
    Summary {
        faults,
        duplicates,
        ..Summary::default()
    }
}

fn service(policy: ReplayPolicy) -> Service {
    Service::new(Limits {
        policy,
        ..Limits::default()
    })
}

#[test]
fn each_policy_replays_where_it_should() {
    use ReplayPolicy::{Batch, BatchFlush, Block, Once};
    for (policy, block, after_batch, end) in [
        (Block, Replay::Start, Replay::None, Replay::None),
        (Batch, Replay::None, Replay::Start, Replay::None),
        (BatchFlush, Replay::None, Replay::Flush, Replay::None),
        (Once, Replay::None, Replay::None, Replay::Start),
    ] {
        let mut s = service(policy);
        assert_eq!(s.block_done(), block, "{policy:?}");
        assert_eq!(s.batch_done(&batch(256, 0)), after_batch, "{policy:?}");
        s.replayed(1);
        assert_eq!(s.finish(true), end, "{policy:?}");
    }
}

#[test]
fn every_call_replays_at_least_once() {
    for n in 0..4 {
        let s = service(ReplayPolicy::from_number(n).unwrap());
        assert_eq!(s.finish(true), Replay::Start);
        assert_eq!(s.finish(false), Replay::Start);
    }
    assert_eq!(ReplayPolicy::from_number(4), None);
}

#[test]
fn after_an_error_once_does_not_replay_again() {
    let mut s = service(ReplayPolicy::Once);
    s.replayed(1);
    assert_eq!(s.finish(false), Replay::None);
}

#[test]
fn many_duplicates_flush_all() {
    let mut s = service(ReplayPolicy::BatchFlush);
    assert_eq!(s.batch_done(&batch(100, 50)), Replay::Flush);
    assert_eq!(s.batch_done(&batch(100, 51)), Replay::FlushAll);
    assert_eq!(s.batch_done(&batch(u32::MAX, u32::MAX)), Replay::FlushAll);
    assert_eq!(s.batch_done(&batch(0, 0)), Replay::Flush);
}

#[test]
fn a_call_ends_after_its_batches() {
    let mut s = service(ReplayPolicy::Batch);
    let n = (0..1000).take_while(|_| {
        s.batch_done(&batch(1, 0));
        s.goes_on()
    });
    assert_eq!(n.count(), 19);
    let mut s = service(ReplayPolicy::Batch);
    for left in [4, 3, 2, 1, 0] {
        s.batch_done(&Summary {
            throttled: true,
            ..batch(1, 0)
        });
        assert_eq!(s.goes_on(), left != 0);
    }
    let mut s = service(ReplayPolicy::Batch);
    (0..20).for_each(|_| s.batch_cancelled());
    assert!(!s.goes_on());
}

#[test]
fn useless_prefetches_turn_their_faults_off_for_a_while() {
    let mut p = PrefetchFaults::new(1000 * MS, 256);
    assert_eq!(p.decide(170, 0), Switch::Leave);
    assert_eq!(p.decide(171, 5 * MS), Switch::Disable);
    assert!(!p.enabled());
    assert_eq!(p.decide(256, 1005 * MS), Switch::Leave);
    assert_eq!(p.decide(0, 1005 * MS + 1), Switch::Enable);
    assert!(p.enabled());
    assert_eq!(p.decide(u32::MAX, 0), Switch::Disable);
    // A clock that goes back keeps them off, and nothing else.
    assert_eq!(p.decide(0, 0), Switch::Leave);
}

#[test]
fn a_lapse_of_zero_leaves_them_on() {
    let mut p = PrefetchFaults::new(0, 256);
    assert_eq!(p.decide(256, 0), Switch::Leave);
}
