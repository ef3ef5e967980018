// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The explorer: the workers of the lanes as they are, with those who submit, reap, suspend and end, in an order that is
//! drawn.
//!
//! Each is a coroutine with a stack of its own, as the workers call [`Machine`] from within the driver's code. One runs at a
//! time, from one of these calls to the next; which, is drawn. What is asked of the workers: Q-order, Q-lane, Q-after, Q-once, Q-done and Q-end, that nothing waits for ever, and nothing for a GPU to which
//! nothing can go that has no need to.
//!
//! As the kernel's queues of work do, no more workers of a [`Way`] run at a time than a number that is drawn, at least
//! one. There are fewer lanes of GPUs than the driver has, so that GPUs are without.
//!
//! `UVM_EXPLORE` is the number of interleavings, `UVM_TEST_SEED` the seed of the first one.

use super::super::part::{lacks, take_out, Part};
use super::*;
use crate::testing::{setting, tell_mutant, Dice};
use generator::{Gn, LocalGenerator};
use std::boxed::Box;
use std::cell::{RefCell, RefMut};
use std::format;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::string::{String, ToString};

/// So many GPUs may have a lane of their own.
const OWN: usize = 2;

/// The lanes that are used.
const LANES: usize = Lane::COUNT - Lane::OWN + OWN;

/// The threads, by number; the first ones are the lanes' workers.
const SUBMITS: [usize; 2] = [LANES, LANES + 1];
const REAPS: [usize; 2] = [LANES + 2, LANES + 3];
const SUSPENDS: usize = LANES + 4;
const ENDS: usize = LANES + 5;
const THREADS: usize = LANES + 6;

/// Requests of each thread that submits.
const EACH: u64 = 5;

/// The GPU to which nothing can go while there is something else to do, if there is one.
const STUCK: u8 = 0;

/// What became of a request.
#[derive(Clone, Copy, Debug, Default)]
struct Fate {
    blocks: (u64, u64),
    place: Option<(To, Option<u8>)>,
    after: bool,
    /// When it was submitted.
    number: u64,
    submitted: bool,
    /// A worker has it in its hands.
    held: bool,
    /// Its last part was tried.
    over: bool,
    reaped: u32,
}

impl Fate {
    /// Whether this has to wait for what was submitted `earlier`, and is not done.
    fn waits_for(&self, earlier: &Self) -> bool {
        let shares = earlier.blocks.0 <= self.blocks.1 && self.blocks.0 <= earlier.blocks.1;
        earlier.number < self.number && (self.after || earlier.place == self.place || shares)
    }
}

/// Whether a thread can go on.
type Ready = fn(&World, usize) -> bool;

struct World {
    queue: Queue<u64>,
    dice: Dice,
    /// Whose turn it is.
    now: usize,
    alive: [bool; THREADS],
    /// Who waits for the lane's work item to be queued, or for both to have stopped.
    waits: [Option<Ready>; THREADS],
    fates: Vec<Fate>,
    submitted: u64,
    /// Of each lane's work item.
    queued: [bool; LANES],
    running: [bool; LANES],
    /// So many workers of a way run at a time.
    at_work: usize,
    /// The lane whose worker is waited for at the end.
    stops: usize,
    gpus: u8,
    /// Whether there is a GPU to which nothing can go.
    sticks: bool,
    is_asleep: bool,
    entered: u32,
    /// Nothing of the VA space is there any more.
    gone: bool,
    wrong: Option<String>,
    steps: u32,
    fails: bool,
    /// Turns that the thread that ends lets pass.
    ends_after: usize,
}

impl World {
    fn tell(&mut self, wrong: &str) {
        self.wrong.get_or_insert(wrong.to_string());
    }

    /// Whether a tenant's queue of work has a thread for this lane's worker.
    fn has_thread(&self, lane: Lane) -> bool {
        let mine = |other: &Lane| other.way() == lane.way() && self.running[*other as usize];
        Lane::ALL[..LANES].iter().filter(|l| mine(l)).count() < self.at_work
    }

