// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Ranges that are moved later: `UVM_RUST_FLASH_SUBMIT` and `UVM_RUST_FLASH_REAP`.

mod after;
mod away;
pub(crate) mod ends;
mod gpus;
mod turns;

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, FromRawFd};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use uvm_suite::{ensure, Failure, Joined, Outcome, Pass, Suite};
use uvmrust::{Linux, Move, Moves, Range, Tier, Uvm};
use vgpu_client::flash::{
    FlashCompletion, FlashReap, FlashRequest, FlashSubmit, AFTER, EVENT, FROM_GPUS, TO_GPU, TO_HOST,
};
use vgpu_client::{Buffer, BLOCK, PAGE};

use crate::interface::errno;
use crate::rig::{check, no_leak, write, Done, Rig};
use crate::wear::limit;
use crate::NONE;

pub(crate) fn run(suite: &mut Suite) {
    suite.test("asked for later: there and back", NONE, there_and_back);
    suite.test("asked for later: in order", NONE, in_order);
    suite.test("asked for later: both ways at a time", NONE, both_ways);
    suite.test("asked for later: after all others", NONE, after::all);
    suite.test("asked for later: two GPUs", NONE, gpus::apart);
    suite.test(
        "asked for later: beside calls that write",
        NONE,
        turns::beside_calls,
    );
    suite.test("asked for later: away from a GPU", NONE, away::from_gpu);
    suite.test(
        "asked for later: away from a GPU that uses it",
        NONE,
        away::used_meanwhile,
    );
    suite.test("asked for later: two users of a file", NONE, two_users);
    suite.test("asked for later: without a device", NONE, no_device);
    suite.test("asked for later: by the library", NONE, by_library);
    suite.test("asked for later: an event", NONE, event);
    suite.test("asked for later: bad input", NONE, bad_input);
    suite.test("asked for later: answers with no place", NONE, no_place);
    suite.test("asked for later: no room", NONE, no_room);
    suite.test("asked for later: many threads", NONE, threads);
    ends::run(suite);
}

/// The VM is slow.
const LONG_MS: u32 = 120_000;

/// The most requests that a descriptor has.
const MOST: usize = 4096;

pub(crate) fn request(buffer: &Buffer<u64>, flags: u32, user_data: u64) -> FlashRequest {
    FlashRequest {
        base: buffer.address(),
        length: buffer.bytes(),
        user_data,
        flags,
        ..Default::default()
    }
}

/// One for each block of the buffer, numbered from `first` on.
fn by_block(buffer: &Buffer<u64>, flags: u32, first: u64) -> Vec<FlashRequest> {
    let blocks = 0..buffer.bytes() / BLOCK;
    let one = |n| FlashRequest {
        base: buffer.address() + n * BLOCK,
        length: BLOCK,
        ..request(buffer, flags, first + n)
    };
    blocks.map(one).collect()
}

/// All that is submitted is taken.
pub(crate) fn submit(rig: &Rig, requests: &[FlashRequest]) -> Done {
    let taken = rig.process.flash_submit(requests, None)?;
    ensure!(taken as usize == requests.len(), "{taken} were taken");
    Ok(())
}

/// That many completions, after which nothing is left.
pub(crate) fn reap(rig: &Rig, count: usize) -> Result<Vec<FlashCompletion>, Failure> {
    let (done, pending) = rig
        .process
        .flash_reap(count + 1, count as u32 + 1, LONG_MS)?;
    ensure!(
        done.len() == count && pending == 0,
        "{} of {count}, {pending} to come: {done:?}",
        done.len()
    );
    for (n, one) in done.iter().enumerate() {
        ensure!(
            one.order == done[0].order + n as u64,
            "not in order: {done:?}"
        );
    }
    Ok(done)
}

/// Those of the completions that are of these requests, in order.
fn users(done: &[FlashCompletion], of: std::ops::Range<u64>) -> Vec<u64> {
    let all = done.iter().map(|c| c.user_data);
    all.filter(|user| of.contains(user)).collect()
}

pub(crate) fn all_well(done: &[FlashCompletion]) -> Done {
    ensure!(done.iter().all(|c| c.status == 0), "{done:?}");
    Ok(())
}

