// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Plans on the queue, as `uvm-dnn play` and libuvmrust make their requests: before each kernel for what leaves, then
//! for what comes.
//!
//! There are two GPUs. All lanes get on in an order that is drawn, a part of a request at a time. In all orders each
//! kernel finds its data on their GPUs, nothing comes there before what leaves has made the room, and in the end all is
//! where it would be if one request were carried out after the other.

use super::*;
use crate::testing::{model, Dice};
use proptest::prelude::*;
use std::ops::Range;

/// Where a va_block's data are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Gpu(u8),
    Host,
    Ssd,
}

/// va_blocks by number, as the machine of a part sees them. The default has none.
#[derive(Default)]
pub(super) struct Memory {
    places: Vec<Place>,
    chosen: usize,
    /// The GPU that is copied to, if one is.
    gpu: u8,
    /// Where what is copied goes, within a part.
    to: Option<Place>,
    /// What is on its way there: it has not arrived before somebody waits for it.
    copies: Vec<(usize, Place)>,
    /// Blocks that came to a GPU which had no room for them.
    pushed: u32,
    /// What a block takes on the link, and on the device.
    copy_takes: u64,
    write_takes: u64,
    now: u64,
    /// Until then the link is busy.
    link: u64,
    /// Blocks that were written while others were copied.
    overlapped: u32,
}

impl Memory {
    fn new(blocks: usize) -> Self {
        Self {
            places: vec![Place::Host; blocks],
            ..Self::default()
        }
    }

    pub(super) fn copies_home(&mut self) {
        self.to = Some(Place::Host);
    }

    pub(super) fn copies_to_gpu(&mut self) {
        self.to = Some(Place::Gpu(self.gpu));
    }

    pub(super) fn choose(&mut self, base: u64, end: u64) -> Option<u64> {
        self.chosen = (base / BLOCK_BYTES) as usize;
        let there = self.chosen < self.places.len() && base <= end;
        there.then(|| base - base % BLOCK_BYTES + BLOCK_BYTES)
    }

    pub(super) fn write(&mut self) {
        let place = &mut self.places[self.chosen];
        if *place == Place::Host {
            *place = Place::Ssd;
            self.overlapped += u32::from(self.link > self.now);
            self.now += self.write_takes;
        }
    }

    pub(super) fn fetch(&mut self) {
        let place = &mut self.places[self.chosen];
        if *place == Place::Ssd {
            *place = Place::Host;
        }
    }

    pub(super) fn copy(&mut self) {
        match (self.to, self.places[self.chosen]) {
            (Some(Place::Host), Place::Gpu(_)) => {
                self.copies.push((self.chosen, Place::Host));
                self.link = self.link.max(self.now) + self.copy_takes;
            }
            (Some(gpu @ Place::Gpu(_)), Place::Host | Place::Ssd) => {
                let there = self.places.iter().filter(|p| **p == gpu).count();
                let coming = self.copies.iter().filter(|(_, to)| *to == gpu);
                self.pushed += u32::from(there + coming.count() >= CAPACITY);
                self.copies.push((self.chosen, gpu));
            }
            _ => {}
        }
    }

    pub(super) fn settle(&mut self) {
        self.now = self.now.max(self.link);
        for (block, place) in self.copies.drain(..) {
            self.places[block] = place;
        }
    }

    pub(super) fn put(&mut self) {
        assert!(self.copies.is_empty(), "V-copies");
        self.to = None;
    }
}

/// Blocks that a GPU has room for.
const CAPACITY: usize = 40;
const TENSORS: usize = 20;
const KERNELS: usize = 12;
const GPUS: usize = 2;

/// The GPU that uses a tensor.
fn gpu_of(tensor: usize) -> Place {
    Place::Gpu((tensor % GPUS) as u8)
}

/// What is to be done before the kernels of a step, and what each uses.
#[derive(Debug)]
struct Plan {
    /// The blocks of each.
    tensors: Vec<Range<usize>>,
    before: Vec<Vec<(usize, Place)>>,
    uses: Vec<Vec<usize>>,
}

impl Plan {
    /// A plan that never asks for more than a GPU has, one request after the other: what leaves comes first.
    fn draw(dice: &mut Dice) -> Self {
        let mut tensors = Vec::new();
        let mut next = 0;
        for _ in 0..TENSORS {
            // Some are longer than what is moved at once.
            let blocks = 1 + dice.below(12);
            tensors.push(next..next + blocks);
            next += blocks;
        }
        let mut plan = Self {
            tensors,
            before: Vec::new(),
            uses: Vec::new(),
        };
        let mut there = [false; TENSORS];
        for _ in 0..KERNELS {
            let uses = [dice.below(TENSORS), dice.below(TENSORS)];
            let mut requests = Vec::new();
            let ahead = [dice.below(TENSORS)].into_iter();
            let wanted: Vec<_> = uses.into_iter().chain(ahead).collect();
            let mut others: Vec<_> = (0..TENSORS).filter(|t| !wanted.contains(t)).collect();
            let mut after = there;
            wanted.iter().for_each(|t| after[*t] = true);
            while plan.is_too_much(&after) || dice.one_in(4) && !others.is_empty() {
                let one = others.swap_remove(dice.below(others.len()));
                // A request for what is elsewhere already does no harm.
                if after[one] || dice.one_in(8) {
                    let to = [Place::Host, Place::Ssd][dice.below(2)];
                    requests.push((one, to));
                }
                after[one] = false;
            }
            for t in wanted {
                if !there[t] || dice.one_in(8) {
                    requests.push((t, gpu_of(t)));
                }
            }
            there = after;
            plan.before.push(requests);
            plan.uses.push(uses.into());
        }
        plan
    }

