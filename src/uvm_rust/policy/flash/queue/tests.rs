// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The queue alone; [`explore`] has the workers, and those who submit, reap and end.

use super::super::drain::Fetched;
use super::super::moves;
use super::job::TRIES;
use super::*;
use crate::policy::discard::BLOCK_BYTES;
use crate::policy::evict::wait::HELD_MS;
use std::vec;
use std::vec::Vec;

mod explore;
mod lanes;
mod plain;
mod plan;

fn request(block: u64, blocks: u64, to: To, user: u64) -> Request {
    Request {
        base: block * BLOCK_BYTES,
        length: blocks * BLOCK_BYTES,
        to,
        from_gpus: false,
        gpu: [0; 16],
        user,
        of: 0,
        after: false,
    }
}

/// To the GPU of this number, one block.
fn to_gpu(gpu: u8, block: u64, user: u64) -> Request {
    Request {
        gpu: [gpu; 16],
        ..request(block, 1, To::Gpu, user)
    }
}

/// Where what `request` asks for goes; nothing that goes to another place need wait for it.
fn place(request: &Request) -> (To, Option<u8>) {
    match request.to {
        _ if request.leaves() => (To::Device, None),
        To::Gpu => (To::Gpu, Some(request.gpu[0])),
        to => (to, None),
    }
}

fn only(lane: Lane) -> Lanes {
    Lanes::of(|other| other == lane)
}

/// A queue with room for some.
fn queue(most: u32) -> Queue<u64> {
    let mut queue = Queue::new();
    grow(&mut queue, most);
    queue
}

fn grow(queue: &mut Queue<u64>, more: u32) {
    if let Some(most) = queue.wants(more) {
        let mut table = ProcessVec::with_capacity(most as usize).unwrap();
        queue.grow(&mut table, most);
    }
}

/// Moves no byte but in `memory`, and finds no fault, but that there is no memory for so many looks. `untouched`: there
/// are no va_blocks.
#[derive(Default)]
struct Nothing {
    no_memory: u32,
    no_entry: bool,
    untouched: bool,
    memory: plan::Memory,
}
impl moves::Machine for Nothing {
    fn take_turn(&mut self) -> Result<(), Failed> {
        Ok(())
    }
    fn end_turn(&mut self) {}
    fn has_device(&mut self) -> bool {
        true
    }
    fn may_write(&mut self) -> bool {
        true
    }
    fn is_awaited(&mut self) -> bool {
        false
    }
    fn count_throttled(&mut self) {}
    fn nap(&mut self) -> bool {
        true
    }
    fn stand_in_line(&mut self) {}

    fn open(&mut self) -> bool {
        true
    }
    fn close(&mut self) {}
    fn keep_device(&mut self) -> Result<(), Failed> {
        Ok(())
    }
    fn wait_for_device(&mut self) -> Result<(), Failed> {
        Ok(())
    }
    fn leave_device(&mut self) {}
    fn enter_space(&mut self) -> Result<(), Failed> {
        match self.no_entry {
            true => Err(Failed::Again),
            false => Ok(()),
        }
    }
    fn leave_space(&mut self) {}
    fn is_managed(&mut self, _: u64, _: u64) -> bool {
        true
    }
    fn has_to_write(&mut self, _: u64, _: u64) -> bool {
        false
    }

    fn is_empty(&mut self, _: u64, _: u64) -> bool {
        self.untouched
    }
    fn prepare(&mut self) -> bool {
        let lacks_memory = self.no_memory > 0;
        self.no_memory = self.no_memory.saturating_sub(1);
        !lacks_memory
    }
    fn put(&mut self) {
        self.memory.put();
    }
    fn choose(&mut self, base: u64, end: u64) -> Option<u64> {
        self.memory.choose(base, end)
    }
    fn write(&mut self) {
        self.memory.write();
    }
    fn ask(&mut self, _: u64, _: u64) -> Option<u64> {
        None
    }
    fn has_gpu(&mut self) -> bool {
        self.memory.copies_to_gpu();
        true
    }
    fn copies_home(&mut self) {
        self.memory.copies_home();
    }
    fn lock(&mut self) {}
    fn unlock(&mut self) {}
    fn fetch(&mut self) -> Fetched {
        self.memory.fetch();
        Fetched::All
    }
    fn has_host_room(&mut self) -> bool {
        true
    }
    fn copy(&mut self) -> Result<Fetched, Failed> {
        self.memory.copy();
        Ok(Fetched::All)
    }
    fn settle(&mut self) -> bool {
        self.memory.settle();
        true
    }
    fn dying(&mut self) -> bool {
        false
    }
    fn rest(&mut self) {}
    fn pay(&mut self) {}
}

/// A part of the job is done.
fn step_of_nothing(job: &mut Job) {
    job.step(&mut Nothing::default()).unwrap();
}

