// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! A process that may hold only so much of a GPU (`UVM_RUST_SET_QUOTA`): what it holds, by its own statistics, and what
//! that leaves to others. Under whatever eviction policy the driver has.

use std::os::unix::process::CommandExt;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use uvm_suite::{ensure, skip, this_program, Failure, Joined, Killed, Outcome, Pass, Suite};
use uvm_uapi as uapi;
use vgpu_client::discard::Discard;
use vgpu_client::uvm::{self, Uuid};
use vgpu_client::{Buffer, DriverStats, Gpu, Kernel, Op, Process, BLOCK};

use crate::shares::{goes_through, value, Tenant, FIRST, STEP};

/// What the limited process may hold, in blocks: 16 MiB.
const MAX: u64 = 8;
/// The flag with which the maximum is set.
const SETS: u32 = uapi::UVM_RUST_QUOTA_MAX;
/// The least maximum, in blocks: an eighth of the GPU.
pub(crate) const LEAST: u64 = 4;
const PARAMETER: &str = "/sys/module/nvidia_uvm/parameters/uvm_rust_gpu_max";
/// The user nobody, who may raise no limit.
const NOBODY: u32 = 65534;
/// The program's options with which tests start it.
pub const CHILD: &str = "--child-lowers";
pub const LOOPS: &str = "--child-loops";

pub fn run(suite: &mut Suite) {
    suite.test("beside a quiet process, by faults", &[], beside);
    suite.test(
        "a maximum is lowered, and migrations keep to it",
        &[],
        lowered,
    );
    suite.test("threads together keep to one maximum", &[], threads);
    suite.test("what is discarded makes room", &[], discarded);
    suite.test("the CPU and the GPU in turn", &[], in_turn);
    suite.test("where evictions fail, other chunks go", &[], fails);
    suite.test("who can evict nothing goes beyond", &[], stuck);
    suite.test("an instruction that needs more at once", &[], at_once);
    suite.test("what the call refuses changes nothing", &[], refused);
    suite.test("who may not raise a maximum may lower it", &[], nobody);
    suite.test("a maximum is one process's, on one GPU", &[], apart);
    suite.test("a child has the maximum of its parent", &[], inherited);
    suite.test("a GPU that comes back has its maximum", &[], comes_back);
    suite.test("a process that is killed at its maximum", &[], killed);
}

/// A number that fdinfo has of `gpu`. All GPUs before it are registered, too.
pub(crate) fn told(process: &Process, gpu: &Gpu, what: &str) -> Result<Option<u64>, Failure> {
    let key = |number: u32, what| format!("nvidia-uvm-gpu{number}-{what}");
    let mut number = 1;
    // Their numbers rise, and are not always next to each other.
    for _ in 0..gpu.index() {
        number += 1;
        while number < 64 && process.told(&key(number, "faults"))?.is_none() {
            number += 1;
        }
    }
    Ok(process.told(&key(number, what))?)
}

/// What the driver was loaded with, in bytes; `None` for none.
pub(crate) fn by_default(parameter: &str) -> Result<Option<u64>, Failure> {
    let mib = std::fs::read_to_string(parameter)?;
    let mib: u64 = mib
        .trim()
        .parse()
        .map_err(|_| "the parameter is no number")?;
    Ok((mib != 0).then_some(mib << 20))
}

pub(crate) fn resident(process: &Process, gpu: &Gpu) -> Result<u64, Failure> {
    Ok(told(process, gpu, "resident")?.ok_or("nothing is told of what is resident")?)
}

/// Does `work`, and returns the most that `process` held meanwhile.
fn most_during(
    process: &Process,
    gpu: &Gpu,
    work: impl FnOnce() -> Result<(), Failure>,
) -> Result<u64, Failure> {
    let over = AtomicBool::new(false);
    let most = thread::scope(|scope| {
        let looks = scope.spawn(|| -> Result<(u64, u64), Failure> {
            let (mut most, mut looks) = (0, 0);
            while !over.load(Relaxed) {
                most = most.max(resident(process, gpu)?);
                looks += 1;
                // The guest has one CPU, perhaps.
                thread::sleep(Duration::from_micros(200));
            }
            Ok((most, looks))
        });
        let done = work();
        over.store(true, Relaxed);
        let looked = looks.joined()?;
        done.and(looked)
    })?;
    println!("# {} MiB at most, of {} looks", most.0 >> 20, most.1);
    ensure!(most.1 > 0, "nobody looked");
    Ok(most.0.max(resident(process, gpu)?))
}

