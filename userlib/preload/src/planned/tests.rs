// SPDX-License-Identifier: GPL-2.0-only OR MIT

use super::*;
use std::sync::mpsc::{channel, Receiver};
use std::sync::Arc;
use std::time::Duration;

use uvmrust::{Carrier, Ticket, Tier};

const SPAN: usize = 4096;

fn running() -> Running {
    let plan = format!("uvmplan 1\nkernels 1\nspan {SPAN}\nat 0 free 0 0 4096\n");
    Running::new(Box::leak(Box::new(Plan::parse(&plan).unwrap())))
}

/// CUDA's number of an allocation, where there is one at each address.
fn id(base: u64) -> Asked {
    Asked::Id(base + 7)
}

/// CUDA is asked to free the memory at an address, and has done so or not.
fn free(running: &Running, base: u64, freed: bool) {
    if let Some(ending) = running.ending(|range| range == base) {
        running.ended(ending, freed);
    }
}

/// The range in which requests are carried out just now.
fn range(running: &Running) -> Option<u64> {
    running.in_range(|base| base)
}

#[test]
fn a_plan_ends_with_its_range() {
    let running = running();
    assert_eq!(range(&running), None);
    running.allocated(1 << 22, SPAN - 1, id);
    assert_eq!(range(&running), None);
    running.allocated(1 << 21, SPAN, id);
    running.allocated(1 << 23, SPAN, id);
    assert_eq!(range(&running), Some(1 << 21));
    free(&running, 1 << 22, true);
    assert_eq!(range(&running), Some(1 << 21));
    assert!(super::Running::new(running.plan).ending(|_| true).is_none());
    free(&running, 1 << 21, true);
    assert_eq!(range(&running), None);
    // Neither what is there next, nor what is anywhere else, is laid out as the plan says.
    for base in [1 << 21, 1 << 24] {
        running.allocated(base, SPAN, id);
        assert_eq!(range(&running), None);
    }
}

#[test]
fn a_range_that_cuda_does_not_free_stays_the_range() {
    let running = running();
    running.allocated(1 << 21, SPAN, id);
    let ending = running.ending(|base| base == 1 << 21).unwrap();
    // Neither while CUDA is at it nor before it is asked what came of it.
    assert_eq!(range(&running), None);
    running.settle(id);
    assert_eq!(range(&running), None);
    running.ended(ending, false);
    assert_eq!(range(&running), None);
    // The first that comes finds out.
    running.allocated(1 << 22, SPAN, id);
    assert_eq!(range(&running), Some(1 << 21));
}

#[test]
fn a_range_is_gone_if_cuda_knows_it_no_more() {
    for gone in [Asked::Nothing, Asked::Id(1), Asked::Unknown] {
        let running = running();
        running.allocated(1 << 21, SPAN, id);
        let ending = running.ending(|_| true).unwrap();
        // Memory of another thread's, which may be of the context that is destroyed.
        running.allocated(1 << 22, SPAN, id);
        running.ended(ending, false);
        running.settle(|_| gone);
        assert_eq!(range(&running), None);
        running.allocated(1 << 23, SPAN, id);
        assert_eq!(range(&running), None);
    }
}

#[test]
fn a_range_without_a_number_is_over_with_the_first_doubt() {
    let running = running();
    running.allocated(1 << 21, SPAN, |_| Asked::Unknown);
    assert_eq!(range(&running), Some(1 << 21));
    free(&running, 1 << 21, false);
    running.settle(id);
    assert_eq!(range(&running), None);
}

/// A call that ends while another goes on says nothing of the other's.
#[test]
fn nothing_is_carried_out_until_the_last_of_several_calls_is_over() {
    let running = running();
    running.allocated(1 << 21, SPAN, id);
    let (one, other) = (running.ending(|_| true), running.ending(|_| true));
    running.ended(one.unwrap(), false);
    running.settle(id);
    assert_eq!(range(&running), None);
    running.ended(other.unwrap(), false);
    running.settle(id);
    assert_eq!(range(&running), Some(1 << 21));
    // What comes and goes while CUDA is asked may have ended it since.
    running.ended(running.ending(|_| true).unwrap(), false);
    running.settle(|base| {
        let late = running.ending(|_| true).unwrap();
        running.ended(late, false);
        id(base)
    });
    assert_eq!(range(&running), None);
    running.settle(id);
    assert_eq!(range(&running), Some(1 << 21));
}

