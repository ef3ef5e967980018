// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Our driver's calls with structures that are nearly right: nothing but what the header
//! documents may come of it, and another process's memory stays as it is.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use libc::{
    E2BIG, EBADF, EBUSY, EEXIST, EFAULT, EINVAL, ENODEV, ENOENT, ENOMEM, ENOSPC, ENOTEMPTY, ENXIO,
    EOPNOTSUPP, EPERM,
};
use oorandom::Rand64;
use uvm_uapi as uapi;
use vgpu_client::uvm::Uuid;
use vgpu_client::{
    driver_version, raw_ioctl, BadPointer, Buffer, Gpu, Kernel, Op, Process, BLOCK, PAGE,
};

use crate::{ensure, Failure, Joined};

/// What the calls are made on.
#[derive(Debug)]
pub struct Target<'a> {
    /// The process whose descriptor makes the calls.
    pub process: &'a Process,
    /// Works on the same memory meanwhile.
    pub gpu: &'a Gpu,
    /// What may be attached as SSD tier.
    pub device: Option<&'a Path>,
    /// May attach and detach it.
    pub privileged: bool,
}

/// How a call is built: what a good one holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    /// Nothing but its size.
    Size,
    /// Flags and a GPU.
    Gpu,
    /// Flags, a GPU and bytes.
    Quota,
    Announce,
    Batch,
    /// NVIDIA's structure, which does not start with its size.
    Discard,
    Attach,
    Move,
    Submit,
    Reap,
    /// A number that is no call's.
    Unknown,
}

struct Call {
    name: &'static str,
    number: u32,
    size: usize,
    shape: Shape,
    weight: u64,
    /// Its bit among the driver's features; 0 if it is always there.
    feature: u64,
    /// Errors besides EFAULT, EINVAL and E2BIG.
    errors: &'static [i32],
}

const fn call(
    name: &'static str,
    number: u32,
    size: usize,
    shape: Shape,
    weight: u64,
    feature: u64,
    errors: &'static [i32],
) -> Call {
    Call {
        name,
        number,
        size,
        shape,
        weight,
        feature,
        errors,
    }
}

impl Call {
    fn is_off(&self, features: u64) -> bool {
        features & self.feature != self.feature
    }

    /// Statistics of all processes on a GPU, which only `CAP_SYS_ADMIN` may read.
    fn asks_of_others(&self, bytes: &[u8]) -> bool {
        self.number == uapi::UVM_RUST_GET_STATS && bytes[4] & STATS_WHOLE_GPU != 0
    }
}