/// The limited process goes through more than the GPU has; the quiet one has half of the GPU, and brings nothing again.
fn beside() -> Outcome {
    let quiet = {
        let process = Process::new()?;
        process.gpu(0)?.info().usable_bytes() / BLOCK / 2
    };
    let quiet = Tenant::new(quiet)?;
    let capped = Tenant::new(32)?;
    let max = capped.process.set_quota(capped.gpu.uuid(), MAX * BLOCK)?;
    ensure!(max == MAX * BLOCK, "{max} bytes are in force");
    quiet.goes_through()?;
    quiet.brought()?;
    let most = most_during(&capped.process, &capped.gpu, || {
        for _ in 0..2 {
            capped.goes_through()?;
            quiet.goes_through()?;
        }
        Ok(())
    })?;
    ensure!(most == MAX * BLOCK, "{most} bytes were held, of {max}");
    let (again, through) = (quiet.brought()?.h2d_bytes, capped.brought()?.h2d_bytes);
    println!(
        "# the limited process brought {} MiB, the quiet one {again} bytes",
        through >> 20
    );
    ensure!(again == 0, "the quiet process brought {again} bytes again");
    let beyond = told(&capped.process, &capped.gpu, "beyond-max")?;
    ensure!(beyond == Some(0), "{beyond:?} allocations went beyond");
    ensure!(
        through >= 2 * 32 * BLOCK,
        "only {through} bytes were gone through"
    );
    for tenant in [&quiet, &capped] {
        ensure!(
            tenant.data.first_other(value).is_none(),
            "the data are not what they were"
        );
    }
    Ok(Pass::Ok)
}

fn lowered() -> Outcome {
    let tenant = Tenant::new(2 * MAX)?;
    let (process, gpu, data) = (&tenant.process, &tenant.gpu, &tenant.data);
    tenant.goes_through()?;
    let before = resident(process, gpu)?;
    ensure!(
        before == 2 * MAX * BLOCK,
        "{before} bytes without a maximum"
    );
    let max = told(process, gpu, "max")?;
    ensure!(
        max == by_default(PARAMETER)?,
        "the maximum is {max:?} at first"
    );
    // Of which whole blocks count.
    let max = process.set_quota(gpu.uuid(), MAX * BLOCK + 4096)?;
    let now = resident(process, gpu)?;
    ensure!(
        (max, now) == (MAX * BLOCK, max),
        "{now} bytes are left of {max}"
    );
    ensure!(
        told(process, gpu, "max")? == Some(max),
        "fdinfo has another maximum"
    );
    let most = most_during(process, gpu, || {
        for _ in 0..3 {
            process.migrate(data.address(), data.bytes(), gpu.uuid())?;
        }
        Ok(())
    })?;
    ensure!(most == max, "{most} bytes were held, of {max}");
    ensure!(
        data.first_other(value).is_none(),
        "the data are not what they were"
    );
    // Raised, as this program may, all of it fits.
    process.set_quota(gpu.uuid(), u64::MAX)?;
    ensure!(
        told(process, gpu, "max")?.is_none(),
        "there still is a maximum"
    );
    process.migrate(data.address(), data.bytes(), gpu.uuid())?;
    let after = resident(process, gpu)?;
    ensure!(after == 2 * MAX * BLOCK, "{after} bytes without a maximum");
    Ok(Pass::Ok)
}

