// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What becomes of a lazy discard whose prefetch fails.

use super::*;

/// What is lazily discarded by then, and stays mapped, would lose what is written next: it is discarded
/// again, which unmaps it. The caller is told that something has changed.
#[test]
fn a_prefetch_that_fails_behind_a_discard_is_not_said_to_have_changed_nothing() {
    let twice = [(MIB2, MIB2, 0), (MIB2, MIB2, 1)];
    // An eager discard by NVIDIA's driver is two calls.
    let thrice = [(MIB2, MIB2, 0), (MIB2, MIB2, 1), (MIB2, MIB2, 1)];
    for (file, log) in [(File::Ours, &twice[..]), (File::Native, &thrice)] {
        for (status, told) in [
            (uapi::NV_ERR_ILLEGAL_ACTION, Error::Driver),
            (uapi::NV_ERR_NOT_SUPPORTED, Error::Driver),
            (uapi::NV_ERR_OUT_OF_RANGE, Error::Driver),
            (uapi::NV_ERR_INVALID_ARGUMENT, Error::Driver),
            (uapi::NV_ERR_INVALID_DEVICE, Error::Driver),
            (uapi::NV_ERR_NO_MEMORY, Error::NoMemory),
        ] {
            let uvm = Fake::with(&[(3, file)]);
            *uvm.sys.migrate_fails.lock().unwrap() = status;
            let gpu = Place::Gpu([1; 16]);
            // SAFETY: the fake touches no memory.
            let done = unsafe { uvm.discard_and_prefetch(range(MIB2, MIB2), gpu) };
            assert_eq!(done, Err(told), "{file:?} {status:#x}");
            assert_eq!(*uvm.sys.log.lock().unwrap(), log);
            // To the host only where that is needed: it has no room, for one.
            assert_eq!(uvm.sys.migrated.lock().unwrap().len(), 1, "{file:?}");
            assert!(!uvm.may_be_lazy());
        }
    }
}

/// A prefetch in a stream is CUDA's as long as nothing may be.
#[test]
fn it_is_known_whether_something_may_be_lazily_discarded() {
    let whole = range(MIB2, MIB2);
    let done = |uvm: &Uvm<Fake>, mode| {
        // SAFETY: the fake touches no memory.
        unsafe { uvm.discard(whole, mode) }
    };
    for file in [File::Ours, File::Native] {
        let uvm = Fake::with(&[(3, file)]);
        assert_eq!(done(&uvm, Mode::Eager), Ok(()));
        assert!(!uvm.may_be_lazy());
        assert_eq!(done(&uvm, Mode::Lazy), Ok(()));
        assert!(uvm.may_be_lazy());
        // An error may leave it so, of a discard of either kind.
        let uvm = Fake::with(&[(3, file)]);
        *uvm.sys.fail.lock().unwrap() = Some((MIB2, libc::EIO, uapi::NV_ERR_NO_MEMORY));
        assert!(done(&uvm, Mode::Eager).is_err() && uvm.may_be_lazy());
    }
    // So does a prefetch that fails, where what an eager discard has left is not brought to the host either.
    let uvm = Fake::with(&[(3, File::Ours)]);
    *uvm.sys.migrate_fails.lock().unwrap() = uapi::NV_ERR_NO_MEMORY;
    let over = range(MIB2 - PAGE, MIB2 + 2 * PAGE);
    // SAFETY: as above.
    let both = unsafe { uvm.discard_and_prefetch(over, Place::Gpu([1; 16])) };
    assert!(both.is_err() && uvm.may_be_lazy());
    // Nobody discards.
    let uvm = Fake::with(&[(3, File::Old)]);
    assert!(done(&uvm, Mode::Lazy).is_err() && !uvm.may_be_lazy());
}

