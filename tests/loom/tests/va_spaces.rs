// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What there is of a VA space (I-space of `ffi/space.rs`): it is made, looked up by everybody who may, and destroyed
//! while its worker is woken and runs; under every interleaving that loom finds.
//!
//! How the worker is woken, makes its turn and ends is the driver's (`policy/wakes.rs`). The rest is a model of what the C
//! code around it keeps: a work item as Linux has it, the VA space's lock and its pointer, the list of VA spaces, the file,
//! and a va_block. Each of these is taken out, one at a time, and so are the parts of the driver's.

#![allow(clippy::unwrap_used)]

mod common;

use common::{every_interleaving, Model};
use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use loom::sync::{Arc, Condvar, Mutex, RwLock};
use loom::thread;
use std::cell::Cell;
use uvm_loom::wakes::{self, Wakes, Worker};

/// A part without which somebody uses what is gone, or is not heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// The driver's: the end is told of before the worker is stopped.
    Ending,
    /// The driver's: the worker is stopped before the object goes.
    Stop,
    /// The driver's: stopping waits for a turn that is being made.
    StopWaits,
    /// The driver's: what was asked for changes under a lock.
    WakeLock,
    /// The driver's: the worker is queued under the same lock.
    QueuesLocked,
    /// The driver's: what was asked for during a turn is not met by that turn.
    AskedBefore,
    /// The driver's: a turn that leaves something to do looks for the end before it has the worker queued again.
    WokenAgain,
    /// I-space: the pointer is cleared when the object goes.
    Cleared,
    /// I-space: that is done under the VA space's lock in write mode.
    WriteLock,
    /// I-space: the VA space leaves the list before.
    Unlisted,
    /// I-space: whoever is in a call keeps the file.
    File,
    /// I-space: va_blocks are killed before.
    Killed,
}

const ALL: [Part; 12] = [
    Part::Ending,
    Part::Stop,
    Part::StopWaits,
    Part::WakeLock,
    Part::QueuesLocked,
    Part::AskedBefore,
    Part::WokenAgain,
    Part::Cleared,
    Part::WriteLock,
    Part::Unlisted,
    Part::File,
    Part::Killed,
];

// All threads of a model run on the thread of its test, in turn.
thread_local! {
    static WITHOUT: Cell<Option<Part>> = const { Cell::new(None) };
}

fn lacks(part: Part) -> bool {
    WITHOUT.get() == Some(part)
}

/// A work item, as Linux has it.
#[derive(Default)]
struct Item {
    is_queued: bool,
    is_running: bool,
}

/// A VA space, with its file, its place in the list of VA spaces, and one va_block.
struct Space {
    /// Upstream's lock, and our pointer: whether it is set.
    pointer: RwLock<bool>,
    /// Whether the list of VA spaces has it, under the list's lock.
    is_listed: Mutex<bool>,
    /// Whether the va_block is alive, under its lock.
    block: Mutex<bool>,
    /// Who keeps the file.
    file: AtomicU32,
    /// Whether the object is there that the pointer names.
    exists: AtomicBool,
    wakes: Mutex<Wakes>,
    item: Mutex<Item>,
    stopped_running: Condvar,
    /// Somebody has used the object when it was gone.
    is_wrong: AtomicBool,
    /// What there is to learn, and what the worker has learnt.
    news: AtomicU32,
    learnt: AtomicU32,
}

impl Space {
    /// Upstream makes it, and then it can be found. Its file is open.
    fn made() -> Arc<Self> {
        Arc::new(Self {
            pointer: RwLock::new(true),
            is_listed: Mutex::new(true),
            block: Mutex::new(true),
            file: AtomicU32::new(1),
            exists: AtomicBool::new(true),
            wakes: Mutex::new(Wakes::new()),
            item: Mutex::new(Item::default()),
            stopped_running: Condvar::new(),
            is_wrong: AtomicBool::new(false),
            news: AtomicU32::new(0),
            learnt: AtomicU32::new(0),
        })
    }

    /// Whether the object is there.
    fn look(&self) {
        if !self.exists.load(SeqCst) {
            self.is_wrong.store(true, SeqCst);
        }
    }

