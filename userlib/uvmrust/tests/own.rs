// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A `Uvm` that is not the process's, in a process with the stub library: this test runs
//! itself there.

#![allow(clippy::unwrap_used)]

#[path = "../../tests/harness.rs"]
mod harness;

use core::ffi::{c_int, c_uint, c_void};
use std::process::Command;

use uvmrust::cuda::{check, Cuda, Graph, Stream};
use uvmrust::{Error, Linux, Mode, Range, Uvm};

static OWN: Uvm = Uvm::new(Linux::new());

#[test]
fn a_discard_in_a_stream_is_by_who_was_asked() {
    if std::env::var_os("ON_STUB").is_some() {
        return on_stub();
    }
    if !harness::have_cc() {
        return;
    }
    let stub = harness::stub("own", "-DSTUB_NO_DISCARD");
    let done = Command::new(std::env::current_exe().unwrap())
        .args(["a_discard_in_a_stream_is_by_who_was_asked", "--exact"])
        .arg("--nocapture")
        .env("ON_STUB", "1")
        .env("LD_PRELOAD", stub)
        .env("STUB_UVM", "ours")
        .env("UVMRUST_FD", "900")
        .output()
        .unwrap();
    assert!(done.status.success(), "{done:?}");
}

/// A function of the stub. It must have this type, which is that of CUDA's documentation.
macro_rules! stub_fn {
    ($name:literal, $($arg:ty),*) => {{
        let found = libc::dlsym(libc::RTLD_DEFAULT, $name.as_ptr());
        assert!(!found.is_null());
        core::mem::transmute::<*mut c_void, unsafe extern "C" fn($($arg),*) -> c_int>(found)
    }};
}

fn on_stub() {
    // SAFETY: it takes any number.
    unsafe { check(stub_fn!(c"cuInit", c_uint)(0)).unwrap() };
    let cuda = Cuda::loaded().unwrap();
    let mut context = core::ptr::null_mut();
    // SAFETY: the output is writable; the context is held.
    unsafe {
        check(cuda.primary_retain().unwrap()(&mut context, 0)).unwrap();
        check(cuda.ctx_push().unwrap()(context)).unwrap();
    }
    OWN.use_fd(Some(900));
    // Some memory that is not managed: the stream finds that out.
    let range = Range {
        base: 1 << 40,
        length: 2 << 20,
    };
    let stream = core::ptr::null_mut();
    // SAFETY: nobody reads it; the default stream is always there.
    unsafe {
        OWN.discard_async(&[range], Mode::Eager, stream).unwrap();
        cuda.synchronize(stream).unwrap();
    }
    assert_eq!(Uvm::process().take_stream_error(), Ok(()));
    assert_eq!(OWN.take_stream_error(), Err(Error::NotManaged));
    graph(&cuda, range);
    assert_eq!(Uvm::process().take_stream_error(), Ok(()));
    assert_eq!(OWN.take_stream_error(), Err(Error::NotManaged));
}

/// The same as a node of a graph, which is launched once.
fn graph(cuda: &Cuda, range: Range) {
    let null = core::ptr::null_mut();
    let (mut stream, mut graph, mut executable) = (null, null, null);
    // SAFETY: outputs are writable; handles are from the calls before.
    unsafe {
        check(stub_fn!(c"cuStreamCreate", *mut Stream, c_uint)(
            &mut stream,
            1,
        ))
        .unwrap();
        check(stub_fn!(c"cuStreamBeginCapture_v2", Stream, c_int)(
            stream, 0,
        ))
        .unwrap();
        OWN.discard_async(&[range], Mode::Eager, stream).unwrap();
        check(stub_fn!(c"cuStreamEndCapture", Stream, *mut Graph)(
            stream, &mut graph,
        ))
        .unwrap();
        let instantiate = stub_fn!(c"cuGraphInstantiateWithFlags", *mut Graph, Graph, u64);
        check(instantiate(&mut executable, graph, 0)).unwrap();
        check(stub_fn!(c"cuGraphLaunch", Graph, Stream)(
            executable, stream,
        ))
        .unwrap();
        cuda.synchronize(stream).unwrap();
    }
}
