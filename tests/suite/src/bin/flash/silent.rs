// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! A call whose process' memory is on a device that does not answer: what the call keeps others from meanwhile.

use std::fs::OpenOptions;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::ptr::null_mut;
use std::sync::mpsc::channel;
use std::time::Duration;

use uvm_suite::{ensure, skip, Failure, Outcome, Pass, Suite};
use vgpu_client::{Buffer, DiscardBatch, DiscardRange, Gpu, Kernel, Op, Process, BLOCK, PAGE};

use crate::failures::{has_dmsetup, wait_for_device, while_it_is_silent, Dm, Silence};
use crate::rig::WORDS;
use crate::SILENT;

pub(crate) fn run(suite: &mut Suite) {
    suite.test(
        "a suspend does not wait for the array of a batch, which a device holds up",
        SILENT,
        array,
    );
    suite.test("nor for the structure of a batch", SILENT, structure);
}

/// A page of a device, of which a process has its own copy once it writes to that.
struct Page(*mut libc::c_void);

impl Page {
    /// Where on the device: far from where udev looks for names at any new one, which would have it in memory.
    const AT: u64 = 37 << 20;

    /// A page of the device, which begins with `bytes`. Whoever needs it has to read it from there.
    fn of(device: &Dm, bytes: &[u8]) -> Result<Self, Failure> {
        let file = OpenOptions::new().read(true).write(true).open(&device.0)?;
        file.write_all_at(bytes, Self::AT)?;
        file.sync_all()?;
        let fd = file.as_raw_fd();
        // SAFETY: new memory.
        let page = unsafe {
            let (write, own) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE);
            libc::mmap(
                null_mut(),
                PAGE as usize,
                write,
                own,
                fd,
                Self::AT as libc::off_t,
            )
        };
        ensure!(page != libc::MAP_FAILED, "no memory");
        let page = Self(page);
        // Somebody may be about to use what is cached of the file, which then stays.
        for _ in 0..100 {
            // SAFETY: it was written, and so is dropped without loss.
            let dropped = unsafe { libc::posix_fadvise(fd, 0, 0, libc::POSIX_FADV_DONTNEED) };
            ensure!(dropped == 0, "posix_fadvise: {dropped}");
            let mut is_cached = 1u8;
            // SAFETY: a byte for each page, of which there is one.
            let asked = unsafe { libc::mincore(page.0, PAGE as usize, &raw mut is_cached) };
            if asked == 0 && is_cached & 1 == 0 {
                return Ok(page);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Err("the page stays in memory".into())
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: it was mapped, and nobody knows it any more.
        unsafe { libc::munmap(self.0, PAGE as usize) };
    }
}

/// The bytes of something made of integers, without gaps.
fn bytes_of<T: Copy>(of: &T) -> &[u8] {
    // SAFETY: by this function's description.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(of).cast(), size_of::<T>()) }
}

/// Makes the call once; its errno, or 0.
fn discard(process: &Process, batch: *mut DiscardBatch) -> i32 {
    let (fd, number) = (
        process.uvm_fd().as_raw_fd(),
        uvm_uapi::UVM_RUST_DISCARD_BATCH,
    );
    // SAFETY: the structure of that number, and the array that it names, are there until the call is over.
    match unsafe { libc::ioctl(fd, number as libc::Ioctl, batch) } {
        0 => 0,
        _ => std::io::Error::last_os_error().raw_os_error().unwrap_or(-1),
    }
}

fn array() -> Outcome {
    held_up(|device, range, batch| {
        let page = Page::of(device, bytes_of(&range))?;
        batch.ranges = page.0 as u64;
        Ok((page, None))
    })
}

fn structure() -> Outcome {
    held_up(|device, range, batch| {
        let ranges = Box::new(range);
        batch.ranges = std::ptr::from_ref(&*ranges) as u64;
        Ok((Page::of(device, bytes_of(batch))?, Some(ranges)))
    })
}

/// Has a batch of one range wait for the device, and the system sleep meanwhile. `put` puts a part of the call on the
/// device: the structure, if it gives back the array.
fn held_up(
    put: impl FnOnce(
        &Dm,
        DiscardRange,
        &mut DiscardBatch,
    ) -> Result<(Page, Option<Box<DiscardRange>>), Failure>,
) -> Outcome {
    if !has_dmsetup() {
        skip!("dmsetup is not installed");
    }
    let process = Process::new()?;
    let gpu = process.gpu(0)?;
    let buffer: Buffer<u64> = Buffer::managed(&process, WORDS)?;
    let op = Op::write(&buffer).pattern(1, 1).warps(8);
    gpu.launch(&Kernel::new().op(op))?.wait()?.ok()?;
    let range = DiscardRange {
        base: buffer.address(),
        length: BLOCK,
    };
    let mut batch = DiscardBatch {
        size: size_of::<DiscardBatch>() as u32,
        flags: uvm_uapi::UVM_RUST_DISCARD_EAGER,
        range_count: 1,
        range_size: size_of::<DiscardRange>() as u32,
        ..Default::default()
    };
    let device = Dm::new()?;
    let (page, array) = put(&device, range, &mut batch)?;
    let place = if array.is_some() {
        page.0 as usize
    } else {
        std::ptr::from_mut(&mut batch) as usize
    };
    let silence = device.suspend()?;
    let errno = sleeps_meanwhile(&process, &gpu, silence, place)?;
    ensure!(errno == 0, "errno {errno}");
    ensure!(
        process.is_discarded(buffer.address())?,
        "it is not discarded"
    );
    Ok(Pass::Ok)
}

/// Makes the call, and has the system sleep before the device answers. The errno of the call.
fn sleeps_meanwhile(
    process: &Process,
    gpu: &Gpu,
    silence: Silence,
    place: usize,
) -> Result<i32, Failure> {
    let (told, tells) = channel();
    std::thread::scope(|scope| {
        let calling = scope.spawn(move || {
            // SAFETY: it only tells a number.
            let _ = told.send(unsafe { libc::gettid() });
            discard(process, place as *mut DiscardBatch)
        });
        let result = while_it_is_silent(silence, || {
            wait_for_device(tells.recv().map_err(|_| "a thread panicked")?)?;
            Ok(gpu.suspend(Duration::from_millis(20))?)
        });
        let errno = calling.join().map_err(|_| "a thread panicked")?;
        result?;
        Ok(errno)
    })
}
