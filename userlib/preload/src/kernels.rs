// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! From a launch to its execution ID: a hash of the kernel's name, its arguments
//! and the shape of the launch (`DeepUM` §3.1). `DeepUM` numbers the hashes; here
//! the hash itself is the number, and the table of them is the driver's.
//!
//! What CUDA says of a kernel is asked once and kept, until any code is unloaded:
//! then the same handle may come to name another kernel.
//!
//! Who records a program or follows a plan asks for more: the name, and what among the
//! arguments may be an address.

use core::ffi::{c_char, c_void, CStr};
use core::hash::Hasher;
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use rustc_hash::{FxBuildHasher, FxHasher};
use uvmrust::cuda::Cuda;
use uvmrust::PerProcess;

/// What is known of a kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Kernel {
    /// Without blanks; [`UNKNOWN`] where CUDA does not tell.
    name: Box<str>,
    name_hash: u64,
    /// Bytes of each parameter.
    params: Vec<usize>,
}

/// No kernel has more parameters: they share 32 KiB at most.
const MAX_PARAMS: usize = 32 << 10;

/// Kernels by handle. Read at each launch, written at the first of a kernel. What is done with one is done
/// with no lock held: it reads the program's arguments, and a handler of a signal that comes meanwhile may
/// unload code, or call exit(), and with it what does.
#[derive(Debug, Default)]
pub(crate) struct Kernels(RwLock<HashMap<usize, Arc<Kernel>, FxBuildHasher>>);

/// Those of this process: at a fork, another thread of the parent may be at it.
pub(crate) static KERNELS: PerProcess<Kernels> = PerProcess::new(Kernels::new);

/// The shape of a launch: grid, block, bytes of shared memory.
pub(crate) type Shape = [u32; 7];

/// The name of a kernel of which CUDA tells none.
pub(crate) const UNKNOWN: &str = uvmrust::follow::ANY;

/// A kernel and its arguments, as CUDA is given them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Launch {
    /// A CUfunction or a CUkernel.
    pub function: *mut c_void,
    /// A pointer to each argument, or null.
    pub params: *mut *mut c_void,
    /// The arguments in one buffer, or null.
    pub extra: *mut *mut c_void,
}

impl Kernels {
    /// An empty table: each kernel is added at its first launch.
    pub const fn new() -> Self {
        Self(RwLock::new(HashMap::with_hasher(FxBuildHasher)))
    }

    /// The execution ID of a launch, never 0.
    ///
    /// # Safety
    /// The arguments are those of a call of cuLaunchKernel, in which `params` is left
    /// null if the arguments are to be left out.
    pub unsafe fn id(
        &self,
        cuda: &Cuda,
        function: *mut c_void,
        shape: Shape,
        params: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) -> u64 {
        // SAFETY: by our contract.
        unsafe { hash(&self.known(cuda, function), shape, params, extra) }
    }

    /// Does something with the name of a launch's kernel, and with what among its arguments
    /// may be an address.
    ///
    /// # Safety
    /// The arguments are those of a call of cuLaunchKernel.
    pub unsafe fn look<T>(
        &self,
        cuda: &Cuda,
        launch: Launch,
        work: impl FnOnce(&str, &mut dyn Iterator<Item = u64>) -> T,
    ) -> T {
        // SAFETY: by our contract.
        let kernel = unsafe { self.known(cuda, launch.function) };
        // SAFETY: by our contract.
        let mut words = unsafe { words(&kernel, launch) };
        work(&kernel.name, &mut words)
    }

    /// # Safety
    /// `function` is a kernel.
    unsafe fn known(&self, cuda: &Cuda, function: *mut c_void) -> Arc<Kernel> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(kernel) = known.get(&(function as usize)) {
            return Arc::clone(kernel);
        }
        drop(known);
        // SAFETY: by our contract.
        let kernel = Arc::new(unsafe { ask(cuda, function) });
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(known.entry(function as usize).or_insert(kernel))
    }

    /// Forgets all. To be called before and after code is unloaded.
    pub fn forget(&self) {
        self.0
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
    }
}

/// The execution ID of a graph, which is one kernel to us.
pub(crate) fn graph_id(graph: *mut c_void) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write(b"graph");
    hasher.write_usize(graph as usize);
    hasher.finish().max(1)
}

/// # Safety
/// `params`, if not null, has an element for each parameter of `kernel`, that points
/// to its bytes; `extra`, if not null, is as CUDA describes it.
unsafe fn hash(
    kernel: &Kernel,
    shape: Shape,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write_u64(kernel.name_hash);
    shape.into_iter().for_each(|n| hasher.write_u32(n));
    if !params.is_null() {
        for (i, &size) in kernel.params.iter().enumerate() {
            // SAFETY: by our contract.
            let bytes = unsafe { core::slice::from_raw_parts((*params.add(i)).cast::<u8>(), size) };
            hasher.write(bytes);
        }
    } else if !extra.is_null() {
        // SAFETY: by our contract.
        hasher.write(unsafe { packed(extra) });
    }
    hasher.finish().max(1)
}

