// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What has to be given back, and would be lost with its owner.

/// A part of whatever holds pins of the device's slots, which only a call with the device's table gives back. That call
/// ends this, too. In tests, who drops it instead panics, so that they find each way out on which pins are lost. The
/// driver, which must not panic, pays nothing for it.
#[derive(Debug)]
#[must_use]
pub(super) struct Owed(());

impl Owed {
    pub(super) const fn new() -> Self {
        Self(())
    }

    /// All was given back.
    pub(super) fn end(self) {
        // It is not dropped, which is what the tests see.
        let _ = core::mem::ManuallyDrop::new(self);
    }
}

#[cfg(test)]
impl Drop for Owed {
    fn drop(&mut self) {
        // What a panic drops is told by that panic.
        assert!(
            std::thread::panicking(),
            "S-pins: a read or a write is dropped, and its pins are not given back"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::mask::{PageMask, Region};
    use super::super::{BlockPages, Config, Table};
    use std::panic::{catch_unwind, AssertUnwindSafe};

    /// Whether it is noticed that `lost` is dropped.
    fn is_noticed<T>(lost: T) -> bool {
        catch_unwind(AssertUnwindSafe(|| drop(lost))).is_err()
    }

    #[test]
    fn neither_reads_nor_writes_are_dropped() {
        let config = Config {
            slots: 3,
            checksums: false,
            quota: u64::MAX,
        };
        let mut table = Table::new(config).unwrap();
        let tenant = table.tenant(1).unwrap();
        let pages = PageMask::from(Region::new(0, 8));
        let mut block = BlockPages::new(512);
        let spill = block.begin_spill(&mut table, tenant, &pages).unwrap();
        assert_eq!(block.end_spill(&mut table, spill, &pages), pages);
        let read = block.begin_read(&mut table, &pages).unwrap().unwrap();
        assert!(is_noticed(read), "a read");
        let spill = block.begin_spill(&mut table, tenant, &Region::new(8, 9).into());
        assert!(is_noticed(spill.unwrap()), "a spill");
        let write = table.reserve(tenant, &pages).unwrap();
        table.abort(write);
        let write = table.reserve(tenant, &pages).unwrap();
        assert!(is_noticed(write), "a write");
    }
}
