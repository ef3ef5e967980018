// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! What is evicted is charged to the memory cgroup of its owner, which may be full. That is the
//! owner's affair, and not that of those who need the GPU's memory.

use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{ChildStdout, ExitCode, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use uvm_suite::{
    ensure, this_program, Allowed, Failure, Group, Joined, Killed, Outcome, Pass, Suite,
};
use vgpu_client::uvm::Uuid;
use vgpu_client::{Buffer, Gpu, Kernel, Op, Process, BLOCK};

use crate::migrate::holds;
use crate::orphans::close_mm;
use crate::{gpu_writes, start, NONE, WORDS};

/// What the owner may have of host memory, beyond what it has when all of its data is on the GPU:
/// enough for all but that data.
pub(crate) const HEADROOM: u64 = 8 << 20;

/// How much of the GPU's memory the owner writes that shall not have it.
const TIMES: u64 = 4;

/// What is said of a kernel that ends before it has written all.
const REFUSED: &str = "refused";

/// What the owner writes; the others' words are smaller.
pub(crate) const OWNERS: u64 = 1 << 56;

pub(crate) fn run(suite: &mut Suite) {
    suite.test(
        "charge: who evicts does not fail by the owner's memory limit",
        NONE,
        || owner_is_full("--child-evicted"),
    );
    suite.test(
        "charge: nor by that of who opened a VA space that several processes may share",
        NONE,
        || owner_is_full("--child-evicted-shared"),
    );
    suite.test(
        "charge: nobody waits for the owner's memory.high",
        NONE,
        owner_is_slow,
    );
    suite.test(
        "charge: nor for that of whose fault is serviced",
        NONE,
        faulting_is_slow,
    );
    suite.test(
        "charge: a call waits for its own once it is over",
        NONE,
        call_waits_once,
    );
    suite.test(
        "charge: the GPU is no way around a memory limit",
        &[Allowed {
            text: "is beyond its memory cgroup's limit",
            times: 1,
        }],
        limit_is_one,
    );
    suite.test(
        "charge: nor is a VA space that several processes may share",
        NONE,
        sharers_limit_is_one,
    );
    suite.test(
        "charge: nor is one whose processes have all gone",
        NONE,
        orphans_limit_is_one,
    );
    suite.test(
        "charge: nor is one whose process keeps its memory from it",
        NONE,
        deserted_limit_is_one,
    );
    suite.test(
        "charge: nor is one whose process was killed and does not end",
        &[Allowed {
            text: "is beyond its memory cgroup's limit",
            times: 1,
        }],
        undead_limit_is_one,
    );
    suite.test(
        "charge: range groups that calls make without end count",
        NONE,
        range_groups_count,
    );
}

/// Words of a buffer of so many bytes, in whole blocks.
pub(crate) fn words(bytes: u64) -> usize {
    (bytes / BLOCK) as usize * WORDS
}

/// Run by the tests below: fills most of the GPU, and looks at its data when it is told to. Then all
/// of that data is on the host.
pub(crate) fn child_evicted(process: vgpu_client::Result<Process>) -> ExitCode {
    child(|| {
        let process = process?;
        let gpu = process.gpu(0)?;
        let buffer = Buffer::<u64>::managed(&process, words(gpu.info().usable_bytes() / 4 * 3))?;
        gpu_writes(&gpu, &buffer, OWNERS)?;
        told_to_go_on(buffer.bytes())?;
        holds(&buffer, OWNERS)
    })
}

/// Run by a test below: has the GPU write what stays on the host, once it is told to.
pub(crate) fn child_on_host(process: vgpu_client::Result<Process>) -> ExitCode {
    child(|| {
        let process = process?;
        let gpu = process.gpu(0)?;
        let buffer = Buffer::<u64>::managed(&process, words(gpu.info().usable_bytes()))?;
        process.set_preferred_location(buffer.address(), buffer.bytes(), Uuid::CPU)?;
        told_to_go_on(buffer.bytes())?;
        gpu_writes(&gpu, &buffer, OWNERS)
    })
}

/// Run by a test below: has one UVM_MIGRATE take `bytes` of the host's memory that nobody has touched, once it is told to.
pub(crate) fn child_migrates(process: vgpu_client::Result<Process>, bytes: u64) -> ExitCode {
    child(|| {
        let process = process?;
        let _gpu = process.gpu(0)?;
        let buffer = Buffer::<u64>::managed(&process, words(bytes))?;
        told_to_go_on(buffer.bytes())?;
        Ok(process.migrate(buffer.address(), buffer.bytes(), Uuid::CPU)?)
    })
}

/// Run by `overflow`: has the GPU write `TIMES` what it holds, once it is told to.
pub(crate) fn child_overflows(process: vgpu_client::Result<Process>) -> ExitCode {
    child(|| {
        let process = process?;
        let gpu = process.gpu(0)?;
        let buffer = Buffer::<u64>::managed(&process, words(gpu.info().usable_bytes() * TIMES))?;
        told_to_go_on(buffer.bytes())?;
        gpu_writes(&gpu, &buffer, OWNERS)
    })
}

/// The same, but ends at once. A child that it forks keeps all of its files, and has the GPU write once it is told to.
pub(crate) fn child_leaves(process: vgpu_client::Result<Process>) -> ExitCode {
    child(|| {
        let process = process?;
        let gpu = process.gpu(0)?;
        let buffer = Buffer::<u64>::managed(&process, words(gpu.info().usable_bytes() * TIMES))?;
        told_to_go_on(buffer.bytes())?;
        ensure!(
            fs::read_dir("/proc/self/task")?.count() == 1,
            "it has threads, of which a child would have one"
        );
        // SAFETY: this is the only thread, so that the child has all that it had.
        let child = unsafe { libc::fork() };
        ensure!(child >= 0, "no child: {}", io::Error::last_os_error());
        if child == 0 {
            io::stdin().read_line(&mut String::new())?;
            let write = Op::write(&buffer).pattern(OWNERS, 1).warps(8);
            let ended = gpu.launch(&Kernel::new().op(write))?.wait()?.ok();
            println!("{}", if ended.is_ok() { "all" } else { REFUSED });
            io::stdin().read_line(&mut String::new())?;
        }
        std::process::exit(0)
    })
}

/// Run by `overflow`: closes the file that keeps its memory for UVM, and has UVM bring to the GPU `TIMES` what it holds.
pub(crate) fn child_deserts(process: vgpu_client::Result<Process>) -> ExitCode {
    child(|| {
        let process = process?;
        let gpu = process.gpu(0)?;
        let buffer = Buffer::<u64>::managed(&process, words(gpu.info().usable_bytes() * TIMES))?;
        told_to_go_on(buffer.bytes())?;
        close_mm(&process)?;
        (0..buffer.bytes())
            .step_by(BLOCK as usize)
            .try_for_each(|at| process.migrate(buffer.address() + at, BLOCK, gpu.uuid()))?;
        Ok(())
    })
}

pub(crate) fn child(work: impl FnOnce() -> Result<(), Failure>) -> ExitCode {
    match work() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure:?}");
            ExitCode::FAILURE
        }
    }
}

