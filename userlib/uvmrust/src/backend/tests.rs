// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Against a system made up here: file descriptors, drivers, no CUDA. (CUDA and
//! streams: `tests/programs.rs`, in processes with a stub library.)

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

mod lazy;
mod place;

use super::*;
use crate::managed::Left;
use crate::sys::Chardev;
use crate::uapi::{DiscardBatch, Migrate, NativeDiscard, Version};

const MAJOR: u32 = 511;
const PAGE: u64 = 4096;
const MIB2: u64 = 2 << 20;
/// Longer than any test takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// What is behind a file descriptor.
#[derive(Clone, Copy, Debug, PartialEq)]
enum File {
    /// A file that is not UVM's.
    Other,
    /// UVM's device, on which UVM_INITIALIZE has not been called.
    Fresh,
    /// NVIDIA's driver before 580, which cannot discard.
    Old,
    /// NVIDIA's from 580 on.
    Native,
    /// uvm-rust's driver, with all its features.
    Ours,
    /// Ours with discard turned off.
    OursOff,
    /// Ours from 580 on, built or loaded so that NVIDIA's discard stands behind our call.
    OursNative,
}

#[derive(Default)]
struct Fake {
    files: Mutex<BTreeMap<i32, File>>,
    /// Fails the range with this base, with this errno or status.
    fail: Mutex<Option<(u64, i32, u32)>>,
    /// Not before so many calls of it have succeeded.
    fail_after: AtomicU32,
    /// (base, length, flags) of every range discarded, and calls made.
    log: Mutex<Vec<(u64, u64, u64)>>,
    calls: Mutex<Vec<(i32, u32)>>,
    migrated: Mutex<Vec<(u64, u64, [u8; 16])>>,
    busy: Mutex<u32>,
    /// The status of each migration that would succeed, if it is not 0.
    migrate_fails: Mutex<u32>,
    /// For how long a driver is asked again, if not for [`PATIENCE`].
    patience: Mutex<Option<Duration>>,
    /// What lies between this process and the first, and whether UVM was open there.
    forks: AtomicU32,
    inherited: AtomicBool,
    /// The descriptor that UVM knows for another process's, or 0.
    foreign: AtomicI32,
    cuda: Option<Cuda>,
}

impl Fake {
    fn with(files: &[(i32, File)]) -> Uvm<Self> {
        let fake = Self::default();
        *fake.files.lock().unwrap() = files.iter().copied().collect();
        Uvm::new(fake)
    }

    fn discard_one(
        &self,
        base: u64,
        length: u64,
        flags: u64,
    ) -> std::result::Result<(), (i32, u32)> {
        if let Some((bad, errno, status)) = *self.fail.lock().unwrap() {
            let earlier = self.log.lock().unwrap();
            let earlier = earlier.iter().filter(|(b, ..)| *b == base).count();
            if bad == base && earlier >= self.fail_after.load(Relaxed) as usize {
                return Err((errno, status));
            }
        }
        self.log.lock().unwrap().push((base, length, flags));
        Ok(())
    }

    fn batch(&self, params: &mut DiscardBatch) -> std::result::Result<(), i32> {
        assert_eq!(params.size, 56);
        assert_eq!(params.range_size, 16);
        for i in 0..params.range_count {
            let at = params.ranges as *const Range;
            // SAFETY: the caller's array has `range_count` elements.
            let range = unsafe { *at.add(i as usize) };
            assert!(range.base % PAGE == 0 && range.length % PAGE == 0 && range.length > 0);
            params.first_failed = i;
            self.discard_one(range.base, range.length, params.flags.into())
                .map_err(|e| e.0)?;
            params.blocks_discarded += range.length / MIB2;
            params.blocks_partial += (range.length % MIB2 != 0) as u64;
        }
        params.first_failed = params.range_count;
        Ok(())
    }
}