/// All parts of a job are done.
fn whole(mut job: Job) -> Job {
    while !job.is_over() {
        step_of_nothing(&mut job);
    }
    job
}

/// The lane's next request is done.
fn carry_out(queue: &mut Queue<u64>, lane: Lane) -> Option<After<u64>> {
    let job = queue.next(lane)?;
    Some(queue.stepped(lane, whole(job), Ok(())))
}

fn reap_all(queue: &mut Queue<u64>) -> Vec<(u64, u64)> {
    core::iter::from_fn(|| {
        let done = queue.reap(0)?;
        queue.given(done);
        Some((done.user, done.order))
    })
    .collect()
}

#[test]
fn requests_of_a_lane_end_in_their_order_and_lanes_do_not_wait_for_each_other() {
    let mut q = queue(8);
    for (n, to) in [To::Device, To::Host, To::Device, To::Host]
        .into_iter()
        .enumerate()
    {
        assert!(q.submit(&request(10 * n as u64, 1, to, n as u64), Some(n as u64)));
    }
    let after = carry_out(&mut q, Lane::Host).unwrap();
    assert_eq!(after.done, Some(Some(1)));
    assert_eq!(
        (after.again, after.others),
        (Some(When::Now), only(Lane::Out))
    );
    carry_out(&mut q, Lane::Host).unwrap();
    assert!(q.next(Lane::Host).is_none());
    carry_out(&mut q, Lane::Out).unwrap();
    let after = carry_out(&mut q, Lane::Out).unwrap();
    assert_eq!((after.again, after.others), (None, Lanes::default()));
    assert_eq!(reap_all(&mut q), [(1, 1), (3, 2), (0, 3), (2, 4)]);
}

#[test]
fn what_shares_a_block_waits_for_the_earlier_one_whichever_its_lane() {
    let mut q = queue(8);
    // The last byte of the first is in the block in which the second begins.
    assert!(q.submit(&request(0, 2, To::Device, 0), None));
    let half = Request {
        base: 2 * BLOCK_BYTES - 4096,
        length: 4096,
        ..request(0, 1, To::Gpu, 1)
    };
    assert!(q.submit(&half, None));
    assert!(q.submit(&request(5, 1, To::Gpu, 2), None));
    assert!(q.next(Lane::Gpu0).is_none());
    let job = q.next(Lane::Out).unwrap();
    assert!(q.next(Lane::Gpu0).is_none() && q.next(Lane::Out).is_none());
    let after = q.stepped(Lane::Out, whole(job), Ok(()));
    assert_eq!(after.others, only(Lane::Gpu0));
    carry_out(&mut q, Lane::Gpu0).unwrap();
    // The later one does not hold the earlier one up.
    assert!(q.submit(&request(5, 1, To::Device, 3), None));
    assert!(q.next(Lane::Out).is_none());
    carry_out(&mut q, Lane::Gpu0).unwrap();
    carry_out(&mut q, Lane::Out).unwrap();
    // Nor does it matter that both come.
    assert!(q.submit(&to_gpu(1, 7, 4), None));
    assert!(q.submit(&to_gpu(2, 7, 5), None));
    assert!(q.submit(&request(7, 1, To::Host, 6), None));
    for lane in [Lane::Gpu0, Lane::Gpu1, Lane::Host] {
        assert!(Lane::ALL.iter().all(|l| *l == lane || q.next(*l).is_none()));
        carry_out(&mut q, lane).unwrap();
    }
    let users: Vec<_> = reap_all(&mut q).into_iter().map(|(user, _)| user).collect();
    assert_eq!(users, [0, 1, 2, 3, 4, 5, 6]);
}

