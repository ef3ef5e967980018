// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What uvmsim knows of a machine: a GPU, its link, its host and its SSD.
//!
//! Every number is a [`Machine`] field, listed in [`CONSTANTS`] with the option
//! that sets it, its unit, what it means and where it is from. A preset
//! (presets::PRESETS) is a name for a set of values, each with its source. What
//! has no source is an assumption, and says so.

pub mod presets;
mod units;

pub use units::{evict_policies, parse_bytes, parse_count, parse_evict_policy};
pub use units::{parse_rate, parse_time, ParseError};
use uvm_policy::evict::Choice;

/// Bytes in a GiB.
pub const GIB: u64 = 1 << 30;
/// Bytes in a MiB.
pub const MIB: u64 = 1 << 20;
/// Bytes of a page of UVM.
pub const PAGE: u64 = 4096;
/// Bytes of a va_block and of a root chunk.
pub const BLOCK: u64 = 2 * MIB;

/// How the text of a constant is read and shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes: `40GiB`, `24GB`, `4096`.
    Bytes,
    /// Bytes per second; a bare number is in units of 1e9.
    Rate,
    /// Floating-point operations per second; a bare number is in units of 1e12.
    Flops,
    /// Nanoseconds: `45us`; a bare number is in microseconds.
    Time,
    /// A number without a unit.
    Count,
    /// A share, 0 to 1.
    Share,
    /// The name of one of the driver's eviction policies; in base units its number.
    EvictPolicy,
}

/// One constant: how it is named, what it means, where its default is from.
pub struct Constant {
    /// The option without its dashes, `pcie-h2d`.
    pub option: &'static str,
    /// How it is written.
    pub unit: Unit,
    /// What it means, for the help.
    pub meaning: &'static str,
    /// Where the value that no preset overrides is from.
    pub source: &'static str,
    get: fn(&Machine) -> f64,
    set: fn(&mut Machine, f64),
}

impl Constant {
    /// Its value in `machine`, in base units (bytes, bytes/s, 1/s, ns, 1).
    pub fn get(&self, machine: &Machine) -> f64 {
        (self.get)(machine)
    }
}