// SAFETY: it accesses the structures of the numbers alone.
unsafe impl Sys for Fake {
    unsafe fn ioctl(&self, fd: i32, nr: u32, arg: *mut c_void) -> std::result::Result<(), i32> {
        use File::*;
        self.calls.lock().unwrap().push((fd, nr));
        let file = self
            .files
            .lock()
            .unwrap()
            .get(&fd)
            .copied()
            .unwrap_or(Other);
        match (nr, file) {
            (_, Other) => panic!("ioctl {nr:#x} on a file that is not UVM"),
            (uapi::GET_VERSION, Ours | Fresh | OursOff | OursNative) => {
                // SAFETY: the structure of this number.
                let params = unsafe { &mut *arg.cast::<Version>() };
                params.features = match file {
                    OursOff => 1,
                    OursNative => 1 | uapi::FEATURE_DISCARD | uapi::FEATURE_NATIVE_DISCARD,
                    _ => 1 | uapi::FEATURE_DISCARD | uapi::FEATURE_EXEC_ID,
                };
                Ok(())
            }
            // SAFETY: the structure of this number.
            (uapi::DISCARD_BATCH, Ours | OursNative) => self.batch(unsafe { &mut *arg.cast() }),
            (uapi::DISCARD_BATCH | uapi::ANNOUNCE, Fresh) => Err(libc::EPERM),
            (uapi::ANNOUNCE, Ours) => {
                // SAFETY: the structure of this number.
                let params = unsafe { &*arg.cast::<Announce>() };
                match params.gpu_uuid {
                    [7, ..] => Ok(()),
                    _ => Err(libc::ENODEV),
                }
            }
            (uapi::UVM_DISCARD, Native | Ours | OursOff | OursNative | Fresh) => {
                // SAFETY: the structure of this number.
                let params = unsafe { &mut *arg.cast::<NativeDiscard>() };
                params.status = match file {
                    Fresh => uapi::NV_ERR_ILLEGAL_ACTION,
                    OursOff => uapi::NV_ERR_NOT_SUPPORTED,
                    _ if params.flags > 1 => uapi::NV_ERR_INVALID_ARGUMENT,
                    _ => self
                        .discard_one(params.base, params.length, params.flags)
                        .map_or_else(|e| e.1, |()| 0),
                };
                Ok(())
            }
            (uapi::UVM_MIGRATE, _) => {
                // SAFETY: the structure of this number.
                let params = unsafe { &mut *arg.cast::<Migrate>() };
                if params.length == 0 || file == Fresh {
                    params.status = match file {
                        Fresh => uapi::NV_ERR_ILLEGAL_ACTION,
                        _ => uapi::NV_ERR_INVALID_ADDRESS,
                    };
                    return Ok(());
                }
                let mut busy = self.busy.lock().unwrap();
                params.status = if params.destination == [0; 16] {
                    uapi::NV_ERR_INVALID_DEVICE
                } else if *busy > 0 {
                    uapi::NV_ERR_BUSY_RETRY
                } else {
                    *self.migrate_fails.lock().unwrap()
                };
                *busy = busy.saturating_sub(1);
                let moved = (params.base, params.length, params.destination);
                self.migrated.lock().unwrap().push(moved);
                Ok(())
            }
            _ => Err(libc::ENOSYS),
        }
    }

    fn chardev(&self, fd: i32) -> Option<Chardev> {
        let major = match *self.files.lock().unwrap().get(&fd)? {
            File::Other => 1,
            _ => MAJOR,
        };
        Some(Chardev { major, minor: 0 })
    }

    fn each_fd(&self, visit: &mut dyn FnMut(i32) -> bool) {
        let fds: Vec<_> = self.files.lock().unwrap().keys().copied().collect();
        fds.into_iter().all(visit);
    }

    fn uvm_major(&self) -> Option<u32> {
        Some(MAJOR)
    }

    fn cuda(&self) -> Option<&Cuda> {
        self.cuda.as_ref()
    }

    fn patience(&self) -> Duration {
        self.patience.lock().unwrap().unwrap_or(PATIENCE)
    }

    fn foreign(&self, fd: i32) -> bool {
        self.foreign.load(Relaxed) == fd
    }

    fn forks(&self) -> u32 {
        self.forks.load(Relaxed)
    }

    fn inherited(&self) -> bool {
        self.inherited.load(Relaxed)
    }
}

fn range(base: u64, length: u64) -> Range {
    Range { base, length }
}

fn discard(uvm: &Uvm<Fake>, r: Range, mode: Mode) -> Result<()> {
    // SAFETY: the fake touches no memory.
    unsafe { uvm.discard(r, mode) }
}

fn discard_batch(uvm: &Uvm<Fake>, r: &[Range], mode: Mode) -> (Result<()>, Outcome) {
    let mut outcome = Outcome::default();
    // SAFETY: the fake touches no memory.
    (unsafe { uvm.discard_batch(r, mode, &mut outcome) }, outcome)
}

#[test]
fn finds_the_initialised_descriptor_among_others() {
    use File::*;
    let uvm = Fake::with(&[(0, Other), (3, Fresh), (5, Other), (9, Ours)]);
    assert_eq!(uvm.backend(), Backend::UvmRust);
    assert_eq!(discard(&uvm, range(MIB2, MIB2), Mode::Eager), Ok(()));
    assert_eq!(*uvm.sys.log.lock().unwrap(), [(MIB2, MIB2, 1)]);
    let uvm = Fake::with(&[(3, Fresh), (4, Native)]);
    assert_eq!(uvm.backend(), Backend::Native);
    assert_eq!(discard(&uvm, range(MIB2, MIB2), Mode::Lazy), Ok(()));
    assert_eq!(*uvm.sys.log.lock().unwrap(), [(MIB2, MIB2, 0)]);
}