/// Each thread has as much as all of them may hold, and the maximum is less than a block for each.
fn threads() -> Outcome {
    const THREADS: usize = 6;
    let process = Process::new()?;
    let gpu = process.gpu(0)?;
    let max = process.set_quota(gpu.uuid(), LEAST * BLOCK)?;
    let buffers = (0..THREADS).map(|_| Buffer::<u64>::managed(&process, (4 * BLOCK / 8) as usize));
    let buffers = buffers.collect::<Result<Vec<_>, _>>()?;
    buffers.iter().for_each(|buffer| buffer.fill(value));
    let migrates = |buffer: &Buffer<u64>| -> Result<(), Failure> {
        for _ in 0..5 {
            process.migrate(buffer.address(), buffer.bytes(), gpu.uuid())?;
        }
        Ok(())
    };
    let most = most_during(&process, &gpu, || {
        thread::scope(|scope| {
            let threads: Vec<_> = buffers
                .iter()
                .map(|b| scope.spawn(|| migrates(b)))
                .collect();
            let ended = threads.into_iter().map(|thread| thread.join());
            let mut ended = ended.map(|ended| ended.joined()?);
            ended.try_for_each(|ended| ended)
        })
    })?;
    let more = (THREADS as u64 - 1) * BLOCK;
    ensure!(most <= max + more, "{most} bytes were held, of {max}");
    // One thread alone brings that down to the maximum, by two chunks for each that it brings.
    migrates(&buffers[0])?;
    migrates(&buffers[1])?;
    let held = resident(&process, &gpu)?;
    ensure!(held == max, "{held} bytes are held, of {max}");
    for buffer in &buffers {
        ensure!(
            buffer.first_other(value).is_none(),
            "the data are not what they were"
        );
    }
    Ok(Pass::Ok)
}

/// All that the process holds is discarded: that makes room, and nothing is copied out.
fn discarded() -> Outcome {
    let tenant = Tenant::new(2 * MAX)?;
    let (process, gpu, data) = (&tenant.process, &tenant.gpu, &tenant.data);
    let max = process.set_quota(gpu.uuid(), MAX * BLOCK)?;
    let half = data.bytes() / 2;
    process.migrate(data.address(), half, gpu.uuid())?;
    process.discard(data.address(), half, Discard::Lazy)?;
    let held = resident(process, gpu)?;
    ensure!(held == max, "{held} bytes are held, of {max}");
    tenant.brought()?;
    process.migrate(data.address() + half, half, gpu.uuid())?;
    let counts = tenant.brought()?;
    ensure!(
        counts.d2h_bytes == 0,
        "{} bytes were copied out",
        counts.d2h_bytes
    );
    let held = resident(process, gpu)?;
    ensure!(held == max, "{held} bytes are held, of {max}");
    let other = (data.len() / 2..data.len()).find(|&i| data.get(i) != value(i));
    ensure!(other.is_none(), "the data are not what they were");
    Ok(Pass::Ok)
}

/// Root chunks that hold something, of all processes; with those that a va_block has and nothing is resident in.
fn in_use(process: &Process, gpu: &Gpu) -> Result<u64, Failure> {
    let stats = DriverStats::get(process, gpu.uuid(), true)?;
    let of = [
        uapi::UVM_RUST_QUEUE_UNUSED,
        uapi::UVM_RUST_QUEUE_DISCARDED,
        uapi::UVM_RUST_QUEUE_USED,
    ];
    Ok(of.iter().map(|&queue| stats.queued[queue as usize]).sum())
}

/// What has gone to the CPU leaves its chunk, which counts until it is gone.
fn in_turn() -> Outcome {
    let tenant = Tenant::new(3 * MAX)?;
    let (process, gpu, data) = (&tenant.process, &tenant.gpu, &tenant.data);
    process.set_quota(gpu.uuid(), MAX * BLOCK)?;
    let third = data.bytes() / 3;
    for turn in 0..6 {
        let at = data.address() + turn % 3 * third;
        process.migrate(at, third, gpu.uuid())?;
        let there = in_use(process, gpu)?;
        ensure!(there == MAX, "{there} chunks are in use, of {MAX}");
        tenant.brought()?;
        process.migrate(at, third, Uuid::CPU)?;
        ensure!(
            resident(process, gpu)? == 0,
            "what has gone to the CPU is resident"
        );
        let there = in_use(process, gpu)?;
        ensure!(there <= MAX, "{there} chunks are in use, of {MAX}");
        // Nothing had to be copied out for what came: the chunks were empty.
        let counts = tenant.brought()?;
        ensure!(
            counts.d2h_bytes == third,
            "{} bytes were copied out",
            counts.d2h_bytes
        );
    }
    ensure!(
        data.first_other(value).is_none(),
        "the data are not what they were"
    );
    Ok(Pass::Ok)
}

