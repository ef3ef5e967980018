// SPDX-License-Identifier: GPL-2.0-only OR MIT

use super::*;
use std::format;
use std::string::String;

#[test]
fn copies_are_counted_by_direction_and_cause() {
    let c = Counters::default();
    c.copied(Direction::HostToGpu, Cause::Fault, 65536);
    c.copied(Direction::HostToGpu, Cause::Prefetch, 4096);
    c.copied(Direction::GpuToHost, Cause::Eviction, 2 << 20);
    c.copied(Direction::GpuToHost, Cause::Eviction, 2 << 20);
    let s = c.snapshot();
    assert_eq!(
        s.host_to_gpu[Cause::Fault as usize],
        Traffic {
            bytes: 65536,
            pages: 16
        }
    );
    assert_eq!(s.host_to_gpu[Cause::Prefetch as usize].pages, 1);
    assert_eq!(
        s.gpu_to_host[Cause::Eviction as usize],
        Traffic {
            bytes: 4 << 20,
            pages: 1024
        }
    );
    assert_eq!(s.gpu_to_gpu, [Traffic::default(); CAUSES]);
}

#[test]
fn a_batch_is_counted_once_however_many_faults_it_holds() {
    let c = Counters::default();
    assert!(c.faulted(7, 3, 2));
    assert!(!c.faulted(7, 1, 0));
    assert!(c.faulted(8, 1, 1));
    let s = c.snapshot();
    assert_eq!((s.faults, s.duplicates, s.batches), (5, 3, 2));
}

#[test]
fn the_first_batch_of_a_gpu_counts() {
    // Upstream numbers batches from 1, so that 0 is "none yet".
    let c = Counters::default();
    assert!(c.faulted(1, 1, 0));
    assert_eq!(c.snapshot().batches, 1);
}

#[test]
fn every_named_queue_has_its_own_counter() {
    let c = Counters::default();
    for n in 0..QUEUE_NAMES.len() as u32 {
        let q = Queue::from_number(n).unwrap();
        for _ in 0..=n {
            c.evicted(q);
        }
    }
    assert_eq!(c.snapshot().evictions, [1, 2, 3, 4, 5, 0, 0, 0]);
    assert_eq!(Queue::from_number(5), None);
    assert_eq!(Queue::from_number(u32::MAX), None);
}

#[test]
fn the_text_fits_a_terminal_and_says_everything() {
    let c = Counters::default();
    c.copied(Direction::HostToGpu, Cause::Api, u64::MAX / 2);
    c.faulted(1, 12, 5);
    c.replayed(3);
    c.evicted(Queue::Unused);
    (0..7).for_each(|_| c.thrashed());
    (0..9).for_each(|_| c.prefetch_wasted());
    let text: String = format!("{}", c.snapshot());
    assert!(text.lines().all(|l| l.len() <= 80), "{text}");
    let number = |name: &str| -> u64 {
        let line = text
            .lines()
            .find(|l| l.split_whitespace().next() == Some(name));
        line.and_then(|l| l.split_whitespace().nth(1))
            .unwrap()
            .parse()
            .unwrap()
    };
    assert_eq!(number("faults"), 12);
    assert_eq!(number("duplicates"), 5);
    assert_eq!(number("replays"), 3);
    assert_eq!(number("evictions-unused"), 1);
    assert_eq!(number("thrashed"), 7);
    assert_eq!(number("prefetch-wasted"), 9);
    assert_eq!(number("api"), u64::MAX / 2);
}

#[test]
fn after_a_reset_nothing_was_counted() {
    let c = Counters::default();
    for direction in [
        Direction::HostToGpu,
        Direction::GpuToHost,
        Direction::GpuToGpu,
    ] {
        c.copied(direction, Cause::AccessCounter, 4096);
    }
    c.faulted(7, 3, 2);
    c.replayed(1);
    c.evicted(Queue::Address);
    c.thrashed();
    c.prefetch_wasted();
    c.reset();
    assert_eq!(c.snapshot(), Snapshot::default());
    // The batch that was the last one is a new one, too.
    assert!(c.faulted(7, 1, 0));
}
