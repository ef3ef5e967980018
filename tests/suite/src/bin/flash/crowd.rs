// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Many processes of one memory cgroup whose GPU needs a page of a file, here of a device that does not answer. They have all the work items
//! that a tenant may have, and those of the same user in another cgroup have theirs.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use uvm_suite::{ensure, file_in_memory, skip, Group, Outcome, Pass, Suite};
use vgpu_client::{Buffer, Kernel, Op, PAGE};

use crate::failures::while_it_is_silent;
use crate::files::{setting, NO_SETTING, SOON};
use crate::locks::Other;
use crate::rig::Done;
use crate::SILENT;

pub(crate) fn run(suite: &mut Suite) {
    suite.test(
        "a cgroup whose files do not come holds up no faults on files in another one",
        SILENT,
        crowd,
    );
}

/// An eighth of all work items, on a machine with one NUMA node.
const CROWD: usize = 64;

/// How long the crowd has for its faults to be serviced once.
const BEGIN: Duration = Duration::from_secs(10);

fn crowd() -> Outcome {
    let Some(setting) = setting()? else {
        skip!("{NO_SETTING}");
    };
    let Some(group) = Group::new()? else {
        skip!("there are no cgroups");
    };
    let start = Instant::now();
    let ready = || (0..CROWD).map(|_| Other::ready("--child-maps")).collect();
    let crowd: Result<Vec<_>, _> = group.within(ready)?;
    let mut crowd = crowd?;
    println!("# {CROWD} processes after {:?}", start.elapsed());
    // It is in memory, and nobody has mapped it.
    let file = file_in_memory(c"alone")?;
    file.set_len(PAGE)?;
    let shared = Buffer::<u64>::of_file(file.as_fd(), 0, PAGE as usize / 8)?;
    let write = Kernel::new().op(Op::write(&shared).pattern(31, 1));
    let silence = setting.device.suspend()?;
    while_it_is_silent(silence, || {
        crowd.iter_mut().try_for_each(Other::begins)?;
        std::thread::sleep(BEGIN);
        let start = Instant::now();
        setting.gpu.launch(&write)?.wait_for(SOON)?.ok()?;
        println!("# one of another cgroup after {:?}", start.elapsed());
        for other in &mut crowd {
            ensure!(other.0 .0.try_wait()?.is_none(), "it waited for nothing");
        }
        Ok(())
    })?;
    crowd
        .into_iter()
        .try_for_each(|other| -> Done { other.succeeds() })?;
    Ok(Pass::Ok)
}
