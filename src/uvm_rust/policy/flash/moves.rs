// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What is moved by call, between a GPU, host memory and the device (`UVM_RUST_FLASH_MOVE`).
//!
//! ```text
//!  run            part by part, until somebody suspends
//!    write_part   the tenant's turn; what it wrote before is paid for; a buffer; the part
//!      part       VA space; device; va_block after va_block
//! ```
//!
//! What comes from the device is asked for ahead: while a va_block is brought back, and copied to a GPU, others
//! read the next ones ([`super::wants`]). So the device has several reads to do, and reads and copies go on at
//! the same time (G10, §4.6).
//!
//! A tenant writes at no more than some rate, as that wears the device. One thread of it has the turn to
//! write, from its look at what is paid for to the note of what it wrote: all would look before the first
//! has noted.
//!
//! # Invariants
//!
//! - **V-order**: the turn is outside the lock of the VA space. The lock that keeps the device attached is only
//!   tried, within that of the VA space: a process can make others wait for its VA space as long as it likes, and
//!   who detaches a device waits for all that keep it. Each that was taken is let go.
//! - **V-wait**: who waits for its rate has no lock but the turn, no buffer, and keeps no device.
//! - **V-paid**: what was given to the device to be written is noted, also where the call fails.
//! - **V-copies**: what is copied to a GPU is waited for before the VA space's lock is let go, which keeps the
//!   GPU, also where the call fails.

use super::super::discard::BLOCK_BYTES;
use super::drain::Fetched;

/// What a call moves before it lets go of its locks.
pub const AT_ONCE: u64 = 16 << 20;

/// What is asked for ahead of what is brought back, in bytes of addresses. As many reads as a tenant has go on
/// meanwhile.
pub const AHEAD: u64 = 8 * BLOCK_BYTES;

/// What is looked at, at most, before the locks are let go, where nothing was ever touched: 8,192 places of va_blocks.
/// A range of terabytes costs next to nothing to reserve, and is not to cost much to go through.
pub const LOOKED_AT: u64 = 16 << 30;

/// Where a range is moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    /// From host memory to the device.
    Device,
    /// From the device to host memory.
    Host,
    /// From the device and from host memory to a GPU.
    Gpu,
    /// From GPUs to host memory.
    Home,
}

impl To {
    /// Whether pages are copied between memories, which is begun and waited for.
    fn is_copied(self) -> bool {
        matches!(self, Self::Gpu | Self::Home)
    }
}

/// Why not all was moved. What was stays so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failed {
    /// No device is attached.
    NoDevice,
    /// There is no memory.
    NoMemory,
    /// Some of the range is not managed memory.
    NotManaged,
    /// A signal has come.
    Interrupted,
    /// Somebody wants to suspend: the call is to be made again.
    Again,
    /// Something cannot be brought back.
    Unreadable,
    /// The GPU is not registered.
    NoGpu,
}

/// What a call works on.
pub trait Machine {
    /// Takes the tenant's turn to write; false if a signal comes first.
    fn take_turn(&mut self) -> bool;

    /// Lets the turn go.
    fn end_turn(&mut self);

    /// Whether a device is attached, now.
    fn has_device(&mut self) -> bool;

    /// Whether what the tenant has written is paid for.
    fn may_write(&mut self) -> bool;

    /// Whether somebody waits to suspend, who waits for this call.
    fn is_awaited(&mut self) -> bool;

    /// A call is made to wait.
    fn count_throttled(&mut self);

    /// Sleeps for a moment; false if a signal has come.
    fn nap(&mut self) -> bool;

    /// Gets a buffer to write from; false without memory.
    fn open(&mut self) -> bool;

    /// Gives the buffer back.
    fn close(&mut self);

    /// Keeps the device that is attached, with the lock of the VA space. It does not wait.
    ///
    /// # Errors
    ///
    /// [`Failed::NoDevice`]; and [`Failed::Again`] while one is being attached or detached.
    fn keep_device(&mut self) -> Result<(), Failed>;

    /// Waits until no device is being attached or detached, without the lock of the VA space.
    ///
    /// # Errors
    ///
    /// [`Failed::Interrupted`] if a signal comes first; [`Failed::Again`] for who is not to wait.
    fn wait_for_device(&mut self) -> Result<(), Failed>;

