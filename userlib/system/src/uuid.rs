// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! How a GPU is called.

use std::fmt;

/// The UUID of a GPU, written as nvidia-smi does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Uuid(pub [u8; 16]);

/// Bytes in the parts of the text, between its dashes.
const PARTS: [usize; 5] = [4, 2, 2, 2, 6];

impl Uuid {
    /// From text as NVIDIA's (`GPU-…`, `MIG-…`) or UVM's (`UVM-GPU-…`).
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.strip_prefix("UVM-").unwrap_or(text);
        let text = ["GPU-", "GI-", "MIG-"]
            .iter()
            .find_map(|kind| text.strip_prefix(kind))?;
        let mut bytes = Vec::with_capacity(16);
        let parts: Vec<_> = text.split('-').collect();
        if parts.len() != PARTS.len() {
            return None;
        }
        for (part, length) in parts.iter().zip(PARTS) {
            let digits = part.as_bytes();
            if digits.len() != 2 * length || !digits.iter().all(u8::is_ascii_hexdigit) {
                return None;
            }
            for pair in digits.chunks(2) {
                let pair = std::str::from_utf8(pair).ok()?;
                bytes.push(u8::from_str_radix(pair, 16).ok()?);
            }
        }
        bytes.try_into().ok().map(Self)
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = &self.0[..];
        f.write_str("GPU")?;
        for length in PARTS {
            let (part, later) = rest.split_at(length);
            rest = later;
            f.write_str("-")?;
            part.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        }
        Ok(())
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl serde::Serialize for Uuid {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_back() {
        let text = "GPU-d802726c-df8d-a3c3-ec53-48bdec201c27";
        let uuid = Uuid::parse(text).unwrap();
        assert_eq!(uuid.0[..4], [0xd8, 0x02, 0x72, 0x6c]);
        assert_eq!(uuid.to_string(), text);
        assert_eq!(Uuid::parse(&format!("UVM-{text}")), Some(uuid));
        for bad in [
            "",
            "GPU-",
            "d802726c-df8d-a3c3-ec53-48bdec201c27",
            "GPU-????????-????-????-????-????????????",
            "GPU-d802726c-df8d-a3c3-ec53-48bdec201c2",
            "GPU-d802726c-df8d-a3c3-ec53-48bdec201c27-00",
            "GPU-+802726c-df8d-a3c3-ec53-48bdec201c27",
            "GPU-d802726cdf8da3c3ec5348bdec201c27",
        ] {
            assert_eq!(Uuid::parse(bad), None, "{bad}");
        }
    }
}
