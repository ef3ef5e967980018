// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! That there is no memory, said as PyTorch's own allocator says it.
//!
//! PyTorch takes what an allocator gives without a look (torch/csrc/cuda/CUDAPluggableAllocator.cpp,
//! 2.9: `CUDAPluggableAllocator::malloc`), so a null address becomes a tensor without memory. Its
//! own allocator throws `c10::OutOfMemoryError`, an exception of C++'s that Python sees as
//! `torch.OutOfMemoryError`. So does this. The library is linked with nothing of PyTorch's or
//! C++'s, so each function is looked up by its name in the library c10 of the process, which is
//! linked with C++'s. Where a name is not there, as with C++'s old strings, c10's own function throws
//! its plain error, a `RuntimeError` in Python. That one is also for errors of CUDA's that say
//! nothing of memory: a program that catches the other would try again with less.
//!
//! The exception passes only through functions with the ABI `C-unwind` and through Rust's own,
//! which are unwound. No lock is held, and nobody catches it here.

use core::ffi::{c_char, c_int, c_uint, c_void, CStr};
use core::mem::MaybeUninit;
use std::ffi::CString;
use std::io::Write;

use uvmrust::Error;

/// More than `c10::OutOfMemoryError` has, which is 120 to 140 bytes.
const EXCEPTION: usize = 1024;

/// Room for a `std::string`, which has 32 bytes.
type Text = MaybeUninit<[u64; 8]>;

/// `c10::SourceLocation`: a function, a file and a line.
#[repr(C)]
struct Location(*const c_char, *const c_char, c_uint);

impl Location {
    fn here() -> Self {
        Self(c"uvmrust_torch_malloc".as_ptr(), c"uvmrust".as_ptr(), 0)
    }
}

/// Says that there is no memory, or that CUDA failed: throws where PyTorch is there, and else
/// writes a line.
pub(crate) fn tell(size: usize, device: c_int, error: Error) {
    let short = error == Error::NoMemory;
    let text = if short {
        format!(
            "CUDA out of memory. Tried to allocate {size} bytes of managed memory for GPU \
             {device}: the host's memory is used up"
        )
    } else {
        format!("CUDA error: no {size} bytes of managed memory for GPU {device}: {error}")
    };
    if let Ok(text) = CString::new(text.as_str()) {
        for library in [c"libc10_cuda.so", c"libc10.so"] {
            if let Some(c10) = C10::loaded(library) {
                if short {
                    c10.throw(&text);
                } else {
                    c10.fail(&text);
                }
            }
        }
    }
    // Nobody may be there to read it.
    let _ = writeln!(std::io::stderr(), "uvmrust: {text}");
}

/// The library c10 of this process.
struct C10 {
    handle: *mut c_void,
}

impl C10 {
    fn loaded(name: &CStr) -> Option<Self> {
        // SAFETY: the name is a C string, and the library is not loaded anew, so no initialiser
        // runs. The handle is kept for good.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_LAZY) };
        (!handle.is_null()).then_some(Self { handle })
    }

    /// The address of a name in this library, or in one that it is linked with.
    fn symbol(&self, name: &CStr) -> Option<*mut c_void> {
        // SAFETY: the handle is open, and the name a C string.
        let address = unsafe { libc::dlsym(self.handle, name.as_ptr()) };
        (!address.is_null()).then_some(address)
    }

    /// Throws what PyTorch has for this, or what is nearest to it; returns if it has neither.
    fn throw(&self, text: &CStr) {
        if let Some(error) = OutOfMemory::of(self) {
            error.throw(text);
        }
        self.fail(text);
    }

    /// Throws PyTorch's plain error; returns if there is none.
    fn fail(&self, text: &CStr) {
        // c10::detail::torchCheckFail(function, file, line, text)
        let name = c"_ZN3c106detail14torchCheckFailEPKcS2_jS2_";
        type Fail =
            unsafe extern "C-unwind" fn(*const c_char, *const c_char, c_uint, *const c_char);
        if let Some(fail) = self.symbol(name) {
            let Location(function, file, line) = Location::here();
            // SAFETY: the function of this name takes these, strings of C's that outlive the call.
            unsafe {
                let fail = core::mem::transmute::<*mut c_void, Fail>(fail);
                fail(function, file, line, text.as_ptr());
            }
        }
    }
}

type Allocate = unsafe extern "C-unwind" fn(usize) -> *mut c_void;
type Throw = unsafe extern "C-unwind" fn(*mut c_void, *mut c_void, *mut c_void) -> !;
type MakeText = unsafe extern "C-unwind" fn(*mut Text, *const c_char, *const u8);
type DropText = unsafe extern "C-unwind" fn(*mut Text);
type MakeError = unsafe extern "C-unwind" fn(*mut c_void, Location, *mut Text);

/// What it takes to throw `c10::OutOfMemoryError`: as the compiler would do it
/// (Itanium C++ ABI: Exception Handling, 2.4).
struct OutOfMemory {
    allocate: Allocate,
    throw: Throw,
    make_text: MakeText,
    drop_text: DropText,
    make_error: MakeError,
    kind: *mut c_void,
}

impl OutOfMemory {
    fn of(c10: &C10) -> Option<Self> {
        let text = c"_ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEC1EPKcRKS3_";
        let end = c"_ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEED1Ev";
        // The class adds nothing to c10::Error but its name, so that one's constructor serves.
        let error = c"_ZN3c105ErrorC1ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE";
        let [allocate, throw, text, end, error] = [
            c"__cxa_allocate_exception",
            c"__cxa_throw",
            text,
            end,
            error,
        ]
        .map(|name| c10.symbol(name));
        // SAFETY: functions of these names take these arguments: the two are of C++'s ABI, and
        // the other names hold their arguments' types. A std::string is passed by its address,
        // as what has a destructor is.
        unsafe {
            Some(Self {
                allocate: core::mem::transmute::<*mut c_void, Allocate>(allocate?),
                throw: core::mem::transmute::<*mut c_void, Throw>(throw?),
                make_text: core::mem::transmute::<*mut c_void, MakeText>(text?),
                drop_text: core::mem::transmute::<*mut c_void, DropText>(end?),
                make_error: core::mem::transmute::<*mut c_void, MakeError>(error?),
                kind: c10.symbol(c"_ZTIN3c1016OutOfMemoryErrorE")?,
            })
        }
    }

    fn throw(&self, text: &CStr) -> ! {
        let mut string = Text::uninit();
        // A std::allocator, which is empty.
        let allocator = 0;
        // SAFETY: there is room for each of them, and the string is not moved between its
        // constructor and its destructor. An object with virtual functions begins with the address
        // of these. The exception is C++'s from the throw on.
        unsafe {
            (self.make_text)(&mut string, text.as_ptr(), &allocator);
            let exception = (self.allocate)(EXCEPTION);
            (self.make_error)(exception, Location::here(), &mut string);
            (self.drop_text)(&mut string);
            // The first function of the class, as of std::exception, is its destructor.
            let functions = exception.cast::<*const *mut c_void>().read();
            (self.throw)(exception, self.kind, functions.read())
        }
    }
}
