// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Structures shared with C, and a C program that checks that both agree.

use std::fmt::Write;

/// One structure: its C type, call number if it has one, size and fields.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// The name of the type in C.
    pub c_type: &'static str,
    /// The C name and our value of its call number; empty for a plain structure.
    pub number: (&'static str, u32),
    /// What `sizeof` is in C.
    pub size: usize,
    /// C name, offset and size of each field.
    pub fields: &'static [(&'static str, usize, usize)],
}

/// A C program that compiles only where `layouts` are what `headers` say.
pub fn c_check_program(headers: &[&str], layouts: &[Layout]) -> String {
    let mut c = String::from("#include <stddef.h>\n");
    for header in headers {
        let _ = writeln!(c, "#include \"{header}\"");
    }
    for l in layouts {
        let t = l.c_type;
        let _ = writeln!(
            c,
            "_Static_assert(sizeof({t}) == {}, \"sizeof {t}\");",
            l.size
        );
        if !l.number.0.is_empty() {
            let (name, value) = l.number;
            let _ = writeln!(
                c,
                "_Static_assert((unsigned)({name}) == {value}u, \"{name}\");"
            );
        }
        for (field, offset, size) in l.fields {
            let _ = writeln!(
                c,
                "_Static_assert(offsetof({t}, {field}) == {offset} && \
                 sizeof((({t} *)0)->{field}) == {size}, \"{t}.{field}\");"
            );
        }
    }
    c.push_str("int main(void) { return 0; }\n");
    c
}

/// Declares a structure shared with C: `"C type" name size { field "C field": type }`,
/// with its layout as the constant `LAYOUT`. A wrong size does not compile.
macro_rules! c_struct {
    ($(#[$doc:meta])* $name:ident, $c:literal, $number:literal = $value:expr, $size:literal, {
        $($field:ident $cfield:literal: $type:ty,)*
    }) => {
        $(#[$doc])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug, bytemuck::AnyBitPattern)]
        pub struct $name { $(pub $field: $type,)* }

        const _: () = assert!(size_of::<$name>() == $size, stringify!($name));

        impl Default for $name {
            fn default() -> Self { bytemuck::Zeroable::zeroed() }
        }

        impl $name {
            /// The layout, for the check against C.
            pub const LAYOUT: $crate::layout::Layout = $crate::layout::Layout {
                c_type: $c,
                number: ($number, $value),
                size: $size,
                fields: &[$((
                    $cfield,
                    std::mem::offset_of!($name, $field),
                    size_of::<$type>(),
                ),)*],
            };
        }
    };
}
pub(crate) use c_struct;

/// A `T` from the first bytes of `bytes`.
pub(crate) fn read<T: bytemuck::AnyBitPattern>(bytes: &[u8]) -> T {
    bytemuck::pod_read_unaligned(&bytes[..size_of::<T>()])
}
