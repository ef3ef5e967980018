// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Calls whose process' memory is on a device that does not answer: what such a call keeps others from meanwhile.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::ptr::null_mut;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use uvm_suite::{ensure, skip, Failure, Joined, Outcome, Pass, Suite};
use uvm_uapi as uapi;
use vgpu_client::flash::{FlashCompletion, FlashReap, FlashRequest, FlashSubmit, TO_HOST};
use vgpu_client::{Buffer, DiscardBatch, DiscardRange, Gpu, Kernel, Op, Process, BLOCK, PAGE};

use crate::failures::{has_dmsetup, wait_for_device, while_it_is_silent, Dm, Silence, PATIENCE};
use crate::rig::{Done, WORDS};
use crate::SILENT;

pub(crate) fn run(suite: &mut Suite) {
    suite.test(
        "a suspend waits for no memory of a process that one of our calls reads or writes",
        SILENT,
        calls,
    );
    suite.test(
        "a suspend waits for no lock of a process' memory that one of our calls waits for",
        SILENT,
        locked_memory,
    );
    suite.test(
        "a suspend waits for nobody who gives back memory that one of our calls uses",
        SILENT,
        given_back,
    );
}

/// What a thread does when it is told to, and what that comes to: an errno, or 0.
pub(crate) type Step<'a> = Box<dyn FnOnce() -> i32 + Send + 'a>;

/// A thread of the process holds the lock of its memory until the device answers, as the kernel reads a page for it. A
/// second one waits to change what memory there is. Our calls wait behind that, and a worker comes again.
fn locked_memory() -> Outcome {
    if !has_dmsetup() {
        skip!("dmsetup is not installed");
    }
    let process = Process::new()?;
    let gpu = process.gpu(0)?;
    let buffer: Buffer<u64> = Buffer::managed(&process, WORDS)?;
    let op = Op::write(&buffer).pattern(1, 1).warps(8);
    gpu.launch(&Kernel::new().op(op))?.wait()?.ok()?;
    let device = Dm::new()?;
    let page = Page::of(&device, 0, &[1])?;
    let (at, base) = (page.0 as u64, buffer.address());
    let range = DiscardRange {
        base,
        length: BLOCK,
    };
    let request = [home(base)];
    let mut submit = submit_of(request.as_ptr() as u64);
    // One to the device would not come as far, without a device.
    let mut moved = move_of(base);
    moved.flags = TO_HOST;
    let mut batch = batch_of(std::ptr::from_ref(&range) as u64);
    let mut discard = [base, BLOCK, 1, u64::MAX];
    let calls = [
        (uapi::UVM_RUST_FLASH_SUBMIT, place(&mut submit)),
        (uapi::UVM_RUST_FLASH_MOVE, place(&mut moved)),
        (uapi::UVM_RUST_DISCARD_BATCH, place(&mut batch)),
        (DISCARD, place(&mut discard)),
    ];
    let memory = File::open("/proc/self/mem")?;
    let mut steps: Vec<Step<'_>> = vec![
        Box::new(|| memory.read_at(&mut [0], at).map_or(-1, |_| 0)),
        Box::new(map_and_unmap),
    ];
    let fd = process.uvm_fd().as_raw_fd();
    for (number, place) in calls {
        steps.push(Box::new(move || ioctl(fd, number, place)));
    }
    // Who submits waits for nothing.
    let silence = device.suspend()?;
    let got = one_after_the_other(silence, steps, 2, || {
        Ok(gpu.suspend(Duration::from_millis(20))?)
    })?;
    ensure!(got == [0, 0, 0, libc::ENODEV, 0, 0], "{got:?}");
    let (done, _) = process.flash_reap(1, 1, 60_000)?;
    ensure!(done.len() == 1 && done[0].status == 0, "{done:?}");
    Ok(Pass::Ok)
}