    /// Lets go what `keep_device` kept.
    fn leave_device(&mut self);

    /// Takes the lock of the VA space in read mode.
    fn enter_space(&mut self);

    /// Lets the lock of the VA space go.
    fn leave_space(&mut self);

    // With the VA space's lock.

    /// Whether all of a part is managed memory.
    fn is_managed(&mut self, base: u64, length: u64) -> bool;

    /// Whether none of a part has ever been touched: there is no va_block. `end` is in it.
    fn is_empty(&mut self, base: u64, end: u64) -> bool;

    /// Gets what a fetch needs; false without memory.
    fn prepare(&mut self) -> bool;

    /// Gives back what `prepare` got.
    fn put(&mut self);

    /// Chooses the first va_block that has pages from `base` to `end` (which is in it), and returns the
    /// first byte behind it.
    fn choose(&mut self, base: u64, end: u64) -> Option<u64>;

    /// Writes what of the part the chosen block has in host memory.
    fn write(&mut self);

    /// Asks for what the first va_block that has pages from `base` to `end` has of them on the device, and
    /// returns the first byte behind that block; `None` if there is none. What is no managed memory is left
    /// out.
    fn ask(&mut self, base: u64, end: u64) -> Option<u64>;

    /// Whether the GPU is there that is copied to.
    fn has_gpu(&mut self) -> bool;

    /// What is copied goes to host memory.
    fn copies_home(&mut self);

    /// Takes the chosen block's lock.
    fn lock(&mut self);

    /// Lets the block's lock go.
    fn unlock(&mut self);

    /// Brings what of the part the locked block has on the device to host memory, and drops its lock for
    /// that.
    fn fetch(&mut self) -> Fetched;

    /// Begins to copy the pages of the part that the locked block has to the GPU, or those that GPUs have of them
    /// to host memory. What has to be done before that drops the lock.
    fn copy(&mut self) -> Fetched;

    /// Waits for what was begun to be copied; whether all has been copied.
    fn settle(&mut self) -> bool;

    /// Whether the thread is to die.
    fn dying(&mut self) -> bool;

    /// Lets other threads run.
    fn rest(&mut self);

    /// Notes what was written since the last time.
    fn pay(&mut self);
}

/// How much of the `left` bytes from `at` on is moved at once: up to the end of a va_block.
pub fn at_once(at: u64, left: u64) -> u64 {
    left.min(AT_ONCE - at % BLOCK_BYTES)
}

/// Moves `length` bytes from `base` on, part by part, as [the module](self) says.
///
/// # Errors
///
/// What was moved stays so.
pub fn run<M: Machine>(m: &mut M, base: u64, length: u64, to: To) -> Result<(), Failed> {
    let mut run = Run::new(base, length, to);
    while !run.is_over() {
        run.step(m)?;
        // What was moved is not moved again when the caller asks once more.
        if !run.is_over() && m.is_awaited() {
            return Err(Failed::Again);
        }
    }
    Ok(())
}

/// How far a call has come, for who makes it in steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    call: Call,
    at: u64,
    left: u64,
    /// How much is looked at next, as nothing was touched in what came before; 0 if something was.
    reach: u64,
}

impl Run {
    /// A call of which nothing is done.
    pub fn new(base: u64, length: u64, to: To) -> Self {
        Self {
            call: Call {
                to,
                end: base.saturating_add(length.saturating_sub(1)),
                asked: base,
            },
            at: base,
            left: length,
            reach: 0,
        }
    }

    /// Whether all parts are done.
    pub fn is_over(&self) -> bool {
        self.left == 0
    }

    /// Where all of its parts go.
    pub fn to(&self) -> To {
        self.call.to
    }

    /// The first byte of the next part.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Moves the next part.
    ///
    /// # Errors
    ///
    /// That part is the next one still, and some of it may have been moved.
    pub fn step<M: Machine>(&mut self, m: &mut M) -> Result<(), Failed> {
        let reach = self
            .left
            .min(self.reach.saturating_sub(self.at % BLOCK_BYTES));
        if reach > 0 && is_empty(m, self.at, reach)? {
            self.passed(reach);
            self.reach = self.reach.saturating_mul(2).min(LOOKED_AT);
            return Ok(());
        }
        let some = at_once(self.at, self.left);
        let moved = if self.call.to == To::Device {
            write_part(m, &mut self.call, self.at, some)?
        } else {
            part(m, &mut self.call, self.at, some)?
        };
        self.passed(some);
        self.reach = if moved == Moved::Nothing {
            2 * AT_ONCE
        } else {
            0
        };
        Ok(())
    }

