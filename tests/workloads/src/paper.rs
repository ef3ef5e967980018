// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! What the paper measured: GB over PCIe, and what its networks allocate.

use crate::program::Mode;

/// A row of tables 4, 6 and 8: UVM-opt, UvmDiscard, UvmDiscardLazy.
pub type Row = [f64; 3];

/// FIR at less than 100 %, 200, 300 and 400 % (table 4).
pub const FIR: [Row; 4] = [
    [5.66, 5.66, 5.66],
    [11.44, 5.88, 5.88],
    [13.38, 7.81, 7.81],
    [14.34, 8.78, 8.78],
];

/// Radix-sort's traffic in GB, from table 6.
pub const RADIX: [Row; 4] = [
    [5.00, 5.00, 5.00],
    [300.80, 244.93, 244.92],
    [345.40, 315.50, 315.52],
    [356.85, 339.76, 339.76],
];

/// Hash-join's traffic in GB, from table 8.
pub const JOIN: [Row; 4] = [
    [2.98, 2.98, 2.98],
    [34.62, 4.89, 4.89],
    [36.42, 16.19, 16.19],
    [58.23, 46.61, 46.44],
];

/// GPU memory of the paper's machine as the device reports it (§7.5).
pub const GPU_GB: f64 = 11.77;

/// What a network allocates at a batch size (§7.5). Its traffic is in figure 5,
/// which has no numbers.
#[derive(Clone, Copy, Debug)]
pub struct Allocated {
    /// Name in the zoo.
    pub net: &'static str,
    /// Images, or texts, in a mini-batch.
    pub batch: u64,
    /// GB of its CUDA buffers.
    pub gb: f64,
}

const fn allocated(net: &'static str, batch: u64, gb: f64) -> Allocated {
    Allocated { net, batch, gb }
}

/// All that the text names. The paper's ResNet-53 is Darknet-53.
pub const NETS: [Allocated; 8] = [
    allocated("vgg16", 75, 12.0),
    allocated("vgg16", 150, 21.1),
    allocated("darknet19", 171, 11.2),
    allocated("darknet19", 360, 23.4),
    allocated("darknet53", 56, 10.8),
    allocated("darknet53", 150, 28.5),
    allocated("rnn", 150, 10.2),
    allocated("rnn", 300, 20.0),
];

/// The column of a mode; none for NVIDIA's own discard, which is younger than the paper.
pub fn of(row: &Row, mode: Mode) -> Option<f64> {
    match mode {
        Mode::Plain | Mode::Opt => Some(row[0]),
        Mode::Discard => Some(row[1]),
        Mode::Lazy => Some(row[2]),
        Mode::Native | Mode::NativeLazy => None,
    }
}
