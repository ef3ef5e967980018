// SPDX-License-Identifier: GPL-2.0-only OR MIT

use super::*;
use core::cell::Cell;
use std::collections::{HashMap, HashSet};

#[test]
fn a_launch_begins_when_the_one_before_says_and_within_its_bounds() {
    assert_eq!(began(None, (100, 995)), 100);
    // Behind others in its stream.
    assert_eq!(began(Some(700), (100, 995)), 700);
    // In a stream that is empty: by the one before it began before it was made.
    assert_eq!(began(Some(90), (100, 995)), 100);
    // It has ended.
    assert_eq!(began(Some(998), (100, 995)), 995);
    // The clocks do not go alike.
    assert_eq!(began(Some(998), (996, 995)), 996);
}

/// GPUs with their own clocks, and a host that launches kernels on them. Times are in ns.
struct Machine {
    timing: Timing,
    /// What the host's clock says, in ns.
    host: Cell<u64>,
    /// When each event is, by its context's clock, and by the host's.
    events: HashMap<usize, (f64, u64)>,
    /// When each launch began, by the host's clock.
    begun: HashMap<u64, u64>,
    told: Vec<(u64, Option<Ran>)>,
    launches: u64,
}

/// What a launch takes to reach an idle GPU.
const LATENCY: u64 = 5_000;

fn handle(number: usize) -> Handle {
    Handle(core::ptr::without_provenance_mut(number))
}

impl Machine {
    fn new() -> Self {
        Self {
            timing: Timing::default(),
            host: Cell::new(1_000_000_000),
            events: HashMap::new(),
            begun: HashMap::new(),
            told: Vec::new(),
            launches: 0,
        }
    }

    /// The clock of a context's GPU, at a time of the host's.
    fn clock(context: usize, host: u64) -> f64 {
        // One part in a hundred thousand too fast, or too slow.
        let rate = 1.0 + [1e-5, -1e-5][context % 2];
        host as f64 * rate - 777_000.0 * context as f64
    }

    /// Launches a kernel that takes so long, in a stream that is busy until `free`; gives when it
    /// ends.
    fn launch(&mut self, context: usize, stream: usize, free: u64, ns: u64) -> u64 {
        let launch = self.launches;
        self.launches += 1;
        let made = self.host.get();
        let from = free.max(made + LATENCY);
        let number = 16 * (launch as usize + 1);
        let pair = Pair {
            context: handle(context + 1),
            before: handle(number),
            behind: handle(number + 1),
        };
        for (event, at) in [(number, from), (number + 1, from + ns)] {
            self.events.insert(event, (Self::clock(context, at), at));
        }
        self.begun.insert(launch, from);
        assert_eq!(self.timing.keep(launch, Begun { stream, made, pair }), None);
        from + ns
    }

    fn look(&mut self) {
        let (events, host) = (&self.events, &self.host);
        let rounded = |ns: f64| (ns / 500.0).round() * 500.0;
        let ask = |a: Handle, b: Handle| {
            let (a, b) = (events[&a.0.addr()], events[&b.0.addr()]);
            match a.1.max(b.1) <= host.get() {
                // CUDA's resolution is half a microsecond, of the time stamp that each event has.
                true => Elapsed::Ns((rounded(b.0) - rounded(a.0)) as i64),
                false => Elapsed::NotReady,
            }
        };
        let mut question = self.timing.question();
        question.look(ask, || host.get());
        self.told.extend(self.timing.answered(question));
    }

    /// By how much launches were told to begin too early and too late, at most.
    fn worst(&self) -> (u64, u64) {
        let mut worst = (0, 0);
        for (launch, ran) in &self.told {
            let (from, true_from) = (ran.unwrap().from, self.begun[launch]);
            worst.0 = worst.0.max(true_from.saturating_sub(from));
            worst.1 = worst.1.max(from.saturating_sub(true_from));
        }
        worst
    }
}

fn random(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed
}

fn seed() -> u64 {
    let seed = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64 | 1;
    println!("seed {seed:#x}");
    seed
}

/// The host queues kernels on two GPUs, in two streams of each, and waits for all of them now and then.
/// The fixed seeds are those with which rounding each difference by itself summed up too far.
#[test]
fn launches_of_streams_and_contexts_that_alternate_have_their_own_times() {
    for seed in [
        1795831847603360423,
        1795836585109530267,
        1795837967687371081,
        seed(),
    ] {
        alternate(seed);
    }
}