    /// Whether there is, or may come, something that need not wait for the GPU to which nothing can go.
    fn has_others(&self) -> bool {
        let mut left: Vec<_> = (self.fates.iter())
            .filter(|fate| fate.submitted && !fate.over)
            .collect();
        left.sort_by_key(|fate| fate.number);
        let mut behind: Vec<&Fate> = Vec::new();
        for fate in &left {
            let is_stuck = fate.place == Some((To::Gpu, Some(STUCK)));
            if is_stuck || behind.iter().any(|earlier| fate.waits_for(earlier)) {
                behind.push(fate);
            }
        }
        behind.len() < left.len() || SUBMITS.iter().any(|thread| self.alive[*thread])
    }

    fn may_run(&self, thread: usize) -> bool {
        self.alive[thread] && self.waits[thread].is_none_or(|ready| ready(self, thread))
    }

    /// Draws who runs next; false if nobody can.
    fn draw(&mut self) -> bool {
        let ready: Vec<_> = (0..THREADS).filter(|t| self.may_run(*t)).collect();
        if ready.is_empty() {
            return false;
        }
        self.now = ready[self.dice.below(ready.len())];
        true
    }
}

/// Words of a thread's stack.
const STACK: usize = 8 << 10;

/// A thread, as what it does sees it.
struct Thread<'a> {
    world: &'a RefCell<World>,
    me: usize,
    /// Others run until it is drawn again.
    yields: &'a dyn Fn(),
}

impl Thread<'_> {
    fn lock(&self) -> RefMut<'_, World> {
        self.world.borrow_mut()
    }

    /// Others may run; then it goes on when `ready`.
    fn pause(&self, ready: Option<Ready>) {
        let mut world = self.lock();
        world.steps += 1;
        if world.steps > 20_000 {
            world.tell("no end");
        }
        world.waits[self.me] = ready;
        drop(world);
        (self.yields)();
        let mut world = self.lock();
        world.waits[self.me] = None;
        let wrong = world.wrong.is_some();
        drop(world);
        if wrong {
            std::panic::resume_unwind(Box::new(()));
        }
    }
}

