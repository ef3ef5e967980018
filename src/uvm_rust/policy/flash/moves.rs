// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Moves by call between a GPU, host memory and the device (`UVM_RUST_FLASH_MOVE`).
//!
//! ```text
//!  run            part by part, until somebody suspends
//!    write_part   the tenant's turn; what it wrote before is paid for; a look; the device's planned writes; a buffer; the part
//!      part       VA space; device; va_block after va_block
//! ```
//!
//! A move from the device asks for pages ahead: while it brings a va_block back, and copies it to a GPU, other
//! threads read the next ones ([`super::wants`]). So the device has several reads to do, and reads and copies overlap
//! (G10, §4.6). A move from GPUs to the device copies one part ahead to host memory: while one part is written, the
//! next one is copied ([`Run::step_beside`]).
//!
//! A tenant writes at a limited rate, because writes wear the device. One of its threads at a time has the turn to
//! write, from the check of the rate until it has counted what it wrote; otherwise all would check before the first
//! has counted.
//!
//! # Invariants
//!
//! - **V-order**: the turn is outside the lock of the VA space. The lock that keeps the device attached is only
//!   tried, under that of the VA space: a process can make others wait for its VA space as long as it likes, and a
//!   detach waits for all who keep the device. Each lock that was taken is released.
//! - **V-wait**: a thread that waits for its rate has no lock but the turn, no buffer, and keeps no device. Where the
//!   host is full, the thread with the turn does not begin a copy ahead, and does not retry it: that part is copied by
//!   itself later, as the writes under the turn make the room that the copy would wait for.
//! - **V-line**: a part that has something to write waits for its place among the device's planned writes before
//!   anything is locked; the look for something to write has released its locks again. The part's writes begin with the
//!   VA space locked. So they wait behind planned reads, and behind at most one other operation for each of these that
//!   begins (`cause.rs`).
//! - **V-turn**: a thread keeps the turn until its rate allows the write, and gives it up for a suspend alone; so
//!   does a worker. If it gave the turn up while it waits for its rate, others would write first each time and make it
//!   wait anew. After that, a worker that finds the process' memory locked, or the device being detached, comes again,
//!   and others may write first.
//! - **V-paid**: bytes that were given to the device are counted, also if the call fails.
//! - **V-awake**: a call keeps the system awake while the VA space is locked, and not while it waits for the lock of
//!   the process' memory, which a process can have held as long as it likes. A worker keeps the system awake in between
//!   as well, and waits neither for the turn nor for its rate once a suspend waits.
//! - **V-copies**: copies from or to a GPU are waited for before the VA space's lock, which keeps the GPU, is
//!   released, also if the call fails. From then on a part that was copied ahead counts as copied, and may be written.

use super::super::discard::BLOCK_BYTES;
use super::drain::Fetched;

/// How many bytes a call moves before it releases its locks.
pub const AT_ONCE: u64 = 16 << 20;

/// How far a move from the device asks ahead, in bytes of addresses. The tenant's readers read meanwhile.
pub const AHEAD: u64 = 8 * BLOCK_BYTES;

/// How many bytes of untouched addresses a step looks at before it releases its locks: 8,192 places of va_blocks.
/// Reserving a range of terabytes costs a process next to nothing, so going through it must not cost others much.
pub const LOOKED_AT: u64 = 16 << 30;

/// Where a range is moved to.
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
    /// Whether pages are copied between GPU and host memory, which is begun first and waited for later.
    fn is_copied(self) -> bool {
        matches!(self, Self::Gpu | Self::Home)
    }
}

/// Why a call did not move all of its range. What it has moved stays moved.
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
    /// A suspend waits, or others hold a lock: the caller may call again.
    Again,
    /// Some pages cannot be brought back.
    Unreadable,
    /// The GPU is not registered.
    NoGpu,
}

/// What a call works on.
pub trait Machine {
    /// Takes the tenant's turn to write.
    ///
    /// # Errors
    ///
    /// [`Failed::Interrupted`] if a signal comes first. [`Failed::Again`] for a worker if a suspend waits, as a
    /// worker keeps the system awake, and the thread with the turn may wait for a process' memory as long as that
    /// process likes.
    fn take_turn(&mut self) -> Result<(), Failed>;

    /// Gives the tenant's turn up.
    fn end_turn(&mut self);

    /// Whether a device is attached now.
    fn has_device(&mut self) -> bool;

