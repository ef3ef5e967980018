// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Step 19, of two to eight GPUs that reach each other's memory: over PCIe if a process asks for it, over NVLink
//! from their registration on.

use uvm_suite::{ensure, skip, Allowed, Failure, Outcome, Pass, Suite};
use vgpu_client::uvm;
use vgpu_client::vgpu::{
    APERTURE_PEER, FEATURE_NVLINK, FEATURE_PCIE, MAY_ATOMIC, PERSONALITY_TURING, PERSONALITY_VOLTA,
};
use vgpu_client::{Buffer, Gpu, Kernel, NvStatus, Op, Process, Vgpu, BLOCK, PAGE};

/// UVM 550 asserts that somebody has asked for a pair when it chooses the engine for its copies. Over PCIe it counts the first one
/// who asks only after that (docs/vgpu.md).
const COUNTED_LATE: &[Allowed] = &[Allowed {
    text: "peer_caps->ref_count",
    times: 64,
}];

/// By what GPUs reach each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    None,
    Pcie,
    Nvlink,
}

impl Link {
    /// The link that vgpu.ko was loaded with; none of a single GPU.
    pub(crate) fn loaded() -> Self {
        let info = Vgpu::open().and_then(|v| v.info(0));
        let has = |feature| {
            info.as_ref()
                .is_ok_and(|info| info.gpu_count >= 2 && info.features & feature != 0)
        };
        if has(FEATURE_NVLINK) {
            Self::Nvlink
        } else if has(FEATURE_PCIE) {
            Self::Pcie
        } else {
            Self::None
        }
    }
}

/// A process with all GPUs there are, each of which reaches all others' memory.
struct Linked {
    process: Process,
    gpus: Vec<Gpu>,
    link: Link,
}

impl Linked {
    fn new() -> Result<Self, Failure> {
        let process = Process::new()?;
        let count = Vgpu::open()?.info(0)?.gpu_count;
        let gpus = (0..count).map(|i| process.gpu(i));
        let gpus = gpus.collect::<Result<Vec<_>, _>>()?;
        let link = Link::loaded();
        let linked = Self {
            process,
            gpus,
            link,
        };
        for (i, gpu) in linked.gpus.iter().enumerate() {
            for other in &linked.gpus[..i] {
                linked.enable(other, gpu)?;
            }
        }
        Ok(linked)
    }

    /// Lets two GPUs reach each other, if that has to be asked for.
    fn enable(&self, a: &Gpu, b: &Gpu) -> Result<(), Failure> {
        if self.link == Link::Pcie {
            let (a, b) = (a.uuid(), b.uuid());
            self.process
                .call(&mut uvm::EnablePeerAccess { a, b, rm_status: 0 })?;
        }
        Ok(())
    }

    /// One of the counters, of all GPUs together.
    fn sum(&self, counter: impl Fn(&vgpu_client::vgpu::Stats) -> u64) -> Result<u64, Failure> {
        let mut sum = 0;
        for gpu in &self.gpus {
            sum += counter(&gpu.stats()?);
        }
        Ok(sum)
    }

    /// Memory that the first GPU has, and that stays there while the others reach it.
    fn at_home(&self, bytes: u64) -> Result<Buffer<u64>, Failure> {
        let buffer = Buffer::<u64>::managed(&self.process, (bytes / 8) as usize)?;
        let home = self.gpus[0].uuid();
        let (at, process) = (buffer.address(), &self.process);
        buffer.fill(|_| 0);
        process.set_preferred_location(at, bytes, home)?;
        for gpu in &self.gpus[1..] {
            process.set_accessed_by(at, bytes, gpu.uuid())?;
        }
        process.migrate(at, bytes, home)?;
        self.is_at(&buffer, &self.gpus[0])?;
        Ok(buffer)
    }

    fn is_at(&self, buffer: &Buffer<u64>, gpu: &Gpu) -> Result<(), Failure> {
        let resident = self.process.residency(buffer.address())?.resident;
        ensure!(
            resident == [gpu.uuid()],
            "it is on {resident:?}, not on GPU {}",
            gpu.index()
        );
        Ok(())
    }
}