/// As above. A third thread's call has the memory retained, and waits for its lock; a fourth closes the file that keeps the
/// memory for UVM, and waits for the call.
fn given_back() -> Outcome {
    if !has_dmsetup() {
        skip!("dmsetup is not installed");
    }
    let other = Process::new()?;
    let gpu = other.gpu(0)?;
    let process = Process::new()?;
    let buffer: Buffer<u64> = Buffer::managed(&process, WORDS)?;
    let device = Dm::new()?;
    let page = Page::of(&device, 0, &[1])?;
    let at = page.0 as u64;
    let mut discard = [buffer.address(), BLOCK, 1, u64::MAX];
    let place = place(&mut discard);
    let memory = File::open("/proc/self/mem")?;
    let nothing = File::open("/dev/null")?;
    let fd = process.uvm_fd().as_raw_fd();
    let mm = process.mm_fd().ok_or("it has no mm")?.as_raw_fd();
    let steps: Vec<Step<'_>> = vec![
        Box::new(|| memory.read_at(&mut [0], at).map_or(-1, |_| 0)),
        Box::new(map_and_unmap),
        Box::new(move || ioctl(fd, DISCARD, place)),
        // SAFETY: the number stays open, as another file, which nobody calls.
        Box::new(|| i32::from(unsafe { libc::dup2(nothing.as_raw_fd(), mm) } != mm)),
    ];
    let silence = device.suspend()?;
    let got = one_after_the_other(silence, steps, usize::MAX, || {
        Ok(gpu.suspend(Duration::from_millis(20))?)
    })?;
    ensure!(got == [0; 4], "{got:?}");
    Ok(Pass::Ok)
}

/// Where something is, for a call that may change it.
fn place<T>(of: &mut T) -> usize {
    std::ptr::from_mut(of) as usize
}

/// Changes what memory the process has.
pub(crate) fn map_and_unmap() -> i32 {
    let (access, own) = (libc::PROT_READ, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: new memory, which nobody knows.
    unsafe {
        let page = libc::mmap(null_mut(), PAGE as usize, access, own, -1, 0);
        libc::munmap(page, PAGE as usize)
    }
}

/// Has a thread take each step, when the one before sleeps in its step; the one with number `goes_on` does not. Then
/// does something else. The threads are there before that: a new one needs memory.
pub(crate) fn one_after_the_other(
    silence: Silence,
    steps: Vec<Step<'_>>,
    goes_on: usize,
    other: impl FnOnce() -> Done,
) -> Result<Vec<i32>, Failure> {
    std::thread::scope(|scope| {
        let (mut starts, mut threads) = (Vec::new(), Vec::new());
        for step in steps {
            let ((start, told_to), (tells, told)) = (channel::<()>(), channel());
            threads.push(scope.spawn(move || {
                // SAFETY: it only tells a number.
                let _ = tells.send(unsafe { libc::gettid() });
                told_to.recv().map_or(-1, |()| step())
            }));
            starts.push((start, told.recv().map_err(|_| "a thread panicked")?));
        }
        let result = while_it_is_silent(silence, || {
            for (n, (start, thread)) in starts.into_iter().enumerate() {
                start.send(()).map_err(|_| "a thread has gone")?;
                if n != goes_on {
                    wait_for_device(thread)?;
                }
            }
            other()
        });
        let answers: Result<Vec<_>, _> = threads.into_iter().map(|thread| thread.join()).collect();
        result?;
        answers.joined()
    })
}

/// A page of a device, of which a process has its own copy once it writes to that.
pub(crate) struct Page(pub(crate) *mut libc::c_void);

impl Page {
    /// Where on the device: far from where udev looks for names at any new one, which would have it in memory.
    pub(crate) const AT: u64 = 37 << 20;

    /// From one page to the next: further than the kernel reads ahead.
    const APART: u64 = 4 << 20;

    /// Page `n` of some, which begins with `bytes`. Whoever needs it has to read it from the device.
    pub(crate) fn of(device: &Dm, n: usize, bytes: &[u8]) -> Result<Self, Failure> {
        let at = Self::AT + n as u64 * Self::APART;
        let file = OpenOptions::new().read(true).write(true).open(&device.0)?;
        file.write_all_at(bytes, at)?;
        file.sync_all()?;
        let fd = file.as_raw_fd();
        // SAFETY: new memory.
        let page = unsafe {
            let (write, own) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE);
            libc::mmap(null_mut(), PAGE as usize, write, own, fd, at as libc::off_t)
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

/// A call that needs a page of the device.
struct Call {
    name: &'static str,
    number: u32,
    /// The structure, which is on the page if it is empty here.
    structure: Vec<u64>,
    page: Page,
    /// What the call may come to: an errno, or 0.
    answers: &'static [i32],
}

/// The calls of one process, with what they work on.
struct Calls<'a> {
    device: &'a Dm,
    all: Vec<Call>,
}

impl Calls<'_> {
    /// A call whose structure the device has.
    fn structure<T: Copy>(
        &mut self,
        name: &'static str,
        number: u32,
        structure: T,
        answers: &'static [i32],
    ) -> Done {
        let page = Page::of(self.device, self.all.len(), bytes_of(&structure))?;
        self.all.push(Call {
            name,
            number,
            structure: Vec::new(),
            page,
            answers,
        });
        Ok(())
    }

    /// A call of whose memory the device has what the structure points to, which begins with `bytes`.
    fn beside<T: Copy>(
        &mut self,
        name: &'static str,
        number: u32,
        bytes: &[u8],
        structure: impl FnOnce(u64) -> T,
        answers: &'static [i32],
    ) -> Done {
        let page = Page::of(self.device, self.all.len(), bytes)?;
        let structure = structure(page.0 as u64);
        let words = bytes_of(&structure).chunks(8).map(|chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            u64::from_ne_bytes(word)
        });
        let structure = words.collect();
        self.all.push(Call {
            name,
            number,
            structure,
            page,
            answers,
        });
        Ok(())
    }
}

