// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! On a real GPU, with whatever driver is there. Allocates 8 MiB. Skips where there
//! is no GPU, or a driver that cannot discard.

#![allow(clippy::unwrap_used)]

#[path = "../../../tests/skipped.rs"]
mod skip;

use std::ffi::{c_int, c_uint, c_void, CStr};

use skip::skipped;
use uvmrust::cuda::Cuda;
use uvmrust::{Backend, Mode, Outcome, Place, Range, Uvm};

const LENGTH: usize = 8 << 20;

/// CUDA initialised with a context on GPU 0, or why not.
fn start() -> Result<Cuda, &'static str> {
    // SAFETY: functions of CUDA's documentation, with outputs that are writable.
    unsafe {
        let library = libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW);
        if library.is_null() {
            return Err("no libcuda.so.1");
        }
        let find = |name: &CStr| libc::dlsym(library, name.as_ptr());
        let init: Option<unsafe extern "C" fn(c_uint) -> c_int> =
            std::mem::transmute(find(c"cuInit"));
        let retain: Option<unsafe extern "C" fn(*mut *mut c_void, c_int) -> c_int> =
            std::mem::transmute(find(c"cuDevicePrimaryCtxRetain"));
        let set: Option<unsafe extern "C" fn(*mut c_void) -> c_int> =
            std::mem::transmute(find(c"cuCtxSetCurrent"));
        let (Some(init), Some(retain), Some(set)) = (init, retain, set) else {
            return Err("a libcuda.so.1 without contexts");
        };
        let mut context = std::ptr::null_mut();
        if init(0) != 0 || retain(&mut context, 0) != 0 || set(context) != 0 {
            return Err("no GPU that CUDA can use");
        }
    }
    Cuda::loaded().ok_or("libcuda.so.1 is gone")
}

/// Whether what is discarded reads as the backend promises: zeros or older values with
/// ours, and anything with the others, so that nobody looks.
fn as_promised(memory: *mut u8, values: &[u8]) -> bool {
    Uvm::process().backend() != Backend::UvmRust || holds(memory, values)
}

/// Whether all bytes are among these.
fn holds(memory: *mut u8, values: &[u8]) -> bool {
    // SAFETY: managed memory of this length, that no kernel uses.
    let bytes = unsafe { std::slice::from_raw_parts(memory, LENGTH) };
    bytes.iter().all(|byte| values.contains(byte))
}

fn fill(memory: *mut u8, value: u8) {
    // SAFETY: as above.
    unsafe { memory.write_bytes(value, LENGTH) };
}

#[test]
fn what_is_written_after_a_discard_is_kept() {
    let cuda = match start() {
        Ok(cuda) => cuda,
        Err(why) => return skipped(why),
    };
    let uvm = Uvm::process();
    println!("backend: {:?}", uvm.backend());
    if uvm.backend() == Backend::None {
        return skipped("this driver cannot discard (580 or later can, or ours)");
    }
    let mut base = 0;
    let alloc = cuda.mem_alloc_managed().unwrap();
    // SAFETY: the output is writable; 1 is CU_MEM_ATTACH_GLOBAL.
    let allocated = unsafe { alloc(&mut base, LENGTH, 1) };
    assert_eq!(allocated, 0);
    let memory = base as *mut u8;
    let range = Range {
        base,
        length: LENGTH as u64,
    };
    let halves = [(0, 2), (1, 2)].map(|(i, n)| Range {
        base: base + i * range.length / n,
        length: range.length / n,
    });
    let gpu = Place::Gpu(cuda.uuid(0).unwrap());
    let stream = std::ptr::null_mut();
    // SAFETY: no reference to the memory is kept, no kernel uses it, and what is
    // lazily discarded is prefetched.
    unsafe {
        fill(memory, 1);
        uvm.prefetch(range, gpu).unwrap();
        uvm.discard(range, Mode::Eager).unwrap();
        assert!(as_promised(memory, &[0, 1]));
        fill(memory, 2);
        assert!(holds(memory, &[2]));
        uvm.discard(range, Mode::Lazy).unwrap();
        uvm.prefetch(range, Place::Host).unwrap();
        assert!(as_promised(memory, &[0, 1, 2]));
        fill(memory, 3);
        assert!(holds(memory, &[3]));
        let mut outcome = Outcome::default();
        uvm.discard_batch(&halves, Mode::Eager, &mut outcome)
            .unwrap();
        assert_eq!(outcome.done, 2);
        uvm.discard_and_prefetch(range, gpu).unwrap();
        fill(memory, 4);
        assert!(holds(memory, &[4]));
        uvm.discard_async(&halves, Mode::Lazy, stream).unwrap();
        uvm.prefetch_async(range, gpu, stream).unwrap();
        cuda.synchronize(stream).unwrap();
        assert_eq!(uvm.take_stream_error(), Ok(()));
        fill(memory, 5);
        assert!(holds(memory, &[5]));
        assert_eq!(cuda.mem_free().unwrap()(base), 0);
    }
}
