// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Functions of libc that this library stands in front of. dlsym and dlvsym are among them, so that
//! neither can be asked: libc's own table of symbols tells. Nothing is called for it but what compares
//! strings: another library may stand in front of getenv or malloc, and call dlsym.

use core::ffi::{c_char, c_int, c_void, CStr};
use core::ptr::null_mut;

/// A loaded library, the begin of `struct link_map`.
#[repr(C)]
struct Loaded {
    base: usize,
    name: *const c_char,
    dynamic: *const Dynamic,
    next: *const Loaded,
}

/// What the loader tells debuggers, the begin of `struct r_debug`.
#[repr(C)]
struct Told {
    version: c_int,
    libraries: *const Loaded,
}

extern "C" {
    #[link_name = "_r_debug"]
    static TOLD: Told;
}

/// An entry of a library's dynamic section.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Dynamic {
    tag: usize,
    value: usize,
}

/// `DT_STRTAB`: the names of symbols.
const NAMES: usize = 5;
/// `DT_SYMTAB`: the symbols, without their number.
const SYMBOLS: usize = 6;
/// `DT_GNU_HASH`: which symbols have which hash.
const HASHES: usize = 0x6fff_fef5;

/// The function that libc defines under a name; null if it defines none. Which version of it is not
/// asked: all versions of dlsym, and of dlvsym, are one function.
pub(crate) fn libc_symbol(name: &CStr) -> *mut c_void {
    // SAFETY: the loader has filled it in before it ran the first program code.
    let mut next = unsafe { TOLD.libraries };
    // Libraries that are loaded later come behind libc, which is never unloaded.
    // SAFETY: null ends the list.
    while let Some(library) = unsafe { next.as_ref() } {
        // SAFETY: the loader's names are C strings.
        if is_libc(unsafe { CStr::from_ptr(library.name) }.to_bytes()) {
            // SAFETY: the library is loaded, and stays.
            if let Some(found) = unsafe { symbol_of(library, name) } {
                return found;
            }
        }
        next = library.next;
    }
    null_mut()
}

/// Before glibc 2.34 the functions of the loader are in a library of their own.
fn is_libc(path: &[u8]) -> bool {
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
    name == b"libc.so.6" || name == b"libdl.so.2"
}

/// # Safety
/// The library is loaded.
unsafe fn symbol_of(library: &Loaded, name: &CStr) -> Option<*mut c_void> {
    let base = library.base;
    let mut entry = library.dynamic;
    let (mut names, mut symbols, mut hashes) = (0, 0, 0);
    loop {
        // SAFETY: the section ends with an entry of tag 0.
        let now = unsafe { *entry };
        match now.tag {
            0 => break,
            NAMES => names = now.value,
            SYMBOLS => symbols = now.value,
            HASHES => hashes = now.value,
            _ => (),
        }
        // SAFETY: it was not the last.
        entry = unsafe { entry.add(1) };
    }
    if names == 0 || symbols == 0 || hashes == 0 {
        return None;
    }
    // The loader has made addresses of these values.
    let table = Table {
        names: names as *const c_char,
        symbols: symbols as *const libc::Elf64_Sym,
        hashes: hashes as *const u32,
    };
    // SAFETY: these are the tables of a loaded library.
    unsafe { table.address(base, name) }
}

/// The tables of a library, which the loader uses too.
struct Table {
    names: *const c_char,
    symbols: *const libc::Elf64_Sym,
    /// Four numbers, the filter of 64-bit words, the buckets, and the hash of each symbol.
    hashes: *const u32,
}

impl Table {
    /// The address of a function that the library defines.
    ///
    /// # Safety
    /// The tables are those of a library that is loaded at `base`.
    unsafe fn address(&self, base: usize, name: &CStr) -> Option<*mut c_void> {
        let hash = hash(name.to_bytes());
        // SAFETY: by our contract, and as the format of the table has it.
        unsafe {
            let [buckets, first, words] = [0, 1, 2].map(|at| *self.hashes.add(at));
            let bucket = self.hashes.add(4 + 2 * words as usize);
            let chain = bucket.add(buckets as usize);
            let mut index = *bucket.add((hash % buckets) as usize);
            if index < first {
                return None;
            }
            loop {
                let (known, symbol) = (
                    *chain.add((index - first) as usize),
                    &*self.symbols.add(index as usize),
                );
                // The lowest bit ends the chain, and is no part of the hash.
                if known | 1 == hash | 1
                    && symbol.st_shndx != 0
                    && CStr::from_ptr(self.names.add(symbol.st_name as usize)) == name
                {
                    return Some((base + symbol.st_value as usize) as *mut c_void);
                }
                if known & 1 != 0 {
                    return None;
                }
                index += 1;
            }
        }
    }
}

/// The hash of `DT_GNU_HASH`: Bernstein's.
fn hash(name: &[u8]) -> u32 {
    name.iter().fold(5381_u32, |hash, &byte| {
        hash.wrapping_mul(33).wrapping_add(byte.into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_libc_defines_is_found_where_dlsym_finds_it() {
        for name in [
            c"dlsym", c"dlvsym", c"dlopen", c"strdup", c"free", c"no_such",
        ] {
            // SAFETY: the name is a C string.
            let told = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
            assert_eq!(libc_symbol(name), told, "{name:?}");
        }
    }

    #[test]
    fn libc_is_known_by_its_name() {
        assert!(is_libc(b"/lib/x86_64-linux-gnu/libc.so.6") && is_libc(b"libdl.so.2"));
        assert!(!is_libc(b"") && !is_libc(b"/lib/libc.so.6/libother.so"));
    }
}
