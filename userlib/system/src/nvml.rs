// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! NVML, the management library of NVIDIA's driver, as far as it tells of memory. It is looked for
//! by its name when it is wanted, as CUDA's library is: nothing here is linked with it.

use std::ffi::{c_char, c_int, c_uint, c_void, CStr};

use serde::Serialize;

use crate::Uuid;

/// What NVML tells of a GPU: memory of all kinds, and not of managed memory alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NvmlGpu {
    /// Bytes of its memory, with what the driver keeps for itself.
    pub bytes_total: u64,
    /// How many of these are in use, by whomever.
    pub bytes_used: u64,
    /// Processes that compute on it.
    pub processes: Vec<NvmlProcess>,
}

/// A process that computes on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct NvmlProcess {
    /// Its number, as the driver sees it.
    pub pid: u32,
    /// Bytes of the GPU's memory that it has; `None`: NVML does not tell this user.
    pub bytes: Option<u64>,
}

// `nvmlReturn_t`: `NVML_SUCCESS`, and `NVML_ERROR_INSUFFICIENT_SIZE`.
const SUCCESS: c_int = 0;
const TOO_SMALL: c_int = 7;
// `NVML_VALUE_NOT_AVAILABLE`
const NOT_AVAILABLE: u64 = u64::MAX;
// `NVML_DEVICE_UUID_V2_BUFFER_SIZE`
const UUID_BYTES: usize = 96;

// `nvmlDevice_t`
type Handle = *mut c_void;

// `nvmlMemory_t`
#[repr(C)]
#[derive(Default)]
struct Memory {
    total: u64,
    free: u64,
    used: u64,
}

// `nvmlProcessInfo_t`, which the calls of version 2 and 3 have.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Info {
    pid: c_uint,
    used: u64,
    gpu_instance: c_uint,
    compute_instance: c_uint,
}

/// The library, initialised; no call of it needs a thread of its own.
#[derive(Clone, Copy, Debug)]
pub struct Nvml {
    by_uuid: unsafe extern "C" fn(*const c_char, *mut Handle) -> c_int,
    memory: unsafe extern "C" fn(Handle, *mut Memory) -> c_int,
    processes: unsafe extern "C" fn(Handle, *mut c_uint, *mut Info) -> c_int,
}

/// A function of the library by its name.
macro_rules! function {
    ($library:expr, $name:literal, $type:ty) => {{
        // SAFETY: the name is a C string; the handle is open.
        let symbol = unsafe { libc::dlsym($library, $name.as_ptr()) };
        // SAFETY: NVML's function of this name has this type, and is not null.
        (!symbol.is_null()).then(|| unsafe { std::mem::transmute::<*mut c_void, $type>(symbol) })
    }};
}

impl Nvml {
    /// Loads and initialises the library, which stays loaded.
    ///
    /// # Errors
    /// Why NVML tells nothing, in words.
    pub fn load() -> Result<Self, String> {
        // SAFETY: the name is a C string; the library's initialisers are made to run in any
        // program.
        let library = unsafe { libc::dlopen(c"libnvidia-ml.so.1".as_ptr(), libc::RTLD_NOW) };
        if library.is_null() {
            return Err("libnvidia-ml.so.1 is not installed".into());
        }
        let this = || {
            Some(Self {
                by_uuid: function!(
                    library,
                    c"nvmlDeviceGetHandleByUUID",
                    unsafe extern "C" fn(*const c_char, *mut Handle) -> c_int
                )?,
                memory: function!(
                    library,
                    c"nvmlDeviceGetMemoryInfo",
                    unsafe extern "C" fn(Handle, *mut Memory) -> c_int
                )?,
                processes: function!(
                    library,
                    c"nvmlDeviceGetComputeRunningProcesses_v3",
                    unsafe extern "C" fn(Handle, *mut c_uint, *mut Info) -> c_int
                )?,
            })
        };
        let init = function!(library, c"nvmlInit_v2", unsafe extern "C" fn() -> c_int);
        let (Some(init), Some(this)) = (init, this()) else {
            return Err("libnvidia-ml.so.1 is older than driver 510".into());
        };
        // SAFETY: the call takes nothing, and may be made in any thread.
        match unsafe { init() } {
            SUCCESS => Ok(this),
            code => Err(format!("nvmlInit gives error {code}")),
        }
    }

    /// What is known of a GPU.
    ///
    /// # Errors
    /// The call that failed, and NVML's error.
    pub fn gpu(&self, uuid: Uuid) -> Result<NvmlGpu, String> {
        let mut name = uuid.to_string().into_bytes();
        name.resize(UUID_BYTES, 0);
        let name = CStr::from_bytes_until_nul(&name).map_err(|e| e.to_string())?;
        let mut handle: Handle = std::ptr::null_mut();
        // SAFETY: the name is a C string, and the output is writable.
        let code = unsafe { (self.by_uuid)(name.as_ptr(), &mut handle) };
        failed("nvmlDeviceGetHandleByUUID", code)?;
        let mut memory = Memory::default();
        // SAFETY: the handle is NVML's; the output has the structure's type.
        let code = unsafe { (self.memory)(handle, &mut memory) };
        failed("nvmlDeviceGetMemoryInfo", code)?;
        Ok(NvmlGpu {
            bytes_total: memory.total,
            bytes_used: memory.used,
            processes: self.processes(handle)?,
        })
    }

    /// The processes of a GPU, of which more may come between two calls.
    fn processes(&self, handle: Handle) -> Result<Vec<NvmlProcess>, String> {
        let mut infos = vec![Info::default(); 16];
        loop {
            let mut count = c_uint::try_from(infos.len()).map_err(|e| e.to_string())?;
            // SAFETY: the handle is NVML's; there is room for as many as `count` says.
            let code = unsafe { (self.processes)(handle, &mut count, infos.as_mut_ptr()) };
            if code == TOO_SMALL && infos.len() < 1 << 16 {
                infos.resize(2 * infos.len().max(count as usize), Info::default());
                continue;
            }
            failed("nvmlDeviceGetComputeRunningProcesses", code)?;
            infos.truncate(count as usize);
            let process = |info: &Info| NvmlProcess {
                pid: info.pid,
                bytes: (info.used != NOT_AVAILABLE).then_some(info.used),
            };
            return Ok(infos.iter().map(process).collect());
        }
    }
}

fn failed(call: &str, code: c_int) -> Result<(), String> {
    match code {
        SUCCESS => Ok(()),
        code => Err(format!("{call} gives error {code}")),
    }
}