#[test]
fn says_not_supported_where_nobody_can_and_asks_once() {
    use File::*;
    for file in [Old, OursOff] {
        let uvm = Fake::with(&[(3, file)]);
        assert_eq!(
            discard(&uvm, range(MIB2, MIB2), Mode::Eager),
            Err(Error::NotSupported)
        );
        let asked = uvm.sys.calls.lock().unwrap().len();
        assert_eq!(
            discard(&uvm, range(MIB2, MIB2), Mode::Lazy),
            Err(Error::NotSupported)
        );
        assert_eq!(uvm.sys.calls.lock().unwrap().len(), asked, "{file:?}");
        assert!(uvm.sys.log.lock().unwrap().is_empty());
    }
}

#[test]
fn uvm_may_come_later_and_go_and_change_its_number() {
    let uvm = Fake::with(&[(0, File::Other)]);
    assert_eq!(uvm.backend(), Backend::None);
    uvm.sys.files.lock().unwrap().insert(7, File::Ours);
    assert_eq!(uvm.backend(), Backend::UvmRust);
    // CUDA closes it, the number is taken by another file: it is not touched.
    uvm.sys.files.lock().unwrap().insert(7, File::Other);
    assert_eq!(
        discard(&uvm, range(MIB2, MIB2), Mode::Eager),
        Err(Error::NotSupported)
    );
    uvm.sys.files.lock().unwrap().insert(8, File::Native);
    assert_eq!(discard(&uvm, range(MIB2, MIB2), Mode::Eager), Ok(()));
    // The same number, not initialised any more: noticed by the error.
    uvm.sys.files.lock().unwrap().insert(8, File::Fresh);
    uvm.sys.files.lock().unwrap().insert(9, File::Ours);
    assert_eq!(
        discard(&uvm, range(MIB2, MIB2), Mode::Eager),
        Err(Error::NotSupported)
    );
    assert_eq!(discard(&uvm, range(MIB2, MIB2), Mode::Eager), Ok(()));
    assert_eq!(uvm.backend(), Backend::UvmRust);
}

/// CUDA opens UVM's device first and initialises it later.
#[test]
fn a_descriptor_that_is_not_initialised_yet_is_asked_again() {
    for file in [File::Ours, File::Native] {
        let uvm = Fake::with(&[(3, File::Fresh)]);
        assert_eq!((uvm.backend(), uvm.can_announce()), (Backend::None, None));
        uvm.sys.files.lock().unwrap().insert(3, file);
        assert_ne!(uvm.backend(), Backend::None, "{file:?}");
        assert_eq!(uvm.can_announce(), Some(file == File::Ours));
    }
    let uvm = Fake::with(&[(3, File::Fresh)]);
    uvm.use_fd(Some(3));
    assert_eq!(uvm.backend(), Backend::None);
    uvm.sys.files.lock().unwrap().insert(3, File::Native);
    assert_eq!(uvm.backend(), Backend::Native);
}

/// NVIDIA's discard refuses a process that uses a GPU that cannot fault; its migrate
/// refuses a GPU that the process does not use.
#[test]
fn an_invalid_device_is_another_thing_to_each_call() {
    let uvm = Fake::with(&[(3, File::Native)]);
    assert_eq!(uvm.backend(), Backend::Native);
    *uvm.sys.fail.lock().unwrap() = Some((MIB2, 0, uapi::NV_ERR_INVALID_DEVICE));
    assert_eq!(
        discard(&uvm, range(MIB2, MIB2), Mode::Eager),
        Err(Error::NotSupported)
    );
    assert_eq!(
        uvm.prefetch(range(MIB2, MIB2), Place::Gpu([0; 16])),
        Err(Error::NoDevice)
    );
}

#[test]
fn an_invalid_value_is_about_memory_only_where_memory_is_given() {
    assert_eq!(crate::cuda::check(1), Err(Error::Invalid));
    assert_eq!(crate::cuda::check(400), Err(Error::Invalid));
}

#[test]
fn a_child_uses_what_it_has_opened_itself() {
    let fork = |uvm: &Uvm<Fake>, inherited| {
        uvm.sys.forks.fetch_add(1, Relaxed);
        uvm.sys.inherited.store(inherited, Relaxed);
    };
    let uvm = Fake::with(&[(3, File::Ours)]);
    assert_eq!(uvm.backend(), Backend::UvmRust);
    assert_eq!(uvm.can_announce(), Some(true));
    fork(&uvm, true);
    assert_eq!((uvm.backend(), uvm.can_announce()), (Backend::None, None));
    assert_eq!(uvm.announce([7; 16], 1), Err(Error::NotSupported));
    let prefetched = uvm.prefetch(range(MIB2, MIB2), Place::Host);
    assert_eq!(prefetched, Err(Error::NotSupported));
    uvm.use_fd(Some(3));
    assert_eq!(uvm.backend(), Backend::UvmRust);
    // Its own child has inherited that.
    fork(&uvm, true);
    assert_eq!(uvm.backend(), Backend::None);
    // A parent without UVM: the child looks for itself, whatever the parent has found.
    let uvm = Fake::with(&[(0, File::Other)]);
    assert_eq!(uvm.backend(), Backend::None);
    fork(&uvm, false);
    uvm.sys.files.lock().unwrap().insert(4, File::Native);
    assert_eq!(uvm.backend(), Backend::Native);
}