fn there_and_back() -> Outcome {
    let rig = Rig::new(1 << 10)?;
    let buffer = rig.buffer(3)?;
    write(&buffer, 5);
    submit(&rig, &[request(&buffer, 0, 77)])?;
    let done = reap(&rig, 1)?[0];
    ensure!(
        (done.user_data, done.status, done.order) == (77, 0, 1),
        "{done:?}"
    );
    let stats = rig.stats()?;
    ensure!(stats.pages == 3 * BLOCK / PAGE, "{stats:?}");
    submit(&rig, &[request(&buffer, TO_HOST, 78)])?;
    reap(&rig, 1)?;
    let stats = rig.stats()?;
    ensure!(stats.pages == 0 && stats.host_pages > 0, "{stats:?}");
    check(&buffer, 5)?;
    submit(&rig, &[request(&buffer, 0, 80), to_gpu(&rig, &buffer, 79)])?;
    let done = reap(&rig, 2)?;
    all_well(&done)?;
    ensure!(users(&done, 0..100) == [80, 79], "{done:?}");
    rig.gpu_check(&buffer, 5)?;
    drop(buffer);
    no_leak(&rig)?;
    Ok(Pass::Ok)
}

/// Two buffers cross each other, block by block; then each comes back before it has left.
fn in_order() -> Outcome {
    let rig = Rig::new(1 << 10)?;
    let (there, here) = (rig.buffer(4)?, rig.buffer(4)?);
    write(&there, 11);
    write(&here, 13);
    rig.spill(&there)?;
    let (outward, homeward) = (by_block(&here, 0, 0), by_block(&there, TO_HOST, 100));
    let both: Vec<_> = homeward
        .iter()
        .zip(&outward)
        .flat_map(|(a, b)| [*a, *b])
        .collect();
    submit(&rig, &both)?;
    let done = reap(&rig, 8)?;
    all_well(&done)?;
    ensure!(users(&done, 0..100) == [0, 1, 2, 3], "{done:?}");
    ensure!(users(&done, 100..200) == [100, 101, 102, 103], "{done:?}");
    let stats = rig.stats()?;
    ensure!(stats.pages == 4 * BLOCK / PAGE, "{stats:?}");
    // The same blocks: the lanes wait for each other.
    let mut both = by_block(&here, TO_HOST, 0);
    both.extend(by_block(&here, 0, 4));
    both.extend(by_block(&here, TO_HOST, 8));
    submit(&rig, &both)?;
    let done = reap(&rig, 12)?;
    all_well(&done)?;
    let place = |user| done.iter().position(|c| c.user_data == user);
    for n in 0..8 {
        ensure!(place(n) < place(n + 4), "{n} after {}: {done:?}", n + 4);
    }
    ensure!(rig.stats()?.pages == 0, "{:?}", rig.stats()?);
    check(&there, 11)?;
    check(&here, 13)?;
    Ok(Pass::Ok)
}

/// What comes does not wait for what leaves slowly, but for what it shares a block with.
fn both_ways() -> Outcome {
    let rig = Rig::new(1 << 10)?;
    let (there, here) = (rig.buffer(2)?, rig.buffer(6)?);
    write(&there, 17);
    write(&here, 19);
    rig.spill(&there)?;
    {
        let _slow = limit("1")?;
        let mut both = by_block(&here, 0, 0);
        both.extend(by_block(&there, TO_HOST, 100));
        both.push(request(&here, TO_HOST, 200));
        submit(&rig, &both)?;
        let start = Instant::now();
        loop {
            let (done, pending) = rig.process.flash_reap(0, 0, 0)?;
            ensure!(done.is_empty(), "{done:?}");
            // Six blocks take a dozen seconds; the others, as long as they take.
            if pending <= 7 || start.elapsed() > Duration::from_secs(60) {
                break;
            }
        }
    }
    let done = reap(&rig, 9)?;
    all_well(&done)?;
    let place = |user| done.iter().position(|c| c.user_data == user);
    ensure!(place(101) < place(5), "they waited: {done:?}");
    ensure!(place(200) == Some(8), "it did not wait: {done:?}");
    ensure!(rig.stats()?.pages == 0, "{:?}", rig.stats()?);
    check(&there, 17)?;
    check(&here, 19)?;
    Ok(Pass::Ok)
}

