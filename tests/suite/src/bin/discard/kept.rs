// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! What an eager discard leaves alone, of what was discarded lazily before: what is written to it is kept.

use std::io::Error;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use uvm_suite::{ensure, skip, Failure, Outcome, Pass};
use vgpu_client::uvm::Uuid;
use vgpu_client::{Buffer, Discard, Op, BLOCK, PAGE};

use crate::paper::{written, NEW, OLD};
use crate::rig::{Rig, PAGE_WORDS, WORDS};

/// A program may write behind an eager discard without a prefetch, also where the driver leaves the part alone because
/// a GPU maps the block with one entry: the write goes unnoticed, and is kept all the same.
pub(crate) fn eager_in_part_of_lazy() -> Outcome {
    let rig = Rig::new()?;
    let buffer = written(&rig, 1)?;
    rig.discard(&buffer, Discard::Lazy)?;
    rig.process
        .discard(buffer.address(), BLOCK / 2, Discard::Eager)?;
    rig.gpu_write(&buffer, NEW)?;
    rig.reclaim(&buffer)?;
    for word in 0..WORDS / 2 {
        let seen = buffer.get(word);
        ensure!(
            seen == NEW + word as u64,
            "word {word}, of what was discarded eagerly, is {seen:#x}"
        );
    }
    Ok(Pass::Ok)
}

/// A pipe that has the first page of the buffer: a reference, and no mapping.
fn piped(buffer: &Buffer<u64>) -> Result<[OwnedFd; 2], Failure> {
    let mut ends = [0; 2];
    // SAFETY: Two numbers are written.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(format!("pipe2: {}", Error::last_os_error()).into());
    }
    // SAFETY: They are open, and nobody else's.
    let ends = ends.map(|end| unsafe { OwnedFd::from_raw_fd(end) });
    let page = libc::iovec {
        iov_base: buffer.address() as *mut libc::c_void,
        iov_len: PAGE as usize,
    };
    // SAFETY: The page is the test's, as long as the pipe.
    let spliced = unsafe { libc::vmsplice(ends[1].as_raw_fd(), &page, 1, 0) };
    ensure!(spliced == PAGE as isize, "{spliced} bytes are in the pipe");
    Ok(ends)
}

/// Direct I/O may write to such a page without a fault. With its host memory it stays where it is, and is live.
pub(crate) fn eager_where_a_page_is_held() -> Outcome {
    let rig = Rig::new()?;
    if rig.is_native() {
        skip!("NVIDIA's discard asks nobody who holds a page");
    }
    let buffer = rig.buffer(1)?;
    buffer.fill(|i| OLD + i as u64);
    let pipe = piped(&buffer)?;
    rig.discard(&buffer, Discard::Lazy)?;
    ensure!(rig.is_discarded(&buffer, 0)?, "not discarded lazily");
    rig.discard(&buffer, Discard::Eager)?;
    ensure!(!rig.is_discarded(&buffer, 0)?, "discarded");
    let at = rig.process.residency(buffer.address())?.resident;
    ensure!(at == [Uuid::CPU], "resident on {at:?}");
    let page = Op::check(&buffer).range(0, PAGE_WORDS);
    rig.on_gpu(page.pattern(OLD, 1))?;
    // Nobody holds it any more.
    drop(pipe);
    rig.prefetch(&buffer, Uuid::CPU)?;
    rig.discard(&buffer, Discard::Eager)?;
    ensure!(rig.is_discarded(&buffer, 0)?, "not discarded");
    let left = rig.process.residency(buffer.address())?;
    ensure!(left.resident.is_empty(), "left: {left:?}");
    Ok(Pass::Ok)
}

/// The block is left alone as the migration of half of it is forbidden.
pub(crate) fn eager_where_a_part_must_stay() -> Outcome {
    let rig = Rig::new()?;
    let buffer = rig.buffer(1)?;
    buffer.fill(|i| OLD + i as u64);
    let (at, half) = (buffer.address(), BLOCK / 2);
    // UVM wants a place for it that does not fault.
    rig.process
        .set_preferred_location(at, buffer.bytes(), Uuid::CPU)?;
    let group = rig.process.create_range_group()?;
    rig.process.set_range_group(group, at + half, half)?;
    rig.process.range_group_may_move(group, false)?;
    rig.process.migrate(at, half, rig.gpu.uuid())?;
    let write = |value| {
        let write = Op::write(&buffer).range(0, WORDS / 2);
        rig.on_gpu(write.pattern(value, 1))
    };
    write(OLD)?;
    rig.process.discard(at, half, Discard::Lazy)?;
    ensure!(rig.is_discarded(&buffer, 0)?, "not discarded");
    rig.discard(&buffer, Discard::Eager)?;
    // NVIDIA's discard takes what may not migrate, too, and the write finds the page gone.
    let is_native = rig.is_native();
    ensure!(
        is_native || !rig.is_discarded(&buffer, 0)?,
        "still discarded"
    );
    write(NEW)?;
    let evicted = rig.gpu.evict(at)?;
    ensure!(is_native || evicted, "there was no chunk to reclaim");
    let lost = (0..WORDS / 2).find(|&word| buffer.get(word) != NEW + word as u64);
    ensure!(lost.is_none(), "word {lost:?} is lost");
    // While its migration is forbidden, UVM answers a CPU that uses it with SIGBUS, wherever it is.
    rig.process.range_group_may_move(group, true)?;
    let gone = (WORDS / 2..WORDS).find(|&word| buffer.get(word) != OLD + word as u64);
    ensure!(
        is_native || gone.is_none(),
        "word {gone:?}, which may not migrate, is gone"
    );
    Ok(Pass::Ok)
}