/// Has the next eviction of the block at `address` fail.
pub(crate) fn inject(process: &Process, address: u64) -> vgpu_client::Result<()> {
    let mut inject = uvm::VaBlockInjectError {
        lookup_address: address,
        eviction_error: 1,
        ..Default::default()
    };
    process.call(&mut inject)
}

/// No host memory for some evictions (injected): other chunks go, and nobody loses anything.
fn fails() -> Outcome {
    let tenant = Tenant::new(MAX + 1)?;
    let (process, gpu, data) = (&tenant.process, &tenant.gpu, &tenant.data);
    let fail_once = || {
        let mut blocks = (0..=MAX).map(|block| data.address() + block * BLOCK);
        blocks.try_for_each(|address| inject(process, address))
    };
    let holds = |chunks: u64, beyond: u64| -> Result<(), Failure> {
        let held = (resident(process, gpu)? / BLOCK, in_use(process, gpu)?);
        let told = told(process, gpu, "beyond-max")?;
        ensure!(
            (held, told) == ((chunks, chunks), Some(beyond)),
            "{held:?} chunks are held, {told:?} beyond, not {chunks} and {beyond}"
        );
        Ok(())
    };
    let max = process.set_quota(gpu.uuid(), MAX * BLOCK)?;
    process.migrate(data.address(), max, gpu.uuid())?;
    if let Err(failed) = inject(process, data.address()) {
        skip!("errors cannot be injected: {failed}");
    }
    process.migrate(data.address() + max, BLOCK, gpu.uuid())?;
    holds(MAX, 0)?;
    // The same by faults, where an error would end the kernel. Each chunk fails once, and two are tried.
    fail_once()?;
    tenant.goes_through()?;
    holds(MAX + 1, 1)?;
    // Lowered while evictions fail, the maximum is in force; what stays goes the next time.
    fail_once()?;
    let max = process.set_quota(gpu.uuid(), LEAST * BLOCK)?;
    ensure!(max == LEAST * BLOCK, "{max} bytes are in force");
    holds(MAX + 1, 1)?;
    for _ in 0..2 {
        process.set_quota(gpu.uuid(), max)?;
    }
    holds(LEAST, 1)?;
    ensure!(
        data.first_other(value).is_none(),
        "the data are not what they were"
    );
    Ok(Pass::Ok)
}

/// A process at its maximum, of which nothing can be evicted; and two blocks more than it may have.
struct Stuck {
    process: Process,
    gpu: Gpu,
    more: [Buffer<u64>; 2],
    held: Buffer<u64>,
}

impl Stuck {
    fn new() -> Result<Self, Failure> {
        let process = Process::new()?;
        let gpu = process.gpu(0)?;
        process.set_quota(gpu.uuid(), LEAST * BLOCK)?;
        let words = (BLOCK / 8) as usize;
        let held = Buffer::managed(&process, LEAST as usize * words)?;
        let block = || Buffer::managed(&process, words);
        let more = [block()?, block()?];
        // The CPU has never had pages there.
        gpu.launch(&writes(&held))?.wait()?.ok()?;
        let stuck = Self {
            process,
            gpu,
            more,
            held,
        };
        stuck.lacks_host_memory(u32::MAX)?;
        Ok(stuck)
    }

    /// So many pages of the host cannot be had for what is held.
    fn lacks_host_memory(&self, pages: u32) -> vgpu_client::Result<()> {
        (0..LEAST).try_for_each(|block| {
            let mut inject = uvm::VaBlockInjectError {
                lookup_address: self.held.address() + block * BLOCK,
                cpu_chunk_errors: pages,
                ..Default::default()
            };
            self.process.call(&mut inject)
        })
    }

