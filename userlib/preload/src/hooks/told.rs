// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Our functions in the place of those that tell of pools and of addresses.

use core::ffi::{c_int, c_uint, c_void};

use crate::real::{Code, Real, NOT_INITIALIZED, SUCCESS};
use crate::{counts, memory, pointers};

/// # Safety
/// As cuMemPoolGetAttribute.
pub(crate) unsafe extern "C" fn pool_attribute(
    pool: *mut c_void,
    attribute: c_int,
    value: *mut c_void,
) -> Code {
    let (_, call) = real!(pool_attribute);
    // SAFETY: the caller's arguments, passed on; CUDA has written the value.
    unsafe {
        let code = call(pool, attribute, value);
        if code == SUCCESS {
            counts::told(pool, attribute, value);
        }
        code
    }
}

/// # Safety
/// As cuMemPoolSetAttribute.
pub(crate) unsafe extern "C" fn pool_set_attribute(
    pool: *mut c_void,
    attribute: c_int,
    value: *mut c_void,
) -> Code {
    let (_, call) = real!(pool_set_attribute);
    // SAFETY: the caller's arguments, passed on.
    let code = unsafe { call(pool, attribute, value) };
    if code == SUCCESS {
        counts::set(pool, attribute);
    }
    code
}

/// # Safety
/// As cuPointerGetAttribute.
pub(crate) unsafe extern "C" fn pointer_attribute(
    out: *mut c_void,
    attribute: c_int,
    address: u64,
) -> Code {
    let Some(real) = Real::get() else {
        return NOT_INITIALIZED;
    };
    let Some(call) = real.cuda.pointer_attribute() else {
        return memory::MISSING;
    };
    // SAFETY: the caller's arguments, passed on; CUDA has written the value.
    unsafe {
        let code = call(out, attribute, address);
        if code == SUCCESS && pointers::is_hidden(address) {
            pointers::hide(out, attribute);
        }
        code
    }
}

/// # Safety
/// As cuPointerGetAttributes.
pub(crate) unsafe extern "C" fn pointer_attributes(
    count: c_uint,
    attributes: *mut c_int,
    out: *mut *mut c_void,
    address: u64,
) -> Code {
    let (_, call) = real!(pointer_attributes);
    // SAFETY: the caller's arguments, passed on: arrays of so many elements. CUDA has written the values.
    unsafe {
        let code = call(count, attributes, out, address);
        if code == SUCCESS && pointers::is_hidden(address) {
            for at in 0..count as usize {
                pointers::hide(*out.add(at), *attributes.add(at));
            }
        }
        code
    }
}

/// # Safety
/// As cuIpcGetMemHandle.
pub(crate) unsafe extern "C" fn ipc_handle(out: *mut c_void, address: u64) -> Code {
    let (_, call) = real!(ipc_handle);
    // SAFETY: the caller's arguments, passed on.
    let code = unsafe { call(out, address) };
    pointers::shared(code, address);
    code
}