    /// Whether the tenant's rate allows it to write again.
    fn may_write(&mut self) -> bool;

    /// Whether a suspend waits. Then the next part could not be entered, and a worker is in the way.
    fn is_awaited(&mut self) -> bool;

    /// Counts that a call has to wait for its rate.
    fn count_throttled(&mut self);

    /// Sleeps for a moment; false if a signal has come.
    fn nap(&mut self) -> bool;

    /// Waits, without any lock but the turn, until a planned write of the device might begin. It begins none and
    /// counts none: the writes of the part follow. A thread that is to end, or a worker while a suspend waits, stops
    /// waiting.
    fn stand_in_line(&mut self);

    /// Allocates a buffer to write from; false without memory.
    fn open(&mut self) -> bool;

    /// Frees the buffer again.
    fn close(&mut self);

    /// Keeps the device attached, under the lock of the VA space. Does not wait.
    ///
    /// # Errors
    ///
    /// [`Failed::NoDevice`]; and [`Failed::Again`] while one is being attached or detached.
    fn keep_device(&mut self) -> Result<(), Failed>;

    /// Waits until no device is being attached or detached, without the lock of the VA space.
    ///
    /// # Errors
    ///
    /// [`Failed::Interrupted`] if a signal comes first; [`Failed::Again`] for a thread that must not wait.
    fn wait_for_device(&mut self) -> Result<(), Failed>;

    /// Releases what `keep_device` took.
    fn leave_device(&mut self);

    /// Takes the lock of the process' memory, then that of power management, and then that of the VA space, all in
    /// read mode. A thread that waits for the first does not hold the second (V-awake).
    ///
    /// # Errors
    ///
    /// [`Failed::Again`] if the system is about to sleep, or for a thread that must not wait; [`Failed::Interrupted`]
    /// if the thread is killed; [`Failed::Unreadable`] after a fatal error of the driver.
    fn enter_space(&mut self) -> Result<(), Failed>;

    /// Releases what `enter_space` took.
    fn leave_space(&mut self);

    // With the VA space's lock.

    /// Whether all of a part is managed memory.
    fn is_managed(&mut self, base: u64, length: u64) -> bool;

    /// Whether no page of a part was ever touched, so that it has no va_block. `end` is its last byte.
    fn is_empty(&mut self, base: u64, end: u64) -> bool;

    /// Whether some page from `base` to `end`, its last byte, is in host memory and nowhere else.
    fn has_to_write(&mut self, base: u64, end: u64) -> bool;

    /// Makes upstream's context and what copies need; false without memory.
    fn prepare(&mut self) -> bool;

    /// Frees what `prepare` made.
    fn put(&mut self);

    /// Chooses the first va_block with pages from `base` to `end`, its last byte. Returns the first byte behind the
    /// block.
    fn choose(&mut self, base: u64, end: u64) -> Option<u64>;

    /// Writes the part's pages that the chosen block has in host memory.
    fn write(&mut self);

    /// Asks for the pages from `base` to `end` that the first va_block there has on the device. Returns the first
    /// byte behind that block; `None` if there is none. Leaves out memory that is not managed.
    fn ask(&mut self, base: u64, end: u64) -> Option<u64>;

    /// Whether the destination GPU is registered.
    fn has_gpu(&mut self) -> bool;

    /// Makes host memory the destination of copies.
    fn copies_home(&mut self);

    /// Takes the chosen block's lock.
    fn lock(&mut self);

    /// Releases the block's lock.
    fn unlock(&mut self);

    /// Brings the part's pages that the locked block has on the device to host memory, and releases its lock for
    /// that.
    fn fetch(&mut self) -> Fetched;

    /// Whether there is room in host memory now, so that new pages there need not wait.
    fn has_host_room(&mut self) -> bool;

    /// Begins to copy the part's pages of the locked block to the GPU; or, to host memory, those that GPUs have.
    /// Upstream may release the lock before that.
    ///
    /// # Errors
    ///
    /// [`Failed::Again`] if too many others copy now.
    fn copy(&mut self) -> Result<Fetched, Failed>;

    /// Waits for the copies that were begun. Returns whether none failed.
    fn settle(&mut self) -> bool;

    /// Whether the thread is to die.
    fn dying(&mut self) -> bool;

    /// Lets other threads run.
    fn rest(&mut self);

    /// Counts the bytes written since the last call for the tenant's rate.
    fn pay(&mut self);
}