/// Each word of 8 bytes at a multiple of 8 in an argument: pointers lie so, also those in a
/// structure that is given by value. Empty before CUDA 12.4, which does not tell how long
/// arguments are, if they are not in one buffer.
///
/// # Safety
/// As for [`hash`].
unsafe fn words(kernel: &Kernel, launch: Launch) -> impl Iterator<Item = u64> + '_ {
    let count = match launch.params.is_null() {
        true => 1,
        false => kernel.params.len(),
    };
    (0..count).flat_map(move |i| {
        // SAFETY: by our contract.
        let argument: &[u8] = unsafe {
            match (launch.params.is_null(), launch.extra.is_null()) {
                (false, _) => {
                    let at = (*launch.params.add(i)).cast();
                    core::slice::from_raw_parts(at, kernel.params[i])
                }
                (true, false) => packed(launch.extra),
                (true, true) => &[],
            }
        };
        let words = argument.chunks_exact(8);
        words.map(|word| word.try_into().map_or(0, u64::from_ne_bytes))
    })
}

/// The arguments given as one buffer: pairs of a key and its value, up to key 0.
///
/// # Safety
/// `extra` is such a list.
unsafe fn packed<'a>(extra: *mut *mut c_void) -> &'a [u8] {
    const BUFFER_POINTER: usize = 1;
    const BUFFER_SIZE: usize = 2;
    let (mut base, mut size) = (core::ptr::null::<u8>(), 0);
    let mut at = extra;
    // SAFETY: by our contract; CUDA knows these two keys only, so that a list has at
    // most two pairs before its end.
    unsafe {
        for _ in 0..2 {
            match *at as usize {
                BUFFER_POINTER => base = (*at.add(1)).cast(),
                BUFFER_SIZE => size = *(*at.add(1)).cast::<usize>(),
                _ => break,
            }
            at = at.add(2);
        }
        match base.is_null() {
            true => &[],
            false => core::slice::from_raw_parts(base, size),
        }
    }
}

