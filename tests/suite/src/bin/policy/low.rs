// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Memory of a GPU that is protected from other processes (`UVM_RUST_QUOTA_LOW`): what three quiet processes keep beside
//! one that goes through a multiple of the GPU's memory, and what a low does not do.

use std::process::ExitCode;

use uvm_suite::{ensure, skip, Failure, Outcome, Pass, Suite};
use uvm_uapi as uapi;
use vgpu_client::{driver_version, Gpu, Process, BLOCK};

use crate::quota::{as_nobody, by_default, needs_at_once, resident, told, LEAST};
use crate::shares::{goes_through, room, value, Neighbour, Quiet, Tenant, When};
use crate::shares::{Amount, QUIET};

const PARAMETER: &str = "/sys/module/nvidia_uvm/parameters/uvm_rust_gpu_low";
const BOTH: u32 = uapi::UVM_RUST_QUOTA_MAX | uapi::UVM_RUST_QUOTA_LOW;
/// The program's option with which a test starts it.
pub const CHILD: &str = "--child-raises";

/// The tests; `counts` if the VM's clock counts instructions.
pub fn run(suite: &mut Suite, policy: &str, counts: bool, amount: Amount) {
    for (when, name) in [(When::InTurn, "in turn"), (When::AtOnce, "at once")] {
        let name = format!("three processes that are protected beside a loud one, {name}");
        suite.test(&name, &[], || beside(policy, when, counts, amount));
    }
    suite.test("what is not used of a low is lent", &[], lent);
    suite.test("a low that is set late protects what is there", &[], late);
    suite.test("more is protected than there is", &[], too_much);
    suite.test("a kernel gets on beside protected processes", &[], at_once);
    suite.test("what a low may be, and who may raise it", &[], refused);
    suite.test("a GPU that comes back has its low", &[], comes_back);
}

/// Whether the driver protects memory.
fn protects() -> Result<bool, Failure> {
    let features = driver_version(&Process::new()?)?.map_or(0, |(_, features)| features);
    Ok(features & uapi::UVM_RUST_FEATURE_QUOTA_LOW as u64 != 0)
}

