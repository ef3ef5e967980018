// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! `uvmrust._native`, the compiled part of the Python package: calls on ranges of bytes. What
//! an object of Python's is in memory, `uvmrust/_memory.py` finds out.
//!
//! The library is also the one that PyTorch's pluggable allocator loads by its path, since it
//! exports the C functions of the crate `uvmrust_torch` too. One library, so that one process
//! has one allocator, and one record of which driver discards.
//!
//! Python's lock is given up for each call of CUDA or of the driver, which may wait.

use core::ffi::{c_int, c_void};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use uvmrust::{Backend, Error, Mode, Place, Range, Result, Uvm};
use uvmrust_torch::{uvmrust_torch_free, uvmrust_torch_record_stream_on, uvmrust_torch_try_malloc};
use uvmrust_torch::{CudaDevice, Metric, Stats, StreamId};

pyo3::create_exception!(
    uvmrust,
    UvmError,
    PyRuntimeError,
    "What the driver or CUDA refused, with what to do. `code` is the number in uvmrust.h."
);

/// CUDA's contexts, as the streams of the calls here need them.
static DEVICE: CudaDevice = CudaDevice::new();

/// What the calls of one kind came to.
struct Count {
    calls: AtomicU64,
    bytes: AtomicU64,
}

impl Count {
    const fn new() -> Self {
        Self {
            calls: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        }
    }

    fn add(&self, ranges: &[Range]) {
        let bytes = ranges.iter().map(|range| range.length).sum();
        self.calls.fetch_add(1, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
    }

    fn dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        dict.set_item("calls", self.calls.load(Relaxed))?;
        dict.set_item("bytes", self.bytes.load(Relaxed))?;
        Ok(dict)
    }
}

static DISCARDS: Count = Count::new();
static PREFETCHES: Count = Count::new();

/// Python's exception for an error of the library.
fn raise(py: Python<'_>, error: Error) -> PyErr {
    let raised = PyErr::new::<UvmError, _>(error.to_string());
    match raised.value(py).setattr("code", error.code()) {
        Ok(()) => raised,
        Err(other) => other,
    }
}

fn ranges(spans: Vec<(u64, u64)>) -> Vec<Range> {
    let range = |(base, length)| Range { base, length };
    spans.into_iter().map(range).collect()
}