    /// Whether one of the GPUs has no room for so much.
    fn is_too_much(&self, there: &[bool; TENSORS]) -> bool {
        let mut blocks = [0; GPUS];
        for (tensor, range) in self.tensors.iter().enumerate().filter(|(t, _)| there[*t]) {
            blocks[tensor % GPUS] += range.len();
        }
        blocks.iter().any(|blocks| *blocks > CAPACITY)
    }

    fn blocks(&self) -> usize {
        self.tensors.last().map_or(0, |last| last.end)
    }

    /// As libuvmrust asks for it; `after`: what comes waits for what leaves.
    fn request(&self, tensor: usize, place: Place, user: u64, after: bool) -> Request {
        let (to, gpu) = match place {
            Place::Gpu(gpu) => (To::Gpu, gpu),
            Place::Host => (To::Host, 0),
            Place::Ssd => (To::Device, 0),
        };
        let blocks = &self.tensors[tensor];
        Request {
            from_gpus: to != To::Gpu,
            gpu: [gpu; 16],
            after: after && to == To::Gpu,
            ..request(blocks.start as u64, blocks.len() as u64, to, user)
        }
    }
}

/// A plan under way.
struct Player<'a> {
    plan: &'a Plan,
    queue: Queue<u64>,
    memory: Memory,
    /// What each lane has in its hands.
    hands: [Option<(Job, u64)>; Lane::COUNT],
    dice: Dice,
    /// In so many of 8 times the lane is the one in which bytes leave.
    leaves: usize,
    /// By number, in the order of submission: what is not done.
    pending: Vec<u64>,
    /// Whether each leaves, by number.
    outward: Vec<bool>,
    /// Whether what comes waits for what leaves.
    after: bool,
    /// Those whose number the first one divides fail, if they are of what leaves, at a step that the other draws.
    fails: Option<(u64, u64)>,
    /// How many steps of each were done, by number.
    steps: Vec<usize>,
    submitted: u64,
}

impl<'a> Player<'a> {
    fn new(plan: &'a Plan, seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        Self {
            plan,
            queue: Queue::new(),
            memory: Memory::new(plan.blocks()),
            hands: [None; Lane::COUNT],
            leaves: [1, 4, 7][dice.below(3)],
            dice,
            pending: Vec::new(),
            outward: Vec::new(),
            after: true,
            fails: None,
            steps: Vec::new(),
            submitted: 0,
        }
    }

    fn submit(&mut self, tensor: usize, place: Place) -> u64 {
        let user = self.submitted;
        self.submitted += 1;
        grow(&mut self.queue, 1);
        let leaves = |user: &u64| self.outward[*user as usize];
        let after = self.after && self.pending.iter().any(leaves);
        let request = self.plan.request(tensor, place, user, after);
        self.outward.push(request.leaves());
        assert!(self.queue.submit(&request, Some(user)));
        self.pending.push(user);
        self.steps.push(0);
        user
    }

    /// At which of its steps a request fails, if it has so many.
    fn fails_at(&self, lane: Lane, user: u64) -> Option<usize> {
        let (nth, seed) = self.fails.filter(|_| lane == Lane::Out)?;
        (user % nth == 0).then(|| Dice::new(seed.wrapping_add(user)).below(3))
    }

    /// A lane takes its next request in hand, or moves a part of the one that it has; whether it did.
    fn turn(&mut self, lane: Lane) -> bool {
        let at = lane as usize;
        let Some((mut job, user)) = self.hands[at].take() else {
            let Some(job) = self.queue.next(lane) else {
                return false;
            };
            let first = self.queue.lanes[at].first as usize;
            self.hands[at] = Some((job, self.queue.slots[first].user));
            return true;
        };
        let steps = self.steps[user as usize];
        let moved = if self.fails_at(lane, user) == Some(steps) {
            Err(Failed::NotManaged)
        } else if self.dice.one_in(8) {
            Err(Failed::Again)
        } else {
            let mut machine = Nothing {
                memory: core::mem::take(&mut self.memory),
                ..Nothing::default()
            };
            machine.memory.gpu = job.gpu[0];
            let moved = job.step(&mut machine);
            self.memory = machine.memory;
            self.steps[user as usize] += 1;
            moved
        };
        if let Some(done) = self.queue.stepped(lane, job, moved).done {
            assert_eq!(done, Some(user), "Q-once");
            let completion = self.queue.reap(0).unwrap();
            assert_eq!(completion.user, user, "Q-done");
            self.queue.given(completion);
            self.pending.retain(|other| *other != user);
        }
        true
    }

    /// Lets the lanes get on until this request is done, if there is one; else until all are.
    fn wait(&mut self, user: Option<u64>) {
        let waits = |player: &Self| match user {
            Some(user) => player.pending.contains(&user),
            None => !player.pending.is_empty(),
        };
        while waits(self) {
            let leaves = self.dice.below(8) < self.leaves;
            let way = if leaves { Way::Out } else { Way::In };
            let mut lanes: Vec<_> = self.queue.waiting().iter().collect();
            let drawn = self.dice.below(lanes.len());
            lanes.rotate_left(drawn);
            lanes.sort_by_key(|lane| lane.way() != way);
            assert!(
                lanes.into_iter().any(|lane| self.turn(lane)),
                "nobody goes on: {:?}",
                self.pending
            );
        }
    }

    /// A step of the plan. `one_by_one`: each request is waited for, as `uvm-dnn play` does; else a kernel waits for its
    /// own data alone.
    fn play(&mut self, one_by_one: bool) {
        let plan = self.plan;
        // The last request that brings each.
        let mut came = [None; TENSORS];
        for (requests, uses) in plan.before.iter().zip(&plan.uses) {
            for &(tensor, place) in requests {
                let user = self.submit(tensor, place);
                if matches!(place, Place::Gpu(_)) {
                    came[tensor] = Some(user);
                }
                if one_by_one {
                    self.wait(Some(user));
                }
            }
            for &tensor in uses {
                if let Some(user) = came[tensor] {
                    self.wait(Some(user));
                }
                let blocks = plan.tensors[tensor].clone();
                let places = &self.memory.places[blocks];
                assert!(
                    places.iter().all(|place| *place == gpu_of(tensor)),
                    "tensor {tensor} is used before it has arrived: {places:?}"
                );
            }
        }
        self.wait(None);
    }
}

