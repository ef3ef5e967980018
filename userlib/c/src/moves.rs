// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! G10's calls, for C: one queue for the process, made by its first move.

use core::ffi::{c_int, c_void};
use std::sync::OnceLock;
use std::time::Duration;

use uvmrust::{Error, Move, Moves, PerProcess, Range, Result, Ticket, Tier, Uvm};

/// `UVMRUST_TO_HOST` of the header: a move ends in host memory.
const TO_HOST: c_int = 0;
/// `UVMRUST_TO_SSD` of the header: a move goes on from the host to the SSD.
const TO_SSD: c_int = 1;

/// A parent's thread is not in its child.
static MOVES: PerProcess<OnceLock<Result<Moves>>> = PerProcess::new(OnceLock::new);

fn submit(base: *mut c_void, length: usize, to: Tier) -> i64 {
    let range = Range::new(base.cast_const(), length);
    let queued = range.grown().and_then(|range| queue(range, to));
    queued.map_or_else(|e| e.code().into(), |ticket| ticket.0 as i64)
}

fn queue(range: Range, to: Tier) -> Result<Ticket> {
    Uvm::process().not_forked()?;
    match MOVES.get().get_or_init(|| Moves::new(Uvm::process())) {
        Ok(moves) => Ok(moves.submit(&[Move { range, to }])),
        Err(error) => Err(*error),
    }
}

/// The queue, if there is one, and it is this process's.
fn moves() -> Option<&'static Result<Moves>> {
    MOVES.get().get()
}

/// Queues that these pages come to a GPU.
pub(crate) fn to_gpu(range: Range, uuid: [u8; 16]) -> Result<Ticket> {
    queue(range, Tier::Gpu(uuid))
}

/// # Safety
/// `gpu_uuid` is null or points to 16 bytes.
#[no_mangle]
pub unsafe extern "C" fn uvmrust_move_in(
    base: *mut c_void,
    length: usize,
    gpu_uuid: *const [u8; 16],
) -> i64 {
    // SAFETY: by our contract.
    match unsafe { gpu_uuid.as_ref() } {
        Some(uuid) => submit(base, length, Tier::Gpu(*uuid)),
        None => submit(base, length, Tier::Host),
    }
}

#[no_mangle]
pub(crate) extern "C" fn uvmrust_move_out(base: *mut c_void, length: usize, to: c_int) -> i64 {
    match to {
        TO_HOST => submit(base, length, Tier::Host),
        TO_SSD => submit(base, length, Tier::Ssd),
        _ => Error::Invalid.code().into(),
    }
}

#[no_mangle]
pub(crate) extern "C" fn uvmrust_moves_done() -> i64 {
    match moves() {
        Some(Ok(moves)) => moves.done().0 as i64,
        _ => 0,
    }
}

#[no_mangle]
pub(crate) extern "C" fn uvmrust_moves_wait(ticket: i64, milliseconds: c_int) -> c_int {
    let limit = Duration::from_millis(milliseconds.max(0) as u64);
    match (moves(), u64::try_from(ticket)) {
        (Some(Ok(moves)), Ok(ticket)) => c_int::from(moves.wait(Ticket(ticket), limit)),
        (_, Ok(_)) => 1,
        (_, Err(_)) => Error::Invalid.code(),
    }
}

#[no_mangle]
pub(crate) extern "C" fn uvmrust_moves_error() -> c_int {
    match moves() {
        Some(Ok(moves)) => moves.errors().1.map_or(0, Error::code),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without UVM in the process: the moves fail, and the tickets are done.
    #[test]
    fn calls_without_a_driver() {
        let at = 0x4000_0000 as *mut c_void;
        assert_eq!(uvmrust_move_out(at, 4096, 7), Error::Invalid.code().into());
        assert_eq!(uvmrust_moves_wait(-3, 0), Error::Invalid.code());
        assert_eq!(
            (
                uvmrust_moves_wait(5, 0),
                uvmrust_moves_done(),
                uvmrust_moves_error()
            ),
            (1, 0, 0)
        );
        let first = uvmrust_move_out(at, 4096, TO_SSD);
        // SAFETY: a null pointer is allowed.
        let second = unsafe { uvmrust_move_in(at, 4096, core::ptr::null()) };
        assert!(0 < first && first < second, "{first} {second}");
        assert_eq!(uvmrust_moves_wait(second, 60_000), 1);
        assert_eq!(uvmrust_moves_done(), second);
        assert_eq!(uvmrust_moves_error(), Error::NotSupported.code());
    }
}