pub(crate) fn run(suite: &mut Suite) {
    let link = Link::loaded();
    let allowed = match link {
        Link::Pcie => COUNTED_LATE,
        _ => crate::NONE,
    };
    let mut row = |name: &str, test: fn(Linked) -> Outcome| {
        suite.test(&format!("step 19: peers: {name}"), allowed, || {
            if link == Link::None {
                skip!("no link between GPUs; run with GPUS=2 to 8");
            }
            test(Linked::new()?)
        });
    };
    row("UVM_TEST_PUSH_SANITY", push_sanity);
    row("UVM_TEST_PEER_IDENTITY_MAPPINGS", identity_mappings);
    row("references to a pair", references);
    row("NVLink is there from the start", nvlink);
    row("a ring of migrations", ring);
    row("all reach the memory of one", reach);
    row("atomics", atomics);
    row("the one that has the memory goes", goes);
}

/// NVIDIA's test copies between each two GPUs that reach each other.
fn push_sanity(linked: Linked) -> Outcome {
    let before = linked.sum(|s| s.peer_bytes)?;
    let mut test = uvm::PushSanity::default();
    linked.process.call(&mut test)?;
    let copied = linked.sum(|s| s.peer_bytes)? - before;
    let n = linked.gpus.len() as u64;
    let wanted = (n * (n - 1)) << 20;
    ensure!(copied >= wanted, "{copied} bytes, not {wanted}");
    Ok(Pass::Ok)
}

/// Until Turing copy engines name a peer's memory through page tables; later ones need none.
fn identity_mappings(linked: Linked) -> Outcome {
    let by_tables = matches!(
        linked.gpus[0].info().personality,
        PERSONALITY_TURING | PERSONALITY_VOLTA
    );
    let a = linked.gpus[0].uuid();
    for other in &linked.gpus[1..] {
        let b = other.uuid();
        let asked = linked
            .process
            .call(&mut uvm::PeerIdentityMappings { a, b, rm_status: 0 });
        match by_tables {
            true => asked?,
            false => {
                let said = asked.err().map(|e| e.status());
                ensure!(
                    said == Some(Some(NvStatus::NOTHING_TO_DO)),
                    "it said {said:?}"
                );
            }
        }
    }
    Ok(Pass::Ok)
}

/// How many refer to a pair: over PCIe each process that has asked for it, over NVLink the registration.
fn references(linked: Linked) -> Outcome {
    let [a, b] = [linked.gpus[0].uuid(), linked.gpus[1].uuid()];
    let process = &linked.process;
    let count = || -> Result<u64, Failure> {
        let mut count = uvm::PeerRefCount {
            gpu1: a,
            gpu2: b,
            ..Default::default()
        };
        process.call(&mut count)?;
        Ok(count.ref_count)
    };
    ensure!(count()? == 1, "{} of one process", count()?);
    let again = process.call(&mut uvm::EnablePeerAccess { a, b, rm_status: 0 });
    ensure!(again.is_err(), "peer access was granted twice");
    let second = Linked::new()?;
    let both = if linked.link == Link::Pcie { 2 } else { 1 };
    ensure!(count()? == both, "{} of two processes", count()?);
    drop(second);
    ensure!(count()? == 1, "{} after one of them", count()?);
    let ended = process.call(&mut uvm::DisablePeerAccess { a, b, rm_status: 0 });
    match linked.link {
        Link::Pcie => {
            ended?;
            ensure!(count()? == 0, "{} after the last", count()?);
            linked.enable(&linked.gpus[1], &linked.gpus[0])?;
        }
        _ => ensure!(ended.is_err(), "NVLink was turned off as if it were PCIe"),
    }
    ensure!(count()? == 1, "{} once more", count()?);
    Ok(Pass::Ok)
}

/// UVM_TEST_ENABLE and DISABLE_NVLINK_PEER_ACCESS, and what is mapped before, between and after.
fn nvlink(linked: Linked) -> Outcome {
    let [a, b] = [linked.gpus[0].uuid(), linked.gpus[1].uuid()];
    let process = &linked.process;
    let off = || process.call(&mut uvm::DisableNvlinkPeerAccess { a, b, rm_status: 0 });
    let on = || process.call(&mut uvm::EnableNvlinkPeerAccess { a, b, rm_status: 0 });
    if linked.link == Link::Pcie {
        ensure!(on().is_err() && off().is_err(), "PCIe was taken for NVLink");
        return Ok(Pass::Ok);
    }
    let buffer = linked.at_home(BLOCK)?;
    let aperture =
        || -> Result<u32, Failure> { Ok(linked.gpus[1].translate(buffer.address())?.aperture) };
    ensure!(aperture()? == APERTURE_PEER, "not mapped: {}", aperture()?);
    off()?;
    ensure!(aperture()? != APERTURE_PEER, "mapped without a link");
    on()?;
    let kernel = Kernel::new().op(Op::write(&buffer).pattern(7, 1));
    linked.gpus[1].launch(&kernel)?.wait()?.ok()?;
    match buffer.first_other(|i| 7 + i as u64) {
        None => Ok(Pass::Ok),
        Some((i, seen)) => Err(Failure::from(format!("element {i} is {seen}"))),
    }
}

