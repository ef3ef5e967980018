// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A panic says what happened and ends the thread that it happened in.

use crate::{helpers, print};
use core::panic::PanicInfo;

/// Prints the message, then `BUG()`: the kernel prints where, and kills the task. What
/// the task held stays held; everything else goes on.
#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    print::line(
        print::Level::Emergency,
        "Rust panic",
        format_args!("{info}\n"),
    );
    // SAFETY: It has no preconditions.
    unsafe { helpers::uvm_rust_k_bug() };
    // The call does not return. objtool first checks this object without C's, and wants to see where the function ends.
    // Then it checks the whole module, and knows that C does not return. Behind such a call it accepts only this
    // instruction, which compilers emit there, too.
    // SAFETY: It is not reached; and if it were, it is what `BUG()` is.
    unsafe { core::arch::asm!("ud2", options(nomem, nostack, noreturn)) }
}