/// What CUDA knows of a kernel. Before CUDA 12.3 its handle stands for its name, and
/// before 12.4 its arguments are not looked at.
///
/// # Safety
/// `function` is a CUfunction or a CUkernel.
unsafe fn ask(cuda: &Cuda, function: *mut c_void) -> Kernel {
    let mut name: *const c_char = core::ptr::null();
    for call in [cuda.func_name(), cuda.kernel_name()].into_iter().flatten() {
        // SAFETY: the output is writable; CUDA tells the two kinds of handle apart.
        if unsafe { call(&mut name, function) } == 0 && !name.is_null() {
            break;
        }
        name = core::ptr::null();
    }
    let mut hasher = FxHasher::default();
    let mut word = String::new();
    match name.is_null() {
        true => hasher.write_usize(function as usize),
        false => {
            // SAFETY: CUDA gives a C string that lives as long as the kernel.
            let name = unsafe { CStr::from_ptr(name) };
            hasher.write(name.to_bytes());
            let words = name.to_string_lossy();
            word = words.split_whitespace().collect::<Vec<_>>().join("_");
        }
    }
    if word.is_empty() {
        word.push_str(UNKNOWN);
    }
    let mut params = Vec::new();
    for call in [cuda.func_param_info(), cuda.kernel_param_info()]
        .into_iter()
        .flatten()
    {
        let (mut offset, mut size) = (0, 0);
        while params.len() < MAX_PARAMS {
            // SAFETY: outputs are writable; an index beyond the last is an error.
            if unsafe { call(function, params.len(), &mut offset, &mut size) } != 0 {
                break;
            }
            params.push(size);
        }
        if !params.is_empty() {
            break;
        }
    }
    Kernel {
        name: word.into(),
        name_hash: hasher.finish(),
        params,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = [1, 1, 1, 32, 1, 1, 0];

    unsafe extern "C" fn name(out: *mut *const c_char, function: *mut c_void) -> i32 {
        // SAFETY: the tests use C strings as functions.
        unsafe { *out = function.cast() };
        0
    }

    unsafe extern "C" fn info(_: *mut c_void, i: usize, _: *mut usize, size: *mut usize) -> i32 {
        // SAFETY: an output.
        unsafe { *size = [8, 4][i.min(1)] };
        (i >= 2).into()
    }

    fn cuda() -> Cuda {
        // SAFETY: both have the types of CUDA's functions.
        unsafe {
            Cuda::from_symbols(|symbol| match symbol.to_bytes() {
                b"cuFuncGetName" => name as *mut c_void,
                b"cuFuncGetParamInfo" => info as *mut c_void,
                _ => core::ptr::null_mut(),
            })
        }
    }

    fn id(kernels: &Kernels, cuda: &Cuda, name: &CStr, shape: Shape, a: u64, b: u32) -> u64 {
        let (mut a, mut b) = (a, b);
        let mut params = [(&raw mut a).cast(), (&raw mut b).cast::<c_void>()];
        let function = name.as_ptr().cast_mut().cast();
        // SAFETY: two parameters of 8 and 4 bytes.
        unsafe {
            kernels.id(
                cuda,
                function,
                shape,
                params.as_mut_ptr(),
                core::ptr::null_mut(),
            )
        }
    }

    #[test]
    fn equal_launches_and_only_they_have_equal_ids() {
        let (kernels, cuda) = (Kernels::new(), cuda());
        let one = id(&kernels, &cuda, c"add", SHAPE, 1, 2);
        assert_eq!(id(&kernels, &cuda, c"add", SHAPE, 1, 2), one);
        assert_ne!(id(&kernels, &cuda, c"mul", SHAPE, 1, 2), one);
        assert_ne!(id(&kernels, &cuda, c"add", SHAPE, 2, 2), one);
        assert_ne!(id(&kernels, &cuda, c"add", SHAPE, 1, 3), one);
        assert_ne!(
            id(&kernels, &cuda, c"add", [2, 1, 1, 32, 1, 1, 0], 1, 2),
            one
        );
        assert_eq!(kernels.0.read().unwrap().len(), 2);
        kernels.forget();
        assert_eq!(id(&kernels, &cuda, c"add", SHAPE, 1, 2), one);
    }

    #[test]
    fn a_child_does_not_wait_for_its_parents_threads() {
        let _held = KERNELS.get().0.write().unwrap();
        crate::memory::tests::in_child(|| KERNELS.get().forget());
    }

    #[test]
    fn code_may_be_unloaded_in_the_midst_of_a_launch() {
        let (kernels, cuda) = (Kernels::new(), cuda());
        let launch = Launch {
            function: c"add".as_ptr().cast_mut().cast(),
            params: core::ptr::null_mut(),
            extra: core::ptr::null_mut(),
        };
        crate::memory::tests::in_child(|| {
            for _ in 0..2 {
                // SAFETY: a launch without arguments.
                unsafe { kernels.look(&cuda, launch, |_, _| kernels.forget()) };
            }
        });
    }

    #[test]
    fn many_launches_collide_never() {
        let (kernels, cuda) = (Kernels::new(), cuda());
        let ids: std::collections::HashSet<_> = (0..100_000)
            .map(|i| {
                id(
                    &kernels,
                    &cuda,
                    c"add",
                    SHAPE,
                    0x7f00_0000_0000 + i * 512,
                    7,
                )
            })
            .collect();
        assert_eq!(ids.len(), 100_000);
    }

    /// A kernel's arguments as one buffer and its size, in CUDA's list (`CU_LAUNCH_PARAM_*`).
    fn packed(base: *mut c_void, size: *mut usize) -> [*mut c_void; 5] {
        [
            core::ptr::without_provenance_mut(1),
            base,
            core::ptr::without_provenance_mut(2),
            size.cast(),
            core::ptr::null_mut(),
        ]
    }

    #[test]
    fn what_may_be_an_address_is_found_among_the_arguments() {
        let kernels = Kernels::new();
        let (mut a, mut b) = (0x7f00_0000_1000u64, 7u32);
        let mut params = [(&raw mut a).cast(), (&raw mut b).cast::<c_void>()];
        let mut structure = [1u64, 0x7f00_0000_2000, 3];
        let (base, mut size) = (structure.as_mut_ptr().cast(), size_of_val(&structure));
        let mut extra = packed(base, &raw mut size);
        let mut launch = Launch {
            function: c"a b".as_ptr().cast_mut().cast(),
            params: params.as_mut_ptr(),
            extra: core::ptr::null_mut(),
        };
        let look = |cuda: &Cuda, launch| {
            // SAFETY: two parameters of 8 and 4 bytes, or a list as CUDA describes it.
            unsafe {
                kernels.look(cuda, launch, |name, words| {
                    (name.to_owned(), words.collect::<Vec<_>>())
                })
            }
        };
        assert_eq!(
            look(&cuda(), launch),
            ("a_b".into(), vec![0x7f00_0000_1000])
        );
        launch.params = core::ptr::null_mut();
        assert!(look(&cuda(), launch).1.is_empty());
        launch.extra = extra.as_mut_ptr();
        assert_eq!(look(&cuda(), launch).1, [1, 0x7f00_0000_2000, 3]);
        kernels.forget();
        assert_eq!(look(&Cuda::default(), launch).0, UNKNOWN);
    }

    #[test]
    fn packed_arguments_count_and_a_cuda_without_names_will_do() {
        let kernels = Kernels::new();
        let one = |value: u64, cuda: &Cuda| {
            let (mut value, mut size) = (value, 8usize);
            let mut extra = packed((&raw mut value).cast(), &raw mut size);
            let function = c"add".as_ptr().cast_mut().cast();
            // SAFETY: a list as CUDA describes it.
            unsafe {
                kernels.id(
                    cuda,
                    function,
                    SHAPE,
                    core::ptr::null_mut(),
                    extra.as_mut_ptr(),
                )
            }
        };
        assert_eq!(one(1, &cuda()), one(1, &cuda()));
        assert_ne!(one(1, &cuda()), one(2, &cuda()));
        kernels.forget();
        let bare = Cuda::default();
        assert_eq!(
            id(&kernels, &bare, c"add", SHAPE, 1, 2),
            id(&kernels, &bare, c"add", SHAPE, 3, 4)
        );
    }
}