/// Who discards in this process: `"none"` for nobody.
#[pyfunction]
fn backend(py: Python<'_>) -> &'static str {
    match py.detach(|| Uvm::process().backend()) {
        Backend::None => "none",
        Backend::UvmRust => "uvm-rust",
        Backend::Native => "native",
        Backend::Cuda => "cuda",
    }
}

/// Whether what was asked for may have been done, in part or later, although the call failed
/// ([`Uvm::discard_async`]).
fn may_be_done<T>(done: &Result<T>) -> bool {
    !matches!(
        done,
        Err(Error::Invalid | Error::NotSupported | Error::NoDevice | Error::Capture)
    )
}

/// Discards ranges of (first byte, bytes) in the order of a stream. `device` is needed to
/// name a default stream, and may be `None` for that of the current device.
///
/// `False`: nobody discards here, and nothing has changed.
#[pyfunction]
fn discard(
    py: Python<'_>,
    spans: Vec<(u64, u64)>,
    lazy: bool,
    stream: usize,
    device: Option<c_int>,
) -> PyResult<bool> {
    let ranges = ranges(spans);
    let mode = if lazy { Mode::Lazy } else { Mode::Eager };
    let done = py.detach(|| {
        if Uvm::process().backend() == Backend::None {
            return Err(Error::NotSupported);
        }
        DEVICE.within(StreamId(stream), device, |cuda_stream| {
            // SAFETY: Python has no references to memory that it does not own, and what
            // the caller promises of reads stands in the package's documentation; the
            // stream is of the context that `within` made current.
            unsafe { Uvm::process().discard_async(&ranges, mode, cuda_stream) }
        })
    });
    // Before anybody can free it.
    if lazy && may_be_done(&done) {
        py.detach(|| uvmrust_torch::discarded_lazily(&ranges));
    }
    match done {
        Ok(()) => {
            DISCARDS.add(&ranges);
            Ok(true)
        }
        Err(Error::NotSupported) => Ok(false),
        Err(error) => Err(raise(py, error)),
    }
}

/// The GPU of a number, or the host.
fn place(uvm: &Uvm, to: Option<c_int>) -> Result<Place> {
    match to {
        None => Ok(Place::Host),
        Some(ordinal) => {
            let cuda = uvm.cuda().ok_or(Error::NotSupported)?;
            cuda.uuid(ordinal).map(Place::Gpu)
        }
    }
}

/// Prefetches ranges in the order of a stream, to the device with the number `to`, or to the
/// host if that is `None`.
#[pyfunction]
fn prefetch(
    py: Python<'_>,
    spans: Vec<(u64, u64)>,
    to: Option<c_int>,
    stream: usize,
    device: Option<c_int>,
) -> PyResult<()> {
    let ranges = ranges(spans);
    let done = py.detach(|| {
        let uvm = Uvm::process();
        let place = place(uvm, to)?;
        DEVICE.within(StreamId(stream), device, |cuda_stream| {
            let one = |range: &Range| {
                // SAFETY: the stream is of the context that `within` made current.
                unsafe { uvm.prefetch_async(*range, place, cuda_stream) }
            };
            ranges.iter().try_for_each(one)
        })
    });
    done.map_err(|error| raise(py, error))?;
    PREFETCHES.add(&ranges);
    Ok(())
}

/// Discards ranges and prefetches them behind that, as one call. Where the prefetch is refused, they
/// are discarded all the same, and a write is kept. `to` is as for `prefetch`.
///
/// A success leaves them lazily discarded where the prefetch fails when the stream comes there, and what
/// is to end the discard then as well. Only `check` tells it.
///
/// `False`: nobody discards here, and nothing has changed.
#[pyfunction]
fn discard_and_prefetch(
    py: Python<'_>,
    spans: Vec<(u64, u64)>,
    to: Option<c_int>,
    stream: usize,
    device: Option<c_int>,
) -> PyResult<bool> {
    let ranges = ranges(spans);
    let mut may_stay_lazy = false;
    let done = py.detach(|| {
        let uvm = Uvm::process();
        let backend = uvm.backend();
        if backend == Backend::None {
            return Err(Error::NotSupported);
        }
        // CUDA's own discard is never a lazy one.
        may_stay_lazy = backend != Backend::Cuda;
        let place = place(uvm, to)?;
        DEVICE.within(StreamId(stream), device, |cuda_stream| {
            // SAFETY: as in `discard`.
            unsafe { uvm.discard_and_prefetch_batch_async(&ranges, place, cuda_stream) }
        })
    });
    // The prefetch may be what has failed.
    if (done.is_err() || may_stay_lazy) && may_be_done(&done) {
        py.detach(|| uvmrust_torch::discarded_lazily(&ranges));
    }
    match done {
        Ok(()) => {
            DISCARDS.add(&ranges);
            PREFETCHES.add(&ranges);
            Ok(true)
        }
        Err(Error::NotSupported) => Ok(false),
        Err(error) => Err(raise(py, error)),
    }
}

/// CUDA's number of the device that is current in this thread.
#[pyfunction]
fn current_device(py: Python<'_>) -> PyResult<c_int> {
    let cuda = Uvm::process().cuda().ok_or(Error::NotSupported);
    cuda.and_then(|cuda| cuda.current_device())
        .map_err(|error| raise(py, error))
}

/// What was done so far: `discard`, `prefetch` and `allocator`.
#[pyfunction]
fn stats(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("discard", DISCARDS.dict(py)?)?;
    dict.set_item("prefetch", PREFETCHES.dict(py)?)?;
    let allocator = PyDict::new(py);
    let Stats {
        mallocs,
        reused,
        held_bytes,
        discarded_bytes,
        prefetched_bytes,
    } = py.detach(uvmrust_torch::stats);
    allocator.set_item("mallocs", mallocs)?;
    allocator.set_item("reused", reused)?;
    allocator.set_item("held_bytes", held_bytes)?;
    allocator.set_item("discarded_bytes", discarded_bytes)?;
    allocator.set_item("prefetched_bytes", prefetched_bytes)?;
    dict.set_item("allocator", allocator)?;
    Ok(dict)
}

fn metric<'py>(py: Python<'py>, metric: Metric) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    let Metric {
        current,
        peak,
        allocated,
        freed,
    } = metric;
    dict.set_item("current", current)?;
    dict.set_item("peak", peak)?;
    dict.set_item("allocated", allocated)?;
    dict.set_item("freed", freed)?;
    Ok(dict)
}

