// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Whatever the parser takes, it writes in a form that it reads as the same.

#![no_main]

use libfuzzer_sys::fuzz_target;
use uvmsim_trace::Trace;

fuzz_target!(|text: &str| {
    if let Ok(t) = text.parse::<Trace>() {
        let again: Trace = t.to_string().parse().expect("what was written is read");
        assert_eq!(again.to_string(), t.to_string());
    }
});