/// Thread `me`, which does `body` once it is drawn, if it is alive by then.
fn start(world: &RefCell<World>, me: usize, body: fn(&Thread<'_>)) -> LocalGenerator<'_, (), ()> {
    Gn::new_scoped_opt_local(STACK, move |scope| {
        if !world.borrow().alive[me] {
            return;
        }
        let scope = RefCell::new(scope);
        let yields = || scope.borrow_mut().yield_with(());
        let yields = &yields;
        let thread = Thread { world, me, yields };
        if catch_unwind(AssertUnwindSafe(|| body(&thread))).is_err() {
            thread.lock().tell("a thread panicked");
        }
        thread.lock().alive[me] = false;
    })
}

/// Lets threads run in an order that is drawn, until all have ended or something is wrong.
fn run(world: &RefCell<World>, threads: &mut [LocalGenerator<'_, (), ()>]) {
    loop {
        let now = world.borrow().now;
        let _ = threads[now].resume();
        let w = &mut *world.borrow_mut();
        if w.wrong.is_some() || !w.alive.contains(&true) {
            break;
        }
        if !w.draw() {
            w.tell("all wait");
        }
    }
    // Who has begun sees what is wrong and leaves; nobody else begins.
    world.borrow_mut().alive = [false; THREADS];
    for thread in threads.iter_mut().filter(|thread| !thread.is_done()) {
        let _ = thread.resume();
    }
}

/// A turn of one of the workers.
struct Turning<'a> {
    thread: &'a Thread<'a>,
    lane: Lane,
    holds: Option<u64>,
}

impl Turning<'_> {
    /// After a call of the queue: whether what it gave is right.
    fn look(&mut self, world: &mut World, before: Option<u64>) {
        let at = world.queue.lanes[self.lane as usize].first;
        let first = world.queue.slots.get(at as usize).map(|slot| slot.user);
        if world.queue.running[self.lane as usize] && self.holds.is_none() {
            self.holds = first;
            let user = first.unwrap();
            world.fates[user as usize].held = true;
            let mine = world.fates[user as usize];
            let is_there = |f: &&Fate| f.submitted && (f.held || !f.over);
            let mut there = world.fates.iter().filter(is_there);
            if there.any(|earlier| mine.waits_for(earlier)) {
                world.tell("Q-order, Q-after: it begins too early");
            }
            if world.gone || world.queue.has_ended() {
                world.tell("Q-end: it begins at the end");
            }
        } else if let Some(user) = before.filter(|_| !world.queue.running[self.lane as usize]) {
            world.fates[user as usize].held = false;
            self.holds = None;
        }
    }
}

impl Machine for Turning<'_> {
    type Event = u64;

    fn enter(&mut self) -> bool {
        self.thread.pause(None);
        let mut world = self.thread.lock();
        if world.gone {
            world.tell("Q-end: a worker runs when all is gone");
        }
        let awake = !world.is_asleep || lacks(Part::EnterLooks);
        world.entered += u32::from(awake);
        awake
    }

    fn leave(&mut self) {
        self.thread.pause(None);
        self.thread.lock().entered -= 1;
    }

    fn with<R>(&mut self, f: impl FnOnce(&mut Queue<u64>) -> R) -> R {
        self.thread.pause(None);
        let mut world = self.thread.lock();
        let before = self.holds;
        let result = f(&mut world.queue);
        self.look(&mut world, before);
        result
    }

    fn step(&mut self, job: &mut Job) -> Result<(), Failed> {
        self.thread.pause(None);
        let mut world = self.thread.lock();
        let user = self.holds.unwrap() as usize;
        let fate = world.fates[user];
        if world.entered == 0 || world.is_asleep {
            world.tell("it works while the system sleeps");
        }
        if fate.over || fate.reaped > 0 || !fate.held {
            world.tell("Q-done: it goes on when it is done");
        }
        let ending = world.queue.has_ended();
        let sticks = world.sticks && job.to() == To::Gpu && job.gpu[0] == STUCK;
        let result = match world.dice.below(8) {
            _ if ending => Err(Failed::Interrupted),
            _ if sticks && world.has_others() => Err(Failed::Again),
            0 => Err(Failed::Again),
            1 if world.fails => Err(Failed::NotManaged),
            _ => Ok(()),
        };
        if result.is_ok() {
            // A part, of at most so many bytes.
            *job = a_part_of(*job);
        }
        world.fates[user].over = match result {
            Ok(()) => job.is_over(),
            Err(failed) => failed != Failed::Again,
        };
        result
    }

    fn tell(&mut self, event: Option<u64>) {
        self.thread.pause(None);
        let mut world = self.thread.lock();
        let user = event.unwrap();
        let queue = &world.queue;
        let is_there = queue.done.iter(&queue.slots).any(|slot| slot.user == user);
        if !is_there && world.fates[user as usize].reaped == 0 && !in_hand(&world, user) {
            world.tell("Q-done: who is told finds nothing");
        }
    }

    fn wake(&mut self, lane: Lane, _: When) {
        self.thread.pause(None);
        wake(&mut self.thread.lock(), lane);
    }
}

/// Whether somebody is about to give its completion.
fn in_hand(world: &World, user: u64) -> bool {
    let queue = &world.queue;
    let listed = |list: &List| list.iter(&queue.slots).any(|slot| slot.user == user);
    !queue.lanes.iter().chain([&queue.done]).any(listed)
}

/// As `ffi/flash/queue.rs` does it: with the queue's lock.
fn wake(world: &mut World, lane: Lane) {
    if !world.queue.has_ended() || lacks(Part::WakeLooks) {
        world.queued[lane as usize] = true;
    }
}

fn a_part_of(job: Job) -> Job {
    let mut job = job;
    step_of_nothing(&mut job);
    job
}

/// A work item: it runs when it is queued and there is a thread for it, until the VA space is gone.
fn worker(t: &Thread<'_>) {
    let me = t.me;
    let lane = Lane::ALL[me];
    loop {
        t.pause(Some(|world, me| {
            world.queued[me] && world.has_thread(Lane::ALL[me]) || world.gone || done(world)
        }));
        {
            let mut world = t.lock();
            if world.gone || !world.queued[me] || !world.has_thread(lane) {
                break;
            }
            (world.queued[me], world.running[me]) = (false, true);
        }
        let mut turning = Turning {
            thread: t,
            lane,
            holds: None,
        };
        turn(&mut turning, lane);
        t.pause(None);
        t.lock().running[me] = false;
    }
}

