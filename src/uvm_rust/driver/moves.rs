// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! `UVM_RUST_FLASH_SUBMIT` and `UVM_RUST_FLASH_REAP`: ranges that are moved later, and what became of them.

use super::flash::{checked, enabled, why};
use super::ioctl::awake;
use super::params::read_sized;
use crate::ffi::bindings as uapi;
use crate::ffi::event::Event;
use crate::ffi::{seam, uaccess};
use crate::mem::ProcessVec;
use crate::policy::flash::moves::To;
use crate::policy::flash::queue::{Completion, Request, When, MOST};
use kernel::prelude::*;
use kernel::sync::Arc;

const _: () = assert!(MOST == uapi::UVM_RUST_FLASH_MAX_REQUESTS);

/// Elements of an array of the caller's may take so many bytes each.
const ELEMENT_MOST: u32 = 256;

/// Whether elements of this size can be read or written.
fn is_element(size: u32, first_version: u32) -> bool {
    (first_version..=ELEMENT_MOST).contains(&size) && size % 8 == 0
}

/// The address of element `n` of an array.
fn element(array: u64, n: u32, size: u32) -> Result<usize> {
    let offset = u64::from(n) * u64::from(size);
    Ok(array.checked_add(offset).ok_or(EFAULT)? as usize)
}

/// A request of the caller's, whose completion is for those who ask for `of`.
fn request(arg: usize, size: u32, of: u64) -> Result<Request> {
    let request = uaccess::read_element::<uapi::uvm_rust_flash_request>(arg, size as usize)?;
    let has = |flag| request.flags & flag != 0;
    let from_gpus = has(uapi::UVM_RUST_FLASH_FROM_GPUS);
    let after = has(uapi::UVM_RUST_FLASH_AFTER);
    let more = uapi::UVM_RUST_FLASH_FROM_GPUS | uapi::UVM_RUST_FLASH_AFTER;
    let to = checked(request.base, request.length, request.flags & !more)?;
    if request.reserved != 0 || from_gpus && to == To::Gpu {
        return Err(EINVAL);
    }
    Ok(Request {
        base: request.base,
        length: request.length,
        to,
        from_gpus,
        gpu: request.gpu_uuid,
        user: request.user_data,
        of,
        after,
    })
}

/// The eventfd that is signalled for each completion, if the call names one.
fn event(submit: &uapi::uvm_rust_flash_submit) -> Result<Option<Arc<Event>>> {
    if submit.flags & uapi::UVM_RUST_FLASH_EVENT == 0 {
        return if submit.event_fd == 0 {
            Ok(None)
        } else {
            Err(EINVAL)
        };
    }
    let event = Event::of(submit.event_fd)?;
    Ok(Some(Arc::new(event, GFP_KERNEL_ACCOUNT)?))
}

/// Does `UVM_RUST_FLASH_SUBMIT`: takes requests, which are carried out later.
pub(crate) fn submit(file: &seam::File<'_>, arg: usize) -> Result {
    let (mut submit, size) =
        read_sized::<uapi::uvm_rust_flash_submit>(arg, uapi::UVM_RUST_FLASH_SUBMIT_SIZE_V1)?;
    let count = submit.request_count;
    if submit.flags & !uapi::UVM_RUST_FLASH_EVENT != 0
        || count > MOST
        || !is_element(submit.request_size, uapi::UVM_RUST_FLASH_REQUEST_SIZE_V1)
    {
        return Err(EINVAL);
    }
    enabled()?;
    let space = file.space().ok_or(EPERM)?;
    let moves = space.moves().ok_or(EPERM)?;
    let event = event(&submit)?;
    let mut requests = ProcessVec::with_capacity(count as usize).map_err(|_| ENOMEM)?;
    for n in 0..count {
        let at = element(submit.requests, n, submit.request_size)?;
        requests
            .push(request(at, submit.request_size, submit.queue)?)
            .map_err(|_| ENOMEM)?;
    }
    // Who cannot be told how many were taken has none taken. The size stays, for who calls again after EAGAIN.
    submit.taken = 0;
    uaccess::write_with_size(arg, submit, size, size as u32)?;
    submit.taken = awake(|| {
        moves.make_room(count)?;
        let take = |request: &&Request| moves.with(|queue| queue.submit(request, event.clone()));
        let taken = requests.iter().take_while(take).count();
        for lane in moves.with(|queue| queue.waiting()).iter() {
            moves.wake(lane, When::Now);
        }
        Ok(taken as u32)
    })?;
    if submit.taken == 0 && count > 0 {
        return Err(EBUSY);
    }
    uaccess::write_sized(arg, submit, size)
}

/// What the caller is told of a request.
fn told(completion: &Completion) -> uapi::uvm_rust_flash_completion {
    uapi::uvm_rust_flash_completion {
        user_data: completion.user,
        order: completion.order,
        status: completion
            .status
            .map_or_else(|failed| why(failed).to_errno(), |()| 0),
        reserved: 0,
    }
}

/// Does `UVM_RUST_FLASH_REAP`: gives what was done since the last time.
pub(crate) fn reap(file: &seam::File<'_>, arg: usize) -> Result {
    let (mut reap, size) =
        read_sized::<uapi::uvm_rust_flash_reap>(arg, uapi::UVM_RUST_FLASH_REAP_SIZE_V1)?;
    if reap.flags != 0
        || !is_element(
            reap.completion_size,
            uapi::UVM_RUST_FLASH_COMPLETION_SIZE_V1,
        )
    {
        return Err(EINVAL);
    }
    enabled()?;
    let space = file.space().ok_or(EPERM)?;
    let moves = space.moves().ok_or(EPERM)?;
    let most = reap.completion_count.min(reap.wait_for);
    awake(|| match most {
        0 => Ok(()),
        most => moves.wait(reap.wait_ms.into(), |queue| {
            queue.is_ready(reap.queue, most)
        }),
    })?;
    // Who cannot be told how many there are is given none. From here on there is no lock but the queue's.
    (reap.reaped, reap.pending) = (0, 0);
    uaccess::write_sized(arg, reap, size)?;
    let mut failed = Ok(());
    // No more than there are at a time, as others may ask for more meanwhile.
    while reap.reaped < reap.completion_count.min(MOST) {
        let Some(completion) = moves.with(|queue| queue.reap(reap.queue)) else {
            break;
        };
        let told = told(&completion);
        failed = element(reap.completions, reap.reaped, reap.completion_size)
            .and_then(|at| uaccess::write_element(at, &told, reap.completion_size as usize));
        if failed.is_err() {
            moves.with(|queue| queue.put_back(completion));
            break;
        }
        moves.with(|queue| queue.given(completion));
        reap.reaped += 1;
    }
    if reap.reaped == 0 {
        failed?;
    }
    reap.pending = moves.with(|queue| queue.pending(reap.queue));
    uaccess::write_sized(arg, reap, size)
}
