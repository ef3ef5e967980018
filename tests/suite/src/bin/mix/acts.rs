// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! What a worker does beside what `random` does as well.

use uvm_suite::random::{Done, Program, Span, Wrong, PAGE_WORDS};
use uvm_suite::rm::stop_channel;
use uvm_suite::Forked;
use vgpu_client::flash::{FlashRequest, AFTER, FROM_GPUS, TO_GPU, TO_HOST};
use vgpu_client::uvm::{UnregisterChannel, Uuid, VaBlockInjectError};
use vgpu_client::{Buffer, BLOCK};

use crate::crew::is_for_lack_of_memory;
use crate::deeds::Act;
use crate::worker::failed;
use uvm_suite::random::Kind;

/// Requests that may be on their way when an operation ends.
const MOST_PENDING: u32 = 32;
/// Longer than an operation may take.
const LONG_MS: u32 = 600_000;
/// Kernels that are announced, in turn.
const KERNELS: usize = 6;

/// What a worker keeps in mind from one operation to the next.
#[derive(Debug, Default)]
pub(crate) struct Extras {
    /// Requests to move memory that may not be done.
    pending: u32,
    /// Memory was freed while there were some.
    freed: bool,
}

impl Extras {
    pub(crate) fn act(&mut self, program: &mut Program, index: u64, act: Act) -> Done {
        let any = program.below(program.areas.len());
        let ordinary = program.first_from(any, false);
        let managed = program.first_from(any, true);
        match (act, managed, ordinary) {
            (Act::Base(kind), _, _) => self.base(program, index, kind),
            (Act::Remap, _, Some(area)) => remap(program, index, area),
            (Act::Fork, _, Some(area)) => fork(program, index, area, false),
            (Act::ForkGpu, _, Some(area)) => fork(program, index, area, true),
            (Act::Quota, _, _) => quota(program),
            (Act::Announce, _, _) => announce(program, index),
            (Act::Tier, Some(area), _) => tier(program, index, area),
            (Act::Queue, Some(area), _) => self.queue(program, index, area),
            (Act::Channel, _, _) => channel(program),
            (Act::Block, Some(area), _) => block(program, index, area),
            // A worker may have no memory of that kind for a while.
            (Act::Remap | Act::Fork | Act::ForkGpu | Act::Tier | Act::Queue | Act::Block, _, _) => {
                Ok(())
            }
        }
    }

    fn base(&mut self, program: &mut Program, index: u64, kind: Kind) -> Done {
        // What is discarded is asked for page by page, and a move in between would use the pages again.
        if kind == Kind::Discard {
            self.drain(program)?;
        }
        self.freed |= kind == Kind::Free;
        program.act(index, kind)
    }

    /// Asks for moves that nobody waits for at once.
    fn queue(&mut self, program: &mut Program, index: u64, area: usize) -> Done {
        let gpu = program.gpus[0].uuid();
        let requests: Vec<_> = (0..1 + program.below(4))
            .map(|_| {
                let (span, base, length) = program.pages(area);
                let way = [0, TO_HOST, TO_GPU, FROM_GPUS, FROM_GPUS | TO_HOST][program.below(5)];
                let after = if program.chance(25) { AFTER } else { 0 };
                program.note(index, area, span, format!("to be moved: {way:#x}, {after}"));
                FlashRequest {
                    base,
                    length,
                    user_data: index,
                    flags: way | after,
                    gpu_uuid: if way == TO_GPU { gpu.0 } else { [0; 16] },
                    ..Default::default()
                }
            })
            .collect();
        let taken = again(|| program.process.flash_submit(&requests, None))?;
        if taken as usize != requests.len() {
            let what = format!("{taken} of {} requests were taken", requests.len());
            return Err(Wrong::new(what));
        }
        self.pending += taken;
        if self.pending > MOST_PENDING || program.chance(60) {
            self.drain(program)?;
        }
        Ok(())
    }

    /// Waits for all that was asked for.
    pub(crate) fn drain(&mut self, program: &Program) -> Done {
        if self.pending == 0 {
            return Ok(());
        }
        let most = self.pending;
        let (done, pending) = again(|| program.process.flash_reap(most as usize, most, LONG_MS))?;
        if done.len() != most as usize || pending != 0 {
            let what = format!("{} of {most} requests are done", done.len());
            return Err(Wrong::new(what));
        }
        for one in done {
            let nobodys = one.status == -libc::ENXIO && self.freed;
            if one.status != 0 && one.status != -libc::EAGAIN && !nobodys {
                return Err(Wrong {
                    for_lack_of_memory: one.status == -libc::ENOMEM,
                    ..Wrong::new(format!("a request ended with {}", one.status))
                });
            }
        }
        (self.pending, self.freed) = (0, false);
        Ok(())
    }
}