/// Prints the size of its buffer, and waits for a line.
pub(crate) fn told_to_go_on(bytes: u64) -> Result<(), Failure> {
    println!("{bytes}");
    std::io::stdout().flush()?;
    std::io::stdin().read_line(&mut String::new())?;
    Ok(())
}

/// A child in a cgroup, that waits for a line.
pub(crate) struct Owner {
    pub(crate) child: Killed,
    said: BufReader<ChildStdout>,
    /// The bytes of its buffer.
    bytes: u64,
}

impl Owner {
    pub(crate) fn start(group: &Group, child: &str) -> Result<Self, Failure> {
        let mut command = this_program()?;
        command
            .arg(child)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = Killed(group.within(|| command.spawn())??);
        let mut line = String::new();
        let said = child.0.stdout.take().ok_or("the owner has no output")?;
        let mut said = BufReader::new(said);
        said.read_line(&mut line)?;
        let bytes = line.trim().parse().map_err(|_| "the owner has no GPU")?;
        ensure!(bytes >= 2 * HEADROOM, "{bytes} bytes fit the limit");
        Ok(Self { child, said, bytes })
    }

    /// Tells the owner to go on.
    pub(crate) fn tell(&mut self) -> Result<(), Failure> {
        let tell = self.child.0.stdin.as_mut().ok_or("no input")?;
        Ok(writeln!(tell)?)
    }

