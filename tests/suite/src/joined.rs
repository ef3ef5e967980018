// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Waiting for a test's threads.

use std::any::Any;
use std::thread::{JoinHandle, ScopedJoinHandle};

use crate::Failure;

/// A thread, or what joining it has said.
pub trait Joined {
    /// What the thread returns.
    type Value;

    /// Waits for the thread's end and returns its value. If the thread panicked, the failure says what with.
    fn joined(self) -> Result<Self::Value, Failure>;
}

impl<T> Joined for std::thread::Result<T> {
    type Value = T;

    fn joined(self) -> Result<T, Failure> {
        self.map_err(|what| panicked(what.as_ref()))
    }
}

impl<T> Joined for JoinHandle<T> {
    type Value = T;

    fn joined(self) -> Result<T, Failure> {
        self.join().joined()
    }
}

impl<T> Joined for ScopedJoinHandle<'_, T> {
    type Value = T;

    fn joined(self) -> Result<T, Failure> {
        self.join().joined()
    }
}

fn panicked(what: &(dyn Any + Send)) -> Failure {
    let text = what
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| what.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no text");
    Failure::from(format!("a thread panicked: {text}"))
}

#[cfg(test)]
mod tests {
    use super::Joined;

    #[test]
    fn what_a_thread_panicked_with_is_told() {
        assert_eq!(std::thread::spawn(|| 7).joined().unwrap(), 7);
        let of = |text: String| std::thread::spawn(move || panic!("{text}")).joined();
        let failure = of("word 5".into()).unwrap_err();
        assert_eq!(failure.text(), "a thread panicked: word 5");
        let failure = std::thread::scope(|scope| scope.spawn(|| panic!("fixed")).joined());
        assert_eq!(failure.unwrap_err().text(), "a thread panicked: fixed");
    }
}