/// A part of a block may be another owner's next, who prefetches nothing.
#[test]
fn a_lazy_discard_takes_whole_blocks() {
    for file in [File::Ours, File::Native, File::OursNative] {
        let uvm = Fake::with(&[(3, file)]);
        let lazily = |ranges: &[Range]| {
            let mut outcome = Outcome::default();
            // SAFETY: the fake touches no memory.
            let done = unsafe { uvm.discard_batch(ranges, Mode::Lazy, &mut outcome) };
            (done, outcome.done)
        };
        let parts = [
            range(MIB2, MIB2 - PAGE),
            range(MIB2 + PAGE, 2 * MIB2 - PAGE - 1),
        ];
        assert_eq!(lazily(&parts), (Ok(()), 2), "{file:?}");
        assert!(uvm.sys.log.lock().unwrap().is_empty() && !uvm.may_be_lazy());
        let over = [
            parts[0],
            range(MIB2 - PAGE, 2 * MIB2),
            range(4 * MIB2, 3 * MIB2 + PAGE),
        ];
        assert_eq!(lazily(&over), (Ok(()), 3), "{file:?}");
        let whole = [(MIB2, MIB2, 0), (4 * MIB2, 3 * MIB2, 0)];
        assert_eq!(*uvm.sys.log.lock().unwrap(), whole, "{file:?}");
        assert!(uvm.may_be_lazy());
        // With a prefetch in the same call it takes pages.
        uvm.sys.log.lock().unwrap().clear();
        // SAFETY: as above.
        let both = unsafe { uvm.discard_and_prefetch(parts[0], Place::Host) };
        assert_eq!(both, Ok(()));
        assert_eq!(*uvm.sys.log.lock().unwrap(), [(MIB2, MIB2 - PAGE, 0)]);
    }
}

/// The fake leaves nothing in part, but counts as uvm-rust's driver does, which splits no mapping.
#[test]
fn what_an_eager_discard_leaves_in_part_is_brought_to_the_host() {
    let nowhere = Place::Gpu([0; 16]);
    for (file, parts) in [(File::Ours, 2), (File::Native, 0)] {
        let uvm = Fake::with(&[(3, file)]);
        let over = range(MIB2 - PAGE, MIB2 + 2 * PAGE);
        // SAFETY: the fake touches no memory.
        let done = unsafe { uvm.discard_and_prefetch(over, nowhere) };
        assert_eq!(done, Err(Error::Driver));
        let host = |base, length| (base, length, uapi::CPU_UUID);
        let ends = [host(over.base, PAGE), host(2 * MIB2, PAGE)];
        assert_eq!(uvm.sys.migrated.lock().unwrap()[1..], ends[..parts]);
    }
}

/// One that fails is brought to the host, and the others are discarded.
#[test]
fn a_discard_that_can_not_be_ended_does_not_keep_the_others() {
    for (file, each) in [(File::Ours, 1), (File::Native, 2), (File::OursNative, 2)] {
        let uvm = Fake::with(&[(3, file)]);
        let ranges = [1, 4, 8].map(|n| range(n * MIB2, MIB2));
        *uvm.sys.fail.lock().unwrap() = Some((4 * MIB2, libc::ENOMEM, uapi::NV_ERR_NO_MEMORY));
        assert_eq!(uvm.end_lazy(&ranges), Err(Error::NoMemory), "{file:?}");
        let log = uvm.sys.log.lock().unwrap();
        let done = |n: usize| {
            log.iter()
                .filter(|l| **l == (ranges[n].base, MIB2, 1))
                .count()
        };
        assert_eq!([0, 1, 2].map(done), [each, 0, each], "{file:?}");
        // Only a migration ends it, once.
        let failed = [(4 * MIB2, MIB2, uapi::CPU_UUID)];
        assert_eq!(*uvm.sys.migrated.lock().unwrap(), failed, "{file:?}");
    }
}

/// A migration needs managed memory as well, so that it is of no use where a range is none.
#[test]
fn what_is_no_managed_memory_is_not_brought_to_the_host() {
    for (errno, moved) in [(libc::ENOMEM, 1), (libc::EIO, 1), (libc::ENXIO, 0)] {
        let uvm = Fake::with(&[(3, File::Ours)]);
        *uvm.sys.fail.lock().unwrap() = Some((MIB2, errno, 0));
        assert!(uvm.end_lazy(&[range(MIB2, MIB2)]).is_err());
        assert_eq!(uvm.sys.migrated.lock().unwrap().len(), moved, "{errno}");
    }
}

/// A driver that has no time is not asked for each range, each time for as long as anybody waits.
#[test]
fn a_driver_that_is_busy_is_not_asked_for_the_others() {
    let uvm = Fake::with(&[(3, File::Ours)]);
    uvm.backend();
    uvm.sys.calls.lock().unwrap().clear();
    *uvm.sys.fail.lock().unwrap() = Some((MIB2, libc::EAGAIN, 0));
    let ranges = [1, 4, 8].map(|n| range(n * MIB2, MIB2));
    assert_eq!(uvm.end_lazy(&ranges), Err(Error::Busy));
    assert_eq!(uvm.sys.calls.lock().unwrap().len(), 1);
}
