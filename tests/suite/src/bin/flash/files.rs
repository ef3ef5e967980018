// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! A GPU's faults on pages of files. Their process waits for the file system, here for a device that does not answer, and nobody
//! else does.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::channel;
use std::thread::scope;
use std::time::{Duration, Instant};

use uvm_suite::{
    ensure, file_in_memory, skip, until_it_dies, Failure, Joined, Outcome, Pass, Suite,
};
use vgpu_client::vgpu::OP_READ;
use vgpu_client::{Buffer, Gpu, Kernel, Launch, Op, Outcome as Ended, Process, BLOCK, PAGE};

use crate::copying::{faults, others_go_on};
use crate::failures::{has_dmsetup, while_it_is_silent, Dm, PATIENCE};
use crate::locks::{ends_with, wait_to_begin, Other};
use crate::rig::{check, Done, Rig, WORDS};
use crate::silent::Page;
use crate::waits::ends_in;
use crate::{NONE, SILENT};

pub(crate) fn run(suite: &mut Suite) {
    suite.test(
        "no process' GPU faults wait for a page of another one's file",
        SILENT,
        read,
    );
    suite.test(
        "nobody's faults wait for a page of a file that a copy engine needs",
        SILENT,
        copied,
    );
    suite.test(
        "nobody's faults wait for a page of a file that a GPU writes to",
        SILENT,
        written,
    );
    suite.test(
        "nobody's faults wait for a write of a GPU to a file of a frozen file system",
        SILENT,
        frozen,
    );
    suite.test(
        "nobody's faults wait for a page of shared memory that is being taken away",
        NONE,
        punched,
    );
    suite.test(
        "no suspend waits for a page of a file that a GPU needs",
        SILENT,
        slept,
    );
    suite.test(
        "nobody's faults wait for a page of a file that UVM_MIGRATE brings, with a lock that a fault needs",
        SILENT,
        migrated,
    );
    suite.test(
        "who is killed waits for no page of a file that its GPU needs",
        SILENT,
        killed,
    );
    suite.test(
        "what is beyond the end of a file is fatal to who needs it",
        NONE,
        beyond,
    );
    suite.test("a GPU reads a large file", NONE, large);
    suite.test("a GPU reads much shared memory", NONE, shared);
}

/// What a page begins with.
const BYTES: [u8; 8] = 0x1234_5678_9abc_def0_u64.to_le_bytes();

/// For how long a kernel or a copy may take that waits for nothing.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// A process with a GPU, a device of which it has pages, and another process.
pub(crate) struct Setting {
    process: Process,
    pub(crate) gpu: Gpu,
    pub(crate) device: Dm,
    other: Rig,
}

/// `None`: there are no such devices, no such faults, or GPUs cannot access such pages.
pub(crate) fn setting() -> Result<Option<Setting>, Failure> {
    let process = Process::new()?;
    let gpu = process.gpu(0)?;
    if !has_dmsetup() || !gpu.has_copies() || !process.has_hmm()? {
        return Ok(None);
    }
    Ok(Some(Setting {
        process,
        gpu,
        device: Dm::new()?,
        other: Rig::unattached(Process::new()?)?,
    }))
}

pub(crate) const NO_SETTING: &str = "there are no such devices or faults";

/// Has the GPU read the first word of the page.
fn reads<'a>(gpu: &'a Gpu, page: &Page) -> Result<Launch<'a>, Failure> {
    let op = Op::wild(OP_READ, page.0 as u64);
    Ok(gpu.launch(&Kernel::new().op(op))?)
}

/// The kernel of [`reads`] ends, and has read what is there.
fn has_read(launch: &Launch<'_>) -> Done {
    let report = launch.wait_for(SOON)?;
    report.ok()?;
    let sum = report.sum;
    ensure!(sum == u64::from_le_bytes(BYTES), "it read {sum:#x}");
    Ok(())
}

/// A kernel still waits.
fn waits(launch: &Launch<'_>) -> Done {
    let early = launch.wait_for(Duration::from_millis(1));
    let errno = early.err().and_then(|error| error.errno());
    ensure!(errno == Some(libc::ETIMEDOUT), "it waited for nothing");
    Ok(())
}