/// From `uvm_rust_ioctl.h`. EIO is not among them: no call may be fatal to the driver.
const CALLS: [Call; 14] = [
    call(
        "GET_VERSION",
        uapi::UVM_RUST_GET_VERSION,
        uapi::UVM_RUST_VERSION_SIZE_V1 as usize,
        Shape::Size,
        4,
        0,
        &[],
    ),
    call(
        "GET_STATS",
        uapi::UVM_RUST_GET_STATS,
        uapi::UVM_RUST_STATS_SIZE_V2 as usize,
        Shape::Gpu,
        10,
        STATS,
        &[ENODEV],
    ),
    call(
        "DISCARD_BATCH",
        uapi::UVM_RUST_DISCARD_BATCH,
        uapi::UVM_RUST_DISCARD_BATCH_SIZE_V1 as usize,
        Shape::Batch,
        20,
        DISCARD,
        &[ENXIO, ENOMEM],
    ),
    call(
        "ANNOUNCE",
        uapi::UVM_RUST_ANNOUNCE,
        uapi::UVM_RUST_ANNOUNCE_SIZE_V1 as usize,
        Shape::Announce,
        20,
        EXEC_ID,
        &[ENODEV, ENOMEM],
    ),
    call(
        "GET_PREFETCH_STATS",
        uapi::UVM_RUST_GET_PREFETCH_STATS,
        uapi::UVM_RUST_PREFETCH_STATS_SIZE_V1 as usize,
        Shape::Gpu,
        8,
        EXEC_ID,
        &[ENODEV],
    ),
    call(
        "SET_QUOTA",
        uapi::UVM_RUST_SET_QUOTA,
        uapi::UVM_RUST_QUOTA_SIZE_V1 as usize,
        Shape::Quota,
        8,
        QUOTA,
        &[ENODEV, EPERM, ENOMEM],
    ),
    call(
        "FLASH_ATTACH",
        uapi::UVM_RUST_FLASH_ATTACH,
        uapi::UVM_RUST_FLASH_ATTACH_SIZE_V1 as usize,
        Shape::Attach,
        2,
        FLASH,
        &ATTACHING,
    ),
    call(
        "FLASH_DETACH",
        uapi::UVM_RUST_FLASH_DETACH,
        uapi::UVM_RUST_FLASH_DETACH_SIZE_V1 as usize,
        Shape::Size,
        1,
        FLASH,
        &[EPERM, ENODEV, EBUSY],
    ),
    call(
        "FLASH_GET_STATS",
        uapi::UVM_RUST_FLASH_GET_STATS,
        uapi::UVM_RUST_FLASH_STATS_SIZE_V1 as usize,
        Shape::Size,
        8,
        FLASH,
        &[],
    ),
    call(
        "FLASH_MOVE",
        uapi::UVM_RUST_FLASH_MOVE,
        uapi::UVM_RUST_FLASH_MOVE_SIZE_V1 as usize,
        Shape::Move,
        20,
        FLASH,
        &[ENXIO, ENODEV, ENOMEM],
    ),
    call(
        "FLASH_SUBMIT",
        uapi::UVM_RUST_FLASH_SUBMIT,
        uapi::UVM_RUST_FLASH_SUBMIT_SIZE_V1 as usize,
        Shape::Submit,
        20,
        FLASH_QUEUE,
        &[EBUSY, EBADF, ENOMEM],
    ),
    call(
        "FLASH_REAP",
        uapi::UVM_RUST_FLASH_REAP,
        uapi::UVM_RUST_FLASH_REAP_SIZE_V1 as usize,
        Shape::Reap,
        20,
        FLASH_QUEUE,
        &[],
    ),
    call("UVM_DISCARD", 80, 32, Shape::Discard, 10, DISCARD, &[]),
    call("no call", 0, 64, Shape::Unknown, 3, 0, &[]),
];

/// The flag that asks for what others did, in the byte that has it.
const STATS_WHOLE_GPU: u8 = uapi::UVM_RUST_STATS_WHOLE_GPU as u8;

// Bits of the features, as the driver gives them.
const STATS: u64 = uapi::UVM_RUST_FEATURE_STATS as u64;
const DISCARD: u64 = uapi::UVM_RUST_FEATURE_DISCARD as u64;
const QUOTA: u64 = uapi::UVM_RUST_FEATURE_QUOTA as u64;
const EXEC_ID: u64 = uapi::UVM_RUST_FEATURE_EXEC_ID as u64;
const FLASH: u64 = uapi::UVM_RUST_FEATURE_FLASH as u64;
const FLASH_QUEUE: u64 = uapi::UVM_RUST_FEATURE_FLASH_QUEUE as u64;

const ATTACHING: [i32; 7] = [EPERM, EEXIST, EBUSY, ENOTEMPTY, ENOSPC, ENOENT, ENOMEM];

/// Every structure is given so much room, whatever it says of its size.
const ROOM: usize = 2 * PAGE as usize;

/// How far apart are the words that are used meanwhile.
const APART: u64 = 16 * PAGE;

/// The longest that a thread makes calls.
const LONGEST: Duration = Duration::from_secs(120);

/// Values that programs get wrong.
const ODD: [u64; 12] = [
    0,
    1,
    2,
    PAGE - 1,
    PAGE,
    BLOCK,
    1 << 31,
    u32::MAX as u64,
    1 << 47,
    0xffff_8880_0000_0000,
    u64::MAX - PAGE + 1,
    u64::MAX,
];