proptest! {
    #![proptest_config(model(200))]

    /// No use before the data have arrived, no place that depends on who was faster, and nothing pushed out.
    #[test]
    fn the_order_in_which_requests_are_done_changes_nothing(seed in any::<u64>()) {
        let plan = Plan::draw(&mut Dice::new(seed));
        let mut sequence = Player::new(&plan, seed);
        sequence.play(true);
        prop_assert_eq!(sequence.memory.pushed, 0, "the plan wants too much");
        for n in 1..4 {
            let mut player = Player::new(&plan, seed.wrapping_add(n));
            player.play(false);
            prop_assert_eq!(&player.memory.places, &sequence.memory.places);
            prop_assert_eq!(player.memory.pushed, 0, "what comes overtook what leaves");
        }
    }

    /// What fails stays where it has come to, and holds nobody up.
    #[test]
    fn nor_does_it_where_some_fail(seed in any::<u64>(), nth in 1u64..5) {
        let plan = Plan::draw(&mut Dice::new(seed));
        let play = |n, one_by_one| {
            let mut player = Player::new(&plan, seed.wrapping_add(n));
            player.fails = Some((nth, seed));
            player.play(one_by_one);
            player.memory.places
        };
        let places = play(0, true);
        for n in 1..4 {
            prop_assert_eq!(&play(n, false), &places);
        }
    }
}

/// Without the flag some order has what comes push something out, and all the same ends with each in its place.
#[test]
fn without_the_flag_what_comes_pushes_something_out() {
    let pushed = (0..64).filter(|&seed| {
        let plan = Plan::draw(&mut Dice::new(seed));
        let mut player = Player::new(&plan, seed);
        player.after = false;
        player.play(false);
        player.memory.pushed > 0
    });
    assert!(pushed.count() > 8);
}

/// From a GPU to the device takes as long as the slower of both steps, but for the first copy and the last write.
#[test]
fn what_is_written_hides_what_is_copied_ahead() {
    const PARTS: u64 = 8;
    let of_a_part = moves::AT_ONCE / BLOCK_BYTES;
    for (copy_takes, write_takes) in [(3, 5), (5, 3), (4, 4)] {
        let mut m = Nothing {
            memory: Memory {
                places: vec![Place::Gpu(0); (PARTS * of_a_part) as usize],
                copy_takes,
                write_takes,
                ..Memory::default()
            },
            ..Nothing::default()
        };
        let mut job = Job::new(&Request {
            from_gpus: true,
            ..request(0, PARTS * of_a_part, To::Device, 0)
        });
        while !job.is_over() {
            job.step(&mut m).unwrap();
        }
        let memory = m.memory;
        assert!(memory.places.iter().all(|place| *place == Place::Ssd));
        let slower = copy_takes.max(write_takes);
        let takes = of_a_part * (copy_takes + (PARTS - 1) * slower + write_takes);
        assert_eq!(memory.now, takes, "{copy_takes} and {write_takes} a block");
        // Of each part but the last, so many are written while the link is busy.
        let hidden = of_a_part.min((of_a_part * copy_takes).div_ceil(write_takes));
        assert_eq!(u64::from(memory.overlapped), (PARTS - 1) * hidden);
    }
}
