// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Making values where they will stay.
//!
//! A lock must not move once it is in use: the kernel's lists point to it. So a value
//! that holds one is not made and moved, but made in its place: [`pin_init!`](crate::pin_init) describes
//! how, and `Arc::pin_init` or `KBox::pin_init` carries it out.
//!
//! ```
//! # use core::pin::Pin;
//! # use kernel::{alloc::{flags::GFP_KERNEL, KBox}, new_mutex, pin_data, pin_init, sync::Mutex};
//! #[pin_data]
//! struct Table {
//!     name: u32,
//!     #[pin]
//!     rows: Mutex<u64>,
//! }
//!
//! let table: Pin<KBox<Table>> = KBox::pin_init(
//!     pin_init!(Table { name: 7, rows <- new_mutex!(1) }),
//!     GFP_KERNEL,
//! ).unwrap();
//! assert_eq!(*table.rows.lock(), 1);
//! ```
//!
//! Every field must be given, and once:
//!
//! ```compile_fail,E0063
//! # use kernel::{alloc::{flags::GFP_KERNEL, KBox}, pin_data, pin_init};
//! #[pin_data]
//! struct Two { a: u32, b: u32 }
//! let _ = KBox::pin_init(pin_init!(Two { a: 1 }), GFP_KERNEL);
//! ```
//!
//! ```compile_fail,E0062
//! # use kernel::{alloc::{flags::GFP_KERNEL, KBox}, pin_data, pin_init};
//! #[pin_data]
//! struct One { a: u32 }
//! let _ = KBox::pin_init(pin_init!(One { a: 1, a: 2 }), GFP_KERNEL);
//! ```
//!
//! And no field's expression may leave before the others are made:
//!
//! ```compile_fail,E0308
//! # use kernel::{alloc::{flags::GFP_KERNEL, KBox}, pin_data, pin_init};
//! #[pin_data]
//! struct Early { a: Box<u32> }
//! let _ = KBox::pin_init(pin_init!(Early { a: return Ok(()) }), GFP_KERNEL);
//! ```
//!
//! Not even in the words of the macro, which has another of this name for itself:
//!
//! ```compile_fail,E0308
//! # use kernel::{alloc::{flags::GFP_KERNEL, KBox}, pin_data, pin_init};
//! #[pin_data]
//! struct Early { a: Box<u32> }
//! let _ = KBox::pin_init(pin_init!(Early { a: return Ok(__Done) }), GFP_KERNEL);
//! ```
//!
//! What must not move is only made in a field that does not:
//!
//! ```compile_fail,E0308
//! # use kernel::{alloc::{flags::GFP_KERNEL, KBox}, new_mutex, pin_data, pin_init, sync::Mutex};
//! #[pin_data]
//! struct Loose { a: Mutex<u32> }
//! let _ = KBox::pin_init(pin_init!(Loose { a <- new_mutex!(1) }), GFP_KERNEL);
//! ```
//!
//! Nor does somebody's trait for all types stand in for what makes it, and make nothing:
//!
//! ```compile_fail,E0308
//! # use kernel::{alloc::{flags::GFP_KERNEL, KBox}, pin_data, pin_init};
//! trait Evil<T, I>: Sized { fn a(self, _: *mut T, _: I) {} }
//! impl<X, T, I> Evil<T, I> for X {}
//! #[pin_data]
//! struct Unmade { a: Box<u32> }
//! let _ = KBox::pin_init(pin_init!(Unmade { a <- () }), GFP_KERNEL);
//! ```
//!
//! Fields are where a reference may point to, as they are made by way of pointers:
//!
//! ```compile_fail,E0793
//! # use kernel::{alloc::{flags::GFP_KERNEL, KBox}, pin_data, pin_init};
//! #[pin_data]
//! #[repr(packed)]
//! struct Packed { a: u8, b: u32 }
//! let _ = KBox::pin_init(pin_init!(Packed { a: 1, b: 2 }), GFP_KERNEL);
//! ```
//!
//! ```compile_fail,E0793
//! # use kernel::{alloc::{flags::GFP_KERNEL, KBox}, pin_data, pin_init};
//! #[pin_data]
//! #[repr(packed)]
//! struct Named { a: u8, b: u32 }
//! let b = 2;
//! let _ = KBox::pin_init(pin_init!(Named { a: 1, b }), GFP_KERNEL);
//! ```
//!
//! ```compile_fail,E0793
//! # use kernel::{alloc::{flags::GFP_KERNEL, KBox}, new_mutex, pin_data, pin_init, sync::Mutex};
//! #[pin_data]
//! #[repr(packed)]
//! struct Locked { a: u8, #[pin] b: Mutex<u32> }
//! let _ = KBox::pin_init(pin_init!(Locked { a: 1, b <- new_mutex!(2) }), GFP_KERNEL);
//! ```
//!
//! What is pinned has no `Drop` of its own, which could move its fields out:
//!
//! ```compile_fail,E0119
//! # use kernel::{pin_data, sync::Mutex};
//! #[pin_data]
//! struct Dropped { #[pin] a: Mutex<u32> }
//! impl Drop for Dropped { fn drop(&mut self) {} }
//! ```

use core::convert::Infallible;
use core::marker::PhantomData;