/// All that was to be submitted was, and told.
fn done(world: &World) -> bool {
    !world.alive[SUBMITS[0]]
        && !world.alive[SUBMITS[1]]
        && world.fates.iter().all(|f| !f.submitted || f.reaped > 0)
}

/// Little room, so that slots are used again soon.
fn make_room(world: &mut World) {
    if world.queue.free.length == 0 {
        let most = world.queue.slots.len() + 1 + world.dice.below(2);
        let mut table = ProcessVec::with_capacity(most).unwrap();
        world.queue.grow(&mut table, most as u32);
    }
}

/// Whether all that is to go where `request` does, and is not done, is in one lane.
fn is_in_one_lane(queue: &Queue<u64>, request: &Request) -> bool {
    let goes_there = |slot: &Slot<u64>| {
        let to = slot.job.to();
        to == request.to && (to != To::Gpu || slot.job.gpu == request.gpu)
    };
    let has = |list: &&List| list.iter(&queue.slots).any(goes_there);
    queue.lanes.iter().filter(has).count() == 1
}

fn submits(t: &Thread<'_>) {
    for n in 0..EACH {
        t.pause(None);
        let mut world = t.lock();
        if world.queue.has_ended() {
            break;
        }
        let user = (t.me - SUBMITS[0]) as u64 * EACH + n;
        let to = [To::Device, To::Host, To::Gpu, To::Gpu][world.dice.below(4)];
        let at = world.dice.below(12) as u64;
        let gpus = world.gpus.into();
        let request = Request {
            after: world.dice.one_in(6),
            gpu: [world.dice.below(gpus) as u8; 16],
            ..request(at, [1, 2, 12][world.dice.below(3)], to, user)
        };
        make_room(&mut world);
        assert!(world.queue.submit(&request, Some(user)));
        let number = world.submitted;
        world.submitted += 1;
        world.fates[user as usize] = Fate {
            blocks: request.blocks(),
            place: Some(place(&request)),
            after: request.after,
            number,
            submitted: true,
            ..Fate::default()
        };
        if !is_in_one_lane(&world.queue, &request) {
            world.tell("Q-lane: it is in another lane than what goes there, too");
        }
        let waiting = world.queue.waiting();
        drop(world);
        for lane in waiting.iter() {
            t.pause(None);
            if !lacks(Part::SubmitWakes) {
                wake(&mut t.lock(), lane);
            }
        }
    }
}

fn reaps(t: &Thread<'_>) {
    loop {
        t.pause(Some(|world, _| {
            world.queue.done.length > 0 || world.queue.has_ended() || done(world)
        }));
        let completion = {
            let mut world = t.lock();
            if world.queue.has_ended() || done(&world) {
                break;
            }
            world.queue.reap(0)
        };
        let Some(completion) = completion else {
            continue;
        };
        t.pause(None);
        let mut world = t.lock();
        if world.dice.one_in(4) {
            world.queue.put_back(completion);
            let queue = &world.queue;
            let orders: Vec<_> = (queue.done.iter(&queue.slots)).map(|s| s.order).collect();
            if orders.windows(2).any(|pair| pair[0] > pair[1]) {
                world.tell("what was put back is not in its place");
            }
            continue;
        }
        world.queue.given(completion);
        let fate = &mut world.fates[completion.user as usize];
        fate.reaped += 1;
        if fate.reaped > 1 {
            world.tell("Q-once: it was told twice");
        } else if !fate.over || fate.held {
            world.tell("Q-done: it was told too early");
        }
    }
}

fn suspends(t: &Thread<'_>) {
    for _ in 0..3 {
        t.pause(Some(|world, _| world.entered == 0));
        t.lock().is_asleep = true;
        t.pause(None);
        t.lock().is_asleep = false;
    }
}

