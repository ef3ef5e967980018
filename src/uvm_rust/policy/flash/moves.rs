// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What is moved by call, between a GPU, host memory and the device (`UVM_RUST_FLASH_MOVE`).
//!
//! ```text
//!  run            part by part, until somebody suspends
//!    write_part   the tenant's turn; what it wrote before is paid for; a look; the device's planned writes; a buffer; the part
//!      part       VA space; device; va_block after va_block
//! ```
//!
//! What comes from the device is asked for ahead: while a va_block is brought back, and copied to a GPU, others
//! read the next ones ([`super::wants`]). So the device has several reads to do, and reads and copies go on at
//! the same time (G10, §4.6). What goes from GPUs to the device is a part ahead on its way to host memory: while one
//! part is written, the next one is copied ([`Run::step_beside`]).
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
//! - **V-wait**: who waits for its rate has no lock but the turn, no buffer, and keeps no device. What is only copied
//!   ahead is not begun by who has the turn where the host is full, nor tried again, but copied by itself later: what
//!   the turn is for makes the room that the copy would wait for.
//! - **V-line**: a part waits for its place among the planned writes of the device before anything is locked, if it has
//!   something to write, which it has looked for and let all go again. Its writes begin with the VA space locked, and so
//!   wait behind planned reads, and behind no more than one operation of others for each that begins of these (`cause.rs`).
//! - **V-turn**: who has the turn keeps it until it has paid, and gives way to a suspend alone, also a worker. If one gave
//!   it up for its rate, others would write before it each time and make it wait anew. Once it has paid, a worker that finds
//!   the process' memory locked, or the device being detached, comes again, and others may write before it.
//! - **V-paid**: what was given to the device to be written is noted, also where the call fails.
//! - **V-awake**: the system is kept awake while the VA space is locked, and not while the process' memory is waited
//!   for. A process has the lock of its memory held as long as it likes. A worker keeps the system awake in between as well,
//!   and waits neither for the turn nor for its rate once somebody is to suspend.
//! - **V-copies**: what is copied from or to a GPU is waited for before the VA space's lock is let go, which keeps the
//!   GPU, also where the call fails. What is copied ahead counts as copied, and may be written, from then on.

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
    /// Takes the tenant's turn to write.
    ///
    /// # Errors
    ///
    /// [`Failed::Interrupted`] if a signal comes first; and [`Failed::Again`] of a worker if somebody waits to suspend, as
    /// it keeps the system awake, and who has the turn may wait for a process' memory as long as that likes.
    fn take_turn(&mut self) -> Result<(), Failed>;

    /// Lets the turn go.
    fn end_turn(&mut self);

    /// Whether a device is attached, now.
    fn has_device(&mut self) -> bool;

    /// Whether what the tenant has written is paid for.
    fn may_write(&mut self) -> bool;

    /// Whether somebody waits to suspend: the next part could not be entered, and a worker is in the way.
    fn is_awaited(&mut self) -> bool;

    /// A call is made to wait.
    fn count_throttled(&mut self);

    /// Sleeps for a moment; false if a signal has come.
    fn nap(&mut self) -> bool;

    /// Waits, without any lock but the turn, until a planned write of the device might begin. None is begun, or counted as
    /// one: those of the part follow. Whoever is to end, or to let the system suspend, does not wait on.
    fn stand_in_line(&mut self);

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

    /// Takes the lock of the process' memory, then that of power management, and then that of the VA space, all in read
    /// mode. Who waits for the first has not the second (V-awake).
    ///
    /// # Errors
    ///
    /// [`Failed::Again`] if the system is about to sleep, or for who is not to wait; [`Failed::Interrupted`] for who is
    /// killed; [`Failed::Unreadable`] if the driver does not work.
    fn enter_space(&mut self) -> Result<(), Failed>;

    /// Lets go what `enter_space` took.
    fn leave_space(&mut self);

    // With the VA space's lock.

    /// Whether all of a part is managed memory.
    fn is_managed(&mut self, base: u64, length: u64) -> bool;

    /// Whether none of a part has ever been touched: there is no va_block. `end` is in it.
    fn is_empty(&mut self, base: u64, end: u64) -> bool;

    /// Whether some of what is from `base` to `end` (which is in it) is in host memory, and nowhere else.
    fn has_to_write(&mut self, base: u64, end: u64) -> bool;

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

    /// Whether who makes pages of host memory does not wait for room there, now.
    fn has_host_room(&mut self) -> bool;

    /// Begins to copy the pages of the part that the locked block has to the GPU, or those that GPUs have of them
    /// to host memory. What has to be done before that drops the lock.
    ///
    /// # Errors
    ///
    /// [`Failed::Again`] if too many others copy now.
    fn copy(&mut self) -> Result<Fetched, Failed>;

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
    /// The last step looked at much, and found nothing.
    looked: bool,
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
            looked: false,
        }
    }

    /// Whether the last step went through thousands of places of va_blocks, and found none. Who moves on behalf of
    /// others, and not at a process' own expense, rests after that.
    pub fn looked_at_much(&self) -> bool {
        self.looked
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
        self.step_with(m, None)
    }

    /// The same for what goes to the device; meanwhile `home` goes on, whose parts go from GPUs to host memory, if its
    /// next one is no farther than behind this one. Where it cannot, it is where it was, and this part is written.
    ///
    /// # Errors
    ///
    /// Those of [`Run::step`], which are of this part alone.
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

    /// A part of so many bytes is done, in which this was found.
    fn moved(&mut self, some: u64, moved: Moved) {
        self.passed(some);
        self.reach = if moved == Moved::Nothing {
            2 * AT_ONCE
        } else {
            0
        };
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

/// Waits until the tenant has paid for what it wrote (V-wait, V-turn).
fn wait_to_write<M: Machine>(m: &mut M) -> Result<(), Failed> {
    if !m.has_device() {
        return Err(Failed::NoDevice);
    }
    let mut waited = false;
    while !m.may_write() {
        // Calls are refused while somebody waits to suspend, and a worker keeps the system awake.
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

/// Moves a part, with the device and the VA space kept meanwhile; and copies the next one of `home`.
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

/// Moves a part for which all is prepared. What is copied has arrived when this returns (V-copies).
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

/// Begins to copy a part from GPUs to host memory; `None` if some of it would have to wait for room or be tried again, or
/// fails (V-wait). Who copies it by itself is told why.
fn begin_home<M: Machine>(m: &mut M, base: u64, length: u64) -> Option<Moved> {
    let end = base.saturating_add(length.saturating_sub(1));
    let (mut at, mut moved) = (base, Moved::Nothing);
    while at <= end && !m.dying() {
        let Some(behind) = m.choose(at, end) else {
            return Some(moved);
        };
        moved = Moved::Blocks;
        // Each takes some of the room.
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

/// Looks whether something is so of a part, which has these first and last bytes.
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

/// Whether none of a part was ever touched, all of which is managed memory.
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
        let brought = if to.is_copied() { m.copy()? } else { m.fetch() };
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
mod tests;