    /// Uses the object, which takes its time.
    fn used(&self) {
        self.look();
        self.look();
    }

    /// There is something to learn, and the worker is woken.
    fn tell(&self) {
        self.look();
        self.news.fetch_add(1, SeqCst);
        if lacks(Part::QueuesLocked) {
            wakes::wake(&Late(self, Cell::new(false)));
        } else {
            wakes::wake(self);
        }
        self.look();
    }

    /// A thread of the work queue, which looks once whether there is work.
    fn works_once(&self) {
        {
            let mut item = self.item.lock().unwrap();
            if !core::mem::take(&mut item.is_queued) {
                return;
            }
            item.is_running = true;
        }
        self.used();
        // One thing a turn, as the driver's worker ends a turn that takes long.
        let learn = || {
            let (learnt, news) = (self.learnt.load(SeqCst), self.news.load(SeqCst));
            let next = learnt + u32::from(learnt < news);
            self.learnt.store(next, SeqCst);
            if next < news && lacks(Part::WokenAgain) {
                self.queue();
                return false;
            }
            next < news
        };
        if lacks(Part::AskedBefore) {
            let is_more = learn();
            wakes::turn(self, || is_more);
        } else {
            wakes::turn(self, learn);
        }
        self.used();
        self.item.lock().unwrap().is_running = false;
        self.stopped_running.notify_all();
    }

    /// The file's last user is gone: the VA space ends, as `uvm_va_space_destroy` ends it.
    fn destroy(&self) {
        if !lacks(Part::Unlisted) {
            *self.is_listed.lock().unwrap() = false;
        }
        if lacks(Part::Ending) {
            self.stop();
        } else {
            wakes::end(self);
        }
        if !lacks(Part::Killed) {
            *self.block.lock().unwrap() = false;
        }
        if lacks(Part::WriteLock) {
            self.exists.store(false, SeqCst);
            *self.pointer.write().unwrap() = false;
        } else {
            let mut pointer = self.pointer.write().unwrap();
            *pointer = lacks(Part::Cleared);
            self.exists.store(false, SeqCst);
        }
    }

    /// Somebody lets the file go.
    fn close(&self) {
        if self.file.fetch_sub(1, SeqCst) == 1 {
            self.destroy();
        }
    }

    /// Nobody has used what is gone, and nobody will.
    fn is_right(&self) -> bool {
        let item = self.item.lock().unwrap();
        let is_left = item.is_queued && !self.exists.load(SeqCst);
        !self.is_wrong.load(SeqCst) && !is_left
    }
}

impl Worker for Space {
    fn with<R>(&self, look: impl FnOnce(&mut Wakes) -> R) -> R {
        if lacks(Part::WakeLock) {
            let mut copy = self.wakes.lock().unwrap().clone();
            let seen = look(&mut copy);
            *self.wakes.lock().unwrap() = copy;
            return seen;
        }
        look(&mut self.wakes.lock().unwrap())
    }

    fn queue(&self) {
        self.item.lock().unwrap().is_queued = true;
    }

    fn stop(&self) {
        if lacks(Part::Stop) {
            return;
        }
        let mut item = self.item.lock().unwrap();
        item.is_queued = false;
        while item.is_running && !lacks(Part::StopWaits) {
            item = self.stopped_running.wait(item).unwrap();
        }
    }
}

/// The worker for a thread that queues it after the lock was let go.
struct Late<'a>(&'a Space, Cell<bool>);

impl Worker for Late<'_> {
    fn with<R>(&self, look: impl FnOnce(&mut Wakes) -> R) -> R {
        let seen = self.0.with(look);
        if self.1.take() {
            self.0.queue();
        }
        seen
    }

    fn queue(&self) {
        self.1.set(true);
    }

    fn stop(&self) {
        self.0.stop();
    }
}

