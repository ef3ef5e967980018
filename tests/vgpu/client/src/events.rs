// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! UVM's tools events: what moved, where and why, on any nvidia-uvm.ko.

use std::fs::File;
use std::io;
use std::mem::offset_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::facts::{Fact, Facts};
use crate::ffi::{self, Mapping};
use crate::gpu::check;
use crate::layout::read;
use crate::process::open_uvm;
use crate::uvm::{self, GpuFaultEvent, MigrationEvent, Params, Uuid};
use crate::{Error, NvStatus, Process, Result, BLOCK};

/// Why pages moved: UvmEventMigrationCause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A call asked for it: UVM_MIGRATE, or a change of policy.
    User,
    /// An access of a CPU or a GPU faulted.
    Coherence,
    /// The tree prefetcher brought them along with faulted pages.
    Prefetch,
    /// The GPU had no room for others.
    Eviction,
    /// An access counter said that the GPU uses them much.
    AccessCounter,
    /// A cause that this crate does not know, by its number.
    Other(u8),
}

impl Cause {
    fn from_raw(raw: u8) -> Self {
        match raw {
            1 => Self::User,
            2 => Self::Coherence,
            3 => Self::Prefetch,
            4 => Self::Eviction,
            5 => Self::AccessCounter,
            other => Self::Other(other),
        }
    }
}

/// One event. Processor 0 is the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// UVM copied pages from one processor to another.
    Migration {
        /// Why UVM moved them.
        cause: Cause,
        /// The processor that had the pages.
        from: u16,
        /// The processor that has the pages now.
        to: u16,
        /// Address of the first byte that moved.
        address: u64,
        /// How many bytes moved, from there on.
        bytes: u64,
    },
    /// UVM took a fault off the buffer.
    GpuFault {
        /// The address that the GPU accessed.
        address: u64,
        /// Number of the batch in which the GPU's fault was taken.
        batch: u32,
    },
    /// A GPU's faults were replayed.
    Replay,
    /// A fault ended an access.
    FatalFault,
    /// UVM found pages going to and fro.
    Thrashing,
    /// Pages were mapped where they are instead of being moved.
    MapRemote,
    /// A kind that this crate does not read, by its `UvmEventType`.
    Other(u8),
}

const MIGRATION: u8 = 2;
const GPU_FAULT: u8 = 3;
const REPLAY: u8 = 4;
const FATAL_FAULT: u8 = 6;
const THRASHING: u8 = 10;
const MAP_REMOTE: u8 = 13;

/// Words of the shared control page, `UvmToolsEventControlData`.
const GET_AHEAD: usize = 0;
const GET_BEHIND: usize = 1;
const PUT_BEHIND: usize = 3;

/// A queue of the events of one process.
///
/// UVM writes to the two mappings for as long as `tools` is open, so they are
/// declared after it and go after it.
#[derive(Debug)]
pub struct EventQueue {
    tools: File,
    process: Process,
    entries: Mapping,
    control: Mapping,
    capacity: u32,
}

impl EventQueue {
    /// A queue for `capacity` events (a power of two) of migrations, faults,
    /// replays, fatal faults, thrashing and remote mappings.
    pub fn new(process: &Process, capacity: u32) -> Result<Self> {
        let kinds = [
            MIGRATION,
            GPU_FAULT,
            REPLAY,
            FATAL_FAULT,
            THRASHING,
            MAP_REMOTE,
        ];
        Self::of(process, capacity, &kinds)
    }

    /// The same of thrashing alone: a throttled GPU faults again at every replay,
    /// and nobody can say how often that is.
    pub fn of_thrashing(process: &Process, capacity: u32) -> Result<Self> {
        Self::of(process, capacity, &[THRASHING])
    }

    /// A queue of no events, whose entries are in the first `part` bytes of `file`, again and again.
    pub fn in_file(
        process: &Process,
        capacity: u32,
        file: BorrowedFd<'_>,
        part: u64,
    ) -> Result<Self> {
        let pages = pages_for(capacity as usize * uvm::EVENT_SIZE);
        let entries = Mapping::repeated(file, part as usize, pages);
        Self::within(process, capacity, entries, &[])
    }

    fn of(process: &Process, capacity: u32, kinds: &[u8]) -> Result<Self> {
        let pages = pages_for(capacity as usize * uvm::EVENT_SIZE);
        Self::within(process, capacity, Mapping::anonymous(0, pages), kinds)
    }

