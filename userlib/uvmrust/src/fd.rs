// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Finding the process's UVM file descriptor, CUDA's own in most programs.
//!
//! It is used where it is, not duplicated: a duplicate would keep the address
//! space alive after CUDA has closed it. So before each use it is looked at again
//! ([`is_uvm`]); what the number names may have changed. (Between that and the
//! ioctl another thread could still close it, as with any borrowed descriptor. What
//! is then sent to the wrong file is a number with no meaning to it.)

use crate::sys::Sys;

/// Minor number of /dev/nvidia-uvm; 1 is the tools' device.
const MINOR: u32 = 0;

/// Whether `fd` is /dev/nvidia-uvm at this moment.
pub(crate) fn is_uvm(sys: &impl Sys, fd: i32, major: u32) -> bool {
    sys.chardev(fd)
        .is_some_and(|dev| dev.major == major && dev.minor == MINOR)
}

/// Shows `accept` every UVM descriptor of the process until it takes one. Gives what
/// `accept` gave and whether there was any descriptor at all.
pub(crate) fn find<T>(
    sys: &impl Sys,
    major: u32,
    mut accept: impl FnMut(i32) -> Option<T>,
) -> (Option<T>, bool) {
    let mut taken = None;
    let mut any = false;
    sys.each_fd(&mut |fd| {
        if is_uvm(sys, fd, major) {
            any = true;
            taken = accept(fd);
        }
        taken.is_none()
    });
    (taken, any)
}
