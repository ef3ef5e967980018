// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Detaching: brings all data on the device to host memory, block by block, and waits for reads that nobody needs any
//! more.
//!
//! No worker spills to the device any more. Processes go on meanwhile: they fetch what they access, and what they
//! discard, or have when they end, need not be brought back.
//!
//! # Invariants
//!
//! - **N-lock**: as S-lock and S-end of `spill.rs`; the VA space's lock is only tried with the block's held.
//! - **N-file**: the device is let go only if nothing is on it and nobody uses it. A fetch may still be under way
//!   after its pages were discarded, when the device has no pages any more.
//! - **N-end**: a detaching thread that is being killed ends at the next block, try or wait. It also ends there if the
//!   system is about to be suspended.

/// How often detaching tries the lock of a block's VA space. The blocks that follow share the tries that are left. So a
/// process that keeps its VA space locked, and has a page in each of many blocks, delays detaching only once.
pub const TRIES: u32 = 1000;

/// How many tries are added after each block whose VA space was locked.
const TRIES_MORE: u32 = 20;

/// Why the device is not let go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stays {
    /// The thread is to die, or somebody waits to suspend the system.
    Interrupted,
    /// Some data are still on the device, or somebody uses it.
    Busy,
}

/// The outcome of a fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fetched {
    /// None of it is on the device.
    All,
    /// The block's lock was released meanwhile.
    Again,
    /// There is no memory, or nothing has come: all pages are where they were.
    NoMemory,
    /// Some pages cannot be brought back.
    Failed,
}

/// What is still on the device.
#[derive(Clone, Copy, Debug)]
pub struct Left {
    /// Pages that are still on the device.
    pub pages: u64,
    /// Whether reads, writes or moves are under way, maybe of pages that nobody needs any more.
    pub is_busy: bool,
    /// Changes whenever one ends.
    pub progress: u32,
}

/// What detaching works on: one va_block at a time, which [`Machine::choose`] chooses.
pub trait Machine {
    /// Chooses a block that this detaching has not seen, and keeps it; false if there is none.
    fn choose(&mut self) -> bool;

    /// Releases the chosen block.
    fn release(&mut self);

    /// Takes the block's lock.
    fn lock(&mut self);

    /// Releases the block's lock.
    fn unlock(&mut self);

    /// Tries to take the lock of the block's VA space in read mode, without waiting.
    fn try_space(&mut self) -> bool;

    /// Releases the lock of the VA space.
    fn leave_space(&mut self);

    /// Whether the locked block is alive, and has a state on the device.
    fn is_on_device(&mut self) -> bool;

    /// Makes upstream's context for a fetch; false without memory.
    fn open(&mut self) -> bool;

    /// Frees what `open` made.
    fn close(&mut self);

    /// Has the locked block's pages that could not be read tried again.
    fn read_again(&mut self);

    /// Brings the locked block's pages on the device to host memory, and releases its lock for that.
    fn fetch(&mut self) -> Fetched;

    /// Gives up the copies of the locked block's pages on flash.
    fn give_up(&mut self);

    /// Frees the locked block's state if it says nothing of any page.
    fn drop_idle(&mut self);

    /// Whether the thread is to die, or somebody waits to suspend the system.
    fn dying(&mut self) -> bool;

    /// Sleeps for a moment, while another thread holds the VA space's lock.
    fn nap(&mut self);

    /// Lets other threads run.
    fn rest(&mut self);

    /// What is still on the device.
    fn left(&mut self) -> Left;

    /// Waits for a while until a read, write or move ends that had not ended when `progress` had this value.
    fn wait(&mut self, progress: u32);
}

/// Brings all back. Afterwards the device may be let go.
///
/// # Errors
///
/// What was brought back stays so. The caller keeps the device, and may call this again.
pub fn drain<M: Machine>(m: &mut M) -> Result<(), Stays> {
    let mut tries = TRIES;
    while m.choose() {
        block(m, &mut tries);
        m.release();
        if m.dying() {
            return Err(Stays::Interrupted);
        }
        m.rest();
    }
    // Waiting for others ends only if nobody begins anew, which is so once there are no pages.
    loop {
        let left = m.left();
        if left.pages > 0 {
            return Err(Stays::Busy);
        } else if !left.is_busy {
            return Ok(());
        } else if m.dying() {
            return Err(Stays::Interrupted);
        }
        m.wait(left.progress);
    }
}