/// As in a child that has loaded the library after the fork: nothing was noticed.
#[test]
fn what_uvm_knows_for_another_processs_is_not_used() {
    for given in [None, Some(3)] {
        let uvm = Fake::with(&[(3, File::Ours)]);
        uvm.sys.foreign.store(3, Relaxed);
        uvm.use_fd(given);
        assert_eq!(uvm.backend(), Backend::None);
        assert_ne!(uvm.can_announce(), Some(true));
        // CUDA is initialised at last.
        uvm.sys.files.lock().unwrap().insert(4, File::Native);
        if given.is_none() {
            assert_eq!(uvm.backend(), Backend::Native);
        }
    }
}

/// In such a child CUDA is not initialised, whoever's descriptor is there.
#[test]
fn a_descriptor_is_found_once_cuda_is_initialised_here() {
    static CODE: AtomicI32 = AtomicI32::new(3);
    unsafe extern "C" fn count(_: *mut i32) -> i32 {
        CODE.load(Relaxed)
    }
    let mut uvm = Fake::with(&[(3, File::Ours)]);
    uvm.sys.cuda = Some(Cuda {
        device_count: Some(count),
        ..Cuda::default()
    });
    assert_eq!(uvm.backend(), Backend::None);
    assert_eq!(uvm.can_announce(), None);
    uvm.use_fd(Some(3));
    assert_eq!(uvm.backend(), Backend::UvmRust);
    uvm.use_fd(None);
    assert_eq!(uvm.backend(), Backend::None);
    CODE.store(0, Relaxed);
    assert_eq!(uvm.backend(), Backend::UvmRust);
    assert_eq!(uvm.can_announce(), Some(true));
    // CUDA's own discard is none before either.
    CODE.store(3, Relaxed);
    unsafe extern "C" fn no_discard(
        _: *mut u64,
        _: *mut usize,
        _: usize,
        _: *mut cuda::Location,
        _: *mut usize,
        _: usize,
        _: u64,
        _: cuda::Stream,
    ) -> i32 {
        3
    }
    for given in [None, Some(3)] {
        let mut uvm = Fake::with(&[(3, File::Old)]);
        uvm.sys.cuda = Some(Cuda {
            device_count: Some(count),
            mem_discard_and_prefetch_batch: Some(no_discard),
            ..Cuda::default()
        });
        uvm.use_fd(given);
        CODE.store(3, Relaxed);
        assert_eq!(uvm.backend(), Backend::None);
        CODE.store(0, Relaxed);
        uvm.use_fd(given);
        assert_eq!(uvm.backend(), Backend::Cuda);
    }
}

#[test]
fn a_given_descriptor_is_used_as_it_is() {
    let uvm = Fake::with(&[(3, File::Ours), (4, File::Native)]);
    uvm.use_fd(Some(4));
    assert_eq!(uvm.backend(), Backend::Native);
    uvm.use_fd(None);
    assert_eq!(uvm.backend(), Backend::UvmRust);
}

#[test]
fn a_batch_is_one_call_and_is_counted() {
    let uvm = Fake::with(&[(3, File::Ours)]);
    uvm.backend();
    uvm.sys.calls.lock().unwrap().clear();
    let ranges: Vec<_> = (1..=1000)
        .map(|i| range(i * 4 * MIB2, MIB2 + PAGE))
        .collect();
    let (result, outcome) = discard_batch(&uvm, &ranges, Mode::Eager);
    assert_eq!(result, Ok(()));
    assert_eq!(uvm.sys.calls.lock().unwrap().len(), 1);
    let expected = Outcome {
        done: 1000,
        counted: true,
        blocks_discarded: 1000,
        blocks_skipped: 0,
        blocks_partial: 1000,
    };
    assert_eq!(outcome, expected);
}

#[test]
fn ranges_are_cut_to_pages_and_empty_ones_left_out() {
    for file in [File::Ours, File::Native] {
        let uvm = Fake::with(&[(3, file)]);
        let ranges = [
            range(PAGE + 1, 2 * PAGE),
            range(5, 6),
            range(0, 0),
            range(9 * PAGE, PAGE),
        ];
        let (result, outcome) = discard_batch(&uvm, &ranges, Mode::Eager);
        assert_eq!((result, outcome.done), (Ok(()), 4));
        let mut log = uvm.sys.log.lock().unwrap().clone();
        log.dedup();
        assert_eq!(log, [(2 * PAGE, PAGE, 1), (9 * PAGE, PAGE, 1)], "{file:?}");
    }
}