fn read() -> Outcome {
    let Some(setting) = setting()? else {
        skip!("{NO_SETTING}");
    };
    let page = Page::of(&setting.device, 0, &BYTES)?;
    let mut another = Other::ready("--child-faults")?;
    let silence = setting.device.suspend()?;
    let launch = reads(&setting.gpu, &page)?;
    while_it_is_silent(silence, || {
        std::thread::sleep(Duration::from_millis(300));
        for _ in 0..4 {
            faults(&setting.other)?;
        }
        ensure!(another.ends()?, "another process' faults are not serviced");
        waits(&launch)
    })?;
    another.succeeds()?;
    has_read(&launch)?;
    Ok(Pass::Ok)
}

fn copied() -> Outcome {
    let Some(setting) = setting()? else {
        skip!("{NO_SETTING}");
    };
    let page = Page::of(&setting.device, 0, &BYTES)?;
    let channel = setting.gpu.channel();
    let silence = setting.device.suspend()?;
    channel.copy(page.0 as u64)?;
    while_it_is_silent(silence, || {
        channel.wait_for_copy_fault(SOON)?;
        others_go_on(channel, &setting.other)
    })?;
    channel.wait_for_copies(1, SOON)?;
    // The process' own copy of the page.
    let seen = first_word(&page);
    ensure!(seen == u64::from_le_bytes(BYTES) + 1, "{seen:#x}");
    Ok(Pass::Ok)
}

fn first_word(page: &Page) -> u64 {
    // SAFETY: the page is there, and whoever wrote to it has ended.
    unsafe { page.0.cast::<u64>().read_volatile() }
}

/// Of all processes' memory of the device: what is written has to come to the device, for which Linux may have who writes wait.
fn written() -> Outcome {
    let Some(setting) = setting()? else {
        skip!("{NO_SETTING}");
    };
    // It is written, and nobody has it in memory any more.
    drop(Page::of(&setting.device, 0, &BYTES)?);
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&setting.device.0)?;
    let shared = Buffer::<u64>::of_file(file.as_fd(), Page::AT, WORDS_OF_PAGE)?;
    let silence = setting.device.suspend()?;
    let op = Op::write(&shared).pattern(11, 1);
    let launch = setting.gpu.launch(&Kernel::new().op(op))?;
    while_it_is_silent(silence, || {
        std::thread::sleep(Duration::from_millis(300));
        for _ in 0..4 {
            faults(&setting.other)?;
        }
        waits(&launch)
    })?;
    launch.wait_for(SOON)?.ok()?;
    check(&shared, 11)?;
    drop(shared);
    file.sync_all()?;
    let mut word = [0; 8];
    file.read_exact_at(&mut word, Page::AT + 8)?;
    ensure!(u64::from_le_bytes(word) == 12, "the file has {word:x?}");
    Ok(Pass::Ok)
}

const WORDS_OF_PAGE: usize = PAGE as usize / 8;

/// A file system on the device that takes no writes until it is told to.
struct Frozen;

impl Frozen {
    const AT: &'static str = "/run/uvm-rust-flash";

    fn file() -> Result<File, Failure> {
        let path = Path::new(Self::AT).join("file");
        let mut options = OpenOptions::new();
        Ok(options.read(true).write(true).create(true).open(path)?)
    }

    /// Makes the file system, with a file of one page; whether there can be such a thing.
    fn new(device: &Dm) -> Result<Option<Self>, Failure> {
        let path = device.0.as_os_str();
        if !call("mkfs.ext4", &["-q".as_ref(), "-F".as_ref(), path]) {
            return Ok(None);
        }
        std::fs::create_dir_all(Self::AT)?;
        if !call("mount", &[path, Self::AT.as_ref()]) {
            return Ok(None);
        }
        let frozen = Self;
        let file = Self::file()?;
        file.write_all_at(&[1; PAGE as usize], 0)?;
        file.sync_all()?;
        Ok(Some(frozen))
    }

    fn set(to: &str) -> Done {
        ensure!(
            call("fsfreeze", &[to.as_ref(), Self::AT.as_ref()]),
            "fsfreeze {to}"
        );
        Ok(())
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        call("umount", &["--lazy".as_ref(), Self::AT.as_ref()]);
    }
}

/// Whether a program succeeds.
fn call(program: &str, arguments: &[&OsStr]) -> bool {
    let status = Command::new(program).args(arguments).status();
    status.is_ok_and(|status| status.success())
}

