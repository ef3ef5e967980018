// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! How long a process whose faults come one at a time waits for one that faults on many blocks at once. Blocks are counted,
//! no time is taken: how many of the loud process' faults are serviced while the quiet one's kernel has its own serviced.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use crate::shares::{FIRST, STEP};
use uvm_suite::modules::parameter;
use uvm_suite::{ensure, skip, Failure, Joined, Outcome, Pass, Suite};
use vgpu_client::{Buffer, DriverStats, Gpu, Kernel, Op, Process, BLOCK};

const PARAMETER: &str = "uvm_rust_fault_turn_us";
/// Blocks that the loud process faults on at once: more than the GPU has, so that each evicts another.
const AT_ONCE: u64 = 96;
/// Blocks that the quiet process faults on, one after the other.
const ONE_BY_ONE: u64 = 24;
/// The most of the loud one's faults for one of the quiet one's, where a turn is one block, and the least where nobody takes
/// turns.
const IN_TURNS: u64 = 4;
const WITHOUT: u64 = 12;

pub fn run(suite: &mut Suite) {
    let name = "a process that faults on one block at a time beside one that faults on many";
    suite.test(name, &[], beside);
}

/// A process that writes a word to each of its blocks.
struct Writer {
    process: Process,
    gpu: Gpu,
    data: Buffer<u64>,
}

impl Writer {
    fn new(blocks: u64) -> Result<Self, Failure> {
        let process = Process::new()?;
        let gpu = process.gpu(0)?;
        let data = Buffer::managed(&process, (blocks * BLOCK / 8) as usize)?;
        Ok(Self { process, gpu, data })
    }

    /// Writes to so many blocks at a time.
    fn writes(&self, at_once: u64) -> Result<(), Failure> {
        let write = Op::write(&self.data).pattern(FIRST, STEP).every(BLOCK);
        let kernel = Kernel::new().op(write.lanes(1).warps(at_once as u32));
        self.gpu.launch(&kernel.utlb_faults(512))?.wait()?.ok()?;
        Ok(())
    }

    /// How many of its faults found their page missing.
    fn misses(&self) -> Result<u64, Failure> {
        let stats = DriverStats::get(&self.process, self.gpu.uuid(), false)?;
        Ok(stats.faults - stats.duplicates)
    }

    fn is_whole(&self) -> bool {
        let words = (BLOCK / 8) as usize;
        let blocks = self.data.len() / words;
        (0..blocks).all(|block| {
            let value = FIRST.wrapping_add(STEP.wrapping_mul(block as u64));
            self.data.get(block * words) == value
        })
    }
}

fn beside() -> Outcome {
    let Some(turn_us) = parameter("nvidia_uvm", PARAMETER) else {
        skip!("{PARAMETER} is not there: not our driver");
    };
    let turn_us: u64 = turn_us.parse().map_err(|_| "no number")?;
    let (loud, quiet) = (Writer::new(AT_ONCE)?, Writer::new(ONE_BY_ONE)?);
    let over = AtomicBool::new(false);
    let between = thread::scope(|scope| {
        let storms = scope.spawn(|| -> Result<(), Failure> {
            while !over.load(Relaxed) {
                loud.writes(AT_ONCE)?;
            }
            Ok(())
        });
        let counted = beside_storms(&loud, &quiet, || storms.is_finished());
        over.store(true, Relaxed);
        storms.joined()??;
        counted
    })?;
    let of_one = between.div_ceil(ONE_BY_ONE);
    println!(
        "# turns of {turn_us} us: {between} faults of the loud process were serviced beside {ONE_BY_ONE} of the quiet one, {of_one} for each"
    );
    ensure!(
        loud.is_whole() && quiet.is_whole(),
        "the data are not what they were"
    );
    match turn_us {
        0 => ensure!(of_one >= WITHOUT, "as few as with turns"),
        1 => ensure!(
            of_one <= IN_TURNS,
            "the quiet one waits for more than the loud one's turns"
        ),
        // How many blocks there are in a turn is the machine's to say.
        _ => {}
    }
    Ok(Pass::Ok)
}

/// How many faults of the loud process are serviced while the quiet one has its own serviced, once the GPU is full.
fn beside_storms(
    loud: &Writer,
    quiet: &Writer,
    is_over: impl Fn() -> bool,
) -> Result<u64, Failure> {
    while loud.misses()? < 2 * AT_ONCE {
        ensure!(!is_over(), "the loud process has ended");
        thread::sleep(Duration::from_millis(10));
    }
    let before = (loud.misses()?, quiet.misses()?);
    quiet.writes(1)?;
    let after = (loud.misses()?, quiet.misses()?);
    let own = after.1 - before.1;
    ensure!(own >= ONE_BY_ONE, "{own} faults of the quiet process");
    Ok(after.0 - before.0)
}
