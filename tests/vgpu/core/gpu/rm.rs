// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What UVM asks of RM: address spaces, buffers, channels, faults and counters.

use super::Error;
use super::Gpu;
use super::UserSpace;
use crate::emu::channel::Channel;
use crate::emu::machine::Loc;
use crate::emu::machine::Machine;
use crate::emu::machine::Slot;
use crate::emu::space::AddressSpace;
use crate::emu::walk::Pdb;
use crate::emu::ChannelId;
use crate::emu::ChannelPlace;
use crate::emu::SpaceId;

impl<M: Machine> Gpu<M> {
    /// Makes UVM's own address space.
    pub fn create_space(&mut self) -> Result<SpaceId, Error> {
        self.add_space(None)
    }

    /// Makes UVM's view of a user's address space.
    pub fn dup_space(&mut self, h_client: u32, h_vaspace: u32) -> Result<SpaceId, Error> {
        let user = |u: &UserSpace| u.h_client == h_client && u.h_vaspace == h_vaspace;
        if !self.user_spaces.iter().any(user) {
            return Err(Error::NotFound);
        }
        if self
            .hw
            .spaces
            .iter()
            .any(|s| s.h_vaspace == Some(h_vaspace))
        {
            return Err(Error::Busy);
        }
        self.add_space(Some(h_vaspace))
    }

    fn add_space(&mut self, h_vaspace: Option<u32>) -> Result<SpaceId, Error> {
        let id = SpaceId(self.next_space);
        let space = AddressSpace::new(id, h_vaspace, self.hw.chip);
        self.hw.spaces.push(space)?;
        self.next_space += 1;
        Ok(id)
    }

    /// Destroys an address space, with the buffers left in it.
    pub fn destroy_space(&mut self, id: SpaceId) -> Result<(), Error> {
        let i = self.hw.find_space(id)?;
        self.hw.all_arrive();
        for u in self.hw.users.iter_mut().filter(|u| u.bound == Some(id)) {
            // UVM releases channels first; see that none is left to use it.
            u.stop(&mut self.hw.stats);
            self.hw.finished = true;
            u.bound = None;
        }
        while let Some(slot) = self.hw.spaces[i].take_buffer() {
            self.hw.m.report(format_args!(
                "vgpu{}: address space {} destroyed with memory in it",
                self.hw.index, id.0
            ));
            self.hw.m.free(slot);
        }
        self.hw.spaces.swap_remove(i);
        self.hw.forget_translations(id);
        Ok(())
    }

    /// Sets the root of a space's page tables.
    pub fn set_pdb(&mut self, id: SpaceId, at: u64, vidmem: bool) -> Result<(), Error> {
        let i = self.hw.find_space(id)?;
        self.hw.spaces[i].pdb = Some(Pdb { at, vidmem });
        Ok(())
    }

    /// Takes the page tables away. All translations go.
    pub fn unset_pdb(&mut self, id: SpaceId) -> Result<(), Error> {
        let i = self.hw.find_space(id)?;
        self.hw.spaces[i].pdb = None;
        self.hw.forget_translations(id);
        Ok(())
    }

    /// Gives UVM memory at an address of its own space: address and buffer.
    pub fn alloc_buffer(
        &mut self,
        id: SpaceId,
        bytes: u64,
        align: u64,
    ) -> Result<(u64, Slot), Error> {
        let i = self.hw.find_space(id)?;
        if bytes == 0 || !align.max(1).is_power_of_two() {
            return Err(Error::Invalid);
        }
        let bytes = bytes.checked_next_multiple_of(4096).ok_or(Error::Invalid)?;
        let slot = self.hw.m.alloc(bytes)?;
        let va = self.hw.spaces[i].add_buffer(slot, bytes, align);
        if va.is_err() {
            self.hw.m.free(slot);
        }
        va.map(|va| (va, slot))
    }

    /// The buffer that starts at `va`.
    pub fn find_buffer(&self, id: SpaceId, va: u64) -> Result<Slot, Error> {
        let i = self.hw.find_space(id)?;
        self.hw.spaces[i].buffer_at(va).ok_or(Error::NotFound)
    }

    /// Gives a buffer that the machine has an address of UVM's space.
    pub fn attach_buffer(
        &mut self,
        id: SpaceId,
        slot: Slot,
        bytes: u64,
        align: u64,
    ) -> Result<u64, Error> {
        let i = self.hw.find_space(id)?;
        if !align.max(1).is_power_of_two() {
            return Err(Error::Invalid);
        }
        self.hw.spaces[i].add_buffer(slot, bytes, align)
    }

    /// Frees the buffer at `va`.
    pub fn free_buffer(&mut self, id: SpaceId, va: u64) -> Result<(), Error> {
        let i = self.hw.find_space(id)?;
        let slot = self.hw.spaces[i].remove_buffer(va).ok_or(Error::NotFound)?;
        self.hw.m.free(slot);
        Ok(())
    }

    /// Where `bytes` bytes at `va` are, if that is in one buffer.
    pub fn map_buffer(&mut self, id: SpaceId, va: u64, bytes: u64) -> Result<Loc, Error> {
        let i = self.hw.find_space(id)?;
        match self.hw.spaces[i].find_buffer(va) {
            Some((at, extent)) if extent >= bytes => Ok(at),
            _ => Err(Error::Invalid),
        }
    }
}

