// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A captured graph, for the tests of what becomes a part of one.

use std::ffi::{c_int, c_ulonglong, c_void, CStr};

use uvmrust::cuda::{Graph, Stream};

use super::gpu::{cuda_did, Gpu, Tested};
use super::Flaw;

/// `CU_STREAM_CAPTURE_MODE_THREAD_LOCAL`: other threads may call what they want.
const THREAD_LOCAL: c_int = 1;

type Begin = unsafe extern "C" fn(Stream, c_int) -> c_int;
type End = unsafe extern "C" fn(Stream, *mut Graph) -> c_int;
type Instantiate = unsafe extern "C" fn(*mut *mut c_void, Graph, c_ulonglong) -> c_int;
type Launch = unsafe extern "C" fn(*mut c_void, Stream) -> c_int;
type Nodes = unsafe extern "C" fn(Graph, *mut *mut c_void, *mut usize) -> c_int;
type Destroy = unsafe extern "C" fn(*mut c_void) -> c_int;

/// CUDA's calls for graphs.
pub(super) struct Graphs {
    begin: Begin,
    end: End,
    nodes: Nodes,
    instantiate: Instantiate,
    launch: Launch,
    destroy: Destroy,
    destroy_executable: Destroy,
}

impl Graphs {
    /// # Errors
    /// Which of them is missing, as `symbol` says it.
    pub(super) fn of(
        symbol: impl Fn(&CStr) -> Result<*mut c_void, String>,
    ) -> Result<Self, String> {
        // SAFETY: CUDA's functions of these names have these types, and are not null.
        unsafe {
            Ok(Self {
                begin: std::mem::transmute::<*mut c_void, Begin>(symbol(
                    c"cuStreamBeginCapture_v2",
                )?),
                end: std::mem::transmute::<*mut c_void, End>(symbol(c"cuStreamEndCapture")?),
                nodes: std::mem::transmute::<*mut c_void, Nodes>(symbol(c"cuGraphGetNodes")?),
                instantiate: std::mem::transmute::<*mut c_void, Instantiate>(symbol(
                    c"cuGraphInstantiateWithFlags",
                )?),
                launch: std::mem::transmute::<*mut c_void, Launch>(symbol(c"cuGraphLaunch")?),
                destroy: std::mem::transmute::<*mut c_void, Destroy>(symbol(c"cuGraphDestroy")?),
                destroy_executable: std::mem::transmute::<*mut c_void, Destroy>(symbol(
                    c"cuGraphExecDestroy",
                )?),
            })
        }
    }

    /// Captures what `work` puts into the GPU's stream, and has `launched` launch it. That `work`
    /// puts something there and writes behind it makes two nodes: with one alone, what was to be a part
    /// of the graph was done at once, or not at all.
    pub(super) fn capture(
        &self,
        gpu: &Gpu,
        work: impl FnOnce() -> Result<(), Flaw>,
        launched: impl FnOnce(&dyn Fn() -> Tested) -> Tested,
    ) -> Result<(), Flaw> {
        let mut graph = std::ptr::null_mut();
        // SAFETY: a stream of the GPU's own, which nobody else captures; the output is writable.
        let (put, ended) = unsafe {
            cuda_did(
                "cuStreamBeginCapture",
                (self.begin)(gpu.stream, THREAD_LOCAL),
            )?;
            let put = work();
            (put, (self.end)(gpu.stream, &mut graph))
        };
        let mut executable = std::ptr::null_mut();
        let done = put.and_then(|()| {
            cuda_did("cuStreamEndCapture", ended)?;
            let mut nodes = 0;
            // SAFETY: a graph that was just made; only the number is asked for.
            let asked = unsafe { (self.nodes)(graph, std::ptr::null_mut(), &mut nodes) };
            cuda_did("cuGraphGetNodes", asked)?;
            if nodes < 2 {
                return Err(Flaw::Wrong(format!(
                    "it is not a part of the graph, which has {nodes} of 2 nodes"
                )));
            }
            // SAFETY: a graph that was just made; the output is writable.
            let made = unsafe { (self.instantiate)(&mut executable, graph, 0) };
            cuda_did("cuGraphInstantiate", made)?;
            // SAFETY: made above, and not destroyed before all of its launches are done.
            let launch = || unsafe {
                cuda_did("cuGraphLaunch", (self.launch)(executable, gpu.stream))?;
                gpu.wait()
            };
            Ok(launched(&launch)?)
        });
        // SAFETY: made above, where they are not null, and not used any more.
        unsafe {
            if !executable.is_null() {
                let _ = (self.destroy_executable)(executable);
            }
            if !graph.is_null() {
                let _ = (self.destroy)(graph);
            }
        }
        done
    }
}
