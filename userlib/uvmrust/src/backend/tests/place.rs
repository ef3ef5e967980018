// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What CUDA says of a GPU that is named by its UUID.

use super::*;

const SEEN: [u8; 16] = [1; 16];
const UNSEEN: [u8; 16] = [2; 16];
/// Of three devices, the one of which nothing is to be learned.
static SICK: AtomicI32 = AtomicI32::new(-1);

unsafe extern "C" fn count(to: *mut i32) -> i32 {
    // SAFETY: the library gives a writable output.
    unsafe { to.write(3) };
    0
}

unsafe extern "C" fn get(to: *mut i32, ordinal: i32) -> i32 {
    // SAFETY: the library gives a writable output.
    unsafe { to.write(ordinal) };
    0
}

/// The last device is [`SEEN`].
unsafe extern "C" fn uuid(to: *mut [u8; 16], device: i32) -> i32 {
    if device == SICK.load(Relaxed) {
        // CUDA_ERROR_UNKNOWN.
        return 999;
    }
    let of = if device == 2 { SEEN } else { [9; 16] };
    // SAFETY: the library gives a writable output.
    unsafe { to.write(of) };
    0
}

fn three() -> Cuda {
    Cuda {
        device_count: Some(count),
        device_get: Some(get),
        device_uuid: Some(uuid),
        ..Cuda::default()
    }
}

/// A GPU that does not answer may be the one, so nobody says that there is none.
#[test]
fn a_device_without_an_answer_is_not_another_one() {
    let cuda = three();
    for (sick, unseen) in [(-1, Error::NoDevice), (0, Error::Driver)] {
        SICK.store(sick, Relaxed);
        assert_eq!(cuda.ordinal(&SEEN), Ok(2));
        assert_eq!(cuda.ordinal(&UNSEEN), Err(unseen));
    }
    SICK.store(2, Relaxed);
    assert_eq!(cuda.ordinal(&SEEN), Err(Error::Driver));
    SICK.store(-1, Relaxed);
}

/// Who opens UVM without CUDA may have a GPU there that CUDA is not to see.
#[test]
fn a_given_descriptor_may_know_a_gpu_that_cuda_does_not() {
    let place = Place::Gpu([3; 16]);
    for (given, told) in [(None, Err(Error::NoDevice)), (Some(3), Ok(()))] {
        let mut uvm = Fake::with(&[(3, File::Ours)]);
        uvm.sys.cuda = Some(three());
        uvm.use_fd(given);
        // SAFETY: the fake touches no memory.
        let done = unsafe { uvm.discard_and_prefetch(range(MIB2, MIB2), place) };
        assert_eq!(done, told);
        let discards = uvm.sys.log.lock().unwrap().len();
        assert_eq!(discards, usize::from(told.is_ok()), "nothing changes");
    }
}
