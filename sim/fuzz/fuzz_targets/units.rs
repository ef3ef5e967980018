// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Whatever text is given for a constant of a machine, the machine stays one. A text
//! that is accepted gives a finite number that is not negative, and the text that this
//! number is shown as is accepted too.

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
