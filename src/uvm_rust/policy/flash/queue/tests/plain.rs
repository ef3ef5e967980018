// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The queue beside a plain list, call by call.

use super::*;
use crate::testing::{model, steps};
use proptest::prelude::*;
use std::collections::VecDeque;

#[derive(Clone, Debug)]
enum Op {
    /// Of so many blocks from there on; to that GPU; from GPUs; after all others.
    Submit(u64, u64, To, u8, bool, bool),
    Begin(Lane),
    /// Well, or as the memory is not managed.
    End(Lane, bool),
    Reap(u64),
    Give(usize),
    PutBack(usize),
}

fn op() -> impl Strategy<Value = Op> {
    let lane = || prop::sample::select(&Lane::ALL[..]);
    let to = prop_oneof![Just(To::Device), Just(To::Host), Just(To::Gpu)];
    prop_oneof![
        4 => (0u64..30, 1u64..4, to, 0u8..12, any::<bool>(), any::<bool>()).prop_map(
            |(at, n, to, gpu, from_gpus, after)| Op::Submit(at, n, to, gpu, from_gpus, after && at < 10)
        ),
        9 => lane().prop_map(Op::Begin),
        9 => (lane(), any::<bool>()).prop_map(|(lane, well)| Op::End(lane, well)),
        3 => (0u64..2).prop_map(Op::Reap),
        2 => any::<usize>().prop_map(Op::Give),
        1 => any::<usize>().prop_map(Op::PutBack),
    ]
}

/// What a queue is to do, without tables.
#[derive(Default)]
struct Plain {
    /// What is not done, in the order of submission.
    waiting: Vec<(Lane, Request)>,
    running: Vec<(Lane, Job, Request)>,
    done: VecDeque<(u64, u64)>,
    hands: Vec<Completion>,
    completed: u64,
}

impl Plain {
    /// The lane for a request, as the text on top of `queue.rs` says, with so many for GPUs.
    fn lane(&self, request: &Request, own: usize) -> Lane {
        match place(request) {
            (To::Device, _) => return Lane::Out,
            (To::Host, _) => return Lane::Host,
            _ => {}
        }
        let at = |of: &&(Lane, Request)| place(&of.1) == place(request);
        let is_used = |lane: Lane| self.waiting.iter().any(|(of, _)| *of == lane);
        match self.waiting.iter().find(at) {
            Some((mine, _)) => *mine,
            None => (Lane::of_gpus(own).find(|lane| !is_used(*lane))).unwrap_or(Lane::Rest),
        }
    }

    fn may_begin(&self, lane: Lane) -> Option<usize> {
        if self.running.iter().any(|(of, ..)| *of == lane) {
            return None;
        }
        let at = self.waiting.iter().position(|(of, _)| *of == lane)?;
        let request = self.waiting[at].1;
        if request.after {
            return (at == 0).then_some(at);
        }
        let (first, last) = request.blocks();
        let mut before = self.waiting[..at].iter().map(|(_, r)| r.blocks());
        (!before.any(|(f, l)| f <= last && first <= l)).then_some(at)
    }
}

/// Does one thing to both.
fn apply(q: &mut Queue<u64>, plain: &mut Plain, op: Op, user: u64) {
    match op {
        Op::Submit(at, n, to, gpu, from_gpus, after) => {
            let request = Request {
                from_gpus: from_gpus && to != To::Gpu,
                gpu: [gpu; 16],
                of: user % 2,
                after,
                ..request(at, n, to, user)
            };
            grow(q, 1);
            assert!(q.submit(&request, Some(user)));
            plain.waiting.push((plain.lane(&request, q.own), request));
        }
        Op::Begin(lane) => {
            let began = q.next(lane);
            let may = plain.may_begin(lane);
            assert_eq!(began.is_some(), may.is_some(), "Q-order, Q-after");
            if let (Some(job), Some(at)) = (began, may) {
                let (_, request) = plain.waiting[at];
                let earlier = &plain.waiting[..at];
                let mut places = earlier.iter().map(|(_, r)| place(r));
                assert!(!places.any(|p| p == place(&request)), "Q-order");
                plain.running.push((lane, job, request));
            }
        }
        Op::End(lane, well) => {
            let Some(at) = plain.running.iter().position(|(of, ..)| *of == lane) else {
                return;
            };
            let (_, job, request) = plain.running.remove(at);
            let after = match well {
                true => q.stepped(lane, whole(job), Ok(())),
                false => q.stepped(lane, job, Err(Failed::NotManaged)),
            };
            plain.waiting.retain(|(_, r)| r.user != request.user);
            plain.completed += 1;
            plain.done.push_back((request.user, plain.completed));
            assert_eq!(after.done, Some(Some(request.user)), "Q-once");
            let has = |lane| plain.waiting.iter().any(|(of, _)| *of == lane);
            assert_eq!(after.again.is_some(), has(lane));
            assert_eq!(after.others, Lanes::of(|l| l != lane && has(l)));
        }
        Op::Reap(of) => {
            let done = q.reap(of);
            let first = plain.done.iter().position(|(user, _)| user % 2 == of);
            let next = first.and_then(|at| plain.done.remove(at));
            assert_eq!(done.map(|c| (c.user, c.order)), next, "Q-done");
            plain.hands.extend(done);
        }
        Op::Give(n) if !plain.hands.is_empty() => {
            let n = n % plain.hands.len();
            q.given(plain.hands.swap_remove(n));
        }
        Op::PutBack(n) if !plain.hands.is_empty() => {
            let n = n % plain.hands.len();
            let back = plain.hands.swap_remove(n);
            q.put_back(back);
            let at = plain.done.partition_point(|(_, order)| *order < back.order);
            plain.done.insert(at, (back.user, back.order));
        }
        Op::Give(_) | Op::PutBack(_) => {}
    }
}

proptest! {
    #![proptest_config(model(400))]

    /// Whatever the order of calls, it does what a plain list would.
    #[test]
    fn it_is_as_a_plain_list(
        ops in prop::collection::vec(op(), 1..steps(300)),
        own in prop::sample::select(&[1, 3, Lane::OWN][..]),
    ) {
        let (mut q, mut plain) = (Queue::new(), Plain::default());
        q.own = own;
        for (user, op) in (0..).zip(ops) {
            apply(&mut q, &mut plain, op, user);
            for of in 0..2 {
                let waiting = plain.waiting.iter().filter(|(_, r)| r.of == of).count();
                let done = plain.done.iter().filter(|(user, _)| user % 2 == of);
                assert_eq!(q.pending(of) as usize, waiting);
                assert_eq!(q.is_ready(of, 2), done.count() >= 2 || waiting == 0);
            }
        }
        // All comes to an end, and is told once.
        let mut left: Vec<_> = vec![];
        plain.hands.drain(..).for_each(|done| q.given(done));
        for lane in Lane::ALL {
            apply(&mut q, &mut plain, Op::End(lane, true), 0);
        }
        let pending = |q: &Queue<u64>| q.pending(0) + q.pending(1);
        while pending(&q) > 0 {
            let before = pending(&q);
            for lane in Lane::ALL {
                apply(&mut q, &mut plain, Op::Begin(lane), 0);
                apply(&mut q, &mut plain, Op::End(lane, true), 0);
            }
            prop_assert!(pending(&q) < before, "nobody goes on");
        }
        for of in 0..2 {
            while let Some(done) = q.reap(of) {
                q.given(done);
                left.push((done.user, done.order));
            }
        }
        left.sort_by_key(|(_, order)| *order);
        prop_assert_eq!(left, Vec::from(plain.done));
    }
}