/// What leaves makes the room for it.
#[test]
fn what_is_to_come_after_all_others_waits_for_the_other_lanes_too() {
    let after = |block, to, user| Request {
        after: true,
        ..request(block, 1, to, user)
    };
    let mut q = queue(8);
    assert!(q.submit(&request(0, 1, To::Device, 0), None));
    assert!(q.submit(&request(10, 1, To::Device, 1), None));
    assert!(q.submit(&after(20, To::Gpu, 2), None));
    // A later one of the other lane does not wait for it, nor the other way round.
    assert!(q.submit(&request(30, 1, To::Device, 3), None));
    assert!(q.next(Lane::Gpu0).is_none());
    assert!(carry_out(&mut q, Lane::Out).unwrap().others == only(Lane::Gpu0));
    assert!(q.next(Lane::Gpu0).is_none());
    // One that fails has ended as well.
    let job = q.next(Lane::Out).unwrap();
    assert!(
        q.next(Lane::Gpu0).is_none(),
        "the one under way has not ended"
    );
    let failed = q.stepped(Lane::Out, job, Err(Failed::NoDevice));
    assert_eq!(failed.others, only(Lane::Gpu0));
    let prefetch = q.next(Lane::Gpu0).unwrap();
    let eviction = q.next(Lane::Out).unwrap();
    q.stepped(Lane::Gpu0, whole(prefetch), Ok(()));
    q.stepped(Lane::Out, whole(eviction), Ok(()));
    // What leaves may be told to wait, too, and what nobody is before begins at once.
    assert!(q.submit(&request(0, 1, To::Gpu, 4), None));
    assert!(q.submit(&after(40, To::Device, 5), None));
    assert!(q.next(Lane::Out).is_none());
    carry_out(&mut q, Lane::Gpu0).unwrap();
    carry_out(&mut q, Lane::Out).unwrap();
    assert!(q.submit(&after(0, To::Gpu, 6), None));
    carry_out(&mut q, Lane::Gpu0).unwrap();
    // And for what comes elsewhere.
    assert!(q.submit(&to_gpu(1, 50, 7), None));
    assert!(q.submit(&request(60, 1, To::Host, 8), None));
    let last = Request {
        after: true,
        ..to_gpu(2, 70, 9)
    };
    assert!(q.submit(&last, None));
    for lane in [Lane::Host, Lane::Gpu0] {
        assert!(q.next(Lane::Gpu1).is_none());
        carry_out(&mut q, lane).unwrap();
    }
    carry_out(&mut q, Lane::Gpu1).unwrap();
    let users: Vec<_> = reap_all(&mut q).into_iter().map(|(user, _)| user).collect();
    assert_eq!(users, [0, 1, 2, 3, 4, 5, 6, 8, 7, 9]);
}

#[test]
fn a_request_is_done_part_by_part_and_waits_for_who_suspends() {
    let mut q = queue(2);
    assert!(q.submit(&request(0, 20, To::Host, 0), None));
    let job = q.next(Lane::Host).unwrap();
    let after = q.stepped(Lane::Host, job, Ok(()));
    assert_eq!((after.done, after.again), (None, Some(When::Now)));
    let job = q.next(Lane::Host).unwrap();
    let after = q.stepped(Lane::Host, whole(job), Err(Failed::Again));
    assert_eq!((after.done, after.again), (None, Some(When::Later)));
    let job = q.next(Lane::Host).unwrap();
    assert!(job.is_over(), "what was done is not known");
    let after = q.stepped(Lane::Host, job, Err(Failed::NoDevice));
    assert_eq!(after.done, Some(None));
    assert_eq!(q.reap(0).unwrap().status, Err(Failed::NoDevice));
}

#[test]
fn who_finds_no_memory_on_a_gpu_comes_again_for_some_seconds() {
    let mut q = queue(2);
    let no_memory = |n| Nothing {
        no_memory: n,
        ..Nothing::default()
    };
    assert!(q.submit(&request(0, 20, To::Gpu, 0), None));
    let mut job = q.next(Lane::Gpu0).unwrap();
    // A part that was moved begins the count anew.
    for _ in 0..2 {
        let mut gpu = no_memory(TRIES);
        for n in 0..TRIES {
            assert_eq!(job.step(&mut gpu), Err(Failed::Again), "try {n}");
            let after = q.stepped(Lane::Gpu0, job, Err(Failed::Again));
            assert_eq!((after.done, after.again), (None, Some(When::Later)));
            job = q.next(Lane::Gpu0).unwrap();
        }
        assert_eq!(job.step(&mut gpu), Ok(()));
    }
    assert!(u64::from(TRIES) * LATER_MS >= HELD_MS);
    // In the end it fails, and so does at once what lacks memory of the host's.
    let mut job = Job::new(&request(0, 1, To::Gpu, 1));
    let mut gpu = no_memory(TRIES + 1);
    for _ in 0..TRIES {
        assert_eq!(job.step(&mut gpu), Err(Failed::Again));
    }
    assert_eq!(job.step(&mut gpu), Err(Failed::NoMemory));
    let mut job = Job::new(&request(0, 1, To::Host, 2));
    assert_eq!(job.step(&mut no_memory(1)), Err(Failed::NoMemory));
}

/// Others have a lock, or copy: that is no lack of memory.
#[test]
fn who_cannot_begin_comes_again_however_often() {
    let mut job = Job::new(&request(0, 1, To::Gpu, 0));
    let mut busy = Nothing {
        no_entry: true,
        no_memory: TRIES,
        ..Nothing::default()
    };
    for _ in 0..2 * TRIES {
        assert_eq!(job.step(&mut busy), Err(Failed::Again));
    }
    busy.no_entry = false;
    for _ in 0..TRIES {
        assert_eq!(job.step(&mut busy), Err(Failed::Again));
    }
    assert_eq!(job.step(&mut busy), Ok(()));
}

