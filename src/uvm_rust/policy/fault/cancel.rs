// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Cancelling faults: exactly the fatal ones, or all of a batch.

use super::decide::Flush;
use super::service::{Call, Entered, Entering, Machine, Prepared, Served};

/// What of a fault's accesses is cancelled, on a GPU that cancels by address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelAs<E> {
    /// None of them is. The page may be had by now, and the fault comes back with the replay if not.
    Nothing,
    /// Those accesses to the page which its service found to be fatal (all of them, or those that write), for the reason that
    /// it found.
    Found,
    /// All accesses to the page, for this reason.
    All(E),
}

/// How a fault is cancelled that is `fatal`, by its type or as its service found, where the others are cancelled for `reason`
/// or not at all. A fatal one is cancelled for its own reason: that is what tools are told, and a read beside a write that is not
/// allowed goes on.
pub fn cancels_as<E>(fatal: bool, reason: Option<E>) -> CancelAs<E> {
    match (fatal, reason) {
        (true, _) => CancelAs::Found,
        (false, Some(reason)) => CancelAs::All(reason),
        (false, None) => CancelAs::Nothing,
    }
}

/// Whether what a channel does is cancelled where its fault came from, and not on all of the GPU. It is on a GPU that is
/// `partitioned` (MIG), whose other partitions belong to others.
pub fn cancels_where_it_came_from(partitioned: bool) -> bool {
    partitioned
}

impl<M: Machine> Call<'_, M> {
    /// Cancels the fatal faults of a VA space in which some were seen, and services
    /// the rest of its faults. Those of other VA spaces come back with the replay.
    pub(super) fn cancel_fatal(&mut self, space: u64) -> Result<(), M::Error> {
        if !self.params.cancels_by_address {
            self.machine.cancel_utlbs(None)?;
            self.replayed();
            return Ok(());
        }
        let entered = self.machine.enter(space, Entering::Again);
        // Where others have the locks, the fatal faults come back, and are found once more (F-busy).
        if entered != Entered::Busy {
            let result = self.cancel_in(space, entered == Entered::Registered);
            self.machine.leave();
            result?;
        }
        // For the faults that were serviced or not looked at; and what was cancelled
        // may have left duplicates behind.
        self.flush(Flush::UpdatePut)
    }

    /// Under the locks of the VA space, so that nothing can mend a fault between its
    /// coming back and its end (F-stale).
    fn cancel_in(&mut self, space: u64, registered: bool) -> Result<(), M::Error> {
        self.flush(Flush::WaitUpdatePut)?;
        self.machine.wait_replays(true)?;
        if !registered {
            // Unregistering preempts all channels, so the faults were stale.
            return Ok(());
        }
        self.fetch(true)?;
        if self.batch.entries() == 0 {
            return Ok(());
        }
        self.machine.begin();
        if let Prepared::Flushed = self.prepare()? {
            return Ok(());
        }
        let records = self.batch.records();
        let first = records.partition_point(|r| r.who < space);
        let end = records.partition_point(|r| r.who <= space);
        let mut at = first;
        while at < end {
            let fatal = self.batch.records().get(at).is_some_and(|r| r.fatal != 0);
            let mut n = 1;
            if !fatal {
                // Servicing finds out which ones are fatal.
                match self.serve(at, false, false) {
                    Ok(Served::Faults { faults, .. }) => {
                        n = (faults.max(1) as usize).min(end - at);
                    }
                    // The locks would have to be let go: start over after the flush.
                    Ok(Served::Again | Served::AgainInPlace) => break,
                    // What is left is the VA space's own, the fatal faults among it (F-own).
                    Err(e) if self.machine.is_its_own(e) => {
                        self.machine.invalidate()?;
                        return self.machine.cancel(at as u32, (end - at) as u32, Some(e));
                    }
                    Err(e) => return Err(e),
                }
                // Lest fatal faults stay behind others to the same TLB line.
                self.machine.invalidate()?;
            }
            self.machine.cancel(at as u32, n as u32, None)?;
            at += n;
        }
        Ok(())
    }

    /// Cancels the faults of the VA space that was entered, fatal or not, for an error that is its own (F-own). Gives the place
    /// behind them. It does so before the locks are given back: whoever waits for them would have them next, and
    /// the faults would come back, to be refused anew.
    pub(super) fn cancel_refused(
        &mut self,
        space: u64,
        reason: M::Error,
    ) -> Result<usize, M::Error> {
        let first = self.batch.records().partition_point(|r| r.who < space);
        let n = self.faults_from(first, space);
        self.refused = true;
        self.machine.invalidate()?;
        self.machine.cancel(first as u32, n as u32, Some(reason))?;
        Ok(first + n)
    }

    /// Cancels `n` faults from `first`, of this VA space, fatal or not.
    fn cancel_those(
        &mut self,
        first: usize,
        n: usize,
        space: u64,
        reason: M::Error,
    ) -> Result<(), M::Error> {
        let result = match self.machine.enter(space, Entering::Cancel) {
            Entered::Registered => self.machine.cancel(first as u32, n as u32, Some(reason)),
            // Without a registered GPU the page directory may be another's by now.
            Entered::Unregistered => Ok(()),
            // They come back, and are serviced or fail anew.
            Entered::Busy => return Ok(()),
        };
        self.machine.leave();
        result
    }

    /// Cancels all faults of the batch, fatal or not, for an error that is nobody's
    /// (memory ran out, a GPU failed). Does what it can.
    pub(super) fn cancel_all(&mut self, reason: M::Error) {
        if !self.params.cancels_by_address {
            // F-replay holds by the replay at the end of the call.
            let _ = self.machine.cancel_utlbs(Some(reason));
            return;
        }
        let mut at = 0;
        while let Some(space) = self.whose(at) {
            let n = self.faults_from(at, space);
            if self.cancel_those(at, n, space, reason).is_err() {
                break;
            }
            at += n;
        }
        // Each cancel is a replay too: discard the duplicates that it brought.
        let _ = self.flush(Flush::UpdatePut);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fatal_fault_is_cancelled_for_its_own_reason_and_others_for_that_of_all() {
        assert_eq!(cancels_as(true, None::<u32>), CancelAs::Found);
        assert_eq!(cancels_as(true, Some(7)), CancelAs::Found);
        assert_eq!(cancels_as(false, Some(7)), CancelAs::All(7));
        assert_eq!(cancels_as(false, None::<u32>), CancelAs::Nothing);
    }

    #[test]
    fn on_a_partition_a_channel_is_cancelled_where_its_fault_came_from() {
        assert!(cancels_where_it_came_from(true));
        assert!(!cancels_where_it_came_from(false));
    }
}