    /// So many bytes are done.
    fn passed(&mut self, some: u64) {
        self.at = self.at.saturating_add(some);
        self.left = self.left.saturating_sub(some);
    }
}

/// What a part of a range had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moved {
    /// There is no va_block in it.
    Nothing,
    /// There are some va_blocks in it.
    Blocks,
}

/// What a call is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Call {
    to: To,
    /// The last byte of the whole range.
    end: u64,
    /// Up to where the device was asked for pages.
    asked: u64,
}

/// Writes a part when the tenant may.
fn write_part<M: Machine>(
    m: &mut M,
    call: &mut Call,
    base: u64,
    length: u64,
) -> Result<Moved, Failed> {
    if !m.take_turn() {
        return Err(Failed::Interrupted);
    }
    let moved = wait_to_write(m).and_then(|()| {
        if !m.open() {
            return Err(Failed::NoMemory);
        }
        let moved = part(m, call, base, length);
        m.close();
        moved
    });
    m.end_turn();
    moved
}

/// Waits until the tenant has paid for what it wrote (V-wait).
fn wait_to_write<M: Machine>(m: &mut M) -> Result<(), Failed> {
    if !m.has_device() {
        return Err(Failed::NoDevice);
    }
    let mut waited = false;
    while !m.may_write() {
        // Who suspends waits for this call, and meanwhile all others are refused.
        if m.is_awaited() {
            return Err(Failed::Again);
        }
        if !waited {
            m.count_throttled();
        }
        waited = true;
        if !m.nap() {
            return Err(Failed::Interrupted);
        }
    }
    Ok(())
}

/// Moves a part, with the device and the VA space kept meanwhile.
fn part<M: Machine>(m: &mut M, call: &mut Call, base: u64, length: u64) -> Result<Moved, Failed> {
    enter(m)?;
    if call.to == To::Home {
        m.copies_home();
    }
    let moved = if !m.is_managed(base, length) {
        Err(Failed::NotManaged)
    } else if call.to == To::Gpu && !m.has_gpu() {
        Err(Failed::NoGpu)
    } else if m.prepare() {
        let moved = blocks(m, call, base, length);
        // V-copies.
        let settled = !call.to.is_copied() || m.settle();
        m.put();
        moved.and_then(|moved| settled.then_some(moved).ok_or(Failed::Unreadable))
    } else {
        Err(Failed::NoMemory)
    };
    if call.to == To::Device {
        m.pay();
    }
    m.leave_device();
    m.leave_space();
    moved
}

/// Whether none of a part was ever touched, all of which is managed memory.
fn is_empty<M: Machine>(m: &mut M, base: u64, length: u64) -> Result<bool, Failed> {
    enter(m)?;
    let end = base.saturating_add(length.saturating_sub(1));
    let is_empty = m.is_managed(base, length) && m.is_empty(base, end);
    m.leave_device();
    m.leave_space();
    Ok(is_empty)
}

/// Locks the VA space, and keeps the device (V-order).
fn enter<M: Machine>(m: &mut M) -> Result<(), Failed> {
    loop {
        m.enter_space();
        let kept = m.keep_device();
        if kept.is_ok() {
            return kept;
        }
        m.leave_space();
        match kept {
            Err(Failed::Again) => m.wait_for_device()?,
            kept => return kept,
        }
    }
}

fn blocks<M: Machine>(m: &mut M, call: &mut Call, base: u64, length: u64) -> Result<Moved, Failed> {
    let end = base.saturating_add(length.saturating_sub(1));
    let (mut at, mut moved) = (base, Moved::Nothing);
    while at <= end {
        if m.dying() {
            return Err(Failed::Interrupted);
        }
        let Some(behind) = m.choose(at, end) else {
            break;
        };
        moved = Moved::Blocks;
        if call.to == To::Device {
            m.write();
        } else {
            if call.to != To::Home {
                ask_ahead(m, call, behind);
            }
            m.lock();
            let brought = bring(m, call.to);
            m.unlock();
            brought?;
        }
        m.rest();
        at = behind;
    }
    Ok(moved)
}