#[test]
fn a_worker_rests_after_each_look_at_much_that_nobody_touched() {
    const TIB: u64 = 1 << 40;
    for to in [To::Device, To::Host, To::Gpu] {
        let mut q = queue(1);
        assert!(q.submit(&request(0, 4 * TIB / BLOCK_BYTES, to, 0), None));
        let mut empty = Nothing {
            untouched: true,
            ..Nothing::default()
        };
        let lane = match to {
            To::Device => Lane::Out,
            To::Gpu => Lane::Gpu0,
            _ => Lane::Host,
        };
        let (mut at_once, mut later, mut done) = (0, 0, false);
        while !done {
            let mut job = q.next(lane).unwrap();
            assert_eq!(job.step(&mut empty), Ok(()));
            let after = q.stepped(lane, job, Ok(()));
            done = after.done.is_some();
            match after.again {
                Some(When::Later) => later += 1,
                Some(When::Now) => at_once += 1,
                None => assert!(done),
            }
        }
        // What doubles up to the most costs about as much as the most alone.
        let most = 4 * TIB / moves::LOOKED_AT;
        assert!(at_once < 16, "{at_once} of {to:?}");
        assert!((most - 2..=most + 2).contains(&later), "{later} of {to:?}");
    }
}

#[test]
fn what_leaves_gpus_comes_to_the_host_a_part_ahead() {
    let mut q = queue(2);
    let ask = Request {
        from_gpus: true,
        ..request(1, 12, To::Device, 0)
    };
    assert!(q.submit(&ask, None));
    let mut job = q.next(Lane::Out).unwrap();
    let mut went = Vec::new();
    while !job.is_over() {
        went.push(job.to());
        step_of_nothing(&mut job);
    }
    // The second part comes while the first is written.
    assert_eq!(went, [To::Home, To::Device, To::Device]);
    q.stepped(Lane::Out, job, Ok(()));
    // On to the host alone it leaves as well.
    let ask = Request {
        from_gpus: true,
        ..request(0, 1, To::Host, 1)
    };
    assert!(q.submit(&ask, None) && q.next(Lane::Host).is_none());
    assert_eq!(q.next(Lane::Out).unwrap().to(), To::Home);
}

#[test]
fn there_is_room_for_so_many_until_completions_were_given() {
    let mut q = Queue::new();
    assert!(!q.submit(&request(0, 1, To::Host, 0), None));
    for n in 0..u64::from(MOST) {
        grow(&mut q, 1);
        assert!(q.submit(&request(n, 1, To::Host, n), None));
    }
    assert_eq!(q.wants(1), None);
    assert!(!q.submit(&request(0, 1, To::Host, 0), None));
    carry_out(&mut q, Lane::Host).unwrap();
    assert!(!q.submit(&request(0, 1, To::Host, 0), None));
    let done = q.reap(0).unwrap();
    assert!(!q.submit(&request(0, 1, To::Host, 0), None));
    q.given(done);
    assert!(q.submit(&request(0, 1, To::Host, MOST.into()), None));
    assert!(!q.submit(&request(0, 1, To::Host, 0), None));
    while carry_out(&mut q, Lane::Host).is_some() {}
    let users: Vec<_> = reap_all(&mut q).into_iter().map(|(user, _)| user).collect();
    assert_eq!(users, (1..=u64::from(MOST)).collect::<Vec<_>>());
}

#[test]
fn what_could_not_be_given_comes_in_its_place() {
    let mut q = queue(8);
    for n in 0..4 {
        assert!(q.submit(&request(n, 1, To::Host, n), None));
        carry_out(&mut q, Lane::Host).unwrap();
    }
    let [a, b, c] = [(); 3].map(|()| q.reap(0).unwrap());
    q.put_back(b);
    q.put_back(c);
    q.put_back(a);
    assert_eq!(reap_all(&mut q), [(0, 1), (1, 2), (2, 3), (3, 4)]);
    assert!(q.submit(&request(0, 1, To::Host, 9), None));
    carry_out(&mut q, Lane::Host).unwrap();
    let a = q.reap(0).unwrap();
    q.put_back(a);
    assert_eq!(reap_all(&mut q), [(9, 5)]);
}

#[test]
fn nothing_begins_at_the_end() {
    let mut q = queue(8);
    assert!(q.submit(&request(0, 1, To::Host, 0), None));
    assert!(q.submit(&request(1, 1, To::Device, 1), None));
    let job = q.next(Lane::Host).unwrap();
    q.end();
    assert!(q.next(Lane::Out).is_none() && q.has_ended());
    q.stepped(Lane::Host, whole(job), Err(Failed::Interrupted));
    assert_eq!(q.reap(0).unwrap().status, Err(Failed::Interrupted));
}
