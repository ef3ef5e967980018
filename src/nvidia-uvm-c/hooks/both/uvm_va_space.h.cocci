// SPDX-License-Identifier: GPL-2.0-only OR MIT
// What is kept of a VA space in each kind of build.
@@
@@
struct uvm_va_space_struct {
+ /* Of fixes/uvm_rust_replays.c: NULL until somebody listens to replays of its faults. */
+ struct uvm_rust_replays *uvm_rust_replays;
+ /* Of fixes/uvm_rust_trackers.h: how many trackers there are of it, and va_blocks' events that have yet to be handed out. */
+ atomic_t uvm_rust_trackers;
+ atomic_t uvm_rust_pending;
...
};
