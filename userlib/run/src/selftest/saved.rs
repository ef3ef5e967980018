// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What a discard spares: a driver may let one drop nothing, and all that is written is right then,
//! too. So the page says what was gone of what was discarded, and, where our driver counts it, what was
//! copied.

use uvmrust::{Mode, Place, Range};
use uvmrust_system::{fdinfo, Root, User};

use super::gpu::Gpu;
use super::{discarded, Flaw};

/// What memory has before a discard that is measured.
const OLD: u32 = 0x9999_9999;

impl Gpu {
    /// What is gone of memory that the GPU wrote when it comes to the host: without a discard, and with each kind.
    ///
    /// # Errors
    /// [`Flaw::Not`] where nobody discards; [`Flaw::Wrong`] if memory is changed that was not discarded.
    pub(super) fn saved(&self) -> Result<Vec<String>, Flaw> {
        let whole = self.moved(None)?;
        if whole.0 != 0 {
            let why = format!("{} were gone of memory that nobody discarded", mib(whole.0));
            return Err(Flaw::Wrong(why));
        }
        [("eagerly", Mode::Eager), ("lazily", Mode::Lazy)]
            .into_iter()
            .map(|(how, mode)| {
                let (gone, copied) = self.moved(Some(mode))?;
                Ok(sentence(how, self.middle(), gone, copied.zip(whole.1)))
            })
            .collect()
    }

    /// Has the GPU write the memory, discards it, and moves it to the host: the bytes that are gone, and those that
    /// our driver says were copied.
    fn moved(&self, mode: Option<Mode>) -> Result<(u64, Option<u64>), Flaw> {
        let first = self.uvm.prefetch(self.middle(), self.place());
        first.map_err(|why| Flaw::Wrong(format!("to the GPU: {why}")))?;
        self.fill(self.middle(), OLD)?;
        let before = copied(&Root::new("/"));
        if let Some(mode) = mode {
            // SAFETY: it is read by `without` alone, which takes any value.
            discarded(unsafe { self.uvm.discard(self.middle(), mode) })?;
        }
        let moved = self.uvm.prefetch(self.middle(), Place::Host);
        moved.map_err(|why| Flaw::Wrong(format!("to the host: {why}")))?;
        let after = copied(&Root::new("/"));
        let gone = self.without(self.middle(), OLD);
        Ok((
            gone,
            before
                .zip(after)
                .map(|(before, after)| after.saturating_sub(before)),
        ))
    }
}

/// Bytes that were copied to the host for this process, ever. `None`: this driver does not tell.
fn copied(root: &Root) -> Option<u64> {
    let pid = std::process::id();
    let descriptors = root.names(&format!("/proc/{pid}/fd"));
    let descriptors = descriptors.iter().filter_map(|name| name.parse().ok());
    let own = User {
        pid,
        command: String::new(),
        descriptors: descriptors.collect(),
    };
    let gpus = fdinfo(root, &[own]).remove(&pid)?.gpus?;
    let bytes = gpus.values().flat_map(|gpu| gpu.gpu_to_host.named());
    Some(bytes.map(|(_, bytes)| bytes).sum())
}

/// What was gone, and what was copied with the discard and without.
fn sentence(how: &str, range: Range, gone: u64, copied: Option<(u64, u64)>) -> String {
    let mut says = format!("{how} {} of {}", mib(gone), mib(range.length));
    if gone == 0 {
        says += ": this discard drops nothing, which spares nothing";
    }
    if let Some((with, without)) = copied {
        says += &format!(
            "; {} were copied to the host, {} without",
            mib(with),
            mib(without)
        );
    }
    says
}

fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn our_driver_tells_what_it_copied() {
        let folder = std::env::temp_dir().join(format!("uvmrun-saved-{}", std::process::id()));
        let root = Root::new(&folder);
        let process = folder.join(format!("proc/{}", std::process::id()));
        assert_eq!(copied(&root), None);
        for (fd, text) in [
            ("5", "drm-driver:\tnvidia-uvm\ndrm-client-id:\t7\nnvidia-uvm-gpu1-gpu-to-host-api:\t4096\n\
                   nvidia-uvm-gpu1-gpu-to-host-fault:\t8192\nnvidia-uvm-gpu1-host-to-gpu-api:\t1\n"),
            ("6", "pos:\t0\n"),
        ] {
            for kind in ["fd", "fdinfo"] {
                std::fs::create_dir_all(process.join(kind)).unwrap();
                std::fs::write(process.join(kind).join(fd), text).unwrap();
            }
        }
        assert_eq!(copied(&root), Some(12288));
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_discard_that_drops_nothing_is_named() {
        let range = Range {
            base: 0,
            length: 16 << 20,
        };
        let says = sentence("eagerly", range, 16 << 20, None);
        assert_eq!(says, "eagerly 16.0 MiB of 16.0 MiB");
        let says = sentence("lazily", range, 0, Some((16 << 20, 18 << 20)));
        assert_eq!(
            says,
            "lazily 0.0 MiB of 16.0 MiB: this discard drops nothing, which spares nothing; 16.0 MiB were copied \
             to the host, 18.0 MiB without"
        );
    }
}