macro_rules! machine {
    ($($field:ident: $type:ty, $option:literal, $unit:ident, $default:expr, $meaning:literal, $source:literal;)*) => {
        /// A machine. Rates are in bytes (or operations) per second, times in
        /// nanoseconds, sizes in bytes.
        #[derive(Clone, Debug, PartialEq)]
        pub struct Machine {
            /// The preset it was made from.
            pub preset: &'static str,
            $(#[doc = $meaning] pub $field: $type,)*
        }

        /// Every constant of a [`Machine`].
        pub const CONSTANTS: &[Constant] = &[$(Constant {
            option: $option,
            unit: Unit::$unit,
            meaning: $meaning,
            source: $source,
            get: |m| m.$field as f64,
            set: |m, v| m.$field = v as $type,
        }),*];

        /// What holds where a preset says nothing else.
        pub(crate) const COMMON: Machine = Machine { preset: "", $($field: $default),* };
    };
}

machine! {
    gpu_mem: u64, "gpu-mem", Bytes, 0, "GPU memory that tensors may fill", "preset";
    gpu_bw: f64, "gpu-bw", Rate, 0.0, "bandwidth of GPU memory", "preset";
    fp32: f64, "fp32", Flops, 0.0, "peak FP32 rate", "preset";
    tf32: f64, "tf32", Flops, 0.0, "peak dense TF32 tensor rate (FP32's where there is none)", "preset";
    fp16: f64, "fp16", Flops, 0.0, "peak dense FP16 tensor rate with FP32 accumulation", "preset";
    gemm_efficiency: f64, "gemm-efficiency", Share, 0.7, "share of the peak rate that convolutions and matrix products reach", "assumption";
    mem_efficiency: f64, "mem-efficiency", Share, 0.8, "share of memory bandwidth that streaming kernels reach", "assumption";
    launch: u64, "launch", Time, 3_000, "least duration of a kernel", "assumption";

    pcie_h2d: f64, "pcie-h2d", Rate, 15.754e9, "rate of the link, host or SSD to GPU", "G10 table 2";
    pcie_d2h: f64, "pcie-d2h", Rate, 15.754e9, "rate of the link, GPU to host or SSD", "G10 table 2";
    copy_engines: u64, "copy-engines", Count, 2, "copy engines; with one, the two directions take turns", "assumption";
    copy_setup: u64, "copy-setup", Time, 1_500, "fixed cost of one copy on a copy engine", "assumption";
    zero_share: f64, "zero-share", Share, 0.5, "rate at which a copy engine zeroes memory, as a share of gpu-bw", "assumption";

    fault_batch: u64, "fault-batch", Count, 256, "faults fetched and serviced together", "MOST table I; upstream's default";
    fault_latency: u64, "fault-latency", Time, 45_000, "interrupt to replay of a batch, without its copies", "G10 table 2, MOST table I";
    fault_block: u64, "fault-block", Time, 2_000, "CPU time for one va_block of a batch", "assumption";
    tree_prefetch: u64, "tree-prefetch", Count, 1, "1: the tree prefetcher is on", "upstream's default";
    tree_threshold: u64, "tree-threshold", Count, 51, "percent of a subtree that must be resident or faulted for all of it to be fetched", "upstream's default";
    evict_policy: u32, "evict-policy", EvictPolicy, 0, "which used root chunk the driver reclaims first, when none is free, unused or discarded", "the driver's default (uvm_rust_evict_policy)";
    tlb_invalidate: u64, "tlb-invalidate", Time, 4_000, "unmapping and a TLB invalidate, waited for", "assumption";
    evict_overhead: u64, "evict-overhead", Time, 5_000, "CPU time to pick and retire a 2 MiB root chunk", "assumption";
    prefetch_call: u64, "prefetch-call", Time, 4_000, "CPU time of a prefetch or migration request", "UvmDiscard table 2: of the order of a discard";
    prefetch_block: u64, "prefetch-block", Time, 1_000, "CPU time for each va_block of such a request", "UvmDiscard table 2: of the order of a discard";
    prefetch_resident: u64, "prefetch-resident", Time, 200, "the same for a va_block that is wholly resident", "assumption";
    discard_call: u64, "discard-call", Time, 3_000, "CPU time of an eager discard", "UvmDiscard table 2: line through 4 us at 2 MB, 70 us at 128 MB";
    discard_block: u64, "discard-block", Time, 1_050, "the same for each va_block", "UvmDiscard table 2: line through 4 us at 2 MB, 70 us at 128 MB";
    discard_lazy_block: u64, "discard-lazy-block", Time, 200, "CPU time of a lazy discard for each va_block: no unmapping", "assumption";

    host_mem: u64, "host-mem", Bytes, 128 * GIB, "host memory that evicted pages may fill", "G10 table 2";
    keep_clean: u64, "keep-clean", Count, 1, "1: a copy outside the GPU stays valid until the page is written", "issue 4; upstream UVM: 0";

    ssd_read: f64, "ssd-read", Rate, 3.2e9, "SSD read rate; 0: no SSD", "G10 table 2";
    ssd_write: f64, "ssd-write", Rate, 3.0e9, "SSD write rate", "G10 table 2";
    ssd_read_latency: u64, "ssd-read-latency", Time, 20_000, "latency of an SSD read", "G10 table 2";
    ssd_write_latency: u64, "ssd-write-latency", Time, 16_000, "latency of an SSD write", "G10 table 2";
    ssd_request: u64, "ssd-request", Bytes, 128 * 1024, "largest single SSD request", "assumption";
    ssd_parallelism: u64, "ssd-parallelism", Count, 32, "SSD requests in flight", "assumption";

    gpus: u64, "gpus", Count, 1, "GPUs that split each kernel and share the SSD", "MOST section IV.C";
    nvlink: f64, "nvlink", Rate, 900.0e9, "rate of NVLink between GPUs", "MOST section IV.C";
}

/// Why a constant could not be set.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetError {
    /// No constant has this option.
    #[error("no machine constant is called `{0}`; `uvmsim machine` lists them")]
    Unknown(String),
    /// Its text cannot be read.
    #[error("--{0}: {1}")]
    Value(String, ParseError),
}

