// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Against a channel, which copies in the order in which it was pushed.

use super::*;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::vec::Vec;

const BLOCK: u64 = 2 << 20;

/// A channel: the copies that are under way, of which VA space and va_block each is.
#[derive(Default)]
struct Channel(VecDeque<(usize, u64)>);

impl Channel {
    fn has(&self, space: usize, block: u64) -> bool {
        self.0.contains(&(space, block))
    }

    fn of(&self, space: usize) -> u64 {
        let its = self.0.iter().filter(|copy| copy.0 == space);
        its.count() as u64 * BLOCK
    }
}

/// A VA space, which moves va_block after va_block.
struct Space {
    window: Window,
    next: u64,
}

impl Space {
    fn new(quantum: u64) -> Self {
        Self {
            window: Window::new(quantum),
            next: 0,
        }
    }

    /// Takes the next va_block if there is room, and pushes its copy. Returns whether there was.
    fn pushes(&mut self, number: usize, channel: &mut Channel) -> bool {
        let has_room = self.takes(number, channel);
        if has_room {
            channel.0.push_back((number, self.next * BLOCK));
        }
        has_room
    }

    fn takes(&mut self, number: usize, channel: &Channel) -> bool {
        let block = (self.next + 1) * BLOCK;
        let is_copied = |at| !channel.has(number, at);
        let has_room = self.window.takes(block, BLOCK, is_copied, || 0);
        self.next += u64::from(has_room);
        has_room
    }
}

#[test]
fn a_half_is_pushed_while_the_other_is_copied() {
    let (mut space, mut channel) = (Space::new(4 * BLOCK), Channel::default());
    for _ in 0..4 {
        assert!(space.pushes(0, &mut channel));
    }
    assert!(!space.pushes(0, &mut channel));
    channel.0.pop_front();
    assert!(!space.pushes(0, &mut channel), "half of it is under way");
    channel.0.pop_front();
    assert!(space.pushes(0, &mut channel) && space.pushes(0, &mut channel));
    assert!(!space.pushes(0, &mut channel));
}

#[test]
fn what_is_larger_than_a_half_goes_alone() {
    let (mut space, mut channel) = (Space::new(1), Channel::default());
    assert!(space.pushes(0, &mut channel) && space.pushes(0, &mut channel));
    assert!(!space.pushes(0, &mut channel));
    channel.0.clear();
    assert!(space.pushes(0, &mut channel));
}

#[test]
fn parts_of_blocks_count_as_what_they_are() {
    let mut window = Window::new(2 * BLOCK);
    for n in 0..64 {
        assert!(
            window.takes(n % 8 * BLOCK, BLOCK / 32, |_| false, || 0),
            "{n}"
        );
    }
    assert!(!window.takes(0, BLOCK / 32, |_| false, || 0));
}

/// Of many small parts the last ones are known, and they are over when all are.
#[test]
fn the_last_blocks_of_a_half_are_known() {
    let (mut window, blocks) = (Window::new(8 * BLOCK), 4 * KNOWN as u64);
    let bytes = 4 * BLOCK / blocks;
    for half in 0..2 {
        for n in 0..blocks {
            assert!(window.takes((half * blocks + n) * BLOCK, bytes, |_| false, || 0));
        }
    }
    let mut asked = Vec::new();
    let mut is_copied = |block| {
        asked.push(block / BLOCK);
        true
    };
    assert!(window.takes(0, bytes, &mut is_copied, || 0));
    asked.sort_unstable();
    assert_eq!(asked, Vec::from_iter(blocks - KNOWN as u64..blocks));
}

#[test]
fn a_block_that_comes_again_has_one_place() {
    let mut window = Window::new(8 * BLOCK);
    for n in 0..8 {
        assert!(window.takes(n % 2 * BLOCK, BLOCK, |_| false, || 0));
    }
    let mut asked = 0;
    let mut is_copied = |_| {
        asked += 1;
        true
    };
    assert!(window.takes(0, BLOCK, &mut is_copied, || 0));
    assert_eq!(asked, 2);
}

#[test]
fn who_is_killed_makes_no_room_for_others() {
    let (mut space, mut channel) = (Space::new(2 * BLOCK), Channel::default());
    assert!(space.pushes(0, &mut channel) && space.pushes(0, &mut channel));
    space.window.takes_anyway(99 * BLOCK, BLOCK);
    assert!(!space.pushes(0, &mut channel));
    channel.0.clear();
    assert!(space.pushes(0, &mut channel), "all is over");
}

