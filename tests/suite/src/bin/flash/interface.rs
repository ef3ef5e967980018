// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Attaching and detaching, and what is refused.

use std::path::Path;

use uvm_suite::{ensure, Outcome, Pass, Suite};
use vgpu_client::{flash, Error, Flash, Process, BLOCK};

use crate::rig::{device, Rig};
use crate::NONE;

pub(crate) fn run(suite: &mut Suite) {
    suite.test("attaching, once", NONE, attach);
    suite.test("attaching what cannot be", NONE, refused);
    suite.test("a device that holds something", NONE, occupied);
}

fn errno<T>(result: vgpu_client::Result<T>) -> Option<i32> {
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