/// The VA space ends, which nobody uses in a call then.
fn ends(t: &Thread<'_>) {
    let after = t.lock().ends_after;
    for _ in 0..after {
        t.pause(None);
    }
    t.lock().queue.end();
    // As `Work::stop` of each.
    for lane in 0..LANES {
        t.pause(None);
        let mut world = t.lock();
        world.queued[lane] = false;
        world.stops = lane;
        drop(world);
        t.pause(Some(|world, _| !world.running[world.stops]));
    }
    let mut world = t.lock();
    if world.queued.contains(&true) || world.running.contains(&true) {
        world.tell("Q-end: a worker was woken");
    }
    world.gone = true;
}

/// Runs the interleaving that `seed` chooses, without the part `lack`; what is wrong with it.
fn explore(seed: u64, lack: Option<Part>) -> Result<u32, String> {
    let mut dice = Dice::new(seed);
    let (ending, fails) = (dice.one_in(3), dice.one_in(2));
    let ends_after = dice.below(60);
    let (gpus, at_work) = (
        [OWN, 2 * OWN][dice.below(2)],
        1 + dice.below(AT_WORK as usize),
    );
    let sticks = gpus == OWN && dice.one_in(2);
    let mut alive = [true; THREADS];
    alive[ENDS] = ending;
    let world = RefCell::new(World {
        queue: Queue {
            own: OWN,
            ..Queue::new()
        },
        dice,
        now: SUBMITS[0],
        alive,
        waits: [None; THREADS],
        fates: vec![Fate::default(); 2 * EACH as usize],
        submitted: 0,
        queued: [false; LANES],
        running: [false; LANES],
        at_work,
        stops: 0,
        gpus: gpus as u8,
        sticks,
        is_asleep: false,
        entered: 0,
        gone: false,
        wrong: None,
        steps: 0,
        fails,
        ends_after,
    });
    let mut threads: Vec<_> = (0..LANES).map(|me| start(&world, me, worker)).collect();
    threads.extend(SUBMITS.map(|me| start(&world, me, submits)));
    threads.extend(REAPS.map(|me| start(&world, me, reaps)));
    threads.push(start(&world, SUSPENDS, suspends));
    threads.push(start(&world, ENDS, ends));
    take_out(lack);
    run(&world, &mut threads);
    take_out(None);
    drop(threads);
    let world = world.into_inner();
    match world.wrong {
        Some(wrong) => Err(wrong),
        None if !ending && !done(&world) => Err(format!("some are lost: {:?}", world.fates)),
        None => Ok(world.steps),
    }
}

#[test]
#[cfg_attr(miri, ignore = "many threads")]
fn no_interleaving_breaks_an_invariant() {
    let count = setting("UVM_EXPLORE", 400);
    let seed = setting("UVM_TEST_SEED", 1);
    std::eprintln!("UVM_TEST_SEED={seed} UVM_EXPLORE={count}");
    let mut steps = 0;
    for seed in (0..count).map(|n| seed.wrapping_add(n)) {
        match explore(seed, None) {
            Ok(some) => steps += u64::from(some),
            Err(wrong) => panic!("{wrong}: UVM_TEST_SEED={seed} UVM_EXPLORE=1"),
        }
    }
    std::eprintln!("{steps} steps");
    assert!(steps > 50 * count, "{steps}: nothing was done");
}

/// Orders of threads within which each part that is taken out is found.
const FOUND_WITHIN: u64 = 60;

#[test]
#[cfg_attr(miri, ignore = "many threads")]
fn whatever_is_taken_out_is_found() {
    let mut unnoticed = Vec::new();
    for &part in Part::ALL {
        let found = (1..=FOUND_WITHIN).find_map(|seed| {
            let wrong = explore(seed, Some(part)).err()?;
            Some(format!("order {seed}: {wrong}"))
        });
        tell_mutant(&format!("{part:?}"), "", found.as_deref());
        if found.is_none() {
            unnoticed.push(part);
        }
    }
    assert!(
        unnoticed.is_empty(),
        "not found within {FOUND_WITHIN} orders: {unnoticed:?}"
    );
}
