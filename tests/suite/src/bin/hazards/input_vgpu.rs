// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Bad input to every call of /dev/vgpu: the documented errno, and no change.

use uvm_suite::{ensure, Failure, Outcome, Pass, Suite};
use vgpu_client::uvm::UnregisterChannel;
use vgpu_client::vgpu::{self, Call as _, *};
use vgpu_client::{raw_ioctl, BadPointer, Buffer, Gpu, Kernel, Vgpu};

use crate::{start, still_works, ENDLESS, NONE, WORDS};

/// A call: its name, number, how big its structure is, and how big it was at first.
struct Call {
    name: &'static str,
    number: u32,
    size: usize,
    first: usize,
}

const CALLS: [Call; 9] = [
    call::<Info>(),
    call::<VaspaceCreate>(),
    call::<ChannelCreate>(),
    call::<Destroy>(),
    call::<Submit>(),
    call::<Wait>(),
    Call {
        first: uvm_uapi::VGPU_STATS_SIZE_V1 as usize,
        ..call::<Stats>()
    },
    call::<vgpu::Inject>(),
    call::<Translate>(),
];

const fn call<T: vgpu::Call>() -> Call {
    Call {
        name: T::NAME,
        number: T::NUMBER,
        size: size_of::<T>(),
        first: size_of::<T>(),
    }
}

pub(crate) fn run(suite: &mut Suite) {
    for call in &CALLS {
        suite.test(
            &format!("bad input: {}, pointer and size", call.name),
            NONE,
            || envelope(call),
        );
    }
    suite.test(
        "bad input: VGPU_VASPACE_CREATE and VGPU_CHANNEL_CREATE",
        NONE,
        creation,
    );
    suite.test("bad input: VGPU_DESTROY, others' handles", NONE, handles);
    suite.test("bad input: VGPU_SUBMIT", NONE, submit);
    suite.test("bad input: VGPU_WAIT", NONE, wait);
    suite.test("bad input: VGPU_INJECT", NONE, inject);
    suite.test("bad input: VGPU_TRANSLATE", NONE, translate);
    suite.test("bad input: numbers that are no calls", NONE, numbers);
}

/// A structure as bytes, for changing any of them.
#[derive(Clone)]
struct Bytes(Vec<u8>);

impl Bytes {
    fn new(size: usize) -> Self {
        let mut bytes = vec![0; size];
        bytes[..4].copy_from_slice(&(size as u32).to_ne_bytes());
        Self(bytes)
    }