    /// The same, and waits for its end.
    pub(crate) fn end(mut self) -> Result<ExitStatus, Failure> {
        self.tell()?;
        Ok(self.child.0.wait()?)
    }

    /// Waits until it has stopped itself.
    pub(crate) fn stops(&self) -> Result<(), Failure> {
        let mut status = 0;
        // SAFETY: it is a child of this process that nobody else waits for.
        let pid = unsafe { libc::waitpid(self.pid(), &mut status, libc::WUNTRACED) };
        ensure!(
            pid == self.pid() && libc::WIFSTOPPED(status),
            "{pid} did not stop: {status:#x}"
        );
        Ok(())
    }

    /// Has it go on after that.
    pub(crate) fn goes_on(&self) -> Result<(), Failure> {
        // SAFETY: the function takes numbers.
        let done = unsafe { libc::kill(self.pid(), libc::SIGCONT) };
        ensure!(done == 0, "no signal: {}", io::Error::last_os_error());
        Ok(())
    }

    /// The next line that it says.
    pub(crate) fn says(&mut self) -> Result<String, Failure> {
        let mut line = String::new();
        self.said.read_line(&mut line)?;
        Ok(line.trim().to_owned())
    }

    fn pid(&self) -> libc::pid_t {
        self.child.0.id() as libc::pid_t
    }

    /// The same, of one that is to find its data as it was.
    pub(crate) fn ends_well(self) -> Result<(), Failure> {
        let status = self.end()?;
        ensure!(status.success(), "the owner ended with {status}");
        Ok(())
    }
}

/// Starts a process of the test's own, and a cgroup; ends the test where there is none.
macro_rules! start_with_group {
    () => {{
        let (process, gpu) = $crate::start()?;
        if $crate::spared(&process)? {
            uvm_suite::skip!("the unmodified driver ends processes, see docs/fixes.md");
        }
        let Some(group) = uvm_suite::Group::new()? else {
            uvm_suite::skip!("there are no cgroups");
        };
        (process, gpu, group)
    }};
}
pub(crate) use start_with_group;

/// A process, whose cgroup allows it less host memory than it has on the GPU, and two others without
/// a limit: one that needs all of the GPU, and one whose faults come between those. What is evicted is charged to
/// the `child`'s group alone, as nobody else is in it.
fn owner_is_full(child: &str) -> Outcome {
    let (process, gpu, group) = start_with_group!();
    let owner = Owner::start(&group, child)?;
    group.limit(&(group.charged()? + HEADROOM).to_string())?;

    evict_owner(&process, &gpu)?;
    let (full, ended) = (group.events("max")?, group.events("oom_kill")?);
    ensure!(full > 0, "the limit was never reached");
    ensure!(ended == 0, "{ended} processes of the owner's were ended");
    // Its data is on the host, and in its own group: over the limit, which is lifted before it takes more.
    let (charged, on_gpu) = (group.charged()?, owner.bytes);
    ensure!(
        charged >= on_gpu,
        "{on_gpu} bytes were evicted, and {charged} are charged"
    );
    group.limit("max")?;
    owner.ends_well()?;
    Ok(Pass::Ok)
}

/// The same with `memory.high`, of which Linux counts how often somebody had to wait for it.
fn owner_is_slow() -> Outcome {
    let (process, gpu, group) = start_with_group!();
    let owner = Owner::start(&group, "--child-evicted")?;
    let high = group.charged()? + HEADROOM;
    group.slow_from(&high.to_string())?;

    evict_owner(&process, &gpu)?;
    let (charged, waits) = (group.charged()?, group.events("high")?);
    ensure!(
        charged > high,
        "{charged} bytes are charged, and {high} are allowed"
    );
    ensure!(waits == 0, "an eviction waited {waits} times");
    group.slow_from("max")?;
    owner.ends_well()?;
    Ok(Pass::Ok)
}

