// SPDX-License-Identifier: GPL-2.0 OR MIT

//! No text given for a constant makes a machine that is not one: what is taken is a
//! number, and what is shown is taken again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use uvmsim_machine::CONSTANTS;

fuzz_target!(|input: (u8, &str)| {
    let (which, text) = input;
    let constant = &CONSTANTS[usize::from(which) % CONSTANTS.len()];
    let mut machine = uvmsim_machine::presets::find("a100").expect("a preset");
    if machine.set(constant.option, text).is_ok() {
        let value = constant.get(&machine);
        assert!(
            value.is_finite() && value >= 0.0,
            "{} {text}: {value}",
            constant.option
        );
        let shown = constant.unit.show(value);
        machine
            .set(constant.option, &shown)
            .expect("what is shown is taken");
    }
});
