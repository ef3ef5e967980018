// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Once the backend is found, no call allocates.

#![allow(clippy::unwrap_used)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ffi::c_void;

use uvmrust::cuda::Cuda;
use uvmrust::uapi;
use uvmrust::{Backend, Chardev, Error, Mode, Outcome, Place, Range, Sys, Uvm};

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

/// Counts for each thread.
struct Counting;

// SAFETY: passes everything on.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|n| n.set(n.get() + 1));
        // SAFETY: the caller's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        // SAFETY: the caller's contract.
        unsafe { System.dealloc(address, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// A driver that does everything at once: ours, or NVIDIA's.
struct Driver {
    ours: bool,
}

// SAFETY: it accesses the structures of the numbers alone.
unsafe impl Sys for Driver {
    unsafe fn ioctl(&self, _fd: i32, nr: u32, arg: *mut c_void) -> Result<(), i32> {
        // SAFETY: each number with its structure, in all arms.
        unsafe {
            match nr {
                uapi::GET_VERSION if self.ours => {
                    (*arg.cast::<uapi::Version>()).features = uapi::FEATURE_DISCARD;
                }
                uapi::DISCARD_BATCH if self.ours => {
                    let params = &mut *arg.cast::<uapi::DiscardBatch>();
                    params.first_failed = params.range_count;
                }
                uapi::UVM_DISCARD => {
                    let params = &mut *arg.cast::<uapi::NativeDiscard>();
                    params.status = if params.flags > 1 {
                        uapi::NV_ERR_INVALID_ARGUMENT
                    } else {
                        0
                    };
                }
                uapi::UVM_MIGRATE => {
                    let params = &mut *arg.cast::<uapi::Migrate>();
                    params.status = if params.length == 0 {
                        uapi::NV_ERR_INVALID_ADDRESS
                    } else {
                        0
                    };
                }
                _ => return Err(libc::EINVAL),
            }
        }
        Ok(())
    }

    fn chardev(&self, fd: i32) -> Option<Chardev> {
        (fd == 5).then_some(Chardev { major: 9, minor: 0 })
    }

    fn each_fd(&self, visit: &mut dyn FnMut(i32) -> bool) {
        let _ = visit(4) && visit(5);
    }

    fn uvm_major(&self) -> Option<u32> {
        Some(9)
    }

    fn cuda(&self) -> Option<&Cuda> {
        None
    }
}

#[test]
fn nothing_is_allocated_after_the_first_call() {
    for (ours, backend) in [(true, Backend::UvmRust), (false, Backend::Native)] {
        let uvm = Uvm::new(Driver { ours });
        assert_eq!(uvm.backend(), backend);
        let range = |i: u64| Range {
            base: i << 21,
            length: 1 << 21,
        };
        let even: Vec<_> = (1..1000).map(range).collect();
        let ragged: Vec<_> = (1..1000)
            .map(|i| Range {
                base: range(i).base + 7,
                ..range(i)
            })
            .collect();
        let before = ALLOCATIONS.with(Cell::get);
        // SAFETY: there is no memory.
        unsafe {
            for _ in 0..100 {
                uvm.discard(range(1), Mode::Eager).unwrap();
                uvm.discard_batch(&even, Mode::Lazy, &mut Outcome::default())
                    .unwrap();
                uvm.discard_batch(&ragged, Mode::Eager, &mut Outcome::default())
                    .unwrap();
                uvm.discard_and_prefetch(range(2), Place::Host).unwrap();
            }
        }
        assert_eq!(uvm.announce([0; 16], 1), Err(Error::NotSupported));
        assert_eq!(ALLOCATIONS.with(Cell::get), before, "{backend:?}");
    }
    let before = ALLOCATIONS.with(Cell::get);
    drop(std::hint::black_box(Box::new(1)));
    assert_eq!(
        ALLOCATIONS.with(Cell::get),
        before + 1,
        "the counter counts"
    );
}
