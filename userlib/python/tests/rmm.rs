// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The header for RMM. It runs on a stub of RMM's interface, both as it was up to 26.04 and
//! as it is since, and of CUDA; where Python's package librmm is installed, it is also
//! compiled against RMM's own headers.

#![allow(clippy::unwrap_used)]

#[path = "../../tests/harness.rs"]
mod harness;

use std::path::{Path, PathBuf};
use std::process::Command;

use harness::{cdylib, have_cc, skipped, stub, tmp, top};

/// What NVIDIA's header for hosts includes of a compiler that is not there.
const HOST_DEFINES: &str = "
#define CUDARTAPI
#define CUDARTAPI_CDECL
#define __host__
#define __device__
#define __global__
#define __device_builtin__
#define __cudart_builtin__
#define __device_builtin_texture_type__
#define __device_builtin_surface_type__
#define __forceinline__ inline __attribute__((always_inline))
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __align__(n)
";

/// A program that RMM's own headers check: a buffer of RMM's from the resource.
const BUFFER: &str = "
#include <uvmrust_rmm.hpp>
#include <rmm/device_buffer.hpp>
#if UVMRUST_RMM_HAS_BASE
rmm::cuda_stream_view stream;
#else
static_assert(cuda::mr::resource_with<uvmrust::memory_resource,
                                      cuda::mr::device_accessible, cuda::mr::host_accessible>);
cuda::stream_ref stream{cudaStreamLegacy};
#endif
void check() { uvmrust::memory_resource mr; rmm::device_buffer buffer(100, stream, mr); }
";

#[track_caller]
fn have_cxx() -> bool {
    let have = Command::new("c++").arg("--version").output().is_ok();
    if !have {
        skipped("no C++ compiler");
    }
    have
}

fn cxx(arguments: &[String]) {
    let done = Command::new("c++").args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success(), "{said}");
}

fn include(folder: &Path) -> String {
    format!("-I{}", folder.display())
}

#[test]
fn a_program_of_rmms_keeps_its_data() {
    if !have_cc() || !have_cxx() {
        return;
    }
    let here = top().join("userlib/python");
    let allocator = cdylib("uvmrust-torch", false);
    let cuda = stub("rmm-cuda", "-DSTUB");
    let threads = "-DCUDA_API_PER_THREAD_DEFAULT_STREAM";
    let kinds = [
        ("old", "-USTUB"),
        ("new", "-USTUB"),
        ("old", threads),
        ("new", threads),
    ];
    for (interface, defined) in kinds {
        let program = tmp(&format!("rmm-{interface}{defined}"));
        let mut arguments: Vec<String> = [
            "-std=c++20",
            "-O1",
            "-g",
            "-Wall",
            "-Werror",
            "-pthread",
            defined,
        ]
        .map(str::to_owned)
        .to_vec();
        arguments.extend([
            include(&here.join("tests/rmm").join(interface)),
            include(&here.join("tests/rmm/common")),
            include(&top().join("userlib/tests")),
            include(&here.join("uvmrust/include")),
            here.join("tests/rmm/program.cpp").display().to_string(),
            allocator.display().to_string(),
            cuda.display().to_string(),
            "-o".to_owned(),
            program.display().to_string(),
        ]);
        cxx(&arguments);
        for driver in ["ours", "native", "old"] {
            let done = Command::new(&program)
                .env("LD_PRELOAD", &cuda)
                .env("LD_LIBRARY_PATH", allocator.parent().unwrap())
                .env("STUB_UVM", driver)
                .env("UVMRUST_FD", "900")
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&done.stdout);
            assert!(
                done.status.success(),
                "{interface} {defined} {driver}: {said}{done:?}"
            );
        }
    }
}

/// The folders of headers of the package librmm and of CUDA's runtime, if both are installed.
fn rmms_headers() -> Option<[PathBuf; 3]> {
    let ask = "import os, librmm, nvidia.cuda_runtime as r; \
               print(os.path.dirname(librmm.__file__)); print(list(r.__path__)[0])";
    let done = Command::new("python3").args(["-c", ask]).output().ok()?;
    let text = String::from_utf8(done.stdout).ok()?;
    let mut lines = text.lines().map(|line| Path::new(line).join("include"));
    let (rmm, runtime) = (lines.next()?, lines.next()?);
    Some([rmm.clone(), rmm.join("rapids"), runtime])
}

#[test]
fn rmms_own_headers_take_it() {
    if !have_cxx() {
        return;
    }
    let Some(headers) = rmms_headers() else {
        return skipped("no RMM (pip install librmm-cu12 nvidia-cuda-runtime-cu12)");
    };
    let folder = tmp("rmm-own");
    std::fs::create_dir_all(folder.join("crt")).unwrap();
    std::fs::write(folder.join("crt/host_defines.h"), HOST_DEFINES).unwrap();
    let source = folder.join("buffer.cpp");
    std::fs::write(&source, BUFFER).unwrap();
    let mut arguments: Vec<String> = ["-std=c++20", "-fsyntax-only", "-w"]
        .map(str::to_owned)
        .to_vec();
    // What RMM 25 asks its users to define.
    arguments.push("-DLIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE".to_owned());
    arguments.push(include(&folder));
    arguments.extend(headers.iter().map(|folder| include(folder)));
    arguments.push(include(&top().join("userlib/python/uvmrust/include")));
    arguments.push(source.display().to_string());
    cxx(&arguments);
}