    fn within(
        process: &Process,
        capacity: u32,
        entries: io::Result<Mapping>,
        kinds: &[u8],
    ) -> Result<Self> {
        let tools = open_uvm(1)?;
        let made = |e| Error::os("mmap of an event queue", e);
        let entries = entries.map_err(made)?;
        let pages = pages_for(size_of::<uvm::EventControl>());
        let control = Mapping::anonymous(0, pages).map_err(made)?;
        start(&tools, process, &entries, capacity, &control)?;

        let flags = kinds.iter().fold(0, |flags, kind| flags | (1u64 << kind));
        let mut enable = uvm::EnableEvents {
            flags,
            rm_status: 0,
        };
        ffi::uvm_ioctl(tools.as_fd(), uvm::EnableEvents::NUMBER, &mut enable)
            .map_err(|e| Error::os(uvm::EnableEvents::NAME, e))?;
        check(uvm::EnableEvents::NAME, enable.status())?;
        Ok(Self {
            tools,
            process: process.clone(),
            entries,
            control,
            capacity,
        })
    }

    fn end(&self, which: usize) -> &AtomicU32 {
        &self.control.half_words()[which]
    }

    /// Everything that happened before this call and was not taken yet, with the
    /// replays of `gpu`. Fails if the queue was too small and events were lost.
    pub fn take(&self, gpu: Uuid) -> Result<Vec<Event>> {
        self.process
            .call(&mut uvm::FlushReplayEvents { gpu, rm_status: 0 })?;
        let mask = self.capacity - 1;
        let put = self.end(PUT_BEHIND).load(Ordering::Acquire) & mask;
        let mut get = self.end(GET_BEHIND).load(Ordering::Relaxed) & mask;
        let mut events = Vec::new();
        while get != put {
            let mut words = [0; uvm::EVENT_SIZE / 8];
            self.entries
                .copy_words(get as usize * words.len(), &mut words);
            events.push(decode(&words));
            get = (get + 1) & mask;
        }
        self.end(GET_AHEAD).store(get, Ordering::Relaxed);
        self.end(GET_BEHIND).store(get, Ordering::Release);

        let dropped = if tools_v2() {
            offset_of!(uvm::PlainEventControl, dropped)
        } else {
            offset_of!(uvm::EventControl, dropped)
        } / 8;
        let lost: u64 = (self.control.words()[dropped..][..64].iter())
            .map(|n| n.load(Ordering::Relaxed))
            .sum();
        if lost > 0 {
            let capacity = self.capacity;
            return Err(Error::Missing(format!(
                "{lost} events lost: give more than {capacity}"
            )));
        }
        Ok(events)
    }

    /// The tools file, which a program may poll.
    pub fn tools_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.tools.as_fd()
    }
}

fn pages_for(bytes: usize) -> usize {
    bytes.next_multiple_of(crate::PAGE as usize)
}

/// Are queues of the second version a call of their own?
fn tools_v2() -> bool {
    Facts::loaded().has(Fact::ToolsV2)
}

/// Starts a queue of the second version: `entries` and `control` are UVM's to write to for as
/// long as `tools` is open.
fn start(
    tools: &File,
    process: &Process,
    entries: &Mapping,
    capacity: u32,
    control: &Mapping,
) -> Result<()> {
    let queue_buffer = entries.address() as u64;
    let queue_buffer_size = u64::from(capacity);
    let control_buffer = control.address() as u64;
    let uvm_fd = process.uvm_fd().as_raw_fd() as u32;
    let (name, made, status) = if tools_v2() {
        let mut params = uvm::InitEventTrackerV2 {
            queue_buffer,
            queue_buffer_size,
            control_buffer,
            uvm_fd,
            ..Default::default()
        };
        let (name, number) = uvm::InitEventTrackerV2::LAYOUT.number;
        let made = ffi::uvm_ioctl(tools.as_fd(), number, &mut params);
        (name, made, params.rm_status)
    } else {
        let mut params = uvm::InitEventTracker {
            queue_buffer,
            queue_buffer_size,
            control_buffer,
            uvm_fd,
            requested_version: 2,
            ..Default::default()
        };
        let (name, number) = uvm::InitEventTracker::LAYOUT.number;
        let made = ffi::uvm_ioctl(tools.as_fd(), number, &mut params);
        (name, made, params.rm_status)
    };
    made.map_err(|e| Error::os(name, e))?;
    check(name, NvStatus(status))
}

/// What is still to be told is told before the queue goes: upstream's work item
/// leaks a remote mapping that nobody wants to hear of any more, and asserts
/// (docs/fixes.md). Drop the buffers first, which waits for what is in flight.
impl Drop for EventQueue {
    fn drop(&mut self) {
        // A refusal leaves it as it was: the queue ends early.
        let _ = self.process.call(&mut uvm::FlushEvents::default());
    }
}