impl Call {
    fn place(&self) -> usize {
        match self.structure.as_slice() {
            [] => self.page.0 as usize,
            words => words.as_ptr() as usize,
        }
    }

    /// What the call wrote to, as a structure.
    fn told<T: Copy>(&self) -> T {
        // SAFETY: a page, or a vector with room for it, is there, and any bytes make a structure of integers.
        unsafe { std::ptr::read_unaligned(self.place() as *const T) }
    }
}

/// Makes a call once; its errno, or 0.
fn ioctl(fd: libc::c_int, number: u32, place: usize) -> i32 {
    // SAFETY: the structure of that number, and what it names, are there until the call is over.
    match unsafe { libc::ioctl(fd, number as libc::Ioctl, place) } {
        0 => 0,
        _ => std::io::Error::last_os_error().raw_os_error().unwrap_or(-1),
    }
}

const OK: &[i32] = &[0];

/// Of a feature that may be turned off.
const OK_OR_OFF: &[i32] = &[0, libc::EOPNOTSUPP];

/// Of a call that has to have a device attached.
const NO_DEVICE: &[i32] = &[libc::ENODEV];

/// The number of `UVM_DISCARD`, which is NVIDIA's.
const DISCARD: u32 = 80;

/// Those that tell what there is, or set it.
fn ask_and_set(calls: &mut Calls<'_>, gpu: &Gpu) -> Done {
    let gpu_uuid = gpu.uuid().0;
    let version = uapi::uvm_rust_version {
        size: size_of::<uapi::uvm_rust_version>() as u32,
        ..Default::default()
    };
    calls.structure("GET_VERSION", uapi::UVM_RUST_GET_VERSION, version, OK)?;
    let stats = uapi::uvm_rust_stats {
        size: size_of::<uapi::uvm_rust_stats>() as u32,
        gpu_uuid,
        ..Default::default()
    };
    calls.structure("GET_STATS", uapi::UVM_RUST_GET_STATS, stats, OK_OR_OFF)?;
    let announce = uapi::uvm_rust_announce {
        size: size_of::<uapi::uvm_rust_announce>() as u32,
        exec_id: 1,
        gpu_uuid,
        ..Default::default()
    };
    calls.structure("ANNOUNCE", uapi::UVM_RUST_ANNOUNCE, announce, OK_OR_OFF)?;
    let learnt = uapi::uvm_rust_prefetch_stats {
        size: size_of::<uapi::uvm_rust_prefetch_stats>() as u32,
        gpu_uuid,
        ..Default::default()
    };
    let number = uapi::UVM_RUST_GET_PREFETCH_STATS;
    calls.structure("GET_PREFETCH_STATS", number, learnt, OK_OR_OFF)?;
    let quota = uapi::uvm_rust_quota {
        size: size_of::<uapi::uvm_rust_quota>() as u32,
        gpu_uuid,
        ..Default::default()
    };
    calls.structure("SET_QUOTA", uapi::UVM_RUST_SET_QUOTA, quota, OK_OR_OFF)
}