fn to_gpu(rig: &Rig, buffer: &Buffer<u64>, user_data: u64) -> FlashRequest {
    FlashRequest {
        gpu_uuid: rig.gpu.uuid().0,
        ..request(buffer, TO_GPU, user_data)
    }
}

/// Each is told of its own requests.
fn two_users() -> Outcome {
    let rig = Rig::new(1 << 10)?;
    let buffer = rig.buffer(4)?;
    write(&buffer, 79);
    let of = |queue, requests: &[FlashRequest]| {
        let mut submit = FlashSubmit {
            size: size_of::<FlashSubmit>() as u32,
            requests: requests.as_ptr() as u64,
            request_count: requests.len() as u32,
            request_size: size_of::<FlashRequest>() as u32,
            queue,
            ..Default::default()
        };
        raw(&rig, uvm_uapi::UVM_RUST_FLASH_SUBMIT, &mut submit)
    };
    let requests = by_block(&buffer, 0, 0);
    let got = [of(5, &requests[..3]), of(0, &requests[3..])];
    ensure!(got == [0, 0], "{got:?}");
    let done = reap(&rig, 1)?;
    ensure!(users(&done, 0..9) == [3], "{done:?}");
    let (none, pending) = rig.process.flash_reap(9, 9, 0)?;
    ensure!(none.is_empty() && pending == 0, "{none:?} {pending}");
    check(&buffer, 79)?;
    Ok(Pass::Ok)
}

/// libuvmrust leaves it to the driver, and needs no thread for it.
fn by_library() -> Outcome {
    let rig = Rig::new(1 << 10)?;
    let buffer = rig.buffer(4)?;
    rig.gpu_write(&buffer, 89)?;
    let uvm = Uvm::new(Linux::new());
    uvm.use_fd(Some(rig.process.uvm_fd().as_raw_fd()));
    let moves = Moves::new(uvm).map_err(|e| Failure::from(format!("{e:?}")))?;
    let range = Range {
        base: buffer.address(),
        length: buffer.bytes(),
    };
    let go = |to| -> Done {
        let ticket = moves.submit(&[Move { range, to }]);
        let limit = Duration::from_millis(LONG_MS.into());
        ensure!(moves.wait(ticket, limit), "{to:?} takes long");
        ensure!(moves.errors() == (0, None), "{to:?}: {:?}", moves.errors());
        Ok(())
    };
    go(Tier::Ssd)?;
    ensure!(rig.stats()?.pages == 4 * BLOCK / PAGE, "{:?}", rig.stats()?);
    go(Tier::Gpu(rig.gpu.uuid().0))?;
    ensure!(rig.stats()?.pages == 0, "{:?}", rig.stats()?);
    rig.gpu_check(&buffer, 89)?;
    go(Tier::Host)?;
    check(&buffer, 89)?;
    for task in std::fs::read_dir("/proc/self/task")? {
        let name = std::fs::read_to_string(task?.path().join("comm"))?;
        ensure!(name.trim() != "uvmrust-moves", "there is a thread for it");
    }
    Ok(Pass::Ok)
}

/// Between a GPU and the host, nobody needs one.
fn no_device() -> Outcome {
    let rig = Rig::new(1 << 10)?;
    rig.process.flash_detach()?;
    let buffer = rig.buffer(3)?;
    write(&buffer, 83);
    let requests = [
        to_gpu(&rig, &buffer, 0),
        request(&buffer, FROM_GPUS | TO_HOST, 1),
        request(&buffer, TO_HOST, 2),
        to_gpu(&rig, &buffer, 3),
        request(&buffer, FROM_GPUS, 4),
    ];
    submit(&rig, &requests)?;
    let done = reap(&rig, 5)?;
    let status: Vec<_> = done.iter().map(|c| (c.user_data, c.status)).collect();
    let want = [(0, 0), (1, 0), (2, 0), (3, 0), (4, -libc::ENODEV)];
    ensure!(status == want, "{status:?}");
    check(&buffer, 83)?;
    Ok(Pass::Ok)
}