/// Makes `times` calls from each of two threads, fewer on a machine that takes long, while
/// the CPU and the GPU use the memory that they are about. A line of what was done.
pub fn run(target: &Target<'_>, seed: u64, times: u32) -> Result<String, Failure> {
    let other = Process::new()?;
    let others = Buffer::<u64>::managed(&other, (BLOCK / 8) as usize)?;
    others.fill(|i| i as u64 ^ seed);
    let areas = (0..3)
        .map(|_| Buffer::<u64>::managed(target.process, (2 * BLOCK / 8) as usize))
        .collect::<Result<Vec<_>, _>>()?;
    let features = driver_version(target.process)?.map_or(0, |(_, features)| features);
    let stop = AtomicBool::new(false);
    let done = std::thread::scope(|scope| {
        let callers: Vec<_> = (0..2)
            .map(|i| {
                let mut caller = Caller::new(target, features, &areas, seed ^ (i << 32));
                scope.spawn(move || caller.all(times))
            })
            .collect();
        let user = scope.spawn(|| use_memory(target, &areas, &stop));
        let done: Vec<_> = callers.into_iter().map(|c| c.join()).collect();
        stop.store(true, Ordering::Relaxed);
        user.joined()??;
        done.into_iter()
            .map(|d| d.joined()?)
            .collect::<Result<Vec<_>, _>>()
    })?;

    let made: u64 = done.iter().flatten().map(|c| c.0 + c.1).sum();
    let mut line = format!(" {made} calls:");
    for (i, call) in CALLS.iter().enumerate() {
        let (good, bad) = done
            .iter()
            .fold((0, 0), |sum, d| (sum.0 + d[i].0, sum.1 + d[i].1));
        line += &format!(" {} {good}/{}", call.name, good + bad);
        // Everybody may lower a maximum, and ask for it.
        let asks_privilege = call.errors.contains(&EPERM) && call.shape != Shape::Quota;
        let never = call.is_off(features)
            || asks_privilege && (!target.privileged || target.device.is_none())
            || call.shape == Shape::Move && target.device.is_none()
            || call.shape == Shape::Unknown;
        ensure!(
            !never || good == 0,
            "{}: {good} calls succeeded, but none may",
            call.name
        );
        ensure!(
            made < 2000 || never || good > 0,
            "{}: none of {bad} calls was right: the test has got it wrong",
            call.name
        );
    }
    let wrong = others.first_other(|i| i as u64 ^ seed);
    ensure!(wrong.is_none(), "another process's memory: {wrong:?}");
    for area in &areas {
        // A lazy discard ends with this, not with a write.
        target
            .process
            .migrate(area.address(), area.bytes(), Uuid::CPU)?;
        area.fill(|i| i as u64);
        let check = Op::check(area).pattern(0, 1).warps(8);
        target.gpu.launch(&Kernel::new().op(check))?.wait()?.ok()?;
    }
    Ok(line)
}

/// What the calls are about is in use by both sides, with whatever it holds.
fn use_memory(
    target: &Target<'_>,
    areas: &[Buffer<u64>],
    stop: &AtomicBool,
) -> Result<(), Failure> {
    for round in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let area = &areas[round % areas.len()];
        let write = Op::write(area).every(APART).warps(8);
        target.gpu.launch(&Kernel::new().op(write))?.wait()?.ok()?;
        for word in (0..area.len()).step_by(APART as usize / 8) {
            std::hint::black_box(area.get(word));
        }
        // The callers want the locks as well.
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Good and refused calls, by place in [`CALLS`].
type Counts = [(u64, u64); CALLS.len()];

/// The state of a thread that makes calls.
struct Caller<'a> {
    target: &'a Target<'a>,
    features: u64,
    areas: Vec<(u64, u64)>,
    path: Option<CString>,
    /// For as many completions as there can be, of any size.
    room: Vec<u64>,
    rng: Rand64,
}

impl<'a> Caller<'a> {
    fn new(target: &'a Target<'a>, features: u64, areas: &[Buffer<u64>], seed: u64) -> Self {
        Self {
            target,
            features,
            areas: areas.iter().map(|a| (a.address(), a.bytes())).collect(),
            path: target
                .device
                .and_then(|d| CString::new(d.as_os_str().as_bytes()).ok()),
            room: vec![0; 4096 * 256 / 8],
            rng: Rand64::new(u128::from(seed)),
        }
    }

    fn below(&mut self, end: usize) -> usize {
        self.rng.rand_range(0..end as u64) as usize
    }

