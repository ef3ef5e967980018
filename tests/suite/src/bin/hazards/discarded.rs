// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! What is known of a discarded va_block is charged to a memory cgroup, too, which may be above `memory.high`, or full. It is made with the
//! va_block's lock held, for which the thread that services all processes' faults may wait.

use std::fs;
use std::io;
use std::process::ExitCode;
use std::ptr::null_mut;
use std::time::Duration;

use uvm_suite::{ensure, Outcome, Pass, Suite};
use vgpu_client::{Buffer, Discard, Process, BLOCK, PAGE};

use crate::charge::{child, start_with_group, told_to_go_on, waits_alike, words, Owner};
use crate::{NONE, PAGE_WORDS, WORDS};

pub(crate) fn run(suite: &mut Suite) {
    suite.test(
        "charge: a discard waits for its own once it is over",
        NONE,
        discard_waits_once,
    );
    suite.test(
        "charge: a split of a discarded va_block loses nothing where Linux refuses the charge",
        NONE,
        split_is_full,
    );
}

/// How many va_blocks the children of the test below discard for the first time. What is known of 1,000 of them takes more than the 64
/// pages that Linux charges at a time, and it waits whenever it has charged more than that.
pub(crate) const FEW: u64 = 1_500;
pub(crate) const MANY: u64 = 6_000;

/// Run by the test below: discards so many va_blocks in one call, each of which it has touched, once it is told to. They have one page
/// each, as Linux gives all of a va_block to who touches it.
pub(crate) fn child_discards(process: vgpu_client::Result<Process>, blocks: u64) -> ExitCode {
    child(|| {
        let process = process?;
        // Nothing else is mapped where this was: the array is there before.
        let mut pages = Vec::with_capacity(blocks as usize);
        let free = Buffer::<u64>::ordinary(words(blocks * PAGE) + WORDS)?;
        let at = free.address();
        drop(free);
        for block in 0..blocks {
            let page = Buffer::<u64>::managed_at(&process, at + block * PAGE, PAGE_WORDS)?;
            pages.push(page);
        }
        pages.iter().for_each(|page| page.set(0, 1));
        told_to_go_on(blocks * BLOCK)?;
        Ok(process.discard(at, blocks * PAGE, Discard::Lazy)?)
    })
}

/// Each child is far above `memory.high`, so that every wait is as long as Linux makes it, and counts as much.
fn discard_waits_once() -> Outcome {
    let (_process, _gpu, group) = start_with_group!();
    let children = ["--child-discards-little", "--child-discards-much"];
    let [few, many] = waits_alike(&group, children, |charged| charged / 2)?;
    println!("# {few} waits for {FEW} va_blocks, {many} for {MANY}");
    Ok(Pass::Ok)
}

/// How many va_blocks the child of the test below splits: together no less than an owner has to have.
const SPLITS: usize = 8;

/// How much of each is discarded. The rest stays as it was.
const GRANULE: u64 = 64 << 10;