fn eventfd() -> Result<File, Failure> {
    // SAFETY: makes a descriptor, which is ours from then on.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
    ensure!(fd >= 0, "eventfd: {}", std::io::Error::last_os_error());
    // SAFETY: as above.
    Ok(unsafe { File::from_raw_fd(fd) })
}

fn event() -> Outcome {
    let rig = Rig::new(1 << 10)?;
    let buffer = rig.buffer(5)?;
    write(&buffer, 23);
    let mut event = eventfd()?;
    let taken = rig
        .process
        .flash_submit(&by_block(&buffer, 0, 0), Some(event.as_fd()))?;
    ensure!(taken == 5, "{taken} were taken");
    let (mut told, mut done) = (0, 0);
    while told < 5 {
        let mut count = [0; 8];
        event.read_exact(&mut count)?;
        told += u64::from_ne_bytes(count);
        // Who is told finds so many.
        done += rig.process.flash_reap(5, 0, 0)?.0.len() as u64;
        ensure!(told <= 5 && done >= told, "told of {told}, {done} are done");
    }
    // It is closed before anything is done.
    let _slow = limit("1")?;
    let other = eventfd()?;
    rig.process
        .flash_submit(&by_block(&buffer, TO_HOST, 10), Some(other.as_fd()))?;
    rig.process
        .flash_submit(&by_block(&buffer, 0, 20), Some(other.as_fd()))?;
    drop((event, other));
    drop(_slow);
    all_well(&reap(&rig, 10)?)?;
    check(&buffer, 23)?;
    Ok(Pass::Ok)
}

/// Makes the call as it is, and gives its errno.
fn raw<T: Copy>(rig: &Rig, number: u32, params: &mut T) -> i32 {
    let fd = rig.process.uvm_fd().as_raw_fd();
    // SAFETY: the structure of that number; what it names is memory of this program's, or none.
    match unsafe { libc::ioctl(fd, number as libc::Ioctl, params as *mut T) } {
        0 => 0,
        _ => std::io::Error::last_os_error().raw_os_error().unwrap_or(-1),
    }
}

fn bad_submit(change: impl Fn(&mut FlashSubmit, &mut [FlashRequest; 3]), rig: &Rig) -> i32 {
    let mut requests = [FlashRequest {
        base: 1 << 30,
        length: PAGE,
        ..Default::default()
    }; 3];
    let mut submit = FlashSubmit {
        size: size_of::<FlashSubmit>() as u32,
        request_count: 3,
        request_size: size_of::<FlashRequest>() as u32,
        ..Default::default()
    };
    submit.requests = requests.as_ptr() as u64;
    change(&mut submit, &mut requests);
    let before = submit.requests;
    if before == requests.as_ptr() as u64 {
        // The compiler is to know that they are read.
        submit.requests = std::hint::black_box(&requests).as_ptr() as u64;
    }
    raw(rig, uvm_uapi::UVM_RUST_FLASH_SUBMIT, &mut submit)
}