/// Run by the test below: has its GPU write to a page that the CPU has read, once it is told to begin.
pub(crate) fn child_writes() -> ExitCode {
    ends_with(|| {
        let process = Process::new()?;
        let gpu = process.gpu(0)?;
        let shared = Buffer::<u64>::of_file(Frozen::file()?.as_fd(), 0, WORDS_OF_PAGE)?;
        ensure!(
            shared.get(0) == 0x0101_0101_0101_0101,
            "the file has {:#x}",
            shared.get(0)
        );
        wait_to_begin()?;
        let op = Op::write(&shared).pattern(19, 1);
        gpu.launch(&Kernel::new().op(op))?.wait()?.ok()?;
        check(&shared, 19)
    })
}

/// The page is in memory, and the file system has who writes to it wait. Linux keeps the lock of the process' memory meanwhile.
fn frozen() -> Outcome {
    let Some(setting) = setting()? else {
        skip!("{NO_SETTING}");
    };
    let Some(system) = Frozen::new(&setting.device)? else {
        skip!("there is no ext4");
    };
    let mut child = Other::ready("--child-writes")?;
    Frozen::set("--freeze")?;
    let mut work = || -> Done {
        child.begins()?;
        std::thread::sleep(Duration::from_secs(1));
        ensure!(child.0 .0.try_wait()?.is_none(), "it waited for nothing");
        for _ in 0..4 {
            faults(&setting.other)?;
        }
        ensure!(child.0 .0.try_wait()?.is_none(), "it waited too short");
        Ok(())
    };
    let done = work();
    Frozen::set("--unfreeze")?;
    done?;
    child.succeeds()?;
    drop(system);
    Ok(Pass::Ok)
}

/// The bytes of a file in memory, none of which has been written: so many that to take them away takes several turns of a thread
/// that runs for a few milliseconds at a time.
const MUCH: u64 = 256 << 20;

/// Calls Linux's function for the first [`MUCH`] bytes of a file.
fn allocate(file: &File, mode: i32) -> Done {
    // SAFETY: the function takes numbers only, and the descriptor is open as long as `file` is.
    let ret = unsafe { libc::fallocate(file.as_raw_fd(), mode, 0, MUCH as i64) };
    ensure!(ret == 0, "fallocate: {}", std::io::Error::last_os_error());
    Ok(())
}

/// Has the calling thread run on the first CPU only, under this policy of Linux's.
fn run_on_one_cpu(policy: i32) -> Done {
    let none = libc::sched_param { sched_priority: 0 };
    // SAFETY: a set of CPUs is numbers only. Both structures are there for the calls, which change no memory of this process.
    let ret = unsafe {
        let mut cpus: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(0, &mut cpus);
        let on_one = libc::sched_setaffinity(0, size_of_val(&cpus), &cpus);
        on_one | libc::sched_setscheduler(0, policy, &none)
    };
    ensure!(ret == 0, "{}", std::io::Error::last_os_error());
    Ok(())
}

/// While `work` runs, a thread takes the pages of the file away. It gets what a busy thread leaves of a CPU, a few milliseconds in a
/// second. `work` may ask whether it still does.
fn while_it_is_punched(file: &File, work: impl FnOnce(&dyn Fn() -> bool) -> Done) -> Done {
    let (is_enough, has_ended) = (AtomicBool::new(false), AtomicBool::new(false));
    scope(|scope| {
        let busy = scope.spawn(|| -> Done {
            run_on_one_cpu(libc::SCHED_OTHER)?;
            while !is_enough.load(Relaxed) {
                std::hint::spin_loop();
            }
            Ok(())
        });
        let punches = scope.spawn(|| -> Done {
            run_on_one_cpu(libc::SCHED_IDLE)?;
            let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
            let punched = allocate(file, mode);
            has_ended.store(true, Relaxed);
            punched
        });
        let worked = work(&|| !has_ended.load(Relaxed));
        is_enough.store(true, Relaxed);
        busy.joined()??;
        punches.joined()??;
        worked
    })
}

