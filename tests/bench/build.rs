// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Compiles the C side of the queue benchmark, as the kernel compiles its own.

fn main() {
    println!("cargo::rerun-if-changed=src/lists.c");
    cc::Build::new()
        .file("src/lists.c")
        .opt_level(2)
        .compile("lists");
}
