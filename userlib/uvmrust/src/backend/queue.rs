// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The driver's queue of moves: `UVM_RUST_FLASH_SUBMIT` and `UVM_RUST_FLASH_REAP`.

use std::time::Duration;

use super::{Backend, Uvm};
use crate::moves::{Given, Later, Moved, Tier};
use crate::sys::Sys;
use crate::uapi::{self, FlashCompletion, FlashReap, FlashRequest, FlashSubmit};
use crate::{Error, Result};

/// The most requests in one call.
const MOST: usize = 256;

impl<S: Sys> Uvm<S> {
    /// Whether the driver has the queue, with all that moves need of it, and an SSD tier.
    pub(crate) fn has_queue(&self) -> bool {
        // Another driver says nothing of its own of an unknown number: only ours is asked.
        let fd = self.uvm_fd().filter(|_| self.backend() == Backend::UvmRust);
        let features = fd.and_then(|fd| self.features(fd)).unwrap_or(0);
        is_used(features)
    }
}

/// Whether the queue of a driver with these features is used. One that cannot have a request wait for all others
/// would let prefetches overtake what leaves: the library's thread keeps their order then.
fn is_used(features: u64) -> bool {
    let needed = uapi::FEATURE_FLASH_QUEUE | uapi::FEATURE_FLASH_AFTER;
    features & needed == needed
}

/// A move, as the driver is asked for it.
fn request(given: &Given) -> FlashRequest {
    let (flags, gpu_uuid) = match given.to {
        Tier::Gpu(uuid) => (uapi::FLASH_TO_GPU, uuid),
        Tier::Host => (uapi::FLASH_TO_HOST | uapi::FLASH_FROM_GPUS, [0; 16]),
        Tier::Ssd => (uapi::FLASH_FROM_GPUS, [0; 16]),
    };
    let after = if given.after { uapi::FLASH_AFTER } else { 0 };
    FlashRequest {
        base: given.range.base,
        length: given.range.length,
        user_data: given.number,
        flags: flags | after,
        gpu_uuid,
        ..FlashRequest::default()
    }
}

impl<S: Sys> Later for Uvm<S> {
    fn submit(&self, queue: u64, moves: &[Given]) -> Result<usize> {
        let fd = self.uvm_fd().ok_or(Error::NotSupported)?;
        let requests: Vec<_> = moves.iter().take(MOST).map(request).collect();
        let mut params = FlashSubmit {
            size: size_of::<FlashSubmit>() as u32,
            requests: requests.as_ptr() as u64,
            request_count: requests.len() as u32,
            request_size: size_of::<FlashRequest>() as u32,
            queue,
            ..FlashSubmit::default()
        };
        match self.call(fd, uapi::FLASH_SUBMIT, &mut params) {
            Ok(()) => Ok(params.taken as usize),
            Err(libc::EBUSY) => Ok(0),
            Err(errno) => Err(Error::from_errno(errno)),
        }
    }

    fn reap(&self, queue: u64, wait: Duration) -> Result<Vec<Moved>> {
        let fd = self.uvm_fd().ok_or(Error::NotSupported)?;
        let mut room = [FlashCompletion::default(); MOST];
        let mut params = FlashReap {
            size: size_of::<FlashReap>() as u32,
            completions: room.as_mut_ptr() as u64,
            completion_count: room.len() as u32,
            completion_size: size_of::<FlashCompletion>() as u32,
            wait_for: 1,
            wait_ms: u32::try_from(wait.as_millis()).unwrap_or(u32::MAX),
            queue,
            ..FlashReap::default()
        };
        match self.call(fd, uapi::FLASH_REAP, &mut params) {
            Ok(()) => {}
            Err(libc::EINTR) => return Ok(Vec::new()),
            Err(errno) => return Err(Error::from_errno(errno)),
        }
        let told = room.into_iter();
        let moved = |c: FlashCompletion| Moved {
            number: c.user_data,
            result: match c.status {
                0 => Ok(()),
                status => Err(Error::from_errno(-status)),
            },
        };
        Ok(told.take(params.reaped as usize).map(moved).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Range;

    #[test]
    fn a_queue_that_cannot_keep_the_order_of_moves_is_not_used() {
        let (queue, after) = (uapi::FEATURE_FLASH_QUEUE, uapi::FEATURE_FLASH_AFTER);
        assert!(is_used(queue | after | uapi::FEATURE_FLASH));
        for less in [0, queue, after, uapi::FEATURE_FLASH | queue] {
            assert!(!is_used(less), "{less:#x}");
        }
    }

    #[test]
    fn a_request_says_where_it_goes_and_what_it_waits_for() {
        let range = Range {
            base: 2 << 20,
            length: 4096,
        };
        let gpu = Tier::Gpu([7; 16]);
        let cases = [
            (gpu, false, uapi::FLASH_TO_GPU),
            (gpu, true, uapi::FLASH_TO_GPU | uapi::FLASH_AFTER),
            (
                Tier::Host,
                false,
                uapi::FLASH_TO_HOST | uapi::FLASH_FROM_GPUS,
            ),
            (Tier::Ssd, false, uapi::FLASH_FROM_GPUS),
        ];
        for (number, (to, after, flags)) in (1..).zip(cases) {
            let asked = request(&Given {
                number,
                range,
                to,
                after,
            });
            let uuid = if to == gpu { [7; 16] } else { [0; 16] };
            assert_eq!((asked.flags, asked.gpu_uuid), (flags, uuid), "{to:?}");
            assert_eq!((asked.base, asked.length), (range.base, range.length));
            assert_eq!(asked.user_data, number);
        }
    }
}