#[test]
fn a_failed_range_is_named_whatever_the_path() {
    for file in [File::Ours, File::Native] {
        for ragged in [0, 1] {
            for bad in [0, 63, 64, 100, 129] {
                let uvm = Fake::with(&[(3, file)]);
                // An empty range in front of each shifts the indices.
                let ranges: Vec<_> = (0..130)
                    .map(|i| match i % 2 {
                        1 if ragged == 1 => range(1, 2),
                        _ => range((i + 1) * MIB2, MIB2),
                    })
                    .collect();
                let bad = if ragged == 1 { bad & !1 } else { bad };
                let base = ranges[bad].base;
                *uvm.sys.fail.lock().unwrap() =
                    Some((base, libc::ENXIO, uapi::NV_ERR_INVALID_ADDRESS));
                let (result, outcome) = discard_batch(&uvm, &ranges, Mode::Eager);
                assert_eq!(result, Err(Error::NotManaged), "{file:?} {bad}");
                assert_eq!(outcome.done, bad, "{file:?} ragged {ragged}");
            }
        }
    }
}

/// NVIDIA's driver notes a discard before it unmaps, and does not undo that where the unmap fails:
/// what is written then would be lost. A migration ends that.
#[test]
fn an_eager_discard_that_fails_leaves_nothing_lazily_discarded() {
    let moved_by = |file, status, mode| {
        let uvm = Fake::with(&[(3, file)]);
        *uvm.sys.patience.lock().unwrap() = Some(Duration::ZERO);
        *uvm.sys.fail.lock().unwrap() = Some((2 * MIB2, 0, status));
        let ranges = [range(MIB2, MIB2), range(2 * MIB2 - 1, MIB2 + 2)];
        let (result, outcome) = discard_batch(&uvm, &ranges, mode);
        assert!(result.is_err());
        assert_eq!(outcome.done, 1);
        let migrated = uvm.sys.migrated.lock().unwrap().clone();
        (result, migrated)
    };
    let moved = |status, mode| {
        let seen = moved_by(File::Native, status, mode);
        let behind_ours = moved_by(File::OursNative, status, mode);
        assert_eq!(behind_ours, seen, "{status:#x} {mode:?}");
        seen
    };
    let to_the_host = vec![(2 * MIB2, MIB2, uapi::CPU_UUID)];
    for status in [
        uapi::NV_ERR_NO_MEMORY,
        uapi::NV_ERR_BUSY_RETRY,
        uapi::NV_ERR_OUT_OF_RANGE,
        0xffff,
    ] {
        assert_eq!(moved(status, Mode::Eager).1, to_the_host, "{status:#x}");
        // After a lazy one the caller prefetches in any case, and knows whereto.
        assert!(moved(status, Mode::Lazy).1.is_empty(), "{status:#x}");
    }
    for status in [
        uapi::NV_ERR_INVALID_ADDRESS,
        uapi::NV_ERR_INVALID_ARGUMENT,
        uapi::NV_ERR_INVALID_DEVICE,
        uapi::NV_WARN_NOTHING_TO_DO,
        uapi::NV_ERR_ILLEGAL_ACTION,
        uapi::NV_ERR_NOT_SUPPORTED,
    ] {
        assert!(moved(status, Mode::Eager).1.is_empty(), "{status:#x}");
    }
    let no_memory = moved(uapi::NV_ERR_NO_MEMORY, Mode::Eager).0;
    assert_eq!(no_memory, Err(Error::NoMemory));
    // An error that would say that nothing has changed.
    for mode in [Mode::Eager, Mode::Lazy] {
        let late = moved(uapi::NV_ERR_OUT_OF_RANGE, mode).0;
        assert_eq!(late, Err(Error::Driver), "{mode:?}");
    }
}