/// Ordinary memory goes to another address, from wherever it is.
fn remap(program: &mut Program, index: u64, area: usize) -> Done {
    let all = program.areas[area].all();
    if program.chance(50) {
        let (span, base, length) = program.pages(area);
        program.note(index, area, span, "migrate to the GPU, for mremap");
        migrate_ordinary(program, base, length)?;
    }
    program.note(index, area, all, "mremap");
    let huge = program.chance(50);
    let looks = program.chance(50);
    let area = &mut program.areas[area];
    let fresh = Buffer::ordinary(area.model.len())?;
    fresh.huge_pages(huge)?;
    fresh.take_pages_of(&area.buffer)?;
    let old = std::mem::replace(&mut area.buffer, fresh);
    if looks {
        for word in (0..old.len()).step_by(PAGE_WORDS) {
            let seen = old.get(word);
            if seen != 0 {
                let what = format!("word {word} is {seen:#x} where mremap has taken all");
                return Err(area.wrong(word, Some(seen), what));
            }
        }
    }
    Ok(())
}

/// As `random` does it: what UVM leaves to move_pages(2) stays.
fn migrate_ordinary(program: &Program, base: u64, length: u64) -> Done {
    let to = program.gpus[0].uuid();
    match program.process.migrate_with(base, length, to, -1) {
        Err(e) if e.status().is_some() => Ok(()),
        other => Ok(other?),
    }
}

/// A child looks at what it has inherited and writes its copy, while this process goes on with its own.
fn fork(program: &mut Program, index: u64, area: usize, by_gpu: bool) -> Done {
    if program.chance(50) {
        let (span, base, length) = program.pages(area);
        program.note(index, area, span, "migrate to the GPU, for fork");
        migrate_ordinary(program, base, length)?;
    }
    let span = program.span(area);
    program.note(index, area, span, "fork, and the child writes");
    let child = Forked::new(|| inherited(program, index, area, span));
    let child = child.map_err(|error| Wrong::new(format!("fork: {error}")))?;
    match by_gpu {
        true => {
            let atomic = program.chance(50);
            program.gpu_change(index, area, atomic)?;
        }
        false => program.cpu_write(index, area)?,
    }
    let status = child
        .wait()
        .map_err(|error| Wrong::new(format!("waitpid: {error}")))?;
    let area = &program.areas[area];
    if !status.success() {
        let what = format!("a forked child ended with {status}");
        return Err(Wrong {
            for_lack_of_memory: is_for_lack_of_memory(status),
            ..area.wrong(span.first, None, what)
        });
    }
    area.check(span)
}

/// What the child does. Its memory is as it was when it began, whatever becomes of its parent's.
fn inherited(program: &Program, index: u64, area: usize, span: Span) -> bool {
    let area = &program.areas[area];
    let looked = area.check(span).and_then(|()| {
        span.words()
            .for_each(|i| area.buffer.set(i, !area.model[i]));
        let mut words = span.words();
        match words.find(|&i| area.buffer.get(i) != !area.model[i]) {
            None => Ok(()),
            Some(i) => {
                let (seen, wrote) = (area.buffer.get(i), !area.model[i]);
                let what = format!("the child saw {seen:#x} in word {i}, and wrote {wrote:#x}");
                Err(area.wrong(i, Some(seen), what))
            }
        }
    });
    if let Err(wrong) = &looked {
        let text = program.explain(index, wrong);
        let text: String = text.lines().map(|l| format!("#   {l}\n")).collect();
        print!("# a forked child, which does not see what its parent does:\n{text}");
    }
    looked.is_ok()
}