fn bad_input() -> Outcome {
    let rig = Rig::new(1 << 10)?;
    let file = File::open("/dev/null")?;
    let fd = file.as_raw_fd();
    type Change<'a> = &'a dyn Fn(&mut FlashSubmit, &mut [FlashRequest; 3]);
    let cases: [(&str, i32, Change<'_>); 20] = [
        ("a size", libc::EINVAL, &|s, _| s.size = 39),
        ("a large size", libc::E2BIG, &|s, _| s.size = 4097),
        ("a flag", libc::EINVAL, &|s, _| s.flags = 2),
        ("too many", libc::EINVAL, &|s, _| s.request_count = 4097),
        ("short elements", libc::EINVAL, &|s, _| s.request_size = 40),
        ("long elements", libc::EINVAL, &|s, _| s.request_size = 264),
        ("odd elements", libc::EINVAL, &|s, _| s.request_size = 52),
        ("no array", libc::EFAULT, &|s, _| s.requests = 0),
        ("the end", libc::EFAULT, &|s, _| s.requests = u64::MAX - 7),
        ("no event asked for", libc::EINVAL, &|s, _| s.event_fd = 1),
        ("no event", libc::EINVAL, &|s, _| {
            (s.flags, s.event_fd) = (EVENT, fd);
        }),
        ("no descriptor", libc::EBADF, &|s, _| {
            (s.flags, s.event_fd) = (EVENT, -1);
        }),
        ("an odd base", libc::EINVAL, &|_, r| r[2].base += 8),
        ("no length", libc::EINVAL, &|_, r| r[2].length = 0),
        ("over the end", libc::EINVAL, &|_, r| {
            (r[2].base, r[2].length) = (PAGE.wrapping_neg(), PAGE);
        }),
        ("two places", libc::EINVAL, &|_, r| {
            r[2].flags = TO_GPU | TO_HOST;
        }),
        ("from a GPU to one", libc::EINVAL, &|_, r| {
            r[2].flags = TO_GPU | FROM_GPUS;
        }),
        ("an unknown flag", libc::EINVAL, &|_, r| r[2].flags = 1 << 4),
        ("an unknown flag, and one", libc::EINVAL, &|_, r| {
            r[2].flags = AFTER | 1 << 31;
        }),
        ("a reserved field", libc::EINVAL, &|_, r| r[2].reserved = 1),
    ];
    for (what, want, change) in cases {
        let got = bad_submit(change, &rig);
        ensure!(got == want, "{what}: {got}, not {want}");
    }
    let (done, pending) = rig.process.flash_reap(9, 0, 0)?;
    ensure!(done.is_empty() && pending == 0, "some were taken: {done:?}");
    // What is no memory, or of no GPU, is found later.
    let buffer = rig.buffer(1)?;
    submit(&rig, &[request(&buffer, TO_GPU, 0)])?;
    let got = bad_submit(|_, _| {}, &rig);
    ensure!(got == 0, "good input: {got}");
    let done = reap(&rig, 4)?;
    let status = |user: u64| done.iter().filter(move |c| c.user_data == user);
    ensure!(
        status(0).filter(|c| c.status == -libc::ENXIO).count() == 3
            && status(0).filter(|c| c.status == -libc::ENODEV).count() == 1,
        "{done:?}"
    );
    Ok(Pass::Ok)
}

/// Completions that cannot be written to the caller are given the next time.
fn no_place() -> Outcome {
    let rig = Rig::new(1 << 10)?;
    let buffer = rig.buffer(3)?;
    write(&buffer, 29);
    submit(&rig, &by_block(&buffer, 0, 0))?;
    let reap_at = |at: u64, change: &dyn Fn(&mut FlashReap)| {
        let mut reap = FlashReap {
            size: size_of::<FlashReap>() as u32,
            completions: at,
            completion_count: 9,
            completion_size: size_of::<FlashCompletion>() as u32,
            wait_for: 3,
            wait_ms: LONG_MS,
            ..Default::default()
        };
        change(&mut reap);
        (raw(&rig, uvm_uapi::UVM_RUST_FLASH_REAP, &mut reap), reap)
    };
    for at in [8, u64::MAX - 7] {
        let (got, _) = reap_at(at, &|_| {});
        ensure!(got == libc::EFAULT, "{at:#x}: {got}");
    }
    type Change<'a> = &'a dyn Fn(&mut FlashReap);
    let cases: [(&str, Change<'_>); 3] = [
        ("a flag", &|r| r.flags = 1),
        ("short elements", &|r| r.completion_size = 16),
        ("long elements", &|r| r.completion_size = 264),
    ];
    for (what, change) in cases {
        let (got, _) = reap_at(8, change);
        ensure!(got == libc::EINVAL, "{what}: {got}");
    }
    // Elements that are longer than the driver knows end in zeros.
    let mut room = [[!0u64; 4]; 2];
    let at = room.as_mut_ptr() as u64;
    let (got, reaped) = reap_at(at, &|r| (r.completion_size, r.completion_count) = (32, 2));
    let room = std::hint::black_box(room);
    ensure!(
        (got, reaped.reaped) == (0, 2) && room == [[0, 1, 0, 0], [1, 2, 0, 0]],
        "{got} {reaped:?} {room:?}"
    );
    let done = reap(&rig, 1)?;
    ensure!((done[0].user_data, done[0].order) == (2, 3), "{done:?}");
    check(&buffer, 29)?;
    Ok(Pass::Ok)
}

fn no_room() -> Outcome {
    let rig = Rig::new(1 << 10)?;
    let (buffer, before) = (rig.buffer(1)?, rig.buffer(8)?);
    write(&buffer, 31);
    write(&before, 37);
    let pages: Vec<_> = (0..MOST as u64 + 10)
        .map(|n| FlashRequest {
            length: PAGE,
            ..request(&buffer, TO_HOST, n)
        })
        .collect();
    {
        // All wait for one that waits until its tenant may write again.
        let _slow = limit("1")?;
        rig.spill(&before)?;
        submit(&rig, &[request(&buffer, 0, 1 << 32)])?;
        let taken = rig.process.flash_submit(&pages[..MOST], None)?;
        ensure!(taken as usize == MOST - 1, "{taken} were taken");
        let got = errno(rig.process.flash_submit(&pages[MOST..], None));
        ensure!(
            got == Some(libc::EBUSY),
            "more than there is room for: {got:?}"
        );
        let (none, pending) = rig.process.flash_reap(1, 0, 0)?;
        ensure!(
            none.is_empty() && pending as usize == MOST,
            "{none:?} {pending}"
        );
    }
    let (some, _) = rig.process.flash_reap(7, 7, LONG_MS)?;
    ensure!(some.len() == 7, "{some:?}");
    let taken = rig.process.flash_submit(&pages[MOST..], None)?;
    ensure!(taken == 7, "{taken} were taken in place of 7");
    let done = reap(&rig, MOST)?;
    let all: Vec<_> = some.iter().chain(&done).copied().collect();
    all_well(&all)?;
    let mut want: Vec<_> = (0..MOST as u64 - 1).collect();
    want.extend(MOST as u64..MOST as u64 + 7);
    ensure!(users(&all, 0..1 << 32) == want, "not all, or not in order");
    check(&buffer, 31)?;
    Ok(Pass::Ok)
}

/// Some submit and others reap: each completion is given once.
fn threads() -> Outcome {
    const EACH: u64 = 16;
    let rig = Rig::new(1 << 10)?;
    let buffers = [rig.buffer(1)?, rig.buffer(1)?];
    buffers.iter().for_each(|b| write(b, 37));
    let all = Mutex::new(Vec::new());
    std::thread::scope(|scope| -> Done {
        let submits = |n: u64| {
            let buffer = &buffers[n as usize];
            for i in 0..EACH {
                let flags = if i % 2 == 0 { 0 } else { TO_HOST };
                let ask = request(buffer, flags, n * EACH + i);
                while errno(rig.process.flash_submit(&[ask], None)).is_some() {}
            }
        };
        let reaps = || -> Done {
            let start = Instant::now();
            while all.lock().map_or(0, |all| all.len()) < 2 * EACH as usize {
                let (done, _) = rig.process.flash_reap(3, 2, 100)?;
                all.lock().map_err(|_| "a thread panicked")?.extend(done);
                ensure!(start.elapsed() < Duration::from_secs(200), "no end");
            }
            Ok(())
        };
        let reapers = [(); 3].map(|()| scope.spawn(reaps));
        let _ = [0, 1].map(|n| scope.spawn(move || submits(n)));
        for reaper in reapers {
            reaper.joined()??;
        }
        Ok(())
    })?;
    let mut done = all.into_inner().map_err(|_| "a thread panicked")?;
    all_well(&done)?;
    done.sort_by_key(|c| c.order);
    for (n, one) in done.iter().enumerate() {
        ensure!(one.order == n as u64 + 1, "{n}: {one:?}");
    }
    for n in 0..2 {
        let mine = n * EACH..(n + 1) * EACH;
        ensure!(
            users(&done, mine.clone()) == mine.collect::<Vec<_>>(),
            "not in order: {done:?}"
        );
    }
    buffers.iter().try_for_each(|b| check(b, 37))?;
    Ok(Pass::Ok)
}