/// Those that discard the first block of memory at `base`.
fn discard(calls: &mut Calls<'_>, base: u64, ranges: &DiscardRange) -> Done {
    let number = uapi::UVM_RUST_DISCARD_BATCH;
    calls.beside("an array", number, bytes_of(ranges), batch_of, OK)?;
    let structure = batch_of(std::ptr::from_ref(ranges) as u64);
    calls.structure("DISCARD_BATCH", number, structure, OK)?;
    calls.structure("UVM_DISCARD", DISCARD, [base, BLOCK, 1, u64::MAX], OK)
}

/// A discard of the one range that is at this address.
fn batch_of(ranges: u64) -> DiscardBatch {
    DiscardBatch {
        size: size_of::<DiscardBatch>() as u32,
        flags: uapi::UVM_RUST_DISCARD_EAGER,
        ranges,
        range_count: 1,
        range_size: size_of::<DiscardRange>() as u32,
        ..Default::default()
    }
}

/// A move of the first block of memory at `base` to the device.
fn move_of(base: u64) -> uapi::uvm_rust_flash_move_range {
    uapi::uvm_rust_flash_move_range {
        size: size_of::<uapi::uvm_rust_flash_move_range>() as u32,
        base,
        length: BLOCK,
        ..Default::default()
    }
}

/// The requests that are at this address, of which there is one, or none at address 0.
fn submit_of(requests: u64) -> FlashSubmit {
    FlashSubmit {
        size: size_of::<FlashSubmit>() as u32,
        requests,
        request_count: u32::from(requests != 0),
        request_size: size_of::<FlashRequest>() as u32,
        ..Default::default()
    }
}

/// Those of the SSD tier. Each number of a queue is one call's.
fn flash(calls: &mut Calls<'_>, base: u64) -> Done {
    let attach = |path| uapi::uvm_rust_flash_attach {
        size: size_of::<uapi::uvm_rust_flash_attach>() as u32,
        path,
        host_bytes: 1 << 20,
        ..Default::default()
    };
    let (number, nowhere) = (uapi::UVM_RUST_FLASH_ATTACH, &[libc::ENOENT, libc::EFAULT]);
    calls.beside("a path", number, b"/nowhere\0", attach, nowhere)?;
    calls.structure("FLASH_ATTACH", number, attach(0), nowhere)?;
    let detach = uapi::uvm_rust_flash_detach {
        size: size_of::<uapi::uvm_rust_flash_detach>() as u32,
        flags: 0,
    };
    let number = uapi::UVM_RUST_FLASH_DETACH;
    calls.structure("FLASH_DETACH", number, detach, NO_DEVICE)?;
    let stats = uapi::uvm_rust_flash_stats {
        size: size_of::<uapi::uvm_rust_flash_stats>() as u32,
        ..Default::default()
    };
    calls.structure("FLASH_GET_STATS", uapi::UVM_RUST_FLASH_GET_STATS, stats, OK)?;
    let number = uapi::UVM_RUST_FLASH_MOVE;
    calls.structure("FLASH_MOVE", number, move_of(base), NO_DEVICE)?;
    let submit = |requests| FlashSubmit {
        queue: 1,
        ..submit_of(requests)
    };
    let (number, bytes) = (uapi::UVM_RUST_FLASH_SUBMIT, home(base));
    calls.beside("requests", number, bytes_of(&bytes), submit, OK)?;
    calls.structure("FLASH_SUBMIT", number, submit(0), OK)?;
    let reap = |completions| FlashReap {
        size: size_of::<FlashReap>() as u32,
        completions,
        completion_count: u32::from(completions != 0),
        completion_size: size_of::<FlashCompletion>() as u32,
        ..Default::default()
    };
    let number = uapi::UVM_RUST_FLASH_REAP;
    calls.beside("completions", number, &[0], reap, OK)?;
    calls.structure("FLASH_REAP", number, reap(0), OK)
}