    /// Blocks that are resident, and allocations that went beyond the maximum.
    fn has(&self) -> Result<(u64, u64), Failure> {
        let beyond = told(&self.process, &self.gpu, "beyond-max")?;
        Ok((
            resident(&self.process, &self.gpu)? / BLOCK,
            beyond.ok_or("nothing is told of what is beyond")?,
        ))
    }
}

pub(crate) fn writes(data: &Buffer<u64>) -> Kernel {
    Kernel::new().op(Op::write(data).pattern(FIRST, STEP))
}

/// Two processes can evict nothing of their own. Their kernels get on, nobody waits, and a quiet process loses nothing.
/// What is beyond goes once evictions succeed.
fn stuck() -> Outcome {
    let quiet = Tenant::new(MAX)?;
    if let Err(failed) = inject(&quiet.process, quiet.data.address()) {
        skip!("errors cannot be injected: {failed}");
    }
    quiet.goes_through()?;
    quiet.brought()?;
    let stuck = [Stuck::new()?, Stuck::new()?];
    let began = Instant::now();
    for stuck in &stuck {
        ensure!(stuck.has()? == (LEAST, 0), "{:?} at first", stuck.has()?);
    }
    let kernels = [0, 1].map(|i| writes(&stuck[i].more[0]));
    let launches = [0, 1].map(|i| stuck[i].gpu.launch(&kernels[i]));
    quiet.goes_through()?;
    for launch in launches {
        launch?.wait()?.ok()?;
    }
    println!("# it took {} ms", began.elapsed().as_millis());
    ensure!(began.elapsed() < Duration::from_secs(20), "somebody waited");
    let again = quiet.brought()?.h2d_bytes;
    ensure!(again == 0, "the quiet process brought {again} bytes again");
    for stuck in &stuck {
        let has = stuck.has()?;
        ensure!(has == (LEAST + 1, 1), "{has:?} where nothing is evicted");
        // From now on each block fails once more. The call tries as many as there are too many, which is one.
        stuck.lacks_host_memory(1)?;
        for _ in 0..=LEAST {
            stuck.process.set_quota(stuck.gpu.uuid(), LEAST * BLOCK)?;
        }
        let has = stuck.has()?;
        ensure!(has == (LEAST, 1), "{has:?} when evictions succeed");
        stuck.gpu.launch(&writes(&stuck.more[1]))?.wait()?.ok()?;
        let has = stuck.has()?;
        ensure!(has == (LEAST, 1), "{has:?} when evictions succeed");
        for data in [&stuck.held, &stuck.more[0], &stuck.more[1]] {
            let other = data.first_other(value);
            ensure!(other.is_none(), "the data are not what they were");
        }
    }
    Ok(Pass::Ok)
}

/// One instruction accesses more blocks than there may be. Its lanes get on one by one on this GPU; whoever waits for all
/// of them would fault for ever.
fn at_once() -> Outcome {
    let tenant = Tenant::new(4 * LEAST)?;
    let (process, gpu, data) = (&tenant.process, &tenant.gpu, &tenant.data);
    let max = process.set_quota(gpu.uuid(), LEAST * BLOCK)?;
    let kernel = needs_at_once(data, 4 * LEAST);
    let most = most_during(process, gpu, || {
        let report = gpu.launch(&kernel)?.wait()?.ok()?;
        println!("# {} replays", report.replays);
        Ok(())
    })?;
    ensure!(most == max, "{most} bytes were held, of {max}");
    Ok(Pass::Ok)
}

/// One instruction, which needs so many blocks of `data` at the same time.
pub(crate) fn needs_at_once(data: &Buffer<u64>, blocks: u64) -> Kernel {
    let step = STEP.wrapping_mul(BLOCK / 8);
    let check = Op::check(data).pattern(FIRST, step).every(BLOCK);
    Kernel::new().op(check.lanes(blocks as u32))
}

