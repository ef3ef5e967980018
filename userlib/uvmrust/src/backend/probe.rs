// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Looking for UVM's descriptor, and asking the driver behind it what it can do.

use std::sync::atomic::Ordering::Relaxed;

use super::calls::batch;
use super::{Choice, Uvm};
use crate::cuda::Cuda;
use crate::sys::Sys;
use crate::uapi::{self, Announce, Migrate, NativeDiscard, Version};
use crate::{fd, Backend, Result};

impl<S: Sys> Uvm<S> {
    /// Looks for who discards, and keeps what an initialised descriptor says.
    pub(super) fn probe(&self) -> Result<Choice> {
        let none = Choice {
            backend: Backend::None,
            fd: -1,
            native: false,
        };
        if self.not_forked().is_err() {
            return Ok(none);
        }
        let ready = self.cuda_is_ready();
        let ours = ready || self.given_here.load(Relaxed);
        let _guard = self.probing();
        let found = match ours {
            true => self.find(|fd| self.backend_of(fd)).0,
            false => None,
        };
        let mut choice = found.unwrap_or(none);
        let cuda_can = ready && self.sys.cuda().is_some_and(Cuda::can_discard);
        if choice.backend == Backend::None && cuda_can {
            choice.backend = Backend::Cuda;
        }
        // Without an initialised descriptor, CUDA may be about to have one: look again.
        let word = match found {
            Some(_) => choice.pack(self.sys.forks()),
            None => Choice::UNKNOWN,
        };
        self.choice.store(word, Relaxed);
        Ok(choice)
    }

    /// Shows `accept` the given descriptor, or all that are there, but for those of other
    /// processes. Also gives whether there was any.
    fn find<T>(&self, mut accept: impl FnMut(i32) -> Option<T>) -> (Option<T>, bool) {
        let mut accept = |fd| match self.sys.foreign(fd) {
            true => None,
            false => accept(fd),
        };
        let given = self.given.load(Relaxed);
        if given >= 0 {
            return (accept(given), true);
        }
        let Some(major) = self.sys.uvm_major() else {
            return (None, false);
        };
        self.major.store(major.into(), Relaxed);
        fd::find(&self.sys, major, accept)
    }

    /// Shows `accept` the descriptors of UVM that are this process's, until it takes one.
    pub(crate) fn own_descriptor<T>(&self, accept: impl FnMut(i32) -> Option<T>) -> Option<T> {
        self.not_forked().ok()?;
        self.find(accept).0
    }

    /// What the driver behind an initialised descriptor can do, none of it included:
    /// then it is good for prefetches. The questions change nothing.
    fn backend_of(&self, fd: i32) -> Option<Choice> {
        let features = self.features(fd)?;
        if features & uapi::FEATURE_DISCARD != 0 {
            // A batch of nothing fails only where UVM is not initialised.
            let mut nothing = batch(&[], 0);
            if self.call(fd, uapi::DISCARD_BATCH, &mut nothing).is_ok() {
                return Some(Choice {
                    backend: Backend::UvmRust,
                    fd,
                    native: features & uapi::FEATURE_NATIVE_DISCARD != 0,
                });
            }
        }
        // An empty range with flags that do not exist is refused by who knows the
        // call, and by another error where UVM is not initialised.
        let mut refused = NativeDiscard {
            flags: u64::MAX,
            ..NativeDiscard::default()
        };
        let asked = self.roomy_call(fd, uapi::UVM_DISCARD, &mut refused);
        let backend = match (asked, refused.status) {
            (Ok(()), uapi::NV_ERR_INVALID_ARGUMENT | uapi::NV_ERR_INVALID_ADDRESS) => {
                Backend::Native
            }
            (Ok(()), uapi::NV_ERR_ILLEGAL_ACTION) | (Err(libc::EAGAIN), _) => return None,
            _ => Backend::None,
        };
        // Every driver migrates, and refuses an empty range once it is initialised.
        let mut nothing = Migrate::default();
        let asked = self.roomy_call(fd, uapi::UVM_MIGRATE, &mut nothing);
        (asked.is_ok() && nothing.status == uapi::NV_ERR_INVALID_ADDRESS).then_some(Choice {
            backend,
            fd,
            native: backend == Backend::Native,
        })
    }

    /// What our driver says it has; 0 of another. `None`: it gives no answer now.
    pub(super) fn features(&self, fd: i32) -> Option<u64> {
        let mut version = Version {
            size: size_of::<Version>() as u32,
            ..Version::default()
        };
        match self.call(fd, uapi::GET_VERSION, &mut version) {
            Ok(()) => Some(version.features),
            Err(libc::EAGAIN) => None,
            Err(_) => Some(0),
        }
    }

    /// Looks for a descriptor that takes execution IDs.
    pub(super) fn probe_announcer(&self) {
        if self.not_forked().is_err() || !self.may_be_ours() {
            return;
        }
        let _guard = self.probing();
        // Whether a descriptor may take announcements later.
        let mut later = false;
        let (found, any) = self.find(|fd| {
            let features = self.features(fd);
            if features.is_some_and(|f| f & uapi::FEATURE_EXEC_ID == 0) {
                return None;
            }
            // No GPU has the UUID 0; where UVM is not initialised the error differs.
            let mut nobody = Announce {
                size: size_of::<Announce>() as u32,
                exec_id: 1,
                ..Announce::default()
            };
            let answer = self.call(fd, uapi::ANNOUNCE, &mut nobody);
            later |= answer != Err(libc::ENODEV);
            (answer == Err(libc::ENODEV)).then_some(fd)
        });
        let word = match found {
            Some(fd) => fd as u64 + 2,
            None => (any && !later).into(),
        };
        let forks = u64::from(self.sys.forks());
        self.announcer.store(word | forks << 32, Relaxed);
    }
}
