// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Durations from a roofline: a kernel takes as long as its arithmetic or its
//! memory traffic, whichever is longer (Williams et al., CACM 2009).

use uvmsim_machine::Machine;

use crate::net::Precision;

/// Which peak bounds a kernel's arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// A convolution or matrix product: tensor cores, where the precision has
    /// them.
    Product,
    /// Everything else: FP32 units.
    Vector,
}

/// What a kernel computes and moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// Which peak bounds it.
    pub class: Class,
    /// Floating-point operations; a multiply-add is two.
    pub flops: u64,
    /// Bytes read and written in GPU memory.
    pub bytes: u64,
}

impl Cost {
    /// Nanoseconds on `machine` at `precision`.
    pub fn nanoseconds(&self, machine: &Machine, precision: Precision) -> u64 {
        let peak = match (self.class, precision) {
            (Class::Vector, _) => machine.fp32,
            (Class::Product, Precision::Fp32) => machine.fp32 * machine.gemm_efficiency,
            (Class::Product, Precision::Tf32) => machine.tf32 * machine.gemm_efficiency,
            (Class::Product, Precision::Fp16 | Precision::Bf16) => {
                machine.fp16 * machine.gemm_efficiency
            }
        };
        let compute = self.flops as f64 / peak;
        let memory = self.bytes as f64 / (machine.gpu_bw * machine.mem_efficiency);
        ((compute.max(memory) * 1e9).ceil() as u64).max(machine.launch)
    }
}
