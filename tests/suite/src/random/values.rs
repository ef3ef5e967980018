// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Which values a program writes, and whose a value is.

use vgpu_client::vgpu::POISON;

/// Where the parts of an owned value begin, from the lowest bit. Below `WRITE` is what an operation adds to it, word by word.
const WRITE: u32 = 24;
const LIFE: u32 = 44;
const OWNER: u32 = 56;

/// Added at a time to a word: less than what would soon reach the number of the write.
const LARGEST_ADDEND: u64 = 0xffff;

/// Which values a program writes.
#[derive(Clone, Copy, Debug)]
pub enum Values {
    /// Any values, which tell nothing.
    Any,
    /// Those that tell who has written them, so that memory of another process is recognized at once.
    Owned {
        /// Which process, below 255.
        owner: u8,
        /// Which of those that follow each other under this number, below 4096.
        life: u16,
        /// How many writes there were.
        writes: u32,
    },
}

impl Values {
    /// The next value, of which `random` decides what is not fixed. `adds`: it is added to what is there.
    pub(super) fn next(&mut self, random: u64, adds: bool) -> u64 {
        let Self::Owned {
            owner,
            life,
            writes,
        } = self
        else {
            return random;
        };
        if adds {
            return random & LARGEST_ADDEND;
        }
        *writes = writes.wrapping_add(1);
        let write = u64::from(*writes) & ((1 << (LIFE - WRITE)) - 1);
        let life = u64::from(*life) & ((1 << (OWNER - LIFE)) - 1);
        (u64::from(*owner) + 1) << OWNER | life << LIFE | write << WRITE
    }

    /// Says where a value comes from, as far as that shows.
    pub(super) fn origin(self, value: u64) -> String {
        if value == POISON {
            return ", which is what GPU memory that RM has freed is filled with".into();
        }
        let of = |low: u32, high: u32| (value >> low) & ((1u64 << (high - low)) - 1);
        let (Self::Owned { .. }, Some(owner)) = (self, (value >> OWNER).checked_sub(1)) else {
            return String::new();
        };
        let (life, write) = (of(LIFE, OWNER), of(WRITE, LIFE));
        format!(", as of process {owner}, life {life}, write {write}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owned_value_tells_whose_it_is() {
        let mut values = Values::Owned {
            owner: 3,
            life: 17,
            writes: 0,
        };
        let _ = values.next(0, false);
        let value = values.next(u64::MAX, false);
        // The last word of the largest area, and what was added to it many times.
        let added = value + 8 * (1 << 19) + 100 * values.next(u64::MAX, true);
        for value in [value, added] {
            assert_eq!(
                values.origin(value),
                ", as of process 3, life 17, write 2",
                "{value:#x}"
            );
        }
        assert_eq!(values.origin(0), "");
        assert!(values.origin(POISON).contains("freed"));
    }

    #[test]
    fn any_value_tells_nothing() {
        let mut values = Values::Any;
        assert_eq!(
            (values.next(77, false), values.next(78, true)),
            (77, 78),
            "what was drawn"
        );
        assert_eq!(values.origin(77 << OWNER), "");
    }
}
