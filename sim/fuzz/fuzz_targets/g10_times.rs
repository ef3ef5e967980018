// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! No file of times or workspaces makes the importer panic.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (bool, &str)| {
    let (times, text) = input;
    let _ = uvmsim_g10::column(text, if times { "ms" } else { "B" });
});