/// How to make a `T` in its place, or fail with an `E`.
///
/// # Safety
///
/// `__pinned_init` initialises the whole slot if it succeeds; if not, the slot holds
/// nothing that is to be dropped.
#[must_use = "an initialiser does nothing until it is carried out"]
pub unsafe trait PinInit<T, E = Infallible>: Sized {
    /// Makes the value in `slot`.
    ///
    /// # Safety
    ///
    /// `slot` is memory for a `T`, the caller's and unused. If this succeeds, the value
    /// stays there until it is dropped.
    unsafe fn __pinned_init(self, slot: *mut T) -> Result<(), E>;
}

/// An initialiser that is a function.
struct Closure<T, F>(F, PhantomData<fn(*mut T)>);

// SAFETY: By the contract of `from_closure`, the only one to make it.
unsafe impl<T, E, F: FnOnce(*mut T) -> Result<(), E>> PinInit<T, E> for Closure<T, F> {
    unsafe fn __pinned_init(self, slot: *mut T) -> Result<(), E> {
        (self.0)(slot)
    }
}

/// The initialiser that `f` is.
///
/// # Safety
///
/// `f` is what [`PinInit::__pinned_init`] must be, for a slot as that gets it.
#[doc(hidden)]
pub unsafe fn from_closure<T, E>(f: impl FnOnce(*mut T) -> Result<(), E>) -> impl PinInit<T, E> {
    Closure(f, PhantomData)
}

/// What [`macro@crate::pin_data`] says of a type: how each of its pinned fields is made.
///
/// # Safety
///
/// Only the macro implements it.
#[doc(hidden)]
pub unsafe trait HasPinData {
    /// Has a function for each field, of the field's name; for one that is not pinned, such as
    /// cannot be called.
    type PinData: Copy;

    fn __pin_data() -> Self::PinData;
}

/// The initialiser of a type that has [`macro@crate::pin_data`]: `field: value` for a
/// value that is there, `field <- initialiser` for one that is to be made in place.
#[macro_export]
macro_rules! pin_init {
    ($type:ident { $($fields:tt)* }) => {{
        // Never run: it is the compiler that sees whether each field is there once.
        #[allow(unreachable_code, clippy::diverging_sub_expression)]
        let _ = || -> $type { $crate::__pin_init_once!($type [] $($fields)*) };
        // What says that all is done, which only the end of the closure can name: a `return`
        // among the fields finds the other one.
        struct __Done;
        let init = move |slot: *mut $type| -> ::core::result::Result<__Done, ::core::convert::Infallible> {
            {
                #[allow(dead_code)]
                struct __Done;
                $crate::__pin_init_fields!($type, slot; $($fields)*);
            }
            Ok(__Done)
        };
        let init = move |slot: *mut $type| init(slot).map(|__Done| ());
        // SAFETY: The closure initialises each field, and no initialiser in it can fail.
        unsafe { $crate::init::from_closure::<$type, ::core::convert::Infallible>(init) }
    }};
}

/// A value of the type, with each field's expression replaced by one that never ends.
#[doc(hidden)]
#[macro_export]
macro_rules! __pin_init_once {
    ($type:ident [$($done:tt)*]) => { $type { $($done)* } };
    ($type:ident [$($done:tt)*] $field:ident <- $init:expr $(, $($rest:tt)*)?) => {
        $crate::__pin_init_once!($type [$($done)* $field: loop {},] $($($rest)*)?)
    };
    ($type:ident [$($done:tt)*] $field:ident : $value:expr $(, $($rest:tt)*)?) => {
        $crate::__pin_init_once!($type [$($done)* $field: loop {},] $($($rest)*)?)
    };
    ($type:ident [$($done:tt)*] $field:ident $(, $($rest:tt)*)?) => {
        $crate::__pin_init_once!($type [$($done)* $field: loop {},] $($($rest)*)?)
    };
}

/// Makes one field after the other.
///
/// Beside each stands a closure that is never run: a reference to the field, which the compiler
/// refuses where the structure is packed, so that the field may lie across its alignment.
#[doc(hidden)]
#[macro_export]
macro_rules! __pin_init_fields {
    ($type:ident, $slot:ident;) => {};
    ($type:ident, $slot:ident; $field:ident <- $init:expr $(, $($rest:tt)*)?) => {
        let init = $init;
        // SAFETY: The slot is a `$type`'s, so its field is one's, and stays there as it does.
        unsafe {
            <$type as $crate::init::HasPinData>::__pin_data()
                .$field(::core::ptr::addr_of_mut!((*$slot).$field), init)
        };
        let _ = |made: &$type| _ = &made.$field;
        $crate::__pin_init_fields!($type, $slot; $($($rest)*)?);
    };
    ($type:ident, $slot:ident; $field:ident : $value:expr $(, $($rest:tt)*)?) => {
        let value = $value;
        // SAFETY: The slot is a `$type`'s, so its field is one's, and holds nothing yet.
        unsafe { ::core::ptr::addr_of_mut!((*$slot).$field).write(value) };
        let _ = |made: &$type| _ = &made.$field;
        $crate::__pin_init_fields!($type, $slot; $($($rest)*)?);
    };
    ($type:ident, $slot:ident; $field:ident $(, $($rest:tt)*)?) => {
        // SAFETY: As above.
        unsafe { ::core::ptr::addr_of_mut!((*$slot).$field).write($field) };
        let _ = |made: &$type| _ = &made.$field;
        $crate::__pin_init_fields!($type, $slot; $($($rest)*)?);
    };
}