fn decode(words: &[u64; uvm::EVENT_SIZE / 8]) -> Event {
    let bytes: &[u8] = bytemuck::cast_slice(words);
    match bytes[0] {
        MIGRATION => {
            let e: MigrationEvent = read(bytes);
            Event::Migration {
                cause: Cause::from_raw(e.cause),
                from: e.source,
                to: e.destination,
                address: e.address,
                bytes: e.bytes,
            }
        }
        GPU_FAULT => {
            let e: GpuFaultEvent = read(bytes);
            Event::GpuFault {
                address: e.address,
                batch: e.batch,
            }
        }
        REPLAY => Event::Replay,
        FATAL_FAULT => Event::FatalFault,
        THRASHING => Event::Thrashing,
        MAP_REMOTE => Event::MapRemote,
        other => Event::Other(other),
    }
}

/// Sums over events, the same on every driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventCounts {
    /// Bytes from the CPU to a GPU.
    pub h2d_bytes: u64,
    /// Bytes from a GPU to the CPU.
    pub d2h_bytes: u64,
    /// Of the bytes moved to the host, those moved because room was needed.
    pub evicted_bytes: u64,
    /// 2 MiB chunks whose pages were moved out for room.
    pub evictions: u64,
    /// Faults taken off the buffer.
    pub gpu_faults: u64,
    /// Replays that UVM sent to GPUs.
    pub replays: u64,
    /// Faults that ended an access.
    pub fatal_faults: u64,
    /// Times UVM found pages going to and fro.
    pub thrashing: u64,
    /// Times UVM mapped pages where they are instead of moving them.
    pub remote_maps: u64,
}

impl EventCounts {
    /// Adds events, in the order they came.
    ///
    /// UVM has no event for an eviction, only for the copies it makes; the copies
    /// of one chunk come one after another, and lie in one va_block.
    pub fn add(&mut self, events: &[Event]) {
        let mut evicting = None;
        for event in events {
            match *event {
                Event::Migration {
                    cause,
                    from,
                    to,
                    address,
                    bytes,
                } => {
                    if from == 0 && to != 0 {
                        self.h2d_bytes += bytes;
                    } else if from != 0 && to == 0 {
                        self.d2h_bytes += bytes;
                    }
                    if cause != Cause::Eviction {
                        continue;
                    }
                    self.evicted_bytes += bytes;
                    let block = address / BLOCK;
                    // Pages of a block come in rising order, so going back is
                    // another eviction of the same block.
                    if !evicting.is_some_and(|(b, last)| b == block && address > last) {
                        self.evictions += 1;
                    }
                    evicting = Some((block, address));
                }
                Event::GpuFault { .. } => self.gpu_faults += 1,
                Event::Replay => self.replays += 1,
                Event::FatalFault => self.fatal_faults += 1,
                Event::Thrashing => self.thrashing += 1,
                Event::MapRemote => self.remote_maps += 1,
                Event::Other(_) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evict(address: u64, bytes: u64) -> Event {
        Event::Migration {
            cause: Cause::Eviction,
            from: 1,
            to: 0,
            address,
            bytes,
        }
    }

    #[test]
    fn copies_of_one_chunk_are_one_eviction() {
        let mut counts = EventCounts::default();
        let b = 10 * BLOCK;
        counts.add(&[
            evict(b, 4096),
            evict(b + 8192, 4096),
            evict(b + BLOCK, BLOCK),
            Event::GpuFault {
                address: b,
                batch: 0,
            },
            evict(b, 4096),
            evict(b, 4096),
        ]);
        assert_eq!((counts.evictions, counts.gpu_faults), (4, 1));
        assert_eq!(counts.evicted_bytes, BLOCK + 4 * 4096);
        assert_eq!(
            (counts.h2d_bytes, counts.d2h_bytes),
            (0, counts.evicted_bytes)
        );
    }

    #[test]
    fn entries_decode() {
        let raw = MigrationEvent {
            event_type: MIGRATION,
            cause: 3,
            destination: 1,
            address: 0x2000,
            bytes: 4096,
            ..Default::default()
        };
        let mut words = [0; 9];
        words[0] = u64::from(raw.event_type) | u64::from(raw.cause) << 8 | 1 << 48;
        words[2] = raw.address;
        words[3] = raw.bytes;
        let (cause, from, to) = (Cause::Prefetch, 0, 1);
        assert_eq!(
            decode(&words),
            Event::Migration {
                cause,
                from,
                to,
                address: 0x2000,
                bytes: 4096
            }
        );
        words[0] = 99;
        assert_eq!(decode(&words), Event::Other(99));
    }
}