// Channels, faults and counters.
impl<M: Machine> Gpu<M> {
    /// Makes a channel of UVM's, on copy engine `engine`.
    pub fn create_channel(
        &mut self,
        space: SpaceId,
        engine: u32,
        entries: u32,
    ) -> Result<(ChannelId, ChannelPlace), Error> {
        self.hw.find_space(space)?;
        if !(2..=1 << 20).contains(&entries) {
            return Err(Error::Invalid);
        }
        let ring = self.hw.m.alloc(u64::from(entries) * 8)?;
        let made = self
            .hw
            .m
            .alloc(4096)
            .map_err(Error::from)
            .and_then(|control| {
                let id = ChannelId(self.next_channel);
                let token = id.token();
                let place = ChannelPlace {
                    ring,
                    control,
                    token,
                };
                let pushed = self
                    .channels
                    .push(Channel::new(id, space, engine, entries, place));
                if pushed.is_err() {
                    self.hw.m.free(control);
                    return Err(Error::NoMemory);
                }
                Ok((id, place))
            });
        match made {
            Ok(_) => self.next_channel = self.next_channel.wrapping_add(1),
            Err(_) => self.hw.m.free(ring),
        }
        made
    }

    /// Destroys a channel of UVM's.
    pub fn destroy_channel(&mut self, id: ChannelId) -> Result<(), Error> {
        let i = self
            .channels
            .iter()
            .position(|c| c.id == id)
            .ok_or(Error::NotFound)?;
        // RM waits until the channel is idle.
        self.hw.flush(id, true);
        if let Some(c) = self.channels.swap_remove(i) {
            self.hw.m.free(c.place.ring);
            self.hw.m.free(c.place.control);
        }
        Ok(())
    }

    /// Empties the fault buffer, and RM's ring of copies' faults: UVM takes them over.
    pub fn reset_faults(&mut self) -> Result<(), Error> {
        self.hw
            .faults
            .reset(&self.hw.m)
            .and_then(|()| self.hw.reset_copy_faults())
            .map_err(|_| Error::Invalid)?;
        self.hw.show_interrupts();
        self.hw.faults.line.hand_over();
        Ok(())
    }

    /// Empties the access counters' buffer: UVM takes it over.
    pub fn reset_counters(&mut self) -> Result<(), Error> {
        self.hw
            .counters
            .reset(&self.hw.m)
            .map_err(|_| Error::Invalid)
    }

    /// Starts access counting. Numbers are UVM's.
    pub fn enable_counters(&mut self, granularity: u32, threshold: u32) {
        self.hw.counters.enable(granularity, threshold);
        self.hw.show_interrupts();
        self.hw.counters.line.hand_over();
    }

    /// Ends access counting, until [`Gpu::enable_counters`].
    pub fn disable_counters(&mut self) {
        self.hw.counters.disable();
    }

    /// Binds a user's channel to the address space it was made for. May be asked
    /// for again. Gives its instance pointer.
    pub fn retain_channel(
        &mut self,
        space: SpaceId,
        h_client: u32,
        h_channel: u32,
    ) -> Result<u64, Error> {
        let s = self.hw.find_space(space)?;
        let h_vaspace = self.hw.spaces[s].h_vaspace;
        let i = self.find_user(h_channel)?;
        let u = &mut self.hw.users[i];
        if !u.owned || u.h_client != h_client {
            return Err(Error::NotFound);
        }
        if h_vaspace != Some(u.h_vaspace) {
            return Err(Error::Invalid);
        }
        if u.stopped {
            return Err(Error::Stopped);
        }
        u.bound = Some(space);
        u.retained += 1;
        Ok(u.instance())
    }

    /// Stops a channel: it makes no access and no fault from now on.
    pub fn stop_channel(&mut self, h_channel: u32) -> Result<(), Error> {
        let i = self.find_user(h_channel)?;
        self.stop_user(i);
        Ok(())
    }

    /// Undoes one [`Gpu::retain_channel`]; the last one unbinds the channel.
    pub fn release_channel(&mut self, h_channel: u32) -> Result<(), Error> {
        let i = self.find_user(h_channel)?;
        let u = &mut self.hw.users[i];
        if u.retained == 0 {
            return Err(Error::Invalid);
        }
        u.retained -= 1;
        if u.retained == 0 {
            if !u.stopped {
                self.stop_user(i);
            }
            self.hw.users[i].bound = None;
            self.reap(i);
        }
        Ok(())
    }

    pub(in crate::emu) fn find_user(&self, h_channel: u32) -> Result<usize, Error> {
        let found = self.hw.users.iter().position(|u| u.h_channel == h_channel);
        found.ok_or(Error::NotFound)
    }

    pub(super) fn stop_user(&mut self, i: usize) {
        self.hw.users[i].stop(&mut self.hw.stats);
        self.hw.settle_user(self.hw.users[i].instance());
        self.hw.finished = true;
    }

    /// Drops a channel that nobody knows any more.
    pub(super) fn reap(&mut self, i: usize) {
        let u = &self.hw.users[i];
        if !u.owned && u.retained == 0 {
            self.hw.users.swap_remove(i);
        }
    }
}
