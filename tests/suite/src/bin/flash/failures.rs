// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Devices that fail, through device mapper; what is on the device; and programs that
//! are killed.

use std::fs::File;
use std::io::Read;
use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use uvm_suite::{ensure, skip, this_program, Failure, Joined, Outcome, Pass, Suite};
use vgpu_client::uvm::Uuid;
use vgpu_client::{Kernel, Op, Outcome as Ended, Process, BLOCK, PAGE};

use crate::rig::{check, device, no_leak, plain, write, Done, Rig};
use crate::{FAILING, NONE};

pub(crate) fn run(suite: &mut Suite) {
    suite.test(
        "nothing that was written can be read from the device",
        NONE,
        plaintext,
    );
    suite.test("writes fail", FAILING, writes_fail);
    suite.test("reads fail: a CPU gets SIGBUS", FAILING, reads_fail_cpu);
    suite.test(
        "reads fail: a GPU's access is fatal",
        FAILING,
        reads_fail_gpu,
    );
    suite.test("the device changes what was written", FAILING, corrupted);
    suite.test("a program is killed at any moment", NONE, killed);
    suite.test("the system sleeps", NONE, suspended);
    suite.test(
        "a suspend does not wait for all that a detaching brings back",
        NONE,
        suspended_while_detaching,
    );
    suite.test("not without CAP_SYS_ADMIN", NONE, unprivileged);
}

/// A device-mapper device over all of the real one.
pub(crate) struct Dm(pub(crate) PathBuf);

impl Dm {
    const NAME: &'static str = "uvm-rust-flash";

    pub(crate) fn new() -> Result<Self, Failure> {
        Self::create(&Self::table("linear", "")?)
    }

    /// That of another process, which removes it.
    pub(crate) fn made() -> ManuallyDrop<Self> {
        ManuallyDrop::new(Self(PathBuf::from("/dev/mapper").join(Self::NAME)))
    }

    /// A device that has only the first `bytes` of the real one.
    pub(crate) fn small(bytes: u64) -> Result<Self, Failure> {
        Self::create(&format!(
            "0 {} linear {} 0",
            bytes / 512,
            device().display()
        ))
    }

    pub(crate) fn create(table: &str) -> Result<Self, Failure> {
        let dm = Self(PathBuf::from("/dev/mapper").join(Self::NAME));
        dmsetup(&["create", Self::NAME, "--noudevsync", "--table", table])?;
        Ok(dm)
    }

    fn table(target: &str, more: &str) -> Result<String, Failure> {
        let name = device().file_name().unwrap_or_default();
        let size = std::path::Path::new("/sys/class/block")
            .join(name)
            .join("size");
        let sectors = std::fs::read_to_string(size)?;
        let (sectors, path) = (sectors.trim(), device().display());
        Ok(match target {
            "error" => format!("0 {sectors} error"),
            _ => format!("0 {sectors} {target} {path} 0 {more}"),
        })
    }

    /// Makes it another kind of device under the driver's feet.
    pub(crate) fn become_(&self, target: &str, more: &str) -> Done {
        let table = Self::table(target, more)?;
        dmsetup(&["load", Self::NAME, "--table", &table])?;
        dmsetup(&["resume", Self::NAME, "--noudevsync"])
    }
}

/// Longer than anybody takes who does not wait for the device.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

impl Dm {
    /// From now on the device answers nothing, until the silence is ended or has lasted too long.
    ///
    /// Who ends it runs already, as a program and without a thread of this one: whoever waits
    /// in a page fault may hold the lock of the address space, and so does the service of a GPU's
    /// fault, in which neither can be started.
    pub(crate) fn suspend(&self) -> Result<Silence, Failure> {
        let script = format!(
            "read -r -t {} _; exec dmsetup resume {} --noudevsync",
            PATIENCE.as_secs(),
            Self::NAME
        );
        let child = Command::new("bash")
            .args(["-c", &script])
            .env("DM_DISABLE_UDEV", "1")
            .stdin(Stdio::piped())
            .spawn()?;
        let silence = Silence(child, Instant::now());
        dmsetup(&["suspend", "--nolockfs", "--noflush", Self::NAME])?;
        Ok(silence)
    }
}

