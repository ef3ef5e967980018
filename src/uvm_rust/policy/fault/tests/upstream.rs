// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Upstream's loop in so many words: one batch after the other, coalescing only with
//! the last fault of the µTLB and the last of all, sorting by a stable sort, replay at
//! the end if none was sent. What ours is compared with.

use super::super::*;
use super::world::World;
use std::vec;
use std::vec::Vec;

pub struct Upstream {
    pub params: Params,
    records: Vec<Record>,
    into: Vec<u32>,
    replays: u32,
}

impl Upstream {
    pub fn new(params: Params) -> Self {
        Self {
            params,
            records: Vec::new(),
            into: Vec::new(),
            replays: 0,
        }
    }

    pub fn run(&mut self, w: &mut World) -> Result<(), u32> {
        self.replays = 0;
        let result = self.batches(w);
        if self.replays == 0 || (result.is_ok() && self.params.policy == ReplayPolicy::Once) {
            w.replay(false)?;
        }
        result
    }

    fn batches(&mut self, w: &mut World) -> Result<(), u32> {
        for _ in 0..self.params.max_batches {
            self.fetch(w, self.params.max_batch, true)?;
            if self.into.is_empty() {
                break;
            }
            w.begin();
            if !self.translate(w)? {
                self.replays += 1;
                continue;
            }
            if let Err(e) = self.service(w) {
                self.cancel_all(w, e)?;
                return Err(e);
            }
            let outcome = w.outcome();
            if let Some(space) = outcome.fatal {
                self.cancel(w, space)?;
                continue;
            }
            match flush_after_batch(&self.params, self.into.len(), outcome.duplicates) {
                AfterBatch::GoOn => {}
                AfterBatch::Replay => self.replay(w)?,
                AfterBatch::Flush(how) => {
                    w.flush(how)?;
                    self.replays += 1;
                }
            }
        }
        Ok(())
    }

    fn replay(&mut self, w: &mut World) -> Result<(), u32> {
        self.replays += 1;
        w.replay(false)
    }

    fn fetch(&mut self, w: &mut World, most: u32, stop: bool) -> Result<(), u32> {
        self.records.clear();
        self.into.clear();
        let mut last_of_utlb: Vec<Option<usize>> = vec![None; self.params.utlbs as usize];
        let (mut get, put) = w.ring();
        while get != put && (self.into.len() as u32) < most {
            let mut one = [Record::default()];
            let entry = self.into.len() as u32;
            if w.fetch(get, 1, entry, &mut one)? == 0 {
                if stop && entry > 0 {
                    break;
                }
                w.wait_for(get)?;
                continue;
            }
            get = (get + 1) % self.params.ring;
            let new = one[0];
            self.into.push(entry);
            let same = |r: &Record| {
                new.fatal == 0
                    && r.fatal == 0
                    && (r.who, r.address) == (new.who, new.address)
                    && self.params.coalesce
            };
            let of_utlb = last_of_utlb[usize::from(new.utlb)];
            let last = self.records.len().checked_sub(1);
            let to =
                of_utlb.filter(|i| same(&self.records[*i])).or(last
                    .filter(|i| same(&self.records[*i]) && new.access <= self.records[*i].access));
            match to {
                Some(i) => {
                    let old = &mut self.records[i];
                    let (stands, gone) = if new.access > old.access {
                        (new, old.entry)
                    } else {
                        (*old, entry)
                    };
                    self.into[gone as usize] = stands.entry;
                    *old = Record {
                        instances: old.instances + 1,
                        accesses: old.accesses | new.accesses,
                        ..stands
                    };
                }
                None => {
                    last_of_utlb[usize::from(new.utlb)] = Some(self.records.len());
                    self.records.push(new);
                }
            }
        }
        w.set_get(get);
        Ok(())
    }

    /// False if the ring was flushed for a stale fault.
    fn translate(&mut self, w: &mut World) -> Result<bool, u32> {
        for record in &mut self.records {
            match w.translate(record.entry) {
                Translated::Space(space) => record.who = space,
                Translated::Stale => {
                    w.flush(Flush::UpdatePut)?;
                    return Ok(false);
                }
                Translated::NoSubcontext => {
                    w.cancel_channel(record.entry)?;
                    w.flush(Flush::UpdatePut)?;
                    return Ok(false);
                }
            }
        }
        self.records
            .sort_by_key(|r| (r.who, r.address, 7 - r.access));
        w.publish(&self.records, &self.into);
        Ok(true)
    }

    fn service(&mut self, w: &mut World) -> Result<(), u32> {
        let mut at = 0;
        while let Some(record) = self.records.get(at).copied() {
            let registered = w.enter(record.who, Entering::Service) == Entered::Registered;
            let n = if record.fatal != 0 {
                w.found_fatal(at as u32);
                Ok(1)
            } else if registered {
                let (first, mut looked) = (at as u32, Looked::default());
                w.service(first, record.address, false, false, &mut looked)
                    .map(|s| match s {
                        Served::Faults { faults, fatal } => {
                            if self.params.policy == ReplayPolicy::Block && !fatal {
                                w.replay(false).unwrap();
                                self.replays += 1;
                            }
                            faults
                        }
                        _ => 0,
                    })
            } else {
                Ok(1)
            };
            w.leave();
            at += n? as usize;
        }
        Ok(())
    }

    fn cancel(&mut self, w: &mut World, space: u64) -> Result<(), u32> {
        let registered = w.enter(space, Entering::Again) == Entered::Registered;
        w.flush(Flush::WaitUpdatePut)?;
        w.wait_replays(true)?;
        if registered {
            self.fetch(w, self.params.ring, false)?;
            w.begin();
            if !self.into.is_empty() && self.translate(w)? {
                let mut at = 0;
                while let Some(record) = self.records.get(at).copied() {
                    let mut n = 1;
                    if record.who == space {
                        if record.fatal == 0 {
                            let (at, mut looked) = (at as u32, Looked::default());
                            match w.service(at, record.address, false, false, &mut looked)? {
                                Served::Faults { faults, .. } => n = faults,
                                _ => break,
                            }
                        }
                        w.cancel(at as u32, n, None)?;
                    }
                    at += n as usize;
                }
            }
        }
        w.leave();
        w.flush(Flush::UpdatePut)?;
        self.replays += 1;
        Ok(())
    }

    fn cancel_all(&mut self, w: &mut World, reason: u32) -> Result<(), u32> {
        for (at, record) in self.records.iter().enumerate() {
            if w.enter(record.who, Entering::Cancel) == Entered::Registered {
                w.cancel(at as u32, 1, Some(reason))?;
            }
            w.leave();
        }
        w.flush(Flush::UpdatePut)
    }
}