impl Machine {
    /// Sets the constant of option `option` from `text`.
    ///
    /// # Errors
    /// The option is unknown, or the text is not of its unit.
    pub fn set(&mut self, option: &str, text: &str) -> Result<(), SetError> {
        let constant = CONSTANTS.iter().find(|c| c.option == option);
        let constant = constant.ok_or_else(|| SetError::Unknown(option.into()))?;
        let value = constant.unit.parse(text);
        (constant.set)(self, value.map_err(|e| SetError::Value(option.into(), e))?);
        Ok(())
    }

    /// Rate at which GPU memory is zeroed, bytes per second.
    pub fn zero_rate(&self) -> f64 {
        self.gpu_bw * self.zero_share
    }

    /// The driver's policy that says which used root chunk is reclaimed first.
    pub fn evict_choice(&self) -> Choice {
        Choice::from_number(self.evict_policy).unwrap_or_default()
    }

    /// Root chunks in GPU memory.
    pub fn chunks(&self) -> u64 {
        self.gpu_mem / BLOCK
    }
}

impl Unit {
    /// Reads `text`, in base units.
    ///
    /// # Errors
    /// The text is not of this unit, or out of range.
    pub fn parse(self, text: &str) -> Result<f64, ParseError> {
        match self {
            Self::Bytes => parse_bytes(text).map(|b| b as f64),
            Self::Rate => parse_rate(text, 9),
            Self::Flops => parse_rate(text, 12),
            Self::Time => parse_time(text).map(|t| t as f64),
            Self::Count => parse_count(text).map(|n| n as f64),
            Self::Share => match text.parse::<f64>() {
                Ok(v) if (0.0..=1.0).contains(&v) => Ok(v),
                _ => Err(ParseError::new(text, "a share from 0 to 1")),
            },
            Self::EvictPolicy => parse_evict_policy(text).map(|p| p.number().into()),
        }
    }

    /// Writes `value` as [`parse`](Self::parse) reads it.
    pub fn show(self, value: f64) -> String {
        match self {
            Self::Bytes if value >= GIB as f64 => format!("{:.2}GiB", value / GIB as f64),
            Self::Bytes => format!("{value}B"),
            Self::Rate => format!("{}GB/s", value / 1e9),
            Self::Flops => format!("{}TFLOP/s", value / 1e12),
            Self::Time => format!("{}us", value / 1e3),
            Self::Count | Self::Share => format!("{value}"),
            Self::EvictPolicy => Choice::from_number(value as u32)
                .unwrap_or_default()
                .name()
                .into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_constant_can_be_set_by_its_option() {
        for c in CONSTANTS {
            let mut m = COMMON;
            let text = match c.unit {
                Unit::Share => "0.25",
                Unit::EvictPolicy => "mru",
                _ => "7",
            };
            m.set(c.option, text).unwrap();
            let want = match c.unit {
                Unit::Rate => 7e9,
                Unit::Flops => 7e12,
                Unit::Time => 7e3,
                Unit::Share => 0.25,
                Unit::EvictPolicy => 1.0,
                Unit::Bytes | Unit::Count => 7.0,
            };
            assert_eq!(c.get(&m), want, "{}", c.option);
            let shown = c.unit.show(want);
            assert_eq!(c.unit.parse(&shown), Ok(want), "{}: {shown}", c.option);
            assert!(!c.meaning.is_empty() && !c.source.is_empty());
        }
    }

    #[test]
    fn options_are_distinct() {
        for (i, a) in CONSTANTS.iter().enumerate() {
            let mut others = CONSTANTS[i + 1..].iter();
            assert!(others.all(|b| a.option != b.option), "{}", a.option);
        }
    }

    #[test]
    fn errors_name_the_option() {
        let mut m = COMMON;
        for (option, value, named) in [
            ("gpu-memory", "1", "gpu-memory"),
            ("gpu-mem", "many", "--gpu-mem"),
        ] {
            let said = m.set(option, value).unwrap_err().to_string();
            assert!(said.contains(named), "{said}");
        }
        assert!(m.set("mem-efficiency", "1.5").is_err());
        assert!(m.set("pcie-h2d", "-1").is_err());
    }
}