/// A fault on a page of shared memory waits in Linux while a call takes the pages around it away, however long the thread that
/// called takes for that. Anybody may have such a thread run as good as never.
fn punched() -> Outcome {
    let Some(setting) = setting()? else {
        skip!("{NO_SETTING}");
    };
    let file = file_in_memory(c"punched")?;
    allocate(&file, 0)?;
    let shared = Buffer::<u64>::of_file(file.as_fd(), 0, WORDS_OF_PAGE)?;
    let all = file.metadata()?.blocks();
    let mut another = Other::ready("--child-faults")?;
    let op = Op::write(&shared).pattern(29, 1);
    let mut launch = None;
    while_it_is_punched(&file, |goes_on| {
        let start = Instant::now();
        while file.metadata()?.blocks() == all {
            ensure!(start.elapsed() < PATIENCE, "no page is taken away");
            std::thread::sleep(Duration::from_millis(1));
        }
        let launch = launch.insert(setting.gpu.launch(&Kernel::new().op(op))?);
        std::thread::sleep(Duration::from_millis(300));
        ensure!(another.ends()?, "another process' faults are not serviced");
        ensure!(goes_on(), "the pages were gone too soon");
        waits(launch)
    })?;
    another.succeeds()?;
    launch.ok_or("no kernel")?.wait_for(SOON)?.ok()?;
    check(&shared, 29)?;
    Ok(Pass::Ok)
}

/// A kernel's fault and a copy engine's are on their way when the system sleeps.
fn slept() -> Outcome {
    let Some(setting) = setting()? else {
        skip!("{NO_SETTING}");
    };
    let gpu = &setting.gpu;
    let (page, copied) = (
        Page::of(&setting.device, 0, &BYTES)?,
        Page::of(&setting.device, 1, &BYTES)?,
    );
    let silence = setting.device.suspend()?;
    let launch = reads(gpu, &page)?;
    gpu.channel().copy(copied.0 as u64)?;
    while_it_is_silent(silence, || {
        gpu.channel().wait_for_copy_fault(SOON)?;
        std::thread::sleep(Duration::from_millis(200));
        gpu.suspend(Duration::from_millis(20))?;
        faults(&setting.other)?;
        waits(&launch)
    })?;
    has_read(&launch)?;
    gpu.channel().wait_for_copies(1, SOON)?;
    let seen = first_word(&copied);
    ensure!(seen == u64::from_le_bytes(BYTES) + 1, "{seen:#x}");
    Ok(Pass::Ok)
}

/// Run by the test below, for a page of the device. While UVM_MIGRATE brings a page, the GPU needs one of ordinary memory that is in the
/// same va_block.
pub(crate) fn child_migrates() -> ExitCode {
    ends_with(|| {
        let process = Process::new()?;
        let gpu = process.gpu(0)?;
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).open(&Dm::made().0)?;
        let shared = Buffer::<u64>::of_file(file.as_fd(), Page::AT, WORDS_OF_PAGE)?;
        let beside = Buffer::<u64>::ordinary_at(shared.address() + PAGE, WORDS_OF_PAGE)?;
        beside.set(0, 23);
        let read = Kernel::new().op(Op::check(&beside).range(0, 1).pattern(23, 0));
        let (begin, begins) = channel();
        scope(|scope| -> Done {
            // Before the call: Linux maps nothing for this process in the middle of it.
            let (gpu, read) = (&gpu, &read);
            let reads = scope.spawn(move || -> Done {
                begins.recv().map_err(|_| "nothing begins")?;
                std::thread::sleep(Duration::from_millis(300));
                gpu.launch(read)?.wait()?.ok()?;
                Ok(())
            });
            wait_to_begin()?;
            let _ = begin.send(());
            process.migrate(shared.address(), PAGE, gpu.uuid())?;
            reads.joined()?
        })
    })
}

fn migrated() -> Outcome {
    let Some(setting) = setting()? else {
        skip!("{NO_SETTING}");
    };
    // It is written, and nobody has it in memory any more.
    drop(Page::of(&setting.device, 0, &BYTES)?);
    let mut child = Other::ready("--child-migrates")?;
    let silence = setting.device.suspend()?;
    while_it_is_silent(silence, || {
        child.begins()?;
        std::thread::sleep(Duration::from_secs(1));
        for _ in 0..4 {
            faults(&setting.other)?;
        }
        ensure!(child.0 .0.try_wait()?.is_none(), "it waited for nothing");
        Ok(())
    })?;
    child.succeeds()?;
    Ok(Pass::Ok)
}

/// Run by the test below: its GPU needs a page of the device, once it is told to begin.
pub(crate) fn child_maps() -> ExitCode {
    ends_with(|| {
        let process = Process::new()?;
        let gpu = process.gpu(0)?;
        let page = Page::of(&Dm::made(), 0, &BYTES)?;
        wait_to_begin()?;
        reads(&gpu, &page)?.wait()?.ok()?;
        Ok(())
    })
}