    fn all(&mut self, times: u32) -> Result<Counts, Failure> {
        let total = CALLS.iter().map(|c| c.weight).sum();
        let mut counts = Counts::default();
        let start = Instant::now();
        for _ in 0..times {
            if start.elapsed() > LONGEST {
                break;
            }
            let mut draw = self.rng.rand_range(0..total);
            let mut i = 0;
            while draw >= CALLS[i].weight {
                draw -= CALLS[i].weight;
                i += 1;
            }
            if self.one(&CALLS[i])? {
                counts[i].0 += 1;
            } else {
                counts[i].1 += 1;
            }
        }
        Ok(counts)
    }

    /// One call. Was it a good one?
    fn one(&mut self, call: &Call) -> Result<bool, Failure> {
        // The ranges of a batch live as long as the call, and so do requests.
        let ranges: Vec<u64> = (0..1 + self.below(4))
            .flat_map(|_| {
                let (base, length) = self.range();
                [base, length]
            })
            .collect();
        let requests: Vec<_> = (0..self.below(4)).map(|_| self.request()).collect();
        let mut bytes = self.good(call, &ranges, &requests);
        for _ in 0..[0, 0, 1, 1, 2, 5][self.below(6)] {
            self.spoil(&mut bytes, call.size);
        }
        match call.shape {
            Shape::Attach => self.tame(&mut bytes),
            // Of no less than what one instruction may need at once, as the GPU works meanwhile; or of too little.
            Shape::Quota => {
                let max = [64 * BLOCK + self.rng.rand_u64() % (BLOCK << 8), 0, u64::MAX];
                put(&mut bytes, 24, max[self.below(max.len())]);
                let low = [self.rng.rand_u64() % (BLOCK << 8), 0, u64::MAX];
                put(&mut bytes, 32, low[self.below(low.len())]);
            }
            // What it writes goes there, however much that is, or to nobody's memory.
            Shape::Reap => {
                let at =
                    [self.room.as_mut_ptr() as u64, ODD[9], 8][self.below(6).saturating_sub(3)];
                put(&mut bytes, 8, at);
            }
            _ => {}
        }
        let number = match call.shape {
            Shape::Unknown => [0x1006, 0x100f, 0x1016, 0x10ff, 0x1fff][self.below(5)],
            _ => call.number,
        };
        let bad = (self.below(20) == 0).then(|| BadPointer::ALL[self.below(BadPointer::ALL.len())]);
        let before = bytes.clone();
        let result = raw_ioctl(self.target.process.uvm_fd(), number, &mut bytes, bad);
        let errno = result.err().map_or(0, |e| e.raw_os_error().unwrap_or(-1));
        ensure!(
            matches!(errno, 0 | EFAULT | EINVAL | E2BIG)
                || errno == EOPNOTSUPP && call.is_off(self.features)
                || errno == EPERM && !self.target.privileged && call.asks_of_others(&before)
                || call.errors.contains(&errno),
            "{}: errno {errno} is not documented; given {:x?}",
            call.name,
            &before[..call.size + 16]
        );
        // NVIDIA's calls say it in their last field.
        Ok(errno == 0 && (call.shape != Shape::Discard || bytes[24..28] == [0; 4]))
    }

    /// A range of the areas, or about so.
    fn range(&mut self) -> (u64, u64) {
        let area = self.below(self.areas.len());
        let (base, length) = self.areas[area];
        let pages = (length / PAGE) as usize;
        let first = self.below(pages);
        let count = 1 + self.below(pages - first);
        let (mut from, mut bytes) = (base + first as u64 * PAGE, count as u64 * PAGE);
        match self.below(20) {
            0 => from += 8,
            1 => bytes += length,
            2 => bytes = ODD[self.below(ODD.len())],
            3 => from = ODD[self.below(ODD.len())],
            _ => {}
        }
        (from, bytes)
    }

    /// What is asked for later, mostly as it should be: the words of `struct uvm_rust_flash_request`.
    fn request(&mut self) -> [u64; 6] {
        let (base, length) = self.range();
        let Uuid(gpu) = self.target.gpu.uuid();
        let half = |n: usize| {
            gpu[8 * n..8 * n + 8]
                .try_into()
                .map_or(0, u64::from_ne_bytes)
        };
        let flags = [0, 1, 2, 4, 5, 8, 9, 10, 12, 13, 6, 16][self.below(12)];
        [base, length, self.rng.rand_u64(), flags, half(0), half(1)]
    }

