// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! A device with bad sectors, which QEMU's blkdebug makes, and one that is pulled out.
//! `--bad-device` names it, and the other tests do not use it. scripts/ssd.sh says which of its
//! sectors are bad.

use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use uvm_suite::{ensure, skip, this_program, Allowed, Failure, Outcome, Pass, Suite};
use vgpu_client::{flash, Buffer, Discard, Flash, Process, BLOCK, PAGE};

use crate::rig::{check, no_leak, plain, write, Done, Rig, WORDS};
use crate::NONE;

/// Blocks that take the slots with the bad sectors: slot 5 cannot be written as a whole,
/// and a page of slot 10 cannot be read.
const BLOCKS: usize = 12;

static BAD_DEVICE: OnceLock<PathBuf> = OnceLock::new();

pub(crate) fn set_bad_device(path: PathBuf) {
    let _ = BAD_DEVICE.set(path);
}

pub(crate) fn run(suite: &mut Suite) {
    let failing =
        &["flash:", "I/O error", "nvme", "Buffer I/O"].map(|text| Allowed { text, times: 1000 });
    suite.test("a device with bad sectors", failing, bad_sectors);
    suite.test("a device that is mounted", NONE, mounted);
    suite.test("a device is pulled out during I/O", failing, pulled_out);
}

/// What cannot be written stays in host memory, and goes elsewhere the next time; of
/// what cannot be read only that page is lost.
fn bad_sectors() -> Outcome {
    let Some(path) = BAD_DEVICE.get() else {
        skip!("no --bad-device");
    };
    let rig = Rig::with(plain(path, 1 << 10))?;
    let buffer = rig.buffer(BLOCKS)?;
    write(&buffer, 73);
    rig.spill(&buffer)?;
    let s = rig.stats()?;
    ensure!(
        s.write_errors == 1 && s.pages == (BLOCKS as u64 - 1) * 512,
        "not one block stayed: {s:?}"
    );
    rig.spill(&buffer)?;
    let s = rig.stats()?;
    ensure!(
        s.write_errors == 1 && s.pages == BLOCKS as u64 * 512,
        "it did not go elsewhere: {s:?}"
    );
    let mut lost = Vec::new();
    for block in 0..BLOCKS as u64 {
        let at = buffer.address() + block * BLOCK;
        if rig.process.flash_move(at, BLOCK, true).is_err() {
            let gone = |page: &u64| {
                rig.process
                    .flash_move(at + page * PAGE, PAGE, true)
                    .is_err()
            };
            lost.extend((0..512).filter(gone).map(|page| block * 512 + page));
        }
    }
    let s = rig.stats()?;
    ensure!(lost.len() == 1 && s.lost_pages == 1, "{lost:?} {s:?}");
    for i in (0..buffer.len()).filter(|i| *i as u64 / 512 != lost[0]) {
        let seen = buffer.get(i);
        ensure!(seen == 73 + i as u64, "word {i} is {seen:#x}");
    }
    // The memory that the lost page was to be read into held something else before, which nobody may see.
    let at = buffer.address() + lost[0] / 512 * BLOCK;
    rig.process.discard(at, BLOCK, Discard::Eager)?;
    for i in (lost[0] as usize * 512..).take(512) {
        let seen = buffer.get(i);
        ensure!(seen == 0, "word {i} is {seen:#x} after a discard");
    }
    drop(buffer);
    no_leak(&rig)?;
    Ok(Pass::Ok)
}