/// It has ended before the device answers, and so have its channel and its VA space.
fn killed() -> Outcome {
    let Some(setting) = setting()? else {
        skip!("{NO_SETTING}");
    };
    let mut child = Other::ready("--child-maps")?;
    let silence = setting.device.suspend()?;
    while_it_is_silent(silence, || {
        child.begins()?;
        std::thread::sleep(Duration::from_secs(1));
        ensure!(child.0 .0.try_wait()?.is_none(), "it waited for nothing");
        child.0 .0.kill()?;
        ensure!(
            ends_in(&mut child.0, PATIENCE / 3)?,
            "it waits for the page"
        );
        for _ in 0..2 {
            faults(&setting.other)?;
        }
        Ok(())
    })?;
    faults(&setting.other)?;
    Ok(Pass::Ok)
}

/// Linux has no such page for a CPU either, which would get SIGBUS.
fn beyond() -> Outcome {
    let Some(setting) = setting()? else {
        skip!("{NO_SETTING}");
    };
    let mut file = File::options()
        .read(true)
        .write(true)
        .open(&setting.device.0)?;
    let end = file.seek(SeekFrom::End(0))?;
    ensure!(end % PAGE == 0, "the device ends within a page: {end}");
    let within = Buffer::<u64>::of_file(file.as_fd(), end - PAGE, WORDS_OF_PAGE)?;
    let last = Buffer::<u64>::of_file(file.as_fd(), end - PAGE, 2 * WORDS_OF_PAGE)?;
    let gpu = &setting.gpu;
    let op = Op::write(&within).pattern(13, 1);
    gpu.launch(&Kernel::new().op(op))?.wait_for(SOON)?.ok()?;
    let copying = gpu.new_channel()?;
    let op = Op::wild(OP_READ, last.address() + PAGE);
    let report = gpu.launch(&Kernel::new().op(op))?.wait_for(SOON)?;
    let how = report.outcome;
    ensure!(how == Ended::Faulted, "the kernel ended as {how:?}");
    copying.copy(last.address() + PAGE)?;
    let unused = Buffer::managed(&setting.process, WORDS_OF_PAGE)?;
    until_it_dies(&copying, &unused, SOON)?;
    check(&within, 13)?;
    faults(&setting.other)?;
    Ok(Pass::Ok)
}

/// Blocks of a large file.
const BLOCKS: usize = 16;

/// Writes to a file what [`reads_all`] reads, from its second block on.
fn write_all(file: &File) -> Done {
    let words: Vec<u8> = (0..(BLOCKS * WORDS) as u64)
        .flat_map(|word| (17 + word).to_le_bytes())
        .collect();
    file.write_all_at(&words, BLOCK)?;
    Ok(())
}

/// A GPU reads a file, which is first not mapped, and then mapped. `what` says what of, and where it is.
fn reads_all(gpu: &Gpu, file: &File, what: &str) -> Done {
    let mapped = Buffer::<u64>::of_file(file.as_fd(), BLOCK, BLOCKS * WORDS)?;
    for how in ["not mapped", "mapped"] {
        let start = Instant::now();
        let op = Op::check(&mapped).pattern(17, 1).warps(8);
        gpu.launch(&Kernel::new().op(op))?
            .wait_for(PATIENCE)?
            .ok()?;
        let took = start.elapsed();
        println!("# {BLOCKS} blocks of {what}, {how}: {took:?}");
    }
    Ok(())
}

/// First it has to be read, then it is in memory but not mapped, and then it is mapped.
fn large() -> Outcome {
    let Some(setting) = setting()? else {
        skip!("{NO_SETTING}");
    };
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&setting.device.0)?;
    write_all(&file)?;
    file.sync_all()?;
    std::fs::write("/proc/sys/vm/drop_caches", "1")?;
    for what in ["a file, not in memory", "a file, in memory"] {
        reads_all(&setting.gpu, &file, what)?;
    }
    Ok(Pass::Ok)
}

/// It is in memory, and nobody has mapped it.
fn shared() -> Outcome {
    let Some(setting) = setting()? else {
        skip!("{NO_SETTING}");
    };
    let file = file_in_memory(c"shared")?;
    write_all(&file)?;
    for _ in 0..2 {
        reads_all(&setting.gpu, &file, "shared memory")?;
    }
    Ok(Pass::Ok)
}
