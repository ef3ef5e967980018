// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! No graph file makes the importer panic; what it builds obeys the format.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (bool, u16, &str)| {
    let (operators, batch, text) = input;
    let _ = uvmsim_g10::graph(text, operators, u64::from(batch));
});