/// Brings the chosen block's pages back, with `tries` tries at the lock of its VA space.
fn block<M: Machine>(m: &mut M, tries: &mut u32) {
    loop {
        m.lock();
        let is_on = m.is_on_device();
        let entered = is_on && m.try_space();
        if entered {
            bring_back(m);
            // N-lock.
            m.leave_space();
        }
        m.unlock();
        if entered {
            *tries = TRIES.min(*tries + TRIES_MORE);
        }
        if entered || !is_on || *tries == 0 || m.dying() {
            return;
        }
        *tries -= 1;
        m.nap();
    }
}

/// Fetches the block's pages on the device, and drops its state, with both locks held.
fn bring_back<M: Machine>(m: &mut M) {
    if !m.open() {
        return;
    }
    // A page that fails again keeps its place, as the device may still have it; so the device is kept.
    m.read_again();
    let mut fetched = m.fetch();
    while fetched == Fetched::Again && !m.dying() {
        fetched = m.fetch();
    }
    m.close();
    m.give_up();
    if fetched == Fetched::All {
        m.drop_idle();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    /// What a block does when it is fetched, and how often its VA space is written to before that.
    #[derive(Clone, Default)]
    struct Block {
        fetches: Vec<Fetched>,
        writers: u32,
        is_gone: bool,
    }

    #[derive(Default)]
    struct Script {
        blocks: Vec<Block>,
        chosen: Option<Block>,
        locked: bool,
        entered: bool,
        open: bool,
        said: Vec<&'static str>,
        /// When it is to die: after so many looks.
        dies: Option<u32>,
        left: Vec<(u64, bool)>,
    }

    impl Script {
        fn of(blocks: Vec<Block>) -> Self {
            Self {
                blocks,
                ..Self::default()
            }
        }

        fn chosen(&mut self) -> &mut Block {
            self.chosen.as_mut().unwrap()
        }

        fn count(&self, what: &str) -> usize {
            self.said.iter().filter(|said| **said == what).count()
        }

        fn is_over(&self) -> bool {
            self.chosen.is_none() && !self.locked && !self.entered && !self.open
        }
    }

    impl Machine for Script {
        fn choose(&mut self) -> bool {
            assert!(self.is_over(), "N-lock");
            self.chosen = self.blocks.pop();
            self.chosen.is_some()
        }

        fn release(&mut self) {
            assert!(!self.locked && !self.entered, "N-lock");
            self.chosen = None;
        }

        fn lock(&mut self) {
            assert!(!core::mem::replace(&mut self.locked, true), "N-lock");
        }

        fn unlock(&mut self) {
            assert!(core::mem::replace(&mut self.locked, false), "N-lock");
        }

        fn try_space(&mut self) -> bool {
            assert!(self.locked && !self.entered, "N-lock");
            let writers = self.chosen().writers;
            self.chosen().writers = writers.saturating_sub(1);
            self.entered = writers == 0;
            self.entered
        }

        fn leave_space(&mut self) {
            assert!(self.locked && self.entered, "N-lock");
            self.entered = false;
        }

        fn is_on_device(&mut self) -> bool {
            assert!(self.locked, "N-lock");
            !self.chosen().is_gone
        }

        fn open(&mut self) -> bool {
            self.said.push("open");
            self.open = true;
            true
        }

        fn close(&mut self) {
            assert!(core::mem::replace(&mut self.open, false), "N-lock");
        }

        fn read_again(&mut self) {
            assert!(self.locked && self.entered && self.open, "N-lock");
            self.said.push("again");
        }

        fn fetch(&mut self) -> Fetched {
            assert!(self.locked && self.entered && self.open, "N-lock");
            self.said.push("fetch");
            self.chosen().fetches.pop().unwrap_or(Fetched::All)
        }

        fn give_up(&mut self) {
            assert!(self.locked && self.entered, "N-lock");
            self.said.push("give up");
        }

        fn drop_idle(&mut self) {
            assert!(self.locked && self.entered, "N-lock");
            self.said.push("drop");
        }

        fn dying(&mut self) -> bool {
            self.dies = self.dies.map(|looks| looks.saturating_sub(1));
            self.dies == Some(0)
        }

        fn nap(&mut self) {
            assert!(!self.locked, "N-lock");
            self.said.push("nap");
        }

        fn rest(&mut self) {}

        fn left(&mut self) -> Left {
            let (pages, is_busy) = self.left.pop().unwrap_or((0, false));
            Left {
                pages,
                is_busy,
                progress: 7,
            }
        }

        fn wait(&mut self, progress: u32) {
            assert_eq!(progress, 7);
            self.said.push("wait");
        }
    }

    #[test]
    fn each_block_is_fetched_until_nothing_is_there_and_its_state_dropped() {
        let again = Block {
            fetches: [Fetched::Again; 3].into(),
            ..Block::default()
        };
        let mut m = Script::of([again, Block::default()].into());
        assert_eq!(drain(&mut m), Ok(()));
        assert_eq!(
            (m.count("fetch"), m.count("give up"), m.count("drop")),
            (5, 2, 2)
        );
        // What could not be read is tried once more, and not again and again.
        assert_eq!((m.count("again"), m.count("nap")), (2, 0));
        assert!(m.is_over());
    }

    #[test]
    fn what_cannot_be_brought_back_keeps_its_state_and_the_device() {
        let failed = Block {
            fetches: [Fetched::Failed].into(),
            ..Block::default()
        };
        let mut m = Script::of([failed].into());
        m.left = [(3, false)].into();
        assert_eq!(drain(&mut m), Err(Stays::Busy));
        assert_eq!((m.count("give up"), m.count("drop")), (1, 0));
    }

    #[test]
    fn who_writes_to_the_va_space_comes_first_but_not_for_ever() {
        let written = Block {
            writers: 5,
            ..Block::default()
        };
        let mut m = Script::of([written].into());
        assert_eq!(drain(&mut m), Ok(()));
        assert_eq!((m.count("nap"), m.count("drop")), (5, 1));
        let written = Block {
            writers: u32::MAX,
            ..Block::default()
        };
        let mut m = Script::of([written].into());
        m.left = [(1, false)].into();
        assert_eq!(drain(&mut m), Err(Stays::Busy));
        assert_eq!((m.count("nap"), m.count("fetch")), (TRIES as usize, 0));
    }

    /// Who holds up its VA space, with pages in many blocks, holds up nobody for as many times as long.
    #[test]
    fn many_blocks_that_cannot_be_had_take_no_longer_than_one() {
        let [held, free] = [u32::MAX, 1].map(|writers| Block {
            writers,
            ..Block::default()
        });
        let mut blocks: Vec<Block> = (0..50).map(|_| held.clone()).collect();
        let mut m = Script::of(blocks.clone());
        m.left = [(50, false)].into();
        assert_eq!(drain(&mut m), Err(Stays::Busy));
        assert_eq!(m.count("nap"), TRIES as usize);
        // Those that can be had are brought back all the same, and make up for the tries that they took.
        blocks.extend((0..10).map(|_| free.clone()));
        let mut m = Script::of(blocks);
        m.left = [(50, false)].into();
        assert_eq!(drain(&mut m), Err(Stays::Busy));
        assert_eq!(m.count("fetch"), 10);
        assert_eq!(m.count("nap"), TRIES as usize + 10);
    }

    #[test]
    fn a_block_that_is_dead_or_has_nothing_there_is_left_alone() {
        let gone = Block {
            is_gone: true,
            ..Block::default()
        };
        let mut m = Script::of([gone].into());
        assert_eq!(drain(&mut m), Ok(()));
        assert!(m.said.is_empty());
    }

    #[test]
    fn reads_that_nobody_needs_any_more_are_waited_for() {
        let mut m = Script::of(Vec::new());
        m.left = [(0, false), (0, true), (0, true)].into();
        assert_eq!(drain(&mut m), Ok(()));
        assert_eq!(m.count("wait"), 2);
        // One that came from a page that is there is not.
        m.left = [(1, true)].into();
        assert_eq!(drain(&mut m), Err(Stays::Busy));
        assert_eq!(m.count("wait"), 2);
    }

    #[test]
    fn who_is_to_die_ends() {
        let written = Block {
            writers: u32::MAX,
            ..Block::default()
        };
        let mut m = Script::of([Block::default(), written].into());
        m.dies = Some(3);
        assert_eq!(drain(&mut m), Err(Stays::Interrupted));
        assert_eq!((m.count("nap"), m.count("fetch")), (2, 0));
        let mut m = Script::of(Vec::new());
        (m.dies, m.left) = (Some(2), [(0, true); 9].into());
        assert_eq!(drain(&mut m), Err(Stays::Interrupted));
        assert_eq!(m.count("wait"), 1);
        // A fetch that never ends.
        let endless = Block {
            fetches: [Fetched::Again; 99].into(),
            ..Block::default()
        };
        let mut m = Script::of([endless].into());
        m.dies = Some(4);
        assert_eq!(drain(&mut m), Err(Stays::Interrupted));
        assert_eq!((m.count("fetch"), m.count("drop")), (4, 0));
    }
}