/// A device that answers again, also to what it was asked in between, when this says so.
/// Since when: a program that ends the silence by itself may still run when others have gone on.
pub(crate) struct Silence(Child, Instant);

impl Silence {
    /// Ends it; fails if it has ended by itself, as somebody waited for the device.
    pub(crate) fn end(mut self) -> Done {
        let silent = self.0.try_wait()?.is_none() && self.1.elapsed() < PATIENCE;
        drop(self.0.stdin.take());
        let status = self.0.wait()?;
        ensure!(status.success(), "dmsetup resume: {status}");
        ensure!(silent, "it waited for the device");
        Ok(())
    }
}

impl Drop for Silence {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// Runs `other` while the device answers nothing; fails if it ends only when the device does
/// answer.
pub(crate) fn while_it_is_silent(silence: Silence, other: impl FnOnce() -> Done) -> Done {
    let result = other();
    let silent = silence.end();
    result?;
    silent
}

/// A device-mapper device of two parts of the real one: the first is `Dm`, which can fall silent
/// for itself.
pub(crate) struct TwoParts(pub(crate) PathBuf, pub(crate) Dm);

impl TwoParts {
    const NAME: &'static str = "uvm-rust-flash-2";

    pub(crate) fn new(first: u64) -> Result<Self, Failure> {
        let dm = Dm::small(first)?;
        let file = std::fs::File::open(device())?;
        let all = std::io::Seek::seek(&mut &file, std::io::SeekFrom::End(0))? / 512;
        let (first, path) = (first / 512, device().display());
        let table = format!(
            "0 {first} linear {} 0\n{first} {} linear {path} {first}\n",
            dm.0.display(),
            all - first
        );
        let mut child = Command::new("dmsetup")
            .args(["create", Self::NAME, "--noudevsync"])
            .env("DM_DISABLE_UDEV", "1")
            .stdin(Stdio::piped())
            .spawn()?;
        let mut input = child.stdin.take().ok_or("no input")?;
        std::io::Write::write_all(&mut input, table.as_bytes())?;
        drop(input);
        let status = child.wait()?;
        ensure!(status.success(), "dmsetup create: {status}");
        Ok(Self(PathBuf::from("/dev/mapper").join(Self::NAME), dm))
    }
}

impl Drop for TwoParts {
    fn drop(&mut self) {
        let _ = dm_remove(Self::NAME);
    }
}

impl Drop for Dm {
    fn drop(&mut self) {
        let _ = dm_remove(Self::NAME);
    }
}

/// Removes a device. udev may have it open for a moment, to look at it; if it stayed, the next
/// one of that name could not be made.
fn dm_remove(name: &str) -> Done {
    let start = Instant::now();
    loop {
        let removed = dmsetup(&["remove", "--force", "--retry", "--noudevsync", name]);
        if removed.is_ok() || start.elapsed() > Duration::from_secs(30) {
            return removed;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn dmsetup(args: &[&str]) -> Done {
    // Without udev, as in the VM, it makes the nodes itself.
    let output = Command::new("dmsetup")
        .args(args)
        .env("DM_DISABLE_UDEV", "1")
        .output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "dmsetup {args:?}: {errors}");
    Ok(())
}

pub(crate) fn has_dmsetup() -> bool {
    Command::new("dmsetup")
        .arg("version")
        .output()
        .is_ok_and(|o| o.status.success())
}

/// Every word of the pages is looked for in all of the device.
fn plaintext() -> Outcome {
    const SECRET: u64 = 0x5ec7_e705_ec7e_7051;
    let rig = Rig::new(1 << 10)?;
    let buffer = rig.buffer(8)?;
    buffer.fill(|_| SECRET);
    rig.spill(&buffer)?;
    let stats = rig.stats()?;
    ensure!(stats.pages == 8 * 512, "not all is on flash: {stats:?}");
    let mut file = File::open(device())?;
    let mut chunk = vec![0; BLOCK as usize];
    let mut data = 0u64;
    loop {
        let n = file.read(&mut chunk)?;
        if n == 0 {
            break;
        }
        let words = || chunk[..n].chunks_exact(8);
        ensure!(
            !words().any(|w| w == SECRET.to_ne_bytes()),
            "what was written is on the device"
        );
        data += words().filter(|w| **w != [0; 8]).count() as u64;
    }
    // It was looked for in the right place, and equal pages do not look equal.
    ensure!(
        data > buffer.len() as u64 / 2,
        "only {data} words are on the device"
    );
    check_constant(&buffer, SECRET)?;
    Ok(Pass::Ok)
}

fn check_constant(buffer: &vgpu_client::Buffer<u64>, value: u64) -> Done {
    let other = buffer.first_other(|_| value);
    ensure!(other.is_none(), "{other:x?} is not {value:#x}");
    Ok(())
}

/// The pages stay in host memory, and the program goes on.
fn writes_fail() -> Outcome {
    if !has_dmsetup() {
        skip!("dmsetup is not installed");
    }
    let dm = Dm::new()?;
    let rig = Rig::with(plain(&dm.0, 4))?;
    dm.become_("flakey", "0 1 1 error_writes")?;
    let buffer = rig.buffer(10)?;
    write(&buffer, 53);
    let stats = rig.stats()?;
    ensure!(stats.write_errors > 0 && stats.spilled == 0, "{stats:?}");
    check(&buffer, 53)?;
    dm.become_("linear", "")?;
    rig.spill(&buffer)?;
    ensure!(
        rig.stats()?.spilled > 0,
        "does not recover: {:?}",
        rig.stats()?
    );
    check(&buffer, 53)?;
    drop(buffer);
    no_leak(&rig)?;
    drop(rig);
    Ok(Pass::Ok)
}

/// Run by the test below: dies of SIGBUS.
pub(crate) fn child_reads() -> ExitCode {
    let work = || -> Done {
        let process = Process::new()?;
        let buffer = vgpu_client::Buffer::<u64>::managed(&process, BLOCK as usize / 8)?;
        write(&buffer, 59);
        process.flash_move(buffer.address(), buffer.bytes(), false)?;
        let table = Dm::table("error", "")?;
        dmsetup(&["load", Dm::NAME, "--table", &table])?;
        dmsetup(&["resume", Dm::NAME, "--noudevsync"])?;
        println!("read {:#x}", buffer.get(0));
        Ok(())
    };
    if let Err(error) = work() {
        println!("{error:?}");
    }
    ExitCode::from(3)
}

fn reads_fail_cpu() -> Outcome {
    if !has_dmsetup() {
        skip!("dmsetup is not installed");
    }
    let dm = Dm::new()?;
    let rig = Rig::with(plain(&dm.0, 1 << 10))?;
    let mine = rig.buffer(2)?;
    write(&mine, 61);
    rig.spill(&mine)?;
    let output = this_program()?
        .arg("--child-reads")
        .arg("--device")
        .arg(device())
        .output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    let signal = output.status.signal();
    ensure!(
        signal == Some(libc::SIGBUS),
        "ended by {:?}: {said}",
        output.status
    );
    dm.become_("linear", "")?;
    // What others have there is not affected.
    check(&mine, 61)?;
    drop(mine);
    let stats = rig.stats()?;
    ensure!(stats.lost_pages > 0, "{stats:?}");
    no_leak(&rig)?;
    drop(rig);
    Ok(Pass::Ok)
}

fn reads_fail_gpu() -> Outcome {
    if !has_dmsetup() {
        skip!("dmsetup is not installed");
    }
    let dm = Dm::new()?;
    let rig = Rig::with(plain(&dm.0, 1 << 10))?;
    let buffer = rig.buffer(1)?;
    write(&buffer, 67);
    rig.spill(&buffer)?;
    dm.become_("error", "")?;
    let op = Op::read(&buffer).range(0, 8).warps(1);
    let report = rig.gpu.launch(&Kernel::new().op(op))?.wait()?;
    ensure!(report.outcome == Ended::Faulted, "{report:?}");
    let moved = rig.process.migrate(buffer.address(), PAGE, Uuid::CPU);
    ensure!(moved.is_err(), "a lost page was migrated");
    dm.become_("linear", "")?;
    drop(rig);
    Ok(Pass::Ok)
}

/// Every place of the device is written to behind the driver's back.
fn corrupted() -> Outcome {
    let rig = Rig::new(1 << 10)?;
    let buffer = rig.buffer(2)?;
    write(&buffer, 71);
    rig.spill(&buffer)?;
    let raw = std::fs::OpenOptions::new().write(true).open(device())?;
    // The first slot begins after 2 MiB; one bit of each page is enough.
    for page in 0..2 * 512 {
        raw.write_all_at(&[0xa5], BLOCK + page * PAGE + 77)?;
    }
    raw.sync_all()?;
    let fetched = rig.fetch(&buffer);
    ensure!(fetched.is_err(), "wrong bytes were taken for right");
    let stats = rig.stats()?;
    ensure!(
        stats.lost_pages > 0 && stats.fetched < buffer.bytes() / 64,
        "{stats:?}"
    );
    drop(buffer);
    no_leak(&rig)?;
    Ok(Pass::Ok)
}

/// Run by the test below: works until it is killed.
pub(crate) fn child_works(seed: u64) -> ExitCode {
    let work = || -> Done {
        let rig = Rig::unattached(Process::new()?)?;
        crate::random::run(&rig, 32, u32::MAX, seed)
    };
    println!("{:?}", work());
    ExitCode::from(3)
}

fn killed() -> Outcome {
    let rig = Rig::new(16)?;
    for n in 0..8 {
        let mut child = this_program()?
            .args(["--child-works", "--seed", &n.to_string()])
            .stdout(std::process::Stdio::null())
            .spawn()?;
        // Half of them while something is on the device, however slow the machine is.
        let start = Instant::now();
        while n % 2 == 1 && rig.stats()?.pages == 0 && start.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(50));
        }
        std::thread::sleep(Duration::from_millis(700 + 330 * n));
        let early = child.try_wait()?;
        child.kill()?;
        child.wait()?;
        ensure!(early.is_none(), "the program ended by itself: {early:?}");
        no_leak(&rig)?;
    }
    ensure!(
        rig.stats()?.spilled > 0,
        "nothing was spilled: {:?}",
        rig.stats()?
    );
    Ok(Pass::Ok)
}

/// Spills and fetches stop with the system and go on with it.
fn suspended() -> Outcome {
    let rig = Rig::new(16)?;
    let mut sleeps = 0;
    // The program may be over before it was interrupted: once more, then. A sleep counts after which more was moved.
    for seed in 1..=20 {
        std::thread::scope(|scope| -> Done {
            let worker = scope.spawn(|| crate::random::run(&rig, 32, 150, seed));
            while !worker.is_finished() {
                rig.gpu.suspend(Duration::from_millis(100))?;
                let before = rig.stats()?;
                std::thread::sleep(Duration::from_millis(400));
                let after = rig.stats()?;
                let moved = |s: &vgpu_client::FlashStats| (s.spilled, s.fetched);
                sleeps += u32::from(moved(&before) != moved(&after));
            }
            worker.joined()?
        })?;
        if sleeps > 4 {
            break;
        }
        ensure!(seed < 20, "{sleeps} sleeps in 20 programs");
    }
    ensure!(rig.stats()?.spilled > 0, "nothing was spilled");
    no_leak(&rig)?;
    Ok(Pass::Ok)
}

/// Detaching ends with EAGAIN where somebody waits to suspend the system, and goes on when it is called again. The
/// device answers only when somebody waits, so that not all can be back before.
fn suspended_while_detaching() -> Outcome {
    if !has_dmsetup() {
        skip!("dmsetup is not installed");
    }
    let dm = Dm::new()?;
    let rig = Rig::with(plain(&dm.0, 1 << 10))?;
    let buffer = rig.buffer(48)?;
    write(&buffer, 173);
    rig.spill(&buffer)?;
    let all = rig.stats()?.pages;
    let silence = dm.suspend()?;
    let (told, tells) = channel();
    let detached = std::thread::scope(|scope| -> Result<_, Failure> {
        let (rig, told) = (&rig, told);
        let detaching = scope.spawn(move || {
            // SAFETY: it only tells a number.
            let _ = told.send(unsafe { libc::gettid() });
            rig.process.flash_detach_once()
        });
        let mut suspending = None;
        let silent = while_it_is_silent(silence, || {
            wait_for_device(tells.recv().map_err(|_| "a thread panicked")?)?;
            suspending = Some(scope.spawn(|| rig.gpu.suspend(Duration::from_millis(100))));
            until_refused(rig)
        });
        let detached = detaching.joined()?;
        if let Some(suspending) = suspending {
            suspending.joined()??;
        }
        silent?;
        Ok(detached)
    })?;
    let errno = detached.err().and_then(|error| error.errno());
    ensure!(errno == Some(libc::EAGAIN), "detached: {errno:?}");
    let left = rig.stats()?.pages;
    ensure!(left < all, "it did not begin");
    ensure!(left > 0, "all {all} pages came back before it slept");
    rig.process.flash_detach()?;
    check(&buffer, 173)?;
    Ok(Pass::Ok)
}

/// Waits until UVM takes no call, as somebody waits to suspend the system.
fn until_refused(rig: &Rig) -> Done {
    let start = Instant::now();
    let mut version = uvm_uapi::uvm_rust_version {
        size: size_of::<uvm_uapi::uvm_rust_version>() as u32,
        ..Default::default()
    };
    let (fd, number) = (
        rig.process.uvm_fd().as_raw_fd(),
        uvm_uapi::UVM_RUST_GET_VERSION,
    );
    // SAFETY: the structure of that number.
    while unsafe { libc::ioctl(fd, number as libc::Ioctl, &raw mut version) } == 0 {
        ensure!(start.elapsed() < PATIENCE / 3, "nobody waits to suspend");
        std::thread::sleep(Duration::from_millis(5));
    }
    let errno = std::io::Error::last_os_error().raw_os_error();
    ensure!(errno == Some(libc::EAGAIN), "{errno:?}");
    Ok(())
}

/// Waits until a thread of this process waits for the silent device: it sleeps for ten looks in a row.
pub(crate) fn wait_for_device(thread: libc::pid_t) -> Done {
    let (start, mut asleep) = (Instant::now(), 0);
    while asleep < 10 {
        ensure!(start.elapsed() < PATIENCE / 3, "the call waits for nothing");
        std::thread::sleep(Duration::from_millis(10));
        let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat"));
        let stat = stat.map_err(|_| "the call did not wait for the device")?;
        let state = stat.rsplit_once(") ").map_or("R", |(_, rest)| rest);
        asleep = if state.starts_with(['D', 'S']) {
            asleep + 1
        } else {
            0
        };
    }
    Ok(())
}

/// Run by the test below, as another user.
pub(crate) fn child_attaches() -> ExitCode {
    let Ok(process) = Process::new() else {
        return ExitCode::from(4);
    };
    let attached = process.flash_attach(plain(device(), 16));
    let detached = process.flash_detach();
    let errno = |r: vgpu_client::Result<()>| r.err().and_then(|e| e.errno());
    let refused = [errno(attached), errno(detached)] == [Some(libc::EPERM); 2];
    ExitCode::from(u8::from(!refused))
}

fn unprivileged() -> Outcome {
    let status = this_program()?.arg("--child-attaches").uid(65534).status();
    match status.map(|s| s.code()) {
        Ok(Some(0)) => Ok(Pass::Ok),
        Ok(Some(4)) => skip!("other users cannot open /dev/nvidia-uvm"),
        Ok(code) => Err(format!("allowed, or another error (exit {code:?})").into()),
        Err(error) => skip!("cannot run as another user: {error}"),
    }
}