/// Whoever has the file descriptor has its maximum, and may lower it.
fn inherited() -> Outcome {
    let tenant = Tenant::new(2 * MAX)?;
    let (process, gpu) = (&tenant.process, &tenant.gpu);
    process.set_quota(gpu.uuid(), MAX * BLOCK)?;
    tenant.goes_through()?;
    // SAFETY: the child makes a system call and ends; it takes no lock and allocates nothing.
    let child = unsafe { libc::fork() };
    ensure!(child >= 0, "there is no child");
    if child == 0 {
        let lowered = process.set_quota(gpu.uuid(), LEAST * BLOCK).is_ok();
        // SAFETY: the child ends here.
        unsafe { libc::_exit(i32::from(!lowered)) };
    }
    let mut status = 0;
    // SAFETY: `status` is valid for writing, and the child is this process's.
    let waited = unsafe { libc::waitpid(child, &mut status, 0) };
    ensure!(
        (waited, status) == (child, 0),
        "the child could not lower the maximum: {status:#x}"
    );
    let held = (told(process, gpu, "max")?, resident(process, gpu)?);
    ensure!(
        held == (Some(LEAST * BLOCK), LEAST * BLOCK),
        "{held:?} after the child"
    );
    // The child has ended, and its parent's memory is there.
    tenant.goes_through()?;
    Ok(Pass::Ok)
}

/// A process that could raise its maximum so would have none.
fn comes_back() -> Outcome {
    let process = Process::new()?;
    let gpu = process.gpu(0)?;
    let uuid = gpu.uuid();
    process.set_quota(uuid, MAX * BLOCK)?;
    gpu.unregister()?;
    let gone = process.set_quota(uuid, MAX * BLOCK);
    let gone = gone.err().and_then(|e| e.errno());
    ensure!(
        gone == Some(libc::ENODEV),
        "{gone:?} for a GPU that is not registered"
    );
    let gpu = process.gpu(0)?;
    let max = told(&process, &gpu, "max")?;
    ensure!(max == Some(MAX * BLOCK), "the maximum is {max:?}");
    Ok(Pass::Ok)
}

fn refused() -> Outcome {
    let process = Process::new()?;
    let gpu = process.gpu(0)?;
    let max = process.set_quota(gpu.uuid(), MAX * BLOCK)?;
    let stranger = Uuid([0x5a; 16]);
    for (of, bytes, flags, errno) in [
        (gpu.uuid(), 0, SETS, libc::EINVAL),
        (gpu.uuid(), BLOCK, SETS, libc::EINVAL),
        (gpu.uuid(), LEAST * BLOCK - 1, SETS, libc::EINVAL),
        (gpu.uuid(), MAX * BLOCK, 4, libc::EINVAL),
        (gpu.uuid(), MAX * BLOCK, SETS | 4, libc::EINVAL),
        (stranger, MAX * BLOCK, SETS, libc::ENODEV),
        (stranger, MAX * BLOCK, 0, libc::ENODEV),
    ] {
        let given = process.quota(of, bytes, flags);
        let given = given.err().and_then(|e| e.errno());
        ensure!(
            given == Some(errno),
            "{given:?} for {bytes} bytes, flags {flags}, not {errno}"
        );
        let now = told(&process, &gpu, "max")?;
        ensure!(now == Some(max), "the maximum is {now:?}");
    }
    // Without the flag the call only tells.
    let data = Buffer::managed(&process, (3 * BLOCK / 8) as usize)?;
    gpu.launch(&writes(&data))?.wait()?.ok()?;
    let told = process.quota(gpu.uuid(), LEAST * BLOCK, 0)?;
    let told = (told.max, told.held, told.beyond);
    ensure!(told == (max, 3 * BLOCK, 0), "{told:?} is told");
    Ok(Pass::Ok)
}

/// Run by the test below as nobody.
pub fn child_lowers() -> ExitCode {
    let lowers = || -> Result<bool, Failure> {
        let process = Process::new()?;
        let gpu = process.gpu(0)?;
        process.set_quota(gpu.uuid(), MAX * BLOCK)?;
        for raised in [(MAX + 1) * BLOCK, u64::MAX] {
            let given = process
                .set_quota(gpu.uuid(), raised)
                .err()
                .and_then(|e| e.errno());
            if given != Some(libc::EPERM) {
                return Ok(false);
            }
        }
        let kept = told(&process, &gpu, "max")? == Some(MAX * BLOCK);
        let least = LEAST * BLOCK;
        Ok(kept && process.set_quota(gpu.uuid(), least)? == least)
    };
    match lowers() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(3),
        Err(_) => ExitCode::from(4),
    }
}