fn alternate(mut seed: u64) {
    let first = seed;
    let mut machine = Machine::new();
    let mut free = [[0; 2]; 2];
    for round in 0..200 {
        for _ in 0..40 {
            let (context, stream) = ((random(&mut seed) % 2) as usize, random(&mut seed) % 2);
            let ns = 20_000 + random(&mut seed) % 200_000;
            let free = &mut free[context][stream as usize];
            *free = machine.launch(context, stream as usize, *free, ns);
            machine.host.set(machine.host.get() + 3_000);
            if random(&mut seed).is_multiple_of(16) {
                machine.look();
            }
        }
        let all = free.iter().flatten().max().unwrap();
        machine.host.set(*all + 10_000 + round);
        machine.look();
    }
    assert_eq!(machine.told.len(), 200 * 40);
    let (early, late) = machine.worst();
    // The latency; what clocks differ by, and what CUDA rounds, between two times of rest (8 ms).
    assert!(
        early <= LATENCY + 3_000 && late <= 2_000,
        "{first:#x}: {early} {late}"
    );
}

/// The host is ahead of the GPU all the time, as it is in a training that reads no loss.
#[test]
fn a_stream_that_is_never_empty_goes_by_what_was_seen_of_it() {
    for context in 0..2 {
        let mut machine = Machine::new();
        let mut free = 0;
        for n in 0..200_000_u64 {
            free = machine.launch(context, 7, free, 100_000);
            // A thousand launches ahead.
            let ahead = free.saturating_sub(100_000_000);
            machine.host.set(machine.host.get().max(ahead) + 1_000);
            if n % 16 == 15 {
                machine.look();
            }
        }
        let (early, late) = machine.worst();
        // Sixteen kernels, and not the 200 us in 20 s that the clocks differ by, or the 2.4 ms that
        // are taken off.
        assert!(early <= 1_700_000 && late <= 120_000, "{early} {late}");
    }
}

#[test]
fn a_stream_that_stands_still_holds_up_no_other() {
    let mut machine = Machine::new();
    let long = machine.launch(0, 1, 0, 10_000_000_000);
    let mut free = 0;
    for _ in 0..16 {
        free = machine.launch(0, 2, free, 1_000);
    }
    machine.host.set(free);
    machine.look();
    let told: Vec<_> = machine.told.iter().map(|(launch, _)| *launch).collect();
    assert_eq!(told, (1..17).collect::<Vec<_>>());
    assert_eq!(
        (machine.timing.asked.lanes.len(), machine.timing.running),
        (1, 1)
    );
    machine.host.set(long);
    machine.look();
    assert_eq!(machine.told[16].0, 0);
    assert!(machine.timing.asked.lanes.is_empty() && machine.timing.running == 0);
    // One pair is the context's last.
    assert_eq!(machine.timing.spare.len(), 16);
}

#[test]
fn of_too_many_launches_the_oldest_is_given_up() {
    let mut timing = Timing::default();
    let begun = |number: usize, stream| Begun {
        stream,
        made: 0,
        pair: Pair {
            context: handle(1),
            before: handle(number),
            behind: handle(number),
        },
    };
    for n in 0..MOST {
        assert_eq!(timing.keep(n as u64, begun(n, n % 3)), None);
    }
    assert_eq!(timing.keep(MOST as u64, begun(MOST, 5)), Some(0));
    assert_eq!(timing.keep(MOST as u64 + 1, begun(MOST, 5)), Some(1));
    assert_eq!((timing.running, timing.spare.len()), (MOST, 2));
    // An event that CUDA does not know any more.
    let mut question = timing.question();
    question.look(|_, _| Elapsed::Unknown, || 9);
    let told = timing.answered(question);
    assert_eq!(
        (told.len(), timing.running, timing.asked.lanes.len()),
        (MOST, 0, 0)
    );
    assert!(told.iter().all(|(_, ran)| ran.is_none()) && timing.spare.len() == MOST + 2);
}

/// While CUDA is asked, other threads launch.
#[test]
fn what_is_launched_while_cuda_is_asked_is_behind_what_it_is_asked_of() {
    let mut machine = Machine::new();
    let first = machine.launch(0, 1, 0, 1_000);
    let second = machine.launch(0, 1, first, 9_000_000);
    let third = machine.launch(0, 1, second, 1_000);
    machine.host.set(first);
    let mut question = machine.timing.question();
    let (events, at) = (machine.events.clone(), first);
    let done = |a: Handle, b: Handle| {
        let (a, b) = (events[&a.0.addr()], events[&b.0.addr()]);
        match a.1.max(b.1) <= at {
            true => Elapsed::Ns((b.0 - a.0) as i64),
            false => Elapsed::NotReady,
        }
    };
    question.look(done, || at);
    let last = machine.launch(0, 1, third, 1_000);
    let other = machine.launch(0, 2, third, 1_000);
    machine.told.extend(machine.timing.answered(question));
    assert_eq!(machine.timing.running, 4);
    machine.host.set(last.max(other));
    machine.look();
    let told: Vec<_> = machine.told.iter().map(|(launch, _)| *launch).collect();
    assert_eq!(told, [0, 1, 2, 3, 4]);
    assert!(machine.told.iter().all(|(_, ran)| ran.is_some()));
    assert!(machine.timing.asked.lanes.is_empty() && machine.timing.running == 0);
}