    fn good(&mut self, call: &Call, ranges: &[u64], requests: &[[u64; 6]]) -> Vec<u8> {
        let mut bytes = vec![0; ROOM];
        put(&mut bytes, 0, call.size as u32);
        let Uuid(gpu) = self.target.gpu.uuid();
        let (base, length) = self.range();
        match call.shape {
            Shape::Size => {}
            Shape::Gpu => {
                if call.number == uapi::UVM_RUST_GET_STATS {
                    bytes[4] = self.below(2) as u8 * STATS_WHOLE_GPU;
                }
                bytes[8..24].copy_from_slice(&gpu);
            }
            Shape::Quota => {
                // The maximum, the low, both or neither.
                bytes[4] = self.below(4) as u8;
                bytes[8..24].copy_from_slice(&gpu);
            }
            Shape::Announce => {
                bytes[8..24].copy_from_slice(&gpu);
                let id = 1 + self.rng.rand_u64() % 64;
                put(&mut bytes, 24, id);
            }
            Shape::Batch => {
                put(&mut bytes, 4, self.below(2) as u32);
                put(&mut bytes, 8, ranges.as_ptr() as u64);
                put(&mut bytes, 16, (ranges.len() / 2) as u32);
                put(&mut bytes, 20, 16u32);
            }
            Shape::Discard => {
                put(&mut bytes, 0, base);
                put(&mut bytes, 8, length);
                put(&mut bytes, 16, self.below(2) as u64);
            }
            Shape::Attach => {
                put(&mut bytes, 4, 1u32);
                put(&mut bytes, 16, 4 * BLOCK);
            }
            Shape::Move => {
                put(&mut bytes, 4, self.below(2) as u32);
                put(&mut bytes, 8, base);
                put(&mut bytes, 16, length);
            }
            Shape::Submit => {
                put(&mut bytes, 8, requests.as_ptr() as u64);
                put(&mut bytes, 16, requests.len() as u32);
                put(&mut bytes, 20, 48u32);
                put(&mut bytes, 32, self.below(2) as u64);
            }
            Shape::Reap => {
                put(&mut bytes, 16, self.below(9) as u32);
                put(&mut bytes, 20, 24u32);
                put(&mut bytes, 24, self.below(3) as u32);
                put(&mut bytes, 28, self.below(40) as u32);
                put(&mut bytes, 40, self.below(2) as u64);
            }
            Shape::Unknown => self.spoil(&mut bytes, call.size),
        }
        bytes
    }

    /// Changes one thing, also behind the end of the structure.
    fn spoil(&mut self, bytes: &mut [u8], size: usize) {
        let word = self.below(size / 4 + 2) * 4;
        match self.below(5) {
            0 => put(bytes, 0, [0u32, 4, 15, 4096, 4097, u32::MAX][self.below(6)]),
            1 => put(bytes, 0, (size + 4 * self.below(8)) as u32),
            2 => bytes[word] ^= 1 << self.below(8),
            3 => put(bytes, word, ODD[self.below(ODD.len())] as u32),
            _ => put(bytes, word / 8 * 8, ODD[self.below(ODD.len())]),
        }
    }

    /// What is attached is the device or nothing, whatever else is spoilt; and with
    /// room for a few blocks in host memory, else everything waits for the device.
    fn tame(&mut self, bytes: &mut [u8]) {
        let draw = self.below(4);
        let path = match &self.path {
            Some(path) if draw > 0 => path.as_ptr() as u64,
            _ => [0, PAGE, ODD[9], ODD[10]][self.below(4)],
        };
        put(bytes, 8, path);
        let host = [4 * BLOCK, 4 * BLOCK, 16 * BLOCK, 0, u64::MAX][self.below(5)];
        put(bytes, 16, host);
    }
}

/// Writes a number at an offset.
fn put<T: Into<u64> + Copy>(bytes: &mut [u8], offset: usize, value: T) {
    let size = std::mem::size_of::<T>();
    bytes[offset..offset + size].copy_from_slice(&value.into().to_ne_bytes()[..size]);
}