    fn u32(mut self, at: usize, value: u32) -> Self {
        self.0[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        self
    }

    fn u64(mut self, at: usize, value: u64) -> Self {
        self.0[at..at + 8].copy_from_slice(&value.to_ne_bytes());
        self
    }
}

fn errno(vgpu: &Vgpu, number: u32, bytes: &Bytes, bad: Option<BadPointer>) -> i32 {
    let mut bytes = bytes.0.clone();
    match raw_ioctl(vgpu.fd(), number, &mut bytes, bad) {
        Ok(()) => 0,
        Err(e) => e.raw_os_error().unwrap_or(-1),
    }
}

/// Checks that a call with `bytes` gives `want`.
fn gives(vgpu: &Vgpu, number: u32, what: &str, bytes: &Bytes, want: i32) -> Result<(), Failure> {
    let got = errno(vgpu, number, bytes, None);
    ensure!(got == want, "{what}: errno {got}, not {want}");
    Ok(())
}

/// Objects that a client still has, by asking for more until it is refused.
fn room(vgpu: &Vgpu) -> Result<usize, Failure> {
    let mut made = Vec::new();
    loop {
        let mut create = VaspaceCreate {
            size: 24,
            ..Default::default()
        };
        let mut bytes = Bytes::new(24);
        match raw_ioctl(vgpu.fd(), VaspaceCreate::NUMBER, &mut bytes.0, None) {
            Ok(()) => {
                create.h_vaspace = u32::from_ne_bytes([0, 1, 2, 3].map(|i| bytes.0[16 + i]));
                made.push(create.h_vaspace);
            }
            Err(e) if e.raw_os_error() == Some(libc::ENOSPC) => break,
            Err(e) => return Err(e.into()),
        }
        ensure!(made.len() <= 1000, "no limit on address spaces");
    }
    for &handle in &made {
        vgpu.destroy(handle)?;
    }
    Ok(made.len())
}

fn envelope(call: &Call) -> Outcome {
    let vgpu = Vgpu::open()?;
    let room_before = room(&vgpu)?;
    let good = Bytes::new(call.size);
    for bad in BadPointer::ALL {
        let got = errno(&vgpu, call.number, &good, Some(bad));
        // What can be read is judged before it is found that nothing can be
        // written there.
        let early = bad == BadPointer::ReadOnly && got != 0;
        ensure!(
            got == libc::EFAULT || early,
            "{bad:?} pointer: errno {got}, not EFAULT"
        );
    }
    for (size, want) in [
        (0, libc::EINVAL),
        (4, libc::EINVAL),
        (call.first as u32 - 1, libc::EINVAL),
    ] {
        gives(
            &vgpu,
            call.number,
            &format!("size {size}"),
            &good.clone().u32(0, size),
            want,
        )?;
    }
    for size in [4097, u32::MAX] {
        let big = Bytes::new(8192).u32(0, size);
        gives(
            &vgpu,
            call.number,
            &format!("size {size}"),
            &big,
            libc::E2BIG,
        )?;
    }
    let unknown = Bytes::new(call.size + 16).u32(call.size + 8, 1);
    gives(
        &vgpu,
        call.number,
        "an unknown field that is set",
        &unknown,
        libc::E2BIG,
    )?;
    // Whoever was built with the first header is answered.
    let older = good.clone().u32(0, call.first as u32);
    let (first, same) = (
        errno(&vgpu, call.number, &older, None),
        errno(&vgpu, call.number, &good, None),
    );
    ensure!(
        first == same,
        "the first version: errno {first}, with today's {same}"
    );
    let longer = errno(&vgpu, call.number, &Bytes::new(call.size + 16), None);
    ensure!(
        longer == same,
        "unknown fields that are 0: errno {longer}, without them {same}"
    );
    if call.name != "VGPU_GET_INFO" {
        let flags = good.clone().u32(4, 1 << 31);
        gives(&vgpu, call.number, "an unknown flag", &flags, libc::EINVAL)?;
    }
    drop(vgpu);
    let vgpu = Vgpu::open()?;
    let room_after = room(&vgpu)?;
    ensure!(
        room_after == room_before,
        "room for {room_before} objects, then {room_after}"
    );
    Ok(Pass::Ok)
}

fn creation() -> Outcome {
    let vgpu = Vgpu::open()?;
    let vaspace = VaspaceCreate::NUMBER;
    gives(
        &vgpu,
        vaspace,
        "GPU 99",
        &Bytes::new(24).u32(8, 99),
        libc::ENODEV,
    )?;
    gives(
        &vgpu,
        vaspace,
        "reserved",
        &Bytes::new(24).u32(20, 1),
        libc::EINVAL,
    )?;
    let limit = room(&vgpu)?;
    ensure!(limit == 16, "{limit} address spaces, not 16");

    let channel = ChannelCreate::NUMBER;
    for handle in [0, 1, u32::MAX] {
        gives(
            &vgpu,
            channel,
            "no such space",
            &Bytes::new(24).u32(8, handle),
            libc::ENOENT,
        )?;
    }
    let info = Info::NUMBER;
    gives(
        &vgpu,
        info,
        "GPU 99",
        &Bytes::new(104).u32(4, 99),
        libc::ENODEV,
    )?;
    gives(
        &vgpu,
        Stats::NUMBER,
        "GPU 99",
        &Bytes::new(344).u32(8, 99),
        libc::ENODEV,
    )?;
    Ok(Pass::Ok)
}

fn handles() -> Outcome {
    let (process, gpu) = start()?;
    let other = Vgpu::open()?;
    let destroy = Destroy::NUMBER;
    for handle in [
        0,
        12345,
        u32::MAX,
        gpu.channel().handle(),
        gpu.vaspace().h_vaspace,
    ] {
        let bytes = Bytes::new(16).u32(8, handle);
        gives(
            &other,
            destroy,
            &format!("handle {handle:#x}"),
            &bytes,
            libc::ENOENT,
        )?;
    }
    let busy = Bytes::new(16).u32(8, gpu.vaspace().h_vaspace);
    gives(
        gpu.device(),
        destroy,
        "a space with channels",
        &busy,
        libc::EBUSY,
    )?;
    let reserved = Bytes::new(16).u32(8, gpu.channel().handle()).u32(12, 1);
    gives(gpu.device(), destroy, "reserved", &reserved, libc::EINVAL)?;
    still_works(&process, &gpu)?;
    Ok(Pass::Ok)
}

/// Offsets in struct vgpu_op.
const KIND: usize = 0;
const FLAGS: usize = 4;
const VA: usize = 8;
const STRIDE: usize = 16;
const COUNT: usize = 24;
const ROW_STRIDE: usize = 32;
const ROWS: usize = 40;
const WIDTH: usize = 48;
const WARPS: usize = 52;
const LANES: usize = 56;
const UTLB_FIRST: usize = 60;
const UTLB_COUNT: usize = 64;
const RESERVED: usize = 68;

fn submit() -> Outcome {
    let (process, gpu) = start()?;
    let buffer = Buffer::<u64>::managed(&process, WORDS)?;
    let number = Submit::NUMBER;
    let good_op = {
        let mut op = Bytes(vec![0; 88])
            .u32(KIND, OP_READ)
            .u64(VA, buffer.address());
        op = op.u64(STRIDE, 8).u64(COUNT, 1).u32(WIDTH, 8);
        op
    };
    let request = |ops: &Bytes| {
        let submit = Bytes::new(48).u32(8, gpu.channel().handle()).u32(12, 1);
        submit.u64(16, ops.0.as_ptr() as u64).u32(24, 88)
    };
    let device = gpu.device();
    gives(device, number, "a good op", &request(&good_op), 0)?;

    let bad_ops = [
        ("unknown kind", good_op.clone().u32(KIND, 99)),
        ("unknown flag", good_op.clone().u32(FLAGS, 1 << 31)),
        (
            "unaligned address",
            good_op.clone().u64(VA, buffer.address() + 4),
        ),
        (
            "address over the end",
            good_op.clone().u64(VA, va_end(&gpu)),
        ),
        (
            "address at the very end",
            good_op.clone().u64(VA, u64::MAX - 7),
        ),
        (
            "running over the end",
            good_op.clone().u64(STRIDE, 1 << 30).u64(COUNT, 1 << 30),
        ),
        (
            "running below 0",
            good_op
                .clone()
                .u64(STRIDE, (-128i64) as u64)
                .u64(COUNT, 1 << 39),
        ),
        (
            "rows over the end",
            good_op.clone().u64(ROW_STRIDE, 1 << 40).u64(ROWS, 1 << 20),
        ),
        (
            "rows that overflow",
            good_op.clone().u64(ROW_STRIDE, 1 << 62).u64(ROWS, 8),
        ),
        (
            "stride that overflows",
            good_op.clone().u64(STRIDE, 1 << 62).u64(COUNT, 8),
        ),
        (
            "unaligned stride",
            good_op.clone().u64(STRIDE, 12).u64(COUNT, 2),
        ),
        ("no accesses", good_op.clone().u64(COUNT, 0)),
        (
            "too many accesses",
            good_op.clone().u64(STRIDE, 0).u64(COUNT, (1 << 40) + 1),
        ),
        (
            "rows times columns",
            good_op
                .clone()
                .u64(STRIDE, 0)
                .u64(COUNT, 1 << 32)
                .u64(ROWS, 1 << 32),
        ),
        ("width 0", good_op.clone().u32(WIDTH, 0)),
        ("width 5", good_op.clone().u32(WIDTH, 5)),
        ("width 24", good_op.clone().u32(WIDTH, 24)),
        ("width 8192", good_op.clone().u32(WIDTH, 8192)),
        ("33 lanes", good_op.clone().u32(LANES, 33)),
        ("too many warps", good_op.clone().u32(WARPS, 1 << 20)),
        ("warps that wrap", good_op.clone().u32(WARPS, u32::MAX)),
        ("unknown µTLB", good_op.clone().u32(UTLB_FIRST, 100_000)),
        ("too many µTLBs", good_op.clone().u32(UTLB_COUNT, 100_000)),
        ("reserved", good_op.clone().u32(RESERVED, 1)),
    ];
    for (what, op) in &bad_ops {
        gives(device, number, what, &request(op), libc::EINVAL)?;
    }
    let good = request(&good_op);
    for (what, bytes, want) in [
        ("no ops", good.clone().u32(12, 0), libc::EINVAL),
        ("too many ops", good.clone().u32(12, 1025), libc::EINVAL),
        ("null ops", good.clone().u64(16, 0), libc::EFAULT),
        (
            "ops at the very end",
            good.clone().u64(16, u64::MAX - 7),
            libc::EFAULT,
        ),
        (
            "ops in the kernel",
            good.clone().u64(16, 0xffff_8880_0000_0000),
            libc::EFAULT,
        ),
        ("op size 0", good.clone().u32(24, 0), libc::EINVAL),
        ("op size 87", good.clone().u32(24, 87), libc::EINVAL),
        (
            "too many faults per µTLB",
            good.clone().u32(28, 1 << 20),
            libc::EINVAL,
        ),
        ("reserved", good.clone().u64(32, 1), libc::EINVAL),
        ("no such channel", good.clone().u32(8, 0), libc::ENOENT),
        (
            "a space as channel",
            good.clone().u32(8, gpu.vaspace().h_vaspace),
            libc::ENOENT,
        ),
    ] {
        gives(device, number, what, &bytes, want)?;
    }
    let other = Vgpu::open()?;
    gives(
        &other,
        number,
        "another file's channel",
        &good,
        libc::ENOENT,
    )?;
    still_works(&process, &gpu)?;
    Ok(Pass::Ok)
}

fn wait() -> Outcome {
    let (process, gpu) = start()?;
    let number = Wait::NUMBER;
    let of = |handle: u32, fence: u64| Bytes::new(136).u32(8, handle).u64(16, fence);
    let handle = gpu.channel().handle();
    for fence in [0, 1, u64::MAX] {
        gives(
            gpu.device(),
            number,
            "a fence not given yet",
            &of(handle, fence),
            libc::ENOENT,
        )?;
    }
    still_works(&process, &gpu)?;
    gives(gpu.device(), number, "the first fence", &of(handle, 1), 0)?;
    gives(gpu.device(), number, "the same again", &of(handle, 1), 0)?;
    gives(
        gpu.device(),
        number,
        "no such channel",
        &of(0, 1),
        libc::ENOENT,
    )?;
    gives(
        &Vgpu::open()?,
        number,
        "another file's channel",
        &of(handle, 1),
        libc::ENOENT,
    )?;

    // A kernel that does not end by itself is looked at too early whenever that is.
    let buffer = Buffer::<u64>::managed(&process, WORDS)?;
    let endless = vgpu_client::Op::read(&buffer).range(0, 1).times(ENDLESS);
    let other = gpu.new_channel()?;
    let launch = other.launch(&Kernel::new().op(endless))?;
    let early = of(other.handle(), launch.fence());
    for timeout in [0, 1_000_000] {
        gives(
            gpu.device(),
            number,
            "a look too early",
            &early.clone().u64(24, timeout),
            libc::ETIMEDOUT,
        )?;
    }
    process.call(&mut UnregisterChannel {
        gpu: gpu.uuid(),
        h_client: gpu.vaspace().h_client,
        h_channel: other.handle(),
        rm_status: 0,
    })?;
    gives(gpu.device(), number, "after its end", &early, 0)?;
    let report = launch.wait()?;
    ensure!(
        report.outcome == vgpu_client::Outcome::Stopped,
        "it ended as {:?}",
        report.outcome
    );
    Ok(Pass::Ok)
}

fn inject() -> Outcome {
    let (process, gpu) = start()?;
    let good = Bytes::new(64).u32(12, INJECT_EVICT_PAGES).u64(16, 1);
    let number = vgpu::Inject::NUMBER;
    let stats = gpu.stats()?;
    for (what, bytes, want) in [
        ("GPU 99", good.clone().u32(8, 99), libc::ENODEV),
        ("unknown kind", good.clone().u32(12, 99), libc::EINVAL),
        ("kind 0", good.clone().u32(12, 0), libc::EINVAL),
        ("no pages", good.clone().u64(16, 0), libc::EINVAL),
        ("too many pages", good.clone().u64(16, 1025), libc::EINVAL),
        ("skip of an eviction", good.clone().u64(24, 1), libc::EINVAL),
        ("unaligned begin", good.clone().u64(32, 4096), libc::EINVAL),
        ("unaligned end", good.clone().u64(40, 4096), libc::EINVAL),
        (
            "begin after end",
            good.clone().u64(32, 8 << 20).u64(40, 4 << 20),
            libc::EINVAL,
        ),
        (
            "end beyond vidmem",
            good.clone().u64(40, 1 << 60),
            libc::EINVAL,
        ),
        (
            "handle of an eviction",
            good.clone().u32(48, 1),
            libc::EINVAL,
        ),
        (
            "a suspend of no time",
            good.clone().u32(12, vgpu::INJECT_SUSPEND).u64(16, 0),
            libc::EINVAL,
        ),
        (
            "a suspend of too long",
            good.clone().u32(12, vgpu::INJECT_SUSPEND).u64(16, 10_001),
            libc::EINVAL,
        ),
        (
            "a suspend of a range",
            good.clone().u32(12, vgpu::INJECT_SUSPEND).u64(40, 8 << 20),
            libc::EINVAL,
        ),
        (
            "two copies",
            good.clone().u32(12, vgpu::INJECT_COPY).u64(16, 2),
            libc::EINVAL,
        ),
        (
            "the address of no copy",
            good.clone()
                .u32(12, vgpu::INJECT_COPY)
                .u64(16, 0)
                .u64(32, 4096),
            libc::EINVAL,
        ),
        (
            "a copy of a range",
            good.clone().u32(12, vgpu::INJECT_COPY).u64(40, 8 << 20),
            libc::EINVAL,
        ),
        (
            "a copy of no channel",
            good.clone().u32(12, vgpu::INJECT_COPY),
            libc::ENOENT,
        ),
        (
            "keep what is no eviction",
            good.clone().u32(12, 1).u32(4, INJECT_KEEP),
            libc::EINVAL,
        ),
    ] {
        gives(gpu.device(), number, what, &bytes, want)?;
    }
    let error = Bytes::new(64).u32(12, INJECT_CHANNEL_ERROR);
    for handle in [0, 12345, u32::MAX] {
        let got = errno(gpu.device(), number, &error.clone().u32(48, handle), None);
        let refused = got == libc::ENOENT || got == libc::EINVAL;
        ensure!(refused, "channel error of {handle:#x}: errno {got}");
    }
    let now = gpu.stats()?;
    ensure!(
        now.channel_errors == stats.channel_errors,
        "a channel was stopped"
    );
    ensure!(
        now.tlb_invalidates_dropped == stats.tlb_invalidates_dropped,
        "something was dropped"
    );
    still_works(&process, &gpu)?;
    Ok(Pass::Ok)
}

/// First address that is none of the GPU's.
fn va_end(gpu: &Gpu) -> u64 {
    1 << gpu.info().va_bits()
}

fn translate() -> Outcome {
    let (process, gpu) = start()?;
    let number = Translate::NUMBER;
    let of = |va: u64| Bytes::new(40).u32(8, gpu.vaspace().h_vaspace).u64(16, va);
    for va in [va_end(&gpu), u64::MAX] {
        gives(
            gpu.device(),
            number,
            "address over the end",
            &of(va),
            libc::EINVAL,
        )?;
    }
    let channel = of(0).u32(8, gpu.channel().handle());
    gives(
        gpu.device(),
        number,
        "a channel as space",
        &channel,
        libc::ENOENT,
    )?;
    gives(
        &Vgpu::open()?,
        number,
        "another file's space",
        &of(0),
        libc::ENOENT,
    )?;
    gives(gpu.device(), number, "an odd address", &of(3), 0)?;
    still_works_and_translates(&process, &gpu)?;
    Ok(Pass::Ok)
}

fn still_works_and_translates(process: &vgpu_client::Process, gpu: &Gpu) -> Result<(), Failure> {
    let buffer = Buffer::<u64>::managed(process, WORDS)?;
    let none = gpu.translate(buffer.address())?;
    ensure!(
        none.aperture == APERTURE_NONE && none.page_bytes == 0,
        "mapped before use"
    );
    let write = vgpu_client::Op::write(&buffer);
    gpu.launch(&Kernel::new().op(write))?.wait()?.ok()?;
    let there = gpu.translate(buffer.address())?;
    ensure!(
        there.aperture == APERTURE_VIDMEM,
        "aperture {}",
        there.aperture
    );
    ensure!(
        there.permissions & 3 == 3,
        "permissions {}",
        there.permissions
    );
    Ok(())
}

fn numbers() -> Outcome {
    let vgpu = Vgpu::open()?;
    for number in [0, 1, 0x563f, 0x5649, 0x56ff, 0x1000, u32::MAX, 0x5440] {
        let got = errno(&vgpu, number, &Bytes::new(64), None);
        ensure!(
            got == libc::ENOTTY,
            "number {number:#x}: errno {got}, not ENOTTY"
        );
    }
    Ok(Pass::Ok)
}