/// A GPU's faults take the host's memory, above the `memory.high` of the process whose they are. Linux has its own
/// threads wait, and not the one that services all processes' faults.
fn faulting_is_slow() -> Outcome {
    let (_process, _gpu, group) = start_with_group!();
    let owner = Owner::start(&group, "--child-on-host")?;
    let high = group.charged()? + HEADROOM;
    group.slow_from(&high.to_string())?;
    let blocks = owner.bytes / BLOCK;
    owner.ends_well()?;
    let (most, waits) = (group.most_charged()?, group.events("high")?);
    println!("# {waits} waits for {blocks} va_blocks, {most} bytes at most, {high} allowed");
    ensure!(
        most > high,
        "{most} bytes were charged, and {high} are allowed"
    );
    ensure!(waits < blocks / 2, "{waits} waits for {blocks} va_blocks");
    Ok(Pass::Ok)
}

/// What the children of the test below take. Each va_block needs a page table, and Linux charges 64 pages at a time: `MUCH` needs four
/// such charges for its tables, of which Linux would wait at two.
pub(crate) const LITTLE: u64 = 16 << 20;
pub(crate) const MUCH: u64 = 512 << 20;

/// A call that takes memory above `memory.high` waits for it on its way back to user space, however much it takes. Before, it
/// would wait with a va_block's lock held, for which the thread that services all processes' faults may wait.
fn call_waits_once() -> Outcome {
    let (_process, _gpu, group) = start_with_group!();
    let children = ["--child-migrates-little", "--child-migrates-much"];
    let [little, much] = waits_alike(&group, children, |charged| charged + HEADROOM)?;
    println!("# {little} waits for {LITTLE} bytes, {much} for {MUCH}");
    Ok(Pass::Ok)
}

/// How often two owners wait above `memory.high`, which is `from` of what is charged before they go on: the second, who takes far
/// more, no more often than the first.
pub(crate) fn waits_alike(
    group: &Group,
    children: [&str; 2],
    from: impl Fn(u64) -> u64,
) -> Result<[u64; 2], Failure> {
    let waits = |child| -> Result<u64, Failure> {
        group.slow_from("max")?;
        let owner = Owner::start(group, child)?;
        group.slow_from(&from(group.charged()?).to_string())?;
        let before = group.events("high")?;
        owner.ends_well()?;
        Ok(group.events("high")? - before)
    };
    let [little, much] = [waits(children[0])?, waits(children[1])?];
    ensure!(little > 0, "there was nothing to wait for");
    ensure!(2 * much < 3 * little, "{much} waits instead of {little}");
    Ok([little, much])
}

/// A process whose own faults evict its own memory has no more of the host's, beside its limit, than a GPU holds: then
/// it is ended. Another process of its cgroup lives on, and kernels of others go on.
fn limit_is_one() -> Outcome {
    let (process, gpu, group) = start_with_group!();
    let status = overflow(&process, &gpu, &group, "--child-overflows", 1, Owner::end)?;
    ensure!(status.signal() == Some(9), "the owner ended with {status}");
    Ok(Pass::Ok)
}

/// One whose VA space has no mm is not ended, as others may have the VA space. Over the limit it gets no more of the GPU's
/// memory, and its kernel ends.
fn sharers_limit_is_one() -> Outcome {
    let (process, gpu, group) = start_with_group!();
    let status = overflow(&process, &gpu, &group, "--child-shares", 0, Owner::end)?;
    ensure!(
        status.code() == Some(1),
        "who shares its VA space ended with {status}"
    );
    Ok(Pass::Ok)
}