/// Runs them at the same time as the file is closed; whether nobody used what is gone, and nobody will.
fn while_it_ends<const N: usize>(space: Arc<Space>, others: [fn(&Space); N]) -> bool {
    let run = |other: fn(&Space)| {
        let space = Arc::clone(&space);
        thread::spawn(move || other(&space))
    };
    let others = others.map(run);
    space.close();
    for other in others {
        other.join().unwrap();
    }
    space.is_right()
}

/// A thread of the work queue has time for two turns.
fn works(space: &Space) {
    space.works_once();
    space.works_once();
}

/// The fault service holds the VA space's lock, and has something to tell the worker.
fn a_fault(space: &Space) {
    let pointer = space.pointer.read().unwrap();
    if *pointer {
        space.tell();
    }
}

fn faults_come_at_the_end() -> bool {
    while_it_ends(Space::made(), [a_fault, works])
}

/// The worker was woken before, and is to be stopped.
fn its_worker_is_at_work() -> bool {
    let space = Space::made();
    space.tell();
    space.tell();
    while_it_ends(space, [works])
}

/// A call takes no lock of the VA space: the file that it keeps is what keeps the object.
fn a_call_is_under_way() -> bool {
    let space = Space::made();
    if !lacks(Part::File) {
        space.file.fetch_add(1, SeqCst);
    }
    let call = |space: &Space| {
        space.tell();
        if !lacks(Part::File) {
            space.close();
        }
    };
    while_it_ends(space, [call])
}

/// Somebody reads `processes` in debugfs, under the lock of the list.
fn somebody_lists_it() -> bool {
    while_it_ends(
        Space::made(),
        [|space: &Space| {
            let is_listed = space.is_listed.lock().unwrap();
            if *is_listed {
                space.used();
            }
        }],
    )
}

/// A chunk of it is evicted for another process, with nothing held but the lock of the va_block.
fn its_block_is_evicted() -> bool {
    while_it_ends(
        Space::made(),
        [|space: &Space| {
            let is_alive = space.block.lock().unwrap();
            if *is_alive {
                space.used();
            }
        }],
    )
}

/// Of a worker that counts as idle, all was learnt that it was told of; one that does not is queued.
fn idle_is_who_has_learnt_all() -> bool {
    let space = Space::made();
    space.tell();
    let works_too = {
        let space = Arc::clone(&space);
        thread::spawn(move || space.works_once())
    };
    space.tell();
    let has_learnt = space.with(|wakes| !wakes.is_idle())
        || space.learnt.load(SeqCst) == space.news.load(SeqCst);
    works_too.join().unwrap();
    if !has_learnt {
        return false;
    }
    let has_learnt = space.learnt.load(SeqCst) == space.news.load(SeqCst);
    let is_queued = space.item.lock().unwrap().is_queued;
    let is_idle = space.with(|wakes| wakes.is_idle());
    let is_right = if is_idle { has_learnt } else { is_queued };
    is_right && space.is_right()
}

const MODELS: [(&str, Model); 6] = [
    ("faults come at the end", faults_come_at_the_end),
    ("its worker is at work", its_worker_is_at_work),
    ("a call is under way", a_call_is_under_way),
    ("somebody lists it", somebody_lists_it),
    ("its block is evicted", its_block_is_evicted),
    ("idle is who has learnt all", idle_is_who_has_learnt_all),
];

/// All models are right, and each part that is taken out makes one of them wrong.
#[test]
fn nobody_uses_a_va_space_that_is_gone() {
    for (name, model) in MODELS {
        let count = every_interleaving(model);
        println!("VA spaces, {name}: {count:?} interleavings");
        assert!(count > Some(1), "{name}: wrong, or not interleaved");
    }
    let mut unfound = Vec::new();
    for part in ALL {
        WITHOUT.set(Some(part));
        let mut models = MODELS.into_iter();
        let by = models.find(|(_, model)| every_interleaving(*model).is_none());
        WITHOUT.set(None);
        let by = by.map(|(name, _)| name);
        println!("mutant: VA spaces, {part:?}: {}", by.unwrap_or("NOT FOUND"));
        if by.is_none() {
            unfound.push(part);
        }
    }
    assert!(unfound.is_empty(), "nobody notices {unfound:?}");
}