/// How many of the `left` bytes from `at` on are moved at once: up to the end of a va_block.
pub fn at_once(at: u64, left: u64) -> u64 {
    left.min(AT_ONCE - at % BLOCK_BYTES)
}

/// Moves `length` bytes from `base` on, part by part, as [the module](self) says.
///
/// # Errors
///
/// What was moved stays moved.
pub fn run<M: Machine>(m: &mut M, base: u64, length: u64, to: To) -> Result<(), Failed> {
    let mut run = Run::new(base, length, to);
    while !run.is_over() {
        run.step(m)?;
        // Parts that were moved are not moved again when the caller calls once more.
        if !run.is_over() && m.is_awaited() {
            return Err(Failed::Again);
        }
    }
    Ok(())
}

/// How far a call has come, for a caller that makes it in steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    call: Call,
    at: u64,
    left: u64,
    /// How many bytes the next step looks at, if nothing was touched in the bytes before; else 0.
    reach: u64,
    /// Whether the last step looked at many bytes, and found nothing.
    looked: bool,
}

impl Run {
    /// A call that has not begun.
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
            looked: false,
        }
    }

    /// Whether the last step went through thousands of places of va_blocks, and found none. A worker, whose time no
    /// process pays for, rests after that.
    pub fn looked_at_much(&self) -> bool {
        self.looked
    }

    /// Whether all parts are done.
    pub fn is_over(&self) -> bool {
        self.left == 0
    }

    /// The destination of all parts.
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
    /// That part stays the next one, and some of it may have been moved.
    pub fn step<M: Machine>(&mut self, m: &mut M) -> Result<(), Failed> {
        self.step_with(m, None)
    }

    /// Moves the next part to the device, and meanwhile copies the next part of `home` from GPUs to host memory,
    /// unless `home` is further ahead than one part. If that copy cannot be made, `home` stays where it was, and this
    /// part is written all the same.
    ///
    /// # Errors
    ///
    /// Those of [`Run::step`], for this part alone.
    pub fn step_beside<M: Machine>(&mut self, m: &mut M, home: &mut Run) -> Result<(), Failed> {
        let behind = self.at.saturating_add(at_once(self.at, self.left));
        let goes_on = !home.is_over() && home.at <= behind;
        self.step_with(m, goes_on.then_some(home))
    }

    fn step_with<M: Machine>(&mut self, m: &mut M, home: Option<&mut Run>) -> Result<(), Failed> {
        let reach = self
            .left
            .min(self.reach.saturating_sub(self.at % BLOCK_BYTES));
        self.looked = false;
        if reach > 0 && looks(m, self.at, reach, is_empty)? {
            self.looked = reach > LOOKED_AT / 2;
            self.passed(reach);
            self.reach = self.reach.saturating_mul(2).min(LOOKED_AT);
            return Ok(());
        }
        let some = at_once(self.at, self.left);
        let moved = if self.call.to == To::Device {
            write_part(m, &mut self.call, self.at, some, home)?
        } else {
            part(m, &mut self.call, self.at, some, None)?
        };
        self.moved(some, moved);
        Ok(())
    }

    /// Notes that a part of `some` bytes is done, and what was found there.
    fn moved(&mut self, some: u64, moved: Moved) {
        self.passed(some);
        self.reach = if moved == Moved::Nothing {
            2 * AT_ONCE
        } else {
            0
        };
    }

    /// Notes that `some` bytes are done.
    fn passed(&mut self, some: u64) {
        self.at = self.at.saturating_add(some);
        self.left = self.left.saturating_sub(some);
    }
}

/// What was found in a part of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moved {
    /// There is no va_block in it.
    Nothing,
    /// There are some va_blocks in it.
    Blocks,
}

/// The parameters of a call, and how far it has asked ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Call {
    to: To,
    /// The last byte of the whole range.
    end: u64,
    /// Where the pages end that were asked for ahead.
    asked: u64,
}

/// Writes a part once the tenant's rate allows it.
fn write_part<M: Machine>(
    m: &mut M,
    call: &mut Call,
    base: u64,
    length: u64,
    home: Option<&mut Run>,
) -> Result<Moved, Failed> {
    m.take_turn()?;
    let moved = wait_to_write(m).and_then(|()| {
        // V-line.
        if looks(m, base, length, M::has_to_write)? {
            m.stand_in_line();
        }
        if !m.open() {
            return Err(Failed::NoMemory);
        }
        let moved = part(m, call, base, length, home);
        m.close();
        moved
    });
    m.end_turn();
    moved
}

