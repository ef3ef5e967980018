// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Attaching and detaching, and what is refused.

use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::ExitCode;

use uvm_suite::{ensure, fuzz, skip, this_program, Outcome, Pass, Suite};
use vgpu_client::{flash, raw_ioctl, Error, Flash, Process, BLOCK};

use crate::rig::{device, no_leak, plain, Rig};
use crate::NONE;

/// `calls` are made from each of two threads by the tests that fuzz.
pub(crate) fn run(suite: &mut Suite, calls: u32, seed: u64) {
    suite.test("attaching, once", NONE, attach);
    suite.test("attaching what cannot be", NONE, refused);
    suite.test("a device that holds something", NONE, occupied);
    suite.test("calls before UVM_INITIALIZE", NONE, uninitialised);
    suite.test("fuzzed calls", NONE, || fuzzed(calls, seed));
    suite.test("fuzzed calls, without CAP_SYS_ADMIN", NONE, || {
        fuzzed_by_others(calls, seed)
    });
}

pub(crate) fn errno<T>(result: vgpu_client::Result<T>) -> Option<i32> {
    result.err().and_then(|e: Error| e.errno())
}

fn attach() -> Outcome {
    let rig = Rig::new(64)?;
    let stats = rig.stats()?;
    ensure!(stats.attached == 1 && stats.slots > 0, "{stats:?}");
    let again = Flash {
        path: device(),
        host_bytes: BLOCK,
        quota_bytes: 0,
        flags: flash::FORCE,
    };
    let got = errno(rig.process.flash_attach(again));
    ensure!(got == Some(libc::EEXIST), "attached twice: {got:?}");
    rig.process.flash_detach()?;
    let got = errno(rig.process.flash_detach());
    ensure!(got == Some(libc::ENODEV), "detached twice: {got:?}");
    ensure!(rig.stats()?.attached == 0, "still attached");
    Ok(Pass::Ok)
}

fn refused() -> Outcome {
    let process = Process::new()?;
    let flash = Flash {
        path: device(),
        host_bytes: 16 * BLOCK,
        quota_bytes: 0,
        flags: flash::FORCE,
    };
    let cases = [
        (
            "a path that is not there",
            Flash {
                path: Path::new("/nowhere"),
                ..flash
            },
            libc::ENOENT,
        ),
        (
            "a character device",
            Flash {
                path: Path::new("/dev/null"),
                ..flash
            },
            libc::EOPNOTSUPP,
        ),
        (
            "a folder",
            Flash {
                path: Path::new("/"),
                ..flash
            },
            libc::EISDIR,
        ),
        (
            "an unknown flag",
            Flash {
                flags: 1 << 9,
                ..flash
            },
            libc::EINVAL,
        ),
        (
            "no host memory",
            Flash {
                host_bytes: 0,
                ..flash
            },
            libc::EINVAL,
        ),
    ];
    for (what, flash, want) in cases {
        let got = errno(process.flash_attach(flash));
        ensure!(got == Some(want), "{what}: {got:?}, not {want}");
    }
    let got = errno(process.flash_move(0x1000, 0x1000, false));
    ensure!(got == Some(libc::ENODEV), "moved without a device: {got:?}");
    Ok(Pass::Ok)
}

/// Something that looks like data is left alone; our own mark is not.
fn occupied() -> Outcome {
    let flash = Flash {
        path: device(),
        host_bytes: 16 * BLOCK,
        quota_bytes: 0,
        flags: 0,
    };
    drop(Rig::new(16)?);
    drop(Rig::with(flash)?);
    std::fs::OpenOptions::new()
        .write(true)
        .open(device())
        .and_then(|f| std::os::unix::fs::FileExt::write_all_at(&f, b"somebody's", 8192))?;
    let got = errno(Process::new()?.flash_attach(flash));
    ensure!(got == Some(libc::ENOTEMPTY), "overwritten: {got:?}");
    drop(Rig::new(16)?);
    std::fs::OpenOptions::new()
        .write(true)
        .open(device())
        .and_then(|f| std::os::unix::fs::FileExt::write_all_at(&f, &[0; 4096], 8192))?;
    Ok(Pass::Ok)
}