/// A request that needs no device.
fn home(base: u64) -> FlashRequest {
    FlashRequest {
        base,
        length: BLOCK,
        user_data: 7,
        flags: TO_HOST,
        ..Default::default()
    }
}

fn calls() -> Outcome {
    if !has_dmsetup() {
        skip!("dmsetup is not installed");
    }
    let process = Process::new()?;
    let gpu = process.gpu(0)?;
    let buffer: Buffer<u64> = Buffer::managed(&process, WORDS)?;
    let op = Op::write(&buffer).pattern(1, 1).warps(8);
    gpu.launch(&Kernel::new().op(op))?.wait()?.ok()?;
    // There is a completion to reap.
    process.flash_submit(&[home(buffer.address())], None)?;
    let since = Instant::now();
    while process.flash_reap(0, 0, 0)?.1 > 0 {
        ensure!(since.elapsed() < PATIENCE, "a request is never done");
    }
    let device = Dm::new()?;
    let mut calls = Calls {
        device: &device,
        all: Vec::new(),
    };
    let range = DiscardRange {
        base: buffer.address(),
        length: BLOCK,
    };
    ask_and_set(&mut calls, &gpu)?;
    discard(&mut calls, buffer.address(), &range)?;
    flash(&mut calls, buffer.address())?;
    let silence = device.suspend()?;
    let answers = sleeps_meanwhile(&process, &gpu, silence, &calls.all)?;
    for (call, answer) in calls.all.iter().zip(answers) {
        ensure!(call.answers.contains(&answer), "{}: {answer}", call.name);
    }
    was_done(&process, &buffer, &calls.all)
}

/// What the calls told is what they did.
fn was_done(process: &Process, buffer: &Buffer<u64>, calls: &[Call]) -> Outcome {
    let discarded = process.is_discarded(buffer.address())?;
    ensure!(discarded, "it is not discarded");
    for call in calls {
        match call.name {
            "UVM_DISCARD" => ensure!(call.told::<[u64; 4]>()[3] as u32 == 0, "its status"),
            "requests" => ensure!(call.told::<FlashSubmit>().taken == 1, "none is taken"),
            "completions" => {
                ensure!(call.told::<FlashReap>().reaped == 1, "none is given");
                // SAFETY: the page is there, and any bytes make a structure of integers.
                let given = unsafe { call.page.0.cast::<FlashCompletion>().read() };
                ensure!(given.user_data == 7, "{given:?}");
            }
            _ => {}
        }
    }
    Ok(Pass::Ok)
}

/// Makes all calls, and has the system sleep before the device answers. The answers of the calls.
fn sleeps_meanwhile(
    process: &Process,
    gpu: &Gpu,
    silence: Silence,
    calls: &[Call],
) -> Result<Vec<i32>, Failure> {
    let fd = process.uvm_fd().as_raw_fd();
    let (told, tells) = channel();
    std::thread::scope(|scope| {
        let begin = |call: &Call| {
            let (told, number, place) = (told.clone(), call.number, call.place());
            scope.spawn(move || {
                // SAFETY: it only tells a number.
                let _ = told.send(unsafe { libc::gettid() });
                ioctl(fd, number, place)
            })
        };
        let calling: Vec<_> = calls.iter().map(begin).collect();
        let result = while_it_is_silent(silence, || {
            for _ in calls {
                wait_for_device(tells.recv().map_err(|_| "a thread panicked")?)?;
            }
            Ok(gpu.suspend(Duration::from_millis(20))?)
        });
        let answers = calling.into_iter().map(|call| call.join());
        let answers: Result<Vec<_>, _> = answers.collect();
        result?;
        answers.joined()
    })
}
