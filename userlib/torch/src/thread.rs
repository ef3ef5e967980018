// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Who calls, also where the standard library does not say it any more: PyTorch may free tensors
//! from the destructors of a thread's own variables, and `std::thread::current()` panics there. And
//! whether one is over, which the kernel says.

use core::cell::Cell;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A thread of the process, by a number that no other ever has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Thread(u64);

static LAST: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// 0: it has none yet. A number has no destructor, so it is there until the thread is gone.
    static OWN: Cell<u64> = const { Cell::new(0) };
}

impl Thread {
    pub(crate) fn current() -> Self {
        OWN.with(|own| {
            if own.get() == 0 {
                own.set(LAST.fetch_add(1, Relaxed) + 1);
            }
            Self(own.get())
        })
    }

    /// Does something as another thread would.
    #[cfg(test)]
    pub(crate) fn act<T>(self, work: impl FnOnce() -> T) -> T {
        let before = OWN.replace(self.0);
        let done = work();
        OWN.set(before);
        done
    }

    /// A thread that is none of the others.
    #[cfg(test)]
    pub(crate) fn new() -> Self {
        Self(LAST.fetch_add(1, Relaxed) + 1)
    }
}

/// A thread of the process, by the kernel's number, which another may have when it is over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Task(libc::c_long);

impl Task {
    pub(crate) fn current() -> Self {
        // SAFETY: takes nothing, and cannot fail.
        Self(unsafe { libc::syscall(libc::SYS_gettid) })
    }

    /// Whether no thread of the process has the number any more.
    pub(crate) fn is_over(self) -> bool {
        // SAFETY: takes numbers; the signal 0 is none, and only asks.
        let told = unsafe {
            let process = libc::c_long::from(libc::getpid());
            libc::syscall(libc::SYS_tgkill, process, self.0, 0)
        };
        told != 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH)
    }
}