#[test]
fn of_what_was_forgotten_while_cuda_was_asked_nothing_is_told() {
    let mut machine = Machine::new();
    let end = machine.launch(0, 1, 0, 1_000);
    machine.host.set(end);
    let mut question = machine.timing.question();
    question.look(|_, _| Elapsed::Ns(1_000), || end);
    // CUDA is being asked of its events.
    assert!(machine.timing.forget().is_empty());
    let next = machine.launch(0, 1, end, 1_000);
    assert_eq!(machine.timing.answered(question), []);
    // None of its events is used again.
    assert!(machine.timing.spare.is_empty() && machine.timing.running == 1);
    machine.host.set(next);
    machine.look();
    assert_eq!(machine.told.len(), 1);
}

/// Those that are spare, those of launches that run, and that of the last which is done.
#[test]
fn all_events_are_forgotten_once() {
    let mut machine = Machine::new();
    let mut free = [0; 2];
    for n in 0..6 {
        let context = n % 2;
        free[context] = machine.launch(context, 1, free[context], 1_000);
    }
    machine.host.set(free[0]);
    machine.look();
    for (context, free) in free.into_iter().enumerate() {
        machine.launch(context, 1, free, 1_000);
    }
    let known = |timing: &Timing| {
        (
            timing.spare.len(),
            timing.asked.anchors.len(),
            timing.running,
        )
    };
    assert_eq!(known(&machine.timing), (4, 2, 2));
    let events = machine.timing.forget().into_iter();
    let events: HashSet<_> = events
        .flat_map(|pair| [pair.before.0.addr(), pair.behind.0.addr()])
        .collect();
    assert_eq!(events.len(), 16);
    assert!(machine.timing.forget().is_empty() && machine.timing.running == 0);
}

thread_local! {
    /// Events made, destroyed, and put into a stream; at most as many are made.
    static EVENTS: Cell<[usize; 4]> = const { Cell::new([0; 4]) };
    /// What putting an event into a stream gives.
    static GIVES: Cell<i32> = const { Cell::new(0) };
}

fn count(which: usize) -> usize {
    let mut events = EVENTS.get();
    events[which] += 1;
    EVENTS.set(events);
    events[which]
}

unsafe extern "C" fn create(out: *mut *mut c_void, _: u32) -> i32 {
    if EVENTS.get()[0] == EVENTS.get()[3] {
        return 2;
    }
    // SAFETY: an output.
    unsafe { *out = core::ptr::without_provenance_mut(count(0)) };
    0
}

unsafe extern "C" fn destroy(_: *mut c_void) -> i32 {
    count(1);
    0
}

unsafe extern "C" fn record(_: *mut c_void, _: Stream) -> i32 {
    count(2);
    GIVES.get()
}

fn cuda(most: usize) -> Cuda {
    EVENTS.set([0, 0, 0, most]);
    GIVES.set(0);
    let symbol = |name: &core::ffi::CStr| match name.to_bytes() {
        b"cuEventCreate" => create as *mut c_void,
        b"cuEventDestroy_v2" => destroy as *mut c_void,
        b"cuEventRecord" => record as *mut c_void,
        _ => core::ptr::null_mut(),
    };
    // SAFETY: they have the types of the functions whose names they are given for.
    unsafe { Cuda::from_symbols(symbol) }
}

#[test]
fn what_cannot_be_timed_leaves_its_events_to_the_next_launch() {
    let cuda = cuda(2);
    let (mut timing, stream) = (Timing::default(), core::ptr::null_mut());
    for round in 0..100 {
        let spare = timing.spare(handle(1));
        assert_eq!(spare.is_some(), round > 0);
        // The first event is refused, or the launch, or the second event.
        GIVES.set(i32::from(round % 3 == 0));
        // SAFETY: the functions look at no event and no stream.
        let pair = match unsafe { begin(&cuda, stream, handle(1), spare) } {
            Err(pair) => pair.unwrap(),
            Ok(begun) => {
                GIVES.set(1);
                // SAFETY: as above.
                unsafe { end(&cuda, stream, begun, round % 3 == 1) }.unwrap_err()
            }
        };
        timing.give_back(pair);
    }
    assert_eq!(EVENTS.get()[..2], [2, 0]);
    // A context that is gone, and a CUDA without events.
    let none = core::ptr::null_mut();
    for (cuda, context) in [(cuda, Handle(none)), (Cuda::default(), handle(1))] {
        let spare = timing.spare(handle(1));
        // SAFETY: as above.
        let pair = unsafe { begin(&cuda, stream, context, spare) }.unwrap_err();
        timing.give_back(pair.unwrap());
    }
}

#[test]
fn half_a_pair_of_events_is_destroyed() {
    let cuda = cuda(1);
    // SAFETY: as above.
    let begun = unsafe { begin(&cuda, core::ptr::null_mut(), handle(1), None) };
    assert!(matches!(begun, Err(None)));
    assert_eq!(EVENTS.get()[..3], [1, 1, 0]);
}