/// Whatever call it was that has freed it: none that we know is.
#[test]
fn a_range_is_gone_where_other_memory_is_in_its_place() {
    let base = 1 << 21;
    for (other, size) in [
        (base, 1),
        (base, SPAN),
        (base + SPAN as u64 - 1, SPAN),
        (base - 64, 65),
        (base - 64, 4 * SPAN),
    ] {
        let running = running();
        running.allocated(base, SPAN, id);
        // CUDA has a number for what is there now, as for what was.
        running.allocated(other, size, id);
        assert_eq!(range(&running), None, "{other:#x} {size}");
    }
    let running = running();
    running.allocated(base, SPAN, id);
    for (other, size) in [(base - 64, 64), (base + SPAN as u64, SPAN)] {
        running.allocated(other, size, id);
        assert_eq!(range(&running), Some(base));
    }
}

#[test]
fn a_plan_ends_with_a_launch_that_is_refused() {
    let running = running();
    running.refused();
    running.allocated(1 << 21, SPAN, id);
    assert_eq!(range(&running), Some(1 << 21));
    running.refused();
    assert_eq!(range(&running), None);
    running.allocated(1 << 23, SPAN, id);
    assert_eq!(range(&running), None);
}

#[test]
fn what_cuda_does_not_know_is_not_taken() {
    let running = running();
    running.allocated(1 << 21, SPAN, |_| Asked::Nothing);
    assert_eq!(range(&running), None);
    running.allocated(1 << 22, SPAN, |_| Asked::Unknown);
    assert_eq!(range(&running), Some(1 << 22));
}

/// Carries nothing as long as the other end of the channel is there, and then tells.
struct Stuck(Mutex<Receiver<()>>, Arc<Mutex<Vec<(u64, Tier)>>>);

impl Carrier for Stuck {
    fn carry(&self, range: uvmrust::Range, to: Tier) -> Result<()> {
        let _ = self.0.lock().unwrap().recv();
        self.1.lock().unwrap().push((range.base, to));
        Ok(())
    }
}

/// What is carried when so many steps of two moves were launched before the first was made.
fn carried(steps: u64) -> Vec<(u64, Tier)> {
    let plan = "uvmplan 1\nkernels 3\nspan 4096\n\
        at 0 prefetch 0 0 4096\nat 2 evict 0 0 4096 host\n";
    let running = Running::new(Box::leak(Box::new(Plan::parse(plan).unwrap())));
    running.allocated(1 << 21, SPAN, id);
    let (stuck, waits) = channel();
    let carried = Arc::new(Mutex::new(Vec::new()));
    let moves = Moves::new(Stuck(Mutex::new(waits), Arc::clone(&carried))).unwrap();
    for launch in 0..3 * steps {
        // SAFETY: nothing is dropped, and what is moved is not there.
        let done = unsafe { running.carry_out(Uvm::process(), launch, [7; 16], &moves) };
        assert_eq!(done, Ok(()));
    }
    drop(stuck);
    assert!(moves.wait(Ticket(2 * steps), Duration::from_secs(60)));
    let mut carried = carried.lock().unwrap();
    std::mem::take(&mut carried)
}

#[test]
fn a_plan_that_is_late_loses_no_move_that_is_not_asked_for_anew() {
    let steps = |count| [(1 << 21, Tier::Gpu([7; 16])), (1 << 21, Tier::Host)].repeat(count);
    let few = MAY_WAIT / 2;
    assert_eq!(carried(few), steps(few as usize));
    let mut many = carried(1000);
    let last = many.split_off(many.len() - MAY_WAIT as usize);
    assert_eq!(last, steps(few as usize));
    // What was under way has been made, too.
    assert!(many.len() <= 1, "{many:?}");
}

#[test]
fn moves_of_a_whole_step_may_wait() {
    let mut plan = format!("uvmplan 1\nkernels 100\nspan {SPAN}\n");
    for kernel in 0..100 {
        plan += &format!("at {kernel} prefetch 0 0 4096\n");
    }
    let plan = Box::leak(Box::new(Plan::parse(&plan).unwrap()));
    assert_eq!(Running::new(plan).may_wait, 100);
}

#[test]
fn a_range_is_not_freed_while_requests_are_carried_out_in_it() {
    let running = running();
    running.allocated(1 << 21, SPAN, id);
    let freed = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let done = running.in_range(|_| {
            scope.spawn(|| {
                free(&running, 1 << 21, true);
                freed.store(true, Relaxed);
            });
            std::thread::sleep(Duration::from_millis(200));
            freed.load(Relaxed)
        });
        assert_eq!(done, Some(false));
    });
    assert!(freed.load(Relaxed));
    assert_eq!(range(&running), None);
}