/// The first of NVIDIA's calls leaves the other pages of a block mapped where some were read-duplicated.
#[test]
fn an_eager_discard_by_nvidias_driver_is_two_calls() {
    for (file, mode, calls) in [
        (File::Native, Mode::Eager, 2),
        (File::Native, Mode::Lazy, 1),
        (File::OursNative, Mode::Eager, 2),
        (File::OursNative, Mode::Lazy, 1),
        (File::Ours, Mode::Eager, 1),
    ] {
        let uvm = Fake::with(&[(3, file)]);
        let backend = match file {
            File::Native => Backend::Native,
            _ => Backend::UvmRust,
        };
        assert_eq!(uvm.backend(), backend, "{file:?}");
        let ranges = [range(MIB2, MIB2), range(4 * MIB2, MIB2)];
        let (result, outcome) = discard_batch(&uvm, &ranges, mode);
        assert_eq!((result, outcome.done), (Ok(()), 2));
        assert_eq!(
            uvm.sys.log.lock().unwrap().len(),
            2 * calls,
            "{file:?} {mode:?}"
        );
    }
    // The second fails: not without a change, and nothing stays lazily discarded.
    for (status, told) in [
        (uapi::NV_ERR_NO_MEMORY, Error::NoMemory),
        (uapi::NV_ERR_INVALID_ADDRESS, Error::NotManaged),
        (uapi::NV_ERR_INVALID_ARGUMENT, Error::Driver),
        (uapi::NV_ERR_INVALID_DEVICE, Error::Driver),
        (uapi::NV_ERR_ILLEGAL_ACTION, Error::Driver),
    ] {
        let uvm = Fake::with(&[(3, File::Native)]);
        uvm.sys.fail_after.store(1, Relaxed);
        *uvm.sys.fail.lock().unwrap() = Some((MIB2, 0, status));
        let (result, outcome) = discard_batch(&uvm, &[range(MIB2, MIB2)], Mode::Eager);
        assert_eq!((result, outcome.done), (Err(told), 0), "{status:#x}");
        let to_the_host = [(MIB2, MIB2, uapi::CPU_UUID)];
        assert_eq!(*uvm.sys.migrated.lock().unwrap(), to_the_host);
    }
}

/// [`Error::NotSupported`] says that nothing has happened.
#[test]
fn a_batch_that_is_refused_half_way_has_not_done_nothing() {
    for file in [File::Ours, File::Native] {
        for ragged in [0, 1] {
            for (bad, error) in [(0, Error::NotSupported), (1, Error::Driver)] {
                let uvm = Fake::with(&[(3, file)]);
                let ranges = [range(MIB2 + ragged, MIB2), range(4 * MIB2, MIB2)];
                let base = ranges[bad].shrunk().unwrap().base;
                *uvm.sys.fail.lock().unwrap() =
                    Some((base, libc::EOPNOTSUPP, uapi::NV_ERR_INVALID_DEVICE));
                let (result, outcome) = discard_batch(&uvm, &ranges, Mode::Eager);
                assert_eq!((result, outcome.done), (Err(error), bad), "{file:?}");
                // A range without a whole page in front of it changes nothing either.
                let ranges = [range(MIB2 + 1, 5), ranges[bad]];
                let (result, outcome) = discard_batch(&uvm, &ranges, Mode::Eager);
                let refused = Err(Error::NotSupported);
                assert_eq!((result, outcome.done), (refused, 1), "{file:?}");
            }
        }
    }
}

#[test]
fn a_range_beyond_the_address_space_stops_the_batch() {
    for file in [File::Ours, File::Native] {
        let uvm = Fake::with(&[(3, file)]);
        let ranges = [
            range(MIB2, MIB2),
            range(u64::MAX - 1, 2),
            range(4 * MIB2, MIB2),
        ];
        let (result, outcome) = discard_batch(&uvm, &ranges, Mode::Eager);
        assert_eq!((result, outcome.done), (Err(Error::Invalid), 1), "{file:?}");
        let log = uvm.sys.log.lock().unwrap();
        assert!(log.iter().all(|range| *range == (MIB2, MIB2, 1)));
    }
}

#[test]
fn prefetch_takes_all_touched_pages_and_waits_while_busy() {
    // Also on a driver without discard.
    for file in [File::Ours, File::Native] {
        let uvm = Fake::with(&[(3, file)]);
        *uvm.sys.busy.lock().unwrap() = 2;
        assert_eq!(
            uvm.prefetch(range(PAGE + 1, PAGE), Place::Gpu([9; 16])),
            Ok(())
        );
        let migrated = uvm.sys.migrated.lock().unwrap();
        assert_eq!(*migrated, [(PAGE, 2 * PAGE, [9; 16]); 3]);
    }
}

/// NVIDIA's calls say by their status that a driver has no time. The one here has some in the
/// end, later than anybody is to wait for it.
#[test]
fn a_driver_that_stays_busy_is_given_up() {
    let uvm = Fake::with(&[(3, File::Native)]);
    *uvm.sys.busy.lock().unwrap() = 1_000_000;
    *uvm.sys.patience.lock().unwrap() = Some(Duration::from_millis(1));
    assert_eq!(
        uvm.prefetch(range(MIB2, MIB2), Place::Host),
        Err(Error::Busy)
    );
}

