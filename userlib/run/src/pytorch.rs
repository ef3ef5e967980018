// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What the environment tells PyTorch of its allocator.

use std::ffi::OsString;

/// Where PyTorch reads the settings of its allocator from; the second is the name of late.
pub(crate) const CONF: [&str; 2] = ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"];

/// PyTorch's allocator keeps nothing if this is there, whatever it says.
pub(crate) const NO_CACHE: &str = "PYTORCH_NO_CUDA_MEMORY_CACHING";

/// What is to be set so that each tensor is an allocation of CUDA's; nothing if it is so already.
pub(crate) fn without_cache(set: Option<OsString>) -> Option<(&'static str, &'static str)> {
    set.is_none().then_some((NO_CACHE, "1"))
}

/// Settings of PyTorch's allocator, with its expandable segments off where they were on.
pub(crate) fn without_segments(conf: &str) -> String {
    let off = |setting: &str| match setting.split_once(':') {
        Some((name, _)) if name.trim() == "expandable_segments" => format!("{name}:False"),
        _ => setting.to_owned(),
    };
    conf.split(',').map(off).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expandable_segments_are_turned_off_and_nothing_else() {
        let same = "roundup_power2_divisions:[256:1,512:2],max_split_size_mb:64,x";
        for conf in ["", same, "expandable_segments:False"] {
            assert_eq!(without_segments(conf), conf);
        }
        let conf =
            |value| format!("{same}, expandable_segments:{value},expandable_segments_x:True");
        assert_eq!(without_segments(&conf("True")), conf("False"));
    }

    #[test]
    fn what_is_set_already_stays() {
        assert_eq!(without_cache(None), Some((NO_CACHE, "1")));
        assert_eq!(without_cache(Some("yes".into())), None);
    }
}