/// While no copy ends one va_block goes on in each such time, whoever asks; what ends begins the time anew.
#[test]
fn a_gpu_that_has_stopped_lets_one_go_on_at_a_time() {
    let mut window = Window::new(4 * BLOCK);
    let mut takes = |block: u64, over: u64, now_us: u64| {
        let is_copied = |at| at / BLOCK <= over;
        window.takes(block * BLOCK, BLOCK, is_copied, || now_us)
    };
    for block in 1..=4 {
        assert!(takes(block, 0, 0));
    }
    assert!(!takes(5, 0, 7));
    assert!(!takes(5, 0, 6 + MOST_US));
    assert!(takes(5, 0, 7 + MOST_US));
    assert!(!takes(6, 0, 8 + MOST_US));
    assert!(takes(6, 0, 8 + 2 * MOST_US));
    assert!(!takes(7, 0, 3 * MOST_US));
    // The first ends, and then the second.
    assert!(!takes(7, 1, 5 * MOST_US));
    assert!(!takes(7, 1, 6 * MOST_US - 1));
    assert!(takes(7, 2, 6 * MOST_US - 1));
}

/// How many bytes of a VA space with eight threads are copied for each va_block of one with one thread, which moves one after
/// the other.
fn beside_eight(quantum: u64) -> u64 {
    let (mut loud, mut quiet) = (Space::new(quantum), Space::new(quantum));
    let mut channel = Channel::default();
    let (mut of_loud, mut of_quiet) = (0, 0);
    while of_quiet < 64 {
        // All of a range of 16 MiB, as long as there is room.
        for _ in 0..8 {
            let waits = channel.of(0) >= 8 * 8 * BLOCK;
            let _ = !waits && loud.pushes(0, &mut channel);
        }
        if channel.of(1) == 0 {
            assert!(quiet.pushes(1, &mut channel));
        }
        match channel.0.pop_front() {
            Some((1, _)) => of_quiet += 1,
            _ => of_loud += BLOCK,
        }
    }
    of_loud / of_quiet
}

#[test]
fn one_thread_beside_eight_waits_for_one_quantum() {
    for blocks in [2, 4, 8, 16] {
        let quantum = blocks * BLOCK;
        let between = beside_eight(quantum);
        assert!(between <= quantum, "{between} of {quantum}");
        assert!(2 * between >= quantum, "{between} of {quantum}");
    }
    // As much as the threads' ranges have.
    assert!(beside_eight(u64::MAX) >= 60 * BLOCK);
}

proptest! {
    /// Threads take a va_block, push its copy later, and copies end in the order of the channel. No more than a quantum is on
    /// its way, and one va_block for each thread that has taken one. When all is over, there is room.
    #[test]
    fn no_more_than_a_quantum_is_on_its_way(
        blocks in 2_u64..12,
        steps in prop::collection::vec((0_usize..4, 0_u8..3), 1..300),
    ) {
        let (mut space, mut channel) = (Space::new(blocks * BLOCK), Channel::default());
        let mut taken = [None; 4];
        for (thread, step) in steps {
            match (step, taken[thread]) {
                (0, None) if space.takes(0, &channel) => {
                    taken[thread] = Some(space.next * BLOCK);
                }
                (1, Some(block)) => {
                    channel.0.push_back((0, block));
                    taken[thread] = None;
                }
                (2, _) => {
                    channel.0.pop_front();
                }
                _ => {}
            }
            // What a thread took in a half that was over before its push is beside both.
            let late = taken.len() as u64;
            prop_assert!(channel.of(0) <= (blocks + late) * BLOCK);
        }
        channel.0.clear();
        prop_assert!(space.takes(0, &channel));
    }

    /// Without such threads there is no more than the quantum.
    #[test]
    fn one_that_pushes_at_once_keeps_to_the_quantum(
        blocks in 2_u64..40,
        steps in prop::collection::vec(any::<bool>(), 1..300),
    ) {
        let (mut space, mut channel) = (Space::new(blocks * BLOCK), Channel::default());
        for pushes in steps {
            if pushes {
                space.pushes(0, &mut channel);
            } else {
                channel.0.pop_front();
            }
            prop_assert!(channel.of(0) <= blocks * BLOCK);
        }
    }
}
