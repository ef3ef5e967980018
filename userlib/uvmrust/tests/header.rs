// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The layouts that `uapi.rs` writes itself. Those of our own calls are the crate `uvm-uapi`, which
//! tests itself against the header.

use uvmrust::uapi;

/// What a program calls a range is what the driver takes for one.
#[test]
fn a_range_is_the_kernels() {
    use std::mem::offset_of;
    type Theirs = uvm_uapi::uvm_rust_discard_range;
    assert_eq!(size_of::<uvmrust::Range>(), size_of::<Theirs>());
    assert_eq!(offset_of!(uvmrust::Range, base), offset_of!(Theirs, base));
    assert_eq!(
        offset_of!(uvmrust::Range, length),
        offset_of!(Theirs, length)
    );
}

/// NVIDIA's structures have this size and these places for the status, by the
/// rules of C: checked by hand against drivers 550 and 595.
#[test]
fn nvidias_structures_keep_their_layout() {
    assert_eq!(size_of::<uapi::NativeDiscard>(), 32);
    assert_eq!(std::mem::offset_of!(uapi::NativeDiscard, status), 24);
    assert_eq!(size_of::<uapi::Migrate>(), 80);
    assert_eq!(std::mem::offset_of!(uapi::Migrate, semaphore), 40);
    assert_eq!(std::mem::offset_of!(uapi::Migrate, status), 72);
    assert_eq!(std::mem::offset_of!(uapi::Initialize, status), 8);
    assert_eq!(size_of::<uapi::RegisterGpu>(), 40);
    assert_eq!(std::mem::offset_of!(uapi::RegisterGpu, rm_ctrl_fd), 24);
    assert_eq!(std::mem::offset_of!(uapi::RegisterGpu, status), 36);
    assert_eq!(size_of::<uapi::UnregisterGpu>(), 20);
}