/// Has read what will be needed soon, from `at` on.
fn ask_ahead<M: Machine>(m: &mut M, call: &mut Call, at: u64) {
    let until = call.end.min(at.saturating_add(AHEAD - 1));
    call.asked = call.asked.max(at);
    while call.asked <= until {
        let Some(behind) = m.ask(call.asked, until) else {
            call.asked = until.saturating_add(1);
            break;
        };
        call.asked = behind;
    }
}

fn bring<M: Machine>(m: &mut M, to: To) -> Result<(), Failed> {
    loop {
        let brought = if to.is_copied() { m.copy() } else { m.fetch() };
        match brought {
            Fetched::All => return Ok(()),
            Fetched::NoMemory => return Err(Failed::NoMemory),
            Fetched::Failed => return Err(Failed::Unreadable),
            // It may be of a device that never answers.
            Fetched::Again if m.dying() => return Err(Failed::Interrupted),
            Fetched::Again => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    const MIB: u64 = 1 << 20;

    /// A call, whose steps are noted, and what stands in its way.
    #[derive(Default)]
    struct Script {
        said: Vec<&'static str>,
        held: Vec<&'static str>,
        parts: Vec<(u64, u64)>,
        /// What is so from the start, or at the n-th look.
        no_device: bool,
        no_memory: Option<&'static str>,
        not_managed: bool,
        /// What is so many bytes from 0 on is managed memory.
        managed: Option<u64>,
        /// From there on nothing was ever touched, up to there.
        empty: core::ops::Range<u64>,
        /// How often a device is being detached when it is asked for.
        detaching: u32,
        unpaid: u32,
        awaited_after: Option<usize>,
        dies_after: Option<usize>,
        signal: bool,
        fetches: Vec<Fetched>,
        no_gpu: bool,
        /// A copy to the GPU fails.
        loses: bool,
        copying: bool,
        /// Blocks that were asked for.
        asked: Vec<u64>,
    }

    impl Script {
        fn take(&mut self, what: &'static str, inside: &[&'static str]) {
            self.said.push(what);
            assert_eq!(self.held, inside, "V-order: {what}");
            self.held.push(what);
        }

        fn give(&mut self, what: &'static str) {
            assert_eq!(self.held.pop(), Some(what), "V-order");
        }

        fn count(&self, what: &str) -> usize {
            self.said.iter().filter(|said| **said == what).count()
        }

        fn writes(&self) -> bool {
            self.held.first() == Some(&"turn")
        }
    }

    impl Machine for Script {
        fn take_turn(&mut self) -> bool {
            self.take("turn", &[]);
            true
        }

        fn end_turn(&mut self) {
            self.give("turn");
        }

        fn has_device(&mut self) -> bool {
            !self.no_device
        }

        fn may_write(&mut self) -> bool {
            assert_eq!(self.held, ["turn"], "V-wait");
            self.unpaid = self.unpaid.saturating_sub(1);
            self.unpaid == 0
        }

        fn is_awaited(&mut self) -> bool {
            self.awaited_after.is_some_and(|n| self.said.len() >= n)
        }

        fn count_throttled(&mut self) {
            self.said.push("throttled");
        }

        fn nap(&mut self) -> bool {
            assert_eq!(self.held, ["turn"], "V-wait");
            self.said.push("nap");
            !self.signal
        }

        fn open(&mut self) -> bool {
            if self.no_memory == Some("buffer") {
                return false;
            }
            self.take("buffer", &["turn"]);
            true
        }

        fn close(&mut self) {
            self.give("buffer");
        }

        fn keep_device(&mut self) -> Result<(), Failed> {
            let outer = self.held.clone();
            assert_eq!(outer.last(), Some(&"space"), "V-order");
            if self.no_device {
                return Err(Failed::NoDevice);
            }
            if self.detaching > 0 {
                return Err(Failed::Again);
            }
            self.take("device", &outer);
            Ok(())
        }

        fn wait_for_device(&mut self) -> Result<(), Failed> {
            assert!(!self.held.contains(&"space"), "V-order");
            self.said.push("waits");
            self.detaching -= 1;
            if self.signal {
                return Err(Failed::Interrupted);
            }
            Ok(())
        }

        fn leave_device(&mut self) {
            self.give("device");
        }

        fn enter_space(&mut self) {
            let outer: &[_] = if self.writes() {
                &["turn", "buffer"]
            } else {
                &[]
            };
            self.take("space", outer);
        }

        fn leave_space(&mut self) {
            assert!(!self.copying, "V-copies");
            self.give("space");
        }

        fn is_managed(&mut self, base: u64, length: u64) -> bool {
            assert_eq!(self.held.last(), Some(&"device"));
            self.parts.push((base, length));
            !self.not_managed && self.managed.is_none_or(|end| base + length <= end)
        }

        fn is_empty(&mut self, base: u64, end: u64) -> bool {
            assert_eq!(self.held.last(), Some(&"device"));
            self.empty.contains(&base) && self.empty.contains(&end)
        }

        fn prepare(&mut self) -> bool {
            if self.no_memory == Some("context") {
                return false;
            }
            let outer = self.held.clone();
            self.take("context", &outer);
            true
        }

        fn put(&mut self) {
            self.give("context");
        }

        fn choose(&mut self, base: u64, end: u64) -> Option<u64> {
            assert_eq!(self.held.last(), Some(&"context"));
            assert!(base <= end);
            // The one at 4 MiB was never touched.
            let first = if self.empty.contains(&base) {
                self.empty.end
            } else {
                base
            };
            let block = first / BLOCK_BYTES;
            let block = if block == 2 { 3 } else { block };
            (block * BLOCK_BYTES <= end).then_some((block + 1) * BLOCK_BYTES)
        }

        fn write(&mut self) {
            assert!(self.writes());
            self.said.push("write");
        }

        fn ask(&mut self, base: u64, end: u64) -> Option<u64> {
            assert_eq!(self.held.last(), Some(&"context"));
            assert!(base <= end && !self.writes());
            let block = base / BLOCK_BYTES;
            self.asked.push(block);
            (block * BLOCK_BYTES <= end).then_some((block + 1) * BLOCK_BYTES)
        }

        fn has_gpu(&mut self) -> bool {
            assert_eq!(self.held.last(), Some(&"device"));
            !self.no_gpu
        }

        fn copies_home(&mut self) {
            assert_eq!(self.held.last(), Some(&"device"));
            self.said.push("home");
        }

        fn lock(&mut self) {
            let outer = self.held.clone();
            self.take("block", &outer);
        }

        fn unlock(&mut self) {
            self.give("block");
        }

        fn fetch(&mut self) -> Fetched {
            assert_eq!(self.held.last(), Some(&"block"));
            self.said.push("fetch");
            self.fetches.pop().unwrap_or(Fetched::All)
        }

        fn copy(&mut self) -> Fetched {
            assert_eq!(self.held.last(), Some(&"block"));
            self.said.push("copy");
            self.copying = true;
            self.fetches.pop().unwrap_or(Fetched::All)
        }

        fn settle(&mut self) -> bool {
            assert_eq!(self.held.last(), Some(&"context"), "V-copies");
            self.said.push("settle");
            self.copying = false;
            !self.loses
        }

        fn dying(&mut self) -> bool {
            self.dies_after.is_some_and(|n| self.said.len() >= n)
        }

        fn rest(&mut self) {
            assert_eq!(self.held.last(), Some(&"context"));
        }

        fn pay(&mut self) {
            assert!(
                self.writes() && self.held.last() == Some(&"device"),
                "V-paid"
            );
            self.said.push("pay");
        }
    }

    #[test]
    fn a_range_is_moved_in_parts_that_end_with_a_block() {
        let mut m = Script::default();
        assert_eq!(run(&mut m, MIB, 40 * MIB, To::Device), Ok(()));
        let parts = [(1, 15), (16, 16), (32, 9)].map(|(at, some)| (at * MIB, some * MIB));
        assert_eq!(m.parts, parts);
        // The one that was never touched is left out.
        assert_eq!(
            (m.count("write"), m.count("turn"), m.count("pay")),
            (20, 3, 3)
        );
        assert!(m.held.is_empty());
    }

    /// Or one thread that holds up its own VA space holds up who detaches, and with that everybody.
    #[test]
    fn who_detaches_is_waited_for_without_the_va_space() {
        for to in [To::Host, To::Device] {
            let mut m = Script {
                detaching: 3,
                ..Script::default()
            };
            assert_eq!(run(&mut m, 0, MIB, to), Ok(()));
            assert_eq!((m.count("waits"), m.count("space")), (3, 4));
            let mut m = Script {
                detaching: 3,
                signal: true,
                ..Script::default()
            };
            assert_eq!(run(&mut m, 0, MIB, to), Err(Failed::Interrupted));
            assert_eq!((m.count("waits"), m.held.len()), (1, 0));
        }
    }

    /// Terabytes that were never touched are gone through in few steps, and nothing in between is passed over.
    #[test]
    fn what_was_never_touched_costs_little() {
        const TIB: u64 = 1 << 40;
        for to in [To::Host, To::Device, To::Gpu, To::Home] {
            let mut m = Script {
                empty: MIB * 64..16 * TIB,
                ..Script::default()
            };
            assert_eq!(run(&mut m, 0, 16 * TIB + 6 * MIB, to), Ok(()));
            assert!(m.parts.len() < 1_100, "{to:?}: {}", m.parts.len());
            let moved = m.count("write") + m.count("block");
            assert_eq!(moved, 31 + 3, "{to:?}");
            if to == To::Device {
                assert!(m.count("turn") < 50, "nobody writes what is not there");
            }
            assert!(m.held.is_empty());
        }
        // Where memory ends that is managed, all before that is moved still.
        let mut m = Script {
            empty: 0..TIB,
            managed: Some(TIB + 32 * MIB),
            ..Script::default()
        };
        assert_eq!(run(&mut m, 0, 2 * TIB, To::Host), Err(Failed::NotManaged));
        assert_eq!(m.count("block"), 16);
    }

    #[test]
    fn to_the_host_nobody_waits_or_pays() {
        let mut m = Script {
            fetches: [Fetched::All, Fetched::Again, Fetched::Again].into(),
            unpaid: 9,
            ..Script::default()
        };
        assert_eq!(run(&mut m, 0, 20 * MIB, To::Host), Ok(()));
        assert_eq!(
            (m.count("fetch"), m.count("block"), m.count("context")),
            (11, 9, 2)
        );
        assert_eq!((m.count("pay"), m.count("turn"), m.count("nap")), (0, 0, 0));
    }

    #[test]
    fn who_has_written_much_waits_and_is_counted_once() {
        let mut m = Script {
            unpaid: 4,
            ..Script::default()
        };
        assert_eq!(run(&mut m, 0, MIB, To::Device), Ok(()));
        assert_eq!(
            (m.count("nap"), m.count("throttled"), m.count("write")),
            (3, 1, 1)
        );
        let mut m = Script {
            unpaid: 4,
            signal: true,
            ..Script::default()
        };
        assert_eq!(run(&mut m, 0, MIB, To::Device), Err(Failed::Interrupted));
        assert_eq!((m.count("nap"), m.count("write")), (1, 0));
        assert!(m.held.is_empty());
    }

    #[test]
    fn who_suspends_comes_first() {
        // While it waits for its rate, and between two parts; but not after the last.
        for (unpaid, after, parts) in [(9, 2, 0), (0, 1, 1)] {
            let mut m = Script {
                unpaid,
                awaited_after: Some(after),
                ..Script::default()
            };
            assert_eq!(run(&mut m, 0, 17 * MIB, To::Device), Err(Failed::Again));
            assert_eq!((m.parts.len(), m.held.len()), (parts, 0));
        }
        let mut m = Script {
            awaited_after: Some(1),
            ..Script::default()
        };
        assert_eq!(run(&mut m, 0, MIB, To::Device), Ok(()));
    }

    #[test]
    fn all_is_let_go_whatever_fails() {
        let failures = [
            (
                Failed::NoDevice,
                Script {
                    no_device: true,
                    ..Script::default()
                },
            ),
            (
                Failed::NotManaged,
                Script {
                    not_managed: true,
                    ..Script::default()
                },
            ),
            (
                Failed::NoMemory,
                Script {
                    no_memory: Some("context"),
                    ..Script::default()
                },
            ),
            (
                Failed::Interrupted,
                Script {
                    dies_after: Some(2),
                    ..Script::default()
                },
            ),
        ];
        for (failed, mut m) in failures {
            assert_eq!(run(&mut m, 0, MIB, To::Host), Err(failed));
            assert!(m.held.is_empty(), "{failed:?}");
            (m.said, m.dies_after) = (Vec::new(), m.dies_after.map(|n| n + 2));
            let kept = !m.no_device;
            assert_eq!(run(&mut m, 0, MIB, To::Device), Err(failed));
            assert!(m.held.is_empty(), "{failed:?}");
            assert_eq!(m.count("pay"), usize::from(kept), "V-paid");
        }
        let mut m = Script {
            no_memory: Some("buffer"),
            ..Script::default()
        };
        assert_eq!(run(&mut m, 0, MIB, To::Device), Err(Failed::NoMemory));
        assert!(m.held.is_empty());
        // What is whole on the device is not said to be lost.
        for (fetched, failed) in [
            (Fetched::NoMemory, Failed::NoMemory),
            (Fetched::Failed, Failed::Unreadable),
        ] {
            let mut m = Script {
                fetches: [fetched].into(),
                ..Script::default()
            };
            assert_eq!(run(&mut m, 0, MIB, To::Host), Err(failed));
            assert!(m.held.is_empty());
        }
        // A fetch that never ends.
        let mut m = Script {
            fetches: [Fetched::Again; 99].into(),
            dies_after: Some(8),
            ..Script::default()
        };
        assert_eq!(run(&mut m, 0, MIB, To::Host), Err(Failed::Interrupted));
        assert!(m.count("fetch") < 9 && m.held.is_empty());
    }

    #[test]
    fn what_comes_next_is_asked_for_once_and_not_too_early() {
        let mut m = Script::default();
        assert_eq!(run(&mut m, 0, 60 * MIB, To::Host), Ok(()));
        // All blocks but the first, which is read at once.
        assert_eq!(m.asked, (1..30).collect::<Vec<_>>());
        for (to, asked) in [(To::Gpu, 8), (To::Host, 8), (To::Device, 0)] {
            let mut m = Script {
                fetches: [Fetched::Failed].into(),
                ..Script::default()
            };
            let failed = run(&mut m, 0, 60 * MIB, to) == Err(Failed::Unreadable);
            assert_eq!((failed, m.asked.len()), (to != To::Device, asked));
        }
        // The end of the range is the end.
        let mut m = Script::default();
        assert_eq!(run(&mut m, MIB, 4 * MIB, To::Host), Ok(()));
        assert_eq!(m.asked, [1, 2]);
    }

    #[test]
    fn what_comes_from_gpus_is_copied_and_the_device_not_asked() {
        let mut m = Script {
            fetches: [Fetched::All, Fetched::Again].into(),
            ..Script::default()
        };
        assert_eq!(run(&mut m, 0, 20 * MIB, To::Home), Ok(()));
        assert_eq!(
            (m.count("copy"), m.count("settle"), m.count("home")),
            (10, 2, 2)
        );
        assert!(m.asked.is_empty() && m.count("write") == 0 && m.held.is_empty());
        let mut m = Script {
            loses: true,
            ..Script::default()
        };
        assert_eq!(run(&mut m, 0, MIB, To::Home), Err(Failed::Unreadable));
        assert!(m.held.is_empty() && !m.copying);
    }

    #[test]
    fn copies_to_a_gpu_are_begun_one_after_the_other_and_waited_for_at_the_end_of_a_part() {
        let mut m = Script {
            fetches: [Fetched::All, Fetched::Again].into(),
            ..Script::default()
        };
        assert_eq!(run(&mut m, 0, 20 * MIB, To::Gpu), Ok(()));
        assert_eq!(
            (m.count("copy"), m.count("settle"), m.count("fetch")),
            (10, 2, 0)
        );
        for (failed, mut m) in [
            (
                Failed::NoGpu,
                Script {
                    no_gpu: true,
                    ..Script::default()
                },
            ),
            (
                Failed::Unreadable,
                Script {
                    loses: true,
                    ..Script::default()
                },
            ),
            (
                Failed::NoMemory,
                Script {
                    fetches: [Fetched::NoMemory].into(),
                    ..Script::default()
                },
            ),
            (
                Failed::Interrupted,
                Script {
                    dies_after: Some(9),
                    ..Script::default()
                },
            ),
        ] {
            assert_eq!(run(&mut m, 0, 20 * MIB, To::Gpu), Err(failed));
            assert!(m.held.is_empty() && !m.copying, "{failed:?}");
        }
    }
}
