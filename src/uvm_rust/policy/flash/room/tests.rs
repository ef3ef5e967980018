// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! One test for each sentence of the documentation.

use super::*;
use crate::policy::mask::Region;

/// Everything is full, nothing is anywhere.
struct Block {
    full: bool,
    facts: Facts,
    chunks: PageMask,
    evicts: bool,
    prefers_host: bool,
    kicks: u32,
}

fn pages(first: u16, outer: u16) -> PageMask {
    Region::new(first, outer).into()
}

fn block() -> Block {
    Block {
        full: true,
        facts: Facts::default(),
        chunks: PageMask::EMPTY,
        evicts: false,
        prefers_host: false,
        kicks: 0,
    }
}

impl Machine for Block {
    fn must_wait(&mut self) -> bool {
        self.full
    }

    fn facts(&mut self) -> Facts {
        self.facts
    }

    fn lacks_chunk(&mut self, pages: &PageMask) -> bool {
        !pages.is_subset(&self.chunks)
    }

    fn evicts_to_host(&mut self) -> bool {
        self.evicts
    }

    fn prefers_host(&mut self) -> bool {
        self.prefers_host
    }

    fn kick(&mut self) {
        self.kicks += 1;
    }
}

fn wait(b: &mut Block, why: Why, to: To, dying: bool) -> bool {
    waits(b, why, to, &pages(0, 8), true, || dying)
}

#[test]
fn pages_that_are_to_be_in_the_host_need_memory_there() {
    let mut b = block();
    assert!(needs_host(&mut b, To::Host, &pages(0, 8)));
    b.facts.allocated = pages(0, 7);
    assert!(needs_host(&mut b, To::Host, &pages(0, 8)));
    assert!(!needs_host(&mut b, To::Host, &pages(0, 7)));
}

#[test]
fn what_goes_to_a_gpu_with_room_needs_none_unless_it_is_staged() {
    let mut b = block();
    assert!(!needs_host(&mut b, To::Gpu, &pages(0, 8)));
    b.facts.staged = pages(7, 9);
    assert!(needs_host(&mut b, To::Gpu, &pages(0, 8)));
    assert!(!needs_host(&mut b, To::Gpu, &pages(0, 7)));
    b.facts.allocated = pages(7, 8);
    assert!(!needs_host(&mut b, To::Gpu, &pages(0, 8)));
}

#[test]
fn who_gets_a_chunk_that_something_leaves_needs_memory_for_that() {
    let mut b = block();
    b.evicts = true;
    assert!(needs_host(&mut b, To::Gpu, &pages(0, 8)));
    b.chunks = pages(0, 8);
    assert!(!needs_host(&mut b, To::Gpu, &pages(0, 8)));
}

#[test]
fn a_fault_on_what_is_there_needs_none() {
    let mut b = block();
    (b.evicts, b.prefers_host) = (true, true);
    b.facts.there = pages(0, 8);
    assert!(!fault_waits(&mut b, &pages(0, 8)));
    assert_eq!(b.kicks, 0);
    assert!(fault_waits(&mut b, &pages(0, 9)));
    assert_eq!(b.kicks, 1);
}

#[test]
fn a_fault_may_leave_pages_in_the_host() {
    let mut b = block();
    assert!(!fault_waits(&mut b, &pages(0, 8)));
    b.facts.thrashing = pages(7, 16);
    assert!(!fault_waits(&mut b, &pages(0, 7)));
    assert!(fault_waits(&mut b, &pages(0, 8)));
    b.facts.allocated = pages(7, 8);
    assert!(!fault_waits(&mut b, &pages(0, 8)));
    b.prefers_host = true;
    assert!(fault_waits(&mut b, &pages(0, 8)));
    b.full = false;
    assert!(!fault_waits(&mut b, &pages(0, 8)));
}

#[test]
fn a_first_touch_waits_where_it_makes_pages_in_the_host() {
    let mut b = block();
    assert!(!first_touch_waits(&mut b));
    b.evicts = true;
    assert!(first_touch_waits(&mut b));
    (b.evicts, b.prefers_host) = (false, true);
    assert!(first_touch_waits(&mut b));
    assert_eq!(b.kicks, 2);
    b.full = false;
    assert!(!first_touch_waits(&mut b));
}

#[test]
fn evictions_gpu_faults_and_the_dying_do_not_wait_where_they_are() {
    let mut b = block();
    assert!(wait(&mut b, Why::Call, To::Host, false));
    assert!(wait(&mut b, Why::Fault, To::Host, false));
    assert!(!wait(&mut b, Why::Call, To::Gpu, false));
    assert!(!wait(&mut b, Why::Call, To::Host, true));
    assert!(!wait(&mut b, Why::Eviction, To::Host, false));
    assert!(!wait(&mut b, Why::GpuFault, To::Host, false));
    assert!(!wait(&mut b, Why::Beside, To::Host, false));
    // The loop of upstream's puts none off.
    assert!(waits(
        &mut b,
        Why::GpuFault,
        To::Host,
        &pages(0, 8),
        false,
        || false
    ));
    b.full = false;
    assert!(!wait(&mut b, Why::Call, To::Host, false));
}

#[test]
fn what_the_thread_of_all_gpu_faults_services_does_not_wait() {
    let why = |cause| Why::of(cause, true, true);
    assert_eq!(why(Cause::Fault), Why::GpuFault);
    assert_eq!(why(Cause::AccessCounter), Why::Beside);
    assert_eq!(why(Cause::Eviction), Why::Eviction);
    // A copy engine's, which nobody repeats.
    assert_eq!(Why::of(Cause::Fault, false, true), Why::CopyFault);
    // Upstream gives a CPU's fault the cause of one that is repeated; the thread that faults services it.
    assert_eq!(Why::of(Cause::Fault, true, false), Why::Fault);
    assert_eq!(Why::of(Cause::Api, false, false), Why::Call);
    // A worker of ours, which serves one tenant.
    assert_eq!(why(Cause::Api), Why::Call);
}