/// Memory goes round: from each GPU to the next one, and not by way of the host.
fn ring(linked: Linked) -> Outcome {
    let bytes = 2 * BLOCK;
    let buffer = Buffer::<u64>::managed(&linked.process, (bytes / 8) as usize)?;
    buffer.fill(|i| i as u64);
    let (n, rounds) = (linked.gpus.len(), 2 * linked.gpus.len() as u64);
    let host = |l: &Linked| l.sum(|s| s.d2h_bytes);
    let (mut host_before, peers_before) = (0, linked.sum(|s| s.peer_bytes)?);
    for round in 0..rounds {
        let gpu = &linked.gpus[round as usize % n];
        let kernel = Kernel::new()
            .op(Op::check(&buffer).pattern(round, 1).warps(16))
            .op(Op::atomic_add(&buffer).pattern(1, 0).warps(16).barrier());
        gpu.launch(&kernel)?.wait()?.ok()?;
        linked.is_at(&buffer, gpu)?;
        if round == 0 {
            host_before = host(&linked)?;
        }
    }
    let by_host = host(&linked)? - host_before;
    ensure!(by_host == 0, "{by_host} bytes went to the host");
    let copied = linked.sum(|s| s.peer_bytes)? - peers_before;
    let wanted = (rounds - 1) * bytes;
    ensure!(
        copied >= wanted,
        "{copied} bytes between GPUs, not {wanted}"
    );
    match buffer.first_other(|i| i as u64 + rounds) {
        None => Ok(Pass::Ok),
        Some((i, seen)) => Err(Failure::from(format!("element {i} is {seen}"))),
    }
}

/// The elements of a buffer that a GPU writes, of as many equal parts as there are GPUs: the first, and how many.
fn part(buffer: &Buffer<u64>, gpus: usize, gpu: usize) -> (usize, usize) {
    let pages = buffer.bytes() as usize / PAGE as usize;
    let each = pages / gpus * (PAGE as usize / 8);
    (gpu * each, each)
}

/// What GPU `gpu` writes first in a round; the next elements count on.
fn written(round: u64, gpu: usize) -> u64 {
    round << 48 | (gpu as u64 + 1) << 40
}

/// Each GPU of some writes its part of `buffer`, and finds what it wrote.
fn write_parts(
    linked: &Linked,
    buffer: &Buffer<u64>,
    round: u64,
    from: usize,
) -> Result<(), Failure> {
    let n = linked.gpus.len();
    for gpu in &linked.gpus[from..] {
        let i = gpu.index() as usize;
        let (first, count) = part(buffer, n.max(i + 1), i);
        let value = written(round, i);
        let kernel = Kernel::new()
            .op(Op::write(buffer).range(first, count).pattern(value, 1))
            .op(Op::check(buffer)
                .range(first, count)
                .pattern(value, 1)
                .barrier());
        gpu.launch(&kernel)?.wait()?.ok()?;
    }
    Ok(())
}

/// The CPU finds what each GPU of some wrote in the last round.
fn check_parts(buffer: &Buffer<u64>, round: u64, gpus: usize, from: usize) -> Result<(), Failure> {
    for gpu in from..gpus {
        let (first, count) = part(buffer, gpus, gpu);
        let wrong = (0..count).find(|&i| buffer.get(first + i) != written(round, gpu) + i as u64);
        if let Some(i) = wrong {
            let seen = buffer.get(first + i);
            return Err(format!("GPU {gpu}: element {i} is {seen:#x}").into());
        }
    }
    Ok(())
}

