// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What the C compiler knows of the kernel that is built for: how large its locks
//! are, and the values of its flags.
//!
//! `build/layout.c` asks, `build/layout.awk` writes the answers as Rust, and
//! `UVM_RUST_LAYOUT` names the file. It consists of constants and of one `opaque!`
//! line for each C type.

use core::cell::UnsafeCell;

/// Declares memory of the size and the alignment that a C type has, all zero at first.
macro_rules! opaque {
    ($name:ident, $size:literal, $align:literal) => {
        /// Memory for the C type of this name. Only C looks into it.
        #[repr(C, align($align))]
        pub struct $name(UnsafeCell<[u8; $size]>);

        // Not every type needs both.
        #[allow(dead_code)]
        impl $name {
            /// All bytes zero, which C's initialiser need not find.
            pub(crate) const fn zeroed() -> Self {
                Self(UnsafeCell::new([0; $size]))
            }

            /// The address that C gets.
            pub(crate) fn get(&self) -> *mut Self {
                self.0.get().cast()
            }
        }
    };
}

#[cfg(MODULE)]
include!(env!("UVM_RUST_LAYOUT"));

#[cfg(not(MODULE))]
include!("layout/host.rs");
