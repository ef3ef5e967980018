// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Which lane a request is in, and how many threads a tenant has for all lanes.

use super::*;

/// Each has a link of its own, and so has the host.
#[test]
fn what_comes_to_a_gpu_does_not_wait_for_what_comes_to_another() {
    let mut q = queue(8);
    for (user, gpu) in [(0, 1), (1, 2), (2, 2)] {
        assert!(q.submit(&to_gpu(gpu, 10 * user, user), None));
    }
    assert!(q.submit(&request(30, 1, To::Host, 3), None));
    let mut cannot_go_on = None;
    while let Some((lane, job)) = (Lane::ALL.into_iter()).find_map(|l| Some((l, q.next(l)?))) {
        if job.gpu == [1; 16] {
            cannot_go_on = Some((lane, job));
        } else {
            q.stepped(lane, whole(job), Ok(()));
        }
    }
    let mut done: Vec<_> = reap_all(&mut q).into_iter().map(|(user, _)| user).collect();
    done.sort_unstable();
    assert_eq!(done, [1, 2, 3]);
    let (lane, job) = cannot_go_on.unwrap();
    q.stepped(lane, whole(job), Ok(()));
    assert_eq!(reap_all(&mut q), [(0, 4)]);
}

#[test]
fn a_gpu_has_a_lane_while_something_is_to_go_there() {
    let mut q = queue(32);
    let lanes: Vec<_> = Lane::of_gpus(Lane::OWN).collect();
    let has = |q: &Queue<u64>, lane: Lane| {
        let requests = q.lanes[lane as usize].iter(&q.slots);
        requests.map(|slot| slot.user).collect::<Vec<_>>()
    };
    for gpu in 0..10 {
        assert!(q.submit(&to_gpu(gpu, 10 * u64::from(gpu), gpu.into()), None));
    }
    for (user, lane) in (0..).zip(&lanes) {
        assert_eq!(has(&q, *lane), [user]);
    }
    assert_eq!(has(&q, Lane::Rest), [8, 9]);
    // A lane is free now, but GPU 8 has a request among the rest.
    carry_out(&mut q, Lane::Gpu3).unwrap();
    for (gpu, user) in [(8, 10), (3, 11), (0, 12)] {
        assert!(q.submit(&to_gpu(gpu, 10 * user, user), None));
    }
    assert_eq!(has(&q, Lane::Rest), [8, 9, 10]);
    // GPU 3 has none there, however long others have.
    assert_eq!(has(&q, Lane::Gpu3), [11]);
    assert_eq!(has(&q, Lane::Gpu0), [0, 12]);
    carry_out(&mut q, Lane::Gpu3).unwrap();
    while carry_out(&mut q, Lane::Rest).is_some() {}
    for (gpu, user) in [(20, 13), (8, 14), (20, 15)] {
        assert!(q.submit(&to_gpu(gpu, 10 * user, user), None));
    }
    assert_eq!(has(&q, Lane::Gpu3), [13, 15]);
    assert_eq!(has(&q, Lane::Rest), [14]);
}

/// The threads are those of the two queues of work that a tenant has.
#[test]
fn a_tenant_with_eight_gpus_has_as_many_threads_as_one_with_one() {
    let most_at_work = |gpus: u8, spaces: usize| {
        let mut at_work = [0; Way::ALL.len()];
        let mut queues: Vec<_> = (0..spaces).map(|_| queue(256)).collect();
        for q in &mut queues {
            assert!(q.submit(&request(0, 1, To::Device, 0), None));
            assert!(q.submit(&request(10, 1, To::Host, 0), None));
            for gpu in 0..gpus {
                assert!(q.submit(&to_gpu(gpu, 20 + u64::from(gpu), 0), None));
            }
            // All that is woken and gets a thread; the others stand in line.
            for lane in q.waiting().iter() {
                let threads = &mut at_work[lane.way() as usize];
                if *threads < AT_WORK && q.next(lane).is_some() {
                    *threads += 1;
                }
            }
        }
        at_work
    };
    assert_eq!(most_at_work(1, 1), [1, 2]);
    assert_eq!(most_at_work(8, 1), [1, 4]);
    for gpus in [1, 8, 200] {
        assert_eq!(most_at_work(gpus, 9), [AT_WORK; 2], "{gpus} GPUs");
    }
    assert_eq!(AT_WORK * Way::ALL.len() as u32, 8, "docs/ssd.md says so");
}

#[test]
fn each_lane_is_at_the_place_of_its_number() {
    for (n, lane) in Lane::ALL.into_iter().enumerate() {
        assert_eq!(lane as usize, n);
        assert_eq!(only(lane).iter().collect::<Vec<_>>(), [lane]);
    }
    assert_eq!(Lanes::of(|_| true).iter().count(), Lane::COUNT);
    assert_eq!(Lane::of_gpus(Lane::OWN).next(), Some(Lane::Gpu0));
    assert_eq!(Lane::of_gpus(Lane::OWN).last(), Lane::ALL.last().copied());
}