/// One whose process has gone while another one keeps its files open has no mm that a process could be ended for, though UVM
/// keeps that mm.
fn orphans_limit_is_one() -> Outcome {
    let (process, gpu, group) = start_with_group!();
    overflow(
        &process,
        &gpu,
        &group,
        "--child-leaves",
        0,
        |mut owner: Owner| {
            let input = owner.child.0.stdin.take().ok_or("no input")?;
            writeln!(&input)?;
            let status = owner.child.0.wait()?;
            ensure!(status.success(), "it ended with {status}");
            writeln!(&input)?;
            let line = owner.says()?;
            ensure!(line == REFUSED, "its kernel wrote {line:?}");
            Ok(input)
        },
    )?;
    Ok(Pass::Ok)
}

/// One whose mm UVM has given back, as its process told it to, has nobody ended for it, either. By then that process is
/// in no group, so that what its calls need besides is not charged to one.
fn deserted_limit_is_one() -> Outcome {
    let (process, gpu, group) = start_with_group!();
    let status = overflow(
        &process,
        &gpu,
        &group,
        "--child-deserts",
        0,
        |owner: Owner| {
            Group::leave(owner.child.0.id())?;
            owner.end()
        },
    )?;
    ensure!(status.code() == Some(1), "the owner ended with {status}");
    Ok(Pass::Ok)
}

/// A process that is killed for the limit, and that a tracer holds on its way out, takes no more, though it has its
/// files still.
fn undead_limit_is_one() -> Outcome {
    let (process, gpu, group) = start_with_group!();
    let undead = overflow(
        &process,
        &gpu,
        &group,
        "--child-overflows",
        1,
        |owner: Owner| {
            let mut undead = Undead::trace(owner)?;
            undead.0.tell()?;
            undead.stops()?;
            settles(&group)?;
            Ok(undead)
        },
    )?;
    let status = undead.ends()?;
    ensure!(status.signal() == Some(9), "the owner ended with {status}");
    Ok(Pass::Ok)
}

/// An owner that stops before it gives anything back, once it ends, and that goes on when this is dropped.
struct Undead(Owner);

impl Undead {
    fn trace(owner: Owner) -> Result<Self, Failure> {
        Self(owner).asks(libc::PTRACE_SEIZE, libc::PTRACE_O_TRACEEXIT)
    }

    /// Waits until it is on its way out.
    fn stops(&self) -> Result<(), Failure> {
        let mut status = 0;
        // SAFETY: it is a child of this process that nobody else waits for.
        let pid = unsafe { libc::waitpid(self.pid(), &mut status, 0) };
        ensure!(
            pid == self.pid() && status >> 8 == libc::SIGTRAP | libc::PTRACE_EVENT_EXIT << 8,
            "{pid} did not stop at its end: {status:#x}"
        );
        Ok(())
    }

    /// Lets it go on, and waits for its end.
    fn ends(self) -> Result<ExitStatus, Failure> {
        let mut undead = self.asks(libc::PTRACE_CONT, 0)?;
        Ok(undead.0.child.0.wait()?)
    }

    fn asks(self, what: libc::c_uint, data: libc::c_int) -> Result<Self, Failure> {
        // SAFETY: `what` reads and writes no memory of this process' or the other one's.
        let done = unsafe { libc::ptrace(what, self.pid(), 0usize, data as usize) };
        ensure!(done == 0, "no trace: {}", io::Error::last_os_error());
        Ok(self)
    }

    fn pid(&self) -> libc::pid_t {
        self.0.pid()
    }
}

impl Drop for Undead {
    fn drop(&mut self) {
        // SAFETY: as above. It fails where the process has gone on.
        unsafe { libc::ptrace(libc::PTRACE_CONT, self.pid(), 0usize, 0usize) };
    }
}

/// Waits until what is charged to the group stays the same, as nothing is evicted any more.
fn settles(group: &Group) -> Result<(), Failure> {
    let mut before = group.charged()?;
    for _ in 0..30 {
        std::thread::sleep(Duration::from_secs(3));
        let now = group.charged()?;
        if now == before {
            return Ok(());
        }
        before = now;
    }
    Err("what is charged to the group never stays the same".into())
}