/// What is at one GPU stays there, and all others write to it.
fn reach(linked: Linked) -> Outcome {
    let buffer = linked.at_home(2 * BLOCK)?;
    let n = linked.gpus.len();
    for gpu in &linked.gpus[1..] {
        let t = gpu.translate(buffer.address())?;
        ensure!(
            t.aperture == APERTURE_PEER,
            "GPU {}: aperture {}",
            gpu.index(),
            t.aperture
        );
    }
    let faults = linked.sum(|s| s.faults)?;
    let accesses = linked.sum(|s| s.peer_accesses)?;
    write_parts(&linked, &buffer, 1, 1)?;
    ensure!(linked.sum(|s| s.faults)? == faults, "there was a fault");
    let reached = linked.sum(|s| s.peer_accesses)? - accesses;
    let pages = (n as u64 - 1) * part(&buffer, n, 0).1 as u64 / 512;
    ensure!(reached == 2 * pages, "{reached} accesses of {pages} pages");
    linked.is_at(&buffer, &linked.gpus[0])?;
    // The GPU itself sees what its peers wrote.
    for i in 1..n {
        let (first, count) = part(&buffer, n, i);
        let check = Op::check(&buffer).range(first, count);
        let kernel = Kernel::new().op(check.pattern(written(1, i), 1));
        linked.gpus[0].launch(&kernel)?.wait()?.ok()?;
    }
    check_parts(&buffer, 1, n, 1)?;
    Ok(Pass::Ok)
}

/// All add to the memory of one. Over NVLink they may do so at once; over PCIe one after the other, and a fault has UVM take it from the
/// one before.
fn atomics(linked: Linked) -> Outcome {
    let buffer = linked.at_home(BLOCK)?;
    let kernel = Kernel::new().op(Op::atomic_add(&buffer).pattern(3, 0));
    let faults = linked.sum(|s| s.faults)?;
    for gpu in &linked.gpus[1..] {
        gpu.launch(&kernel)?.wait()?.ok()?;
        linked.is_at(&buffer, &linked.gpus[0])?;
    }
    let faults = linked.sum(|s| s.faults)? - faults;
    let mut allowed = 0;
    for gpu in &linked.gpus[1..] {
        let t = gpu.translate(buffer.address())?;
        allowed += usize::from(t.permissions & MAY_ATOMIC != 0);
    }
    let others = linked.gpus.len() - 1;
    match linked.link {
        Link::Nvlink => ensure!(
            faults == 0 && allowed == others,
            "{faults} faults, and {allowed} of {others} may add"
        ),
        _ => ensure!(
            faults > 0 && allowed == 1,
            "{faults} faults, and {allowed} may add at once"
        ),
    }
    let sum = 3 * others as u64;
    match buffer.first_other(|_| sum) {
        None => Ok(Pass::Ok),
        Some((i, seen)) => Err(Failure::from(format!("element {i} is {seen}, not {sum}"))),
    }
}

/// A GPU is unregistered whose memory all others have mapped. What was there is kept, and the others go on; then it comes back.
fn goes(mut linked: Linked) -> Outcome {
    let buffer = linked.at_home(2 * BLOCK)?;
    let n = linked.gpus.len();
    write_parts(&linked, &buffer, 1, 0)?;
    linked.is_at(&buffer, &linked.gpus[0])?;
    let first = linked.gpus.remove(0);
    let gone = first.uuid();
    first.unregister()?;
    let resident = linked.process.residency(buffer.address())?.resident;
    ensure!(
        !resident.contains(&gone),
        "it is still on the GPU that went"
    );
    for gpu in &linked.gpus {
        let t = gpu.translate(buffer.address())?;
        ensure!(t.aperture != APERTURE_PEER, "mapped on GPU {}", gpu.index());
    }
    for i in 0..n {
        let (first, count) = part(&buffer, n, i);
        let check = Op::check(&buffer).range(first, count);
        let kernel = Kernel::new().op(check.pattern(written(1, i), 1));
        linked.gpus[i % (n - 1)].launch(&kernel)?.wait()?.ok()?;
    }
    let again = linked.process.gpu(0)?;
    for gpu in &linked.gpus {
        linked.enable(&again, gpu)?;
    }
    linked.gpus.insert(0, again);
    write_parts(&linked, &buffer, 2, 0)?;
    check_parts(&buffer, 2, n, 0)?;
    Ok(Pass::Ok)
}