/// Waits until the tenant's rate allows a write (V-wait, V-turn).
fn wait_to_write<M: Machine>(m: &mut M) -> Result<(), Failed> {
    if !m.has_device() {
        return Err(Failed::NoDevice);
    }
    let mut waited = false;
    while !m.may_write() {
        // Calls are refused while a suspend waits, and a worker keeps the system awake.
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

/// Moves a part, and copies the next one of `home`. Keeps the device and the VA space meanwhile.
fn part<M: Machine>(
    m: &mut M,
    call: &mut Call,
    base: u64,
    length: u64,
    home: Option<&mut Run>,
) -> Result<Moved, Failed> {
    enter(m)?;
    let home = home.filter(|home| m.is_managed(home.at, at_once(home.at, home.left)));
    if call.to == To::Home || home.is_some() {
        m.copies_home();
    }
    let moved = if !m.is_managed(base, length) {
        Err(Failed::NotManaged)
    } else if call.to == To::Gpu && !m.has_gpu() {
        Err(Failed::NoGpu)
    } else if m.prepare() {
        let moved = moved_beside(m, call, base, length, home);
        m.put();
        moved
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

/// Moves a part once all is prepared. Copies have arrived when this returns (V-copies).
fn moved_beside<M: Machine>(
    m: &mut M,
    call: &mut Call,
    base: u64,
    length: u64,
    home: Option<&mut Run>,
) -> Result<Moved, Failed> {
    let Some(home) = home else {
        let moved = blocks(m, call, base, length);
        let settled = !call.to.is_copied() || m.settle();
        return moved.and_then(|moved| settled.then_some(moved).ok_or(Failed::Unreadable));
    };
    let some = at_once(home.at, home.left);
    let begun = begin_home(m, home.at, some);
    let moved = blocks(m, call, base, length);
    if let (Some(begun), true) = (begun, m.settle()) {
        home.moved(some, begun);
    }
    moved
}

/// Begins to copy a part from GPUs to host memory. `None` if some of it fails, or would have to wait for room or be
/// tried again (V-wait); when the part is copied by itself later, that step says why.
fn begin_home<M: Machine>(m: &mut M, base: u64, length: u64) -> Option<Moved> {
    let end = base.saturating_add(length.saturating_sub(1));
    let (mut at, mut moved) = (base, Moved::Nothing);
    while at <= end && !m.dying() {
        let Some(behind) = m.choose(at, end) else {
            return Some(moved);
        };
        moved = Moved::Blocks;
        // Each copy takes some of the room.
        if !m.has_host_room() {
            return None;
        }
        m.lock();
        let copied = m.copy();
        m.unlock();
        m.rest();
        if copied != Ok(Fetched::All) {
            return None;
        }
        at = behind;
    }
    (at > end).then_some(moved)
}

/// Asks `is_so` of the first and the last byte of a part, with the VA space locked and the device kept.
fn looks<M: Machine>(
    m: &mut M,
    base: u64,
    length: u64,
    is_so: impl FnOnce(&mut M, u64, u64) -> bool,
) -> Result<bool, Failed> {
    enter(m)?;
    let is = is_so(m, base, base.saturating_add(length.saturating_sub(1)));
    m.leave_device();
    m.leave_space();
    Ok(is)
}

/// Whether a part is all managed memory of which no page was ever touched.
fn is_empty<M: Machine>(m: &mut M, base: u64, end: u64) -> bool {
    m.is_managed(base, (end - base).saturating_add(1)) && m.is_empty(base, end)
}

/// Locks the VA space, and keeps the device (V-order).
fn enter<M: Machine>(m: &mut M) -> Result<(), Failed> {
    loop {
        m.enter_space()?;
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
        // V-awake.
        if at <= end && m.is_awaited() {
            return Err(Failed::Again);
        }
    }
    Ok(moved)
}

/// Asks for the pages that will be needed soon, from `at` on.
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
        let brought = if to.is_copied() { m.copy()? } else { m.fetch() };
        match brought {
            Fetched::All => return Ok(()),
            Fetched::NoMemory => return Err(Failed::NoMemory),
            Fetched::Failed => return Err(Failed::Unreadable),
            // The pages may be on a device that never answers.
            Fetched::Again if m.dying() => return Err(Failed::Interrupted),
            Fetched::Again => {}
        }
    }
}

#[cfg(test)]
mod tests;