/// Where memory is lazily discarded, the others are needed all the more.
#[test]
fn a_range_that_does_not_come_does_not_keep_the_others() {
    let uvm = Fake::with(&[(3, File::Ours)]);
    let ranges = [range(MIB2, MIB2), range(7, 0), range(4 * MIB2, 1)];
    let nowhere = Place::Gpu([0; 16]);
    assert_eq!(uvm.prefetch_batch(&ranges, nowhere), Err(Error::NoDevice));
    let tried = |length, base| (base, length, [0; 16]);
    let all = [tried(MIB2, MIB2), tried(PAGE, 4 * MIB2)];
    assert_eq!(*uvm.sys.migrated.lock().unwrap(), all);
    // The discard comes first, and its prefetch also where the discard has failed half-way.
    uvm.sys.migrated.lock().unwrap().clear();
    *uvm.sys.fail.lock().unwrap() = Some((4 * MIB2, libc::ENOMEM, 0));
    let both = [range(MIB2, MIB2), range(4 * MIB2, MIB2)];
    // SAFETY: the fake touches no memory.
    let done = unsafe { uvm.discard_and_prefetch_batch(&both, Place::Gpu([1; 16])) };
    assert_eq!(done, Err(Error::NoMemory));
    assert_eq!(*uvm.sys.log.lock().unwrap(), [(MIB2, MIB2, 0)]);
    assert_eq!(uvm.sys.migrated.lock().unwrap().len(), 2);
}

#[test]
fn a_range_beyond_the_address_space_moves_nothing() {
    for file in [File::Ours, File::Native, File::Old] {
        let uvm = Fake::with(&[(3, file)]);
        let ranges = [range(MIB2, MIB2), range(u64::MAX - 1, 2)];
        assert_eq!(
            uvm.prefetch_batch(&ranges, Place::Host),
            Err(Error::Invalid)
        );
        // SAFETY: the fake touches no memory.
        let done = unsafe { uvm.discard_and_prefetch_batch(&ranges, Place::Host) };
        assert_eq!(done, Err(Error::Invalid));
        assert!(uvm.sys.log.lock().unwrap().is_empty());
        assert!(uvm.sys.migrated.lock().unwrap().is_empty(), "{file:?}");
    }
}

#[test]
fn prefetch_works_on_a_driver_without_discard() {
    let uvm = Fake::with(&[(3, File::Old)]);
    assert_eq!(uvm.prefetch(range(PAGE, PAGE), Place::Host), Ok(()));
    assert_eq!(
        *uvm.sys.migrated.lock().unwrap(),
        [(PAGE, PAGE, uapi::CPU_UUID)]
    );
}

#[test]
fn announcements_need_the_feature_and_a_gpu() {
    let uvm = Fake::with(&[(0, File::Other)]);
    assert_eq!(uvm.can_announce(), None);
    uvm.sys.files.lock().unwrap().insert(3, File::Fresh);
    uvm.sys.files.lock().unwrap().insert(4, File::Ours);
    assert_eq!(uvm.can_announce(), Some(true));
    assert_eq!(uvm.announce([7; 16], 42), Ok(()));
    assert_eq!(uvm.announce([8; 16], 42), Err(Error::NoDevice));
    uvm.sys.files.lock().unwrap().insert(4, File::Other);
    assert_eq!(uvm.announce([7; 16], 42), Err(Error::NotSupported));
    let uvm = Fake::with(&[(3, File::Native)]);
    assert_eq!(uvm.can_announce(), Some(false));
    assert_eq!(uvm.announce([7; 16], 42), Err(Error::NotSupported));
}

struct Buffer(Range);

impl std::fmt::Debug for Buffer {
    fn fmt(&self, _f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        panic!("this shows the contents");
    }
}

#[test]
fn what_is_lazily_discarded_is_not_read_to_be_shown() {
    let uvm = Fake::with(&[(3, File::Ours)]);
    let lazy = crate::discard_lazy(&uvm, Buffer(range(MIB2, MIB2)));
    let shown = format!("{:?}", lazy.ok().unwrap());
    assert!(shown.contains("2097152"), "{shown}");
}

// SAFETY: there is no memory.
unsafe impl crate::Managed for Buffer {
    fn range(&self) -> Range {
        self.0
    }
}

#[test]
fn owners_discard_safely() {
    let uvm = Fake::with(&[(3, File::Ours)]);
    let buffer = Buffer(range(MIB2, MIB2));
    let discarded = crate::discard(&uvm, buffer).ok().unwrap();
    // SAFETY: there is no memory, and so nothing to write.
    let buffer = unsafe { discarded.assume_written() };
    let lazy = crate::discard_lazy(&uvm, buffer).ok().unwrap();
    let discarded = lazy.prefetch(&uvm, Place::Gpu([1; 16])).ok().unwrap();
    assert_eq!(discarded.range(), range(MIB2, MIB2));
    assert_eq!(
        *uvm.sys.log.lock().unwrap(),
        [(MIB2, MIB2, 1), (MIB2, MIB2, 0)]
    );
    // SAFETY: as above.
    let buffer = unsafe { discarded.assume_written() };
    // Not to be had back without a prefetch after a failure half-way.
    *uvm.sys.fail.lock().unwrap() = Some((MIB2, libc::ENOMEM, 0));
    let before = uvm.sys.migrated.lock().unwrap().len();
    let (_buffer, error) = crate::discard_lazy(&uvm, buffer).err().unwrap();
    assert_eq!(error, Error::NoMemory);
    assert_eq!(uvm.sys.migrated.lock().unwrap().len(), before + 1);
}

