// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Training steps of well-known networks, built from shapes alone.
//!
//! [`NETS`] lists the networks that the papers train; [`Entry::build`] makes a
//! step of one: kernels in order, with the tensors that each reads and writes,
//! their sizes, and what each kernel computes and moves. No data, no framework.
//! A [roofline] of a GPU gives the durations.

mod cnn;
pub mod config;
pub mod net;
mod ops;
pub mod roofline;
mod seq;

use std::sync::LazyLock;

use serde::Deserialize;
use uvmsim_machine::Machine;
use uvmsim_trace::Trace;

pub use net::Optimizer;
pub use net::Precision;
pub use net::Step;

use net::Net;
use net::Val;
use seq::Decoder;
use seq::Transformer;

/// What may be chosen of a step.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Samples in the step; at least 1.
    pub batch: u64,
    /// Tokens or time steps in a sample; `None`: the network's own.
    pub tokens: Option<u64>,
    /// The number format that tensors and products have.
    pub precision: Precision,
    /// Optimizer; `None`: the network's own.
    pub optimizer: Option<Optimizer>,
}

impl Options {
    /// A step of `batch` samples, all else as the network has it.
    pub fn new(batch: u64, precision: Precision) -> Self {
        Self {
            batch,
            tokens: None,
            precision,
            optimizer: None,
        }
    }
}

/// A network of the zoo, or one from a configuration file.
#[derive(Clone, Debug, Deserialize)]
pub struct Entry {
    /// What `uvmsim zoo` calls it.
    pub name: String,
    /// What it is and where from.
    pub about: String,
    /// A batch size to start from.
    pub batch: u64,
    /// Tokens or time steps in a sample; 0: no such thing.
    #[serde(default)]
    pub tokens: u64,
    /// Published number of learned parameters.
    pub parameters: u64,
    /// What it is trained with.
    pub optimizer: Optimizer,
    layers: Layers,
}

/// What a network is made of.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "of", rename_all = "kebab-case")]
enum Layers {
    Alexnet,
    Vgg { blocks: [u64; 5] },
    Resnet { blocks: [u64; 4] },
    Darknet19,
    Darknet53,
    Rnn,
    Inception,
    Senet,
    Mobilenet { layers: Vec<(u64, u64)> },
    Dcgan,
    Bert(Transformer),
    Decoder(Decoder),
    Vit(Transformer),
    Dlrm { dim: u64, tables: Vec<u64> },
}

/// The most samples, and tokens in a sample, that a step may have.
pub const LARGEST: u64 = 1 << 24;

/// The most tokens of all samples together: what comes of more cannot be counted in 64 bits.
pub const LARGEST_ROWS: u64 = 1 << 26;

impl Entry {
    /// A training step. `options.batch` and tokens are taken within 1 and
    /// [`LARGEST`].
    pub fn build(&self, options: &Options) -> Step {
        let optimizer = options.optimizer.unwrap_or(self.optimizer);
        let tokens = options.tokens.unwrap_or(self.tokens).clamp(1, LARGEST);
        let batch = options.batch.clamp(1, LARGEST);
        let mut net = Net::new(&self.name, batch, options.precision);
        let losses = match &self.layers {
            Layers::Dcgan => return dcgan(net, optimizer),
            layers => layers.losses(&mut net, tokens),
        };
        net.train(&losses, optimizer)
    }

    /// What the first of two GPUs does in a step, where each has half of a decoder's layers and the step's samples come
    /// in `parts` of `options.batch`. A part goes forward here while the one before it is on the other GPU, so two are
    /// under way at once (PipeDream's 1F1B). `None`: this is no decoder.
    pub fn first_stage(&self, options: &Options, parts: u64) -> Option<Step> {
        let Layers::Decoder(decoder) = &self.layers else {
            return None;
        };
        let tokens = options.tokens.unwrap_or(self.tokens).clamp(1, LARGEST);
        let mut net = Net::new(&self.name, options.batch, options.precision);
        let mut away = None;
        for part in 0..=parts {
            let ahead = (part < parts).then(|| {
                let (_, out) = decoder.begin(&mut net, tokens, decoder.blocks.layers / 2);
                (net.suspend(), out)
            });
            if let Some((built, out)) = std::mem::replace(&mut away, ahead) {
                net.resume(built);
                net.backward_from_sent(out);
            }
        }
        net.update("", options.optimizer.unwrap_or(self.optimizer));
        Some(net.finish())
    }

    /// A training step as a trace, with durations from `machine`'s roofline.
    pub fn trace(&self, options: &Options, machine: &Machine) -> Trace {
        self.build(options).timed(machine, options.precision)
    }
}

impl Layers {
    /// The forward pass, up to its losses.
    fn losses(&self, n: &mut Net, tokens: u64) -> Vec<Val> {
        let with = |shape: &Transformer, tokens| Transformer { tokens, ..*shape };
        let loss = match self {
            Self::Alexnet => cnn::alexnet(n),
            Self::Vgg { blocks } => cnn::vgg(n, *blocks),
            Self::Resnet { blocks } => cnn::resnet(n, *blocks),
            Self::Darknet19 => cnn::darknet19(n),
            Self::Darknet53 => cnn::darknet53(n),
            Self::Inception => cnn::inception_v3(n),
            Self::Senet => cnn::senet154(n),
            Self::Mobilenet { layers } => cnn::mobilenet(n, layers),
            Self::Bert(shape) => seq::bert(n, with(shape, tokens)),
            Self::Decoder(decoder) => decoder.loss(n, tokens),
            Self::Vit(shape) => seq::vit(n, *shape),
            Self::Dlrm { dim, tables } => seq::dlrm(n, *dim, tables),
            Self::Rnn => return seq::rnn(n, tokens),
            // It learns in three passes.
            Self::Dcgan => return Vec::new(),
        };
        vec![loss]
    }
}

/// Every network of the zoo: those of `nets.toml`.
pub static NETS: LazyLock<Vec<Entry>> = LazyLock::new(|| read().unwrap_or_default());

#[derive(Deserialize)]
struct Nets {
    net: Vec<Entry>,
}

fn read() -> Result<Vec<Entry>, toml::de::Error> {
    toml::from_str(include_str!("../nets.toml")).map(|all: Nets| all.net)
}

/// Finds a network by name.
pub fn find(name: &str) -> Option<&'static Entry> {
    NETS.iter().find(|e| e.name == name)
}

/// One step of each of DCGAN's networks, as PyTorch's example takes them: the
/// discriminator learns from real and from generated images, then the generator
/// from the discriminator.
fn dcgan(mut n: Net, optimizer: Optimizer) -> Step {
    let batch = n.batch;
    let real = n.input("images", [batch, 3, 64, 64], 4);
    let loss = cnn::dcgan_discriminator(&mut n, real);
    n.backward(&[loss]);
    let fake = cnn::dcgan_generator(&mut n);
    let held = n.detach(fake);
    let loss = cnn::dcgan_discriminator(&mut n, held);
    n.backward(&[loss]);
    n.update("netD", optimizer);
    let loss = cnn::dcgan_discriminator(&mut n, fake);
    n.backward(&[loss]);
    n.update("netG", optimizer);
    n.finish()
}

#[cfg(test)]
mod tests;