/// What this process may hold of the GPU, and what others leave to it.
fn quota(program: &mut Program) -> Done {
    let info = program.gpus[0].info();
    let (gpu, vidmem) = (info.uuid(), info.vidmem_bytes);
    // The least that there may be, of a GPU of less than 5 GiB.
    let least = (vidmem / 8).next_multiple_of(BLOCK);
    let blocks = ((vidmem - least) / BLOCK) as usize;
    let process = program.process.clone();
    match program.below(5) {
        0 | 1 => {
            let max = least + program.below(blocks) as u64 * BLOCK;
            told("a maximum", process.set_quota(gpu, max)?, max)
        }
        2 => told("no maximum", process.set_quota(gpu, u64::MAX)?, u64::MAX),
        3 => {
            let low = program.below(blocks / 2) as u64 * BLOCK;
            told("a low", process.set_low(gpu, low)?, low)
        }
        _ => told("no low", process.set_low(gpu, 0)?, 0),
    }
}

fn told(what: &str, told: u64, asked: u64) -> Done {
    match told == asked {
        true => Ok(()),
        false => Err(Wrong::new(format!(
            "{what} of {asked:#x} was asked for, and {told:#x} is set"
        ))),
    }
}

/// Kernels that come in the same order each time, and touch the same memory while there is that.
fn announce(program: &mut Program, index: u64) -> Done {
    let gpu = program.gpus[0].uuid();
    let first = program.below(KERNELS);
    for n in first..first + 3 {
        let which = n % KERNELS;
        program.process.announce(gpu, which as u64 + 1)?;
        let area = which * program.areas.len() / KERNELS;
        let pages = program.areas[area].model.len() / PAGE_WORDS;
        // A kernel uses the same pages each time: how many of them is by the program, and not by chance.
        let few = program.large_percent() < 100;
        let span = Span {
            first: which,
            count: if few { pages.min(32) } else { pages },
            step: PAGE_WORDS,
        };
        program.gpu_looks(index, area, span)?;
    }
    if program.chance(40) {
        program.process.announce(gpu, 0)?;
    }
    Ok(())
}

/// Pages go to the SSD, to the host or to the GPU, and this waits for that.
fn tier(program: &mut Program, index: u64, area: usize) -> Done {
    let (span, base, length) = program.pages(area);
    let gpu = program.gpus[0].uuid();
    let way = program.below(6);
    let to = [
        "the SSD",
        "the SSD",
        "the SSD",
        "the host",
        "the GPU",
        "the SSD from the GPU",
    ][way];
    program.note(index, area, span, format!("move to {to}"));
    let process = &program.process;
    match way {
        3 => again(|| process.flash_move(base, length, true))?,
        4 => again(|| process.flash_move_to_gpu(base, length, gpu))?,
        5 => {
            process.migrate(base, length, Uuid::CPU)?;
            again(|| process.flash_move(base, length, false))?;
        }
        _ => again(|| process.flash_move(base, length, false))?,
    }
    Ok(())
}

/// Makes a call of the SSD tier, as often as it ends for a signal: this process is stopped while the system sleeps.
fn again<T>(call: impl Fn() -> vgpu_client::Result<T>) -> vgpu_client::Result<T> {
    loop {
        match call() {
            Err(error) if error.errno() == Some(libc::EINTR) => {}
            other => return other,
        }
    }
}

/// A channel fails, and no other one does.
fn channel(program: &mut Program) -> Done {
    let gpu = &program.gpus[0];
    let victim = gpu.new_channel()?;
    let buffer = Buffer::managed(&program.process, PAGE_WORDS)?;
    // The va_block is there before both come for it, of which upstream asserts (docs/fixes.md).
    buffer.set(0, 0);
    stop_channel(gpu, &victim, &buffer).map_err(failed)?;
    program.process.call(&mut UnregisterChannel {
        gpu: gpu.uuid(),
        h_client: gpu.vaspace().h_client,
        h_channel: victim.handle(),
        rm_status: 0,
    })?;
    Ok(gpu.device().destroy(victim.handle())?)
}

/// What UVM allocates next for a block is to be had at a second try, and an eviction of it fails: another one is evicted.
fn block(program: &mut Program, index: u64, area: usize) -> Done {
    let (span, lookup_address, _) = program.pages(area);
    let [page_table_retries, user_pages_retries] = [3, 3].map(|n| program.below(n) as u32);
    let [populate_error, eviction_error] = [50, 30].map(|n| u8::from(program.chance(n)));
    program.note(
        index,
        area,
        span,
        format!(
            "asked UVM to fail: {page_table_retries} {user_pages_retries} {populate_error} {eviction_error}"
        ),
    );
    Ok(program.process.call(&mut VaBlockInjectError {
        lookup_address,
        page_table_retries,
        user_pages_retries,
        populate_error,
        eviction_error,
        ..Default::default()
    })?)
}
