// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What a launch costs more under the preload, on the stub library: there is no GPU
//! in these numbers, only the processor's part. `launch/<how>`:
//!
//! - `direct`: the stub's launch alone, one entry in a queue;
//! - `off`: through the preload, to a driver without execution IDs;
//! - `announced`: hashed and announced, the host function's run and the (stub's)
//!   ioctl included;
//! - `joined`: the same, where what is short goes with the announcement before.
//!
//! This program runs itself once for each, since a preload is for a whole process.

#![allow(missing_docs, clippy::unwrap_used)]

#[path = "../../tests/harness.rs"]
mod harness;

use std::ffi::{c_char, c_void, CString};
use std::process::Command;

use criterion::Criterion;

type Launch = unsafe extern "C" fn(
    *mut c_void,
    u32,
    u32,
    u32,
    u32,
    u32,
    u32,
    u32,
    *mut c_void,
    *mut *mut c_void,
    *mut *mut c_void,
) -> i32;

/// What the stub of CUDA takes for a kernel: its address is the handle.
#[repr(C)]
struct Kernel {
    name: *const c_char,
}

fn measure(how: &str) {
    // SAFETY: the name is a C string. The process has the stub preloaded.
    let launch = unsafe {
        let library = libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW);
        libc::dlsym(library, c"cuLaunchKernel".as_ptr())
    };
    assert!(!launch.is_null());
    // SAFETY: it is of this type.
    let launch = unsafe { std::mem::transmute::<*mut c_void, Launch>(launch) };
    let name = CString::new("_ZN2at6native29vectorized_elementwise_kernelILi4EEEvv").unwrap();
    let mut kernel = Kernel {
        name: name.as_ptr(),
    };
    // Nothing to write, so that the stub's kernel costs nothing.
    let (mut base, mut length, mut number) = (0u64, 0u64, 0u32);
    let mut params: [*mut c_void; 3] = [
        (&raw mut base).cast(),
        (&raw mut length).cast(),
        (&raw mut number).cast(),
    ];
    let mut criterion = Criterion::default().configure_from_args().sample_size(20);
    criterion.bench_function(&format!("launch/{how}"), |b| {
        b.iter(|| {
            // SAFETY: three parameters, as the stub's kernels have.
            unsafe {
                launch(
                    (&raw mut kernel).cast(),
                    128,
                    1,
                    1,
                    256,
                    1,
                    1,
                    0,
                    std::ptr::null_mut(),
                    params.as_mut_ptr(),
                    std::ptr::null_mut(),
                )
            }
        });
    });
}

fn main() {
    if let Ok(how) = std::env::var("BENCH_HOW") {
        return measure(&how);
    }
    // `cargo test --benches` only builds.
    if !std::env::args().any(|arg| arg == "--bench") || !harness::have_cc() {
        return;
    }
    let stub = harness::stub("bench", "-O2");
    let preload = harness::cdylib("uvmrust-preload", true);
    let both = std::env::join_paths([&preload, &stub]).unwrap();
    for (how, libraries, driver, every_us) in [
        ("direct", stub.as_os_str(), "ours", "0"),
        ("off", &both, "old", "0"),
        ("announced", &both, "ours", "0"),
        ("joined", &both, "ours", "400"),
    ] {
        let done = Command::new(std::env::current_exe().unwrap())
            .args(std::env::args_os().skip(1))
            .env("BENCH_HOW", how)
            .env("LD_PRELOAD", libraries)
            .env("STUB_UVM", driver)
            .env("UVMRUST_FD", "900")
            .env("UVMRUST_ANNOUNCE_EVERY", every_us)
            .status()
            .unwrap();
        assert!(done.success());
    }
}