/// What a JSON object has for a row.
fn row(name: &str, quiet: Quiet, blocks: u64, counts: bool) -> String {
    let kept = match quiet.kept {
        u64::MAX => "null".to_owned(),
        kept => format!("{:.3}", kept as f64 / (blocks * BLOCK) as f64),
    };
    let Quiet { again, faults, .. } = quiet;
    let instructions = match counts {
        true => format!(r#", "instructions": {}"#, quiet.turns.as_nanos()),
        false => String::new(),
    };
    format!(
        r#""{name}": {{"bytes_again": {again}, "faults": {faults}, "kept": {kept}{instructions}}}"#
    )
}

/// Three processes of equal lows keep nine tenths of what they were promised, and take 1.2 times the faults that they take
/// beside a quiet process at most, and 1.25 times the instructions where `counts` says that these are known. Without lows
/// they do not.
fn beside(policy: &str, when: When, counts: bool, amount: Amount) -> Outcome {
    let Amount {
        rounds,
        halves,
        tells,
        ..
    } = amount;
    let counts = counts && when == When::InTurn;
    let (room, blocks) = room()?;
    let protects = protects()?;
    let beside = |of: u64, low: u64| {
        let low = protects.then_some(low);
        let neighbour = Neighbour {
            blocks: of,
            low,
            when,
            rounds,
        };
        neighbour.beside(blocks)
    };
    let loud = halves * room / 2;
    let quiet = beside(blocks, 0)?;
    // What others leave without a low is the policy's own, and at once it depends on who is how fast.
    let judged = policy != "fair" && when == When::InTurn;
    let without = (judged || tells || !protects).then(|| beside(loud, 0));
    let without = without.transpose()?;
    let with = protects.then(|| beside(loud, blocks)).transpose()?;
    let mut rows = vec![row("beside_quiet", quiet, blocks, counts)];
    rows.extend(without.map(|without| row("beside_loud", without, blocks, counts)));
    rows.extend(with.map(|with| row("beside_loud_with_low", with, blocks, counts)));
    println!(
        r#"# json {{"policy": "{policy}", "turns": {}, "quiet": {QUIET}, "rounds": {rounds}, "promised_bytes": {}, "gpu_bytes": {}, {}}}"#,
        when == When::InTurn,
        blocks * BLOCK,
        room * BLOCK,
        rows.join(", ")
    );
    let working_sets = QUIET * blocks * BLOCK;
    if let Some(without) = without.filter(|_| judged) {
        ensure!(
            without.again == rounds * working_sets,
            "{} bytes came again without lows, not {rounds} times {working_sets}",
            without.again
        );
        ensure!(
            10 * without.faults > 12 * quiet.faults,
            "{} faults without lows, {} beside a quiet process",
            without.faults,
            quiet.faults
        );
        ensure!(
            !counts || 4 * without.turns > 5 * quiet.turns,
            "{:?} without lows, {:?} beside a quiet process",
            without.turns,
            quiet.turns
        );
    }
    let Some(with) = with else {
        return Ok(Pass::Ok);
    };
    ensure!(
        10 * with.kept >= 9 * blocks * BLOCK && 10 * with.again <= working_sets,
        "{} bytes were kept of {}, and {} came again",
        with.kept,
        blocks * BLOCK,
        with.again
    );
    ensure!(
        10 * with.faults <= 12 * quiet.faults,
        "{} faults, {} beside a quiet process",
        with.faults,
        quiet.faults
    );
    ensure!(
        !counts || 4 * with.turns <= 5 * quiet.turns,
        "{:?}, {:?} beside a quiet process",
        with.turns,
        quiet.turns
    );
    Ok(Pass::Ok)
}

/// A process of so many blocks, of which so many are protected.
fn tenant(blocks: u64, low: u64) -> Result<Tenant, Failure> {
    let tenant = Tenant::new(blocks)?;
    let low = low * BLOCK;
    let set = tenant.process.set_low(tenant.gpu.uuid(), low)?;
    ensure!(set == low, "{set} bytes are protected, not {low}");
    Ok(tenant)
}

/// Blocks enough that all older ones are evicted once a process has gone through them.
fn more_than(room: u64) -> u64 {
    room + room / 2
}

/// How many blocks a process has on the GPU.
fn has(tenant: &Tenant) -> Result<u64, Failure> {
    Ok(resident(&tenant.process, &tenant.gpu)? / BLOCK)
}

fn is_whole(tenant: &Tenant) -> Result<(), Failure> {
    let other = tenant.data.first_other(value);
    ensure!(other.is_none(), "the data are not what they were");
    Ok(())
}

/// Another process has the whole GPU until the first one uses what it was promised.
fn lent() -> Outcome {
    if !protects()? {
        skip!("the driver protects nothing");
    }
    let (room, blocks) = room()?;
    let (first, other) = (tenant(blocks, blocks)?, tenant(more_than(room), 0)?);
    other.goes_through()?;
    let all = has(&other)?;
    ensure!(all + 2 >= room, "{all} blocks were lent, of {room}");
    first.goes_through()?;
    first.brought()?;
    other.goes_through()?;
    let kept = has(&first)?;
    ensure!(kept == blocks, "{kept} blocks were kept, of {blocks}");
    // Lowered, which anybody may, none of it is safe.
    first.process.set_low(first.gpu.uuid(), 0)?;
    other.goes_through()?;
    let left = has(&first)?;
    ensure!(left == 0 || keeps_anyway(), "{left} blocks are left");
    is_whole(&first)?;
    is_whole(&other)?;
    Ok(Pass::Ok)
}

/// Whether a process keeps memory that is not protected: its share, under `fair`, and what is old, under `mru`.
fn keeps_anyway() -> bool {
    crate::policy().is_some_and(|policy| policy != "lru")
}

fn late() -> Outcome {
    if !protects()? {
        skip!("the driver protects nothing");
    }
    let (room, blocks) = room()?;
    let (first, other) = (tenant(blocks, 0)?, tenant(more_than(room), 0)?);
    // The first one's blocks are among others', old and new.
    goes_through(&other.gpu, &other.data)?;
    first.goes_through()?;
    first.process.set_low(first.gpu.uuid(), blocks * BLOCK)?;
    other.goes_through()?;
    let kept = has(&first)?;
    ensure!(kept == blocks, "{kept} blocks were kept, of {blocks}");
    is_whole(&first)?;
    Ok(Pass::Ok)
}

/// Each of four processes is promised the whole GPU: all get on, and nothing waits.
fn too_much() -> Outcome {
    if !protects()? {
        skip!("the driver protects nothing");
    }
    let (room, _) = room()?;
    let all = (0..4).map(|_| tenant(room / 2, room));
    let all = all.collect::<Result<Vec<_>, _>>()?;
    for _ in 0..2 {
        all.iter().try_for_each(Tenant::goes_through)?;
    }
    let held = all.iter().map(has).sum::<Result<u64, _>>()?;
    ensure!(held <= room, "{held} blocks are held, of {room}");
    all.iter().try_for_each(is_whole)?;
    Ok(Pass::Ok)
}

/// Three processes have all of the GPU, and all of it is protected. An instruction of a fourth needs as many blocks at
/// once as a process may be limited to.
fn at_once() -> Outcome {
    if !protects()? {
        skip!("the driver protects nothing");
    }
    let (room, _) = room()?;
    let others = (0..3).map(|_| tenant(room.div_ceil(3), room));
    let others = others.collect::<Result<Vec<_>, _>>()?;
    others.iter().try_for_each(Tenant::goes_through)?;
    let fourth = tenant(LEAST, 0)?;
    let kernel = needs_at_once(&fourth.data, LEAST);
    let report = fourth.gpu.launch(&kernel)?.wait()?.ok()?;
    println!("# {} replays", report.replays);
    let has_now = has(&fourth)?;
    ensure!(has_now > 0, "the fourth process has nothing");
    for tenant in others.iter().chain([&fourth]) {
        is_whole(tenant)?;
    }
    Ok(Pass::Ok)
}

fn refused() -> Outcome {
    let process = Process::new()?;
    let gpu = process.gpu(0)?;
    if !protects()? {
        let given = process.limits(gpu.uuid(), BOTH, 8 * BLOCK, BLOCK);
        ensure!(given.is_err(), "a low was set where none is heeded");
        skip!("the driver protects nothing");
    }
    let low = |gpu: &Gpu| told(&process, gpu, "low");
    let at_first = low(&gpu)?;
    ensure!(
        at_first == by_default(PARAMETER)?,
        "the low is {at_first:?} at first"
    );
    // Whole blocks count, and more than there is may be protected.
    let set = process.set_low(gpu.uuid(), 3 * BLOCK + 4096)?;
    ensure!(set == 3 * BLOCK, "{set} bytes are protected");
    let both = process.limits(gpu.uuid(), BOTH, 8 * BLOCK, 9 * BLOCK)?;
    let both = (both.max, both.low);
    ensure!(both == (8 * BLOCK, 9 * BLOCK), "{both:?} are in force");
    // A maximum that is too small leaves the low alone, and no flag leaves both.
    let given = process.limits(gpu.uuid(), BOTH, BLOCK, 2 * BLOCK);
    let given = given.err().and_then(|e| e.errno());
    ensure!(given == Some(libc::EINVAL), "{given:?} for a small maximum");
    process.limits(gpu.uuid(), 0, BLOCK, 2 * BLOCK)?;
    ensure!(low(&gpu)? == Some(9 * BLOCK), "the low is {:?}", low(&gpu)?);
    process.set_low(gpu.uuid(), 0)?;
    ensure!(low(&gpu)?.is_none(), "the low is {:?}", low(&gpu)?);
    as_nobody(CHILD)
}

/// Run by the test above as nobody.
pub fn child_raises() -> ExitCode {
    let raises = || -> Result<bool, Failure> {
        let process = Process::new()?;
        let gpu = process.gpu(0)?;
        let before = by_default(PARAMETER)?.unwrap_or(0);
        let raised = process.set_low(gpu.uuid(), before + BLOCK);
        let refused = raised.err().and_then(|e| e.errno()) == Some(libc::EPERM);
        // The maximum, which it may lower, stays, too.
        let both = process.limits(gpu.uuid(), BOTH, LEAST * BLOCK, before + BLOCK);
        let both = both.err().and_then(|e| e.errno()) == Some(libc::EPERM);
        let kept = process.quota(gpu.uuid(), 0, 0)?;
        let kept = kept.low == before && kept.max > LEAST * BLOCK;
        Ok(refused && both && kept && process.set_low(gpu.uuid(), 0)? == 0)
    };
    match raises() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(3),
        Err(_) => ExitCode::from(4),
    }
}

fn comes_back() -> Outcome {
    if !protects()? {
        skip!("the driver protects nothing");
    }
    let (room, blocks) = room()?;
    let process = Process::new()?;
    let gpu = process.gpu(0)?;
    process.set_low(gpu.uuid(), blocks * BLOCK)?;
    gpu.unregister()?;
    // Nobody had it but this process: it is a new one to the driver.
    let gpu = process.gpu(0)?;
    let low = told(&process, &gpu, "low")?;
    ensure!(low == Some(blocks * BLOCK), "the low is {low:?}");
    let data = vgpu_client::Buffer::<u64>::managed(&process, (blocks * BLOCK / 8) as usize)?;
    data.fill(value);
    goes_through(&gpu, &data)?;
    tenant(more_than(room), 0)?.goes_through()?;
    let kept = resident(&process, &gpu)? / BLOCK;
    ensure!(kept == blocks, "{kept} blocks were kept, of {blocks}");
    Ok(Pass::Ok)
}