/// What a discard that fails may have left lazily discarded is not written before it is prefetched.
#[test]
fn an_owner_of_what_may_be_lazily_discarded_prefetches_it() {
    for file in [File::Native, File::Ours] {
        let uvm = Fake::with(&[(3, file)]);
        let failed = |errno, status, migration| {
            *uvm.sys.fail.lock().unwrap() = Some((MIB2, errno, status));
            *uvm.sys.migrate_fails.lock().unwrap() = migration;
            uvm.sys.migrated.lock().unwrap().clear();
            let (left, error) = crate::discard(&uvm, Buffer(range(MIB2, MIB2)))
                .err()
                .unwrap();
            (left, error, uvm.sys.migrated.lock().unwrap().len())
        };
        let no_memory = uapi::NV_ERR_NO_MEMORY;
        let (left, error, migrated) = failed(libc::ENOMEM, no_memory, 0);
        assert_eq!(error, Error::NoMemory);
        assert!(
            matches!(left, Left::Discarded(_)) && migrated > 0,
            "{file:?}"
        );
        let (left, error, _) = failed(libc::ENOMEM, no_memory, no_memory);
        assert_eq!(error, Error::NoMemory);
        let Left::Lazy(lazy) = left else {
            panic!("{file:?}: it can be written");
        };
        // Once there is memory again.
        *uvm.sys.migrate_fails.lock().unwrap() = 0;
        assert!(lazy.prefetch(&uvm, Place::Host).is_ok());
        // Nothing has changed, so that nothing needs a prefetch.
        let refused = uapi::NV_ERR_INVALID_DEVICE;
        let (left, error, migrated) = failed(libc::EOPNOTSUPP, refused, no_memory);
        assert_eq!((error, migrated), (Error::NotSupported, 0), "{file:?}");
        assert!(matches!(left, Left::Discarded(_)), "{file:?}");
    }
}

/// Real memory, as managed memory is: nobody else's.
struct Pages(*mut u64, usize);

impl Pages {
    fn new(words: usize, value: u64) -> Self {
        let words: &mut [u64] = Box::leak(vec![value; words].into());
        let first = words.as_mut_ptr();
        first.expose_provenance();
        Self(first, words.len())
    }

    fn words(&self) -> &[u64] {
        // SAFETY: ours for as long as we live; written when there is one of these.
        unsafe { std::slice::from_raw_parts(self.0, self.1) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        let words = std::ptr::slice_from_raw_parts_mut(self.0, self.1);
        // SAFETY: from `Box::leak` in `new`.
        drop(unsafe { Box::from_raw(words) });
    }
}

// SAFETY: the memory is ours, and stays where it is; its address is exposed; nothing reads
// it by the way, and the fake discards nothing.
unsafe impl crate::Managed for Pages {
    fn range(&self) -> Range {
        range(self.0.addr() as u64, 8 * self.1 as u64)
    }
}

#[test]
fn what_is_discarded_is_written_before_it_is_read() {
    for file in [File::Ours, File::Native, File::Old] {
        let uvm = Fake::with(&[(3, file)]);
        let again = |discarded: core::result::Result<_, (Left<_>, Error)>| match discarded {
            Ok(discarded) | Err((Left::Discarded(discarded), _)) => discarded,
            Err((left, _)) => panic!("{left:?}"),
        };
        let discarded = again(crate::discard(&uvm, Pages::new(1024, 3)));
        let zeroed: Pages = discarded.zeroed();
        assert!(zeroed.words().iter().all(|&word| word == 0), "{file:?}");
        let mut discarded = again(crate::discard(&uvm, zeroed));
        discarded.bytes().fill(core::mem::MaybeUninit::new(1));
        // SAFETY: all of it is written.
        let written = unsafe { discarded.assume_written() };
        assert!(written
            .words()
            .iter()
            .all(|&word| word == 0x0101_0101_0101_0101));
    }
}

#[test]
fn threads_find_the_same_backend() {
    let uvm = Fake::with(&[(3, File::Fresh), (4, File::Ours)]);
    std::thread::scope(|scope| {
        for t in 0..8 {
            let uvm = &uvm;
            scope.spawn(move || {
                for i in 1..200 {
                    let base = (t * 1000 + i) * MIB2;
                    assert_eq!(discard(uvm, range(base, MIB2), Mode::Lazy), Ok(()));
                }
            });
        }
    });
    assert_eq!(uvm.sys.log.lock().unwrap().len(), 8 * 199);
}
