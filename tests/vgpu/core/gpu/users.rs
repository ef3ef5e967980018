// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What users ask of /dev/vgpu: handles, kernels, results.

use super::Error;
use super::Gpu;
use super::UserSpace;
use super::HANDLE_BITS;
use super::HANDLE_MASK;
use crate::emu::machine::Machine;
use crate::emu::machine::Space;
use crate::emu::sm::Launch;
use crate::emu::sm::Owner;
use crate::emu::sm::UserChannel;
use crate::emu::walk::FaultType;
use crate::emu::walk::Miss;
use crate::emu::Outcome;

/// Bounds of `include/uapi/vgpu.h`, per open file.
const MAX_VASPACES: usize = 16;
const MAX_CHANNELS: usize = 16;
/// Of all open files together, and what UVM still holds of closed ones: a replay looks at
/// the warps of each with the mutex held.
const MAX_CHANNELS_ALL: usize = 256;
/// Of these, what others than the administrator have: one of them, and together.
const MAX_CHANNELS_USER: usize = 64;
const MAX_CHANNELS_USERS: usize = 192;

impl<M: Machine> Gpu<M> {
    /// A new handle, with the GPU's number in it.
    fn handle(&mut self) -> Result<u32, Error> {
        // Handles are not used again, so that an old one means nothing.
        if self.next_handle > HANDLE_MASK {
            return Err(Error::Full);
        }
        let h = ((self.config.index + 1) << HANDLE_BITS) | self.next_handle;
        self.next_handle += 1;
        Ok(h)
    }

    /// The GPU's number that a handle was made with.
    pub fn handle_gpu(handle: u32) -> Option<u32> {
        (handle >> HANDLE_BITS).checked_sub(1)
    }

    /// Makes an address space for a client.
    pub fn create_vaspace(&mut self, h_client: u32) -> Result<u32, Error> {
        let held = self
            .user_spaces
            .iter()
            .filter(|u| u.h_client == h_client)
            .count();
        if held >= MAX_VASPACES {
            return Err(Error::Full);
        }
        let h_vaspace = self.handle()?;
        self.user_spaces.push(UserSpace {
            h_client,
            h_vaspace,
        })?;
        Ok(h_vaspace)
    }

    /// Gives a channel, made before, to a client; gives its handle.
    pub fn add_user_channel(
        &mut self,
        mut channel: UserChannel,
        h_client: u32,
        h_vaspace: u32,
        owner: Owner,
    ) -> Result<u32, Error> {
        self.find_vaspace(h_client, h_vaspace)?;
        let count = |which: &dyn Fn(&UserChannel) -> bool| {
            self.hw.users.iter().filter(|u| which(u)).count()
        };
        let is_full = owner != Owner::Admin
            && (count(&|u| u.owner == owner) >= MAX_CHANNELS_USER
                || count(&|u| u.owner != Owner::Admin) >= MAX_CHANNELS_USERS);
        if is_full
            || count(&|u| u.h_client == h_client && u.owned) >= MAX_CHANNELS
            || self.hw.users.len() >= MAX_CHANNELS_ALL
        {
            return Err(Error::Full);
        }
        let h_channel = self.handle()?;
        channel.owner = owner;
        channel.h_client = h_client;
        channel.h_channel = h_channel;
        channel.h_vaspace = h_vaspace;
        self.hw.users.push(channel)?;
        Ok(h_channel)
    }

    /// Gives up an address space or channel.
    pub fn destroy_handle(&mut self, h_client: u32, handle: u32) -> Result<(), Error> {
        if let Ok(i) = self.find_owned(h_client, handle) {
            self.stop_user(i);
            self.hw.users[i].owned = false;
            self.reap(i);
            return Ok(());
        }
        let i = self.find_vaspace(h_client, handle)?;
        if self
            .hw
            .users
            .iter()
            .any(|u| u.owned && u.h_vaspace == handle)
        {
            return Err(Error::Busy);
        }
        self.user_spaces.swap_remove(i);
        Ok(())
    }

    /// Gives up everything of a client.
    pub fn close_client(&mut self, h_client: u32) {
        while let Some(i) = self
            .hw
            .users
            .iter()
            .position(|u| u.h_client == h_client && u.owned)
        {
            self.stop_user(i);
            self.hw.users[i].owned = false;
            self.reap(i);
        }
        while let Some(i) = self.user_spaces.iter().position(|u| u.h_client == h_client) {
            self.user_spaces.swap_remove(i);
        }
    }

    /// Queues a kernel; gives its fence.
    pub fn submit(&mut self, h_client: u32, h_channel: u32, launch: Launch) -> Result<u64, Error> {
        let i = self.find_owned(h_client, h_channel)?;
        let u = &mut self.hw.users[i];
        if u.stopped {
            return Err(Error::Stopped);
        }
        if u.bound.is_none() {
            return Err(Error::NotBound);
        }
        if launch.end() > self.hw.chip.mmu.va_end() {
            return Err(Error::Invalid);
        }
        u.submit(launch)
    }

    /// A kernel's result; `None` while it is unfinished.
    pub fn result(
        &self,
        h_client: u32,
        h_channel: u32,
        fence: u64,
    ) -> Result<Option<Outcome>, Error> {
        let i = self.find_owned(h_client, h_channel)?;
        self.hw.users[i].result(fence)
    }

    /// Walks a user's page tables: aperture (0 none, 1 vidmem, 2 system memory, 3 a
    /// peer's vidmem), bytes of the page, permissions as in the interface, and fault type.
    pub fn translate(
        &self,
        h_client: u32,
        h_vaspace: u32,
        va: u64,
    ) -> Result<(u32, u64, u32, u32), Error> {
        self.find_vaspace(h_client, h_vaspace)?;
        if va >= self.hw.chip.mmu.va_end() {
            return Err(Error::Invalid);
        }
        let none = |fault| Ok((0, 0, 0, fault));
        let Some(space) = self
            .hw
            .spaces
            .iter()
            .find(|s| s.h_vaspace == Some(h_vaspace))
        else {
            return none(FaultType::InvalidPde as u32);
        };
        match space.page(&self.hw.m, va) {
            Ok(page) => {
                let aperture = match page.base.space {
                    Space::Vidmem => 1,
                    Space::Sysmem => 2,
                    Space::Buffer(_) => 3,
                };
                let may_write = u32::from(page.writable) << 1;
                let may_atomic = u32::from(page.writable && page.atomic) << 2;
                Ok((aperture, page.bytes, 1 | may_write | may_atomic, u32::MAX))
            }
            Err(Miss::Fault(f)) => none(f as u32),
            Err(_) => none(FaultType::InvalidPte as u32),
        }
    }

    fn find_vaspace(&self, h_client: u32, h_vaspace: u32) -> Result<usize, Error> {
        let ours = |u: &UserSpace| u.h_client == h_client && u.h_vaspace == h_vaspace;
        self.user_spaces
            .iter()
            .position(ours)
            .ok_or(Error::NotFound)
    }

    fn find_owned(&self, h_client: u32, h_channel: u32) -> Result<usize, Error> {
        let ours = |u: &UserChannel| u.h_client == h_client && u.h_channel == h_channel && u.owned;
        self.hw.users.iter().position(ours).ok_or(Error::NotFound)
    }

    /// What is left that should have gone: channels, address spaces, vidmem bytes, peers.
    pub fn leaks(&self) -> (usize, usize, u64, usize) {
        (
            self.channels.len(),
            self.hw.spaces.len(),
            self.pma.allocated(),
            self.hw.peers.count(),
        )
    }
}
