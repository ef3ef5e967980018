// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The boundary to C, and the only `unsafe` of the driver's Rust.
//!
//! Invariants that the `// SAFETY:` comments of this folder argue from; the C
//! seam keeps them (`src/nvidia-uvm-c/`):
//!
//! - **I-own**: a pointer that C got from a `*_create` function is passed to the
//!   other functions unchanged, to the matching `*_destroy` at most once, and to
//!   nothing after that. `*_destroy` does not run at the same time as any other
//!   use of that pointer: the locks that `uvm_rust_*_ffi.h` state see to it.
//! - **I-call**: pointers that C passes are valid for the length of the call.
//! - **I-lock**: C holds the locks that `uvm_rust_*_ffi.h` state for a function.

/// Fails to compile unless the function has the type that the header declares.
macro_rules! check_exports {
    ($($name:ident),* $(,)?) => {
        const _: () = { $(let _ = [$name, $crate::ffi::bindings::$name];)* };
    };
}
use check_exports;

#[cfg(not(uvm_native))]
pub(crate) mod alarm;
#[allow(
    clippy::all,
    dead_code,
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unreachable_pub,
    unsafe_op_in_unsafe_fn,
    // bindgen's Default of a long array
    clippy::undocumented_unsafe_blocks
)]
pub(crate) mod bindings;
#[cfg(not(uvm_native))]
pub(crate) mod block;
pub(crate) mod discard;
mod entry;
#[cfg(not(uvm_native))]
pub(crate) mod event;
#[cfg(not(uvm_native))]
pub(crate) mod evict;
#[cfg(not(uvm_native))]
pub(crate) mod fault;
#[cfg(not(uvm_native))]
pub(crate) mod flash;
pub(crate) mod gpu;
#[cfg(not(uvm_native))]
mod life;
#[cfg(not(uvm_native))]
mod link;
// Its items are as public as the host's, and policies need not use all of them.
#[allow(dead_code, unreachable_pub)]
pub(crate) mod mem;
#[cfg(uvm_discards)]
pub(crate) mod native;
#[cfg(not(uvm_native))]
pub(crate) mod path;
#[cfg(not(uvm_native))]
pub(crate) mod prefetch;
pub(crate) mod seam;
pub(crate) mod slot;
pub(crate) mod space;
pub(crate) mod status;
#[cfg(not(uvm_native))]
pub(crate) mod tenant;
pub(crate) mod time;
pub(crate) mod trace;
#[cfg(not(uvm_native))]
mod tree;
pub(crate) mod uaccess;
pub(crate) mod vaspace;
#[cfg(not(uvm_native))]
pub(crate) mod work;

/// What C keeps by address is used by several threads at once, which no atomic pointer asks of a type: this does.
const fn shared<T: Send + Sync>() {}
const _: () = {
    shared::<crate::driver::space::State>();
    shared::<crate::driver::stats::Gpu>();
};
#[cfg(not(uvm_native))]
const _: () = {
    shared::<crate::driver::prefetch::Process>();
    shared::<crate::driver::flash::Tier>();
    shared::<flash::Dev>();
};