/// A file system in use is left alone, also by force; one that is not, unless forced.
fn mounted() -> Outcome {
    let Some(path) = BAD_DEVICE.get() else {
        skip!("no --bad-device");
    };
    let at = std::env::temp_dir().join(format!("uvm-rust-flash-{}", std::process::id()));
    let call = |program: &str, args: &[&std::ffi::OsStr]| {
        let status = Command::new(program).args(args).status();
        status.is_ok_and(|s| s.success())
    };
    // No journal: that would be written where the device cannot be.
    let options = ["-q", "-F", "-O", "^has_journal"].map(AsRef::as_ref);
    if !call("mkfs.ext4", &[&options[..], &[path.as_os_str()]].concat()) {
        skip!("mkfs.ext4 is not installed");
    }
    std::fs::create_dir_all(&at)?;
    let mounted = call("mount", &[path.as_os_str(), at.as_os_str()]);
    let process = Process::new()?;
    let errno = |flags| {
        let flash = Flash {
            flags,
            ..plain(path, 16)
        };
        process.flash_attach(flash).err().and_then(|e| e.errno())
    };
    let busy = errno(flash::FORCE);
    let unmounted = call("umount", &[at.as_os_str()]);
    std::fs::remove_dir(&at)?;
    ensure!(mounted && unmounted, "cannot be mounted");
    ensure!(busy == Some(libc::EBUSY), "mounted: {busy:?}");
    let occupied = errno(0);
    ensure!(
        occupied == Some(libc::ENOTEMPTY),
        "a file system: {occupied:?}"
    );
    drop(Rig::with(plain(path, 16))?);
    Ok(Pass::Ok)
}

/// Run by the test below: writes and reads until it is killed by a page that is lost.
pub(crate) fn child_sweeps() -> ExitCode {
    let work = || -> Done {
        let process = Process::new()?;
        let buffer = Buffer::<u64>::managed(&process, 12 * WORDS)?;
        for value in 0.. {
            write(&buffer, value);
            println!("going");
            check(&buffer, value)?;
        }
        Ok(())
    };
    println!("{:?}", work());
    ExitCode::from(3)
}

fn pulled_out() -> Outcome {
    let Some(path) = BAD_DEVICE.get() else {
        skip!("no --bad-device");
    };
    let name = path.file_name().unwrap_or_default();
    let class = Path::new("/sys/class/block").join(name);
    let remove = class.join("device/device/remove");
    if !remove.exists() {
        skip!("{} is not a PCI device", path.display());
    }
    let rig = Rig::with(plain(path, 4))?;
    let mine = rig.buffer(2)?;
    rig.gpu_write(&mine, 79)?;
    let mut child = this_program()?.arg("--child-sweeps").spawn()?;
    let moved = |s: vgpu_client::FlashStats| s.spilled > 12 * BLOCK && s.fetched > 0;
    wait_for("the program to spill", || Ok(moved(rig.stats()?)))?;
    std::fs::write(&remove, "1")?;
    let mut ended = None;
    let ending = wait_for("the program to end", || {
        ended = child.try_wait()?;
        Ok(ended.is_some())
    });
    if ending.is_err() {
        child.kill()?;
        child.wait()?;
    }
    ending?;
    let signal = ended.and_then(|status| status.signal());
    ensure!(signal == Some(libc::SIGBUS), "ended by {ended:?}");
    let s = rig.stats()?;
    ensure!(s.lost_pages > 0, "{s:?}");
    rig.gpu_check(&mine, 79)?;
    check(&mine, 79)?;
    no_leak(&rig)?;
    rig.process.flash_detach()?;
    // Put in again, it works.
    std::fs::write("/sys/bus/pci/rescan", "1")?;
    // Its folder in /sys is there before it can be opened.
    wait_for("the device to be there again", || {
        Ok(File::open(path).is_ok())
    })?;
    let again = Rig::with(plain(path, 1 << 10))?;
    rig.spill(&mine)?;
    ensure!(again.stats()?.pages == 2 * 512, "{:?}", again.stats()?);
    check(&mine, 79)?;
    Ok(Pass::Ok)
}

fn wait_for(what: &str, mut there: impl FnMut() -> Result<bool, Failure>) -> Done {
    let start = Instant::now();
    while !there()? {
        ensure!(
            start.elapsed() < Duration::from_secs(60),
            "waited 60 s for {what}"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