/// What the allocator has done for one device: the fields of `DeviceStats`.
#[pyfunction]
fn device_stats(py: Python<'_>, device: c_int) -> PyResult<Bound<'_, PyDict>> {
    let stats = py.detach(|| uvmrust_torch::device_stats(device));
    let dict = PyDict::new(py);
    for (name, value) in [
        ("blocks", stats.blocks),
        ("allocated_bytes", stats.allocated_bytes),
        ("requested_bytes", stats.requested_bytes),
        ("segments", stats.segments),
        ("reserved_bytes", stats.reserved_bytes),
    ] {
        dict.set_item(name, metric(py, value)?)?;
    }
    for (name, value) in [
        ("retries", stats.retries),
        ("failures", stats.failures),
        ("discards", stats.discards),
        ("discarded_bytes", stats.discarded_bytes),
        ("prefetches", stats.prefetches),
        ("prefetched_bytes", stats.prefetched_bytes),
        ("live_bytes", stats.live_bytes),
        ("budget_bytes", stats.budget_bytes),
    ] {
        dict.set_item(name, value)?;
    }
    dict.set_item("short", stats.short != 0)?;
    Ok(dict)
}

/// Begins the peaks of a device's statistics anew.
#[pyfunction]
fn reset_peaks(py: Python<'_>, device: c_int) {
    py.detach(|| uvmrust_torch::reset_peaks(device));
}

/// Gives free memory back until no more than `keep` bytes are cached.
#[pyfunction]
fn trim(py: Python<'_>, keep: u64) {
    py.detach(|| uvmrust_torch::uvmrust_torch_trim(keep));
}

/// Memory from the allocator for use in a stream of a device; 0 if there is none.
#[pyfunction]
fn allocate(py: Python<'_>, bytes: usize, device: c_int, stream: usize) -> usize {
    py.detach(|| uvmrust_torch_try_malloc(bytes, device, stream as *mut c_void) as usize)
}

/// Gives memory back that `allocate` gave. `stream` is the last that uses it, which the one
/// of the allocation then waits for.
#[pyfunction]
fn deallocate(py: Python<'_>, address: usize, bytes: usize, device: c_int, stream: usize) {
    py.detach(|| {
        let (address, stream) = (address as *mut c_void, stream as *mut c_void);
        uvmrust_torch_record_stream_on(address, device, stream);
        uvmrust_torch_free(address, bytes, device, stream);
    });
}

/// Raises the first error of a discard that ran in a stream since this was last called.
#[pyfunction]
fn check(py: Python<'_>) -> PyResult<()> {
    let error: Result<()> = Uvm::process().take_stream_error();
    error.map_err(|error| raise(py, error))
}

/// What is asked for: before which kernel, by the word of the plan's text, and of which tensor.
type Asked = (u64, &'static str, u64);

/// The names of a step's kernels in order, those of its tensors by number, and what is asked for.
type Recorded = (Vec<String>, HashMap<u64, String>, Vec<Asked>);

/// What a plan says of the program that was recorded for it; no names: the plan is of no program. `ValueError`: it
/// is no plan.
#[pyfunction]
fn plan(text: &str) -> PyResult<Recorded> {
    let refused = |e: uvmsim_plan::Error| PyValueError::new_err(e.to_string());
    let plan: uvmsim_plan::Plan = text.parse().map_err(refused)?;
    let requests = plan.requests.iter();
    let asked = requests.map(|r| (r.kernel, r.what.word(), r.tensor));
    let program = plan.program.as_ref();
    let launches = program.iter().flat_map(|p| p.names());
    let tensors = program.iter().flat_map(|p| &p.tensors);
    Ok((
        launches.map(str::to_owned).collect(),
        tensors.map(|t| (t.of, t.name.to_string())).collect(),
        asked.collect(),
    ))
}

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("Error", module.py().get_type::<UvmError>())?;
    module.add_function(wrap_pyfunction!(backend, module)?)?;
    module.add_function(wrap_pyfunction!(discard, module)?)?;
    module.add_function(wrap_pyfunction!(prefetch, module)?)?;
    module.add_function(wrap_pyfunction!(discard_and_prefetch, module)?)?;
    module.add_function(wrap_pyfunction!(current_device, module)?)?;
    module.add_function(wrap_pyfunction!(stats, module)?)?;
    module.add_function(wrap_pyfunction!(device_stats, module)?)?;
    module.add_function(wrap_pyfunction!(reset_peaks, module)?)?;
    module.add_function(wrap_pyfunction!(trim, module)?)?;
    module.add_function(wrap_pyfunction!(allocate, module)?)?;
    module.add_function(wrap_pyfunction!(deallocate, module)?)?;
    module.add_function(wrap_pyfunction!(check, module)?)?;
    module.add_function(wrap_pyfunction!(plan, module)?)?;
    Ok(())
}
