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
    // It does not return. objtool looks at this object without C's first, and wants to see where
    // a function ends, and then at the whole module, where it knows that C does not return: of
    // what comes after that it takes this instruction alone, which compilers put there too.
    // SAFETY: It is not reached; and if it were, it is what `BUG()` is.
    unsafe { core::arch::asm!("ud2", options(nomem, nostack, noreturn)) }
}