/// A file that is no process's yet moves nothing, and has nothing on the device.
fn uninitialised() -> Outcome {
    let rig = Rig::new(1 << 10)?;
    let buffer = rig.buffer(1)?;
    buffer.fill(|i| i as u64);
    rig.process
        .flash_move(buffer.address(), buffer.bytes(), false)?;
    let file = std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/nvidia-uvm")?;
    let call = |number, words: &mut [u64]| {
        let mut bytes: Vec<u8> = words.iter().flat_map(|w| w.to_ne_bytes()).collect();
        let answer = raw_ioctl(file.as_fd(), number, &mut bytes, None);
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_ne_bytes(bytes.try_into().unwrap_or_default());
        }
        answer.err().and_then(|e| e.raw_os_error())
    };
    let got = call(
        uvm_uapi::UVM_RUST_FLASH_MOVE,
        &mut [24, buffer.address(), BLOCK],
    );
    ensure!(got == Some(libc::EPERM), "UVM_RUST_FLASH_MOVE: {got:?}");
    let mut stats = [0; 20];
    stats[0] = 160;
    let got = call(uvm_uapi::UVM_RUST_FLASH_GET_STATS, &mut stats);
    ensure!(got.is_none(), "UVM_RUST_FLASH_GET_STATS: {got:?}");
    let [pages, mine] = [stats[3], stats[4]];
    ensure!((pages, mine) == (512, 0), "{pages} pages, {mine} are its");
    Ok(Pass::Ok)
}

/// Attaching and detaching among them; what the program used is gone from the device.
fn fuzzed(calls: u32, seed: u64) -> Outcome {
    let rig = Rig::new(4)?;
    let target = fuzz::Target {
        process: &rig.process,
        gpu: &rig.gpu,
        device: Some(device()),
        privileged: true,
    };
    println!("#{}", fuzz::run(&target, seed, calls)?);
    let attached = rig.process.flash_attach(plain(device(), 16));
    let errno = errno(attached);
    ensure!(
        matches!(errno, None | Some(libc::EEXIST)),
        "attaching afterwards: {errno:?}"
    );
    no_leak(&rig)?;
    Ok(Pass::Ok)
}

fn fuzzed_by_others(calls: u32, seed: u64) -> Outcome {
    let rig = Rig::new(4)?;
    let before = rig.stats()?.slots;
    let child = this_program()?
        .arg("--child-fuzzes")
        .args(["--seed", &seed.to_string()])
        .args(["--fuzz", &calls.to_string()])
        .uid(65534)
        .output();
    let said = match child {
        Ok(output) if output.status.code() == Some(4) => {
            skip!("other users cannot open /dev/nvidia-uvm and /dev/vgpu")
        }
        Ok(output) => output,
        Err(error) => skip!("cannot run as another user: {error}"),
    };
    let text = String::from_utf8_lossy(&said.stdout);
    println!("#{}", text.trim_end());
    ensure!(said.status.success(), "{}: {text}", said.status);
    no_leak(&rig)?;
    let after = rig.stats()?;
    ensure!(
        after.attached == 1 && after.slots == before,
        "it was attached anew: {after:?}"
    );
    Ok(Pass::Ok)
}

/// Run by the test above, as another user: `calls` from each of two threads.
pub(crate) fn child_fuzzes(calls: u32, seed: u64) -> ExitCode {
    let opened = Process::new().and_then(|process| Ok((process.gpu(0)?, process)));
    let Ok((gpu, process)) = opened else {
        return ExitCode::from(4);
    };
    let target = fuzz::Target {
        process: &process,
        gpu: &gpu,
        device: Some(device()),
        privileged: false,
    };
    match fuzz::run(&target, seed, calls) {
        Ok(done) => println!("{done}"),
        Err(why) => {
            println!("{why:?}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