fn nobody() -> Outcome {
    as_nobody(CHILD)
}

/// Starts this program as nobody, with an option that has it test something.
pub(crate) fn as_nobody(option: &str) -> Outcome {
    let mut command = this_program()?;
    let status = command.arg(option).uid(NOBODY).gid(NOBODY).status()?;
    ensure!(status.success(), "the child ended with {status}");
    Ok(Pass::Ok)
}

/// Run by the test below, until it is killed.
pub fn child_loops() -> ExitCode {
    let loops = || -> Result<(), Failure> {
        // Nobody listens to its events: NVIDIA's driver asserts that nobody stops listening while some are on their way.
        let process = Process::new()?;
        let gpu = process.gpu(0)?;
        let data = Buffer::managed(&process, (2 * MAX * BLOCK / 8) as usize)?;
        data.fill(value);
        process.set_quota(gpu.uuid(), LEAST * BLOCK)?;
        thread::scope(|scope| {
            // Faults and migrations, so that it dies in some eviction of its own.
            scope.spawn(|| loop {
                let _ = process.migrate(data.address(), data.bytes(), gpu.uuid());
            });
            loop {
                goes_through(&gpu, &data)?;
            }
        })
    };
    let _ = loops();
    ExitCode::from(4)
}

fn killed() -> Outcome {
    for round in 0..3 {
        let quiet = Tenant::new(MAX)?;
        quiet.goes_through()?;
        let there = in_use(&quiet.process, &quiet.gpu)?;
        ensure!(there == MAX, "{there} chunks are in use without a child");
        let child = Killed::run(LOOPS)?;
        let all = MAX + LEAST;
        within_seconds("the child's memory comes", || {
            Ok(in_use(&quiet.process, &quiet.gpu)? >= all - 1)
        })?;
        // Others get on beside it. It has two threads that bring memory, and so a block more than it may.
        for _ in 0..20 + 10 * round {
            quiet.goes_through()?;
            let there = in_use(&quiet.process, &quiet.gpu)?;
            ensure!(there <= all + 1, "{there} chunks are in use, of {all}");
        }
        drop(child);
        within_seconds("the child's memory goes", || {
            Ok(in_use(&quiet.process, &quiet.gpu)? == MAX)
        })?;
    }
    Ok(Pass::Ok)
}

/// Waits until it `holds`, and not for ever.
fn within_seconds(what: &str, holds: impl Fn() -> Result<bool, Failure>) -> Result<(), Failure> {
    let began = Instant::now();
    while !holds()? {
        ensure!(began.elapsed() < Duration::from_secs(60), "not so: {what}");
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

fn apart() -> Outcome {
    let limited = Tenant::new(8)?;
    let max = LEAST * BLOCK;
    limited.process.set_quota(limited.gpu.uuid(), max)?;
    // Another descriptor of the same process.
    let other = Tenant::new(8)?;
    limited.goes_through()?;
    other.goes_through()?;
    let held = |tenant: &Tenant| resident(&tenant.process, &tenant.gpu);
    ensure!(held(&limited)? == max, "{} bytes are held", held(&limited)?);
    ensure!(
        held(&other)? == 8 * BLOCK,
        "{} bytes are held",
        held(&other)?
    );
    let Ok(second) = limited.process.gpu(1) else {
        skip!("there is one GPU: GPUS=2");
    };
    let data = &limited.data;
    limited
        .process
        .migrate(data.address(), data.bytes(), second.uuid())?;
    let there = resident(&limited.process, &second)?;
    ensure!(
        there == data.bytes(),
        "{there} bytes are held on the second GPU"
    );
    ensure!(held(&limited)? == 0, "{} bytes are held", held(&limited)?);
    Ok(Pass::Ok)
}