/// What `end` gives, which tells the owner to go on, a child of this program in the group: its faults evict its own memory
/// beyond the group's limit, by `gpus` times what the GPU holds, and less than once more.
fn overflow<T>(
    process: &Process,
    gpu: &Gpu,
    group: &Group,
    owner: &str,
    gpus: u64,
    end: impl FnOnce(Owner) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let mut neighbour = Owner::start(group, "--child-evicted")?;
    let owner = Owner::start(group, owner)?;
    let limit = group.charged()? + HEADROOM;
    group.limit(&limit.to_string())?;
    let holds_at_once = gpu.info().usable_bytes();
    ensure!(owner.bytes >= TIMES * holds_at_once / 2, "too small");
    let ends = end(owner)?;
    let (ended, most) = (group.events("oom_kill")?, group.most_charged()?);
    println!("# {most} bytes at most, {limit} allowed, {holds_at_once} on the GPU");
    ensure!(ended == 0, "Linux has chosen {ended} processes");
    ensure!(
        most > limit + gpus * holds_at_once,
        "it ended below the bound, at {most}"
    );
    ensure!(
        neighbour.child.0.try_wait()?.is_none(),
        "its neighbour ended, too"
    );
    // The driver's own part of the GPU's memory is more than what a test can use; pieces come in 2 MiB; and an owner
    // that is ended goes on until it looks.
    ensure!(
        most <= limit + (gpus + 1) * holds_at_once,
        "{most} bytes were charged, beyond {limit}"
    );
    let few = Buffer::<u64>::managed(process, WORDS)?;
    gpu_writes(gpu, &few, 1)?;
    holds(&few, 1)?;
    Ok(ends)
}

/// How many range groups are made, which cost their process nothing but a call.
const CALLS: u32 = 40_000;

/// Range groups are charged to who makes them. Ranges and va_blocks come with pages of the process' own here, which would
/// hide whether they count: tests/seam/charge.c has these.
fn range_groups_count() -> Outcome {
    let (process, _gpu, group) = start_with_group!();
    let before = group.charged()?;
    let made =
        group.within(|| (0..CALLS).try_for_each(|_| process.create_range_group().map(drop)))?;
    made?;
    let bytes = group.charged()?.saturating_sub(before);
    println!("# {CALLS} range groups: {bytes} bytes");
    // Each has an id and two lists at least.
    ensure!(bytes >= u64::from(CALLS) * 40, "{bytes} bytes are charged");
    Ok(Pass::Ok)
}

/// Brings all that the owner has on the GPU to the host: the GPU is needed whole, and then what is left is evicted.
fn evict_owner(process: &Process, gpu: &Gpu) -> Result<(), Failure> {
    let all = Buffer::<u64>::managed(process, words(gpu.info().usable_bytes()))?;
    needs_all(gpu, &all)?;
    while gpu.evict_any()? {}
    Ok(())
}

/// Has the GPU write all of `all`, while a bystander's pages go there and back again, until `all` is
/// there; both have what was written.
fn needs_all(gpu: &Gpu, all: &Buffer<u64>) -> Result<(), Failure> {
    let (process, bystander) = start()?;
    let few = Buffer::<u64>::managed(&process, WORDS)?;
    let over = AtomicBool::new(false);
    let rounds = std::thread::scope(|scope| {
        let by = scope.spawn(|| goes_on(&process, &bystander, &few, &over));
        let wrote = gpu_writes(gpu, all, 1 << 40);
        over.store(true, Ordering::Relaxed);
        let rounds = by.joined()??;
        wrote.map(|()| rounds)
    })?;
    println!("# the bystander had {rounds} turns");
    holds(&few, rounds)?;
    holds(all, 1 << 40)
}

/// Writes `few` on the GPU and takes it to the host again, until it is `over`, and once at least; how
/// often.
pub(crate) fn goes_on(
    process: &Process,
    gpu: &Gpu,
    few: &Buffer<u64>,
    over: &AtomicBool,
) -> Result<u64, Failure> {
    let mut rounds = 0;
    while rounds == 0 || !over.load(Ordering::Relaxed) {
        rounds += 1;
        gpu_writes(gpu, few, rounds)?;
        process.migrate(few.address(), few.bytes(), Uuid::CPU)?;
    }
    Ok(rounds)
}