/// Run by the test below: splits discarded va_blocks while its cgroup is full. Linux may not end it, and so refuses it memory.
///
/// A split needs a `vm_area_struct` first, for which there is room once another one is freed, and for nothing else.
pub(crate) fn child_splits(process: vgpu_client::Result<Process>) -> ExitCode {
    child(|| {
        let process = process?;
        fs::write("/proc/self/oom_score_adj", "-1000")?;
        run_on_one_cpu()?;
        let mut spare = Spare::new(SPLITS)?;
        let buffers = (0..SPLITS).map(|_| Buffer::<u64>::managed(&process, WORDS));
        let buffers = buffers.collect::<Result<Vec<_>, _>>()?;
        for buffer in &buffers {
            buffer.fill(|i| i as u64);
            process.discard(buffer.address(), GRANULE, Discard::Lazy)?;
            ensure!(
                process.is_discarded(buffer.address())?,
                "nothing is discarded"
            );
        }
        // Linux takes none of its memory away that it would have to read again.
        // SAFETY: the function takes a number.
        let locked = unsafe { libc::mlockall(libc::MCL_CURRENT) };
        ensure!(locked == 0, "mlockall: {}", io::Error::last_os_error());
        told_to_go_on(BLOCK * SPLITS as u64)?;
        let mut splits = 0;
        for buffer in &buffers {
            spare.free_one();
            // Linux frees it a little later.
            std::thread::sleep(Duration::from_millis(200));
            splits += usize::from(protect_last(buffer));
        }
        // SAFETY: the function takes a number. It stops here until the test goes on.
        unsafe { libc::raise(libc::SIGSTOP) };
        println!("{splits}");
        let kept = (GRANULE / 8) as usize;
        for buffer in &buffers {
            let wrong = (kept..WORDS).find(|&i| buffer.get(i) != i as u64);
            ensure!(wrong.is_none(), "word {wrong:?} is not what was written");
        }
        Ok(())
    })
}

/// Takes the right to write from the last page. Whether Linux had memory for that.
fn protect_last(buffer: &Buffer<u64>) -> bool {
    let last = (buffer.address() + buffer.bytes() - PAGE) as usize as *mut libc::c_void;
    // SAFETY: the page is the buffer's, which nobody writes to any more.
    unsafe { libc::mprotect(last, PAGE as usize, libc::PROT_READ) == 0 }
}

/// Areas of one page each, of which nobody has touched any: a `vm_area_struct` is all that Linux frees with one.
struct Spare {
    at: usize,
    left: usize,
}

impl Spare {
    fn new(areas: usize) -> Result<Self, io::Error> {
        let (page, flags) = (PAGE as usize, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let (length, none) = (2 * areas * page, libc::PROT_NONE);
        // SAFETY: they are mapped where nothing is.
        let at = unsafe { libc::mmap(null_mut(), length, none, flags, -1, 0) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let spare = Self {
            at: at as usize,
            left: areas,
        };
        // Otherwise all of it would be one area.
        for area in 0..areas {
            let between = (spare.at + (2 * area + 1) * page) as *mut libc::c_void;
            // SAFETY: the page is one of those, and nobody uses it.
            if unsafe { libc::mprotect(between, page, libc::PROT_READ) } != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(spare)
    }

    /// Unmaps the last page that is left, so that a mapping more may be made.
    fn free_one(&mut self) {
        self.left = self.left.saturating_sub(1);
        let area = (self.at + 2 * self.left * PAGE as usize) as *mut libc::c_void;
        // SAFETY: the page is one of those, and nobody uses it.
        unsafe { libc::munmap(area, PAGE as usize) };
    }
}

/// Linux keeps for each CPU what was freed there.
fn run_on_one_cpu() -> Result<(), io::Error> {
    // SAFETY: a set of CPUs is numbers only, and there for the call.
    let ret = unsafe {
        let mut cpus: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(0, &mut cpus);
        libc::sched_setaffinity(0, size_of_val(&cpus), &cpus)
    };
    match ret {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// NVIDIA's driver destroys a range whose split fails, with all that it holds.
fn split_is_full() -> Outcome {
    let (_process, _gpu, group) = start_with_group!();
    let mut owner = Owner::start(&group, "--child-splits")?;
    group.limit("0")?;
    let refused = group.events("max")?;
    owner.tell()?;
    owner.stops()?;
    let refused = group.events("max")? - refused;
    group.limit("max")?;
    owner.goes_on()?;
    let splits = owner.says()?.parse::<usize>();
    let splits = splits.map_err(|_| "the owner says nothing")?;
    println!("# {splits} va_blocks were split, {refused} charges refused");
    ensure!(
        splits > 0 && refused > 0,
        "there was memory, or none for anything"
    );
    let status = owner.child.0.wait()?;
    ensure!(status.success(), "the owner ended with {status}");
    Ok(Pass::Ok)
}
