// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! How somebody waits for its turn with a device ([`super::arbiter`]): when it looks, and whom it tells.
//!
//! # Invariants
//!
//! - **W-look**: what somebody is told of is no older than what it saw in vain. So it takes the device's progress before it looks.
//! - **W-next**: whoever leaves a line tells those who wait, as one of them may find room now; whoever has been served, or has
//!   gone to another line, does so only if the arbiter has room. The end of an operation, and of a fault's waiting, is told in
//!   any case.

use super::arbiter::{Arbiter, Class, Turn};

/// A device, for whoever waits for a turn with it.
pub trait Device {
    /// Says whose lines these are: all who wait for the device stand in them.
    fn arbiter(&self) -> &Arbiter;

    /// The time, in microseconds.
    fn now_us(&self) -> u64;

    /// A number that [`Device::tell`] changes.
    fn progress(&self) -> u32;

    /// Waits until the number is not `progress` any more, or for some milliseconds. Sleeps.
    fn wait(&self, progress: u32);

    /// Has all who wait look again.
    fn tell(&self);
}

/// Begins an operation for others, once it may begin in the class that `class` gives at each look. Returns false if `is_stopped`
/// said before that nobody wants the operation any more: then none begins. What has begun ends by [`Arbiter::others_end`].
#[must_use]
pub fn begin(
    device: &impl Device,
    class: impl Fn() -> Class,
    is_stopped: impl Fn() -> bool,
) -> bool {
    wait(device, class, is_stopped, Arbiter::others_begin)
}

/// Waits until an operation of `class` might begin, or `is_stopped` says that nobody wants it any more. None is begun.
pub fn pass(device: &impl Device, class: Class, is_stopped: impl Fn() -> bool) {
    wait(device, || class, is_stopped, Arbiter::may_pass);
}

fn wait(
    device: &impl Device,
    class: impl Fn() -> Class,
    is_stopped: impl Fn() -> bool,
    look: impl Fn(&Arbiter, &mut Turn, u64) -> bool,
) -> bool {
    let arbiter = device.arbiter();
    let mut turn = Turn::new(class());
    while !is_stopped() {
        // W-look.
        let progress = device.progress();
        let changes = arbiter.change_class(&mut turn, class());
        let is_served = look(arbiter, &mut turn, device.now_us());
        if changes || is_served {
            tell_next(device);
        }
        if is_served {
            return true;
        }
        device.wait(progress);
    }
    arbiter.leave(turn);
    device.tell();
    false
}

/// Whoever has left a line tells those who wait (W-next).
fn tell_next(device: &impl Device) {
    if device.arbiter().has_room_for_another() {
        device.tell();
    }
}

#[cfg(test)]
mod tests;
